// The sandbox's init: a program of its own, without libc, executed from a sealed memfd. Its
// memory holds nothing of the program that started it: no environment, no arguments, no heap.
// It is given one packet (see packet.hpp), starts the command, reaps, and tells how the command
// ended. Once the command runs it needs only wait4, write and exit_group, since the command's
// seccomp filters are loaded here too: a process without them must not be at hand inside.

#include "runtime/command.hpp"
#include "runtime/packet.hpp"
#include "sys/raw.hpp"
#include "sys/text.hpp"

#include <csignal>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

using namespace nsbox;
namespace raw = sys::raw;
using runtime::Command;
using runtime::Filter;
using runtime::Message;
using runtime::PacketHeader;
using runtime::Tell;

namespace {

constexpr std::size_t stack_size = 32768;
alignas(16) char command_stack[stack_size];

struct Start {
    Command command;
    Tell failure = Tell::started;
    int error = 0;
};

int parse_number(const char* text)
{
    int value = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
        value = value * 10 + (*text - '0');
    return value;
}

void wipe(char* text)
{
    // The strings of exec stay readable in this process's memory otherwise.
    for (volatile char* at = text; *at != '\0'; ++at)
        *at = '\0';
}

PacketHeader* map_packet(int fd)
{
    struct ::stat status;
    if (raw::fstat(fd, &status) < 0)
        return nullptr;
    const long rc =
        raw::call(SYS_mmap, nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    raw::close(fd);
    if (rc < 0 && rc > -4096)
        return nullptr;
    auto* packet = reinterpret_cast<PacketHeader*>(rc);
    return packet->magic == runtime::packet_magic ? packet : nullptr;
}

/// Turns a table of offsets, ended by zero, into pointers.
const char** relocate(PacketHeader* packet, std::uint32_t offset)
{
    char* const base = reinterpret_cast<char*>(packet);
    auto* const table = reinterpret_cast<std::uint64_t*>(base + offset);
    for (std::uint64_t* entry = table; *entry != 0; ++entry)
        *entry = reinterpret_cast<std::uint64_t>(base + *entry);
    return reinterpret_cast<const char**>(table);
}

Command unpack(PacketHeader* packet)
{
    char* const base = reinterpret_cast<char*>(packet);
    Command command{};
    command.candidates = relocate(packet, packet->candidates);
    command.candidate_count = packet->candidate_count;
    command.argv = relocate(packet, packet->argv);
    command.envp = relocate(packet, packet->envp);
    command.envp[packet->pwd_slot] = base + packet->pwd[packet->pwd_choice];
    command.shell_argv = relocate(packet, packet->shell_argv);
    // A filter is a pair (offset, count) in the packet and (pointer, count) in memory.
    auto* const filters = reinterpret_cast<std::uint64_t*>(base + packet->filters);
    for (std::uint32_t i = 0; i < packet->filter_count; ++i)
        filters[std::size_t{2} * i] =
            reinterpret_cast<std::uint64_t>(base + filters[std::size_t{2} * i]);
    command.filters = reinterpret_cast<const Filter*>(filters);
    command.filter_count = packet->filter_count;
    command.ambient = packet->ambient;
    command.program = packet->program;
    command.die_with_parent = packet->die_with_parent != 0;
    return command;
}

/// The command's side, in the memory that it shares with init until exec.
void run_command(void* argument)
{
    auto& start = *static_cast<Start*>(argument);
    const auto fail = [&](Tell kind, int error) {
        start.failure = kind;
        start.error = -error;
        raw::exit_group(1);
    };
    if (const int rc = runtime::prepare_command(start.command); rc < 0)
        fail(Tell::late_failed, rc);
    const int first = runtime::choose_candidate(start.command);
    if (first < 0)
        fail(Tell::exec_failed, first);
    if (const int rc = runtime::load_filters(start.command); rc < 0)
        fail(Tell::filter_failed, rc);
    fail(Tell::exec_failed, runtime::execute(start.command, first));
}

void tell(int channel, Tell kind, int value, int step = -5)
{
    const Message message{kind, value, step, 0};
    while (raw::write(channel, &message, sizeof message) == -EINTR) {
    }
}

/// Closes what neither init nor the supervisor needs: the command has its copies by now.
void close_others(const PacketHeader* packet)
{
    const auto* const keep =
        reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(packet) + packet->keep);
    unsigned first = 3;
    for (;;) {
        unsigned next = ~0U;
        const auto consider = [&](std::int32_t fd) {
            if (fd >= static_cast<std::int32_t>(first) && static_cast<unsigned>(fd) < next)
                next = static_cast<unsigned>(fd);
        };
        consider(packet->channel);
        for (std::uint32_t i = 0; i < packet->keep_count; ++i)
            consider(keep[i]);
        if (next > first)
            raw::close_range(first, next == ~0U ? ~0U : next - 1, 0);
        if (next == ~0U)
            return;
        first = next + 1;
    }
}

[[noreturn]] void stop(int channel, int error)
{
    tell(channel, Tell::late_failed, -error);
    raw::exit_group(1);
}

int shell_code(int status)
{
    const int signal = status & 0x7f;
    return signal != 0 ? 128 + signal : status >> 8 & 0xff;
}

/// Reaps what has ended already; whether nothing is left.
bool is_empty()
{
    int status = 0;
    int pid = 0;
    do {
        pid = raw::wait4(-1, &status, WNOHANG);
    } while (pid > 0 || pid == -EINTR);
    return pid < 0;
}

[[noreturn]] void reap(int channel, int command)
{
    int code = 1;
    for (;;) {
        int status = 0;
        const int pid = raw::wait4(-1, &status, 0);
        if (pid == -EINTR)
            continue;
        if (pid < 0)
            raw::exit_group(code);
        if (pid == command) {
            code = shell_code(status);
            tell(channel, Tell::exited, status, is_empty() ? 1 : 0);
        }
    }
}

/// What only the command needs is put away, and what confines it confines init too.
void settle(const PacketHeader* packet, const Command& command)
{
    close_others(packet);
    if (const int rc = raw::capset(0, 0, 0); rc < 0)
        stop(packet->channel, rc);
    const unsigned long ignore[4] = {1};  // SIG_IGN: a supervisor that left must not end us.
    raw::call(SYS_rt_sigaction, SIGPIPE, ignore, nullptr, 8);
    if (const int rc = runtime::load_filters(command); rc < 0)
        stop(packet->channel, rc);
}

bool supervisor_is_gone(int channel)
{
    pollfd fd{channel, 0, 0};
    const timespec now{};
    return raw::poll(&fd, 1, &now) > 0 && (fd.revents & POLLHUP) != 0;
}

int keep_from_command(const PacketHeader* packet)
{
    const auto* const keep =
        reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(packet) + packet->keep);
    int rc = raw::fcntl(packet->channel, F_SETFD, FD_CLOEXEC);
    if (rc >= 0 && packet->program >= 0)
        rc = raw::fcntl(packet->program, F_SETFD, FD_CLOEXEC);
    for (std::uint32_t i = 0; i < packet->keep_count; ++i)
        if (rc >= 0 && keep[i] >= 0)
            rc = raw::fcntl(keep[i], F_SETFD, FD_CLOEXEC);
    return rc;
}

[[noreturn]] void init_main(long argc, char** argv)
{
    if (argc != 2)
        raw::exit_group(1);
    const int fd = parse_number(argv[1]);
    wipe(argv[1]);
    PacketHeader* const packet = map_packet(fd);
    if (packet == nullptr)
        raw::exit_group(1);
    const int channel = packet->channel;
    const std::size_t size = packet->size;
    if (const int rc = raw::prctl(PR_SET_DUMPABLE, 0); rc < 0)
        stop(channel, rc);
    if (packet->die_with_parent != 0) {
        if (const int rc = raw::prctl(PR_SET_PDEATHSIG, SIGKILL); rc < 0)
            stop(channel, rc);
        if (supervisor_is_gone(channel))
            raw::exit_group(1);
    }
    const std::uint64_t none = 0;
    int rc = keep_from_command(packet);
    // Ignored, as a caller may have it, the kernel would throw the command's status away.
    if (rc >= 0)
        rc = raw::signal_default(SIGCHLD);
    if (rc >= 0)
        rc = raw::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (rc < 0)
        stop(channel, rc);
    Start start;
    start.command = unpack(packet);
    const long command = raw::clone(CLONE_VM | CLONE_VFORK | SIGCHLD, command_stack + stack_size,
                                    nullptr, run_command, &start);
    if (command < 0)
        stop(channel, static_cast<int>(command));
    if (start.error != 0) {
        tell(channel, start.failure, start.error);
        raw::exit_group(1);
    }
    settle(packet, start.command);
    tell(channel, Tell::started, static_cast<int>(command));
    raw::call(SYS_munmap, packet, size);
    reap(channel, static_cast<int>(command));
}

}  // namespace

extern "C" {
[[noreturn]] void nsbox_init_start(long* stack);
void* memcpy(void* to, const void* from, std::size_t size);
void* memset(void* to, int value, std::size_t size);

[[noreturn]] void nsbox_init_start(long* stack)
{
    init_main(stack[0], reinterpret_cast<char**>(stack + 1));
}

// What the compiler may call on its own.
void* memcpy(void* to, const void* from, std::size_t size)
{
    auto* out = static_cast<char*>(to);
    const auto* in = static_cast<const char*>(from);
    while (size-- > 0)
        *out++ = *in++;
    return to;
}

void* memset(void* to, int value, std::size_t size)
{
    auto* out = static_cast<volatile char*>(to);
    while (size-- > 0)
        *out++ = static_cast<char>(value);
    return to;
}
}

#if defined(__x86_64__)
__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call nsbox_init_start\n"
        "    ud2\n");
#else
__asm__(".globl _start\n"
        "_start:\n"
        "    mov x29, xzr\n"
        "    mov x0, sp\n"
        "    bl nsbox_init_start\n"
        "    brk 0\n");
#endif
