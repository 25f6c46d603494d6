#pragma once

#include "nsbox/error.hpp"

#include <linux/filter.h>
#include <span>
#include <string>

namespace nsbox::ns::seccomp {

/// One line for each instruction: its number, what it does, and where its jumps lead. Fails at the
/// first one that seccomp(2) would not take.
Result<std::string> disassemble(std::span<const sock_filter> program);

}  // namespace nsbox::ns::seccomp
