"""The command lines under test, the files they name and what the probe has to answer."""

import errno
import os
import re
import signal
import struct
import subprocess
import time

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8",
               "FAULT_SECRET": "outside"}


class Line:
    """A command line: what to ask the probe, and what it has to answer when nothing fails."""

    def __init__(self, name, args, asks=(), expect=None, fds=None, outs=None, only=None,
                 own="", volatile=(), note=None, library=False):
        self.name, self.args, self.asks, self.expect = name, args, list(asks), expect or {}
        self.fds, self.outs, self.only = fds or {}, outs or {}, only
        # Run by library_starts.cpp, which has to leave nothing behind in its own process either.
        self.library = library
        self.note = note  # A part of the line on standard error that is no failure.
        self.own = own.split()
        self.volatile = set(volatile) | {"ns.mnt"}
        if "pid" not in self.own:
            # Facts about somebody else's pid 1, and host pids.
            self.volatile |= {"pids"}


NO_CAPS = "0000000000000000"
ALL_OWN = "cgroup ipc mnt net pid user uts"


def command_lines(place, root):
    """Every command line, for an identity; `place` holds the files it names."""
    base = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    bare = {"self.CapEff:": NO_CAPS, "self.CapPrm:": NO_CAPS, "self.CapInh:": NO_CAPS,
            "self.CapAmb:": NO_CAPS}
    bounded = {**bare, "self.CapBnd:": NO_CAPS}
    user_caps = {} if root else bounded
    sealed = {"self.NoNewPrivs:": "1", f"write {place.work}/new": "EROFS", "write /new": "EROFS",
              "list /tmp": "", "self.SigBlk:": NO_CAPS}
    sealed_asks = [f"write:{place.work}/new", "write:/new", "write:/tmp/new"]
    inside_init = {"init.NoNewPrivs:": "1", "init.CapEff:": NO_CAPS, "init.CapPrm:": NO_CAPS}
    lines = [
        Line("first", [
            "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "box",
            "--clearenv", "--setenv", "ONLY", "this", "--seccomp", "9", "--chdir", "/usr", *base],
            sealed_asks, own=ALL_OWN, fds={9: place.filter},
            expect={**sealed, **user_caps, **inside_init, "hostname": "box", "cwd": "/usr",
                    "env": "ONLY=this|PWD=/usr", "self.Seccomp:": "2", "filtered": "EXDEV",
                    "lo": "up", "pdeathsig": "9", "session leader": "no",
                    "write /tmp/new": "ok", "pids": "2 1", "init.Seccomp:": "2"}),
        Line("files", [
            "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib",
            "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
            "--ro-bind", place.tools, "/tools", "--tmpfs", "/tmp",
            "--overlay-src", place.lower, "--tmp-overlay", "/private",
            "--overlay-src", place.lower, "--overlay", place.upper, place.scratch, "/kept",
            "--overlay-src", place.lower, "--overlay-src", place.lower2, "--ro-overlay", "/merged",
            "--file", "5", "/etc/data", "--bind-data", "6", "/data",
            "--perms", "0640", "--ro-bind-data", "7", "/rodata", "--symlink", "/data", "/link",
            "--perms", "0700", "--dir", "/private-dir", "--chmod", "0711", "/private-dir",
            "--perms", "1777", "--size", "65536", "--tmpfs", "/small",
            "--bind-try", "/nonexistent/source", "/never", "--bind", place.writable, "/rw",
            "--remount-ro", "/small", "--remount-ro", "/"],
            ["read:/etc/data", "read:/data", "stat:/rodata", "read:/rodata", "write:/rodata/x",
             "open:/rodata", "open:/data", "read:/private/from", "read:/merged/from",
             "read:/merged/second", "read:/kept/from", "write:/private/new", "write:/merged/new",
             "write:/small/new", "write:/new", "write:/rw/new", "write:/kept/new", "link:/link",
             "stat:/private-dir", "stat:/small", "stat:/never", "list:/", "write:/usr/new"],
            own=ALL_OWN, fds={5: place.data, 6: place.data, 7: place.data},
            expect={**inside_init, "read /etc/data": "the data", "read /data": "the data",
                    "read /rodata": "the data", "open /rodata": "EROFS", "open /data": "ok",
                    "read /private/from": "lower", "read /merged/from": "second",
                    "read /merged/second": "second", "read /kept/from": "lower",
                    "write /private/new": "ok", "write /merged/new": "EROFS",
                    "write /small/new": "EROFS", "write /new": "EROFS", "write /rw/new": "ok",
                    "write /kept/new": "ok", "link /link": "/data", "stat /never": "ENOENT",
                    "write /usr/new": "EROFS", "self.NoNewPrivs:": "1"}),
        Line("no-pid-namespace", [
            "--unshare-user", "--unshare-ipc", "--unshare-uts", "--hostname", "box",
            "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--tmpfs", "/tmp",
            "--die-with-parent", "--unsetenv", "FAULT_SECRET", "--seccomp", "9"],
            sealed_asks, own="ipc mnt user uts", fds={9: place.filter},
            expect={**sealed, **user_caps, "hostname": "box", "self.Seccomp:": "2",
                    "filtered": "EXDEV", "pdeathsig": "9"},
            volatile=["init fd /proc/1/fd", "init /proc/1/mem", "init /proc/1/environ"]),
        Line("json", [
            "--unshare-all", "--info-fd", "8", "--json-status-fd", "9", "--die-with-parent", *base],
            sealed_asks, own=ALL_OWN, outs={8: "info", 9: "status"},
            expect={**sealed, **user_caps, **inside_init, "pids": "2 1", "lo": "up"}),
        Line("json-plain", [
            "--bind", "/", "/", "--tmpfs", "/tmp", "--die-with-parent", "--json-status-fd", "9"],
            ["write:/tmp/new"], own="mnt" if root else "mnt user", outs={9: "status"},
            expect={"self.NoNewPrivs:": "1", "list /tmp": "", "pdeathsig": "9", **user_caps},
            volatile=["init fd /proc/1/fd", "init /proc/1/mem", "init /proc/1/environ"]),
        Line("drop-all", ["--cap-drop", "ALL", "--unshare-pid", *base], sealed_asks, only="root",
             own="mnt pid", expect={**sealed, **bare, **inside_init, "pids": "2 1"}),
        Line("one-cap", ["--unshare-user", "--unshare-pid", "--uid", "4711", "--gid", "4712",
                         "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", *base], sealed_asks,
             own="mnt pid user",
             expect={**sealed, **inside_init, **{k: "0000000000000001" for k in bounded}}),
        Line("no-userns", [
            "--unshare-user", "--disable-userns", "--assert-userns-disabled", "--unshare-pid",
            *base], sealed_asks, own="mnt pid user",
            expect={**sealed, **user_caps, **inside_init, "newuser": "ENOSPC"}),
        Line("descriptors", [
            "--args", "5", "--sync-fd", "6", "--lock-file", place.lock, "--block-fd", "7",
            "--add-seccomp-fd", "8", "--add-seccomp-fd", "9", "--bind-fd", "10", "/tmp/rw",
            "--ro-bind-fd", "11", "/tmp/ro"],
            [f"write:{place.work}/new", "write:/tmp/rw/new", "write:/tmp/ro/new"],
            own="mnt pid" if root else "mnt pid user",
            fds={5: place.arguments, 6: place.data, 7: place.data, 8: place.filter,
                 9: place.filter, 10: place.writable, 11: place.writable},
            expect={"self.NoNewPrivs:": "1", f"write {place.work}/new": "EROFS",
                    "write /tmp/rw/new": "ok", "write /tmp/ro/new": "EROFS",
                    "self.Seccomp:": "2", "filtered": "EXDEV", **inside_init}),
        Line("join", [
            "--userns", "5", "--pidns", "6", "--unshare-uts", "--hostname", "box",
            "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--tmpfs", "/tmp",
            "--seccomp", "9"],
            sealed_asks, own="pid user uts", volatile=["pids"],
            fds={5: f"/proc/{place.holder}/ns/user", 6: f"/proc/{place.holder}/ns/pid",
                 9: place.filter},
            expect={**sealed, **user_caps, "hostname": "box", "pdeathsig": "9",
                    "self.Seccomp:": "2", "filtered": "EXDEV"}),
        Line("as-pid-1", ["--unshare-pid", "--as-pid-1", "--unshare-net", *base], sealed_asks,
             own="mnt net pid" if root else "mnt net pid user",
             expect={**sealed, **user_caps, "pids": "1 0", "lo": "up"}),
        # Init loads the filter, and the command inherits it.
        Line("policy", ["--unshare-user", "--unshare-pid", "--cap-drop", "ALL", "--seccomp-policy", "default", *base],
             sealed_asks, own="mnt pid user",
             expect={**sealed, **bounded, **inside_init, "self.Seccomp:": "2", "init.Seccomp:": "2", "pids": "2 1"}),
        Line("landlock", ["--unshare-user", "--unshare-pid", "--cap-drop", "ALL", "--landlock", "auto", *base],
             sealed_asks, own="mnt pid user", expect={**sealed, **bounded, **inside_init, "pids": "2 1"}),
        Line("landlock-only", [
            "--landlock", "only", "--unshare-net", "--die-with-parent", "--seccomp", "9",
            *(word for path in ("/usr", "/bin", "/lib", "/lib64", "/proc", place.tools)
              for word in ("--ro-bind-try", path, path)), "--bind", place.writable, place.writable],
            [f"write:{place.work}/new", "write:/new", f"write:{place.writable}/new", f"read:{place.lower}/from"],
            fds={9: place.filter},
            expect={**bare, "self.NoNewPrivs:": "1", f"write {place.work}/new": "EACCES", "write /new": "EACCES",
                    f"write {place.writable}/new": "ok", f"read {place.lower}/from": "EACCES",
                    "self.Seccomp:": "2", "filtered": "EXDEV", "pdeathsig": "9"},
            note="there are no namespaces here",
            volatile=["init fd /proc/1/fd", "init /proc/1/mem", "init /proc/1/environ"]),
        Line("denials", ["--unshare-pid", "--log-denials=8", "--seccomp", "9", *base], sealed_asks,
             own="mnt pid" if root else "mnt pid user", fds={9: place.filter}, outs={8: "denied"},
             expect={**sealed, **user_caps, **inside_init, "self.Seccomp:": "2", "filtered": "EXDEV", "pids": "2 1"}),
        Line("limits", ["--unshare-pid", "--die-with-parent", "--memory", "64M", "--pids", "20", "--nice", "3", *base],
             sealed_asks, own="mnt pid", only="root",
             expect={**sealed, **user_caps, **inside_init, "pdeathsig": "9", "groups": str(place.hierarchies)}),
    ]
    word = {"read /tmp/file": "the word", "list /tmp": "file ", "cwd": "/tmp"}
    # Init has what its commands are to have, and no more.
    served = {**sealed, **word, **({} if root else inside_init), "init.NoNewPrivs:": "1", "session leader": "yes", "lo": "up"}
    lines += [
        Line("library", ["--chdir", "/tmp"], [*sealed_asks, "read:/tmp/file"], own=ALL_OWN, library=True,
             expect={**served, **user_caps, "pids": "2 1"}),
        Line("library-memory", ["--memory", "--chdir", "/tmp"], [*sealed_asks, "read:/tmp/file"],
             own="ipc mnt net pid user uts", library=True, only="root", expect={**served, "groups": "1"}),
        Line("library-everyday", ["--everyday", "--chdir", "/tmp"], ["write:/usr/new", "read:/tmp/file"], own=ALL_OWN,
             library=True, expect={**word, **bounded, **inside_init, "self.NoNewPrivs:": "1", "write /usr/new": "EROFS",
                                   "self.Seccomp:": "2", "init.Seccomp:": "2", "session leader": "yes"}),
        Line("library-reset", ["--reset", "--chdir", "/tmp"], [*sealed_asks, "read:/tmp/file"], own=ALL_OWN,
             library=True, expect={**served, **user_caps, "pids": "2 1"}),
    ]
    who = "root" if root else "user"
    return [line for line in lines if line.only in (None, who)
            and (line.name != "join" or place.holder)]


def seccomp_filter(call_number):
    """A filter that answers one call with EXDEV and allows the others."""
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EXDEV
    program = [(0x20, 0, 0, 0), (0x15, 0, 1, call_number), (0x06, 0, 0, refuse),
               (0x06, 0, 0, allow)]
    return b"".join(struct.pack("=HBBI", *one) for one in program)


class Place:
    """The files of one worker. `work` is the caller's directory, which has to stay as it is."""

    def __init__(self, top, tools, sched_number):
        self.top, self.tools = top, tools
        self.out = os.path.join(top, "out")
        self.work = os.path.join(top, "work")
        files = os.path.join(self.work, "files")
        for name in ("lower", "lower2", "upper", "scratch", "writable"):
            path = os.path.join(files, name)
            os.makedirs(path)
            setattr(self, name, path)
        os.makedirs(self.out)
        self.data = self.write(files, "data", b"the data")
        self.lock = self.write(files, "lock", b"")
        self.filter = self.write(files, "filter", seccomp_filter(sched_number))
        self.arguments = self.write(files, "arguments", b"\0".join(
            b"--unshare-pid --ro-bind / / --proc /proc --tmpfs /tmp".split()))
        self.write(self.lower, "from", b"lower")
        self.write(self.lower2, "from", b"second")
        self.write(self.lower2, "second", b"second")
        self.holder = 0
        rows = [row.split(":")[:2] for row in slurp("/proc/self/cgroup").splitlines()]
        # A controller that is in no hierarchy of version 1 is in that of version 2.
        old = {row for row, names in rows for name in ("memory", "pids") if name in names.split(",")}
        self.hierarchies = len(old) + any(all(name not in names.split(",") for _, names in rows)
                                          for name in ("memory", "pids"))

    def hold(self, bwrap):
        """Starts a sandbox whose namespaces the line `join` enters; returns what ends it, or
        None if it does not start."""
        read, write = os.pipe()
        proc = subprocess.Popen(
            [bwrap, "--info-fd", str(write), "--unshare-user", "--unshare-pid", "--as-pid-1",
             "--die-with-parent", "--bind", "/", "/", "sleep", "3600"], env=ENVIRONMENT,
            pass_fds=[write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as f:
            match = re.search(r'"child-pid": (\d+)', f.read())
        child = int(match[1]) if match else 0
        deadline = time.monotonic() + 10
        while slurp(f"/proc/{child}/comm").strip() != "sleep":
            if proc.poll() is not None or time.monotonic() > deadline:
                proc.kill()
                proc.wait()
                return None
            time.sleep(0.01)
        self.holder = child

        def end():
            os.kill(child, signal.SIGKILL)
            proc.wait()

        return end

    @staticmethod
    def write(directory, name, data):
        path = os.path.join(directory, name)
        with open(path, "wb") as f:
            f.write(data)
        return path


def slurp(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""
