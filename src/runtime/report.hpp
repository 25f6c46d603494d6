#pragma once

#include "runtime/command.hpp"

#include <cstdint>

namespace nsbox::runtime {

/// The namespaces that are reported, in the order of the report. bwrap's reports have the first
/// six of them.
inline constexpr std::size_t namespace_count = 7;
inline constexpr std::size_t classic_namespace_count = 6;
inline constexpr const char* namespace_names[namespace_count] = {"cgroup", "ipc", "mnt", "net",
                                                                 "pid",    "uts", "user"};

/// What the child tells while it waits for the supervisor: inode numbers, 0 where unreadable.
struct NamespaceReport {
    Message message;
    std::uint64_t inodes[namespace_count];
};

}  // namespace nsbox::runtime
