// What a supervisor hands to those who enter its sandbox, there and back.

#include "runtime/recipe.hpp"

#include "sys/packing.hpp"
#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

using namespace nsbox;
using runtime::decode;
using runtime::encode;
using runtime::Recipe;
using runtime::recipe_of;

namespace {

void check_same(const Recipe& got, const Recipe& wanted)
{
    CHECK(got.environment == wanted.environment);
    CHECK(got.directory == wanted.directory);
    CHECK(got.likely_directory == wanted.likely_directory);
    CHECK(got.home == wanted.home);
    CHECK(got.filters == wanted.filters);
    CHECK(got.bounding == wanted.bounding);
    CHECK(got.capabilities == wanted.capabilities);
    CHECK(got.ambient == wanted.ambient);
    CHECK(got.refuse_user_namespaces == wanted.refuse_user_namespaces);
    CHECK(got.ids == wanted.ids);
    CHECK(got.drop_groups == wanted.drop_groups);
    CHECK(got.umask == wanted.umask);
    CHECK(got.own_keyring == wanted.own_keyring);
    CHECK(got.landlock == wanted.landlock);
    CHECK(got.in_place == wanted.in_place);
    CHECK(got.limits == wanted.limits);
    CHECK(got.group == wanted.group);
}

Recipe full_recipe()
{
    Recipe recipe;
    recipe.environment = {"PATH=/bin", "EMPTY=", std::string{"NUL=\0x", 6}, ""};
    recipe.directory = "/inside";
    recipe.likely_directory = "/work/link";
    recipe.home = "/home/jo\n";
    recipe.filters = {std::vector<std::uint8_t>(16, 0xfe), {}, std::vector<std::uint8_t>(8, 0)};
    recipe.bounding = 0;  // An empty set is not the same as none.
    recipe.capabilities = ~std::uint64_t{0};
    recipe.ambient = true;
    recipe.refuse_user_namespaces = true;
    recipe.ids = 0x500000003;
    recipe.drop_groups = true;
    recipe.umask = 0;
    recipe.own_keyring = true;
    recipe.landlock = runtime::LandlockRules{
        0xffff, 3, 1, {{"/", 13, false}, {"/a b", 0, true}}, {{1, 65535, 2}, {0, 0, 1}}};
    recipe.in_place = true;
    recipe.limits = {"/sys/fs/cgroup/memory/x", ""};
    recipe.group = "/sys/fs/cgroup/a b";
    return recipe;
}

}  // namespace

TEST_CASE("recipe: what was encoded is decoded")
{
    for (const Recipe& recipe : {full_recipe(), Recipe{}}) {
        const Result<Recipe> decoded = decode(encode(recipe));
        REQUIRE(decoded.has_value());
        check_same(*decoded, recipe);
    }
}

TEST_CASE("recipe: each part changes the bytes")
{
    const std::string plain = encode(Recipe{});
    const auto changed = [&](auto change) {
        Recipe recipe;
        change(recipe);
        return encode(recipe) != plain;
    };
    CHECK(changed([](Recipe& r) { r.environment = {""}; }));
    CHECK(changed([](Recipe& r) { r.directory = "/"; }));
    CHECK(changed([](Recipe& r) { r.likely_directory = "/"; }));
    CHECK(changed([](Recipe& r) { r.home = "/"; }));
    CHECK(changed([](Recipe& r) { r.landlock.emplace(); }));
    CHECK(changed([](Recipe& r) { r.in_place = true; }));
    CHECK(changed([](Recipe& r) { r.filters = {{}}; }));
    CHECK(changed([](Recipe& r) { r.bounding = 0; }));
    CHECK(changed([](Recipe& r) { r.capabilities = 0; }));
    CHECK(changed([](Recipe& r) { r.ambient = true; }));
    CHECK(changed([](Recipe& r) { r.refuse_user_namespaces = true; }));
    CHECK(changed([](Recipe& r) { r.ids = 0; }));
    CHECK(changed([](Recipe& r) { r.drop_groups = true; }));
    CHECK(changed([](Recipe& r) { r.umask = 022; }));
    CHECK(changed([](Recipe& r) { r.own_keyring = true; }));
    CHECK(changed([](Recipe& r) { r.group = "/"; }));
}

TEST_CASE("recipe: what is cut off anywhere is refused, and so is what has something behind")
{
    const std::string bytes = encode(full_recipe());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        CAPTURE(size);
        CHECK_FALSE(decode(bytes.substr(0, size)).has_value());
    }
    for (const std::size_t more : {1U, 8U, 4096U})
        CHECK_FALSE(decode(bytes + std::string(more, '\0')).has_value());
    CHECK(decode(bytes).has_value());
}

TEST_CASE("recipe: another version's is refused, and the message says so")
{
    std::string bytes = encode(full_recipe());
    for (std::size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<char>(bytes[i] ^ 1);
        const Result<Recipe> decoded = decode(bytes);
        REQUIRE_FALSE(decoded.has_value());
        CHECK(decoded.error().message().find("another version wrote it") != std::string::npos);
        bytes[i] = static_cast<char>(bytes[i] ^ 1);
    }
    CHECK(decode(bytes).has_value());
}

TEST_CASE("recipe: sizes and counts larger than what is there are refused")
{
    const std::string bytes = encode(full_recipe());
    const std::uint64_t sizes[] = {bytes.size(),           std::uint64_t{1} << 31,
                                   std::uint64_t{1} << 63, ~std::uint64_t{0},
                                   ~std::uint64_t{0} - 7,  (std::uint64_t{1} << 61) + 1};
    // Behind the magic number come a count and the size of a text.
    for (const std::size_t at : {8U, 16U})
        for (const std::uint64_t size : sizes) {
            CAPTURE(at);
            CAPTURE(size);
            std::string damaged = bytes;
            std::memcpy(damaged.data() + at, &size, sizeof size);
            const Result<Recipe> decoded = decode(damaged);
            REQUIRE_FALSE(decoded.has_value());
            CHECK(decoded.error().message().find("damaged") != std::string::npos);
        }
}

TEST_CASE("recipe: a single damaged byte is refused, or read as some recipe that encodes again")
{
    const std::string bytes = encode(full_recipe());
    tests::Random random{7};
    unsigned refused = 0;
    for (int round = 0; round < 4000; ++round) {
        std::string damaged = bytes;
        damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
        const Result<Recipe> decoded = decode(damaged);
        if (!decoded) {
            ++refused;
            continue;
        }
        const Result<Recipe> again = decode(encode(*decoded));
        REQUIRE(again.has_value());
        check_same(*again, *decoded);
    }
    CHECK(refused > 400);
}

TEST_CASE("recipe: a plan's environment comes without PWD, in its order")
{
    Spec spec = tests::plain_spec();
    spec.environment = {{EnvironmentEdit::Kind::set, "X", "y=z"},
                        {EnvironmentEdit::Kind::set, "EMPTY", ""}};
    const Recipe recipe = recipe_of(tests::planned(spec, tests::user_host()));
    CHECK(recipe.environment == std::vector<std::string>{"PATH=/opt/bin:/usr/bin", "HOME=/home/jo",
                                                         "TERM=dumb", "X=y=z", "EMPTY="});
    CHECK(recipe.home == "/home/jo");
    CHECK(recipe.directory.empty());
    CHECK(recipe.likely_directory == "/work/link");
}

TEST_CASE("recipe: a plan's directory is the one that was asked for")
{
    Spec spec = tests::plain_spec();
    spec.directory = "/inside";
    CHECK(recipe_of(tests::planned(spec, tests::user_host())).directory == "/inside");
}

TEST_CASE("recipe: an ordinary user's command has no capability, root's keeps what was not edited")
{
    const Recipe user = recipe_of(tests::planned(tests::plain_spec(), tests::user_host()));
    CHECK(user.capabilities == std::optional<std::uint64_t>{0});
    CHECK_FALSE(user.ambient);
    const Recipe root = recipe_of(tests::planned(tests::plain_spec(), tests::root_host()));
    CHECK_FALSE(root.capabilities.has_value());
    CHECK_FALSE(root.bounding.has_value());
    CHECK_FALSE(root.ambient);
}

TEST_CASE("recipe: edited capabilities are in all sets, and no others in the bounding set")
{
    for (const bool is_root : {false, true}) {
        CAPTURE(is_root);
        Spec spec = tests::plain_spec();
        spec.namespaces.user = Own::yes;
        spec.capabilities = {{CapabilityEdit::Kind::drop_all, 0}, {CapabilityEdit::Kind::add, 12}};
        const Recipe recipe =
            recipe_of(tests::planned(spec, is_root ? tests::root_host() : tests::user_host()));
        const std::optional<std::uint64_t> wanted{std::uint64_t{1} << 12};
        CHECK(recipe.capabilities == wanted);
        CHECK(recipe.bounding == wanted);
        CHECK(recipe.ambient);
    }
}

TEST_CASE("recipe: with a second user namespace the sets are those of the last one")
{
    Spec spec = tests::plain_spec();
    spec.namespaces.user = Own::yes;
    spec.disable_user_namespaces = true;
    const Recipe recipe = recipe_of(tests::planned(spec, tests::user_host()));
    CHECK(recipe.capabilities == std::optional<std::uint64_t>{0});
    CHECK(recipe.bounding == std::optional<std::uint64_t>{0});
    CHECK(recipe.refuse_user_namespaces);
    spec.disable_user_namespaces = false;
    CHECK_FALSE(recipe_of(tests::planned(spec, tests::user_host())).refuse_user_namespaces);
}

TEST_CASE("recipe: the caller's filters come in their order")
{
    Spec spec = tests::plain_spec();
    spec.seccomp_programs = {std::vector<std::uint8_t>(8, 0x11),
                             std::vector<std::uint8_t>(24, 0x22)};
    const std::vector<std::vector<std::uint8_t>> filters =
        recipe_of(tests::planned(spec, tests::user_host())).filters;
    REQUIRE(filters.size() >= 2);
    CHECK(std::vector(filters.end() - 2, filters.end()) == spec.seccomp_programs);
}

TEST_CASE("recipe: who gets the sandbox's terminal, or the caller's, cannot type into it")
{
    Spec spec = tests::plain_spec();
    spec.terminal = WindowSize{};
    CHECK(recipe_of(tests::planned(spec, tests::user_host())).filters.size() == 1);
}
