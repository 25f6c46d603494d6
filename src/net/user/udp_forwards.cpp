#include "net/user/udp_forwards.hpp"

#include "net/user/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <utility>

namespace nsbox::net::user {

namespace {

constexpr std::size_t most_bytes = std::size_t{64} * 1024;
constexpr int datagrams_at_once = 64;
constexpr int events_at_once = 64;
constexpr std::size_t control_size = 128;
static_assert(control_size >= CMSG_SPACE(sizeof(in_pktinfo)) + CMSG_SPACE(sizeof(in6_pktinfo)));

template <class T>
void put_control(msghdr& header, int level, int type, const T& value)
{
    header.msg_controllen = CMSG_SPACE(sizeof value);
    cmsghdr* const item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = level;
    item->cmsg_type = type;
    item->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(item), &value, sizeof value);
}

}  // namespace

Result<std::unique_ptr<UdpForwards>> UdpForwards::create(InsideSockets& inside,
                                                         std::chrono::milliseconds idle,
                                                         std::size_t most_flows)
{
    std::unique_ptr<UdpForwards> forwards{new UdpForwards{inside}};
    forwards->idle_ = idle;
    forwards->most_flows_ = most_flows;
    forwards->epoll_ = sys::Fd{::epoll_create1(EPOLL_CLOEXEC)};
    if (!forwards->epoll_)
        return fail("Can't epoll_create1", errno);
    forwards->buffer_.resize(most_bytes);
    return forwards;
}

bool UdpForwards::watch(int socket, std::uint64_t id)
{
    // A level: an error that waits in the socket is gone once it was read.
    epoll_event event{EPOLLIN, {.u64 = id}};
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

Result<void> UdpForwards::add(std::uint64_t forward, sys::Fd outside, const SocketAddress& inside)
{
    const int socket = outside.get();
    const bool is_v4 = option_of(socket, SOL_SOCKET, SO_DOMAIN) == AF_INET;
    const bool is_set = is_v4 ? set_option(socket, IPPROTO_IP, IP_PKTINFO, 1)
                              : set_option(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    if (!is_set || !set_nonblocking(socket))
        return fail("Can't prepare the socket of a UDP forward", errno);
    const std::uint64_t id = next_id_++;
    if (!watch(socket, id))
        return fail("Can't watch the socket of a UDP forward", errno);
    doors_.emplace(id, Door{std::move(outside), inside, forward, is_v4});
    return {};
}

void UdpForwards::remove(std::uint64_t forward)
{
    for (auto door = doors_.begin(); door != doors_.end();) {
        if (door->second.forward != forward) {
            ++door;
            continue;
        }
        for (auto flow = flows_.begin(); flow != flows_.end();) {
            const auto next = std::next(flow);
            if (flow->client.door == door->first)
                end(flow);
            flow = next;
        }
        (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door->second.socket.get(), nullptr);
        door = doors_.erase(door);
    }
}

void UdpForwards::handle()
{
    epoll_event events[events_at_once];
    const int count = ::epoll_wait(epoll_.get(), events, events_at_once, 0);
    for (int i = 0; i < count; ++i) {
        // An earlier event may have ended the flow of a later one.
        const std::uint64_t id = events[i].data.u64;
        if (const auto door = doors_.find(id); door != doors_.end())
            from_outside(id, door->second);
        else if (const auto flow = by_id_.find(id); flow != by_id_.end())
            from_inside(flow->second);
    }
}

void UdpForwards::from_outside(std::uint64_t id, Door& door)
{
    for (int i = 0; i < datagrams_at_once; ++i) {
        Client client;
        client.door = id;
        std::size_t size = 0;
        if (!receive(door, client, size)) {
            if (errno == EAGAIN)
                return;
            continue;
        }
        const auto flow = flow_of(client, door);
        if (flow == flows_.end())
            continue;
        touch(flow);
        // The error of an earlier datagram is reported to the next one, which it does not concern.
        for (int attempt = 0; attempt < 2; ++attempt)
            if (::send(flow->socket.get(), buffer_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
                break;
    }
}

/// One datagram into the buffer; false: there was none, or an error.
bool UdpForwards::receive(const Door& door, Client& client, std::size_t& size)
{
    alignas(cmsghdr) char control[control_size];
    iovec part{buffer_.data(), buffer_.size()};
    msghdr header{};
    header.msg_name = client.address.data();
    header.msg_namelen = static_cast<socklen_t>(client.address.size());
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(door.socket.get(), &header, MSG_DONTWAIT);
    if (got < 0)
        return false;
    size = static_cast<std::size_t>(got);
    client.size = header.msg_namelen;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
         item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_PKTINFO) {
            in_pktinfo info{};
            std::memcpy(&info, CMSG_DATA(item), sizeof info);
            // Not ipi_addr, which may be a broadcast address.
            std::memcpy(client.local.data(), &info.ipi_spec_dst, sizeof info.ipi_spec_dst);
        } else if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_PKTINFO) {
            in6_pktinfo info{};
            std::memcpy(&info, CMSG_DATA(item), sizeof info);
            if (IN6_IS_ADDR_MULTICAST(&info.ipi6_addr))
                continue;
            std::memcpy(client.local.data(), &info.ipi6_addr, sizeof info.ipi6_addr);
            if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr))
                client.interface = info.ipi6_ifindex;
        }
    }
    return true;
}

/// The client's flow, made if there is none; flows_.end() if it cannot be made.
UdpForwards::Flows::iterator UdpForwards::flow_of(const Client& client, const Door& door)
{
    if (const auto known = by_client_.find(client); known != by_client_.end())
        return known->second;
    if (flows_.size() >= most_flows_)
        end(flows_.begin());
    sys::Fd socket = make_.make(door.inside.family(), SOCK_DGRAM, 0);
    const std::uint64_t id = next_id_++;
    if (!socket || ::connect(socket.get(), door.inside.get(), door.inside.size) < 0 ||
        !watch(socket.get(), id))
        return flows_.end();
    const auto flow = flows_.insert(flows_.end(), Flow{id, client, std::move(socket), {}});
    by_id_.emplace(id, flow);
    by_client_.emplace(client, flow);
    return flow;
}

void UdpForwards::from_inside(Flows::iterator flow)
{
    const auto door = doors_.find(flow->client.door);
    for (int i = 0; i < datagrams_at_once; ++i) {
        const ssize_t got =
            ::recv(flow->socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got < 0)
            continue;
        touch(flow);
        answer(door->second, flow->client, static_cast<std::size_t>(got));
    }
}

void UdpForwards::answer(const Door& door, const Client& client, std::size_t size)
{
    alignas(cmsghdr) char control[control_size] = {};
    iovec part{buffer_.data(), size};
    msghdr header{};
    header.msg_name = const_cast<unsigned char*>(client.address.data());
    header.msg_namelen = client.size;
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (door.is_v4) {
        in_pktinfo info{};
        std::memcpy(&info.ipi_spec_dst, client.local.data(), sizeof info.ipi_spec_dst);
        put_control(header, IPPROTO_IP, IP_PKTINFO, info);
    } else {
        in6_pktinfo info{};
        std::memcpy(&info.ipi6_addr, client.local.data(), sizeof info.ipi6_addr);
        info.ipi6_ifindex = client.interface;
        put_control(header, IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
    // A datagram that cannot leave is lost, as on any network.
    (void)::sendmsg(door.socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void UdpForwards::touch(Flows::iterator flow)
{
    flow->ends = Clock::now() + idle_;
    flows_.splice(flows_.end(), flows_, flow);
}

void UdpForwards::end(Flows::iterator flow)
{
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, flow->socket.get(), nullptr);
    by_id_.erase(flow->id);
    by_client_.erase(flow->client);
    flows_.erase(flow);
}

std::optional<UdpForwards::Clock::time_point> UdpForwards::deadline() const
{
    if (flows_.empty())
        return std::nullopt;
    return flows_.front().ends;
}

void UdpForwards::expire(Clock::time_point now)
{
    while (!flows_.empty() && flows_.front().ends <= now)
        end(flows_.begin());
}

}  // namespace nsbox::net::user
