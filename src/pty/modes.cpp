#include "pty/modes.hpp"

#include <algorithm>
#include <iterator>
#include <unistd.h>

namespace nsbox::pty {

namespace {

bool is_character(const termios& mode, int which, char value)
{
    const cc_t character = mode.c_cc[which];
    return character != _POSIX_VDISABLE && character == static_cast<cc_t>(value);
}

}  // namespace

// Not cfmakeraw(), which sets eight bits without parity: a serial console that has parity needs it.
termios raw_mode_of(const termios& mode)
{
    termios raw = mode;
    raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IUCLC |
                                          IXON | IXOFF | IXANY);
    raw.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | ISIG | IEXTEN | EXTPROC);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return raw;
}

bool is_same_mode(const termios& one, const termios& other)
{
    return one.c_iflag == other.c_iflag && one.c_oflag == other.c_oflag &&
           one.c_cflag == other.c_cflag && one.c_lflag == other.c_lflag &&
           std::equal(std::begin(one.c_cc), std::end(one.c_cc), std::begin(other.c_cc));
}

bool ends_line(const termios& mode, char last)
{
    if ((mode.c_lflag & ICANON) == 0)
        return true;
    if (last == '\r' && (mode.c_iflag & IGNCR) == 0 && (mode.c_iflag & ICRNL) != 0)
        return true;
    if (last == '\n')
        return (mode.c_iflag & INLCR) == 0;
    const bool extended = (mode.c_lflag & IEXTEN) != 0;
    return is_character(mode, VEOF, last) || is_character(mode, VEOL, last) ||
           (extended && is_character(mode, VEOL2, last));
}

std::string end_of_input(const termios& mode, bool line_is_empty)
{
    const bool by_lines = (mode.c_lflag & ICANON) != 0;
    // Line editors read character by character, leave signals to the terminal and look for the
    // character by themselves. Who also turned signals off wants every byte, and ours is none.
    if (mode.c_cc[VEOF] == _POSIX_VDISABLE || (!by_lines && (mode.c_lflag & ISIG) == 0))
        return {};
    // In the middle of a line the first one only hands over what was typed so far.
    return std::string(by_lines && !line_is_empty ? 2 : 1, static_cast<char>(mode.c_cc[VEOF]));
}

}  // namespace nsbox::pty
