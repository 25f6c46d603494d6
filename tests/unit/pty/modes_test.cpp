#include "pty/modes.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

using namespace nsbox;

namespace {

/// As a new terminal is.
termios ordinary()
{
    termios mode{};
    mode.c_iflag = BRKINT | ICRNL | IXON | IUTF8;
    mode.c_oflag = OPOST | ONLCR;
    mode.c_cflag = CS7 | PARENB | CREAD | B38400;
    mode.c_lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | IEXTEN;
    mode.c_cc[VEOF] = 4;
    mode.c_cc[VINTR] = 3;
    mode.c_cc[VEOL2] = '!';
    return mode;
}

}  // namespace

TEST_CASE("pty modes: raw mode changes how characters are treated, and nothing of the line")
{
    const termios before = ordinary();
    const termios raw = pty::raw_mode_of(before);
    CHECK((raw.c_lflag & (ICANON | ECHO | ECHONL | ISIG | IEXTEN)) == 0);
    CHECK((raw.c_iflag & (BRKINT | ICRNL | INLCR | IGNCR | ISTRIP | IXON | IXOFF)) == 0);
    CHECK((raw.c_iflag & IUTF8) != 0);
    CHECK((raw.c_oflag & OPOST) == 0);
    CHECK(raw.c_cflag == before.c_cflag);
    CHECK(raw.c_cc[VMIN] == 1);
    CHECK(raw.c_cc[VTIME] == 0);
    CHECK(raw.c_cc[VINTR] == before.c_cc[VINTR]);
    CHECK(pty::is_same_mode(raw, pty::raw_mode_of(raw)));
    CHECK_FALSE(pty::is_same_mode(raw, before));
}

TEST_CASE("pty modes: what ends a line depends on the mode")
{
    termios mode = ordinary();
    CHECK(pty::ends_line(mode, '\n'));
    CHECK(pty::ends_line(mode, '\r'));
    CHECK(pty::ends_line(mode, 4));
    CHECK(pty::ends_line(mode, '!'));
    CHECK_FALSE(pty::ends_line(mode, 'x'));
    // A character that is disabled is not the one with that number.
    CHECK_FALSE(pty::ends_line(mode, _POSIX_VDISABLE));
    mode.c_lflag &= ~static_cast<tcflag_t>(IEXTEN);
    CHECK_FALSE(pty::ends_line(mode, '!'));
    mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
    CHECK_FALSE(pty::ends_line(mode, '\r'));
    mode.c_iflag |= INLCR;
    CHECK_FALSE(pty::ends_line(mode, '\n'));
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON);
    CHECK(pty::ends_line(mode, 'x'));
}

TEST_CASE("pty modes: the end of the input is typed twice in the middle of a line")
{
    const termios mode = ordinary();
    CHECK(pty::end_of_input(mode, true) == "\x04");
    CHECK(pty::end_of_input(mode, false) == "\x04\x04");
}

TEST_CASE("pty modes: the end of the input is the character that the terminal says")
{
    termios mode = ordinary();
    mode.c_cc[VEOF] = 26;
    CHECK(pty::end_of_input(mode, true) == "\x1a");
    mode.c_cc[VEOF] = _POSIX_VDISABLE;
    CHECK(pty::end_of_input(mode, true).empty());
}

TEST_CASE("pty modes: a line editor gets the end once, and who wants all bytes never")
{
    termios mode = ordinary();
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    CHECK(pty::end_of_input(mode, true) == "\x04");
    CHECK(pty::end_of_input(mode, false) == "\x04");
    CHECK(pty::end_of_input(pty::raw_mode_of(mode), true).empty());
}
