#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// The program under the name `bwrap`, or with an option as its first word; returns the exit
/// status. `words` are those after argv[0].
int bwrap_main(const std::string& argv0, const std::vector<std::string>& words);

}  // namespace nsbox::tool
