#include "bwrap_options.hpp"

#include <algorithm>
#include <cstring>

namespace nsbox::tool {

namespace {

constexpr const char* an = "takes an argument";
constexpr const char* one = "takes one argument";
constexpr const char* two = "takes two arguments";
constexpr const char* three = "takes three arguments";

// clang-format off
constexpr OptionInfo table[] = {
    {Opt::help, "--help", "", 0, "Print this text and exit", ""},
    {Opt::version, "--version", "", 0, "Print the version and exit", ""},
    {Opt::args, "--args", "FD", 1, "Read options from FD, each word ended by NUL", an},
    {Opt::argv0, "--argv0", "VALUE", 1, "Give the command VALUE as its argv[0]", one},
    {Opt::level_prefix, "--level-prefix", "", 0, "Begin every message with its severity, as <3>", ""},
    {Opt::unshare_all, "--unshare-all", "", 0, "Use new namespaces of every kind that there is", ""},
    {Opt::share_net, "--share-net", "", 0, "Keep the caller's network after --unshare-all", ""},
    {Opt::unshare_user, "--unshare-user", "", 0, "Use a new user namespace (implied for ordinary users)", ""},
    {Opt::unshare_user_try, "--unshare-user-try", "", 0, "Use a new user namespace if that is possible", ""},
    {Opt::unshare_ipc, "--unshare-ipc", "", 0, "Use a new ipc namespace", ""},
    {Opt::unshare_pid, "--unshare-pid", "", 0, "Use a new pid namespace", ""},
    {Opt::unshare_net, "--unshare-net", "", 0, "Use a new network namespace with loopback only", ""},
    {Opt::unshare_uts, "--unshare-uts", "", 0, "Use a new uts namespace", ""},
    {Opt::unshare_cgroup, "--unshare-cgroup", "", 0, "Use a new cgroup namespace", ""},
    {Opt::unshare_cgroup_try, "--unshare-cgroup-try", "", 0, "Use a new cgroup namespace if that is possible", ""},
    {Opt::userns, "--userns", "FD", 1, "Join the user namespace FD", an},
    {Opt::userns2, "--userns2", "FD", 1, "Join the user namespace FD when the file tree stands", an},
    {Opt::disable_userns, "--disable-userns", "", 0, "Let the command make no further user namespaces", ""},
    {Opt::assert_userns_disabled, "--assert-userns-disabled", "", 0, "Fail if the command could make user namespaces", ""},
    {Opt::pidns, "--pidns", "FD", 1, "Run in the pid namespace FD, or in a new one below it", an},
    {Opt::uid, "--uid", "UID", 1, "The user id in the sandbox (needs a user namespace)", an},
    {Opt::gid, "--gid", "GID", 1, "The group id in the sandbox (needs a user namespace)", an},
    {Opt::hostname, "--hostname", "NAME", 1, "The host name in the sandbox (needs --unshare-uts)", an},
    {Opt::chdir, "--chdir", "DIR", 1, "Start the command in DIR", one},
    {Opt::clearenv, "--clearenv", "", 0, "Empty the environment", ""},
    {Opt::setenv, "--setenv", "VAR VALUE", 2, "Set an environment variable", two},
    {Opt::unsetenv, "--unsetenv", "VAR", 1, "Remove an environment variable", an},
    {Opt::lock_file, "--lock-file", "DEST", 1, "Hold a read lock on DEST while the sandbox lives", an},
    {Opt::sync_fd, "--sync-fd", "FD", 1, "Keep FD open while the sandbox lives", an},
    {Opt::bind, "--bind", "SRC DEST", 2, "Show the host's SRC as DEST", two},
    {Opt::bind_try, "--bind-try", "SRC DEST", 2, "As --bind, but pass over a missing SRC", two},
    {Opt::dev_bind, "--dev-bind", "SRC DEST", 2, "As --bind, with device files usable", two},
    {Opt::dev_bind_try, "--dev-bind-try", "SRC DEST", 2, "As --dev-bind, but pass over a missing SRC", two},
    {Opt::ro_bind, "--ro-bind", "SRC DEST", 2, "Show the host's SRC as DEST, read-only", two},
    {Opt::ro_bind_try, "--ro-bind-try", "SRC DEST", 2, "As --ro-bind, but pass over a missing SRC", two},
    {Opt::bind_fd, "--bind-fd", "FD DEST", 2, "Show the open file or folder FD as DEST", two},
    {Opt::ro_bind_fd, "--ro-bind-fd", "FD DEST", 2, "As --bind-fd, read-only", two},
    {Opt::remount_ro, "--remount-ro", "DEST", 1, "Make the mount at DEST read-only, not those below it", one},
    {Opt::overlay_src, "--overlay-src", "SRC", 1, "A layer of the overlay that follows, lowest first", an},
    {Opt::overlay, "--overlay", "RWSRC WORKDIR DEST", 3, "An overlay at DEST that writes to RWSRC;\nWORKDIR is an empty folder beside it", three},
    {Opt::tmp_overlay, "--tmp-overlay", "DEST", 1, "An overlay at DEST whose changes are thrown away", an},
    {Opt::ro_overlay, "--ro-overlay", "DEST", 1, "A read-only overlay at DEST", an},
    {Opt::exec_label, "--exec-label", "LABEL", 1, "The SELinux label of the command", an},
    {Opt::file_label, "--file-label", "LABEL", 1, "The SELinux label of files that are made", an},
    {Opt::proc, "--proc", "DEST", 1, "A procfs at DEST", an},
    {Opt::dev, "--dev", "DEST", 1, "A small /dev at DEST", an},
    {Opt::tmpfs, "--tmpfs", "DEST", 1, "A tmpfs at DEST", an},
    {Opt::mqueue, "--mqueue", "DEST", 1, "A file system of message queues at DEST", an},
    {Opt::dir, "--dir", "DEST", 1, "Make a folder", an},
    {Opt::file, "--file", "FD DEST", 2, "Make a file with what FD holds", two},
    {Opt::bind_data, "--bind-data", "FD DEST", 2, "Show what FD holds as the file DEST", two},
    {Opt::ro_bind_data, "--ro-bind-data", "FD DEST", 2, "As --bind-data, read-only", two},
    {Opt::symlink, "--symlink", "TARGET DEST", 2, "Make a symbolic link with the text TARGET", two},
    {Opt::seccomp, "--seccomp", "FD", 1, "Load the classic BPF program in FD as a seccomp filter", an},
    {Opt::add_seccomp_fd, "--add-seccomp-fd", "FD", 1, "As --seccomp, and more than once", an},
    {Opt::seccomp_policy, "--seccomp-policy", "default|strict|none|FILE", 1, "Let through the system calls of this policy, a text or\nan OCI profile; more than once: what all let through", an},
    {Opt::allow_userns, "--allow-userns", "", 0, "Have the policy let user namespaces through", ""},
    {Opt::allow_ptrace, "--allow-ptrace", "", 0, "Have the policy let debuggers through", ""},
    {Opt::rlimit, "--rlimit", "NAME=SOFT[:HARD]", 1, "Set a resource limit: nofile=1024, as=2G, core=unlimited", an},
    {Opt::memory, "--memory", "BYTES", 1, "The memory of everything in the sandbox: 512M, 2G", an},
    {Opt::pids, "--pids", "N", 1, "How many processes and threads there may be at once", an},
    {Opt::cpus, "--cpus", "N", 1, "How many processors' time may be used: 1.5, 0.2", an},
    {Opt::cpuset, "--cpuset", "LIST", 1, "Which processors may be used: 0-3,6", an},
    {Opt::io, "--io", "PATH:LIMIT[,LIMIT...]", 1, "How the disk that PATH is on may be used, a second: rbps=10M\nand wbps= (bytes), riops= and wiops= (operations)", an},
    {Opt::limits, "--limits", "strict|best-effort", 1, "What to do about limits that cannot be kept to:\nfail, or go on and say so", an},
    {Opt::nice, "--nice", "N", 1, "How nice the command is to others, -20 to 19", an},
    {Opt::tmpfs_size, "--tmpfs-size", "BYTES", 1, "The size of each tmpfs that has none of its own", an},
    {Opt::proc_fallback, "--proc-fallback", "fail|empty|bind", 1, "Where the kernel refuses a new procfs: fail, leave\n/proc empty, or show the caller's", an},
    {Opt::landlock, "--landlock", "auto|off|only", 1, "Have Landlock let through what the mounts do (auto), or use\nit in place of all namespaces and mounts (only)", an},
    {Opt::tcp_connect, "--tcp-connect", "none|PORT[,PORT|A-B...]", 1, "Let TCP connect to these ports alone", an},
    {Opt::tcp_bind, "--tcp-bind", "none|PORT[,PORT|A-B...]", 1, "Let TCP bind these ports alone; 0: one that is free", an},
    {Opt::block_fd, "--block-fd", "FD", 1, "Wait for a byte from FD before the command starts", an},
    {Opt::userns_block_fd, "--userns-block-fd", "FD", 1, "Wait for a byte from FD, whose writer maps the ids", an},
    {Opt::info_fd, "--info-fd", "FD", 1, "Write what the sandbox is to FD, as JSON", an},
    {Opt::json_status_fd, "--json-status-fd", "FD", 1, "Write start and end to FD, a JSON object a line", an},
    {Opt::new_session, "--new-session", "", 0, "Start the command in a session of its own", ""},
    {Opt::die_with_parent, "--die-with-parent", "", 0, "End the sandbox when the calling process ends", ""},
    {Opt::as_pid_1, "--as-pid-1", "", 0, "Run the command as pid 1, without an init", ""},
    {Opt::cap_add, "--cap-add", "CAP", 1, "Add a capability, or ALL", an},
    {Opt::cap_drop, "--cap-drop", "CAP", 1, "Drop a capability, or ALL", an},
    {Opt::perms, "--perms", "OCTAL", 1, "The mode of what the next option makes", an},
    {Opt::size, "--size", "BYTES", 1, "The size of the next --tmpfs", an},
    {Opt::chmod, "--chmod", "OCTAL PATH", 2, "Change the mode of PATH", two},
    {Opt::not_a_security_boundary, "--not-a-security-boundary", "", 0, "Go on where a mount below a bind cannot be restricted", ""},
    {Opt::forward_signals, "--forward-signals", "", 0, "Hand signals to the command (nsbox only, as all below)", ""},
    {Opt::kill_all, "--kill-all", "", 0, "End everything in the sandbox when the command ends", ""},
    {Opt::timeout, "--timeout", "TIME", 1, "End the sandbox after TIME (1.5, 500ms, 2s, 3m, 1h)", an},
    {Opt::kill_after, "--kill-after", "TIME", 1, "SIGKILL this long after a limit's SIGTERM (5s)", an},
    {Opt::cpu_time, "--cpu-time", "TIME", 1, "End the sandbox when it used so much processor time", an},
    {Opt::distinct_status, "--distinct-status", "", 0, "Exit with 125 where nsbox fails, 126 or 127 where\nthe command cannot be executed or found", ""},
    {Opt::events_fd, "--events-fd", "FD", 1, "Write everything that happens to FD, as JSON", an},
    {Opt::log_denials, "--log-denials", "[=FD|FILE]", optional_argument, "Write what the command is refused, and the option that\nwould allow it, as JSON (to standard error); slow", ""},
    {Opt::name, "--name", "NAME", 1, "Let nsbox ps, exec, kill and wait find it as NAME", an},
    {Opt::map_uid, "--map-uid", "INSIDE:OUTSIDE:COUNT", 1, "Map COUNT user ids from INSIDE on to the host's\nfrom OUTSIDE on; the only ones, with others of these", an},
    {Opt::map_gid, "--map-gid", "INSIDE:OUTSIDE:COUNT", 1, "The same for group ids", an},
    {Opt::subids, "--subids", "", 0, "Map 65536 ids to the subordinate ones of this user\n(/etc/subuid), but the command's to the user's own", ""},
    {Opt::net, "--net", "MODE", 1, "The network: host, none, join:PATH|fd:FD|NAME, user[,mtu=BYTES]\n[,link=auto|tap|veth][,tcp=relay][,ipv6=off][,outbound=off]\n[,names=off][,required=off], or\nveth[,bridge=NAME[,address=ADDRESS/LENGTH[,gateway=ADDRESS]]]\n[,mtu=BYTES][,ipv6=off][,outbound=off][,names=off] (root only)", an},
    {Opt::host_loopback, "--host-loopback", "PORTS", 1, "Let --net user or veth reach these ports of the\nhost's loopback, or all", an},
    {Opt::publish, "--publish", "PORTS", 1, "[ADDRESS:]HOSTPORT:[localhost:]PORT[/udp]: let the host's port\nlead to one of the sandbox, with --net user or veth (also -p);\nor unix:PATH:PORT", an},
    {Opt::host_socket, "--host-socket", "PATH:PORT", 1, "Let a port of the sandbox lead to the host's unix socket,\nwith --net user or veth", an},
    {Opt::pty, "--pty", "", 0, "Give the command a terminal of its own", ""},
    {Opt::pty_size, "--pty-size", "COLUMNSxROWS", 1, "The size of that terminal where there is none outside", an},
};
// clang-format on

constexpr std::size_t column = 33;  // Blanks and names before the description.

std::size_t distance(const std::string& a, const std::string& b)
{
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above + 1, row[j - 1] + 1, change});
            diagonal = above;
        }
    }
    return row[b.size()];
}

std::string help_line(const OptionInfo& option)
{
    std::string line = std::string{"    "} + option.name;
    if (option.arguments[0] != '\0')
        line += std::string{" "} + option.arguments;
    line.append(line.size() < column ? column - line.size() : 1, ' ');
    for (const char* at = option.text;;) {
        const char* const end = std::strchr(at, '\n');
        if (end == nullptr)
            return line + at + "\n";
        line.append(at, end);
        line += "\n" + std::string(column, ' ');
        at = end + 1;
    }
    return line + "\n";
}

}  // namespace

std::span<const OptionInfo> all_options()
{
    return table;
}

const OptionInfo* find_option(const std::string& name)
{
    for (const OptionInfo& option : table)
        if (name == option.name)
            return &option;
    return nullptr;
}

std::string nearest_option(const std::string& name)
{
    std::string best;
    // More changes than that make it another word; short words have less to go by.
    std::size_t least = std::min<std::size_t>(4, name.size() / 2);
    for (const OptionInfo& option : table) {
        const std::size_t changes = distance(name, option.name);
        if (changes < least) {
            least = changes;
            best = option.name;
        }
    }
    return best;
}

std::string help_text(const std::string& program)
{
    std::string text = "usage: " + program + " [OPTIONS...] [--] COMMAND [ARGS...]\n\n";
    for (const OptionInfo& option : table)
        text += help_line(option);
    return text;
}

}  // namespace nsbox::tool
