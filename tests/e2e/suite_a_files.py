"""The bwrap contract, part A: arguments, mount points and their modes, environment, messages."""

import os

from harness import case


@case("A32", "--args takes options from several descriptors")
def args(ctx):
    paths = ("/tmp/hello/world", "/tmp/hello/world2", "/tmp/other/deep/er")
    fds = {3 + i: f"--dir\0{path}\0" for i, path in enumerate(paths)}
    numbers = [word for fd in fds for word in ("--args", str(fd))]
    for path in paths:
        ctx.ok(ctx.bw(*ctx.RUN, *numbers, "test", "-d", path, fds=fds))
    ctx.fails(ctx.bw(*ctx.RUN, *numbers[:4], "test", "-d", paths[2], fds=fds), rc=1)


@case("A33", "a command after -- runs")
def two_dashes(ctx):
    ctx.ok(ctx.bw(*ctx.RUN, "--", "sh", "-c", "echo hello"), out="hello")


@case("A34", "a command whose name looks like an option runs after --")
def odd_name(ctx):
    name = "--inadvisable-executable-name--"
    ctx.write(f"bin/{name}", "#!/bin/sh\necho hello from $0\n", 0o755)
    directory = os.path.join(ctx.dir, "bin")
    env = dict(os.environ, PATH=directory + ":" + os.environ["PATH"])
    ctx.ok(ctx.bw(*ctx.RUN, "--", name, env=env), out=f"hello from {directory}/{name}")
    ctx.fails(ctx.bw(*ctx.RUN, name, env=env), rc=1, err=f"^bwrap: Unknown option {name}")


@case("A35", "an option after -- is the name of a command")
def option_as_command(ctx):
    words = ("--dev-bind", "/dev", "/dev", "sh", "-c", "echo it ran")
    ctx.ok(ctx.bw(*ctx.RUN, *words), out="it ran")
    result = ctx.fails(ctx.bw(*ctx.RUN, "--", *words), rc=1, err="^bwrap: execvp --dev-bind: ")
    ctx.eq(result.out, "", "the output")


@case("A39", "missing mount points are made, 755 for a directory and an empty 444 for a file")
def mount_point_modes(ctx):
    directory, file = ctx.mkdir("source", 0o711), ctx.write("content", "full", 0o640)
    base = (*ctx.RUN, "--bind", "/", "/")
    ctx.ok(ctx.bw(*base, "--bind", directory, os.path.join(ctx.dir, "dir-point"), "true"))
    ctx.eq(ctx.mode("dir-point"), 0o755, "the directory")
    point = os.path.join(ctx.dir, "file-point")
    ctx.ok(ctx.bw(*base, "--bind", file, point, "cat", point), out="full")
    ctx.eq(ctx.mode("file-point"), 0o444, "the file")
    ctx.eq(os.stat(point).st_size, 0, "the file's size")


@case("A41", "--dir, --perms and --chmod give the modes that were asked for")
def dir_modes(ctx):
    ctx.mkdir("old710", 0o710)
    ctx.mkdir("old754", 0o754)

    def at(name):
        return os.path.join(ctx.dir, name)

    ctx.ok(ctx.bw(*ctx.RUN, "--bind", "/", "/", "--dir", at("plain"), "--perms", "1741", "--dir",
                  at("perms"), "--dir", at("old710"), "--perms", "0741", "--dir", at("old754"),
                  "--dir", at("chmod"), "--chmod", "1755", at("chmod"), "true"))
    for name, mode in (("plain", 0o755), ("perms", 0o1741), ("old710", 0o710), ("old754", 0o754),
                       ("chmod", 0o1755)):
        ctx.eq(f"{ctx.mode(name):o}", f"{mode:o}", name)


@case("A42", "a parent that --dir makes takes its mode from the mode of the directory")
def parent_modes(ctx):
    expected = {"1777": "755", "0755": "755", "0644": "755", "0750": "750", "0710": "750",
                "0720": "750", "0640": "750", "0700": "700", "0600": "700", "0705": "705",
                "0604": "705", "0000": "700"}
    options = ["--dir", os.path.join(ctx.dir, "plain", "dir")]
    for mode in expected:
        options += ["--perms", mode, "--dir", os.path.join(ctx.dir, f"parent{mode}", "dir")]
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", "/", "/", *options, "true"))
    ctx.eq(f"{ctx.mode('plain'):o}", "755", "the parent without --perms")
    ctx.eq(f"{ctx.mode('plain/dir'):o}", "755", "the directory without --perms")
    for mode, parent in expected.items():
        ctx.eq(f"{ctx.mode(f'parent{mode}'):o}", parent, f"the parent of --perms {mode}")
        ctx.eq(f"{ctx.mode(f'parent{mode}/dir'):04o}", mode, f"the directory of --perms {mode}")


@case("A43", "--tmpfs has mode 755, or what --perms says, and the mount table stays readable")
def tmpfs_modes(ctx):
    for options, mode in (((), "755"), (("--perms", "01777"), "1777")):
        base = (*ctx.RUN, *options, "--tmpfs", ctx.dir)
        ctx.ok(ctx.bw(*base, "stat", "-c", "%a", ctx.dir), out=mode)
        table = ctx.ok(ctx.bw(*base, "cat", "/proc/self/mountinfo")).out
        mounted = [line for line in table.splitlines() if line.split()[4] == ctx.dir]
        ctx.eq(len(mounted), 1, f"mounts on {ctx.dir}")
        ctx.true(" - tmpfs " in mounted[0], mounted[0])


@case("A44", "--size limits a tmpfs, in either order with --perms")
def tmpfs_size(ctx):
    size, perms = ("--size", "1048576"), ("--perms", "01777")
    for options, mode in ((size, "755"), ((*size, *perms), "1777"), ((*perms, *size), "1777")):
        base = (*ctx.RUN, *options, "--tmpfs", ctx.dir)
        ctx.ok(ctx.bw(*base, "stat", "-c", "%a", ctx.dir), out=mode)
        lines = ctx.ok(ctx.bw(*base, "df", "-k", "--output=size", ctx.dir)).out.split()
        ctx.eq(lines[-1], "1024", f"KiB with {options}")
    full = ctx.bw(*ctx.RUN, "--dev", "/dev", *size, "--tmpfs", ctx.dir, "dd", "if=/dev/zero",
                  f"of={ctx.dir}/big", "bs=64k", "count=32", "status=none")
    ctx.fails(full, rc=1, err="No space left on device")


@case("A45", "--file and the data binds have their modes, and descriptor 0 can be the source")
def file_modes(ctx):
    for option, default in (("--file", "666"), ("--bind-data", "600"), ("--ro-bind-data", "600")):
        for perms, mode in (((), default), (("--perms", "0640"), "640")):
            ctx.ok(ctx.bw(*ctx.RUN, *perms, option, "0", "/tmp/file", "stat", "-c", "%a",
                          "/tmp/file"), out=mode)
    # The descriptor is read, not only opened.
    for option in ("--file", "--bind-data", "--ro-bind-data"):
        ctx.ok(ctx.bw(*ctx.RUN, option, "0", "/tmp/file", "cat", "/tmp/file", input="content"),
               out="content")


@case("A46", "--size refuses what is not a positive number of bytes that fits")
def bad_sizes(ctx):
    ctx.ok(ctx.bw(*ctx.RUN, "--size", "12345678", "--tmpfs", "/tmp/a", "true"))
    for size in ("0", "123bogus", "", "-12345678", " -12345678", str(1 << 64),
                 str((1 << 63) + 1)):
        ctx.fails(ctx.bw(*ctx.RUN, "--size", size, "--tmpfs", "/tmp/a", "true"), rc=1,
                  err="^bwrap: --size ")


@case("A47", "--perms and --size may be given once for one operation")
def modifiers_twice(ctx):
    for words in (("--perms", "0640"), ("--size", "12345678")):
        ctx.ok(ctx.bw(*ctx.RUN, *words, "--tmpfs", "/tmp/a", *words, "--tmpfs", "/tmp/b", "true"))
        ctx.fails(ctx.bw(*ctx.RUN, *words, *words, "--tmpfs", "/tmp/a", "true"), rc=1,
                  err=f"^bwrap: {words[0]} given twice for the same action")


@case("A48", "--setenv wins over what is inherited, and --unsetenv removes")
def environment(ctx):
    show = ("sh", "-c", 'echo "${FOO-unset}:${BAR-unset}"')
    for inherited in ({}, {"FOO": ""}, {"FOO": "old"}):
        env = dict({k: v for k, v in os.environ.items() if k != "FOO"}, BAR="kept", **inherited)
        ctx.ok(ctx.bw(*ctx.RUN, *show, env=env), out=f"{inherited.get('FOO', 'unset')}:kept")
        ctx.ok(ctx.bw(*ctx.RUN, "--setenv", "FOO", "bar", *show, env=env), out="bar:kept")
        ctx.ok(ctx.bw(*ctx.RUN, "--unsetenv", "FOO", *show, env=env), out="unset:kept")


@case("A49", "--clearenv leaves nothing but PWD")
def clear_environment(ctx):
    result = ctx.ok(ctx.bw(*ctx.RUN, "--clearenv", "/usr/bin/env", env=dict(os.environ, FOO="x")))
    ctx.eq(result.out, f"PWD={os.path.realpath(ctx.dir)}\n", "the environment")


@case("A50", "--argv0 sets the name that the command sees and nothing else")
def argv0(ctx):
    for options, name in (((), "sh"), (("--argv0", "sh"), "sh"), (("--argv0", "right"), "right")):
        ctx.ok(ctx.bw(*ctx.RUN, *options, "sh", "-c", "echo $0"), out=name)


@case("A51", "--bind-fd binds the directory that a descriptor is open on")
def bind_fd(ctx):
    ctx.write("file-data", "directory data")
    fd = os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ctx.ok(ctx.bw(*ctx.RUN, "--proc", "/proc", "--dev", "/dev", "--bind", "/", "/", "--bind-fd",
                  "100", "/tmp", "cat", "/tmp/file-data", fds={100: fd}), out="directory data")
    os.close(fd)


WARNING = "bwrap: Only the last --chdir option will take effect"


@case("A52", "an option that is overridden gives a warning and no failure")
def warning(ctx):
    result = ctx.ok(ctx.bw(*ctx.RUN, "--chdir", "/", "--chdir", "/", "true"))
    ctx.eq(result.err.splitlines(), [WARNING], "stderr")
    ctx.eq(ctx.ok(ctx.bw(*ctx.RUN, "--chdir", "/", "true")).err, "", "stderr with one --chdir")


@case("A53", "--level-prefix puts the severity before a warning")
def level_prefix(ctx):
    result = ctx.ok(ctx.bw("--level-prefix", *ctx.RUN, "--chdir", "/", "--chdir", "/", "true"))
    ctx.eq(result.err.splitlines(), ["<4>" + WARNING], "stderr")
