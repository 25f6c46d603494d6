#pragma once

#include "sys/child_state.hpp"
#include "sys/fd.hpp"

namespace nsbox::mount {

// Mounts and how they get their flags and their place. Two mechanisms behind one interface: the
// mount API of Linux 5.12, where a cloned tree is restricted before anyone can reach it, and
// the classic mount(2) calls for kernels and seccomp filters that lack it. Child-safe.

/// Whether a failure to restrict a mount below the top one is passed over.
enum class Submounts { must_be_restricted, may_fail };

/// What is to be bound.
struct Source {
    int dir;           ///< Directory for a relative path.
    const char* path;  ///< "" when `dir` is the file itself.
};

/// Where a mount goes: an open O_PATH descriptor, and the name by which the topmost mount there
/// is found again: below `dir`, or below the new root when `dir` is negative. In a folder that
/// only this process can change, the name alone does: `fd` is then negative.
struct Target {
    int fd;
    int dir;
    const char* name;
};

/// A detached clone of the tree (mount API), or an O_PATH descriptor of its root (classic).
sys::Fd open_source(const sys::ChildState& state, Source source) noexcept;

/// Binds the tree onto `target` and gives every mount of it `attributes` (MOUNT_ATTR_*) beside
/// those that it has. On success `tree` refers to the attached tree's root.
int attach(sys::ChildState& state, sys::Fd& tree, Target target, std::uint64_t attributes,
           Submounts submounts) noexcept;

/// Makes the one mount whose root is open as `fd` read-only; -EINVAL where it is none.
int set_read_only(const sys::ChildState& state, int fd) noexcept;

/// Mounts a new file system on the folder `target`.
int mount_new(const char* type, int target, unsigned long flags, const char* options) noexcept;

/// Whether a path consists of nothing but slashes.
bool is_root_path(const char* path) noexcept;

/// The target for a resolved destination; its descriptor stays the caller's.
Target target_at(const sys::ChildState& state, const sys::Fd& place, const char* path) noexcept;

/// To be called with the mount that now lies at `path`: what lies over the root is the root from
/// here on.
void adopt_root(sys::ChildState& state, sys::Fd& tree, const char* path) noexcept;

/// The first mount over the old root is kept out of recursive copies of it.
int shield(sys::ChildState& state, bool on) noexcept;

/// Notes that the file system at `place` was made for the sandbox.
void note_own(sys::ChildState& state, const sys::Fd& place) noexcept;

/// The topmost mount at `target`.
sys::Fd reopen(const sys::ChildState& state, Target target) noexcept;

/// Sets how the one mount at `fd` propagates: MS_PRIVATE, MS_UNBINDABLE.
int set_propagation(const sys::ChildState& state, int fd, unsigned long kind) noexcept;

}  // namespace nsbox::mount
