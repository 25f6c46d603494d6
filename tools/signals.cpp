#include "signals.hpp"

#include <cerrno>
#include <csignal>
#include <sys/signalfd.h>

namespace nsbox::tool {

int take_signals()
{
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number :
         {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP}) {
        struct sigaction action {};
        ::sigaction(number, nullptr, &action);
        if (action.sa_handler != SIG_IGN)
            ::sigaddset(&set, number);
    }
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int failure_status(const Error& error)
{
    if (error.timed_out)
        return 124;
    if (error.signal != 0)
        return 128 + error.signal;
    if (error.phase != Phase::execute)
        return 125;
    return error.err == ENOENT ? 127 : 126;
}

}  // namespace nsbox::tool
