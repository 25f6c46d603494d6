#include "runtime/plan.hpp"

#include "ns/seccomp/own.hpp"
#include "ns/terminal_filter.hpp"
#include "runtime/environment.hpp"
#include "runtime/plan_landlock.hpp"
#include "runtime/plan_operations.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <linux/sched.h>

namespace nsbox::runtime {

namespace {

using sys::Host;

/// What several rules need to know.
struct Decisions {
    bool is_root = false;   ///< Real and effective uid 0.
    bool own_user = false;  ///< A new user namespace, which we map unless someone else does.
    bool maps_itself = false;
    IdMaps maps;               ///< Of several ids.
    bool second_user = false;  ///< A further one, to have other ids than those of set-up...
    bool lock_mounts = false;  ///< ...or to lock what is mounted.
    std::uint32_t uid = 0;     ///< What the command is to see.
    std::uint32_t gid = 0;
    std::uint32_t first_uid = 0;  ///< What set-up sees.
    std::uint32_t first_gid = 0;
    std::uint64_t target = 0;  ///< Capabilities of the command.
    bool edited_capabilities = false;
};

bool wants(Own own, bool possible)
{
    return own == Own::yes || (own == Own::if_possible && possible);
}

// CAP_NET_BIND_SERVICE, CAP_NET_BROADCAST, CAP_NET_ADMIN, CAP_NET_RAW
constexpr std::uint64_t network_capabilities = std::uint64_t{15} << 10;
constexpr unsigned cap_net_admin = 12;  // CAP_NET_ADMIN
constexpr unsigned cap_sys_admin = 21;  // CAP_SYS_ADMIN, capabilities(7)

template <class T>
bool has(const Spec& spec)
{
    return std::any_of(spec.operations.begin(), spec.operations.end(),
                       [](const Operation& op) { return std::holds_alternative<T>(op); });
}

bool is_relative(const std::string& path)
{
    return path.empty() || path[0] != '/';
}

bool has_relative_source(const Spec& spec)
{
    return std::any_of(spec.operations.begin(), spec.operations.end(), [](const Operation& op) {
        if (const auto* bind = std::get_if<Bind>(&op))
            return is_relative(bind->source);
        const auto* overlay = std::get_if<Overlay>(&op);
        return overlay != nullptr &&
               (std::any_of(overlay->lower.begin(), overlay->lower.end(), is_relative) ||
                is_relative(overlay->upper) || is_relative(overlay->work));
    });
}

std::uint64_t edit_capabilities(const Spec& spec, const Host& host, std::uint64_t set)
{
    for (const CapabilityEdit& edit : spec.capabilities) {
        const std::uint64_t bit = std::uint64_t{1} << (edit.number & 63);
        switch (edit.kind) {
        case CapabilityEdit::Kind::add:
            set |= bit;
            break;
        case CapabilityEdit::Kind::drop:
            set &= ~bit;
            break;
        case CapabilityEdit::Kind::add_all:
            set |= host.all_capabilities;
            break;
        case CapabilityEdit::Kind::drop_all:
            set = 0;
            break;
        }
    }
    return set;
}

/// Root without a user namespace can keep no more than it has. "All" means all of those; one
/// that was asked for by name must not be lacking silently.
Result<std::uint64_t> possible_capabilities(const Spec& spec, const Host& host,
                                            std::uint64_t wanted)
{
    const std::uint64_t missing = wanted & ~host.permitted_capabilities;
    for (const CapabilityEdit& edit : spec.capabilities) {
        if (edit.kind != CapabilityEdit::Kind::add || (missing >> edit.number & 1) == 0)
            continue;
        const std::vector<std::string> names = capability_names();
        return refuse("Can't keep capability",
                      edit.number < names.size() ? names[edit.number] : std::to_string(edit.number),
                      "the caller does not have it",
                      "with --unshare-user it is held over the sandbox's own namespaces");
    }
    return wanted & host.permitted_capabilities;
}

Result<> check_namespaces(const Spec& spec, const Decisions& decisions)
{
    const bool any_user = decisions.own_user || spec.namespaces.join_user;
    const bool own_pid = spec.namespaces.pid == Own::yes;
    if (!any_user && spec.uid && decisions.uid != *spec.uid)
        return refuse("Specifying --uid requires --unshare-user or --userns");
    if (!any_user && spec.gid && decisions.gid != *spec.gid)
        return refuse("Specifying --gid requires --unshare-user or --userns");
    if (has<Hostname>(spec) && spec.namespaces.uts == Own::no)
        return refuse("Specifying --hostname requires --unshare-uts");
    if (spec.command_is_pid_1 && !own_pid)
        return refuse("Specifying --as-pid-1 requires --unshare-pid");
    if (spec.command_is_pid_1 && !spec.lock_files.empty())
        return refuse("Specifying --as-pid-1 and --lock-file is not permitted");
    if (spec.disable_user_namespaces && !decisions.own_user)
        return refuse("--disable-userns requires --unshare-user");
    return {};
}

constexpr Literal no_maps{"Can't map several ids"};
constexpr std::uint64_t cap_setgid = std::uint64_t{1} << 6;  // CAP_SETGID, capabilities(7)
constexpr std::uint64_t cap_setuid = std::uint64_t{1} << 7;  // CAP_SETUID

Result<> check_mapped(IdKind kind, const std::vector<IdRange>& map, std::uint32_t id)
{
    TRY(check_id_map(kind, map));
    if (outside_of(map, id))
        return {};
    const bool is_user = kind == IdKind::user;
    return refuse(no_maps, {},
                  std::string{"the command's "} + (is_user ? "user" : "group") + " id " +
                      std::to_string(id) + " is not among them",
                  std::string{"map it too, or choose another with --"} + (is_user ? "uid" : "gid"));
}

/// Maps of several ids take others than a single one: the supervisor writes them.
Result<IdMaps> decide_maps(const Spec& spec, const Host& host, const Decisions& decisions)
{
    IdMaps maps;
    if (spec.uid_map.empty() && spec.gid_map.empty())
        return maps;
    if (spec.namespaces.join_user || spec.namespaces.join_user_last)
        return refuse(no_maps, {}, "the user namespace that is joined has its own");
    if (!decisions.own_user)
        return refuse(no_maps, {}, "that requires a user namespace", "use --unshare-user");
    if (spec.user_map_descriptor)
        return refuse(no_maps, {}, "the maps are to be written by somebody else");
    if (host.foreign_network_owner >= 0 && !host.keeps_network)
        return refuse(no_maps, {},
                      "the sandbox is to be below the user namespace that owns the network of " +
                          name_of(*spec.join_network),
                      "join the network as root");
    maps.uids = spec.uid_map;
    maps.gids = spec.gid_map;
    if (maps.uids.empty())
        maps.uids = {{decisions.uid, host.uid, 1}};
    constexpr std::uint64_t both = cap_setuid | cap_setgid;
    maps.directly = (host.effective_capabilities & both) == both;
    // A group that may be mapped without a privilege takes this in exchange, since a file may be
    // closed to its members alone (user_namespaces(7)).
    maps.deny_setgroups = maps.gids.empty() && !maps.directly;
    if (maps.gids.empty())
        maps.gids = {{decisions.gid, host.gid, 1}};
    TRY(check_mapped(IdKind::user, maps.uids, decisions.uid));
    TRY(check_mapped(IdKind::group, maps.gids, decisions.gid));
    if (has<Dev>(spec) && !(outside_of(maps.uids, 0) && outside_of(maps.gids, 0)))
        return refuse(no_maps, {}, "a new /dev takes a devpts, and that the ids 0",
                      "map user 0 and group 0 too, or bind the host's /dev");
    return maps;
}

/// Another sandbox that is to share the network has to be built below the user namespace that owns it.
/// Whoever is in there has power over that other one: the command must not be, unless it is to have
/// rights of its own over its namespaces.
bool owns_network_for_others(const Spec& spec, const Decisions& decisions)
{
    return spec.name && !decisions.is_root && decisions.target == 0 &&
           wants(spec.namespaces.net, true) && !spec.join_network;
}

Result<Decisions> decide(const Spec& spec, const Host& host)
{
    Decisions decisions;
    decisions.is_root = host.uid == 0 && host.effective_uid == 0;
    if (decisions.is_root && !host.capabilities_known)
        return refuse("Can't find out the caller's capabilities", {}, "capget failed");
    const Namespaces& ns = spec.namespaces;
    const bool only_landlock = spec.landlock == Landlock::only;
    if (!ns.join_user && !only_landlock)
        decisions.own_user = wants(ns.user, host.user_namespaces) || !decisions.is_root;
    const bool any_user = decisions.own_user || ns.join_user;
    decisions.uid = any_user ? spec.uid.value_or(host.uid) : host.uid;
    decisions.gid = any_user ? spec.gid.value_or(host.gid) : host.gid;
    decisions.maps = TRY(decide_maps(spec, host, decisions));
    decisions.maps_itself = decisions.own_user && !spec.user_map_descriptor;
    decisions.edited_capabilities = !spec.capabilities.empty() || only_landlock;
    decisions.target =
        only_landlock
            ? 0
            : edit_capabilities(spec, host, decisions.is_root ? host.effective_capabilities : 0);
    // Someone who keeps CAP_SYS_ADMIN could write what is read-only, lift the covers of /proc, or
    // mount another one.
    decisions.lock_mounts = decisions.maps_itself && host.owns_kernel_settings &&
                            (decisions.target >> cap_sys_admin & 1) != 0;
    // devpts can be mounted only where id 0 is mapped; with two user namespaces the outer one has the
    // caller's, as if it were the host.
    const bool as_zero =
        !decisions.maps.any() && ((decisions.maps_itself && has<Dev>(spec)) ||
                                  (decisions.lock_mounts && !spec.disable_user_namespaces));
    decisions.first_uid = as_zero ? 0 : decisions.uid;
    decisions.first_gid = as_zero ? 0 : decisions.gid;
    decisions.second_user = decisions.maps_itself &&
                            (decisions.first_uid != decisions.uid ||
                             decisions.first_gid != decisions.gid || spec.disable_user_namespaces ||
                             decisions.lock_mounts || owns_network_for_others(spec, decisions));
    if (decisions.is_root && !any_user && decisions.edited_capabilities)
        decisions.target = TRY(possible_capabilities(spec, host, decisions.target));
    TRY(check_namespaces(spec, decisions));
    return decisions;
}

std::uint64_t clone_flags(const Spec& spec, const Host& host, const Decisions& decisions)
{
    const Namespaces& ns = spec.namespaces;
    if (spec.landlock == Landlock::only)
        return 0;
    std::uint64_t flags = CLONE_NEWNS;
    if (decisions.own_user && !host.keeps_network)
        flags |= CLONE_NEWUSER;
    if (wants(ns.pid, true))
        flags |= CLONE_NEWPID;
    if (wants(ns.ipc, true))
        flags |= CLONE_NEWIPC;
    if (wants(ns.net, true) && !spec.join_network && !host.keeps_network)
        flags |= CLONE_NEWNET;
    if (wants(ns.uts, true))
        flags |= CLONE_NEWUTS;
    if (wants(ns.cgroup, host.cgroup_namespaces))
        flags |= CLONE_NEWCGROUP;
    return flags;
}

Result<> plan_ports(const std::vector<PublishedPort>& ports, Plan& plan)
{
    for (const PublishedPort& port : ports)
        TRY(net::check_port(port));
    plan.ports = ports;
    return {};
}

bool has_own_network(const Plan& plan)
{
    return plan.keeps_network || (plan.clone_flags & CLONE_NEWNET) != 0;
}

/// What both kinds of network have.
template <class Network>
Result<> plan_common(const Network& wish, Plan& plan)
{
    net::user::HelperConfig& config = plan.network.emplace();
    config.link.mtu = wish.mtu;
    config.link.ipv6 = wish.ipv6;
    config.outbound = wish.outbound;
    for (const Ports& ports : wish.host_loopback)
        config.host_loopback.push_back({ports.first, ports.last});
    return plan_ports(wish.ports, plan);
}

Result<> plan_user_network(const UserNetwork& wish, Plan& plan)
{
    constexpr Literal cannot{"Can't use a user-mode network"};
    constexpr unsigned least_mtu = 1500;
    constexpr unsigned most_mtu = 65520;  // What libslirp takes.
    if (!has_own_network(plan))
        return refuse(cannot, {}, "the sandbox has no network namespace of its own");
    if (wish.mtu < least_mtu || wish.mtu > most_mtu)
        return refuse(cannot, "an MTU of " + std::to_string(wish.mtu),
                      "it has to be between 1500 and 65520");
    TRY(plan_common(wish, plan));
    using net::user::LinkKind;
    plan.network->link.tcp =
        wish.tcp == UserNetwork::Tcp::relay ? net::user::TcpPath::relay : net::user::TcpPath::slirp;
    plan.network->link.kind = wish.link == UserNetwork::Link::tap    ? LinkKind::tap
                              : wish.link == UserNetwork::Link::veth ? LinkKind::veth
                                                                     : LinkKind::automatic;
    plan.ends_with_network = wish.end_with_helper;
    return {};
}

constexpr Literal no_veth{"Can't use a veth network"};

std::optional<net::user::Address> parse_ipv4(const std::string& text)
{
    net::user::Address address;
    if (::inet_pton(AF_INET, text.c_str(), address.bytes.data()) != 1)
        return std::nullopt;
    return address;
}

Result<> plan_bridge(const VethNetwork& wish, net::user::RoutedWish& routed)
{
    routed.bridge = wish.bridge;
    if (wish.bridge.empty() && !(wish.address.empty() && wish.gateway.empty()))
        return refuse(no_veth, wish.address.empty() ? wish.gateway : wish.address,
                      "an address is chosen by nsbox, except on a bridge");
    if (wish.address.empty() && !wish.gateway.empty())
        return refuse(no_veth, wish.gateway, "a gateway needs an address of the sandbox's too");
    if (!wish.address.empty()) {
        const std::size_t slash = wish.address.find('/');
        const auto address = parse_ipv4(wish.address.substr(0, slash));
        unsigned length = 0;
        const char* const end = wish.address.data() + wish.address.size();
        const bool has_length =
            slash != std::string::npos &&
            std::from_chars(wish.address.data() + slash + 1, end, length).ptr == end;
        constexpr unsigned least = 8;
        constexpr unsigned most = 31;
        if (!address || !has_length || length < least || length > most)
            return refuse(no_veth, wish.address, "it is no address of IPv4 with a length",
                          "as in 10.1.2.3/24, from /8 to /31");
        routed.address = {*address, length};
    }
    if (!wish.gateway.empty() && !(routed.gateway = parse_ipv4(wish.gateway)))
        return refuse(no_veth, wish.gateway, "it is no address of IPv4");
    return {};
}

Result<> check_veth(const Spec& spec, const Host& host, const Decisions& decisions,
                    const Plan& plan)
{
    const VethNetwork& wish = *spec.veth_network;
    if (spec.user_network)
        return refuse(no_veth, {}, "a user-mode network is asked for too");
    if (!has_own_network(plan))
        return refuse(no_veth, {}, "the sandbox has no network namespace of its own");
    if (!decisions.is_root || (host.effective_capabilities >> cap_net_admin & 1) == 0)
        return refuse(no_veth, {},
                      "it is for root: it takes CAP_NET_ADMIN in the user namespace that owns the "
                      "host's network namespace",
                      "use --net user");
    // With rights over the host's own namespaces it could reach through to them by netlink.
    if (!decisions.own_user && !spec.namespaces.join_user && decisions.edited_capabilities &&
        (decisions.target >> cap_net_admin & 1) != 0)
        return refuse(
            no_veth, {},
            "a command that keeps CAP_NET_ADMIN would have it over the host's network too",
            "with --unshare-user it has it over the sandbox's alone");
    constexpr unsigned least_mtu = 1280;  // RFC 8200
    constexpr unsigned most_mtu = 65520;
    if (wish.mtu < least_mtu || wish.mtu > most_mtu)
        return refuse(no_veth, "an MTU of " + std::to_string(wish.mtu),
                      "it has to be between 1280 and 65520");
    if (!wish.bridge.empty() && !wish.outbound)
        return refuse(no_veth, wish.bridge,
                      "whoever is on a bridge has access to the others there");
    return {};
}

Result<> plan_network(const Spec& spec, const Host& host, const Decisions& decisions, Plan& plan)
{
    if (spec.veth_network) {
        TRY(check_veth(spec, host, decisions, plan));
        TRY(plan_common(*spec.veth_network, plan));
        plan.network->link.kind = net::user::LinkKind::routed;
        plan.ends_with_network = true;  // Without it nothing keeps the command from the host.
        return plan_bridge(*spec.veth_network, plan.network->routed);
    }
    return spec.user_network ? plan_user_network(*spec.user_network, plan) : Result<>{};
}

void add_if(std::vector<int>& list, const std::optional<DescriptorNumber>& fd)
{
    if (fd)
        list.push_back(*fd);
}

void plan_descriptors(const Spec& spec, Plan& plan)
{
    std::vector<int>& fds = plan.close_on_exec;
    fds = spec.consumed;
    add_if(fds, spec.namespaces.join_user);
    add_if(fds, spec.namespaces.join_user_last);
    add_if(fds, spec.namespaces.join_pid);
    add_if(fds, spec.seccomp_descriptor);
    if (spec.denials && spec.denials->descriptor > 2)
        fds.push_back(spec.denials->descriptor);
    add_if(fds, spec.block_descriptor);
    add_if(fds, spec.user_map_descriptor);
    if (spec.join_network && spec.join_network->by == JoinNetwork::By::descriptor)
        fds.push_back(spec.join_network->descriptor);
    for (const Operation& op : spec.operations) {
        if (const auto* bind = std::get_if<BindDescriptor>(&op))
            fds.push_back(bind->source);
        else if (const auto* file = std::get_if<File>(&op))
            fds.push_back(file->source);
        else if (const auto* data = std::get_if<Data>(&op))
            fds.push_back(data->source);
    }
    if (spec.kept) {
        plan.keep_only = *spec.kept;
        plan.steps.emplace_back(KeepOnly{plan.keep_only.data(), plan.keep_only.size()});
    }
    if (!fds.empty())
        plan.steps.emplace_back(CloseOnExec{fds.data(), fds.size()});
    // Their readers may wait for the end, which must not wait for the sandbox.
    for (const auto& fd : {spec.info_descriptor, spec.status_descriptor, spec.events_descriptor})
        if (fd)
            plan.steps.emplace_back(CloseNow{*fd});
    plan.info = spec.info_descriptor.value_or(-1);
    plan.status = spec.status_descriptor.value_or(-1);
    plan.seccomp = spec.seccomp_descriptor.value_or(-1);
    plan.user_map = spec.user_map_descriptor.value_or(-1);
    plan.needs_supervisor = spec.info_descriptor || spec.status_descriptor ||
                            spec.events_descriptor || spec.seccomp_descriptor ||
                            spec.user_map_descriptor;
}

/// Before the sandbox has a user namespace of its own, in which it would have no rights over somebody
/// else's network. One that keeps its network goes back to the user namespace that it was made in.
void plan_foreign_network(const Spec& spec, const Host& host, const Decisions& decisions,
                          Plan& plan)
{
    if (!spec.join_network && !host.keeps_network)
        return;
    plan.foreign_network =
        host.keeps_network ? std::string{"the sandbox itself"} : name_of(*spec.join_network);
    const bool joins_user = spec.namespaces.join_user.has_value();
    if (joins_user ? host.foreign_network_owner >= 0 : !decisions.own_user)
        return;  // In its turn: see plan_identity().
    if (host.foreign_network_owner >= 0)
        plan.steps.emplace_back(ns::JoinUserNamespace{host.foreign_network_owner});
    plan.steps.emplace_back(ns::JoinNamespace{host.foreign_network, CLONE_NEWNET});
    plan.first_steps = plan.early_steps = plan.steps.size();
}

const char* id_map(Plan& plan, std::uint32_t inside, std::uint32_t outside)
{
    return plan.keep(std::to_string(inside) + " " + std::to_string(outside) + " 1\n");
}

/// Whether an id of the caller's has a number in the sandbox.
bool is_mapped(const std::vector<IdRange>& map, std::uint32_t outside)
{
    return std::any_of(map.begin(), map.end(), [&](const IdRange& range) {
        return outside >= range.outside && outside - range.outside < range.count;
    });
}

/// Who this process is, before anything is mounted.
void plan_identity(const Spec& spec, const Host& host, const Decisions& decisions, Plan& plan)
{
    const Namespaces& ns = spec.namespaces;
    // First, since nobody may hear a word from the supervisor that means something else.
    if (decisions.maps.any()) {
        if (!host.keeps_network)
            plan.steps.emplace_back(AwaitIdMaps{});
        plan.steps.emplace_back(
            ns::TakeMappedIds{decisions.uid, decisions.gid, !decisions.maps.deny_setgroups});
        if (plan.needs_init && !decisions.is_root &&
            !(is_mapped(decisions.maps.uids, host.uid) && is_mapped(decisions.maps.gids, host.gid)))
            plan.steps.emplace_back(OwnInit{});
    }
    // A second user namespace starts with a full set again: it is trimmed there.
    if ((decisions.own_user && !decisions.second_user) || ns.join_user)
        plan.steps.emplace_back(ns::DropBounding{decisions.target});
    if (ns.join_user && (spec.uid || spec.gid))
        plan.steps.emplace_back(
            ns::TakeIds{spec.uid.has_value(), spec.gid.has_value(), decisions.uid, decisions.gid});
    // The order of the two is free; bwrap brings loopback up first, and reports it first.
    std::vector<ChildStep>& network_steps =
        (plan.late_flags & CLONE_NEWNET) != 0 ? plan.late_steps : plan.steps;
    if ((plan.clone_flags & CLONE_NEWNET) != 0)
        network_steps.emplace_back(net::LoopbackUp{});
    if (plan.network && !host.keeps_network)
        network_steps.emplace_back(OfferNetwork{});
    if ((spec.join_network || host.keeps_network) && plan.first_steps == 0)
        plan.steps.emplace_back(ns::JoinNamespace{host.foreign_network, CLONE_NEWNET});
    if (decisions.maps.any() || host.keeps_network)
        return;
    if (decisions.maps_itself && plan.first_steps > 0)
        plan.steps.emplace_back(ns::WriteIdMapsBelow{decisions.first_uid, decisions.first_gid});
    else if (decisions.maps_itself)
        plan.steps.emplace_back(ns::WriteIdMaps{id_map(plan, decisions.first_uid, host.uid),
                                                id_map(plan, decisions.first_gid, host.gid), true});
}

/// Who this process is, when the tree stands.
void plan_final_identity(const Spec& spec, const Host& host, const Decisions& decisions, Plan& plan)
{
    if (spec.namespaces.join_user_last) {
        plan.steps.emplace_back(ns::JoinUserNamespace{*spec.namespaces.join_user_last});
        plan.steps.emplace_back(ns::DropBounding{decisions.target});
    }
    if (decisions.second_user) {
        if (spec.disable_user_namespaces)
            plan.steps.emplace_back(ns::LimitUserNamespaces{});
        const std::uint64_t others =
            plan.late_flags | (decisions.lock_mounts ? std::uint64_t{CLONE_NEWNS} : 0);
        const bool is_new = !plan.keeps_network;
        if (decisions.maps.any() && is_new)
            plan.steps.emplace_back(
                ns::NewMappedUserNamespace{others, plan.keep(same_ids_text(decisions.maps.uids)),
                                           plan.keep(same_ids_text(decisions.maps.gids))});
        else
            plan.steps.emplace_back(ns::NewUserNamespace{others, host.second_user});
        plan.steps.emplace_back(ns::DropBounding{decisions.target});
        if (!decisions.maps.any() && is_new)
            plan.steps.emplace_back(
                ns::WriteIdMaps{id_map(plan, decisions.uid, decisions.first_uid),
                                id_map(plan, decisions.gid, decisions.first_gid), false});
        plan.steps.insert(plan.steps.end(), plan.late_steps.begin(), plan.late_steps.end());
    }
    if (spec.disable_user_namespaces || spec.assert_user_namespaces_disabled)
        plan.steps.emplace_back(ns::RefuseUserNamespaces{false});
    if (!decisions.is_root || decisions.edited_capabilities)
        plan.steps.emplace_back(
            ns::SetCapabilities{decisions.target, decisions.edited_capabilities});
    plan.ambient = decisions.edited_capabilities ? decisions.target : 0;
}

void plan_locks(const Spec& spec, Plan& plan)
{
    for (const std::string& path : spec.lock_files) {
        plan.lock_steps.push_back(plan.steps.size());
        plan.steps.emplace_back(LockFile{plan.keep(path), -1, 0});
    }
    plan.keep_in_init = spec.sync_descriptors;
}

/// The last steps, whose order is fixed.
void plan_finish(const Spec& spec, const Host& host, const std::vector<std::string>& environment,
                 Plan& plan)
{
    if (spec.block_descriptor)
        plan.steps.emplace_back(AwaitRelease{*spec.block_descriptor});
    // After the release: whoever gives it may have something to do with the network.
    if (plan.network && !plan.keeps_network)
        plan.steps.emplace_back(AwaitNetwork{});
    if (plan.late_names)
        plan.steps.emplace_back(mount::FillContents{-1});
    plan.steps.emplace_back(RestoreUmask{spec.umask ? static_cast<int>(*spec.umask & 0777) : -1});
    if (spec.own_keyring)
        plan.steps.emplace_back(OwnKeyring{});
    const std::string home = look_up(environment, "HOME").value_or("");
    ChangeDirectory directory{};
    directory.wanted = spec.directory ? plan.keep(*spec.directory) : nullptr;
    directory.logical = plan.keep(host.logical_directory);
    directory.physical = plan.keep(host.physical_directory);
    directory.home = plan.keep(home);
    plan.steps.emplace_back(directory);
    plan.pwd[0] = plan.keep("PWD=" + spec.directory.value_or(host.logical_directory));
    plan.pwd[1] = plan.keep("PWD=" + host.physical_directory);
    plan.pwd[2] = plan.keep("PWD=" + home);
    plan.pwd[3] = plan.keep("PWD=/");
    if (plan.serves)
        plan.steps.emplace_back(OfferFolders{});
    if (spec.terminal)
        plan.steps.emplace_back(TakeTerminal{spec.terminal->rows, spec.terminal->columns, -1});
    else if (spec.new_session)
        plan.steps.emplace_back(NewSession{});
    if (spec.exec_label)
        plan.steps.emplace_back(SetLabel{"exec", plan.keep(*spec.exec_label)});
    plan_locks(spec, plan);
    for (const ResourceLimit& limit : spec.resource_limits)
        plan.steps.emplace_back(SetResourceLimit{limit.resource, limit.soft, limit.hard});
    if (spec.nice)
        plan.steps.emplace_back(SetNice{*spec.nice});
}

/// What the command's calls are told by, when they are refused.
DenialContext denial_context(const Spec& spec, bool own_network, bool refuses_input,
                             std::size_t own_filters)
{
    DenialContext context;
    context.descriptor = spec.denials->descriptor;
    context.names_run_options = spec.denials->options == DenialLog::Options::run;
    context.has_root = spec.denials->has_root;
    FilterWish unknown;
    unknown.policy.clear();
    context.wishes = spec.filter_wishes;
    context.wishes.resize(spec.seccomp_programs.size(), unknown);
    context.wishes.insert(context.wishes.begin(), own_filters, unknown);
    context.own_filters = own_filters;
    context.refuses_input = refuses_input;
    const auto look_at = [&](const auto& network) {
        context.network = network.outbound ? NetworkWall::translated : NetworkWall::no_outbound;
        context.host_loopback = network.host_loopback;
    };
    context.network_option = spec.veth_network ? "--net veth" : "--net user";
    if (spec.user_network)
        look_at(*spec.user_network);
    else if (spec.veth_network)
        look_at(*spec.veth_network);
    else if (own_network)
        context.network = NetworkWall::loopback_only;
    return context;
}

/// What is the same for every command of the sandbox.
void plan_commands(const Spec& spec, const std::vector<std::string>& environment, Plan& plan)
{
    plan.argv.push_back(nullptr);
    plan.shell_argv = {"/bin/sh", nullptr};
    for (const std::string& entry : environment)
        plan.envp.push_back(plan.keep(entry));
    plan.pwd_slot = plan.envp.size();
    plan.envp.push_back(plan.pwd[0]);
    plan.envp.push_back(nullptr);
    plan.filters.insert(plan.filters.end(), spec.seccomp_programs.begin(),
                        spec.seccomp_programs.end());
    plan.die_with_parent = true;
    plan.own_terminals = has<Dev>(spec);
}

void plan_command(const Spec& spec, const std::vector<std::string>& environment, Plan& plan)
{
    plan.argv_name = spec.command.front();
    // Under an init that name would mean init's own program, and without one it would lead
    // whatever runs beside the command to this program's file on the host.
    plan.executes_itself = spec.command.front() == "/proc/self/exe";
    for (const std::string& path :
         exec_candidates(spec.command.front(), look_up(environment, "PATH")))
        plan.candidates.push_back(plan.keep(path));
    for (const std::string& word : spec.command)
        plan.argv.push_back(plan.keep(word));
    if (spec.argv0)
        plan.argv.front() = plan.keep(*spec.argv0);
    plan.argv.push_back(nullptr);
    for (const std::string& entry : environment)
        plan.envp.push_back(plan.keep(entry));
    plan.pwd_slot = plan.envp.size();
    plan.envp.push_back(plan.pwd[0]);
    plan.envp.push_back(nullptr);
    plan.shell_argv = {"/bin/sh", plan.candidates.front()};
    plan.shell_argv.insert(plan.shell_argv.end(), plan.argv.begin() + 1, plan.argv.end());
    plan.filters.insert(plan.filters.end(), spec.seccomp_programs.begin(),
                        spec.seccomp_programs.end());
    plan.die_with_parent = spec.die_with_parent;
    plan.terminal = spec.terminal.has_value();
    plan.own_terminals = has<Dev>(spec);
}

/// Who keeps hold of the sandbox's processes, and who hears of the command.
void plan_init(const Spec& spec, const Decisions& decisions, Plan& plan)
{
    const bool must_end_all = spec.die_with_parent || spec.end_with_command || spec.limits.any();
    plan.subreaper = !plan.own_pid && (must_end_all || spec.name);
    // --die-with-parent alone is bwrap's, and leaves the control group alone.
    plan.wants_group = plan.subreaper && (spec.end_with_command || spec.limits.any() || spec.name);
    plan.needs_init =
        !spec.command_is_pid_1 && (plan.own_pid || plan.subreaper || !spec.lock_files.empty() ||
                                   !spec.sync_descriptors.empty());
    plan.is_bare = plan.serves && decisions.target == 0;
    plan.filters_early = plan.needs_init && !plan.subreaper && decisions.target == 0 &&
                         !spec.seccomp_descriptor && !spec.denials &&
                         std::all_of(spec.seccomp_programs.begin(), spec.seccomp_programs.end(),
                                     ns::seccomp::is_own_program);
    plan.ends_with_command = spec.end_with_command;
    plan.tells_command = plan.needs_init && !plan.serves &&
                         (spec.signals_command || spec.limits.any() || spec.events_descriptor ||
                          spec.terminal || spec.name);
}

/// The kernel kills whoever shares the memory of what it kills for a limit of memory: until it is an init of its
/// own the child must not be held to that, unless it is a copy.
void plan_groups(const Spec& spec, Plan& plan)
{
    if (!spec.group_limits.any())
        return;
    plan.init_enters_groups = spec.group_limits.memory && plan.share_memory && plan.needs_init;
    plan.share_memory &= !spec.group_limits.memory || plan.init_enters_groups;
    if (!plan.init_enters_groups)
        plan.steps.emplace_back(EnterGroups{nullptr, 0});
}

/// What belongs to a single command, or to the one who waits for it.
Result<> check_serving(const Spec& spec)
{
    constexpr Literal cannot{"Can't make a sandbox for many commands"};
    if (spec.landlock == Landlock::only)
        return refuse(cannot, {}, "it takes namespaces, and Landlock::only is without");
    if (spec.namespaces.pid != Own::yes || spec.namespaces.join_pid || spec.command_is_pid_1)
        return refuse(cannot, {}, "it takes a pid namespace and an init of its own");
    const std::pair<bool, const char*> wishes[] = {
        {spec.terminal.has_value(), "a terminal is a command's: see Command::terminal"},
        {spec.limits.any(), "a limit of time is a command's: see Process::wait_for()"},
        {spec.name.has_value(), "one with a name is served by Sandbox::wait()"},
        {spec.denials.has_value(), "a log of denials is one command's"},
        {spec.info_descriptor || spec.status_descriptor || spec.events_descriptor,
         "what the info, status and events descriptors tell is about one command"},
        {spec.seccomp_descriptor || spec.block_descriptor || spec.user_map_descriptor,
         "a descriptor that is read before the command starts is one command's"},
        {spec.exec_label.has_value(), "the label of a command would be init's"},
    };
    for (const auto& [is_wished, why] : wishes)
        if (is_wished)
            return refuse(cannot, {}, why);
    return {};
}

Result<> check_filters(const Spec& spec)
{
    for (const std::vector<std::uint8_t>& program : spec.seccomp_programs)
        TRY(check_filter(program));
    return {};
}

}  // namespace

Result<> check_filter(const std::vector<std::uint8_t>& program)
{
    constexpr std::size_t instruction_size = 8;
    constexpr std::size_t most_instructions = 4096;  // BPF_MAXINSNS
    if (program.size() % instruction_size != 0)
        return refuse("Invalid seccomp data, must be multiple of 8");
    if (program.size() / instruction_size > most_instructions)
        return refuse("Invalid seccomp data", {},
                      "a program has at most 4096 instructions, this one has " +
                          std::to_string(program.size() / instruction_size));
    return {};
}

// The order of everything, in one place.
// NOLINTNEXTLINE(readability-function-size)
Result<Plan> plan(const Spec& wish, const Host& host, Purpose purpose)
{
    // A call that waits for an answer must not outlive who gives it.
    std::optional<Spec> ending;
    if (wish.denials && !(wish.die_with_parent && wish.end_with_command)) {
        ending = wish;
        ending->die_with_parent = ending->end_with_command = true;
    }
    const Spec& spec = ending ? *ending : wish;
    const bool serves = purpose == Purpose::commands;
    if (serves)
        TRY(check_serving(spec));
    else if (spec.command.empty())
        return refuse("No command", {}, "there is nothing to execute");
    const bool only_landlock = spec.landlock == Landlock::only;
    if (only_landlock)
        TRY(check_landlock_only(spec, host));
    const Decisions decisions = TRY(decide(spec, host));
    TRY(check_filters(spec));
    Plan plan;
    plan.serves = serves;
    plan.has_clone3 = host.has_clone3;
    plan.keeps_network = host.keeps_network;
    plan.user_namespaces = !decisions.own_user ? 0U : decisions.second_user ? 2U : 1U;
    plan.clone_flags = clone_flags(spec, host, decisions);
    // The command is to have its rights over the namespaces that it may change.
    if (decisions.lock_mounts)
        plan.late_flags = plan.clone_flags & (CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP |
                                              (has<Mqueue>(spec) ? 0U : CLONE_NEWIPC));
    else if ((spec.user_network || spec.veth_network) && decisions.second_user &&
             (decisions.target & network_capabilities) != 0)
        plan.late_flags = plan.clone_flags & CLONE_NEWNET;
    const bool is_late = decisions.lock_mounts || plan.late_flags != 0;
    plan.join_user = spec.namespaces.join_user.value_or(-1);
    plan.join_pid = spec.namespaces.join_pid.value_or(-1);
    plan.own_pid = (plan.clone_flags & CLONE_NEWPID) != 0;
    plan_foreign_network(spec, host, decisions, plan);
    // In the pid namespace that is joined someone hostile may be waiting, and a change of ids
    // in shared memory would change the caller's "dumpable" attribute: both take a copy.
    plan.share_memory =
        host.dumpable && plan.join_user < 0 && plan.join_pid < 0 && plan.first_steps == 0;
    if (!host.keeps_network)
        plan.maps = decisions.maps;
    plan.set_up = {host.uid, host.gid};
    if (decisions.maps.any()) {
        plan.set_up = {outside_of(decisions.maps.uids, decisions.uid).value_or(host.uid),
                       outside_of(decisions.maps.gids, decisions.gid).value_or(host.gid)};
        plan.share_memory &= plan.set_up.uid == host.uid && plan.set_up.gid == host.gid;
    }
    plan_init(spec, decisions, plan);
    plan_groups(spec, plan);
    TRY(plan_network(spec, host, decisions, plan));
    plan_descriptors(spec, plan);
    if (!plan.share_memory && host.dumpable == false && plan.join_user < 0)
        plan.steps.emplace_back(MakeDumpable{});
    const bool own_user = decisions.own_user;
    plan.steps.emplace_back(
        mount::OpenHost{!own_user && !only_landlock, true, has_relative_source(spec)});
    // What is reported are the namespaces that the command will be in.
    if (plan.needs_supervisor && !is_late)
        plan.steps.emplace_back(WaitForSupervisor{});
    if (spec.user_map_descriptor)
        plan.steps.emplace_back(ns::RequireIdMap{});
    plan_identity(spec, host, decisions, plan);
    plan.steps.emplace_back(ClearUmask{});
    if (spec.file_label)
        plan.steps.emplace_back(SetLabel{"fscreate", plan.keep(*spec.file_label)});
    if (!only_landlock) {
        TRY(plan_operations(spec,
                            OperationContext{host, plan.own_pid || plan.join_pid >= 0,
                                             decisions.is_root && own_user,
                                             host.owns_kernel_settings || plan.join_user >= 0 ||
                                                 spec.user_map_descriptor.has_value(),
                                             decisions.lock_mounts, spec.terminal.has_value()},
                            plan));
        plan.steps.emplace_back(mount::EnterRoot{});
    }
    plan_final_identity(spec, host, decisions, plan);
    if (plan.needs_supervisor && is_late)
        plan.steps.emplace_back(WaitForSupervisor{});
    const std::vector<std::string> environment =
        edit_environment(host.environment, spec.environment);
    plan_finish(spec, host, environment, plan);
    // Whoever can reach a terminal of the caller's could type there for the time after.
    const bool refuses_input = host.terminal_at_hand || spec.terminal;
    if (refuses_input)
        plan.filters.push_back(ns::refuse_terminal_input());
    TRY(plan_landlock(spec, host, decisions.target, plan));
    if (spec.denials)
        plan.denials = denial_context(spec, (plan.clone_flags & CLONE_NEWNET) != 0, refuses_input,
                                      plan.filters.size());
    if (serves)
        plan_commands(spec, environment, plan);
    else
        plan_command(spec, environment, plan);
    return plan;
}

sys::Host host_for(const Spec& spec)
{
    sys::Host host = sys::probe_host();
    if (spec.namespaces.user == Own::if_possible)
        sys::probe_user_namespaces(host);
    if (spec.namespaces.cgroup == Own::if_possible)
        sys::probe_cgroup_namespaces(host);
    if (has<Dev>(spec))
        sys::probe_terminal(host);
    if (has<Proc>(spec) || (host.uid == 0 && spec.namespaces.user != Own::no))
        sys::probe_kernel_settings(host);
    if (spec.landlock != Landlock::off || spec.tcp_connect || spec.tcp_bind)
        sys::probe_landlock(host);
    if (std::any_of(spec.capabilities.begin(), spec.capabilities.end(),
                    [](const auto& edit) { return edit.kind == CapabilityEdit::Kind::add_all; }))
        sys::probe_capabilities(host);
    return host;
}

}  // namespace nsbox::runtime
