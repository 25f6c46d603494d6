// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "ns/landlock.hpp"
#include "ns/steps.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

namespace nsbox::ns {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

// As landlock(7) has them.
struct RulesetAttributes {
    std::uint64_t files;
    std::uint64_t ports;
    std::uint64_t scoped;
};
struct [[gnu::packed]] PathBeneath {
    std::uint64_t access;
    std::int32_t parent;
};
struct NetPort {
    std::uint64_t access;
    std::uint64_t port;
};
enum RuleType : int { path_beneath = 1, net_port = 2 };

int add_path(int ruleset, int file, std::uint64_t access) noexcept
{
    if (access == 0)
        return 0;
    const PathBeneath rule{access, file};
    const long rc = raw::call(SYS_landlock_add_rule, ruleset, path_beneath, &rule, 0);
    // Pipes, sockets and the like are no part of any tree, and not denied.
    return rc == -EBADFD ? 0 : static_cast<int>(rc);
}

int add(const LandlockPath& it, std::uint64_t handled, int ruleset, ChildState& state) noexcept
{
    const auto failed = [&](Site site, int rc) {
        state.detail.add(it.path);
        return state.failed(site, rc);
    };
    const Fd file{raw::openat(AT_FDCWD, it.path, O_PATH | O_CLOEXEC)};
    // What is out of reach here is so for the command too, which has no more rights.
    if (!file && it.may_be_missing && raw::faccessat(AT_FDCWD, it.path, F_OK) < 0)
        return 0;
    if (!file)
        return failed(Site::source, file.error());
    struct ::stat status;
    int rc = raw::fstat(file.get(), &status);
    if (rc == 0)
        rc = add_path(ruleset, file.get(),
                      it.access & handled & (S_ISDIR(status.st_mode) ? ~0UL : landlock_of_files));
    return rc < 0 ? failed(Site::step, rc) : 0;
}

/// What a program opens as /dev/stdout may be a file that is nowhere in the sandbox.
int add_open_file(int fd, std::uint64_t handled, int ruleset) noexcept
{
    struct ::stat status;
    const int flags = raw::fcntl(fd, F_GETFL, 0);
    if (flags < 0 || (flags & O_PATH) != 0 || raw::fstat(fd, &status) < 0 ||
        S_ISDIR(status.st_mode))
        return 0;
    const int mode = flags & O_ACCMODE;
    std::uint64_t access = landlock_ioctl_dev;
    if (mode != O_WRONLY)
        access |= landlock_read_file;
    if (mode != O_RDONLY)
        access |= landlock_write_file | landlock_truncate;
    return add_path(ruleset, fd, access & handled);
}

int add_ports(const LandlockPorts& range, int ruleset) noexcept
{
    for (std::uint64_t port = range.first; port <= range.last; ++port) {
        const NetPort rule{range.access, port};
        const long rc = raw::call(SYS_landlock_add_rule, ruleset, net_port, &rule, 0);
        if (rc < 0)
            return static_cast<int>(rc);
    }
    return 0;
}

}  // namespace

int run(const MakeRuleset& step, ChildState& state) noexcept
{
    const RulesetAttributes attributes{step.files, step.ports, step.scoped};
    Fd ruleset{static_cast<int>(
        raw::call(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0))};
    if (!ruleset)
        return ruleset.error();
    int rc = 0;
    for (std::size_t i = 0; i < step.path_count && rc >= 0; ++i)
        rc = add(step.paths[i], step.files, ruleset.get(), state);
    for (int fd = 0; fd <= 2 && rc >= 0; ++fd)
        rc = add_open_file(fd, step.files, ruleset.get());
    for (std::size_t i = 0; i < step.fd_count && rc >= 0; ++i)
        rc = add_open_file(step.fds[i], step.files, ruleset.get());
    for (std::size_t i = 0; i < step.range_count && rc >= 0; ++i)
        rc = add_ports(step.port_ranges[i], ruleset.get());
    if (rc < 0)
        return rc;
    state.ruleset = ruleset.release();
    return 0;
}

}  // namespace nsbox::ns
