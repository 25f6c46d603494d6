#include "net/helper_client.hpp"

#include "sys/packing.hpp"
#include "sys/pass.hpp"
#include "sys/raw.hpp"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::net {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using sys::pack;

constexpr const char* program_name = "nsbox-net";
constexpr Literal cannot_start{"Can't start the network helper"};

/// Beside this program, or where it was installed to.
Result<std::string> find_program()
{
    std::array<char, 4096> text;
    const long got = raw::readlinkat(AT_FDCWD, "/proc/self/exe", text.data(), text.size());
    const std::string own(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    const std::string beside = own.substr(0, own.rfind('/') + 1) + program_name;
    const std::string installed = std::string{NSBOX_HELPER_DIR "/"} + program_name;
    for (const std::string& path : {beside, installed})
        if (raw::faccessat(AT_FDCWD, path.c_str(), X_OK) == 0)
            return path;
    return fail(cannot_start, ENOENT, beside, "nor is it " + installed);
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
                                                          std::vector<Published> ports)
{
    std::unique_ptr<HelperClient> client{new HelperClient};
    std::vector<std::vector<Fd>> taken;
    taken.reserve(ports.size());
    for (Published& port : ports)
        taken.push_back(TRY(take_port(port)));
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fail(cannot_start, errno, "socketpair");
    client->channel_ = Fd{ends[0]};
    config.servers = client->resolv_conf_.now().servers;
    TRY(client->execute(Fd{ends[1]}));
    TRY(client->say(encode(config)));
    for (std::size_t i = 0; i < ports.size(); ++i)
        for (const Fd& socket : taken[i])
            TRY(client->say_with(user::encode_forward({ports[i].udp, target_of(ports[i])}),
                                 socket));
    client->ports_ = std::move(ports);
    return client;
}

Result<> HelperClient::say(const std::string& bytes)
{
    if (::send(channel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0)
        return {};
    if (errno == EPIPE || errno == ECONNRESET)
        return hear();  // It may have said why.
    return fail("Can't speak to the network helper", errno);
}

Result<> HelperClient::say_with(const std::string& bytes, const Fd& descriptor)
{
    const int fds[] = {descriptor.get()};
    const long put = sys::send_with_descriptors(channel_.get(), bytes.data(), bytes.size(), fds);
    if (put == -EPIPE || put == -ECONNRESET)
        return hear();
    if (put < 0)
        return fail("Can't speak to the network helper", static_cast<int>(-put));
    return {};
}

Result<> HelperClient::execute(Fd theirs)
{
    const std::string path = TRY(find_program());
    pid_t pid = -1;
    if (const int rc = Spawn{}.run(path, theirs.get(), pid); rc != 0)
        return fail(cannot_start, rc, path);
    process_ = Fd{raw::pidfd_open(pid)};
    if (!process_)
        return fail(cannot_start, -process_.error(), "pidfd_open");
    return {};
}

HelperClient::~HelperClient()
{
    if (!process_)
        return;
    channel_.reset();
    if (!is_following_)
        raw::pidfd_send_signal(process_.get(), SIGKILL);
    siginfo_t info{};
    const int wait = is_following_ ? WNOHANG : 0;
    while (::waitid(P_PIDFD, static_cast<id_t>(process_.get()), &info, WEXITED | wait) < 0 &&
           errno == EINTR) {
    }
}

Result<> HelperClient::attach(const Fd& network)
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(user::Order::attach));
    return say_with(bytes, network);
}

void HelperClient::follow(const Fd& pidfd)
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(user::Order::follow));
    // One that is not there any more is noticed by its end of the channel.
    is_following_ = say_with(bytes, pidfd).has_value();
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
    sys::Unpacker from{bytes};
    (void)from.number();  // Answer::failed.
    const std::string why = bytes.empty() ? "" : from.text();
    return refuse("The network helper failed", {}, why.empty() ? "it has ended" : why);
}

void HelperClient::add_to(std::vector<pollfd>& fds)
{
    at_ = fds.size();
    fds.push_back({channel_ ? channel_.get() : -1, POLLIN, 0});
    fds.push_back({resolv_conf_.descriptor(), POLLIN, 0});
}

Result<> HelperClient::handle(const std::vector<pollfd>& fds)
{
    if (fds[at_ + 1].revents != 0 && resolv_conf_.update()) {
        const std::string bytes = user::encode_servers(resolv_conf_.now().servers);
        ::send(channel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (fds[at_].revents == 0)
        return {};
    Result<> heard = hear();
    if (!heard)
        channel_.reset();
    return heard;
}

void HelperClient::await_end()
{
    constexpr int patience = 2000;
    pollfd fd{channel_ ? channel_.get() : -1, POLLIN, 0};
    while (channel_ && !ports_.empty() && ::poll(&fd, 1, patience) > 0)
        if (!hear())
            channel_.reset();
}

std::vector<int> HelperClient::descriptors() const
{
    std::vector<int> fds{channel_.get(), process_.get()};
    if (resolv_conf_.descriptor() >= 0)
        fds.push_back(resolv_conf_.descriptor());
    return fds;
}

}  // namespace nsbox::net
