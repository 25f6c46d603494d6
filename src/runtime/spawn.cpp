#include "runtime/describe.hpp"
#include "runtime/further_command.hpp"
#include "runtime/init_image.hpp"
#include "runtime/state.hpp"

#include "sys/pty.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace nsbox {

namespace {

namespace raw = sys::raw;
using runtime::Plan;
using runtime::Tell;
using sys::Fd;

constexpr Literal cannot{"Can't start the command"};

/// Both ends of a pipe or of a pair of sockets.
struct Ends {
    Fd ours;
    Fd theirs;
};

/// The descriptors that go along: what is opened for the command alone, and what of the caller's is lent.
class Gifts {
public:
    void lend(int fd, int number)
    {
        fds_.push_back(fd);
        numbers_.push_back(number);
    }
    void give(Fd fd, int number)
    {
        lend(fd.get(), number);
        owned_.push_back(std::move(fd));
    }
    /// What has a number already gets another one too.
    void repeat(int number, int other)
    {
        const auto at = std::find(numbers_.begin(), numbers_.end(), number);
        if (at != numbers_.end())
            lend(fds_[static_cast<std::size_t>(at - numbers_.begin())], other);
    }
    const std::vector<int>& fds() const { return fds_; }
    const std::vector<int>& numbers() const { return numbers_; }

private:
    std::vector<int> fds_;
    std::vector<int> numbers_;
    std::vector<Fd> owned_;
};

Result<Fd> open_null(int flags)
{
    Fd null{raw::openat(AT_FDCWD, "/dev/null", flags | O_CLOEXEC)};
    if (!null)
        return fail("Can't open", -null.error(), "/dev/null");
    return null;
}

/// `number` is that of the command's descriptor; what the Process is to have of it is `ours`.
Result<> add_stream(const Stream& stream, int number, Fd& ours, Gifts& gifts)
{
    const bool is_input = number == STDIN_FILENO;
    switch (stream.kind) {
    case Stream::Kind::inherit:
        gifts.lend(number, number);
        break;
    case Stream::Kind::null:
        gifts.give(TRY(open_null(is_input ? O_RDONLY : O_WRONLY)), number);
        break;
    case Stream::Kind::pipe: {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) < 0)
            return fail("pipe", errno);
        ours = Fd{ends[is_input ? 1 : 0]};
        gifts.give(Fd{ends[is_input ? 0 : 1]}, number);
        break;
    }
    case Stream::Kind::descriptor:
        gifts.lend(stream.number, number);
        break;
    case Stream::Kind::output:
        if (number != STDERR_FILENO)
            return refuse(cannot, {}, "only its error stream can lead to where its output does");
        gifts.repeat(STDOUT_FILENO, number);
        break;
    }
    return {};
}

Result<> add_terminal(const WindowSize& size, const Fd& terminals, Fd& ours, Gifts& gifts)
{
    constexpr Literal no_terminal{"Can't open a pseudo-terminal"};
    if (!terminals)
        return refuse(no_terminal, {}, "the sandbox has no devpts", "it takes a Dev at /dev");
    sys::PtyPair pair;
    // What is in a devpts cannot be moved or replaced.
    if (const int rc = sys::open_pty(terminals.get(), "ptmx", pair); rc < 0)
        return fail(no_terminal, -rc, {}, "it takes a Dev at /dev");
    ours = Fd{pair.master};
    gifts.give(Fd{pair.slave}, STDIN_FILENO);
    gifts.repeat(STDIN_FILENO, STDOUT_FILENO);
    gifts.repeat(STDIN_FILENO, STDERR_FILENO);
    if (size.rows != 0 || size.columns != 0)
        if (const int rc = sys::set_window_size(pair.master, size.rows, size.columns); rc < 0)
            return fail(no_terminal, -rc);
    return {};
}

Result<> add_descriptors(const Command& command, Gifts& gifts)
{
    constexpr DescriptorNumber most = 1 << 20;
    for (const auto& [ours, number] : command.descriptors) {
        if (number <= STDERR_FILENO || number >= most)
            return refuse(cannot, "descriptor " + std::to_string(number),
                          "further descriptors have numbers of 3 or more");
        const auto& taken = gifts.numbers();
        if (std::find(taken.begin(), taken.end(), number) != taken.end())
            return refuse(cannot, "descriptor " + std::to_string(number), "it is given twice");
        gifts.lend(ours, number);
    }
    if (gifts.fds().size() > runtime::most_given)
        return refuse(cannot, {},
                      "a command gets at most " + std::to_string(runtime::most_given) +
                          " descriptors");
    return {};
}

/// What init needs to know of the command: in the message, or in a file if it is large.
struct Packet {
    std::vector<unsigned char> bytes;
    Fd file;
};

Result<Packet> make_command_packet(const Serving& serving, const Command& command, Plan& plan)
{
    Entry entry;
    entry.command = command.words.empty() ? serving.command : command.words;
    entry.directory = command.directory;
    entry.environment = command.environment;
    if (entry.command.empty())
        return refuse("No command", {}, "there is nothing to execute");
    runtime::add_command(serving.recipe, entry, plan);
    if (command.argv0)
        plan.argv.front() = plan.keep(*command.argv0);
    const auto& place = std::get<runtime::ChangeDirectory>(plan.steps.back());
    if (place.wanted != nullptr)
        plan.directory[0] = place.wanted;
    else
        for (const auto& [i, path] : {std::pair{0, place.logical}, {2, place.home}, {3, "/"}})
            plan.directory[i] = path != nullptr && *path != '\0' ? path : nullptr;
    plan.terminal = command.terminal.has_value();
    plan.ambient = serving.recipe.ambient ? serving.recipe.capabilities.value_or(0) : 0;
    if (!serving.is_filtered)
        plan.filters = serving.recipe.filters;
    Packet packet{runtime::packet_bytes(plan, -1), {}};
    if (packet.bytes.size() <= runtime::most_inline)
        return packet;
    packet.bytes.clear();
    packet.file = TRY(runtime::make_packet());
    TRY(runtime::fill_packet(plan, -1, packet.file.get()));
    return packet;
}

/// One message, with as many descriptors as it takes.
Result<> send_request(int channel, const Packet& packet, int report, const Gifts& gifts)
{
    // Up to where init has the packet.
    constexpr std::size_t room = (sizeof(runtime::SpawnRequest) + 7) & ~std::size_t{7};
    alignas(8) char begin[room] = {};
    runtime::SpawnRequest request{};
    request.magic = runtime::packet_magic;
    request.inline_size = static_cast<std::uint32_t>(packet.bytes.size());
    request.count = static_cast<std::uint32_t>(gifts.fds().size());
    std::copy(gifts.numbers().begin(), gifts.numbers().end(), request.targets);
    std::memcpy(begin, &request, sizeof request);
    std::vector<int> fds{report};
    if (packet.file)
        fds.push_back(packet.file.get());
    fds.insert(fds.end(), gifts.fds().begin(), gifts.fds().end());
    const std::size_t size = fds.size() * sizeof(int);
    std::vector<std::uint64_t> control(CMSG_SPACE(size) / sizeof(std::uint64_t) + 1);
    iovec parts[] = {{begin, sizeof begin},
                     {const_cast<unsigned char*>(packet.bytes.data()), packet.bytes.size()}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = packet.bytes.empty() ? 1 : 2;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(attached), fds.data(), size);
    while (::sendmsg(channel, &header, MSG_NOSIGNAL) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return fail(cannot, ESRCH, {}, "the sandbox has ended");
        if (errno == EBADF)
            return fail(cannot, EBADF, {}, "one of its descriptors is not open");
        if (errno != EINTR)
            return fail(cannot, errno);
    }
    return {};
}

/// Its pidfd, when it is being executed.
Result<Fd> hear_start(const Fd& report, const Plan& plan, std::chrono::milliseconds patience,
                      Fd spare)
{
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        constexpr long long most = 1000000;
        pollfd fd{report.get(), POLLIN, 0};
        const int ready =
            ::poll(&fd, 1, static_cast<int>(std::clamp<long long>(left.count(), 0, most)));
        if (ready > 0)
            break;
        if (left.count() <= 0)
            return fail(cannot, ETIMEDOUT, {}, "something in the sandbox may hold it up");
    }
    spare.reset();
    runtime::Received received = runtime::receive(report.get(), MSG_DONTWAIT);
    if (received.error != 0)
        return fail(cannot, received.error);
    if (received.end)
        return fail(cannot, ESRCH, {}, "the sandbox has ended");
    if (received.message.kind != Tell::started)
        return tl::make_unexpected(describe_failure(plan, received.message, received.text));
    if (!received.descriptor)
        return fail(cannot, EMFILE, "a descriptor of the process");
    return std::move(received.descriptor);
}

Result<Ends> make_report()
{
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fail("socketpair", errno);
    return Ends{Fd{ends[0]}, Fd{ends[1]}};
}

/// What init has made of a request.
struct Started {
    Fd report;
    Fd pidfd;
};

Result<Started> try_start(int channel, const Packet& packet, const Plan& plan, const Gifts& gifts,
                          std::chrono::milliseconds patience)
{
    Ends ends = TRY(make_report());
    // Room for its pidfd: afterwards it would be too late to fail.
    Fd spare{raw::fcntl(ends.ours.get(), F_DUPFD_CLOEXEC, 0)};
    if (!spare)
        return fail(cannot, -spare.error());
    TRY(send_request(channel, packet, ends.theirs.get(), gifts));
    ends.theirs.reset();
    Fd pidfd = TRY(hear_start(ends.ours, plan, patience, std::move(spare)));
    return Started{std::move(ends.ours), std::move(pidfd)};
}

// A program that was written just now is busy (ETXTBSY, execve(2)) as long as a child that another thread has
// made meanwhile has a copy of the descriptor: until that executes its init, milliseconds later.
Result<Started> start_even_if_busy(int channel, const Packet& packet, const Plan& plan,
                                   const Gifts& gifts, std::chrono::milliseconds patience)
{
    constexpr std::chrono::milliseconds longest{256};
    for (std::chrono::milliseconds pause{1};; pause *= 2) {
        Result<Started> started = try_start(channel, packet, plan, gifts, patience);
        if (started || started.error().err != ETXTBSY || pause > longest)
            return started;
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace

Result<Process> Sandbox::spawn(const Command& command) const
{
    const Serving* const serving = state_->serving.get();
    if (serving == nullptr)
        return fail(cannot, ENOTSUP, {}, "make the sandbox with Sandbox::create()");
    if (serving->is_closed)
        return fail(cannot, ESRCH, {}, "the sandbox has been closed");
    auto process = std::make_unique<Process::State>();
    Gifts gifts;
    if (command.terminal) {
        TRY(add_terminal(*command.terminal, state_->running.terminals, process->terminal, gifts));
    } else {
        TRY(add_stream(command.input, STDIN_FILENO, process->input, gifts));
        TRY(add_stream(command.output, STDOUT_FILENO, process->output, gifts));
        TRY(add_stream(command.error, STDERR_FILENO, process->error, gifts));
    }
    TRY(add_descriptors(command, gifts));
    Plan plan;
    const Packet packet = TRY(make_command_packet(*serving, command, plan));
    process->memory = serving->memory;
    process->kills_before = serving->memory ? serving->memory->kills() : 0;
    Started started = TRY(
        start_even_if_busy(state_->running.channel.get(), packet, plan, gifts, command.patience));
    process->report = std::move(started.report);
    process->pidfd = std::move(started.pidfd);
    return Process{std::move(process)};
}

}  // namespace nsbox
