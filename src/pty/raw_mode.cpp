#include "pty/raw_mode.hpp"

#include "pty/modes.hpp"
#include "pty/signal_blocked.hpp"

#include <cerrno>
#include <csignal>
#include <unistd.h>

namespace nsbox::pty {

Place place_at(int terminal) noexcept
{
    const pid_t group = ::tcgetpgrp(terminal);
    return group < 0 || group == ::getpgrp() ? Place::foreground : Place::background;
}

ForegroundGroup::ForegroundGroup(int terminal) noexcept
    : terminal_(terminal), group_(::tcgetpgrp(terminal))
{}

void ForegroundGroup::restore() noexcept
{
    const pid_t now = ::tcgetpgrp(terminal_);
    // 0 is a group of a pid namespace that cannot be seen from here.
    if (group_ <= 0 || now <= 0 || now == group_)
        return;
    if (::kill(-now, 0) == 0 || errno != ESRCH)
        return;
    const SignalBlocked blocked{SIGTTOU};
    (void)::tcsetpgrp(terminal_, group_);  // A group that has ended as well is nobody's loss.
}

RawMode::RawMode(int terminal) noexcept : terminal_(terminal), group_(terminal) {}

RawMode::~RawMode()
{
    restore();
}

Result<Place> RawMode::enter()
{
    if (place_at(terminal_) == Place::background)
        return Place::background;
    termios now{};
    if (::tcgetattr(terminal_, &now) < 0)
        return fail("Can't get the mode of", errno, "the terminal");
    // Some shells bring back the mode that a stopped job had. Raw mode that is our own must not be
    // taken for the mode to restore.
    if (!before_ || !is_same_mode(now, raw_mode_of(*before_)))
        before_ = now;
    const termios raw = raw_mode_of(*before_);
    const SignalBlocked blocked{SIGTTOU};
    // Linux edits output when it is written. There is nothing to wait for, and waiting for a
    // terminal that shows nothing might never end.
    if (::tcsetattr(terminal_, TCSANOW, &raw) < 0)
        return fail("Can't set raw mode of", errno, "the terminal");
    is_raw_ = true;
    return Place::foreground;
}

void RawMode::restore() noexcept
{
    if (!is_raw_)
        return;
    is_raw_ = false;
    group_.restore();
    if (place_at(terminal_) == Place::background)
        return;
    const SignalBlocked blocked{SIGTTOU};
    (void)::tcsetattr(terminal_, TCSANOW, &*before_);  // A terminal that is gone needs no mode.
}

}  // namespace nsbox::pty
