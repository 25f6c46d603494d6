#!/usr/bin/python3
"""Measures nsbox beside bwrap, in one go, and prints Markdown tables.

    tests/bench/run.py --nsbox build/nsbox --bwrap /usr/bin/bwrap [--as root|user|both]
                       [--pairs N] [--crowd N] [--only NAME] [--output FILE]

Times are medians of runs in turn (A B A B ...), ratios are medians of the ratios pair by pair.
The programs that it needs are compiled into a temporary folder with `cc`; strace is needed for
the row that counts system calls. Nothing is asserted: the last column says whether the figure
that was aimed at is met. Environment: NSBOX_TEST_USER names the ordinary user (nsbox-test).
"""

import argparse
import collections
import os
import platform
import pwd
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FULL = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp"]
FULL_TEXT = "`--unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp /bin/true`"
FREESTANDING = ["-nostdlib", "-ffreestanding", "-fno-stack-protector"]
PROGRAMS = {"pair": ("pair.c", []), "floor": ("floor.c", ["-static"]),
            "true": ("true.c", ["-static"]), "calls": ("calls.c", ["-static"]), "bare": ("bare.c", ["-static", *FREESTANDING]),
            "stay": ("bare.c", ["-static", "-DSTAY", *FREESTANDING])}

Row = collections.namedtuple("Row", "what nsbox bwrap ratio goal")


class Bench:
    def __init__(self, options, folder, who):
        self.options, self.folder, self.who = options, folder, who
        self.identity = {}
        if who == "user" and os.getuid() == 0:
            entry = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))
            self.identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        # Called by the same name, so that both take the same words.
        self.nsbox, self.bwrap = self.tool("nsbox/bwrap"), self.tool("peer/bwrap")
        self.true, self.bare, self.stay = self.tool("true"), self.tool("bare"), self.tool("stay")
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
                            "HOME": "/nonexistent"}
        self.notes = []

    def tool(self, name):
        return os.path.join(self.folder, name)

    def call(self, argv):
        done = subprocess.run(argv, env=self.environment, cwd="/", stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, **self.identity)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)[:300]}: {done.stderr.strip()}")
        return done.stdout

    def output(self, argv):
        return dict(row.split("=", 1) for row in self.call(argv).split())

    def pair(self, pairs, first, second=None, *options):
        argv = [self.tool("pair"), "-n", str(pairs), *options, ":::", *first]
        if second:
            argv += [":::", *second]
        return {key: float(value) for key, value in self.output(argv).items()}

    # -- rows --

    def starts(self):
        n = self.options.pairs
        goals = [(FULL_TEXT, [*FULL, "/bin/true"], 0.65),
                 ("`--ro-bind / / TRUE`, TRUE static with glibc",
                  ["--ro-bind", "/", "/", self.true], 0.70),
                 ("`--ro-bind / / TRUE`, TRUE without a libc",
                  ["--ro-bind", "/", "/", self.bare], 0.70)]
        for text, args, goal in goals:
            got = self.pair(n, [self.nsbox, *args], [self.bwrap, *args])
            yield Row(text, ms(got["a"]), ms(got["b"]), got["ratio"], goal)

    def everyday_words(self):
        """bwrap's words for what `nsbox run` does without options, as that says itself."""
        told = subprocess.run([self.tool("nsbox/nsbox"), "run", "--dry-run", "--", "/usr/bin/true"], cwd="/",
                              env=self.environment, capture_output=True, text=True, check=True, **self.identity)
        words, options, number = [], [], 10
        for line in told.stdout.splitlines():
            kind, rest = line[:11].strip(), line[11:]
            if kind == "show":
                words += ["--ro-bind", rest.split(",")[0], rest.split(",")[0]]
            elif kind == "link":
                place, target = rest.split(" to ")
                words += ["--symlink", target, place]
            elif kind == "tmpfs":
                words += ["--perms", rest.split("mode ")[1], "--tmpfs", rest.split(",")[0]]
            elif kind == "folder":
                words += ["--dir", rest.split(",")[0]]
            elif kind == "file":
                path = self.tool(f"file{number}")
                with open(path, "w", encoding="ascii") as file:
                    file.write("x" * int(rest.split(" of ")[1].split()[0]))
                options += ["-f", f"{number}={path}"]
                words += ["--file", str(number), rest.split(" of ")[0]]
                number += 1
            elif kind in ("proc", "dev"):
                words += [f"--{kind}", rest]
            elif kind == "hostname":
                words += ["--hostname", rest]
        words += ["--remount-ro", "/", "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop",
                  "ALL", "--new-session", "--die-with-parent", "--clearenv", "--chdir", "/home/sandbox"]
        for name in ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM"):
            words += ["--setenv", name, self.environment.get(name, "x")]
        return words, options

    def everyday(self):
        words, options = self.everyday_words()
        got = self.pair(self.options.pairs, [self.tool("nsbox/nsbox"), "run", "--", "/usr/bin/true"],
                        [self.bwrap, *words, "/usr/bin/true"], *options)
        yield Row("`nsbox run -- true` / the same by bwrap's options", ms(got["a"]), ms(got["b"]), got["ratio"], 0.70)
        # A root that has everything, by a folder and as an overlay, against the same by a bind.
        tree = self.tool("tree")
        for folder in ("usr", "etc", "proc", "dev", "tmp", "run", "home", "var"):
            os.makedirs(os.path.join(tree, folder), exist_ok=True)
        shutil.copyfile(self.bare, os.path.join(tree, "bare"))
        os.chmod(os.path.join(tree, "bare"), 0o755)
        base = [self.nsbox, "--unshare-all"]
        got = self.pair(self.options.pairs, [*base, "--overlay-src", tree, "--tmp-overlay", "/", "/bare"],
                        [*base, "--ro-bind", tree, "/", "/bare"])
        self.notes.append(f"A root as an overlay: {ms(got['a'])}; the same folder as a bind: {ms(got['b'])}.")
        # A second use of a name in the store, against what lies there given as a folder; with an overlay.
        store = self.tool(f"store-{self.who}")
        os.mkdir(store, 0o700)
        if self.identity:
            os.chown(store, self.identity["user"], self.identity["group"])
        self.environment["NSBOX_STORE"] = store
        run = [self.tool("nsbox/nsbox"), "run"]
        self.call([self.tool("nsbox/nsbox"), "rootfs", "import", tree, "--name", "bench"])
        named = [*run, "--rootfs", "bench", "/bare"]
        self.call(named)
        for text, first, second in (
                ("`--rootfs NAME`, used before: {}; `--rootfs DIR`: {}.", named, [*run, "--rootfs", tree, "/bare"]),
                ("`--rootfs NAME --overlay`: {}; without `--overlay`: {}.",
                 [*run, "--rootfs", "bench", "--overlay", "/bare"], named)):
            got = self.pair(self.options.pairs, first, second)
            self.notes.append(text.format(ms(got["a"]), ms(got["b"])))

    def walls(self):
        """What the walls of `nsbox run` beside namespaces cost at a start, and the filter later on."""
        run = [self.tool("nsbox/nsbox"), "run", "--ro", self.folder]
        less = [("the filter", ["--seccomp-policy", "none"]), ("Landlock", ["--landlock", "off"]),
                ("all, and for an ordinary user the covers",
                 ["--seccomp-policy", "none", "--landlock", "off", "--allow-userns"])]
        for what, words in less:
            got = self.pair(2 * self.options.pairs, [*run, "--", self.bare], [*run, *words, "--", self.bare])
            self.notes.append(f"`nsbox run` with its walls: {ms(got['a'])}; without {what}: {ms(got['b'])}.")
        loops = [self.call([*run, *words, "--", self.tool("calls")]).strip()
                 for words in ([], ["--seccomp-policy", "none"])]
        self.notes.append(f"getppid(2) in a loop: {loops[0]} ns with the filter, {loops[1]} ns without.")
        tree = self.tool(f"files-{self.who}")
        os.mkdir(tree)
        for number in range(3000):
            os.makedirs(os.path.join(tree, f"d{number % 50}"), exist_ok=True)
            with open(os.path.join(tree, f"d{number % 50}", f"f{number}"), "w", encoding="ascii") as file:
                file.write(str(number))
        git = ("cp -r " + tree + " t && cd t && git -c init.defaultBranch=m init -q && git add . && "
               "for i in $(seq 40); do git status --porcelain >/dev/null; done")
        work = (("`git status` of 3000 files, 40 times in one sandbox", git),
                ("python3 starts 40 times", "for i in $(seq 40); do python3 -c pass; done"))
        for text, line in work:
            got = self.pair(max(5, self.options.pairs // 20), [*run, "--", "sh", "-c", line],
                            [*run, "--seccomp-policy", "none", "--", "sh", "-c", line], "-w", "1")
            yield Row(text + ": with the filter / without", ms(got["a"]), f"({ms(got['b'])})", got["ratio"], 1.03)

    def floor(self):
        """Not a goal: what the machine asks for the same namespaces, and for a bare start."""
        n = self.options.pairs
        args = [*FULL, self.bare]
        got = self.pair(n, [self.nsbox, *args], [self.tool("floor"), self.bare])
        self.notes.append(f"The full line with a program without libc: {ms(got['a'])}; a program "
                          f"that makes the raw calls alone (`floor.c`): {ms(got['b'])}.")
        inside = float(self.output([self.tool("floor"), "-n", str(n), self.bare])["floor"])
        got = self.pair(n, [self.true], [self.bare])
        self.notes.append(f"`floor.c` from within, without its own start: {ms(inside)}; spawn, "
                          f"exec and reap of TRUE with glibc: {ms(got['a'])}, without libc: "
                          f"{ms(got['b'])}.")
        return ()

    def arguments(self, count):
        """A file for --args with `count` binds; destinations on a tmpfs."""
        path = self.tool(f"binds{count}")
        words = ["--ro-bind", "/", "/", "--tmpfs", "/tmp"]
        for number in range(count):
            words += ["--ro-bind", "/usr", f"/tmp/m{number}"]
        with open(path, "wb") as f:
            f.write(b"\0".join(word.encode() for word in words))
        return ["-f", f"9={path}"]

    def binds(self):
        args = ["--args", "9", self.bare]
        got = self.pair(max(3, self.options.pairs // 30), [self.nsbox, *args],
                        [self.bwrap, *args], "-w", "1", *self.arguments(1000))
        yield Row("1000 × `--ro-bind /usr /tmp/mN`", ms(got["a"]), ms(got["b"]), got["ratio"],
                  0.10)
        none = self.pair(50, [self.nsbox, *args], None, *self.arguments(0))["a"]
        each = {}
        for count in (100, 400, 1000, 2000, 4000):
            rounds = max(5, 20000 // count // 2)
            took = self.pair(rounds, [self.nsbox, *args], None, *self.arguments(count))["a"]
            each[count] = (took - none) / count
            self.notes.append(f"{count} binds: {ms(took)}, {each[count]:.1f} µs for each.")
        yield Row("one bind among 4000 / one among 100 (nsbox alone)", f"{each[4000]:.1f} µs",
                  f"({each[100]:.1f} µs)", each[4000] / each[100], 1.3)

    def crowd(self):
        crowd, n = self.options.crowd, max(30, self.options.pairs // 4)
        figures = {}
        for name, program in (("nsbox", self.nsbox), ("bwrap", self.bwrap)):
            sleeper = [program, "--die-with-parent", *FULL, self.stay]
            argv = [self.tool("pair"), "-k", str(crowd), "-n", str(n), ":::", program, *FULL,
                    "/bin/true", ":::", *sleeper]
            got = {key: float(value) for key, value in self.output(argv).items()}
            alone = (got["before"] + got["after"]) / 2
            figures[name] = got["among"] / alone
            self.notes.append(
                f"{name}: first start {ms(got['before'])}, among {crowd} {ms(got['among'])}, "
                f"after they are gone {ms(got['after'])}.")
        # The goal is about nsbox against itself; bwrap's own factor stands beside it.
        yield Row(f"the start of one more sandbox among {crowd} / the first's",
                  f"{figures['nsbox']:.2f}", f"{figures['bwrap']:.2f}", figures["nsbox"], 1.3)

    def memory(self):
        kib = {}
        for name, program in (("nsbox", self.nsbox), ("bwrap", self.bwrap)):
            sizes = [self.one_memory(program) for _ in range(5)]
            if None in sizes:
                self.notes.append("The memory row needs root: pid 1 hides its maps.")
                return
            kib[name] = statistics.median(sizes)
        yield Row("memory (PSS) of the processes that stay beside the command",
                  f"{kib['nsbox']:.0f} kB", f"{kib['bwrap']:.0f} kB", kib["nsbox"] / kib["bwrap"],
                  1.0)

    def one_memory(self, program):
        read, write = os.pipe()
        proc = subprocess.Popen([program, "--die-with-parent", *FULL, self.stay], cwd="/",
                                env=self.environment, stdin=subprocess.DEVNULL, stdout=write,
                                **self.identity)
        os.close(write)
        try:
            if os.read(read, 1) != b"!":
                raise RuntimeError(f"{program} did not start its command")
            time.sleep(0.2)  # What counts is the memory of a command that stays.
            wanted = os.stat(self.stay)
            total = 0
            for pid in family(proc.pid):
                try:
                    exe = os.stat(f"/proc/{pid}/exe")
                    if (exe.st_dev, exe.st_ino) == (wanted.st_dev, wanted.st_ino):
                        continue
                    with open(f"/proc/{pid}/smaps_rollup") as f:
                        total += int(re.search(r"^Pss: +(\d+) kB", f.read(), re.M)[1])
                except PermissionError:
                    return None
            return total
        finally:
            os.close(read)
            # The child first: a bwrap whose parent dies early may not have asked for its own
            # death yet. Nobody else reaps these, so the numbers are still theirs.
            for pid in reversed(family(proc.pid)[:2]):
                os.kill(pid, signal.SIGKILL)
            proc.wait()

    def calls(self):
        if not shutil.which("strace"):
            self.notes.append("No count of system calls: strace is not installed.")
            return
        on_the_way, everybody = {}, {}
        for name, program in (("nsbox", self.nsbox), ("bwrap", self.bwrap)):
            trace = os.path.join(self.folder, "traces", f"{self.who}-{name}")
            subprocess.run(["strace", "-f", "-s", "256", "-o", trace, program, *FULL, self.true],
                           check=True, cwd="/", env=self.environment, stdin=subprocess.DEVNULL,
                           capture_output=True, **self.identity)
            on_the_way[name], everybody[name] = count_calls(trace, self.true)
        self.notes.append(f"System calls until the command's exec of all processes but the "
                          f"first: {everybody['nsbox']}, bwrap {everybody['bwrap']}.")
        yield Row("system calls from clone to exec, set-up child and command side",
                  str(on_the_way["nsbox"]), str(on_the_way["bwrap"]),
                  on_the_way["nsbox"] / on_the_way["bwrap"], 0.5)


def ms(microseconds):
    return f"{microseconds / 1000:.2f} ms"


def family(pid):
    found = [pid]
    for one in found:
        with open(f"/proc/{one}/task/{one}/children") as f:
            found += [int(word) for word in f.read().split()]
    return found


def count_calls(trace, program):
    """Reads `strace -f -o`: (calls on the way from the first clone to the command's exec: of each
    process until it makes the next one; calls of every process but the first until that exec)."""
    first, parent, makers = None, {}, []
    calls, until_child = collections.Counter(), {}
    with open(trace, errors="replace") as f:
        for row in f:
            match = re.match(r"(\d+) +(\w+)\((.*)", row)
            if not match:
                continue
            pid, name = int(match[1]), match[2]
            first = first or pid
            if pid != first and pid not in parent:
                # Made by the latest clone that is not spoken for.
                parent[pid], until_child[pid] = makers.pop()
            calls[pid] += 1
            if name in ("clone", "clone3", "fork", "vfork"):
                makers.append((pid, calls[pid]))
            if name in ("execve", "execveat") and f'"{program}"' in match[3] and pid != first:
                break
        else:
            raise RuntimeError(f"no exec of {program} in {trace}")
    chain = calls[pid]
    while parent[pid] != first:
        chain += until_child[pid]
        pid = parent[pid]
    return chain, sum(count for one, count in calls.items() if one != first)


def table(rows):
    text = ["| what | nsbox | bwrap | ratio | at most | met |",
            "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        met = "yes" if row.ratio <= row.goal else "no"
        text.append(f"| {row.what} | {row.nsbox} | {row.bwrap} | {row.ratio:.2f} | "
                    f"{row.goal:.2f} | {met} |")
    return text


def machine(options):
    version = subprocess.run([options.bwrap, "--version"], capture_output=True, text=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (f"{os.cpu_count()} processors, Linux {platform.release()}, peer "
            f"{version.stdout.strip()}, {options.pairs} pairs, load before {load}.")


def build(folder):
    for name, (source, flags) in PROGRAMS.items():
        subprocess.run(["cc", "-O2", *flags, "-o", os.path.join(folder, name),
                        os.path.join(HERE, source)], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--bwrap", default="/usr/bin/bwrap")
    parser.add_argument("--as", dest="who", choices=["root", "user", "both"], default="both")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--crowd", type=int, default=1000)
    names = ["starts", "everyday", "walls", "floor", "binds", "memory", "calls", "crowd"]
    parser.add_argument("--only", action="append", choices=names, help="repeatable")
    parser.add_argument("--output", help="write the text there too")
    options = parser.parse_args()
    # Not under /tmp, which the command lines cover.
    folder = tempfile.mkdtemp(prefix="nsbox-bench-", dir="/var/tmp")
    text = []
    try:
        os.chmod(folder, 0o755)
        os.mkdir(os.path.join(folder, "traces"))
        os.chmod(os.path.join(folder, "traces"), 0o1777)
        for name, program in (("nsbox", options.nsbox), ("peer", options.bwrap)):
            os.mkdir(os.path.join(folder, name))
            # Copies: pages of a file that somebody else runs too would count for less.
            shutil.copyfile(program, os.path.join(folder, name, "bwrap"))
            os.chmod(os.path.join(folder, name, "bwrap"), 0o755)
        os.link(os.path.join(folder, "nsbox/bwrap"), os.path.join(folder, "nsbox/nsbox"))
        helper = os.path.join(os.path.dirname(os.path.abspath(options.nsbox)), "nsbox-rootfs")
        shutil.copy(helper, os.path.join(folder, "nsbox/nsbox-rootfs"))
        build(folder)
        text += [machine(options), ""]
        whos = ["root", "user"] if options.who == "both" else [options.who]
        if os.getuid() != 0:
            whos = ["user"]
        for who in whos:
            bench = Bench(options, folder, who)
            rows = []
            for name in options.only or names:
                print(f"# {who}: {name}", file=sys.stderr, flush=True)
                rows += getattr(bench, name)()
            text += [f"As {'root' if who == 'root' else 'an ordinary user'}:", "", *table(rows),
                     "", *(f"* {note}" for note in bench.notes), ""]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(text))
    if options.output:
        with open(options.output, "w") as f:
            f.write("\n".join(text))


if __name__ == "__main__":
    main()
