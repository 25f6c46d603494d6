#include "net/user/protocol.hpp"

#include <cstring>

namespace nsbox::net::user {

namespace {

using sys::pack;
using sys::Unpacker;

void pack_servers(std::string& out, const std::vector<SocketAddress>& servers)
{
    pack(out, servers.size());
    for (const SocketAddress& server : servers)
        pack(out, &server.storage, server.size);
}

SocketAddress unpack_address(Unpacker& from)
{
    const std::string bytes = from.text();
    SocketAddress address;
    address.size = static_cast<socklen_t>(std::min(bytes.size(), sizeof address.storage));
    std::memcpy(&address.storage, bytes.data(), address.size);
    return address;
}

void unpack_servers(Unpacker& from, std::vector<SocketAddress>& servers)
{
    servers.clear();
    for (std::uint64_t left = from.count(); left > 0; --left)
        servers.push_back(unpack_address(from));
}

/// Empty where there is none.
void pack_plain(std::string& out, const std::optional<Address>& address)
{
    pack(out, address ? address->bytes.data() : nullptr, address ? address->size() : 0);
}

std::optional<Address> unpack_plain(Unpacker& from)
{
    const std::string bytes = from.text();
    if (bytes.empty())
        return std::nullopt;
    Address address;
    address.v6 = bytes.size() == address.bytes.size();
    std::memcpy(address.bytes.data(), bytes.data(), std::min(bytes.size(), address.bytes.size()));
    return address;
}

}  // namespace

std::string encode(const HelperConfig& config)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(Order::configure));
    pack(out, static_cast<std::uint64_t>(config.link.kind));
    pack(out, std::uint64_t{config.link.mtu});
    pack(out, std::uint64_t{config.link.ipv6});
    pack(out, static_cast<std::uint64_t>(config.link.tcp));
    pack(out, std::uint64_t{config.outbound});
    pack(out, config.host_loopback.size());
    for (const PortRange& range : config.host_loopback)
        pack(out, std::uint64_t{range.first} << 16 | range.last);
    pack_servers(out, config.servers);
    const RoutedWish& routed = config.routed;
    pack(out, routed.bridge);
    pack_plain(out, routed.address ? std::optional{routed.address->address} : std::nullopt);
    pack(out, std::uint64_t{routed.address ? routed.address->length : 0});
    pack_plain(out, routed.gateway);
    return out;
}

bool decode(const std::string& bytes, HelperConfig& config)
{
    Unpacker from{bytes};
    if (from.number() != static_cast<std::uint64_t>(Order::configure))
        return false;
    config.link.kind = static_cast<LinkKind>(from.number());
    config.link.mtu = static_cast<unsigned>(from.number());
    config.link.ipv6 = from.number() != 0;
    config.link.tcp = static_cast<TcpPath>(from.number());
    config.outbound = from.number() != 0;
    config.host_loopback.clear();
    for (std::uint64_t left = from.count(); left > 0; --left) {
        const std::uint64_t both = from.number();
        config.host_loopback.push_back(
            {static_cast<std::uint16_t>(both >> 16), static_cast<std::uint16_t>(both)});
    }
    unpack_servers(from, config.servers);
    config.routed.bridge = from.text();
    const std::optional<Address> address = unpack_plain(from);
    const auto length = static_cast<unsigned>(from.number());
    config.routed.address = address ? std::optional{Prefix{*address, length}} : std::nullopt;
    config.routed.gateway = unpack_plain(from);
    return from.is_done();
}

std::string encode_report(const LinkReport& report)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(Answer::ready));
    pack(out, static_cast<std::uint64_t>(report.kind));
    pack(out, std::uint64_t{report.ipv6});
    pack(out, static_cast<std::uint64_t>(report.tcp));
    for (const std::string* text : {&report.interface, &report.address, &report.address6,
                                    &report.gateway, &report.name_server})
        pack(out, *text);
    return out;
}

bool decode_report(const std::string& bytes, LinkReport& report)
{
    Unpacker from{bytes};
    if (from.number() != static_cast<std::uint64_t>(Answer::ready) || bytes.empty())
        return false;
    report.kind = static_cast<LinkKind>(from.number());
    report.ipv6 = from.number() != 0;
    report.tcp = static_cast<TcpPath>(from.number());
    for (std::string* text : {&report.interface, &report.address, &report.address6, &report.gateway,
                              &report.name_server})
        *text = from.text();
    return from.is_done();
}

std::string encode_forward(const ForwardOrder& forward)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(Order::forward));
    pack(out, forward.number);
    pack(out, static_cast<std::uint64_t>(forward.kind));
    pack(out, std::uint64_t{forward.sockets});
    pack(out, std::uint64_t{forward.is_awaited});
    pack(out, &forward.inside.storage, forward.inside.size);
    return out;
}

bool decode_forward(const std::string& bytes, ForwardOrder& forward)
{
    Unpacker from{bytes};
    if (from.number() != static_cast<std::uint64_t>(Order::forward))
        return false;
    forward.number = from.number();
    forward.kind = static_cast<ForwardKind>(from.number());
    forward.sockets = from.number();
    forward.is_awaited = from.number() != 0;
    forward.inside = unpack_address(from);
    return from.is_done();
}

std::string encode_servers(const std::vector<SocketAddress>& servers)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(Order::servers));
    pack_servers(out, servers);
    return out;
}

bool decode_servers(const std::string& bytes, std::vector<SocketAddress>& servers)
{
    Unpacker from{bytes};
    if (from.number() != static_cast<std::uint64_t>(Order::servers))
        return false;
    unpack_servers(from, servers);
    return from.is_done();
}

}  // namespace nsbox::net::user
