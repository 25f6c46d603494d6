#pragma once

#include <cstdint>
#include <vector>

namespace nsbox::ns::seccomp {

/// Whether it is one of the programs that nsbox was built with, under which init can start a command:
/// clone, wait, write, sendmsg and what else it needs are allowed, which of others is not known.
bool is_own_program(const std::vector<std::uint8_t>& program);

}  // namespace nsbox::ns::seccomp
