#pragma once

#include "runtime/denials/context.hpp"
#include "runtime/denials/process.hpp"

#include <linux/seccomp.h>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// Why a call fails, or will.
struct Refusal {
    int error = 0;
    std::string object;     ///< What the call is about, or empty.
    const char* wall = "";  ///< What refuses it: doc/denials.md lists them.
    std::string reason;     ///< In words.
    std::string option;     ///< That would allow it; empty: there is none.
};

/// What a system call that is looked at does.
enum class Deed { open, execute, change_entry, change_file, connect, bind };

/// The name of a deed in a record.
const char* name_of(Deed deed);

/// A system call that is looked at, and which of its arguments mean what.
struct Watched {
    const char* name;
    Deed deed;
    int folder;  ///< A descriptor's number, or -1: the working directory.
    int path;    ///< A path, or the address of a socket.
    int flags;   ///< Of open(2), or -1; of openat2(2) the structure.
    /// The second pair of a folder and a path: of rename(2) and link(2).
    int second_folder = -1;
    int second_path = -1;
};

/// All of them; those that this machine has no number for are passed over by the filter.
const std::vector<Watched>& watched_calls();

/// Whether a call that is let through will be refused elsewhere, as far as that can be told before it is
/// made: the command may change what its arguments point to, and the tree, meanwhile.
std::optional<Refusal> look_at(const Watched& watched, const seccomp_data& call,
                               const Process& process, const DenialContext& context);

}  // namespace nsbox::runtime
