#pragma once

#include "sys/error.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace nsbox::rootfs {

/// SHA-256 of bytes that come in parts. May be used again after take().
class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void add(const void* data, std::size_t size);
    /// 32 bytes; what was added is forgotten.
    std::string take();

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// In hexadecimal digits.
std::string sha256_of(std::string_view bytes);
/// Of all of a file, from its beginning; its offset does not matter and stays.
Result<std::string> sha256_of_file(int fd, const std::string& called);

}  // namespace nsbox::rootfs
