"""Reported bugs, group M: mount destinations and the symlinks on the way to them."""

import os
import stat
import subprocess
import time

import casekit
from casekit import Sources, make_tree, snapshot, swapping, unchanged, usr
from harness import case


# -- M01: a link in the root tree leads set-up onto the host -------------------------------------

class Scene:
    """A root tree `r`, a `victim` beside it that nothing may touch, and things to mount."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.tree = make_tree(ctx)
        self.victim = ctx.mkdir("victim", 0o755)
        ctx.write("victim/keep", "kept\n", 0o640)
        ctx.mkdir("victim/sub", 0o750)
        self.sources = Sources(ctx)
        self.before = snapshot(self.victim)
        self.names = set(os.listdir(ctx.dir))

    def link(self, name, target):
        path = os.path.join(self.tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)

    def run(self, op, *extra):
        return self.ctx.bw(*usr(self.tree), *extra, *op.args, "sh", "-c", "echo started",
                           fds=op.fds)

    def untouched(self, why):
        unchanged(self.ctx, self.victim, self.before, why)
        names = set(os.listdir(self.ctx.dir))
        if names != self.names:
            raise AssertionError(f"{why}: {self.ctx.dir} has gained {names - self.names} and lost "
                                 f"{self.names - names}")


def outside_links(ctx):
    """What a hostile root tree can hold to point at `victim`, as the host or set-up see it."""
    d = ctx.dir
    up = "../" * 12
    return {
        "absolute, through an old root": f"/oldroot{d}/victim",
        "relative, through an old root": f"{up}oldroot{d}/victim",
        "absolute, as the host names it": f"{d}/victim",
        "relative, as the host names it": f"{up}{d.lstrip('/')}/victim",
        "one step up": "../victim",
        "through a new root": f"/newroot/..{d}/victim",
        "doubled slashes": f"//oldroot/.//{d}/victim//",
    }


def refused(ctx, result, link, why, creates=True):
    """The outcome for a link that leads out of the tree or to nothing: an error that names it.
    An option that creates nothing may just as well say that there is nothing."""
    if result.rc != 1 or "started" in result.out:
        raise AssertionError(f"{why}: expected a refusal before the command starts\n{result}")
    if link not in result.err or not result.err.startswith("bwrap: "):
        raise AssertionError(f"{why}: the message does not name {link}\n{result}")
    if creates and "link" not in result.err.lower():
        raise AssertionError(f"{why}: the message does not speak of a link\n{result}")


@case("case-M01", "a destination below a link that leads out of the root tree touches nothing on "
      "the host and is refused with a message that names the link, for every option that takes a "
      "destination", timeout=300)
def m01_parents(ctx):
    scene = Scene(ctx)
    for kind, target in outside_links(ctx).items():
        scene.link("data", target)
        for op in scene.sources.ops("/data/made"):
            why = f"--{op.name} below a link {kind}"
            tree = casekit.tree_names(scene.tree)
            result = scene.run(op)
            scene.untouched(why)
            refused(ctx, result, "/data", why, op.creates)
            ctx.eq(casekit.tree_names(scene.tree), tree, f"{why}: names in the tree")
        if "through an old root" not in kind:
            continue
        # Existing things inside the victim are no better than new ones.
        for op in [op for op in scene.sources.ops("/data/keep") if op.wants_file] + \
                [op for op in scene.sources.ops("/data/sub") if not op.wants_file]:
            why = f"--{op.name} on what a link {kind} leads to"
            result = scene.run(op)
            scene.untouched(why)
            refused(ctx, result, "/data", why, op.creates)


@case("case-M01", "every option that takes a destination works below a directory of the root tree "
      "and below a link that stays in it, and its traces are in the tree alone", timeout=120)
def m01_control(ctx):
    scene = Scene(ctx)
    real = os.path.join(scene.tree, "real")
    for kind, target in (("a directory", None), ("a relative link", "real"),
                         ("a relative link with dots", "../../etc/../real"),
                         ("an absolute link", "/real")):
        if casekit.peer() and kind in ("an absolute link", "a relative link with dots"):
            continue
        os.makedirs(real, exist_ok=True)
        if target:
            scene.link("data", target)
        for op in scene.sources.ops(f"/{'data' if target else 'real'}/made"):
            why = f"--{op.name} below {kind}"
            result = scene.run(op, *op.before)
            if result.rc != 0 or "started" not in result.out:
                raise AssertionError(f"{why} should work\n{result}")
            scene.untouched(why)
            made = os.path.join(real, "made")
            if not os.path.lexists(made):
                raise AssertionError(f"{why}: nothing was made in the tree\n{result}")
            if os.path.islink(made) or not os.path.isdir(made):
                os.unlink(made)
            else:
                os.rmdir(made)


@case("case-M01", "a link with an absolute target is resolved in the root tree, even when the "
      "same path exists on the host")
def m01_same_path_inside(ctx):
    scene = Scene(ctx)
    if casekit.peer():
        ctx.skip("the peer resolves absolute links outside of the new root")
    d = ctx.dir
    for target, means in ((f"{d}/victim", f"{d}/victim"),
                          (f"/oldroot{d}/victim", f"/oldroot{d}/victim"),
                          (f"{'../' * 12}{d[1:]}/victim", f"{d}/victim"),
                          (f"/usr/..{d}/victim", f"{d}/victim")):
        where = scene.tree + means
        os.makedirs(where, exist_ok=True)
        scene.link("data", target)
        result = ctx.ok(ctx.bw(*usr(scene.tree), "--dir", "/data/made", "--file", "9",
                               "/data/written", "cat", "/data/written", fds={9: "inside\n"}),
                        out="inside")
        scene.untouched(f"the link {target}")
        ctx.eq(sorted(os.listdir(where)), ["made", "written"], f"{target}\n{result}")
        os.rmdir(os.path.join(where, "made"))
        os.unlink(os.path.join(where, "written"))


@case("case-M01", "links in the middle of a destination, chains of links and links below links "
      "cannot lead out of the root tree", timeout=120)
def m01_middle(ctx):
    scene = Scene(ctx)
    scene.link("a/b/hop", f"/oldroot{ctx.dir}")
    scene.link("one", "two")
    scene.link("two", "/three")
    scene.link("three", f"/oldroot{ctx.dir}/victim")
    scene.link("up", "a/../../../../../..")
    for dest, link in ((f"/a/b/hop/victim/made", "/a/b/hop"),
                       (f"/a/b/hop/victim/sub/x/y/made", "/a/b/hop"),
                       ("/a/../a/./b//hop/victim/made", "hop"),
                       ("a/b/hop/victim/made", "/a/b/hop"),
                       ("/one/made", "/one|/two|/three"), ("/one/sub/made", "/one|/two|/three")):
        for op in scene.sources.ops(dest):
            why = f"--{op.name} at {dest}"
            result = scene.run(op)
            scene.untouched(why)
            named = [n for n in link.split("|") if n in result.err]
            refused(ctx, result, named[0] if named else link, why, op.creates)
    # A link that climbs above the root arrives at the root, as it does for a process inside.
    ctx.ok(ctx.bw(*usr(scene.tree), "--dir", "/up/oldroot-not", "true"))
    scene.untouched("a link that climbs")
    ctx.true(os.path.isdir(os.path.join(scene.tree, "oldroot-not")), "made in the tree's root")


@case("case-M01", "`..` in a destination stays in the new root")
def m01_dots(ctx):
    scene = Scene(ctx)
    if casekit.peer():
        ctx.skip("the peer lets a destination with `..` leave the new root")
    up = "/.." * 12
    for dest, where in ((f"{up}/dotted/made", "dotted/made"), ("../../dotted/made", "dotted/made"),
                        (f"/tmp/../../../dotted/made", "dotted/made")):
        ctx.ok(ctx.bw(*usr(scene.tree), "--dir", dest, "test", "-d", "/dotted/made"))
        scene.untouched(dest)
        ctx.true(os.path.isdir(os.path.join(scene.tree, where)), f"{dest} is made in the tree")
        os.rmdir(os.path.join(scene.tree, "dotted/made"))
    for op in scene.sources.ops(f"{up}{ctx.dir}/victim/made"):
        scene.run(op)
        scene.untouched(f"--{op.name} with dots")


@case("case-M01", "the last part of a destination is never followed out of the root tree, not to "
      "create, not to overwrite and not to change a mode", timeout=300)
def m01_leaf(ctx):
    scene = Scene(ctx)
    for kind, target in outside_links(ctx).items():
        for leaf in ("", "/keep", "/sub", "/new"):
            scene.link("leaf", target.rstrip("/") + leaf)
            for op in scene.sources.ops("/leaf"):
                # A file goes where a file is or could be, a directory where one is or could be.
                if leaf != "/new" and op.wants_file != (leaf == "/keep"):
                    continue
                if leaf == "/new" and "through an old root" not in kind:
                    continue
                why = f"--{op.name} on a link {kind}{leaf}"
                result = scene.run(op)
                scene.untouched(why)
                if "through an old root" in kind or "host" in kind:
                    if result.rc == 0:
                        raise AssertionError(f"{why} should be refused\n{result}")
                    ctx.true("/leaf" in result.err, f"{why}: the message names it\n{result}")
                if os.path.lexists(os.path.join(scene.tree, "oldroot")):
                    raise AssertionError(f"{why} made an `oldroot` in the tree")


@case("case-M01", "a destination that goes through one of /proc's own links (root, cwd, fd) cannot "
      "lead out of the new root", timeout=300)
def m01_magic(ctx):
    scene = Scene(ctx)
    d = ctx.dir
    hops = [f"/proc/{who}/{what}{old}{d}/victim" for who in ("self", "thread-self", "1",
                                                             str(os.getpid()), str(os.getppid()))
            for what in ("root", "cwd") for old in ("", "/oldroot")]
    hops += [f"/proc/self/cwd/{up}victim" for up in ("", "../")]
    hops += [f"/proc/self/fd/{n}{tail}" for n in range(3, 20)
             for tail in (f"{d}/victim", f"/oldroot{d}/victim", "/victim")]
    # The caller's own descriptors lead straight to the victim and to the host's root.
    held = os.open(scene.victim, os.O_PATH | os.O_DIRECTORY)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    fds = {30: held, 31: top}
    hops += ["/proc/self/fd/30", f"/proc/self/fd/31{d}/victim", "/dev/fd/30"]
    for number, hop in enumerate(hops):
        scene.link("data", hop)
        for proc in (("--unshare-pid", "--proc", "/proc"), ("--bind", "/proc", "/proc"),
                     ("--proc", "/proc"))[:2 + (number % 4 == 0)]:
            number += 1
            words = (("--dir", "/data/made"), ("--file", "9", "/data/keep"))[number % 2]
            result = ctx.bw(*usr(scene.tree), *proc, *words, "sh", "-c", "echo started",
                            fds={**fds, 9: "data\n"})
            why = f"{words} through {hop} with {proc}"
            scene.untouched(why)
            if result.rc == 0:
                raise AssertionError(f"{why}: set-up went through a link of /proc\n{result}")
    # The same written as a destination, without a link in the tree.
    for hop in ("/proc/self/fd/30", f"/proc/self/fd/31{d}/victim", f"/proc/self/root{d}/victim",
                f"/proc/1/root{d}/victim", f"/proc/{os.getpid()}/root{d}/victim"):
        for proc in (("--unshare-pid", "--proc", "/proc"), ("--bind", "/proc", "/proc")):
            ctx.bw(*usr(scene.tree), *proc, "--dir", f"{hop}/made", "true", fds=fds)
            scene.untouched(f"--dir {hop}/made with {proc}")
    # The positive control: an ordinary link at the same place works with each of these.
    os.makedirs(os.path.join(scene.tree, "real"), exist_ok=True)
    scene.link("data", "real")
    for proc in (("--unshare-pid", "--proc", "/proc"), ("--bind", "/proc", "/proc")):
        ctx.ok(ctx.bw(*usr(scene.tree), *proc, "--dir", "/data/made", "true", fds=fds))
        os.rmdir(os.path.join(scene.tree, "real/made"))


@case("case-M01", "links that an earlier option laid cannot lead a later one out of the new root",
      timeout=120)
def m01_own_links(ctx):
    scene = Scene(ctx)
    d = ctx.dir
    for target in (f"/oldroot{d}/victim", f"{'../' * 12}oldroot{d}/victim", f"{d}/victim"):
        for base in (("--tmpfs", "/work"), ("--dir", "/work")):
            for op in scene.sources.ops("/work/link/made"):
                result = ctx.bw(*usr(scene.tree), *base, "--symlink", target, "/work/link",
                                *op.args, "true", fds=op.fds)
                why = f"--{op.name} below --symlink {target}"
                scene.untouched(why)
                if result.rc == 0:
                    raise AssertionError(f"{why} should be refused\n{result}")
            leftover = os.path.join(scene.tree, "work/link")
            if os.path.lexists(leftover):
                os.unlink(leftover)
    ctx.ok(ctx.bw(*usr(scene.tree), "--tmpfs", "/work", "--dir", "/work/real", "--symlink", "real",
                  "/work/link", "--dir", "/work/link/made", "test", "-d", "/work/real/made"))


@case("case-M01", "a link that comes in with a bound directory, a read-only one or an overlay "
      "cannot lead set-up onto the host")
def m01_links_in_binds(ctx):
    scene = Scene(ctx)
    hostile = ctx.mkdir("source/hostile")
    os.symlink(f"/oldroot{ctx.dir}/victim", os.path.join(hostile, "data"))
    ways = [("--bind", hostile, "/m"), ("--ro-bind", hostile, "/m"), ("--dev-bind", hostile, "/m")]
    if not casekit.lacks(ctx, "--overlay-src"):
        ways.append(("--overlay-src", hostile, "--tmp-overlay", "/m"))
    for way in ways:
        for words in (("--dir", "/m/data/made"), ("--file", "9", "/m/data/keep"),
                      ("--tmpfs", "/m/data/sub"), ("--chmod", "0777", "/m/data/sub"),
                      ("--symlink", "x", "/m/data/made")):
            result = ctx.bw(*usr(scene.tree), *way, *words, "sh", "-c", "echo started",
                            fds={9: "data\n"})
            scene.untouched(f"{way} {words}")
            refused(ctx, result, "/m/data", f"{way} {words}", words[0] != "--chmod")


@case("case-M01", "while something exchanges a directory of the root tree with a link to the host, "
      "no start ever writes outside of the tree", timeout=200)
def m01_race(ctx):
    scene = Scene(ctx)
    real = os.path.join(scene.tree, "data")
    other = os.path.join(scene.tree, "data.other")
    landed = refusals = 0
    for target in (f"/oldroot{ctx.dir}/victim", f"{'../' * 12}oldroot{ctx.dir}/victim"):
        if os.path.islink(other):
            os.unlink(other)
        if os.path.islink(real):
            os.unlink(real)
        os.makedirs(os.path.join(real, "deep"), exist_ok=True)
        os.symlink(target, other)
        end = time.monotonic() + 2.5
        number = 0
        with swapping(real, other):
            while time.monotonic() < end:
                number += 1
                words = (("--dir", f"/data/made{number}"),
                         ("--file", "9", f"/data/made{number}"),
                         ("--bind", scene.sources.file, f"/data/sub/made{number}"),
                         ("--tmpfs", "/data/sub"), ("--chmod", "0777", "/data/sub"),
                         ("--symlink", "x", f"/data/sub/made{number}"),
                         ("--file", "9", "/data/keep"))[number % 7]
                result = ctx.bw(*usr(scene.tree), *words, "true", fds={9: "data\n"})
                landed += result.rc == 0
                refusals += result.rc == 1
                ctx.true(result.rc in (0, 1), f"status 0 or 1\n{result}")
                unchanged(ctx, scene.victim, scene.before, f"{words} while {target} is swapped in")
        # Whichever way round the two ended, the directory becomes `data` again.
        if os.path.islink(real):
            os.rename(real, other + ".link")
            os.rename(other, real)
            os.unlink(other + ".link")
        else:
            os.unlink(other)
    ctx.true(landed > 0, "no start met the directory: the race was not run")
    ctx.true(refusals > 0 or casekit.peer(), "no start met the link: the race was not run")


# -- M02, M03, M08: the last part is a link -----------------------------------------------------

LEAVES = {"absolute": lambda d: f"{d}/f", "relative": lambda d: "f",
          "relative with dots": lambda d: f"../{os.path.basename(d)}/./f",
          "a chain": lambda d: "hop"}


@case("case-M02 case-M03 case-M08", "a file bound or masked at a link lands on the link's target, "
      "absolute and relative alike, and the link stays")
def m02_leaf(ctx):
    f = ctx.write("f", "secret\n")
    ctx.write("cover", "cover\n")
    os.symlink(f"{ctx.dir}/f", os.path.join(ctx.dir, "hop"))
    for kind, target in LEAVES.items():
        text = target(ctx.dir)
        link = os.path.join(ctx.dir, "link")
        os.symlink(text, link)
        if casekit.peer() and kind in ("absolute", "a chain"):
            os.unlink(link)
            continue
        for words in (("--ro-bind", f"{ctx.dir}/cover", link), ("--bind", f"{ctx.dir}/cover", link),
                      ("--ro-bind-data", "9", link), ("--bind-fd", "8", link)):
            if casekit.peer() and words[0] == "--bind-fd":
                continue
            fd = os.open(f"{ctx.dir}/cover", os.O_PATH)
            result = ctx.bw("--bind", "/", "/", *words, "sh", "-c",
                            f"cat {ctx.dir}/f; cat {link}; readlink {link}",
                            fds={9: "cover\n", 8: fd})
            os.close(fd)
            ctx.ok(result, out=f"cover\ncover\n{text}")
        # The reported command line: the mask is a device that a bind makes unusable.
        ctx.ok(ctx.bw("--bind", "/", "/", "--ro-bind", "/dev/null", link, "test", "-c", f))
        with open(f) as file:
            ctx.eq(file.read(), "secret\n", "the host's file")
        ctx.eq(os.readlink(link), text, "the host's link")
        os.unlink(link)


@case("case-M02 case-M08", "a link at the destination whose target is missing is used when the "
      "target's directory exists and refused by name when it does not")
def m02_dangling(ctx):
    ctx.write("cover", "cover\n")
    for text, works in (("target", True), (f"{ctx.dir}/target", True),
                        ("gone/target", False), (f"{ctx.dir}/gone/target", False)):
        if casekit.peer() and text.startswith("/"):
            continue
        link = os.path.join(ctx.dir, "link")
        os.symlink(text, link)
        result = ctx.bw("--bind", "/", "/", "--ro-bind", f"{ctx.dir}/cover", link, "sh", "-c",
                        f"cat {link}")
        if works:
            ctx.ok(result, out="cover")
            target = os.path.join(ctx.dir, "target")
            ctx.eq((os.path.getsize(target), ctx.mode(target)), (0, 0o444), "the mount point")
            os.unlink(target)
        else:
            ctx.fails(result, rc=1, err=r"^bwrap: .*link")
            ctx.true(not os.path.exists(os.path.join(ctx.dir, "gone")), "no parent was made")
        os.unlink(link)


@case("case-M08", "the links that distributions put at usual destinations do not stop a start")
def m08_usual(ctx):
    if casekit.peer():
        ctx.skip("the peer resolves absolute links outside of the new root")
    tree = make_tree(ctx)
    for folder in ("etc/ssl/certs", "etc/pki/tls/certs", "run/systemd/resolve", "nix/store/x",
                   "home/me/dotfiles"):
        os.makedirs(os.path.join(tree, folder))
    for link, target in (("etc/ssl/certs/ca.crt", "/etc/pki/tls/certs/bundle.pem"),
                         ("etc/ssl/cert.pem", "/etc/ssl/certs/ca.crt"),
                         ("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"),
                         ("home/me/.gitconfig", "/nix/store/x/gitconfig"),
                         ("home/me/.bashrc", "dotfiles/bashrc"), ("var", "/private/var")):
        os.symlink(target, os.path.join(tree, link))
    os.makedirs(os.path.join(tree, "private/var"))
    for name in ("etc/pki/tls/certs/bundle.pem", "nix/store/x/gitconfig"):
        ctx.write("r/" + name, "old\n")
    ctx.write("new", "new\n")
    for dest in ("/etc/ssl/cert.pem", "/etc/ssl/certs/ca.crt", "/etc/resolv.conf",
                 "/home/me/.gitconfig", "/home/me/.bashrc", "/var/lib/x/file"):
        ctx.ok(ctx.bw(*usr(tree), "--ro-bind", f"{ctx.dir}/new", dest, "cat", dest), out="new")


# -- M05, M06 -----------------------------------------------------------------------------------

@case("case-M05", "a tmpfs put on a link to a directory hides the directory that the link means")
def m05(ctx):
    ctx.write("real/x", "s\n")
    for text in ("real", f"{ctx.dir}/real"):
        if casekit.peer() and text != "real":
            continue
        link = os.path.join(ctx.dir, "l")
        os.symlink(text, link)
        for mount in (("--tmpfs", link), ("--perms", "0700", "--tmpfs", link + "/"),
                      ("--bind", ctx.mkdir("empty"), link)):
            result = ctx.ok(ctx.bw("--bind", "/", "/", *mount, "ls", "-A", f"{ctx.dir}/real"))
            ctx.eq(result.out, "", f"{mount} hides the directory")
        ctx.ok(ctx.bw("--bind", "/", "/", "ls", "-A", f"{ctx.dir}/real"), out="x")
        os.unlink(link)
    # A link to nothing is refused, in the caller's own words.
    os.symlink(f"{ctx.dir}/missing", os.path.join(ctx.dir, "dangling"))
    result = ctx.fails(ctx.bw("--bind", "/", "/", "--tmpfs", f"{ctx.dir}/dangling", "true"), rc=1,
                       err=r"^bwrap: .*dangling")
    if not casekit.peer():
        ctx.true("newroot" not in result.err, f"the message shows an internal path\n{result}")


@case("case-M06", "a bind on a link that an earlier option made goes to the link's target")
def m06(ctx):
    ctx.write("src/x", "s\n")
    src = f"{ctx.dir}/src"
    base = ("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--dir", "/tmp/dst")
    for links in (("--symlink", "/tmp/dst", "/tmp/link"), ("--symlink", "dst", "/tmp/link"),
                  ("--symlink", "/tmp/link2", "/tmp/link", "--symlink", "/tmp/dst", "/tmp/link2")):
        if casekit.peer() and links[1].startswith("/"):
            continue
        ctx.ok(ctx.bw(*base, *links, "--bind", src, "/tmp/link", "ls", "/tmp/dst"), out="x")
        ctx.ok(ctx.bw(*base, *links, "--ro-bind", f"{src}/x", "/tmp/link/sub/y", "cat",
                      "/tmp/dst/sub/y"), out="s")
        ctx.ok(ctx.bw(*base, "ls", "/tmp/dst"), out="")


# -- M10: the mount point of /proc or /dev is a link in the root tree -----------------------------

REAL_PROC = "test -d /proc/self/task && test \"$(stat -f -c %t /proc)\" = 9fa0 && echo real"


@case("case-M10", "--proc whose mount point is a link either is refused or mounts a real procfs at "
      "what the link means inside, and nothing on the host changes", timeout=120)
def m10_proc(ctx):
    tree = make_tree(ctx)
    victim = ctx.mkdir("v")
    os.makedirs(os.path.join(tree, "inner"))
    os.rmdir(os.path.join(tree, "proc"))
    before = snapshot(victim)
    d = ctx.dir
    for target in ("inner", "/inner", "../../inner", "usr/../inner", f"/oldroot{d}/v", f"{d}/v",
                   f"{'../' * 12}oldroot{d}/v", f"{'../' * 12}{d[1:]}/v", "missing", "/missing",
                   "proc", "/proc", "/proc/self", "self", "/newroot/proc", "/", "."):
        os.symlink(target, os.path.join(tree, "proc"))
        for pid in (("--unshare-pid",), (), ("--unshare-all",)):
            names = casekit.tree_names(tree)
            result = ctx.bw(*usr(tree), *pid, "--proc", "/proc", "sh", "-c",
                            f"echo started; {REAL_PROC}; stat -f -c %t /inner")
            why = f"--proc on a link to {target} with {pid}"
            unchanged(ctx, victim, before, why)
            ctx.eq(casekit.tree_names(tree), names, f"{why}: names in the tree")
            if "started" not in result.out:
                ctx.fails(result, rc=1, err=r"^bwrap: .*/proc")
                if "inner" in target and not target.startswith("/") and not casekit.peer():
                    ctx.true("link" in result.err, f"{why}: the message tells of it\n{result}")
                continue
            if result.out.split()[:2] != ["started", "real"]:
                raise AssertionError(f"{why}: the command runs without a real /proc\n{result}")
            if target.endswith("inner"):
                ctx.eq(result.out.split()[-1], "9fa0", f"{why}: the procfs is on the link's target")
        os.unlink(os.path.join(tree, "proc"))
    os.makedirs(os.path.join(tree, "proc"))
    ctx.ok(ctx.bw(*usr(tree), "--unshare-pid", "--proc", "/proc", "sh", "-c", REAL_PROC),
           out="real")


@case("case-M10", "--dev whose mount point is a link either is refused or builds all of its "
      "devices at what the link means inside, and nothing on the host changes", timeout=120)
def m10_dev(ctx):
    tree = make_tree(ctx)
    victim = ctx.mkdir("v")
    os.makedirs(os.path.join(tree, "evil"))
    os.rmdir(os.path.join(tree, "dev"))
    before = snapshot(victim)
    d = ctx.dir
    check = ("echo started; test -c /dev/null && echo x >/dev/null && test -d /dev/pts && "
             "test -c /dev/pts/ptmx && test -L /dev/fd && test -d /dev/shm && echo whole; "
             "test -c /evil/null && echo evil")
    for target in ("evil", "/evil", "../../evil", f"/oldroot{d}/v", f"{d}/v",
                   f"{'../' * 12}oldroot{d}/v", "missing", "/missing", "dev", "/newroot/dev"):
        os.symlink(target, os.path.join(tree, "dev"))
        names = casekit.tree_names(tree)
        result = ctx.bw(*usr(tree), "--dev", "/dev", "sh", "-c", check)
        why = f"--dev on a link to {target}"
        unchanged(ctx, victim, before, why)
        ctx.eq(casekit.tree_names(tree), names, f"{why}: names in the tree")
        if "started" not in result.out:
            ctx.fails(result, rc=1, err=r"^bwrap: .*/dev")
        else:
            ctx.eq(result.out.split()[:2], ["started", "whole"], f"{why}\n{result}")
            if target.endswith("evil"):
                ctx.eq(result.out.split()[-1], "evil", f"{why}: where the link leads")
        os.unlink(os.path.join(tree, "dev"))
    os.makedirs(os.path.join(tree, "dev"))
    ctx.ok(ctx.bw(*usr(tree), "--dev", "/dev", "sh", "-c", check + "; true"),
           out="started\nwhole")


@case("case-M10", "--proc, --dev and --mqueue refuse a mount point that is not a directory")
def m10_not_a_directory(ctx):
    tree = make_tree(ctx)
    for option, extra in (("--proc", ("--unshare-pid",)), ("--dev", ()),
                          ("--mqueue", ("--unshare-ipc",)), ("--tmpfs", ())):
        for kind in ("file", "fifo", "link to a file", "socket"):
            path = os.path.join(tree, "point")
            if kind == "file":
                ctx.write("r/point", "content\n")
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "socket":
                os.mknod(path, 0o600 | stat.S_IFSOCK)
            else:
                ctx.write("r/plain", "content\n")
                os.symlink("plain", path)
            before = snapshot(tree)
            result = ctx.bw(*usr(tree), *extra, option, "/point", "sh", "-c", "echo started")
            reason = "Not a directory|link" if "link" in kind else "Not a directory"
            ctx.fails(result, rc=1, err=rf"^bwrap: .*/point.*: .*({reason})")
            ctx.true("started" not in result.out, f"nothing was started\n{result}")
            unchanged(ctx, tree, before, f"{option} on a {kind}")
            os.unlink(path)
        os.mkdir(path)
        ctx.ok(ctx.bw(*usr(tree), *extra, option, "/point", "true"))
        os.rmdir(path)


@case("case-M10", "what covers /proc for root is put on the procfs that was really mounted",
      only="root")
def m10_covers(ctx):
    tree = make_tree(ctx)
    os.makedirs(os.path.join(tree, "inner/sys/kernel"))
    os.rmdir(os.path.join(tree, "proc"))
    os.symlink("inner", os.path.join(tree, "proc"))
    # Opened for reading and writing, which changes nothing; never written to.
    script = ("for f in /proc/sys/kernel/core_pattern /inner/sys/kernel/core_pattern; do "
              "[ -e $f ] || continue; if ( : 3<>$f ) 2>&-; then echo OPENED; "
              "else echo closed; fi; done; echo end")
    for pid in (("--unshare-pid",), (), ("--unshare-all",)):
        result = ctx.bw(*usr(tree), *pid, "--proc", "/proc", "sh", "-c", script)
        if result.rc != 0 and "end" not in result.out:
            ctx.fails(result, rc=1, err=r"^bwrap: .*/proc.*link")
            continue
        ctx.true("OPENED" not in result.out, f"a sysctl of the host opens for writing\n{result}")
        ctx.true("closed" in result.out, f"there is a procfs\n{result}")
    with open("/proc/sys/kernel/core_pattern", "r+b", buffering=0):
        pass  # The control: outside of a sandbox root may open it.


@case("case-M10", "while something exchanges the mount point of /proc with a link to the host, the "
      "command never runs without a real procfs and the host is not touched", timeout=120)
def m10_race(ctx):
    tree = make_tree(ctx)
    victim = ctx.mkdir("v")
    before = snapshot(victim)
    proc, other = os.path.join(tree, "proc"), os.path.join(tree, "proc.other")
    os.symlink(f"/oldroot{ctx.dir}/v", other)
    runs = 0
    end = time.monotonic() + 2.5
    with swapping(proc, other):
        while time.monotonic() < end:
            # A mounted directory keeps its mount when it is renamed, so the path /proc says
            # nothing here: the mount table, read through another procfs, says it all.
            result = ctx.bw(*usr(tree), "--unshare-pid", "--proc", "/proc", "--bind", "/proc",
                            "/tmp", "sh", "-c", "echo started; grep -c ' - proc ' "
                            "/tmp/self/mountinfo")
            unchanged(ctx, victim, before, "the race on /proc")
            if "started" in result.out:
                runs += 1
                if int(result.out.split()[1]) < 2:
                    raise AssertionError(f"the command runs without a procfs of its own\n{result}")
            else:
                ctx.fails(result, rc=1, err=r"^bwrap: ")
    ctx.true(runs > 0, "no start met the directory: the race was not run")


# -- M11 ... M23 ----------------------------------------------------------------------------------

@case("case-M11", "a mount point below a file is an error that says so, and the file is untouched")
def m11(ctx):
    git = ctx.write("w/.git", "gitdir: x\n")
    before = snapshot(f"{ctx.dir}/w")
    for option in (("--ro-bind", "/dev/null"), ("--ro-bind-try", "/dev/null"), ("--tmpfs",),
                   ("--dir",)):
        result = ctx.bw("--bind", "/", "/", *option, f"{git}/hooks/x", "sh", "-c", "echo started")
        ctx.fails(result, rc=1, err=rf"^bwrap: .*{git}.*: Not a directory")
        ctx.true("started" not in result.out, "nothing was started")
        unchanged(ctx, f"{ctx.dir}/w", before, f"{option}")
    os.unlink(git)
    ctx.mkdir("w/.git/hooks")
    ctx.ok(ctx.bw("--bind", "/", "/", "--ro-bind", "/dev/null", f"{git}/hooks/x", "true"))


@case("case-M13", "masking a missing path leaves the empty mount point that bwrap leaves and "
      "nothing else, also after a failed start, and the table of differences tells of it")
def m13(ctx):
    work = ctx.mkdir("w")
    ctx.ok(ctx.bw("--bind", "/", "/", "--ro-bind", "/dev/null", f"{work}/stub", "true"))
    ctx.eq(os.listdir(work), ["stub"], "what is left")
    ctx.eq((os.path.getsize(f"{work}/stub"), ctx.mode("w/stub")), (0, 0o444), "the stub")
    # It stops a later creation inside, and a second start finds it and adds nothing.
    result = ctx.bw("--bind", "/", "/", "--ro-bind", "/dev/null", f"{work}/stub", "sh", "-c",
                    f"rm -f {work}/stub; mv {work}/stub {work}/moved; echo x >{work}/stub")
    ctx.fails(result)
    ctx.eq(os.listdir(work), ["stub"], "what is left")
    os.unlink(f"{work}/stub")
    ctx.fails(ctx.bw("--bind", "/", "/", "--ro-bind", "/dev/null", f"{work}/stub", "--bind",
                     f"{ctx.dir}/missing", "/mnt", "true"), rc=1)
    ctx.eq(os.listdir(work), [], "a source that is missing is found before anything is made")
    ctx.true(casekit.differences_name("M13"), "doc/differences.md has a row that names M13")


@case("case-M14", "a mount point below a read-only parent is refused with a hint at the option "
      "that made the parent read-only")
def m14(ctx):
    work = ctx.mkdir("w")
    src = ctx.mkdir("src")
    ctx.mkdir("w/sub/deep")
    tries = [
        ((("--ro-bind", "/", "/"),), f"{work}/missing", "--ro-bind"),
        ((("--bind", "/", "/"), ("--ro-bind", work, work)), f"{work}/missing", "--ro-bind"),
        ((("--bind", "/", "/"), ("--ro-bind", work, "/tmp")), "/tmp/sub/missing", "--ro-bind"),
        ((("--bind", "/", "/"), ("--tmpfs", "/tmp"), ("--remount-ro", "/tmp")), "/tmp/missing",
         "--remount-ro"),
        ((("--ro-bind", work, "/"), ("--ro-bind-try", src, "/sub")), "/sub/missing",
         "--ro-bind-try"),
    ]
    before = snapshot(ctx.dir)
    for earlier, dest, option in tries:
        for words in (("--bind", src, dest), ("--dir", dest), ("--tmpfs", dest),
                      ("--symlink", "x", dest), ("--ro-bind", "/dev/null", dest),
                      ("--bind-data", "9", dest), ("--bind", src, dest + "/more")):
            result = ctx.bw(*sum(earlier, ()), *words, "sh", "-c", "echo started",
                            fds={9: "data"})
            ctx.fails(result, rc=1, err=r"^bwrap: .*: Read-only file system")
            ctx.true(dest in result.err or casekit.peer(), f"the message names {dest}\n{result}")
            ctx.true("started" not in result.out, f"nothing was started\n{result}")
            if not casekit.peer():
                ctx.true(f"{option} " in result.err.split("Read-only file system", 1)[1],
                         f"the hint names {option}\n{result}")
            unchanged(ctx, ctx.dir, before, f"{earlier} {words}")
    # The control: an existing mount point there is fine, and so is a writable parent.
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", src, f"{work}/sub", "true"))
    ctx.ok(ctx.bw("--bind", "/", "/", "--bind", src, f"{work}/missing", "true"))


@case("case-M15", "a later mount hides or shows what is below it without a word, as its order says")
def m15(ctx):
    ctx.write("t/s", "seen\n")
    t = f"{ctx.dir}/t"
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", f"{t}/s", f"{t}/s", "--tmpfs", t, "ls",
                           "-A", t), out="")
    ctx.eq(result.err, "", "no message")
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--tmpfs", t, "--bind", f"{t}/s", f"{t}/s", "cat",
                           f"{t}/s"), out="seen")
    ctx.eq(result.err, "", "no message")
    # A mask that a later bind of the parent covers shows the secret again; the other way round not.
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--ro-bind", "/dev/null", f"{t}/s", "--bind", t,
                           t, "cat", f"{t}/s"), out="seen")
    ctx.eq(result.err, "", "no message")
    ctx.fails(ctx.bw("--ro-bind", "/", "/", "--bind", t, t, "--ro-bind", "/dev/null", f"{t}/s",
                     "cat", f"{t}/s"))


@case("case-M16", "a file masked with /dev/null cannot be opened through --ro-bind and is empty "
      "through --dev-bind")
def m16(ctx):
    k = ctx.write("k", "s\n")
    for option in ("--ro-bind", "--bind"):
        ctx.fails(ctx.bw("--ro-bind", "/", "/", option, "/dev/null", k, "cat", k), rc=1,
                  err="Permission denied")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--dev-bind", "/dev/null", k, "cat", k), out="")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "cat", k), out="s")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--ro-bind-data", "9", k, "cat", k, fds={9: ""}), out="")


@case("case-M17", "a bound file cannot be replaced or deleted inside, and stays what it is outside")
def m17(ctx):
    cfg, new = ctx.write("cfg", "a\n"), ctx.write("new", "b\n")
    script = f"mv {new} {cfg}; rm {cfg}; cat {cfg}"
    result = ctx.bw("--ro-bind", "/", "/", "--bind", ctx.dir, ctx.dir, "--bind", cfg, cfg, "sh",
                    "-c", script)
    ctx.ok(result, out="a")
    ctx.eq(result.err.count("Device or resource busy"), 2, f"both are refused\n{result}")
    with open(cfg) as f:
        ctx.eq(f.read(), "a\n", "the host's file")
    result = ctx.bw("--ro-bind", "/", "/", "--bind", ctx.dir, ctx.dir, "sh", "-c",
                    f"mv {new} {cfg} && cat {cfg} && rm {cfg}")
    ctx.ok(result, out="b")


@case("case-M18", "a rename across two binds is refused as across devices and works within one")
def m18(ctx):
    a, b = ctx.mkdir("a"), ctx.mkdir("b")
    ctx.write("a/f", "x\n")
    script = ("import os, sys\nfor call in (os.rename, os.link):\n  try: call(*sys.argv[1:])\n"
              "  except OSError as e: print(e.errno)\n  else: print('done')")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", a, a, "--bind", b, b, "python3", "-c", script,
                  f"{a}/f", f"{b}/f"), out="18\n18")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", ctx.dir, ctx.dir, "python3", "-c", script,
                  f"{a}/f", f"{b}/f"), out="done\n2")
    ctx.true(os.path.exists(f"{b}/f"), "the rename inside is seen outside")


@case("case-M19", "a bound file keeps the old content when the host replaces it, a bound directory "
      "shows the new one")
def m19(ctx):
    cfg = ctx.write("d/cfg", "old\n")
    proc = ctx.bw_popen("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--bind", cfg, "/tmp/cfg",
                        "--bind", f"{ctx.dir}/d", "/tmp/dd", "sh", "-c",
                        "cat /tmp/cfg /tmp/dd/cfg; echo ready; read x; cat /tmp/cfg /tmp/dd/cfg",
                        stdin=subprocess.PIPE)
    ctx.eq([proc.stdout.readline() for _ in range(3)], [b"old\n", b"old\n", b"ready\n"], "before")
    ctx.write("d/next", "new\n")
    os.rename(f"{ctx.dir}/d/next", cfg)
    out, _ = proc.communicate(b"go\n", timeout=20)
    ctx.eq((proc.returncode, out), (0, b"old\nnew\n"), "after the host replaced the file")


@case("case-M21", "directories that an option implies are 0755 whatever the caller's umask is")
def m21(ctx):
    f = ctx.write("f", "x\n")
    src = Sources(ctx)

    def umask():
        os.umask(0o077)

    result = ctx.bw("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--bind", f, "/tmp/a/b/f", "--dir",
                    "/tmp/d", "stat", "-c", "%a %n", "/tmp/a", "/tmp/a/b", "/tmp/d", pre=umask)
    if casekit.peer():
        ctx.ok(result)
        ctx.true("755 /tmp/d" in result.out, f"--dir is right in every version\n{result}")
        return
    ctx.ok(result, out="755 /tmp/a\n755 /tmp/a/b\n755 /tmp/d")
    for op in src.ops("/tmp/a/b/x"):
        result = ctx.bw("--ro-bind", "/", "/", "--tmpfs", "/tmp", *op.before, *op.args, "stat",
                        "-c", "%a %n", "/tmp/a", "/tmp/a/b", pre=umask, fds=op.fds)
        # `--perms 0700 --dir` asks for closed parents; nothing else does.
        mode = "700" if op.name == "perms dir" else "755"
        ctx.ok(result, out=f"{mode} /tmp/a\n{mode} /tmp/a/b")
    # On the host's disk as well, and the command still has the caller's umask.
    ctx.ok(ctx.bw("--bind", "/", "/", "--bind", f, f"{ctx.dir}/p/q/f", "sh", "-c", "umask",
                  pre=umask), out="0077")
    ctx.eq((ctx.mode("p"), ctx.mode("p/q")), (0o755, 0o755), "the parents on the host")


@case("case-M21", "another user of the sandbox reaches a program below implied directories",
      only="root")
def m21_other_user(ctx):
    if casekit.peer():
        ctx.skip("the peer makes implied directories 0700")
    result = ctx.bw("--ro-bind", "/", "/", "--tmpfs", "/tmp", "--bind", "/usr/bin/true",
                    "/tmp/a/b/true", "sh", "-c", f"{casekit.setpriv(ctx)} /tmp/a/b/true",
                    pre=lambda: os.umask(0o077))
    ctx.ok(result)


@case("case-M22", "--perms applies to the very next option, or is an error")
def m22(ctx):
    base = ("--ro-bind", "/", "/")
    dest = ctx.mkdir("m")
    marker = ("sh", "-c", "echo started")
    for option in (("--bind", "/tmp", dest), ("--ro-bind", "/tmp", dest), ("--symlink", "x", dest),
                   ("--chmod", "0700", dest), ("--proc", dest), ("--dev", dest),
                   ("--unshare-pid",), ("--setenv", "A", "b")):
        result = ctx.fails(ctx.bw(*base, "--perms", "0700", *option, *marker), rc=1,
                           err=r"^bwrap: --perms must be followed by")
        ctx.eq(result.out, "", "nothing was started")
        result = ctx.fails(ctx.bw(*base, "--size", "4096", *option, *marker), rc=1,
                           err=r"^bwrap: --size must be followed by")
        ctx.eq(result.out, "", "nothing was started")
    ctx.ok(ctx.bw(*base, "--perms", "1777", "--tmpfs", dest, "stat", "-c", "%a", dest), out="1777")
    ctx.ok(ctx.bw(*base, "--perms", "1777", "--tmpfs", dest, "--dir", f"{dest}/n", "stat", "-c",
                  "%a", f"{dest}/n"), out="755")
    if casekit.peer():
        return
    for trailing in (("--perms", "0644"), ("--size", "4096"), ("--perms", "0644", "--")):
        result = ctx.fails(ctx.bw(*base, *trailing, *marker), rc=1,
                           err=r"^bwrap: --(perms|size) must be followed by")
        ctx.eq(result.out, "", "nothing was started")


@case("case-M23", "destinations with dots, doubled slashes, no leading slash, a newline or a blank "
      "give the path that they mean")
def m23_destinations(ctx):
    d = ctx.dir
    for dest, means in ((f"{d}/../{os.path.basename(d)}/z/./q/", f"{d}/z/q"),
                        (f"{d}//a///b", f"{d}/a/b"), (f"{d}/trailing/", f"{d}/trailing"),
                        (f"{d}/two\nlines", f"{d}/two\nlines"), (f"{d}/ blank ", f"{d}/ blank "),
                        (f"{d}/tab\tand\\back", f"{d}/tab\tand\\back"),
                        (f"{d}/-dash", f"{d}/-dash"),
                        (f"{d}/ümläut", f"{d}/ümläut"), (f"{d}/x/../y", f"{d}/y"),
                        (f"{d[1:]}/relative", f"{d}/relative")):
        if casekit.peer() and (dest.endswith("/") or "/../y" in dest):
            continue
        for words in (("--dir", dest), ("--tmpfs", dest), ("--bind", d, dest)):
            if "/x/.." in dest:
                os.makedirs(f"{d}/x", exist_ok=True)
            ctx.ok(ctx.bw("--bind", "/", "/", *words, "test", "-d", means))
            ctx.true(os.path.isdir(means), f"{dest!r} was made on the host")
            os.rmdir(means)


@case("case-M23", "a relative destination is taken from the new root when that is writable")
def m23_relative(ctx):
    for words, means in ((("--dir", "relative"), "/relative"),
                         (("--dir", "./relative/sub"), "/relative/sub"),
                         (("--tmpfs", "mnt"), "/mnt"), (("--bind", ctx.dir, "a/b"), "/a/b"),
                         (("--ro-bind", ".", "here"), "/here")):
        ctx.ok(ctx.bw(*ctx.USR, *words, "test", "-d", means))
    ctx.ok(ctx.bw(*ctx.USR, "--file", "9", "f", "--symlink", "f", "l", "--ro-bind-data", "8", "g",
                  "cat", "/l", "/g", fds={9: "one\n", 8: "two\n"}), out="one\ntwo")
    ctx.eq(sorted(os.listdir(ctx.dir)), [], "nothing was made in the working directory")


@case("case-M23", "an empty source is refused before any namespace is made")
def m23_empty_source(ctx):
    ctx.write("file", "x\n")
    binds = [(o, "", "/x") for o in ("--bind", "--ro-bind", "--dev-bind")]
    if not casekit.peer():
        binds += [("--overlay-src", "", "--tmp-overlay", "/x"),
                  ("--overlay-src", ctx.dir, "--overlay", "", ctx.dir, "/x")]
    for words in binds:
        path = os.path.join(ctx.dir, "status")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        result = ctx.bw("--json-status-fd", "8", "--ro-bind", "/", "/", *words, "sh", "-c",
                        "echo started", fds={8: fd})
        os.close(fd)
        ctx.fails(result, rc=1, err=r"^bwrap: ")
        ctx.eq(result.out, "", "nothing was started")
        if not casekit.peer():
            ctx.eq(os.path.getsize(path), 0, f"no process was made for {words}\n{result}")
            ctx.true("empty" in result.err or "''" in result.err or words[0] in result.err,
                     f"the message says what is wrong\n{result}")
    # The control: a start that goes wrong later has told of its process by then.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    ctx.ok(ctx.bw("--json-status-fd", "8", *ctx.RUN, "true", fds={8: fd}))
    os.close(fd)
    ctx.true(os.path.getsize(path) > 0, "the status tells of the process")
