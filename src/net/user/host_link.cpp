#include "net/user/host_link.hpp"

#include "net/user/host_addresses.hpp"
#include "net/user/routed_address.hpp"
#include "net/user/rtnl.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/neighbour.h>
#include <net/if.h>
#include <netlink/cache.h>
#include <netlink/errno.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/veth.h>
#include <netlink/route/neighbour.h>
#include <sys/random.h>

namespace nsbox::net::user {

namespace {

using sys::Fd;

constexpr Literal failed = cannot_connect;
constexpr const char* inside_name = "eth0";
/// How many names are tried that others have.
constexpr unsigned most_tries = 1U << 16;

tl::unexpected<Error> not_permitted()
{
    return refuse(failed, {},
                  "a veth pair takes CAP_NET_ADMIN in the user namespace that owns the host's "
                  "network namespace, which is root's",
                  "use --net user");
}

/// "1\n" or "2\n".
bool is_on(const std::string& path)
{
    const std::string text = sys::read_file(path);
    return !text.empty() && text[0] != '0' && text[0] != '\n';
}

std::uint32_t random_number()
{
    std::uint32_t number = 0;
    // Without it all begin at one place, and find a free one later.
    (void)!::getrandom(&number, sizeof number, GRND_NONBLOCK);
    return number;
}

using Hardware = std::array<std::uint8_t, 6>;

struct PairWish {
    std::string name;
    unsigned mtu = 0;
    unsigned bridge = 0;  ///< The index of one, or 0.
    Hardware host_mac{};  ///< With a bridge...
    Hardware inside_mac{};
};

NlAddr hardware_address(const Hardware& bytes)
{
    return NlAddr{::nl_addr_build(AF_LLC, bytes.data(), bytes.size())};
}

/// 0, or an error of libnl's.
int add_pair(nl_sock* socket, const Fd& network, const PairWish& wish)
{
    const NlLink pair{::rtnl_link_veth_alloc()};
    rtnl_link* const peer = pair ? ::rtnl_link_veth_get_peer(pair.get()) : nullptr;
    if (peer == nullptr)
        return -NLE_NOMEM;
    ::rtnl_link_set_name(pair.get(), wish.name.c_str());
    ::rtnl_link_set_mtu(pair.get(), wish.mtu);
    ::rtnl_link_set_name(peer, inside_name);
    ::rtnl_link_set_mtu(peer, wish.mtu);
    ::rtnl_link_set_ns_fd(peer, network.get());
    const NlAddr host_mac = hardware_address(wish.host_mac);
    const NlAddr inside_mac = hardware_address(wish.inside_mac);
    if (wish.bridge != 0) {
        ::rtnl_link_set_master(pair.get(), static_cast<int>(wish.bridge));
        ::rtnl_link_set_addr(pair.get(), host_mac.get());
        ::rtnl_link_set_addr(peer, inside_mac.get());
    }
    const int rc = ::rtnl_link_add(socket, pair.get(), NLM_F_CREATE | NLM_F_EXCL);
    ::rtnl_link_put(peer);
    return rc;
}

tl::unexpected<Error> pair_failed(int error)
{
    return error == -NLE_PERM ? not_permitted() : nl_failed(error, "a veth pair");
}

/// Whoever does not forward packets has no way for them. The settings are the host's, and stay.
Result<> check_forwarding()
{
    if (is_on("/proc/sys/net/ipv4/ip_forward"))
        return {};
    return refuse(failed, {}, "this host does not forward packets of IPv4",
                  "set net.ipv4.ip_forward to 1 with sysctl(8), or use --net user, or "
                  "veth,outbound=off");
}

/// Where the host does not forward them, packets would be lost without a word.
bool can_have_ipv6(const HelperConfig& config)
{
    return config.link.ipv6 && is_on("/proc/sys/net/ipv6/conf/all/forwarding");
}

/// The host's end, before anything comes from it.
Result<> prepare_end(HostLink& link)
{
    link.index = ::if_nametoindex(link.name.c_str());
    if (link.index == 0)
        return fail(failed, errno, link.name);
    // What the sandbox says of routes is not to be believed; the packet rules see to that too.
    set_ipv6_parameter(link.name, "accept_ra", "0");
    return {};
}

/// An end gets the default of its namespace, which may differ from what holds for all.
Result<> forward_from(const std::string& name)
{
    const std::string path = "/proc/sys/net/ipv4/conf/" + name + "/forwarding";
    if (is_on(path))
        return {};
    const Fd file{sys::raw::openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CLOEXEC)};
    const long put = file ? sys::raw::write(file.get(), "1", 1) : file.error();
    if (put < 0)
        return fail(failed, static_cast<int>(-put), path);
    return {};
}

Result<HostLink> claim_number(nl_sock* socket, const Fd& network, const HelperConfig& config,
                              bool& ipv6)
{
    const std::vector<Prefix> taken = TRY(read_networks());
    const std::uint32_t first = random_number();
    LinkNumbers numbers{taken, ipv6, first};
    bool is_last_pass = !ipv6;
    HostLink link;
    for (unsigned i = 0; i < most_tries; ++i) {
        const unsigned number = numbers.next();
        if (number == link_numbers && is_last_pass)
            break;
        if (number == link_numbers) {
            // A host may use all of that range of IPv6 for something else.
            ipv6 = false;
            is_last_pass = true;
            numbers = LinkNumbers{taken, ipv6, first};
            continue;
        }
        link.name = link_name(number);
        const int rc = add_pair(socket, network, {link.name, config.link.mtu, 0, {}, {}});
        if (rc == -NLE_EXIST)
            continue;
        if (rc < 0)
            return pair_failed(rc);
        const LinkAddresses addresses = link_addresses(number);
        link.entry = link.name;
        link.gateway4 = addresses.host4;
        link.gateway6 = addresses.host6;
        link.inside = {addresses.guest4, link_prefix4, addresses.host4,
                       addresses.guest6, link_prefix6, addresses.host6};
        return link;
    }
    return refuse(failed, {},
                  "the host's routes leave no address free in 10.207.0.0/16, 172.30.0.0/16 and "
                  "192.168.0.0/16",
                  "use --net user, or veth,bridge=NAME with a network of your choice");
}

Result<HostLink> make_routed(nl_sock* socket, const Fd& network, const HelperConfig& config)
{
    bool ipv6 = can_have_ipv6(config);
    HostLink link = TRY(claim_number(socket, network, config, ipv6));
    if (config.outbound)
        TRY(check_forwarding());
    TRY(prepare_end(link));
    TRY(add_address(socket, link.index, *link.gateway4, link_prefix4));
    // Without outbound access it is for the packet rules, which then tell the sender of the refusal.
    if (Result<> forwards = forward_from(link.name); !forwards && config.outbound)
        return tl::make_unexpected(std::move(forwards.error()));
    TRY(bring_up(socket, link.name.c_str(), config.link.mtu, ipv6));
    // It may be switched off for new interfaces, or missing from the kernel.
    link.ipv6 = ipv6 && add_address(socket, link.index, *link.gateway6, link_prefix6);
    if (!link.ipv6)
        link.gateway6.reset();
    return link;
}

/// A bridge without an address of its own takes the lowest of its ports'. It is the same for all of ours,
/// and high, so that the bridge's stays what it is as they come and go.
constexpr Hardware host_hardware{0xfe, 0x6e, 0x73, 0x62, 0x6f, 0x78};

struct Bridge {
    std::string name;
    unsigned index = 0;
    std::optional<Prefix> network;  ///< With the bridge's own address.
    std::vector<Address> own;
    std::vector<Address> taken;  ///< Its own, and those of others that the host knows of.
};

Address to_address(nl_addr* from)
{
    Address address;
    std::memcpy(address.bytes.data(), ::nl_addr_get_binary_addr(from),
                std::min<std::size_t>(::nl_addr_get_len(from), 4));
    return address;
}

bool is_ipv4(nl_addr* address)
{
    return address != nullptr && ::nl_addr_get_family(address) == AF_INET;
}

Result<> read_addresses(nl_sock* socket, Bridge& bridge)
{
    nl_cache* read = nullptr;
    if (const int rc = ::rtnl_addr_alloc_cache(socket, &read); rc < 0)
        return nl_failed(rc, bridge.name);
    const NlCache cache{read};
    for (nl_object* at = ::nl_cache_get_first(read); at != nullptr; at = ::nl_cache_get_next(at)) {
        auto* const entry = reinterpret_cast<rtnl_addr*>(at);
        nl_addr* const local = ::rtnl_addr_get_local(entry);
        if (::rtnl_addr_get_ifindex(entry) != static_cast<int>(bridge.index) || !is_ipv4(local))
            continue;
        const Address address = to_address(local);
        bridge.own.push_back(address);
        bridge.taken.push_back(address);
        if (!bridge.network)
            bridge.network =
                Prefix{address, static_cast<unsigned>(::rtnl_addr_get_prefixlen(entry))};
    }
    return {};
}

bool is_hardware(nl_addr* from, const Hardware& hardware)
{
    return from != nullptr && ::nl_addr_get_len(from) == hardware.size() &&
           std::memcmp(::nl_addr_get_binary_addr(from), hardware.data(), hardware.size()) == 0;
}

/// Whoever the host knows to be there. A sandbox is told by the name of its port, and the kernel
/// remembers one for long after its end.
Result<> read_neighbours(nl_sock* socket, Bridge& bridge)
{
    nl_cache* read = nullptr;
    if (const int rc = ::rtnl_neigh_alloc_cache(socket, &read); rc < 0)
        return nl_failed(rc, bridge.name);
    const NlCache cache{read};
    for (nl_object* at = ::nl_cache_get_first(read); at != nullptr; at = ::nl_cache_get_next(at)) {
        auto* const entry = reinterpret_cast<rtnl_neigh*>(at);
        nl_addr* const address = ::rtnl_neigh_get_dst(entry);
        const bool is_there =
            (::rtnl_neigh_get_state(entry) & (NUD_INCOMPLETE | NUD_FAILED | NUD_NOARP)) == 0;
        if (::rtnl_neigh_get_ifindex(entry) != static_cast<int>(bridge.index) || !is_there ||
            !is_ipv4(address))
            continue;
        const Address there = to_address(address);
        if (!is_hardware(::rtnl_neigh_get_lladdr(entry), port_hardware(there)))
            bridge.taken.push_back(there);
    }
    return {};
}

Result<Bridge> find_bridge(nl_sock* socket, const std::string& name)
{
    Bridge bridge;
    bridge.name = name;
    bridge.index = ::if_nametoindex(name.c_str());
    if (bridge.index == 0)
        return fail(failed, errno, "bridge " + name, "the bridge has to exist already");
    rtnl_link* read = nullptr;
    if (const int rc =
            ::rtnl_link_get_kernel(socket, static_cast<int>(bridge.index), nullptr, &read);
        rc < 0)
        return nl_failed(rc, name);
    const NlLink link{read};
    const char* const type = ::rtnl_link_get_type(read);
    if (type == nullptr || std::strcmp(type, "bridge") != 0)
        return refuse(failed, name, "it is no bridge");
    TRY(read_addresses(socket, bridge));
    TRY(read_neighbours(socket, bridge));
    return bridge;
}

PairWish port_of(const Bridge& bridge, const Address& address, unsigned mtu)
{
    return {{}, mtu, bridge.index, host_hardware, port_hardware(address)};
}

HostLink bridged_link(const Bridge& bridge, const PairWish& wish, const Prefix& own)
{
    HostLink link;
    link.name = wish.name;
    link.entry = bridge.name;
    link.is_bridged = true;
    link.inside_mac = wish.inside_mac;
    link.inside.address4 = own.address;
    link.inside.prefix4 = own.length;
    link.inside.gateway4.reset();
    if (bridge.network && is_within(own.address, bridge.network->address, bridge.network->length))
        link.inside.gateway4 = link.gateway4 = bridge.network->address;
    return link;
}

Result<HostLink> claim_given(nl_sock* socket, const Fd& network, const HelperConfig& config,
                             const Bridge& bridge)
{
    const Prefix& own = *config.routed.address;
    if (std::find(bridge.own.begin(), bridge.own.end(), own.address) != bridge.own.end())
        return refuse(failed, text_of(own.address), "the bridge itself has it");
    const Prefix& counted = bridge.network ? *bridge.network : own;
    PairWish wish = port_of(bridge, own.address, config.link.mtu);
    wish.name = port_name(bridge.index, PortAddresses{counted, {}, 0}.host_part(own.address));
    const int rc = add_pair(socket, network, wish);
    if (rc == -NLE_EXIST)
        return refuse(failed, text_of(own.address), "another sandbox on the bridge has it");
    if (rc < 0)
        return pair_failed(rc);
    HostLink link = bridged_link(bridge, wish, own);
    if (config.routed.gateway)
        link.inside.gateway4 = config.routed.gateway;
    return link;
}

Result<HostLink> claim_port(nl_sock* socket, const Fd& network, const HelperConfig& config,
                            const Bridge& bridge)
{
    if (config.routed.address)
        return claim_given(socket, network, config, bridge);
    if (!bridge.network)
        return refuse(failed, bridge.name,
                      "the bridge has no address of IPv4 whose network could "
                      "be used",
                      "give the sandbox's with address=A.B.C.D/LENGTH");
    PortAddresses addresses{*bridge.network, bridge.taken, random_number()};
    Address address;
    for (unsigned i = 0; i < most_tries && addresses.next(address); ++i) {
        PairWish wish = port_of(bridge, address, config.link.mtu);
        wish.name = port_name(bridge.index, addresses.host_part(address));
        const int rc = add_pair(socket, network, wish);
        if (rc == -NLE_EXIST)
            continue;
        if (rc < 0)
            return pair_failed(rc);
        return bridged_link(bridge, wish, {address, bridge.network->length});
    }
    return refuse(failed, bridge.name, "no address of the bridge's network is free");
}

Result<HostLink> make_bridged(nl_sock* socket, const Fd& network, const HelperConfig& config)
{
    const Bridge bridge = TRY(find_bridge(socket, config.routed.bridge));
    HostLink link = TRY(claim_port(socket, network, config, bridge));
    TRY(prepare_end(link));
    TRY(bring_up(socket, link.name.c_str(), config.link.mtu, false));
    return link;
}

}  // namespace

Result<HostLink> make_host_link(const HelperConfig& config, const Fd& network)
{
    const NlSocket socket = TRY(open_netlink());
    return config.routed.bridge.empty() ? make_routed(socket.get(), network, config)
                                        : make_bridged(socket.get(), network, config);
}

}  // namespace nsbox::net::user
