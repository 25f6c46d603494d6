#pragma once

// Child-safe: a pseudo-terminal pair, see pty(7) and ioctl_tty(2).

#include "sys/raw.hpp"

#include <sys/ioctl.h>

namespace nsbox::sys {

struct PtyPair {
    int master = -1;
    int slave = -1;
};

/// Opens a new pair through the ptmx device `path`, which may be a stranger's file: anything else
/// than that device is -ENOTTY. Both ends are close-on-exec. TIOCGPTPEER needs Linux 4.13.
inline int open_pty(int dir, const char* path, PtyPair& pair) noexcept
{
    // Without O_NONBLOCK a FIFO of that name would hold us up.
    const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    const int master = raw::openat(dir, path, flags | O_NONBLOCK);
    if (master < 0)
        return master;
    constexpr dev_t ptmx = 0x502;
    struct ::stat status;
    int rc = raw::fstat(master, &status);
    if (rc >= 0 && (!S_ISCHR(status.st_mode) || status.st_rdev != ptmx))
        rc = -ENOTTY;
    const int unlocked = 0;
    if (rc >= 0)
        rc = static_cast<int>(raw::call(SYS_ioctl, master, TIOCSPTLCK, &unlocked));
    if (rc >= 0)
        rc = static_cast<int>(raw::call(SYS_ioctl, master, TIOCGPTPEER, flags));
    if (rc < 0) {
        raw::close(master);
        return rc;
    }
    raw::fcntl(master, F_SETFL, O_RDWR);
    pair = {master, rc};
    return 0;
}

/// The N of /dev/pts/N.
inline int pty_number(int master) noexcept
{
    unsigned number = 0;
    const long rc = raw::call(SYS_ioctl, master, TIOCGPTN, &number);
    return rc < 0 ? static_cast<int>(rc) : static_cast<int>(number);
}

inline int set_window_size(int master, unsigned short rows, unsigned short columns) noexcept
{
    const winsize size{rows, columns, 0, 0};
    return static_cast<int>(raw::call(SYS_ioctl, master, TIOCSWINSZ, &size));
}

}  // namespace nsbox::sys
