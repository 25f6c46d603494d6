"""Sandboxes whose TCP connections the helper relays: `--net user,tcp=relay`.

What suite_n has for the frames' path, for this one: the same rules, told by a reset. Every refusal
stands beside the same action where it is allowed.
"""

import errno
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading

import bpf
import harness
import netkit
from harness import case
from netkit import (DNS4, DNS6, FAR4, FAR6, GATEWAY4, GATEWAY6, GUEST4, GUEST6, HOST4, HOST6,
                    PEER4, World)

ENDS = ("--unshare-pid", "--die-with-parent")
RESET = "ECONNRESET"


def nets(ctx):
    """By every link that this user can have: a tap is for root."""
    kinds = ("veth", "tap") if ctx.root and os.path.exists("/dev/net/tun") else ("veth",)
    return [f"user,tcp=relay,link={kind}" for kind in kinds]


def words(ctx, result):
    return ctx.ok(result).out.split()


def serve(address, port, talk=netkit.echo_stream):
    listener = netkit.bound(socket.SOCK_STREAM, address, port)
    netkit.in_threads((netkit.serve_streams, listener, talk))
    return listener


def helpers_below(pid):
    return sorted(p for p, name in harness.descendants(pid) if name == "nsbox-net")


def next_line(proc):
    return proc.stdout.readline().decode().strip()


def go_on(proc):
    proc.stdin.write(b"\n")
    proc.stdin.flush()


# The listener is among what listens on the sandbox's loopback; nothing else does when this begins.
LISTENERS = r'''
def listeners():
    found = []
    for name, host in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        for line in open("/proc/net/" + name).read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A": found.append((host, int(fields[1].split(":")[1], 16)))
    return found
def sent():
    for line in open("/proc/net/dev"):
        if line.split(":")[0].strip() == "eth0": return int(line.split(":")[1].split()[8])
'''


@case("N-relay", "TCP by IPv4 and IPv6 goes by the relay and everything else as before", timeout=120)
def reach(ctx):
    world = World(ctx)
    code = LISTENERS + r"""
a, b = sys.argv[1:]
before = sent()
print(*(tcp(x, 7, b"p" * 64) for x in (a, b)))
for x in (a, b):
    s = socket.create_connection((x, 7), 20)
    for _ in range(40): s.sendall(b"x" * 65536); assert s.recv(65536 * 8, socket.MSG_WAITALL * 0)
print("few" if sent() - before < 100000 else "many")
print(*(udp(x, 7) for x in (a, b)))
"""
    for net in nets(ctx):
        read, write = os.pipe()
        result = world.python(code, FAR4, FAR6, net=net, options=("--events-fd", "9"),
                              fds={9: write})
        os.close(write)
        ctx.eq(words(ctx, result), ["ok", "ok", "few", "ok", "ok"], net)
        found = [json.loads(line) for line in os.read(read, 65536).decode().splitlines()]
        os.close(read)
        ctx.eq([e["tcp"] for e in found if e["event"] == "network"], ["relay"], "the event")
        plain = net.replace("tcp=relay", "tcp=slirp")
        ctx.eq(words(ctx, world.python(code, FAR4, FAR6, net=plain))[2], "many", plain)
        # Without access to the outside both are refused, each in its way.
        code_off = "print(*(f(a, 7) for f in (tcp, udp) for a in sys.argv[1:]))"
        got = words(ctx, world.python(code_off, FAR4, FAR6, net=f"{net},outbound=off"))
        ctx.eq(got, [RESET, RESET, "EHOSTUNREACH", "EACCES"], f"{net}: without outbound access")
        got = words(ctx, world.python("print(*(tcp(a, 7) for a in sys.argv[1:]))", FAR4, FAR6,
                                      net=f"{net},ipv6=off"))
        ctx.eq(got, ["ok", "ENETUNREACH"], f"{net}: without IPv6")


@case("N-relay-errors", "a way for TCP that does not exist is refused by its name")
def errors(ctx):
    for text in ("user,tcp=x", "user,tcp", "user,tcp=on"):
        ctx.fails(ctx.run(ctx.nsbox, "--net", text, *netkit.SYSTEM, "true"), rc=1,
                  err="tcp takes slirp or relay")
    for text in ("user,tcp=slirp", "user,tcp=relay"):
        ctx.ok(ctx.run(ctx.nsbox, "--net", text, *netkit.SYSTEM, "true"))


@case("N-relay-missing", "a kernel without nf_tables is named, with what to do")
def missing(ctx):
    # As if it was: whoever asks for netlink's protocol of packet filters gets none.
    call, protocol, netfilter = (41 if bpf.ON_X86 else 198), bpf.FIRST_ARGUMENT + 16, 12
    code = b"".join([*bpf.start(), bpf.instruction(bpf.JUMP_EQUAL, call, 0, 3),
                     bpf.instruction(bpf.LOAD_WORD, protocol),
                     *bpf.answer(netfilter, bpf.refuse(errno.EPROTONOSUPPORT)),
                     bpf.instruction(bpf.RETURN, bpf.ALLOW)])
    program = ctx.write("filter", "")
    with open(program, "wb") as file:
        file.write(code)
    wrapper = ("import ctypes, os, struct, sys\n"
               "code = open(sys.argv[1], 'rb').read(); libc = ctypes.CDLL(None)\n"
               "room = ctypes.create_string_buffer(code)\n"
               "head = struct.pack('HxxxxxxP', len(code) // 8, ctypes.addressof(room))\n"
               "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head) == 0\n"
               "os.execv(sys.argv[2], sys.argv[2:])\n")
    for net, lacks in (("user,tcp=relay", True), ("user,tcp=slirp", False)):
        result = ctx.run(netkit.PYTHON, "-c", wrapper, program, ctx.nsbox, "--net", net,
                         *netkit.SYSTEM, "true")
        if lacks:
            ctx.fails(result, rc=1, err=r"Can't set up packet rules netlink: Protocol not "
                      r"supported \(hint: the kernel needs nf_tables.*tcp=slirp takes no")
        else:
            ctx.ok(result)


@case("N-relay-host", "the host is out of the relay's reach by every address of its own",
      timeout=120)
def host(ctx):
    world = World(ctx)
    kept = [serve(address, 7000) for address in ("0.0.0.0", "::")]
    code = "print(*(tcp(a, 7000) for a in sys.argv[1:]))"
    addresses = (GATEWAY4, GATEWAY6, HOST4, HOST6)
    control = ctx.run(netkit.PYTHON, "-c", netkit.CLIENT + code, "127.0.0.1", "::1", HOST4, HOST6)
    ctx.eq(words(ctx, control), ["ok"] * 4, "outside")
    for net in nets(ctx):
        for more in ("", ",outbound=off"):
            got = words(ctx, world.python(code, *addresses, net=net + more))
            ctx.eq(got, [RESET] * 4, net + more)
            got = words(ctx, world.python(code, *addresses, net=net + more,
                                          options=("--host-loopback", "80,6999-7001")))
            ctx.eq(got, ["ok", "ok", RESET, RESET], f"{net + more}: the ports that are open")
            got = words(ctx, world.python(code, *addresses, net=net + more,
                                          options=("--host-loopback", "6999,7001")))
            ctx.eq(got, [RESET] * 4, f"{net + more}: other ports")
    # What no frame may carry a connection to, no relay does either.
    strange = ("0.0.0.1", "10.0.2.9", "10.0.2.3", "240.0.0.1", "fd00::77")
    got = words(ctx, world.python(code, *strange, net=nets(ctx)[0],
                                  options=("--host-loopback", "all")))
    ctx.eq(got, [RESET] * len(strange), "strange ones")
    ctx.eq(len(kept), 2, "the servers")


@case("N-relay-change", "an address that the host gets is out of the relay's reach at once")
def change(ctx):
    world = World(ctx)
    kept = serve("0.0.0.0", 7000)
    code = ("print(tcp(sys.argv[1], 7), flush=True); sys.stdin.readline();"
            "print(tcp('203.0.113.5', 7000), flush=True); sys.stdin.readline();"
            "print(tcp(sys.argv[1], 7))")
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, FAR4, stdin=subprocess.PIPE,
                       net=nets(ctx)[0])
    ctx.eq(next_line(proc), "ok", "before")
    netkit.configure("ip addr add 203.0.113.5/32 dev lo")
    control = ctx.run(netkit.PYTHON, "-c", netkit.CLIENT + "print(tcp('203.0.113.5', 7000))")
    ctx.eq(words(ctx, control), ["ok"], "outside")
    go_on(proc)
    ctx.eq(next_line(proc), RESET, "afterwards")
    go_on(proc)
    ctx.eq(next_line(proc), "ok", "others")
    ctx.eq(proc.wait(30), 0, "the status")
    kept.close()


def count_until_end(client):
    """Answers the end of what comes with how much it was."""
    with client:
        count = 0
        while data := client.recv(65536):
            count += len(data)
        client.sendall(str(count).encode())


def end_first(client):
    """Ends its own direction, then tells by a reset whether all the rest came."""
    client.sendall(b"bye")
    client.shutdown(socket.SHUT_WR)
    got = b""
    while data := client.recv(65536):
        got += data
    FIRST_ENDED.append(len(got))
    client.close()


FIRST_ENDED = []


@case("N-relay-ends", "each direction ends by itself, and a reset is passed on both ways")
def ends(ctx):
    world = World(ctx)
    seen = []

    def note_reset(client):
        with client:
            try:
                seen.append("end" if client.recv(100) == b"" else "data")
                seen.append("end" if client.recv(100) == b"" else "data")
            except ConnectionResetError:
                seen.append("reset")

    def reset(client):
        client.recv(1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    del FIRST_ENDED[:]
    kept = [serve(address, port, talk) for address in ("127.0.0.1", "::1") for port, talk in
            ((7001, count_until_end), (7002, end_first), (7003, reset), (7004, note_reset))]
    code = r"""
import struct
a = sys.argv[1]
s = socket.create_connection((a, 7001), 20)
s.sendall(b"x" * 300000); s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode(), s.recv(100) == b"")
s = socket.create_connection((a, 7002), 20)
print(s.recv(3).decode(), s.recv(100) == b"")
s.sendall(b"y" * 200000); s.close()
s = socket.create_connection((a, 7003), 20); s.sendall(b"xx")
try: print(s.recv(100))
except OSError as e: print(errno.errorcode[e.errno])
s = socket.create_connection((a, 7004), 20); s.sendall(b"x")
# It has been seen when the next one is answered.
print(tcp(a, 7005))
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()
s = socket.create_connection((a, 7004), 20); s.sendall(b"x"); s.close()
"""
    kept += [serve(address, 7005) for address in ("127.0.0.1", "::1")]
    for count, address in enumerate((GATEWAY4, GATEWAY6), 1):
        got = words(ctx, world.python(code, address, net=nets(ctx)[0],
                                      options=("--host-loopback", "7001-7005")))
        ctx.eq(got, ["300000", "True", "bye", "True", RESET, "ok"], address)
        ctx.until(lambda: len(FIRST_ENDED) == count, 20, "the end of the other direction")
        ctx.until(lambda: len(seen) == 4 * count, 20, "the ends that the server sees")
        ctx.eq(sorted(seen[-4:]), ["data", "data", "end", "reset"], f"{address}: what it saw")
    ctx.eq(FIRST_ENDED, [200000] * 2, "what came after the server's end")
    ctx.eq(len(kept), 10, "the servers")


@case("N-relay-refused", "a destination that refuses shows as a reset after the connection")
def refused(ctx):
    world = World(ctx)
    kept = serve("127.0.0.1", 7000)
    code = r"""
for port in (7000, 7001):
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect((sys.argv[1], port)); print("connected")
        s.sendall(b"ping"); print(s.recv(10).decode())
    except OSError as e: print(errno.errorcode[e.errno])
"""
    options = ("--host-loopback", "all")
    got = words(ctx, world.python(code, GATEWAY4, net=nets(ctx)[0], options=options))
    ctx.eq(got[:2], ["connected", "ping"], "the relay, where somebody listens")
    # The reset may come before connect(2) has returned.
    ctx.true(got[2:] in (["connected", RESET], [RESET]), f"the relay: {got}")
    got = words(ctx, world.python(code, GATEWAY4, net="user,tcp=slirp", options=options))
    ctx.eq(got, ["connected", "ping", "ECONNREFUSED"], "libslirp")
    kept.close()


@case("N-relay-many", "a thousand connections at once, also from one port to several destinations",
      timeout=120)
def many(ctx):
    World(ctx)
    kept = netkit.bound(socket.SOCK_STREAM, "127.0.0.1", 7000)
    count = 1000

    def accept_all():
        clients = [kept.accept()[0] for _ in range(count)]
        for client in clients:  # Nothing is answered before all are there.
            client.sendall(client.recv(100, socket.MSG_WAITALL * 0))
        for client in clients:
            client.recv(1)
            client.close()

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 4 * count:
        ctx.skip(f"no more than {limits[1]} descriptors")
    thread = threading.Thread(target=accept_all, daemon=True)
    code = r"""
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
count = int(sys.argv[2])
socks = []
for i in range(count):
    s = socket.create_connection((sys.argv[1], 7000), 60); s.sendall(b"%06d" % i); socks.append(s)
print(sum(s.recv(6, socket.MSG_WAITALL) == b"%06d" % i for i, s in enumerate(socks)))
for s in socks: s.close()
same = []
for a in sys.argv[3:]:
    s = socket.socket(); s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("10.0.2.100", 44444)); s.connect((a, 7)); same.append(s)
for i, s in enumerate(same): s.sendall(b"%d" % i)
print(*(s.recv(9).decode() for s in same))
"""
    # Few descriptors at first: the helper takes as many as it may have.
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * count, limits[1]))
    thread.start()
    command = ("sh", "-c", 'ulimit -S -n 256; exec "$@"', "sh", ctx.nsbox, "--net", nets(ctx)[0],
               "--host-loopback", "7000", *netkit.SYSTEM, netkit.PYTHON, "-c",
               netkit.CLIENT + code, GATEWAY4, str(count), FAR4, PEER4)
    ctx.eq(words(ctx, ctx.run(*command, timeout=90)), [str(count), "0", "1"], "the answers")
    thread.join(20)
    ctx.eq(thread.is_alive(), False, "the server's end")


@case("N-relay-short", "connections beyond the helper's descriptors wait, and none is lost")
def short(ctx):
    World(ctx)
    kept = serve("127.0.0.1", 7000)
    code = r"""
import select
count = int(sys.argv[2])
socks = [socket.create_connection((sys.argv[1], 7000), 60) for _ in range(count)]
for i, s in enumerate(socks): s.sendall(b"%06d" % i)
left, answered, most = dict(enumerate(socks)), 0, 0
# The first ones keep the helper's descriptors until no other one is answered for a while.
while left:
    ready = select.select(list(left.values()), [], [], 1)[0]
    for i in [i for i, s in left.items() if s in ready]:
        s = left.pop(i)
        answered += s.recv(6, socket.MSG_WAITALL) == b"%06d" % i
    if not ready:
        most = max(most, len(left))
        for s in socks:
            if s not in left.values(): s.close()
print(answered, "waited" if most else "none waited")
"""
    for limit, expected in (("64", "waited"), ("400", "none waited")):
        command = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", ctx.nsbox, "--net",
                   nets(ctx)[0], "--host-loopback", "7000", *netkit.SYSTEM, netkit.PYTHON, "-c",
                   netkit.CLIENT + code, GATEWAY4, "45")
        got = ctx.ok(ctx.run(*command, timeout=50)).out.strip()
        ctx.eq(got, f"45 {expected}", f"with {limit} descriptors")
    kept.close()


@case("N-relay-integrity", "200 MB each way at once arrive unchanged", timeout=240)
def integrity(ctx):
    world = World(ctx)
    code = r"""
import random
address, total = sys.argv[1], int(sys.argv[2])
s = socket.create_connection((address, 7), 60)
rng = random.Random(5)
block = rng.randbytes(1 << 20)
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    left = total
    while left:
        size = min(left, rng.randrange(1, 1 << 20))
        sent.update(block[-size:]); s.sendall(block[-size:]); left -= size
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
count = 0
while data := s.recv(1 << 20):
    got.update(data); count += len(data)
t.join()
print(count, sent.digest() == got.digest())
"""
    for address, total in ((FAR4, 200_000_000), (FAR6, 20_000_001)):
        result = world.python(code, address, str(total), net=nets(ctx)[0], timeout=200)
        ctx.eq(words(ctx, result), [str(total), "True"], address)


@case("N-relay-pressure", "what the receiver does not take holds the sender up, and is not lost")
def pressure(ctx):
    world = World(ctx)
    proceed = threading.Event()

    def late(client):
        with client:
            proceed.wait(60)
            count = 0
            while data := client.recv(1 << 20):
                count += len(data)
            client.sendall(str(count).encode())

    kept = serve("127.0.0.1", 7000, late)
    code = r"""
import select
s = socket.create_connection((sys.argv[1], 7000), 60); s.setblocking(False)
count, block = 0, b"x" * 65536
# Full when nothing could be sent for a while; what the kernel's queues hold is bounded.
while select.select([], [s], [], 1.5)[1] and count < 1 << 28:
    count += s.send(block)
print("full" if count < 1 << 28 else "endless", flush=True)
s.setblocking(True); s.settimeout(60)
sys.stdin.readline()
s.shutdown(socket.SHUT_WR)
print(int(s.recv(100)) == count)
"""
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, GATEWAY4, stdin=subprocess.PIPE,
                       net=nets(ctx)[0], options=("--host-loopback", "7000"))
    ctx.eq(next_line(proc), "full", "a receiver that does not read")
    proceed.set()
    go_on(proc)
    ctx.eq(next_line(proc), "True", "what came")
    ctx.eq(proc.wait(30), 0, "the status")
    kept.close()


@case("N-relay-listener", "a connection straight to the relay's listener is refused and makes no loop")
def listener(ctx):
    world = World(ctx)
    code = LISTENERS + r"""
found = listeners()
print(*(f"{host} {port}" for host, port in found), flush=True)
sys.stdin.readline()
for host, port in found:
    for _ in range(20): got = tcp(host, port)
    print(got)
for port in (found[0][1], found[1][1]): print(tcp(sys.argv[2], port))
# A service of the sandbox's own on the same address is reached.
own = socket.socket(); own.bind(("127.0.0.1", 0)); own.listen()
def serve():
    c, _ = own.accept(); c.sendall(c.recv(100)); c.close()
threading.Thread(target=serve, daemon=True).start()
print(tcp(*own.getsockname()), tcp(sys.argv[1], 7))
"""
    for net in nets(ctx):
        for loopback, through in ((("--host-loopback", "all"), "ok"), ((), RESET)):
            proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, FAR4, GATEWAY4, net=net,
                               options=loopback, stdin=subprocess.PIPE)
            found = next_line(proc).split()
            ctx.eq(found[::2], ["127.0.0.1", "::1"], f"{net}: the listeners")
            # The host has services on the very same ports of its own loopback.
            kept = [serve(address, int(port)) for port in found[1::2]
                    for address in ("127.0.0.1", "::1")]
            go_on(proc)
            got = proc.communicate(timeout=60)[0].decode().split()
            ctx.eq(got, [RESET, RESET, through, through, "ok", "ok"], f"{net} {loopback}")
            for sock in kept:
                sock.close()


@case("N-relay-inside", "the sandbox's own addresses and published ports stay what they are",
      timeout=120)
def inside(ctx):
    world = World(ctx)
    code = r"""
addresses = sys.argv[1:]
for a in addresses:
    s = socket.socket(family(a)); s.bind((a, 8000)); s.listen()
    def serve(s):
        while True:
            c, peer = s.accept()
            c.sendall(c.recv(100)); c.close()
    threading.Thread(target=serve, args=(s,), daemon=True).start()
print(*(tcp(a, 8000) for a in addresses), flush=True)
sys.stdin.readline()
"""
    for net in (f"{nets(ctx)[0]},outbound=off", nets(ctx)[-1]):
        proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, "127.0.0.1", GUEST4, "::1",
                           GUEST6, net=net, stdin=subprocess.PIPE,
                           options=(*ENDS, "-p", "9000:8000", "-p", "9001:localhost:8000"))
        ctx.eq(next_line(proc), "ok ok ok ok", f"{net}: inside")
        for port in (9000, 9001):
            ctx.until(lambda p=port: answer_of("127.0.0.1", p) == b"ping", 20, f"port {port}")
        proc.stdin.close()
        ctx.eq(proc.wait(30), 0, "the status")


def answer_of(address, port):
    try:
        with socket.create_connection((address, port), 20) as sock:
            sock.sendall(b"ping")
            return sock.recv(100)
    except OSError:
        return None


@case("N-relay-admin", "a command with CAP_NET_ADMIN cannot change the rules, nor gain by its own",
      timeout=120)
def admin(ctx):
    world = World(ctx)
    if not shutil.which("nft"):
        ctx.skip("nft is not installed")
    kept = serve("0.0.0.0", 7000)
    script = (
        "ip route replace 192.0.2.1/32 via 10.0.2.2\n"
        "nft delete table inet nsbox 2>&1 | grep -c 'Operation not permitted'\n"
        "nft flush ruleset; nft list tables | grep -c 'table inet nsbox'\n"
        "\"$@\"\n"
        # What goes to one destination is led to another one, before it would be redirected.
        "nft add table inet mine\n"
        "nft 'add chain inet mine nat { type nat hook output priority -150; }'\n"
        f"nft add rule inet mine nat ip daddr {FAR4} tcp dport 7000 dnat ip to {HOST4}\n"
        f"nft add rule inet mine nat ip daddr {PEER4} tcp dport 7000 dnat ip to {GATEWAY4}\n"
        "\"$@\"\n"
        # Nothing is redirected any more: what then leaves are frames, which are judged too.
        "nft 'add chain inet mine raw { type filter hook output priority -300; }'\n"
        "nft add rule inet mine raw meta l4proto tcp notrack\n"
        "\"$@\"\n")
    code = netkit.CLIENT + \
        f"print(*(tcp(a, 7000) for a in ('{HOST4}', '{GATEWAY4}', '{FAR4}', '{PEER4}')), " \
        f"tcp('{FAR4}', 7))"
    words_of = ("sh", "-c", script, "sh", netkit.PYTHON, "-c", code)

    def run(*options):
        result = world.sandbox(*words_of, net=nets(ctx)[0], timeout=90,
                               options=("--cap-add", "CAP_NET_ADMIN", *options))
        got = words(ctx, result)
        ctx.eq((len(got), got[:2]), (17, ["1", "1"]), f"the rules are the helper's: {result}")
        return got[2:7], got[7:12], got[12:]

    for when, got in zip(("first", "with rules of its own", "without redirection"), run()):
        ctx.true("ok" not in got[:4] and got[4] == "ok", f"{when}: {got}")
    ctx.eq(answer_of(HOST4, 7000), b"ping", "the server is there")
    # Where it is allowed the same ways lead there, and there alone.
    first, second, third = run("--host-loopback", "7000")
    ctx.eq(first, [RESET, "ok", RESET, RESET, "ok"], "first, with the port")
    ctx.true(second[1] == second[3] == second[4] == "ok" and "ok" not in (second[0], second[2]),
             f"with rules of its own and the port: {second}")
    ctx.true(third[1] == third[4] == "ok" and "ok" not in (third[0], third[2], third[3]),
             f"without redirection, with the port: {third}")
    kept.close()


@case("N-relay-names", "queries over TCP go to the host's name server")
def names(ctx):
    world = World(ctx)
    table = netkit.Names({"test.example": (FAR4,)})

    def talk(client):
        with client:
            size = struct.unpack("!H", client.recv(2, socket.MSG_WAITALL))[0]
            answer = table.answer(client.recv(size, socket.MSG_WAITALL))
            client.sendall(struct.pack("!H", len(answer)) + answer)

    kept = serve("127.0.0.53", 53, talk)
    world.set_servers("127.0.0.53")
    code = r"""
import struct
q = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x04test\x07example\0\0\x01\0\x01"
for server, port in ((sys.argv[1], 53), (sys.argv[2], 53), (sys.argv[1], 54)):
    try:
        s = socket.create_connection((server, port), 20)
        s.sendall(struct.pack("!H", len(q)) + q)
        print(socket.inet_ntoa(s.recv(1000)[-4:]))
    except OSError as e: print(errno.errorcode[e.errno])
"""
    got = words(ctx, world.python(code, DNS4, DNS6, net=nets(ctx)[0]))
    ctx.eq(got, [FAR4, FAR4, RESET], "the answers")
    ctx.eq(table.asked, ["test.example"] * 2, "the questions")
    got = words(ctx, world.python(code, DNS4, DNS6, net=f"{nets(ctx)[0]},outbound=off"))
    ctx.eq(got, [RESET] * 3, "without outbound access")
    world.set_servers()
    ctx.eq(words(ctx, world.python(code, DNS4, DNS6, net=nets(ctx)[0])), [RESET] * 3,
           "without a server")
    kept.close()


@case("N-relay-dies", "when the helper dies nothing can be reached, and the listener is gone",
      timeout=120)
def helper_dies(ctx):
    world = World(ctx)
    kept = serve("0.0.0.0", 7000)
    code = LISTENERS + r"""
s = socket.create_connection((sys.argv[1], 7), 20); s.sendall(b"x"); s.recv(1)
print(len(listeners()), tcp(sys.argv[1], 7), flush=True)
sys.stdin.readline()
try: print(s.recv(1) or "end")
except OSError as e: print(errno.errorcode[e.errno])
print(len(listeners()))
for a in sys.argv[2:]:
    s = socket.socket(family(a)); s.settimeout(1)
    try: s.connect((a, 7000)); print("connected")
    except OSError as e: print("no")
"""
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, FAR4, FAR4, HOST4, GATEWAY4,
                       net=f"{nets(ctx)[0]},required=off", stdin=subprocess.PIPE,
                       options=(*ENDS, "--host-loopback", "all"))
    ctx.eq(next_line(proc), "2 ok", "before")
    both = helpers_below(proc.pid)
    os.kill(both[0], signal.SIGKILL)
    ctx.until(lambda: not helpers_below(proc.pid), 20, "the end of the helper")
    go_on(proc)
    got = proc.communicate(timeout=30)[0].decode().split()
    ctx.true(got[0] in (RESET, "end"), f"the connection: {got}")
    ctx.eq(got[1:], ["0", "no", "no", "no"], "afterwards")
    ctx.eq(proc.returncode, 0, "the status")
    kept.close()


@case("N-relay-killed", "SIGKILL of nsbox in mid-transfer leaves nothing")
def killed(ctx):
    world = World(ctx)
    code = r"""
s = socket.create_connection((sys.argv[1], 7000), 20)
print("ready", flush=True)
while True: s.sendall(b"x" * 65536)
"""
    over = threading.Event()

    def swallow(client):
        with client:
            try:
                while client.recv(1 << 18):
                    pass
            except OSError:
                pass
        over.set()

    kept = serve("127.0.0.1", 7000, swallow)
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, GATEWAY4, net=nets(ctx)[0],
                       options=(*ENDS, "--host-loopback", "7000"))
    ctx.eq(next_line(proc), "ready", "the command")
    below = [p for p, _ in harness.descendants(proc.pid)]
    ctx.eq(len(helpers_below(proc.pid)), 2, "the helper and the process inside")
    os.kill(proc.pid, signal.SIGKILL)
    proc.wait(20)

    def gone():
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        return not any(os.path.exists(f"/proc/{pid}") for pid in below)

    ctx.until(gone, 20, "the end of everything")
    ctx.true(over.wait(20), "the server sees the end")
    kept.close()
