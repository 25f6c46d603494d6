#pragma once

#include "nsbox/remote.hpp"
#include "runtime/launch.hpp"
#include "runtime/recipe.hpp"

namespace nsbox::runtime {

/// Starts a command in the namespaces of `child`, confined as the recipe says. The command is a
/// child of this process.
Result<Running> enter(const sys::Fd& child, const Recipe& recipe, const Entry& entry,
                      const Watch& watch);

}  // namespace nsbox::runtime
