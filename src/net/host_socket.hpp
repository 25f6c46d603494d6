#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <string>

namespace nsbox::net {

/// A stream socket of unix(7) at a path, which is bound and does not listen. Its file goes with this
/// object. One thread at a time; needs /proc.
class HostSocket {
public:
    /// EADDRINUSE where the path exists already.
    static Result<HostSocket> make(const std::string& path);
    HostSocket(HostSocket&& other) noexcept;
    HostSocket& operator=(HostSocket&& other) noexcept;
    ~HostSocket();

    /// A descriptor of the socket, once: it is the caller's. Later ones are of new sockets in the
    /// place of the old one, without a moment in which there is none. Without one, -errno.
    sys::Fd take();

    // Where its file is.
    const std::string& name() const noexcept { return name_; }
    int folder() const noexcept { return folder_.get(); }

private:
    HostSocket() = default;

    sys::Fd folder_;
    std::string name_;
    sys::Fd socket_;
};

/// Connects, without waiting, to the stream socket at a path, of any length: a connected socket, or
/// -errno; -EAGAIN where those who wait for its owner are too many now.
sys::Fd connect_to_socket(const std::string& path);

}  // namespace nsbox::net
