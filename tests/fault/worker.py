"""One worker: runs a command line under the tracer, with or without a fault, and judges."""

import collections
import ctypes
import errno
import os
import re
import shutil
import subprocess

from calls import LIBC_ABORTS, NEVER_FAILS
from lines import ALL_OWN, ENVIRONMENT, Line, command_lines, slurp

# What library_starts.cpp calls when it begins to use the library.
BEGIN = "sched_rr_get_interval"
# The process that clears up groups stays until they are gone, and where it cannot be ended.
MAY_LEAVE_A_CHILD = {("library-memory", "unlinkat"), ("library-memory", "pidfd_send_signal")}
TIMEOUT_MS, GRACE_MS = 10000, 3000

Run = collections.namedtuple("Run", "report out err files rc")
Point = collections.namedtuple("Point", "line process call number occurrence detail early")


def tree(directory):
    """Names, types, modes and sizes below `directory`, directories not followed."""
    found = {}
    todo = [directory]
    while todo:
        path = todo.pop()
        try:
            entries = list(os.scandir(path))
        except PermissionError:
            continue
        for entry in entries:
            st = entry.stat(follow_symlinks=False)
            found[entry.path] = (oct(st.st_mode), None if entry.is_dir(follow_symlinks=False)
                                 else st.st_size)
            if entry.is_dir(follow_symlinks=False):
                todo.append(entry.path)
    return found


def temporary_files(private):
    """/tmp is ours alone if `private`; else only the entries that this identity owns count."""
    found = set()
    for entry in os.scandir("/tmp"):
        try:
            if private or entry.stat(follow_symlinks=False).st_uid == os.getuid():
                found.add(entry.path)
        except FileNotFoundError:
            pass
    return found


def changes(before, after, what):
    text = []
    for path in sorted(set(before) | set(after)):
        old, new = before.get(path), after.get(path)
        if old != new:
            text.append(f"{what} {path}: {old} -> {new}")
    return text


class Worker:
    def __init__(self, options, place, root, private, numbers):
        self.options, self.place, self.root, self.private = options, place, root, private
        self.numbers = numbers
        self.names = {number: name for name, number in numbers.items()}
        self.host = {}
        self.baseline = {}
        self.surroundings = None
        self.timeout, self.grace = TIMEOUT_MS, GRACE_MS

    def argv(self, line, *injection):
        place = self.place
        argv = [self.options.inject, "--probe", self.options.probe, "--cwd", place.work,
                "--timeout", str(self.timeout), "--grace", str(self.grace),
                "--report", place.out + "/report", "--fd", "0=/dev/null",
                "--out", f"1={place.out}/stdout", "--out", f"2={place.out}/stderr"]
        for number, path in line.fds.items():
            argv += ["--fd", f"{number}={path}"]
        for number, name in line.outs.items():
            argv += ["--out", f"{number}={place.out}/{name}"]
        return [*argv, *injection, "--", *self.command(line)]

    def command(self, line):
        if line.name == "judge":
            return line.args
        if line.library:
            return [self.options.library, *line.args, "--", self.options.probe, *line.asks]
        probe = "/tools/probe" if line.name == "files" else self.options.probe
        return [self.options.bwrap, *line.args, "--", probe, *line.asks]

    def run(self, line, *injection):
        out = self.place.out
        for name in os.listdir(out):
            os.unlink(os.path.join(out, name))
        done = subprocess.run(self.argv(line, *injection), env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=(TIMEOUT_MS + GRACE_MS) / 1000 + 30)
        report = collections.defaultdict(list)
        for row in slurp(out + "/report").splitlines():
            key, _, value = row.partition("=")
            report[key].append(value)
        if done.returncode != 0 or not report["done"]:
            raise RuntimeError(f"the tracer failed: {done.stderr.decode()!r}, {report}")
        report = {key: value[0] if key != "left" else value for key, value in report.items()}
        rc = int(report["rc"]) if "rc" in report else 128 + int(report.get("signal", 0))
        errors = "".join(row for row in slurp(out + "/stderr").splitlines(keepends=True)
                         if line.note is None or line.note not in row)
        return Run(report, slurp(out + "/stdout"), errors,
                   {name: slurp(f"{out}/{name}") for name in line.outs.values()}, rc)

    # -- what must not change --

    def look_around(self):
        return (tree(self.place.work), dict.fromkeys(temporary_files(self.private), "there"),
                dict.fromkeys(slurp("/proc/self/mountinfo").splitlines(), "mounted"))

    def disturbed(self, allowed=None):
        """What changed around us since the last look; put right where that is possible, except
        below `allowed`."""
        before, after = self.surroundings, self.look_around()
        text = (changes(before[0], after[0], "file") + changes(before[1], after[1], "file")
                + changes({row.split(" ")[4] + " " + row: 1 for row in before[2]},
                          {row.split(" ")[4] + " " + row: 1 for row in after[2]}, "mount"))
        if text:
            # Mounts first: what lies below one that should not be there is not ours.
            libc = ctypes.CDLL(None)
            for row in reversed([r for r in after[2] if r not in before[2]]):
                libc.umount2(row.split()[4].encode(), 2)
            for path in sorted(set(after[0]) - set(before[0]), reverse=True):
                if not allowed or not path.startswith(allowed):
                    remove(path)
            for path in set(after[1]) - set(before[1]):
                remove(path)
            self.surroundings = self.look_around()
        return text

    # -- what the command saw --

    def facts(self, line, text):
        """The probe's answers, without what differs from run to run."""
        facts, mounts, environment = {}, [], []
        for row in text.splitlines():
            match = re.match(r"((?:read|stat|link|write|open|list|fd|init fd|init) )?(\S+) ?(.*)",
                             row)
            key, value = (match[1] or "") + match[2], match[3]
            if row.startswith("session leader "):
                key, value = "session leader", row.split()[-1]
            if key.startswith("ns."):
                value = "host" if value == self.host.get(key) else "own"
            if key in ("fd /proc/self/fd", "init fd /proc/1/fd"):
                value = re.sub(r"(pipe|socket):\[\d+\]", r"\1", value)
            if key == "init fd /proc/1/fd":
                # Pid 1's own descriptors may have other numbers after a fault.
                value = re.sub(r"\b([3-9]|\d\d+)=", "", value)
            if key == "mount":
                mounts.append(value)
            elif key == "env":
                environment.append(value)
            else:
                facts[key] = value
        if environment or "end" in facts:
            facts["env"] = "|".join(sorted(environment))
        facts["mounts"] = mount_table(mounts)
        for key in line.volatile:
            facts.pop(key, None)
        if "pid" not in line.own:
            facts = {k: v for k, v in facts.items() if not k.startswith("init.")}
        # How pid 1 takes signals is its own affair.
        return {k: v for k, v in facts.items() if not k.startswith("init.Sig")}

    def differences(self, line, facts, call=None):
        wanted, text = dict(self.baseline[line.name]), []
        if "--chdir" not in line.args and facts.get("cwd") in ("/", ENVIRONMENT["HOME"]):
            # Without --chdir the old directory is a wish; $HOME and / are the rule after it.
            old = f"PWD={wanted.get('cwd')}"
            wanted["env"] = wanted.get("env", "").replace(old, f"PWD={facts['cwd']}")
            wanted["cwd"] = facts["cwd"]
        if wanted.get("newuser") == "ENOSPC" and facts.get("newuser") == "EPERM":
            # Where the limit cannot be set, a filter refuses new user namespaces.
            wanted["newuser"] = "EPERM"
            for who in ("self", "init"):
                wanted.update({f"{who}.Seccomp:": "2", f"{who}.Seccomp_filters:": "1"})
        if call == "fchown" and wanted.get("init /proc/1/mem") != facts.get("init /proc/1/mem"):
            # Where root may not give the init program away, a command that has every capability
            # may look at pid 1: at three descriptors and the way to the supervisor, no more.
            wanted.update({"init /proc/1/mem": "ok", "init /proc/1/environ": "ok"})
            out = self.place.out
            wanted["init fd /proc/1/fd"] = f"0=/dev/null 1={out}/stdout 2={out}/stderr socket "
            if line.library:
                # It has had a life before its first command, and the numbers vary.
                kinds = {"0=/dev/null", "1=/dev/null", "2=/dev/null", "anon_inode:[signalfd]", "socket"}
                wanted["init fd /proc/1/fd"] = " ".join(word for word in facts.get("init fd /proc/1/fd", "").split(" ")
                                                        if word in kinds | {""})
        for key in sorted(set(wanted) | set(facts)):
            if key == "mounts":
                text += mount_differences(wanted[key], facts[key])
            elif key.startswith("init ") and facts.get(key) in ("EACCES", ""):
                continue  # Pid 1 hides more than it has to.
            elif wanted.get(key) != facts.get(key):
                text.append(f"{key}: {facts.get(key)!r}, without a fault {wanted.get(key)!r}")
        return text

    # -- learning --

    def learn_host(self):
        """The same questions outside, so that an answer which never varies is noticed."""
        done = subprocess.run([self.options.probe, f"write:{self.place.work}/new"],
                              env=ENVIRONMENT, cwd=self.place.work, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20)
        for row in done.stdout.splitlines():
            if row.startswith("ns."):
                key, _, value = row.partition(" ")
                self.host[key] = value
        return self.facts(Line("host", [], own="pid"), done.stdout)

    def check_control(self):
        """Outside, the restrictions have to be reported as absent."""
        facts = self.learn_host()
        problems = []
        line = command_lines(self.place, self.root)[0]
        for key in (f"write {self.place.work}/new", "hostname", "cwd", "env", "self.Seccomp:",
                    "filtered", "list /tmp", "pids", "pdeathsig"):
            if facts.get(key) == line.expect[key]:
                problems.append(f"{key} is {facts.get(key)!r} outside too")
        problems += [f"{key} is not the host's outside" for key, value in facts.items()
                     if key.startswith("ns.") and value != "host"]
        return problems

    def check_judge(self):
        """Shows that each kind of misbehaviour is noticed: a shell plays the program. Needs the
        baseline of the first line. Yields (what it does, problems with the judging)."""
        place, says = self.place, "echo 'bwrap: it did not work' >&2; exit 1"
        stray, tmp = f"{place.work}/stray", f"/tmp/nsbox-fault-stray-{os.getpid()}"
        plays = [
            ("fails cleanly", says, None),
            ("hangs", "sleep 60", "hangs"),
            ("leaves a process", f"sleep 60 & {says}", "left behind"),
            ("leaves a file", f": > {stray}; {says}", f"file {stray}"),
            ("leaves a file in /tmp", f": > {tmp}; {says}", f"file {tmp}"),
            ("says nothing", "exit 1", "wanted one line"),
            ("says it twice", f"echo 'bwrap: it did not work' >&2; {says}", "wanted one line"),
            ("ends with another status", "echo 'bwrap: it did not work' >&2; exit 2",
             "exit status 2"),
            ("dies of a signal", "kill -9 $$", "signal 9"),
            ("pretends success", "exit 0", "did not run to its end"),
            ("keeps a descriptor", f"exec 5< /dev/null; {says}", "descriptors are left"),
            ("leaves a child", "sleep 0 & echo 'bwrap: it did not work' >&2; exec false", "children are left"),
            ("starts the command unconfined", f"exec {self.options.probe}", "half confined"),
        ]
        if self.root and self.private:
            plays.append(("leaves a mount", f"mount -t tmpfs stray {place.writable}; {says}",
                          f"mount {place.writable}"))
        first = command_lines(place, self.root)[0]
        line = Line("judge", [], own=" ".join(first.own), library=True)
        self.baseline["judge"] = self.baseline[first.name]
        point = Point("judge", "0", "", 0, 0, "", False)
        self.timeout, self.grace = 700, 300
        for what, script, wanted in plays:
            line.args = ["/bin/sh", "-c", script]
            problems = self.judge(line, point, self.run(line))
            found = any(wanted in text for text in problems) if wanted else not problems
            yield what, [] if found else [f"judged as {problems}"]
        self.timeout, self.grace = TIMEOUT_MS, GRACE_MS

    def learn(self, line):
        """Runs without a fault; returns the points to inject and what is wrong, if anything."""
        trace = self.place.out + "/../trace"
        self.run(line, "--trace", trace)
        # The first run makes the kernel's own entries in the overlay's working directory.
        problems = [text for text in self.disturbed(self.place.scratch)
                    if self.place.scratch not in text]
        run = self.run(line, "--trace", trace)
        facts = self.facts(line, run.out)
        self.baseline[line.name] = facts
        if run.rc != 0 or run.err or "end" not in facts:
            problems.append(f"status {run.rc}, stderr {run.err!r}")
        else:
            for key, value in line.expect.items():
                if facts.get(key) != value:
                    problems.append(f"{key}: {facts.get(key)!r}, wanted {value!r}")
            for kind in ALL_OWN.split():
                if kind == "mnt":
                    continue
                value = "own" if kind in line.own else "host"
                if facts.get("ns." + kind) != value:
                    problems.append(f"ns.{kind}: {facts.get('ns.' + kind)!r}, wanted {value!r}")
            if "status" in run.files and '"exit-code": 0' not in run.files["status"]:
                problems.append(f"no exit code in the status output {run.files['status']!r}")
        problems += self.disturbed()
        for key in ("hung", "outlived"):
            if key in run.report:
                problems.append(f"{key}: {run.report.get('left')}")
        problems += kept(line, run.report)
        return self.points(line, slurp(trace)), problems

    def points(self, line, trace):
        rows = [row.split(" ", 3) for row in trace.splitlines()]
        early = self.before_main([int(row[2]) for row in rows if row[0] == "0"])
        begin = {"0": next((i for i, row in enumerate(rows) if self.names.get(int(row[2])) == BEGIN), -1)} \
            if line.library else {}
        counts, seen = collections.Counter(), collections.Counter()
        points = collections.defaultdict(list)
        for i, (process, _, number, detail) in enumerate(rows):
            name = self.names.get(int(number), f"syscall_{number}")
            counts[process, number] += 1
            seen[process] += 1
            if i > begin.get(process, -1) and name not in NEVER_FAILS and \
                    (line.name, process, name) not in LIBC_ABORTS:
                points[process].append(Point(line.name, process, name, int(number),
                                             counts[process, number], detail,
                                             process == "0" and seen[process] <= early))
        if self.options.full:
            return [point for some in points.values() for point in some]
        return [point for some in points.values() for point in without_repeats(some)]

    def before_main(self, numbers):
        """How many of the first process's calls belong to the loader and libc's start."""
        names = [self.names.get(number) for number in numbers]
        marks = [i for i, name in enumerate(names)
                 if name in ("arch_prctl", "set_tid_address", "set_robust_list", "rseq")]
        end = marks[-1] + 1 if marks else 0
        while end < len(names) and names[end] in ("mprotect", "prlimit64", "munmap", "getrandom",
                                                  "readlink", "readlinkat", "brk", "futex"):
            end += 1
        return end

    def check_failures(self, line, points):
        """What a library cannot do without must fail. Yields (what is refused, problems)."""
        for calls, error in ((("clone3", "clone"), "EAGAIN"), (("sendmsg",), "ENOBUFS")):
            # The last: the first call of clone3 only asks whether there is one.
            point = next((p for p in reversed(points) if p.process == "0" and p.call in calls), None)
            problems, run = self.inject(line, point, error) if point else (["it is not called"], None)
            if run and not problems and run.rc != 1:
                problems = [f"status {run.rc}"]
            yield f"{calls[0]} in the application", ["not reached"] if problems is None else problems

    # -- judging --

    def inject(self, line, point, error):
        """Returns None if the point was not reached, else a list of problems."""
        number = getattr(errno, error)
        for _ in range(3):
            run = self.run(line, "--at", point.process, str(point.number), str(point.occurrence),
                           str(number))
            if run.report["fired"] == "1":
                problems = self.judge(line, point, run)
                if (point.call, error) == ("openat2", "EAGAIN") and run.rc != 0:
                    problems.append("gives up where a second try would have worked")
                if may_leave_a_child(point, error):
                    problems = [text for text in problems if not text.startswith("children are left")]
                return problems, run
            problems = self.judge(line, point, run)
            if problems:
                return ["(the fault was not reached)"] + problems, run
        return None, run

    def judge(self, line, point, run):
        report, problems = run.report, []
        if "hung" in report:
            problems.append(f"hangs: {report.get('left')}")
        if "outlived" in report:
            problems.append(f"processes left behind: {report.get('left')}")
        problems += self.disturbed() + kept(line, report)
        started = report["exec"] == "1"
        facts = self.facts(line, run.out)
        finished = "end" in facts
        if finished:
            problems += ["half confined: " + text for text in self.differences(line, facts, point.call)]
        if run.rc == 0 and not finished and "hung" not in report:
            problems.append("reports success but the command did not run to its end")
        if run.rc != 0 and not point.early and "hung" not in report:
            problems += self.judge_failure(run, point, started)
        if run.rc == 0 and not all(row.startswith("bwrap: ") for row in run.err.splitlines()):
            problems.append(f"odd words on stderr: {run.err!r}")
        if "status" in run.files:
            has_code = '"exit-code"' in run.files["status"]
            if has_code and not started:
                problems.append("an exit code in the status output although set-up failed")
            in_monitor = point.process == "0"
            if not has_code and finished and run.rc == 0 and not in_monitor:
                problems.append("no exit code in the status output of a run that worked")
        return problems

    @staticmethod
    def judge_failure(run, point, started):
        problems = []
        rows = run.err.splitlines()
        if "signal" in run.report:
            problems.append(f"died of signal {run.report['signal']}, stderr {run.err!r}")
        elif run.rc != 1:
            problems.append(f"exit status {run.rc}, wanted 1, stderr {run.err!r}")
        if len(rows) != 1 or not re.match(r"bwrap: .{8}", rows[0]):
            problems.append(f"wanted one line that begins with 'bwrap: ' on stderr: {run.err!r}")
        if started and point.process == run.report["command"] and \
                run.report["fired_after_exec"] == "0":
            problems.append("the command was started although its set-up failed")
        return problems


def may_leave_a_child(point, error):
    return (point.call, error) == ("waitid", "ECHILD") or \
        (point.process == "0" and (point.line, point.call) in MAY_LEAVE_A_CHILD)


def kept(line, report):
    """What an application still has of the library when it has closed everything."""
    if not line.library or "hung" in report or "signal" in report:
        return []
    wanted = {"descriptors": "0 1 2", "children": ""}
    return [f"{key} are left: {report.get(key)!r}" for key, value in wanted.items()
            if set(report.get(key, "?").split()) != set(value.split())]


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def without_repeats(points):
    """Of a loop over one call (the bounding set has 41 members) the first two, one in the middle
    and the last."""
    kept, begin = [], 0
    for end in range(1, len(points) + 1):
        if end < len(points) and points[end].call == points[begin].call and \
                points[end].detail == points[begin].detail:
            continue
        run = points[begin:end]
        kept += run if len(run) < 6 else [run[0], run[1], run[len(run) // 2], run[-1]]
        begin = end
    return kept


MOUNT_FLAGS = {"ro", "nosuid", "nodev", "noexec", "nosymfollow"}


def mount_table(rows):
    """Mount point -> (type, root, flags, superblock options) of what a path can reach; flags of
    a mount that another one covers matter to nobody."""
    mounts, table = [], {}
    for row in rows:
        fields = row.split(" ")
        if "-" not in fields:  # An error name: there is no table to read.
            table[row] = ("", "", frozenset(), "")
            continue
        dash = fields.index("-")
        options = fields[dash + 3] if len(fields) > dash + 3 else ""
        # However the layers were handed over, by number or by name, one by one or in a list.
        options = re.sub(r"/proc/self/fd/\d+", "FD", options)
        options = re.sub(r"(?<=FD),lowerdir\+=", ":", options).replace("lowerdir+=", "lowerdir=")
        # The name of a file behind --bind-data is out of reach, so it may stay.
        source = fields[3].removesuffix("//deleted")
        mounts.append((fields[0], fields[1], fields[4], (
            fields[dash + 1], source, frozenset(fields[5].split(",")), options)))
    parents = {number: parent for number, parent, _, _ in mounts}
    points = {number: point for number, _, point, _ in mounts}
    children = collections.defaultdict(list)
    for number, parent, _, _ in mounts:
        children[parent].append(number)

    def covered(number):
        return any(points[child] == points[number] for child in children[number])

    def reachable(number):
        parent = parents[number]
        if parent not in points:
            return True
        return not covered(parent) and reachable(parent) and not any(
            points[number].startswith(points[other].rstrip("/") + "/")
            for other in children[parent] if other != number)

    for number, _, point, value in mounts:
        if not covered(number) and reachable(number):
            table[point] = value
    return table


def mount_differences(wanted, got):
    text = []
    for key in sorted(set(wanted) | set(got)):
        old, new = wanted.get(key), got.get(key)
        if old is None or new is None:
            text.append(f"mount at {key}: {new}, without a fault {old}")
            continue
        lost = (old[2] & MOUNT_FLAGS) - new[2]
        if lost or old[:2] != new[:2] or old[3] != new[3]:
            text.append(f"mount at {key}: {new}, without a fault {old}")
    return text
