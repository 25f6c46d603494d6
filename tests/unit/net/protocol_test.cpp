// What the supervisor tells the network helper, there and back.

#include "net/user/protocol.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <netinet/in.h>

using namespace nsbox::net::user;

namespace {

SocketAddress some_server(std::uint8_t last)
{
    SocketAddress server;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = last;
    server.size = sizeof address;
    std::memcpy(&server.storage, &address, sizeof address);
    return server;
}

}  // namespace

TEST_CASE("a configuration comes back as it was, and no part of one does")
{
    HelperConfig config;
    config.link = {LinkKind::veth, 16384, false, TcpPath::relay};
    config.outbound = false;
    config.host_loopback = {{1, 65535}, {80, 80}};
    config.servers = {some_server(1), some_server(2)};
    config.routed.bridge = "br0";
    config.routed.address = Prefix{ipv4(10, 1, 2, 3), 24};
    const std::string bytes = encode(config);
    HelperConfig got;
    REQUIRE(decode(bytes, got));
    CHECK(got.link.kind == LinkKind::veth);
    CHECK(got.link.mtu == 16384);
    CHECK_FALSE(got.link.ipv6);
    CHECK(got.link.tcp == TcpPath::relay);
    CHECK_FALSE(got.outbound);
    REQUIRE(got.host_loopback.size() == 2);
    CHECK(got.host_loopback[0].last == 65535);
    REQUIRE(got.servers.size() == 2);
    CHECK(got.servers[1].size == sizeof(sockaddr_in));
    CHECK(std::memcmp(&got.servers[1].storage, &config.servers[1].storage, got.servers[1].size) ==
          0);
    CHECK(got.routed.bridge == "br0");
    REQUIRE(got.routed.address);
    CHECK(got.routed.address->address == ipv4(10, 1, 2, 3));
    CHECK(got.routed.address->length == 24);
    CHECK_FALSE(got.routed.gateway);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        HelperConfig part;
        CHECK_FALSE(decode(bytes.substr(0, size), part));
    }
    CHECK_FALSE(decode(bytes + "x", got));
}

TEST_CASE("a report comes back as it was, and no part of one does")
{
    const LinkReport report{LinkKind::routed, true,         TcpPath::relay, "nsbox0001",
                            "10.0.0.2/30",    "fd00::2/64", "10.0.0.1",     ""};
    const std::string bytes = encode_report(report);
    LinkReport got;
    REQUIRE(decode_report(bytes, got));
    CHECK(got.kind == LinkKind::routed);
    CHECK(got.ipv6);
    CHECK(got.tcp == TcpPath::relay);
    CHECK(got.interface == "nsbox0001");
    CHECK(got.address == "10.0.0.2/30");
    CHECK(got.address6 == "fd00::2/64");
    CHECK(got.gateway == "10.0.0.1");
    CHECK(got.name_server.empty());
    for (std::size_t size = 0; size < bytes.size(); ++size)
        CHECK_FALSE(decode_report(bytes.substr(0, size), got));
}

TEST_CASE("a list of servers is no configuration")
{
    const std::string bytes = encode_servers({some_server(7)});
    std::vector<SocketAddress> servers;
    REQUIRE(decode_servers(bytes, servers));
    CHECK(servers.size() == 1);
    HelperConfig config;
    CHECK_FALSE(decode(bytes, config));
    CHECK_FALSE(decode_servers(encode(HelperConfig{}), servers));
}

TEST_CASE("a forward comes back as it was")
{
    const std::string bytes =
        encode_forward({7, ForwardKind::unix_to_tcp, some_server(9), 1, true});
    ForwardOrder forward;
    REQUIRE(decode_forward(bytes, forward));
    CHECK(forward.number == 7);
    CHECK(forward.kind == ForwardKind::unix_to_tcp);
    CHECK(forward.sockets == 1);
    CHECK(forward.is_awaited);
    CHECK(forward.inside.size == sizeof(sockaddr_in));
    HelperConfig config;
    CHECK_FALSE(decode(bytes, config));
    for (std::size_t size = 0; size < bytes.size(); ++size)
        CHECK_FALSE(decode_forward(bytes.substr(0, size), forward));
}

TEST_CASE("a message of two numbers is told from others, and from half a one")
{
    const std::string bytes = encode_pair(Order::connected, 3, 111);
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    REQUIRE(decode_pair(bytes, Order::connected, first, second));
    CHECK(first == 3);
    CHECK(second == 111);
    CHECK_FALSE(decode_pair(bytes, Order::renewed, first, second));
    CHECK_FALSE(decode_pair(bytes.substr(0, 16), Order::connected, first, second));
}
