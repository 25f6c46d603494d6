#pragma once

#include "net/user/dns.hpp"
#include "net/user/judge.hpp"
#include "net/user/redirect.hpp"
#include "net/user/stream_relay.hpp"

#include <array>
#include <poll.h>

namespace nsbox::net::user {

/// Where a connection to `wanted` leads from this host; of size 0 if it may not be. Judged as a frame
/// would be, except that the name server's address leads to `server` over TCP too, if there is one.
SocketAddress target_of(const Destination& wanted, const Rules& rules, const SocketAddress* server);

/// Takes the connections that a Redirection leads here, judges each by the destination that it had,
/// connects to that one from this process's network namespace and hands both over to a StreamRelay.
/// What may not be, or cannot be connected, is reset. Everything it is given has to outlive it.
class TcpRelay {
public:
    TcpRelay(StreamRelay& relay, const Rules& rules, const DnsForwarder& dns)
        : relay_(relay), rules_(rules), dns_(dns)
    {}

    void begin(Redirection redirection) { redirection_ = std::move(redirection); }

    static constexpr std::size_t slots = 2;
    /// As part of a poll loop: takes this many places. The timeout in milliseconds, or -1.
    int add_to(pollfd* fds) const noexcept;
    /// After poll(2). Takes a bounded number of connections.
    void handle(const pollfd* fds);

private:
    void accept_some(int listener);
    void take(sys::Fd client);

    StreamRelay& relay_;
    const Rules& rules_;
    const DnsForwarder& dns_;
    Redirection redirection_;
    /// Held back for the second one of the next connection, so that the first is not taken in vain.
    sys::Fd spare_;
    bool is_short_ = false;  ///< There was no descriptor for the next connection.
};

}  // namespace nsbox::net::user
