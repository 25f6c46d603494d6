#pragma once

#include "nsbox/spec.hpp"
#include "sys/host.hpp"

#include <cstdint>

namespace nsbox::tests {

inline constexpr std::uint64_t every_capability = (std::uint64_t{1} << 41) - 1;

/// An ordinary user's view of a host that has everything. Made up.
inline sys::Host user_host()
{
    sys::Host host;
    host.uid = 1000;
    host.gid = 1001;
    host.effective_uid = 1000;
    host.all_capabilities = every_capability;
    host.has_mount_api = false;  // That is asked for root only.
    host.environment = {"PATH=/opt/bin:/usr/bin", "HOME=/home/jo", "PWD=/work/link", "TERM=dumb"};
    host.logical_directory = "/work/link";
    host.physical_directory = "/work/real";
    return host;
}

inline sys::Host root_host()
{
    sys::Host host = user_host();
    host.uid = host.gid = host.effective_uid = 0;
    host.effective_capabilities = host.permitted_capabilities = every_capability;
    host.has_mount_api = host.owns_kernel_settings = true;
    return host;
}

/// No namespace but the mount namespace is asked for, as with bwrap's command line.
inline Spec plain_spec()
{
    Spec spec;
    Namespaces& ns = spec.namespaces;
    ns.user = ns.pid = ns.ipc = ns.net = ns.uts = ns.cgroup = Own::no;
    spec.command = {"true"};
    return spec;
}

}  // namespace nsbox::tests
