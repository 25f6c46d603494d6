#pragma once

// Child-safe: descriptors that go along with a message, see unix(7), SCM_RIGHTS.

#include "sys/raw.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <sys/socket.h>

namespace nsbox::sys {

/// The most descriptors that one message of ours has.
inline constexpr std::size_t most_passed = 4;

/// Sends data with `count` descriptors, which stay open here; the number of bytes or -errno. Never
/// raises SIGPIPE. `flags` as for sendmsg(2). `pass`: three words that go behind the call's arguments,
/// which a filter of system calls may look at; or null.
inline long send_with_descriptors(int socket, const void* data, std::size_t size, const int* fds,
                                  std::size_t count, int flags = 0,
                                  const std::uint64_t* pass = nullptr) noexcept
{
    constexpr std::uint64_t none[3] = {};
    if (pass == nullptr)
        pass = none;
    if (count > most_passed)
        return -EINVAL;
    iovec part{const_cast<void*>(data), size};
    alignas(cmsghdr) char control[CMSG_SPACE(most_passed * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const attached = CMSG_FIRSTHDR(&header);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(count * sizeof(int));
        __builtin_memcpy(CMSG_DATA(attached), fds, count * sizeof(int));
    }
    long rc = 0;
    do {
        rc = raw::call(SYS_sendmsg, socket, &header, flags | MSG_NOSIGNAL, pass[0], pass[1],
                       pass[2]);
    } while (rc == -EINTR);
    return rc;
}

template <std::size_t Count>
long send_with_descriptors(int socket, const void* data, std::size_t size, const int (&fds)[Count],
                           int flags = 0, const std::uint64_t* pass = nullptr) noexcept
{
    return send_with_descriptors(socket, data, size, fds, Count, flags, pass);
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
