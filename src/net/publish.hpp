#pragma once

#include "net/user/address.hpp"
#include "net/user/forward_kind.hpp"
#include "nsbox/spec.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <vector>

namespace nsbox::net {

/// Takes the host's TCP or UDP port: sockets that are bound and do not listen. `wish.outside` is the
/// port afterwards. See bind(2). An error says why: the port is in use, or privileged, or the address
/// is not one of this host's.
Result<std::vector<sys::Fd>> take_port(PublishedPort& wish);

/// Where in the sandbox it leads to, or, of a host socket, where it is inside; 0.0.0.0 is the sandbox's own
/// address.
user::SocketAddress target_of(const PublishedPort& wish);

user::ForwardKind forward_kind(PublishedPort::Kind kind);

/// Whether both are about the same thing of the host, or, of host sockets, of the sandbox.
bool is_same_place(const PublishedPort& a, const PublishedPort& b);

/// Nothing, or why such a port cannot be.
Result<> check_port(const PublishedPort& wish);

}  // namespace nsbox::net
