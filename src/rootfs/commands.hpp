#pragma once

#include <string>
#include <vector>

namespace nsbox::rootfs {

/// `nsbox rootfs WORDS...`; the exit status.
int run_command(const std::vector<std::string>& words);

}  // namespace nsbox::rootfs
