#include "net/user/stream_relay.hpp"

#include "tests/kernel/net/lab.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sanitizers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

constexpr std::size_t megabyte = std::size_t{1024} * 1024;
// An idle relay is woken by nobody; a few late events are no spinning.
constexpr long few_turns = 3;

/// Two peers with the relay between them.
struct Relayed {
    sys::Fd client;
    sys::Fd server;
};

Relayed relayed(Engine& engine, Ends one, Ends other)
{
    engine.join(std::move(one.other), std::move(other.one));
    return {std::move(one.one), std::move(other.other)};
}

Relayed relayed_tcp(Engine& engine)
{
    return relayed(engine, tcp_ends(), tcp_ends());
}

long resident_kibibytes()
{
    std::ifstream file{"/proc/self/status"};
    std::string word;
    while (file >> word) {
        if (word == "VmRSS:") {
            long value = 0;
            file >> value;
            return value;
        }
    }
    return -1;
}

/// Writes until nothing more is taken; how much that was.
std::size_t fill(const sys::Fd& socket, std::size_t most)
{
    const std::string bytes(64 * 1024, 'x');
    std::size_t total = 0;
    while (total < most) {
        const ssize_t put =
            ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) {
            total += static_cast<std::size_t>(put);
            continue;
        }
        pollfd poller{socket.get(), POLLOUT, 0};
        if (errno != EAGAIN || ::poll(&poller, 1, 500) == 0)
            break;
    }
    return total;
}

void set_buffers(const sys::Fd& socket, int size)
{
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

std::string text(bool value)
{
    return value ? "yes" : "no";
}

}  // namespace

TEST_CASE("stream relay: bytes arrive whole and in order, both ways at once")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        {
            const Relayed pair = relayed_tcp(engine);
            say("tcp and tcp", exchange(pair.client, pair.server, 24 * megabyte));
        }
        {
            const Relayed pair = relayed(engine, tcp_ends(), unix_ends());
            say("tcp and unix", exchange(pair.client, pair.server, 16 * megabyte));
        }
        {
            const Relayed pair = relayed(engine, unix_ends(), unix_ends());
            say("unix and unix", exchange(pair.client, pair.server, 8 * megabyte));
        }
        say("all closed", text(engine.comes_to_pairs(0)));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["tcp and tcp"] == "good");
    CHECK(ended["tcp and unix"] == "good");
    CHECK(ended["unix and unix"] == "good");
    CHECK(ended["all closed"] == "yes");
}

TEST_CASE("stream relay: an end is passed on, the other direction goes on until its own end")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto try_it = [&](const std::string& name, const sys::Fd& first,
                                const sys::Fd& second) {
            send_all(first, "question");
            ::shutdown(first.get(), SHUT_WR);
            say(name + ": question", receive_exactly(second, 8));
            say(name + ": its end", next_of(second));
            send_all(second, "answer");
            say(name + ": answer", receive_exactly(first, 6));
            say(name + ": pairs before the end", static_cast<long>(engine.pairs()));
            say(name + ": turns at rest", text(engine.turns_at_rest() <= few_turns));
            ::shutdown(second.get(), SHUT_WR);
            say(name + ": end of the answer", next_of(first));
            say(name + ": closed", text(engine.comes_to_pairs(0)));
        };
        Relayed pair = relayed_tcp(engine);
        try_it("there", pair.client, pair.server);
        pair = relayed_tcp(engine);
        try_it("back", pair.server, pair.client);
        pair = relayed(engine, unix_ends(), tcp_ends());
        try_it("unix", pair.client, pair.server);
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string name : {"there", "back", "unix"}) {
        CAPTURE(name);
        CHECK(ended[name + ": question"] == "question");
        CHECK(ended[name + ": its end"] == "end");
        CHECK(ended[name + ": answer"] == "answer");
        CHECK(ended[name + ": pairs before the end"] == "1");
        CHECK(ended[name + ": turns at rest"] == "yes");
        CHECK(ended[name + ": end of the answer"] == "end");
        CHECK(ended[name + ": closed"] == "yes");
    }
}

TEST_CASE("stream relay: what was there before both ended at once is delivered")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        Ends one = tcp_ends();
        Ends other = tcp_ends();
        send_all(one.one, "to the server");
        send_all(other.other, "to the client");
        ::shutdown(one.one.get(), SHUT_WR);
        ::shutdown(other.other.get(), SHUT_WR);
        const Relayed pair = relayed(engine, std::move(one), std::move(other));
        say("server", receive_exactly(pair.server, 100));
        say("client", receive_exactly(pair.client, 100));
        say("server's next", next_of(pair.server));
        say("client's next", next_of(pair.client));
        // Nothing at all, in either direction.
        const Relayed silent = relayed_tcp(engine);
        ::shutdown(silent.client.get(), SHUT_WR);
        ::shutdown(silent.server.get(), SHUT_WR);
        say("silent server", next_of(silent.server));
        say("silent client", next_of(silent.client));
        say("closed", text(engine.comes_to_pairs(0)));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["server"] == "to the server");
    CHECK(ended["client"] == "to the client");
    CHECK(ended["server's next"] == "end");
    CHECK(ended["client's next"] == "end");
    CHECK(ended["silent server"] == "end");
    CHECK(ended["silent client"] == "end");
    CHECK(ended["closed"] == "yes");
}

TEST_CASE("stream relay: a reset is passed on, in each direction and in each state")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto reset_one = [&](const std::string& name, sys::Fd first, const sys::Fd& second) {
            close_with_reset(std::move(first));
            say(name, next_of(second));
            say(name + ": closed", text(engine.comes_to_pairs(0)));
        };
        Relayed pair = relayed_tcp(engine);
        reset_one("client", std::move(pair.client), pair.server);
        pair = relayed_tcp(engine);
        reset_one("server", std::move(pair.server), pair.client);
        pair = relayed_tcp(engine);
        ::shutdown(pair.client.get(), SHUT_WR);
        say("end before", next_of(pair.server));
        reset_one("server after the client's end", std::move(pair.server), pair.client);
        // Whoever resets while he is not read from is noticed, too.
        pair = relayed_tcp(engine);
        set_buffers(pair.server, 64 * 1024);
        fill(pair.client, 64 * megabyte);
        close_with_reset(std::move(pair.client));
        say("client in back-pressure: closed", text(engine.comes_to_pairs(0)));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["end before"] == "end");
    for (const std::string name : {"client", "server", "server after the client's end"}) {
        CAPTURE(name);
        CHECK(ended[name] == "ECONNRESET");
        CHECK(ended[name + ": closed"] == "yes");
    }
    CHECK(ended["client in back-pressure: closed"] == "yes");
}

TEST_CASE("stream relay: a side that cannot connect resets the other one, one that can does not")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const sys::Fd listener = listening(address_of("127.0.0.1", 0));
        const net::user::SocketAddress open = net::user::bound_address(listener.get());
        const net::user::SocketAddress closed =
            net::user::bound_address(bound(address_of("127.0.0.1", 0)).get());
        for (const net::user::SocketAddress& target : {open, closed}) {
            Ends ends = tcp_ends();
            sys::Fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
            ::connect(socket.get(), target.get(), target.size);
            send_all(ends.one, "early");
            engine.join(std::move(ends.other), std::move(socket));
            if (target.port() == closed.port()) {
                say("closed", next_of(ends.one));
                continue;
            }
            const sys::Fd server = accepted(listener);
            say("open", receive_exactly(server, 5));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["open"] == "early");
    CHECK(ended["closed"] == "ECONNRESET");
}

TEST_CASE("stream relay: a reader that sleeps stops the writer and costs no memory")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        constexpr std::size_t most = 512 * megabyte;
        for (const std::string kind : {"tcp", "unix"}) {
            const Relayed pair =
                kind == "tcp" ? relayed_tcp(engine) : relayed(engine, tcp_ends(), unix_ends());
            const long before = resident_kibibytes();
            const std::size_t written = fill(pair.client, most);
            say(kind + ": bounded", text(written < 64 * megabyte));
            say(kind + ": memory", text(resident_kibibytes() - before < 4 * 1024));
            say(kind + ": at rest", text(engine.turns_at_rest() <= few_turns));
            // The direction that is not held up goes on.
            send_all(pair.server, "hello");
            say(kind + ": back", receive_exactly(pair.client, 5));
            ::shutdown(pair.client.get(), SHUT_WR);
            say(kind + ": all there",
                text(receive_exactly(pair.server, most) == std::string(written, 'x')));
            ::shutdown(pair.server.get(), SHUT_WR);
            say(kind + ": closed", text(engine.comes_to_pairs(0)));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string kind : {"tcp", "unix"}) {
        CAPTURE(kind);
        CHECK(ended[kind + ": bounded"] == "yes");
        CHECK(ended[kind + ": memory"] == "yes");
        CHECK(ended[kind + ": at rest"] == "yes");
        CHECK(ended[kind + ": back"] == "hello");
        CHECK(ended[kind + ": all there"] == "yes");
        CHECK(ended[kind + ": closed"] == "yes");
    }
}

TEST_CASE("stream relay: urgent data is dropped and disturbs nothing")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const Relayed pair = relayed_tcp(engine);
        send_all(pair.client, "before");
        ::send(pair.client.get(), "!", 1, MSG_OOB);
        send_all(pair.client, "after");
        say("text", receive_exactly(pair.server, 11));
        say("at rest", text(engine.turns_at_rest() <= few_turns));
        say("and on", exchange(pair.client, pair.server, megabyte));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["text"] == "beforeafter");
    CHECK(ended["at rest"] == "yes");
    CHECK(ended["and on"] == "good");
}

TEST_CASE("stream relay: a unix peer that has gone altogether wakes nobody again and again")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        Relayed pair = relayed(engine, tcp_ends(), unix_ends());
        send_all(pair.server, "bye");
        pair.server.reset();
        say("last words", receive_exactly(pair.client, 3));
        say("end", next_of(pair.client));
        say("pairs", static_cast<long>(engine.pairs()));
        say("at rest", text(engine.turns_at_rest() <= few_turns));
        send_all(pair.client, "anybody there?");
        say("closed", text(engine.comes_to_pairs(0)));
        say("reset", text(eventually([&] { return !send_all(pair.client, "?"); })));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["last words"] == "bye");
    CHECK(ended["end"] == "end");
    CHECK(ended["pairs"] == "1");
    CHECK(ended["at rest"] == "yes");
    CHECK(ended["reset"] == "yes");
    CHECK(ended["closed"] == "yes");
}

TEST_CASE("stream relay: two thousand connections at once, each is served and none costs a pipe")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        // Four descriptors each: the peers live in this process, too.
        const std::size_t count = std::min<std::size_t>(2000, (limit.rlim_max - 100) / 4);
        say("enough", text(count >= 200));
        Engine engine{lab};
        const std::size_t before = open_descriptors();
        std::vector<Relayed> pairs;
        for (std::size_t i = 0; i < count; ++i)
            pairs.push_back(relayed_tcp(engine));
        say("pairs", text(engine.pairs() == count));
        for (std::size_t i = 0; i < count; ++i)
            send_all(pairs[i].client, std::to_string(i) + "\n");
        std::size_t served = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::string wanted = std::to_string(i) + "\n";
            if (receive_exactly(pairs[i].server, wanted.size()) == wanted)
                ++served;
        }
        say("served", text(served == count));
        say("descriptors", text(open_descriptors() == before + 4 * count));
        say("at rest", text(engine.turns_at_rest() <= few_turns));
        pairs.clear();
        say("closed", text(engine.comes_to_pairs(0)));
        say("descriptors left", text(open_descriptors() == before));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string fact :
         {"enough", "pairs", "served", "descriptors", "at rest", "closed", "descriptors left"}) {
        CAPTURE(fact);
        CHECK(ended[fact] == "yes");
    }
}

TEST_CASE("stream relay: five thousand connections one after the other leave nothing")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const auto some = [&](int count) {
            int good = 0;
            for (int i = 0; i < count; ++i) {
                Relayed pair = relayed(engine, tcp_ends(), i % 5 == 0 ? unix_ends() : tcp_ends());
                send_all(pair.client, "x");
                good += receive_exactly(pair.server, 1) == "x" ? 1 : 0;
                // Some end well, some do not.
                if (i % 3 == 0)
                    close_with_reset(std::move(pair.client));
                else
                    pair.client.reset();
            }
            return good;
        };
        some(500);
        say("settled", text(engine.comes_to_pairs(0)));
        const std::size_t descriptors = open_descriptors();
        const long memory = resident_kibibytes();
        say("good", some(5000));
        say("closed", text(engine.comes_to_pairs(0)));
        say("descriptors", text(open_descriptors() == descriptors));
        say("memory", text(resident_kibibytes() - memory < 1024));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["settled"] == "yes");
    CHECK(ended["good"] == "5000");
    CHECK(ended["closed"] == "yes");
    CHECK(ended["descriptors"] == "yes");
    // The address sanitizer keeps what was freed, to see whether it is used; it looks for leaks itself.
    if (NSBOX_ADDRESS_SANITIZER == 0)
        CHECK(ended["memory"] == "yes");
}

TEST_CASE("stream relay: a connection that never pauses does not keep the others waiting")
{
    NEEDS("netns");
    const Ended ended = in_lab([](Say& say, Lab& lab) {
        Engine engine{lab};
        const Relayed busy = relayed_tcp(engine);
        std::atomic<bool> stop = false;
        std::thread writer{[&] {
            const std::string bytes(256 * 1024, 'x');
            while (!stop && send_all(busy.client, bytes)) {
            }
            ::shutdown(busy.client.get(), SHUT_WR);
        }};
        std::thread reader{[&] {
            std::string bytes(1024 * 1024, '\0');
            while (::recv(busy.server.get(), bytes.data(), bytes.size(), 0) > 0) {
            }
        }};
        const Relayed pair = relayed_tcp(engine);
        int good = 0;
        for (int i = 0; i < 200; ++i) {
            send_all(pair.client, "ping");
            good += receive_exactly(pair.server, 4) == "ping" ? 1 : 0;
            send_all(pair.server, "pong");
            good += receive_exactly(pair.client, 4) == "pong" ? 1 : 0;
        }
        say("good", good);
        stop = true;
        writer.join();
        reader.join();
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["good"] == "400");
}
