// The library from many threads at once: for the thread sanitizer, and without it for the answers. How many
// starts each thread makes is in NSBOX_TEST_STARTS (default 25).

#include "nsbox/nsbox.hpp"
#include "nsbox/pool.hpp"

#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using std::chrono::milliseconds;

namespace {

constexpr int thread_count = 8;

int starts()
{
    const char* const text = std::getenv("NSBOX_TEST_STARTS");
    return text != nullptr ? std::atoi(text) : 25;
}

/// What `work` returned true for, over all threads.
int in_threads(const std::function<bool(int)>& work)
{
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < thread_count; ++number)
        threads.emplace_back([&, number] { right += work(number) ? 1 : 0; });
    for (std::thread& thread : threads)
        thread.join();
    return right;
}

/// The same, so many times each.
int often(int count, const std::function<bool(int)>& work)
{
    std::atomic<int> right = 0;
    in_threads([&](int number) {
        for (int i = 0; i < count; ++i)
            right += work(number * count + i) ? 1 : 0;
        return true;
    });
    return right;
}

}  // namespace

TEST_CASE("race: sandboxes of one command")
{
    const int count = starts();
    CHECK(often(count, [](int number) {
              const int code = number % 250;
              Result<Sandbox> sandbox =
                  Sandbox::start(full_spec({"/bin/sh", "-c", "exit " + std::to_string(code)}));
              const Result<ExitStatus> status =
                  sandbox ? sandbox->wait() : tl::make_unexpected(sandbox.error());
              return status && status->code == code;
          }) == thread_count * count);
}

TEST_CASE("race: sandboxes for many commands, and what is run in them")
{
    CHECK(often(starts() / 5 + 1, [](int number) {
              Result<Sandbox> sandbox = Sandbox::create(workshop());
              const std::string word = std::to_string(number);
              if (!sandbox || !sandbox->write_file("word", word))
                  return false;
              const Result<Outcome> outcome = run(*sandbox, shell("cat word"));
              return outcome && outcome->output == word &&
                     sandbox->read_file("word").value_or("") == word;
          }) == thread_count * (starts() / 5 + 1));
}

TEST_CASE("race: one sandbox, used by all")
{
    Result<Sandbox> sandbox = Sandbox::create(workshop());
    REQUIRE(sandbox);
    const int count = starts();
    CHECK(often(count, [&](int number) {
              Command command = shell("read -r x; echo $x");
              const Result<Outcome> outcome =
                  run(*sandbox, command, {.input = std::to_string(number) + "\n"});
              return outcome && outcome->output == std::to_string(number) + "\n";
          }) == thread_count * count);
    // Closed by one, while the others are at it: each command runs or is refused.
    CHECK(in_threads([&](int number) {
              if (number == 0)
                  sandbox->close();
              Result<Process> process = sandbox->spawn(shell("exec sleep 1000"));
              if (!process)
                  return true;
              const Result<ExitStatus> status = process->wait();
              return status && status->reason == Reason::sandbox_ended;
          }) == thread_count);
}

TEST_CASE("race: a command that one thread waits for and others signal")
{
    Result<Sandbox> sandbox = Sandbox::create(workshop());
    REQUIRE(sandbox);
    Command command = shell("while :; do sleep 0.01; done");
    command.terminal = WindowSize{10, 10};
    Result<Process> process = sandbox->spawn(command);
    REQUIRE(process);
    CHECK(in_threads([&](int number) {
              if (number == 0) {
                  const Result<ExitStatus> status = process->wait();
                  return status && status->signal == SIGKILL;
              }
              for (int i = 0; i < 20; ++i) {
                  (void)process->resize({static_cast<unsigned short>(i), 20});
                  (void)process->signal(SIGWINCH);
              }
              std::this_thread::sleep_for(milliseconds{50});
              return process->kill().has_value();
          }) == thread_count);
}

TEST_CASE("race: a pool")
{
    Result<Pool> pool = Pool::create(workshop(), {3, true});
    REQUIRE(pool);
    const int count = starts() / 5 + 1;
    CHECK(often(count, [&](int) {
              Result<Sandbox> sandbox = pool->take();
              const Result<Outcome> outcome =
                  sandbox ? run(*sandbox, shell("echo $$")) : tl::make_unexpected(sandbox.error());
              return outcome && outcome->output == "2\n";
          }) == thread_count * count);
    for (int i = 0; i < 2000 && pool->ready() < 3; ++i)
        std::this_thread::sleep_for(milliseconds{5});
    CHECK(pool->ready() == 3);
}

TEST_CASE("race: a log of denials for each")
{
    CHECK(often(3, [](int) {
              Spec spec =
                  full_spec({"/bin/sh", "-c", "{ echo x > /etc/denied; } 2>/dev/null || exit 7"});
              const auto file = memory_file();
              const int log = file.get();
              spec.denials = DenialLog{log, DenialLog::Options::run, false};
              Result<Sandbox> sandbox = Sandbox::start(spec);
              const Result<ExitStatus> status =
                  sandbox ? sandbox->wait() : tl::make_unexpected(sandbox.error());
              char text[4096] = {};
              const ssize_t got = ::pread(log, text, sizeof text - 1, 0);
              return status && status->code != 0 && got > 0 &&
                     std::string{text}.find("/etc/denied") != std::string::npos;
          }) == thread_count * 3);
}
