#pragma once

#include "net/user/address.hpp"
#include "sys/fd.hpp"

#include <string>
#include <vector>

namespace nsbox::net {

/// What a resolv.conf says that matters here: see resolv.conf(5).
struct ResolvConf {
    std::vector<user::SocketAddress> servers;  ///< In order; what is no address is passed over.
    std::vector<std::string> search;
    std::vector<std::string> options;
};

ResolvConf parse_resolv_conf(const std::string& text);

/// The host's own, read anew whenever it changes: the file may be replaced, and may be a symbolic
/// link to one that is. Follows by inotify(7).
class HostResolvConf {
public:
    HostResolvConf();

    const ResolvConf& now() const noexcept { return now_; }
    /// Readable when it may have changed; -1 where nothing can be followed.
    int descriptor() const noexcept { return watch_ ? watch_.get() : -1; }
    /// Whether the servers are others than before.
    bool update();

private:
    void follow();

    sys::Fd watch_;
    std::string text_;
    ResolvConf now_;
};

}  // namespace nsbox::net
