#!/usr/bin/python3
"""Measures the import of a root filesystem against `zstd -dc | tar x` of the same archive.

    tests/bench/rootfs.py --nsbox build/nsbox [--files N] [--megabytes N] [--rounds N] [--dir DIR]

The archive is made up, the same each time: small files and some large ones, with text that
compresses as programs do. Each round does both, in folders that stay until the end: file systems
are slow to reuse what was just removed. Prints the medians, and their ratio. The defaults are
small; the figure in doc/benchmarks.md is of `--files 10000 --megabytes 230`.

With --all, one round of import, show, verify, export, rm and gc follows, with the time and the most memory
of each: `--files 100000 --megabytes 10 --rounds 1 --all` shows that neither grows faster than the tree.
"""

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def make_tree(top, files, size):
    generator = random.Random(1)
    words = [bytes(generator.choices(b"abcdefghijklmnopqrstuvwxyz \n", k=8)) for _ in range(2000)]
    weights = [generator.lognormvariate(0, 1.3) for _ in range(files)]
    scale = size / sum(weights)
    for number, weight in enumerate(weights):
        folder = os.path.join(top, f"d{number // 100}")
        os.makedirs(folder, exist_ok=True)
        count = int(weight * scale)
        with open(os.path.join(folder, f"f{number}"), "wb") as out:
            out.write(b"".join(generator.choices(words, k=count // 8 + 1))[:count])


def timed(command, **kw):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **kw)
    return time.monotonic() - begin


def measured(command):
    """Seconds, and the most memory in MB that the command or one of its children had."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        # Of what a process has waited for the largest is known: a process for each.
        seconds = timed(command)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        os.write(write, f"{seconds} {most}".encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 100).decode()
    os.close(read)
    if os.waitpid(child, 0)[1] != 0 or not text:
        raise SystemExit(f"it failed: {command}")
    return map(float, text.split())


def measure_all(nsbox, store, archive):
    words = [nsbox, "rootfs", "--store", store]
    for name, command in (("import", ["import", "--name", "a", archive]), ("show", ["show", "a"]),
                          ("verify", ["verify", "a"]), ("export", ["export", "a"]), ("rm", ["rm", "a"]),
                          ("import", ["import", archive]), ("gc", ["gc", "--keep", "0"])):
        seconds, most = measured(words + command)
        print(f"{name}: {seconds:.2f} s, {most:.0f} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=23)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--dir", default="/var/tmp")
    options = parser.parse_args()
    nsbox = os.path.abspath(options.nsbox)
    work = tempfile.mkdtemp(prefix="nsbox-bench-", dir=options.dir)
    try:
        tree, archive = os.path.join(work, "tree"), os.path.join(work, "a.tar.zst")
        make_tree(tree, options.files, options.megabytes * 1000000)
        subprocess.run(f"tar -C {tree} -c . | zstd -q -o {archive}", shell=True, check=True)
        times = {"tar": [], "nsbox": []}
        for number in range(options.rounds):
            out, store = os.path.join(work, f"x{number}"), os.path.join(work, f"s{number}")
            os.mkdir(out)
            runs = [("tar", [f"zstd -dc {archive} | tar -x -C {out}"], {"shell": True}),
                    ("nsbox", [nsbox, "rootfs", "--store", store, "import", archive], {})]
            # Whoever comes second has the advantage, or not: each does every other time.
            for name, command, kw in runs if number % 2 == 0 else reversed(runs):
                times[name].append(timed(command if name == "nsbox" else command[0], **kw))
        medians = {name: statistics.median(all_times) for name, all_times in times.items()}
        print(f"zstd -dc | tar x: {medians['tar'] * 1000:.0f} ms")
        print(f"nsbox rootfs import: {medians['nsbox'] * 1000:.0f} ms")
        print(f"ratio: {medians['nsbox'] / medians['tar']:.2f}")
        if options.all:
            measure_all(nsbox, os.path.join(work, "all"), archive)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", work], check=False)
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
