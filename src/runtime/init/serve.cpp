#include "runtime/init/serve.hpp"

#include "runtime/command.hpp"
#include "runtime/init/unpack.hpp"
#include "runtime/packet.hpp"
#include "sys/pass.hpp"
#include "sys/raw.hpp"

#include <csignal>
#include <cstddef>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

namespace nsbox::runtime::init {

namespace raw = sys::raw;

namespace {

constexpr std::size_t stack_size = 32768;
alignas(16) char child_stack[stack_size];

constexpr std::size_t page_size = 4096;

/// A request as it arrives, with pages of its own, which are given back when it has been served: nothing of one
/// command is there for another.
struct alignas(page_size) Incoming {
    SpawnRequest request;
    alignas(8) char packet[most_inline];
};
Incoming incoming;

/// A command that runs.
struct Ward {
    int pid;
    int report;  ///< The socket on which its end is told.
};

/// All of them, in memory of the kernel's own units.
struct {
    Ward* at = nullptr;
    std::size_t count = 0;
    std::size_t room = 0;
} wards;

constexpr std::size_t first_bytes = 4096;

/// Before a command is started, since afterwards it is too late to fail.
int make_room() noexcept
{
    if (wards.count < wards.room)
        return 0;
    const std::size_t old = wards.room * sizeof(Ward);
    const std::size_t size = old == 0 ? first_bytes : old * 2;
    const long rc = old == 0 ? raw::call(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                             : raw::call(SYS_mremap, wards.at, old, size, MREMAP_MAYMOVE);
    if (rc < 0 && rc > -4096)
        return static_cast<int>(rc);
    wards.at = reinterpret_cast<Ward*>(rc);
    wards.room = size / sizeof(Ward);
    return 0;
}

/// A request, on the way to a command.
struct Start {
    Command command{};
    const PacketHeader* packet = nullptr;
    const SpawnRequest* request = nullptr;
    const int* given = nullptr;
    bool is_filtered = false;
    Message failure{Tell::started, 0, 0, 0};
};

/// Each descriptor gets the number that it is to have. None may be overwritten that is still needed, so
/// they are moved out of the way first. All others are close-on-exec.
int place_descriptors(const Start& start) noexcept
{
    int free = 3;
    for (std::uint32_t i = 0; i < start.request->count; ++i)
        if (start.request->targets[i] >= free)
            free = start.request->targets[i] + 1;
    int moved[most_given];
    for (std::uint32_t i = 0; i < start.request->count; ++i) {
        moved[i] = raw::fcntl(start.given[i], F_DUPFD_CLOEXEC, free);
        if (moved[i] < 0)
            return moved[i];
    }
    for (std::uint32_t i = 0; i < start.request->count; ++i) {
        const long rc = raw::call(SYS_dup3, moved[i], start.request->targets[i], 0);
        if (rc < 0)
            return static_cast<int>(rc);
    }
    return 0;
}

int enter_directory(const Start& start) noexcept
{
    const char* const base = reinterpret_cast<const char*>(start.packet);
    int rc = 0;
    for (std::size_t i = 0; i < pwd_choices; ++i) {
        if (start.packet->directory[i] == 0)
            continue;
        rc = raw::chdir(base + start.packet->directory[i]);
        if (rc < 0)
            continue;
        start.command.envp[start.packet->pwd_slot] = base + start.packet->pwd[i];
        return 0;
    }
    return rc;
}

/// The command's side, in the memory that it shares with init until exec.
void run_command(void* argument)
{
    auto& start = *static_cast<Start*>(argument);
    const auto fail = [&](Tell kind, int error) {
        start.failure = {kind, -error, kind == Tell::step_failed ? 0 : -5, 0};
        raw::exit_group(1);
    };
    if (const int rc = place_descriptors(start); rc < 0)
        fail(Tell::late_failed, rc);
    // Each has a session of its own, so that no one's signals to its group reach another.
    if (const int rc = raw::setsid(); rc < 0)
        fail(Tell::late_failed, rc);
    if (const int rc = enter_directory(start); rc < 0)
        fail(Tell::step_failed, rc);
    if (const int rc = prepare_command(start.command); rc < 0)
        fail(Tell::late_failed, rc);
    const int first = choose_candidate(start.command);
    if (first < 0)
        fail(Tell::exec_failed, first);
    if (!start.is_filtered)
        if (const int rc = load_filters(start.command); rc < 0)
            fail(Tell::filter_failed, rc);
    fail(Tell::exec_failed, execute(start.command, first));
}

void reply(int report, const Message& message) noexcept
{
    sys::send_with_descriptors(report, &message, sizeof message, nullptr, 0, MSG_DONTWAIT);
}

void reply(int report, int error) noexcept
{
    reply(report, Message{Tell::late_failed, -error, -5, 0});
}

/// The socket stays open where the command runs.
bool start_command(Start& start, int report) noexcept
{
    if (const int rc = make_room(); rc < 0) {
        reply(report, rc);
        return false;
    }
    int pidfd = -1;
    const long pid = raw::clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                                child_stack + stack_size, &pidfd, run_command, &start);
    if (pid < 0) {
        reply(report, static_cast<int>(pid));
        return false;
    }
    const bool runs = start.failure.kind == Tell::started;
    if (runs) {
        wards.at[wards.count++] = {static_cast<int>(pid), report};
        const Message message{Tell::started, static_cast<std::int32_t>(pid), 0, 0};
        // Whoever asked may have lost patience.
        if (sys::send_with_descriptors(report, &message, sizeof message, {pidfd}, MSG_DONTWAIT) < 0)
            raw::kill(static_cast<int>(pid), SIGKILL);
    } else {
        // Reaped with the others.
        reply(report, start.failure);
    }
    raw::close(pidfd);
    return runs;
}

/// The packet of the request, of which so many bytes have come, and nothing where it is not whole.
PacketHeader* packet_of(std::size_t got, int (&fds)[given_before + most_given], const int*& given)
{
    const SpawnRequest& request = incoming.request;
    const bool is_inline = got > offsetof(Incoming, packet);
    const std::size_t size = is_inline ? got - offsetof(Incoming, packet) : 0;
    given = fds + (is_inline ? 1 : 2);
    if (got < sizeof request || request.magic != packet_magic || request.inline_size != size ||
        request.count > most_given || fds[0] < 0)
        return nullptr;
    for (std::uint32_t i = 0; i < request.count; ++i)
        if (given[i] < 0 || request.targets[i] < 0)
            return nullptr;
    if (is_inline)
        return packet_in(incoming.packet, size);
    if (fds[1] < 0)
        return nullptr;
    PacketHeader* const packet = map_packet(fds[1]);
    fds[1] = -1;  // Closed by that.
    return packet;
}

/// Whether there may be another one.
bool take_request(const Service& service) noexcept
{
    int fds[given_before + most_given];
    const long got = sys::receive_with_descriptors(service.channel, &incoming, sizeof incoming, fds,
                                                   MSG_DONTWAIT);
    if (got == -EAGAIN)
        return true;
    if (got <= 0)
        return false;
    const int report = fds[0];
    bool keeps_report = false;
    Start start;
    PacketHeader* const packet = packet_of(static_cast<std::size_t>(got), fds, start.given);
    if (packet != nullptr) {
        const std::size_t size = packet->size;
        start.command = unpack(packet);
        start.packet = packet;
        start.request = &incoming.request;
        start.is_filtered = service.is_filtered;
        keeps_report = start_command(start, report);
        if (reinterpret_cast<char*>(packet) != incoming.packet)
            raw::call(SYS_munmap, packet, size);
    } else {
        // Of what was sent, as much comes as there is room for.
        reply(report, -EMFILE);
    }
    for (const int fd : fds)
        if (fd >= 0 && (fd != report || !keeps_report))
            raw::close(fd);
    raw::call(SYS_madvise, &incoming, sizeof incoming, MADV_DONTNEED);
    return true;
}

std::uint64_t microseconds(const timeval& time) noexcept
{
    return static_cast<std::uint64_t>(time.tv_sec) * 1000000 +
           static_cast<std::uint64_t>(time.tv_usec);
}

void tell_end(const Ward& ward, int status, const rusage& usage) noexcept
{
    const struct {
        Message message;
        CommandUsage usage;
    } report{{Tell::exited, status, 0, 0},
             {microseconds(usage.ru_utime), microseconds(usage.ru_stime),
              static_cast<std::uint64_t>(usage.ru_maxrss), ~std::uint64_t{0}}};
    sys::send_with_descriptors(ward.report, &report, sizeof report, nullptr, 0, MSG_DONTWAIT);
    raw::close(ward.report);
}

void reap(const Service& service) noexcept
{
    signalfd_siginfo info[8];
    while (raw::read(service.ended, info, sizeof info) > 0) {
    }
    for (;;) {
        int status = 0;
        rusage usage{};
        const int pid = raw::wait4(-1, &status, WNOHANG, &usage);
        // The signal has been read: nothing would bring us back here.
        if (pid == -EINTR)
            continue;
        if (pid <= 0)
            return;
        for (std::size_t i = 0; i < wards.count; ++i)
            if (wards.at[i].pid == pid) {
                tell_end(wards.at[i], status, usage);
                wards.at[i] = wards.at[--wards.count];
                break;
            }
    }
}

}  // namespace

int watch_children() noexcept
{
    const std::uint64_t mask = std::uint64_t{1} << (SIGCHLD - 1);
    const int rc = raw::sigprocmask(SIG_BLOCK, &mask, nullptr);
    return rc < 0 ? rc
                  : static_cast<int>(raw::call(SYS_signalfd4, -1, &mask, sizeof mask,
                                               SFD_CLOEXEC | SFD_NONBLOCK));
}

void serve(const Service& service) noexcept
{
    for (;;) {
        pollfd fds[] = {{service.ended, POLLIN, 0},
                        {service.supervisor, POLLIN, 0},
                        {service.helper, POLLIN, 0},
                        {service.channel, POLLIN, 0}};
        if (raw::poll(fds, sizeof fds / sizeof fds[0], nullptr) < 0)
            continue;
        // First, so that a number is not another command's by then.
        if (fds[0].revents != 0)
            reap(service);
        if (fds[1].revents != 0 || fds[2].revents != 0)
            break;
        if (fds[3].revents != 0 && !take_request(service))
            break;
    }
    raw::exit_group(0);
}

}  // namespace nsbox::runtime::init
