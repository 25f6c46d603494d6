"""The bwrap contract, part A: status descriptors, life cycle, locks, joining namespaces."""

import errno
import fcntl
import os
import re
import signal
import struct
import subprocess

from bwrap_parts import Report
from harness import case

NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")


@case("A13", "the info and the status descriptor name the child and the status its exit code")
def child_pid_and_exit_code(ctx):
    info, status = Report(ctx, "info"), Report(ctx, "status")
    result = ctx.bw(*ctx.RUN, "--unshare-all", "--info-fd", "42", "--json-status-fd", "43", "--",
                    "bash", "-c", "exit 42", fds={42: info.fd, 43: status.fd})
    ctx.fails(result, rc=42)
    for report in (info, status):
        ctx.true(re.search('"child-pid": [0-9]', report.text()),
                 f"no child-pid in {report.text()!r}")
    ctx.true('"exit-code": 42' in status.text(), f"no exit code in {status.text()!r}")
    ctx.true("exit-code" not in info.text(), f"an exit code in {info.text()!r}")


@case("A14", "the namespace numbers that are reported are the ones that the command sees")
def namespace_numbers(ctx):
    info, status = Report(ctx, "info"), Report(ctx, "status")
    result = ctx.ok(ctx.bw(
        *ctx.RUN, "--proc", "/proc", "--unshare-all", "--info-fd", "42", "--json-status-fd", "43",
        "--", "stat", "-L", "-c", "%i", *(f"/proc/self/ns/{name}" for name in NAMESPACES),
        fds={42: info.fd, 43: status.fd}))
    seen = dict(zip(NAMESPACES, map(int, result.out.split()), strict=True))
    for name, number in seen.items():
        ctx.true(number != os.stat(f"/proc/self/ns/{name}").st_ino,
                 f"the {name} namespace is the caller's")
        ctx.eq(info.info().get(f"{name}-namespace"), number, f"info, {name}")
        ctx.eq(status.lines().get(f"{name}-namespace"), number, f"status, {name}")


# Calls that only ask, or that only give a process a name in listings: when one of these fails,
# the sandbox is as tight as before and may start. Every other prctl is a part of the confinement.
HARMLESS = re.compile(r"prctl\((PR_GET_|PR_CAPBSET_READ|PR_SET_NAME|PR_SET_VMA|"
                      r"PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET)")


def traced(ctx, inject=None):
    """Runs a sandbox under strace. Returns its result, the status text and the prctl lines."""
    status = Report(ctx, "status")
    trace = os.path.join(ctx.dir, "trace")
    result = ctx.run("strace", "-f", "-qq", "-o", trace, "-e", "trace=prctl", "-e", "signal=none",
                     *(("-e", f"inject=prctl:{inject}") if inject else ()), ctx.bwrap, *ctx.RUN,
                     "--die-with-parent", "--json-status-fd", "42", "true", fds={42: status.fd})
    os.close(status.fd)
    with open(trace, encoding="utf-8") as f:
        return result, status.text(), [line for line in f if "prctl(" in line]


@case("A15", "no exit code is reported when the 39th prctl call of a process fails", only="user")
def late_prctl_fails(ctx):
    result, status, _ = traced(ctx)
    ctx.ok(result)
    ctx.true('"exit-code": 0' in status, f"no exit code without an injection: {status!r}")
    result, status, lines = traced(ctx, "error=ENOSYS:when=39")
    ctx.true(any("INJECTED" in line for line in lines), "no process made 39 prctl calls")
    ctx.true('"exit-code"' not in status, f"the command ran: {status!r}\n{result}")
    ctx.fails(result)


@case("A15", "no exit code is reported when any prctl call that confines fails", timeout=240)
def any_prctl_fails(ctx):
    result, status, lines = traced(ctx)
    ctx.ok(result)
    ctx.true('"exit-code": 0' in status, f"no exit code without an injection: {status!r}")
    calls = {}
    for line in lines:
        pid = line.split()[0]
        calls[pid] = calls.get(pid, 0) + 1
    most = max(calls.values(), default=0)
    # no_new_privs and the parent-death signal are the least that a sandbox needs.
    ctx.true(most >= 2, f"too few prctl calls to fail one of them: {lines}")
    ctx.true(most <= 200, f"{most} prctl calls in one process are too many to fail each")
    failed = 0
    for number in range(1, most + 1):
        result, status, lines = traced(ctx, f"error=ENOSYS:when={number}")
        hit = [line for line in lines if "INJECTED" in line and not HARMLESS.search(line)]
        if hit:
            failed += 1
            ctx.true('"exit-code"' not in status,
                     f"the command ran although this failed: {hit}\n{result}")
            ctx.fails(result)
    ctx.true(failed > 0, "no call that confines was made to fail")


@case("A16", "a command that cannot be executed leaves no exit code")
def directory_as_command(ctx):
    status = Report(ctx, "status")
    ctx.fails(ctx.bw(*ctx.RUN, "--json-status-fd", "42", "/", fds={42: status.fd}), rc=1,
              err="^bwrap: execvp /: ")
    ctx.true("child-pid" in status.lines(), f"no child-pid in {status.text()!r}")
    ctx.true("exit-code" not in status.lines(), f"an exit code in {status.text()!r}")


def lock_holder(fd):
    """Whether somebody's lock keeps this process from a write lock on the whole file. Asking
    takes no lock, so it cannot get into the sandbox's way."""
    question = struct.pack("hhqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, question)
    return struct.unpack("hhqqixxxx", answer)[0] != fcntl.F_UNLCK


@case("A30 A31", "--lock-file holds while the sandbox lives, and is free once the parent is killed")
def lock_and_parent(ctx):
    path = ctx.write("lock")
    for extra in ((), ("--unshare-pid",)):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            ctx.true(not lock_holder(fd), "the file is locked before the sandbox starts")
            # The second command keeps the shell from becoming the sandbox itself.
            shell = ctx.popen("sh", "-c", '"$@"; exit 0', "sh", ctx.bwrap, *ctx.RUN,
                              "--die-with-parent", *extra, "--lock-file", path, "sleep", "1h",
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            ctx.until(lambda: lock_holder(fd), 20, "the lock")
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                raise AssertionError("the write lock was granted")
            except OSError as error:
                ctx.true(error.errno in (errno.EAGAIN, errno.EACCES), str(error))
            shell.send_signal(signal.SIGKILL)
            ctx.eq(shell.wait(10), -signal.SIGKILL, "the shell's end")
            ctx.until(lambda: not lock_holder(fd), 20, "the end of the lock")
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(fd)


class Running:
    """A sandbox that waits; its child's pid is taken from the info descriptor line by line."""

    def __init__(self, ctx, *options):
        read, write = os.pipe()
        self.process = ctx.bw_popen(*ctx.RUN, "--info-fd", "42", *options, "sh", "-c",
                                    "echo ready; read line", fds={42: write},
                                    stdin=subprocess.PIPE)
        os.close(write)
        with os.fdopen(read) as f:
            lines = [line for line in f if "child-pid" in line]
        ctx.eq(len(lines), 1, "lines that name the child")
        self.pid = int(lines[0].strip().rstrip(",").rpartition(": ")[2])
        ctx.eq(self.process.stdout.readline(), b"ready\n", "the command's first word")

    def namespace(self, kind):
        return f"/proc/{self.pid}/ns/{kind}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)


@case("A64", "--userns joins the user namespace of a running sandbox")
def join_user(ctx):
    with Running(ctx, "--unshare-user") as first:
        link = os.readlink(first.namespace("user"))
        ctx.true(link != os.readlink("/proc/self/ns/user"), "the sandbox has no user namespace")
        fd = os.open(first.namespace("user"), os.O_RDONLY | os.O_CLOEXEC)
        ctx.ok(ctx.bw(*ctx.RUN, "--userns", "11", "readlink", "/proc/self/ns/user", fds={11: fd}),
               out=link)
        os.close(fd)


@case("A65", "--pidns joins the pid namespace of a running sandbox")
def join_pid(ctx):
    with Running(ctx, "--unshare-user", "--unshare-pid") as first:
        link = os.readlink(first.namespace("pid"))
        ctx.true(link != os.readlink("/proc/self/ns/pid"), "the sandbox has no pid namespace")
        fds = {11: os.open(first.namespace("user"), os.O_RDONLY | os.O_CLOEXEC),
               12: os.open(first.namespace("pid"), os.O_RDONLY | os.O_CLOEXEC)}
        ctx.ok(ctx.bw(*ctx.RUN, "--userns", "11", "--pidns", "12", "readlink",
                      "/proc/self/ns/pid", fds=fds), out=link)
        for fd in fds.values():
            os.close(fd)
