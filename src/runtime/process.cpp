#include "runtime/state.hpp"
#include "runtime/supervise.hpp"

#include "sys/raw.hpp"

#include <algorithm>
#include <csignal>
#include <poll.h>
#include <sys/ioctl.h>

namespace nsbox {

namespace {

namespace raw = sys::raw;
using Clock = std::chrono::steady_clock;

/// Whether there is something to read before the time is over; nothing: as long as it takes.
bool wait_readable(int fd, std::optional<Clock::time_point> until)
{
    for (;;) {
        int timeout = -1;
        if (until) {
            constexpr long long most = 1000000;
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
            timeout = static_cast<int>(std::clamp<long long>(left.count(), 0, most));
        }
        pollfd one{fd, POLLIN, 0};
        const int ready = ::poll(&one, 1, timeout);
        if (ready > 0)
            return true;
        if (until && Clock::now() >= *until)
            return false;
    }
}

}  // namespace

std::uint64_t MemoryLimit::kills()
{
    const std::lock_guard lock{mutex_};
    return groups_->oom_kills().value_or(0);
}

Process::Process(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Process::Process(Process&&) noexcept = default;

Process& Process::operator=(Process&& other) noexcept
{
    if (this != &other) {
        if (state_)
            (void)kill();
        state_ = std::move(other.state_);
    }
    return *this;
}

Process::~Process()
{
    if (state_)
        (void)kill();
}

Result<ExitStatus> Process::wait()
{
    while (!state_->status)
        TRY(wait_for(std::chrono::hours{1}));
    return *state_->status;
}

Result<std::optional<ExitStatus>> Process::wait_for(std::chrono::milliseconds time)
{
    State& it = *state_;
    if (it.status)
        return it.status;
    if (!wait_readable(it.report.get(), Clock::now() + time))
        return std::nullopt;
    // Left unread, so that the descriptor says the same the next time.
    const runtime::Received received = runtime::receive(it.report.get(), MSG_PEEK | MSG_DONTWAIT);
    if (received.error != 0)
        return fail("Can't wait for the command", received.error);
    ExitStatus status;
    if (received.end) {
        status.signal = SIGKILL;
        status.reason = Reason::sandbox_ended;
    } else {
        status = runtime::exit_status(received);
    }
    if (it.memory && status.signal == SIGKILL) {
        status.oom_kills = it.memory->kills() - it.kills_before;
        if (status.oom_kills > 0)
            status.reason = Reason::out_of_memory;
    }
    it.status = status;
    return it.status;
}

int Process::descriptor() const noexcept
{
    return state_->report.get();
}

Result<> Process::signal(int number) const
{
    const int rc = raw::pidfd_send_signal(state_->pidfd.get(), number);
    if (rc < 0)
        return fail("Can't signal the command", -rc);
    return {};
}

Result<> Process::kill() const
{
    const int rc = raw::pidfd_send_signal(state_->pidfd.get(), SIGKILL);
    if (rc < 0 && rc != -ESRCH)
        return fail("Can't kill the command", -rc);
    return {};
}

Result<> Process::resize(WindowSize size) const
{
    if (!state_->terminal)
        return fail("Can't change the size of the terminal", ENOTTY);
    const winsize wanted{size.rows, size.columns, 0, 0};
    if (::ioctl(state_->terminal.get(), TIOCSWINSZ, &wanted) < 0)
        return fail("Can't change the size of the terminal", errno);
    return {};
}

int Process::pidfd() const noexcept
{
    return state_->pidfd.get();
}

pid_t Process::pid() const noexcept
{
    return runtime::pid_of(state_->pidfd.get());
}

namespace {

int number_of(const sys::Fd& fd) noexcept
{
    return fd ? fd.get() : -1;
}

}  // namespace

int Process::input() const noexcept
{
    return number_of(state_->input);
}

int Process::output() const noexcept
{
    return number_of(state_->output);
}

int Process::error() const noexcept
{
    return number_of(state_->error);
}

int Process::terminal() const noexcept
{
    return number_of(state_->terminal);
}

void Process::close_input()
{
    state_->input.reset();
}

}  // namespace nsbox
