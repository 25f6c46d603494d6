"""A mirror of the tests' own, with two small packages, and a look into archives."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile

# When the newest file of the packages was made: after it, no file of an archive may be.
NEWEST = 1_600_000_000
BUSYBOX = "/usr/bin/busybox"


def package(ctx, mirror, name, files):
    """A .deb that holds `files`: path to (text, mode), a text that begins with -> being a link."""
    tree = ctx.mkdir(f"packages/{name}")
    for path, (data, mode) in files.items():
        full = ctx.write(f"packages/{name}/{path}", data, mode)
        os.utime(full, (NEWEST, NEWEST))
    ctx.write(f"packages/{name}/DEBIAN/control", f"""Package: {name}
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@localhost>
Description: a package of the tests
""")
    ctx.ok(ctx.run("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, f"{mirror}/{name}.deb"))
    shutil.rmtree(tree)


def own_mirror(ctx):
    """Makes the mirror and returns what --mirror takes. Its lists are not signed."""
    mirror = ctx.mkdir("mirror")
    with open(BUSYBOX, "rb") as file:
        busybox = file.read()
    package(ctx, mirror, "busybox-static", {
        "usr/bin/busybox": (busybox, 0o755),
        "usr/share/doc/busybox-static/copyright": ("Free to use.\n", 0o644),
        "usr/share/man/man1/busybox.1": (".TH\n", 0o644)})
    package(ctx, mirror, "odd", {
        "usr/bin/odd-setuid": ("#!/bin/sh\n", 0o4755),
        "usr/share/odd/kept": ("kept\n", 0o640),
        "usr/share/odd/never-unpacked": ("x\n", 0o644),
        "usr/share/odd/a.gone": ("x\n", 0o644),
        "usr/share/odd/b.gone": ("x\n", 0o644)})
    lists = ctx.mkdir("mirror/dists/bookworm/main/binary-amd64")
    arch = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()
    if arch != "amd64":
        lists = lists.replace("amd64", arch)
        os.makedirs(lists)
    found = ctx.ok(ctx.run("dpkg-scanpackages", ".", cwd=mirror)).out.encode()
    with open(os.path.join(lists, "Packages"), "wb") as file:
        file.write(found)
    ctx.write("mirror/dists/bookworm/Release", f"""Origin: Debian
Suite: oldstable
Codename: bookworm
Date: Sat, 10 Jun 2023 08:00:00 UTC
Architectures: {arch} all
Components: main
SHA256:
 {hashlib.sha256(found).hexdigest()} {len(found)} main/binary-{arch}/Packages
""")
    return f"deb [trusted=yes] copy:{mirror} bookworm main"


def members(archive):
    """The members of a .tar.zst by name, without the ./ before each."""
    data = subprocess.run(["zstd", "-dcq", archive], stdout=subprocess.PIPE, check=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            assert member.name == "." or member.name.startswith("./"), member.name
            assert ".." not in member.name.split("/"), member.name
            assert not {"atime", "ctime"} & member.pax_headers.keys(), member.pax_headers
            found[member.name[2:]] = member
    return found


def content(archive, name):
    """The text of one file in a .tar.zst."""
    script = 'zstd -dcq "$1" | tar -xO -f - "./$2"'
    return subprocess.run(["sh", "-c", script, "sh", archive, name], stdout=subprocess.PIPE,
                          text=True, check=True).stdout


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def unpack(ctx, archive):
    """Unpacks an archive into a folder as this identity."""
    tree = ctx.mkdir("tree")
    ctx.ok(ctx.run("sh", "-c", 'zstd -dcq "$1" | tar -x -C "$2"', "sh", archive, tree,
                   timeout=300))
    return tree


def inside(ctx, tree, *command, options=(), **kw):
    """Runs a command with the tree as a sandbox's root, as its user `sandbox`."""
    return ctx.run(ctx.nsbox, "--unshare-all", "--ro-bind", tree, "/", "--proc", "/proc", "--dev",
                   "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/sandbox", "--uid", "1000", "--gid",
                   "1000", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/usr/sbin",
                   "--setenv", "HOME", "/home/sandbox", "--chdir", "/home/sandbox", *options, "--",
                   *command, **kw)
