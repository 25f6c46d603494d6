#include "runtime/environment.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

using namespace nsbox;
using runtime::edit_environment;
using runtime::exec_candidates;
using runtime::look_up;

namespace {

using Texts = std::vector<std::string>;
using Kind = EnvironmentEdit::Kind;

EnvironmentEdit set(const std::string& name, const std::string& value)
{
    return {Kind::set, name, value};
}

EnvironmentEdit unset(const std::string& name)
{
    return {Kind::unset, name, {}};
}

const EnvironmentEdit clear{Kind::clear, {}, {}};

}  // namespace

TEST_CASE("environment: without edits everything but PWD stays, in its order")
{
    CHECK(edit_environment({"A=1", "PWD=/x", "B=2", "PWDX=3"}, {}) ==
          Texts{"A=1", "B=2", "PWDX=3"});
    CHECK(edit_environment({}, {}).empty());
}

TEST_CASE("environment: set replaces in place and appends what is new")
{
    CHECK(edit_environment({"A=1", "B=2"}, {set("A", "9")}) == Texts{"A=9", "B=2"});
    CHECK(edit_environment({"A=1"}, {set("B", "")}) == Texts{"A=1", "B="});
    CHECK(edit_environment({"A=1"}, {set("A", "x=y")}) == Texts{"A=x=y"});
    CHECK(edit_environment({"AB=1"}, {set("A", "2")}) == Texts{"AB=1", "A=2"});
}

TEST_CASE("environment: unset removes every entry of that name and nothing else")
{
    CHECK(edit_environment({"A=1", "AB=2", "A=3"}, {unset("A")}) == Texts{"AB=2"});
    CHECK(edit_environment({"A=1"}, {unset("B")}) == Texts{"A=1"});
    CHECK(edit_environment({"A"}, {unset("A")}) == Texts{"A"});  // No variable: there is no "=".
}

TEST_CASE("environment: edits take effect one after the other")
{
    CHECK(edit_environment({"A=1"}, {clear, set("B", "2")}) == Texts{"B=2"});
    CHECK(edit_environment({"A=1"}, {set("B", "2"), clear}).empty());
    CHECK(edit_environment({}, {set("A", "1"), unset("A"), set("A", "2")}) == Texts{"A=2"});
    CHECK(edit_environment({}, {set("A", "1"), set("A", "2")}) == Texts{"A=2"});
}

TEST_CASE("environment: PWD cannot be set, as it says where the command starts")
{
    CHECK(edit_environment({}, {set("PWD", "/wrong"), set("A", "1")}) == Texts{"A=1"});
}

TEST_CASE("environment: look_up finds the first whole name")
{
    const Texts environment{"AB=0", "A=1", "A=2", "E=", "C"};
    CHECK(look_up(environment, "A") == std::string{"1"});
    CHECK(look_up(environment, "E") == std::string{});
    CHECK_FALSE(look_up(environment, "C").has_value());
    CHECK_FALSE(look_up(environment, "B").has_value());
    CHECK_FALSE(look_up({}, "A").has_value());
}

TEST_CASE("environment: random edits do what they do to a map of variables")
{
    tests::Random random{3};
    const Texts names{"A", "B", "AB", "PATH", "_"};
    for (int round = 0; round < 300; ++round) {
        std::map<std::string, std::string> expected;
        Texts environment;
        for (const std::string& name : names)
            if (random.one_in(2)) {
                expected[name] = name + "0";
                environment.push_back(name + "=" + name + "0");
            }
        std::vector<EnvironmentEdit> edits;
        for (std::size_t i = random.below(8); i > 0; --i) {
            const std::string& name = random.of(names);
            const std::string value = std::to_string(random.below(100));
            switch (random.below(5)) {
            case 0:
                edits.push_back(clear);
                expected.clear();
                break;
            case 1:
                edits.push_back(unset(name));
                expected.erase(name);
                break;
            default:
                edits.push_back(set(name, value));
                expected[name] = value;
                break;
            }
        }
        Texts want;
        for (const auto& [name, value] : expected)
            want.push_back(name + "=" + value);
        Texts got = edit_environment(environment, edits);
        std::sort(want.begin(), want.end());
        std::sort(got.begin(), got.end());
        CHECK(got == want);
    }
}

TEST_CASE("exec_candidates: a name with a slash is taken as it is")
{
    CHECK(exec_candidates("/bin/true", "/usr/bin") == Texts{"/bin/true"});
    CHECK(exec_candidates("./true", "/usr/bin") == Texts{"./true"});
    CHECK(exec_candidates("a/b", std::nullopt) == Texts{"a/b"});
}

TEST_CASE("exec_candidates: a bare name is looked for in each folder of PATH, in order")
{
    CHECK(exec_candidates("true", "/a:/b/c") == Texts{"/a/true", "/b/c/true"});
    CHECK(exec_candidates("true", "/a") == Texts{"/a/true"});
    CHECK(exec_candidates("true", "rel") == Texts{"rel/true"});
}

TEST_CASE("exec_candidates: an empty entry of PATH is the working directory")
{
    CHECK(exec_candidates("true", "") == Texts{"true"});
    CHECK(exec_candidates("true", ":/a") == Texts{"true", "/a/true"});
    CHECK(exec_candidates("true", "/a:") == Texts{"/a/true", "true"});
    CHECK(exec_candidates("true", "/a::/b") == Texts{"/a/true", "true", "/b/true"});
    CHECK(exec_candidates("true", "::") == Texts{"true", "true", "true"});
}

TEST_CASE("exec_candidates: without PATH there is a default, and an empty name finds nothing")
{
    CHECK(exec_candidates("true", std::nullopt) ==
          Texts{"/usr/local/bin/true", "/usr/bin/true", "/bin/true"});
    CHECK(exec_candidates("", "/a:/b") == Texts{""});
}
