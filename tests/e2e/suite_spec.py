"""Documents that describe sandboxes: nsbox spec, and nsbox run --spec."""

import json
import os
import subprocess

from casekit import runtime, until_known
from harness import case

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMA = os.path.join(os.path.dirname(os.path.dirname(HERE)), "doc/sandbox.schema.json")


def document(ctx, name="document.json", **members):
    # Names with a hyphen are written with an underscore here.
    members = {key.replace("_", "-"): value for key, value in members.items()}
    return ctx.write(name, json.dumps({"version": 1, **members}))


def run(ctx, path, *words, **kw):
    return ctx.run(ctx.nsbox, "run", "--spec", path, *words, **kw)


@case("J-check", "nsbox spec check says whether documents are some, and where they are not")
def check(ctx):
    good = document(ctx, hostname="box")
    ctx.ok(ctx.run(ctx.nsbox, "spec", "check", good, good))
    with open(good, "rb") as file:
        text = file.read()
    ctx.ok(ctx.run(ctx.nsbox, "spec", "check", "-", input=text))
    bad = document(ctx, "bad.json", memory="much")
    result = ctx.run(ctx.nsbox, "spec", "check", good, bad)
    ctx.fails(result, rc=125, err="bad.json: Can't use the document /memory: it is a text, and has to be a number")
    broken = ctx.write("broken.json", '{"version": 1,\n "uid": }')
    ctx.fails(ctx.run(ctx.nsbox, "spec", "check", broken), rc=125, err="line 2, column 9: it is no JSON")
    ctx.fails(ctx.run(ctx.nsbox, "spec", "check", os.path.join(ctx.dir, "none")), rc=125, err="No such file")
    ctx.fails(ctx.run(ctx.nsbox, "spec", "check"), rc=125, err="nsbox spec takes")
    ctx.fails(ctx.run(ctx.nsbox, "spec", "cake"), rc=125, err="nsbox spec takes")
    ctx.true(ctx.ok(ctx.run(ctx.nsbox, "spec", "help")).out.startswith("usage: nsbox spec check"), "the help")


@case("J-schema", "nsbox spec schema is the schema in doc/, which names every member once")
def schema(ctx):
    printed = ctx.ok(ctx.run(ctx.nsbox, "spec", "schema")).out
    with open(SCHEMA, encoding="utf-8") as file:
        ctx.eq(printed, file.read(), "doc/sandbox.schema.json")
    members = json.loads(printed)["properties"]
    # What the page about documents shows is one, and it names each member.
    with open(os.path.join(os.path.dirname(SCHEMA), "document.md"), encoding="utf-8") as file:
        page = file.read()
    ctx.eq([name for name in members if f"`{name}`" not in page], [], "members that doc/document.md lacks")
    example = "\n".join(line[4:] for line in page.split("\n\n    {", 1)[1].split("\n    }", 1)[0].splitlines())
    path = ctx.write("example.json", "{" + example.lstrip() + "\n}")
    ctx.ok(ctx.run(ctx.nsbox, "spec", "check", path))


PAIRS = (
    ({}, ()),
    ({"hostname": "box", "cwd": "/tmp", "uid": 7, "gid": 8}, ("--hostname", "box", "--cwd", "/tmp", "--uid", "7",
                                                            "--gid", "8")),
    ({"env": {"A": "1", "B": "2"}}, ("--env", "A=1", "--env", "B=2")),
    ({"mounts": [{"type": "bind", "source": "/usr/share", "destination": "/mnt"}]}, ("--ro", "/usr/share:/mnt")),
    ({"mounts": [{"type": "bind", "source": "/usr/share", "destination": "/mnt", "access": "read-write"},
                 {"type": "tmpfs", "destination": "/x", "size": 4096}]},
     ("--rw", "/usr/share:/mnt", "--size", "4096", "--tmpfs", "/x")),
    ({"net": "host"}, ("--net", "host")),
    ({"net": "user"}, ("--net", "user")),
    ({"net": {"mode": "user", "outbound": False}}, ("--net", "user,outbound=off")),
    ({"rlimit": {"nofile": [64, 128]}, "nice": 3, "tmpfs-size": 65536},
     ("--rlimit", "nofile=64:128", "--nice", "3", "--tmpfs-size", "65536")),
    ({"seccomp-policy": ["strict"], "allow-ptrace": True}, ("--seccomp-policy", "strict", "--allow-ptrace")),
    ({"net": {"mode": "user", "host-loopback": [5432]}, "publish": [{"host-port": 8080, "port": 80}]},
     ("--net", "user", "--host-loopback", "5432", "-p", "8080:80")),
    ({"allow-userns": True}, ("--allow-userns",)),
    ({"landlock": "off"}, ("--landlock", "off")),
    ({"cap-add": ["CAP_NET_RAW"], "proc-fallback": "empty"}, ("--cap-add", "CAP_NET_RAW", "--proc-fallback", "empty")),
    ({"net": {"mode": "user", "required": True},
      "publish": [{"unix": "/tmp/s", "port": 80, "to-loopback": True}], "host-socket": [{"path": "/run/x", "port": 5}]},
     ("--net", "user,required=on", "-p", "unix:/tmp/s:localhost:80", "--host-socket", "/run/x:5")),
    ({"disable-userns": True, "cap-add": ["CAP_CHOWN", "CAP_KILL"], "cap-drop": ["CAP_KILL"]},
     ("--disable-userns", "--cap-add", "CAP_CHOWN", "--cap-add", "CAP_KILL", "--cap-drop", "CAP_KILL")),
    ({"mounts": [{"type": "overlay", "destination": "/mnt", "lower": ["/usr/lib", "/usr/share"]},
                 {"type": "overlay", "destination": "/tmp", "lower": ["/usr/share"], "changes": "temporary"},
                 {"type": "proc", "destination": "/x/proc"}, {"type": "dev", "destination": "/x/dev"},
                 {"type": "mqueue", "destination": "/x/mq"}, {"type": "directory", "destination": "/x/d"},
                 {"type": "chmod", "destination": "/x/d", "mode": 448}]},
     ("--overlay-src", "/usr/lib", "--overlay-src", "/usr/share", "--ro-overlay", "/mnt",
      "--overlay-src", "/usr/share", "--tmp-overlay", "/tmp", "--proc", "/x/proc", "--dev", "/x/dev", "--mqueue", "/x/mq",
      "--dir", "/x/d", "--chmod", "0700", "/x/d")),
    ({"timeout": 2.5, "cpu-time": 1}, ("--timeout", "2.5", "--cpu-time", "1")),
)


ROOTS_PAIRS = (
    ({"net": "veth"}, ("--net", "veth")),
    ({"net": {"mode": "veth", "mtu": 1400, "outbound": False, "host-loopback": [5432]}, "publish": [{"port": 80}]},
     ("--net", "veth,mtu=1400,outbound=off", "--host-loopback", "5432", "-p", "0:80")),
)


@case("J-plan", "a document and the options of the same names plan the same sandbox")
def same_plan(ctx):
    plans = set()
    pairs = PAIRS + (ROOTS_PAIRS if os.getuid() == 0 else ())
    for members, options in pairs:
        path = ctx.write("pair.json", json.dumps({"version": 1, **members}))
        by_document = ctx.ok(ctx.run(ctx.nsbox, "run", "--spec", path, "--dry-run", "--", "true")).out
        by_options = ctx.ok(ctx.run(ctx.nsbox, "run", *options, "--dry-run", "--", "true")).out
        ctx.eq(by_document, by_options, f"{members}")
        plans.add(by_document)
    # The plan shows what is wished: nearly all of them are different.
    ctx.true(len(plans) >= len(pairs) - 2, f"only {len(plans)} plans")


@case("J-run", "nsbox run --spec starts what the document says, and options come on top of it")
def runs(ctx):
    work = ctx.mkdir("work")
    path = document(ctx, command=["sh", "-c", "echo $COLOR $SIZE; hostname; pwd; cat /etc/hello; id -u"],
                    env={"COLOR": "blue"}, hostname="box", work_dir=work, uid=77,
                    mounts=[{"type": "text", "destination": "/etc/hello", "content": "hello\n"}])
    ctx.eq(ctx.ok(run(ctx, path)).out.split(), ["blue", "box", "/home/sandbox", "hello", "77"], "the document")
    result = ctx.ok(run(ctx, path, "--env", "SIZE=large", "--hostname", "other", "--uid", "78"))
    ctx.eq(result.out.split(), ["blue", "large", "other", "/home/sandbox", "hello", "78"], "options on top")
    ctx.ok(run(ctx, path, "--", "touch", "made"))
    ctx.true(os.path.exists(os.path.join(work, "made")), "a command in the place of the document's")
    with open(path, "rb") as file:
        text = file.read()
    ctx.eq(ctx.ok(ctx.run(ctx.nsbox, "run", "--spec=-", "--", "hostname", input=text)).out, "box\n", "from a pipe")


@case("J-wrong", "a document that is wrong, late or lacks a command starts nothing")
def wrong(ctx):
    marker = os.path.join(ctx.mkdir("work"), "made")
    bad = document(ctx, "bad.json", command=["touch", marker], cap_add=["cake"])
    ctx.fails(run(ctx, bad), rc=125, err="bad.json: Can't use the document /cap-add/0: there is no capability cake")
    good = document(ctx)
    ctx.fails(run(ctx, good), rc=125, err="there is no command")
    ctx.fails(ctx.run(ctx.nsbox, "run", "--hostname", "x", "--spec", good, "--", "true"), rc=125,
              err="--spec has to be the first option")
    ctx.fails(run(ctx, os.path.join(ctx.dir, "none"), "true"), rc=125, err="No such file")
    ctx.true(not os.path.exists(marker), "nothing ran")
    # The same limit as an option is one.
    limited = document(ctx, "limited.json", command=["sh", "-c", "ulimit -n"], rlimit={"nofile": 77})
    ctx.eq(ctx.ok(run(ctx, limited)).out, "77\n", "a limit")


@case("J-rootfs", "a document names a root filesystem and an overlay of it")
def rootfs(ctx):
    root = ctx.mkdir("root")
    for name in ("usr", "bin", "lib", "lib64", "etc"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    mounts = [{"type": "bind", "source": f"/{name}", "destination": f"/{name}", "if-missing": "skip"}
              for name in ("usr", "bin", "lib", "lib64")]
    path = document(ctx, rootfs=root, overlay=True, mounts=mounts,
                    command=["sh", "-c", "echo kept > /etc/new && cat /etc/new"])
    ctx.eq(ctx.ok(run(ctx, path)).out, "kept\n", "the overlay")
    ctx.eq(os.listdir(os.path.join(root, "etc")), [], "the root itself")


@case("J-command", "members about the command alone, and about walls without namespaces")
def command_members(ctx):
    lock = ctx.write("lock", "")
    os.chmod(lock, 0o666)
    tell = "import fcntl, os; f = open('/mnt/lock', 'r+'); print(os.getpid()); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    mounts = [{"type": "bind", "source": lock, "destination": "/mnt/lock", "access": "read-write"}]
    result = run(ctx, document(ctx, argv0="other", command=["sh", "-c", "cat /proc/$$/cmdline"]))
    ctx.true(ctx.ok(result).out.startswith("other\0"), f"argv[0]: {result}")
    ctx.eq(ctx.ok(run(ctx, document(ctx, mounts=mounts), "python3", "-c", tell)).out, "2\n", "without them")
    ctx.eq(ctx.ok(run(ctx, document(ctx, mounts=mounts, as_pid_1=True), "python3", "-c", tell)).out, "1\n", "as-pid-1")
    locked = document(ctx, mounts=mounts, lock_files=["/mnt/lock"])
    ctx.fails(run(ctx, locked, "python3", "-c", tell), rc=1, err="Resource temporarily unavailable")
    # Denials, and the same without.
    touch = ("sh", "-c", "touch /usr/x 2>/dev/null; true")
    told = ctx.ok(run(ctx, document(ctx, log_denials=True), *touch)).err
    ctx.true('"object": "/usr/x"' in told, f"a denial: {told}")
    ctx.eq(ctx.ok(run(ctx, document(ctx), *touch)).err, "", "no log")
    # Landlock alone: the namespaces are the host's.
    mine = os.readlink("/proc/self/ns/mnt") + "\n"
    ctx.eq(ctx.ok(run(ctx, document(ctx, landlock="only"), "readlink", "/proc/self/ns/mnt")).out, mine, "landlock only")
    ctx.true(ctx.ok(run(ctx, document(ctx), "readlink", "/proc/self/ns/mnt")).out != mine, "namespaces")


@case("J-join", "a document joins the network of another sandbox by its name, or by a file")
def join(ctx):
    runtime(ctx)
    named = ctx.write("named.json", json.dumps({"version": 1, "name": "db"}))
    other = ctx.popen(ctx.nsbox, "run", "--spec", named, "--", "sh", "-c", "readlink /proc/self/ns/net; cat",
                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    theirs = other.stdout.readline().decode()
    ctx.true(theirs.startswith("net:["), theirs)
    show = ("readlink", "/proc/self/ns/net")
    until_known(ctx, "db")
    ctx.eq(ctx.ok(run(ctx, document(ctx, net={"mode": "join", "sandbox": "db"}), *show)).out, theirs, "by its name")
    known = json.loads(ctx.ok(ctx.run(ctx.nsbox, "ps", "--json")).out)
    path = f"/proc/{known['child-pid']}/ns/net"
    ctx.eq(ctx.ok(run(ctx, document(ctx, net={"mode": "join", "path": path}), *show)).out, theirs, "by a file")
    ctx.true(ctx.ok(run(ctx, document(ctx), *show)).out != theirs, "one of its own")
    ctx.fails(run(ctx, document(ctx, net={"mode": "join", "sandbox": "none"}), *show), rc=125, err="none")
    other.stdin.close()
    ctx.eq(other.wait(timeout=20), 0, "the other one's end")
