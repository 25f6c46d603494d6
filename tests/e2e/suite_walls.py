"""What stands around a command of `nsbox run` beside namespaces and filters: limits of getrlimit(2), umask, keys, covers
of /proc."""

import json
import os

from casekit import until_known
from harness import case
from ptykit import Terminal


def run(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "run", *words, **kw)


def limits_of(text):
    """/proc/self/limits: {name: (soft, hard)}."""
    rows = [row for row in text.splitlines() if row.startswith("Max ")]
    return {row[:26].strip(): tuple(row[26:].split()[:2]) for row in rows}


@case("WALLS-core", "a dying command's memory goes to no file and to no program of the host's, unless a limit says so")
def core(ctx):
    words = ["--", "cat", "/proc/self/limits"]
    ctx.eq(limits_of(ctx.ok(run(ctx, *words)).out)["Max core file size"], ("1", "1"), "the limit")
    ctx.eq(limits_of(ctx.ok(run(ctx, "--rlimit", "core=0:4K", *words)).out)["Max core file size"], ("0", "4096"),
           "another limit")
    crash = ["--rw", ctx.mkdir("here", 0o777), "--cwd", f"{ctx.dir}/here", "--", "sh", "-c", "kill -SEGV $$"]
    ctx.eq(run(ctx, *crash).rc, 139, "the command dies")
    ctx.eq(os.listdir(f"{ctx.dir}/here"), [], "nothing is left")
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
        pattern = file.read().strip()
    # Where the kernel writes files beside the command, they are there with another limit.
    if not pattern.startswith(("|", "/", "@")):
        ctx.eq(run(ctx, "--rlimit", "core=64M", *crash).rc, 139, "the command dies")
        ctx.eq(len(os.listdir(f"{ctx.dir}/here")), 1, "a core file")


@case("WALLS-root", "root without a user namespace is told at a terminal what the command could do to the host, and never "
      "under the name bwrap", only="root")
def told(ctx):
    note = "root on the host itself, with "
    line = ["--ro-bind", "/", "/", "--", "echo", "done"]

    def shown(*words, name=ctx.nsbox):
        term = Terminal(ctx, name, *words)
        term.expect("done")
        term.proc.wait(20)
        return str(term)

    ctx.true(note + "all capabilities (hint" in shown(*line), "it is said")
    ctx.true(note + "CAP_SYS_TIME (hint" in shown("--cap-drop", "ALL", "--cap-add", "CAP_SYS_TIME", *line), "what is left")
    for words in (["--cap-drop", "ALL"], ["--unshare-user"]):
        ctx.true(note not in shown(*words, *line), f"{words}: nothing to say")
    os.symlink(ctx.nsbox, f"{ctx.dir}/bwrap")
    ctx.true(note not in shown(*line, name=f"{ctx.dir}/bwrap"), "bwrap says nothing")
    ctx.eq(ctx.ok(ctx.run(ctx.nsbox, *line)).err, "", "nor is it for a pipe")


@case("WALLS-rlimit", "--rlimit sets soft and hard limits, for all processes, in both command lines; what is wrong with "
      "one is said")
def rlimit(ctx):
    words = ["sh", "-c", "cat /proc/self/limits | cat"]
    got = limits_of(ctx.ok(run(ctx, "--rlimit", "nofile=64:128", "--rlimit=as=4G", "--rlimit", "RLIMIT_FSIZE=10K",
                               "--", *words)).out)
    ctx.eq(got["Max open files"], ("64", "128"), "nofile")
    ctx.eq(got["Max address space"], (str(4 << 30), str(4 << 30)), "as")
    ctx.eq(got["Max file size"], ("10240", "10240"), "fsize")
    got = limits_of(ctx.ok(ctx.bw("--ro-bind", "/", "/", "--proc", "/proc", "--rlimit", "stack=1M:unlimited",
                                  "--rlimit", "nofile=32", *words)).out)
    ctx.eq((got["Max stack size"][0], got["Max open files"]), (str(1 << 20), ("32", "32")), "under the name bwrap")
    # They are enforced: a file cannot grow beyond, and can without the limit.
    write = ["--", "sh", "-c", "head -c 20000 /dev/zero >f && wc -c <f"]
    ctx.true(run(ctx, "--rlimit", "fsize=10K", *write).rc != 0, "a file cannot grow")
    ctx.ok(run(ctx, *write), "20000")
    for value, reason in (("files=3", "no limit files"), ("nofile", "is a number"), ("nofile=3x", "is a number"),
                          ("nofile=9:3", "soft limit is above"), ("as=99999999999999999999", "is a number"),
                          ("as=99999999999G", "is a number"), ("nofile=", "is a number")):
        ctx.fails(run(ctx, "--rlimit", value, "--", "true"), 125, reason)
    if os.getuid() != 0:
        ctx.fails(run(ctx, "--rlimit", "nofile=unlimited", "--", "true"), 125, "limit nofile")


@case("WALLS-umask", "the command's umask is the usual one, whatever the caller's is")
def umask(ctx):
    shell = ["sh", "-c", 'umask 077; exec "$0" run -- sh -c umask', ctx.nsbox]
    ctx.ok(ctx.run(*shell), "0022")
    ctx.ok(ctx.run("sh", "-c", 'umask 077; exec "$0" --ro-bind / / sh -c umask', ctx.bwrap), "0077")


@case("WALLS-exec", "a further command has the umask, the limits and a keyring that is not its caller's")
def further(ctx):
    name = f"walls-{os.getpid()}"
    keeper = ctx.popen(ctx.nsbox, "run", "--name", name, "--seccomp-policy", "none", "--", "sh", "-c", "echo up; sleep 60",
                       stdout=-1)
    ctx.eq(keeper.stdout.readline().strip(), b"up", "the sandbox is up")
    until_known(ctx, name)
    it = ctx.ok(ctx.run("sh", "-c", 'umask 077; exec "$0" "$@"', ctx.nsbox, "exec", name, "--", "sh", "-c",
                        "umask; cat /proc/self/limits"))
    ctx.eq(it.out.split()[0], "0022", "the umask")
    ctx.eq(limits_of(it.out)["Max core file size"], ("1", "1"), "the limit")
    if ctx.run("python3", "-c", WITH_KEY, "/bin/true").rc == 0:
        find = ["exec", name, "--", "python3", "-c", FIND_KEY]
        ctx.ok(ctx.run("python3", "-c", WITH_KEY, ctx.nsbox, *find), "126")
        ctx.ok(ctx.run("python3", "-c", WITH_KEY, "/usr/bin/python3", "-c", FIND_KEY), "found")
    ctx.ok(ctx.run(ctx.nsbox, "kill", name))
    keeper.wait(20)


# A session keyring with a key in it, around a command.
WITH_KEY = r'''
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
if libc.syscall(KEYCTL, 1, None) < 0 or libc.syscall(ADD_KEY, b"user", b"nsbox-secret", b"text", 4, -3) < 0:
    sys.exit("no keys here")
os.execv(sys.argv[1], sys.argv[1:])
'''
FIND_KEY = r'''
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
KEYCTL = 250 if os.uname().machine == "x86_64" else 219
found = libc.syscall(KEYCTL, 10, -3, b"user", b"nsbox-secret", 0)
print("found" if found > 0 else ctypes.get_errno())
'''


@case("WALLS-keys", "keys of the caller's session are out of reach, by the filter and by a keyring of the sandbox's own")
def keys(ctx):
    def with_key(*words):
        return ctx.run("python3", "-c", WITH_KEY, *words)
    if with_key("/bin/true").rc != 0:
        ctx.skip("the kernel has no keys")
    find = ["python3", "-c", FIND_KEY]
    ctx.ok(with_key(ctx.bwrap, "--ro-bind", "/", "/", *find), "found")
    ctx.ok(with_key(ctx.nsbox, "run", "--seccomp-policy", "none", "--", *find), "126")
    ctx.ok(with_key(ctx.nsbox, "run", "--", *find), "38")


@case("WALLS-proc", "what in /proc changes or tells of the host's kernel is covered, for every caller; not where sandboxes "
      "are to nest, for an ordinary one")
def proc(ctx):
    look = ["--", "python3", "-c", r'''
import json, os
def opens(path, flags):
    try:
        os.close(os.open(path, flags))
        return True
    except OSError as error:
        return error.errno
print(json.dumps({
    "mounts": [row.split()[4] for row in open("/proc/self/mountinfo") if row.split()[4].startswith("/proc/")],
    "keys": open("/proc/keys").read() if os.path.exists("/proc/keys") else "",
    "core_pattern": opens("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "own": opens("/proc/self/oom_score_adj", os.O_WRONLY),
}))''']
    said = json.loads(ctx.ok(run(ctx, *look)).out)
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/kcore", "/proc/keys", "/proc/timer_list"):
        ctx.true(path in said["mounts"] or not os.path.exists(path), f"{path} is covered: {said['mounts']}")
    ctx.eq((said["keys"], said["own"]), ("", True), "no keys; its own files work")
    ctx.true(said["core_pattern"] is not True, "the host's settings cannot be opened for writing")
    open_one = json.loads(ctx.ok(run(ctx, "--allow-userns", *look)).out)
    ctx.eq(bool(open_one["mounts"]), os.getuid() == 0, "covers with --allow-userns")
    ctx.true(open_one["core_pattern"] is not True, "nor there")


@case("WALLS-proc-fallback", "where the kernel refuses a new procfs the start fails, or does without by --proc-fallback, "
      "and says so", only="root")
def proc_fallback(ctx):
    # Below the covers of root's /proc there is no new one.
    outer = ["--allow-userns", "--ro", os.path.dirname(ctx.nsbox), "--", ctx.nsbox]
    look = ["--", "sh", "-c", "test -e /proc/self && echo there; ls /proc | grep -c '^[0-9]'; echo $$"]
    ctx.fails(run(ctx, *outer, "run", *look), 125, "Can't mount proc.*--proc-fallback empty")
    empty = ctx.ok(run(ctx, *outer, "run", "--proc-fallback", "empty", *look))
    ctx.eq(empty.out.split()[0], "0", "no procfs")
    ctx.true("refuses a new procfs here; /proc is empty" in empty.err, f"what was done is said: {empty.err}")
    bound = ctx.ok(run(ctx, *outer, "run", "--proc-fallback", "bind", *look))
    ctx.eq(bound.out.split()[0], "there", "a procfs")
    ctx.true("/proc is the caller's" in bound.err, f"what was done is said: {bound.err}")
    # Where a new one can be had, the option changes nothing.
    plain = ctx.ok(run(ctx, "--proc-fallback", "bind", *look))
    ctx.eq((plain.out.split()[0], plain.err), ("there", ""), "a new procfs")
    ctx.fails(run(ctx, "--proc-fallback", "none", "--", "true"), 125, "takes fail, empty or bind")


@case("WALLS-privilege", "no capability in any set and no way to get one, as root too and with a network; a program with "
      "set-user-id gives none")
def privilege(ctx):
    look = ["--", "python3", "-c", "import json\nprint(json.dumps({row.split(':')[0]: row.split()[1] for row in "
            "open('/proc/self/status') if row.startswith(('Cap', 'NoNewPrivs'))}))"]
    for words in ([], ["--net", "user"], ["--net", "host"], ["--root", "--cap-drop", "ALL"]):
        said = json.loads(ctx.ok(run(ctx, *words, *look)).out)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            ctx.eq(said[name], "0" * 16, f"{name} with {words}")
        ctx.eq(said["NoNewPrivs"], "1", f"no_new_privs with {words}")
    # The one that is given, and that one alone.
    said = json.loads(ctx.ok(run(ctx, "--cap-add", "CAP_NET_BIND_SERVICE", *look)).out)
    ctx.eq((int(said["CapEff"], 16), int(said["CapBnd"], 16)), (1 << 10, 1 << 10), "--cap-add")
    raised = ["sh", "-c", "su -c id root </dev/null || echo refused"]
    ctx.true(run(ctx, "--", *raised).out.strip().endswith("refused"), "su gains nothing")
