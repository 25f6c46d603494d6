#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// Names an open descriptor of the calling process by its number. Borrowed: start() reads from
/// it or mounts it and leaves it open in the caller; the sandboxed command never sees it.
using DescriptorNumber = int;

enum class Access { read_only, read_write };
enum class Devices { refused, allowed };
enum class IfMissing { fail, skip };

// The operations that build the sandbox's file tree, in the order in which they are to run.
// `destination` is a path inside the sandbox: leading slashes do not matter, symbolic links are
// followed as a process inside would see them and cannot lead out. Missing parent folders are
// made with mode 0755, or less where the operation's own mode gives group or others nothing.

/// The tree of mounts at `source` (a path of the caller's, relative to its working directory),
/// recursively, with nosuid always, nodev unless devices are allowed. See mount(2), MS_BIND.
struct Bind {
    std::string source;
    std::string destination;
    Access access = Access::read_only;
    Devices devices = Devices::refused;
    IfMissing if_missing = IfMissing::fail;
};

/// As Bind, of a file or folder that is open as `source`. Refused if the path that the
/// descriptor had no longer leads to the same file.
struct BindDescriptor {
    DescriptorNumber source = -1;
    std::string destination;
    Access access = Access::read_only;
};

/// Makes the one mount whose root is `destination` read-only; mounts below it stay as they are.
struct RemountReadOnly {
    std::string destination;
};

/// A new procfs where the sandbox has a pid namespace of its own, else the caller's /proc. What
/// would let uid 0 change the host's kernel settings is covered read-only for such callers.
struct Proc {
    std::string destination;
    /// Cover that for every caller, and what tells of the host (keys, interrupts, timers). A covered
    /// procfs keeps a sandbox in the sandbox from having one of its own: mount_namespaces(7).
    bool always_covered = false;
};

/// What is in a Proc's place where the kernel refuses a new procfs, as it does below covers of the one that is
/// there: in containers, and in sandboxes of root's. See mount_namespaces(7) and Sandbox::notes().
enum class ProcFallback {
    fail,
    /// The caller's /proc. The command sees the caller's processes, and can reach what belongs to those of the
    /// same user, their files among that: only where whatever is around the caller is a sandbox itself.
    bind,
    empty,  ///< Nothing: an empty folder. Many programs do without.
};

/// A new /dev: tmpfs with the usual harmless devices, a private devpts, shm and the usual links.
struct Dev {
    std::string destination;
};

struct Tmpfs {
    std::string destination;
    unsigned mode = 0755;
    std::uint64_t size = 0;  ///< Bytes; 0 leaves the kernel's default of half the memory.
};

struct Mqueue {
    std::string destination;
};

struct Directory {
    std::string destination;
    unsigned mode = 0755;
};

/// A file with what can be read from `source`, written in place.
struct File {
    DescriptorNumber source = -1;
    std::string destination;
    unsigned mode = 0666;
};

/// A file with `content`, written in place, where that may be done.
struct Text {
    std::string content;
    std::string destination;
    unsigned mode = 0644;
};

/// A private file with what can be read from `source`, mounted over `destination`.
struct Data {
    DescriptorNumber source = -1;
    std::string destination;
    Access access = Access::read_only;
    unsigned mode = 0600;
};

struct Symlink {
    std::string target;  ///< The link's text, stored as it is.
    std::string destination;
};

struct Chmod {
    unsigned mode = 0;
    std::string destination;
};

struct Hostname {
    std::string name;
};

/// An overlay of the folders `lower`, the first at the bottom. See the kernel's overlayfs
/// documentation; in a user namespace it needs Linux 5.11.
struct Overlay {
    enum class Upper { none, temporary, kept };
    std::vector<std::string> lower;
    Upper upper_kind = Upper::none;
    std::string upper;  ///< With Upper::kept: what is written inside lands here...
    std::string work;  ///< ...and this is an empty folder on the same file system. No two sandboxes
                       ///< can have one upper folder at once.
    /// With Upper::kept: where its file system cannot be an upper layer, what is written is lost at the
    /// end as with Upper::temporary, and Sandbox::notes() says so.
    bool else_temporary = false;
    /// Names right below the uppermost layer: where these are folders that belong to an id that the sandbox
    /// does not have, they belong to its own inside, so that something can be made in them.
    std::vector<std::string> own_folders;
    std::string destination;
};

using Operation = std::variant<Bind, BindDescriptor, RemountReadOnly, Proc, Dev, Tmpfs, Mqueue,
                               Directory, File, Text, Data, Symlink, Chmod, Hostname, Overlay>;

/// Whether a namespace is the sandbox's own.
enum class Own { no, yes, if_possible };

struct Namespaces {
    Own user = Own::yes;
    Own pid = Own::yes;
    Own ipc = Own::yes;
    Own net = Own::yes;  ///< A new network namespace has its loopback interface up.
    Own uts = Own::yes;
    Own cgroup = Own::if_possible;
    // The mount namespace is always the sandbox's own.

    std::optional<DescriptorNumber> join_user;       ///< Join this one before anything else.
    std::optional<DescriptorNumber> join_user_last;  ///< Join this one when the tree is built.
    std::optional<DescriptorNumber> join_pid;
};

/// Edits the capabilities that the command ends up with, in order. An ordinary user starts with
/// none, root with its effective set. See capabilities(7).
struct CapabilityEdit {
    enum class Kind { add, drop, add_all, drop_all };
    Kind kind = Kind::drop_all;
    unsigned number = 0;
};

/// One variable edit, in order, on what the caller's environment is.
struct EnvironmentEdit {
    enum class Kind { set, unset, clear };
    Kind kind = Kind::clear;
    std::string name;
    std::string value;
};

/// The size of a terminal in characters; 0 leaves the kernel's default. See ioctl_tty(2).
struct WindowSize {
    unsigned short rows = 0;
    unsigned short columns = 0;
};

/// What the command may use up before the sandbox is ended. Zero means no limit.
struct Limits {
    /// Wall clock, from the call of Sandbox::start(): the command gets SIGTERM...
    std::chrono::milliseconds time{0};
    /// ...and everything in the sandbox SIGKILL when this has passed too.
    std::chrono::milliseconds grace{5000};
    /// User and system time of everything in the sandbox; processes whose parents ignore SIGCHLD
    /// count while they live. Ends it in the same way.
    std::chrono::milliseconds cpu{0};

    bool any() const noexcept { return time.count() > 0 || cpu.count() > 0; }
};

/// A range of TCP and UDP ports, both ends included.
struct Ports {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
};

/// A port or unix socket of the host that leads to a port of the sandbox, or the other way round. What
/// is of the host listens only while somebody does inside (seen within 50 ms), so that a connection to
/// nobody is refused; who connects is seen inside as the sandbox's own address. A TCP service that is
/// there by IPv6 alone is reached too.
struct PublishedPort {
    enum class Kind {
        tcp,
        udp,
        /// The unix socket `path` of the host (unix(7), a stream), which is made, with the caller's
        /// umask, and removed again at the end; a TCP port inside.
        unix_socket,
        /// The other way: who connects to the TCP port `inside` of the sandbox's 127.0.0.1 is connected
        /// to the unix socket `path` of the host, by the process that supervises the sandbox and as
        /// long as that is there. A connection that cannot be made is reset.
        host_socket,
    };
    Kind kind = Kind::tcp;
    std::string path;     ///< Of the unix socket; a relative one is below the working directory.
    std::string address;  ///< Of the host, a number; empty: 127.0.0.1 and ::1.
    std::uint16_t outside = 0;  ///< 0 lets the kernel choose: see Sandbox::ports().
    std::uint16_t inside = 0;
    bool to_loopback = false;  ///< To the sandbox's 127.0.0.1, instead of its own address.
};

/// A port's place on the host, for messages: "localhost:80/tcp", "unix:/run/x".
std::string place_of(const PublishedPort& port);

/// Access to the outside through a TCP/IP stack in user space (libslirp), which needs no privilege: the
/// command sees an interface eth0 with 10.0.2.100 and fd00::100, a gateway (10.0.2.2, fd00::2) and a
/// name server (10.0.2.3, fd00::3) that asks the host's. The host itself, by whatever address, is out
/// of reach but for `host_loopback`. A helper process serves it, confined, until the sandbox ends.
struct UserNetwork {
    enum class Link {
        automatic,
        tap,   ///< Through /dev/net/tun, which mostly root alone may open.
        veth,  ///< Through a veth pair and a packet socket, in namespaces of the sandbox's own.
    };
    Link link = Link::automatic;
    unsigned mtu = 16384;  ///< Bytes, 1500 to 65520.
    bool ipv6 = true;
    enum class Tcp {
        slirp,
        /// The sandbox's own kernel does what TCP takes, and the helper passes on bytes: several times
        /// as fast. A connection that the helper then may not or cannot make is reset, mostly
        /// after connect(2) has succeeded inside. Needs nf_tables with address translation, Linux 5.12.
        relay,
    };
    Tcp tcp = Tcp::slirp;
    bool outbound = true;  ///< The command may begin connections to the outside.
    /// /etc/resolv.conf and /etc/hosts of the sandbox are covered by files that fit, unless one of the
    /// operations is about them. Where they are missing they are made, but never on the host.
    bool names = true;
    /// Ports of the host's 127.0.0.1 and ::1 that the gateway's addresses lead to.
    std::vector<Ports> host_loopback;
    std::vector<PublishedPort> ports;  ///< Work without outbound access too.
    /// The sandbox ends when the helper does; else it goes on without a network.
    bool end_with_helper = true;
};

/// A network namespace that exists already, which the sandbox is to share with whoever is in it: several
/// sandboxes have one loopback then, and one outbound access. The command has no capability over it but
/// those that it has over the caller's own. It lives as long as somebody is in it; the helper of a
/// user-mode network ends with the sandbox that it was started for, and outbound access with it.
///
/// The user namespace that owns it is entered too where the caller lacks CAP_SYS_ADMIN: then it has to
/// be of the caller's making, and the sandbox's own is made below it. Processes that are in it have
/// every capability over the sandbox then; a sandbox with such processes cannot be joined by its name.
struct JoinNetwork {
    enum class By { path, descriptor, sandbox };
    By by = By::path;
    /// A file such as /run/netns/NAME or /proc/PID/ns/net, or the name, the id or the beginning of the id
    /// of a sandbox with Spec::name.
    std::string name;
    DescriptorNumber descriptor = -1;
};

/// A link to the host by a veth pair (veth(4)), for a caller with CAP_NET_ADMIN in the user namespace that
/// owns the host's network namespace: root. The command sees an interface eth0 with an address that no
/// other sandbox of the host has, out of 10.207.0.0/16 (172.30.0.0/16 or 192.168.0.0/16 where the host's
/// routes use that) and fd6e:7362:6f78::/48, and what it sends to the outside goes out under the host's
/// own addresses. The host itself is out of reach, as are other sandboxes, but for `host_loopback` and a
/// name server at the gateway's address, which asks the host's. The packet rules are tables of
/// nf_tables that a helper process owns; they vanish with it, and the sandbox ends when it does. Needs
/// Linux 5.12 and a host that forwards packets (sysctl net.ipv4.ip_forward, which nsbox leaves as it is);
/// there is IPv6 where net.ipv6.conf.all.forwarding is on.
struct VethNetwork {
    unsigned mtu = 1500;  ///< Bytes, 1280 to 65520.
    bool ipv6 = true;
    bool outbound = true;  ///< The command may begin connections to the outside.
    bool names = true;     ///< As in UserNetwork.
    /// Ports of the host's 127.0.0.1 and ::1 that the gateway's addresses lead to. Those of UDP are
    /// served where there are no more than 64; to one where nobody listens a connection of TCP is made
    /// and reset.
    std::vector<Ports> host_loopback;
    std::vector<PublishedPort> ports;  ///< Work without outbound access too.
    /// The host's end becomes a port of this bridge, which exists already. The sandbox then has an
    /// address of the bridge's own network, and IPv4 alone; whoever else is on the bridge is in reach
    /// both ways, and the host translates no addresses for it.
    std::string bridge;
    /// With `bridge`: the sandbox's address, "A.B.C.D/LENGTH"; empty: one is chosen...
    std::string address;
    /// ...and, with that, the router for all else; empty: the bridge's address.
    std::string gateway;
};

/// `count` ids from `inside` on, as the sandbox numbers them, which are the ids from `outside` on of the
/// caller's user namespace.
struct IdRange {
    std::uint32_t inside = 0;
    std::uint32_t outside = 0;
    std::uint32_t count = 1;
};

/// How much a sandbox may read and write a disk, by the bytes and by the operations a second; 0: as it likes.
struct DiskLimit {
    std::string path;  ///< Of the disk or of a part of it, or of any file on it.
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    std::uint64_t read_operations = 0;
    std::uint64_t write_operations = 0;
};

/// What everything in the sandbox may have of the machine together, by control groups of its own (cgroups(7)):
/// of version 2 below a group that lends its controllers and that the caller may make groups in; or in the
/// hierarchies of version 1. They are removed at the end, also where this process is killed. What cannot be
/// kept to makes the start fail, unless `best_effort`. With any of them the sandbox ends as with Limits.
struct GroupLimits {
    /// Bytes, with the files in its tmpfs and what the kernel caches for it; nothing of it is swapped. Where
    /// the kernel finds no more to take back it kills: everything with version 2, else what is largest.
    std::optional<std::uint64_t> memory;
    /// Processes and threads of commands. Where there is no such group the limit is RLIMIT_NPROC, if the
    /// sandbox has a user namespace of its own and a single user who is not root outside: Linux 5.14.
    std::optional<std::uint64_t> processes;
    std::optional<double> processors;  ///< How much processor time a second; 0.01 at least.
    std::string processor_set;         ///< Which processors, as cpuset(7) writes a list: "0-3,6".
    std::vector<DiskLimit> disks;
    bool best_effort = false;  ///< What cannot be kept to is a note: see Sandbox::notes().

    bool any() const noexcept
    {
        return memory || processes || processors || !processor_set.empty() || !disks.empty();
    }
};

/// A limit of getrlimit(2), by its number there (RLIMIT_NOFILE).
struct ResourceLimit {
    unsigned resource = 0;
    std::uint64_t soft = 0;  ///< All ones: none.
    std::uint64_t hard = 0;
};

/// What Landlock (landlock(7)) adds: rules that the kernel keeps to beside mounts and namespaces, and that no
/// process in the sandbox can lift. See doc/landlock.md.
enum class Landlock {
    off,
    /// A second wall behind the mounts: files can be opened as the mounts say, and nothing outside of the
    /// sandbox, by whatever descriptor. Signals and abstract unix sockets (unix(7)) reach processes of the
    /// sandbox alone; further commands in a sandbox with a name count as another one where no namespace
    /// keeps these apart. As far as the kernel goes: ABI 2 (Linux 5.19) is the least; ABI 3 (6.2) has
    /// truncate(2), 5 (6.10) ioctl(2) of devices, 6 (6.12) signals and sockets. Nothing without that,
    /// and where the command may mount: with CAP_SYS_ADMIN, or Spec::mounts_inside.
    automatic,
    /// Landlock in place of namespaces and mounts, for hosts that forbid these: the command sees the host's
    /// own root. What the operations name, which are Binds of paths to themselves, it can read or
    /// write; with Namespaces::net it has no sockets but pairs, else those for the internet. No other
    /// namespace, no id, no capability can be asked for. Sandbox::notes() tell what is not kept in. ABI 1
    /// (Linux 5.13) is the least.
    only,
};

/// What a filter of system calls is to let through: see nsbox/seccomp.hpp.
struct FilterWish {
    /// "default" (what untrusted programs of all kinds need), "strict" (for programs that compute), or
    /// a file: in nsbox's text format (doc/seccomp.md), or a JSON profile as the OCI runtime
    /// specification and Docker have it.
    std::string policy = "default";
    bool user_namespaces = false;  ///< Circumstance "userns": the command may make user namespaces.
    bool tracing = false;          ///< Circumstance "tracing": it may trace its own processes.
    std::vector<std::string> capabilities;  ///< What it has: "CAP_NET_RAW"; a circumstance each.
};

/// A record of what the command was refused, and of the option that would allow it: JSON, an object a line
/// (doc/denials.md). A thread of this process serves it, and the command waits for that thread at every
/// call that may be one to record: for finding out, not for every day. Each call that it would not answer any
/// more fails, so the sandbox ends with its command and with this process. Fails where a process around this
/// one has such a listener already (seccomp_unotify(2)).
struct DenialLog {
    DescriptorNumber descriptor = 2;  ///< Borrowed until the sandbox has ended.
    /// Whose options the records name.
    enum class Options { run, bwrap };
    Options options = Options::run;
    bool has_root = false;  ///< There is an Everyday::root; complete() says so.
};

/// What a sandbox is to be. A plain value: copying it copies the wish, nothing else.
struct Spec {
    Namespaces namespaces;
    std::vector<Operation> operations;
    /// Needs a network namespace of the sandbox's own.
    std::optional<UserNetwork> user_network;
    /// Needs one too; not together with the other.
    std::optional<VethNetwork> veth_network;
    std::optional<JoinNetwork> join_network;  ///< Then Namespaces::net has no meaning.

    std::vector<std::string> command;      ///< What to execute, found through the sandbox's PATH.
    std::optional<std::string> argv0;      ///< argv[0] for the command, if not command[0].
    std::optional<std::string> directory;  ///< Working directory inside, resolved inside.
    std::vector<EnvironmentEdit> environment;
    std::optional<std::uint32_t> uid;  ///< As seen inside; default the caller's.
    std::optional<std::uint32_t> gid;
    /// The ids that exist in the sandbox (user_namespaces(7)), `uid` and `gid` among them; empty: these
    /// alone, and they are the caller's own. Needs a user namespace of the sandbox's own. A caller who
    /// may not map them itself does it by newuidmap(1) and newgidmap(1), which let through what
    /// /etc/subuid and /etc/subgid grant: see nsbox/ids.hpp. The command is in none of the caller's
    /// supplementary groups then, unless the groups are the caller's own one alone.
    std::vector<IdRange> uid_map;
    std::vector<IdRange> gid_map;
    std::vector<CapabilityEdit> capabilities;
    /// Set in this order. Raising a hard limit takes CAP_SYS_RESOURCE of the caller.
    std::vector<ResourceLimit> resource_limits;
    GroupLimits group_limits;
    /// How nice the command is to others, -20 to 19: see setpriority(2). Default as the caller.
    std::optional<int> nice;
    /// How many bytes are in each tmpfs of the sandbox, overlays' temporary layers among them, that has no
    /// size of its own; so many files as bytes / 2048 + 1024. Default: the kernel's, half of the memory.
    std::optional<std::uint64_t> tmpfs_size;
    std::optional<unsigned> umask;  ///< Of the command; default the caller's.
    /// A new, empty session keyring (session-keyring(7)) in place of the caller's. One key more of the
    /// caller's quota (keyrings(7)). Nothing where the kernel has no keys, or a filter refuses them.
    bool own_keyring = false;

    bool new_session = false;       ///< setsid(2) before the command starts.
    bool command_is_pid_1 = false;  ///< No init: the command is pid 1 itself.
    /// Everything ends when the process that called start() ends. With command_is_pid_1 the end of
    /// the thread that called it counts as that: there is no init that could tell the two apart.
    bool die_with_parent = false;
    bool end_with_command = false;  ///< Everything ends when the command ends.
    bool signals_command = false;   ///< Sandbox::signal() works, with an init too.
    Limits limits;
    /// Others of the same user can find the sandbox by this name, or by its id where this is empty:
    /// see nsbox/remote.hpp. A socket in the user's runtime folder exists meanwhile.
    std::optional<std::string> name;
    /// A pseudo-terminal of the sandbox's own is the command's standard input, output and error
    /// and its controlling terminal; see Sandbox::terminal().
    std::optional<WindowSize> terminal;
    bool disable_user_namespaces = false;  ///< The command can make no further user namespace.
    bool assert_user_namespaces_disabled = false;

    std::vector<std::string> lock_files;  ///< Paths inside; a shared record lock is held on each.
    std::vector<DescriptorNumber> sync_descriptors;  ///< Stay open while the sandbox lives.
    std::vector<std::vector<std::uint8_t>> seccomp_programs;  ///< Classic BPF, loaded in order.
    /// With `denials`: what add_filter() made some of these for, by their numbers; an empty policy: it did not.
    std::vector<FilterWish> filter_wishes;
    std::optional<DescriptorNumber> seccomp_descriptor;  ///< One program, read late.
    std::optional<DenialLog> denials;

    std::optional<DescriptorNumber> block_descriptor;     ///< Read before the command is executed.
    std::optional<DescriptorNumber> user_map_descriptor;  ///< Someone else writes the id maps and
                                                          ///< then one byte here.
    std::optional<DescriptorNumber> info_descriptor;      ///< Gets one JSON object and is closed.
    std::optional<DescriptorNumber> status_descriptor;    ///< Gets a JSON object a line.
    std::optional<DescriptorNumber> events_descriptor;    ///< The same, with more: doc/events.md.
    std::vector<DescriptorNumber> consumed;  ///< Further descriptors that the command must not see.
    /// If set, the command sees these of the caller's, besides 0 to 2, and no others.
    std::optional<std::vector<DescriptorNumber>> kept;

    std::optional<std::string> exec_label;  ///< SELinux labels, see selinux(8).
    std::optional<std::string> file_label;

    ProcFallback proc_fallback = ProcFallback::fail;

    Landlock landlock = Landlock::off;
    /// The command makes mounts of its own, as sandboxes in the sandbox do, which the kernel refuses under
    /// Landlock.
    bool mounts_inside = false;
    /// If set, TCP connections can be made to these ports alone, by Landlock: ABI 4 (Linux 6.7). With either
    /// there is no MPTCP, SMC and TCP Fast Open, and no io_uring(7), which lead around it.
    std::optional<std::vector<Ports>> tcp_connect;
    /// The same for bind(2); the port 0 is one that the kernel chooses.
    std::optional<std::vector<Ports>> tcp_bind;

    bool tolerate_failed_submounts = false;  ///< Go on where a mount below a bind cannot be
                                             ///< restricted (classic mount calls only).
};

/// A capability's number by its name ("CAP_NET_RAW", "net_raw", any case); nothing if unknown.
std::optional<unsigned> capability_by_name(const std::string& name);

/// The number of a resource of getrlimit(2) by its name ("nofile", "RLIMIT_NOFILE", any case); nothing
/// if unknown.
std::optional<unsigned> resource_by_name(const std::string& name);

/// The names of all resources, as "nofile", in the order of their numbers.
std::vector<std::string> resource_names();

/// The names of the capabilities that `edits` leave, of `all` or of none.
std::vector<std::string> capabilities_after(const std::vector<CapabilityEdit>& edits, bool all);

/// Every capability name this library knows, in the order of their numbers.
std::vector<std::string> capability_names();

}  // namespace nsbox

#pragma GCC visibility pop
