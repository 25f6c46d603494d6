#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::sys {

/// What the planner may know about the caller and the kernel. Plain data, so that tests can make
/// up any host; probe_host() fills it in by trying.
struct Host {
    std::uint32_t uid = 0;  ///< Real ids.
    std::uint32_t gid = 0;
    std::uint32_t effective_uid = 0;
    bool capabilities_known = true;
    std::uint64_t effective_capabilities = 0;
    std::uint64_t permitted_capabilities = 0;
    std::uint64_t all_capabilities = 0;  ///< Every one that the kernel knows.

    bool has_clone3 = true;     ///< Linux 5.3.
    bool has_mount_api = true;  ///< For this process; needs CAP_SYS_ADMIN. Linux 5.12.

    bool owns_kernel_settings = false;  ///< Its user is the one that may write /proc/sys.
    bool dumpable = true;               ///< This process's /proc files are its user's.
    bool user_namespaces = true;        ///< Nothing says that they are disabled.
    bool cgroup_namespaces = true;      ///< Linux 4.6.

    int landlock = 0;  ///< The ABI of landlock(7), or -errno; 0 where nobody has asked.

    int foreign_network = -1;        ///< The network namespace of Spec::join_network, open...
    int foreign_network_owner = -1;  ///< ...and the user namespace to be entered for it, or -1.
    bool keeps_network = false;      ///< Both are those of the sandbox, which is made anew...
    int second_user = -1;            ///< ...and so is its second user namespace, if it has one.

    std::vector<std::string> environment;  ///< NAME=value.
    std::string logical_directory;         ///< $PWD, where it is the working directory.
    std::string physical_directory;        ///< Empty if it has no path.
    std::optional<std::string> terminal;   ///< The path of the terminal on stdout.
    bool terminal_at_hand = false;         ///< As a standard descriptor, or as /dev/tty.
};

/// Asks the kernel. Never fails: what cannot be found out is taken to be missing.
Host probe_host();

// What only some sandboxes need to know costs system calls, so it is asked for by name.

void probe_user_namespaces(Host& host);
void probe_cgroup_namespaces(Host& host);
void probe_kernel_settings(Host& host);
void probe_terminal(Host& host);
void probe_capabilities(Host& host);
void probe_landlock(Host& host);

}  // namespace nsbox::sys
