"""Sandboxes that share a network namespace: --net join:PATH, join:fd:N and join:SANDBOX.

Every refusal stands beside the same action where it is allowed.
"""

import json
import os
import signal
import subprocess

import bpf
import netkit
import nshelp
from b_util import as_user
from harness import case
from netkit import CLIENT, FAR4, FAR6, PYTHON, World

TREE = ("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
        "/tmp")
PLAIN = ("--unshare-all", "--ro-bind", "/", "/")  # One user namespace is enough for this one.
ENDS = ("--die-with-parent",)

SERVER = r'''
import socket, sys, threading
def bound(family, kind, address):
    s = socket.socket(family, kind)
    s.bind((address, 8000))
    return s
def streams(s):
    while True:
        c, _ = s.accept()
        threading.Thread(target=echo, args=(c,), daemon=True).start()
def echo(c):
    while data := c.recv(65536): c.sendall(data)
def datagrams(s):
    while True: s.sendto(*s.recvfrom(65536))
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    tcp, udp = bound(family, socket.SOCK_STREAM, address), bound(family, socket.SOCK_DGRAM, address)
    tcp.listen(10)
    threading.Thread(target=streams, args=(tcp,), daemon=True).start()
    threading.Thread(target=datagrams, args=(udp,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
'''
TALK = CLIENT + "print(*(f(a, 8000) for f in (tcp, udp) for a in ('127.0.0.1', '::1')))"
NETWORK = ("readlink", "/proc/self/ns/net")
LO_DOWN = ("ip", "link", "set", "lo", "down")


def runtime(ctx):
    os.environ["XDG_RUNTIME_DIR"] = ctx.mkdir("run", 0o700)


def listed(ctx):
    lines = ctx.ok(ctx.run(ctx.nsbox, "ps", "--json")).out.splitlines()
    return {known["name"]: known for known in map(json.loads, lines)}


class Box:
    """A sandbox with a name, whose command said "ready" and ends with its standard input."""

    def __init__(self, ctx, *options, name="a", argv=(PYTHON, "-c", SERVER), tree=TREE):
        self.ctx, self.name = ctx, name
        self.proc = ctx.popen(ctx.nsbox, "--name", name, *ENDS, *options, *tree, *argv,
                              stdin=subprocess.PIPE)
        said = self.proc.stdout.readline()
        if said != b"ready\n":
            self.proc.kill()
            raise AssertionError(f"{name} did not start: {self.proc.stderr.read()!r}")
        # Its command may have spoken before its supervisor has made it known.
        self.known = ctx.until(lambda: listed(ctx).get(name), why=f"a sandbox called {name}")

    def network(self):
        return f"/proc/{self.known['child-pid']}/ns/net"

    def execute(self, *words):
        return self.ctx.run(self.ctx.nsbox, "exec", self.name, "--", *words)

    def end(self):
        self.proc.stdin.close()
        self.ctx.eq(self.proc.wait(20), 0, f"the status of {self.name}")


SHELL = ("sh", "-c", "echo ready; cat")


def join(ctx, what, *command, options=(), **kw):
    return ctx.run(ctx.nsbox, "--net", f"join:{what}", *options, *TREE, *command, **kw)


def words(ctx, result):
    return ctx.ok(result).out.split()


def file_of_namespace(ctx, userns):
    """A process in a network namespace that no sandbox made, and the file of that namespace."""
    def prepare():
        if userns:
            nshelp.new_userns(extra=nshelp.CLONE_NEWNET)
        else:
            nshelp.unshare(nshelp.CLONE_NEWNET)
        netkit.configure("ip link set lo up")

    proc = ctx.popen(PYTHON, "-c", SERVER, stdin=subprocess.PIPE, pre=prepare)
    ctx.eq(proc.stdout.readline(), b"ready\n", "the server")
    return f"/proc/{proc.pid}/ns/net"


@case("N-join", "a sandbox that joins another's network shares its loopback and outbound access",
      timeout=120)
def by_every_name(ctx):
    World(ctx)
    runtime(ctx)
    a = Box(ctx, "--net", "user")
    apart = ctx.run(ctx.nsbox, "--net", "none", *TREE, PYTHON, "-c", TALK)
    ctx.true("ok" not in words(ctx, apart), f"a network of one's own: {apart}")
    inside = ctx.ok(a.execute(*NETWORK)).out
    fd = os.open(a.network(), os.O_RDONLY)
    for what in ("a", a.known["id"], a.known["id"][:8], a.network(), "fd:9"):
        result = join(ctx, what, PYTHON, "-c", TALK, fds={9: fd})
        ctx.eq(words(ctx, result), ["ok"] * 4, what)
        ctx.ok(join(ctx, what, *NETWORK, fds={9: fd}), out=inside.strip())
    code = CLIENT + "print(*(f(a, 7) for f in (tcp, udp) for a in sys.argv[1:]))"
    ctx.eq(words(ctx, join(ctx, "a", PYTHON, "-c", code, FAR4, FAR6)), ["ok"] * 4, "outside")
    # And the other way round: what the second one serves is there for the first.
    b = ctx.popen(ctx.nsbox, "--net", "join:a", *ENDS, *TREE, PYTHON, "-c",
                  SERVER.replace("8000", "8001"), stdin=subprocess.PIPE)
    ctx.eq(b.stdout.readline(), b"ready\n", "the second server")
    ctx.eq(words(ctx, a.execute(PYTHON, "-c", TALK.replace("8000", "8001"))), ["ok"] * 4, "back")
    b.stdin.close()
    ctx.eq(b.wait(20), 0, "the second one")
    a.end()


@case("N-join-rights", "the command has no capability over the network that its sandbox joined")
def rights(ctx):
    runtime(ctx)
    a = Box(ctx, "--net", "none", argv=SHELL)
    own = ("--unshare-user", "--cap-add", "CAP_NET_ADMIN")
    # Where the network is the sandbox's own, the capability is worth something.
    ctx.ok(ctx.run(ctx.nsbox, "--net", "none", *own, *PLAIN, *LO_DOWN))
    for options in ((), own, ("--unshare-user", "--cap-add", "ALL"),
                    ("--unshare-user", "--uid", "0", "--gid", "0"),
                    ("--unshare-user", "--uid", "5", "--gid", "6", "--cap-add", "CAP_NET_ADMIN")):
        result = join(ctx, "a", *LO_DOWN, options=options)
        ctx.fails(result, err="RTNETLINK answers: Operation not permitted")
        ctx.ok(join(ctx, "a", "true", options=options))
    out = ctx.ok(join(ctx, "a", "ip", "-o", "link", "show", "lo")).out
    ctx.true("UP" in out.split("<", 1)[1].split(">", 1)[0].split(","), f"loopback: {out}")
    text = ctx.ok(join(ctx, "a", "grep", "-E", "^(Cap|NoNew|Seccomp:)", "/proc/self/status",
                       options=("--unshare-user", "--cap-drop", "ALL", "--add-seccomp-fd", "8"),
                       fds={8: bpf.deny_list(("symlink", "symlinkat"), 18)})).out
    state = dict(line.split(":\t") for line in text.splitlines())
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        ctx.eq(int(state[name], 16), 0, name)
    ctx.eq((state["NoNewPrivs"], state["Seccomp"]), ("1", "2"), "the privileges")
    a.end()


@case("N-join-ids", "whatever ids the two sandboxes have, the second one has those it asked for")
def ids(ctx):
    runtime(ctx)
    shapes = {"plain": (), "dev": ("--uid", "7", "--gid", "8"), "zero": ("--uid", "0", "--gid", "0")}
    for name, first in shapes.items():
        a = Box(ctx, "--unshare-user", *first, name=name, argv=SHELL)
        for second in ((), ("--uid", "3", "--gid", "4"), ("--uid", "0", "--gid", "0")):
            wanted = f"{second[1]} {second[3]}" if second else f"{ctx.uid} {ctx.gid}"
            ctx.ok(join(ctx, name, "sh", "-c", "echo $(id -u) $(id -g)",
                        options=("--unshare-user", *second)), out=wanted)
        # What it writes is the caller's, as always.
        path = os.path.join(ctx.dir, f"made-{name}")
        ctx.ok(ctx.run(ctx.nsbox, "--net", f"join:{name}", "--unshare-user", "--uid", "3",
                       "--bind", "/", "/", "touch", path))
        ctx.eq((os.stat(path).st_uid, os.stat(path).st_gid), (ctx.uid, ctx.gid), path)
        a.end()


@case("N-join-file", "a network namespace that no sandbox made is joined by its file, by whom it may")
def by_file(ctx):
    World(ctx)
    own = file_of_namespace(ctx, userns=True)
    ctx.eq(words(ctx, join(ctx, own, PYTHON, "-c", TALK)), ["ok"] * 4, own)
    bound = ctx.write("namespace")
    nshelp.mount(own, bound, None, nshelp.MS_BIND)
    ctx.eq(words(ctx, join(ctx, "./namespace", PYTHON, "-c", TALK)), ["ok"] * 4, "a file like ip netns's")
    plain = file_of_namespace(ctx, userns=False)
    nshelp.mount(plain, bound, None, nshelp.MS_BIND)
    result = join(ctx, bound, PYTHON, "-c", TALK)
    if ctx.root:
        ctx.eq(words(ctx, result), ["ok"] * 4, "root")
        # Without a user namespace of its own the sandbox takes no detour.
        keeps = ctx.run(ctx.nsbox, "--net", f"join:{bound}", "--bind", "/", "/", *NETWORK)
        ctx.ok(keeps, out=os.readlink(plain))
    else:
        ctx.fails(result, rc=1, err=rf"join the network of {bound}: it belongs to the user "
                  "namespace that this process is in.*CAP_SYS_ADMIN")


@case("N-join-others", "the network of another user is not for an ordinary user, and the error says "
      "whose it is", only="root")
def of_others(ctx):
    place = ctx.write("namespace")

    def prepare():
        nshelp.unshare(nshelp.CLONE_NEWNS)
        nshelp.mount(None, "/", None, nshelp.MS_REC | nshelp.MS_PRIVATE)

    prepare()
    # Made by root in a user namespace of its own; everybody may open the file.
    made = file_of_namespace(ctx, userns=True)
    nshelp.mount(made, place, None, nshelp.MS_BIND)
    ctx.ok(join(ctx, place, *NETWORK), out=os.readlink(made))
    as_other = ctx.run(*as_user(), ctx.nsbox, "--net", f"join:{place}", *TREE, "true")
    ctx.fails(as_other, rc=1, err=f"network of {place}: it belongs to the user 0.*that user may")
    # One that the ordinary user made is root's to join as well.
    theirs = ctx.popen(*as_user(), "unshare", "-Urn", "sh", "-c", "echo ready; cat",
                       stdin=subprocess.PIPE)
    ctx.eq(theirs.stdout.readline(), b"ready\n", "their namespace")
    theirs_file = f"/proc/{theirs.pid}/ns/net"
    ctx.ok(join(ctx, theirs_file, *NETWORK), out=os.readlink(theirs_file))
    ctx.ok(ctx.run(*as_user(), ctx.nsbox, "--net", f"join:{theirs_file}", *TREE, *NETWORK),
           out=os.readlink(theirs_file))
    theirs.stdin.close()
    theirs.wait(20)


@case("N-join-errors", "what cannot be joined is named with the reason, and nothing is started")
def errors(ctx):
    runtime(ctx)
    a = Box(ctx, "--net", "none", argv=SHELL)
    os.mkfifo(os.path.join(ctx.dir, "fifo"))
    kind = a.network()[:-3]
    closed = os.open("/dev/null", os.O_RDONLY)
    table = (
        # No letters that an id could begin with: that of a sandbox serves as well.
        ("nosuch", "No running sandbox is called nosuch .*nsbox ps"),
        ("/nonexistent", "network of /nonexistent: No such file or directory"),
        ("./fifo", "no network namespace"),
        ("/etc/passwd", "network of /etc/passwd: it is no network namespace"),
        (kind + "uts", "a namespace of another kind"),
        ("/proc/self/ns/net", "the network that this process has.*--net host"),
        ("fd:77", "descriptor 77: Bad file descriptor.*not open"),
        ("fd:8", "descriptor 8: it is no network namespace"),
        ("fd:x", 'join:fd: takes the number of a descriptor, not "x"'),
        ("fd:-1", "takes the number of a descriptor"),
        ("", "--net join: takes the path"),
    )
    for what, error in table:
        result = join(ctx, what, "touch", os.path.join(ctx.dir, "started"), fds={8: closed},
                      options=("--bind", ctx.dir, ctx.dir))
        ctx.fails(result, rc=1, err=error)
    ctx.fails(join(ctx, "a", "true", options=("--unshare-net",)), rc=1,
              err="--unshare-net is not compatible with --net join:")
    ctx.fails(join(ctx, "a", "true", options=("-p", "1:1")), rc=1, err="require --net user or --net veth")
    ctx.true(not os.path.exists("started"), "a command was executed")
    # The last word holds, and a descriptor is not the command's to see.
    ctx.ok(join(ctx, "nosuch", *NETWORK, options=("--net", "join:a")),
           out=os.readlink(a.network()))
    fd = os.open(a.network(), os.O_RDONLY)
    listing = ("sh", "-c", "ls /proc/$$/fd")
    ctx.eq(words(ctx, join(ctx, "fd:9", *listing, fds={9: fd})),
           words(ctx, join(ctx, "a", *listing)), "the command's descriptors")
    a.end()


@case("N-join-host", "a sandbox with the host's network is not joined: that has a name of its own")
def host_network(ctx):
    runtime(ctx)
    a = Box(ctx, "--share-net", argv=SHELL, tree=(*TREE, "--share-net"))
    ctx.fails(join(ctx, "a", "true"), rc=1, err="network of a: .*that this process has.*--net host")
    ctx.ok(ctx.run(ctx.nsbox, *TREE, "--net", "host", *NETWORK),
           out=os.readlink("/proc/self/ns/net"))
    a.end()


@case("N-join-stopped", "a sandbox whose supervisor is stopped is not joined by its name, and is "
      "when it goes on")
def stopped(ctx):
    runtime(ctx)
    a = Box(ctx, "--net", "none", argv=SHELL)
    a.proc.send_signal(signal.SIGSTOP)
    ctx.until(lambda: open(f"/proc/{a.proc.pid}/stat", encoding="ascii").read().split()[2] == "T",
              why="a stopped supervisor")
    ctx.fails(join(ctx, "a", "true"), rc=1, err="supervisor is stopped.*SIGCONT")
    a.proc.send_signal(signal.SIGCONT)
    ctx.ok(join(ctx, "a", "true"))
    a.end()


@case("N-join-power", "a sandbox whose command has power over its network is for root alone to join")
def power(ctx):
    runtime(ctx)
    strong = Box(ctx, "--unshare-user", "--cap-add", "CAP_NET_ADMIN", name="strong", argv=SHELL,
                 tree=PLAIN)
    ctx.ok(strong.execute(*LO_DOWN))
    weak = Box(ctx, "--unshare-user", name="weak", argv=SHELL, tree=PLAIN)
    result = join(ctx, "strong", "true")
    if ctx.root:
        ctx.ok(result)
    else:
        ctx.fails(result, rc=1, err="network of strong: its command is in the user namespace that "
                  "owns the network")
    ctx.ok(join(ctx, "weak", *NETWORK), out=os.readlink(weak.network()))
    limited = Box(ctx, "--unshare-user", "--disable-userns", name="limited", argv=SHELL)
    result = join(ctx, "limited", "true")
    if ctx.root:
        ctx.ok(result)
    else:
        ctx.fails(result, rc=1, err="owns the network of limited allows no further ones")
    for a in (strong, weak, limited):
        a.end()


@case("N-join-killed", "when the first sandbox is killed the others keep their network, without the "
      "way out", timeout=120)
def first_ends(ctx):
    World(ctx)
    runtime(ctx)
    a = Box(ctx, "--net", "user", argv=SHELL)
    b = Box(ctx, "--net", "join:a", name="b")
    outside = (PYTHON, "-c", CLIENT + "print(tcp(sys.argv[1], 7))", FAR4)
    ctx.ok(b.execute(*outside), out="ok")
    network = os.readlink(b.network())
    a.proc.kill()
    a.proc.wait(20)
    ctx.until(lambda: not os.path.exists(a.network()), why="the end of a")
    ctx.eq(words(ctx, b.execute(PYTHON, "-c", TALK)), ["ok"] * 4, "the loopback")
    ctx.until(lambda: ctx.ok(b.execute(*outside)).out.strip() == "ENETUNREACH",
              why="the end of the way out")
    # Another one can come in by it.
    ctx.ok(join(ctx, "b", *NETWORK), out=network)
    ctx.eq(words(ctx, join(ctx, "b", PYTHON, "-c", TALK)), ["ok"] * 4, "a third one")
    b.end()


@case("N-join-exec", "nsbox exec comes into a sandbox that joined a network, in all of its namespaces")
def enter(ctx):
    runtime(ctx)
    a = Box(ctx, "--net", "none", argv=SHELL)
    shapes = [TREE, ("--unshare-user", "--ro-bind", "/", "/"),
              ("--unshare-user", "--unshare-pid", "--uid", "5", "--ro-bind", "/", "/", "--proc",
               "/proc"),
              (*TREE, "--unshare-user", "--cap-add", "ALL")]
    if ctx.root:
        shapes.append(("--ro-bind", "/", "/"))
    facts = ("sh", "-c", "for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; "
             "done; id -u; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status")
    for number, shape in enumerate(shapes):
        name = f"b{number}"
        b = Box(ctx, "--net", "join:a", name=name, tree=shape,
                argv=("sh", "-c", f"{{ {facts[2]}; }} >&2; echo ready; cat"))
        entered = ctx.ok(b.execute(*facts)).out
        ctx.true(os.readlink(a.network()) in entered.split(), f"{shape}: {entered}")
        b.proc.stdin.close()
        ctx.eq(entered, b.proc.stderr.read().decode(), f"{shape}")
        ctx.eq(b.proc.wait(20), 0, f"{shape}")
    a.end()


@case("N-join-userns", "with --userns the network is joined from within that user namespace")
def with_userns(ctx):
    proc = ctx.popen("unshare", "-Ur", "--net", "sh", "-c", "echo ready; cat",
                     stdin=subprocess.PIPE)
    ctx.eq(proc.stdout.readline(), b"ready\n", "the namespaces")
    fds = {7: os.open(f"/proc/{proc.pid}/ns/user", os.O_RDONLY),
           8: os.open(f"/proc/{proc.pid}/ns/net", os.O_RDONLY)}
    ctx.ok(ctx.run(ctx.nsbox, "--userns", "7", "--net", "join:fd:8", "--ro-bind", "/", "/",
                   *NETWORK, fds=fds), out=os.readlink(f"/proc/{proc.pid}/ns/net"))
    other = ctx.popen("unshare", "-Ur", "sh", "-c", "echo ready; cat", stdin=subprocess.PIPE)
    ctx.eq(other.stdout.readline(), b"ready\n", "another user namespace")
    fds[7] = os.open(f"/proc/{other.pid}/ns/user", os.O_RDONLY)
    result = ctx.run(ctx.nsbox, "--userns", "7", "--net", "join:fd:8", "--ro-bind", "/", "/",
                     *NETWORK, fds=fds)
    if ctx.root:
        ctx.ok(result, out=os.readlink(f"/proc/{proc.pid}/ns/net"))
    else:
        ctx.fails(result, rc=1, err="network of descriptor 8: Operation not permitted .*not the one "
                  "that was joined")
    for process in (proc, other):
        process.stdin.close()
        process.wait(20)
