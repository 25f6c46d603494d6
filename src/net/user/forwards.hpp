#pragma once

#include "net/user/address.hpp"
#include "net/user/forward_kind.hpp"
#include "net/user/inside.hpp"
#include "net/user/listening.hpp"
#include "net/user/stream_relay.hpp"
#include "net/user/udp_forwards.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace nsbox::net::user {

/// A forward that is wanted.
struct Forward {
    ForwardKind kind = ForwardKind::tcp;
    /// The host's sockets, bound and not listening: one, or one each for IPv4 and IPv6. Those of TCP
    /// are best bound to a number: a port that the kernel chose is given up whenever the socket
    /// stops listening, and has to be taken again. None for inside_to_unix.
    std::vector<sys::Fd> outside;
    SocketAddress inside;  ///< Where to connect to; for inside_to_unix, where to listen.
    /// Where to connect to while somebody listens here and nobody there; of size 0: nowhere. Of TCP.
    SocketAddress otherwise;
    std::uint64_t number = 0;  ///< Of the unix socket, for the UnixConnector.
};

/// Times and bounds; tests have shorter ones.
struct ForwardLimits {
    std::chrono::milliseconds look{50};     ///< How often to look for listeners inside.
    std::chrono::milliseconds retry{100};   ///< How long to accept nothing without descriptors.
    std::chrono::milliseconds idle{60000};  ///< After which a UDP flow ends.
    std::size_t flows = 1024;               ///< Of UDP.
    std::size_t answers = 256;  ///< Connections that wait for the UnixConnector: more are refused.
};

/// The port forwards of a sandbox. A host socket listens while somebody listens inside, so that a
/// connection to a port without a service is refused; see ListenLook. Where the kernel cannot tell,
/// it listens always, and a connection that finds nobody inside is reset.
///
/// After create() the only system calls are those of StreamRelay, ListenLook, UdpForwards,
/// InsideSockets and UnixConnector, and bind, listen, accept4, connect, getsockname, shutdown,
/// timerfd_settime and clock_gettime.
class Forwards {
public:
    using Id = std::uint64_t;
    using Clock = std::chrono::steady_clock;

    /// All three must live longer.
    static Result<std::unique_ptr<Forwards>> create(StreamRelay& relay, InsideSockets& inside,
                                                    UnixConnector& connector,
                                                    const ForwardLimits& limits = {});
    Forwards(const Forwards&) = delete;
    Forwards& operator=(const Forwards&) = delete;

    /// Readable (POLLIN) while there is something to do; handle() does it. Stays owned here.
    int descriptor() const noexcept { return epoll_.get(); }
    /// Does a bounded amount of work and never waits. It may give the relay something to do.
    void handle();

    /// A service that listens inside already is reachable when this returns.
    Result<Id> add(Forward forward);
    /// Closes the forward's sockets. Connections that run, and those that wait for an answer of
    /// the UnixConnector, go on; the flows of a UDP forward end. ENOENT if there is no such one.
    Result<void> remove(Id id);

    /// The UnixConnector's answer: a stream socket, or one without a descriptor (-errno).
    void connected(std::uint64_t token, sys::Fd socket);
    /// The UnixConnector has gone: whoever waits for it is refused.
    void refuse_unanswered();
    /// The answer to renew(): a bound unix socket, or one without a descriptor, which leaves the
    /// forward refusing for good.
    void renewed(std::uint64_t token, sys::Fd socket);

    std::size_t flows() const noexcept { return udp_->flows(); }

private:
    struct Door {
        Id forward = 0;
        ForwardKind kind{};
        sys::Fd socket;
        SocketAddress bound;  ///< Of the host's socket.
        SocketAddress inside;
        SocketAddress otherwise;
        bool leads_otherwise = false;
        std::uint64_t number = 0;
        sys::Fd waiting;       ///< Was accepted when there was no descriptor for the other side.
        bool has_port = true;  ///< Nobody has taken it while the socket did not listen.
        bool listens = false;
        bool is_watched = false;
    };
    using Doors = std::map<std::uint64_t, Door>;
    enum class Turn { done, more, short_of_descriptors };

    Forwards(StreamRelay& relay, InsideSockets& inside, UnixConnector& connector,
             const ForwardLimits& limits);
    Result<void> begin();
    Result<void> add_doors(Id id, Forward& forward);
    Result<Door> inside_door(const Forward& forward);
    Result<void> check(const Forward& forward) const;
    Result<void> prepare_look();

    void look();
    void set_listening(std::uint64_t token, Door& door, bool on);
    void stop_listening(std::uint64_t token, Door& door);
    void watch(std::uint64_t token, Door& door);
    void watch_all();
    void pause();

    void accept_some(std::uint64_t token);
    Turn accept_one(Door& door);
    Turn connect_inside(Door& door, sys::Fd accepted);
    Turn connect_outside(const Door& door, sys::Fd accepted);

    void timer_fired();
    void arm();

    StreamRelay& relay_;
    InsideSockets& make_;
    UnixConnector& connector_;
    ForwardLimits limits_;
    sys::Fd epoll_;
    sys::Fd timer_;
    std::optional<Clock::time_point> armed_;
    bool has_fired_ = false;
    std::unique_ptr<UdpForwards> udp_;
    std::optional<ListenLook> look_;
    std::optional<Clock::time_point> next_look_;
    std::optional<Clock::time_point> accept_again_;  ///< Until then nothing is accepted.
    Id next_ = 1;
    Doors doors_;
    std::unordered_map<std::uint64_t, sys::Fd> unanswered_;  ///< Wait for the UnixConnector.
    std::map<Id, ForwardKind> forwards_;
};

}  // namespace nsbox::net::user
