#include "runtime/channel.hpp"

#include "sys/pass.hpp"

#include <cstring>

namespace nsbox::runtime {

Received receive(int channel, int flags)
{
    char buffer[sizeof(Message) + 4096];
    int fds[1];
    const long got = sys::receive_with_descriptors(channel, buffer, sizeof buffer, fds, flags);
    Received received;
    received.descriptor = sys::Fd{fds[0]};
    if (got < 0) {
        // A peer that ended with our word unread resets the connection: its end all the same.
        received.end = got == -ECONNRESET;
        received.error = received.end ? 0 : static_cast<int>(-got);
        return received;
    }
    if (static_cast<std::size_t>(got) < sizeof(Message)) {
        received.end = true;
        return received;
    }
    std::memcpy(&received.message, buffer, sizeof(Message));
    received.text.assign(buffer + sizeof(Message), static_cast<std::size_t>(got) - sizeof(Message));
    return received;
}

}  // namespace nsbox::runtime
