#pragma once

#include "nsbox/rootfs.hpp"
#include "sys/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsbox::rootfs {

/// What info.json says about a root filesystem of the store.
struct Info {
    std::string digest;
    std::string digest_of;  ///< "file", "image" (of the file and the image's name) or "manifest".
    std::string manifest;   ///< The SHA-256 of the manifest's text.
    std::string source;     ///< What was imported, for people.
    std::int64_t imported = 0;  ///< Seconds since 1970.
    std::uint64_t members = 0;
    std::uint64_t size = 0;  ///< Bytes of the files' contents.
    Owners owners = Owners::as_they_are;
    StoredIds subordinate;
    Image image;
    std::vector<std::string> notes;  ///< What was left out.
};

/// Ends with a newline. What is no UTF-8 is replaced.
std::string to_json(const Info& info);
/// Refused: what is not of the form that to_json() writes. `path` is for the error.
Result<Info> parse_info(std::string_view text, const std::string& path);

const char* name_of(Owners owners);

}  // namespace nsbox::rootfs
