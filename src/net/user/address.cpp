#include "net/user/address.hpp"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>

namespace nsbox::net::user {

namespace {

const sockaddr_in& as_v4(const sockaddr_storage& storage)
{
    return reinterpret_cast<const sockaddr_in&>(storage);
}

const sockaddr_in6& as_v6(const sockaddr_storage& storage)
{
    return reinterpret_cast<const sockaddr_in6&>(storage);
}

}  // namespace

std::uint16_t SocketAddress::port() const noexcept
{
    if (family() == AF_INET)
        return ntohs(as_v4(storage).sin_port);
    return family() == AF_INET6 ? ntohs(as_v6(storage).sin6_port) : std::uint16_t{0};
}

std::string SocketAddress::text() const
{
    char name[INET6_ADDRSTRLEN] = {};
    if (family() == AF_INET)
        ::inet_ntop(AF_INET, &as_v4(storage).sin_addr, name, sizeof name);
    else if (family() == AF_INET6)
        ::inet_ntop(AF_INET6, &as_v6(storage).sin6_addr, name, sizeof name);
    else
        return family() == AF_UNIX ? "a unix socket" : "no address";
    const std::string host = family() == AF_INET ? name : "[" + std::string{name} + "]";
    return host + ":" + std::to_string(port());
}

SocketAddress socket_address(const Address& address, std::uint16_t port) noexcept
{
    SocketAddress result;
    if (address.v6) {
        sockaddr_in6 name{};
        name.sin6_family = AF_INET6;
        name.sin6_port = htons(port);
        std::memcpy(&name.sin6_addr, address.bytes.data(), sizeof name.sin6_addr);
        std::memcpy(&result.storage, &name, sizeof name);
        result.size = sizeof name;
    } else {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port = htons(port);
        std::memcpy(&name.sin_addr, address.bytes.data(), sizeof name.sin_addr);
        std::memcpy(&result.storage, &name, sizeof name);
        result.size = sizeof name;
    }
    return result;
}

SocketAddress bound_address(int socket) noexcept
{
    SocketAddress address;
    address.size = sizeof address.storage;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size) < 0)
        return {};
    return address;
}

}  // namespace nsbox::net::user
