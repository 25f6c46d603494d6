#pragma once

#include "nsbox/nsbox.hpp"
#include "runtime/channel.hpp"
#include "runtime/control.hpp"
#include "runtime/events.hpp"
#include "runtime/launch.hpp"

#include <chrono>

namespace nsbox::runtime {

/// What is to be kept and told while a sandbox lives.
struct Duties {
    Limits limits;
    Watch watch;
    Control* control = nullptr;
    bool own_session = false;  ///< A terminal of the caller's sends its signals elsewhere.
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

/// Waits until the command has ended. `is_ending` becomes true where the child will end by itself
/// and is still to be reaped.
Result<ExitStatus> supervise(const Running& running, const Duties& duties, const Events& events,
                             bool& is_ending);

/// What a message that a command has exited says; without what the kernel killed for want of memory.
ExitStatus exit_status(const Received& message);

/// Has the child end with everything in the sandbox; end_all() also waits for that, and reaps it.
void tell_end(const Running& running);
void end_all(const Running& running);

/// Reaps the direct child, whose pidfd this is.
Result<ExitStatus> reap(const sys::Fd& pidfd);

}  // namespace nsbox::runtime
