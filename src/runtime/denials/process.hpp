#pragma once

#include "sys/fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace nsbox::runtime {

/// A thread of the sandbox that waits in a system call, seen from outside. What cannot be read is empty:
/// it may end at any time, and its number may become another's, which whoever asks has to find out.
class Process {
public:
    explicit Process(pid_t thread) : thread_(thread) {}

    pid_t thread() const { return thread_; }
    /// What it calls itself: comm in proc(5).
    std::string name() const;
    /// The path of its program, as the sandbox has it.
    std::string executable() const;
    /// The process's number inside; 0 where that cannot be told.
    pid_t number_inside() const;
    bool has_capability(unsigned number) const;
    /// Whether it may pass where this thread may not, or the other way round.
    bool has_other_rights() const;
    /// Whether the mode of a file lets it do all of `wanted`: 4, 2 and 1 for reading, writing,
    /// searching. Its capabilities come before that.
    bool may(const struct stat& file, unsigned wanted) const;

    /// `size` bytes of its memory, or nothing.
    std::optional<std::string> memory(std::uint64_t address, std::size_t size) const;
    /// A text of its memory, up to the null that ends it, of at most PATH_MAX.
    std::optional<std::string> text(std::uint64_t address) const;

    /// A path from its root; empty where it has none. `folder` is a descriptor, or AT_FDCWD.
    std::string absolute(int folder, const std::string& path) const;
    /// Opens a path as O_PATH, from its root, whose symbolic links do not lead out; -errno in Fd.
    sys::Fd open(const std::string& path, int flags = 0) const;

private:
    void read_status() const;
    std::string place() const { return "/proc/" + std::to_string(thread_) + "/"; }

    pid_t thread_;
    mutable bool is_read_ = false;
    mutable std::string status_;
    mutable std::uint32_t uid_ = 0;
    mutable std::vector<std::uint32_t> groups_;
    mutable std::uint64_t capabilities_ = 0;
};

}  // namespace nsbox::runtime
