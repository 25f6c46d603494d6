#!/usr/bin/python3
"""Runs every command line of lines.txt under a reference bwrap and under nsbox and compares.

    tests/differential/run.py --bwrap /usr/bin/bwrap --nsbox build/nsbox --probe PATH
        [--as root|user|both] [--only REGEX] [--self-check] [-v]

Each line runs twice, in a fresh and identical tree at the same path: first under the reference,
then under nsbox, which is called by the name `bwrap`. Compared are the exit status, what was
printed, what the probe (probe.c) saw inside, what was written to descriptors that were handed
over, the tree afterwards and the processes left behind.

An intended difference is a row of doc/differences.md. A line names the rows that it shows and the
keys that they excuse; a difference that nobody named fails, and so does a named one that does not
show. Rows of the table's first part that no line shows fail as well, so that the table stays true.

--self-check runs the reference against itself, where nothing may differ: it checks the suite.
NSBOX_TEST_USER names the ordinary user (default nsbox-test).
"""

import argparse
import fcntl
import json
import mmap
import os
import pwd
import re
import selectors
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import datafile  # noqa: E402
import onerun  # noqa: E402
import surroundings  # noqa: E402

TABLE = os.path.join(HERE, "..", "..", "doc", "differences.md")
WORKERS = 2
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


def judge(line, who, everywhere, old, new, self_check, explain):
    """Returns the problems of one line and the ids of the rows that it showed."""
    problems, shown, used = [], set(), set()
    # A short time limit says that the reference never ends.
    wanted = "timeout" if line.timeout < 5 else str(line.status[who])
    if old["status"] != wanted:
        problems.append(f"the reference ended with status {old['status']}, the line expects "
                        f"{wanted}; stderr: {old['stderr']!r}")
    excuses = [] if self_check else [e for e in line.differs if e.who in (None, who)]
    allowed = [] if self_check else excuses + [e for e in everywhere if e.who in (None, who)]
    for key in sorted(old.keys() | new.keys()):
        left, right = old.get(key), new.get(key)
        if left == right:
            continue
        hits = [excuse for excuse in allowed if excuse.matches(key, left, right)]
        used |= {id(hit) for hit in hits}
        shown |= {hit.id for hit in hits}
        if explain and hits:
            print(f"#   {hits[0].id} ({hits[0].key}) {key}: {left!r} -> {right!r}")
        if not hits:
            problems.append(f"{key}: {left!r} -> {right!r}")
    for excuse in excuses:
        if id(excuse) not in used:
            problems.append(f"expected difference {excuse.id} does not show in {excuse.key} "
                            f"({excuse.old} => {excuse.new})")
    uses_probe = re.search(r"(^|\s)(/probe|\$PROBE)(\s|$)", line.run)
    if uses_probe and old["status"] == "0" and old.get("probe") != "complete":
        problems.append("the probe did not report under the reference")
    return problems, shown


def attempt(line, who, options, macros, everywhere, place):
    """Runs one line under both programs."""
    outcomes = []
    for program in (options.bwrap, options.bwrap if options.self_check else options.nsbox):
        link = os.path.join(place, "bin", "bwrap")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(program, link)
        run = onerun.Run(line, macros, os.path.join(place, "tree"), link,
                         program == options.bwrap)
        outcomes.append(run.go())
    if options.verbose > 1:
        for key, value in sorted(outcomes[0].items()):
            print(f"#   {key}={value!r}")
    return judge(line, who, everywhere, *outcomes, options.self_check, options.verbose > 1)


# -- the workers


def become(who, user):
    """Both identities get a supplementary group, so that groups are seen to be treated alike."""
    if os.getuid() != 0:
        return
    if who == "root":
        os.setgroups([0, 60001])
        return
    entry = pwd.getpwnam(user)
    os.setgroups([entry.pw_gid, 60001])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def counter(lines, shared, path):
    """Hands out the lines to the workers of one identity, each to whoever is free."""
    with open(path, "r+b") as lock:
        while True:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            index = struct.unpack_from("<I", shared)[0]
            struct.pack_into("<I", shared, 0, index + 1)
            fcntl.lockf(lock, fcntl.LOCK_UN)
            if index >= len(lines):
                return
            yield lines[index]


def worker(who, tasks, options, everywhere, macros, report):
    surroundings.LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A change of ids makes a process undumpable, and its files in /proc root's.
    surroundings.LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.umask(0o022)
    place = tempfile.mkdtemp(prefix="nsbox-differential-", dir="/var/tmp")
    os.chmod(place, 0o755)
    os.mkdir(os.path.join(place, "bin"))
    tree, probe = os.path.join(place, "tree"), os.path.join(place, "bin", "probe")
    shutil.copy(options.probe, probe)
    os.chmod(probe, 0o755)
    macros = dict(macros, D=tree, W=place, PROBE=probe, REF=options.bwrap, UID=str(os.getuid()),
                  GID=str(os.getgid()))
    signal.alarm(options.limit)
    try:
        for line in tasks:
            try:
                problems, shown = attempt(line, who, options, macros, everywhere, place)
            except Exception:
                problems, shown = [traceback.format_exc()], set()
            row = json.dumps([line.name, who, problems, sorted(shown)]) + "\n"
            os.write(report, row.encode())
    finally:
        surroundings.remove_tree(tree)
        shutil.rmtree(place, ignore_errors=True)


def start_worker(who, lines, shared, options, everywhere, macros):
    """Forks; returns the pid and the stream on which the results arrive."""
    read, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            os.setsid()
            become(who, options.user)
            tasks = counter(lines, shared, options.lock)
            worker(who, tasks, options, everywhere, macros, out)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    os.close(out)
    return pid, os.fdopen(read, "rb", buffering=0)


def run_identity(who, lines, options, everywhere, macros):
    """Runs the lines as one identity and returns the results."""
    lines = [line for line in lines if line.only in (None, who)]
    shared = mmap.mmap(-1, 4)
    workers = [start_worker(who, lines, shared, options, everywhere, macros)
               for _ in range(WORKERS)]
    results, texts, chooser = [], {}, selectors.DefaultSelector()
    for _, stream in workers:
        chooser.register(stream, selectors.EVENT_READ)
    while chooser.get_map():
        for key, _ in chooser.select():
            data = key.fileobj.read(1 << 20)
            if not data:
                chooser.unregister(key.fileobj)
                continue
            *rows, texts[key.fd] = (texts.get(key.fd, b"") + data).split(b"\n")
            for row in rows:
                results.append(json.loads(row))
                print_result(*results[-1][:3], options)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _ in workers]
    done = {row[0] for row in results}
    for line in lines:
        if line.name not in done:
            results.append([line.name, who, [f"a worker ended early ({codes})"], []])
            print_result(*results[-1][:3], options)
    return results


def print_result(name, who, problems, options):
    if problems:
        print(f"not ok - {name} {who}", flush=True)
        for problem in problems[:options.show]:
            print("\n".join("    " + row for row in problem.splitlines()), flush=True)
        if len(problems) > options.show:
            print(f"    ... and {len(problems) - options.show} more", flush=True)
    elif options.verbose:
        print(f"ok - {name} {who}", flush=True)


# -- the whole


def arguments():
    parser = argparse.ArgumentParser(description="Compares nsbox with a reference bwrap.")
    parser.add_argument("--bwrap", default="/usr/bin/bwrap")
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--probe", required=True, help="the compiled probe.c")
    parser.add_argument("--as", dest="who", choices=["root", "user", "both"], default="both")
    parser.add_argument("--only", help="regular expression on names, reasons and groups")
    parser.add_argument("--self-check", action="store_true",
                        help="run the reference against itself")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", type=int, default=40, help="differences printed per line")
    parser.add_argument("-v", dest="verbose", action="count", default=0,
                        help="name what passes; twice: print what was seen")
    options = parser.parse_args()
    for name in ("bwrap", "nsbox", "probe"):
        path = os.path.abspath(getattr(options, name))
        if not (name == "nsbox" and options.self_check) and not os.access(path, os.X_OK):
            sys.exit(f"run.py: {path} is missing or not executable")
        setattr(options, name, path)
    options.user = os.environ.get("NSBOX_TEST_USER", "nsbox-test")
    options.limit = 900
    return options


def check_table(lines, everywhere):
    """Every id that a line names has a row; every row of the first part is named by a line."""
    shown, every = datafile.table_ids(TABLE)
    named = {excuse.id for line in lines for excuse in line.differs}
    named |= {excuse.id for excuse in everywhere}
    return ([f"{name} has no row in doc/differences.md" for name in sorted(named - every)]
            + [f"no line shows the row {name}" for name in sorted(shown - named)])


def main():
    options = arguments()
    lines, macros, everywhere = datafile.parse_lines(os.path.join(HERE, "lines.txt"))
    if options.list:
        for line in lines:
            print(line.group, line.name, line.only or "both", line.why, sep="\t")
        return 0
    problems = check_table(lines, everywhere)
    chosen = [line for line in lines if not options.only
              or re.search(options.only, f"{line.name} {line.why} {line.group}")]
    whos = ["root", "user"] if options.who == "both" else [options.who]
    if os.getuid() != 0:
        whos = ["user"]
    start, results = time.monotonic(), []
    with tempfile.NamedTemporaryFile(prefix="nsbox-differential-", dir="/var/tmp") as lock, \
            tempfile.TemporaryDirectory(prefix="nsbox-differential-", dir="/var/tmp") as closed:
        os.chmod(lock.name, 0o666)
        options.lock = lock.name
        # Only root can make a directory that the ordinary user cannot search; else root's own.
        macros["CLOSED"] = closed if os.getuid() == 0 else "/root"
        for who in whos:
            results += run_identity(who, chosen, options, everywhere, macros)
    if not options.only and len(whos) == 2 and not options.self_check:
        showed = {row for result in results for row in result[3]}
        problems += [f"the difference {excuse.id} ({excuse.key}) never showed"
                     for excuse in everywhere if excuse.id not in showed]
    for problem in problems:
        print(f"not ok - table: {problem}")
    failed = len(problems) + sum(bool(result[2]) for result in results)
    passed = sum(not result[2] for result in results)
    print(f"# {len(chosen)} lines, {time.monotonic() - start:.0f} s")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
