#pragma once

#include "nsbox/error.hpp"

namespace nsbox::tool {

/// The signals that are handed to a command are taken from a descriptor from here on. One that the
/// caller has this process ignore, as nohup(1) does, stays ignored. A signalfd, or -1 with errno.
int take_signals();

/// The exit status for what kept a command from running: 128 + signal, 127 where it was not found,
/// 126 where it could not be executed, else 125.
int failure_status(const Error& error);

}  // namespace nsbox::tool
