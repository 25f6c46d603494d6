"""--log-denials: what is written for each kind of refusal, beside the same thing where it is allowed and nothing is
written; that the refusals stay what they are; and that neither many calls, nor a reader that is gone or does not read, nor
the end of anybody hangs or changes the command.
"""

import json
import os
import re
import signal
import subprocess
import time

from casekit import until_known
from harness import case

SMALL = ("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink",
         "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev")
PYTHON = ("/usr/bin/python3", "-S", "-c")
# Calls unshare(CLONE_NEWUSER) by libc, and prints the error's name.
UNSHARE = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def unshare(flags=0x10000000):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno(), "none") if libc.unshare(flags) < 0 else "none"
"""


def logged(ctx, *words, form="file", **kw):
    """Runs `nsbox run` with a log; the result and the records."""
    path = os.path.join(ctx.dir, "denied")
    if os.path.exists(path):
        os.unlink(path)
    result = ctx.run(ctx.nsbox, "run", f"--log-denials={path}", *words, **kw)
    return result, records(path)


def records(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def bwrap_logged(ctx, *words, **kw):
    path = os.path.join(ctx.dir, "denied")
    if os.path.exists(path):
        os.unlink(path)
    result = ctx.bw(f"--log-denials={path}", *words, **kw)
    return result, records(path)


def of(found, **members):
    return [one for one in found if all(one.get(name) == value for name, value in members.items())]


@case("DENY-syscall", "a refused system call is written with the program and the option, gets the policy's error, and is "
      "neither refused nor written with that option")
def syscall(ctx):
    script = UNSHARE + "print(unshare())"
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result, "EPERM")
    one, = of(found, kind="syscall", call="unshare")
    ctx.eq((one["errno"], one["wall"], one["option"], one["estimated"], one["object"]),
           ("EPERM", "filter", "--allow-userns", False, None))
    ctx.eq(one["program"], "python3")
    ctx.true(one["executable"].startswith("/usr/bin/python3"), one)
    ctx.eq(one["pid"], 2)
    ctx.true(re.fullmatch("[0-9a-f]{16}", one["sandbox"]) and re.match(r"\d{4}-\d\d-\d\dT", one["time"]), one)
    result, found = logged(ctx, "--allow-userns", *PYTHON, script)
    ctx.ok(result, "none")
    ctx.eq(of(found, kind="syscall", call="unshare"), [])


@case("DENY-errors", "every refused call of the policy is answered as without a log")
def errors(ctx):
    # mount, umount2, pivot_root, swapon, reboot, sethostname, init_module, quotactl, keyctl, add_key, ptrace,
    # process_vm_readv, kcmp, bpf, perf_event_open, userfaultfd, io_uring_setup, setns, kexec_load, settimeofday, acct,
    # syslog, open_by_handle_at, fsopen, move_mount, clone3, socket(AF_VSOCK), and numbers that nobody has.
    script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number in (165, 166, 155, 167, 169, 170, 175, 179, 250, 248, 101, 310, 312, 321, 298, 323, 425, 308, 246, 164, 163,
               103, 304, 430, 429, 435, 41, 500, 999, 0x40000027):
    ctypes.set_errno(0)
    libc.syscall(number, 40, 1, 0, 0, 0, 0)
    answers.append((number, ctypes.get_errno()))
print(answers)
"""
    if os.uname().machine != "x86_64":
        ctx.skip("the numbers are those of x86_64")
    plain = ctx.ok(ctx.run(ctx.nsbox, "run", *PYTHON, script))
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result, plain.out.strip())
    ctx.true(len(of(found, kind="syscall")) > 25, found)


@case("DENY-strict", "a policy that refuses what the set-up of the log takes is logged too")
def strict(ctx):
    policy = ctx.write("policy", "deny EMFILE sendmsg recvmsg\ndeny EACCES close_range\ninclude default\n")
    script = "import socket\na, b = socket.socketpair()\ntry:\n a.sendmsg([b'x'])\n print('sent')\nexcept OSError as e:\n print(e.errno)"
    result, found = logged(ctx, "--seccomp-policy", policy, *PYTHON, script)
    ctx.ok(result, "24")
    one, = of(found, call="sendmsg")
    ctx.eq((one["errno"], one["option"]), ("EMFILE", "--seccomp-policy FILE"))
    ctx.true(policy in one["reason"], one)
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result, "sent")
    ctx.eq(of(found, call="sendmsg"), [])


@case("DENY-kill", "a policy that kills does so with a log too")
def kills(ctx):
    policy = ctx.write("policy", "kill unshare\ninclude default\n")
    script = UNSHARE + "print(unshare())"
    for words in ((), (f"--log-denials={ctx.dir}/log",)):
        ctx.fails(ctx.run(ctx.nsbox, "run", *words, "--seccomp-policy", policy, *PYTHON, script), 128 + signal.SIGSYS)
        ctx.ok(ctx.run(ctx.nsbox, "run", *words, *PYTHON, script), "EPERM")


@case("DENY-hidden", "a file that the host has and the sandbox does not is written with the option that shows it; one that "
      "nobody has, and one that is shown, are not")
def hidden(ctx):
    path = ctx.write("hidden/file", "text", mode=0o644)
    look = ("cat", path)
    result, found = logged(ctx, *look)
    ctx.fails(result, 1)
    one, = of(found, object=path)
    ctx.eq((one["kind"], one["errno"], one["wall"], one["option"], one["estimated"], one["program"]),
           ("open", "ENOENT", "mount", f"--ro {path}", True, "cat"))
    result, found = logged(ctx, "--ro", path, *look)
    ctx.ok(result, "text")
    ctx.eq(of(found, object=path), [])
    result, found = logged(ctx, "cat", path + "-nobody-has")
    ctx.fails(result, 1)
    ctx.eq(of(found, kind="open", program="cat"), [])
    result, found = bwrap_logged(ctx, *SMALL, *look)
    ctx.fails(result, 1)
    ctx.eq([one["option"] for one in of(found, object=path)], [f"--ro-bind {path} {path}"])


@case("DENY-relative", "a path that is relative, or has links, is resolved as the command would")
def relative(ctx):
    ctx.write("tree/here", "yes")
    os.symlink("/tree-link/here", ctx.dir + "/tree/link")
    script = "import os\nos.chdir('/seen')\nopen('here').close()\nfd = os.open('.', 0)\n"
    script += "os.close(os.open('here', 0, dir_fd=fd))\nopen('link').close()\n"
    script += "try:\n os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=fd)\nexcept OSError as e:\n print(e.errno)\n"
    result, found = bwrap_logged(ctx, *SMALL, "--ro-bind", ctx.dir + "/tree", "/seen", "--symlink", "seen", "/tree-link",
                                 *PYTHON, script)
    ctx.ok(result, "30")
    ctx.eq([(one["object"], one["errno"]) for one in found if one["object"].startswith("/seen")],
           [("/seen/new", "EROFS")])


@case("DENY-read-only", "writing to what is read-only is written with the option that shows it writable, reading is not")
def read_only(ctx):
    path = ctx.write("shown/file", "text", mode=0o644)
    folder = os.path.dirname(path)
    script = f"cat {path}; echo more >>{path}; mkdir {folder}/new; rm {path}; mv {path} {path}2; true"
    result, found = logged(ctx, "--ro", folder, "sh", "-c", script)
    ctx.ok(result, "text")
    ctx.true(found and all(one["errno"] == "EROFS" for one in found), found)
    ctx.eq({(one["kind"], one["program"], one["option"]) for one in found},
           {("open", "sh", f"--rw {path}"), ("change", "mkdir", f"--rw {folder}"), ("change", "rm", f"--rw {folder}"),
            ("change", "mv", f"--rw {folder}")})
    result, found = logged(ctx, "--rw", folder, "sh", "-c", f"echo more >>{path}; mkdir {folder}/new; rmdir {folder}/new")
    ctx.ok(result)
    ctx.eq(found, [])


@case("DENY-mode", "a file whose mode refuses the command is written as that, one that it may read is not")
def by_mode(ctx):
    path = ctx.write("modes/closed", "text", mode=0o000)
    ctx.write("modes/open", "text", mode=0o644)
    folder = os.path.dirname(path)
    result, found = logged(ctx, "--ro", folder, "cat", folder + "/closed", folder + "/open")
    ctx.fails(result, 1)
    ctx.eq([(one["object"], one["errno"], one["wall"], one["option"]) for one in found],
           [(path, "EACCES", "permissions", None)])


@case("DENY-connect", "a connection that there is no network for is written with --net user; one to the own loopback is not")
def connect(ctx):
    script = """
import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
for family, address in ((socket.AF_INET, ("192.0.2.1", 80)), (socket.AF_INET6, ("2001:db8::1", 443))):
    try:
        socket.socket(family).connect(address)
    except OSError as error:
        print(error.errno)
"""
    result, found = logged(ctx, *PYTHON, script)
    ctx.true(result.out.split()[0] == "101", result)
    ctx.eq([(one["object"], one["errno"], one["wall"], one["option"]) for one in of(found, kind="connect")],
           [("192.0.2.1:80", "ENETUNREACH", "network", "--net user"),
            ("[2001:db8::1]:443", "ENETUNREACH", "network", "--net user")])


@case("DENY-outbound", "with a network that leads nowhere, connections to the outside and to the host are written with what "
      "opens them; one to an open port of the host's loopback is not")
def outbound(ctx):
    import socket
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    script = f"""
import socket
for address in (("10.0.2.2", {port}), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 5).close()
        print("there")
    except OSError as error:
        print(error.errno)
"""
    closed = (("10.0.2.2:%d" % port, "EHOSTUNREACH", "--host-loopback %d" % port), ("192.0.2.1:80", "EHOSTUNREACH", "--net user"))
    result, found = logged(ctx, "--net", "user,outbound=off", *PYTHON, script)
    ctx.ok(result, "113\n113")
    ctx.eq([(one["object"], one["errno"], one["option"]) for one in of(found, kind="connect")], list(closed))
    result, found = logged(ctx, "--net", "user,outbound=off", "--host-loopback", str(port), *PYTHON, script)
    ctx.ok(result, "there\n113")
    ctx.eq([(one["object"], one["errno"], one["option"]) for one in of(found, kind="connect")], [closed[1]])
    server.close()


@case("DENY-socket", "a unix socket of the host that is not shown is written, one that is shown can be reached")
def unix_socket(ctx):
    import socket
    path = os.path.join(ctx.mkdir("sockets"), "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(4)
    script = f"import socket\ntry:\n socket.socket(socket.AF_UNIX).connect({path!r})\n print('there')\nexcept OSError as e:\n print(e.errno)"
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result, "2")
    ctx.eq([(one["errno"], one["option"]) for one in of(found, object=path)], [("ENOENT", f"--ro {path}")])
    result, found = logged(ctx, "--ro", path, *PYTHON, script)
    ctx.ok(result, "there")
    ctx.eq(of(found, object=path), [])
    server.close()


@case("DENY-bind", "a port below 1024 is written with the network that has them, where it can be bound, and one above is not")
def low_port(ctx):
    script = """
import socket
for port in (80, 8080):
    try:
        socket.create_server(("127.0.0.1", port)).close()
        print(port)
    except OSError as error:
        print(error.errno)
"""
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result)
    ctx.eq(result.out.split(), ["13", "8080"])
    ctx.eq([(one["object"], one["errno"], one["option"]) for one in of(found, kind="bind")],
           [("127.0.0.1:80", "EACCES", "--net user,outbound=off")])
    result, found = logged(ctx, "--net", "user,outbound=off", *PYTHON, script)
    ctx.eq(result.out.split(), ["80", "8080"])
    ctx.eq(of(found, kind="bind"), [])


@case("DENY-cover", "a covered part of /proc is written as that")
def cover(ctx):
    script = "try:\n open('/proc/sys/kernel/domainname', 'w')\nexcept OSError as e:\n print(e.errno)\nprint(open('/proc/sys/kernel/domainname').read() != '')"
    result, found = logged(ctx, *PYTHON, script)
    ctx.ok(result, "30\nTrue")
    ctx.eq([(one["errno"], one["wall"], one["option"]) for one in of(found, object="/proc/sys/kernel/domainname")],
           [("EROFS", "cover", None)])


@case("DENY-execute", "a program that may not be executed is written, one that may is not")
def execute(ctx):
    path = ctx.write("programs/no", "#!/bin/sh\necho ran\n", mode=0o644)
    good = ctx.write("programs/yes", "#!/bin/sh\necho ran\n", mode=0o755)
    folder = os.path.dirname(path)
    result, found = logged(ctx, "--ro", folder, "sh", "-c", f"{path}; {good}")
    ctx.ok(result, "ran")
    ctx.eq([(one["object"], one["errno"]) for one in of(found, kind="execute")], [(path, "EACCES")])


@case("DENY-rate", "10,000 refused calls are two lines or a few, which count them all")
def rate(ctx):
    script = UNSHARE + "print({unshare() for _ in range(10000)})"
    result, found = logged(ctx, *PYTHON, script, timeout=60)
    ctx.ok(result, "{'EPERM'}")
    same = of(found, call="unshare")
    ctx.true(len(same) < 40, f"{len(same)} lines")
    ctx.eq(sum(one.get("repeated", 1) for one in same), 10000)
    ctx.true("repeated" not in same[0] and "repeated" in same[-1], same)


@case("DENY-flood", "of very many different denials some are written, and the others counted")
def flood(ctx):
    path = ctx.write("many/0", "x")
    folder = os.path.dirname(path)
    script = f"""
import os
for i in range(3000):
    try:
        os.open("{folder}/new%d" % i, os.O_CREAT | os.O_WRONLY)
    except OSError as error:
        assert error.errno == 30
print("done")
"""
    result, found = logged(ctx, "--ro", folder, *PYTHON, script, timeout=60)
    ctx.ok(result, "done")
    written = of(found, kind="open", errno="EROFS")
    lost = sum(one["lines"] for one in of(found, kind="lost"))
    ctx.eq(len(written) + lost, 3000)
    ctx.true(lost > 0, "nothing was left out")


@case("DENY-threads", "calls of several threads and processes are all answered, and all counted")
def threads(ctx):
    script = UNSHARE + """
import threading
def many():
    for _ in range(500):
        assert unshare() == "EPERM"
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        some = [threading.Thread(target=many) for _ in range(4)]
        for one in some: one.start()
        for one in some: one.join()
        os._exit(0)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
"""
    result, found = logged(ctx, *PYTHON, script, timeout=60)
    ctx.ok(result, "[0, 0, 0]")
    ctx.eq(sum(one.get("repeated", 1) for one in of(found, call="unshare")), 6000)


@case("DENY-killed", "processes that are killed or interrupted while they wait for an answer leave the others alone")
def killed(ctx):
    script = UNSHARE + """
import signal, time
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while True:
            # A signal may come before the call is heard of: seccomp_unotify(2).
            assert unshare() in ("EPERM", "EINTR")
    time.sleep(0.01)
    os.kill(pid, 9)
    assert os.waitpid(pid, 0)[1] == 9
print(unshare())
"""
    result, found = logged(ctx, *PYTHON, script, timeout=60)
    ctx.ok(result, "EPERM")
    ctx.true(of(found, call="unshare"), found)


@case("DENY-descriptor", "a descriptor gets the lines, and the command does not see it")
def descriptor(ctx):
    read, write = os.pipe()
    script = "import os\ntry:\n os.fstat(7)\n print('open')\nexcept OSError:\n print('closed')\n" + UNSHARE + "print(unshare())"
    result = ctx.run(ctx.nsbox, "run", "--log-denials=7", *PYTHON, script, fds={7: write})
    os.close(write)
    ctx.ok(result, "closed\nEPERM")
    with os.fdopen(read) as file:
        lines = [json.loads(line) for line in file]
    ctx.true(of(lines, call="unshare"), lines)
    kept = ctx.run(ctx.nsbox, "run", "--keep-fd", "7", *PYTHON, script, fds={7: "x"})
    ctx.ok(kept, "open\nEPERM")
    ctx.fails(ctx.run(ctx.nsbox, "run", "--log-denials=77", "true"), 125, "log_denials: Bad file descriptor")
    ctx.fails(ctx.run(ctx.nsbox, "run", "--log-denials=", "true"), 125, "descriptor's number or a file")
    ctx.fails(ctx.run(ctx.nsbox, "run", "--log-denials=/nowhere/x", "true"), 125, "/nowhere/x.*No such file")


@case("DENY-stderr", "without a place the lines go to standard error, and without the option there are none")
def to_stderr(ctx):
    script = UNSHARE + "print(unshare())"
    result = ctx.ok(ctx.run(ctx.nsbox, "run", "--log-denials", *PYTHON, script), "EPERM")
    ctx.true(any(json.loads(line)["call"] == "unshare" for line in result.err.splitlines()), result)
    ctx.eq(ctx.ok(ctx.run(ctx.nsbox, "run", *PYTHON, script), "EPERM").err, "")


@case("DENY-reader", "a reader that is gone, or does not read, hangs and ends nobody")
def reader(ctx):
    script = UNSHARE + "[unshare() for _ in range(200)]\nimport os\nfor i in range(300):\n try: os.open(f'/usr/x{i}', 65)\n except OSError as e: last = e.errno\nprint(unshare(), last)"
    read, write = os.pipe()
    os.close(read)
    gone = ctx.run(ctx.nsbox, "run", "--log-denials=7", *PYTHON, script, fds={7: write})
    os.close(write)
    ctx.ok(gone, "EPERM 30")
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    full = ctx.run(ctx.nsbox, "run", "--log-denials=7", *PYTHON, script, fds={7: write})
    ctx.ok(full, "EPERM 30")
    os.close(read)
    os.close(write)


@case("DENY-timeout", "a limit of time ends a sandbox that is refused all the time")
def timeout(ctx):
    script = UNSHARE + "while True: unshare()"
    result, found = logged(ctx, "--timeout", "500ms", "--kill-after", "100ms", *PYTHON, script)
    ctx.fails(result, 124)
    ctx.true(of(found, call="unshare"), found)


@case("DENY-supervisor", "SIGKILL of nsbox ends the sandbox too, on both command lines")
def supervisor(ctx):
    for program, words in ((ctx.nsbox, ("run",)), (ctx.bwrap, SMALL), (ctx.bwrap, ("--unshare-pid", *SMALL))):
        script = UNSHARE + "print('ready', flush=True)\nwhile True: open('/dev/null').close()"
        proc = ctx.popen(program, *words[:1], *words[1:], f"--log-denials={ctx.dir}/log", *PYTHON, script)
        ctx.eq(proc.stdout.readline(), b"ready\n", program)
        proc.kill()
        proc.wait()
        # Its output's end is that of the last process.
        ctx.eq(proc.stdout.read(), b"")


@case("DENY-bwrap", "on the bwrap command line there is a log without a filter, and with filters of the caller's")
def bwrap(ctx):
    result, found = bwrap_logged(ctx, *SMALL, "sh", "-c", "echo x >/usr/new; true")
    ctx.ok(result)
    ctx.eq([(one["object"], one["errno"], one["option"]) for one in of(found, program="sh", errno="EROFS")],
           [("/usr/new", "EROFS", "--bind /usr /usr")])
    program = ctx.ok(ctx.run(ctx.nsbox, "seccomp", "compile", ctx.write("p", "deny ENOTTY unshare\notherwise allow\n"),
                             stdout=open(ctx.dir + "/program", "wb")))
    ctx.true(program is not None, "compiled")
    with open(ctx.dir + "/program", "rb") as file:
        code = file.read()
    script = UNSHARE + "print(unshare())"
    for option in ("--seccomp", "--add-seccomp-fd"):
        result, found = bwrap_logged(ctx, option, "9", *SMALL, *PYTHON, script, fds={9: code})
        ctx.ok(result, "ENOTTY")
        one, = of(found, kind="syscall", call="unshare")
        ctx.eq((one["errno"], one["option"]), ("ENOTTY", None))


@case("DENY-shapes", "a log works with pid 1 as the command, without a pid namespace, and with a terminal")
def shapes(ctx):
    script = UNSHARE + "print(unshare())"
    for words in (("--unshare-pid", "--as-pid-1"), ("--unshare-pid",), (), ("--die-with-parent",), ("--pty",),
                  ("--unshare-user", "--uid", "5", "--unshare-pid")):
        result, found = bwrap_logged(ctx, "--seccomp-policy", "default", "--cap-drop", "ALL", *words, *SMALL, *PYTHON, script)
        ctx.ok(result, "EPERM")
        ctx.true(of(found, call="unshare", errno="EPERM"), found)


@case("DENY-nested", "a sandbox in a sandbox cannot have a log where the outer one has; it can where that has none")
def nested(ctx):
    outer = ("--bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    inner = (ctx.bwrap, "--log-denials", "--bind", "/", "/", "true")
    ctx.ok(ctx.bw(*outer, *inner))
    ctx.fails(ctx.bw(f"--log-denials={ctx.dir}/log", *outer, *inner), 1, "Can't log denials.*only one")


@case("DENY-exec", "commands of nsbox exec are under the same filter, and are not logged")
def enter(ctx):
    runtime = ctx.mkdir("run", 0o700)
    env = dict(os.environ, XDG_RUNTIME_DIR=runtime)
    log = ctx.dir + "/log"
    proc = ctx.popen(ctx.nsbox, "run", f"--log-denials={log}", "--name", "logged", "sh", "-c", "echo ready; sleep 30",
                     env=env)
    ctx.eq(proc.stdout.readline(), b"ready\n")
    until_known(ctx, "logged", env=env)
    script = UNSHARE + "print(unshare())"
    ctx.ok(ctx.run(ctx.nsbox, "exec", "logged", *PYTHON, script, env=env), "EPERM")
    ctx.ok(ctx.run(ctx.nsbox, "kill", "logged", env=env))
    proc.wait(20)
    ctx.eq(of(records(log), call="unshare"), [])
