"""Reported bugs, group S: what a sandboxed program could do to its host."""

import errno
import os
import re
import signal
import socket

import casekit
from casekit import in_mounts, make_tree, snapshot, unchanged, usr
from harness import case


# -- S01: the host's sysctls ----------------------------------------------------------------------

# Opens for writing every file below the named folders that has a write bit, and never writes. The
# folders of processes are left out, and so is what a device covers. Prints one line for each file
# that opened, then the count.
OPENER = r"""
import os, stat, sys
tried = 0
for top in sys.argv[1:]:
    for folder, dirs, files in os.walk(top):
        dirs[:] = [d for d in dirs if not d.isdigit()]
        for name in files:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
                if not stat.S_ISREG(mode) or not mode & 0o222: continue
                tried += 1
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            except OSError:
                continue
            print(os.path.relpath(path, top))
try:
    os.close(os.open('/proc/self/comm', os.O_WRONLY))
    print('control')
except OSError as e:
    print('no control', e)
print('tried', tried)
"""

# Watching for pressure is what these files are written to for; it reaches nothing else.
HARMLESS = {"pressure/cpu", "pressure/io", "pressure/memory", "pressure/irq"}

# Sysctls that belong to a namespace: in a sandbox with a new one they are the sandbox's own.
OWN = re.compile(r"sys/(net|fs/mqueue|user)/|sys/kernel/(msg\w+|sem|shm\w+|auto_msgmni|pid_max|"
                 r"ns_last_pid|hostname|domainname)$")

ROOT_SHAPES = (
    ("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--bind", "/", "/", "--proc", "/proc"),
    ("--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--ro-bind", "/", "/", "--proc", "/proc"),
    ("--bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--uid", "1000", "--gid", "1000", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-user", "--uid", "1000", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-pid", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--cap-add", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-pid", "--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE", "--cap-add",
     "CAP_NET_ADMIN", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--share-net", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-all", "--dev-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    ("--unshare-pid", "--as-pid-1", "--ro-bind", "/", "/", "--proc", "/proc"),
    ("--unshare-user", "--disable-userns", "--unshare-pid", "--ro-bind", "/", "/", "--proc",
     "/proc"),
    ("--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--proc", "/proc"),
    ("--proc", "/proc", "--unshare-pid", "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr",
     "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib", "--symlink", "usr/bin",
     "/bin"),
)


def opened(result):
    lines = result.out.splitlines()
    if len(lines) < 2 or lines[-2] != "control":
        raise AssertionError(f"/proc/self/comm should open for writing\n{result}")
    if int(lines[-1].split()[1]) < 100:
        raise AssertionError(f"the list of files is too short\n{result}")
    return {line for line in lines[:-2]}


@case("case-S01", "no file of root's /proc/sys, nor of the rest of a /proc that --proc mounted, "
      "opens for writing, whatever the namespaces, ids and capabilities", only="root", timeout=300)
def s01_root(ctx):
    outside = opened(ctx.ok(ctx.run("python3", "-c", OPENER, "/proc")))
    ctx.true("sys/kernel/core_pattern" in outside, "the control: root may open them outside")
    for words in ROOT_SHAPES:
        if casekit.lacks(ctx, "--disable-userns") and "--disable-userns" in words:
            continue
        result = ctx.ok(ctx.bw(*words, "python3", "-c", OPENER, "/proc", timeout=60))
        left = opened(result) - HARMLESS
        if left:
            raise AssertionError(f"{words}: {len(left)} files open for writing, such as "
                                 f"{sorted(left)[:8]}")


@case("case-S01", "the cover of /proc is there wherever --proc puts it and by whatever name it is "
      "reached", only="root", timeout=120)
def s01_elsewhere(ctx):
    shell = ": 3<>{} && echo OPENED"  # Opened for reading and writing, never written to.
    for words, top in ((("--proc", "/tmp/p"), "/tmp/p"), (("--proc", "tmp/p/"), "/tmp/p"),
                       (("--dir", "/tmp/d", "--symlink", "d", "/tmp/l", "--proc", "/tmp/l/p"),
                        "/tmp/d/p"),
                       (("--proc", "/proc"), "/proc/self/root/proc"),
                       (("--proc", "/proc"), "/proc/2/root/proc"),
                       (("--proc", "/proc", "--proc", "/tmp/p"), "/tmp/p")):
        for pid in (("--unshare-pid",), ("--unshare-all",), ("--unshare-all", "--cap-drop", "ALL")):
            base = (*pid, "--ro-bind", "/", "/", "--tmpfs", "/tmp", *words)
            for name in ("sys/kernel/core_pattern", "sys/kernel/panic", "sys/fs/suid_dumpable",
                         "sys/vm/overcommit_memory"):
                ctx.ok(ctx.bw(*base, "test", "-r", f"{top}/{name}"))
                result = ctx.bw(*base, "sh", "-c", shell.format(f"{top}/{name}"))
                ctx.fails(result, err="Read-only file system|Permission denied")
                ctx.true("OPENED" not in result.out, f"{name} opened\n{result}")
                if "/2/" in top and "--unshare-all" in pid:
                    # No capability of a user namespace reaches pid 1.
                    ctx.fails(ctx.bw(*base, "test", "-r", f"/proc/1/root/proc/{name}"))


@case("case-S01", "root's command in a user namespace cannot make the host's files or its /proc "
      "writable again, with --proc and without", only="root")
def s01_remount(ctx):
    target = ctx.mkdir("target")
    # The control: over what it mounts itself the command has these rights.
    own = "mount -t tmpfs t /tmp; mount -o remount,bind,ro /tmp; mount -o remount,bind,rw /tmp"
    for words in (("--unshare-all",), ("--unshare-user",), ("--unshare-all", "--proc", "/proc"),
                  ("--unshare-user", "--unshare-pid", "--uid", "7", "--cap-add", "ALL")):
        base = (*words, "--ro-bind", "/", "/", "--tmpfs", "/tmp")
        ctx.ok(ctx.bw(*base, "sh", "-ec", own + "; : >/tmp/file; echo writable"), out="writable")
        for script in (f"mount -o remount,bind,rw /; : >{target}/file",
                       f"umount -l /; : >{target}/file",
                       "mount -o remount,bind,rw /proc; : 3<>/proc/sys/kernel/core_pattern",
                       "mount -t proc proc /tmp && : 3<>/tmp/sys/kernel/core_pattern"):
            ctx.fails(ctx.bw(*base, "sh", "-c", script))
        ctx.eq(os.listdir(target), [], f"{words}: what was written")


@case("case-S01", "kernel memory, keys, timers, interrupts, buses and the system request key are "
      "closed to a sandbox of root", only="root", timeout=120)
def s01_siblings(ctx):
    reader = ("import os, sys\n"
              "for name in sys.argv[1:]:\n"
              "  try: print(name, len(os.read(os.open(name, os.O_RDONLY | os.O_NONBLOCK), 64)))\n"
              "  except OSError as e: print(name, -e.errno)\n")
    writer = ("import os, sys\n"
              "for name in sys.argv[1:]:\n"
              "  try: os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK)); print(name, 'OPENED')\n"
              "  except OSError as e: print(name, -e.errno)\n")
    secret = [f"/proc/{n}" for n in ("kcore", "keys", "timer_list", "timer_stats", "sched_debug",
                                     "latency_stats", "slabinfo", "vmallocinfo", "pagetypeinfo")
              if os.path.exists(f"/proc/{n}")]
    powers = [p for p in ("/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
                          "/proc/mtrr", "/proc/dynamic_debug/control") if os.path.exists(p)]
    for top in ("/proc/bus/pci", "/proc/irq", "/proc/fs"):
        for folder, _, files in os.walk(top):
            powers += [f"{folder}/{f}" for f in files
                       if os.stat(f"{folder}/{f}").st_mode & 0o222][:3]
    ctx.true(len(secret) >= 2 and len(powers) >= 2, f"something to close: {secret}, {powers}")
    control = ctx.ok(ctx.run("python3", "-c", reader, *secret))
    for line in control.out.splitlines():
        ctx.true(int(line.split()[1]) > 0, f"the control: {line} can be read outside")
    control = ctx.ok(ctx.run("python3", "-c", writer, *powers))
    ctx.eq(control.out.count("OPENED"), len(powers), f"the control: they open outside\n{control}")
    for words in (("--unshare-all",), ("--unshare-pid",), (), ("--unshare-all", "--uid", "1000"),
                  ("--unshare-pid", "--cap-drop", "ALL"), ("--unshare-all", "--cap-drop", "ALL")):
        base = (*words, "--ro-bind", "/", "/", "--proc", "/proc")
        result = ctx.ok(ctx.bw(*base, "python3", "-c", reader, *secret))
        for line in result.out.splitlines():
            ctx.true(int(line.split()[1]) <= 0, f"{words}: {line} can be read\n{result}")
        result = ctx.ok(ctx.bw(*base, "python3", "-c", writer, *powers))
        ctx.true("OPENED" not in result.out, f"{words}: opens for writing\n{result}")
        # What programs need stays readable.
        ctx.ok(ctx.bw(*base, "sh", "-ec", "for f in meminfo cpuinfo sys/kernel/hostname stat "
                      "self/status; do grep -q . /proc/$f; done"))


@case("case-S01", "an ordinary user's sandbox opens no more of /proc for writing than the user "
      "does outside", only="user", timeout=120)
def s01_user(ctx):
    outside = opened(ctx.ok(ctx.run("python3", "-c", OPENER, "/proc")))
    for words in ROOT_SHAPES:
        if "--cap-add" in words or casekit.lacks(ctx, "--disable-userns") and \
                "--disable-userns" in words:
            continue
        result = ctx.ok(ctx.bw(*words, "python3", "-c", OPENER, "/proc", timeout=60))
        more = {f for f in opened(result) - outside if not OWN.match(f)}
        ctx.eq(more, set(), f"{words}: more than outside")


# -- S02: the program's own file ------------------------------------------------------------------

# For each path: "closed" when it cannot be opened even for reading, "sealed" when it is a memory
# file that can never change again, "read-only" when its mount is, "forbidden" when its mode is in
# the way, and otherwise "WRITABLE": what refuses today (a busy text) ends with the process. Then
# whether it is the program's file on the host.
VERDICT = r"""
import errno, fcntl, os, sys
host = tuple(int(n) for n in sys.argv[1].split(':'))
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND)); print(path, 'OPENED'); continue
    except OSError as e:
        error = e.errno
    try: fd = os.open(path, os.O_RDONLY)
    except OSError as e: print(path, 'closed', errno.errorcode[e.errno]); continue
    st = os.fstat(fd)
    try: seals = fcntl.fcntl(fd, 1034)
    except OSError: seals = 0
    whose = 'host' if (st.st_dev, st.st_ino) == host else 'other'
    if seals & 15 == 15: print(path, 'sealed', whose)
    elif os.fstatvfs(fd).f_flag & os.ST_RDONLY: print(path, 'read-only', whose)
    elif error in (errno.EACCES, errno.EPERM): print(path, 'forbidden', whose)
    else: print(path, 'WRITABLE', whose, errno.errorcode[error])
"""


def host_program(ctx):
    st = os.stat(os.path.realpath(ctx.bwrap))
    return f"{st.st_dev}:{st.st_ino}"


@case("case-S02", "process 1 is no way to the program's file on the host: it is a sealed copy, "
      "read-only or closed")
def s02(ctx):
    seen = 0
    for words in (("--unshare-all",), ("--unshare-pid",), ("--unshare-pid", "--dev", "/dev"),
                  ("--unshare-all", "--cap-add", "ALL"), ("--unshare-pid", "--sync-fd", "9"),
                  ("--unshare-user", "--unshare-pid", "--uid", "0", "--gid", "0")):
        for bind in ("--bind", "--ro-bind"):
            result = ctx.ok(ctx.bw(*words, bind, "/", "/", "--proc", "/proc", "python3", "-c",
                                   VERDICT, host_program(ctx), "/proc/1/exe", fds={9: ""}))
            verdict = result.out.split()[1]
            ctx.true(verdict in ("sealed", "read-only", "forbidden", "closed"),
                     f"{words} {bind}: {verdict}\n{result}")
            seen += verdict != "closed"
    if ctx.root:
        ctx.true(seen > 0, "root's sandbox looked at it")
        # The control: a program on a writable bind is seen as one that can be overwritten later.
        copy = os.path.join(ctx.dir, "python")
        with open("/usr/bin/python3", "rb") as source:
            ctx.write("python", source.read(), 0o755)
        result = ctx.ok(ctx.bw("--unshare-pid", "--bind", "/", "/", "--proc", "/proc", copy, "-c",
                               VERDICT, host_program(ctx), "/proc/self/exe"))
        ctx.eq(result.out.split()[1:], ["WRITABLE", "other", "ETXTBSY"], f"the control\n{result}")


@case("case-S02", "a command that starts the program again through /proc/self/exe gets no way to "
      "its file on the host", only="root")
def s02_self(ctx):
    look = ("import os, sys\n"
            "me = os.getpid()\n"
            "sys.argv[2:] = [f'/proc/{p}/exe' for p in os.listdir('/proc') if p.isdigit()\n"
            "                and int(p) != me]\n" + VERDICT)
    for outer in (("--unshare-pid", "--proc", "/proc"), ("--unshare-all", "--proc", "/proc"),
                  ("--unshare-pid", "--as-pid-1", "--proc", "/proc"),
                  ("--unshare-user", "--bind", "/proc", "/proc"),
                  ("--unshare-user", "--cap-add", "ALL", "--proc", "/proc")):
        for inner in (("--bind", "/", "/"), ("--dev-bind", "/", "/"), ("--sync-fd", "9", "--bind",
                                                                       "/", "/")):
            result = ctx.ok(ctx.bw("--ro-bind", "/", "/", *outer, "--", "/proc/self/exe", *inner,
                                   "python3", "-c", look, host_program(ctx), fds={9: ""}))
            lines = result.out.splitlines()
            ctx.true(len(lines) >= 1, f"{outer} {inner}: processes were seen\n{result}")
            for line in lines:
                bad = "WRITABLE" in line or "OPENED" in line
                ctx.true(not bad, f"{outer} {inner}: {line}\n{result}")


# -- S03, S04, S06 --------------------------------------------------------------------------------

@case("case-S03", "root's sandbox without a user namespace keeps the caller's capabilities, an "
      "ordinary user's has none, and --cap-drop ALL takes all")
def s03(ctx):
    def held(*words):
        result = ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, "grep", "^Cap", "/proc/self/status"))
        return {line.split(":")[0]: int(line.split()[1], 16) for line in result.out.splitlines()}

    with open("/proc/self/status") as f:
        outside = {line.split(":")[0]: int(line.split()[1], 16) for line in f
                   if line.startswith("Cap")}
    for words in ((), ("--unshare-pid",), ("--unshare-net", "--unshare-ipc"), ("--dev", "/dev")):
        inside = held(*words)
        if ctx.root:
            ctx.true(outside["CapEff"] != 0, "the caller has capabilities")
            ctx.eq(inside, outside, f"{words}")
        else:
            ctx.eq(set(inside.values()), {0}, f"{words}")
        dropped = held(*words, "--cap-drop", "ALL")
        ctx.eq([dropped[n] for n in ("CapEff", "CapPrm", "CapInh", "CapAmb")], [0] * 4,
               f"{words} with --cap-drop ALL")


CONNECT = r"""
import socket, sys
s = socket.socket(socket.AF_UNIX)
name = sys.argv[1]
try: s.connect('\0' + name[1:] if name.startswith('@') else name)
except OSError as e: print(e.errno)
else: print('connected')
"""


@case("case-S04", "a socket of the host is reached by its path where the path is shown, and by an "
      "abstract name where the network is shared")
def s04(ctx):
    path = f"{ctx.dir}/sock"
    name = f"@nsbox-{os.path.basename(ctx.dir)}"
    listeners = []
    for address in (path, "\0" + name[1:]):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        listeners.append(listener)
    show = ("python3", "-c", CONNECT)
    for words in ((), ("--unshare-all",), ("--unshare-net",)):
        # A read-only mount is no hindrance to a connection.
        ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, *show, path), out="connected")
        ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, "--tmpfs", ctx.dir, *show, path), out="2")
        ctx.ok(ctx.bw(*ctx.USR, *words, *show, path), out="2")
        ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, *show, name),
               out="111" if words else "connected")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--unshare-all", "--share-net", *show, name),
           out="connected")


@case("case-S06 case-D12", "descriptors that no option names reach the command as they are, those "
      "that an option names do not")
def s06(ctx):
    ctx.write("seen", "x")
    folder = os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY)
    read = ("sh", "-c", "head -c9 <&9; echo; ls /proc/self/fd/8/; ls /proc/self/fd | tr '\\n' ' '")
    for words in ((), ("--unshare-pid",), ("--unshare-all", "--dev", "/dev")):
        result = ctx.bw(*ctx.USR, *words, "--proc", "/proc", *read,
                        fds={8: folder, 9: "held open"})
        # `ls` itself has opened one more, number 3.
        ctx.ok(result, out="held open\nseen\n0 1 2 3 8 9")
        result = ctx.bw(*ctx.USR, *words, "--proc", "/proc", "--args", "7", "--file", "6", "/f",
                        "--ro-bind-data", "5", "/g", "--bind-fd", "8", "/h", "sh", "-c",
                        "cat /f /g; ls /h; ls /proc/self/fd | tr '\\n' ' '",
                        fds={7: "--dir\0/x\0", 6: "f\n", 5: "g\n", 8: folder, 9: "held open"})
        ctx.ok(result, out="f\ng\nseen\n0 1 2 3 9")


# -- S05: system calls by other ways --------------------------------------------------------------

# A call by the numbers of x32, one by those of i386, io_uring, clone3, and a request of ioctl and flags
# with bits in the half that the kernel does not look at. Prints a name and an errno a line; a process of
# its own makes the one that a kernel may answer by a signal.
OTHER_WAYS = r"""
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    result = libc.syscall(*[ctypes.c_long(word) for word in words])
    print(name, ctypes.get_errno() if result < 0 else 'done', flush=True)
    return result
call('io_uring', 425, 1, ctypes.addressof(ctypes.create_string_buffer(120)))
call('clone3', 435, 0, 0)
call('unshare', {unshare}, 1 << 28 | 1 << 40)
call('TIOCSTI', {ioctl}, 0, 0x5412 | 1 << 32, 0)
call('AF_ALG', {socket}, 38 | 1 << 32, 5, 0)
if {x86}:
    call('x32', 0x40000000 | 39)
    # mov eax, 20 (getpid); int 0x80; ret -- and the same for 310 (unshare) of a user namespace.
    child = os.fork()
    if child == 0:
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(b'\x53\xbb\x00\x00\x00\x10\xb8\x36\x01\x00\x00\xcd\x80\x5b\xc3')
        entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
        answer = ctypes.CFUNCTYPE(ctypes.c_int)(entry)()
        print('i386', -answer if answer < 0 else 'done', flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print('i386', 'signal', os.WTERMSIG(status))
"""


@case("case-S05", "the filter of nsbox run answers calls by other conventions, io_uring and clone3, and what is in the "
      "upper half of an argument, as it answers the plain ones")
def s05(ctx):
    x86 = os.uname().machine == "x86_64"
    numbers = (272, 16, 41) if x86 else (97, 29, 198)
    script = OTHER_WAYS
    for word, value in zip(("{unshare}", "{ioctl}", "{socket}", "{x86}"), (*numbers, x86)):
        script = script.replace(word, str(value))

    def answers(*options):
        said = ctx.ok(ctx.run(ctx.nsbox, "run", *options, "--", "/usr/bin/python3", "-c", script))
        return dict(line.split(" ", 1) for line in said.out.splitlines())

    inside, bare = answers(), answers("--seccomp-policy", "none")
    eperm, enosys, no_family = str(errno.EPERM), str(errno.ENOSYS), str(errno.EAFNOSUPPORT)
    wanted = {"io_uring": enosys, "clone3": enosys, "unshare": eperm, "TIOCSTI": eperm, "AF_ALG": no_family}
    if x86:
        wanted.update(x32=enosys)
        # A kernel without that convention ends the caller by a signal.
        ctx.true(inside.pop("i386") in (eperm, enosys, f"signal {signal.SIGSEGV.value}"), "i386 is refused")
    ctx.eq(inside, wanted, "under the filter")
    # The control: without it these get as far as the kernel, which has its own words on them.
    ctx.eq((bare["clone3"], bare["unshare"]), (str(errno.EINVAL), str(errno.EINVAL)), "without a filter")
    ctx.true(bare["TIOCSTI"] != eperm, "the terminal without a filter")


# -- S12: an empty list of what is allowed --------------------------------------------------------

@case("case-S12", "an empty list allows nothing: a policy without a statement is an error, one that allows nothing lets "
      "nothing start, and no capability of an empty list is held")
def s12(ctx):
    marker = f"{ctx.mkdir('seen', 0o777)}/ran"
    touch = ["--rw", f"{ctx.dir}/seen", "--", "touch", marker]
    ctx.write("none.policy", "# nothing\n", 0o644)
    ctx.write("exit.policy", "allow exit_group write\n", 0o644)
    ctx.write("empty.json", '{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}', 0o644)
    for name in ("none.policy", "exit.policy", "empty.json"):
        ctx.fails(ctx.run(ctx.nsbox, "run", "--seccomp-policy", f"{ctx.dir}/{name}", *touch))
        ctx.fails(ctx.bw("--bind", "/", "/", "--seccomp-policy", f"{ctx.dir}/{name}", "touch", marker))
        ctx.true(not os.path.exists(marker), f"nothing ran under {name}")
    # Neither does a piece of a program.
    ctx.fails(ctx.bw("--bind", "/", "/", "--seccomp", "9", "touch", marker, fds={9: b"\0" * 7}))
    ctx.true(not os.path.exists(marker), "nothing ran under a piece of a program")
    # The controls: a policy that allows, and one that says so for all.
    ctx.write("all.json", '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}', 0o644)
    for name in ("default", f"{ctx.dir}/all.json"):
        ctx.ok(ctx.run(ctx.nsbox, "run", "--seccomp-policy", name, *touch))
        os.unlink(marker)
    held = ctx.ok(ctx.run(ctx.nsbox, "run", "--cap-drop", "ALL", "--", "grep", "^CapBnd", "/proc/self/status"))
    ctx.eq(int(held.out.split()[1], 16), 0, "no capability")


# -- S08: what a mask is made of ------------------------------------------------------------------

@case("case-S08", "the source of a mask is the host's own, whatever the root tree has put at its "
      "path", timeout=120)
def s08(ctx):
    for trap in ("a link up", "an absolute link", "a file", "a directory link"):
        tree = make_tree(ctx, trap.replace(" ", "-"))
        ctx.write(f"{os.path.basename(tree)}/etc/shadow", "the secret\n", 0o600)
        ctx.write(f"{os.path.basename(tree)}/etc/other", "other\n", 0o666)
        null = f"{tree}/dev/null"
        if trap == "a link up":
            os.symlink("../etc/other", null)
        elif trap == "an absolute link":
            os.symlink("/etc/other", null)
        elif trap == "a file":
            ctx.write(f"{os.path.basename(tree)}/dev/null", "other\n", 0o666)
        else:
            os.rmdir(f"{tree}/dev")
            os.symlink("etc", f"{tree}/dev")
            os.symlink("other", f"{tree}/etc/null")
        before = snapshot(tree)
        for option in ("--ro-bind", "--bind", "--dev-bind", "--ro-bind-try"):
            result = ctx.bw(*usr(tree), option, "/dev/null", "/etc/shadow", "sh", "-c",
                            "stat -c '%F %t:%T' /etc/shadow; cat /etc/shadow; true")
            ctx.ok(result, out="character special file 1:3")
            unchanged(ctx, tree, before, f"{trap} {option}")
        # The devices that --dev makes are the host's, and none of them is what the tree holds.
        result = ctx.bw(*usr(tree), "--dev", "/dev", "sh", "-c",
                        "stat -L -c '%F %t:%T' /dev/null /dev/zero; echo gone >/dev/null; true")
        if trap == "a directory link" and result.rc == 1 and "link" in result.err:
            pass  # A mount point that is a link may be refused.
        else:
            ctx.ok(result, out="character special file 1:3\ncharacter special file 1:5")
        unchanged(ctx, tree, before, f"{trap} --dev")


@case("case-S08", "what covers secrets in root's /proc is never taken from the root tree",
      only="root")
def s08_proc(ctx):
    tree = make_tree(ctx)
    marker = "from the tree\n"
    ctx.write("r/etc/secret", marker, 0o666)
    for name in ("null", "zero", "full", "empty"):
        os.symlink("../etc/secret", f"{tree}/dev/{name}")
    ctx.write("r/empty", marker)
    ctx.write("r/tmp/empty", marker)
    before = snapshot(tree)
    for words in (("--unshare-pid",), (), ("--unshare-all",)):
        result = ctx.ok(ctx.bw(*usr(tree), *words, "--proc", "/proc", "sh", "-c",
                               "cat /proc/kcore /proc/keys /proc/timer_list /proc/sysrq-trigger "
                               "/proc/sched_debug 2>&1 | head -c 100000; grep -c ' - proc ' "
                               "/proc/self/mountinfo"))
        ctx.true("from the tree" not in result.out, f"{words}: a cover shows a file of the tree")
        ctx.true(int(result.out.split()[-1]) >= 1, f"{words}: the procfs is there")
        unchanged(ctx, tree, before, f"{words}")


# -- S10: files that look like /proc --------------------------------------------------------------

FAKE = {"uid_map": "", "gid_map": "", "setgroups": "allow\n", "attr/exec": "",
        "attr/current": "x\n", "attr/apparmor/exec": "", "oom_score_adj": "0\n",
        "loginuid": "0\n", "mountinfo": "",
        "status": "Name: x\n", "ns/user": "", "comm": "x\n", "timens_offsets": ""}


def fake_proc(ctx, top, pids):
    """A plain directory tree with the files of /proc that a launcher may want to write to."""
    for pid in pids:
        for name, text in FAKE.items():
            ctx.write(f"{top}/{pid}/{name}", text, 0o666)
        os.makedirs(f"{ctx.dir}/{top}/{pid}/fd", exist_ok=True)
        os.makedirs(f"{ctx.dir}/{top}/{pid}/task/{pid}", exist_ok=True)
    ctx.write(f"{top}/sys/user/max_user_namespaces", "100\n", 0o666)
    ctx.write(f"{top}/sys/kernel/overflowuid", "65534\n", 0o666)
    ctx.write(f"{top}/sys/kernel/overflowgid", "65534\n", 0o666)
    ctx.write(f"{top}/sys/kernel/cap_last_cap", "40\n", 0o666)
    return f"{ctx.dir}/{top}"


@case("case-S10", "a root tree whose /proc is made of plain files gets nothing written to them, "
      "and the ids and limits that were asked for are real", timeout=120)
def s10_tree(ctx):
    tree = make_tree(ctx)
    fake_proc(ctx, "r/proc", ["self", "thread-self", *range(1, 12)])
    before = snapshot(f"{tree}/proc")
    show = ("sh", "-c", "id -u; id -g; unshare -U true && echo MADE || echo DENIED")
    uid, gid = ctx.uid, ctx.gid
    for words, want in ((("--unshare-user",), f"{uid}\n{gid}\nMADE"),
                        (("--unshare-user", "--uid", "5", "--gid", "6"), "5\n6\nMADE"),
                        (("--unshare-all", "--dev", "/dev"), f"{uid}\n{gid}\nMADE"),
                        (("--unshare-user", "--disable-userns"), f"{uid}\n{gid}\nDENIED"),
                        (("--unshare-user", "--disable-userns", "--uid", "5", "--gid", "6", "--dev",
                          "/dev", "--unshare-pid"), "5\n6\nDENIED"),
                        (("--unshare-pid", "--as-pid-1", "--unshare-user", "--cap-drop", "ALL"),
                         f"{uid}\n{gid}\nMADE"),
                        (("--unshare-all", "--new-session", "--die-with-parent", "--hostname", "x"),
                         f"{uid}\n{gid}\nMADE")):
        if casekit.lacks(ctx, "--disable-userns") and "--disable-userns" in words:
            continue
        ctx.ok(ctx.bw(*usr(tree), *words, *show), out=want)
        unchanged(ctx, f"{tree}/proc", before, f"{words}")
        # The same files bound where --proc is not asked for.
        ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", f"{tree}/proc", "/proc", *words, *show),
               out=want)
        unchanged(ctx, f"{tree}/proc", before, f"{words} with a bind")
    # With --proc the real one covers them.
    ctx.ok(ctx.bw(*usr(tree), "--unshare-pid", "--proc", "/proc", "sh", "-c",
                  "test -e /proc/self/maps && echo real"), out="real")
    unchanged(ctx, f"{tree}/proc", before, "--proc over them")


@case("case-S10", "where the caller's own /proc is made of plain files, nothing is written to "
      "them: the start fails with a message about /proc or is right all the same")
def s10_caller(ctx):
    fake = fake_proc(ctx, "fake", ["self", "thread-self", *range(1, 60)])
    for folder in ("self", "thread-self", *(str(n) for n in range(1, 60))):
        for number in range(3, 24):
            os.symlink("/etc", f"{fake}/{folder}/fd/{number}")
    ctx.write("d/name", "opened\n")
    script = 'mount --bind "$D/fake" /proc; exec "$BWRAP" "$@"'
    before = snapshot(fake)
    show = ("sh", "-c", "echo $(id -u) $(id -g)")
    worked = {"--unshare-user": "0 0", "--uid": "5 6"}
    for words in (("--unshare-user",), ("--unshare-user", "--uid", "5", "--gid", "6"),
                  ("--unshare-all",), ("--unshare-user", "--dev", "/dev"), ("--unshare-pid",),
                  ("--unshare-user", "--disable-userns")):
        result = in_mounts(ctx, script, *words, "--bind", "/", "/", *show, pid=True)
        unchanged(ctx, fake, before, f"{words}")
        if result.rc == 0:
            ctx.ok(result, out=worked["--uid" if "--uid" in words else "--unshare-user"])
        else:
            ctx.fails(result, rc=1, err="^bwrap: .*/proc")
            ctx.eq(result.out, "", "nothing was started")
    # A descriptor is bound as itself, not as what the plain files say that it is.
    folder = os.open(f"{ctx.dir}/d", os.O_PATH | os.O_DIRECTORY)
    for words in (("--unshare-user",), ()):
        result = in_mounts(ctx, script, *words, "--bind", "/", "/", "--tmpfs", "/tmp", "--bind-fd",
                           "9", "/tmp/x", "ls", "/tmp/x", pid=True, fds={9: folder})
        unchanged(ctx, fake, before, f"--bind-fd {words}")
        if result.rc == 0:
            ctx.ok(result, out="name")
        else:
            ctx.fails(result, rc=1, err="^bwrap: ")
    # The control: with the real /proc the same lines work.
    ctx.ok(in_mounts(ctx, 'exec "$BWRAP" "$@"', "--unshare-user", "--uid", "5", "--gid", "6",
                     "--bind", "/", "/", *show, pid=True), out="5 6")
