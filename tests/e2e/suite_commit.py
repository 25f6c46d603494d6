"""Kept overlays as root filesystems: what they have changed, a new one made of them, and recipes."""

import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile

from storekit import Store, case, subordinate_maps

FILES = {"etc/changed": "old", "etc/mode": "mode", "etc/touched": "same", "etc/gone": "x",
         "gone/deep/file": "x", "swapped/file": "x", "opaque/old": "old", "opaque/sub/old": "old",
         "kept/file": "kept"}

CHANGE = r"""set -e
echo new >/etc/new
echo changed >/etc/changed
chmod 600 /etc/mode
chmod 644 /etc/touched
rm /etc/gone
rm -r /gone /swapped /opaque
echo file >/swapped
mkdir /opaque; echo new >/opaque/new
mkdir -p -m 700 /made; echo made >/made/inside; chmod 600 /made/inside
ln -s changed /etc/link
echo odd >"/etc/$(printf 'o\001\\\n\377')d"
"""
DONE = ["A /etc/link", "A /etc/new", "A /etc/o\\001\\134\\012\\377d", "A /made/", "A /made/inside",
        "A /opaque/new", "C /etc/changed", "C /etc/mode", "C /swapped", "D /etc/gone", "D /gone/",
        "D /opaque/old", "D /opaque/sub/"]


def lower_tree(ctx, name="lower"):
    for path, text in FILES.items():
        ctx.write(f"{name}/{path}", text, mode=0o644)
    for folder in ("usr", "home/sandbox", "tmp", "root"):
        ctx.mkdir(f"{name}/{folder}")
    return os.path.join(ctx.dir, name)


def changed(ctx, store, root, name="changes", script=CHANGE):
    """The folder of an overlay in which the script has run."""
    folder = os.path.join(ctx.dir, name)
    ctx.ok(store.sandbox("--rootfs", root, f"--overlay={folder}", "--", "sh", "-c", script))
    return folder


def own_traces(ctx, store, root, name="alone"):
    """What a sandbox leaves that does nothing."""
    return store.diff(changed(ctx, store, root, name, "true"))


def check_result(ctx, store, name):
    """The root filesystem is the lower tree with the changes, and knows of no overlay."""
    members = store.members(name)
    content = {path: data.decode().strip() for path, (m, data) in members.items() if m.isreg()}
    wanted = {"etc/new": "new", "etc/changed": "changed", "etc/mode": "mode", "etc/touched": "same",
              "kept/file": "kept", "swapped": "file", "opaque/new": "new", "made/inside": "made",
              "etc/o\001\\\n\udcffd": "odd"}
    ctx.eq({path: text for path, text in content.items() if path in wanted}, wanted, "files")
    for path in ("etc/gone", "gone", "swapped/file", "opaque/old", "opaque/sub"):
        ctx.true(path not in members, f"{path} is gone")
    ctx.eq(members["etc/link"][0].linkname, "changed", "a link")
    ctx.eq([members[path][0].mode & 0o7777 for path in ("etc/mode", "etc/touched", "made", "made/inside")],
           [0o600, 0o644, 0o700, 0o600], "modes")
    ctx.true(not any(m.ischr() for m, _ in members.values()), "no whiteout")
    with open(os.path.join(store.path, "roots", store.show(name)["digest"], "manifest"),
              encoding="ascii") as f:
        ctx.true("overlay" not in f.read(), "no mark")
    ctx.ok(store.run("verify", name), out="")


@case("COMMIT-diff", "diff lists exactly what a sandbox did, over a root of the store and over a folder")
def diff(ctx):
    store = Store(ctx)
    tree = lower_tree(ctx)
    store.digest("import", "--name", "base", tree)
    for root in ("base", tree):
        where = "folder" if root == tree else "stored"
        traces = own_traces(ctx, store, root, f"{where} alone")
        ctx.true(all(line[0] == "A" for line in traces), f"only mount points: {traces}")
        folder = changed(ctx, store, root, where)
        ctx.eq(sorted(set(store.diff(folder)) - set(traces)), sorted(DONE), where)
        lines = [json.loads(x) for x in ctx.ok(store.run("diff", "--json", folder)).out.splitlines()]
        ctx.eq([x for x in lines if x["path"] in ("/etc/gone", "/made", "/swapped")],
               [{"change": "deleted", "path": "/etc/gone", "directory": False},
                {"change": "added", "path": "/made", "directory": True},
                {"change": "changed", "path": "/swapped", "directory": False}], "as JSON")
        ctx.true(len(lines) == len(store.diff(folder)), "as many")


@case("COMMIT-new-root", "commit makes a root filesystem of the merged view, and leaves both layers as "
      "they are")
def commit(ctx):
    store = Store(ctx)
    base = store.digest("import", "--name", "base", lower_tree(ctx))
    before = store.members("base")
    folder = changed(ctx, store, "base")
    listed = store.diff(folder)
    digest = store.digest("commit", folder, "--name", "made")
    check_result(ctx, store, "made")
    ctx.eq(store.show("made")["digest"], digest, "by its name")
    ctx.ok(store.sandbox("--rootfs", "made", "--", "sh", "-c",
                         "cat /etc/new /swapped /made/inside; ls /opaque; ls -d /gone 2>/dev/null || echo none"),
           out="new\nfile\nmade\nnew\nnone")
    ctx.eq(store.digest("commit", folder, "--name", "again"), digest, "again the same")
    ctx.eq(len(os.listdir(os.path.join(store.path, "roots"))), 2, "stored once")
    ctx.eq((store.diff(folder), os.listdir(os.path.join(store.path, "staging"))), (listed, []), "the changes")
    ctx.ok(store.run("verify", base), out="")
    ctx.eq({p: (m.mode, m.mtime, d) for p, (m, d) in store.members("base").items()},
           {p: (m.mode, m.mtime, d) for p, (m, d) in before.items()}, "the lower one")
    # One more change is another root filesystem.
    changed(ctx, store, "base", script="echo more >/etc/more")
    other = store.digest("commit", "--name", "made", folder)
    ctx.true(other != digest, "another digest")
    ctx.eq((store.show("made")["digest"], store.show("again")["digest"]), (other, digest), "the names")
    # What is made of it is as good a lower tree as any.
    second = changed(ctx, store, "made", "second", "rm /etc/more; echo 2 >/etc/second")
    store.digest("commit", "--name", "third", second)
    ctx.true("etc/second" in store.members("third") and "etc/more" not in store.members("third"), "the third")


@case("COMMIT-folder", "commit works where the lower tree is a folder, and hard links stay")
def over_folder(ctx):
    store = Store(ctx)
    tree = lower_tree(ctx)
    os.link(f"{tree}/kept/file", f"{tree}/kept/twin")
    folder = changed(ctx, store, tree, script=CHANGE + "echo 2 >/made/one; ln /made/one /made/two\n")
    store.digest("commit", folder, "--name", "made")
    check_result(ctx, store, "made")
    members = store.members("made")
    for pair in (("kept/file", "kept/twin"), ("made/one", "made/two")):
        ctx.eq(sorted(members[p][0].islnk() for p in pair), [False, True], f"{pair} are one file")
    ctx.eq({(m.uid, m.gid) for m, _ in members.values()}, {(0, 0)}, "owners")


@case("COMMIT-recorded", "where all files belong to the caller, they do in what is committed", only="user")
def recorded(ctx):
    store = Store(ctx)
    store.digest("import", "--owners=recorded", "--name", "base", lower_tree(ctx))
    folder = changed(ctx, store, "base")
    ctx.eq(sorted(set(store.diff(folder)) & set(DONE)), sorted(DONE), "what was done")
    digest = store.digest("commit", folder, "--name", "made")
    ctx.eq(store.show("made")["owners"], "recorded", "as the lower one")
    ctx.eq(os.lstat(os.path.join(store.path, "roots", digest, "tree/made/inside")).st_uid, ctx.uid, "on disk")
    check_result(ctx, store, "made")


RECORDED = (("dev", tarfile.DIRTYPE, 0o755, 0, 0), ("dev/null", tarfile.CHRTYPE, 0o666, 0, 0),
            ("gone", tarfile.DIRTYPE, 0o755, 0, 0), ("gone/null", tarfile.CHRTYPE, 0o666, 0, 0),
            ("opaque", tarfile.DIRTYPE, 0o755, 0, 0), ("opaque/null", tarfile.CHRTYPE, 0o666, 0, 0),
            ("etc", tarfile.DIRTYPE, 0o755, 0, 0), ("etc/taken", tarfile.CHRTYPE, 0o666, 0, 0), ("etc/x", tarfile.DIRTYPE, 0o755, 0, 0),
            ("etc/su", tarfile.REGTYPE, 0o4755, 5, 6), ("etc/own", tarfile.REGTYPE, 0o2755, 7, 8),
            ("etc/replaced", tarfile.REGTYPE, 0o4755, 7, 8), ("etc/far", tarfile.REGTYPE, 0o644, 70000, 70001),
            ("etc/caps", tarfile.REGTYPE, 0o755, 0, 0), ("etc/other", tarfile.REGTYPE, 0o755, 0, 0))
RECORDED_CHANGE = """set -e
rm -r /gone /opaque
mkdir /opaque; echo 1 >/opaque/new
echo changed >>/etc/own; echo changed >>/etc/other
rm /etc/replaced; mkdir /etc/replaced; echo 1 >/etc/taken
"""


@case("COMMIT-manifest", "what the manifest alone knows stays where nothing was changed: devices, set-id bits, owners, "
      "attributes; and goes where something was")
def manifest_only(ctx):
    path = os.path.join(ctx.dir, "base.tar")
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("usr", "home", "home/sandbox", "tmp", "root"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name, kind, mode, uid, gid in RECORDED:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid, member.gid = kind, mode, uid, gid
            member.devmajor, member.devminor, member.size = 1, 3, 1 if kind == tarfile.REGTYPE else 0
            if name in ("etc/caps", "etc/other"):
                member.pax_headers = {"SCHILY.xattr.security.capability": "caps"}
            tar.addfile(member, io.BytesIO(b"x"))
    for how in ("as-they-are",) if ctx.root else ("recorded", "subordinate"):
        store = Store(ctx)
        store.path = store.env["NSBOX_STORE"] = os.path.join(ctx.dir, how)
        if how == "subordinate" and subordinate_maps(ctx) is None:
            continue
        base = store.digest("import", "--name", "base", *([] if ctx.root else ["--owners", how]), path)
        ctx.eq(store.show("base")["owners"], how, "owners")
        folder = changed(ctx, store, "base", f"changes {how}", RECORDED_CHANGE)
        digest = store.digest("commit", "--name", "made", folder)
        members = store.members("made")
        ctx.eq(sorted(name for name, (m, _) in members.items() if m.ischr()), ["dev/null"], f"{how}: devices")
        ctx.eq((members["dev/null"][0].mode, members["dev/null"][0].devminor), (0o666, 3), "as they were")
        told = {name: (m.mode & 0o7777, m.uid, m.gid) for name, (m, _) in members.items()}
        ctx.eq(members["etc/taken"][1], b"1\n", "in a device's place")
        ctx.eq([told[name] for name in ("etc/su", "etc/far")], [(0o4755, 5, 6), (0o644, 70000, 70001)],
               f"{how}: what nothing was done to")
        # Writing has taken the bit away, and chown to whom it belongs needs nothing.
        ctx.eq(told["etc/own"], (0o755, 7, 8), f"{how}: what was written to")
        ctx.eq((members["etc/replaced"][0].isdir(), told["etc/replaced"][1:]), (True, (0, 0)), f"{how}: what was replaced")
        with open(os.path.join(store.path, "roots", digest, "manifest"), encoding="ascii") as f:
            lines = f.read().splitlines()
        at = {line.rsplit(" ", 1)[-1]: i for i, line in enumerate(lines)}
        ctx.true(lines[at["etc/caps"] + 1].startswith("x security.capability "), f"{how}: attributes")
        ctx.true(not lines[at["etc/other"] + 1].startswith("x "), f"{how}: not of what was written to")
        ctx.ok(store.run("verify", base, digest), out="")
        ctx.eq(store.digest("commit", "--name", "again", folder), digest, "again the same")


@case("COMMIT-unusable-ids", "over a folder, subordinate ids that cannot be used are done without", only="user")
def unusable_ids(ctx):
    store = Store(ctx)
    tree = lower_tree(ctx)
    store.digest("import", "--name", "control", tree)
    if store.show("control")["owners"] != "subordinate":
        ctx.skip("this user has no subordinate ids")
    folder = changed(ctx, store, tree)
    listed = store.diff(folder)
    for name in ("newuidmap", "newgidmap"):
        ctx.write(f"bad/{name}", "#!/bin/sh\nexit 1\n", mode=0o755)
    path = os.environ["PATH"]
    store.env["PATH"] = f"{ctx.dir}/bad:{path}"
    ctx.eq(store.diff(folder), listed, "the changes are those of before")
    digest = store.digest("commit", folder, "--name", "made")
    ctx.eq(store.show("made")["owners"], "recorded", "owners")
    check_result(ctx, store, "made")
    # The control: with ids that can be used.
    store.env["PATH"] = path
    ctx.ok(store.run("rm", "made"))
    ctx.eq(store.digest("commit", folder, "--name", "made"), digest, "the digest")
    ctx.eq(store.show("made")["owners"], "subordinate", "owners")


OWNERS = r"""set -e
mkdir -m 700 /private; echo secret >/private/file; chmod 600 /private/file; chown -R 33:34 /private
chown 7 /kept/file
rm -r /gone
"""


@case("COMMIT-owners", "files of other ids, shut to the caller, are compared, and keep their owners")
def owners(ctx):
    store = Store(ctx)
    store.digest("import", "--name", "base", lower_tree(ctx))
    info = store.show("base")
    if not ctx.root and info["owners"] != "subordinate":
        ctx.skip("this user has no subordinate ids")
    traces = own_traces(ctx, store, "base")
    folder = changed(ctx, store, "base", script=OWNERS)
    first = 0 if ctx.root else info["subordinate"]["first-uid"]
    ctx.eq(os.lstat(os.path.join(folder, "upper/private")).st_uid, first + 33, "on disk")
    ctx.eq(sorted(set(store.diff(folder)) - set(traces)),
           ["A /private/", "A /private/file", "C /kept/file", "D /gone/"], "what was done")
    digest = store.digest("commit", folder, "--name", "made")
    members = store.members("made")
    ctx.eq({path: (members[path][0].uid, members[path][0].gid)
            for path in ("private", "private/file", "kept", "kept/file")},
           {"private": (33, 34), "private/file": (33, 34), "kept": (0, 0), "kept/file": (7, 0)}, "owners")
    ctx.eq(members["private/file"][1], b"secret\n", "its content")
    status = os.lstat(os.path.join(store.path, "roots", digest, "tree/private"))
    ctx.eq((status.st_uid, stat.S_IMODE(status.st_mode)), (first + 33, 0o700), "on disk")
    ctx.ok(store.sandbox("--rootfs", "made", "--", "sh", "-c", "stat -c %u:%g /private/file; cat /private/file"),
           out="33:34\nsecret")


@case("COMMIT-settings", "what the lower one's image says stays, and counts for the digest")
def settings(ctx):
    store = Store(ctx)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(lower_tree(ctx), ".")
    wanted = {"env": ["A=b c"], "entrypoint": ["/bin/sh"], "cmd": ["-c", "true"], "user": "0",
              "working-directory": "/etc"}
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {
        "type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()]},
        "config": {"Env": wanted["env"], "Entrypoint": wanted["entrypoint"], "Cmd": wanted["cmd"],
                   "User": wanted["user"], "WorkingDir": wanted["working-directory"]}}).encode()
    names = "0" * 64 + "/layer.tar", hashlib.sha256(config).hexdigest() + ".json"
    files = {names[0]: layer.getvalue(), names[1]: config, "manifest.json": json.dumps(
        [{"Config": names[1], "RepoTags": ["a:b"], "Layers": [names[0]]}]).encode()}
    with tarfile.open(os.path.join(ctx.dir, "image.tar"), "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    store.digest("import", "--name", "image", os.path.join(ctx.dir, "image.tar"))
    folder = changed(ctx, store, "image")
    digest = store.digest("commit", folder, "--name", "made")
    info = store.show("made")
    ctx.eq((info["image"], info["digest-of"]), (wanted, "image"), "the settings")
    check_result(ctx, store, "made")
    # The same tree of which nothing is known is another root filesystem.
    ctx.true(info["manifest"] != digest, "not the tree's alone")
    ctx.eq(store.digest("commit", folder, "--name", "again"), digest, "again the same")


@case("COMMIT-in-use", "commit waits for nobody: while a sandbox uses the overlay it is refused")
def in_use(ctx):
    store = Store(ctx)
    store.digest("import", "--name", "base", lower_tree(ctx))
    folder = os.path.join(ctx.dir, "changes")
    sandbox = ctx.popen(*store.in_sandbox("--rootfs", "base", f"--overlay={folder}", "--", "sh", "-c",
                                          "echo new >/etc/new; echo up; read x"),
                        env=store.env, stdin=subprocess.PIPE)
    ctx.eq(sandbox.stdout.readline(), b"up\n", "it runs")
    ctx.fails(store.run("commit", folder, "--name", "made"), rc=1, err="in use")
    ctx.eq([x["names"] for x in map(json.loads, store.run("ls", "--json").out.splitlines())], [["base"]],
           "nothing was stored")
    sandbox.communicate(b"\n", timeout=20)
    ctx.eq(sandbox.returncode, 0, "it ended")
    store.digest("commit", folder, "--name", "made")
    ctx.true("etc/new" in store.members("made"), "then it is made")


@case("COMMIT-refused", "a folder that is no overlay's, or whose root is gone, is refused, and so is a wrong "
      "name")
def refused(ctx):
    store = Store(ctx)
    store.digest("import", "--name", "base", lower_tree(ctx))
    folder = changed(ctx, store, "base")
    ctx.mkdir("empty")
    ctx.mkdir("half/upper")
    ctx.write("file", "x")
    for command in (("diff",), ("commit", "--name", "made")):
        for name, why in (("missing", "No such file"), ("file", "Not a directory"), ("empty", 'no folder "upper"'),
                          ("half", 'no file "lower"')):
            ctx.fails(store.run(*command, os.path.join(ctx.dir, name)), rc=1, err=why)
    for command in ("diff", "commit", "build"):
        ctx.true(ctx.ok(store.run(command, "--help")).out.startswith(f"usage: nsbox rootfs {command} "), command)
        ctx.fails(store.run(command), rc=2, err="an argument is missing")
    ctx.fails(store.run("commit", folder), rc=2, err="--name")
    ctx.fails(store.run("commit", "--name", "a/b", folder), rc=1, err="this is no name")
    ctx.ok(store.run("commit", "--name", "made", folder))
    ctx.ok(store.run("rm", "base"))
    for command in (("diff",), ("commit", "--name", "other")):
        ctx.fails(store.run(*command, folder), rc=1, err="it holds changes of")
    # What was made of it needs it no more.
    ctx.ok(store.sandbox("--rootfs", "made", "--", "cat", "/kept/file"), out="kept")


# -- build ---------------------------------------------------------------------------------------

SCRIPT = """#!/bin/sh
printf '<%s>' "$@" >"$0.said"
[ "$1" != fail ] || { echo "no such recipe" >&2; exit 3; }
echo chatter
while [ $# -gt 0 ]; do case $1 in -o) out=$2 ;; esac; shift; done
mkdir -p "$0.tree" && echo built >"$0.tree/marker" &&
touch -d @1000000000 "$0.tree/marker" "$0.tree" && tar -cf "${out:-default.tar.zst}" -C "$0.tree" .
"""


def programs(ctx, script):
    """Copies of the programs, with a script beside them; nsbox."""
    place = ctx.mkdir("bin")
    for name in ("nsbox", "nsbox-rootfs"):
        source = os.path.join(os.path.dirname(ctx.nsbox), name)
        with open(source, "rb") as f:
            ctx.write(f"bin/{name}", f.read(), mode=0o755)
    if script:
        ctx.write("bin/rootfs/build", script, mode=0o755)
    return os.path.join(place, "nsbox")


@case("COMMIT-build", "build hands its words to the script, and with a name imports what that made")
def build(ctx):
    store = Store(ctx)
    nsbox = programs(ctx, SCRIPT)

    def said():
        with open(os.path.join(ctx.dir, "bin/rootfs/build.said"), encoding="utf-8") as f:
            return f.read()

    ctx.ok(store.run("build", "mine", "--suite", "--name", "-v", nsbox=nsbox), out="chatter")
    ctx.eq(said(), "<mine><--suite><--name><-v>", "words are not taken apart")
    ctx.true(os.path.exists("default.tar.zst"), "the archive of the script's own choice")
    ctx.true(not os.path.exists(store.path), "nothing is imported")
    digest = store.digest("build", "mine", "--name", "one", "--suite=x", nsbox=nsbox)
    ctx.true(said().endswith("<mine><--suite=x>") and "--name" not in said(), f"without the name: {said()}")
    ctx.eq(store.members("one")["marker"][1], b"built\n", "it is imported")
    ctx.eq((store.show("one")["digest"], store.show("one")["source"]), (digest, "build mine"), "as this")
    ctx.eq(os.listdir(os.path.join(store.path, "staging")), [], "the archive went")
    out = os.path.join(ctx.dir, "out file.tar")
    ctx.eq(store.digest("build", "-o", out, "--name=two", "mine", nsbox=nsbox), digest, "the same")
    ctx.true(os.path.exists(out), "the archive stays where it was wanted")
    ctx.eq(said(), f"<-o><{out}><mine>", "words")


@case("COMMIT-build-fails", "build has the script's status, imports nothing then, and says where it looked "
      "for it")
def build_fails(ctx):
    store = Store(ctx)
    nsbox = programs(ctx, SCRIPT)
    ctx.fails(store.run("build", "fail", nsbox=nsbox), rc=3, err="no such recipe")
    # The script is given its output first.
    script = SCRIPT.replace('"$1" != fail', '"$3" != fail')
    ctx.write("bin/rootfs/build", script, mode=0o755)
    ctx.fails(store.run("build", "fail", "--name", "made", nsbox=nsbox), rc=3, err="no such recipe")
    ctx.eq([os.listdir(os.path.join(store.path, part)) for part in ("roots", "names", "staging")], [[], [], []],
           "nothing is left")
    ctx.fails(store.run("build", "mine", "--name", nsbox=nsbox), rc=1, err="--name takes an argument")
    ctx.fails(store.run("build", "mine", "--name=a/b", nsbox=nsbox), rc=1, err="this is no name")
    store.digest("build", "mine", "--name", "made", nsbox=nsbox)
    os.rename(os.path.join(ctx.dir, "bin/rootfs"), os.path.join(ctx.dir, "bin/elsewhere"))
    result = store.run("build", "no-such-recipe", nsbox=nsbox)
    ctx.fails(result, err="is not installed|there is no recipe no-such-recipe")
