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


@case("COMP-loads", "the script completes both names")
def loads(ctx):
    out = ctx.ok(ctx.run("bash", "--norc", "-c", '. "$0"; complete -p nsbox bwrap', SCRIPT)).out
    ctx.eq(out.splitlines(), ["complete -F _nsbox nsbox", "complete -F _nsbox bwrap"])
