#include "runtime/supervise.hpp"

#include "pty/relay.hpp"
#include "runtime/channel.hpp"
#include "runtime/cpu_time.hpp"
#include "runtime/group_files.hpp"
#include "runtime/packet.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long an init that was told to end everything may take before it is killed itself.
constexpr milliseconds patience{2000};
/// How long what was written last may take to be printed where something was ended by force.
constexpr milliseconds last_words{200};
/// How often at most the processor time is asked for.
constexpr milliseconds shortest_look{20};

std::chrono::microseconds from_timeval(const timeval& time)
{
    return std::chrono::seconds{time.tv_sec} + std::chrono::microseconds{time.tv_usec};
}

ExitStatus from_wait_status(int status)
{
    ExitStatus result;
    if (WIFSIGNALED(status))
        result.signal = WTERMSIG(status);
    else
        result.code = WEXITSTATUS(status);
    return result;
}

class Supervisor {
public:
    Supervisor(const Running& running, const Duties& duties, const Events& events)
        : running_(running), duties_(duties), events_(events)
    {
        if (duties.limits.time.count() > 0)
            at_ = duties.started + duties.limits.time;
        if (duties.limits.cpu.count() > 0)
            cpu_at_ = duties.started + shortest_look;
    }

    Result<ExitStatus> run(bool& is_ending)
    {
        if (running_.terminal && (duties_.watch.input || duties_.watch.output))
            relay_ =
                TRY(pty::Relay::create(running_.terminal.get(), duties_.watch.input.value_or(-1),
                                       duties_.watch.output.value_or(-1)));
        for (const int number : running_.signals)
            forward(number);
        while (!status_ || must_end_) {
            TRY(wait_for_something());
            keep_limits();
            if (!status_)
                TRY(hear_init());
            // What the command of a limited sandbox leaves behind is over its limit too.
            if (status_ && reason_ != Reason::exited && !killed_)
                end(reason_);
            if (child_ended()) {
                TRY(reap_child());
                break;
            }
        }
        is_ending = is_last_ && !is_reaped_;
        if (is_reaped_)
            running_.remove_groups();
        TRY(print_the_rest());
        status_->reason = reason_;
        return *status_;
    }

private:
    enum Slot : std::size_t { channel, child, signals, caller, host, slots };

    /// What the command wrote to its terminal is waited for as long as somebody may read it.
    Result<> print_the_rest()
    {
        if (!relay_)
            return {};
        relay_->command_ended();
        if (reason_ != Reason::exited || gave_up_) {
            relay_->drain(last_words);
        } else {
            status_is_final_ = true;
            while (!relay_->is_drained() && reason_ == Reason::exited && !gave_up_) {
                TRY(wait_for_something());
                keep_limits();
            }
        }
        relay_->finish();
        return {};
    }

    int channel_fd() const
    {
        return status_ || channel_ended_ || !running_.channel ? -1 : running_.channel.get();
    }

    Result<> wait_for_something()
    {
        fds_.resize(slots);
        fds_[channel] = {channel_fd(), POLLIN, 0};
        fds_[child] = {is_reaped_ || (status_ && !must_end_) ? -1 : running_.pidfd.get(), POLLIN,
                       0};
        fds_[signals] = {duties_.watch.signals.value_or(-1), POLLIN, 0};
        // An end stays readable: it is looked for once.
        fds_[caller] = {killed_ ? -1 : duties_.watch.caller.value_or(-1), POLLIN, 0};
        fds_[host] = {killed_ || status_ || !running_.host ? -1 : running_.host.get(), POLLIN, 0};
        if (relay_)
            relay_->add_to(fds_);
        if (duties_.control != nullptr)
            duties_.control->add_to(fds_);
        if (running_.network)
            running_.network->add_to(fds_);
        const int timeout = time_to_wait();
        if (::poll(fds_.data(), fds_.size(), timeout) < 0) {
            if (errno != EINTR)
                return fail("poll", errno, "the sandbox");
            for (pollfd& fd : fds_)
                fd.revents = 0;
        }
        if (relay_) {
            relay_->handle(fds_);
            // Nobody sees what the command shows: that is a terminal's hang-up too.
            if ((relay_->outer_is_gone() || relay_->output_error() != 0) && !hung_up_) {
                hung_up_ = true;
                send(SIGHUP);
            }
        }
        if (duties_.control != nullptr)
            obey(duties_.control->handle(fds_));
        if (running_.network)
            hear_network(running_.network->handle(fds_));
        if (fds_[signals].revents != 0)
            take_signals();
        if (fds_[caller].revents != 0)
            end(Reason::caller_ended);
        else if (fds_[host].revents != 0)
            end(Reason::killed);
        return {};
    }

    /// For poll(2): milliseconds, or -1.
    int time_to_wait() const
    {
        constexpr long long most = 1000000;
        long long wait = relay_ ? relay_->timeout() : -1;
        if (const int soon = running_.network ? running_.network->timeout() : -1; soon >= 0)
            wait = wait < 0 ? soon : std::min<long long>(wait, soon);
        for (const auto& time : {at_, cpu_at_}) {
            if (!time)
                continue;
            const long long left = std::clamp<long long>(
                std::chrono::ceil<milliseconds>(*time - Clock::now()).count(), 0, most);
            wait = wait < 0 ? left : std::min(wait, left);
        }
        return static_cast<int>(wait);
    }

    // Limits.

    void keep_limits()
    {
        if (cpu_at_ && Clock::now() >= *cpu_at_)
            look_at_cpu_time();
        if (!at_ || Clock::now() < *at_)
            return;
        at_.reset();
        if (reason_ == Reason::exited)
            stop_politely(Reason::time_limit, "time");
        else if (!killed_)
            end(reason_);
        else
            raw::pidfd_send_signal(running_.pidfd.get(), SIGKILL);
    }

    void look_at_cpu_time()
    {
        const milliseconds used = cpu_time_of_tree(running_.pid);
        if (used >= duties_.limits.cpu) {
            cpu_at_.reset();
            stop_politely(Reason::cpu_limit, "cpu-time");
            return;
        }
        // Not before this can the limit be reached.
        const auto processors = std::max(1U, std::thread::hardware_concurrency());
        cpu_at_ = Clock::now() + std::max(shortest_look, (duties_.limits.cpu - used) / processors);
    }

    void stop_politely(Reason reason, const char* which)
    {
        reason_ = reason;
        cpu_at_.reset();
        events_.limit(which, SIGTERM);
        send(SIGTERM);
        send(SIGCONT);  // One that is stopped would not notice.
        at_ = Clock::now() + duties_.limits.grace;
    }

    /// Kills everything.
    void end(Reason reason)
    {
        reason_ = reason;
        killed_ = true;
        must_end_ = true;
        cpu_at_.reset();
        at_.reset();
        tell_end(running_);
        if (running_.subreaper)
            at_ = Clock::now() + patience;
    }

    // Signals.

    int command() const
    {
        return running_.command   ? running_.command.get()
               : running_.channel ? -1
                                  : running_.pidfd.get();
    }

    void send(int number)
    {
        if (command() >= 0)
            raw::pidfd_send_signal(command(), number);
    }

    void take_signals()
    {
        signalfd_siginfo info;
        bool stops = false;
        while (raw::read(*duties_.watch.signals, &info, sizeof info) == sizeof info) {
            const int number = static_cast<int>(info.ssi_signo);
            // What a terminal sends goes to all of its foreground group, the command included.
            const bool reached_it = info.ssi_code == SI_KERNEL && !duties_.own_session;
            if (number == SIGWINCH && relay_)
                relay_->on_window_change();
            else if (!reached_it)
                forward(number);
            // The one that came last holds.
            if (number == SIGTSTP || number == SIGCONT)
                stops = number == SIGTSTP;
            if (number == SIGCONT && relay_)
                relay_->resume();
        }
        if (stops)
            stop_here();
    }

    /// This process is stopped like any other of a shell's job.
    void stop_here()
    {
        if (relay_)
            relay_->suspend();
        ::raise(SIGSTOP);
        if (relay_)
            relay_->resume();
    }

    void obey(const Control::Orders& orders)
    {
        for (const int number : orders.signals)
            send(number);
        for (const PublishedPort& port : orders.added)
            events_.port(port);
        for (const PublishedPort& port : orders.removed)
            events_.port_removed(port);
        if (orders.end && !killed_)
            end(Reason::killed);
    }

    /// One that ends with the sandbox has nothing to say.
    void hear_network(const Result<>& word)
    {
        if (word || status_ || killed_ || child_ended())
            return;
        events_.network_failed(word.error());
        if (running_.ends_with_network)
            end(Reason::network_failed);
    }

    void forward(int number)
    {
        if (status_is_final_)
            gave_up_ = gave_up_ || number == SIGTERM || number == SIGHUP || number == SIGINT ||
                       number == SIGQUIT;
        else if (number == SIGTERM && ++terms_ > 1)
            end(Reason::killed);
        else
            send(number);
    }

    // Ends.

    /// Init's message counts, if there is one, whatever else has happened.
    Result<> hear_init()
    {
        while (running_.channel && !channel_ended_) {
            const Received received = receive(running_.channel.get(), MSG_DONTWAIT);
            channel_ended_ = received.end;
            if (received.end || received.error == EAGAIN)
                return {};
            if (received.error != 0)
                return fail("recvmsg", received.error, "the sandbox");
            if (received.message.kind != Tell::exited)
                continue;
            status_ = exit_status(received);
            is_last_ = received.message.step == 1;
            CommandUsage usage{};
            std::memcpy(&usage, received.text.data(), std::min(received.text.size(), sizeof usage));
            if (running_.group && usage.oom_kills != unknown_kills)
                running_.group->oom_kills = usage.oom_kills;
            // A pid namespace that is joined cannot end while init's zombie is in it.
            must_end_ = must_end_ || running_.ends_together || (is_last_ && running_.joined);
            return {};
        }
        return {};
    }

    bool child_ended() const
    {
        pollfd fd{running_.pidfd.get(), POLLIN, 0};
        return fds_[child].revents != 0 || ::poll(&fd, 1, 0) > 0;
    }

    Result<> reap_child()
    {
        if (!status_)
            TRY(hear_init());  // It may have spoken and ended since.
        Result<ExitStatus> end = reap(running_.pidfd);
        is_reaped_ = true;
        if (!end && !status_)
            return tl::make_unexpected(std::move(end.error()));
        if (!status_)
            status_ = *end;
        else if (end)
            status_->usage = end->usage;
        return {};
    }

    const Running& running_;
    const Duties& duties_;
    const Events& events_;
    std::unique_ptr<pty::Relay> relay_;
    std::vector<pollfd> fds_;
    std::optional<Clock::time_point> at_;  ///< When time is up, or patience with what was asked.
    std::optional<Clock::time_point> cpu_at_;  ///< When to look at the processor time.
    std::optional<ExitStatus> status_;
    Reason reason_ = Reason::exited;
    bool killed_ = false;
    bool must_end_ = false;  ///< The child's end is to be waited for.
    bool is_last_ = false;
    bool is_reaped_ = false;
    bool channel_ended_ = false;
    bool hung_up_ = false;
    bool status_is_final_ = false;  ///< The command has ended; its last words are being printed.
    bool gave_up_ = false;          ///< Somebody does not want to wait for these.
    int terms_ = 0;
};

}  // namespace

Result<ExitStatus> reap(const sys::Fd& pidfd)
{
    siginfo_t info{};
    rusage usage{};
    for (;;) {
        const long rc =
            raw::call(SYS_waitid, P_PIDFD, pidfd.get(), &info, WEXITED | __WALL, &usage);
        if (rc == 0)
            break;
        if (rc != -EINTR)
            return fail("waitid", static_cast<int>(-rc), "the sandbox",
                        rc == -ECHILD ? "the caller ignores SIGCHLD, which loses the status" : "");
    }
    ExitStatus status;
    (info.si_code == CLD_EXITED ? status.code : status.signal) = info.si_status;
    status.usage = {from_timeval(usage.ru_utime), from_timeval(usage.ru_stime),
                    static_cast<std::uint64_t>(usage.ru_maxrss)};
    return status;
}

ExitStatus exit_status(const Received& message)
{
    ExitStatus status = from_wait_status(message.message.value);
    CommandUsage usage{};
    std::memcpy(&usage, message.text.data(), std::min(message.text.size(), sizeof usage));
    status.usage = {std::chrono::microseconds{usage.user_us},
                    std::chrono::microseconds{usage.system_us}, usage.max_rss_kib};
    return status;
}

void tell_end(const Running& running)
{
    raw::pidfd_send_signal(running.pidfd.get(), running.subreaper ? end_signal : SIGKILL);
}

void end_all(const Running& running)
{
    tell_end(running);
    pollfd fd{running.pidfd.get(), POLLIN, 0};
    const auto limit = Clock::now() + patience;
    while (::poll(&fd, 1, static_cast<int>(patience.count())) < 0 && errno == EINTR &&
           Clock::now() < limit) {
    }
    raw::pidfd_send_signal(running.pidfd.get(), SIGKILL);
    (void)reap(running.pidfd);
    running.remove_groups();
}

Result<ExitStatus> supervise(const Running& running, const Duties& duties, const Events& events,
                             bool& is_ending)
{
    return Supervisor{running, duties, events}.run(is_ending);
}

}  // namespace nsbox::runtime
