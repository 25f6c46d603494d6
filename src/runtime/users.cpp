#include "runtime/users.hpp"

#include <charconv>
#include <string_view>
#include <vector>

namespace nsbox::runtime {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator)
{
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

std::optional<std::uint32_t> to_id(std::string_view text)
{
    std::uint32_t id = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), id);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size())
        return std::nullopt;
    return id;
}

// passwd(5): name, password, uid, gid, comment, home, shell. group(5): name, password, gid, members.
constexpr std::size_t id_field = 2;
constexpr std::size_t gid_field = 3;
constexpr std::size_t home_field = 5;

/// Calls `use` with the fields of each line that has an id, until it returns true.
template <class Use>
void each_entry(const std::string& file, Use use)
{
    for (const std::string_view line : split(file, '\n')) {
        const std::vector<std::string_view> fields = split(line, ':');
        if (fields.size() <= id_field || fields[0].empty())
            continue;
        const std::optional<std::uint32_t> id = to_id(fields[id_field]);
        if (id && use(fields, *id))
            return;
    }
}

template <class Match>
std::optional<Account> account_if(const std::string& passwd, Match match)
{
    std::optional<Account> found;
    each_entry(passwd, [&](const std::vector<std::string_view>& fields, std::uint32_t uid) {
        if (fields.size() <= home_field || !match(fields[0], uid))
            return false;
        const std::optional<std::uint32_t> gid = to_id(fields[gid_field]);
        if (!gid)
            return false;
        found = Account{std::string{fields[0]}, uid, *gid, std::string{fields[home_field]}};
        return true;
    });
    return found;
}

/// The file without entries of that name, with a last line that ends.
std::string without(const std::string& file, const std::string& name)
{
    std::string text;
    for (const std::string_view line : split(file, '\n'))
        if (!line.empty() && split(line, ':')[0] != name)
            text.append(line) += '\n';
    return text;
}

}  // namespace

std::optional<Account> find_account(const std::string& passwd, const std::string& name)
{
    return account_if(passwd, [&](std::string_view it, std::uint32_t) { return it == name; });
}

std::optional<Account> find_account(const std::string& passwd, std::uint32_t uid)
{
    return account_if(passwd, [&](std::string_view, std::uint32_t it) { return it == uid; });
}

std::optional<std::uint32_t> find_group(const std::string& group, const std::string& name)
{
    std::optional<std::uint32_t> found;
    each_entry(group, [&](const std::vector<std::string_view>& fields, std::uint32_t gid) {
        if (fields[0] == name)
            found = gid;
        return found.has_value();
    });
    return found;
}

std::string with_user(const std::string& passwd, const Account& account)
{
    if (find_account(passwd, account.uid))
        return passwd;
    return without(passwd, account.name) + account.name + ":x:" + std::to_string(account.uid) +
           ":" + std::to_string(account.gid) + ":" + account.name + ":" + account.home +
           ":/bin/sh\n";
}

std::string with_group(const std::string& group, const Account& account)
{
    bool is_there = false;
    each_entry(group, [&](const std::vector<std::string_view>&, std::uint32_t gid) {
        is_there = gid == account.gid;
        return is_there;
    });
    if (is_there)
        return group;
    return without(group, account.name) + account.name + ":x:" + std::to_string(account.gid) +
           ":\n";
}

}  // namespace nsbox::runtime
