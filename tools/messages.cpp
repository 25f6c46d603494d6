#include "messages.hpp"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <unistd.h>

namespace nsbox::tool {

void write_out(int fd, const std::string& text)
{
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t put = ::write(fd, text.data() + done, text.size() - done);
        if (put < 0 && errno != EINTR)
            return;
        if (put > 0)
            done += static_cast<std::size_t>(put);
    }
}

namespace {

std::string escaped(const std::string& text)
{
    std::string result;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= ' ' && byte != 0x7f) {
            result += c;
            continue;
        }
        result += '\\';
        for (const unsigned shift : {6U, 3U, 0U})
            result += static_cast<char>('0' + (byte >> shift & 7U));
    }
    return result;
}

}  // namespace

void Messages::print(const char* level, const std::string& text) const
{
    // Nobody may be reading, or never read: that is no reason to wait for ever, or to die.
    constexpr int patience = 2000;  // Milliseconds.
    pollfd fd{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&fd, 1, patience) == 0)
        return;
    void (*const before)(int) = ::signal(SIGPIPE, SIG_IGN);
    // One write, so that lines of several processes do not mix.
    write_out(STDERR_FILENO, (level_prefix_ ? level : "") + program_ + ": " +
                                 (escapes_ ? escaped(text) : text) + "\n");
    ::signal(SIGPIPE, before);
}

}  // namespace nsbox::tool
