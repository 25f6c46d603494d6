#pragma once

#include "runtime/report.hpp"
#include "sys/error.hpp"

#include <string>
#include <sys/types.h>

namespace nsbox::runtime {

// The two reports that bwrap's callers read. Keys, order and blanks are part of the contract:
// callers parse them by line. A reader that is gone gives EPIPE, never SIGPIPE.

/// Writes with SIGPIPE held back from this thread, and takes it away if the write made one. 0 or
/// -errno.
int write_quietly(int fd, const std::string& text);

/// The object of --info-fd, over several lines.
Result<> write_info(int fd, pid_t child, std::uint64_t new_namespaces,
                    const NamespaceReport& report);

/// The first line of --json-status-fd.
Result<> write_status(int fd, pid_t child, std::uint64_t new_namespaces,
                      const NamespaceReport& report);

/// The last line; a failure does not matter any more.
void write_exit_code(int fd, int code);

}  // namespace nsbox::runtime
