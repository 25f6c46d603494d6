#!/usr/bin/python3
"""Measures what happens around a sandbox that runs: `nsbox exec`, the terminal relay and the exit
event, beside nsenter, script and a plain pair of terminals, in turn. Prints a Markdown table.

    tests/bench/life.py --nsbox build/nsbox [--pairs N]

Runs as the caller; nsenter needs root. Nothing is asserted.
"""

import argparse
import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = ["--unshare-all", "--bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]


def seconds(argv, **kw):
    began = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, **kw)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{argv} ended with {done.returncode}")
    return took


def in_turn(pairs, first, second):
    """Medians of both, and of the ratios pair by pair."""
    rows = []
    for i in range(pairs):
        if i % 2 == 0:
            a = first()
            rows.append((a, second()))
        else:
            b = second()
            rows.append((first(), b))
    return (statistics.median(a for a, _ in rows), statistics.median(b for _, b in rows),
            statistics.median(a / b for a, b in rows))


def entering(options, true):
    box = subprocess.Popen([options.nsbox, "--name", "bench", *SHAPE, "sleep", "600"])
    try:
        listing = ""
        for _ in range(200):
            listing = subprocess.run([options.nsbox, "ps", "--json"], capture_output=True, text=True,
                                     check=True).stdout
            if '"bench"' in listing:
                break
            time.sleep(0.02)
        pid = listing.split('"command-pid": ')[1].split(",")[0]
        return in_turn(options.pairs * 4,
                       lambda: seconds([options.nsbox, "exec", "bench", true]),
                       lambda: seconds(["nsenter", "-a", "-t", pid, true]))
    finally:
        subprocess.run([options.nsbox, "kill", "bench"], check=True)
        box.wait()


def throughput(options, stamp, megabytes):
    def piped(command):
        return seconds(["sh", "-c", f"{command} | cat >/dev/null"])
    return in_turn(max(3, options.pairs // 10),
                   lambda: piped(f"{options.nsbox} --pty {' '.join(SHAPE)} {stamp} {megabytes}"),
                   lambda: piped(f"script -qfc '{stamp} {megabytes}' /dev/null"))


def echoes(count, argv=None):
    """The round trip of a key, in microseconds, through a pair of terminals with a program on it."""
    pid, master = pty.fork()
    if pid == 0:
        if argv is None:
            time.sleep(600)
        os.execv(argv[0], argv)
    time.sleep(1)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        os.write(master, b"x")
        os.read(master, 16)
        times.append((time.perf_counter() - began) * 1e6)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(master)
    return statistics.median(times)


def exit_event(options, stamp):
    """From the last thing that a command does until its exit event can be read, in milliseconds."""
    read, write = os.pipe()
    with subprocess.Popen([options.nsbox, *SHAPE, "--events-fd", str(write), stamp],
                          stdout=subprocess.PIPE, pass_fds=[write]) as box:
        os.close(write)
        text = b""
        while b'"exit"' not in text:
            chunk = os.read(read, 4096)
            if not chunk:
                raise RuntimeError("no exit event")
            text += chunk
        heard = time.monotonic_ns()
        said = int(box.stdout.read())
    os.close(read)
    return (heard - said) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--pairs", type=int, default=50)
    options = parser.parse_args()
    options.nsbox = os.path.abspath(options.nsbox)
    folder = tempfile.mkdtemp(prefix="nsbox-bench-", dir="/var/tmp")
    try:
        true, stamp = folder + "/true", folder + "/stamp"
        for program, source in ((true, "true.c"), (stamp, "stamp.c")):
            subprocess.run(["cc", "-O2", "-static", "-o", program, os.path.join(HERE, source)],
                           check=True)
        print("| what | nsbox | peer | ratio | at most |\n| --- | --- | --- | --- | --- |")
        if os.getuid() == 0:
            mine, other, ratio = entering(options, true)
            print(f"| `exec`, against `nsenter -a` | {mine * 1e3:.2f} ms | {other * 1e3:.2f} ms | "
                  f"{ratio:.2f} | 1.00 |")
        mine, other, ratio = throughput(options, stamp, 100)
        print(f"| 100 MB over a terminal, against script(1) | {mine:.2f} s | {other:.2f} s | "
              f"{ratio:.2f} | 1.00 |")
        mine, other, ratio = in_turn(
            6, lambda: echoes(500, [options.nsbox, "--pty", *SHAPE, "sleep", "600"]),
            lambda: echoes(500))
        print(f"| a key's echo, against a plain pair | {mine:.0f} us | {other:.0f} us | {ratio:.2f} | "
              "1.30 |")
        mine, other, ratio = in_turn(
            6, lambda: echoes(500, [options.nsbox, "--pty", *SHAPE, "sleep", "600"]),
            lambda: echoes(500, [shutil.which("script"), "-qfc", "sleep 600", "/dev/null"]))
        print(f"| a key's echo, against script(1) | {mine:.0f} us | {other:.0f} us | {ratio:.2f} | |")
        late = statistics.median(exit_event(options, stamp) for _ in range(options.pairs))
        print(f"| from the end to the exit event | {late:.2f} ms | | | 1 ms |")
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
