#pragma once

#include "runtime/child.hpp"
#include "runtime/plan.hpp"
#include "sys/error.hpp"

#include <string>

namespace nsbox::runtime {

/// Turns what the child reported into an Error with words for it. `detail` is the text that came
/// along. Looks at the host to find the hint.
Error describe_failure(const Plan& plan, const Message& message, const std::string& detail);

/// What a step made in place of what it was asked for, as a sentence.
std::string describe_replaced(const Plan& plan, const Message& message);

/// The Error for clone itself.
Error describe_clone_failure(const Plan& plan, int err);

}  // namespace nsbox::runtime
