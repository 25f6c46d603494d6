#include "runtime/id_maps.hpp"

#include <algorithm>

namespace nsbox::runtime {

namespace {

constexpr std::size_t most_ranges = 340;        // user_namespaces(7), since Linux 4.15.
constexpr std::uint64_t most_ids = 0xffffffff;  // The last number is no id.

Literal bad_map(IdKind kind)
{
    return kind == IdKind::user ? Literal{"Can't map the user ids"}
                                : Literal{"Can't map the group ids"};
}

std::string words_of(const IdRange& range)
{
    return std::to_string(range.inside) + ":" + std::to_string(range.outside) + ":" +
           std::to_string(range.count);
}

bool overlap(std::uint32_t a, std::uint32_t a_count, std::uint32_t b, std::uint32_t b_count)
{
    return a < std::uint64_t{b} + b_count && b < std::uint64_t{a} + a_count;
}

}  // namespace

Result<> check_id_map(IdKind kind, const std::vector<IdRange>& map)
{
    if (map.size() > most_ranges)
        return refuse(bad_map(kind), {}, "the kernel takes at most 340 ranges");
    for (std::size_t i = 0; i < map.size(); ++i) {
        const IdRange& range = map[i];
        if (range.count == 0)
            return refuse(bad_map(kind), words_of(range), "there is no id in it");
        if (std::uint64_t{range.inside} + range.count > most_ids ||
            std::uint64_t{range.outside} + range.count > most_ids)
            return refuse(bad_map(kind), words_of(range), "the largest id is 4294967294");
        for (std::size_t j = 0; j < i; ++j)
            if (overlap(range.inside, range.count, map[j].inside, map[j].count) ||
                overlap(range.outside, range.count, map[j].outside, map[j].count))
                return refuse(bad_map(kind), words_of(range),
                              "it has ids in common with " + words_of(map[j]));
    }
    return {};
}

std::optional<std::uint32_t> outside_of(const std::vector<IdRange>& map, std::uint32_t inside)
{
    for (const IdRange& range : map)
        if (inside >= range.inside && inside - range.inside < range.count)
            return range.outside + (inside - range.inside);
    return std::nullopt;
}

std::string map_text(const std::vector<IdRange>& map)
{
    std::string text;
    for (const IdRange& range : map)
        text += std::to_string(range.inside) + " " + std::to_string(range.outside) + " " +
                std::to_string(range.count) + "\n";
    return text;
}

std::string same_ids_text(const std::vector<IdRange>& map)
{
    std::vector<IdRange> same = map;
    for (IdRange& range : same)
        range.outside = range.inside;
    return map_text(same);
}

std::string missing_line(const std::vector<IdRange>& map, std::uint32_t own,
                         const std::vector<SubordinateRange>& granted, const std::string& name)
{
    for (const IdRange& range : map) {
        const bool is_own = range.count == 1 && range.outside == own;
        const bool is_granted =
            std::any_of(granted.begin(), granted.end(), [&](const SubordinateRange& grant) {
                return range.outside >= grant.first && std::uint64_t{range.outside} + range.count <=
                                                           std::uint64_t{grant.first} + grant.count;
            });
        if (!is_own && !is_granted)
            return name + ":" + std::to_string(range.outside) + ":" + std::to_string(range.count);
    }
    return {};
}

}  // namespace nsbox::runtime
