#pragma once

#include "sys/fd.hpp"

namespace nsbox::net::user {

/// Makes sockets in the sandbox's network namespace.
class InsideSockets {
public:
    InsideSockets() = default;
    InsideSockets(const InsideSockets&) = delete;
    InsideSockets& operator=(const InsideSockets&) = delete;
    virtual ~InsideSockets() = default;

    /// Non-blocking and close-on-exec; Fd::error() says why there is none. See socket(2).
    virtual sys::Fd make(int family, int type, int protocol) = 0;
};

}  // namespace nsbox::net::user
