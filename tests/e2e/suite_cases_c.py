"""Reported bugs, group C: arguments, environment, working directory and exec."""

import os
import secrets
import subprocess
import time

import casekit
from casekit import make_tree, needs, probe, swapping, usr
from harness import case, memfd


@case("case-C01", "any number of options and of arguments is taken, from the command line and from "
      "a descriptor")
def c01(ctx):
    if casekit.peer():
        ctx.skip("the peer stops at 9000 arguments")
    stream = b"".join(b"--setenv\0V%d\0%d\0" % (n, n) for n in range(4600))
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "sh", "-c", "echo $V0 $V4599", fds={9: stream}),
           out="0 4599")
    many = [str(n) for n in range(20000)]
    ctx.ok(ctx.bw(*ctx.RUN, "sh", "-c", "echo $# $1 ${20000}", "sh", *many), out="20000 0 19999")
    words = []
    for number in range(3500):
        words += ["--dir", f"/tmp/d{number}", "--setenv", f"V{number}", "x"]
    ctx.ok(ctx.bw(*ctx.RUN, *words, "sh", "-c", "ls /tmp | wc -l"), out="3500")


@case("case-C02", "options that do not fit on a command line are taken from a descriptor")
def c02(ctx):
    big = "x" * 120000
    stream = "".join(f"--setenv\0BIG{n}\0{big}\0" for n in range(6))
    # More than one argument may hold, in a file, a pipe and an unlinked file.
    path = ctx.write("stream", stream)
    result = ctx.bw(*ctx.RUN, "--args", "9", "sh", "-c", "echo ${#BIG0} ${#BIG5}",
                    fds={9: stream})
    ctx.ok(result, out="120000 120000")
    fd = os.open(path, os.O_RDONLY)
    os.unlink(path)
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "sh", "-c", "echo ${#BIG5}", fds={9: fd}), out="120000")
    dirs = "".join(f"--dir\0/tmp/{'d' * 200}/{n}/{'e' * 200}\0" for n in range(700))
    read, write = os.pipe()
    proc = ctx.bw_popen(*ctx.RUN, "--args", "9", "sh", "-c", f"ls /tmp/{'d' * 200} | wc -l",
                        fds={9: read})
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        pipe.write(dirs.encode())
    out, err = proc.communicate(timeout=30)
    ctx.eq((proc.returncode, out), (0, b"700\n"), err.decode())


@case("case-C04", "a command that is nowhere is reported as not found, whether or not a directory "
      "of PATH can be searched")
def c04(ctx):
    locked = ctx.mkdir("locked", 0)
    ctx.write("plain/present", "x", 0o644)
    base = ("--ro-bind", "/", "/", "--cap-drop", "ALL")
    for path in (f"{locked}:/usr/bin", f"/usr/bin:{locked}", f"{locked}/sub:/usr/bin:/nowhere",
                 f"{ctx.dir}/plain/present:/usr/bin"):
        if casekit.peer() and "locked" in path:
            continue
        for words in ((), ("--unshare-pid",)):
            result = ctx.bw(*base, *words, "--setenv", "PATH", path, "nosuch")
            ctx.fails(result, rc=1, err="^bwrap: execvp nosuch: No such file or directory")
        ctx.ok(ctx.bw(*base, "--setenv", "PATH", path, "echo", "x"), out="x")
    # What is found but may not be executed is another error.
    for path in (f"{ctx.dir}/plain:/usr/bin", f"/usr/bin:{ctx.dir}/plain"):
        ctx.fails(ctx.bw(*base, "--setenv", "PATH", path, "present"), rc=1,
                  err="^bwrap: execvp present: Permission denied")
    ctx.fails(ctx.bw(*base, f"{ctx.dir}/plain/present"), rc=1,
              err="^bwrap: execvp .*/present: Permission denied")
    if not ctx.root and not casekit.peer():
        ctx.fails(ctx.bw("--ro-bind", "/", "/", "nosuch", env=dict(os.environ,
                                                                   PATH="/root:/usr/bin")),
                  rc=1, err="^bwrap: execvp nosuch: No such file or directory")


@case("case-C06", "the command is looked up in the sandbox's PATH, and without one in "
      "/usr/local/bin, /usr/bin and /bin")
def c06(ctx):
    script = "#!/bin/sh\necho {}\n"
    ctx.write("outside/which", script.format("outside"), 0o755)
    ctx.write("inside/which", script.format("inside"), 0o755)
    outside = dict(os.environ, PATH=f"{ctx.dir}/outside:/usr/bin:/bin")
    base = ("--ro-bind", "/", "/")
    ctx.ok(ctx.bw(*base, "which", env=outside), out="outside")
    for words in (("--setenv", "PATH", f"{ctx.dir}/inside"),
                  ("--clearenv", "--setenv", "PATH", f"{ctx.dir}/inside:/usr/bin"),
                  ("--unsetenv", "PATH", "--setenv", "PATH", f"/nowhere:{ctx.dir}/inside")):
        ctx.ok(ctx.bw(*base, *words, "which", env=outside), out="inside")
    ctx.fails(ctx.bw(*base, "--setenv", "PATH", "/nowhere", "which", env=outside), rc=1,
              err="^bwrap: execvp which: No such file or directory")
    # Without a PATH the usual directories are searched, in this order.
    usual = [*ctx.USR, "--tmpfs", "/usr/local", "--perms", "0755", "--file", "9",
             "/usr/local/bin/id", "--perms", "0755", "--file", "8", "/usr/local/bin/here"]
    fds = {9: script.format("local"), 8: script.format("here")}
    for clear in (("--clearenv",), ("--unsetenv", "PATH")):
        if not casekit.peer():
            ctx.ok(ctx.bw(*usual, *clear, "id", fds=fds, env=outside), out="local")
            ctx.ok(ctx.bw(*usual, *clear, "here", fds=fds, env=outside), out="here")
        ctx.ok(ctx.bw(*ctx.USR, *clear, "echo", "x", env=outside), out="x")
        tree = make_tree(ctx)
        os.unlink(f"{tree}/bin")
        ctx.write("r/bin/only-in-bin", script.format("bin"), 0o755)
        os.symlink("/usr/bin/sh", f"{tree}/bin/sh")
        ctx.ok(ctx.bw(*usr(tree), *clear, "only-in-bin", env=outside), out="bin")
        os.unlink(f"{tree}/bin/sh")
        os.unlink(f"{tree}/bin/only-in-bin")
        os.rmdir(f"{tree}/bin")


# -- C07: secrets that /proc could show -----------------------------------------------------------

CLEAR = {"clearenv": ("--clearenv",), "unsetenv": ("--unsetenv", "K"),
         "replaced": ("--setenv", "K", "other")}

SHAPES = {
    "all": ("--unshare-all", "--proc", "/proc"),
    "pid": ("--unshare-pid", "--proc", "/proc"),
    "pid, dev": ("--unshare-pid", "--proc", "/proc", "--dev", "/dev"),
    "pid, user": ("--unshare-user", "--unshare-pid", "--proc", "/proc"),
    "pid, no capabilities": ("--unshare-user", "--unshare-pid", "--cap-drop", "ALL", "--proc",
                             "/proc"),
    "all, capabilities": ("--unshare-all", "--cap-add", "ALL", "--proc", "/proc"),
    "user 0, capabilities": ("--unshare-user", "--unshare-pid", "--uid", "0", "--gid", "0",
                             "--cap-add", "ALL", "--proc", "/proc"),
    "userns off": ("--unshare-user", "--disable-userns", "--unshare-pid", "--proc", "/proc"),
    "as pid 1": ("--unshare-pid", "--as-pid-1", "--proc", "/proc"),
    "die with parent": ("--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc"),
    "sync": ("--unshare-pid", "--sync-fd", "6", "--proc", "/proc"),
    "lock": ("--unshare-pid", "--lock-file", "LOCK", "--proc", "/proc"),
    # No pid namespace: the host's /proc is shown, and a process of ours waits in the user
    # namespace of the sandbox, where the command may look at it.
    "host pids, sync": ("--unshare-user", "--sync-fd", "6", "--proc", "/proc"),
    "host pids, lock": ("--unshare-user", "--lock-file", "LOCK", "--bind", "/proc", "/proc"),
}


def look_for_secrets(ctx, shape, clear, closed_stdin=False):
    program = probe(ctx, "case_secrets")
    in_environment, in_arguments, in_stream, control = (secrets.token_hex(16) for _ in range(4))
    lock = ctx.write("lock", "")
    words = [lock if w == "LOCK" else w for w in SHAPES[shape]]
    stream = f"--setenv\0STREAM\0{in_stream}\0--unsetenv\0STREAM\0"
    read, write = os.pipe()
    result = ctx.bw("--ro-bind", "/", "/", "--setenv", "OTHER", in_arguments, "--unsetenv", "OTHER",
                    "--args", "7", *words, *CLEAR[clear], program,
                    *(s[::-1] for s in (in_environment, in_stream, in_arguments, control)),
                    fds={6: write, 7: stream}, env=dict(os.environ, K=in_environment),
                    pre=(lambda: os.close(0)) if closed_stdin else None, timeout=60)
    os.close(read)
    os.close(write)
    ctx.ok(result)
    lines = [line.split(" ") for line in result.out.splitlines()]
    ctx.true(lines[-1][0] == "DONE" and int(lines[-1][1]) > 100, f"the probe read a lot\n{result}")
    found = [(int(words[1]), words[2]) for words in lines if words[0] == "FOUND"]
    for kind in ("environ", "mem"):
        if not any(n == 3 and path.endswith("/" + kind) for n, path in found):
            raise AssertionError(f"the control was not found in a {kind}\n{result}")
    names = ("the variable", "the variable of --args", "the variable of the command line")
    host = shape.startswith("host")
    leaks = [f"{names[n]} in {path}" for n, path in found if n < 3
             # The launcher's own arguments are on the host for everybody to read.
             and not (host and n == 2 and path.endswith("/cmdline"))]
    ctx.eq(leaks, [], f"{shape}, {clear}: secrets that the command could read")
    return lines


@case("case-C07", "a variable that was cleared, removed or replaced is nowhere below the sandbox's "
      "/proc: no environment, argument list, memory or descriptor of another process holds it",
      timeout=300)
def c07(ctx):
    for shape, words in SHAPES.items():
        if casekit.lacks(ctx, "--disable-userns") and "--disable-userns" in words:
            continue
        for clear in CLEAR if shape in ("all", "pid") else ("clearenv",):
            lines = look_for_secrets(ctx, shape, clear)
            if casekit.peer() or shape.startswith("host"):
                continue
            for line in lines:
                if line[0] == "FD" and line[1].startswith("/proc/1/") and shape != "as pid 1":
                    kind, target = line[3], " ".join(line[4:])
                    if kind == "directory" or kind == "file" and target != f"{ctx.dir}/lock":
                        raise AssertionError(f"{shape}: process 1 holds {target} open")
                if line[0] == "ARGUMENTS" and shape != "as pid 1":
                    ctx.true(not any(w.startswith("--") or "/" in w for w in line[1:]),
                             f"{shape}: process 1 shows our arguments: {line}")


@case("case-C07", "with standard input closed, process 1 holds nothing open that leads to the host")
def c07_closed(ctx):
    for shape in ("all", "pid", "sync"):
        lines = look_for_secrets(ctx, shape, "clearenv", closed_stdin=True)
        for line in lines:
            if line[0] == "FD" and line[1].startswith("/proc/1/"):
                ctx.true(line[3] != "directory", f"{shape}: process 1 holds {line[4:]} open")


@case("case-C07", "process 1 is closed to a command without capabilities, and to root's with every "
      "one of its user namespace: its memory, environment, descriptors and directories, and to "
      "tracing")
def c07_closed_to(ctx):
    shapes = ["pid, no capabilities"]
    if ctx.root:
        shapes += ["all, capabilities", "user 0, capabilities"]
    else:
        shapes += ["all", "pid", "pid, dev", "pid, user", "userns off", "sync", "lock"]
    for shape in shapes:
        lines = look_for_secrets(ctx, shape, "clearenv")
        states = {who: {w[1]: w[2] for w in lines if w[0] == who} for who in ("ONE", "CHILD")}
        for name, how in states["CHILD"].items():
            ctx.eq(how, "open", f"{shape}: the control, {name} of a process of the command's own")
        for name in ("environ", "mem", "maps", "auxv", "fd", "exe", "root", "cwd", "syscall",
                     "ptrace"):
            how = states["ONE"][name]
            # The folder of a closed process is root's, who may list it; no entry leads anywhere.
            if name == "fd" and ctx.root:
                followed = [w for w in lines if w[0] == "FD" and w[1].startswith("/proc/1/")]
                ctx.eq(followed, [], f"{shape}: descriptors of process 1")
            elif how not in ("EACCES", "EPERM"):
                raise AssertionError(f"{shape}: {name} of process 1 is {how}")


@case("case-C07", "the very first moment of the command shows no secret either", timeout=120)
def c07_first_moment(ctx):
    # Each start has another chance to meet a process 1 that is still the launcher's copy.
    for _ in range(12):
        look_for_secrets(ctx, "all", "clearenv")


@case("case-C08", "what comes through --args is in no argument list that the host shows")
def c08(ctx):
    secret = secrets.token_hex(16)
    stream = f"--setenv\0TOKEN\0{secret}\0"
    for words in (("--unshare-pid",), ()):
        proc = ctx.bw_popen(*ctx.RUN, *words, "--args", "9", "sh", "-c",
                            "echo ready; read x; echo $TOKEN", stdin=subprocess.PIPE,
                            fds={9: stream})
        casekit.started(ctx, proc)
        seen = 0
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as f:
                        text = f.read()
                except OSError:
                    continue
                seen += b"read x; echo $TOKEN" in text
                ctx.true(secret.encode() not in text, f"/proc/{entry}/cmdline shows the secret")
        ctx.true(seen >= 1, "the launcher's argument list was among those read")
        out, _ = proc.communicate(b"\n", timeout=10)
        ctx.eq(out.decode().strip(), secret, "the command has the variable")


@case("case-C09", "a variable name that cannot be one is refused by name, before any process is "
      "made")
def c09(ctx):
    for option in (("--setenv", "A=B", "c"), ("--setenv", "", "c"), ("--setenv", "=", "c"),
                   ("--unsetenv", "A=B"), ("--unsetenv", ""), ("--setenv", "A=B=C", "")):
        fd = memfd("")
        result = ctx.bw("--json-status-fd", "9", *ctx.RUN, *option, "echo", "started", fds={9: fd})
        ctx.fails(result, rc=1, err="^bwrap: .*setenv")
        ctx.eq(result.out, "", "nothing was started")
        ctx.eq(os.fstat(fd).st_size, 0, "no process was made")
        os.close(fd)
        if not casekit.peer():
            name = option[1]
            words = [name] if name else ["empty", "''", '""']
            ctx.true(any(w in result.err for w in words), f"the message names {name!r}\n{result}")
    ctx.ok(ctx.bw(*ctx.RUN, "--setenv", "A", "B=C", "--setenv", "E", "", "sh", "-c",
                  'echo "$A-$E-${E-unset}"'), out="B=C--")


# -- C10, C11: the working directory --------------------------------------------------------------

@case("case-C10", "a working directory that is not there inside becomes HOME, then /, and PWD "
      "always names where the command is")
def c10(ctx):
    gone = ctx.mkdir("gone")
    show = ("sh", "-c", 'echo "$PWD"; /bin/pwd -P')
    # /usr/share is inside, the case's directory is not.
    for home, want in (("/usr/share", "/usr/share"), ("/nowhere", "/"), ("", "/"), (None, "/"),
                       (ctx.dir, "/"), ("/usr/bin/env", "/")):
        env = dict(os.environ)
        env.pop("HOME", None)
        if home is not None:
            env["HOME"] = home
        ctx.ok(ctx.bw(*ctx.USR, *show, env=env, cwd=ctx.dir), out=f"{want}\n{want}")
    env = dict(os.environ, HOME="/usr/share")
    # The command's own HOME counts, not the caller's.
    ctx.ok(ctx.bw(*ctx.USR, "--setenv", "HOME", "/usr/lib", *show, env=env),
           out="/usr/lib\n/usr/lib")
    ctx.ok(ctx.bw(*ctx.USR, "--unsetenv", "HOME", *show, env=env), out="/\n/")
    # A working directory that the caller has deleted.
    result = ctx.bw("--ro-bind", "/", "/", *show, env=env, cwd=gone, pre=lambda: os.rmdir(gone))
    ctx.ok(result, out="/usr/share\n/usr/share")
    # A PWD that lies is not believed, one that is another name of the place is kept.
    os.symlink("/usr/share", os.path.join(ctx.dir, "link"))
    for pwd, want in (("/usr/lib", "/usr/share"), (f"{ctx.dir}/link", f"{ctx.dir}/link"),
                      ("relative", "/usr/share"), ("", "/usr/share"), ("/nowhere", "/usr/share")):
        ctx.ok(ctx.bw("--ro-bind", "/", "/", "sh", "-c", 'env | grep ^PWD=; /bin/pwd -P',
                      env=dict(env, PWD=pwd), cwd="/usr/share"), out=f"PWD={want}\n/usr/share")
    if not casekit.peer():
        # The name by which the caller got there is not inside, but the place is.
        ctx.ok(ctx.bw(*ctx.USR, *show, env=dict(env, PWD=f"{ctx.dir}/link"), cwd="/usr/share"),
               out="/usr/share\n/usr/share")


@case("case-C10", "--chdir to a place that is not there is an error that names it")
def c10_chdir(ctx):
    for where, error in (("/nope", "No such file or directory"), (ctx.dir, "No such file"),
                         ("/usr/bin/env", "Not a directory"), ("", "No such file or directory"),
                         ("/usr/share/", None), ("usr/share", None)):
        result = ctx.bw(*ctx.USR, "--chdir", where, "sh", "-c", "echo started; /bin/pwd")
        if error:
            ctx.fails(result, rc=1, err=rf"^bwrap: Can't chdir to ?{where}.*: {error}")
            ctx.eq(result.out, "", "nothing was started")
        else:
            ctx.ok(result, out="started\n/usr/share")


PROCS = (("--unshare-pid", "--proc", "/proc"), ("--proc", "/proc"), ("--bind", "/proc", "/proc"),
         ("--unshare-all", "--dev", "/dev", "--proc", "/proc"))


def inside_report(ctx, result, why):
    """Fails when the command reports a working directory outside of its root."""
    if "(unreachable)" in result.out or "host" in result.out:
        raise AssertionError(f"{why}: the command's working directory is on the host\n{result}")


LOOK = ("sh", "-c", 'echo started; readlink /proc/self/cwd; test -e SECRET && echo host; '
        'test -e etc/hostname && echo host; true')


@case("case-C11", "--chdir cannot reach a directory outside of the new root through a descriptor, "
      "a process or a link to one", timeout=120)
def c11(ctx):
    ctx.write("SECRET", "x")
    ctx.write("sub/SECRET", "x")
    tops = {"/": os.open("/", os.O_RDONLY | os.O_DIRECTORY),
            "the case's directory": os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY),
            "a path-only descriptor": os.open(ctx.dir, os.O_PATH | os.O_DIRECTORY),
            "a directory that is bound, too": os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)}
    # Each entry is the directory and the words that it needs.
    for what, top in tops.items():
        paths = ["/proc/self/fd/9", "/proc/self/fd/9/", "/proc/self/fd/9/.",
                 "/proc/thread-self/fd/9", "proc/self/fd/9", "/proc/self/task/../fd/9",
                 "/usr/../proc/self/fd/9", "/proc/self/fd/9/..", "/proc/self/fd/9/sub/.."]
        for proc in PROCS:
            ways = [((), path) for path in paths]
            ways += [(("--symlink", "/proc/self/fd/9", "/esc"), "/esc"),
                     (("--symlink", "proc/self/fd", "/esc"), "/esc/9"),
                     (("--symlink", "/esc2", "/esc", "--symlink", "/proc/self/fd/9", "/esc2"),
                      "/esc")]
            if "--dev" in proc:
                ways.append(((), "/dev/fd/9"))
            for extra, path in ways:
                result = ctx.bw(*ctx.USR, *proc, *extra, "--chdir", path, *LOOK, fds={9: top})
                why = f"--chdir {path} with 9 = {what} and {proc}"
                inside_report(ctx, result, why)
                ctx.fails(result, rc=1, err=r"^bwrap: Can't chdir to ")
                ctx.true("started" not in result.out, f"{why}: the command was started\n{result}")
    # The control: the descriptors are there, and the command itself may use them.
    ctx.ok(ctx.bw(*ctx.USR, "--proc", "/proc", "ls", "/proc/self/fd/9/", fds={
        9: tops["the case's directory"]}), out="SECRET\nsub")
    for proc in PROCS:
        ctx.ok(ctx.bw(*ctx.USR, *proc, "--symlink", "usr/share", "/l", "--chdir", "/l", "/bin/pwd",
                      fds={9: tops["/"]}), out="/usr/share")


@case("case-C11", "--chdir cannot reach the host through another process's root or working "
      "directory")
def c11_processes(ctx):
    ctx.write("SECRET", "x")
    pids = {os.getpid(), os.getppid(), 1}
    for proc in (("--proc", "/proc"), ("--bind", "/proc", "/proc"), ("--dev-bind", "/proc",
                                                                     "/proc")):
        for pid in pids:
            for tail in ("root", "cwd", "root/.", f"root{ctx.dir}", f"cwd/../{ctx.dir[1:]}",
                         f"task/{pid}/cwd"):
                path = f"/proc/{pid}/{tail}"
                result = ctx.bw(*ctx.USR, *proc, "--chdir", path, *LOOK)
                inside_report(ctx, result, f"--chdir {path}")
                ctx.fails(result, rc=1, err=r"^bwrap: Can't chdir to ")
    ctx.ok(ctx.bw(*ctx.USR, "--proc", "/proc", "--chdir", "/proc/sys", "/bin/pwd"), out="/proc/sys")


@case("case-C11", "a read-only sandbox is not left by --chdir through a descriptor of the writable "
      "host")
def c11_writable(ctx):
    top = os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY)
    for words in (("--ro-bind", "/", "/"), ("--ro-bind", "/", "/", "--unshare-pid", "--proc",
                                            "/proc"), ("--ro-bind", "/", "/", "--unshare-all")):
        result = ctx.bw(*words, "--chdir", "/proc/self/fd/9", "touch", "made", fds={9: top})
        ctx.fails(result, rc=1)
        ctx.eq(os.listdir(ctx.dir), [], f"{words}: the host's directory")
    ctx.ok(ctx.bw("--bind", "/", "/", "--chdir", ctx.dir, "touch", "made"))
    ctx.eq(os.listdir(ctx.dir), ["made"], "the control")


@case("case-C11", "neither HOME nor PWD nor the caller's working directory leads the command out "
      "of its root")
def c11_fallback(ctx):
    ctx.write("SECRET", "x")
    top = os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY)
    link = ("--symlink", "/proc/self/fd/9", "/esc")
    for proc in PROCS:
        for variables in ({"HOME": "/proc/self/fd/9"}, {"HOME": "/esc"},
                          {"PWD": "/proc/self/fd/9", "HOME": "/nowhere"},
                          {"PWD": "/proc/self/cwd", "HOME": "/nowhere"},
                          {"PWD": f"/proc/{os.getpid()}/cwd", "HOME": "/nowhere"},
                          {"PWD": "/proc/self/fd/9/.", "HOME": "/proc/self/fd/9"},
                          {"HOME": f"/proc/{os.getpid()}/cwd"}, {"HOME": "proc/self/fd/9"}):
            for words in ((), ("--setenv", "HOME", variables.get("HOME", "/"))):
                result = ctx.bw(*ctx.USR, *proc, *link, *words, *LOOK, fds={9: top}, cwd=ctx.dir,
                                env=dict(os.environ, **variables))
                why = f"{variables} with {proc}"
                inside_report(ctx, result, why)
                if result.rc == 0:
                    ctx.eq(result.out.split(), ["started", "/"], f"{why}\n{result}")
                else:
                    ctx.fails(result, rc=1, err="^bwrap: ")
    # A tree whose own links stand where the working directory is on the host.
    tree = make_tree(ctx)
    os.makedirs(tree + os.path.dirname(ctx.dir))
    os.symlink("/proc/self/fd/9", tree + ctx.dir)
    for proc in PROCS:
        result = ctx.bw(*usr(tree), *proc, *LOOK, fds={9: top}, cwd=ctx.dir,
                        env=dict(os.environ, HOME="/nowhere"))
        inside_report(ctx, result, f"a link at the working directory's path with {proc}")
        if result.rc == 0:
            ctx.eq(result.out.split(), ["started", "/"], f"{proc}\n{result}")


ROOTS = (("--bind", "TREE", "/", "--ro-bind", "/usr", "/usr"),
         ("--ro-bind", "TREE", "/", "--ro-bind", "/usr", "/usr"),
         ("--bind", "/", "/", "--bind", "TREE", "/", "--ro-bind", "/usr", "/usr"),
         ("--ro-bind", "/", "/"), ("--bind", "/", "/", "--tmpfs", "/tmp"),
         ("--dev-bind", "/", "/", "--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--symlink",
          "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib", "--symlink", "usr/bin", "/bin"),
         ("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib",
          "/lib", "--symlink", "usr/bin", "/bin", "--remount-ro", "/"),
         ("--overlay-src", "TREE", "--tmp-overlay", "/", "--ro-bind", "/usr", "/usr"))

UP = r"""
import os, sys
def name(path): st = os.stat(path); return st.st_dev, st.st_ino
root = name('/')
bad = []
for folder in sys.argv[1:]:
    if not os.path.isdir(folder): continue
    ways = [folder + '/..' * folder.count('/') + '/..' * 8]
    if folder.count('/') == 1: ways.append(folder + '/..')
    for way in ways:
        if name(way) != root: bad.append(way)
    os.chdir(folder)
    fd = os.open('.', os.O_RDONLY)
    for _ in range(12): os.chdir('..')
    if name('.') != root: bad.append('chdir from ' + folder)
    for _ in range(12): fd = os.open('..', os.O_RDONLY, dir_fd=fd)
    if name(fd) != root: bad.append('openat from ' + folder)
try:
    # The old trick of a privileged process: a root below the working directory holds it no more.
    os.chdir('/')
    os.chroot(sys.argv[1])
    for _ in range(64): os.chdir('..')
    os.chroot('.')
    if name('/') != root: bad.append('chroot')
    print('chroot tried')
except PermissionError: pass
print(bad)
"""


@case("case-C11", "no path upwards leads out of the new root, whatever it is made of, and a "
      "privileged command's chroot leads to nothing else")
def c11_upwards(ctx):
    tree = make_tree(ctx)
    os.makedirs(f"{tree}/usr/share", exist_ok=True)
    folders = ("/usr", "/usr/share", "/usr/lib/python3", "/etc", "/tmp", "/proc", "/dev")
    for root in ROOTS:
        if "--overlay-src" in root and casekit.lacks(ctx, "--overlay-src"):
            continue
        root = [tree if word == "TREE" else word for word in root]
        for words in ((), ("--unshare-pid", "--proc", "/proc", "--dev", "/dev"),
                      ("--unshare-user", "--cap-add", "ALL")):
            if "--remount-ro" in root and words:
                # The mount points of more mounts have to be there before.
                where = root.index("--remount-ro")
                full = (*root[:where], *words, *root[where:])
            else:
                full = (*root, *words)
            result = ctx.ok(ctx.bw(*full, "python3", "-c", UP, *folders))
            ctx.eq(result.out.splitlines()[-1], "[]", f"{full}\n{result}")
            if ctx.root or "--cap-add" in words:
                ctx.true("chroot tried" in result.out, f"the privileged way was tried\n{result}")


@case("case-C11", "the mount table of the command starts at its root: no mount of the host is "
      "above, beside or below it that was not asked for")
def c11_table(ctx):
    tree = make_tree(ctx)
    for root in ROOTS:
        if "--overlay-src" in root and casekit.lacks(ctx, "--overlay-src"):
            continue
        if root[:3] == ("--ro-bind", "/", "/") or root == ROOTS[4]:
            continue
        root = [tree if word == "TREE" else word for word in root]
        more = ("--unshare-pid", "--proc", "/proc")
        if "--remount-ro" in root:
            where = root.index("--remount-ro")
            full = (*root[:where], *more, *root[where:])
        else:
            full = (*root, *more)
        result = ctx.ok(ctx.bw(*full, "cat", "/proc/self/mountinfo"))
        lines = [line.split(" ") for line in result.out.splitlines()]
        tops = [line for line in lines if line[4] == "/"]
        ids = {line[0] for line in lines}
        ctx.true(tops and all(line[1] in ids for line in lines if line not in tops[:1]),
                 f"one tree of mounts\n{result}")
        for line in lines:
            if line[4] != "/" and not line[4].startswith(("/usr", "/proc")):
                raise AssertionError(f"{full}: {line[4]} was not asked for\n{result}")
        # At "/" is what the options put there and nothing else.
        ctx.true(len(tops) <= 1 + root[1:-1].count("/"), f"{full}: mounts at /\n{result}")
        kind = tops[-1][tops[-1].index("-") + 1]
        if "--tmp-overlay" in root or tree not in root:
            ctx.eq(kind, "overlay" if "--tmp-overlay" in root else "tmpfs", f"{full}: the root")
        else:
            ctx.true(tops[-1][3].endswith("/r"), f"{full}: the tree is the root\n{result}")


# -- C12, C13, C14 --------------------------------------------------------------------------------

@case("case-C12", "--argv0 changes what the command is called, not what is executed")
def c12(ctx):
    needs(ctx, "--argv0")
    show = ("python3", "-c", "import sys; print(open('/proc/self/cmdline').read().split('\\0')[0])")
    for words in (("--argv0", "other"), ("--argv0", ""), ("--argv0", "-login"),
                  ("--argv0", "--help"), ("--argv0", "a b\nc"), ("--argv0=other",)):
        name = words[1] if len(words) == 2 else "other"
        for more in ((), ("--unshare-pid",)):
            result = ctx.ok(ctx.bw("--ro-bind", "/", "/", *more, *words, *show))
            ctx.eq(result.out, name + "\n", f"{words}")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", *show), out="python3")
    ctx.fails(ctx.bw("--ro-bind", "/", "/", "--argv0", "sh", "nosuch"), rc=1,
              err="^bwrap: execvp nosuch: ")
    ctx.ok(ctx.bw("--args", "9", "--ro-bind", "/", "/", "sh", "-c", "echo $0",
                  fds={9: "--argv0\0streamed\0"}), out="streamed")


@case("case-C13", "a descriptor that is bound shows what was opened, whatever has been put at its "
      "path since")
def c13(ctx):
    ctx.write("d/name", "opened\n")
    ctx.write("evil/name", "swapped\n")
    ctx.write("f", "opened\n")
    ctx.write("evilfile", "swapped\n")
    for flags in (os.O_PATH, os.O_RDONLY):
        folder = os.open(f"{ctx.dir}/d", flags | os.O_DIRECTORY)
        file = os.open(f"{ctx.dir}/f", flags)
        for option in ("--bind-fd", "--ro-bind-fd"):
            def check(why):
                ctx.ok(ctx.bw(*ctx.RUN, option, "9", "/tmp/x", option, "8", "/tmp/y/f", "cat",
                              "/tmp/x/name", "/tmp/y/f", fds={9: folder, 8: file}),
                       out="opened\nopened")
            check("at its place")
            os.rename(f"{ctx.dir}/d", f"{ctx.dir}/moved")
            os.rename(f"{ctx.dir}/f", f"{ctx.dir}/movedfile")
            check("moved away")
            os.symlink("evil", f"{ctx.dir}/d")
            os.symlink("evilfile", f"{ctx.dir}/f")
            check("a link in its place")
            os.unlink(f"{ctx.dir}/d")
            os.unlink(f"{ctx.dir}/f")
            ctx.write("f", "swapped\n")
            ctx.write("d/name", "swapped\n")
            check("another in its place")
            os.unlink(f"{ctx.dir}/d/name")
            os.rmdir(f"{ctx.dir}/d")
            os.rename(f"{ctx.dir}/moved", f"{ctx.dir}/d")
            os.rename(f"{ctx.dir}/movedfile", f"{ctx.dir}/f")
            result = ctx.bw(*ctx.RUN, option, "9", "/tmp/x", "sh", "-c", "echo x >/tmp/x/new",
                            fds={9: folder})
            if option == "--bind-fd":
                ctx.ok(result)
                os.unlink(f"{ctx.dir}/d/new")
            else:
                ctx.fails(result, err="Read-only file system")
        os.close(folder)
        os.close(file)


@case("case-C13", "while something exchanges the path of a bound descriptor with a link, the "
      "sandbox shows what was opened or does not start")
def c13_race(ctx):
    ctx.write("d/name", "opened\n")
    ctx.write("evil/name", "swapped\n")
    os.symlink("evil", f"{ctx.dir}/other")
    folder = os.open(f"{ctx.dir}/d", os.O_PATH | os.O_DIRECTORY)
    end = time.monotonic() + 2
    worked = 0
    with swapping(f"{ctx.dir}/d", f"{ctx.dir}/other"):
        while time.monotonic() < end:
            result = ctx.bw(*ctx.RUN, "--bind-fd", "9", "/tmp/x", "cat", "/tmp/x/name",
                            fds={9: folder})
            if result.rc == 0:
                worked += 1
                ctx.eq(result.out, "opened\n", "what the command reads")
            else:
                ctx.fails(result, rc=1, err="^bwrap: ")
    ctx.true(worked > 0, "at least one start worked")


@case("case-C14", "an option that only counts once warns when it is repeated, and the last one "
      "wins")
def c14(ctx):
    def warned(result, option, out):
        ctx.ok(result, out=out)
        ctx.eq(result.err, f"bwrap: Only the last {option} option will take effect\n", "warning")

    base = ("--ro-bind", "/", "/")
    warned(ctx.bw(*base, "--chdir", "/nowhere", "--chdir", "/usr", "/bin/pwd"), "--chdir", "/usr")
    warned(ctx.bw(*base, "--unshare-user", "--uid", "7", "--uid", "8", "id", "-u"), "--uid", "8")
    warned(ctx.bw(*base, "--unshare-user", "--gid", "7", "--gid", "8", "id", "-g"), "--gid", "8")
    warned(ctx.bw(*base, "--unshare-uts", "--hostname", "a", "--hostname", "b", "uname", "-n"),
           "--hostname", "b")
    result = ctx.ok(ctx.bw(*base, "--chdir", "/usr", "/bin/pwd"), out="/usr")
    ctx.eq(result.err, "", "no warning for one")
    result = ctx.ok(ctx.bw(*base, "--chdir", "/", "--chdir", "/", "--chdir", "/usr", "/bin/pwd"),
                    out="/usr")
    ctx.eq(result.err.count("Only the last --chdir"), 2, "one warning for each that is overridden")
