"""Running rootfs/build, and looking at what came out."""

import hashlib
import io
import os
import subprocess
import tarfile

BUILD = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "rootfs", "build"))
USER = os.environ.get("NSBOX_TEST_USER", "nsbox-test")


def start_build(ctx, *words, as_user=False, **env):
    """Begins a build whose temporary files go below ctx.dir/tmp."""
    scratch = ctx.mkdir("tmp", 0o1777)
    other = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if as_user else []
    return ctx.popen(*other, BUILD, *words, env={**os.environ, "TMPDIR": scratch, **env})


def end_build(ctx, proc, timeout=180):
    _, err = proc.communicate(timeout=timeout)
    return proc.returncode, err.decode()


def build(ctx, *words, timeout=180, **env):
    return end_build(ctx, start_build(ctx, *words, **env), timeout)


def nothing_left(ctx, *wanted):
    """Neither temporary files nor parts of an archive are left; only `wanted` is in out/."""
    ctx.eq(os.listdir(os.path.join(ctx.dir, "tmp")), [], "temporary files")
    ctx.eq(sorted(os.listdir(os.path.join(ctx.dir, "out"))), sorted(wanted), "in the folder of OUT")


def ended(ctx, outcome, status, *words):
    rc, err = outcome
    ctx.eq(rc, status, f"status; stderr: {err}")
    for word in words:
        ctx.true(word in err, f"{word!r} is not in {err!r}")


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
