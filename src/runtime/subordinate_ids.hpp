#pragma once

#include "nsbox/ids.hpp"

#include <string>
#include <vector>

namespace nsbox::runtime {

/// The text of a file as subuid(5) describes it: what it grants to whoever has one of `names`.
std::vector<SubordinateRange> parse_subordinate(const std::string& text,
                                                const std::vector<std::string>& names);

/// The names of a user in a text as passwd(5) describes it, and last its number.
std::vector<std::string> names_of_user(const std::string& passwd, std::uint32_t uid);

}  // namespace nsbox::runtime
