#pragma once

#include "ns/seccomp/policy.hpp"
#include "nsbox/error.hpp"

#include <linux/filter.h>

namespace nsbox::ns::seccomp {

/// The classic BPF program of a policy, for the calling conventions of `machine` that it serves. The
/// call's number is looked up by halving the table of ranges that have one answer; arguments are
/// compared in both halves. Fails where more instructions come out than the kernel takes (4096).
Result<std::vector<sock_filter>> compile(const Policy& policy, const std::vector<Abi>& machine);

}  // namespace nsbox::ns::seccomp
