#pragma once

#include "tests/kernel/pty/supervise.hpp"

#include <functional>
#include <string>

#include <termios.h>

namespace nsbox::tests {

/// A terminal with a process on it: what a user has before him. The process is killed at the end.
class Outside {
public:
    /// `on_terminal` runs in a process that the terminal controls; it returns an exit status.
    explicit Outside(const std::function<int()>& on_terminal, pty::WindowSize size = {30, 100});
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;
    ~Outside();

    void type(const std::string& keys) const;
    /// Waits until the terminal shows a text; what was shown up to its end is taken away.
    bool shows(const std::string& text);
    /// Reads, for at most ten seconds, until there are so many bytes or the end.
    std::string read(std::size_t count = ~std::size_t{0});
    /// The exit status; -1 if it does not end within ten seconds.
    int wait();
    void hang_up() { pair_.master.reset(); }

    pid_t pid() const { return pid_; }
    int master() const { return pair_.master.get(); }
    int slave() const { return pair_.slave.get(); }
    termios mode() const;
    /// Before the process began.
    const termios& first_mode() const { return first_mode_; }
    bool is_raw() const;
    const std::string& shown() const { return shown_; }

private:
    bool read_some(std::size_t limit);

    TerminalPair pair_;
    termios first_mode_{};
    pid_t pid_ = -1;
    std::string shown_;
    std::size_t taken_ = 0;
};

/// A process that is killed at the end.
class Forked {
public:
    explicit Forked(const std::function<int()>& body);
    Forked(const Forked&) = delete;
    Forked& operator=(const Forked&) = delete;
    ~Forked();

    pid_t pid() const { return pid_; }
    /// The exit status as a shell has it; -1 if it does not end within ten seconds.
    int wait();

private:
    pid_t pid_;
    int status_ = -1;
};

/// Reads to the end of a pipe, for at most ten seconds.
std::string read_pipe(int fd);

/// So many bytes of every value, the same each time.
std::string many_bytes(std::size_t count);

/// For commands: writes or reads all of it, waiting as long as that takes.
bool write_all(int fd, const std::string& bytes);
std::string read_all(int fd, std::size_t count);
/// For commands: sets raw mode on standard input.
void become_raw();

}  // namespace nsbox::tests
