#include "sys/read_file.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

namespace nsbox::sys {

std::string read_file(const std::string& path)
{
    constexpr std::size_t most = std::size_t{1} << 22;
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    std::string text;
    char buffer[4096];
    while (file && text.size() < most) {
        const long got = raw::read(file.get(), buffer, sizeof buffer);
        if (got <= 0)
            break;
        text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
}

}  // namespace nsbox::sys
