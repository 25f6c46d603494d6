#pragma once

#include "sys/error.hpp"

#include <string>
#include <string_view>

namespace nsbox::rootfs {

// Pure.

/// [A-Za-z0-9][A-Za-z0-9._-]{0,127}
bool is_name(std::string_view text);
Result<> check_name(const std::string& text);

/// 64 lower-case hexadecimal digits.
bool is_digest(std::string_view text);
/// The beginning of one, at least eight digits.
bool is_digest_prefix(std::string_view text);

std::string to_hex(std::string_view bytes);

/// The name of a member of an archive as a path below the root: no "." and no "//" in it, "." for
/// the root itself. Refused: "..", a name that begins with "/", an empty one, a byte 0, and one
/// that is too long for the kernel.
Result<std::string> member_path(const std::string& name);
/// The same for what a hard link names.
Result<std::string> link_path(const std::string& name, const std::string& member);

/// Where a path ends in two: "a/b" and "c" of "a/b/c"; "" and "c" of "c".
std::string_view folder_of(std::string_view path);
std::string_view last_of(std::string_view path);

/// In quotes, fit for a line of a terminal: what is not printable ASCII or UTF-8 is escaped.
std::string in_quotes(std::string_view text);

/// A number with K, M or G behind it, of 1024 each. Nothing but digits before.
Result<std::uint64_t> parse_size(const std::string& text);

/// "12.3 MB": powers of 1000.
std::string size_text(std::uint64_t bytes);

}  // namespace nsbox::rootfs
