"""Reported bugs, group B: bind sources, mount flags and mounts below a source."""

import os
import select
import shutil
import socket

import casekit
from casekit import in_mounts, mount_table, setpriv, tool
from harness import case


# -- B01: flags that are locked -------------------------------------------------------------------

FLAGS = ("nosuid,nodev,noexec,noatime", "nosuid,nodev,noexec,nodiratime", "strictatime,noexec",
         "ro,noexec", "ro,nosuid,nodev,noexec,noatime", "nodev", "nosymfollow,nosuid")


def wanted_flags(flags):
    """Strict access times are shown by the absence of relatime."""
    return {f for f in flags.split(",") if f not in ("strictatime",)}


@case("case-B01", "every flag of a source's mount is kept by a bind of each kind, also where the "
      "kernel has locked it, and a read-only source stays read-only", timeout=120)
def b01(ctx):
    script = """
        mkdir -p "$D/m" "$D/t"
        mount -t tmpfs -o "mode=777" t "$D/m"
        mkdir -m 777 "$D/m/a"
        mount -o "remount,bind,$FLAGS" "$D/m"
        exec "$BWRAP" --unshare-user --bind / / "$@" "$D/m/a" "$D/t" sh -c '
            cat /proc/self/mountinfo
            if ( : >"$D/t/new" ) 2>&-; then echo WROTE; rm "$D/t/new"; else echo DENIED; fi'
    """
    for flags in FLAGS:
        if casekit.peer() and "nosymfollow" in flags:
            continue
        for option, added in (("--bind", {"nosuid", "nodev"}), ("--dev-bind", {"nosuid"}),
                              ("--ro-bind", {"nosuid", "nodev", "ro"}),
                              ("--bind-try", {"nosuid", "nodev"})):
            result = ctx.ok(in_mounts(ctx, script, option, env=dict(os.environ, FLAGS=flags)))
            inside = mount_table(result.out)[f"{ctx.dir}/t"][0]
            missing = (wanted_flags(flags) | added) - inside
            if missing:
                raise AssertionError(f"{option} of a mount with {flags} lacks {missing}: {inside}")
            if "strictatime" in flags and "relatime" in inside:
                raise AssertionError(f"{option} turned strictatime to relatime: {inside}")
            read_only = "ro" in (wanted_flags(flags) | added)
            ctx.eq("DENIED" in result.out, read_only, f"{option} of {flags}: writing")
            ctx.eq("WROTE" in result.out, not read_only, f"{option} of {flags}: writing")


@case("case-B01", "flags of mounts that root made hold for an ordinary user's sandbox", only="root")
def b01_user(ctx):
    script = f"""
        mkdir -p "$D/m" "$D/t"
        mount -t tmpfs -o nosuid,nodev,noexec,noatime t "$D/m"
        mkdir -m 777 "$D/m/a"
        [ "$RO" = 0 ] || mount -o remount,bind,ro "$D/m"
        exec {setpriv(ctx)} "$BWRAP" --bind / / "$@" "$D/m/a" "$D/t" sh -c '
            cat /proc/self/mountinfo
            if ( : >"$D/t/new" ) 2>&-; then echo WROTE; else echo DENIED; fi'
    """
    for read_only in ("0", "1"):
        for option in ("--bind", "--ro-bind", "--dev-bind"):
            result = ctx.ok(in_mounts(ctx, script, option, env=dict(os.environ, RO=read_only)))
            inside = mount_table(result.out)[f"{ctx.dir}/t"][0]
            missing = {"nosuid", "nodev", "noexec", "noatime"} - inside
            ctx.eq(missing, set(), f"{option}: flags that were lost")
            closed = read_only == "1" or option == "--ro-bind"
            ctx.eq("ro" in inside, closed, f"{option}: read-only\n{result}")
            ctx.eq("DENIED" in result.out, closed, f"{option}: writing\n{result}")


@case("case-B01", "noexec of a source still stops programs inside, and without it they run")
def b01_noexec(ctx):
    script = """
        mkdir -p "$D/m" "$D/t"
        mount -t tmpfs -o "$FLAGS" t "$D/m"
        cp /usr/bin/true "$D/m/program"
        exec "$BWRAP" --unshare-user --bind / / "$@" "$D/m" "$D/t" "$D/t/program"
    """
    for option in ("--bind", "--ro-bind", "--dev-bind"):
        ctx.fails(in_mounts(ctx, script, option, env=dict(os.environ, FLAGS="noexec")), rc=1,
                  err="^bwrap: execvp .*Permission denied")
        ctx.ok(in_mounts(ctx, script, option, env=dict(os.environ, FLAGS="exec")))


@case("case-B01", "what the host's mounts forbid or hide stays so for a sandbox with a user "
      "namespace, even when its command holds every capability")
def b01_locked(ctx):
    script = """
        mkdir -p "$D/m/hidden" "$D/t" "$D/s"
        echo secret >"$D/m/hidden/file"
        mount --bind "$D/m" "$D/m"
        mount -o remount,bind,ro,nosuid,noexec "$D/m"
        mount -t tmpfs t "$D/m/hidden"
        [ "$1" = control ] && shift || set -- "$BWRAP" "$@"
        exec "$@" sh -c '
            for f in "$D/m" "$D/t" "$D/s"; do
                [ -d "$f/hidden" ] || continue
                mount -o remount,bind,rw,suid,exec "$f" && echo "FLAGS $f"
                ( : >"$f/new" ) && echo "WROTE $f"
                umount -l "$f/hidden" && echo "UNCOVERED $f"
                cat "$f/hidden/file"
            done; echo end' 2>&1
    """
    # The control: who made these mounts may undo them.
    control = ctx.ok(in_mounts(ctx, script, "control"))
    for word in ("FLAGS", "WROTE", "UNCOVERED", "secret"):
        ctx.true(word in control.out, f"the control: {word}\n{control}")
    os.unlink(f"{ctx.dir}/m/new")
    tree, bound = f"{ctx.dir}/m", f"{ctx.dir}/t"
    for root in ("--bind", "--dev-bind", "--ro-bind"):
        for more in ((), ("--bind", tree, bound), ("--ro-bind", tree, bound),
                     ("--bind", ctx.dir, "/tmp")):
            for caps in ((), ("--cap-add", "ALL"), ("--uid", "0", "--gid", "0", "--cap-add", "ALL"),
                         ("--dev", "/dev", "--cap-add", "ALL")):
                result = ctx.ok(in_mounts(ctx, script, "--unshare-user", root, "/", "/", *more,
                                          *caps))
                words = {line.split()[0] for line in result.out.splitlines() if line.strip()}
                bad = words & {"FLAGS", "WROTE", "UNCOVERED", "secret"}
                if bad or "end" not in words:
                    raise AssertionError(f"{root} / {more} {caps}: {bad}\n{result}")


# -- B02 ------------------------------------------------------------------------------------------

NAMES = ("sub", "a blank", "a\ttab", "a\nnewline", "back\\slash", "\\040", "ümläut", "-dash",
         "quo\"te'", "trail ", "#hash", "deep/er/sub")


@case("case-B02", "a read-only bind makes every mount below its source read-only, whatever the "
      "mount points are called")
def b02(ctx):
    script = """
        for n in "$@"; do
            mkdir -p "$D/m/$n"
            mount -t tmpfs t "$D/m/$n"
            : >"$D/m/$n/there"
        done
        mkdir "$D/m/sub/below"; mount -t tmpfs t "$D/m/sub/below"; : >"$D/m/sub/below/there"
        mkdir "$D/x"
        exec "$BWRAP" --unshare-user --bind / / "$OPTION" "$D/m" "$D/x" sh -c '
            for n in "$@" sub/below; do
                test -f "$D/x/$n/there" || echo MISSING
                if ( : >"$D/x/$n/new" ) 2>&-; then echo WROTE; else echo DENIED; fi
                # The same mounts below the writable bind of the whole tree stay writable.
                ( : >"$D/m/$n/other" ) || echo BROKEN
            done' sh "$@"
    """
    for option, word in (("--ro-bind", "DENIED"), ("--ro-bind-try", "DENIED"), ("--bind", "WROTE")):
        env = dict(os.environ, OPTION=option)
        result = ctx.ok(in_mounts(ctx, f"{script}", *NAMES, env=env))
        ctx.eq(result.out.split(), [word] * (len(NAMES) + 1), f"{option}\n{result}")
        os.rmdir(f"{ctx.dir}/x")
        shutil.rmtree(f"{ctx.dir}/m")


@case("case-B02", "a read-only bind of / makes every mount of the host read-only")
def b02_root(ctx):
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "cat", "/proc/self/mountinfo"))
    table = mount_table(result.out)
    ctx.true(len(table) > 3, f"the host's mounts are there\n{result}")
    for point, (flags, kind, _) in table.items():
        missing = {"ro", "nosuid", "nodev"} - flags
        if missing:
            raise AssertionError(f"{point} ({kind}) lacks {missing}: {flags}")
    result = ctx.ok(ctx.bw("--bind", "/", "/", "cat", "/proc/self/mountinfo"))
    ctx.true("ro" not in mount_table(result.out)["/"][0], f"a plain bind is writable\n{result}")


# -- B04, B05, B07, B08, B09 ----------------------------------------------------------------------

@case("case-B04", "a mount below a directory that the user cannot search does not stop a start and "
      "is read-only too", only="root")
def b04(ctx):
    script = f"""
        mkdir -p "$D/sec/m" "$D/sec/deep/m"
        mount -t tmpfs t "$D/sec/m"; mount -t tmpfs t "$D/sec/deep/m"
        chmod 700 "$D/sec"
        exec {setpriv(ctx)} "$BWRAP" "$@"
    """
    result = ctx.ok(in_mounts(ctx, script, "--ro-bind", "/", "/", "cat", "/proc/self/mountinfo"))
    table = mount_table(result.out)
    for point in (f"{ctx.dir}/sec/m", f"{ctx.dir}/sec/deep/m"):
        ctx.true(point in table, f"{point} is in the table\n{result}")
        if not casekit.peer():
            ctx.eq({"ro", "nosuid", "nodev"} - table[point][0], set(), f"{point}: missing flags")
    # Asking for the unreachable mount itself is an error that tells what stood in the way.
    result = ctx.fails(in_mounts(ctx, script, "--ro-bind", "/usr", "/usr", "--ro-bind",
                                 f"{ctx.dir}/sec/m", "/x", "true"), rc=1,
                       err=r"^bwrap: Can't find source path .*Permission denied")
    if not casekit.peer():
        rest = result.err.replace(f"{ctx.dir}/sec/m", "")
        ctx.true(f"{ctx.dir}/sec" in rest, f"the message names the directory\n{result}")


@case("case-B05", "--not-a-security-boundary is taken anywhere among the options and changes "
      "nothing of a start that works")
def b05(ctx):
    if casekit.peer():
        ctx.skip("the option came with a later version than the peer")
    for before, after in (((), ctx.RUN), (ctx.RUN, ()), (("--unshare-all",), ctx.RUN)):
        result = ctx.ok(ctx.bw(*before, "--not-a-security-boundary", *after, "echo", "x"), out="x")
        ctx.eq(result.err, "", "no message")
    # What was asked for is still there, and what is impossible still fails.
    ctx.fails(ctx.bw("--not-a-security-boundary", "--ro-bind", "/", "/", "touch",
                     f"{ctx.dir}/x"), rc=1, err="Read-only file system")
    ctx.fails(ctx.bw("--not-a-security-boundary", "--ro-bind", f"{ctx.dir}/none", "/", "true"),
              rc=1, err="^bwrap: Can't find source path")


@case("case-B07", "root's sandbox in a user namespace takes sources below a directory that only "
      "another user may search", only="root")
def b07(ctx):
    _, uid, gid = casekit.ordinary()
    private = ctx.mkdir("p", 0o700)
    ctx.write("p/d/file", "inside\n")
    ctx.mkdir("mnt")
    for path in (private, f"{private}/d", f"{private}/d/file"):
        os.chown(path, uid, gid)
    base = ("--unshare-user", "--ro-bind", "/", "/", "--tmpfs", "/tmp")
    held = os.open(f"{private}/d", os.O_PATH | os.O_DIRECTORY)
    ways = [("--ro-bind", f"{private}/d", "/tmp/m"), ("--bind", f"{private}/d", "/tmp/m"),
            ("--dev-bind-try", f"{private}/d", "/tmp/m"), ("--bind-fd", "9", "/tmp/m"),
            ("--ro-bind", f"{private}/d/../d/", "/tmp/m"),
            ("--dev", "/tmp/dev", "--ro-bind", f"{private}/d", "/tmp/m"),
            ("--uid", "1234", "--gid", "1234", "--ro-bind", f"{private}/d", "/tmp/m")]
    for way in ways:
        ctx.ok(ctx.bw(*base, *way, "ls", "/tmp/m", fds={9: held}), out="file")
    ctx.ok(ctx.bw(*base, "--ro-bind", f"{private}/d/file", "/tmp/f", "test", "-f", "/tmp/f"))
    # The same directory is closed to the command itself.
    ctx.fails(ctx.bw(*base, "--cap-drop", "ALL", "ls", f"{private}/d"), err="Permission denied")
    # As a layer it is refused (D-private-layer), and works once it can be reached.
    layers = ("--overlay-src", f"{private}/d", "--ro-overlay", "/tmp/m", "cat", "/tmp/m/file")
    layers = ("--overlay-src", ctx.mkdir("mnt2"), *layers)
    ctx.fails(ctx.bw(*base, *layers), rc=1, err=r"^bwrap: .*/p/d: Permission denied")
    os.chmod(private, 0o711)
    ctx.ok(ctx.bw(*base, *layers), out="inside")


@case("case-B08", "a start does not touch automount points below a bound tree", only="root")
def b08(ctx):
    with open("/proc/filesystems") as f:
        if "autofs" not in f.read().split():
            ctx.skip("the kernel has no autofs")
    read, write = os.pipe()
    script = """
        mkdir -p "$D/auto" "$D/x"
        mount -t autofs -o "fd=7,pgrp=$GROUP,minproto=5,maxproto=5,direct" test "$D/auto" || exit 90
        exec 7>&-
        exec "$@"
    """
    env = dict(os.environ, GROUP=str(os.getpgid(0)), D=ctx.dir)

    def asked():
        """Whether the kernel has asked for the automount; empties the pipe."""
        if not select.select([read], [], [], 0)[0]:
            return False
        os.read(read, 4096)
        return True

    # The kernel asks only processes outside of the automounter's group, so each runs apart.
    for words in (("--ro-bind", "/", "/"), ("--bind", "/", "/", "--tmpfs", "/tmp"),
                  ("--unshare-all", "--dev-bind", "/", "/"),
                  ("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink",
                   "usr/lib", "/lib", "--symlink", "usr/bin", "/bin", "--ro-bind", ctx.dir, "/x")):
        result = in_mounts(ctx, script, ctx.bwrap, *words, "true", env=env, fds={7: write},
                           session=True, timeout=20)
        if result.rc == 90:
            ctx.skip("an automount point cannot be mounted here: " + result.err.strip())
        ctx.ok(result)
        ctx.true(not asked(), f"{words}: the start triggered an automount\n{result}")
    # The control: whoever really walks there does trigger it (and waits until it is killed).
    in_mounts(ctx, script, "timeout", "-s", "KILL", "1", "ls", f"{ctx.dir}/auto/", env=env,
              fds={7: write}, session=True, timeout=20)
    ctx.true(asked(), "the automount point does not work, so the test showed nothing")


@case("case-B09", "a thousand binds work, and the system calls of a start grow in step with them",
      timeout=120)
def b09(ctx):
    def binds(count):
        words = []
        for number in range(count):
            words += ["--ro-bind", "/usr", f"/tmp/m{number}"]
        return (*ctx.RUN, *words, "test", "-d", f"/tmp/m{count - 1}/bin")

    ctx.ok(ctx.bw(*binds(1000)))
    strace = tool(ctx, "strace")
    trace = os.path.join(ctx.dir, "trace")

    def calls(count):
        ctx.ok(ctx.run(strace, "-f", "-qq", "-o", trace, ctx.bwrap, *binds(count), timeout=60))
        with open(trace, errors="replace") as f:
            return sum("resumed" not in line for line in f)

    one, two, four = calls(60), calls(120), calls(240)
    ctx.true(two - one >= 60, f"each bind costs at least one call: {one}, {two}, {four}")
    ctx.true(four - two <= 2.2 * (two - one), f"twice the binds, twice the calls: {one}, {two}, "
             f"{four}")


# -- B11, B13 -------------------------------------------------------------------------------------

@case("case-B11", "sockets, fifos and devices keep their type when they are bound, and a device "
      "opens through --dev-bind alone")
def b11(ctx):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{ctx.dir}/sock")
    listener.listen(1)
    os.mkfifo(f"{ctx.dir}/fifo")
    for option in ("--bind", "--ro-bind", "--dev-bind"):
        result = ctx.bw(*ctx.RUN, option, f"{ctx.dir}/sock", "/tmp/a/sock", option,
                        f"{ctx.dir}/fifo", "/tmp/a/fifo", option, "/dev/null", "/tmp/a/null",
                        "stat", "-c", "%F", "/tmp/a/sock", "/tmp/a/fifo", "/tmp/a/null")
        ctx.ok(result, out="socket\nfifo\ncharacter special file")
    connect = ("import socket; s = socket.socket(socket.AF_UNIX); s.connect('/tmp/sock'); "
               "print('connected')")
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", f"{ctx.dir}/sock", "/tmp/sock", "python3", "-c", connect),
           out="connected")
    # Over a destination of another type that is not a directory, as mount points may be.
    ctx.write("plain", "")
    ctx.ok(ctx.bw("--bind", "/", "/", "--bind", f"{ctx.dir}/sock", f"{ctx.dir}/plain", "stat", "-c",
                  "%F", f"{ctx.dir}/plain"), out="socket")
    for option in ("--bind", "--ro-bind"):
        ctx.fails(ctx.bw(*ctx.RUN, option, "/dev/null", "/tmp/null", "sh", "-c",
                         "echo x >/tmp/null"), err="Permission denied")
    for option in ("--dev-bind", "--dev-bind-try"):
        ctx.ok(ctx.bw(*ctx.RUN, option, "/dev/null", "/tmp/null", "sh", "-c", "echo x >/tmp/null"))


@case("case-B13", "a tmpfs with --size takes that much and no more")
def b13(ctx):
    fill = "dd if=/dev/zero of=/tmp/z bs=64k count=64 2>&1; stat -c %s /tmp/z"
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--dev", "/dev", "--size", "1048576", "--tmpfs",
                           "/tmp", "sh", "-c", fill))
    ctx.true("No space left on device" in result.out, f"the fourth MiB is refused\n{result}")
    ctx.eq(result.out.split()[-1], "1048576", "what went in")
    for sized in (("--size", "8388608", "--tmpfs", "/tmp"), ("--tmpfs", "/tmp"),
                  ("--size", "4096", "--tmpfs", "/mnt", "--tmpfs", "/tmp")):
        result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--dev", "/dev", *sized, "sh", "-c", fill))
        ctx.eq(result.out.split()[-1], str(64 * 65536), f"{sized}: enough room\n{result}")
