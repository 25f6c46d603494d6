#pragma once

#include <optional>
#include <string>

namespace nsbox::tool {

/// All that a file holds; nothing with errno set.
std::optional<std::string> read_file(const std::string& path);

/// The same of an open file, which stays open.
std::optional<std::string> read_descriptor(int fd);

/// Makes a file that does not exist yet; false with errno set.
bool write_file(const std::string& path, const std::string& text, unsigned mode);

/// The calling process's working directory, or "." where that has no name.
std::string working_directory();

/// The absolute path of a file that exists, with no links on the way; a link at its end is kept.
/// Nothing with errno set.
std::optional<std::string> absolute(const std::string& path);

}  // namespace nsbox::tool
