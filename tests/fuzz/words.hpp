#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace nsbox::fuzz {

/// Splits an input at its NULs; what follows the last one is a word too.
inline std::vector<std::string> split(const std::uint8_t* data, std::size_t size)
{
    std::vector<std::string> words;
    const std::string text{data, data + size};
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\0', begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

/// Ends the program where a property does not hold.
inline void require(bool condition, const char* property)
{
    if (condition)
        return;
    std::fprintf(stderr, "does not hold: %s\n", property);
    std::abort();
}

}  // namespace nsbox::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
