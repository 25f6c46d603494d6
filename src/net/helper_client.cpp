#include "net/helper_client.hpp"

#include "sys/helper_program.hpp"
#include "sys/packing.hpp"
#include "sys/pass.hpp"
#include "sys/process.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::net {

namespace {

using sys::Fd;
using sys::pack;

constexpr const char* program_name = "nsbox-net";
constexpr Literal cannot_start{"Can't start the network helper"};

tl::unexpected<Error> ended()
{
    return refuse("The network helper failed", {}, "it has ended");
}

std::string order_for(std::uint64_t number, const PublishedPort& port, std::size_t sockets,
                      bool is_awaited)
{
    return user::encode_forward(
        {number, forward_kind(port.kind), target_of(port), sockets, is_awaited});
}

std::vector<int> numbers_of(const std::vector<Fd>& descriptors)
{
    std::vector<int> numbers;
    numbers.reserve(descriptors.size());
    for (const Fd& fd : descriptors)
        numbers.push_back(fd.get());
    return numbers;
}

Result<std::string> working_directory()
{
    std::array<char, PATH_MAX> text;
    if (::getcwd(text.data(), text.size()) == nullptr)
        return fail("Can't find the working directory", errno);
    return std::string{text.data()};
}

/// What a new process is to have open, and the attributes of posix_spawn(3).
class Spawn {
public:
    Spawn()
    {
        ::posix_spawn_file_actions_init(&actions_);
        ::posix_spawnattr_init(&attributes_);
    }
    Spawn(const Spawn&) = delete;
    Spawn& operator=(const Spawn&) = delete;
    ~Spawn()
    {
        ::posix_spawnattr_destroy(&attributes_);
        ::posix_spawn_file_actions_destroy(&actions_);
    }

    int run(const std::string& path, int channel, pid_t& pid)
    {
        // Through a number that the next steps leave alone.
        constexpr int spare = user::helper_channel + 1;
        ::posix_spawn_file_actions_adddup2(&actions_, channel, spare);
        ::posix_spawn_file_actions_adddup2(&actions_, spare, user::helper_channel);
        for (int fd = 0; fd <= 2; ++fd)
            ::posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDWR, 0);
        ::posix_spawn_file_actions_addclosefrom_np(&actions_, spare);
        // What a terminal sends to this process's group is not meant for it.
        ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                     POSIX_SPAWN_SETSIGDEF);
        sigset_t set;
        ::sigemptyset(&set);
        ::posix_spawnattr_setsigmask(&attributes_, &set);
        ::sigfillset(&set);
        ::posix_spawnattr_setsigdefault(&attributes_, &set);
        std::string name = program_name;
        char* const argv[] = {name.data(), nullptr};
        char* const environment[] = {nullptr};
        return ::posix_spawn(&pid, path.c_str(), &actions_, &attributes_, argv, environment);
    }

private:
    posix_spawn_file_actions_t actions_;
    posix_spawnattr_t attributes_;
};

}  // namespace

Result<std::unique_ptr<HelperClient>> HelperClient::start(user::HelperConfig config,
                                                          std::vector<PublishedPort> ports,
                                                          Guard guard)
{
    std::unique_ptr<HelperClient> client{new HelperClient{std::move(guard)}};
    std::vector<std::vector<Fd>> sockets(ports.size());
    for (std::size_t i = 0; i < ports.size(); ++i)
        client->doors_.push_back(TRY(client->open_door(std::move(ports[i]), sockets[i])));
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fail(cannot_start, errno, "socketpair");
    client->channel_ = Fd{ends[0]};
    config.servers = client->resolv_conf_.now().servers;
    TRY(client->execute(Fd{ends[1]}));
    TRY(client->say(encode(config)));
    for (std::size_t i = 0; i < sockets.size(); ++i)
        TRY(client->say(
            order_for(client->doors_[i].number, client->doors_[i].port, sockets[i].size(), false),
            numbers_of(sockets[i])));
    return client;
}

// Ports.

Result<HelperClient::Door> HelperClient::open_door(PublishedPort port, std::vector<Fd>& sockets)
{
    using Kind = PublishedPort::Kind;
    TRY(check_port(port));
    if (!port.path.empty() && port.path[0] != '/')
        port.path = TRY(working_directory()) + "/" + port.path;
    for (const Door& door : doors_)
        if (is_same_place(door.port, port) && (port.outside != 0 || !port.path.empty()))
            return refuse("Can't publish a port", place_of(port), "it is published already");
    Door door;
    door.number = next_++;
    if (port.kind == Kind::host_socket) {
        door.place.emplace(TRY(SocketPlace::find(port.path)));
    } else if (port.kind == Kind::unix_socket) {
        door.socket.emplace(TRY(HostSocket::make(port.path)));
        sockets.push_back(door.socket->take());
        door.guard = TRY(guard_(door.socket->name(), door.socket->folder()));
    } else {
        sockets = TRY(take_port(port));
    }
    door.port = std::move(port);
    return door;
}

void HelperClient::close_door(Door& door)
{
    door.socket.reset();
    sys::end_process(door.guard);
}

std::vector<PublishedPort> HelperClient::ports() const
{
    const std::lock_guard lock{mutex_};
    std::vector<PublishedPort> all;
    for (const Door& door : doors_)
        all.push_back(door.port);
    return all;
}

Result<PublishedPort> HelperClient::add_port(PublishedPort port)
{
    const std::lock_guard lock{mutex_};
    std::vector<Fd> sockets;
    Door door = TRY(open_door(std::move(port), sockets));
    Result<> asked =
        ask(order_for(door.number, door.port, sockets.size(), true), numbers_of(sockets));
    if (!asked) {
        // It may be there after all, if only the answer was lost.
        if (channel_)
            (void)say(user::encode_pair(user::Order::unforward, door.number, 0));
        close_door(door);
        return tl::make_unexpected(std::move(asked.error()));
    }
    doors_.push_back(std::move(door));
    return doors_.back().port;
}

Result<PublishedPort> HelperClient::remove_port(const PublishedPort& port)
{
    const std::lock_guard lock{mutex_};
    const auto found = std::find_if(doors_.begin(), doors_.end(), [&](const Door& door) {
        return is_same_place(door.port, port);
    });
    if (found == doors_.end())
        return refuse("Can't remove a port", place_of(port), "it is not published");
    TRY(ask(user::encode_pair(user::Order::unforward, found->number, 0), {}));
    PublishedPort removed = std::move(found->port);
    close_door(*found);
    doors_.erase(found);
    return removed;
}

// Unix sockets, for the helper, which can open no path.

void HelperClient::connect(std::uint64_t number, std::uint64_t token)
{
    constexpr std::chrono::seconds patience{5};
    for (const Door& door : doors_) {
        if (door.number != number)
            continue;
        const Attempt what{token, number, Clock::now() + patience};
        if (!attempt(what))
            attempts_.push_back(what);
        return;
    }
    answer(user::Order::connected, token, Fd{-ECONNREFUSED});
}

/// False where it is to be tried again.
bool HelperClient::attempt(const Attempt& what)
{
    Fd socket{-ECONNREFUSED};
    for (const Door& door : doors_)
        if (door.number == what.number && door.place)
            socket = door.place->connect();
    if (!socket && socket.error() == -EAGAIN && Clock::now() < what.until)
        return false;
    answer(user::Order::connected, what.token, socket);
    return true;
}

void HelperClient::renew(std::uint64_t number, std::uint64_t token)
{
    Fd socket{-ENOENT};
    for (Door& door : doors_)
        if (door.number == number && door.socket)
            socket = door.socket->take();
    answer(user::Order::renewed, token, socket);
}

void HelperClient::answer(user::Order order, std::uint64_t token, const Fd& socket)
{
    const auto error = static_cast<std::uint64_t>(socket ? 0 : -socket.error());
    // One that has ended is heard of.
    if (!say(user::encode_pair(order, token, error),
             socket ? std::vector<int>{socket.get()} : std::vector<int>{}) &&
        socket)
        (void)say(user::encode_pair(order, token, ENOBUFS));
}

// The channel.

Result<> HelperClient::say(const std::string& bytes, const std::vector<int>& descriptors)
{
    const long put = sys::send_with_descriptors(channel_.get(), bytes.data(), bytes.size(),
                                                descriptors.data(), descriptors.size());
    if (put == -EPIPE || put == -ECONNRESET)
        return is_ready_ ? ended() : hear();  // It may have said why.
    if (put < 0)
        return fail("Can't speak to the network helper", static_cast<int>(-put));
    return {};
}

/// Says something, and waits until it is done.
Result<> HelperClient::ask(const std::string& bytes, std::vector<int> descriptors)
{
    constexpr int patience = 5000;
    if (!channel_)
        return ended();
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fail("Can't speak to the network helper", errno, "socketpair");
    const Fd ours{ends[0]};
    Fd theirs{ends[1]};
    descriptors.push_back(theirs.get());
    TRY(say(bytes, descriptors));
    theirs.reset();
    pollfd fd{ours.get(), POLLIN, 0};
    int ready = 0;
    do {
        ready = ::poll(&fd, 1, patience);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return refuse("The network helper failed", {}, "it does not answer");
    std::string answer(4096, '\0');
    const ssize_t got = ::recv(ours.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (got <= 0)
        return ended();
    answer.resize(static_cast<std::size_t>(got));
    const std::string wrong = sys::Unpacker{answer}.text();
    return wrong.empty() ? Result<>{} : refuse("", wrong);
}

Result<> HelperClient::execute(Fd theirs)
{
    const std::string path = TRY(sys::find_helper(program_name, cannot_start));
    pid_t pid = -1;
    if (const int rc = Spawn{}.run(path, theirs.get(), pid); rc != 0)
        return fail(cannot_start, rc, path);
    process_ = sys::hold_child(pid);
    if (!process_)
        return fail(cannot_start, -process_.error(), "pidfd_open");
    return {};
}

HelperClient::~HelperClient()
{
    for (Door& door : doors_)
        close_door(door);
    channel_.reset();
    if (is_following_)
        (void)sys::reap_if_dead(process_);
    else
        sys::end_process(process_);
}

Result<> HelperClient::attach(const Fd& network)
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(user::Order::attach));
    return say(bytes, {network.get()});
}

void HelperClient::follow(const Fd& pidfd)
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(user::Order::follow));
    // One that is not there any more is noticed by its end of the channel.
    is_following_ = say(bytes, {pidfd.get()}).has_value();
}

Result<> HelperClient::unfollow()
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(user::Order::unfollow));
    const std::lock_guard lock{mutex_};
    TRY(ask(bytes, {}));
    is_following_ = false;
    return {};
}

Result<> HelperClient::hear()
{
    std::string bytes(4096, '\0');
    ssize_t got = 0;
    do {
        got = ::recv(channel_.get(), bytes.data(), bytes.size(), 0);
    } while (got < 0 && errno == EINTR);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    if (user::decode_report(bytes, link_)) {
        is_ready_ = true;
        return {};
    }
    std::uint64_t number = 0;
    std::uint64_t token = 0;
    if (user::decode_pair(bytes, user::Answer::connect, number, token)) {
        const std::lock_guard lock{mutex_};
        connect(number, token);
        return {};
    }
    if (user::decode_pair(bytes, user::Answer::renew, number, token)) {
        const std::lock_guard lock{mutex_};
        renew(number, token);
        return {};
    }
    sys::Unpacker from{bytes};
    (void)from.number();  // Answer::failed.
    const std::string why = bytes.empty() ? "" : from.text();
    return why.empty() ? ended() : refuse("The network helper failed", {}, why);
}

void HelperClient::add_to(std::vector<pollfd>& fds)
{
    at_ = fds.size();
    fds.push_back({channel_ ? channel_.get() : -1, POLLIN, 0});
    fds.push_back({resolv_conf_.descriptor(), POLLIN, 0});
}

int HelperClient::timeout() const
{
    constexpr int soon = 5;
    return attempts_.empty() ? -1 : soon;
}

Result<> HelperClient::handle(const std::vector<pollfd>& fds)
{
    if (fds[at_ + 1].revents != 0 && resolv_conf_.update()) {
        const std::string bytes = user::encode_servers(resolv_conf_.now().servers);
        ::send(channel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (!attempts_.empty()) {
        const std::lock_guard lock{mutex_};
        attempts_.erase(std::remove_if(attempts_.begin(), attempts_.end(),
                                       [this](const Attempt& what) { return attempt(what); }),
                        attempts_.end());
    }
    if (fds[at_].revents == 0)
        return {};
    Result<> heard = hear();
    if (!heard) {
        const std::lock_guard lock{mutex_};
        channel_.reset();
    }
    return heard;
}

void HelperClient::await_end()
{
    constexpr std::chrono::seconds patience{2};
    const auto until = Clock::now() + patience;
    pollfd fd{channel_ ? channel_.get() : -1, POLLIN, 0};
    while (channel_ && !ports().empty() && Clock::now() < until) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
        if (::poll(&fd, 1, static_cast<int>(left.count())) > 0 && !hear()) {
            const std::lock_guard lock{mutex_};
            channel_.reset();
        }
    }
    const std::lock_guard lock{mutex_};
    for (Door& door : doors_)
        close_door(door);
    doors_.clear();
}

void HelperClient::reap()
{
    constexpr int patience = 2000;
    pollfd end{process_.get(), POLLIN, 0};
    while (::poll(&end, 1, patience) < 0 && errno == EINTR) {
    }
    sys::end_process(process_);
    is_following_ = false;
}

std::vector<int> HelperClient::descriptors() const
{
    std::vector<int> fds;
    for (const int fd : {channel_.get(), process_.get(), resolv_conf_.descriptor()})
        if (fd >= 0)
            fds.push_back(fd);
    const std::lock_guard lock{mutex_};
    for (const Door& door : doors_) {
        if (door.socket)
            fds.push_back(door.socket->folder());
        if (door.place)
            fds.push_back(door.place->folder());
        if (door.guard)
            fds.push_back(door.guard.get());
    }
    return fds;
}

}  // namespace nsbox::net
