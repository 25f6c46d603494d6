#pragma once

#include "net/user/gateway.hpp"
#include "net/user/host_link.hpp"
#include "net/user/netfilter.hpp"

#include <vector>

namespace nsbox::net::user {

/// Pure: the packet rules of the host for one sandbox, as tables of their own. From the sandbox come
/// only packets of its own addresses; they reach nothing of the host but the doors, and nobody else
/// begins connections to it through this host. With `outbound`, and not on a bridge, its packets go
/// out under the host's addresses.
std::vector<netfilter::Table> link_rules(const HostLink& link, bool outbound,
                                         const std::vector<Gateway::Door>& doors);

}  // namespace nsbox::net::user
