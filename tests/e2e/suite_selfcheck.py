"""The harness itself: a suite that cannot fail would be worth nothing."""

from harness import case


@case("H1", "the harness runs a command and hands it descriptors by number")
def harness_runs(ctx):
    ctx.ok(ctx.run("sh", "-c", "cat <&9", fds={9: "hello"}), out="hello")
    result = ctx.run("sh", "-c", "exit 7")
    ctx.eq(result.rc, 7)
    ctx.fails(result, rc=7)


@case("H2", "a plain sandbox starts and returns the command's status")
def starts(ctx):
    ctx.ok(ctx.bw(*ctx.RUN, "true"))
    ctx.fails(ctx.bw(*ctx.RUN, "sh", "-c", "exit 9"), rc=9)
