"""Old kernels and other people's filters: without the newer system calls everything is the same.

Each case runs its command lines once as they are, looks at what came out, and then again under
filters that answer the newer calls with ENOSYS (an old kernel) or EPERM (a container's filter),
each call alone and all of them together. The results have to be the same.
"""

import os
import re
import subprocess

import nshelp
from harness import case, descendants
from nshelp import decode_octal, mount, private_mounts, status_caps

# The numbers are the same on every processor.
NEW_CALLS = {"openat2": 437, "open_tree": 428, "move_mount": 429, "mount_setattr": 442,
             "fsopen": 430, "clone3": 435}
ALL = ",".join(NEW_CALLS) + ",fsconfig,fsmount,fspick,open_tree_attr,statmount,listmount"
FILTERS = [(error, names) for error in ("ENOSYS", "EPERM") for names in (*NEW_CALLS, ALL)]


def those(*names):
    """The filters for these calls alone and the one for all: where the others play no part."""
    return [(error, name) for error, name in FILTERS if name in (*names, ALL)]


def table(mountinfo):
    """What is mounted on top at each place: {place: (options, propagation, file system)}."""
    found = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 9 or "-" not in fields[6:]:
            continue
        dash = fields.index("-", 6)
        spread = tuple(sorted(word.split(":")[0] for word in fields[6:dash]))
        found[decode_octal(fields[4])] = (frozenset(fields[5].split(",")), spread, fields[dash + 1])
    return found


def mounts_of(result):
    return table(result.out.split("== mounts\n", 1)[1])


SHOW = "echo '== mounts'; cat /proc/self/mountinfo"


def everywhere(ctx, *words, check, command=None, fds=None, before=None, view=None, filters=FILTERS,
               **kw):
    """Runs the line plainly and under every filter. `check(result)` asserts what is right about
    each; `view(result)` is what has to be equal (the status and both outputs unless given).
    `fds` and `before` are functions that are called for each run."""
    def view_all(result):
        return result.rc, result.out, result.err

    def start(*prefix):
        if before:
            before()
        table_of_fds = fds() if fds else {}
        result = ctx.run(*prefix, ctx.bwrap, *words, *(command or ()), fds=table_of_fds, **kw)
        for fd in table_of_fds.values():
            if isinstance(fd, int):
                os.close(fd)
        check(result)
        return (view or view_all)(result)

    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    plain = start()
    for error, names in filters:
        try:
            got = start(deny, error, names, "--")
        except AssertionError as failed:
            raise AssertionError(f"with {names} answering {error}: {failed}") from None
        ctx.eq(got, plain, f"with {names} answering {error}")


def good(ctx, *parts):
    """A check: the status is 0, nothing is on stderr, and the output has these parts."""
    def check(result):
        ctx.ok(result)
        ctx.eq(result.err, "", f"messages of {result}")
        for part in parts:
            ctx.true(part in result.out, f"{part!r} in the output\n{result}")

    return check


@case("F0", "the filters of this suite do deny what they should")
def filters_work(ctx):
    script = ("import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
              "for n in sys.argv[1:]:\n"
              "    print(libc.syscall(int(n), -1, 0, 0, 0, 0), ctypes.get_errno())\n")
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    numbers = [str(n) for n in NEW_CALLS.values()]
    for error, wanted in (("ENOSYS", 38), ("EPERM", 1)):
        result = ctx.ok(ctx.run(deny, error, ALL, "--", "/usr/bin/python3", "-c", script, *numbers))
        ctx.eq(result.out.splitlines(), [f"-1 {wanted}"] * len(numbers), "all together")
        for name, number in NEW_CALLS.items():
            result = ctx.ok(ctx.run(deny, error, name, "--", "/usr/bin/python3", "-c", script,
                                    str(number)))
            ctx.eq(result.out.strip(), f"-1 {wanted}", name)
    plain = ctx.ok(ctx.run("/usr/bin/python3", "-c", script, *numbers)).out.splitlines()
    ctx.true("-1 38" not in plain, f"without a filter: {plain}")
    ctx.fails(ctx.run(deny, "ENOSYS", "nosuchcall", "--", "true"), rc=125)


@case("F1", "binds of folders and files, writable and read-only", timeout=120)
def binds(ctx):
    ctx.write("w/name", "writable")
    ctx.write("r/name", "readable")
    w, r = ctx.dir + "/w", ctx.dir + "/r"
    script = ("cat /tmp/w/name /tmp/r/name /tmp/f /tmp/g; echo; echo x >/tmp/w/new && rm /tmp/w/new; "
              "for f in /tmp/r/new /tmp/g; do (echo x >$f) 2>&- || echo no $f; done; " + SHOW)

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    def check(result):
        good(ctx, "writablereadablewritablereadable", "no /tmp/r/new\nno /tmp/g\n")(result)
        for place, flag in (("/tmp/w", "rw"), ("/tmp/r", "ro"), ("/tmp/f", "rw"), ("/tmp/g", "ro")):
            options = mounts_of(result)[place][0]
            ctx.true({flag, "nosuid", "nodev"} <= options, f"{place}: {options}")

    everywhere(ctx, *ctx.RUN, "--bind", w, "/tmp/w", "--ro-bind", r, "/tmp/r", "--bind", w + "/name",
               "/tmp/f", "--ro-bind", r + "/name", "/tmp/g", "--bind-try", "/nowhere", "/tmp/n",
               "sh", "-c", script, check=check, view=view)


def submounts(ctx):
    """A tree with mounts below mounts, some with odd names and flags, and the way to make it."""
    top = ctx.mkdir("top")
    plain, odd = top + "/plain", top + "/odd \\ name\n\ttab"
    deep, noexec, covered = plain + "/deep/er", top + "/noexec", top + "/covered"

    def make(place, flags=0):
        def step():
            os.makedirs(place, exist_ok=True)
            mount("t", place, "tmpfs", flags, "mode=0777")
            with open(place + "/name", "w") as f:
                f.write("text")
        return step

    steps = [make(top), make(plain), make(odd), make(deep),
             make(noexec, nshelp.MS_NOEXEC | nshelp.MS_NOSUID), make(covered), make(covered)]
    return top, [top, plain, odd, deep, noexec, covered], private_mounts(*steps)


@case("F2", "a read-only bind is read-only in its submounts too", timeout=240)
def read_only_submounts(ctx):
    top, places, prepare = submounts(ctx)
    names = ["/x" + place[len(top):] for place in places]
    script = ('for d in "$@"; do cat "$d/name"; (echo x >"$d/new") 2>&- && echo WRITTEN; '
              '(echo x >"$d/name") 2>&- && echo WRITTEN; rm -f "$d/name" 2>&-; '
              'echo; done; ' + SHOW)

    def check(result):
        good(ctx, "text\n" * len(places))(result)
        ctx.true("WRITTEN" not in result.out, f"something was written\n{result}")
        found = mounts_of(result)
        for name in names:
            ctx.true({"ro", "nosuid", "nodev"} <= found[name][0], f"{name!r}: {found[name]}")
        ctx.true("noexec" in found["/x/noexec"][0], "noexec is kept")

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    everywhere(ctx, *ctx.USR, "--proc", "/proc", "--ro-bind", top, "/x", "sh", "-c", script, "sh",
               *names, check=check, view=view, pre=prepare)

    # The control: the same tree can be written through a plain bind.
    def check_writable(result):
        ctx.ok(result)
        ctx.eq(result.out.count("WRITTEN"), 2 * len(places), f"writings\n{result}")

    everywhere(ctx, *ctx.USR, "--proc", "/proc", "--bind", top, "/x", "sh", "-c", script, "sh",
               *names, check=check_writable, view=view, pre=prepare)


@case("F3", "the whole host read-only: every mount of it is", timeout=240)
def whole_host(ctx):
    script = SHOW

    def check(result):
        good(ctx)(result)
        for place, (options, _, kind) in mounts_of(result).items():
            ctx.true("ro" in options or place == "/tmp", f"{place}: {options} {kind}")
            ctx.true({"nosuid", "nodev"} <= options, f"{place}: {options} {kind}")

    def view(result):
        return result.rc, mounts_of(result)

    everywhere(ctx, "--ro-bind", "/", "/", "--tmpfs", "/tmp", "sh", "-c", script, check=check,
               view=view)


@case("F4", "--dev makes the same devices", timeout=240)
def devices(ctx):
    script = ("ls -lR --time-style=+ /dev | sed 's/ [0-9]* *console/ console/'; "
              "echo x >/dev/null; head -c3 /dev/zero | wc -c; echo y >/dev/shm/y; cat /dev/shm/y; "
              "/usr/bin/python3 -c 'import os, pty; print(os.ttyname(pty.openpty()[1]))'; "
              "stat -c '%a %F' /dev/shm /dev/pts /dev; readlink /dev/fd /dev/core /dev/ptmx; " + SHOW)

    def check(result):
        good(ctx, "/dev/pts/0\n", "1777 directory\n", "755 directory\n", "/proc/self/fd\n")(result)
        ctx.true("nodev" not in mounts_of(result)["/dev/null"][0], "/dev/null may be opened")

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    everywhere(ctx, "--ro-bind", "/", "/", "--dev", "/dev", "sh", "-c", script, check=check, view=view)


@case("F5", "--proc shows the sandbox's processes, with the same covers", timeout=240)
def proc(ctx):
    script = ("ls -d /proc/[0-9]*; for f in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness; do "
              "(exec 3<>$f) 2>&- && echo OPENED; done; " + SHOW)

    def check(result):
        good(ctx, "/proc/1\n")(result)
        ctx.true(f"/proc/{os.getpid()}\n" not in result.out, f"the host's processes\n{result}")
        ctx.true("OPENED" not in result.out, f"the host's settings\n{result}")

    def view(result):
        return result.rc, len(re.findall(r"^/proc/\d+$", result.out, re.M)), mounts_of(result)

    everywhere(ctx, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "sh", "-c", script,
               check=check, view=view)
    everywhere(ctx, "--ro-bind", "/", "/", "--unshare-pid", "--as-pid-1", "--proc", "/proc", "sh",
               "-c", "echo $$", check=good(ctx, "1\n"))


@case("F6", "overlays of all three kinds", timeout=240)
def overlays(ctx):
    ctx.write("one/a", "1")
    ctx.write("one/b", "2")
    ctx.write('two ":,\\/b', "3")
    one, two = ctx.dir + "/one", ctx.dir + '/two ":,\\'
    sources = ("--overlay-src", one, "--overlay-src", two)
    script = "cat /tmp/o/a /tmp/o/b; (echo 5 >/tmp/o/b) 2>&-; cat /tmp/o/b; " + SHOW

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    def checker(text):
        def check(result):
            good(ctx, text)(result)
            options = mounts_of(result)["/tmp/o"]
            ctx.true({"nosuid", "nodev"} <= options[0] and options[2] == "overlay", f"{options}")
            with open(two + "/b") as f:
                ctx.eq(f.read(), "3", "the lower layer")
        return check

    everywhere(ctx, *ctx.RUN, *sources, "--tmp-overlay", "/tmp/o", "sh", "-c", script,
               check=checker("135\n"), view=view)
    everywhere(ctx, *ctx.RUN, *sources, "--ro-overlay", "/tmp/o", "sh", "-c", script,
               check=checker("133"), view=view)
    number = [0]

    def fresh():
        number[0] += 1
        for name in ("upper", "work"):
            folder = os.path.join(ctx.dir, name)
            if os.path.lexists(folder):
                os.unlink(folder)
            os.symlink(ctx.mkdir(f"{name}{number[0]}"), folder)

    def check_upper(result):
        checker("135\n")(result)
        with open(ctx.dir + "/upper/b") as f:
            ctx.eq(f.read(), "5\n", "the upper layer")

    everywhere(ctx, *ctx.RUN, *sources, "--overlay", ctx.dir + "/upper", ctx.dir + "/work", "/tmp/o",
               "sh", "-c", script, check=check_upper, before=fresh, view=view)


@case("F7", "symlinks and dots in destinations mean what they mean inside", timeout=120)
def destination_links(ctx):
    root, source = ctx.mkdir("root"), ctx.mkdir("source")
    ctx.write("source/name", "text")
    for name in ("real", "deep/er"):
        ctx.mkdir("root/" + name)
    for name, target in (("rel", "real"), ("abs", "/real"), ("chain", "abs"), ("deep/up", "../rel"),
                         ("deep/far", "../../../../../real"), ("deep/er/abs", "/deep/up")):
        os.symlink(target, os.path.join(root, name))
    base = ("--bind", root, "/", *ctx.USR, "--proc", "/proc")
    for place in ("/rel", "/abs", "/chain", "/deep/up", "/deep/far", "/deep/er/abs", "/../../rel",
                  "/deep/er/../../real", "rel/", "//abs//", "/./chain/."):
        everywhere(ctx, *base, "--ro-bind", source, place, "sh", "-c",
                   "cat /real/name; grep -c ' /real ' /proc/self/mountinfo", check=good(ctx, "text1\n"),
                   filters=those("openat2", "move_mount"))
    everywhere(ctx, *base, "--tmpfs", "/abs", "--dir", "/chain/made", "--file", "9",
               "/deep/er/abs/file", "--symlink", "file", "/rel/link", "--chmod", "0600",
               "/deep/far/file", "sh", "-c", "ls /real; cat /real/link; stat -c %a /real/file",
               check=good(ctx, "file\nlink\nmade\ndata600\n"), fds=lambda: {9: "data"})
    ctx.eq((os.listdir(root + "/real"), os.listdir(source)), ([], ["name"]), "on the host")


@case("F8", "a symlink in the new root cannot lead set-up code onto the host", timeout=300)
def no_escape(ctx):
    victim, root = ctx.mkdir("victim"), ctx.mkdir("root")
    links = {"a": f"/oldroot{victim}", "b": "../" * 12 + f"oldroot{victim}", "c": victim,
             "d": "../" * 12 + victim.lstrip("/"), "e": f"/proc/self/root{victim}", "f": "a/..",
             "g": f"/proc/self/cwd/../../..{victim}"}
    for name, target in links.items():
        os.symlink(target, os.path.join(root, name))

    def check(result):
        ctx.true(result.rc in (0, 1), f"works or fails cleanly\n{result}")
        ctx.eq(os.listdir(victim), [], f"in the host's folder\n{result}")

    def clean():
        # What was made inside the root by a call that worked is taken away again.
        for name in os.listdir(root):
            path = os.path.join(root, name)
            if name not in links and name not in ("usr", "bin", "lib", "lib64"):
                subprocess.run(["rm", "-rf", path], check=True)

    for name in links:
        for words in (("--dir", f"/{name}/made"), ("--file", "9", f"/{name}/file"),
                      ("--ro-bind", "/etc/hostname", f"/{name}/deep/hostname"),
                      ("--tmpfs", f"/{name}/t")):
            everywhere(ctx, "--bind", root, "/", *ctx.USR, *words, "true", check=check, before=clean,
                       fds=lambda: {9: "data"}, filters=those("openat2"))
    everywhere(ctx, "--bind", victim, "/v", *ctx.USR, "--file", "9", "/v/file", "true",
               check=lambda result: (ctx.ok(result), ctx.eq(os.listdir(victim), ["file"])),
               fds=lambda: {9: "data"}, filters=FILTERS[:2])


@case("F9", "--remount-ro makes one mount read-only and leaves its flags and submounts", timeout=240)
def remount(ctx):
    top, _, prepare = submounts(ctx)
    script = ("(echo x >/x/new) 2>&- && echo WRITTEN top; echo x >/x/plain/new && echo below; "
              "echo x >/x/null && echo device; " + SHOW)

    def check(result):
        ctx.true("WRITTEN" not in result.out and "below" in result.out, f"{result}")
        found = mounts_of(result)
        ctx.true("ro" in found["/x"][0] and "nodev" not in found["/x"][0], f"{found['/x']}")
        ctx.true("rw" in found["/x/plain"][0], f"{found['/x/plain']}")

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    everywhere(ctx, *ctx.USR, "--proc", "/proc", "--dev-bind", top, "/x", "--remount-ro", "/x", "sh",
               "-c", script, check=check, view=view, pre=prepare)
    everywhere(ctx, *ctx.USR, "--dir", "/d", "--remount-ro", "/", "sh", "-c",
               "ls /; mkdir /e 2>&- || echo no", check=good(ctx, "bin\nd\n", "no\n"))


@case("F10", "folders and files handed over as descriptors", timeout=120)
def descriptors(ctx):
    ctx.write("source/name", "text")

    def fds():
        return {n: os.open(path, os.O_PATH) for n, path in
                ((9, "source"), (10, "source"), (11, "source/name"))}

    script = ("cat /tmp/w/name /tmp/r/name /tmp/f; echo; touch /tmp/w/new && rm /tmp/w/new; "
              "touch /tmp/r/new 2>&- || echo no; ls /proc/self/fd | sort -n | tr '\\n' ' '")
    everywhere(ctx, *ctx.RUN, "--symlink", "real", "/tmp/w", "--dir", "/tmp/real", "--bind-fd", "9",
               "/tmp/w", "--ro-bind-fd", "10", "/tmp/r", "--bind-fd", "11", "/tmp/f", "bash", "-c",
               script, check=good(ctx, "texttexttext\n", "no\n", "0 1 2 3 "), fds=fds)


@case("F11", "files from data, folders, modes and chmod", timeout=120)
def data(ctx):
    def fds():
        return {n: f"data {n} " for n in range(20, 25)}

    script = ("cd /tmp; stat -c '%n %a %F' * p p/*; cat f g b r p/deep; (echo x >r) 2>&- || "
              "echo no; echo changed >b; cat b; " + SHOW)

    def check(result):
        good(ctx, "f 666 ", "g 640 ", "b 600 ", "r 400 ", "d 1741 ", "c 700 ", "p 750 ",
             "data 20 data 21 data 22 data 23 data 24 no\nchanged\n")(result)
        ctx.true("ro" in mounts_of(result)["/tmp/r"][0], "the read-only file")

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    everywhere(ctx, *ctx.RUN, "--file", "20", "/tmp/f", "--perms", "0640", "--file", "21", "/tmp/g",
               "--bind-data", "22", "/tmp/b", "--perms", "0400", "--ro-bind-data", "23", "/tmp/r",
               "--perms", "1741", "--dir", "/tmp/d", "--dir", "/tmp/c", "--chmod", "0700", "/tmp/c",
               "--perms", "0640", "--file", "24", "/tmp/p/deep", "sh", "-c", script, check=check,
               view=view, fds=fds, pre=lambda: os.umask(0o077))


@case("F12", "tmpfs with a size and a mode", timeout=120)
def sized_tmpfs(ctx):
    script = ("stat -c %a /tmp/t /tmp/u; (head -c 100000 /dev/zero >/tmp/t/big) 2>&1 | grep -o 'No "
              "space.*'; stat -f -c '%b' /tmp/t; " + SHOW)

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    def check(result):
        good(ctx, "1777\n755\n", "No space left on device\n", "16\n")(result)
        for place in ("/tmp/t", "/tmp/u"):
            ctx.true({"nosuid", "nodev"} <= mounts_of(result)[place][0], place)

    everywhere(ctx, *ctx.RUN, "--dev-bind", "/dev", "/dev", "--perms", "1777", "--size", "65536",
               "--tmpfs", "/tmp/t", "--tmpfs", "/tmp/u", "sh", "-c", script, check=check, view=view)


@case("F13", "namespaces, ids, the network and the status that is reported", timeout=240)
def namespaces(ctx):
    own = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in
           ("ipc", "mnt", "net", "pid", "user", "uts", "cgroup")}
    script = ("id -u; id -g; hostname; echo $$; grep -c 127.0.0.1 /proc/net/fib_trie; cat "
              "/proc/self/uid_map /proc/self/gid_map; grep -E '^(Cap|NoNewPrivs)' "
              "/proc/self/status; readlink /proc/self/ns/*; exit 7")
    read = [None]

    def fds():
        inner, outer = os.pipe()
        if read[0] is not None:
            os.close(read[0])
        read[0] = inner
        return {9: outer}

    def check(result):
        ctx.eq(result.rc, 7, f"the status of {result}")
        for link in own.values():
            ctx.true(link not in result.out, f"{link} is the host's\n{result}")
        status = os.read(read[0], 4096).decode()
        ctx.eq(sorted(re.findall(r'"([a-z-]+)":', status)),
               sorted(["child-pid", "cgroup-namespace", "ipc-namespace", "mnt-namespace",
                       "net-namespace", "pid-namespace", "uts-namespace", "exit-code"]), "the keys")
        ctx.true('"exit-code": 7' in status, status)
        for number in re.findall(r'-namespace": (\d+)', status):
            ctx.true(f"[{number}]" in result.out, f"namespace {number}\n{status}\n{result}")

    def view(result):
        return result.rc, re.sub(r"\[\d+\]", "[]", result.out), result.err

    everywhere(ctx, "--unshare-all", "--unshare-user", "--uid", "5", "--gid", "6", "--hostname",
               "inside", "--json-status-fd", "9", "--ro-bind", "/", "/", "--proc", "/proc", "--dev",
               "/dev", "bash", "-c", script, check=check, view=view, fds=fds)
    os.close(read[0])


@case("F14", "joined namespaces", timeout=240)
def joined(ctx):
    holder = nshelp.holder(ctx, "-r", "--pid", "--fork", "--kill-child")
    inner = ctx.until(lambda: nshelp.children_of(holder.pid), why="the child of unshare")[0]
    links = [os.readlink(f"/proc/{inner}/ns/{kind}") for kind in ("user", "pid")]

    def fds():
        return {21: os.open(f"/proc/{inner}/ns/user", os.O_RDONLY),
                22: os.open(f"/proc/{inner}/ns/pid", os.O_RDONLY)}

    base = ("--userns", "21", "--pidns", "22", "--uid", "0", "--gid", "0", "--bind", "/", "/")
    command = ("sh", "-c", "readlink /proc/$PPID/ns/pid; readlink /proc/self/ns/user; exit 6")

    def check(result):
        ctx.eq(result.rc, 6, f"{result}")
        ctx.true(links[0] in result.out, f"the user namespace\n{result}")

    everywhere(ctx, *base, *command, check=check, view=lambda r: r.rc, fds=fds)
    everywhere(ctx, *base, "--unshare-pid", "sh", "-c", "echo $$; exit 6", fds=fds,
               check=lambda r: ctx.eq((r.rc, r.out), (6, "2\n")))
    nshelp.end_tree(ctx, holder)


@case("F15", "statuses, signals and the end of the sandbox", timeout=240)
def endings(ctx):
    for extra in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"),
                  ("--die-with-parent", "--new-session"), ("--unshare-all", "--dev", "/dev")):
        everywhere(ctx, "--ro-bind", "/", "/", *extra, "sh", "-c", "exit 9",
                   check=lambda r: ctx.eq(r.rc, 9), filters=those("clone3"))
        everywhere(ctx, "--ro-bind", "/", "/", *extra, "nosuchprogram",
                   check=lambda r: ctx.fails(r, rc=1, err="^bwrap: execvp nosuchprogram: No such"),
                   filters=those("clone3"))
    everywhere(ctx, "--ro-bind", "/", "/", "--unshare-pid", "sh", "-c", "kill -9 $$",
               check=lambda r: ctx.eq(r.rc, 137), filters=those("clone3"))
    ctx.until(lambda: not descendants(os.getpid()), why="the end of every process")


@case("F16", "a sandbox in a sandbox", timeout=240)
def nested(ctx):
    outer = ("--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--bind", "/", "/",
             "--bind", "/proc", "/proc", "--")
    everywhere(ctx, *outer, "/proc/self/exe", "--unshare-all", *ctx.USR, "--ro-bind", "/etc", "/etc",
               "--proc", "/proc", "--dev", "/dev", "sh", "-c", "echo hello; ls /; test -c /dev/null",
               check=good(ctx, "hello\nbin\ndev\netc\nlib\nlib64\nproc\nusr\n"))


@case("F17", "flags of a source mount stay, and cannot be a reason to fail", timeout=240)
def kept_flags(ctx):
    point = ctx.mkdir("m")

    def read_only():
        mount(None, point, None, nshelp.MS_REMOUNT | nshelp.MS_BIND | nshelp.MS_RDONLY
              | nshelp.MS_NOEXEC | nshelp.MS_NODEV)

    prepare = private_mounts(lambda: mount("t", point, "tmpfs", nshelp.MS_NODEV | nshelp.MS_NOEXEC),
                             read_only)

    def check(result):
        good(ctx, "no\n")(result)
        for place in (point, "/tmp/x", "/tmp/y", "/tmp/z"):
            options = mounts_of(result)[place][0]
            ctx.true({"ro", "noexec", "nodev"} <= options, f"{place}: {options}")

    def view(result):
        return result.rc, mounts_of(result)

    everywhere(ctx, *ctx.RUN, "--bind", point, "/tmp/x", "--dev-bind", point, "/tmp/y", "--ro-bind",
               point, "/tmp/z", "sh", "-c", "touch /tmp/x/new 2>&- || echo no; " + SHOW,
               check=check, view=view, pre=prepare)


@case("F18", "an almost empty root, its mode and the working directory", timeout=120)
def small_root(ctx):
    script = "pwd; echo $PWD; stat -c '%a %u' /; ls -A /; touch /new && echo writable; " + SHOW

    def check(result):
        good(ctx, f"/usr/lib\n/usr/lib\n755 {ctx.uid}\nbin\nlib\nlib64\nproc\nusr\nwritable\n")(result)
        ctx.true({"nosuid", "nodev"} <= mounts_of(result)["/"][0], f"{mounts_of(result)['/']}")

    def view(result):
        return result.rc, result.out.split("== mounts")[0], mounts_of(result)

    everywhere(ctx, *ctx.USR, "--proc", "/proc", "--chdir", "usr/lib", "sh", "-c", script,
               check=check, view=view)


@case("F19", "capabilities of the command", timeout=120)
def capabilities(ctx):
    def check(result):
        ctx.ok(result)
        ctx.eq(status_caps(result.out)["CapEff"], 1 << nshelp.CAP_KILL, f"{result}")

    everywhere(ctx, "--unshare-user", "--ro-bind", "/", "/", "--uid", "7", "--cap-drop", "ALL",
               "--cap-add", "CAP_KILL", "grep", "^Cap", "/proc/self/status", check=check)
    everywhere(ctx, "--ro-bind", "/", "/", "grep", "^Cap", "/proc/self/status", check=ctx.ok)


@case("F20", "failures have the same messages", timeout=240)
def same_messages(ctx):
    name, folder = ctx.write("file", "text"), ctx.mkdir("folder")
    for words in (("--bind", "/nowhere", "/tmp/x"), ("--dir", name), ("--tmpfs", name + "/x"),
                  ("--bind", folder, name), ("--bind", name, folder), ("--remount-ro", "/usr/bin"),
                  ("--remount-ro", "/nowhere"), ("--symlink", "nowhere", "/tmp/l", "--dir",
                                                 "/tmp/l/x"),
                  ("--symlink", "loop", "/tmp/loop", "--dir", "/tmp/loop/x"),
                  ("--chdir", "/nowhere"), ("--chmod", "0700", "/nowhere"), ("--proc", name)):
        everywhere(ctx, *ctx.RUN, *words, "true",
                   check=lambda r: ctx.fails(r, rc=1, err=r"^bwrap: [^\n]+\n\Z"),
                   filters=those("openat2"))
