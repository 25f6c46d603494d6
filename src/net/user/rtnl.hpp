#pragma once

#include "net/user/packet.hpp"
#include "sys/error.hpp"

#include <memory>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/neighbour.h>
#include <netlink/route/route.h>

namespace nsbox::net::user {

// What is asked of rtnetlink(7) through libnl, in this process's network namespace.

inline constexpr Literal cannot_connect{"Can't connect the sandbox's network"};

/// The opposite of an allocation of libnl's.
template <class T, void (*free)(T*)>
struct NlFree {
    void operator()(T* object) const noexcept { free(object); }
};
using NlSocket = std::unique_ptr<nl_sock, NlFree<nl_sock, nl_socket_free>>;
using NlLink = std::unique_ptr<rtnl_link, NlFree<rtnl_link, rtnl_link_put>>;
using NlAddr = std::unique_ptr<nl_addr, NlFree<nl_addr, nl_addr_put>>;
using NlRtAddr = std::unique_ptr<rtnl_addr, NlFree<rtnl_addr, rtnl_addr_put>>;
using NlRoute = std::unique_ptr<rtnl_route, NlFree<rtnl_route, rtnl_route_put>>;
using NlCache = std::unique_ptr<nl_cache, NlFree<nl_cache, nl_cache_free>>;

/// `error` is one of libnl's.
tl::unexpected<Error> nl_failed(int error, const std::string& object);

Result<NlSocket> open_netlink();

NlAddr to_nl(const Address& address, unsigned prefix);

/// Without `own_address` the kernel makes no address of the link for IPv6.
Result<> bring_up(nl_sock* socket, const char* name, unsigned mtu, bool own_address);

/// At once usable: nobody is asked whether he has it (duplicate address detection).
Result<> add_address(nl_sock* socket, unsigned index, const Address& address, unsigned prefix);

Result<> add_default_route(nl_sock* socket, unsigned index, const Address& gateway);

/// Sets a parameter of an interface below /proc/sys/net/ipv6/conf, of which rtnetlink knows nothing.
/// False where that cannot be done.
bool set_ipv6_parameter(const std::string& interface, const char* name, const char* value);

}  // namespace nsbox::net::user
