"""What several suites need around the program under test: private namespaces to start it in,
a view of its system calls and a way to make one of them fail, and small root filesystems.

Nothing here starts the program under test by itself, and nothing here changes the host: mounts
and limits are made in namespaces of their own, in the forked child, just before exec.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOSYMFOLLOW, MS_BIND, MS_REC = 32, 256, 4096, 16384
MS_PRIVATE, MS_SHARED = 1 << 18, 1 << 20
MNT_DETACH = 2

PR_SET_DUMPABLE, PR_CAPBSET_DROP = 4, 24
CAP_KILL, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW = 5, 10, 12, 13
CAP_SYS_ADMIN, CAP_SYS_TIME, CAP_SETFCAP = 21, 25, 31

LIBC = ctypes.CDLL(None, use_errno=True)


def check(rc, what):
    if rc < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return rc


def unshare(flags):
    check(LIBC.unshare(flags), "unshare")


def mount(source, target, kind=None, flags=0, data=None):
    def raw(text):
        return None if text is None else os.fsencode(text)

    check(LIBC.mount(raw(source), raw(target), raw(kind), ctypes.c_ulong(flags), raw(data)),
          f"mount {target}")


def umount(target, flags=MNT_DETACH):
    check(LIBC.umount2(os.fsencode(target), flags), f"umount {target}")


def drop_bounding(*caps):
    """Takes capabilities out of the bounding set, so that even root does not get them at exec."""
    for cap in caps:
        check(LIBC.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), f"drop capability {cap}")


def map_ids(inner_uid, inner_gid, uid, gid):
    """Maps the one id pair of the process that has just made a user namespace."""
    # A process that changed its ids and has not executed anything since does not own its /proc.
    check(LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")
    with open("/proc/self/setgroups", "w") as f:
        f.write("deny")
    with open("/proc/self/uid_map", "w") as f:
        f.write(f"{inner_uid} {uid} 1")
    with open("/proc/self/gid_map", "w") as f:
        f.write(f"{inner_gid} {gid} 1")


def new_userns(as_root=False, extra=0):
    """A new user namespace in which the caller keeps its ids, or becomes 0:0."""
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | extra)
    map_ids(0 if as_root else uid, 0 if as_root else gid, uid, gid)


def private_mounts(*steps, userns=None, as_root=False, shared=False):
    """For `pre`: a mount namespace of our own, in which `steps` (functions) then run.

    An ordinary user gets a user namespace around it, in which it keeps its ids: the program that
    is executed afterwards is an ordinary user again, without any capability.
    """
    def prepare():
        if userns or (userns is None and os.getuid() != 0):
            new_userns(as_root, CLONE_NEWNS)
        else:
            unshare(CLONE_NEWNS)
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        if shared:
            mount(None, "/", None, MS_REC | MS_SHARED)
        for step in steps:
            step()

    return prepare


def limited_userns(limits, levels=1, as_root=False):
    """For `pre`: user namespaces, `levels` deep, and /proc/sys/user/max_* limits in the last.

    The limits belong to the user namespace of the process that writes them. The comparison of
    the namespace's identity before and after makes sure that it cannot be the host's.
    """
    def prepare():
        host = os.readlink("/proc/self/ns/user")
        for _ in range(levels):
            new_userns(as_root)
        if os.readlink("/proc/self/ns/user") == host:
            raise RuntimeError("still in the first user namespace: no limit is written")
        for name, value in limits.items():
            with open(f"/proc/sys/user/max_{name}_namespaces", "w") as f:
                f.write(str(value))

    return prepare


# -- reading what a sandbox shows ------------------------------------------------------------

def status_caps(text):
    """The capability lines of a /proc/PID/status text: {"CapEff": 0, ...}."""
    return {m[1]: int(m[2], 16) for m in re.finditer(r"^(Cap\w+):\s*([0-9a-f]+)$", text, re.M)}


def mount_options(mountinfo, point):
    """The options of the topmost mount at `point`, as a set (mount's own, not the superblock's)."""
    found = None
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 5 and decode_octal(fields[4]) == point:
            found = set(fields[5].split(","))
    return found


def decode_octal(text):
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


# -- system calls ----------------------------------------------------------------------------

class Call:
    """One traced system call: `index` counts the calls of this name in this process, from 1."""

    def __init__(self, pid, name, line, index):
        self.pid, self.name, self.line, self.index = pid, name, line, index

    def __repr__(self):
        return f"{self.pid} {self.name}#{self.index} {self.line}"


def need_strace(ctx):
    if not shutil.which("strace"):
        ctx.skip("strace is not installed")
    probe = ctx.run("strace", "-qq", "-o", "/dev/null", "true")
    if probe.rc != 0:
        ctx.skip(f"strace may not trace here: {probe.err.strip()}")


def traced(ctx, *argv, inject=(), more=(), **kw):
    """Runs a command under strace -f; returns (result, list of Call). `inject` holds strace
    injection expressions without their `inject=` word."""
    log = os.path.join(ctx.dir, "strace.log")
    words = ["strace", "-f", "-qq", "-y", "-s", "1000", "-o", log, *more]
    for expression in inject:
        words += ["-e", "inject=" + expression]
    result = ctx.run(*words, *argv, **kw)
    with open(log, encoding="utf-8", errors="surrogateescape") as f:
        return result, parse_strace(f.read())


def parse_strace(text):
    calls, counts = [], {}
    for line in text.splitlines():
        match = re.match(r"(\d+)\s+(\w+)\((.*)$", line)
        if not match:
            continue
        pid, name, rest = match[1], match[2], match[3]
        counts[pid, name] = counts.get((pid, name), 0) + 1
        calls.append(Call(int(pid), name, f"{name}({rest}", counts[pid, name]))
    return calls


def inject_at(ctx, pattern, error, *argv, which=0, **kw):
    """Makes the call fail whose traced line matches `pattern` (a regular expression).

    A first run without faults finds out which call of its process that is (the `which`-th match);
    the second run fails it. Returns (result of the second run, the Call). The first run must
    succeed: it is the positive control of every fault.
    """
    plain, calls = traced(ctx, *argv, **kw)
    ctx.ok(plain)
    hits = [call for call in calls if re.search(pattern, call.line)]
    ctx.true(len(hits) > which, f"no traced call matches {pattern!r}")
    call = hits[which]
    result, calls = traced(ctx, *argv, inject=[f"{call.name}:error={error}:when={call.index}"], **kw)
    if not result.err:
        # strace counts in every process anew: the message may be the first write of its process,
        # as the id map is of another, and has failed as well. The trace shows what it says.
        result.err = "".join(written(c) for c in calls if re.match(r"write\(2[<,]", c.line))
    return result, call


def written(call):
    """The text that a traced write handed to the kernel."""
    match = re.match(r'write\(\d+(?:<[^>]*>)?, "((?:[^"\\]|\\.)*)"', call.line)
    return match[1].encode().decode("unicode_escape") if match else ""


# -- processes -------------------------------------------------------------------------------

def children_of(pid):
    """The direct children of every thread of `pid`."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                found += [int(word) for word in f.read().split()]
    except OSError:
        pass
    return found


def end_tree(ctx, proc):
    """Ends a process that the case started, and everything below it."""
    import harness
    below = [pid for pid, _ in harness.descendants(proc.pid)]
    proc.kill()
    proc.wait(5)
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def holder(ctx, *flags):
    """A process in new namespaces of its own (options of unshare), for others to join.

    Returns the process; its namespaces exist when this returns.
    """
    proc = ctx.popen("unshare", *flags, "sh", "-c", "echo ready; exec sleep 60",
                     stdout=subprocess.PIPE)
    line = proc.stdout.readline()
    if line != b"ready\n":
        raise AssertionError(f"unshare {flags} did not start: {proc.communicate(timeout=5)}")
    return proc


# -- root filesystems ------------------------------------------------------------------------

def small_root(ctx, name, programs=("bash", "cat", "id", "ls", "hostname", "grep", "env",
                                    "touch", "stat", "readlink")):
    """A folder with a few programs and their libraries, copied, that can serve as a root."""
    root = ctx.mkdir(name)
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "etc", "dev", "proc", "tmp", "home/sandbox",
                   "root", "run", "var/tmp"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    for link in ("bin", "lib", "lib64"):
        os.symlink("usr/" + link, os.path.join(root, link))
    os.symlink("bash", os.path.join(root, "usr/bin/sh"))
    wanted = set()
    for program in programs:
        path = os.path.realpath(shutil.which(program))
        shutil.copy(path, os.path.join(root, "usr/bin", program))
        listing = subprocess.run(["ldd", path], stdout=subprocess.PIPE, check=False).stdout.decode()
        wanted |= set(re.findall(r"(/[^ ]+) \(0x", listing))
    for library in wanted:
        target = os.path.join(root, library.lstrip("/"))
        # A merged /usr is the rule: /lib64/ld-linux.so is really below /usr.
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            shutil.copy(os.path.realpath(library), target)
    with open(os.path.join(root, "etc/hosts"), "w") as f:
        f.write("127.0.0.1 localhost\n")
    with open(os.path.join(root, "etc/resolv.conf"), "w") as f:
        f.write("")
    return root
