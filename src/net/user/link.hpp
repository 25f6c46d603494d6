#pragma once

#include "net/user/guest.hpp"
#include "net/user/inside.hpp"
#include "net/user/redirect.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <memory>

namespace nsbox::net::user {

/// How frames come from the sandbox.
enum class LinkKind : std::uint64_t {
    automatic,  ///< A tap where /dev/net/tun can be opened, else a veth pair.
    tap,
    veth,    ///< A packet socket on the far end of a veth pair, in a network namespace of its own.
    routed,  ///< None come: the far end is the host's, which has made the pair already.
};

/// Who carries the TCP connections that begin in the sandbox.
enum class TcpPath : std::uint64_t {
    slirp,  ///< libslirp, from frames, as everything else.
    relay,  ///< The sandbox's kernel, as far as a listener of the helper: see TcpRelay.
};

struct LinkWish {
    LinkKind kind = LinkKind::automatic;
    unsigned mtu = 0;
    bool ipv6 = true;
    TcpPath tcp = TcpPath::slirp;
    InsideNetwork inside;
};

struct Link {
    LinkKind kind = LinkKind::automatic;
    sys::Fd frames;           ///< read(2) and write(2) take one Ethernet frame. Non-blocking.
    bool ipv6 = false;        ///< The sandbox has IPv6 addresses.
    Redirection redirection;  ///< For TcpPath::relay.
};

/// A process of its own that goes into the sandbox's network namespace, builds the link there, and
/// stays to make sockets in it. Has to be started while this process may still enter namespaces.
/// It ends when this object does, which waits for it. The end of a link of the host's (routed) is
/// removed then, whatever the end of this process is: nothing judges any more what comes from there.
class Insider final : public InsideSockets {
public:
    static Result<std::unique_ptr<Insider>> start();
    ~Insider() override;

    /// Begins to build; finish() has the result, when descriptor() is readable.
    Result<> build(const sys::Fd& network, const LinkWish& wish);
    Result<Link> finish();
    int descriptor() const noexcept { return channel_.get(); }

    sys::Fd make(int family, int type, int protocol) override;

private:
    Insider(sys::Fd channel, pid_t pid) : channel_(std::move(channel)), pid_(pid) {}
    sys::Fd channel_;
    pid_t pid_;
};

}  // namespace nsbox::net::user
