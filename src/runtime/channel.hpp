#pragma once

#include "runtime/command.hpp"
#include "runtime/report.hpp"
#include "sys/fd.hpp"

#include <string>

namespace nsbox::runtime {

/// One message from a sandbox process, or the end.
struct Received {
    int error = 0;     ///< errno of the receiving itself.
    bool end = false;  ///< Nobody holds the other end any more.
    Message message{};
    std::string text;    ///< What followed the message.
    sys::Fd descriptor;  ///< What came along, if anything.
};

/// Waits for the next message. `flags` as for recvmsg(2).
Received receive(int channel, int flags = 0);

}  // namespace nsbox::runtime
