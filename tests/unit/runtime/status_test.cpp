#include "runtime/status.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <linux/sched.h>
#include <thread>

using namespace nsbox;
using runtime::NamespaceReport;

namespace {

// In the order of the report: cgroup, ipc, mnt, net, pid, uts.
const NamespaceReport all_inodes{{}, {4026531835, 4026531839, 7, 8, 9, 10}};

constexpr std::uint64_t all_flags = CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWNET |
                                    CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWUSER;

std::string info(pid_t child, std::uint64_t flags, const NamespaceReport& report)
{
    const sys::Fd file = tests::memory_file();
    REQUIRE(runtime::write_info(file.get(), child, flags, report).has_value());
    return tests::contents_of(file.get());
}

std::string status(pid_t child, std::uint64_t flags, const NamespaceReport& report)
{
    const sys::Fd file = tests::memory_file();
    REQUIRE(runtime::write_status(file.get(), child, flags, report).has_value());
    return tests::contents_of(file.get());
}

bool sigpipe_is_pending()
{
    sigset_t pending;
    ::sigpending(&pending);
    return ::sigismember(&pending, SIGPIPE) == 1;
}

bool sigpipe_is_blocked()
{
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return ::sigismember(&blocked, SIGPIPE) == 1;
}

bool sigpipe_goes_to(void (*handler)(int))
{
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    return action.sa_handler == handler;
}

volatile std::sig_atomic_t handler_calls = 0;

void count_call(int)
{
    handler_calls = handler_calls + 1;
}

/// A pipe that nobody reads.
sys::Fd broken_pipe()
{
    return std::move(tests::make_pipe().write);
}

}  // namespace

TEST_CASE("status: the object of --info-fd, byte for byte")
{
    CHECK(info(4711, 0, all_inodes) == "{\n"
                                       "    \"child-pid\": 4711\n"
                                       "}\n");
    CHECK(info(4711, CLONE_NEWNS | CLONE_NEWUSER, all_inodes) == "{\n"
                                                                 "    \"child-pid\": 4711,\n"
                                                                 "    \"mnt-namespace\": 7\n"
                                                                 "}\n");
    CHECK(info(1, all_flags, all_inodes) == "{\n"
                                            "    \"child-pid\": 1,\n"
                                            "    \"cgroup-namespace\": 4026531835,\n"
                                            "    \"ipc-namespace\": 4026531839,\n"
                                            "    \"mnt-namespace\": 7,\n"
                                            "    \"net-namespace\": 8,\n"
                                            "    \"pid-namespace\": 9,\n"
                                            "    \"uts-namespace\": 10\n"
                                            "}\n");
}

TEST_CASE("status: the first line of --json-status-fd, byte for byte")
{
    CHECK(status(4711, 0, all_inodes) == "{ \"child-pid\": 4711 }\n");
    CHECK(status(4711, CLONE_NEWNS | CLONE_NEWPID, all_inodes) ==
          "{ \"child-pid\": 4711, \"mnt-namespace\": 7, \"pid-namespace\": 9 }\n");
    CHECK(status(2147483647, all_flags, all_inodes) ==
          "{ \"child-pid\": 2147483647, \"cgroup-namespace\": 4026531835, "
          "\"ipc-namespace\": 4026531839, \"mnt-namespace\": 7, \"net-namespace\": 8, "
          "\"pid-namespace\": 9, \"uts-namespace\": 10 }\n");
}

TEST_CASE("status: a namespace whose number is not known is left out")
{
    NamespaceReport report = all_inodes;
    report.inodes[2] = 0;
    CHECK(status(5, CLONE_NEWNS | CLONE_NEWUTS, report) ==
          "{ \"child-pid\": 5, \"uts-namespace\": 10 }\n");
    CHECK(info(5, CLONE_NEWNS, report) == "{\n    \"child-pid\": 5\n}\n");
}

TEST_CASE("status: the exit code's line, byte for byte")
{
    for (const int code : {0, 1, 137, 255}) {
        const sys::Fd file = tests::memory_file();
        runtime::write_exit_code(file.get(), code);
        CHECK(tests::contents_of(file.get()) ==
              "{ \"exit-code\": " + std::to_string(code) + " }\n");
    }
}

TEST_CASE("status: lines follow each other, and the descriptor stays open")
{
    tests::Pipe pipe = tests::make_pipe();
    REQUIRE(runtime::write_status(pipe.write.get(), 3, 0, all_inodes).has_value());
    runtime::write_exit_code(pipe.write.get(), 4);
    CHECK(tests::is_open(pipe.write.get()));
    pipe.write.reset();
    CHECK(tests::contents_of(pipe.read.get()) == "{ \"child-pid\": 3 }\n{ \"exit-code\": 4 }\n");
}

TEST_CASE("status: a descriptor that cannot be written is an error")
{
    tests::Pipe pipe = tests::make_pipe();
    const Result<> closed = runtime::write_info(-1, 1, 0, all_inodes);
    REQUIRE_FALSE(closed.has_value());
    CHECK(closed.error().message() == "Write to info_fd: Bad file descriptor");
    const Result<> reading = runtime::write_status(pipe.read.get(), 1, 0, all_inodes);
    REQUIRE_FALSE(reading.has_value());
    CHECK(reading.error().err == EBADF);
}

TEST_CASE("status: a full pipe that must not block is an error, not half a line for ever")
{
    const tests::Pipe pipe = tests::make_pipe(O_CLOEXEC | O_NONBLOCK);
    const std::string block(4096, 'x');
    while (::write(pipe.write.get(), block.data(), block.size()) > 0) {
    }
    const Result<> full = runtime::write_info(pipe.write.get(), 1, 0, all_inodes);
    REQUIRE_FALSE(full.has_value());
    CHECK(full.error().err == EAGAIN);
}

TEST_CASE("status: a reader that is gone gives EPIPE, and the default SIGPIPE does not come")
{
    REQUIRE(sigpipe_goes_to(SIG_DFL));  // If it came, this process would end here.
    const sys::Fd pipe = broken_pipe();
    const Result<> gone = runtime::write_info(pipe.get(), 1, 0, all_inodes);
    REQUIRE_FALSE(gone.has_value());
    CHECK(gone.error().message() == "Write to info_fd: Broken pipe");
    runtime::write_exit_code(pipe.get(), 0);
    CHECK_FALSE(sigpipe_is_pending());
    CHECK_FALSE(sigpipe_is_blocked());
    CHECK(sigpipe_goes_to(SIG_DFL));
}

TEST_CASE("status: the caller's handler of SIGPIPE stays and is not called for our writes")
{
    struct sigaction action {};
    struct sigaction old {};
    action.sa_handler = count_call;
    REQUIRE(::sigaction(SIGPIPE, &action, &old) == 0);
    handler_calls = 0;
    const sys::Fd pipe = broken_pipe();
    CHECK_FALSE(runtime::write_status(pipe.get(), 1, 0, all_inodes).has_value());
    CHECK(handler_calls == 0);
    CHECK(sigpipe_goes_to(count_call));
    // The handler does come for a write of the caller's own.
    CHECK(::write(pipe.get(), "x", 1) < 0);
    CHECK(handler_calls == 1);
    ::sigaction(SIGPIPE, &old, nullptr);
}

TEST_CASE("status: a SIGPIPE that the caller holds back is still there afterwards")
{
    sigset_t only_pipe;
    sigset_t old;
    ::sigemptyset(&only_pipe);
    ::sigaddset(&only_pipe, SIGPIPE);
    REQUIRE(::pthread_sigmask(SIG_BLOCK, &only_pipe, &old) == 0);
    REQUIRE(::pthread_kill(::pthread_self(), SIGPIPE) == 0);
    REQUIRE(sigpipe_is_pending());
    const sys::Fd pipe = broken_pipe();
    CHECK_FALSE(runtime::write_info(pipe.get(), 1, 0, all_inodes).has_value());
    CHECK(sigpipe_is_pending());
    CHECK(sigpipe_is_blocked());
    int signal = 0;
    CHECK(::sigwait(&only_pipe, &signal) == 0);
    CHECK(signal == SIGPIPE);
    // Blocked and not pending: our write leaves nothing behind.
    CHECK_FALSE(runtime::write_info(pipe.get(), 1, 0, all_inodes).has_value());
    CHECK_FALSE(sigpipe_is_pending());
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TEST_CASE("status: threads that write to broken pipes at once all get EPIPE")
{
    std::vector<std::thread> threads;
    std::vector<int> errors(4, 0);
    for (int& error : errors)
        threads.emplace_back([&error] {
            for (int i = 0; i < 100 && error == 0; ++i) {
                const sys::Fd pipe = broken_pipe();
                const Result<> gone = runtime::write_status(pipe.get(), 1, 0, all_inodes);
                error = gone ? -1 : gone.error().err == EPIPE ? 0 : gone.error().err;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(errors == std::vector<int>(4, 0));
    CHECK_FALSE(sigpipe_is_pending());
}
