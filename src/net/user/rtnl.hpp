#pragma once

#include "net/user/packet.hpp"
#include "sys/error.hpp"

#include <memory>
#include <string>

struct nl_sock;
struct nl_cache;
struct nl_addr;
struct rtnl_link;
struct rtnl_addr;
struct rtnl_route;

namespace nsbox::net::user {

// What is asked of rtnetlink(7) through libnl, in this process's network namespace.

inline constexpr Literal cannot_connect{"Can't connect the sandbox's network"};

/// The opposite of libnl's allocations.
struct NlFree {
    void operator()(nl_sock* object) const noexcept;
    void operator()(nl_cache* object) const noexcept;
    void operator()(nl_addr* object) const noexcept;
    void operator()(rtnl_link* object) const noexcept;
    void operator()(rtnl_addr* object) const noexcept;
    void operator()(rtnl_route* object) const noexcept;
};
using NlSocket = std::unique_ptr<nl_sock, NlFree>;
using NlCache = std::unique_ptr<nl_cache, NlFree>;
using NlAddr = std::unique_ptr<nl_addr, NlFree>;
using NlLink = std::unique_ptr<rtnl_link, NlFree>;
using NlRtAddr = std::unique_ptr<rtnl_addr, NlFree>;
using NlRoute = std::unique_ptr<rtnl_route, NlFree>;

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
