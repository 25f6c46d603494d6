#pragma once

#include "bwrap_parser.hpp"
#include "messages.hpp"

#include "nsbox/error.hpp"

#include <sys/types.h>

namespace nsbox::tool {

/// What every front end that runs a command does first: refuses to be setuid, and sees to it that the
/// standard descriptors are open and that the end of children can be waited for. False, after an error
/// was printed.
bool prepare_process(const Messages& messages);

/// Starts what is asked for, waits for its end and says what went wrong; the exit status. `parent` is the
/// calling process as it was when this program started.
int run_request(Request& request, pid_t parent, const Messages& messages);

/// The exit status for an error that kept the command from running.
int failure_code(const Request& request, const Error& error);

}  // namespace nsbox::tool
