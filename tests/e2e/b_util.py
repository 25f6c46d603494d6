"""What the suites for part B of the checklist share: running sandboxes, private host mounts,
mount tables, seccomp programs."""

import contextlib
import ctypes
import json
import os
import platform
import pwd
import re
import select
import struct
import subprocess
import time
from typing import NamedTuple

LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
MNT_DETACH = 2
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_NOSYMFOLLOW, MS_NOATIME, MS_NODIRATIME, MS_REC = 256, 1024, 2048, 16384
MS_PRIVATE, MS_SHARED, MS_STRICTATIME = 1 << 18, 1 << 20, 1 << 24

INFO_FD = 60


def probe(ctx):
    """The probe program; a suite without it is a broken build, never a skip."""
    path = os.path.join(ctx.probe_dir or "", "b_probe")
    if not os.access(path, os.X_OK):
        raise AssertionError(f"the probe program {path!r} is missing (run.py --probes)")
    return path


# -- identities -------------------------------------------------------------------------------

def test_user():
    return pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))


def as_user(*more):
    """A prefix that runs a command as the ordinary user; for cases that run as root."""
    user = test_user()
    return ("setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid),
            "--clear-groups", *more, "--")


def identities():
    """Both identities, as prefixes, for a case that needs root to prepare the host's side."""
    return (("root", ()), ("user", as_user()))


def sandbox(ctx, prefix, *args, **kw):
    return ctx.run(*prefix, ctx.bwrap, *args, **kw)


def process_facts(ctx, *options, prefix=(), **kw):
    """What a command in a sandbox reads about itself: the fields of /proc/self/status, and the
    id maps as lists of lines of three numbers."""
    result = sandbox(ctx, prefix, *options, "cat", "/proc/self/status", "/proc/self/uid_map",
                     "/proc/self/gid_map", "/proc/self/setgroups", **kw)
    ctx.ok(result)
    facts, maps = {}, []
    for line in result.out.splitlines():
        if ":" in line:
            key, _, value = line.partition(":")
            facts[key] = value.strip()
        elif re.fullmatch(r"[\s\d]+", line):
            maps.append(tuple(int(n) for n in line.split()))
        else:
            facts["setgroups"] = line.strip()
    half = len(maps) // 2
    facts["uid_map"], facts["gid_map"] = maps[:half], maps[half:]
    return facts


def caps(facts):
    """The five capability sets as numbers, in the order Inh, Prm, Eff, Bnd, Amb."""
    return tuple(int(facts["Cap" + name], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb"))


def own_status():
    with open("/proc/self/status") as f:
        return {line.partition(":")[0]: line.partition(":")[2].strip() for line in f}


# -- reading with a limit ---------------------------------------------------------------------

def read_until(fd, token=None, seconds=10.0):
    """Reads from a descriptor until `token` has been seen (or, without one, until the end)."""
    data, end = b"", time.monotonic() + seconds
    while token is None or token not in data:
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise AssertionError(f"nothing more to read within {seconds} s; so far: {data!r}")
        chunk = os.read(fd, 65536)
        if not chunk:
            break
        data += chunk
    return data


def at_end(fd, seconds=0.0):
    """True when everybody has closed the other end of a pipe into which nobody writes."""
    return bool(select.select([fd], [], [], seconds)[0])


def wait(proc, seconds=15.0):
    """The status of a process as a shell tells it."""
    code = proc.wait(seconds)
    return code if code >= 0 else 128 - code


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                found += [int(word) for word in f.read().split()]
    return found


class Live:
    """A sandbox that is running. Its command says `ready`, then does `script` (by default it
    answers each line of its standard input) and ends when its standard input does."""

    ECHO = "while read -r x; do echo \"got $x\"; done"

    def __init__(self, ctx, *options, script=ECHO, argv=None, fds=None, prefix=(), **kw):
        read, write = os.pipe()
        command = argv or ("sh", "-c", "echo ready; " + script)
        self.proc = ctx.popen(*prefix, ctx.bwrap, "--info-fd", str(INFO_FD), *options, *command,
                              fds={INFO_FD: write, **(fds or {})}, stdin=subprocess.PIPE, **kw)
        os.close(write)
        self.out = self.proc.stdout.fileno()
        text = read_until(read, b"}\n")
        os.close(read)
        if not text:
            raise AssertionError(f"no information from {options}: {self.proc.stderr.read()!r}")
        self.info_text = text.decode()
        self.info = json.loads(self.info_text)
        self.pid = self.info["child-pid"]

    def ready(self):
        """Waits until the command runs, and returns what it said up to that."""
        text = read_until(self.out, b"ready\n")
        if b"ready\n" not in text:
            raise AssertionError(f"the command did not start: {self.proc.stderr.read()!r}")
        return text.decode()

    def say(self, text):
        self.proc.stdin.write(text.encode())
        self.proc.stdin.flush()

    def ask(self, text, until="\n"):
        """Sends a line and returns the answer up to `until`."""
        self.say(text + "\n")
        return read_until(self.out, until.encode()).decode()

    def close_stdin(self):
        with contextlib.suppress(OSError):
            self.proc.stdin.close()

    def end(self):
        """Ends the command in the orderly way and returns the program's status."""
        self.close_stdin()
        return wait(self.proc)

    def command_pid(self, ctx):
        """The command's process: the reaper's only child."""
        return ctx.until(lambda: children(self.pid), why="a child of the reaper")[0]


class Sleeper:
    """A command that leaves a process behind. That process echoes what it reads from one pipe
    into another, so that it shows that it lives; it ends when it has nothing more to read."""

    def __init__(self, ctx, *options, code=4, fds=None):
        self.answers, answers = os.pipe()
        questions, self.questions = os.pipe()
        read, info = os.pipe()
        # The shell opens /dev/null for a job in the background, which takes a device.
        self.proc = ctx.bw_popen("--dev-bind", "/", "/", "--info-fd", str(INFO_FD), *options,
                                 "sh", "-c", f"cat <&5 >&6 2>&6 & read -r x; exit {code}",
                                 fds={5: questions, 6: answers, INFO_FD: info, **(fds or {})},
                                 stdin=subprocess.PIPE)
        for fd in (answers, questions, info):
            os.close(fd)
        self.pid = json.loads(read_until(read, b"}\n"))["child-pid"]
        os.close(read)
        self.lives()

    def lives(self):
        """Fails when the process does not answer."""
        os.write(self.questions, b"hello\n")
        answer = read_until(self.answers, b"hello\n")
        if answer != b"hello\n":
            raise AssertionError(f"the process that was left behind is gone: {answer!r}")

    def finish_command(self):
        """Lets the command end; returns the program's status."""
        self.proc.stdin.write(b"\n")
        self.proc.stdin.close()
        return wait(self.proc)

    def ended(self):
        return at_end(self.answers, 5)

    def release(self):
        os.close(self.questions)


def finish(ctx, proc, seconds=20):
    """Collects a started program as ctx.run() would."""
    from harness import Result
    out, err = proc.communicate(timeout=seconds)
    code = proc.returncode if proc.returncode >= 0 else 128 - proc.returncode
    return Result(proc.args, code, (out or b"").decode(), (err or b"").decode())


# -- status output ----------------------------------------------------------------------------

def out_file(ctx, name):
    """A descriptor of an empty file to hand over; read it with file_text()."""
    return os.open(os.path.join(ctx.dir, name), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)


def file_text(fd):
    return os.pread(fd, 1 << 20, 0).decode()


def with_status(ctx, *args, prefix=(), fds=None, **kw):
    """Runs a sandbox with --json-status-fd; returns the result and the text of the status."""
    fd = out_file(ctx, "status.json")
    result = sandbox(ctx, prefix, "--json-status-fd", "61", *args, fds={61: fd, **(fds or {})},
                     **kw)
    text = file_text(fd)
    os.close(fd)
    return result, text


def status_lines(text):
    return [json.loads(line) for line in text.splitlines()]


# -- mounts -----------------------------------------------------------------------------------

class Mount(NamedTuple):
    identity: str
    where: str
    options: frozenset
    fstype: str


def unescape(text):
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]),
                  text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def parse_mountinfo(text):
    table = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        table.append(Mount(fields[0], unescape(fields[4]), frozenset(fields[5].split(",")),
                           after.split(" ")[0]))
    return table


def mount_table(pid="self"):
    with open(f"/proc/{pid}/mountinfo", errors="surrogateescape") as f:
        return parse_mountinfo(f.read())


def mount_at(table, where):
    """The topmost mount at a path; an assertion when there is none."""
    found = [m for m in table if m.where == where]
    if not found:
        raise AssertionError(f"no mount at {where}: {[m.where for m in table]}")
    return found[-1]


def _call(name, *args):
    if getattr(LIBC, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{args}: {os.strerror(number)}")


def _mount(source, where, fstype, flags, data=None):
    def raw(text):
        return None if text is None else os.fsencode(text)

    _call("mount", raw(source), raw(where), raw(fstype), ctypes.c_ulong(flags), raw(data))


class HostMounts:
    """Mounts on the host's side, visible in this case's own mount namespace only."""

    def __init__(self):
        self.before = {m.identity for m in mount_table()}

    def mount(self, fstype, where, flags=0, data=None):
        _mount(fstype, where, fstype, flags, data)

    def tmpfs(self, where, flags=0, data="mode=0777"):
        os.makedirs(where, exist_ok=True)
        self.mount("tmpfs", where, flags, data)

    def undo(self):
        """Takes away everything that was mounted, also what a sandbox wrongly left here."""
        for _ in range(200):
            new = [m.where for m in mount_table() if m.identity not in self.before]
            if not new:
                return
            _call("umount2", os.fsencode(new[-1]), MNT_DETACH)


@contextlib.contextmanager
def private_mounts(shared=False):
    """Moves this case (a process of its own) into a new mount namespace, so that the mounts it
    makes never show on the machine. With `shared` they still reach the sandboxes it starts."""
    before = os.readlink("/proc/self/ns/mnt")
    _call("unshare", CLONE_NEWNS)
    if os.readlink("/proc/self/ns/mnt") == before:
        raise AssertionError("still in the machine's own mount namespace")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    if shared:
        _mount(None, "/", None, MS_REC | MS_SHARED)
    host = HostMounts()
    try:
        yield host
    finally:
        host.undo()


def root_without(*names, replace=()):
    """Options that show the host's top level without some of its names (without slash)."""
    options = []
    for name in sorted(os.listdir("/")):
        path = "/" + name
        if name in names:
            continue
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--dev-bind", path, path]
    return [*options, *replace]


def program_elsewhere(ctx):
    """Options that show the program under test at a fixed place, and its name there. Nested
    sandboxes use it where the place of the real one may be hidden."""
    real = os.path.realpath(ctx.bwrap)
    options = ["--ro-bind", os.path.dirname(real), "/program", "--symlink",
               "/program/" + os.path.basename(real), "/name/bwrap"]
    return options, "/name/bwrap"


# -- seccomp ----------------------------------------------------------------------------------

# The numbers of the few system calls that the suites filter.
SYSCALLS = {"x86_64": {"uname": 63, "execve": 59}, "aarch64": {"uname": 160, "execve": 221}}


def _op(code, jump_true, jump_false, value):
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def seccomp_allow():
    return _op(0x06, 0, 0, 0x7FFF0000)


def seccomp_errno(call, number):
    """A filter that lets `call` fail with the given errno and allows everything else."""
    table = SYSCALLS.get(platform.machine())
    if table is None:
        raise AssertionError(f"no system call numbers for {platform.machine()}")
    return (_op(0x20, 0, 0, 0) + _op(0x15, 0, 1, table[call]) +
            _op(0x06, 0, 0, 0x00050000 | number) + seccomp_allow())
