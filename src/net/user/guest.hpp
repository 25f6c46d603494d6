#pragma once

#include "net/user/packet.hpp"

#include <optional>

namespace nsbox::net::user {

// The user-mode network that a sandbox sees, the same for all of them: 10.0.2.0/24 and fd00::/64.

inline constexpr unsigned guest_prefix4 = 24;
inline constexpr unsigned guest_prefix6 = 64;

struct GuestNetwork {
    Address net4 = ipv4(10, 0, 2, 0);
    Address gateway4 = ipv4(10, 0, 2, 2);  ///< Stands for the host's 127.0.0.1.
    Address dns4 = ipv4(10, 0, 2, 3);
    Address guest4 = ipv4(10, 0, 2, 100);
    Address net6 = ipv6(0xfd00, 0);
    Address gateway6 = ipv6(0xfd00, 2);  ///< Stands for the host's ::1.
    Address dns6 = ipv6(0xfd00, 3);
    Address guest6 = ipv6(0xfd00, 0x100);
};

/// The sandbox's end of a link.
struct InsideNetwork {
    Address address4 = GuestNetwork{}.guest4;
    unsigned prefix4 = guest_prefix4;
    std::optional<Address> gateway4 = GuestNetwork{}.gateway4;
    Address address6 = GuestNetwork{}.guest6;
    unsigned prefix6 = guest_prefix6;
    Address gateway6 = GuestNetwork{}.gateway6;
};

}  // namespace nsbox::net::user
