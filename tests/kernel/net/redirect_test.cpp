#include "net/user/redirect.hpp"

#include "net/user/address.hpp"
#include "tests/kernel/net/lab.hpp"
#include "tests/kernel/support/needs.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using namespace nsbox::net::user;

namespace {

constexpr std::uint16_t port = 8000;

/// An interface with addresses and default routes, behind which there is nothing.
void add_interface(const Lab& lab)
{
    lab.inside([] {
        for (const char* line :
             {"ip link add eth0 type veth peer name far0", "ip link set far0 up",
              "ip addr add 10.0.2.100/24 dev eth0", "ip addr add fd00::100/64 dev eth0 nodad",
              "ip link set eth0 up", "ip route add default via 10.0.2.2",
              "ip -6 route add default via fd00::2"})
            if (std::system(line) != 0)
                ::_exit(71);
    });
}

Redirection redirected(const Lab& lab, bool ipv6, Say& say)
{
    Result<Redirection> result;
    lab.inside([&] { result = redirect_tcp(ipv6); });
    say("redirected", result ? "yes" : result.error().message());
    return result ? std::move(*result) : Redirection{};
}

/// Where the next connection at a listener went; "nothing" where none comes.
std::string arrival(const sys::Fd& listener, int milliseconds = 20000)
{
    pollfd poller{listener.get(), POLLIN, 0};
    if (::poll(&poller, 1, milliseconds) <= 0)
        return "nothing";
    const sys::Fd socket{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    Destination found;
    if (!original_destination(socket.get(), found))
        return std::strerror(errno);
    std::string text;
    for (std::size_t i = 0; i < found.address.size(); ++i)
        text += (i == 0 ? "" : ".") + std::to_string(found.address.bytes[i]);
    return text + " " + std::to_string(found.port);
}

/// A segment of TCP that fits no connection: "sent" or the errno's name.
std::string send_stray()
{
    const sys::Fd raw{::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP)};
    const unsigned char segment[20] = {0x9c, 0x43, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x12};
    const SocketAddress to = address_of("198.51.100.9", 0);
    return ::sendto(raw.get(), segment, sizeof segment, 0, to.get(), to.size) > 0
               ? "sent"
               : ::strerrorname_np(errno);
}

}  // namespace

TEST_CASE("redirect: a segment that fits no connection does not leave to be answered by a reset")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        add_interface(lab);
        lab.inside([&] { say("before", send_stray()); });
        const Redirection redirection = redirected(lab, false, say);
        lab.inside([&] { say("with", send_stray()); });
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["before"] == "sent");
    CHECK(ended["redirected"] == "yes");
    CHECK(ended["with"] == "EPERM");
}

TEST_CASE("redirect: what would leave the namespace arrives with the destination that it had")
{
    NEEDS("nftables");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        add_interface(lab);
        const Redirection redirection = redirected(lab, true, say);
        const sys::Fd& four = redirection.listeners.at(0);
        const sys::Fd& six = redirection.listeners.at(1);
        lab.inside([&] {
            say("v4", attempt(address_of("198.51.100.9", 443)));
            say("v4 seen", arrival(four));
            say("v4, on the link", attempt(address_of("10.0.2.2", 22)));
            say("v4, on the link seen", arrival(four));
            say("v6", attempt(address_of("2001:db8::9", 443)));
            say("v6 seen", arrival(six));
            say("direct", attempt(bound_address(four.get())));
            say("direct seen", arrival(four));
            say("port", bound_address(four.get()).port());
        });
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["redirected"] == "yes");
    for (const std::string what : {"v4", "v4, on the link", "v6", "direct"})
        CHECK(ended[what] == "connected");
    CHECK(ended["v4 seen"] == "198.51.100.9 443");
    CHECK(ended["v4, on the link seen"] == "10.0.2.2 22");
    CHECK(ended["v6 seen"] == "32.1.13.184.0.0.0.0.0.0.0.0.0.0.0.9 443");
    CHECK(ended["direct seen"] == "127.0.0.1 " + ended["port"]);
}

TEST_CASE("redirect: the namespace's own addresses, and the other family, stay what they are")
{
    NEEDS("nftables");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        add_interface(lab);
        const Redirection redirection = redirected(lab, false, say);
        say("listeners", static_cast<long>(redirection.listeners.size()));
        const sys::Fd& four = redirection.listeners.at(0);
        lab.inside([&] {
            // Nobody listens: a redirected one would have been taken.
            for (const std::string address : {"127.0.0.1", "127.9.9.9", "10.0.2.100", "::1"})
                say(address, attempt(address_of(address, port)));
            const sys::Fd own = listening(address_of("10.0.2.100", port));
            say("a service", attempt(address_of("10.0.2.100", port)));
            const sys::Fd six{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
            const SocketAddress far = address_of("2001:db8::9", port);
            say("v6", ::connect(six.get(), far.get(), far.size) == 0 ? "connected"
                                                                     : std::strerror(errno));
            say("seen", arrival(four, 0));
        });
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["redirected"] == "yes");
    CHECK(ended["listeners"] == "1");
    for (const std::string address : {"127.0.0.1", "127.9.9.9", "10.0.2.100", "::1"})
        CHECK(ended[address] == "ECONNREFUSED");
    CHECK(ended["a service"] == "connected");
    CHECK(ended["v6"] == std::strerror(EINPROGRESS));
    CHECK(ended["seen"] == "nothing");
}
