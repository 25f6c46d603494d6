#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace nsbox::pty {

/// A queue of bytes with a fixed capacity.
class Buffer {
public:
    explicit Buffer(std::size_t capacity) : bytes_(capacity) {}

    bool empty() const noexcept { return begin_ == end_; }
    std::size_t size() const noexcept { return end_ - begin_; }
    std::size_t free() const noexcept { return bytes_.size() - size(); }

    /// Where to put more: all of the free space. added() says how much came.
    std::span<char> room() noexcept
    {
        if (begin_ > 0) {
            std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
                      bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
            end_ -= begin_;
            begin_ = 0;
        }
        return std::span{bytes_}.subspan(end_);
    }
    void added(std::size_t count) noexcept { end_ += count; }

    /// What is in it, the oldest first. removed() says how much of it was taken.
    std::span<const char> contents() const noexcept
    {
        return std::span{bytes_}.subspan(begin_, size());
    }
    void removed(std::size_t count) noexcept { begin_ += count; }
    void clear() noexcept { begin_ = end_ = 0; }

private:
    std::vector<char> bytes_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace nsbox::pty
