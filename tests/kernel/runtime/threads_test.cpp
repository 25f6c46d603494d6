// The library used from a process with several threads.

#include "nsbox/nsbox.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/probes.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/kernel/support/sanitizers.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <sstream>
#include <thread>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

TEST_CASE("threads: four threads start fifty sandboxes each, every one with its own status")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = open_descriptors();
        constexpr int thread_count = 4;
        constexpr int starts = 50;
        std::mutex mutex;
        std::string wrong;
        int right = 0;
        const auto work = [&](int number) {
            for (int i = 0; i < starts; ++i) {
                const int code = (number * starts + i) % 250;
                std::vector<Variant> all = variants(exits(code));
                const Variant& variant = all[static_cast<std::size_t>(i) % all.size()];
                const bool fails = i % 10 == 9;
                const std::string end =
                    run(fails ? failing_variants()[static_cast<std::size_t>(i / 10)].spec
                              : variant.spec);
                const bool good = fails ? end.compare(0, 11, "not started") == 0
                                        : end == "exit " + std::to_string(code);
                const std::lock_guard<std::mutex> lock{mutex};
                right += good ? 1 : 0;
                if (!good)
                    wrong += variant.name + " (exit " + std::to_string(code) + "): " + end + "\n";
            }
        };
        std::vector<std::thread> threads;
        for (int number = 0; number < thread_count; ++number)
            threads.emplace_back(work, number);
        for (std::thread& thread : threads)
            thread.join();
        say("right", right);
        say("wrong", wrong);
        say("descriptors", difference(before, open_descriptors()));
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["right"] == "200");
    CHECK(ended["wrong"].empty());
    CHECK(ended["descriptors"].empty());
    CHECK(ended["children"] == "0");
}

TEST_CASE("threads: a program that another thread executes meanwhile gets none of our descriptors")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        // What this process was given itself may be passed on.
        const Printed before = run_as_probe({"descriptors"}, {"PATH=/usr/bin"});
        std::atomic<bool> stop{false};
        std::atomic<long> started{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([&] {
                while (!stop) {
                    for (const Variant& variant : variants(exits(0)))
                        started += run(variant.spec) == "exit 0" ? 1 : 0;
                }
            });
        // The probe's own output is another file each time, and a sanitizer's runtime looks at the
        // memory map.
        const auto without_others = [](const std::string& text) {
            std::string kept;
            std::istringstream stream{text};
            for (std::string line; std::getline(stream, line);)
                if (line.find("descriptor 1:") == std::string::npos &&
                    line.find("descriptor 2:") == std::string::npos &&
                    line.find("/maps") == std::string::npos)
                    kept += line + "\n";
            return kept;
        };
        std::string leaked;
        for (int i = 0; i < 40 && leaked.empty(); ++i)
            leaked =
                difference(without_others(before.text),
                           without_others(run_as_probe({"descriptors"}, {"PATH=/usr/bin"}).text));
        stop = true;
        for (std::thread& thread : threads)
            thread.join();
        say("control", before["descriptor 1"] == "(not said)" ? "saw nothing" : "saw its output");
        say("started", started > 0 ? "some" : "none");
        say("leaked", leaked);
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["control"] == "saw its output");
    CHECK(ended["started"] == "some");
    CHECK(ended["leaked"].empty());
}

// A thread sanitizer puts a handler off until the thread calls something that it watches. That
// may be the memset() of the child that shares the thread's memory, which proves nothing.
#if !NSBOX_THREAD_SANITIZER
namespace {

std::atomic<int> host_pid{0};
std::atomic<long> calls_in_host{0};
std::atomic<long> calls_elsewhere{0};

void note_where(int)
{
    // Not getpid(): this must be true even in a process that shares our memory.
    if (::syscall(SYS_getpid) == host_pid.load())
        ++calls_in_host;
    else
        ++calls_elsewhere;
}

}  // namespace

TEST_CASE("threads: the host's signal handlers run in the host and nowhere else")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        ::setpgid(0, 0);  // Only our own processes are to be disturbed.
        host_pid = ::getpid();
        struct sigaction action {};
        action.sa_handler = note_where;
        action.sa_flags = SA_RESTART;
        ::sigaction(SIGWINCH, &action, nullptr);  // The default is to ignore it.
        std::atomic<bool> stop{false};
        std::thread disturber{[&] {
            while (!stop) {
                ::kill(0, SIGWINCH);
                ::sched_yield();
            }
        }};
        std::string wrong;
        for (int i = 0; i < 5; ++i)
            for (const Variant& variant : variants(exits(7)))
                if (const std::string end = run(variant.spec); end != "exit 7")
                    wrong += variant.name + ": " + end + "\n";
        stop = true;
        disturber.join();
        say("wrong", wrong);
        say("in the host", calls_in_host > 0 ? "called" : "not called");
        say("elsewhere", calls_elsewhere.load());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["wrong"].empty());
    CHECK(ended["in the host"] == "called");
    CHECK(ended["elsewhere"] == "0");
}
#endif

// The kernel's signal of a parent's death is one of a thread's death; only an init can tell.
TEST_CASE("threads: a sandbox outlives the thread that started it, unless the command is pid 1 and "
          "to die with its parent")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        for (const Variant& variant : variants({"/bin/sleep", "1000"})) {
            for (const bool dies : {false, true}) {
                Spec spec = variant.spec;
                spec.die_with_parent = dies;
                Result<Sandbox> sandbox = tl::make_unexpected(Error{});
                std::thread starter{[&] { sandbox = Sandbox::start(spec); }};
                starter.join();
                const std::string name = variant.name + (dies ? ", dies" : "");
                if (!sandbox) {
                    say(name, sandbox.error().message());
                    continue;
                }
                const pid_t pid = sandbox->child_pid();
                if (dies && spec.command_is_pid_1) {
                    say(name, eventually([&] { return !is_alive(pid); }) ? "dead" : "alive");
                } else {
                    sleep_milliseconds(20);
                    say(name, is_alive(pid) ? "alive" : "dead");
                }
                ::kill(pid, SIGKILL);
                say("end of " + name, outcome(sandbox->wait()));
            }
        }
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(ended[variant.name] == "alive");
        CHECK(ended[variant.name + ", dies"] == (variant.spec.command_is_pid_1 ? "dead" : "alive"));
        CHECK(ended["end of " + variant.name] == "signal 9");
        CHECK(ended["end of " + variant.name + ", dies"] == "signal 9");
    }
    CHECK(ended["children"] == "0");
}
