#include "mount/mountinfo.hpp"

#include "sys/mount_flags.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace nsbox;

namespace {

struct Line {
    std::uint32_t id;
    std::uint32_t parent;
    std::string point;
    unsigned long flags;
};

/// Parses a whole table. The buffer has exactly the text's size, so that a sanitizer sees a step
/// beyond it.
std::vector<Line> parse(const std::string& table)
{
    std::vector<char> buffer{table.begin(), table.end()};
    char* at = buffer.data();
    char* const end = at + buffer.size();
    std::vector<Line> lines;
    mount::MountLine line;
    while (mount::next_mount(at, end, line)) {
        REQUIRE(lines.size() <= table.size());
        mount::unescape(line.mount_point);
        lines.push_back({line.id, line.parent, line.mount_point, line.flags});
    }
    CHECK(at == end);
    return lines;
}

std::string unescaped(std::string text)
{
    mount::unescape(text.data());
    return text.c_str();
}

/// As the kernel writes a path into the table.
std::string escaped(const std::string& path)
{
    std::string text;
    for (const char c : path) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\\' || c == '#') {
            char octal[8];
            std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned>(c));
            text += octal;
        } else {
            text += c;
        }
    }
    return text;
}

}  // namespace

TEST_CASE("mountinfo: a line gives ids, mount point and per-mount flags")
{
    const auto lines =
        parse("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
              "42 36 0:21 / /proc ro,nosuid,nodev,noexec,relatime shared:5 - proc proc rw\n");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].id == 36);
    CHECK(lines[0].parent == 35);
    CHECK(lines[0].point == "/mnt2");
    CHECK(lines[0].flags == sys::ms_noatime);
    CHECK(lines[1].id == 42);
    CHECK(lines[1].parent == 36);
    CHECK(lines[1].point == "/proc");
    CHECK(lines[1].flags ==
          (sys::ms_rdonly | sys::ms_nosuid | sys::ms_nodev | sys::ms_noexec | sys::ms_relatime));
}

TEST_CASE("mountinfo: each option stands for its flag, and no mention of times for strictatime")
{
    const auto flags = [](const std::string& options) {
        const auto lines = parse("1 2 0:1 / /x " + options + " - t s rw\n");
        REQUIRE(lines.size() == 1);
        return lines[0].flags;
    };
    CHECK(flags("rw") == sys::ms_strictatime);
    CHECK(flags("rw,relatime") == sys::ms_relatime);
    CHECK(flags("ro,relatime") == (sys::ms_rdonly | sys::ms_relatime));
    CHECK(flags("rw,noatime,nodiratime") == (sys::ms_noatime | sys::ms_nodiratime));
    CHECK(flags("rw,nodiratime") == (sys::ms_nodiratime | sys::ms_strictatime));
    CHECK(flags("rw,nosymfollow,noatime") == (sys::ms_nosymfollow | sys::ms_noatime));
    CHECK(flags("rw,nosuid,nodev,noexec,relatime") ==
          (sys::ms_nosuid | sys::ms_nodev | sys::ms_noexec | sys::ms_relatime));
    CHECK(flags("rw,rot,xro,ro=1,relatime") == sys::ms_relatime);  // No part of a word counts.
    CHECK(flags(",,,") == sys::ms_strictatime);
}

TEST_CASE("mountinfo: optional fields, their absence, and odd names change nothing")
{
    const auto lines = parse("1 2 0:1 / /a rw,noatime - t s rw\n"
                             "2 1 0:1 / /b rw,noatime shared:1 master:2 propagate_from:3 - t s rw\n"
                             "3 1 0:1 /x\\040y /c\\040d rw,noatime - t s rw\n");
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].point == "/a");
    CHECK(lines[1].point == "/b");
    CHECK(lines[2].point == "/c d");
}

TEST_CASE("mountinfo: lines that are not understood are passed over")
{
    const auto lines = parse("\n"
                             "nonsense\n"
                             "1\n"
                             "1 2 3 4\n"
                             "x 2 0:1 / /a rw - t s rw\n"
                             "1 y 0:1 / /a rw - t s rw\n"
                             "-1 2 0:1 / /a rw - t s rw\n"
                             "4294967296 2 0:1 / /a rw - t s rw\n"
                             "99999999999999999999999 2 0:1 / /a rw - t s rw\n"
                             " 2 0:1 / /a rw - t s rw\n"
                             "1 2 0:1 / /a rw\n"
                             "4294967295 4294967294 0:1 / /good rw - t s rw\n");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].id == 4294967295U);
    CHECK(lines[0].parent == 4294967294U);
    CHECK(lines[0].point == "/good");
}

TEST_CASE("mountinfo: the last line needs no end, and an empty table has no lines")
{
    CHECK(parse("").empty());
    const auto lines = parse("1 2 0:1 / /a rw - t s rw");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].point == "/a");
    CHECK(parse("1 2 0:1 / /a ").empty());
    CHECK(parse("1 2 0:1 / /a rw").empty());
}

TEST_CASE("mountinfo: any cut of a table gives only lines that the whole table has")
{
    const std::string table = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n"
                              "42 36 0:21 / /p\\040q ro,nosuid,relatime shared:5 - proc proc rw\n";
    for (std::size_t size = 0; size <= table.size(); ++size) {
        CAPTURE(size);
        for (const Line& line : parse(table.substr(0, size))) {
            CHECK((line.id == 36 || line.id == 42));
            CHECK(line.point == (line.id == 36 ? "/mnt2" : "/p q"));
        }
    }
}

TEST_CASE("mountinfo: escapes stand for blanks, tabs, newlines and backslashes")
{
    CHECK(unescaped("/a\\040b\\011c\\012d\\134e\\043f") == "/a b\tc\nd\\e#f");
    CHECK(unescaped("") == "");
    CHECK(unescaped("/plain") == "/plain");
    CHECK(unescaped("\\134\\134") == "\\\\");
    CHECK(unescaped("\\134040") == "\\040");  // A backslash that was escaped begins no escape.
}

TEST_CASE("mountinfo: what only looks like an escape stays")
{
    for (const std::string text : {"\\", "\\0", "\\04", "\\049", "\\x41", "\\\\", "a\\", "\\ 40"}) {
        CAPTURE(text);
        CHECK(unescaped(text) == text);
    }
}

TEST_CASE("mountinfo: every name survives the kernel's escaping, in random tables")
{
    tests::Random random{1};
    const std::string letters = "ab/ \t\n\\#0427x";
    for (int round = 0; round < 300; ++round) {
        std::string table;
        std::vector<std::string> points;
        for (std::size_t i = 0; i < 1 + random.below(5); ++i) {
            std::string point = "/";
            for (std::size_t n = random.below(12); n > 0; --n)
                point += letters[random.below(letters.size())];
            table += std::to_string(i + 10) + " 1 0:1 /" + escaped(point) + " " + escaped(point) +
                     " rw,relatime - t s rw\n";
            points.push_back(point);
        }
        const std::vector<Line> lines = parse(table);
        REQUIRE(lines.size() == points.size());
        for (std::size_t i = 0; i < lines.size(); ++i)
            CHECK(lines[i].point == points[i]);
    }
}
