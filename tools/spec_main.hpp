#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// `nsbox spec check|schema`: the words behind "spec". The exit status: 0, or 125 after an error was printed.
int spec_main(const std::vector<std::string>& words);

}  // namespace nsbox::tool
