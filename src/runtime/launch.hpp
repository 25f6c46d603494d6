#pragma once

#include "runtime/plan.hpp"
#include "sys/fd.hpp"

#include <sys/types.h>
#include <vector>

namespace nsbox::runtime {

/// A sandbox whose command is being executed.
struct Running {
    pid_t pid = -1;  ///< The direct child, as this process's pid namespace numbers it.
    sys::Fd pidfd;
    sys::Fd channel;             ///< From init; invalid where the child is the command itself.
    std::vector<sys::Fd> locks;  ///< On folders that no other sandbox may use meanwhile.
    bool joined = false;         ///< It lives in a pid namespace that is not of its making.
};

/// Carries the plan out: clone3, the rendezvous, and waiting until the command is executed or
/// something failed. On failure the child is dead and reaped.
Result<Running> launch(Plan& plan);

}  // namespace nsbox::runtime
