#pragma once

#include <csignal>
#include <ctime>

namespace nsbox::pty {

/// One signal is blocked in this thread while the object lives.
class SignalBlocked {
public:
    explicit SignalBlocked(int signal) noexcept
    {
        sigemptyset(&only_);
        sigaddset(&only_, signal);
        ::pthread_sigmask(SIG_BLOCK, &only_, &before_);
        sigset_t pending;
        was_pending_ = ::sigpending(&pending) == 0 && sigismember(&pending, signal) == 1;
    }
    SignalBlocked(const SignalBlocked&) = delete;
    SignalBlocked& operator=(const SignalBlocked&) = delete;
    ~SignalBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

    /// Takes back a signal that came in the meantime; one that was waiting before stays.
    void forget() noexcept
    {
        const timespec at_once{};
        if (!was_pending_)
            (void)::sigtimedwait(&only_, nullptr, &at_once);  // There may be none.
    }

private:
    sigset_t only_;
    sigset_t before_;
    bool was_pending_ = false;
};

}  // namespace nsbox::pty
