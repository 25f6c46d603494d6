#pragma once

#include <string>

namespace nsbox::tests {

/// Everything about this process that starting a sandbox must leave as it is, one line each.
std::string host_state();

/// The lines that two states do not have in common.
std::string difference(const std::string& before, const std::string& after);

/// The open descriptors, one line each: number, flags, what it is.
std::string open_descriptors();

}  // namespace nsbox::tests
