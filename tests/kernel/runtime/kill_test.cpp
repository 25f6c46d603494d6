// Someone kills the sandbox's process while it is being set up.

#include "nsbox/nsbox.hpp"

#include "sys/fd.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <sys/syscall.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

/// A child of the thread `starter`, by a pidfd, as soon as there is one. It is our own child that
/// nobody else reaps before the start is over, but it may be gone when we look.
sys::Fd await_child(const std::string& children, const std::atomic<bool>& over)
{
    while (!over) {
        const sys::Fd file{::open(children.c_str(), O_RDONLY | O_CLOEXEC)};
        char text[64] = {};
        if (file && ::read(file.get(), text, sizeof text - 1) > 0) {
            const int pid = std::atoi(text);
            return sys::Fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
        }
    }
    return sys::Fd{};
}

}  // namespace

TEST_CASE("kill: a set-up that is killed at any time gives an error or a sandbox, and never hangs")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string children =
            "/proc/self/task/" + std::to_string(::syscall(SYS_gettid)) + "/children";
        // With its first thread libc gives a signal of its own a handler.
        std::thread{[] {}}.join();
        say("kernel lists children", ::access(children.c_str(), R_OK) == 0 ? "yes" : "no");
        const std::string before = host_state();
        Random random{static_cast<std::uint64_t>(::getpid())};
        const std::vector<Variant> all = variants({"/bin/sleep", "1000"});
        long killed = 0;
        long refused = 0;
        long running = 0;
        std::string wrong;
        for (std::size_t i = 0; i < 50; ++i) {
            const Variant& variant = all[i % all.size()];
            const auto delay = static_cast<useconds_t>(random.one_in(4) ? 0 : random.below(5000));
            std::atomic<bool> over{false};
            std::thread killer{[&] {
                const sys::Fd child = await_child(children, over);
                ::usleep(delay);
                if (child &&
                    ::syscall(SYS_pidfd_send_signal, child.get(), SIGKILL, nullptr, 0) == 0)
                    ++killed;
            }};
            Result<Sandbox> sandbox = Sandbox::start(variant.spec);
            if (!sandbox) {
                ++refused;
                if (sandbox.error().signal != SIGKILL)
                    wrong += variant.name + ": " + sandbox.error().message() + "\n";
            } else {
                ++running;
            }
            // One that runs is killed too, at the latest when the delay is over.
            if (sandbox)
                if (const std::string end = outcome(sandbox->wait()); end != "signal 9")
                    wrong += variant.name + ": " + end + "\n";
            over = true;
            killer.join();
        }
        say("killed", killed);
        say("ended", refused + running);
        say("refused", refused);
        say("running", running);
        say("wrong", wrong);
        say("changed", difference(before, host_state()));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["kernel lists children"] == "yes");
    CHECK(ended["killed"] == "50");
    CHECK(ended["ended"] == "50");
    CHECK(ended["wrong"].empty());
    CHECK(ended["changed"].empty());
}

TEST_CASE("kill: an early end is told with the signal that caused it")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        // The set-up waits here for a byte that never comes.
        Pipe gate = make_pipe();
        Spec spec = full_spec(exits(0));
        spec.block_descriptor = gate.read.get();
        const std::string children =
            "/proc/self/task/" + std::to_string(::syscall(SYS_gettid)) + "/children";
        std::atomic<bool> over{false};
        std::thread killer{[&] {
            const sys::Fd child = await_child(children, over);
            sleep_milliseconds(50);
            ::syscall(SYS_pidfd_send_signal, child.get(), SIGKILL, nullptr, 0);
        }};
        const Result<Sandbox> sandbox = Sandbox::start(spec);
        over = true;
        killer.join();
        say("message", sandbox ? "started" : sandbox.error().message());
        say("signal", sandbox ? 0 : sandbox.error().signal);
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["message"] == "The sandbox's set-up ended early: it was ended by signal KILL");
    CHECK(ended["signal"] == "9");
    CHECK(ended["children"] == "0");
}
