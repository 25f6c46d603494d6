"""The control group of a sandbox without a pid namespace, where nsbox may make one: what hides from
the init that adopts it is ended with the group, and no group is left, whoever is killed.

The group that the cases run in is asked for by trying. A machine that has no hierarchy of version 2
with cgroup.kill, or lets nobody make a group in it, skips them.
"""

import contextlib
import ctypes
import functools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time

import b_util
from casekit import probe
from harness import case
from stormkit import Run, Shape, Storm, family, kill, marked, reap, stat_fields

HOST = ("--dev-bind", "/", "/")
KILL_ALL = ("--die-with-parent", "--kill-all")
SHAPES = {"host": HOST, "user": (*HOST, "--unshare-user", "--uid", "5", "--gid", "6"),
          "cgroup": (*HOST, "--unshare-user", "--unshare-cgroup", "--unshare-net"),
          "no users": (*HOST, "--unshare-user", "--disable-userns")}
EVENTS = 60
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
LIBC = ctypes.CDLL(None, use_errno=True)

# Orphans its grandchild twice, in a session of its own, which adopts what descends from it: nothing
# below it can become a child of the sandbox's init while it lives.
HIDER = """
import ctypes, os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
"""


def group_of(text):
    """The path of the group of version 2 in a text of /proc/PID/cgroup."""
    found = re.search(r"^0::(/.*)$", text, re.M)
    return found[1] if found else None


def read(path):
    with open(path) as f:
        return f.read()


def folder_of(pid="self"):
    """The folder of the group of version 2 that a process is in, and why there is none."""
    path = group_of(read(f"/proc/{pid}/cgroup"))
    for line in read("/proc/self/mountinfo").splitlines() if path else ():
        mount, _, source = line.partition(" - ")
        root, point = mount.split()[3:5]
        top = "" if root == "/" else root
        if source.split()[0] == "cgroup2" and (path + "/").startswith(top + "/"):
            return (point + path[len(top):]).rstrip("/"), None
    return None, "no hierarchy of control groups of version 2 is mounted that shows our group"


def make_group(ctx):
    """A group of the test's own in the one that we are in; skips the case if there can be none."""
    folder, problem = folder_of()
    if folder is None:
        ctx.skip(problem)
    path = os.path.join(folder, "nsbox-test-" + secrets.token_hex(6))
    try:
        os.mkdir(path)
    except OSError as error:
        ctx.skip(f"no control group can be made here: {error}")
    if not os.path.exists(f"{path}/cgroup.kill"):
        os.rmdir(path)
        ctx.skip("the kernel has no cgroup.kill (Linux 5.14)")
    return path


def groups_in(path):
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())


@contextlib.contextmanager
def own_group(ctx, owner=None):
    """A group of the test's own, delegated to a user."""
    path = make_group(ctx)
    try:
        if owner is not None:
            for name in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
                os.chown(path + name, owner.pw_uid, owner.pw_gid)
        yield path
    finally:
        with open(f"{path}/cgroup.kill", "w") as f:
            f.write("1")
        ctx.until(lambda: "populated 0" in read(f"{path}/cgroup.events"), why="an empty group")
        for name in groups_in(path):
            os.rmdir(f"{path}/{name}")
        os.rmdir(path)


def identities():
    """Who the sandboxes belong to: root, and an ordinary user in a group that is delegated."""
    return (("root", None), ("user", b_util.test_user()))


def in_group(ctx, owner, function):
    """Runs a function in a child that is in a new group and is that user, and that adopts what is
    orphaned below it. The function is given the group's path; what it raises is raised here."""
    with own_group(ctx, owner) as path:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(read_end)
                with open(f"{path}/cgroup.procs", "w") as f:
                    f.write("0")
                if owner is not None:
                    os.setgroups([])
                    os.setresgid(*[owner.pw_gid] * 3)
                    os.setresuid(*[owner.pw_uid] * 3)
                    LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
                LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                ctx.root = owner is None
                function(path)
                code = 0
            except BaseException as error:  # noqa: B902
                os.write(write_end, f"{type(error).__name__}: {error}".encode()[:4000])
            os._exit(code)
        os.close(write_end)
        text = b_util.read_until(read_end, seconds=250).decode("utf-8", "replace")
        os.close(read_end)
        _, status = os.waitpid(child, 0)
        ctx.eq((status, text), (0, ""), f"as {owner.pw_name if owner else 'root'}")


def for_each(ctx, function):
    """The same as root and as an ordinary user; a folder that both may write to is given too."""
    for name, owner in identities():
        folder = ctx.mkdir(name)
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        os.chmod(ctx.dir, 0o755)
        in_group(ctx, owner, functools.partial(function, ctx, folder, name))


def nsbox(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, *words, **kw)


def no_group_is_left(ctx, path, why):
    ctx.until(lambda: not groups_in(path), why=f"{why}: no group is left: {groups_in(path)}")


# -- which sandboxes have one --------------------------------------------------------------------

def check_group(ctx, folder, who, path):
    ours = group_of(read("/proc/self/cgroup"))
    for name, shape in SHAPES.items():
        for options in (("--kill-all",), ("--timeout", "60"), ("--cpu-time", "60"),
                        ("--name", "group-" + who), KILL_ALL):
            os.environ["XDG_RUNTIME_DIR"] = folder
            events = os.memfd_create("events")
            result = ctx.ok(nsbox(ctx, "--events-fd", str(EVENTS), *shape, *options, "cat",
                                  "/proc/self/cgroup", fds={EVENTS: events}))
            event = json.loads(os.pread(events, 65536, 0).splitlines()[0])
            os.close(events)
            what = f"{name} {options}: {result}: {event}"
            inside = "/nsbox-" + event["sandbox"]
            ctx.eq(group_of(result.out), inside if name == "cgroup" else ours + inside, what)
            ctx.eq(event["control-group"], path + inside, what)
            no_group_is_left(ctx, path, what)


@case("G-which", "nsbox's own options give a sandbox without a pid namespace a control group, which "
      "the started event tells", only="root", timeout=180)
def has_group(ctx):
    for_each(ctx, check_group)


@case("G-here", "it is removed from the group that the tests are in too, whose owner may not write to "
      "it by its mode, whoever is killed", only="root", timeout=120)
def here(ctx):
    os.rmdir(make_group(ctx))
    for shape in (HOST, SHAPES["user"]):
        for how in ("end", "supervisor", "init", "both", "guard"):
            events = os.memfd_create("events")
            proc = ctx.popen(ctx.nsbox, "--events-fd", str(EVENTS), *shape, *KILL_ALL, "sh", "-c",
                             "sleep 60 & read line", stdin=subprocess.PIPE, fds={EVENTS: events})
            ctx.until(lambda: os.pread(events, 65536, 0).endswith(b"\n"), why="the started event")
            path = json.loads(os.pread(events, 65536, 0).splitlines()[0])["control-group"]
            os.close(events)
            init, guard = b_util.children(proc.pid)[:2]
            ctx.until(lambda: len(read(f"{path}/cgroup.procs").split()) == 2, why="both processes")
            ctx.true(str(init) not in read(f"{path}/cgroup.procs").split(), "init is outside")
            for name, pid in (("supervisor", proc.pid), ("init", init), ("guard", guard)):
                if how in (name, "both") and (how, name) != ("both", "guard"):
                    kill(pid)
            proc.stdin.close()
            b_util.wait(proc, 20)
            ctx.until(lambda: not reap() and not os.path.exists(path), why=f"{shape} {how}: the end")


def check_none(ctx, folder, who, path):
    ours = group_of(read("/proc/self/cgroup"))
    for options in ((), ("--die-with-parent",), ("--unshare-pid", *KILL_ALL),
                    ("--unshare-user", "--die-with-parent"), ("--unshare-net",)):
        events = os.memfd_create("events")
        result = ctx.ok(nsbox(ctx, "--events-fd", str(EVENTS), *HOST, *options, "sh", "-c",
                              f"cat /proc/self/cgroup; ls -d {path}/nsbox-* 2>&-; true",
                              fds={EVENTS: events}))
        event = json.loads(os.pread(events, 65536, 0).splitlines()[0])
        os.close(events)
        ctx.eq(group_of(result.out), ours, f"{options}: {result}")
        ctx.true("/nsbox-" not in result.out.replace(ours, ""), f"{options}: {result}")
        ctx.true(event["event"] == "started" and "control-group" not in event, f"{event}")
    # The control: here one could be had.
    result = ctx.ok(nsbox(ctx, *HOST, "--kill-all", "cat", "/proc/self/cgroup"))
    ctx.true(group_of(result.out) != ours, f"the control: {result}")


@case("G-bwrap", "bwrap's command line, and a pid namespace, leave the control group alone",
      only="root", timeout=120)
def has_none(ctx):
    for_each(ctx, check_none)


@case("G-undelegated", "where no group may be made the sandbox is as without, and says so",
      only="root", timeout=120)
def undelegated(ctx):
    with own_group(ctx) as path:
        for prefix, wanted in ((b_util.as_user(), False), ((), True)):
            events = os.memfd_create("events")
            # The group is the same, and its owner is root.
            result = ctx.ok(ctx.run("sh", "-c", f'echo 0 >{path}/cgroup.procs && exec "$@"', "sh",
                                    *prefix, ctx.nsbox, "--events-fd", str(EVENTS), *HOST, *KILL_ALL,
                                    "sh", "-c", "sleep 30 >&- 2>&- & cat /proc/self/cgroup",
                                    fds={EVENTS: events}))
            event = json.loads(os.pread(events, 65536, 0).splitlines()[0])
            os.close(events)
            has_one = "/nsbox-test-" in result.out and "/nsbox-" in result.out.split("-test-")[1]
            ctx.eq((has_one, "control-group" in event), (wanted, wanted), f"{result}: {event}")
            no_group_is_left(ctx, path, f"{prefix}")


# -- nothing survives ----------------------------------------------------------------------------

def hide(ctx, marker, *words):
    return (sys.executable, "-c", HIDER, probe(ctx, "p_tree"), marker, *words)


def in_sandbox(path):
    """The processes in the groups that nsbox has made in a group."""
    found = []
    for name in groups_in(path):
        with contextlib.suppress(OSError):
            found += read(f"{path}/{name}/cgroup.procs").split()
    return found


# A command that goes on beside what it has started.
STAY = ("sh", "-c", '"$@" & exec sleep 60', "sh")


def check_hiders(ctx, folder, who, path):
    """One that adopts its own, and in it orphans that are replaced all the time."""
    os.environ["XDG_RUNTIME_DIR"] = folder
    for row, (name, shape) in enumerate(SHAPES.items()):
        for column, how in enumerate(("end", "timeout", "kill", "supervisor", "init", "both")):
            # Every shape ends in every way, and either user meets every shape and every way.
            if (row + column) % 2 != (who == "root"):
                continue
            marker = "hider-" + secrets.token_hex(6)
            words = hide(ctx, marker, "chain", "sibling", "stopped")
            options = (*KILL_ALL, "--name", marker)
            if how == "timeout":
                options += ("--timeout", "2", "--kill-after", "0.1")
            pipe, write = os.pipe()
            proc = ctx.popen(ctx.nsbox, *shape, *options, "sh", "-c",
                             '"$@" & read line', "sh", *words, stdin=pipe)
            os.close(pipe)
            what = f"{who} {name} {how}"
            ctx.until(lambda: len(marked(marker)) > 5 and len(in_sandbox(path)) > 5,
                      why=f"{what}: the family: {marked(marker)} {in_sandbox(path)}")
            init = b_util.children(proc.pid)[0]
            if how == "end":
                os.write(write, b"\n")
            elif how == "kill":
                ctx.ok(ctx.run(ctx.nsbox, "kill", marker))
            if how in ("supervisor", "both"):
                kill(proc.pid)
            if how in ("init", "both"):
                kill(init)
            b_util.wait(proc, 20)
            os.close(write)
            ctx.until(lambda: not reap() and not marked(marker), 20,
                      f"{what}: the end of everything: {marked(marker)}")
            no_group_is_left(ctx, path, what)


@case("G-hider", "what adopts its own orphans in a session of its own, and forks all the time, ends "
      "with the sandbox, however that ends", only="root", timeout=300)
def hiders(ctx):
    for_each(ctx, check_hiders)


@case("G-hider", "control: where there is no group, the hider is in the one that nsbox is in, and is "
      "found there", only="root", timeout=60)
def control_hider(ctx):
    marker = "hider-" + secrets.token_hex(6)
    proc = ctx.popen(*hide(ctx, marker))
    ctx.until(lambda: len(marked(marker)) > 3, why="the family")
    b_util.wait(proc, 20)
    hidden = [pid for pid, text in marked(marker) if "-c" in text]
    ctx.true(not hidden or all((stat_fields(pid) or (0, 0, 0))[2] for pid in hidden), f"{hidden}")
    ctx.true(len(marked(marker)) > 3, "the hider goes on after the process that was started")
    ctx.eq({group_of(read(f"/proc/{pid}/cgroup")) for pid, _ in marked(marker)},
           {group_of(read("/proc/self/cgroup"))}, "their group")
    while reap():
        for pid, _, _ in family(os.getpid()):
            kill(pid)


def check_stopped(ctx, folder, who, path):
    """Init is stopped, as the command could stop it: it can do nothing more."""
    for end in (signal.SIGKILL, signal.SIGTERM):
        marker = "stopped-" + secrets.token_hex(6)
        proc = ctx.popen(ctx.nsbox, *HOST, *KILL_ALL, *STAY, *hide(ctx, marker))
        ctx.until(lambda: len(marked(marker)) > 4 and len(in_sandbox(path)) > 3, why="the family")
        init = b_util.children(proc.pid)[0]
        os.kill(init, signal.SIGSTOP)
        ctx.until(lambda: (stat_fields(init) or " Z")[1] in "TZ", why="a stopped init")
        kill(proc.pid, end)
        ctx.until(lambda: not in_sandbox(path) and not marked(marker),
                  why=f"{who} {end}: the end of the family")
        # The control: it is not init that has done it.
        ctx.true((stat_fields(init) or " Z")[1] == "T", f"init is still stopped: {who} {end}")
        kill(init)
        b_util.wait(proc, 20)
        ctx.until(lambda: not reap(), why=f"{who} {end}: the end of everything")
        no_group_is_left(ctx, path, f"{who} {end}")


@case("G-stopped", "where init has been stopped, the guard ends what is in the group with the "
      "supervisor", only="root", timeout=120)
def stopped_init(ctx):
    for_each(ctx, check_stopped)


def check_nested(ctx, folder, who, path):
    """The outer group is removed with those that the sandbox itself has made."""
    for how in ("supervisor", "init"):
        proc = ctx.popen(ctx.nsbox, *HOST, *KILL_ALL, ctx.nsbox, *HOST, "--kill-all", "sleep", "60")
        ctx.until(lambda: groups_in(path) and groups_in(f"{path}/{groups_in(path)[0]}"),
                  why="a group in a group")
        kill(proc.pid if how == "supervisor" else b_util.children(proc.pid)[0])
        b_util.wait(proc, 20)
        ctx.until(lambda: not reap(), why=f"{who} {how}: the end of everything")
        no_group_is_left(ctx, path, f"{who} {how}")


@case("G-nested", "a sandbox in a sandbox ends with it, and so do its groups", only="root",
      timeout=120)
def nested(ctx):
    for_each(ctx, check_nested)


def check_failed(ctx, folder, who, path):
    for options, code in ((("/nowhere/at/all",), 127), (("--bind", "/nowhere", "/x", "true"), 125),
                          (("--chdir", "/nowhere", "true"), 125)):
        ctx.fails(nsbox(ctx, "--distinct-status", *HOST, "--kill-all", *options), rc=code)
        no_group_is_left(ctx, path, f"{options}")
    ctx.ok(nsbox(ctx, "--distinct-status", *HOST, "--kill-all", "true"))


@case("G-failed", "a start that fails leaves no group", only="root")
def failed(ctx):
    for_each(ctx, check_failed)


def check_exec(ctx, folder, who, path):
    os.environ["XDG_RUNTIME_DIR"] = folder
    box = ctx.popen(ctx.nsbox, *HOST, *KILL_ALL, "--name", "box", "sleep", "60")
    ctx.until(lambda: in_sandbox(path), why="the sandbox")
    ctx.until(lambda: os.path.exists(f"{folder}/nsbox/box.sock"), why="its socket")
    inside = ctx.ok(nsbox(ctx, "exec", "box", "--", "cat", "/proc/self/cgroup")).out
    ctx.eq(group_of(inside), f"{group_of(read('/proc/self/cgroup'))}/{groups_in(path)[0]}", "exec")
    marker = "exec-" + secrets.token_hex(6)
    other = ctx.popen(ctx.nsbox, "exec", "box", "--", *STAY, *hide(ctx, marker))
    ctx.until(lambda: len(marked(marker)) > 4 and len(in_sandbox(path)) > 4, why="the family")
    kill(b_util.children(box.pid)[0])
    b_util.wait(box, 20)
    b_util.wait(other, 20)
    ctx.until(lambda: not marked(marker) and not reap(), why="the end of everything")
    no_group_is_left(ctx, path, who)


@case("G-exec", "what enters a sandbox is in its group, and ends with it", only="root")
def execute(ctx):
    for_each(ctx, check_exec)


# -- storms --------------------------------------------------------------------------------------

SHAPE = Shape("group", *HOST, pid=False)
USER = Shape("group, user", *SHAPES["user"], pid=False)


def check_storm(victims, rounds, ctx, folder, who, path):
    os.chdir(folder)
    ctx.dir = folder
    storm, seen = Storm(ctx), 0
    for shape in (SHAPE, USER):
        for _ in storm.rounds(shape, rounds):
            run = Run(storm, shape, KILL_ALL, ("sibling", "stopped", "chain"))
            children = []
            if "init" in victims:
                children = [run.first_child()]
            time.sleep(storm.delay())
            run.look()
            seen += bool(groups_in(path))
            for child in children:
                if child is not None and not run.is_over():
                    kill(child)
            if "supervisor" in victims:
                run.was_over = not kill(run.top) or run.is_over()
            storm.count(run)
            run.check(f"{who} {shape.name}: {victims}")
            left = groups_in(path)
            if left:
                storm.problems.append(f"{who} {shape.name}: {victims}: a group is left: {left}")
    storm.finish(2 * rounds, both=False)
    ctx.true(storm.late > 0, "some were killed when the command ran")
    ctx.true(seen > rounds // 4, f"some were killed when there was a group: {seen}")


def storm_of(*victims):
    def run(ctx):
        for_each(ctx, functools.partial(check_storm, victims, 20))

    return run


case("G-storm", "the supervisor of a sandbox with a group is killed at a random moment", only="root",
     timeout=280)(storm_of("supervisor"))
case("G-storm", "the init of a sandbox with a group is killed at a random moment", only="root",
     timeout=280)(storm_of("init"))
case("G-storm", "both are killed at a random moment", only="root",
     timeout=280)(storm_of("init", "supervisor"))
