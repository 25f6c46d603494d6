#pragma once

#include "nsbox/spec.hpp"

#include <optional>
#include <string>
#include <vector>

namespace nsbox::tool {

/// What --net asks for.
struct NetworkChoice {
    bool own = false;  ///< A network namespace of the sandbox's own.
    std::optional<UserNetwork> user;
    std::optional<VethNetwork> veth;
};

// Each takes an option's text; what is wrong with it, as a sentence for the user, or nothing.

/// "host", "none", or "user" or "veth" with settings behind commas.
std::optional<std::string> parse_network(const std::string& text, NetworkChoice& choice);

/// "[ADDRESS:]PORT:[localhost:]PORT[/tcp|/udp]"
std::optional<std::string> parse_published(const std::string& text, PublishedPort& port);

/// A port that leads into a sandbox, as a person reads it.
std::string say_port(const PublishedPort& port);

/// "all", or ports and ranges behind commas: "8080,9000-9010".
std::optional<std::string> parse_ports(const std::string& text, std::vector<Ports>& ports);

}  // namespace nsbox::tool
