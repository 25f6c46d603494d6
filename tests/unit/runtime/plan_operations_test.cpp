// The steps that build the file tree.

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <linux/mount.h>

using namespace nsbox;
using namespace nsbox::tests;
using runtime::Plan;

namespace {

constexpr std::uint64_t nosuid = MOUNT_ATTR_NOSUID;
constexpr std::uint64_t nodev = MOUNT_ATTR_NODEV;
constexpr std::uint64_t rdonly = MOUNT_ATTR_RDONLY;

Spec with(std::vector<Operation> operations)
{
    Spec spec = plain_spec();
    spec.operations = std::move(operations);
    return spec;
}

/// The kinds of the steps between ClearUmask and EnterRoot.
std::string tree_kinds(const Plan& plan)
{
    const std::string all = kinds_of(plan);
    const std::size_t begin = all.find("ClearUmask ") + 11;
    return all.substr(begin, all.find(" EnterRoot") - begin);
}

std::string tree_of(std::vector<Operation> operations)
{
    return tree_kinds(planned(with(std::move(operations)), user_host()));
}

Bind bind_over(const std::string& destination, Access access = Access::read_only,
               IfMissing missing = IfMissing::fail)
{
    return {"/src", destination, access, Devices::refused, missing};
}

Overlay overlay(Overlay::Upper kind)
{
    Overlay op;
    op.lower = {"/bottom", "/middle", "/top"};
    op.upper_kind = kind;
    if (kind == Overlay::Upper::kept) {
        op.upper = "/upper";
        op.work = "/work";
    }
    op.destination = "/o";
    return op;
}

}  // namespace

TEST_CASE("plan operations: each operation becomes its step, in the order of the Spec")
{
    CHECK(tree_of({}) == "MakeRoot");
    CHECK(
        tree_of({Tmpfs{"/t"}, Directory{"/d"}, Symlink{"x", "/l"}, Chmod{0700, "/d"}, Mqueue{"/m"},
                 Proc{"/p"}, Dev{"/v"}, RemountReadOnly{"/t"}, bind_over("/b"), File{30, "/f"}}) ==
        "MakeRoot MountTmpfs MakeDirectory MakeSymlink ChangeMode MountMqueue MountProc MountDev "
        "MakeReadOnly BindTree WriteFile");
    CHECK(tree_of({bind_over("/b"), Tmpfs{"/b/t"}, bind_over("/b/t/c")}) ==
          "MakeRoot BindTree MountTmpfs BindTree");
}

TEST_CASE("plan operations: binds are nosuid, and nodev and read-only unless allowed otherwise")
{
    const auto attributes = [](Access access, Devices devices) {
        const Plan plan = planned(with({Bind{"/s", "/d", access, devices}}), user_host());
        return step_of<mount::BindTree>(plan).attributes;
    };
    CHECK(attributes(Access::read_only, Devices::refused) == (nosuid | nodev | rdonly));
    CHECK(attributes(Access::read_write, Devices::refused) == (nosuid | nodev));
    CHECK(attributes(Access::read_write, Devices::allowed) == nosuid);
    CHECK(attributes(Access::read_only, Devices::allowed) == (nosuid | rdonly));
    const Plan plan = planned(with({BindDescriptor{30, "/a", Access::read_only},
                                    BindDescriptor{31, "/b", Access::read_write}}),
                              user_host());
    const auto binds = steps_of<mount::BindOpenFile>(plan);
    REQUIRE(binds.size() == 2);
    CHECK(binds[0].fd == 30);
    CHECK(binds[0].attributes == (nosuid | nodev | rdonly));
    CHECK(binds[1].attributes == (nosuid | nodev));
    CHECK(binds[1].target == std::string{"/b"});
}

TEST_CASE("plan operations: a bind says whether its source may be missing")
{
    const Plan plan = planned(
        with({bind_over("/a"), bind_over("/b", Access::read_only, IfMissing::skip)}), user_host());
    const auto binds = steps_of<mount::BindTree>(plan);
    REQUIRE(binds.size() == 2);
    CHECK_FALSE(binds[0].may_be_missing);
    CHECK(binds[1].may_be_missing);
    CHECK(binds[0].source == std::string{"/src"});
    CHECK(binds[0].detached == -1);
}

TEST_CASE("plan operations: an empty source is refused, whatever else is there")
{
    for (const IfMissing missing : {IfMissing::fail, IfMissing::skip}) {
        const Spec spec =
            with({Tmpfs{"/t"}, Bind{"", "/d", Access::read_only, Devices::refused, missing}});
        CHECK(refusal(spec, user_host()) == "Can't find source path: No such file or directory "
                                            "(hint: the source is an empty word)");
    }
}

TEST_CASE("plan operations: slashes around a destination do not matter")
{
    const auto target = [](const std::string& destination) {
        const Plan plan = planned(with({Tmpfs{destination}}), user_host());
        return std::string{step_of<mount::MountTmpfs>(plan).target};
    };
    CHECK(target("/a") == "/a");
    CHECK(target("a") == "/a");
    CHECK(target("///a//") == "/a");
    CHECK(target("/a//b/") == "/a//b");  // In between the resolver passes over them.
    CHECK(target("/a/../b") == "/a/../b");
    CHECK(target("/") == "/");
    CHECK(target("//") == "/");
    CHECK(target("") == "/");
    CHECK(target("/a b/\n") == "/a b/\n");
}

TEST_CASE("plan operations: the root is a tmpfs unless the first operation covers it for certain")
{
    const auto plain = [](std::vector<Operation> operations) {
        return step_of<mount::MakeRoot>(planned(with(std::move(operations)), user_host())).plain;
    };
    CHECK_FALSE(plain({bind_over("/")}));
    CHECK_FALSE(plain({bind_over("//")}));
    CHECK_FALSE(plain({bind_over("/"), Tmpfs{"/tmp"}}));
    CHECK(plain({}));
    CHECK(plain({bind_over("/a")}));
    CHECK(plain({bind_over("/", Access::read_only, IfMissing::skip)}));
    CHECK(plain({Tmpfs{"/"}}));
    CHECK(plain({Tmpfs{"/tmp"}, bind_over("/")}));
    CHECK(plain({BindDescriptor{30, "/"}}));
}

TEST_CASE("plan operations: an overlay as the root needs no file system below it")
{
    Overlay op = overlay(Overlay::Upper::temporary);
    op.destination = "//";
    Spec spec = plain_spec();
    spec.operations = {op};
    CHECK_FALSE(step_of<mount::MakeRoot>(planned(spec, user_host())).plain);
    op.destination = "/x";
    spec.operations = {op};
    CHECK(step_of<mount::MakeRoot>(planned(spec, user_host())).plain);
}

TEST_CASE("plan operations: an upper folder that memory may stand in for gets a store")
{
    Overlay op = overlay(Overlay::Upper::kept);
    op.else_temporary = true;
    Spec spec = plain_spec();
    spec.operations = {op};
    const Plan plan = planned(spec, user_host());
    CHECK(steps_of<mount::MakeStore>(plan).size() == 1);
    CHECK(step_of<mount::MountOverlay>(plan).else_temporary);
    CHECK_FALSE(step_of<mount::MountOverlay>(plan).temporary);
}

TEST_CASE("plan operations: data and throw-away overlays get a store that comes first")
{
    CHECK(tree_of({bind_over("/"), Data{30, "/d"}}) == "MakeStore MakeRoot BindTree BindContents");
    CHECK(tree_of({overlay(Overlay::Upper::temporary)}) ==
          "CheckSource CheckSource CheckSource MakeStore MakeRoot MountOverlay");
    CHECK(tree_of({overlay(Overlay::Upper::none)}) ==
          "CheckSource CheckSource CheckSource MakeRoot MountOverlay");
    CHECK(tree_of({overlay(Overlay::Upper::kept)}) ==
          "CheckSource CheckSource CheckSource CheckSource CheckSource MakeRoot MountOverlay");
    CHECK(tree_of({File{30, "/f"}}) == "MakeRoot WriteFile");
}

TEST_CASE("plan operations: sources are looked for beforehand only after something writable")
{
    const auto checked = [](std::vector<Operation> operations) {
        const Plan plan = planned(with(std::move(operations)), user_host());
        std::vector<std::string> paths;
        for (const auto& check : steps_of<mount::CheckSource>(plan))
            paths.emplace_back(check.path);
        return paths;
    };
    using Texts = std::vector<std::string>;
    const Bind reads{"/r", "/a", Access::read_only};
    const Bind writes{"/w", "/b", Access::read_write};
    CHECK(checked({reads, reads}).empty());
    CHECK(checked({reads, writes}).empty());
    CHECK(checked({writes, reads}) == Texts{"/r"});
    CHECK(checked({writes, reads, writes}) == Texts{"/r", "/w"});
    CHECK(checked({BindDescriptor{30, "/c", Access::read_only}, reads}).empty());
    CHECK(checked({BindDescriptor{30, "/c", Access::read_write}, reads}) == Texts{"/r"});
    CHECK(checked({overlay(Overlay::Upper::kept), reads}) ==
          Texts{"/bottom", "/middle", "/top", "/upper", "/work", "/r"});
    CHECK(checked({overlay(Overlay::Upper::temporary), reads}) ==
          Texts{"/bottom", "/middle", "/top"});
}

TEST_CASE("plan operations: a source that may be missing may be missing beforehand too")
{
    const Plan plan =
        planned(with({bind_over("/a", Access::read_write),
                      bind_over("/b", Access::read_only, IfMissing::skip), bind_over("/c")}),
                user_host());
    const auto checks = steps_of<mount::CheckSource>(plan);
    REQUIRE(checks.size() == 2);
    CHECK(checks[0].may_be_missing);
    CHECK_FALSE(checks[1].may_be_missing);
}

TEST_CASE("plan operations: descriptors to bind are always looked at first")
{
    const Plan plan = planned(with({Tmpfs{"/t"}, BindDescriptor{30, "/a"}}), user_host());
    CHECK(tree_kinds(plan) == "CheckDescriptor MakeRoot MountTmpfs BindOpenFile");
    CHECK(step_of<mount::CheckDescriptor>(plan).fd == 30);
}

TEST_CASE("plan operations: root that enters a user namespace opens its sources beforehand")
{
    Spec spec = with({Tmpfs{"/t"}, Bind{"/s1", "/a", Access::read_only},
                      Bind{"/s2", "/b", Access::read_write, Devices::allowed},
                      BindDescriptor{30, "/c", Access::read_write}});
    spec.namespaces.user = Own::yes;
    const Plan plan = planned(spec, root_host());
    REQUIRE(plan.early_trees.size() == 3);
    CHECK(plan.early_trees[0].source == std::string{"/s1"});
    CHECK(plan.early_trees[0].fd == -1);
    CHECK(plan.early_trees[0].attributes == (nosuid | nodev | rdonly));
    CHECK(plan.early_trees[1].source == std::string{"/s2"});
    CHECK(plan.early_trees[1].attributes == nosuid);
    CHECK(plan.early_trees[2].source == nullptr);
    CHECK(plan.early_trees[2].fd == 30);
    for (const runtime::EarlyTree& early : plan.early_trees) {
        REQUIRE(early.step < plan.steps.size());
        const runtime::ChildStep& step = plan.steps[early.step];
        if (const auto* const bind = std::get_if<mount::BindTree>(&step)) {
            CHECK(bind->source == early.source);
            CHECK(bind->attributes == early.attributes);
        } else {
            const auto* const open_file = std::get_if<mount::BindOpenFile>(&step);
            REQUIRE(open_file != nullptr);
            CHECK(open_file->fd == early.fd);
        }
    }
}

TEST_CASE("plan operations: nobody else opens sources beforehand")
{
    Spec spec = with({bind_over("/a"), BindDescriptor{30, "/c"}});
    CHECK(planned(spec, root_host()).early_trees.empty());
    CHECK(planned(spec, user_host()).early_trees.empty());
    spec.namespaces.user = Own::yes;
    CHECK(planned(spec, user_host()).early_trees.empty());
    sys::Host old = root_host();
    old.has_mount_api = false;
    CHECK(planned(spec, old).early_trees.empty());
    CHECK(planned(spec, root_host()).early_trees.size() == 2);
}

TEST_CASE("plan operations: a tmpfs has its mode and, where one is given, its size")
{
    const auto options = [](const Tmpfs& tmpfs, const std::optional<std::string>& label = {}) {
        Spec spec = with({tmpfs});
        spec.file_label = label;
        const Plan plan = planned(spec, user_host());
        return std::string{step_of<mount::MountTmpfs>(plan).options};
    };
    CHECK(options({"/t", 0755, 0}) == "mode=0755");
    CHECK(options({"/t", 01777, 4096}) == "mode=01777,size=4096");
    CHECK(options({"/t", 0, 1}) == "mode=0,size=1");
    CHECK(options({"/t", 0700, 9223372036854775807U}) == "mode=0700,size=9223372036854775807");
    CHECK(options({"/t", 0755, 0}, "a:b:c") == "mode=0755,context=\"a:b:c\"");
}

TEST_CASE("plan operations: missing parents are no more open than what is made below them")
{
    struct Row {
        unsigned mode;
        unsigned parents;
    };
    for (const Row& row : {Row{0755, 0755}, Row{0777, 0755}, Row{0700, 0700}, Row{0750, 0750},
                           Row{0705, 0705}, Row{0600, 0700}, Row{0644, 0755}, Row{0640, 0750},
                           Row{0, 0700}, Row{01777, 0755}, Row{0711, 0755}}) {
        CAPTURE(row.mode);
        const Plan plan =
            planned(with({Directory{"/d", row.mode}, File{30, "/f", row.mode}}), user_host());
        CHECK(step_of<mount::MakeDirectory>(plan).mode == row.mode);
        CHECK(step_of<mount::MakeDirectory>(plan).parent_mode == row.parents);
        CHECK(step_of<mount::WriteFile>(plan).mode == row.mode);
        CHECK(step_of<mount::WriteFile>(plan).parent_mode == row.parents);
    }
}

TEST_CASE("plan operations: private data has its mode inside folders that anyone may pass")
{
    const Plan plan = planned(
        with({Data{30, "/a", Access::read_only, 0600}, Data{31, "/b", Access::read_write, 0644}}),
        user_host());
    const auto data = steps_of<mount::BindContents>(plan);
    REQUIRE(data.size() == 2);
    CHECK(data[0].fd == 30);
    CHECK(data[0].mode == 0600);
    CHECK(data[0].parent_mode == 0755);
    CHECK(data[0].read_only);
    CHECK(data[1].mode == 0644);
    CHECK_FALSE(data[1].read_only);
}

TEST_CASE("plan operations: layers go to the kernel top first")
{
    const Plan plan = planned(with({overlay(Overlay::Upper::kept)}), user_host());
    const auto step = step_of<mount::MountOverlay>(plan);
    REQUIRE(step.lower_count == 3);
    CHECK(step.lower[0] == std::string{"/top"});
    CHECK(step.lower[1] == std::string{"/middle"});
    CHECK(step.lower[2] == std::string{"/bottom"});
    CHECK(step.upper == std::string{"/upper"});
    CHECK(step.work == std::string{"/work"});
    CHECK_FALSE(step.temporary);
    const Plan thrown_away = planned(with({overlay(Overlay::Upper::temporary)}), user_host());
    CHECK(step_of<mount::MountOverlay>(thrown_away).temporary);
    CHECK(step_of<mount::MountOverlay>(thrown_away).upper == nullptr);
    const Plan read_only = planned(with({overlay(Overlay::Upper::none)}), user_host());
    CHECK_FALSE(step_of<mount::MountOverlay>(read_only).temporary);
    CHECK(step_of<mount::MountOverlay>(read_only).upper == nullptr);
}

TEST_CASE("plan operations: the console is the caller's terminal, if there is one")
{
    sys::Host host = user_host();
    CHECK(step_of<mount::MountDev>(planned(with({Dev{"/dev"}}), host)).console == nullptr);
    host.terminal = "/dev/pts/3";
    const Plan plan = planned(with({Dev{"/dev"}}), host);
    REQUIRE(step_of<mount::MountDev>(plan).console != nullptr);
    CHECK(step_of<mount::MountDev>(plan).console == std::string{"/dev/pts/3"});
}

TEST_CASE("plan operations: tolerance for mounts below a bind is handed to every bind")
{
    Spec spec = with({bind_over("/a"), BindDescriptor{30, "/b"}, Proc{"/p"}});
    for (const bool tolerate : {false, true}) {
        spec.tolerate_failed_submounts = tolerate;
        const Plan plan = planned(spec, user_host());
        CHECK(step_of<mount::BindTree>(plan).tolerate_submounts == tolerate);
        CHECK(step_of<mount::BindOpenFile>(plan).tolerate_submounts == tolerate);
        CHECK(step_of<mount::MountProc>(plan).tolerate_submounts == tolerate);
    }
}

TEST_CASE("plan operations: the strings of steps survive moves of the plan and growth")
{
    std::vector<Operation> operations;
    for (int i = 0; i < 2000; ++i)
        operations.emplace_back(Bind{"/s" + std::to_string(i), "/d" + std::to_string(i)});
    Plan first = planned(with(operations), user_host());
    Plan second = std::move(first);
    Plan third;
    third = std::move(second);
    const auto binds = steps_of<mount::BindTree>(third);
    REQUIRE(binds.size() == operations.size());
    for (std::size_t i = 0; i < binds.size(); ++i) {
        REQUIRE(binds[i].source == "/s" + std::to_string(i));
        REQUIRE(binds[i].target == "/d" + std::to_string(i));
    }
}

TEST_CASE("plan operations: in random trees every operation has one step, in order")
{
    Random random{5};
    struct Choice {
        const char* kind;
        Operation operation;
    };
    const std::vector<Choice> choices{{"BindTree", bind_over("/b")},
                                      {"BindTree", bind_over("/w", Access::read_write)},
                                      {"MountTmpfs", Tmpfs{"/t"}},
                                      {"BindContents", Data{30, "/c"}},
                                      {"MountOverlay", overlay(Overlay::Upper::temporary)},
                                      {"MakeDirectory", Directory{"/d"}}};
    for (int round = 0; round < 200; ++round) {
        std::vector<Operation> operations;
        std::string expected = "MakeRoot";
        for (std::size_t n = random.below(12); n > 0; --n) {
            const Choice& choice = random.of(choices);
            operations.push_back(choice.operation);
            expected += std::string{" "} + choice.kind;
        }
        // What comes before MakeRoot only looks, or makes the store.
        const std::string kinds = tree_of(operations);
        CHECK(kinds.substr(kinds.find("MakeRoot")) == expected);
    }
}
