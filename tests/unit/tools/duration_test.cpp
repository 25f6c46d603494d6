#include <duration.hpp>

#include <doctest/doctest.h>

using nsbox::tool::parse_duration;
using nsbox::tool::say_duration;
using std::chrono::milliseconds;

TEST_CASE("duration: a number and a unit, where none means seconds")
{
    CHECK(parse_duration("2") == milliseconds{2000});
    CHECK(parse_duration("1.5") == milliseconds{1500});
    CHECK(parse_duration(".25s") == milliseconds{250});
    CHECK(parse_duration("500ms") == milliseconds{500});
    CHECK(parse_duration("2s") == milliseconds{2000});
    CHECK(parse_duration("3m") == milliseconds{180000});
    CHECK(parse_duration("1h") == milliseconds{3600000});
    CHECK(parse_duration("2d") == milliseconds{172800000});
    CHECK(parse_duration("1.") == milliseconds{1000});
    CHECK(parse_duration("000000000000000000000001") == milliseconds{1000});
    CHECK(parse_duration("0.5d") == milliseconds{43200000});
    CHECK(parse_duration("1.50000000000000000000000000000") == milliseconds{1500});
    CHECK(parse_duration("0.0010000000000000000000001") == milliseconds{2});
    // Never less than what was asked for.
    CHECK(parse_duration("0.1ms") == milliseconds{1});
    CHECK(parse_duration("1.0001s") == milliseconds{1001});
}

TEST_CASE("duration: anything else is refused")
{
    for (const char* text : {"",
                             "s",
                             "0",
                             "0s",
                             "-1",
                             "+1",
                             "1e3",
                             "inf",
                             "nan",
                             "0x10",
                             "1 s",
                             " 1",
                             "1s ",
                             "1..5",
                             "1.5.2",
                             "1sec",
                             "1M",
                             "11y",
                             "4000d",
                             "1,5",
                             ".",
                             ".s",
                             "1.5.",
                             "1.00000000000000001.",
                             "99999999999999999999",
                             "9223372036854775807d"})
        CHECK_MESSAGE(parse_duration(text) == std::nullopt, text);
    CHECK(parse_duration("3660d").has_value());
}

TEST_CASE("duration: it is said in the unit that fits")
{
    CHECK(say_duration(milliseconds{20}) == "20 ms");
    CHECK(say_duration(milliseconds{1000}) == "1 s");
    CHECK(say_duration(milliseconds{1500}) == "1.5 s");
    CHECK(say_duration(milliseconds{1050}) == "1.05 s");
    CHECK(say_duration(milliseconds{61000}) == "61 s");
    CHECK(say_duration(milliseconds{180000}) == "3 min");
}
