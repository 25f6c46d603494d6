"""Part B of the checklist, ids, capabilities, user namespaces and joining: B26 to B37."""

import errno
import fcntl
import json
import os

from b_util import (Live, as_user, caps, file_text, out_file, own_status, process_facts,
                    read_until, sandbox, status_lines, wait, with_status)
from harness import case

BASE = ("--bind", "/", "/")
NOTHING = (0, 0, 0, 0, 0)
CAP_CHOWN, CAP_KILL, CAP_NET_RAW = 0, 5, 13
NS_GET_PARENT = 0xB702


def known_caps():
    with open("/proc/sys/kernel/cap_last_cap") as f:
        return (1 << (int(f.read()) + 1)) - 1


def ids(facts):
    return facts["Uid"].split(), facts["Gid"].split()


def four(number):
    return [str(number)] * 4


@case("B26", "an ordinary user's sandbox keeps the ids and has no capability at all", only="user")
def user_plain(ctx):
    facts = process_facts(ctx, *BASE)
    ctx.eq(ids(facts), (four(ctx.uid), four(ctx.gid)), "ids")
    ctx.eq(caps(facts), NOTHING, "capabilities")
    ctx.eq(facts["NoNewPrivs"], "1", "no_new_privs")
    ctx.eq(facts["uid_map"], [(ctx.uid, ctx.uid, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(ctx.gid, ctx.gid, 1)], "gid_map")
    ctx.eq(facts["setgroups"], "deny", "setgroups")


@case("B27", "--dev leaves an ordinary user's ids alone by a second user namespace", only="user")
def user_with_dev(ctx):
    facts = process_facts(ctx, *BASE, "--dev", "/dev")
    ctx.eq(ids(facts), (four(ctx.uid), four(ctx.gid)), "ids")
    ctx.eq(facts["uid_map"], [(ctx.uid, 0, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(ctx.gid, 0, 1)], "gid_map")
    ctx.eq(caps(facts), NOTHING, "capabilities")


@case("B27", "--dev with id 0 inside takes one user namespace only")
def zero_with_dev(ctx):
    facts = process_facts(ctx, *BASE, "--unshare-user", "--uid", "0", "--gid", "0", "--dev",
                          "/dev")
    ctx.eq(ids(facts), (four(0), four(0)), "ids")
    ctx.eq(facts["uid_map"], [(0, ctx.uid, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(0, ctx.gid, 1)], "gid_map")


@case("B27", "--dev with a user namespace and another id takes two levels")
def other_with_dev(ctx):
    facts = process_facts(ctx, *BASE, "--unshare-user", "--uid", "5", "--gid", "6", "--dev",
                          "/dev")
    ctx.eq(ids(facts), (four(5), four(6)), "ids")
    ctx.eq(facts["uid_map"], [(5, 0, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(6, 0, 1)], "gid_map")


@case("B28", "--uid and --gid set the ids with the implied user namespace", only="user")
def chosen_ids_user(ctx):
    facts = process_facts(ctx, *BASE, "--uid", "5", "--gid", "6")
    ctx.eq(ids(facts), (four(5), four(6)), "ids")
    ctx.eq(facts["uid_map"], [(5, ctx.uid, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(6, ctx.gid, 1)], "gid_map")


@case("B28", "ids up to 4294967294 can be had, others are refused")
def chosen_ids_range(ctx):
    for number in (2 ** 31 - 1, 2 ** 31, 2 ** 32 - 2):
        facts = process_facts(ctx, *BASE, "--unshare-user", "--uid", str(number), "--gid",
                              str(number))
        ctx.eq(ids(facts), (four(number), four(number)), "ids")
    for text in (str(2 ** 32 - 1), str(2 ** 32), "-1", "", " 5", "+5", "5 ", "0x5", "root"):
        for option in ("uid", "gid"):
            ctx.fails(ctx.bw(*BASE, "--unshare-user", "--" + option, text, "true"), rc=1,
                      err=rf"^bwrap: Invalid {option}: ")


@case("B28", "root needs a user namespace for --uid and --gid", only="root")
def chosen_ids_root(ctx):
    for option in ("uid", "gid"):
        ctx.fails(ctx.bw(*BASE, "--" + option, "5", "true"), rc=1,
                  err=rf"^bwrap: Specifying --{option} requires --unshare-user or --userns")
        ctx.ok(ctx.bw(*BASE, "--" + option, "0", "true"))
    facts = process_facts(ctx, *BASE, "--unshare-user", "--uid", "5", "--gid", "6")
    ctx.eq(ids(facts), (four(5), four(6)), "ids")


@case("B29", "root's sandbox keeps ids, groups, capabilities and the user namespace", only="root")
def root_plain(ctx):
    groups = [0, 7, 4242]
    facts = process_facts(ctx, *BASE, pre=lambda: os.setgroups(groups))
    ctx.eq(ids(facts), (four(0), four(0)), "ids")
    ctx.eq(facts["Groups"].split(), [str(g) for g in groups], "groups")
    ctx.eq(caps(facts), caps(own_status()), "capabilities")
    ctx.eq(facts["NoNewPrivs"], "1", "no_new_privs")
    ctx.ok(ctx.bw(*BASE, "readlink", "/proc/self/ns/user"), out=os.readlink("/proc/self/ns/user"))


@case("B29", "root with --unshare-user gets a map of one id, and other groups show as nobody's",
      only="root")
def root_user_namespace(ctx):
    facts = process_facts(ctx, *BASE, "--unshare-user", pre=lambda: os.setgroups([0, 7, 4242]))
    ctx.eq(facts["uid_map"], [(0, 0, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(0, 0, 1)], "gid_map")
    ctx.eq(facts["setgroups"], "deny", "setgroups")
    ctx.eq(sorted(facts["Groups"].split()), ["0", "65534", "65534"], "groups")
    result = ctx.ok(ctx.bw(*BASE, "--unshare-user", "readlink", "/proc/self/ns/user"))
    ctx.true(result.out.strip() != os.readlink("/proc/self/ns/user"), "a new user namespace")


@case("B30", "an ordinary user's command gets exactly the capabilities that were added",
      only="user")
def caps_user(ctx):
    for options, bits in (
            (("--cap-add", "CAP_NET_RAW"), 1 << CAP_NET_RAW),
            (("--cap-add", "CAP_KILL", "--cap-add", "CAP_NET_RAW"),
             1 << CAP_KILL | 1 << CAP_NET_RAW),
            (("--cap-add", "CAP_KILL", "--cap-add", "CAP_NET_RAW", "--cap-drop", "CAP_KILL"),
             1 << CAP_NET_RAW),
            (("--cap-add", "CAP_KILL", "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN"),
             1 << CAP_CHOWN),
            (("--cap-drop", "CAP_KILL"), 0),
            (("--cap-add", "ALL"), known_caps())):
        for more in ((), ("--uid", "0", "--gid", "0"), ("--dev", "/dev"), ("--unshare-pid",)):
            facts = process_facts(ctx, *BASE, *options, *more)
            ctx.eq(caps(facts), (bits,) * 5, f"capabilities with {options + more}")
            ctx.eq(facts["NoNewPrivs"], "1", "no_new_privs")


@case("B30", "root's command gets the edited set, and its bounding set stays", only="root")
def caps_root(ctx):
    own = caps(own_status())
    effective = own[2]
    for shape in ((), ("--unshare-pid",), ("--unshare-pid", "--as-pid-1")):
        ctx.eq(caps(process_facts(ctx, *BASE, *shape)), own, f"unchanged with {shape}")
        for options, bits in (
                (("--cap-drop", "ALL"), 0),
                (("--cap-drop", "ALL", "--cap-add", "CAP_KILL"), 1 << CAP_KILL),
                (("--cap-drop", "CAP_KILL"), effective & ~(1 << CAP_KILL))):
            facts = process_facts(ctx, *BASE, *shape, *options)
            ctx.eq(caps(facts), (bits, bits, bits, own[3], bits), f"with {options + shape}")


@case("B30", "root with a user namespace: the sets follow the id inside", only="root")
def caps_root_user_namespace(ctx):
    effective = caps(own_status())[2]
    facts = process_facts(ctx, *BASE, "--unshare-user")
    ctx.eq(caps(facts), (0, effective, effective, effective, 0), "as id 0")
    facts = process_facts(ctx, *BASE, "--unshare-user", "--uid", "5")
    ctx.eq(caps(facts), (0, 0, 0, effective, 0), "as id 5")
    for more in ((), ("--uid", "5"), ("--dev", "/dev", "--uid", "5")):
        facts = process_facts(ctx, *BASE, "--unshare-user", *more, "--cap-drop", "ALL",
                              "--cap-add", "CAP_KILL")
        ctx.eq(caps(facts), (1 << CAP_KILL,) * 5, f"an edited set with {more}")


@case("B30", "root cannot add a capability that it does not hold, and nothing runs then",
      only="root")
def caps_root_lacks(ctx):
    marker = ctx.dir + "/ran"
    lacking = ("setpriv", "--bounding-set", "-kill", "--")
    result = sandbox(ctx, lacking, *BASE, "--cap-drop", "ALL", "--cap-add", "CAP_KILL", "touch",
                     marker)
    ctx.fails(result, rc=1, err=r"^bwrap: .*(?i:cap)")
    ctx.true(not os.path.exists(marker), "the command did not run")
    ctx.ok(sandbox(ctx, lacking, *BASE, "--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE",
                   "touch", marker))
    ctx.true(os.path.exists(marker), "with a capability that root holds it runs")


@case("B30", "root's inheritable capabilities do not become ambient by themselves", only="root")
def caps_root_inheritable(ctx):
    facts = process_facts(ctx, *BASE, prefix=("setpriv", "--inh-caps", "+kill,+net_raw", "--"))
    bits = 1 << CAP_KILL | 1 << CAP_NET_RAW
    ctx.eq(caps(facts)[0], bits, "inheritable")
    ctx.eq(caps(facts)[4], 0, "ambient")


@case("B30", "a capability is named in any case, with or without CAP_, or by its number")
def caps_names(ctx):
    options = (*BASE, "--unshare-user", "--cap-drop", "ALL")
    for name in ("CAP_NET_RAW", "cap_net_raw", "Cap_Net_Raw", "net_raw", "NET_RAW", "13", "0xd",
                 "015"):
        facts = process_facts(ctx, *options, "--cap-add", name)
        ctx.eq(caps(facts), (1 << CAP_NET_RAW,) * 5, f"capabilities with {name!r}")
    for name in ("ALL", "all", "All"):
        facts = process_facts(ctx, *options, "--cap-add", name)
        ctx.eq(caps(facts)[2], known_caps(), f"effective with {name!r}")


@case("B30", "an unknown capability is refused, and so is text behind a known one")
def caps_unknown(ctx):
    for name in ("X", "cap_bogus", "", "64", "-1", "cap_chown,cap_kill", "cap_chown ", "13x",
                 "ALLx"):
        for option in ("--cap-add", "--cap-drop"):
            result = ctx.fails(ctx.bw(*BASE, "--unshare-user", option, name, "true"), rc=1)
            ctx.true(result.err.startswith(f"bwrap: unknown cap: {name}"), str(result))


@case("B31", "a caller with an ambient capability is accepted, and the command has none of it",
      only="root")
def ambient_caller(ctx):
    for more in (("--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"),
                 ("--inh-caps", "+net_raw")):
        prefix = as_user(*more)
        before = ctx.ok(ctx.run(*prefix, "cat", "/proc/self/status"))
        ctx.true(f"CapInh:\t{1 << CAP_NET_RAW:016x}" in before.out, f"the set-up works\n{before}")
        facts = process_facts(ctx, *BASE, prefix=prefix)
        ctx.eq(caps(facts), NOTHING, f"capabilities with {more}")


@case("B31", "the program runs inside a sandbox that gave its command an ambient capability",
      only="user")
def ambient_nested(ctx):
    outer = (ctx.bwrap, *BASE, "--cap-add", "CAP_NET_RAW")
    before = ctx.ok(ctx.run(*outer, "cat", "/proc/self/status"))
    ctx.true(f"CapAmb:\t{1 << CAP_NET_RAW:016x}" in before.out, f"the outer one works\n{before}")
    facts = process_facts(ctx, *BASE, prefix=outer)
    ctx.eq(caps(facts), NOTHING, "capabilities")


def no_more_user_namespaces(ctx):
    """An outer sandbox whose command is root with all capabilities, where no user namespace can
    be made. The limit counts in a namespace above; the file that programs look at belongs to
    the sandbox's own namespace and knows nothing of it, so another one takes its place."""
    return (ctx.bwrap, "--unshare-user", "--disable-userns", "--uid", "0", "--gid", "0",
            "--cap-add", "ALL", *BASE, "--tmpfs", "/proc/sys", "--ro-bind", "/proc/sys/kernel",
            "/proc/sys/kernel", "--ro-bind-data", "9", "/proc/sys/user/max_user_namespaces")


@case("B32", "--unshare-user-try and --unshare-all go without a user namespace that cannot be had")
def try_without_user_namespaces(ctx):
    script = ("readlink /proc/self/ns/user; for try in --unshare-user-try --unshare-all; do "
              "\"$0\" $try --bind / / sh -c 'readlink /proc/self/ns/user; "
              "readlink /proc/self/ns/net'; done")
    result = ctx.ok(ctx.run(*no_more_user_namespaces(ctx), "sh", "-c", script, ctx.bwrap,
                            fds={9: "0\n"}))
    user, first_user, first_net, second_user, second_net = result.out.split()
    ctx.eq((first_user, second_user), (user, user), "user namespaces")
    ctx.true(first_net != second_net, "--unshare-all still has a network namespace of its own")
    ctx.true(user != os.readlink("/proc/self/ns/user"), "the outer sandbox has its own")


@case("B32", "--unshare-user says why it cannot have a user namespace")
def demand_without_user_namespaces(ctx):
    outer = no_more_user_namespaces(ctx)
    ctx.fails(ctx.run(*outer, ctx.bwrap, "--unshare-user", *BASE, "true", fds={9: "0\n"}), rc=1,
              err=r"^bwrap: Creating new namespace failed: .*(ENOSPC|No space left on device)")
    ctx.ok(ctx.run(*outer, ctx.bwrap, *BASE, "true", fds={9: "0\n"}))


def write_map(pid, name, text):
    with open(f"/proc/{pid}/{name}", "w") as f:
        f.write(text)


def mapped(ctx, options, maps, script, prefix=()):
    """Runs `script` in a sandbox for which this process writes the files of `maps` in turn."""
    read, write = os.pipe()
    live = Live(ctx, *options, "--unshare-user", "--userns-block-fd", "9", fds={9: read},
                script=script, prefix=prefix)
    os.close(read)
    for name, text in maps:
        write_map(live.pid, name, text)
    os.write(write, b"x")
    os.close(write)
    live.close_stdin()
    out = read_until(live.out).decode()
    err = live.proc.stderr.read().decode()
    return wait(live.proc), out, err


SHOW_MAP = ("cat /proc/self/uid_map; echo groups $(cat /proc/self/setgroups); echo id $(id -u) "
            "$(id -g)")


@case("B33", "with --userns-block-fd the command sees the map that somebody else wrote",
      only="root")
def external_map(ctx):
    user = as_user()
    uid, gid = int(user[2]), int(user[4])
    for prefix, outside, outside_group in (((), 0, 0), (user, uid, gid)):
        maps = (("uid_map", f"0 {outside} 1\n1 100000 10\n"),
                ("gid_map", f"0 {outside_group} 1\n1 100000 10\n"))
        for more in ((), ("--uid", "5", "--gid", "5"), ("--dev", "/dev"), ("--unshare-pid",)):
            rc, out, err = mapped(ctx, (*BASE, *more), maps, SHOW_MAP, prefix)
            words = out.split()
            ctx.eq(words, ["ready", "0", str(outside), "1", "1", "100000", "10", "groups",
                           "allow", "id", "0", "0"], f"what the command sees with {more}: {err}")
            ctx.eq((rc, err), (0, ""), f"status with {more}")


@case("B33", "with --userns-block-fd a map of one id is enough, and setgroups stays as it was left")
def external_map_single(ctx):
    maps = (("setgroups", "deny"), ("uid_map", f"0 {ctx.uid} 1"), ("gid_map", f"0 {ctx.gid} 1"))
    for more in ((), ("--uid", "5", "--gid", "5"), ("--dev", "/dev")):
        rc, out, err = mapped(ctx, (*BASE, *more), maps, SHOW_MAP)
        ctx.eq(out.split(), ["ready", "0", str(ctx.uid), "1", "groups", "deny", "id", "0", "0"],
               f"what the command sees with {more}: {err}")
        ctx.eq((rc, err), (0, ""), f"status with {more}")


@case("B33", "with --userns-block-fd and no map the program fails and the command does not run")
def external_map_missing(ctx):
    marker = ctx.dir + "/ran"
    rc, out, err = mapped(ctx, BASE, (), f"echo > {marker}")
    ctx.eq((rc, out), (1, ""), f"status and output: {err}")
    ctx.true(err.startswith("bwrap: "), f"a message: {err!r}")
    ctx.true(not os.path.exists(marker), "the command did not run")


@case("B34", "--userns refuses the caller's own user namespace and one that is not below it")
def join_refused(ctx):
    own = os.open("/proc/self/ns/user", os.O_RDONLY)
    ctx.fails(ctx.bw(*BASE, "--userns", "11", "true", fds={11: own}), rc=1,
              err=r"^bwrap: .*might not be a descendant")
    # Inside a sandbox the caller's namespace is one above.
    ctx.fails(ctx.run(ctx.bwrap, *BASE, "--unshare-user", ctx.bwrap, *BASE, "--userns", "11",
                      "true", fds={11: own}), rc=1,
              err=r"^bwrap: (.*might not be a descendant|Joining specified user namespace failed)")
    os.close(own)


@case("B34", "--userns with a bad descriptor says so")
def join_bad_fd(ctx):
    ctx.fails(ctx.bw(*BASE, "--userns", "99", "true"), rc=1,
              err=r"^bwrap: Joining specified user namespace failed: Bad file descriptor")
    ctx.fails(ctx.bw(*BASE, "--userns", "11", "true", fds={11: "a file"}), rc=1, err=r"^bwrap: ")


@case("B34", "--userns takes descriptor 0 like any other")
def join_fd_zero(ctx):
    live = Live(ctx, *BASE, "--unshare-user")
    live.ready()
    link = os.readlink(f"/proc/{live.pid}/ns/user")
    fd = os.open(f"/proc/{live.pid}/ns/user", os.O_RDONLY)
    for number in (11, 0):
        ctx.ok(ctx.bw(*BASE, "--userns", str(number), "readlink", "/proc/self/ns/user",
                      fds={number: fd}), out=link)
    os.close(fd)
    ctx.true(link != os.readlink("/proc/self/ns/user"), "it is another namespace")
    ctx.eq(live.end(), 0)


def namespaces(pid, *names):
    return {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names}


@case("B35", "--userns --pidns --unshare-pid makes a pid namespace below the joined one")
def join_pids_below(ctx):
    live = Live(ctx, *BASE, "--unshare-user", "--unshare-pid")
    live.ready()
    joined = namespaces(live.pid, "user", "pid")
    info = out_file(ctx, "info")
    fds = {11: joined["user"], 12: joined["pid"]}
    options = (*BASE, "--userns", "11", "--pidns", "12", "--unshare-pid")
    result = ctx.ok(ctx.bw(*options, "--info-fd", "13", "sh", "-c",
                           "echo $$; stat -L -c %i /proc/self/ns/pid; grep ^NSpid: "
                           "/proc/self/status", fds={**fds, 13: info}))
    own, namespace, *levels = result.out.split()
    ctx.eq(own, "2", "the command's own pid")
    ctx.eq(json.loads(file_text(info))["pid-namespace"], int(namespace), "the reported namespace")
    ctx.true(int(namespace) != os.fstat(joined["pid"]).st_ino, "it is a new one")
    ctx.eq(len(levels) - 1, 3 + host_depth(), "pids of the command, one for each level")
    check_status(ctx, options, fds)
    end(ctx, live, joined)


@case("B35", "--userns --pidns makes the command a new process of the joined pid namespace")
def join_pids(ctx):
    live = Live(ctx, *BASE, "--unshare-user", "--unshare-pid")
    live.ready()
    joined = namespaces(live.pid, "user", "pid")
    info = out_file(ctx, "info")
    fds = {11: joined["user"], 12: joined["pid"]}
    options = (*BASE, "--userns", "11", "--pidns", "12")
    result = ctx.ok(ctx.bw(*options, "--info-fd", "13", "sh", "-c",
                           "echo $$ $PPID; stat -L -c %i /proc/self/ns/pid",
                           fds={**fds, 13: info}))
    pid, parent, namespace = (int(word) for word in result.out.split())
    ctx.true(pid > 2, f"a new pid in the joined namespace: {pid}")
    ctx.eq(parent, 0, "the parent lives outside")
    ctx.eq(namespace, os.fstat(joined["pid"]).st_ino, "the joined namespace")
    ctx.true("pid-namespace" not in json.loads(file_text(info)), "it is not reported as new")
    check_status(ctx, options, fds)
    end(ctx, live, joined)


@case("B35", "the reported pid is the right one each time that a pid namespace is joined")
def join_pids_reported(ctx):
    # The processes on the way report to the program in an order that is not theirs to choose.
    live = Live(ctx, *BASE, "--unshare-user", "--unshare-pid")
    live.ready()
    joined = namespaces(live.pid, "user", "pid")
    for more, field in (((), "Pid"), (("--unshare-pid",), "PPid")):
        for _ in range(15):
            info = out_file(ctx, "info")
            result = ctx.ok(ctx.bw(*BASE, "--userns", "11", "--pidns", "12", *more, "--info-fd",
                                   "13", "grep", f"^{field}:", "/proc/self/status",
                                   fds={11: joined["user"], 12: joined["pid"], 13: info},
                                   timeout=10))
            reported = json.loads(file_text(info))["child-pid"]
            os.close(info)
            ctx.eq(reported, int(result.out.split()[1]), f"the pid with {more}")
    end(ctx, live, joined)


def host_depth():
    """How many pid namespaces this process itself is below the outermost one that it sees."""
    return len(own_status()["NSpid"].split()) - 1


def check_status(ctx, options, fds):
    for script, code in (("exit 6", 6), ("kill -9 $$", 137)):
        result, status = with_status(ctx, *options, "sh", "-c", script, fds=fds)
        ctx.eq(result.rc, code, f"status of {script!r}")
        ctx.eq(status_lines(status)[-1], {"exit-code": code}, "last status line")


def end(ctx, live, joined):
    for fd in joined.values():
        os.close(fd)
    ctx.eq(live.end(), 0, "status of the joined sandbox")


@case("B36", "--userns and --userns2 join both levels of a sandbox that was made with --dev")
def join_two_levels(ctx):
    live = Live(ctx, *BASE, "--unshare-user", "--uid", "7", "--gid", "8", "--dev", "/dev")
    live.ready()
    second = os.open(f"/proc/{live.pid}/ns/user", os.O_RDONLY)
    first = fcntl.ioctl(second, NS_GET_PARENT)
    ctx.true(os.fstat(first).st_ino != os.stat("/proc/self/ns/user").st_ino, "two levels")
    result = ctx.ok(ctx.bw(*BASE, "--userns", "11", "--userns2", "12", "stat", "-L", "-c", "%i",
                           "/proc/self/ns/user", fds={11: first, 12: second}))
    ctx.eq(int(result.out), os.fstat(second).st_ino, "the command's user namespace")
    facts = process_facts(ctx, *BASE, "--userns", "11", "--userns2", "12",
                          fds={11: first, 12: second})
    ctx.eq(ids(facts), (four(7), four(8)), "the ids of the second level")
    # As with a user namespace of its own, the bounding set is the caller's effective one.
    bounding = caps(own_status())[2]
    ctx.eq(caps(facts), (0, 0, 0, bounding, 0), "capabilities")
    os.close(first)
    os.close(second)
    ctx.eq(live.end(), 0)


@case("B37", "--disable-userns needs an explicit --unshare-user")
def disable_needs_namespace(ctx):
    for options in ((), ("--unshare-user-try",), ("--unshare-all",)):
        ctx.fails(ctx.bw(*BASE, *options, "--disable-userns", "true"), rc=1,
                  err=r"^bwrap: --disable-userns requires --unshare-user")
    ctx.ok(ctx.bw(*BASE, "--unshare-user", "--disable-userns", "true"))


@case("B37", "after --disable-userns no user namespace can be made, and the ids are the same")
def disable_works(ctx):
    options = (*BASE, "--unshare-user", "--disable-userns")
    ctx.fails(ctx.bw(*options, "unshare", "--user", "true"), err=os.strerror(errno.ENOSPC))
    ctx.ok(ctx.bw(*BASE, "--unshare-user", "unshare", "--user", "true"))
    facts = process_facts(ctx, *options)
    ctx.eq(facts["uid_map"], [(ctx.uid, ctx.uid, 1)], "uid_map")
    ctx.eq(facts["gid_map"], [(ctx.gid, ctx.gid, 1)], "gid_map")
    ctx.eq(ids(facts), (four(ctx.uid), four(ctx.gid)), "ids")


@case("B37", "after --disable-userns raising the limit inside is refused or has no effect",
      only="user")
def disable_cannot_be_undone(ctx):
    # An ordinary user's sandbox can reach no limit but those of its own namespaces.
    script = ("echo 100 2>/dev/null > /proc/sys/user/max_user_namespaces; cat "
              "/proc/sys/user/max_user_namespaces; exec unshare --user true")
    for more in ((), ("--uid", "0", "--gid", "0", "--cap-add", "ALL")):
        result = ctx.bw(*BASE, "--unshare-user", "--disable-userns", *more, "sh", "-c", script)
        ctx.fails(result, err=os.strerror(errno.ENOSPC))
