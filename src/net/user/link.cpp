#include "net/user/link.hpp"

#include "net/user/confine.hpp"
#include "net/user/guest.hpp"
#include "sys/packing.hpp"
#include "sys/pass.hpp"
#include "sys/raw.hpp"

#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/nsfs.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netlink/errno.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/inet6.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/route.h>
#include <netlink/socket.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::net::user {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using sys::pack;
using sys::Unpacker;

constexpr const char* inside_name = "eth0";
constexpr const char* outside_name = "far0";
constexpr Literal failed{"Can't connect the sandbox's network"};

/// The opposite of an allocation of libnl's.
template <class T, void (*free)(T*)>
struct Free {
    void operator()(T* object) const noexcept { free(object); }
};
using NlSocket = std::unique_ptr<nl_sock, Free<nl_sock, nl_socket_free>>;
using NlLink = std::unique_ptr<rtnl_link, Free<rtnl_link, rtnl_link_put>>;
using NlAddr = std::unique_ptr<nl_addr, Free<nl_addr, nl_addr_put>>;
using NlRtAddr = std::unique_ptr<rtnl_addr, Free<rtnl_addr, rtnl_addr_put>>;
using NlRoute = std::unique_ptr<rtnl_route, Free<rtnl_route, rtnl_route_put>>;

tl::unexpected<Error> nl_failed(int error, const char* object)
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

/// Frames are to leave whole and with their checksums: nothing further on would fill these in, or
/// cut them up.
Result<> send_finished_frames()
{
    const Fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ethtool_value off{ETHTOOL_STXCSUM, 0};
    ifreq request{};
    std::strncpy(request.ifr_name, inside_name, sizeof request.ifr_name - 1);
    request.ifr_data = reinterpret_cast<char*>(&off);
    if (!socket || ::ioctl(socket.get(), SIOCETHTOOL, &request) < 0)
        return fail(failed, errno, "checksums");
    return {};
}

/// Whoever is in the sandbox may bind any port there: nobody else has it. Where it cannot be said, it
/// stays as it is everywhere.
void open_low_ports()
{
    const Fd file{raw::openat(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start",
                              O_WRONLY | O_CLOEXEC)};
    if (file)
        raw::write(file.get(), "0", 1);
}

/// Addresses and routes of the sandbox's end. Whether it has IPv6.
Result<bool> configure_inside(const LinkWish& wish)
{
    const NlSocket socket = TRY(open_netlink());
    const unsigned index = ::if_nametoindex(inside_name);
    if (index == 0)
        return fail(failed, errno, inside_name);
    open_low_ports();
    const GuestNetwork guest;
    TRY(add_address(socket.get(), index, guest.guest4, guest_prefix4));
    TRY(bring_up(socket.get(), inside_name, wish.mtu, true));
    TRY(add_default_route(socket.get(), index, guest.gateway4));
    // It may be switched off here, or missing from the kernel.
    return wish.ipv6 && add_address(socket.get(), index, guest.guest6, guest_prefix6) &&
           add_default_route(socket.get(), index, guest.gateway6);
}

Fd open_tun()
{
    return Fd{raw::openat(AT_FDCWD, "/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)};
}

/// In the sandbox's network namespace.
Result<Link> make_tap(Fd tun, const LinkWish& wish)
{
    if (!tun)
        return fail(failed, -tun.error(), "/dev/net/tun",
                    "without the device a veth pair does the same");
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, inside_name, sizeof request.ifr_name - 1);
    if (::ioctl(tun.get(), TUNSETIFF, &request) < 0)
        return fail(failed, errno, "/dev/net/tun");
    Link link{LinkKind::tap, std::move(tun), false};
    link.ipv6 = TRY(configure_inside(wish));
    return link;
}

/// In the outer network namespace: the pair, one end of which appears in the sandbox.
Result<> make_pair(nl_sock* socket, const Fd& network, const LinkWish& wish)
{
    const NlLink pair{::rtnl_link_veth_alloc()};
    rtnl_link* const peer = pair ? ::rtnl_link_veth_get_peer(pair.get()) : nullptr;
    if (peer == nullptr)
        return fail(failed, ENOMEM, "a veth pair");
    ::rtnl_link_set_name(pair.get(), outside_name);
    ::rtnl_link_set_mtu(pair.get(), wish.mtu);
    ::rtnl_link_set_name(peer, inside_name);
    ::rtnl_link_set_mtu(peer, wish.mtu);
    ::rtnl_link_set_ns_fd(peer, network.get());
    const int rc = ::rtnl_link_add(socket, pair.get(), NLM_F_CREATE | NLM_F_EXCL);
    ::rtnl_link_put(peer);
    if (rc < 0)
        return nl_failed(rc, "a veth pair");
    return {};
}

Result<Fd> open_packet_socket()
{
    Fd socket{::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket)
        return fail(failed, errno, "a packet socket");
    const int yes = 1;
    ::setsockopt(socket.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    // Whatever does not fit is lost, and makes TCP slow down.
    constexpr int room = 4 << 20;
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) < 0)
        ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(outside_name));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return fail(failed, errno, outside_name);
    return socket;
}

Result<Link> make_veth(const Fd& network, const LinkWish& wish)
{
    if (const int rc = raw::unshare(CLONE_NEWNET); rc < 0)
        return fail(failed, -rc, "a network namespace");
    Link link{LinkKind::veth, Fd{}, false};
    {
        const NlSocket socket = TRY(open_netlink());
        TRY(make_pair(socket.get(), network, wish));
        TRY(bring_up(socket.get(), outside_name, wish.mtu, false));
        link.frames = TRY(open_packet_socket());
    }
    if (const int rc = raw::setns(network.get(), CLONE_NEWNET); rc < 0)
        return fail(failed, -rc, "the sandbox's network namespace");
    TRY(send_finished_frames());
    link.ipv6 = TRY(configure_inside(wish));
    return link;
}

/// Into the user namespace that the network namespace belongs to, where this user is its owner.
Result<> enter_owner(const Fd& network)
{
    const Fd owner{static_cast<int>(raw::call(SYS_ioctl, network.get(), NS_GET_USERNS))};
    const Fd own{raw::openat(AT_FDCWD, "/proc/self/ns/user", O_RDONLY | O_CLOEXEC)};
    if (!owner)
        return fail(failed, -owner.error(), "the sandbox's user namespace");
    struct ::stat one;
    struct ::stat other;
    if (own && raw::fstat(owner.get(), &one) == 0 && raw::fstat(own.get(), &other) == 0 &&
        one.st_ino == other.st_ino)
        return {};
    if (const int rc = raw::setns(owner.get(), CLONE_NEWUSER); rc < 0)
        return fail(failed, -rc, "the sandbox's user namespace");
    return {};
}

/// Leaves this process in the sandbox's network namespace.
Result<Link> make_frames(const Fd& network, const LinkWish& wish)
{
    const bool try_tap = wish.kind != LinkKind::veth;
    if (try_tap) {
        if (const Fd probe = open_tun(); probe || wish.kind == LinkKind::tap) {
            // A tap belongs to the namespace in which the device is opened.
            if (const int rc = raw::setns(network.get(), CLONE_NEWNET); rc < 0)
                return fail(failed, -rc, "the sandbox's network namespace");
            return make_tap(open_tun(), wish);
        }
    }
    return make_veth(network, wish);
}

Result<Link> make_link(const Fd& network, const LinkWish& wish)
{
    TRY(enter_owner(network));
    Link link = TRY(make_frames(network, wish));
    if (wish.tcp == TcpPath::relay)
        link.redirection = TRY(redirect_tcp(link.ipv6));
    return link;
}

// What the two say to each other: `wish` with the namespace; the link or an Error; then (family, type,
// protocol), answered by a descriptor or -errno.

std::string pack_error(const Error& error)
{
    std::string out;
    pack(out, std::uint64_t{0});
    pack(out, error.message());
    return out;
}

/// Descriptors one after the other, each with a byte, after the message that counts them.
bool send_each(int channel, const std::vector<const Fd*>& descriptors)
{
    for (const Fd* descriptor : descriptors) {
        const int fds[] = {descriptor->get()};
        if (sys::send_with_descriptors(channel, "", 1, fds) < 0)
            return false;
    }
    return true;
}

/// What keeps the link as it is. It stays open here too: the last end of such descriptors takes the
/// kernel some 10 ms, which the end of the helper then need not wait for.
struct Held {
    Fd frames;
    Fd rules;
};

Held serve_build(int channel)
{
    std::array<char, 256> buffer;
    int fds[1];
    const long got = sys::receive_with_descriptors(channel, buffer.data(), buffer.size(), fds);
    const Fd network{fds[0]};
    if (got <= 0 || !network)
        return {};
    const std::string bytes(buffer.data(), static_cast<std::size_t>(got));
    Unpacker from{bytes};
    LinkWish wish;
    wish.kind = static_cast<LinkKind>(from.number());
    wish.mtu = static_cast<unsigned>(from.number());
    wish.ipv6 = from.number() != 0;
    wish.tcp = static_cast<TcpPath>(from.number());
    Result<Link> link = make_link(network, wish);
    if (!link) {
        const std::string out = pack_error(link.error());
        ::send(channel, out.data(), out.size(), MSG_NOSIGNAL);
        return {};
    }
    std::string out;
    pack(out, std::uint64_t{1});
    pack(out, static_cast<std::uint64_t>(link->kind));
    pack(out, std::uint64_t{link->ipv6});
    const Redirection& redirection = link->redirection;
    std::vector<const Fd*> more;
    if (redirection.rules)
        more.push_back(&redirection.rules);
    for (const Fd& listener : redirection.listeners)
        more.push_back(&listener);
    pack(out, more.size());
    const int frames[] = {link->frames.get()};
    if (sys::send_with_descriptors(channel, out.data(), out.size(), frames) < 0 ||
        !send_each(channel, more))
        return {};
    return {std::move(link->frames), std::move(link->redirection.rules)};
}

void serve_sockets(int channel)
{
    for (;;) {
        int wish[3];
        const ssize_t got = ::recv(channel, wish, sizeof wish, 0);
        if (got != sizeof wish)
            return;
        const Fd socket{::socket(wish[0], wish[1] | SOCK_NONBLOCK | SOCK_CLOEXEC, wish[2])};
        const int error = socket ? 0 : errno;
        if (!socket) {
            ::send(channel, &error, sizeof error, MSG_NOSIGNAL);
            continue;
        }
        const int fds[] = {socket.get()};
        sys::send_with_descriptors(channel, &error, sizeof error, fds);
    }
}

constexpr int calls_of_insider[] = {SYS_recvfrom, SYS_recvmsg, SYS_sendto,     SYS_sendmsg,
                                    SYS_close,    SYS_socket,  SYS_exit_group, SYS_rt_sigreturn};
constexpr int families_of_insider[] = {AF_INET, AF_INET6, AF_NETLINK};

[[noreturn]] void run_insider(int channel)
{
    raw::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Held held = serve_build(channel);
    if (held.frames && leave_file_tree() && give_up_privilege() &&
        allow_only(calls_of_insider, families_of_insider))
        serve_sockets(channel);
    ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Insider>> Insider::start()
{
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fail(failed, errno, "socketpair");
    Fd ours{ends[0]};
    Fd theirs{ends[1]};
    const pid_t pid = ::fork();
    if (pid < 0)
        return fail(failed, errno, "fork");
    if (pid == 0) {
        // Only its own end may keep it alive, and nobody else's ends may stay open with it.
        raw::call(SYS_dup3, theirs.get(), 3, 0);
        raw::close_range(4, ~0U, 0);
        run_insider(3);
    }
    return std::unique_ptr<Insider>{new Insider{std::move(ours), pid}};
}

Insider::~Insider()
{
    channel_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

Result<> Insider::build(const Fd& network, const LinkWish& wish)
{
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(wish.kind));
    pack(bytes, std::uint64_t{wish.mtu});
    pack(bytes, std::uint64_t{wish.ipv6});
    pack(bytes, static_cast<std::uint64_t>(wish.tcp));
    const int fds[] = {network.get()};
    const long put = sys::send_with_descriptors(channel_.get(), bytes.data(), bytes.size(), fds);
    if (put < 0)
        return fail(failed, static_cast<int>(-put), "the process inside");
    return {};
}

Result<Link> Insider::finish()
{
    std::array<char, 4096> buffer;
    int fds[1];
    const long got =
        sys::receive_with_descriptors(channel_.get(), buffer.data(), buffer.size(), fds);
    Link link;
    link.frames = Fd{fds[0]};
    if (got <= 0)
        return refuse(failed, "the process inside", "it ended early");
    const std::string bytes(buffer.data(), static_cast<std::size_t>(got));
    Unpacker from{bytes};
    if (from.number() == 0)
        return refuse("", from.text());
    link.kind = static_cast<LinkKind>(from.number());
    link.ipv6 = from.number() != 0;
    const std::uint64_t more = from.number();
    if (!from.is_done() || !link.frames)
        return refuse(failed, "the process inside", "it is of another version");
    for (std::uint64_t i = 0; i < more; ++i) {
        char byte = 0;
        int next[1];
        if (sys::receive_with_descriptors(channel_.get(), &byte, 1, next) <= 0 || next[0] < 0)
            return refuse(failed, "the process inside", "it ended early");
        if (i == 0)
            link.redirection.rules = Fd{next[0]};
        else
            link.redirection.listeners.emplace_back(next[0]);
    }
    return link;
}

Fd Insider::make(int family, int type, int protocol)
{
    const int wish[] = {family, type, protocol};
    if (::send(channel_.get(), wish, sizeof wish, MSG_NOSIGNAL) < 0)
        return Fd{-errno};
    int error = 0;
    int fds[1];
    const long got = sys::receive_with_descriptors(channel_.get(), &error, sizeof error, fds);
    Fd socket{fds[0]};
    if (got != sizeof error)
        return Fd{got < 0 ? static_cast<int>(got) : -EPIPE};
    return error != 0 ? Fd{-error} : std::move(socket);
}

}  // namespace nsbox::net::user
