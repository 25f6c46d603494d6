"""Programs that call a bwrap today: what each of them asks, as the command lines that it builds.

The small programs that they bring along (a relay from a port to a socket, a seccomp loader) are
replaced by stand-ins. Everything else is as the callers do it.
"""

import os
import re
import shutil
import socket
import stat
import struct
import threading

import nshelp
from harness import case, descendants
from nshelp import status_caps

CAPS = ("grep", "^Cap", "/proc/self/status")
ALLOW = struct.pack("=HBBI", 6, 0, 0, 0x7fff0000)

RELAY = r"""
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
inner, _ = server.accept()
outer = socket.socket(socket.AF_UNIX)
outer.connect(sys.argv[2])
outer.sendall(inner.recv(100))
inner.sendall(outer.recv(100))
"""


# -- what is asked before the first sandbox --------------------------------------------------------

@case("CL1", "the version is printed as callers parse it, and is new enough for all of them")
def version(ctx):
    text = ctx.ok(ctx.bw("--version")).out
    match = re.fullmatch(r"bubblewrap (\d+)\.(\d+)\.(\d+)\n", text)
    ctx.true(match, f"three numbers after the name: {text!r}")
    numbers = tuple(int(n) for n in match.groups())
    ctx.true(numbers >= (0, 9, 0), f"at least 0.9: {numbers}")
    # Build scripts take the last word, other callers the first number.
    ctx.eq(text.split()[-1], ".".join(match.groups()), "the last word")
    ctx.eq(ctx.ok(ctx.bw("--unshare-pid", "--version")).out, text, "not as the only word")
    ctx.fails(ctx.bw("--version-of-what"), rc=1)


@case("CL2", "the help names the options that callers look for")
def help_text(ctx):
    result = ctx.ok(ctx.bw("--help"))
    ctx.eq(result.err, "", "messages")
    for option in ("--argv0", "--perms", "--disable-userns", "--args", "--bind-fd", "--ro-bind-fd",
                   "--overlay-src", "--json-status-fd", "--assert-userns-disabled", "--size",
                   "--add-seccomp-fd", "--level-prefix"):
        ctx.true(re.search(rf"^ {{4}}{option}\b", result.out, re.M), f"{option} in the help")
    bare = ctx.fails(ctx.bw(), rc=1)
    ctx.eq((bare.out, bare.err), ("", result.out), "without words: the same on stderr")


@case("CL3", "the program is a regular file, not setuid, and works as a link and from a descriptor")
def plain_file(ctx):
    real = os.path.realpath(ctx.bwrap)
    status = os.stat(real)
    ctx.true(stat.S_ISREG(status.st_mode), "a regular file")
    ctx.eq(status.st_mode & (stat.S_ISUID | stat.S_ISGID), 0, "set-id bits")
    link = os.path.join(ctx.dir, "bwrap")
    os.symlink(real, link)
    ctx.ok(ctx.run(link, "--ro-bind", "/", "/", "echo", "linked"), out="linked")
    ctx.ok(ctx.run("bwrap", "--ro-bind", "/", "/", "echo", "by name",
                   env=dict(os.environ, PATH=f"{ctx.dir}:{os.environ['PATH']}")), out="by name")
    opened = os.open(real, os.O_RDONLY)
    ctx.ok(ctx.run("/proc/self/fd/9", "--ro-bind", "/", "/", "echo", "by descriptor",
                   fds={9: opened}), out="by descriptor")
    ctx.ok(ctx.bw("--dev-bind", "/", "/", "/proc/self/exe", "--version"),
           out=ctx.bw("--version").out.strip())


@case("CL3", "a copy of the program works", timeout=90)
def copied_file(ctx):
    os.mkdir("bin")
    shutil.copy(os.path.realpath(ctx.bwrap), "bin/bwrap")
    result = ctx.run(os.path.abspath("bin/bwrap"), "--ro-bind", "/", "/", "echo", "copied")
    if "error while loading shared libraries" in result.err:
        ctx.skip("this build needs its library beside it")
    ctx.ok(result, out="copied")


# -- the texts on stderr that are parsed -----------------------------------------------------------

@case("CL4", "a missing command is reported in the shape that callers parse")
def execvp_text(ctx):
    result = ctx.fails(ctx.bw("--ro-bind", "/", "/", "nosuchprogram"), rc=1)
    ctx.eq(result.err, "bwrap: execvp nosuchprogram: No such file or directory\n", "the message")
    # The prefix is the name of the interface, not the path that was used.
    link = os.path.join(ctx.dir, "another-name")
    os.symlink(os.path.realpath(ctx.bwrap), link)
    result = ctx.fails(ctx.run(link, "--ro-bind", "/", "/", "nosuchprogram"), rc=1)
    ctx.true(result.err.startswith("bwrap: execvp nosuchprogram: "), f"the message\n{result}")


@case("CL4", "the five texts by which a caller recognises a host without sandboxes", timeout=120)
def parsed_texts(ctx):
    nshelp.need_strace(ctx)
    base = ("--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc",
            "/proc")
    plain, calls = nshelp.traced(ctx, ctx.bwrap, *base, "true")
    ctx.ok(plain)
    kinds = (("loopback: Failed RTM_NEWADDR", r"SIOCSIFADDR|^send\w+\(.*nlmsg_type=(0x14|RTM_NEWADDR)"),
             ("loopback: Failed RTM_NEWLINK", r"SIOCSIFFLAGS|^send\w+\(.*nlmsg_type=(0x10|RTM_NEWLINK)"),
             ("setting up uid map: Permission denied", r"^write\(\d+<[^>]*/uid_map>"),
             ("Can't mount proc on ", r'^(mount\(.*"proc"|fsopen\("proc")'))
    for text, pattern in kinds:
        if "RTM_NEWADDR" in text and not any(re.search(pattern, c.line) for c in calls):
            continue  # The kernel gives lo its address by itself: nothing to be refused.
        # Without a pid namespace there is no init to write, and the maps are the first writings.
        words = [w for w in base if "uid_map" not in pattern or w != "--unshare-pid"]
        result, _ = nshelp.inject_at(ctx, pattern, "EACCES", ctx.bwrap, *words, "true")
        ctx.fails(result, rc=1, err=f"^bwrap: {re.escape(text)}")
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    result = ctx.run(deny, "--userns-only", "EPERM", "clone,unshare", "ENOSYS", "clone3", "--",
                     ctx.bwrap, *base, "true")
    ctx.fails(result, rc=1, err="^bwrap: No permissions to create a new namespace")


# -- words ------------------------------------------------------------------------------------------

@case("CL5", "capability names are taken in any case, with and without CAP_")
def capability_names(ctx):
    base = ("--unshare-user", "--ro-bind", "/", "/", "--cap-drop", "ALL")
    for name in ("CAP_NET_RAW", "cap_net_raw", "net_raw", "NET_RAW", "Cap_Net_Raw", "13"):
        found = status_caps(ctx.ok(ctx.bw(*base, "--cap-add", name, *CAPS)).out)
        ctx.eq(found["CapEff"], 1 << nshelp.CAP_NET_RAW, f"--cap-add {name}")
    every = status_caps(ctx.ok(ctx.bw(*base, "--cap-add", "ALL", *CAPS)).out)["CapEff"]
    ctx.true(every & (every + 1) == 0 and every.bit_length() > 35, f"every capability: {every:x}")
    for name in ("all", "All"):
        ctx.eq(status_caps(ctx.ok(ctx.bw(*base, "--cap-add", name, *CAPS)).out)["CapEff"], every)
        dropped = ctx.ok(ctx.bw("--unshare-user", "--ro-bind", "/", "/", "--cap-add", "ALL",
                                "--cap-drop", name, *CAPS))
        ctx.eq(status_caps(dropped.out)["CapEff"], 0, f"--cap-drop {name}")
    ctx.fails(ctx.bw(*base, "--cap-add", "CAP_BOGUS", "true"), rc=1, err="unknown cap: CAP_BOGUS")


@case("CL6", "destinations without a leading slash are destinations below the root")
def relative_destinations(ctx):
    ctx.write("source/name", "text")
    result = ctx.bw(*ctx.USR, "--dir", "made", "--tmpfs", "some/where", "--symlink", "made",
                    "some/link", "--bind", "source", "bound", "--file", "9", "some/file",
                    "--proc", "proc", "--dev", "dev", "--chdir", "some", "sh", "-c",
                    "test -d /made && test -d /some/where && cat /bound/name /some/file && "
                    "readlink link && test -d /proc/self && test -c /dev/null && pwd",
                    fds={9: "data"})
    ctx.eq(ctx.ok(result).out.split(), ["textdatamade", "/some"], "what is there")


@case("CL7", "the command needs no -- before it, and the order of options does not matter")
def order_of_options(ctx):
    before = ("--unshare-pid", "--unshare-uts", "--hostname", "inside")
    mounts = ("--ro-bind", "/", "/", "--proc", "/proc")
    script = ("sh", "-c", 'echo $$ "$(hostname)"; ls -d /proc/[0-9]*', "--", "-x")
    seen = []
    for words in ((*before, *mounts), (*mounts, *before),
                  ("--proc", "/proc", "--ro-bind", "/", "/", "--proc", "/proc", *before),
                  ("--hostname", "inside", *mounts, "--unshare-uts", "--unshare-pid")):
        for stop in ((), ("--",)):
            seen.append(ctx.ok(ctx.bw(*words, *stop, *script)).out.splitlines())
    for lines in seen:
        ctx.eq(lines[0], "2 inside", "pid and name")
        ctx.true("/proc/1" in lines and f"/proc/{os.getpid()}" not in lines, f"processes: {lines}")
    ctx.eq(ctx.bw("--ro-bind", "/", "/", "--", "--version").rc, 1, "a word after --")


@case("CL7", "an option's first argument may follow an equals sign")
def equals_sign(ctx):
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--tmpfs=/tmp", "--dir=/tmp/d", "--chdir=/tmp/d", "pwd"),
           out="/tmp/d")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--unshare-uts", "--hostname=a=b", "hostname"), out="a=b")
    ctx.fails(ctx.bw("--ro-bind", "/", "/", "--tmpfs", "true"), rc=1)
    ctx.fails(ctx.bw("--unshare-pid=yes", "--ro-bind", "/", "/", "true"), rc=1, err="^bwrap: ")


# -- --args ------------------------------------------------------------------------------------------

@case("CL8", "--args takes words from a memfd, an unnamed file and a pipe, anywhere and repeatedly")
def args_sources(ctx):
    words = "--setenv\0A\0from args\0--dir\0/tmp/made\0"
    unnamed = os.open(ctx.dir, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(unnamed, words.encode())
    os.lseek(unnamed, 0, os.SEEK_SET)
    read, write = os.pipe()
    os.write(write, words.encode())
    os.close(write)
    script = ("sh", "-c", 'test -d /tmp/made && echo "$A"')
    for source in (words, unnamed, read):
        ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", *script, fds={9: source}), out="from args")
    whole = "--bind\0/\0/\0--tmpfs\0/tmp\0"
    ctx.ok(ctx.bw("--args", "9", "--unshare-pid", "--args", "10", "--new-session", "--args", "11",
                  *script, fds={9: whole, 10: words, 11: "--unsetenv\0B"}), out="from args")


@case("CL8", "--args takes thousands of entries")
def args_many(ctx):
    count = 6000
    stream = "".join(f"--dir\0/tmp/d{n}\0" for n in range(count))
    result = ctx.bw(*ctx.RUN, "--args", "9", "sh", "-c", "ls /tmp | wc -l", fds={9: stream})
    ctx.ok(result, out=str(count))


# -- descriptors --------------------------------------------------------------------------------------

@case("CL9", "descriptors that options use are closed for the command, all others are inherited")
def descriptors(ctx):
    folder = ctx.mkdir("folder")
    script = 'for f in /proc/self/fd/*; do echo "${f##*/}"; done; cat <&40'
    for option in ("--seccomp", "--add-seccomp-fd"):
        block_read, block_write = os.pipe()
        os.write(block_write, b"x")
        info_read, info_write = os.pipe()
        status_read, status_write = os.pipe()
        sync_read, sync_write = os.pipe()
        bound, read_only = os.open(folder, os.O_PATH), os.open(folder, os.O_PATH)
        result = ctx.bw(
            *ctx.RUN, "--info-fd", "21", "--json-status-fd", "22", "--block-fd", "23", "--sync-fd",
            "24", option, "25", "--file", "26", "/tmp/f", "--bind-data", "27", "/tmp/b",
            "--ro-bind-data", "28", "/tmp/r", "--bind-fd", "29", "/tmp/d", "--ro-bind-fd", "30",
            "/tmp/e", "--args", "31", "bash", "-c", script,
            fds={21: info_write, 22: status_write, 23: block_read, 24: sync_write, 25: ALLOW,
                 26: "file", 27: "data", 28: "data", 29: bound, 30: read_only, 31: "", 40: "mine",
                 41: block_write})
        ctx.ok(result)
        shown = {int(n) for n in re.findall(r"^(\d+)$", result.out, re.M)}
        ctx.eq({n for n in shown if n > 19 and n != 255}, {40, 41}, f"descriptors with {option}")
        ctx.true(result.out.endswith("mine"), f"the inherited one can be read\n{result}")
        for fd in (info_write, status_write, sync_write):
            os.close(fd)
        ctx.true(b'"child-pid"' in os.read(info_read, 4096), "the info descriptor")
        text = b""
        while chunk := os.read(status_read, 4096):
            text += chunk
        ctx.true(b'"child-pid"' in text and b'"exit-code": 0' in text, f"the status: {text}")
        ctx.eq(os.read(sync_read, 1), b"", "the other end of --sync-fd")


# -- root, and capabilities ---------------------------------------------------------------------------

@case("CL10", "uid 0 of a user namespace keeps its capabilities, as callers in such a place expect")
def namespace_root(ctx):
    outside = status_caps(ctx.ok(ctx.run("unshare", "-r", *CAPS)).out)["CapEff"]
    ctx.true(outside != 0, "uid 0 of a new user namespace holds capabilities")
    plain = ctx.ok(ctx.run("unshare", "-r", ctx.bwrap, "--ro-bind", "/", "/", *CAPS))
    ctx.eq(status_caps(plain.out)["CapEff"], outside, "without a further user namespace")
    for more in ((), ("--uid", "1000", "--gid", "1000", "--cap-add", "CAP_NET_RAW")):
        result = ctx.ok(ctx.run("unshare", "-r", ctx.bwrap, "--unshare-all", *more, "--ro-bind", "/",
                                "/", *CAPS))
        ctx.eq(status_caps(result.out)["CapEff"], outside, f"with --unshare-all {more}")
    less = ctx.ok(ctx.run("unshare", "-r", ctx.bwrap, "--unshare-all", "--cap-drop", "ALL",
                          "--ro-bind", "/", "/", *CAPS))
    ctx.eq(status_caps(less.out)["CapEff"], 0, "with --cap-drop ALL")


@case("CL11", "the probe of root without CAP_SETFCAP gets the verdict that bwrap gives", only="root")
def setfcap_probe(ctx):
    def without():
        nshelp.drop_bounding(nshelp.CAP_SETFCAP)

    probe = ("--unshare-user", "--dev-bind", "/", "/", "true")
    ctx.ok(ctx.bw(*probe))
    ctx.fails(ctx.bw(*probe, pre=without), rc=1, err="^bwrap: setting up uid map: ")


# -- the shapes of processes ---------------------------------------------------------------------------

@case("CL12", "a caller finds the namespaces by looking at the launcher's children, and fills them")
def filled_later(ctx):
    if not shutil.which("ip"):
        ctx.skip("iproute2 is not installed")
    fifo = os.path.join(ctx.dir, "config")
    os.mkfifo(fifo)
    proc = ctx.bw_popen(
        "--unshare-user", "--unshare-net", "--uid", "0", "--gid", "0", "--die-with-parent",
        "--clearenv", "--setenv", "PATH", "/usr/bin:/usr/sbin", "--ro-bind", "/etc/resolv.conf",
        "/etc/resolv.conf", "--dir", "/tmp", "--dev", "/dev", *ctx.USR, "--bind", ctx.dir, ctx.dir,
        "--", "sh", "-c", f"read line <{fifo}; echo $line; ip -o addr show lo")

    def ready():
        for child in nshelp.children_of(proc.pid):
            try:
                if os.readlink(f"/proc/{child}/ns/net") == os.readlink("/proc/self/ns/net"):
                    continue
                with open(f"/proc/{child}/uid_map") as f:
                    if f.read().strip():
                        return child
            except OSError:
                pass
        return None

    child = ctx.until(ready, seconds=10, why="a child with its own network and an id map")
    enter = ("nsenter", "-t", str(child), "-U", "-n", "--preserve-credentials")

    def own_network():
        # The loopback is brought up by the child itself: an address may be added at any time.
        return ctx.run(*enter, "ip", "addr", "add", "10.0.2.100/24", "dev", "lo").rc == 0

    ctx.until(own_network, why="an address for the sandbox")
    shown = ctx.ok(ctx.run(*enter, "cat", "/proc/net/dev")).out
    ctx.eq(re.findall(r"^\s*(\w+):", shown, re.M), ["lo"], "interfaces before the start")
    ctx.eq(proc.poll(), None, "nothing has run yet")
    with open(fifo, "w") as f:
        f.write("configured\n")
    out, err = proc.communicate(timeout=10)
    ctx.eq(proc.returncode, 0, f"the status; {err}")
    ctx.true(out.startswith(b"configured\n") and b"10.0.2.100/24" in out and b"127.0.0.1/8" in out,
             f"what the command saw: {out}")


@case("CL13", "the command's status, 128 and its signal, or 1 for a failed start")
def statuses(ctx):
    for extra in ((), ("--unshare-pid",), ("--unshare-all", "--die-with-parent", "--new-session")):
        base = ("--ro-bind", "/", "/", *extra)
        for number in (0, 1, 7, 126, 127, 255):
            ctx.eq(ctx.bw(*base, "sh", "-c", f"exit {number}").rc, number)
        for name, number in (("KILL", 9), ("TERM", 15), ("SEGV", 11)):
            ctx.eq(ctx.bw(*base, "sh", "-c", f"ulimit -c 0; kill -{name} $$").rc, 128 + number)
        ctx.eq(ctx.bw(*base, "--bind", "/nowhere", "/x", "true").rc, 1, "a failed start")
        ctx.eq(ctx.bw(*base, "nosuchprogram").rc, 1, "a missing command")
    ctx.eq(ctx.bw("--bogus").rc, 1, "a wrong option")


# -- pybubble -------------------------------------------------------------------------------------------

@case("CL14", "pybubble's chain: a holder of namespaces, nsenter into them, the sandbox", timeout=120)
def pybubble(ctx):
    if not shutil.which("ip"):
        ctx.skip("iproute2 is not installed")
    root = nshelp.small_root(ctx, "root")
    work, tmp = ctx.mkdir("work"), ctx.mkdir("tmp")
    hosts = ctx.write("hosts", "127.0.0.1 localhost sandbox\n")
    resolv = ctx.write("resolv.conf", "nameserver 10.0.2.3\n")
    holder = ctx.popen("unshare", "--user", "--map-root-user", "--net", "--keep-caps", "sh", "-c",
                       "sleep infinity")
    enter = ("nsenter", f"--user=/proc/{holder.pid}/ns/user", f"--net=/proc/{holder.pid}/ns/net",
             "--preserve-credentials", "--")

    def usable():
        try:
            with open(f"/proc/{holder.pid}/uid_map") as f:
                return f.read().strip() and ctx.run(*enter, "true").rc == 0
        except OSError:
            return False

    ctx.until(usable, why="the holder's namespaces")
    ctx.ok(ctx.run(*enter, "ip", "link", "set", "lo", "up"))
    network = os.readlink(f"/proc/{holder.pid}/ns/net")
    caps = status_caps(ctx.ok(ctx.run(*enter, *CAPS)).out)["CapEff"]
    command = ("id -u; id -g; hostname; pwd; cat /etc/hosts /etc/resolv.conf; "
               "readlink /proc/self/ns/net; echo \"$HOME $PATH\"; echo made >made; touch /tmp/t; "
               "grep ^Cap /proc/self/status; [ -w /dev/null ] && echo null; touch /etc/new")
    for bind in ("--ro-bind", "--bind"):
        for tail in ((), ("--ro-bind", resolv, "/etc/resolv.conf"),
                     ("--ro-bind", resolv, "/etc/resolv.conf", "--new-session")):
            # The name is looked up on PATH, as the caller does it.
            result = ctx.run(
                *enter, "bwrap", "--unshare-all", "--die-with-parent", "--uid", "1000", "--gid",
                "1000", "--hostname", "sandbox", bind, root, "/", "--bind", work, "/home/sandbox",
                "--dev", "/dev", "--proc", "/proc", "--bind", tmp, "/tmp", "--clearenv", "--setenv",
                "HOME", "/home/sandbox", "--setenv", "PATH", "/usr/bin:/bin", "--chdir",
                "/home/sandbox", "--ro-bind", hosts, "/etc/hosts", "--share-net", "--cap-add",
                "CAP_NET_RAW", *tail, "bash", "-c", command,
                env=dict(os.environ, PATH=f"{os.path.dirname(ctx.bwrap)}:{os.environ['PATH']}"))
            lines = result.out.splitlines()
            ctx.eq(lines[:4], ["1000", "1000", "sandbox", "/home/sandbox"], f"who and where\n{result}")
            ctx.true("127.0.0.1 localhost sandbox" in lines, f"the hosts file\n{result}")
            ctx.eq("nameserver 10.0.2.3" in lines, bool(tail), "the resolver's file")
            ctx.true(network in lines, f"the holder's network\n{result}")
            ctx.true("/home/sandbox /usr/bin:/bin" in lines, f"the environment\n{result}")
            ctx.true("null" in lines, f"/dev/null\n{result}")
            ctx.eq(status_caps(result.out)["CapEff"], caps, "capabilities, as bwrap leaves them")
            ctx.eq("Read-only file system" in result.err, bind == "--ro-bind", f"the root\n{result}")
            ctx.eq(os.path.exists(os.path.join(root, "etc/new")), bind == "--bind", "a file in the root")
            ctx.eq((os.listdir(work), os.listdir(tmp)), (["made"], ["t"]), "what reached the host")
            os.unlink(os.path.join(work, "made"))
            os.unlink(os.path.join(tmp, "t"))
    nshelp.end_tree(ctx, holder)


# -- sandbox-runtime --------------------------------------------------------------------------------------

class Proxy:
    """A unix socket of the host that answers each caller with a line."""

    def __init__(self, path):
        self.path = path
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                caller, _ = self.server.accept()
            except OSError:
                return
            with caller:
                asked = caller.recv(100)
                caller.sendall(b"proxy got " + asked)

    def close(self):
        self.server.close()


def client(port):
    """Bash words that connect to the port (when its listener is up) and print the answer."""
    return (f"t=0; until exec 5<>/dev/tcp/127.0.0.1/{port}; do t=$((t+1)); "
            f"[ $t -gt 100 ] && exit 90; sleep 0.05; done 2>/dev/null; echo hello >&5; cat <&5")


def srt_files(ctx):
    """The folders and files that the rules of the two command lines speak of."""
    work = ctx.mkdir("work")
    ctx.write("work/hooks/pre-commit", "hook")
    ctx.write("work/.bashrc", "mine")
    ctx.write("secret/key", "secret")
    ctx.write("token", "secret")
    ctx.write("elsewhere/name", "text")
    return work


SRT_CHECKS = (
    "touch {work}/made && echo allowed; touch {dir}/elsewhere/new || echo refused; "
    "echo x >{work}/hooks/pre-commit || echo refused; ls -A {dir}/secret; "
    "[ -z \"$(cat {dir}/token)\" ] && echo hidden; cat {dir}/elsewhere/name; "
    "echo; ls -d /proc/[0-9]* | wc -l; [ -c /dev/null ] && echo null; "
    "(exec 6<>/dev/tcp/127.0.0.1/{host}) || echo no-host")


def listening_host():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server, server.getsockname()[1]


def srt_verify(ctx, result, work):
    out = result.out
    for word in ("proxy got hello", "allowed", "refused", "hidden", "text", "null", "no-host"):
        ctx.true(word in out, f"{word!r} in the output\n{result}")
    ctx.eq(out.count("refused"), 2, f"refusals\n{result}")
    ctx.true("secret" not in out and "key" not in out.split(), f"secrets\n{result}")
    ctx.true(os.path.exists(work + "/made"), "a file in the allowed folder")
    ctx.true(not os.path.exists(ctx.dir + "/elsewhere/new"), "a file outside of it")
    with open(work + "/hooks/pre-commit") as f:
        ctx.eq(f.read(), "hook", "the protected file")


@case("CL15", "sandbox-runtime 0.0.21: proxies through bound sockets, rules by binds", timeout=90)
def sandbox_runtime_old(ctx):
    work = srt_files(ctx)
    relay = ctx.write("relay.py", RELAY)
    http, socks = Proxy(ctx.dir + "/http.sock"), Proxy(ctx.dir + "/socks.sock")
    host, port = listening_host()
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    checks = SRT_CHECKS.format(work=work, dir=ctx.dir, host=port)
    inner = f"{client(3128)}; {client(1080)}; {checks}"
    shell = (f"/usr/bin/python3 {relay} 3128 {http.path} & /usr/bin/python3 {relay} 1080 {socks.path} & "
             f"{deny} EPERM io_uring_setup -- bash -c '{inner}'")
    result = ctx.bw(
        "--new-session", "--die-with-parent", "--unshare-net", "--bind", http.path, http.path,
        "--bind", socks.path, socks.path, "--setenv", "HTTP_PROXY", "http://localhost:3128",
        "--setenv", "ALL_PROXY", "socks5h://localhost:1080", "--ro-bind", "/", "/", "--bind", work,
        work, "--ro-bind", work + "/hooks", work + "/hooks", "--tmpfs", ctx.dir + "/secret",
        "--ro-bind", "/dev/null", ctx.dir + "/token", "--dev", "/dev", "--unshare-pid", "--proc",
        "/proc", "--", "bash", "-c", shell)
    ctx.ok(result)
    ctx.eq(result.out.count("proxy got hello"), 2, f"answers of both proxies\n{result}")
    srt_verify(ctx, result, work)
    ctx.until(lambda: not descendants(os.getpid()), why="the end of the relays")
    for thing in (http, socks, host):
        thing.close()


@case("CL16", "sandbox-runtime 0.0.83: thirty variables, masks, a nested user namespace", timeout=90)
def sandbox_runtime_new(ctx):
    ctx.true("--disable-userns" in ctx.bw("--help").out, "what its probe looks for")
    ctx.true(int(re.search(r"\d+\.(\d+)", ctx.bw("--version").out)[1]) >= 5, "its least version")
    work = srt_files(ctx)
    empty = ctx.mkdir("empty")
    ctx.mkdir("work/.claude")
    relay = ctx.write("relay.py", RELAY)
    folder = "/tmp/" + os.path.basename(ctx.dir)
    os.mkdir(folder)
    mux = Proxy(folder + "/mux.sock")
    host, port = listening_host()
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    variables = [w for n in range(28) for w in ("--setenv", f"PROXY_{n}", f"http://u:t{n}@localhost")]
    dangerous = [w for name in (".gitconfig", ".gitmodules", ".bash_profile", ".zshrc", ".profile",
                                ".mcp.json")
                 for w in ("--ro-bind", "/dev/null", f"{work}/{name}")]
    checks = SRT_CHECKS.format(work=work, dir=ctx.dir, host=port)
    inner = (f"{client(3128)}; echo \"$PROXY_27 [$SRT_ALLOW_NESTED_USERNS]\"; {checks}; "
             f"echo x >{work}/.gitconfig || echo masked; ls -A {work}/.claude; id -u")
    # The loader makes a further user and pid namespace before it loads its filter.
    shell = (f"{{ /usr/bin/python3 {relay} 3128 {mux.path} & }}; "
             f"unshare --user --map-current-user --pid --fork {deny} EPERM io_uring_setup -- "
             f"bash -c '{inner}'")
    ssh = ("--tmpfs", "/etc/ssh/ssh_config.d") if os.path.isdir("/etc/ssh/ssh_config.d") else ()
    words = ["--new-session", "--die-with-parent", "--unshare-net", "--bind", mux.path, mux.path,
             *variables, "--setenv", "SANDBOX_RUNTIME", "1", "--ro-bind", "/", "/", "--bind", work,
             work, *ssh, "--tmpfs", ctx.dir + "/secret", "--ro-bind", "/dev/null",
             ctx.dir + "/token", "--ro-bind", work + "/hooks", work + "/hooks", "--ro-bind",
             work + "/.bashrc", work + "/.bashrc", *dangerous, "--ro-bind", empty,
             work + "/.claude", "--dev", "/dev", "--unshare-pid", "--unshare-user", "--cap-drop",
             "ALL", *(("--cap-add", "CAP_SETFCAP") if ctx.root else ()), "--proc", "/proc",
             "--unsetenv", "SRT_ALLOW_NESTED_USERNS"]
    env = dict(os.environ, SRT_ALLOW_NESTED_USERNS="1")
    try:
        # Once as words, once as the stream that it uses for long profiles.
        for start in (words, ["--args", "9"]):
            stream = {} if start is words else {9: "\0".join(words) + "\0"}
            result = ctx.ok(ctx.bw(*start, "--", "bash", "-c", shell, env=env, fds=stream))
            srt_verify(ctx, result, work)
            ctx.true("http://u:t27@localhost []" in result.out, f"the environment\n{result}")
            ctx.true("masked" in result.out, f"the masks\n{result}")
            ctx.eq(result.out.split()[-1], str(ctx.uid), f"the id\n{result}")
            os.unlink(work + "/made")
            ctx.until(lambda: not descendants(os.getpid()), why="the end of the relay")
    finally:
        mux.close()
        host.close()
        shutil.rmtree(folder)


@case("CL16", "sandbox-runtime's weaker mode binds the outer /proc")
def sandbox_runtime_weaker(ctx):
    result = ctx.bw("--new-session", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
                    "--unshare-pid", "--unshare-user", "--cap-drop", "ALL", "--bind", "/proc",
                    "/proc", "--", "bash", "-c", f"[ -d /proc/{os.getpid()} ] && echo host; echo $$")
    ctx.eq(ctx.ok(result).out.split(), ["host", "2"], "the outer /proc, the inner pid")


# -- Codex -----------------------------------------------------------------------------------------

ISOLATE = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--proc", "/proc",
           "--cap-drop", "ALL")


@case("CL17", "Codex: the preflight succeeds")
def codex_preflight(ctx):
    shown = ctx.ok(ctx.bw("--help")).out
    ctx.true("--argv0" in shown and "--perms" in shown, "what it looks for in the help")
    system = [w for folder in ("/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr")
              if os.path.exists(folder) for w in ("--ro-bind", folder, folder)]
    base = ("--as-pid-1", "--new-session", "--die-with-parent", "--tmpfs", "/", "--dev", "/dev",
            *system, *ISOLATE, "--")
    ctx.ok(ctx.bw(*base, "/usr/bin/true"), out="")
    ctx.fails(ctx.bw(*base, "/usr/bin/false"), rc=1)
    inside = ctx.ok(ctx.bw(*base, "sh", "-c", "echo $$; ls /; grep CapEff /proc/self/status"))
    ctx.eq(inside.out.split()[0], "1", "the pid")
    ctx.eq(status_caps(inside.out)["CapEff"], 0, "capabilities")
    ctx.true("var" not in inside.out.split(), f"the root is the tmpfs\n{inside}")


@case("CL18", "Codex: the main line with denied and protected folders and its own loader", timeout=90)
def codex_main(ctx):
    cwd = ctx.mkdir("project")
    ctx.write("project/.git/config", "[core]\n")
    ctx.write("denied/name", "secret")
    ctx.write("open/name", "text")
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    loader = ctx.write("loader", '#!/bin/sh\n[ "$1" = --apply-seccomp-then-exec ] || exit 99\n'
                       f'shift\nexec {deny} EPERM socket -- "$@"\n', mode=0o755)
    denied, git = ctx.dir + "/denied", cwd + "/.git"
    base = ("--as-pid-1", "--new-session", "--die-with-parent", "--ro-bind", "/", "/", "--dev",
            "/dev", "--perms", "000", "--tmpfs", denied, "--remount-ro", denied, "--bind", cwd, cwd,
            "--perms", "555", "--tmpfs", git, "--remount-ro", git, *ISOLATE)
    script = (f"cat {denied}/name || echo denied; touch {denied}/x || echo denied; ls -A {git}; "
              f"touch {git}/x || echo protected; echo new >{cwd}/new; cat {ctx.dir}/open/name; echo; "
              f"touch {ctx.dir}/open/x || echo read-only; stat -c %a {git} {denied}; "
              "/usr/bin/python3 -c 'import socket; socket.socket()' 2>&1 | tail -1; pwd; "
              "readlink /proc/self/ns/net")
    result = ctx.ok(ctx.bw(*base, "--", loader, "--apply-seccomp-then-exec", "sh", "-c", script,
                           cwd=cwd))
    lines = result.out.splitlines()
    ctx.eq(lines[:8], ["denied", "denied", "protected", "text", "read-only", "555", "0",
                       "PermissionError: [Errno 1] Operation not permitted"], f"{result}")
    ctx.eq(lines[8], cwd, "the working directory")
    ctx.true(lines[9] != os.readlink("/proc/self/ns/net"), "the network")
    ctx.eq(sorted(os.listdir(cwd)), [".git", "new"], "the project on the host")
    ctx.eq(os.listdir(git), ["config"], "the protected folder on the host")
    ctx.eq(os.listdir(denied), ["name"], "the denied folder on the host")
    # Newer versions hand the folders over as descriptors.
    folder = os.open(ctx.dir + "/open", os.O_PATH)
    result = ctx.bw("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind-fd", "9", "/tmp/open",
                    *ISOLATE, "--", "sh", "-c", "cat /tmp/open/name; touch /tmp/open/x",
                    fds={9: folder})
    ctx.fails(result, err="Read-only file system")
    ctx.eq(result.out, "text", "through a descriptor")
