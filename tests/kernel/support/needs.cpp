#include "tests/kernel/support/needs.hpp"

#include "net/user/netfilter.hpp"
#include "sys/fd.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/sanitizers.hpp"
#include "tests/unit/support/tally.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

std::string error_text(const char* what)
{
    return std::string{what} + ": " + std::strerror(errno);
}

/// Runs a probe in namespaces of its own; an empty text when it worked.
std::string probe_inside(const std::function<std::string()>& probe)
{
    const Ended ended = in_child(Where::own_namespaces, [&](Say& say) { say("result", probe()); });
    if (ended.facts.count("set-up failed") != 0)
        return "no user namespaces here: " + ended["set-up failed"];
    return ended.well() ? ended["result"] : "the probe did not end well: " + ended.all();
}

std::string why_no_userns()
{
    return probe_inside([]() -> std::string {
        if (::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) < 0)
            return error_text("mounting a tmpfs in a user namespace");
        return {};
    });
}

std::string why_no_netns()
{
    return probe_inside([]() -> std::string {
        return ::unshare(CLONE_NEWNET) < 0 ? error_text("a network namespace") : std::string{};
    });
}

std::string why_no_nftables()
{
    return probe_inside([]() -> std::string {
        if (::unshare(CLONE_NEWNET) < 0)
            return error_text("a network namespace");
        Result<net::netfilter::Owner> owner = net::netfilter::Owner::open();
        const Result<> written =
            owner ? owner->write({"probe", {{"only", net::netfilter::Type::nat}}})
                  : Result<>{tl::unexpected<Error>{owner.error()}};
        return written ? std::string{} : written.error().message();
    });
}

std::string why_no_ipv6()
{
    const sys::Fd socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    return socket ? std::string{} : error_text("an IPv6 socket");
}

std::string why_no_openat2()
{
    const sys::Fd fd{sys::raw::openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, RESOLVE_IN_ROOT)};
    return fd ? std::string{} : std::string{"openat2: "} + std::strerror(-fd.error());
}

long free_kibibytes()
{
    std::ifstream file{"/proc/meminfo"};
    std::string name;
    long kibibytes = 0;
    std::string unit;
    while (file >> name >> kibibytes) {
        std::getline(file, unit);
        if (name == "MemAvailable:")
            return kibibytes;
    }
    return 0;
}

constexpr long gibibyte = 1024L * 1024;

std::string why_no_memory(long kibibytes)
{
    const long left = free_kibibytes();
    return left > kibibytes ? std::string{}
                            : "only " + std::to_string(left) + " KiB of memory are free";
}

/// What the control groups that this process is in leave of their limits is not in /proc/meminfo.
std::string why_not_in_groups(long kibibytes)
{
    std::ifstream rows{"/proc/self/cgroup"};
    for (std::string row; std::getline(rows, row);) {
        const bool is_new = row.compare(0, 3, "0::") == 0;
        const std::size_t old = row.find(":memory:");
        if (!is_new && old == std::string::npos)
            continue;
        const std::string top = is_new ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        std::string path = row.substr(is_new ? 3 : old + 8);
        for (bool is_last = false; !is_last; path.erase(path.rfind('/'))) {
            is_last = path.find('/', 1) == std::string::npos;
            std::ifstream limit{top + path + (is_new ? "/memory.max" : "/memory.limit_in_bytes")};
            std::ifstream usage{top + path +
                                (is_new ? "/memory.current" : "/memory.usage_in_bytes")};
            unsigned long long most = 0;
            unsigned long long used = 0;
            if (limit >> most && usage >> used &&
                most < used + static_cast<unsigned long long>(kibibytes) * 1024)
                return "the control group " + path + " has a limit of memory of " +
                       std::to_string(most >> 20) + " MiB";
        }
    }
    return {};
}

std::string why_not_large()
{
    constexpr long wanted = 12 * gibibyte;
    const std::string reason = why_no_memory(wanted);
    return reason.empty() ? why_not_in_groups(wanted) : reason;
}

bool is_required(const std::string& name)
{
    const char* const list = std::getenv("NSBOX_TESTS_REQUIRE");
    return list != nullptr &&
           ("," + std::string{list} + ",").find("," + name + ",") != std::string::npos;
}

std::string look(const std::string& name)
{
    if (name == "userns")
        return why_no_userns();
    if (name == "netns")
        return why_no_netns();
    if (name == "nftables")
        return why_no_nftables();
    if (name == "ipv6")
        return why_no_ipv6();
    if (name == "openat2")
        return why_no_openat2();
    if (name == "memory")  // For a heap of 1 GiB.
        return why_no_memory(3 * gibibyte);
    if (name == "10 GiB")
        return why_not_large();
    if (name == "own system calls")
        return NSBOX_ADDRESS_SANITIZER == 0
                   ? std::string{}
                   : "the address sanitizer makes system calls of its own in this program";
    FAIL("nobody knows how to look for ", name);
    return {};
}

}  // namespace

bool has(const std::string& name)
{
    static std::map<std::string, std::string> known;
    const auto found = known.find(name);
    const std::string reason = found != known.end() ? found->second : look(name);
    known[name] = reason;
    if (reason.empty())
        return true;
    if (is_required(name))
        FAIL("NSBOX_TESTS_REQUIRE names ", name, ", but: ", reason);
    record_skip(reason);
    return false;
}

std::string surroundings()
{
    utsname system{};
    ::uname(&system);
    std::string modules;
    std::ifstream lsm{"/sys/kernel/security/lsm"};
    std::getline(lsm, modules);
    return "ran as uid " + std::to_string(::getuid()) + ", gid " + std::to_string(::getgid()) +
           " on " + system.sysname + " " + system.release +
           ", security modules: " + (modules.empty() ? "unknown" : modules) + "\n";
}

}  // namespace nsbox::tests
