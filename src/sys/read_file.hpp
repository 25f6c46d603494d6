#pragma once

#include <string>

namespace nsbox::sys {

/// What a file holds, at most 4 MiB of it; as much as could be read where something fails. For the
/// small files of /proc and /sys, where what cannot be read is as if it were empty.
std::string read_file(const std::string& path);

}  // namespace nsbox::sys
