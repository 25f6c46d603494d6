#include "runtime/hierarchy.hpp"

#include "mount/mountinfo.hpp"

#include <algorithm>
#include <cstdlib>

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

/// A process outside of its control group namespace's root sees itself above that.
bool leads_up(const std::string& path)
{
    return (path + "/").find("/../") != std::string::npos;
}

/// Where a group is found below a mount of its hierarchy; empty if it is not.
std::string below(const std::string& mount_point, const std::string& root, const std::string& path)
{
    const std::string prefix = root == "/" ? "" : root;
    if (path.compare(0, prefix.size(), prefix) != 0 || leads_up(path))
        return {};
    std::string rest = path.substr(prefix.size());
    if (!rest.empty() && rest[0] != '/')
        return {};
    return mount_point + (rest == "/" ? "" : rest);
}

std::string unescaped(std::string text)
{
    mount::unescape(text.data());
    return text.c_str();
}

}  // namespace

std::optional<std::string> group_path(const std::string& groups, const std::string& controller)
{
    for (const std::string& line : split(groups, '\n')) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos)
            continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (controller.empty() ? controllers.empty() : has_word(controllers, controller))
            return line.substr(second + 1);
    }
    return std::nullopt;
}

std::vector<GroupFolder> group_folders(const std::string& groups, const std::string& mounts,
                                       const std::string& controller)
{
    std::vector<GroupFolder> found;
    const std::optional<std::string> path = group_path(groups, controller);
    for (const std::string& line : split(path ? mounts : std::string{}, '\n')) {
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos)
            continue;
        const std::vector<std::string> mount = split(line.substr(0, dash), ' ');
        const std::vector<std::string> source = split(line.substr(dash + 3), ' ');
        if (mount.size() < 5 || source.size() < 3)
            continue;
        const bool fits = controller.empty()
                              ? source[0] == "cgroup2"
                              : source[0] == "cgroup" && has_word(source[2], controller);
        if (!fits)
            continue;
        std::string folder = below(unescaped(mount[4]), unescaped(mount[3]), *path);
        if (!folder.empty())
            found.push_back(
                {static_cast<std::uint32_t>(std::strtoul(mount[0].c_str(), nullptr, 10)),
                 std::move(folder)});
    }
    return found;
}

}  // namespace nsbox::runtime
