#pragma once

#include <cstddef>
#include <cstdint>

namespace nsbox::runtime {

// What init is given: one block of memory in a memfd. Tables hold offsets from the block's
// beginning, which init turns into pointers in its private copy. Freestanding.

inline constexpr std::uint32_t packet_magic = 0x6e736278;  // "nsbx"
inline constexpr std::size_t pwd_choices = 4;

struct PacketHeader {
    std::uint32_t magic;
    std::uint32_t size;    ///< Of the whole block.
    std::int32_t channel;  ///< The descriptor that leads to the supervisor.
    std::int32_t program;  ///< See Command.
    std::uint32_t die_with_parent;
    std::uint32_t reserved;
    std::uint64_t ambient;
    std::uint32_t candidates;  ///< Offsets of tables, each followed by a zero entry...
    std::uint32_t candidate_count;
    std::uint32_t argv;
    std::uint32_t envp;
    std::uint32_t shell_argv;
    std::uint32_t filters;  ///< ...and of pairs (offset, instruction count).
    std::uint32_t filter_count;
    std::uint32_t pwd_slot;          ///< The entry of envp that is replaced...
    std::uint32_t pwd[pwd_choices];  ///< ...by one of these strings...
    std::uint32_t pwd_choice;        ///< ...which the set-up child chose.
    std::uint32_t keep;              ///< Offset of 32-bit descriptor numbers that init keeps open.
    std::uint32_t keep_count;        ///< Entries that are negative are unused.
};

}  // namespace nsbox::runtime
