#pragma once

#include "net/user/address.hpp"
#include "net/user/inside.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace nsbox::net::user {

/// Carries datagrams between UDP sockets of the host and addresses inside. Each client has a socket
/// of its own inside, so that the service sees different clients as different ports, and answers
/// leave from the address that the client has sent to. Errors (ICMP) on either side lose datagrams
/// and end nothing.
///
/// After create() the only system calls are epoll_ctl, epoll_wait, recvfrom, recvmsg, sendto,
/// sendmsg, connect, getsockopt, setsockopt, fcntl (F_GETFL, F_SETFL), clock_gettime, close and
/// those of InsideSockets::make().
class UdpForwards {
public:
    using Clock = std::chrono::steady_clock;

    static Result<std::unique_ptr<UdpForwards>> create(InsideSockets& inside,
                                                       std::chrono::milliseconds idle,
                                                       std::size_t most_flows);

    /// Readable (POLLIN) while there is something to do; handle() does it. Stays owned here.
    int descriptor() const noexcept { return epoll_.get(); }
    void handle();

    /// `outside` is a bound UDP socket.
    Result<void> add(std::uint64_t forward, sys::Fd outside, const SocketAddress& inside);
    /// Ends the forward with its flows: without its socket there is no way back to the clients.
    void remove(std::uint64_t forward);

    /// When expire() has something to do next.
    std::optional<Clock::time_point> deadline() const;
    void expire(Clock::time_point now);

    std::size_t flows() const noexcept { return flows_.size(); }

private:
    struct Door {
        sys::Fd socket;
        SocketAddress inside;
        std::uint64_t forward;
        bool is_v4;
    };
    /// Who has sent, and what he has sent to. Fixed size, everything unused is zero.
    struct Client {
        std::uint64_t door = 0;
        std::array<unsigned char, sizeof(sockaddr_in6)> address{};
        std::array<unsigned char, sizeof(in6_addr)> local{};
        std::uint32_t size = 0;       ///< Of the address.
        std::uint32_t interface = 0;  ///< Only where the local address is good on one link only.
        bool operator<(const Client& other) const noexcept
        {
            return std::tie(door, address, local, size, interface) <
                   std::tie(other.door, other.address, other.local, other.size, other.interface);
        }
    };
    struct Flow {
        std::uint64_t id;
        Client client;
        sys::Fd socket;
        Clock::time_point ends;
    };
    using Flows = std::list<Flow>;  ///< The one that was used longest ago comes first.

    explicit UdpForwards(InsideSockets& inside) : make_(inside) {}
    bool watch(int socket, std::uint64_t id);
    void from_outside(std::uint64_t id, Door& door);
    bool receive(const Door& door, Client& client, std::size_t& size);
    void from_inside(Flows::iterator flow);
    void answer(const Door& door, const Client& client, std::size_t size);
    Flows::iterator flow_of(const Client& client, const Door& door);
    void touch(Flows::iterator flow);
    void end(Flows::iterator flow);

    InsideSockets& make_;
    std::chrono::milliseconds idle_{};
    std::size_t most_flows_ = 0;
    sys::Fd epoll_;
    std::uint64_t next_id_ = 0;
    std::vector<char> buffer_;
    std::unordered_map<std::uint64_t, Door> doors_;
    Flows flows_;
    std::unordered_map<std::uint64_t, Flows::iterator> by_id_;
    std::map<Client, Flows::iterator> by_client_;
};

}  // namespace nsbox::net::user
