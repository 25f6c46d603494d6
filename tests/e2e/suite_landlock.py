"""Landlock: behind the mounts, for TCP ports, and in place of namespaces.

What a rule denies is tried where nothing else would: through descriptors that lead out of the sandbox, or where there
are no namespaces at all. Each refusal stands beside the same thing where it is allowed.
"""

import ctypes
import json
import os
import signal
import socket
import time

from harness import case
from casekit import probe, started, until_known

# The numbers are the same on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ABI_OF = {"files": 2, "ports": 4, "scopes": 6}


def abi():
    return ctypes.CDLL(None, use_errno=True).syscall(CREATE_RULESET, None, 0, 1)


def needs(ctx, what, least=None):
    least = least or ABI_OF[what]
    if abi() < least:
        ctx.skip(f"the kernel has ABI {abi()} of Landlock, and this takes {least}")


def run(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "run", *words, **kw)


def up(ctx, keeper, name):
    started(ctx, keeper, "up")
    until_known(ctx, name)


# Tries things with the folder that is open as descriptor 9: a JSON object of 0 or the errno.
REACH = r'''
import json, os, sys
def tried(what):
    try:
        what()
        return 0
    except OSError as error:
        return error.errno
print(json.dumps({
    "read": tried(lambda: os.open("secret", os.O_RDONLY, dir_fd=9)),
    "write": tried(lambda: os.open("secret", os.O_WRONLY, dir_fd=9)),
    "make": tried(lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=9)),
    "mkdir": tried(lambda: os.mkdir("newdir", dir_fd=9)),
    "remove": tried(lambda: os.unlink("old", dir_fd=9)),
    "rename": tried(lambda: os.rename("one", "sub/two", src_dir_fd=9, dst_dir_fd=9)),
    "list": tried(lambda: os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=9)),
    "up": tried(lambda: os.open("../../../../../etc/hostname", os.O_RDONLY, dir_fd=9)),
    "truncate": tried(lambda: os.truncate("/proc/self/fd/9/long", 1)),
}))
'''
THINGS = ("read", "write", "make", "mkdir", "remove", "rename", "list", "up", "truncate")


def outside(ctx):
    """A folder of the host's that is not in the sandbox, open."""
    top = ctx.mkdir("outside", 0o777)
    for name in ("secret", "old", "one", "long"):
        ctx.write(f"outside/{name}", "something\n")
        os.chmod(f"{top}/{name}", 0o666)
    for name in ("new", "sub/two"):
        if os.path.exists(f"{top}/{name}"):
            os.unlink(f"{top}/{name}")
    if os.path.exists(f"{top}/newdir"):
        os.rmdir(f"{top}/newdir")
    ctx.mkdir("outside/sub", 0o777)
    return os.open(top, os.O_PATH | os.O_DIRECTORY)


def reach(ctx, words, command=("/usr/bin/python3", "-c", REACH)):
    folder = outside(ctx)
    result = ctx.ok(ctx.run(ctx.nsbox, *words, *command, fds={9: folder}))
    os.close(folder)
    return json.loads(result.out)


@case("LANDLOCK-reach", "a folder of the host's that is open in the sandbox leads nowhere, by any call, in both command "
      "lines; it does without Landlock")
def reaching(ctx):
    needs(ctx, "files", 3)
    bwrap = ["--unshare-user", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
             "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
             "--remount-ro", "/"]
    lines = {"run": lambda *it: ["run", "--keep-fd", "9", *it, "--"], "bwrap": lambda *it: [*bwrap, *it]}
    for name, line in lines.items():
        ctx.eq(reach(ctx, line("--landlock", "off")), dict.fromkeys(THINGS, 0), f"{name} without it")
        ctx.eq(reach(ctx, line("--landlock", "auto")), dict.fromkeys(THINGS, 13), f"{name} with it")
    # It is the default of one and not of the other.
    ctx.eq(reach(ctx, lines["run"]())["read"], 13, "nsbox run")
    ctx.eq(reach(ctx, lines["bwrap"]())["read"], 0, "as bwrap")


@case("LANDLOCK-work", "what the mounts let through goes on: links, renames, devices, /proc, terminals, standard output "
      "by its name, programs in /tmp")
def works(ctx):
    script = ("set -e; cd /tmp; mkdir a b; echo x >a/f; mv a/f b/g; ln b/g a/h; ln -s h a/i; cat a/i; mkfifo p; "
              "echo 500 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj; echo gone >/dev/null; "
              "head -c 1 /dev/urandom | wc -c; printf '#!/bin/sh\\necho ran\\n' >prog; chmod 755 prog; ./prog; "
              "truncate -s 3 b/g; rm -r a b p; echo shm >/dev/shm/x; cat /dev/shm/x; echo home >~/y; cat ~/y; "
              "echo err >/dev/stderr; echo out >>/dev/stdout; kill -0 1; sleep 9 & kill $!; "
              "cat /proc/1/comm; ls / >/dev/null; cat /proc/self/maps >/dev/null; cat <>/dev/tty 2>&1 || true")
    plain = run(ctx, "--landlock", "off", "--", "sh", "-c", script)
    got = run(ctx, "--", "sh", "-c", script)
    ctx.true("ran\n" in ctx.ok(got).out, f"it runs: {got}")
    ctx.eq((got.rc, got.out, got.err), (plain.rc, plain.out, plain.err), "the same")
    # A file of the host's that is a standard descriptor can be opened again, and no other one.
    path = ctx.write("log", "")
    os.chmod(path, 0o666)
    with open(path, "r+b") as file:
        again = ["sh", "-c", "echo more >/dev/stdout"]
        ctx.eq(ctx.run(ctx.nsbox, "run", "--", *again, stdout=file).rc, 0, "it is opened")
    with open(path, encoding="utf-8") as file:
        ctx.eq(file.read(), "more\n", "what is in it")
    with open(path, "rb") as file:
        reread = ["sh", "-c", "(echo no >/dev/stdin) 2>&1; cat /dev/stdin"]
        it = ctx.run(ctx.nsbox, "run", "--", *reread, stdin=file)
        ctx.true("Permission denied" in it.out and it.out.endswith("more\n"), f"to be read only: {it}")


@case("LANDLOCK-read-only", "a folder that is shown read-only is by Landlock too, where its mount were writable; one that "
      "is writable is writable")
def read_only(ctx):
    needs(ctx, "files")
    top = ctx.mkdir("shown", 0o777)
    words = ["sh", "-c", "echo x >$0/new && echo written", top]
    ctx.ok(run(ctx, "--rw", top, "--", *words), "written")
    os.unlink(f"{top}/new")
    ctx.true(run(ctx, "--ro", top, "--", *words).rc != 0, "read-only")
    # Through the caller's descriptor it is the mount of the host, which can be written to.
    script = ("import os\nfor flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):\n"
              "    try:\n        os.open('new', flags, dir_fd=9); print('open')\n"
              "    except OSError as error: print(error.errno)\n")
    ctx.write("shown/new", "x")
    os.chmod(f"{top}/new", 0o666)
    for option, wanted in (("--ro", "open\n13\n"), ("--rw", "open\nopen\n")):
        folder = os.open(top, os.O_PATH | os.O_DIRECTORY)
        got = ctx.ok(run(ctx, option, top, "--keep-fd", "9", "--", "python3", "-c", script, fds={9: folder}))
        os.close(folder)
        ctx.eq(got.out, wanted, option)


# A user and a mount namespace, and a mount in it.
MOUNT = r'''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10020000) < 0 or libc.mount(b"/usr", b"/tmp", None, 4096, None) < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted")
'''


@case("LANDLOCK-off", "where the command may mount there is no Landlock, and the outline says why; sandboxes nest with "
      "--allow-userns and do not without")
def off(ctx):
    needs(ctx, "files")
    outline = ctx.ok(run(ctx, "--dry-run", "--", "true")).out
    ctx.true("landlock   files by " in outline, outline)
    outline = ctx.ok(run(ctx, "--allow-userns", "--dry-run", "--", "true")).out
    ctx.true("landlock   off: the command may make mounts" in outline, outline)
    outline = ctx.ok(run(ctx, "--cap-add", "sys_admin", "--dry-run", "--", "true")).out
    ctx.true("landlock   off: the command has CAP_SYS_ADMIN" in outline, outline)
    outline = ctx.ok(run(ctx, "--landlock", "off", "--dry-run", "--", "true")).out
    ctx.true("landlock" not in outline, outline)
    mounts = ["/usr/bin/python3", "-c", MOUNT]
    ctx.ok(run(ctx, "--allow-userns", "--", *mounts), "mounted")
    # Limits of ports do not hinder it.
    if abi() >= ABI_OF["ports"]:
        ctx.ok(run(ctx, "--allow-userns", "--tcp-connect", "1", "--", *mounts), "mounted")
    line = ["--unshare-user", "--bind", "/", "/", "--dev", "/dev", "--cap-drop", "ALL"]
    ctx.ok(ctx.bw(*line, *mounts), "mounted")
    got = ctx.bw(*line, "--landlock", "auto", *mounts)
    ctx.fails(got, 1, "not permitted")


@case("LANDLOCK-signals", "signals and abstract sockets stay inside where no namespace keeps them, and do not without")
def scopes(ctx):
    needs(ctx, "scopes")
    victim = ctx.popen("sleep", "60")
    name = f"nsbox-{os.getpid()}-{time.monotonic_ns()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(8)
    script = ("import os, signal, socket, sys\n"
              "def tried(what):\n"
              "    try:\n        what(); return 'ok'\n"
              "    except OSError as error: return error.errno\n"
              "child = os.fork()\n"
              "if child == 0:\n    signal.pause()\n"
              "print(tried(lambda: os.kill(int(sys.argv[1]), 0)), "
              "tried(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[2])), "
              "tried(lambda: os.kill(child, 9)))\n")
    words = ["--ro-bind", "/", "/", "--cap-drop", "ALL", "/usr/bin/python3", "-c", script, str(victim.pid), name]
    ctx.eq(ctx.ok(ctx.bw(*words)).out, "ok ok ok\n", "without")
    ctx.eq(ctx.ok(ctx.bw("--landlock", "auto", *words)).out, "1 1 ok\n", "with it")
    # An init that is not process 1 ends what is there nevertheless.
    began = time.monotonic()
    ctx.eq(ctx.bw("--landlock", "auto", "--distinct-status", "--timeout", "1s", "--ro-bind", "/", "/", "--cap-drop",
                  "ALL", "sh", "-c", "setsid sleep 61 & sleep 62").rc, 124, "the time limit")
    ctx.true(time.monotonic() - began < 20, "it ends in time")
    listener.close()
    victim.kill()
    victim.wait()


@case("LANDLOCK-exec", "a further command in a sandbox is under the same rules, and the commands signal each other")
def further(ctx):
    needs(ctx, "files")
    name = f"landlock-{os.getpid()}"
    for option in ("off", "auto"):
        keeper = ctx.popen(ctx.nsbox, "run", "--landlock", option, "--name", name, "--", "sh", "-c",
                           "echo up; trap 'exit 7' TERM; while :; do sleep 0.05; done", stdout=-1)
        up(ctx, keeper, name)
        script = ("import os\n"
                  "open('/tmp/x', 'w').write('x'); print(os.listdir('/tmp'))\n"
                  "os.kill(2, 0)\n"
                  "try:\n    os.readlink('/proc/2/exe'); print('traced')\n"
                  "except OSError as error: print(error.errno)\n"
                  "os.kill(2, 15)\n")
        # Its own end comes with that of the main command.
        got = ctx.run(ctx.nsbox, "exec", name, "--", "python3", "-uc", script)
        # It is another domain: what ptrace(2) is asked about is refused.
        ctx.eq(got.out, "['x']\n" + ("traced\n" if option == "off" else "13\n"), option)
        ctx.eq(keeper.wait(20), 7, "the main command heard the signal")


# Connects to ports and binds some: a JSON object of 0 or the errno.
NET = r'''
import json, socket, sys
def tried(what):
    try:
        what()
        return 0
    except OSError as error:
        return error.errno
def tcp(protocol=0):
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
near, far, bound = (int(word) for word in sys.argv[1:4])
print(json.dumps({
    "near": tried(lambda: tcp().connect(("127.0.0.1", near))),
    "far": tried(lambda: tcp().connect(("127.0.0.1", far))),
    "mptcp": tried(lambda: tcp(262).connect(("127.0.0.1", far))),
    "fast": tried(lambda: tcp().sendto(b"x", 0x20000000, ("127.0.0.1", far))),
    "bind": tried(lambda: tcp().bind(("127.0.0.1", bound))),
    "any": tried(lambda: tcp().bind(("127.0.0.1", 0))),
    "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 0))),
}))
'''


@case("LANDLOCK-ports", "TCP connects to and binds the ports that are named, by MPTCP and Fast Open too, in both command "
      "lines; UDP is left alone")
def ports(ctx):
    needs(ctx, "ports")
    listeners = []
    for _ in range(2):
        it = socket.socket()
        it.bind(("127.0.0.1", 0))
        it.listen(16)
        listeners.append(it)
    near, far = (it.getsockname()[1] for it in listeners)
    spare = socket.socket()
    spare.bind(("127.0.0.1", 0))
    free = spare.getsockname()[1]
    spare.close()
    command = ["/usr/bin/python3", "-c", NET, str(near), str(far), str(free)]
    lines = {"run": ["run", "--net", "host"], "bwrap": ["--ro-bind", "/", "/"]}
    for name, line in lines.items():
        end = ["--"] if name == "run" else []

        def tell(*options):
            return json.loads(ctx.ok(ctx.run(ctx.nsbox, *line, *options, *end, *command)).out)
        free_for_all = tell()
        # A kernel may be without MPTCP; then nothing can be shown about it.
        has_mptcp = free_for_all.pop("mptcp") == 0
        ctx.eq(free_for_all, dict.fromkeys(("near", "far", "fast", "bind", "any", "udp"), 0), f"{name} without limits")
        limited = tell("--tcp-connect", f"{near},1-3")
        ctx.eq(limited.pop("mptcp"), 93, f"{name}: MPTCP, which was {'there' if has_mptcp else 'not there anyway'}")
        ctx.eq(limited, {"near": 0, "far": 13, "fast": 95, "bind": 0, "any": 0, "udp": 0}, f"{name} connects")
        limited = tell("--tcp-bind", str(free), "--tcp-connect", f"{far}")
        limited.pop("mptcp")
        ctx.eq(limited, {"near": 13, "far": 0, "fast": 95, "bind": 0, "any": 13, "udp": 0}, f"{name} binds")
        limited = tell("--tcp-bind", "0", "--tcp-connect", "none")
        limited.pop("mptcp")
        ctx.eq(limited, {"near": 13, "far": 13, "fast": 95, "bind": 13, "any": 0, "udp": 0}, f"{name} none")
    for it in listeners:
        it.close()
    for value in ("", "x", "70000", "9-3", "1,,2", "-1", "1-"):
        for option in ("--tcp-connect", "--tcp-bind"):
            ctx.fails(run(ctx, option, value, "--", "true"), 125, f"{option} {value}: it takes none, or ports")
    ctx.fails(run(ctx, "--landlock", "maybe", "--", "true"), 125, "auto, off or only")


OTHER_KERNELS = (("ENOSYS", "the kernel has no Landlock"), ("EOPNOTSUPP", "does not start it"))


@case("LANDLOCK-lacking", "without Landlock in the kernel nsbox run goes on and says so in the outline; what was asked for "
      "by name fails")
def lacking(ctx):
    for error, reason in OTHER_KERNELS:
        deny = [probe(ctx, "deny_syscalls"), error, str(CREATE_RULESET), "--"]
        ctx.ok(ctx.run(*deny, ctx.nsbox, "run", "--", "echo", "fine"), "fine")
        ctx.true("landlock   off: the kernel has" in ctx.ok(ctx.run(*deny, ctx.nsbox, "run", "--dry-run", "--", "true")).out,
                 "the outline")
        for words in (["--tcp-connect", "80"], ["--tcp-bind", "80"], ["--landlock", "only"]):
            ctx.fails(ctx.run(*deny, ctx.nsbox, "run", *words, "--", "true"), 125, reason)
            if abi() >= ABI_OF["ports"]:
                ctx.ok(run(ctx, *words, "--", "true"))
    for call in (ADD_RULE, RESTRICT_SELF):
        deny = [probe(ctx, "deny_syscalls"), "EPERM", str(call), "--"]
        ctx.fails(ctx.run(*deny, ctx.nsbox, "run", "--", "true"), 125, "of Landlock")


# Tries what `--landlock only` keeps in: a JSON object of 0 or the errno.
ONLY = r'''
import ctypes, json, os, signal, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(what):
    try:
        what()
        return 0
    except OSError as error:
        return error.errno
def called(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")
def sock(family, kind=socket.SOCK_STREAM):
    return tried(lambda: socket.socket(family, kind).close())
top, victim = sys.argv[1], int(sys.argv[2])
print(json.dumps({
    "read": tried(lambda: open(top + "/secret").read()),
    "write": tried(lambda: open(top + "/secret", "a").close()),
    "make": tried(lambda: open(top + "/new", "w").close()),
    "list": tried(lambda: os.listdir(top)),
    "remove": tried(lambda: os.unlink(top + "/old")),
    "truncate": tried(lambda: os.truncate(top + "/long", 1)),
    "exec": tried(lambda: subprocess.run([top + "/prog"])),
    "signal": tried(lambda: os.kill(victim, 0)),
    "memory": tried(lambda: open(f"/proc/{victim}/maps").read()),
    "environment": tried(lambda: open(f"/proc/{victim}/environ").read()),
    "root": tried(lambda: os.listdir(f"/proc/{victim}/root/")),
    "unix": sock(socket.AF_UNIX),
    "inet": sock(socket.AF_INET),
    "udp": sock(socket.AF_INET6, socket.SOCK_DGRAM),
    "netlink": sock(socket.AF_NETLINK, socket.SOCK_RAW),
    "pair": tried(lambda: socket.socketpair()),
    "usr": tried(lambda: os.listdir("/usr")),
    "own": tried(lambda: open("mine", "w").close()),
    "home": tried(lambda: open(os.environ["HOME"] + "/mine", "w").close()),
    "temporary": tried(lambda: open(os.environ["TMPDIR"] + "/theirs", "w").close()),
    "null": tried(lambda: open("/dev/null", "w").close()),
    "proc": tried(lambda: open("/proc/self/status").read()),
    "comm": tried(lambda: open("/proc/self/comm", "w").write("x")),
}))
'''
INSIDE = ("pair", "usr", "own", "home", "temporary", "null", "proc")
NETWORK = ("inet", "udp", "netlink")
OUTSIDE = ("read", "write", "make", "list", "remove", "truncate", "exec", "memory", "environment", "root", "unix", *NETWORK)


def only_victim(ctx):
    os.close(outside(ctx))
    prog = ctx.write("outside/prog", "#!/bin/sh\n")
    os.chmod(prog, 0o755)
    return ctx.popen("sleep", "60"), ctx.dir + "/outside"


@case("LANDLOCK-only", "with --landlock only the command has no namespace, and reaches its folder, the system's programs "
      "and what is shown; everything else can be had without")
def only(ctx):
    needs(ctx, "scopes")
    victim, top = only_victim(ctx)
    words = ["/usr/bin/python3", "-c", ONLY, top, str(victim.pid)]
    plain = json.loads(ctx.ok(ctx.run(*words, env=dict(os.environ, HOME=ctx.mkdir("home", 0o777),
                                                       TMPDIR=ctx.dir + "/home"), cwd=ctx.dir + "/home")).out)
    ctx.eq({name for name, error in plain.items() if error != 0}, set(), "all of it without nsbox")
    os.close(outside(ctx))
    got = ctx.ok(run(ctx, "--landlock", "only", "--", *words))
    ctx.true("there are no namespaces here, only Landlock" in got.err, f"the note: {got}")
    tried = json.loads(got.out)
    for name in OUTSIDE:
        ctx.eq(tried[name], 13, name)
    ctx.eq(tried["signal"], 1, "signals")
    ctx.eq(tried["comm"], 13, "writing to /proc")
    for name in INSIDE:
        ctx.eq(tried[name], 0, name)
    # The network by --net host, and no unix sockets even then.
    tried = json.loads(ctx.ok(run(ctx, "--landlock", "only", "--net", "host", "--", *words)).out)
    ctx.eq([tried[name] for name in (*NETWORK, "unix")], [0, 0, 0, 13], "sockets with --net host")
    # What is shown, as it is shown.
    tried = json.loads(ctx.ok(run(ctx, "--landlock", "only", "--ro", top, "--", *words)).out)
    ctx.eq([tried[name] for name in ("read", "list", "exec", "write", "make", "remove", "truncate")],
           [0, 0, 0, 13, 13, 13, 13], "--ro")
    tried = json.loads(ctx.ok(run(ctx, "--landlock", "only", "--rw", top, "--", *words)).out)
    ctx.eq([tried[name] for name in ("read", "list", "exec", "write", "make", "remove", "truncate")], [0] * 7, "--rw")
    victim.kill()
    victim.wait()


@case("LANDLOCK-only-namespaces", "with --landlock only no namespace is made, where none may be too; capabilities are gone")
def only_namespaces(ctx):
    needs(ctx, "files", 1)
    look = ["sh", "-c", "for n in user mnt pid net ipc uts; do readlink /proc/self/ns/$n; done; "
            "grep -E 'Cap(Eff|Prm|Inh|Amb)|NoNewPrivs' /proc/self/status"]
    got = ctx.ok(run(ctx, "--landlock", "only", "--", *look)).out.splitlines()
    ctx.eq(got[:6], [os.readlink(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts")],
           "the caller's namespaces")
    ctx.eq([line.split()[1] for line in got[6:]], ["0" * 16] * 4 + ["1"], "capabilities and no_new_privs")
    other = ctx.ok(run(ctx, "--", *look)).out.splitlines()
    ctx.true(not set(other[:6]) & set(got[:6]), "others without it")


@case("LANDLOCK-only-folder", "the private folder of --landlock only is gone at the end, whatever lies in it, also where "
      "nsbox is killed; a script lies in it; --work-dir stays")
def only_folder(ctx):
    needs(ctx, "files", 1)
    top = ctx.mkdir("tmp", 0o777)
    env = dict(os.environ, TMPDIR=top)
    mess = ("pwd; mkdir -p a/b; chmod 0 a; ln -s /usr l; mkfifo p; mkdir d; cd d; i=0; "
            "while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i+1)); done; echo x >x; chmod 500 .; ")
    got = ctx.ok(run(ctx, "--landlock", "only", "--", "sh", "-c", mess, env=env))
    ctx.true(got.out.startswith(top + "/nsbox-"), f"where it was: {got.out}")
    ctx.eq(os.listdir(top), [], "gone")
    ctx.true(os.path.isdir("/usr/bin"), "no link is followed")
    ctx.eq(run(ctx, "--landlock", "only", "--", "no-such-program", env=env).rc, 127, "no such program")
    ctx.eq(os.listdir(top), [], "gone where nothing ran")
    ctx.true("namespaces none" in ctx.ok(run(ctx, "--landlock", "only", "--dry-run", "--", "true", env=env)).out,
             "the outline")
    ctx.eq(os.listdir(top), [], "nothing is made for a look")
    keeper = ctx.popen(ctx.nsbox, "run", "--landlock", "only", "--", "sh", "-c", mess + "echo up; sleep 60", stdout=-1,
                       env=env)
    keeper.stdout.readline()
    ctx.eq(keeper.stdout.readline().strip(), b"up", "the sandbox is up")
    ctx.eq(len(os.listdir(top)), 1, "it is there")
    keeper.send_signal(signal.SIGKILL)
    keeper.wait()
    deadline = time.monotonic() + 20
    while os.listdir(top) and time.monotonic() < deadline:
        time.sleep(0.05)
    ctx.eq(os.listdir(top), [], "gone after SIGKILL")
    script = ctx.write("hello.py", "import sys, os; print(os.path.basename(__file__), sys.argv[1:])\n")
    ctx.ok(run(ctx, "--landlock", "only", "--script", script, "--", "x", "y", env=env), "hello.py ['x', 'y']")
    work = ctx.mkdir("work", 0o777)
    got = ctx.ok(run(ctx, "--landlock", "only", "--work-dir", work, "--script", script, env=env), "hello.py []")
    ctx.ok(run(ctx, "--landlock", "only", "--work-dir", work, "--", "sh", "-c", "pwd; echo kept >kept; echo x >$TMPDIR/x",
               env=env), work)
    ctx.eq((os.listdir(work), os.listdir(top)), (["kept"], []), "what stays")


@case("LANDLOCK-only-ends", "with --landlock only everything ends with the command, with its time, and with nsbox")
def only_ends(ctx):
    needs(ctx, "files", 1)
    ctx.eq(run(ctx, "--landlock", "only", "--", "sh", "-c", "setsid sleep 71 & exit 5").rc, 5, "the status")
    ctx.eq(run(ctx, "--landlock", "only", "--timeout", "1s", "--", "sh", "-c", "setsid sleep 72 & sleep 73").rc, 124, "time")
    got = ctx.run("pgrep", "-fx", "sleep 7[123]")
    ctx.eq(got.out, "", "nobody is left")
    name = f"only-{os.getpid()}"
    keeper = ctx.popen(ctx.nsbox, "run", "--landlock", "only", "--name", name, "--", "sh", "-c", "echo up; sleep 60",
                       stdout=-1)
    up(ctx, keeper, name)
    tried = ctx.run(ctx.nsbox, "exec", name, "--", "sh", "-c", f"cat /usr/bin/env >/dev/null && cat {ctx.dir}/x")
    ctx.true("Permission denied" in tried.err or "No such file" in tried.err, f"the same rules: {tried}")
    ctx.write("x", "readable")
    ctx.fails(ctx.run(ctx.nsbox, "exec", name, "--", "cat", ctx.dir + "/x"), 1, "Permission denied")
    ctx.ok(ctx.run(ctx.nsbox, "exec", name, "--", "head", "-c1", "/proc/self/comm"), "h")
    ctx.ok(ctx.run(ctx.nsbox, "kill", name))
    keeper.wait(20)


@case("LANDLOCK-only-refused", "what --landlock only cannot give is refused by its name")
def only_refused(ctx):
    needs(ctx, "files", 1)
    for words, name in ((["--rootfs", "/usr"], "--rootfs"), (["--tmpfs", "/x"], "--tmpfs"), (["--dir", "/x"], "--dir"),
                        (["--hostname", "x"], "--hostname"), (["--uid", "7"], "--uid"), (["--gid", "7"], "--gid"),
                        (["--root"], "--root"), (["--net", "user"], "--net host"), (["--ro", "/usr:/x"], "/usr as /x"),
                        (["--proc", "/p"], "--proc"), (["--symlink", "a", "/b"], "--symlink"),
                        (["--cap-add", "kill"], "--cap-add"), (["--allow-userns"], "--allow-userns"),
                        (["--as-pid-1"], "--as-pid-1"), (["--tmpfs-size", "1M"], "--tmpfs-size"),
                        (["--disable-userns"], "--disable-userns")):
        ctx.fails(run(ctx, "--landlock", "only", *words, "--", "true"), 125, name)
    ctx.fails(ctx.bw("--landlock", "only", "--unshare-pid", "--ro-bind", "/usr", "/usr", "true"), 1, "--unshare-pid")
    root = ["--ro-bind", "/usr", "/usr", *(word for name in ("/lib", "/lib64", "/bin") for word in ("--ro-bind", name, name))]
    ctx.ok(ctx.bw("--landlock", "only", *root, "echo", "as bwrap"), "as bwrap")
    ctx.fails(ctx.bw("--landlock", "only", *root, "--ro-bind", "/nowhere", "/nowhere", "true"), 1, "/nowhere")


@case("LANDLOCK-fallback", "where a host forbids namespaces the start fails and hints at --fallback landlock, which runs "
      "under Landlock only and says so; where it does not, it is not used")
def fallback(ctx):
    needs(ctx, "files", 1)
    words = ["run", "--fallback", "landlock", "--", "sh", "-c", "readlink /proc/self/ns/user"]
    ours = os.readlink("/proc/self/ns/user")
    got = ctx.ok(ctx.run(ctx.nsbox, *words))
    ctx.true(got.out.strip() != ours and got.err == "", f"namespaces are there: {got}")
    ctx.fails(run(ctx, "--fallback", "other", "--", "true"), 125, "--fallback takes landlock")
    # A user namespace whose limit forbids further ones; an ordinary user's has that one alone.
    forbid = ('echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"')
    inside = ["unshare", "-Ur", "sh", "-c", forbid, "sh", ctx.nsbox]
    bare = ctx.run(*inside, "run", "--", "true")
    ctx.true(bare.rc == 125 and "--fallback landlock" in bare.err, f"without the option: {bare}")
    got = ctx.run(*inside, "run", "--fallback", "landlock", "--", "sh", "-c", "echo in; cat /etc/hostname")
    ctx.true("forbids user namespaces (" in got.err and "running under Landlock only" in got.err, f"the note: {got}")
    ctx.true(got.out == "in\n" and "Permission denied" in got.err, f"the walls: {got}")
