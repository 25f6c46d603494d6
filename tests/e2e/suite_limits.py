"""Limits by control groups: what everything in a sandbox may use together; by what an ordinary user is limited
without one; that the groups are gone in the end, whoever is killed; and how nice the command is, and how large a tmpfs.

The cases that need a group run as root, and once as an ordinary user in groups of their own which are delegated. A
machine that has the controllers neither in version 1 nor in version 2 fails them.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import stat
import subprocess

import b_util
from harness import case

NEEDED = ("memory", "pids", "cpu", "cpuset", "io")
HOG = "import sys; x = b'a' * (int(sys.argv[1]) << 20); print(len(x) >> 20)"
SMALL = ("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",
         "usr/lib64", "/lib64")
BASE = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
# How many of so many children can be had, which all live until the count is known.
FORKS = """
import os, signal, sys
children = []
for _ in range(int(sys.argv[1])):
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        signal.pause()
    children.append(pid)
print(len(children), flush=True)
for pid in children:
    os.kill(pid, 9)
    os.wait()
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "run", *words, **kw)


def folders():
    """Where groups of this process could be found: {controller: folder}, of version 1 and of version 2."""
    found = {}
    for line in read("/proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        kind, _, options = source.split()[:3]
        root, point = mount.split()[3:5]
        for row in read("/proc/self/cgroup").splitlines():
            _, controllers, path = row.split(":", 2)
            fits = (kind == "cgroup2" if not controllers else
                    kind == "cgroup" and set(controllers.split(",")) <= set(options.split(",")))
            if fits and root == "/" and os.path.isdir(point + path):
                for name in controllers.split(",") if controllers else read(f"{point}/cgroup.controllers").split():
                    found[{"blkio": "io"}.get(name, name)] = (point + path).rstrip("/")
    return found


def groups_named(name):
    """The folders of a sandbox's groups, in all hierarchies."""
    out = subprocess.run(["find", "/sys/fs/cgroup", "-type", "d", "-name", name], capture_output=True, text=True,
                         check=False).stdout
    return sorted(out.split())


def group_file(identity, *names):
    """What is in the first of these files that one of a sandbox's groups has."""
    for folder in groups_named(f"nsbox-{identity}"):
        for name in names:
            if os.path.exists(f"{folder}/{name}"):
                return read(f"{folder}/{name}").strip()
    return None


@contextlib.contextmanager
def running(ctx, *words, program=None, seconds="60"):
    """A sandbox that sleeps; gives the process and the sandbox's id."""
    path = f"{ctx.dir}/events-{secrets.token_hex(3)}"
    with open(path, "w+b", buffering=0) as events:
        process = ctx.popen(*(program or (ctx.nsbox, "run")), "--events-fd", "60", *words, "--", "sleep", seconds,
                            fds={60: events.fileno()})
        ctx.until(lambda: "started" in read(path) or process.poll() is not None, why="the start")
        ctx.true("started" in read(path), f"it has started: {process.stderr.read() if process.poll() else ''}")
        try:
            yield process, json.loads(read(path).splitlines()[0])
        finally:
            process.kill()
            process.wait()


@case("LIMITS-memory", "--memory is a limit of the whole sandbox: beyond it the kernel kills, which is said, in the events too; "
      "below it and without it nothing is different", only="root")
def memory(ctx):
    hog = ["--", "/usr/bin/python3", "-c", HOG]
    ctx.ok(run(ctx, "--memory", "150M", *hog, "20"), "20")
    ctx.ok(run(ctx, *hog, "300"), "300")
    path = ctx.write("events")
    with open(path, "r+b", buffering=0) as events:
        result = run(ctx, "--memory", "150M", "--events-fd", "9", *hog, "300", fds={9: events.fileno()})
    ctx.fails(result, 137, "the limit of 157286400 bytes of memory is reached: the command was killed")
    got = [json.loads(line) for line in read(path).splitlines()]
    ctx.true(any(event["event"] == "out-of-memory" and event["kills"] >= 1 for event in got), f"it is in the events: {got}")
    ctx.eq(got[-1]["reason"], "out-of-memory", "the reason")
    # What is in its tmpfs counts, and so does what its children have together.
    fill = ["--", "sh", "-c", "head -c 100M /dev/zero >a && head -c 100M /dev/zero >b && wc -c <b"]
    ctx.true(run(ctx, "--memory", "150M", *fill).rc != 0, "files in memory count")
    ctx.ok(run(ctx, *fill), str(100 << 20))
    two = ["--", "sh", "-c", f"for i in 1 2; do /usr/bin/python3 -c 'import time; x = b\"a\" * (90 << 20); time.sleep(1)' & "
           "p=$p\\ $!; done; for i in $p; do wait $i || echo killed; done"]
    result = run(ctx, "--memory", "150M", *two)
    ctx.true("killed" in result.out or result.rc == 137, f"two children together: {result}")
    ctx.true("of memory" in result.err, f"it is said: {result}")
    ctx.ok(run(ctx, "--memory", "400M", *two), "")
    # Under the name bwrap too, and where the start itself needs more.
    ctx.fails(ctx.bw(*BASE, "--unshare-all", "--memory", "60M", "/usr/bin/python3", "-c", HOG, "300"), 137, "of memory")
    ctx.fails(run(ctx, "--memory", "64K", "--", "true"), 137, "the limit of 65536 bytes of memory is reached")
    ctx.fails(run(ctx, "--memory", "4K", "--", "true"), None, "the limit of memory is too small")
    ctx.eq(groups_named("nsbox-*"), [], "no group is left")


@case("LIMITS-pids", "--pids limits the processes and threads of commands, as root and for an ordinary user without any "
      "control group; a nested user namespace is no way out")
def pids(ctx):
    count = ["--", "/usr/bin/python3", "-c", FORKS]
    ctx.ok(run(ctx, "--pids", "7", *count, "30"), "6")
    ctx.ok(run(ctx, "--pids", "31", *count, "30"), "30")
    ctx.ok(run(ctx, *count, "30"), "30")
    ctx.ok(ctx.bw(*BASE, "--unshare-all", "--pids", "7", "/usr/bin/python3", "-c", FORKS, "30"), "6")
    # unshare and what it runs are one process.
    inner = ["--allow-userns", "--", "unshare", "-U", "/usr/bin/python3", "-c", FORKS, "30"]
    ctx.ok(run(ctx, "--pids", "7", *inner), "6")
    ctx.ok(run(ctx, *inner), "30")
    # The command cannot raise it.
    if not ctx.root:
        raise_it = ("import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_NPROC, (99, 99))\n    print('raised')\n"
                    "except ValueError:\n    print('refused')\n")
        ctx.ok(run(ctx, "--pids", "7", "--", "/usr/bin/python3", "-c", raise_it), "refused")
        lower = raise_it.replace("99, 99", "3, 3").replace("raised", "lowered")
        ctx.ok(run(ctx, "--pids", "7", "--", "/usr/bin/python3", "-c", lower), "lowered")


@case("LIMITS-pids-together", "two sandboxes of an ordinary user have a limit each, and the user's own processes are "
      "none of theirs")
def pids_apart(ctx):
    with running(ctx, "--pids", "4"):
        ctx.ok(run(ctx, "--pids", "5", "--", "/usr/bin/python3", "-c", FORKS, "9"), "4")
        ctx.ok(ctx.run("/usr/bin/python3", "-c", FORKS, "9"), "9")


@case("LIMITS-files", "what is asked for is what the kernel's files say: memory, processes, time and set of processors, disks",
      only="root")
def files(ctx):
    words = ["--memory", "64M", "--pids", "50", "--cpus", "0.25", "--cpuset", "0", "--nice", "3"]
    # The root of a container may be on no disk; some machine has one nevertheless.
    disks = [name for name in sorted(os.listdir("/sys/block")) if read(f"/sys/block/{name}/size").strip() != "0"]
    node = f"{ctx.dir}/disk"
    os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(*map(int, read(f"/sys/block/{disks[0]}/dev").split(":"))))
    words += ["--io", f"{node}:rbps=4M,wiops=70"]
    with running(ctx, *words) as (supervisor, event):
        identity = event["sandbox"]
        ctx.eq(group_file(identity, "memory.max", "memory.limit_in_bytes"), str(64 << 20), "memory")
        ctx.eq(group_file(identity, "pids.max"), "51", "processes, and one for init")
        quota = group_file(identity, "cpu.max") or (group_file(identity, "cpu.cfs_quota_us") + " " +
                                                    group_file(identity, "cpu.cfs_period_us"))
        ctx.eq(quota, "25000 100000", "processor time")
        ctx.eq(group_file(identity, "cpuset.cpus"), "0", "processors")
        ctx.true("4194304" in group_file(identity, "io.max", "blkio.throttle.read_bps_device"), "bytes of a disk")
        ctx.true("70" in group_file(identity, "io.max", "blkio.throttle.write_iops_device"), "operations of a disk")
        inside = read(f"/proc/{event['command-pid']}/stat").rpartition(") ")[2].split()
        ctx.eq(inside[16], "3", "the nice value")
        own = read(f"/proc/{event['command-pid']}/cgroup")
        ctx.eq(len(set(re.findall(r"nsbox-\w+", own))), 1, f"the command is in them: {own}")
        ctx.true("nsbox-" in read(f"/proc/{event['child-pid']}/cgroup"), "and so is init")
        ctx.true("nsbox-" not in read(f"/proc/{supervisor.pid}/cgroup"), "but not nsbox")
    ctx.until(lambda: not groups_named(f"nsbox-{identity}"), why="the groups are removed")
    ctx.ok(run(ctx, "--cpuset", "0", "--", "nproc"), "1")


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@case("LIMITS-removed", "the groups are gone after any end: of the command, of nsbox, of init, of both at once; what goes on "
      "without nsbox keeps its limits until it ends", only="root")
def removed(ctx):
    limits = ["--memory", "64M", "--pids", "20"]
    ctx.ok(run(ctx, *limits, "--", "true"))
    ctx.fails(run(ctx, *limits, "--", "/no/such"), 127)
    ctx.fails(run(ctx, *limits, "--ro", "/no/such", "--", "true"), 125)
    ctx.eq(groups_named("nsbox-*"), [], "after ends and failures")
    for who in ("nsbox", "init", "both"):
        with running(ctx, *limits) as (process, event):
            ctx.eq(len(groups_named(f"nsbox-{event['sandbox']}")) >= 1, True, "there are groups")
            for pid in {"nsbox": [process.pid], "init": [event["child-pid"]], "both": [event["child-pid"], process.pid]}[who]:
                kill(pid)
            ctx.until(lambda: not groups_named(f"nsbox-{event['sandbox']}"), why=f"no groups when {who} is killed")
    plain = (ctx.bwrap, *BASE, "--unshare-all")
    for more in ((), ("--as-pid-1",)):
        with running(ctx, *limits, *more, program=plain, seconds="2") as (process, event):
            kill(process.pid)
            process.wait()
            ctx.true(os.path.exists(f"/proc/{event['child-pid']}"), "the sandbox goes on")
            ctx.true(groups_named(f"nsbox-{event['sandbox']}"), "and has its groups")
            ctx.until(lambda: not groups_named(f"nsbox-{event['sandbox']}"), why="no groups when it ends")
    # Without a pid namespace: what is left behind goes on as under bwrap, with its limits; or ends with the rest.
    leave = ["sh", "-c", "sleep 2 >/dev/null 2>&1 & echo $!"]
    pid = int(ctx.ok(ctx.bw("--dev-bind", "/", "/", *limits, *leave)).out)
    ctx.true("nsbox-" in read(f"/proc/{pid}/cgroup"), "what is left has its limits")
    ctx.until(lambda: not groups_named("nsbox-*"), why="no groups when it ends")
    pid = int(ctx.ok(ctx.bw("--dev-bind", "/", "/", "--kill-all", *limits, *leave)).out)
    ctx.until(lambda: not os.path.exists(f"/proc/{pid}") and not groups_named("nsbox-*"), why="all ends")


@case("LIMITS-exec", "a command that enters a sandbox is within its limits", only="root")
def entering(ctx):
    name = "limits-" + secrets.token_hex(4)
    with running(ctx, "--name", name, "--memory", "100M", "--pids", "9"):
        enter = [ctx.nsbox, "exec", name, "/usr/bin/python3", "-c"]
        ctx.fails(ctx.run(*enter, HOG, "300"), 137)
        ctx.ok(ctx.run(*enter, HOG, "20"), "20")
        # The sandbox's own command is one of the nine, and this one another.
        ctx.ok(ctx.run(*enter, FORKS, "30"), "7")


@contextlib.contextmanager
def delegated(ctx, user):
    """Groups of the test's own in each hierarchy of version 1, which belong to a user, and this process in them."""
    path = "/nsbox-test-" + secrets.token_hex(5)
    made = {}
    for name, folder in folders().items():
        if not os.path.exists(f"{folder}/cgroup.controllers") and name in NEEDED:
            os.mkdir(folder + path)
            made[folder] = folder + path
            if name == "cpuset":
                for file in ("cpuset.mems", "cpuset.cpus"):
                    with open(f"{folder}{path}/{file}", "w", encoding="utf-8") as out:
                        out.write(read(f"{folder}/{file}"))
            for file in ("", "/cgroup.procs"):
                os.chown(folder + path + file, user.pw_uid, user.pw_gid)
    try:
        yield list(made.values())
    finally:
        for path in made.values():
            until_removed(ctx, path)


def until_removed(ctx, path):
    def gone():
        with contextlib.suppress(OSError):
            os.rmdir(path)
        return not os.path.exists(path)

    ctx.until(gone, why=f"{path} can be removed")


@case("LIMITS-delegated", "an ordinary user has all limits where groups are delegated, and none is left there", only="root")
def as_delegate(ctx):
    user = b_util.test_user()
    os.chmod(ctx.dir, 0o755)
    with delegated(ctx, user) as groups:
        ctx.true(groups, "there are hierarchies of version 1")
        def inside(words, code):
            script = (
                'for g in "$@"; do echo $$ >$g/cgroup.procs; done; exec setpriv --reuid=$U --regid=$G --clear-groups '
                'env HOME=/ "$NSBOX" run $WORDS -- /usr/bin/python3 -c "$CODE" 30')
            return ctx.run("sh", "-c", script, "sh", *groups,
                           env={**os.environ, "NSBOX": ctx.nsbox, "WORDS": words, "CODE": code, "U": str(user.pw_uid),
                                "G": str(user.pw_gid)})

        ctx.ok(inside("--memory 100M --pids 9 --cpus 0.5 --cpuset 0", FORKS), "8")
        ctx.ok(inside("--memory 100M --pids 9 --cpus 0.5 --cpuset 0", "import os; print(os.sched_getaffinity(0))"), "{0}")
        ctx.fails(inside("--memory 100M", HOG.replace("int(sys.argv[1])", "300")), 137, "of memory")
        for group in groups:
            ctx.eq([entry.name for entry in os.scandir(group) if entry.is_dir()], [], "no group is left")


@case("LIMITS-strict", "what cannot be kept to is an error that says why, and changes nothing; with best-effort it is a line, "
      "and an event")
def strict(ctx):
    # No control groups can be seen there.
    hide = ["unshare", *([] if ctx.root else ["-Ur"]), "-m", "sh", "-c", 'mount -t tmpfs x /sys/fs/cgroup && exec "$@"', "sh"]
    for words, what in ((["--memory", "64M"], "memory"), (["--cpus", "1"], "processor time"),
                        (["--cpuset", "0"], "the set of processors")):
        result = ctx.run(*hide, ctx.nsbox, "run", *words, "--", "echo", "ran")
        ctx.fails(result, 125, f"Can't limit {what}")
        ctx.eq(result.out, "", "nothing was run")
        ctx.true("best-effort" in result.err, "the way out is named")
        result = ctx.ok(ctx.run(*hide, ctx.nsbox, "run", *words, "--limits", "best-effort", "--", "echo", "ran"), "ran")
        ctx.true(f"There is no limit of {what}" in result.err, f"it is said: {result}")
    if not ctx.root:
        ctx.fails(run(ctx, "--memory", "64M", "--", "true"), 125, "Can't limit memory")
    # Root's processes are not counted by user: without a group there is no limit to promise.
    if ctx.root:
        ctx.fails(ctx.run(*hide, ctx.nsbox, "run", "--pids", "4", "--", "true"), 125, "Can't limit processes")
        ctx.fails(run(ctx, "--cpuset", "4095", "--", "true"), 125, "there may be taken")
    for path, reason in (("/proc:rbps=1M", "on no disk"), (f"{ctx.dir}/none:rbps=1M", "No such file")):
        ctx.fails(run(ctx, "--io", path, "--", "true"), 125, reason)


@case("LIMITS-words", "what is no limit is refused, in both command lines")
def words_of_limits(ctx):
    for words in (["--memory", "0"], ["--memory", "x"], ["--memory", "unlimited"], ["--memory", "-1"], ["--memory", "1.5G"],
                  ["--pids", "0"], ["--pids", "many"], ["--pids", "99999999999"], ["--cpus", "0"], ["--cpus", "0.001"],
                  ["--cpus", "nan"], ["--cpus", "-1"], ["--cpus", "1e3"], ["--cpus", "2x"], ["--cpuset", ""], ["--cpuset", "a"],
                  ["--cpuset", "0\n1"], ["--io", "/"], ["--io", "/:"], ["--io", "/:rbps"], ["--io", "/:bps=1"], ["--io", "/:rbps=0"],
                  ["--io", "/:rbps=1,"], ["--limits", "none"], ["--nice", "20"], ["--nice", "-21"], ["--nice", "x"],
                  ["--tmpfs-size", "0"], ["--tmpfs-size", "big"]):
        ctx.fails(run(ctx, *words, "--", "true"), 125, words[0])
        ctx.fails(ctx.bw(*BASE, *words, "true"), 1, words[0])


@case("LIMITS-nice", "--nice is the command's; less nice than before is for who may")
def nice(ctx):
    ctx.ok(run(ctx, "--nice", "7", "--", "nice"), "7")
    ctx.ok(run(ctx, "--", "nice"), "0")
    ctx.ok(ctx.bw(*BASE, "--nice", "7", "nice"), "7")
    result = run(ctx, "--nice", "-3", "--", "nice")
    if ctx.root:
        ctx.true(result.out == "-3\n" or "Can't set the nice value" in result.err, f"root: {result}")
    else:
        ctx.fails(result, 125, "Can't set the nice value -3")


@case("LIMITS-tmpfs", "--tmpfs-size holds for every tmpfs: bytes and files; one with a size of its own keeps it")
def tmpfs(ctx):
    size = ["--", "sh", "-c", "df -B1 --output=size /tmp /home/sandbox /dev /run | tail -n +2 | tr -d ' '"]
    ctx.ok(run(ctx, "--tmpfs-size", "2M", *size), "\n".join([str(2 << 20)] * 4))
    write = ["--", "sh", "-c", "head -c 3M /dev/zero >/tmp/f; wc -c </tmp/f"]
    ctx.ok(run(ctx, "--tmpfs-size", "2M", *write), str(2 << 20))
    ctx.ok(run(ctx, *write), str(3 << 20))
    many = ["--", "/usr/bin/python3", "-c", "import os\nn = 0\ntry:\n    while n < 4000:\n        os.mknod(f'/tmp/{n}')\n"
            "        n += 1\nexcept OSError:\n    pass\nprint(n)"]
    ctx.true(2000 < int(run(ctx, "--tmpfs-size", "2M", *many).out) < 2048, "so many files")
    ctx.ok(run(ctx, *many), "4000")
    own = ["--tmpfs-size", "1M", "--size", str(4 << 20), "--tmpfs", "/own", "--tmpfs", "/other"]
    ctx.ok(ctx.bw(*SMALL, *own, "sh", "-c", "df -B1 --output=size / /own /other | tail -n +2 | tr -d ' '"), f"{1 << 20}\n{4 << 20}\n{1 << 20}")
    lower = ctx.mkdir("lower", 0o755)
    over = ["--tmpfs-size", "1M", *BASE, "--overlay-src", lower, "--tmp-overlay", lower, "sh", "-c",
            f"head -c 2M /dev/zero >{lower}/f; wc -c <{lower}/f"]
    ctx.true(int(ctx.bw(*over).out) <= 1 << 20, "the upper layer of an overlay")
    ctx.eq(ctx.bw(*over[2:]).out, f"{2 << 20}\n", "an overlay without the option")


@case("LIMITS-dry-run", "--dry-run tells the limits, and makes no group")
def dry(ctx):
    out = ctx.ok(run(ctx, "--dry-run", "--memory", "64M", "--pids", "9", "--cpus", "1.5", "--cpuset", "0", "--io", "/:rbps=1M",
                     "--nice", "4", "--tmpfs-size", "1M", "--rlimit", "nofile=9", "--", "true")).out
    for text in ("memory, 67108864 bytes", "processes, 9", "processor time, 1.5", "processors, 0", "disk of", "each tmpfs, 1048576",
                 "nofile, 9", "nice       4"):
        ctx.true(text in out, f"{text}: {out}")
    ctx.eq(groups_named("nsbox-*") if ctx.root else [], [], "no group")
