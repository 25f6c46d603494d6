"""Reported bugs, group D: /proc, /dev, sandboxes in sandboxes and in odd places."""

import os

import casekit
from casekit import in_mounts, setpriv, tool
from harness import case

NESTED = ("--unshare-all", "--dev-bind", "/", "/")


@case("case-D01", "a procfs that the kernel refuses because /proc is partly covered is an error "
      "that names what covers it, and the command does not start")
def d01(ctx):
    covers = ((("--ro-bind", "/dev/null", "/proc/cmdline"), "/proc/cmdline"),
              (("--tmpfs", "/proc/tty"), "/proc/tty"),
              (("--ro-bind", "/proc/sys", "/proc/sys"), "/proc/sys"))
    for cover, name in covers:
        result = ctx.bw(*NESTED, "--proc", "/proc", *cover, ctx.bwrap, *NESTED, "--proc", "/proc",
                        "sh", "-c", "echo started; grep -c ' /proc .* - proc ' "
                        "/proc/self/mountinfo")
        ctx.fails(result, rc=1,
                  err=r"^bwrap: Can't mount proc on \S+: Operation not permitted")
        ctx.eq(result.out, "", "nothing was started")
        if not casekit.peer():
            ctx.true("newroot" not in result.err, f"no internal path\n{result}")
            hint = result.err.split("Operation not permitted", 1)[1]
            ctx.true("(hint: " in hint and "cover" in hint and "/proc" in hint,
                     f"the hint tells that /proc is covered\n{result}")
            # Root's own sandbox covers more than the test does, so any of the covers may be named.
            ctx.true(("/proc/" if ctx.root else name) in hint,
                     f"the hint names what covers /proc, such as {name}\n{result}")
    # The controls: what the message is about is the procfs alone, and an open /proc gives one.
    ctx.ok(ctx.bw(*NESTED, "--proc", "/proc", *covers[0][0], ctx.bwrap, "--unshare-user",
                  "--dev-bind", "/", "/", "--bind", "/proc", "/proc", "echo", "x"), out="x")
    ctx.ok(ctx.bw("--unshare-user", "--dev-bind", "/", "/", ctx.bwrap, *NESTED, "--proc", "/proc",
                  "echo", "x"), out="x")


@case("case-D03", "--disable-userns works below a read-only /proc/sys, and no further user "
      "namespace can be made then")
def d03(ctx):
    outer = ("--dev-bind", "/", "/", "--ro-bind", "/proc/sys", "/proc/sys")
    check = "if unshare -U true; then echo MADE; else echo DENIED; fi"
    for ids in ((), ("--uid", "5", "--gid", "6"), ("--dev", "/dev")):
        inner = ("--unshare-user", *ids, "--dev-bind", "/", "/")
        # The control: without the option a further namespace can be made there.
        ctx.ok(ctx.bw(*outer, ctx.bwrap, *inner, "sh", "-c", check), out="MADE")
        result = ctx.bw(*outer, ctx.bwrap, "--disable-userns", *inner, "sh", "-c", check)
        ctx.ok(result, out="DENIED")
    # A fresh procfs is another matter: the kernel refuses it, in the words that callers look for.
    result = ctx.bw("--unshare-user", *outer, ctx.bwrap, "--unshare-user", "--unshare-pid",
                    "--disable-userns", "--dev-bind", "/", "/", "--proc", "/proc", "sh", "-c",
                    check)
    ctx.fails(result, rc=1, err=r"^bwrap: Can't mount proc on \S+: Operation not permitted")
    if not casekit.peer():
        ctx.true("/proc/sys" in result.err, f"the hint names what covers /proc\n{result}")


@case("case-D04", "a /proc with hidepid or with processes alone does not stop a start")
def d04(ctx):
    script = """
        mount -t proc -o "$OPTIONS" proc /proc
        exec "$BWRAP" "$@"
    """
    for options in ("hidepid=1", "hidepid=2", "hidepid=4", "subset=pid", "hidepid=2,subset=pid"):
        if casekit.peer() and "subset" in options:
            continue
        env = dict(os.environ, OPTIONS=options)
        for words in (("--ro-bind", "/", "/"), ("--unshare-user", "--bind", "/", "/"),
                      ("--unshare-ipc", "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev"),
                      ("--unshare-user", "--uid", "5", "--gid", "6", "--unshare-pid", "--bind", "/",
                       "/")):
            ctx.ok(in_mounts(ctx, script, *words, "echo", options, pid=True, env=env), out=options)
    ids = in_mounts(ctx, script, "--unshare-user", "--uid", "5", "--gid", "6", "--bind", "/", "/",
                    "sh", "-c", "id -u; id -g", pid=True, env=dict(os.environ, OPTIONS="hidepid=2"))
    ctx.ok(ids, out="5\n6")


@case("case-D04", "an ordinary user's sandbox starts below root's /proc with hidepid", only="root")
def d04_user(ctx):
    script = f"""
        mount -t proc -o "$OPTIONS" proc /proc
        exec {setpriv(ctx)} "$BWRAP" "$@"
    """
    _, uid, _ = casekit.ordinary()
    for options in ("hidepid=1", "hidepid=2", "hidepid=2,subset=pid"):
        if casekit.peer() and "subset" in options:
            continue
        env = dict(os.environ, OPTIONS=options)
        for words in (("--ro-bind", "/", "/"), ("--ro-bind", "/", "/", "--dev", "/dev"),
                      ("--unshare-net", "--unshare-ipc", "--ro-bind", "/", "/")):
            ctx.ok(in_mounts(ctx, script, *words, "id", "-u", pid=True, env=env), out=str(uid))


@case("case-D07", "/dev/shm of --dev is open to every user of the sandbox, with the sticky bit")
def d07(ctx):
    if casekit.peer():
        ctx.skip("the peer makes /dev/shm 0755")
    for dest in ("/dev", "/tmp/dev"):
        ctx.ok(ctx.bw(*ctx.RUN, "--dev", dest, "stat", "-c", "%a %F", f"{dest}/shm"),
               out="1777 directory")
    ctx.ok(ctx.bw(*ctx.RUN, "--dev", "/dev", "sh", "-c", "echo x >/dev/shm/x; cat /dev/shm/x"),
           out="x")
    result = ctx.ok(ctx.bw(*ctx.RUN, "--dev", "/dev", "python3", "-c",
                           "import _multiprocessing, _posixshmem, os\n"
                           "fd = _posixshmem.shm_open('/n', os.O_CREAT | os.O_RDWR, mode=0o600)\n"
                           "print(os.write(fd, b'abc'))"))
    ctx.eq(result.out, "3\n", "POSIX shared memory")


@case("case-D07", "another user of root's sandbox can use /dev/shm", only="root")
def d07_other(ctx):
    if casekit.peer():
        ctx.skip("the peer makes /dev/shm 0755")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--dev", "/dev", "sh", "-c",
                  f"{setpriv(ctx)} sh -c 'echo x >/dev/shm/x && cat /dev/shm/x'"), out="x")


DEVICES = {"null": "1:3", "zero": "1:5", "full": "1:7", "random": "1:8", "urandom": "1:9",
           "tty": "5:0"}


@case("case-D08", "--dev holds the usual devices, links, terminals and shared memory, all usable, "
      "with and without --proc")
def d08(ctx):
    look = r"""
        for f in null zero full random urandom tty; do stat -c '%n %t:%T' /dev/$f; done
        for f in fd stdin stdout stderr core ptmx; do echo "$f $(readlink /dev/$f)"; done
        ls -A /dev | tr '\n' ' '
    """
    wanted = [f"/dev/{name} {number}" for name, number in DEVICES.items()]
    wanted += ["fd /proc/self/fd", "stdin /proc/self/fd/0", "stdout /proc/self/fd/1",
               "stderr /proc/self/fd/2", "core /proc/kcore", "ptmx pts/ptmx",
               "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"]
    use = ("import os\n"
           "m, s = os.openpty(); os.write(m, b'x\\n'); print(os.read(s, 9))\n"
           "print(os.fstat(s).st_rdev == os.stat(os.ttyname(s)).st_rdev if PROC else True)\n"
           "print(open('/dev/zero', 'rb').read(2), len(open('/dev/urandom', 'rb').read(9)))\n"
           "open('/dev/null', 'w').write('x')\n"
           "try: os.write(os.open('/dev/full', os.O_WRONLY), b'x')\n"
           "except OSError as e: print(e.errno)\n")
    for words, proc in ((("--dev", "/dev"), True), (("--unshare-all", "--dev", "/dev"), True),
                        (("--unshare-pid", "--proc", "/proc", "--dev", "/dev"), True),
                        (("--tmpfs", "/proc", "--dev", "/dev"), False)):
        result = ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, "sh", "-c", look))
        ctx.eq([line.strip() for line in result.out.strip().splitlines()], wanted, f"{words}")
        ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, "python3", "-c", f"PROC = {proc}\n{use}"),
               out="b'x\\n'\nTrue\nb'\\x00\\x00' 9\n28")
    # The terminals are the sandbox's own: the host's do not show.
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--dev", "/dev", "ls", "/dev/pts"), out="ptmx")


# -- D09: a chrooted caller ------------------------------------------------------------------------

def chroot_script(run):
    """Builds a tree that is no mount point, with the program in it, and runs `run` there."""
    return f"""
        for f in usr proc dev tmp etc "$PROGRAM"; do mkdir -p "$D/t/$f"; done
        for f in bin lib lib64 sbin; do [ -L "$D/t/$f" ] || ln -s usr/$f "$D/t/$f"; done
        mount --rbind /usr "$D/t/usr"
        mount --rbind /proc "$D/t/proc"
        mount --rbind /dev "$D/t/dev"
        case "$PROGRAM" in /usr/*) ;; *) mount --rbind "$PROGRAM" "$D/t/$PROGRAM";; esac
        ln -sf "$REAL" "$D/t/bwrap"
        {run}
    """


def in_chroot(ctx, run, *args):
    real = os.path.realpath(ctx.bwrap)
    env = dict(os.environ, REAL=real, PROGRAM=os.path.dirname(real))
    return in_mounts(ctx, chroot_script(run), *args, env=env)


TRIES = (("--ro-bind", "/", "/"), ("--unshare-user", "--ro-bind", "/", "/"),
         ("--unshare-all", "--bind", "/", "/", "--proc", "/proc", "--dev", "/dev"))


def chroot_verdict(ctx, result, may_work):
    if result.rc == 0 and may_work:
        ctx.ok(result, out="started")
        return
    ctx.fails(result, rc=1, err="^bwrap: ")
    ctx.true("started" not in result.out, f"nothing was started\n{result}")
    ctx.true("chroot" in result.err, f"the message tells of the chroot\n{result}")
    ctx.true("sysctl" not in result.err, f"no sysctl would help\n{result}")


@case("case-D09", "in a chroot a start works or says that a chroot is in the way, and never blames "
      "a sysctl")
def d09(ctx):
    tool(ctx, "chroot")
    for words in TRIES:
        result = in_chroot(ctx, 'exec chroot "$D/t" /bwrap "$@"', *words, "echo", "started")
        # Without a user namespace the program may help itself; with one the kernel says no.
        chroot_verdict(ctx, result, may_work="--unshare-user" not in words)
    # The control: the same tree is a fine place once it is a mount point and the root by pivot.
    ctx.ok(in_chroot(ctx, 'mount --rbind "$D/t" "$D/t"; cd "$D/t"; pivot_root . tmp; '
                     'exec /bwrap "$@"', "--unshare-user", "--bind", "/", "/", "echo", "started"),
           out="started")


@case("case-D09", "an ordinary user in root's chroot is told of the chroot", only="root")
def d09_user(ctx):
    for words in TRIES:
        result = in_chroot(ctx, f'exec chroot "$D/t" {setpriv(ctx)} /bwrap "$@"', *words, "echo",
                           "started")
        chroot_verdict(ctx, result, may_work=False)


# -- D10 -------------------------------------------------------------------------------------------

@case("case-D10", "where pivot_root is refused, as on an initial ramdisk, a start works all the "
      "same and shows the command the new root alone")
def d10(ctx):
    if casekit.peer():
        ctx.skip("the peer has no way without pivot_root")
    strace = tool(ctx, "strace")
    seen = ctx.mkdir("seen")
    look = (f"ls -A /; cd /; cd ../../..; ls -A | tr '\\n' ' '; ls {seen} 2>&1; "
            "grep -c . /proc/self/mountinfo; ls -d /oldroot /newroot 2>&1; ls -A /proc/1/root/; "
            "cat /proc/self/mountinfo")
    for words in ((*ctx.USR, "--unshare-pid", "--proc", "/proc"),
                  (*ctx.USR, "--unshare-all", "--proc", "/proc", "--cap-drop", "ALL"),
                  (*ctx.USR, "--unshare-user", "--unshare-pid", "--proc", "/proc", "--uid", "7")):
        plain = ctx.ok(ctx.bw(*words, "sh", "-c", look))
        hurt = ctx.run(strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=pivot_root", "-e",
                       "inject=pivot_root:error=EINVAL", ctx.bwrap, *words, "sh", "-c", look)
        ctx.ok(hurt)

        def shape(result):
            """The output without the numbers of mounts and namespaces."""
            lines = []
            for line in result.out.splitlines():
                words = line.split(" ")
                lines.append(" ".join(words[3:]) if " - " in line else line)
            return lines

        ctx.eq(shape(hurt), shape(plain), f"{words}: what the command sees")
        ctx.eq(hurt.rc, plain.rc, "the status")
    # The control: the injection is what makes the difference (the call is really made).
    trace = os.path.join(ctx.dir, "trace")
    ctx.ok(ctx.run(strace, "-f", "-qq", "-o", trace, "-e", "trace=pivot_root", "-e",
                   "inject=pivot_root:error=EINVAL", ctx.bwrap, *ctx.USR, "true"))
    with open(trace) as f:
        ctx.true("EINVAL" in f.read(), "pivot_root was tried and refused")


@case("case-D11", "--disable-userns makes further user namespaces impossible and asks for "
      "--unshare-user in a message that says so")
def d11(ctx):
    base = ("--unshare-user", "--disable-userns", "--ro-bind", "/", "/")
    ctx.fails(ctx.bw(*base, "unshare", "-U", "true"), err="No space left on device")
    ctx.ok(ctx.bw("--unshare-user", "--ro-bind", "/", "/", "unshare", "-U", "true"))
    for caps in ((), ("--cap-add", "ALL"), ("--uid", "0", "--gid", "0", "--cap-add", "ALL")):
        # Not by way of another sandbox and not by raising the limit either.
        ctx.fails(ctx.bw(*base, *caps, ctx.bwrap, "--unshare-user", "--ro-bind", "/", "/", "true"),
                  rc=1, err="^bwrap: ")
        ctx.fails(ctx.bw("--unshare-user", "--disable-userns", *caps, "--dev-bind", "/", "/", "sh",
                         "-c", "(echo 100 >/proc/sys/user/max_user_namespaces) 2>&-; "
                         "exec unshare -U true"), err="unshare")
    ctx.fails(ctx.bw("--disable-userns", "--ro-bind", "/", "/", "true"), rc=1,
              err="^bwrap: --disable-userns requires --unshare-user")
    ctx.fails(ctx.bw("--unshare-user-try", "--disable-userns", "--ro-bind", "/", "/", "true"), rc=1,
              err="^bwrap: --disable-userns requires --unshare-user")
    ctx.ok(ctx.bw(*base, "--assert-userns-disabled", "true"))
