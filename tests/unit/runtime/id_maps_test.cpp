// Maps of several ids: what they say, which are refused, and the plan that they make.

#include "runtime/id_maps.hpp"

#include "runtime/subordinate_ids.hpp"
#include "tests/unit/support/plans.hpp"

#include <linux/sched.h>

using namespace nsbox;
using namespace nsbox::tests;
using runtime::IdKind;
using runtime::Plan;

namespace {

using Map = std::vector<IdRange>;
using Ranges = std::vector<SubordinateRange>;

std::string text_of(const Ranges& ranges)
{
    std::string text;
    for (const SubordinateRange& range : ranges)
        text += std::to_string(range.first) + "+" + std::to_string(range.count) + " ";
    return text;
}

Spec with_maps()
{
    Spec spec = plain_spec();
    spec.operations.emplace_back(Bind{"/", "/", Access::read_only});
    spec.namespaces.user = Own::yes;
    spec.uid = 7;
    spec.gid = 8;
    spec.uid_map = {{0, 100000, 1000}, {1000, 1000, 1}};
    spec.gid_map = {{0, 200000, 1000}};
    return spec;
}

std::string said_of(const Map& map)
{
    const Result<> checked = runtime::check_id_map(IdKind::user, map);
    return checked ? std::string{"good"} : checked.error().message();
}

}  // namespace

TEST_CASE("id maps: what no kernel takes is refused")
{
    CHECK(said_of({{0, 100000, 65536}}) == "good");
    CHECK(said_of({{0, 5, 5}, {5, 10, 5}, {10, 0, 5}}) == "good");
    CHECK(said_of({{0, 0, 0xffffffff}}) == "good");
    CHECK(said_of({{0, 5, 0}}) == "Can't map the user ids 0:5:0: there is no id in it");
    CHECK(said_of({{1, 0, 0xffffffff}}) ==
          "Can't map the user ids 1:0:4294967295: the largest id is 4294967294");
    CHECK(said_of({{0, 1, 0xffffffff}}) ==
          "Can't map the user ids 0:1:4294967295: the largest id is 4294967294");
    CHECK(said_of({{0, 5, 5}, {4, 20, 1}}) ==
          "Can't map the user ids 4:20:1: it has ids in common with 0:5:5");
    CHECK(said_of({{0, 5, 5}, {9, 1, 5}}) ==
          "Can't map the user ids 9:1:5: it has ids in common with 0:5:5");
    Map many;
    for (std::uint32_t i = 0; i < 340; ++i)
        many.push_back({i, i, 1});
    CHECK(said_of(many) == "good");
    many.push_back({340, 340, 1});
    CHECK(said_of(many) == "Can't map the user ids: the kernel takes at most 340 ranges");
}

TEST_CASE("id maps: an id outside belongs to the one inside")
{
    const Map map = {{0, 100, 10}, {10, 5, 1}};
    CHECK(runtime::outside_of(map, 0) == 100U);
    CHECK(runtime::outside_of(map, 9) == 109U);
    CHECK(runtime::outside_of(map, 10) == 5U);
    CHECK_FALSE(runtime::outside_of(map, 11).has_value());
    CHECK_FALSE(runtime::outside_of({}, 0).has_value());
    CHECK(runtime::map_text(map) == "0 100 10\n10 5 1\n");
    CHECK(runtime::same_ids_text(map) == "0 0 10\n10 10 1\n");
}

TEST_CASE("id maps: the line that is missing is the first range that nobody grants")
{
    const Ranges granted = {{100, 10}, {200, 10}};
    CHECK(
        runtime::missing_line({{0, 100, 10}, {10, 205, 5}, {15, 7, 1}}, 7, granted, "jo").empty());
    CHECK(runtime::missing_line({{0, 100, 11}}, 7, granted, "jo") == "jo:100:11");
    CHECK(runtime::missing_line({{0, 100, 10}, {10, 7, 2}}, 7, granted, "jo") == "jo:7:2");
    CHECK(runtime::missing_line({{0, 99, 1}}, 7, {}, "jo") == "jo:99:1");
}

TEST_CASE("subordinate ids: those of one of the user's names, in the file's order")
{
    const std::string text = "jo:100:10\nal:200:10\n1000:300:5\njo:400:1\njo2:500:1";
    CHECK(text_of(runtime::parse_subordinate(text, {"jo", "1000"})) == "100+10 300+5 400+1 ");
    CHECK(text_of(runtime::parse_subordinate(text, {"jo2"})) == "500+1 ");
    CHECK(runtime::parse_subordinate(text, {"o"}).empty());
    CHECK(runtime::parse_subordinate("", {"jo"}).empty());
    SUBCASE("lines that grant nothing are passed over")
    {
        const std::string odd = "jo\njo:\njo:1\njo:1:0\njo:x:1\njo:1:x\njo:1:2:3\n:1:1\n#jo:1:1\n"
                                "jo:4294967295:1\njo:-1:5\njo: 1:5\n\njo:6:7\n";
        CHECK(text_of(runtime::parse_subordinate(odd, {"jo"})) == "6+7 ");
    }
}

TEST_CASE("subordinate ids: a user has all its names, and its number")
{
    const std::string passwd = "root:x:0:0::/:/bin/sh\njo:x:5:0::/:/bin/sh\nal:x:55:5::/:\n"
                               "jim:x:5:1::/:/bin/sh\n:x:5:1:::\nbad:x:5x:1:::\n";
    using Names = std::vector<std::string>;
    CHECK(runtime::names_of_user(passwd, 5) == Names{"jo", "jim", "5"});
    CHECK(runtime::names_of_user(passwd, 7) == Names{"7"});
}

TEST_CASE("subordinate ids: a map has them beside the caller's own id")
{
    const auto text = [](const Ranges& ranges, std::uint32_t inside) {
        return runtime::map_text(map_beside_own(ranges, inside, 9));
    };
    CHECK(text({{1000, 65536}}, 0) == "0 9 1\n1 1001 65535\n");
    CHECK(text({{1000, 65536}}, 5) == "0 1000 5\n5 9 1\n6 1006 65530\n");
    CHECK(text({{1000, 65536}}, 65535) == "0 1000 65535\n65535 9 1\n");
    CHECK(text({{1000, 65536}}, 70000) == "0 1000 65536\n70000 9 1\n");
    CHECK(text({{1000, 100000}}, 70000) == "0 1000 65536\n70000 9 1\n");
    CHECK(text({{1000, 10}, {2000, 10}}, 10) == "0 1000 10\n10 9 1\n11 2001 9\n");
    CHECK(text({{1000, 10}, {2000, 10}}, 20) == "0 1000 10\n10 2000 10\n20 9 1\n");
    CHECK(text({}, 3) == "3 9 1\n");
}

TEST_CASE("plan: several ids are mapped by the supervisor, and taken before anything is mounted")
{
    const Plan plan = planned(with_maps(), user_host());
    CHECK(kinds_of(plan) == "OpenHost AwaitIdMaps TakeMappedIds DropBounding ClearUmask MakeRoot "
                            "BindTree EnterRoot SetCapabilities RestoreUmask ChangeDirectory");
    CHECK(runtime::map_text(plan.maps.uids) == "0 100000 1000\n1000 1000 1\n");
    CHECK(runtime::map_text(plan.maps.gids) == "0 200000 1000\n");
    CHECK_FALSE(plan.maps.directly);
    CHECK_FALSE(plan.maps.deny_setgroups);
    const auto take = step_of<ns::TakeMappedIds>(plan);
    CHECK(take.uid == 7);
    CHECK(take.gid == 8);
    CHECK(take.drop_groups);
    // A change of ids would change what others may see of the caller.
    CHECK_FALSE(plan.share_memory);
    CHECK(plan.set_up.uid == 100007);
    CHECK(plan.set_up.gid == 200008);
    CHECK(planned(with_maps(), root_host()).maps.directly);
}

TEST_CASE("plan: without maps nobody waits for one")
{
    Spec spec = with_maps();
    spec.uid_map.clear();
    spec.gid_map.clear();
    const Plan plan = planned(spec, user_host());
    CHECK_FALSE(plan.maps.any());
    CHECK(steps_of<runtime::AwaitIdMaps>(plan).empty());
    CHECK(steps_of<ns::WriteIdMaps>(plan).size() == 1);
    CHECK(plan.share_memory);
}

TEST_CASE("plan: a command that is the caller itself leaves the memory shared")
{
    Spec spec = with_maps();
    spec.uid_map = {{0, 100000, 7}, {7, 1000, 1}};
    spec.gid_map = {{0, 100000, 8}, {8, 1001, 1}};
    CHECK(planned(spec, user_host()).share_memory);
}

TEST_CASE("plan: a map of users alone leaves the caller its group, and its groups")
{
    Spec spec = with_maps();
    spec.gid_map.clear();
    const Plan plan = planned(spec, user_host());
    CHECK(runtime::map_text(plan.maps.gids) == "8 1001 1\n");
    CHECK(plan.maps.deny_setgroups);
    CHECK_FALSE(step_of<ns::TakeMappedIds>(plan).drop_groups);
    // Root needs no such exchange.
    CHECK(step_of<ns::TakeMappedIds>(planned(spec, root_host())).drop_groups);
}

TEST_CASE("plan: a second user namespace has the same ids")
{
    Spec spec = with_maps();
    spec.disable_user_namespaces = true;
    const Plan plan = planned(spec, user_host());
    const auto second = step_of<ns::NewMappedUserNamespace>(plan);
    CHECK(std::string{second.uid_map} == "0 0 1000\n1000 1000 1\n");
    CHECK(std::string{second.gid_map} == "0 0 1000\n");
    CHECK(second.others == 0);
    // Root's command that keeps its rights must not lift what covers /proc.
    spec.disable_user_namespaces = false;
    CHECK((step_of<ns::NewMappedUserNamespace>(planned(spec, root_host())).others & CLONE_NEWNS) !=
          0);
}

TEST_CASE("plan: init belongs to the command where the caller has no id")
{
    Spec spec = with_maps();
    spec.namespaces.pid = Own::yes;
    CHECK(steps_of<runtime::OwnInit>(planned(spec, user_host())).size() == 1);
    CHECK(steps_of<runtime::OwnInit>(planned(spec, root_host())).empty());
    spec.gid_map.push_back({1001, 1001, 1});
    CHECK(steps_of<runtime::OwnInit>(planned(spec, user_host())).empty());
}

TEST_CASE("plan: maps that cannot be had are refused")
{
    Spec spec = with_maps();
    const auto says = [&](const std::string& text) {
        return contains(refusal(spec, user_host()), text);
    };
    SUBCASE("an id that is not mapped")
    {
        spec.uid = 1001;
        CHECK(says("the command's user id 1001 is not among them (hint: map it too, or choose "
                   "another with --uid)"));
        spec.uid = 1000;
        spec.gid = 1000;
        CHECK(says("the command's group id 1000 is not among them"));
    }
    SUBCASE("somebody else's user namespace")
    {
        spec.namespaces.join_user = 5;
        CHECK(says("the user namespace that is joined has its own"));
    }
    SUBCASE("somebody else's maps")
    {
        spec.user_map_descriptor = 5;
        CHECK(says("the maps are to be written by somebody else"));
    }
    SUBCASE("a devpts without an id 0")
    {
        spec.operations.emplace_back(Dev{"/dev"});
        CHECK(runtime::plan(spec, user_host()).has_value());
        spec.uid_map = {{1, 100001, 1000}};
        CHECK(says("map user 0 and group 0 too"));
    }
    SUBCASE("a network below whose owner the sandbox would be")
    {
        spec.join_network = JoinNetwork{JoinNetwork::By::sandbox, "other", -1};
        sys::Host host = user_host();
        host.foreign_network = 9;
        host.foreign_network_owner = 10;
        CHECK(contains(refusal(spec, host), "the user namespace that owns the network of other"));
    }
    SUBCASE("no user namespace")
    {
        spec.namespaces.user = Own::no;
        spec.uid = spec.gid = std::nullopt;
        CHECK(contains(refusal(spec, root_host()), "that requires a user namespace"));
    }
}
