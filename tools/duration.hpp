#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace nsbox::tool {

/// A length of time as people write it: a decimal number, which may have a fraction, and one of
/// "ms", "s", "m", "h" and "d", where none means seconds. Nothing for any other text, for zero, and
/// for more than ten years.
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text);

/// The same the other way round, in the unit that fits: "1.5 s", "20 ms", "3 min".
std::string say_duration(std::chrono::milliseconds time);

}  // namespace nsbox::tool
