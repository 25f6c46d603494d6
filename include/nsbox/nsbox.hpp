#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace nsbox {

namespace runtime {
class Events;
}

/// The version of the library, "major.minor.patch".
const char* version() noexcept;

/// Why a command ended as it did.
enum class Reason {
    exited,          ///< By itself, or by a signal that is not ours.
    time_limit,      ///< Limits::time was over.
    cpu_limit,       ///< Limits::cpu was over.
    caller_ended,    ///< The process that Watch::caller names ended.
    killed,          ///< A second SIGTERM was to be forwarded.
    network_failed,  ///< The helper of the sandbox's network ended.
    out_of_memory,  ///< By SIGKILL, while the kernel killed for want of memory in this control group.
};

/// What a sandbox used, as far as its processes were reaped. See getrusage(2).
struct Usage {
    std::chrono::microseconds user{0};
    std::chrono::microseconds system{0};
    std::uint64_t max_rss_kib = 0;  ///< Of the largest process.
};

/// How the command ended.
struct ExitStatus {
    int code = 0;    ///< Its exit status, if no signal ended it.
    int signal = 0;  ///< The signal that ended it, or 0.
    Reason reason = Reason::exited;
    Usage usage;
    /// How many processes the kernel has killed for want of memory: known with GroupLimits::memory, or where
    /// somebody listens to the events, which tell whose they may be.
    std::uint64_t oom_kills = 0;
    /// As a shell says it: the status, or 128 + signal; 124 where a limit ended it, as timeout(1);
    /// 125 where its network failed.
    int shell_code() const noexcept
    {
        if (reason == Reason::network_failed)
            return 125;
        if (reason == Reason::time_limit || reason == Reason::cpu_limit)
            return 124;
        return signal != 0 ? 128 + signal : code;
    }
};

/// What of the calling program start() and wait() look at besides the sandbox. All borrowed.
struct Watch {
    /// A signalfd(2), whose signals this thread has blocked: they are forwarded to the command,
    /// except those that a terminal sends to the whole process group, which have reached it
    /// already. The second SIGTERM kills the sandbox. After SIGTSTP this process stops itself too.
    /// While the sandbox is being started, SIGINT, SIGTERM, SIGHUP and SIGQUIT end that.
    std::optional<DescriptorNumber> signals;
    /// A pidfd (pidfd_open(2)): when its process ends, so does the sandbox.
    std::optional<DescriptorNumber> caller;
    /// With Spec::terminal: where what is typed comes from and what is printed goes to. A terminal
    /// is put into raw mode meanwhile. Without them the terminal() is the caller's to read.
    std::optional<DescriptorNumber> input;
    std::optional<DescriptorNumber> output;
};

/// A sandbox and the command that it was made for. Move-only. The destructor releases the
/// descriptors and leaves the sandbox running; use wait() first. Where background processes go on
/// after that, the child_pid() that stays with them is the caller's to reap.
///
/// Thread-safety: different objects may be used from different threads at once, start() too.
/// Needs Linux 5.10: clone3, pidfd_open (clone(2), pidfd_open(2)).
class Sandbox {
public:
    /// Builds the sandbox that `spec` describes and starts the command in it; returns when the
    /// command is being executed. On failure nothing is left behind. Blocks the calling thread;
    /// blocks signals in it meanwhile and restores them.
    /// The descriptors that `spec` and `watch` name are used and left open in the caller.
    static Result<Sandbox> start(const Spec& spec, const Watch& watch = {});

    Sandbox(Sandbox&&) noexcept;
    Sandbox& operator=(Sandbox&&) noexcept;
    ~Sandbox();

    /// Waits until the command has ended, keeping the limits; background processes that it left may
    /// go on unless Spec::end_with_command forbids them: then it waits for their end too.
    /// Once only. Reports the end on spec.status_descriptor and spec.events_descriptor.
    Result<ExitStatus> wait();

    /// Ends everything in the sandbox, and waits for that; also after wait(). Where the command has
    /// a pid namespace of the caller's choosing or none, that is what init kept hold of.
    void kill();

    /// Sends a signal to the command. ESRCH when it has ended; ENOTSUP under an init, unless
    /// Spec::signals_command. Any thread may do this while another waits.
    Result<> signal(int number);

    /// The direct child of the caller that belongs to the sandbox: its init, or the command.
    pid_t child_pid() const noexcept;

    /// The command, as this process's pid namespace numbers it; -1 where that is not known.
    pid_t command_pid() const noexcept;

    /// The master of the sandbox's terminal, owned here; -1 without one.
    int terminal() const noexcept;

    /// The published ports of the sandbox's network, with those that the kernel chose, and of
    /// add_port(). Any thread may use these three while another waits.
    std::vector<PublishedPort> ports() const;
    /// Publishes one more port, which works when this returns; what it has become. EADDRINUSE,
    /// EACCES, EADDRNOTAVAIL as for bind(2); ENOTSUP without a network of that kind.
    Result<PublishedPort> add_port(const PublishedPort& port);
    /// Takes the port away that has the same place: the same kind, address and port of the host, or path,
    /// or, of a host_socket, port of the sandbox. That is free when this returns; connections that
    /// there are go on.
    Result<> remove_port(const PublishedPort& port);

    /// What is otherwise than it was asked for, where that was allowed: a sentence each.
    const std::vector<std::string>& notes() const noexcept;

    /// The descriptors that this object owns, for callers that close all others.
    std::vector<int> descriptors() const;

private:
    friend class Remote;
    struct State;
    static Result<std::unique_ptr<State>> begin(const Spec& spec, const Watch& watch,
                                                const runtime::Events& events);
    explicit Sandbox(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

/// Why this host does not let the caller have the namespaces and mounts that sandboxes are made of, found out by
/// trying; nothing where it does. See Landlock::only for what is to be had then.
std::optional<std::string> namespaces_refused();

}  // namespace nsbox
