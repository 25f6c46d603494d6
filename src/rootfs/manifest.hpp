#pragma once

#include "sys/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nsbox::rootfs {

/// One thing of a root filesystem, as its archive had it.
struct Entry {
    enum class Type : char {
        directory = 'd',
        file = 'f',
        symlink = 'l',
        fifo = 'p',
        hard_link = 'h',         ///< Has a target and a path only: the rest is that of the target.
        character_device = 'c',  ///< Devices are not on disk.
        block_device = 'b',
    };
    using Attributes = std::vector<std::pair<std::string, std::string>>;

    Type type = Type::file;
    std::string path;  ///< Below the root; "." for that.
    unsigned mode = 0;
    std::uint64_t uid = 0;
    std::uint64_t gid = 0;
    std::int64_t seconds = 0;  ///< Of the last modification, since 1970.
    std::uint32_t nanoseconds = 0;
    std::uint64_t size = 0;   ///< Of a file.
    std::string content;      ///< Of a file: its SHA-256 in hexadecimal digits.
    std::string target;       ///< Of a symlink: its text. Of a hard link: a path of the tree.
    std::uint32_t major = 0;  ///< Of a device.
    std::uint32_t minor = 0;
    Attributes attributes;  ///< Extended ones, sorted.
};

/// Everything in a root filesystem, sorted by path.
using Manifest = std::vector<Entry>;

/// The canonical text, which is the same for the same things; see doc/rootfs.md.
std::string to_text(const Manifest& manifest);
/// Refused: what to_text() does not write.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);

/// The bytes that stand for themselves are printable ASCII but "\" and the blank; others are
/// "\" and three octal digits.
std::string escape(std::string_view text);

}  // namespace nsbox::rootfs
