"""The bwrap contract, part A: nesting, locking user namespaces down, capabilities."""

import os
import re

from bwrap_parts import recursive
from harness import case


@case("A17", "the program starts itself inside its own sandbox as /proc/self/exe")
def nested_hello(ctx):
    ctx.ok(ctx.run(*recursive(ctx), "--unshare-all", "--bind", "/", "/", "--bind", "/proc",
                   "/proc", "echo", "hello"), out="hello")


def read_only_host():
    """A read-only view of the host, whether its /usr is merged or not."""
    options = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--dir", "/var/tmp"]
    for name in ("lib", "lib32", "lib64", "bin", "sbin"):
        path = f"/{name}"
        if os.path.islink(path):
            options += ["--symlink", f"usr/{name}", path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    return (*options, "--proc", "/proc", "--dev", "/dev")


@case("A18", "a nested sandbox gets a /proc, a /dev and a second user namespace of its own")
def nested_findmnt(ctx):
    listing = ctx.ok(ctx.run(*recursive(ctx), "--unshare-all", *read_only_host(), "findmnt"))
    for place in ("/usr", "/proc", "/dev/pts"):
        ctx.true(re.search(re.escape(place) + r"\s", listing.out),
                 f"{place} is not listed\n{listing}")


def both(ctx):
    """The program as the caller runs it, and as it runs nested with every capability."""
    return ((ctx.bwrap,), recursive(ctx))


HOST = ("--dev-bind", "/", "/")
LOCKED = ("--unshare-user", "--disable-userns", *HOST, "--")
UNLOCKED = ("--unshare-user", *HOST, "--")


@case("A19", "a sandbox with the whole host and its devices starts")
def whole_host(ctx):
    for program in both(ctx):
        ctx.ok(ctx.run(*program, *HOST, "--", "true"))


@case("A20", "--assert-userns-disabled fails where user namespaces can be made")
def assertion_fails(ctx):
    for program in both(ctx):
        ctx.fails(ctx.run(*program, "--assert-userns-disabled", *HOST, "--", "true"), rc=1,
                  err="^bwrap: .*was not disabled as requested$")


@case("A21", "--disable-userns works, and --assert-userns-disabled agrees")
def disable(ctx):
    for program in both(ctx):
        ctx.ok(ctx.run(*program, *LOCKED, "true"))
        ctx.ok(ctx.run(*program, "--assert-userns-disabled", *LOCKED, "true"))


@case("A22", "inside --disable-userns a nested sandbox that needs a user namespace fails",
      only="user")
def nested_fails(ctx):
    nested = (ctx.bwrap, *HOST, "--", "true")
    ctx.ok(ctx.run(ctx.bwrap, *UNLOCKED, *nested))
    ctx.fails(ctx.run(ctx.bwrap, *LOCKED, *nested), rc=1, err="^bwrap: ")


@case("A22", "inside --disable-userns the program as /proc/self/exe gets no user namespace")
def nested_self_fails(ctx):
    show = ("readlink", "/proc/self/ns/user")
    ctx.ok(ctx.run(*recursive(ctx), *UNLOCKED, "/proc/self/exe", *UNLOCKED, "true"))
    ctx.fails(ctx.run(*recursive(ctx), *LOCKED, "/proc/self/exe", *UNLOCKED, "true"), rc=1,
              err="^bwrap: ")
    # Who is uid 0 with all capabilities there may nest without a user namespace. Where that
    # works, it must be the locked one that the command finds itself in.
    script = ('exec 2>&1; outer=$(readlink /proc/self/ns/user) || exit 3; '
              'inner=$("$@") || exit 0; test "$inner" = "$outer"')
    ctx.ok(ctx.run(*recursive(ctx), *LOCKED, "sh", "-c", script, "sh", ctx.bwrap, *HOST, "--",
                   *show))
    # The same question has the other answer where nothing is locked.
    ctx.fails(ctx.run(*recursive(ctx), *UNLOCKED, "sh", "-c", script, "sh", ctx.bwrap, *UNLOCKED,
                      *show), rc=1)


# The limit belongs to the user namespace of whoever opens the file. The script writes only where
# that namespace is known not to be the host's, so that a broken sandbox cannot change the host.
RAISE = ('test "$(readlink /proc/self/ns/user)" != "$1" || exit 9; '
         '{ echo "$2" > /proc/sys/user/max_user_namespaces; } 2>/dev/null; shift 2; '
         '"$@" || exit 5')


@case("A23", "raising the limit inside does not bring user namespaces back")
def limit_raised(ctx):
    outside = os.readlink("/proc/self/ns/user")
    for program in both(ctx):
        for limit in ("2", "100"):
            nested = ("sh", "-c", RAISE, "sh", outside, limit, ctx.bwrap, *UNLOCKED, "true")
            ctx.ok(ctx.run(*program, *UNLOCKED, *nested))
            ctx.fails(ctx.run(*program, *LOCKED, *nested), rc=5, err="^bwrap: ")


@case("A24", "inside --disable-userns a nested sandbox cannot be had by asserting that it is off")
def nested_assertion(ctx):
    for program in both(ctx):
        nested = (ctx.bwrap, "--unshare-user", *HOST)
        ctx.ok(ctx.run(*program, *UNLOCKED, *nested, "--", "true"))
        ctx.fails(ctx.run(*program, *LOCKED, *nested, "--assert-userns-disabled", "--", "true"),
                  rc=1, err="^bwrap: ")


def reported_capabilities(ctx, result):
    """What getpcaps says about pid 1."""
    found = re.findall(r"^(?:Capabilities for `)?1'?: (.*)$", result.out + result.err, re.M)
    ctx.eq(len(found), 1, f"lines about pid 1\n{result}")
    return found[0].strip()


@case("A26", "pid 1 of an ordinary user's sandbox holds no capability", only="user")
def no_capabilities(ctx):
    for options in ((), ("--unshare-user-try", "--as-pid-1"), ("--unshare-user-try",),
                    ("--as-pid-1",)):
        result = ctx.ok(ctx.bw(*ctx.RUN, *options, "--unshare-pid", "getpcaps", "1"))
        ctx.true(reported_capabilities(ctx, result) in ("=", ""), f"capabilities\n{result}")
    result = ctx.ok(ctx.bw(*ctx.RUN, "--as-pid-1", "--cap-add", "CAP_KILL", "--unshare-pid",
                           "getpcaps", "1"))
    ctx.true("cap_kill" in reported_capabilities(ctx, result),
             f"the capability that was asked for is not seen\n{result}")


@case("A27", "a sandbox of root's keeps every capability set, id and group", only="root")
def root_keeps(ctx):
    outside = ctx.ok(ctx.run("capsh", "--print")).out
    expected = re.sub("no-new-privs=0", "no-new-privs=1", outside)
    ctx.true("no-new-privs=1" in expected, f"capsh prints nothing about no_new_privs: {outside}")
    for options in ((), ("--as-pid-1",)):
        inside = ctx.ok(ctx.bw(*ctx.RUN, *options, "--unshare-pid", "capsh", "--print")).out
        ctx.eq(inside, expected, f"capsh with {options}")


def current_line(ctx, text):
    found = re.findall("^Current: (.*)$", text, re.M)
    ctx.eq(len(found), 1, f"lines with the current set in {text!r}")
    return found[0].strip()


@case("A28", "--cap-drop ALL leaves root's command without a capability", only="root")
def drop_all(ctx):
    base = (*ctx.RUN, "--as-pid-1")
    full = ctx.ok(ctx.bw(*base, "--unshare-pid", "capsh", "--print")).out
    ctx.true(current_line(ctx, full) != "=", f"root has no capability to drop: {full}")
    none = ctx.ok(ctx.bw(*base, "--cap-drop", "ALL", "--unshare-pid", "capsh", "--print")).out
    ctx.eq(current_line(ctx, none), "=", "the current set")


CAP_FOWNER, CAP_KILL, CAP_NET_BIND_SERVICE = 3, 5, 10


@case("A29", "--cap-drop takes exactly the named capabilities from root's command", only="root")
def drop_two(ctx):
    base = (*ctx.RUN, "--as-pid-1", "--unshare-pid")
    drop = ("--cap-drop", "CAP_KILL", "--cap-drop", "CAP_FOWNER")
    # Without --proc the bound /proc is the host's, where `self` works all the same.
    show = ("sed", "-n", r"s/^CapEff:\s*//p", "/proc/self/status")
    before = int(ctx.ok(ctx.bw(*base, *show)).out, 16)
    after = int(ctx.ok(ctx.bw(*base, *drop, *show)).out, 16)
    ctx.true(before >> CAP_NET_BIND_SERVICE & 1, "root lacks CAP_NET_BIND_SERVICE")
    ctx.true(before >> CAP_KILL & 1 and before >> CAP_FOWNER & 1, "root lacks what is dropped")
    ctx.eq(after, before & ~(1 << CAP_KILL) & ~(1 << CAP_FOWNER), "the effective set")
    printed = current_line(ctx, ctx.ok(ctx.bw(*base, *drop, "capsh", "--print")).out)
    decoded = ctx.ok(ctx.run("capsh", f"--decode={after:x}")).out.strip().partition("=")[2]
    ctx.true("cap_kill" not in decoded.split(",") and "cap_fowner" not in decoded.split(","),
             f"capsh decodes {decoded}")
    ctx.true("cap_net_bind_service" in decoded.split(","), f"capsh decodes {decoded}")
    ctx.true(printed not in ("=", "=ep"), f"the current set is {printed}")
