"""Published ports of a running sandbox, and unix sockets on the host's side of one."""

import json
import os
import signal
import socket
import stat
import subprocess
import threading

import netkit
from casekit import runtime, until_known
from harness import case, descendants
from netkit import (ENDS, HOST4, SERVICE, World, answers, connects, events_of, service, stop)


def port(ctx, *words, **kw):
    return ctx.run(ctx.nsbox, "port", *words, **kw)


def listed(ctx, name):
    out = ctx.ok(port(ctx, "ls", "--json", name)).out
    return [json.loads(line) for line in out.splitlines()]


def over_unix(path, text=b"ping"):
    """As connects(), through a unix socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        try:
            sock.connect(path)
            sock.sendall(text)
            return sock.recv(100).decode() or "end"
        except ConnectionRefusedError:
            return "refused"
        except FileNotFoundError:
            return "missing"
        except (ConnectionResetError, BrokenPipeError):
            return "reset"


def unix_server(path, backlog=100, talk=netkit.echo_stream):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(backlog)
    threading.Thread(target=netkit.serve_streams, args=(sock, talk), daemon=True).start()
    return sock


def is_free(kind, address, number):
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            sock.bind((address, number))
        except OSError:
            return False
    return True


@case("N-ports-live", "ports are added, listed and removed while a sandbox runs", timeout=120)
def live(ctx):
    runtime(ctx)
    world = World(ctx)
    read, write = os.pipe()
    proc = world.start(netkit.PYTHON, "-c", SERVICE, "tcp", "0.0.0.0", "8000", net="user",
                       options=(*ENDS, "--name", "box", "--events-fd", "9", "-p", "9000:8000"),
                       fds={9: write}, stdin=subprocess.PIPE)
    os.close(write)
    ctx.eq(proc.stdout.readline(), b"listens\n", "the service")
    until_known(ctx, "box")
    result = ctx.ok(port(ctx, "add", "box", "9001:8000", f"{HOST4}:9002:8000", "9001:8000/udp"))
    ctx.eq(result.out.splitlines(),
           ["localhost:9001/tcp leads to port 8000", f"{HOST4}:9002/tcp leads to port 8000",
            "localhost:9001/udp leads to port 8000"], "what is said")
    for address, number in (("127.0.0.1", 9000), ("127.0.0.1", 9001), ("::1", 9001),
                            (HOST4, 9002)):
        ctx.eq(connects(address, number), "ping", f"{address} {number}")
    ctx.eq([(p["protocol"], p["address"], p["host-port"], p["port"]) for p in listed(ctx, "box")],
           [("tcp", None, 9000, 8000), ("tcp", None, 9001, 8000), ("tcp", HOST4, 9002, 8000),
            ("udp", None, 9001, 8000)], "the list")
    ctx.true("localhost:9001/udp  ->  8000" in ctx.ok(port(ctx, "ls", "box")).out, "the table")
    chosen = ctx.ok(port(ctx, "add", "box", "0:8000")).out
    answers(ctx, "127.0.0.1", int(chosen.split("/tcp")[0].rsplit(":", 1)[1]))
    ctx.true(not is_free(socket.SOCK_DGRAM, "127.0.0.1", 9001), "the port is taken")
    ctx.ok(port(ctx, "rm", "box", "9001", "9001/udp", f"{HOST4}:9002:8000"))
    # At once, and for whoever wants it.
    ctx.eq([connects("127.0.0.1", 9001), connects("::1", 9001), connects(HOST4, 9002)],
           ["refused"] * 3, "afterwards")
    ctx.true(is_free(socket.SOCK_DGRAM, "127.0.0.1", 9001), "the UDP port is free")
    ctx.true(is_free(socket.SOCK_STREAM, HOST4, 9002), "the TCP port is free")
    ctx.eq(connects("127.0.0.1", 9000), "ping", "the one that stays")
    ctx.ok(port(ctx, "add", "box", "9001:8000"))
    ctx.eq(connects("127.0.0.1", 9001), "ping", "the one that comes again")
    if ctx.root:
        ctx.ok(port(ctx, "add", "box", "80:8000"))
        ctx.eq(connects("127.0.0.1", 80), "ping", "a port of root's")
        ctx.ok(port(ctx, "rm", "box", "80"))
    else:
        ctx.fails(port(ctx, "add", "box", "80:8000"), rc=125, err="below 1024 are for root")
    stop(ctx, proc)
    text = b""
    while chunk := os.read(read, 65536):
        text += chunk
    os.close(read)
    found = [(e["event"], e["protocol"], e["host-port"]) for e in events_of(text.decode())
             if e["event"].startswith("port") and e["host-port"] != 80]
    ctx.eq(found[:4] + found[5:],
           [("port", "tcp", 9000), ("port", "tcp", 9001), ("port", "tcp", 9002),
            ("port", "udp", 9001), ("port-removed", "tcp", 9001), ("port-removed", "udp", 9001),
            ("port-removed", "tcp", 9002), ("port", "tcp", 9001)], "the events")


@case("N-ports-errors", "what cannot be added or removed is said, and changes nothing")
def errors(ctx):
    runtime(ctx)
    world = World(ctx)
    proc = service(world, "9000:8000", options=("--name", "box"))
    until_known(ctx, "box")
    taken = netkit.bound(socket.SOCK_STREAM, "127.0.0.1", 9001)
    for words, error in ((("9001:8000",), "127.0.0.1:9001/tcp: Address already in use"),
                         (("9000:80",), "localhost:9000/tcp: it is published already"),
                         (("192.0.2.77:9003:80",), "Cannot assign requested address"),
                         (("unix:/nowhere/x:80",), "unix socket /nowhere/x: No such file"),
                         (("unix:/etc/passwd:80",), "/etc/passwd: Address already in use.*exists"),
                         (("9003",), "--publish takes"),
                         (("--host-socket", "/x"), "--host-socket takes PATH:PORT"),
                         (("--host-socket", "/x:8000"), "bind inside to 127.0.0.1:8000: Address"),
                         (("--host-socket",), "takes an argument")):
        ctx.fails(port(ctx, "add", "box", *words), rc=125, err=error)
    for words, error in ((("9001",), "localhost:9001/tcp: it is not published"),
                         (("9000/udp",), "localhost:9000/udp: it is not published"),
                         (("127.0.0.1:9000",), "127.0.0.1:9000/tcp: it is not published"),
                         (("x",), 'described by "x"')):
        ctx.fails(port(ctx, "rm", "box", *words), rc=125, err=error)
    ctx.fails(port(ctx, "rm", "box"), rc=125, err="usage: nsbox port")
    ctx.fails(port(ctx, "frob", "box"), rc=125, err="usage: nsbox port")
    ctx.fails(port(ctx, "ls", "other"), rc=125, err="No running sandbox is called other")
    ctx.eq([p["host-port"] for p in listed(ctx, "box")], [9000], "the list")
    taken.close()
    ctx.ok(port(ctx, "add", "box", "9001:8000"))
    answers(ctx, "127.0.0.1", 9001)
    stop(ctx, proc)
    # One without such a network has no ports.
    plain = ctx.popen(ctx.nsbox, "--unshare-net", "--name", "plain", *netkit.SYSTEM, "sh", "-c",
                      "echo ready; read x || :", stdin=subprocess.PIPE)
    plain.stdout.readline()
    until_known(ctx, "plain")
    ctx.fails(port(ctx, "add", "plain", "9001:8000"), rc=125, err="without --net user")
    ctx.fails(port(ctx, "ls", "plain"), rc=125, err="without --net user")
    plain.stdin.close()
    ctx.eq(plain.wait(20), 0, "its status")


@case("N-ports-helper", "without its network a sandbox has no port added, and says so")
def without_helper(ctx):
    runtime(ctx)
    world = World(ctx)
    proc = service(world, "9000:8000", net="user,required=off", options=("--name", "box"))
    helper = [pid for pid, name in descendants(proc.pid) if name == "nsbox-net"][0]
    os.kill(helper, signal.SIGKILL)
    ctx.until(lambda: connects("127.0.0.1", 9000) == "refused", 20, "the helper's end")
    ctx.until(lambda: "it has ended" in port(ctx, "add", "box", "9001:8000").err, 20, "the reason")
    stop(ctx, proc)


@case("N-ports-ipv6", "a service that is there by IPv6 alone is reached through a published port")
def ipv6_alone(ctx):
    world = World(ctx)
    path = os.path.join(ctx.dir, "in.sock")
    for address, word in (("::1", "localhost:"), (netkit.GUEST6, "")):
        proc = service(world, f"9000:{word}8000", address=address,
                       options=("-p", f"unix:{path}:{word}8000"))
        for host in ("127.0.0.1", "::1"):
            answers(ctx, host, 9000)
        ctx.until(lambda: over_unix(path) == "ping", 20, "an answer")
        stop(ctx, proc)
    # What is not published is not reached by it.
    proc = service(world, "9000:8000", address="::1")
    ctx.eq(connects("127.0.0.1", 9000), "refused", "the loopback's")
    stop(ctx, proc)


@case("N-unix-in", "a unix socket of the host leads to a service inside, and goes with the sandbox",
      timeout=120)
def unix_in(ctx):
    runtime(ctx)
    world = World(ctx)
    folder = ctx.mkdir("d" * 120)  # Longer than what sun_path holds.
    path, short = os.path.join(folder, "in.sock"), os.path.join(ctx.dir, "s")
    os.symlink(folder, os.path.join(ctx.dir, "l"))
    by_link = os.path.join(ctx.dir, "l", "in.sock")
    os.umask(0o027)
    for net in ("user", "user,outbound=off"):
        proc = service(world, f"unix:{path}:8000", net=net, options=("--name", "box"))
        os.umask(0o022)
        until_known(ctx, "box")
        ctx.eq(stat.S_IMODE(os.lstat(path).st_mode), 0o750, "the mode of the socket's file")
        ctx.until(lambda: over_unix(by_link) == "ping", 20, "an answer")
        ctx.eq(over_unix(by_link, b"who"), netkit.GUEST4, "the client's address")
        ctx.ok(port(ctx, "add", "box", "unix:s:8000", cwd=ctx.dir))
        ctx.eq(over_unix(short), "ping", "one that was added")
        ctx.ok(port(ctx, "rm", "box", "unix:s", cwd=ctx.dir))
        ctx.eq(over_unix(short), "missing", "one that was removed")
        ctx.ok(port(ctx, "add", "box", f"unix:{short}:8000"))
        stop(ctx, proc)
        ctx.eq([os.path.lexists(path), os.path.lexists(short)], [False, False], "afterwards")
        os.umask(0o027)
    os.umask(0o022)
    proc = service(world, f"unix:{path}:localhost:8000", address="127.0.0.1",
                   options=("-p", f"unix:{short}:8000"))
    ctx.until(lambda: over_unix(by_link) == "ping", 20, "a service of the loopback")
    ctx.eq(over_unix(short), "refused", "without the option")
    stop(ctx, proc)


@case("N-unix-refused", "a unix socket of the host refuses while nothing listens inside")
def unix_refused(ctx):
    world = World(ctx)
    path = os.path.join(ctx.dir, "in.sock")
    code = SERVICE.replace("s.bind((address, port))",
                           "s.bind((address, port)); print('bound', flush=True); "
                           "sys.stdin.readline()")
    # It stops listening, and listens again.
    code += "s.shutdown(socket.SHUT_RD); print('stopped', flush=True); sys.stdin.readline()\n" \
            "s.listen(100); print('listens', flush=True); sys.stdin.readline()\n"
    code = code.replace("c, peer = s.accept()", "c, peer = s.accept()").replace(
        "threading.Thread(target=serve, daemon=True).start()",
        "threading.Thread(target=echo, daemon=True).start()")
    code = code.replace("def serve():", "def echo():\n    while True:\n        try:\n"
                        "            c, peer = s.accept()\n            c.sendall(c.recv(100))\n"
                        "            c.close()\n        except OSError: time.sleep(0.02)\n"
                        "def serve():")
    proc = world.start(netkit.PYTHON, "-c", code, "tcp", "0.0.0.0", "8000", stdin=subprocess.PIPE,
                       options=(*ENDS, "-p", f"unix:{path}:8000"))

    def step(expected):
        ctx.eq(proc.stdout.readline(), expected, "the service")

    def go_on():
        proc.stdin.write(b"\n")
        proc.stdin.flush()

    step(b"bound\n")
    ctx.eq(over_unix(path), "refused", "before")
    go_on()
    step(b"listens\n")
    for _ in range(3):
        ctx.until(lambda: over_unix(path) == "ping", 20, "an answer")
    go_on()
    step(b"stopped\n")
    ctx.until(lambda: over_unix(path) == "refused", 20, "a refusal")
    go_on()
    step(b"listens\n")
    ctx.until(lambda: over_unix(path) == "ping", 20, "an answer again")
    ctx.eq(os.listdir(ctx.dir).count("in.sock"), 1, "the file")
    stop(ctx, proc)
    ctx.eq([n for n in os.listdir(ctx.dir) if "sock" in n or n.startswith(".nsbox")], [],
           "what is left")


@case("N-unix-killed", "the file of a unix socket goes when nsbox is killed, and nothing else does")
def unix_killed(ctx):
    world = World(ctx)
    path = os.path.join(ctx.dir, "in.sock")
    for _ in range(3):
        proc = service(world, f"unix:{path}:8000")
        ctx.until(lambda: over_unix(path) == "ping", 20, "an answer")
        proc.kill()
        proc.wait(20)
        ctx.until(lambda: not os.path.lexists(path), 20, "the end of the file")
    # A file that has come to its place is not ours.
    proc = service(world, f"unix:{path}:8000")
    os.unlink(path)
    with open(path, "w", encoding="ascii") as file:
        file.write("mine")
    stop(ctx, proc)
    with open(path, encoding="ascii") as file:
        ctx.eq(file.read(), "mine", "the other file")


@case("N-unix-out", "a unix socket of the host is a port inside, byte for byte", timeout=120)
def unix_out(ctx):
    runtime(ctx)
    world = World(ctx)
    path, late = os.path.join(ctx.dir, "out.sock"), os.path.join(ctx.dir, "late.sock")
    server = unix_server(path)
    code = netkit.CLIENT + r"""
def try_it(port):
    print(tcp("127.0.0.1", port), flush=True)
def bulk(port, size):
    s = socket.create_connection(("127.0.0.1", port))
    data = os.urandom(65536)
    sent, got = hashlib.sha256(), hashlib.sha256()
    def send():
        for _ in range(size // len(data)):
            s.sendall(data); sent.update(data)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send); t.start()
    while True:
        chunk = s.recv(65536)
        if not chunk: break
        got.update(chunk)
    t.join()
    print(sent.digest() == got.digest(), flush=True)
for line in sys.stdin:
    exec(line)
"""
    for net in ("user", "user,outbound=off"):
        proc = world.start(netkit.PYTHON, "-c", code, net=net, stdin=subprocess.PIPE,
                           options=(*ENDS, "--name", "box", "--host-socket", f"{path}:80",
                                    "--host-socket", f"{late}:8001"))

        def do(line):
            proc.stdin.write(line.encode() + b"\n")
            proc.stdin.flush()
            return proc.stdout.readline().decode().strip()

        ctx.eq(do("try_it(80)"), "ok", "a port below 1024")
        ctx.eq(do("bulk(80, 64 << 20)"), "True", "64 MiB there and back")
        ctx.eq(do("try_it(8001)"), "ECONNRESET", "nobody is there yet")
        other = unix_server(late)
        ctx.eq(do("try_it(8001)"), "ok", "the server has come")
        other.close()
        os.unlink(late)
        # Whoever may write there may not choose another socket of the host by that.
        os.symlink(path, late)
        ctx.eq(do("try_it(8001)"), "ECONNRESET", "a link to another socket")
        ctx.fails(port(ctx, "add", "box", "--host-socket", f"{late}:8003"), rc=125,
                  err="late.sock: Too many levels.*name the socket itself")
        os.unlink(late)
        ctx.eq(do("try_it(8002)"), "ECONNREFUSED", "what was not opened")
        ctx.ok(port(ctx, "add", "box", "--host-socket", "out.sock:8002", cwd=ctx.dir))
        ctx.eq(do("try_it(8002)"), "ok", "one that was added")
        ctx.eq([(p["protocol"], p["path"], p["port"]) for p in listed(ctx, "box")],
               [("host-socket", path, 80), ("host-socket", late, 8001),
                ("host-socket", path, 8002)], "the list")
        ctx.ok(port(ctx, "rm", "box", "--host-socket", "8002"))
        ctx.eq(do("try_it(8002)"), "ECONNREFUSED", "one that was removed")
        stop(ctx, proc)
        ctx.true(os.path.exists(path), "the server's socket is left alone")
    server.close()


@case("N-unix-busy", "a server of few connections at a time serves hundreds from inside", timeout=120)
def unix_busy(ctx):
    world = World(ctx)
    path = os.path.join(ctx.dir, "out.sock")

    def one_by_one(client):
        with client:
            client.sendall(client.recv(100))

    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(1)

    def serve():
        while True:
            one_by_one(sock.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    code = r"""
socks = [socket.create_connection(("127.0.0.1", 8001)) for _ in range(200)]
for s in socks: s.settimeout(60)
for number, s in enumerate(socks): s.sendall(b"%d" % number)
print(sum(s.recv(10) == b"%d" % number for number, s in enumerate(socks)))
"""
    result = world.python(code, options=("--host-socket", f"{path}:8001"), timeout=90)
    ctx.eq(ctx.ok(result).out.strip(), "200", "answers")
