#pragma once

#include "net/user/dns.hpp"
#include "net/user/host_link.hpp"
#include "net/user/inside.hpp"
#include "net/user/stream_relay.hpp"
#include "net/user/udp_forwards.hpp"

#include <bitset>
#include <memory>
#include <optional>
#include <vector>

namespace nsbox::net::user {

/// What a sandbox finds at the gateway's addresses, where the host has the other end of its link: a
/// name server, and ports of the host's loopback. The sockets have ports that the kernel chose, so
/// that they are in nobody's way; packet rules lead there.
class Gateway {
public:
    /// A port of the gateway, and that of the socket which serves it.
    struct Door {
        bool v6 = false;
        std::uint8_t protocol = 0;
        PortRange ports;
        std::uint16_t served_at = 0;
    };

    /// Both of the others must live longer. UDP ports of the host's loopback are served only where
    /// there are no more than most_udp_ports of them; the rest is for TCP.
    static constexpr std::size_t most_udp_ports = 64;
    static Result<std::unique_ptr<Gateway>> create(const HostLink& link,
                                                   const std::vector<PortRange>& host_loopback,
                                                   DnsForwarder& dns, StreamRelay& relay);
    Gateway(const Gateway&) = delete;
    Gateway& operator=(const Gateway&) = delete;

    /// In the order in which they count.
    const std::vector<Door>& doors() const noexcept { return doors_; }

    /// Readable (POLLIN) while there is something to do; handle() does it and never waits. So it is
    /// after time_left() milliseconds, unless that is -1.
    int descriptor() const noexcept { return epoll_.get(); }
    int time_left() const;
    void handle();

private:
    enum class Service { names, name_streams, loopback };
    struct Socket {
        Service service;
        bool v6;
        sys::Fd fd;
    };
    /// Sockets of this namespace, for what relays from one to the other.
    class OwnSockets final : public InsideSockets {
    public:
        sys::Fd make(int family, int type, int protocol) override;
    };

    Gateway(const HostLink& link, DnsForwarder& dns, StreamRelay& relay)
        : link_(link), dns_(dns), relay_(relay)
    {}
    Result<> open_all(const std::vector<PortRange>& host_loopback);
    Result<> open_family(bool v6, const std::vector<PortRange>& host_loopback);
    Result<sys::Fd> open_socket(bool v6, int type) const;
    Result<> add(Service service, bool v6, int type, const std::vector<PortRange>& ports);
    Result<> add_udp(bool v6, std::uint16_t port);
    Result<> watch(int fd, std::uint64_t token);

    bool is_from_sandbox(const SocketAddress& peer, bool v6) const noexcept;
    void answer_names(const Socket& socket);
    void accept_some(const Socket& socket);
    void turn_away(int listener);
    std::optional<SocketAddress> target_of(const Socket& socket, int accepted) const;

    const HostLink link_;
    DnsForwarder& dns_;
    StreamRelay& relay_;
    OwnSockets own_sockets_;
    std::bitset<65536> open_;
    sys::Fd epoll_;
    sys::Fd spare_;  ///< Given up for a moment when there are no descriptors left.
    std::vector<Socket> sockets_;
    std::unique_ptr<UdpForwards> udp_;
    std::vector<Door> doors_;
    std::vector<std::uint8_t> buffer_;
};

}  // namespace nsbox::net::user
