#pragma once

#include "sys/error.hpp"

#include <cstddef>
#include <functional>
#include <string>

#include <sys/stat.h>

namespace nsbox::rootfs {

/// Something that a walk came to.
struct Found {
    int folder = -1;   ///< The folder it is in, open.
    std::string name;  ///< In that; "." for the root.
    std::string path;  ///< Below the root.
    struct ::stat status {};
    int open = -1;  ///< A folder itself, open for reading; -1 else.
};

struct Visitor {
    /// Before what is in it, and whether to go into it, if it is a folder.
    std::function<Result<bool>(const Found&)> before;
    /// Of a folder, when all in it is done. May be empty.
    std::function<Result<>(const Found&)> after;
};

/// Everything below an open folder and that itself, no symbolic link followed, each folder's names
/// in order. ENAMETOOLONG where a path gets longer than 4095 bytes.
Result<> walk(int root, const Visitor& visitor);

/// Removes what is in a folder, however deep, and whatever the modes are. 0 or -errno.
int remove_content(int folder);
/// Removes a name of a folder, with all that is below where it is one.
int remove_name(int folder, const std::string& name);

/// As many descriptors as the process may have: a walk holds one for each level.
void raise_descriptor_limit();

}  // namespace nsbox::rootfs
