"""Kills at random moments, and a detector of everything that a sandbox could leave behind.

Nothing here registers a case. The process of a case is a subreaper (run.py makes it one), so
every process that loses its parent becomes its child: once waitpid() has no child left to offer,
not one descendant exists, alive or dead, whatever it did to hide. A search for the run's marker in
all argument lists, and for processes in the namespaces that were seen while it lived, says the
same by other means.
"""

import ctypes
import os
import random
import re
import select
import signal
import time

import b_util
from casekit import probe

LIMIT = 1.0       # Seconds after a kill within which everything is gone.
PATIENCE = 3.0    # How long a failed run is watched, to tell what is late from what stays.
ENOUGH = 3        # Failed runs after which a storm ends; each of them takes its time.
PR_SET_DUMPABLE = 4
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000


def reap(statuses=None):
    """Collects whatever has ended. False when there is no child at all, alive or dead."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if statuses is not None:
            statuses[pid] = os.waitstatus_to_exitcode(status)


def stat_fields(pid):
    """(name, state, parent) of a process, or None."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return text[text.index("(") + 1:text.rindex(")")], fields[0], int(fields[1])


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def family(top):
    """Every process below `top`, dead ones that nobody has waited for included."""
    below = {}
    for pid in pids():
        fields = stat_fields(pid)
        if fields:
            below.setdefault(fields[2], []).append((pid, fields[0], fields[1]))
    found, todo = [], [top]
    while todo:
        for entry in below.get(todo.pop(), []):
            found.append(entry)
            todo.append(entry[0])
    return found


def marked(marker):
    """Processes anywhere on the machine with the marker in their argument list."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                text = f.read()
        except OSError:
            continue
        if marker.encode() in text and pid != os.getpid():
            found.append((pid, text.replace(b"\0", b" ").decode("utf-8", "replace")[:80]))
    return found


def namespaces_of(pid):
    """The mount and pid namespace of a process; empty where we may not look."""
    try:
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "pid")}
    except OSError:
        return set()


class Namespaces:
    """Namespaces of a sandbox. They are held open, because the kernel would give the number of one
    that is gone to the next that is made, which may be anybody's."""

    foreign = set()  # Those that were joined have other inhabitants.

    def __init__(self):
        self.held = {}

    def note(self, pids_of_family):
        own = namespaces_of("self")
        for pid in pids_of_family:
            for kind in ("mnt", "pid"):
                try:
                    fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                except OSError:
                    continue
                name = f"{kind}:[{os.fstat(fd).st_ino}]"
                if name in own or name in self.held or name in self.foreign:
                    os.close(fd)
                else:
                    self.held[name] = fd

    def inhabitants(self):
        """Processes anywhere on the machine that live in one of these."""
        names = set(self.held)
        return [pid for pid in pids() if namespaces_of(pid) & names] if names else []

    def close(self):
        for fd in self.held.values():
            os.close(fd)
        self.held = {}


def spawn(argv, stdout, stderr, keep=()):
    """Starts a program without running any code of ours in the child."""
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
               (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in keep]
    return os.posix_spawn(argv[0], [os.fspath(a) for a in argv], os.environ, file_actions=actions)


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def main_has_begun(pid):
    """Whether a program that p_caller started runs its own code. It starts with SIGCHLD ignored,
    and nsbox sets that back after it has noted who its parent is: before that, it is the kernel's
    exec and the dynamic loader that run, to which no program can add a watch for its parent."""
    try:
        with open(f"/proc/{pid}/status") as f:
            text = f.read()
    except OSError:
        return True
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)", text, re.M)
    return ignored is None or int(ignored[1], 16) >> (signal.SIGCHLD - 1) & 1 == 0


class Shape:
    """A kind of sandbox: its name, its options, and whether it has a pid namespace."""

    def __init__(self, name, *options, pid=True, words=()):
        self.name, self.options, self.pid, self.words = name, options, pid, words


BASE = ("--dev-bind", "/", "/")
PID = Shape("pid", *BASE, "--unshare-pid")
ALL = Shape("all", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp")
PID_1 = Shape("as pid 1", *BASE, "--unshare-pid", "--as-pid-1", words=("tame",))
HOST = Shape("no pid", *BASE, pid=False)
HOST_USER = Shape("no pid, user", "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "--dev",
                  "/dev", "--uid", "5", "--gid", "6", pid=False)


class Storm:
    """Runs sandboxes and kills one of their processes each time. `watch` keeps its own account of
    what happened, so that a case can say that its kills came early as well as late."""

    def __init__(self, ctx, seed=None):
        self.ctx = ctx
        self.seed = random.randrange(1 << 32) if seed is None else seed
        self.random = random.Random(self.seed)
        self.tree = probe(ctx, "p_tree")
        self.caller = probe(ctx, "p_caller")
        self.log = os.open(os.path.join(ctx.dir, "stderr"), os.O_RDWR | os.O_CREAT | os.O_APPEND,
                           0o600)
        self.span = 0.012
        self.reach, self.turn = 1.0, 0
        self.kills = self.early = self.late = self.over = self.before_main = 0
        self.problems = []
        # After a change of identity the kernel keeps our own /proc from us otherwise.
        LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        ctx.true(not reap(), "the case begins without children")

    def rounds(self, shape, count):
        """The numbers of the rounds with one shape, after a look at how long a start takes."""
        self.calibrate(shape)
        for number in range(count):
            if len(self.problems) >= ENOUGH:
                return
            yield number

    def calibrate(self, shape):
        """Finds out how long a start takes here, so that the kills spread over the whole of it."""
        longest, failed = 0.0, len(self.problems)
        for _ in range(3):
            begin = time.monotonic()
            run = Run(self, shape, ("--die-with-parent",), ())
            ready = run.is_ready(10)
            longest = max(longest, time.monotonic() - begin)
            kill(run.top)
            self.ctx.true(ready, f"{shape.name}: the command does not start: {self.errors()}")
            run.check(f"{shape.name}: supervisor, calibration")
            if len(self.problems) > failed:
                break
        self.span = max(0.012, 1.6 * longest)

    def errors(self):
        size = os.fstat(self.log).st_size
        return os.pread(self.log, 2000, max(0, size - 2000)).decode("utf-8", "replace")

    def delay(self):
        """Every other one is drawn nearer to the beginning, as long as kills come late: the look at how long a
        start takes is of no use where the machine was busy just then."""
        self.turn += 1
        return self.random.uniform(0, self.span * (self.reach if self.turn % 2 else 1.0))

    def count(self, run):
        self.kills += 1
        if run.was_over:
            self.over += 1
        elif run.is_ready():
            self.late += 1
            self.reach = max(self.reach / 2, 1 / 64)
        else:
            self.early += 1
            self.reach = min(self.reach * 2, 1.0)

    def finish(self, least, both=True):
        """Judges the storm as a whole."""
        summary = (f"{self.kills} kills ({self.early} during the start, {self.late} later, "
                   f"{self.over} after the end; {self.before_main} more before main), seed "
                   f"{self.seed}")
        os.close(self.log)
        if self.problems:
            raise AssertionError(f"{len(self.problems)} runs left something, {summary}:\n" +
                                 "\n".join(self.problems[:12]))
        self.ctx.true(self.kills >= least, f"too few kills: {summary}")
        if both:
            self.ctx.true(self.early >= least // 20, f"too few early kills: {summary}")
            self.ctx.true(self.late >= least // 20, f"too few late kills: {summary}")

    # -- the victims -----------------------------------------------------------------------

    def supervisor(self, shape, options=("--die-with-parent",), words=()):
        run = Run(self, shape, options, words)
        time.sleep(self.delay())
        run.look()
        run.was_over = not kill(run.top) or run.is_over()
        self.count(run)
        run.check(f"{shape.name}: supervisor")
        return run

    def init(self, shape, options=("--die-with-parent",), words=(), code=137):
        """The process that the supervisor has made: it sets up the sandbox, then is its init."""
        run = Run(self, shape, options, words)
        child = run.first_child()
        if child is None:
            run.was_over = True
        else:
            time.sleep(self.delay())
            run.look()
            # Its number cannot belong to another process: while the supervisor lives it has not
            # been reaped, and the family has no other member that could have taken it.
            run.was_over = run.is_over() or not kill(child)
        self.count(run)
        run.check(f"{shape.name}: init")
        got = run.statuses.get(run.top)
        if not run.was_over and code is not None and got not in (code, None):
            self.problems.append(f"{shape.name}: init killed, but the status is {got}")
        return run

    def caller_of(self, shape, options=("--die-with-parent",), words=(), freeze=False):
        """The process that started the supervisor. With `freeze` the supervisor is stopped while
        its caller dies, which makes it certain whether its own code had begun by then; without,
        only a look just before the kill tells, and what was not seen to have begun is not held
        against it."""
        numbers, number = os.pipe()
        run = Run(self, shape, options, words, (self.caller, "60"), ((60, number),))
        os.close(number)
        text = b""
        while not text.endswith(b"\n"):
            chunk = os.read(numbers, 16)
            if not chunk:
                raise AssertionError(f"the caller has not started the program: {self.errors()}")
            text += chunk
        os.close(numbers)
        program = int(text)
        time.sleep(self.delay())
        if freeze and kill(program, signal.SIGSTOP):
            end = time.monotonic() + 5
            while (stat_fields(program) or "?Z")[1] not in "TtZX" and time.monotonic() < end:
                time.sleep(0.0005)
        begun = main_has_begun(program)
        run.was_over = not kill(run.top)
        if freeze:
            end = time.monotonic() + 5
            while run.top not in run.statuses and time.monotonic() < end:
                reap(run.statuses)
            kill(program, signal.SIGCONT)
        if not begun and not run.gone(0.3):
            self.before_main += 1
            run.clean_up()
            return run
        self.count(run)
        run.check(f"{shape.name}: caller" + (", frozen" if freeze else ""))
        return run


class Run:
    """One sandbox with a family of processes in it that would like to stay."""

    def __init__(self, storm, shape, options, words, prefix=(), keep=()):
        self.storm, self.was_over, self.said = storm, False, b""
        self.marker = f"storm-{os.getpid()}-{storm.random.randrange(1 << 48):012x}"
        self.statuses, self.namespaces = {}, Namespaces()
        self.output, write = os.pipe()
        argv = [*prefix, storm.ctx.bwrap, *shape.options, *options, storm.tree, self.marker,
                *shape.words, *words]
        self.top = spawn(argv, write, storm.log, keep)
        os.close(write)

    def is_ready(self, seconds=0.0):
        end = time.monotonic() + seconds
        while b"ready\n" not in self.said:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.output], [], [], left)[0]:
                return False
            chunk = os.read(self.output, 64)
            if not chunk:
                return False
            self.said += chunk
        return True

    def is_over(self):
        """Whether the process that we started had ended by itself."""
        fields = stat_fields(self.top)
        return fields is None or fields[1] in "ZX" and not self.killed()

    def killed(self):
        """Whether the dead process that we have not waited for was ended by a signal."""
        info = os.waitid(os.P_PID, self.top, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return info is not None and info.si_code != os.CLD_EXITED

    def first_child(self):
        end = time.monotonic() + 5
        while time.monotonic() < end:
            found = b_util.children(self.top)
            if found:
                return found[0]
            if self.is_over():
                return None
        raise AssertionError(f"no child within 5 s: {self.storm.errors()}")

    def look(self):
        """Notes the namespaces of the family in some runs; looking takes time, and the other runs
        are to be killed without delay."""
        if self.storm.random.random() < 0.2:
            self.namespaces.note(pid for pid, _, _ in family(self.top))

    def gone(self, seconds):
        end = time.monotonic() + seconds
        while reap(self.statuses):
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def left(self):
        """What is there of this run, in words; empty when nothing is."""
        found = [f"{name} ({state})" for _, name, state in family(os.getpid())]
        found += ["marked " + text.split(" ")[0] for _, text in marked(self.marker)]
        found += ["a process in a namespace of the sandbox" for _ in
                  self.namespaces.inhabitants()]
        found = [f"{found.count(text)} x {text}" for text in dict.fromkeys(found)]
        if select.select([self.output], [], [], 0)[0]:
            while chunk := os.read(self.output, 4096):
                self.said += chunk
                if not select.select([self.output], [], [], 0)[0]:
                    found.append("its standard output is still open")
                    break
        else:
            found.append("its standard output is still open")
        return found

    def check(self, what):
        """Fails the storm, later, when anything is left after the time limit."""
        began = time.monotonic()
        is_gone = self.gone(LIMIT)
        found = self.left()
        # Orphans in a namespace that was joined are no children of this process.
        while is_gone and found and time.monotonic() - began < LIMIT:
            time.sleep(0.02)
            found = self.left()
        if not is_gone and not found:
            found = ["something that went just now"]
        if found:
            late = self.gone(PATIENCE)
            when = f"gone after {time.monotonic() - began:.1f} s" if late else "stays"
            self.storm.problems.append(f"{what} ({self.moment()}): {when}: {', '.join(found)}")
        self.clean_up()

    def moment(self):
        return "after the end" if self.was_over else "later" if self.is_ready() else "at the start"

    def clean_up(self):
        """Ends whatever is left: one by one, by number, and all of it descends from this case."""
        end = time.monotonic() + 10
        while not self.gone(0) and time.monotonic() < end:
            for pid, _, state in family(os.getpid()):
                if state != "Z":
                    kill(pid)
            time.sleep(0.002)
        self.namespaces.close()
        if self.output is not None:
            os.close(self.output)
            self.output = None


# -- a host of one's own -------------------------------------------------------------------------

def _unshare(flags):
    if LIBC.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _write(path, text):
    with open(path, "w") as f:
        f.write(text)


class QuietHost:
    """Moves this case into mount and network namespaces of its own, in which nobody else works:
    all places for temporary files are fresh and empty, so that whatever appears in them, in the
    mount table or among the network devices is a left-over."""

    PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run")

    def __init__(self, ctx):
        uid, gid = os.getuid(), os.getgid()
        LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # Or the id maps would not be ours to write.
        if ctx.root:
            _unshare(CLONE_NEWNS | CLONE_NEWNET)
        else:
            _unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        b_util._mount(None, "/", None, b_util.MS_REC | b_util.MS_PRIVATE)
        needed = {ctx.dir, os.path.dirname(ctx.bwrap), ctx.probe_dir,
                  os.path.dirname(os.path.realpath(ctx.bwrap))}
        opened = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in sorted(needed)]
        for place in self.PLACES:
            b_util._mount("tmpfs", place, "tmpfs", 0, "mode=1777")
        for path, fd in opened:
            if path.startswith(tuple(place + "/" for place in self.PLACES)):
                os.makedirs(path, exist_ok=True)
                b_util._mount(f"/proc/self/fd/{fd}", path, None, 4096 | b_util.MS_REC)
            os.close(fd)
        # Shared mounts: what a sandbox mounted without care would come back to us.
        b_util._mount(None, "/", None, b_util.MS_REC | b_util.MS_SHARED)
        os.chdir(ctx.dir)
        self.own = ctx.mkdir("own")
        for name in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME"):
            os.environ[name] = self.own
        self.before = self.state()

    def state(self):
        with open("/proc/self/mountinfo", errors="surrogateescape") as f:
            mounts = [("mount", line.split(" ")[4]) for line in f]
        with open("/proc/self/net/dev") as f:
            devices = [("device", line.split(":")[0].strip()) for line in f if ":" in line]
        files = []
        for place in self.PLACES:
            for folder, dirs, names in os.walk(place):
                files += [("file", os.path.join(folder, name)) for name in dirs + names]
        descriptors = [("descriptor", name) for name in os.listdir("/proc/self/fd")]
        return sorted(mounts + devices + files) + descriptors

    def changes(self, ignore=()):
        """What is there now and was not at first, or the other way round."""
        now = self.state()
        new = [entry for entry in now if entry not in self.before or
               now.count(entry) > self.before.count(entry)]
        gone = [entry for entry in self.before if entry not in now]
        return [entry for entry in new + gone if entry[1] not in ignore]
