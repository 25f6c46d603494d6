"""The bwrap contract, part A: help, basic set-up, links, devices, leftovers in /tmp, packaging."""

import json
import os
import re
import shutil
import socket
import tempfile

from bwrap_parts import EXTRA_SETS
from harness import case

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@case("A1", "--help succeeds and names the path that the program was called with")
def help_names_the_path(ctx):
    result = ctx.ok(ctx.bw("--help"))
    ctx.true(f"usage: {ctx.bwrap}" in result.out, f"the usage line is missing\n{result}")


@case("A2", "a FUSE mount of the caller's can be bound, because the source is opened as the caller")
def fuse_source(ctx):
    mounter = os.path.join(ctx.probe_dir, "fuse_mount")
    directory = ctx.mkdir("fuse")
    # The probe alone first: it tells what the machine can do, and that the mount works.
    alone = ctx.run(mounter, directory, "cat", os.path.join(directory, "hello"))
    if alone.rc == 77:
        ctx.skip(f"{alone.err.strip()}: no FUSE file system can be mounted")
    ctx.ok(alone, out="from fuse")
    for extra in EXTRA_SETS:
        sandbox = (*ctx.RUN, *extra, "--proc", "/proc", "--dev", "/dev", "--bind", directory,
                   "/tmp/foo")
        ctx.ok(ctx.run(mounter, directory, ctx.bwrap, *sandbox, "true"))
        ctx.ok(ctx.run(mounter, directory, ctx.bwrap, *sandbox, "cat", "/tmp/foo/hello"),
               out="from fuse")


@case("A3", "a sandbox with --proc and without --dev starts")
def proc_alone(ctx):
    for extra in EXTRA_SETS:
        ctx.ok(ctx.bw(*ctx.RUN, *extra, "--proc", "/proc", "true"))
        ctx.ok(ctx.bw(*ctx.RUN, *extra, "--proc", "/proc", "test", "-e", "/proc/self/status"))


@case("A4", "a sandbox with a network namespace, --proc and --dev starts")
def proc_dev_net(ctx):
    outside = os.readlink("/proc/self/ns/net")
    for extra in EXTRA_SETS:
        base = (*ctx.RUN, *extra, "--unshare-net", "--proc", "/proc", "--dev", "/dev")
        ctx.ok(ctx.bw(*base, "true"))
        inside = ctx.ok(ctx.bw(*base, "readlink", "/proc/self/ns/net"))
        ctx.true(inside.out.strip() != outside, f"the network namespace is the caller's\n{inside}")


@case("A5", "a file that the caller cannot read cannot be read through a bind either", only="user")
def unreadable_file(ctx):
    ctx.true(not os.access("/etc/shadow", os.R_OK), "the ordinary user can read /etc/shadow")
    for extra in EXTRA_SETS:
        base = (*ctx.RUN, *extra, "--unshare-net", "--proc", "/proc")
        ctx.ok(ctx.bw(*base, "--bind", "/etc/passwd", "/tmp/foo", "grep", "-c", "^root:",
                      "/tmp/foo"), out="1")
        ctx.fails(ctx.bw(*base, "--bind", "/etc/shadow", "/tmp/foo", "cat", "/tmp/foo"),
                  err="Permission denied")
        ctx.ok(ctx.bw(*base, "--bind", "/etc/shadow", "/tmp/foo", "test", "-e", "/tmp/foo"))
        ctx.fails(ctx.bw(*base, "--bind", "/etc/shadow", "/tmp/foo", "cat", "/etc/shadow"),
                  err="Permission denied")


@case("A6", "a file below a directory that the caller cannot search cannot be bound", only="user")
def unsearchable_directory(ctx):
    ctx.true(not os.access("/root", os.X_OK), "the ordinary user can search /root")
    source = ctx.write("open/.bashrc", "readable")
    for extra in EXTRA_SETS:
        ctx.ok(ctx.bw(*ctx.RUN, *extra, "--bind", source, "/tmp/foo", "cat", "/tmp/foo"),
               out="readable")
        ctx.fails(ctx.bw(*ctx.RUN, *extra, "--bind", "/root/.bashrc", "/tmp/foo", "cat",
                         "/tmp/foo"), rc=1, err="^bwrap: .*/root/.bashrc.*Permission denied")


@case("A7", "a bind onto a relative symbolic link of the sandbox lands on the link's target")
def bind_through_link(ctx):
    for extra in EXTRA_SETS:
        base = (*ctx.RUN, *extra, "--dir", "/tmp/dir", "--symlink", "dir", "/tmp/link")
        ctx.ok(ctx.bw(*base, "--bind", "/etc", "/tmp/link", "true"))
        ctx.fails(ctx.bw(*base, "test", "-f", "/tmp/dir/passwd"), rc=1)
        ctx.ok(ctx.bw(*base, "--bind", "/etc", "/tmp/link", "test", "-f", "/tmp/dir/passwd"))


def link_sandbox(ctx):
    return (*ctx.RUN, "--ro-bind", "/", "/", "--bind", ctx.dir, ctx.dir)


@case("A8 A9", "--symlink makes the link, and makes it again without complaint")
def symlink_twice(ctx):
    link = os.path.join(ctx.dir, "symlink")
    for _ in range(2):
        ctx.ok(ctx.bw(*link_sandbox(ctx), "--symlink", "/dev/null", link, "true"))
        ctx.eq(os.readlink(link), "/dev/null", "the link's text on the host")


@case("A10", "--symlink refuses to replace a link that leads elsewhere")
def symlink_conflict(ctx):
    link = os.path.join(ctx.dir, "symlink")
    ctx.ok(ctx.bw(*link_sandbox(ctx), "--symlink", "/dev/null", link, "true"))
    ctx.fails(ctx.bw(*link_sandbox(ctx), "--symlink", "/dev/full", link, "true"), rc=1,
              err="Can't make symlink .*: existing destination is /dev/null")
    ctx.eq(os.readlink(link), "/dev/null", "the link's text on the host")


@case("A11", "--dev has the usual devices and links")
def devices(ctx):
    names = [f"/dev/{name}" for name in ("stdin", "stdout", "stderr", "null", "random", "urandom",
                                         "fd", "core")]
    base = (*ctx.RUN, "--unshare-pid", "--dev", "/dev")
    listing = ctx.ok(ctx.bw(*base, "ls", "-al", *names)).out
    for name in names:
        ctx.true(name in listing, f"{name} is not listed: {listing}")
    ctx.fails(ctx.bw(*base, "ls", "-al", "/dev/no-such-device"), rc=2)


@case("A12", "--as-pid-1 makes the command pid 1")
def as_pid_1(ctx):
    base = (*ctx.RUN, "--unshare-pid")
    ctx.ok(ctx.bw(*base, "--as-pid-1", "--bind", "/", "/", "bash", "-c", "echo $$"), out="1")
    without = ctx.ok(ctx.bw(*base, "--bind", "/", "/", "bash", "-c", "echo $$"))
    ctx.true(without.out.strip() != "1", f"the command is pid 1 without --as-pid-1\n{without}")


@case("A25", "a missing source of a bind is an error that names it")
def missing_source(ctx):
    result = ctx.bw(*ctx.RUN, "--unshare-pid", "--bind", "/source-enoent", "/dest", "true")
    ctx.fails(result, rc=1, err="^bwrap: Can't find source path.*source-enoent")


@case("A36", "a file in the real /tmp is there where /tmp is bound")
def real_tmp(ctx):
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="nsbox-test-") as file:
        file.write(b"hello from /tmp")
        file.flush()
        moved = os.path.join("/mnt", os.path.basename(file.name))
        for options, path in (((), file.name), (("--bind", "/tmp", "/tmp"), file.name),
                              (("--bind", "/tmp", "/mnt"), moved)):
            ctx.ok(ctx.bw("--bind", "/", "/", *options, "cat", path), out="hello from /tmp")
        # Where another /tmp is mounted it is not seen.
        ctx.fails(ctx.bw(*ctx.RUN, "cat", file.name), rc=1, err="No such file")


@case("A37", "nothing of the set-up is left in the sandbox's /tmp")
def no_leftovers(ctx):
    for options in (ctx.RUN, ("--bind", "/", "/", "--bind", ctx.dir, "/tmp"),
                    (*ctx.RUN, "--bind", ctx.dir, "/tmp/here")):
        ctx.ok(ctx.bw(*options, "test", "-d", "/tmp"))
        for name in ("oldroot", "newroot"):
            ctx.fails(ctx.bw(*options, "test", "-d", f"/tmp/{name}"), rc=1)
            ctx.fails(ctx.bw(*options, "test", "-e", f"/{name}"), rc=1)
    ctx.eq(sorted(os.listdir(ctx.dir)), [], "the directory that was bound to /tmp")


@case("A37", "nothing of the set-up or of the host is mounted over the new root")
def nothing_above(ctx):
    # Going up from "/" leads to whatever is mounted on top of it, and a process whose root is
    # covered by another mount counts as one in a chroot, which may make no user namespace.
    result = ctx.ok(ctx.bw(*ctx.USR, "sh", "-c", "ls -a / && echo up && ls -a /.."))
    inside, _, above = result.out.partition("up\n")
    ctx.true("usr" in inside.split(), f"the sandbox has no /usr\n{result}")
    ctx.eq(above, inside, "what is seen through /..")
    # As root this asks for nothing but the namespace; the ordinary user has one already.
    ctx.ok(ctx.bw(*ctx.USR, "unshare", "-U", "true"))


@case("A38", "the current directory can be bound to /tmp and below it")
def cwd_on_tmp(ctx):
    ctx.write("input", "some input")
    ctx.ok(ctx.bw("--bind", "/", "/", "--bind", ctx.dir, "/tmp", "cat", "/tmp/input"),
           out="some input")
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", ctx.dir, "/tmp/here", "cat", "/tmp/here/input"),
           out="some input")


@case("A40", "a socket can be bound onto a socket")
def socket_onto_socket(ctx):
    own = os.path.join(ctx.dir, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(own)
        listener.listen()
        places = [own]
        if os.path.exists("/dev/log"):
            places.append(os.path.realpath("/dev/log"))
        for place in places:
            base = (*ctx.RUN, "--bind", "/", "/", "--bind", place, place)
            ctx.ok(ctx.bw(*base, "true"))
            ctx.ok(ctx.bw(*base, "test", "-S", place))
        # It is still the same socket: somebody inside reaches the listener here.
        client = ctx.bw_popen(*ctx.RUN, "--bind", "/", "/", "--bind", own, own, "python3", "-c",
                              "import socket, sys\n"
                              "s = socket.socket(socket.AF_UNIX)\n"
                              "s.connect(sys.argv[1])\n"
                              "s.sendall(b'hi')\n", own)
        listener.settimeout(20)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(20)
            ctx.eq(connection.recv(16), b"hi", "what arrived over the socket")
        ctx.eq(client.wait(20), 0, "the client's status")


@case("A75", "the simplest sandbox with a private /tmp starts")
def simplest(ctx):
    ctx.ok(ctx.bw("--bind", "/", "/", "--tmpfs", "/tmp", "true"))
    ctx.fails(ctx.bw("--bind", "/", "/", "--tmpfs", "/tmp", "false"), rc=1)


@case("A76", "the completion files for bash and zsh know every option of --help")
def completions(ctx):
    options = re.findall(r"^    (--[a-z0-9-]+)", ctx.ok(ctx.bw("--help")).out, re.M)
    ctx.true(len(options) > 60, f"--help lists {len(options)} options only")
    for name in ("bash/nsbox", "zsh/_nsbox"):
        with open(os.path.join(REPOSITORY, "completions", name), encoding="utf-8") as f:
            text = f.read()
        missing = [option for option in options
                   if not re.search(re.escape(option) + r"(?![a-z0-9-])", text)]
        ctx.eq(missing, [], f"options that completions/{name} lacks")
    ctx.ok(ctx.run("bash", "-n", os.path.join(REPOSITORY, "completions", "bash", "nsbox")))


@case("A76", "the build works as a subproject, with a program prefix, and installs the program into "
      "libexecdir, with its rpath, and the completions", timeout=300)
def subproject(ctx):
    if not shutil.which("meson"):
        ctx.skip("meson is not installed")
    ctx.mkdir("outer/subprojects")
    os.symlink(REPOSITORY, os.path.join(ctx.dir, "outer", "subprojects", "nsbox"))
    build = "project('outer')\nsubproject('nsbox', default_options: ['tests=false'{}])\n"
    ctx.write("outer/meson.build", build.format(""))
    setup = ("meson", "setup", "--prefix", "/usr", "--libexecdir", "libexec")
    result = ctx.fails(ctx.run(*setup, "without", "outer", timeout=200))
    ctx.true("needs the option program_prefix" in result.out, f"the message\n{result}")
    ctx.write("outer/meson.build", build.format(", 'program_prefix=outer-', 'rpath=/opt/outer'"))
    ctx.ok(ctx.run(*setup, "build", "outer", timeout=200))
    plan = ctx.ok(ctx.run("meson", "introspect", "--installed", "build", timeout=60)).out
    places = set(json.loads(plan).values())
    # What is set at installation.
    with open(f"{ctx.dir}/build/meson-private/install.dat", "rb") as f:
        ctx.true(b"/opt/outer" in f.read(), "the program's rpath")
    for place in ("/usr/libexec/outer-nsbox", "/usr/share/bash-completion/completions/nsbox",
                  "/usr/share/zsh/site-functions/_nsbox"):
        ctx.true(place in places, f"{place} is not installed, only {sorted(places)}")
