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

namespace {

sock_fprog program_of(const Filter& filter) noexcept
{
    sock_fprog program{};
    program.len = static_cast<unsigned short>(filter.count);
    program.filter = static_cast<sock_filter*>(const_cast<void*>(filter.instructions));
    return program;
}

// Of linux/seccomp.h, newer than the headers may be.
constexpr unsigned long new_listener = 1UL << 3;   // SECCOMP_FILTER_FLAG_NEW_LISTENER
constexpr unsigned long wait_killable = 1UL << 5;  // SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 5.19

/// The listener has to reach the supervisor though the filter that it belongs to may refuse what that
/// takes, and so have the filters behind it. Neither call looks at these words; the filter does.
int load_logged(const Command& command, int channel) noexcept
{
    sock_fprog first = program_of(command.logged[0]);
    // A signal must not interrupt a call whose answer is on its way: Go's runtime sends many.
    long listener =
        raw::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, new_listener | wait_killable, &first);
    if (listener == -EINVAL)
        listener = raw::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, new_listener, &first);
    if (listener < 0)
        return static_cast<int>(listener);
    const Message message{Tell::listener, 0, 0, 0};
    const long sent = sys::send_with_descriptors(channel, &message, sizeof message,
                                                 {static_cast<int>(listener)}, 0, command.pass);
    raw::close(static_cast<int>(listener));
    if (sent < 0)
        return static_cast<int>(sent);
    for (std::size_t i = 1; i < command.logged_count; ++i) {
        const sock_fprog program = program_of(command.logged[i]);
        const long rc = raw::call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program,
                                  command.pass[0], command.pass[1], command.pass[2]);
        if (rc < 0)
            return static_cast<int>(rc);
    }
    return 0;
}

}  // namespace

int load_filters(const Command& command) noexcept
{
    for (std::size_t i = 0; i < command.filter_count; ++i) {
        const sock_fprog program = program_of(command.filters[i]);
        const int rc = raw::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
                                  reinterpret_cast<unsigned long>(&program));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int load_own_filters(const Command& command, int channel) noexcept
{
    return command.logged_count > 0 ? load_logged(command, channel) : load_filters(command);
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
