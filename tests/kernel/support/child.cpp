#include "tests/kernel/support/child.hpp"

#include "sys/fd.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <linux/sched.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

constexpr int set_up_failed = 70;

[[noreturn]] void give_up(Say& say, const char* what)
{
    say("set-up failed", std::string{what} + ": " + std::strerror(errno));
    ::_exit(set_up_failed);
}

void write_file(Say& say, const char* path, const std::string& text)
{
    const sys::Fd file{::open(path, O_WRONLY | O_CLOEXEC)};
    if (!file || ::write(file.get(), text.data(), text.size()) < 0)
        give_up(say, path);
}

void become_root_inside(Say& say, uid_t uid, gid_t gid)
{
    write_file(say, "/proc/self/uid_map", "0 " + std::to_string(uid) + " 1\n");
    write_file(say, "/proc/self/setgroups", "deny");
    write_file(say, "/proc/self/gid_map", "0 " + std::to_string(gid) + " 1\n");
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0)
        give_up(say, "mount");
}

/// Not libc's fork for new namespaces: a sanitizer's runtime may start a thread in that one's
/// child, and unshare(CLONE_NEWUSER) is refused to a process with threads.
pid_t start_process(Where where)
{
    if (where == Where::here)
        return ::fork();
    constexpr unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | SIGCHLD;
    return static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr));
}

std::string read_until_end(int fd, int seconds, bool& timed_out)
{
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::seconds{seconds};
    std::string text;
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd poller{fd, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&poller, 1, static_cast<int>(left.count())) == 0) {
            timed_out = true;
            return text;
        }
        char buffer[4096];
        const ssize_t got = ::read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return text;
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

void parse(const std::string& text, std::map<std::string, std::string>& facts)
{
    std::size_t at = 0;
    for (;;) {
        const std::size_t middle = text.find('\0', at);
        if (middle == std::string::npos)
            return;
        const std::size_t end = text.find('\0', middle + 1);
        if (end == std::string::npos)
            return;
        facts[text.substr(at, middle - at)] = text.substr(middle + 1, end - middle - 1);
        at = end + 1;
    }
}

}  // namespace

void Say::operator()(const std::string& name, const std::string& value)
{
    const std::string record = name + '\0' + value.c_str() + '\0';
    for (std::size_t done = 0; done < record.size();) {
        const ssize_t put = ::write(fd_, record.data() + done, record.size() - done);
        if (put < 0 && errno != EINTR)
            ::_exit(set_up_failed);
        done += put > 0 ? static_cast<std::size_t>(put) : 0;
    }
}

bool Ended::well() const
{
    return status == 0 && !timed_out && facts.count("done") == 1;
}

std::string Ended::operator[](const std::string& name) const
{
    const auto found = facts.find(name);
    return found == facts.end() ? "(not said)" : found->second;
}

std::string Ended::all() const
{
    std::string text = "status " + std::to_string(status) + (timed_out ? ", timed out" : "") + "\n";
    for (const auto& [name, value] : facts)
        text += name + ": " + value + "\n";
    return text;
}

Ended in_child(Where where, const std::function<void(Say&)>& body, int seconds)
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return {};
    sys::Fd ours{ends[0]};
    sys::Fd theirs{ends[1]};
    const uid_t uid = ::geteuid();
    const gid_t gid = ::getegid();
    // What is buffered would be printed by both.
    std::cout.flush();
    std::fflush(stdout);
    const pid_t child = start_process(where);
    if (child == 0) {
        ours.reset();
        Say say{theirs.get()};
        if (where == Where::own_namespaces)
            become_root_inside(say, uid, gid);
        try {
            body(say);
        } catch (const std::exception& error) {
            say("exception", error.what());
            ::_exit(set_up_failed);
        }
        say("done", "yes");
        ::_exit(0);
    }
    theirs.reset();
    Ended ended;
    if (child < 0) {
        ended.facts["set-up failed"] = std::string{"fork: "} + std::strerror(errno);
        return ended;
    }
    parse(read_until_end(ours.get(), seconds, ended.timed_out), ended.facts);
    if (ended.timed_out)
        ::kill(child, SIGKILL);
    while (::waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
    }
    return ended;
}

std::string children_left()
{
    int count = 0;
    for (;;) {
        const pid_t pid = ::waitpid(-1, nullptr, WNOHANG | __WALL);
        if (pid < 0)
            return std::to_string(count);
        if (pid == 0)
            return std::to_string(count) + " and some that live";
        ++count;
    }
}

}  // namespace nsbox::tests
