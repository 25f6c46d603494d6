#pragma once

#include "net/user/packet.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstdint>
#include <vector>

namespace nsbox::net::user {

/// What leads the TCP connections that begin in a network namespace to this process.
struct Redirection {
    sys::Fd rules;                   ///< Holds the rules: see netfilter::Owner.
    std::vector<sys::Fd> listeners;  ///< For IPv4, then for IPv6. Non-blocking.
};

/// Redirects the TCP connections of the calling process's network namespace that would leave it to
/// listeners on its loopback interface, which has to be up. Those to addresses of the namespace
/// itself stay what they are. Needs CAP_NET_ADMIN there, and nf_tables with nat; Linux 5.12.
Result<Redirection> redirect_tcp(bool ipv6);

/// Where a connection went that a listener of a Redirection has accepted.
struct Destination {
    Address address;
    std::uint16_t port = 0;
};

/// False where the kernel does not know it. One that came to the listener directly was meant for the
/// listener's own address. See SO_ORIGINAL_DST in the kernel's linux/netfilter_ipv4.h.
bool original_destination(int socket, Destination& destination) noexcept;

}  // namespace nsbox::net::user
