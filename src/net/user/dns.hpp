#pragma once

#include "net/user/address.hpp"
#include "net/user/packet.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <functional>
#include <list>
#include <vector>

namespace nsbox::net::user {

/// Hands DNS queries in UDP datagrams from the sandbox on to the host's name servers and the answers
/// back; those by TCP are NameStreams's. A query that is repeated goes to the next server. See RFC 1035.
class DnsForwarder {
public:
    using SendFrame = std::function<void(Bytes)>;

    /// `mtu` is the sandbox's: an answer that does not fit is cut, so that TCP is tried.
    static Result<DnsForwarder> create(std::size_t mtu);

    /// As the host's resolv.conf names them.
    void set_servers(std::vector<SocketAddress> servers) { servers_ = std::move(servers); }
    const std::vector<SocketAddress>& servers() const noexcept { return servers_; }

    /// Takes a query; what can be said at once is sent at once.
    void ask(Bytes frame, const Packet& packet, const SendFrame& send);
    /// An epoll descriptor (epoll(7)): when it is readable, call handle().
    int descriptor() const noexcept { return epoll_.get(); }
    void handle(const SendFrame& send);

private:
    using Clock = std::chrono::steady_clock;
    struct Query {
        std::vector<std::uint8_t> frame;
        Packet packet;
        std::size_t server = 0;  ///< How many have been asked before.
        sys::Fd socket;
        Clock::time_point until;

        Bytes payload() const;
    };

    explicit DnsForwarder(sys::Fd epoll, std::size_t mtu) : epoll_(std::move(epoll)), mtu_(mtu) {}
    bool send_on(Query& query);
    bool take_answer(Query& query, const SendFrame& send);
    void refuse(const Query& query, const SendFrame& send) const;
    void forget_old();

    sys::Fd epoll_;
    std::size_t mtu_;
    std::vector<SocketAddress> servers_;
    std::list<Query> queries_;  ///< The oldest first.
};

}  // namespace nsbox::net::user
