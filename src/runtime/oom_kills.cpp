#include "runtime/oom_kills.hpp"

#include "mount/mountinfo.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace nsbox::runtime {

namespace {

std::vector<std::string> split(const std::string& text, char at)
{
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(at, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

bool has_word(const std::string& list, const std::string& word)
{
    return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

struct Group {
    std::string path;
    bool is_unified = false;
};

/// The group that accounts memory: that of the memory controller, else the one of version 2.
std::optional<Group> memory_group(const std::string& groups)
{
    std::optional<Group> found;
    for (const std::string& line : split(groups, '\n')) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos)
            continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (has_word(controllers, "memory"))
            return Group{path, false};
        if (controllers.empty())
            found = Group{path, true};
    }
    return found;
}

/// Where a group is found below a mount of its hierarchy; empty if it is not.
std::string below(const std::string& mount_point, const std::string& root, const std::string& path)
{
    const std::string prefix = root == "/" ? "" : root;
    if (path.compare(0, prefix.size(), prefix) != 0)
        return {};
    std::string rest = path.substr(prefix.size());
    if (!rest.empty() && rest[0] != '/')
        return {};
    return mount_point + (rest == "/" ? "" : rest);
}

}  // namespace

std::string oom_kills_file(const std::string& groups, const std::string& mounts)
{
    const std::optional<Group> group = memory_group(groups);
    for (const std::string& line : split(group ? mounts : std::string{}, '\n')) {
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos)
            continue;
        const std::vector<std::string> mount = split(line.substr(0, dash), ' ');
        const std::vector<std::string> source = split(line.substr(dash + 3), ' ');
        if (mount.size() < 5 || source.size() < 3)
            continue;
        const bool fits = group->is_unified
                              ? source[0] == "cgroup2"
                              : source[0] == "cgroup" && has_word(source[2], "memory");
        if (!fits)
            continue;
        std::string point = mount[4];
        mount::unescape(point.data());
        const std::string folder = below(point.c_str(), mount[3], group->path);
        if (!folder.empty())
            return folder + (group->is_unified ? "/memory.events" : "/memory.oom_control");
    }
    return {};
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
