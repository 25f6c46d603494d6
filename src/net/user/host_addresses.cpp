#include "net/user/host_addresses.hpp"

#include "net/user/rtnl.hpp"

#include <cerrno>
#include <cstring>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

namespace nsbox::net::user {

namespace {

enum class Routes { local, all };

struct Reading {
    Routes which;
    std::vector<Prefix>& list;
};

/// One message of the answer: a route.
int take_route(nl_msg* message, void* argument)
{
    const Reading& reading = *static_cast<const Reading*>(argument);
    nlmsghdr* const header = nlmsg_hdr(message);
    if (header->nlmsg_type != RTM_NEWROUTE || !nlmsg_valid_hdr(header, sizeof(rtmsg)))
        return NL_OK;
    const auto* const route = static_cast<const rtmsg*>(nlmsg_data(header));
    const bool v6 = route->rtm_family == AF_INET6;
    const bool is_ours = route->rtm_type == RTN_LOCAL || route->rtm_type == RTN_ANYCAST;
    const bool is_wanted = reading.which == Routes::local ? is_ours : route->rtm_dst_len != 0;
    if (!is_wanted || (!v6 && route->rtm_family != AF_INET))
        return NL_OK;
    Prefix prefix;
    prefix.address.v6 = v6;
    prefix.length = route->rtm_dst_len;
    const nlattr* const destination = nlmsg_find_attr(header, sizeof(rtmsg), RTA_DST);
    if (destination != nullptr &&
        static_cast<std::size_t>(nla_len(destination)) == prefix.address.size())
        std::memcpy(prefix.address.bytes.data(), nla_data(destination), prefix.address.size());
    else if (prefix.length != 0)
        return NL_OK;
    reading.list.push_back(prefix);
    return NL_OK;
}

int on_error(sockaddr_nl*, nlmsgerr* error, void* argument)
{
    *static_cast<int*>(argument) = -error->error;
    return NL_STOP;
}

Result<> read_family(nl_sock* socket, unsigned char family, Reading reading)
{
    nl_msg* const request = nlmsg_alloc_simple(RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP);
    if (request == nullptr)
        return fail("Can't ask for the host's addresses", ENOMEM);
    rtmsg body{};
    body.rtm_family = family;
    body.rtm_type = reading.which == Routes::local ? RTN_LOCAL : RTN_UNSPEC;
    nlmsg_append(request, &body, sizeof body, NLMSG_ALIGNTO);
    int error = 0;
    nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, take_route, &reading);
    nl_socket_modify_err_cb(socket, NL_CB_CUSTOM, on_error, &error);
    int rc = nl_send_auto(socket, request);
    nlmsg_free(request);
    if (rc >= 0)
        rc = nl_recvmsgs_default(socket);
    // A kernel without IPv6 has no such routes.
    if (error == EOPNOTSUPP || error == EAFNOSUPPORT)
        return {};
    if (rc < 0 || error != 0)
        return fail("Can't ask for the host's addresses", error != 0 ? error : EIO);
    return {};
}

}  // namespace

Result<std::vector<Prefix>> read_networks()
{
    const NlSocket socket = TRY(open_netlink());
    std::vector<Prefix> list;
    TRY(read_family(socket.get(), AF_INET, {Routes::all, list}));
    TRY(read_family(socket.get(), AF_INET6, {Routes::all, list}));
    return list;
}

void HostAddresses::Free::operator()(nl_sock* socket) const noexcept
{
    nl_socket_free(socket);
}

Result<HostAddresses> HostAddresses::open()
{
    Socket notices{nl_socket_alloc()};
    Socket asking{nl_socket_alloc()};
    if (!notices || !asking)
        return fail("Can't open a netlink socket", ENOMEM);
    nl_socket_disable_seq_check(notices.get());
    if (nl_connect(notices.get(), NETLINK_ROUTE) < 0 || nl_connect(asking.get(), NETLINK_ROUTE) < 0)
        return fail("Can't open a netlink socket", errno);
    if (nl_socket_add_memberships(notices.get(), RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, 0) < 0)
        return fail("Can't follow the host's addresses", errno);
    nl_socket_set_nonblocking(notices.get());
    HostAddresses addresses{std::move(notices), std::move(asking)};
    TRY(addresses.update());
    return addresses;
}

int HostAddresses::descriptor() const
{
    return nl_socket_get_fd(notices_.get());
}

Result<> HostAddresses::update()
{
    // What they say does not matter, nor whether some were lost: the list is read as a whole.
    char notice[8192];
    while (::recv(descriptor(), notice, sizeof notice, MSG_DONTWAIT) > 0 || errno == ENOBUFS) {
        errno = 0;
    }
    std::vector<Prefix> list;
    TRY(read_family(asking_.get(), AF_INET, {Routes::local, list}));
    TRY(read_family(asking_.get(), AF_INET6, {Routes::local, list}));
    list_ = std::move(list);
    return {};
}

}  // namespace nsbox::net::user
