"""`nsbox run`: everyday use, with the host's programs and with those of a folder."""

import json
import os
import pty
import shutil
import socket
import subprocess
import threading

from casekit import until_known
from harness import case

HOME = "/home/sandbox"


def nsbox(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "run", *words, **kw)


def small_root(ctx, name="root"):
    """A root filesystem that lacks everything but /usr, which is empty, and /etc."""
    root = ctx.mkdir(name)
    for folder in ("usr", "etc"):
        ctx.mkdir(f"{name}/{folder}")
    return root


def host_programs():
    """What a root without programs of its own needs, shown on top of it."""
    words = ["--ro", "/usr"]
    for name in ("bin", "lib", "lib64"):
        if os.path.islink("/" + name):
            words += ["--symlink", os.readlink("/" + name), "/" + name]
    return words


# -- what is there, and what is not --------------------------------------------------------------

@case("RUN-defaults", "without an option: a home, a user, a host name, a clean environment, no network but "
      "loopback, no capability, no descriptor")
def defaults(ctx):
    read, write = os.pipe()
    it = ctx.ok(nsbox(ctx, "--", "python3", "-c", r'''
import json, os, pwd, grp, socket
status = dict(line.split(":\t", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ids": [os.getuid(), os.getgid()], "user": pwd.getpwuid(1000).pw_name,
    "group": grp.getgrgid(1000).gr_name, "home": pwd.getpwuid(1000).pw_dir, "cwd": os.getcwd(),
    "host": socket.gethostname(), "env": dict(os.environ),
    "caps": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "privileges": status["NoNewPrivs"].strip(),
    "fds": [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")],
    "links": sorted(name for name in os.listdir("/proc/sys/net/ipv4/conf") if name not in ("all", "default")),
    "pids": [name for name in os.listdir("/proc") if name.isdigit()],
}))
''', fds={7: write}, env=dict(os.environ, SECRET="of the caller", TERM="xterm")))
    os.close(read)
    os.close(write)
    said = json.loads(it.out)
    ctx.eq((said["ids"], said["user"], said["group"]), ([1000, 1000], "sandbox", "sandbox"), "who")
    ctx.eq((said["home"], said["cwd"], said["host"]), (HOME, HOME, "sandbox"), "where")
    ctx.eq(said["caps"], ["0" * 16] * 5, "capabilities")
    ctx.eq(said["privileges"], "1", "no_new_privs")
    ctx.eq(sorted(said["fds"]), ["0", "1", "2"], "descriptors")
    ctx.eq(said["links"], ["lo"], "network interfaces")
    ctx.true(len(said["pids"]) <= 3, "no process of the host is seen")
    ctx.eq(sorted(said["env"]), ["HOME", "LANG", "LC_CTYPE", "LOGNAME", "PATH", "PWD", "TERM", "USER"]
           if "LC_CTYPE" in said["env"] else
           ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "TERM", "USER"], "variables")
    ctx.eq((said["env"]["HOME"], said["env"]["USER"], said["env"]["TERM"]), (HOME, "sandbox", "xterm"),
           "their values")


@case("RUN-private", "nothing of the caller's is there, and nothing of the system can be written; the "
      "private places can")
def private(ctx):
    secret = ctx.write("secret", "of the host")
    script = f'''
for path in {secret} /root /home/{os.environ.get("USER", "x")} /run/systemd /run/docker.sock /var/log/dpkg.log \
    /etc/shadow /etc/ssh /var/lib/dpkg/status /sys/kernel /boot /opt/. /srv/. /mnt/. /media/.; do
    test -e "$path" && echo "seen $path"
done
for path in /x /usr/x /etc/x /bin/x /lib/x /var/x /home/x; do
    (echo x >"$path") 2>/dev/null && echo "written $path"
done
for path in /tmp/x /home/sandbox/x /run/x /dev/shm/x /var/tmp/y; do
    (echo x >"$path") 2>/dev/null || echo "refused $path"
done
echo done
'''
    ctx.ok(nsbox(ctx, "--shell", script), out="done")
    # The control: the same looks find what is there, where it is shown.
    ctx.ok(nsbox(ctx, "--ro", secret, "--", "cat", secret), out="of the host")
    ctx.true(not os.path.exists("/tmp/x") or os.stat("/tmp/x").st_size != 2, "/tmp is the sandbox's")


@case("RUN-nothing-left", "two runs share nothing: no file of one is there in the next")
def nothing_left(ctx):
    ctx.ok(nsbox(ctx, "--shell", "echo 1 >/tmp/mark; echo 1 >~/mark; echo 1 >/run/mark; ls ~ /tmp"),
           out="/home/sandbox:\nmark\n\n/tmp:\nmark")
    ctx.ok(nsbox(ctx, "--shell", "ls ~ /tmp /run"), out="/home/sandbox:\n\n/run:\n\n/tmp:")


@case("RUN-arguments", "arguments arrive as they are, through no shell; --shell takes one and hands on the rest")
def arguments(ctx):
    words = ["a  b;echo", "$HOME", "*", "", "new\nline", "--ro", "'", '"', "\\", ">file"]
    it = ctx.ok(nsbox(ctx, "--", "python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words))
    ctx.eq(it.out.strip(), ascii(words), "the words")
    it = nsbox(ctx, "--shell", 'echo "$1|$2"; exit 5', "a  b", "c")
    ctx.eq((it.rc, it.out), (5, "a  b|c\n"), "--shell")


@case("RUN-status", "exit statuses: the command's, 128 and a signal, 127 and 126, 125 for nsbox itself, 124 for "
      "the time limit")
def status(ctx):
    for wanted, words in ((0, ("true",)), (7, ("sh", "-c", "exit 7")), (137, ("sh", "-c", "kill -9 $$")),
                          (127, ("no-such-program",)), (126, ("/etc/passwd",)),
                          (125, ("--no-such-option", "true")), (125, ()),
                          (125, ("--rootfs", "/nonexistent/root", "true")),
                          (124, ("--timeout", "0.2", "sleep", "60"))):
        ctx.eq(nsbox(ctx, *words).rc, wanted, f"the status of {words}")


@case("RUN-pipe", "input, output and error are the caller's own: bytes pass unchanged, in quantity, and the "
      "end of input and of readers is seen")
def pipe(ctx):
    data = os.urandom(1 << 20) * 24
    path = ctx.write("data", data)
    with open(path, "rb") as source:
        proc = ctx.popen(ctx.nsbox, "run", "--", "cat", stdin=source)
        out, err = proc.communicate(timeout=60)
    ctx.eq((proc.returncode, out == data, err), (0, True, b""), "a copy")
    it = ctx.ok(nsbox(ctx, "--", "sh", "-c", "cat; echo error >&2", input="line\n"))
    ctx.eq((it.out, it.err), ("line\n", "error\n"), "both outputs")
    # Whoever reads no further ends the writer.
    it = ctx.run("sh", "-c", '"$0" run -- yes | head -n 2', ctx.nsbox)
    ctx.eq((it.rc, it.out), (0, "y\ny\n"), "a reader that leaves")
    # What nobody reads does not keep the limit from ending it.
    proc = ctx.popen(ctx.nsbox, "run", "--timeout", "0.5", "--", "yes")
    ctx.eq(proc.wait(30), 124, "output that nobody reads")


# -- what can be shown ---------------------------------------------------------------------------

@case("RUN-show", "--ro and --rw show files and folders, at their own place or another; what is written by --rw "
      "belongs to the caller")
def show(ctx):
    project = ctx.mkdir("project")
    ctx.write("project/file", "text")
    ctx.mkdir("project/sub")
    ctx.fails(nsbox(ctx, "--ro", project, "--", "touch", f"{project}/new"), err="Read-only")
    ctx.ok(nsbox(ctx, "--rw", project, "--", "touch", f"{project}/new"))
    status = os.stat(f"{project}/new")
    ctx.eq((status.st_uid, status.st_gid), (ctx.uid, ctx.gid), "the owner of what was written")
    ctx.ok(nsbox(ctx, "--ro", f"{project}:/data", "--", "cat", "/data/file"), out="text")
    ctx.ok(nsbox(ctx, "--ro", f"{project}/file:/one", "--", "cat", "/one"), out="text")
    # A read-only folder in a writable one, in that order.
    ctx.fails(nsbox(ctx, "--rw", project, "--ro", f"{project}/sub", "--", "touch", f"{project}/sub/x"),
              err="Read-only")
    ctx.fails(nsbox(ctx, "--ro", f"{ctx.dir}/missing", "--", "true"), rc=125, err="missing.*No such file")


@case("RUN-here", "--rw . shows the working directory and starts the command there, also from below it")
def here(ctx):
    project = ctx.mkdir("a project")
    below = ctx.mkdir("a project/below")
    for cwd in (project, below):
        ctx.ok(nsbox(ctx, "--rw", project, "--", "pwd", cwd=cwd), out=cwd)
    ctx.ok(nsbox(ctx, "--rw", ".", "--", "sh", "-c", "pwd; echo x >made", cwd=project), out=project)
    ctx.true(os.path.exists(f"{project}/made"), "it was written on the host")
    ctx.ok(nsbox(ctx, "--rw", ".", "--cwd", "/tmp", "--", "pwd", cwd=project), out="/tmp")
    ctx.ok(nsbox(ctx, "--", "pwd", cwd=project), out=HOME)
    odd = ctx.mkdir("with:colon")
    ctx.ok(nsbox(ctx, "--rw", ".", "--", "pwd", cwd=odd), out=odd)


@case("RUN-work-dir", "--work-dir keeps the home; without it that is gone at the end")
def work_dir(ctx):
    folder = ctx.mkdir("kept")
    ctx.ok(nsbox(ctx, "--work-dir", folder, "--shell", "echo kept >file; pwd"), out=HOME)
    ctx.ok(nsbox(ctx, "--work-dir", folder, "--", "cat", "file"), out="kept")
    ctx.eq(os.stat(f"{folder}/file").st_uid, ctx.uid, "the owner")
    ctx.fails(nsbox(ctx, "--", "cat", "file"))
    ctx.fails(nsbox(ctx, "--work-dir", f"{folder}/file", "--", "true"), rc=125, err="no folder")


@case("RUN-env", "--env by name takes the caller's value, which no argument list shows; --env-file takes lines")
def environment(ctx):
    env = dict(os.environ, TOKEN="of the caller")
    ctx.ok(nsbox(ctx, "--env", "TOKEN", "--env", "A=b=c", "--shell", 'echo "$TOKEN|$A"', env=env),
           out="of the caller|b=c")
    ctx.ok(nsbox(ctx, "--shell", 'echo "[$TOKEN]"', env=env), out="[]")
    proc = ctx.popen(ctx.nsbox, "run", "--env", "TOKEN", "--", "sh", "-c", "echo up; read line", env=env,
                     stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline(), b"up\n", "it runs")
    seen = b""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                seen += file.read() if name.isdigit() else b""
        except OSError:
            continue
    proc.communicate(b"\n", timeout=20)
    ctx.true(b"of the caller" not in seen and b"TOKEN" in seen, "the value is in no argument list")
    path = ctx.write("variables", "# a comment\n\nONE=1\n  TWO=a b \nTOKEN\r\n")
    ctx.ok(nsbox(ctx, "--env-file", path, "--shell", 'echo "$ONE|$TWO|$TOKEN"', env=env),
           out="1|a b |of the caller")
    bad = ctx.write("bad", "ONE=1\n=2\n")
    ctx.fails(nsbox(ctx, "--env-file", bad, "--", "true"), rc=125, err="bad, line 2")


@case("RUN-script", "--script runs a file or its input by its first line, its name or --interpreter, with arguments")
def script(ctx):
    python = ctx.write("job.py", "import sys; print(sys.argv[1:], __file__)\n")
    ctx.ok(nsbox(ctx, "--script", python, "--", "a b", "c"), out="['a b', 'c'] /run/nsbox/job.py")
    shell = ctx.write("job", "#!/bin/sh -e\necho \"$1\"; false; echo not here\n")
    it = nsbox(ctx, "--script", shell, "x y")
    ctx.eq((it.rc, it.out), (1, "x y\n"), "a first line")
    ctx.ok(nsbox(ctx, "--script", "-", "--interpreter", "python3 -B", "z", input="import sys; print(sys.argv[1:])"),
           out="['z']")
    unknown = ctx.write("job.unknown", "x\n")
    ctx.fails(nsbox(ctx, "--script", unknown), rc=125, err="--interpreter")
    ctx.fails(nsbox(ctx, "--script", f"{ctx.dir}/none.py"), rc=125, err="none.py")


@case("RUN-keep-fd", "of the descriptors above 2 only those of --keep-fd are there, for the command and for init")
def keep_fd(ctx):
    with open(ctx.write("open", "through 9"), "rb") as one, open(ctx.write("other", "x"), "rb") as other:
        fds = {8: other.fileno(), 9: one.fileno()}
        look = "cat <&9; for fd in 8 9; do test ! -e /proc/self/fd/$fd || echo \" has $fd\"; done"
        ctx.ok(nsbox(ctx, "--keep-fd", "9", "--shell", look, fds=fds), out="through 9 has 9")
        it = nsbox(ctx, "--", "sh", "-c", "cat <&9", fds={9: one.fileno()})
        ctx.true(it.rc != 0 and "through" not in it.out, "without the option it is closed")
    ctx.fails(nsbox(ctx, "--keep-fd", "77", "--", "true"), rc=125, err="not open")
    # Nor has init one, or nsbox: the pipe ends while they live.
    read, write = os.pipe()
    proc = ctx.popen(ctx.nsbox, "run", "--", "sh", "-c", "echo up; read line", fds={9: write}, stdin=subprocess.PIPE)
    os.close(write)
    ctx.eq(proc.stdout.readline(), b"up\n", "it runs")
    ctx.eq(os.read(read, 1), b"", "nobody holds the pipe")
    os.close(read)
    proc.communicate(b"\n", timeout=20)


@case("RUN-ids", "--uid and --gid give other ids, with users of that name; the host's user namespace is never the "
      "sandbox's")
def ids(ctx):
    ctx.ok(nsbox(ctx, "--uid", "5", "--gid", "7", "--", "sh", "-c", "id -u; id -g; id -un; id -gn"),
           out="5\n7\nsandbox\nsandbox")
    it = ctx.ok(nsbox(ctx, "--uid", "0", "--gid", "0", "--", "sh", "-c", "id -un; readlink /proc/self/ns/user; "
                      "grep CapEff /proc/self/status"))
    name, namespace, caps = it.out.split("\n")[:3]
    ctx.eq((name, caps.split()[1]), ("root", "0" * 16), "uid 0 without capabilities")
    ctx.true(namespace != os.readlink("/proc/self/ns/user"), "a user namespace of its own")


@case("RUN-root", "--root is uid 0 with capabilities over the sandbox's own ids, and none over the host")
def as_root(ctx):
    it = ctx.ok(nsbox(ctx, "--root", "--", "sh", "-c", "id -u; grep CapEff /proc/self/status; "
                      "chown 0:0 /tmp; mount -t tmpfs x /tmp 2>&1 || echo no mount"))
    lines = it.out.split("\n")
    ctx.eq(lines[0], "0", "the uid")
    caps = int(lines[1].split()[1], 16)
    ctx.true(caps & 1 and not caps & (1 << 21), "CAP_CHOWN, and not CAP_SYS_ADMIN")
    ctx.true("no mount" in it.out, "it mounts nothing")
    # The host's kernel settings are open for reading alone.
    ctx.fails(nsbox(ctx, "--root", "--", "python3", "-c", "open('/proc/sys/kernel/core_pattern', 'r+')"))


@case("RUN-life", "everything ends with the command, with nsbox and with a signal to it")
def life(ctx):
    proc = ctx.popen(ctx.nsbox, "run", "--", "sh", "-c", "sleep 600 & exit 0", stdout=subprocess.PIPE)
    proc.communicate(timeout=30)
    ctx.eq(proc.returncode, 0, "a background process does not hold it up")
    proc = ctx.popen(ctx.nsbox, "run", "--", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done")
    ctx.eq(proc.stdout.readline(), b"up\n", "it runs")
    proc.terminate()
    ctx.eq(proc.wait(30), 9, "a signal is handed on")
    proc = ctx.popen(ctx.nsbox, "run", "--", "sh", "-c", "echo up; exec sleep 600")
    ctx.eq(proc.stdout.readline(), b"up\n", "it runs")
    proc.kill()
    # The end of the pipe comes when the last process of the sandbox is gone.
    ctx.eq(proc.stdout.read(), b"", "SIGKILL of nsbox ends the sandbox")


@case("RUN-terminal", "from a terminal the command has one of its own; --no-pty and a pipe give none")
def terminal(ctx):
    def through(*words):
        master, slave = pty.openpty()
        proc = ctx.popen(ctx.nsbox, "run", *words, "--", "sh", "-c", "tty; ps -o tty= -p $$", stdin=slave,
                         stdout=slave, stderr=slave, session=True)
        os.close(slave)
        text = b""
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                break
            if not data:
                break
            text += data
        os.close(master)
        ctx.eq(proc.wait(30), 0, "the status")
        return text.decode()

    ctx.true("/dev/pts/0" in through() or "/dev/console" in through(), "a terminal of the sandbox's own")
    ctx.true("/dev/pts/0" not in through("--no-pty"), "--no-pty")
    ctx.true("not a tty" in nsbox(ctx, "--", "tty").out, "no terminal through a pipe")
    ctx.ok(nsbox(ctx, "--pty", "--", "sh", "-c", "test -t 1 && echo yes"), out="yes")


@case("RUN-net", "no network but loopback unless asked; --net host is the caller's, with its names; --net user has "
      "names of its own")
def network(ctx):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def answer():
        peer, _ = server.accept()
        peer.sendall(b"host")
        peer.close()
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    fetch = (f"import socket; s = socket.create_connection(('127.0.0.1', {port}), 5); print(s.recv(9))")
    ctx.fails(nsbox(ctx, "--", "python3", "-c", fetch), err="refused")
    ctx.ok(nsbox(ctx, "--net", "host", "--", "python3", "-c", fetch), out="b'host'")
    thread.join(20)
    server.close()
    ctx.fails(nsbox(ctx, "--", "cat", "/etc/resolv.conf"), err="No such file")
    with open("/etc/resolv.conf", encoding="utf-8") as file:
        ctx.eq(ctx.ok(nsbox(ctx, "--net", "host", "--", "cat", "/etc/resolv.conf")).out, file.read(), "its names")
    it = ctx.ok(nsbox(ctx, "--net", "user", "--", "cat", "/etc/resolv.conf", "/etc/hosts"))
    ctx.true("nameserver 10.0.2.3" in it.out and "127.0.0.1 localhost sandbox" in it.out, "names of its own")
    # Inside, loopback works.
    ctx.ok(nsbox(ctx, "--", "python3", "-c", "import socket; s = socket.create_server(('127.0.0.1', 0)); "
                 "c = socket.create_connection(s.getsockname()); print('up')"), out="up")
    ctx.ok(nsbox(ctx, "--", "python3", "-c", "import socket; print(socket.gethostbyname('localhost'))"),
           out="127.0.0.1")


@case("RUN-dry", "--dry-run prints what would be done and does nothing; --verbose says what is done")
def dry(ctx):
    folder = ctx.mkdir("folder")
    it = ctx.ok(nsbox(ctx, "--dry-run", "--rw", folder, "--env", "TOKEN=secret", "--", "touch", f"{folder}/made"))
    ctx.true(f"show       {folder}, writable\n" in it.out and "TOKEN" in it.out and "secret" not in it.out,
             f"what it says: {it.out}")
    ctx.true(not os.path.exists(f"{folder}/made"), "it did nothing")
    root = small_root(ctx)
    ctx.ok(nsbox(ctx, "--dry-run", "--rootfs", root, f"--overlay={ctx.dir}/changes", "--", "true"))
    ctx.true(not os.path.exists(f"{ctx.dir}/changes"), "it made nothing")
    ctx.fails(nsbox(ctx, "--dry-run", "--hostname", "x" * 70, "--as-pid-1", "--lock-file", "/tmp", "--", "true"),
              err="lock-file")
    it = ctx.ok(nsbox(ctx, "--verbose", "--", "true"))
    ctx.true("network    loopback only" in it.err and it.out == "", "--verbose")


@case("RUN-name", "--name lets nsbox exec, ps and kill find it")
def name(ctx):
    proc = ctx.popen(ctx.nsbox, "run", "--name", "everyday", "--", "sh", "-c", "echo up; exec sleep 600")
    ctx.eq(proc.stdout.readline(), b"up\n", "it runs")
    until_known(ctx, "everyday")
    it = ctx.ok(ctx.run(ctx.nsbox, "exec", "everyday", "--", "sh", "-c", "id -u; hostname; grep CapEff /proc/self/status"))
    ctx.eq(it.out.split(), ["1000", "sandbox", "CapEff:", "0" * 16], "who enters")
    ctx.ok(ctx.run(ctx.nsbox, "kill", "everyday"))
    ctx.true(proc.wait(30) != 0, "it was ended")


@case("RUN-bwrap-options", "mount options of the bwrap command line are taken in their order; those that weaken walls "
      "are refused with what to say instead")
def bwrap_options(ctx):
    ctx.ok(nsbox(ctx, "--tmpfs", "/data", "--dir", "/data/sub", "--symlink", "sub", "/data/link", "--", "sh", "-c",
                 "cd /data/link && pwd -P"), out="/data/sub")
    ctx.ok(nsbox(ctx, "--bind-data", "8", "/text", "--", "cat", "/text", fds={8: "given"}), out="given")
    for word, hint in (("--share-net", "--net host"), ("--unshare-user", "namespace"), ("--userns", "namespace")):
        ctx.fails(nsbox(ctx, word, "--", "true"), rc=125, err=hint)
    it = ctx.ok(nsbox(ctx, "--cap-add", "net_bind_service", "--", "grep", "CapEff", "/proc/self/status"))
    ctx.eq(it.out.split()[1], f"{1 << 10:016x}", "a capability that was asked for")


# -- with a root filesystem ----------------------------------------------------------------------

@case("RUN-rootfs", "a folder as root: read-only and untouched, with mount points, users and names that it lacks")
def rootfs(ctx):
    root = small_root(ctx)
    ctx.write("root/etc/marker", "of the root")
    before = sorted(os.path.join(at, name) for at, folders, files in os.walk(root) for name in folders + files)
    it = ctx.ok(nsbox(ctx, "--rootfs", root, *host_programs(), "--", "sh", "-c",
                      "cat /etc/marker; echo; id -un; (echo x >/etc/new) 2>/dev/null || echo read-only; "
                      "echo x >/tmp/x; cat /etc/hosts; pwd"))
    ctx.true(it.out.startswith("of the root\nsandbox\nread-only\n127.0.0.1 localhost"), it.out)
    ctx.true(it.out.endswith(HOME + "\n"), it.out)
    ctx.ok(nsbox(ctx, "--net", "user", "--rootfs", root, *host_programs(), "--", "grep", "-c", "nameserver",
                 "/etc/resolv.conf"), out="1")
    after = sorted(os.path.join(at, name) for at, folders, files in os.walk(root) for name in folders + files)
    ctx.eq(after, before, "the folder")
    ctx.fails(nsbox(ctx, "--rootfs", f"{root}/etc/marker/x", "--", "true"), rc=125, err="root filesystem")


@case("RUN-rootfs-links", "links of a root lead nowhere on the host: not for its users, not for a mount point")
def rootfs_links(ctx):
    secret = ctx.write("secret", "intruder:x:1000:1000::/:/bin/sh\n")
    root = small_root(ctx)
    victim = ctx.mkdir("victim")
    os.symlink(secret, f"{root}/etc/passwd")
    os.symlink(victim, f"{root}/home")
    os.symlink(victim, f"{root}/var")
    os.symlink(f"{victim}/resolv.conf", f"{root}/etc/resolv.conf")
    it = nsbox(ctx, "--rootfs", root, *host_programs(), "--net", "user", "--", "cat", "/etc/passwd")
    ctx.true("intruder" not in it.out, "the host's file was not read")
    ctx.eq(os.listdir(victim), [], "nothing was made on the host")
    # The control: with the same file in the tree its user is taken.
    os.unlink(f"{root}/etc/passwd")
    shutil.copy(secret, f"{root}/etc/passwd")
    for name in ("home", "var", "etc/resolv.conf"):
        os.unlink(f"{root}/{name}")
    ctx.ok(nsbox(ctx, "--rootfs", root, *host_programs(), "--", "id", "-un"), out="intruder")


@case("RUN-rootfs-foreign", "a folder whose files belong to somebody else, with an /etc in it, can be a root too", only="user")
def rootfs_foreign(ctx):
    root = "/usr/local"  # Which the system has, with folders that are root's.
    ctx.true(os.path.isdir(f"{root}/etc") and os.stat(f"{root}/etc").st_uid == 0, "the folder is root's")
    programs = ("--ro", "/usr", "--ro", "/usr/lib:/lib", "--ro", "/usr/lib64:/lib64")
    for way in ((), ("--overlay",), (f"--overlay={ctx.dir}/changes",)):
        it = ctx.ok(nsbox(ctx, "--rootfs", root, *way, *programs, "--", "/usr/bin/cat", "/etc/passwd", "/etc/hosts"))
        ctx.true("sandbox:x:1000:" in it.out and "127.0.0.1 localhost" in it.out, f"{way}: {it.out}")


@case("RUN-overlay-closed", "nobody else can enter the folder of an overlay that is kept: set-user-id files stay harmless")
def overlay_closed(ctx):
    root = small_root(ctx)
    words = ("--rootfs", root, f"--overlay={ctx.dir}/changes", *host_programs())
    ctx.ok(nsbox(ctx, *words, "--", "sh", "-c", "cp /usr/bin/env /env && chmod 6755 /env"))
    ctx.eq(ctx.mode("changes"), 0o700, "the folder's mode")
    ctx.true(os.path.exists(f"{ctx.dir}/changes/upper/env"), "the file is there")
    if ctx.root:
        def nobody():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        looks = ("sh", "-c", 'test -x "$0" || { echo out of reach; exit 1; }', f"{ctx.dir}/changes/upper/env")
        ctx.eq(ctx.run(*looks, pre=nobody).out, "out of reach\n", "what another user finds")
        os.chmod(f"{ctx.dir}/changes", 0o755)  # The control: that mode is what keeps others out.
        ctx.ok(ctx.run(*looks, pre=nobody), out="")
    os.chmod(f"{ctx.dir}/changes", 0o755)
    ctx.fails(nsbox(ctx, *words, "--", "true"), rc=125, err="chmod 700")
    os.chmod(f"{ctx.dir}/changes", 0o700)
    ctx.ok(nsbox(ctx, *words, "--", "true"))
    # A folder with something in it is never closed, but refused.
    other = ctx.mkdir("other", 0o755)
    ctx.write("other/file")
    ctx.fails(nsbox(ctx, "--rootfs", root, f"--overlay={other}", *host_programs(), "--", "true"), rc=125, err="chmod 700")
    ctx.eq((ctx.mode("other"), os.listdir(other)), (0o755, ["file"]), "the folder")
    # What else could lie there.
    os.unlink(f"{ctx.dir}/changes/lower")
    os.mkfifo(f"{ctx.dir}/changes/lower")
    ctx.fails(nsbox(ctx, *words, "--", "true"), rc=125, err="no plain file")
    os.unlink(f"{ctx.dir}/changes/lower")
    shutil.rmtree(f"{ctx.dir}/changes/upper")
    os.symlink("/etc", f"{ctx.dir}/changes/upper")
    ctx.fails(nsbox(ctx, *words, "--", "true"), rc=125, err="no folder")


@case("RUN-rootfs-home-link", "a link of the root into the home writes nothing into the caller's folder that is shown there")
def rootfs_home_link(ctx):
    root = small_root(ctx)
    work = ctx.mkdir("work")
    ctx.write("work/.bashrc", "mine")
    for name in ("passwd", "group", "hosts"):
        os.symlink("/home/sandbox/.bashrc", f"{root}/etc/{name}")
    nsbox(ctx, "--rootfs", root, "--work-dir", work, *host_programs(), "--", "true")
    with open(f"{work}/.bashrc", encoding="ascii") as file:
        ctx.eq(file.read(), "mine", "the caller's file")


@case("RUN-messages", "words of an image or of a command line cannot write control characters to the terminal")
def messages(ctx):
    it = nsbox(ctx, "--cwd", "/no\x1b[31m\nwhere", "--", "true")
    ctx.true(it.rc == 125 and "\x1b" not in it.err and it.err.count("\n") == 1 and "\\033" in it.err, repr(it.err))
    ctx.fails(nsbox(ctx, "--ro", "/usr:/etc/../..", "--", "true"), rc=125, err=r'"\.\."')


@case("RUN-overlay", "--overlay lets the command change everything, and it is lost; --overlay=DIR keeps it, for this root "
      "alone")
def overlay(ctx):
    root = small_root(ctx)
    ctx.write("root/etc/old", "old")
    ctx.write("root/etc/gone", "x")
    change = "echo new >/etc/new; echo changed >/etc/old; rm /etc/gone; mkdir /opt; ls /etc | grep -c gone"
    look = "cat /etc/old; ls /etc /opt 2>&1 | tr '\\n' ' '"
    programs = host_programs()
    nsbox(ctx, "--rootfs", root, "--overlay", *programs, "--", "sh", "-c", change)
    it = ctx.ok(nsbox(ctx, "--rootfs", root, *programs, "--shell", "cat /etc/old; ls /etc"))
    ctx.true(it.out.startswith("old") and "gone" in it.out and "new" not in it.out, "nothing was kept")
    kept = f"--overlay={ctx.dir}/changes"
    nsbox(ctx, "--rootfs", root, kept, *programs, "--", "sh", "-c", change)
    it = nsbox(ctx, "--rootfs", root, kept, *programs, "--", "sh", "-c", look)
    ctx.true(it.out.startswith("changed\n") and " new " in it.out and "gone" not in it.out, f"kept: {it}")
    ctx.eq(sorted(os.listdir(f"{root}/etc")), ["gone", "old"], "the root itself")
    other = small_root(ctx, "other")
    ctx.fails(nsbox(ctx, "--rootfs", other, kept, *programs, "--", "true"), rc=125, err="holds changes of")
    ctx.fails(nsbox(ctx, "--overlay", "--", "true"), rc=125, err="--rootfs")


# -- real programs -------------------------------------------------------------------------------

@case("RUN-programs", "python3 with threads and processes, git, gcc and node run with the defaults", timeout=120)
def programs(ctx):
    ctx.ok(nsbox(ctx, "--", "python3", "-c", "import multiprocessing as m, ssl, sqlite3, tempfile\n"
                 "with m.get_context('fork').Pool(2) as pool: print(sum(pool.map(abs, range(-5, 5))))\n"
                 "ssl.create_default_context(); tempfile.TemporaryFile()", timeout=60), out="25")
    ctx.ok(nsbox(ctx, "--shell", "set -e; git init -q r; cd r; git config user.email a@b; git config user.name n; "
                 "echo x >f; git add f; git commit -qm m; git log --format=%s", timeout=60), out="m")
    ctx.ok(nsbox(ctx, "--shell", "echo 'int main(void) { return 7; }' >a.c; gcc -o a a.c && ./a; echo $?", timeout=60),
           out="7")
    ctx.ok(nsbox(ctx, "--", "node", "-e", "console.log([1,2].map(x => x * 2).join())", timeout=60), out="2,4")
