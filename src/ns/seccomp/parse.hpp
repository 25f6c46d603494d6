#pragma once

#include "ns/seccomp/policy.hpp"
#include "nsbox/error.hpp"

#include <functional>
#include <string>

namespace nsbox::ns::seccomp {

/// Finds what a policy includes by name: a text, and what to call it in messages.
struct Included {
    std::string text;
    std::string origin;
};
using Include = std::function<Result<Included>(const std::string& name)>;

/// Reads a policy in nsbox's text format (doc/seccomp.md). `origin` names it in messages, which
/// name the line too. Statements that do not apply under `circumstances` are checked and left out.
Result<Policy> parse_policy(const std::string& text, const std::string& origin,
                            const Circumstances& circumstances, const Include& include);

}  // namespace nsbox::ns::seccomp
