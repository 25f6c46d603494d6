// What an application may do while it has sandboxes: fork(2), take signals of its children, be large.

#include "nsbox/nsbox.hpp"
#include "nsbox/pool.hpp"

#include "sys/read_file.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

/// Of what has to be there for a test's process to go on.
template <class T>
T need(Result<T> result)
{
    if (!result)
        throw std::runtime_error{result.error().message()};
    return std::move(*result);
}

std::string said(const Result<Outcome>& outcome)
{
    return outcome ? outcome->output + outcome->error + "[" +
                         std::to_string(outcome->status.shell_code()) + "]"
                   : outcome.error().message();
}

/// Everything that an application does with the library, as one word: "right", or what went wrong.
std::string all_of_it()
{
    if (const std::string text = said(run(workshop(), shell("echo one; exit 3")));
        text != "one\n[3]")
        return "run(): " + text;
    Sandbox sandbox = need(Sandbox::create(workshop()));
    if (const Result<> done = sandbox.write_file("file", "text"); !done)
        return done.error().message();
    Process process = need(sandbox.spawn(shell("cat file > copy; exit 4")));
    if (const std::string end = outcome(process.wait()); end != "exit 4")
        return "spawn(): " + end;
    if (const std::string text = sandbox.read_file("copy").value_or("no file"); text != "text")
        return "read_file(): " + text;
    Pool pool = need(Pool::create(workshop(), {2, true}));
    for (int i = 0; i < 3; ++i) {
        Sandbox fresh = need(pool.take());
        if (const std::string text = said(run(fresh, shell("ls /tmp; echo $$"))); text != "2\n[0]")
            return "pool: " + text;
    }
    return outcome(Sandbox::start(full_spec(exits(5)))) == "exit 5" ? "right" : "start()";
}

/// What a host holds while it forks: a sandbox, a command that waits for its input, and a pool.
struct Held {
    Sandbox sandbox = need(Sandbox::create(workshop()));
    Process process = need(sandbox.spawn([] {
        Command command = shell("read -r x; exit 6$x");
        command.input = {Stream::Kind::pipe, -1};
        return command;
    }()));
    Pool pool = need(Pool::create(workshop(), {2, true}));

    /// Whether all of that goes on as before; "right", or what does not.
    std::string use()
    {
        if (const std::string text = said(run(sandbox, shell("echo $$ >> list; cat list | wc -l")));
            text != std::to_string(++uses_) + "\n[0]")
            return "the sandbox: " + text;
        const Result<std::optional<ExitStatus>> early =
            process.wait_for(std::chrono::milliseconds{0});
        if (!early || early->has_value())
            return "the command has ended";
        Sandbox fresh = need(pool.take());
        if (const std::string text = said(run(fresh, shell("ls /tmp; echo $$"))); text != "2\n[0]")
            return "the pool: " + text;
        return eventually([this] { return pool.ready() == 2; }) ? "right" : "the pool stays empty";
    }

    /// The command's end.
    std::string finish()
    {
        if (::write(process.input(), "3\n", 2) != 2)
            return "nobody reads";
        return outcome(process.wait());
    }

private:
    int uses_ = 0;
};

struct Pids {
    pid_t init = -1;
    pid_t command = -1;
};

/// A sandbox with a command that does not end. By a thread that ends first, where the kernel's signal of
/// the parent's death would come too early.
struct Endless {
    std::optional<Sandbox> sandbox;
    std::optional<Process> process;

    Pids start(bool by_thread)
    {
        const auto work = [this] {
            sandbox.emplace(need(Sandbox::create(workshop())));
            process.emplace(need(sandbox->spawn(shell("exec sleep 1000"))));
        };
        if (by_thread)
            std::thread{work}.join();
        else
            work();
        return {sandbox->child_pid(), process->pid()};
    }
};

bool are_dead(const Pids& pids)
{
    return eventually([&] { return !is_alive(pids.init) && !is_alive(pids.command); });
}

/// A process that is not waited for, and that tells two numbers before it stays as it is.
pid_t fork_and_hear(Pids& pids, const std::function<Pids()>& body)
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        throw std::runtime_error{"pipe"};
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            const Pids made = body();
            (void)!::write(ends[1], &made, sizeof made);
        } catch (const std::exception&) {
            ::_exit(1);
        }
        ::close(ends[1]);
        for (;;)
            ::pause();
    }
    ::close(ends[1]);
    const ssize_t got = ::read(ends[0], &pids, sizeof pids);
    ::close(ends[0]);
    if (got != sizeof pids || !is_alive(pids.init) || !is_alive(pids.command))
        throw std::runtime_error{"the other process has no sandbox"};
    return child;
}

/// The first thread changes something about a process, by libc's own doing.
std::string state_with_threads()
{
    std::thread{[] {}}.join();
    return host_state();
}

void end_process(pid_t pid)
{
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
}

}  // namespace

TEST_CASE("host: a child of fork() has sandboxes of its own, and the parent's go on when it ends")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = state_with_threads();
        {
            Held held;
            say("before", held.use());
            const Ended child = in_child(Where::here, [](Say& tell) {
                tell("all of it", all_of_it());
                tell("left", children_left());
            });
            say("the child", child.well() ? child["all of it"] : child.all());
            say("left by the child", child["left"]);
            say("after its end", held.use());
            say("the command", held.finish());
        }
        say("state", difference(before, host_state()));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["before"] == "right");
    CHECK(ended["the child"] == "right");
    CHECK(ended["left by the child"] == "0");
    CHECK(ended["after its end"] == "right");
    CHECK(ended["the command"] == "exit 63");
    CHECK(ended["state"].empty());
}

TEST_CASE("host: a child of fork() that is killed takes its own sandboxes along and no other")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = state_with_threads();
        {
            Held held;
            say("before", held.use());
            for (const bool by_thread : {false, true}) {
                const std::string name = by_thread ? "thread: " : "";
                Endless own;
                Pids pids;
                const pid_t child = fork_and_hear(pids, [&] { return own.start(by_thread); });
                say(name + "meanwhile", held.use());
                end_process(child);
                say(name + "the child's", are_dead(pids) ? "dead" : "alive");
                say(name + "after its end", held.use());
            }
            say("the command", held.finish());
        }
        say("state", difference(before, host_state()));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["before"] == "right");
    for (const std::string name : {"", "thread: "}) {
        CHECK(ended[name + "meanwhile"] == "right");
        CHECK(ended[name + "the child's"] == "dead");
        CHECK(ended[name + "after its end"] == "right");
    }
    CHECK(ended["the command"] == "exit 63");
    CHECK(ended["state"].empty());
}

// Such a child has copies of every descriptor, so that none of them tells the end.
TEST_CASE("host: a sandbox ends with its object and its host, whatever children of fork() live on")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        for (const bool by_thread : {false, true}) {
            const std::string name = by_thread ? "thread: " : "";
            {
                Endless own;
                const Pids pids = own.start(by_thread);
                Pids theirs;
                const pid_t child = fork_and_hear(theirs, [&] { return pids; });
                own.sandbox.reset();
                say(name + "closed", are_dead(pids) ? "dead" : "alive");
                say(name + "the child", is_alive(child) ? "alive" : "dead");
                end_process(child);
            }
            Endless own;
            Pids pids;
            int ends[2];
            if (::pipe2(ends, O_CLOEXEC) < 0)
                throw std::runtime_error{"pipe"};
            const pid_t host = fork_and_hear(pids, [&] {
                const Pids made = own.start(by_thread);
                Pids theirs;
                const pid_t child = fork_and_hear(theirs, [&] { return made; });
                (void)!::write(ends[1], &child, sizeof child);
                return made;
            });
            pid_t orphan = -1;
            if (::read(ends[0], &orphan, sizeof orphan) != sizeof orphan)
                throw std::runtime_error{"no child"};
            end_process(host);
            say(name + "without a host", are_dead(pids) ? "dead" : "alive");
            say(name + "the orphan", is_alive(orphan) ? "alive" : "dead");
            ::kill(orphan, SIGKILL);
            ::close(ends[0]);
            ::close(ends[1]);
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const std::string name : {"", "thread: "}) {
        CHECK(ended[name + "closed"] == "dead");
        CHECK(ended[name + "the child"] == "alive");
        CHECK(ended[name + "without a host"] == "dead");
        CHECK(ended[name + "the orphan"] == "alive");
    }
}

namespace {

void (*const nothing)(int) = [](int) {};

void collect_all(int)
{
    const int saved = errno;
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    errno = saved;
}

struct Disposition {
    const char* name;
    void (*handler)(int);
    int flags;
    bool keeps_zombies;  ///< Of children that end from then on.
};

const Disposition dispositions[] = {
    {"default", SIG_DFL, 0, true},
    {"a handler", nothing, SA_RESTART, true},
    {"a handler, and calls are interrupted", nothing, 0, true},
    {"a handler, SA_NOCLDWAIT", nothing, SA_RESTART | SA_NOCLDWAIT, false},
    {"default, SA_NOCLDWAIT", SIG_DFL, SA_NOCLDWAIT, false},
    {"ignored", SIG_IGN, 0, false},
    {"a handler that collects every child", collect_all, SA_RESTART, false},
};

pid_t child_that_exits(int code)
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(code);
    return child;
}

/// A child of the host's that has ended already, and stays to be waited for.
pid_t zombie(int code)
{
    const pid_t child = child_that_exits(code);
    siginfo_t info{};
    if (child < 0 || ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) < 0)
        throw std::runtime_error{"a child"};
    return child;
}

std::string waited(pid_t pid)
{
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got < 0)
        return errno == ECHILD ? "none" : "error";
    return got == 0 ? "running" : "exit " + std::to_string(WEXITSTATUS(status));
}

void under(const Disposition& disposition, Say& say)
{
    // Those that have ended before are kept by the kernel in any case.
    const pid_t early = zombie(42);
    struct sigaction action {};
    action.sa_handler = disposition.handler;
    action.sa_flags = disposition.flags;
    ::sigaction(SIGCHLD, &action, nullptr);
    const pid_t running = ::fork();
    if (running == 0)
        for (;;)
            ::pause();
    std::optional<pid_t> late;
    if (disposition.keeps_zombies)
        late = zombie(43);
    for (int i = 0; i < 3; ++i)
        say("round " + std::to_string(i), all_of_it());
    struct sigaction now {};
    ::sigaction(SIGCHLD, nullptr, &now);
    say("disposition",
        now.sa_handler == disposition.handler && (now.sa_flags & ~0x04000000) == disposition.flags
            ? "kept"
            : "changed");
    say("early", waited(early));
    if (late)
        say("late", waited(*late));
    say("running", waited(running));
    ::kill(running, SIGKILL);
    // With none left that may be kept, this waits until there is no child at all.
    while (::waitpid(running, nullptr, 0) < 0 && errno == EINTR) {
    }
    say("left", children_left());
}

}  // namespace

TEST_CASE("host: however it takes SIGCHLD, statuses are right and its own children stay its own")
{
    NEEDS("userns");
    for (const Disposition& disposition : dispositions) {
        const Ended ended = in_child(Where::here, [&](Say& say) { under(disposition, say); });
        CAPTURE(disposition.name);
        INFO(ended.all());
        REQUIRE(ended.well());
        for (const char* const round : {"round 0", "round 1", "round 2"})
            CHECK(ended[round] == "right");
        CHECK(ended["disposition"] == "kept");
        // That handler is called for the library's children, and takes the host's along.
        CHECK(ended["early"] == (disposition.handler == collect_all ? "none" : "exit 42"));
        CHECK(ended["late"] == (disposition.keeps_zombies ? "exit 43" : "(not said)"));
        CHECK(ended["running"] == "running");
        CHECK(ended["left"] == "0");
    }
}

namespace {

constexpr std::size_t large = std::size_t{10} << 30;

/// Of /proc/PID/status, in KiB; -1 where it is not told.
long resident(pid_t pid)
{
    const std::string status = sys::read_file("/proc/" + std::to_string(pid) + "/status");
    const std::size_t at = status.find("VmRSS:");
    return at == std::string::npos ? -1 : std::strtol(status.c_str() + at + 6, nullptr, 10);
}

/// In pages that the kernel may not share: each of them has a byte of its own.
bool grow()
{
    void* const memory = ::mmap(nullptr, large, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    ::madvise(memory, large, MADV_HUGEPAGE);
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; at < large; at += page)
        static_cast<volatile char*>(memory)[at] = static_cast<char>(at / page + 1);
    return true;
}

}  // namespace

TEST_CASE("host: with 10 GiB in use commands start as ever, and process 1 holds none of it")
{
    NEEDS("userns");
    // Another run of these tests at the same time has to wait: there may not be twice as much.
    const int turn = ::open(own_path().c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(::flock(turn, LOCK_EX) == 0);
    if (has("10 GiB")) {
        const Ended ended = in_child(Where::here, [](Say& say) {
            // Should memory be short after all, this process is the one to go.
            const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
            (void)!::write(score, "1000", 4);
            ::close(score);
            if (!grow())
                throw std::runtime_error{"mmap"};
            say("host", resident(::getpid()));
            Pids copy;
            const pid_t child = fork_and_hear(copy, [] { return Pids{::getpid(), ::getpid()}; });
            say("a copy", resident(child));
            end_process(child);
            Sandbox sandbox = need(Sandbox::create(workshop()));
            Process process = need(sandbox.spawn(shell("read -r x; exit 7")));
            say("process 1", resident(sandbox.child_pid()));
            say("the command", outcome(process.wait()));
            say("all of it", all_of_it());
        });
        INFO(ended.all());
        REQUIRE(ended.well());
        constexpr long in_kibibytes = large >> 10;
        CHECK(std::stol(ended["host"]) > in_kibibytes);
        // So that it is known what would be seen.
        CHECK(std::stol(ended["a copy"]) > in_kibibytes);
        CHECK(std::stol(ended["process 1"]) >= 0);
        CHECK(std::stol(ended["process 1"]) < 1024);
        CHECK(ended["the command"] == "exit 7");
        CHECK(ended["all of it"] == "right");
    }
    ::close(turn);
}
