#pragma once

#include "net/user/guest.hpp"
#include "net/user/packet.hpp"

#include <bitset>
#include <vector>

namespace nsbox::net::user {

/// What a sandbox may reach.
struct Rules {
    bool outbound = true;
    /// Ports of the host's loopback that the gateway's address leads to.
    std::bitset<65536> host_loopback;
    /// What is delivered to the host itself, on whatever interface.
    std::vector<Prefix> host;
};

enum class Verdict {
    pass,  ///< To libslirp.
    drop,
    refuse,   ///< The sender is told: see refusal().
    ask_dns,  ///< A datagram to the name server's address, which is ours to answer.
};

/// Decides over one frame from the sandbox before libslirp sees it. Pure. Whatever it does not know
/// is dropped; what could be delivered to the host itself never passes, but for the ports that
/// `rules` open.
Verdict judge(const Rules& rules, const Packet& packet) noexcept;

}  // namespace nsbox::net::user
