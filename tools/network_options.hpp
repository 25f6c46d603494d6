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
    std::optional<JoinNetwork> join;
};

// Each takes an option's text; what is wrong with it, as a sentence for the user, or nothing.

/// "host", "none", "user" or "veth" with settings behind commas, or "join:" with a path, "fd:" and a
/// number, or a sandbox's name or id.
std::optional<std::string> parse_network(const std::string& text, NetworkChoice& choice);

/// "[ADDRESS:]PORT:[localhost:]PORT[/tcp|/udp]", or "unix:PATH:[localhost:]PORT"
std::optional<std::string> parse_published(const std::string& text, PublishedPort& port);

/// The same, or without the part about the sandbox: enough to find one again.
std::optional<std::string> parse_place(const std::string& text, PublishedPort& port);

/// "PATH:PORT": a unix socket of the host, and a port of the sandbox.
std::optional<std::string> parse_host_socket(const std::string& text, PublishedPort& port);

/// A port that leads into a sandbox, as a person reads it.
std::string say_port(const PublishedPort& port);

/// Ports and ranges behind commas, 0 among them; what is wrong is said without the option's name.
std::optional<std::string> parse_tcp_ports(const std::string& text, std::vector<Ports>& ports);

/// "all", or ports and ranges behind commas: "8080,9000-9010".
std::optional<std::string> parse_ports(const std::string& text, std::vector<Ports>& ports);

}  // namespace nsbox::tool
