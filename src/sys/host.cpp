#include "sys/host.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <cstdlib>
#include <cstring>
#include <linux/prctl.h>
#include <unistd.h>

namespace nsbox::sys {

namespace {

/// Whether a system call exists and is not filtered: with nonsense for arguments a present one
/// answers that they are nonsense.
bool answers(long rc)
{
    return rc == -EINVAL || rc == -EBADF || rc == -EFAULT || rc == -ENOENT;
}

bool has_mount_api()
{
    return answers(raw::call(SYS_open_tree, -1, "", ~0U)) &&
           answers(raw::call(SYS_move_mount, -1, "", -1, "", ~0U)) &&
           answers(raw::call(SYS_mount_setattr, -1, "", ~0U, nullptr, std::size_t{0}));
}

std::string read_small(const char* path)
{
    const Fd file{raw::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC)};
    char text[64];
    const long got = file ? raw::read(file.get(), text, sizeof text) : -1;
    return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : std::string{};
}

/// Only a clear "there is none" counts: anything else must not weaken a sandbox.
bool is_there(const char* path)
{
    struct ::stat status;
    const int rc = raw::fstatat(AT_FDCWD, path, &status, 0);
    return rc != -ENOENT && rc != -ENOTDIR;
}

bool has_user_namespaces()
{
    if (!is_there("/proc/self/ns/user"))
        return false;
    if (read_small("/sys/module/user_namespace/parameters/enable").substr(0, 1) == "N")
        return false;
    return read_small("/proc/sys/user/max_user_namespaces") != "0\n";
}

void probe_identity(Host& host)
{
    host.uid = ::getuid();
    host.gid = ::getgid();
    host.effective_uid = ::geteuid();
    raw::CapWords words[2]{};
    host.capabilities_known = raw::capget(words) == 0;
    if (host.capabilities_known) {
        const auto join = [](std::uint32_t low, std::uint32_t high) {
            return low | std::uint64_t{high} << 32;
        };
        host.effective_capabilities = join(words[0].effective, words[1].effective);
        host.permitted_capabilities = join(words[0].permitted, words[1].permitted);
    }
}

void probe_directory(Host& host)
{
    char text[4096];
    const long got = raw::getcwd(text, sizeof text);
    if (got > 0 && text[0] == '/')
        host.physical_directory = text;
    struct ::stat here;
    struct ::stat named;
    const char* const pwd = ::getenv("PWD");
    if (pwd != nullptr && pwd[0] == '/' && raw::fstatat(AT_FDCWD, ".", &here, 0) == 0 &&
        raw::fstatat(AT_FDCWD, pwd, &named, 0) == 0 && here.st_dev == named.st_dev &&
        here.st_ino == named.st_ino)
        host.logical_directory = pwd;
    else
        host.logical_directory = host.physical_directory;
}

/// Whether a process that is started here could reach a terminal.
bool reaches_terminal()
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (::isatty(fd) != 0)
            return true;
    const Fd controlling{raw::openat(AT_FDCWD, "/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)};
    return static_cast<bool>(controlling);
}

}  // namespace

Host probe_host()
{
    Host host;
    probe_identity(host);
    host.has_clone3 = answers(raw::call(SYS_clone3, nullptr, std::size_t{0}));
    host.has_mount_api = host.uid == 0 && has_mount_api();
    host.dumpable = raw::prctl(PR_GET_DUMPABLE) == 1;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry)
        host.environment.emplace_back(*entry);
    probe_directory(host);
    host.terminal_at_hand = reaches_terminal();
    return host;
}

void probe_user_namespaces(Host& host)
{
    host.user_namespaces = has_user_namespaces();
}

void probe_cgroup_namespaces(Host& host)
{
    host.cgroup_namespaces = is_there("/proc/self/ns/cgroup");
}

void probe_kernel_settings(Host& host)
{
    struct ::stat status;
    const int rc = raw::fstatat(AT_FDCWD, "/proc/sys", &status, 0);
    host.owns_kernel_settings = rc < 0 ? host.uid == 0 : status.st_uid == host.uid;
}

void probe_terminal(Host& host)
{
    char name[256];
    if (::isatty(STDOUT_FILENO) != 0 && ::ttyname_r(STDOUT_FILENO, name, sizeof name) == 0)
        host.terminal = name;
}

void probe_landlock(Host& host)
{
    constexpr unsigned version = 1;  // LANDLOCK_CREATE_RULESET_VERSION
    host.landlock =
        static_cast<int>(raw::call(SYS_landlock_create_ruleset, nullptr, std::size_t{0}, version));
}

void probe_capabilities(Host& host)
{
    for (unsigned cap = 0; cap < 64 && raw::prctl(PR_CAPBSET_READ, cap) >= 0; ++cap)
        host.all_capabilities |= std::uint64_t{1} << cap;
}

}  // namespace nsbox::sys
