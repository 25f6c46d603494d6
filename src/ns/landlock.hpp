#pragma once

#include <cstdint>

namespace nsbox::ns {

/// What may be done with a file or folder: LANDLOCK_ACCESS_FS_* of landlock(7). Those that are not about
/// what a folder holds are of files too.
enum LandlockAccess : std::uint64_t {
    landlock_execute = 1U << 0,
    landlock_write_file = 1U << 1,
    landlock_read_file = 1U << 2,
    landlock_read_dir = 1U << 3,
    landlock_remove_dir = 1U << 4,
    landlock_remove_file = 1U << 5,
    landlock_make_char = 1U << 6,
    landlock_make_dir = 1U << 7,
    landlock_make_reg = 1U << 8,
    landlock_make_sock = 1U << 9,
    landlock_make_fifo = 1U << 10,
    landlock_make_block = 1U << 11,
    landlock_make_sym = 1U << 12,
    landlock_refer = 1U << 13,      ///< To link or rename to another folder: ABI 2.
    landlock_truncate = 1U << 14,   ///< ABI 3.
    landlock_ioctl_dev = 1U << 15,  ///< ABI 5.
};

/// LANDLOCK_ACCESS_NET_*: ABI 4.
enum LandlockNetwork : std::uint64_t { landlock_bind_tcp = 1, landlock_connect_tcp = 2 };

/// LANDLOCK_SCOPE_*: ABI 6.
enum LandlockScope : std::uint64_t { landlock_abstract_unix_socket = 1, landlock_signal = 2 };

inline constexpr std::uint64_t landlock_of_files = landlock_execute | landlock_write_file |
                                                   landlock_read_file | landlock_truncate |
                                                   landlock_ioctl_dev;
inline constexpr std::uint64_t landlock_reading =
    landlock_execute | landlock_read_file | landlock_read_dir;
inline constexpr std::uint64_t landlock_everything = (1U << 16) - 1;

/// What can be denied.
struct LandlockRights {
    std::uint64_t files = 0;
    std::uint64_t ports = 0;
    std::uint64_t scoped = 0;

    bool any() const noexcept { return files != 0 || ports != 0 || scoped != 0; }
};

/// All that a kernel with this ABI can deny, and this library knows; nothing below 1.
LandlockRights landlock_rights(int abi) noexcept;

}  // namespace nsbox::ns
