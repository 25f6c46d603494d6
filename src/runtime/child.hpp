#pragma once

#include "runtime/command.hpp"
#include "runtime/packet.hpp"
#include "runtime/steps.hpp"

#include <linux/sched.h>

namespace nsbox::runtime {

/// Everything that the child borrows from the Plan and from launch(). Pointers and numbers only.
struct ChildProgram {
    const ChildStep* steps = nullptr;
    std::size_t step_count = 0;
    int channel = -1;         ///< The child's end.
    int supervisor_end = -1;  ///< The other end, which the child must not hold open.
    bool has_clone3 = true;

    Command command{};
    unsigned pwd_slot = 0;
    const char* pwd[pwd_choices] = {};

    int init = -1;    ///< The init program, or negative: the child executes the command itself.
    int packet = -1;  ///< What init is given.
    const char* const* init_argv = nullptr;
    int init_program = -1;     ///< What init is to execute, if not a path.
    int init_supervisor = -1;  ///< A pidfd that init is to have.
    bool init_adopts = false;  ///< Init is not pid 1 and is given the list of its children.
    int init_group = -1;       ///< A control group that init is to have...
    int init_lifeline = -1;    ///< ...and the pipe that shows that it lives.
    int init_helper = -1;      ///< See PacketHeader.
    const int* init_entrances = nullptr;  ///< The same.
    std::size_t init_entrance_count = 0;
    int init_standard =
        -1;  ///< What init's standard descriptors lead to, if not where the caller's do.

    int host_terminal = -1;  ///< A pty master of the host.

    bool hide = false;  ///< Nobody inside may look at this process before it executes something.
    /// This program's arguments and environment, which everybody who sees the process may read.
    char* words = nullptr;
    std::size_t words_size = 0;

    // Joining namespaces takes further processes; see run_joiner().
    std::size_t first_steps = 0;  ///< The steps before anything is joined...
    std::size_t early_steps = 0;  ///< ...and those before the birth in the pid namespace.
    sys::Ids outer;               ///< Who the joiner was in the user namespace that it came to.
    int join_user = -1;
    int join_pid = -1;
    std::uint64_t clone_flags = 0;
    bool own_pid = false;
};

/// Whether the process that joins is the last one on the way: it needs to be born neither in a pid
/// namespace nor in any new one.
constexpr bool is_the_joiner(const ChildProgram& program) noexcept
{
    return program.join_pid < 0 && program.clone_flags == 0;
}

/// Numbers in place of a step's index, for what happens before the first step.
enum : std::int32_t { joining_user = -2, joining_pid = -3, cloning = -4, starting = -5 };

/// Runs the steps and executes the command or init; does not return.
[[noreturn]] void run_child(const ChildProgram& program) noexcept;

/// Joins the namespaces that the program names, runs the early steps and, unless nothing is left
/// that takes a new process, hands over to a child made there, which becomes a child of the supervisor
/// (CLONE_PARENT); does not return.
[[noreturn]] void run_joiner(const ChildProgram& program) noexcept;

/// The two as clone_child() takes them; `program` is a ChildProgram. They are compiled as all that
/// runs in the child is: a sanitizer's code would be lost on the child's stack.
void run_child_entry(void* program) noexcept;
void run_joiner_entry(void* program) noexcept;

/// clone3, or clone where that is missing. `stack` null: the child has a copy of the memory.
struct CloneRequest {
    std::uint64_t flags;
    void* stack;
    std::size_t stack_size;
    int* pidfd;
    bool has_clone3;
    bool to_our_parent;  ///< CLONE_PARENT, which takes no exit signal.
};
long clone_child(const CloneRequest& request, void (*function)(void*), void* argument) noexcept;

}  // namespace nsbox::runtime
