#include "net/user/rtnl.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <netlink/cache.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/inet6.h>
#include <netlink/route/route.h>
#include <netlink/socket.h>

namespace nsbox::net::user {

namespace {

constexpr Literal failed = cannot_connect;

}  // namespace

void NlFree::operator()(nl_sock* object) const noexcept
{
    ::nl_socket_free(object);
}
void NlFree::operator()(nl_cache* object) const noexcept
{
    ::nl_cache_free(object);
}
void NlFree::operator()(nl_addr* object) const noexcept
{
    ::nl_addr_put(object);
}
void NlFree::operator()(rtnl_link* object) const noexcept
{
    ::rtnl_link_put(object);
}
void NlFree::operator()(rtnl_addr* object) const noexcept
{
    ::rtnl_addr_put(object);
}
void NlFree::operator()(rtnl_route* object) const noexcept
{
    ::rtnl_route_put(object);
}

tl::unexpected<Error> nl_failed(int error, const std::string& object)
{
    return refuse(failed, object, ::nl_geterror(error));
}

Result<NlSocket> open_netlink()
{
    NlSocket socket{::nl_socket_alloc()};
    if (!socket)
        return fail(failed, ENOMEM, "netlink");
    if (const int rc = ::nl_connect(socket.get(), NETLINK_ROUTE); rc < 0)
        return nl_failed(rc, "netlink");
    return socket;
}

NlAddr to_nl(const Address& address, unsigned prefix)
{
    NlAddr result{
        ::nl_addr_build(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), address.size())};
    if (result)
        ::nl_addr_set_prefixlen(result.get(), static_cast<int>(prefix));
    return result;
}

Result<> bring_up(nl_sock* socket, const char* name, unsigned mtu, bool own_address)
{
    const NlLink change{::rtnl_link_alloc()};
    const NlLink which{::rtnl_link_alloc()};
    const unsigned index = ::if_nametoindex(name);
    if (!change || !which || index == 0)
        return fail(failed, index == 0 ? errno : ENOMEM, name);
    ::rtnl_link_set_ifindex(which.get(), static_cast<int>(index));
    ::rtnl_link_set_flags(change.get(), IFF_UP);
    ::rtnl_link_set_mtu(change.get(), mtu);
    if (!own_address)
        ::rtnl_link_inet6_set_addr_gen_mode(change.get(),
                                            ::rtnl_link_inet6_str2addrgenmode("none"));
    int rc = ::rtnl_link_change(socket, which.get(), change.get(), 0);
    if (rc < 0 && !own_address) {
        // A kernel without IPv6 knows of no such mode.
        const NlLink plain{::rtnl_link_alloc()};
        ::rtnl_link_set_flags(plain.get(), IFF_UP);
        ::rtnl_link_set_mtu(plain.get(), mtu);
        rc = ::rtnl_link_change(socket, which.get(), plain.get(), 0);
    }
    if (rc < 0)
        return nl_failed(rc, name);
    return {};
}

Result<> add_address(nl_sock* socket, unsigned index, const Address& address, unsigned prefix)
{
    const NlRtAddr entry{::rtnl_addr_alloc()};
    const NlAddr local = to_nl(address, prefix);
    if (!entry || !local)
        return fail(failed, ENOMEM, "an address");
    ::rtnl_addr_set_ifindex(entry.get(), static_cast<int>(index));
    if (const int rc = ::rtnl_addr_set_local(entry.get(), local.get()); rc < 0)
        return nl_failed(rc, "an address");
    if (address.v6)
        ::rtnl_addr_set_flags(entry.get(), IFA_F_NODAD);  // Nobody else is on this link.
    if (const int rc = ::rtnl_addr_add(socket, entry.get(), NLM_F_CREATE); rc < 0)
        return nl_failed(rc, "an address");
    return {};
}

Result<> add_default_route(nl_sock* socket, unsigned index, const Address& gateway)
{
    const NlRoute route{::rtnl_route_alloc()};
    const NlAddr everywhere = to_nl(Address{gateway.v6, {}}, 0);
    const NlAddr through = to_nl(gateway, static_cast<unsigned>(gateway.size() * 8));
    rtnl_nexthop* const hop = ::rtnl_route_nh_alloc();
    if (!route || !everywhere || !through || hop == nullptr)
        return fail(failed, ENOMEM, "the default route");
    ::rtnl_route_set_family(route.get(), gateway.v6 ? AF_INET6 : AF_INET);
    ::rtnl_route_set_dst(route.get(), everywhere.get());
    ::rtnl_route_nh_set_ifindex(hop, static_cast<int>(index));
    ::rtnl_route_nh_set_gateway(hop, through.get());
    ::rtnl_route_add_nexthop(route.get(), hop);
    if (const int rc = ::rtnl_route_add(socket, route.get(), NLM_F_CREATE); rc < 0)
        return nl_failed(rc, "the default route");
    return {};
}

bool set_ipv6_parameter(const std::string& interface, const char* name, const char* value)
{
    const std::string path = "/proc/sys/net/ipv6/conf/" + interface + "/" + name;
    const sys::Fd file{sys::raw::openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CLOEXEC)};
    return file && sys::raw::write(file.get(), value, std::strlen(value)) >= 0;
}

}  // namespace nsbox::net::user
