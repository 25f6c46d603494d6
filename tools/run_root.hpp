#pragma once

#include "run_parser.hpp"

#include "nsbox/error.hpp"

#include <string>
#include <vector>

namespace nsbox::tool {

/// What `nsbox run` runs in, and what that has to say about commands.
struct RunRoot {
    std::vector<std::string> command;  ///< What an image runs when nothing else is named.
    std::string directory;             ///< Where an image's commands begin; may be empty.
    std::vector<std::string> notes;    ///< For --verbose.
};

/// Opens the root filesystem, if one is asked for, and puts into the request what it says: ids, id maps
/// and variables. Holds on to it by Request::held.
Result<RunRoot> open_root(RunRequest& run);

}  // namespace nsbox::tool
