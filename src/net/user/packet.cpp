#include "net/user/packet.hpp"

#include <algorithm>
#include <cstring>

namespace nsbox::net::user {

namespace {

constexpr std::uint16_t type_ipv4 = 0x0800;
constexpr std::uint16_t type_arp = 0x0806;
constexpr std::uint16_t type_ipv6 = 0x86dd;
constexpr std::size_t ipv4_header = 20;
constexpr std::size_t ipv6_header = 40;
constexpr std::size_t udp_header = 8;
constexpr std::size_t icmp_header = 8;

std::uint16_t read16(Bytes bytes, std::size_t at)
{
    return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

void write16(std::span<std::uint8_t> bytes, std::size_t at, std::size_t value)
{
    bytes[at] = static_cast<std::uint8_t>(value >> 8);
    bytes[at + 1] = static_cast<std::uint8_t>(value);
}

void put(std::span<std::uint8_t> bytes, std::size_t at, Bytes what)
{
    std::copy(what.begin(), what.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

Bytes bytes_of(const Address& address)
{
    return {address.bytes.data(), address.size()};
}

/// The Internet checksum of RFC 1071, of several pieces: all but the last have an even size.
class Checksum {
public:
    void add(Bytes bytes)
    {
        std::size_t at = 0;
        for (; at + 1 < bytes.size(); at += 2)
            sum_ += read16(bytes, at);
        if (at < bytes.size())
            sum_ += static_cast<std::uint32_t>(bytes[at]) << 8;
    }
    void add(std::size_t number) { sum_ += number; }
    std::uint16_t result() const
    {
        std::uint64_t folded = sum_;
        while (folded > 0xffff)
            folded = (folded & 0xffff) + (folded >> 16);
        return static_cast<std::uint16_t>(~folded);
    }

private:
    std::uint64_t sum_ = 0;
};

Address read_address(Bytes frame, std::size_t at, bool v6)
{
    Address address;
    address.v6 = v6;
    std::memcpy(address.bytes.data(), frame.data() + at, address.size());
    return address;
}

/// Ports are where both protocols have them, and an ICMP header is no longer than UDP's.
void read_transport(Bytes frame, Packet& packet)
{
    const bool with_ports = packet.protocol == protocol_tcp || packet.protocol == protocol_udp;
    if (!with_ports || packet.is_later_part)
        return;
    packet.has_ports = packet.end - packet.transport >= udp_header;
    if (!packet.has_ports)
        return;
    packet.source_port = read16(frame, packet.transport);
    packet.destination_port = read16(frame, packet.transport + 2);
}

void parse_ipv4(Bytes frame, Packet& packet)
{
    const std::size_t room = frame.size() - ethernet_size;
    if (room < ipv4_header || frame[ethernet_size] >> 4 != 4)
        return;
    const std::size_t header = (frame[ethernet_size] & 15U) * std::size_t{4};
    const std::size_t total = read16(frame, ethernet_size + 2);
    if (header < ipv4_header || total < header || total > room)
        return;
    const std::uint16_t fragment = read16(frame, ethernet_size + 6);
    packet.kind = Kind::ip;
    packet.source = read_address(frame, ethernet_size + 12, false);
    packet.destination = read_address(frame, ethernet_size + 16, false);
    packet.protocol = frame[ethernet_size + 9];
    packet.is_later_part = (fragment & 0x1fff) != 0;
    packet.is_fragment = packet.is_later_part || (fragment & 0x2000) != 0;
    packet.transport = ethernet_size + header;
    packet.end = ethernet_size + total;
    read_transport(frame, packet);
}

/// Extension headers are left to the judge as protocols of their own, which nothing here speaks.
void parse_ipv6(Bytes frame, Packet& packet)
{
    const std::size_t room = frame.size() - ethernet_size;
    if (room < ipv6_header || frame[ethernet_size] >> 4 != 6)
        return;
    const std::size_t length = read16(frame, ethernet_size + 4);
    if (length > room - ipv6_header)
        return;
    packet.kind = Kind::ip;
    packet.protocol = frame[ethernet_size + 6];
    packet.source = read_address(frame, ethernet_size + 8, true);
    packet.destination = read_address(frame, ethernet_size + 24, true);
    packet.transport = ethernet_size + ipv6_header;
    packet.end = packet.transport + length;
    read_transport(frame, packet);
}

/// A frame back to the sender of another: both headers, with room for `payload` bytes behind.
struct Answer {
    std::vector<std::uint8_t> bytes;
    std::size_t transport;

    std::span<std::uint8_t> rest() { return std::span{bytes}.subspan(transport); }
};

Answer answer_to(Bytes frame, const Packet& packet, std::uint8_t protocol, std::size_t payload)
{
    const bool v6 = packet.source.v6;
    const std::size_t header = v6 ? ipv6_header : ipv4_header;
    std::array<std::uint8_t, ethernet_size + ipv6_header> out{};
    put(out, 0, frame.subspan(6, 6));
    put(out, 6, frame.first(6));
    put(out, 12, frame.subspan(12, 2));
    const std::span<std::uint8_t> ip = std::span{out}.subspan(ethernet_size);
    const auto finished = [&] {
        Answer answer{{out.begin(), out.end()}, ethernet_size + header};
        answer.bytes.resize(answer.transport + payload);
        std::fill(answer.bytes.begin() + static_cast<std::ptrdiff_t>(answer.transport),
                  answer.bytes.end(), std::uint8_t{0});
        return answer;
    };
    constexpr std::uint8_t hops = 64;
    if (v6) {
        ip[0] = 0x60;
        write16(ip, 4, payload);
        ip[6] = protocol;
        ip[7] = hops;
        put(ip, 8, bytes_of(packet.destination));
        put(ip, 24, bytes_of(packet.source));
        return finished();
    }
    ip[0] = 0x45;
    write16(ip, 2, header + payload);
    ip[8] = hops;
    ip[9] = protocol;
    put(ip, 12, bytes_of(packet.destination));
    put(ip, 16, bytes_of(packet.source));
    Checksum sum;
    sum.add(ip.first(header));
    write16(ip, 10, sum.result());
    return finished();
}

/// Of UDP and ICMPv6, over the addresses too. A result of zero is sent as its complement, which
/// UDP takes for another thing otherwise.
std::uint16_t transport_checksum(const Packet& packet, std::uint8_t protocol, Bytes bytes)
{
    Checksum sum;
    sum.add(bytes_of(packet.source));
    sum.add(bytes_of(packet.destination));
    sum.add(protocol);
    sum.add(bytes.size());
    sum.add(bytes);
    const std::uint16_t result = sum.result();
    return result == 0 ? 0xffff : result;
}

}  // namespace

Address ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d)
{
    Address address;
    address.bytes = {a, b, c, d};
    return address;
}

Address ipv6(std::uint16_t first, std::uint16_t last)
{
    Address address;
    address.v6 = true;
    write16(address.bytes, 0, first);
    write16(address.bytes, 14, last);
    return address;
}

bool is_within(const Address& address, const Address& prefix, unsigned length) noexcept
{
    if (address.v6 != prefix.v6 || length > address.size() * 8)
        return false;
    const unsigned whole = length / 8;
    if (std::memcmp(address.bytes.data(), prefix.bytes.data(), whole) != 0)
        return false;
    const unsigned rest = length % 8;
    return rest == 0 || ((address.bytes[whole] ^ prefix.bytes[whole]) >> (8 - rest)) == 0;
}

Packet parse(Bytes frame) noexcept
{
    Packet packet;
    if (frame.size() < ethernet_size)
        return packet;
    constexpr std::size_t arp_size = 28;
    switch (read16(frame, 12)) {
    case type_arp:
        if (frame.size() >= ethernet_size + arp_size)
            packet.kind = Kind::arp;
        break;
    case type_ipv4:
        parse_ipv4(frame, packet);
        break;
    case type_ipv6:
        parse_ipv6(frame, packet);
        break;
    default:
        break;
    }
    return packet;
}

std::vector<std::uint8_t> refusal(Bytes frame, const Packet& packet)
{
    const bool v6 = packet.source.v6;
    if (packet.kind != Kind::ip || packet.is_later_part || packet.protocol == protocol_icmp ||
        packet.protocol == protocol_icmp6)
        return {};
    const std::uint8_t first = packet.destination.bytes[0];
    constexpr std::uint8_t first_ipv4_group = 224;
    if (v6 ? first == 0xff : first >= first_ipv4_group)
        return {};
    // As much of the packet as the smallest link takes: RFC 1812, 4.3.2.3; RFC 4443, 2.4.
    const std::size_t most =
        v6 ? 1280 - ipv6_header - icmp_header : 576 - ipv4_header - icmp_header;
    const Bytes quoted = frame.subspan(ethernet_size, std::min(most, packet.end - ethernet_size));
    Answer answer =
        answer_to(frame, packet, v6 ? protocol_icmp6 : protocol_icmp, icmp_header + quoted.size());
    const std::span<std::uint8_t> icmp = answer.rest();
    icmp[0] = v6 ? 1 : 3;   // Destination unreachable...
    icmp[1] = v6 ? 1 : 13;  // ...by administrative prohibition.
    put(icmp, icmp_header, quoted);
    if (v6) {
        write16(icmp, 2, transport_checksum(packet, protocol_icmp6, icmp));
    } else {
        Checksum sum;
        sum.add(icmp);
        write16(icmp, 2, sum.result());
    }
    return std::move(answer.bytes);
}

std::vector<std::uint8_t> udp_answer(Bytes frame, const Packet& packet, Bytes payload)
{
    Answer answer = answer_to(frame, packet, protocol_udp, udp_header + payload.size());
    const std::span<std::uint8_t> udp = answer.rest();
    write16(udp, 0, packet.destination_port);
    write16(udp, 2, packet.source_port);
    write16(udp, 4, udp.size());
    put(udp, udp_header, payload);
    write16(udp, 6, transport_checksum(packet, protocol_udp, udp));
    return std::move(answer.bytes);
}

std::vector<std::uint8_t> tcp_reset(Bytes frame, const Packet& packet, std::uint32_t sequence)
{
    constexpr std::size_t tcp_header = 20;
    Answer answer = answer_to(frame, packet, protocol_tcp, tcp_header);
    const std::span<std::uint8_t> tcp = answer.rest();
    write16(tcp, 0, packet.destination_port);
    write16(tcp, 2, packet.source_port);
    write16(tcp, 4, sequence >> 16);
    write16(tcp, 6, sequence & 0xffff);
    tcp[12] = tcp_header / 4 << 4;
    tcp[13] = 4;  // RST.
    write16(tcp, 16, transport_checksum(packet, protocol_tcp, tcp));
    return std::move(answer.bytes);
}

void finish_ipv4(std::span<std::uint8_t> frame)
{
    const std::span<std::uint8_t> ip = frame.subspan(ethernet_size);
    write16(ip, 2, ip.size());
    write16(ip, 6, 0);
    write16(ip, 10, 0);
    Checksum sum;
    sum.add(ip.first(ipv4_header));
    write16(ip, 10, sum.result());
}

}  // namespace nsbox::net::user
