#include "runtime/channel.hpp"

#include <cstring>
#include <sys/socket.h>

namespace nsbox::runtime {

Received receive(int channel, int flags)
{
    char buffer[sizeof(Message) + 4096];
    iovec data{buffer, sizeof buffer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got = 0;
    do {
        got = ::recvmsg(channel, &header, flags | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    Received received;
    if (got < 0) {
        // A peer that ended with our word unread resets the connection: its end all the same.
        received.end = errno == ECONNRESET;
        received.error = received.end ? 0 : errno;
        return received;
    }
    if (static_cast<std::size_t>(got) < sizeof(Message)) {
        received.end = true;
        return received;
    }
    std::memcpy(&received.message, buffer, sizeof(Message));
    received.text.assign(buffer + sizeof(Message), static_cast<std::size_t>(got) - sizeof(Message));
    const cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    if (attached != nullptr && attached->cmsg_type == SCM_RIGHTS) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(attached), sizeof fd);
        received.descriptor = sys::Fd{fd};
    }
    return received;
}

}  // namespace nsbox::runtime
