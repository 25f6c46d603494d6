#pragma once

#include "sys/error.hpp"

#include <string>
#include <vector>

namespace nsbox::rootfs {

/// One path in which an overlay differs from its lower tree.
struct Change {
    enum class Kind { added, changed, deleted };
    Kind kind = Kind::added;
    std::string path;           ///< Below the root, without a slash in front.
    bool is_directory = false;  ///< What it is now; of a deleted one, what it was.

    bool operator==(const Change&) const = default;
};

/// Compares an overlay's upper folder with its one lower tree, both by descriptors that stay the caller's
/// and that directories can be read by; sorted by path, byte by byte. See the kernel's
/// Documentation/filesystems/overlayfs.rst for the marks in an upper folder: whiteouts as devices and as
/// attributes, opaque folders, each with the names for root ("trusted.") and with those for others
/// ("user.", Linux 5.11).
///
/// A file that was copied up and is the same in every respect but its number is no change; a folder that
/// was changes only with its owner, mode or attributes. What was deleted together with the folder above
/// it is not listed. Folders that are renamed in the upper one alone ("redirect") and files without
/// their contents ("metacopy") are refused: nsbox mounts overlays without either.
///
/// The upper folder may be anything that hostile code could leave there: no link is followed. The sandbox
/// that writes there should have ended; what it changes meanwhile may be listed in part.
Result<std::vector<Change>> list_changes(int upper, int lower);

}  // namespace nsbox::rootfs
