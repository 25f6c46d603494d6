#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// The program under the name `bwrap`, or with an option as its first word; returns the exit
/// status. `words` are those after argv[0]; `is_bwrap` under that name, where nothing is to be said that
/// bwrap does not say.
int bwrap_main(const std::string& argv0, const std::vector<std::string>& words, bool is_bwrap);

}  // namespace nsbox::tool
