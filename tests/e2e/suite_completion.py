"""The completion of command lines for bash."""

import os

from harness import case

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "../../completions/bash/nsbox")


def complete(ctx, *words):
    """What bash offers for the last of these words."""
    result = ctx.ok(ctx.run("bash", "--norc", "-c", '''
. "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_nsbox
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
''', SCRIPT, *words))
    return sorted(result.out.split())


@case("COMP-options", "completion offers the options that begin like the word")
def options(ctx):
    ctx.eq(complete(ctx, "bwrap", "--unshare-c"), ["--unshare-cgroup", "--unshare-cgroup-try"])
    ctx.eq(complete(ctx, "nsbox", "--bind", "/usr", "/usr", "--ro-bind-"),
           ["--ro-bind-data", "--ro-bind-fd", "--ro-bind-try"])


@case("COMP-arguments", "completion knows what an option's arguments are")
def arguments(ctx):
    ctx.mkdir("folder")
    ctx.write("file")
    ctx.eq(complete(ctx, "bwrap", "--bind", "f"), ["file", "folder"])
    ctx.eq(complete(ctx, "bwrap", "--overlay-src", "f"), ["folder"])
    ctx.eq(complete(ctx, "bwrap", "--cap-add", "CAP_SETU"), ["CAP_SETUID"])
    ctx.eq(complete(ctx, "bwrap", "--setenv", "HOM"), ["HOME"])
    ctx.eq(complete(ctx, "bwrap", "--setenv", "HOME", "--"), [])
    ctx.eq(complete(ctx, "bwrap", "--chdir", "=", "fo"), ["folder"])


@case("COMP-command", "completion leaves the options alone once the command is reached")
def command(ctx):
    ctx.true("setpriv" in complete(ctx, "bwrap", "--unshare-all", "setpr"), "a program is offered")
    ctx.true("setpriv" in complete(ctx, "bwrap", "--unshare-all", "--", "setpr"),
             "a program is offered behind --")
    ctx.eq(complete(ctx, "bwrap", "--unshare-all", "ls", "--unshare"), [])


@case("COMP-run", "completion knows the options of nsbox run")
def run(ctx):
    ctx.eq(complete(ctx, "nsbox", "run", "--ro"), ["--ro", "--ro-bind", "--ro-bind-data", "--ro-bind-fd",
                                                   "--ro-bind-try", "--ro-overlay", "--root", "--rootfs"])
    ctx.eq(complete(ctx, "nsbox", "run", "--unshare"), [])
    ctx.mkdir("folder")
    ctx.eq(complete(ctx, "nsbox", "run", "--overlay", "--rw", "fo"), ["folder"])
    ctx.true("setpriv" in complete(ctx, "nsbox", "run", "--verbose", "setpr"), "a program is offered")


@case("COMP-rootfs", "completion knows the commands of nsbox rootfs, their options, and the names in the store")
def rootfs(ctx):
    ctx.eq(complete(ctx, "nsbox", "rootfs", "e"), ["export"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", ""), ["build", "commit", "diff", "export", "gc", "help", "import", "ls", "rm",
                                                  "show", "verify"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "--s"), ["--store"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "import", "--"), ["--help", "--image", "--max-size", "--name", "--owners"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "import", "--owners", "r"), ["recorded"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "export", "--format", "=", "tar.z"), ["tar.zst"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "import", "--name", "f"), [])
    ctx.mkdir("folder")
    ctx.write("file")
    ctx.eq(complete(ctx, "nsbox", "rootfs", "import", "--name", "x", "f"), ["file", "folder"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "diff", "f"), ["folder"])
    ctx.mkdir("store/names")
    for name in ("one", "other", "two"):
        os.symlink("0" * 64, os.path.join(ctx.dir, "store/names", name))
    ctx.eq(complete(ctx, "nsbox", "rootfs", "--store", "store", "show", "o"), ["one", "other"])
    ctx.eq(complete(ctx, "nsbox", "rootfs", "--store", "=", "store", "rm", "two", "o"), ["one", "other"])


@case("COMP-loads", "the script completes both names")
def loads(ctx):
    out = ctx.ok(ctx.run("bash", "--norc", "-c", '. "$0"; complete -p nsbox bwrap', SCRIPT)).out
    ctx.eq(out.splitlines(), ["complete -F _nsbox nsbox", "complete -F _nsbox bwrap"])
