"""Images and archives that other people's tools make: umoci, skopeo, buildah and podman.

What a tool says of its own image is the measure: the tree that umoci unpacks, what podman runs.
"""

import os
import shutil
import stat
import tarfile

import casekit
from storekit import Store, case, subordinate_maps

BUSYBOX = "/bin/busybox"
SHOW = "echo $GREETING; id -u; pwd; cat /etc/one"


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)


def busybox(tree):
    os.makedirs(f"{tree}/bin", exist_ok=True)
    shutil.copy(BUSYBOX, f"{tree}/bin/busybox")
    for name in ("sh", "cat", "id", "ls"):
        os.symlink("busybox", f"{tree}/bin/{name}")


def on_disk(top):
    """What a folder has: path -> kind, mode, seconds, content or target, and for root the owner."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path).encode()
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, top)] = (
                kind, 0 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode),
                int(status.st_mtime) if stat.S_ISREG(status.st_mode) else 0, content,
                (status.st_uid, status.st_gid) if os.getuid() == 0 else ())
    return found


KINDS = {tarfile.REGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK,
         tarfile.FIFOTYPE: stat.S_IFIFO}


def in_store(store, name):
    """The same of a root of the store, by its export."""
    members = store.members(name)
    found = {}
    for path, (member, content) in members.items():
        if path == ".":
            continue
        if member.islnk():
            member, content = members[os.path.normpath(member.linkname)]
        kind = KINDS[member.type]
        if member.issym():
            content = member.linkname.encode()
        found[path] = (kind, 0 if member.issym() else member.mode & 0o7777,
                       int(member.mtime) if member.isreg() else 0, content,
                       (member.uid, member.gid) if os.getuid() == 0 else ())
    return found


def needs_subordinate_ids(ctx):
    if not ctx.root:
        casekit.tool(ctx, "newuidmap")
        if subordinate_maps(ctx) is None:
            ctx.skip("this user has no subordinate ids")


# -- umoci and skopeo -------------------------------------------------------------------------

CONFIG = ("--config.user", "33:34", "--config.env", "GREETING=hello there", "--config.workingdir",
          "/made/by/run", "--config.entrypoint", "/bin/sh", "--config.entrypoint", "-c",
          "--config.cmd", SHOW)


def umoci_layout(ctx):
    """A layout of four layers: a tree, changes to it, an opaque folder, a whiteout."""
    casekit.tool(ctx, "umoci")
    rootless = () if ctx.root else ("--rootless",)

    def umoci(*words):
        ctx.ok(ctx.run("umoci", *words, timeout=60))

    umoci("init", "--layout", "layout")
    umoci("new", "--image", "layout:tag")
    umoci("unpack", *rootless, "--image", "layout:tag", "bundle")
    tree = "bundle/rootfs"
    busybox(tree)
    for path in ("etc/one", "d/gone", "d/changed", "o/hidden", "o/sub/hidden", "w/hidden", "replaced"):
        write(f"{tree}/{path}", f"{path}\n")
    write(f"{tree}/usr/bin/setid", "#!/bin/sh\n", 0o4755)
    os.link(f"{tree}/etc/one", f"{tree}/etc/hard")
    os.mkfifo(f"{tree}/etc/pipe", 0o600)
    os.chmod(f"{tree}/etc", 0o1750 if ctx.root else 0o1755)
    if ctx.root:
        os.chown(f"{tree}/d/changed", 33, 34)
        os.chmod(f"{tree}/etc", 0o755)
    umoci("repack", "--image", "layout:tag", "bundle")
    shutil.rmtree("bundle")
    umoci("unpack", *rootless, "--image", "layout:tag", "bundle")
    os.unlink(f"{tree}/d/gone")
    os.unlink(f"{tree}/etc/hard")
    os.unlink(f"{tree}/replaced")
    write(f"{tree}/replaced/inside", "a folder in place of a file\n")
    write(f"{tree}/d/changed", "changed\n", 0o600)
    os.chmod(f"{tree}/d/changed", 0o604)
    umoci("repack", "--image", "layout:tag", "bundle")
    write("fresh/sub/fresh", "fresh\n")
    umoci("insert", *rootless, "--opaque", "--image", "layout:tag", "fresh", "/o")
    umoci("insert", *rootless, "--whiteout", "--image", "layout:tag", "/w")
    umoci("config", "--image", "layout:tag", *CONFIG)
    shutil.rmtree("bundle")
    umoci("unpack", *rootless, "--image", "layout:tag", "bundle")
    return os.path.join(ctx.dir, "layout"), on_disk(tree)


GONE = ("d/gone", "etc/hard", "o/hidden", "o/sub/hidden", "w/hidden", "w")


def check_umoci(ctx, store, name, wanted):
    found = in_store(store, name)
    ctx.eq(sorted(found), sorted(wanted), "paths")
    for path, what in wanted.items():
        ctx.eq(found[path], what, path)
    ctx.ok(store.run("verify", name), out="")


def runs(ctx, store, name):
    """The image's command, user, variables and working directory, which no layer has."""
    user = "33" if ctx.root or store.show(name)["owners"] == "subordinate" else "1000"
    ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", name, env=store.env, timeout=60),
           out=f"hello there\n{user}\n/made/by/run\netc/one")


@case("images-umoci", "layers, whiteouts and opaque folders of umoci give the tree that umoci "
      "unpacks, and its configuration is that of the command", timeout=120)
def umoci_image(ctx):
    store = Store(ctx)
    layout, wanted = umoci_layout(ctx)
    ctx.true(not set(GONE) & set(wanted) and "o/sub/fresh" in wanted, f"umoci's own: {sorted(wanted)}")
    store.digest("import", "--name", "umoci", layout)
    check_umoci(ctx, store, "umoci", wanted)
    runs(ctx, store, "umoci")


@case("images-skopeo", "skopeo's layouts and archives of an image, layers plain, by gzip and by zstd, "
      "give one and the same tree", timeout=180)
def skopeo_images(ctx):
    casekit.tool(ctx, "skopeo")
    store = Store(ctx)
    layout, wanted = umoci_layout(ctx)

    def copy(source, target, *words):
        ctx.ok(ctx.run("skopeo", "--insecure-policy", "--tmpdir", ctx.dir, "copy", "-q", *words,
                       source, target, timeout=60))

    copy(f"oci:{layout}:tag", "oci:again:tag")
    copy(f"oci:{layout}:tag", "oci:zstd:tag", "--dest-compress-format", "zstd",
         "--dest-compress")
    copy(f"oci:{layout}:tag", "oci-archive:oci.tar:tag")
    copy(f"oci:{layout}:tag", "docker-archive:docker.tar:some/name:tag")
    ctx.ok(ctx.run("zstd", "-q", "docker.tar", "-o", "docker.tar.zst"))
    for name in ("again", "zstd", "oci.tar", "docker.tar", "docker.tar.zst"):
        store.digest("import", "--name", name, os.path.join(ctx.dir, name))
        check_umoci(ctx, store, name, wanted)
        runs(ctx, store, name)
    with open("docker.tar", "rb") as file:
        store.digest("import", "--name", "pipe", "-", stdin=file)
    check_umoci(ctx, store, "pipe", wanted)
    # Neither a layout nor what anybody wants as a tree.
    copy(f"oci:{layout}:tag", "dir:transport")
    ctx.fails(store.run("import", os.path.join(ctx.dir, "transport")), rc=1,
              err=r"in the form dir:.*hint: skopeo copy dir:FOLDER oci:OTHER")
    copy("dir:transport", "oci:other:tag")
    store.digest("import", "--name", "other", os.path.join(ctx.dir, "other"))
    check_umoci(ctx, store, "other", wanted)


# -- buildah and podman -----------------------------------------------------------------------

DOCKERFILE = f"""FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "ln", "-s", "busybox", "/bin/sh"]
RUN /bin/busybox --install -s /bin
RUN mkdir /etc2 && echo gone >/etc2/gone && echo etc/one >/etc/one && echo same >/same
RUN true
RUN rm -r /etc2 /same
RUN echo same >/same && chown 33:34 /same && chmod 644 /same
RUN true
ENV GREETING="hello there"
USER 33:34
WORKDIR /made/by/run
ENTRYPOINT ["/bin/sh", "-c", "{SHOW}"]
"""


def prepare(ctx, engine):
    """A context with a Dockerfile, and storage of the engine's that goes with the case."""
    casekit.tool(ctx, engine)
    needs_subordinate_ids(ctx)
    ctx.mkdir("context")
    ctx.write("context/Dockerfile", DOCKERFILE)
    ctx.write("context/Second", "FROM localhost/some/one:v1\nENTRYPOINT [\"/bin/echo\", \"second\"]\n")
    shutil.copy(BUSYBOX, "context/busybox")
    top = ctx.mkdir("engine")
    ctx.write("engine/storage.conf", f'[storage]\ndriver = "vfs"\nrunroot = "{top}/run"\n'
              f'graphroot = "{top}/graph"\nrootless_storage_path = "{top}/graph"\n')
    # RUN without another runtime: in a chroot, with the network there is, which nothing uses.
    env = {**os.environ, "CONTAINERS_STORAGE_CONF": f"{top}/storage.conf", "HOME": top,
           "BUILDAH_ISOLATION": "chroot", "TMPDIR": ctx.mkdir("tmp"),
           "XDG_RUNTIME_DIR": ctx.mkdir("engine/runtime")}
    store = Store(ctx)
    store.env = {**env, "NSBOX_STORE": store.path}
    return store


def run_engine(ctx, store, *words):
    return ctx.ok(ctx.run(*words, env=store.env, timeout=120))


def end_pause(ctx, store):
    """Rootless podman leaves a process that keeps its namespaces."""
    if not ctx.root:
        run_engine(ctx, store, "podman", "system", "migrate")


def check_engine(ctx, store, name, has_config=True):
    found = in_store(store, name)
    ctx.true({"bin/busybox", "bin/sh", "etc/one", "same"} <= set(found), f"paths: {sorted(found)}")
    ctx.true(not {"etc2", "etc2/gone"} & set(found), f"what a layer removed: {sorted(found)}")
    member, content = store.members(name)["same"]
    ctx.eq((member.uid, member.gid, member.mode & 0o7777, content), (33, 34, 0o644, b"same\n"), "a file")
    ctx.ok(store.run("verify", name), out="")
    if has_config:
        runs(ctx, store, name)
        ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", name, "--", "cat", "/same", env=store.env),
               out="same")
    else:
        ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", name, "--", "sh", "-c",
                       "id -u; pwd; cat /etc/one", env=store.env), out="1000\n/home/sandbox\netc/one")


@case("images-podman", "podman builds a Dockerfile for `rootfs build`, and what podman saves, in each "
      "form, is the image that podman has", timeout=240)
def podman_images(ctx):
    store = prepare(ctx, "podman")
    try:
        store.ctx.ok(ctx.run(ctx.nsbox, "rootfs", "build", "--engine", "podman", "--dockerfile",
                             "context/Dockerfile", "--name", "built", env=store.env, timeout=120))
        check_engine(ctx, store, "built", has_config=False)
        for name, file in (("one:v1", "Dockerfile"), ("two:v2", "Second")):
            run_engine(ctx, store, "podman", "build", "-q", "--layers", "-t", f"some/{name}", "-f",
                       f"context/{file}", "context")
        for form in ("docker-archive", "oci-archive", "oci-dir"):
            run_engine(ctx, store, "podman", "save", "-q", "--format", form, "-o", f"saved-{form}",
                       "some/one:v1")
            store.digest("import", "--name", form, os.path.join(ctx.dir, f"saved-{form}"))
            check_engine(ctx, store, form)
        run_engine(ctx, store, "podman", "save", "-q", "-m", "-o", "several", "some/one:v1", "some/two:v2")
        several = os.path.join(ctx.dir, "several")
        ctx.fails(store.run("import", several), rc=1,
                  err='several: "localhost/some/one:v1", "localhost/some/two:v2".*hint: --image')
        store.digest("import", "--name", "one", "--image", "localhost/some/one:v1", several)
        check_engine(ctx, store, "one")
        store.digest("import", "--name", "two", "--image", "localhost/some/two:v2", several)
        ctx.ok(ctx.run(ctx.nsbox, "run", "--rootfs", "two", env=store.env), out="second")
        # The other way round: what nsbox exports, podman imports.
        ctx.ok(store.run("export", "one", "-o", "exported.tar"))
        run_engine(ctx, store, "podman", "import", "-q", "exported.tar", "some/exported:v3")
    finally:
        end_pause(ctx, store)


@case("images-buildah", "buildah builds a Dockerfile for `rootfs build`, and what buildah pushes, in "
      "each form, is the image that buildah has", timeout=240)
def buildah_images(ctx):
    store = prepare(ctx, "buildah")
    store.ctx.ok(ctx.run(ctx.nsbox, "rootfs", "build", "--engine", "buildah", "--dockerfile",
                         "context/Dockerfile", "--name", "built", env=store.env, timeout=120))
    check_engine(ctx, store, "built", has_config=False)
    run_engine(ctx, store, "buildah", "build", "-q", "--layers", "-t", "some/one:v1", "context")
    for form, target in (("docker", "docker-archive:docker:some/one:v1"), ("archive", "oci-archive:archive:v1"),
                         ("layout", "oci:layout:v1")):
        run_engine(ctx, store, "buildah", "push", "-q", "some/one:v1", target)
        store.digest("import", "--name", form, os.path.join(ctx.dir, form))
        check_engine(ctx, store, form)
