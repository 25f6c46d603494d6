#include "net/user/forwards.hpp"

#include "net/user/socket.hpp"
#include "tests/kernel/net/lab.hpp"
#include "tests/kernel/support/needs.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <poll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using net::user::Forward;
using net::user::ForwardKind;

namespace {

constexpr std::size_t megabyte = std::size_t{1024} * 1024;
constexpr std::uint16_t host_port = 8080;
constexpr std::uint16_t inner_port = 80;
// Twenty looks in a second, and some for what is late.
constexpr long turns_of_looks = 60;

std::string text(bool value)
{
    return value ? "yes" : "no";
}

Forward forward_of(ForwardKind kind, const net::user::SocketAddress& inside)
{
    Forward forward;
    forward.kind = kind;
    forward.inside = inside;
    return forward;
}

Forward tcp_forward(const net::user::SocketAddress& outside, const net::user::SocketAddress& inside)
{
    Forward forward = forward_of(ForwardKind::tcp, inside);
    forward.outside.push_back(bound(outside));
    return forward;
}

Forward udp_forward(const net::user::SocketAddress& outside, const net::user::SocketAddress& inside)
{
    Forward forward = forward_of(ForwardKind::udp, inside);
    forward.outside.push_back(bound(outside, SOCK_DGRAM));
    return forward;
}

sys::Fd listening_inside(const Lab& lab, const net::user::SocketAddress& address)
{
    sys::Fd socket;
    lab.inside([&] { socket = listening(address); });
    return socket;
}

/// A UDP service inside that answers each datagram with its own bytes, until it gets "end".
class Echo {
public:
    Echo(const Lab& lab, const net::user::SocketAddress& address)
    {
        lab.inside([&] { socket_ = bound(address, SOCK_DGRAM); });
        thread_ = std::thread{[this] { serve(); }};
    }
    Echo(const Echo&) = delete;
    Echo& operator=(const Echo&) = delete;
    ~Echo()
    {
        ::shutdown(socket_.get(), SHUT_RDWR);  // Wakes the thread; the socket itself stays.
        thread_.join();
    }

private:
    void serve()
    {
        std::string bytes(65536, '\0');
        for (;;) {
            sockaddr_storage from{};
            socklen_t size = sizeof from;
            auto* const name = reinterpret_cast<sockaddr*>(&from);
            const ssize_t got =
                ::recvfrom(socket_.get(), bytes.data(), bytes.size(), 0, name, &size);
            if (got < 0 || size == 0)
                return;
            ::sendto(socket_.get(), bytes.data(), static_cast<std::size_t>(got), 0, name, size);
        }
    }

    sys::Fd socket_;
    std::thread thread_;
};

/// Sends a datagram until its echo comes: datagrams may get lost while a machine is busy.
bool echoes(const sys::Fd& socket, const std::string& bytes)
{
    std::string answer(65536, '\0');
    return eventually([&] {
        ::send(socket.get(), bytes.data(), bytes.size(), 0);
        pollfd poller{socket.get(), POLLIN, 0};
        if (::poll(&poller, 1, 1000) <= 0)
            return false;
        const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
        return got >= 0 && answer.compare(0, static_cast<std::size_t>(got), bytes) == 0;
    });
}

/// A directory for unix sockets.
void enter_scratch()
{
    if (::mount("scratch", "/tmp", "tmpfs", 0, nullptr) < 0 || ::chdir("/tmp") < 0)
        ::_exit(71);
}

}  // namespace

TEST_CASE(
    "forwards: a TCP port is refused, accepted and refused again as its service comes and goes")
{
    NEEDS("netns");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto live = [&](const std::string& name, const std::string& outside,
                              const std::string& inside, const std::string& service) {
            const net::user::SocketAddress target = address_of(outside, host_port);
            const auto id = engine.add(tcp_forward(target, address_of(inside, inner_port)));
            say(name + ": added", text(id != 0));
            say(name + ": before", attempt(target));
            for (int round = 0; round < 2; ++round) {
                const std::string now = name + (round == 0 ? ", first" : ", second");
                sys::Fd listener = listening_inside(lab, address_of(service, inner_port));
                say(now + ": accepted", becomes(target, "connected"));
                (void)accepted(listener);  // The one of the line above.
                const sys::Fd client = connected_to(target);
                const sys::Fd server = accepted(listener);
                say(now + ": bytes", exchange(client, server, megabyte));
                listener.reset();
                say(now + ": refused", becomes(target, "ECONNREFUSED"));
            }
            say(name + ": removed", text(engine.remove(id)));
        };
        live("v4", "127.0.0.1", "127.0.0.1", "127.0.0.1");
        live("v4 wildcard", "127.0.0.1", "127.0.0.1", "0.0.0.0");
        live("v6", "::1", "::1", "::1");
        live("v6 to v4", "::1", "127.0.0.1", "127.0.0.1");
        live("v4 to v6", "127.0.0.1", "::1", "::");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string name : {"v4", "v4 wildcard", "v6", "v6 to v4", "v4 to v6"}) {
        CAPTURE(name);
        CHECK(ended[name + ": added"] == "yes");
        CHECK(ended[name + ": before"] == "ECONNREFUSED");
        for (const std::string& now : {name + ", first", name + ", second"}) {
            CHECK(ended[now + ": accepted"] == "connected");
            CHECK(ended[now + ": bytes"] == "good");
            CHECK(ended[now + ": refused"] == "ECONNREFUSED");
        }
        CHECK(ended[name + ": removed"] == "yes");
    }
}

TEST_CASE("forwards: only a listener that would get the connection counts")
{
    NEEDS("netns");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port)));
        const auto try_it = [&](const std::string& name, const sys::Fd& listener) {
            (void)listener;
            const int before = lab.made;
            // Whoever is refused now has been so by a look that saw the listener.
            std::this_thread::sleep_for(std::chrono::milliseconds{300});
            say(name, attempt(target));
            say(name + ": made inside", lab.made - before);
        };
        try_it("another address", listening_inside(lab, address_of("127.0.0.2", inner_port)));
        try_it("another port", listening_inside(lab, address_of("127.0.0.1", inner_port + 1)));
        // bound() makes sockets of IPv6 that serve nothing but IPv6.
        try_it("IPv6 only", listening_inside(lab, address_of("::", inner_port)));
        const auto both = [&] {
            sys::Fd socket;
            lab.inside([&] {
                socket = sys::Fd{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
                net::user::set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
                const net::user::SocketAddress any = address_of("::", inner_port);
                ::bind(socket.get(), any.get(), any.size);
                ::listen(socket.get(), 10);
            });
            return socket;
        };
        const sys::Fd listener = both();
        say("IPv6 and IPv4", becomes(target, "connected"));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["another address"] == "ECONNREFUSED");
    CHECK(ended["another port"] == "ECONNREFUSED");
    CHECK(ended["IPv6 only"] == "ECONNREFUSED");
    CHECK(ended["IPv6 only: made inside"] == "0");
    CHECK(ended["IPv6 and IPv4"] == "connected");
}

TEST_CASE("forwards: a service of the other address is reached while there is none at the first")
{
    NEEDS("netns");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        Forward forward = tcp_forward(target, address_of("127.0.0.1", inner_port));
        forward.otherwise = address_of("::1", inner_port);
        engine.add(std::move(forward));
        say("nobody", attempt(target));
        // Whose connection it is: the one that can be accepted.
        const auto arrives = [&](const sys::Fd& listener) {
            const sys::Fd client = connected_to(target);
            const sys::Fd server = client ? accepted(listener) : sys::Fd{};
            return text(server && send_all(client, "x") && receive_exactly(server, 1) == "x");
        };
        sys::Fd second = listening_inside(lab, address_of("::1", inner_port));
        say("the second alone", becomes(target, "connected"));
        say("the second alone: attempt", text(static_cast<bool>(accepted(second))));
        say("the second alone: bytes", arrives(second));
        const sys::Fd first = listening_inside(lab, address_of("127.0.0.1", inner_port));
        say("the first", text(eventually([&] {
                const sys::Fd client = connected_to(target);
                pollfd fd{first.get(), POLLIN, 0};
                return ::poll(&fd, 1, 200) > 0;
            })));
        say("the first: attempt", text(static_cast<bool>(accepted(first))));
        say("the first: bytes", arrives(first));
        second.reset();
        say("the first alone", arrives(first));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["nobody"] == "ECONNREFUSED");
    CHECK(ended["the second alone"] == "connected");
    CHECK(ended["the second alone: attempt"] == "yes");
    CHECK(ended["the second alone: bytes"] == "yes");
    CHECK(ended["the first"] == "yes");
    CHECK(ended["the first: attempt"] == "yes");
    CHECK(ended["the first: bytes"] == "yes");
    CHECK(ended["the first alone"] == "yes");
}

TEST_CASE("forwards: a port that the kernel chose is still the same after the service was away")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        Forward forward =
            tcp_forward(address_of("127.0.0.1", 0), address_of("127.0.0.1", inner_port));
        const net::user::SocketAddress target = net::user::bound_address(forward.outside[0].get());
        engine.add(std::move(forward));
        for (const std::string round : {"first", "second", "third"}) {
            const sys::Fd listener = listening_inside(lab, address_of("0.0.0.0", inner_port));
            say(round, becomes(target, "connected"));
            ::shutdown(listener.get(), SHUT_RD);
            say(round + ": gone", becomes(target, "ECONNREFUSED"));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string round : {"first", "second", "third"}) {
        CHECK(ended[round] == "connected");
        CHECK(ended[round + ": gone"] == "ECONNREFUSED");
    }
}

TEST_CASE("forwards: many forwards share one look, and looking is all that an idle one does")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        constexpr std::uint16_t count = 100;
        std::vector<sys::Fd> listeners;
        for (std::uint16_t i = 0; i < count; ++i)
            engine.add(tcp_forward(address_of("127.0.0.1", host_port + i),
                                   address_of("127.0.0.1", 1000 + i)));
        for (std::uint16_t i = 0; i < count; i += 2)
            listeners.push_back(listening_inside(lab, address_of("127.0.0.1", 1000 + i)));
        long good = 0;
        for (std::uint16_t i = 0; i < count; ++i) {
            const net::user::SocketAddress target = address_of("127.0.0.1", host_port + i);
            const std::string wanted = i % 2 == 0 ? "connected" : "ECONNREFUSED";
            good += becomes(target, wanted) == wanted ? 1 : 0;
        }
        say("good", good);
        say("at rest", text(engine.turns_at_rest() <= turns_of_looks));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["good"] == "100");
    CHECK(ended["at rest"] == "yes");
}

TEST_CASE("forwards: where the kernel cannot tell who listens, a connection to nobody is reset")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        lab.has_diag = false;
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        say("added",
            text(engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port))) != 0));
        const sys::Fd client = connected_to(target);
        say("nobody", next_of(client));
        const sys::Fd listener = listening_inside(lab, address_of("127.0.0.1", inner_port));
        const sys::Fd other = connected_to(target);
        const sys::Fd server = accepted(listener);
        say("somebody", exchange(other, server, megabyte));
        say("at rest", text(engine.turns_at_rest() <= 3));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["added"] == "yes");
    CHECK(ended["nobody"] == "ECONNRESET");
    CHECK(ended["somebody"] == "good");
    CHECK(ended["at rest"] == "yes");
}

TEST_CASE("forwards: a removed forward refuses, and what runs through it goes on")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        const sys::Fd listener = listening_inside(lab, address_of("0.0.0.0", inner_port));
        const auto id = engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port)));
        const sys::Fd client = connected_to(target);  // The service was there before.
        const sys::Fd server = accepted(listener);
        say("connected", text(static_cast<bool>(client)));
        say("removed", text(engine.remove(id)));
        say("after", attempt(target));
        say("goes on", exchange(client, server, 4 * megabyte));
        say("again", text(engine.remove(id)));
        say("why", static_cast<long>(engine.error.err));
        engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port)));
        say("added again", attempt(target));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["connected"] == "yes");
    CHECK(ended["removed"] == "yes");
    CHECK(ended["after"] == "ECONNREFUSED");
    CHECK(ended["goes on"] == "good");
    CHECK(ended["again"] == "no");
    CHECK(ended["why"] == std::to_string(ENOENT));
    CHECK(ended["added again"] == "connected");
}

TEST_CASE("forwards: what is impossible is an error with its reason")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto why = [&](const std::string& name, Forward forward) {
            engine.error = {};
            const auto id = engine.add(std::move(forward));
            say(name, id != 0 ? "added" : engine.error.message());
        };
        const net::user::SocketAddress inside = address_of("127.0.0.1", inner_port);
        const net::user::SocketAddress outside = address_of("127.0.0.1", host_port);
        const sys::Fd listener = listening_inside(lab, inside);
        why("no socket", forward_of(ForwardKind::tcp, inside));
        why("no address", tcp_forward(outside, {}));
        Forward udp = udp_forward(outside, inside);
        udp.kind = ForwardKind::tcp;
        why("another type", std::move(udp));
        why("in use", forward_of(ForwardKind::inside_to_unix, inside));
        why("not there", forward_of(ForwardKind::inside_to_unix, address_of("10.9.9.9", 1)));
        why("good", tcp_forward(outside, inside));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["no socket"] == "Can't forward without a socket to 127.0.0.1:80: Invalid argument");
    CHECK(ended["no address"] ==
          "Can't forward to no address: Address family not supported by protocol");
    CHECK(ended["another type"] ==
          "Can't forward from this kind of socket to 127.0.0.1:80: Invalid argument");
    CHECK(ended["in use"] == "Can't bind inside to 127.0.0.1:80: Address already in use");
    CHECK(ended["not there"] == "Can't bind inside to 10.9.9.9:1: Cannot assign requested address");
    CHECK(ended["good"] == "added");
}

TEST_CASE("forwards: without descriptors connections wait, and nobody spins")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        const sys::Fd listener = listening_inside(lab, address_of("127.0.0.1", inner_port));
        engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port)));
        // One descriptor for the client and none, or one, for the engine.
        for (const std::string name : {"none", "one"}) {
            rlimit limit{};
            ::getrlimit(RLIMIT_NOFILE, &limit);
            const rlimit old = limit;
            sys::Fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
            const rlim_t next = static_cast<rlim_t>(sys::Fd{::dup(client.get())}.get());
            limit.rlim_cur = next + (name == "one" ? 1 : 0);
            ::setrlimit(RLIMIT_NOFILE, &limit);
            const long before = engine.turns();
            say(name + ": connected",
                text(::connect(client.get(), target.get(), target.size) == 0));
            say(name + ": at rest", text(engine.turns_at_rest() <= turns_of_looks));
            say(name + ": looked", text(engine.turns() > before));
            pollfd poller{listener.get(), POLLIN, 0};
            say(name + ": not yet served", static_cast<long>(::poll(&poller, 1, 0)));
            ::setrlimit(RLIMIT_NOFILE, &old);
            const sys::Fd server = accepted(listener);
            say(name + ": served", exchange(client, server, megabyte));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string name : {"none", "one"}) {
        CAPTURE(name);
        CHECK(ended[name + ": connected"] == "yes");
        CHECK(ended[name + ": at rest"] == "yes");
        CHECK(ended[name + ": looked"] == "yes");
        CHECK(ended[name + ": not yet served"] == "0");
        CHECK(ended[name + ": served"] == "good");
    }
}

TEST_CASE("forwards: a thousand connections through a port leave nothing")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        const sys::Fd listener = listening_inside(lab, address_of("127.0.0.1", inner_port));
        engine.add(tcp_forward(target, address_of("127.0.0.1", inner_port)));
        const std::size_t before = open_descriptors();
        int good = 0;
        for (int i = 0; i < 1000; ++i) {
            const sys::Fd client = connected_to(target);
            const sys::Fd server = accepted(listener);
            send_all(client, "x");
            good += receive_exactly(server, 1) == "x" ? 1 : 0;
        }
        say("good", good);
        say("closed", text(engine.comes_to_pairs(0)));
        say("descriptors", text(open_descriptors() == before));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["good"] == "1000");
    CHECK(ended["closed"] == "yes");
    CHECK(ended["descriptors"] == "yes");
}

TEST_CASE("forwards: UDP clients are told apart and answered from where they have sent to")
{
    NEEDS("netns");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const Echo echo4{lab, address_of("127.0.0.1", inner_port)};
        const Echo echo6{lab, address_of("::1", inner_port)};
        Forward forward =
            udp_forward(address_of("0.0.0.0", host_port), address_of("127.0.0.1", inner_port));
        // bound() makes sockets of IPv6 that serve nothing but IPv6.
        forward.outside.push_back(bound(address_of("::", host_port), SOCK_DGRAM));
        engine.add(std::move(forward));
        engine.add(udp_forward(address_of("::1", host_port + 1), address_of("::1", inner_port)));
        // A connected socket takes answers from the address that it sends to and no other.
        const sys::Fd one = connected_to(address_of("127.0.0.1", host_port), SOCK_DGRAM);
        const sys::Fd two = connected_to(address_of("127.0.0.1", host_port), SOCK_DGRAM);
        const sys::Fd three = connected_to(address_of("127.0.0.3", host_port), SOCK_DGRAM);
        const sys::Fd six = connected_to(address_of("::1", host_port), SOCK_DGRAM);
        const sys::Fd all_six = connected_to(address_of("::1", host_port + 1), SOCK_DGRAM);
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, std::size_t{1472}, std::size_t{65507}}) {
            const std::string name = std::to_string(size);
            say("one " + name, text(echoes(one, std::string(size, '1'))));
            say("two " + name, text(echoes(two, std::string(size, '2'))));
            say("three " + name, text(echoes(three, std::string(size, '3'))));
            say("six " + name, text(echoes(six, std::string(size, '6'))));
            say("all six " + name, text(echoes(all_six, std::string(size, '7'))));
        }
        say("flows", static_cast<long>(engine.flows()));
        say("at rest", text(engine.turns_at_rest() <= 3));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string size : {"0", "1", "1472", "65507"})
        for (const std::string name : {"one ", "two ", "three ", "six ", "all six "}) {
            CAPTURE(name + size);
            CHECK(ended[name + size] == "yes");
        }
    CHECK(ended["flows"] == "5");
    CHECK(ended["at rest"] == "yes");
}

TEST_CASE("forwards: UDP to nobody loses datagrams and nothing else")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto id = engine.add(
            udp_forward(address_of("127.0.0.1", host_port), address_of("127.0.0.1", inner_port)));
        const sys::Fd client = connected_to(address_of("127.0.0.1", host_port), SOCK_DGRAM);
        for (int i = 0; i < 10; ++i)
            say("sent", static_cast<long>(::send(client.get(), "lost", 4, 0)));
        say("flow", text(eventually([&] { return engine.flows() == 1; })));
        say("at rest", text(engine.turns_at_rest() <= 3));
        const Echo echo{lab, address_of("127.0.0.1", inner_port)};
        say("later", text(echoes(client, "found")));
        say("flows", static_cast<long>(engine.flows()));
        say("removed", text(engine.remove(id)));
        say("flows after", static_cast<long>(engine.flows()));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["sent"] == "4");
    CHECK(ended["flow"] == "yes");
    CHECK(ended["at rest"] == "yes");
    CHECK(ended["later"] == "yes");
    CHECK(ended["flows"] == "1");
    CHECK(ended["removed"] == "yes");
    CHECK(ended["flows after"] == "0");
}

TEST_CASE("forwards: UDP flows are bounded, the one that was used longest ago goes")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        net::user::ForwardLimits limits;
        limits.flows = 8;
        limits.idle = std::chrono::hours{1};
        Engine engine{lab, limits};
        const Echo echo{lab, address_of("127.0.0.1", inner_port)};
        const std::size_t before = open_descriptors();
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        engine.add(udp_forward(target, address_of("127.0.0.1", inner_port)));
        std::vector<sys::Fd> clients;
        long good = 0;
        for (int i = 0; i < 40; ++i) {
            clients.push_back(connected_to(target, SOCK_DGRAM));
            good += echoes(clients.back(), "x") ? 1 : 0;
            // The first one stays in use.
            good += echoes(clients.front(), "y") ? 1 : 0;
        }
        say("good", good);
        say("flows", static_cast<long>(engine.flows()));
        const int made = lab.made;
        say("first", text(echoes(clients.front(), "z")));
        say("first: new flows", lab.made - made);
        say("second", text(echoes(clients[1], "z")));
        say("second: new flows", text(lab.made > made));
        clients.clear();
        // The forward's own socket and the flows.
        say("descriptors", text(open_descriptors() == before + 1 + 8));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["good"] == "80");
    CHECK(ended["flows"] == "8");
    CHECK(ended["first"] == "yes");
    CHECK(ended["first: new flows"] == "0");
    CHECK(ended["second"] == "yes");
    CHECK(ended["second: new flows"] == "yes");
    CHECK(ended["descriptors"] == "yes");
}

TEST_CASE(
    "forwards: a UDP flow ends after it was idle, and a new one is made when it is used again")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        net::user::ForwardLimits limits;
        limits.idle = std::chrono::milliseconds{300};
        Engine engine{lab, limits};
        const Echo echo{lab, address_of("127.0.0.1", inner_port)};
        const net::user::SocketAddress target = address_of("127.0.0.1", host_port);
        engine.add(udp_forward(target, address_of("127.0.0.1", inner_port)));
        const sys::Fd client = connected_to(target, SOCK_DGRAM);
        say("first", text(echoes(client, "x")));
        say("ended", text(eventually([&] { return engine.flows() == 0; })));
        say("again", text(echoes(client, "x")));
        say("ended again", text(eventually([&] { return engine.flows() == 0; })));
        say("at rest", text(engine.turns_at_rest() <= 3));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string fact : {"first", "ended", "again", "ended again", "at rest"})
        CHECK(ended[fact] == "yes");
}

TEST_CASE(
    "forwards: a unix socket of the host is refused and accepted as its service comes and goes")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        enter_scratch();
        Engine engine{lab};
        engine.connector.paths = {"host.sock"};
        const net::user::SocketAddress target = unix_address("host.sock");
        Forward forward = forward_of(ForwardKind::unix_to_tcp, address_of("127.0.0.1", inner_port));
        forward.outside.push_back(bound(target));
        engine.add(std::move(forward));
        say("before", attempt(target));
        for (const std::string round : {"first", "second"}) {
            sys::Fd listener = listening_inside(lab, address_of("127.0.0.1", inner_port));
            say(round, becomes(target, "connected"));
            (void)accepted(listener);
            const sys::Fd client = connected_to(target);
            const sys::Fd server = accepted(listener);
            say(round + ": bytes", exchange(client, server, 4 * megabyte));
            listener.reset();
            say(round + ": gone", becomes(target, "ECONNREFUSED"));
        }
        engine.connector.can_renew = false;
        {
            const sys::Fd listener = listening_inside(lab, address_of("127.0.0.1", inner_port));
            say("third", becomes(target, "connected"));
        }
        // It cannot refuse any more; nobody is there all the same.
        say("kept: end", text(eventually([&] {
                const sys::Fd client = connected_to(target);
                return client && next_of(client) != "data";
            })));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["before"] == "ECONNREFUSED");
    for (const std::string round : {"first", "second"}) {
        CHECK(ended[round] == "connected");
        CHECK(ended[round + ": bytes"] == "good");
        CHECK(ended[round + ": gone"] == "ECONNREFUSED");
    }
    CHECK(ended["third"] == "connected");
    CHECK(ended["kept: end"] == "yes");
}

TEST_CASE("forwards: a port inside reaches a unix socket of the host")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        enter_scratch();
        Engine engine{lab};
        engine.connector.paths = {"missing.sock", "service.sock"};
        const sys::Fd service = listening(unix_address("service.sock"));
        const auto inside_client = [&](std::uint16_t port) {
            sys::Fd socket;
            lab.inside([&] { socket = connected_to(address_of("127.0.0.1", port)); });
            return socket;
        };
        for (unsigned number = 0; number < 2; ++number) {
            Forward forward =
                forward_of(ForwardKind::inside_to_unix,
                           address_of("127.0.0.1", static_cast<std::uint16_t>(90 + number)));
            forward.number = number;
            say("added", text(engine.add(std::move(forward)) != 0));
        }
        say("nobody", next_of(inside_client(90)));
        const sys::Fd client = inside_client(91);
        const sys::Fd server = accepted(service);
        say("bytes", exchange(client, server, 4 * megabyte));
        // Answers that come late, and not at all before the forward goes.
        engine.run([&] { engine.connector.answers = false; });
        const sys::Fd late = inside_client(91);
        send_all(late, "early");
        say("asked", text(eventually([&] {
                bool asked = false;
                engine.run([&] { asked = !engine.connector.unanswered.empty(); });
                return asked;
            })));
        say("nothing yet", static_cast<long>(engine.pairs()));
        engine.run([&] {
            const std::uint64_t token = engine.connector.unanswered.front();
            engine.connector.forwards->connected(token, connected_to(unix_address("service.sock")));
            engine.connector.forwards->connected(token, sys::Fd{-ECONNREFUSED});  // Too many.
        });
        const sys::Fd late_server = accepted(service);
        say("late", receive_exactly(late_server, 5));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["added"] == "yes");
    CHECK(ended["nobody"] == "ECONNRESET");
    CHECK(ended["bytes"] == "good");
    CHECK(ended["asked"] == "yes");
    CHECK(ended["nothing yet"] == "0");
    CHECK(ended["late"] == "early");
}
