#pragma once

#include "sys/raw.hpp"

#include <utility>

namespace nsbox::sys {

/// Owns a file descriptor. Built from a raw call it keeps that call's -errno, so no errno
/// global is read later. Child-safe: one word, no allocation.
class Fd {
public:
    constexpr Fd() noexcept = default;
    explicit constexpr Fd(int fd_or_error) noexcept : fd_(fd_or_error) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -EBADF)) {}
    Fd& operator=(Fd&& other) noexcept
    {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -EBADF);
        }
        return *this;
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() { reset(); }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// The number, still owned here.
    int get() const noexcept { return fd_; }
    /// -errno of the call that gave no descriptor.
    int error() const noexcept { return fd_; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -EBADF); }
    void reset() noexcept
    {
        if (fd_ >= 0)
            raw::close(fd_);
        fd_ = -EBADF;
    }

private:
    int fd_ = -EBADF;
};

}  // namespace nsbox::sys
