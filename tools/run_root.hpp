#pragma once

#include "run_parser.hpp"

#include "nsbox/error.hpp"

namespace nsbox::tool {

/// Opens the root filesystem, if one is asked for, and holds on to it until this program ends: once only.
Result<> open_root(RunRequest& run);

}  // namespace nsbox::tool
