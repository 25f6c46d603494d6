"""Bugs of bwrap that nsbox does not have: one or more cases for every known bug Q1 to Q44.

Each case shows the right behaviour and, beside it, a positive control: the same action where it
is allowed, or the same observation where there is something to be seen.
"""

import os
import re
import signal
import struct
import subprocess
import time

import nshelp
from harness import case, descendants, kill_all
from nshelp import (CLONE_NEWPID, mount, mount_options, private_mounts, status_caps)

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CAPS = ("grep", "^Cap", "/proc/self/status")


def tree(ctx, name="r"):
    """A root filesystem that holds nothing but what the caller puts there."""
    return ctx.mkdir(name)


def nothing_left(ctx, why):
    ctx.until(lambda: not descendants(os.getpid()), why=f"the end of every process ({why})")


def lines(result):
    return result.out.splitlines()


def is_here(text, word):
    """The word stands in the text on its own: --bind is not found in --bind-fd."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


# -- Q1 ----------------------------------------------------------------------------------------

FIND_PROC = r"""
for dir in /proc/1/fd /proc/self/fd; do
  for fd in $dir/*; do [ -e "$fd/HOSTPID/cmdline" ] && echo "LEAK $fd"; done
done
echo done
"""


@case("Q1", "a caller with a closed stdin does not hand the sandbox the host's /proc")
def closed_stdin(ctx):
    script = FIND_PROC.replace("HOSTPID", str(os.getpid()))
    args = (*ctx.RUN, "--unshare-pid", "--proc", "/proc", "sh", "-c", script)
    ctx.ok(ctx.bw(*args, pre=lambda: os.close(0)), out="done")
    # The control: the script does find the host's procfs where it was handed in on purpose.
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    seen = ctx.ok(ctx.bw(*args, fds={0: proc}))
    os.close(proc)
    ctx.true("LEAK /proc/self/fd/0" in seen.out, f"the script finds nothing at all\n{seen}")


@case("Q1", "a caller without any standard descriptor gets its status and no internal descriptor")
def closed_stdio(ctx):
    def close_all():
        for fd in (0, 1, 2):
            os.close(fd)

    out = ctx.mkdir("out")
    script = (f"ls -l /proc/self/fd >{out}/fds; ls -l /proc/1/fd >{out}/pid1 2>/dev/null; "
              f"for n in 0 1 2; do [ -d /proc/self/fd/$n ] && echo dir >>{out}/fds; done; exit 4")
    result = ctx.bw("--bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "sh",
                    "-c", script, pre=close_all)
    ctx.eq(result.rc, 4, "the status")
    with open(os.path.join(out, "fds")) as f:
        text = f.read()
    # ls opens the folder that it lists; the shell's redirection is the file "fds".
    targets = {line.split(" -> ")[1] for line in text.splitlines() if " -> " in line}
    strange = {t for t in targets if t != "/dev/null" and not t.endswith("/out/fds")
               and not re.fullmatch(r"/proc/\d+/fd", t)}
    ctx.eq(strange, set(), f"descriptors of the command\n{text}")
    ctx.true("/out/fds" in text, "the listing shows the redirection")
    ctx.true("dir" not in text.split(), f"one of 0 to 2 is a folder\n{text}")


# -- Q2 ----------------------------------------------------------------------------------------

@case("Q2", "root without a capability cannot be given it and never keeps all others", only="root")
def missing_capability(ctx):
    def without_time():
        nshelp.drop_bounding(nshelp.CAP_SYS_TIME)

    for words in (("--cap-drop", "ALL", "--cap-add", "CAP_SYS_TIME"),
                  ("--cap-add", "CAP_SYS_TIME"),
                  ("--cap-drop", "ALL", "--cap-add", "CAP_KILL", "--cap-add", "CAP_SYS_TIME")):
        result = ctx.bw(*ctx.RUN, *words, *CAPS, pre=without_time)
        ctx.fails(result, rc=1, err=r"(?i)^bwrap: .*sys_time")
        ctx.eq(result.out, "", "the command's output")
    # Controls: a capability that root holds is given alone, and in a user namespace of its own
    # root holds every capability.
    held = ctx.ok(ctx.bw(*ctx.RUN, "--cap-drop", "ALL", "--cap-add", "CAP_KILL", *CAPS,
                         pre=without_time))
    ctx.eq(status_caps(held.out)["CapEff"], 1 << nshelp.CAP_KILL, "CapEff with CAP_KILL")
    inner = ctx.ok(ctx.bw("--unshare-user", *ctx.RUN, "--cap-drop", "ALL", "--cap-add",
                          "CAP_SYS_TIME", *CAPS, pre=without_time))
    ctx.eq(status_caps(inner.out)["CapEff"], 1 << nshelp.CAP_SYS_TIME, "CapEff in a user namespace")


@case("Q2", "--cap-add gives exactly the named capability and --cap-drop takes exactly it away")
def exact_capabilities(ctx):
    one = ctx.ok(ctx.bw(*ctx.RUN, "--unshare-user", "--cap-drop", "ALL", "--cap-add", "CAP_KILL",
                        *CAPS))
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        ctx.eq(status_caps(one.out)[name], 1 << nshelp.CAP_KILL, name)
    every = status_caps(ctx.ok(ctx.bw(*ctx.RUN, "--unshare-user", "--cap-add", "ALL", *CAPS)).out)
    less = status_caps(ctx.ok(ctx.bw(*ctx.RUN, "--unshare-user", "--cap-add", "ALL", "--cap-drop",
                                     "CAP_KILL", *CAPS)).out)
    ctx.eq(every["CapEff"] & ~less["CapEff"], 1 << nshelp.CAP_KILL, "what --cap-drop took")


# -- Q3 ----------------------------------------------------------------------------------------

def fds_of(ctx, *args, fds):
    """The numbers of the descriptors above 2 that the command sees."""
    script = 'for f in /proc/self/fd/*; do echo "${f##*/}"; done'
    result = ctx.ok(ctx.bw(*args, "bash", "-c", script, fds=fds))
    # The glob of bash holds the folder open while it reads it: that number no longer exists.
    shown = {int(n) for n in result.out.split()}
    return {n for n in shown if n in fds or n > 40}


@case("Q3", "the descriptors of --userns and --pidns are closed for the command")
def joined_descriptors(ctx):
    outer = nshelp.holder(ctx, "-r", "--pid", "--fork", "--kill-child")
    inner = ctx.until(lambda: nshelp.children_of(outer.pid), why="the child of unshare")[0]
    user = os.open(f"/proc/{inner}/ns/user", os.O_RDONLY)
    pid = os.open(f"/proc/{inner}/ns/pid", os.O_RDONLY)
    null = os.open("/dev/null", os.O_RDONLY)
    fds = {21: user, 22: pid, 23: null}
    ids = ("--uid", "0", "--gid", "0")
    seen = fds_of(ctx, "--bind", "/", "/", "--userns", "21", "--pidns", "22", *ids, fds=fds)
    ctx.eq(seen, {23}, "with --userns and --pidns; 23 has nothing to do with options")
    seen = fds_of(ctx, "--bind", "/", "/", "--userns", "21", "--pidns", "22", "--unshare-pid",
                  *ids, fds=fds)
    ctx.eq(seen, {23}, "with --unshare-pid too")
    nshelp.end_tree(ctx, outer)


def two_levels(ctx):
    """A user namespace and another one below it: (process, fd, process, fd)."""
    outer = nshelp.holder(ctx, "-r")
    first = os.open(f"/proc/{outer.pid}/ns/user", os.O_RDONLY)
    inner = ctx.popen("nsenter", f"--user=/proc/{outer.pid}/ns/user", "--preserve-credentials",
                      "unshare", "-r", "sh", "-c", "echo ready; exec sleep 60",
                      stdout=subprocess.PIPE)
    ctx.eq(inner.stdout.readline(), b"ready\n", "the inner user namespace")
    second = os.open(f"/proc/{inner.pid}/ns/user", os.O_RDONLY)
    return outer, first, inner, second


@case("Q3", "the descriptor of --userns2 is closed for the command")
def userns2_descriptor(ctx):
    outer, first, inner, second = two_levels(ctx)
    null = os.open("/dev/null", os.O_RDONLY)
    fds = {21: first, 22: second, 23: null}
    seen = fds_of(ctx, "--bind", "/", "/", "--userns", "21", "--userns2", "22", fds=fds)
    ctx.eq(seen, {23}, "descriptors of the command; 23 has nothing to do with options")
    nshelp.end_tree(ctx, inner)
    nshelp.end_tree(ctx, outer)


@case("Q3", "the descriptor of --userns-block-fd is closed for the command")
def userns_block_descriptor(ctx):
    block_read, block_write = os.pipe()
    info_read, info_write = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    script = 'for f in /proc/self/fd/*; do echo "${f##*/}"; done'
    proc = ctx.bw_popen("--bind", "/", "/", "--unshare-user", "--userns-block-fd", "21",
                        "--info-fd", "22", "bash", "-c", script,
                        fds={21: block_read, 22: info_write, 23: null})
    os.close(info_write)
    os.close(block_read)
    info = b""
    while chunk := os.read(info_read, 4096):
        info += chunk
    child = int(re.search(rb'"child-pid": (\d+)', info)[1])
    with open(f"/proc/{child}/setgroups", "w") as f:
        f.write("deny")
    for kind, number in (("uid", ctx.uid), ("gid", ctx.gid)):
        with open(f"/proc/{child}/{kind}_map", "w") as f:
            f.write(f"{number} {number} 1")
    os.write(block_write, b"x")
    out, err = proc.communicate(timeout=20)
    ctx.eq(proc.returncode, 0, f"the status; {err}")
    shown = {int(n) for n in out.split()}
    ctx.eq(shown & {21, 22, 23}, {23}, "descriptors of the command")


# -- Q4 ----------------------------------------------------------------------------------------

@case("Q4", "a read-only bind covers a submount below a folder that the user cannot search",
      only="root")
def unsearchable_submount(ctx):
    import pwd
    user = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))
    top = ctx.mkdir("top")
    os.makedirs(os.path.join(top, "secret/m"))
    os.makedirs(os.path.join(top, "open/m"))
    os.chmod(os.path.join(top, "secret"), 0o700)
    prepare = private_mounts(
        lambda: mount("t", top + "/secret/m", "tmpfs"), lambda: mount("t", top + "/open/m", "tmpfs"))

    def prepare_user():
        prepare()
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)

    before = ctx.ok(ctx.run("cat", "/proc/self/mountinfo", pre=prepare_user)).out
    ctx.true("rw" in mount_options(before, top + "/secret/m"), "the submount is writable outside")
    ctx.fails(ctx.run("ls", top + "/secret/m", pre=prepare_user), err="Permission denied")
    inside = ctx.ok(ctx.bw("--ro-bind", "/", "/", "cat", "/proc/self/mountinfo",
                           pre=prepare_user)).out
    for name in ("secret", "open"):
        options = mount_options(inside, f"{top}/{name}/m")
        ctx.true(options is not None, f"the submount below {name} is there\n{inside}")
        ctx.true({"ro", "nosuid", "nodev"} <= options, f"the submount below {name}: {options}")


# -- Q5 ----------------------------------------------------------------------------------------

@case("Q5", "a bind keeps nosymfollow of its source")
def nosymfollow(ctx):
    point = ctx.mkdir("m")

    def links():
        with open(point + "/file", "w") as f:
            f.write("text\n")
        os.symlink("file", point + "/link")

    prepare = private_mounts(
        lambda: mount("t", point, "tmpfs", nshelp.MS_NOSYMFOLLOW), links)
    control = ctx.ok(ctx.run("cat", "/proc/self/mountinfo", pre=prepare))
    if "nosymfollow" not in mount_options(control.out, point):
        ctx.skip("this kernel does not know nosymfollow (Linux before 5.10)")
    for option in ("--bind", "--ro-bind", "--dev-bind"):
        args = (*ctx.RUN, option, point, "/tmp/x")
        shown = ctx.ok(ctx.bw(*args, "cat", "/proc/self/mountinfo", pre=prepare)).out
        ctx.true("nosymfollow" in mount_options(shown, "/tmp/x"), f"{option} at its target")
        ctx.true("nosymfollow" in mount_options(shown, point), f"{option}: the submount of /")
        ctx.fails(ctx.bw(*args, "cat", "/tmp/x/link", pre=prepare), err="symbolic links")
        ctx.ok(ctx.bw(*args, "cat", "/tmp/x/file", pre=prepare), out="text")


# -- Q6 ----------------------------------------------------------------------------------------

@case("Q6", "overlays are mounted nosuid and nodev")
def overlay_flags(ctx):
    lower, second = ctx.mkdir("lower"), ctx.mkdir("second")
    upper, work = ctx.mkdir("upper"), ctx.mkdir("work")
    source = ("--overlay-src", lower)
    for words in ((*source, "--tmp-overlay", "/tmp/o"),
                  (*source, "--overlay-src", second, "--ro-overlay", "/tmp/o"),
                  (*source, "--overlay", upper, work, "/tmp/o")):
        shown = ctx.ok(ctx.bw(*ctx.RUN, *words, "cat", "/proc/self/mountinfo")).out
        options = mount_options(shown, "/tmp/o")
        ctx.true({"nosuid", "nodev"} <= options, f"{words}: {options}")


@case("Q6", "a device node in a lower layer cannot be opened in an overlay", only="root")
def overlay_device(ctx):
    lower = ctx.mkdir("lower")
    os.mknod(lower + "/null", 0o666 | 0o020000, os.makedev(1, 3))
    os.chmod(lower + "/null", 0o666)
    overlay = ("--overlay-src", lower, "--tmp-overlay", "/tmp/o")
    ctx.fails(ctx.bw(*ctx.RUN, *overlay, "cat", "/tmp/o/null"), err="Permission denied")
    ctx.ok(ctx.bw(*ctx.RUN, "--dev-bind", lower, "/tmp/o", "cat", "/tmp/o/null"), out="")


# -- Q7 ----------------------------------------------------------------------------------------

@case("Q7", "dots in a destination cannot leave the new root")
def dots_stay_inside(ctx):
    root = tree(ctx)
    ctx.ok(ctx.bw("--bind", root, "/", *ctx.USR, "--dir", "/../foo", "--dir", "/a/../../../bar",
                  "sh", "-c", "test -d /foo && test -d /bar"))
    ctx.true(os.path.isdir(root + "/foo") and os.path.isdir(root + "/bar"), "made in the root")
    ctx.true(not os.path.exists("/foo") and not os.path.exists("/bar"), "not made on the host")


@case("Q7", "an absolute symlink at a destination means what it means inside")
def absolute_link_destination(ctx):
    root = tree(ctx)
    real = ctx.mkdir("r/real")
    source = ctx.mkdir("source")
    ctx.write("source/name", "from the source")
    os.symlink("/real", root + "/link")
    ctx.write("r/file", "below")
    os.symlink("/file", root + "/flink")
    base = ("--bind", root, "/", *ctx.USR)
    ctx.ok(ctx.bw(*base, "--bind", source, "/link", "cat", "/real/name"), out="from the source")
    ctx.ok(ctx.bw(*base, "--ro-bind", source + "/name", "/flink", "cat", "/file"),
           out="from the source")
    ctx.ok(ctx.bw(*base, "--tmpfs", "/link", "sh", "-c", "echo x >/real/y; ls /real"), out="y")
    ctx.ok(ctx.bw(*base, "--dir", "/link/made", "test", "-d", "/real/made"))
    ctx.eq(sorted(os.listdir(real)), ["made"], "what the sandboxes left in the folder")
    ctx.eq(sorted(os.listdir(source)), ["name"], "the source")


@case("Q7", "a symlink in the new root cannot lead set-up code onto the host")
def links_stay_inside(ctx):
    victim = ctx.mkdir("victim")
    climb = "../" * 12
    for number, target in enumerate((f"/oldroot{victim}", f"{climb}oldroot{victim}", victim,
                                     f"{climb.rstrip('/')}{victim}", f"/newroot/..{victim}",
                                     f"/proc/self/root{victim}", f"/proc/1/root{victim}")):
        root = tree(ctx, f"r{number}")
        os.symlink(target, root + "/data")
        base = ("--bind", root, "/", *ctx.USR)
        for words in (("--dir", "/data/made"), ("--file", "9", "/data/file"),
                      ("--ro-bind", "/etc/hostname", "/data/x/hostname"),
                      ("--symlink", "t", "/data/s"), ("--tmpfs", "/data/t"),
                      ("--bind-data", "9", "/data/b")):
            result = ctx.bw(*base, *words, "true", fds={9: "text"})
            ctx.true(result.rc in (0, 1), f"works or fails cleanly\n{result}")
            if result.rc == 1:
                ctx.true(re.search(r"^bwrap: .*data", result.err), f"names the link\n{result}")
            ctx.eq(os.listdir(victim), [], f"after {words} through a link to {target}")
    # The control: the caller may write there, and a bind that was asked for leads there.
    ctx.ok(ctx.bw("--bind", victim, "/data", *ctx.USR, "--dir", "/data/made", "--file", "9",
                  "/data/file", "true", fds={9: "text"}))
    ctx.eq(sorted(os.listdir(victim)), ["file", "made"], "through a bind")


# -- Q8 ----------------------------------------------------------------------------------------

def held_lock(path):
    """A write lock of this process on a new file at `path`."""
    import fcntl
    f = open(path, "w")
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return f


@case("Q8", "the command never runs when the lock cannot be taken")
def lock_refused(ctx):
    path, out = os.path.join(ctx.dir, "lock"), ctx.mkdir("out")
    held = held_lock(path)
    for extra in ((), ("--unshare-pid",), ("--die-with-parent",)):
        result = ctx.bw(*ctx.RUN, *extra, "--lock-file", path, "touch", out + "/ran")
        ctx.fails(result, rc=1, err=r"^bwrap: Unable to lock file .*lock")
        nothing_left(ctx, f"with {extra}")
        ctx.eq(os.listdir(out), [], f"what the command did with {extra}")
    held.close()
    ctx.ok(ctx.bw(*ctx.RUN, "--lock-file", path, "touch", out + "/ran"))
    ctx.eq(os.listdir(out), ["ran"], "the control")


@case("Q8", "the command finds the lock taken when it starts, however slow the locking is")
def lock_before_command(ctx):
    nshelp.need_strace(ctx)
    path = ctx.write("lock")
    number = os.stat(path).st_ino
    look = ("grep", "-cE", rf"POSIX +ADVISORY +READ .*:{number} 0 EOF", "/proc/locks")
    for extra in ((), ("--unshare-pid", "--proc", "/proc")):
        result, calls = nshelp.traced(
            ctx, ctx.bwrap, "--bind", "/", "/", *extra, "--lock-file", path, *look,
            inject=["fcntl:delay_enter=150000"])
        ctx.ok(result, out="1")
        ctx.true(any("F_SETLK" in c.line or "F_OFD_SETLK" in c.line for c in calls),
                 "the lock was taken with fcntl, which this case slows down")
    ctx.fails(ctx.bw("--bind", "/", "/", *look), rc=1)


# -- Q9 ----------------------------------------------------------------------------------------

def full_pipe():
    """A pipe whose next write blocks: (read end, write end)."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    return read, write


@case("Q9 Q39", "a status descriptor without a reader ends the start with an error, nobody waits")
def no_reader(ctx):
    for option in ("--info-fd", "--json-status-fd"):
        for extra in ((), ("--unshare-pid",), ("--unshare-all", "--die-with-parent")):
            read, write = os.pipe()
            os.close(read)
            out = os.path.join(ctx.dir, "ran")
            result = ctx.bw("--bind", "/", "/", *extra, option, "9", "touch", out, fds={9: write})
            os.close(write)
            ctx.fails(result, rc=1, err=r"^bwrap: .*Broken pipe")
            nothing_left(ctx, option)
            ctx.true(not os.path.exists(out), f"the command ran with {option}")
    with open("/dev/full", "w") as full:
        result = ctx.bw(*ctx.RUN, "--info-fd", "9", "true", fds={9: full})
        ctx.fails(result, rc=1, err=r"^bwrap: .*No space left on device")
        nothing_left(ctx, "/dev/full")
    read, write = os.pipe()
    ctx.ok(ctx.bw(*ctx.RUN, "--info-fd", "9", "true", fds={9: write}))
    ctx.true(b"child-pid" in os.read(read, 4096), "the control: a pipe with a reader")


@case("Q9", "killing the launcher while it starts a sandbox leaves no process behind")
def killed_while_starting(ctx):
    for option in ("--info-fd", "--json-status-fd"):
        for extra in ((), ("--unshare-pid",)):
            read, write = full_pipe()
            proc = ctx.bw_popen("--bind", "/", "/", *extra, option, "9", "sleep", "50",
                                fds={9: write})
            os.close(write)
            # It writes the status only when its child exists: now it blocks.
            ctx.until(lambda: nshelp.children_of(proc.pid), why="the launcher's child")
            proc.kill()
            proc.wait(5)
            nothing_left(ctx, f"{option} {extra}")
            os.close(read)


@case("Q9", "a user namespace that cannot be entered at the end leaves no process behind")
def bad_userns2(ctx):
    outer = nshelp.holder(ctx, "-r")
    own = os.open("/proc/self/ns/user", os.O_RDONLY)
    user = os.open(f"/proc/{outer.pid}/ns/user", os.O_RDONLY)
    out = os.path.join(ctx.dir, "ran")
    result = ctx.bw("--bind", "/", "/", "--userns", "21", "--userns2", "22", "touch", out,
                    fds={21: user, 22: own})
    ctx.fails(result, rc=1, err="^bwrap: ")
    ctx.true(not os.path.exists(out), "the command ran")
    ctx.until(lambda: [p for p, _ in descendants(os.getpid())] == [outer.pid],
              why="the end of every process of the sandbox")
    ctx.ok(ctx.bw("--bind", "/", "/", "--userns", "21", "touch", out, fds={21: user}))
    nshelp.end_tree(ctx, outer)


# -- Q10 ---------------------------------------------------------------------------------------

@case("Q10", "--die-with-parent holds from the first moment of the child", timeout=150)
def dies_at_once(ctx):
    for extra in (("--unshare-pid",), (), ("--unshare-all", "--dev", "/dev")):
        for _ in range(25):
            proc = ctx.bw_popen("--bind", "/", "/", *extra, "--die-with-parent", "sleep", "55")
            end = time.monotonic() + 5
            while not nshelp.children_of(proc.pid) and time.monotonic() < end:
                pass
            proc.kill()
            proc.wait(5)
            nothing_left(ctx, f"with {extra}")
    # The control: without the option a running sandbox outlives its launcher.
    proc = ctx.bw_popen("--bind", "/", "/", "--unshare-pid", "sh", "-c", "echo up; exec sleep 55")
    ctx.eq(proc.stdout.readline(), b"up\n", "the command")
    proc.kill()
    proc.wait(5)
    ctx.true([name for _, name in descendants(os.getpid()) if name == "sleep"],
             "the sandbox without the option is gone too")
    kill_all(pid for pid, _ in descendants(os.getpid()))


@case("Q10", "--die-with-parent follows the parent of the launcher, in every shape of sandbox")
def dies_with_parent(ctx):
    outer = nshelp.holder(ctx, "-r", "--pid", "--fork", "--kill-child")
    inner = ctx.until(lambda: nshelp.children_of(outer.pid), why="the child of unshare")[0]
    user = os.open(f"/proc/{inner}/ns/user", os.O_RDONLY)
    pid = os.open(f"/proc/{inner}/ns/pid", os.O_RDONLY)
    joined = ("--userns", "21", "--pidns", "22", "--uid", "0", "--gid", "0")
    for extra in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"), joined,
                  (*joined, "--unshare-pid"), (*joined, "--unshare-pid", "--as-pid-1")):
        shell = ctx.popen("sh", "-c", '"$@"; exit', "sh", ctx.bwrap, "--bind", "/", "/",
                          "--die-with-parent", *extra, "sh", "-c", "echo up; exec sleep 54",
                          fds={21: user, 22: pid})
        ctx.eq(shell.stdout.readline(), b"up\n", f"the command with {extra}")
        before = {p for p, name in descendants(os.getpid()) if name == "sleep"}
        ctx.true(len(before) == 2, f"the holder's sleep and the sandbox's: {before}")
        shell.kill()
        shell.wait(5)

        def gone():
            return {p for p, _ in descendants(os.getpid())} <= {outer.pid, inner}

        ctx.until(gone, why=f"the end of the sandbox with {extra}")
    nshelp.end_tree(ctx, outer)


@case("Q10", "the list of differences says what --die-with-parent does about threads and children")
def die_with_parent_documented(ctx):
    row = difference(ctx, "Q10")
    ctx.true("thread" in row.lower(), f"the row speaks of threads: {row}")


# -- Q11 ---------------------------------------------------------------------------------------

@case("Q11", "a pid namespace below a joined one gives its status and never hangs")
def pidns_below_joined(ctx):
    outer = nshelp.holder(ctx, "-r", "--pid", "--fork", "--kill-child")
    inner = ctx.until(lambda: nshelp.children_of(outer.pid), why="the child of unshare")[0]
    user = os.open(f"/proc/{inner}/ns/user", os.O_RDONLY)
    pid = os.open(f"/proc/{inner}/ns/pid", os.O_RDONLY)
    base = ("--userns", "21", "--pidns", "22", "--uid", "0", "--gid", "0", "--unshare-pid",
            "--bind", "/", "/")
    fds = {21: user, 22: pid}
    result = ctx.bw(*base, "sh", "-c", "echo $$; exit 7", fds=fds)
    ctx.eq((result.rc, result.out.strip()), (7, "2"), "status and pid under an init")
    result = ctx.bw(*base, "--as-pid-1", "sh", "-c", "echo $$; exit 7", fds=fds)
    ctx.eq((result.rc, result.out.strip()), (7, "1"), "status and pid as pid 1")
    for extra in ((), ("--as-pid-1",)):
        ctx.fails(ctx.bw(*base, *extra, "--bind", "/nonexistent", "/x", "true", fds=fds), rc=1,
                  err="^bwrap: Can't find source path")
        ctx.fails(ctx.bw(*base, *extra, "/nonexistent", fds=fds), rc=1, err="^bwrap: execvp ")
    nshelp.end_tree(ctx, outer)


@case("Q11", "an init below a joined pid namespace that is killed ends the launcher with 137")
def killed_init_below_joined(ctx):
    outer = nshelp.holder(ctx, "-r", "--pid", "--fork", "--kill-child")
    inner = ctx.until(lambda: nshelp.children_of(outer.pid), why="the child of unshare")[0]
    user = os.open(f"/proc/{inner}/ns/user", os.O_RDONLY)
    pid = os.open(f"/proc/{inner}/ns/pid", os.O_RDONLY)
    for extra in ((), ("--as-pid-1",)):
        read, write = os.pipe()
        proc = ctx.bw_popen("--userns", "21", "--pidns", "22", "--uid", "0", "--gid", "0",
                            "--unshare-pid", *extra, "--info-fd", "23", "--bind", "/", "/", "sh",
                            "-c", "echo up; exec sleep 50", fds={21: user, 22: pid, 23: write})
        os.close(write)
        ctx.eq(proc.stdout.readline(), b"up\n", "the command")
        child = int(re.search(rb'"child-pid": (\d+)', os.read(read, 4096))[1])
        os.kill(child, signal.SIGKILL)
        ctx.eq(proc.wait(10), 137, f"the status with {extra}")
    nshelp.end_tree(ctx, outer)


# -- Q12 ---------------------------------------------------------------------------------------

@case("Q12", "missing parents are made with mode 0755, whatever the umask")
def parents_are_0755(ctx):
    lower, source = ctx.mkdir("lower"), ctx.write("file", "text")
    made = {
        "bind": ("--bind", source, "/tmp/bind/a/b"),
        "ro-bind": ("--ro-bind", lower, "/tmp/ro-bind/a/b"),
        "dev-bind": ("--dev-bind", lower, "/tmp/dev-bind/a/b"),
        "symlink": ("--symlink", "x", "/tmp/symlink/a/b"),
        "proc": ("--proc", "/tmp/proc/a/b"),
        "dev": ("--dev", "/tmp/dev/a/b"),
        "mqueue": ("--unshare-ipc", "--mqueue", "/tmp/mqueue/a/b"),
        "tmpfs": ("--tmpfs", "/tmp/tmpfs/a/b"),
        "dir": ("--dir", "/tmp/dir/a/b"),
        "file": ("--file", "9", "/tmp/file/a/b"),
        "bind-data": ("--bind-data", "9", "/tmp/bind-data/a/b"),
        "ro-bind-data": ("--ro-bind-data", "9", "/tmp/ro-bind-data/a/b"),
        "overlay": ("--overlay-src", lower, "--tmp-overlay", "/tmp/overlay/a/b"),
        "bind-fd": ("--bind-fd", "10", "/tmp/bind-fd/a/b"),
    }
    for name, words in made.items():
        folder = os.open(lower, os.O_PATH)
        result = ctx.bw(*ctx.RUN, *words, "stat", "-c", "%a", f"/tmp/{name}", f"/tmp/{name}/a",
                        fds={9: "text", 10: folder}, pre=lambda: os.umask(0o077))
        os.close(folder)
        ctx.eq(ctx.ok(result).out.split(), ["755", "755"], f"the parents of --{name}")
    # The control: an explicit mode does reach the parents, as the contract says.
    result = ctx.bw(*ctx.RUN, "--perms", "0700", "--dir", "/tmp/p/a", "stat", "-c", "%a", "/tmp/p")
    ctx.ok(result, out="700")


# -- Q13 ---------------------------------------------------------------------------------------

@case("Q13", "a trailing slash of a destination changes nothing")
def trailing_slash(ctx):
    source = ctx.write("file", "text")
    folder = ctx.mkdir("folder")
    ctx.write("folder/name", "in the folder")
    for slash in ("", "/", "//"):
        ctx.ok(ctx.bw(*ctx.RUN, "--perms", "0711", "--dir", "/tmp/d" + slash, "stat", "-c", "%a",
                      "/tmp/d"), out="711")
        ctx.ok(ctx.bw(*ctx.RUN, "--bind", source, "/tmp/f" + slash, "cat", "/tmp/f"), out="text")
        ctx.ok(ctx.bw(*ctx.RUN, "--ro-bind", folder, "/tmp/b" + slash, "cat", "/tmp/b/name"),
               out="in the folder")
        ctx.ok(ctx.bw(*ctx.RUN, "--file", "9", "/tmp/w" + slash, "cat", "/tmp/w",
                      fds={9: "data"}), out="data")
        ctx.ok(ctx.bw(*ctx.RUN, "--symlink", "there", "/tmp/s" + slash, "readlink", "/tmp/s"),
               out="there")
        ctx.ok(ctx.bw(*ctx.RUN, "--perms", "0700", "--tmpfs", "/tmp/t" + slash, "stat", "-c", "%a",
                      "/tmp/t"), out="700")


# -- Q14 ---------------------------------------------------------------------------------------

@case("Q14", "a modifier that nothing uses before the command is an error")
def pending_modifier(ctx):
    for tail in (("true",), ("--", "true")):
        ctx.fails(ctx.bw(*ctx.RUN, "--perms", "0700", *tail), rc=1,
                  err=r"^bwrap: --perms must be followed by an option that creates a file")
        ctx.fails(ctx.bw(*ctx.RUN, "--size", "4096", *tail), rc=1,
                  err=r"^bwrap: --size must be followed by --tmpfs")
        ctx.ok(ctx.bw(*ctx.RUN, "--perms", "0700", "--size", "4096", "--tmpfs", "/tmp/t", *tail))


# -- Q15 ---------------------------------------------------------------------------------------

@case("Q15", "an overlay source before --args meets the overlay that the stream begins with")
def overlay_through_args(ctx):
    lower, second = ctx.mkdir("lower"), ctx.mkdir("second")
    upper, work = ctx.mkdir("upper"), ctx.mkdir("work")
    ctx.write("lower/a", "one")
    for stream in (("--tmp-overlay", "/tmp/o"),
                   ("--overlay", upper, work, "/tmp/o"),
                   ("--overlay-src", second, "--ro-overlay", "/tmp/o"),
                   ("--overlay-src", second, "--tmp-overlay", "/tmp/o")):
        result = ctx.bw(*ctx.RUN, "--overlay-src", lower, "--args", "9", "cat", "/tmp/o/a",
                        fds={9: "\0".join(stream) + "\0"})
        ctx.ok(result, out="one")
    ctx.ok(ctx.bw(*ctx.RUN, "--overlay-src", lower, "--tmp-overlay", "/tmp/o", "cat", "/tmp/o/a"),
           out="one")
    for stream in ("", "--dir\0/tmp/d\0"):
        ctx.fails(ctx.bw(*ctx.RUN, "--overlay-src", lower, "--args", "9", "true",
                         fds={9: stream}), rc=1, err=r"^bwrap: --overlay-src must be followed by")


# -- Q16 ---------------------------------------------------------------------------------------

@case("Q16", "there is no limit on the number of words")
def many_words(ctx):
    result = ctx.bw(*ctx.RUN, "sh", "-c", 'echo "$# ${12000}"', "sh",
                    *(str(n) for n in range(1, 12001)))
    ctx.ok(result, out="12000 12000")
    stream = "".join(f"--setenv\0V{n}\0{n}\0" for n in range(5000))
    result = ctx.bw(*ctx.RUN, "--args", "9", "sh", "-c", 'echo "$V0 $V4999"', fds={9: stream})
    ctx.ok(result, out="0 4999")
    words = [w for n in range(4000) for w in ("--setenv", f"V{n}", str(n))]
    ctx.ok(ctx.bw(*ctx.RUN, *words, "sh", "-c", 'echo "$V3999"'), out="3999")


# -- Q17 ---------------------------------------------------------------------------------------

@case("Q17", "numbers are read strictly and in their full range")
def strict_numbers(ctx):
    for text in ("4294967305", " 9", "+9", "9 ", "0x9", "", "-1", "9a", "99999999999999999999"):
        for option in ("--args", "--info-fd", "--seccomp", "--block-fd", "--sync-fd", "--userns"):
            ctx.fails(ctx.bw(*ctx.RUN, option, text, "true", fds={9: ""}), rc=1,
                      err=rf"^bwrap: Invalid fd: {re.escape(text)}$")
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: ""}))
    for option, name in (("--uid", "uid"), ("--gid", "gid")):
        for text in ("4294967295", "4294967296", " 5", "+5", "5x", "-5", "", "0x5",
                     "18446744073709551617"):
            ctx.fails(ctx.bw("--unshare-user", *ctx.RUN, option, text, "true"), rc=1,
                      err=rf"^bwrap: Invalid {name}: {re.escape(text)}$")
        for text in ("0", "5", "2147483648", "4294967294"):
            ctx.ok(ctx.bw("--unshare-user", *ctx.RUN, option, text, "id", "-" + name[0]), out=text)
    for text in (" 7", "+7", "8", "", "10000", "0x7", "7 "):
        ctx.fails(ctx.bw(*ctx.RUN, "--perms", text, "--dir", "/tmp/d", "true"), rc=1,
                  err=r"^bwrap: --perms takes an octal argument <= 0?7777")
    ctx.ok(ctx.bw(*ctx.RUN, "--perms", "7", "--dir", "/tmp/d", "stat", "-c", "%a", "/tmp/d"),
           out="7")
    for text in (" 5", "+5", "0", "", "5k", "-5", "99999999999999999999"):
        ctx.fails(ctx.bw(*ctx.RUN, "--size", text, "--tmpfs", "/tmp/t", "true"), rc=1,
                  err=r"^bwrap: --size ")
    ctx.ok(ctx.bw(*ctx.RUN, "--size", "0x2000", "--tmpfs", "/tmp/t", "true"))


# -- Q18 ---------------------------------------------------------------------------------------

@case("Q18", "text after a capability's name is refused, not ignored")
def capability_lists(ctx):
    for option in ("--cap-drop", "--cap-add"):
        for text in ("cap_chown,cap_kill", "cap_chown+ep", "cap_chown ", "cap_chown=", "ALL,",
                     "5,6", "64", "-1", "", "cap_", "all cap_chown", "cap_cap_chown"):
            ctx.fails(ctx.bw("--unshare-user", *ctx.RUN, option, text, "true"), rc=1,
                      err=rf"^bwrap: unknown cap: {re.escape(text)}")
        for text in ("cap_chown", "CAP_CHOWN", "chown", "Chown", "ALL", "all", "5"):
            ctx.ok(ctx.bw("--unshare-user", *ctx.RUN, option, text, "true"))


# -- Q19 ---------------------------------------------------------------------------------------

@case("Q19", "the -try forms skip a source below a file, as they skip a missing one")
def try_enotdir(ctx):
    ctx.write("file", "text")
    os.symlink("loop", os.path.join(ctx.dir, "loop"))
    for option in ("--bind-try", "--ro-bind-try", "--dev-bind-try"):
        for source in ("file/below", "missing", "missing/below"):
            result = ctx.bw(*ctx.RUN, option, os.path.join(ctx.dir, source), "/tmp/p/x", "ls",
                            "-A", "/tmp")
            ctx.ok(result, out="")
        ctx.fails(ctx.bw(*ctx.RUN, option, os.path.join(ctx.dir, "loop"), "/tmp/x", "true"), rc=1,
                  err=r"^bwrap: Can't find source path .*loop: Too many levels")
        ctx.ok(ctx.bw(*ctx.RUN, option, os.path.join(ctx.dir, "file"), "/tmp/x", "cat", "/tmp/x"),
               out="text")
    ctx.fails(ctx.bw(*ctx.RUN, "--bind", os.path.join(ctx.dir, "file/below"), "/tmp/x", "true"),
              rc=1, err=r"^bwrap: Can't find source path .*: Not a directory")


@case("Q19", "the -try forms do not hide a source that may not be looked at", only="user")
def try_eacces(ctx):
    locked = ctx.mkdir("locked")
    ctx.write("locked/file", "text")
    os.chmod(locked, 0)
    ctx.fails(ctx.bw(*ctx.RUN, "--bind-try", locked + "/file", "/tmp/x", "true"), rc=1,
              err=r"^bwrap: Can't find source path .*locked/file: Permission denied")
    os.chmod(locked, 0o755)
    ctx.ok(ctx.bw(*ctx.RUN, "--bind-try", locked + "/file", "/tmp/x", "cat", "/tmp/x"), out="text")


# -- Q20 ---------------------------------------------------------------------------------------

@case("Q20", "--remount-ro adds read-only and nothing else")
def remount_adds_ro_only(ctx):
    def options(*words):
        shown = ctx.ok(ctx.bw("--bind", "/", "/", *words, "cat", "/proc/self/mountinfo")).out
        found = mount_options(shown, "/mnt")
        ctx.true(found is not None, f"a mount at /mnt with {words}")
        return found

    source = ctx.mkdir("source")
    for words in (("--dev-bind", source, "/mnt"), ("--bind", source, "/mnt"),
                  ("--tmpfs", "/mnt"), ("--dev-bind", "/dev", "/mnt")):
        before = options(*words)
        after = options(*words, "--remount-ro", "/mnt")
        ctx.eq(after, (before - {"rw"}) | {"ro"}, f"the options with {words}")
    # A device of a dev-bind stays usable, and the mount is really read-only.
    base = ("--bind", "/", "/", "--dev-bind", "/dev", "/mnt")
    for words in (base, (*base, "--remount-ro", "/mnt")):
        ctx.ok(ctx.bw(*words, "sh", "-c", "echo x >/mnt/null && head -c1 /mnt/zero | wc -c"),
               out="1")
    base = ("--bind", "/", "/", "--dev-bind", source, "/mnt")
    ctx.ok(ctx.bw(*base, "touch", "/mnt/x"))
    ctx.fails(ctx.bw(*base, "--remount-ro", "/mnt", "touch", "/mnt/y"), err="Read-only file system")


# -- Q21 ---------------------------------------------------------------------------------------

# Only opened, never written: these are the machine's real settings.
DANGEROUS = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/swappiness",
             "/proc/sys/kernel/hostname", "/proc/sysrq-trigger")


@case("Q21", "the sandbox of real root cannot open the host's settings for writing", only="root")
def host_settings(ctx):
    there = [path for path in DANGEROUS if os.path.exists(path)]
    ctx.true(len(there) >= 3, f"settings to try: {there}")
    for path in there:
        os.close(os.open(path, os.O_WRONLY))
    script = "for f in " + " ".join(there) + "; do if : 3<>$f; then echo OPENED $f; fi; done; echo end"
    script = script.replace("if : 3<>$f", 'if (exec 3<>"$f")')
    for words in (("--unshare-all",), ("--unshare-pid",), (), ("--unshare-pid", "--cap-drop", "ALL"),
                  ("--unshare-user", "--unshare-pid", "--uid", "1000", "--gid", "1000"),
                  ("--unshare-user", "--unshare-pid"), ("--unshare-pid", "--as-pid-1")):
        result = ctx.bw("--ro-bind", "/", "/", *words, "--proc", "/proc", "sh", "-c", script)
        ctx.ok(result, out="end")
        for path in there:
            ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, "--proc", "/proc", "test", "-e", path))
    for name in ("irq", "bus", "fs"):
        if os.path.isdir("/proc/" + name):
            shown = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "cat",
                                  "/proc/self/mountinfo")).out
            options = mount_options(shown, "/proc/" + name)
            ctx.true(options and "ro" in options, f"/proc/{name} is read-only: {options}")
    # The control: the same opening works through a bind of /proc that root asked for.
    result = ctx.bw("--dev-bind", "/", "/", "sh", "-c", script)
    ctx.eq(result.out.count("OPENED"), len(there), f"openings through a plain bind\n{result}")


# -- Q22 ---------------------------------------------------------------------------------------

@case("Q22", "/dev/shm of --dev is open to everybody, with the sticky bit")
def shm_mode(ctx):
    result = ctx.bw("--ro-bind", "/", "/", "--dev", "/dev", "sh", "-c",
                    "stat -c %a /dev/shm; echo x >/dev/shm/x && cat /dev/shm/x; stat -c %a /dev")
    ctx.eq(ctx.ok(result).out.split(), ["1777", "x", "755"], "modes and a file")


@case("Q22", "another user of the sandbox may write to /dev/shm", only="root")
def shm_other_user(ctx):
    base = ("--ro-bind", "/", "/", "--dev", "/dev", "setpriv", "--reuid", "65534", "--regid",
            "65534", "--clear-groups", "sh", "-c")
    ctx.ok(ctx.bw(*base, "echo x >/dev/shm/x && cat /dev/shm/x"), out="x")
    ctx.fails(ctx.bw(*base, "echo x >/dev/x"), err="(Permission denied|cannot create)")


# -- Q23 ---------------------------------------------------------------------------------------

@case("Q23", "a signal to the launcher ends the launcher as in bwrap, and the list says so")
def signals_stay_compatible(ctx):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        proc = ctx.bw_popen("--bind", "/", "/", "--unshare-pid", "sh", "-c",
                            "echo up; exec sleep 53")
        ctx.eq(proc.stdout.readline(), b"up\n", "the command")
        proc.send_signal(number)
        ctx.eq(proc.wait(5), -number, "how the launcher ended")
        sleepers = [p for p, name in descendants(os.getpid()) if name == "sleep"]
        ctx.eq(len(sleepers), 1, "commands that go on")
        kill_all(pid for pid, _ in descendants(os.getpid()))
        nothing_left(ctx, "after the case killed the sandbox")
    difference(ctx, "Q23")


# -- Q24 ---------------------------------------------------------------------------------------

@case("Q24", "a loopback that may not be configured is reported with the kernel's own error",
      only="root")
def loopback_refused(ctx):
    def without_net_admin():
        nshelp.drop_bounding(nshelp.CAP_NET_ADMIN)

    result = ctx.bw(*ctx.RUN, "--unshare-net", "true", pre=without_net_admin)
    ctx.fails(result, rc=1, err=r"^bwrap: loopback: Failed RTM_NEW(ADDR|LINK): "
                                r"Operation not permitted")
    shown = ctx.ok(ctx.bw(*ctx.RUN, "--unshare-net", "cat", "/proc/net/fib_trie"))
    ctx.true("127.0.0.1" in shown.out, f"the control: the loopback has its address\n{shown}")


@case("Q24", "an interface that is already configured is no error")
def loopback_twice(ctx):
    # A new network namespace never has a configured lo: the kernel's answer is replaced.
    nshelp.need_strace(ctx)
    # The pid namespace makes the process's number, which is part of an answer, the same each time.
    args = (ctx.bwrap, "--bind", "/", "/", "--unshare-pid", "--unshare-net", "cat",
            "/proc/net/fib_trie")
    plain, calls = nshelp.traced(ctx, *args)
    ctx.ok(plain)
    ctx.true("127.0.0.1" in plain.out, "the address is there")
    addresses = [c for c in calls if "SIOCSIFADDR" in c.line
                 or re.search(r"nlmsg_type=(0x14|RTM_NEWADDR)", c.line)]
    if not addresses:
        # The kernel gives lo its address by itself when the interface goes up, and takes no
        # offence when that has happened before. What it may refuse is the going up.
        call = next(c for c in calls if "SIOCSIFFLAGS" in c.line)
        result, _ = nshelp.traced(ctx, *args, inject=[f"ioctl:error=EPERM:when={call.index}"])
        ctx.fails(result, rc=1, err="^bwrap: loopback: Failed RTM_NEWLINK: Operation not permitted")
        return
    if addresses[0].name == "ioctl":
        call = addresses[0]
        result, _ = nshelp.traced(ctx, *args, inject=[f"ioctl:error=EEXIST:when={call.index}"])
        ctx.ok(result)
        result, _ = nshelp.traced(ctx, *args, inject=[f"ioctl:error=EPERM:when={call.index}"])
        ctx.fails(result, rc=1, err="^bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted")
        return
    # By netlink: the acknowledgement is a header of 16 bytes and a negative error number. The
    # header is what the plain run received; the number is ours.
    asked = calls.index(addresses[0])
    answer = next(c for c in calls[asked + 1:]
                  if c.name == "recvfrom" and c.pid == calls[asked].pid)
    seq = re.search(r"nlmsg_seq=(\d+|0x[0-9a-f]+)", answer.line)
    pid = re.search(r"nlmsg_pid=(\d+)", answer.line)
    ctx.true(seq is not None, f"the answer can be read: {answer}")
    for error, good in ((17, True), (1, False)):
        head = struct.pack("=IHHII", 36, 2, 0x100, int(seq[1], 0), int(pid[1]) if pid else 0)
        poke = (head + struct.pack("=i", -error)).hex()
        result, _ = nshelp.traced(ctx, *args, inject=[
            f"recvfrom:poke_exit=@arg2={poke}:when={answer.index}"])
        if good:
            ctx.ok(result)
        else:
            ctx.fails(result, rc=1, err="loopback: Failed RTM_NEWADDR: Operation not permitted")


# -- Q25 ---------------------------------------------------------------------------------------

@case("Q25", "the mount table is not read once per bind")
def mountinfo_reads(ctx):
    nshelp.need_strace(ctx)

    def opens(count):
        binds = [w for n in range(count) for w in ("--ro-bind", "/usr", f"/tmp/m{n}")]
        result, calls = nshelp.traced(ctx, ctx.bwrap, *ctx.RUN, *binds, "ls", "/tmp/m0")
        ctx.ok(result)
        ctx.true("bin" in result.out.split(), "the binds are there")
        reads = [c for c in calls if re.match(r"(open|openat|openat2)\(.*mountinfo", c.line)
                 or c.name in ("statmount", "listmount")]
        return len(reads), len(calls)

    few, calls_few = opens(5)
    some, calls_some = opens(25)
    many, calls_many = opens(45)
    ctx.eq(many, few, f"openings of the mount table with 5 and with 45 binds ({some} with 25)")
    ctx.true(few <= 2, f"openings of the mount table: {few}")
    # The calls for one bind do not grow with the binds before it.
    first, second = calls_some - calls_few, calls_many - calls_some
    ctx.true(0 < first and abs(second - first) <= 4, f"calls for 20 binds, twice: {first} {second}")


# -- Q26 ---------------------------------------------------------------------------------------

CHURN = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
points = [p.encode() for p in sys.argv[1:]]
count = 0
while os.read(0, 0) is not None:
    for p in points:
        if libc.mount(b"t", p, b"tmpfs", 0, None) == 0:
            count += 1
    for p in points:
        libc.umount2(p, 2)
    if count % 20 == 0 or count < 20:
        os.write(1, b"%d\n" % count)
    if os.path.exists(os.environ["STOP"]) or count > 200000:
        break
"""


@case("Q26", "mounts that come and go in parallel do not stop a start", timeout=150)
def parallel_mounts(ctx):
    top = ctx.mkdir("top")
    points = [ctx.mkdir(f"top/m{n}") for n in range(8)]
    stop = os.path.join(ctx.dir, "stop")
    script = ctx.write("churn.py", CHURN)
    # One shell is the parent of both, in a shared mount namespace: every change of the churning
    # process reaches the sandbox while it is being built.
    loop = (f'STOP={stop} /usr/bin/python3 {script} {" ".join(points)} >{ctx.dir}/churn & '
            f'n=0; good=0; while [ $n -lt 60 ]; do n=$((n+1)); '
            f'"{ctx.bwrap}" --unshare-user --ro-bind / / --ro-bind {top} {top} --dev /dev true '
            f'&& good=$((good+1)); done; touch {stop}; wait; echo good=$good')
    result = ctx.run("bash", "-c", loop, timeout=120,
                     pre=private_mounts(shared=True, as_root=True))
    ctx.ok(result, out="good=60")
    ctx.eq(result.err, "", "messages")
    with open(ctx.dir + "/churn") as f:
        count = int(f.read().split()[-1])
    ctx.true(count > 100, f"mounts that were made meanwhile: {count}")


# -- Q27 ---------------------------------------------------------------------------------------

@case("Q27", "eighty overlay layers with long names work")
def many_layers(ctx):
    words = []
    for n in range(80):
        name = f"layers/{n:03d}-" + "x" * 60
        ctx.write(f"{name}/only-{n}", str(n))
        ctx.write(f"{name}/all", str(n))
        words += ["--overlay-src", os.path.join(ctx.dir, name)]
    ctx.true(sum(len(w) for w in words) > 4096, "more than a page of names")
    for last in (("--tmp-overlay", "/tmp/o"), ("--ro-overlay", "/tmp/o")):
        result = ctx.bw(*ctx.RUN, *words, *last, "sh", "-c",
                        "ls /tmp/o | wc -l; cat /tmp/o/all /tmp/o/only-0 /tmp/o/only-79")
        ctx.eq(ctx.ok(result).out.split(), ["81", "79079"], f"the content of {last[0]}")


@case("Q27", "an overlay of a tree with submounts works, or the message says what is in the way")
def layers_with_submounts(ctx):
    lower = ctx.mkdir("lower")
    ctx.mkdir("lower/sub")
    ctx.write("lower/name", "text")
    prepare = private_mounts(lambda: mount("t", lower + "/sub", "tmpfs"))
    args = (*ctx.RUN, "--overlay-src", lower, "--tmp-overlay", "/tmp/o", "cat", "/tmp/o/name")
    ctx.ok(ctx.bw(*args), out="text")
    result = ctx.bw(*args, pre=prepare)
    if result.rc != 0:
        ctx.fails(result, rc=1, err=r"^bwrap: Can't make overlay mount on /tmp/o.*(?i:submount|"
                                    r"hold no mounts|mount(s|ed)? (point )?(below|under|inside|in))")
    else:
        ctx.ok(result, out="text")


# -- Q28 ---------------------------------------------------------------------------------------

@case("Q28", "a working directory whose logical path is missing inside is found by its real path")
def physical_directory(ctx):
    real, home = ctx.mkdir("real"), ctx.mkdir("home")
    link = os.path.join(ctx.dir, "link")
    os.symlink("real", link)
    env = dict(os.environ, PWD=link, HOME=home)
    script = ("sh", "-c", 'echo "$PWD"; readlink /proc/self/cwd')
    base = (*ctx.USR, "--proc", "/proc", "--bind", home, home)
    result = ctx.bw(*base, "--bind", real, real, *script, env=env, cwd=link)
    ctx.eq(ctx.ok(result).out.split(), [real, real], "only the real path exists")
    result = ctx.bw("--bind", "/", "/", *script, env=env, cwd=link)
    ctx.eq(ctx.ok(result).out.split(), [link, real], "both paths exist")
    result = ctx.bw(*base, *script, env=env, cwd=link)
    ctx.eq(ctx.ok(result).out.split(), [home, home], "neither path exists")


# -- Q29 ---------------------------------------------------------------------------------------

@case("Q29", "--bind-fd over a symlink is no race and puts the folder at the link's target")
def bind_fd_over_link(ctx):
    source = ctx.mkdir("source")
    ctx.write("source/name", "text")
    for option in ("--bind-fd", "--ro-bind-fd"):
        for target in ("real", "/tmp/real"):
            folder = os.open(source, os.O_PATH)
            result = ctx.bw(*ctx.RUN, "--dir", "/tmp/real", "--symlink", target, "/tmp/link",
                            option, "9", "/tmp/link", "cat", "/tmp/real/name", fds={9: folder})
            os.close(folder)
            ctx.ok(result, out="text")


@case("Q29", "--bind-fd never shows what was mounted over its folder, and no stale error text")
def bind_fd_overmounted(ctx):
    source = ctx.mkdir("source")
    ctx.write("source/name", "right")
    args = (ctx.bwrap, *ctx.RUN, "--bind-fd", "9", "/tmp/x", "cat", "/tmp/x/name")

    def start(cover):
        def prepare():
            nshelp.private_mounts()()
            # The descriptor must be of this mount namespace, and older than the cover.
            folder = os.open(source, os.O_PATH)
            if cover:
                mount("t", source, "tmpfs")
                with open(source + "/name", "w") as f:
                    f.write("wrong")
            os.dup2(folder, 9, inheritable=True)
        return ctx.run(*args, fds={9: b""}, pre=prepare)

    ctx.ok(start(cover=False), out="right")
    result = start(cover=True)
    ctx.true("wrong" not in result.out, f"the wrong folder was shown\n{result}")
    if result.rc == 0:
        ctx.ok(result, out="right")
    else:
        ctx.fails(result, rc=1, err=r"^bwrap: Race condition binding dirfd")
        ctx.true(not re.search(r"Success|dirfd: (No such|Invalid|Bad)", result.err),
                 f"an error text that has nothing to do with it\n{result}")


# -- Q30 ---------------------------------------------------------------------------------------

@case("Q30", "words of --args that nobody reads are not passed over in silence")
def rest_of_args(ctx):
    for rest in ("--\0--dir\0/tmp/r\0", "stray\0", "--\0stray\0", "stray\0--dir\0/tmp/r\0"):
        result = ctx.bw(*ctx.RUN, "--args", "9", "ls", "-A", "/tmp",
                        fds={9: "--dir\0/tmp/q\0" + rest})
        ctx.true(re.search(r"^bwrap: .*--args", result.err, re.M), f"a message\n{result}")
        ctx.true(result.rc in (0, 1), f"the status\n{result}")
        if result.rc == 0:
            ctx.ok(result, out="q")
    result = ctx.bw(*ctx.RUN, "--args", "9", "ls", "-A", "/tmp", fds={9: "--dir\0/tmp/q\0"})
    ctx.eq((ctx.ok(result).out.strip(), result.err), ("q", ""), "without a rest")


# -- Q31 ---------------------------------------------------------------------------------------

@case("Q31", "an ordinary user who holds a capability may start a sandbox, and it is gone inside")
def ambient_capability(ctx):
    uid = "1001" if ctx.root else str(ctx.uid)
    outer = ("--unshare-user", "--uid", uid, "--gid", uid, "--bind", "/", "/", "--cap-drop", "ALL",
             "--cap-add", "CAP_NET_BIND_SERVICE")
    held = status_caps(ctx.ok(ctx.bw(*outer, *CAPS)).out)
    ctx.eq(held["CapAmb"], 1 << nshelp.CAP_NET_BIND_SERVICE, "what the caller holds")
    result = ctx.bw(*outer, ctx.bwrap, "--bind", "/", "/", *CAPS)
    inside = status_caps(ctx.ok(result).out)
    for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        ctx.eq(inside[name], 0, f"{name} of the command")
    result = ctx.bw(*outer, ctx.bwrap, "--bind", "/", "/", "--cap-add", "CAP_KILL", *CAPS)
    ctx.eq(status_caps(ctx.ok(result).out)["CapEff"], 1 << nshelp.CAP_KILL, "with --cap-add")


# -- Q32 ---------------------------------------------------------------------------------------

@case("Q32", "a host without /tmp can start sandboxes")
def no_tmp(ctx):
    folder, name = os.path.split(os.path.realpath(ctx.bwrap))
    outer = (*ctx.USR, "--ro-bind", folder, "/program", "--proc", "/proc")
    inner = ("/program/" + name, "--ro-bind", "/", "/")
    ctx.ok(ctx.bw(*outer, "--dir", "/tmp", *inner, "echo", "with"), out="with")
    ctx.ok(ctx.bw(*outer, "sh", "-c", "test ! -e /tmp"))
    ctx.ok(ctx.bw(*outer, *inner, "echo", "without"), out="without")
    ctx.ok(ctx.bw(*outer, "/program/" + name, *ctx.USR, "--tmpfs", "/tmp", "sh", "-c",
                  "touch /tmp/x && echo own"), out="own")


@case("Q32", "a host whose /proc has no sys folder can start sandboxes")
def no_sysctls(ctx):
    def prepare():
        uid, gid = os.getuid(), os.getgid()
        flags = nshelp.CLONE_NEWNS | CLONE_NEWPID
        nshelp.unshare(flags if uid == 0 else flags | nshelp.CLONE_NEWUSER)
        if uid != 0:
            nshelp.map_ids(0, 0, uid, gid)
        mount(None, "/", None, nshelp.MS_REC | nshelp.MS_PRIVATE)

    script = ('mount -t proc -o subset=pid proc /proc || exit 9; test ! -e /proc/sys || exit 8; '
              '"$0" --ro-bind / / echo plain; "$0" --unshare-user --ro-bind / / echo user')
    # The shell forks so that the mount is made by pid 1 of the new pid namespace.
    result = ctx.run("sh", "-c", f"sh -c '{script}' '{ctx.bwrap}'; exit $?", pre=prepare)
    if result.rc == 9:
        ctx.skip(f"subset=pid is not known to this kernel: {result.err.strip()}")
    ctx.eq(ctx.ok(result).out.split(), ["plain", "user"], "what both sandboxes printed")


# -- Q33 ---------------------------------------------------------------------------------------

@case("Q33", "inside a sandbox whose /proc is read-only, the message explains the refusal")
def read_only_proc(ctx):
    uid = "1001" if ctx.root else str(ctx.uid)
    ids = ("--unshare-user", "--uid", uid, "--gid", uid)
    inner = (ctx.bwrap, "--ro-bind", "/", "/", "echo", "inner")
    ctx.ok(ctx.bw(*ids, "--bind", "/", "/", *inner), out="inner")
    result = ctx.bw(*ids, "--ro-bind", "/", "/", *inner)
    ctx.fails(result, rc=1, err=r"^bwrap: setting up uid map: Read-only file system \(hint: .*/proc")


# -- Q34 ---------------------------------------------------------------------------------------

@case("Q34", "joining a user namespace compares ids as they are inside it")
def joined_ids(ctx):
    proc = nshelp.holder(ctx, "-r")
    user = os.open(f"/proc/{proc.pid}/ns/user", os.O_RDONLY)
    result = ctx.bw("--userns", "21", "--bind", "/", "/", "id", "-u", fds={21: user})
    ctx.ok(result, out="0")
    result = ctx.bw("--userns", "21", "--uid", "0", "--gid", "0", "--bind", "/", "/", "sh", "-c",
                    "id -u; id -g", fds={21: user})
    ctx.eq(ctx.ok(result).out.split(), ["0", "0"], "with explicit ids")
    result = ctx.bw("--userns", "21", "--uid", "7", "--bind", "/", "/", "id", "-u", fds={21: user})
    ctx.fails(result, rc=1, err=r"^bwrap: unable to switch to uid 7")
    result = ctx.bw("--userns", "21", "--gid", "7", "--bind", "/", "/", "id", "-u", fds={21: user})
    ctx.fails(result, rc=1, err=r"^bwrap: unable to switch to gid 7")
    nshelp.end_tree(ctx, proc)


@case("Q34", "root joins a user namespace in which its own id is not mapped", only="root")
def joined_unmapped(ctx):
    import pwd
    user = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))

    def become():
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)

    proc = ctx.popen("unshare", "-r", "sh", "-c", "echo ready; exec sleep 60", pre=become)
    ctx.eq(proc.stdout.readline(), b"ready\n", "the user's namespace")
    fd = os.open(f"/proc/{proc.pid}/ns/user", os.O_RDONLY)
    # Without these options the command stays nobody: the list of differences says so.
    for ids in (("--uid", "0", "--gid", "0"),):
        result = ctx.bw("--userns", "21", *ids, "--bind", "/", "/", "sh", "-c", "id -u; id -g",
                        fds={21: fd})
        ctx.eq(ctx.ok(result).out.split(), ["0", "0"], f"the ids with {ids}")
    nshelp.end_tree(ctx, proc)


@case("Q34", "--uid and --gid together are reached in a joined user namespace", only="root")
def joined_both_ids(ctx):
    proc = ctx.popen("unshare", "-U", "sh", "-c", "echo ready; exec sleep 60")
    ctx.eq(proc.stdout.readline(), b"ready\n", "the namespace")
    for kind in ("uid", "gid"):
        with open(f"/proc/{proc.pid}/{kind}_map", "w") as f:
            f.write("0 0 100")
    fd = os.open(f"/proc/{proc.pid}/ns/user", os.O_RDONLY)
    for uid, gid in (("5", "6"), ("0", "6"), ("5", "0"), ("0", "0")):
        result = ctx.bw("--userns", "21", "--uid", uid, "--gid", gid, "--bind", "/", "/", "sh",
                        "-c", "id -u; id -g", fds={21: fd})
        ctx.eq(ctx.ok(result).out.split(), [uid, gid], "the ids")
    nshelp.end_tree(ctx, proc)


# -- Q35 ---------------------------------------------------------------------------------------

@case("Q35", "--userns2 leaves no capability in the bounding set")
def userns2_bounding(ctx):
    outer, first, inner, second = two_levels(ctx)
    fds = {21: first, 22: second}
    base = ("--userns", "21", "--userns2", "22", "--bind", "/", "/")
    full = status_caps(ctx.ok(ctx.bw(*base, "--cap-add", "ALL", *CAPS, fds=fds)).out)
    ctx.true(full["CapBnd"] != 0, f"the control, with --cap-add ALL: {full}")
    empty = status_caps(ctx.ok(ctx.bw(*base, "--cap-drop", "ALL", *CAPS, fds=fds)).out)
    ctx.eq((empty["CapBnd"], empty["CapEff"]), (0, 0), "with --cap-drop ALL")
    if not ctx.root:
        plain = status_caps(ctx.ok(ctx.bw(*base, *CAPS, fds=fds)).out)
        ctx.eq((plain["CapBnd"], plain["CapEff"]), (0, 0), "without an option")
    one = status_caps(ctx.ok(ctx.bw(*base, "--cap-drop", "ALL", "--cap-add", "CAP_KILL", *CAPS,
                                    fds=fds)).out)
    ctx.eq((one["CapBnd"], one["CapEff"]), (1 << nshelp.CAP_KILL,) * 2, "with one capability")
    nshelp.end_tree(ctx, inner)
    nshelp.end_tree(ctx, outer)


# -- Q36 ---------------------------------------------------------------------------------------

@case("Q36", "inheritable capabilities of root do not turn ambient", only="root")
def inheritable_stays(ctx):
    start = ("setpriv", "--inh-caps", "+net_raw")
    before = status_caps(ctx.ok(ctx.run(*start, *CAPS)).out)
    ctx.eq((before["CapInh"], before["CapAmb"]), (1 << nshelp.CAP_NET_RAW, 0), "the caller's sets")
    inside = status_caps(ctx.ok(ctx.run(*start, ctx.bwrap, *ctx.RUN, *CAPS)).out)
    ctx.eq(inside, before, "the sets of the command")
    asked = status_caps(ctx.ok(ctx.run(*start, ctx.bwrap, *ctx.RUN, "--cap-drop", "ALL",
                                       "--cap-add", "CAP_NET_RAW", *CAPS)).out)
    ctx.eq(asked["CapAmb"], 1 << nshelp.CAP_NET_RAW, "ambient where it was asked for")


# -- Q37 ---------------------------------------------------------------------------------------

@case("Q37", "--assert-userns-disabled does not take a lack of memory for a prohibition")
def assertion_is_strict(ctx):
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    args = (ctx.bwrap, "--bind", "/", "/", "--assert-userns-disabled", "echo", "ran")
    if ctx.root:
        lists = ("ENOMEM", "unshare,clone")
    else:
        # An ordinary user needs clone to get its own first namespace.
        lists = ("ENOMEM", "unshare")
    result = ctx.run(deny, "--userns-only", *lists, "--", *args)
    ctx.fails(result, rc=1, err=r"^bwrap: .*")
    ctx.eq(result.out, "", "the command's output")
    # Controls: a namespace that really forbids it passes, one that allows it does not.
    ctx.ok(ctx.bw("--unshare-user", "--disable-userns", "--assert-userns-disabled", "--bind", "/",
                  "/", "echo", "ran"), out="ran")
    ctx.fails(ctx.run(*args), rc=1, err=r"^bwrap: .*was not disabled as requested")
    if ctx.root:
        ctx.ok(ctx.bw("--unshare-user", "--disable-userns", "--bind", "/", "/", *args), out="ran")


# -- Q38 ---------------------------------------------------------------------------------------

def program(length):
    """A seccomp program of `length` instructions, each of which allows everything."""
    return struct.pack("=HBBI", 6, 0, 0, 0x7fff0000) * length


@case("Q38", "a seccomp program that is too long is refused, not cut")
def long_seccomp(ctx):
    def start(option, length):
        with open("program", "wb") as f:
            f.write(program(length))
        with open("program", "rb") as f:
            return ctx.bw(*ctx.RUN, option, "9", "echo", "ran", fds={9: f})

    for option in ("--seccomp", "--add-seccomp-fd"):
        for length in (1, 4096):
            ctx.ok(start(option, length), out="ran")
        for length in (4097, 65537, 65536 + 4096):
            result = start(option, length)
            ctx.fails(result, rc=1, err=r"^bwrap: .*4096")
            ctx.eq(result.out, "", "the command's output")


# -- Q39 ---------------------------------------------------------------------------------------

@case("Q39", "a status descriptor that cannot be written is found before anything starts")
def bad_status_descriptor(ctx):
    null = os.open("/dev/null", os.O_RDONLY)
    for bad, fds in (("19", {}), ("18", {18: null})):
        for option, other in (("--json-status-fd", "--info-fd"), ("--info-fd", "--json-status-fd")):
            read, write = os.pipe()
            ran = os.path.join(ctx.dir, "ran")
            result = ctx.bw("--bind", "/", "/", other, "17", option, bad, "touch", ran,
                            fds={17: write, **fds})
            os.close(write)
            ctx.fails(result, rc=1, err=rf"^bwrap: .*(\b{bad}\b|info_fd)")
            ctx.eq(os.read(read, 4096), b"", f"what the good descriptor of {other} got")
            os.close(read)
            ctx.true(not os.path.exists(ran), "the command ran")
            nothing_left(ctx, option)
    read, write = os.pipe()
    ctx.ok(ctx.bw("--bind", "/", "/", "--json-status-fd", "17", "true", fds={17: write}))
    ctx.true(b"child-pid" in os.read(read, 4096), "the control")


@case("Q39", "a status reader that goes away does not change the command's status")
def status_reader_leaves(ctx):
    for extra in ((), ("--unshare-pid",)):
        read, write = os.pipe()
        proc = ctx.bw_popen("--bind", "/", "/", *extra, "--json-status-fd", "9", "sh", "-c",
                            "read line; exit 5", fds={9: write}, stdin=subprocess.PIPE)
        os.close(write)
        ctx.true(b"child-pid" in os.read(read, 4096), "the first line")
        os.close(read)
        proc.stdin.write(b"go\n")
        proc.stdin.close()
        ctx.eq(proc.wait(10), 5, f"the status with {extra}")


# -- Q40 ---------------------------------------------------------------------------------------

@case("Q40", "--dir on a dangling symlink is reported")
def dir_on_dangling_link(ctx):
    for target in ("nowhere", "/tmp/nowhere", "/nowhere/deep"):
        result = ctx.bw(*ctx.RUN, "--symlink", target, "/tmp/link", "--dir", "/tmp/link", "true")
        ctx.fails(result, rc=1, err=r"^bwrap: .*/tmp/link")
    ctx.ok(ctx.bw(*ctx.RUN, "--dir", "/tmp/there", "--symlink", "there", "/tmp/link", "--dir",
                  "/tmp/link", "test", "-d", "/tmp/link"))


# -- Q41 ---------------------------------------------------------------------------------------

def repository_file(ctx, name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return f.read()


@case("Q41", "usage errors name the option that was given")
def usage_errors(ctx):
    for option in ("--bind", "--bind-fd", "--ro-bind-fd", "--ro-bind", "--dev-bind", "--bind-try",
                   "--ro-bind-try", "--dev-bind-try", "--file", "--bind-data", "--ro-bind-data",
                   "--symlink", "--setenv", "--chmod"):
        for words in ((), ("9",)):
            ctx.fails(ctx.bw(option, *words), rc=1,
                      err=rf"^bwrap: {option} takes two arguments( \(|$)")
    ctx.fails(ctx.bw("--overlay", "a", "b"), rc=1, err=r"^bwrap: --overlay takes three arguments")


@case("Q41", "completions and the manual mention every option that the help lists")
def completions_are_complete(ctx):
    text = ctx.ok(ctx.bw("--help")).out
    options = sorted(set(re.findall(r"^ {4}(--[a-z0-9-]+)", text, re.M)))
    ctx.true(len(options) > 60, f"options in the help: {options}")
    manual = repository_file(ctx, "doc/nsbox-bwrap.1").replace("\\-", "-").replace("\\(hy", "-")
    manual = re.sub(r"\bFl Fl ", "--", manual)
    for name, content in (("completions/bash/nsbox",
                           repository_file(ctx, "completions/bash/nsbox")),
                          ("completions/zsh/_nsbox",
                           repository_file(ctx, "completions/zsh/_nsbox")),
                          ("doc/nsbox-bwrap.1", manual)):
        missing = [option for option in options if not is_here(content, option)]
        ctx.eq(missing, [], f"options that {name} does not mention")
        ctx.true(not is_here(content, "--no-such-option"), "the search finds what is not there")


@case("Q41", "the bash completion offers every option that fits what was typed")
def bash_completion_works(ctx):
    script = os.path.join(TOP, "completions/bash/nsbox")
    text = ctx.ok(ctx.bw("--help")).out
    for typed in ("--", "--unshare-", "--ro-bind"):
        wanted = sorted(o for o in set(re.findall(r"^ {4}(--[a-z0-9-]+)", text, re.M))
                        if o.startswith(typed))
        # complete -p tells which function serves the name; the function is then called as bash does.
        code = ('_init_completion() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]};'
                ' words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }; . "$1" || exit 3; '
                'set -- "$2"; f=$(complete -p bwrap | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
                'COMP_WORDS=(bwrap "$1"); COMP_CWORD=1; COMP_LINE="bwrap $1"; '
                'COMP_POINT=${#COMP_LINE}; "$f" bwrap "$1" bwrap; '
                'printf "%s\\n" "${COMPREPLY[@]}"')
        result = ctx.ok(ctx.run("bash", "--norc", "-c", code, "bash", script, typed))
        offered = {word.strip().rstrip("=") for word in result.out.split()}
        ctx.true(wanted, f"options that begin with {typed}")
        ctx.eq([o for o in wanted if o not in offered], [], f"not offered after {typed}")


# -- Q42, Q43, Q44: kept, and said so ------------------------------------------------------------

def difference(ctx, name):
    """The row of the table of differences that names this bug."""
    rows = [line for line in repository_file(ctx, "doc/differences.md").splitlines()
            if line.startswith("|") and is_here(line, name)]
    ctx.true(rows, f"doc/differences.md has a row that names {name}")
    ctx.true(all(len(row.strip("| ").split("|")) >= 2 for row in rows), f"columns of {rows}")
    return "\n".join(rows)


@case("Q42", "mounts that arrive later are as the host made them, and the list says so")
def later_mounts(ctx):
    top = ctx.mkdir("top")
    point = ctx.mkdir("top/m")
    ready, go = ctx.dir + "/ready", ctx.dir + "/go"
    # One mount namespace for the maker and the launcher; the sandbox is its slave.
    script = (f'"$0" --bind / / --ro-bind {top} {top} sh -c \'touch {ready}; while [ ! -e {go} ]; do '
              f'sleep 0.02; done; cat /proc/self/mountinfo\' & n=0; '
              f'while [ ! -e {ready} ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done; '
              f'mount -t tmpfs late {point}; touch {go}; wait')
    result = ctx.run("sh", "-c", script, ctx.bwrap, pre=private_mounts(shared=True, as_root=True))
    ctx.ok(result)
    top_options = mount_options(result.out, top)
    ctx.true(top_options and {"ro", "nosuid", "nodev"} <= top_options, f"the bind: {top_options}")
    late = mount_options(result.out, point)
    ctx.true(late is not None and "ro" not in late, f"the mount that came later: {late}")
    difference(ctx, "Q42")


@case("Q42", "no mount of a sandbox reaches a host whose mounts are shared", timeout=120)
def nothing_propagates_out(ctx):
    folder = ctx.mkdir("folder")
    ctx.mkdir("folder/m")
    lower = ctx.mkdir("lower")
    lines = (("--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", folder + "/m"),
             ("--bind", "/", "/", "--bind", folder, folder, "--tmpfs", "/tmp"),
             ("--bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--ro-bind", "/usr",
              folder + "/m"),
             ("--dev-bind", "/", "/", "--overlay-src", lower, "--tmp-overlay", folder + "/m",
              "--remount-ro", folder + "/m"),
             (*ctx.USR, "--bind", ctx.dir, "/d", "--tmpfs", "/d/folder/m"),
             ("--bind", "/", "/", "--ro-bind-data", "9", folder + "/g"))
    script = ('cp /proc/self/mountinfo before; "$@" true || exit 7; cp /proc/self/mountinfo after; '
              'grep -c shared: before >&2')
    for words in lines:
        for extra in ((), ("--unshare-user",), ("--unshare-all", "--die-with-parent")):
            result = ctx.run("sh", "-c", script, "sh", ctx.bwrap, *words, *extra, fds={9: "data"},
                             pre=private_mounts(shared=True, as_root=True))
            ctx.ok(result)
            ctx.true(int(result.err.split()[-1]) > 5, f"the mounts were shared\n{result}")
            with open("before") as before, open("after") as after:
                ctx.eq(after.read(), before.read(), f"the host's mounts after {words} {extra}")


@case("Q43", "PWD is always exported, OLDPWD is left alone, and the list says so")
def pwd_is_exported(ctx):
    env = dict(os.environ, OLDPWD="/somewhere")
    result = ctx.bw(*ctx.RUN, "--chdir", "/usr", "--unsetenv", "PWD", "env", env=env)
    ctx.true("PWD=/usr" in lines(ctx.ok(result)), f"PWD in spite of --unsetenv\n{result}")
    ctx.true("OLDPWD=/somewhere" in lines(result), f"OLDPWD\n{result}")
    result = ctx.ok(ctx.bw(*ctx.RUN, "--unsetenv", "OLDPWD", "env", env=env))
    ctx.true(not any(line.startswith("OLDPWD=") for line in lines(result)), "OLDPWD taken out")
    difference(ctx, "Q43")


@case("Q44", "a background process keeps the pipe open after the launcher, and the list says so")
def lingering_sandbox(ctx):
    # A background job of a shell opens /dev/null, which a plain bind does not allow.
    proc = ctx.bw_popen("--dev-bind", "/", "/", "--unshare-pid", "sh", "-c",
                        "(read line; echo late) <&9 & echo done", fds={9: (pipe := os.pipe())[0]})
    os.close(pipe[0])
    ctx.eq(proc.stdout.readline(), b"done\n", "the command")
    ctx.eq(proc.wait(10), 0, "the launcher's status, while the background process lives")
    os.write(pipe[1], b"go\n")
    os.close(pipe[1])
    ctx.eq(proc.stdout.read(), b"late\n", "what came before the end of the pipe")
    difference(ctx, "Q44")


@case("Q1 Q2 Q3 Q44", "every known bug has a case in this suite")
def all_are_here(ctx):
    from harness import CASES
    named = {word for c in CASES for word in c.ids.split() if re.fullmatch(r"Q\d+", word)}
    ctx.eq(sorted({f"Q{n}" for n in range(1, 45)} - named), [], "bugs without a case")
