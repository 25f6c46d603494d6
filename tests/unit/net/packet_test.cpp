// Frames: what is read out of them, what is decided over them, and what is answered.

#include "net/user/judge.hpp"
#include "net/user/packet.hpp"
#include "net/user/reassembly.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace nsbox::net::user;

namespace {

using Frame = std::vector<std::uint8_t>;

void put16(Frame& frame, std::size_t at, unsigned value)
{
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
}

/// The one's complement sum of 16-bit words, which is 0xffff over what carries its own checksum.
unsigned sum_of(Bytes bytes, unsigned sum = 0)
{
    for (std::size_t i = 0; i < bytes.size(); ++i)
        sum += i % 2 == 0 ? bytes[i] * 256U : bytes[i];
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

Frame make(const Address& to, std::uint8_t protocol, unsigned port, std::size_t payload = 8)
{
    const GuestNetwork guest;
    const std::size_t header = to.v6 ? 40 : 20;
    const std::size_t transport = protocol == protocol_tcp ? 20 : 8;
    Frame frame(ethernet_size + header + transport + payload, 0x5a);
    for (std::uint8_t i = 0; i < 12; ++i)
        frame[i] = i;
    put16(frame, 12, to.v6 ? 0x86dd : 0x0800);
    const Address from = to.v6 ? guest.guest6 : guest.guest4;
    if (to.v6) {
        frame[14] = 0x60;
        put16(frame, 18, static_cast<unsigned>(transport + payload));
        frame[20] = protocol;
        std::copy_n(from.bytes.begin(), 16, frame.begin() + 22);
        std::copy_n(to.bytes.begin(), 16, frame.begin() + 38);
    } else {
        frame[14] = 0x45;
        put16(frame, 16, static_cast<unsigned>(header + transport + payload));
        put16(frame, 20, 0);
        frame[23] = protocol;
        std::copy_n(from.bytes.begin(), 4, frame.begin() + 26);
        std::copy_n(to.bytes.begin(), 4, frame.begin() + 30);
        put16(frame, 24, 0);
        put16(frame, 24, 0xffff ^ sum_of(Bytes{frame}.subspan(14, 20)));
    }
    put16(frame, ethernet_size + header, 4000);
    put16(frame, ethernet_size + header + 2, port);
    return frame;
}

/// Of UDP, TCP and ICMPv6 in a frame, with the addresses that count too.
unsigned transport_sum(const Frame& frame)
{
    const Packet packet = parse(frame);
    unsigned sum = sum_of(Bytes{packet.source.bytes.data(), packet.source.size()});
    sum = sum_of(Bytes{packet.destination.bytes.data(), packet.destination.size()}, sum);
    sum += packet.protocol + static_cast<unsigned>(packet.end - packet.transport);
    return sum_of(Bytes{frame}.subspan(packet.transport, packet.end - packet.transport), sum);
}

Verdict verdict(const Rules& rules, const Frame& frame)
{
    return judge(rules, parse(frame));
}

const GuestNetwork guest;
const Address far4 = ipv4(198, 51, 100, 9);
Address far6()
{
    Address address = ipv6(0x2001, 9);
    address.bytes[2] = 0x0d;
    address.bytes[3] = 0xb8;
    return address;
}

}  // namespace

TEST_CASE("a frame is read up to the ports")
{
    for (const Address& to : {far4, far6()})
        for (const std::uint8_t protocol : {protocol_tcp, protocol_udp}) {
            const Packet packet = parse(make(to, protocol, 443));
            CHECK(packet.kind == Kind::ip);
            CHECK(packet.destination == to);
            CHECK(packet.source == (to.v6 ? guest.guest6 : guest.guest4));
            CHECK(packet.protocol == protocol);
            CHECK(packet.has_ports);
            CHECK(packet.source_port == 4000);
            CHECK(packet.destination_port == 443);
            CHECK_FALSE(packet.is_fragment);
        }
}

TEST_CASE("what is cut short, or lies about its length, is no packet")
{
    for (const Address& to : {far4, far6()}) {
        const Frame whole = make(to, protocol_udp, 53);
        const std::size_t header = to.v6 ? 40 : 20;
        for (std::size_t size = 0; size < whole.size(); ++size)
            CHECK(parse(Bytes{whole}.first(size)).kind == Kind::other);
        CHECK(parse(whole).kind == Kind::ip);
        Frame lying = whole;
        put16(lying, to.v6 ? 18 : 16, 0xffff);
        CHECK(parse(lying).kind == Kind::other);
        lying = whole;
        lying[14] ^= 0x10;  // Another version than the frame's type says.
        CHECK(parse(lying).kind == Kind::other);
        // A datagram that ends before its ports do.
        Frame shorter = whole;
        put16(shorter, to.v6 ? 18 : 16, static_cast<unsigned>((to.v6 ? 0 : header) + 3));
        CHECK(parse(shorter).kind == Kind::ip);
        CHECK_FALSE(parse(shorter).has_ports);
    }
    Frame options = make(far4, protocol_udp, 53, 60);
    options[14] = 0x4f;
    CHECK(parse(options).kind == Kind::ip);
    CHECK_FALSE(parse(Frame(options.begin(), options.begin() + 14)).kind == Kind::ip);
    options[14] = 0x44;
    CHECK(parse(options).kind == Kind::other);
}

TEST_CASE("parts of a datagram are known as such")
{
    Frame first = make(far4, protocol_udp, 53);
    put16(first, 20, 0x2000);
    CHECK(parse(first).is_fragment);
    CHECK(parse(first).has_ports);
    Frame later = make(far4, protocol_udp, 53);
    put16(later, 20, 1);
    CHECK(parse(later).is_fragment);
    CHECK(parse(later).is_later_part);
    CHECK_FALSE(parse(later).has_ports);
}

TEST_CASE("addresses are compared by their first bits")
{
    CHECK(is_within(ipv4(10, 0, 2, 255), ipv4(10, 0, 2, 0), 24));
    CHECK_FALSE(is_within(ipv4(10, 0, 3, 0), ipv4(10, 0, 2, 0), 24));
    CHECK(is_within(ipv4(10, 0, 3, 255), ipv4(10, 0, 2, 0), 23));
    CHECK(is_within(ipv4(1, 2, 3, 4), ipv4(1, 2, 3, 4), 32));
    CHECK_FALSE(is_within(ipv4(1, 2, 3, 5), ipv4(1, 2, 3, 4), 32));
    CHECK(is_within(ipv4(9, 9, 9, 9), ipv4(0, 0, 0, 0), 0));
    CHECK_FALSE(is_within(far6(), ipv4(0, 0, 0, 0), 0));
    CHECK_FALSE(is_within(ipv4(1, 2, 3, 4), ipv4(1, 2, 3, 4), 33));
    CHECK(is_within(ipv6(0xfe80, 1), ipv6(0xfe80, 0), 10));
}

TEST_CASE("the outside is reached, unless it is not to be")
{
    Rules rules;
    for (const Address& to : {far4, far6()})
        for (const std::uint8_t protocol : {protocol_tcp, protocol_udp})
            CHECK(verdict(rules, make(to, protocol, 443)) == Verdict::pass);
    CHECK(verdict(rules, make(far4, protocol_icmp, 0)) == Verdict::pass);
    CHECK(verdict(rules, make(far6(), protocol_icmp6, 0)) == Verdict::pass);
    rules.outbound = false;
    for (const Address& to : {far4, far6()})
        CHECK(verdict(rules, make(to, protocol_tcp, 443)) == Verdict::refuse);
    CHECK(verdict(rules, make(far4, protocol_icmp, 0)) == Verdict::refuse);
}

TEST_CASE("what the host takes for itself is refused")
{
    Rules rules;
    Address mapped = ipv6(0, 1);
    mapped.bytes[10] = mapped.bytes[11] = 0xff;
    mapped.bytes[12] = 127;
    for (const Address& to :
         {ipv4(127, 0, 0, 1), ipv4(127, 0, 0, 53), ipv4(0, 0, 0, 0), ipv4(0, 1, 2, 3),
          ipv4(224, 0, 0, 1), ipv4(255, 255, 255, 255), ipv4(240, 0, 0, 1), ipv6(0, 0), ipv6(0, 1),
          ipv6(0xfe80, 7), ipv6(0xff02, 1), mapped})
        for (const std::uint8_t protocol : {protocol_tcp, protocol_udp}) {
            INFO(int{to.v6}, " ", int{to.bytes[0]}, " ", int{to.bytes[3]}, " ", int{protocol});
            CHECK(verdict(rules, make(to, protocol, 80)) == Verdict::refuse);
        }
    CHECK(verdict(rules, make(far4, protocol_tcp, 80)) == Verdict::pass);
    rules.host = {{ipv4(198, 51, 100, 8), 29}, {far6(), 128}};
    CHECK(verdict(rules, make(far4, protocol_tcp, 80)) == Verdict::refuse);
    CHECK(verdict(rules, make(far6(), protocol_udp, 80)) == Verdict::refuse);
    CHECK(verdict(rules, make(ipv4(198, 51, 100, 16), protocol_tcp, 80)) == Verdict::pass);
    CHECK(verdict(rules, make(far4, protocol_icmp, 0)) == Verdict::refuse);
}

TEST_CASE("the gateway leads to the ports that are open, and nothing else of its network does")
{
    Rules rules;
    for (const Address& to : {guest.gateway4, guest.gateway6}) {
        rules.host_loopback.reset();
        CHECK(verdict(rules, make(to, protocol_tcp, 80)) == Verdict::refuse);
        rules.host_loopback.set(80);
        CHECK(verdict(rules, make(to, protocol_tcp, 80)) == Verdict::pass);
        CHECK(verdict(rules, make(to, protocol_udp, 80)) == Verdict::pass);
        CHECK(verdict(rules, make(to, protocol_tcp, 81)) == Verdict::refuse);
        // Also without access to the outside.
        rules.outbound = false;
        CHECK(verdict(rules, make(to, protocol_tcp, 80)) == Verdict::pass);
        rules.outbound = true;
    }
    for (const Address& to : {guest.gateway4, far4}) {
        Frame part = make(to, protocol_udp, 80);
        CHECK(verdict(rules, part) == Verdict::pass);
        put16(part, 20, 0x2000);
        CHECK(verdict(rules, part) == Verdict::drop);
        put16(part, 20, 1);
        CHECK(verdict(rules, part) == Verdict::drop);
    }
    for (const Address& to : {ipv4(10, 0, 2, 1), ipv4(10, 0, 2, 255), ipv6(0xfd00, 1), guest.dns4})
        CHECK(verdict(rules, make(to, protocol_tcp, 80)) == Verdict::refuse);
    CHECK(verdict(rules, make(guest.gateway4, protocol_icmp, 0)) == Verdict::pass);
    CHECK(verdict(rules, make(ipv4(10, 0, 2, 9), protocol_icmp, 0)) == Verdict::drop);
}

TEST_CASE("queries to the name server are answered here")
{
    const Rules rules;
    CHECK(verdict(rules, make(guest.dns4, protocol_udp, 53)) == Verdict::ask_dns);
    CHECK(verdict(rules, make(guest.dns6, protocol_udp, 53)) == Verdict::ask_dns);
    CHECK(verdict(rules, make(guest.dns4, protocol_udp, 54)) == Verdict::refuse);
    // Those by TCP go their own way, without outbound access too, and no other port does.
    for (const Address& to : {guest.dns4, guest.dns6}) {
        CHECK(verdict(rules, make(to, protocol_tcp, 53)) == Verdict::name_stream);
        Rules closed;
        closed.outbound = false;
        CHECK(verdict(closed, make(to, protocol_tcp, 53)) == Verdict::name_stream);
        CHECK(verdict(closed, make(to, protocol_udp, 53)) == Verdict::ask_dns);
        for (const unsigned port : {0U, 52U, 54U, 853U})
            CHECK(verdict(rules, make(to, protocol_tcp, port)) == Verdict::refuse);
    }
    for (const Address& to : {guest.gateway4, guest.gateway6, guest.guest4, ipv4(127, 0, 0, 53)})
        CHECK(verdict(rules, make(to, protocol_tcp, 53)) == Verdict::refuse);
    CHECK(verdict(rules, make(guest.gateway4, protocol_udp, 53)) == Verdict::refuse);
}

TEST_CASE("what libslirp does not speak does not reach it")
{
    const Rules rules;
    constexpr std::uint8_t sctp = 132;
    constexpr std::uint8_t hop_by_hop = 0;
    CHECK(verdict(rules, make(far4, sctp, 80)) == Verdict::drop);
    CHECK(verdict(rules, make(far6(), hop_by_hop, 80)) == Verdict::drop);
    CHECK(verdict(rules, make(far4, protocol_icmp6, 80)) == Verdict::drop);
    CHECK(verdict(rules, Frame(60, 0)) == Verdict::drop);
    Frame arp(42, 0);
    put16(arp, 12, 0x0806);
    CHECK(verdict(rules, arp) == Verdict::pass);
    arp.pop_back();
    CHECK(verdict(rules, arp) == Verdict::drop);
}

TEST_CASE("a refusal goes back to the sender and quotes what it is about")
{
    for (const Address& to : {far4, far6()}) {
        const Frame frame = make(to, protocol_tcp, 80, 3000);
        const Frame answer = refusal(frame, parse(frame));
        const Packet packet = parse(answer);
        REQUIRE(packet.kind == Kind::ip);
        CHECK(packet.end == answer.size());
        CHECK(packet.source == to);
        CHECK(packet.destination == parse(frame).source);
        CHECK(std::equal(answer.begin(), answer.begin() + 6, frame.begin() + 6));
        const Bytes icmp = Bytes{answer}.subspan(packet.transport);
        CHECK(icmp[0] == (to.v6 ? 1 : 3));
        CHECK(icmp[1] == (to.v6 ? 1 : 13));
        CHECK(answer.size() - ethernet_size == (to.v6 ? 1280 : 576));
        CHECK(std::equal(icmp.begin() + 8, icmp.end(), frame.begin() + ethernet_size));
        if (to.v6) {
            CHECK(transport_sum(answer) == 0xffff);
        } else {
            CHECK(sum_of(icmp) == 0xffff);
            CHECK(sum_of(Bytes{answer}.subspan(ethernet_size, 20)) == 0xffff);
        }
    }
}

TEST_CASE("no refusal answers ICMP, or what was sent to many")
{
    for (const Frame& frame :
         {make(far4, protocol_icmp, 0), make(far6(), protocol_icmp6, 0),
          make(ipv4(224, 0, 0, 1), protocol_udp, 5), make(ipv6(0xff02, 1), protocol_udp, 5)})
        CHECK(refusal(frame, parse(frame)).empty());
    CHECK(refusal(Frame(60, 0), parse(Frame(60, 0))).empty());
    CHECK_FALSE(refusal(make(far4, protocol_udp, 5), parse(make(far4, protocol_udp, 5))).empty());
}

TEST_CASE("an answer to a datagram is one from where it went")
{
    for (const Address& to : {guest.dns4, guest.dns6})
        for (const std::size_t size : {0U, 1U, 512U, 4001U}) {
            const Frame frame = make(to, protocol_udp, 53);
            const Frame payload(size, 0xa7);
            const Frame answer = udp_answer(frame, parse(frame), payload);
            const Packet packet = parse(answer);
            REQUIRE(packet.kind == Kind::ip);
            CHECK(packet.protocol == protocol_udp);
            CHECK(packet.source == to);
            CHECK(packet.source_port == 53);
            CHECK(packet.destination_port == 4000);
            CHECK(packet.end - packet.transport == 8 + size);
            CHECK(transport_sum(answer) == 0xffff);
        }
}

namespace {

/// A part of a datagram whose bytes are their own places.
Frame part_of(std::size_t from, std::size_t size, bool is_last, unsigned id = 7)
{
    Frame frame = make(far4, protocol_udp, 80, 0);
    frame.resize(ethernet_size + 20);
    for (std::size_t i = 0; i < size; ++i)
        frame.push_back(static_cast<std::uint8_t>(from + i));
    put16(frame, 16, static_cast<unsigned>(20 + size));
    put16(frame, 18, id);
    put16(frame, 20, static_cast<unsigned>(from / 8) | (is_last ? 0U : 0x2000U));
    return frame;
}

bool is_whole(const std::optional<Frame>& frame, std::size_t size)
{
    if (!frame || frame->size() != ethernet_size + 20 + size)
        return false;
    const Packet packet = parse(*frame);
    if (packet.is_fragment || packet.end != frame->size() ||
        sum_of(Bytes{*frame}.subspan(ethernet_size, 20)) != 0xffff)
        return false;
    for (std::size_t i = 0; i < size; ++i)
        if ((*frame)[packet.transport + i] != static_cast<std::uint8_t>(i))
            return false;
    return true;
}

std::optional<Frame> add(Reassembly& reassembly, const Frame& part)
{
    return reassembly.add(part, parse(part));
}

}  // namespace

TEST_CASE("parts make a whole in any order")
{
    std::vector<int> order{0, 1, 2};
    do {
        Reassembly reassembly;
        const Frame parts[] = {part_of(0, 16, false), part_of(16, 8, false), part_of(24, 5, true)};
        CHECK_FALSE(add(reassembly, parts[order[0]]));
        CHECK_FALSE(add(reassembly, parts[order[1]]));
        CHECK(is_whole(add(reassembly, parts[order[2]]), 29));
        CHECK(reassembly.size() == 0);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("parts of different datagrams are kept apart")
{
    Reassembly reassembly;
    CHECK_FALSE(add(reassembly, part_of(0, 16, false, 1)));
    CHECK_FALSE(add(reassembly, part_of(16, 8, true, 2)));
    CHECK(is_whole(add(reassembly, part_of(16, 8, true, 1)), 24));
    CHECK(is_whole(add(reassembly, part_of(0, 16, false, 2)), 24));
}

TEST_CASE("parts that overlap, or lie, make nothing")
{
    const std::vector<std::vector<Frame>> lies = {
        {part_of(0, 16, false), part_of(8, 8, false), part_of(16, 8, true)},
        {part_of(0, 16, false), part_of(0, 16, false), part_of(16, 8, true)},
        {part_of(16, 8, true), part_of(24, 8, true), part_of(0, 16, false)},
        {part_of(16, 8, true), part_of(24, 8, false), part_of(0, 16, false)},
        {part_of(24, 8, false), part_of(16, 8, true), part_of(0, 16, false)},
        {part_of(0, 12, false), part_of(12, 8, true)},
        {part_of(65528, 8, true), part_of(0, 16, false)},
    };
    for (const std::vector<Frame>& parts : lies) {
        Reassembly reassembly;
        for (const Frame& part : parts)
            CHECK_FALSE(add(reassembly, part));
    }
}

TEST_CASE("what never becomes whole is forgotten, by time and by number")
{
    Reassembly reassembly;
    const Frame first = part_of(0, 16, false);
    const auto now = Reassembly::Clock::now();
    CHECK_FALSE(reassembly.add(first, parse(first), now));
    const Frame last = part_of(16, 8, true);
    CHECK_FALSE(reassembly.add(last, parse(last), now + std::chrono::seconds{16}));
    CHECK(reassembly.size() == 1);
    for (unsigned id = 100; id < 1000; ++id)
        CHECK_FALSE(add(reassembly, part_of(0, 16, false, id)));
    CHECK(reassembly.size() == 32);
}
