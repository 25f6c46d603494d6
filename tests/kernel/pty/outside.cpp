#include "tests/kernel/pty/outside.hpp"

#include "pty/modes.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

constexpr int patience = 10000;  // In milliseconds.

bool is_readable(int fd)
{
    pollfd poller{fd, POLLIN, 0};
    return ::poll(&poller, 1, patience) > 0;
}

}  // namespace

Forked::Forked(const std::function<int()>& body) : pid_(::fork())
{
    if (pid_ == 0)
        ::_exit(body());
}

Forked::~Forked()
{
    if (status_ >= 0)
        return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

int Forked::wait()
{
    int status = 0;
    if (status_ < 0 && eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }))
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return status_;
}

Outside::Outside(const std::function<int()>& on_terminal, pty::WindowSize size)
    : pair_(open_terminal())
{
    (void)pty::set_window_size(master(), size);
    first_mode_ = mode();
    pid_ = ::fork();
    if (pid_ != 0)
        return;
    pair_.master.reset();
    live_on(slave());
    ::_exit(on_terminal());
}

Outside::~Outside()
{
    if (pid_ <= 0)
        return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

void Outside::type(const std::string& keys) const
{
    (void)!::write(master(), keys.data(), keys.size());  // What does not arrive is not shown.
}

bool Outside::read_some(std::size_t limit)
{
    char buffer[65536];
    if (!is_readable(master()))
        return false;
    const ssize_t got = ::read(master(), buffer, std::min(limit, sizeof buffer));
    if (got <= 0)
        return false;
    shown_.append(buffer, static_cast<std::size_t>(got));
    return true;
}

bool Outside::shows(const std::string& text)
{
    for (;;) {
        const std::size_t at = shown_.find(text, taken_);
        if (at != std::string::npos) {
            taken_ = at + text.size();
            return true;
        }
        if (!read_some(4096))
            return false;
    }
}

std::string Outside::read(std::size_t count)
{
    while (shown_.size() - taken_ < count && read_some(count - (shown_.size() - taken_))) {
    }
    std::string text = shown_.substr(taken_);
    taken_ = shown_.size();
    return text;
}

int Outside::wait()
{
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }))
        return -1;
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

termios Outside::mode() const
{
    termios mode{};
    (void)::tcgetattr(slave(), &mode);
    return mode;
}

bool Outside::is_raw() const
{
    return (mode().c_lflag & (ICANON | ECHO | ISIG)) == 0;
}

std::string read_pipe(int fd)
{
    std::string text;
    char buffer[65536];
    while (is_readable(fd)) {
        const ssize_t got = ::read(fd, buffer, sizeof buffer);
        if (got <= 0)
            break;
        text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
}

std::string many_bytes(std::size_t count)
{
    Random random{count};
    std::string bytes(count, '\0');
    for (char& byte : bytes)
        byte = static_cast<char>(random.next() >> 32);
    return bytes;
}

bool write_all(int fd, const std::string& bytes)
{
    for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t put = ::write(fd, bytes.data() + done, bytes.size() - done);
        if (put < 0 && errno != EINTR)
            return false;
        done += put > 0 ? static_cast<std::size_t>(put) : 0;
    }
    return true;
}

std::string read_all(int fd, std::size_t count)
{
    std::string bytes(count, '\0');
    std::size_t done = 0;
    while (done < count) {
        const ssize_t got = ::read(fd, bytes.data() + done, count - done);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        done += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    bytes.resize(done);
    return bytes;
}

void become_raw()
{
    termios mode{};
    if (::tcgetattr(0, &mode) < 0)
        ::_exit(71);
    mode = pty::raw_mode_of(mode);
    if (::tcsetattr(0, TCSANOW, &mode) < 0)
        ::_exit(71);
}

}  // namespace nsbox::tests
