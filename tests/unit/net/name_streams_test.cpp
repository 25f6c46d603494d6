// TCP to the name server's address: which server it leads to, and what becomes of the frames.

#include "net/user/guest.hpp"
#include "net/user/name_streams.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <vector>

using namespace nsbox::net::user;

namespace {

using Frame = std::vector<std::uint8_t>;

const GuestNetwork guest;
const Address server4 = ipv4(192, 0, 2, 53);
const Address other4 = ipv4(127, 0, 0, 53);
const Address server6 = ipv6(0x2001, 0x53);

constexpr std::uint8_t syn = 2;
constexpr std::uint8_t ack = 16;

SocketAddress server(const char* text, std::uint16_t port = 53)
{
    SocketAddress address;
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        address.size = sizeof v4;
    } else {
        REQUIRE(::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        address.size = sizeof v6;
    }
    return address;
}

void put16(Frame& frame, std::size_t at, unsigned value)
{
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
}

unsigned sum_of(Bytes bytes, unsigned sum = 0)
{
    for (std::size_t i = 0; i < bytes.size(); ++i)
        sum += i % 2 == 0 ? bytes[i] * 256U : bytes[i];
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/// 0xffff where the checksum of the TCP segment is right.
unsigned segment_sum(const Frame& frame)
{
    const Packet packet = parse(frame);
    unsigned sum = sum_of(Bytes{packet.source.bytes.data(), packet.source.size()});
    sum = sum_of(Bytes{packet.destination.bytes.data(), packet.destination.size()}, sum);
    sum += packet.protocol + static_cast<unsigned>(packet.end - packet.transport);
    return sum_of(Bytes{frame}.subspan(packet.transport, packet.end - packet.transport), sum);
}

struct Segment {
    Address from = guest.guest4;
    Address to = guest.dns4;
    unsigned from_port = 4000;
    unsigned to_port = 53;
    std::uint8_t flags = syn;
    unsigned sequence = 77;
    std::size_t payload = 5;
    std::size_t options = 0;  ///< Of the IPv4 header.
};

Frame make(const Segment& segment)
{
    const std::size_t header = segment.to.v6 ? 40 : 20 + segment.options;
    const std::size_t tcp = ethernet_size + header;
    Frame frame(tcp + 20 + segment.payload, 0x5a);
    put16(frame, 12, segment.to.v6 ? 0x86dd : 0x0800);
    if (segment.to.v6) {
        frame[14] = 0x60;
        put16(frame, 18, static_cast<unsigned>(20 + segment.payload));
        frame[20] = protocol_tcp;
        std::copy_n(segment.from.bytes.begin(), 16, frame.begin() + 22);
        std::copy_n(segment.to.bytes.begin(), 16, frame.begin() + 38);
    } else {
        frame[14] = static_cast<std::uint8_t>(0x40 + header / 4);
        put16(frame, 16, static_cast<unsigned>(header + 20 + segment.payload));
        put16(frame, 20, 0);
        frame[23] = protocol_tcp;
        std::copy_n(segment.from.bytes.begin(), 4, frame.begin() + 26);
        std::copy_n(segment.to.bytes.begin(), 4, frame.begin() + 30);
        put16(frame, 24, 0);
        put16(frame, 24, 0xffff ^ sum_of(Bytes{frame}.subspan(14, header)));
    }
    put16(frame, tcp, segment.from_port);
    put16(frame, tcp + 2, segment.to_port);
    put16(frame, tcp + 4, 0);
    put16(frame, tcp + 6, segment.sequence);
    frame[tcp + 13] = segment.flags;
    put16(frame, tcp + 16, 0);
    put16(frame, tcp + 16, 0xffff ^ segment_sum(frame));
    REQUIRE(segment_sum(frame) == 0xffff);
    return frame;
}

Frame out(NameStreams& streams, const Segment& segment)
{
    const Frame frame = make(segment);
    return streams.outward(frame, parse(frame));
}

/// A segment that comes back from a server.
Segment from(const Address& server, unsigned port = 4000)
{
    return {server, server.v6 ? guest.guest6 : guest.guest4, 53, port, ack, 1, 9, 0};
}

Address destination_of(const Frame& frame)
{
    return parse(frame).destination;
}

}  // namespace

TEST_CASE("names by TCP: only the address changes, and the checksums stay right")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53"), server("2001::53")});
    for (const bool v6 : {false, true})
        for (const std::size_t payload : {0U, 1U, 5U, 1400U})
            for (const std::size_t options : {0U, 12U}) {
                if (v6 && options != 0)
                    continue;
                const Address& to = v6 ? server6 : server4;
                const Segment segment{v6 ? guest.guest6 : guest.guest4,
                                      v6 ? guest.dns6 : guest.dns4,
                                      4000,
                                      53,
                                      syn,
                                      77,
                                      payload,
                                      options};
                const Frame frame = out(streams, segment);
                Segment expected = segment;
                expected.to = to;
                CHECK(frame == make(expected));
                Segment back = from(to);
                back.payload = payload;
                back.options = options;
                const Frame inward = streams.inward(make(back));
                back.from = v6 ? guest.dns6 : guest.dns4;
                CHECK(inward == make(back));
            }
}

TEST_CASE("names by TCP: a checksum that was wrong stays wrong")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53")});
    Frame frame = make({});
    frame.back() ^= 1;
    const Frame sent = streams.outward(frame, parse(frame));
    REQUIRE_FALSE(sent.empty());
    CHECK(segment_sum(sent) != 0xffff);
}

TEST_CASE("names by TCP: every pair of addresses keeps the sum, also where it is nearly all ones")
{
    for (const Address& before : {ipv4(0, 0, 0, 0), ipv4(255, 255, 255, 255), ipv4(10, 0, 2, 3)})
        for (const Address& after : {ipv4(0, 0, 0, 1), ipv4(255, 255, 0, 0), ipv4(127, 0, 0, 53)}) {
            Segment segment;
            segment.to = before;
            Frame frame = make(segment);
            replace_destination(frame, parse(frame), after);
            CHECK(destination_of(frame) == after);
            CHECK(segment_sum(frame) == 0xffff);
            CHECK(sum_of(Bytes{frame}.subspan(14, 20)) == 0xffff);
        }
}

TEST_CASE("names by TCP: the first server of a family that can be used is taken")
{
    NameStreams streams;
    CHECK(out(streams, {}).empty());
    streams.set_servers({server("2001::53")});
    CHECK(out(streams, {}).empty());
    // libslirp's own network, a link, another port: not those.
    streams.set_servers({server("10.0.2.3"), server("fe80::1"), server("fd00::3"),
                         server("192.0.2.1", 5353), server("127.0.0.53"), server("192.0.2.53"),
                         server("2001::53"), server("2001::54")});
    CHECK(destination_of(out(streams, {})) == other4);
    Segment six;
    six.from = guest.guest6;
    six.to = guest.dns6;
    CHECK(destination_of(out(streams, six)) == server6);
}

TEST_CASE("names by TCP: a connection keeps its server, and a new one gets the new one")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53")});
    CHECK(destination_of(out(streams, {})) == server4);
    streams.set_servers({server("127.0.0.53")});
    Segment more;
    more.flags = ack;
    CHECK(destination_of(out(streams, more)) == server4);
    CHECK(destination_of(out(streams, {})) == server4);  // Sent again.
    CHECK_FALSE(streams.inward(make(from(server4))).empty());
    CHECK(streams.inward(make(from(other4))).empty());
    // The same port, for another connection.
    Segment fresh;
    fresh.sequence = 78;
    CHECK(destination_of(out(streams, fresh)) == other4);
    CHECK_FALSE(streams.inward(make(from(other4))).empty());
    Segment elsewhere;
    elsewhere.from_port = 4001;
    CHECK(destination_of(out(streams, elsewhere)) == other4);
    // Without servers what runs goes on, and nothing begins.
    streams.set_servers({});
    CHECK(destination_of(out(streams, more)) == other4);
    elsewhere.from_port = 4002;
    CHECK(out(streams, elsewhere).empty());
}

TEST_CASE("names by TCP: what began no connection is not passed on")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53")});
    for (const std::uint8_t flags : {ack, std::uint8_t{syn | ack}, std::uint8_t{4}}) {
        Segment segment;
        segment.flags = flags;
        CHECK(out(streams, segment).empty());
    }
    CHECK(streams.connections() == 0);
    Frame shorter = make({});
    put16(shorter, 16, 20 + 19);  // A header that is cut off.
    CHECK(streams.outward(shorter, parse(shorter)).empty());
}

TEST_CASE("names by TCP: other frames of libslirp's stay as they are")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53")});
    REQUIRE_FALSE(out(streams, {}).empty());
    REQUIRE_FALSE(streams.inward(make(from(server4))).empty());
    Segment segment = from(server4);
    segment.from_port = 54;
    CHECK(streams.inward(make(segment)).empty());
    CHECK(streams.inward(make(from(server4, 4001))).empty());
    CHECK(streams.inward(make(from(ipv4(192, 0, 2, 54)))).empty());
    Frame datagram = make(from(server4));
    datagram[23] = protocol_udp;
    CHECK(streams.inward(datagram).empty());
    CHECK(streams.inward(Frame(13, 0)).empty());
    // The sandbox uses the port for the same server by its own address.
    Segment direct;
    direct.to = server4;
    Frame frame = make(direct);
    direct.flags = ack;
    Frame later = make(direct);
    streams.pass(later, parse(later));
    CHECK_FALSE(streams.inward(make(from(server4))).empty());
    streams.pass(frame, parse(frame));
    CHECK(streams.inward(make(from(server4))).empty());
}

TEST_CASE("names by TCP: so many connections are remembered, those that were used last")
{
    NameStreams streams;
    streams.set_servers({server("192.0.2.53")});
    constexpr auto most = static_cast<unsigned>(NameStreams::most_connections);
    Segment segment;
    for (unsigned port = 1; port <= most; ++port) {
        segment.from_port = port;
        REQUIRE_FALSE(out(streams, segment).empty());
    }
    CHECK(streams.connections() == most);
    Segment first;
    first.from_port = 1;
    first.flags = ack;
    CHECK_FALSE(out(streams, first).empty());
    segment.from_port = most + 1;
    REQUIRE_FALSE(out(streams, segment).empty());
    CHECK(streams.connections() == most);
    CHECK_FALSE(out(streams, first).empty());
    first.from_port = 2;
    CHECK(out(streams, first).empty());
}
