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

Result<std::vector<SocketAddress>> addresses_of(const PublishedPort& wish)
{
    if (wish.address.empty())
        return std::vector<SocketAddress>{
            user::socket_address(user::ipv4(127, 0, 0, 1), wish.outside),
            user::socket_address(user::ipv6(0, 1), wish.outside)};
    for (const bool v6 : {false, true}) {
        user::Address address{v6, {}};
        if (::inet_pton(v6 ? AF_INET6 : AF_INET, wish.address.c_str(), address.bytes.data()) == 1)
            return std::vector<SocketAddress>{user::socket_address(address, wish.outside)};
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

bool is_udp(const PublishedPort& wish)
{
    return wish.kind == PublishedPort::Kind::udp;
}

bool is_missing_family(int error)
{
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

/// A port that is free for the first of the addresses.
int choose_port(PublishedPort& wish, const SocketAddress& address)
{
    Fd socket;
    const int error = try_bind(address, is_udp(wish), false, socket);
    if (error == 0)
        wish.outside = user::bound_address(socket.get()).port();
    return error;
}

/// 0 or the errno, with the address that it is about.
int bind_all(const PublishedPort& wish, const std::vector<SocketAddress>& addresses,
             std::vector<Fd>& sockets, SocketAddress& failed)
{
    sockets.clear();
    for (const SocketAddress& address : addresses) {
        Fd socket;
        failed = address;
        const int error = bind_one(address, is_udp(wish), socket);
        if (error == 0)
            sockets.push_back(std::move(socket));
        else if (!wish.address.empty() || !is_missing_family(error))
            return error;
    }
    return sockets.empty() ? EADDRNOTAVAIL : 0;
}

}  // namespace

Result<std::vector<Fd>> take_port(PublishedPort& wish)
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
    return fail(cannot, error, failed.text() + (is_udp(wish) ? "/udp" : "/tcp"), hint_for(error));
}

SocketAddress target_of(const PublishedPort& wish)
{
    const bool to_loopback = wish.to_loopback || wish.kind == PublishedPort::Kind::host_socket;
    const user::Address to = to_loopback ? user::ipv4(127, 0, 0, 1) : user::Address{};
    return user::socket_address(to, wish.inside);
}

user::ForwardKind forward_kind(PublishedPort::Kind kind)
{
    switch (kind) {
    case PublishedPort::Kind::tcp:
        return user::ForwardKind::tcp;
    case PublishedPort::Kind::udp:
        return user::ForwardKind::udp;
    case PublishedPort::Kind::unix_socket:
        return user::ForwardKind::unix_to_tcp;
    case PublishedPort::Kind::host_socket:
        break;
    }
    return user::ForwardKind::inside_to_unix;
}

bool is_same_place(const PublishedPort& a, const PublishedPort& b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case PublishedPort::Kind::tcp:
    case PublishedPort::Kind::udp:
        return a.outside == b.outside && a.address == b.address;
    case PublishedPort::Kind::unix_socket:
        return a.path == b.path;
    case PublishedPort::Kind::host_socket:
        break;
    }
    return a.inside == b.inside;
}

Result<> check_port(const PublishedPort& wish)
{
    using Kind = PublishedPort::Kind;
    if (wish.inside == 0)
        return refuse(cannot, "port 0 of the sandbox", "there is no such port");
    const bool is_unix = wish.kind == Kind::unix_socket || wish.kind == Kind::host_socket;
    if (is_unix == wish.path.empty())
        return refuse(cannot, wish.path,
                      is_unix ? "the path of a unix socket is missing" : "a port has no path");
    return {};
}

}  // namespace nsbox::net

namespace nsbox {

std::string place_of(const PublishedPort& port)
{
    using Kind = PublishedPort::Kind;
    if (port.kind == Kind::unix_socket || port.kind == Kind::host_socket)
        return "unix:" + port.path;
    const bool v6 = port.address.find(':') != std::string::npos;
    const std::string address = port.address.empty() ? "localhost"
                                : v6                 ? "[" + port.address + "]"
                                                     : port.address;
    return address + ":" + std::to_string(port.outside) +
           (port.kind == Kind::udp ? "/udp" : "/tcp");
}

}  // namespace nsbox
