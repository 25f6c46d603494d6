#include "net/user/redirect.hpp"

#include "net/user/address.hpp"
#include "net/user/netfilter.hpp"

// Before the kernel's headers, which then leave out what is in it.
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>

namespace nsbox::net::user {

namespace {

using sys::Fd;

constexpr Literal failed{"Can't redirect TCP connections"};

/// On a port that the kernel chooses.
Result<Fd> listen_on_loopback(bool v6)
{
    constexpr int most_waiting = 4096;
    Fd socket{::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    sockaddr_in6 address6{};
    address6.sin6_family = AF_INET6;
    address6.sin6_addr = in6addr_loopback;
    sockaddr_in address4{};
    address4.sin_family = AF_INET;
    address4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* const address = v6 ? reinterpret_cast<const sockaddr*>(&address6)
                                   : reinterpret_cast<const sockaddr*>(&address4);
    if (!socket || ::bind(socket.get(), address, v6 ? sizeof address6 : sizeof address4) < 0 ||
        ::listen(socket.get(), most_waiting) < 0)
        return fail(failed, errno, v6 ? "a listener on ::1" : "a listener on 127.0.0.1");
    return socket;
}

netfilter::Rule redirect_to(const Fd& listener, bool v6)
{
    // What goes to the namespace's own addresses, whatever they are, leaves through lo.
    return {netfilter::OutInterface{"lo", true}, netfilter::To{{Address{v6, {}}, 0}},
            netfilter::Protocol{protocol_tcp},
            netfilter::Redirect{bound_address(listener.get()).port()}};
}

Result<Fd> write_rules(const netfilter::Table& table)
{
    netfilter::Owner owner = TRY(netfilter::Owner::open());
    TRY(owner.write(table));
    return owner.release();
}

}  // namespace

Result<Redirection> redirect_tcp(bool ipv6)
{
    Redirection redirection;
    netfilter::Chain chain{"output",
                           netfilter::Type::nat,
                           netfilter::Hook::output,
                           netfilter::priority_translate_destination,
                           true,
                           {}};
    // A segment that the kernel takes for none of its connection keeps its addresses, and would
    // be answered by a reset from whoever gets it. Dropped, it is sent once more.
    netfilter::Chain strays{
        "strays",
        netfilter::Type::filter,
        netfilter::Hook::output,
        netfilter::priority_filter,
        true,
        {{netfilter::OutInterface{"lo", true}, netfilter::Protocol{protocol_tcp},
          netfilter::Invalid{}, netfilter::Drop{}}}};
    for (const bool v6 : {false, true}) {
        if (v6 && !ipv6)
            continue;
        redirection.listeners.push_back(TRY(listen_on_loopback(v6)));
        chain.rules.push_back(redirect_to(redirection.listeners.back(), v6));
        strays.rules.push_back(
            {netfilter::FromPort{protocol_tcp,
                                 bound_address(redirection.listeners.back().get()).port()},
             netfilter::OutInterface{"lo"}, netfilter::Invalid{}, netfilter::Drop{}});
    }
    Result<Fd> rules = write_rules({"nsbox", {std::move(chain), std::move(strays)}});
    if (!rules) {
        rules.error().hint += rules.error().hint.empty() ? "" : "; ";
        rules.error().hint += "tcp=slirp takes no packet rules";
        return tl::unexpected<Error>{std::move(rules).error()};
    }
    redirection.rules = std::move(*rules);
    return redirection;
}

bool original_destination(int socket, Destination& destination) noexcept
{
    destination.address.v6 = bound_address(socket).family() == AF_INET6;
    if (destination.address.v6) {
        sockaddr_in6 found{};
        socklen_t size = sizeof found;
        if (::getsockopt(socket, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &found, &size) < 0)
            return false;
        std::memcpy(destination.address.bytes.data(), &found.sin6_addr, sizeof found.sin6_addr);
        destination.port = ntohs(found.sin6_port);
    } else {
        sockaddr_in found{};
        socklen_t size = sizeof found;
        if (::getsockopt(socket, SOL_IP, SO_ORIGINAL_DST, &found, &size) < 0)
            return false;
        std::memcpy(destination.address.bytes.data(), &found.sin_addr, sizeof found.sin_addr);
        destination.port = ntohs(found.sin_port);
    }
    return true;
}

}  // namespace nsbox::net::user
