#pragma once

#include <cstddef>
#include <cstdint>

namespace nsbox::runtime {

// What both the set-up child (without an init) and init need to turn into the command. Used in
// the freestanding init too: nothing here may need libc.

/// A classic BPF program as prctl(PR_SET_SECCOMP) takes it; see seccomp(2).
struct Filter {
    const void* instructions;
    std::size_t count;
};

inline constexpr std::size_t pass_words = 3;

struct Command {
    const char* const* candidates;  ///< Paths to try, in order.
    std::size_t candidate_count;
    const char** argv;  ///< Ended by null.
    const char** envp;
    const char** shell_argv;  ///< For a file that is no program: "/bin/sh", a slot, arguments.
    const Filter* filters;
    std::size_t filter_count;
    /// What the command gets in their place where denials are logged, or none: the first is loaded with a
    /// listener, see seccomp_unotify(2).
    const Filter* logged;
    std::size_t logged_count;
    /// The words behind a call's own arguments that the first of them lets through: see load_logged().
    std::uint64_t pass[pass_words];
    std::uint64_t ambient;  ///< Capabilities to keep over exec.
    bool die_with_parent;
    bool terminal;  ///< A session of its own, whose controlling terminal is standard input.
    int program;    ///< An open file to execute in place of a path, or -1.
    int ruleset;    ///< Of landlock(7), or -1.
};

/// The kinds of what a sandbox process tells its supervisor; one SOCK_SEQPACKET message each.
enum class Tell : std::uint32_t {
    step_failed,    ///< value: errno; step, site and the text tell what.
    exec_failed,    ///< value: errno.
    late_failed,    ///< Something between the last step and exec; value: errno.
    filter_failed,  ///< Seccomp could not be loaded; value: errno.
    about_to_exec,  ///< The next thing is exec: the channel's end means that it happened.
    started,        ///< The command runs; value: its pid inside; site: 1 if in a control group that
                    ///< was made for it.
    exited,         ///< The command ended; value: its wait status; step: 1 if it was the last.
                    ///< A CommandUsage follows.
    moved,          ///< The set-up goes on in another process, the value-th; its pidfd comes along.
    ///< step: its number, or 0. Where that cannot be told: step_failed, `cloning`, with the
    ///< number as its site.
    command,          ///< The command's pidfd comes along.
    network,          ///< The sandbox's network namespace comes along.
    replaced,         ///< The step made something else, as it was allowed to; step: its number.
    maps,             ///< The id maps are to be written now.
    terminal,         ///< The master of the sandbox's terminal comes along.
    landlock_failed,  ///< Landlock could not be put in force; value: errno.
    groups_failed,    ///< Init could not enter the sandbox's control groups; value: errno.
    listener,         ///< The listener of the command's filter comes along.
    directory,        ///< The working directory comes along...
    terminals,        ///< ...and the sandbox's own devpts.
};

struct Message {
    Tell kind;
    std::int32_t value;
    std::int32_t step;
    std::uint32_t site;
};

/// What the command and its reaped children used, after a message that it exited.
struct CommandUsage {
    std::uint64_t user_us;
    std::uint64_t system_us;
    std::uint64_t max_rss_kib;
    std::uint64_t oom_kills;  ///< In its control group; all ones where nobody counts them.
};

/// Sends a message that a descriptor comes with; the number of bytes or -errno. MSG_NOSIGNAL.
long tell_with_descriptor(int channel, const Message& message, int fd) noexcept;

/// Finds out which candidate would be executed, and what error there is if none would: entries
/// of the search path that cannot be searched do not count as a refusal. To be called before
/// filters are loaded. Returns the first candidate worth trying, or -errno.
int choose_candidate(const Command& command) noexcept;

/// The last steps before exec that need no filter to be absent: signals, parent death, ambient
/// capabilities. 0 or -errno.
int prepare_command(const Command& command) noexcept;

/// Puts the command's ruleset in force for this thread, for good; 0 or -errno.
int enter_landlock(const Command& command) noexcept;

/// Loads the filters in order; 0 or -errno. Only prctl is used, so that a filter may deny all
/// other calls to the next one.
int load_filters(const Command& command) noexcept;

/// The same for the command itself, whose filter may have a listener: it goes over the channel.
int load_own_filters(const Command& command, int channel) noexcept;

/// Executes candidates from number `first` on; returns -errno only. Calls nothing but execve.
int execute(const Command& command, int first) noexcept;

}  // namespace nsbox::runtime
