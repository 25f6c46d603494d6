#pragma once

#include "rootfs/store.hpp"
#include "sys/error.hpp"

#include <string>

namespace nsbox::rootfs {

enum class Compression { none, gzip, xz, zstd };

/// Writes a root filesystem as a tar archive into a descriptor: sorted, with the owners and modes of
/// the manifest, devices too. The same root gives the same bytes.
Result<> export_tar(const Use& use, int output, Compression compression);

}  // namespace nsbox::rootfs
