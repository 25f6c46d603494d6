#include "runtime/hierarchy.hpp"

#include <doctest/doctest.h>

using namespace nsbox;
using runtime::group_folders;
using runtime::group_path;

namespace {

/// The folders, each behind the number of its mount.
std::string found(const std::string& groups, const std::string& mounts,
                  const std::string& controller = {})
{
    std::string text;
    for (const runtime::GroupFolder& folder : group_folders(groups, mounts, controller))
        text += std::to_string(folder.mount) + ":" + folder.path + "\n";
    return text;
}

constexpr const char* both =
    "30 22 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "40 30 0:37 / /sys/fs/cgroup/unified rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw\n";

}  // namespace

TEST_CASE("hierarchy: the group's path is behind its controllers")
{
    const std::string groups = "9:name=systemd:/s\n4:cpu,memory:/m:with:colons\n0::/u\n";
    CHECK(group_path(groups, "") == "/u");
    CHECK(group_path(groups, "memory") == "/m:with:colons");
    CHECK(group_path(groups, "cpu") == "/m:with:colons");
    CHECK(group_path(groups, "name=systemd") == "/s");
    CHECK_FALSE(group_path(groups, "mem").has_value());
    CHECK_FALSE(group_path("4:memory:/m\n", "").has_value());
    for (const char* text : {"", "\n", "0", "0:", "nonsense", ":"})
        CHECK_FALSE(group_path(text, "").has_value());
}

TEST_CASE("hierarchy: the mount is one of the hierarchy, wherever it is")
{
    CHECK(found("4:memory:/m\n0::/u/v\n", both) == "40:/sys/fs/cgroup/unified/u/v\n");
    CHECK(found("4:memory:/m\n0::/\n", both) == "40:/sys/fs/cgroup/unified\n");
    CHECK(found("4:memory:/m\n0::/u\n", both, "memory") == "34:/sys/fs/cgroup/memory/m\n");
    CHECK(found("4:memory:/m\n", both).empty());
    CHECK(found("0::/a\n", "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n") ==
          "25:/sys/fs/cgroup/a\n");
}

TEST_CASE("hierarchy: a mount that shows a part begins with its root")
{
    const std::string part = "7 1 0:22 /user.slice/x /mnt rw - cgroup2 c rw\n";
    CHECK(found("0::/user.slice/x/y\n", part) == "7:/mnt/y\n");
    CHECK(found("0::/user.slice/x\n", part) == "7:/mnt\n");
    for (const char* outside : {"0::/\n", "0::/user.slice\n", "0::/user.slice/xy\n", "0::/other\n"})
        CHECK(found(outside, part).empty());
    // All that show it are found, in the order of the list.
    CHECK(
        found("0::/user.slice/x/y\n",
              part + "8 1 0:22 / /all rw - cgroup2 c rw\n9 1 0:22 /other /o rw - cgroup2 c rw\n") ==
        "7:/mnt/y\n8:/all/user.slice/x/y\n");
}

TEST_CASE("hierarchy: names are unescaped, in the root as in the place")
{
    CHECK(found("0::/a b/c\n", "7 1 0:22 /a\\040b /m\\011t rw - cgroup2 c rw\n") == "7:/m\tt/c\n");
}

TEST_CASE("hierarchy: a group above the namespace's root is beyond reach")
{
    for (const char* groups : {"0::/..\n", "0::/../x\n", "0::/../../x/y\n"})
        CHECK(found(groups, both).empty());
    CHECK(found("0::/\n", "7 1 0:22 /.. /m rw - cgroup2 c rw\n").empty());
    CHECK(found("0::/../x\n", "7 1 0:22 /.. /m rw - cgroup2 c rw\n").empty());
    // Dots in a name are no way up.
    CHECK(found("0::/..x/y..\n", both) == "40:/sys/fs/cgroup/unified/..x/y..\n");
}

TEST_CASE("hierarchy: lines that cannot be understood are passed over")
{
    for (const char* line :
         {"", "\n", "7\n", "7 1 0:22 / /m rw\n", "7 1 - cgroup2 c rw\n",
          "7 1 0:22 / /m rw - cgroup2\n", " - \n", "7 1 0:22 / /m rw -cgroup2 c rw\n"}) {
        CAPTURE(line);
        CHECK(found("0::/u\n", line).empty());
        CHECK(found("0::/u\n", std::string{line} + "\n" + both) == "40:/sys/fs/cgroup/unified/u\n");
    }
}
