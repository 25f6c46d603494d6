"""Part B of the checklist, devices, files, descriptors as sources, overlays and odd hosts:
B47 to B54."""

import os
import select
import shutil
import tempfile
import time

from b_util import (finish, identities, private_mounts, program_elsewhere, root_without, sandbox)
from harness import case

BASE = ("--ro-bind", "/", "/")

DEVICES = {"null": "1:3", "zero": "1:5", "full": "1:7", "random": "1:8", "urandom": "1:9",
           "tty": "5:0"}
LINKS = {"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
         "fd": "/proc/self/fd", "core": "/proc/kcore", "ptmx": "pts/ptmx"}
FOLDERS = ("shm", "pts")
LIST_DEV = "find /dev -mindepth 1 -maxdepth 1 -printf '%f %y %l\\n'"


@case("B47", "/dev has exactly the devices, links and folders that it should have")
def dev_content(ctx):
    result = ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "sh", "-c", LIST_DEV))
    found = {line.split()[0]: line.split()[1:] for line in result.out.splitlines()}
    wanted = {name: ["c"] for name in DEVICES}
    wanted.update({name: ["l", target] for name, target in LINKS.items()})
    wanted.update({name: ["d"] for name in FOLDERS})
    ctx.eq(found, wanted, "names in /dev")
    result = ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "stat", "-c", "%n %Hr:%Lr",
                           *("/dev/" + name for name in DEVICES)))
    ctx.eq(dict(line.split() for line in result.out.splitlines()),
           {"/dev/" + name: number for name, number in DEVICES.items()}, "device numbers")


@case("B47", "/dev and what is in it has the right modes and works")
def dev_modes(ctx):
    ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "stat", "-c", "%a", "/dev", "/dev/shm", "/dev/pts",
                  "/dev/pts/ptmx"), out="755\n1777\n755\n666")
    ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "sh", "-c",
                  "echo > /dev/shm/x && echo > /dev/null && head -c 2 /dev/urandom | wc -c"),
           out="2")
    ctx.fails(ctx.bw(*BASE, "--dev", "/dev", "sh", "-c", "head -c 1 /dev/zero > /dev/full"),
              err="No space left on device")
    # Nothing of the host's shared memory or terminals shows.
    ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "ls", "-A", "/dev/shm", "/dev/pts"),
           out="/dev/pts:\nptmx\n\n/dev/shm:")


@case("B47", "a terminal can be opened in the sandbox's own /dev/pts")
def dev_pty(ctx):
    script = ("import os; a, b = os.openpty(); os.write(b, b'x'); "
              "print(os.read(a, 1).decode(), os.ttyname(b))")
    ctx.ok(ctx.bw(*BASE, "--dev", "/dev", "/usr/bin/python3", "-c", script), out="x /dev/pts/0")


class Terminal:
    """A terminal whose other end this process reads."""

    def __init__(self):
        self.master, self.slave = os.openpty()

    def text(self, seconds=10):
        data, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                data += os.read(self.master, 65536)
            except OSError:
                break
        return data.decode().replace("\r\n", "\n")

    def close_slave(self):
        os.close(self.slave)


@case("B47", "/dev/console is there when standard output is a terminal, and is that terminal")
def dev_console(ctx):
    terminal = Terminal()
    device = os.fstat(terminal.slave).st_rdev
    proc = ctx.bw_popen(*BASE, "--dev", "/dev", "sh", "-c",
                        "tty; stat -c %Hr:%Lr /dev/console; " + LIST_DEV + " | grep console",
                        stdin=terminal.slave, stdout=terminal.slave)
    terminal.close_slave()
    lines = [line.strip() for line in terminal.text().splitlines()]
    ctx.eq(proc.wait(10), 0, f"status; {lines} {proc.stderr.read()}")
    number = f"{os.major(device)}:{os.minor(device)}"
    ctx.eq(lines, ["/dev/console", number, "console c"], "what the terminal showed")
    os.close(terminal.master)


@case("B47", "/dev/console is not there when only stdin and stderr are a terminal")
def dev_no_console(ctx):
    terminal = Terminal()
    proc = ctx.bw_popen(*BASE, "--dev", "/dev", "ls", "/dev", stdin=terminal.slave,
                        stderr=terminal.slave)
    terminal.close_slave()
    out = ctx.ok(finish(ctx, proc)).out.split()
    ctx.true("null" in out and "console" not in out, f"names in /dev: {out}")
    os.close(terminal.master)


@case("B48", "--file copies from the descriptor's offset, and the descriptor works once")
def file_offset(ctx):
    fd = os.open(ctx.write("data", "0123456789"), os.O_RDONLY)
    os.lseek(fd, 4, os.SEEK_SET)
    ctx.ok(ctx.bw(*ctx.RUN, "--file", "9", "/tmp/f", "cat", "/tmp/f", fds={9: fd}), out="456789")
    ctx.fails(ctx.bw(*ctx.RUN, "--file", "9", "/tmp/f", "--file", "9", "/tmp/g", "true",
                     fds={9: fd}), rc=1, err=r"^bwrap: .*Bad file descriptor")
    os.close(fd)


@case("B48", "--file replaces a host file's content on a writable bind and keeps its mode")
def file_on_host(ctx):
    path = ctx.write("old", "a long old text", 0o640)
    ctx.ok(ctx.bw(*ctx.RUN, "--perms", "0600", "--file", "9", path, "cat", path,
                  fds={9: "new"}), out="new")
    with open(path) as f:
        ctx.eq(f.read(), "new", "the file on the host")
    ctx.eq(ctx.mode("old"), 0o640, "its mode")
    ctx.fails(ctx.bw(*BASE, "--file", "9", path, "true", fds={9: "other"}), rc=1,
              err=r"^bwrap: .*Read-only file system")
    with open(path) as f:
        ctx.eq(f.read(), "new", "the file on the host after a refusal")


@case("B48", "--file and --lock-file do not wait for somebody at the other end of a FIFO")
def fifo(ctx):
    pipe = f"{ctx.dir}/pipe"
    os.mkfifo(pipe)
    file = ctx.write("file", "old")
    for option, rc in ((("--file", "8"), 1), (("--lock-file",), None)):
        fds = {8: ctx.write("source", "new")} if option[0] == "--file" else {}
        for path in (file, pipe):
            result = ctx.bw("--bind", "/", "/", *option, path, "true", fds=fds, timeout=20)
            ctx.true(result.rc == 0 if path is file or rc is None else result.rc == rc, f"{result}")


@case("B48", "--file follows a link and names what it cannot read")
def file_errors(ctx):
    path = ctx.write("target", "old")
    os.symlink("target", ctx.dir + "/link")
    ctx.ok(ctx.bw(*ctx.RUN, "--file", "9", ctx.dir + "/link", "true", fds={9: "new"}))
    with open(path) as f:
        ctx.eq(f.read(), "new", "the link's target")
    unreadable = os.open(path, os.O_WRONLY)
    ctx.fails(ctx.bw(*ctx.RUN, "--file", "9", "/tmp/f", "true", fds={9: unreadable}), rc=1,
              err=r"^bwrap: .*/tmp/f: Bad file descriptor")
    os.close(unreadable)


@case("B49", "--bind-data covers an existing read-only file and leaves it alone")
def bind_data(ctx):
    path = ctx.write("tree/file", "host", 0o444)
    tree = ("--ro-bind", ctx.dir + "/tree", "/x")
    script = "cat /x/file; stat -c %a /x/file; {} >> /x/file; cat /x/file"
    ctx.ok(ctx.bw(*ctx.USR, *tree, "--bind-data", "9", "/x/file", "sh", "-c",
                  script.format("echo more"), fds={9: "data\n"}), out="data\n600\ndata\nmore")
    result = ctx.bw(*ctx.USR, *tree, "--ro-bind-data", "9", "/x/file", "sh", "-c",
                    "cat /x/file; stat -c %a /x/file; echo more >> /x/file", fds={9: "data\n"})
    ctx.fails(result, err="Read-only file system")
    ctx.eq(result.out, "data\n600\n", "stdout")
    with open(path) as f:
        ctx.eq(f.read(), "host", "the file on the host")
    ctx.eq(ctx.mode("tree/file"), 0o444, "its mode")


@case("B49", "the file of --bind-data belongs to the sandbox's ids and has no device in it")
def bind_data_owner(ctx):
    ctx.ok(ctx.bw(*ctx.USR, "--unshare-user", "--uid", "5", "--gid", "6", "--bind-data", "9",
                  "/new", "stat", "-c", "%u %g %a %s %h", "/new", fds={9: "data"}),
           out="5 6 600 4 0")


@case("B50", "the caller's umask has no influence on what is made, and the command gets it back")
def umask(ctx):
    file = ctx.write("file", "text")
    script = ("umask; stat -c '%a %n' /made /made/dir /tmp /file /data /data-mode /p /p/q "
              "/p/q/file /l /proc-like /proc-like/deep /sized")
    result = ctx.ok(ctx.bw(*ctx.USR, "--dir", "/made/dir", "--tmpfs", "/tmp", "--file", "9",
                           "/file", "--bind-data", "10", "/data", "--perms", "0644",
                           "--ro-bind-data", "11", "/data-mode", "--bind", file, "/p/q/file",
                           "--symlink", "x", "/l/link", "--tmpfs", "/proc-like/deep", "--size",
                           "4096", "--tmpfs", "/sized", "sh", "-c", script,
                           fds={9: "a", 10: "b", 11: "c"}, pre=lambda: os.umask(0o077)))
    lines = result.out.splitlines()
    ctx.eq(lines[0], "0077", "the command's umask")
    wanted = {"/made": "755", "/made/dir": "755", "/tmp": "755", "/file": "666", "/data": "600",
              "/data-mode": "644", "/p": "755", "/p/q": "755", "/p/q/file": "644", "/l": "755",
              "/proc-like": "755", "/proc-like/deep": "755", "/sized": "755"}
    ctx.eq({name: mode for mode, name in (line.split() for line in lines[1:])}, wanted, "modes")


@case("B50", "the mode of a mount point that a bind makes does not depend on the umask")
def umask_mount_points(ctx):
    tree = ctx.mkdir("tree")
    file = ctx.write("file")
    ctx.ok(ctx.bw(*ctx.USR, "--bind", tree, "/x", "--bind", file, "/x/file", "--bind", "/usr",
                  "/x/deep/folder", "true", pre=lambda: os.umask(0o077)))
    ctx.eq([oct(ctx.mode("tree/" + name)) for name in ("file", "deep", "deep/folder")],
           ["0o444", "0o755", "0o755"], "modes on the host")


BIND_FD = ("--bind-fd", "--ro-bind-fd")


@case("B51", "--bind-fd and --ro-bind-fd take a directory, a file and a descriptor for paths only")
def bind_fd(ctx):
    path = ctx.write("folder/file", "text")
    for flags in (os.O_RDONLY, os.O_PATH):
        folder = os.open(ctx.dir + "/folder", flags | os.O_DIRECTORY)
        file = os.open(path, flags)
        for option, code in zip(BIND_FD, (0, 2)):
            result = ctx.bw(*ctx.USR, option, "9", "/x", option, "10", "/f", "sh", "-c",
                            "cat /x/file /f; echo > /x/new && rm /x/new", fds={9: folder, 10: file})
            ctx.eq((result.rc, result.out), (code, "texttext"), f"{option}: {result}")
        os.close(folder)
        os.close(file)


@case("B51", "--bind-fd refuses a pipe, a closed descriptor and what has been deleted")
def bind_fd_refused(ctx):
    read, write = os.pipe()
    deleted_file = os.open(ctx.write("gone"), os.O_RDONLY)
    deleted_folder = os.open(ctx.mkdir("gone-folder"), os.O_RDONLY)
    os.unlink(ctx.dir + "/gone")
    os.rmdir(ctx.dir + "/gone-folder")
    for option in BIND_FD:
        for fds in ({9: read}, {}, {9: deleted_file}, {9: deleted_folder}):
            ctx.fails(ctx.bw(*ctx.RUN, option, "9", "/tmp/x", "true", fds=fds), rc=1,
                      err=r"^bwrap: Can't find source path /proc/self/fd/9")
    for fd in (read, write, deleted_file, deleted_folder):
        os.close(fd)


@case("B51", "--bind-fd uses up its descriptor")
def bind_fd_twice(ctx):
    fd = os.open(ctx.mkdir("folder"), os.O_RDONLY)
    for option in BIND_FD:
        ctx.fails(ctx.bw(*ctx.RUN, option, "9", "/tmp/x", option, "9", "/tmp/y", "true",
                         fds={9: fd}), rc=1, err=r"^bwrap: Can't stat fd 9: Bad file descriptor")
        ctx.ok(ctx.bw(*ctx.RUN, option, "9", "/tmp/x", option, "10", "/tmp/y", "true",
                      fds={9: fd, 10: fd}))
    os.close(fd)


@case("B51", "--bind-fd of a directory that has been mounted over never shows the wrong one",
      only="root")
def bind_fd_covered(ctx):
    ctx.write("folder/right", "right")
    with private_mounts() as host:
        # A descriptor from the old mount namespace cannot be bound; take one from this one.
        here = os.open(ctx.dir + "/folder", os.O_RDONLY)
        host.tmpfs(ctx.dir + "/folder")
        ctx.write("folder/wrong", "wrong")
        for who, prefix in identities():
            for option in BIND_FD:
                result = sandbox(ctx, prefix, *ctx.USR, option, "9", "/x", "ls", "/x",
                                 fds={9: here})
                if result.rc == 0:
                    ctx.eq(result.out, "right\n", f"names with {option} as {who}")
                else:
                    ctx.fails(result, rc=1, err=r"^bwrap: (.*[Rr]ace|Can't find source path)")
                ctx.true("wrong" not in result.out, f"the wrong directory as {who}\n{result}")
        os.close(here)


@case("B52", "--mqueue needs an ipc namespace of the sandbox's own", only="user")
def mqueue_refused(ctx):
    ctx.fails(ctx.bw(*ctx.USR, "--mqueue", "/mq", "true"), rc=1,
              err=r"^bwrap: Can't mount mqueue on .*/mq: Operation not permitted")
    ctx.ok(ctx.bw(*ctx.USR, "--unshare-ipc", "--mqueue", "/mq", "true"))


@case("B52", "--mqueue with --unshare-ipc mounts the message queues")
def mqueue(ctx):
    ctx.ok(ctx.bw(*BASE, "--tmpfs", "/tmp", "--unshare-ipc", "--mqueue", "/tmp/mq", "sh", "-c",
                  "stat -f -c %t /tmp/mq; : > /tmp/mq/queue && ls /tmp/mq"), out="19800202\nqueue")


@case("B52", "--size is rounded up to whole pages")
def size_pages(ctx):
    page = os.sysconf("SC_PAGESIZE")
    for size in (5000, page, page + 1, 1):
        result = ctx.ok(ctx.bw(*ctx.USR, "--size", str(size), "--tmpfs", "/x", "stat", "-f", "-c",
                               "%b %S", "/x"))
        blocks, block = (int(n) for n in result.out.split())
        ctx.eq(blocks * block, -(-size // page) * page, f"bytes for --size {size}")


OVERLAY = r"^bwrap: Can't make overlay mount on .*/x"


@case("B53", "an overlay with a file as source is refused")
def overlay_file(ctx):
    file, lower = ctx.write("file"), ctx.mkdir("lower")
    for options in (("--overlay-src", file, "--tmp-overlay", "/x"),
                    ("--overlay-src", lower, "--overlay-src", file, "--ro-overlay", "/x")):
        ctx.fails(ctx.bw(*ctx.USR, *options, "true"), rc=1,
                  err=OVERLAY + ".*(Invalid argument|Not a directory)")
    ctx.ok(ctx.bw(*ctx.USR, "--overlay-src", lower, "--tmp-overlay", "/x", "true"))


@case("B53", "overlay directories that overlap are refused with a text that says so")
def overlay_overlap(ctx):
    lower, below, work = ctx.mkdir("lower"), ctx.mkdir("lower/below"), ctx.mkdir("work")
    for options in (("--overlay-src", lower, "--overlay-src", below, "--ro-overlay", "/x"),
                    ("--overlay-src", lower, "--overlay", lower, work, "/x")):
        ctx.fails(ctx.bw(*ctx.USR, *options, "true"), rc=1,
                  err=OVERLAY + ".*Overlay directories may not overlap")
    ctx.ok(ctx.bw(*ctx.USR, "--overlay-src", lower, "--overlay", ctx.mkdir("upper"), work, "/x",
                  "true"))


@case("B53", "an overlay whose work directory is on another file system is refused")
def overlay_other_filesystem(ctx):
    lower, upper = ctx.mkdir("lower"), ctx.mkdir("upper")
    other = tempfile.mkdtemp(prefix="nsbox-test-", dir="/dev/shm")
    try:
        if os.stat(other).st_dev == os.stat(upper).st_dev:
            ctx.skip("/dev/shm is on the same file system as /var/tmp")
        ctx.fails(ctx.bw(*ctx.USR, "--overlay-src", lower, "--overlay", upper, other, "/x", "true"),
                  rc=1, err=OVERLAY + ".*Invalid argument")
    finally:
        shutil.rmtree(other, ignore_errors=True)
    ctx.ok(ctx.bw(*ctx.USR, "--overlay-src", lower, "--overlay", upper, ctx.mkdir("work"), "/x",
                  "true"))


def nested(ctx, outer, *inner):
    """Runs the program in a sandbox whose top level is `outer`, under its name there."""
    options, name = program_elsewhere(ctx)
    return ctx.run(ctx.bwrap, *outer, *options, name, "--ro-bind", "/usr", "/usr", *inner)


LINKS_TO_USR = ("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",
                "usr/lib64", "/lib64")


@case("B54", "the program needs no /tmp on the host's side, and a link there is as good")
def host_without_tmp(ctx):
    inner = (*LINKS_TO_USR, "--dir", "/tmp", "echo", "hello")
    for how in (("--dir", "/var/empty-tmp"), ("--symlink", "var/tmp", "/tmp"),
                ("--symlink", "nowhere", "/tmp"), ("--ro-bind", "/dev/null", "/tmp"),
                ("--ro-bind", "/usr", "/tmp")):
        outer = root_without("tmp", "dev", "var") + ["--dev", "/dev", "--dir", "/var/tmp", *how]
        ctx.ok(nested(ctx, outer, *inner), out="hello")


@case("B54", "without /proc on the host's side the program works or says that it needs it")
def host_without_proc(ctx):
    outer = root_without("proc")
    for options in ((), ("--unshare-user",), ("--unshare-all",)):
        result = nested(ctx, outer, *LINKS_TO_USR, *options, "echo", "hello")
        if result.rc == 0:
            ctx.eq(result.out, "hello\n", f"output with {options}")
        else:
            ctx.fails(result, rc=1, err=r"^bwrap: .*/proc")
            ctx.eq(result.out, "", f"output with {options}")
    ctx.ok(nested(ctx, root_without(), *LINKS_TO_USR, "echo", "hello"), out="hello")


@case("B54", "a /proc that shows processes only is enough for the program", only="root")
def host_with_small_proc(ctx):
    with private_mounts() as host:
        host.mount("proc", "/proc", 0, "subset=pid")
        ctx.true(not os.path.exists("/proc/sys"), "the small procfs is in place")
        for who, prefix in identities():
            for options in ((), ("--unshare-user",), ("--dev", "/dev"), ("--unshare-pid",)):
                result = sandbox(ctx, prefix, *ctx.USR, *options, "echo", "hello")
                ctx.true((result.rc, result.out) == (0, "hello\n"), f"as {who}: {result}")
