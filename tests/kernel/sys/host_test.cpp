#include "sys/host.hpp"

#include "sys/fd.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include <sys/prctl.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

/// A line of /proc/self/status, as a hexadecimal number.
std::uint64_t status_number(const std::string& name)
{
    std::ifstream file{"/proc/self/status"};
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, name.size() + 1, name + ":") == 0)
            return std::stoull(line.substr(name.size() + 1), nullptr, 16);
    return 0;
}

}  // namespace

TEST_CASE("host: what is found out about the caller is what the kernel says elsewhere")
{
    const sys::Host host = sys::probe_host();
    CHECK(host.uid == ::getuid());
    CHECK(host.gid == ::getgid());
    CHECK(host.effective_uid == ::geteuid());
    CHECK(host.effective_capabilities == status_number("CapEff"));
    CHECK(host.permitted_capabilities == status_number("CapPrm"));
    CHECK(host.dumpable == (::prctl(PR_GET_DUMPABLE) == 1));
    std::size_t count = 0;
    for (char** entry = environ; *entry != nullptr; ++entry)
        ++count;
    CHECK(host.environment.size() == count);
}

TEST_CASE("host: the working directory has its logical name only where PWD is right")
{
    const Ended ended = in_child(Where::here, [](Say& say) {
        char folder[] = "/tmp/nsbox-host-XXXXXX";
        if (::mkdtemp(folder) == nullptr)
            throw std::runtime_error{"mkdtemp"};
        const std::string real = std::string{folder} + "/real";
        const std::string link = std::string{folder} + "/link";
        if (::mkdir(real.c_str(), 0755) < 0 || ::symlink("real", link.c_str()) < 0 ||
            ::chdir(link.c_str()) < 0)
            throw std::runtime_error{"folders"};
        const auto tell = [&](const std::string& name) {
            const sys::Host host = sys::probe_host();
            say(name + " logical", host.logical_directory);
            say(name + " physical", host.physical_directory);
        };
        say("real", real);
        say("link", link);
        ::setenv("PWD", link.c_str(), 1);
        tell("right");
        ::setenv("PWD", "/usr", 1);
        tell("wrong");
        ::setenv("PWD", ".", 1);
        tell("relative");
        ::unsetenv("PWD");
        tell("none");
        ::unlink(link.c_str());
        ::rmdir(real.c_str());
        tell("gone");
        ::rmdir(folder);
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["right logical"] == ended["link"]);
    for (const std::string name : {"right", "wrong", "relative", "none"})
        CHECK(ended[name + " physical"] == ended["real"]);
    for (const std::string name : {"wrong", "relative", "none"})
        CHECK(ended[name + " logical"] == ended["real"]);
}

TEST_CASE("host: the mount API is found where the caller may use it")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::own_namespaces, [](Say& say) {
        const sys::Host host = sys::probe_host();
        say("uid", static_cast<long>(host.uid));
        say("mount API", host.has_mount_api ? "yes" : "no");
        const sys::Fd tree{
            sys::raw::open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)};
        say("open_tree", tree ? "yes" : "no");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["uid"] == "0");
    CHECK(ended["mount API"] == ended["open_tree"]);
}

TEST_CASE("host: every capability of the kernel is found")
{
    sys::Host host;
    sys::probe_capabilities(host);
    std::ifstream file{"/proc/sys/kernel/cap_last_cap"};
    unsigned last = 0;
    REQUIRE(static_cast<bool>(file >> last));
    CHECK(host.all_capabilities == (std::uint64_t{2} << last) - 1);
}
