"""Terminals: the reported bugs of group T, and real programs on a terminal of the sandbox's own."""

import fcntl
import hashlib
import os
import re
import signal
import struct
import termios

from casekit import needs, tool
from harness import case, descendants
from ptykit import END, INTERRUPT, STOP, Terminal, in_foreground

PYTHON = "/usr/bin/python3"

# Without and with a pid namespace; as root and as an ordinary user by the runner.
SHAPES = (("--bind", "/", "/", "--dev", "/dev"),
          ("--bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"))

# A prompt that occurs nowhere else, in a bash that reads nobody's files.
PROMPT = r"ready-\d+> "
BASH = ("env", "-u", "INPUTRC", "PS1=ready-\\#> ", "HISTFILE=", "bash", "--norc", "--noprofile",
        "-i")
RAW_PYTHON = "import tty, os, sys, termios; tty.setraw(0); "


def sandbox(ctx, shape, *words, size=(80, 24), **kw):
    """A program on a terminal of a sandbox, on a terminal of this driver."""
    needs(ctx, "--pty")
    return Terminal(ctx, ctx.bwrap, "--pty", *shape, *words, size=size, **kw)


def without_terminal(ctx, shape, *words, options=(), **kw):
    needs(ctx, "--pty")
    return ctx.run(ctx.nsbox, "--pty", *options, *shape, *words, **kw)


def shell(ctx, shape, **kw):
    """An interactive bash that shows its prompt."""
    term = sandbox(ctx, shape, *BASH, **kw)
    term.expect(PROMPT)
    return term


# -- T01 -----------------------------------------------------------------------------------------

# Tells for each request what the kernel says. The number of an ioctl is an unsigned int for the
# kernel, whatever stands in the upper half of the register.
INJECT = r'''
import ctypes, errno, os, platform, sys
number = {"x86_64": 16, "aarch64": 29}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
letter = ctypes.create_string_buffer(b"Z")
lines = []
for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C)):
    for high in (0, 1 << 32, 1 << 63, 0xffffffff << 32):
        for path in (None, "/dev/tty"):
            fd = 0 if path is None else os.open(path, os.O_RDWR)
            rc = libc.syscall(ctypes.c_long(number), ctypes.c_long(fd),
                              ctypes.c_ulong(request | high), letter)
            lines.append(f"{name} {high:x} {path or 0}: " +
                         ("done" if rc == 0 else errno.errorcode[ctypes.get_errno()]))
            if path:
                os.close(fd)
print("\n" + "\n".join(lines))
print("end of list", flush=True)
'''


def injections(term):
    """What the probe said, by request."""
    term.expect(r"end of list")
    found = re.findall(r"^(TIOC\w+) (\w+) (\S+): (\w+)", term.text.replace("\r", ""), re.M)
    if len(found) != 16:
        term.fail(f"{len(found)} lines of 16")
    return {(name, high, where): said for name, high, where, said in found}


def control(ctx, script):
    """Outside, characters can be typed by a program; where that is switched off, nothing can be
    shown."""
    term = Terminal(ctx, PYTHON, script)
    said = injections(term)
    term.wait()
    if "EIO" in said.values() and "done" not in said.values():
        ctx.skip("dev.tty.legacy_tiocsti is 0: no program can type into a terminal here")
    for (name, high, where), word in said.items():
        ctx.eq(word, "done" if name == "TIOCSTI" else "ENOTTY",
               f"the control of {name} {high} on {where}, outside")
    ctx.eq(typed_ahead(term), 8, "characters that wait in the control's terminal")


def typed_ahead(term):
    """How many characters wait in the terminal outside."""
    # In a mode in which also those count that no line's end follows.
    mode = term.mode()
    mode[3] &= ~termios.ICANON
    termios.tcsetattr(term.slave, termios.TCSANOW, mode)
    return struct.unpack("i", fcntl.ioctl(term.slave, termios.FIONREAD, b"\0" * 4))[0]


def refused(ctx, term):
    for key, word in injections(term).items():
        ctx.eq(word, "EPERM", f"{key} inside")
    ctx.eq(term.wait(), 0, "the probe's status")
    # Not into the terminal outside either.
    ctx.eq(typed_ahead(term), 0, "characters that wait in the terminal outside")


@case("T01", "a program on the sandbox's own terminal can type nothing into it or into the one "
      "outside")
def inject_own(ctx):
    script = ctx.write("inject.py", INJECT)
    control(ctx, script)
    for shape in SHAPES:
        for words in ((), ("--new-session",)):
            refused(ctx, sandbox(ctx, shape, *words, PYTHON, script))


@case("T01", "a program that the outer terminal is passed to can type nothing into it")
def inject_passed(ctx):
    needs(ctx, "--pty")
    script = ctx.write("inject.py", INJECT)
    control(ctx, script)
    for shape in SHAPES:
        refused(ctx, Terminal(ctx, ctx.nsbox, *shape, PYTHON, script))


# -- T02, T03, T06 -------------------------------------------------------------------------------

def interrupt_python(term):
    """Python itself loses a signal that comes just before it goes to sleep, also without nsbox: as
    a person would, this tries again."""
    for attempt in range(8):
        term.send(INTERRUPT)
        try:
            term.expect(r"KeyboardInterrupt", seconds=2.5)
            return
        except AssertionError:
            if attempt == 7:
                raise


@case("T02", "Ctrl-C in a python REPL raises KeyboardInterrupt, and the session goes on",
      timeout=120)
def python_repl(ctx):
    for shape in SHAPES:
        term = sandbox(ctx, shape, PYTHON, "-q")
        term.expect(r">>> ")
        term.line("import time; print('a' 'sleep'); time.sleep(600)")
        term.expect(r"[\r\n]asleep\r?\n")
        interrupt_python(term)
        term.expect(r">>> ")
        term.line("print(6 * 7)")
        term.expect(r"[\r\n]42\r?\n")
        term.expect(r">>> ")
        # What is typed before the program is there to be interrupted is thrown away with it.
        term.line("while True: print('lo' 'op'); time.sleep(600)")
        term.expect(r"\.\.\. ")
        term.line("")
        term.expect(r"[\r\n]loop\r?\n")
        interrupt_python(term)
        term.expect(r">>> ")
        term.line("raise SystemExit(9)")
        term.ends(9)


def until_trapped(term):
    """A shell that is reading a line runs a trap with the next one. The key may come to it before
    the signal does."""
    for _ in range(9):
        term.line("")
        try:
            return term.expect(r"changed", seconds=2)
        except AssertionError:
            pass
    return term.expect(r"changed")


@case("T03", "with --pty a shell has job control, window sizes and /dev/tty, also with "
      "--new-session", timeout=120)
def new_session(ctx):
    for shape in SHAPES:
        for words in ((), ("--new-session",)):
            term = shell(ctx, (*shape, *words), size=(91, 27))
            warned = re.search(r"no job control|cannot set terminal process group", term.text)
            ctx.true(not warned, f"the shell found its terminal\n{term}")
            term.line("stty size")
            term.expect(r"[\r\n]27 91\r")
            term.expect(PROMPT)
            term.line("trap 'echo chan''ged' WINCH")
            term.expect(PROMPT)
            term.resize(120, 40)
            until_trapped(term)
            term.line("stty size")
            term.expect(r"[\r\n]40 120\r")
            term.line("echo writ''ten >/dev/tty")
            term.expect(r"[\r\n]written\r")
            term.line("set -o | grep monitor")
            term.expect(r"monitor\s+on")
            term.line("exit 4")
            term.ends(4)


@case("T03", "/dev/tty and /dev/console are the sandbox's terminal and can be written", timeout=120)
def special_files(ctx):
    for shape in SHAPES:
        term = shell(ctx, shape)
        for path in ("/dev/tty", "/dev/console", "$(tty)"):
            term.line(f"echo writ''ten-to >{path} && echo sta''tus $?")
            term.expect(r"[\r\n]written-to\r")
            term.expect(r"[\r\n]status 0\r")
            term.expect(PROMPT)
        term.line("test -t 0 -a -t 1 -a -t 2 && tty")
        term.expect(r"[\r\n]/dev/(pts/\d+|console)\r")
        term.line("exit")
        term.ends(0)


@case("T06", "without a terminal outside the size is that of --pty-size", timeout=120)
def size_option(ctx):
    for shape in SHAPES:
        for size, wanted in (("100x30", "30 100"), ("1x1", "1 1"), ("500x200", "200 500")):
            result = without_terminal(ctx, shape, "stty", "size", options=("--pty-size", size))
            ctx.eq(ctx.ok(result).out, wanted + "\r\n", f"the size {size}")
        # Without the option there is a size as well, one that programs can use.
        rows, columns = ctx.ok(without_terminal(ctx, shape, "stty", "size")).out.split()
        ctx.true(int(rows) > 0 and int(columns) > 0, "some size")


@case("T06", "a --pty-size that is no size is refused")
def size_refused(ctx):
    for size in ("", "80", "80x", "x24", "80x24x1", "0x24", "-1x24", "70000x24", "80x24 ", "axb"):
        result = ctx.fails(without_terminal(ctx, SHAPES[0], "echo", "started",
                                            options=("--pty-size", size)))
        ctx.eq(result.out, "", f"nothing was started with {size!r}")
    ctx.ok(without_terminal(ctx, SHAPES[0], "echo", "started", options=("--pty-size", "80x24")),
           out="started")


@case("T06", "a program has a terminal although nothing outside is one, closed descriptors "
      "included", timeout=120)
def no_terminal(ctx):
    look = ("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && : >/dev/tty && exit 11; exit 12")
    for shape in SHAPES:
        ctx.eq(without_terminal(ctx, shape, *look).rc, 11, "with pipes and /dev/null")
        # The control: without the option there is none.
        ctx.eq(ctx.run(ctx.nsbox, *shape, *look).rc, 12, "without --pty")
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            def close(closed=closed):
                for fd in closed:
                    os.close(fd)
            result = without_terminal(ctx, shape, *look, pre=close)
            ctx.eq(result.rc, 11, f"with {closed} closed\n{result}")


@case("T06", "input through a pipe reaches the program, and its end is the end", timeout=120)
def piped_input(ctx):
    count = ("sh", "-c", "stty -echo; cat | wc -c; exit 3")
    for shape in SHAPES:
        for text in ("", "one\n", "one\ntwo", "x\n" * 20000):
            result = without_terminal(ctx, shape, *count, input=text)
            ctx.fails(result, rc=3)
            # What was echoed before the command could turn that off may stand before it.
            found = re.search(r"(?:^|\D)(\d+)\r\n$", result.out)
            ctx.eq(found and int(found[1]), len(text), f"the bytes that arrived\n{result}")
        twice = without_terminal(ctx, shape, "sh", "-c", "cat; cat; echo fin''ished", input="a\n")
        ctx.true("finished" in ctx.ok(twice).out, "the end stays")
        repl = without_terminal(ctx, shape, *BASH, input="echo $((6 * 7))\n")
        ctx.true(re.search(r"[\r\n]42\r\n", repl.out), f"a shell with a line editor\n{repl}")


@case("T06", "what the program wrote before its end is all there", timeout=120)
def drained(ctx):
    # Without the translation of line ends, what arrives is what was written.
    program = (RAW_PYTHON + "import random; sys.stdout.buffer.write(random.Random(5)"
               ".randbytes(1000000)); sys.stdout.flush(); os._exit(6)")
    import random
    wanted = random.Random(5).randbytes(1000000)
    for shape in SHAPES:
        for _ in range(3):
            needs(ctx, "--pty")
            proc = ctx.popen(ctx.nsbox, "--pty", *shape, PYTHON, "-c", program)
            out, err = proc.communicate(timeout=30)
            ctx.eq(proc.returncode, 6, f"status\n{err!r}")
            ctx.true(out == wanted, f"{len(out)} of {len(wanted)} bytes, the first difference at "
                     f"{next((i for i, (a, b) in enumerate(zip(out, wanted)) if a != b), None)}")
        term = sandbox(ctx, shape, PYTHON, "-c", program)
        ctx.eq(term.wait(), 6, "status on a terminal")
        ctx.true(term.data == wanted, f"{len(term.data)} of {len(wanted)} bytes on a terminal")


@case("T06", "a reader that goes away does not keep the sandbox", timeout=120)
def reader_gone(ctx):
    for shape in SHAPES:
        needs(ctx, "--pty")
        proc = ctx.popen(ctx.nsbox, "--pty", *shape, "sh", "-c", "seq 200000; exit 6")
        os.read(proc.stdout.fileno(), 100)
        proc.stdout.close()
        # The command is allowed to see a hang-up, but nobody may wait for ever.
        ctx.true(proc.wait(20) in (6, 129, 141), f"status {proc.returncode}")


@case("T06", "the exit status is that of the command, also when a signal ended it", timeout=120)
def statuses(ctx):
    for shape in SHAPES:
        for script, status in (("exit 0", 0), ("exit 7", 7), ("exit 255", 255),
                               ("kill -TERM $$", 143), ("kill -KILL $$", 137),
                               ("kill -HUP $$", 129)):
            ctx.eq(without_terminal(ctx, shape, "sh", "-c", script).rc, status, script)
            sandbox(ctx, shape, "sh", "-c", script).ends(status)
        result = without_terminal(ctx, shape, "no-such-command")
        ctx.fails(result, rc=1)
        ctx.true("execvp no-such-command: No such file or directory" in result.out + result.err,
                 f"the message\n{result}")
        term = sandbox(ctx, shape, "no-such-command")
        term.ends(1)
        ctx.true("No such file or directory" in term.text, f"the message is shown\n{term}")


# -- the terminal outside ------------------------------------------------------------------------

@case("PTY-raw", "the outer terminal is raw while the command runs, and restored at its end",
      timeout=120)
def raw_and_back(ctx):
    for shape in SHAPES:
        term = sandbox(ctx, shape, "sh", "-c", "echo run''ning; read -r x; exit 5")
        term.expect("running")
        term.until(term.is_raw, "raw mode outside")
        term.line("")
        term.ends(5)


@case("PTY-raw", "the outer terminal is restored after SIGKILL of the command", timeout=120)
def killed(ctx):
    for shape in SHAPES:
        term = sandbox(ctx, shape, "sh", "-c", "stty raw -echo; echo run''ning; exec sleep 77")
        term.expect("running")
        term.until(term.is_raw, "raw mode outside")
        found = ctx.until(lambda: [pid for pid, name in descendants(term.pid) if name == "sleep"],
                          why="the command's process")
        os.kill(found[0], signal.SIGKILL)
        term.ends(137)


@case("PTY-raw", "the outer terminal is restored when nsbox fails before the command runs",
      timeout=120)
def failed_start(ctx):
    for shape in SHAPES:
        for words in (("--bind", "/nonexistent", "/mnt", "true"), ("--chdir", "/nonexistent",
                                                                   "true")):
            term = sandbox(ctx, shape, *words)
            term.ends(1)
            ctx.true("nonexistent" in term.text, f"the message is shown\n{term}")


@case("PTY-stop", "SIGTSTP of nsbox gives the terminal back, SIGCONT takes it again", timeout=120)
def stop_and_continue(ctx):
    for shape in SHAPES:
        term = sandbox(ctx, shape, "sh", "-c", "echo run''ning; read -r x; echo \"got:$x\"")
        term.expect("running")
        term.until(term.is_raw, "raw mode outside")
        term.kill(signal.SIGTSTP)
        term.stopped()
        ctx.true(term.is_restored(), "the mode while nsbox is stopped")
        term.resize(111, 33)
        term.kill(signal.SIGCONT)
        term.until(term.is_raw, "raw mode after SIGCONT")
        term.line("hello")
        term.expect("got:hello")
        term.ends(0)


@case("PTY-size", "the size is right from the command's first moment, and after each change",
      timeout=120)
def sizes(ctx):
    # A handler of Python's would wait for the end of a read(2) that begins just after the signal.
    program = ("import os, select, signal, sys\n"
               "size = lambda: os.write(1, b'size %d %d\\n' % tuple(os.get_terminal_size()))\n"
               "come, went = os.pipe(); os.set_blocking(went, False); signal.set_wakeup_fd(went)\n"
               "signal.signal(signal.SIGWINCH, lambda *_: None); size()\n"
               "while 0 not in select.select([0, come], [], [])[0]: os.read(come, 64); size()\n"
               "sys.exit(2)")
    for shape in SHAPES:
        term = sandbox(ctx, shape, PYTHON, "-c", program, size=(133, 41))
        term.expect(r"size \d+ \d+\r")
        ctx.eq(term.text.splitlines()[0], "size 133 41", "the first size that was seen")
        for columns, rows in ((20, 5), (200, 60), (1, 1)):
            term.resize(columns, rows)
            term.expect(rf"[\r\n]size {columns} {rows}\r")
        term.line("")
        term.ends(2)


@case("PTY-hup", "when the outer terminal is hung up the command is", timeout=120)
def hung_up(ctx):
    for shape in SHAPES:
        term = sandbox(ctx, shape, "sh", "-c", "echo run''ning; cat; sleep 77")
        term.expect("running")
        term.hang_up()
        term.proc.wait(20)
        ctx.until(lambda: not descendants(term.pid), why="the end of what ran inside")


@case("PTY-shell", "a shell outside has the foreground back, whatever ended the sandbox",
      timeout=180)
def outer_shell(ctx):
    needs(ctx, "--pty")
    for shape in SHAPES:
        term = Terminal(ctx, *BASH)
        term.expect(PROMPT)
        line = " ".join((ctx.nsbox, "--pty", *shape))
        for script in ("exit 3", "kill -KILL $$", "stty raw; kill -KILL $$",
                       "bash --norc -ic 'kill -KILL $$'"):
            ctx.write("job.sh", script)
            term.line(f"{line} sh {ctx.dir}/job.sh; echo sta''tus $?")
            term.expect(r"[\r\n]status (3|137)\r")
            term.expect(PROMPT)
            term.until(lambda: term.foreground() == term.pid, "the shell in the foreground")
        # The sandbox as a job: stopped from outside, in the background, and back.
        ctx.write("job.sh", "echo run''ning; while read -r x; do echo \"got:$x\"; done; exit 6")
        term.line(f"{line} sh {ctx.dir}/job.sh")
        term.expect("running")
        term.until(lambda: term.is_raw() and term.foreground() != term.pid, "the job")
        os.kill(term.foreground(), signal.SIGTSTP)
        term.expect("Stopped")
        term.expect(PROMPT)
        term.until(lambda: not term.is_raw() and term.foreground() == term.pid, "the shell")
        term.line("fg")
        term.until(lambda: term.is_raw() and term.foreground() != term.pid, "the job again")
        term.line("hello")
        term.expect("got:hello")
        term.send(END)
        term.expect(PROMPT)
        term.line("echo sta''tus $?")
        term.expect(r"[\r\n]status 6\r")
        term.line("exit 0")
        ctx.eq(term.wait(), 0, "the shell's status")


@case("PTY-background", "in the background of a shell the sandbox shows its output, reads nothing "
      "and leaves the mode alone", timeout=120)
def background(ctx):
    needs(ctx, "--pty")
    for shape in SHAPES:
        term = Terminal(ctx, *BASH)
        term.expect(PROMPT)
        ctx.write("job.sh", "echo run''ning; read -r x; echo \"got:$x\"; exit 6")
        term.line(" ".join((ctx.nsbox, "--pty", *shape, "sh", ctx.dir + "/job.sh", "&")))
        term.expect("running")
        term.line("echo she''ll")
        term.expect(r"[\r\n]shell\r")
        term.expect(PROMPT)
        ctx.true(not term.is_raw() and term.foreground() == term.pid, "the terminal is the shell's")
        term.line("fg")
        term.until(lambda: term.is_raw() and term.foreground() != term.pid, "the job in front")
        term.line("job")
        term.expect("got:job")
        term.expect(PROMPT)
        term.line("exit 0")
        ctx.eq(term.wait(), 0, "the shell's status")


# -- what is typed -------------------------------------------------------------------------------

@case("PTY-eof", "Ctrl-D ends cat, and Ctrl-\\ and Ctrl-C end it by their signals", timeout=120)
def keys(ctx):
    for shape in SHAPES:
        for key, status in ((END, 0), (INTERRUPT, 130), ("\x1c", 131)):
            # Not a shell that would take these signals itself.
            term = sandbox(ctx, shape, "sh", "-c", "ulimit -c 0; echo run''ning; exec cat")
            term.expect("running")
            term.line("echoed")
            term.expect(r"echoed\r\r?\nechoed\r")
            term.send(key)
            term.ends(status)


@case("PTY-paste", "megabytes that are pasted arrive whole, and everything shown comes out",
      timeout=180)
def paste(ctx):
    data = bytes(range(256)) * 8192  # 2 MiB of every byte.
    program = (RAW_PYTHON + "import hashlib, time; os.write(1, b'ready'); time.sleep(0.2)\n"
               f"left = {len(data)}; sum = hashlib.sha256()\n"
               "while left:\n    got = os.read(0, min(left, 65536)); left -= len(got)\n"
               "    sum.update(got); os.write(1, b'.')\n"
               "print('sum', sum.hexdigest(), flush=True)")
    for shape in SHAPES:
        term = sandbox(ctx, shape, PYTHON, "-c", program)
        term.expect("ready")
        term.send(data)
        term.expect("sum " + hashlib.sha256(data).hexdigest())
        term.ends(0)


@case("PTY-paste", "thousands of lines that are pasted into a program that reads lines arrive",
      timeout=180)
def paste_lines(ctx):
    lines = "".join(f"line {n} {'x' * (n % 100)}\r" for n in range(20000))
    wanted = hashlib.sha256(lines.replace("\r", "\n").encode()).hexdigest()
    for shape in SHAPES:
        term = sandbox(ctx, shape, "sh", "-c", "echo rea''dy; exec sha256sum")
        term.expect("ready")
        term.send(lines)
        term.send(END)
        term.expect(wanted)
        term.ends(0)


# -- real programs -------------------------------------------------------------------------------

@case("PTY-bash", "bash stops, continues, lists and ends jobs, and background jobs write",
      timeout=180)
def job_control(ctx):
    def sleeps_in_front():
        return any(name == "sleep" and in_foreground(pid) for pid, name in descendants(term.pid))

    for shape in SHAPES:
        term = shell(ctx, shape)
        term.line("sleep 77")
        term.expect(r"sleep 77\r?\n")
        ctx.until(sleeps_in_front, why="sleep")
        term.send(STOP)
        term.expect(r"\[1\]\+\s+Stopped\s+sleep 77")
        term.expect(PROMPT)
        term.line("bg")
        term.expect(r"\[1\]\+ sleep 77 &")
        term.expect(PROMPT)
        term.line("jobs")
        term.expect(r"\[1\]\+\s+Running\s+sleep 77")
        term.expect(PROMPT)
        term.line("fg")
        term.expect(r"fg\r?\n.*?sleep 77")
        # bash names the job before it gives it the terminal; only then is it interrupted.
        ctx.until(sleeps_in_front, why="the job in the foreground")
        term.send(INTERRUPT)
        term.expect(PROMPT)
        term.line("echo sta''tus $?; jobs; echo no''more")
        term.expect(r"[\r\n]status 130\r?\nnomore")
        term.expect(PROMPT)
        term.line("(for i in 1 2 3; do sleep 0.1; echo back''ground $i; done) &")
        for number in (1, 2, 3):
            term.expect(rf"background {number}")
        term.line("wait; echo do''ne")
        term.expect(r"[\r\n]done\r")
        term.expect(PROMPT)
        # A job in the background may not read.
        term.line("cat &")
        term.expect(PROMPT)
        term.line("until jobs | grep -q Stopp''ed; do sleep 0.05; done; jobs")
        term.expect(r"Stopped\s+cat")
        term.line("kill %1; kill -CONT %1; wait; exit 5")
        term.ends(5)


# Ctrl-G.
ABOUT = "\x07"


def interrupt_vim(term):
    """Interrupted, vim throws away what was typed ahead, and some of what is typed soon after.
    Types the one key that asks for the file's state until it is heard."""
    # vim draws only what changed of a line.
    answer = r"odified\]|--\d+%--"
    term.send(INTERRUPT)
    for _ in range(9):
        term.send(ABOUT)
        try:
            return term.expect(answer, seconds=2)
        except AssertionError:
            pass
    return term.expect(answer)


@case("PTY-vim", "vim edits and saves a file, and follows a change of the window's size",
      timeout=180)
def vim(ctx):
    path = tool(ctx, "vim")
    for number, shape in enumerate(SHAPES):
        name = f"{ctx.dir}/text{number}"
        term = sandbox(ctx, shape, path, "-u", "NONE", "-i", "NONE", "-n", name)
        term.expect(r"text\d")
        term.send("ihello from vim")
        term.expect("hello from vim")
        interrupt_vim(term)
        term.send(":echo 'command' 'mode'\r")
        term.expect("command mode")
        term.resize(100, 50)
        # The last line but one of the larger window.
        term.expect(r"\x1b\[49;1H")
        term.send(":echo 'now' &columns\r")
        term.expect("now 100")
        term.send(":call append('$', &columns . ' by ' . &lines)\r")
        term.expect("100 by 50")
        interrupt_vim(term)
        term.send(":wq\r")
        term.ends(0)
        with open(name, encoding="ascii") as file:
            ctx.eq(file.read(), "hello from vim\n100 by 50\n", "the saved file")


@case("PTY-less", "less shows a file page by page and ends by its key", timeout=120)
def less(ctx):
    path = tool(ctx, "less")
    name = ctx.write("long", "".join(f"line number {n}\n" for n in range(500)))
    for shape in SHAPES:
        term = sandbox(ctx, shape, "env", "LESS=", "LESSHISTFILE=-", path, name)
        term.expect("line number 10")
        term.send("G")
        term.expect("line number 499")
        term.send("/number 77$\r")
        term.send("g")
        term.expect("line number 3")
        term.send("q")
        term.ends(0)
        # Its input is a pipe; the keys come from /dev/tty.
        term = sandbox(ctx, shape, "sh", "-c", f"cat {name} | LESS= LESSHISTFILE=- {path}")
        term.expect("line number 10")
        term.send("q")
        term.ends(0)


@case("PTY-top", "top shows processes again and again and ends by its key", timeout=120)
def top(ctx):
    path = tool(ctx, "top")
    for shape in SHAPES:
        term = sandbox(ctx, shape, "env", f"HOME={ctx.dir}", path, "-d", "0.3", size=(100, 30))
        term.expect(r"PID +USER")
        for _ in range(3):
            term.expect(r"load average")
        term.send("q")
        term.ends(0)


@case("PTY-tmux", "tmux in the sandbox runs a shell in a terminal of its own", timeout=120)
def tmux(ctx):
    path = tool(ctx, "tmux")
    for number, shape in enumerate(SHAPES):
        term = sandbox(ctx, shape, "env", "-u", "TMUX", "LC_ALL=C.UTF-8", path, "-S",
                       f"{ctx.dir}/socket{number}", "-f", "/dev/null", "new-session", "sh")
        term.expect(r"[#$] ")
        term.line("echo in''side; stty size")
        term.expect("inside")
        term.expect(r"23 80")
        term.line("exit")
        term.ends(0)


@case("PTY-driver", "the driver itself: control of everything above, without a sandbox")
def driver(ctx):
    term = Terminal(ctx, *BASH, size=(77, 22))
    term.expect(PROMPT)
    term.line("stty size")
    term.expect(r"[\r\n]22 77\r")
    term.expect(PROMPT)
    ctx.eq(term.foreground(), term.pid, "the shell is in the foreground")
    # Words that are typed before a program runs may be read by another one.
    term.line("echo up''-; cat")
    term.expect(r"[\r\n]up-\r?\n")
    term.line("twi''ce")
    term.expect(r"twi''ce\r\n(.*\n)?twi''ce\r\n")
    ctx.true(term.foreground() != term.pid, "a job is in the foreground")
    term.send(INTERRUPT)
    term.expect(PROMPT)
    ctx.eq(term.foreground(), term.pid, "the shell is in the foreground again")
    try:
        term.expect("this is never shown", seconds=0.3)
    except AssertionError as error:
        ctx.true("was not shown" in str(error), "the message")
    else:
        raise AssertionError("expect() found what is not there")
    term.line("stty raw -echo; exec sleep 0.01")
    ctx.eq(term.wait(), 0, "the status")
    ctx.true(not term.is_restored(), "a mode that was changed is seen")
    try:
        Terminal(ctx, "sh", "-c", "exit 3").ends(4)
    except AssertionError as error:
        ctx.true("expected status 4, got 3" in str(error), "the message")
    else:
        raise AssertionError("ends() took the wrong status")
