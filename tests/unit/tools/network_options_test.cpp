// --net and --host-loopback.

#include <network_options.hpp>

#include <doctest/doctest.h>

using nsbox::Ports;
using nsbox::PublishedPort;
using nsbox::UserNetwork;
using nsbox::tool::NetworkChoice;
using nsbox::tool::parse_host_socket;
using nsbox::tool::parse_network;
using nsbox::tool::parse_place;
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
    CHECK(choice.user->tcp == UserNetwork::Tcp::slirp);
    REQUIRE_FALSE(
        parse_network("user,mtu=1500,link=veth,ipv6=off,outbound=off,required=off", choice));
    CHECK(choice.own);
    CHECK(choice.user->mtu == 1500);
    CHECK(choice.user->link == UserNetwork::Link::veth);
    CHECK_FALSE(choice.user->ipv6);
    CHECK_FALSE(choice.user->outbound);
    CHECK_FALSE(choice.user->end_with_helper);
    REQUIRE_FALSE(parse_network("user,tcp=relay", choice));
    CHECK(choice.user->tcp == UserNetwork::Tcp::relay);
    REQUIRE_FALSE(parse_network("user,tcp=relay,tcp=slirp", choice));
    CHECK(choice.user->tcp == UserNetwork::Tcp::slirp);
}

TEST_CASE("a network that is joined, by each of its names")
{
    using By = nsbox::JoinNetwork::By;
    struct Row {
        const char* text;
        By by;
        const char* name;
        int descriptor;
    };
    const Row rows[] = {
        {"join:/run/netns/x,y", By::path, "/run/netns/x,y", -1},
        {"join:./x", By::path, "./x", -1},
        {"join:box", By::sandbox, "box", -1},
        {"join:0123456789abcdef", By::sandbox, "0123456789abcdef", -1},
        {"join:fd:0", By::descriptor, "fd:0", 0},
        {"join:fd:12", By::descriptor, "fd:12", 12},
    };
    for (const Row& row : rows) {
        NetworkChoice choice;
        choice.user.emplace();
        INFO(row.text);
        REQUIRE_FALSE(parse_network(row.text, choice));
        CHECK_FALSE(choice.own);
        CHECK_FALSE(choice.user);
        REQUIRE(choice.join);
        CHECK(choice.join->by == row.by);
        CHECK(choice.join->name == row.name);
        CHECK(choice.join->descriptor == row.descriptor);
    }
    NetworkChoice choice;
    REQUIRE_FALSE(parse_network("join:box", choice));
    REQUIRE_FALSE(parse_network("none", choice));
    CHECK_FALSE(choice.join);
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
    for (const char* text : {"",
                             "users",
                             "user,",
                             "user,mtu",
                             "user,mtu=",
                             "user,mtu=-1",
                             "user,mtu=1x",
                             "user,link=",
                             "user,tcp=",
                             "user,tcp=on",
                             "user,ipv6=yes",
                             "user,foo=on",
                             "host,x",
                             "join",
                             "join:",
                             "join:fd:",
                             "join:fd:x",
                             "join:fd:-1",
                             "join:fd:1x",
                             "veth,",
                             "veth,link=tap",
                             "veth,required=off",
                             "veth,bridge",
                             "veth,mtu=",
                             "veths"}) {
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
    using Kind = PublishedPort::Kind;
    struct Row {
        const char* text;
        const char* address;
        unsigned outside;
        unsigned inside;
        bool to_loopback;
        Kind kind;
        const char* said;
    };
    const Row rows[] = {
        {"8080:80", "", 8080, 80, false, Kind::tcp, "localhost:8080/tcp leads to port 80"},
        {"0:53/udp", "", 0, 53, false, Kind::udp, "localhost:0/udp leads to port 53"},
        {"0.0.0.0:8080:80/tcp", "0.0.0.0", 8080, 80, false, Kind::tcp,
         "0.0.0.0:8080/tcp leads to port 80"},
        {"[::1]:1:2", "::1", 1, 2, false, Kind::tcp, "[::1]:1/tcp leads to port 2"},
        {"1:localhost:2", "", 1, 2, true, Kind::tcp, "localhost:1/tcp leads to port 2"},
        {"[::]:1:localhost:2/udp", "::", 1, 2, true, Kind::udp, "[::]:1/udp leads to port 2"},
    };
    for (const Row& row : rows) {
        PublishedPort port;
        INFO(row.text);
        REQUIRE_FALSE(parse_published(row.text, port));
        CHECK(port.address == row.address);
        CHECK(port.outside == row.outside);
        CHECK(port.inside == row.inside);
        CHECK(port.to_loopback == row.to_loopback);
        CHECK(port.kind == row.kind);
        CHECK(say_port(port) == row.said);
    }
    for (const char* text :
         {"", "unix:", "unix::80", "unix:/x", "unix:/x:0", "80", ":", "80:", ":80", "a:80", "80:0",
          "80:65536", "80:80/x", "::1:80:80", "80:80/", "localhost:80", "-1:80"}) {
        PublishedPort port;
        INFO(text);
        CHECK(parse_published(text, port));
    }
}

TEST_CASE("unix sockets of the host, either way")
{
    using Kind = PublishedPort::Kind;
    PublishedPort port;
    REQUIRE_FALSE(parse_published("unix:/run/a:b/c:80", port));
    CHECK(port.kind == Kind::unix_socket);
    CHECK(port.path == "/run/a:b/c");
    CHECK(port.inside == 80);
    CHECK_FALSE(port.to_loopback);
    CHECK(say_port(port) == "unix:/run/a:b/c leads to port 80");
    REQUIRE_FALSE(parse_published("unix:c:localhost:80", port));
    CHECK(port.path == "c");
    CHECK(port.to_loopback);
    for (const char* text : {"/run/x:80", "unix:/run/x:80"}) {
        REQUIRE_FALSE(parse_host_socket(text, port));
        CHECK(port.kind == Kind::host_socket);
        CHECK(port.path == "/run/x");
        CHECK(port.inside == 80);
        CHECK(say_port(port) == "port 80 leads to unix:/run/x");
    }
    for (const char* text :
         {"", "80", ":80", "unix::80", "/run/x", "/run/x:", "/run/x:0", "/x:70000"}) {
        INFO(text);
        CHECK(parse_host_socket(text, port));
    }
}

TEST_CASE("a port is found again by its place on the host")
{
    struct Row {
        const char* text;
        const char* said;
    };
    for (const Row& row :
         {Row{"8080", "localhost:8080/tcp"}, Row{"8080:80", "localhost:8080/tcp"},
          Row{"8080/udp", "localhost:8080/udp"}, Row{"[::1]:8080", "[::1]:8080/tcp"},
          Row{"0.0.0.0:8080/tcp", "0.0.0.0:8080/tcp"}, Row{"unix:/x", "unix:/x"},
          Row{"unix:/x:80", "unix:/x"}}) {
        INFO(row.text);
        PublishedPort port;
        REQUIRE_FALSE(parse_place(row.text, port));
        CHECK(place_of(port) == row.said);
    }
    for (const char* text : {"", "x", "unix:", "80/x", "::1:80"}) {
        INFO(text);
        PublishedPort port;
        CHECK(parse_place(text, port));
    }
}
