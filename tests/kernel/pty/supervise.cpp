#include "tests/kernel/pty/supervise.hpp"

#include "pty/relay.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

sigset_t handled_signals()
{
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGWINCH, SIGTSTP, SIGCONT})
        sigaddset(&set, signal);
    return set;
}

void on_signals(int fd, pty::Relay& relay)
{
    signalfd_siginfo info{};
    while (::read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGWINCH)
            relay.on_window_change();
        if (info.ssi_signo == SIGCONT)
            relay.resume();
        if (info.ssi_signo == SIGTSTP) {
            relay.suspend();
            ::raise(SIGSTOP);
            relay.resume();
        }
    }
}

pid_t start(const TerminalPair& inner, const std::function<int()>& command)
{
    const pid_t pid = ::fork();
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    // Nothing needs to be executed that would close it.
    ::close(inner.master.get());
    live_on(inner.slave.get());
    ::_exit(command());
}

int status_of(pid_t pid)
{
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TerminalPair open_terminal()
{
    TerminalPair pair{sys::Fd{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)}, sys::Fd{}};
    char name[64];
    if (!pair.master || ::unlockpt(pair.master.get()) != 0 ||
        ::ptsname_r(pair.master.get(), name, sizeof name) != 0)
        return pair;
    pair.slave = sys::Fd{::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)};
    return pair;
}

void live_on(int slave)
{
    ::setsid();
    if (::ioctl(slave, TIOCSCTTY, 0) < 0)
        ::_exit(70);
    for (int fd = 0; fd <= 2; ++fd)
        ::dup2(slave, fd);
    if (slave > 2)
        ::close(slave);
}

Witness& new_witness()
{
    void* const memory =
        ::mmap(nullptr, sizeof(Witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *new (memory) Witness;
}

int Supervisor::run(const std::function<int()>& command) const
{
    const sigset_t handled = handled_signals();
    ::sigprocmask(SIG_BLOCK, &handled, nullptr);
    const sys::Fd signals{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
    TerminalPair inner = open_terminal();
    (void)pty::set_window_size(inner.master.get(), size);
    const pid_t pid = start(inner, command);
    const sys::Fd ended{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    inner.slave.reset();
    if (witness != nullptr)
        witness->command = pid;
    auto relay = pty::Relay::create(inner.master.get(), input, output);
    if (!relay) {
        std::fprintf(stderr, "%s\n", relay.error().message().c_str());
        return 70;
    }
    bool was_hung_up = false;
    for (;;) {
        std::vector<pollfd> fds{{ended.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
        (*relay)->add_to(fds);
        (void)::poll(fds.data(), fds.size(), (*relay)->timeout());
        (*relay)->handle(fds);
        if (witness != nullptr)
            ++witness->rounds;
        if (fds[1].revents != 0)
            on_signals(signals.get(), **relay);
        if ((*relay)->outer_is_gone() && !was_hung_up)
            was_hung_up = ::kill(pid, SIGHUP) == 0;
        if (fds[0].revents != 0)
            break;
    }
    const bool drained = (*relay)->drain(std::chrono::milliseconds{drain_milliseconds});
    if (witness != nullptr) {
        witness->was_drained = drained ? 1 : 0;
        witness->output_error = (*relay)->output_error();
        witness->outer_was_gone = (*relay)->outer_is_gone() ? 1 : 0;
    }
    (*relay)->finish();
    return status_of(pid);
}

int execute(const std::string& script)
{
    ::execl("/bin/bash", "bash", "--norc", "--noprofile", "-c", script.c_str(), nullptr);
    return 127;
}

}  // namespace nsbox::tests
