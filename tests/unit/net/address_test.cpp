#include "net/user/address.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <sys/un.h>

using namespace nsbox;

namespace {

template <class T>
net::user::SocketAddress address_of(const T& name)
{
    net::user::SocketAddress address;
    std::memcpy(&address.storage, &name, sizeof name);
    address.size = sizeof name;
    return address;
}

}  // namespace

TEST_CASE("net address: an address is written as people write it")
{
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(8080);
    v4.sin_addr.s_addr = htonl(0x0a000264);
    CHECK(address_of(v4).text() == "10.0.2.100:8080");
    CHECK(address_of(v4).port() == 8080);

    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(1);
    v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    CHECK(address_of(v6).text() == "[::1]:1");
    CHECK(address_of(v6).port() == 1);

    sockaddr_un path{};
    path.sun_family = AF_UNIX;
    CHECK(address_of(path).text() == "a unix socket");
    CHECK(address_of(path).port() == 0);
    CHECK(net::user::SocketAddress{}.text() == "no address");
}

TEST_CASE("net address: a socket's own address, or none")
{
    CHECK(net::user::bound_address(-1).size == 0);
    CHECK(net::user::bound_address(-1).family() == AF_UNSPEC);
}
