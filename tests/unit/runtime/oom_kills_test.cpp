#include "runtime/oom_kills.hpp"

#include <doctest/doctest.h>

using namespace nsbox;

TEST_CASE("out of memory: the file is that of the memory controller's group")
{
    const std::string mounts =
        "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "32 30 0:29 / /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory\n"
        "33 30 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 c rw\n";
    const std::string groups = "4:memory:/a/b\n2:cpu:/c\n0::/d\n";
    CHECK(runtime::oom_kills_file(groups, mounts) ==
          "/sys/fs/cgroup/mem ory/a/b/memory.oom_control");
    CHECK(runtime::oom_kills_file("4:cpu,memory:/\n", mounts) ==
          "/sys/fs/cgroup/mem ory/memory.oom_control");
    CHECK(runtime::oom_kills_file("2:cpu:/c\n0::/d\n", mounts) ==
          "/sys/fs/cgroup/unified/d/memory.events");
}

TEST_CASE("out of memory: a mount may show a part of the hierarchy")
{
    const std::string mounts = "33 30 0:30 /user /mnt rw shared:1 - cgroup2 c rw\n";
    CHECK(runtime::oom_kills_file("0::/user/1\n", mounts) == "/mnt/1/memory.events");
    CHECK(runtime::oom_kills_file("0::/user\n", mounts) == "/mnt/memory.events");
    CHECK(runtime::oom_kills_file("0::/users\n", mounts).empty());
    CHECK(runtime::oom_kills_file("0::/\n", mounts).empty());
}

TEST_CASE("out of memory: what cannot be understood has no file")
{
    for (const char* text : {"", "\n", "0:", "nonsense", "::"}) {
        CAPTURE(text);
        CHECK(runtime::oom_kills_file(text, "33 30 0:30 / /m rw - cgroup cgroup rw\n").empty());
        CHECK(runtime::oom_kills_file("0::/\n", text).empty());
    }
    CHECK(runtime::oom_kills_file("0::/\n", "33 30 0:30 / /m rw - cgroup2\n").empty());
}

TEST_CASE("out of memory: the count is the number behind its word")
{
    CHECK(runtime::oom_kills_in("oom_kill_disable 1\nunder_oom 0\noom_kill 7\n") == 7);
    CHECK(runtime::oom_kills_in("low 0\nhigh 0\nmax 3\noom 2\noom_kill 12\n"
                                "oom_group_kill 5\n") == 12);
    CHECK(runtime::oom_kills_in("oom_kill 3") == 3);
    CHECK(runtime::oom_kills_in("") == 0);
    CHECK(runtime::oom_kills_in("boom_kill 3\n") == 0);
}

TEST_CASE("out of memory: nothing was killed since now")
{
    // A test that fills the machine's memory elsewhere would be no friend of this one.
    CHECK(runtime::OomKills{}.count() == 0);
}
