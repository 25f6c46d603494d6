#pragma once

#include "net/user/address.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox::net {

/// A port of the host that is to lead into a sandbox.
struct Published {
    bool udp = false;
    std::string address;        ///< Of the host; empty: 127.0.0.1 and, where there is IPv6, ::1.
    std::uint16_t outside = 0;  ///< The host's port; 0 lets the kernel choose one.
    std::uint16_t inside = 0;
    bool to_loopback = false;  ///< To the sandbox's 127.0.0.1 instead of its own address.
};

/// Takes the host's port: sockets that are bound and do not listen. `wish.outside` is the port
/// afterwards. See bind(2). An error says why: the port is in use, or privileged, or the address is
/// not one of this host's.
Result<std::vector<sys::Fd>> take_port(Published& wish);

/// Where in the sandbox it leads to; 0.0.0.0 is the sandbox's own address.
user::SocketAddress target_of(const Published& wish);

}  // namespace nsbox::net
