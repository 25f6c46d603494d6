"""Sandboxes with a user-mode network: what they reach and what they do not, names, the helper.

Reported bugs of group N by their names. Every refusal stands beside the same action where it is
allowed.
"""

import os
import signal
import socket
import subprocess
import threading
import time

import harness
import netkit
from harness import case
from netkit import (DNS4, DNS6, ENDS, FAR4, FAR6, GATEWAY4, GATEWAY6, GUEST4, GUEST6, HOST4,
                    HOST6, PEER4, PEER6, SERVICE, World, answers, connects, events_of, links, reap_adopted,
                    service, stop)

REFUSED = ("EHOSTUNREACH", "EACCES")  # ICMP and ICMPv6: prohibited.


def words(ctx, result):
    return ctx.ok(result).out.split()


def helpers_below(pid):
    """The network helper of a running nsbox, and the process that it keeps inside."""
    return [p for p, name in harness.descendants(pid) if name == "nsbox-net"]


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


@case("N-start", "a sandbox with a user-mode network has an interface, addresses and routes")
def start(ctx):
    world = World(ctx)
    for link in links(ctx):
        result = world.sandbox("sh", "-c", "ip -o addr show eth0; ip route; ip -6 route; "
                               "ip -o link show eth0", net=f"user,link={link}")
        out = ctx.ok(result).out
        for expected in (f"{GUEST4}/24", f"{GUEST6}/64", f"default via {GATEWAY4}",
                         f"default via {GATEWAY6}", " mtu 16384 "):
            ctx.true(expected in out, f"{link}: {expected} in {out!r}")
        for mtu in ("1500", "65520"):
            result = world.sandbox("ip", "-o", "link", "show", "eth0",
                                   net=f"user,link={link},mtu={mtu}")
            ctx.true(f" mtu {mtu} " in ctx.ok(result).out, f"{link}: the MTU: {result}")
        out = ctx.ok(world.sandbox("ip", "-o", "addr", net=f"user,link={link},ipv6=off")).out
        ctx.true(GUEST4 in out and GUEST6 not in out, f"{link}: without IPv6: {out!r}")


@case("N-events", "the events say which kind of link there is")
def events(ctx):
    world = World(ctx)
    for link in links(ctx):
        read, write = os.pipe()
        ctx.ok(world.sandbox("true", net=f"user,link={link}", options=("--events-fd", "9"),
                             fds={9: write}))
        os.close(write)
        found = [e for e in events_of(os.read(read, 65536).decode()) if e["event"] == "network"]
        os.close(read)
        ctx.eq([(e["mode"], e["link"], e["ipv6"]) for e in found], [("user", link, True)], link)


@case("N08", "without /dev/net/tun a veth pair is used, and asking for a tap names the device")
def no_tun(ctx):
    world = World(ctx)
    result = world.sandbox("true", net="user,link=tap")
    if ctx.root and os.path.exists("/dev/net/tun"):
        ctx.ok(result)
    else:
        ctx.fails(result, err=r"/dev/net/tun: (Permission denied|No such file)")
    ctx.ok(world.sandbox("true"))


@case("N-errors", "what is wrong with the options is said")
def errors(ctx):
    for text, error in (("user,mtu=1000", "MTU of 1000.*between 1500 and 65520"),
                        ("user,mtu=x", "mtu takes a number"), ("user,link=x", "auto, tap or veth"),
                        ("user,x=1", 'no setting "x"'), ("user,ipv6=1", "on or off"),
                        ("slirp", "host, none, user, veth or join:")):
        ctx.fails(ctx.run(ctx.nsbox, "--net", text, *netkit.SYSTEM, "true"), rc=1, err=error)
    for text in ("0", "70000", "9-8", "", "x"):
        ctx.fails(ctx.run(ctx.nsbox, "--net", "user", "--host-loopback", text, *netkit.SYSTEM,
                          "true"), rc=1, err="ports from 1 to 65535")
    ctx.fails(ctx.run(ctx.nsbox, "--host-loopback", "80", *netkit.SYSTEM, "true"), rc=1,
              err="requires --net user")
    ctx.ok(ctx.run(ctx.nsbox, "--net", "none", *netkit.SYSTEM, "true"))
    ctx.ok(ctx.run(ctx.nsbox, "--net", "host", *netkit.SYSTEM, "true"))


@case("N-reach", "TCP and UDP reach the outside by IPv4 and IPv6", timeout=120)
def reach(ctx):
    world = World(ctx)
    code = "print(*(f(a, 7) for f in (tcp, udp) for a in sys.argv[1:]))"
    for link in links(ctx):
        result = world.python(code, FAR4, FAR6, net=f"user,link={link}")
        ctx.eq(words(ctx, result), ["ok"] * 4, link)
        # Without outbound access the same is refused.
        result = world.python(code, FAR4, FAR6, net=f"user,link={link},outbound=off")
        got = words(ctx, result)
        ctx.true(len(got) == 4 and all(word in REFUSED for word in got), f"{link}: {got}")


@case("N01 N15", "the host is out of reach by every address of its own", timeout=180)
def host(ctx):
    world = World(ctx)
    listeners = [netkit.bound(kind, address, 7000)
                 for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
                 for address in ("0.0.0.0", "::")]
    for sock in listeners:
        serve = netkit.serve_streams if sock.type == socket.SOCK_STREAM else netkit.serve_datagrams
        threading.Thread(target=serve, args=(sock,), daemon=True).start()
    code = "print(*(f(a, 7000) for f in (tcp, udp) for a in sys.argv[1:]))"
    addresses = (GATEWAY4, GATEWAY6, HOST4, HOST6)
    # The servers are there: without a sandbox they answer.
    control = ctx.run(netkit.PYTHON, "-c", netkit.CLIENT + code, "127.0.0.1", "::1", HOST4, HOST6)
    ctx.eq(words(ctx, control), ["ok"] * 8, "outside")
    for link in links(ctx):
        got = words(ctx, world.python(code, *addresses, net=f"user,link={link}"))
        ctx.true(len(got) == 8 and all(word in REFUSED for word in got), f"{link}: {got}")
        got = words(ctx, world.python(code, *addresses, net=f"user,link={link}",
                                      options=("--host-loopback", "80,6999-7001")))
        ctx.eq([got[0], got[1], got[4], got[5]], ["ok"] * 4, f"{link}: the ports that are open")
        ctx.true(all(word in REFUSED for word in (got[2], got[3], got[6], got[7])),
                 f"{link}: the host's own addresses: {got}")
        got = words(ctx, world.python(code, *addresses, net=f"user,link={link}",
                                      options=("--host-loopback", "6999,7001")))
        ctx.true(all(word in REFUSED for word in got), f"{link}: other ports: {got}")


@case("N01-change", "an address that the host gets while a sandbox runs is out of reach at once")
def change(ctx):
    world = World(ctx)
    listener = netkit.bound(socket.SOCK_STREAM, "0.0.0.0", 7000)
    threading.Thread(target=netkit.serve_streams, args=(listener,), daemon=True).start()
    # Nobody answers for an address that is nobody's: there is nothing to wait long for.
    code = ("print(tcp('203.0.113.5', 7, seconds=2), flush=True); sys.stdin.readline();"
            "print(tcp('203.0.113.5', 7000), flush=True); sys.stdin.readline();"
            "print(tcp('198.51.100.9', 7))")
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + code, stdin=subprocess.PIPE)
    # No such address anywhere: whatever the internet says, it is not ours.
    first = proc.stdout.readline().decode().strip()
    ctx.true(first not in ("ok", "wrong", *REFUSED[1:]), f"before: {first}")
    netkit.configure("ip addr add 203.0.113.5/32 dev lo")
    control = ctx.run(netkit.PYTHON, "-c", netkit.CLIENT + "print(tcp('203.0.113.5', 7000))")
    ctx.eq(words(ctx, control), ["ok"], "outside")
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline().decode().strip(), "EHOSTUNREACH", "afterwards")
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline().decode().strip(), "ok", "others")
    ctx.eq(proc.wait(30), 0, "the status")


RAW = r'''
import struct
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def datagram(destination, port, text):
    """A frame as the kernel would never send it: to an address that no route leads to."""
    udp = struct.pack("!HHHH", 5555, port, 8 + len(text), 0) + text
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0,
                         socket.inet_aton("10.0.2.100"), socket.inet_aton(destination))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return header + udp
def ethernet(payload, kind=0x0800):
    return b"\x52\x55\x0a\x00\x02\x02" + mac + struct.pack("!H", kind) + payload
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind(("eth0", 0))
mac = raw.getsockname()[4]
def attempt(frame):
    """The kernel itself refuses some."""
    try: raw.send(frame)
    except OSError: pass
'''


@case("N-raw", "a command that makes frames of its own gains nothing by it", timeout=120)
def raw_frames(ctx):
    world = World(ctx)
    sock = netkit.bound(socket.SOCK_DGRAM, "127.0.0.1", 7000)
    sock.settimeout(20)
    code = RAW + ("for a in ('127.0.0.1', '0.0.0.0', sys.argv[1], '10.0.2.2'):\n"
                  "    raw.send(ethernet(datagram(a, 7000, b'raw to ' + a.encode())))\n"
                  "attempt(b'short'); attempt(ethernet(b''));"
                  "attempt(ethernet(b'\\x4f' + b'\\xff' * 50));"
                  "attempt(ethernet(b'\\x60' * 60, 0x86dd))\n"
                  # What comes after all that still works.
                  "print(udp('10.0.2.2', 7001))")
    last = netkit.bound(socket.SOCK_DGRAM, "127.0.0.1", 7001)
    threading.Thread(target=netkit.serve_datagrams, args=(last,), daemon=True).start()
    result = world.python(code, HOST4, options=("--cap-add", "CAP_NET_RAW", "--host-loopback",
                                                "7000-7001"))
    ctx.eq(words(ctx, result), ["ok"], "what comes after")
    # In order; only the one through the gateway has come.
    ctx.eq(sock.recv(100), b"raw to 10.0.2.2", "the first datagram that arrived")
    sock.settimeout(0.5)
    try:
        raise AssertionError(f"another one came: {sock.recv(100)!r}")
    except socket.timeout:
        pass


@case("N-admin", "a command with CAP_NET_ADMIN changes its own interface and reaches no more")
def admin(ctx):
    world = World(ctx)
    listener = netkit.bound(socket.SOCK_STREAM, "0.0.0.0", 7000)
    threading.Thread(target=netkit.serve_streams, args=(listener,), daemon=True).start()
    script = ("ip addr add 10.0.2.77/24 dev eth0 && ip route replace default via 10.0.2.3 && "
              "ip route replace 192.0.2.0/24 via 10.0.2.2 && ip link set eth0 mtu 9000 && "
              "exec \"$@\"")
    code = netkit.CLIENT + "print(tcp(sys.argv[1], 7000), tcp(sys.argv[2], 7))"
    result = world.sandbox("sh", "-c", script, "sh", netkit.PYTHON, "-c", code, HOST4, FAR4,
                           options=("--cap-add", "CAP_NET_ADMIN"))
    ctx.eq(words(ctx, result), ["EHOSTUNREACH", "ok"], "the host, and others")
    # Without the capability nothing can be changed, and the interface shows no other end.
    result = world.sandbox("sh", "-c", "ip addr add 10.0.2.77/24 dev eth0 2>&1; ip -o link",
                           options=("--cap-drop", "ALL"))
    ctx.true("Operation not permitted" in result.out, f"no capability: {result}")
    ctx.eq([line.split(": ")[1].split("@")[0] for line in result.out.splitlines()
            if line[:1].isdigit()], ["lo", "eth0"], "the interfaces")


@case("N-integrity", "what is sent arrives unchanged, at every MTU and both ways at once",
      timeout=240)
def integrity(ctx):
    world = World(ctx)
    # 16 MiB in pieces of odd sizes; the echo comes back while more is sent.
    code = r"""
import random
address, total = sys.argv[1], 16 << 20
s = socket.create_connection((address, 7), 60)
rng = random.Random(5)
block = rng.randbytes(1 << 20)
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    left = total
    while left:
        size = min(left, rng.randrange(1, 300000))
        sent.update(block[:size]); s.sendall(block[:size]); left -= size
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send); t.start()
count = 0
while data := s.recv(1 << 18):
    got.update(data); count += len(data)
t.join()
print(count, sent.digest() == got.digest())
"""
    for link in links(ctx):
        for mtu in ("1500", "16384", "65520"):
            for address in (FAR4, FAR6):
                result = world.python(code, address, net=f"user,link={link},mtu={mtu}",
                                      timeout=120)
                ctx.eq(words(ctx, result), [str(16 << 20), "True"], f"{link} {mtu} {address}")


@case("N05", "datagrams and payloads larger than the MTU get through")
def large(ctx):
    world = World(ctx)
    code = "print(*(udp(sys.argv[1], 7, os.urandom(size)) for size in (1, 1400, 9000)))"
    for mtu in ("1500", "16384", "65520"):
        result = world.python(code, FAR4, net=f"user,mtu={mtu}")
        ctx.eq(words(ctx, result), ["ok"] * 3, mtu)


@case("N06", "names are asked of the host's name server, also after that has changed", timeout=120)
def names(ctx):
    world = World(ctx)
    ask = r"""
import struct
def ask(server, name, kind=1):
    q = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0" + b"".join(
        bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack("!HH", kind, 1)
    s = socket.socket(family(server), socket.SOCK_DGRAM); s.settimeout(20)
    s.connect((server, 53)); s.send(q)
    try: got = s.recv(65536)
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
    if got[:2] != q[:2] or not got[2] & 0x80: return "wrong"
    if got[2] & 2: return "cut"
    if got[3] & 15: return "code%d" % (got[3] & 15)
    return socket.inet_ntoa(got[-4:]) if kind == 1 else str(len(got))
"""
    result = world.python(ask + "print(*(ask(s, 'test.example') for s in sys.argv[1:]))", DNS4,
                          DNS6)
    ctx.eq(words(ctx, result), [FAR4, FAR4], "the answer")
    result = world.python(ask + f"print(ask('{DNS4}', 'none.example'))")
    ctx.eq(words(ctx, result), ["code3"], "a name that does not exist")
    # 20 strings of 255 bytes: whole where the MTU lets them, else cut, so that TCP is tried.
    for mtu, expected in (("16384", str(12 + 19 + 20 * 268)), ("1500", "cut")):
        result = world.python(ask + f"print(ask('{DNS4}', 'large.example', 16))",
                              net=f"user,mtu={mtu}")
        ctx.eq(words(ctx, result), [expected], f"a large answer at MTU {mtu}")
    # A resolver on the host's loopback, as systemd-resolved is one.
    local = netkit.Names({"test.example": ("192.0.2.99",)})
    stub = netkit.bound(socket.SOCK_DGRAM, "127.0.0.53", 53)
    threading.Thread(target=netkit.serve_datagrams, args=(stub, local.answer), daemon=True).start()
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + ask +
                       f"print(ask('{DNS4}', 'test.example'), flush=True)\n"
                       "sys.stdin.readline()\n"
                       "for _ in range(200):\n"
                       f"    got = ask('{DNS4}', 'test.example')\n"
                       "    if got == '192.0.2.99': break\n"
                       "    time.sleep(0.05)\n"
                       "print(got, flush=True)\n"
                       f"print(udp('127.0.0.53', 53, seconds=1), udp('{HOST4}', 53, seconds=1))",
                       stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline().decode().strip(), FAR4, "the first server")
    world.set_servers("127.0.0.53")
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline().decode().strip(), "192.0.2.99", "the next server")
    # The forwarder's own way to it is not the command's.
    last = proc.stdout.readline().decode().split()
    ctx.true("ok" not in last and "wrong" not in last, f"directly: {last}")
    ctx.eq(proc.wait(30), 0, "the status")
    # None at all: said at once.
    world.set_servers()
    result = world.python(ask + f"print(ask('{DNS4}', 'test.example'))")
    ctx.eq(words(ctx, result), ["code2"], "without a server")


STREAMS = r"""
import struct
def question(name, kind):
    return b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0" + b"".join(
        bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack("!HH", kind, 1)
def exact(s, size):
    got = b""
    while len(got) < size:
        more = s.recv(size - len(got))
        if not more: raise EOFError
        got += more
    return got
def opened(server, port=53):
    s = socket.socket(family(server), socket.SOCK_STREAM); s.settimeout(20)
    s.connect((server, port))
    return s
def stream(s, name, kind=1):
    q = question(name, kind)
    s.sendall(len(q).to_bytes(2, "big") + q)
    got = exact(s, int.from_bytes(exact(s, 2), "big"))
    if got[:2] != q[:2] or not got[2] & 0x80: return "wrong"
    if got[3] & 15: return "code%d" % (got[3] & 15)
    return socket.inet_ntoa(got[-4:]) if kind == 1 else str(len(got))
def by_tcp(server, name, kind=1, port=53):
    try:
        with opened(server, port) as s: return stream(s, name, kind)
    except (OSError, EOFError) as e:
        return errno.errorcode.get(getattr(e, "errno", None), type(e).__name__)
"""


@case("N06-tcp", "names are asked by TCP where an answer is too large for a datagram", timeout=120)
def names_by_tcp(ctx):
    world = World(ctx)
    world.set_servers(PEER4, PEER6)
    ask = "print(*(by_tcp(s, n, int(k)) for n, k in (('cut.example', 1), ('large.example', 16), " \
        "('none.example', 1)) for s in sys.argv[1:]))"
    size = str(12 + 19 + 20 * 268)
    for link in links(ctx):
        for net in ("", ",mtu=1500"):
            result = world.python(STREAMS + ask, DNS4, DNS6, net=f"user,link={link}{net}")
            ctx.eq(words(ctx, result), [FAR4, FAR4, size, size, "code3", "code3"], link + net)
        # What is asked for would leave the sandbox too.
        result = world.python(STREAMS + ask, DNS4, DNS6, net=f"user,link={link},outbound=off")
        got = words(ctx, result)
        ctx.true(len(got) == 6 and all(word in REFUSED for word in got), f"{link}: {got}")
        result = world.sandbox("getent", "ahosts", "test.example", net=f"user,link={link},outbound=off")
        ctx.fails(result, rc=2)
    # As resolvers do it by themselves: the datagram says that there is more.
    result = ctx.ok(world.sandbox("getent", "ahosts", "cut.example"))
    ctx.true(FAR4 in result.out and FAR6 in result.out, f"getent: {result}")
    # Many connections at once, and several questions in one.
    many = ("import concurrent.futures as f\n"
            "def work(n):\n"
            "    with opened(sys.argv[1 + n % 2]) as s:\n"
            "        return [stream(s, 'cut.example') for _ in range(5)]\n"
            "with f.ThreadPoolExecutor(40) as pool:\n"
            "    print(*{a for all in pool.map(work, range(200)) for a in all})")
    ctx.eq(words(ctx, world.python(STREAMS + many, DNS4, DNS6)), [FAR4], "many")


@case("N06-tcp-host", "name servers of the host itself answer by TCP, and are out of reach otherwise",
      timeout=120)
def names_of_host_by_tcp(ctx):
    world = World(ctx)
    local = netkit.Names({"test.example": ("192.0.2.99",)})
    for address in ("127.0.0.53", "::1", HOST4):
        for port in (53, 54):
            netkit.in_threads((netkit.serve_streams,
                               netkit.bound(socket.SOCK_STREAM, address, port), local.talk))
    direct = "print(*(by_tcp(*a) for a in (('127.0.0.53', 'test.example'), ('::1', 'test.example'), " \
        f"('{HOST4}', 'test.example'))))"
    control = ctx.run(netkit.PYTHON, "-c", netkit.CLIENT + STREAMS + direct)
    ctx.eq(words(ctx, control), ["192.0.2.99"] * 3, "outside")
    world.set_servers("127.0.0.53", "::1")
    ask = f"print(by_tcp('{DNS4}', 'test.example'), by_tcp('{DNS6}', 'test.example'))\n"
    ctx.eq(words(ctx, world.python(STREAMS + ask)), ["192.0.2.99"] * 2, "the loopback's")
    got = words(ctx, world.python(STREAMS + direct))
    ctx.true("192.0.2.99" not in got and len(got) == 3, f"directly: {got}")
    # No other port of the server, and none of the gateway.
    others = (f"print(by_tcp('{DNS4}', 'test.example', port=54), by_tcp('{DNS6}', 'test.example', "
              f"port=54), by_tcp('{GATEWAY4}', 'test.example'), by_tcp('{GATEWAY6}', 'test.example'))")
    got = words(ctx, world.python(STREAMS + others))
    ctx.true(len(got) == 4 and all(word in REFUSED for word in got), f"other ports: {got}")
    world.set_servers(HOST4)
    got = words(ctx, world.python(STREAMS + ask))
    ctx.eq(got[0], "192.0.2.99", "by an address of the host")
    ctx.true(got[1] in REFUSED, f"without a server of IPv6: {got}")
    got = words(ctx, world.python(STREAMS + direct))
    ctx.true("192.0.2.99" not in got and got[2] in REFUSED, f"directly: {got}")


@case("N06-tcp-change", "a connection to the name server outlives a change of servers", timeout=120)
def names_change_by_tcp(ctx):
    world = World(ctx)
    local = netkit.Names({"test.example": ("192.0.2.99",)})
    netkit.in_threads((netkit.serve_streams, netkit.bound(socket.SOCK_STREAM, "127.0.0.53", 53),
                       local.talk))
    code = (f"s = opened('{DNS4}')\n"
            "print(stream(s, 'test.example'), flush=True)\n"
            "sys.stdin.readline()\n"
            "for _ in range(400):\n"
            f"    got = by_tcp('{DNS4}', 'test.example')\n"
            "    if got != '198.51.100.9': break\n"
            "    time.sleep(0.05)\n"
            "print(got, stream(s, 'test.example'), flush=True)\n")
    proc = world.start(netkit.PYTHON, "-c", netkit.CLIENT + STREAMS + code, stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline().decode().strip(), FAR4, "the first server")
    world.set_servers("127.0.0.53")
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline().decode().split(), ["192.0.2.99", FAR4], "the next, and the first")
    ctx.eq(proc.wait(30), 0, "the status")


@case("N09", "without a route on the host a sandbox starts, and what cannot be reached fails")
def no_route(ctx):
    world = World(ctx)
    netkit.configure("ip route del default; ip -6 route del default")
    result = world.python("print(tcp(sys.argv[1], 7))", FAR4)
    got = words(ctx, result)
    ctx.true(got[0] not in ("ok", "wrong"), f"without a route: {got}")
    netkit.configure(f"ip route add default via {PEER4}")
    ctx.eq(words(ctx, world.python("print(tcp(sys.argv[1], 7))", FAR4)), ["ok"], "with one")


@case("N11", "a host without IPv6 is no hindrance")
def no_ipv6(ctx):
    world = World(ctx)
    with open("/proc/sys/net/ipv6/conf/up0/disable_ipv6", "w", encoding="ascii") as file:
        file.write("1")  # Of the network namespace that this case has made.
    code = "print(tcp(sys.argv[1], 7), tcp(sys.argv[2], 7))"
    got = words(ctx, world.python(code, FAR4, FAR6))
    ctx.eq(got[0], "ok", "IPv4")
    ctx.true(got[1] not in ("ok", "wrong"), f"IPv6: {got}")


@case("N-helper", "the helper has no files, no capabilities and few system calls")
def helper(ctx):
    world = World(ctx)
    proc = world.start("sh", "-c", "echo ready; exec sleep 1000", options=ENDS)
    proc.stdout.readline()
    found = helpers_below(proc.pid)
    ctx.eq(len(found), 2, f"the helper and the process inside: {found}")
    own = status(os.getpid())
    ctx.true(own["Seccomp"] == "0" and own["NoNewPrivs"] == "0", f"outside: {own}")
    for pid in found:
        state = status(pid)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            ctx.eq(int(state[name], 16), 0, f"{name} of {pid}")
        ctx.eq((state["NoNewPrivs"], state["Seccomp"]), ("1", "2"), f"confinement of {pid}")
        if ctx.root:
            ctx.eq(os.listdir(f"/proc/{pid}/root"), [], f"the root of {pid}")
            targets = {os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0]
                       for fd in os.listdir(f"/proc/{pid}/fd")}
            allowed = {"socket", "anon_inode", "/dev/null", "/dev/net/tun", "pipe"}
            ctx.true(targets <= allowed, f"the descriptors of {pid}: {targets}")
    proc.kill()
    proc.wait(20)


def processor_time(pids):
    """What they have used so far, in seconds. See sched-stats in the kernel's documentation."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


@case("N-idle", "a sandbox with ports and nobody at them uses less than 1 % of a processor")
def idle(ctx):
    world = World(ctx)
    ports = [word for port in ("0:8000", "0:8001", "0:8002/udp", "0:localhost:8003", "0:8004")
             for word in ("-p", port)]
    code = r"""
import socket, sys
servers = [socket.create_server(("0.0.0.0", port)) for port in (8000, 8001, 8003)]
print("ready", flush=True)
sys.stdin.readline()
while True: pass
"""
    proc = world.start(netkit.PYTHON, "-c", code, options=(*ENDS, *ports), stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline(), b"ready\n", "the services")

    def share(pids):
        before, start = processor_time(pids), time.monotonic()
        time.sleep(1.5)  # A while to look at, not one to wait for something.
        return (processor_time(pids) - before) / (time.monotonic() - start)

    ours = [proc.pid, *helpers_below(proc.pid)]
    ctx.eq(len(ours), 3, f"nsbox and its helper: {ours}")
    # The start may take longer than that on a busy machine.
    ctx.until(lambda: share(ours) < 0.01, why="an idle helper")
    # A process that is not idle is seen to be busy.
    command = max(pid for pid, name in harness.descendants(proc.pid) if name.startswith("python"))
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.until(lambda: share([command]) > 0.01, why="a busy command")
    proc.kill()
    proc.wait(20)


@case("N12", "a helper that dies ends the sandbox, which says so; with required=off it goes on",
      timeout=120)
def helper_dies(ctx):
    world = World(ctx)
    for net, ends in (("user", True), ("user,required=off", False)):
        for which in (0, 1):
            read, write = os.pipe()
            command = ("sh", "-c", "echo ready; exec sleep 1000") if ends else \
                ("sh", "-c", "echo ready; read x; exit 7")
            proc = world.start(*command, net=net, options=(*ENDS, "--events-fd", "9"),
                               fds={9: write}, stdin=subprocess.PIPE)
            os.close(write)
            proc.stdout.readline()
            os.kill(sorted(helpers_below(proc.pid))[which], signal.SIGKILL)
            if which == 1:
                # The process inside only makes sockets: what runs goes on.
                proc.kill()
                proc.wait(20)
                os.close(read)
                continue
            text = b""
            while b"network-failed" not in text:
                chunk = os.read(read, 65536)
                ctx.true(chunk, f"the events end: {text!r}")
                text += chunk
            if ends:
                ctx.eq(proc.wait(20), 125, "the status")
            else:
                proc.stdin.write(b"\n")
                proc.stdin.flush()
                ctx.eq(proc.wait(20), 7, "the status")
            while chunk := os.read(read, 65536):
                text += chunk
            os.close(read)
            found = events_of(text.decode())
            ctx.true(any(e["event"] == "network-failed" for e in found), f"the events: {found}")
            ctx.eq(found[-1]["reason"], "network-failed" if ends else "exited", "the reason")


@case("N12-killed", "SIGKILL of nsbox, or of the sandbox, leaves no helper and no process inside",
      timeout=180)
def all_gone(ctx):
    world = World(ctx)
    for turn in range(6):
        proc = world.start("sh", "-c", "echo ready; exec sleep 1000",
                           options=ENDS)
        proc.stdout.readline()
        below = [p for p, _ in harness.descendants(proc.pid)]
        ctx.true(len(helpers_below(proc.pid)) == 2, "there is a helper")
        victim = proc.pid if turn % 2 else [p for p in below if p not in helpers_below(proc.pid)][0]
        os.kill(victim, signal.SIGKILL)
        proc.wait(20)

        def gone():
            reap_adopted()
            return not any(os.path.exists(f"/proc/{pid}") for pid in below)

        ctx.until(gone, 10, f"turn {turn}: the end of everything")


@case("N-many", "many sandboxes with networks at once, each with the same addresses", timeout=300)
def many(ctx):
    world = World(ctx)
    code = netkit.CLIENT + "print(tcp(sys.argv[1], 7), flush=True); sys.stdin.readline()"
    procs = [world.start(netkit.PYTHON, "-c", code, FAR4, stdin=subprocess.PIPE,
                         options=("--unshare-pid",)) for _ in range(20)]
    for proc in procs:
        ctx.eq(proc.stdout.readline().decode().strip(), "ok", "an answer")
    for proc in procs:
        proc.stdin.close()
        ctx.eq(proc.wait(30), 0, "the status")


@case("N06-files", "resolv.conf and hosts fit the sandbox, wherever the tree has them", timeout=120)
def name_files(ctx):
    world = World(ctx)
    world.set_servers(PEER4, more="search sub.example\noptions ndots:2\n")
    show = ("sh", "-c", "cat /etc/resolv.conf; echo; cat /etc/hosts")
    expected = "nameserver 10.0.2.3\nsearch sub.example\noptions ndots:2\n"

    def shows(result, why):
        out = ctx.ok(result).out
        ctx.true(out.startswith(expected), f"{why}: {out!r}")
        ctx.true("127.0.0.1 localhost" in out, f"{why}: {out!r}")

    shows(world.sandbox(*show), "the host's own tree")
    shows(world.sandbox(*show, options=("--unshare-uts", "--hostname", "box")), "with a host name")
    # By the C library, from the name in full and from one that the search list completes.
    code = "print(*(socket.getaddrinfo(n, 80, socket.AF_INET)[0][4][0] for n in sys.argv[1:]))"
    world.names["test.sub.example"] = (FAR4,)
    result = world.python(code, "test.example", "localhost")
    ctx.eq(words(ctx, result), [FAR4, "127.0.0.1"], "by the C library")

    # A small tree that has none, one whose file is a link that leads nowhere, and one without /etc.
    small = (*ctx.USR, "--dev", "/dev", "--proc", "/proc")

    def run(*options, net="user"):
        return ctx.run(ctx.nsbox, "--net", net, *small, *options, "--unshare-uts", *show)

    shows(run("--dir", "/etc"), "an empty /etc")
    shows(run(), "without /etc")
    shows(run("--remount-ro", "/"), "a root that becomes read-only")
    stub = ("--symlink", "../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf")
    shows(run(*stub, "--tmpfs", "/run"), "a link that leads nowhere")
    shows(run(*stub, "--dir", "/run/systemd/resolve"), "a link into a folder")

    # A tree of the host's is never written to.
    tree = ctx.mkdir("tree")
    for name in ("usr", "dev", "proc", "etc"):
        ctx.mkdir(f"tree/{name}")
    for name in ("bin", "lib", "lib64"):
        os.symlink(f"usr/{name}", f"{tree}/{name}")
    for bind in ("--bind", "--ro-bind"):
        options = (bind, tree, "/", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc")
        result = ctx.run(ctx.nsbox, "--net", "user", *options, "true")
        ctx.fails(result, rc=1, err=r"Can't place /etc/resolv.conf: it does not exist.*names=off")
        ctx.eq(os.listdir(f"{tree}/etc"), [], f"{bind}: the host's folder")
        ctx.ok(ctx.run(ctx.nsbox, "--net", "user,names=off", *options, "true"))
        ctx.ok(ctx.run(ctx.nsbox, "--net", "user", *options, "--tmpfs", "/etc", "true"))
        ctx.eq(os.listdir(f"{tree}/etc"), [], f"{bind}: the host's folder afterwards")
    with open(f"{tree}/etc/resolv.conf", "w", encoding="ascii") as file:
        file.write("the host's\n")
    with open(f"{tree}/etc/hosts", "w", encoding="ascii") as file:
        file.write("the host's too\n")
    options = ("--bind", tree, "/", "--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc")
    shows(ctx.run(ctx.nsbox, "--net", "user", *options, *show), "files that are covered")
    with open(f"{tree}/etc/resolv.conf", encoding="ascii") as file:
        ctx.eq(file.read(), "the host's\n", "the host's file")
    # What the caller puts there stays, and so does all of it with names=off.
    own = ctx.write("own", "nameserver 192.0.2.55\n")
    out = ctx.ok(ctx.run(ctx.nsbox, "--net", "user", *netkit.SYSTEM, "--ro-bind", own,
                         "/etc/resolv.conf", "cat", "/etc/resolv.conf")).out
    ctx.eq(out, "nameserver 192.0.2.55\n", "the caller's own file")
    out = ctx.ok(world.sandbox("cat", "/etc/resolv.conf", net="user,names=off")).out
    ctx.true(out.startswith(f"nameserver {PEER4}\n"), f"names=off: {out!r}")


# -- published ports -----------------------------------------------------------------------------

@case("N-publish", "a published port leads to a service inside, by IPv4 and IPv6 of the loopback",
      timeout=120)
def publish(ctx):
    world = World(ctx)
    for link in links(ctx):
        for net in (f"user,link={link}", f"user,link={link},outbound=off"):
            proc = service(world, "9000:8000", net=net)
            for address in ("127.0.0.1", "::1"):
                answers(ctx, address, 9000)
            # Nobody else is let in.
            ctx.eq(connects(HOST4, 9000), "refused", "another address of the host")
            stop(ctx, proc)
            ctx.until(lambda: connects("127.0.0.1", 9000) == "refused", 10, "the end of the port")
    proc = service(world, f"{HOST4}:9000:8000")
    answers(ctx, HOST4, 9000)
    ctx.eq(connects("127.0.0.1", 9000), "refused", "an address that was not named")
    stop(ctx, proc)
    proc = service(world, "[::]:9000:8000/tcp")
    answers(ctx, HOST6, 9000)
    stop(ctx, proc)


@case("N17", "a service sees the sandbox's own address as its client's")
def client_address(ctx):
    world = World(ctx)
    proc = service(world, "9000:8000")
    answers(ctx, "127.0.0.1", 9000)
    with socket.create_connection(("127.0.0.1", 9000), 20) as sock:
        sock.sendall(b"who")
        ctx.eq(sock.recv(100).decode(), GUEST4, "the client's address")
    stop(ctx, proc)


@case("N-refused", "a connection to a published port is refused while nothing listens inside",
      timeout=120)
def refused(ctx):
    world = World(ctx)
    code = SERVICE.replace('if kind == "tcp":', 'print("bound", flush=True); '
                           'sys.stdin.readline()\nif kind == "tcp":')
    code += "s.close(); os.close(s.detach()) if s.fileno() >= 0 else None\n" \
            "print('closed', flush=True); sys.stdin.readline()\n"
    code = code.replace('threading.Thread(target=serve, daemon=True).start()',
                        'threading.Thread(target=once, daemon=True).start()')
    code = code.replace("def serve():", "def once():\n    c, peer = s.accept()\n"
                        "    c.sendall(c.recv(100)); c.close()\ndef serve():")
    proc = world.start(netkit.PYTHON, "-c", code, "tcp", "0.0.0.0", "8000", stdin=subprocess.PIPE,
                       options=(*ENDS, "-p", "9000:8000"))
    ctx.eq(proc.stdout.readline(), b"bound\n", "the service")
    for address in ("127.0.0.1", "::1"):
        ctx.eq(connects(address, 9000), "refused", f"before: {address}")
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline(), b"listens\n", "the service")
    answers(ctx, "127.0.0.1", 9000)
    proc.stdin.write(b"\n")
    proc.stdin.flush()
    ctx.eq(proc.stdout.readline(), b"closed\n", "the service")
    ctx.until(lambda: connects("127.0.0.1", 9000) == "refused", 20, "a refusal afterwards")
    stop(ctx, proc)


@case("N-localhost", "a service of the sandbox's loopback is reached by option only", timeout=120)
def to_localhost(ctx):
    world = World(ctx)
    proc = service(world, "9000:localhost:8000", address="127.0.0.1",
                   options=("-p", "9001:8000"))
    answers(ctx, "127.0.0.1", 9000)
    ctx.eq(connects("127.0.0.1", 9001), "refused", "without the option")
    stop(ctx, proc)


@case("N02", "datagrams are published with their answers, though the host's loopback is closed",
      timeout=120)
def publish_udp(ctx):
    world = World(ctx)
    proc = service(world, "9000:8000/udp", kind="udp")

    def ask(address, text):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET,
                           socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((address, 9000))
            sock.send(text)
            return sock.recv(65536)

    for address in ("127.0.0.1", "::1"):
        for size in (1, 1000, 30000):
            text = os.urandom(size)
            ctx.eq(ask(address, text) == text, True, f"{address}, {size} bytes")
    stop(ctx, proc)


@case("N16", "with 0 a free port is chosen and told, on stderr and in the events")
def chosen_port(ctx):
    world = World(ctx)
    read, write = os.pipe()
    proc = world.start(netkit.PYTHON, "-c", SERVICE, "tcp", "0.0.0.0", "8000",
                       options=(*ENDS, "-p", "0:8000", "--events-fd", "9"), fds={9: write},
                       stdin=subprocess.PIPE)
    os.close(write)
    proc.stdout.readline()
    line = proc.stderr.readline().decode()
    port = int(line.split("/tcp leads to port 8000")[0].rsplit(":", 1)[1])
    answers(ctx, "127.0.0.1", port)
    stop(ctx, proc)
    text = b""
    while chunk := os.read(read, 65536):
        text += chunk
    os.close(read)
    found = [e for e in events_of(text.decode()) if e["event"] == "port"]
    ctx.eq([(e["protocol"], e["address"], e["host-port"], e["port"]) for e in found],
           [("tcp", None, port, 8000)], "the event")


@case("N-publish-errors", "a port that cannot be had is named with the reason")
def publish_errors(ctx):
    world = World(ctx)
    taken = netkit.bound(socket.SOCK_STREAM, "127.0.0.1", 9000)
    ctx.fails(world.sandbox("true", options=("-p", "9000:80")), rc=1,
              err=r"Can't publish a port 127\.0\.0\.1:9000/tcp: Address already in use")
    taken.close()
    # When nsbox has ended its ports are free.
    for _ in range(5):
        ctx.ok(world.sandbox("true", options=("-p", "9000:80")))
    # Also by a sandbox in which nothing listens yet.
    first = world.start("sh", "-c", "echo ready; read x || :", stdin=subprocess.PIPE,
                        options=(*ENDS, "-p", "9000:80"))
    first.stdout.readline()
    ctx.fails(world.sandbox("true", options=("-p", "9000:80")), rc=1, err="already in use")
    first.stdin.close()
    ctx.eq(first.wait(20), 0, "the first one's status")
    ctx.fails(world.sandbox("true", options=("-p", "203.0.113.77:9000:80")), rc=1,
              err=r"Cannot assign requested address \(hint: the address has to be one of this")
    ctx.fails(world.sandbox("true", options=("-p", "example:9000:80")), rc=1,
              err="it is no address")
    if not ctx.root:
        ctx.fails(world.sandbox("true", options=("-p", "80:80")), rc=1,
                  err=r"Permission denied \(hint: ports below 1024 are for root\)")
    else:
        ctx.ok(world.sandbox("true", options=("-p", "80:80")))
    for text in ("80", "x:80", "80:x", "80:0", "80:80/sctp", "::1:80:80", "70000:80", ""):
        ctx.fails(world.sandbox("true", options=("-p", text)), rc=1, err="--publish takes")
    ctx.fails(ctx.run(ctx.nsbox, "-p", "80:80", *netkit.SYSTEM, "true"), rc=1,
              err="--publish and --host-socket require --net user")


@case("N-forward-load", "hundreds of connections at once through a published port, byte for byte",
      timeout=240)
def forward_load(ctx):
    world = World(ctx)
    proc = service(world, "9000:8000")
    answers(ctx, "127.0.0.1", 9000)
    socks = [socket.create_connection(("127.0.0.1", 9000), 60) for _ in range(300)]
    for number, sock in enumerate(socks):
        sock.sendall(b"%06d" % number)
    for number, sock in enumerate(socks):
        got = b""
        while len(got) < 6:
            got += sock.recv(100)
        ctx.eq(got, b"%06d" % number, "an answer")
        sock.close()
    # 16 MiB through one, the end of one direction passed on.
    import hashlib
    with socket.create_connection(("127.0.0.1", 9000), 60) as sock:
        block = os.urandom(1 << 20)
        sent, got = hashlib.sha256(), hashlib.sha256()

        def send():
            for _ in range(16):
                sent.update(block)
                sock.sendall(block)
            sock.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=send)
        thread.start()
        while data := sock.recv(1 << 18):
            got.update(data)
        thread.join()
        ctx.eq(got.hexdigest(), sent.hexdigest(), "what came back")
    stop(ctx, proc)
