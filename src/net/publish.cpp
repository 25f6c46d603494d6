#include "net/publish.hpp"

#include "net/user/packet.hpp"
#include "net/user/socket.hpp"
#include "sys/read_file.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>

namespace nsbox::net {

namespace {

using sys::Fd;
using user::SocketAddress;

constexpr Literal cannot{"Can't publish a port"};

SocketAddress address_of(int family, const void* bytes, std::uint16_t port)
{
    SocketAddress result;
    if (family == AF_INET) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        std::memcpy(&v4.sin_addr, bytes, sizeof v4.sin_addr);
        result.size = sizeof v4;
    } else {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(result.storage);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        std::memcpy(&v6.sin6_addr, bytes, sizeof v6.sin6_addr);
        result.size = sizeof v6;
    }
    return result;
}

Result<std::vector<SocketAddress>> addresses_of(const Published& wish)
{
    constexpr in_addr loopback4{__builtin_bswap32(INADDR_LOOPBACK)};
    if (wish.address.empty())
        return std::vector<SocketAddress>{address_of(AF_INET, &loopback4, wish.outside),
                                          address_of(AF_INET6, &in6addr_loopback, wish.outside)};
    for (const int family : {AF_INET, AF_INET6}) {
        in6_addr bytes;
        if (::inet_pton(family, wish.address.c_str(), &bytes) == 1)
            return std::vector<SocketAddress>{address_of(family, &bytes, wish.outside)};
    }
    return refuse(cannot, wish.address, "it is no address", "a number like 127.0.0.1 or [::1]");
}

std::string hint_for(int error)
{
    if (error == EACCES) {
        std::string first = sys::read_file("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        first = first.substr(0, first.find('\n'));
        return "ports below " + (first.empty() ? "1024" : first) + " are for root";
    }
    if (error == EADDRINUSE)
        return "another program has it; with 0 for the host's port a free one is taken";
    return error == EADDRNOTAVAIL ? "the address has to be one of this host's" : "";
}

/// 0 or the errno.
int try_bind(const SocketAddress& address, bool udp, bool reuse, Fd& result)
{
    Fd socket{::socket(address.family(),
                       (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket)
        return errno;
    if (address.family() == AF_INET6)
        (void)user::set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    (void)user::set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, reuse ? 1 : 0);
    if (::bind(socket.get(), address.get(), address.size) < 0)
        return errno;
    // Nobody else may take it while it does not listen.
    (void)user::set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 0);
    result = std::move(socket);
    return 0;
}

int bind_one(const SocketAddress& address, bool udp, Fd& result)
{
    const int error = try_bind(address, udp, false, result);
    // Connections of before that the kernel still remembers are no hindrance.
    return error == EADDRINUSE && !udp ? try_bind(address, udp, true, result) : error;
}

bool is_missing_family(int error)
{
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

/// A port that is free for the first of the addresses.
int choose_port(Published& wish, const SocketAddress& address)
{
    Fd socket;
    const int error = try_bind(address, wish.udp, false, socket);
    if (error == 0)
        wish.outside = user::bound_address(socket.get()).port();
    return error;
}

/// 0 or the errno, with the address that it is about.
int bind_all(const Published& wish, const std::vector<SocketAddress>& addresses,
             std::vector<Fd>& sockets, SocketAddress& failed)
{
    sockets.clear();
    for (const SocketAddress& address : addresses) {
        Fd socket;
        failed = address;
        const int error = bind_one(address, wish.udp, socket);
        if (error == 0)
            sockets.push_back(std::move(socket));
        else if (!wish.address.empty() || !is_missing_family(error))
            return error;
    }
    return sockets.empty() ? EADDRNOTAVAIL : 0;
}

}  // namespace

Result<std::vector<Fd>> take_port(Published& wish)
{
    const bool any = wish.outside == 0;
    constexpr int most_tries = 32;
    std::vector<Fd> sockets;
    SocketAddress failed;
    int error = 0;
    for (int i = 0; i < most_tries; ++i) {
        wish.outside = any ? 0 : wish.outside;
        std::vector<SocketAddress> addresses = TRY(addresses_of(wish));
        failed = addresses.front();
        error = any ? choose_port(wish, addresses.front()) : 0;
        if (any && error == 0)
            addresses = TRY(addresses_of(wish));
        if (error == 0)
            error = bind_all(wish, addresses, sockets, failed);
        if (error == 0)
            return sockets;
        // Chosen for one family, it may be taken for the other.
        if (!any || error != EADDRINUSE)
            break;
    }
    return fail(cannot, error, failed.text() + (wish.udp ? "/udp" : "/tcp"), hint_for(error));
}

SocketAddress target_of(const Published& wish)
{
    const user::Address to = wish.to_loopback ? user::ipv4(127, 0, 0, 1) : user::Address{};
    return address_of(AF_INET, to.bytes.data(), wish.inside);
}

}  // namespace nsbox::net
