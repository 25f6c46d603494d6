#!/usr/bin/python3
"""Measures the library's starts beside their peers, in one go, and prints a Markdown table.

    tests/bench/library.py --program build/tests/bench/bench-library [--bwrap /usr/bin/bwrap] [--rounds N]

Each figure is the median of rounds in turn (A B A B ...), each ratio the median of the rounds' ratios. The programs
that it needs are compiled into a temporary folder with `cc`. It has to be root for the last rows, which look at the memory
of other processes; all else runs as any user. Nothing is asserted.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FREESTANDING = ["-nostdlib", "-ffreestanding", "-fno-stack-protector"]
PROGRAMS = {"floor": ("floor.c", []), "true": ("true.c", []), "stay": ("bare.c", ["-DSTAY", *FREESTANDING])}
FULL = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def call(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)[:200]}: {done.stderr.strip()}")
    return done.stdout


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        for name, (source, flags) in PROGRAMS.items():
            call("cc", "-O1", "-static", *flags, "-o", self.tool(name), os.path.join(HERE, source))
        print("| what | library | peer | ratio | asked |\n| --- | --- | --- | --- | --- |")

    def tool(self, name):
        return os.path.join(self.folder, name)

    def library(self, mode, count, *words):
        return float(call(self.options.program, mode, str(count), *words))

    def floor(self, *words):
        # Root's sandboxes cover what of /proc would let it into the kernel: these are mounts like others.
        covers = ["-c"] if os.geteuid() == 0 else []
        return float(call(self.tool("floor"), "-d", *covers, *words, "-n", "60", self.tool("true")).split("=")[1])

    def row(self, what, ours, theirs, unit, asked):
        pairs = [(ours(), theirs()) for _ in range(self.options.rounds)]
        one, other = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        scale, digits = (1000, 2) if unit == "ms" else (1, 0)
        print(f"| {what} | {one / scale:.{digits}f} {unit} | {other / scale:.{digits}f} {unit} | {ratio:.2f} | {asked} |",
              flush=True)

    def all(self):
        true, bwrap = self.tool("true"), self.options.bwrap
        self.row("start to exit, all namespaces and the usual mounts; the raw floor", lambda: self.library("start", 60, true),
                 self.floor, "ms", "at most 1.25")
        self.row("the same without a net namespace", lambda: self.library("quiet", 60, true),
                 lambda: self.floor("-q"), "ms", "at most 1.25")
        self.row("from a pool; posix_spawn", lambda: self.library("pool", 40, true),
                 lambda: self.library("posix-paused", 40, true), "ms", "at most 1.3")
        self.row("a further command of one sandbox; posix_spawn", lambda: self.library("spawn", 60, true),
                 lambda: self.library("posix", 60, true), "ms", "")
        self.row("from a host with 4 GiB in use; with 10 MiB", lambda: self.library("heap:4096", 60, true),
                 lambda: self.library("heap:10", 60, true), "ms", "at most 1.2")
        if bwrap:
            self.row("8 threads, sandboxes a second; 8 launchers of bwrap", lambda: self.library("threads:8", 400, true),
                     lambda: self.library("launch:8", 400, bwrap, *FULL, true), "/s", "at least 2.5")
        if os.getuid() == 0:
            said = re.sub("!+", "", call(self.options.program, "crowd", "1000", self.tool("stay")))
            print("\n" + said.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--bwrap")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # What the sandboxes cover cannot be executed in them.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        Bench(options, folder).all()


if __name__ == "__main__":
    main()
