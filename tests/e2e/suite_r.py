"""Root filesystems: the store, what can be imported, and archives that mean harm."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import random
import signal
import stat
import subprocess
import tarfile
import time

import casekit
from storekit import case, subordinate_maps

VICTIM = "nobody may write here\n"


class Store:
    """A store of the case's own, and the program that works on it."""

    def __init__(self, ctx, name="store"):
        self.ctx = ctx
        self.path = os.path.join(ctx.dir, name)

    def words(self, *words):
        return (self.ctx.nsbox, "rootfs", "--store", self.path, *words)

    def run(self, *words, **kw):
        return self.ctx.run(*self.words(*words), timeout=60, **kw)

    def add(self, source, *words, **kw):
        """Imports; the digest."""
        result = self.ctx.ok(self.run("import", *words, source, **kw))
        digest = result.out.strip()
        self.ctx.true(len(digest) == 64, f"a digest: {result}")
        return digest

    def refuses(self, source, err, *words, **kw):
        """The import fails in one line that matches, and nothing of it is in the store."""
        before = self.roots()
        result = self.ctx.fails(self.run("import", *words, source, **kw), rc=1, err=err)
        self.ctx.eq(result.err.count("\n"), 1, f"one line: {result}")
        self.ctx.eq(result.out, "", "nothing is printed")
        self.ctx.eq(self.roots(), before, "nothing is stored")
        self.ctx.eq(self.names("staging"), [], "nothing is left")

    def names(self, part):
        path = os.path.join(self.path, part)
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def roots(self):
        return self.names("roots")

    def root(self, digest, *parts):
        return os.path.join(self.path, "roots", digest, *parts)

    def manifest(self, digest):
        with open(self.root(digest, "manifest"), encoding="ascii") as f:
            return f.read().splitlines()[1:]

    def show(self, name):
        return json.loads(self.ctx.ok(self.run("show", "--json", name)).out)

    def paths(self, digest):
        """What the manifest has, without the root: path -> the line's words."""
        lines = [line.split(" ") for line in self.manifest(digest) if not line.startswith("x ")]
        at = {"f": 7, "c": 6, "b": 6, "h": 1}
        return {w[at.get(w[0], 5)]: w for w in lines if w[at.get(w[0], 5)] != "."}

    def read(self, digest, path):
        """A file's content, through an export: it may belong to someone else on disk."""
        with tarfile.open(fileobj=io.BytesIO(self.export(digest))) as tar:
            return tar.extractfile("./" + path).read()

    def export(self, name, *words):
        proc = subprocess.run(self.words("export", *words, name), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60, check=False)
        self.ctx.eq((proc.returncode, proc.stderr), (0, b""), "export")
        return proc.stdout


def has_subordinate_ids(ctx):
    """Whether an import here can give files to subordinate ids."""
    if ctx.root:
        return False
    import pwd
    name = pwd.getpwuid(ctx.uid).pw_name
    for path in ("/etc/subuid", "/etc/subgid"):
        with open(path, encoding="ascii") as f:
            fields = [line.strip().split(":") for line in f]
        if not any(w[0] in (name, str(ctx.uid)) and int(w[2]) >= 65536
                   for w in fields if len(w) == 3):
            return False
    return all(os.path.exists("/usr/bin/" + tool) for tool in ("newuidmap", "newgidmap"))


# -- archives ----------------------------------------------------------------------------------

def member(name, kind=tarfile.REGTYPE, data=b"", target="", mode=0o644, **kw):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, target, mode, len(data)
    info.mtime = 1000000000
    for key, value in kw.items():
        setattr(info, key, value)
    return info, data


def folder(name, mode=0o755, **kw):
    return member(name, tarfile.DIRTYPE, mode=mode, **kw)


def link(name, target):
    return member(name, tarfile.SYMTYPE, target=target)


def tar_bytes(members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def archive(ctx, name, *members, **kw):
    return ctx.write(name, tar_bytes(members, **kw))


def small_tree(ctx, name="tree"):
    """A tree with one of each kind; its files' content by path."""
    top = ctx.mkdir(name)
    os.chmod(top, 0o755)
    files = {"etc/one": b"one\n", "usr/bin/prog": b"#!/bin/sh\n" * 1000, "empty": b"",
             "big": os.urandom(300000)}
    for path, data in files.items():
        ctx.write(os.path.join(name, path), data, 0o755 if "prog" in path else 0o640)
    os.symlink("usr/bin", os.path.join(top, "bin"))
    os.link(os.path.join(top, "etc/one"), os.path.join(top, "etc/two"))
    os.mkfifo(os.path.join(top, "pipe"), 0o600)
    os.chmod(os.path.join(top, "etc"), 0o1750)
    return top, files


def check_small_tree(ctx, store, digest, files):
    paths = store.paths(digest)
    ctx.eq(sorted(paths), sorted([*files, "bin", "etc", "etc/two", "pipe", "usr", "usr/bin"]),
           "the manifest's paths")
    for path, data in files.items():
        ctx.eq(paths[path][6], hashlib.sha256(data).hexdigest(), path)
        ctx.eq(paths[path][1], "0755" if "prog" in path else "0640", f"mode of {path}")
    ctx.eq(paths["bin"][-1], "usr/bin", "the symbolic link")
    ctx.eq(paths["etc/two"], ["h", "etc/two", "etc/one"], "the hard link")
    ctx.eq(paths["etc"][1], "1750", "the folder's mode")
    ctx.eq(paths["pipe"][0], "p", "the FIFO")
    ctx.ok(store.run("verify", digest), out="")


# -- forms of input ----------------------------------------------------------------------------

@case("R-forms", "archives by GNU tar, plain and by each compressor, give the tree that they were "
      "made of, whatever they are called")
def forms_gnu(ctx):
    store = Store(ctx)
    top, files = small_tree(ctx)
    manifests = set()
    for form in ("gnu", "pax", "ustar"):
        path = os.path.join(ctx.dir, form)
        ctx.ok(ctx.run("tar", "-C", top, f"--format={form}", "-cf", path, "."))
        digest = store.add(path)
        check_small_tree(ctx, store, digest, files)
    plain = os.path.join(ctx.dir, "gnu")
    with open(plain, "rb") as f:
        ctx.eq(store.add(plain), hashlib.sha256(f.read()).hexdigest(), "the digest is the file's")
    for word in ("gzip", "bzip2", "xz", "zstd"):
        casekit.tool(ctx, word)
        with open(plain, "rb") as f, open(os.path.join(ctx.dir, "packed"), "wb") as out:
            ctx.eq(subprocess.run([word, "-c"], stdin=f, stdout=out, check=False).returncode, 0,
                   word)
        digest = store.add("packed", "--name", word)
        manifests.add("\n".join(store.manifest(digest)))
        ctx.eq(store.show(word)["digest"], digest, "by its name")
    ctx.eq(len(manifests), 1, "all the same")
    with open("packed", "rb") as f:
        piped = store.add("-", stdin=f)
    ctx.eq(store.manifest(piped), store.manifest(digest), "from a pipe")
    ctx.eq(store.show(piped)["digest-of"], "manifest", "what a pipe's digest is of")


def form_of(ctx, *words):
    casekit.tool(ctx, words[0])
    store = Store(ctx)
    top, files = small_tree(ctx)
    path = os.path.join(ctx.dir, words[0])
    ctx.ok(ctx.run(*words, "-C", top, "-cf", path, "."))
    check_small_tree(ctx, store, store.add(path), files)


@case("R-forms", "an archive by busybox tar gives the tree that it was made of")
def form_busybox(ctx):
    form_of(ctx, "busybox", "tar")


@case("R-forms", "an archive by bsdtar gives the tree that it was made of")
def form_bsdtar(ctx):
    form_of(ctx, "bsdtar")


@case("R-forms", "a folder gives the same tree as an archive of it, and a later import of it the "
      "same digest")
def forms_folder(ctx):
    store = Store(ctx)
    top, files = small_tree(ctx)
    digest = store.add(top, "--name", "folder")
    check_small_tree(ctx, store, digest, files)
    ctx.eq(store.add(top), digest, "again")
    with open(os.path.join(top, "etc/one"), "a", encoding="ascii") as f:
        f.write("more\n")
    ctx.true(store.add(top) != digest, "changed, it has another")


@case("R-forms", "what is no archive, is empty, is cut off or damaged is refused in one line, and "
      "nothing is stored")
def forms_bad(ctx):
    store = Store(ctx)
    good = tar_bytes([folder("a"), member("a/f", data=os.urandom(100000)), member("z", data=b"z")])
    ctx.true(store.add(ctx.write("good", good)), "positive control")
    store.refuses(ctx.write("empty"), "is empty")
    store.refuses(ctx.write("text", "this is no archive\n" * 100), "no archive that nsbox knows")
    store.refuses(ctx.write("zeros", bytes(10240)), "nothing in it")
    for size in (700, 50000, 100000):
        store.refuses(ctx.write("cut", good[:size]), "damaged or cut off")
    # Between two members nothing but the missing end tells.
    store.refuses(ctx.write("cut", good[:512]), "cut off")
    for word in ("gzip", "zstd", "xz", "bzip2"):
        packed = subprocess.run([word, "-c"], input=good, stdout=subprocess.PIPE,
                                check=True).stdout
        ctx.true(store.add(ctx.write("whole", packed)), word)
        store.refuses(ctx.write("cut", packed[:len(packed) // 2]), "damaged or cut off")
    broken = bytearray(good)
    broken[148] ^= 1
    store.refuses(ctx.write("broken", bytes(broken)), "damaged|no archive")
    store.refuses("nowhere", "No such file")


# -- hostile archives --------------------------------------------------------------------------

@case("R02 R-hostile", "names with .. or a slash in front are refused by name with the fix, and "
      "nothing outside changes")
def hostile_names(ctx):
    store = Store(ctx)
    outside = ctx.mkdir("outside")
    ctx.write("outside/victim", VICTIM)
    before = casekit.snapshot(outside)
    good = (folder("a"), member("a/b", data=b"x"))
    ctx.true(store.add(archive(ctx, "good", *good)), "positive control")
    for name in ("../outside/x", "a/../../outside/x", "a/..", "..", outside + "/x", "/x"):
        store.refuses(archive(ctx, "bad", *good, member(name, data=b"x")),
                      r"the member \"[^\"]*\": its name .*hint: make the archive with names "
                      "relative to the root")
    casekit.unchanged(ctx, outside, before, "names")


@case("R02 R-hostile", "symbolic links never lead a member out of the tree")
def hostile_links(ctx):
    store = Store(ctx)
    outside = ctx.mkdir("outside")
    ctx.write("outside/victim", VICTIM)
    before = casekit.snapshot(outside)
    # Followed inside the root only: there the folder is missing.
    for target in (outside, "../../../../../../../../../.." + outside):
        store.refuses(archive(ctx, "bad", link("esc", target), member("esc/x", data=b"x")),
                      "leads nowhere")
        store.refuses(archive(ctx, "bad", link("esc", target + "/victim"),
                              member("esc/x", data=b"x")), "leads nowhere")
    digest = store.add(archive(ctx, "ok", link("esc", outside + "/victim"),
                               member("esc", data=b"mine")))
    ctx.eq(store.read(digest, "esc"), b"mine", "a link at the end is replaced, not followed")
    digest = store.add(archive(ctx, "usr", folder("usr"), folder("usr/bin"), link("bin", "/usr/bin"),
                               member("bin/x", data=b"merged")))
    ctx.eq(store.read(digest, "usr/bin/x"), b"merged", "a link inside is followed")
    store.refuses(archive(ctx, "loop", link("l", "l"), member("l/x")), "circle")
    store.refuses(archive(ctx, "file", member("f", data=b"x"), member("f/x")), "no folder")
    casekit.unchanged(ctx, outside, before, "links")


@case("R02 R-hostile", "hard links to what is not in the tree are refused, those to what is are "
      "made")
def hostile_hard_links(ctx):
    store = Store(ctx)
    ctx.write("victim", VICTIM)
    os.chmod("victim", 0o600)
    victim = os.path.join(ctx.dir, "victim")
    digest = store.add(archive(ctx, "good", member("f", data=b"x"),
                               member("h", tarfile.LNKTYPE, target="f")))
    ctx.eq(store.paths(digest)["h"], ["h", "h", "f"], "positive control")
    for target in (victim, "../../../../victim", "missing", "/etc/hostname", "."):
        store.refuses(archive(ctx, "bad", member("f", data=b"x"),
                              member("h", tarfile.LNKTYPE, target=target)),
                      "hard link to .*not in the tree")
    store.refuses(archive(ctx, "bad", link("s", ctx.dir),
                          member("h", tarfile.LNKTYPE, target="s/victim")), "not in the tree")
    # One to a link is a second name of the link; writing to that must not reach its target.
    store.add(archive(ctx, "last", link("s", victim), member("h", tarfile.LNKTYPE, target="s"),
                      member("h", data=b"harm")))
    with open(victim, encoding="ascii") as f:
        ctx.eq(f.read(), VICTIM, "the file outside")


@case("R01", "device nodes are left out with one line, set-id bits and owners are recorded, and "
      "the import succeeds")
def devices_and_owners(ctx):
    store = Store(ctx)
    members = [folder("dev")]
    for minor in range(9):
        members.append(member(f"dev/d{minor}", tarfile.CHRTYPE if minor else tarfile.BLKTYPE,
                              mode=0o666, devmajor=1, devminor=minor))
    members += [member("su", data=b"su", mode=0o4755, uid=0, gid=0),
                member("his", data=b"h", mode=0o644, uid=1000, gid=1000),
                member("far", data=b"h", mode=0o644, uid=70000, gid=5)]
    path = archive(ctx, "dev.tar", *members)
    result = ctx.ok(store.run("import", path))
    digest = result.out.strip()
    ctx.eq(result.err.count("9 device nodes left out"), 1, f"one line: {result}")
    paths = store.paths(digest)
    ctx.eq(paths["dev/d3"][0:2] + paths["dev/d3"][5:], ["c", "0666", "1:3", "dev/d3"], "a device")
    ctx.eq(paths["su"][1:4], ["4755", "0", "0"], "set-user-id")
    ctx.eq(paths["his"][2:4], ["1000", "1000"], "an owner")
    ctx.eq(paths["far"][2:4], ["70000", "5"], "a far owner")
    status = os.lstat(store.root(digest, "tree", "su"))
    ctx.eq(stat.S_IMODE(status.st_mode), 0o755, "no set-user-id bit on disk")
    ctx.eq(os.listdir(store.root(digest, "tree", "dev")), [], "no device on disk")
    owners = store.show(digest)["owners"]
    his = os.lstat(store.root(digest, "tree", "his"))
    if ctx.root:
        ctx.eq((owners, his.st_uid, his.st_gid), ("as-they-are", 1000, 1000), "root's import")
    elif has_subordinate_ids(ctx):
        ids = store.show(digest)["subordinate"]
        ctx.eq((owners, his.st_uid, his.st_gid),
               ("subordinate", ids["first-uid"] + 1000, ids["first-gid"] + 1000), "subordinate")
        ctx.eq(status.st_uid, ids["first-uid"], "root's file")
        other = Store(ctx, "recorded")
        other.add(path, "--owners", "recorded")
        his = os.lstat(other.root(digest, "tree", "his"))
        ctx.eq((other.show(digest)["owners"], his.st_uid, his.st_gid),
               ("recorded", ctx.uid, ctx.gid), "recorded")
        ctx.eq(other.manifest(digest), store.manifest(digest), "the manifest is the same")
    else:
        ctx.eq((owners, his.st_uid, his.st_gid), ("recorded", ctx.uid, ctx.gid), "recorded")
    with tarfile.open(fileobj=io.BytesIO(store.export(digest))) as tar:
        ctx.eq((tar.getmember("./su").mode, tar.getmember("./dev/d3").devminor,
                tar.getmember("./his").uid), (0o4755, 3, 1000), "export has them again")
    ctx.ok(store.run("verify"), out="")
    ctx.ok(store.run("rm", digest))
    ctx.eq((store.roots(), store.names("staging")), ([], []), "removed")


@case("R01", "where subordinate ids cannot be used after all, owners are recorded, with a line that "
      "says why; --owners subordinate is refused", only="user")
def no_subordinate_ids(ctx):
    if not has_subordinate_ids(ctx):
        ctx.skip("this user has no subordinate ids")
    store = Store(ctx)
    path = archive(ctx, "a", member("f", data=b"f", uid=5, gid=6))
    ctx.write("fake/newuidmap", "#!/bin/sh\nexit 1\n", 0o755)
    env = dict(os.environ, PATH=os.path.join(ctx.dir, "fake") + ":" + os.environ["PATH"])
    store.refuses(path, "newuidmap: it cannot map.*--owners recorded", "--owners", "subordinate",
                  env=env)
    result = ctx.ok(store.run("import", path, env=env))
    digest = result.out.strip()
    ctx.true("owners are in the manifest only" in result.err, f"a line: {result}")
    ctx.eq((store.show(digest)["owners"], store.paths(digest)["f"][2:4]), ("recorded", ["5", "6"]),
           "recorded")
    ctx.fails(store.run("import", "--owners", "subordinate", path), rc=1,
              err="it is in the store with --owners recorded")
    ctx.ok(store.run("rm", digest))
    store.add(path, "--owners", "subordinate")
    ctx.eq(store.show(digest)["owners"], "subordinate", "positive control")


@case("R-hostile", "without namespaces the paths alone keep an archive inside, and a line says so")
def one_wall(ctx):
    store = Store(ctx)
    outside = ctx.mkdir("outside")
    ctx.write("outside/victim", VICTIM)
    before = casekit.snapshot(outside)
    # In a user namespace of the case's own, where there can be no more of them.
    limits = ("for n in user mnt ipc uts; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; "
              'exec "$@"')
    inside = (casekit.tool(ctx, "unshare"), "--user", "--map-root-user", "sh", "-ec", limits, "sh")

    def imported(*members):
        path = archive(ctx, "a", *members)
        return ctx.run(*inside, *store.words("import", path), timeout=60)

    result = ctx.ok(imported(folder("usr"), link("bin", "/usr"), member("bin/x", data=b"in"),
                             folder("shut", mode=0), member("shut/f")))
    ctx.true("without namespaces" in result.err, f"a line: {result}")
    digest = result.out.strip()
    ctx.eq(sorted(store.paths(digest)), ["bin", "shut", "shut/f", "usr", "usr/x"], "paths")
    ctx.fails(imported(link("esc", outside), member("esc/x", data=b"x")), err="leads nowhere")
    ctx.fails(imported(link("esc", "../../../../../../../.." + outside), member("esc/x")),
              err="leads nowhere")
    ctx.fails(imported(link("esc", outside), member("h", tarfile.LNKTYPE, target="esc/victim")),
              err="not in the tree")
    casekit.unchanged(ctx, outside, before, "one wall")


@case("R-hostile", "strange names come through, those that no file can have are refused, folders "
      "without permissions can be filled, verified and removed")
def strange_names(ctx):
    store = Store(ctx)
    names = ["new\nline", "bl ank", "back\\slash", "\udcff\udcfe", "gr\u00fcn", "x" * 255,
             "/".join(["d" * 200] * 15), "\x1b[31m"]
    digest = store.add(archive(ctx, "odd", *[member(n, data=b"1") for n in names]))
    with tarfile.open(fileobj=io.BytesIO(store.export(digest)), errors="surrogateescape") as tar:
        got = {n[2:] for n in tar.getnames()}
    for name in names:
        ctx.true(name in got, f"{name!r} is in {sorted(got)!r}"[:3000])
    ctx.ok(store.run("verify"), out="")
    store.refuses(archive(ctx, "long", member("x" * 256)), "longer than 255")
    store.refuses(archive(ctx, "far", member("/".join(["d" * 200] * 25))), "longer than 4095")
    store.refuses(archive(ctx, "target", link("l", "t" * 5000)), "too long|damaged")
    digest = store.add(archive(ctx, "shut", folder("shut", mode=0), member("shut/f", data=b"in"),
                               folder("shut/below", mode=0), member("shut/below/g", mode=0),
                               link("long", "t" * 4000)))
    ctx.eq(stat.S_IMODE(os.lstat(store.root(digest, "tree", "shut")).st_mode), 0, "its mode")
    ctx.ok(store.run("verify"), out="")
    ctx.eq(store.read(digest, "shut/f"), b"in", "what is in it")
    ctx.ok(store.run("rm", *store.roots()))
    ctx.eq((store.roots(), store.names("staging")), ([], []), "removed")


@case("R-hostile", "later members replace earlier ones of any kind")
def replaced(ctx):
    store = Store(ctx)
    digest = store.add(archive(
        ctx, "twice", member("a", data=b"first"), member("a", data=b"second"),
        folder("d"), member("d/x", data=b"x"), member("d", data=b"file now"),
        link("l", "a"), folder("l"), member("l/in", data=b"in"),
        member("dev", tarfile.CHRTYPE, devmajor=1, devminor=3), member("dev", data=b"no device"),
        member("deep/er/f", data=b"parents are made")))
    paths = store.paths(digest)
    ctx.eq(sorted(paths), ["a", "d", "deep", "deep/er", "deep/er/f", "dev", "l", "l/in"], "paths")
    for path, data in (("a", b"second"), ("d", b"file now"), ("l/in", b"in"),
                       ("dev", b"no device")):
        ctx.eq(store.read(digest, path), data, path)


@case("R-hostile", "a size over --max-size is refused, whether it is claimed or compressed; below "
      "it goes through, holes too")
def bombs(ctx):
    store = Store(ctx)
    data = bytes(3 << 20)
    bomb = subprocess.run(["zstd", "-c"], input=tar_bytes([member("z", data=data)]),
                          stdout=subprocess.PIPE, check=True).stdout
    path = ctx.write("bomb", bomb)
    store.refuses(path, "larger than .*hint: --max-size", "--max-size", "2M")
    ctx.eq(store.paths(store.add(path, "--max-size", "4M"))["z"][5], str(len(data)), "allowed")
    info, _ = member("claim")
    info.size = 1 << 45
    store.refuses(ctx.write("claim", info.tobuf(format=tarfile.GNU_FORMAT) + bytes(1024)),
                  "larger than")
    many = archive(ctx, "many", *[member(f"f{i}", data=bytes(1000)) for i in range(3000)])
    store.refuses(many, "larger than", "--max-size", "2M")
    ctx.true(store.add(many, "--max-size", "3M"), "many, allowed")
    hole = os.path.join(ctx.mkdir("holes"), "hole")
    with open(hole, "wb") as f:
        f.truncate(8 << 20)
        f.seek(4 << 20)
        f.write(b"middle")
    ctx.ok(ctx.run("tar", "-C", "holes", "-S", "-cf", "sparse", "."))
    ctx.true(os.path.getsize("sparse") < 1 << 20, "the archive is sparse")
    with open(hole, "rb") as f:
        wanted = hashlib.sha256(f.read()).hexdigest()
    for source in ("sparse", "holes"):
        digest = store.add(source)
        ctx.eq(store.paths(digest)["hole"][5:7], [str(8 << 20), wanted], source)
        ctx.true(os.lstat(store.root(digest, "tree", "hole")).st_blocks < 4096, "holes stay holes")
    ctx.ok(store.run("verify"), out="")


@case("R-hostile", "extended attributes: a user's are kept, others are in the manifest with a line")
def attributes(ctx):
    store = Store(ctx)
    pax = {"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.security.capability": "caps"}
    result = ctx.ok(store.run("import", archive(ctx, "x", member("f", data=b"f", pax_headers=pax))))
    digest = result.out.strip()
    ctx.true("x user.note " + b"kept".hex() in store.manifest(digest), "in the manifest")
    ctx.true("x security.capability " + b"caps".hex() in store.manifest(digest), "recorded")
    ctx.true("in the manifest only" in result.err and "security.capability" in result.err, "a line")
    path = store.root(digest, "tree", "f")
    if "user.note" not in result.err:
        ctx.eq(os.getxattr(path, "user.note"), b"kept", "on disk")
    ctx.true("security.capability" not in os.listxattr(path), "not on disk")


# -- images ------------------------------------------------------------------------------------

def sha(data):
    return hashlib.sha256(data).hexdigest()


CONFIG = {"Env": ["PATH=/usr/bin", "A=b c"], "Entrypoint": ["/entry"], "Cmd": ["one", "two"],
          "User": "1000:100", "WorkingDir": "/work"}

LAYERS = (
    [folder("d"), member("d/old", data=b"old"), member("d/gone", data=b"gone"), folder("o"),
     member("o/hidden", data=b"h"), folder("o/sub"), member("o/sub/x", data=b"x"),
     member("keep", data=b"keep")],
    [folder("d"), member("d/.wh.gone"), member("d/old", data=b"new"), folder("o"),
     member("o/fresh", data=b"fresh"), member("o/.wh..wh..opq"), member("o/last", data=b"last")],
)
RESULT = ["d", "d/old", "keep", "o", "o/fresh", "o/last"]


class Image:
    """The parts of an image that the test writes."""

    def __init__(self, layers, machine="amd64", compress=False, config=None):
        plain = [tar_bytes(layer) for layer in layers]
        self.layers = [subprocess.run(["gzip", "-c"], input=p, stdout=subprocess.PIPE,
                                      check=True).stdout if compress else p for p in plain]
        self.config = json.dumps({"architecture": machine, "os": "linux",
                                  "config": CONFIG if config is None else config,
                                  "rootfs": {"type": "layers", "diff_ids":
                                             ["sha256:" + sha(p) for p in plain]}}).encode()

    def manifest(self):
        def descriptor(data):
            return {"mediaType": "application/octet-stream", "digest": "sha256:" + sha(data),
                    "size": len(data)}
        return json.dumps({"schemaVersion": 2, "config": descriptor(self.config),
                           "layers": [descriptor(x) for x in self.layers]}).encode()

    def blobs(self):
        return {"blobs/sha256/" + sha(x): x for x in [self.config, self.manifest(), *self.layers]}

    def describe(self, name=None, machine=None):
        data = self.manifest()
        out = {"mediaType": "application/vnd.oci.image.manifest.v1+json",
               "digest": "sha256:" + sha(data), "size": len(data)}
        if name:
            out["annotations"] = {"org.opencontainers.image.ref.name": name}
        if machine:
            out["platform"] = {"os": "linux", "architecture": machine}
        return out


def index(*descriptors):
    return json.dumps({"schemaVersion": 2, "manifests": list(descriptors)}).encode()


def layout_files(index_text, *images):
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index_text}
    for image in images:
        files.update(image.blobs())
    return files


def docker_files(*named):
    """As docker save wrote it for long: a folder for each layer."""
    files, entries = {}, []
    for name, image in named:
        paths = []
        for layer in image.layers:
            path = sha(layer + b"id") + "/layer.tar"
            files[path] = layer
            paths.append(path)
        config = sha(image.config) + ".json"
        files[config] = image.config
        entries.append({"Config": config, "RepoTags": [name], "Layers": paths})
    files["manifest.json"] = json.dumps(entries).encode()
    return files


def write_files(ctx, top, files):
    for path, data in files.items():
        ctx.write(os.path.join(top, path), data)
    return os.path.join(ctx.dir, top)


def file_archive(ctx, name, files):
    return archive(ctx, name, *[member(p, data=d) for p, d in files.items()])


def check_image(ctx, store, digest):
    ctx.eq(sorted(store.paths(digest)), RESULT, "layers and whiteouts")
    ctx.eq(store.read(digest, "d/old"), b"new", "the upper layer's")
    image = store.show(digest)["image"]
    ctx.eq(image, {"env": CONFIG["Env"], "entrypoint": CONFIG["Entrypoint"], "cmd": CONFIG["Cmd"],
                   "user": CONFIG["User"], "working-directory": CONFIG["WorkingDir"]}, "the config")
    ctx.ok(store.run("verify", digest), out="")


@case("R-images", "an OCI image layout, as a folder, a tar file and through a pipe, and a docker "
      "archive give the image's tree and configuration")
def images(ctx):
    store = Store(ctx)
    for compress in (False, True):
        image = Image(LAYERS, compress=compress)
        files = layout_files(index(image.describe("latest")), image)
        top = f"layout{compress}"
        digest = store.add(write_files(ctx, top, files))
        check_image(ctx, store, digest)
        ctx.eq(store.add(top), digest, "again")
        check_image(ctx, store, store.add(file_archive(ctx, "oci.tar", files)))
        docker = file_archive(ctx, "docker.tar", docker_files(("name:tag", image)))
        check_image(ctx, store, store.add(docker))
        with open(docker, "rb") as f:
            check_image(ctx, store, store.add("-", stdin=f))


@case("R-images", "of several images --image chooses one, and without it they are listed; an index "
      "gives this machine's")
def images_chosen(ctx):
    store = Store(ctx)
    one, two = Image([[member("one", data=b"1")]]), Image([[member("two", data=b"2")]])
    for path in (file_archive(ctx, "d.tar", docker_files(("a:1", one), ("b:2", two))),
                 write_files(ctx, "layout", layout_files(
                     index(one.describe("a:1"), two.describe("b:2")), one, two))):
        store.refuses(path, r'several: "a:1", "b:2".*hint: --image')
        store.refuses(path, r'has "a:1", "b:2"', "--image", "c:3")
        for name, wanted in (("a:1", "one"), ("b:2", "two")):
            ctx.eq(list(store.paths(store.add(path, "--image", name))), [wanted], name)
    mine = "amd64" if os.uname().machine == "x86_64" else "arm64"
    other = "arm64" if mine == "amd64" else "amd64"
    both = index(two.describe(machine=other), one.describe(machine=mine))
    path = write_files(ctx, "both", layout_files(both, one, two))
    ctx.eq(list(store.paths(store.add(path))), ["one"], "this machine's")
    files = layout_files(index(two.describe(machine=other)), two)
    store.refuses(write_files(ctx, "other", files), f"none for linux/{mine}, but .*{other}")
    nested = {"mediaType": "application/vnd.oci.image.index.v1+json",
              "digest": "sha256:" + sha(both), "size": len(both)}
    files = layout_files(index(nested), one, two)
    files["blobs/sha256/" + sha(both)] = both
    ctx.eq(list(store.paths(store.add(write_files(ctx, "nested", files)))), ["one"], "nested")


@case("R-images", "in one layer a hard link and a whiteout of the same file: the new name stays, the old one goes; behind "
      "the whiteout the link is refused")
def images_links(ctx):
    store = Store(ctx)
    lower = [folder("d"), member("d/a", data=b"old"), member("d/c", tarfile.LNKTYPE, target="d/a"), folder("e"),
             member("e/x", data=b"x"), member("e/y", data=b"y")]
    hard = [member("d/b", tarfile.LNKTYPE, target="d/a"), member("e/z", tarfile.LNKTYPE, target="d/a")]
    for whiteouts, wanted in (
            ([], ["d", "d/a", "d/b", "d/c", "e", "e/x", "e/y", "e/z"]),
            ([member("d/.wh.a")], ["d", "d/b", "d/c", "e", "e/x", "e/y", "e/z"]),
            ([member("d/.wh.a"), member("d/.wh.b"), member(".wh.e")], ["d", "d/b", "d/c", "e", "e/z"]),
            ([member("d/.wh..wh..opq"), member("e/.wh..wh..opq")], ["d", "d/b", "e", "e/z"])):
        path = file_archive(ctx, "image", docker_files(("n:t", Image([lower, hard + whiteouts]))))
        digest = store.add(path)
        ctx.eq(sorted(store.paths(digest)), wanted, "what stays")
        for name in ("d/b", "e/z"):
            ctx.eq(store.read(digest, name), b"old", name)
        ctx.ok(store.run("verify", digest), out="")
    store.refuses(file_archive(ctx, "bad", docker_files(("n:t", Image([lower, [member("d/.wh.a"), *hard]])))),
                  "hard link to .*not in the tree")


@case("R-images", "variables of an image whose names are none are left out with a line each; values may be anything")
def images_variables(ctx):
    store = Store(ctx)
    good = ["A=b=c", "EMPTY=", "B= x y ", "dotted.name=1", "LINES=1\n2"]
    bad = ["=x", "C", "D E=secret", " F=1", "G =1", "H\n=1", "", "\t=1", "I\x00=1"]
    image = Image([[member("f")]], config={"Env": bad[:4] + good + bad[4:]})
    result = ctx.ok(store.run("import", file_archive(ctx, "image", docker_files(("n:t", image)))))
    info = store.show(result.out.strip())
    ctx.eq(info["image"]["env"], good, "what is kept")
    lines = [line for line in result.err.splitlines() if "variable of the image" in line]
    ctx.eq(len(lines), len(bad), f"a line each: {result}")
    ctx.eq(len([note for note in info["notes"] if "variable of the image" in note]), len(lines), "in the store")
    ctx.true("secret" not in result.err, "without the values")


@case("R-images R-hostile", "a layer may stop behind its last member where a digest says that it is whole; a layer and an "
      "archive that nothing vouches for may not")
def images_endless(ctx):
    store = Store(ctx)
    whole = tar_bytes([folder("d"), member("d/file", data=b"content")])
    # Two folders' worth of headers and seven bytes: neither the block is filled up nor is there an end.
    short = whole[:512 + 512 + 7]
    image = Image([[member("low", data=b"low")], []])
    for plain, compress in ((short, False), (short, True), (whole[:512 + 512 + 512], False), (whole[:512], False)):
        packed = (subprocess.run(["gzip", "-c"], input=plain, stdout=subprocess.PIPE, check=True).stdout
                  if compress else plain)
        image.layers[1] = packed
        config = json.loads(image.config)
        config["rootfs"]["diff_ids"][1] = "sha256:" + sha(plain)
        image.config = json.dumps(config).encode()
        files = layout_files(index(image.describe()), image)
        wanted = ["d", "d/file", "low"] if len(plain) > 512 else ["d", "low"]
        for path in (file_archive(ctx, "image", files), file_archive(ctx, "docker", docker_files(("n:t", image)))):
            digest = store.add(path)
            ctx.eq(sorted(store.paths(digest)), wanted, f"{len(plain)} bytes")
            ctx.ok(store.run("verify", digest), out="")
        if len(plain) > 512:
            ctx.eq(store.read(digest, "d/file"), b"content", "the file")
    # Cut off within the data or a header it is damaged, digest or not.
    for plain in (whole[:512 + 512 + 3], whole[:512 + 100]):
        image.layers[1] = plain
        store.refuses(file_archive(ctx, "image", layout_files(index(image.describe()), image)), "damaged or cut off")
    store.refuses(ctx.write("plain.tar", short), "cut off")
    config["rootfs"]["diff_ids"] = []
    image.layers[1], image.config = short, json.dumps(config).encode()
    store.refuses(file_archive(ctx, "docker", docker_files(("n:t", image))), "cut off")
    image.layers[1] = whole
    store.add(file_archive(ctx, "docker", docker_files(("n:t", image))))


@case("R-images", "an image's working directory that no layer has is made in the sandbox, and in the root it is not; "
      "another that is missing is an error")
def images_directory(ctx):
    store = Store(ctx)
    with open("/bin/busybox", "rb") as f:
        shell = member("bin/sh", data=f.read(), mode=0o755)
    image = Image([[folder("bin"), shell, folder("real"), link("link", "/real")]],
                  config={"Cmd": ["/bin/sh", "-c", "pwd"], "WorkingDir": "/srv/made"})
    digest = store.add(file_archive(ctx, "image", docker_files(("n:t", image))))
    env = dict(os.environ, NSBOX_STORE=store.path)

    def run(*words, **kw):
        return ctx.run(ctx.nsbox, "run", "--rootfs", digest, *words, env=env, **kw)

    for words in ((), ("--overlay",), ("--tmpfs", "/srv/made"), ("--ro", f"{ctx.mkdir('own')}:/srv/made")):
        ctx.ok(run(*words), out="/srv/made")
    ctx.ok(run("--cwd", "/real"), out="/real")
    ctx.fails(run("--cwd", "/srv/made"), err="chdir to /srv/made: No such file")
    ctx.ok(store.run("verify", digest), out="")
    ctx.true("srv" not in store.paths(digest), "the root is as it was")
    # A link of the image's leads to a folder of the sandbox, never of the caller's.
    image = Image([[folder("bin"), shell, link("shown", "/home/sandbox")]],
                  config={"Cmd": ["/bin/sh", "-c", "pwd"], "WorkingDir": "/mnt/here"})
    bad = store.add(file_archive(ctx, "image", docker_files(("n:t", image))))
    shown = ctx.mkdir("shown")
    ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", bad, "--rw", f"{shown}:/mnt", "--cwd", "/mnt", env=env), out="/mnt")
    ctx.fails(ctx.run(ctx.nsbox, "run", "--rootfs", bad, "--rw", f"{shown}:/mnt", env=env),
              err="chdir to /mnt/here: No such file")
    ctx.eq(os.listdir(shown), [], "the caller's folder")


@case("R-images R-hostile", "a layer that was changed is refused, and whiteouts reach nothing "
      "outside or behind a link")
def images_hostile(ctx):
    store = Store(ctx)
    outside = ctx.mkdir("outside")
    ctx.write("outside/victim", VICTIM)
    before = casekit.snapshot(outside)
    image = Image(LAYERS)
    files = layout_files(index(image.describe()), image)
    ctx.true(store.add(file_archive(ctx, "good", files)), "positive control")
    changed = dict(files)
    changed["blobs/sha256/" + sha(image.layers[0])] = tar_bytes([member("evil", data=b"e")])
    store.refuses(file_archive(ctx, "bad", changed), "SHA-256 is another")
    old = docker_files(("n:t", image))
    old[sha(image.layers[1] + b"id") + "/layer.tar"] = tar_bytes([member("evil", data=b"e")])
    store.refuses(file_archive(ctx, "bad", old), "SHA-256 is another")
    del changed["blobs/sha256/" + sha(image.layers[0])]
    store.refuses(file_archive(ctx, "bad", changed), "is missing")
    for upper in ([link("esc", outside), member("esc/.wh.victim")],
                  [link("esc", outside), member("esc/.wh..wh..opq")],
                  [link("esc", "d"), member("esc/.wh.old")]):
        bad = Image([LAYERS[0], upper])
        store.refuses(file_archive(ctx, "bad", docker_files(("n:t", bad))), "behind a symbolic link")
    for name in (".wh.", ".wh...", ".wh.."):
        bad = Image([LAYERS[0], [member("d/" + name)]])
        store.refuses(file_archive(ctx, "bad", docker_files(("n:t", bad))), "hides no name")
    casekit.unchanged(ctx, outside, before, "whiteouts")


# -- the store ---------------------------------------------------------------------------------

def many_files(ctx, count, name="many.tar"):
    return archive(ctx, name, *[member(f"d{i // 50}/f{i}", data=bytes([i % 251]) * 3000)
                                for i in range(count)])


@case("R05", "an import that is killed at any moment leaves nothing that is used; gc collects the "
      "rest, and the next import works", timeout=120)
def killed(ctx):
    store = Store(ctx)
    path = many_files(ctx, count=600)
    start = time.monotonic()
    whole = store.add(path)
    length = time.monotonic() - start
    ctx.ok(store.run("rm", whole))
    generator = random.Random(ctx.uid)
    ended = killed_number = 0
    # NSBOX_TEST_KILLS chooses more moments, where there is time for them.
    for _ in range(int(os.environ.get("NSBOX_TEST_KILLS", "50"))):
        proc = ctx.popen(*store.words("import", path))
        with contextlib.suppress(subprocess.TimeoutExpired):
            proc.wait(generator.uniform(0, length))
        proc.kill()
        proc.communicate()
        if proc.returncode == 0:
            ended += 1
        elif proc.returncode == -signal.SIGKILL:
            killed_number += 1
        for root in store.roots():
            ctx.eq(root, whole, "only the whole")
            ctx.ok(store.run("verify", root), out="")
            ctx.ok(store.run("rm", root))
    ctx.true(killed_number > 0, f"some were killed; {ended} ended")
    # The unpacking process ends with the one that was killed, not at once.
    ctx.until(lambda: store.run("gc").rc == 0 and not store.names("staging"), 20, "gc cleans up")
    ctx.eq(store.add(path), whole, "the next import")
    ctx.ok(store.run("verify"), out="")


@case("R05", "twenty first uses at once share one extraction")
def together(ctx):
    store = Store(ctx)
    path = many_files(ctx, count=800)
    procs = [ctx.popen(*store.words("import", "--name", f"n{i}", path)) for i in range(20)]
    inodes = set()
    digests = set()
    for proc in procs:
        out, err = proc.communicate(timeout=60)
        ctx.eq(proc.returncode, 0, f"status; stderr {err!r}")
        digests.add(out.strip())
        inodes.add(os.lstat(store.root(store.roots()[0])).st_ino)
    ctx.eq((len(digests), len(store.roots()), len(inodes)), (1, 1, 1), "one root")
    ctx.eq(len(store.names("names")), 20, "all names")
    ctx.eq(store.names("staging"), [], "nothing is left")
    ctx.ok(store.run("verify"), out="")


@case("R-store", "a root that is in use cannot be removed, and can be afterwards; the last name "
      "takes the root along")
def in_use(ctx):
    store = Store(ctx)
    digest = store.add(archive(ctx, "a", member("f", data=b"f")), "--name", "one")
    store.add("a", "--name", "two")
    with open(store.root(digest, "lock"), encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        ctx.ok(store.run("rm", "two"))
        ctx.fails(store.run("rm", "one"), rc=1, err='"one": it is in use')
        ctx.fails(store.run("rm", digest), rc=1, err="it is in use")
        ctx.ok(store.run("gc", "--keep", "0"))
        ctx.eq(store.show("one")["names"], ["one"], "it is still there")
    ctx.ok(store.run("rm", "one"))
    ctx.eq((store.roots(), store.names("names"), store.names("files")), ([], [], []), "all gone")
    ctx.fails(store.run("rm", "one"), rc=1, err="no root filesystem")
    ctx.fails(store.run("show", "one"), rc=1, err="no root filesystem")


@case("R-store", "gc removes what has no name, is not in use and was not used for --keep days")
def collect(ctx):
    store = Store(ctx)
    named = store.add(archive(ctx, "a", member("a")), "--name", "a")
    fresh = store.add(archive(ctx, "b", member("b")))
    used = store.add(archive(ctx, "c", member("c")))
    old = store.add(archive(ctx, "d", member("d")))
    long_ago = time.time() - 31 * 86400
    for digest in (named, used, old):
        os.utime(store.root(digest, "lock"), (long_ago, long_ago))
    with open(store.root(used, "lock"), encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        ctx.ok(store.run("gc"), out=old)
    ctx.eq(store.roots(), sorted([named, fresh, used]), "what stays")
    ctx.ok(store.run("gc", "--keep", "0"))
    ctx.eq(store.roots(), [named], "what stays of those used today")


@case("R-store", "verify names each difference: content, size, mode, link, missing, extra, type")
def damage(ctx):
    store = Store(ctx)
    digest = store.add(archive(
        ctx, "a", folder("d", uid=ctx.uid), *[member(f"d/{n}", data=b"12345") for n in "abcdefgh"],
        link("d/l", "a"), member("d/h1", data=b"h"), member("d/h2", tarfile.LNKTYPE,
                                                            target="d/h1")),
        *([] if ctx.root else ["--owners", "recorded"]))
    ctx.ok(store.run("verify", digest), out="")
    at = store.root(digest, "tree", "d")
    with open(os.path.join(at, "a"), "r+b") as f:
        f.write(b"X")
    with open(os.path.join(at, "b"), "ab") as f:
        f.write(b"X")
    os.chmod(os.path.join(at, "c"), 0o600)
    os.unlink(os.path.join(at, "d"))
    with open(os.path.join(at, "extra"), "wb") as f:
        f.write(b"X")
    os.unlink(os.path.join(at, "e"))
    os.mkdir(os.path.join(at, "e"))
    os.unlink(os.path.join(at, "l"))
    os.symlink("b", os.path.join(at, "l"))
    os.unlink(os.path.join(at, "h2"))
    with open(os.path.join(at, "h2"), "wb") as f:
        f.write(b"h")
    os.chmod(os.path.join(at, "h2"), 0o644)
    result = ctx.fails(store.run("verify", digest), rc=1)
    found = {line.split('"')[1]: line.split('"', 2)[2].strip() for line in
             result.out.splitlines()}
    ctx.eq(found, {"d/a": "has another content", "d/b": "has another size",
                   "d/c": "has another mode", "d/d": "is missing",
                   "d/extra": "is not in the manifest", "d/e": "is of another type",
                   "d/l": "leads elsewhere", "d/h2": 'is not the same file as "d/h1"'}, "found")
    with open(store.root(digest, "manifest"), "a", encoding="ascii") as f:
        f.write("f 0644 0 0 0.000000000 0 " + sha(b"") + " zz\n")
    ctx.fails(store.run("verify", digest), rc=1, err="its manifest is damaged")


OWNED = (folder("d"), member("d/f", data=b"f", uid=5, gid=6), link("d/l", "f"), member("far", uid=70000, gid=5))


@case("R-store", "verify finds another owner, on disk or in the manifest, and takes those for right that no id here "
      "stands for")
def owners_verified(ctx):
    for how in (("as-they-are",) if ctx.root else ("recorded", "subordinate")):
        if how == "subordinate" and not has_subordinate_ids(ctx):
            continue
        store = Store(ctx, how)
        digest = store.add(archive(ctx, "a", *OWNED), *([] if ctx.root else ["--owners", how]))
        ctx.ok(store.run("verify", digest), out="")
        if how == "recorded":
            path = store.root(digest, "manifest")
            with open(path, encoding="ascii") as f:
                text = f.read()
            with open(path, "w", encoding="ascii") as f:
                f.write(text.replace(" 5 6 ", " 5 7 "))
            ctx.fails(store.run("verify", digest), rc=1, err="its manifest is damaged")
            continue
        first = 0 if ctx.root else store.show(digest)["subordinate"]["first-uid"]
        tree = store.root(digest, "tree")
        ctx.eq(os.lstat(os.path.join(tree, "d/f")).st_uid, first + 5, "on disk")
        change = "import os, sys; os.chown('d/f', 5, 7); os.lchown('d/l', 1, 0)"
        if ctx.root:
            ctx.ok(ctx.run("python3", "-c", change, cwd=tree))
        else:
            ctx.ok(ctx.bw(*subordinate_maps(ctx), "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--bind", "/", "/",
                          "--chdir", tree, "/usr/bin/python3", "-c", change))
        found = ctx.fails(store.run("verify", digest), rc=1).out.splitlines()
        ctx.eq(found, [f'{digest}: "{path}" belongs to another' for path in ("d/f", "d/l")], how)


@case("R-store", "an output that is full or closed fails with a line and status 1, and a reader who leaves ends the "
      "command by SIGPIPE")
def outputs(ctx):
    store = Store(ctx)
    path = archive(ctx, "a", member("f", data=os.urandom(300000)))
    store.add(path, "--name", "a")
    for command in (("ls",), ("show", "--json", "a"), ("export", "a"), ("import", path), ("help",)):
        # The control is the same with an output that takes it.
        ctx.true(ctx.ok(store.run(*command)).out if command[0] != "export" else store.export("a"), command)
        for redirection, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
            it = ctx.fails(ctx.run("sh", "-c", f'exec "$@" {redirection}', "sh", *store.words(*command)), rc=1, err=why)
            ctx.eq(it.err.count("\n"), 1, f"one line: {it}")
    ctx.ok(store.run("verify"), out="")

    def unread(*words):
        read, write = os.pipe()
        os.close(read)
        proc = ctx.popen(*words, stdout=write)
        os.close(write)
        return proc.wait(20), proc.stderr.read().decode()

    for command in (("show", "a"), ("export", "a"), ("export", "--format", "tar.zst", "a")):
        ctx.eq(unread(*store.words(*command)), (-signal.SIGPIPE, ""), f"{command} ends quietly")
        ignoring = ("sh", "-c", "trap '' PIPE; exec \"$@\"", "sh")
        status, err = unread(*ignoring, *store.words(*command))
        ctx.eq((status, err.count("\n"), "Broken pipe" in err), (1, 1, True), f"{command}: {err}")


@case("R-store", "an export is the same each time, in each format, and its import has the same "
      "manifest")
def exported(ctx):
    store = Store(ctx)
    top, files = small_tree(ctx)
    digest = store.add(top, "--name", "a")
    once = store.export("a")
    ctx.eq(store.export(digest[:8]), once, "again, by the beginning of its digest")
    with tarfile.open(fileobj=io.BytesIO(once)) as tar:
        names = tar.getnames()
        ctx.eq(tar.extractfile("./big").read(), files["big"], "content")
    ctx.eq(names[1:], sorted(names[1:]), "sorted")
    for form in ("tar", "tar.gz", "tar.xz", "tar.zst"):
        ctx.ok(store.run("export", "--format", form, "-o", "out." + form, "a"))
        again = store.add("out." + form)
        ctx.eq(store.manifest(again), store.manifest(digest), form)
    with open("out.tar", "rb") as f:
        ctx.eq(f.read(), once, "-o")
    ctx.fails(store.run("export", "--format", "zip", "a"), rc=2, err="tar.zst")
    ctx.fails(store.run("export", "-o", "nowhere/x", "a"), rc=1, err="Can't make nowhere/x")
    with open(store.root(digest, "manifest"), encoding="ascii") as f:
        ctx.true(f.read().startswith("nsbox manifest 1\n"), "the manifest's form")


@case("R-store", "a file that changed is imported anew, one that did not is known by its times")
def remembered(ctx):
    store = Store(ctx)
    path = archive(ctx, "a", member("f", data=b"first"))
    first = store.add(path)
    ctx.eq(store.add(path), first, "known")
    ctx.eq(len(store.names("files")), 1, "remembered")
    times = os.stat(path)
    with open(path, "r+b") as f:
        f.write(tar_bytes([member("f", data=b"secon")]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = store.add(path)
    ctx.true(second != first, "another content, with the same size and modification time")
    ctx.eq(store.read(second, "f"), b"secon", "the new one")


@case("R-store", "the commands say what is wrong with their words, and each has help")
def words(ctx):
    store = Store(ctx)
    for command in ("import", "ls", "show", "rm", "gc", "export", "verify"):
        result = ctx.ok(store.run(command, "--help"))
        ctx.true(result.out.startswith(f"usage: nsbox rootfs {command} "), command)
        ctx.true(command in ctx.ok(ctx.run(ctx.nsbox, "rootfs", "help")).out, "in the list")
        ctx.fails(store.run(command, "--no-such-option"), rc=2, err="unknown option")
    ctx.fails(store.run("no-such-command"), rc=2, err="unknown command")
    ctx.fails(store.run("import"), rc=2, err="an argument is missing")
    ctx.fails(store.run("ls", "x"), rc=2, err="too many arguments")
    archive(ctx, "a", member("f"))
    for name in ("a/b", "../x", ".x", "", "x" * 129, "a b"):
        ctx.fails(store.run("import", "--name", name, "a"), rc=1, err="this is no name")
    for size in ("x", "0", "-1", "1T", "99999999999999999999"):
        ctx.fails(store.run("import", f"--max-size={size}", "a"), rc=2, err="as a size")
    ctx.eq(store.roots(), [], "nothing was imported")
    store.add("a", "--name", "x" * 128, "--max-size", "1k")
    lines = [json.loads(x) for x in ctx.ok(store.run("ls", "--json")).out.splitlines()]
    ctx.eq([x["names"] for x in lines], [["x" * 128]], "ls --json")


@case("R-store", "progress is shown on a terminal only, and is gone at the end")
def progress(ctx):
    store = Store(ctx)
    data = tar_bytes([member("f", data=os.urandom(1 << 20))])
    import pty
    master, slave = pty.openpty()
    proc = ctx.popen(*store.words("import", "-"), stdin=subprocess.PIPE, stderr=slave)
    os.close(slave)
    half = len(data) // 2
    proc.stdin.write(data[:half])
    proc.stdin.flush()
    # The bar comes with the bytes that come when half a second is over.
    shown = b""
    os.set_blocking(master, False)
    end = time.monotonic() + 20
    at = half
    while b"MB" not in shown and time.monotonic() < end and at + 4096 < len(data):
        proc.stdin.write(data[at:at + 4096])
        proc.stdin.flush()
        at += 4096
        time.sleep(0.02)
        with contextlib.suppress(BlockingIOError):
            shown += os.read(master, 65536)
    ctx.true(b"MB" in shown or b"kB" in shown, f"a bar: {shown!r}")
    proc.stdin.write(data[at:])
    proc.stdin.close()
    ctx.eq(proc.wait(20), 0, "status")
    with contextlib.suppress(OSError):
        shown += os.read(master, 65536)
    os.close(master)
    ctx.true(shown.endswith(b"\r\x1b[K"), f"it is gone: {shown!r}")
