// Runs after clone3 and in the freestanding init: no allocation, no locks, no libc.

#include "runtime/command.hpp"

#include "sys/pass.hpp"
#include "sys/raw.hpp"

#include <asm/ioctls.h>
#include <csignal>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>

namespace nsbox::runtime {

namespace raw = sys::raw;

long tell_with_descriptor(int channel, const Message& message, int fd) noexcept
{
    return sys::send_with_descriptors(channel, &message, sizeof message, {fd});
}

int choose_candidate(const Command& command) noexcept
{
    if (command.program >= 0)
        return 0;
    int refused = 0;
    for (std::size_t i = 0; i < command.candidate_count; ++i) {
        const char* const path = command.candidates[i];
        const int rc = raw::faccessat(AT_FDCWD, path, X_OK);
        if (rc == 0)
            return static_cast<int>(i);
        struct ::stat status;
        if (rc == -EACCES && raw::fstatat(AT_FDCWD, path, &status, 0) == 0)
            refused = -EACCES;
        // One candidate means that the command was given as a path: its error is the error.
        if (rc < 0 && command.candidate_count == 1)
            return rc;
    }
    return refused != 0 ? refused : -ENOENT;
}

int prepare_command(const Command& command) noexcept
{
    int rc = raw::signal_default(SIGCHLD);
    if (rc < 0)
        return rc;
    if (command.die_with_parent)
        if (rc = raw::prctl(PR_SET_PDEATHSIG, SIGKILL); rc < 0)
            return rc;
    if (command.terminal) {
        // Already the leader of a session where it is pid 1 of one.
        if (rc = raw::setsid(); rc < 0 && rc != -EPERM)
            return rc;
        if (rc = static_cast<int>(raw::call(SYS_ioctl, 0, TIOCSCTTY, 0)); rc < 0)
            return rc;
    }
    for (unsigned cap = 0; cap < 64; ++cap) {
        if ((command.ambient >> cap & 1) == 0)
            continue;
        rc = raw::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap);
        if (rc < 0 && rc != -EINVAL)
            return rc;
    }
    const std::uint64_t none = 0;
    return raw::sigprocmask(SIG_SETMASK, &none, nullptr);
}

int enter_landlock(const Command& command) noexcept
{
    if (command.ruleset < 0)
        return 0;
    return static_cast<int>(raw::call(SYS_landlock_restrict_self, command.ruleset, 0));
}

int load_filters(const Command& command) noexcept
{
    for (std::size_t i = 0; i < command.filter_count; ++i) {
        sock_fprog program{};
        program.len = static_cast<unsigned short>(command.filters[i].count);
        program.filter =
            static_cast<sock_filter*>(const_cast<void*>(command.filters[i].instructions));
        const int rc = raw::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
                                  reinterpret_cast<unsigned long>(&program));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int execute(const Command& command, int first) noexcept
{
    if (command.program >= 0)
        return raw::execveat(command.program, "", command.argv, command.envp, AT_EMPTY_PATH);
    int refused = 0;
    int last = -ENOENT;
    for (auto i = static_cast<std::size_t>(first); i < command.candidate_count; ++i) {
        const char* const path = command.candidates[i];
        last = raw::execve(path, command.argv, command.envp);
        if (last == -ENOEXEC) {
            // A script without "#!" is the shell's, as execvp(3) has it.
            command.shell_argv[1] = path;
            last = raw::execve("/bin/sh", command.shell_argv, command.envp);
            return last;
        }
        if (last == -EACCES)
            refused = last;
        else if (last != -ENOENT && last != -ENOTDIR)
            return last;
    }
    return refused != 0 ? refused : last;
}

}  // namespace nsbox::runtime
