// What is left to a process that is confined as the network helper is. Everything that it cannot do is
// done before, by a process beside it.

#include "net/user/confine.hpp"

#include "sys/fd.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace nsbox;
using namespace nsbox::tests;
using namespace nsbox::net::user;

namespace {

/// 0, or the errno.
int outcome(long rc)
{
    return rc < 0 ? errno : 0;
}

int run_true()
{
    const pid_t child = ::fork();
    if (child < 0)
        return errno;
    if (child == 0) {
        ::execl("/bin/true", "true", nullptr);
        ::_exit(errno);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/// Only the words that fit a family of its own are of interest.
int open_socket(int family, int type = SOCK_DGRAM)
{
    const sys::Fd socket{::socket(family, type | SOCK_CLOEXEC, 0)};
    return socket ? 0 : errno;
}

struct Attempt {
    std::string name;
    std::function<int()> act;
    std::function<int()> control = {};  ///< Where the same needs preparations.
};

/// A process of the same user, which is there to be reached.
class Victim {
public:
    Victim()
    {
        pid_ = ::fork();
        if (pid_ == 0)
            for (;;)
                ::pause();
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;
    ~Victim()
    {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    pid_t pid() const { return pid_; }

private:
    pid_t pid_ = -1;
};

std::vector<Attempt> attempts(pid_t victim, int program)
{
    static char memory[1];
    const auto mount_tmpfs = [] { return outcome(::mount("t", "/tmp", "tmpfs", 0, nullptr)); };
    return {
        {"open", [] { return outcome(::open("/etc/passwd", O_RDONLY)); }},
        {"open folder", [] { return outcome(::open("/", O_RDONLY | O_DIRECTORY)); }},
        {"open place", [] { return outcome(::open("/proc/self/exe", O_PATH)); }},
        {"stat",
         [] {
             struct ::stat status;
             return outcome(::stat("/etc", &status));
         }},
        {"readlink",
         [] {
             char text[100];
             return outcome(::readlink("/proc/self/exe", text, sizeof text));
         }},
        {"chdir", [] { return outcome(::chdir("/")); }},
        {"fork", run_true},
        {"execve",
         [] {
             ::execl("/bin/true", "true", nullptr);
             return errno;
         }},
        {"execveat",
         [program] {
             const char* const argv[] = {"true", nullptr};
             ::syscall(SYS_execveat, program, "", argv, nullptr, AT_EMPTY_PATH);
             return errno;
         }},
        {"ptrace", [victim] { return outcome(::ptrace(PTRACE_SEIZE, victim, nullptr, nullptr)); }},
        {"read memory",
         [victim] {
             char here[1];
             iovec to{here, 1};
             iovec from{memory, 1};
             return outcome(::process_vm_readv(victim, &to, 1, &from, 1, 0));
         }},
        {"kill", [victim] { return outcome(::kill(victim, 0)); }},
        {"kill thread", [victim] { return outcome(::syscall(SYS_tgkill, victim, victim, 0)); }},
        {"pidfd", [victim] { return outcome(::syscall(SYS_pidfd_open, victim, 0)); }},
        {"limits of another",
         [victim] { return outcome(::syscall(SYS_prlimit64, victim, 0, nullptr, nullptr)); }},
        {"netlink", [] { return open_socket(AF_NETLINK, SOCK_RAW); }},
        {"unix", [] { return open_socket(AF_UNIX); }},
        {"pair",
         [] {
             int ends[2];
             return outcome(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
         }},
        {"user namespace", [] { return outcome(::unshare(CLONE_NEWUSER)); }},
        {"mount", mount_tmpfs,
         [mount_tmpfs] {
             return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? errno : mount_tmpfs();
         }},
        {"memfd", [] { return outcome(::memfd_create("m", 0)); }},
        {"prctl",
         [] { return outcome(::syscall(SYS_prctl, 4 /* PR_SET_DUMPABLE */, 1, 0, 0, 0)); }},
    };
}

/// In a process of its own, which it may use up: -1 where that was ended by something else.
int beside(const std::function<int()>& act)
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(act());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void say_all(Say& say, const std::vector<Attempt>& all, const std::string& when, bool is_control)
{
    for (const Attempt& attempt : all) {
        const bool prepared = is_control && attempt.control;
        const std::function<int()>& act = prepared ? attempt.control : attempt.act;
        say(when + attempt.name, is_control ? beside(act) : act());
    }
}

const char* text_of(const Result<>& result)
{
    static std::string text;
    text = result ? std::string{"done"} : result.error().message();
    return text.c_str();
}

}  // namespace

TEST_CASE("confinement: no file, no process and no other socket is within reach")
{
    NEEDS("own system calls");  // Others are not in the filter.
    NEEDS("userns");
    const Victim victim;
    const sys::Fd program{::open("/bin/true", O_RDONLY | O_CLOEXEC)};
    REQUIRE(program);
    const std::vector<Attempt> all = attempts(victim.pid(), program.get());
    const Ended ended = in_child(Where::here, [&](Say& say) {
        say_all(say, all, "before ", true);
        say("root", text_of(leave_file_tree()));
        say("privilege", text_of(give_up_privilege()));
        constexpr int families[] = {AF_INET, AF_INET6};
        say("calls", text_of(allow_only(relay_calls(), families)));
        say_all(say, all, "after ", false);
        say("inet", open_socket(AF_INET));
        say("inet6", open_socket(AF_INET6));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const char* const step : {"root", "privilege", "calls"})
        CHECK(ended[step] == "done");
    for (const Attempt& attempt : all) {
        INFO(attempt.name);
        CHECK(ended["before " + attempt.name] == "0");
        CHECK(ended["after " + attempt.name] == std::to_string(EPERM));
    }
    // What is left is what it is there for.
    CHECK(ended["inet"] == "0");
    if (has("ipv6"))
        CHECK(ended["inet6"] == "0");
}

TEST_CASE("confinement: the root is empty by itself, and no right is left without the filter")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const auto say_what_is_there = [&](const std::string& when) {
            const auto opens = [&](const char* path) {
                const sys::Fd fd{::open(path, O_PATH | O_CLOEXEC)};
                return fd ? 0 : errno;
            };
            say(when + "passwd", opens("/etc/passwd"));
            say(when + "proc", opens("/proc/self"));
            say(when + "above", opens(".."));
            const int made =
                ::open("/var/tmp/nsbox-confined", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
            say(when + "create", outcome(made));
            if (made >= 0)
                ::unlink("/var/tmp/nsbox-confined");
            say(when + "list", outcome(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
        };
        say_what_is_there("before ");
        say("root", text_of(leave_file_tree()));
        // Whoever made the namespaces has every right in them.
        say("rights", beside([] { return outcome(::sethostname("x", 1)); }));
        say("privilege", text_of(give_up_privilege()));
        say_what_is_there("after ");
        say("after hostname", outcome(::sethostname("x", 1)));
        say("after mount", outcome(::mount("t", "/", "tmpfs", 0, nullptr)));
        say("after top", outcome(::open("/x", O_CREAT | O_WRONLY, 0600)));
        say("after dumpable", ::syscall(SYS_prctl, 3 /* PR_GET_DUMPABLE */, 0, 0, 0, 0));
        say("after no_new_privs", ::syscall(SYS_prctl, 39 /* PR_GET_NO_NEW_PRIVS */, 0, 0, 0, 0));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["root"] == "done");
    CHECK(ended["privilege"] == "done");
    CHECK(ended["rights"] == "0");
    for (const char* const what : {"passwd", "proc", "above", "create", "list"})
        CHECK(ended[std::string{"before "} + what] == "0");
    // The folder may not even be searched.
    for (const char* const what : {"passwd", "proc", "above", "create", "list", "top"})
        CHECK(ended[std::string{"after "} + what] == std::to_string(EACCES));
    CHECK(ended["after hostname"] == std::to_string(EPERM));
    CHECK(ended["after mount"] == std::to_string(EPERM));
    CHECK(ended["after dumpable"] == "0");
    CHECK(ended["after no_new_privs"] == "1");
}
