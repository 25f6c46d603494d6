#include "net/user/netfilter.hpp"

#include "net/user/address.hpp"
#include "tests/kernel/net/lab.hpp"
#include "tests/kernel/support/needs.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using namespace nsbox::net::netfilter;
using net::user::ipv4;
using net::user::ipv6;
using net::user::Prefix;
using net::user::protocol_tcp;
using net::user::protocol_udp;

namespace {

constexpr std::uint16_t port = 80;
constexpr std::uint16_t other_port = 8080;
constexpr Established established;

Chain chain_of(Type type, Hook hook, int priority, std::vector<Rule> rules)
{
    return {"only", type, hook, priority, true, std::move(rules)};
}

Chain filter_of(Hook hook, std::vector<Rule> rules)
{
    return chain_of(Type::filter, hook, priority_filter, std::move(rules));
}

std::string text(const Result<>& result)
{
    return result ? "done" : result.error().message();
}

/// Two namespaces with a link between them: 192.0.2.1 and fd01::1 on the outer side, .2 and ::2 on
/// the inner one, and on the inner side's loopback 203.0.113.9, to which no route leads from outside.
void link(const Lab& lab)
{
    const auto run = [](std::initializer_list<const char*> lines) {
        for (const char* line : lines)
            if (std::system(line) != 0)
                ::_exit(71);
    };
    // iproute2 knows a namespace by a process that is in it.
    pid_t holder = -1;
    lab.inside([&] {
        holder = ::fork();
        if (holder == 0) {
            ::pause();
            ::_exit(0);
        }
    });
    const std::string pair = "ip link add far0 type veth peer name near0 netns ";
    run({(pair + std::to_string(holder)).c_str()});
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    lab.inside([&] {
        run({"ip addr add 192.0.2.2/24 dev near0", "ip addr add fd01::2/64 dev near0 nodad",
             "ip addr add 203.0.113.9/32 dev lo", "ip link set near0 up"});
    });
    run({"ip addr add 192.0.2.1/24 dev far0", "ip addr add fd01::1/64 dev far0 nodad",
         "ip link set far0 up"});
}

sys::Fd inside_listener(const Lab& lab, const std::string& host, std::uint16_t number)
{
    sys::Fd socket;
    lab.inside([&] { socket = listening(address_of(host, number)); });
    return socket;
}

/// Writes a table inside. The owner holds it.
Owner written(const Lab& lab, const Table& table, Say& say, const std::string& name)
{
    Owner owner{sys::Fd{}};
    lab.inside([&] {
        Result<Owner> opened = Owner::open();
        if (!opened)
            ::_exit(71);
        owner = std::move(*opened);
        say(name, text(owner.write(table)));
    });
    return owner;
}

std::string peer_of(const sys::Fd& socket)
{
    net::user::SocketAddress peer;
    peer.size = sizeof peer.storage;
    if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) < 0)
        return "nobody";
    const std::string all = peer.text();
    return all.substr(0, all.rfind(':'));
}

}  // namespace

TEST_CASE("netfilter: what a program sends is redirected by address, protocol and port")
{
    NEEDS("nftables");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        const sys::Fd here4 = inside_listener(lab, "127.0.0.1", other_port);
        const sys::Fd here6 = inside_listener(lab, "::1", other_port);
        const auto look = [&](const std::string& when) {
            lab.inside([&] {
                say(when + ": v4", attempt(address_of("127.0.0.2", port)));
                say(when + ": v4, another port", attempt(address_of("127.0.0.2", port + 1)));
                say(when + ": v4, another address", attempt(address_of("127.1.0.2", port)));
                say(when + ": v6", attempt(address_of("::1", port)));
            });
        };
        look("before");
        {
            const Owner owner =
                written(lab,
                        {"t",
                         {chain_of(Type::nat, Hook::output, priority_translate_destination,
                                   {{To{{ipv4(127, 0, 0, 0), 16}}, OutInterface{"lo"},
                                     ToPort{protocol_tcp, port}, Redirect{other_port}},
                                    {To{{ipv6(0, 1), 128}}, ToPort{protocol_tcp, port},
                                     Redirect{other_port}}})}},
                        say, "written");
            look("with");
        }
        // The kernel tidies up behind the last descriptor in its own time.
        lab.inside([&] { say("after", becomes(address_of("127.0.0.2", port), "ECONNREFUSED")); });
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["written"] == "done");
    for (const std::string what : {"v4", "v4, another port", "v4, another address", "v6"})
        CHECK(ended["before: " + what] == "ECONNREFUSED");
    CHECK(ended["with: v4"] == "connected");
    CHECK(ended["with: v6"] == "connected");
    CHECK(ended["with: v4, another port"] == "ECONNREFUSED");
    CHECK(ended["with: v4, another address"] == "ECONNREFUSED");
    CHECK(ended["after"] == "ECONNREFUSED");
}

TEST_CASE("netfilter: a negated match is the opposite, for its own family alone")
{
    NEEDS("nftables");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        const sys::Fd here4 = inside_listener(lab, "127.0.0.1", port);
        const sys::Fd here6 = inside_listener(lab, "::1", port);
        const auto look = [&](const std::string& when) {
            lab.inside([&] {
                say(when + ": v4", attempt(address_of("127.0.0.1", port)));
                say(when + ": v6", attempt(address_of("::1", port)));
            });
        };
        const auto with = [&](const std::string& name, const Part& part) {
            const Owner owner = written(
                lab,
                {"t", {filter_of(Hook::input, {{ToPort{protocol_tcp, port}, part, Reject{true}}})}},
                say, name + ": written");
            look(name);
        };
        const Prefix loopback{ipv4(127, 0, 0, 0), 8};
        with("to", To{loopback});
        with("not to", To{loopback, true});
        with("not to another", To{{ipv4(127, 0, 0, 2), 32}, true});
        with("not from v6", From{{ipv6(0xfd00, 0), 64}, true});
        with("interface", InInterface{"lo"});
        with("not interface", InInterface{"lo", true});
        with("longer name", InInterface{"lo0"});
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    const std::string refused = "ECONNREFUSED";
    const std::string connected = "connected";
    const auto check = [&](const std::string& name, const std::string& v4, const std::string& v6) {
        CAPTURE(name);
        CHECK(ended[name + ": written"] == "done");
        CHECK(ended[name + ": v4"] == v4);
        CHECK(ended[name + ": v6"] == v6);
    };
    check("to", refused, connected);
    check("not to", connected, connected);
    check("not to another", refused, connected);
    check("not from v6", connected, refused);
    check("interface", refused, refused);
    check("not interface", connected, connected);
    check("longer name", connected, connected);
}

TEST_CASE("netfilter: what comes in over a link is redirected, translated, dropped or refused")
{
    NEEDS("nftables");
    NEEDS("ipv6");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        link(lab);
        const sys::Fd any4 = inside_listener(lab, "0.0.0.0", other_port);
        const sys::Fd any6 = inside_listener(lab, "::", other_port);
        const sys::Fd hidden = inside_listener(lab, "203.0.113.9", port);
        const auto look = [&](const std::string& when) {
            say(when + ": v4", attempt(address_of("192.0.2.2", port)));
            say(when + ": v6", attempt(address_of("fd01::2", port)));
        };
        look("before");
        const auto prerouting = [&](const std::string& name, std::vector<Rule> rules) {
            const Owner owner =
                written(lab,
                        {"t",
                         {chain_of(Type::nat, Hook::prerouting, priority_translate_destination,
                                   std::move(rules))}},
                        say, name + ": written");
            look(name);
        };
        prerouting("redirect",
                   {{InInterface{"near0"}, ToPort{protocol_tcp, port}, Redirect{other_port}}});
        prerouting("redirect of udp", {{ToPort{protocol_udp, port}, Redirect{other_port}}});
        prerouting("translate",
                   {{ToPort{protocol_tcp, port}, Translate{ipv4(203, 0, 113, 9), port}}});
        prerouting("translate v6",
                   {{ToPort{protocol_tcp, port}, Translate{ipv6(0xfd01, 2), other_port}}});
        prerouting("address only", {{ToPort{protocol_tcp, port}, Translate{ipv4(203, 0, 113, 9)}}});

        // Nothing but answers comes in.
        Chain strict = filter_of(Hook::input, {{established, Accept{}}});
        strict.accepts = false;
        const sys::Fd outside = listening(address_of("192.0.2.1", port));
        {
            const Owner owner = written(lab, {"t", {strict}}, say, "strict: written");
            lab.inside([&] { say("strict: out", attempt(address_of("192.0.2.1", port))); });
            sys::Fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
            const timeval moment{1, 0};
            ::setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
            const net::user::SocketAddress to = address_of("192.0.2.2", other_port);
            const int rc = ::connect(client.get(), to.get(), to.size);
            say("strict: in", rc == 0 ? "connected" : ::strerrorname_np(errno));
        }
        say("strict: afterwards", becomes(address_of("192.0.2.2", other_port), "connected"));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    const std::string refused = "ECONNREFUSED";
    const std::string connected = "connected";
    CHECK(ended["before: v4"] == refused);
    CHECK(ended["before: v6"] == refused);
    const auto check = [&](const std::string& name, const std::string& v4, const std::string& v6) {
        CAPTURE(name);
        CHECK(ended[name + ": written"] == "done");
        CHECK(ended[name + ": v4"] == v4);
        CHECK(ended[name + ": v6"] == v6);
    };
    check("redirect", connected, connected);
    check("redirect of udp", refused, refused);
    check("translate", connected, refused);
    check("translate v6", refused, connected);
    check("address only", connected, refused);
    CHECK(ended["strict: written"] == "done");
    CHECK(ended["strict: out"] == connected);
    CHECK(ended["strict: in"] == "EINPROGRESS");
    CHECK(ended["strict: afterwards"] == connected);
}

TEST_CASE("netfilter: a source port is matched, and what fits no connection")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        const sys::Fd here = inside_listener(lab, "127.0.0.1", port);
        const auto look = [&](const std::string& when) {
            lab.inside([&] {
                for (const std::uint16_t from : {std::uint16_t{40001}, std::uint16_t{40002}}) {
                    const sys::Fd client = bound(address_of("127.0.0.1", from));
                    const net::user::SocketAddress to = address_of("127.0.0.1", port);
                    const int rc = ::connect(client.get(), to.get(), to.size);
                    say(when + ": " + std::to_string(from),
                        rc == 0 ? "connected" : ::strerrorname_np(errno));
                    // Without a trace of the connection, for the next one.
                    const linger at_once{1, 0};
                    ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
                }
                // A stray answer of a handshake that nobody has begun.
                const sys::Fd raw{::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP)};
                unsigned char segment[20] = {0x9c, 0x43, 0, port, 0, 0,    0,
                                             1,    0,    0, 0,    1, 0x50, 0x12};
                const net::user::SocketAddress to = address_of("127.0.0.1", 0);
                const ssize_t sent =
                    ::sendto(raw.get(), segment, sizeof segment, 0, to.get(), to.size);
                say(when + ": stray", sent > 0 ? "sent" : ::strerrorname_np(errno));
            });
        };
        look("before");
        const Owner owner =
            written(lab,
                    {"t",
                     {filter_of(Hook::input, {{FromPort{protocol_tcp, 40001}, Reject{true}}}),
                      {"strays",
                       Type::filter,
                       Hook::output,
                       priority_filter,
                       true,
                       {{OutInterface{"lo"}, Invalid{}, Drop{}}}}}},
                    say, "written");
        look("with");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["written"] == "done");
    CHECK(ended["before: 40001"] == "connected");
    CHECK(ended["before: 40002"] == "connected");
    CHECK(ended["before: stray"] == "sent");
    CHECK(ended["with: 40001"] == "ECONNREFUSED");
    CHECK(ended["with: 40002"] == "connected");
    CHECK(ended["with: stray"] == "EPERM");
}

TEST_CASE("netfilter: masquerading gives what goes out the address of its interface")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        link(lab);
        const sys::Fd server = listening(address_of("192.0.2.1", port));
        const Owner owner = written(
            lab,
            {"t",
             {chain_of(Type::nat, Hook::postrouting, priority_translate_source,
                       {{From{{ipv4(203, 0, 113, 0), 24}}, OutInterface{"near0"}, Masquerade{}}}),
              {"second",
               Type::filter,
               Hook::forward,
               priority_filter,
               false,
               {{established, Accept{}}, {InInterface{"near0"}, Drop{}}, {Reject{}}}}}},
            say, "written");
        sys::Fd client;
        lab.inside([&] {
            client = bound(address_of("203.0.113.9", 0));
            const net::user::SocketAddress to = address_of("192.0.2.1", port);
            const int rc = ::connect(client.get(), to.get(), to.size);
            say("connected", rc == 0 ? "yes" : ::strerrorname_np(errno));
        });
        say("peer", peer_of(accepted(server)));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["written"] == "done");
    CHECK(ended["connected"] == "yes");
    CHECK(ended["peer"] == "192.0.2.2");
}

TEST_CASE("netfilter: a range of ports has both its ends")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        const sys::Fd here = inside_listener(lab, "127.0.0.1", other_port);
        const Owner owner =
            written(lab,
                    {"t",
                     {chain_of(Type::nat, Hook::output, priority_translate_destination,
                               {{ToPorts{protocol_tcp, 255, 257}, Redirect{other_port}}})}},
                    say, "written");
        lab.inside([&] {
            for (const int number : {254, 255, 256, 257, 258, 80})
                say(std::to_string(number),
                    attempt(address_of("127.0.0.1", static_cast<std::uint16_t>(number))));
        });
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["written"] == "done");
    for (const char* const within : {"255", "256", "257"})
        CHECK(ended[within] == "connected");
    for (const char* const beside : {"254", "258", "80"})
        CHECK(ended[beside] == "ECONNREFUSED");
}

TEST_CASE("netfilter: what comes into an interface is judged before all else")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        link(lab);
        constexpr std::uint16_t ports[] = {81, 82, 83};
        sys::Fd receivers[3];
        lab.inside([&] {
            for (int i = 0; i < 3; ++i) {
                receivers[i] = sys::Fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
                const net::user::SocketAddress here = address_of("192.0.2.2", ports[i]);
                if (::bind(receivers[i].get(), here.get(), here.size) < 0)
                    ::_exit(71);
            }
        });
        Chain chain{"in", Type::filter, Hook::ingress, priority_filter, true, {}, "near0"};
        chain.rules = {{From{{ipv4(192, 0, 2, 1), 32}}, ToPort{protocol_udp, 81}, Drop{}},
                       {From{{ipv4(192, 0, 2, 9), 32}}, ToPort{protocol_udp, 82}, Drop{}},
                       {FromHardware{}, ToPort{protocol_udp, 83}, Drop{}}};
        const Owner owner = written(lab, {"t", {chain}, Family::netdev}, say, "written");
        const sys::Fd sender{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
        for (const std::uint16_t number : ports) {
            const net::user::SocketAddress there = address_of("192.0.2.2", number);
            ::sendto(sender.get(), "x", 1, 0, there.get(), there.size);
        }
        // In order: when the last one is there, the first one would be.
        char byte;
        say("another address", ::recv(receivers[1].get(), &byte, 1, 0) == 1 ? "came" : "failed");
        say("another hardware", ::recv(receivers[2].get(), &byte, 1, 0) == 1 ? "came" : "failed");
        say("own", ::recv(receivers[0].get(), &byte, 1, MSG_DONTWAIT) == 1 ? "came" : "dropped");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["written"] == "done");
    CHECK(ended["another address"] == "came");
    CHECK(ended["another hardware"] == "came");
    CHECK(ended["own"] == "dropped");
}

TEST_CASE("netfilter: a table is its owner's alone, and is written and removed as a whole")
{
    NEEDS("nftables");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        const sys::Fd here = inside_listener(lab, "127.0.0.1", other_port);
        const auto table = [](std::uint16_t number) {
            return Table{"t",
                         {chain_of(Type::nat, Hook::output, priority_translate_destination,
                                   {{ToPort{protocol_tcp, number}, Redirect{other_port}}})}};
        };
        const auto look = [&](const std::string& when) {
            lab.inside([&] {
                say(when + ": one", attempt(address_of("127.0.0.1", 81)));
                say(when + ": two", attempt(address_of("127.0.0.1", 82)));
            });
        };
        Owner owner = written(lab, table(81), say, "written");
        look("first");
        lab.inside([&] {
            Result<Owner> other = Owner::open();
            const Result<> stolen = other->write(table(82));
            say("by another", stolen ? "done" : ::strerrorname_np(stolen.error().err));
            const Result<> removed = other->remove("t");
            say("removed by another", removed ? "done" : ::strerrorname_np(removed.error().err));
        });
        look("second");
        lab.inside([&] {
            say("replaced", text(owner.write(table(82))));
            Table wrong = table(81);
            wrong.chains.push_back({"wrong", Type::nat, Hook::forward, priority_filter, true, {}});
            const Result<> refused = owner.write(wrong);
            say("wrong", refused ? "done" : refused.error().object);
            wrong.chains.back() = filter_of(Hook::input, {{established, Accept{}}, {Masquerade{}}});
            wrong.chains.back().name = "wrong";
            const Result<> rule = owner.write(wrong);
            say("wrong rule", rule ? "done" : rule.error().object);
            say("hint", rule ? "" : rule.error().hint.substr(0, 27));
        });
        look("third");
        const Owner second{sys::Fd{::dup(owner.descriptor())}};
        owner = Owner{sys::Fd{}};
        look("held by another descriptor");
        Owner last{sys::Fd{::dup(second.descriptor())}};
        lab.inside([&] { say("removed", text(last.remove("t"))); });
        look("fourth");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    const std::string refused = "ECONNREFUSED";
    const std::string connected = "connected";
    const auto check = [&](const std::string& when, const std::string& one,
                           const std::string& two) {
        CAPTURE(when);
        CHECK(ended[when + ": one"] == one);
        CHECK(ended[when + ": two"] == two);
    };
    CHECK(ended["written"] == "done");
    check("first", connected, refused);
    CHECK(ended["by another"] == "EPERM");
    CHECK(ended["removed by another"] == "EPERM");
    check("second", connected, refused);
    CHECK(ended["replaced"] == "done");
    CHECK(ended["wrong"] == "chain t wrong");
    CHECK(ended["wrong rule"] == "rule 2 of chain t wrong");
    CHECK(ended["hint"] == "the kernel needs nf_tables ");
    check("third", refused, connected);
    check("held by another descriptor", refused, connected);
    CHECK(ended["removed"] == "done");
    check("fourth", refused, refused);
}
