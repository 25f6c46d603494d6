"""One run of one line under one program, and what came of it as keys with comparable texts."""

import errno
import fcntl
import os
import re
import resource
import select
import shlex
import signal
import subprocess
import time
import traceback

import surroundings as around
from datafile import expand

PROC_FD, FACTS_FD = 900, 901
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time",
              "time_for_children", "user", "uts")
ERRNO_TEXTS = {os.strerror(number) for number in errno.errorcode}
MOUNT_KEY = re.compile(r"(?:mount|hidden)\..*\.(device|root)$")


def facts():
    """What the probe compares with: the caller's namespaces, session and group."""
    text = (f"pid {os.getpid()}\nsession {os.getsid(0)}\ngroup {os.getpgrp()}\n"
            f"dev {os.stat('/dev').st_dev}\n")
    for name in NAMESPACES:
        try:
            text += f"ns.{name} {os.stat(f'/proc/self/ns/{name}').st_ino}\n"
        except OSError:
            pass
    return text


class Run:
    """`go()` returns the outcome: `status`, `stdout`, `stderr`, `left` (processes that stay),
    `out.N`, `tree.PATH`, and the probe's keys as they are."""

    def __init__(self, line, macros, top, link, is_reference):
        self.line, self.macros, self.top, self.link = line, macros, top, link
        self.is_reference = is_reference
        self.outcome, self.raw, self.terminal, self.holder = {}, {}, None, None

    def text(self, value):
        return expand(value, self.macros)

    def holder_pid(self):
        return self.holder.pid if self.holder else 0

    def go(self):
        around.remove_tree(self.top)
        server = around.make_tree(self.top)
        os.chdir(self.top)
        table = {}
        try:
            if self.line.setup:
                # A failed preparation would make both programs fail alike, and prove nothing.
                subprocess.run(["/bin/sh", "-ec", self.text(self.line.setup)], check=True,
                               stdin=subprocess.DEVNULL, env=self.environment())
            if self.line.holder:
                self.holder = around.Holder(self.line.holder)
            for number, kind, text in self.line.fds:
                table[number] = around.open_descriptor(kind, self.text(text), self.holder)
            for number in self.line.outs:
                table[number] = around.memory_file(b"")
            table[PROC_FD] = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            table[FACTS_FD] = around.memory_file(facts())
            self.execute(table)
        finally:
            os.chdir("/")
            for fd in table.values():
                os.close(fd)
            if self.holder:
                self.holder.close()
            server.close()
        return self.outcome

    def environment(self):
        path = f"{os.path.dirname(self.link)}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        env = {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8", "OUTER": "outer value",
               "PWD": self.top}
        if self.line.cwd != ".":
            env["PWD"] = os.path.join(self.top, self.line.cwd)
        for word in self.line.env:
            name, equals, value = self.text(word).partition("=")
            if equals:
                env[name] = value
            else:
                env.pop(name.lstrip("-"), None)
        return env

    # -- running

    def execute(self, table):
        out, err = around.memory_file(b"", "stdout"), around.memory_file(b"", "stderr")
        stdin, master = os.open("/dev/null", os.O_RDONLY), -1
        if self.line.stdin:
            os.close(stdin)
            kind, _, text = self.line.stdin.partition(" ")
            stdin = around.open_descriptor(kind, self.text(text), None)
        outputs = {0: stdin, 1: out, 2: err}
        if self.line.tty:
            master, outputs[1] = os.openpty()
            self.terminal = os.path.basename(os.ttyname(outputs[1]))
        child = os.fork()
        if child == 0:
            self.become_program(table, outputs)
        self.outcome["status"] = self.wait(child)
        self.collect_leftovers()
        text = read_back(out)
        if self.line.tty:
            os.close(outputs[1])
            text += drain(master).replace("\r\n", "\n")
            os.close(master)
        self.take_stdout(text)
        self.outcome["stderr"] = self.take_stderr(read_back(err))
        for number in self.line.outs:
            self.outcome[f"out.{number}"] = self.take_json(read_back(table[number]))
        self.outcome.update(around.describe_tree(self.top))
        for fd in (stdin, out, err):
            os.close(fd)

    def become_program(self, table, outputs):
        """The child's side of the fork; does not return."""
        words = shlex.split(self.text(self.line.wrap)) + [self.link]
        words += shlex.split(self.text(self.line.run))
        try:
            os.chdir(self.line.cwd)
            self.place_descriptors(table, outputs)
            os.umask(self.line.umask)
            for name, value in self.line.rlimit:
                limit = getattr(resource, "RLIMIT_" + name)
                resource.setrlimit(limit, (int(value), int(value)))
            # Python ignores some signals for itself.
            for number in (signal.SIGPIPE, signal.SIGINT, *self.line.ignore):
                ignored = number in self.line.ignore
                signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, self.line.block)
            os.setpgid(0, 0)
            os.execvpe(words[0], words, self.environment())
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(125)

    def place_descriptors(self, table, outputs):
        high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, 1000)
                for number, fd in {**table, **outputs}.items()}
        for number, fd in high.items():
            os.dup2(fd, number, inheritable=True)
        last = 3
        for number in sorted(table):
            os.closerange(last, number)
            last = number + 1
        os.closerange(last, 2000)
        for number in self.line.close:
            os.close(number)

    def wait(self, child):
        pidfd = os.pidfd_open(child)
        try:
            if not select.select([pidfd], [], [], self.line.timeout)[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "timeout"
        finally:
            os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return str(code if code >= 0 else 128 - code)

    def collect_leftovers(self):
        """Names what the run leaves running after a moment of grace, and ends it."""
        end = time.monotonic() + 0.4
        left = around.descendants(os.getpid(), self.holder_pid())
        while left and time.monotonic() < end:
            time.sleep(0.005)
            left = around.descendants(os.getpid(), self.holder_pid())
        names = filter(None, (around.name_of(pid) for pid in left))
        self.outcome["left"] = " ".join(sorted(names))
        end = time.monotonic() + 2
        while left and time.monotonic() < end:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.005)
            left = around.descendants(os.getpid(), self.holder_pid())
        around.reap_except(self.holder_pid())

    # -- making two outcomes comparable

    def paths(self, text):
        return text.replace(self.top, "$D").replace(self.link, "$BWRAP")

    def take_stdout(self, text):
        begin, end = text.find("probe=begin\n"), text.find("probe=end\n")
        if 0 <= begin < end:
            seen = dict(row.split("=", 1) for row in text[begin:end].splitlines()[1:])
            text = text[:begin] + text[end + len("probe=end\n"):]
            self.outcome["probe"] = "complete"
            self.take_probe(seen)
        if self.line.stdout == "first":
            text = text.split("\n", 1)[0]
        self.outcome["stdout"] = self.paths(text)

    def take_probe(self, seen):
        for key in [key for key in seen if key.startswith("raw.")]:
            self.raw[key] = seen.pop(key)
        devices = device_names(seen)
        for key, value in seen.items():
            mount = MOUNT_KEY.match(key)
            if mount and mount[1] == "device":
                value = devices[value]
            elif mount:
                value = normal_root(self.paths(value))
            if self.terminal and key in ("dev.console.device", "mount./dev/console.root"):
                value = re.sub(rf"^(136:|/){self.terminal}$", r"\1<terminal>", value)
            if self.terminal and value == f"/dev/pts/{self.terminal}":
                value = "/dev/pts/<terminal>"
            self.outcome[self.paths(key)] = self.paths(value)

    def take_stderr(self, text):
        """Every row without hint and suggestion; or as `stderr:` says."""
        rows = []
        for row in self.paths(text).splitlines():
            if re.match(r"(?:<\d>)?bwrap: ", row):
                # The reference shows its inner directories; nsbox must show the user's paths.
                if self.is_reference:
                    row = re.sub(r"(?:/newroot|/oldroot)(?=/|\b)", "", row)
                row = re.sub(r" \((?:hint: |did you mean ).*\)$", "", row)
            rows.append(row)
        mode, _, beginning = self.line.stderr.partition(" ")
        if mode == "any":
            return ""
        if mode == "first":
            return rows[0] if rows else ""
        if mode == "starts":
            wanted = self.paths(self.text(beginning))
            rows = [wanted if row.startswith(wanted) else row for row in rows]
        if mode == "begins":
            # Callers search for the beginning, and the errno text is the reason; the wording
            # between them is free.
            wanted = self.paths(self.text(beginning))
            rows = [f"{wanted}... {errno_text(row)}" if row.startswith(wanted) else row
                    for row in rows]
        return "\n".join(rows)

    def take_json(self, text):
        """Pids and namespace numbers by meaning instead of by value."""
        def pid(match):
            known = {self.raw.get("raw.ppid"): "command's parent",
                     self.raw.get("raw.pid"): "command"}
            return f"{match[1]}<{known.get(match[2], 'pid')}>"

        def inode(match):
            own = self.raw.get("raw.ns." + match[2])
            which = "unknown" if own is None else "own" if own == match[3] else "other"
            return f"{match[1]}<{which} {match[2]}>"

        text = re.sub(r'("child-pid": )(\d+)', pid, text)
        return self.paths(re.sub(r'("(\w+)-namespace": )(\d+)', inode, text))


def read_back(fd):
    os.lseek(fd, 0, os.SEEK_SET)
    data = b""
    while chunk := os.read(fd, 1 << 20):
        data += chunk
    return data.decode("utf-8", "backslashreplace")


def drain(master):
    """What a terminal's other side wrote; the end shows as an error there."""
    data = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            chunk = b""
        if not chunk:
            return data.decode("utf-8", "backslashreplace")
        data += chunk


def errno_text(row):
    tail = row.rpartition(": ")[2]
    return tail if tail in ERRNO_TEXTS else ""


def device_names(seen):
    """The caller's devices keep their numbers; new ones are counted by order of mount point."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        known = {row.split()[2] for row in file}
    names, count = {}, 0
    for key in sorted(seen, key=lambda key: (not key.startswith("mount."), key)):
        mount = MOUNT_KEY.match(key)
        if mount and mount[1] == "device" and seen[key] not in names:
            count += seen[key] not in known
            names[seen[key]] = seen[key] if seen[key] in known else f"new{count}"
    return names


def normal_root(root):
    """The reference keeps its tree below names of its own on its private tmpfs, and those are
    nobody's contract."""
    root = re.sub(r"^/newroot(?=/|$)", "", root) or "/"
    return re.sub(r"^/[^/]*//deleted$", "<unlinked file>", root)
