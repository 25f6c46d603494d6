#pragma once

// Child-safe: descriptors that go along with a message, see unix(7), SCM_RIGHTS.

#include "sys/raw.hpp"

#include <cstddef>
#include <sys/socket.h>

namespace nsbox::sys {

/// Sends data with `Count` descriptors, which stay open here; the number of bytes or -errno. Never
/// raises SIGPIPE. `flags` as for sendmsg(2).
template <std::size_t Count>
long send_with_descriptors(int socket, const void* data, std::size_t size, const int (&fds)[Count],
                           int flags = 0) noexcept
{
    iovec part{const_cast<void*>(data), size};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof fds);
    __builtin_memcpy(CMSG_DATA(attached), &fds, sizeof fds);
    long rc = 0;
    do {
        rc = raw::call(SYS_sendmsg, socket, &header, flags | MSG_NOSIGNAL);
    } while (rc == -EINTR);
    return rc;
}

/// Receives data and at most `Count` descriptors, close-on-exec, which are the caller's then; those
/// that did not come are -1. The number of bytes or -errno.
template <std::size_t Count>
long receive_with_descriptors(int socket, void* data, std::size_t size, int (&fds)[Count],
                              int flags = 0) noexcept
{
    for (int& fd : fds)
        fd = -1;
    iovec part{data, size};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    long rc = 0;
    do {
        rc = raw::call(SYS_recvmsg, socket, &header, flags | MSG_CMSG_CLOEXEC);
    } while (rc == -EINTR);
    const cmsghdr* const attached = rc < 0 ? nullptr : CMSG_FIRSTHDR(&header);
    if (attached != nullptr && attached->cmsg_type == SCM_RIGHTS &&
        attached->cmsg_len >= CMSG_LEN(0) && attached->cmsg_len <= CMSG_LEN(sizeof fds))
        __builtin_memcpy(&fds, CMSG_DATA(attached), attached->cmsg_len - CMSG_LEN(0));
    return rc;
}

}  // namespace nsbox::sys
