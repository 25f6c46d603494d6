#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox {

/// What a filter of system calls is to let through.
struct FilterWish {
    /// "default" (what untrusted programs of all kinds need), "strict" (for programs that compute), or
    /// a file: in nsbox's text format (doc/seccomp.md), or a JSON profile as the OCI runtime
    /// specification and Docker have it.
    std::string policy = "default";
    bool user_namespaces = false;  ///< Circumstance "userns": the command may make user namespaces.
    bool tracing = false;          ///< Circumstance "tracing": it may trace its own processes.
    std::vector<std::string> capabilities;  ///< What it has: "CAP_NET_RAW"; a circumstance each.
};

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
