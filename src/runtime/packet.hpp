#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/stat.h>

namespace nsbox::runtime {

// What init is given: one block of memory in a memfd. Tables hold offsets from the block's
// beginning, which init turns into pointers in its private copy. Freestanding.

inline constexpr std::uint32_t packet_magic = 0x6e736278;  // "nsbx"
inline constexpr std::size_t pwd_choices = 4;

enum PacketFlag : std::uint32_t {
    packet_die_with_parent = 1,
    packet_end_with_command = 2,
    packet_tell_command = 4,    ///< The supervisor wants a pidfd of the command.
    packet_subreaper = 8,       ///< Init is not pid 1: it adopts what the command leaves behind.
    packet_clear_up = 64,       ///< Be no init: remove a socket when the supervisor is dead, or...
    packet_guard = 128,         ///< ...a control group, when init is dead as well.
    packet_limits = 256,        ///< ...or the groups in the folders of `keep`, when they are empty.
    packet_only_command = 32,   ///< Be no init: execute the command in this process.
    packet_filter_early = 512,  ///< Init loads the filters, for a command without capabilities.
    packet_serve = 1024,   ///< Init starts no command but those that it is asked for: SpawnRequest.
    packet_bare = 2048,    ///< ...which have no capabilities.
    packet_terminal = 16,  ///< Standard input is to be the controlling terminal.
};

/// The signals by which init, where it has handlers for them, is told to look whether its
/// supervisor is dead and to end everything. Real-time signals, so that nothing else sends them.
inline constexpr int look_signal = 40;
inline constexpr int end_signal = 41;

struct PacketHeader {
    std::uint32_t magic;
    std::uint32_t size;       ///< Of the whole block.
    std::int32_t channel;     ///< The descriptor that leads to the supervisor.
    std::int32_t program;     ///< See Command.
    std::uint32_t flags;      ///< Of PacketFlag.
    std::int32_t supervisor;  ///< A pidfd of it, or -1: its death ends everything.
    std::int32_t children;    ///< The list of its children, for an init that is not pid 1, or -1.
    std::int32_t proc;      ///< The caller's /proc, where that list has the numbers of another pid
                            ///< namespace than init's, or -1.
    std::int32_t registry;  ///< The folder that holds the sandbox's socket, or -1...
    std::uint32_t socket;   ///< ...and the offset of its name, to be removed when...
                            ///< ...the supervisor is dead.
    std::uint64_t socket_inode;  ///< If that is still this one, made at...
    std::int64_t socket_made;    ///< ...this time, in nanoseconds; 0: whatever has the name.
    std::int32_t group;  ///< The control group in which there may be one for the command, or -1;
    std::uint32_t group_name;  ///< the offset of its name. Zero: the command is to be in `group`.
    std::int32_t ruleset;      ///< See Command.
    std::int32_t lifeline;     ///< A pipe whose one end init holds and the guard looks at, or -1.
    std::int32_t helper;       ///< A pidfd of a process whose end is that of a serving init, or -1.
    std::uint64_t ambient;
    std::uint64_t pass[3];     ///< See Command.
    std::uint32_t candidates;  ///< Offsets of tables, each followed by a zero entry...
    std::uint32_t candidate_count;
    std::uint32_t argv;
    std::uint32_t envp;
    std::uint32_t shell_argv;
    std::uint32_t filters;  ///< ...and of pairs (offset, instruction count).
    std::uint32_t filter_count;
    std::uint32_t logged;  ///< As `filters`.
    std::uint32_t logged_count;
    std::uint32_t pwd_slot;          ///< The entry of envp that is replaced...
    std::uint32_t pwd[pwd_choices];  ///< ...by one of these strings...
    std::uint32_t pwd_choice;        ///< ...which the set-up child chose.
    /// Of a command that a serving init starts: the offsets of directories, the first of which that can be
    /// entered is the working directory, with the string of pwd that has its number. Zero: there is none.
    std::uint32_t directory[pwd_choices];
    std::uint32_t keep;        ///< Offset of 32-bit descriptor numbers that init keeps open.
    std::uint32_t keep_count;  ///< Entries that are negative are unused.
    std::uint32_t
        entrances;  ///< Offset of open lists of control groups' processes, for init to enter.
    std::uint32_t entrance_count;
};

/// Of a file's time, as init compares it.
constexpr std::int64_t nanoseconds_of(const timespec& time) noexcept
{
    constexpr std::int64_t second = 1000000000;
    return time.tv_sec * second + time.tv_nsec;
}

/// The most descriptors that a command is given: SCM_RIGHTS (unix(7)) takes 253 in all.
inline constexpr std::size_t most_given = 250;
/// What comes along before those: the socket that the command's end is told on, and a file with its packet, if
/// that is not in the message.
inline constexpr std::size_t given_before = 2;
/// The largest packet that is in the message itself.
inline constexpr std::size_t most_inline = 15360;

/// What a serving init is asked for, one SOCK_SEQPACKET message each.
struct SpawnRequest {
    std::uint32_t magic;               ///< packet_magic
    std::uint32_t inline_size;         ///< How many bytes of a packet follow; 0: it is in a file.
    std::uint32_t count;               ///< How many descriptors the command is given...
    std::int32_t targets[most_given];  ///< ...and their numbers there.
};

}  // namespace nsbox::runtime
