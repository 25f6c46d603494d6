#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// `nsbox run`: the words behind it; the exit status of the command, or 125, 126, 127 as env(1) has them.
int run_main(const std::vector<std::string>& words);

}  // namespace nsbox::tool
