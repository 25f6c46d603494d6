#!/usr/bin/python3
"""What a user-mode network costs, against slirp4netns and pasta in the same run.

    tests/bench/net.py --nsbox NSBOX [--rounds N] [--only throughput|relay|connect|start|many]
        [--as USER]

As root: slirp4netns has a tap then, while nsbox runs as an ordinary user without one. Throughput is
iperf3's, of one connection to a server on the host's loopback. "relay" is the throughput with
tcp=relay, against slirp4netns at the MTU that is best for it and pasta's spliced path. The start is that of a sandbox until
its first byte from such a server, against a chain of unshare, slirp4netns, nsenter and bwrap.
"many" is the start of 200 sandboxes beside each other, the last ten against the first.
Needs iperf3, slirp4netns and bubblewrap; without pasta
(Debian package passt) its rows are missing. Nothing leaves the machine. Prints medians.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PORT = 5999
SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
MTUS = (1500, 16384, 65520)

CLIENT = r"""
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
/* connect ADDRESS PORT COUNT: so often one byte each way. */
int main(int argc, char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    for (int left = atoi(argv[3]); left > 0; --left) {
        char byte = 'x';
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&to, sizeof to) || write(s, &byte, 1) != 1 || read(s, &byte, 1) != 1)
            return 1;
        close(s);
    }
    return argc != 4;
}
"""

CHAIN = r"""
unshare -n sleep 30 & holder=$!
here=$(readlink /proc/self/ns/net)
while [ "$(readlink /proc/$holder/ns/net)" = "$here" ]; do :; done
mkfifo "$1"
slirp4netns -c --mtu=65520 -r 3 "$holder" tap0 3<>"$1" >/dev/null 2>&1 & helper=$!
head -c 1 "$1" >/dev/null
rm "$1"
shift
nsenter -n -t "$holder" bwrap --unshare-all --share-net --ro-bind / / --proc /proc --dev /dev \
    --tmpfs /tmp "$@"
kill "$helper" "$holder"
wait
"""


class Slirp:
    """A network namespace that slirp4netns serves."""

    def __init__(self, mtu):
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == here:
            time.sleep(0.01)
        read, write = os.pipe()
        self.helper = subprocess.Popen(
            ["slirp4netns", "-c", f"--mtu={mtu}", "-r", str(write), str(self.holder.pid), "tap0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(write,))
        os.close(write)
        os.read(read, 1)
        os.close(read)
        self.prefix = ["nsenter", "-n", "-t", str(self.holder.pid)]

    def end(self):
        for process in (self.helper, self.holder):
            process.terminate()
            process.wait()


# An ordinary user's pasta, with a /dev/net/tun that it may open, in a mount namespace of its own.
PASTA = """
[ -e "$1/tun" ] || mknod "$1/tun" c 10 200; chmod 666 "$1/tun"
mount --bind "$1/tun" /dev/net/tun
user=$2; shift 2
exec setpriv --reuid=$user --regid=$user --clear-groups \\
    pasta -q --config-net -T $PORT -t none -u none -U none -- "$@"
"""


def pasta(options, folder):
    """What runs a command in a network namespace of pasta's; None where there is no pasta."""
    if not shutil.which("pasta"):
        return None
    return ["unshare", "-m", "sh", "-ec", PASTA.replace("$PORT", str(PORT)), "sh", folder,
            options.user]


def iperf(prefix, reverse, address="10.0.2.2"):
    server = subprocess.Popen(["iperf3", "-s", "-B", "127.0.0.1", "-p", str(PORT), "-1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listens = f"0100007F:{PORT:04X} 00000000:0000 0A"
    while listens not in open("/proc/net/tcp", encoding="ascii").read():
        time.sleep(0.01)
    words = ["iperf3", "-c", address, "-p", str(PORT), "-t", "2", "-J"]
    done = subprocess.run([*prefix, *words, *(["-R"] if reverse else [])], capture_output=True,
                          text=True, check=False)
    server.kill()
    server.wait()
    # pasta says things of its own before.
    report = json.loads(done.stdout[done.stdout.index("{\n"):])
    return report["end"]["sum_received"]["bits_per_second"] / 1e9


def throughput(options):
    figures = {}
    for _ in range(options.rounds):
        for mtu in MTUS:
            for reverse in (False, True):
                figures.setdefault(("nsbox", mtu, reverse), []).append(
                    iperf(sandbox(options, f"user,mtu={mtu}"), reverse))
            peer = Slirp(mtu)
            for reverse in (False, True):
                figures.setdefault(("slirp4netns", mtu, reverse), []).append(
                    iperf(peer.prefix, reverse))
            peer.end()
    for (who, mtu, reverse), values in sorted(figures.items()):
        print(f"{who:12} MTU {mtu:5} {'in ' if reverse else 'out'}"
              f" {statistics.median(values):6.2f} Gbit/s")


def relay(options, folder):
    """One connection with tcp=relay; the peers take turns with it."""
    figures = {}
    best = Slirp(16384)
    lines = {"nsbox, tcp=relay": (sandbox(options, "user,tcp=relay"), "10.0.2.2"),
             "slirp4netns, MTU 16384": (best.prefix, "10.0.2.2"),
             "the host's loopback": ([], "127.0.0.1")}
    if words := pasta(options, folder):
        lines["pasta, spliced"] = (words, "127.0.0.1")  # What -T leads to the host's.
    for turn in range(options.rounds):
        # Who comes first changes, for what else the machine does.
        names = list(lines)[turn % 2::] + list(lines)[:turn % 2]
        for name in names:
            for reverse in (False, True):
                figures.setdefault((name, reverse), []).append(
                    iperf(lines[name][0], reverse, lines[name][1]))
    best.end()
    own = {reverse: statistics.median(figures["nsbox, tcp=relay", reverse])
           for reverse in (False, True)}
    for (name, reverse), values in figures.items():
        middle = statistics.median(values)
        print(f"{name:22} {'in ' if reverse else 'out'} {middle:6.2f} Gbit/s, the relay makes "
              f"{own[reverse] / middle:.2f} of it")


def sandbox(options, net):
    user = ["setpriv", f"--reuid={options.user}", f"--regid={options.user}", "--clear-groups"]
    return [*user, options.nsbox, "--net", net, "--host-loopback", str(PORT), *SYSTEM]


def echo_server():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(64)
    pid = os.fork()
    if pid == 0:
        while True:
            client, _ = listener.accept()
            client.sendall(client.recv(1))
            client.close()
    listener.close()
    return pid


def seconds_of(words):
    begin = time.monotonic()
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def connect(options, client):
    """The time of many, without that of a few."""
    few, many = 10, 1010
    peer = Slirp(1500)
    mine, relayed, theirs = [], [], []
    for _ in range(options.rounds):
        for prefix, times in ((sandbox(options, "user"), mine),
                              (sandbox(options, "user,tcp=relay"), relayed),
                              (peer.prefix, theirs)):
            took = [seconds_of([*prefix, client, "10.0.2.2", str(PORT), str(n)])
                    for n in (few, many)]
            times.append((took[1] - took[0]) / (many - few) * 1e6)
    peer.end()
    peers = statistics.median(theirs)
    for name, times in (("nsbox", mine), ("nsbox, tcp=relay", relayed)):
        print(f"connect, a byte each way, close: {name} {statistics.median(times):.0f} us, "
              f"slirp4netns {peers:.0f} us, ratio {statistics.median(times) / peers:.2f}")


def start(options, client, folder):
    rest = [client, "10.0.2.2", str(PORT), "1"]
    lines = {"as a user, veth": [*sandbox(options, "user"), *rest],
             "as a user, veth, tcp=relay": [*sandbox(options, "user,tcp=relay"), *rest],
             "as root, tap": [options.nsbox, "--net", "user", "--host-loopback", str(PORT),
                              *SYSTEM, *rest],
             "the chain, as root": ["sh", "-c", CHAIN, "sh", f"{folder}/fifo", *rest]}
    figures = {name: [] for name in lines}
    for _ in range(5 * options.rounds):
        for name, words in lines.items():
            figures[name].append(seconds_of(words) * 1e3)
    for name, values in figures.items():
        print(f"start to end of one exchange, {name}: {statistics.median(values):.1f} ms")


def helpers():
    """How many network helpers there are on this machine."""
    names = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names.count("nsbox-net")


def many(options):
    """Each is started, and ended, while the others are there."""
    count, ten = 200, 10
    before = helpers()
    running, starts, ends = [], [], []
    for _ in range(count):
        begin = time.monotonic()
        proc = subprocess.Popen([*sandbox(options, "user"), "sh", "-c", "echo; read x"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        proc.stdout.readline()
        starts.append((time.monotonic() - begin) * 1e3)
        running.append(proc)
    for proc in running:
        begin = time.monotonic()
        proc.stdin.close()
        proc.wait()
        ends.append((time.monotonic() - begin) * 1e3)
    for name, times in (("start", starts), ("end", ends)):
        first, last = statistics.median(times[:ten]), statistics.median(times[-ten:])
        print(f"{name} of {count} sandboxes: the first {first:.1f} ms, the last {last:.1f} ms, "
              f"{last / first:.2f} of it, the slowest {max(times):.1f} ms")
    deadline = time.monotonic() + 10
    while helpers() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    print(f"helpers left: {helpers() - before}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nsbox", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as", dest="user", default="nsbox-test")
    parser.add_argument("--only", choices=["throughput", "relay", "connect", "start", "many"])
    options = parser.parse_args()
    if os.getuid() != 0:
        sys.exit("tests/bench/net.py: run this as root: the peer needs a tap")
    if options.only in (None, "throughput"):
        throughput(options)
    if options.only in (None, "many"):
        many(options)
    with tempfile.TemporaryDirectory(prefix="nsbox-bench-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        if options.only in (None, "relay"):
            relay(options, folder)
        client = f"{folder}/connect"
        subprocess.run(["cc", "-O1", "-static", "-x", "c", "-o", client, "-"], input=CLIENT,
                       text=True, check=True)
        server = echo_server()
        try:
            if options.only in (None, "connect"):
                connect(options, client)
            if options.only in (None, "start"):
                start(options, client, folder)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)


if __name__ == "__main__":
    main()
