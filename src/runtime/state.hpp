#pragma once

#include "nsbox/nsbox.hpp"
#include "runtime/control.hpp"
#include "runtime/events.hpp"
#include "runtime/launch.hpp"
#include "runtime/oom_kills.hpp"
#include "runtime/supervise.hpp"

namespace nsbox {

struct Sandbox::State {
    runtime::Running running;
    runtime::Duties duties;
    runtime::Events events;
    std::optional<runtime::OomKills> oom_kills;  ///< If somebody listens to the events.
    std::unique_ptr<runtime::Control> control;   ///< Where the sandbox can be found by others.
    int status = -1;                             ///< Borrowed, as in the Spec.
    bool is_ending = false;                      ///< Init has nothing left to wait for.

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();

    /// What the kernel has killed for want of memory; 0 if nobody listens.
    std::uint64_t count_oom_kills() const;
};

}  // namespace nsbox
