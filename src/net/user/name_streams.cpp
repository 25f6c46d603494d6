#include "net/user/name_streams.hpp"

#include "net/user/guest.hpp"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>
#include <utility>

namespace nsbox::net::user {

namespace {

constexpr std::uint16_t dns_port = 53;
constexpr std::size_t tcp_header = 20;
constexpr std::size_t tcp_flags = 13;
constexpr std::size_t tcp_checksum = 16;
constexpr std::size_t ipv4_checksum = ethernet_size + 10;
constexpr std::uint8_t flag_syn = 2;
constexpr std::uint8_t flag_ack = 16;

const GuestNetwork guest_network;

std::uint32_t read16(std::span<const std::uint8_t> bytes, std::size_t at)
{
    return static_cast<std::uint32_t>(bytes[at]) << 8 | bytes[at + 1];
}

/// Equation 3 of RFC 1624, for each word that changes.
void correct(std::span<std::uint8_t> frame, std::size_t checksum, Bytes before, Bytes after)
{
    std::uint32_t sum = ~read16(frame, checksum) & 0xffff;
    for (std::size_t at = 0; at < before.size(); at += 2)
        sum += (~read16(before, at) & 0xffff) + read16(after, at);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    sum = ~sum & 0xffff;
    frame[checksum] = static_cast<std::uint8_t>(sum >> 8);
    frame[checksum + 1] = static_cast<std::uint8_t>(sum);
}

void replace(std::span<std::uint8_t> frame, const Packet& packet, std::size_t at,
             const Address& before, const Address& with)
{
    const Bytes old{before.bytes.data(), before.size()};
    const Bytes fresh{with.bytes.data(), with.size()};
    if (!with.v6)
        correct(frame, ipv4_checksum, old, fresh);
    correct(frame, packet.transport + tcp_checksum, old, fresh);
    std::copy(fresh.begin(), fresh.end(), frame.begin() + static_cast<std::ptrdiff_t>(at));
}

bool is_whole_tcp(const Packet& packet)
{
    return packet.kind == Kind::ip && packet.protocol == protocol_tcp && !packet.is_fragment &&
           packet.has_ports && packet.end - packet.transport >= tcp_header;
}

bool begins_connection(Bytes frame, const Packet& packet)
{
    return (frame[packet.transport + tcp_flags] & (flag_syn | flag_ack)) == flag_syn;
}

std::uint32_t sequence_of(Bytes frame, const Packet& packet)
{
    constexpr std::size_t tcp_sequence = 4;
    const std::size_t at = packet.transport + tcp_sequence;
    return read16(frame, at) << 16 | read16(frame, at + 2);
}

/// Not if libslirp would take it for one of its own, or could not say on which link it is.
bool can_be_used(const Address& address)
{
    constexpr unsigned link_local = 10;
    return !is_within(address, guest_network.net4, guest_prefix4) &&
           !is_within(address, guest_network.net6, guest_prefix6) &&
           !is_within(address, ipv6(0xfe80, 0), link_local);
}

bool read_server(const SocketAddress& server, Address& address)
{
    if (server.port() != dns_port)
        return false;
    address.v6 = server.family() == AF_INET6;
    if (address.v6)
        std::memcpy(address.bytes.data(),
                    &reinterpret_cast<const sockaddr_in6&>(server.storage).sin6_addr, 16);
    else
        std::memcpy(address.bytes.data(),
                    &reinterpret_cast<const sockaddr_in&>(server.storage).sin_addr, 4);
    return can_be_used(address);
}

}  // namespace

void replace_destination(std::span<std::uint8_t> frame, const Packet& packet, const Address& with)
{
    constexpr std::size_t at4 = ethernet_size + 16;
    constexpr std::size_t at6 = ethernet_size + 24;
    replace(frame, packet, with.v6 ? at6 : at4, packet.destination, with);
}

void replace_source(std::span<std::uint8_t> frame, const Packet& packet, const Address& with)
{
    constexpr std::size_t at4 = ethernet_size + 12;
    constexpr std::size_t at6 = ethernet_size + 8;
    replace(frame, packet, with.v6 ? at6 : at4, packet.source, with);
}

void NameStreams::set_servers(const std::vector<SocketAddress>& servers)
{
    servers_.clear();
    for (const SocketAddress& server : servers) {
        Address address;
        const bool is_usable = read_server(server, address);
        if (is_usable && std::none_of(servers_.begin(), servers_.end(),
                                      [&](const Address& other) { return other.v6 == address.v6; }))
            servers_.push_back(address);
    }
}

NameStreams::Flows::iterator NameStreams::find(const Address& guest, std::uint16_t port)
{
    return std::find_if(flows_.begin(), flows_.end(),
                        [&](const Flow& flow) { return flow.port == port && flow.guest == guest; });
}

std::vector<std::uint8_t> NameStreams::outward(Bytes frame, const Packet& packet)
{
    if (!is_whole_tcp(packet))
        return {};
    auto flow = find(packet.source, packet.source_port);
    if (begins_connection(frame, packet)) {
        const auto server =
            std::find_if(servers_.begin(), servers_.end(), [&](const Address& address) {
                return address.v6 == packet.destination.v6;
            });
        if (server == servers_.end())
            return {};
        if (flow == flows_.end()) {
            if (flows_.size() >= most_connections)
                flows_.pop_back();
            flow = flows_.insert(flows_.begin(), {packet.source, packet.source_port, 0, *server});
        }
        // One that is sent again belongs to the connection that it may have begun already.
        const std::uint32_t sequence = sequence_of(frame, packet);
        if (std::exchange(flow->sequence, sequence) != sequence)
            flow->server = *server;
    }
    if (flow == flows_.end())
        return {};
    flows_.splice(flows_.begin(), flows_, flow);
    std::vector<std::uint8_t> out(frame.begin(), frame.end());
    replace_destination(out, packet, flow->server);
    return out;
}

void NameStreams::pass(Bytes frame, const Packet& packet)
{
    if (flows_.empty() || packet.destination_port != dns_port || !is_whole_tcp(packet) ||
        !begins_connection(frame, packet))
        return;
    if (const auto flow = find(packet.source, packet.source_port);
        flow != flows_.end() && flow->server == packet.destination)
        flows_.erase(flow);
}

std::vector<std::uint8_t> NameStreams::inward(Bytes frame)
{
    if (flows_.empty())
        return {};
    const Packet packet = parse(frame);
    if (!is_whole_tcp(packet) || packet.source_port != dns_port)
        return {};
    const auto flow = find(packet.destination, packet.destination_port);
    if (flow == flows_.end() || flow->server != packet.source)
        return {};
    std::vector<std::uint8_t> out(frame.begin(), frame.end());
    replace_source(out, packet, packet.source.v6 ? guest_network.dns6 : guest_network.dns4);
    return out;
}

}  // namespace nsbox::net::user
