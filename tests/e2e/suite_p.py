"""The life of a sandbox: signals, what is left behind, hangs, exit statuses, time limits, events.

Reported bugs of group P by their names, and what nsbox's own options beside bwrap's promise.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import select
import signal
import struct
import subprocess
import threading
import time

import b_util
from b_util import (Live, Sleeper, alive, at_end, children, file_text, finish, out_file, read_until,
                    wait)
from casekit import needs, peer, probe
from harness import case
from stormkit import family, reap, stat_fields

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TSTP")

# With process 1 of a pid namespace as init, without a pid namespace, with the command as process 1.
PID = ("--dev-bind", "/", "/", "--unshare-pid")
HOST = ("--dev-bind", "/", "/")
PID_1 = (*PID, "--as-pid-1")
ALL = ("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
       "/tmp")
SHAPES = {"pid": PID, "host": HOST, "as pid 1": PID_1, "all": ALL}
WITH_INIT = {name: SHAPES[name] for name in ("pid", "host", "all")}


def number(name):
    return getattr(signal, "SIG" + name)


def life(ctx, *words):
    return (probe(ctx, "p_life"), *words)


def tree(ctx, *words):
    """A command with a family that would like to outlive it; no two have the same marker."""
    return (probe(ctx, "p_tree"), "life-" + secrets.token_hex(6), *words)


def nothing_left(ctx, why):
    """There is no descendant, alive or dead: every orphan would be a child of this subreaper."""
    if reap():
        found = [f"{name} ({state})" for _, name, state in family(os.getpid())]
        raise AssertionError(f"{why}: left behind: {found}")


def soon_nothing_left(ctx, why):
    ctx.until(lambda: not reap(), 5, f"{why}: the end of everything")


class Listener(Live):
    """A sandbox whose command tells every signal that it gets; ends with status 9 on request."""

    def __init__(self, ctx, *options, code=9, **kw):
        super().__init__(ctx, *options, argv=life(ctx, "signals", str(code)), **kw)
        self.ready()

    def send(self, name):
        os.kill(self.proc.pid, number(name))

    def hears(self, ctx, name):
        """Sends a signal to the supervisor; the command gets this one, once."""
        self.send(name)
        ctx.true(at_end(self.out, 10), f"SIG{name} does not reach the command of {self.proc.args}")
        ctx.eq(read_until(self.out, b"\n"), f"got {name}\n".encode(), f"after SIG{name}")


# -- item 1: signals -----------------------------------------------------------------------------

@case("P01", "--forward-signals hands every signal that it names to the command, and the status "
      "is the command's")
def forwards(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in SHAPES.items():
        live = Listener(ctx, *shape, "--forward-signals")
        # The one that ends everything when it comes again is the last.
        for word in (*SIGNALS[1:], *SIGNALS[3:], "TERM"):
            live.hears(ctx, word)
            if word == "TSTP":
                # The supervisor may stop as well, as its shell would like to see; a SIGCONT that
                # overtakes that would be lost, by the kernel's rules.
                with contextlib.suppress(AssertionError):
                    ctx.until(lambda live=live: stat_fields(live.proc.pid)[1] == "T", 1)
                live.hears(ctx, "CONT")
        ctx.true(alive(live.proc.pid), f"{name}: the supervisor is there")
        ctx.eq(live.end(), 9, f"{name}: status")
        ctx.eq(read_until(live.out), b"", f"{name}: nothing came twice")


@case("P01", "the first SIGTERM is the command's to decide about: a shell with a trap ends with "
      "the status of its trap")
def forwards_to_trap(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in SHAPES.items():
        for word in ("TERM", "INT", "HUP", "USR1"):
            proc = ctx.bw_popen(*shape, "--forward-signals", "sh", "-c",
                                f'trap "exit 3" {word}; echo ready; while :; do sleep .05; done')
            ctx.eq(proc.stdout.readline(), b"ready\n", name)
            proc.send_signal(number(word))
            ctx.eq(wait(proc), 3, f"{name}: status after SIG{word}")


@case("P01", "a command that a forwarded signal ends gives 128 and the signal's number")
def forwards_deadly(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in WITH_INIT.items():
        for word in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2"):
            live = Live(ctx, *shape, "--forward-signals", argv=("sh", "-c", "ulimit -c 0; echo "
                                                                "ready; exec cat"))
            live.ready()
            live.ask("here")  # The shell is gone, cat has the signals at their defaults.
            os.kill(live.proc.pid, number(word))
            ctx.eq(wait(live.proc), 128 + number(word), f"{name}: status after SIG{word}")


@case("P01 P11", "the second SIGTERM ends the sandbox by SIGKILL, whatever the command thinks of "
      "the first")
def second_term(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in SHAPES.items():
        live = Listener(ctx, *shape, "--forward-signals", "--kill-all")
        live.hears(ctx, "TERM")
        live.hears(ctx, "USR1")
        live.send("TERM")
        ctx.eq(wait(live.proc), 137, f"{name}: status")
        ctx.true(at_end(live.out), f"{name}: the command is gone")
        nothing_left(ctx, name)
    # A process 1 without a handler does not notice the first one: the kernel's rule.
    proc = ctx.bw_popen(*PID_1, "--forward-signals", "sh", "-c", "echo ready; read x; exit 4",
                        stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline(), b"ready\n", "as pid 1")
    proc.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    ctx.true(alive(proc.pid), "process 1 ignores a SIGTERM that it has no handler for")
    proc.send_signal(signal.SIGTERM)
    ctx.eq(wait(proc), 137, "as pid 1, after the second")


@case("B15", "without --forward-signals a signal ends the supervisor alone, and the command never "
      "hears of it")
def not_forwarded(ctx):
    for name, shape in SHAPES.items():
        for word in ("TERM", "INT", "HUP", "USR1"):
            live = Listener(ctx, *shape)
            live.send(word)
            ctx.eq(wait(live.proc), 128 + number(word), f"{name}: status after SIG{word}")
            ctx.true(not at_end(live.out, 0.1), f"{name}: the command hears nothing and goes on")
            live.close_stdin()
            ctx.eq(read_until(live.out), b"", f"{name}: the command ends by itself")
            soon_nothing_left(ctx, name)


@case("P01", "a signal during the start ends it, or reaches the command, but is not lost",
      timeout=120)
def signal_while_starting(ctx):
    needs(ctx, "--forward-signals")
    marker = "start-" + secrets.token_hex(6)
    for name, shape in (("pid", PID), ("host", HOST)):
        for step in range(0, 20, 2):
            proc = ctx.bw_popen(*shape, "--forward-signals", "--kill-all", "sleep", "20", marker,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(step * 0.001)
            proc.send_signal(signal.SIGTERM)
            ctx.true(wait(proc, 10) in (143, 1), f"{name}: status {proc.returncode}")
            nothing_left(ctx, name)


@case("P01", "a signal that comes as soon as the command runs is the command's, not a reason to "
      "call the start off", timeout=120)
def signal_at_once(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in SHAPES.items():
        for _ in range(10):
            live = Listener(ctx, *shape, "--forward-signals")
            live.hears(ctx, "TERM")
            ctx.eq(live.end(), 9, f"{name}: status")


@case("P01", "one key of a terminal that supervisor and command share reaches the command once")
def terminal_key_once(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in (("pid", PID), ("host", HOST)):
        master, slave = os.openpty()
        read, write = os.pipe()

        def own_terminal(slave=slave):
            import fcntl
            import termios
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        keep, stay = os.pipe()
        proc = ctx.bw_popen(*shape, "--forward-signals", "sh", "-c", "exec \"$@\" <&6 >&5", "sh",
                            *life(ctx, "signals", "9"), fds={5: write, 6: keep}, stdin=slave,
                            stdout=slave, stderr=slave, session=True, pre=own_terminal)
        for fd in (slave, write, keep):
            os.close(fd)
        ctx.eq(read_until(read, b"\n"), b"ready\n", name)
        for key, word in ((b"\x03", "INT"), (b"\x1c", "QUIT"), (b"\x03", "INT")):
            os.write(master, key)
            ctx.eq(read_until(read, b"\n"), f"got {word}\n".encode(), f"{name}: after the key")
            ctx.true(not at_end(read, 0.3), f"{name}: the command gets SIG{word} once")
        ctx.true(alive(proc.pid), f"{name}: the supervisor leaves the keys to the command")
        os.close(stay)
        ctx.eq(wait(proc), 9, f"{name}: status")
        os.close(read)
        os.close(master)


# -- item 1: reaping, and what is left behind ----------------------------------------------------

def zombies_below(pid):
    return [entry for entry in family(pid) if entry[2] == "Z"]


@case("init", "init reaps every orphan: a hundred that end leave no zombie, nor any for the caller")
def reaps(ctx):
    needs(ctx, "--kill-all")
    for name, shape in WITH_INIT.items():
        live = Live(ctx, *shape, "--kill-all", argv=life(ctx, "orphans", "100"))
        live.ready()
        ctx.until(lambda live=live: not zombies_below(live.proc.pid), 5, f"{name}: no zombies")
        # A control group has a guard.
        with open(f"/proc/{live.command_pid(ctx)}/cgroup", encoding="ascii") as file:
            guards = "/nsbox-" in file.read()
        ctx.eq(len(family(live.proc.pid)), 2 + guards,
               f"{name}: init and the command are all there is")
        ctx.eq(live.end(), 0, f"{name}: status")
        nothing_left(ctx, name)
    # The control: a parent that does not reap has them all.
    proc = ctx.popen(*life(ctx, "orphans", "20"), stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline(), b"ready\n", "the control")
    ctx.until(lambda: len(zombies_below(os.getpid())) == 20, why="twenty zombies of the control")
    proc.stdin.close()
    ctx.eq(wait(proc), 0, "the control's status")


@case("P05", "--kill-all: when the command ends everything else is killed, and its pipes are at "
      "their end when the program returns")
def kill_all(ctx):
    needs(ctx, "--kill-all")
    for name, shape in SHAPES.items():
        words = ("sibling", "stopped") if shape is not PID_1 else ("stopped",)
        for extra in ((), ("--die-with-parent",), ("--forward-signals",)):
            read, write = os.pipe()
            proc = ctx.bw_popen(*shape, "--kill-all", *extra, *tree(ctx, *words, "exit=4"),
                                stdout=write)
            os.close(write)
            ctx.eq(wait(proc), 4, f"{name} {extra}: status")
            ctx.true(at_end(read), f"{name} {extra}: the pipe is at its end at once")
            ctx.eq(read_until(read), b"ready\n", f"{name} {extra}: the family was there")
            nothing_left(ctx, f"{name} {extra}")
            os.close(read)


@case("P05", "--kill-all wins against a process that is replaced by its child all the time")
def kill_all_chain(ctx):
    needs(ctx, "--kill-all")
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        proc = ctx.bw_popen(*shape, "--kill-all", *tree(ctx, "chain", "exit=4"), stdout=write)
        os.close(write)
        ctx.eq(wait(proc), 4, f"{name}: status")
        ctx.true(at_end(read), f"{name}: the pipe is at its end at once")
        os.close(read)
        nothing_left(ctx, name)


@case("P05", "--kill-all: a pipeline that waits for the end of the output does not wait for a "
      "process in the background")
def kill_all_pipeline(ctx):
    needs(ctx, "--kill-all")
    script = 'exec 3>&1; "$@" sh -c "sleep 25 & echo done" | cat'
    for name, shape in SHAPES.items():
        result = ctx.run("sh", "-c", script, "sh", ctx.bwrap, *shape, "--kill-all", timeout=15)
        ctx.ok(result, out="done")
        nothing_left(ctx, name)


@case("B16", "without --kill-all a process that the command left behind goes on, also beside "
      "nsbox's other options")
def background_goes_on(ctx):
    for extra in ((), ("--forward-signals",)):
        for option in extra:
            needs(ctx, option)
        for shape in (("--unshare-pid",), ()):
            sleeper = Sleeper(ctx, *shape, *extra)
            ctx.eq(sleeper.finish_command(), 4, f"status with {shape} {extra}")
            sleeper.lives()
            sleeper.release()
            ctx.true(sleeper.ended(), f"it ends when it may, with {shape} {extra}")
            soon_nothing_left(ctx, f"{shape} {extra}")


@case("P05 B16", "--kill-all with a process that would go on otherwise: it is gone when the "
      "program returns")
def background_is_killed(ctx):
    needs(ctx, "--kill-all")
    for shape in (("--unshare-pid",), (), ("--unshare-pid", "--as-pid-1")):
        sleeper = Sleeper(ctx, *shape, "--kill-all")
        ctx.eq(sleeper.finish_command(), 4, f"status with {shape}")
        ctx.true(at_end(sleeper.answers), f"it is gone with {shape}")
        nothing_left(ctx, f"{shape}")


# -- item 1: init shows nothing of the caller ----------------------------------------------------

OWN_OPTIONS = ("--forward-signals", "--kill-all", "--die-with-parent", "--timeout", "100",
               "--cpu-time", "100", "--events-fd", "62")


def own_options(ctx):
    for word in OWN_OPTIONS:
        if word.startswith("--"):
            needs(ctx, word)
    return OWN_OPTIONS


def memory_of(pid):
    """All that can be read of a process's memory; for root."""
    pieces = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            first, mode = line.split(" ")[:2]
            begin, end = (int(word, 16) for word in first.split("-"))
            if mode[0] == "r" and end < 1 << 63 and end - begin < 1 << 26:
                with contextlib.suppress(OSError, ValueError):
                    memory.seek(begin)
                    pieces.append(memory.read(end - begin))
    return b"".join(pieces)


@case("init", "seen by root from outside, init's memory, environment, arguments and descriptors "
      "show nothing of the caller", only="root")
def init_shows_nothing(ctx):
    own = own_options(ctx)
    read, write = os.pipe()
    for name, shape in WITH_INIT.items():
        variable, argument, stream = (secrets.token_hex(16) for _ in range(3))
        events = out_file(ctx, "events")
        live = Live(ctx, *shape, *own, "--args", "63", "--setenv", "GONE", argument, "--unsetenv",
                    "GONE", argv=("cat",), env=dict(os.environ, SECRET=variable),
                    fds={62: events, 63: f"--setenv\0STREAM\0{stream}\0", 64: write}, cwd=ctx.dir)
        ctx.eq(live.ask("hello"), "hello\n", f"{name}: the command runs")
        words = [variable.encode(), argument.encode(), stream.encode(), ctx.dir.encode(),
                 os.path.basename(ctx.bwrap).encode() + b"\0"]
        # The control: the supervisor has the variable, and the reading of memory finds it there;
        # the command has it in its environment.
        ctx.true(words[0] in memory_of(live.proc.pid), f"{name}: the control, the supervisor")
        command = live.command_pid(ctx)
        with open(f"/proc/{command}/environ", "rb") as f:
            ctx.true(words[0] in f.read(), f"{name}: the control, the command")
        facts = memory_of(live.pid)
        ctx.true(len(facts) > 4096, f"{name}: init's memory was read: {len(facts)} bytes")
        for what in ("environ", "cmdline", "comm", "auxv"):
            with open(f"/proc/{live.pid}/{what}", "rb") as f:
                text = f.read()
            facts += text
            if what == "environ":
                ctx.eq(text.strip(b"\0"), b"", f"{name}: init's environment")
            if what == "cmdline":
                ctx.true(b"--" not in text and b"/" not in text, f"{name}: arguments {text!r}")
        for index, word in enumerate(words[:4]):
            ctx.true(word not in facts, f"{name}: init holds secret number {index}")
        for fd in os.listdir(f"/proc/{live.pid}/fd"):
            target = os.readlink(f"/proc/{live.pid}/fd/{fd}")
            kind = target.split(":")[0]
            # The list of its own children, where it is not pid 1, is a file of the caller's /proc.
            own_list = re.fullmatch(r"(/proc)?/\d+/task/\d+/children", target)
            # So are the folder of the control group that it has to end, and what ends it.
            own_group = re.fullmatch(r"/sys/fs/cgroup(/.*)?", target)
            ctx.true(int(fd) < 3 or own_list or own_group or kind in ("socket", "anon_inode", "pipe"),
                     f"{name}: init's descriptor {fd} leads to {target}")
            ctx.true(int(fd) < 3 or os.stat(f"/proc/{live.pid}/fd/{fd}").st_ino !=
                     os.fstat(write).st_ino, f"{name}: init holds the caller's pipe as {fd}")
        ctx.eq(live.end(), 0, f"{name}: status")
        os.close(events)
    os.close(read)
    os.close(write)


@case("init", "the sandbox finds nothing of the caller in process 1, with nsbox's own options in "
      "use")
def init_shows_nothing_inside(ctx):
    own = own_options(ctx)
    program = probe(ctx, "case_secrets")
    for shape in (("--unshare-pid",), ("--unshare-all",)):
        variable, argument, stream, control = (secrets.token_hex(16) for _ in range(4))
        events = out_file(ctx, "events")
        result = ctx.ok(ctx.bw(
            "--ro-bind", "/", "/", *shape, "--proc", "/proc", *own, "--setenv", "OTHER", argument,
            "--unsetenv", "OTHER", "--args", "7", "--clearenv", program,
            *(s[::-1] for s in (variable, stream, argument, control)),
            fds={7: f"--setenv\0STREAM\0{stream}\0--unsetenv\0STREAM\0", 62: events},
            env=dict(os.environ, K=variable), timeout=60))
        found = [line.split(" ") for line in result.out.splitlines() if line.startswith("FOUND")]
        ctx.true(any(words[1] == "3" for words in found), f"the control was found\n{result}")
        ctx.eq([words for words in found if words[1] != "3"], [], f"{shape}: secrets")
        os.close(events)


# -- item 2: die with parent, case by case -------------------------------------------------------

@case("P03", "--die-with-parent: the end of the thread that started the program is not the end of "
      "its caller")
def thread_ends(ctx):
    for name, shape in SHAPES.items():
        made = []

        def start(shape=shape, made=made):
            live = Live(ctx, *shape, "--die-with-parent")
            live.ready()
            made.append(live)

        thread = threading.Thread(target=start)
        thread.start()
        thread.join(20)
        ctx.true(made, f"{name}: the sandbox was started")
        live = made[0]
        # The thread is gone from the kernel's list too, and time passes.
        ctx.until(lambda: len(os.listdir("/proc/self/task")) == 1, why="the end of the thread")
        ctx.true(not at_end(live.out, 0.4), f"{name}: the sandbox goes on")
        ctx.eq(live.ask("still"), "got still\n", f"{name}: the answer")
        ctx.eq(live.end(), 0, f"{name}: status")


def caller_of(ctx, shape, in_thread=False):
    """A process that starts a sandbox, from a thread that ends if that is asked for, and stays. Gives
    its pid, the supervisor's, and the end of the pipe that the command and its family hold open."""
    read, write = os.pipe()
    number_read, number_write = os.pipe()
    caller = os.fork()
    if caller == 0:
        os.close(read)

        def start():
            proc = ctx.popen(ctx.bwrap, *shape, "--die-with-parent",
                             *tree(ctx, *(("tame",) if shape is PID_1 else ())), stdout=write)
            os.write(number_write, f"{proc.pid}\n".encode())

        if in_thread:
            thread = threading.Thread(target=start)
            thread.start()
            thread.join()
        else:
            start()
        os.close(write)
        while True:
            signal.pause()
    os.close(write)
    os.close(number_write)
    supervisor = int(read_until(number_read, b"\n"))
    os.close(number_read)
    ctx.eq(read_until(read, b"\n"), b"ready\n", "the command runs")
    return caller, supervisor, read


def ends_with(ctx, name, caller, read):
    """The caller is killed, and with it goes the whole sandbox."""
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    ctx.true(at_end(read, 5), f"{name}: the sandbox is gone")
    os.close(read)
    soon_nothing_left(ctx, name)


@case("P03", "--die-with-parent: the end of the process whose thread has ended before ends the "
      "sandbox")
def thread_then_process_ends(ctx):
    for name, shape in SHAPES.items():
        caller, _, read = caller_of(ctx, shape, in_thread=True)
        ctx.true(not at_end(read, 0.3), f"{name}: the sandbox goes on")
        ends_with(ctx, name, caller, read)


@case("P02", "--die-with-parent: the caller's death ends the sandbox of a supervisor that is stopped",
      timeout=90)
def stopped_when_caller_dies(ctx):
    for name, shape in SHAPES.items():
        caller, supervisor, read = caller_of(ctx, shape)
        os.kill(supervisor, signal.SIGSTOP)
        ctx.until(lambda supervisor=supervisor: (stat_fields(supervisor) or " ?")[1] == "T",
                  why=f"{name}: the stop")
        ctx.true(not at_end(read, 0.2), f"{name}: a stop is not an end")
        ends_with(ctx, name, caller, read)


@case("P04", "--die-with-parent without a pid namespace: the whole family of the command is gone "
      "when the supervisor is killed")
def tree_without_namespace(ctx):
    variants = [((), ("sibling", "stopped")), ((), ("chain",)),
                (("--unshare-user", "--unshare-net"), ("sibling",))]
    for options, words in variants:
        for stop in (signal.SIGKILL, signal.SIGTERM):
            read, write = os.pipe()
            proc = ctx.bw_popen(*HOST, *options, "--die-with-parent", *tree(ctx, *words),
                                stdout=write)
            os.close(write)
            ctx.eq(read_until(read, b"\n"), b"ready\n", f"{options} {words}")
            proc.send_signal(stop)
            ctx.eq(wait(proc), 128 + stop, f"{options} {words}: status")
            ctx.true(at_end(read, 5), f"{options} {words}: everything is gone")
            os.close(read)
            soon_nothing_left(ctx, f"{options} {words}")


@case("P04", "a command that becomes another user, which takes away its parent-death signal, does "
      "not outlive the supervisor", only="root")
def other_user(ctx):
    for name, shape in (("pid", PID), ("host", HOST)):
        read, write = os.pipe()
        proc = ctx.bw_popen(*shape, "--die-with-parent", *b_util.as_user(), *tree(ctx, "sibling"),
                            stdout=write)
        os.close(write)
        ctx.eq(read_until(read, b"\n"), b"ready\n", name)
        proc.kill()
        ctx.true(at_end(read, 5), f"{name}: everything is gone")
        os.close(read)
        soon_nothing_left(ctx, name)


@case("P04", "the deaths of the supervisor, of init and of the caller end a family with stopped "
      "processes and one that forks all the time")
def deaths(ctx):
    needs(ctx, "--kill-all")
    for name, shape in WITH_INIT.items():
        for victim in ("supervisor", "init"):
            read, write = os.pipe()
            live = Live(ctx, *shape, "--die-with-parent", "--kill-all",
                        argv=tree(ctx, "stopped", "chain", "sibling"), fds={50: write})
            os.close(write)
            live.ready()
            os.kill(live.proc.pid if victim == "supervisor" else live.pid, signal.SIGKILL)
            ctx.eq(wait(live.proc), 137, f"{name}: status after the death of {victim}")
            ctx.true(at_end(read, 5), f"{name}: everything is gone after the death of {victim}")
            os.close(read)
            soon_nothing_left(ctx, f"{name} {victim}")


# -- item 3: nothing hangs -----------------------------------------------------------------------

def ignore_sigchld():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def block_everything():
    signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 65)) - {32, 33})


def ignore_some():
    for word in ("CHLD", "PIPE"):
        signal.signal(number(word), signal.SIG_IGN)


def option_sets(ctx):
    """Nsbox's own options, alone and together; for a peer there is only the empty set."""
    if peer():
        return ((),)
    return ((), ("--kill-all",), ("--forward-signals",), ("--timeout", "60"), ("--cpu-time", "60"),
            ("--forward-signals", "--kill-all", "--die-with-parent", "--timeout", "60",
             "--cpu-time", "60"))


@case("P07", "a caller that ignores or blocks SIGCHLD and other signals gets the right status, "
      "and the command starts with a clean mask")
def odd_signals(ctx):
    for name, shape in SHAPES.items():
        for options in {(), option_sets(ctx)[-1]}:
            for pre in (ignore_sigchld, block_everything):
                result = ctx.bw(*shape, *options, "sh", "-c", "cat /proc/self/status; exit 5",
                                pre=pre, timeout=15)
                ctx.fails(result, rc=5)
                facts = dict(re.findall(r"^(Sig\w+):\s*([0-9a-f]+)$", result.out, re.M))
                ctx.eq(int(facts["SigBlk"], 16), 0, f"{name} {options}: blocked signals")
                ctx.eq(int(facts["SigIgn"], 16) >> 16 & 1, 0, f"{name} {options}: SIGCHLD ignored")


@case("P07", "signals that the caller blocks are forwarded, and the time limit passes, all the "
      "same")
def odd_signals_forwarded(ctx):
    needs(ctx, "--forward-signals")
    for name, shape in SHAPES.items():
        for pre in (ignore_some, block_everything):
            live = Listener(ctx, *shape, "--forward-signals", pre=pre)
            for word in ("HUP", "USR1", "TERM"):
                live.hears(ctx, word)
            ctx.eq(live.end(), 9, f"{name}: status")
            result = ctx.bw(*shape, "--timeout", "0.3", "--kill-after", "0.2", "sleep", "20",
                            pre=pre, timeout=15)
            ctx.fails(result, rc=124, err="the time limit")


CLOSED = [tuple(fd for fd in range(3) if bits >> fd & 1) for bits in range(1, 8)]


def closing(numbers):
    def close():
        for fd in numbers:
            os.close(fd)
    return close


@case("P10", "with any of stdin, stdout and stderr closed the command runs, its status comes "
      "through, and nothing of ours takes their numbers")
def closed_descriptors(ctx):
    every = option_sets(ctx)[-1]
    busy = ("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--dev", "/dev", "--unshare-pid", "--proc",
            "/proc")
    for numbers in CLOSED:
        opened = sum(1 << fd for fd in range(3) if fd not in numbers)
        variants = [(HOST, every), (busy, ()), (busy, every)]
        if len(numbers) == 3:
            variants += [(HOST, ()), (PID, every), (PID_1, ()), (PID_1, every)]
        for shape, options in variants:
            result = ctx.bw(*shape, *options, *life(ctx, "closed"), pre=closing(numbers),
                            timeout=15)
            ctx.eq(result.rc, opened, f"{shape} {options}: open ones with {numbers} closed")
    for shape in (busy, HOST, PID_1):
        result = ctx.bw(*shape, *every, "sh", "-c", "exit 4", pre=closing((0, 1, 2)), timeout=15)
        ctx.eq(result.rc, 4, f"{shape}: status with everything closed")
    # The control: an open one is reported, and so is one that should not be there.
    ctx.eq(ctx.run(*life(ctx, "closed"), fds={9: "x"}).rc, 15, "the control")


@case("P10", "with everything closed the supervisor and init hold nothing of the host as 0, 1 or 2")
def closed_in_supervisor(ctx):
    if peer():
        ctx.skip("the peer keeps an internal descriptor there")
    out, write = os.pipe()
    wait_here, go = os.pipe()
    for name, shape in WITH_INIT.items():
        read, info = os.pipe()
        proc = ctx.bw_popen(*shape, *option_sets(ctx)[-1], "--info-fd", "60", "sh", "-c",
                            "echo ready >&5; read x <&6; exit 4",
                            fds={60: info, 5: write, 6: wait_here}, pre=closing((0, 1, 2)))
        os.close(info)
        pid = json.loads(read_until(read, b"}\n"))["child-pid"]
        os.close(read)
        ctx.eq(read_until(out, b"\n"), b"ready\n", name)
        seen = 0
        for who in (proc.pid, pid):
            for fd in range(3):
                # Another user's process, and one that is not dumpable, are closed to an ordinary
                # user; they hide their descriptors from a sandbox as well.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    path = f"/proc/{who}/fd/{fd}"
                    # The command may speak before init has handed its pidfd on, which has the least free number.
                    ctx.until(lambda path=path: os.readlink(path) != "anon_inode:[pidfd]", why=f"{name}: {fd} let go")
                    ctx.eq(os.readlink(path), "/dev/null", f"{name}: {fd}")
                seen += os.access(f"/proc/{who}/fd", os.R_OK)
        ctx.true(seen >= (6 if ctx.root else 0), f"{name}: descriptors could be looked at: {seen}")
        os.write(go, b"\n")
        ctx.eq(wait(proc), 4, f"{name}: status")


@case("P10", "descriptor 0 is taken as a namespace where it is given as one")
def namespace_as_stdin(ctx):
    if peer():
        ctx.skip("the peer ignores descriptor 0")
    live = Live(ctx, *HOST, "--unshare-user")
    live.ready()
    fd = os.open(f"/proc/{live.pid}/ns/user", os.O_RDONLY)
    link = os.readlink(f"/proc/{live.pid}/ns/user")
    ctx.true(link != os.readlink("/proc/self/ns/user"), "it is another namespace")
    ctx.ok(ctx.bw(*HOST, "--userns", "0", "readlink", "/proc/self/ns/user", stdin=fd), out=link)
    os.close(fd)
    live.end()


@case("hang", "output that nobody reads does not keep the time limit from ending the sandbox")
def unread_output(ctx):
    needs(ctx, "--timeout")
    for name, shape in SHAPES.items():
        # One pipe for both, so that the message about the time limit finds it full as well.
        for both in (False, True):
            read, write = os.pipe()
            err_read, err = os.pipe()
            proc = ctx.bw_popen(*shape, "--timeout", "0.4", "--kill-after", "0.2", "--kill-all",
                                *life(ctx, "fill", "2" if both else "1"), stdout=write,
                                stderr=write if both else err)
            os.close(write)
            os.close(err)
            try:
                ctx.eq(wait(proc, 15), 124, f"{name}: status")
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name}: hangs, with stderr full as well: {both}") from None
            ctx.true(at_end(read, 10), f"{name}: there is output")
            end = time.monotonic() + 10
            got = 0
            while chunk := os.read(read, 65536):
                got += len(chunk)
                ctx.true(time.monotonic() < end, f"{name}: the output goes on")
            ctx.true(got >= 4096, f"{name}: the pipe was full: {got}")
            os.close(read)
            os.close(err_read)
            nothing_left(ctx, name)


@case("hang", "events that nobody reads, or can read, keep neither the command nor its status back")
def unread_events(ctx):
    needs(ctx, "--events-fd")
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, b"x" * 4096)
        # Whoever hands the pipe over need not have made it non-blocking.
        os.set_blocking(write, True)
        result = ctx.bw(*shape, "--events-fd", "62", "sh", "-c", "echo out; exit 3",
                        fds={62: write}, timeout=15)
        ctx.fails(result, rc=3)
        ctx.eq(result.out, "out\n", f"{name}: a full pipe, output")
        os.close(read)
        result = ctx.bw(*shape, "--events-fd", "62", "sh", "-c", "echo out; exit 3",
                        fds={62: write}, timeout=15)
        ctx.fails(result, rc=3)
        ctx.eq(result.out, "out\n", f"{name}: a pipe without a reader, output")
        os.close(write)


@case("hang", "a message to a stderr without a reader does not change the status of a time limit")
def broken_stderr(ctx):
    needs(ctx, "--timeout")
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        os.close(read)
        proc = ctx.bw_popen(*shape, "--timeout", "0.2", "--kill-after", "0.2", "sleep", "20",
                            stderr=write)
        os.close(write)
        ctx.eq(wait(proc, 15), 124, f"{name}: status")


@case("B14 hang", "SIGKILL to init ends everything with status 137, with any options")
def init_dies_first(ctx):
    for name, shape in WITH_INIT.items():
        for options in option_sets(ctx):
            if shape is HOST and "--kill-all" not in options:
                continue
            live = Live(ctx, *shape, *options, argv=tree(ctx, "sibling", "stopped"))
            live.ready()
            os.kill(live.pid, signal.SIGKILL)
            ctx.eq(wait(live.proc), 137, f"{name} {options}: status")
            ctx.true(at_end(live.out, 5), f"{name} {options}: the family is gone")
            soon_nothing_left(ctx, f"{name} {options}")


@case("hang", "a command that has been stopped: the time limit, the second SIGTERM and the death "
      "of the supervisor end it; SIGCONT lets it go on")
def stopped_command(ctx):
    needs(ctx, "--timeout")
    for name, shape in SHAPES.items():
        stop = ("sh", "-c", "echo ready; kill -STOP $$; exit 6")
        if shape is PID_1:
            # Process 1 cannot stop itself; from outside it can be stopped.
            stop = ("sh", "-c", "echo ready; sleep 25; exit 6")

        def start(*options, shape=shape, stop=stop, name=name):
            live = Live(ctx, *shape, *options, argv=stop)
            live.ready()
            command = live.pid
            if shape is HOST or shape is PID or shape is ALL:
                command = children(live.pid)[0] if children(live.pid) else live.pid
            else:
                os.kill(command, signal.SIGSTOP)
            ctx.until(lambda: (stat_fields(command) or " ?")[1] == "T", why=f"{name}: the stop")
            return live

        live = start("--timeout", "0.5", "--kill-after", "0.3")
        ctx.eq(wait(live.proc, 15), 124, f"{name}: status of the time limit")
        soon_nothing_left(ctx, f"{name}: time limit")
        live = start("--forward-signals", "--kill-all")
        os.kill(live.proc.pid, signal.SIGTERM)
        time.sleep(0.1)
        ctx.true(alive(live.proc.pid), f"{name}: the first SIGTERM waits with the command")
        os.kill(live.proc.pid, signal.SIGTERM)
        ctx.eq(wait(live.proc, 15), 137, f"{name}: status of the second SIGTERM")
        nothing_left(ctx, f"{name}: SIGTERM")
        live = start("--die-with-parent")
        live.proc.kill()
        ctx.true(at_end(live.out, 5), f"{name}: gone with the supervisor")
        soon_nothing_left(ctx, f"{name}: supervisor")
        if shape is not PID_1:
            live = start("--forward-signals")
            ctx.true(alive(live.proc.pid), f"{name}: a stop is not an end")
            os.kill(live.proc.pid, signal.SIGCONT)
            ctx.eq(wait(live.proc, 15), 6, f"{name}: status after SIGCONT")


@case("hang", "init that has been stopped dies with the supervisor, and a limit does not need it")
def stopped_init(ctx):
    needs(ctx, "--timeout")
    for name, shape in WITH_INIT.items():
        live = Live(ctx, *shape, "--die-with-parent", argv=tree(ctx, "tame"))
        live.ready()
        os.kill(live.pid, signal.SIGSTOP)
        live.proc.kill()
        if shape is not HOST:
            ctx.true(at_end(live.out, 5), f"{name}: gone with the supervisor")
            soon_nothing_left(ctx, name)
        else:
            # Without a pid namespace it is init that looks after the others, once it may.
            with contextlib.suppress(ProcessLookupError):
                os.kill(live.pid, signal.SIGCONT)
            soon_nothing_left(ctx, name)
        live = Live(ctx, *shape, "--timeout", "0.5", "--kill-after", "0.3", "--kill-all",
                    argv=tree(ctx, "tame"))
        live.ready()
        os.kill(live.pid, signal.SIGSTOP)
        ctx.eq(wait(live.proc, 15), 124, f"{name}: status of the time limit")
        nothing_left(ctx, f"{name}: time limit")


@case("P13", "an asyncio program talks to a command in a pid namespace and waits for its end")
def asyncio_child(ctx):
    async def talk(shape, options):
        proc = await asyncio.create_subprocess_exec(
            ctx.bwrap, *shape, *options, "cat", stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(proc.communicate(b"hello\n" * 20000), 20)
        return proc.returncode, out

    async def many():
        jobs = [talk(shape, options) for shape in SHAPES.values() for options in option_sets(ctx)]
        return await asyncio.gather(*jobs)

    for code, out in asyncio.run(many()):
        ctx.eq((code, len(out)), (0, 120000), "status and length of the output")


# -- item 4: exit statuses -----------------------------------------------------------------------

def failing_commands(ctx):
    plain = ctx.write("plain", "#!/bin/sh\n", 0o644)
    ctx.write("path/found", "x", 0o644)
    return (("no-such-command", 127), ("/nonexistent/command", 127), (plain, 126),
            (ctx.mkdir("folder"), 126), ("found", 126))


@case("P08", "exit status: the command's own, or 128 and the signal's number")
def own_statuses(ctx):
    for distinct in ((), ("--distinct-status",)):
        for option in distinct:
            needs(ctx, option)
        for name, shape in SHAPES.items():
            for code in (7, 126) if distinct else (0, 1, 127, 255):
                ctx.eq(ctx.bw(*shape, *distinct, "sh", "-c", f"exit {code}").rc, code,
                       f"{name} {distinct}")
            for word in ("TERM", "KILL") if shape is not PID_1 else ():
                result = ctx.bw(*shape, *distinct, "sh", "-c", f"ulimit -c 0; kill -{word} $$")
                ctx.eq(result.rc, 128 + number(word), f"{name} {distinct} SIG{word}")
                ctx.eq(result.err, "", f"{name} {distinct}: nothing is said")


@case("P08", "--distinct-status: 127 for a command that is not found, 126 for one that cannot be "
      "executed, 125 where nsbox fails; without it all are 1")
def distinct_statuses(ctx):
    env = dict(os.environ, PATH=f"{ctx.dir}/path:/usr/bin:/bin")
    file = ctx.write("file")
    failures = (("--bind", "/nonexistent-source", "/x"), ("--chdir", "/nonexistent-folder"),
                ("--bind", "/usr", file), ("--seccomp", "88"), ("--events-fd", "89")
                if not peer() else ("--info-fd", "89"))
    for distinct in (True, False):
        words = ("--distinct-status",) if distinct else ()
        if distinct and peer():
            continue
        for name, shape in SHAPES.items():
            for command, code in failing_commands(ctx):
                if command == "found" and peer():
                    continue
                result = ctx.bw(*shape, *words, command, env=env)
                ctx.fails(result, rc=code if distinct else 1, err="^bwrap: execvp ")
            for options in failures:
                result = ctx.bw(*shape, *words, *options, "true")
                ctx.fails(result, rc=125 if distinct else 1, err="^bwrap: ")
            ctx.ok(ctx.bw(*shape, *words, "true"))


@case("P08", "--distinct-status: a mistake on the command line is a failure of nsbox too")
def distinct_usage(ctx):
    needs(ctx, "--distinct-status")
    for words in (("--bogus", "true"), ("--bind", "/"), ("--timeout", "soon", "true")):
        ctx.fails(ctx.bw("--distinct-status", *HOST, *words), rc=125, err="^bwrap: ")
        ctx.fails(ctx.bw(*HOST, *words), rc=1, err="^bwrap: ")


@case("P11", "--as-pid-1: process 1 is not ended by a signal that it sends itself, which is the "
      "kernel's rule")
def as_pid_1(ctx):
    for options in option_sets(ctx):
        ctx.ok(ctx.bw(*PID_1, *options, "sh", "-c", "kill -TERM $$; echo survived $$"),
               out="survived 1")
    ctx.fails(ctx.bw(*PID, "sh", "-c", "kill -TERM $$; echo survived"), rc=143)


# -- item 4: limits on time ----------------------------------------------------------------------

@case("timeout", "--timeout ends the command with SIGTERM, and the status is 124 whatever the "
      "command makes of it")
def time_limit(ctx):
    needs(ctx, "--timeout")
    for name, shape in WITH_INIT.items():
        begin = time.monotonic()
        result = ctx.bw(*shape, "--timeout", "0.5", "sleep", "25")
        ctx.true(time.monotonic() - begin >= 0.5, f"{name}: not before its time")
        ctx.fails(result, rc=124, err=r"^bwrap: the time limit of 500 ms is over")
        ctx.eq(len(result.err.splitlines()), 1, f"{name}: one line: {result.err}")
        result = ctx.bw(*shape, "--timeout", "500ms", "sh", "-c",
                        'trap "echo asked; exit 3" TERM; while :; do sleep .02; done')
        ctx.fails(result, rc=124, err="the time limit")
        ctx.eq(result.out, "asked\n", f"{name}: SIGTERM came first")
        soon_nothing_left(ctx, name)


@case("timeout", "--timeout with a command that does not end: after --kill-after everything in "
      "the sandbox is killed")
def time_limit_kill(ctx):
    needs(ctx, "--timeout")
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        proc = ctx.bw_popen(*shape, "--timeout", "0.4", "--kill-after", "0.4",
                            *tree(ctx, "stopped"), stdout=write)
        os.close(write)
        ctx.eq(read_until(read, b"\n"), b"ready\n", name)
        result = finish(ctx, proc)
        ctx.fails(result, rc=124, err=r"^bwrap: the time limit of 400 ms is over")
        ctx.true(at_end(read, 5), f"{name}: everything is gone")
        os.close(read)
        soon_nothing_left(ctx, name)


@case("timeout", "--timeout runs from the start on: one that is held up ends with status 124, and "
      "no command runs", timeout=120)
def time_limit_of_start(ctx):
    needs(ctx, "--timeout")
    mark = f"{ctx.dir}/mark"
    for name, shape in SHAPES.items():
        shape = (*shape, "--bind", ctx.dir, ctx.dir)
        for option in ("--block-fd", "--seccomp"):
            for say in (None, struct.pack("=HBBI", 6, 0, 0, 0x7fff0000)):  # A filter allows all.
                read, write = os.pipe()
                if say is not None:  # The control: in time it runs.
                    os.write(write, say)
                    os.close(write)
                result, events = with_events(ctx, *shape, "--timeout",
                                             "0.4" if say is None else "30", option, "7", "sh",
                                             "-c", f"echo ran; touch {mark}", fds={7: read},
                                             timeout=20)
                os.close(read)
                if say is not None:
                    ctx.ok(result, out="ran")
                    os.unlink(mark)
                    continue
                os.close(write)
                ctx.fails(result, rc=124, err=r"^bwrap: .*: its time limit is over$")
                ctx.true(not os.path.exists(mark), f"{name}: {option}: the command did not run")
                ctx.eq(exit_event(ctx, events)["reason"], "timeout", f"{name}: {option}: {events}")
                one(ctx, events, "failed")
                soon_nothing_left(ctx, name)


@case("timeout", "a command that ends in time keeps its status, and nothing is said")
def time_limit_kept(ctx):
    needs(ctx, "--timeout")
    for name, shape in SHAPES.items():
        limits = ("30", "60000ms", "3m", "1h") if shape is HOST else ("30.5", "30s", "0.5h")
        for limit in limits:
            result = ctx.bw(*shape, "--timeout", limit, "sh", "-c", "exit 6")
            ctx.eq((result.rc, result.err), (6, ""), f"{name}: limit {limit}")


@case("timeout", "a time that cannot be one is refused before anything is started")
def bad_times(ctx):
    needs(ctx, "--timeout")
    marker = ctx.dir + "/ran"
    for option in ("--timeout", "--cpu-time", "--kill-after"):
        for value in ("", "soon", "-1", "1x", "1.5.2", "s", " 1", "1e3", "0x10", "inf", "1ss",
                      "99999999999999999999h"):
            extra = ("--timeout", "9") if option == "--kill-after" else ()
            result = ctx.bw(*HOST, *extra, option, value, "touch", marker)
            ctx.fails(result, rc=1, err=rf"^bwrap: .*{option}")
            ctx.true(not os.path.exists(marker), f"{option} {value!r}: nothing was started")
        ctx.ok(ctx.bw(*HOST, *(("--timeout", "9") if option == "--kill-after" else ()), option,
                      "20s", "true"))


@case("cpu-time", "--cpu-time counts what all processes have used, ended ones and orphans included")
def cpu_limit(ctx):
    needs(ctx, "--cpu-time")
    kinds = (("burn", "20000"), ("burn-parts", "400", "40"), ("burn-group", "3", "9000"),
             ("burn-orphan", "20000"))
    for name, shape in SHAPES.items():
        for words in kinds if shape in (PID, HOST) else kinds[:1]:
            result = ctx.bw(*shape, "--cpu-time", "0.3", "--kill-after", "0.2", *life(ctx, *words),
                            timeout=15)
            ctx.fails(result, rc=124,
                      err="^bwrap: the limit of 300 ms of processor time is reached")
            ctx.eq(len(result.err.splitlines()), 1, f"{name} {words}: one line: {result.err}")
            soon_nothing_left(ctx, f"{name} {words}")


@case("timeout cpu-time", "a limit ends everything in the sandbox, also where the command itself "
      "ends on SIGTERM and the others do not")
def limits_end_everything(ctx):
    needs(ctx, "--timeout")
    # The leader takes SIGTERM as it finds it, its children do not notice it.
    script = "trap '' TERM; for n in 1 2; do sleep 25 & done; trap - TERM; echo ready; {}"
    for name, shape in SHAPES.items():
        for option, body in (("--timeout", "exec sleep 25"), ("--cpu-time", "while :; do :; done")):
            read, write = os.pipe()
            proc = ctx.bw_popen(*shape, option, "0.4", "--kill-after", "0.3", "sh", "-c",
                                script.format(body), stdout=write, stderr=subprocess.DEVNULL)
            os.close(write)
            ctx.eq(read_until(read, b"\n"), b"ready\n", f"{name} {option}")
            ctx.eq(wait(proc), 124, f"{name} {option}: status")
            ctx.true(at_end(read, 5), f"{name} {option}: the others are gone")
            os.close(read)
            soon_nothing_left(ctx, f"{name} {option}")


@case("cpu-time", "--cpu-time leaves a command alone that waits, and one that uses less")
def cpu_limit_kept(ctx):
    needs(ctx, "--cpu-time")
    started = [(name, ctx.bw_popen(*shape, "--cpu-time", "0.3", "sh", "-c", "sleep 1; exit 6"))
               for name, shape in SHAPES.items()]
    for name, proc in started:
        result = finish(ctx, proc)
        ctx.eq((result.rc, result.err), (6, ""), f"{name}: sleeping")
    for name, shape in SHAPES.items():
        result = ctx.bw(*shape, "--cpu-time", "20", *life(ctx, "burn-parts", "3", "20"))
        ctx.eq((result.rc, result.err), (0, ""), f"{name}: a little work")


# -- item 5: events ------------------------------------------------------------------------------

EVENTS = 62


def parse_events(text):
    """One JSON object a line, each with its name."""
    if text and not text.endswith("\n"):
        raise AssertionError(f"the last line is not complete: {text!r}")
    events = [json.loads(line) for line in text.splitlines()]
    for event in events:
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise AssertionError(f"not an event: {event!r}")
    return events


def with_events(ctx, *args, **kw):
    """Runs a sandbox with --events-fd; returns the result and the events."""
    needs(ctx, "--events-fd")
    fd = out_file(ctx, "events")
    fds = {EVENTS: fd, **kw.pop("fds", {})}
    result = ctx.bw("--events-fd", str(EVENTS), *args, fds=fds, **kw)
    text = file_text(fd)
    os.close(fd)
    return result, parse_events(text)


def one(ctx, events, name):
    found = [event for event in events if event["event"] == name]
    ctx.eq(len(found), 1, f"events called {name} in {events}")
    return found[0]


def exit_event(ctx, events):
    """The exit event: there is one, it is the last, and it has all its parts."""
    event = one(ctx, events, "exit")
    ctx.true(events[-1] is event, f"the exit event is the last one: {events}")
    for key in ("code", "signal", "reason"):
        ctx.true(key in event, f"{key} is in {event}")
    # Where no command has run there is nothing to tell about it.
    has_run = any(event["event"] == "started" for event in events)
    for key in ("user-us", "system-us", "max-rss-kib") if has_run else ():
        ctx.true(key in event, f"{key} is in {event}")
        ctx.true(type(event[key]) is int and event[key] >= 0, f"{key} is a number: {event}")
    return event


@case("events", "a run gives one started and one exit event, with code or signal and the reason")
def events_of_a_run(ctx):
    for name, shape in SHAPES.items():
        for code in (0, 7, 255):
            result, events = with_events(ctx, *shape, "sh", "-c", f"exit {code}")
            ctx.eq(result.rc, code, name)
            ctx.eq([event["event"] for event in events], ["started", "exit"], name)
            event = exit_event(ctx, events)
            ctx.eq((event["code"], event["signal"], event["reason"]), (code, None, "exited"), name)
        if shape is PID_1:
            continue
        for word in ("TERM", "KILL"):
            result, events = with_events(ctx, *shape, "sh", "-c", f"kill -{word} $$")
            ctx.eq(result.rc, 128 + number(word), name)
            event = exit_event(ctx, events)
            ctx.eq((event["code"], event["signal"], event["reason"]),
                   (None, int(number(word)), "signaled"), name)


@case("P09", "the started event has the sandbox's id, the command's pid and the namespaces that "
      "the command sees")
def started_event(ctx):
    needs(ctx, "--events-fd")
    names = set()
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        marker = "command-" + secrets.token_hex(6)
        live = Live(ctx, *shape, "--events-fd", str(EVENTS), fds={EVENTS: write},
                    argv=("sh", "-c", 'for n in cgroup ipc mnt net pid user uts; do echo "$n '
                          '$(readlink /proc/self/ns/$n)"; done; echo ready; read x', marker))
        os.close(write)
        text = live.ready()
        event = json.loads(read_until(read, b"\n"))
        ctx.eq(event["event"], "started", name)
        ctx.true(isinstance(event["sandbox"], str) and event["sandbox"], f"{name}: id: {event}")
        names.add(event["sandbox"])
        ctx.eq(event["child-pid"], live.pid, f"{name}: child-pid")
        with open(f"/proc/{event['command-pid']}/cmdline") as f:
            ctx.true(marker in f.read(), f"{name}: command-pid is the command: {event}")
        ctx.true((event["command-pid"] == event["child-pid"]) == (shape is PID_1 or
                 not children(live.pid)), f"{name}: the command and init are told apart: {event}")
        seen = dict(re.findall(r"^(\w+) \w+:\[(\d+)\]$", text, re.M))
        ctx.true(len(seen) == 7, f"{name}: the command saw its namespaces: {text!r}")
        for kind, inode in event["namespaces"].items():
            kind = kind.removesuffix("-namespace")
            ctx.eq(str(inode), seen[kind], f"{name}: {kind} namespace")
        new = {kind for kind, inode in seen.items()
               if f"{kind}:[{inode}]" != os.readlink(f"/proc/self/ns/{kind}")}
        told = {kind.removesuffix("-namespace") for kind in event["namespaces"]}
        ctx.eq(new - told - {"user"}, set(), f"{name}: namespaces that are new and not told")
        ctx.true("mnt" in told, f"{name}: {event}")
        live.end()
        rest = parse_events(read_until(read).decode())
        exit_event(ctx, rest)
        os.close(read)
    ctx.eq(len(names), len(SHAPES), f"each sandbox has an id of its own: {names}")


@case("events", "a start that fails gives a failed event with phase, errno and message, and an "
      "exit event")
def failed_events(ctx):
    file = ctx.write("file")
    for name, shape in SHAPES.items():
        for options, errno in ((("--bind", "/nonexistent-source", "/x"), 2),
                               (("--chdir", "/nonexistent-folder"), 2)):
            result, events = with_events(ctx, *shape, *options, "true")
            ctx.fails(result, rc=1, err="^bwrap: ")
            event = one(ctx, events, "failed")
            ctx.true(isinstance(event["phase"], str) and event["phase"], f"{name}: {event}")
            ctx.eq(event["errno"], errno, f"{name}: errno of {options}")
            ctx.true(options[1].strip("/") in event["message"], f"{name}: the object: {event}")
            ctx.eq(exit_event(ctx, events)["reason"], "setup-failed", f"{name}: {events}")
            ctx.true(not any(event["event"] == "started" for event in events), f"{events}")
        result, events = with_events(ctx, *shape, "--bind", "/usr", file, "true")
        ctx.fails(result, rc=1)
        one(ctx, events, "failed")
        ctx.eq(exit_event(ctx, events)["reason"], "setup-failed", f"{name}: {events}")


@case("events P08", "a command that cannot be executed gives a failed event with its errno, and "
      "an exit event")
def exec_failed_events(ctx):
    env = dict(os.environ, PATH=f"{ctx.dir}/path:/usr/bin:/bin")
    for name, shape in SHAPES.items():
        for command, code in failing_commands(ctx):
            result, events = with_events(ctx, *shape, "--distinct-status", command, env=env)
            ctx.fails(result, rc=code)
            event = one(ctx, events, "failed")
            ctx.eq(event["errno"], 2 if code == 127 else 13, f"{name}: {command}")
            ctx.true(command in event["message"], f"{name}: the message names it: {event}")
            ctx.eq(exit_event(ctx, events)["reason"], "exec-failed", f"{name}: {events}")


@contextlib.contextmanager
def memory_group(ctx, limit):
    """A new control group with so many bytes of memory, below our own. Gives the words that run a
    command in it."""
    with open("/proc/self/cgroup") as f:
        groups = [line.rstrip("\n").split(":", 2) for line in f]
    old = [path for _, names, path in groups if "memory" in names.split(",")]
    new = [path for _, names, path in groups if not names]
    top = f"/sys/fs/cgroup/memory{old[0]}" if old else f"/sys/fs/cgroup{new[0]}"
    path = os.path.join(top, "nsbox-test-" + secrets.token_hex(6))
    try:
        os.mkdir(path)
        try:
            with open(f"{path}/memory.{'limit_in_bytes' if old else 'max'}", "w") as f:
                f.write(str(limit))
        except OSError:
            os.rmdir(path)
            raise
    except OSError as error:
        ctx.skip(f"no control group of memory can be made here: {error}")
    try:
        yield "sh", "-c", f'echo 0 >{path}/cgroup.procs && exec "$@"', "sh"
    finally:
        ctx.until(lambda: not open(f"{path}/cgroup.procs").read(), why="an empty control group")
        os.rmdir(path)


@case("events", "what the kernel kills for want of memory is told, and the command's end has that "
      "reason", only="root", timeout=120)
def out_of_memory(ctx):
    hog = ("python3", "-c", "x = b'x' * (200 << 20)")
    events_fd = ("--events-fd", str(EVENTS))
    for who in ((), b_util.as_user()):
        for name, shape in SHAPES.items():
            with memory_group(ctx, 64 << 20) as enter:
                for words, told in ((hog, True), (("true",), False),
                                    (("sh", "-c", "python3 -c \"x = b'x' * (200 << 20)\"; exit 4"),
                                     True)):
                    fd = out_file(ctx, "events")
                    result = ctx.run(*enter, *who, ctx.bwrap, *events_fd, *shape, *words,
                                     fds={EVENTS: fd}, timeout=60)
                    events = parse_events(file_text(fd))
                    os.close(fd)
                    end = exit_event(ctx, events)
                    found = [event for event in events if event["event"] == "out-of-memory"]
                    ctx.eq(bool(found), told, f"{name}: {words}: {events}")
                    ctx.true(all(event["kills"] > 0 for event in found), f"{name}: {events}")
                    if words is hog:
                        ctx.eq((result.rc, end["reason"], end["signal"]),
                               (137, "out-of-memory", 9), f"{name}: {result}")
                    else:
                        ctx.eq((end["reason"], result.rc), ("exited", end["code"]), name)


@case("events", "the events tell which limit ended the sandbox")
def limit_events(ctx):
    needs(ctx, "--events-fd")
    for name, shape in SHAPES.items():
        result, events = with_events(ctx, *shape, "--timeout", "0.3", "--kill-after", "0.2",
                                     "sleep", "20")
        ctx.fails(result, rc=124)
        ctx.eq(exit_event(ctx, events)["reason"], "timeout", name)
        result, events = with_events(ctx, *shape, "--cpu-time", "0.3", "--kill-after", "0.2",
                                     *life(ctx, "burn", "20000"))
        ctx.fails(result, rc=124)
        event = exit_event(ctx, events)
        ctx.eq(event["reason"], "cpu-time", name)
        ctx.true(event["user-us"] + event["system-us"] >= 300000, f"{name}: what it used: {event}")


@case("events", "the exit event tells the processor time and the peak memory of the command and "
      "of its children")
def usage_events(ctx):
    for name, shape in SHAPES.items():
        if shape is ALL:
            continue
        for words in (("burn", "200"), ("burn-parts", "4", "50")):
            result, events = with_events(ctx, *shape, *life(ctx, *words))
            ctx.ok(result)
            event = exit_event(ctx, events)
            ctx.true(event["user-us"] + event["system-us"] >= 190000, f"{name} {words}: {event}")
        result, events = with_events(ctx, *shape, *life(ctx, "memory", "48"))
        ctx.ok(result)
        event = exit_event(ctx, events)
        ctx.true(48 << 10 <= event["max-rss-kib"] < 1 << 20, f"{name}: peak memory: {event}")
        ctx.true(event["user-us"] + event["system-us"] < 10000000, f"{name}: {event}")
        # The control: a command that does nothing has used little.
        result, events = with_events(ctx, *shape, *life(ctx, "closed"), fds={})
        event = exit_event(ctx, events)
        ctx.true(event["user-us"] + event["system-us"] < 150000, f"{name}: {event}")
        ctx.true(event["max-rss-kib"] < 40 << 10, f"{name}: {event}")


@case("events", "SIGKILL to init, a forwarded signal and a second SIGTERM end with an exit event")
def events_of_violence(ctx):
    needs(ctx, "--events-fd")
    for name, shape in SHAPES.items():
        for kind in ("init", "forwarded", "second"):
            if kind == "forwarded" and shape is PID_1:
                continue
            fd = out_file(ctx, f"events-{kind}")
            argv = life(ctx, "signals", "9") if kind == "second" else ("sh", "-c", "echo ready; "
                                                                        "exec sleep 25")
            live = Live(ctx, *shape, "--forward-signals", "--kill-all", "--events-fd", str(EVENTS),
                        fds={EVENTS: fd}, argv=argv)
            live.ready()
            if kind == "init":
                os.kill(live.pid, signal.SIGKILL)
            else:
                os.kill(live.proc.pid, signal.SIGTERM)
            if kind == "second":
                ctx.eq(read_until(live.out, b"\n"), b"got TERM\n", name)
                os.kill(live.proc.pid, signal.SIGTERM)
            code = wait(live.proc)
            ctx.eq(code, 143 if kind == "forwarded" else 137, f"{name} {kind}: status")
            event = exit_event(ctx, parse_events(file_text(fd)))
            ctx.eq((event["code"], event["signal"]), (None, code - 128), f"{name} {kind}: {event}")
            os.close(fd)
            nothing_left(ctx, f"{name} {kind}")


@case("events", "--events-fd is closed to the command and to init, and its pipe ends with the "
      "program")
def events_descriptor(ctx):
    needs(ctx, "--events-fd")
    for name, shape in SHAPES.items():
        read, write = os.pipe()
        result = ctx.bw(*shape, "--events-fd", str(EVENTS), probe(ctx, "b_probe"), "fds",
                        fds={EVENTS: write})
        os.close(write)
        ctx.ok(result)
        ctx.true(not re.search(rf"^{EVENTS} ", result.out, re.M), f"{name}: {result.out}")
        ctx.true(at_end(read), f"{name}: there are events")
        exit_event(ctx, parse_events(read_until(read).decode()))
        os.close(read)
    # A process that is left behind must not hold it open either.
    read, write = os.pipe()
    sleeper = Sleeper(ctx, "--unshare-pid", "--events-fd", str(EVENTS), fds={EVENTS: write})
    os.close(write)
    ctx.eq(sleeper.finish_command(), 4, "status")
    exit_event(ctx, parse_events(read_until(read).decode()))
    os.close(read)
    sleeper.lives()
    sleeper.release()
    ctx.true(sleeper.ended(), "the process that was left behind ends")


@case("events", "an --events-fd that is not open is an error, and nothing is started")
def events_closed_descriptor(ctx):
    needs(ctx, "--events-fd")
    marker = ctx.dir + "/ran"
    for value in ("99", "-1", "x", ""):
        result = ctx.bw(*HOST, "--events-fd", value, "touch", marker)
        ctx.fails(result, rc=1, err="^bwrap: ")
        ctx.true(not os.path.exists(marker), f"{value!r}: nothing was started")
    read_only = os.open(ctx.write("file"), os.O_RDONLY)
    result = ctx.bw(*HOST, "--events-fd", str(EVENTS), "touch", marker, fds={EVENTS: read_only})
    ctx.true(result.rc == 1 or os.path.exists(marker), f"a descriptor that takes nothing\n{result}")
    os.close(read_only)


@case("events B18", "--info-fd and --json-status-fd keep their exact bytes beside --events-fd")
def bwrap_outputs_unchanged(ctx):
    needs(ctx, "--events-fd")
    for name, shape in SHAPES.items():
        texts = []
        for own in ((), own_options(ctx)):
            info, status, events = (out_file(ctx, word) for word in ("info", "status", "events"))
            result = ctx.bw(*shape, *own, "--info-fd", "60", "--json-status-fd", "61", "sh", "-c",
                            "exit 5", fds={60: info, 61: status, EVENTS: events})
            ctx.fails(result, rc=5)
            texts.append(tuple(re.sub(r"\d+", "N", file_text(fd)) for fd in (info, status)))
            ctx.true(file_text(status).endswith('{ "exit-code": 5 }\n'), name)
            for fd in (info, status, events):
                os.close(fd)
        ctx.eq(texts[0], texts[1], f"{name}: the two outputs, numbers aside")
