"""Reported bugs, group O: overlays."""

import os
import re

import casekit
from casekit import in_mounts, mount_table, needs, setpriv, tool
from harness import case, remove_dir


def layers(ctx, count=2):
    """Lower directories lo1..loN: `a` is in all of them, `only<N>` in one."""
    made = []
    for number in range(1, count + 1):
        ctx.write(f"lo{number}/a", f"{number}\n")
        ctx.write(f"lo{number}/only{number}", f"{number}\n")
        made.append(f"{ctx.dir}/lo{number}")
    return made


@case("case-O02", "the whole root as a lower layer works, or the error names the mounts below it "
      "that stand in the way; nothing is written to the host")
def o02(ctx):
    needs(ctx, "--overlay-src")
    ctx.write("seen", "seen\n")
    result = ctx.bw("--overlay-src", "/", "--tmp-overlay", "/", "sh", "-c",
                    f"cat {ctx.dir}/seen && echo new >{ctx.dir}/seen && cat {ctx.dir}/seen")
    if ctx.root:
        ctx.ok(result)
    if result.rc == 0:
        ctx.eq(result.out, "seen\nnew\n", "read, then written to the upper layer")
    else:
        ctx.fails(result, rc=1, err=r"^bwrap: .*overlay.*Invalid argument")
        ctx.eq(result.out, "", "nothing was started")
        hint = result.err.split("Invalid argument", 1)[1]
        with open("/proc/self/mountinfo") as f:
            below = [p for p in mount_table(f.read()) if p != "/"]
        ctx.true(any(re.search(rf"{re.escape(p)}\b", hint) for p in below),
                 f"the hint names one of {below}\n{result}")
    with open(f"{ctx.dir}/seen") as f:
        ctx.eq(f.read(), "seen\n", "the host's file")
    # The control: a directory without mounts below it is a fine lower layer.
    ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", ctx.dir, "--tmp-overlay", "/tmp/x", "cat",
                  "/tmp/x/seen"), out="seen")


@case("case-O02", "a lower layer with a mount below it works, or the error names that mount")
def o02_submount(ctx):
    needs(ctx, "--overlay-src")
    script = """
        mkdir -p "$D/lo/deep/mount point"
        echo low >"$D/lo/a"
        mount -t tmpfs t "$D/lo/deep/mount point"
        exec "$BWRAP" --unshare-user --bind / / --tmpfs /tmp --overlay-src "$D/lo" \
            --tmp-overlay /tmp/x cat /tmp/x/a
    """
    result = in_mounts(ctx, script)
    if result.rc == 0:
        ctx.ok(result, out="low")
    else:
        ctx.fails(result, rc=1, err=r"^bwrap: .*Invalid argument.*deep/mount point")


@case("case-O03", "a lower file of an owner that is not mapped can be read, not changed, and stays "
      "as it is", only="root")
def o03(ctx):
    needs(ctx, "--overlay-src")
    lower = ctx.mkdir("lo")
    foreign, own = ctx.write("lo/foreign", "old\n", 0o666), ctx.write("lo/own", "old\n", 0o666)
    _, uid, gid = casekit.ordinary()
    os.chown(foreign, 5000, 5000)
    os.chown(own, uid, gid)
    os.chown(lower, uid, gid)
    script = f"""
        exec {setpriv(ctx)} "$BWRAP" --ro-bind / / --tmpfs /tmp --overlay-src "$D/lo" \
            --tmp-overlay /tmp/x sh -c 'cd /tmp/x
            for f in foreign own; do cat $f; ( echo new >>$f ); cat $f; done'
    """
    result = ctx.ok(in_mounts(ctx, script), out="old\nold\nold\nold\nnew")
    ctx.true("Value too large" in result.err, f"the kernel's own error\n{result}")
    for path in (foreign, own):
        with open(path) as f:
            ctx.eq(f.read(), "old\n", "the lower layer")


@case("case-O04", "eighty lower layers with long names work, and the last given is the topmost")
def o04(ctx):
    needs(ctx, "--overlay-src")
    for count, length in ((80, 64), (12, 250)):
        words = []
        for number in range(count):
            name = f"{count}/{number:03}".ljust(length, "x") if length < 100 else \
                f"{count}/{'y' * length}/{number:03}".ljust(2 * length, "x")
            ctx.write(f"{name}/a", f"{number}\n")
            ctx.write(f"{name}/only{number}", "")
            words += ["--overlay-src", f"{ctx.dir}/{name}"]
        upper, work = ctx.mkdir(f"up{count}"), ctx.mkdir(f"wk{count}")
        for mount in (("--tmp-overlay", "/tmp/x"), ("--ro-overlay", "/tmp/x"),
                      ("--overlay", upper, work, "/tmp/x")):
            result = ctx.ok(ctx.bw(*ctx.RUN, *words, *mount, "sh", "-c",
                                   "cat /tmp/x/a; ls /tmp/x | wc -l"))
            ctx.eq(result.out.split(), [str(count - 1), str(count + 1)], f"{mount[0]}\n{result}")


@case("case-O05", "--ro-overlay asks for two layers in a message that says so, and one layer can "
      "be had through a read-only bind or a --tmp-overlay")
def o05(ctx):
    needs(ctx, "--overlay-src")
    low = layers(ctx)
    ctx.fails(ctx.bw(*ctx.RUN, "--overlay-src", low[0], "--ro-overlay", "/tmp/x", "true"), rc=1,
              err=r"^bwrap: --ro-overlay requires at least two --overlay-src")
    ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", low[0], "--overlay-src", low[1], "--ro-overlay",
                  "/tmp/x", "cat", "/tmp/x/a"), out="2")
    ctx.ok(ctx.bw(*ctx.RUN, "--ro-bind", low[0], "/tmp/x", "cat", "/tmp/x/a"), out="1")
    ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", low[0], "--tmp-overlay", "/tmp/x", "cat",
                  "/tmp/x/a"), out="1")


ODD = (":", ",", "\\", "a:b", "a,b=c", "back\\", "\\:", "two\nlines", " blank ", "\"'", "%s%n",
       "upperdir=x", ",lowerdir=/", "ümläut", "#x", "\\040", "a::b")


@case("case-O07", "colons, commas, backslashes and other odd bytes in the paths of layers, of the "
      "upper and of the work directory are taken as they are", timeout=120)
def o07(ctx):
    needs(ctx, "--overlay-src")
    for number, odd in enumerate(ODD):
        low1, low2 = f"{number}/low1{odd}", f"{number}/low2{odd}"
        ctx.write(f"{low1}/a", "1\n")
        ctx.write(f"{low2}/a", "2\n")
        ctx.write(f"{low1}/b", "1\n")
        upper, work = ctx.mkdir(f"{number}/up{odd}"), ctx.mkdir(f"{number}/wk{odd}")
        dest = f"/tmp/x{odd}"
        script = 'cat "$1/a" "$1/b"; echo new >"$1/a" && cat "$1/a"'
        sources = ("--overlay-src", f"{ctx.dir}/{low1}", "--overlay-src", f"{ctx.dir}/{low2}")
        for mount in (("--overlay", upper, work, dest), ("--tmp-overlay", dest)):
            ctx.ok(ctx.bw(*ctx.RUN, *sources, *mount, "sh", "-c", script, "sh", dest),
                   out="2\n1\nnew")
        result = ctx.bw(*ctx.RUN, *sources, "--ro-overlay", dest, "sh", "-c", script, "sh", dest)
        ctx.fails(result, err="Read-only file system")
        ctx.eq(result.out, "2\n1\n", "the read-only overlay")
        with open(f"{upper}/a") as f:
            ctx.eq(f.read(), "new\n", f"the upper layer of {odd!r}")
        with open(f"{ctx.dir}/{low2}/a") as f:
            ctx.eq(f.read(), "2\n", f"the lower layer of {odd!r}")


@case("case-O08", "a second sandbox on an upper directory that another one uses is refused or "
      "warned of by name, and after the first has ended it is not")
def o08(ctx):
    needs(ctx, "--overlay-src")
    low = layers(ctx, 1)
    upper, work = ctx.mkdir("up"), ctx.mkdir("wk")
    words = (*ctx.RUN, "--overlay-src", low[0], "--overlay", upper, work, "/tmp/x")
    first = ctx.bw_popen(*words, "sh", "-c", "echo ready; read x", stdin=-1)
    casekit.started(ctx, first)
    second = ctx.bw(*words, "true")
    ctx.true(second.rc in (0, 1), f"refused or started\n{second}")
    if f"{ctx.dir}/up" not in second.err or not second.err.startswith("bwrap: "):
        raise AssertionError(f"nothing tells that {upper} is in use\n{second}")
    # Another upper directory is no one's business.
    other = ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", low[0], "--overlay", ctx.mkdir("up2"),
                          ctx.mkdir("wk2"), "/tmp/x", "true"))
    ctx.eq(other.err, "", "no message")
    first.communicate(b"\n", timeout=10)
    ctx.eq(first.returncode, 0, "the first sandbox")
    third = ctx.ok(ctx.bw(*words, "true"))
    ctx.eq(third.err, "", "no message when nobody uses it")
    ctx.eq(sorted(os.listdir(upper)), [], "nothing is left in the upper directory")


@case("case-O09", "an overlay in a user namespace is mounted with index and xino off", only="user")
def o09(ctx):
    needs(ctx, "--overlay-src")
    low = layers(ctx)
    trace = os.path.join(ctx.dir, "trace")
    strace = tool(ctx, "strace")
    for mount in (("--overlay", ctx.mkdir("up"), ctx.mkdir("wk"), "/tmp/x"),
                  ("--tmp-overlay", "/tmp/x")):
        ctx.ok(ctx.run(strace, "-f", "-qq", "-s", "4096", "-e", "trace=mount,fsconfig", "-o", trace,
                       ctx.bwrap, *ctx.RUN, "--overlay-src", low[0], *mount, "true"))
        with open(trace) as f:
            text = f.read()
        ctx.true("overlay" in text or "userxattr" in text, f"the mount is in the trace\n{text}")
        for name in ("index", "xino"):
            if not re.search(rf'"{name}", "off"|\b{name}=off\b', text):
                raise AssertionError(f"{mount[0]} is mounted without {name}=off\n{text}")


@case("case-O10", "an upper directory on a file system that cannot be one is refused in words that "
      "say so, and nothing is started")
def o10(ctx):
    needs(ctx, "--overlay-src")
    layers(ctx)
    options = "" if ctx.root else ",userxattr"
    script = f"""
        mkdir "$D/up" "$D/wk" "$D/merged" "$D/good" "$D/good/u" "$D/good/w"
        mount -t overlay -o "lowerdir=$D/lo1,upperdir=$D/up,workdir=$D/wk{options}" test "$D/merged"
        mkdir "$D/merged/u" "$D/merged/w"
        exec "$BWRAP" --bind / / --tmpfs /tmp --overlay-src "$D/lo2" \
            --overlay "$D/$1/u" "$D/$1/w" /tmp/x sh -c 'echo started; cat /tmp/x/a'
    """
    result = in_mounts(ctx, script, "merged")
    ctx.fails(result, rc=1, err=r"^bwrap: .*overlay.*upper")
    ctx.true("started" not in result.out, f"nothing was started\n{result}")
    for name in ("up", "wk", "merged", "good/u", "good/w", "good"):
        remove_dir(f"{ctx.dir}/{name}")
    ctx.ok(in_mounts(ctx, script, "good"), out="started\n2")
