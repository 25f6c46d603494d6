#pragma once

#include <cstdint>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <span>
#include <vector>

namespace nsbox::ns::seccomp {

/// What a program of seccomp(2) answers to a call, as the kernel would run it: a SECCOMP_RET_* value. A
/// program that the kernel would not take kills.
std::uint32_t evaluate(std::span<const sock_filter> program, const seccomp_data& call);

/// Whether the kernel follows `a` where two filters answer differently.
bool is_stricter(std::uint32_t a, std::uint32_t b);

/// The instructions of a program that is kept as bytes.
std::vector<sock_filter> instructions_of(std::span<const std::uint8_t> bytes);

}  // namespace nsbox::ns::seccomp
