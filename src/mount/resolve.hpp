#pragma once

#include "sys/child_state.hpp"
#include "sys/fd.hpp"

namespace nsbox::mount {

// Destinations. Everything here runs after clone3 and resolves names below `state.root` as a
// process inside would: absolute symbolic links start at the new root, ".." stops there, and
// magic links are refused. openat2(2) with RESOLVE_IN_ROOT does it where the kernel has it; a
// walk of one component at a time with O_PATH | O_NOFOLLOW does it elsewhere.

/// Whether a symbolic link as the last component is followed.
enum class Leaf { follow, keep };

/// Opens what `path` names as O_PATH; an Fd holding -errno otherwise.
sys::Fd resolve(const sys::ChildState& state, const char* path, Leaf leaf = Leaf::follow) noexcept;

/// As resolve(), for a folder: -ENOTDIR where it is none. One call where the kernel has openat2.
sys::Fd resolve_directory(const sys::ChildState& state, const char* path,
                          Leaf leaf = Leaf::follow) noexcept;

/// A folder for `path`: what is there, or made with `mode`. Missing parents get `parent_mode`.
sys::Fd ensure_directory(sys::ChildState& state, const char* path, unsigned mode,
                         unsigned parent_mode) noexcept;

/// A mount point for something that is no folder: what is there, or an empty file.
sys::Fd ensure_file(sys::ChildState& state, const char* path, unsigned parent_mode) noexcept;

/// Makes missing parents of `path` and opens the last of them; `leaf` becomes the last component.
/// The name is copied to `name`, which holds NAME_MAX + 1 bytes.
struct Place {
    sys::Fd parent;
    char name[256];
};
int ensure_parents(sys::ChildState& state, const char* path, unsigned parent_mode,
                   Place& place) noexcept;

}  // namespace nsbox::mount
