"""A small harness for end-to-end tests of the nsbox program.

A suite is a module `suite_*.py` beside this file. Each test is a function that takes a `Ctx`
and is registered with `@case(ID, "a sentence with a subject")`. `run.py` runs every case twice,
as root and as an ordinary user, each in a process of its own with a time limit, and counts the
processes that a case leaves behind as a failure.

Rules for the people who write cases:
  * assert something that can fail; name the identity (`only="root"` or `only="user"`) when a
    statement is about one of them;
  * `ctx.skip(reason)` is for what this machine cannot do, never for what is inconvenient;
  * a case that shows a refusal also shows that the same action succeeds where it is allowed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

CASES = []


class Skip(Exception):
    """Raised by ctx.skip(): the case cannot run on this machine."""


class Case:
    def __init__(self, ids, text, func, only, timeout):
        self.ids, self.text, self.func = ids, text, func
        self.only, self.timeout = only, timeout


def case(ids, text, only=None, timeout=60):
    """Registers a test. `ids` is one id ("A13") or several divided by blanks."""
    assert only in (None, "root", "user")

    def register(func):
        CASES.append(Case(ids, text, func, only, timeout))
        return func

    return register


class Result:
    """What a finished command left: .rc (128+n when signal n ended it), .out and .err."""

    def __init__(self, argv, rc, out, err):
        self.argv, self.rc, self.out, self.err = argv, rc, out, err

    def __str__(self):
        return (f"argv: {self.argv}\nrc: {self.rc}\nstdout: {self.out[-2000:]!r}\n"
                f"stderr: {self.err[-2000:]!r}")


def memfd(data):
    """An anonymous file that holds `data` (bytes or str), with its offset at the start."""
    fd = os.memfd_create("test")
    os.write(fd, data.encode() if isinstance(data, str) else data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Ctx:
    def __init__(self, bwrap, nsbox, directory, probe=None):
        self.bwrap = bwrap            # the program under the name `bwrap`
        self.nsbox = nsbox            # the program under its own name
        self.dir = directory          # fresh, owned by this identity, also the working directory
        self.probe_dir = probe        # folder with the compiled probe programs
        self.root = os.getuid() == 0
        self.uid, self.gid = os.getuid(), os.getgid()
        self.started = []

    RUN = ("--bind", "/", "/", "--tmpfs", "/tmp")
    # A small system: the host's /usr and what leads to it, nothing else.
    USR = ("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib",
           "/lib", "--symlink", "usr/lib64", "/lib64")

    def skip(self, reason):
        raise Skip(reason)

    # -- running ---------------------------------------------------------------------------

    def popen(self, *argv, fds=None, env=None, cwd=None, stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.PIPE, pre=None, session=False):
        """Starts a command. `fds` maps the number in the child to a descriptor here, or to
        bytes/str which the child can read from there. `pre` runs in the child before exec."""
        opened = []
        table = {}
        for number, what in (fds or {}).items():
            if isinstance(what, (bytes, str)):
                what = memfd(what)
                opened.append(what)
            table[number] = what
        words = dict(args=[os.fspath(a) for a in argv], stdin=stdin, stdout=stdout, stderr=stderr,
                     cwd=cwd, env=dict(os.environ if env is None else env))
        # A fork of Python takes several times as long as what it starts: vfork serves where no code
        # of ours is to run in the child, and no thread sees the numbers change for that moment.
        streams = {s if isinstance(s, int) else s.fileno() for s in (stdin, stdout, stderr)
                   if s is not None}
        if (pre is None and threading.active_count() == 1 and all(n > 2 for n in table)
                and not streams & set(table)):
            with as_numbers(table):
                proc = subprocess.Popen(**words, pass_fds=tuple(table), start_new_session=session)
        else:
            proc = self.fork_for(words, table, pre, session)
        for fd in opened:
            os.close(fd)
        self.started.append(proc)
        return proc

    @staticmethod
    def fork_for(words, table, pre, session):
        def prepare():
            if session:
                os.setsid()
            # Two passes: a target number may be the source of another entry.
            high = {n: fcntl_dup(fd, 200) for n, fd in table.items()}
            for n, fd in high.items():
                os.dup2(fd, n, inheritable=True)
            for fd in high.values():
                os.close(fd)
            # The descriptors of Python's own making are close-on-exec; what the caller of the
            # tests left open must not reach the program under test either.
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) not in table:
                    try:
                        os.set_inheritable(int(name), False)
                    except OSError:
                        pass  # The descriptor of the listing itself is gone by now.
            if pre:
                pre()

        return subprocess.Popen(**words, preexec_fn=prepare, close_fds=False)

    def run(self, *argv, input=None, timeout=30, **kw):
        """Runs a command to its end and returns a Result; text mode, UTF-8 with escapes."""
        if input is not None:
            kw["stdin"] = subprocess.PIPE
        proc = self.popen(*argv, **kw)
        data = input.encode() if isinstance(input, str) else input
        try:
            out, err = proc.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired:
            proc.kill()
            out, err = proc.communicate(timeout=5)
            raise AssertionError(f"timed out after {timeout} s: {argv}\nstdout {out!r}\n"
                                 f"stderr {err!r}") from None
        rc = proc.returncode if proc.returncode >= 0 else 128 - proc.returncode

        def text(raw):
            return (raw or b"").decode("utf-8", "surrogateescape")

        return Result([os.fspath(a) for a in argv], rc, text(out), text(err))

    def bw(self, *args, **kw):
        """Runs the program as `bwrap` with these arguments."""
        return self.run(self.bwrap, *args, **kw)

    def bw_popen(self, *args, **kw):
        return self.popen(self.bwrap, *args, **kw)

    # -- asserting -------------------------------------------------------------------------

    def ok(self, result, out=None):
        """The command succeeded (and printed `out`, when given, surrounding blanks aside)."""
        if result.rc != 0:
            raise AssertionError(f"expected success\n{result}")
        if out is not None and result.out.strip() != out:
            raise AssertionError(f"expected stdout {out!r}\n{result}")
        return result

    def fails(self, result, rc=None, err=None):
        """The command failed (with `rc`), and stderr matches the regular expression `err`."""
        if result.rc == 0:
            raise AssertionError(f"expected failure\n{result}")
        if rc is not None and result.rc != rc:
            raise AssertionError(f"expected status {rc}\n{result}")
        if err is not None and not re.search(err, result.err, re.M):
            raise AssertionError(f"expected stderr to match {err!r}\n{result}")
        return result

    def eq(self, got, wanted, why=""):
        if got != wanted:
            raise AssertionError(f"{why}: got {got!r}, wanted {wanted!r}")

    def true(self, value, why):
        if not value:
            raise AssertionError(why)

    # -- waiting ---------------------------------------------------------------------------

    def until(self, predicate, seconds=20.0, why="the condition"):
        """Polls until predicate() is true; fails after `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = predicate()
            if value:
                return value
            time.sleep(0.01)
        raise AssertionError(f"{why} did not come true within {seconds} s")

    # -- files -----------------------------------------------------------------------------

    def write(self, name, text="", mode=None):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(text.encode() if isinstance(text, str) else text)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def mkdir(self, name, mode=None):
        path = os.path.join(self.dir, name)
        os.makedirs(path, exist_ok=True)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def mode(self, path):
        return stat.S_IMODE(os.lstat(os.path.join(self.dir, path)).st_mode)


def fcntl_dup(fd, at_least, how=fcntl.F_DUPFD):
    return fcntl.fcntl(fd, how, at_least)


@contextlib.contextmanager
def as_numbers(table):
    """Gives descriptors other numbers for a while, and what has these numbers back afterwards."""
    high, saved = {}, {}
    try:
        # Two passes: a target number may be the source of another entry.
        for n, fd in table.items():
            high[n] = fcntl_dup(fd, 200, fcntl.F_DUPFD_CLOEXEC)
        for n in table:
            try:
                saved[n] = (fcntl_dup(n, 200, fcntl.F_DUPFD_CLOEXEC), os.get_inheritable(n))
            except OSError:
                saved[n] = None
        for n, fd in high.items():
            os.dup2(fd, n, inheritable=True)
        yield
    finally:
        for n, before in saved.items():
            if before is None:
                os.close(n)
            else:
                os.dup2(before[0], n, inheritable=before[1])
                os.close(before[0])
        for fd in high.values():
            os.close(fd)


def fresh_dir():
    path = tempfile.mkdtemp(prefix="nsbox-test-", dir="/var/tmp")
    os.chmod(path, 0o755)
    return os.path.realpath(path)


def remove_dir(path):
    def make_writable(func, name, _):
        try:
            # Never the folder above: it is the machine's own /var/tmp.
            if name != path:
                os.chmod(os.path.dirname(name), 0o700)
            if not os.path.islink(name):
                os.chmod(name, 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, ignore_errors=True)
            else:
                func(name)
        except OSError:
            pass

    shutil.rmtree(path, onerror=make_writable)


def descendants(pid):
    """Every living process below `pid`, as (pid, command name)."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                text = f.read()
        except OSError:
            continue
        name = text[text.index("(") + 1:text.rindex(")")]
        fields = text[text.rindex(")") + 2:].split()
        children.setdefault(int(fields[1]), []).append((int(entry), name, fields[0]))
    found, todo = [], [pid]
    while todo:
        for child, name, state in children.get(todo.pop(), []):
            todo.append(child)
            if state != "Z":
                found.append((child, name))
    return found


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
