#pragma once

#include <cstdint>

namespace nsbox::runtime {

// What is done with the control group of a sandbox, by init, by the process that guards the group
// and by the supervisor: see cgroups(7) and the kernel's cgroup-v2. Nothing here may need libc.
// `folder` is a descriptor of the group that it is made in, `name` its name there.

/// How many bytes the name of a sandbox's group has at most, with the NUL.
inline constexpr unsigned group_name_size = 32;

/// Kills everything in a group and in those below it, also what is being forked (cgroup.kill, Linux 5.14);
/// where the group has no such file, as in version 1, what is in its list of processes now. Does not wait.
/// 0 or -errno.
int kill_group(int folder, const char* name) noexcept;

/// Kills what is in a group, waits for the end of that, and removes the group with those below it.
/// 0, also where there is no such group; -EBUSY when it still has processes after about `patience`
/// milliseconds, else what the kernel says.
int remove_group(int folder, const char* name, int patience) noexcept;

/// Removes a group, with those below it, if there is no process in any. 0, also where there is none; -EBUSY
/// while there is one, else what the kernel says.
int remove_empty_group(int folder, const char* name) noexcept;

/// How many processes the kernel has killed for want of memory in the group whose memory.events is
/// open as `file`; all ones where that cannot be read.
std::uint64_t oom_kills_of(int file) noexcept;
inline constexpr std::uint64_t unknown_kills = ~std::uint64_t{0};

}  // namespace nsbox::runtime
