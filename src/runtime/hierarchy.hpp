#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// A folder in which a control group may be seen, and the id of the mount that it is in.
struct GroupFolder {
    std::uint32_t mount = 0;
    std::string path;
};

/// The texts of /proc/self/cgroup and /proc/self/mountinfo.
struct HierarchyTexts {
    std::string groups;
    std::string mounts;
};

/// Where this process's control group can be seen, from the texts of /proc/self/cgroup and
/// /proc/self/mountinfo (cgroups(7), proc_pid_mountinfo(5)): one folder for each mount of the
/// hierarchy that shows it. `controller`: a hierarchy of version 1; empty: that of version 2. Nothing
/// where this process is in no group of the hierarchy, or outside of what can be seen.
std::vector<GroupFolder> group_folders(const std::string& groups, const std::string& mounts,
                                       const std::string& controller);

/// The group's path in the hierarchy of a controller, or of version 2, as /proc/self/cgroup has it.
std::optional<std::string> group_path(const std::string& groups, const std::string& controller);

}  // namespace nsbox::runtime
