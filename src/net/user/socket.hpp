#pragma once

#include "sys/fd.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace nsbox::net::user {

/// An int option of a socket; -1 where there is no such option.
inline int option_of(int socket, int level, int name) noexcept
{
    int value = -1;
    socklen_t size = sizeof value;
    return ::getsockopt(socket, level, name, &value, &size) < 0 ? -1 : value;
}

/// Whether it was done. Callers ignore a failure where the option does not matter.
inline bool set_option(int socket, int level, int name, int value) noexcept
{
    return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

inline bool is_internet(int socket) noexcept
{
    const int family = option_of(socket, SOL_SOCKET, SO_DOMAIN);
    return family == AF_INET || family == AF_INET6;
}

inline bool set_nonblocking(int socket) noexcept
{
    const int flags = ::fcntl(socket, F_GETFL);
    return flags >= 0 &&
           ((flags & O_NONBLOCK) != 0 || ::fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0);
}

/// Closes a stream socket so that the other end sees a reset. Unix sockets know none: there the
/// other end sees an end, or ECONNRESET if something that it has sent was not read.
inline void reset(sys::Fd socket) noexcept
{
    constexpr linger at_once{1, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace nsbox::net::user
