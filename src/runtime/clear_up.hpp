#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <string>
#include <vector>

namespace nsbox::runtime {

/// What a process outside of the sandbox does if this one is killed.
struct ClearUp {
    std::string name;  ///< Of what is to be removed...
    int folder = -1;   ///< ...in this folder: a socket, or...
    /// ...where there is the reading end of a pipe, a control group, once nobody has the other end
    /// any more. See Group.
    int lifeline = -1;
    bool at_once = false;  ///< What is in the group is killed as soon as this process is dead.
    /// ...or control groups of that name in each of these, once nothing is in them. See LimitGroups.
    std::vector<int> groups = {};
    /// The socket that is there now, and not another one that has its name later on.
    bool this_one = false;
};

/// Starts the init program in that role, in a session of its own, where nobody inside the sandbox can
/// reach what it holds; a pidfd of it. It is a child of this process, to be killed and reaped when
/// everything is cleared up.
Result<sys::Fd> start_clear_up(const ClearUp& what);

/// Ends and reaps it, by that pidfd.
void end_clear_up(sys::Fd process);

}  // namespace nsbox::runtime
