#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// `nsbox seccomp check|dump|show`: the words behind "seccomp". The exit status: 0, or 125 after an error
/// was printed.
int seccomp_main(const std::vector<std::string>& words);

}  // namespace nsbox::tool
