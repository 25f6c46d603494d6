#include "runtime/subordinate_ids.hpp"

#include "sys/error.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace nsbox {

namespace {

constexpr std::uint64_t most_ids = std::uint64_t{1} << 32;
constexpr std::uint32_t usual_ids = 65536;

/// Takes the text up to the next `end` away from `rest`.
std::string_view take_until(std::string_view& rest, char end)
{
    const std::size_t at = std::min(rest.find(end), rest.size());
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
}

bool parse_number(std::string_view text, std::uint32_t& number)
{
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    return result.ec == std::errc{} && result.ptr == text.data() + text.size();
}

Result<std::vector<SubordinateRange>> granted(const char* path,
                                              const std::vector<std::string>& names)
{
    const int rc = sys::raw::faccessat(AT_FDCWD, path, R_OK);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return std::vector<SubordinateRange>{};
    if (rc < 0)
        return fail("Can't read", -rc, path);
    return runtime::parse_subordinate(sys::read_file(path), names);
}

}  // namespace

namespace runtime {

std::vector<SubordinateRange> parse_subordinate(const std::string& text,
                                                const std::vector<std::string>& names)
{
    std::vector<SubordinateRange> found;
    for (std::string_view rest{text}; !rest.empty();) {
        std::string_view line = take_until(rest, '\n');
        const std::string_view name = take_until(line, ':');
        SubordinateRange range;
        const bool is_whole =
            parse_number(take_until(line, ':'), range.first) && parse_number(line, range.count);
        if (is_whole && range.count > 0 && std::uint64_t{range.first} + range.count < most_ids &&
            std::find(names.begin(), names.end(), name) != names.end())
            found.push_back(range);
    }
    return found;
}

std::vector<std::string> names_of_user(const std::string& passwd, std::uint32_t uid)
{
    std::vector<std::string> names;
    for (std::string_view rest{passwd}; !rest.empty();) {
        std::string_view line = take_until(rest, '\n');
        const std::string_view name = take_until(line, ':');
        take_until(line, ':');
        std::uint32_t number = 0;
        if (!name.empty() && parse_number(take_until(line, ':'), number) && number == uid)
            names.emplace_back(name);
    }
    names.push_back(std::to_string(uid));
    return names;
}

}  // namespace runtime

Result<SubordinateIds> subordinate_ids()
{
    const std::vector<std::string> names =
        runtime::names_of_user(sys::read_file("/etc/passwd"), sys::raw::getuid());
    SubordinateIds ids;
    ids.uids = TRY(granted("/etc/subuid", names));
    ids.gids = TRY(granted("/etc/subgid", names));
    return ids;
}

std::vector<IdRange> map_beside_own(const std::vector<SubordinateRange>& ranges,
                                    std::uint32_t inside, std::uint32_t own)
{
    std::vector<IdRange> map;
    std::uint32_t next = 0;
    for (const SubordinateRange& range : ranges) {
        std::uint32_t first = range.first;
        std::uint32_t left = std::min(range.count, usual_ids - next);
        if (inside >= next && inside - next < left) {
            const std::uint32_t before = inside - next;
            if (before > 0)
                map.push_back({next, first, before});
            map.push_back({inside, own, 1});
            next += before + 1;
            first += before + 1;
            left -= before + 1;
        }
        if (left > 0)
            map.push_back({next, first, left});
        next += left;
    }
    if (inside >= next)
        map.push_back({inside, own, 1});
    return map;
}

}  // namespace nsbox
