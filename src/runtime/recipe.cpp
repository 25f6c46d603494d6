#include "runtime/recipe.hpp"

#include "sys/packing.hpp"

namespace nsbox::runtime {

namespace {

using sys::pack;
using sys::Unpacker;

constexpr std::uint64_t magic = 0x6e73627872637036;  // "nsbxrcp6"

void put(std::string& out, const std::optional<std::uint64_t>& number)
{
    pack(out, number ? 1U : 0U);
    pack(out, number.value_or(0));
}

std::optional<std::uint64_t> maybe(Unpacker& from)
{
    const bool is_there = from.number() != 0;
    const std::uint64_t value = from.number();
    return is_there ? std::optional{value} : std::nullopt;
}

LandlockRules rules_of(const ns::MakeRuleset& step)
{
    LandlockRules rules{step.files, step.ports, step.scoped, {}, {}};
    for (std::size_t i = 0; i < step.path_count; ++i)
        rules.paths.push_back(
            {step.paths[i].path, step.paths[i].access, step.paths[i].may_be_missing});
    for (std::size_t i = 0; i < step.range_count; ++i)
        rules.port_ranges.push_back(
            {step.port_ranges[i].first, step.port_ranges[i].last, step.port_ranges[i].access});
    return rules;
}

void put(std::string& out, const std::optional<LandlockRules>& rules)
{
    pack(out, rules ? 1U : 0U);
    if (!rules)
        return;
    for (const std::uint64_t set : {rules->files, rules->ports, rules->scoped})
        pack(out, set);
    pack(out, rules->paths.size());
    for (const LandlockRules::Path& path : rules->paths) {
        pack(out, path.path);
        pack(out, path.access);
        pack(out, path.may_be_missing ? 1U : 0U);
    }
    pack(out, rules->port_ranges.size());
    for (const LandlockRules::Ports& range : rules->port_ranges)
        for (const std::uint64_t number : {range.first, range.last, range.access})
            pack(out, number);
}

std::optional<LandlockRules> maybe_rules(Unpacker& from)
{
    if (from.number() == 0)
        return std::nullopt;
    LandlockRules rules;
    for (std::uint64_t* const set : {&rules.files, &rules.ports, &rules.scoped})
        *set = from.number();
    for (std::uint64_t left = from.count(); left > 0; --left) {
        LandlockRules::Path path;
        path.path = from.text();
        path.access = from.number();
        path.may_be_missing = from.number() != 0;
        rules.paths.push_back(std::move(path));
    }
    for (std::uint64_t left = from.count(); left > 0; --left) {
        LandlockRules::Ports range;
        for (std::uint64_t* const number : {&range.first, &range.last, &range.access})
            *number = from.number();
        rules.port_ranges.push_back(range);
    }
    return rules;
}

}  // namespace

Recipe recipe_of(const Plan& plan)
{
    Recipe recipe;
    for (std::size_t i = 0; i < plan.envp.size(); ++i)
        if (plan.envp[i] != nullptr && i != plan.pwd_slot)
            recipe.environment.emplace_back(plan.envp[i]);
    recipe.filters = plan.filters;
    recipe.in_place = plan.clone_flags == 0 && plan.join_user < 0 && plan.join_pid < 0;
    for (const ChildStep& step : plan.steps) {
        if (const auto* const bounding = std::get_if<ns::DropBounding>(&step))
            recipe.bounding = bounding->keep;
        else if (const auto* const sets = std::get_if<ns::SetCapabilities>(&step)) {
            recipe.capabilities = sets->sets;
            recipe.ambient = sets->ambient;
        } else if (const auto* const ids = std::get_if<ns::TakeMappedIds>(&step)) {
            recipe.ids = ids->uid | std::uint64_t{ids->gid} << 32;
            recipe.drop_groups = ids->drop_groups;
        } else if (std::holds_alternative<ns::RefuseUserNamespaces>(step)) {
            recipe.refuse_user_namespaces = true;
        } else if (const auto* const umask = std::get_if<RestoreUmask>(&step)) {
            if (umask->other >= 0)
                recipe.umask = static_cast<std::uint64_t>(umask->other);
        } else if (std::holds_alternative<OwnKeyring>(step)) {
            recipe.own_keyring = true;
        } else if (const auto* const ruleset = std::get_if<ns::MakeRuleset>(&step)) {
            recipe.landlock = rules_of(*ruleset);
        } else if (const auto* const directory = std::get_if<ChangeDirectory>(&step)) {
            recipe.directory = directory->wanted != nullptr ? directory->wanted : "";
            recipe.likely_directory = directory->logical;
            recipe.home = directory->home;
        }
    }
    return recipe;
}

std::string encode(const Recipe& recipe)
{
    std::string out;
    pack(out, magic);
    pack(out, recipe.environment.size());
    for (const std::string& entry : recipe.environment)
        pack(out, entry);
    pack(out, recipe.directory);
    pack(out, recipe.likely_directory);
    pack(out, recipe.home);
    pack(out, recipe.filters.size());
    for (const std::vector<std::uint8_t>& program : recipe.filters)
        pack(out, program.data(), program.size());
    put(out, recipe.bounding);
    put(out, recipe.capabilities);
    pack(out, recipe.ambient ? 1U : 0U);
    pack(out, recipe.refuse_user_namespaces ? 1U : 0U);
    put(out, recipe.ids);
    pack(out, recipe.drop_groups ? 1U : 0U);
    put(out, recipe.umask);
    pack(out, recipe.own_keyring ? 1U : 0U);
    put(out, recipe.landlock);
    pack(out, recipe.in_place ? 1U : 0U);
    pack(out, recipe.limits.size());
    for (const std::string& path : recipe.limits)
        pack(out, path);
    pack(out, recipe.group);
    return out;
}

Result<Recipe> decode(const std::string& bytes)
{
    Unpacker reader{bytes};
    Recipe recipe;
    if (reader.number() != magic)
        return refuse("Can't read how the sandbox is confined", {}, "another version wrote it");
    for (std::uint64_t left = reader.count(); left > 0; --left)
        recipe.environment.push_back(reader.text());
    recipe.directory = reader.text();
    recipe.likely_directory = reader.text();
    recipe.home = reader.text();
    for (std::uint64_t left = reader.count(); left > 0; --left) {
        const std::string program = reader.text();
        recipe.filters.emplace_back(program.begin(), program.end());
    }
    recipe.bounding = maybe(reader);
    recipe.capabilities = maybe(reader);
    recipe.ambient = reader.number() != 0;
    recipe.refuse_user_namespaces = reader.number() != 0;
    recipe.ids = maybe(reader);
    recipe.drop_groups = reader.number() != 0;
    recipe.umask = maybe(reader);
    recipe.own_keyring = reader.number() != 0;
    recipe.landlock = maybe_rules(reader);
    recipe.in_place = reader.number() != 0;
    for (std::uint64_t left = reader.count(); left > 0; --left)
        recipe.limits.push_back(reader.text());
    recipe.group = reader.text();
    if (!reader.is_done())
        return refuse("Can't read how the sandbox is confined", {}, "it is damaged");
    return recipe;
}

}  // namespace nsbox::runtime
