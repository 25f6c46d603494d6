#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace nsbox::sys {

// What one nsbox process tells another of the same version: numbers of eight bytes in this
// machine's order, and texts behind their length.

inline void pack(std::string& out, std::uint64_t number)
{
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    out.append(bytes, sizeof bytes);
}

inline void pack(std::string& out, const void* data, std::size_t size)
{
    pack(out, size);
    out.append(static_cast<const char*>(data), size);
}

inline void pack(std::string& out, const std::string& text)
{
    pack(out, text.data(), text.size());
}

/// Takes things from the front. Once one is missing so is all that follows: see is_done().
class Unpacker {
public:
    /// `bytes` has to outlive this.
    explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}

    std::uint64_t number()
    {
        std::uint64_t value = 0;
        if (!ok_ || bytes_.size() - at_ < sizeof value) {
            ok_ = false;
            return 0;
        }
        std::memcpy(&value, bytes_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    std::string text()
    {
        const std::uint64_t size = number();
        if (!ok_ || size > bytes_.size() - at_) {
            ok_ = false;
            return {};
        }
        at_ += size;
        return bytes_.substr(at_ - size, size);
    }
    /// A number of things that take at least eight bytes each; 0 where there cannot be so many.
    std::uint64_t count()
    {
        const std::uint64_t value = number();
        if (value > (bytes_.size() - at_) / sizeof value)
            ok_ = false;
        return ok_ ? value : 0;
    }
    /// Everything was there, and nothing is left.
    bool is_done() const { return ok_ && at_ == bytes_.size(); }

private:
    const std::string& bytes_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

}  // namespace nsbox::sys
