"""What suites about root filesystems of the store share."""

import io
import json
import os
import pwd
import subprocess
import tarfile

import harness


def subordinate_maps(ctx):
    """Options for all ids that root filesystems of this user may have, and his own; none without."""
    words = []
    for path, option, own in (("/etc/subuid", "--map-uid", ctx.uid), ("/etc/subgid", "--map-gid", ctx.gid)):
        with open(path, encoding="ascii") as f:
            lines = [line.strip().split(":") for line in f]
        first = [line[1] for line in lines if line[0] in (pwd.getpwuid(ctx.uid).pw_name, str(ctx.uid))]
        if not first:
            return None
        words += [option, f"0:{first[0]}:65536", option, f"65536:{own}:1"]
    return words


def case(ids, text, **kw):
    """A case that takes away what belongs to the caller's subordinate ids, which the harness cannot."""
    def register(func):
        def run(ctx):
            try:
                func(ctx)
            finally:
                maps = None if ctx.root else subordinate_maps(ctx)
                if maps:
                    ctx.bw(*maps, "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--bind", "/", "/",
                           "find", ctx.dir, "-mindepth", "1", "-delete")
        return harness.case(ids, text, **kw)(run)
    return register


class Store:
    """A store of the case's own, and the program that works on it."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.path = os.path.join(ctx.dir, "store")
        self.env = dict(os.environ, NSBOX_STORE=self.path)

    def run(self, *words, nsbox=None, **kw):
        return self.ctx.run(nsbox or self.ctx.nsbox, "rootfs", *words, env=self.env, timeout=60, **kw)

    def digest(self, *words, **kw):
        """What an import, a commit or a build prints."""
        text = self.ctx.ok(self.run(*words, **kw)).out.strip()
        self.ctx.true(len(text) == 64, f"a digest: {text!r}")
        return text

    def diff(self, folder):
        return self.ctx.ok(self.run("diff", folder)).out.splitlines()

    def show(self, name):
        return json.loads(self.ctx.ok(self.run("show", "--json", name)).out)

    def in_sandbox(self, *words):
        """The words of a sandbox on a root, as root inside, with the host's programs on top."""
        return (self.ctx.nsbox, "run", "--root", "--ro", "/usr",
                *[word for name in ("bin", "lib", "lib64") if os.path.islink("/" + name)
                  for word in ("--symlink", os.readlink("/" + name), "/" + name)], *words)

    def sandbox(self, *words):
        return self.ctx.run(*self.in_sandbox(*words), env=self.env, timeout=60)

    def members(self, name):
        """Everything of an export: path -> what tar knows of it, with a file's content."""
        proc = subprocess.run([self.ctx.nsbox, "rootfs", "export", name], env=self.env, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.ctx.eq((proc.returncode, proc.stderr), (0, b""), "export")
        with tarfile.open(fileobj=io.BytesIO(proc.stdout)) as tar:
            return {os.path.normpath(m.name): (m, tar.extractfile(m).read() if m.isreg() else b"")
                    for m in tar}
