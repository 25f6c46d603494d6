"""Running sandboxes by name: nsbox exec, ps, kill and wait, and what they must not open to anyone.

Each case has a folder of sockets of its own.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import termios
import time

import bpf
from b_util import alive, as_user, at_end, children, read_until, wait
from casekit import probe, runtime
from harness import case, descendants
from ptykit import INTERRUPT, Terminal, state_of

PYTHON = "/usr/bin/python3"
NOBODY = 65534
FILTER = 9  # The descriptor that the shapes with a filter read it from.

ALL = ("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
       "/tmp")
HOST = ("--dev-bind", "/", "/")  # No namespace but those that cannot be avoided.
PID = (*HOST, "--unshare-pid", "--proc", "/proc")
# A root of its own, in which nothing of the host is but /usr.
SMALL = ("--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink",
         "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
         "--tmpfs", "/tmp")
SHAPES = {
    "all": ALL,
    "host pids": HOST,
    "pid": PID,
    "ids": (*ALL, "--uid", "7", "--gid", "8", "--hostname", "inside", "--cap-drop", "ALL"),
    "caps": (*ALL, "--unshare-user", "--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--cap-add",
             "CAP_NET_ADMIN", "--cap-add", "CAP_SYS_PTRACE"),
    "every cap": (*ALL, "--unshare-user", "--cap-add", "ALL"),
    "no users": (*ALL, "--unshare-user", "--disable-userns"),
    "two users": (*HOST, "--unshare-user", "--unshare-pid", "--unshare-net", "--uid", "5", "--gid",
                  "6", "--proc", "/proc", "--dev", "/dev"),
    "filter": (*ALL, "--add-seccomp-fd", str(FILTER)),
    "session": (*ALL, "--new-session"),
    "as pid 1": (*ALL, "--as-pid-1"),
    "elsewhere": (*SMALL, "--clearenv", "--setenv", "ONE", "1=1", "--setenv", "HOME", "/home/x",
                  "--setenv", "PATH", "/usr/bin", "--dir", "/home/x", "--chdir", "/home/x"),
}
ROOT_SHAPES = {
    "root with user namespace": (*PID, "--unshare-user", "--unshare-ipc"),
    "root without capabilities": (*PID, "--cap-drop", "ALL"),
    "root with few": (*PID, "--unshare-net", "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN"),
}


def shapes(ctx):
    return {**SHAPES, **(ROOT_SHAPES if ctx.root else {})}


def sockets(folder):
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def listed(ctx, **kw):
    result = ctx.ok(ctx.run(ctx.nsbox, "ps", "--json", **kw))
    return [json.loads(line) for line in result.out.splitlines()]


class Box:
    """A sandbox that runs and can be found by its name. Its command says `ready` at some time, and
    by default ends with status 5 when its standard input does."""

    WAITS = ("sh", "-c", "echo ready; cat >/dev/null; exit 5")

    def __init__(self, ctx, shape=ALL, *argv, name="box", options=(), prefix=(), fds=None, **kw):
        self.ctx, self.name = ctx, name
        fds = dict(fds or {})
        if "--add-seccomp-fd" in shape:
            fds[FILTER] = bpf.deny_list(("symlink", "symlinkat"), 18)
        self.proc = ctx.popen(*prefix, ctx.nsbox, "--name", name, *options, *shape,
                              *(argv or self.WAITS), fds=fds, stdin=subprocess.PIPE, **kw)
        self.out = self.proc.stdout.fileno()
        self.said = read_until(self.out, b"ready\n").decode()
        if not self.said.endswith("ready\n"):
            raise AssertionError(f"the sandbox did not start: {self.proc.stderr.read()!r}")

    def known(self):
        """Waits until it can be found, and returns what is said about it."""
        def find():
            found = [it for it in listed(self.ctx) if it["name"] == self.name]
            return found and found[0]
        # Its command may have spoken before its supervisor has made it known.
        return self.ctx.until(find, why=f"a sandbox that nsbox ps shows as {self.name}")

    def execute(self, *words, options=(), **kw):
        return self.ctx.run(self.ctx.nsbox, "exec", *options, self.name, "--", *words, **kw)

    def start(self, *words, options=(), **kw):
        return self.ctx.popen(self.ctx.nsbox, "exec", *options, self.name, "--", *words, **kw)

    def end(self, status=5):
        with contextlib.suppress(OSError):
            self.proc.stdin.close()
        self.ctx.eq(wait(self.proc), status, "the status of the sandbox")


def box(ctx, shape=ALL, *argv, **kw):
    """A sandbox that can be found already."""
    it = Box(ctx, shape, *argv, **kw)
    it.known()
    return it


def control_works(ctx, it):
    """The sandbox can still be found, and entered."""
    it.known()
    ctx.ok(it.execute("echo", "inside"), out="inside")


# -- the same confinement ------------------------------------------------------------------------

FACTS = r'''
import ctypes, hashlib, json, os, resource, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
with open("/proc/self/status") as f:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
with open("/proc/self/mountinfo") as f:
    mounts = f.read()
def link():
    try:
        os.symlink("nowhere", "/tmp/link%d" % os.getpid())
    except OSError as error:
        return error.errno
    os.unlink("/tmp/link%d" % os.getpid())
    return 0
def users():
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 else ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def wanted(key):
    return key.startswith("Cap") or key in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp",
                                            "Seccomp_filters", "SigBlk", "SigIgn", "Umask")
root = os.stat("/")
facts = {
    "namespaces": {kind: os.readlink("/proc/self/ns/" + kind)
                   for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts", "time")},
    "status": {key: value for key, value in status.items() if wanted(key)},
    "secure bits": libc.prctl(27, 0, 0, 0, 0),
    "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "environment": dict(os.environ),
    "root": [root.st_dev, root.st_ino],
    "mounts": hashlib.sha256(mounts.encode()).hexdigest(),
    "directory": os.getcwd(),
    "host name": socket.gethostname(),
    "limits": [resource.getrlimit(which) for which in range(16)],
    "symlink": link(),
    "user namespaces": users(),
}
print(json.dumps(facts))
print("ready", flush=True)
sys.stdin.read()
'''


def facts_of(text):
    return json.loads(text.splitlines()[0])


@case("X-same", "a further command has the namespaces, ids, capabilities, filters, environment, "
      "root and directory of the main one", timeout=240)
def same(ctx):
    runtime(ctx)
    outside = ctx.ok(ctx.run(PYTHON, "-c", FACTS))
    host = facts_of(outside.out)
    for name, shape in shapes(ctx).items():
        it = box(ctx, shape, PYTHON, "-c", FACTS)
        main = facts_of(it.said)
        # What the caller of exec has for an environment does not matter.
        env = {"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"], "LEAK": "1", "PATH": "/nowhere"}
        result = ctx.ok(it.execute(PYTHON, "-c", FACTS, env=env, cwd="/"))
        inside = facts_of(result.out)
        for key, value in main.items():
            if isinstance(value, dict):
                differences = {k: (inside[key].get(k), v) for k, v in value.items()
                               if inside[key].get(k) != v}
                ctx.eq(differences, {}, f"{name}: {key} (further, main)")
            ctx.eq(inside[key], value, f"{name}: {key}")
        # The controls: what is compared differs from the host's where the shape says so.
        ctx.true(inside["namespaces"]["mnt"] != host["namespaces"]["mnt"], f"{name}: inside")
        ctx.eq(inside["status"]["NoNewPrivs"], "1", f"{name}: no_new_privs")
        if "--unshare-all" in shape:
            same_as_host = [k for k, v in inside["namespaces"].items()
                            if v == host["namespaces"][k] and k not in ("time", "user")]
            ctx.eq(same_as_host, [], f"{name}: namespaces that are the host's")
        if name == "filter":
            ctx.eq(inside["symlink"], 18, "what the filter refuses")
            ctx.eq(inside["status"]["Seccomp"], "2", "a filter")
        elif name == "all":
            ctx.eq(inside["symlink"], 0, "without the filter it is allowed")
            ctx.eq(inside["user namespaces"], 0, "user namespaces are allowed")
        elif name == "no users":
            ctx.true(inside["user namespaces"] != 0, "no further user namespaces")
        elif name == "ids":
            ctx.eq((inside["status"]["Uid"].split(), inside["host name"]), (["7"] * 4, "inside"),
                   "the ids and the name")
            ctx.eq(int(inside["status"]["CapBnd"], 16), 0, "the bounding set")
        elif name == "caps":
            ctx.eq(int(inside["status"]["CapEff"], 16), 1 << 12 | 1 << 19, "two capabilities")
        elif name == "elsewhere":
            ctx.eq(inside["directory"], "/home/x", "the directory")
            ctx.eq(inside["environment"].get("ONE"), "1=1", "the environment")
        it.end(0)


@case("X-same", "a further command has the resource limits of the main one, unless its caller may "
      "not have so much")
def same_limits(ctx):
    runtime(ctx)
    show = ("sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc)")
    lower = ("prlimit", "--nofile=60:70", "--core=0:0")
    for shape in (ALL, HOST):
        it = box(ctx, shape, prefix=("prlimit", "--nofile=77:99", "--core=0:10240"))
        ctx.ok(it.execute(*show), out="77 99 0")
        # The control: exec's own limits are others.
        ctx.ok(ctx.run(*lower, *show), out="60 70 0")
        ctx.ok(ctx.run(*lower, ctx.nsbox, "exec", "box", *show), out="70 70 0")
        it.end()


@case("X-directory", "--chdir and --setenv change what a further command starts with, and a "
      "directory that is not there is said")
def directory(ctx):
    runtime(ctx)
    for shape in (ALL, HOST, SHAPES["elsewhere"]):
        it = box(ctx, shape)
        look = ("sh", "-c", "pwd; /bin/pwd; echo $PWD; echo \"$A-$B-$PATH\"")
        result = ctx.ok(it.execute(*look, options=("--chdir", "/usr/bin", "--setenv", "A", "a=b",
                                                   "--setenv", "B", "", "--setenv", "A", "x y",
                                                   "--setenv", "PATH", "/usr/bin:/bin")))
        ctx.eq(result.out.splitlines(), ["/usr/bin"] * 3 + ["x y--/usr/bin:/bin"], "inside")
        result = ctx.fails(it.execute("true", options=("--chdir", "/no/such")), rc=125)
        ctx.true("chdir to /no/such: No such file" in result.err, f"the message\n{result}")
        ctx.ok(it.execute("true", options=("--chdir=/usr",)))
        it.end()


# -- the command as a child of its caller --------------------------------------------------------

@case("X-status", "the status of exec is the command's, 127 and 126 where it cannot be executed, "
      "125 where nsbox fails", timeout=120)
def statuses(ctx):
    runtime(ctx)
    plain = ctx.write("no-program", "text\n", 0o644)
    for name, shape in (("all", ALL), ("host", HOST), ("two", SHAPES["two users"])):
        it = box(ctx, shape)
        for script, status in (("exit 0", 0), ("exit 7", 7), ("exit 255", 255),
                               ("ulimit -c 0; kill -SEGV $$", 139), ("kill -KILL $$", 137)):
            ctx.eq(it.execute("sh", "-c", script).rc, status, f"{name}: {script}")
            ctx.eq(it.execute("sh", "-c", script, options=("--pty",)).rc, status,
                   f"{name}: {script} on a terminal")
        for word, status in (("no-such-command", 127), ("/no/such/command", 127),
                             (plain, 126), ("/usr", 126)):
            result = ctx.fails(it.execute(word), rc=status)
            ctx.true(word in result.err, f"{name}: the message\n{result}")
        ctx.true(alive(it.proc.pid), f"{name}: the sandbox goes on")
        it.end()


@case("X-words", "what is wrong with the words of exec, ps, kill and wait is said, with status 125")
def wrong_words(ctx):
    runtime(ctx)
    it = box(ctx)
    for words in (("exec",), ("exec", "box"), ("exec", "box", "--"), ("exec", "--what", "box", "w"),
                  ("exec", "--chdir"), ("exec", "--setenv", "A", "box"),
                  ("exec", "--setenv", "A=", "b", "box", "w"),
                  ("exec", "--pty-size", "0x0", "box", "w"), ("ps", "box"), ("ps", "--yaml"),
                  ("kill",), ("kill", "box", "box"), ("kill", "--signal", "NOSUCH", "box"),
                  ("kill", "--signal", "0", "box"), ("kill", "--signal", "65", "box"),
                  ("kill", "--signal"), ("wait",), ("wait", "box", "box")):
        result = ctx.fails(ctx.run(ctx.nsbox, *words), rc=125, err="^nsbox: ")
        ctx.eq(result.out, "", f"{words}: nothing was done")
    control_works(ctx, it)
    it.end()


@case("X-unknown", "an unknown, an ambiguous and a taken name are said, with status 125",
      timeout=90)
def unknown(ctx):
    runtime(ctx)
    one = box(ctx)
    for what in (("exec", "nobody", "true"), ("kill", "nobody"), ("wait", "nobody"),
                 ("exec", "", "true")):
        ctx.fails(ctx.run(ctx.nsbox, *what), rc=125, err="No running sandbox is called")
    result = ctx.fails(ctx.run(ctx.nsbox, "--name", "box", *ALL, "echo", "ran"),
                       err="another sandbox with the name box")
    ctx.eq(result.out, "", "nothing was started")
    ctx.fails(ctx.run(ctx.nsbox, "--distinct-status", "--name", "box", *ALL, "true"), rc=125)
    # With more sandboxes than there are digits, two ids begin with the same one.
    boxes = {it.name: it for it in (Box(ctx, HOST, name=f"n{i}") for i in range(17))}
    ctx.until(lambda: len(listed(ctx)) == 18, why="all of them")
    ids = {it["name"]: it["id"] for it in listed(ctx)}
    ctx.true(all(re.fullmatch("[0-9a-f]{16}", i) for i in ids.values()), f"the ids {ids}")
    first = [i[0] for i in ids.values()]
    twice = next(digit for digit in first if first.count(digit) > 1)
    ctx.fails(ctx.run(ctx.nsbox, "exec", twice, "true"), rc=125, err="More than one sandbox")
    for name, number in ids.items():
        at = next(n for n in range(1, 17)
                  if sum(i.startswith(number[:n]) for i in ids.values()) == 1)
        for beginning in {number[:at], number}:
            said = ctx.ok(ctx.run(ctx.nsbox, "exec", beginning, "sh", "-c", "echo $$")).out
            ctx.true(said.strip().isdigit(), f"{beginning}: entered")
        if name != "box":
            boxes[name].end()
    one.end()
    ctx.fails(ctx.run(ctx.nsbox, "exec", "box", "true"), rc=125, err="No running sandbox")
    ctx.fails(ctx.run(ctx.nsbox, "exec", ids["box"], "true"), rc=125, err="No running sandbox")


@case("X-unknown", "of several sandboxes that are started at once with one name, one gets it")
def name_race(ctx):
    runtime(ctx)
    procs = [ctx.popen(ctx.nsbox, "--name", "same", *HOST, "sh", "-c", "echo ready; cat",
                       stdin=subprocess.PIPE) for _ in range(8)]
    # Each has either failed or is there for all to see.
    ctx.until(lambda: len(listed(ctx)) + sum(p.poll() is not None for p in procs) == 8,
              why="eight answers")
    found = listed(ctx)
    ctx.eq([it["name"] for it in found], ["same"], "who is called so")
    for proc in procs:
        with contextlib.suppress(OSError):
            proc.stdin.close()
    ctx.eq(sorted(wait(p) for p in procs), [0] + [1] * 7, "the statuses")


@case("X-signals", "a signal that exec gets is the command's", timeout=120)
def signals(ctx):
    runtime(ctx)
    for name, shape in (("all", ALL), ("host", HOST), ("ids", SHAPES["ids"])):
        it = box(ctx, shape)
        proc = it.start(probe(ctx, "p_life"), "signals", "9", stdin=subprocess.PIPE)
        out = proc.stdout.fileno()
        ctx.true(b"ready\n" in read_until(out, b"ready\n"), f"{name}: {proc.args}")
        for word in ("USR1", "USR2", "HUP", "INT", "QUIT", "WINCH", "TERM"):
            proc.send_signal(getattr(signal, "SIG" + word))
            ctx.eq(read_until(out, b"\n"), f"got {word}\n".encode(), f"{name}: {word}")
        proc.stdin.close()
        ctx.eq(wait(proc), 9, f"{name}: status")
        proc = it.start("sh", "-c", "echo ready; exec cat", stdin=subprocess.PIPE)
        read_until(proc.stdout.fileno(), b"ready\n")
        proc.stdin.write(b"here\n")
        proc.stdin.flush()
        read_until(proc.stdout.fileno(), b"here\n")
        proc.terminate()
        ctx.eq(wait(proc), 143, f"{name}: ended by SIGTERM")
        control_works(ctx, it)
        it.end()


@case("X-starter", "a further command ends with the exec that started it")
def starter(ctx):
    runtime(ctx)
    for shape in (ALL, HOST):
        it = box(ctx, shape)
        # With a family that would like to go on, where there is no pid 1 that has it.
        family = "setsid sleep 600 & (sleep 601 &); " if shape is HOST else ""
        proc = it.start("sh", "-c", family + "echo ready; exec cat", stdin=subprocess.PIPE)
        read_until(proc.stdout.fileno(), b"ready\n")
        proc.kill()
        ctx.true(at_end(proc.stdout.fileno(), 5), "the command and its family have let go")
        control_works(ctx, it)
        it.end()


@case("X-ends", "a further command ends with the sandbox: its main command's end, and nsbox kill",
      timeout=90)
def ends_with_sandbox(ctx):
    runtime(ctx)
    for name, shape in (("all", ALL), ("pid", PID), ("host pids", (*HOST, "--kill-all"))):
        for how in ("end", "kill"):
            it = box(ctx, shape)
            proc = it.start("sh", "-c", "echo ready; exec cat", stdin=subprocess.PIPE)
            read_until(proc.stdout.fileno(), b"ready\n")
            if how == "kill":
                ctx.ok(ctx.run(ctx.nsbox, "kill", "box"))
                it.end(137)
            else:
                it.end()
            try:
                ctx.eq(wait(proc, 5), 137, f"{name}, {how}: the status of exec")
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name}, {how}: the further command goes on") from None


@case("X-pipe", "megabytes go through a further command from and to the caller", timeout=120)
def pipeline(ctx):
    runtime(ctx)
    data = random.Random(3).randbytes(10_000_000)
    for shape in (ALL, HOST):
        it = box(ctx, shape)
        proc = it.start("sh", "-c", "cat; echo said >&2; exit 4", stdin=subprocess.PIPE)
        out, err = proc.communicate(data, timeout=60)
        ctx.eq((proc.returncode, err), (4, b"said\n"), "status and errors")
        ctx.eq(hashlib.sha256(out).hexdigest(), hashlib.sha256(data).hexdigest(), "the bytes")
        # With nothing to read and nobody to read it.
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            def close(closed=closed):
                for fd in closed:
                    os.close(fd)
            ctx.eq(it.execute("sh", "-c", "exit 3", pre=close).rc, 3, f"{closed} closed")
        it.end()


@case("X-many", "many further commands run at once, each with its own input and status",
      timeout=120)
def many(ctx):
    runtime(ctx)
    for shape in (ALL, HOST):
        it = box(ctx, shape)
        procs = [it.start("sh", "-c", f"read -r x; echo {i} $x; exit {i}", stdin=subprocess.PIPE)
                 for i in range(20)]
        for i, proc in reversed(list(enumerate(procs))):
            out, err = proc.communicate(f"word{i}\n".encode(), timeout=30)
            ctx.eq((out, proc.returncode, err), (f"{i} word{i}\n".encode(), i, b""), f"number {i}")
        it.end()


@case("X-fds", "a further command has the descriptors 0, 1 and 2 and no other")
def descriptors(ctx):
    runtime(ctx)
    look = (PYTHON, "-c", "import os\nfor n in range(3, 1024):\n    try: os.fstat(n)\n"
            "    except OSError: continue\n    print(n, os.readlink(f'/proc/self/fd/{n}'))")
    opened = {n: os.open("/etc/hostname", os.O_RDONLY) for n in (3, 4, 5, 6, 7, 8, 9, 50, 900)}
    # The control: this program would see them.
    ctx.eq(len(ctx.ok(ctx.run(*look, fds=opened)).out.splitlines()), len(opened), "outside")
    for shape in (ALL, HOST, SHAPES["two users"], SHAPES["as pid 1"]):
        it = box(ctx, shape, fds={7: opened[7]} if shape is HOST else None)
        for options in ((), ("--pty",)):
            ctx.eq(ctx.ok(it.execute(*look, options=options, fds=opened)).out, "", "descriptors")
        it.end()


# -- terminals -----------------------------------------------------------------------------------

def terminal(ctx, *words, options=("--pty",), name="box", size=(91, 27)):
    return Terminal(ctx, ctx.nsbox, "exec", *options, name, "--", *words, size=size)


@case("X-pty", "with --pty a further command has a terminal of its own: its size, its keys, "
      "its end", timeout=180)
def own_terminal(ctx):
    runtime(ctx)
    for name in ("all", "host pids", "pid", "ids", "two users", "session", "as pid 1"):
        shape = SHAPES[name]
        it = box(ctx, shape)
        # Without being asked, since the caller has one.
        term = terminal(ctx, "sh", "-c", "tty && stty size && test -t 2 && : >/dev/tty && "
                        "echo al''l; read -r x; for i in $(seq 100); do test \"$(stty size)\" != '27 91' || "
                        "sleep 0.1; done; stty size; exit 6", options=())
        term.expect(r"/dev/(pts/\d+|console)\r?\n27 91\r?\nall")
        ctx.true(term.is_raw(), f"{name}: the outer terminal is raw")
        # What is typed may arrive before the size does.
        term.resize(100, 40)
        term.line("")
        term.expect("40 100")
        term.ends(6)
        term = terminal(ctx, "sh", "-c", "echo run''ning; exec cat")
        term.expect("running")
        term.send(INTERRUPT)
        term.ends(130)
        # Without one outside.
        result = it.execute("stty", "size", options=("--pty-size", "77x33"))
        ctx.eq(ctx.ok(result).out, "33 77\r\n", f"{name}: the size")
        # With --no-pty it has the caller's.
        term = terminal(ctx, "sh", "-c", "echo run''ning; exec cat", options=("--no-pty",))
        term.expect("running")
        ctx.true(not term.is_raw(), f"{name}: the outer terminal is left alone")
        term.send(INTERRUPT)
        term.ends(130)
        it.end()


# Tries to type a letter, with and without rubbish in the half of the request that the kernel does
# not look at.
INJECT = r'''
import ctypes, errno, os, platform
number = {"x86_64": 16, "aarch64": 29}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
letter = ctypes.create_string_buffer(b"Z")
for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C)):
    for high in (0, 1 << 32, 1 << 63):
        for path in (None, "/dev/tty"):
            fd = 0 if path is None else os.open(path, os.O_RDWR)
            rc = libc.syscall(ctypes.c_long(number), ctypes.c_long(fd),
                              ctypes.c_ulong(request | high), letter)
            print("\n" + name, f"{high:x}", path or 0,
                  "done" if rc == 0 else errno.errorcode[ctypes.get_errno()], flush=True)
print("end of list", flush=True)
'''


def injections(term):
    """What the probe said, by request."""
    term.expect("end of list")
    found = re.findall(r"^(TIOC\w+ \w+ \S+) (\w+)", term.text.replace("\r", ""), re.M)
    if len(found) != 12:
        term.fail(f"{len(found)} lines of 12")
    return dict(found)


def typed_ahead(term):
    """How many characters wait in the terminal outside."""
    # In a mode in which also those count that no line's end follows.
    mode = term.mode()
    mode[3] &= ~termios.ICANON
    termios.tcsetattr(term.slave, termios.TCSANOW, mode)
    return struct.unpack("i", fcntl.ioctl(term.slave, termios.FIONREAD, b"\0" * 4))[0]


@case("X-inject", "a further command can type nothing into a terminal, neither its own nor the "
      "caller's, however the sandbox was started", timeout=180)
def inject(ctx):
    script = ctx.write("inject.py", INJECT)
    control = Terminal(ctx, PYTHON, script)
    typed = injections(control)
    control.wait()
    if "done" not in typed.values():
        ctx.skip("dev.tty.legacy_tiocsti is 0: no program can type into a terminal here")
    runtime(ctx)
    # None of these has a terminal when it starts: that comes with exec.
    for name in ("all", "session", "host pids"):
        it = box(ctx, SHAPES[name])
        for options in (("--pty",), ("--no-pty",)):
            term = terminal(ctx, PYTHON, script, options=options)
            said = injections(term)
            ctx.eq({key: word for key, word in said.items() if word != "EPERM"}, {},
                   f"{name} {options}: what was not refused")
            term.wait()
            ctx.eq(typed_ahead(term), 0, f"{name} {options}: characters outside")
        it.end()


# -- ps ------------------------------------------------------------------------------------------

@case("X-ps", "nsbox ps shows each sandbox on one line, and --json the whole of it", timeout=90)
def table(ctx):
    folder = runtime(ctx)
    ctx.eq(len(ctx.ok(ctx.run(ctx.nsbox, "ps")).out.splitlines()), 1, "a heading alone")
    ctx.eq(listed(ctx), [], "nothing")
    odd = ("sh", "-c", "echo ready; cat >/dev/null; exit 5", "two words", "", "a\nb", "tab\there",
           "\x1b[31mred", "\x7f", 'quo"te', "back\\slash", "ünïcode", "ctrl\x01", "$(x)")
    before = int(time.time())
    it = Box(ctx, ALL, *odd)
    info = it.known()
    second = box(ctx, HOST, name="second.one_2-x")
    ctx.eq(sorted(info), sorted(("id", "name", "supervisor-pid", "child-pid", "command-pid",
                                 "started", "command")), "the keys")
    ctx.eq(info["command"], list(odd), "the words")
    ctx.eq(info["supervisor-pid"], it.proc.pid, "the supervisor")
    below = dict(descendants(it.proc.pid))
    ctx.true(info["child-pid"] in below and info["command-pid"] in below, "below it")
    with open(f"/proc/{info['command-pid']}/cmdline", "rb") as f:
        ctx.eq(f.read().split(b"\0")[3], b"two words", "the command's process")
    ctx.true(before - 1 <= info["started"] <= time.time() + 1, "the time of the start")
    ctx.true(re.fullmatch("[0-9a-f]{16}", info["id"]), "the id")
    lines = ctx.ok(ctx.run(ctx.nsbox, "ps")).out.splitlines()
    ctx.eq(len(lines), 3, "the lines")
    ctx.eq(lines[0].split(), ["ID", "NAME", "PID", "AGE", "COMMAND"], "the heading")
    line = next(text for text in lines if text.startswith(info["id"]))
    ctx.true(all(c >= " " and c != "\x7f" for c in line), f"nothing to obey in {line!r}")
    ctx.true("two words" in line and "ünïcode" in line and str(info["command-pid"]) in line, line)
    ctx.eq([text["id"] for text in listed(ctx)], sorted(text["id"] for text in listed(ctx)),
           "the order")
    # Bytes that are no text, and more than a list can hold.
    third = box(ctx, HOST, "sh", "-c", "echo ready; cat >/dev/null; exit 5", b"\xff\xfe",
                *("x" * 5000 for _ in range(200)), name="third")
    ctx.true(third.known()["command"][4].startswith("xxx"), "the beginning of it")
    ctx.eq(len(sockets(folder)), 3, "sockets")
    for one in (it, second, third):
        one.end()
    ctx.eq(listed(ctx), [], "nothing again")
    pid_1 = box(ctx, SHAPES["as pid 1"])
    info = pid_1.known()
    ctx.eq(info["child-pid"], info["command-pid"], "as process 1")
    pid_1.end()


@case("X-ps", "names that are none are refused, and a name of 64 characters is one")
def names(ctx):
    runtime(ctx)
    for name in ("x" * 65, "x" * 70000, "a b", "a/b", "-a", "a\nb", "../x"):
        result = ctx.fails(ctx.run(ctx.nsbox, "--name", name, *HOST, "echo", "ran"))
        ctx.eq(result.out, "", f"{name[:70]!r}: nothing was started")
    for name in ("x" * 64, "ä.b", "1"):
        it = box(ctx, HOST, name=name)
        ctx.ok(it.execute("true"))
        it.end()


# -- kill ----------------------------------------------------------------------------------------

@case("X-kill", "nsbox kill ends everything in the sandbox at once, and its supervisor says 137",
      timeout=120)
def kill(ctx):
    folder = runtime(ctx)
    stubborn = ("sh", "-c", "trap '' TERM INT HUP; (setsid sleep 600 &) ; sleep 600 & echo ready; "
                "cat; sleep 600")
    for name, shape in {"all": ALL, "host pids": HOST, "as pid 1": SHAPES["as pid 1"],
                        "stopped": PID}.items():
        it = Box(ctx, shape, *stubborn)
        info = it.known()
        below = [pid for pid, _ in descendants(it.proc.pid)]
        ctx.true(len(below) >= 3, f"{name}: {below}")
        if name == "stopped":
            os.kill(info["command-pid"], signal.SIGSTOP)
        ctx.ok(ctx.run(ctx.nsbox, "kill", "box"), out="")
        ctx.eq(wait(it.proc, 5), 137, f"{name}: status")
        ctx.until(lambda below=below: not any(alive(pid) for pid in below), 2,
                  f"{name}: the end of everything")
        ctx.eq(sockets(folder), [], f"{name}: sockets")
        ctx.fails(ctx.run(ctx.nsbox, "kill", "box"), rc=125, err="No running sandbox")


@case("X-kill", "nsbox kill --signal sends a signal to the main command, and to nothing else",
      timeout=120)
def kill_signal(ctx):
    runtime(ctx)
    for name, shape in {"all": ALL, "host pids": HOST, "as pid 1": SHAPES["as pid 1"],
                        "ids": SHAPES["ids"]}.items():
        it = box(ctx, shape, probe(ctx, "p_life"), "signals", "9")
        other = it.start("sh", "-c", "echo ready; exec cat", stdin=subprocess.PIPE)
        read_until(other.stdout.fileno(), b"ready\n")
        for option, word in (("USR1", "USR1"), ("SIGUSR2", "USR2"), ("1", "HUP"), ("TERM", "TERM"),
                             ("15", "TERM"), ("INT", "INT")):
            ctx.ok(ctx.run(ctx.nsbox, "kill", "--signal", option, "box"), out="")
            ctx.eq(read_until(it.out, b"\n"), f"got {word}\n".encode(), f"{name}: {option}")
        other.stdin.close()
        ctx.eq(wait(other), 0, f"{name}: the further command did not get it")
        ctx.ok(ctx.run(ctx.nsbox, "kill", "-s", "KILL", "box"))
        it.end(137)


# -- wait ----------------------------------------------------------------------------------------

RECVFROM = {"x86_64": "45", "aarch64": "207"}


def asks(proc):
    """Whether a process has asked for the end, and waits for the answer: what a sandbox is comes with
    descriptors, by recvmsg(2)."""
    try:
        with open(f"/proc/{proc.pid}/syscall", encoding="ascii") as file:
            return file.read().split()[:1] == [RECVFROM[os.uname().machine]]
    except OSError:
        return False


@case("X-wait", "nsbox wait gives the status of the command, to each who waits", timeout=120)
def waits(ctx):
    runtime(ctx)
    for name, shape in {"all": ALL, "host pids": HOST, "as pid 1": SHAPES["as pid 1"]}.items():
        for ending, status in (("exit 5", 5), ("exit 0", 0), ("kill -KILL $$", 137)):
            if name == "as pid 1" and "KILL" in ending:
                continue  # The kernel spares process 1 its own signals.
            it = box(ctx, shape, "sh", "-c", f"echo ready; read -r x; {ending}")
            waiting = [ctx.popen(ctx.nsbox, "wait", "box") for _ in range(5)]
            gone = waiting.pop()
            gone.kill()
            gone.wait()
            ctx.until(lambda waiting=waiting: all(asks(p) for p in waiting), why="four who wait")
            ctx.eq([p.poll() for p in waiting], [None] * 4, f"{name}: they wait")
            it.end(status)
            ctx.eq([wait(p) for p in waiting], [status] * 4, f"{name}: {ending}")
            ctx.eq([p.stderr.read() for p in waiting], [b""] * 4, f"{name}: nothing is said")
    it = Box(ctx, ALL, options=("--timeout", "4"))
    it.known()
    ctx.eq(ctx.run(ctx.nsbox, "wait", "box").rc, 124, "after a time limit")
    it.end(124)
    it = box(ctx, ALL)
    waiting = ctx.popen(ctx.nsbox, "wait", "box")
    ctx.until(lambda: asks(waiting), why="one who waits")
    it.proc.kill()
    ctx.eq(wait(waiting), 125, "the supervisor was killed")
    ctx.true(b"its supervisor was killed" in waiting.stderr.read(), "the message")
    it.proc.stdin.close()
    ctx.fails(ctx.run(ctx.nsbox, "wait", "box"), rc=125, err="No running sandbox")


ASK_WAIT = struct.pack("=QQ", 4, 0)


@case("X-wait", "who has asked before the end gets the status, be it that the supervisor has not heard it")
def unheard(ctx):
    folder = runtime(ctx)
    it = Box(ctx)
    init = it.known()["child-pid"]
    it.proc.send_signal(signal.SIGSTOP)
    ctx.until(lambda: state_of(it.proc.pid) == "T", why="a stopped supervisor")
    asking = []
    for request in (ASK_WAIT, ASK_WAIT, b"nonsense", b"", ASK_WAIT, ASK_WAIT):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(20)
        sock.connect(os.path.join(folder, "box.sock"))
        if request:
            sock.send(request)
        asking.append((sock, request))
    it.proc.stdin.close()
    ctx.until(lambda: state_of(init) == "Z", why="the end of the command")
    it.proc.send_signal(signal.SIGCONT)
    for sock, request in asking:
        try:
            answer = sock.recv(4096)
        except ConnectionResetError:
            answer = b""
        want = (5,) if request == ASK_WAIT else ()
        ctx.eq(struct.unpack_from("=Q", answer) if answer else (), want, f"{request}")
    ctx.eq(wait(it.proc), 5, "the status")


# -- the socket ----------------------------------------------------------------------------------

def refuses(path):
    """A socket like that of a supervisor that is dead, or is about to listen."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(path)
    return sock


@case("X-folder", "the socket of a dead supervisor is removed, and that of one about to listen is not")
def about_to_listen(ctx):
    folder = runtime(ctx)
    os.mkdir(folder, 0o700)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    refuses(os.path.join(folder, "young.sock"))
    ctx.eq(listed(ctx), [], "nobody answers")
    ctx.fails(ctx.run(ctx.nsbox, "exec", "young", "true"), rc=125, err="No running sandbox")
    ctx.eq(sockets(folder), ["young.sock"], "while somebody may be about to listen")
    # One that begins waits for its turn.
    begin = time.monotonic()
    it = Box(ctx)
    time.sleep(0.2)
    now = sockets(folder)
    # For a second.
    ctx.true(now == ["young.sock"] or time.monotonic() - begin > 1, f"of one that begins: {now}")
    fcntl.flock(lock, fcntl.LOCK_UN)
    it.known()
    ctx.eq(sockets(folder), ["box.sock"], "when it could be locked")
    it.end()
    # But not for ever.
    fcntl.flock(lock, fcntl.LOCK_EX)
    it = box(ctx)
    it.end()


@case("X-folder", "the folder of sockets is made for its user alone, and one that is not is "
      "refused")
def folder_checked(ctx):
    folder = runtime(ctx)
    it = box(ctx)
    ctx.eq(ctx.mode(folder), 0o700, "the mode of the folder")
    ctx.eq(os.stat(folder).st_uid, ctx.uid, "its owner")
    for mode in (0o755, 0o711, 0o770, 0o701):
        os.chmod(folder, mode)
        for words in (("ps",), ("exec", "box", "true"), ("kill", "box"), ("wait", "box")):
            ctx.fails(ctx.run(ctx.nsbox, *words), rc=125, err="Can't use the folder")
        ctx.fails(ctx.run(ctx.nsbox, "--name", "second", *HOST, "true"), err="Can't use the folder")
    os.chmod(folder, 0o700)
    control_works(ctx, it)
    it.end()
    if ctx.root:
        os.chown(folder, NOBODY, NOBODY)
        ctx.fails(ctx.run(ctx.nsbox, "ps"), rc=125, err="another user")
        ctx.fails(ctx.run(ctx.nsbox, "--name", "box", *HOST, "true"), err="another user")
        os.chown(folder, 0, 0)
        ctx.ok(ctx.run(ctx.nsbox, "ps"))
    # A link would lead to a place that is not the user's to name.
    os.rename(folder, folder + ".real")
    os.symlink(folder + ".real", folder)
    ctx.fails(ctx.run(ctx.nsbox, "ps"), rc=125, err="folder of running sandboxes")
    os.unlink(folder)
    ctx.write("run/nsbox", "a file")
    ctx.fails(ctx.run(ctx.nsbox, "ps"), rc=125, err="folder of running sandboxes")


@case("X-folder", "a sandbox without --name makes no folder and cannot be found")
def without_name(ctx):
    folder = runtime(ctx)
    proc = ctx.bw_popen(*ALL, "sh", "-c", "echo ready; cat", stdin=subprocess.PIPE)
    read_until(proc.stdout.fileno(), b"ready\n")
    ctx.true(not os.path.exists(folder), "no folder")
    ctx.eq(listed(ctx), [], "nothing")
    proc.stdin.close()
    ctx.eq(wait(proc), 0, "status")


@case("X-folder", "a long path of the folder does no harm")
def long_path(ctx):
    runtime(ctx, "/".join(["long" * 20] * 10))
    it = box(ctx)
    control_works(ctx, it)
    it.end()


@case("X-cleanup", "the socket is gone after any end of command, init and supervisor", timeout=180)
def cleanup(ctx):
    folder = runtime(ctx)
    for name, shape in {"all": ALL, "host pids": HOST}.items():
        for options in ((), ("--die-with-parent",), ("--forward-signals", "--kill-all")):
            for victim in (None, "command-pid", "child-pid", "supervisor-pid"):
                what = f"{name} {options} {victim}"
                it = Box(ctx, shape, options=options)
                info = it.known()
                ctx.eq(sockets(folder), [info["name"] + ".sock"], f"{what}: its socket")
                if victim is None:
                    it.end()
                    ctx.eq(sockets(folder), [], f"{what}: sockets")
                    continue
                os.kill(info[victim], signal.SIGKILL)
                ctx.until(lambda: not sockets(folder), 1, f"{what}: the end of the socket")
                goes_on = victim == "supervisor-pid" and "--die-with-parent" not in options
                no_init = name == "host pids" and victim == "child-pid"
                if no_init and "--die-with-parent" not in options:
                    pass  # Whether the command goes on without an init is no matter of sockets.
                elif goes_on:
                    ctx.true(alive(info["command-pid"]), f"{what}: the command goes on")
                else:
                    ctx.until(lambda info=info: not alive(info["command-pid"]), 1,
                              f"{what}: the end of the command")
                with contextlib.suppress(OSError):
                    it.proc.stdin.close()
                wait(it.proc)
                ctx.until(lambda info=info: not alive(info["command-pid"]), 2, f"{what}: its end")


@case("X-cleanup", "what clears up after a killed supervisor leaves the socket of the next one with its name")
def late_cleanup(ctx):
    folder = runtime(ctx)
    first = box(ctx)
    info = first.known()
    janitors = [pid for pid in children(info["supervisor-pid"]) if pid != info["child-pid"]]
    ctx.eq(len(janitors), 1, f"the process that clears up: {janitors}")
    os.kill(janitors[0], signal.SIGSTOP)
    try:
        os.kill(info["supervisor-pid"], signal.SIGKILL)
        os.kill(info["child-pid"], signal.SIGKILL)
        wait(first.proc)
        second = box(ctx)
        second.known()
    finally:
        os.kill(janitors[0], signal.SIGCONT)
    ctx.until(lambda: not alive(janitors[0]), why="its end")
    control_works(ctx, second)
    ctx.eq(sockets(folder), ["box.sock"], "the second one's socket")
    second.end()
    ctx.eq(sockets(folder), [], "and after its end")


@case("X-cleanup", "nsbox ps removes what killed supervisors and inits left, and nothing else")
def stale(ctx):
    folder = runtime(ctx)
    it = box(ctx)
    # As a supervisor and its init leave one that are killed at the same moment.
    old = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    old.bind(folder + "/00112233445566ff.sock")
    old.listen()
    old.close()
    ctx.write("run/nsbox/a file", "not a socket")
    ctx.eq(len(sockets(folder)), 3, "files")
    ctx.eq([one["name"] for one in listed(ctx)], ["box"], "what runs")
    ctx.true("00112233445566ff.sock" not in sockets(folder), "the old one is gone")
    ctx.eq(len(sockets(folder)), 2, "what is left")
    control_works(ctx, it)
    it.end()


@case("X-cleanup", "a supervisor that is stopped or busy keeps neither nsbox ps nor others waiting")
def stopped_supervisor(ctx):
    runtime(ctx)
    other, it = box(ctx, name="other"), box(ctx)
    it.proc.send_signal(signal.SIGSTOP)
    try:
        ctx.until(lambda: open(f"/proc/{it.proc.pid}/stat").read().rpartition(")")[2].split()[0]
                  == "T", why="a stopped supervisor")
        names = [one["name"] for one in listed(ctx, timeout=15)]
        ctx.true("other" in names, f"the other one is in {names}")
        ctx.ok(other.execute("true", timeout=15))
        result = it.execute("true", timeout=15)
        ctx.fails(result, rc=125, err="its supervisor is stopped .*SIGCONT")
    finally:
        it.proc.send_signal(signal.SIGCONT)
    control_works(ctx, it)
    it.end()
    other.end()


@case("X-kill", "nsbox kill ends a sandbox whose supervisor is stopped")
def kill_stopped(ctx):
    folder = runtime(ctx)
    for shape in (ALL, HOST):
        it = box(ctx, shape)
        it.proc.send_signal(signal.SIGSTOP)
        ctx.ok(ctx.run(ctx.nsbox, "kill", "box", timeout=15))
        ctx.eq(wait(it.proc), 137, "the status")
        ctx.eq(sockets(folder), [], "sockets")


# -- who may use it ------------------------------------------------------------------------------

# Connects and asks for one thing; prints what came of that.
ASK = r'''
import os, socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(10)
try:
    s.connect(sys.argv[1])
    s.send(struct.pack("=QQ", int(sys.argv[2]), int(sys.argv[3])))
    data, fds, _, _ = socket.recv_fds(s, 65536, 8)
    print("answer" if data or fds else "nothing")
except (ConnectionResetError, BrokenPipeError):
    print("nothing")
except OSError as error:
    print(type(error).__name__)
'''
DESCRIBE, SIGNAL, KILL, WAIT = range(1, 5)


def ask(ctx, path, what, number=0, prefix=()):
    return ctx.ok(ctx.run(*prefix, PYTHON, "-c", ASK, path, str(what), str(number))).out.strip()


@case("X-others", "another user cannot reach the socket; its owner can", only="root")
def others(ctx):
    nobody = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--")
    for owner, prefix in (("root", ()), ("user", as_user())):
        folder = runtime(ctx, owner)
        ctx.ok(ctx.run("chown", prefix[2] if prefix else "0", os.path.dirname(folder)))
        it = Box(ctx, HOST, prefix=prefix)
        ctx.until(lambda folder=folder: sockets(folder), why="a socket")
        path = os.path.join(folder, sockets(folder)[0])
        for stranger in (nobody, as_user()) if owner == "root" else (nobody,):
            for what in (DESCRIBE, SIGNAL, KILL, WAIT):
                ctx.eq(ask(ctx, path, what, 9, stranger), "PermissionError", f"{owner}: {what}")
            # Where the folder lets them in by mistake, the supervisor does not.
            for mode in (os.path.dirname(folder), folder):
                os.chmod(mode, 0o755)
            os.chmod(path, 0o777)
            for what in (DESCRIBE, SIGNAL, KILL, WAIT):
                ctx.eq(ask(ctx, path, what, 9, stranger), "nothing", f"{owner}: {what}")
            for mode in (os.path.dirname(folder), folder):
                os.chmod(mode, 0o700)
        ctx.true(alive(it.proc.pid), f"{owner}: the sandbox goes on")
        ctx.eq(ask(ctx, path, DESCRIBE, 0, prefix), "answer", f"{owner}: the owner")
        # Root can become that user.
        ctx.eq(ask(ctx, path, DESCRIBE, 0), "answer" if owner == "root" else "nothing",
               f"{owner}: root")
        it.end()


@case("X-inside", "a program in a sandbox that shows the socket cannot use it; outside it works",
      timeout=120)
def inside(ctx):
    folder = runtime(ctx)
    ways = {"read-only": ("--ro-bind", "/", "/", "--dev", "/dev"), "writable": HOST,
            "with pids": PID,
            "with its own user namespace": (*HOST, "--unshare-user", "--cap-add", "ALL")}
    for name, shape in ways.items():
        it = box(ctx, shape)
        path = os.path.join(folder, sockets(folder)[0])
        ctx.eq(ask(ctx, path, DESCRIBE), "answer", f"{name}: the control, outside")
        # From the sandbox itself, and from another one.
        for prefix in ((ctx.nsbox, "exec", "box", "--"), (ctx.nsbox, *shape)):
            ctx.ok(ctx.run(*prefix, "test", "-S", path))
            for what in (DESCRIBE, SIGNAL, KILL, WAIT):
                ctx.eq(ask(ctx, path, what, 9, prefix), "nothing", f"{name}: {what} {prefix}")
            for words in (("exec", "box", "echo", "ran"), ("kill", "box"),
                          ("kill", "--signal", "KILL", "box"), ("wait", "box"), ("ps",)):
                if name != "read-only":
                    break  # There it could remove the socket, as it could any file.
                result = ctx.run(*prefix, ctx.nsbox, *words)
                ctx.true("ran" not in result.out and it.name not in result.out.split(),
                         f"{name}: {words}\n{result}")
                status = 0 if words == ("ps",) else 125
                ctx.true(result.rc == status, f"{name}: {words}\n{result}")
        ctx.true(alive(it.proc.pid), f"{name}: the sandbox goes on")
        control_works(ctx, it)
        it.end()


FORGE = r'''
import os, socket, struct, sys
folder, name = sys.argv[1:]
number = lambda n: struct.pack("=Q", n)
text = lambda b: number(len(b)) + b
path = f"{folder}/{name}.sock"
print("ready", flush=True)
sys.stdin.readline()
os.rename(path, path + ".old")
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(path)
server.listen(8)
print("forged", flush=True)
while True:
    client, _ = server.accept()
    client.settimeout(2)
    try:
        what = client.recv(17)
        pidfd = client.getsockopt(socket.SOL_SOCKET, 77, 4)
        recipe = os.memfd_create("recipe")
        os.write(recipe, number(0x6e73627872637032) + number(1) + text(b"PATH=/forged") +
                 text(b"/") * 3 + number(0) * 7)
        socket.send_fds(client, [text(b"0123456789abcdef") + text(name.encode()) + number(1) * 3 +
                                 number(1796016159) + number(0)],
                        [struct.unpack("i", pidfd)[0], recipe])
    except OSError:
        pass
    client.close()
'''


@case("X-inside", "a program inside that takes the socket's name for itself is not believed",
      timeout=120)
def forged(ctx):
    folder = runtime(ctx)
    for name, shape in {"all": (*ALL, "--bind", ctx.dir, ctx.dir), "host": HOST}.items():
        it = box(ctx, shape, PYTHON, "-c", FORGE, folder, "box")
        control_works(ctx, it)
        command = it.known()["command-pid"]
        it.proc.stdin.write(b"go\n")
        it.proc.stdin.flush()
        ctx.eq(read_until(it.out, b"\n"), b"forged\n", name)
        mark = f"{ctx.dir}/mark"
        for words in (("exec", "box", "touch", mark), ("kill", "box"), ("wait", "box")):
            result = ctx.run(ctx.nsbox, *words, timeout=20)
            ctx.fails(result, rc=125, err="another process than its supervisor listens there")
        ctx.true(not os.path.exists(mark), f"{name}: nothing was executed")
        ctx.eq(listed(ctx), [], f"{name}: nothing is listed")
        os.kill(command, signal.SIGKILL)
        ctx.eq(wait(it.proc), 137, f"{name}: the status")
        for left in sockets(folder):
            os.unlink(os.path.join(folder, left))


@case("X-inside", "who is refused does not take the socket away from those who are not")
def refused_keeps(ctx):
    folder = runtime(ctx)
    it = box(ctx)
    flags = ("--mount",) if ctx.root else ("--mount", "--user", "--map-current-user")
    ctx.ok(ctx.run("unshare", *flags, "test", "-d", folder))
    # What a client sees of a refusal depends on who of the two is faster.
    for _ in range(20):
        ctx.run("unshare", *flags, ctx.nsbox, "ps")
    ctx.eq(len(sockets(folder)), 1, "the socket of a sandbox that runs")
    ctx.eq([one["name"] for one in listed(ctx)], ["box"], "what runs")
    it.end()


CONNECT = '''
import socket, struct, sys
def connect():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(10)
    client.connect(sys.argv[1])
    return client
'''
NONSENSE = CONNECT + r'''
for data in (b"", b"x", b"\0" * 16, b"\xff" * 16, b"\1" * 15, b"x" * 17, b"x" * 60000,
             struct.pack("=QQ", 5, 0), struct.pack("=QQ", 2, 0), struct.pack("=QQ", 2, 1 << 40),
             struct.pack("=QQ", 2, 99)):
    client = connect()
    client.send(data)
    client.close()
'''
CROWD = CONNECT + '''
idle = [connect() for _ in range(300)]
print("here", flush=True)
sys.stdin.read()
'''


@case("X-inside", "clients that talk nonsense, or say nothing, do no harm", timeout=90)
def nonsense(ctx):
    folder = runtime(ctx)
    it = box(ctx, HOST)
    path = os.path.join(folder, sockets(folder)[0])
    # A process of its own, since the runner may have changed its ids: the supervisor takes nobody
    # whom it cannot look at.
    ctx.ok(ctx.run(PYTHON, "-c", NONSENSE, path))
    crowd = ctx.popen(PYTHON, "-c", CROWD, path, stdin=subprocess.PIPE)
    ctx.eq(read_until(crowd.stdout.fileno(), b"\n"), b"here\n", "300 clients")
    control_works(ctx, it)
    crowd.stdin.close()
    ctx.eq(wait(crowd), 0, "the crowd")
    control_works(ctx, it)
    ctx.ok(ctx.run(ctx.nsbox, "kill", "--signal", "WINCH", "box"))
    it.end()


# -- the entering process ------------------------------------------------------------------------

# Looks at every process that appears, as fast as it can. What it learns of the host is printed:
# the program's file, a mapping of it, its environment, its root, its descriptors.
POLLER = r'''
import json, os, signal, sys, time
device, inode, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
own_root = (os.stat("/").st_dev, os.stat("/").st_ino)
found, seen, opened = set(), set(), set()
running = True
def stop(*_):
    global running
    running = False
signal.signal(signal.SIGTERM, stop)
def attempt(pid, what, function):
    try:
        value = function(f"/proc/{pid}/{what}")
    except OSError:
        return
    opened.add(what)
    if value:
        found.add((what, value))
def exe(path):
    fd = os.open(path, os.O_RDONLY)
    status, name = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}")
    os.close(fd)
    return name if (status.st_dev, status.st_ino) == (device, inode) else None
def root(path):
    status = os.stat(path + "/.")
    return "another" if (status.st_dev, status.st_ino) != own_root else None
def directory(path):
    where = os.readlink(path)
    return where if os.stat(path + "/.").st_dev != own_root[0] else None
def text(path):
    with open(path, "rb") as f:
        data = f.read(1 << 20)
    # The command's environment may well have the program's name in a path.
    mapped = path.endswith("/maps") and program.encode() in data
    return "of the host" if mapped or b"HOST_SECRET" in data else None
def descriptors(path):
    for name in os.listdir(path):
        if int(name) > 2:
            target = os.readlink(f"{path}/{name}")
            if not target.startswith(("/usr/", "/etc/", "/proc/")):
                return target
    return None
def memory(path):
    os.close(os.open(path, os.O_RDONLY))
def words(path):
    with open(path, "rb") as f:
        return "of the host" if b"HOST_WORD" in f.read() else None
def mounts(path):
    with open("/proc/self/mountinfo") as f, open(path) as other:
        return "another" if other.read() not in ("", f.read()) else None
def interfaces(path):
    with open("/proc/self/net/dev") as f, open(path) as other:
        more = {line.split(":")[0] for line in other} - {line.split(":")[0] for line in f}
    return " ".join(more)
LOOKS = (("exe", exe), ("root", root), ("cwd", directory), ("maps", text), ("environ", text),
         ("fd", descriptors), ("mem", memory), ("cmdline", words), ("mountinfo", mounts),
         ("net/dev", interfaces))
def look(pid):
    for what, function in LOOKS:
        attempt(pid, what, function)
mine = os.getpid()
# The control: an ordinary process of the same user.
child = os.fork()
if child == 0:
    os.execv("/usr/bin/sleep", ["sleep", "600"])
while open(f"/proc/{child}/comm").read() != "sleep\n":
    pass
# While it is being loaded, a descriptor may be gone between two looks.
for _ in range(1000):
    look(child)
    if len(opened) == len(LOOKS):
        break
    time.sleep(0.01)
control = sorted(opened)
opened.clear()
print("ready", flush=True)
sightings = 0
while running:
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (1, mine, child):
            continue
        try:
            with open(f"/proc/{name}/comm") as f:
                comm = f.read().strip()
        except OSError:
            continue
        sightings += comm == program[:15]
        look(int(name))
os.kill(child, signal.SIGKILL)
print(json.dumps({"control": control, "found": sorted(found), "sightings": sightings}), flush=True)
'''

LOOKS = ["cmdline", "cwd", "environ", "exe", "fd", "maps", "mem", "mountinfo", "net/dev", "root"]


@case("X-proc", "a program inside that looks at every new process learns nothing of the one that "
      "enters: program, memory, environment, descriptors, root", timeout=300)
def entering(ctx):
    runtime(ctx)
    os.environ["HOST_SECRET"] = "in the environment of exec"
    status = os.stat(ctx.nsbox)
    program = os.path.basename(os.path.realpath(ctx.nsbox))
    ways = {"plain": SMALL,
            "every capability": (*SMALL, "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add",
                                 "ALL")}
    if ctx.root:
        ways["root without capabilities"] = (
            "--unshare-pid", *(word for word in SMALL if word != "--unshare-all"), "--cap-drop",
            "ALL")
    name = os.path.basename(ctx.nsbox)
    for way, shape in ways.items():
        it = box(ctx, (*shape, "--unsetenv", "HOST_SECRET"), PYTHON, "-c", POLLER,
                 str(status.st_dev), str(status.st_ino), name)
        for _ in range(200):
            ctx.ok(it.execute("/usr/bin/true", options=("--chdir", "/", "--setenv", "HOST_WORD", "1")))
        ctx.ok(ctx.run(ctx.nsbox, "kill", "--signal", "TERM", "box"))
        said = json.loads(read_until(it.out, b"}\n"))
        ctx.eq(said["control"], LOOKS, f"{way}: what is open of an ordinary process")
        ctx.true(said["sightings"] > 0, f"{way}: {program} was seen before its exec")
        # Whoever has every capability over its namespaces may look at the small program that executes
        # the command; all it has is the socket by which nsbox exec hears of a failure.
        capable = way == "every capability" or (ctx.root and way == "plain")
        found = [it for it in said["found"] if not (capable and it[0] == "fd"
                                                    and it[1].startswith("socket:"))]
        ctx.eq(found, [], f"{way}: what was learnt of the host")
        it.end(0)


# Prints how the host's program can be opened by the processes of the sandbox.
HOLDERS = r'''
import os, sys
device, inode = int(sys.argv[1]), int(sys.argv[2])
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            fd = os.open(f"/proc/{name}/exe", os.O_RDONLY)
        except OSError:
            continue
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == (device, inode):
            print("the host's program is", name)
        os.close(fd)
print("looked")
'''


@case("X-trap", "a command that leads to /proc/self/exe does not run the host's program inside",
      timeout=90)
def trap(ctx):
    runtime(ctx)
    status = os.stat(ctx.nsbox)
    look = (PYTHON, "-c", HOLDERS, str(status.st_dev), str(status.st_ino))
    it = box(ctx, (*SMALL, "--tmpfs", "/w", "--chmod", "0755", "/w"))
    ctx.ok(it.execute("sh", "-c", "cd /w; ln -s /proc/self/exe link; ln -s /proc/self/exe sh; "
                      "ln -s /proc/thread-self/exe thread; printf '#!/proc/self/exe\\n' >script; "
                      "printf '#!/w/link\\n' >second; chmod +x script second"))
    # Words with which it would wait for its standard input.
    for word in ("/proc/self/exe", "/proc/thread-self/exe", "/w/link", "/w/thread", "/w/script",
                 "/w/second", "sh"):
        proc = it.start(word, "--args", "0", options=("--setenv", "PATH", "/w"),
                        stdin=subprocess.PIPE)
        time.sleep(0.3)
        found = ctx.ok(it.execute(*look)).out
        proc.communicate(timeout=10)
        ctx.eq(found, "looked\n", f"{word}: processes of the sandbox")
    # The control: the search finds the program where it runs as a command inside.
    it.end()
    copy = ctx.dir + "/program"
    ctx.ok(ctx.run("cp", ctx.nsbox, copy))
    status = os.stat(copy)
    it = box(ctx, HOST)
    proc = it.start(copy, "--args", "0", stdin=subprocess.PIPE)
    look = (PYTHON, "-c", HOLDERS, str(status.st_dev), str(status.st_ino))
    ctx.until(lambda: "the host's program is" in ctx.ok(it.execute(*look)).out, why="the control")
    proc.communicate(timeout=10)
    it.end()


@case("X-trap", "no descriptor of the entering process leads to the host: not as a directory, not "
      "as a part of the command's path", timeout=120)
def descriptor_trap(ctx):
    runtime(ctx)
    # A program: a script's interpreter would look for it a second time.
    ctx.ok(ctx.run("cp", "/usr/bin/echo", ctx.dir + "/secret"))
    ctx.ok(ctx.run(ctx.dir + "/secret", "it", "ran"), out="it ran")
    it = box(ctx, (*SMALL, "--tmpfs", "/w", "--chmod", "0777", "/w", "--dir", "/w/home", "--chdir",
                   "/w/home"))
    # The caller stands in a directory that is in the sandbox, with nothing open of its own.
    ctx.ok(it.execute("sh", "-c", "cd /w; for n in $(seq 3 40); do ln -s "
                      "/proc/self/fd/$n/../../secret s$n; ln -s /proc/self/fd/$n d$n; "
                      "printf '#!/proc/self/fd/%s/../../secret ran\\n' $n >i$n; "
                      "chmod +x i$n; done"))
    look = ("sh", "-c",
            "for f in ../../secret ../secret secret; do $f it ran; done 2>/dev/null; true")
    for n in range(3, 20):
        for word in (f"/w/s{n}", f"/w/i{n}", f"/proc/self/fd/{n}/../../secret"):
            result = ctx.fails(it.execute(word, "it", "ran", options=("--chdir", "/"),
                                          cwd="/"))
            ctx.true("ran" not in result.out, f"{word}\n{result}")
        for where in (f"/w/d{n}", f"/proc/self/fd/{n}", f"/proc/self/fd/{n}/../.."):
            result = it.execute(*look, options=("--chdir", where), cwd="/")
            ctx.true("ran" not in result.out, f"{where}\n{result}")
            ctx.true(result.rc == 125, f"{where}: a directory that is none\n{result}")
    # The sandbox exchanges the directory in which its further commands start.
    for n in range(3, 20):
        ctx.ok(it.execute("sh", "-c", f"cd /; rm -rf /w/home; ln -s /proc/self/fd/{n} /w/home",
                          options=("--chdir", "/")))
        result = it.execute(*look, cwd="/")
        ctx.true("ran" not in result.out, f"{n}: the exchanged directory\n{result}")
    it.end()
