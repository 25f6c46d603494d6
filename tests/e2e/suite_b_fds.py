"""Part B of the checklist, descriptors: B22 to B25."""

import json
import os
import subprocess

from b_util import (Live, Sleeper, at_end, file_text, identities, out_file, probe, read_until,
                    seccomp_allow, wait)
from harness import case, memfd


def numbers(text):
    return [int(line.split()[0]) for line in text.splitlines() if line[:1].isdigit()]


def option_fds(ctx):
    """Options that take a descriptor each, and the descriptors: everything but --args, which
    comes first, and the joining options, which need a sandbox to join."""
    file = os.open(ctx.write("bound-file", "x"), os.O_RDONLY)
    folder = os.open(ctx.mkdir("bound-folder"), os.O_RDONLY | os.O_DIRECTORY)
    options = ("--block-fd", "11", "--sync-fd", "12", "--info-fd", "13", "--json-status-fd", "14",
               "--file", "15", "/tmp/f", "--bind-data", "16", "/tmp/b", "--ro-bind-data", "17",
               "/tmp/r", "--bind-fd", "18", "/tmp/folder", "--ro-bind-fd", "19", "/tmp/file",
               "--seccomp", "20")
    fds = {10: "--dir\0/tmp/q", 11: "x", 12: memfd(""), 13: out_file(ctx, "info"),
           14: out_file(ctx, "status"), 15: "f", 16: "b", 17: "r", 18: folder, 19: file,
           20: seccomp_allow(), 40: "kept"}
    return options, fds


@case("B22", "the command has its standard descriptors and the unrelated ones, no other")
def command_fds(ctx):
    for shape in ((), ("--unshare-pid",), ("--unshare-all",), ("--lock-file", "/tmp/f")):
        options, fds = option_fds(ctx)
        result = ctx.ok(ctx.bw(*ctx.RUN, "--ro-bind", probe(ctx), "/tmp/p", "--args", "10",
                               *options, *shape, "/tmp/p", "fds", fds=fds))
        ctx.eq(numbers(result.out), [0, 1, 2, 40], f"descriptors with {shape}\n{result}")
        # The options did their work: nothing was closed because it was never used.
        ctx.true(file_text(fds[13]).startswith("{"), "the information was written")
        ctx.true("exit-code" in file_text(fds[14]), "the status was written")


@case("B22", "the descriptors of --add-seccomp-fd are closed")
def command_fds_filters(ctx):
    result = ctx.ok(ctx.bw("--bind", "/", "/", "--add-seccomp-fd", "20", "--add-seccomp-fd", "21",
                           probe(ctx), "fds",
                           fds={20: seccomp_allow(), 21: seccomp_allow(), 40: "kept"}))
    ctx.eq(numbers(result.out), [0, 1, 2, 40], "descriptors")


@case("B22", "the descriptors of joined namespaces are closed")
def command_fds_joined(ctx):
    live = Live(ctx, *ctx.RUN, "--unshare-user", "--unshare-pid")
    live.ready()
    user = os.open(f"/proc/{live.pid}/ns/user", os.O_RDONLY)
    pids = os.open(f"/proc/{live.pid}/ns/pid", os.O_RDONLY)
    for options in (("--userns", "30"), ("--userns", "30", "--pidns", "31"),
                    ("--userns", "30", "--pidns", "31", "--unshare-pid")):
        fds = {30: user, 31: pids, 40: "kept"} if "--pidns" in options else {30: user, 40: "kept"}
        result = ctx.ok(ctx.bw("--bind", "/", "/", *options, probe(ctx), "fds", fds=fds))
        ctx.eq(numbers(result.out), [0, 1, 2, 40], f"descriptors with {options}\n{result}")
    os.close(user)
    os.close(pids)
    ctx.eq(live.end(), 0)


@case("B22", "the descriptor of --userns-block-fd is closed")
def command_fds_mapper(ctx):
    read, write = os.pipe()
    live = Live(ctx, "--bind", "/", "/", "--unshare-user", "--userns-block-fd", "9",
                argv=(probe(ctx), "fds"), fds={9: read, 40: "kept"})
    os.close(read)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{ctx.uid} {ctx.uid} 1"),
                       ("gid_map", f"{ctx.gid} {ctx.gid} 1")):
        with open(f"/proc/{live.pid}/{name}", "w") as f:
            f.write(text)
    os.close(write)
    text = read_until(live.out).decode()
    ctx.eq(numbers(text), [0, 1, 2, 40], f"descriptors\n{text}")
    ctx.eq(wait(live.proc), 0)


@case("B22", "with standard descriptors closed by the caller nothing of ours takes their place")
def command_fds_closed_stdio(ctx):
    def closing(*which):
        def pre():
            for fd in which:
                os.close(fd)
        return pre

    for shape in ((), ("--unshare-pid",), ("--unshare-pid", "--dev", "/dev", "--proc", "/proc")):
        for which in ((0,), (2,), (0, 2)):
            result = ctx.ok(ctx.bw("--bind", "/", "/", *shape, probe(ctx), "fds",
                                   pre=closing(*which)))
            for line in result.out.splitlines():
                number, kind, target = line.split(" ", 2)
                ctx.true(int(number) <= 2, f"descriptor {line} with {shape}")
                if int(number) in which:
                    ctx.true(kind == "character" and target.endswith("/dev/null"),
                             f"descriptor {line} where the caller closed {which}")


@case("B23", "with --as-pid-1 the descriptor of --sync-fd stays open in the command")
def sync_fd_pid_1(ctx):
    base = ("--bind", "/", "/", "--unshare-pid", "--sync-fd", "12")
    result = ctx.ok(ctx.bw(*base, "--as-pid-1", probe(ctx), "fds", fds={12: "sync"}))
    ctx.eq(numbers(result.out), [0, 1, 2, 12], "descriptors as process 1")
    result = ctx.ok(ctx.bw(*base, probe(ctx), "fds", fds={12: "sync"}))
    ctx.eq(numbers(result.out), [0, 1, 2], "descriptors of an ordinary command")


def open_files(pid):
    folder = f"/proc/{pid}/fd"
    return {int(n): os.readlink(f"{folder}/{n}") for n in os.listdir(folder)}


@case("B24", "the reaper holds its standard descriptors, locks, the sync descriptor and a channel, "
      "nothing else", only="root")
def reaper_fds(ctx):
    lock = ctx.write("lock", mode=0o666)
    status = out_file(ctx, "status")
    secret = os.open(ctx.write("secret", "x"), os.O_RDONLY)
    for who, prefix in identities():
        for shape in ((), ("--unshare-pid",)):
            sync_read, sync = os.pipe()
            live = Live(ctx, *ctx.RUN, *shape, "--lock-file", lock, "--sync-fd", "12",
                        "--json-status-fd", "14", "--args", "10", "--ro-bind-data", "17", "/tmp/x",
                        prefix=prefix, fds={10: "--dir\0/tmp/q", 12: sync, 14: status, 17: "r",
                                            40: secret})
            os.close(sync)
            live.ready()
            fds = open_files(live.pid)
            where = f"{who} {shape}: {fds}"
            ctx.true({0, 1, 2} <= set(fds), f"standard descriptors of {where}")
            rest = [target for number, target in fds.items() if number > 2]
            name = f"pipe:[{os.fstat(sync_read).st_ino}]"
            ctx.eq(rest.count(name), 1, f"sync descriptors of {where}")
            ctx.eq(sum(target == lock for target in rest), 1, f"lock files of {where}")
            others = [t for t in rest if t not in (name, lock)]
            ctx.true(len(others) <= 2, f"at most two internal channels of {where}")
            for target in others:
                ctx.true(target.startswith(("pipe:", "socket:", "anon_inode:")),
                         f"only channels beside the known ones of {where}")
            ctx.eq(live.end(), 0, f"status of {where}")
            os.close(sync_read)


@case("B24", "with stdin closed by the caller the reaper's descriptor 0 leads nowhere", only="root")
def reaper_fds_closed_stdin(ctx):
    for who, prefix in identities():
        read, info = os.pipe()
        wait_read, wait_end = os.pipe()
        proc = ctx.popen(*prefix, ctx.bwrap, *ctx.RUN, "--unshare-pid", "--proc", "/proc",
                         "--info-fd", "60", "sh", "-c", "echo ready; cat <&5",
                         fds={60: info, 5: wait_read}, pre=lambda: os.close(0),
                         stderr=subprocess.DEVNULL)
        os.close(info)
        os.close(wait_read)
        pid = json.loads(read_until(read, b"}\n"))["child-pid"]
        os.close(read)
        read_until(proc.stdout.fileno(), b"ready\n")
        fds = open_files(pid)
        ctx.true(fds.get(0, "/dev/null") == "/dev/null", f"descriptor 0 of {who}: {fds}")
        for number, target in fds.items():
            ctx.true(not target.startswith("/proc"), f"descriptor {number} of {who}: {target}")
        os.close(wait_end)
        ctx.eq(wait(proc), 0, "status")


@case("B25", "the sync pipe ends with the last process of the pid namespace")
def sync_fd_end(ctx):
    sync_read, sync = os.pipe()
    sleeper = Sleeper(ctx, "--unshare-pid", "--sync-fd", "12", fds={12: sync})
    os.close(sync)
    ctx.eq(sleeper.finish_command(), 4, "status")
    sleeper.lives()
    ctx.true(not at_end(sync_read), "the pipe is open while a process is left")
    sleeper.release()
    ctx.true(at_end(sync_read, 5), "the pipe ends with that process")
    os.close(sync_read)


@case("B25", "without a pid namespace the sync pipe ends with the command")
def sync_fd_end_without_namespace(ctx):
    sync_read, sync = os.pipe()
    live = Live(ctx, *ctx.RUN, "--sync-fd", "12", fds={12: sync})
    os.close(sync)
    live.ready()
    ctx.true(not at_end(sync_read, 0.1), "the pipe is open while the command runs")
    ctx.eq(live.end(), 0, "status")
    ctx.true(at_end(sync_read, 5), "the pipe ends with the command")
    os.close(sync_read)
