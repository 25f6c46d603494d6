// Where the relay of TCP connections leads, by the same rules as frames.

#include "net/user/tcp_relay.hpp"

#include "net/user/guest.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <netinet/in.h>

using namespace nsbox::net::user;

namespace {

const GuestNetwork guest;
const Address far4 = ipv4(198, 51, 100, 9);
const Address far6 = ipv6(0x2001, 9);

SocketAddress server(std::uint16_t port)
{
    SocketAddress result;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(0x7f000035);
    result.size = sizeof address;
    std::memcpy(&result.storage, &address, sizeof address);
    return result;
}

/// "nowhere" if a connection may not be.
std::string target(const Rules& rules, const Address& address, std::uint16_t port,
                   const SocketAddress* server = nullptr)
{
    const SocketAddress found = target_of({address, port}, rules, server);
    return found.size == 0 ? "nowhere" : found.text();
}

}  // namespace

TEST_CASE("tcp relay: the outside is what was asked for, unless it is not to be")
{
    Rules rules;
    CHECK(target(rules, far4, 443) == "198.51.100.9:443");
    CHECK(target(rules, far6, 443) == "[2001::9]:443");
    rules.outbound = false;
    CHECK(target(rules, far4, 443) == "nowhere");
    CHECK(target(rules, far6, 443) == "nowhere");
}

TEST_CASE("tcp relay: the host is out of reach, and the gateway leads to its open ports")
{
    Rules rules;
    rules.host = {{far4, 32}, {far6, 128}};
    CHECK(target(rules, far4, 80) == "nowhere");
    CHECK(target(rules, far6, 80) == "nowhere");
    CHECK(target(rules, ipv4(198, 51, 100, 10), 80) == "198.51.100.10:80");
    Address mapped = ipv6(0, 1);
    mapped.bytes[10] = mapped.bytes[11] = 0xff;
    mapped.bytes[12] = 127;
    for (const Address& address :
         {ipv4(127, 0, 0, 1), ipv4(127, 0, 0, 53), ipv4(0, 0, 0, 0), ipv4(224, 0, 0, 1),
          ipv4(255, 255, 255, 255), ipv6(0, 0), ipv6(0, 1), ipv6(0xfe80, 7), ipv6(0xff02, 1),
          mapped, ipv4(10, 0, 2, 9), guest.guest4, guest.guest6, guest.gateway4, guest.gateway6}) {
        INFO(int{address.v6}, " ", int{address.bytes[0]}, " ", int{address.bytes[3]});
        CHECK(target(rules, address, 80) == "nowhere");
    }
    rules.host_loopback.set(80);
    for (const bool outbound : {true, false}) {
        rules.outbound = outbound;
        CHECK(target(rules, guest.gateway4, 80) == "127.0.0.1:80");
        CHECK(target(rules, guest.gateway6, 80) == "[::1]:80");
        CHECK(target(rules, guest.gateway4, 81) == "nowhere");
        CHECK(target(rules, ipv4(127, 0, 0, 1), 80) == "nowhere");
    }
}

TEST_CASE("tcp relay: the name server's address leads to the host's server")
{
    Rules rules;
    const SocketAddress asked = server(53);
    for (const Address& address : {guest.dns4, guest.dns6}) {
        CHECK(target(rules, address, 53, &asked) == "127.0.0.53:53");
        CHECK(target(rules, address, 54, &asked) == "nowhere");
        CHECK(target(rules, address, 53) == "nowhere");
    }
    rules.outbound = false;
    CHECK(target(rules, guest.dns4, 53, &asked) == "nowhere");
}
