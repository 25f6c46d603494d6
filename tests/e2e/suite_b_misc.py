"""Part B of the checklist, working directory, environment, locks, session, network, seccomp and
host name: B55 to B63."""

import errno
import fcntl
import os
import re

from b_util import (Live, probe, seccomp_allow, seccomp_errno, status_lines, with_status)
from harness import case


def where(ctx, *options, command="/p", **kw):
    """The working directory and PWD of a command in a small system."""
    result = ctx.ok(ctx.bw(*ctx.USR, "--ro-bind", probe(ctx), "/p", *options, command, "where",
                           **kw))
    cwd, pwd = result.out.splitlines()
    return cwd.removeprefix("cwd="), pwd.removeprefix("PWD=")


def environment(**changes):
    env = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


@case("B55", "a mapped working directory stays, and PWD is the logical path if it was right")
def cwd_mapped(ctx):
    real, link = ctx.mkdir("real"), ctx.dir + "/link"
    os.symlink("real", link)
    bind = ("--bind", ctx.dir, ctx.dir)
    for pwd, wanted in ((link, link), (real, real), ("/usr", real), ("relative", real),
                        (None, real), ("", real)):
        got = where(ctx, *bind, cwd=real, env=environment(PWD=pwd))
        ctx.eq(got, (real, wanted), f"directory and PWD when the caller's PWD is {pwd!r}")


@case("B55", "an unmapped working directory becomes HOME, and / when that is not there either")
def cwd_unmapped(ctx):
    folder = ctx.mkdir("folder")
    for home, wanted in (("/usr", "/usr"), ("/nonexistent", "/"), (None, "/"), ("", "/")):
        got = where(ctx, cwd=folder, env=environment(HOME=home, PWD=folder))
        ctx.eq(got, (wanted, wanted), f"directory and PWD with HOME {home!r}")
    got = where(ctx, "--setenv", "HOME", "/usr/lib", cwd=folder,
                env=environment(HOME="/usr", PWD=folder))
    ctx.eq(got, ("/usr/lib", "/usr/lib"), "directory and PWD with --setenv HOME")
    got = where(ctx, "--unsetenv", "HOME", cwd=folder, env=environment(HOME="/usr", PWD=folder))
    ctx.eq(got, ("/", "/"), "directory and PWD with --unsetenv HOME")


@case("B55", "the physical path of the working directory is tried when the logical one is unmapped")
def cwd_physical(ctx):
    real, link = ctx.mkdir("real"), ctx.dir + "/link"
    os.symlink("real", link)
    got = where(ctx, "--bind", real, real, cwd=real, env=environment(PWD=link, HOME="/usr"))
    ctx.eq(got, (real, real), "directory and PWD")


@case("B56", "--chdir is relative to the root, and PWD is its text")
def chdir(ctx):
    for text, wanted in (("usr/lib", "/usr/lib"), ("/usr/lib", "/usr/lib"),
                         ("/usr/../usr/lib/", "/usr/lib"), (".", "/"), ("lib", "/usr/lib")):
        got = where(ctx, "--chdir", text, cwd="/var/tmp")
        ctx.eq(got, (wanted, text), f"directory and PWD with --chdir {text}")


@case("B56", "--chdir to what is no directory is fatal, and a second one overrides with a warning")
def chdir_bad(ctx):
    for text, reason in (("/nonexistent", "No such file or directory"), ("", "No such file"),
                         ("/usr/bin/env", "Not a directory")):
        ctx.fails(ctx.bw(*ctx.USR, "--chdir", text, "true"), rc=1,
                  err=rf"^bwrap: Can't chdir to {re.escape(text)}: {reason}")
    result = ctx.bw(*ctx.USR, "--chdir", "/nonexistent", "--chdir", "/usr", "pwd")
    ctx.ok(result, out="/usr")
    ctx.eq(result.err, "bwrap: Only the last --chdir option will take effect\n", "stderr")


@case("B56", "--chdir through a descriptor to a directory outside the new root is refused")
def chdir_outside(ctx):
    fd = os.open("/", os.O_RDONLY)
    for options in ((), ("--unshare-pid",)):
        for text in ("/proc/self/fd/9", "/proc/self/fd/9/etc"):
            ctx.fails(ctx.bw(*ctx.USR, *options, "--proc", "/proc", "--chdir", text, "ls", "etc",
                             fds={9: fd}), rc=1, err=rf"^bwrap: .*{text}")
        ctx.ok(ctx.bw(*ctx.USR, *options, "--proc", "/proc", "--chdir", "/proc/self/root/usr",
                      "pwd", "-P"), out="/usr")
    os.close(fd)


@case("B55", "a working directory that leads outside the new root is not kept")
def cwd_outside(ctx):
    fd = os.open("/", os.O_RDONLY)
    got = where(ctx, "--proc", "/proc", "--setenv", "HOME", "/proc/self/fd/9", cwd=ctx.dir,
                fds={9: fd})
    ctx.eq(got[0], "/", "directory")
    ctx.ok(ctx.bw(*ctx.USR, "--proc", "/proc", "--setenv", "HOME", "/proc/self/fd/9", "sh", "-c",
                  "test ! -e etc && test -d usr", cwd=ctx.dir, fds={9: fd}))
    os.close(fd)


def env_of(ctx, *options, **kw):
    result = ctx.ok(ctx.bw(*ctx.RUN, *options, "/usr/bin/env", **kw))
    return sorted(result.out.splitlines())


@case("B57", "--clearenv, --setenv and --unsetenv work in their order, and PWD is set at the end")
def environment_options(ctx):
    env = environment(PWD=ctx.dir, KEPT="kept", DROPPED="dropped")
    pwd = "PWD=" + ctx.dir
    for options, wanted in (
            (("--clearenv",), [pwd]),
            (("--clearenv", "--setenv", "A", "1", "--setenv", "A", "2"), ["A=2", pwd]),
            (("--setenv", "B", "1", "--clearenv"), [pwd]),
            (("--setenv", "B", "1", "--clearenv", "--setenv", "C", "a=b c"), ["C=a=b c", pwd]),
            (("--clearenv", "--setenv", "E", ""), ["E=", pwd]),
            (("--clearenv", "--setenv", "A", "1", "--unsetenv", "A"), [pwd]),
            (("--clearenv", "--setenv", "PWD", "/x"), [pwd]),
            (("--clearenv", "--unsetenv", "PWD"), [pwd])):
        ctx.eq(env_of(ctx, *options, env=env), wanted, f"environment with {options}")
    everything = sorted(f"{name}={value}" for name, value in env.items())
    ctx.eq(env_of(ctx, env=env), everything, "environment without options")
    ctx.eq(env_of(ctx, "--unsetenv", "DROPPED", "--unsetenv", "NEVER-SET", env=env),
           [line for line in everything if line != "DROPPED=dropped"], "without one variable")
    ctx.eq(env_of(ctx, "--setenv", "PWD", "/x", "--unsetenv", "PWD", env=env), everything,
           "PWD with the rest")


@case("B58", "the command is looked up in the PATH of the edited environment, in the sandbox")
def lookup(ctx):
    ctx.write("tools/tool", "#!/bin/sh\necho found\n", 0o755)
    only_inside = ("--ro-bind", ctx.dir + "/tools", "/tools")
    ctx.ok(ctx.bw(*ctx.USR, *only_inside, "--setenv", "PATH", "/nonexistent:/tools", "tool"),
           out="found")
    for options in (("--setenv", "PATH", ctx.dir + "/tools"), ("--setenv", "PATH", "/usr/bin")):
        ctx.fails(ctx.bw(*ctx.USR, *only_inside, *options, "tool"), rc=1,
                  err=r"^bwrap: execvp tool: No such file or directory")
    # The caller's PATH counts only when it is not edited.
    env = environment(PATH="/tools")
    ctx.ok(ctx.bw(*ctx.USR, *only_inside, "tool", env=env), out="found")
    ctx.fails(ctx.bw(*ctx.USR, *only_inside, "--unsetenv", "PATH", "tool", env=env), rc=1,
              err=r"^bwrap: execvp tool: No such file or directory")
    ctx.fails(ctx.bw(*ctx.USR, *only_inside, "--clearenv", "tool", env=env), rc=1,
              err=r"^bwrap: execvp tool: No such file or directory")


@case("B58", "without PATH the command is looked up in /bin and /usr/bin")
def lookup_default(ctx):
    for options in (("--unsetenv", "PATH"), ("--clearenv",)):
        ctx.ok(ctx.bw(*ctx.USR, *options, "true"))
        ctx.ok(ctx.bw("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink",
                      "usr/lib64", "/lib64", *options, "true"))
    env = environment(PATH=None)
    ctx.ok(ctx.bw(*ctx.USR, "true", env=env))


def lock_lines(path):
    """The entries of /proc/locks for a file: kind, mode, access, pid, range."""
    inode = str(os.stat(path).st_ino)
    found = []
    with open("/proc/locks") as f:
        for line in f:
            fields = line.split()
            if len(fields) >= 8 and fields[5].rpartition(":")[2] == inode:
                found.append(fields[1:])
    return found


def write_lock(fd):
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


@case("B59", "--lock-file shows as a read lock on the whole file while the sandbox lives")
def lock(ctx):
    path = ctx.write("lock")
    for shape in ((), ("--unshare-pid",)):
        first = Live(ctx, *ctx.RUN, *shape, "--lock-file", path)
        second = Live(ctx, *ctx.RUN, *shape, "--lock-file", path)
        for live, count in ((first, None), (second, 2)):
            live.ready()
            if count:
                ctx.eq(len(lock_lines(path)), count, "locks that are shared")
        for kind, mode, access, _, _, start, end in lock_lines(path):
            ctx.true(kind in ("POSIX", "OFDLCK"), f"kind of the lock: {kind}")
            ctx.eq((mode, access, start, end), ("ADVISORY", "READ", "0", "EOF"), "the lock")
        fd = os.open(path, os.O_RDWR)
        ctx.true(not write_lock(fd), "no write lock is granted while the sandboxes hold theirs")
        ctx.eq((first.end(), second.end()), (0, 0), "status")
        # The program returns with the command; the reaper may need a moment more.
        ctx.until(lambda: write_lock(fd), why="a write lock after the sandboxes")
        os.close(fd)


@case("B59", "--lock-file fails at once when somebody holds a write lock, and nothing runs then")
def lock_held(ctx):
    path, marker = ctx.write("lock"), ctx.dir + "/ran"
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for shape in ((), ("--unshare-pid",)):
        ctx.fails(ctx.bw(*ctx.RUN, *shape, "--lock-file", path, "touch", marker), rc=1,
                  err=rf"^bwrap: Unable to lock file {path}: Resource temporarily unavailable")
        ctx.fails(ctx.bw(*ctx.RUN, *shape, "--lock-file", ctx.dir + "/missing", "touch", marker),
                  rc=1, err=r"^bwrap: Unable to open lock file .*/missing: No such file")
        ctx.true(not os.path.exists(marker), f"the command did not run with {shape}")
    fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)
    ctx.ok(ctx.bw(*ctx.RUN, "--lock-file", path, "touch", marker))
    ctx.true(os.path.exists(marker), "with a free lock it runs")


@case("B60", "--new-session gives the command another session than the caller's")
def new_session(ctx):
    own = os.getsid(0)
    for shape in ((), ("--unshare-pid", "--as-pid-1")):
        live = Live(ctx, *ctx.RUN, *shape, "--new-session")
        live.ready()
        ctx.eq(os.getsid(live.pid), live.pid, f"session of the command with {shape}")
        ctx.eq(live.end(), 0)
        live = Live(ctx, *ctx.RUN, *shape)
        live.ready()
        ctx.eq(os.getsid(live.pid), own, f"session without the option with {shape}")
        ctx.eq(live.end(), 0)


@case("B60", "with a reaper --new-session makes the reaper the leader of the session")
def new_session_reaper(ctx):
    own = os.getsid(0)
    for shape in (("--unshare-pid",), ("--unshare-pid", "--proc", "/proc", "--dev", "/dev")):
        live = Live(ctx, *ctx.RUN, *shape, "--new-session")
        live.ready()
        command = live.command_pid(ctx)
        ctx.eq((os.getsid(live.pid), os.getsid(command)), (live.pid, live.pid), "the sessions")
        ctx.eq(live.end(), 0)
        live = Live(ctx, *ctx.RUN, *shape)
        live.ready()
        ctx.eq(os.getsid(live.command_pid(ctx)), own, "session without the option")
        ctx.eq(live.end(), 0)


LOOPBACK = ["lo up 127.0.0.1/8", "lo up ::1/128", "lo up link"]


def interfaces(ctx, *options):
    result = ctx.ok(ctx.bw("--bind", "/", "/", *options, probe(ctx), "net"))
    return sorted(result.out.splitlines())


@case("B61", "--unshare-net leaves the loopback interface only, and it is up and has its addresses")
def network(ctx):
    # A kernel with tunnel drivers puts their idle interfaces into every new namespace.
    fresh = ctx.ok(ctx.run("unshare", "--user", "--net", probe(ctx), "net")).out.splitlines()
    ctx.true("lo down link" in fresh, f"a fresh namespace has an idle loopback: {fresh}")
    wanted = LOOPBACK + [line for line in fresh if line != "lo down link"]
    if not os.path.exists("/proc/net/if_inet6"):
        wanted.remove("lo up ::1/128")
    for options in (("--unshare-net",), ("--unshare-all",), ("--unshare-net", "--dev", "/dev")):
        ctx.eq(interfaces(ctx, *options), sorted(wanted), f"interfaces with {options}")
    host = sorted(ctx.ok(ctx.run(probe(ctx), "net")).out.splitlines())
    ctx.eq(interfaces(ctx), host, "interfaces on the host's network")


@case("B61", "the loopback of --unshare-net carries data")
def network_works(ctx):
    script = ("import socket; s = socket.create_server(('127.0.0.1', 0)); "
              "c = socket.create_connection(s.getsockname(), 5); p, _ = s.accept(); "
              "p.sendall(b'data'); print(c.recv(4).decode())")
    ctx.ok(ctx.bw("--bind", "/", "/", "--unshare-net", "/usr/bin/python3", "-c", script),
           out="data")


@case("B61", "--share-net takes back an earlier request for a network namespace only")
def share_net(ctx):
    own = os.readlink("/proc/self/ns/net")
    for options, shared in ((("--unshare-all", "--share-net"), True),
                            (("--unshare-net", "--share-net"), True),
                            (("--share-net", "--unshare-all"), False),
                            (("--unshare-all", "--share-net", "--unshare-net"), False),
                            (("--unshare-all",), False), ((), True)):
        result = ctx.ok(ctx.bw("--bind", "/", "/", *options, "readlink", "/proc/self/ns/net"))
        ctx.eq(result.out.strip() == own, shared, f"the host's network with {options}")


FILTERED = r"uname: .*" + os.strerror(errno.EXDEV)


@case("B62", "a filter is active in the command and in the reaper")
def seccomp_reaper(ctx):
    for option in ("--seccomp", "--add-seccomp-fd"):
        # The reaper loads it when the command has begun.
        script = "for i in $(seq 200); do ! grep -q '^Seccomp:.0' /proc/1/status || sleep 0.1; done; " \
                 "grep -h ^Seccomp: /proc/1/status /proc/self/status"
        result = ctx.ok(ctx.bw(*ctx.USR, "--unshare-pid", "--proc", "/proc", option, "9", "sh", "-c",
                               script, fds={9: seccomp_allow()}))
        ctx.eq(result.out.split(), ["Seccomp:", "2"] * 2, f"reaper and command with {option}")
    # The number tells something only if it is another one without a filter of ours.
    ctx.ok(ctx.bw(*ctx.USR, "--unshare-pid", "--proc", "/proc", "grep", "^Seccomp:",
                  "/proc/self/status"), out=own_seccomp())


def own_seccomp():
    with open("/proc/self/status") as f:
        return next(line.strip() for line in f if line.startswith("Seccomp:"))


@case("B62", "a filter does what it says")
def seccomp_filters(ctx):
    for shape in ((), ("--unshare-pid",)):
        ctx.fails(ctx.bw(*ctx.RUN, *shape, "--seccomp", "9", "uname",
                         fds={9: seccomp_errno("uname", errno.EXDEV)}), err=FILTERED)
        ctx.ok(ctx.bw(*ctx.RUN, *shape, "--seccomp", "9", "uname", fds={9: seccomp_allow()}))


@case("B62", "the last of two --seccomp is used, and a warning says so")
def seccomp_twice(ctx):
    deny, allow = seccomp_errno("uname", errno.EXDEV), seccomp_allow()
    warning = "bwrap: Only the last --seccomp option will take effect\n"
    result = ctx.ok(ctx.bw(*ctx.RUN, "--seccomp", "9", "--seccomp", "10", "uname",
                           fds={9: deny, 10: allow}))
    ctx.eq(result.err, warning, "stderr")
    result = ctx.fails(ctx.bw(*ctx.RUN, "--seccomp", "9", "--seccomp", "10", "uname",
                              fds={9: allow, 10: deny}), err=FILTERED)
    ctx.true(result.err.startswith(warning), f"the warning comes first\n{result}")


@case("B62", "a program that is empty, nonsense or too long is refused, and nothing runs then")
def seccomp_garbage(ctx):
    marker = ctx.dir + "/ran"
    for program in (b"", b"\xff" * 16, seccomp_allow() * 4097, seccomp_allow() * 65537):
        for option in ("--seccomp", "--add-seccomp-fd"):
            ctx.fails(ctx.bw(*ctx.RUN, option, "9", "touch", marker, fds={9: program}), rc=1,
                      err=r"^bwrap: .*(?i:seccomp)")
            ctx.true(not os.path.exists(marker), "the command did not run")
    for program in (b"", b"\xff" * 16):
        ctx.fails(ctx.bw(*ctx.RUN, "--seccomp", "9", "true", fds={9: program}), rc=1,
                  err=r"^bwrap: .*(EINVAL|Invalid argument)")
    ctx.ok(ctx.bw(*ctx.RUN, "--seccomp", "9", "touch", marker, fds={9: seccomp_allow() * 4096}))
    ctx.true(os.path.exists(marker), "with the longest program that the kernel takes it runs")


@case("B62", "a filter that denies execve gives the usual message for a failed command")
def seccomp_denies_exec(ctx):
    for shape in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
        result, status = with_status(ctx, *ctx.RUN, *shape, "--seccomp", "9", "/usr/bin/true",
                                     fds={9: seccomp_errno("execve", errno.EXDEV)})
        ctx.fails(result, rc=1, err=rf"^bwrap: execvp /usr/bin/true: {os.strerror(errno.EXDEV)}")
        ctx.eq([list(line)[0] for line in status_lines(status)], ["child-pid"], "status lines")


@case("B63", "the last of two --hostname wins, with a warning")
def hostname_twice(ctx):
    result = ctx.bw(*ctx.RUN, "--unshare-uts", "--hostname", "one", "--hostname", "two", "uname",
                    "-n")
    ctx.ok(result, out="two")
    ctx.eq(result.err, "bwrap: Only the last --hostname option will take effect\n", "stderr")


@case("B63", "a host name that is too long is refused by the kernel")
def hostname_long(ctx):
    name = "h" * 70
    ctx.fails(ctx.bw(*ctx.RUN, "--unshare-uts", "--hostname", name, "true"), rc=1,
              err=rf"^bwrap: Can't set hostname to {name}: Invalid argument")
    ctx.ok(ctx.bw(*ctx.RUN, "--unshare-uts", "--hostname", name[:64], "uname", "-n"),
           out=name[:64])
    ctx.ok(ctx.bw(*ctx.RUN, "--unshare-uts", "--hostname", "", "uname", "-n"), out="")
