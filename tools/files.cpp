#include "files.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace nsbox::tool {

namespace {

std::optional<std::string> real_path(const std::string& path)
{
    const std::unique_ptr<char, decltype(&std::free)> text{::realpath(path.c_str(), nullptr),
                                                           &std::free};
    return text ? std::optional<std::string>{text.get()} : std::nullopt;
}

}  // namespace

std::optional<std::string> read_descriptor(int fd)
{
    std::string text;
    char buffer[65536];
    for (;;) {
        const ssize_t size = ::read(fd, buffer, sizeof buffer);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return std::nullopt;
        if (size == 0)
            return text;
        text.append(buffer, static_cast<std::size_t>(size));
    }
}

std::optional<std::string> read_file(const std::string& path)
{
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return std::nullopt;
    std::optional<std::string> text = read_descriptor(fd);
    const int error = errno;
    ::close(fd);
    errno = error;
    return text;
}

bool write_file(const std::string& path, const std::string& text, unsigned mode)
{
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return false;
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t put = ::write(fd, text.data() + done, text.size() - done);
        if (put < 0 && errno != EINTR)
            break;
        done += put > 0 ? static_cast<std::size_t>(put) : 0;
    }
    const int error = errno;
    // The caller's umask may have taken away something.
    const bool is_good = done == text.size() && ::fchmod(fd, mode) == 0;
    ::close(fd);
    errno = is_good ? 0 : error;
    return is_good;
}

std::string working_directory()
{
    std::array<char, PATH_MAX> text;
    return ::getcwd(text.data(), text.size()) != nullptr ? text.data() : ".";
}

std::optional<std::string> absolute(const std::string& path)
{
    if (::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return std::nullopt;
    const std::size_t end = path.find_last_not_of('/');
    if (end == std::string::npos)
        return real_path(path);
    const std::size_t slash = path.find_last_of('/', end);
    const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
    const std::string name = path.substr(begin, end + 1 - begin);
    if (name == "." || name == "..")
        return real_path(path);
    const std::optional<std::string> folder =
        real_path(slash == std::string::npos ? "." : path.substr(0, slash + 1));
    if (!folder)
        return std::nullopt;
    return (*folder == "/" ? "" : *folder) + "/" + name;
}

}  // namespace nsbox::tool
