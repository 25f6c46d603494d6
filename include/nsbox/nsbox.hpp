#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <memory>
#include <vector>

#include <sys/types.h>

namespace nsbox {

/// The version of the library, "major.minor.patch".
const char* version() noexcept;

/// How the command ended.
struct ExitStatus {
    int code = 0;    ///< Its exit status, if no signal ended it.
    int signal = 0;  ///< The signal that ended it, or 0.
    /// As a shell says it: the status, or 128 + signal.
    int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
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
    /// The descriptors that `spec` names are used and left open in the caller.
    static Result<Sandbox> start(const Spec& spec);

    Sandbox(Sandbox&&) noexcept;
    Sandbox& operator=(Sandbox&&) noexcept;
    ~Sandbox();

    /// Waits until the command has ended; background processes that it left may go on.
    /// Once only. Reports the end on spec.status_descriptor.
    Result<ExitStatus> wait();

    /// The direct child of the caller that belongs to the sandbox: its init, or the command.
    pid_t child_pid() const noexcept;

    /// The descriptors that this object owns, for callers that close all others.
    std::vector<int> descriptors() const;

private:
    struct State;
    explicit Sandbox(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

}  // namespace nsbox
