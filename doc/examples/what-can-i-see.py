#!/usr/bin/python3
"""Tells what a program can and cannot see and do where it runs.

Run it outside and inside a sandbox and compare:

    doc/examples/what-can-i-see.py
    tools/quickstart
"""

import errno
import os
import pwd
import socket

CAPABILITIES = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap "
    "linux_immutable net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner "
    "sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice "
    "sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap "
    "mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf "
    "checkpoint_restore").split()


def show(what, answer):
    print(f"  {what:<34} {answer}")


def attempt(action):
    """Says "yes", or "no" and the kernel's reason."""
    try:
        action()
    except OSError as error:
        return f"no: {os.strerror(error.errno) if error.errno else error}"
    return "yes"


def names(path, limit=12):
    """The entries of a directory in one line, or why they cannot be listed."""
    try:
        found = sorted(os.listdir(path))
    except OSError as error:
        return f"no: {os.strerror(error.errno)}"
    more = f" ... ({len(found)} in all)" if len(found) > limit else ""
    return " ".join(found[:limit]) + more if found else "(empty)"


def read_a_byte(path):
    with open(path, "rb") as file:
        file.read(1)


def open_to_write(path):
    # Opened only, never written: outside a sandbox this may be the real file.
    os.close(os.open(path, os.O_WRONLY))


def make_and_remove(directory):
    path = os.path.join(directory, f".what-can-i-see-{os.getpid()}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


def files():
    print("Files")
    show("entries of /", names("/"))
    for path in ("/home", "/root", "/tmp", os.path.expanduser("~")):
        show(f"entries of {path}", names(path))
    show("read /etc/shadow", attempt(lambda: read_a_byte("/etc/shadow")))
    for path in ("/usr", "/etc", "/tmp", os.path.expanduser("~")):
        show(f"make a file in {path}", attempt(lambda: make_and_remove(path)))
    show("devices", names("/dev", 20))


def network():
    print("Network")
    show("interfaces", " ".join(name for _, name in socket.if_nameindex()))
    # Connecting a datagram socket sends nothing: it asks the kernel for a route. The address is
    # one of those set aside for documentation.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        show("a route to the world", attempt(lambda: probe.connect(("192.0.2.1", 9))))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        show("listen on 127.0.0.1", attempt(lambda: (server.bind(("127.0.0.1", 0)),
                                                     server.listen())))


def processes():
    print("Processes")
    try:
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        show("visible", f"{len(pids)}: {' '.join(map(str, pids[:12]))}"
             + (" ..." if len(pids) > 12 else ""))
    except OSError as error:
        show("visible", f"no: {os.strerror(error.errno)}")
    show("my process id", os.getpid())
    show("host name", socket.gethostname())
    show("read the environment of process 1", attempt(lambda: read_a_byte("/proc/1/environ")))
    show("write a kernel setting",
         attempt(lambda: open_to_write("/proc/sys/kernel/core_pattern")))


def identity():
    print("Identity")
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = "no name"
    show("user, group", f"{os.getuid()} ({name}), {os.getgid()}")
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    mask = int(status["CapEff"], 16)
    held = [name for bit, name in enumerate(CAPABILITIES) if mask >> bit & 1]
    shown = " ".join(held) if len(held) < 8 else f"{len(held)} of {len(CAPABILITIES)}"
    show("capabilities", shown or "none")
    show("gain more by a setuid program", "no" if status.get("NoNewPrivs") == "1" else "yes")
    show("system call filter", {"0": "none", "2": "yes"}.get(status.get("Seccomp"), "unknown"))
    show("environment", " ".join(sorted(os.environ)))


def main():
    for part in (files, network, processes, identity):
        try:
            part()
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            show("not to be found out", os.strerror(error.errno))


if __name__ == "__main__":
    main()
