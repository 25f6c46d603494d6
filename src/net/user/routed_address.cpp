#include "net/user/routed_address.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>

namespace nsbox::net::user {

namespace {

constexpr std::uint8_t range_begins[link_ranges][2] = {{10, 207}, {172, 30}, {192, 168}};

std::uint32_t number_of(const Address& address)
{
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, address.bytes.data(), sizeof bytes);
    return ntohl(bytes);
}

Address address_of(std::uint32_t number)
{
    return ipv4(static_cast<std::uint8_t>(number >> 24), static_cast<std::uint8_t>(number >> 16),
                static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
}

Address link_address6(unsigned number, std::uint8_t last)
{
    // The five letters of the program's name are the part that RFC 4193 wants to be arbitrary.
    Address address{true, {0xfd, 0x6e, 0x73, 0x62, 0x6f, 0x78}};
    address.bytes[6] = static_cast<std::uint8_t>(number >> 8);
    address.bytes[7] = static_cast<std::uint8_t>(number);
    address.bytes[15] = last;
    return address;
}

}  // namespace

std::string link_name(unsigned number)
{
    char text[32];
    std::snprintf(text, sizeof text, "nsbox%04x", number);
    return text;
}

std::string port_name(unsigned bridge, std::uint32_t host_part)
{
    char text[32];
    std::snprintf(text, sizeof text, "nsb%x-%x", bridge, host_part);
    return text;
}

std::array<std::uint8_t, 6> port_hardware(const Address& address)
{
    const auto& b = address.bytes;
    return {0x0a, 0x6e, b[0], b[1], b[2], b[3]};
}

LinkAddresses link_addresses(unsigned number)
{
    const std::uint8_t* const range = range_begins[number / links_of_range % link_ranges];
    const std::uint32_t base = (std::uint32_t{range[0]} << 24 | std::uint32_t{range[1]} << 16) +
                               number % links_of_range * 4;
    return {address_of(base + 1), address_of(base + 2), link_address6(number, 1),
            link_address6(number, 2)};
}

bool overlaps(const Prefix& one, const Prefix& other) noexcept
{
    return one.address.v6 == other.address.v6 &&
           is_within(one.address, other.address, std::min(one.length, other.length));
}

bool is_taken(const Prefix& network, std::span<const Prefix> taken) noexcept
{
    return std::any_of(taken.begin(), taken.end(),
                       [&](const Prefix& other) { return overlaps(network, other); });
}

unsigned LinkNumbers::next()
{
    while (tried_ < link_numbers) {
        const unsigned range = tried_ / links_of_range;
        const unsigned number = range * links_of_range + (first_ + tried_) % links_of_range;
        ++tried_;
        const LinkAddresses addresses = link_addresses(number);
        if (!is_taken({addresses.host4, link_prefix4}, taken_) &&
            !(ipv6_ && is_taken({addresses.host6, link_prefix6}, taken_)))
            return number;
    }
    return link_numbers;
}

PortAddresses::PortAddresses(const Prefix& network, std::span<const Address> taken,
                             std::uint32_t first)
    : network_(network), taken_(taken), size_(network.length >= 32  ? 1U
                                              : network.length == 0 ? ~0U
                                                                    : 1U << (32 - network.length)),
      at_(first)
{}

std::uint32_t PortAddresses::host_part(const Address& address) const noexcept
{
    return size_ == ~0U ? number_of(address) : number_of(address) & (size_ - 1);
}

bool PortAddresses::next(Address& address)
{
    const std::uint32_t base = number_of(network_.address) - host_part(network_.address);
    while (tried_ < size_) {
        const std::uint32_t part = at_ % size_;
        ++at_;
        ++tried_;
        // Both are no single host's, unless the network has only two addresses (RFC 3021).
        if (size_ > 2 && (part == 0 || part == size_ - 1))
            continue;
        address = address_of(base + part);
        if (!(address == network_.address) &&
            std::find(taken_.begin(), taken_.end(), address) == taken_.end())
            return true;
    }
    return false;
}

std::string text_of(const Address& address)
{
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
    return text;
}

}  // namespace nsbox::net::user
