// What limits come to in the files of control groups, and where groups for them may be.

#include "runtime/group_limits.hpp"

#include <doctest/doctest.h>

#include <cerrno>

using namespace nsbox;
using runtime::group_wishes;
using runtime::GroupWish;
using runtime::LimitGroups;

namespace {

/// "memory: memory.max=1 ...; memory.limit_in_bytes=1 ..." for each wish, a line each.
std::string said(const GroupLimits& limits, unsigned own = 0)
{
    const Result<std::vector<GroupWish>> wishes = group_wishes(limits, own);
    if (!wishes)
        return wishes.error().message();
    std::string text;
    const auto add = [&](const std::vector<runtime::GroupSetting>& settings) {
        for (const runtime::GroupSetting& setting : settings)
            text += " " + setting.file + "=" + setting.text + (setting.may_be_missing ? "?" : "");
    };
    for (const GroupWish& wish : *wishes) {
        text += wish.controller + ":";
        add(wish.settings);
        text += "; " + wish.old_controller + ":";
        add(wish.old_settings);
        text += "\n";
    }
    return text;
}

}  // namespace

TEST_CASE("group limits: the files of both versions")
{
    GroupLimits limits;
    CHECK(said(limits).empty());
    CHECK_FALSE(limits.any());
    limits.memory = 1048576;
    CHECK(said(limits) ==
          "memory: memory.max=1048576 memory.swap.max=0? memory.oom.group=1?; memory: "
          "memory.limit_in_bytes=1048576 memory.memsw.limit_in_bytes=1048576?\n");
    limits = {};
    limits.processes = 7;
    CHECK(said(limits, 1) == "pids: pids.max=8; pids: pids.max=8\n");
    limits = {};
    limits.processors = 1.5;
    CHECK(said(limits) ==
          "cpu: cpu.max=150000 100000; cpu: cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000\n");
    limits.processors = 0.01;
    CHECK(said(limits).find("cpu.max=1000 100000") != std::string::npos);
    limits = {};
    limits.processor_set = "0-1";
    CHECK(said(limits) == "cpuset: cpuset.cpus=0-1; cpuset: cpuset.mems= cpuset.cpus=0-1\n");
    CHECK(limits.any());
}

TEST_CASE("group limits: a disk has to be one")
{
    GroupLimits limits;
    limits.disks = {{"/proc/self", 1, 0, 0, 0}};
    CHECK(said(limits) ==
          "Can't limit the use of the disk /proc/self: it is on no disk (hint: name a block "
          "device, or a file on one's file system)");
    limits.disks = {{"/proc/no/such", 1, 0, 0, 0}};
    CHECK(said(limits) ==
          "Can't limit the use of the disk /proc/no/such: No such file or directory");
}

TEST_CASE("group limits: what no hierarchy has is unmet, and says why")
{
    GroupLimits limits;
    limits.memory = 1;
    limits.processes = 2;
    const auto unmet = [&](const std::string& groups, const std::string& mounts) {
        std::string text;
        const std::unique_ptr<LimitGroups> found =
            LimitGroups::prepare(*group_wishes(limits, 0), {groups, mounts}, "nsbox-test");
        for (const runtime::UnmetWish& wish : found->unmet())
            text += wish.what + ": " + wish.why + "\n";
        return text;
    };
    const std::string lent =
        "no control group in which this user may make another one lends the controller ";
    CHECK(unmet("", "") == "memory: " + lent + "memory\nprocesses: " + lent + "pids\n");
    CHECK(unmet("3:memory:/\n0::/\n", "") ==
          "memory: the hierarchy of the controller memory is not mounted\nprocesses: " + lent +
              "pids\n");
    // A folder that is no control group is none of version 1 either, whatever may be made in it.
    const std::string folder = "/usr";
    const std::string mount = "34 30 0:31 / " + folder + " rw - cgroup cgroup rw,memory,pids\n";
    CHECK(unmet("3:memory,pids:/\n", mount) == "memory: no control group can be made in " + folder +
                                                   "\nprocesses: no control group can be made in " +
                                                   folder + "\n");
    const std::string unified = "34 30 0:31 / " + folder + " rw - cgroup2 cgroup2 rw\n";
    CHECK(unmet("0::/\n", unified) == "memory: " + lent + "memory\nprocesses: " + lent + "pids\n");
}
