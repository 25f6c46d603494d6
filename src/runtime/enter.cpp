#include "runtime/enter.hpp"

#include "ns/terminal_filter.hpp"
#include "runtime/further_command.hpp"
#include "runtime/group.hpp"
#include "runtime/plan_landlock.hpp"
#include "sys/host.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <optional>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <vector>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

struct Kind {
    const char* name;
    unsigned flag;
};
// The mount namespace comes last: with it the caller's /proc is gone.
constexpr Kind kinds[] = {{"pid", CLONE_NEWPID}, {"ipc", CLONE_NEWIPC},       {"net", CLONE_NEWNET},
                          {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}, {"mnt", CLONE_NEWNS}};

Fd open_namespace(const std::string& process, const char* name)
{
    const std::string path = "/proc/" + process + "/ns/" + name;
    return Fd{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
}

/// Which file a descriptor is of; 0 where there is none.
ino_t identity(const Fd& fd)
{
    struct ::stat status;
    return fd && raw::fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

struct Namespace {
    Kind kind{};
    Fd fd;
    ino_t owner = 0;
    Fd owner_fd;
};

/// What is to be joined, and in which order: a process needs rights in the user namespace that
/// owns a namespace, and it has those in the one that it is in and in its descendants.
struct Way {
    std::vector<Namespace> namespaces;  ///< Those that are not this process's own.
    Fd first_user;                      ///< The one that owns what the last one does not...
    Fd last_user;                       ///< ...and the last one, which is the command's.
    /// A network that the sandbox shares with others, whose owner lies above all of these.
    std::optional<Namespace> network;
    ino_t last = 0;
};

/// The mount namespace is always of the sandbox's own making: whatever belongs to neither its owner nor
/// the command's user namespace was there before.
void take_network_apart(Way& way)
{
    const auto find = [&](unsigned flag) {
        return std::find_if(way.namespaces.begin(), way.namespaces.end(),
                            [&](const Namespace& space) { return space.kind.flag == flag; });
    };
    const auto network = find(CLONE_NEWNET);
    const auto pid = find(CLONE_NEWPID);
    const auto mount = find(CLONE_NEWNS);
    if (network == way.namespaces.end() || network->owner == way.last)
        return;
    for (const auto& other : {pid, mount})
        if (other != way.namespaces.end() && other->owner == network->owner)
            return;
    way.network = std::move(*network);
    way.namespaces.erase(network);
}

Result<Way> find_way(const std::string& process)
{
    Way way;
    const ino_t our_user = identity(open_namespace("self", "user"));
    Fd user = open_namespace(process, "user");
    if (!user)
        return fail("Can't open the namespaces of", -user.error(), "process " + process);
    way.last = identity(user);
    for (const Kind& kind : kinds) {
        Fd theirs = open_namespace(process, kind.name);
        if (!theirs)
            return fail("Can't open the namespaces of", -theirs.error(), "process " + process);
        if (identity(theirs) == identity(open_namespace("self", kind.name)))
            continue;
        Fd owner{static_cast<int>(raw::call(SYS_ioctl, theirs.get(), NS_GET_USERNS))};
        const ino_t owned_by = identity(owner);
        way.namespaces.push_back({kind, std::move(theirs), owned_by, std::move(owner)});
    }
    take_network_apart(way);
    for (Namespace& space : way.namespaces)
        if (space.owner != our_user && space.owner != way.last)
            way.first_user = std::move(space.owner_fd);
    if (way.last != our_user)
        (way.first_user ? way.last_user : way.first_user) = std::move(user);
    return way;
}

/// How many filters a process has, as /proc/PID/status says since Linux 5.9; 0 where it does not.
std::size_t filter_count(const std::string& process)
{
    const std::string path = "/proc/" + process + "/status";
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    char text[4096];
    const long got = file ? raw::read(file.get(), text, sizeof text - 1) : -1;
    text[got > 0 ? got : 0] = '\0';
    const char* const at = std::strstr(text, "\nSeccomp_filters:");
    return at != nullptr ? std::strtoul(at + std::strlen("\nSeccomp_filters:"), nullptr, 10) : 0;
}

/// Limits are inherited, and the main command's come from the process that was started for it. One
/// that this process could not raise again stays where it is.
void add_resource_limits(pid_t process, Plan& plan)
{
    for (unsigned resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit64 theirs{};
        rlimit64 ours{};
        if (raw::call(SYS_prlimit64, process, resource, 0, &theirs) < 0 ||
            raw::call(SYS_prlimit64, 0, resource, 0, &ours) < 0)
            continue;
        const rlim64_t hard = std::min(theirs.rlim_max, ours.rlim_max);
        const rlim64_t soft = std::min(theirs.rlim_cur, hard);
        if (soft != ours.rlim_cur || hard != ours.rlim_max)
            plan.steps.emplace_back(SetResourceLimit{resource, soft, hard});
    }
}

void add_confinement(const Recipe& recipe, const std::string& process, Plan& plan)
{
    if (recipe.bounding)
        plan.steps.emplace_back(ns::DropBounding{*recipe.bounding});
    // One filter more than were given took the place of a limit on user namespaces.
    if (recipe.refuse_user_namespaces)
        plan.steps.emplace_back(
            ns::RefuseUserNamespaces{filter_count(process) > recipe.filters.size()});
    if (recipe.umask)
        plan.steps.emplace_back(RestoreUmask{static_cast<int>(*recipe.umask & 0777)});
    if (recipe.own_keyring)
        plan.steps.emplace_back(OwnKeyring{});
    if (recipe.capabilities)
        plan.steps.emplace_back(ns::SetCapabilities{*recipe.capabilities, recipe.ambient});
    plan.ambient = recipe.ambient ? recipe.capabilities.value_or(0) : 0;
    plan.filters = recipe.filters;
    // The main command's terminal, if it had one, was another.
    const std::vector<std::uint8_t> refusal = ns::refuse_terminal_input();
    if (plan.terminal || sys::probe_host().terminal_at_hand)
        if (plan.filters.empty() || plan.filters.front() != refusal)
            plan.filters.insert(plan.filters.begin(), refusal);
}

/// The same rules; what they are about is looked for again.
void add_landlock(const Recipe& recipe, Plan& plan)
{
    if (!recipe.landlock)
        return;
    const LandlockRules& rules = *recipe.landlock;
    for (const LandlockRules::Path& path : rules.paths)
        plan.landlock_paths.push_back({plan.keep(path.path), path.access, path.may_be_missing});
    for (const LandlockRules::Ports& range : rules.port_ranges)
        plan.landlock_ports.push_back({static_cast<std::uint16_t>(range.first),
                                       static_cast<std::uint16_t>(range.last), range.access});
    add_ruleset({rules.files, rules.ports, rules.scoped}, plan);
}

/// The lists of processes of the groups that hold the sandbox to its limits.
Result<std::vector<Fd>> open_entrances(const Recipe& recipe)
{
    std::vector<Fd> files;
    for (const std::string& path : recipe.limits) {
        const std::string name = path + "/cgroup.procs";
        Fd file{raw::openat(AT_FDCWD, name.c_str(), O_WRONLY | O_CLOEXEC)};
        if (!file)
            return fail("Can't enter the control group", -file.error(), path);
        files.push_back(std::move(file));
    }
    return files;
}

/// From below, there would be no way back up to it.
void join_network_first(const Way& way, Plan& plan)
{
    if (!way.network)
        return;
    constexpr unsigned cap_sys_admin = 21;  // CAP_SYS_ADMIN, capabilities(7)
    const bool by_itself = (sys::probe_host().effective_capabilities >> cap_sys_admin & 1) != 0;
    if (way.network->owner_fd && !by_itself)
        plan.steps.emplace_back(ns::JoinUserNamespace{way.network->owner_fd.get()});
    plan.steps.emplace_back(ns::JoinNamespace{way.network->fd.get(), CLONE_NEWNET});
    plan.first_steps = plan.steps.size();
}

/// Without a pid namespace an init of its own keeps hold of what the command starts, and ends it when
/// the process that entered is killed.
void keep_together(Plan& plan)
{
    plan.early_steps = plan.first_steps;
    plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(plan.first_steps),
                      mount::OpenHost{false, true, false});
    plan.needs_init = true;
    plan.subreaper = true;
    plan.ends_with_command = true;
    plan.tells_command = true;
    plan.die_with_parent = true;
}

}  // namespace

Result<Running> enter(const Fd& child, const Recipe& recipe, const Entry& entry, const Watch& watch)
{
    if (entry.command.empty())
        return refuse("No command", {}, "there is nothing to execute");
    const pid_t pid = pid_of(child.get());
    if (pid <= 0)
        return refuse("Can't enter the sandbox", {},
                      "it has ended, or its processes have no "
                      "number here");
    const std::vector<Fd> entrances = TRY(open_entrances(recipe));
    // Nobody but root may look at the namespaces of an init that is not in a user namespace of its own.
    const Way way = recipe.in_place ? Way{} : TRY(find_way(std::to_string(pid)));
    // A number may have been given to another process meanwhile; a process that lives has kept it.
    if (raw::pidfd_send_signal(child.get(), 0) < 0)
        return refuse("Can't enter the sandbox", {}, "it has ended");
    Plan plan;
    plan.share_memory = false;
    plan.dies_with_starter = true;
    plan.hide = true;
    for (const Fd& file : entrances)
        plan.entrances.push_back(file.get());
    join_network_first(way, plan);
    plan.steps.emplace_back(EnterGroups{nullptr, 0});
    plan.join_user = way.first_user ? way.first_user.get() : -1;
    const auto join_if = [&](auto condition) {
        for (const Namespace& space : way.namespaces)
            if (space.kind.flag != CLONE_NEWPID && condition(space))
                plan.steps.emplace_back(ns::JoinNamespace{space.fd.get(), space.kind.flag});
    };
    for (const Namespace& space : way.namespaces)
        if (space.kind.flag == CLONE_NEWPID)
            plan.join_pid = space.fd.get();
    const bool two_users = static_cast<bool>(way.last_user);
    join_if([&](const Namespace& space) { return !two_users || space.owner != way.last; });
    if (two_users)
        plan.steps.emplace_back(ns::JoinUserNamespace{way.last_user.get()});
    join_if([&](const Namespace& space) { return two_users && space.owner == way.last; });
    if (plan.join_pid >= 0) {
        plan.early_steps = plan.steps.size();
        plan.through_init = true;
    } else {
        keep_together(plan);
    }
    // With the other processes of the sandbox, where this user may start one there from where it is.
    const Fd group = recipe.group.empty() ? Fd{} : open_group(recipe.group);
    plan.group = plan.join_pid < 0 && group ? group.get() : -1;
    // The order of the main command's set-up: the terminal is the last thing that needs the tree.
    // Neither the directory nor the program may be reached through what is open here.
    plan.steps.emplace_back(CloseOthers{});
    if (recipe.ids)
        plan.steps.emplace_back(ns::TakeMappedIds{static_cast<std::uint32_t>(*recipe.ids),
                                                  static_cast<std::uint32_t>(*recipe.ids >> 32),
                                                  recipe.drop_groups});
    add_resource_limits(pid, plan);
    plan.terminal = entry.terminal.has_value();
    add_confinement(recipe, std::to_string(pid), plan);
    add_command(recipe, entry, plan);
    if (entry.terminal)
        plan.steps.emplace_back(TakeTerminal{entry.terminal->rows, entry.terminal->columns, -1});
    add_landlock(recipe, plan);
    return launch(plan, watch);
}

}  // namespace nsbox::runtime
