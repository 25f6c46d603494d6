#pragma once

#include "nsbox/nsbox.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// A sandbox that was started with Spec::name and runs.
struct SandboxInfo {
    std::string id;    ///< 16 hexadecimal digits.
    std::string name;  ///< May be empty.
    pid_t supervisor = -1;
    pid_t child = -1;                ///< Its init, or the command; see Sandbox::child_pid().
    pid_t command = -1;              ///< -1 where that is not known.
    std::int64_t started = 0;        ///< Seconds since 1970.
    std::vector<std::string> words;  ///< The command and its arguments.
};

/// As one JSON object on one line: id, name, supervisor-pid, child-pid, command-pid, started,
/// command.
std::string to_json(const SandboxInfo& info);

/// As one JSON object on one line: protocol (tcp, udp, unix-socket, host-socket), address (null for
/// 127.0.0.1 and ::1) and host-port, or path, and port.
std::string to_json(const PublishedPort& port);

/// The calling user's sandboxes, in the order of their ids. What a supervisor that was killed left
/// in the folder of sockets is removed on the way.
Result<std::vector<SandboxInfo>> list_sandboxes();

/// A further command for a running sandbox.
struct Entry {
    std::vector<std::string> command;
    std::optional<std::string> directory;      ///< Default: as the main command's.
    std::vector<EnvironmentEdit> environment;  ///< On that of the main command.
    std::optional<WindowSize> terminal;        ///< As Spec::terminal.
};

/// A running sandbox that another process supervises. Move-only. Only the user who started it may
/// reach it, and only from the mount namespace that its supervisor is in: a process inside a sandbox
/// cannot.
class Remote {
public:
    /// By id, by the beginning of one id only, or by name. It holds descriptors of the sandbox, and
    /// may outlive it. One whose supervisor is stopped can be found by its name, and killed.
    static Result<Remote> find(const std::string& which);
    Remote(Remote&&) noexcept;
    Remote& operator=(Remote&&) noexcept;
    ~Remote();

    const SandboxInfo& info() const noexcept;

    /// Starts a command in it, as a child of this process, in all of its namespaces and confined
    /// as the main command is: capabilities, no_new_privs, filters, resource limits (no higher than
    /// this process's own), environment. Uses
    /// setns(2) on the namespaces' files in /proc, and NS_GET_USERNS of Linux 4.9 (ioctl_ns(2)).
    Result<Sandbox> execute(const Entry& entry, const Watch& watch = {}) const;

    // As those of Sandbox; the supervisor, which has to be in wait(), does it.
    Result<std::vector<PublishedPort>> ports() const;
    Result<PublishedPort> add_port(const PublishedPort& port) const;
    Result<> remove_port(const PublishedPort& port) const;

    Result<> signal(int number) const;  ///< Sends a signal to the main command.
    Result<> kill() const;              ///< Ends everything in it; a stopped supervisor goes on.
    Result<ExitStatus> wait() const;    ///< Waits for the end of the main command.

private:
    struct State;
    [[gnu::visibility("hidden")]] explicit Remote(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

}  // namespace nsbox

#pragma GCC visibility pop
