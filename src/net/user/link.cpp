#include "net/user/link.hpp"

#include "net/user/confine.hpp"
#include "net/user/rtnl.hpp"
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
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netlink/route/link.h>
#include <netlink/route/link/veth.h>
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
constexpr Literal failed = cannot_connect;

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
    const InsideNetwork& inside = wish.inside;
    // On a host's link others may offer addresses and routes; a user-mode network lets nobody.
    const bool is_routed = wish.kind == LinkKind::routed;
    if (is_routed)
        set_ipv6_parameter(inside_name, "accept_ra", "0");
    TRY(add_address(socket.get(), index, inside.address4, inside.prefix4));
    TRY(bring_up(socket.get(), inside_name, wish.mtu, wish.ipv6 || !is_routed));
    if (inside.gateway4)
        TRY(add_default_route(socket.get(), index, *inside.gateway4));
    // It may be switched off here, or missing from the kernel.
    return wish.ipv6 && add_address(socket.get(), index, inside.address6, inside.prefix6) &&
           add_default_route(socket.get(), index, inside.gateway6);
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
    if (wish.kind == LinkKind::routed) {
        if (const int rc = raw::setns(network.get(), CLONE_NEWNET); rc < 0)
            return fail(failed, -rc, "the sandbox's network namespace");
        return Link{LinkKind::routed, Fd{}, TRY(configure_inside(wish)), {}};
    }
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

void pack_address(std::string& out, const Address& address)
{
    pack(out, address.bytes.data(), address.size());
}

Address unpack_address(Unpacker& from)
{
    const std::string bytes = from.text();
    Address address;
    address.v6 = bytes.size() == address.bytes.size();
    std::memcpy(address.bytes.data(), bytes.data(), std::min(bytes.size(), address.bytes.size()));
    return address;
}

std::string pack_wish(const LinkWish& wish)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(wish.kind));
    pack(out, std::uint64_t{wish.mtu});
    pack(out, std::uint64_t{wish.ipv6});
    pack(out, static_cast<std::uint64_t>(wish.tcp));
    pack_address(out, wish.inside.address4);
    pack(out, std::uint64_t{wish.inside.prefix4});
    pack(out, std::uint64_t{wish.inside.gateway4.has_value()});
    pack_address(out, wish.inside.gateway4.value_or(Address{}));
    pack_address(out, wish.inside.address6);
    pack(out, std::uint64_t{wish.inside.prefix6});
    pack_address(out, wish.inside.gateway6);
    return out;
}

LinkWish unpack_wish(const std::string& bytes)
{
    Unpacker from{bytes};
    LinkWish wish;
    wish.kind = static_cast<LinkKind>(from.number());
    wish.mtu = static_cast<unsigned>(from.number());
    wish.ipv6 = from.number() != 0;
    wish.tcp = static_cast<TcpPath>(from.number());
    wish.inside.address4 = unpack_address(from);
    wish.inside.prefix4 = static_cast<unsigned>(from.number());
    const bool has_gateway = from.number() != 0;
    const Address gateway = unpack_address(from);
    wish.inside.gateway4 = has_gateway ? std::optional{gateway} : std::nullopt;
    wish.inside.address6 = unpack_address(from);
    wish.inside.prefix6 = static_cast<unsigned>(from.number());
    wish.inside.gateway6 = unpack_address(from);
    return wish;
}

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

/// Removes an interface when it is told to, by a process that may do little else.
class Remover {
public:
    bool open(const char* name)
    {
        socket_ = Fd{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)};
        message_.header.nlmsg_len = sizeof message_;
        message_.header.nlmsg_type = RTM_DELLINK;
        message_.header.nlmsg_flags = NLM_F_REQUEST;
        message_.link.ifi_index = static_cast<int>(::if_nametoindex(name));
        return socket_ && message_.link.ifi_index != 0;
    }
    void remove() const
    {
        if (socket_)
            ::send(socket_.get(), &message_, sizeof message_, MSG_NOSIGNAL);
    }

private:
    struct {
        nlmsghdr header;
        ifinfomsg link;
    } message_{};
    Fd socket_;
};

/// The sandbox's end of a link of the host's may not outlive those who judge what comes from there,
/// so this process outlives them for a moment.
Result<> guard_link(Remover& remover)
{
    if (!remover.open(inside_name) || raw::prctl(PR_SET_PDEATHSIG, 0) < 0)
        return fail(failed, errno, inside_name);
    return {};
}

/// The link; nothing if there is none. What keeps it as it is stays open here too: the last end of such
/// descriptors takes the kernel some 10 ms, which the end of the helper then need not wait for.
std::optional<Link> serve_build(int channel, Remover& remover)
{
    std::array<char, 1024> buffer;
    int fds[1];
    const long got = sys::receive_with_descriptors(channel, buffer.data(), buffer.size(), fds);
    const Fd network{fds[0]};
    if (got <= 0 || !network)
        return {};
    const std::string bytes(buffer.data(), static_cast<std::size_t>(got));
    Result<Link> link = make_link(network, unpack_wish(bytes));
    if (link && link->kind == LinkKind::routed)
        if (Result<> guarded = guard_link(remover); !guarded)
            link = tl::make_unexpected(std::move(guarded.error()));
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
    const bool has_frames = link->kind != LinkKind::routed;
    const long put = has_frames
                         ? sys::send_with_descriptors(channel, out.data(), out.size(), frames)
                         : ::send(channel, out.data(), out.size(), MSG_NOSIGNAL);
    if (put < 0 || !send_each(channel, more))
        return {};
    link->redirection.listeners.clear();
    return std::move(*link);
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
    Remover remover;
    const std::optional<Link> link = serve_build(channel, remover);
    const bool is_guard = link && link->kind == LinkKind::routed;
    if (link && leave_file_tree(is_guard ? Rights::stay : Rights::go) &&
        give_up_privilege(is_guard ? capability_of_network : 0) &&
        allow_only(calls_of_insider, families_of_insider))
        serve_sockets(channel);
    remover.remove();
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
    const std::string bytes = pack_wish(wish);
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
    if (!from.is_done() || (!link.frames && link.kind != LinkKind::routed))
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
