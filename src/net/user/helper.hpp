#pragma once

namespace nsbox::net::user {

/// The program of the network helper: serves one sandbox through the descriptor helper_channel until
/// that sandbox or its supervisor has ended. Returns the exit status.
int run_helper();

}  // namespace nsbox::net::user
