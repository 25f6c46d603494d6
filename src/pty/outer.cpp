#include "pty/outer.hpp"

#include "pty/signal_blocked.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nsbox::pty {

namespace {

long result(ssize_t count) noexcept
{
    if (count >= 0)
        return count;
    return errno == EINTR ? -EAGAIN : -errno;
}

/// An open file of our own, so that the caller's can stay blocking. Fails where there is no /proc,
/// where the terminal is another user's, and for the writing end of a pipe that nobody reads.
sys::Fd open_anew(int fd, Direction direction) noexcept
{
    char path[32];
    (void)std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int access = direction == Direction::input ? O_RDONLY : O_WRONLY;
    return sys::Fd{sys::raw::openat(AT_FDCWD, path, access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
}

}  // namespace

OuterEnd::OuterEnd(int fd, Direction direction) noexcept : borrowed_(fd), kind_(Kind::other)
{
    struct stat status {};
    if (fd < 0 || sys::raw::fstat(fd, &status) < 0) {
        borrowed_ = -1;
        kind_ = Kind::closed;
    } else if (S_ISSOCK(status.st_mode)) {
        kind_ = Kind::socket;
    } else if (S_ISFIFO(status.st_mode)) {
        kind_ = Kind::pipe;
    } else if (::isatty(fd) == 1) {
        kind_ = Kind::terminal;
    }
    // A file opened anew would have another offset, and other devices may do anything when opened.
    if (kind_ == Kind::pipe || kind_ == Kind::terminal)
        own_ = open_anew(fd, direction);
}

bool OuterEnd::is_ready(short event) const noexcept
{
    pollfd poller{borrowed_, event, 0};
    return ::poll(&poller, 1, 0) > 0;
}

long OuterEnd::read(std::span<char> room) noexcept
{
    if (kind_ == Kind::closed)
        return 0;
    if (kind_ == Kind::socket)
        return result(::recv(borrowed_, room.data(), room.size(), MSG_DONTWAIT));
    if (!own_ && !is_ready(POLLIN))
        return -EAGAIN;
    return result(::read(descriptor(), room.data(), room.size()));
}

long OuterEnd::write(std::span<const char> bytes) noexcept
{
    if (kind_ == Kind::closed)
        return -EBADF;
    if (kind_ == Kind::socket)
        return result(::send(borrowed_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    if (!own_) {
        if (!is_ready(POLLOUT))
            return -EAGAIN;
        // A pipe that is ready takes that many without waiting.
        bytes = bytes.first(std::min<std::size_t>(bytes.size(), PIPE_BUF));
    }
    if (kind_ != Kind::pipe)
        return result(::write(descriptor(), bytes.data(), bytes.size()));
    SignalBlocked blocked{SIGPIPE};
    const long count = result(::write(descriptor(), bytes.data(), bytes.size()));
    if (count == -EPIPE)
        blocked.forget();
    return count;
}

}  // namespace nsbox::pty
