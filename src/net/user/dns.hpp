#pragma once

#include "net/user/address.hpp"
#include "net/user/packet.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace nsbox::net::user {

/// Hands DNS queries that came in datagrams on to the host's name servers and the answers back. A query
/// that is repeated goes to the next server. Those by TCP are NameStreams's. See RFC 1035.
class DnsForwarder {
public:
    /// Gets the answer, or nothing ever.
    using Reply = std::function<void(Bytes)>;

    static Result<DnsForwarder> create();

    /// As the host's resolv.conf names them.
    void set_servers(std::vector<SocketAddress> servers)
    {
        servers_ = std::move(servers);
        answering_ = 0;
    }
    /// The one that has answered last, or the first; null if there is none.
    const SocketAddress* server() const noexcept
    {
        return answering_ < servers_.size() ? &servers_[answering_] : nullptr;
    }

    /// Takes a query; what can be said at once is said before this returns. `asker` tells apart who
    /// asks. An answer of more than `most` bytes is cut, so that TCP is tried.
    void ask(Bytes query, std::string asker, std::size_t most, Reply reply);
    /// An epoll descriptor (epoll(7)): when it is readable, call handle().
    int descriptor() const noexcept { return epoll_.get(); }
    void handle();

private:
    using Clock = std::chrono::steady_clock;
    struct Query {
        std::vector<std::uint8_t> message;
        std::string asker;
        std::size_t most = 0;
        Reply reply;
        Clock::time_point until;
        std::size_t server = 0;  ///< How many have been asked before.
        sys::Fd socket;
    };

    explicit DnsForwarder(sys::Fd epoll) : epoll_(std::move(epoll)) {}
    bool send_on(Query& query);
    bool take_answer(Query& query);
    void forget_old();

    sys::Fd epoll_;
    std::vector<SocketAddress> servers_;
    std::size_t answering_ = 0;
    std::list<Query> queries_;  ///< The oldest first.
};

}  // namespace nsbox::net::user
