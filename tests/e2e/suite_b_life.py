"""Part B of the checklist, exit status and life cycle: B11 to B21."""

import json
import os
import re
import signal

from b_util import (Live, Sleeper, alive, at_end, file_text, finish, out_file, read_until,
                    status_lines, wait, with_status)
from harness import case

SHAPES = ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1"))


@case("B11", "the command's exit status passes through and stands in the status output")
def exit_status(ctx):
    for shape in SHAPES:
        for code in (0, 7, 127, 255):
            result, status = with_status(ctx, *ctx.RUN, *shape, "sh", "-c", f"exit {code}")
            ctx.eq(result.rc, code, f"status of exit {code} with {shape}")
            ctx.eq(status_lines(status)[-1], {"exit-code": code}, f"last line with {shape}")


@case("B11", "a command that a signal ends gives 128 and the signal's number")
def signal_status(ctx):
    # A process 1 cannot end itself with a signal, so that shape is not part of this.
    for shape in SHAPES[:2]:
        for name, code in (("KILL", 137), ("TERM", 143), ("SEGV", 139)):
            result, status = with_status(ctx, *ctx.RUN, *shape, "sh", "-c",
                                         f"ulimit -c 0; kill -{name} $$; exit 3")
            ctx.eq(result.rc, code, f"status of SIG{name} with {shape}")
            ctx.eq(status_lines(status)[-1], {"exit-code": code}, f"last line with {shape}")


@case("B12", "a command that cannot be executed gives status 1, a message and no exit code line")
def exec_failure(ctx):
    plain_file = ctx.write("plain-file", "#!/bin/sh\n", 0o644)
    folder = ctx.mkdir("folder")
    for shape in SHAPES:
        for name, reason in (("no-such-command", "No such file or directory"),
                             ("/nonexistent/command", "No such file or directory"),
                             (plain_file, "Permission denied"), (folder, "Permission denied")):
            result, status = with_status(ctx, *ctx.RUN, *shape, name)
            ctx.fails(result, rc=1, err=rf"^bwrap: execvp {re.escape(name)}: {reason}")
            lines = status_lines(status)
            ctx.eq(len(lines), 1, f"status lines for {name}")
            ctx.true("child-pid" in lines[0], f"the first line has the pid: {lines}")
    os.chmod(plain_file, 0o755)
    ctx.ok(ctx.bw(*ctx.RUN, plain_file))


@case("B12", "a PATH entry that may not be searched does not hide that a command is missing",
      only="user")
def exec_failure_with_closed_path(ctx):
    closed = ctx.mkdir("closed", 0o000)
    env = dict(os.environ, PATH=closed + ":/usr/bin:/bin")
    ctx.fails(ctx.bw(*ctx.RUN, "no-such-command", env=env), rc=1,
              err=r"^bwrap: execvp no-such-command: No such file or directory")
    ctx.ok(ctx.bw(*ctx.RUN, "true", env=env))


@case("B13", "a script without a #! line runs in /bin/sh")
def script_without_interpreter(ctx):
    script = ctx.write("tools/script", 'echo "$1 $2"; exit 5\n', 0o755)
    for shape in SHAPES:
        result = ctx.fails(ctx.bw(*ctx.RUN, *shape, script, "one", "two"), rc=5)
        ctx.eq(result.out, "one two\n", "stdout")
    env = dict(os.environ, PATH=ctx.dir + "/tools:" + os.environ["PATH"])
    result = ctx.fails(ctx.bw(*ctx.RUN, "script", "a", "b", env=env), rc=5)
    ctx.eq(result.out, "a b\n", "stdout of the one found through PATH")


@case("B14", "SIGKILL to the reaper ends everything, and the status is 137")
def reaper_killed(ctx):
    read, write = os.pipe()
    live = Live(ctx, *ctx.RUN, "--unshare-pid", fds={50: write})
    os.close(write)
    live.ready()
    os.kill(live.pid, signal.SIGKILL)
    ctx.eq(wait(live.proc), 137, "status")
    ctx.true(at_end(read, 5), "the command is gone")
    os.close(read)


@case("B14", "SIGTERM, SIGINT and SIGHUP from outside leave the reaper alone")
def reaper_ignores(ctx):
    live = Live(ctx, *ctx.RUN, "--unshare-pid",
                script="while read -r x; do echo \"got $x\"; done; exit 6")
    live.ready()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(live.pid, number)
        ctx.eq(live.ask(number.name), f"got {number.name}\n", "answer")
    ctx.eq(live.end(), 6, "the command's own status")


@case("B15", "SIGTERM ends the monitor only, and the sandbox goes on")
def monitor_terminated(ctx):
    for shape in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
        live = Live(ctx, *ctx.RUN, *shape)
        live.ready()
        os.kill(live.proc.pid, signal.SIGTERM)
        ctx.eq(wait(live.proc), 143, f"status with {shape}")
        ctx.eq(live.ask("still"), "got still\n", f"answer with {shape}")
        ctx.true(alive(live.pid), f"the sandbox lives on with {shape}")
        live.close_stdin()
        ctx.until(lambda: not alive(live.pid), why="the end of the sandbox")


@case("B15", "with --die-with-parent SIGTERM to the monitor ends the sandbox")
def monitor_terminated_with_death(ctx):
    for shape in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
        read, write = os.pipe()
        live = Live(ctx, *ctx.RUN, *shape, "--die-with-parent", fds={50: write})
        os.close(write)
        live.ready()
        ctx.true(not at_end(read), "the command runs")
        os.kill(live.proc.pid, signal.SIGTERM)
        ctx.eq(wait(live.proc), 143, f"status with {shape}")
        ctx.true(at_end(read, 5), f"the command is gone with {shape}")
        os.close(read)


@case("B16", "with a pid namespace the program returns with the command, and a process that the "
      "command left behind goes on")
def background_goes_on(ctx):
    sleeper = Sleeper(ctx, "--unshare-pid")
    ctx.eq(sleeper.finish_command(), 4, "status")
    sleeper.lives()
    ctx.true(alive(sleeper.pid), "the reaper goes on")
    sleeper.release()
    ctx.true(sleeper.ended(), "the process ends when it may")
    ctx.until(lambda: not alive(sleeper.pid), why="the end of the reaper")


@case("B16", "with --die-with-parent a process that the command left behind is killed")
def background_dies_with_parent(ctx):
    sleeper = Sleeper(ctx, "--unshare-pid", "--die-with-parent")
    ctx.eq(sleeper.finish_command(), 4, "status")
    ctx.true(sleeper.ended(), "the process is gone")


@case("B16", "with --as-pid-1 a process that the command left behind is killed")
def background_dies_with_pid_1(ctx):
    sleeper = Sleeper(ctx, "--unshare-pid", "--as-pid-1")
    ctx.eq(sleeper.finish_command(), 4, "status")
    ctx.true(sleeper.ended(), "the process is gone")


@case("B16", "without a pid namespace a process that the command left behind goes on")
def background_without_namespace(ctx):
    sleeper = Sleeper(ctx)
    ctx.eq(sleeper.finish_command(), 4, "status")
    sleeper.lives()
    sleeper.release()
    ctx.true(sleeper.ended(), "the process ends when it may")


def ignore_sigchld():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def block_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1))


@case("B17", "a caller that ignores SIGCHLD still gets the right status")
def sigchld_ignored(ctx):
    for shape in SHAPES:
        result = ctx.bw(*ctx.RUN, *shape, "sh", "-c", "exit 5", pre=ignore_sigchld, timeout=10)
        ctx.eq(result.rc, 5, f"status with {shape}")


def signal_set(text, name):
    return int(re.search(rf"^{name}:\s*([0-9a-f]+)", text, re.M)[1], 16)


@case("B17", "the command starts with SIGCHLD at its default and no signal blocked")
def clean_signals(ctx):
    for shape in SHAPES:
        for pre in (ignore_sigchld, block_signals):
            result = ctx.ok(ctx.bw(*ctx.RUN, *shape, "cat", "/proc/self/status", pre=pre,
                                   timeout=10))
            ctx.eq(signal_set(result.out, "SigBlk"), 0, f"blocked with {shape}")
            bit = 1 << (signal.SIGCHLD - 1)
            ctx.eq(signal_set(result.out, "SigIgn") & bit, 0, f"SIGCHLD ignored with {shape}")
    # The control: without the program both settings do reach the command.
    result = ctx.ok(ctx.run("cat", "/proc/self/status", pre=block_signals))
    ctx.true(signal_set(result.out, "SigBlk") != 0, "the mask is inherited otherwise")


def both_outputs(ctx, *options):
    """Info and status text of a run that prints the number of its mount namespace."""
    info, status = out_file(ctx, "info"), out_file(ctx, "status")
    result = ctx.ok(ctx.bw(*ctx.RUN, "--info-fd", "60", "--json-status-fd", "61", *options,
                           "stat", "-L", "-c", "%i", "/proc/self/ns/mnt",
                           fds={60: info, 61: status}))
    return int(result.out), file_text(info), file_text(status)


@case("B18", "with nothing but the mount namespace the two outputs have these exact bytes")
def output_bytes(ctx):
    mount, info, status = both_outputs(ctx)
    pid = json.loads(info)["child-pid"]
    ctx.eq(info, f'{{\n    "child-pid": {pid},\n    "mnt-namespace": {mount}\n}}\n', "info")
    ctx.eq(status, f'{{ "child-pid": {pid}, "mnt-namespace": {mount} }}\n'
           '{ "exit-code": 0 }\n', "status")


@case("B18", "with all namespaces the two outputs have these exact bytes")
def output_bytes_all(ctx):
    mount, info, status = both_outputs(ctx, "--unshare-all")
    names = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
    fact = json.loads(info)
    keys = ["child-pid"] + [name + "-namespace" for name in names]
    ctx.eq(list(fact), keys, "the keys in their order")
    ctx.eq(fact["mnt-namespace"], mount, "the mount namespace")
    lines = ",\n".join(f'    "{key}": {fact[key]}' for key in keys)
    ctx.eq(info, "{\n" + lines + "\n}\n", "info")
    line = ", ".join(f'"{key}": {fact[key]}' for key in keys)
    ctx.eq(status, "{ " + line + ' }\n{ "exit-code": 0 }\n', "status")


@case("B19", "after a failure in the set-up the status has the pid line and no exit code line")
def setup_failure(ctx):
    marker = ctx.dir + "/ran"
    unreadable = os.open(ctx.write("filter", b"x" * 8), os.O_WRONLY)
    file = ctx.write("file")
    for options in (("--seccomp", "20"), ("--chdir", "/nonexistent"), ("--bind", "/usr", file)):
        result, status = with_status(ctx, *ctx.RUN, *options, "touch", marker,
                                     fds={20: unreadable})
        ctx.fails(result, rc=1, err=r"^bwrap: ")
        lines = status_lines(status)
        ctx.eq([list(line)[0] for line in lines], ["child-pid"], f"lines with {options}")
        ctx.true(not os.path.exists(marker), "the command did not run")
    os.close(unreadable)
    ctx.ok(ctx.bw(*ctx.RUN, "touch", marker))
    ctx.true(os.path.exists(marker), "the same command runs otherwise")


@case("B20", "--block-fd holds the command back until a byte or the end of the pipe comes")
def block_fd(ctx):
    for shape in SHAPES:
        for what in ("byte", "end"):
            marker = f"{ctx.dir}/ran-{what}{len(shape)}"
            read, write = os.pipe()
            info_read, info = os.pipe()
            proc = ctx.bw_popen(*ctx.RUN, *shape, "--block-fd", "9", "--info-fd", "60", "sh",
                                "-c", f"echo > {marker}; exit 3", fds={9: read, 60: info})
            os.close(read)
            os.close(info)
            pid = json.loads(read_until(info_read, b"}\n"))["child-pid"]
            os.close(info_read)
            ctx.true(not at_end(proc.stdout.fileno(), 0.2), "the program waits")
            ctx.true(alive(pid), "the sandbox is there")
            ctx.true(not os.path.exists(marker), "the command has not run yet")
            if what == "byte":
                os.write(write, b"x")
            else:
                os.close(write)
            ctx.fails(finish(ctx, proc), rc=3)
            ctx.true(os.path.exists(marker), f"the command ran after the {what}")
            if what == "byte":
                os.close(write)


@case("B20", "the information is complete, and its pipe ends, while the command is held back")
def block_fd_info_end(ctx):
    # A caller may read to the end of the pipe before it lets the command go.
    for options in (("--block-fd", "9"), ("--unshare-user", "--userns-block-fd", "9")):
        for shape in SHAPES:
            read, write = os.pipe()
            info_read, info = os.pipe()
            proc = ctx.bw_popen(*ctx.RUN, *shape, *options, "--info-fd", "60", "true",
                                fds={9: read, 60: info})
            os.close(read)
            os.close(info)
            pid = json.loads(read_until(info_read))["child-pid"]
            ctx.true(alive(pid), "the sandbox waits")
            os.close(info_read)
            os.kill(pid, signal.SIGKILL)
            os.close(write)
            ctx.true(wait(proc) in (1, 137), "the status is that of a failure")


@case("B20", "--block-fd with a descriptor that cannot be read goes on at once")
def block_fd_bad(ctx):
    unreadable = os.open(ctx.write("file"), os.O_WRONLY)
    ctx.fails(ctx.bw(*ctx.RUN, "--block-fd", "99", "sh", "-c", "exit 3"), rc=3)
    ctx.fails(ctx.bw(*ctx.RUN, "--block-fd", "9", "sh", "-c", "exit 3", fds={9: unreadable}),
              rc=3)
    os.close(unreadable)


@case("B21", "the exit code line comes when the command ends, although the sandbox lives on")
def exit_line_before_end(ctx):
    status = out_file(ctx, "status")
    sleeper = Sleeper(ctx, "--unshare-pid", "--json-status-fd", "61", code=9, fds={61: status})
    ctx.eq(len(status_lines(file_text(status))), 1, "lines while the command runs")
    ctx.eq(sleeper.finish_command(), 9, "status")
    ctx.eq(status_lines(file_text(status))[-1], {"exit-code": 9}, "last line")
    sleeper.lives()
    ctx.eq(status_lines(file_text(status))[0]["child-pid"], sleeper.pid, "the reported pid")
    ctx.true(alive(sleeper.pid), "the reaper lives on")
    sleeper.release()
    ctx.true(sleeper.ended(), "the process ends when it may")
