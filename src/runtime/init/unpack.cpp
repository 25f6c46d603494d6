#include "runtime/init/unpack.hpp"

#include "sys/raw.hpp"

#include <sys/mman.h>

namespace nsbox::runtime::init {

namespace raw = sys::raw;

namespace {

/// Turns a table of offsets, ended by zero, into pointers.
const char** relocate(PacketHeader* packet, std::uint32_t offset)
{
    char* const base = reinterpret_cast<char*>(packet);
    auto* const table = reinterpret_cast<std::uint64_t*>(base + offset);
    for (std::uint64_t* entry = table; *entry != 0; ++entry)
        *entry = reinterpret_cast<std::uint64_t>(base + *entry);
    return reinterpret_cast<const char**>(table);
}

/// A filter is a pair (offset, count) in the packet and (pointer, count) in memory.
const Filter* relocate_filters(char* base, std::uint32_t offset, std::uint32_t count)
{
    auto* const filters = reinterpret_cast<std::uint64_t*>(base + offset);
    for (std::uint32_t i = 0; i < count; ++i)
        filters[std::size_t{2} * i] =
            reinterpret_cast<std::uint64_t>(base + filters[std::size_t{2} * i]);
    return reinterpret_cast<const Filter*>(filters);
}

}  // namespace

PacketHeader* map_packet(int fd) noexcept
{
    struct ::stat status {};
    raw::fstat(fd, &status);
    // There is no map of no bytes.
    const long rc =
        raw::call(SYS_mmap, nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    raw::close(fd);
    if (rc < 0 && rc > -4096)
        return nullptr;
    auto* packet = reinterpret_cast<PacketHeader*>(rc);
    return packet->magic == packet_magic ? packet : nullptr;
}

PacketHeader* packet_in(char* bytes, std::size_t size) noexcept
{
    auto* const packet = reinterpret_cast<PacketHeader*>(bytes);
    return size >= sizeof *packet && packet->magic == packet_magic && packet->size == size
               ? packet
               : nullptr;
}

Command unpack(PacketHeader* packet) noexcept
{
    char* const base = reinterpret_cast<char*>(packet);
    Command command{};
    command.candidates = relocate(packet, packet->candidates);
    command.candidate_count = packet->candidate_count;
    command.argv = relocate(packet, packet->argv);
    command.envp = relocate(packet, packet->envp);
    command.envp[packet->pwd_slot] = base + packet->pwd[packet->pwd_choice];
    command.shell_argv = relocate(packet, packet->shell_argv);
    command.filters = relocate_filters(base, packet->filters, packet->filter_count);
    command.filter_count = packet->filter_count;
    command.logged = relocate_filters(base, packet->logged, packet->logged_count);
    command.logged_count = packet->logged_count;
    for (std::size_t i = 0; i < pass_words; ++i)
        command.pass[i] = packet->pass[i];
    command.ambient = packet->ambient;
    command.program = packet->program;
    command.ruleset = packet->ruleset;
    command.die_with_parent = (packet->flags & packet_die_with_parent) != 0;
    command.terminal = (packet->flags & packet_terminal) != 0;
    return command;
}

}  // namespace nsbox::runtime::init
