"""What a line finds around it: the tree, descriptors, namespaces to join; and who runs below us."""

import ctypes
import os
import shlex
import shutil
import socket
import stat
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE = {"user": 0x10000000, "pid": 0x20000000, "mnt": 0x00020000, "net": 0x40000000}


# -- the tree


def write(path, text, mode=0o644):
    with open(path, "wb") as file:
        file.write(text.encode())
    os.chmod(path, mode)


def make_tree(top):
    """The standard tree that every line starts with; `setup:` adds to it."""
    old = os.umask(0)
    try:
        os.mkdir(top, 0o755)
        for name, mode in (("dir", 0o755), ("dir/sub", 0o755), ("private", 0o700),
                           ("open", 0o777), ("empty", 0o755)):
            os.mkdir(f"{top}/{name}", mode)
        write(f"{top}/file", "file text\n")
        write(f"{top}/secret", "secret text\n", 0o600)
        write(f"{top}/frozen", "frozen text\n", 0o444)
        write(f"{top}/dir/a", "a text\n")
        write(f"{top}/dir/sub/b", "b text\n")
        write(f"{top}/private/p", "p text\n", 0o600)
        write(f"{top}/script", "#!/bin/sh\nexit 5\n", 0o755)
        write(f"{top}/plain", "exit 6\n", 0o755)
        write(f"{top}/noexec", "#!/bin/sh\nexit 7\n", 0o644)
        os.symlink("dir", f"{top}/link")
        os.symlink("file", f"{top}/flink")
        os.symlink("missing", f"{top}/dangling")
        os.symlink(f"{top}/dir", f"{top}/abslink")
        os.symlink(f"{top}/file", f"{top}/absflink")
        os.mkfifo(f"{top}/fifo", 0o644)
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{top}/sock")
        server.listen(8)
    finally:
        os.umask(old)
    return server


def remove_tree(top):
    """Removes a tree whose directories may lack the bits that this needs."""
    if not os.path.lexists(top):
        return
    todo = [top]
    while todo:
        path = todo.pop()
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            todo += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(top)


KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "char"}


def describe_entry(path):
    """Kind, mode, and text or target."""
    st = os.lstat(path)
    kind = KINDS.get(stat.S_IFMT(st.st_mode), "other")
    if kind == "link":
        return f"link {os.readlink(path)}"
    text = f"{kind} {stat.S_IMODE(st.st_mode):04o}"
    if kind == "file":
        try:
            with open(path, "rb") as file:
                text += " " + repr(file.read(400))[1:]
        except OSError as error:
            text += " " + error.strerror
    return text


def describe_tree(top):
    """What is there after a run, one key a path."""
    found, todo = {}, [""]
    while todo:
        name = todo.pop()
        path = f"{top}/{name}" if name else top
        key = "tree." + (name or ".")
        try:
            found[key] = describe_entry(path)
            if found[key].startswith("dir "):
                todo += [f"{name}/{entry}" if name else entry for entry in os.listdir(path)]
        except OSError as error:
            found[key] = found.get(key, "") + " " + error.strerror
    return found


# -- descriptors


def memory_file(data, name="data"):
    fd = os.memfd_create(name)
    os.write(fd, data.encode() if isinstance(data, str) else data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


CALLS = {"x86_64": {"fchmodat": 268, "execve": 59, "mkdirat": 258},
         "aarch64": {"fchmodat": 53, "execve": 221, "mkdirat": 34}}


def filter_program(text):
    """A classic BPF program: `NAME=ERRNO` makes one system call fail; or one of the names below."""
    def op(code, jt, jf, k):
        return struct.pack("<HBBI", code, jt, jf, k)

    allow = op(0x06, 0, 0, 0x7FFF0000)
    named = {"allow": allow, "empty": b"", "odd": allow[:7], "long": allow * 65537,
             "junk": b"\xff" * 16}
    if text in named:
        return named[text]
    name, number = text.split("=")
    call = CALLS[os.uname().machine][name]
    refuse = op(0x06, 0, 0, 0x00050000 | int(number))
    return op(0x20, 0, 0, 0) + op(0x15, 0, 1, call) + refuse + allow


class Holder:
    """A process that keeps namespaces alive so that a line can join them.

    `holder: user pid map=0` makes a user and a pid namespace in which the caller is id 0.
    """

    def __init__(self, text):
        words = text.split()
        wanted = next((word[4:] for word in words if word.startswith("map=")), "same")
        flags = 0
        for word in words:
            flags |= CLONE.get(word, 0)
        self.read, ready = os.pipe()
        stop, self.stop = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.stop)
            os.close(self.read)
            try:
                self.hold(flags, ready, stop)
            finally:
                os._exit(1)
        os.close(ready)
        os.close(stop)
        answer = os.read(self.read, 64).decode()
        if not answer.isdigit():
            raise RuntimeError(f"the holder of namespaces ({text}) failed: {answer}")
        self.inner = int(answer)
        if flags & CLONE["user"]:
            self.map(wanted)

    def map(self, wanted):
        """`same`, `N` (the caller is N inside) or `N:M` (M is N, and the caller is nobody)."""
        inside, _, outside = wanted.partition(":")
        for name, own in (("uid_map", os.getuid()), ("setgroups", None), ("gid_map", os.getgid())):
            text = f"{own if inside == 'same' else inside} {outside or own} 1"
            with open(f"/proc/{self.inner}/{name}", "w", encoding="ascii") as file:
                file.write("deny" if own is None else text)

    @staticmethod
    def hold(flags, ready, stop):
        if LIBC.unshare(flags) != 0:
            os.write(ready, os.strerror(ctypes.get_errno()).encode())
            return
        # A pid namespace begins with the next child.
        child = os.fork()
        if child == 0:
            os.read(stop, 1)
            os._exit(0)
        os.write(ready, str(child).encode())
        os.read(stop, 1)
        os.waitpid(child, 0)
        os._exit(0)

    def open(self, kind):
        return os.open(f"/proc/{self.inner}/ns/{kind}", os.O_RDONLY)

    def close(self):
        os.close(self.stop)
        os.close(self.read)
        os.waitpid(self.pid, 0)


def escaped(text):
    """The bytes of a text with escapes such as `\\0` and `\\n`."""
    return text.encode().decode("unicode_escape").encode("latin-1")


def open_pipe(data):
    read, out = os.pipe()
    os.write(out, data)
    os.close(out)
    return read


def open_broken_pipe():
    read, out = os.pipe()
    os.close(read)
    return out


def open_deleted():
    write("gone", "gone text\n")
    fd = os.open("gone", os.O_RDONLY)
    os.unlink("gone")
    return fd


def open_file(text):
    path, _, offset = text.partition(" ")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(fd, int(offset or 0), os.SEEK_SET)
    return fd


def open_namespace(text, holder):
    if text.startswith("own "):
        return os.open(f"/proc/self/ns/{text[4:]}", os.O_RDONLY)
    return holder.open(text)


def open_descriptor(kind, text, holder):
    """Opens what `fd: NUMBER KIND TEXT` asks for, relative to the tree."""
    openers = {
        "read": lambda: open_file(text),
        "dir": lambda: os.open(text, os.O_RDONLY | os.O_DIRECTORY),
        "path": lambda: os.open(text, os.O_PATH | os.O_NOFOLLOW),
        "write": lambda: os.open(text, os.O_WRONLY | os.O_CREAT, 0o644),
        "text": lambda: memory_file(escaped(text)),
        "words": lambda: memory_file("".join(word + "\0" for word in shlex.split(text))),
        "bpf": lambda: memory_file(filter_program(text)),
        "pipe": lambda: open_pipe(escaped(text)),
        "brokenpipe": open_broken_pipe,
        "deleted": open_deleted,
        "ns": lambda: open_namespace(text, holder),
    }
    return openers[kind]()


# -- processes


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descendants(pid, except_pid):
    """The living processes below `pid`, without `except_pid` and what is below that."""
    found, todo = [], [pid]
    while todo and len(found) < 1000:
        for child in children(todo.pop()):
            if child != except_pid:
                todo.append(child)
                if is_alive(child):
                    found.append(child)
    return found


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def reap_except(except_pid):
    """Collects adopted orphans; the holder is collected by its owner."""
    for pid in children(os.getpid()):
        if pid != except_pid:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
