#pragma once

#include <cstdint>

namespace nsbox::mount {

/// One line of /proc/self/mountinfo, as far as we use it. See proc_pid_mountinfo(5).
struct MountLine {
    std::uint32_t id = 0;
    std::uint32_t parent = 0;
    char* mount_point = nullptr;  ///< In the caller's buffer, still escaped, ended by NUL.
    unsigned long flags = 0;      ///< MS_* of the per-mount options.
};

/// Parses the line at `at` and moves on to the next; false at the end. Lines that are not
/// understood are passed over. Writes NULs into the buffer. Child-safe.
bool next_mount(char*& at, char* end, MountLine& line) noexcept;

/// Turns the octal escapes (\040 and the like) of a field into what they stand for, in place.
void unescape(char* text) noexcept;

}  // namespace nsbox::mount
