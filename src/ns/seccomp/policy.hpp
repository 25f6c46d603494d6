#pragma once

#include "ns/seccomp/abi.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox::ns::seccomp {

enum class Comparison : std::uint8_t { equal, unequal, less, at_most, greater, at_least };

/// A statement about one argument of a system call, all numbers unsigned.
struct Condition {
    unsigned argument = 0;  ///< 0 to 5.
    /// Compare its low 32 bits alone: what the kernel looks at where the argument is an int.
    bool low = false;
    std::uint64_t mask = ~std::uint64_t{0};
    Comparison comparison = Comparison::equal;
    std::uint64_t value = 0;
};

/// What is answered to some system calls.
struct Rule {
    std::uint32_t answer = 0;  ///< A return value of a filter, SECCOMP_RET_*: see seccomp(2).
    std::vector<std::string> calls;
    std::vector<Condition> conditions;  ///< All of them must hold.
    std::vector<Abi> abis;              ///< Empty: all.
};

/// The first rule that matches a call is its answer.
struct Policy {
    std::vector<Abi> abis;        ///< Served calling conventions; any call of the others is ENOSYS.
    std::uint32_t otherwise = 0;  ///< The answer to calls that no rule matches.
    std::vector<Rule> rules;
};

/// What a policy may depend on.
struct Circumstances {
    bool user_namespaces = false;           ///< The command may make user namespaces.
    bool tracing = false;                   ///< The command may trace its own processes.
    std::vector<std::string> capabilities;  ///< It has these: "CAP_NET_RAW".

    /// By its name in a policy: "userns", "tracing", or a capability's.
    bool has(std::string_view name) const;
};

}  // namespace nsbox::ns::seccomp
