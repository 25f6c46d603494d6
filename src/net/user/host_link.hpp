#pragma once

#include "net/user/link.hpp"
#include "net/user/protocol.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <array>
#include <optional>
#include <string>

namespace nsbox::net::user {

/// A veth pair between the host's network namespace and a sandbox's (veth(4)), as the host sees it.
struct HostLink {
    std::string name;  ///< Of the host's end, which is up.
    unsigned index = 0;
    /// Where packets from the sandbox come to the host's IP: at that end, or at the bridge.
    std::string entry;
    bool is_bridged = false;
    bool ipv6 = false;
    InsideNetwork inside;
    std::array<std::uint8_t, 6> inside_mac{};
    /// The host's own address there, if it has one...
    std::optional<Address> gateway4;
    std::optional<Address> gateway6;
};

/// Makes the pair: one end here, one in `network`. Both ends go with the sandbox's namespace. Needs
/// CAP_NET_ADMIN over both namespaces. An error says what is missing: the right, the forwarding of
/// packets by this host (unless `config.outbound` is off), the bridge, an address that is free.
/// For a process that is not confined yet: reads /proc.
Result<HostLink> make_host_link(const HelperConfig& config, const sys::Fd& network);

}  // namespace nsbox::net::user
