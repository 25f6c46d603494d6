#include "tests/kernel/support/host_state.hpp"

#include "sys/raw.hpp"
#include "tests/kernel/support/child.hpp"

#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

namespace raw = sys::raw;

std::string hex(std::uint64_t value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(value));
    return text;
}

std::string link_text(const std::string& path)
{
    char text[PATH_MAX] = {};
    return ::readlink(path.c_str(), text, sizeof text - 1) < 0 ? "?" : text;
}

std::string contents(const std::string& path)
{
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// As the kernel keeps them: libc hides some.
std::string signal_state()
{
    std::string text;
    for (int signal = 1; signal <= 64; ++signal) {
        std::uint64_t action[4] = {};
        raw::call(SYS_rt_sigaction, signal, nullptr, action, 8);
        text += "signal " + std::to_string(signal) + ": " + hex(action[0]) + " " + hex(action[1]) +
                " " + hex(action[3]) + "\n";
    }
    std::uint64_t mask = 0;
    std::uint64_t pending = 0;
    raw::sigprocmask(0, nullptr, &mask);
    raw::call(SYS_rt_sigpending, &pending, sizeof pending);
    return text + "mask: " + hex(mask) + "\npending: " + hex(pending) + "\n";
}

std::string identity()
{
    std::string text;
    std::istringstream status{contents("/proc/self/status")};
    for (std::string line; std::getline(status, line);)
        for (const char* const name :
             {"Umask", "Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp:", "Threads"})
            if (line.compare(0, std::string{name}.size(), name) == 0)
                text += line + "\n";
    return text;
}

std::string attributes()
{
    int death_signal = -1;
    int subreaper = -1;
    ::prctl(PR_GET_PDEATHSIG, &death_signal);
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    return "dumpable: " + std::to_string(::prctl(PR_GET_DUMPABLE)) +
           "\ndeath signal: " + std::to_string(death_signal) +
           "\nsubreaper: " + std::to_string(subreaper) +
           "\nsession: " + std::to_string(::getsid(0)) + "\ngroup: " + std::to_string(::getpgrp()) +
           "\n";
}

std::string surroundings_of_process()
{
    std::string text = "directory: " + link_text("/proc/self/cwd") +
                       "\nroot: " + link_text("/proc/self/root") + "\n";
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/ns"})
        text += "namespace: " + link_text(entry.path()) + "\n";
    for (char** entry = environ; *entry != nullptr; ++entry)
        text += "environment: " + std::string{*entry} + "\n";
    const std::size_t mounts = std::hash<std::string>{}(contents("/proc/self/mountinfo"));
    return text + "mounts: " + hex(mounts) + "\n";
}

std::string limits()
{
    std::string text;
    for (int which = 0; which < RLIM_NLIMITS; ++which) {
        rlimit limit{};
        ::getrlimit(static_cast<__rlimit_resource>(which), &limit);
        text += "limit " + std::to_string(which) + ": " + hex(limit.rlim_cur) + " " +
                hex(limit.rlim_max) + "\n";
    }
    return text;
}

std::multiset<std::string> lines_of(const std::string& text)
{
    std::multiset<std::string> lines;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);)
        lines.insert(line);
    return lines;
}

}  // namespace

std::string open_descriptors()
{
    // Without opening the folder that lists them.
    std::string text;
    for (int fd = 0; fd < 2048; ++fd) {
        const int flags = ::fcntl(fd, F_GETFD);
        if (flags >= 0)
            text += "descriptor " + std::to_string(fd) + ": " + std::to_string(flags) + " " +
                    std::to_string(::fcntl(fd, F_GETFL)) + " " +
                    link_text("/proc/self/fd/" + std::to_string(fd)) + "\n";
    }
    return text;
}

std::string host_state()
{
    return signal_state() + identity() + attributes() + surroundings_of_process() + limits() +
           open_descriptors() + "children: " + children_left() + "\n";
}

std::string difference(const std::string& before, const std::string& after)
{
    const std::multiset<std::string> one = lines_of(before);
    const std::multiset<std::string> two = lines_of(after);
    std::string text;
    for (const std::string& line : one)
        if (two.count(line) < one.count(line))
            text += "- " + line + "\n";
    for (const std::string& line : two)
        if (one.count(line) < two.count(line))
            text += "+ " + line + "\n";
    return text;
}

}  // namespace nsbox::tests
