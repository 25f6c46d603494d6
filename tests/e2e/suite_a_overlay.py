"""The bwrap contract, part A: overlays, and which mounts a bind changes."""

import os

from bwrap_parts import recursive
from harness import case

NEEDS = {"--overlay": "--overlay requires at least one --overlay-src",
         "--tmp-overlay": "--tmp-overlay requires at least one --overlay-src",
         "--ro-overlay": "--ro-overlay requires at least two --overlay-src"}
MUST_FOLLOW = ("--overlay-src must be followed by another --overlay-src or one of --overlay, "
               "--tmp-overlay, or --ro-overlay")


def need_overlays(ctx):
    """Skips where the kernel has no overlays; asks the kernel, not the program under test."""
    with open("/proc/filesystems", encoding="ascii") as f:
        if not any(line.split()[-1] == "overlay" for line in f):
            ctx.skip("the kernel has no overlay file system")


def layers(ctx):
    """The layers of these cases, in the current directory."""
    need_overlays(ctx)
    for name, text in (("lower1/a", "1"), ("lower1/b", "2"), ("lower2/b", "3"), ("upper/a", "4")):
        ctx.write(name, text)
    ctx.mkdir("work")


def content(ctx, name):
    with open(os.path.join(ctx.dir, name), encoding="utf-8") as f:
        return f.read().strip()


ONE = ("--overlay-src", "lower1")
TWO = (*ONE, "--overlay-src", "lower2")


@case("A54", "--overlay without a source is an error")
def overlay_without_source(ctx):
    layers(ctx)
    words = ("--overlay", "upper", "work", "/tmp", "true")
    ctx.fails(ctx.bw(*ctx.RUN, *words), rc=1, err="^bwrap: " + NEEDS["--overlay"])
    ctx.ok(ctx.bw(*ctx.RUN, *ONE, *words))


@case("A55", "the upper layer of --overlay covers the sources, and later sources earlier ones")
def overlay_order(ctx):
    layers(ctx)
    target = "/tmp/x/y/z"
    for sources, b in ((ONE, "2"), (TWO, "3")):
        ctx.ok(ctx.bw(*ctx.RUN, *sources, "--overlay", "upper", "work", target, "cat",
                      f"{target}/a", f"{target}/b"), out=f"4{b}")


@case("A56", "what is written to an --overlay goes to the upper layer")
def overlay_write(ctx):
    layers(ctx)
    target = "/tmp/x/y/z"
    ctx.ok(ctx.bw(*ctx.RUN, *TWO, "--overlay", "upper", "work", target, "sh", "-c",
                  f"printf 5 > {target}/b && cat {target}/b"), out="5")
    ctx.eq((content(ctx, "upper/b"), content(ctx, "lower1/b"), content(ctx, "lower2/b")),
           ("5", "2", "3"), "b in the layers")


@case("A57", "the paths of an overlay may hold quotes, colons, commas, backslashes and blanks")
def overlay_odd_names(ctx):
    need_overlays(ctx)
    odd = '":,\\ '
    ctx.write(f"lower{odd}/a", "1")
    upper, work = ctx.mkdir(f"upper{odd}"), ctx.mkdir(f"work{odd}")
    ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", f"lower{odd}", "--overlay", upper, work, "/tmp/x",
                  "sh", "-c", "cat /tmp/x/a && printf 2 > /tmp/x/a && cat /tmp/x/a"), out="12")
    ctx.eq((content(ctx, f"lower{odd}/a"), content(ctx, f"upper{odd}/a")), ("1", "2"),
           "a in the layers")


@case("A58", "--tmp-overlay needs a source, shows the sources, and can be written to")
def tmp_overlay(ctx):
    layers(ctx)
    ctx.fails(ctx.bw(*ctx.RUN, "--tmp-overlay", "/tmp", "true"), rc=1,
              err="^bwrap: " + NEEDS["--tmp-overlay"])
    for sources, b in ((ONE, "2"), (TWO, "3")):
        ctx.ok(ctx.bw(*ctx.RUN, *sources, "--tmp-overlay", "/tmp", "cat", "/tmp/a", "/tmp/b"),
               out=f"1{b}")
    ctx.ok(ctx.bw(*ctx.RUN, *TWO, "--tmp-overlay", "/tmp", "sh", "-c",
                  "printf 4 > /tmp/b && cat /tmp/b"), out="4")
    ctx.eq((content(ctx, "lower1/b"), content(ctx, "lower2/b")), ("2", "3"), "b in the layers")


@case("A59", "two --tmp-overlay in one sandbox are independent")
def two_tmp_overlays(ctx):
    layers(ctx)
    ctx.ok(ctx.bw(*ctx.RUN, *ONE, "--tmp-overlay", "/tmp/x", "--overlay-src", "lower2",
                  "--tmp-overlay", "/tmp/y", "sh", "-c",
                  "cat /tmp/x/b /tmp/y/b && printf 4 > /tmp/x/b && cat /tmp/x/b /tmp/y/b"),
           out="2343")
    ctx.eq((content(ctx, "lower1/b"), content(ctx, "lower2/b")), ("2", "3"), "b in the layers")


@case("A60", "--ro-overlay needs two sources, shows them, and cannot be written to")
def ro_overlay(ctx):
    layers(ctx)
    for sources in ((), ONE):
        ctx.fails(ctx.bw(*ctx.RUN, *sources, "--ro-overlay", "/tmp", "true"), rc=1,
                  err="^bwrap: " + NEEDS["--ro-overlay"])
    base = (*ctx.RUN, *TWO, "--ro-overlay", "/tmp")
    ctx.ok(ctx.bw(*base, "cat", "/tmp/a", "/tmp/b"), out="13")
    ctx.fails(ctx.bw(*base, "sh", "-c", "printf 4 > /tmp/b"), err="Read-only file system")
    ctx.fails(ctx.bw(*base, "sh", "-c", "printf 4 > /tmp/b; cat /tmp/b; exit 6"), rc=6)
    ctx.eq(ctx.bw(*base, "sh", "-c", "printf 4 > /tmp/b; cat /tmp/b").out, "3", "b afterwards")


@case("A61", "--overlay-src must be followed by an overlay")
def overlay_source_alone(ctx):
    layers(ctx)
    for words in (("true",), ("--chdir", "/", "true")):
        ctx.fails(ctx.bw(*ctx.RUN, "--overlay-src", "/tmp", *words), rc=1,
                  err="^bwrap: " + MUST_FOLLOW)
    ctx.ok(ctx.bw(*ctx.RUN, *ONE, "--tmp-overlay", "/tmp", "--chdir", "/", "true"))


# Says for each directory whether a file can be made in it, one word a line.
WRITABLE = 'for d; do if touch "$d/probe"; then echo "$d rw"; else echo "$d ro"; fi; done'


@case("A62", "a bind changes the mounts below its destination, by components, and no other")
def prefix_by_components(ctx):
    # An outer sandbox provides the mounts: one below the source and one whose name merely
    # begins like the destination.
    mounts = ("/tmp", "/tmp/run", "/tmp/run/host", "/tmp/run/host/sub", "/tmp/run/host/hostage",
              "/tmp/run/hostage", "/tmp/run/host2")
    outer = (*recursive(ctx)[:-2], *(word for place in mounts for word in ("--tmpfs", place)),
             "--", "/proc/self/exe", "--bind", "/", "/")
    places = mounts[2:]
    show = ("sh", "-c", WRITABLE, "sh", *places)
    before = ctx.ok(ctx.run(*outer, *show)).out.split("\n")
    ctx.eq(before[:-1], [f"{place} rw" for place in places], "before the bind")
    for spelling in ("/tmp/run/host", "///tmp//run///host", "tmp/run/host", "/tmp/run/host/",
                     "/tmp/run/host//"):
        after = ctx.ok(ctx.run(*outer, "--ro-bind", "/tmp/run/host", spelling, *show))
        ctx.eq(after.out.split("\n")[:-1],
               [f"{place} {'rw' if i > 2 else 'ro'}" for i, place in enumerate(places)],
               f"after a read-only bind on {spelling}")
    # The whole tree matches itself.
    after = ctx.ok(ctx.run(*outer, "--ro-bind", "/tmp/run", "/tmp/run", *show))
    ctx.eq(after.out.split("\n")[:-1], [f"{place} ro" for place in places], "the whole tree")


@case("A63", "layers of an overlay are taken verbatim, whatever bytes and however long their paths")
def overlay_verbatim_paths(ctx):
    need_overlays(ctx)
    long = os.path.join(*(["x" * 200] * 4))
    names = ("path :,\\", "\\", ":", ",", "a\\:b\\,c\\\\", "lowerdir=x,upperdir=y", long)
    sources = []
    for i, name in enumerate(names):
        ctx.write(f"layer{i}/{name}/file{i}", str(i))
        sources += ["--overlay-src", f"layer{i}/{name}"]
    files = [f"/tmp/file{i}" for i in range(len(names))]
    for option in ("--ro-overlay", "--tmp-overlay"):
        ctx.ok(ctx.bw(*ctx.RUN, *sources, option, "/tmp", "cat", *files), out="0123456")
