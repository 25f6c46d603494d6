#pragma once

namespace nsbox::runtime {

/// For a child in new namespaces: changes a mount and ends with the errno as its status.
void try_mount_entry(void* unused) noexcept;

}  // namespace nsbox::runtime
