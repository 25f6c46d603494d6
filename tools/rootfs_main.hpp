#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

/// `nsbox rootfs WORDS...`: executes nsbox-rootfs, so that this program needs none of its libraries.
/// Returns only where that is not possible.
int rootfs_main(const std::vector<std::string>& words);

}  // namespace nsbox::tool
