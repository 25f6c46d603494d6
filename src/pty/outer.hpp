#pragma once

#include "sys/fd.hpp"

#include <span>

namespace nsbox::pty {

enum class Direction { input, output };

/// What this program was started with as its standard input or output, used without ever waiting
/// for it. It may be a terminal, a pipe, a socket, a file, or closed (-1). Borrows the descriptor,
/// whose flags it leaves alone: the shell that started this program uses the same open file.
class OuterEnd {
public:
    OuterEnd(int fd, Direction direction) noexcept;

    /// To be polled for POLLIN or POLLOUT; -1 when closed.
    int descriptor() const noexcept { return own_ ? own_.get() : borrowed_; }
    /// The descriptor that was given, for questions about the terminal.
    int given() const noexcept { return borrowed_; }
    bool is_terminal() const noexcept { return kind_ == Kind::terminal; }

    /// How many bytes came; 0 at the end; -EAGAIN when there are none now; -errno.
    long read(std::span<char> room) noexcept;
    /// How many bytes were taken; -EAGAIN when none are taken now; -errno. Raises no SIGPIPE.
    long write(std::span<const char> bytes) noexcept;

private:
    enum class Kind { closed, terminal, pipe, socket, other };

    bool is_ready(short event) const noexcept;

    int borrowed_;
    Kind kind_;
    sys::Fd own_;  ///< The same terminal or pipe opened anew, and then non-blocking.
};

}  // namespace nsbox::pty
