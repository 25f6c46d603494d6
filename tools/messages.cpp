#include "messages.hpp"

#include <cerrno>
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

void Messages::print(const char* level, const std::string& text) const
{
    // One write, so that lines of several processes do not mix.
    write_out(STDERR_FILENO, (level_prefix_ ? level : "") + program_ + ": " + text + "\n");
}

}  // namespace nsbox::tool
