"""Sandboxes with a link to the host (`--net veth`): what they reach and what they do not, addresses,
names, bridges, and that nothing is left of them.

An ordinary user is root of namespaces of its own here, but for the case about ordinary users. Every
refusal stands beside the same action where it is allowed.
"""

import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess

import harness
import netkit
from harness import case
from netkit import FAR4, FAR6, HOST4, HOST6, PEER4, PEER6, PYTHON, World

ENDS = ("--unshare-pid", "--die-with-parent")
REFUSED = ("EHOSTUNREACH", "EACCES", "ECONNREFUSED")  # ICMP, ICMPv6, and a reset of TCP.
LINKS4 = [ipaddress.ip_network(n) for n in ("10.207.0.0/16", "172.30.0.0/16", "192.168.0.0/16")]
LINKS6 = ipaddress.ip_network("fd6e:7362:6f78::/48")

# For what runs inside, behind netkit.CLIENT.
INSIDE = r'''
import subprocess
def show(*words): return subprocess.run(["ip", "-j", *words], capture_output=True).stdout
import json
def own(number):
    return [a["local"] for l in json.loads(show(f"-{number}", "addr", "show", "eth0"))
            for a in l.get("addr_info", ()) if a["scope"] == "global"]
def gateway(number):
    return [r["gateway"] for r in json.loads(show(f"-{number}", "route", "show", "default"))]
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
import struct
def ping(address):
    v6 = ":" in address
    s = socket.socket(family(address), socket.SOCK_RAW,
                      socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP)
    s.settimeout(5)
    s.connect((address, 0))
    body = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, 77, 1) + b"ping"
    if not v6: body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    s.send(body)
    wanted = 129 if v6 else 0
    for _ in range(20):
        try: got = s.recv(2000)
        except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
        if not v6: got = got[20:]
        if got[0] == wanted and got[4:] == body[4:]: return "ok"
    return "wrong"
def who(kind, address):
    s = socket.socket(family(address), kind)
    s.settimeout(10)
    s.connect((address, 9))
    if kind == socket.SOCK_DGRAM: s.send(b"?")
    return s.recv(100).decode()
'''


class VethWorld(World):
    """A host that forwards packets."""

    def __init__(self, ctx, names=None, forwards=True):
        super().__init__(ctx, names, as_root=True)
        if forwards:
            for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                set_parameter(path, "1")

    def sandbox(self, *command, net="veth", **kw):
        return super().sandbox(*command, net=net, **kw)

    def start(self, *command, net="veth", **kw):
        return super().start(*command, net=net, **kw)

    def python(self, code, *arguments, **kw):
        return super().python(INSIDE + code, *arguments, **kw)


def set_parameter(path, value):
    """Of the network namespace that the case has made."""
    with open(f"/proc/sys/net/{path}", "w", encoding="ascii") as file:
        file.write(value)


def words(ctx, result):
    return ctx.ok(result).out.split()


def shown(*arguments):
    """What ip(8) says, as data."""
    done = subprocess.run(["ip", "-j", *arguments], capture_output=True, check=True,
                          preexec_fn=netkit.keep_capabilities)
    return json.loads(done.stdout or b"[]")


def interfaces():
    return sorted(link["ifname"] for link in shown("link"))


def tables():
    done = subprocess.run(["/usr/sbin/nft", "list", "tables"], capture_output=True, text=True,
                          check=True, preexec_fn=netkit.keep_capabilities)
    return done.stdout.split("\n")[:-1]


def sleeper(world, *options, net="veth", command=("sh", "-c", "echo ready; exec sleep 1000"),
            ends=ENDS, **kw):
    """A sandbox that lives on, and what its network event says."""
    read, write = os.pipe()
    proc = world.start(*command, net=net, options=(*ends, *options, "--events-fd", "9"),
                       fds={9: write}, **kw)
    os.close(write)
    line = proc.stdout.readline()
    if line != b"ready\n":
        raise AssertionError(f"the sandbox: {line!r} {proc.stderr.read()!r}")
    text = b""
    while b'"network"' not in text or not text.endswith(b"\n"):
        text += os.read(read, 65536)
    os.close(read)
    proc.network = [e for e in map(json.loads, text.splitlines()) if e["event"] == "network"][0]
    return proc


def end(ctx, *procs):
    for proc in procs:
        proc.kill()
    for proc in procs:
        proc.wait(20)
    ctx.until(nothing_is_left, 30, "the end of every interface and table")


def nothing_is_left():
    return interfaces() in (["lo", "up0"], ["br9", "lo", "up0"]) and tables() == []


def serve(kind, address, port, **kw):
    sock = netkit.bound(kind, address, port)
    run = netkit.serve_streams if kind == socket.SOCK_STREAM else netkit.serve_datagrams
    netkit.in_threads((run, sock, *kw.values()))
    return sock


def serve_host(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for address in ("0.0.0.0", "::"):
            serve(kind, address, port)


@case("V-start", "a sandbox with a link has an interface, addresses, routes and a name server")
def start(ctx):
    world = VethWorld(ctx)
    result = world.python("print(*own(4), *own(6), *gateway(4), *gateway(6));"
                          "print(open('/etc/resolv.conf').read(), open('/etc/hosts').read());"
                          "print(show('link', 'show', 'eth0').decode())")
    first, rest = ctx.ok(result).out.split("\n", 1)
    own4, own6, gateway4, gateway6 = map(ipaddress.ip_address, first.split())
    ctx.true(own4 in LINKS4[0] and own6 in LINKS6, f"the addresses: {first}")
    ctx.eq((own4 - 1, own6 - 1), (gateway4, gateway6), "the gateways")
    ctx.true(rest.startswith(f"nameserver {gateway4}\n"), f"the name server: {rest}")
    ctx.true("127.0.0.1 localhost" in rest and '"mtu":1500' in rest, f"the rest: {rest}")
    result = world.python("print(*own(4), len(own(6)), len(gateway(6)));"
                          "print(show('link', 'show', 'eth0').decode())",
                          net="veth,ipv6=off,mtu=9000")
    out = ctx.ok(result).out
    ctx.eq(out.split()[1:3], ["0", "0"], "without IPv6")
    ctx.true('"mtu":9000' in out, f"the MTU: {out}")
    proc = sleeper(world)
    event = proc.network
    found = [link for link in shown("addr") if link["ifname"] == event["interface"]]
    ctx.eq(len(found), 1, f"the interface of {event}")
    here = ipaddress.ip_interface(event["address"])
    ctx.eq((event["mode"], event["ipv6"], str(here.ip - 1)), ("veth", True, event["gateway"]),
           "the event")
    ctx.true(any(a["local"] == event["gateway"] for a in found[0]["addr_info"]),
             f"the host's address: {found}")
    end(ctx, proc)


@case("V-errors", "what is wrong with the options is said")
def errors(ctx):
    world = VethWorld(ctx)
    for net, error in (("veth,mtu=1000", "MTU of 1000.*between 1280 and 65520"),
                       ("veth,x=1", 'no setting "x" of veth'), ("veth,ipv6=1", "on or off"),
                       ("veth,bridge=", "bridge takes a value"),
                       ("veth,address=10.1.2.3/24", "except on a bridge"),
                       ("veth,bridge=lo", "lo: it is no bridge"),
                       ("veth,bridge=none0", "No such device.*has to exist"),
                       ("veth,bridge=lo,address=10.1.2.3", "as in 10.1.2.3/24"),
                       ("veth,bridge=lo,gateway=10.1.2.3", "needs an address"),
                       ("veth,bridge=lo,outbound=off", "access to the others")):
        ctx.fails(world.sandbox("true", net=net), rc=1, err=error)
    ctx.ok(world.sandbox("true"))
    ctx.ok(world.sandbox("true", net="veth,mtu=1280,names=off"))


@case("V-user", "an ordinary user is told that a veth pair is for root, and what there is instead")
def ordinary(ctx):
    netkit.World(ctx)
    words_ = (ctx.nsbox, "--net", "veth", *netkit.SYSTEM, "true")
    hint = r"CAP_NET_ADMIN in the user namespace that owns.*use --net user"
    if ctx.root:
        # Root that lacks it, by name and where the kernel alone knows.
        drop = ("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")
        ctx.fails(ctx.run(*drop, *words_), rc=1, err=hint)
        apart = ("unshare", "--user", "--map-root-user")
        ctx.fails(ctx.run(*apart, *words_), rc=1, err=hint)
        # Both are about the rights alone: with outbound access off there is nothing else to lack.
        ctx.ok(ctx.run(ctx.nsbox, "--net", "veth,outbound=off", *netkit.SYSTEM, "true"))
    else:
        ctx.fails(ctx.run(*words_), rc=1, err=hint)
    ctx.ok(ctx.run(ctx.nsbox, "--net", "user", *netkit.SYSTEM, "true"))


@case("V-forward", "a host that does not forward is left so, and the error says what to do")
def no_forwarding(ctx):
    world = VethWorld(ctx, forwards=False)
    ctx.fails(world.sandbox("true"), rc=1,
              err=r"does not forward.*net\.ipv4\.ip_forward.*--net user.*veth,outbound=off")
    with open("/proc/sys/net/ipv4/ip_forward", encoding="ascii") as file:
        ctx.eq(file.read().strip(), "0", "the setting")
    serve_host(7000)
    code = "print(tcp(gateway(4)[0], 7000), tcp(sys.argv[1], 7))"
    got = words(ctx, world.python(code, FAR4, net="veth,outbound=off",
                                  options=("--host-loopback", "7000")))
    ctx.true(got[0] == "ok" and got[1] in REFUSED, f"without outbound access: {got}")
    # With IPv4 alone there is no IPv6, and nothing fails for it.
    set_parameter("ipv4/ip_forward", "1")
    got = words(ctx, world.python("print(tcp(sys.argv[1], 7), len(own(6)))", FAR4))
    ctx.eq(got, ["ok", "0"], "IPv4 alone")


@case("V-reach", "the outside is reached under the host's own addresses", timeout=120)
def reach(ctx):
    world = VethWorld(ctx)
    code = ("print(*(f(a, 7) for f in (tcp, udp) for a in sys.argv[1:]),"
            " *(ping(a) for a in sys.argv[1:]),"
            " *(who(k, a) for k in (socket.SOCK_STREAM, socket.SOCK_DGRAM)"
            " for a in sys.argv[1:]))")
    got = words(ctx, world.python(code, FAR4, FAR6))
    ctx.eq(got, ["ok"] * 6 + [HOST4, HOST6] * 2, "TCP, UDP, ping, and as whom")
    code = "print(*(f(a, 7) for f in (tcp, udp) for a in sys.argv[1:]))"
    got = words(ctx, world.python(code, FAR4, FAR6, net="veth,outbound=off"))
    ctx.true(len(got) == 4 and all(word in REFUSED for word in got), f"outbound=off: {got}")


@case("V-host", "the host is out of reach by every address of its own, but for ports that are open",
      timeout=120)
def host(ctx):
    world = VethWorld(ctx)
    netkit.configure("ip addr add 203.0.113.5/32 dev lo")
    serve_host(7000)
    addresses = (HOST4, HOST6, "203.0.113.5")
    code = ("to = (gateway(4)[0], gateway(6)[0], *sys.argv[1:]);"
            "print(*(f(a, 7000) for f in (tcp, udp) for a in to))")
    control = ctx.run(PYTHON, "-c", netkit.CLIENT + "print(*(f(a, 7000) for f in (tcp, udp) "
                      "for a in sys.argv[1:]))", "127.0.0.1", "::1", *addresses)
    ctx.eq(words(ctx, control), ["ok"] * 10, "outside")
    got = words(ctx, world.python(code, *addresses))
    ctx.true(len(got) == 10 and all(word in REFUSED for word in got), f"by default: {got}")
    for ports in ("80,6999-7001", "all"):
        got = words(ctx, world.python(code, *addresses, options=("--host-loopback", ports)))
        is_all = ports == "all"
        ctx.eq(got[:2], ["ok"] * 2, f"{ports}: TCP")
        ctx.true(got[5:7] == ["ok"] * 2 or is_all and all(w in REFUSED for w in got[5:7]),
                 f"{ports}: UDP {got}")
        others = got[2:5] + got[7:]
        ctx.true(all(word in REFUSED for word in others), f"{ports}: the host's own: {got}")
    got = words(ctx, world.python(code, *addresses, options=("--host-loopback", "6999,7001")))
    ctx.true(all(word in REFUSED for word in got[2:5] + got[7:]), f"other ports: {got}")
    ctx.true("ok" not in got, f"other ports: {got}")
    # What the host offers behind rules of its own that lead elsewhere; they are seen to be met.
    netkit.configure("PATH=$PATH:/usr/sbin\nnft add table ip elsewhere\n"
                     "nft 'add chain ip elsewhere pre {type nat hook prerouting priority -110;}'\n"
                     "nft 'add rule ip elsewhere pre tcp dport 7200 counter "
                     f"dnat to {PEER4}:7'")
    got = words(ctx, world.python("print(*(tcp(a, p) for a, p in ((sys.argv[1], 7200), "
                                  "(gateway(4)[0], 7200), (sys.argv[2], 7))))", HOST4, PEER4))
    ctx.true(got[0] in REFUSED and got[1] in REFUSED and got[2] == "ok", f"translated: {got}")
    rules = subprocess.run(["/usr/sbin/nft", "list", "table", "ip", "elsewhere"], text=True,
                           capture_output=True, preexec_fn=netkit.keep_capabilities)
    ctx.true("counter packets 2" in rules.stdout, f"the host's own rule: {rules}")
    # What only the loopback has, and one where nobody listens.
    serve(socket.SOCK_STREAM, "127.0.0.1", 7100)
    got = words(ctx, world.python("print(tcp(gateway(4)[0], 7100), tcp(gateway(4)[0], 7101))",
                                  options=("--host-loopback", "7100-7101")))
    ctx.true(got[0] == "ok" and got[1] in ("ECONNRESET", "wrong", "EPIPE"), f"the loopback: {got}")


SERVICE = r'''
import selectors
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
def run():
    while True:
        c, peer = listener.accept()
        c.sendall(c.recv(100)); c.close()
threading.Thread(target=run, daemon=True).start()
print("ready", flush=True)
import signal
signal.pause()
'''


def service(world, *options, net="veth", port=8000, **kw):
    return sleeper(world, *options, net=net,
                   command=(PYTHON, "-c", netkit.CLIENT + SERVICE, str(port)), **kw)


def address_of(proc):
    return proc.network["address"].split("/")[0]


def from_here(ctx, *words_):
    return words(ctx, ctx.run(PYTHON, "-c", netkit.CLIENT + "print(tcp(*sys.argv[1:]))", *words_))


@case("V-apart", "a sandbox cannot reach another, nor can somebody outside through the host",
      timeout=120)
def apart(ctx):
    world = VethWorld(ctx)
    server = service(world)
    ctx.eq(from_here(ctx, address_of(server), "8000"), ["ok"], "the host itself")
    got = words(ctx, world.python("print(tcp(sys.argv[1], 8000), ping(sys.argv[1]),"
                                  " tcp(sys.argv[2], 7))", address_of(server), FAR4))
    ctx.true(got[0] in REFUSED and got[1] != "ok", f"from another sandbox: {got}")
    ctx.eq(got[2], "ok", "the outside from there")
    # Somebody in the internet who knows the way; the control is the way to the host.
    inside = ("nsenter", f"--net=/proc/{world.internet[0]}/ns/net")
    peer = (*inside, PYTHON, "-c", netkit.CLIENT + "print(tcp(*sys.argv[1:]))")
    ctx.ok(ctx.run(*inside, "ip", "route", "add", "10.207.0.0/16", "via", HOST4,
                   pre=netkit.keep_capabilities))
    serve(socket.SOCK_STREAM, HOST4, 8001)
    ctx.eq(words(ctx, ctx.run(*peer, HOST4, "8001", pre=netkit.keep_capabilities)), ["ok"],
           "the host from outside")
    got = words(ctx, ctx.run(*peer, address_of(server), "8000", pre=netkit.keep_capabilities))
    ctx.true(got[0] in REFUSED, f"the sandbox from outside: {got}")
    end(ctx, server)


@case("V-spoof", "packets with somebody else's address go nowhere")
def spoof(ctx):
    world = VethWorld(ctx)
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    capture.bind(("up0", 3))
    capture.settimeout(20)
    code = r"""
def datagram(source, text):
    body = struct.pack("!HHHH", 5555, 5555, 8 + len(text), 0) + text
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0,
                       socket.inet_aton(source), socket.inet_aton(sys.argv[1]))
    return head + body
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for source, text in ((sys.argv[2], b"as the host"), ("198.51.100.77", b"as somebody"),
                     (gateway(4)[0], b"as the gateway"), (own(4)[0], b"as itself")):
    raw.sendto(datagram(source, text), (sys.argv[1], 0))
print("sent")
"""
    ctx.eq(words(ctx, world.python(code, FAR4, HOST4)), ["sent"], "the sandbox")
    seen = []
    while not seen or b"as itself" not in seen[-1]:
        packet, (_, kind, *_) = capture.recvfrom(2000)
        if kind == 0x0800 and packet[9] == 17:
            seen.append(packet)
    ctx.eq(len(seen), 1, f"what came through: {seen}")
    ctx.eq(socket.inet_ntoa(seen[0][12:16]), HOST4, "under the host's address")


# Asks for an interface in the namespace at the other end of eth0, by the number that it has here.
BEYOND = r"""
def attribute(kind, data): return struct.pack("HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
number = json.loads(show("link", "show", "eth0"))[0]["link_netnsid"]
body = (struct.pack("BBHiII", 0, 0, 0, 0, 0, 0) + attribute(3, b"beyond0\0")
        + attribute(18, attribute(1, b"veth\0")) + attribute(46, struct.pack("i", number)))
s.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
error = -struct.unpack("i", s.recv(4096)[16:20])[0]
print(errno.errorcode.get(error, "made"))
"""


@case("V-admin", "a command with CAP_NET_ADMIN changes its own end and reaches no more", timeout=120)
def admin(ctx):
    world = VethWorld(ctx)
    serve_host(7000)
    change = ("ip addr add 10.207.0.77/16 dev eth0 && ip link set eth0 mtu 1400 && "
              "ip link set eth0 address 02:00:00:00:00:09 && exec \"$@\"")
    code = netkit.CLIENT + "print(tcp(sys.argv[1], 7000), tcp(sys.argv[2], 7))"
    inside = ("sh", "-c", change, "sh", PYTHON, "-c", code, HOST4, FAR4)
    own = ("--unshare-user", "--cap-add", "CAP_NET_ADMIN")
    result = world.sandbox(*inside, options=own)
    got = words(ctx, result)
    ctx.true(got[0] in REFUSED and got[1] == "ok", f"the host, and others: {got}")
    # From another address nothing comes through.
    code = ("subprocess.run(['ip', 'addr', 'flush', 'dev', 'eth0'], check=True);"
            "subprocess.run(['ip', 'addr', 'add', '203.0.113.9/32', 'dev', 'eth0'], check=True);"
            "subprocess.run(['ip', 'route', 'add', 'default', 'dev', 'eth0', 'onlink', 'via',"
            " sys.argv[2]], check=False);"
            "print(udp(sys.argv[1], 7, seconds=1), udp(sys.argv[2], 7000, seconds=1))")
    got = words(ctx, world.python(code, FAR4, HOST4, options=own))
    ctx.true("ok" not in got, f"from another address: {got}")
    # The kernel has a number for the host's namespace, which is of use to whoever has rights there:
    # root in a sandbox without a user namespace, which is no prisoner.
    ctx.eq(words(ctx, world.python(BEYOND, options=own)), ["EPERM"], "an interface of the host")
    ctx.true("beyond0" not in interfaces(), "nothing was made")
    ctx.eq(words(ctx, world.python(BEYOND)), ["made"], "without a user namespace")
    ctx.until(nothing_is_left, 20, "its end, with that of the namespace of its other end")
    # So a command of root's that is to keep just this right must have it elsewhere.
    ctx.fails(world.sandbox("true", options=("--cap-add", "CAP_NET_ADMIN")), rc=1,
              err="over the host's network too.*--unshare-user")


@case("V-publish", "published ports lead inside, also without outbound access", timeout=120)
def publish(ctx):
    world = VethWorld(ctx)
    for net in ("veth", "veth,outbound=off"):
        server = service(world, "-p", "9000:8000", "-p", "9001:localhost:8000", net=net)
        for port in ("9000", "9001"):
            ctx.until(lambda: from_here(ctx, "127.0.0.1", port) == ["ok"], 20, f"{net} {port}")
        ctx.eq(from_here(ctx, HOST4, "9000"), ["ECONNREFUSED"], "another address of the host")
        end(ctx, server)
        ctx.until(lambda: from_here(ctx, "127.0.0.1", "9000") == ["ECONNREFUSED"], 10, "the end")


ASK = r'''
def question(name):
    return (b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0" + b"".join(
        bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0\0\1\0\1")
def ask(server, name, stream=False):
    q = question(name)
    s = socket.socket(family(server), socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        s.connect((server, 53))
        if stream: s.sendall(struct.pack("!H", len(q)) + q); s.recv(2, socket.MSG_WAITALL)
        else: s.send(q)
        got = s.recv(65536)
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
    if got[:2] != q[:2] or not got[2] & 0x80: return "wrong"
    return "code%d" % (got[3] & 15) if got[3] & 15 else socket.inet_ntoa(got[-4:])
'''


def names_by_stream(names):
    def talk(client):
        with client:
            size = client.recv(2, socket.MSG_WAITALL)
            if len(size) == 2:
                query = client.recv(struct.unpack("!H", size)[0], socket.MSG_WAITALL)
                answer = names.answer(query)
                client.sendall(struct.pack("!H", len(answer)) + answer)
    return talk


@case("V-names", "names are asked of the host's server, by UDP and TCP, also of one on its loopback",
      timeout=120)
def names(ctx):
    world = VethWorld(ctx)
    # A resolver as systemd-resolved is one, and somebody else's at all other addresses.
    world.set_servers("127.0.0.53")
    stub = netkit.Names({"test.example": (FAR4,)})
    serve(socket.SOCK_DGRAM, "127.0.0.53", 53, answer=stub.answer)
    serve(socket.SOCK_STREAM, "127.0.0.53", 53, talk=names_by_stream(stub))
    code = ASK + ("servers = gateway(4) + gateway(6);"
                  "print(*(ask(s, n, k) for n in ('test.example', 'none.example')"
                  " for s in servers for k in (False, True)),"
                  " socket.getaddrinfo('test.example', 1, socket.AF_INET)[0][4][0])")
    ctx.eq(words(ctx, world.python(code)), [FAR4] * 4 + ["code3"] * 4 + [FAR4], "the answers")
    code_off = ASK + "print(*(ask(s, 'test.example', k) for s in gateway(4) + gateway(6)" \
                     " for k in (False, True)))"
    got = words(ctx, world.python(code_off, net="veth,outbound=off"))
    ctx.true(len(got) == 4 and FAR4 not in got, f"without outbound access: {got}")
    # The port of the host's own server stays out of reach by its other addresses.
    serve(socket.SOCK_DGRAM, HOST4, 53, answer=stub.answer)
    result = world.python(ASK + "print(ask(sys.argv[1], 'test.example'))", HOST4)
    ctx.true(words(ctx, result)[0] in REFUSED, f"the host's: {result}")
    # The host's choice changes; a server outside.
    world.set_servers(PEER4)
    world.names["other.example"] = (FAR4,)
    result = world.python(ASK + "print(ask(gateway(4)[0], 'test.example'))")
    ctx.eq(words(ctx, result), [FAR4], "a server outside")
    world.set_servers()
    result = world.python(ASK + "print(ask(gateway(4)[0], 'test.example'))")
    ctx.eq(words(ctx, result), ["code2"], "without a server")


@case("V-bridge", "on a bridge sandboxes reach each other, and the host stays out of reach",
      timeout=120)
def bridge(ctx):
    world = VethWorld(ctx)
    netkit.configure("ip link add br9 type bridge; ip addr add 203.0.113.1/28 dev br9; "
                     "ip link set br9 up")
    serve_host(7000)
    server = service(world, net="veth,bridge=br9")
    event = server.network
    here = ipaddress.ip_interface(event["address"])
    ctx.true(here.network == ipaddress.ip_network("203.0.113.0/28"), f"the address: {event}")
    ctx.eq((event["gateway"], event["ipv6"]), ("203.0.113.1", False), "the event")
    code = ASK + ("print(tcp(sys.argv[1], 8000), tcp('203.0.113.1', 7000), tcp(sys.argv[2], 7000),"
                  " ask('203.0.113.1', 'test.example'), *gateway(4), *own(4))")
    got = words(ctx, world.python(code, address_of(server), HOST4, net="veth,bridge=br9"))
    ctx.eq(got[0], "ok", "the other sandbox")
    ctx.true(got[1] in REFUSED and got[2] in REFUSED, f"the host: {got}")
    ctx.eq(got[3:5], [FAR4, "203.0.113.1"], "a name, and the gateway")
    got = words(ctx, world.python("print(tcp('203.0.113.1', 7000), udp('203.0.113.1', 7000))",
                                  net="veth,bridge=br9", options=("--host-loopback", "7000")))
    ctx.eq(got, ["ok", "ok"], "ports that are open")
    # A sandbox that is not on the bridge, or on another one, stays apart from those that are; others
    # come through the host.
    netkit.configure("ip link add br8 type bridge; ip addr add 203.0.113.33/28 dev br8; "
                     "ip link set br8 up")
    inside = ("nsenter", f"--net=/proc/{world.internet[0]}/ns/net")
    ctx.ok(ctx.run(*inside, "ip", "route", "add", "203.0.113.0/24", "via", HOST4,
                   pre=netkit.keep_capabilities))
    code = "print(tcp(sys.argv[1], 8000), *(tcp(a, 7) for a in sys.argv[2:]))"
    got = words(ctx, ctx.run(*inside, PYTHON, "-c", netkit.CLIENT + code, address_of(server),
                             pre=netkit.keep_capabilities))
    ctx.eq(got, ["ok"], "from outside")
    for net in ("veth", "veth,bridge=br8"):
        got = words(ctx, world.python(code, address_of(server), FAR4, net=net))
        ctx.true(got[0] in REFUSED and got[1] == "ok", f"from {net}: {got}")
    apart_ = service(world)
    got = words(ctx, world.python(code, address_of(apart_), FAR4, net="veth,bridge=br9"))
    ctx.true(got[0] in REFUSED and got[1] == "ok", f"to a link: {got}")
    apart_.kill()
    apart_.wait(20)
    netkit.configure("ip link del br8")
    # An address of the caller's choice, once.
    ctx.until(lambda: len(bridge_ports()) == 1, 20, "the end of those before")
    chosen = "203.0.113.14/28" if address_of(server) != "203.0.113.14" else "203.0.113.13/28"
    given = f"veth,bridge=br9,address={chosen}"
    first = sleeper(world, net=given)
    ctx.eq(first.network["address"], chosen, "the address that was given")
    ctx.fails(world.sandbox("true", net=given), rc=1, err="another sandbox on the bridge has it")
    ctx.fails(world.sandbox("true", net="veth,bridge=br9,address=203.0.113.1/28"), rc=1,
              err="the bridge itself has it")
    # Somebody else's hardware or IP is not to be had there.
    code = ("other = [a for a in ('203.0.113.9', '203.0.113.10') if a not in own(4)][0]\n"
            "subprocess.run(['ip', 'addr', 'add', other + '/28', 'dev', 'eth0'], check=True)\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n"
            "s.bind((sys.argv[2] or other, 0)); s.connect((sys.argv[1], 7000)); s.send(b'ping')\n"
            "try: print(s.recv(9))\nexcept OSError as e: print(type(e).__name__)")
    for source, expected in (("0.0.0.0", "b'ping'"), ("", "TimeoutError")):
        result = world.python(code, "203.0.113.1", source, net="veth,bridge=br9",
                              options=("--unshare-user", "--cap-add", "CAP_NET_ADMIN",
                                       "--host-loopback", "7000"))
        ctx.eq(words(ctx, result), [expected], f"from {source or 'another address'}")
    # All fourteen but the bridge's own and one that somebody else has; those of sandboxes that have
    # ended, of which the host still knows, among them.
    ctx.until(lambda: len(bridge_ports()) == 2, 20, "the end of those before")
    taken = 7 if address_of(server) != "203.0.113.7" else 8
    old = "\n".join(f"ip neigh replace 203.0.113.{n} lladdr 0a:6e:cb:00:71:{n:02x} dev br9 nud stale"
                    for n in (2, 3, 4))
    netkit.configure(f"{old}\nip neigh replace 203.0.113.{taken} lladdr 02:00:00:00:00:77 dev br9 "
                     "nud stale")
    hardware = shown("link", "show", "br9")[0]["address"]
    procs = [sleeper(world, net="veth,bridge=br9") for _ in range(10)]
    ctx.eq(shown("link", "show", "br9")[0]["address"], hardware, "the bridge's hardware address")
    ctx.eq({address_of(proc) for proc in (*procs, first, server)},
           {f"203.0.113.{n}" for n in range(2, 15) if n != taken}, "the addresses")
    ctx.fails(world.sandbox("true", net="veth,bridge=br9"), rc=1, err="no address.*is free")
    end(ctx, *procs, first, server)


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


@case("V-helper", "the helper is confined, and the process inside keeps one right over its link")
def helper(ctx):
    world = VethWorld(ctx)
    proc = sleeper(world)
    for pid, rights in zip(below(proc, True), (0, 1 << 12)):
        state = status(pid)
        for name, expected in (("CapInh", 0), ("CapPrm", rights), ("CapEff", rights),
                               ("CapBnd", 0), ("CapAmb", 0)):
            ctx.eq(int(state[name], 16), expected, f"{name} of {pid}")
        ctx.eq((state["NoNewPrivs"], state["Seccomp"]), ("1", "2"), f"confinement of {pid}")
        if ctx.root:
            ctx.eq(os.listdir(f"/proc/{pid}/root"), [], f"the root of {pid}")
    end(ctx, proc)


@case("V-trees", "a tree of any kind gets its resolv.conf, however the sandbox is made")
def trees(ctx):
    world = VethWorld(ctx)
    world.set_servers(PEER4, more="search sub.example\n")
    show = ("sh", "-c", "cat /etc/resolv.conf; ip -4 -o addr show eth0; id -u")
    small = (*ctx.USR, "--dev", "/dev", "--proc", "/proc", "--dir", "/etc")
    for options in ((), ("--unshare-user",), ("--unshare-user", "--cap-add", "ALL"),
                    ("--unshare-all", "--share-net", "--net", "veth"),
                    ("--unshare-user", "--uid", "1234", "--cap-add", "CAP_NET_ADMIN"),
                    ("--unshare-pid", "--as-pid-1"), ("--unshare-user", "--disable-userns")):
        for tree in (netkit.SYSTEM, small, (*small, "--remount-ro", "/")):
            out = ctx.ok(ctx.run(ctx.nsbox, "--net", "veth", *options, *tree, *show)).out
            lines = out.splitlines()
            ctx.true(lines[0].startswith("nameserver 10.207.") and lines[1] == "search sub.example"
                     and "10.207." in lines[2], f"{options}: {out!r}")
    out = ctx.ok(world.sandbox("cat", "/etc/resolv.conf", net="veth,names=off")).out
    ctx.true(out.startswith(f"nameserver {PEER4}\n"), f"names=off: {out!r}")


@case("V-overlap", "addresses that the host's routes lead elsewhere are not used", timeout=120)
def overlap(ctx):
    world = VethWorld(ctx)
    where = "print(*own(4), len(own(6)), tcp(sys.argv[1], 7))"
    for route, network in (("10.0.0.0/8", LINKS4[1]), ("172.30.0.0/16", LINKS4[2])):
        netkit.configure(f"ip route add {route} via {PEER4}")
        got = words(ctx, world.python(where, FAR4))
        ctx.true(ipaddress.ip_address(got[0]) in network, f"with {route}: {got}")
        ctx.eq(got[1:], ["1", "ok"], f"with {route}")
    # All but 192.168.77.4/30; and an address counts as a route does.
    left = list(ipaddress.ip_network("192.168.0.0/16").address_exclude(
        ipaddress.ip_network("192.168.77.4/30")))
    netkit.configure("\n".join(f"ip route add {net} via {PEER4}" for net in left) +
                     f"\nip -6 route add {LINKS6} via {PEER6}")
    got = words(ctx, world.python(where, FAR4))
    ctx.eq(got, ["192.168.77.6", "0", "ok"], "the last one")
    netkit.configure("ip addr add 192.168.77.5/32 dev lo")
    ctx.fails(world.sandbox("true"), rc=1, err="leave no address free")


def our_routes():
    every = shown("route", "show", "table", "all") + shown("-6", "route", "show", "table", "all")
    return [route for route in every if route.get("dev") not in ("lo", "up0")]


def bridge_ports():
    return [link["ifname"] for link in shown("link", "show", "master", "br9")]


def below(proc, helper):
    return [p for p, name in harness.descendants(proc.pid) if (name == "nsbox-net") == helper]


def reap_adopted():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


@case("V-killed", "SIGKILL of any one process, or of all, leaves no interface, table or route",
      timeout=180)
def killed(ctx):
    world = VethWorld(ctx)
    for which in ("nsbox", "helper", "inside", "init", "all"):
        proc = sleeper(world)
        ctx.true(not nothing_is_left() and our_routes(), "there is something before")
        helpers, others = below(proc, True), below(proc, False)
        ctx.eq(len(helpers), 2, "the helper and the process inside")
        victims = {"nsbox": [proc.pid], "helper": helpers[:1], "inside": helpers[1:],
                   "init": others[:1], "all": [proc.pid, *helpers, *others]}[which]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        if which == "helper":
            ctx.eq(proc.wait(20), 125, "the status")
            ctx.true(b"the network helper has ended" in proc.stderr.read(), "the message")
        elif which == "inside":
            proc.kill()
        proc.wait(20)
        ctx.until(nothing_is_left, 30, f"{which}: the end of everything")
        reap_adopted()
        ctx.eq(our_routes(), [], "the routes")


@case("V-guard", "with nsbox gone, a sandbox without its helper has no link any more")
def guard(ctx):
    world = VethWorld(ctx)
    proc = sleeper(world, ends=("--unshare-pid",))
    helpers, others = below(proc, True), below(proc, False)
    os.kill(proc.pid, signal.SIGKILL)
    proc.wait(20)
    ctx.true(not nothing_is_left(), "without nsbox it goes on")
    os.kill(helpers[0], signal.SIGKILL)
    ctx.until(nothing_is_left, 30, "the end of the link")
    ctx.true(os.path.exists(f"/proc/{others[0]}"), "the sandbox is there")
    os.kill(others[0], signal.SIGKILL)
    ctx.until(lambda: reap_adopted() or not os.path.exists(f"/proc/{others[0]}"), 20, "its end")


@case("V-200", "200 sandboxes at once have each an address of its own, and nothing is left of them",
      only="root", timeout=240)
def two_hundred(ctx):
    world = VethWorld(ctx)
    count = 200
    procs = [world.start("sleep", "1000", options=ENDS, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL) for _ in range(count)]

    def ready():
        gone = [proc for proc in procs if proc.poll() is not None]
        if gone:
            raise AssertionError(f"one has ended: {gone[0].stderr.read()!r}")
        # A program that looks again and again would take the time that they need.
        with open("/proc/thread-self/net/dev", encoding="ascii") as file:
            links = file.read().count("nsbox")
        return links >= count and len(tables()) == 2 * count

    ctx.until(ready, 120, "all of them")
    links = [link for link in shown("-4", "addr") if link["ifname"].startswith("nsbox")]
    networks = {ipaddress.ip_interface(f"{a['local']}/{a['prefixlen']}").network
                for link in links for a in link["addr_info"]}
    ctx.eq((len(links), len(networks)), (count, count), "the interfaces and their networks")
    code = "print(tcp(sys.argv[1], 7))"
    ctx.eq(words(ctx, world.python(code, FAR4)), ["ok"], "one more reaches the outside")
    for proc in procs:
        proc.kill()
    for proc in procs:
        proc.wait(60)
    ctx.until(nothing_is_left, 120, "the end of everything")
