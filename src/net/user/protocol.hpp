#pragma once

#include "net/user/address.hpp"
#include "net/user/forward_kind.hpp"
#include "net/user/judge.hpp"
#include "net/user/link.hpp"
#include "sys/packing.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::net::user {

// What the supervisor and the network helper say to each other, over a SOCK_SEQPACKET pair: numbers
// and texts as sys/packing.hpp has them, the first of which says what it is. Both are of one version.

/// The helper's end of the pair.
inline constexpr int helper_channel = 3;

enum class Order : std::uint64_t {
    configure,  ///< A HelperConfig; the first one.
    attach,     ///< The sandbox's network namespace comes along: begin.
    follow,     ///< A pidfd of the sandbox comes along: its end is the helper's.
    unfollow,   ///< It is not any more; the end of a pair for the outcome.
    servers,    ///< The host's name servers have changed.
    forward,    ///< A ForwardOrder, with its descriptors.
    unforward,  ///< The number of a forward that is to go; the end of a pair for the outcome.
    connected,  ///< The answer to `connect`: its token, 0 or an errno; the socket.
    renewed,    ///< The answer to `renew`, in the same way.
};

enum class Answer : std::uint64_t {
    ready,   ///< The network works. A LinkReport.
    failed,  ///< The helper ends. Why, as one line.
    // See UnixConnector: the number of a forward, and a token.
    connect,
    renew,
};

struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
};

/// A port forward. Its descriptors: the bound sockets of the host, then, if that is wanted, the end of
/// a pair on which the outcome is told: as one line, empty where all is well.
struct ForwardOrder {
    std::uint64_t number = 0;
    ForwardKind kind = ForwardKind::tcp;
    SocketAddress inside;  ///< With 0.0.0.0 for the sandbox's own address.
    std::size_t sockets = 0;
    bool is_awaited = false;
};

/// A link to the host itself: LinkKind::routed.
struct RoutedWish {
    std::string bridge;              ///< The host's end becomes a port of it, if it is given.
    std::optional<Prefix> address;   ///< The sandbox's; else one is chosen.
    std::optional<Address> gateway;  ///< With an address only.
};

/// What the sandbox is connected by. Texts but `interface` are addresses, empty where there is none.
struct LinkReport {
    LinkKind kind = LinkKind::automatic;
    bool ipv6 = false;
    TcpPath tcp = TcpPath::slirp;
    std::string interface;    ///< Of the host; with LinkKind::routed.
    std::string address;      ///< Of the sandbox, with the length of the prefix...
    std::string address6;     ///< ...and that of IPv6.
    std::string gateway;      ///< That of the default route.
    std::string name_server;  ///< Empty where the host's are to be asked.
};

struct HelperConfig {
    LinkWish link;
    bool outbound = true;
    std::vector<PortRange> host_loopback;
    std::vector<SocketAddress> servers;
    RoutedWish routed;  ///< With LinkKind::routed.
};

std::string encode(const HelperConfig& config);
/// False where the message is another one, or not whole.
bool decode(const std::string& bytes, HelperConfig& config);

std::string encode_report(const LinkReport& report);
bool decode_report(const std::string& bytes, LinkReport& report);

std::string encode_forward(const ForwardOrder& forward);
bool decode_forward(const std::string& bytes, ForwardOrder& forward);

/// A message of two numbers.
template <class What>
std::string encode_pair(What what, std::uint64_t first, std::uint64_t second)
{
    std::string out;
    sys::pack(out, static_cast<std::uint64_t>(what));
    sys::pack(out, first);
    sys::pack(out, second);
    return out;
}
template <class What>
bool decode_pair(const std::string& bytes, What what, std::uint64_t& first, std::uint64_t& second)
{
    sys::Unpacker from{bytes};
    const bool is_it = from.number() == static_cast<std::uint64_t>(what);
    first = from.number();
    second = from.number();
    return is_it && from.is_done();
}

std::string encode_servers(const std::vector<SocketAddress>& servers);
bool decode_servers(const std::string& bytes, std::vector<SocketAddress>& servers);

}  // namespace nsbox::net::user
