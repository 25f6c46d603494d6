#pragma once

#include "nsbox/nsbox.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox::tests {

/// The path of this program, which is also the probe that runs inside sandboxes.
std::string own_path();

struct Variant {
    std::string name;
    Spec spec;
    bool is_pid_1 = false;  ///< Such a command ignores the signals that it sends to itself.
};

/// Sandboxes of every shape that this user can have, for a command.
std::vector<Variant> variants(const std::vector<std::string>& command);

/// All namespaces, the host's tree read-only, /proc and /dev.
Spec full_spec(const std::vector<std::string>& command);

/// The same for many commands, with a /tmp that is their working directory.
Spec workshop();

/// A command for it: `sh -c SCRIPT`.
Command shell(const std::string& script);

/// Specs that must not start, each failing at another place.
std::vector<Variant> failing_variants();

/// `exit N` as a command.
std::vector<std::string> exits(int code);

/// A command's end in words: "exit 3", "signal 9", or the error.
std::string outcome(Result<Sandbox> sandbox);
std::string outcome(const Result<ExitStatus>& status);

/// Starts and waits.
std::string run(const Spec& spec);

/// Standard output goes to a file in memory from here on; returns what was written so far.
class CapturedOutput {
public:
    CapturedOutput();
    CapturedOutput(const CapturedOutput&) = delete;
    CapturedOutput& operator=(const CapturedOutput&) = delete;
    ~CapturedOutput();
    std::string text() const;

private:
    int file_ = -1;
    int saved_ = -1;
};

/// What a TCP port of the host's 127.0.0.1 says, or why it says nothing: "ECONNREFUSED".
std::string ask_port(std::uint16_t port);

/// Whether a process with that number lives and is no zombie.
bool is_alive(pid_t pid);

/// Waits, for at most ten seconds, until something holds.
template <class Condition>
bool eventually(Condition condition);

void sleep_milliseconds(int count);

template <class Condition>
bool eventually(Condition condition)
{
    for (int i = 0; i < 2000; ++i) {
        if (condition())
            return true;
        sleep_milliseconds(5);
    }
    return false;
}

}  // namespace nsbox::tests
