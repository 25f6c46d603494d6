#pragma once

#include "runtime/control.hpp"
#include "runtime/registry.hpp"
#include "sys/error.hpp"

#include <string>
#include <vector>

namespace nsbox::runtime {

/// Every sandbox in the folder, in the order of ids; one whose supervisor is stopped has a name
/// and nothing else. What a supervisor that was killed left there is removed.
std::vector<Known> known_sandboxes(const Registry& registry);

/// By id, by the beginning of one id only, or by name. Without `child` where its supervisor is
/// stopped.
Result<Known> find_sandbox(const Registry& registry, const std::string& which);

}  // namespace nsbox::runtime
