#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <cstdint>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// The classic BPF program of a policy, for Spec::seccomp_programs: for this machine's calling
/// conventions, see seccomp(2). Opens files by their path as the caller. Any thread. Fails with the
/// file and line of what is wrong.
Result<std::vector<std::uint8_t>> compile_filter(const FilterWish& wish);

/// Appends the program of `policy`, see FilterWish, to what `spec` has; "none" appends nothing. The
/// capabilities are those that Spec::capabilities leaves the command.
Result<> add_filter(Spec& spec, const std::string& policy, bool user_namespaces = false,
                    bool tracing = false);

/// The text of one of nsbox's own policies, for people. Fails where there is none of that name.
Result<std::string> policy_text(const std::string& policy);

/// A program as text, one instruction a line. Fails where the bytes are no program for seccomp(2).
Result<std::string> disassemble_filter(const std::vector<std::uint8_t>& program);

}  // namespace nsbox

#pragma GCC visibility pop
