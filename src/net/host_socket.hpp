#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <string>
#include <utility>

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

/// Where the unix socket of somebody else is, or will be: a name in a folder, which is looked up once, so
/// that nobody who can write there leads to another place. Needs /proc.
class SocketPlace {
public:
    /// The folder has to be there. What has the name now must be no symbolic link.
    static Result<SocketPlace> find(const std::string& path);

    /// Connects, without waiting, to the stream socket that has the name: a connected socket, or -errno;
    /// -EAGAIN where those who wait for its owner are too many now, -ELOOP where it is a link.
    sys::Fd connect() const;
    int folder() const noexcept { return folder_.get(); }

private:
    SocketPlace(sys::Fd folder, std::string name)
        : folder_(std::move(folder)), name_(std::move(name))
    {}

    sys::Fd folder_;
    std::string name_;
};

}  // namespace nsbox::net
