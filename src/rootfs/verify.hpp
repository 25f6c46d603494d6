#pragma once

#include "rootfs/store.hpp"
#include "sys/error.hpp"

#include <string>
#include <vector>

namespace nsbox::rootfs {

/// What a tree has other than its manifest: one line each, sorted by path. What belongs to whom is
/// not compared.
Result<std::vector<std::string>> verify(const Use& use);

}  // namespace nsbox::rootfs
