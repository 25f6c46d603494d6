#include "nsbox/nsbox.hpp"

#include "runtime/channel.hpp"
#include "runtime/diagnose.hpp"
#include "runtime/launch.hpp"
#include "runtime/plan.hpp"
#include "runtime/status.hpp"

#include "sys/raw.hpp"

#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace nsbox {

struct Sandbox::State {
    runtime::Running running;
    int status = -1;         ///< Borrowed, as in the Spec.
    bool is_ending = false;  ///< Init has nothing left to wait for.

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
};

namespace {

ExitStatus from_wait_status(int status)
{
    if (WIFSIGNALED(status))
        return {0, WTERMSIG(status)};
    return {WEXITSTATUS(status), 0};
}

/// Reaps the direct child; only the first call finds it.
Result<ExitStatus> reap(const sys::Fd& pidfd)
{
    siginfo_t info{};
    while (::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | __WALL) < 0)
        if (errno != EINTR)
            return fail("waitid", errno, "the sandbox",
                        errno == ECHILD ? "the caller ignores SIGCHLD, which loses the status"
                                        : "");
    if (info.si_code == CLD_EXITED)
        return ExitStatus{info.si_status, 0};
    return ExitStatus{0, info.si_status};
}

/// Waits for init's message or for init's end, whichever comes first; the message counts.
/// `is_last`: nothing else is left in the sandbox, whose init is about to end.
Result<ExitStatus> wait_for_init(const runtime::Running& running, bool& is_last)
{
    for (;;) {
        pollfd fds[2] = {{running.channel.get(), POLLIN, 0}, {running.pidfd.get(), POLLIN, 0}};
        if (::poll(fds, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return fail("poll", errno, "the sandbox");
        }
        // Between poll's looks at the two, init may have spoken and ended: its word is there.
        const runtime::Received received = runtime::receive(running.channel.get(), MSG_DONTWAIT);
        const bool is_message = !received.end && received.error == 0;
        if (is_message && received.message.kind == runtime::Tell::exited) {
            is_last = received.message.step == 1;
            // A pid namespace that is joined cannot end while init's zombie is in it.
            if (running.joined && is_last)
                (void)reap(running.pidfd);
            return from_wait_status(received.message.value);
        }
        if (is_message)
            continue;
        if (received.end || fds[1].revents != 0)
            return reap(running.pidfd);
        if (received.error != EAGAIN)
            return fail("recvmsg", received.error, "the sandbox");
    }
}

}  // namespace

// An application that starts many sandboxes must not collect the zombies of their inits.
Sandbox::State::~State()
{
    if (is_ending)
        (void)reap(running.pidfd);
}

const char* version() noexcept
{
    return "0.1.0";
}

Sandbox::Sandbox(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Sandbox::Sandbox(Sandbox&&) noexcept = default;
Sandbox& Sandbox::operator=(Sandbox&&) noexcept = default;
Sandbox::~Sandbox() = default;

namespace {

Result<runtime::Running> start_running(const Spec& spec)
{
    runtime::Plan plan = TRY(runtime::plan(spec, runtime::host_for(spec)));
    Result<runtime::Running> running = runtime::launch(plan);
    if (!running && running.error().hint.empty())
        running.error().hint = runtime::diagnose_resources(running.error().err);
    return running;
}

}  // namespace

Result<Sandbox> Sandbox::start(const Spec& spec)
{
    auto state = std::make_unique<State>();
    state->running = TRY(start_running(spec));
    state->status = spec.status_descriptor.value_or(-1);
    return Sandbox{std::move(state)};
}

Result<ExitStatus> Sandbox::wait()
{
    const runtime::Running& running = state_->running;
    Result<ExitStatus> status =
        running.channel ? wait_for_init(running, state_->is_ending) : reap(running.pidfd);
    // What cannot be waited for must not go on unwatched.
    if (!status)
        sys::raw::call(SYS_pidfd_send_signal, running.pidfd.get(), SIGKILL, nullptr, 0);
    if (status && state_->status >= 0)
        runtime::write_exit_code(state_->status, status->shell_code());
    return status;
}

pid_t Sandbox::child_pid() const noexcept
{
    return state_->running.pid;
}

std::vector<int> Sandbox::descriptors() const
{
    std::vector<int> fds{state_->running.pidfd.get()};
    if (state_->running.channel)
        fds.push_back(state_->running.channel.get());
    for (const sys::Fd& lock : state_->running.locks)
        fds.push_back(lock.get());
    return fds;
}

}  // namespace nsbox
