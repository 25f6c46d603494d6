#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// The folder in which this user's sandboxes can be found: $XDG_RUNTIME_DIR/nsbox, else
/// /run/user/UID/nsbox, else /run/nsbox for root and /tmp/nsbox-UID for others. Nobody else may
/// enter it (mode 0700, checked).
struct Registry {
    std::string path;
    sys::Fd folder;  ///< O_PATH.

    /// Opens it, and makes it if it is not there.
    static Result<Registry> open();

    /// The keys of the sandboxes that have a socket there.
    std::vector<std::string> keys() const;
    /// A name of a socket that connect(2) and bind(2) take, however long the folder's path is.
    std::string address(const std::string& key) const;
    void remove(const std::string& key) const;
    /// While this lives nobody else is between bind(2) and listen(2), where a socket looks like that of a
    /// dead supervisor, nor removes such a one: flock(2). Invalid where another has it for so long.
    sys::Fd lock(std::chrono::milliseconds patience) const;
};

/// The name of a sandbox's socket in the folder.
std::string socket_name(const std::string& key);

}  // namespace nsbox::runtime
