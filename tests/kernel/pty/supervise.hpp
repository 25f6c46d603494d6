#pragma once

#include "pty/window.hpp"

#include "sys/fd.hpp"

#include <functional>
#include <string>

#include <sys/types.h>

namespace nsbox::tests {

struct TerminalPair {
    sys::Fd master;
    sys::Fd slave;
};

/// A new terminal, with descriptors that are closed on exec. The slave controls nobody.
TerminalPair open_terminal();

/// In a new process: makes a terminal the controlling one of a new session, and its standard
/// input, output and errors, and nothing else: the descriptor is closed.
void live_on(int slave);

/// What the test's process wants to know of a supervisor's life; lies in shared memory.
struct Witness {
    unsigned long rounds = 0;  ///< How often poll(2) returned.
    unsigned long bytes = 0;   ///< For the command's use.
    int command = 0;           ///< The command's process, once it runs.
    int output_error = 0;
    int outer_was_gone = 0;
    int was_drained = -1;
};

/// A witness that processes forked later share.
Witness& new_witness();

/// What a supervisor of a command on a terminal of its own does, with the least that works.
struct Supervisor {
    int input = 0;
    int output = 1;
    pty::WindowSize size{24, 80};  ///< Where no terminal is outside.
    int drain_milliseconds = 5000;
    Witness* witness = nullptr;

    /// Runs `command` in a process on a new terminal until it ends; its status as a shell has it.
    int run(const std::function<int()>& command) const;
};

/// Becomes another program; 127 if that fails.
int execute(const std::string& script);

}  // namespace nsbox::tests
