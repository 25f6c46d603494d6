#include "net/user/tcp_relay.hpp"

#include "net/user/guest.hpp"
#include "net/user/socket.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>

namespace nsbox::net::user {

namespace {

using sys::Fd;

constexpr int connections_a_turn = 64;
constexpr int pause_when_short = 50;  // Milliseconds.
constexpr std::uint16_t dns_port = 53;

const GuestNetwork guest;

bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

SocketAddress target_of(const Destination& wanted, const Rules& rules, const SocketAddress* server)
{
    const Address& to = wanted.address;
    if ((to == guest.dns4 || to == guest.dns6) && wanted.port == dns_port)
        return rules.outbound && server != nullptr ? *server : SocketAddress{};
    Packet packet;
    packet.kind = Kind::ip;
    packet.destination = to;
    packet.protocol = protocol_tcp;
    packet.has_ports = true;
    packet.destination_port = wanted.port;
    if (judge(rules, packet) != Verdict::pass)
        return {};
    if (to == guest.gateway4)
        return socket_address(ipv4(127, 0, 0, 1), wanted.port);
    if (to == guest.gateway6)
        return socket_address(ipv6(0, 1), wanted.port);
    return socket_address(to, wanted.port);
}

int TcpRelay::add_to(pollfd* fds) const noexcept
{
    for (std::size_t i = 0; i < slots; ++i) {
        const bool is_there = i < redirection_.listeners.size() && !is_short_;
        fds[i] = {is_there ? redirection_.listeners[i].get() : -1, POLLIN, 0};
    }
    return is_short_ ? pause_when_short : -1;
}

void TcpRelay::handle(const pollfd* fds)
{
    const bool was_short = std::exchange(is_short_, false);
    for (std::size_t i = 0; i < redirection_.listeners.size(); ++i)
        if (was_short || fds[i].revents != 0)
            accept_some(redirection_.listeners[i].get());
}

void TcpRelay::accept_some(int listener)
{
    for (int i = 0; i < connections_a_turn && !is_short_; ++i) {
        if (!spare_)
            spare_ = Fd{::fcntl(listener, F_DUPFD_CLOEXEC, 0)};
        if (!spare_) {
            is_short_ = true;  // Those that wait go on waiting.
            return;
        }
        Fd client{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (client)
            take(std::move(client));
        else if (is_shortage(errno))
            is_short_ = true;
        else if (errno == EAGAIN)
            return;
    }
}

void TcpRelay::take(Fd client)
{
    Destination wanted;
    const SocketAddress target = original_destination(client.get(), wanted)
                                     ? target_of(wanted, rules_, dns_.server())
                                     : SocketAddress{};
    if (target.size == 0)
        return reset(std::move(client));
    const auto open = [&target] {
        return Fd{
            ::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP)};
    };
    Fd server = open();
    if (!server && is_shortage(errno)) {
        spare_.reset();
        server = open();
    }
    if (!server || (::connect(server.get(), target.get(), target.size) < 0 && errno != EINPROGRESS))
        return reset(std::move(client));
    relay_.join(std::move(client), std::move(server));
}

}  // namespace nsbox::net::user
