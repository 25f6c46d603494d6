#include "sys/text.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

using namespace nsbox;

TEST_CASE("text: length() and equal() are those of C")
{
    CHECK(sys::length("") == 0);
    CHECK(sys::length("abc") == 3);
    CHECK(sys::equal("", ""));
    CHECK(sys::equal("ro", "ro"));
    CHECK_FALSE(sys::equal("ro", "r"));
    CHECK_FALSE(sys::equal("r", "ro"));
    CHECK_FALSE(sys::equal("ro", "rw"));
}

TEST_CASE("text: numbers are written as printf writes them")
{
    tests::Random random{7};
    for (int i = 0; i < 1000; ++i) {
        const auto value = static_cast<unsigned long>(random.next() >> random.below(64));
        sys::FixedText<64> text;
        text.number(value).add(" ").octal(static_cast<unsigned>(value));
        char expected[64];
        std::snprintf(expected, sizeof expected, "%lu %o", value, static_cast<unsigned>(value));
        REQUIRE(std::string{text.c_str()} == expected);
        REQUIRE(text.ok());
    }
    CHECK(std::string{sys::FixedText<8>{}.number(0).c_str()} == "0");
    CHECK(std::string{sys::FixedText<8>{}.octal(0).c_str()} == "0");
}

TEST_CASE("text: what does not fit is dropped, and ok() says so")
{
    sys::FixedText<4> text;
    text.add("abc");
    CHECK(text.ok());
    CHECK(text.size() == 3);
    text.add("d");
    CHECK_FALSE(text.ok());
    CHECK(std::string{text.c_str()} == "abc");
    text.clear();
    CHECK(text.ok());
    CHECK(text.size() == 0);
    text.add("xyz", 2);
    CHECK(std::string{text.c_str()} == "xy");
}
