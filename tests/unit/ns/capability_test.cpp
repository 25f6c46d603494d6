#include "nsbox/spec.hpp"

#include <doctest/doctest.h>

#include <cctype>

using namespace nsbox;

namespace {

std::string lower(std::string text)
{
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

}  // namespace

TEST_CASE("capability: every name leads to its own number, with and without CAP_, in any case")
{
    const std::vector<std::string> names = capability_names();
    REQUIRE(names.size() >= 41);  // Up to CAP_CHECKPOINT_RESTORE, Linux 5.9.
    for (unsigned number = 0; number < names.size(); ++number) {
        const std::string& name = names[number];
        CAPTURE(name);
        REQUIRE(name.compare(0, 4, "CAP_") == 0);
        CHECK(capability_by_name(name) == number);
        CHECK(capability_by_name(lower(name)) == number);
        CHECK(capability_by_name(name.substr(4)) == number);
        CHECK(capability_by_name(lower(name.substr(4))) == number);
        std::string mixed = lower(name);
        mixed[5] = static_cast<char>(std::toupper(static_cast<unsigned char>(mixed[5])));
        CHECK(capability_by_name(mixed) == number);
    }
}

TEST_CASE("capability: the numbers are the kernel's")
{
    CHECK(capability_by_name("CAP_CHOWN") == 0U);
    CHECK(capability_by_name("CAP_NET_RAW") == 13U);
    CHECK(capability_by_name("CAP_SYS_ADMIN") == 21U);
    CHECK(capability_by_name("CAP_SYS_RESOURCE") == 24U);
    CHECK(capability_by_name("CAP_CHECKPOINT_RESTORE") == 40U);
}

TEST_CASE("capability: what is no whole name is no capability")
{
    for (const std::string name :
         {"", "cap_", "CAP", "cap_nothing", "nothing", "all", "ALL", "0", "cap_0",
          "cap_chown,cap_kill", "cap_chown,", "cap_chown ", " cap_chown", "cap_chown=ep",
          "cap_cap_chown", "cap_chow", "cap_chownn", "chown\n"}) {
        CAPTURE(name);
        CHECK_FALSE(capability_by_name(name).has_value());
    }
    CHECK(capability_by_name("cap_chown").has_value());
    using namespace std::string_literals;
    CHECK_FALSE(capability_by_name("cap_chown\0x"s).has_value());
}
