"""rootfs/build: recipes, what is in the archives, and what a failed build leaves: nothing."""

import os
import signal
import stat

from buildkit import (BUILD, build, content, end_build, ended, inside, members, nothing_left,
                      sha256, start_build, unpack)
from harness import case, descendants
from mirrorkit import NEWEST, OLDER, own_mirror
from storekit import Store
from storekit import case as store_case

LARGEST_MINIMAL = 3 * 1024 * 1024


def recipe(ctx, text, name="mine.recipe"):
    return ctx.write(name, text, 0o644)


# -- what a recipe may say --------------------------------------------------------------------

WRONG = [
    ("", ": it names no base"),
    ("description = x\n", ": it names no base"),
    ("base = gentoo\n", ":1: base is none, dpkg or apt, not 'gentoo'"),
    ("base = apt\nbase = apt\n", ":2: a second base"),
    ("base =\n", ":1: base has no value"),
    ("base apt\n", ":1: 'base apt' is no KEY = VALUE"),
    ("# one\nbase = apt\n\ncolour = red\n", ":4: there is no key 'colour'"),
    ("base = apt\nsuite = ../x\n", ":2: '../x' is no name of a suite"),
    ("base = apt\nlevel = 20\n", ":2: level is zstd's, from 1 to 19, not '20'"),
    ("base = apt\nlevel = 0\n", ":2: level is zstd's, from 1 to 19, not '0'"),
    ("base = none\n", ": base none needs [packages]"),
    ("base = apt\n[package]\n", ":2: there is no section [package]"),
    ("base = apt\n[packages]\nx1\n[packages]\n", ":4: a second [packages]"),
    ("base = apt\n[packages]\nok-1 Bad_Name\n", ":3: 'Bad_Name' is no name of a Debian package"),
    ("base = apt\n[packages]\n--purge\n", ":3: '--purge' is no name of a Debian package"),
    ("base = apt\n[exclude]\nusr/share/doc\n", ":3: 'usr/share/doc' is no absolute pattern"),
    ("base = apt\n[remove]\n/usr/../..\n", ":3: '/usr/../..' is no absolute pattern"),
    ("base = apt\n[remove]\n/\n", ":3: '/' is no absolute pattern"),
    ("base = apt\n[remove]\n/$(reboot)\n", ":3: '/$(reboot)' is no absolute pattern"),
]


@case("recipes-parse", "a recipe with an error is refused with the line that has it", only="user")
def _(ctx):
    ctx.mkdir("out")
    for text, message in WRONG:
        path = recipe(ctx, text)
        ended(ctx, build(ctx, path, "-o", "out/x.tar.zst"), 1, path + message)
    nothing_left(ctx)


@case("recipes-options", "a wrong command line ends with status 2, a recipe not there with 1",
      only="user")
def _(ctx):
    ctx.mkdir("out")
    for words, message in (
            ((), "one RECIPE is wanted"),
            (("a", "b"), "one RECIPE is wanted"),
            (("minimal", "--colour"), "there is no option --colour"),
            (("minimal", "-o"), "-o takes a value"),
            (("minimal", "--mirror="), "--mirror takes a value"),
            (("--dockerfile", "x", "a", "b"), "--dockerfile takes one CONTEXT")):
        ended(ctx, build(ctx, *words), 2, message)
    for mirror in ("nowhere", "two words"):
        ended(ctx, build(ctx, "minimal", "-o", "out/x", "--mirror", mirror), 2,
                "--mirror takes a URI")
    ended(ctx, build(ctx, "gentoo"), 1, "there is no recipe gentoo")
    ended(ctx, build(ctx, "./gentoo.recipe"), 1, "there is no recipe ./gentoo.recipe")
    ended(ctx, build(ctx, "minimal", "-o", "missing/x"), 1, "missing is no folder")
    ended(ctx, build(ctx, "minimal", "-o", "out"), 1, "out is a folder")
    nothing_left(ctx)


@case("recipes-list", "--list prints every recipe with its description", only="user")
def _(ctx):
    listed = ctx.ok(ctx.run(BUILD, "--list")).out.splitlines()
    names = sorted(name[:-len(".recipe")] for name in os.listdir(os.path.dirname(BUILD))
                   if name.endswith(".recipe"))
    ctx.eq([line.split()[0] for line in listed], names, "the recipes listed")
    ctx.true({"minimal", "python", "node"} <= set(names), f"a recipe is missing: {names}")
    for line in listed:
        ctx.true(len(line.split()) > 2, f"no description: {line!r}")


@case("recipes-missing", "a program that is missing is named with its package", only="user")
def _(ctx):
    ctx.mkdir("out")
    for program, said in (("mmdebstrap", "mmdebstrap is not here; install the package mmdebstrap"),
                          ("zstd", "zstd is not here; install the package zstd"),
                          ("newuidmap", "newuidmap is not here; install the package uidmap")):
        folder = ctx.mkdir(f"without-{program}")
        for name in os.listdir("/usr/bin"):
            if name != program:
                os.symlink(f"/usr/bin/{name}", f"{folder}/{name}")
        ended(ctx, build(ctx, "minimal", "-o", "out/x", "--mirror", "nowhere", PATH=folder), 1,
                said)
        # With the program, the build comes as far as the mirror.
        os.symlink(f"/usr/bin/{program}", f"{folder}/{program}")
        ended(ctx, build(ctx, "minimal", "-o", "out/x", "--mirror", "nowhere", PATH=folder), 2,
                "--mirror takes a URI")
    nothing_left(ctx)


# -- what is in an archive --------------------------------------------------------------------

def check_minimal(ctx, archive):
    """The tree of the recipe `minimal`, and that it is of use."""
    found = members(archive)
    kinds = {name for name, one in found.items()
             if not (one.isreg() or one.isdir() or one.issym() or one.islnk())}
    ctx.eq(kinds, set(), "members that are neither files, folders nor links")
    ctx.eq(list(found), sorted(found, key=os.fsencode), "the order of the names")
    for name in ("proc", "sys", "dev", "run", "tmp", "home/sandbox", "var/tmp"):
        ctx.true(found[name].isdir(), f"{name} is no folder")
        ctx.eq([other for other in found if other.startswith(name + "/")], [], f"below {name}")
    for name in ("etc/resolv.conf", "etc/hosts"):
        ctx.true(found[name].isreg() and found[name].size == 0, f"{name} is no empty plain file")
    for name in ("tmp", "var/tmp"):
        ctx.eq(stat.S_IMODE(found[name].mode), 0o1777, name)
    strangers = {(one.name, one.uid, one.gid) for one in found.values()
                 if (one.uid, one.gid) != (0, 0)}
    ctx.eq(strangers, {("./home/sandbox", 1000, 1000)}, "what does not belong to root")
    ctx.true(found["usr/share/doc/busybox-static/copyright"].size > 0, "no copyright file")
    ctx.eq([name for name in found if "/man/" in name or name.startswith("var/lib/")], [],
           "manual pages and data bases")
    accounts = {line.split(":")[0]: line.split(":")[2:4]
                for line in content(archive, "etc/passwd").splitlines()}
    ctx.eq(accounts, {"root": ["0", "0"], "sandbox": ["1000", "1000"],
                      "nobody": ["65534", "65534"]}, "accounts")
    tree = unpack(ctx, archive)
    script = 'id -un; pwd; seq 3 | wc -l; cat /etc/resolv.conf; test -w /tmp && echo works'
    ctx.ok(inside(ctx, tree, "sh", "-c", script), out="sandbox\n/home/sandbox\n3\nworks")
    ctx.fails(inside(ctx, tree, "sh", "-c", "echo x >/etc/hosts"), err="Read-only file system")


@case("recipes-minimal", "two builds at once give the same bytes, a busybox tree that runs",
      timeout=120)
def _(ctx):
    mirror = own_mirror(ctx)
    # Root's build and an ordinary user's differ in nothing either.
    out = ctx.mkdir("out", 0o1777)
    first = start_build(ctx, "minimal", "-o", f"{out}/1", "--mirror", mirror)
    second = start_build(ctx, "minimal", "-o", f"{out}/2", "--mirror", mirror, as_user=ctx.root)
    for proc in (first, second):
        ended(ctx, end_build(ctx, proc), 0, "bytes")
    nothing_left(ctx, "1", "2")
    ctx.eq(sha256("out/1"), sha256("out/2"), "the two archives")
    ctx.true(os.path.getsize("out/1") <= LARGEST_MINIMAL, f"{os.path.getsize('out/1')} bytes")
    found = members("out/1")
    ctx.eq(max(one.mtime for one in found.values()), NEWEST, "the newest time")
    ctx.eq(found["usr/share/doc/busybox-static/copyright"].mtime, OLDER, "the time of a file")
    check_minimal(ctx, "out/1")


@case("recipes-sections", "each section does its part; devices, sockets and pipes stay out",
      timeout=90)
def _(ctx):
    mirror = own_mirror(ctx)
    ctx.mkdir("out")
    path = recipe(ctx, r"""base = none
description = two packages   # and a comment
[remove]
/usr/share/odd/*.gone
/etc/made-too
[packages]
busybox-static odd
[run]
# $VARIABLES and 'quotes' are the shell's, "#" too.
/bin/busybox --install -s /usr/bin
mkdir -p /etc
printf '%s\n' "it is $(id -u) # \\ '" >/etc/made
echo x >/etc/made-too
mkfifo /etc/pipe
mknod /etc/null c 1 3 || true
[exclude]
/usr/share/odd/never-*
""")
    ended(ctx, build(ctx, path, "-o", "out/a", "--mirror", mirror), 0, "bytes")
    nothing_left(ctx, "a")
    found = members("out/a")
    ctx.eq(content("out/a", "etc/made"), "it is 0 # \\ '\n", "what [run] wrote")
    ctx.eq(found["etc/made"].mtime, NEWEST, "the time of what [run] wrote")
    ctx.eq(sorted(name for name in found if name.startswith("usr/share/odd/")),
           ["usr/share/odd/kept"], "what [exclude] and [remove] left")
    ctx.eq(stat.S_IMODE(found["usr/bin/odd-setuid"].mode), 0o4755, "mode of a setuid program")
    ctx.eq(stat.S_IMODE(found["usr/share/odd/kept"].mode), 0o640, "mode of a file")
    for name in ("etc/made-too", "etc/pipe", "etc/null", "nsbox-commands"):
        ctx.true(name not in found, f"{name} is in the archive")


@case("recipes-date", "SOURCE_DATE_EPOCH dates what the build makes", only="user")
def _(ctx):
    ctx.mkdir("out")
    ended(ctx, build(ctx, "minimal", "-o", "out/x", "--mirror", own_mirror(ctx),
                       SOURCE_DATE_EPOCH=str(NEWEST - 1000)), 0)
    ctx.eq({one.mtime for one in members("out/x").values()}, {NEWEST - 1000, OLDER}, "times")


@case("recipes-debian", "minimal from this machine's mirror is at most 3 MiB and runs", only="root",
      timeout=120)
def _(ctx):
    ctx.mkdir("out")
    rc, err = build(ctx, "minimal", "-o", "out/x")
    if rc == 1 and "cannot be reached" in err:
        nothing_left(ctx)
        ctx.skip("the mirror of this machine's apt cannot be reached")
    if rc == 1 and "this host's apt knows no source of Debian" in err:
        ctx.skip("this machine's apt knows no source of Debian's bookworm")
    ctx.eq(rc, 0, err)
    size = os.path.getsize("out/x")
    ctx.true(size <= LARGEST_MINIMAL, f"{size} bytes")
    check_minimal(ctx, "out/x")


# -- failures ---------------------------------------------------------------------------------

def failing(ctx, command):
    return recipe(ctx, f"base = none\n[packages]\nbusybox-static\n[run]\n{command}\n")


@case("recipes-fail", "a build that fails leaves nothing, and an older archive as it was",
      timeout=90)
def _(ctx):
    mirror = own_mirror(ctx)
    ctx.mkdir("out")
    ctx.write("out/x", "the older one")
    path = failing(ctx, "echo so it goes >&2; exit 7")
    ended(ctx, build(ctx, path, "-o", "out/x", "--mirror", mirror), 1, "so it goes",
            "the build of mine failed")
    nothing_left(ctx, "x")
    with open("out/x", encoding="ascii") as file:
        ctx.eq(file.read(), "the older one", "the older archive")
    path = recipe(ctx, "base = none\n[packages]\nbusybox-static no-such-package\n")
    ended(ctx, build(ctx, path, "-o", "out/y", "--mirror", mirror), 1, "no-such-package",
            "the build of mine failed")
    nothing_left(ctx, "x")


@case("recipes-kill", "a build that is ended by a signal leaves nothing, no process either",
      timeout=90)
def _(ctx):
    mirror = own_mirror(ctx)
    ctx.mkdir("out")
    proc = start_build(ctx, failing(ctx, "/bin/busybox sleep 1000"), "-o", "out/x", "--mirror",
                       mirror)
    ctx.until(lambda: any(name in ("sleep", "busybox") for _, name in descendants(proc.pid)), 120,
              "the recipe's command running")
    ctx.true(os.listdir("tmp") and os.listdir("out"), "the build uses neither tmp nor out")
    proc.send_signal(signal.SIGTERM)
    rc, err = end_build(ctx, proc)
    ctx.eq(rc, 143, err)
    ctx.eq(descendants(os.getpid()), [], "processes left")
    nothing_left(ctx)


@case("recipes-unreachable", "a mirror that cannot be reached is named, with what to do",
      only="user")
def _(ctx):
    ctx.mkdir("out")
    # Nobody listens on port 1.
    ended(ctx, build(ctx, "minimal", "-o", "out/x", "--mirror", "http://127.0.0.1:1/debian"), 1,
            "a mirror cannot be reached", "http://127.0.0.1:1/debian", "--mirror")
    nothing_left(ctx)


# -- the large recipes, on demand -------------------------------------------------------------

OWN_PACKAGE = ("mkdir -p p && echo 'from setuptools import setup; setup(name=\"own\", version=\"1\", "
               "py_modules=[\"own\"])' >p/setup.py && echo 'answer = 42' >p/own.py")
SERVED = ("echo served >f && { python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & } && "
          "for i in $(seq 100); do curl -s http://127.0.0.1:8000/f >got && break; sleep 0.1; done && "
          "grep -q served got && wget -qO- http://localhost:8000/f | grep -q served && "
          "python3 -c 'import httpx, requests; url = \"http://127.0.0.1:8000/f\"; "
          "assert requests.get(url).text == httpx.get(url).text == \"served\\n\"' && "
          "! curl -s --max-time 5 http://192.0.2.1/")
PICTURE = ("convert -font DejaVu-Sans label:text t.png && identify t.png && "
           "convert -size 64x48 gradient:red-blue x.png && identify x.png | grep -q 64x48 && "
           "convert x.png -resize 50% y.jpg && identify y.jpg | grep -q 32x24 && "
           "python3 -c 'from PIL import Image; it = Image.open(\"y.jpg\").rotate(90, expand=True); "
           "it.save(\"z.gif\"); assert Image.open(\"z.gif\").size == (24, 32)'")
THREADS = """
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (!isMainThread) { parentPort.postMessage(workerData * 2); return; }
Promise.all([1, 2, 3, 4].map(n => new Promise((done, failed) =>
  new Worker(__filename, { workerData: n }).on('message', done).on('error', failed))))
  .then(all => process.exit(all.join() === '2,4,6,8' ? 0 : 1));
"""
CHECKS = {
    "python": [
        "python3 -c 'import numpy, pandas, httpx, requests, PIL; assert numpy.ones(3).sum() == 3'",
        "python -c 'import pandas; assert pandas.DataFrame({\"a\": [1, 2]}).a.sum() == 3'",
        "python3 -c 'import concurrent.futures as c, sqlite3, ssl; p = c.ProcessPoolExecutor(2); "
        "assert sum(p.map(abs, range(-5, 5))) == 25'",
        OWN_PACKAGE + " && pip install -q --no-build-isolation --no-index --break-system-packages ./p && "
        "python3 -c 'import own; assert own.answer == 42'",
        OWN_PACKAGE + " && python3 -m venv --system-site-packages v && "
        "v/bin/pip install -q --no-build-isolation --no-index ./p && "
        "v/bin/python -c 'import own; assert own.__file__.startswith(\"/home/sandbox/v/\")'",
        PICTURE,
        "echo needle >hay && rg -q needle hay && ! rg -q nail hay",
        SERVED,
        "printf 'int main(void) { return 3; }' >x.c && gcc -O2 -pthread x.c -o x && { ./x; [ $? -eq 3 ]; }",
    ],
    "node": [
        "[ \"$(node -e 'console.log(6 * 7)')\" = 42 ]",
        f"cat >t.js <<'END'\n{THREADS}\nEND\nnode t.js",
        "npm --version",
        "mkdir n && cd n && npm init -y >/dev/null && [ -f package.json ]",
        "mkdir own && cd own && npm init -y >/dev/null && echo 'module.exports = 42' >index.js && mkdir ../user && "
        "cd ../user && npm init -y >/dev/null && npm install --offline --silent ../own && "
        "node -e 'if (require(\"own\") !== 42) process.exit(1)'",
        "node -e 'require(\"http\").createServer((q, a) => a.end(\"served\")).listen(8000)' & "
        "for i in $(seq 100); do curl -s http://127.0.0.1:8000/ >got && break; sleep 0.1; done; grep -q served got",
    ],
}
GIT = ("git init -q r && cd r && git config user.name x && git config user.email x@localhost && "
       "echo 1 >f && git add f && git commit -q -m one && [ \"$(git log --format=%s)\" = one ]")
BOTH = [GIT, "[ \"$(id -un)\" = sandbox ] && [ \"$PWD\" = /home/sandbox ] && ! touch /usr/x 2>/dev/null",
        "dpkg --audit && apt-get --version && bash --version && less --version && ps ax"]
# As root, over an overlay: a package of the test's own whose script gives a folder to another user.
INSTALL = r"""
mkdir -p d/DEBIAN d/usr/bin d/var/own
printf 'Package: own\nVersion: 1\nArchitecture: all\nMaintainer: N <n@localhost>\nDescription: own\n' >d/DEBIAN/control
printf '#!/bin/sh\necho own runs\n' >d/usr/bin/own
printf '#!/bin/sh\nset -e\nchown man:man /var/own\n' >d/DEBIAN/postinst
chmod 755 d/usr/bin/own d/DEBIAN/postinst
dpkg-deb --root-owner-group -b d /srv/own.deb
apt-get install -y /srv/own.deb
[ "$(own)" = "own runs" ] && [ "$(stat -c %U /var/own)" = man ]
apt-get purge -y own
! command -v own
"""


def failed_checks(ctx, store, name):
    """What does not work in a recipe's root, with `nsbox run`."""
    run = (ctx.nsbox, "run", "--rootfs", name)
    lines = [(*run, "--", "bash", "-c", script) for script in [*CHECKS[name], *BOTH]]
    if ctx.root or store.show(name)["owners"] == "subordinate":
        lines.append((*run, "--overlay", "--root", "--", "bash", "-ec", INSTALL))
    results = [ctx.run(*line, env=store.env, timeout=300) for line in lines]
    return [str(result) for result in results if result.rc != 0]


def check_large(name):
    def check(ctx):
        # Root's build and an ordinary user's differ in nothing either.
        out = ctx.mkdir("out", 0o1777)
        builds = [start_build(ctx, name, "-o", f"{out}/{number}", as_user=ctx.root and number == 2)
                  for number in (1, 2)]
        for proc in builds:
            ended(ctx, end_build(ctx, proc, timeout=2400), 0, "bytes")
        ctx.eq(sha256("out/1"), sha256("out/2"), f"two builds of {name}")
        found = members("out/1")
        print(f"# {name}: {os.path.getsize('out/1')} bytes, {len(found)} members", flush=True)
        ctx.eq([one for one in found.values() if one.isdev()], [], "devices and pipes")
        del found
        store = Store(ctx)
        ctx.ok(ctx.run(ctx.nsbox, "rootfs", "import", "--name", name, f"{out}/1", env=store.env, timeout=300))
        ctx.eq(failed_checks(ctx, store, name), [], f"what does not work in {name}")
        ctx.ok(ctx.run(ctx.nsbox, "rootfs", "verify", name, env=store.env, timeout=300), out="")
    return check


if os.environ.get("NSBOX_TEST_RECIPES") == "all":
    for each in CHECKS:
        store_case(f"recipes-large recipes-{each}", f"{each} comes out the same twice, and its programs do what "
                   "they promise", timeout=3600)(check_large(each))
