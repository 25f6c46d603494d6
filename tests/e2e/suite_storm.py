"""Nothing survives: SIGKILL at random moments to one process of a sandbox, and then, within a
second, not one process, mount, network device or temporary file of it is left."""

import os
import re
import signal
import time

import b_util
import casekit
from casekit import needs
from harness import case
from stormkit import (ALL, BASE, ENOUGH, HOST, HOST_USER, PID, PID_1, Namespaces, QuietHost, Run,
                      Shape, Storm, family, kill, main_has_begun, marked, reap, spawn,
                      stat_fields)

DIE = ("--die-with-parent",)
KILL_ALL = ("--die-with-parent", "--kill-all")


def end_all(ctx):
    """Ends whatever descends from this case, also what it makes meanwhile."""
    def step():
        for pid, _, _ in family(os.getpid()):
            kill(pid)
        return not reap()

    ctx.until(step, why="the end of everything")


# -- controls: the detector sees what there is to see --------------------------------------------

@case("storm", "control: a family that is left on purpose is seen, each member of it, by its "
      "parent and by its marker")
def control_survivors(ctx):
    storm = Storm(ctx)
    marker = "control-" + os.urandom(6).hex()
    read, write = os.pipe()
    leader = spawn((storm.tree, marker, "sibling", "stopped"), write, storm.log)
    os.close(write)
    ctx.eq(b_util.read_until(read, b"ready\n"), b"ready\n", "the family is there")
    kill(leader)
    ctx.until(lambda: (stat_fields(leader) or " Z")[1] == "Z", why="the leader's death")
    # The dead leader counts as well: nobody has waited for it yet.
    everybody = family(os.getpid())
    ctx.eq(sorted(state for _, _, state in everybody)[:3], ["S", "S", "S"], f"{everybody}")
    ctx.eq(len(everybody), 6, f"the child, the session, the orphan, the sibling, the stopped one "
           f"and the dead leader: {everybody}")
    ctx.eq(sum(state == "Z" for _, _, state in everybody), 1, f"dead ones: {everybody}")
    ctx.eq(len(marked(marker)), 5, f"marked ones: {marked(marker)}")
    ctx.true(not b_util.at_end(read), "the pipe is open")
    ctx.true(reap(), "there are children")
    end_all(ctx)
    ctx.eq(marked(marker), [], "marked ones after the end")
    ctx.true(b_util.at_end(read), "the pipe is at its end")


@case("storm", "control: without --die-with-parent the sandbox goes on after the supervisor's "
      "death, and that is what the detector reports")
def control_goes_on(ctx):
    for shape in (PID, ALL, HOST, PID_1):
        storm = Storm(ctx)
        run = Run(storm, shape, (), ())
        ctx.true(run.is_ready(10), f"{shape.name}: the command runs: {storm.errors()}")
        if ctx.root:
            # Another way to see them that does not rest on their parents.
            run.namespaces.note(pid for pid, _, _ in family(run.top))
            ctx.true(run.namespaces.held, f"{shape.name}: the sandbox has namespaces of its own")
        kill(run.top)
        ctx.true(not run.gone(0.5), f"{shape.name}: the sandbox goes on")
        found = "; ".join(run.left())
        ctx.true("marked" in found, f"{shape.name}: seen by the marker: {found}")
        ctx.true("p_tree (S)" in found, f"{shape.name}: seen by its parent: {found}")
        ctx.true("output is still open" in found, f"{shape.name}: seen by its output: {found}")
        if ctx.root:
            ctx.true("in a namespace" in found, f"{shape.name}: seen by its namespaces: {found}")
        run.clean_up()
        ctx.true(not reap(), f"{shape.name}: nothing is left after the cleaning")
        ctx.eq(marked(run.marker), [], f"{shape.name}: the marker is gone")
        os.close(storm.log)


@case("storm", "control: a mount, a file in any place for temporary files and a device are seen")
def control_quiet_host(ctx):
    host = QuietHost(ctx)
    ctx.eq(host.changes(), [], "nothing has changed so far")
    for place in (*host.PLACES, host.own):
        path = os.path.join(place, "left-over")
        with open(path, "w"):
            pass
        ctx.eq(host.changes(), [("file", path)], f"a file in {place}")
        os.unlink(path)
    b_util._mount("tmpfs", host.own, "tmpfs", 0)
    ctx.eq(host.changes(), [("mount", host.own)], "a mount")
    b_util._call("umount2", os.fsencode(host.own), b_util.MNT_DETACH)
    ctx.eq(host.changes(), [], "nothing is left of the control")


# -- storms --------------------------------------------------------------------------------------

@case("P02 storm", "the supervisor is killed as soon as it has a child: no survivor")
def storm_at_first_child(ctx):
    storm = Storm(ctx)
    shapes = (PID, HOST, ALL, PID_1)
    for number in range(36):
        shape = shapes[number % len(shapes)]
        if len(storm.problems) >= ENOUGH:
            break
        run = Run(storm, shape, DIE, ())
        run.first_child()
        kill(run.top)
        storm.count(run)
        run.check(f"{shape.name}: supervisor at its first child")
    storm.finish(36, both=False)


def supervisor_storm(ctx, shapes, rounds, options=DIE, words=()):
    storm = Storm(ctx)
    for shape in shapes:
        for _ in storm.rounds(shape, rounds):
            storm.supervisor(shape, options, words)
    storm.finish(rounds * len(shapes))


@case("storm", "the supervisor is killed at a random moment, with a pid namespace", timeout=120)
def storm_supervisor_pid(ctx):
    supervisor_storm(ctx, (PID, ALL), 18, words=("sibling", "stopped"))


@case("storm", "the supervisor of a command that is process 1 is killed at a random moment",
      timeout=120)
def storm_supervisor_pid_1(ctx):
    supervisor_storm(ctx, (PID_1,), 14)


@case("P04 storm", "the supervisor is killed at a random moment, without a pid namespace",
      timeout=120)
def storm_supervisor_host(ctx):
    supervisor_storm(ctx, (HOST, HOST_USER), 18, words=("sibling", "stopped"))


@case("storm", "init is killed at a random moment, with a pid namespace", timeout=120)
def storm_init_pid(ctx):
    storm = Storm(ctx)
    for shape, options in ((PID, DIE), (ALL, ()), (PID_1, ())):
        for _ in storm.rounds(shape, 10):
            storm.init(shape, options)
    storm.finish(30)


@case("storm", "init is killed at a random moment, without a pid namespace", timeout=120)
def storm_init_host(ctx):
    needs(ctx, "--kill-all")
    storm = Storm(ctx)
    for shape in (HOST, HOST_USER):
        for _ in storm.rounds(shape, 14):
            storm.init(shape, KILL_ALL, ("sibling", "stopped"))
    storm.finish(28)


@case("storm", "the caller is killed at a random moment", timeout=120)
def storm_caller(ctx):
    storm = Storm(ctx)
    for shape in (PID, HOST):
        for _ in storm.rounds(shape, 16):
            storm.caller_of(shape)
    storm.finish(20)


@case("storm", "the caller is killed while the supervisor stands still at a random moment",
      timeout=120)
def storm_caller_frozen(ctx):
    storm = Storm(ctx)
    for shape in (PID, HOST, PID_1):
        for _ in storm.rounds(shape, 10):
            storm.caller_of(shape, freeze=True)
    storm.finish(20)


@case("storm", "the supervisor or init is killed about the time when the command ends",
      timeout=120)
def storm_at_the_end(ctx):
    needs(ctx, "--kill-all")
    storm = Storm(ctx)
    for shape in (PID, HOST):
        for number in storm.rounds(shape, 14):
            if number % 2:
                storm.supervisor(shape, KILL_ALL, ("exit=5",))
            else:
                storm.init(shape, KILL_ALL, ("exit=5",), code=None)
    # On which side of the end a kill falls is the machine's choice.
    storm.finish(28, both=False)


@case("storm", "the supervisor is killed on the way into namespaces that exist", timeout=120)
def storm_joining(ctx):
    first = b_util.Live(ctx, *BASE, "--unshare-user", "--unshare-pid")
    first.ready()
    user = os.open(f"/proc/{first.pid}/ns/user", os.O_RDONLY)
    pid = os.open(f"/proc/{first.pid}/ns/pid", os.O_RDONLY)
    # The sandbox that is joined is not ours to judge: another process looks after it.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            import ctypes
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
            os.dup2(user, 71, inheritable=True)
            os.dup2(pid, 72, inheritable=True)
            Namespaces.foreign = {f"pid:[{os.fstat(pid).st_ino}]"}
            storm = Storm(ctx)
            for options in (("--userns", "71"),
                            ("--userns", "71", "--pidns", "72", "--unshare-pid"),
                            ("--userns", "71", "--pidns", "72")):
                shape = Shape(" ".join(options), *BASE, *options)
                for _ in storm.rounds(shape, 6):
                    storm.supervisor(shape, DIE)
            storm.finish(18)
            code = 0
        except Exception as error:
            os.write(write, str(error).encode()[:4000])
        os._exit(code)
    os.close(write)
    text = b_util.read_until(read, seconds=100)
    _, status = os.waitpid(child, 0)
    os.close(user)
    os.close(pid)
    still = b_util.alive(first.pid)
    first.end()
    ctx.eq((status, text.decode()), (0, ""), "the storm")
    ctx.true(still, "the sandbox that was joined goes on")


@case("storm", "after a storm no mount, network device, temporary file or open descriptor is left",
      timeout=120)
def storm_leaves_no_things(ctx):
    host = QuietHost(ctx)
    storm = Storm(ctx)
    ignore = {os.path.join(ctx.dir, "stderr")}
    for shape in (ALL, HOST):
        for number in storm.rounds(shape, 10):
            (storm.supervisor, storm.caller_of)[number % 2](shape)
        if shape.pid:
            for _ in range(6):
                storm.init(shape)
    storm.finish(20)
    ctx.eq(host.changes(ignore), [], "left-overs")


def supervisor_calls(ctx, strace, shape, options):
    """The system calls that a supervisor makes, in order: for each its name, and the how manieth
    of this name it is."""
    trace = os.path.join(ctx.dir, "trace")
    ctx.ok(ctx.run(strace, "-f", "-qq", "-e", "signal=none", "-o", trace, ctx.bwrap, *shape.options,
                   *options, casekit.probe(ctx, "p_tree"), "sequence", "exit=0"))
    ctx.until(lambda: not reap(), why="the end of the family")
    with open(trace) as f:
        calls = [line.split(None, 1) for line in f]
    os.unlink(trace)
    counts, sequence = {}, []
    for pid, text in calls:
        name = re.match(r"(\w+)\(", text)
        if pid == calls[0][0] and name:
            counts[name[1]] = counts.get(name[1], 0) + 1
            sequence.append((name[1], counts[name[1]]))
    # The first one is the exec of the program itself, which is not there yet.
    return sequence[1:]


@case("storm", "SIGKILL on the way into any of a supervisor's system calls: no survivor",
      timeout=170)
def storm_at_system_calls(ctx):
    strace = casekit.tool(ctx, "strace")
    storm = Storm(ctx)
    killed = tried = 0
    for shape in (PID, HOST):
        sequence = supervisor_calls(ctx, strace, shape, DIE)
        ctx.true(len(sequence) > 40, f"calls of a supervisor: {sequence}")
        # Most of the start is alike; at the end each call is another stage of the clearing away.
        for name, number in sequence[storm.random.randrange(7):-15:7] + sequence[-15:]:
            if len(storm.problems) >= ENOUGH:
                break
            run = Run(storm, shape, DIE, ("exit=0",),
                      (strace, "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
                       f"inject={name}:signal=KILL:when={number}"))
            end = time.monotonic() + 5
            while run.top not in run.statuses and time.monotonic() < end and reap(run.statuses):
                time.sleep(0.001)
            tried += 1
            killed += run.statuses.get(run.top) == -signal.SIGKILL
            storm.count(run)
            run.check(f"{shape.name}: at {name} number {number}")
    storm.finish(20, both=False)
    ctx.true(killed > tried // 2, f"{killed} of {tried} supervisors were killed")


@case("storm", "control: a program that has not begun to run its own code is told from one that "
      "has")
def control_main_has_begun(ctx):
    storm = Storm(ctx)
    # Neither `sleep` nor the dynamic loader sets SIGCHLD back; nsbox does.
    for argv, begun in ((("/bin/sleep", "30"), False), ((ctx.bwrap, *PID.options, "sleep", "30"),
                                                       True)):
        numbers, number = os.pipe()
        spawn((storm.caller, "60", *argv), storm.log, storm.log, ((60, number),))
        os.close(number)
        program = int(b_util.read_until(numbers))
        os.close(numbers)
        if begun:
            ctx.until(lambda: main_has_begun(program), why=f"the beginning of {argv[0]}")
        else:
            time.sleep(0.3)
            ctx.true(not main_has_begun(program), f"{argv[0]} has set SIGCHLD back")
        end_all(ctx)
