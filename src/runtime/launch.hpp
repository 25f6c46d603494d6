#pragma once

#include "net/helper_client.hpp"
#include "nsbox/nsbox.hpp"
#include "runtime/denials/logger.hpp"
#include "runtime/group.hpp"
#include "runtime/group_limits.hpp"
#include "runtime/plan.hpp"
#include "runtime/report.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <sys/types.h>
#include <vector>

namespace nsbox::runtime {

/// A sandbox whose command is being executed.
struct Running {
    pid_t pid = -1;  ///< The direct child, as this process's pid namespace numbers it.
    sys::Fd pidfd;
    sys::Fd channel;                 ///< From init; invalid where the child is the command itself.
    std::vector<std::string> notes;  ///< See Sandbox::notes().
    std::vector<sys::Fd> locks;      ///< On folders that no other sandbox may use meanwhile.
    sys::Fd command;  ///< A pidfd of the command; invalid where init keeps it to itself.
    pid_t command_pid = -1;
    sys::Fd terminal;            ///< The master of the sandbox's terminal.
    sys::Fd directory;           ///< Where its init serves: the working directory...
    sys::Fd terminals;           ///< ...and its own devpts, if it has one; O_PATH.
    bool ends_together = false;  ///< The child ends, with everything, when the command does.
    bool subreaper = false;      ///< The child is an init, but not pid 1.
    std::unique_ptr<net::HelperClient> network;  ///< Of a user-mode network...
    bool ends_with_network = false;              ///< ...whose end is that of the sandbox.
    std::vector<int> signals;                    ///< What arrived meanwhile and is to be forwarded.
    NamespaceReport report{};                    ///< If the plan has the child report.
    sys::Fd host;                  ///< Of the sandbox that was entered: its end ends the command.
    bool joined = false;           ///< It lives in a pid namespace that is not of its making.
    std::unique_ptr<Group> group;  ///< The control group that the command lives in, if it has one.
    std::unique_ptr<DenialLogger> denials;
    std::shared_ptr<LimitGroups> limits;  ///< What holds everything in the sandbox to its limits.

    /// When the child is dead and reaped.
    void remove_groups() const
    {
        if (group)
            group->remove();
        if (limits)
            limits->remove();
    }
};

/// The pid of a process that is known by its pidfd only, as this process's /proc numbers it; -1 where
/// it has none, or has ended.
pid_t pid_of(int pidfd);

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// Carries the plan out: clone3, the rendezvous, and waiting until the command is executed or
/// something failed, or it is too late. On failure the child is dead and reaped. `limits` are made on the
/// way; null: there are none. `network` serves the one that the plan keeps, and ends on failure.
Result<Running> launch(Plan& plan, const Watch& watch, const Deadline& deadline = std::nullopt,
                       std::unique_ptr<LimitGroups> limits = nullptr,
                       std::unique_ptr<net::HelperClient> network = nullptr);

}  // namespace nsbox::runtime
