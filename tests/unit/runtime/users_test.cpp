#include "runtime/users.hpp"

#include <doctest/doctest.h>

using namespace nsbox::runtime;

namespace {

constexpr const char* passwd = "root:x:0:0:root:/root:/bin/sh\n"
                               "# a comment\n"
                               "node:x:1000:1001:Node,,,:/home/node:/bin/bash\n"
                               "broken:x:nonsense:5::/:/bin/sh\n"
                               "short:x:7\n"
                               "huge:x:99999999999:5::/:/bin/sh\n"
                               "last:x:12:13::/last:";

}  // namespace

TEST_CASE("users: an account is found by its name and by its id, the first that fits")
{
    const auto node = find_account(passwd, std::string{"node"});
    REQUIRE(node.has_value());
    CHECK(node->uid == 1000);
    CHECK(node->gid == 1001);
    CHECK(node->home == "/home/node");
    CHECK(find_account(passwd, 12)->name == "last");
    CHECK(find_account(passwd, 0)->name == "root");
}

TEST_CASE("users: what is no entry of passwd is passed over")
{
    for (const char* name : {"broken", "short", "huge", "", "# a comment", "nobody"}) {
        CAPTURE(name);
        CHECK_FALSE(find_account(passwd, std::string{name}).has_value());
    }
    CHECK_FALSE(find_account("", 0).has_value());
}

TEST_CASE("users: a group is found by its name")
{
    CHECK(find_group("root:x:0:\nstaff:x:50:a,b\n", "staff") == 50);
    CHECK_FALSE(find_group("root:x:0:\n", "staff").has_value());
}

TEST_CASE("users: an account is added where its id is missing, and takes the place of its name")
{
    const Account sandbox{"sandbox", 1000, 1000, "/home/sandbox"};
    CHECK(with_user("", sandbox) == "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
    CHECK(with_user(passwd, sandbox) == passwd);  // Somebody has that id.
    CHECK(with_user("a:x:1:1::/:/bin/sh", sandbox) ==
          "a:x:1:1::/:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
    CHECK(with_user("sandbox:x:5:5::/:/bin/sh\n", sandbox) ==
          "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
}

TEST_CASE("users: so is a group")
{
    const Account sandbox{"sandbox", 1000, 1002, "/home/sandbox"};
    CHECK(with_group("root:x:0:\n", sandbox) == "root:x:0:\nsandbox:x:1002:\n");
    CHECK(with_group("other:x:1002:\n", sandbox) == "other:x:1002:\n");
}
