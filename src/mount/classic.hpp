#pragma once

#include "mount/tree.hpp"

namespace nsbox::mount::classic {

// The same operations with mount(2) alone: bind, then remount every mount of the copied tree
// that can be reached by path. Between the two the copy has its source's flags, but only the
// set-up process exists at that time. Mounts that are covered by others keep their flags.

int attach(sys::ChildState& state, sys::Fd& tree, Target target, std::uint64_t attributes,
           Submounts submounts) noexcept;

int set_read_only(int fd) noexcept;

}  // namespace nsbox::mount::classic
