// Which connections are over for both ends, seen by their frames.

#include "net/user/closing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace nsbox::net::user;

namespace {

constexpr std::uint8_t fin = 1;
constexpr std::uint8_t syn = 2;
constexpr std::uint8_t rst = 4;
constexpr std::uint8_t ack = 16;

struct Wish {
    std::uint8_t flags = ack;
    std::uint32_t sequence = 0;
    std::uint32_t acknowledged = 0;
    std::size_t payload = 0;
};

void put16(std::vector<std::uint8_t>& out, std::size_t value)
{
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}

void put32(std::vector<std::uint8_t>& out, std::uint32_t value)
{
    put16(out, value >> 16);
    put16(out, value & 0xffff);
}

/// A frame of 10.0.2.100, port 40000, for 192.0.2.9, port 80, or one the other way.
std::vector<std::uint8_t> segment(bool outwards, const Wish& wish)
{
    const std::vector<std::uint8_t> inner{10, 0, 2, 100};
    const std::vector<std::uint8_t> outer{192, 0, 2, 9};
    std::vector<std::uint8_t> out{2, 0, 0, 0, 0, outwards, 2, 0, 0, 0, 0, !outwards, 8, 0};
    out.push_back(0x45);
    out.push_back(0);
    put16(out, 40 + wish.payload);
    put32(out, 0);
    out.push_back(64);
    out.push_back(protocol_tcp);
    put16(out, 0);
    const auto& from = outwards ? inner : outer;
    const auto& to = outwards ? outer : inner;
    out.insert(out.end(), from.begin(), from.end());
    out.insert(out.end(), to.begin(), to.end());
    put16(out, outwards ? 40000 : 80);
    put16(out, outwards ? 80 : 40000);
    put32(out, wish.sequence);
    put32(out, wish.acknowledged);
    out.push_back(0x50);
    out.push_back(wish.flags);
    put16(out, 8192);
    put32(out, 0);
    out.resize(out.size() + wish.payload);
    return out;
}

class Link {
public:
    void in(const Wish& wish) { closing.sent(segment(false, wish), now); }
    void out(const Wish& wish) { closing.taken(segment(true, wish), now); }
    std::vector<std::vector<std::uint8_t>> later(bool is_busy = false)
    {
        now += std::chrono::seconds{1};
        return closing.due(now, [&](Closing::Ports ports) {
            CHECK(ports == Closing::Ports{40000, 80});
            return is_busy;
        });
    }

    Closing closing;
    Closing::Clock::time_point now{std::chrono::hours{1}};
};

}  // namespace

TEST_CASE("closing: what the outside closed first is reset when both have acknowledged everything")
{
    Link link;
    link.in({ack, 100, 500, 10});
    CHECK(link.closing.size() == 0);
    link.in({fin | ack, 110, 500, 5});
    link.out({ack, 500, 116});
    CHECK(link.later().empty());
    link.out({fin | ack, 500, 116, 7});
    CHECK(link.later().empty());
    link.in({ack, 116, 508});
    CHECK(link.later(true).empty());
    const auto resets = link.later();
    REQUIRE(resets.size() == 1);
    const Packet packet = parse(resets[0]);
    CHECK(packet.protocol == protocol_tcp);
    CHECK(packet.source == ipv4(10, 0, 2, 100));
    CHECK(packet.destination == ipv4(192, 0, 2, 9));
    CHECK(packet.source_port == 40000);
    CHECK(packet.destination_port == 80);
    const std::uint8_t* const tcp = resets[0].data() + packet.transport;
    CHECK(tcp[13] == rst);
    CHECK((tcp[6] << 8 | tcp[7]) == 508);
    CHECK(link.closing.size() == 0);
    CHECK_FALSE(link.closing.deadline());
}

TEST_CASE("closing: what the sandbox closed first is left alone, as libslirp forgets it")
{
    Link link;
    link.out({fin | ack, 500, 100});
    link.in({ack, 100, 501});
    link.in({fin | ack, 100, 501});
    CHECK(link.closing.size() == 1);
    link.out({ack, 501, 101});
    CHECK(link.closing.size() == 0);
    CHECK(link.later().empty());
}

TEST_CASE("closing: what is closed half, or not acknowledged, is not reset")
{
    Link link;
    link.in({fin | ack, 100, 500});
    link.out({ack, 500, 101, 1000});
    link.in({ack, 101, 1500});
    CHECK(link.later().empty());
    // The sandbox has ended too, but has not seen the end of the other side.
    Link other;
    other.in({fin | ack, 100, 500, 50});
    other.out({fin | ack, 500, 100});
    other.in({ack, 151, 501});
    CHECK(other.later().empty());
    other.out({ack, 501, 151});
    CHECK(other.later().size() == 1);
    // After a minute it is nobody's business any more.
    link.now += std::chrono::minutes{2};
    CHECK(link.later().empty());
    CHECK(link.closing.size() == 0);
}

TEST_CASE("closing: a reset, or a new connection with the ports of an old one, ends the watch")
{
    for (const std::uint8_t flag : {rst, syn}) {
        Link link;
        link.in({fin | ack, 100, 500});
        link.out({fin | ack, 500, 101});
        link.in({ack, 101, 501});
        link.out({flag, 9000, 0});
        CHECK(link.closing.size() == 0);
        CHECK(link.later().empty());
    }
    Link link;
    link.in({fin | ack, 100, 500});
    link.in({rst | ack, 101, 500});
    CHECK(link.closing.size() == 0);
}

TEST_CASE("closing: what is no TCP is passed over, whole or not")
{
    Closing closing;
    std::vector<std::uint8_t> frame = segment(false, {fin | ack, 100, 500});
    for (std::size_t size = 0; size < frame.size(); ++size)
        closing.sent(Bytes{frame.data(), size}, {});
    CHECK(closing.size() == 0);
    frame[23] = protocol_udp;
    closing.sent(frame, {});
    CHECK(closing.size() == 0);
    frame[23] = protocol_tcp;
    closing.sent(frame, {});
    CHECK(closing.size() == 1);
}
