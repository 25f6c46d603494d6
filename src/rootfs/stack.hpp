#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <string>
#include <vector>

namespace nsbox::rootfs {

/// Mounts folders, from two to twelve, as one by overlayfs: the first on top, read-only and in no
/// place of the file tree. Its root, open for reading. Whiteouts and opaque folders take effect,
/// with attributes by the names that ordinary users can give ("user.", Linux 5.11; whiteouts as
/// attributes, Linux 6.7).
///
/// The folders have to be in the caller's mount namespace, and CAP_SYS_ADMIN has to be his in the
/// user namespace of that: what he may read of them then is what can be read through the mount, also
/// by others. fsopen(2), Linux 5.2. See the kernel's Documentation/filesystems/overlayfs.rst.
Result<sys::Fd> mount_stack(const std::vector<std::string>& folders);

}  // namespace nsbox::rootfs
