#pragma once

#include "runtime/plan.hpp"

namespace nsbox::runtime {

struct OperationContext {
    const sys::Host& host;
    bool fresh_proc;       ///< The sandbox has a pid namespace that is not the caller's.
    bool loses_privilege;  ///< Root that enters a user namespace: it may read less there.
    bool cover_proc;       ///< The sandbox may be the user who owns the kernel's settings.
    bool late_hostname;    ///< The uts namespace comes when the tree stands.
    bool own_terminal;     ///< The command gets a terminal of the sandbox's.
};

/// Pure: the steps that build the file tree, from MakeRoot on.
Result<> plan_operations(const Spec& spec, const OperationContext& context, Plan& plan);

/// Whether a classic BPF program has a size that the kernel takes.
Result<> check_filter(const std::vector<std::uint8_t>& program);

/// What the user called a network namespace, for messages: a path, "descriptor 9", the name of a
/// sandbox.
std::string name_of(const JoinNetwork& wish);

}  // namespace nsbox::runtime
