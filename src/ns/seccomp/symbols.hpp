#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nsbox::ns::seccomp {

/// A number of a policy by its name in the kernel's headers: "AF_UNIX", "CLONE_NEWUSER", "TIOCSTI".
std::optional<std::uint64_t> constant_by_name(std::string_view name);

/// An errno value by its name, "EPERM".
std::optional<std::uint32_t> errno_by_name(std::string_view name);

}  // namespace nsbox::ns::seccomp
