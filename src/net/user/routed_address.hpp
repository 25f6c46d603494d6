#pragma once

#include "net/user/judge.hpp"
#include "net/user/packet.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace nsbox::net::user {

// The addresses of links between a sandbox and its host (`--net veth`). All of it is pure. A link has
// a number, which the name of the host's interface holds: the kernel lets a name be taken only once
// in a network namespace, so whoever has the interface has the number, and by it the addresses.

/// The ranges are tried in this order: 10.207.0.0/16, 172.30.0.0/16 and 192.168.0.0/16, in parts of
/// four addresses. Of IPv6 there is one: fd6e:7362:6f78::/48, in parts of /64.
inline constexpr unsigned links_of_range = 1U << 14;
inline constexpr unsigned link_ranges = 3;
inline constexpr unsigned link_numbers = link_ranges * links_of_range;

inline constexpr unsigned link_prefix4 = 30;
inline constexpr unsigned link_prefix6 = 64;

/// "nsbox12a4"
inline constexpr const char* link_name_begin = "nsbox";
std::string link_name(unsigned number);

/// The name of a port of a bridge: "nsb7-a2", of the bridge's index and what the address has behind
/// the bridge's prefix. At most 15 bytes, for any bridge with a prefix of 8 bits or more.
std::string port_name(unsigned bridge, std::uint32_t host_part);

/// The hardware address of a sandbox's end on a bridge follows from that of IPv4, so it is as singular;
/// the first bytes are the same for all.
std::array<std::uint8_t, 6> port_hardware(const Address& address);
inline constexpr std::uint32_t port_hardware_length = 2;

struct LinkAddresses {
    Address host4;  ///< The gateway's...
    Address guest4;
    Address host6;
    Address guest6;
};
LinkAddresses link_addresses(unsigned number);

/// Whether two networks have an address in common.
bool overlaps(const Prefix& one, const Prefix& other) noexcept;
bool is_taken(const Prefix& network, std::span<const Prefix> taken) noexcept;

/// The numbers that nothing speaks against, each once: in every range from `first` on and around. What
/// `taken` refers to has to live as long.
class LinkNumbers {
public:
    LinkNumbers(std::span<const Prefix> taken, bool ipv6, unsigned first)
        : taken_(taken), ipv6_(ipv6), first_(first % links_of_range)
    {}
    /// link_numbers at the end.
    unsigned next();

private:
    std::span<const Prefix> taken_;
    bool ipv6_;
    unsigned first_;
    unsigned tried_ = 0;
};

/// The addresses in a bridge's network that nothing speaks against, each once: neither its own nor
/// those of `taken`, nor the first and the last one of the network. `first` counts from there.
class PortAddresses {
public:
    PortAddresses(const Prefix& network, std::span<const Address> taken, std::uint32_t first);
    /// False at the end.
    bool next(Address& address);

    std::uint32_t host_part(const Address& address) const noexcept;

private:
    Prefix network_;
    std::span<const Address> taken_;
    std::uint32_t size_;  ///< How many addresses there are.
    std::uint32_t at_;
    std::uint32_t tried_ = 0;
};

/// "10.0.0.1", "fd00::1"
std::string text_of(const Address& address);

}  // namespace nsbox::net::user
