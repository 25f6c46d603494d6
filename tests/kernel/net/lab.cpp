#include "tests/kernel/net/lab.hpp"

#include "tests/unit/support/files.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace nsbox::tests {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 60s;

[[noreturn]] void give_up(const std::string& what)
{
    throw std::runtime_error{what + ": " + ::strerror(errno)};
}

void new_network()
{
    if (::unshare(CLONE_NEWNET) < 0)
        give_up("unshare");
    const sys::Fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) < 0)
        give_up("bringing lo up");
}

sys::Fd this_network()
{
    return sys::Fd{::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)};
}

std::string name_of(int error)
{
    return ::strerrorname_np(error);
}

void be_patient(int socket)
{
    const timeval limit{std::chrono::seconds{patience}.count(), 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/// The bytes of a sequence that looks random, in order.
class Sequence {
public:
    explicit Sequence(std::uint64_t seed) : random_(seed) {}
    void fill(char* bytes, std::size_t count)
    {
        for (std::size_t i = 0; i < count; ++i) {
            if (left_ == 0) {
                word_ = random_.next();
                left_ = sizeof word_;
            }
            bytes[i] = static_cast<char>(word_);
            word_ >>= 8;
            --left_;
        }
    }

private:
    Random random_;
    std::uint64_t word_ = 0;
    std::size_t left_ = 0;
};

std::size_t portion(Random& random)
{
    // Mostly small ones, some of one byte, some larger than any buffer on the way.
    switch (random.below(8)) {
    case 0:
        return 1;
    case 1:
        return 1 + random.below(std::size_t{600} * 1024);
    default:
        return 1 + random.below(std::size_t{20} * 1024);
    }
}

}  // namespace

Lab::Lab()
{
    new_network();
    outer_ = this_network();
    new_network();
    inner_ = this_network();
    if (!outer_ || !inner_ || ::setns(outer_.get(), CLONE_NEWNET) < 0)
        give_up("network namespaces");
}

void Lab::inside(const std::function<void()>& body) const
{
    if (::setns(inner_.get(), CLONE_NEWNET) < 0)
        give_up("setns");
    body();
    if (::setns(outer_.get(), CLONE_NEWNET) < 0)
        give_up("setns");
}

sys::Fd Lab::make(int family, int type, int protocol)
{
    if (family == AF_NETLINK && !has_diag)
        return sys::Fd{-EPROTONOSUPPORT};
    sys::Fd socket;
    inside([&] {
        const int fd = ::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        socket = sys::Fd{fd < 0 ? -errno : fd};
    });
    ++made;
    return socket;
}

void PathConnector::connect(std::uint64_t number, std::uint64_t token)
{
    if (answers)
        forwards->connected(token, connected_to(unix_address(paths.at(number))));
    else
        unanswered.push_back(token);
}

bool PathConnector::renew(std::uint64_t number, std::uint64_t token)
{
    if (can_renew)
        to_renew.emplace_back(number, token);
    return can_renew;
}

Engine::Engine(Lab& lab, const net::user::ForwardLimits& limits)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
{
    auto relay = net::user::StreamRelay::create();
    if (!relay)
        throw std::runtime_error{relay.error().message()};
    relay_ = std::move(*relay);
    auto forwards = net::user::Forwards::create(*relay_, lab, connector, limits);
    if (!forwards)
        throw std::runtime_error{forwards.error().message()};
    forwards_ = std::move(*forwards);
    connector.forwards = forwards_.get();
    thread_ = std::thread{[this] { loop(); }};
}

Engine::~Engine()
{
    run([this] { ends_ = true; });
    thread_.join();
}

void Engine::run(const std::function<void()>& body)
{
    std::unique_lock lock{mutex_};
    task_ = body;
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    done_.wait(lock, [this] { return !task_; });
}

void Engine::loop()
{
    pollfd fds[] = {{wake_.get(), POLLIN, 0},
                    {relay_->descriptor(), POLLIN, 0},
                    {forwards_->descriptor(), POLLIN, 0}};
    while (!ends_) {
        (void)::poll(fds, 3, -1);
        if (fds[0].revents != 0) {
            const std::lock_guard lock{mutex_};
            std::uint64_t count = 0;
            (void)!::read(wake_.get(), &count, sizeof count);
            if (task_)
                task_();
            task_ = nullptr;
            done_.notify_all();
        }
        if (fds[1].revents != 0) {
            relay_->handle();
            ++turns_;
        }
        if (fds[2].revents != 0) {
            forwards_->handle();
            ++turns_;
        }
        for (const auto& [number, token] : std::exchange(connector.to_renew, {})) {
            const std::string& path = connector.paths.at(number);
            ::unlink(path.c_str());
            forwards_->renewed(token, bound(unix_address(path)));
        }
    }
}

void Engine::join(sys::Fd one, sys::Fd other)
{
    run([&] { relay_->join(std::move(one), std::move(other)); });
}

net::user::Forwards::Id Engine::add(net::user::Forward forward)
{
    net::user::Forwards::Id id = 0;
    run([&] {
        if (const auto added = forwards_->add(std::move(forward)))
            id = *added;
        else
            error = added.error();
    });
    return id;
}

bool Engine::remove(net::user::Forwards::Id id)
{
    bool removed = false;
    run([&] {
        const Result<void> result = forwards_->remove(id);
        removed = result.has_value();
        if (!removed)
            error = result.error();
    });
    return removed;
}

std::size_t Engine::pairs()
{
    std::size_t count = 0;
    run([&] { count = relay_->size(); });
    return count;
}

std::size_t Engine::flows()
{
    std::size_t count = 0;
    run([&] { count = forwards_->flows(); });
    return count;
}

bool Engine::comes_to_pairs(std::size_t count)
{
    return eventually([&] { return pairs() == count; });
}

long Engine::turns_at_rest() const
{
    // What was set off before may still have to settle.
    std::this_thread::sleep_for(200ms);
    const long before = turns_;
    std::this_thread::sleep_for(800ms);
    return turns_ - before;
}

net::user::SocketAddress address_of(const std::string& host, std::uint16_t port)
{
    net::user::SocketAddress address;
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        std::memcpy(&address.storage, &v4, sizeof v4);
        address.size = sizeof v4;
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        std::memcpy(&address.storage, &v6, sizeof v6);
        address.size = sizeof v6;
    }
    return address;
}

net::user::SocketAddress unix_address(const std::string& path)
{
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    net::user::SocketAddress address;
    std::memcpy(&address.storage, &name, sizeof name);
    address.size = sizeof name;
    return address;
}

sys::Fd bound(const net::user::SocketAddress& address, int type)
{
    sys::Fd socket{::socket(address.family(), type | SOCK_CLOEXEC, 0)};
    const int on = 1;
    if (type == SOCK_STREAM)
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6)
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (::bind(socket.get(), address.get(), address.size) < 0)
        give_up("bind to " + address.text());
    be_patient(socket.get());
    return socket;
}

sys::Fd listening(const net::user::SocketAddress& address)
{
    sys::Fd socket = bound(address);
    if (::listen(socket.get(), 4096) < 0)
        give_up("listen");
    return socket;
}

sys::Fd connected_to(const net::user::SocketAddress& address, int type)
{
    sys::Fd socket{::socket(address.family(), type | SOCK_CLOEXEC, 0)};
    be_patient(socket.get());
    if (::connect(socket.get(), address.get(), address.size) < 0)
        return sys::Fd{-errno};
    return socket;
}

sys::Fd accepted(const sys::Fd& listener)
{
    const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
        return sys::Fd{-errno};
    be_patient(fd);
    return sys::Fd{fd};
}

std::string attempt(const net::user::SocketAddress& address)
{
    const sys::Fd socket = connected_to(address);
    return socket ? "connected" : name_of(-socket.error());
}

std::string becomes(const net::user::SocketAddress& address, const std::string& answer)
{
    std::string last;
    eventually([&] { return (last = attempt(address)) == answer; });
    return last;
}

Ends tcp_ends(const std::string& host)
{
    const sys::Fd listener = listening(address_of(host, 0));
    Ends ends;
    ends.one = connected_to(net::user::bound_address(listener.get()));
    ends.other = accepted(listener);
    return ends;
}

Ends unix_ends()
{
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        give_up("socketpair");
    be_patient(fds[0]);
    be_patient(fds[1]);
    return {sys::Fd{fds[0]}, sys::Fd{fds[1]}};
}

bool send_all(const sys::Fd& socket, const std::string& bytes)
{
    for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t put =
            ::send(socket.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (put < 0)
            return false;
        done += static_cast<std::size_t>(put);
    }
    return true;
}

std::string receive_exactly(const sys::Fd& socket, std::size_t count)
{
    std::string bytes(count, '\0');
    std::size_t done = 0;
    while (done < count) {
        const ssize_t got = ::recv(socket.get(), bytes.data() + done, count - done, 0);
        if (got <= 0)
            break;
        done += static_cast<std::size_t>(got);
    }
    bytes.resize(done);
    return bytes;
}

std::string next_of(const sys::Fd& socket)
{
    char byte = 0;
    const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
    return got < 0 ? name_of(errno) : got == 0 ? "end" : "data";
}

void close_with_reset(sys::Fd socket)
{
    const linger at_once{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

bool send_sequence(const sys::Fd& socket, std::size_t total, std::uint64_t seed)
{
    Sequence sequence{seed};
    Random random{seed + 1};
    std::string bytes;
    for (std::size_t done = 0; done < total; done += bytes.size()) {
        bytes.resize(std::min(portion(random), total - done));
        sequence.fill(bytes.data(), bytes.size());
        if (!send_all(socket, bytes))
            return false;
    }
    return ::shutdown(socket.get(), SHUT_WR) == 0;
}

std::string check_sequence(const sys::Fd& socket, std::size_t total, std::uint64_t seed)
{
    Sequence sequence{seed};
    Random random{seed + 2};
    std::string bytes;
    std::string wanted;
    std::size_t done = 0;
    for (;;) {
        bytes.resize(portion(random));
        const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
        if (got < 0)
            return name_of(errno) + " after " + std::to_string(done);
        if (got == 0)
            return done == total ? "good" : "an end after " + std::to_string(done);
        wanted.resize(static_cast<std::size_t>(got));
        sequence.fill(wanted.data(), wanted.size());
        if (bytes.compare(0, wanted.size(), wanted) != 0)
            return "other bytes after " + std::to_string(done);
        done += wanted.size();
    }
}

std::string exchange(const sys::Fd& one, const sys::Fd& other, std::size_t total)
{
    bool there_sent = false;
    bool back_sent = false;
    std::string there;
    std::string back;
    std::thread threads[] = {
        std::thread{[&] { there_sent = send_sequence(one, total, 1); }},
        std::thread{[&] { there = check_sequence(other, total, 1); }},
        std::thread{[&] { back_sent = send_sequence(other, total, 77); }},
        std::thread{[&] { back = check_sequence(one, total, 77); }},
    };
    for (std::thread& thread : threads)
        thread.join();
    if (there == "good" && back == "good" && there_sent && back_sent)
        return "good";
    return "there: " + there + ", back: " + back;
}

std::size_t open_descriptors()
{
    std::size_t count = 0;
    DIR* const directory = ::opendir("/proc/self/fd");
    while (::readdir(directory) != nullptr)
        ++count;
    ::closedir(directory);
    return count;
}

bool eventually(const std::function<bool()>& state)
{
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!state()) {
        if (std::chrono::steady_clock::now() > deadline)
            return false;
        std::this_thread::sleep_for(2ms);
    }
    return true;
}

Ended in_lab(const std::function<void(Say&, Lab&)>& body)
{
    return in_child(Where::own_namespaces, [&](Say& say) {
        Lab lab;
        body(say, lab);
    });
}

}  // namespace nsbox::tests
