#pragma once

#include "runtime/packet.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace nsbox::tests {

/// A packet for init that is read back, as init reads it. What points outside of it, or would be
/// read unaligned, is an exception.
class Packet {
public:
    explicit Packet(const std::string& bytes) : bytes_(bytes.begin(), bytes.end())
    {
        header = at<runtime::PacketHeader>(0);
        require(header.size == bytes_.size());
    }

    template <class T>
    T at(std::size_t offset) const
    {
        require(offset <= bytes_.size() && sizeof(T) <= bytes_.size() - offset);
        T value;
        std::memcpy(&value, bytes_.data() + offset, sizeof value);
        return value;
    }

    std::string text(std::uint64_t offset) const
    {
        require(offset >= sizeof(runtime::PacketHeader));
        require(offset < bytes_.size());
        const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(offset);
        const auto end = std::find(begin, bytes_.end(), '\0');
        require(end != bytes_.end());
        return {begin, end};
    }

    /// A table of offsets that ends with zero, as texts.
    std::vector<std::string> texts(std::uint32_t table) const
    {
        require(table % 8 == 0);
        std::vector<std::string> found;
        for (std::size_t offset = table; at<std::uint64_t>(offset) != 0; offset += 8)
            found.push_back(text(at<std::uint64_t>(offset)));
        return found;
    }

    /// The descriptors that init keeps open.
    std::vector<std::int32_t> kept() const
    {
        require(header.keep % 4 == 0);
        std::vector<std::int32_t> found;
        for (std::uint32_t i = 0; i < header.keep_count; ++i)
            found.push_back(at<std::int32_t>(header.keep + 4U * i));
        return found;
    }

    std::string filter(std::uint32_t number) const
    {
        require(number < header.filter_count);
        const std::size_t entry = header.filters + std::size_t{16} * number;
        const auto offset = at<std::uint64_t>(entry);
        const auto size = at<std::uint64_t>(entry + 8) * 8;
        require(offset % 8 == 0 && offset <= bytes_.size() && size <= bytes_.size() - offset);
        return {bytes_.data() + offset, size};
    }

    std::string bytes() const { return {bytes_.data(), bytes_.size()}; }

    runtime::PacketHeader header{};

private:
    static void require(bool condition)
    {
        if (!condition)
            throw std::out_of_range{"the packet is not sound"};
    }

    std::vector<char> bytes_;
};

}  // namespace nsbox::tests
