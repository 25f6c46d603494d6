#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nsbox::runtime {

/// A line of passwd(5), as far as it matters here.
struct Account {
    std::string name;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::string home;
};

/// The first account with this name.
std::optional<Account> find_account(const std::string& passwd, const std::string& name);
/// The first account with this id.
std::optional<Account> find_account(const std::string& passwd, std::uint32_t uid);
/// The id of the first group with this name, out of a group(5) file.
std::optional<std::uint32_t> find_group(const std::string& group, const std::string& name);

/// The same file with one more account, unless its id is there. Its name takes another's place.
std::string with_user(const std::string& passwd, const Account& account);
/// The same for a group of the account's name and group id.
std::string with_group(const std::string& group, const Account& account);

}  // namespace nsbox::runtime
