#pragma once

#include "net/user/packet.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

// Packet filtering and address translation by the kernel's nf_tables, in the network namespace of
// the calling process. Rules are data; see nft(8) for what they mean. A table of the family `inet`
// serves IPv4 and IPv6; address translation in one takes Linux 5.2, owned tables take 5.12.

namespace nsbox::net::netfilter {

using user::Address;
using user::Prefix;

// What a rule asks of a packet. All of its matches have to hold, in the order in which they stand.

struct InInterface {
    std::string name;
    bool is_not = false;
    bool is_beginning = false;  ///< Of the name: "eth" for all of "eth0", "eth1" and so on.
};
struct OutInterface {
    std::string name;
    bool is_not = false;
};
/// By number (if_nametoindex(3)), which no later interface of the same name has.
struct InIndex {
    unsigned index = 0;
};
struct OutIndex {
    unsigned index = 0;
    bool is_not = false;
};
/// What a frame holds, as ETH_P_ARP.
struct EtherType {
    std::uint16_t type = 0;
};
/// The hardware that a frame comes from, by the first bytes of its address: at the hooks ingress,
/// prerouting, input and forward.
struct FromHardware {
    std::array<std::uint8_t, 6> address{};
    std::uint32_t length = 6;  ///< In bytes.
};
/// The address of IPv4 that the sender of an ARP packet says it has (RFC 826).
struct ArpSender {
    Address address;
};
/// Where a packet comes from. Packets of the other family never match, whatever `is_not` says.
struct From {
    Prefix prefix;
    bool is_not = false;
};
/// Where a packet goes; as From.
struct To {
    Prefix prefix;
    bool is_not = false;
};
struct Protocol {
    std::uint8_t number = 0;  ///< As protocol_tcp.
};
/// A destination port: `protocol` is protocol_tcp or protocol_udp.
struct ToPort {
    std::uint8_t protocol = 0;
    std::uint16_t port = 0;
};
/// A destination port in a range, both ends included.
struct ToPorts {
    std::uint8_t protocol = 0;
    std::uint16_t first = 0;
    std::uint16_t last = 0;
};
/// A kind of ICMPv6, as 135 for a neighbour solicitation.
struct Icmp6Type {
    std::uint8_t type = 0;
};
/// Belongs to a known connection, or to one that a known connection begins.
struct Established {};
/// Fits no connection, so that no address in it is translated.
struct Invalid {};
/// Its destination was replaced, by a rule of whoever it may be.
struct Translated {};
/// A source port; as ToPort.
struct FromPort {
    std::uint8_t protocol = 0;
    std::uint16_t port = 0;
};

// What becomes of a packet for which all matches hold: the last part of a rule.

struct Accept {};
struct Drop {};
/// The sender is told: a reset for TCP (the rule has to match TCP), else "administratively
/// prohibited". In chains of the type filter at the hooks input, forward and output.
struct Reject {
    bool with_reset = false;
};
/// The address of the outgoing interface becomes the source: type nat, hook postrouting.
struct Masquerade {};
/// This host becomes the destination: the incoming interface's address at the hook prerouting,
/// 127.0.0.1 or ::1 at the hook output. The rule has to match the protocol; port 0 stays as it is.
struct Redirect {
    std::uint16_t port = 0;
};
/// The destination becomes that one, for packets of its family: type nat, hooks prerouting and
/// output. As for Redirect, a port needs a match of the protocol, and 0 leaves it as it is.
struct Translate {
    Address address;
    std::uint16_t port = 0;
};

using Part =
    std::variant<InInterface, OutInterface, InIndex, OutIndex, EtherType, FromHardware, ArpSender,
                 From, To, Protocol, ToPort, ToPorts, FromPort, Icmp6Type, Established, Invalid,
                 Translated, Accept, Drop, Reject, Masquerade, Redirect, Translate>;
using Rule = std::vector<Part>;

enum class Type { filter, nat };
/// Ingress is that of one interface, in a table of the family netdev: whatever comes in there, before
/// it goes to IP or to a bridge. Linux 4.2.
enum class Hook { prerouting, input, forward, output, postrouting, ingress };

// The usual priorities, those of lower number come first.
inline constexpr int priority_translate_destination = -100;
inline constexpr int priority_filter = 0;
inline constexpr int priority_translate_source = 100;

/// A base chain. Its rules are looked at in order; what none of them decides is accepted or not.
struct Chain {
    std::string name;
    Type type = Type::filter;
    Hook hook = Hook::input;
    int priority = priority_filter;
    bool accepts = true;
    std::vector<Rule> rules;
    std::string device = {};  ///< The interface, at the hook ingress.
};

enum class Family { inet, netdev };

struct Table {
    std::string name;
    std::vector<Chain> chains;
    Family family = Family::inet;
};

/// The owner of tables: nobody else can change them, root included, and the kernel removes them
/// when the last descriptor of the socket is closed, however that comes about. Writing tables needs
/// CAP_NET_ADMIN in the user namespace of the network namespace, holding them needs nothing.
class Owner {
public:
    static Result<Owner> open();
    /// Only holds the tables that belong to the socket.
    explicit Owner(sys::Fd socket) noexcept : socket_(std::move(socket)) {}

    /// Makes a table, in the place of the one of that name if this is its owner: in one transaction,
    /// after which everything is there, or nothing has changed.
    Result<> write(const Table& table);
    Result<> remove(const std::string& name, Family family = Family::inet);

    /// Stays owned here; may be sent to another process, which holds the tables then as well.
    int descriptor() const noexcept { return socket_.get(); }
    [[nodiscard]] sys::Fd release() noexcept { return std::move(socket_); }

private:
    sys::Fd socket_;
    std::uint32_t sequence_ = 1;
};

}  // namespace nsbox::net::netfilter
