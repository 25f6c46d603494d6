#include "runtime/plan_landlock.hpp"

#include "ns/socket_filter.hpp"

#include <algorithm>
#include <map>

namespace nsbox::runtime {

namespace {

using ns::LandlockPath;
using ns::LandlockRights;

/// By components, without empty ones and dots.
std::string normal(const std::string& path)
{
    std::string text;
    for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find('/', at), path.size());
        const std::string component = path.substr(at, end - at);
        if (!component.empty() && component != ".")
            text += "/" + component;
        at = end + 1;
    }
    return text.empty() ? "/" : text;
}

bool lies_below(const std::string& path, const std::string& above)
{
    return above == "/" || path == above || path.starts_with(above + "/");
}

constexpr std::uint64_t writing = ns::landlock_everything & ~ns::landlock_ioctl_dev;
/// A device, pipe or socket can be written to on a read-only mount.
constexpr std::uint64_t devices = ns::landlock_of_files | ns::landlock_read_dir;

std::uint64_t access_of(Access access, Devices has_devices)
{
    const std::uint64_t access_to_files =
        access == Access::read_write ? writing : ns::landlock_reading;
    return has_devices == Devices::allowed ? access_to_files | devices : access_to_files;
}

/// Where the operations put mounts, and what these let through.
struct Collector {
    std::map<std::string, std::uint64_t> mounts;

    void put(const std::string& destination, std::uint64_t access)
    {
        mounts[normal(destination)] = access;
    }

    void operator()(const Bind& it) { put(it.destination, access_of(it.access, it.devices)); }
    void operator()(const BindDescriptor& it)
    {
        put(it.destination, access_of(it.access, Devices::refused));
    }
    void operator()(const Data& it) { put(it.destination, access_of(it.access, Devices::refused)); }
    void operator()(const Tmpfs& it) { put(it.destination, writing); }
    // These two are noexec.
    void operator()(const Mqueue& it) { put(it.destination, writing & ~ns::landlock_execute); }
    void operator()(const Proc& it)
    {
        put(it.destination, devices & ~(ns::landlock_execute | ns::landlock_ioctl_dev));
    }
    // What is below stays as it is when it is made read-only.
    void operator()(const Dev& it)
    {
        put(it.destination, writing | devices);
        put(it.destination + "/pts", devices);
        put(it.destination + "/shm", writing);
    }
    void operator()(const Overlay& it)
    {
        put(it.destination, it.upper_kind == Overlay::Upper::none ? ns::landlock_reading : writing);
    }
    void operator()(const RemountReadOnly& it)
    {
        const auto found = mounts.find(normal(it.destination));
        if (found == mounts.end())
            return;
        const bool has_devices = (found->second & ns::landlock_ioctl_dev) != 0;
        found->second &= ns::landlock_execute | ns::landlock_read_file | ns::landlock_read_dir;
        found->second |= has_devices ? devices : 0;
    }
    template <class Other>
    void operator()(const Other&)
    {}
};

/// Whether the path means the same for whoever compares it with others by its components.
bool is_plain(const std::string& path)
{
    return (path + "/").find("/../") == std::string::npos;
}

/// One rule does for a mount and those below it with no more rights: unless the command has a descriptor of a
/// folder that is shown, from which no way leads up to the sandbox's own root.
std::vector<LandlockPath> rules_of(const std::map<std::string, std::uint64_t>& mounts,
                                   bool each_for_itself, Plan& plan)
{
    std::vector<LandlockPath> rules;
    for (const auto& it : mounts) {
        const auto covers = [&](const auto& other) {
            return other.first != it.first && is_plain(other.first) &&
                   lies_below(it.first, other.first) && (it.second & ~other.second) == 0;
        };
        const bool is_needless = !each_for_itself && is_plain(it.first) &&
                                 std::any_of(mounts.begin(), mounts.end(), covers);
        if (!is_needless)
            rules.push_back({plan.keep(it.first), it.second, it.first != "/"});
    }
    return rules;
}

/// Why Landlock::automatic is to do nothing here; null: it is not.
const char* reason_against(const Spec& spec, const sys::Host& host, std::uint64_t capabilities)
{
    constexpr unsigned cap_sys_admin = 21;  // CAP_SYS_ADMIN, capabilities(7)
    if (spec.mounts_inside)
        return "the command may make mounts, which the kernel refuses under Landlock";
    if ((capabilities >> cap_sys_admin & 1) != 0)
        return "the command has CAP_SYS_ADMIN, and the kernel refuses mounts under Landlock";
    if (host.landlock < 1)
        return host.landlock == -EOPNOTSUPP
                   ? "the kernel has Landlock, but not among those started at boot (lsm=)"
                   : "the kernel has no Landlock, or a filter refuses it";
    if (host.landlock == 1)
        return "with ABI 1 no file could be renamed or linked to another folder";
    return nullptr;
}

Result<> refuse_abi(Literal cannot, const sys::Host& host, int abi, const char* linux_version)
{
    if (host.landlock == -EOPNOTSUPP)
        return refuse(cannot, {}, "the kernel has Landlock, but does not start it",
                      "add landlock to the list lsm= of the kernel's command line");
    if (host.landlock < 1)
        return refuse(cannot, {}, "the kernel has no Landlock, or a filter refuses it",
                      std::string{"it takes Linux "} + linux_version +
                          " with CONFIG_SECURITY_LANDLOCK");
    return refuse(cannot, {},
                  "that takes ABI " + std::to_string(abi) + " of Landlock (Linux " + linux_version +
                      "), and this kernel has ABI " + std::to_string(host.landlock));
}

Result<> plan_ports(const Spec& spec, const sys::Host& host, LandlockRights& denied, Plan& plan)
{
    const auto add = [&](const std::vector<Ports>& ports, std::uint64_t access) {
        denied.ports |= access;
        for (const Ports& range : ports)
            plan.landlock_ports.push_back({range.first, range.last, access});
    };
    if (!spec.tcp_connect && !spec.tcp_bind)
        return {};
    constexpr int least_abi = 4;
    if (host.landlock < least_abi)
        return refuse_abi(spec.tcp_connect ? Literal{"Can't limit connections to TCP ports"}
                                           : Literal{"Can't limit which TCP ports can be bound"},
                          host, least_abi, "6.7");
    if (spec.tcp_connect)
        add(*spec.tcp_connect, ns::landlock_connect_tcp);
    if (spec.tcp_bind)
        add(*spec.tcp_bind, ns::landlock_bind_tcp);
    plan.filters.push_back(ns::refuse_other_tcp());
    return {};
}

/// A further command cannot enter this one's domain. Where a namespace does the same, that is enough, and
/// the commands of a sandbox reach each other.
std::uint64_t scopes(const Spec& spec, const Plan& plan, std::uint64_t possible)
{
    if (!spec.name)
        return possible;
    if (plan.own_pid)
        possible &= ~std::uint64_t{ns::landlock_signal};
    if (spec.namespaces.net != Own::no && !spec.join_network)
        possible &= ~std::uint64_t{ns::landlock_abstract_unix_socket};
    return possible;
}

constexpr Literal only_cannot{"Can't have with --landlock only"};

/// What of the operations it is that takes a mount; empty: none.
struct NeedsMount {
    std::string operator()(const Bind& it) const
    {
        return it.source.starts_with('/') && normal(it.source) == normal(it.destination)
                   ? ""
                   : it.source + " as " + it.destination;
    }
    std::string operator()(const BindDescriptor&) const { return "a bind of a descriptor"; }
    std::string operator()(const RemountReadOnly&) const { return "--remount-ro"; }
    std::string operator()(const Proc&) const { return "--proc"; }
    std::string operator()(const Dev&) const { return "--dev"; }
    std::string operator()(const Tmpfs&) const { return "--tmpfs"; }
    std::string operator()(const Mqueue&) const { return "--mqueue"; }
    std::string operator()(const Directory&) const { return "--dir"; }
    std::string operator()(const File&) const { return "--file"; }
    std::string operator()(const Text&) const { return "a file of a text"; }
    std::string operator()(const Data&) const { return "--bind-data"; }
    std::string operator()(const Symlink&) const { return "--symlink"; }
    std::string operator()(const Chmod&) const { return "--chmod"; }
    std::string operator()(const Hostname&) const { return "--hostname"; }
    std::string operator()(const Overlay&) const { return "an overlay"; }
};

/// What else of a description takes namespaces of the sandbox's own; null: nothing.
const char* needs_namespace(const Spec& spec)
{
    const Namespaces& ns = spec.namespaces;
    const std::pair<bool, const char*> wishes[] = {
        {ns.user == Own::yes, "--unshare-user"},
        {ns.pid == Own::yes, "--unshare-pid"},
        {ns.ipc == Own::yes, "--unshare-ipc"},
        {ns.uts == Own::yes, "--unshare-uts"},
        {ns.cgroup == Own::yes, "--unshare-cgroup"},
        {ns.join_user || ns.join_user_last || ns.join_pid, "namespaces that are joined"},
        {spec.user_network || spec.veth_network || spec.join_network,
         "another network than none or --net host"},
        {spec.uid.has_value() || !spec.uid_map.empty(), "--uid or --root"},
        {spec.gid.has_value() || !spec.gid_map.empty(), "--gid"},
        {spec.command_is_pid_1, "--as-pid-1"},
        {spec.disable_user_namespaces, "--disable-userns"},
        {spec.tmpfs_size.has_value(), "--tmpfs-size"},
        {spec.mounts_inside, "--allow-userns"},
        {spec.user_map_descriptor.has_value(), "--userns-block-fd"},
        {spec.file_label.has_value(), "--file-label"},
    };
    for (const auto& [is_wished, name] : wishes)
        if (is_wished)
            return name;
    return nullptr;
}

/// What stays within reach, for whoever takes the sandbox for one with namespaces.
std::string note_about_only(const Spec& spec, const sys::Host& host)
{
    std::string text = "there are no namespaces here, only Landlock and filters. The command runs "
                       "as you: it can see "
                       "that files exist everywhere, and which processes run; it can change modes, "
                       "owners and times "
                       "of files of yours, and limits and priorities of your processes; System V "
                       "IPC is the host's";
    if (host.uid == 0)
        text += "; files of root's, whose modes can be changed, are the system's too";
    if (spec.namespaces.net == Own::no)
        text += "; so is the network, but for unix sockets";
    constexpr int truncates = 3;
    constexpr int signals = 6;
    if (host.landlock < truncates)
        text += "; files of yours can be emptied by truncate(2) (Linux before 6.2)";
    if (host.landlock < signals)
        text += "; your processes can be signalled (Linux before 6.12)";
    return text;
}

void plan_only(const Spec& spec, const sys::Host& host, LandlockRights& denied, Plan& plan)
{
    const LandlockRights all = ns::landlock_rights(host.landlock);
    denied.files = all.files;
    denied.scoped = all.scoped;
    const bool is_without_network = spec.namespaces.net != Own::no;
    if (is_without_network)
        denied.ports = all.ports;
    plan.landlock_paths = rules_for_paths(spec, plan);
    // A socket with a name is out of Landlock's sight, and mostly leads to who does anything for its user.
    plan.filters.push_back(
        ns::allow_sockets(is_without_network ? ns::Sockets::none : ns::Sockets::internet));
    plan.notes.push_back(note_about_only(spec, host));
}

}  // namespace

std::vector<LandlockPath> rules_for_mounts(const Spec& spec, Plan& plan)
{
    Collector collector;
    collector.put("/", writing);  // A tmpfs, unless something covers it.
    for (const Operation& operation : spec.operations)
        std::visit(collector, operation);
    return rules_of(collector.mounts, !spec.kept || !spec.kept->empty(), plan);
}

std::vector<LandlockPath> rules_for_paths(const Spec& spec, Plan& plan)
{
    std::vector<LandlockPath> rules;
    for (const Operation& operation : spec.operations)
        if (const auto* bind = std::get_if<Bind>(&operation))
            rules.push_back({plan.keep(normal(bind->destination)),
                             access_of(bind->access, bind->devices),
                             bind->if_missing == IfMissing::skip});
    return rules;
}

Result<> check_landlock_only(const Spec& spec, const sys::Host& host)
{
    if (host.landlock < 1)
        return refuse_abi("Can't run under Landlock only", host, 1, "5.13");
    constexpr const char* why = "it takes namespaces or mounts, and there are none";
    if (const char* const wish = needs_namespace(spec))
        return refuse(only_cannot, wish, why);
    for (const Operation& operation : spec.operations)
        if (std::string what = std::visit(NeedsMount{}, operation); !what.empty())
            return refuse(only_cannot, std::move(what), why,
                          "files and folders can be shown where they are");
    for (const CapabilityEdit& edit : spec.capabilities)
        if (edit.kind == CapabilityEdit::Kind::add || edit.kind == CapabilityEdit::Kind::add_all)
            return refuse(only_cannot, "--cap-add", "a capability would be one over the host");
    return {};
}

Result<> plan_landlock(const Spec& spec, const sys::Host& host, std::uint64_t capabilities,
                       Plan& plan)
{
    LandlockRights denied;
    if (spec.landlock == Landlock::only) {
        plan_only(spec, host, denied, plan);
    } else if (spec.landlock == Landlock::automatic) {
        plan.landlock_off = reason_against(spec, host, capabilities);
        if (plan.landlock_off == nullptr) {
            const LandlockRights all = ns::landlock_rights(host.landlock);
            denied.files = all.files;
            denied.scoped = scopes(spec, plan, all.scoped);
            plan.landlock_paths = rules_for_mounts(spec, plan);
        }
    }
    TRY(plan_ports(spec, host, denied, plan));
    if (denied.any())
        add_ruleset(denied, plan);
    return {};
}

void add_ruleset(const LandlockRights& denied, Plan& plan)
{
    plan.steps.emplace_back(ns::MakeRuleset{denied.files, denied.ports, denied.scoped,
                                            plan.landlock_paths.data(), plan.landlock_paths.size(),
                                            plan.landlock_ports.data(), plan.landlock_ports.size(),
                                            plan.keep_only.data(), plan.keep_only.size()});
}

}  // namespace nsbox::runtime
