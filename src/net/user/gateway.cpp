#include "net/user/gateway.hpp"

#include "net/user/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <netinet/in.h>
#include <sys/epoll.h>

namespace nsbox::net::user {

namespace {

using sys::Fd;

constexpr Literal failed{"Can't serve the sandbox's gateway"};
constexpr std::uint16_t dns_port = 53;
constexpr int backlog = 4096;
constexpr int most_at_once = 64;
constexpr std::size_t most_flows = 1024;
constexpr std::chrono::milliseconds idle{60000};
constexpr std::uint64_t udp_mark = ~std::uint64_t{0};
/// The most that a datagram holds.
constexpr std::size_t most_bytes = 65507;

SocketAddress loopback_address(bool v6, std::uint16_t port)
{
    return socket_address(v6 ? ipv6(0, 1) : ipv4(127, 0, 0, 1), port);
}

std::size_t count_of(const std::vector<PortRange>& ranges)
{
    std::size_t count = 0;
    for (const PortRange& range : ranges)
        count += std::size_t{range.last} - range.first + 1;
    return count;
}

}  // namespace

Fd Gateway::OwnSockets::make(int family, int type, int protocol)
{
    Fd socket{::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol)};
    return socket ? std::move(socket) : Fd{-errno};
}

Result<std::unique_ptr<Gateway>> Gateway::create(const HostLink& link,
                                                 const std::vector<PortRange>& host_loopback,
                                                 DnsForwarder& dns, StreamRelay& relay)
{
    std::unique_ptr<Gateway> gateway{new Gateway{link, dns, relay}};
    TRY(gateway->open_all(host_loopback));
    return gateway;
}

Result<> Gateway::open_all(const std::vector<PortRange>& host_loopback)
{
    epoll_ = Fd{::epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll_)
        return fail(failed, errno, "epoll_create1");
    spare_ = Fd{::fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0)};
    udp_ = TRY(UdpForwards::create(own_sockets_, idle, most_flows));
    TRY(watch(udp_->descriptor(), udp_mark));
    buffer_.resize(most_bytes);
    for (const PortRange& range : host_loopback)
        for (unsigned port = range.first; port <= range.last; ++port)
            open_.set(port);
    if (link_.gateway4)
        TRY(open_family(false, host_loopback));
    if (link_.gateway6)
        TRY(open_family(true, host_loopback));
    return {};
}

Result<> Gateway::open_family(bool v6, const std::vector<PortRange>& host_loopback)
{
    TRY(add(Service::names, v6, SOCK_DGRAM, {{dns_port, dns_port}}));
    TRY(add(Service::name_streams, v6, SOCK_STREAM, {{dns_port, dns_port}}));
    if (host_loopback.empty())
        return {};
    TRY(add(Service::loopback, v6, SOCK_STREAM, host_loopback));
    if (count_of(host_loopback) > most_udp_ports)
        return {};
    for (const PortRange& range : host_loopback)
        for (unsigned port = range.first; port <= range.last; ++port)
            TRY(add_udp(v6, static_cast<std::uint16_t>(port)));
    return {};
}

/// Nobody reaches it but through the sandbox's link.
Result<Fd> Gateway::open_socket(bool v6, int type) const
{
    const SocketAddress address = socket_address(v6 ? *link_.gateway6 : *link_.gateway4, 0);
    Fd socket{::socket(address.family(), type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket)
        return fail(failed, errno, "a socket");
    if (v6)
        (void)set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, link_.entry.c_str(),
                     static_cast<socklen_t>(link_.entry.size())) < 0)
        return fail(failed, errno, link_.entry);
    if (::bind(socket.get(), address.get(), address.size) < 0)
        return fail(failed, errno, address.text());
    if (type == SOCK_STREAM && ::listen(socket.get(), backlog) < 0)
        return fail(failed, errno, address.text());
    return socket;
}

Result<> Gateway::add(Service service, bool v6, int type, const std::vector<PortRange>& ports)
{
    Fd socket = TRY(open_socket(v6, type));
    TRY(watch(socket.get(), sockets_.size()));
    for (const PortRange& range : ports)
        doors_.push_back({v6, type == SOCK_STREAM ? protocol_tcp : protocol_udp, range,
                          bound_address(socket.get()).port()});
    sockets_.push_back({service, v6, std::move(socket)});
    return {};
}

Result<> Gateway::add_udp(bool v6, std::uint16_t port)
{
    Fd socket = TRY(open_socket(v6, SOCK_DGRAM));
    doors_.push_back({v6, protocol_udp, {port, port}, bound_address(socket.get()).port()});
    TRY(udp_->add(port, std::move(socket), loopback_address(v6, port)));
    return {};
}

Result<> Gateway::watch(int fd, std::uint64_t token)
{
    epoll_event event{EPOLLIN, {.u64 = token}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
        return fail(failed, errno, "epoll_ctl");
    return {};
}

int Gateway::time_left() const
{
    const auto deadline = udp_->deadline();
    if (!deadline)
        return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<long long>(left.count(), 0, idle.count()));
}

void Gateway::handle()
{
    epoll_event events[most_at_once];
    const int count = ::epoll_wait(epoll_.get(), events, most_at_once, 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t token = events[i].data.u64;
        if (token == udp_mark)
            udp_->handle();
        else if (sockets_[token].service == Service::names)
            answer_names(sockets_[token]);
        else
            accept_some(sockets_[token]);
    }
    udp_->expire(std::chrono::steady_clock::now());
}

/// Others on a bridge could send here too.
bool Gateway::is_from_sandbox(const SocketAddress& peer, bool v6) const noexcept
{
    const Address& own = v6 ? link_.inside.address6 : link_.inside.address4;
    const void* const bytes =
        v6 ? static_cast<const void*>(
                 &reinterpret_cast<const sockaddr_in6&>(peer.storage).sin6_addr)
           : &reinterpret_cast<const sockaddr_in&>(peer.storage).sin_addr;
    return peer.family() == (v6 ? AF_INET6 : AF_INET) &&
           std::memcmp(bytes, own.bytes.data(), own.size()) == 0;
}

void Gateway::answer_names(const Socket& socket)
{
    const int fd = socket.fd.get();
    for (int i = 0; i < most_at_once; ++i) {
        SocketAddress peer;
        peer.size = sizeof peer.storage;
        const ssize_t got = ::recvfrom(fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT,
                                       reinterpret_cast<sockaddr*>(&peer.storage), &peer.size);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got < 0 || !is_from_sandbox(peer, socket.v6))
            continue;
        // What the sandbox does not take is lost, as on any network.
        dns_.ask(Bytes{buffer_.data(), static_cast<std::size_t>(got)},
                 {reinterpret_cast<const char*>(&peer.storage), peer.size}, most_bytes,
                 [fd, peer](Bytes answer) {
                     ::sendto(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              peer.get(), peer.size);
                 });
    }
}

void Gateway::accept_some(const Socket& socket)
{
    for (int i = 0; i < most_at_once; ++i) {
        SocketAddress peer;
        peer.size = sizeof peer.storage;
        Fd accepted{::accept4(socket.fd.get(), reinterpret_cast<sockaddr*>(&peer.storage),
                              &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (!accepted) {
            if (errno == EMFILE || errno == ENFILE)
                turn_away(socket.fd.get());
            return;
        }
        const std::optional<SocketAddress> target =
            is_from_sandbox(peer, socket.v6) ? target_of(socket, accepted.get()) : std::nullopt;
        Fd other = target ? own_sockets_.make(target->family(), SOCK_STREAM, 0) : Fd{};
        if (other &&
            (::connect(other.get(), target->get(), target->size) == 0 || errno == EINPROGRESS))
            relay_.join(std::move(accepted), std::move(other));
        else
            reset(std::move(accepted));
    }
}

/// One that waits would be reported again and again.
void Gateway::turn_away(int listener)
{
    spare_.reset();
    reset(Fd{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)});
    spare_ = Fd{::fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0)};
}

/// Where a connection is to lead; nothing where it may not.
std::optional<SocketAddress> Gateway::target_of(const Socket& socket, int accepted) const
{
    if (socket.service == Service::name_streams) {
        const SocketAddress* const server = dns_.server();
        return server != nullptr ? std::optional{*server} : std::nullopt;
    }
    SocketAddress asked;
    asked.size = sizeof asked.storage;
    const int level = socket.v6 ? SOL_IPV6 : SOL_IP;
    static_assert(SO_ORIGINAL_DST == IP6T_SO_ORIGINAL_DST);
    if (::getsockopt(accepted, level, SO_ORIGINAL_DST, &asked.storage, &asked.size) < 0 ||
        !open_[asked.port()])
        return std::nullopt;
    return loopback_address(socket.v6, asked.port());
}

}  // namespace nsbox::net::user
