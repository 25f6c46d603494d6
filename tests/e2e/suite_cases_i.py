"""Reported bugs, group I: users, groups and capabilities."""

import os

import casekit
from casekit import tool
from harness import case

OVERFLOW = "65534"


@case("case-I01", "files of owners that are not mapped show the overflow id, root's files root's "
      "own id where root is mapped")
def i01(ctx):
    mine = ctx.write("mine", "x")
    look = ("stat", "-c", "%u %g", "/etc/passwd", mine)
    plain = ctx.ok(ctx.bw("--ro-bind", "/", "/", *look))
    if ctx.root:
        ctx.eq(plain.out, "0 0\n0 0\n", "without a user namespace")
    else:
        ctx.eq(plain.out, f"{OVERFLOW} {OVERFLOW}\n{ctx.uid} {ctx.gid}\n", "own files keep the id")
    mapped = ctx.ok(ctx.bw("--unshare-user", "--uid", "0", "--gid", "0", "--ro-bind", "/", "/",
                           *look))
    other = "0 0" if ctx.root else f"{OVERFLOW} {OVERFLOW}"
    ctx.eq(mapped.out, f"{other}\n0 0\n", "with --uid 0")


@case("case-I02", "--uid and --gid without a user namespace are refused for root in words that "
      "name the option that is missing, and work with one")
def i02(ctx):
    for option, kind in (("--uid", "-u"), ("--gid", "-g")):
        if ctx.root:
            result = ctx.fails(ctx.bw("--ro-bind", "/", "/", option, "1234", "id"), rc=1,
                               err=rf"^bwrap: Specifying {option} requires --unshare-user")
            ctx.eq(result.out, "", "nothing was started")
        else:
            ctx.ok(ctx.bw("--ro-bind", "/", "/", option, "1234", "id", kind), out="1234")
        for words in (("--unshare-user",), ("--unshare-all",), ("--unshare-user", "--dev", "/dev")):
            ctx.ok(ctx.bw("--ro-bind", "/", "/", *words, option, "1234", "id", kind), out="1234")
    # The id that the caller has anyway needs no namespace.
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--uid", str(ctx.uid), "id", "-u"), out=str(ctx.uid))


@case("case-I03", "supplementary groups show as the overflow group but still open "
      "files", only="root")
def i03(ctx):
    tool(ctx, "setpriv")
    _, uid, gid = casekit.ordinary()
    shared = ctx.write("shared", "shared\n", 0o640)
    os.chown(shared, 0, 4242)
    other = ctx.write("other", "other\n", 0o640)
    os.chown(other, 0, 4243)
    become = ("setpriv", f"--reuid={uid}", f"--regid={gid}", "--groups=4242,4244",
              "--inh-caps=-all", "--")
    for words in ((), ("--unshare-all",), ("--dev", "/dev"), ("--uid", "0", "--gid", "0"),
                  ("--unshare-user", "--disable-userns")):
        result = ctx.run(*become, ctx.bwrap, "--ro-bind", "/", "/", *words, "sh", "-c",
                         f"id -G; cat {shared}; cat {other}")
        ctx.fails(result, err="Permission denied")
        ids, text = result.out.splitlines()
        ctx.eq(text, "shared", f"{words}: the group still opens its file\n{result}")
        own = "0" if "--gid" in words else str(gid)
        ctx.eq(ids.split()[0], own, f"{words}: the mapped group comes first")
        ctx.eq(set(ids.split()[1:]), {OVERFLOW}, f"{words}: the others are not mapped")
    # Root without a user namespace keeps its groups as they are.
    result = ctx.run("setpriv", "--groups=4242,4244", "--", ctx.bwrap, "--ro-bind", "/", "/", "id",
                     "-G")
    ctx.ok(result, out="0 4242 4244")


@case("case-I05", "a user whom the sandbox's passwd does not name still has the right ids")
def i05(ctx):
    ctx.ok(ctx.bw(*ctx.USR, "sh", "-c", "id -u; id -g"), out=f"{ctx.uid}\n{ctx.gid}")
    ctx.fails(ctx.bw(*ctx.USR, "whoami"), err="cannot find name for user ID")
    entry = f"me:x:{ctx.uid}:{ctx.gid}::/:/bin/sh\n"
    ctx.ok(ctx.bw(*ctx.USR, "--ro-bind-data", "9", "/etc/passwd", "--ro-bind-data", "8",
                  "/etc/nsswitch.conf", "whoami", fds={9: entry, 8: "passwd: files\n"}), out="me")


@case("case-I07", "capability names are taken in any case, with or without CAP_, by number and as "
      "ALL, and a wrong name is refused with a list of the right ones")
def i07(ctx):
    base = ("--unshare-user", "--ro-bind", "/", "/", "--cap-drop", "ALL")

    def held(*words):
        result = ctx.ok(ctx.bw(*base, *words, "grep", "CapEff", "/proc/self/status"))
        return int(result.out.split()[1], 16)

    net_admin, chown = 1 << 12, 1 << 0
    for name in ("CAP_NET_ADMIN", "cap_net_admin", "Cap_Net_Admin", "net_admin", "NET_ADMIN",
                 "Net_Admin", "12"):
        if casekit.peer() and not name.lower().startswith("cap_"):
            continue
        ctx.eq(held("--cap-add", name), net_admin, name)
        ctx.eq(held("--cap-add", "CAP_CHOWN", "--cap-add", "CAP_NET_ADMIN", "--cap-drop", name),
               chown, f"dropping {name}")
    for name in ("ALL", "all", "All"):
        with open("/proc/sys/kernel/cap_last_cap") as f:
            every = (1 << int(f.read()) + 1) - 1
        if ctx.root:
            # Within its own namespace root holds whatever it likes, also what it lacks outside.
            ctx.eq(held("--cap-add", name) & (net_admin | chown), net_admin | chown, name)
        else:
            ctx.eq(held("--cap-add", name), every, name)
        ctx.eq(held("--cap-add", "CAP_CHOWN", "--cap-drop", name), 0, f"dropping {name}")
    for name in ("CAP_BOGUS", "bogus", "CAP_", "", "CAP_CHOWN,CAP_KILL", "CAP_CHOWN ", "64", "-1",
                 "CAP_CAP_CHOWN", "net-admin", "cap_chown=ep"):
        if casekit.peer() and name in ("CAP_CHOWN,CAP_KILL", "CAP_CHOWN ", "cap_chown=ep"):
            continue
        for option in ("--cap-add", "--cap-drop"):
            result = ctx.fails(ctx.bw(*base, option, name, "echo", "started"), rc=1,
                               err="^bwrap: unknown cap: ")
            ctx.eq(result.out, "", "nothing was started")
            if not casekit.peer():
                for word in ("chown", "net_admin", "sys_admin"):
                    ctx.true(word in result.err.lower(), f"the message lists {word}\n{result}")
