#!/usr/bin/python3
"""Runs the end-to-end suites: every case as root and as an ordinary user.

    tests/e2e/run.py --nsbox build/nsbox [--as root|user|both] [--only REGEX] [--list] [SUITE...]

Prints TAP-like lines (`ok 3 - A13 root: ...`) and ends with `N passed, N failed, N skipped`.
A case that leaves processes behind fails. A case that fails is run once more when the others are done
and the machine is calmer; what then passes is counted as passed, and printed with what it said before
(`AGAIN:`), since it is a race to be looked for. --times prints how long each took. Environment: NSBOX_TEST_USER names the ordinary user
(default nsbox-test), NSBOX_TEST_BWRAP names another program to run in place of nsbox (to check
the tests themselves against a real bwrap).
"""

import argparse
import ctypes
import gc
import importlib
import os
import pwd
import re
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import harness  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def load(names):
    for name in sorted(os.listdir(HERE)):
        if name.startswith("suite_") and name.endswith(".py"):
            if not names or name[6:-3] in names:
                importlib.import_module(name[:-3])


def reap_adopted():
    """Collects what this process inherited from others: a dead process that nobody has waited for
    keeps the init of its pid namespace from ending."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run_case(case, options, report):
    """In a child of its own: runs the case and writes its outcome to `report`."""
    directory = harness.fresh_dir()
    os.chdir(directory)
    ctx = harness.Ctx(options.bwrap_link, options.nsbox, directory, options.probes)
    code, text = "pass", ""
    try:
        case.func(ctx)
    except harness.Skip as skip:
        code, text = "skip", str(skip)
    except Exception:
        code, text = "fail", traceback.format_exc()
    for proc in ctx.started:
        if proc.poll() is None:
            proc.kill()
        try:
            proc.wait(5)
        except Exception:
            pass
    # What the case started may need a moment to go; what stays is a leftover.
    left = harness.descendants(os.getpid())
    end = time.monotonic() + 10
    while left and time.monotonic() < end:
        reap_adopted()
        time.sleep(0.02)
        left = harness.descendants(os.getpid())
    harness.kill_all(p for p, _ in left)
    if left and code == "pass":
        code, text = "fail", f"processes left behind: {left}"
    os.chdir("/")
    harness.remove_dir(directory)
    os.write(report, (code + "\n" + text).encode("utf-8", "backslashreplace")[:60000])


# A case's time is that of an idle machine, and for what hangs; other machines are busy.
PATIENCE = 3

# So many failures at most are looked at a second time.
MOST_AGAIN = 5


def attempt(case, options):
    """Forks for one case; returns (outcome, text)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            run_case(case, options, write)
        except BaseException:
            os.write(write, ("fail\n" + traceback.format_exc()).encode())
        os._exit(0)
    os.close(write)
    os.set_blocking(read, False)
    end = time.monotonic() + PATIENCE * case.timeout
    data = b""
    while True:
        done, _ = os.waitpid(child, os.WNOHANG)
        try:
            data += os.read(read, 65536)
        except BlockingIOError:
            pass
        if done:
            break
        if time.monotonic() > end:
            below = [p for p, _ in harness.descendants(child)]
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            harness.kill_all(below)
            os.close(read)
            return "fail", f"timed out after {PATIENCE * case.timeout} s"
        time.sleep(0.003)
    while True:
        try:
            more = os.read(read, 65536)
        except BlockingIOError:
            break
        if not more:
            break
        data += more
    os.close(read)
    outcome, _, text = data.decode("utf-8", "replace").partition("\n")
    if outcome not in ("pass", "fail", "skip"):
        return "fail", "the case ended without an outcome"
    return outcome, text


def processor_time():
    """What the ended children of this process have used."""
    times = os.times()
    return times.children_user + times.children_system


def run_here(options, who):
    """Runs every selected case as the current identity; returns the three counts."""
    counts = {"pass": 0, "fail": 0, "skip": 0}
    number = 0
    failed = []

    def tell(number, case, outcome, text):
        word = {"pass": "ok", "fail": "not ok", "skip": "ok"}[outcome]
        tail = f" # SKIP {text}" if outcome == "skip" else ""
        if outcome != "pass" or not options.quiet:
            print(f"{word} {number} - {case.ids} {who}: {case.text}{tail}", flush=True)
        if outcome == "fail":
            print("\n".join("  " + line for line in text.splitlines()), flush=True)

    for case in harness.CASES:
        if case.only not in (None, who):
            continue
        if options.only and not re.search(options.only, case.ids + " " + case.text):
            continue
        number += 1
        begin, used = time.monotonic(), processor_time()
        outcome, text = attempt(case, options)
        if options.times:
            print(f"{time.monotonic() - begin:8.2f} s {processor_time() - used:8.2f} s cpu "
                  f"{case.ids} {who}: {case.text}", flush=True)
        if outcome == "fail":
            failed.append((number, case, text))
            continue
        counts[outcome] += 1
        tell(number, case, outcome, text)
    # What fails in numbers is no race.
    for number, case, before in failed:
        outcome, text = "fail", before
        if len(failed) <= MOST_AGAIN:
            outcome, text = attempt(case, options)
        counts[outcome] += 1
        tell(number, case, outcome, text)
        if outcome != "fail":
            last = before.strip().splitlines()[-1] if before.strip() else "nothing"
            print(f"AGAIN: {case.ids} {who} passed only the second time; it had said: {last}",
                  flush=True)
    return counts


def known_environment():
    """The same for whoever runs the suite; all that is kept are its own switches."""
    kept = {name: value for name, value in os.environ.items()
            if re.match(r"NSBOX_|(A|L|T|UB)SAN_OPTIONS$|TMPDIR$", name)}
    os.environ.clear()
    os.environ.update(
        kept, LC_ALL="C.UTF-8", TERM="xterm", HOME="/root", USER="root", LOGNAME="root",
        # An account of the tests has no shell of its own.
        SHELL="/bin/sh",
        PATH="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")


def become(user):
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    os.environ["HOME"] = "/nonexistent"
    os.environ["USER"] = os.environ["LOGNAME"] = user


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--probes", default=None, help="folder with the compiled probe programs")
    parser.add_argument("--as", dest="who", choices=["root", "user", "both"], default="both")
    parser.add_argument("--only", help="regular expression on id and text")
    parser.add_argument("--quiet", action="store_true", help="print failures and skips only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--times", action="store_true", help="print how long each case took")
    parser.add_argument("suite", nargs="*")
    options = parser.parse_args()
    load(options.suite)
    # Each case is a fork: its collector must not touch, and so copy, all that is loaded.
    gc.freeze()
    if options.list:
        for case in harness.CASES:
            print(case.ids, case.only or "both", case.text, sep="\t")
        return 0
    options.nsbox = os.path.abspath(options.nsbox)
    if options.probes:
        options.probes = os.path.abspath(options.probes)
    known_environment()
    names = tempfile.mkdtemp(prefix="nsbox-names-", dir="/var/tmp")
    os.chmod(names, 0o755)
    options.bwrap_link = os.path.join(names, "bwrap")
    os.symlink(os.path.abspath(os.environ.get("NSBOX_TEST_BWRAP", options.nsbox)),
               options.bwrap_link)
    whos = ["root", "user"] if options.who == "both" else [options.who]
    if os.getuid() != 0:
        whos = ["user"]
    total = {"pass": 0, "fail": 0, "skip": 0}
    try:
        for who in whos:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                if who == "user" and os.getuid() == 0:
                    become(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))
                counts = run_here(options, who)
                os.write(write, repr(counts).encode())
                os._exit(0)
            os.close(write)
            text = b""
            while chunk := os.read(read, 4096):
                text += chunk
            os.close(read)
            os.waitpid(child, 0)
            counts = eval(text.decode()) if text else {"pass": 0, "fail": 1, "skip": 0}
            for key, value in counts.items():
                total[key] += value
    finally:
        harness.remove_dir(names)
    print(f"{total['pass']} passed, {total['fail']} failed, {total['skip']} skipped")
    return 1 if total["fail"] or not total["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
