#pragma once

#include "nsbox/spec.hpp"

#include <optional>
#include <string>

namespace nsbox::tool {

/// COLUMNSxROWS, each from 1 to 65535.
std::optional<WindowSize> parse_window_size(const std::string& text);

/// What a sandbox's terminal begins with: the size of the one outside, or the size that was asked
/// for where there is none, or 80x24.
WindowSize window_for(const std::optional<WindowSize>& wish);

}  // namespace nsbox::tool
