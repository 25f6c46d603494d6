#pragma once

#include "net/helper_client.hpp"
#include "nsbox/nsbox.hpp"
#include "runtime/report.hpp"

#include <string>

namespace nsbox::runtime {

/// Writes what happens to a sandbox to a descriptor, one JSON object a line; doc/events.md is the
/// schema. A reader that is gone is no failure. Borrows the descriptor; -1 writes nothing.
class Events {
public:
    explicit Events(int fd = -1);

    bool is_wanted() const noexcept { return fd_ >= 0; }
    /// A random name for the sandbox, 16 hexadecimal digits.
    const std::string& id() const noexcept { return id_; }

    /// `group`: the path of the sandbox's own control group, or empty.
    void started(pid_t child, pid_t command, const NamespaceReport& report,
                 const std::string& group = {}) const;
    /// Something is otherwise than it was asked for.
    void note(const std::string& text) const;
    /// The sandbox has a network, through this kind of link...
    void network(const net::HelperClient& helper) const;
    /// ...or has it no more.
    void network_failed(const Error& error) const;
    /// A port leads into it, or out of it...
    void port(const PublishedPort& port) const;
    /// ...or does so no more.
    void port_removed(const PublishedPort& port) const;
    /// A limit is over, and the command is sent this signal.
    void limit(const char* which, int signal) const;
    /// The kernel has killed so many processes for want of memory.
    void out_of_memory(std::uint64_t kills) const;
    void failed(const Error& error) const;
    /// The last one.
    void exited(const ExitStatus& status) const;

private:
    void write(const std::string& members) const;

    int fd_;
    std::string id_;
};

/// The members of a JSON object that describes a port.
std::string members_of(const PublishedPort& port);

/// A text as JSON has it, in double quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const std::string& text);

}  // namespace nsbox::runtime
