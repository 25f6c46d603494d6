#include <bwrap_options.hpp>

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <doctest/doctest.h>

#include <set>
#include <sstream>

using namespace nsbox;
using tool::find_option;
using tool::nearest_option;
using tool::OptionInfo;

namespace {

constexpr std::size_t column = 33;

std::vector<std::string> lines_of(const std::string& text)
{
    std::vector<std::string> lines;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

/// Every option's name, as the help text lists them.
std::vector<std::string> listed()
{
    std::vector<std::string> names;
    for (const std::string& line : lines_of(tool::help_text("bwrap")))
        if (tests::begins_with(line, "    --"))
            names.push_back(line.substr(4, line.find(' ', 4) - 4));
    return names;
}

std::size_t words_in(const std::string& text)
{
    std::istringstream stream{text};
    std::size_t count = 0;
    for (std::string word; stream >> word;)
        ++count;
    return count;
}

}  // namespace

TEST_CASE("options: the help text lists each option once, and each enumerator has one")
{
    const std::vector<std::string> names = listed();
    CHECK(names.size() == static_cast<std::size_t>(tool::Opt::pty_size) + 1);
    std::set<tool::Opt> seen;
    for (const std::string& name : names) {
        CAPTURE(name);
        const OptionInfo* const option = find_option(name);
        REQUIRE(option != nullptr);
        CHECK(option->name == name);
        CHECK(seen.insert(option->opt).second);
    }
    CHECK(seen.size() == names.size());
}

TEST_CASE(
    "options: the number of arguments is that of the words shown, with a text for lacking ones")
{
    for (const std::string& name : listed()) {
        CAPTURE(name);
        const OptionInfo& option = *find_option(name);
        if (option.count == tool::optional_argument)
            CHECK(tests::begins_with(option.arguments, "[="));
        else
            CHECK(static_cast<std::size_t>(option.count) == words_in(option.arguments));
        CHECK((option.missing[0] != '\0') == (option.count > 0));
        CHECK(option.text[0] != '\0');
    }
}

TEST_CASE("options: the help text begins with the usage and keeps its columns")
{
    const std::vector<std::string> lines = lines_of(tool::help_text("/usr/bin/bwrap"));
    REQUIRE(lines.size() > 60);
    CHECK(lines[0] == "usage: /usr/bin/bwrap [OPTIONS...] [--] COMMAND [ARGS...]");
    CHECK(lines[1].empty());
    for (std::size_t i = 2; i < lines.size(); ++i) {
        const std::string& line = lines[i];
        CAPTURE(line);
        REQUIRE(line.size() > column);
        CHECK(line.size() <= 100);
        CHECK(line.back() != ' ');
        CHECK(line.compare(0, 4, "    ") == 0);
        if (line[4] != '-') {
            // The second line of a description.
            CHECK(line.find_first_not_of(' ') == column);
            continue;
        }
        const OptionInfo* const option = find_option(line.substr(4, line.find(' ', 4) - 4));
        REQUIRE(option != nullptr);
        std::string head = std::string{"    "} + option->name;
        if (option->count != 0)
            head += std::string{" "} + option->arguments;
        CHECK(tests::begins_with(line, head + " "));
        const std::size_t text = line.find_first_not_of(' ', head.size());
        CHECK(text == std::max(column, head.size() + 1));
        CHECK(tests::begins_with(option->text, line.substr(text)));
    }
}

TEST_CASE("options: only whole names are found")
{
    CHECK(find_option("--bind") != nullptr);
    for (const char* const name : {"", "-", "--", "bind", "-bind", "--bin", "--bindx", "--BIND",
                                   "--bind ", "--bind=", "---bind"}) {
        CAPTURE(name);
        CHECK(find_option(name) == nullptr);
    }
}

TEST_CASE("options: an unknown option's nearest neighbour is suggested if it is near")
{
    CHECK(nearest_option("--ro-bnd") == "--ro-bind");
    CHECK(nearest_option("--robind") == "--ro-bind");
    CHECK(nearest_option("--unshare-usr") == "--unshare-user");
    CHECK(nearest_option("--die-with-parents") == "--die-with-parent");
    CHECK(nearest_option("--procs") == "--proc");
    CHECK(nearest_option("-bind") == "--bind");
    CHECK(nearest_option("--completely-different").empty());
    CHECK(nearest_option("").empty());
}

TEST_CASE("options: one wrong letter never leads further than one letter away")
{
    tests::Random random{2};
    const std::string letters = "abcdefghijklmnopqrstuvwxyz-";
    for (const std::string& name : listed()) {
        std::string wrong = name;
        const std::size_t at = 2 + random.below(name.size() - 2);
        switch (random.below(3)) {
        case 0:
            wrong.erase(at, 1);
            break;
        case 1:
            wrong.insert(at, 1, letters[random.below(letters.size())]);
            break;
        default:
            wrong[at] = letters[random.below(letters.size())];
            break;
        }
        CAPTURE(wrong);
        const std::string found = nearest_option(wrong);
        // A single letter is near to nothing.
        if (wrong.size() <= 3) {
            CHECK(found.empty());
            continue;
        }
        REQUIRE_FALSE(found.empty());
        // Several options may be one letter away ("--uid" and "--gid" from "--id").
        const std::size_t longer = std::max(found.size(), wrong.size());
        CHECK(longer - std::min(found.size(), wrong.size()) <= 1);
    }
}
