#include "nsbox/pool.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include <poll.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

Pool pool_of(std::size_t size, bool has_thread)
{
    Result<Pool> pool = Pool::create(workshop(), {size, has_thread});
    INFO((pool ? "" : pool.error().message()));
    REQUIRE(pool);
    return std::move(*pool);
}

std::string said(Sandbox& sandbox, const std::string& script)
{
    const Result<Outcome> outcome = run(sandbox, shell(script));
    return outcome ? outcome->output : outcome.error().message();
}

bool is_readable(int fd)
{
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
}

}  // namespace

TEST_CASE("pool: each that is taken is fresh, and another one takes its place")
{
    NEEDS("userns");
    Pool pool = pool_of(3, true);
    CHECK(eventually([&] { return pool.ready() == 3; }));
    std::set<pid_t> seen;
    for (int i = 0; i < 10; ++i) {
        Result<Sandbox> sandbox = pool.take();
        REQUIRE(sandbox);
        CHECK(seen.insert(sandbox->child_pid()).second);
        CHECK(said(*sandbox, "ls /tmp; touch /tmp/left; echo fresh") == "fresh\n");
    }
    CHECK(eventually([&] { return pool.ready() == 3 && !is_readable(pool.descriptor()); }));
}

TEST_CASE("pool: without a thread the caller refills it")
{
    NEEDS("userns");
    Pool pool = pool_of(2, false);
    CHECK(pool.ready() == 1);
    CHECK(is_readable(pool.descriptor()));
    CHECK(pool.refill().has_value());
    CHECK(pool.ready() == 2);
    CHECK(!is_readable(pool.descriptor()));
    Result<Sandbox> first = pool.take();
    CHECK(is_readable(pool.descriptor()));
    const Result<Sandbox> second = pool.take();
    CHECK(pool.ready() == 0);
    // Never without one.
    Result<Sandbox> third = pool.take();
    REQUIRE(first);
    REQUIRE(second);
    REQUIRE(third);
    CHECK(said(*third, "echo works") == "works\n");
    CHECK(pool.refill().has_value());
    CHECK(pool.ready() == 2);
}

TEST_CASE("pool: what has ended is replaced, and never handed out")
{
    NEEDS("userns");
    // What a kernel that is short of memory does.
    const Ended ended = in_child(Where::here, [](Say& say) {
        Pool fragile = pool_of(1, false);
        // The only child that this process has.
        std::ifstream children{"/proc/thread-self/children"};
        pid_t victim = -1;
        children >> victim;
        say("alive", is_alive(victim) ? "yes" : "no");
        ::kill(victim, SIGKILL);
        say("dies", eventually([&] { return fragile.ready() == 0; }) ? "yes" : "no");
        Result<Sandbox> first = fragile.take();
        say("first", first ? said(*first, "echo works") : first.error().message());
        say("refilled", fragile.refill() ? "yes" : "no");
        say("ready", static_cast<long>(fragile.ready()));
    });
    REQUIRE(ended.well());
    CHECK(ended["alive"] == "yes");
    CHECK(ended["dies"] == "yes");
    CHECK(ended["first"] == "works\n");
    CHECK(ended["refilled"] == "yes");
    CHECK(ended["ready"] == "1");
}

TEST_CASE("pool: many threads take from it at once")
{
    NEEDS("userns");
    Pool pool = pool_of(4, true);
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 10; ++n) {
                Result<Sandbox> sandbox = pool.take();
                right += sandbox && said(*sandbox, "echo $$") == "2\n" ? 1 : 0;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(right == 40);
}

TEST_CASE("pool: nothing is left of it, and what was taken goes on")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = host_state();
        {
            std::optional<Sandbox> kept;
            {
                Pool pool = pool_of(3, true);
                Pool moved = std::move(pool);
                kept.emplace(*moved.take());
            }
            // The thread that made it has ended; it must not take that for its supervisor's end.
            sleep_milliseconds(300);
            say("kept", said(*kept, "echo on"));
        }
        say("state", difference(before, host_state()));
        say("children", children_left());
    });
    REQUIRE(ended.well());
    CHECK(ended["kept"] == "on\n");
    CHECK(ended["state"].empty());
    CHECK(ended["children"] == "0");
}

TEST_CASE("pool: a description that does not work is an error at once")
{
    Spec spec = workshop();
    spec.operations.emplace_back(Bind{"/nowhere", "/tmp/x"});
    CHECK(!Pool::create(spec));
    CHECK(Pool::create(workshop(), {0, true}).error().message().find("room for none") !=
          std::string::npos);
}

// What the thread makes has copies of every descriptor for a moment, and a file that is open for writing is not
// executed (ETXTBSY in execve(2)).
TEST_CASE(
    "pool: a program can be executed as soon as it is written, whatever the thread makes meanwhile")
{
    NEEDS("userns");
    Pool pool = pool_of(2, true);
    // Writing takes about as long as making a sandbox.
    const std::string program = "#!/bin/sh\necho runs\nexit\n" + std::string(4 << 20, '#');
    std::string wrong;
    for (int i = 0; i < 100; ++i) {
        Result<Sandbox> sandbox = pool.take();
        REQUIRE(sandbox);
        for (int n = 0; n < 3; ++n) {
            REQUIRE(sandbox->write_file("program", program, 0755));
            Command command;
            command.words = {"./program"};
            const Result<Outcome> outcome = run(*sandbox, command);
            if (!outcome || outcome->output != "runs\n")
                wrong += (outcome ? outcome->output : outcome.error().message()) + "\n";
        }
    }
    INFO(wrong);
    CHECK(wrong.empty());
}
