"""Hostile actions (probes/hostile.c), under all walls of `nsbox run`, under one wall at a time, and under none."""

import contextlib
import ctypes
import json
import os
import socket
import stat

import hostile_table
from casekit import until_known
from harness import case

SECRET = {"NSBOX_HOSTILE_SECRET": "1"}
# What is no refusal.
NOT_REFUSED = ("ok", "absent")


def probe_of(ctx):
    if not ctx.probe_dir or not os.path.exists(f"{ctx.probe_dir}/hostile"):
        ctx.skip("the probe hostile is not compiled")
    return f"{ctx.probe_dir}/hostile"


def listed(ctx):
    return {action["id"]: action for action in hostile_table.actions(probe_of(ctx))}


def landlock_abi():
    create_ruleset, ask_for_version = 444, 1
    return ctypes.CDLL(None, use_errno=True).syscall(create_ruleset, None, ctypes.c_size_t(0), ask_for_version)


class Target:
    """What hostile actions are after: objects of the host's that are the case's own."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.words = {}

    def __enter__(self):
        ctx = self.ctx
        for name in ("rw", "ro/folder", "tmp"):
            ctx.mkdir(name)
        for name in ("ro/file", "ro/movable", "secret", "cwd-marker"):
            ctx.write(name, "of the host's\n")
        with contextlib.suppress(PermissionError):
            os.mknod(f"{ctx.dir}/rw/device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            os.chmod(f"{ctx.dir}/rw/device", 0o666)
        self.tag = os.path.basename(ctx.dir)
        self.held = []
        self.held.append(tcp := socket.create_server(("127.0.0.1", 0)))
        for address in (f"{ctx.dir}/socket", "\0" + self.tag):
            self.held.append(listener := socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen(16)
        self.process = ctx.popen("sleep", "600")
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.shm = self.libc.shmget(key := (os.getpid() | 0x4e000000) & 0x7fffffff, 4096, 0o1600)
        self.queue = f"/{self.tag}".encode()
        self.libc.mq_unlink.argtypes = [ctypes.c_char_p]
        queue = self.libc.mq_open(self.queue, os.O_CREAT | os.O_RDWR, 0o600, None)
        with open(f"/dev/shm/{self.tag}", "w", encoding="ascii"):
            pass
        self.words = {"file": f"{ctx.dir}/secret", "port": tcp.getsockname()[1], "socket": f"{ctx.dir}/socket",
                      "abstract": self.tag, "pid": self.process.pid, "hostname": os.uname().nodename,
                      "shm-name": self.tag, "shm-key": key, "shm-id": self.shm}
        if queue >= 0:
            os.close(queue)
            self.words["mqueue"] = f"/{self.tag}"
        if ctx.root:
            # Of another user than the one who runs it.
            with open(probe_of(ctx), "rb") as source:
                ctx.write("rw/setuid", source.read())
            os.chown(f"{ctx.dir}/rw/setuid", 12345, 12345)
            os.chmod(f"{ctx.dir}/rw/setuid", 0o4755)
        self.folder = os.open(ctx.dir, os.O_RDONLY | os.O_DIRECTORY)
        return self

    def __exit__(self, *_):
        self.libc.shmctl(self.shm, 0, None)
        self.libc.mq_unlink(self.queue)
        os.unlink(f"/dev/shm/{self.tag}")
        os.close(self.folder)
        for thing in self.held:
            thing.close()

    def arguments(self, top, **more):
        """The words of the probe, for folders below `top`."""
        words = {"rw": f"{top}/rw", "ro": f"{top}/ro", "tmp": "/tmp", **self.words, **more}
        if self.ctx.root:
            words["setuid"] = f"{top}/rw/setuid"
        return [f"{name}={value}" for name, value in words.items()]

    def shown(self):
        """The words of a sandbox for what it shows."""
        ctx = self.ctx
        return ["--ro", f"{ctx.dir}/ro:/shown/ro", "--rw", f"{ctx.dir}/rw:/shown/rw", "--ro", f"{ctx.probe_dir}:/probes"]

    def outcomes(self, *argv, leaked=True):
        """What came of each action, where the descriptor 9 is a folder that was left open."""
        ctx = self.ctx
        result = ctx.run(*argv, timeout=120, env={**os.environ, **SECRET}, cwd=ctx.dir,
                         fds={9: self.folder} if leaked else None)
        ctx.ok(result)
        return {row["id"]: row["outcome"] for row in map(json.loads, result.out.splitlines())}

    def inside(self, *options, walls=(), only=(), command=(), **more):
        """`nsbox run` with these options."""
        ask = [word for name in walls for word in ("--wall", name)] + [word for name in only for word in ("--only", name)]
        return self.outcomes(self.ctx.nsbox, "run", *self.shown(), *options, "--", *command, "/probes/hostile", *ask,
                             *self.arguments("/shown", **{"own-init": 1, **more}))


def unexpected(ctx, actions, outcomes, missing=(), key="inside", among=None):
    """Fails unless each action came out as its words say; those in `missing` may be absent."""
    ctx.true(len(outcomes) >= 5, f"actions were tried: {outcomes}")
    wrong = []
    for name, outcome in outcomes.items():
        if outcome == "absent" and name in missing:
            continue
        if outcome not in actions[name][key].split("|") and (among is None or not among(actions[name], outcome)):
            wrong.append(f"{name} ({actions[name]['what']}): {outcome}, not {actions[name][key]}")
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong))


# What an ordinary user cannot prepare.
OF_ROOT = ("run_setuid", "open_device")


def missing(ctx, *more):
    # A kernel may have no message queues.
    return ("ipc_mqueue", *more, *(() if ctx.root else OF_ROOT))


@case("HOSTILE-table", "doc/security.md has the table of the actions as the probe tells them, and each says what it is")
def the_table(ctx):
    actions = hostile_table.actions(probe_of(ctx))
    ctx.true(len(actions) >= 150, f"{len(actions)} actions")
    ctx.eq(len({action["id"] for action in actions}), len(actions), "an id is one action's")
    ctx.eq(len({action["what"] for action in actions}), len(actions), "as are its words")
    for action in actions:
        ctx.true(all(action.values()), f"all is said of {action['id']}")
        ctx.true("ok" not in action["inside"].split("|"), f"{action['id']} is refused")
    with open(hostile_table.DOC, encoding="utf-8") as file:
        text = file.read()
    ctx.true(hostile_table.in_document(text).group(1) == hostile_table.table(actions),
             "the table in doc/security.md is another: tests/e2e/hostile_table.py PROBE --write")


@case("HOSTILE-host", "on the host root's actions come out as is said: most succeed, and others get as far as their "
      "arguments", only="root", timeout=120)
def host(ctx):
    actions = listed(ctx)
    with open("/proc/self/status", encoding="ascii") as file:
        held = next(int(row.split()[1], 16) for row in file if row.startswith("CapEff"))
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        is_cut = held != (2 << int(file.read())) - 1
    with Target(ctx) as target:
        got = target.outcomes(probe_of(ctx), "--control", *target.arguments(ctx.dir, tmp=f"{ctx.dir}/tmp"))
    tried = {name: outcome for name, outcome in got.items() if not actions[name]["control"].startswith("none: ")}
    # Root of a container has not all capabilities.
    unexpected(ctx, actions, tried, key="control", missing=("ipc_mqueue",),
               among=lambda _, outcome: is_cut and outcome in ("EPERM", "EACCES"))
    ctx.true(len(tried) >= len(actions) - 12, f"nearly all have a control: {len(tried)} of {len(actions)}")
    telling = [name for name, outcome in tried.items() if outcome not in actions[name]["inside"].split("|")]
    ctx.true(len(telling) * 10 >= len(actions) * 6, f"{len(telling)} of {len(actions)} come out otherwise than in a sandbox")


@case("HOSTILE-run", "no action succeeds in what nsbox run makes, and each is answered as is said", timeout=120)
def plain(ctx):
    with Target(ctx) as target:
        unexpected(ctx, listed(ctx), target.inside(), missing(ctx))
        # The strict policy answers some in another way, and lets no more through.
        strict = target.inside("--seccomp-policy", "strict")
        ctx.eq([name for name, outcome in strict.items() if outcome == "ok"], [], "under strict")
        # The descriptor that was handed on is there for the action that looks for it.
        reached = {"inherited": "ok", "leaked_climb": "ok", "leaked_chdir": "ok"}
        ctx.eq(target.inside("--keep-fd", "9", "--landlock", "off", only=list(reached)), reached, "with --keep-fd")
        # Landlock holds behind it.
        reached["leaked_climb"] = "EACCES" if landlock_abi() >= 2 else "ok"
        ctx.eq(target.inside("--keep-fd", "9", only=list(reached)), reached, "with --keep-fd and Landlock")


@case("HOSTILE-rootfs", "nor in a root filesystem that is a folder, or with a network of its own", timeout=120)
def rootfs(ctx):
    tree = ctx.mkdir("tree")
    for name in ("usr/bin/ldd", "etc/nsswitch.conf"):
        ctx.write(f"tree/{name}", "of the tree\n", 0o755)
    ctx.mkdir("tree/usr/lib")
    os.symlink(f"../../../../../../../..{ctx.dir}/secret", f"{tree}/etc/shadow")
    with Target(ctx) as target:
        unexpected(ctx, listed(ctx), target.inside("--rootfs", tree), missing(ctx))
        # The interface, the routes and all ports are its own there.
        got = target.inside("--net", "user")
        own = {name: got.pop(name) for name in ("outside", "interface_host", "bind_low_port")}
        unexpected(ctx, listed(ctx), got, missing(ctx))
        ctx.eq((own["outside"], own["interface_host"]), ("ok", "ok"), "the network is there")


@case("HOSTILE-filter", "the filter alone, before root with all capabilities, answers what it is said to", only="root",
      timeout=120)
def only_filter(ctx):
    actions = listed(ctx)
    program = ctx.write("program", b"")
    with open(program, "wb") as file:
        process = ctx.popen(ctx.nsbox, "seccomp", "compile", "default", stdout=file)
        ctx.eq(process.wait(30), 0, "the program is compiled")
    with Target(ctx) as target:
        with open(program, "rb") as file:
            words = ["--seccomp", "8", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "--proc", "/proc",
                     probe_of(ctx), "--wall", "filter", *target.arguments(ctx.dir, tmp=f"{ctx.dir}/tmp")]
            result = ctx.ok(ctx.bw(*words, fds={8: file.fileno()}, timeout=120))
        got = {row["id"]: row["outcome"] for row in map(json.loads, result.out.splitlines())}
        first = {name: outcome for name, outcome in got.items() if actions[name]["walls"].startswith("filter")}
        unexpected(ctx, actions, first)
        ctx.true(len(first) > 150, f"{len(first)} actions")
        # Without it many of them succeed for the same root.
        bare = target.outcomes(probe_of(ctx), "--control", "--wall", "filter",
                               *target.arguments(ctx.dir, tmp=f"{ctx.dir}/tmp"))
        ctx.true(sum(bare[name] == "ok" for name in first) > 60, f"without the filter: {bare}")


@case("HOSTILE-capabilities", "no capability, alone: without the filter what asks for one is refused", timeout=120)
def only_capabilities(ctx):
    with Target(ctx) as target:
        got = target.inside("--seccomp-policy", "none", walls=["capabilities"])
        ctx.true(len(got) > 100, f"{len(got)} actions")
        went = [name for name, outcome in got.items() if outcome in NOT_REFUSED and name not in missing(ctx)]
        ctx.eq(went, [], "these went through")
        # The control: one of them with its capability.
        for option, name in (("CAP_NET_BIND_SERVICE", "bind_low_port"), ("CAP_SYS_CHROOT", "root_chroot"),
                             ("CAP_NET_RAW", "raw_icmp"), ("CAP_NET_ADMIN", "socket_mark")):
            # As uid 0 the command is in the user namespace that owns the network.
            ids = ["--uid", "0", "--gid", "0", "--seccomp-policy", "none"]
            ctx.true(target.inside(*ids, only=[name])[name] != "ok", f"{name} without {option}")
            ctx.eq(target.inside(*ids, "--cap-add", option, only=[name])[name], "ok", f"{name} with {option}")


@case("HOSTILE-process-1", "process 1, alone: it is out of reach without the filter too, and with --allow-ptrace, which "
      "lets a program trace its own children")
def only_init(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        for options in (["--seccomp-policy", "none"], ["--allow-ptrace"], ["--allow-ptrace", "--seccomp-policy", "none"]):
            got = target.inside(*options, walls=["process 1"])
            ctx.true(len(got) > 20, f"{len(got)} actions")
            ctx.eq([name for name, outcome in got.items() if outcome == "ok"], [], f"with {options}")
        for option, wanted in ((["--allow-ptrace"], "ok"), ([], "EPERM")):
            got = target.inside(*option, only=["init_ptrace", "init_getfd"], victim="child")
            ctx.eq(set(got.values()), {wanted}, f"a child with {option}")
    ctx.true("init_ptrace" in actions, "the list has it")


@case("HOSTILE-covers", "covers, alone: root with all capabilities and without a filter opens nothing of them",
      only="root")
def only_covers(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        def alone(*options):
            return target.outcomes(ctx.bwrap, "--unshare-pid", "--bind", "/", "/", *options, probe_of(ctx), "--wall",
                                   "covers", *target.arguments(ctx.dir))
        got = {name: outcome for name, outcome in alone("--proc", "/proc").items() if name != "proc_sys_chmod"}
        unexpected(ctx, actions, got)
        ctx.true(len(got) > 30, f"{len(got)} actions")
        bare = alone("--bind", "/proc", "/proc")
        ctx.true(sum(bare[name] == "ok" for name in got) > 20, f"without covers: {bare}")


@case("HOSTILE-mounts", "mounts, alone: root with all capabilities and without a filter opens nothing that is not shown, "
      "and writes nothing that is read-only", only="root", timeout=120)
def only_mounts(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        words = [*ctx.USR, "--ro-bind", "/etc/nsswitch.conf", "/etc/nsswitch.conf", "--proc", "/proc", "--dev", "/dev",
                 "--tmpfs", "/tmp", "--dir", "/run", "--ro-bind", f"{ctx.dir}/ro", "/shown/ro", "--bind", f"{ctx.dir}/rw",
                 "/shown/rw", "--ro-bind", ctx.probe_dir, "/probes", "--remount-ro", "/", "--chdir", "/shown"]
        got = target.outcomes(ctx.bwrap, *words, "/probes/hostile", "--wall", "mounts", *target.arguments("/shown"))
        first = {name: outcome for name, outcome in got.items() if actions[name]["walls"].startswith("mounts")}
        # Root can change what is in a mount by other ways than its mounts: these are other walls' matter.
        unexpected(ctx, actions, first, missing(ctx))
        ctx.true(len(first) > 80, f"{len(first)} actions")


@case("HOSTILE-namespaces", "namespaces, alone: with the host's files and without a filter there is no process, network "
      "or object of the host's", timeout=120)
def only_namespaces(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        def alone(*options):
            return target.outcomes(ctx.bwrap, *options, "--bind", "/", "/", "--proc", "/proc", probe_of(ctx), "--wall",
                                   "pid namespace", "--wall", "network namespace", "--wall", "ipc namespace", "--wall",
                                   "uts namespace", *target.arguments(ctx.dir, **{"own-init": 1}))
        got = alone("--unshare-all", "--hostname", "another", "--cap-drop", "ALL")
        mine = {name: outcome for name, outcome in got.items() if not actions[name]["walls"].startswith("filter")}
        unexpected(ctx, actions, mine, missing(ctx))
        ctx.true(len(mine) > 20, f"{len(mine)} actions")
        # The control: the host's own. Process 1 is the sandbox's for actions that signal it.
        bare = target.outcomes(ctx.bwrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc",
                               probe_of(ctx), *[word for name in (
                                   "host_kill", "host_proc", "host_loopback", "host_abstract", "ipc_shm", "ipc_list",
                                   "host_name_get") for word in ("--only", name)], *target.arguments(ctx.dir))
        ctx.eq(set(bare.values()), {"ok"}, f"without namespaces: {bare}")


# What --allow-userns lets a program do in namespaces of its own.
OPENED = {"unshare_user": "ok", "clone_user": "ok", "clone3_plain": "ok", "clone3_user": "ok", "clone_high": "ok",
          "unshare_all": "ok", "unshare_high": "EINVAL", "setns_user": "EINVAL", "netlink_generic": "ok"}


@case("HOSTILE-userns", "--allow-userns opens namespaces, and nothing of the host's", timeout=120)
def userns(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        got = target.inside("--allow-userns")
        for name, wanted in OPENED.items():
            ctx.eq(got[name], wanted, name)
        # In the other groups nothing is opened, but for netlink; /proc of an ordinary user's has no covers.
        rest = {name: outcome for name, outcome in got.items() if actions[name]["group"] not in ("namespaces", "mounts")
                and not name.startswith("netlink_")}
        went = [name for name, outcome in rest.items() if outcome == "ok" and (
            ctx.root or not actions[name]["walls"].startswith("covers"))]
        ctx.eq(went, [], "these went through")
        # What is mounted was mounted by somebody above: without a namespace of its own it has no rights over it.
        mounts = {name: outcome for name, outcome in got.items() if actions[name]["group"] == "mounts"}
        ctx.eq([name for name, outcome in mounts.items() if outcome == "ok" and name not in ("api_listmount",)], [],
               "mounts without a namespace of its own")


@case("HOSTILE-nested", "nor does an action succeed in a sandbox in a sandbox", timeout=120)
def nested(ctx):
    actions = listed(ctx)
    with Target(ctx) as target:
        folder = os.path.dirname(ctx.nsbox)
        # Below the covers of root's /proc the kernel refuses a new one.
        inner = ["/nsbox/nsbox", "run", *(["--proc-fallback", "bind"] if ctx.root else []), "--ro", "/shown/ro", "--rw",
                 "/shown/rw", "--ro", "/probes", "--"]
        got = target.inside("--allow-userns", "--ro", f"{folder}:/nsbox", command=inner, **{"own-init": 1})
        # Where /proc is the outer one, the process 1 in it is the outer one's.
        got.pop("init_stop")
        unexpected(ctx, actions, got, missing(ctx))


@case("HOSTILE-exec", "nor does one in a command that enters a sandbox by nsbox exec", timeout=120)
def by_exec(ctx):
    name = f"hostile-{os.getpid()}"
    with Target(ctx) as target:
        keeper = ctx.popen(ctx.nsbox, "run", "--name", name, *target.shown(), "--", "sleep", "60")
        until_known(ctx, name)
        got = target.outcomes(ctx.nsbox, "exec", name, "--", "/probes/hostile",
                              *target.arguments("/shown", **{"own-init": 1}))
        unexpected(ctx, listed(ctx), got, missing(ctx))
        ctx.ok(ctx.run(ctx.nsbox, "kill", name))
        keeper.wait(20)
