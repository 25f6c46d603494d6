"""Real programs in a sandbox: python3, git, gcc and node, and the example of the quick start."""

import hashlib
import os
import re

from harness import case

# What such programs need of a system, and no more: /usr, the links into it, some of /etc.
SYSTEM = ("--ro-bind", "/usr", "/usr",
          "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin",
          "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
          "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
          "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
          "--ro-bind-try", "/etc/passwd", "/etc/passwd",
          "--ro-bind-try", "/etc/group", "/etc/group",
          "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
         "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp/home",
         "--setenv", "LANG", "C.UTF-8", "--dir", "/tmp/home")


def system(ctx, *more):
    return ctx.bw(*SYSTEM, *ALONE, "--bind", ctx.dir, "/work", "--chdir", "/work", *more,
                  timeout=90)


@case("PROG-python", "python3 runs a program with threads, processes, sockets and files")
def python(ctx):
    ctx.write("job.py", '''
import hashlib, json, os, socket, sqlite3, subprocess, sys, tempfile, threading
from concurrent.futures import ThreadPoolExecutor
import multiprocessing

def square(n):
    return n * n

def echo(server):
    peer, _ = server.accept()
    with peer:
        peer.sendall(peer.recv(100).upper())

if __name__ == "__main__":
    found = {}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found["processes"] = sum(pool.map(square, range(100)))
    with ThreadPoolExecutor(4) as pool:
        found["threads"] = sum(pool.map(square, range(100)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=echo, args=(server,))
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"loopback")
            found["socket"] = client.recv(100).decode()
        thread.join()
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(os.path.join(folder, "base"))
        base.execute("create table t (n)")
        base.executemany("insert into t values (?)", [(n,) for n in range(10)])
        found["sqlite"] = base.execute("select sum(n) from t").fetchone()[0]
        base.close()
    found["child"] = subprocess.run([sys.executable, "-c", "print(6 * 7)"], check=True,
                                    capture_output=True, text=True).stdout.strip()
    found["hash"] = hashlib.sha256(b"x").hexdigest()[:8]
    with open("answer.json", "w") as file:
        json.dump(found, file, sort_keys=True)
    print(json.dumps(found, sort_keys=True))
''')
    wanted = ('{"child": "42", "hash": "2d711642", "processes": 328350, "socket": "LOOPBACK", '
              '"sqlite": 45, "threads": 328350}')
    ctx.ok(system(ctx, "/usr/bin/python3", "job.py"), out=wanted)
    with open(os.path.join(ctx.dir, "answer.json"), encoding="ascii") as file:
        ctx.eq(file.read(), wanted, "what the program wrote through its writable bind")


@case("PROG-git", "git makes a repository, commits, branches, merges and clones")
def git(ctx):
    ctx.write("job.sh", '''
set -eu
git config --global user.name Test
git config --global user.email test@example.org
git config --global init.defaultBranch main
git init -q one
cd one
echo first >file
git add file
git commit -qm "First"
git checkout -qb side
echo second >other
git add other
git commit -qm "Second"
git checkout -q main
git merge -q --no-ff -m "Merge" side
cd ..
git clone -q one two
cd two
git fsck --strict 2>&1
git log --format=%s | sort
cat file other
''')
    ctx.ok(system(ctx, "sh", "job.sh"), out="First\nMerge\nSecond\nfirst\nsecond")
    ctx.true(os.path.isdir(os.path.join(ctx.dir, "two/.git/objects")),
             "the clone is there on the host, in the writable bind")


@case("PROG-gcc", "gcc compiles, links and runs a program, and so does g++")
def gcc(ctx):
    ctx.write("sum.c", '''
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *work(void *argument) { *(double *)argument = sqrt(1764.0); return 0; }
int main(void)
{
    double answer = 0;
    pthread_t thread;
    if (pthread_create(&thread, 0, work, &answer) || pthread_join(thread, 0))
        return 1;
    printf("%.0f\\n", answer);
    return 7;
}
''')
    ctx.write("hello.cpp", '''
#include <iostream>
#include <map>
#include <stdexcept>
int main()
{
    std::map<std::string, int> words{{"hello", 1}};
    try {
        words.at("world");
    } catch (const std::out_of_range&) {
        std::cout << "caught\\n";
    }
}
''')
    ctx.ok(system(ctx, "gcc", "-O2", "-Wall", "-Werror", "-pthread", "-o", "sum", "sum.c", "-lm"))
    ctx.eq(system(ctx, "./sum").rc, 7, "the status of the compiled program")
    ctx.eq(system(ctx, "./sum").out, "42\n", "what the compiled program printed")
    ctx.ok(system(ctx, "sh", "-c", "g++ -std=c++20 -O1 -o hello hello.cpp && ./hello"),
           out="caught")
    # The positive control of the read-only system: the same compiler cannot write there.
    ctx.fails(system(ctx, "gcc", "-o", "/usr/bin/nsbox-sum", "sum.c", "-lm", "-pthread"),
              err="Read-only file system")


@case("PROG-node", "node runs a program with a worker, a child and a server on loopback")
def node(ctx):
    ctx.write("job.js", '''
const { Worker, isMainThread, parentPort } = require("worker_threads");
const { execFileSync } = require("child_process");
const fs = require("fs");
const http = require("http");
if (!isMainThread) {
    parentPort.postMessage(6 * 7);
} else {
    const found = {};
    found.child = execFileSync("echo", ["hello"]).toString().trim();
    fs.mkdirSync("made/by/node", { recursive: true });
    fs.writeFileSync("made/by/node/file", "text");
    found.file = fs.readFileSync("made/by/node/file", "utf8");
    new Worker(__filename).on("message", (answer) => {
        found.worker = answer;
        const server = http.createServer((request, response) => response.end(request.url));
        server.listen(0, "127.0.0.1", () => {
            http.get({ port: server.address().port, host: "127.0.0.1", path: "/path" }, (reply) => {
                reply.setEncoding("utf8");
                reply.on("data", (text) => { found.http = text; });
                reply.on("end", () => { server.close(); console.log(JSON.stringify(found)); });
            });
        });
    });
}
''')
    ctx.ok(system(ctx, "node", "job.js"),
           out='{"child":"hello","file":"text","worker":42,"http":"/path"}')


@case("PROG-pipeline", "a megabyte goes unchanged through a sandbox that stands in a pipeline")
def pipeline(ctx):
    data = bytes(range(256)) * 4096
    result = ctx.bw(*SYSTEM, *ALONE, "sha256sum", input=data, timeout=60)
    ctx.ok(result, out=hashlib.sha256(data).hexdigest() + "  -")


def seen(text):
    """The example's answers by their questions."""
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1)
                for line in text.splitlines() if re.match(r"  \S.*\S\s{2,}\S", line))


@case("PROG-example", "the example tells the same of a sandbox as was asked for")
def example(ctx):
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.join(here, "../../doc/examples/what-can-i-see.py")
    result = ctx.ok(ctx.bw(*SYSTEM, *ALONE, "--hostname", "sandbox", "--ro-bind", source,
                           "/tmp/home/see.py", "/usr/bin/python3", "/tmp/home/see.py"))
    inside = seen(result.out)
    ctx.eq(inside["interfaces"], "lo", "network interfaces")
    ctx.eq(inside["a route to the world"], "no: Network is unreachable", "a route")
    ctx.eq(inside["listen on 127.0.0.1"], "yes", "loopback")
    ctx.eq(inside["host name"], "sandbox", "host name")
    ctx.eq(inside["visible"], "2: 1 2", "processes")
    ctx.eq(inside["entries of /tmp"], "home", "/tmp")
    ctx.eq(inside["entries of /root"], "no: No such file or directory", "/root")
    ctx.eq(inside["read /etc/shadow"], "no: No such file or directory", "/etc/shadow")
    ctx.eq(inside["make a file in /usr"], "no: Read-only file system", "/usr")
    ctx.eq(inside["make a file in /tmp"], "yes", "/tmp is writable")
    ctx.true(inside["write a kernel setting"].startswith("no"), "kernel settings are closed")
    ctx.eq(inside["environment"], "HOME LANG PATH PWD", "environment")
    ctx.eq(inside["gain more by a setuid program"], "no", "no_new_privs")
    # Outside, the same questions have other answers: the example can tell the difference.
    outside = seen(ctx.ok(ctx.run("/usr/bin/python3", source)).out)
    ctx.true(outside["visible"] != inside["visible"], "the host has other processes")
    ctx.true(outside["environment"] != inside["environment"], "the host has another environment")
    if not ctx.root:
        ctx.eq(inside["capabilities"], "none", "capabilities")
