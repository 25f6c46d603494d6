"""A mirror of the tests' own, with two small packages."""

import hashlib
import os
import shutil
import subprocess

# When the programs in the packages were made, and the other files. No file of an archive may be
# newer than the newest of these.
NEWEST, OLDER = 1_600_000_000, 1_500_000_000
BUSYBOX = "/usr/bin/busybox"


def package(ctx, mirror, name, files):
    """A .deb that holds `files`: path to (content, mode)."""
    tree = ctx.mkdir(f"packages/{name}")
    for path, (data, mode) in files.items():
        full = ctx.write(f"packages/{name}/{path}", data, mode)
        when = NEWEST if mode & 0o111 else OLDER
        os.utime(full, (when, when))
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
