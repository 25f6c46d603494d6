#pragma once

#include "sys/fd.hpp"

#include <cstdint>

namespace nsbox::net::user {

/// Makes sockets in the sandbox's network namespace: a socket stays for ever in the one in which
/// it was made, wherever its descriptor goes. See network_namespaces(7).
class InsideSockets {
public:
    virtual ~InsideSockets() = default;

    /// As socket(2) with SOCK_NONBLOCK and SOCK_CLOEXEC, which need not be in `type`. Without a
    /// descriptor, error() is -errno.
    virtual sys::Fd make(int family, int type, int protocol) = 0;
};

/// Reaches unix sockets of the host by name, for a program that can open no path.
class UnixConnector {
public:
    virtual ~UnixConnector() = default;

    /// Asks for a stream connection to the host's unix socket that was registered under `number`.
    /// The answer comes later, exactly once, by Forwards::connected(token, ...), and may come
    /// before this function returns.
    virtual void connect(std::uint64_t number, std::uint64_t token) = 0;

    /// A unix socket that has listened cannot stop and listen again, unlike one of TCP. Asks for a
    /// new one, bound and not listening, in the place of the forward's (a new name that is renamed
    /// over the old one leaves no gap). It comes by Forwards::renewed(token, ...), not before this
    /// function returns. False: there will be none, and the old one is to go on listening.
    virtual bool renew(std::uint64_t number, std::uint64_t token) = 0;
};

}  // namespace nsbox::net::user
