#pragma once

#include "net/user/judge.hpp"
#include "sys/error.hpp"

#include <memory>

struct nl_sock;

namespace nsbox::net::user {

/// Where the routes of this network namespace lead to, in whatever table, but for default routes. What
/// is on an interface and the host's own addresses are among them. See rtnetlink(7).
Result<std::vector<Prefix>> read_networks();

/// What the kernel delivers to this host itself: every route of the type "local" of the network
/// namespace in which this object was made, in whatever table. See rtnetlink(7), RTM_GETROUTE;
/// needs no privilege.
class HostAddresses {
public:
    static Result<HostAddresses> open();

    /// Readable when something changed: call update().
    int descriptor() const;
    /// Takes the notices away and reads the list anew. On failure the list stays as it was.
    Result<> update();
    const std::vector<Prefix>& list() const noexcept { return list_; }

private:
    struct Free {
        void operator()(nl_sock* socket) const noexcept;
    };
    using Socket = std::unique_ptr<nl_sock, Free>;

    HostAddresses(Socket notices, Socket asking)
        : notices_(std::move(notices)), asking_(std::move(asking))
    {}

    Socket notices_;
    Socket asking_;
    std::vector<Prefix> list_;
};

}  // namespace nsbox::net::user
