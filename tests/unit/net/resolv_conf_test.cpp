// The host's list of name servers.

#include "net/name_files.hpp"
#include "net/resolv_conf.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>

using nsbox::net::parse_resolv_conf;
using nsbox::net::ResolvConf;
using nsbox::net::user::SocketAddress;

namespace {

std::string text_of(const SocketAddress& server)
{
    char text[INET6_ADDRSTRLEN];
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&server.storage);
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&server.storage);
    const bool is_v6 = server.storage.ss_family == AF_INET6;
    CHECK(ntohs(is_v6 ? v6->sin6_port : v4->sin_port) == 53);
    CHECK(server.size == (is_v6 ? sizeof *v6 : sizeof *v4));
    const void* const address = is_v6 ? static_cast<const void*>(&v6->sin6_addr) : &v4->sin_addr;
    return ::inet_ntop(server.storage.ss_family, address, text, sizeof text);
}

}  // namespace

TEST_CASE("servers, search domains and options are read")
{
    const ResolvConf conf = parse_resolv_conf("# nameserver 192.0.2.7\n"
                                              "nameserver 192.0.2.1\n"
                                              "  nameserver\t2001:db8::1  # the second\r\n"
                                              "domain old.example\n"
                                              "search a.example b.example\n"
                                              "options edns0 trust-ad\n"
                                              "options ndots:2\n"
                                              "nameserver fe80::1%lo");
    REQUIRE(conf.servers.size() == 3);
    CHECK(text_of(conf.servers[0]) == "192.0.2.1");
    CHECK(text_of(conf.servers[1]) == "2001:db8::1");
    CHECK(text_of(conf.servers[2]) == "fe80::1");
    CHECK(reinterpret_cast<const sockaddr_in6*>(&conf.servers[2].storage)->sin6_scope_id == 1);
    CHECK(conf.search == std::vector<std::string>{"a.example", "b.example"});
    CHECK(conf.options == std::vector<std::string>{"edns0", "trust-ad", "ndots:2"});
}

TEST_CASE("what is no address is passed over")
{
    for (const char* text : {"", "\n\n", "nameserver", "nameserver \n", "nameserver example",
                             "nameserver 300.1.2.3", "nameserver 1.2.3", "server 192.0.2.1"})
        CHECK(parse_resolv_conf(text).servers.empty());
    CHECK(parse_resolv_conf("nameserver x\nnameserver 192.0.2.1").servers.size() == 1);
}

TEST_CASE("a list without end has one here")
{
    std::string text;
    for (int i = 0; i < 100; ++i)
        text += "nameserver 192.0.2.1\n";
    CHECK(parse_resolv_conf(text).servers.size() == 8);
}

TEST_CASE("without a server of the sandbox's own those of the host are named that it can reach")
{
    const ResolvConf host = parse_resolv_conf("nameserver 127.0.0.53\nnameserver 192.0.2.1\n"
                                              "nameserver ::1\nnameserver 2001:db8::1\n");
    CHECK(nsbox::net::resolv_conf_for(host, "") ==
          "nameserver 192.0.2.1\nnameserver 2001:db8::1\n");
}

TEST_CASE("the sandbox's file names its own server and keeps the host's search list")
{
    const ResolvConf host = parse_resolv_conf("nameserver 192.0.2.1\nsearch a.example b.example\n"
                                              "options ndots:2 edns0\n");
    CHECK(nsbox::net::resolv_conf_for(host, "10.0.2.3") ==
          "nameserver 10.0.2.3\nsearch a.example b.example\noptions ndots:2 edns0\n");
    CHECK(nsbox::net::resolv_conf_for({}, "10.0.2.3") == "nameserver 10.0.2.3\n");
    CHECK(nsbox::net::hosts_for("box") ==
          "127.0.0.1 localhost box\n::1 localhost ip6-localhost ip6-loopback box\n");
    CHECK(nsbox::net::hosts_for("localhost") == nsbox::net::hosts_for(""));
}
