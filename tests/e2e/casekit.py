"""What the suites of bug reports (suite_cases_*.py) share: root trees, snapshots, prepared hosts.

Nothing here registers a case, so a suite that imports it runs its own cases only.
"""

import contextlib
import ctypes
import os
import pwd
import re
import shutil
import signal
import stat
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DIFFERENCES = os.path.join(HERE, "..", "..", "doc", "differences.md")

PROC_SUPER_MAGIC = 0x9FA0
AT_FDCWD = -100
RENAME_EXCHANGE = 2
libc = ctypes.CDLL(None, use_errno=True)


def peer():
    """True when another program stands in for nsbox, to check the tests themselves."""
    return "NSBOX_TEST_BWRAP" in os.environ


def lacks(ctx, option):
    """True when a peer of an older version does not know this option. Never true for nsbox."""
    return peer() and option not in ctx.bw("--help").out


def needs(ctx, option):
    if lacks(ctx, option):
        ctx.skip(f"the peer has no {option}")


def tool(ctx, name):
    """The path of a program that the machine must offer, or a skip that names it."""
    path = shutil.which(name)
    if path is None:
        ctx.skip(f"{name} is not installed")
    return path


def probe(ctx, name):
    if ctx.probe_dir is None:
        raise AssertionError("this case needs --probes, the folder with the probe programs")
    path = os.path.join(ctx.probe_dir, name)
    if not os.access(path, os.X_OK):
        raise AssertionError(f"the probe {path} was not built")
    return path


def differences_name(case_id):
    """Whether a row of the table of differences names this case."""
    with open(DIFFERENCES, encoding="utf-8") as f:
        return any(line.lstrip().startswith("|") and re.search(rf"\b{case_id}\b", line)
                   for line in f)


# -- trees -------------------------------------------------------------------------------------

# What a small root tree needs so that the programs of /usr start; /usr itself is bound.
def usr(tree):
    return ("--bind", tree, "/", "--ro-bind", "/usr", "/usr")


def make_tree(ctx, name="r"):
    """A root tree in the case's directory: an empty /usr to bind on, the links that lead to
    it, and empty standard directories. Returns its path."""
    tree = ctx.mkdir(name)
    for sub in ("usr", "proc", "dev", "tmp", "etc"):
        os.makedirs(os.path.join(tree, sub), exist_ok=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        path = os.path.join(tree, link)
        if os.path.isdir("/usr/" + link) and not os.path.lexists(path):
            os.symlink("usr/" + link, path)
    return tree


def snapshot(top):
    """Everything below `top` that a stray write would change, by relative name."""
    found = {}

    def add(path):
        st = os.lstat(path)
        what = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_ino]
        if stat.S_ISLNK(st.st_mode):
            what.append(os.readlink(path))
        if stat.S_ISREG(st.st_mode):
            what.append(st.st_mtime_ns)
            try:
                with open(path, "rb") as f:
                    what.append(f.read())
            except PermissionError:
                pass
        found[os.path.relpath(path, top)] = tuple(what)

    add(top)
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            add(os.path.join(folder, name))
    return found


def unchanged(ctx, top, before, why):
    after = snapshot(top)
    if after != before:
        new = sorted(set(after) - set(before))
        gone = sorted(set(before) - set(after))
        changed = sorted(k for k in set(after) & set(before) if after[k] != before[k])
        raise AssertionError(f"{why}: {top} changed: new {new}, gone {gone}, changed {changed}")


def tree_names(top):
    names = set()
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            names.add(os.path.relpath(os.path.join(folder, name), top))
    return names


# -- destinations ------------------------------------------------------------------------------

class Op:
    """One option that takes a destination. `args` are its words for the destination `path`;
    `before` are words that must come first for it to succeed there, where it works on something
    that exists."""

    def __init__(self, name, args, before=(), fds=None):
        self.name, self.args, self.before = name, tuple(args), tuple(before)
        self.fds, self.creates = fds or {}, not before
        self.wants_file = any(word in name for word in ("file", "data", "device"))


class Sources:
    """Things to mount, in a folder that has nothing to do with the tree under test."""

    def __init__(self, ctx):
        self.dir = ctx.mkdir("source/dir")
        self.file = ctx.write("source/file", "source\n")
        ctx.write("source/dir/inside", "inside\n")
        self.low1, self.low2 = ctx.mkdir("source/low1"), ctx.mkdir("source/low2")
        self.count = 0
        self.ctx = ctx
        self.dirfd = os.open(self.dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.filefd = os.open(self.file, os.O_PATH | os.O_CLOEXEC)

    def ops(self, path):
        """Every option that takes a destination, applied to `path`."""
        self.count += 1
        upper = self.ctx.mkdir(f"source/up{self.count}")
        work = self.ctx.mkdir(f"source/work{self.count}")
        all_ops = [
            Op("dir", ("--dir", path)),
            Op("perms dir", ("--perms", "0700", "--dir", path)),
            Op("file", ("--file", "9", path), fds={9: "data\n"}),
            Op("bind dir", ("--bind", self.dir, path)),
            Op("bind-try dir", ("--bind-try", self.dir, path)),
            Op("ro-bind dir", ("--ro-bind", self.dir, path)),
            Op("dev-bind dir", ("--dev-bind", self.dir, path)),
            Op("bind file", ("--bind", self.file, path)),
            Op("ro-bind file", ("--ro-bind", self.file, path)),
            Op("ro-bind-try file", ("--ro-bind-try", self.file, path)),
            Op("dev-bind device", ("--dev-bind", "/dev/null", path)),
            Op("bind-fd dir", ("--bind-fd", "9", path), fds={9: self.dirfd}),
            Op("ro-bind-fd file", ("--ro-bind-fd", "9", path), fds={9: self.filefd}),
            Op("bind-data", ("--bind-data", "9", path), fds={9: "data\n"}),
            Op("ro-bind-data", ("--ro-bind-data", "9", path), fds={9: "data\n"}),
            Op("symlink", ("--symlink", "/usr/bin", path)),
            Op("tmpfs", ("--tmpfs", path)),
            Op("perms tmpfs", ("--perms", "1777", "--tmpfs", path)),
            Op("proc", ("--unshare-pid", "--proc", path)),
            Op("host proc", ("--proc", path)),
            Op("dev", ("--dev", path)),
            Op("mqueue", ("--unshare-ipc", "--mqueue", path)),
            Op("chmod", ("--chmod", "0777", path), before=("--dir", path)),
            Op("remount-ro", ("--remount-ro", path), before=("--tmpfs", path)),
        ]
        if not lacks(self.ctx, "--overlay-src"):
            all_ops += [
                Op("overlay", ("--overlay-src", self.low1, "--overlay", upper, work, path)),
                Op("tmp-overlay", ("--overlay-src", self.low1, "--tmp-overlay", path)),
                Op("ro-overlay", ("--overlay-src", self.low1, "--overlay-src", self.low2,
                                  "--ro-overlay", path)),
            ]
        return all_ops


# -- prepared hosts ----------------------------------------------------------------------------

def in_mounts(ctx, script, *args, pid=False, env=None, **kw):
    """Runs a shell script where it may mount: root in a private mount namespace, an ordinary user
    in a user namespace of its own as well. $BWRAP is the program, $D the case's directory."""
    words = [tool(ctx, "unshare"), "--mount", "--propagation", "private"]
    if not ctx.root:
        words += ["--user", "--map-root-user"]
    if pid:
        words += ["--pid", "--fork", "--kill-child"]
    full = dict(os.environ if env is None else env, BWRAP=ctx.bwrap, D=ctx.dir)
    return ctx.run(*words, "sh", "-euc", script, "sh", *args, env=full, **kw)


def mount_table(text):
    """Mount point -> (set of the mount's flags, file system type, set of its options), from the
    text of a mountinfo file. The topmost mount of a point wins."""
    table = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) < 10 or "-" not in words:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4])
        rest = words[words.index("-") + 1:]
        table[point] = (set(words[5].split(",")), rest[0], set(rest[2].split(",")))
    return table


def ordinary():
    """The ordinary user that root may become, as (name, uid, gid)."""
    entry = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))
    return entry.pw_name, entry.pw_uid, entry.pw_gid


def setpriv(ctx):
    """For root: the words that run a command as the ordinary user, as one shell string."""
    tool(ctx, "setpriv")
    _, uid, gid = ordinary()
    return f"setpriv --reuid={uid} --regid={gid} --clear-groups --inh-caps=-all --"


# -- races -------------------------------------------------------------------------------------

@contextlib.contextmanager
def swapping(one, two):
    """Exchanges two names over and over, in a process of its own, while the body runs."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready)
            a, b = os.fsencode(one), os.fsencode(two)
            first = True
            # The bound keeps a forgotten process from running for ever.
            end = time.monotonic() + 60
            while time.monotonic() < end:
                for _ in range(50):
                    if libc.renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0:
                        os._exit(1)
                if first:
                    os.write(go, b"x")
                    first = False
        finally:
            os._exit(2)
    os.close(go)
    try:
        if os.read(ready, 1) != b"x":
            raise AssertionError("renameat2(RENAME_EXCHANGE) does not work here")
        yield
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            child = None
            raise AssertionError("the process that swaps ended before the test did")
    finally:
        os.close(ready)
        if child is not None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def started(ctx, proc, marker="ready"):
    """Reads one line from the standard output of a popen()ed command."""
    line = proc.stdout.readline().decode("utf-8", "replace").strip()
    if line != marker:
        rest = b""
        if proc.stderr and not line:
            proc.kill()
            rest = proc.stderr.read()
        raise AssertionError(f"expected the line {marker!r}, got {line!r}; stderr {rest!r}")
    return proc


def until_known(ctx, name, **kw):
    """A sandbox is known by its name a moment after its command has begun."""
    ctx.until(lambda: name in ctx.run(ctx.nsbox, "ps", **kw).out.split(), why=f"{name} is known")


def runtime(ctx, name="run"):
    """A folder for the sockets of this case, which every nsbox that it starts uses."""
    path = ctx.mkdir(name, 0o700)
    os.environ["XDG_RUNTIME_DIR"] = path
    return path + "/nsbox"
