#pragma once

#include "nsbox/remote.hpp"
#include "runtime/plan.hpp"
#include "runtime/recipe.hpp"

namespace nsbox::runtime {

/// What is to be executed by a further command of a sandbox, in which environment and directory. Its last
/// step is the ChangeDirectory.
void add_command(const Recipe& recipe, const Entry& entry, Plan& plan);

}  // namespace nsbox::runtime
