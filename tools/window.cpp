#include "window.hpp"

#include <charconv>
#include <initializer_list>
#include <sys/ioctl.h>
#include <unistd.h>

namespace nsbox::tool {

std::optional<WindowSize> parse_window_size(const std::string& text)
{
    WindowSize size;
    const char* const end = text.data() + text.size();
    const auto columns = std::from_chars(text.data(), end, size.columns);
    if (columns.ec != std::errc{} || columns.ptr == end || *columns.ptr != 'x')
        return std::nullopt;
    const auto rows = std::from_chars(columns.ptr + 1, end, size.rows);
    if (rows.ec != std::errc{} || rows.ptr != end || size.rows == 0 || size.columns == 0)
        return std::nullopt;
    return size;
}

WindowSize window_for(const std::optional<WindowSize>& wish)
{
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
        winsize size{};
        if (::ioctl(fd, TIOCGWINSZ, &size) == 0)
            return {size.ws_row, size.ws_col};
    }
    return wish.value_or(WindowSize{24, 80});
}

}  // namespace nsbox::tool
