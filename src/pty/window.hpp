#pragma once

#include "sys/error.hpp"

namespace nsbox::pty {

/// The size of a terminal's window, in characters. 0 means that nobody knows.
struct WindowSize {
    unsigned short rows = 0;
    unsigned short columns = 0;
    unsigned short width = 0;   ///< In pixels, for programs that draw pictures.
    unsigned short height = 0;  ///< In pixels.

    friend bool operator==(const WindowSize&, const WindowSize&) = default;
};

/// The size of the window that a terminal (or the master of one) has. Borrows the descriptor.
Result<WindowSize> window_size(int terminal);

/// Gives a terminal a size, by its master; its foreground process group gets SIGWINCH if that is a
/// change. 0 or -errno. Borrows the descriptor.
int set_window_size(int master, WindowSize size) noexcept;

}  // namespace nsbox::pty
