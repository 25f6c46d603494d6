#pragma once

#include "nsbox/spec.hpp"

#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// The caller's environment with the edits applied in order; PWD is left out. Pure.
std::vector<std::string> edit_environment(const std::vector<std::string>& environment,
                                          const std::vector<EnvironmentEdit>& edits);

/// A variable's value, if it is there.
std::optional<std::string> look_up(const std::vector<std::string>& environment,
                                   const std::string& name);

/// Where a command is looked for: the name itself if it holds a slash, else each folder of
/// `path` (default /usr/local/bin:/usr/bin:/bin) with the name. Pure.
std::vector<std::string> exec_candidates(const std::string& command,
                                         const std::optional<std::string>& path);

}  // namespace nsbox::runtime
