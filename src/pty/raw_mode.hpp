#pragma once

#include "sys/error.hpp"

#include <optional>

#include <sys/types.h>
#include <termios.h>

namespace nsbox::pty {

/// Whether this process may change and read a terminal, or a shell has put it in the background.
enum class Place { foreground, background };

/// Where this process is. A terminal that does not control this process has no background.
Place place_at(int terminal) noexcept;

/// Remembers which process group was in the foreground of a terminal. Borrows the descriptor.
class ForegroundGroup {
public:
    /// Also for a descriptor that is no terminal, or not this process's: then nothing is done.
    explicit ForegroundGroup(int terminal) noexcept;

    /// Puts that group back if the one in the foreground now has no process left: nobody could read
    /// from the terminal any more. A group that lives was put there by a shell, which knows better.
    void restore() noexcept;

private:
    int terminal_;
    pid_t group_;
};

/// Raw mode of the terminal that this program was started on, taken back at the end of the scope.
/// Borrows the descriptor. The calls block SIGTTOU in the calling thread while they change the
/// terminal, so that they never stop the process; the caller need not.
class RawMode {
public:
    explicit RawMode(int terminal) noexcept;
    RawMode(const RawMode&) = delete;
    RawMode& operator=(const RawMode&) = delete;
    ~RawMode();

    /// Sets raw mode; to be called again after the process was stopped and continued. In the
    /// background nothing is changed: the terminal is a shell's then.
    Result<Place> enter();

    /// Gives the terminal back as it was before, mode and foreground group. Does nothing when raw
    /// mode is not set, or in the background, where the shell has already done the same.
    void restore() noexcept;

private:
    int terminal_;
    ForegroundGroup group_;
    std::optional<termios> before_;  ///< What to restore.
    bool is_raw_ = false;
};

}  // namespace nsbox::pty
