#pragma once

#include "nsbox/spec.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// What keeps the command's connections in.
enum class NetworkWall : std::uint8_t {
    none,           ///< It has a network that is not the sandbox's own.
    loopback_only,  ///< There is nothing else.
    no_outbound,    ///< No connection to the outside is let through.
    translated,     ///< All but those to the host are.
};

/// What a log of denials has to know about the sandbox to tell why something was refused.
struct DenialContext {
    int descriptor = -1;  ///< Where it writes to.
    std::string sandbox;  ///< The sandbox's id.
    bool names_run_options = true;
    bool has_root = false;  ///< The sandbox runs in a root filesystem.
    /// How the filters were made, by their numbers; an empty policy: by somebody else...
    std::vector<FilterWish> wishes;
    bool refuses_input = false;   ///< The first filter is about the caller's terminals.
    std::size_t own_filters = 0;  ///< ...or, as the first so many, by nsbox for itself.
    NetworkWall network = NetworkWall::none;
    const char* network_option =
        "";  ///< How the sandbox's network was asked for, without restrictions.
    std::vector<Ports> host_loopback;
};

}  // namespace nsbox::runtime
