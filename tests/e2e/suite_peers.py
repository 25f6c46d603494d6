"""A user-mode network under programs that people use, under load, and under SIGKILL."""

import hashlib
import os
import random
import selectors
import signal
import socket
import subprocess
import threading
import time

import netkit
from casekit import tool
from harness import case, descendants
from netkit import (ENDS, FAR4, FAR6, GATEWAY4, GATEWAY6, World, answers, links,
                    reap_adopted)

WEB = r"""
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words): pass
with Server((sys.argv[1], int(sys.argv[2])), Handler) as server:
    print("listens", flush=True)
    server.serve_forever()
"""


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listening(ctx, *words, **kw):
    """A program outside of the sandboxes that says when it listens."""
    proc = ctx.popen(*words, **kw)
    line = proc.stdout.readline()
    ctx.true(line.startswith(b"listens"), f"{words[0]}: {line!r}")
    return proc


@case("N-curl", "curl fetches files from outside, and from a service inside, byte for byte",
      timeout=180)
def curl(ctx):
    program = tool(ctx, "curl")
    world = World(ctx)
    folder = ctx.mkdir("www")
    with open(os.path.join(folder, "file"), "wb") as file:
        file.write(os.urandom(20 << 20))
    want = digest(os.path.join(folder, "file"))
    for address, gateway in (("127.0.0.1", GATEWAY4), ("::1", f"[{GATEWAY6}]")):
        server = listening(ctx, netkit.PYTHON, "-c", WEB, address, "8001", cwd=folder)
        for link in links(ctx):
            script = f"{program} -sS --max-time 60 http://{gateway}:8001/file | sha256sum"
            result = world.sandbox("sh", "-c", script, net=f"user,link={link}",
                                   options=("--host-loopback", "8001"))
            ctx.eq(ctx.ok(result).out.split()[0], want, f"{link}: {gateway}")
        server.kill()
        server.wait(20)
    # The service of Python and the one of Node, at a port that needs no capability here.
    node = "require('http').createServer((q, a) => require('fs').createReadStream('/tmp/www/file')" \
           ".pipe(a)).listen(80, '0.0.0.0', () => console.log('listens'))"
    for words in ((netkit.PYTHON, "-c", WEB, "0.0.0.0", "80"), (tool(ctx, "node"), "-e", node)):
        inside = world.start("--ro-bind", folder, "/tmp/www", "--chdir", "/tmp/www", *words,
                             options=(*ENDS, "-p", "9000:80"))
        line = inside.stdout.readline()
        if not line.startswith(b"listens"):
            inside.kill()
            raise AssertionError(f"{words[0]}: {line!r}, {inside.stderr.read()!r}")
        answered = ctx.run("sh", "-c", f"{program} -sS --retry 20 --retry-connrefused --retry-delay "
                           "1 --max-time 60 http://localhost:9000/file | sha256sum")
        ctx.eq(ctx.ok(answered).out.split()[0], want, words[0])
        inside.kill()
        inside.wait(20)
        # The network's helper notices that end, and has the port until its own.
        ctx.until(lambda: is_free(9000), why="the end of the port")


@case("N-node", "node looks names up and connects by them")
def node_client(ctx):
    world = World(ctx)
    script = "const c = require('net').connect(7, 'test.example', () => c.write('hello'));" \
             "c.on('data', (d) => { console.log(String(d)); c.end(); });" \
             "c.on('error', (e) => console.log(e.code));"
    ctx.eq(ctx.ok(world.sandbox(tool(ctx, "node"), "-e", script)).out.strip(), "hello", "an echo")
    result = world.sandbox("getent", "ahosts", "test.example")
    ctx.true(FAR4 in ctx.ok(result).out and FAR6 in result.out, f"getent: {result.out}")


@case("N-iperf3", "iperf3 runs to a server of the host, both ways, with TCP and UDP", timeout=120)
def iperf3(ctx):
    program = tool(ctx, "iperf3")
    world = World(ctx)
    server = ctx.popen(program, "-s", "-B", "127.0.0.1", "--forceflush")
    ctx.true(b"-----" in server.stdout.readline(), "the server")
    ctx.until(lambda: listens("127.0.0.1", 5201), 20, "the server")
    for more in ((), ("-R",), ("-u", "-b", "50M"), ("-P", "8")):
        script = f"{program} -c {GATEWAY4} -t 1 -J {' '.join(more)}"
        result = world.sandbox("sh", "-c", script, options=("--host-loopback", "5201"), timeout=60)
        out = ctx.ok(result).out
        ctx.true('"error"' not in out and '"bits_per_second"' in out, f"{more}: {out[:300]}")
    server.kill()


def listens(address, port):
    with socket.socket() as sock:
        return sock.connect_ex((address, port)) == 0


@case("N-socat", "socat talks through unix sockets of the host on both sides of a sandbox")
def socat(ctx):
    program = tool(ctx, "socat")
    world = World(ctx)
    out, come = os.path.join(ctx.dir, "out.sock"), os.path.join(ctx.dir, "in.sock")
    server = ctx.popen(program, f"UNIX-LISTEN:{out},fork", "EXEC:cat")
    ctx.until(lambda: os.path.exists(out), 20, "the server's socket")
    inside = world.start(program, "TCP-LISTEN:8000,reuseaddr,fork", "TCP:127.0.0.1:8001",
                         options=(*ENDS, "--host-socket", f"{out}:8001", "-p",
                                  f"unix:{come}:8000"))

    def through():
        done = ctx.run(program, "-t", "10", "-", f"UNIX-CONNECT:{come}", input="there and back")
        return done.out == "there and back"

    ctx.until(through, 20, "what comes back")
    inside.kill()
    inside.wait(20)
    server.kill()


# -- load ----------------------------------------------------------------------------------------

def serve_many(listener):
    """Echoes on any number of connections, in one thread."""
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                data = key.fileobj.recv(65536)
                if data:
                    key.fileobj.sendall(data)
            except OSError:
                data = b""
            if not data:
                ready.unregister(key.fileobj)
                key.fileobj.close()


def raise_limit():
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@case("N-2000", "2000 connections at once leave the sandbox, and as many come into it", timeout=240)
def two_thousand(ctx):
    raise_limit()
    world = World(ctx)
    listener = netkit.bound(socket.SOCK_STREAM, "127.0.0.1", 8001)
    threading.Thread(target=serve_many, args=(listener,), daemon=True).start()
    code = r"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
socks = [socket.create_connection((sys.argv[1], 8001), 60) for _ in range(2000)]
for number, s in enumerate(socks): s.sendall(b"%d" % number)
print(sum(s.recv(10) == b"%d" % number for number, s in enumerate(socks)))
"""
    for link in links(ctx):
        result = world.python(code, GATEWAY4, net=f"user,link={link}", timeout=120,
                              options=("--host-loopback", "8001"))
        ctx.eq(ctx.ok(result).out.strip(), "2000", f"{link}: answers")
    inside = world.start(netkit.PYTHON, "-c", netkit.CLIENT + r"""
import resource, selectors
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server(("0.0.0.0", 8000), backlog=4096)
ready = selectors.DefaultSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            ready.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        data = key.fileobj.recv(65536)
        if data: key.fileobj.sendall(data)
        else: ready.unregister(key.fileobj); key.fileobj.close()
""", options=(*ENDS, "-p", "9000:8000"))
    answers(ctx, "127.0.0.1", 9000)
    socks = [socket.create_connection(("127.0.0.1", 9000), 60) for _ in range(2000)]
    for number, sock in enumerate(socks):
        sock.sendall(b"%d" % number)
    ctx.eq(sum(sock.recv(10) == b"%d" % number for number, sock in enumerate(socks)), 2000,
           "answers from inside")
    inside.kill()
    inside.wait(20)


def size_of(pid):
    """Descriptors, as far as this user may see them, and resident memory in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        rss = [int(line.split()[1]) for line in file if line.startswith("VmRSS")][0]
    try:
        return len(os.listdir(f"/proc/{pid}/fd")), rss
    except PermissionError:
        return 0, rss


@case("N-half-open", "connections that are never answered, or are reset, do not stop others",
      timeout=240)
def half_open(ctx):
    world = World(ctx)
    # The internet has no such address and says nothing about it.
    code = r"""
socks = []
for number in range(1500):
    s = socket.socket(); s.setblocking(False)
    try: s.connect(("203.0.113.%d" % (1 + number % 200), 1000 + number))
    except BlockingIOError: pass
    socks.append(s)
print(tcp(sys.argv[1], 7))
for s in socks: s.close()
import struct
for _ in range(500):
    s = socket.create_connection((sys.argv[1], 7), 20)
    s.sendall(b"x")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
print(tcp(sys.argv[1], 7))
"""
    raise_limit()
    for link in links(ctx):
        result = world.python("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4000, "
                              "resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n" + code, FAR4,
                              net=f"user,link={link}", timeout=100)
        ctx.eq(ctx.ok(result).out.split(), ["ok", "ok"], link)


@case("N-growth", "thousands of connections leave no descriptor and no memory behind",
      timeout=400)
def growth(ctx):
    world = World(ctx)
    code = netkit.CLIENT + r"""
def round(count):
    for _ in range(count):
        s = socket.socket()
        s.connect((sys.argv[1], 8001))
        while s.recv(10): pass  # The server ends it first: the port is free at once.
        s.close()
for line in sys.stdin:
    round(int(line))
    print("done", flush=True)
"""
    listener = netkit.bound(socket.SOCK_STREAM, "127.0.0.1", 8001)

    def say_one_byte():
        while True:
            client, _ = listener.accept()
            client.send(b"x")
            client.close()

    threading.Thread(target=say_one_byte, daemon=True).start()
    proc = world.start(netkit.PYTHON, "-c", code, GATEWAY4, stdin=subprocess.PIPE,
                       options=(*ENDS, "--host-loopback", "8001"))

    def connections(count):
        proc.stdin.write(b"%d\n" % count)
        proc.stdin.flush()
        line = proc.stdout.readline()
        why = b"" if line else proc.stderr.read()
        ctx.eq((line, why), (b"done\n", b""), "the connections")

    connections(100)
    processes = [proc.pid, *(p for p, name in descendants(proc.pid) if name == "nsbox-net")]
    before = [size_of(pid) for pid in processes]
    connections(2000)

    def is_as_before():
        after = [size_of(pid) for pid in processes]
        return all(fds <= old_fds and rss <= old_rss + 2048
                   for (old_fds, old_rss), (fds, rss) in zip(before, after))

    ctx.until(is_as_before, 60, f"no more descriptors or memory than {before}")
    proc.stdin.close()
    ctx.eq(proc.wait(30), 0, "the status")


# -- SIGKILL -------------------------------------------------------------------------------------

def is_free(port):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def network_left():
    """Processes of the helper that nobody has any more."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
            if "(nsbox-net)" in text and os.path.samefile(f"/proc/{entry}/ns/net",
                                                           "/proc/self/ns/net"):
                found.append(int(entry))
        except OSError:
            continue
    return found


@case("N-storm", "SIGKILL at any moment of a start or a transfer leaves no process and no port",
      timeout=240)
def storm(ctx):
    world = World(ctx)
    chance = random.Random(20261130)
    path = os.path.join(ctx.dir, "in.sock")
    for turn in range(24):
        during_start = turn % 4 != 3
        # It fills the link both ways for as long as it lives.
        code = f"s = socket.create_connection(('{FAR4}', 7))\n" \
               "threading.Thread(target=lambda: [s.sendall(bytes(65536)) for _ in iter(int, 1)])" \
               ".start()\nprint('flows', flush=True)\nwhile True: s.recv(65536)"
        proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code,
                           options=(*ENDS, "-p", "9000:80", "-p", f"unix:{path}:80"))
        if during_start:
            time.sleep(chance.random() * 0.03)
        else:
            ctx.eq(proc.stdout.readline(), b"flows\n", "the transfer")
        below = [pid for pid, name in descendants(proc.pid) if name == "nsbox-net"]
        victim = chance.choice([proc.pid, proc.pid, *below])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if victim != proc.pid and below and victim != below[0]:
            # Without the process inside what runs goes on.
            proc.kill()
        proc.wait(30)

        def is_clean():
            reap_adopted()
            return not network_left() and is_free(9000) and not os.path.lexists(path)

        ctx.until(is_clean, 20, f"turn {turn}: the end of everything")
    ctx.ok(world.sandbox("true", options=("-p", "9000:80", "-p", f"unix:{path}:80")))
