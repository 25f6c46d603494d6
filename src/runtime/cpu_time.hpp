#pragma once

#include <chrono>
#include <sys/types.h>

namespace nsbox::runtime {

/// User and system time of a process, of those that it and its descendants have reaped, and of its
/// living descendants, as /proc tells: proc(5), stat and children. Zero where it cannot be read.
std::chrono::milliseconds cpu_time_of_tree(pid_t root);

}  // namespace nsbox::runtime
