#include "net/user/judge.hpp"

#include <algorithm>

namespace nsbox::net::user {

namespace {

constexpr std::uint16_t dns_port = 53;

const GuestNetwork guest;

/// Addresses that a host takes for itself, or for no single host, whatever its routes are.
const Prefix never[] = {
    {ipv4(0, 0, 0, 0), 8}, {ipv4(127, 0, 0, 0), 8}, {ipv4(224, 0, 0, 0), 3},
    {ipv6(0, 0), 96},      {ipv6(0xff00, 0), 8},    {ipv6(0xfe80, 0), 10},
};

/// IPv4 in IPv6 form, which a host's socket takes for the IPv4 address: ::ffff:0:0/96.
Prefix mapped()
{
    Prefix prefix{ipv6(0, 0), 96};
    prefix.address.bytes[10] = prefix.address.bytes[11] = 0xff;
    return prefix;
}

bool is_in(const Address& address, const Prefix& prefix)
{
    return is_within(address, prefix.address, prefix.length);
}

bool is_never(const Address& address)
{
    static const Prefix ipv4_in_ipv6 = mapped();
    return is_in(address, ipv4_in_ipv6) ||
           std::any_of(std::begin(never), std::end(never),
                       [&](const Prefix& prefix) { return is_in(address, prefix); });
}

bool is_icmp(const Packet& packet)
{
    return packet.protocol == (packet.destination.v6 ? protocol_icmp6 : protocol_icmp);
}

/// One of libslirp's own addresses, or nothing that exists.
Verdict judge_own_network(const Rules& rules, const Packet& packet)
{
    const Address& to = packet.destination;
    const bool is_gateway = to == guest.gateway4 || to == guest.gateway6;
    const bool is_dns = to == guest.dns4 || to == guest.dns6;
    if (is_icmp(packet))
        return is_gateway || is_dns || to.v6 ? Verdict::pass : Verdict::drop;
    if (!packet.has_ports)
        return Verdict::refuse;
    if (is_gateway && rules.host_loopback[packet.destination_port])
        return Verdict::pass;
    if (is_dns && packet.protocol == protocol_udp && packet.destination_port == dns_port)
        return Verdict::ask_dns;
    if (is_dns && packet.protocol == protocol_tcp && packet.destination_port == dns_port)
        return Verdict::name_stream;
    return Verdict::refuse;
}

/// Neighbour discovery (RFC 4861): who the router is and where the others are.
bool is_discovery(const Packet& packet)
{
    constexpr unsigned link_local = 10;
    return packet.protocol == protocol_icmp6 &&
           (is_within(packet.destination, ipv6(0xfe80, 0), link_local) ||
            is_within(packet.destination, ipv6(0xff02, 0), 16));
}

}  // namespace

Verdict judge(const Rules& rules, const Packet& packet) noexcept
{
    if (packet.kind == Kind::arp)
        return Verdict::pass;
    // Parts are put together before: libslirp's own way to do that can be made to crash.
    if (packet.kind != Kind::ip || packet.is_fragment)
        return Verdict::drop;
    const bool is_known =
        packet.protocol == protocol_tcp || packet.protocol == protocol_udp || is_icmp(packet);
    if (!is_known)
        return Verdict::drop;
    const Address& to = packet.destination;
    if (is_within(to, guest.net4, guest_prefix4) || is_within(to, guest.net6, guest_prefix6))
        return judge_own_network(rules, packet);
    if (to.v6 && is_discovery(packet))
        return Verdict::pass;
    if (is_never(to) || !rules.outbound)
        return Verdict::refuse;
    const bool is_host = std::any_of(rules.host.begin(), rules.host.end(),
                                     [&](const Prefix& prefix) { return is_in(to, prefix); });
    return is_host ? Verdict::refuse : Verdict::pass;
}

}  // namespace nsbox::net::user
