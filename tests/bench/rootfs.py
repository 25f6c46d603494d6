#!/usr/bin/python3
"""Measures the import of a root filesystem against `zstd -dc | tar x` of the same archive.

    tests/bench/rootfs.py --nsbox build/nsbox [--files N] [--megabytes N] [--rounds N] [--dir DIR]

The archive is made up, the same each time: small files and some large ones, with text that
compresses as programs do. Each round does both, in folders that stay until the end: file systems
are slow to reuse what was just removed. Prints the medians, and their ratio. The defaults are
small; the figure in doc/benchmarks.md is of `--files 10000 --megabytes 230`.

With --all, one round of import, show, verify, export, rm and gc follows, with the time and the most memory
of each: `--files 100000 --megabytes 10 --rounds 1 --all` shows that neither grows faster than the tree.

With --fuse, sandboxes on the tree as an overlay are compared with the same on fuse-overlayfs, mounted and
unmounted around bwrap: a start, all files read, a file appended to in each folder.
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


WORK = (("start", "true"), ("read all files", "find /d[0-9]* -type f -print0 | xargs -0 cat >/dev/null"),
        ("append to a file in each folder", "for d in /d[0-9]*; do set -- $d/*; echo x >>$1; done"))


def measure_fuse(nsbox, tree, work, rounds):
    """The chain of tools that have no overlay of the kernel's, against `nsbox run --overlay`."""
    for name in ("bin", "proc", "dev", "tmp", "run", "home", "var", "etc"):
        os.makedirs(os.path.join(tree, name), exist_ok=True)
    for name in ("busybox", "sh"):
        shutil.copy("/bin/busybox", os.path.join(tree, "bin", name))
    chain = os.path.join(work, "chain")
    with open(chain, "w", encoding="ascii") as file:
        file.write("set -e\nmkdir $1 $1/u $1/w $1/m\n"
                   "fuse-overlayfs -o lowerdir=$2,upperdir=$1/u,workdir=$1/w $1/m\n"
                   "trap 'fusermount3 -u $1/m' EXIT\n"
                   "bwrap --unshare-all --bind $1/m / --proc /proc --dev /dev --tmpfs /tmp /bin/sh -c \"$3\"\n")
    for text, script in WORK:
        # busybox's applets need no links: its shell knows them.
        times = {"fuse": [], "nsbox": []}
        for number in range(rounds):
            folder = os.path.join(work, f"f{text[0]}{number}")
            runs = [("fuse", ["sh", chain, folder, tree, script]),
                    ("nsbox", [nsbox, "run", "--rootfs", tree, "--overlay", "--", "/bin/sh", "-c", script])]
            for name, command in runs if number % 2 == 0 else reversed(runs):
                times[name].append(timed(command))
        medians = {name: statistics.median(all_times) * 1000 for name, all_times in times.items()}
        print(f"{text}: nsbox {medians['nsbox']:.1f} ms, fuse-overlayfs and bwrap {medians['fuse']:.1f} ms, "
              f"ratio {medians['nsbox'] / medians['fuse']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=23)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--fuse", action="store_true", help="needs fuse-overlayfs, bwrap and busybox-static")
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
        if options.fuse:
            measure_fuse(nsbox, tree, work, max(3, options.rounds))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if os.path.exists(work):
            # What belongs to subordinate ids can be removed where these are mapped.
            subprocess.run(["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", work], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
