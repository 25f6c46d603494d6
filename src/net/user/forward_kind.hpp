#pragma once

#include <cstdint>

namespace nsbox::net::user {

/// What a forward carries, and which way.
enum class ForwardKind : std::uint64_t {
    tcp,            ///< A TCP port of the host -> a TCP port inside.
    udp,            ///< A UDP port of the host -> a UDP port inside.
    unix_to_tcp,    ///< A unix socket of the host -> a TCP port inside.
    inside_to_unix  ///< A TCP port inside -> a unix socket of the host.
};

}  // namespace nsbox::net::user
