"""A terminal for end-to-end tests: a program on a pseudo-terminal of its own, and its user.

Python's standard library only. Every wait is bounded and fails with what the terminal has shown.
Nothing here registers a case.
"""

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

PATIENCE = 20.0  # Seconds; never waited for where things work.

INTERRUPT, STOP, END = "\x03", "\x1a", "\x04"


def controlling(slave):
    """For the time between fork and exec: a new session that this terminal controls."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def state_of(pid):
    """The letter of a process's state in /proc, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def in_foreground(pid):
    """Whether a process is in the foreground of the terminal that controls it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[2] == fields[5]


class Terminal:
    """A program that has been started on a new terminal as the leader of its session. The driver
    keeps both ends open, so that the terminal's state can be read after the program's end."""

    def __init__(self, ctx, *argv, size=(80, 24), env=None, cwd=None, stdin=None, stdout=None):
        """`size` is columns, rows. `stdin` and `stdout` replace the terminal where given."""
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.resize(*size)
        self.before = self.mode()
        self.data = b""   # Everything that was shown.
        self.at = 0       # Up to where expect() has got.
        full_env = dict(os.environ if env is None else env)
        full_env.setdefault("TERM", "xterm")
        slave = self.slave
        self.argv = [os.fspath(word) for word in argv]
        self.proc = subprocess.Popen(
            self.argv, stdin=slave if stdin is None else stdin,
            stdout=slave if stdout is None else stdout, stderr=slave, cwd=cwd, env=full_env,
            preexec_fn=lambda: controlling(slave), pass_fds=(slave,))
        ctx.started.append(self.proc)

    @property
    def pid(self):
        return self.proc.pid

    @property
    def text(self):
        """Everything that was shown so far."""
        return self.data.decode("utf-8", "replace")

    def __str__(self):
        return (f"argv: {self.argv}\nrc: {self.proc.poll()}\n"
                f"shown after the last match: {self.data[self.at:][-3000:]!r}\n"
                f"shown before: {self.data[:self.at][-1000:]!r}")

    def fail(self, why):
        raise AssertionError(f"{why}\n{self}")

    # -- the user --------------------------------------------------------------------------

    def pump(self, seconds):
        """Takes what the terminal shows, waiting at most so long for it. False: nothing came."""
        ready = select.select([self.master], [], [], max(0.0, seconds))[0]
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except BlockingIOError:
            return False
        self.data += data
        return bool(data)

    def send(self, keys):
        """Types all of it, looking at what is shown at the same time."""
        data = keys.encode() if isinstance(keys, str) else keys
        end = time.monotonic() + PATIENCE
        while data:
            if time.monotonic() > end:
                self.fail(f"{len(data)} bytes could not be typed")
            _, ready, _ = select.select([self.master], [self.master], [], 1.0)
            if ready:
                try:
                    data = data[os.write(self.master, data[:4096]):]
                    end = time.monotonic() + PATIENCE
                except BlockingIOError:
                    pass
            self.pump(0)

    def line(self, text):
        self.send(text + "\r")

    def expect(self, pattern, seconds=PATIENCE):
        """Waits until the terminal shows what matches a regular expression, and takes it and
        everything before it away. Returns the match."""
        regex = re.compile(pattern.encode(), re.M | re.S)
        end = time.monotonic() + seconds
        while True:
            match = regex.search(self.data, self.at)
            if match:
                self.at = match.end()
                return match
            left = end - time.monotonic()
            if left <= 0:
                self.fail(f"{pattern!r} was not shown within {seconds} s")
            if not self.pump(min(left, 0.5)) and self.proc.poll() is not None:
                while self.pump(0.05):
                    pass
                if not regex.search(self.data, self.at):
                    self.fail(f"the program ended before {pattern!r} was shown")

    def resize(self, columns, rows):
        """Another window size; the foreground group of this terminal gets SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self):
        for fd in (self.master, self.slave):
            os.close(fd)

    # -- the terminal's state --------------------------------------------------------------

    def mode(self):
        return termios.tcgetattr(self.slave)

    def is_raw(self):
        return not self.mode()[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def is_restored(self):
        return self.mode() == self.before

    def foreground(self):
        """The process group in the foreground."""
        return struct.unpack("i", fcntl.ioctl(self.master, termios.TIOCGPGRP, b"\0" * 4))[0]

    def until(self, predicate, why, seconds=PATIENCE):
        """Waits until something holds, looking at what is shown at the same time."""
        end = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > end:
                self.fail(f"{why} did not come true within {seconds} s")
            if not self.pump(0.01):
                time.sleep(0.01)

    # -- the program -----------------------------------------------------------------------

    def kill(self, number):
        os.kill(self.pid, number)

    def stopped(self):
        """Waits until the program has been stopped by a signal."""
        self.until(lambda: state_of(self.pid) == "T", "a stopped program")

    def wait(self, seconds=PATIENCE):
        """The exit status of the program, 128 and the signal's number when one ended it."""
        self.until(lambda: self.proc.poll() is not None, "the end of the program", seconds)
        # Everything was written before the end.
        while self.pump(0):
            pass
        code = self.proc.returncode
        return code if code >= 0 else 128 - code

    def ends(self, status=0):
        """The program ends with this status and leaves the terminal as it found it."""
        got = self.wait()
        if got != status:
            self.fail(f"expected status {status}, got {got}")
        if not self.is_restored():
            self.fail(f"the mode was {self.before} and is now {self.mode()}")
        return self
