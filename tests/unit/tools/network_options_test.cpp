// --net and --host-loopback.

#include <network_options.hpp>

#include <doctest/doctest.h>

using nsbox::Ports;
using nsbox::PublishedPort;
using nsbox::UserNetwork;
using nsbox::tool::NetworkChoice;
using nsbox::tool::parse_network;
using nsbox::tool::parse_ports;
using nsbox::tool::parse_published;
using nsbox::tool::say_port;

TEST_CASE("a mode, with its settings")
{
    NetworkChoice choice;
    REQUIRE_FALSE(parse_network("host", choice));
    CHECK_FALSE(choice.own);
    REQUIRE_FALSE(parse_network("none", choice));
    CHECK(choice.own);
    CHECK_FALSE(choice.user);
    REQUIRE_FALSE(parse_network("user", choice));
    REQUIRE(choice.user);
    CHECK(choice.user->mtu == 16384);
    CHECK(choice.user->outbound);
    REQUIRE_FALSE(
        parse_network("user,mtu=1500,link=veth,ipv6=off,outbound=off,required=off", choice));
    CHECK(choice.own);
    CHECK(choice.user->mtu == 1500);
    CHECK(choice.user->link == UserNetwork::Link::veth);
    CHECK_FALSE(choice.user->ipv6);
    CHECK_FALSE(choice.user->outbound);
    CHECK_FALSE(choice.user->end_with_helper);
}

TEST_CASE("a link to the host, with its settings")
{
    NetworkChoice choice;
    REQUIRE_FALSE(parse_network("veth", choice));
    CHECK(choice.own);
    CHECK_FALSE(choice.user);
    REQUIRE(choice.veth);
    CHECK(choice.veth->mtu == 1500);
    CHECK((choice.veth->ipv6 && choice.veth->outbound && choice.veth->names));
    CHECK(choice.veth->bridge.empty());
    REQUIRE_FALSE(parse_network("veth,bridge=br0,address=10.1.2.3/24,gateway=10.1.2.1,mtu=9000,"
                                "ipv6=off,outbound=off,names=off",
                                choice));
    CHECK(choice.veth->mtu == 9000);
    CHECK_FALSE((choice.veth->ipv6 || choice.veth->outbound || choice.veth->names));
    CHECK(choice.veth->bridge == "br0");
    CHECK(choice.veth->address == "10.1.2.3/24");
    CHECK(choice.veth->gateway == "10.1.2.1");
    REQUIRE_FALSE(parse_network("none", choice));
    CHECK_FALSE(choice.veth);
}

TEST_CASE("what is no mode is refused with the reason")
{
    for (const char* text :
         {"", "users", "user,", "user,mtu", "user,mtu=", "user,mtu=-1", "user,mtu=1x",
          "user,link=", "user,ipv6=yes", "user,foo=on", "host,x", "veth,", "veth,link=tap",
          "veth,required=off", "veth,bridge", "veth,mtu=", "veths"}) {
        NetworkChoice choice;
        INFO(text);
        const auto wrong = parse_network(text, choice);
        REQUIRE(wrong);
        CHECK(wrong->find("--net") == 0);
    }
}

TEST_CASE("ports and ranges of them")
{
    std::vector<Ports> ports;
    REQUIRE_FALSE(parse_ports("80,8000-8010", ports));
    REQUIRE(ports.size() == 2);
    CHECK(ports[0].first == 80);
    CHECK(ports[0].last == 80);
    CHECK(ports[1].last == 8010);
    ports.clear();
    REQUIRE_FALSE(parse_ports("all", ports));
    CHECK(ports[0].first == 1);
    CHECK(ports[0].last == 65535);
    for (const char* text : {"", "0", "65536", "80,", "9-8", "-", "1-", "-5", "http"}) {
        INFO(text);
        CHECK(parse_ports(text, ports));
    }
}

TEST_CASE("a published port, with the host's address or without")
{
    using Protocol = PublishedPort::Protocol;
    struct Row {
        const char* text;
        const char* address;
        unsigned outside;
        unsigned inside;
        bool to_loopback;
        Protocol protocol;
        const char* said;
    };
    const Row rows[] = {
        {"8080:80", "", 8080, 80, false, Protocol::tcp, "localhost:8080 leads to port 80/tcp"},
        {"0:53/udp", "", 0, 53, false, Protocol::udp, "localhost:0 leads to port 53/udp"},
        {"0.0.0.0:8080:80/tcp", "0.0.0.0", 8080, 80, false, Protocol::tcp,
         "0.0.0.0:8080 leads to port 80/tcp"},
        {"[::1]:1:2", "::1", 1, 2, false, Protocol::tcp, "[::1]:1 leads to port 2/tcp"},
        {"1:localhost:2", "", 1, 2, true, Protocol::tcp, "localhost:1 leads to port 2/tcp"},
        {"[::]:1:localhost:2/udp", "::", 1, 2, true, Protocol::udp, "[::]:1 leads to port 2/udp"},
    };
    for (const Row& row : rows) {
        PublishedPort port;
        INFO(row.text);
        REQUIRE_FALSE(parse_published(row.text, port));
        CHECK(port.address == row.address);
        CHECK(port.outside == row.outside);
        CHECK(port.inside == row.inside);
        CHECK(port.to_loopback == row.to_loopback);
        CHECK(port.protocol == row.protocol);
        CHECK(say_port(port) == row.said);
    }
    for (const char* text : {"", "80", ":", "80:", ":80", "a:80", "80:0", "80:65536", "80:80/x",
                             "::1:80:80", "80:80/", "localhost:80", "-1:80"}) {
        PublishedPort port;
        INFO(text);
        CHECK(parse_published(text, port));
    }
}
