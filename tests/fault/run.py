#!/usr/bin/python3
"""Fault injection on every system call of the launch path.

    tests/fault/run.py --nsbox build/nsbox [--library build/tests/fault/library-starts]
        [--as root|user|both] [--full] [--only REGEX] [--list]

For each of some command lines, a first run under a tracer (inject.c) shows which system calls
every process of nsbox makes until the command has ended. Then each of those calls is made to fail
in a run of its own: fitting errors take turns and of a loop over one call only some are taken;
`--full` tries everything. Each such run has to

  * work: the command runs, confined in every respect that was asked for (probe.c reports what it
    sees and that has to equal the run without a fault), and the exit status is 0; or
  * fail cleanly: exit status 1, one line on stderr that begins with `bwrap: `, the command never
    started, or was confined while it ran;

and in both cases end in time and leave no process, no mount in the caller's mount namespace
(which is set up to receive whatever is not kept from it) and no new file in the caller's
directory or in /tmp.

Some lines are not those of nsbox but of an application of the library (library_starts.cpp), which makes a
sandbox for many commands and uses it. It answers as nsbox does, and tries again what has failed, which has
to work then. At its end it may have no descriptor and no child left that the library gave it.

Calls of libc before main() are held to the second half only: libc answers those failures.
Calls that cannot fail are left out (NEVER_FAILS). Processes are named by their place in the tree:
0 is the program started, 0.1 its first child, 0.1.1 that one's first child.

Environment: NSBOX_TEST_USER names the ordinary user (default nsbox-test), NSBOX_TEST_BWRAP names
another program to run in place of nsbox. Ends with `N passed, N failed, N skipped`.
"""

import argparse
import collections
import ctypes
import json
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from calls import call_numbers, errors_for  # noqa: E402
from lines import Place, command_lines, slurp  # noqa: E402
from worker import Worker  # noqa: E402

MAX_UNREACHED = 0.03


def build(folder):
    for name, flags in (("inject", []), ("probe", ["-static"])):
        subprocess.run(["cc", "-O1", *flags, "-o", os.path.join(folder, name),
                        os.path.join(HERE, name + ".c")], check=True)
    return os.path.join(folder, "inject"), os.path.join(folder, "probe")


def find_library_starts(options):
    beside = os.path.dirname(os.path.abspath(options.nsbox))
    places = [options.library] if options.library else [f"{beside}/library-starts",
                                                        f"{beside}/tests/fault/library-starts"]
    found = [place for place in places if os.access(place, os.X_OK)]
    if not found:
        sys.exit(f"tests/fault/run.py: there is no {' and no '.join(places)}")
    return os.path.abspath(found[0])


MS_REC, MS_PRIVATE, MS_SHARED, MS_NOSUID, MS_NODEV = 0x4000, 1 << 18, 1 << 20, 2, 4
CLONE_NEWNS = 0x20000


def private_mounts():
    """A mount namespace of our own with an empty /tmp, and shared, so that a mount which the
    program under test fails to keep to itself shows up here."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(rc):
        if rc != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=1777"))
    check(libc.mount(None, b"/", None, MS_REC | MS_SHARED, None))


def become(user):
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def chosen_errors(point, options, salt):
    errors = errors_for(point.call)
    if options.full:
        return errors
    return [errors[(point.occurrence + salt) % len(errors)]]


def describe(point, error):
    return (f"{point.line} process {point.process}: {point.call} number {point.occurrence} "
            f"({point.detail}) fails with {error}")


def reproduction(options, worker, line, point, error, points, who):
    """Commands that show the failure again: strace's (which cannot tell processes apart) and
    this script's."""
    command = " ".join(map(shlex.quote, worker.command(line)))
    files = "".join(f" {n}<{shlex.quote(path)}" for n, path in line.fds.items())
    files += "".join(f" {n}>/tmp/{name}" for n, name in line.outs.items())
    # The tracer does not count the exec that starts the program, strace does.
    when = point.occurrence + (point.call == "execve" and point.process == "0")
    others = sorted({p.process for p in points if p.process != point.process
                     and p.number == point.number and p.occurrence >= point.occurrence})
    text = (f"strace -f -e trace={point.call} -e inject={point.call}:error={error}:when={when} "
            f"{command}{files}")
    if others:
        text += f"   # strace also hits process {' and '.join(others)}"
    only = re.escape(describe(point, error).split(" (")[0]).replace("\\ ", " ")
    return [text, f"tests/fault/run.py --nsbox {options.nsbox} --as {who} --line {line.name} "
            f"--full --only '{only} .*{error}'"]


def work(options, who, index, numbers, pipe):
    """One worker process: learns by itself, then injects its share of the points."""

    def say(**message):
        os.write(pipe, (json.dumps(message) + "\n").encode())

    root = who == "root"
    top = os.path.join(options.folder, f"{who}{index}")
    os.mkdir(top)
    private = os.getuid() == 0
    if private:
        private_mounts()
    if not root and os.getuid() == 0:
        user = os.environ.get("NSBOX_TEST_USER", "nsbox-test")
        os.chown(top, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        become(user)
    os.umask(0o022)
    place = Place(top, options.tools, numbers["sched_rr_get_interval"])
    os.chdir(place.work)
    end_holder = place.hold(options.bwrap)
    if not end_holder and index == 0:
        say(kind="result", text=f"{who}: the sandbox that the line `join` enters starts",
            problems=["it does not"], again=[])
    # So that /tmp outside is seen not to be empty.
    marker = tempfile.mkdtemp(prefix="nsbox-fault-", dir="/tmp")
    worker = Worker(options, place, root, private, numbers)
    worker.surroundings = worker.look_around()
    problems = worker.check_control()
    if index == 0:
        say(kind="result", text=f"{who}: outside a sandbox the probe reports no restriction",
            problems=problems, again=[])
    for salt, line in enumerate(command_lines(place, root)):
        if options.line and line.name not in options.line:
            continue
        points, problems = worker.learn(line)
        if index == 0:
            say(kind="result", text=f"{who}: {line.name}: works when nothing fails",
                problems=problems, again=[" ".join(map(shlex.quote, worker.command(line)))])
            say(kind="note", text=f"{who}: {line.name}: {summary(points)}")
        if problems:
            continue
        if salt == 0 and index == 0 and not options.only:
            for what, wrong in worker.check_judge():
                say(kind="result", text=f"{who}: a program that {what} is judged so",
                    problems=wrong, again=[])
        if line.library and index == 0 and not options.only:
            for what, wrong in worker.check_failures(line, points):
                say(kind="result", text=f"{who}: {line.name}: fails without {what}", problems=wrong, again=[])
        for point in points:
            for error in chosen_errors(point, options, salt):
                text = f"{who}: {describe(point, error)}"
                key = f"{point.line} {point.process} {point.call} {point.occurrence}"
                if zlib.crc32(key.encode()) % options.jobs != index:
                    continue
                if options.only and not re.search(options.only, text):
                    continue
                if options.list:
                    say(kind="note", text=text)
                    continue
                problems, run = worker.inject(line, point, error)
                if problems is None:
                    say(kind="unreached", text=text)
                    continue
                again = reproduction(options, worker, line, point, error, points, who) \
                    if problems else []
                say(kind="result", text=text, problems=problems, again=again,
                    outcome=f"status {run.rc}: {run.err.strip()}" if options.verbose else "")
        if line.name in ("limits", "library-memory") and points and not options.list:
            say(kind="result", text=f"{who}: {line.name}: worker {index} leaves no control group", problems=groups_left(),
                again=[])
    shutil.rmtree(marker, ignore_errors=True)
    if end_holder:
        end_holder()


def groups_left():
    """Groups of sandboxes that have no process, and still have none after a while."""
    def empty():
        found = subprocess.run(["find", "/sys/fs/cgroup", "-type", "d", "-name", "nsbox-*"], capture_output=True, text=True,
                               check=False).stdout.split()
        return {path for path in found if not slurp(f"{path}/cgroup.procs")}

    left = empty()
    for _ in range(20):
        if not left:
            return []
        time.sleep(0.5)
        left &= empty()
    return [f"{path} is left" for path in sorted(left)]


def summary(points):
    counts = collections.Counter(point.process for point in points)
    return ", ".join(f"process {name} {count} calls" for name, count in sorted(counts.items()))


class Tally:
    def __init__(self, options):
        self.options = options
        self.passed = self.failed = 0
        self.unreached = []

    def take(self, message):
        if message["kind"] == "note":
            print("# " + message["text"], flush=True)
        elif message["kind"] == "unreached":
            self.unreached.append(message["text"])
        elif message["problems"]:
            self.failed += 1
            print(f"not ok - {message['text']}")
            for problem in message["problems"][:12]:
                print(f"    {problem}"[:1500])
            for command in message["again"]:
                print(f"    again: {command}")
            sys.stdout.flush()
        else:
            self.passed += 1
            if self.options.verbose:
                print(f"ok - {message['text']}: {message.get('outcome', '')}", flush=True)

    def finish(self):
        """A point that is not met again tests nothing: a few are timing, many are a defect."""
        for text in self.unreached:
            print(f"# not reached again: {text}")
        total = self.passed + self.failed + len(self.unreached)
        if len(self.unreached) > MAX_UNREACHED * total + 3:
            self.failed += 1
            print(f"not ok - {len(self.unreached)} of {total} points were not reached again")
        print(f"{self.passed} passed, {self.failed} failed, 0 skipped")
        return 1 if self.failed or not (self.passed or self.options.list) else 0


def run_identity(options, who, numbers, tally):
    readers = {}
    children = {}
    for index in range(options.jobs):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            code = 1
            try:
                work(options, who, index, numbers, write)
                code = 0
            except BaseException as problem:
                traceback.print_exc()
                sys.stderr.write(f"worker {who} {index}: {problem}\n")
            os._exit(code)
        os.close(write)
        readers[read], children[child] = b"", (who, index)
    while readers:
        for fd in select.select(list(readers), [], [])[0]:
            chunk = os.read(fd, 65536)
            if not chunk:
                os.close(fd)
                del readers[fd]
                continue
            *rows, readers[fd] = (readers[fd] + chunk).split(b"\n")
            for row in rows:
                tally.take(json.loads(row))
    for child, name in children.items():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            tally.take({"kind": "result", "text": f"worker {name} ended early", "again": [],
                        "problems": [f"status {status}"]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--library", help="the program library-starts; default: beside nsbox, or in its build directory")
    parser.add_argument("--as", dest="who", choices=["root", "user", "both"], default="both")
    parser.add_argument("--full", action="store_true", help="every fitting error of every call")
    parser.add_argument("--line", action="append", help="only this command line (repeatable)")
    parser.add_argument("--only", help="regular expression on the description of a point")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the points, inject nothing")
    parser.add_argument("--verbose", action="store_true", help="print what every run came to")
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.folder = tempfile.mkdtemp(prefix="nsbox-fault-", dir="/var/tmp")
    os.chmod(options.folder, 0o755)
    options.tools = os.path.join(options.folder, "tools")
    os.mkdir(options.tools)
    begin = time.monotonic()
    try:
        options.library = find_library_starts(options)
        options.inject, options.probe = build(options.tools)
        numbers = call_numbers(options.folder)
        options.bwrap = os.path.join(options.folder, "bwrap")
        os.symlink(os.path.abspath(os.environ.get("NSBOX_TEST_BWRAP", options.nsbox)),
                   options.bwrap)
        whos = ["root", "user"] if options.who == "both" else [options.who]
        if os.getuid() != 0:
            whos = ["user"]
        tally = Tally(options)
        for who in whos:
            run_identity(options, who, numbers, tally)
        print(f"# {time.monotonic() - begin:.0f} s")
        return tally.finish()
    finally:
        if options.keep:
            print(f"# files kept in {options.folder}")
        else:
            shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
