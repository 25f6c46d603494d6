#pragma once

#include "pty/buffer.hpp"
#include "pty/outer.hpp"
#include "pty/raw_mode.hpp"

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <poll.h>

namespace nsbox::pty {

/// Carries what is typed outside to a terminal inside and what that terminal shows to the outside,
/// by its master. It is part of somebody else's poll loop:
///
///     auto relay = TRY(pty::Relay::create(master, STDIN_FILENO, STDOUT_FILENO));
///     while (!ended) {
///         std::vector<pollfd> fds = own_descriptors();
///         relay->add_to(fds);
///         poll(fds.data(), fds.size(), relay->timeout());
///         relay->handle(fds);
///         ...  // SIGWINCH: on_window_change(). SIGTSTP: suspend(), raise(SIGSTOP), resume().
///     }        // SIGCONT: resume(). outer_is_gone(): SIGHUP to the command.
///     relay->drain(limit);
///     relay->finish();
///
/// It waits for nothing except in drain(), starts no thread, handles no signal, raises no SIGPIPE,
/// and holds at most 64 KiB in each direction: what one side does not take, the other side cannot
/// send. Nothing is lost; but a terminal that reads lines drops what is beyond the 4095th character
/// of a line, as every Linux terminal does.
class Relay {
public:
    /// Begins: the outer terminal, if there is one, gets raw mode, and its size goes inside. All
    /// descriptors are borrowed; -1 stands for an outer one that is closed. The master becomes
    /// non-blocking, which the outer ones, shared with other programs, never do.
    static Result<std::unique_ptr<Relay>> create(int master, int outer_input, int outer_output);
    Relay(const Relay&) = delete;
    Relay& operator=(const Relay&) = delete;
    ~Relay();

    /// Appends what it waits for at the moment.
    void add_to(std::vector<pollfd>& fds);
    /// In how many milliseconds handle() is to be called though nothing was found; -1: never.
    int timeout() const;
    /// Does what is possible. `fds`: what add_to() appended to, as poll(2) left it.
    void handle(const std::vector<pollfd>& fds);

    /// For SIGWINCH: takes the outer terminal's size over.
    void on_window_change();
    /// Gives the outer terminal back before this process stops.
    void suspend();
    /// For SIGCONT, whatever the process was stopped by: takes the terminal again, if this process
    /// is in its foreground. In the background output goes on, and nothing is read until a shell
    /// brings the process to the foreground, which is noticed with or without SIGCONT.
    void resume();

    /// The outer terminal was hung up: the command is to get SIGHUP, as from its own terminal.
    bool outer_is_gone() const { return outer_is_gone_; }
    /// Why nothing can be written outside any more, for example EPIPE; 0 as long as it can be.
    /// What the command writes is thrown away from then on, so that it never waits for it.
    int output_error() const { return output_error_; }

    /// The command has ended: nothing more is read outside, and inside only what can have been
    /// written before now, so that a process left in the background cannot go on for ever.
    void command_ended();
    /// After command_ended(): everything has been written, or cannot be.
    bool is_drained() const;
    /// command_ended(), and waits until is_drained(), but no longer than the limit. Says whether
    /// everything was written. For those who have nothing else to wait for.
    bool drain(std::chrono::milliseconds limit);

    /// Gives the terminal back and lets go of the descriptors. Also done by the destructor.
    void finish();

private:
    using Clock = std::chrono::steady_clock;
    using Time = std::optional<Clock::time_point>;  ///< When to try again, if at all.
    enum class Input { open, ending, closed };

    Relay(int master, int outer_input, int outer_output);
    Result<void> begin();
    Result<void> take_terminal();

    void read_input();
    void input_ended();
    void type_end();
    void write_master();
    void read_master();
    bool read_master_once();
    void write_output();
    void leave_output(int error);

    int master_;
    int master_flags_ = 0;
    sys::Fd slave_;
    OuterEnd input_;
    OuterEnd output_;
    std::optional<RawMode> raw_;  ///< Of the outer input, if that is a terminal.
    Buffer to_inner_;
    Buffer to_outer_;

    Input input_state_ = Input::open;
    bool in_background_ = false;
    bool outer_is_gone_ = false;
    bool master_is_full_ = false;
    bool output_is_full_ = false;
    int output_error_ = 0;
    std::optional<char> last_typed_;
    bool end_was_typed_ = false;

    bool has_ended_ = false;    ///< The command.
    std::size_t to_drain_ = 0;  ///< How much more to read from the master then.
    bool master_is_empty_ = false;

    // Where in the list of add_to() each one is; -1: it is not waited for.
    std::ptrdiff_t at_master_ = -1;
    std::ptrdiff_t at_input_ = -1;
    std::ptrdiff_t at_output_ = -1;

    Time foreground_again_;
    Time end_again_;
    std::chrono::milliseconds end_delay_;
    Time master_again_;
    Time output_again_;
};

}  // namespace nsbox::pty
