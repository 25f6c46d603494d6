#pragma once

#include "nsbox/nsbox.hpp"
#include "runtime/control.hpp"
#include "runtime/events.hpp"
#include "runtime/join_network.hpp"
#include "runtime/launch.hpp"
#include "runtime/oom_kills.hpp"
#include "runtime/recipe.hpp"
#include "runtime/supervise.hpp"

#include <atomic>
#include <mutex>

namespace nsbox {

/// Who counts what the kernel kills for want of memory, for commands that may outlive their Sandbox.
class MemoryLimit {
public:
    explicit MemoryLimit(std::shared_ptr<runtime::LimitGroups> groups) : groups_(std::move(groups))
    {}
    std::uint64_t kills();

private:
    std::mutex mutex_;
    std::shared_ptr<runtime::LimitGroups> groups_;
};

/// What further commands are made of, in a sandbox for many.
struct Serving {
    Spec spec;
    runtime::ForeignNetwork joined;  ///< With Spec::join_network.
    bool has_network = false;        ///< One of its own.
    unsigned user_namespaces = 0;    ///< As in the Plan.
    runtime::Recipe recipe;
    std::vector<std::string> command;  ///< For those that have no words of their own.
    bool is_filtered = false;          ///< Init is below the filters that they are to have.
    std::atomic<bool> is_closed = false;
    std::shared_ptr<MemoryLimit> memory;  ///< Null without a limit of the sandbox's own.
};

struct Sandbox::State {
    runtime::Running running;
    runtime::Duties duties;
    runtime::Events events;
    std::optional<runtime::OomKills> oom_kills;  ///< If somebody listens to the events.
    std::unique_ptr<runtime::Control> control;   ///< Where the sandbox can be found by others.
    int status = -1;                             ///< Borrowed, as in the Spec.
    bool is_ending = false;                      ///< Init has nothing left to wait for.
    std::unique_ptr<Serving> serving;            ///< Of a sandbox for many commands.

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();

    /// Ends one for many commands, if that has not been done.
    void close();

    /// What the kernel has killed for want of memory; 0 if nobody listens.
    std::uint64_t count_oom_kills() const;
};

struct Process::State {
    sys::Fd report;  ///< Init's words about this command.
    sys::Fd pidfd;
    sys::Fd input;
    sys::Fd output;
    sys::Fd error;
    sys::Fd terminal;
    std::shared_ptr<MemoryLimit> memory;
    std::uint64_t kills_before = 0;  ///< What `memory` had counted when the command started.
    std::optional<ExitStatus> status;
};

}  // namespace nsbox
