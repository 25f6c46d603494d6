#pragma once

#include "sys/error.hpp"

#include <string>

namespace nsbox::sys {

/// The path of a program that belongs to nsbox: beside the one that runs, or where it was installed
/// to. `op` begins the error where it is in neither place (ENOENT).
Result<std::string> find_helper(const std::string& name, Literal op);

}  // namespace nsbox::sys
