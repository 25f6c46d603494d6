#include "runtime/oom_kills.hpp"

#include "runtime/hierarchy.hpp"
#include "sys/read_file.hpp"

#include <cstdlib>
#include <vector>

namespace nsbox::runtime {

std::string oom_kills_file(const std::string& groups, const std::string& mounts)
{
    // The group that accounts memory: that of the memory controller, else the one of version 2.
    const bool is_unified = !group_path(groups, "memory");
    const std::vector<GroupFolder> folders =
        group_folders(groups, mounts, is_unified ? "" : "memory");
    if (folders.empty())
        return {};
    return folders.front().path + (is_unified ? "/memory.events" : "/memory.oom_control");
}

std::uint64_t oom_kills_in(const std::string& text)
{
    const std::string word = "\noom_kill ";
    const std::size_t at = ("\n" + text).find(word);
    return at == std::string::npos
               ? 0
               : std::strtoull(text.c_str() + at + word.size() - 1, nullptr, 10);
}

OomKills::OomKills()
    : file_(oom_kills_file(sys::read_file("/proc/self/cgroup"),
                           sys::read_file("/proc/self/mountinfo")))
{
    // A group without this controller has no such file; the root of version 2 has none either.
    if (file_.empty() || sys::read_file(file_).empty())
        file_ = "/proc/vmstat";
    before_ = total();
}

std::uint64_t OomKills::total() const
{
    return oom_kills_in(sys::read_file(file_));
}

std::uint64_t OomKills::count() const
{
    const std::uint64_t now = total();
    return now > before_ ? now - before_ : 0;
}

}  // namespace nsbox::runtime
