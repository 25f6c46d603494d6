#!/usr/bin/python3
"""Installs a build into a folder of its own and uses the library there as authors of other programs would.

    tests/install/run.py --build DIR [--as root|user|both] [--only REGEX] [--list] [--full]

DIR is a compiled build directory. Programs against the library are built by pkg-config, CMake and meson, and
run as root and as an ordinary user (NSBOX_TEST_USER, default nsbox-test); it has to be run as root.
Prints TAP-like lines and ends with `N passed, N failed, N skipped`.

The subproject is set up as a whole, and compared with the build by the commands that compile the library; the
program is linked with the build's own archive, so that the library need not be compiled again. --full, which
tools/test asks for, compiles it: that takes two processors about a minute.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMER = os.path.join(HERE, "consumer")
SOURCE = os.path.dirname(os.path.dirname(HERE))
WARNINGS = ("-Wall", "-Wextra", "-Werror")

CASES = []


class Skip(Exception):
    """This machine cannot do it."""


def case(text):
    """Registers a test. They run in the order in which they stand here: the later ones use what was made."""
    def register(func):
        CASES.append((text, func, None))
        return func
    return register


def case_for_each(text):
    """The same, once as root and once as the ordinary user."""
    def register(func):
        CASES.extend((text, func, identity) for identity in ("root", "user"))
        return func
    return register


def check(true, *what):
    if not true:
        raise AssertionError(" ".join(map(str, what)))


class Ctx:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        options = {option["name"]: option["value"] for option in json.loads(
            self.call("meson", "introspect", "--buildoptions", build))}
        self.version = json.loads(self.call("meson", "introspect", "--projectinfo", build))["version"]
        # What a project decides for its subprojects too.
        self.global_options = [f"-D{name}={options[name]}" for name in ("buildtype", "b_ndebug")]
        self.prefix = options["prefix"]
        self.libdir, self.libexecdir = options["libdir"], options["libexecdir"]
        self.stage = os.path.join(folder, "stage")
        self.staged = self.stage + self.prefix  # Where the prefix lies for now.
        self.libraries = os.path.join(self.staged, self.libdir)
        self.programs = {}
        self.full = False
        self.account = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))

    def run(self, *argv, env=None, cwd=None, identity="root", timeout=120):
        words = {}
        if identity == "user":
            words = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return subprocess.run(argv, env={**os.environ, "HOME": self.folder, **(env or {})}, timeout=timeout,
                              cwd=cwd or self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, **words)

    def call(self, *argv, **words):
        """The output of a command that has to succeed."""
        got = self.run(*argv, **words)
        check(got.returncode == 0, shlex.join(argv), "ended with", got.returncode, "\n", got.stdout[-3000:])
        return got.stdout

    def pkg_config(self, *words):
        env = {"PKG_CONFIG_PATH": os.path.join(self.libraries, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": self.stage}
        return self.call("pkg-config", *words, "nsbox", env=env).split()

    def link(self, name, *words):
        """Makes a program of what stands in `consumer`."""
        self.programs[name] = os.path.join(self.folder, name)
        self.call("c++", os.path.join(self.folder, "main.o"), "-o", self.programs[name], *words)
        return self.needed(self.programs[name])

    def needed(self, program):
        """The shared libraries that it names."""
        return re.findall(r"\(NEEDED\).*\[(.*)\]", self.call("readelf", "-dW", program))

    def works(self, name, identity):
        """The program runs a command in a sandbox, and says when there is none."""
        check(name in self.programs, name, "was not built")
        env = {"LD_LIBRARY_PATH": self.libraries}
        out = self.call(self.programs[name], "sh", "-c", "echo process $$; exit 7", env=env, identity=identity)
        check(out == f"process 2\nnsbox {self.version}: status 7\n", out)
        got = self.run(self.programs[name], "/nonexistent", env=env, identity=identity)
        check(got.returncode == 3 and "/nonexistent" in got.stdout, got)


def files_below(folder):
    return {os.path.relpath(os.path.join(where, name), folder)
            for where, folders, files in os.walk(folder)
            for name in files + [name for name in folders if os.path.islink(os.path.join(where, name))]}


# --------------------------------------------------------------------------------------------
# What is installed


@case("meson install puts everything into place, and nothing else")
def install(ctx):
    # As the owner of the build directory, whose log it writes.
    owner = os.stat(ctx.build)
    os.mkdir(ctx.stage)
    os.chown(ctx.stage, owner.st_uid, owner.st_gid)
    got = subprocess.run(["meson", "install", "-C", ctx.build, "--no-rebuild", "--destdir", ctx.stage],
                         user=owner.st_uid, group=owner.st_gid, umask=0o077, capture_output=True, text=True,
                         timeout=120, check=False)
    check(got.returncode == 0, got)
    wanted = {"bin/nsbox", f"{ctx.libexecdir}/nsbox/nsbox-net", f"{ctx.libexecdir}/nsbox/nsbox-rootfs",
              "share/bash-completion/completions/nsbox", "share/zsh/site-functions/_nsbox"}
    wanted |= {f"{ctx.libdir}/{name}" for name in (
        "libnsbox.a", "libnsbox.so", "libnsbox.so.0", f"libnsbox.so.{ctx.version}", "pkgconfig/nsbox.pc",
        "cmake/nsbox/nsboxConfig.cmake", "cmake/nsbox/nsboxConfigVersion.cmake")}
    wanted |= {f"include/nsbox/{name}" for name in files_below(os.path.join(SOURCE, "include/nsbox"))}
    wanted |= {f"share/nsbox/rootfs/{name}" for name in files_below(os.path.join(SOURCE, "rootfs"))}
    wanted |= {f"share/man/man1/{name}" for name in os.listdir(os.path.join(SOURCE, "doc")) if name.endswith(".1")}
    there = files_below(ctx.staged)
    check(there == wanted, "lacks", sorted(wanted - there), "has", sorted(there - wanted))
    check(len(files_below(ctx.stage)) == len(there), "outside of the prefix", sorted(files_below(ctx.stage)))


@case("everybody may read what is installed, and nobody else write it")
def readable(ctx):
    for where, _, files in os.walk(ctx.stage):
        for path in [where] + [os.path.join(where, name) for name in files]:
            mode = os.stat(path).st_mode
            wanted = 0o555 if path == where or "/bin/" in path or f"/{ctx.libexecdir}/" in path else 0o444
            # Of the folder itself install knows nothing.
            check(mode & 0o022 == 0 and (path == ctx.stage or mode & wanted == wanted), oct(mode), path)


@case("the shared library has its soname, and links to its file")
def soname(ctx):
    out = ctx.call("readelf", "-dW", os.path.join(ctx.libraries, "libnsbox.so"))
    check(re.findall(r"\(SONAME\).*\[(.*)\]", out) == ["libnsbox.so.0"], out)
    check(not re.search(r"\((RPATH|RUNPATH|TEXTREL)\)", out), out)
    for link, target in (("libnsbox.so", "libnsbox.so.0"), ("libnsbox.so.0", f"libnsbox.so.{ctx.version}")):
        check(os.readlink(os.path.join(ctx.libraries, link)) == target, link)


def is_public(name):
    """Classes are PascalCase: a lower-case part in front of "::" is a namespace of the library's own."""
    return bool(re.match(r"nsbox_[a-z]|nsbox::([A-Z]\w*::)?[~\w]\w*=?(\[abi:\w+\])?\(", name)
                and not re.search(r"\bnsbox::[a-z_]+::", name))


@case("the shared library shows its interface alone, all of it with a version")
def symbols(ctx):
    out = ctx.call("nm", "-DC", "--defined-only", os.path.join(ctx.libraries, "libnsbox.so.0"))
    names = [row.split(" ", 2)[2] for row in out.splitlines()]
    check("NSBOX_0" in names, out)
    names.remove("NSBOX_0")
    check(any(name.startswith("nsbox::Sandbox::start(") for name in names), out)
    wrong = [name for name in names if not is_public(name) or not name.endswith("@@NSBOX_0")]
    check(not wrong, wrong)
    # All that the compiler was told to show; a class has to be in src/libnsbox.map too.
    archive_path = os.path.join(ctx.libraries, "libnsbox.a")
    rows = re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +\d+ (.*)", ctx.call("readelf", "-sWC", archive_path))
    visible = set(filter(is_public, rows))
    exported = {name.split("@@")[0] for name in names}
    check(visible == exported, sorted(visible ^ exported))
    # There is something to hide, and it would be seen.
    out = ctx.call("nm", "-C", "--defined-only", archive_path)
    names = {row[19:] for row in out.splitlines() if row[17:18] == "T"}
    for inner in ("nsbox::runtime::", "nsbox::sys::", "nsbox::Sandbox::State::"):
        found = [name for name in names if name.startswith(inner)]
        check(found and not any(map(is_public, found)), inner, found)


@case("the archive is complete, and defines no name outside of the library's namespace")
def archive(ctx):
    path = os.path.join(ctx.libraries, "libnsbox.a")
    with open(path, "rb") as file:
        check(file.read(8) == b"!<arch>\n", "it names objects that lie elsewhere")
    # A weak one is the same wherever it comes from, and a small letter no other object's.
    out = ctx.call("nm", "-C", "--defined-only", path)
    strong = {row[19:] for row in out.splitlines() if re.match(r"[0-9a-f]{16} [A-U] ", row)}
    check("nsbox::version()" in strong, sorted(strong)[:20])
    wrong = [name for name in strong if not re.match(r"((guard variable|vtable) for )?nsbox(::|_[a-z])", name)]
    check(not wrong, sorted(wrong))


@case("the program's own code needs nothing that the shared library hides")
def interface(ctx):
    # nsbox is linked with the archive; its code includes public headers alone, and uses most of them.
    words = ("c++", "-shared", "-Wl,--no-undefined", "-o", os.path.join(ctx.folder, "tools.so"),
             "-Wl,--whole-archive", "libnsbox-tools.a", "-Wl,--no-whole-archive")
    ctx.call(*words, os.path.join(ctx.libraries, "libnsbox.so"), cwd=ctx.build)
    got = ctx.run(*words, cwd=ctx.build)
    check(got.returncode != 0 and "undefined reference to `nsbox::" in got.stdout, "it needs the library", got)


# --------------------------------------------------------------------------------------------
# Headers


def headers(ctx):
    names = sorted(os.listdir(os.path.join(ctx.staged, "include/nsbox")))
    check("spec.hpp" in names, names)
    return names


@case("a public header includes the standard library, tl/expected.hpp and other public ones only")
def includes(ctx):
    for header in headers(ctx):
        with open(os.path.join(ctx.staged, "include/nsbox", header), encoding="utf-8") as file:
            named = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', file.read(), re.M)
        for name in named:
            own = name.startswith("nsbox/") and name[len("nsbox/"):] in headers(ctx)
            standard = re.fullmatch(r"[a-z_]+|std(bool|def|int)\.h", name)
            check(own or standard or name in ("tl/expected.hpp", "sys/types.h"), header, "includes", name)


@case("each public header can be included alone, by both compilers, without a warning")
def alone(ctx):
    flags = [*WARNINGS, "-fsyntax-only", *ctx.pkg_config("--cflags")]
    calls = []
    for header in headers(ctx):
        source = os.path.join(ctx.folder, f"{header}.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write(f"#include <nsbox/{header}>\n")
        calls += [(compiler, "-std=c++20", *flags, source) for compiler in ("g++", "clang++") if shutil.which(compiler)]
        if header.endswith(".h"):
            calls.append(("cc", "-std=c11", *flags, "-x", "c", source))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda words: ctx.call(*words), calls))


# --------------------------------------------------------------------------------------------
# Programs


@case("nsbox.pc names the library, and what the archive needs as private")
def package(ctx):
    check(ctx.pkg_config("--modversion") == [ctx.version], "version")
    check(ctx.pkg_config("--libs-only-l") == ["-lnsbox"], "what programs are linked with")
    check(sorted(ctx.pkg_config("--print-requires-private")) == ["libcap", "libseccomp"], "requirements")
    check(ctx.pkg_config("--print-requires") == [], "public requirements")
    libraries = ctx.pkg_config("--static", "--libs-only-l")
    check(libraries[0] == "-lnsbox" and {"-lseccomp", "-lcap"} <= set(libraries), libraries)


@case("a program with the flags of pkg-config is linked with the shared library")
def shared(ctx):
    ctx.call("c++", "-std=c++20", *WARNINGS, "-c", os.path.join(CONSUMER, "main.cpp"), "-o", "main.o",
             *ctx.pkg_config("--cflags"))
    needed = ctx.link("shared", *ctx.pkg_config("--libs"))
    check("libnsbox.so.0" in needed and "libseccomp.so.2" not in needed, needed)


@case("a program with the flags of pkg-config --static is linked with the archive")
def static(ctx):
    check(ctx.link("static", "-static", *ctx.pkg_config("--static", "--libs")) == [], "nothing is shared")


@case("find_package of CMake finds both libraries, wherever the prefix lies")
def cmake(ctx):
    build = os.path.join(ctx.folder, "cmake")
    ctx.call("cmake", "-S", CONSUMER, "-B", build, f"-DCMAKE_PREFIX_PATH={ctx.staged}",
             f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}")
    ctx.call("cmake", "--build", build, "--parallel", "2")
    for name, is_shared in (("shared", True), ("archive", False)):
        program = ctx.programs[f"cmake-{name}"] = os.path.join(build, name)
        check(("libnsbox.so.0" in ctx.needed(program)) == is_shared, name)


@case("find_package of CMake refuses other minor versions")
def cmake_version(ctx):
    script = os.path.join(ctx.folder, "version.cmake")
    where = os.path.join(ctx.libraries, "cmake/nsbox")
    major, minor, patch = map(int, ctx.version.split("."))
    for wanted in (f"{major}.{minor + 1}", f"{major + 1}.0", f"{major}.{minor}.{patch + 1}"):
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'find_package(nsbox {wanted} CONFIG QUIET PATHS "{where}" NO_DEFAULT_PATH)\n'
                       'message("${nsbox_FOUND} of ${nsbox_CONSIDERED_VERSIONS}")\n')
        out = ctx.call("cmake", "-P", script)
        check(out == f"0 of {ctx.version}\n", wanted, out)


def commands(build, inside=""):
    """How each object of the library is compiled, without what is about places."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        rows = json.load(file)
    result = {}
    for row in rows:
        words = shlex.split(row["command"])
        target = words[words.index("-o") + 1]
        name = re.fullmatch(rf"{inside}((libnsbox\.so\S*|src/libnsbox-child\.a)\.p/.*)", target)
        if name:
            first = next(i for i, word in enumerate(words) if word.startswith("-"))
            # Each project has a build type and warnings of its own.
            result[name[1]] = {word for word in words[first:] if word.startswith("-") and
                               not re.match(r"-(I|isystem|o$|MQ|MF|c$|D_?NSBOX|DNSBOX_HELPER_DIR|O|g|W)", word)}
    return result


@case("another meson project has nsbox as a subproject, under names of its own")
def subproject(ctx):
    outer = os.path.join(ctx.folder, "outer")
    shutil.copytree(CONSUMER, outer)
    os.mkdir(os.path.join(outer, "subprojects"))
    os.symlink(SOURCE, os.path.join(outer, "subprojects/nsbox"))
    build = os.path.join(outer, "build")
    ctx.call("meson", "setup", build, outer, "--wrap-mode=forcefallback", "--prefix=/usr", "--libexecdir=libexec",
             f"--libdir={ctx.libdir}", *ctx.global_options, "-Dwarning_level=2", "-Dwerror=true")
    places = json.loads(ctx.call("meson", "introspect", "--installed", build)).values()
    wrong = [place for place in places
             if not re.match(r"/usr/libexec/consumer-nsbox|/usr/share/(consumer-nsbox|bash-completion|zsh)/", place)]
    check(places and not wrong, "is installed:", wrong)
    check({"/usr/libexec/consumer-nsbox", "/usr/libexec/consumer-nsbox-helpers/nsbox-net"} <= set(places), places)

    archive_path = os.path.join(build, "subprojects/nsbox/libnsbox.a")
    ours, theirs = commands(ctx.build), commands(build, "subprojects/nsbox/")
    check(ours.keys() == theirs.keys() and len(ours) > 50, set(ours) ^ set(theirs))
    for name, words in ours.items():
        check(words == theirs[name], name, "is compiled otherwise:", words ^ theirs[name])
    if ctx.full:
        ctx.call("meson", "compile", "-C", build, "consumer", timeout=1200)
    else:
        ctx.call("ninja", "-C", build, "consumer.p/main.cpp.o", "subprojects/nsbox/src/libnsbox-child.a")
        # The same objects, of the build. The rest of the command is that of the subproject.
        link = ctx.call("ninja", "-C", build, "-t", "commands", "-s", "consumer").splitlines()[-1]
        check(link.count(" subprojects/nsbox/libnsbox.a ") == 1, link)
        shutil.copy(os.path.join(ctx.libraries, "libnsbox.a"), archive_path)
        ctx.call("sh", "-c", link, cwd=build)
    ctx.programs["subproject"] = os.path.join(build, "consumer")
    check("libnsbox.so.0" not in ctx.needed(ctx.programs["subproject"]), "it has a copy of its own")


def register_runs():
    for name, what in (("shared", "the program with the shared library"), ("static", "the static program"),
                       ("cmake-shared", "CMake's program with the shared library"),
                       ("cmake-archive", "CMake's program with the archive"),
                       ("subproject", "the program with the subproject")):
        def run(ctx, identity, name=name):
            ctx.works(name, identity)
        case_for_each(f"{what} runs a command in a sandbox")(run)


register_runs()


# --------------------------------------------------------------------------------------------
# Examples

PROGRAMS = {
    "adds": ("#include <stdio.h>\nint main(void) { int a, b; scanf(\"%d %d\", &a, &b); printf(\"%d\\n\", a + b); }",
             ["accepted", "wrong answer"], 1),
    "endless": ("int main(void) { for (;;); }", ["time limit"] * 2, 1),
    "crash": ("int main(void) { *(volatile int *)0 = 1; }", ["ended by signal 11"] * 2, 1),
    "flood": ("#include <stdio.h>\nint main(void) { for (int i = 0; i < 2000000; ++i) puts(\"x\"); }",
              ["output limit"] * 2, 1),
    "forks": ("#include <unistd.h>\nint main(void) { for (;;) if (fork() < 0) return 7; }", ["exit status 7"] * 2, 1),
    "network": ("#include <sys/socket.h>\nint main(void) { return socket(AF_INET, SOCK_STREAM, 0) < 0 ? 5 : 0; }",
                ["exit status 5"] * 2, 1),
    "secrets": ("#include \"/etc/shadow\"\nint main(void) { return 0; }", ["compile error"], 1),
}


@case_for_each("the example judge says what came of programs, good ones and bad ones")
def judge(ctx, identity):
    folder = os.path.join(ctx.folder, f"judge-{identity}")
    tests = os.path.join(folder, "tests")
    os.makedirs(tests)
    for name, given, wanted in (("first", "3 4\n", "7\n"), ("second", "1 1\n", "3\n")):
        for ending, text in (("in", given), ("out", wanted)):
            with open(os.path.join(tests, f"{name}.{ending}"), "w", encoding="ascii") as file:
                file.write(text)
    program = ctx.programs.get("judge")
    if program is None:
        program = ctx.programs["judge"] = os.path.join(ctx.folder, "judge")
        ctx.call("c++", "-std=c++20", *WARNINGS, os.path.join(SOURCE, "doc/examples/judge/judge.cpp"), "-o", program,
                 *ctx.pkg_config("--cflags", "--libs"))
    for name, (text, verdicts, status) in PROGRAMS.items():
        source = os.path.join(folder, f"{name}.c")
        with open(source, "w", encoding="ascii") as file:
            file.write(text + "\n")
        got = ctx.run(program, source, tests, env={"LD_LIBRARY_PATH": ctx.libraries}, identity=identity)
        rows = got.stdout.splitlines()
        found = rows[:1] if verdicts == ["compile error"] else [row[17:37].strip() for row in rows]
        check(got.returncode == status and found == verdicts, name, got)
    os.remove(os.path.join(tests, "second.in"))
    ctx.call(program, os.path.join(folder, "adds.c"), tests, env={"LD_LIBRARY_PATH": ctx.libraries}, identity=identity)


# --------------------------------------------------------------------------------------------
# C, and what goes through it


@case("the C interface is what src/nsbox.symbols says, name by name")
def c_symbols(ctx):
    out = ctx.call("nm", "-D", "--defined-only", os.path.join(ctx.libraries, "libnsbox.so.0"))
    there = {row.split()[2] for row in out.splitlines() if re.match(r"\S+ T nsbox_[a-z]", row)}
    with open(os.path.join(SOURCE, "src/nsbox.symbols"), encoding="ascii") as file:
        promised = {line for line in file.read().splitlines() if not line.startswith("#")}
    check(there == promised, "gone", sorted(promised - there), "not promised", sorted(there - promised))
    # The header declares each of them, so that no program can know of another.
    with open(os.path.join(ctx.staged, "include/nsbox/nsbox.h"), encoding="utf-8") as file:
        declared = set(re.findall(r"\b(nsbox_[a-z0-9_]+)\(", re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)))
    check(declared == {name.split("@")[0] for name in promised}, sorted(declared ^ promised))


@case_for_each("a program in C uses every function of nsbox.h")
def c_program(ctx, identity):
    program = ctx.programs.get("everything")
    if program is None:
        # Beside it is the helper of networks.
        folder = os.path.join(ctx.folder, "c")
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(ctx.staged, ctx.libexecdir, "nsbox/nsbox-net"), folder)
        program = ctx.programs["everything"] = os.path.join(folder, "everything")
        ctx.call("cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", *WARNINGS, "-o", program,
                 os.path.join(CONSUMER, "everything.c"), *ctx.pkg_config("--cflags", "--libs"))
    with open(os.path.join(CONSUMER, "everything.c"), encoding="utf-8") as file:
        used = set(re.findall(r"\b(nsbox_[a-z0-9_]+)\(", file.read()))
    with open(os.path.join(SOURCE, "src/nsbox.symbols"), encoding="ascii") as file:
        promised = {line.split("@")[0] for line in file.read().splitlines() if not line.startswith("#")}
    check(promised <= used, "not used", sorted(promised - used))
    out = ctx.call(program, env={"LD_LIBRARY_PATH": ctx.libraries}, identity=identity)
    check(out == f"nsbox {ctx.version}: right\n", out)


def behaves(ctx, identity, *words, env=None):
    """An example that runs a command: what it prints, its status, its errors, and that it sees nothing of ours."""
    env = {"LD_LIBRARY_PATH": ctx.libraries, "SECRET": "secret", **(env or {})}
    got = ctx.run(*words, "sh", "-c", "echo out $SECRET; echo err >&2; ls /home /root 2>&1; exit 6", env=env,
                  identity=identity)
    check(got.returncode == 6 and "out\n" in got.stdout and "err\n" in got.stdout and "sandbox" in got.stdout, got)
    check("secret" not in got.stdout, got)
    got = ctx.run(*words, "/nowhere/program", env=env, identity=identity)
    check(got.returncode == 125 and "/nowhere/program: No such file" in got.stdout, got)


@case_for_each("the example in Python runs code that nobody trusts")
def python_example(ctx, identity):
    example = os.path.join(SOURCE, "doc/examples/python/run_untrusted.py")
    shutil.copy(example, ctx.folder)
    code = os.path.join(ctx.folder, f"code-{identity}.py")
    with open(code, "w", encoding="ascii") as file:
        file.write("import os, sys\nprint(os.listdir('/home'), os.environ.get('SECRET'), flush=True)\nprint('err', file=sys.stderr)\n"
                   "import time\ntime.sleep(float(open('code.py').read() and 30))\n")
    env = {"LD_LIBRARY_PATH": ctx.libraries, "SECRET": "secret"}
    words = ("/usr/bin/python3", os.path.join(ctx.folder, "run_untrusted.py"), code)
    got = ctx.run(*words, "1.5", env=env, identity=identity)
    check(got.returncode == 124 and "['sandbox'] None\n" in got.stdout and "err\n" in got.stdout, got)
    with open(code, "w", encoding="ascii") as file:
        file.write("raise SystemExit(5)\n")
    check(ctx.run(*words, env=env, identity=identity).returncode == 5, "the status")


@case_for_each("the example in Go runs a command in a sandbox")
def go_example(ctx, identity):
    if not shutil.which("go"):
        raise Skip("there is no Go")
    program = ctx.programs.get("go")
    if program is None:
        program = ctx.programs["go"] = os.path.join(ctx.folder, "go-run")
        env = {"PKG_CONFIG_PATH": os.path.join(ctx.libraries, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": ctx.stage,
               "GOCACHE": os.path.join(ctx.folder, "go-cache"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local",
               "GOPROXY": "off", "CGO_ENABLED": "1"}
        ctx.call("go", "build", "-o", program, os.path.join(SOURCE, "doc/examples/go/run.go"), env=env, timeout=300)
    behaves(ctx, identity, program)


@case_for_each("the example for Node.js runs a command in a sandbox")
def node_example(ctx, identity):
    headers_of_node = "/usr/include/node"
    if not shutil.which("node") or not os.path.exists(os.path.join(headers_of_node, "node_api.h")):
        raise Skip("there is no Node.js with its headers (Debian: libnode-dev)")
    module = os.path.join(ctx.folder, "nsbox.node")
    if not os.path.exists(module):
        ctx.call("cc", "-shared", "-fPIC", *WARNINGS, f"-I{headers_of_node}", "-o", module,
                 os.path.join(SOURCE, "doc/examples/node/nsbox.c"), *ctx.pkg_config("--cflags", "--libs"))
        shutil.copy(os.path.join(SOURCE, "doc/examples/node/run.js"), ctx.folder)
    behaves(ctx, identity, "node", os.path.join(ctx.folder, "run.js"))


@case_for_each("a program elsewhere finds the helpers where the library is installed")
def helpers(ctx, identity):
    if ctx.prefix in ("/", "/usr") or not os.path.isdir(ctx.prefix):
        raise Skip(f"{ctx.prefix} cannot be covered")
    empty = os.path.join(ctx.folder, "empty")
    os.makedirs(empty, exist_ok=True)
    words = ["setpriv", f"--reuid={ctx.account.pw_uid}", f"--regid={ctx.account.pw_gid}", "--clear-groups"]
    words = words if identity == "user" else []

    def networked(name, cover):
        """It sees the folder `cover` at the prefix."""
        check(name in ctx.programs, name, "was not built")
        return ctx.run("unshare", "--mount", "--propagation", "private", "sh", "-c",
                       'mount --bind "$0" "$1" && shift && exec "$@"', cover, ctx.prefix, *words,
                       "env", f"LD_LIBRARY_PATH={ctx.prefix}/{ctx.libdir}",
                       ctx.programs[name], "--net", "sh", "-c", "cat /proc/net/dev")

    where = f"{ctx.prefix}/{ctx.libexecdir}/nsbox"
    for name in ("shared", "static"):
        got = networked(name, ctx.staged)
        lines = got.stdout.splitlines()
        check(got.returncode == 0 and lines[0] == f"{where}/nsbox-rootfs", name, got)
        check(re.search(r"^ *eth0:", got.stdout, re.M), "the network's interface", got)
    got = networked("static", empty)
    check(got.returncode == 3 and f"nor is it {where}/nsbox-net" in got.stdout, "where there is none", got)


# --------------------------------------------------------------------------------------------


def attempt(ctx, func, identity):
    """The outcome, and what there is to say."""
    try:
        func(ctx, *([identity] if identity else []))
        return "passed", ""
    except Skip as skip:
        return "skipped", str(skip)
    except (AssertionError, OSError, LookupError, subprocess.TimeoutExpired) as error:
        return "failed", f"{type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build"))
    parser.add_argument("--as", dest="identity", choices=("root", "user", "both"), default="both")
    parser.add_argument("--only", type=re.compile, help="programs that the others made are missing then")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    chosen = [(f"{text}{f', as {identity}' if identity else ''}", func, identity)
              for text, func, identity in CASES if not identity or options.identity in (identity, "both")]
    chosen = [row for row in chosen if not options.only or options.only.search(row[0])]
    if options.list:
        print("\n".join(row[0] for row in chosen))
        return 0
    if os.getuid() != 0:
        print("tests/install/run.py: run this as root")
        return 2
    os.umask(0o022)
    folder = tempfile.mkdtemp(prefix="nsbox-install-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    counts = collections.Counter()
    try:
        ctx = Ctx(os.path.abspath(options.build), folder)
        ctx.full = options.full
        for number, (text, func, identity) in enumerate(chosen, 1):
            outcome, said = attempt(ctx, func, identity)
            counts[outcome] += 1
            print(f"{'not ok' if outcome == 'failed' else 'ok'} {number} - {text}"
                  + (f" # SKIP {said}" if outcome == "skipped" else ""), flush=True)
            if outcome == "failed":
                print("\n".join(f"    {line}" for line in said.splitlines()), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
