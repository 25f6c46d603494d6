#pragma once

#include "runtime/denials/look.hpp"

#include <linux/seccomp.h>
#include <string>

namespace nsbox::runtime {

/// One denial, as doc/denials.md has it.
struct Record {
    std::string kind;
    std::string call;
    std::string arguments;
    std::string program;
    std::string executable;
    pid_t pid = 0;  ///< In the sandbox.
    bool is_estimate = false;
    Refusal refusal;
};

/// The members of a JSON object; long texts are cut, so that a line can be written at once.
std::string members_of(const Record& record);

/// A whole line, with the time, of such members.
std::string stamped(const std::string& members, const DenialContext& context);

/// A call's arguments as hexadecimal numbers, without those at the end that are zero.
std::string arguments_of(const seccomp_data& call);

}  // namespace nsbox::runtime
