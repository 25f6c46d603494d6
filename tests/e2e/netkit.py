"""A network of the tests' own, for suites about sandboxes with a network.

`World(ctx)` moves the case's process into a network namespace that plays the host (and, for an
ordinary user, into a user namespace in which it keeps its ids, so that the program under test is an
ordinary user there too). A second namespace is "the internet": a name server and echo servers.
Nothing leaves the machine. Addresses are those of the documentation (RFC 5737, RFC 3849).
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading

import nshelp

HOST4, HOST6 = "192.0.2.1", "2001:db8:1::1"
PEER4, PEER6 = "192.0.2.2", "2001:db8:1::2"
FAR4, FAR6 = "198.51.100.9", "2001:db8:2::9"
GATEWAY4, GATEWAY6 = "10.0.2.2", "fd00::2"
DNS4, DNS6 = "10.0.2.3", "fd00::3"
GUEST4, GUEST6 = "10.0.2.100", "fd00::100"

ECHO = 7  # TCP and UDP, in the internet.
WHO = 9  # There too: answers with the client's address.

SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
PYTHON = "/usr/bin/python3"

HOST_PLAN = f"""
ip link set lo up
ip link add up0 type veth peer name net0 netns @PID@
ip addr add {HOST4}/24 dev up0
ip link set up0 up
ip route add default via {PEER4}
if ip -6 addr add {HOST6}/64 dev up0 nodad; then ip -6 route add default via {PEER6}; fi
"""
INTERNET_PLAN = f"""
ip link set lo up
ip addr add {PEER4}/24 dev net0
ip addr add {FAR4}/32 dev lo
ip link set net0 up
if ip -6 addr add {PEER6}/64 dev net0 nodad; then ip -6 addr add {FAR6}/128 dev lo nodad; fi
"""


def keep_capabilities():
    """For `pre`: what is executed next keeps the rights that this process has in its namespaces."""
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    header = Header(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    nshelp.check(nshelp.LIBC.syscall(125, ctypes.byref(header), sets), "capget")
    sets[2], sets[5] = sets[1], sets[4]
    nshelp.check(nshelp.LIBC.syscall(126, ctypes.byref(header), sets), "capset")
    for cap in range(41):
        nshelp.LIBC.prctl(47, 2, cap, 0, 0)  # PR_CAP_AMBIENT_RAISE


def configure(plan):
    """Runs commands of ip(8) with this process's rights."""
    done = subprocess.run(["/bin/sh", "-e", "-c", plan], preexec_fn=keep_capabilities,
                          capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise AssertionError(f"the test network cannot be made: {done.stderr}")


def bound(kind, address, port, v6only=True):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6only))
    sock.bind((address, port))
    if kind == socket.SOCK_STREAM:
        sock.listen(1024)
    return sock


def echo_stream(client):
    with client:
        while True:
            try:
                data = client.recv(65536)
                if not data:
                    return
                client.sendall(data)
            except OSError:
                return


def serve_streams(listener, talk=echo_stream):
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=talk, args=(client,), daemon=True).start()


def serve_datagrams(sock, answer=lambda data: data):
    while True:
        try:
            data, peer = sock.recvfrom(65536)
            reply = answer(data)
            if reply is not None:
                sock.sendto(reply, peer)
        except OSError:
            return


def say_who(client):
    with client:
        client.sendall(client.getpeername()[0].encode())


def serve_who(sock):
    while True:
        peer = sock.recvfrom(65536)[1]
        sock.sendto(peer[0].encode(), peer)


class Names:
    """A small name server: A and AAAA of the names it knows, and a TXT that is large. What begins
    with "cut" it answers by TCP only: a datagram says that there is more."""

    def __init__(self, table):
        self.table = table
        self.asked = []

    def talk(self, client):
        """Queries by TCP, each behind its length."""
        with client, client.makefile("rb") as stream:
            while len(head := stream.read(2)) == 2:
                answer = self.answer(stream.read(int.from_bytes(head, "big")), by_tcp=True)
                client.sendall(len(answer).to_bytes(2, "big") + answer)

    def answer(self, query, by_tcp=False):
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += query[at] + 1
        end = at + 5
        kind = struct.unpack("!H", query[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        self.asked.append(name)
        records = []
        for address in self.table.get(name, ()):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (28 if family == socket.AF_INET6 else 1):
                records.append(socket.inet_pton(family, address))
        if kind == 16 and name.startswith("large"):
            records += [bytes([255]) + b"x" * 255] * 20
        code = 0 if name in self.table else 3
        is_cut = name.startswith("cut") and not by_tcp
        if is_cut:
            records = []
        flags = 0x8180 | code | (0x0200 if is_cut else 0)
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(r)) + r
                        for r in records)
        return head + query[12:end] + body


def in_threads(*calls):
    for function, *arguments in calls:
        threading.Thread(target=function, args=arguments, daemon=True).start()


class World:
    def __init__(self, ctx, names=None, as_root=False):
        """With `as_root` an ordinary user becomes root of namespaces of its own."""
        self.ctx = ctx
        self.has_own_etc = False
        self.names = names or {"test.example": (FAR4, FAR6), "large.example": (),
                               "cut.example": (FAR4, FAR6)}
        if os.getuid() == 0:
            nshelp.unshare(nshelp.CLONE_NEWNET | nshelp.CLONE_NEWNS)
        else:
            nshelp.new_userns(as_root, extra=nshelp.CLONE_NEWNET | nshelp.CLONE_NEWNS)
        nshelp.mount(None, "/", None, nshelp.MS_REC | nshelp.MS_PRIVATE)
        self.internet = self.fork(self.run_internet)
        configure(HOST_PLAN.replace("@PID@", str(self.internet[0])))
        self.tell(self.internet)
        self.set_servers(PEER4)

    # -- processes -------------------------------------------------------------------------

    def fork(self, function):
        """A process that begins with function(wait, ready) and ends with the case."""
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            nshelp.LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)
            os.close(down_write)
            try:
                function(lambda: os.read(down_read, 1), lambda: os.write(up_write, b"x"))
            finally:
                os._exit(1)
        os.close(down_read)
        os.close(up_write)
        process = (pid, down_write, up_read)
        self.hear(process)
        self.ctx.started.append(Forked(pid))
        return process

    def tell(self, process):
        os.write(process[1], b"x")
        self.hear(process)

    @staticmethod
    def hear(process):
        if not select.select([process[2]], [], [], 30)[0] or not os.read(process[2], 1):
            raise AssertionError("a process of the test network has ended")

    def run_internet(self, wait, ready):
        nshelp.unshare(nshelp.CLONE_NEWNET)
        ready()
        wait()
        configure(INTERNET_PLAN)
        names = Names(self.names)
        for address in (PEER4, FAR4, PEER6, FAR6):
            # One of the wildcard would answer from another address than it was asked at.
            in_threads((serve_streams, bound(socket.SOCK_STREAM, address, WHO), say_who),
                       (serve_who, bound(socket.SOCK_DGRAM, address, WHO)),
                       (serve_streams, bound(socket.SOCK_STREAM, address, ECHO)),
                       (serve_datagrams, bound(socket.SOCK_DGRAM, address, ECHO)),
                       (serve_datagrams, bound(socket.SOCK_DGRAM, address, 53), names.answer),
                       (serve_streams, bound(socket.SOCK_STREAM, address, 53), names.talk))
        ready()
        while True:
            signal.pause()

    # -- the host --------------------------------------------------------------------------

    def set_servers(self, *servers, more=""):
        """What the host's /etc/resolv.conf says. The folder is a private one."""
        etc = os.path.join(self.ctx.dir, "etc")
        if not os.path.isdir(etc):
            shutil.copytree("/etc", etc, symlinks=True, ignore=self.only_names)
        if not self.has_own_etc:
            nshelp.mount(etc, "/etc", None, nshelp.MS_BIND)
            self.has_own_etc = True
        text = "".join(f"nameserver {server}\n" for server in servers) + more
        fresh = os.path.join("/etc", "resolv.conf.new")
        with open(fresh, "w", encoding="ascii") as file:
            file.write(text)
        os.rename(fresh, "/etc/resolv.conf")

    @staticmethod
    def only_names(folder, entries):
        wanted = {"passwd", "group", "nsswitch.conf", "host.conf", "ld.so.cache", "hosts",
                  "alternatives", "protocols", "services", "gai.conf"}
        return [] if folder != "/etc" else [name for name in entries if name not in wanted]

    # -- sandboxes -------------------------------------------------------------------------

    def sandbox(self, *command, options=(), net="user", **kw):
        return self.ctx.run(self.ctx.nsbox, "--net", net, *options, *SYSTEM, *command, **kw)

    def start(self, *command, options=(), net="user", **kw):
        return self.ctx.popen(self.ctx.nsbox, "--net", net, *options, *SYSTEM, *command, **kw)

    def python(self, code, *words, **kw):
        return self.sandbox(PYTHON, "-c", CLIENT + code, *words, **kw)


class Forked:
    """What the harness ends with the case."""

    def __init__(self, pid):
        self.pid = pid
        self.code = None

    def poll(self):
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = status if done else None
        return self.code

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout=None):
        del timeout
        if self.code is None:
            self.code = os.waitpid(self.pid, 0)[1]
        return self.code


# Helpers for what runs inside; each prints one word.
CLIENT = r'''
import errno, hashlib, os, socket, sys, threading, time
def family(address): return socket.AF_INET6 if ":" in address else socket.AF_INET
def tcp(address, port, text=b"ping", seconds=20):
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(seconds)
    try:
        s.connect((address, int(port)))
        s.sendall(text)
        got = s.recv(100)
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    return "ok" if got == text else "wrong"
def udp(address, port, text=b"ping", seconds=3):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.settimeout(seconds)
    s.connect((address, int(port)))
    try:
        s.send(text)
        got = s.recv(65536)
    except socket.timeout:
        return "silent"
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    return "ok" if got == text else "wrong"
'''


# -- services that are published -----------------------------------------------------------

# Nothing of it outlives nsbox.
ENDS = ("--unshare-pid", "--die-with-parent")

# A service inside: it says when it listens, and ends when it is told to.
SERVICE = CLIENT + r"""
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(family(address), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((address, port))
def serve():
    if kind == "udp":
        while True:
            data, peer = s.recvfrom(65536)
            s.sendto(data, peer)
    import selectors
    ready = selectors.DefaultSelector()
    ready.register(s, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is s:
                c, peer = s.accept()
                ready.register(c, selectors.EVENT_READ, peer)
                continue
            data = key.fileobj.recv(65536)
            if data:
                key.fileobj.sendall(key.data[0].encode() if data == b"who" else data)
            else:
                ready.unregister(key.fileobj)
                key.fileobj.close()
if kind == "tcp":
    s.listen(100)
threading.Thread(target=serve, daemon=True).start()
print("listens", flush=True)
sys.stdin.readline()
"""


def service(world, publish, kind="tcp", address="0.0.0.0", port=8000, net="user", options=()):
    proc = world.start(PYTHON, "-c", SERVICE, kind, address, str(port), net=net,
                       options=(*ENDS, "-p", publish, *options), stdin=subprocess.PIPE)
    line = proc.stdout.readline()
    if line != b"listens\n":
        raise AssertionError(f"the service: {line!r} {proc.stderr.read()!r}")
    return proc


def stop(ctx, proc):
    proc.stdin.close()
    ctx.eq(proc.wait(30), 0, "the status of the service")


def connects(address, port):
    """What a client outside meets: the first word of an echo, or why there is none."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.settimeout(20)
    with sock:
        try:
            sock.connect((address, port))
            sock.sendall(b"ping")
            return sock.recv(100).decode() or "end"
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:
            return "reset"


def answers(ctx, address, port):
    """A service is seen within 50 ms of its beginning, on an idle machine."""
    ctx.until(lambda: connects(address, port) == "ping", 20, f"an answer of {address} {port}")


def events_of(text):
    return [json.loads(line) for line in text.splitlines()]


def links(ctx):
    """Every way to connect a sandbox that this user has: a tap is for root."""
    return ("veth", "tap") if ctx.root and os.path.exists("/dev/net/tun") else ("veth",)


def reap_adopted():
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
