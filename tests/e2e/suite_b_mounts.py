"""Part B of the checklist, mounts: B38 to B46."""

import os
import re

from b_util import (MS_NODEV, MS_NODIRATIME, MS_NOATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW,
                    MS_RDONLY, MS_STRICTATIME, Live, as_user, identities, mount_at,
                    mount_table, parse_mountinfo, private_mounts, probe, read_until, sandbox)
from harness import case

BASE = ("--ro-bind", "/", "/")


def inside_table(ctx, *options, prefix=()):
    """The mount table that a command in a sandbox sees."""
    result = ctx.ok(sandbox(ctx, prefix, *options, "cat", "/proc/self/mountinfo"))
    return parse_mountinfo(result.out)


@case("B38", "the root of an empty sandbox is a plain directory of the sandbox's own ids")
def empty_root(ctx):
    for options, uid, gid in (((), ctx.uid, ctx.gid),
                              (("--unshare-user", "--uid", "5", "--gid", "6"), 5, 6)):
        live = Live(ctx, *options, "--ro-bind", probe(ctx), "/p", argv=("/p", "root"))
        lines = live.ready().splitlines()
        ctx.eq(lines[0], f"mode=755 uid={uid} gid={gid} rw nosuid nodev", "the root")
        ctx.eq(lines[1:-1], ["name=p"], "the names in it")
        table = mount_table(live.pid)
        ctx.eq(sorted(m.where for m in table), ["/", "/p"], "the visible mounts")
        root = mount_at(table, "/")
        ctx.true({"rw", "nosuid", "nodev"} <= root.options, f"flags of the root: {root}")
        ctx.eq(root.fstype, "tmpfs", "kind of the root")
        ctx.true({"ro", "nosuid", "nodev"} <= mount_at(table, "/p").options, "flags of the bind")
        ctx.eq(live.end(), 0)


@case("B38", "the visible mounts are exactly those that were asked for")
def visible_mounts(ctx):
    live = Live(ctx, *ctx.USR, "--tmpfs", "/tmp", "--dir", "/var", "--bind", ctx.dir, "/work",
                "--unshare-pid")
    live.ready()
    pid = live.command_pid(ctx)
    wanted = ["/", "/tmp", "/usr", "/work"]
    wanted += ["/usr" + m.where[4:] for m in mount_table() if m.where.startswith("/usr/")]
    ctx.eq(sorted(m.where for m in mount_table(pid)), sorted(wanted), "the visible mounts")
    ctx.eq(live.end(), 0)


# Each kind of bind with what it adds.
KINDS = (("--bind", {"nosuid", "nodev"}, False), ("--dev-bind", {"nosuid"}, False),
         ("--ro-bind", {"nosuid", "nodev"}, True), ("--bind-try", {"nosuid", "nodev"}, False),
         ("--dev-bind-try", {"nosuid"}, False), ("--ro-bind-try", {"nosuid", "nodev"}, True))

# Submounts of the source: name, flags. The names are hard ones on purpose.
SUBMOUNTS = (("plain", 0), ("no exec", MS_NOEXEC), ("back\\slash", MS_NOATIME),
             ("tab\tand\nnewline", MS_NODIRATIME), ("strict-ä", MS_STRICTATIME),
             ("#hash", MS_RDONLY), ("all", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME),
             ("plain/below", MS_NOEXEC | MS_NODIRATIME))


def flagged_tree(ctx, host, submounts):
    source = ctx.mkdir("source")
    host.tmpfs(source)
    for name, flags in submounts:
        host.tmpfs(os.path.join(source, name), flags)
    return source


def below(table, where):
    """The options of the mounts at and below a path, by their path relative to it."""
    return {m.where[len(where):]: m.options for m in table
            if m.where == where or m.where.startswith(where + "/")}


def check_flags(ctx, submounts):
    target = ctx.mkdir("target")
    with private_mounts() as host:
        source = flagged_tree(ctx, host, submounts)
        outside = below(mount_table(), source)
        ctx.eq(len(outside), len(submounts) + 1, "mounts of the source")
        for who, prefix in identities():
            for kind, extra, read_only in KINDS:
                table = below(inside_table(ctx, *BASE, kind, source, target, prefix=prefix),
                              target)
                ctx.eq(set(table), set(outside), f"mounts with {kind} as {who}")
                for name, options in outside.items():
                    wanted = options | extra
                    if read_only:
                        wanted = wanted - {"rw"} | {"ro"}
                    ctx.eq(table[name], wanted, f"flags of {name!r} with {kind} as {who}")


@case("B39", "a bind adds its flags to every mount of the tree and keeps those that were there",
      only="root")
def bind_flags(ctx):
    check_flags(ctx, SUBMOUNTS)


@case("B39", "a bind keeps nosymfollow", only="root")
def bind_keeps_nosymfollow(ctx):
    check_flags(ctx, (("links", MS_NOSYMFOLLOW),))


@case("B39", "a bind reaches a submount below a directory that the user may not search",
      only="root")
def bind_flags_closed_directory(ctx):
    target = ctx.mkdir("target")
    with private_mounts() as host:
        source = flagged_tree(ctx, host, ())
        host.tmpfs(source + "/closed/sub")
        os.chmod(source + "/closed", 0o700)
        for who, prefix in identities():
            live = Live(ctx, *BASE, "--ro-bind", source, target, prefix=prefix)
            live.ready()
            options = mount_at(mount_table(live.pid), target + "/closed/sub").options
            ctx.true({"ro", "nosuid", "nodev"} <= options, f"flags as {who}: {options}")
            ctx.eq(live.end(), 0)


@case("B39", "what the flags say is what happens: writing, devices", only="root")
def bind_flags_effect(ctx):
    target = ctx.mkdir("target")
    with private_mounts() as host:
        source = flagged_tree(ctx, host, (("sub", 0),))
        os.mknod(source + "/sub/null", 0o666 | 0o020000, os.makedev(1, 3))
        os.chmod(source + "/sub/null", 0o666)
        for who, prefix in identities():
            for kind, writes, devices in (("--bind", True, False), ("--dev-bind", True, True),
                                          ("--ro-bind", False, False)):
                for script, works in ((f"echo > {target}/sub/file-{who}", writes),
                                      (f"echo > {target}/sub/null", devices)):
                    result = sandbox(ctx, prefix, *BASE, kind, source, target, "sh", "-c", script)
                    if works:
                        ctx.ok(result)
                    else:
                        ctx.fails(result, err="Read-only file system|Permission denied")


@case("B40", "a device file works through --dev and --dev-bind and not through --ro-bind")
def devices(ctx):
    script = ("sh", "-c", "echo > /dev/null && head -c 3 /dev/zero | wc -c")
    for kind in ("--ro-bind", "--bind"):
        ctx.fails(ctx.bw(kind, "/", "/", *script), err="/dev/null: Permission denied")
        ctx.fails(ctx.bw(kind, "/", "/", "--ro-bind", "/dev", "/dev", *script),
                  err="/dev/null: Permission denied")
    ctx.ok(ctx.bw("--dev-bind", "/", "/", *script), out="3")
    ctx.ok(ctx.bw(*BASE, "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/zero",
                  "/dev/zero", *script), out="3")
    ctx.ok(ctx.bw(*BASE, "--dev", "/dev", *script), out="3")


TRY = ("--bind-try", "--ro-bind-try", "--dev-bind-try")


@case("B41", "a -try form skips a source that is missing and makes neither mount point nor parents")
def try_missing(ctx):
    os.symlink("nowhere", ctx.dir + "/dangling")
    os.symlink("/nonexistent/file", ctx.dir + "/dangling-absolute")
    file = ctx.write("file")
    for kind in TRY:
        for source in ("/nonexistent", "/nonexistent/below", ctx.dir + "/dangling",
                       ctx.dir + "/dangling-absolute", file + "/below"):
            ctx.ok(ctx.bw(*ctx.RUN, kind, source, "/tmp/parent/x", "ls", "-A", "/tmp"), out="")
        ctx.ok(ctx.bw(*ctx.RUN, kind, file, "/tmp/parent/x", "ls", "-A", "/tmp"), out="parent")
        ctx.fails(ctx.bw(*ctx.RUN, kind.removesuffix("-try"), "/nonexistent", "/tmp/x", "true"),
                  rc=1, err=r"^bwrap: Can't find source path .*/nonexistent")


@case("B41", "a -try form refuses a source that is a loop of links")
def try_loop(ctx):
    os.symlink("b", ctx.dir + "/a")
    os.symlink("a", ctx.dir + "/b")
    for kind in TRY:
        ctx.fails(ctx.bw(*ctx.RUN, kind, ctx.dir + "/a", "/tmp/x", "true"), rc=1,
                  err=r"^bwrap: Can't find source path .*: Too many levels of symbolic links")


@case("B41", "a -try form refuses a source in a directory that the user may not search",
      only="root")
def try_closed(ctx):
    ctx.write("closed/file")
    os.chmod(ctx.dir + "/closed", 0o700)
    for kind in TRY:
        words = (*ctx.RUN, kind, ctx.dir + "/closed/file", "/tmp/x", "test", "-f", "/tmp/x")
        ctx.fails(sandbox(ctx, as_user(), *words), rc=1,
                  err=r"^bwrap: Can't find source path .*: Permission denied")
        ctx.ok(ctx.bw(*words))


@case("B42", "a bind of one kind over a mount point of another is refused")
def wrong_kind(ctx):
    folder, file = ctx.mkdir("folder"), ctx.write("file", "text")
    ctx.fails(ctx.bw(*ctx.RUN, "--bind", folder, file, "true"), rc=1,
              err=rf"^bwrap: Can't mkdir \S*{file}: Not a directory")
    ctx.fails(ctx.bw(*ctx.RUN, "--bind", file, folder, "true"), rc=1,
              err=rf"^bwrap: Can't create file at \S*{folder}: Is a directory")
    other, second = ctx.mkdir("other"), ctx.write("second", "more")
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", folder, other, "true"))
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", file, second, "cat", second), out="text")


@case("B42", "a file bound onto a dangling link appears where the link leads")
def file_onto_dangling(ctx):
    file = ctx.write("file", "text")
    folder = ctx.mkdir("host/deep")
    for link, text, target in (("relative", "deep/one", "deep/one"),
                               ("absolute", folder + "/two", "deep/two")):
        os.symlink(text, f"{ctx.dir}/host/{link}")
        ctx.ok(ctx.bw(*ctx.RUN, "--bind", file, f"{ctx.dir}/host/{link}", "cat",
                      f"{ctx.dir}/host/{target}"), out="text")
        ctx.eq(ctx.mode("host/" + target), 0o444, "mode of the mount point that was made")
        ctx.true(os.path.islink(f"{ctx.dir}/host/{link}"), "the link is still there")
    os.symlink("missing/three", ctx.dir + "/host/far")
    ctx.fails(ctx.bw(*ctx.RUN, "--bind", file, ctx.dir + "/host/far", "true"), rc=1,
              err=r"^bwrap: Can't create .*far")


@case("B42", "a directory bound onto a dangling link is refused")
def directory_onto_dangling(ctx):
    folder = ctx.mkdir("folder")
    for link, text in (("relative", "missing"), ("absolute", ctx.dir + "/missing")):
        os.symlink(text, f"{ctx.dir}/{link}")
        result = ctx.fails(ctx.bw(*ctx.RUN, "--bind", folder, f"{ctx.dir}/{link}", "true"), rc=1,
                           err=r"^bwrap: ")
        ctx.true(link in result.err or "missing" in result.err, f"it names the link\n{result}")
    ctx.true(not os.path.lexists(ctx.dir + "/missing"), "nothing was made on the host")


@case("B43", "nothing can be made below an earlier read-only bind")
def below_read_only(ctx):
    tree = ctx.mkdir("tree")
    file = ctx.write("file", "text")
    for options in (("--bind", "/usr", "/x/new"), ("--bind", file, "/x/new"),
                    ("--dir", "/x/new"), ("--dir", "/x/new/deep"), ("--tmpfs", "/x/new"),
                    ("--symlink", "a", "/x/new"), ("--file", "9", "/x/new"),
                    ("--bind-data", "9", "/x/new"), ("--bind", file, "/x/new/deep")):
        result = ctx.fails(ctx.bw(*ctx.USR, "--ro-bind", tree, "/x", *options, "true",
                                  fds={9: "data"}), rc=1, err=r"^bwrap: .*Read-only file system")
        ctx.true("/x/new" in result.err, f"it names the path\n{result}")
        ctx.ok(ctx.bw(*ctx.USR, "--bind", ctx.mkdir("writable"), "/x", *options, "true",
                      fds={9: "data"}))
        ctx.ok(ctx.run("rm", "-rf", ctx.dir + "/writable"))
    ctx.eq(os.listdir(tree), [], "names on the host")


@case("B43", "what exists below an earlier read-only bind can be bound over")
def over_existing_in_read_only(ctx):
    ctx.write("tree/file", "old")
    ctx.mkdir("tree/folder")
    file = ctx.write("new", "new")
    ctx.ok(ctx.bw(*ctx.USR, "--ro-bind", ctx.dir + "/tree", "/x", "--bind", file, "/x/file",
                  "--tmpfs", "/x/folder", "--dir", "/x/folder/made", "sh", "-c",
                  "cat /x/file; ls /x/folder"), out="newmade")


@case("B44", "a mount that the host makes later appears in the sandbox", only="root")
def later_host_mount(ctx):
    tree = ctx.mkdir("tree")
    with private_mounts(shared=True) as host:
        for who, prefix in identities():
            for shape in ((), ("--unshare-pid",)):
                folder = ctx.mkdir(f"tree/late-{who}{len(shape)}")
                live = Live(ctx, *ctx.USR, *shape, "--bind", tree, "/x", prefix=prefix,
                            script="while read -r name; do ls -A /x/$name; echo end; done")
                live.ready()
                name = os.path.basename(folder)
                ctx.eq(live.ask(name, "end\n"), "end\n", "the directory before")
                host.tmpfs(folder)
                with open(folder + "/seen", "w"):
                    pass
                ctx.eq(live.ask(name, "end\n"), "seen\nend\n", f"the directory after, as {who}")
                ctx.eq(live.end(), 0)


@case("B44", "a mount that the sandbox makes never appears on the host", only="root")
def later_sandbox_mount(ctx):
    tree = ctx.mkdir("tree", 0o777)
    folder = ctx.mkdir("tree/inner")
    with private_mounts(shared=True):
        for who, prefix in identities():
            before = mount_table()
            live = Live(ctx, *ctx.USR, "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add",
                        "ALL", "--bind", tree, "/x", prefix=prefix,
                        script="mount -n -t tmpfs none /x/inner && echo > /x/inner/seen; "
                               "ls -A /x/inner; echo end; read -r x || :")
            live.ready()
            text = read_until(live.out, b"end\n").decode()
            ctx.eq(text, "seen\nend\n", f"the directory in the sandbox, as {who}")
            ctx.eq(os.listdir(folder), [], "the directory on the host")
            ctx.eq(mount_table(), before, "the host's mounts")
            ctx.eq(live.end(), 0)
        # Root without a user namespace can mount, too.
        live = Live(ctx, *ctx.USR, "--bind", tree, "/x",
                    script="mount -n -t tmpfs none /x/inner && echo > /x/inner/seen; "
                           "ls -A /x/inner; echo end; read -r x || :")
        live.ready()
        ctx.eq(read_until(live.out, b"end\n"), b"seen\nend\n", "the directory in root's sandbox")
        ctx.eq(os.listdir(folder), [], "the directory on the host")
        ctx.eq(live.end(), 0)


@case("B45", "--remount-ro makes one mount read-only and leaves the mounts below it alone",
      only="root")
def remount_tree(ctx):
    with private_mounts() as host:
        source = flagged_tree(ctx, host, (("sub", 0), ("sub/deep", MS_NOEXEC)))
        target = ctx.mkdir("target")
        for who, prefix in identities():
            options = (*BASE, "--dev-bind", source, target)
            before = below(inside_table(ctx, *options, prefix=prefix), target)
            after = below(inside_table(ctx, *options, "--remount-ro", target, prefix=prefix),
                          target)
            wanted = dict(before)
            wanted[""] = before[""] - {"rw"} | {"ro"}
            ctx.eq(after, wanted, f"flags as {who}")


@case("B45", "--remount-ro adds read-only and nothing else: devices go on working")
def remount_devices(ctx):
    for target in ("/dev", "/x"):
        ctx.ok(ctx.bw(*ctx.USR, "--dev-bind", "/dev", target, "--remount-ro", target, "sh", "-c",
                      f"echo > {target}/null && head -c 2 {target}/zero | wc -c"), out="2")
    # The control: it did become read-only. As an ordinary user, look at a tmpfs.
    ctx.fails(ctx.bw(*ctx.USR, "--tmpfs", "/x", "--dir", "/x/d", "--remount-ro", "/x", "mkdir",
                     "/x/e"), err="Read-only file system")
    ctx.ok(ctx.bw(*ctx.USR, "--tmpfs", "/x", "--tmpfs", "/x/sub", "--remount-ro", "/x", "mkdir",
                  "/x/sub/e"))


@case("B45", "--remount-ro refuses what is no mount point and what is missing")
def remount_refused(ctx):
    ctx.fails(ctx.bw(*ctx.USR, "--tmpfs", "/x", "--dir", "/x/y", "--remount-ro", "/x/y", "true"),
              rc=1, err=r"^bwrap: Can't remount readonly on \S*/x/y: "
                        r"Unable to find \"\S*/x/y\" in mount table")
    result = ctx.fails(ctx.bw(*ctx.USR, "--tmpfs", "/x", "--remount-ro", "/x/y/z", "true"), rc=1,
                       err=r"^bwrap: Can't remount readonly on \S*/x/y/z: ")
    ctx.true("No such file or directory" in result.err, f"it says why\n{result}")


@case("B45", "--remount-ro / keeps what is there and refuses new names")
def remount_root(ctx):
    options = (*ctx.USR, "--dir", "/a", "--file", "9", "/f", "--tmpfs", "/t", "--remount-ro", "/")
    ctx.ok(ctx.bw(*options, "sh", "-c", "test -d /a && cat /f && mkdir /t/new",
                  fds={9: "text"}), out="text")
    for script in ("mkdir /b", "echo > /f", "rmdir /a", "chmod 700 /"):
        ctx.fails(ctx.bw(*options, "sh", "-c", script, fds={9: "text"}),
                  err="Read-only file system")
        ctx.ok(ctx.bw(*options[:-2], "sh", "-c", script, fds={9: "text"}))
    ctx.fails(ctx.bw(*options, "--dir", "/late", "true", fds={9: "text"}), rc=1,
              err=r"^bwrap: .*/late: Read-only file system")


@case("B46", "--proc with a pid namespace mounts a new procfs")
def proc_new(ctx):
    # Listing process 1 and the command's own shell is enough to tell the namespaces apart.
    result = ctx.ok(ctx.bw(*ctx.USR, "--unshare-pid", "--proc", "/proc", "sh", "-c",
                           "echo /proc/[0-9]*; cat /proc/self/mountinfo"))
    listing, _, table = result.out.partition("\n")
    ctx.eq(listing, "/proc/1 /proc/2", "processes")
    proc = mount_at([m for m in parse_mountinfo(table) if m.fstype == "proc"], "/proc")
    ctx.true({"rw", "nosuid", "nodev", "noexec"} <= proc.options, f"flags: {proc}")


@case("B46", "--proc without a pid namespace shows the host's processes")
def proc_bound(ctx):
    result = ctx.ok(ctx.bw(*ctx.USR, "--proc", "/proc", "sh", "-c",
                           "echo $$; cat /proc/$$/stat; cat /proc/self/mountinfo"))
    pid, stat, table = re.match(r"(\d+)\n(.*)\n((?s:.*))", result.out).groups()
    ctx.true(stat.startswith(pid + " (sh)"), f"the shell finds itself: {stat}")
    ctx.ok(ctx.bw(*ctx.USR, "--proc", "/proc", "test", "-d", f"/proc/{os.getpid()}"))
    proc = mount_at(parse_mountinfo(table), "/proc")
    ctx.true({"rw", "nosuid", "nodev"} <= proc.options, f"flags: {proc}")
    ctx.eq(proc.fstype, "proc", "kind")
    # The control: with a pid namespace this process is not there.
    ctx.fails(ctx.bw(*ctx.USR, "--unshare-pid", "--proc", "/proc", "test", "-d",
                     f"/proc/{os.getpid()}"))
