"""Package managers in sandboxes: apt and dpkg in an overlay, pip with the host's programs."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile

import casekit
from storekit import Store, case

# What apt and dpkg run, and what the case does.
PROGRAMS = """apt-get apt-config dpkg dpkg-deb dpkg-query dpkg-split dpkg-trigger sh tar rm cat chown chmod diff
 ldconfig ls mkdir start-stop-daemon stat""".split()
METHODS = ("copy", "file", "store")
FOLDERS = """etc/apt/apt.conf.d etc/apt/preferences.d etc/apt/sources.list.d etc/dpkg/dpkg.cfg.d home/sandbox root
 srv tmp var/cache/apt/archives/partial var/lib/apt/lists/partial var/lib/dpkg/info var/lib/dpkg/updates
 var/log/apt""".split()
PASSWD = """root:x:0:0:root:/root:/bin/sh
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""


def host_file(tree, path):
    """A copy of a file of the host's, at its place in the tree."""
    place = tree + os.path.realpath(os.path.dirname(path))
    os.makedirs(place, exist_ok=True)
    shutil.copy(os.path.realpath(path), os.path.join(place, os.path.basename(path)))


def program_tree(ctx, programs, others=()):
    """A tree with programs of this machine, their libraries, other files, and some users."""
    tree = ctx.mkdir("tree")
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink("/" + name):
            ctx.mkdir(f"tree/usr/{name}")
            os.symlink(f"usr/{name}", f"{tree}/{name}")
    files = [casekit.tool(ctx, name) for name in programs]
    linked = re.findall(r"(/\S+) \(0x", ctx.ok(ctx.run("ldd", *files)).out)
    for path in {*files, *linked, *others}:
        host_file(tree, path)
    ctx.write("tree/etc/passwd", PASSWD, 0o644)
    ctx.write("tree/etc/group", "root:x:0:\nman:x:12:\nnogroup:x:65534:\n", 0o644)
    return tree


def apt_tree(ctx):
    """A tree with apt and dpkg and an empty data base."""
    tables = [f"/usr/share/dpkg/{name}" for name in os.listdir("/usr/share/dpkg") if name.endswith("table")]
    methods = [f"/usr/lib/apt/methods/{name}" for name in METHODS]
    tree = program_tree(ctx, [*PROGRAMS, *methods], tables)
    for folder in FOLDERS:
        ctx.mkdir(f"tree/{folder}")
    ctx.write("tree/var/lib/dpkg/status")
    return tree


POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
chown man:man /var/cache/own
chown _apt /usr/share/own/apt
chmod 2755 /usr/bin/own
"""


def package(ctx, name, path, files, script=None):
    """A package at this path."""
    for file, (text, mode) in files.items():
        ctx.write(f"{name}/{file}", text, mode)
    ctx.write(f"{name}/DEBIAN/control", f"Package: {name}\nVersion: 1.0\nArchitecture: all\n"
              "Maintainer: Nobody <nobody@localhost>\nDescription: a package of the tests\n", 0o644)
    if script:
        ctx.write(f"{name}/DEBIAN/postinst", script, 0o755)
    for folder, _, _ in os.walk(os.path.join(ctx.dir, name)):
        os.chmod(folder, 0o755)
    ctx.ok(ctx.run("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", os.path.join(ctx.dir, name), path))


LOOK = """own
stat -c '%u:%g %a %n' /var/cache/own /usr/share/own /usr/share/own/apt /usr/bin/own
dpkg-query -W -f '${Package} ${Status}\\n'
"""
SEEN = """own runs
6:12 755 /var/cache/own
0:0 755 /usr/share/own
42:0 644 /usr/share/own/apt
0:0 2755 /usr/bin/own
"""


@case("RUN-apt", "apt-get installs a package whose script gives files to other users, in an overlay that is "
      "kept and in one that is lost, and a commit has their owners", timeout=120)
def apt(ctx):
    for name in ("apt-get", "dpkg-deb", "dpkg-scanpackages"):
        casekit.tool(ctx, name)
    store = Store(ctx)
    tree = apt_tree(ctx)
    package(ctx, "own", f"{tree}/srv/own.deb",
            {"usr/bin/own": ("#!/bin/sh\necho own runs\n", 0o755), "usr/share/own/apt": ("apt\n", 0o644),
             "var/cache/own/file": ("file\n", 0o644)}, POSTINST)
    # One more comes from a repository: that is read as the user _apt.
    ctx.mkdir("tree/srv/packages")
    package(ctx, "other", f"{tree}/srv/packages/other.deb", {"usr/share/other": ("other\n", 0o644)})
    ctx.write("tree/srv/packages/Packages",
              ctx.ok(ctx.run("dpkg-scanpackages", ".", cwd=f"{tree}/srv/packages")).out, 0o644)
    ctx.write("tree/etc/apt/sources.list", "deb [trusted=yes] copy:/srv/packages ./\n", 0o644)
    store.digest("import", "--name", "apt", tree)
    owners = store.show("apt")["owners"]
    if not ctx.root and owners != "subordinate":
        ctx.skip("this user has no subordinate ids")
    changes = os.path.join(ctx.dir, "changes")

    def inside(*words, kept=False):
        it = ctx.run(ctx.nsbox, "run", "--root", "--rootfs", "apt",
                     f"--overlay={changes}" if kept else "--overlay", "--", *words, env=store.env, timeout=60)
        ctx.ok(it)
        for word in ("unsandboxed", "Permission denied", "not permitted"):
            ctx.true(word not in it.out + it.err, f"nothing was done without: {it}")
        return it

    ctx.fails(ctx.run(ctx.nsbox, "run", "--root", "--rootfs", "apt", "--overlay", "--", "own", env=store.env),
              rc=127)
    inside("apt-get", "install", "-y", "/srv/own.deb", kept=True)
    ctx.eq(inside("sh", "-ec", LOOK, kept=True).out, SEEN + "own install ok installed\n", "in the next sandbox")
    it = inside("sh", "-ec", "apt-get update; apt-get install -y other own=1.0 /srv/own.deb >&2; " + LOOK)
    ctx.true(it.out.endswith(SEEN + "other install ok installed\nown install ok installed\n"), f"at once: {it}")
    store.digest("commit", changes, "--name", "made")
    members = store.members("made")
    ctx.eq([(m.uid, m.gid, m.mode & 0o7777) for m in
            (members[path][0] for path in ("var/cache/own", "usr/share/own/apt", "usr/bin/own"))],
           [(6, 12, 0o755), (42, 0, 0o644), (0, 0, 0o2755)], "owners and modes")
    ctx.ok(store.run("verify", "made"), out="")
    ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", "made", "--", "own", env=store.env), out="own runs")


WHEEL = {"one-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: one\nVersion: 1\n",
         "one-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: own\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
         "one-1.dist-info/RECORD": "one.py,,\none-1.dist-info/METADATA,,\none-1.dist-info/WHEEL,,\n"
                                   "one-1.dist-info/RECORD,,\n",
         "one.py": "one = 1\n"}
SETUP = "from setuptools import setup\nsetup(name='two', version='2', py_modules=['two'])\n"
PIP = "/usr/bin/python3 -m pip install -q --no-index --no-build-isolation --target t ./one-1-py3-none-any.whl ./source >&2"
USE = "PYTHONPATH=t /usr/bin/python3 -c 'import one, two; print(one.one, two.two)'"


@case("RUN-pip", "pip installs a wheel and a folder with a setup.py into a folder of the caller's")
def pip(ctx):
    if subprocess.run(["/usr/bin/python3", "-c", "import setuptools, pip"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        ctx.skip("the host's python3 has no pip and no setuptools")
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in WHEEL.items():
            file.writestr(name, text)
    ctx.write("project/one-1-py3-none-any.whl", wheel.getvalue())
    ctx.write("project/source/setup.py", SETUP)
    ctx.write("project/source/two.py", "two = 2\n")
    project = os.path.join(ctx.dir, "project")
    words = (ctx.nsbox, "run", "--rw", ".", "--shell")
    ctx.fails(ctx.run(*words, USE, cwd=project), err="ModuleNotFoundError|ImportError")
    ctx.ok(ctx.run(*words, f"{PIP} && {USE}", cwd=project, timeout=60), out="1 2")
    ctx.eq(os.lstat(f"{project}/t/one.py").st_uid, ctx.uid, "it is the caller's")


LOOK_AT_DATA = """id -u; id -g; stat -c '%u:%g %a %n' /data /data/shut; cat /data/shut; echo new >/data/new; echo home >~/file
stat -c '%u:%g' /data/new ~/file; touch /etc/x 2>/dev/null || echo refused
"""
SEEN_DATA = """6
12
6:12 700 /data
6:12 600 /data/shut
shut
6:12
6:12
refused
"""


def of_root(member):
    member.uid = member.gid = 0
    return member


def user_image(ctx, tree, user):
    """An archive as docker save writes it, of a tree of this machine's programs and a folder of user 6."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(tree, ".", filter=of_root)
        for name, kind, mode, data in (("data", tarfile.DIRTYPE, 0o700, b""), ("data/shut", tarfile.REGTYPE, 0o600, b"shut\n")):
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid, member.gid, member.size = kind, mode, 6, 12, len(data)
            tar.addfile(member, io.BytesIO(data))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
                         "config": {"User": user, "Cmd": ["id", "-u"]}}).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    files = {f"{digest}/layer.tar": layer.getvalue(), name: config, "manifest.json": json.dumps(
        [{"Config": name, "RepoTags": ["a:b"], "Layers": [f"{digest}/layer.tar"]}]).encode()}
    path = os.path.join(ctx.dir, "image.tar")
    with tarfile.open(path, "w") as tar:
        for file, data in files.items():
            member = tarfile.TarInfo(file)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@case("RUN-image-user", "the command is the image's user and owns that user's files; with a folder of the caller's it is the "
      "caller, to whom what it writes there belongs")
def image_user(ctx):
    store = Store(ctx)
    tree = program_tree(ctx, ("sh", "id", "stat", "cat", "touch"))
    store.digest("import", "--name", "image", user_image(ctx, tree, "man"))
    if not ctx.root and store.show("image")["owners"] != "subordinate":
        ctx.skip("this user has no subordinate ids")
    folder = ctx.mkdir("folder")
    changes = os.path.join(ctx.dir, "changes")

    def inside(*words, script=LOOK_AT_DATA):
        return ctx.run(ctx.nsbox, "run", "--rootfs", "image", *words, "--", "sh", "-c", script, env=store.env)

    ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", "image", env=store.env), out="6")
    if ctx.root:
        # Root's command is root outside, and no file of the image but those of root's is that user's.
        ctx.ok(inside(script="id -u; stat -c %u /data"), out="6\n65534")
    else:
        ctx.eq(inside("--overlay").out, SEEN_DATA, "in an overlay that is lost")
        ctx.eq(inside(f"--overlay={changes}").out, SEEN_DATA, "in one that is kept")
        ctx.ok(inside(f"--overlay={changes}", script="cat /data/new"), out="new")
        store.digest("commit", "--name", "made", changes)
        member = store.members("made")["data/new"][0]
        ctx.eq((member.uid, member.gid), (6, 12), "what is committed")
        ctx.ok(inside("--uid", "6", "--gid", "12", script="id -u; stat -c %u /data"), out="6\n65534")
    ctx.ok(inside("--rw", folder, script=f"id -u; echo x >{folder}/made; stat -c %u {folder}/made /data"), out="6\n6\n65534")
    ctx.eq(os.lstat(f"{folder}/made").st_uid, ctx.uid, "on the host")
