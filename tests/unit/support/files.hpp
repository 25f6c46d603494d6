#pragma once

#include "sys/fd.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace nsbox::tests {

/// An anonymous file that holds `contents`, with its offset at the start.
inline sys::Fd memory_file(const std::string& contents = {})
{
    sys::Fd file{::memfd_create("test", MFD_CLOEXEC)};
    if (::pwrite(file.get(), contents.data(), contents.size(), 0) !=
        static_cast<ssize_t>(contents.size()))
        file.reset();
    return file;
}

/// Everything from a descriptor's beginning (a file) or from now to its end (a pipe).
inline std::string contents_of(int fd)
{
    (void)::lseek(fd, 0, SEEK_SET);  // A pipe has no beginning.
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(got));
    return text;
}

struct Pipe {
    sys::Fd read;
    sys::Fd write;
};

inline Pipe make_pipe(int flags = O_CLOEXEC)
{
    int ends[2] = {-1, -1};
    if (::pipe2(ends, flags) < 0)
        ends[0] = ends[1] = -1;  // The caller sees the ends that it did not get.
    return {sys::Fd{ends[0]}, sys::Fd{ends[1]}};
}

inline bool is_open(int fd)
{
    return ::fcntl(fd, F_GETFD) >= 0;
}

/// What is written to descriptor 2 while this object lives is kept.
class CapturedErrors {
public:
    CapturedErrors() : file_(memory_file()), saved_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3))
    {
        ::dup2(file_.get(), STDERR_FILENO);
    }
    CapturedErrors(const CapturedErrors&) = delete;
    CapturedErrors& operator=(const CapturedErrors&) = delete;
    ~CapturedErrors() { ::dup2(saved_.get(), STDERR_FILENO); }

    std::string text() const
    {
        const off_t here = ::lseek(file_.get(), 0, SEEK_CUR);
        std::string all = contents_of(file_.get());
        ::lseek(file_.get(), here, SEEK_SET);
        return all;
    }

private:
    sys::Fd file_;
    sys::Fd saved_;
};

/// Numbers that look random and are the same in every run; xorshift64*.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}

    std::uint64_t next()
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1dULL;
    }
    /// A number below `limit`.
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() >> 16) % limit; }
    bool one_in(std::size_t count) { return below(count) == 0; }
    template <class T>
    const T& of(const std::vector<T>& list)
    {
        return list[below(list.size())];
    }

private:
    std::uint64_t state_;
};

}  // namespace nsbox::tests
