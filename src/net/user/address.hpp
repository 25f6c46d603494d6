#pragma once

#include "net/user/packet.hpp"

#include <cstdint>
#include <string>
#include <sys/socket.h>

namespace nsbox::net::user {

/// An address as connect(2) takes it: of IPv4 or IPv6 with a port, or of a unix socket. Plain value.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;  ///< 0: no address.

    const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    int family() const noexcept { return storage.ss_family; }
    /// In the host's byte order; 0 for other families than AF_INET and AF_INET6.
    std::uint16_t port() const noexcept;
    /// "127.0.0.1:80" or "[::1]:80", for messages; unix sockets are not told apart.
    std::string text() const;
};

/// An address with a port, in the host's byte order.
SocketAddress socket_address(const Address& address, std::uint16_t port) noexcept;

/// The address that a socket is bound to; of size 0 if it cannot be had. See getsockname(2).
SocketAddress bound_address(int socket) noexcept;

}  // namespace nsbox::net::user
