#pragma once

// Flags of mount(2) and umount2(2). <sys/mount.h> and <linux/mount.h> of Debian 12 cannot be
// included together, so the few that we use are named here.

namespace nsbox::sys {

inline constexpr unsigned long ms_rdonly = 1;
inline constexpr unsigned long ms_nosuid = 2;
inline constexpr unsigned long ms_nodev = 4;
inline constexpr unsigned long ms_noexec = 8;
inline constexpr unsigned long ms_remount = 32;
inline constexpr unsigned long ms_nosymfollow = 256;
inline constexpr unsigned long ms_noatime = 1024;
inline constexpr unsigned long ms_nodiratime = 2048;
inline constexpr unsigned long ms_bind = 4096;
inline constexpr unsigned long ms_move = 8192;
inline constexpr unsigned long ms_rec = 16384;
inline constexpr unsigned long ms_unbindable = 1UL << 17;
inline constexpr unsigned long ms_private = 1UL << 18;
inline constexpr unsigned long ms_slave = 1UL << 19;
inline constexpr unsigned long ms_relatime = 1UL << 21;
inline constexpr unsigned long ms_strictatime = 1UL << 24;
inline constexpr int mnt_detach = 2;

}  // namespace nsbox::sys
