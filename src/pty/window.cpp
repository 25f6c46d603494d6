#include "pty/window.hpp"

#include <cerrno>
#include <sys/ioctl.h>

namespace nsbox::pty {

Result<WindowSize> window_size(int terminal)
{
    winsize size{};
    if (::ioctl(terminal, TIOCGWINSZ, &size) < 0)
        return fail("Can't get the window size of", errno, "the terminal");
    return WindowSize{size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel};
}

int set_window_size(int master, WindowSize size) noexcept
{
    winsize value{};
    value.ws_row = size.rows;
    value.ws_col = size.columns;
    value.ws_xpixel = size.width;
    value.ws_ypixel = size.height;
    return ::ioctl(master, TIOCSWINSZ, &value) < 0 ? -errno : 0;
}

}  // namespace nsbox::pty
