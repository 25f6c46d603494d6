#pragma once

// Children that are known by their pidfds, see pidfd_open(2).

#include "sys/fd.hpp"

#include <cerrno>
#include <csignal>
#include <sys/wait.h>

namespace nsbox::sys {

/// Whether the child had ended, and is reaped now.
inline bool reap_if_dead(const Fd& pidfd) noexcept
{
    siginfo_t info{};
    return pidfd &&
           raw::call(SYS_waitid, P_PIDFD, pidfd.get(), &info, WEXITED | WNOHANG, nullptr) == 0 &&
           info.si_pid != 0;
}

/// A pidfd of a child that this process has just started; where there is none to be had the child is ended,
/// since nobody could do that later on.
inline Fd hold_child(pid_t pid) noexcept
{
    Fd process{raw::pidfd_open(pid)};
    if (process)
        return process;
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return process;
}

/// Kills the child, if there is one, and reaps it.
inline void end_process(Fd& pidfd) noexcept
{
    if (!pidfd)
        return;
    raw::pidfd_send_signal(pidfd.get(), SIGKILL);
    siginfo_t info{};
    while (raw::call(SYS_waitid, P_PIDFD, pidfd.get(), &info, WEXITED, nullptr) == -EINTR) {
    }
    pidfd.reset();
}

}  // namespace nsbox::sys
