"""Work that programs really do, under the default filter and walls of `nsbox run`: their own tests, builds, repositories
and data bases. suite_seccomp.py has small programs of the same languages, and PostgreSQL."""

import os
import shutil

from harness import case


def run(ctx, *words, timeout=100):
    return ctx.run(ctx.nsbox, "run", *words, timeout=timeout)


def shell(ctx, script, *options):
    return ctx.ok(run(ctx, *options, "--", "sh", "-euc", script)).out


def needs(ctx, *names):
    for name in names:
        if not shutil.which(name):
            ctx.skip(f"there is no {name} here")


def python_tests(ctx, modules, only=(), without=()):
    """Runs some of python3's own tests, four modules at a time."""
    has = "from importlib.util import find_spec as f; print(f('test') and f('test.test_subprocess') is not None)"
    if ctx.ok(ctx.run("/usr/bin/python3", "-c", has)).out.strip() != "True":
        ctx.skip("python3's own tests are not installed (libpython3-testsuite)")
    words = ["--", "/usr/bin/python3", "-m", "test", "-j4"]
    for option, patterns in (("-m", only), ("-i", without)):
        words += [word for pattern in patterns for word in (option, pattern)]
    said = run(ctx, *words, *modules, timeout=200)
    ctx.true(said.rc == 0 and "SUCCESS" in said.out, f"python3's own tests\n{said}")


# There is one user and one group in a sandbox: a file cannot be given to another, nor a child started as one.
ONE_USER = ("test_user", "test_group", "test_chown_without_permission")


@case("WORK-python", "python3's own tests of the system's calls, files, terminals and threads pass", only="root",
      timeout=240)
def python(ctx):
    python_tests(ctx, ["test_os", "test_posix", "test_pty", "test_fcntl", "test_mmap", "test_epoll", "test_select",
                       "test_socketserver", "test_thread", "test_tempfile", "test_shutil"], without=ONE_USER)


@case("WORK-python-processes", "python3's own tests of processes, sockets and asyncio pass, but for UDP-Lite, which the "
      "filter refuses", only="user", timeout=240)
def python_processes(ctx):
    python_tests(ctx, ["test_subprocess", "test_socket", "test_asyncio"],
                 only=["test.test_subprocess.POSIXProcessTestCase.*", "*BasicTCPTest*", "*RecvmsgSCMRightsStream*",
                       "*UDP*Sendmsg*", "test.test_asyncio.test_subprocess.SubprocessThreadedWatcherTests.*",
                       "test.test_asyncio.test_sock_lowlevel*"],
                 without=[*ONE_USER, "*UDPLITE*"])


@case("WORK-git", "git imports, clones, packs, checks, merges and bisects a repository of some hundred commits")
def git(ctx):
    needs(ctx, "git")
    history = []
    for number in range(1, 301):
        text = "".join(f"line {line} of {number}\n" for line in range(number % 50 + 1))
        history.append(f"commit refs/heads/main\nmark :{number}\ncommitter me <me@example> {1600000000 + number} +0000\n"
                       f"data 8\nchange{number % 100:02d}\nM 100644 inline d{number % 20}/f{number}\ndata {len(text)}\n{text}\n")
    ctx.write("history", "".join(history))
    said = shell(ctx, r"""
export GIT_CONFIG_GLOBAL=/tmp/config
git config --global user.name me; git config --global user.email me@example; git config --global init.defaultBranch main
git init -q --bare origin; git -C origin fast-import --quiet </tmp/history
git clone -q "file://$PWD/origin" work; cd work
git gc -q --aggressive --prune=now; git fsck --full --strict 2>&1; git status --porcelain; git log --oneline | wc -l
git switch -qc side HEAD~10; echo side >side; git add side; git commit -qm side; git switch -q main
git merge -q -m merge side; git worktree add -q ../other side; git -C ../other status --porcelain
git bisect start HEAD~1 HEAD~200 >/dev/null 2>&1; git bisect run sh -c 'test ! -e d5/f205' 2>&1 | grep -c 'is the first bad'
git bisect reset >/dev/null 2>&1; git push -q origin main; git -C ../origin rev-list --count main; git archive HEAD | tar t | wc -l
""", "--ro", f"{ctx.dir}/history:/tmp/history")
    ctx.eq(said.split(), ["300", "1", "302", "321"], "what git says")


@case("WORK-gcc", "gcc and make build libraries and a program of several files with link-time optimization, two at a time")
def gcc(ctx):
    needs(ctx, "gcc", "make", "ar")
    said = shell(ctx, r"""
for n in 1 2 3 4 5 6; do echo "int f$n(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $n; return s; }" >f$n.c; done
cat >main.c <<'E'
#include <stdio.h>
int f1(int), f2(int), f3(int), f4(int), f5(int), f6(int);
int main(void) { printf("%d\n", f1(10) + f2(10) + f3(10) + f4(10) + f5(10) + f6(10)); return 0; }
E
printf 'CFLAGS=-O2 -flto -fPIC\nprogram: main.o libone.a libtwo.so\n\tgcc -O2 -flto=2 -o $@ main.o libone.a -L. -ltwo -Wl,-rpath,.\n' >Makefile
printf 'libone.a: f1.o f2.o f3.o\n\tgcc-ar rc $@ $^\nlibtwo.so: f4.o f5.o f6.o\n\tgcc -O2 -flto=2 -shared -o $@ $^\n' >>Makefile
make -s -j2 program; ./program; make -s -j2 program; gcc -O1 -fsanitize=undefined -o checked main.c f?.c; ./checked
""")
    ctx.eq(said.split(), ["945", "945"], "what the programs print")


@case("WORK-sqlite", "SQLite has a data base in WAL mode with writers at once, a crash between, and its own check of it")
def sqlite(ctx):
    ctx.write("job.py", r'''
import multiprocessing, os, sqlite3

def connect():
    base = sqlite3.connect("base", timeout=60)
    base.execute("pragma synchronous = full")
    return base

def write(who):
    base = connect()
    for n in range(100):
        with base:
            base.execute("insert into t values (?, ?, ?)", (who, n, os.urandom(500)))
    base.close()

def crash():
    base = connect()
    base.execute("begin immediate")
    base.execute("insert into t values (99, 99, zeroblob(1000000))")
    os.kill(os.getpid(), 9)

if __name__ == "__main__":
    base = connect()
    print(base.execute("pragma journal_mode = wal").fetchone()[0])
    base.execute("create table t (who, n, data)")
    base.execute("create index i on t (who, n)")
    base.commit()
    for target, names in ((write, range(3)), (crash, [None])):
        some = [multiprocessing.Process(target=target, args=() if name is None else (name,)) for name in names]
        for process in some: process.start()
        for process in some: process.join()
    print(base.execute("select count(*), count(distinct who) from t").fetchone())
    print(base.execute("pragma wal_checkpoint(truncate)").fetchone()[0], base.execute("pragma integrity_check").fetchone()[0])
    base.execute("vacuum")
    base.execute("create virtual table words using fts5(text)")
    base.execute("insert into words values ('one two three')")
    print(base.execute("select count(*) from words where words match 'two'").fetchone()[0])
''')
    said = ctx.ok(run(ctx, "--ro", f"{ctx.dir}/job.py:/tmp/job.py", "--", "/usr/bin/python3", "/tmp/job.py")).out
    ctx.eq(said.splitlines(), ["wal", "(300, 3)", "0 ok", "1"], "what SQLite says")


NODE = r'''
const assert = require("assert"), fs = require("fs"), net = require("net"), http = require("http"), dgram = require("dgram");
const { Worker, isMainThread, workerData, parentPort } = require("worker_threads");
const { fork, spawn, execFile } = require("child_process");
const { promisify } = require("util"), { once } = require("events"), zlib = require("zlib"), crypto = require("crypto");

if (!isMainThread) {
  const cells = new Int32Array(workerData);
  for (let i = 0; i < 1000; i++) Atomics.add(cells, 0, 1);
  parentPort.postMessage("done");
} else if (process.argv[2] === "child") {
  process.on("message", (n) => process.send(n * 2, () => process.disconnect()));
} else (async () => {
  const shared = new SharedArrayBuffer(4);
  await Promise.all([1, 2, 3, 4].map(() => once(new Worker(__filename, { workerData: shared }), "exit")));
  assert.strictEqual(new Int32Array(shared)[0], 4000);
  const child = fork(__filename, ["child"]);
  child.send(21);
  assert.strictEqual((await once(child, "message"))[0], 42);
  const cat = spawn("cat");
  cat.stdin.end("text");
  assert.strictEqual(String((await once(cat.stdout, "data"))[0]), "text");
  assert.rejects(promisify(execFile)("sh", ["-c", "exit 3"]));
  for (const where of [0, "/tmp/socket"]) {
    const server = net.createServer((s) => s.pipe(s)).listen(where);
    await once(server, "listening");
    const s = net.connect(where === 0 ? server.address().port : where);
    s.write("x".repeat(100000));
    let got = 0;
    for await (const part of s) if ((got += part.length) === 100000) break;
    assert.strictEqual(got, 100000);
    server.close();
  }
  const web = http.createServer((q, r) => zlib.gzip("page", (e, d) => r.end(d))).listen(0, "127.0.0.1");
  await once(web, "listening");
  const [answer] = await once(http.get({ port: web.address().port, host: "127.0.0.1", agent: false }), "response");
  const parts = [];
  for await (const part of answer) parts.push(part);
  assert.strictEqual(String(zlib.gunzipSync(Buffer.concat(parts))), "page");
  web.close();
  const udp = dgram.createSocket("udp4");
  udp.bind(0, "127.0.0.1", () => udp.send("ping", udp.address().port, "127.0.0.1"));
  assert.strictEqual(String((await once(udp, "message"))[0]), "ping");
  udp.close();
  const watcher = fs.watch("/tmp");
  const event = once(watcher, "change");
  fs.writeFileSync("/tmp/seen", "1");
  await event;
  watcher.close();
  await promisify(crypto.scrypt)("a", "b", 32);
  await fs.promises.rm("/tmp/seen");
  console.log("passed");
})();
'''


@case("WORK-node", "node's workers with shared memory, children with channels, servers, datagrams and watchers work", timeout=120)
def node(ctx):
    needs(ctx, "node")
    ctx.write("job.js", NODE)
    ctx.eq(ctx.ok(run(ctx, "--ro", f"{ctx.dir}/job.js:/srv/job.js", "--", "node", "/srv/job.js")).out.strip(), "passed", "node")


# What CI has not, since it is large; one identity does.

@case("WORK-gdb", "gdb stops and looks into a program with --allow-ptrace, and cannot without", only="user")
def gdb(ctx):
    needs(ctx, "gdb", "gcc")
    script = r"""
printf '%s\n' 'static int add(int a, int b) { return a + b; }' 'int main(void) { return add(40, 2) != 42; }' >g.c
gcc -g -O0 -o g g.c; gdb -nx -batch -ex 'break add' -ex run -ex 'print a + b' -ex continue ./g 2>&1 || true"""
    ctx.true("$1 = 42" in shell(ctx, script, "--allow-ptrace"), "gdb with --allow-ptrace")
    ctx.true("Operation not permitted" in shell(ctx, script), "gdb without")


GO = """package main

import (
    "fmt"
    "net"
    "os/exec"
    "sync"
)

func main() {
    var group sync.WaitGroup
    numbers := make(chan int, 100)
    for i := 0; i < 100; i++ {
        group.Add(1)
        go func(n int) { defer group.Done(); numbers <- n }(i)
    }
    group.Wait()
    close(numbers)
    total := 0
    for n := range numbers {
        total += n
    }
    listener, _ := net.Listen("tcp", "127.0.0.1:0")
    go func() { c, _ := listener.Accept(); c.Write([]byte("hello")); c.Close() }()
    c, err := net.Dial("tcp", listener.Addr().String())
    if err != nil {
        panic(err)
    }
    buffer := make([]byte, 5)
    c.Read(buffer)
    child, err := exec.Command("echo", "child").Output()
    fmt.Println(total, string(buffer), string(child), err)
}
"""


@case("WORK-go", "go builds and runs a program with goroutines, sockets and a child", only="user", timeout=180)
def go(ctx):
    needs(ctx, "go")
    ctx.write("main.go", GO)
    said = shell(ctx, "go build -o m main.go; ./m; go run main.go", "--ro", f"{ctx.dir}/main.go:/home/sandbox/main.go",
                 "--env", "GO111MODULE=off")
    ctx.eq(said.split(), ["4950", "hello", "child", "<nil>"] * 2, "what it prints")


@case("WORK-chromium", "chromium renders a page with a script", only="user", timeout=180)
def chromium(ctx):
    needs(ctx, "chromium")
    ctx.write("page.html", '<p id="x">one</p><script>document.getElementById("x").textContent = "two " + 6 * 7</script>')
    said = run(ctx, "--ro", f"{ctx.dir}/page.html:/srv/page.html", "--ro", "/etc/chromium", "--ro", "/etc/chromium.d", "--",
               "chromium", "--no-sandbox", "--headless", "--disable-gpu", "--dump-dom", "file:///srv/page.html", timeout=150)
    ctx.true('<p id="x">two 42</p>' in ctx.ok(said).out, f"the page\n{said}")
