#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nsbox::runtime {

/// Counts what the kernel kills for want of memory in the control group of this process, which a
/// sandbox is in, or below, with others: see cgroups(7), memory.events of version 2 and memory.oom_control of version 1.
/// Where there is no such group the count is the whole machine's: proc(5), vmstat.
class OomKills {
public:
    /// Counts from now on.
    OomKills();

    std::uint64_t count() const;

private:
    std::uint64_t total() const;

    std::string file_;
    std::uint64_t before_ = 0;
};

/// The file that has the count, from the texts of /proc/self/cgroup and /proc/self/mountinfo.
std::string oom_kills_file(const std::string& groups, const std::string& mounts);
/// The number behind the word oom_kill at the start of a line; 0 if there is none.
std::uint64_t oom_kills_in(const std::string& text);

}  // namespace nsbox::runtime
