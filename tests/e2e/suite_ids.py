"""Several ids in a sandbox: --map-uid, --map-gid and --subids."""

import contextlib
import os
import re

import casekit
from casekit import in_mounts, runtime, tool
from harness import case

COUNT = 1000
SHAPE = ("--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev",
         "/dev")
LOOK = "id -u; id -g; id -G; cat /proc/self/uid_map /proc/self/gid_map"


def granted(ctx, kind="u"):
    """The first subordinate id that the user of the case has, and how many there are. Root, who needs
    no grant, takes what nobody is likely to be."""
    if ctx.root:
        return 700000, 65536
    tool(ctx, f"new{kind}idmap")
    name = casekit.ordinary()[0]
    with open(f"/etc/sub{kind}id", encoding="utf-8") as f:
        for line in f:
            user, first, count = line.strip().split(":")
            if user in (name, str(ctx.uid)):
                return int(first), int(count)
    ctx.skip(f"/etc/sub{kind}id grants nothing to {name}")


def maps(ctx, count=COUNT):
    """Words that map `count` ids from 0 on, and the first one outside."""
    uid, gid = granted(ctx)[0], granted(ctx, "g")[0]
    return ("--map-uid", f"0:{uid}:{count}", "--map-gid", f"0:{gid}:{count}"), uid, gid


def numbers(text):
    return [line.split() for line in text.splitlines()]


@case("ids", "the ids of both maps are those of the sandbox, and the command is who --uid and "
      "--gid say", timeout=120)
def mapped(ctx):
    words, uid, gid = maps(ctx)
    for more in ((), ("--disable-userns",), ("--as-pid-1",), ("--share-net",),
                 ("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN")):
        result = ctx.ok(ctx.bw(*SHAPE, *words, "--unshare-user", *more, "--uid", "7", "--gid", "8",
                               "sh", "-c", LOOK))
        lines = numbers(result.out)
        ctx.eq(lines[:3], [["7"], ["8"], ["8"]], f"{more}: who it is\n{result}")
        # The second user namespace that some of these take has the same ids.
        inner = "--disable-userns" in more or (ctx.root and lines[3][1] == "0")
        ctx.eq(lines[3:], [["0", "0" if inner else str(uid), str(COUNT)],
                           ["0", "0" if inner else str(gid), str(COUNT)]], f"{more}\n{result}")
    # The control: without maps there is one id.
    result = ctx.ok(ctx.bw("--unshare-user", "--ro-bind", "/", "/", "cat", "/proc/self/uid_map"))
    ctx.eq(numbers(result.out), [[str(ctx.uid), str(ctx.uid), "1"]], "one id")


@case("ids", "several ranges are mapped in their order, and what the command makes belongs to the "
      "host's id for its own")
def ranges(ctx):
    first = granted(ctx)[0]
    groups = granted(ctx, "g")[0]
    out = ctx.mkdir("out")
    os.chmod(out, 0o777)
    words = ("--map-uid", f"0:{first}:10", "--map-uid", f"10:{ctx.uid}:1", "--map-uid",
             f"20:{first + 10}:1", "--map-gid", f"0:{groups}:10", "--map-gid", f"10:{ctx.gid}:1")
    for inside, outside in ((10, ctx.uid), (3, first + 3), (20, first + 10)):
        ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", out, "/mnt", *words, "--uid", str(inside),
                      "--gid", "5", "sh", "-c", f"echo x >/mnt/{inside}"))
        status = os.stat(f"{out}/{inside}")
        ctx.eq((status.st_uid, status.st_gid), (outside, groups + 5), f"the file of {inside}")
        if outside != ctx.uid and not ctx.root:
            # The user itself could not remove it.
            ctx.ok(ctx.bw("--ro-bind", "/", "/", "--bind", out, "/mnt", *words, "--uid",
                          str(inside), "--gid", "5", "rm", f"/mnt/{inside}"))


@case("ids", "with the capability the command can give files away to the sandbox's ids and to no "
      "others")
def chown(ctx):
    words, uid, gid = maps(ctx)
    out = ctx.mkdir("out")
    os.chmod(out, 0o777)
    script = """
        echo x >/mnt/f
        chown 5:6 /mnt/f && stat -c %u:%g /mnt/f
        for id in 1000 65534 100000; do chown $id /mnt/f && echo changed to $id; done
        chown :1000 /mnt/f && echo group changed
        stat -c %u:%g /mnt/f
        chown 0:0 /mnt/f
    """
    base = ("--ro-bind", "/", "/", "--bind", out, "/mnt", *words, "--uid", "0", "--gid", "0")
    result = ctx.ok(ctx.bw(*base, "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", "sh", "-c",
                           script))
    ctx.eq(result.out, "5:6\n5:6\n", f"only the first one\n{result}")
    ctx.eq(result.err.count("Invalid argument"), 4, f"why\n{result}")
    status = os.stat(f"{out}/f")
    ctx.eq((status.st_uid, status.st_gid), (uid, gid), "root of the sandbox")
    # Without the capability it is a user like others.
    result = ctx.fails(ctx.bw(*base, "--cap-drop", "ALL", "chown", "5:6", "/mnt/f"),
                       err="Operation not permitted")
    ctx.ok(ctx.bw(*base, "--cap-drop", "ALL", "rm", "/mnt/f"))


@case("ids", "a command with all capabilities over its ids can map none below that are not its own")
def below(ctx):
    words = maps(ctx)[0]
    script = """
        import os, sys
        def write(pid, text):
            for name in ("uid_map", "gid_map"):
                try:
                    with open(f"/proc/{pid}/{name}", "w") as f:
                        f.write(text)
                except OSError as error:
                    return error.strerror
            return "mapped"
        for text in sys.argv[1:]:
            ready, go = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                os.unshare(0x10000000) if hasattr(os, "unshare") else \\
                    __import__("ctypes").CDLL(None, use_errno=True).unshare(0x10000000)
                os.write(ready[1], b"x")
                os.read(go[0], 1)
                os._exit(0)
            os.read(ready[0], 1)
            print(write(child, text))
            os.write(go[1], b"x")
            os.waitpid(child, 0)
    """
    lines = script.splitlines()[1:]
    indent = len(lines[0]) - len(lines[0].lstrip())
    program = "\n".join(line[indent:] for line in lines)
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", *words,
                           "--uid", "0", "--gid", "0", "--cap-add", "ALL", "/usr/bin/python3", "-c",
                           program, "0 5 10\n", f"0 {COUNT} 1\n", f"0 5 {COUNT}\n", "0 100000 1\n"))
    ctx.eq(result.out.splitlines(), ["mapped"] + ["Operation not permitted"] * 3,
           f"ids of the sandbox, then others\n{result}")


@case("ids", "the command is in none of the caller's supplementary groups and cannot read what is "
      "theirs", only="root")
def groups(ctx):
    tool(ctx, "setpriv")
    name, uid, gid = casekit.ordinary()
    shared = ctx.write("shared", "shared\n", 0o640)
    os.chown(shared, 0, 4242)
    become = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--groups=4242", "--inh-caps=-all",
              "--", ctx.bwrap, "--ro-bind", "/", "/")
    look = ("sh", "-c", f"id -G; cat {shared}")
    with open("/etc/subuid", encoding="utf-8") as f:
        if not re.search(rf"^({name}|{uid}):", f.read(), re.M):
            ctx.skip(f"/etc/subuid grants nothing to {name}")
    result = ctx.fails(ctx.run(*become, "--subids", *look), err="Permission denied")
    ctx.eq(result.out, f"{gid}\n", f"no other group\n{result}")
    # The control: with one id the groups stay, and so they do where the group ids are one.
    result = ctx.ok(ctx.run(*become, *look))
    ctx.eq(result.out, f"{gid} 65534\nshared\n", "the groups stay")
    result = ctx.ok(ctx.run(*become, "--map-uid", f"{uid}:{uid}:1", *look))
    ctx.eq(result.out, f"{gid} 65534\nshared\n", "with one group id")
    # Root's groups are left too.
    result = ctx.fails(ctx.run("setpriv", "--groups=0,4242", "--inh-caps=-all", "--", ctx.bwrap,
                               "--ro-bind", "/", "/", "--map-uid", "0:700000:10", "--map-gid",
                               "0:700000:10", *look), err="Permission denied")
    ctx.eq(result.out, "0\n", f"no other group\n{result}")


@case("ids", "--subids maps the user's subordinate ids around the command's own, which is the "
      "user's", only="user")
def subids(ctx):
    (uid, count), (gid, _) = granted(ctx), granted(ctx, "g")
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--subids", "sh", "-c", LOOK))
    lines = numbers(result.out)
    ctx.eq(lines[:3], [[str(ctx.uid)], [str(ctx.gid)], [str(ctx.gid)]], "who it is")
    last = min(count, 65536)
    wanted = [["0", str(uid), str(ctx.uid)], [str(ctx.uid), str(ctx.uid), "1"],
              [str(ctx.uid + 1), str(uid + ctx.uid + 1), str(last - ctx.uid - 1)]]
    ctx.eq(lines[3:6], wanted, f"the user ids\n{result}")
    result = ctx.ok(ctx.bw("--ro-bind", "/", "/", "--subids", "--uid", "0", "--gid", "0", "sh",
                           "-c", LOOK))
    lines = numbers(result.out)
    ctx.eq(lines, [["0"], ["0"], ["0"], ["0", str(ctx.uid), "1"],
                   ["1", str(uid + 1), str(last - 1)], ["0", str(ctx.gid), "1"],
                   ["1", str(gid + 1), str(last - 1)]], f"as uid 0\n{result}")


@contextlib.contextmanager
def running(ctx, *words):
    run = ctx.bw_popen(*words, "--name", "box", "sh", "-c", "echo ready; read x", stdin=-1)
    try:
        casekit.started(ctx, run)
        # It is known by its name a moment later.
        ctx.until(lambda: ctx.run(ctx.nsbox, "exec", "box", "true").rc == 0, why="the name is known")
        yield
    finally:
        run.communicate(b"\n", timeout=20)
    ctx.eq(run.returncode, 0, "the sandbox")


@case("ids", "nsbox exec enters with the same ids, and without the caller's groups", timeout=120)
def entered(ctx):
    runtime(ctx)
    words = maps(ctx)[0]
    look = ("sh", "-c", LOOK + "; grep -E '^Cap(Eff|Bnd)' /proc/self/status")
    for number, more in enumerate(((), ("--disable-userns",), ("--pty",))):
        shape = SHAPE if number != 1 else SHAPE[1:]
        base = (*shape, "--unshare-user", *words, "--uid", "7", "--gid", "8", *more, "--cap-drop",
                "ALL")
        own = ctx.ok(ctx.bw(*base, "--name", "first", *look))
        with running(ctx, *base):
            result = ctx.ok(ctx.run(ctx.nsbox, "exec", "box", *look))
        ctx.eq(result.out, own.out.replace("\r", ""), f"{more}: as the main command\n{result}")
        ctx.eq(result.out.splitlines()[:3], ["7", "8", "8"], "who it is")


@case("ids", "a terminal, a user-mode network and an overlay work with several ids, for a command "
      "without capabilities", timeout=120)
def features(ctx):
    words = maps(ctx)[0]
    base = (*SHAPE, "--unshare-user", *words, "--uid", "7", "--gid", "8", "--cap-drop", "ALL")
    result = ctx.ok(ctx.bw(*base, "--pty", "sh", "-c", "tty && stat -c %u $(tty) && echo x >/dev/tty"))
    ctx.eq(result.out.split(), ["/dev/pts/0", "7", "x"], f"the terminal\n{result}")
    result = ctx.ok(ctx.bw(*base, "--net", "user", "cat", "/etc/resolv.conf", "/proc/net/dev"))
    ctx.true("10.0.2.3" in result.out and "eth0:" in result.out, f"the network\n{result}")
    ctx.write("low/a", "low\n")
    for mount in (("--overlay", ctx.mkdir("up", 0o777), ctx.mkdir("work", 0o777), "/tmp/x"),
                  ("--tmp-overlay", "/tmp/x")):
        os.chmod(ctx.dir + "/up", 0o777)
        os.chmod(ctx.dir + "/work", 0o777)
        if mount[0] == "--overlay" and ctx.root:
            continue  # Its folders would have to belong to one of the ids.
        result = ctx.ok(ctx.bw(*base, "--overlay-src", f"{ctx.dir}/low", *mount, "sh", "-c",
                               "cat /tmp/x/a; stat -c %u /tmp/x/a"))
        ctx.eq(result.out.split()[0], "low", f"{mount[0]}\n{result}")


@case("ids", "maps that do not fit are refused in words that say why, before anything is started")
def refused(ctx):
    def fails(words, err):
        result = ctx.fails(ctx.bw("--ro-bind", "/", "/", *words, "echo", "started"), rc=1,
                           err="^bwrap: .*" + err)
        ctx.eq(result.out, "", "nothing was started")

    first = granted(ctx)[0]
    for text in ("", "1", "1:2", "1:2:x", "1:2:3:4", "-1:2:3", "1:2:4294967296"):
        fails(("--map-uid", text), "--map-uid takes INSIDE:OUTSIDE:COUNT")
    fails(("--map-uid", f"0:{first}:0"), "there is no id in it")
    fails(("--map-uid", f"0:{first}:4294967294", "--uid", "0"), "the largest id is 4294967294")
    fails(("--map-uid", f"0:{first}:10", "--map-uid", f"9:{first + 10}:10", "--uid", "0"),
          "ids in common with 0:")
    fails(("--map-uid", f"0:{first}:10", "--map-uid", f"10:{first + 9}:10", "--uid", "0"),
          "ids in common with 0:")
    fails(("--map-uid", f"0:{first}:10", "--uid", "10"), "user id 10 is not among them")
    fails(("--map-gid", f"0:{first}:10", "--gid", "10"), "group id 10 is not among them")
    fails(("--map-uid", f"1:{first}:10", "--map-gid", f"1:{first}:10", "--uid", "1", "--gid", "1",
           "--dev", "/dev"), "user 0 and group 0")
    fails(("--subids", "--map-uid", f"0:{first}:10"), "--subids is not compatible")
    fails(("--userns", "9", "--subids"), "--userns is not compatible")
    # The control.
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--map-uid", f"0:{first}:10", "--uid", "9", "id", "-u"),
           out="9")


@case("ids", "what /etc/subuid does not grant is refused in newuidmap's words, with the line that "
      "is missing; so is a caller that may gain no privileges, and a host without newuidmap",
      only="user")
def ungranted(ctx):
    uid, count = granted(ctx)
    gid = granted(ctx, "g")[0]
    name = casekit.ordinary()[0]
    base = ("--ro-bind", "/", "/", "--uid", "0", "--gid", "0")
    for words, err in (
            (("--map-uid", f"0:{uid}:{count + 1}"),
             rf"newuidmap: .*hint: /etc/subuid has to have the line {name}:{uid}:{count + 1}: "),
            (("--map-uid", "0:0:1"), rf"newuidmap: .*hint: .* {name}:0:1: "),
            (("--map-uid", f"0:{uid}:1", "--map-gid", "0:0:1"),
             rf"newgidmap: .*hint: /etc/subgid has to have the line {name}:0:1: ")):
        result = ctx.fails(ctx.bw(*base, *words, "echo", "started"), rc=1,
                           err=f"^bwrap: Can't map several ids: {err}")
        ctx.eq(result.out, "", "nothing was started")
    good = ("--map-uid", f"0:{uid}:{count}", "--map-gid", f"0:{gid}:{count}", "echo", "started")
    ctx.ok(ctx.bw(*base, *good), out="started")
    result = ctx.fails(ctx.run(tool(ctx, "setpriv"), "--no-new-privs", ctx.bwrap, *base, *good),
                       rc=1, err="no_new_privs")
    script = """
        [ "$1" = there ] || for f in /usr/bin/newuidmap /bin/newuidmap /usr/local/bin/newuidmap; do
            [ ! -e $f ] || mount --bind /dev/null $f
        done
        exec setpriv --bounding-set=-all --inh-caps=-all "$BWRAP" --ro-bind / / --map-uid 0:5:5 \
            echo started
    """
    for word, err in (("there", "newuidmap: "), ("missing", "the program newuidmap is in none of .*"
                                                 "hint: install it")):
        result = in_mounts(ctx, script, word, env=dict(os.environ, PATH="/usr/bin:/bin"))
        ctx.fails(result, rc=1, err="^bwrap: Can't map several ids: " + err)
        ctx.eq(result.out, "", "nothing was started")


@case("ids", "root needs no grant for --map-uid, and --subids tells that it has none", only="root")
def root(ctx):
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--map-uid", "0:4000000:10", "--uid", "3", "id", "-u"),
           out="3")
    with open("/etc/subuid", encoding="utf-8") as f:
        if re.search(r"^(root|0):", f.read(), re.M):
            ctx.skip("root has subordinate ids")
    ctx.fails(ctx.bw("--ro-bind", "/", "/", "--subids", "true"), rc=1,
              err="/etc/subuid has no line for the user 0")
