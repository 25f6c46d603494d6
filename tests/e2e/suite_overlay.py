"""Overlays: as a root, with several ids, locked, and what is said where one cannot be had."""

import os

import casekit
from casekit import in_mounts, make_tree, snapshot, tool, unchanged
from harness import case


def id_maps(ctx):
    """The caller as uid 0, and ten ids beside it; the first of those outside."""
    if ctx.root:
        return ("--map-uid", "0:0:1", "--map-uid", "1:700001:10", "--map-gid", "0:0:1",
                "--map-gid", "1:700001:10"), 700001
    tool(ctx, "newuidmap")
    name = casekit.ordinary()[0]
    with open("/etc/subuid", encoding="utf-8") as f:
        for line in f:
            user, first, _ = line.strip().split(":")
            if user in (name, str(ctx.uid)):
                return ("--subids", "--uid", "0", "--gid", "0"), int(first) + 1
    ctx.skip(f"/etc/subuid grants nothing to {name}")


ROOT_TREE = ("--ro-bind", "/usr", "/usr", "--dir", "/made/deep", "--proc", "/proc", "--dev", "/dev",
             "--tmpfs", "/tmp", "--ro-bind-data", "9", "/etc/data", "--file", "8", "/etc/file",
             "--ro-bind", "/etc/passwd", "/made/bound", "--symlink", "file", "/etc/link")


def in_root(ctx, *words, script, kind="--tmp-overlay"):
    return ctx.bw("--unshare-all", *words, kind, "/", *ROOT_TREE, "--remount-ro", "/", "sh", "-c",
                  script, fds={9: "data\n", 8: "file\n"})


@case("overlay", "a tree as the lower layer of the root gets the mount points that it lacks, and is "
      "left as it is; with one id and with several", timeout=90)
def as_root(ctx):
    tree = make_tree(ctx)
    ctx.write("r/etc/own", "own\n")
    before = snapshot(tree)
    script = """
        cat /etc/own /etc/data /etc/file /etc/link; [ -s /made/bound ] && [ -d /made/deep ] || exit 9
        for f in /x /etc/own /etc/file /made/deep/x; do ( echo x >$f ) && exit 8; done
        echo x >/tmp/x && cat /tmp/x
    """
    for words in ((), id_maps(ctx)[0]):
        result = in_root(ctx, *words, "--overlay-src", tree, script=script)
        ctx.ok(result, out="own\ndata\nfile\nfile\nx")
        ctx.eq(result.err.count("Read-only file system"), 4, f"why\n{result}")
    # Without the last word it can be written to, and the tree stays as it is all the same.
    result = ctx.bw("--unshare-all", "--overlay-src", tree, "--tmp-overlay", "/", "--ro-bind", "/usr",
                    "/usr", "sh", "-c", "echo new >/etc/own; rm /etc/own; echo x >/x; cat /x")
    ctx.ok(result, out="x")
    unchanged(ctx, tree, before, "the lower tree")


@case("overlay", "a mount point in a folder whose owner is not mapped is refused, and the message "
      "says why", only="root")
def foreign_root(ctx):
    tree = make_tree(ctx)
    os.chown(f"{tree}/etc", 5000, 5000)
    os.chmod(f"{tree}/etc", 0o777)
    base = ("--unshare-user", "--overlay-src", tree, "--tmp-overlay", "/", "--ro-bind", "/usr",
            "/usr", "--ro-bind-data", "9", "/etc/data", "cat", "/etc/data")
    result = ctx.bw(*base, fds={9: "data\n"})
    ctx.fails(result, rc=1, err=r"/etc/data: .*hint: .*has no number in the sandbox.*--subids")
    # The control: with that id in the map.
    maps = ("--map-uid", "0:0:1", "--map-uid", "1:5000:1", "--map-gid", "0:0:1", "--map-gid",
            "1:5000:1")
    ctx.ok(ctx.bw(*maps, *base, fds={9: "data\n"}), out="data")


@case("overlay", "with several ids files of an overlay keep and change their owners, which the upper "
      "folder has as the host numbers them")
def owners(ctx):
    words, first = id_maps(ctx)
    ctx.write("low/mine", "mine\n")
    upper, work = ctx.mkdir("up"), ctx.mkdir("work")
    script = """
        cd /mnt; cat mine; echo more >>mine; echo x >given; chown 1:1 given
        chown 0:0 given mine && chown 1:1 given && stat -c %u:%g mine given
    """
    # Who maps others only, and who may not change owners, fails at that.
    base = ("--ro-bind", "/", "/", "--overlay-src", f"{ctx.dir}/low", "--overlay", upper, work,
            "/mnt")
    ctx.fails(ctx.bw(*words, *base, "--cap-drop", "ALL", "chown", "1:1", "/mnt/mine"),
              err="Operation not permitted")
    result = ctx.ok(ctx.bw(*words, *base, "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", "sh", "-euc",
                           script))
    ctx.eq(result.out.split(), ["mine", "0:0", "1:1"], f"inside\n{result}")
    ctx.eq([os.lstat(f"{upper}/{name}").st_uid for name in ("mine", "given")], [ctx.uid, first],
           "the owners on the host")
    with open(f"{ctx.dir}/low/mine") as f:
        ctx.eq(f.read(), "mine\n", "the lower file")
    # The next sandbox finds it so, and the file of the other id can be removed there alone.
    ctx.ok(ctx.bw(*words, *base, "--cap-drop", "ALL", "sh", "-euc",
                  "stat -c %u:%g /mnt/given; rm /mnt/given; ls /mnt"), out="1:1\nmine")
    # What overlayfs keeps in its work folder is nobody's else.
    ctx.ok(ctx.bw(*words, "--bind", "/", "/", "rm", "-rf", upper, work))


@case("overlay", "files of ids that are not mapped are read as their modes allow, and not changed",
      only="root")
def foreign(ctx):
    _, uid, gid = casekit.ordinary()
    become = casekit.setpriv(ctx)
    for name, mode in (("open", 0o644), ("closed", 0o600), ("writable", 0o666)):
        os.chown(ctx.write(f"low/{name}", f"{name}\n", mode), 5000, 5000)
    os.chown(f"{ctx.dir}/low", uid, gid)
    script = f"""
        exec {become} "$BWRAP" --ro-bind / / --overlay-src "$D/low" --tmp-overlay /mnt sh -c '
            cd /mnt; for f in open closed writable; do cat $f; done; echo x >>writable
            echo new >new; cat new'
    """
    result = ctx.ok(in_mounts(ctx, script), out="open\nwritable\nnew")
    ctx.true("closed: Permission denied" in result.err, f"a closed file\n{result}")
    ctx.true("Value too large" in result.err, f"a file of somebody who has no id there\n{result}")


@case("overlay", "an upper folder stays locked as long as the sandbox and its nsbox live", timeout=90)
def locked(ctx):
    ctx.write("low/a", "a\n")
    upper, work = ctx.mkdir("up"), ctx.mkdir("work")
    base = ("--unshare-pid", "--ro-bind", "/", "/", "--overlay-src", f"{ctx.dir}/low", "--overlay",
            upper, work, "/mnt")
    first = ctx.bw_popen(*base, "sh", "-c", "ls -l /proc/self/fd/ >&2; echo ready; read x", stdin=-1)
    casekit.started(ctx, first)
    ctx.fails(ctx.bw(*base, "true"), rc=1,
              err=f"^bwrap: Can't make overlay mount on /mnt: the upper folder {upper} is in use by "
                  "another sandbox")
    # The control: another upper folder is free.
    ctx.ok(ctx.bw(*base[:-4], "--overlay", ctx.mkdir("up2"), ctx.mkdir("work2"), "/mnt", "cat",
                  "/mnt/a"), out="a")
    first.stdin.close()
    ctx.until(lambda: ctx.bw(*base, "true").rc == 0, why="the upper folder is free again")
    ctx.true(upper.encode() not in first.stderr.read(), "the command does not see the lock")


@case("overlay", "a file system that cannot be a layer is named, with the folder")
def named(ctx):
    ctx.write("low/a", "a\n")

    def fails(result, err):
        ctx.fails(result, rc=1, err="^bwrap: Can't make overlay mount on /mnt: .*hint: " + err)
        ctx.eq(result.out, "", "nothing was started")

    script = """
        mkdir "$D/ro" "$D/rw" "$D/good" "$D/good/w"
        mount -t tmpfs t "$D/ro"; mkdir "$D/ro/u" "$D/ro/w"; mount -o remount,bind,ro "$D/ro"
        mount -t tmpfs t "$D/rw"; mkdir "$D/rw/u" "$D/rw/w"
        exec "$BWRAP" --bind / / --overlay-src "$D/low" --overlay "$D/$1/u" "$D/$2/w" /mnt \
            sh -c 'echo started; cat /mnt/a'
    """
    for upper, work, err in (("ro", "ro", "the upper folder .*/ro/u is on a file system that is "
                                          "mounted read-only"),
                             ("rw", "good", "the work folder .*/good/w is on another file system")):
        result = in_mounts(ctx, script, upper, work)
        fails(result, err)
        for name in ("ro", "rw", "good/w", "good"):
            os.rmdir(f"{ctx.dir}/{name}")
    ctx.ok(in_mounts(ctx, script, "rw", "rw"), out="started\na")
    proc = ("--ro-bind", "/", "/", "--overlay-src", "/proc/sys/fs", "--tmp-overlay", "/mnt")
    fails(ctx.bw(*proc, "true"), r"the layer /proc/sys/fs is on a file system \(proc\) that no "
                                 "overlay takes")
