#pragma once

// Text helpers that need no libc and allocate nothing: for code after clone3 and for init.

#include <cstddef>

namespace nsbox::sys {

constexpr std::size_t length(const char* text) noexcept
{
    std::size_t n = 0;
    while (text[n] != '\0')
        ++n;
    return n;
}

constexpr bool equal(const char* a, const char* b) noexcept
{
    while (*a != '\0' && *a == *b) {
        ++a;
        ++b;
    }
    return *a == *b;
}

/// Builds a text in a buffer of fixed size; what does not fit is dropped and ok() says so.
template <std::size_t Size>
class FixedText {
public:
    FixedText& add(const char* text) noexcept { return add(text, length(text)); }
    FixedText& add(const char* text, std::size_t count) noexcept
    {
        for (std::size_t i = 0; i < count; ++i)
            push(text[i]);
        return *this;
    }
    FixedText& number(unsigned long value) noexcept
    {
        char digits[24];
        std::size_t n = 0;
        do {
            digits[n++] = static_cast<char>('0' + value % 10);
            value /= 10;
        } while (value != 0);
        while (n > 0)
            push(digits[--n]);
        return *this;
    }
    FixedText& octal(unsigned value) noexcept
    {
        char digits[16];
        std::size_t n = 0;
        do {
            digits[n++] = static_cast<char>('0' + value % 8);
            value /= 8;
        } while (value != 0);
        while (n > 0)
            push(digits[--n]);
        return *this;
    }
    void clear() noexcept
    {
        size_ = 0;
        ok_ = true;
        text_[0] = '\0';
    }
    const char* c_str() const noexcept { return text_; }
    std::size_t size() const noexcept { return size_; }
    bool ok() const noexcept { return ok_; }

private:
    void push(char c) noexcept
    {
        if (size_ + 1 >= Size) {
            ok_ = false;
            return;
        }
        text_[size_++] = c;
        text_[size_] = '\0';
    }

    std::size_t size_ = 0;
    bool ok_ = true;
    char text_[Size] = {};
};

}  // namespace nsbox::sys
