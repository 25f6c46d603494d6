#pragma once

#include "sys/child_state.hpp"

namespace nsbox::net {

/// Brings the loopback interface of this network namespace up; the kernel then gives it
/// 127.0.0.1/8 and, where it has IPv6, ::1.
struct LoopbackUp {};

int run(const LoopbackUp& step, sys::ChildState& state) noexcept;

}  // namespace nsbox::net
