#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nsbox::net::user {

using Bytes = std::span<const std::uint8_t>;

/// An IPv4 or IPv6 address in network order; of the first kind only four bytes are used.
struct Address {
    bool v6 = false;
    std::array<std::uint8_t, 16> bytes{};

    std::size_t size() const noexcept { return v6 ? 16 : 4; }
    friend bool operator==(const Address&, const Address&) = default;
};

/// The addresses that begin with the first `length` bits of one.
struct Prefix {
    Address address;
    unsigned length = 0;
};

Address ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d);
/// The first and the last group of an address, with zeros between them.
Address ipv6(std::uint16_t first, std::uint16_t last);

/// Whether the first `length` bits of two addresses of one family are the same.
bool is_within(const Address& address, const Address& prefix, unsigned length) noexcept;

inline constexpr std::size_t ethernet_size = 14;
inline constexpr std::uint8_t protocol_icmp = 1;
inline constexpr std::uint8_t protocol_tcp = 6;
inline constexpr std::uint8_t protocol_udp = 17;
inline constexpr std::uint8_t protocol_icmp6 = 58;

enum class Kind { arp, ip, other };

/// What an Ethernet frame holds, as far as it decides where it may go. Offsets count from the
/// beginning of the frame and lie within it.
struct Packet {
    Kind kind = Kind::other;  ///< Other: nothing that libslirp would take, or malformed.
    Address source;
    Address destination;
    std::uint8_t protocol = 0;
    bool is_fragment = false;    ///< A part of a datagram (IPv4)...
    bool is_later_part = false;  ///< ...that holds no transport header.
    std::size_t transport = 0;   ///< Where the transport header begins...
    std::size_t end = 0;         ///< ...and the packet ends.
    bool has_ports = false;      ///< TCP or UDP, with both ports in this frame.
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = 0;
};

/// Reads a frame that may hold anything. See RFC 791, RFC 8200.
Packet parse(Bytes frame) noexcept;

/// The answer that tells the sender of `frame` that it may not go there: ICMP or ICMPv6,
/// administratively prohibited (RFC 1812, RFC 4443). Empty where none is due: for ICMP itself
/// and for what was not sent to one host.
std::vector<std::uint8_t> refusal(Bytes frame, const Packet& packet);

/// A frame with a UDP datagram that answers the one in `frame`.
std::vector<std::uint8_t> udp_answer(Bytes frame, const Packet& packet, Bytes payload);

/// Makes an IPv4 packet in a frame one whole: its length that of the frame, no part of another, and
/// the header's checksum right. The header has no options.
void finish_ipv4(std::span<std::uint8_t> frame);

}  // namespace nsbox::net::user
