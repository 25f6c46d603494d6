"""The texts of errors: what users and other programs look for, and whether the reason that is
given is the true one.

The first half goes through the messages whose beginnings are part of the contract. The second
half produces the common causes of a failed start, as far as a test can produce them without
touching the host, and checks that each is told from the others: the message names the operation,
the object, the reason and a hint that fits, and no cause that it cannot be.
"""

import os
import re
import resource
import shutil
import struct

import nshelp
from harness import case, descendants
from nshelp import mount, private_mounts

# A hint that points at one of these causes has words of this kind in it.
CAUSES = {
    "apparmor": r"(?i)apparmor|security module|selinux",
    "sysctl": r"unprivileged_userns_clone|(?i:sysctl)",
    "limit": r"max_\w+_namespaces|(?i:nesting depth|nested too deep)",
    "seccomp": r"(?i)seccomp",
    "proc": r"(?i)(covered|masked|hidden|partly|read-only)[^)]*/proc|/proc[^)]*(covered|masked|"
            r"hidden|partly|read-only)",
    "chroot": r"(?i)chroot",
    "descriptors": r"(?i)RLIMIT_NOFILE|ulimit -n|file-max|open files",
    "processes": r"(?i)RLIMIT_NPROC|ulimit -u|pids\.max|processes",
    "memory": r"(?i)\bmemory\b",
    "kernel": r"(?i)CONFIG_USER_NS|kernel (lacks|without|does not (support|have))",
    "mounts": r"mount-max",
    "setfcap": r"(?i)CAP_SETFCAP",
}


def message(result):
    """The one line that the program printed."""
    found = [line for line in result.err.splitlines() if line.startswith("bwrap: ")]
    if len(found) != 1:
        raise AssertionError(f"one message was expected\n{result}")
    return found[0]


def hint_of(text):
    match = re.search(r"\(hint: (.*)\)$", text)
    return match[1] if match else ""


def refused(ctx, result, begin, reason=None, hint=None, plain=True):
    """The start failed with status 1 and one message that begins with `begin`, gives `reason`
    and has a hint that matches `hint`. Paths in it are those that the user knows."""
    ctx.fails(result, rc=1)
    text = message(result)
    ctx.true(text.startswith("bwrap: " + begin), f"the message begins with {begin!r}\n{result}")
    if reason:
        ctx.true(re.search(reason, text), f"the reason is {reason!r}\n{result}")
    if hint:
        ctx.true(re.search(hint, hint_of(text)), f"a hint like {hint!r}\n{result}")
    if plain:
        ctx.true("/newroot" not in text and "/oldroot" not in text, f"inner paths\n{result}")
    ctx.true("Success" not in text, f"an error that is none\n{result}")
    ctx.eq(result.out, "", "the command's output")
    return text


def names_only(ctx, result, *wanted):
    """The message's hint speaks of these causes and of no other one."""
    text = message(result)
    for name in wanted:
        ctx.true(re.search(CAUSES[name], text), f"the message names the cause {name!r}\n{result}")
    hint = hint_of(text)
    for name, pattern in CAUSES.items():
        if name not in wanted:
            ctx.true(not re.search(pattern, hint), f"the hint names {name!r}\n{result}")


def nothing_left(ctx):
    ctx.until(lambda: not descendants(os.getpid()), why="the end of every process")


# -- the command line ----------------------------------------------------------------------------

@case("E1", "an unknown option is named, and the nearest known one is suggested")
def unknown_option(ctx):
    for given, wanted in (("--ro-bnd", "--ro-bind"), ("--unshare-usr", "--unshare-user"),
                          ("--tmpf", "--tmpfs"), ("--chdri", "--chdir"), ("--bind-tyr", "--bind-try"),
                          ("--unshare-alll", "--unshare-all"), ("--setnev", "--setenv"),
                          ("--json-status", "--json-status-fd"), ("-help", "--help")):
        text = refused(ctx, ctx.bw(given, "true"), f"Unknown option {given}")
        ctx.true(re.fullmatch(rf"bwrap: Unknown option {given} .*\bdid you mean {wanted}\?.*", text),
                 f"the suggestion {wanted}: {text}")
    for given in ("--frobnicate-everything", "-", "-x", "--q"):
        text = refused(ctx, ctx.bw(given, "true"), f"Unknown option {given}")
        ctx.true("did you mean" not in text, f"nothing is near: {text}")
    ctx.fails(ctx.bw("--level-prefix", "--ro-bnd"), rc=1,
              err=r"^<3>bwrap: Unknown option --ro-bnd .*did you mean --ro-bind")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "true"))


@case("E2", "an option with too few words says how many it takes")
def too_few_words(ctx):
    one = ("--args", "--tmpfs", "--dir", "--proc", "--dev", "--mqueue", "--setenv", "--bind",
           "--overlay", "--chdir", "--remount-ro", "--argv0")
    for option in one:
        result = ctx.bw(option)
        ctx.fails(result, rc=1, err=rf"^bwrap: {option} takes (an|one|two|three) arguments?\b")
    ctx.fails(ctx.bw("--chdir"), err=r"takes one argument")
    ctx.fails(ctx.bw("--bind", "x"), err=r"takes two arguments")


@case("E3", "the texts that other programs' tests compare are unchanged")
def exact_texts(ctx):
    for words, text in (
            (("--overlay", "a", "b", "/x"),
             "--overlay requires at least one --overlay-src"),
            (("--tmp-overlay", "/x"), "--tmp-overlay requires at least one --overlay-src"),
            (("--ro-overlay", "/x"), "--ro-overlay requires at least two --overlay-src"),
            (("--overlay-src", "/usr", "--ro-overlay", "/x"),
             "--ro-overlay requires at least two --overlay-src"),
            (("--overlay-src", "/usr", "--chdir", "/"),
             "--overlay-src must be followed by another --overlay-src or one of --overlay, "
             "--tmp-overlay, or --ro-overlay"),
            (("--overlay-src", "/usr"),
             "--overlay-src must be followed by another --overlay-src or one of --overlay, "
             "--tmp-overlay, or --ro-overlay"),
            (("--add-seccomp-fd", "-1"), "Invalid fd: -1"),
            (("--seccomp", "0a"), "Invalid fd: 0a"),
            (("--add-seccomp-fd", "9", "--seccomp", "9"),
             "--seccomp cannot be combined with --add-seccomp-fd"),
            (("--seccomp", "9", "--add-seccomp-fd", "9"),
             "--add-seccomp-fd cannot be combined with --seccomp")):
        refused(ctx, ctx.bw(*ctx.RUN, *words, "true", fds={9: ""}), text)
    refused(ctx, ctx.bw(*ctx.RUN, "--add-seccomp-fd", "9", "--add-seccomp-fd", "9", "true",
                        fds={9: struct.pack("=HBBI", 6, 0, 0, 0x7fff0000)}),
            "Can't read seccomp data: ", reason="Bad file descriptor")
    refused(ctx, ctx.bw(*ctx.RUN, "--add-seccomp-fd", "9", "true", fds={9: "x"}),
            "Invalid seccomp data, must be multiple of 8")
    for prefix, before in ((), ""), (("--level-prefix",), "<4>"):
        result = ctx.ok(ctx.bw(*prefix, *ctx.RUN, "--chdir", "/", "--chdir", "/", "true"))
        ctx.eq(result.err, f"{before}bwrap: Only the last --chdir option will take effect\n")
    ctx.true(ctx.ok(ctx.bw("--help")).out.startswith(f"usage: {ctx.bwrap} "), "the usage line")


@case("E4", "options that exclude or need one another are refused with the known texts")
def conflicts(ctx):
    base = ("--bind", "/", "/")
    own = os.open("/proc/self/ns/user", os.O_RDONLY)
    for words, text in (
            (("--userns-block-fd", "9"), "--userns-block-fd requires --unshare-user"),
            (("--userns-block-fd", "9", "--unshare-user"), "--userns-block-fd requires --info-fd"),
            (("--userns", "9", "--unshare-user"), "--userns not compatible --unshare-user"),
            (("--userns", "9", "--unshare-user-try"), "--userns not compatible --unshare-user-try"),
            (("--disable-userns",), "--disable-userns requires --unshare-user"),
            (("--hostname", "x"), "Specifying --hostname requires --unshare-uts"),
            (("--as-pid-1",), "Specifying --as-pid-1 requires --unshare-pid"),
            (("--as-pid-1", "--unshare-pid", "--lock-file", "/x"),
             "Specifying --as-pid-1 and --lock-file is not permitted")):
        refused(ctx, ctx.bw(*base, *words, "true", fds={9: own}), text)


@case("E4", "root without a user namespace may not choose ids", only="root")
def ids_of_root(ctx):
    for option in ("--uid", "--gid"):
        refused(ctx, ctx.bw("--bind", "/", "/", option, "5", "true"),
                f"Specifying {option} requires --unshare-user or --userns")
        ctx.ok(ctx.bw("--bind", "/", "/", "--unshare-user", option, "5", "id", option[1:3]), out="5")


# -- exec and the working directory --------------------------------------------------------------

@case("E5", "a command that cannot be executed is named with its reason")
def exec_failures(ctx):
    script = ctx.write("plain", "text", mode=0o644)
    for command, reason in (("nosuchcommand", "No such file or directory"),
                            ("/nosuch/command", "No such file or directory"),
                            ("", "No such file or directory"),
                            (script, "Permission denied"), ("/usr", "Permission denied")):
        refused(ctx, ctx.bw(*ctx.RUN, command), f"execvp {command}: ", reason=reason)
    os.chmod(script, 0o755)
    refused(ctx, ctx.bw(*ctx.RUN, "--setenv", "PATH", "/nowhere", "ls"), "execvp ls: ",
            reason="No such file or directory")
    missing = ctx.write("noloader", "#!/nowhere/interpreter\n", mode=0o755)
    refused(ctx, ctx.bw(*ctx.RUN, missing), f"execvp {missing}: ",
            reason="No such file or directory")
    ctx.fails(ctx.bw(*ctx.RUN, "sh", "-c", "exit 1"), rc=1)
    ctx.eq(ctx.bw(*ctx.RUN, "sh", "-c", "exit 1").err, "", "what a failing command prints")


@case("E5", "a folder on the PATH that may not be searched does not hide that nothing was found",
      only="user")
def unsearchable_path(ctx):
    locked = ctx.mkdir("locked")
    os.chmod(locked, 0)
    env = dict(os.environ, PATH=f"{locked}:/usr/bin")
    refused(ctx, ctx.bw(*ctx.RUN, "nosuchcommand", env=env), "execvp nosuchcommand: ",
            reason="No such file or directory")
    ctx.ok(ctx.bw(*ctx.RUN, "true", env=env))
    os.chmod(locked, 0o755)
    ctx.write("locked/found", "text", mode=0o644)
    refused(ctx, ctx.bw(*ctx.RUN, "found", env=env), "execvp found: ", reason="Permission denied")


@case("E6", "a working directory that cannot be entered is named with its reason")
def chdir_failures(ctx):
    name = ctx.write("file", "text")
    refused(ctx, ctx.bw(*ctx.RUN, "--chdir", "/nowhere", "true"), "Can't chdir to /nowhere: ",
            reason="No such file or directory")
    refused(ctx, ctx.bw(*ctx.RUN, "--chdir", name, "true"), f"Can't chdir to {name}: ",
            reason="Not a directory")
    ctx.ok(ctx.bw(*ctx.RUN, "--chdir", "/usr", "pwd"), out="/usr")


# -- files and mounts ----------------------------------------------------------------------------

@case("E7", "a failed file operation names the destination as the user wrote it and the reason")
def file_failures(ctx):
    name, folder = ctx.write("file", "text"), ctx.mkdir("folder")
    read_only = ("--ro-bind", "/", "/")
    small = (*ctx.RUN, "--size", "4096", "--tmpfs", "/tmp/t")
    out = os.open("/dev/null", os.O_WRONLY)
    for words, begin, reason in (
            ((*ctx.RUN, "--dir", name), f"Can't mkdir {name}: ", "Not a directory"),
            ((*ctx.RUN, "--tmpfs", name), f"Can't mkdir {name}: ", "Not a directory"),
            ((*ctx.RUN, "--proc", name), f"Can't mkdir {name}: ", "Not a directory"),
            ((*ctx.RUN, "--bind", folder, name), f"Can't mkdir {name}: ", "Not a directory"),
            ((*ctx.RUN, "--dir", name + "/x"), f"Can't mkdir parents for {name}/x: ",
             "Not a directory"),
            ((*read_only, "--dir", "/nsbox-new"), "Can't mkdir /nsbox-new: ",
             "Read-only file system"),
            ((*read_only, "--dir", "/nsbox-new/deep"), "Can't mkdir parents for /nsbox-new/deep: ",
             "Read-only file system"),
            ((*read_only, "--bind", folder, "/nsbox-new/deep"),
             "Can't mkdir parents for /nsbox-new/deep: ", "Read-only file system"),
            ((*ctx.RUN, "--bind", name, folder), f"Can't create file at {folder}: ",
             "Is a directory"),
            ((*read_only, "--bind", name, "/nsbox-new"), "Can't create file at /nsbox-new: ",
             "Read-only file system"),
            ((*read_only, "--file", "9", "/nsbox-new"), "Can't create file /nsbox-new: ",
             "Read-only file system"),
            ((*ctx.RUN, "--file", "9", folder), f"Can't create file {folder}: ", "Is a directory"),
            ((*ctx.RUN, "--file", "10", "/tmp/x"), "Can't write data to file /tmp/x: ",
             "Bad file descriptor"),
            ((*small, "--file", "9", "/tmp/t/x"), "Can't write data to file /tmp/t/x: ",
             "No space left on device"),
            ((*ctx.RUN, "--chmod", "0777", "/tmp/x"), "Can't chmod 0777 /tmp/x: ",
             "No such file or directory"),
            ((*read_only, "--chmod", "0700", name), f"Can't chmod 0700 {name}: ",
             "Read-only file system"),
            ((*ctx.RUN, "--symlink", "", "/tmp/x"), "Can't make symlink at /tmp/x: ",
             "No such file or directory"),
            ((*ctx.RUN, "--symlink", "a", name), f"Can't make symlink at {name}: "
             "destination exists and is not a symlink", None),
            ((*ctx.RUN, "--symlink", "a", "/tmp/x", "--symlink", "b", "/tmp/x"),
             "Can't make symlink at /tmp/x: existing destination is a", None),
            ((*ctx.RUN, "--unshare-uts", "--hostname", "x" * 70),
             f"Can't set hostname to {'x' * 70}: ", "Invalid argument")):
        refused(ctx, ctx.bw(*words, "true", fds={9: "x" * 20000, 10: out}), begin, reason)
    ctx.true(not os.path.exists("/nsbox-new"), "nothing was made on the host")


@case("E8", "a failed mount names the destination as the user wrote it and the reason")
def mount_failures(ctx):
    name, folder = ctx.write("file", "text"), ctx.mkdir("folder")
    locked = os.path.join(ctx.dir, "missing")
    for words, begin, reason in (
            ((*ctx.RUN, "--bind", locked, "/tmp/x"), f"Can't find source path {locked}: ",
             "No such file or directory"),
            ((*ctx.RUN, "--bind", "", "/tmp/x"), "Can't find source path ", None),
            ((*ctx.RUN, "--bind-fd", "9", "/tmp/x"), "Can't find source path /proc/self/fd/9", None),
            ((*ctx.RUN, "--remount-ro", "/usr/bin"), "Can't remount readonly on /usr/bin: ",
             "mount table"),
            ((*ctx.RUN, "--remount-ro", "/nowhere"), "Can't remount readonly on /nowhere: ",
             "No such file or directory"),
            ((*ctx.RUN, "--overlay-src", name, "--tmp-overlay", "/tmp/x"),
             "Can't make overlay mount on /tmp/x", "(Not a directory|Invalid argument)"),
            ((*ctx.RUN, "--overlay-src", locked, "--tmp-overlay", "/tmp/x"),
             f"Can't find source path {locked}: ", "No such file or directory"),
            ((*ctx.RUN, "--overlay-src", folder, "--overlay-src", folder, "--ro-overlay", "/tmp/x"),
             "Can't make overlay mount on /tmp/x", "Overlay directories may not overlap")):
        read, write = os.pipe()
        refused(ctx, ctx.bw(*words, "true", fds={9: read}), begin, reason)
        os.close(read)
        os.close(write)
    ctx.ok(ctx.bw(*ctx.RUN, "--bind", folder, "/tmp/x", "--remount-ro", "/tmp/x", "true"))


@case("E8", "a message queue file system without its own namespace is refused", only="user")
def mqueue_refused(ctx):
    refused(ctx, ctx.bw(*ctx.RUN, "--mqueue", "/tmp/q", "true"), "Can't mount mqueue on /tmp/q: ",
            "Operation not permitted", hint="--unshare-ipc")
    ctx.ok(ctx.bw(*ctx.RUN, "--unshare-ipc", "--mqueue", "/tmp/q", "true"))


# The kernel may be asked for a file system in the old way or in the new one.
def new_mount(kind):
    return rf'^(mount\(.*"{kind}"|fsopen\("{kind}")'


@case("E9", "a kernel that refuses a file system is reported under that file system's name",
      timeout=120)
def refused_file_systems(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, "--ro-bind", "/", "/")
    folder = ctx.mkdir("folder")
    for words, pattern, which, begin in (
            (("--unshare-pid", "--proc", "/proc"), new_mount("proc"), 0, "Can't mount proc on /proc: "),
            (("--tmpfs", "/tmp"), new_mount("tmpfs"), -1, "Can't mount tmpfs on /tmp: "),
            (("--dev", "/dev"), new_mount("devpts"), 0, "Can't mount devpts on /dev/pts: "),
            (("--unshare-ipc", "--tmpfs", "/tmp", "--mqueue", "/tmp/q"), new_mount("mqueue"), 0,
             "Can't mount mqueue on /tmp/q: "),
            (("--tmpfs", "/tmp", "--overlay-src", folder, "--tmp-overlay", "/tmp/o"),
             new_mount("overlay"), 0, "Can't make overlay mount on /tmp/o")):
        for error, reason in (("EIO", "Input/output error"), ("ENOMEM", "Cannot allocate memory")):
            faults = []
            # Where one way of mounting fails another one may be tried: it fails as well then.
            for _ in range(3):
                result, calls = nshelp.traced(ctx, *base, *words, "true", inject=faults)
                if faults and result.rc != 0:
                    break
                ctx.ok(result)
                hits = [c for c in calls if re.search(pattern, c.line) and "INJECTED" not in c.line]
                ctx.true(hits, f"a call like {pattern}")
                # The last tmpfs is the one that was asked for: earlier ones carry the new root.
                call = hits[which]
                faults.append(f"{call.name}:error={error}:when={call.index}")
            refused(ctx, result, begin, reason)
            nothing_left(ctx)


@case("E10", "a failed bind names source, destination and reason", timeout=120)
def refused_binds(ctx):
    nshelp.need_strace(ctx)
    folder = ctx.mkdir("folder")
    base = (ctx.bwrap, *ctx.RUN, "--ro-bind", folder, "/tmp/x", "true")
    plain, calls = nshelp.traced(ctx, *base)
    ctx.ok(plain)
    clones = [c for c in calls if re.search(r"^open_tree\(.*OPEN_TREE_CLONE", c.line)]
    attached = [c for c in calls if re.search(r"^(move_mount\(|mount\(.*MS_BIND)", c.line)
                and "MS_REMOUNT" not in c.line and "(-1" not in c.line]
    ctx.true(attached, "a call that attaches")
    # The last tree is that of the last option. A source that cannot be cloned may be reported as
    # one that was not found; a tree that cannot be attached is a failed bind.
    for call, begin in ((clones[-1:] or [None])[0], ""), (attached[-1], "Can't bind mount "):
        for error, reason in (("EIO", "Input/output error"), ("ENOMEM", "Cannot allocate memory")):
            if call is None:
                continue
            result, _ = nshelp.traced(ctx, *base,
                                      inject=[f"{call.name}:error={error}:when={call.index}"])
            text = refused(ctx, result, begin, reason)
            ctx.true(folder in text, f"the source\n{result}")
            if begin:
                ctx.true(f"{begin}{folder} on /tmp/x: " in text, f"both places\n{result}")


@case("E11", "too many mounts are not called a lack of space", timeout=120)
def mount_limit(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, *ctx.RUN, "--ro-bind", "/usr", "/tmp/x", "true")
    plain, calls = nshelp.traced(ctx, *base)
    ctx.ok(plain)
    hits = [c for c in calls if re.search(r"^(move_mount\(|mount\(.*MS_BIND)", c.line)
            and "MS_REMOUNT" not in c.line and "pivot" not in c.line]
    ctx.true(hits, "a call that attaches")
    call = hits[-1]
    result, _ = nshelp.traced(ctx, *base, inject=[f"{call.name}:error=ENOSPC:when={call.index}"])
    text = refused(ctx, result, "", reason="ENOSPC")
    ctx.true("mount-max" in text, f"the limit is named\n{result}")
    ctx.true("No space left" not in text, f"a disk is blamed\n{result}")


@case("E12", "a new root that cannot be made or entered is reported by its step", timeout=120)
def base_failures(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, *ctx.USR, "true")
    # In a user namespace every mount is a slave from the beginning.
    slave = ((r"^(mount\(.*\"/\".*MS_SLAVE|mount_setattr\(.*MS_SLAVE)", "Failed to make / slave: "),)
    steps = ((new_mount("tmpfs"), "Failed to mount tmpfs: "), (r"^pivot_root\(", "pivot_root"))
    for pattern, begin in (*(slave if ctx.root else ()), *steps):
        result, _ = nshelp.inject_at(ctx, pattern, "EACCES", *base)
        refused(ctx, result, begin, reason="Permission denied", hint=CAUSES["apparmor"])
        names_only(ctx, result, "apparmor")
        nothing_left(ctx)


@case("E13", "a failed id map names the map", timeout=120)
def id_map_failures(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, "--unshare-user", "--ro-bind", "/", "/", "true")
    for file, begin in (("uid_map", "setting up uid map: "), ("gid_map", "setting up gid map: "),
                        ("setgroups", "error writing to setgroups: ")):
        result, _ = nshelp.inject_at(ctx, rf"^write\(\d+<[^>]*/{file}>", "EACCES", *base)
        refused(ctx, result, begin, reason="Permission denied")
        nothing_left(ctx)


@case("E13 PC1", "a refused id map of a namespace that could be made does not blame a limit or a filter",
      timeout=120)
def id_map_cause(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, "--unshare-user", "--ro-bind", "/", "/", "true")
    result, _ = nshelp.inject_at(ctx, r"^write\(\d+<[^>]*/uid_map>", "EACCES", *base)
    hint = hint_of(message(result))
    for name in ("sysctl", "limit", "seccomp", "chroot", "kernel", "descriptors"):
        # AppArmor's switch is a sysctl too: only the other one would be wrong here.
        pattern = r"unprivileged_userns_clone" if name == "sysctl" else CAUSES[name]
        ctx.true(not re.search(pattern, hint), f"the hint names {name!r}\n{result}")


@case("E13", "root without CAP_SETFCAP learns why it cannot map itself", only="root")
def map_without_setfcap(ctx):
    def without():
        nshelp.drop_bounding(nshelp.CAP_SETFCAP)

    result = ctx.bw("--unshare-user", "--ro-bind", "/", "/", "true", pre=without)
    refused(ctx, result, "setting up uid map: ", reason="Operation not permitted",
            hint=CAUSES["setfcap"])
    names_only(ctx, result, "setfcap")
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "true", pre=without))
    ctx.ok(ctx.bw("--unshare-user", "--ro-bind", "/", "/", "true"))


@case("E14", "a seccomp program that the kernel refuses is reported as such", timeout=120)
def seccomp_failures(ctx):
    nshelp.need_strace(ctx)
    allow = struct.pack("=HBBI", 6, 0, 0, 0x7fff0000)
    for data in ("", b"\xff" * 8, b"\0" * 8):
        result = ctx.bw(*ctx.RUN, "--seccomp", "9", "true", fds={9: data})
        text = refused(ctx, result, "")
        for word in ("PR_SET_SECCOMP", "EINVAL", "CONFIG_SECCOMP"):
            ctx.true(word in text, f"{word} is named\n{result}")
    base = (ctx.bwrap, *ctx.RUN, "--seccomp", "9", "true")
    plain, calls = nshelp.traced(ctx, *base, fds={9: allow})
    ctx.ok(plain)
    call = next(c for c in calls if c.line.startswith("prctl(PR_SET_SECCOMP"))
    for error, reason in (("ENOMEM", "Cannot allocate memory"), ("EACCES", "Permission denied")):
        result, _ = nshelp.traced(ctx, *base, fds={9: allow},
                                  inject=[f"prctl:error={error}:when={call.index}"])
        refused(ctx, result, "prctl(PR_SET_SECCOMP): ", reason=reason)


@case("E15", "a copy with privileges of its own refuses to run for an ordinary user", only="root")
def privileged_copies(ctx):
    import pwd
    user = pwd.getpwnam(os.environ.get("NSBOX_TEST_USER", "nsbox-test"))

    def become():
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)

    identity = os.path.join(ctx.dir, "id")
    shutil.copy(shutil.which("id"), identity)
    os.chmod(identity, 0o4755)
    ctx.ok(ctx.run(identity, "-u", pre=become), out="0")
    copy = os.path.join(ctx.dir, "bwrap")
    shutil.copy(os.path.realpath(ctx.bwrap), copy)
    os.chmod(copy, 0o755)
    plain = ctx.run(copy, "--ro-bind", "/", "/", "echo", "ran", pre=become)
    if "error while loading shared libraries" in plain.err:
        ctx.skip("this build needs its library beside it: a copy does not start")
    ctx.ok(plain, out="ran")
    os.chmod(copy, 0o4755)
    result = ctx.run(copy, "--ro-bind", "/", "/", "echo", "ran", pre=become)
    text = refused(ctx, result, "")
    ctx.true("setuid" in text.lower(), f"the message says what is wrong\n{result}")
    os.chmod(copy, 0o755)
    if not shutil.which("setcap"):
        ctx.skip("setcap is not installed")
    ctx.ok(ctx.run("setcap", "cap_sys_admin,cap_net_admin+ep", copy))
    result = ctx.run(copy, "--ro-bind", "/", "/", "echo", "ran", pre=become)
    refused(ctx, result, "Unexpected capabilities but not setuid")


# -- Part C: the cause of a failed start -----------------------------------------------------------

PLAIN = ("--ro-bind", "/", "/")
USERNS = ("--unshare-user", "--ro-bind", "/", "/")

NAMESPACES = {"user": "--unshare-user", "pid": "--unshare-pid", "net": "--unshare-net",
              "ipc": "--unshare-ipc", "uts": "--unshare-uts", "cgroup": "--unshare-cgroup",
              "mnt": "--unshare-user"}


@case("PC3", "a namespace limit is named with its file and its value, and no other one",
      timeout=120)
def namespace_limits(ctx):
    for name, option in NAMESPACES.items():
        words = ("--unshare-user", option, *PLAIN, "echo", "ran")
        result = ctx.bw(*words, pre=nshelp.limited_userns({name: 0}))
        text = refused(ctx, result, "Creating new namespace failed: ", reason="ENOSPC")
        ctx.true(re.search(rf"max_{name}_namespaces\b.*\b0\b", text), f"file and value\n{result}")
        others = set(re.findall(r"max_(\w+)_namespaces", text)) - {name}
        ctx.eq(others, set(), f"other limits in {text!r}")
        names_only(ctx, result, "limit")
        ctx.true("No space left" not in text, f"a disk is blamed\n{result}")
        ctx.ok(ctx.bw(*words, pre=nshelp.limited_userns({name: 50})), out="ran")
        nothing_left(ctx)


@case("PC3", "an outer user namespace that allows no more is told from the own limit")
def outer_limit(ctx):
    def prepare():
        # One more namespace is allowed below the first; it is the one that we enter next.
        nshelp.limited_userns({"user": 1})()
        nshelp.new_userns()

    result = ctx.bw(*USERNS, "echo", "ran", pre=prepare)
    text = refused(ctx, result, "Creating new namespace failed: ", reason="ENOSPC")
    ctx.true(re.search(r"(?i)outer|inside a sandbox|already inside|surrounding|parent", text),
             f"an outer sandbox is named\n{result}")
    names_only(ctx, result, *(["limit"] if re.search(CAUSES["limit"], hint_of(text)) else []))

    def more():
        nshelp.limited_userns({"user": 20})()
        nshelp.new_userns()

    ctx.ok(ctx.bw(*USERNS, "echo", "ran", pre=more), out="ran")


@case("PC3", "namespaces that are nested too deep are told from a limit")
def nesting_depth(ctx):
    result = ctx.bw(*USERNS, "echo", "ran", pre=nshelp.limited_userns({}, levels=33))
    text = refused(ctx, result, "Creating new namespace failed: ", reason="ENOSPC")
    ctx.true(re.search(r"(?i)nest|deep|depth|inside", text), f"nesting is named\n{result}")
    ctx.true(not re.search(r"(?i)raise|sysctl -w|echo \d+ *>", hint_of(text)),
             f"raising a limit would not help\n{result}")
    ctx.ok(ctx.bw(*USERNS, "echo", "ran", pre=nshelp.limited_userns({}, levels=20)), out="ran")


@case("PC3", "a sandbox that forbids user namespaces is recognised from inside")
def inside_disabled(ctx):
    uid = "1001" if ctx.root else str(ctx.uid)
    outer = ("--unshare-user", "--uid", uid, "--gid", uid, "--bind", "/", "/")
    result = ctx.bw(*outer, "--disable-userns", ctx.bwrap, *PLAIN, "echo", "ran")
    refused(ctx, result, "Creating new namespace failed: ", reason="ENOSPC")
    names_only(ctx, result, "limit")
    ctx.ok(ctx.bw(*outer, ctx.bwrap, *PLAIN, "echo", "ran"), out="ran")


@case("PC4", "a seccomp filter that forbids user namespaces is named as the cause")
def denied_by_filter(ctx):
    deny = os.path.join(ctx.probe_dir, "deny_syscalls")
    for lists in (("EPERM", "clone,unshare", "ENOSYS", "clone3"), ("EPERM", "clone,unshare,clone3")):
        result = ctx.run(deny, "--userns-only", *lists, "--", ctx.bwrap, *USERNS, "echo", "ran")
        refused(ctx, result, "No permissions to create a new namespace", hint=CAUSES["seccomp"])
        names_only(ctx, result, "seccomp")
    # Controls: the filter does what it should, and a filter for something else does no harm.
    ctx.fails(ctx.run(deny, "--userns-only", "EPERM", "clone,unshare", "--", "unshare", "-U",
                      "true"), err="Operation not permitted")
    ctx.ok(ctx.run(deny, "EPERM", "ptrace", "--", ctx.bwrap, *USERNS, "echo", "ran"), out="ran")
    ctx.ok(ctx.run(deny, "ENOSYS", "clone3", "--", ctx.bwrap, *USERNS, "echo", "ran"), out="ran")


@case("PC4", "a kernel without user namespaces is named as the cause", timeout=120)
def kernel_without(ctx):
    nshelp.need_strace(ctx)
    result, _ = nshelp.traced(ctx, ctx.bwrap, *USERNS, "true",
                              inject=["clone,clone3:error=EINVAL"])
    text = refused(ctx, result, "Creating new namespace failed")
    ctx.true(re.search(r"(?i)user namespace|CONFIG_USER_NS|kernel lacks", text),
             f"the kernel is named\n{result}")
    for name in ("apparmor", "sysctl", "seccomp", "limit", "chroot"):
        ctx.true(not re.search(CAUSES[name], hint_of(text)), f"the hint names {name}\n{result}")


@case("PC5", "a partly covered /proc is the reason why a new one is refused", timeout=90)
def covered_proc(ctx):
    uid = "1001" if ctx.root else str(ctx.uid)
    outer = ("--unshare-user", "--uid", uid, "--gid", uid, "--unshare-pid", "--dev-bind", "/", "/",
             "--proc", "/proc")
    empty = ctx.write("empty")
    inner = (ctx.bwrap, "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc", "echo", "ran")
    for cover in (("--ro-bind", "/dev/null", "/proc/cmdline"), ("--tmpfs", "/proc/sys"),
                  ("--bind", empty, "/proc/uptime")):
        result = ctx.bw(*outer, *cover, *inner)
        refused(ctx, result, "Can't mount proc on /proc: ", reason="Operation not permitted",
                hint=CAUSES["proc"])
        names_only(ctx, result, "proc")
    # A user's own sandbox leaves /proc whole, and a new one may be mounted in it.
    if not ctx.root:
        ctx.ok(ctx.bw(*outer, *inner), out="ran")
    else:
        whole = ("--unshare-user", "--uid", uid, "--gid", uid, "--unshare-pid", "--dev-bind", "/", "/")
        ctx.ok(ctx.bw(*whole, *inner), out="ran")


def chrooted(ctx, root, userns):
    """For `pre`: the host's programs, /proc and the program under test below `root`, and a chroot
    into it that is not the root of a mount."""
    folders = {"/usr", "/proc", "/dev", os.path.dirname(ctx.bwrap),
               os.path.dirname(os.path.realpath(ctx.bwrap))}
    targets = [folder for folder in folders
               if not any(folder != other and folder.startswith(other + "/") for other in folders)]
    for folder in targets:
        os.makedirs(root + folder, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        os.symlink("usr/" + name, os.path.join(root, name))

    def enter():
        os.chroot(root)
        os.chdir("/")

    binds = [lambda f=folder: mount(f, root + f, None, nshelp.MS_BIND | nshelp.MS_REC)
             for folder in targets]
    return private_mounts(*binds, enter, userns=userns)


@case("PC6", "a user in a chroot is told so")
def user_in_chroot(ctx):
    prepare = chrooted(ctx, ctx.mkdir("root"), userns=True)
    ctx.ok(ctx.run("/usr/bin/ls", "/", pre=prepare))
    result = ctx.bw(*USERNS, "echo", "ran", pre=prepare)
    refused(ctx, result, "No permissions to create a new namespace", hint=CAUSES["chroot"])
    names_only(ctx, result, "chroot")


@case("PC6", "root in a chroot gets a sandbox or is told why not", only="root")
def root_in_chroot(ctx):
    prepare = chrooted(ctx, ctx.mkdir("root"), userns=False)
    result = ctx.bw(*PLAIN, "ls", "/", pre=prepare)
    if result.rc == 0:
        ctx.true("usr" in result.out.split() and "etc" not in result.out.split(),
                 f"the sandbox shows the chroot's tree, not the host's\n{result}")
        inner = ctx.ok(ctx.bw("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
                              "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
                              "sh", "-c", "cd ..; cd ../..; ls /.. ", pre=prepare))
        ctx.eq(inner.out.split(), ["bin", "lib", "lib64", "usr"], "the root of the sandbox")
    else:
        text = refused(ctx, result, "")
        ctx.true(re.match(r"bwrap: (Failed to make / slave|pivot_root|No permissions)", text),
                 f"the step\n{result}")
        names_only(ctx, result, "chroot")


@case("PC7", "a root that cannot be pivoted away from is no reason to show the host", timeout=120)
def pivot_impossible(ctx):
    nshelp.need_strace(ctx)
    marker = ctx.write("marker", "text")
    base = (ctx.bwrap, *ctx.USR, "--ro-bind", "/proc", "/proc", "sh", "-c",
            f"ls /; test -e {marker} && echo HOST; test -e /../etc/passwd && echo HOST; "
            "ls /proc/self/root/")
    plain, calls = nshelp.traced(ctx, *base)
    ctx.ok(plain)
    ctx.true(any(c.name == "pivot_root" for c in calls), "pivot_root is used")
    result, _ = nshelp.traced(ctx, *base, inject=["pivot_root:error=EINVAL"])
    if result.rc == 0:
        ctx.eq(result.out, plain.out, "what the sandbox shows")
    else:
        refused(ctx, result, "pivot_root", reason="Invalid argument", hint=r"(?i)chroot|initramfs|rootfs")
        nothing_left(ctx)


@case("PC8", "a mount that a security module forbids is reported as that", timeout=150)
def denied_by_module(ctx):
    nshelp.need_strace(ctx)
    calls = "mount,move_mount,open_tree,mount_setattr,fsmount,fsopen,fsconfig,pivot_root,umount2"
    for words in (PLAIN, (*PLAIN, "--tmpfs", "/tmp"), (*PLAIN, "--unshare-pid", "--proc", "/proc")):
        result, _ = nshelp.traced(ctx, ctx.bwrap, *words, "true", inject=[f"{calls}:error=EACCES"])
        text = refused(ctx, result, "", reason="Permission denied", hint=CAUSES["apparmor"])
        ctx.true(re.match(r"bwrap: (Failed to|Can't|pivot_root)", text), f"the step\n{result}")
        names_only(ctx, result, "apparmor")
        nothing_left(ctx)


# -- resources that ran out ------------------------------------------------------------------------

@case("PC11", "a start without enough descriptors fails cleanly and names them", timeout=120)
def few_descriptors(ctx):
    seen = set()
    ran = os.path.join(ctx.dir, "ran")
    words = ("--bind", "/", "/", "--unshare-pid", "--unshare-net", "--proc", "/proc", "--dev",
             "/dev", "touch", ran)
    for count in range(4, 40):
        def limit(n=count):
            resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

        # What the loader of any program needs comes first.
        if ctx.run("/usr/bin/true", pre=limit).rc != 0:
            continue
        result = ctx.bw(*words, pre=limit)
        nothing_left(ctx)
        if result.rc == 0:
            ctx.true(os.path.exists(ran), "the command ran")
            os.unlink(ran)
            seen.add("works")
            continue
        if "error while loading shared libraries" in result.err and "bwrap: " not in result.err:
            continue
        ctx.true(not os.path.exists(ran), f"the command ran although the start failed\n{result}")
        refused(ctx, result, "", reason="Too many open files", hint=CAUSES["descriptors"])
        names_only(ctx, result, "descriptors")
        seen.add("fails")
    ctx.eq(seen, {"works", "fails"}, "what was seen")


@case("PC11", "a machine without free file handles is named as the cause", timeout=120)
def no_file_handles(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, *ctx.RUN, "--unshare-pid", "true")
    result, call = nshelp.inject_at(ctx, r"^(pipe2|eventfd2|socketpair|memfd_create|pidfd_open)\(",
                                    "ENFILE", *base)
    text = refused(ctx, result, "", reason="Too many open files in system",
                   hint=CAUSES["descriptors"])
    ctx.true("ulimit" not in text, f"the limit is the machine's, not the process's\n{call}: {text}")
    names_only(ctx, result, "descriptors")


@case("PC11", "a start without enough processes fails cleanly and names them", only="user")
def few_processes(ctx):
    seen = set()
    ran = os.path.join(ctx.dir, "ran")
    for count in range(1, 9):
        def limit(n=count):
            # In a user namespace of its own the count begins at one, whatever else this user runs.
            nshelp.new_userns()
            resource.setrlimit(resource.RLIMIT_NPROC, (n, n))

        result = ctx.bw("--bind", "/", "/", "--unshare-pid", "touch", ran, pre=limit)
        nothing_left(ctx)
        if result.rc == 0:
            ctx.true(os.path.exists(ran), "the command ran")
            os.unlink(ran)
            seen.add("works")
        else:
            ctx.true(not os.path.exists(ran), "the command ran although the start failed")
            refused(ctx, result, "", reason="Resource temporarily unavailable",
                    hint=CAUSES["processes"])
            names_only(ctx, result, "processes")
            seen.add("fails")
    ctx.eq(seen, {"works", "fails"}, "what was seen")


@case("PC11", "the first process that cannot be made is reported with its reason", timeout=120)
def clone_fails(ctx):
    nshelp.need_strace(ctx)
    for error, reason, cause in (("EAGAIN", "Resource temporarily unavailable", "processes"),
                                 ("ENOMEM", "Cannot allocate memory", "memory")):
        for words in (PLAIN, USERNS, (*PLAIN, "--unshare-pid")):
            result, _ = nshelp.traced(ctx, ctx.bwrap, *words, "true",
                                      inject=[f"clone,clone3,fork,vfork:error={error}"])
            refused(ctx, result, "Creating new namespace failed: ", reason=reason,
                    hint=CAUSES[cause] if cause == "processes" else None)
            names_only(ctx, result, cause)


@case("PC11", "root without the right to make namespaces is told so", only="root")
def root_without_sys_admin(ctx):
    def without():
        nshelp.drop_bounding(nshelp.CAP_SYS_ADMIN)

    result = ctx.bw(*PLAIN, "echo", "ran", pre=without)
    text = refused(ctx, result, "Creating new namespace failed: ", reason="Operation not permitted",
                   hint=r"CAP_SYS_ADMIN|--unshare-user")
    for name in ("apparmor", "sysctl", "limit", "seccomp", "chroot", "kernel"):
        ctx.true(not re.search(CAUSES[name], hint_of(text)), f"the hint names {name}\n{result}")
    ctx.ok(ctx.bw(*USERNS, "echo", "ran", pre=without), out="ran")


@case("PC11", "a hint never changes the line on which other programs look for the text")
def one_line_each(ctx):
    for result in (ctx.bw(*USERNS, "true", pre=nshelp.limited_userns({"user": 0})),
                   ctx.bw("--bind", "/nowhere", "/x", "true"),
                   ctx.bw("--ro-bnd", "true")):
        ctx.fails(result, rc=1)
        ctx.eq(result.err.count("\n"), 1, f"lines of {result.err!r}")
        prefixed = re.fullmatch(r"bwrap: [^\n]+\n", result.err)
        ctx.true(prefixed, f"one line with the prefix: {result.err!r}")
    result = ctx.bw("--level-prefix", *USERNS, "true", pre=nshelp.limited_userns({"user": 0}))
    ctx.true(re.fullmatch(r"<3>bwrap: [^\n]+\n", result.err), f"with --level-prefix: {result.err!r}")


@case("E16", "a loopback that cannot be configured is reported under the names that callers parse",
      timeout=120)
def loopback_failures(ctx):
    nshelp.need_strace(ctx)
    base = (ctx.bwrap, *ctx.RUN, "--unshare-net", "true")
    plain, calls = nshelp.traced(ctx, *base)
    ctx.ok(plain)
    # An address need not be asked for: the kernel gives lo its own when it goes up.
    found = 0
    for pattern, name in ((r"SIOCSIFADDR|^send\w+\(.*nlmsg_type=(0x14|RTM_NEWADDR)", "RTM_NEWADDR"),
                          (r"SIOCSIFFLAGS|^send\w+\(.*nlmsg_type=(0x10|RTM_NEWLINK)", "RTM_NEWLINK")):
        call = next((c for c in calls if re.search(pattern, c.line)), None)
        if call:
            found += 1
            result, _ = nshelp.traced(ctx, *base,
                                      inject=[f"{call.name}:error=EPERM:when={call.index}"])
            refused(ctx, result, f"loopback: Failed {name}: ", reason="Operation not permitted")
    ctx.true(found, "a request to the network")
    result, _ = nshelp.inject_at(ctx, r"^socket\(AF_(NETLINK|INET)", "EMFILE", *base)
    refused(ctx, result, "loopback: ", reason="Too many open files")
