"""Filters of system calls by policy: `nsbox run`'s own, --seccomp-policy, and `nsbox seccomp`."""

import errno
import json
import os
import shutil
import subprocess

from casekit import until_known
from harness import case

# Makes calls by number and says what each answered; on x86-64 and arm64.
PROBE = r'''
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ON_X86 = os.uname().machine == "x86_64"
def call(x86, arm, *words):
    result = libc.syscall(x86 if ON_X86 else arm, *[ctypes.c_long(word) for word in words])
    return 0 if result >= 0 else ctypes.get_errno()
TCGETS, TIOCSTI = 0x5401, 0x5412
print(json.dumps({
    "keyctl": call(250, 219, 0, -1, 0),
    "bpf": call(321, 280, 0, 0, 0),
    "userfaultfd": call(323, 282, 0),
    "io_uring": call(425, 425, 1, 0),
    "perf": call(298, 241, 0, 0, -1, -1, 0),
    "unshare user": call(272, 97, 0x10000000),
    "unshare files": call(272, 97, 0x400),
    "ptrace": call(101, 117, 0, 0, 0, 0),
    "reboot": call(169, 142, 0, 0, 0, 0),
    "clone3": call(435, 435, 0, 0),
    "unknown": call(1000, 1000),
    "vsock": call(41, 198, 40, 1, 0),
    "alg": call(41, 198, 38, 5, 0),
    "alg, high bits": call(41, 198, 38 | 1 << 32, 5, 0),
    "route": call(41, 198, 16, 3, 0),
    "audit": call(41, 198, 16, 3, 9),
    "tcp": call(41, 198, 2, 1, 0),
    "sctp": call(41, 198, 2, 1, 132),
    "TIOCSTI": call(16, 29, 0, TIOCSTI, 0),
    "TIOCSTI, high bits": call(16, 29, 0, TIOCSTI | 1 << 32, 0),
    "chown": call(92, 54, 0, 0, 0, 0),
    "personality": call(135, 92, 0x400000),
    "no personality": call(135, 92, 0xffffffff),
    "filters": [row.split()[1] for row in open("/proc/self/status") if row.startswith(("Seccomp:", "Seccomp_filters"))],
}))
'''


def run(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "run", *words, **kw)


def compiled(ctx, *words):
    """The program that `nsbox seccomp compile` writes."""
    process = ctx.popen(ctx.nsbox, "seccomp", "compile", *words, stdout=subprocess.PIPE)
    program, _ = process.communicate(timeout=30)
    ctx.eq(process.returncode, 0, "seccomp compile")
    return program


def probe(ctx, *words):
    return json.loads(ctx.ok(run(ctx, *words, "--", "python3", "-c", PROBE)).out)


@case("SECCOMP-default", "the default denies what it says with the errors that programs fall back on, and the same calls "
      "are answered by the kernel without it")
def default(ctx):
    with_it, without = probe(ctx), probe(ctx, "--seccomp-policy", "none")
    wanted = {"keyctl": "ENOSYS", "bpf": "EPERM", "userfaultfd": "EPERM", "io_uring": "ENOSYS", "perf": "EPERM",
              "unshare user": "EPERM", "ptrace": "EPERM", "reboot": "EPERM", "clone3": "ENOSYS", "unknown": "ENOSYS",
              "vsock": "EAFNOSUPPORT", "alg": "EAFNOSUPPORT", "alg, high bits": "EAFNOSUPPORT",
              "audit": "EAFNOSUPPORT", "sctp": "EPROTONOSUPPORT", "TIOCSTI": "EPERM", "TIOCSTI, high bits": "EPERM",
              "personality": "EPERM", "unshare files": 0, "route": 0, "tcp": 0, "no personality": 0}
    for name, answer in wanted.items():
        number = getattr(errno, answer) if answer else 0
        ctx.eq(with_it[name], number, f"{name} under the default")
    ctx.eq(with_it["filters"][0], "2", "a filter is loaded")
    ctx.eq(without["filters"], ["0", "0"], "none is without it")
    # What is denied by the filter alone is there without it.
    for name in ("unshare user", "unshare files", "personality", "audit"):
        ctx.eq(without[name], 0, f"{name} without a filter")
    ctx.true(without["keyctl"] != errno.ENOSYS, "keyctl without a filter")
    ctx.eq(without["TIOCSTI"] == errno.EPERM, False, "TIOCSTI is no filter's matter without one")
    ctx.eq(without["clone3"], errno.EINVAL, "clone3 without a filter")
    ctx.eq(without["ptrace"], 0, "being traced without a filter")


@case("SECCOMP-strict", "the strict policy leaves a program that computes what it needs, and no network")
def strict(ctx):
    said = probe(ctx, "--seccomp-policy", "strict")
    ctx.eq((said["tcp"], said["route"], said["chown"]), (errno.EAFNOSUPPORT, errno.EAFNOSUPPORT, errno.EPERM),
           "what strict denies")
    ctx.eq(probe(ctx)["tcp"], 0, "and the default does not")
    setid = ["--", "python3", "-c", "import os\nfor mode in (0o700, 0o4755):\n  try: os.close(os.open(f'/tmp/{mode}', "
             "os.O_CREAT | os.O_WRONLY, mode)); print('made')\n  except OSError as e: print(e.errno)"]
    ctx.ok(run(ctx, "--seccomp-policy", "strict", *setid), f"made\n{errno.EPERM}")
    ctx.ok(run(ctx, *setid), "made\nmade")
    ctx.ok(run(ctx, "--seccomp-policy", "strict", "--", "python3", "-c",
               "import threading, subprocess, tempfile\n"
               "t = threading.Thread(target=print, args=('thread',), kwargs={'flush': True}); t.start(); t.join()\n"
               "subprocess.run(['sh', '-c', 'echo child; ls / >/dev/null'], check=True)\n"
               "open(tempfile.mkstemp()[1], 'w').write('x' * 100000)"), "thread\nchild")


@case("SECCOMP-circumstances", "--allow-userns lets sandboxes nest, --allow-ptrace lets debuggers work; neither does "
      "without")
def circumstances(ctx):
    inside = ctx.nsbox
    # Root's /proc has covers, below which the kernel refuses another: the one that is there serves.
    nested = ["--ro", os.path.dirname(inside), "--", inside, "--unshare-all", "--ro-bind", "/", "/", "--bind", "/proc",
              "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "sh", "-c", "echo nested >/tmp/f; cat /tmp/f; id -u"]
    ctx.ok(run(ctx, "--allow-userns", *nested), "nested\n1000")
    ctx.fails(run(ctx, *nested), 1, "Operation not permitted")
    traced = ["--", "strace", "-o", "/tmp/trace", "-e", "trace=chdir", "sh", "-c", "cd /tmp; cd /; echo done"]
    ctx.ok(run(ctx, "--allow-ptrace", *traced), "done")
    ctx.true(run(ctx, *traced).rc != 0, "strace does not work without --allow-ptrace")


@case("SECCOMP-file", "a policy of the user's own is loaded; what is wrong with one is said with its line, and nothing "
      "runs")
def own_file(ctx):
    policy = ctx.write("own.policy", "deny EIO mkdir mkdirat\ninclude default\n", 0o644)
    words = ["--", "python3", "-c", "import os\ntry: os.mkdir('/tmp/x')\nexcept OSError as e: print(e.errno)\nelse: print('made')"]
    ctx.ok(run(ctx, "--seccomp-policy", policy, *words), str(errno.EIO))
    ctx.ok(run(ctx, *words), "made")
    # Included by a path beside it.
    ctx.write("outer.policy", "include own.policy\n", 0o644)
    ctx.ok(run(ctx, "--seccomp-policy", f"{ctx.dir}/outer.policy", *words), str(errno.EIO))
    ctx.write("wrong.policy", "# mine\nallow read\nallow raed\n", 0o644)
    ctx.fails(run(ctx, "--seccomp-policy", f"{ctx.dir}/wrong.policy", "--", "touch", f"{ctx.dir}/ran"), 125,
              "wrong.policy, line 3: raed is no system call")
    ctx.fails(run(ctx, "--seccomp-policy", "defautl", "--", "true"), 125, "defautl")
    os.mkfifo(os.path.join(ctx.dir, "fifo"))
    ctx.fails(run(ctx, "--seccomp-policy", f"{ctx.dir}/fifo", "--", "true"), 125, "it has no statement")
    # What comes through a pipe is read to its end.
    ctx.ok(ctx.run("bash", "-c", '"$0" run --seccomp-policy <(sleep 0.2; echo "include default") -- echo ran',
                   ctx.nsbox), "ran")
    foreign = "arm" if os.uname().machine == "x86_64" else "x32"
    ctx.write("foreign.policy", f"abis {foreign}\nallow read\n", 0o644)
    ctx.fails(run(ctx, "--seccomp-policy", f"{ctx.dir}/foreign.policy", "--", "true"), 125, "none of this machine's")
    # A policy that does not let the command start is no success.
    ctx.write("nothing.policy", "deny EACCES execve execveat\ninclude default\n", 0o644)
    ctx.true(run(ctx, "--seccomp-policy", f"{ctx.dir}/nothing.policy", "--", "echo", "ran").out == "", "nothing ran")


@case("SECCOMP-nothing", "a policy under which nothing can run, nor even end, ends the start with an error")
def nothing(ctx):
    ctx.write("empty.policy", "allow getpid\n", 0o644)
    ctx.write("kill.policy", "otherwise kill\nallow getpid\n", 0o644)
    ctx.write("no-exit.policy", "deny EPERM exit_group exit\ninclude default\n", 0o644)
    # An error of exec, or the signal by which the filter ends even that: but it ends.
    for name, statuses in (("empty", {126}), ("kill", {159})):
        policy = ["--seccomp-policy", f"{ctx.dir}/{name}.policy"]
        ctx.true(run(ctx, *policy, "--", "true").rc in statuses, f"{name} in nsbox run")
        for more in ([], ["--unshare-pid"]):
            ctx.true(ctx.bw("--ro-bind", "/", "/", *more, *policy, "true").rc != 0, f"{name} with {more}")
    # What cannot exit dies in another way: nothing is left behind, and nobody waits.
    ended = run(ctx, "--seccomp-policy", f"{ctx.dir}/no-exit.policy", "--", "sh", "-c", "echo ran; kill -9 $$")
    ctx.eq((ended.out.strip(), ended.rc), ("ran", 137), "the command's own end")


@case("SECCOMP-oci", "a JSON profile as container engines have it is loaded, with its errors")
def oci(ctx):
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28},
        {"names": ["socket"], "action": "SCMP_ACT_ERRNO",
         "args": [{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]}]}
    path = ctx.write("profile.json", json.dumps(profile), 0o644)
    ctx.ok(run(ctx, "--seccomp-policy", path, "--", "python3", "-c", """
import os, socket
for what in (lambda: os.mkdir('/tmp/x'), lambda: socket.socket(2, 1), lambda: socket.socket(1, 1)):
    try:
        what()
        print(0)
    except OSError as error:
        print(error.errno)"""), f"{errno.ENOSPC}\n{errno.EPERM}\n0")
    ctx.write("wrong.json", '{"defaultAction": "SCMP_ACT_MAYBE"}', 0o644)
    ctx.fails(run(ctx, "--seccomp-policy", f"{ctx.dir}/wrong.json", "--", "true"), 125, "SCMP_ACT_MAYBE")


@case("SECCOMP-stack", "several policies and a program stack: what all of them let through")
def stack(ctx):
    ctx.write("a.policy", "otherwise allow\nabis x86_64 aarch64\ndeny EIO mkdir mkdirat\n", 0o644)
    ctx.write("b.policy", "otherwise allow\nabis x86_64 aarch64\ndeny ENOSPC rmdir unlinkat\n", 0o644)
    program = compiled(ctx, f"{ctx.dir}/b.policy")
    words = ["--", "python3", "-c", """
import os
for what in (lambda: os.mkdir('/tmp/x'), lambda: os.rmdir('/tmp/.'), lambda: os.stat('/tmp')):
    try:
        what()
        print(0)
    except OSError as error:
        print(error.errno)"""]
    both = ["--seccomp-policy", f"{ctx.dir}/a.policy", "--seccomp-policy", f"{ctx.dir}/b.policy"]
    ctx.ok(run(ctx, *both, *words), f"{errno.EIO}\n{errno.ENOSPC}\n0")
    ctx.ok(run(ctx, *both[:2], *words), f"{errno.EIO}\n{errno.EINVAL}\n0")
    with open(os.path.join(ctx.dir, "b.bpf"), "wb") as file:
        file.write(program)
    with open(os.path.join(ctx.dir, "b.bpf"), "rb") as file:
        ctx.ok(run(ctx, *both[:2], "--seccomp", "9", *words, fds={9: file.fileno()}),
               f"{errno.EIO}\n{errno.ENOSPC}\n0")


@case("SECCOMP-bwrap", "the bwrap command line has no filter of its own accord, and any policy by option")
def bwrap(ctx):
    status = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    words = ["grep", "-c", "^Seccomp:.2", "/proc/self/status"]
    ctx.eq(ctx.bw(*status, *words).out.strip(), "0", "none without the option")
    ctx.ok(ctx.bw(*status, "--seccomp-policy", "default", *words), "1")
    ctx.fails(ctx.bw(*status, "--seccomp-policy", "/nowhere/policy", *words), 1, "/nowhere/policy")
    # Root that keeps all capabilities keeps what they are for; an ordinary user has none.
    mount = ctx.bw(*status, "--unshare-user", "--seccomp-policy", "default", "unshare", "-m", "true")
    ctx.fails(mount, None, "Operation not permitted")


@case("SECCOMP-exec", "a further command has the filter too")
def further(ctx):
    keeper = ctx.popen(ctx.nsbox, "run", "--name", f"seccomp-{os.getpid()}", "--", "sh", "-c", "echo up; sleep 60",
                       stdout=-1)
    ctx.eq(keeper.stdout.readline().strip(), b"up", "the sandbox is up")
    until_known(ctx, f"seccomp-{os.getpid()}")
    other = ctx.run(ctx.nsbox, "exec", f"seccomp-{os.getpid()}", "--", "sh", "-c",
                    "grep -c '^Seccomp:.2' /proc/self/status; unshare -U true || echo denied")
    ctx.ok(other, "1\ndenied")
    ctx.ok(ctx.run(ctx.nsbox, "kill", f"seccomp-{os.getpid()}"))
    keeper.wait(20)


@case("SECCOMP-command", "nsbox seccomp checks, shows, compiles and disassembles policies")
def command(ctx):
    def seccomp(*words, **kw):
        return ctx.run(ctx.nsbox, "seccomp", *words, **kw)
    ctx.write("good.policy", "allow read\n", 0o644)
    ctx.write("bad.policy", "allow raed\n", 0o644)
    checked = seccomp("check", "default", f"{ctx.dir}/good.policy", f"{ctx.dir}/bad.policy")
    ctx.fails(checked, 125, "raed is no system call")
    ctx.true(checked.out.startswith("default: ") and "good.policy: " in checked.out, "what is good is said")
    ctx.ok(seccomp("check", "default", "strict"))
    shown = ctx.ok(seccomp("show", "default")).out
    ctx.true("deny EPERM ptrace" in shown, "the policy is shown")
    # What is shown is the policy: given back as a file it makes the same program.
    ctx.write("again.policy", shown, 0o644)
    listing = ctx.ok(seccomp("dump")).out
    ctx.eq(ctx.ok(seccomp("dump", f"{ctx.dir}/again.policy")).out, listing, "the same program")
    ctx.true("ld   arch" in listing and "ret  deny ENOSYS" in listing, "a listing")
    ctx.true(ctx.ok(seccomp("dump", "--allow-userns")).out != listing, "circumstances matter")
    ctx.true(ctx.ok(seccomp("dump", "--cap-add", "CAP_SYS_TIME")).out != listing, "capabilities matter")
    program = compiled(ctx)
    ctx.eq(len(program) // 8, len(listing.splitlines()), "as many instructions as lines")
    with open(os.path.join(ctx.dir, "program"), "wb") as file:
        file.write(program)
    ctx.eq(ctx.ok(seccomp("dump", "--program", f"{ctx.dir}/program")).out, listing, "a program is read back")
    ctx.write("odd", "12345", 0o644)
    ctx.fails(seccomp("dump", "--program", f"{ctx.dir}/odd"), 125, "multiple of 8")
    ctx.fails(seccomp("dump", "--program", "/dev/zero"), 125, "4097|multiple of 8")
    ctx.fails(seccomp("dump", "--program"), 125, "--program takes a value")
    ctx.fails(seccomp("show", "/etc/passwd"), 125, "default and strict")
    ctx.fails(seccomp("frobnicate"), 125, "check, dump, compile or show")
    ctx.fails(seccomp("dump", "--whatever"), 125, "unknown option --whatever")


# -- what people run, under the default ----------------------------------------------------------

def needs(ctx, *names):
    for name in names:
        if not os.path.exists(f"/usr/bin/{name}"):
            ctx.skip(f"there is no {name} here")


@case("SECCOMP-python", "python3 under the default: threads, processes, asyncio, sqlite3, shared memory, sockets")
def python(ctx):
    ctx.ok(run(ctx, "--", "python3", "-c", r'''
import asyncio, multiprocessing, os, select, socket, sqlite3, subprocess, tempfile, threading, signal, mmap
from multiprocessing import shared_memory
async def main():
    server = await asyncio.start_server(lambda r, w: w.write(b"hello\n"), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print((await reader.readline()).decode().strip())
    child = await asyncio.create_subprocess_exec("sh", "-c", "echo child", stdout=-1)
    print((await child.communicate())[0].decode().strip())
    writer.close()
asyncio.run(main())
with multiprocessing.get_context("spawn").Pool(2) as pool:
    print(sum(pool.map(abs, range(-10, 0))))
base = sqlite3.connect(tempfile.mkstemp()[1])
base.execute("pragma journal_mode=wal"); base.execute("create table t (n)"); base.commit()
memory = shared_memory.SharedMemory(create=True, size=100); memory.close(); memory.unlink()
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1).decode())
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.memfd_create("x"); os.pidfd_open(os.getpid())
signal.setitimer(signal.ITIMER_REAL, 100); os.getrandom(8); os.nice(1)
print(len(os.listdir("/proc/self/task")))
'''), "hello\nchild\n55\nx\n1")


@case("SECCOMP-node", "node under the default: files, workers, children and servers", timeout=120)
def node(ctx):
    needs(ctx, "node")
    ctx.ok(run(ctx, "--", "node", "-e", r'''
const { Worker } = require("worker_threads"), fs = require("fs"), net = require("net");
fs.writeFileSync("/tmp/f", "x".repeat(1e6));
const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
worker.on("message", (n) => { console.log(n);
  console.log(require("child_process").execFileSync("sh", ["-c", "echo child"]).toString().trim());
  const server = net.createServer((s) => s.end("hello")).listen(0, "127.0.0.1", () =>
    net.connect(server.address().port, "127.0.0.1").on("data", (d) => { console.log(String(d)); server.close(); }));
  fs.readFile("/tmp/f", (e, d) => { if (d.length !== 1e6) throw e; });
});''', timeout=100), "42\nchild\nhello")


@case("SECCOMP-gcc", "gcc and git under the default: a program is compiled, run and committed")
def gcc(ctx):
    needs(ctx, "gcc", "git")
    ctx.ok(run(ctx, "--", "sh", "-ec", r'''
echo '#include <stdio.h>
#include <pthread.h>
static void* f(void* p) { puts("thread"); return p; }
int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); return 0; }' >a.c
gcc -O2 -pthread -o a a.c; ./a
git -c init.defaultBranch=main init -q; git add a.c
git -c user.name=me -c user.email=me@example commit -qm first; git gc -q; git log --format=%s''', timeout=60),
           "thread\nfirst")


@case("SECCOMP-java", "a Java program is compiled and run under the default", timeout=180)
def java(ctx):
    needs(ctx, "java", "javac")
    ctx.ok(run(ctx, "--", "sh", "-ec", r'''
echo 'public class A { public static void main(String[] a) throws Exception {
  var t = new Thread(() -> System.out.println("thread")); t.start(); t.join();
  java.nio.file.Files.writeString(java.nio.file.Path.of("f"), "text");
  try (var s = new java.net.ServerSocket(0)) { System.out.println(s.getLocalPort() > 0); }
} }' >A.java
javac A.java; java -XX:+UseSerialGC A; java -Xmx64m A''', timeout=150), "thread\ntrue\nthread\ntrue")


@case("SECCOMP-postgres", "PostgreSQL under the default: initdb, a server and a query", timeout=120)
def postgres(ctx):
    folders = sorted(os.listdir("/usr/lib/postgresql")) if os.path.isdir("/usr/lib/postgresql") else []
    folders = [name for name in folders if os.access(f"/usr/lib/postgresql/{name}/bin/initdb", os.X_OK)]
    if not folders or not shutil.which("psql"):
        ctx.skip("there is no PostgreSQL here")
    ctx.ok(run(ctx, "--env", f"PATH=/usr/lib/postgresql/{folders[-1]}/bin:/usr/bin:/bin", "--", "sh", "-ec", r'''
initdb -D base -A trust -N >log 2>&1
pg_ctl -D base -w -l server.log -o "-c unix_socket_directories=/tmp -c listen_addresses=127.0.0.1" start >log 2>&1
psql -h 127.0.0.1 -d postgres -Atc 'select sum(n) from generate_series(1, 100) n'
pg_ctl -D base -w -m fast stop >log 2>&1''', timeout=100), "5050")
