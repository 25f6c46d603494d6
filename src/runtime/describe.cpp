#include "runtime/describe.hpp"

#include "runtime/diagnose.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cstring>
#include <linux/sched.h>
#include <string_view>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

constexpr Literal cannot_enter_groups = "Can't enter the control groups of the sandbox";
constexpr const char* too_many_namespaces = "too many namespaces, or nested too deeply (ENOSPC)";

using sys::Site;

/// What one step's failure is called.
struct Words {
    Literal op;
    std::string object;
    std::string reason;
    std::string hint;
    bool is_whole = false;  ///< The errno's text would add nothing.
};

std::string pair(const char* source, const char* target)
{
    return std::string{source} + " on " + target;
}

/// What goes wrong with destinations goes wrong in the same ways for every step that has one.
bool destination_words(Site site, const char* target, const std::string& detail, Words& words)
{
    switch (site) {
    case Site::parents:
        words = {"Can't mkdir parents for", target, {}, {}};
        return true;
    case Site::make:
        words = {"Can't mkdir", target, {}, {}};
        return true;
    case Site::create:
        words = {"Can't create file at", target, {}, {}};
        return true;
    case Site::dangling:
        words = {"Can't create", target,
                 "the path goes through a symbolic link that leads nowhere inside: " + detail,
                 "make the link's target first, or name the target itself"};
        return true;
    case Site::link_refused:
        words = {"Can't mount on", target, "the mount point is a symbolic link",
                 "name the folder itself"};
        return true;
    default:
        return false;
    }
}

Words bind_words(const std::string& object, Site site, int err)
{
    if (site == Site::restrict_mount)
        return {"Can't bind mount",
                object,
                std::string{"Unable to apply mount flags: "} + ::strerrordesc_np(err),
                {}};
    return {"Can't bind mount", object,
            err == ENOSPC
                ? "the limit on the number of mounts is exceeded (ENOSPC)"
                : std::string{"Unable to mount source on destination: "} + ::strerrordesc_np(err),
            diagnose_mount(err)};
}

/// A mount of a file system that the kernel makes.
Words mount_words(Literal op, const char* target, int err)
{
    if (err == ENOSPC)
        return {op, target, "the limit on the number of mounts is exceeded (ENOSPC)",
                diagnose_mount(err)};
    return {op, target, {}, diagnose_mount(err)};
}

const char* namespace_kind(unsigned flag)
{
    switch (flag) {
    case CLONE_NEWNS:
        return "mnt";
    case CLONE_NEWIPC:
        return "ipc";
    case CLONE_NEWNET:
        return "net";
    case CLONE_NEWUTS:
        return "uts";
    default:
        return "cgroup";
    }
}

struct Teller {
    const Plan& plan;
    std::size_t index;  ///< Of the step that failed.
    Site site;
    int err;
    const std::string& detail;

    std::string earlier_read_only(const char* target) const;

    Words operator()(const CloseOnExec&) const { return {"Can't mark descriptors", {}, {}, {}}; }
    Words operator()(const KeepOnly&) const
    {
        return {"Can't keep a descriptor open for the command",
                {},
                {},
                err == EBADF ? "one that is to be kept is not open" : ""};
    }
    Words operator()(const CloseNow&) const { return {"close", {}, {}, {}}; }
    Words operator()(const CloseOthers&) const { return {"Can't close descriptors", {}, {}, {}}; }
    Words operator()(const WaitForSupervisor&) const { return {"Can't read sync", {}, {}, {}}; }
    Words operator()(const MakeDumpable&) const { return {"prctl(PR_SET_DUMPABLE)", {}, {}, {}}; }
    Words operator()(const ClearUmask&) const { return {"umask", {}, {}, {}}; }
    Words operator()(const RestoreUmask&) const { return {"umask", {}, {}, {}}; }
    Words operator()(const SetHostname& s) const
    {
        return {"Can't set hostname to",
                s.name,
                {},
                err == EINVAL ? "a hostname has at most 64 bytes" : ""};
    }
    Words operator()(const ChangeDirectory& s) const
    {
        if (site == Site::outside)
            return {"Can't chdir to", s.wanted, "the directory lies outside of the sandbox", {}};
        if (s.wanted == nullptr)
            return {"Can't chdir to", "/", {}, {}};
        return {s.wanted[0] == '\0' ? Literal{"Can't chdir to "} : Literal{"Can't chdir to"},
                s.wanted,
                {},
                {}};
    }
    Words operator()(const TakeTerminal&) const
    {
        return {"Can't open a pseudo-terminal", {}, {}, {}};
    }
    Words operator()(const NewSession&) const { return {"setsid", {}, {}, {}}; }
    Words operator()(const LockFile& s) const
    {
        if (site == Site::source)
            return {"Unable to open lock file", s.path, {}, {}};
        return {"Unable to lock file",
                s.path,
                {},
                err == EAGAIN ? "another process has locked it" : ""};
    }
    Words operator()(const OfferFolders&) const
    {
        return {"Can't open the working directory", {}, {}, {}};
    }
    Words operator()(const AwaitRelease&) const
    {
        return {"Can't read the block descriptor", {}, {}, {}};
    }
    Words operator()(const OwnKeyring&) const
    {
        return {"Can't make a session keyring", {}, {}, {}};
    }
    Words operator()(const SetResourceLimit& s) const
    {
        const std::vector<std::string> names = resource_names();
        return {"Can't set the resource limit",
                s.resource < names.size() ? names[s.resource] : std::to_string(s.resource),
                {},
                {}};
    }
    Words operator()(const EnterGroups&) const { return {cannot_enter_groups, {}, {}, {}}; }
    Words operator()(const SetNice& s) const
    {
        return {"Can't set the nice value",
                std::to_string(s.value),
                {},
                "only who may (CAP_SYS_NICE, RLIMIT_NICE) is less nice than before"};
    }
    Words operator()(const SetLabel& s) const
    {
        return {"Can't set SELinux label", s.label, {}, {}};
    }

    Words operator()(const ns::DropBounding&) const
    {
        return {"Dropping capability from the bounding set", {}, {}, {}};
    }
    Words operator()(const ns::WriteIdMaps&) const
    {
        if (site == Site::setgroups)
            return {"error writing to setgroups", {}, {}, diagnose_id_map(err)};
        if (site == Site::gid_map)
            return {"setting up gid map", {}, {}, diagnose_id_map(err)};
        return {"setting up uid map", {}, {}, diagnose_id_map(err)};
    }
    Words operator()(const ns::WriteIdMapsBelow&) const { return (*this)(ns::WriteIdMaps{}); }
    Words operator()(const ns::RequireIdMap&) const
    {
        return {"setting up uid map",
                {},
                {},
                "whoever holds the other end of --userns-block-fd has to write the maps first"};
    }
    Words operator()(const ns::TakeIds& s) const
    {
        if (site == Site::gid)
            return {"unable to switch to gid", std::to_string(s.gid), {}, {}};
        return {"unable to switch to uid", std::to_string(s.uid), {}, {}};
    }
    Words operator()(const AwaitIdMaps&) const
    {
        return {"Can't wait for the id maps", {}, {}, {}};
    }
    Words operator()(const OwnInit&) const { return {"Can't copy the init program", {}, {}, {}}; }
    Words operator()(const ns::TakeMappedIds& s) const
    {
        if (site == Site::setgroups)
            return {"Can't leave the supplementary groups", {}, {}, {}};
        return (*this)(ns::TakeIds{true, true, s.uid, s.gid});
    }
    Words operator()(const ns::JoinNamespace& s) const
    {
        if (!plan.foreign_network.empty())
            return {"Can't join the network of",
                    plan.foreign_network,
                    {},
                    err == EPERM
                        ? "the user namespace that owns it is not the one that was joined, "
                          "nor below it"
                        : ""};
        return {"Can't enter the sandbox's namespace of kind", namespace_kind(s.kind), {}, {}};
    }
    Words operator()(const ns::JoinUserNamespace&) const
    {
        if (index < plan.first_steps && !plan.foreign_network.empty())
            return {"Can't join the user namespace that owns the network of",
                    plan.foreign_network,
                    {},
                    {}};
        return {"Setting userns2 failed", {}, {}, {}};
    }
    Words operator()(const ns::LimitUserNamespaces&) const
    {
        return {"cannot write to /proc/sys/user/max_user_namespaces",
                {},
                {},
                err == EROFS ? "/proc/sys is read-only here" : ""};
    }
    Words operator()(const ns::NewUserNamespace& s) const
    {
        // Those that are made late are not different ones for the user.
        if (s.others != 0 && (err == ENOSPC || err == EUSERS))
            return {"Creating new namespace failed",
                    {},
                    too_many_namespaces,
                    diagnose_clone(CLONE_NEWUSER | s.others, err)};
        return {"Creating the second user namespace failed",
                {},
                {},
                diagnose_clone(CLONE_NEWUSER, err)};
    }
    Words operator()(const ns::NewMappedUserNamespace& s) const
    {
        if (site == Site::uid_map)
            return {"Can't map several ids in the second user namespace", {}, {}, {}};
        return (*this)(ns::NewUserNamespace{s.others});
    }
    Words operator()(const ns::RefuseUserNamespaces&) const
    {
        return {"creation of new user namespaces was not disabled as requested", {}, {}, {}, true};
    }
    Words operator()(const ns::SetCapabilities&) const
    {
        return {site == Site::ambient ? Literal{"Adding ambient capability"} : Literal{"capset"},
                {},
                {},
                {}};
    }
    Words operator()(const ns::MakeRuleset&) const
    {
        if (site == Site::source)
            return {"Can't open for a rule of Landlock", detail, {}, {}};
        return {"Can't make the rules of Landlock", detail, {}, {}};
    }
    Words operator()(const OfferNetwork&) const
    {
        return {"Can't hand over the network namespace", {}, {}, {}};
    }
    Words operator()(const AwaitNetwork&) const
    {
        return {"Can't wait for the network", {}, {}, {}};
    }
    Words operator()(const mount::FillContents&) const
    {
        return {"Can't write data to file", "/etc/resolv.conf", {}, {}};
    }
    Words operator()(const net::LoopbackUp&) const
    {
        if (site == Site::source)
            return {"loopback: Failed to create a socket", {}, {}, {}};
        return {"loopback: Failed RTM_NEWLINK",
                {},
                {},
                err == EPERM ? diagnose_apparmor() : std::string{}};
    }

    Words operator()(const mount::OpenHost&) const
    {
        if (site == Site::not_proc)
            return {"Can't open /proc",
                    {},
                    err == ENOTDIR ? "what is mounted there is no procfs" : "",
                    "mount one with: mount -t proc proc /proc"};
        return {"Failed to make / slave", {}, {}, diagnose_mount(err)};
    }
    Words operator()(const mount::CheckSource& s) const
    {
        return {"Can't find source path", s.path, {}, {}};
    }
    Words operator()(const mount::CheckDescriptor& s) const
    {
        return {"Can't find source path", "/proc/self/fd/" + std::to_string(s.fd), {}, {}};
    }
    Words operator()(const mount::MakeStore&) const { return (*this)(mount::MakeRoot{}); }
    Words operator()(const mount::MakeRoot&) const
    {
        if (site == Site::step)
            return mount_words("Failed to mount tmpfs", "", err);
        return {"Creating newroot failed",
                {},
                {},
                err == EOVERFLOW ? "this process's user id is not mapped in its user namespace"
                                 : ""};
    }
    Words operator()(const mount::BindTree& s) const
    {
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        if (site == Site::source)
            return {"Can't find source path", s.source, {}, source_hint(s.source)};
        if (site == Site::source_type)
            return {"Can't get type of source", s.source, {}, {}};
        return bind_words(pair(s.source, s.target), site, err);
    }
    Words operator()(const mount::BindOpenFile& s) const
    {
        const std::string source = "/proc/self/fd/" + std::to_string(s.fd);
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        if (site == Site::source_stat)
            return {"Can't stat fd", std::to_string(s.fd), {}, {}};
        if (site == Site::source_race)
            return {"Race condition binding dirfd",
                    {},
                    "the path of the descriptor leads to another file by now",
                    {}};
        if (site == Site::source)
            return {"Can't find source path", source, {}, {}};
        return bind_words(pair(source.c_str(), s.target), site, err);
    }
    Words operator()(const mount::MakeReadOnly& s) const
    {
        if (site == Site::not_a_mount)
            return {"Can't remount readonly on", s.target,
                    "Unable to find \"" + std::string{s.target} + "\" in mount table",
                    "only the root of a mount can be made read-only"};
        if (site == Site::resolve)
            return {"Can't remount readonly on",
                    s.target,
                    std::string{"realpath(destination): "} + ::strerrordesc_np(err),
                    {}};
        return {"Can't remount readonly on", s.target, {}, {}};
    }
    Words operator()(const mount::MountProc& s) const
    {
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        if (site == Site::restrict_mount)
            return {"Can't cover parts of", s.target, {}, {}};
        std::string hint = err == EPERM ? diagnose_covered_proc() : std::string{};
        if (!hint.empty())
            hint += ", or do without by --proc-fallback empty";
        if (hint.empty())
            hint = diagnose_mount(err);
        return {"Can't mount proc on", s.target, {}, hint};
    }
    Words operator()(const mount::MountDev& s) const
    {
        Words words;
        if (site == Site::no_tty)
            return mount_words("Can't mount devpts on", plan_path(s.target, "/pts"), err);
        if (site == Site::attach)
            return bind_words(pair(detail.c_str(), s.target), site, err);
        if (site == Site::restrict_mount)
            return mount_words("Can't restrict what is mounted below", s.target, err);
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        return mount_words("Can't mount tmpfs on", s.target, err);
    }
    Words operator()(const mount::MountTmpfs& s) const
    {
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        return mount_words("Can't mount tmpfs on", s.target, err);
    }
    Words operator()(const mount::MountMqueue& s) const
    {
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        words = mount_words("Can't mount mqueue on", s.target, err);
        if (err == EPERM && words.hint.empty())
            words.hint = "a message queue needs an ipc namespace of one's own: --unshare-ipc";
        return words;
    }
    Words operator()(const mount::MakeDirectory& s) const
    {
        Words words{"Can't mkdir", s.target, {}, {}};
        destination_words(site, s.target, detail, words);
        return with_read_only_hint(words, s.target);
    }
    Words operator()(const mount::WriteFile& s) const
    {
        Words words{"Can't create file", s.target, {}, {}};
        if (site == Site::contents)
            return {"Can't write data to file", s.target, {}, {}};
        if (site != Site::create)
            destination_words(site, s.target, detail, words);
        return with_read_only_hint(words, s.target);
    }
    Words operator()(const mount::BindContents& s) const
    {
        Words words;
        if (site == Site::contents)
            return {"Can't write data to file", s.target, {}, {}};
        if (site == Site::foreign)
            return {"Can't place", s.target,
                    "it does not exist in the sandbox, and would have to be made on the host",
                    "bind a file there, or add names=off to --net"};
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        return bind_words(pair("data", s.target), site, err);
    }
    Words operator()(const mount::MakeSymlink& s) const
    {
        Words words;
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        const Literal op = "Can't make symlink at";
        if (site == Site::exists_link)
            return {op, s.target, "existing destination is " + detail, {}};
        if (site == Site::exists_other)
            return {op, s.target, "destination exists and is not a symlink", {}};
        if (site == Site::exists_unreadable)
            return {op,
                    s.target,
                    std::string{"unable to read existing destination: "} + ::strerrordesc_np(err),
                    {}};
        return with_read_only_hint({op, s.target, {}, {}}, s.target);
    }
    Words operator()(const mount::ChangeMode& s) const
    {
        char mode[16];
        std::snprintf(mode, sizeof mode, "%#o", s.mode);
        return {"Can't chmod", std::string{mode} + " " + s.target, {}, {}};
    }
    Words operator()(const mount::MountOverlay& s) const
    {
        Words words;
        const Literal op = "Can't make overlay mount on";
        if (site == Site::overlap)
            return {op, s.target, "Overlay directories may not overlap", {}};
        if (site == Site::too_many)
            return {op, s.target, "there are more layers than the kernel takes", {}};
        if (site == Site::source)
            return {"Can't find source path", detail, {}, {}};
        if (destination_words(site, s.target, detail, words))
            return with_read_only_hint(words, s.target);
        return {op, s.target, {}, overlay_hint(s)};
    }
    Words operator()(const mount::EnterRoot&) const
    {
        if (site == Site::attach)
            return {"unmount old root", {}, {}, {}};
        return {"pivot_root", {}, {}, diagnose_mount(err)};
    }

    const char* plan_path(const char* target, const char* below) const
    {
        joined = std::string{target} + below;
        return joined.c_str();
    }
    Words with_read_only_hint(Words words, const char* target) const
    {
        if (err == EROFS)
            words.hint = earlier_read_only(target);
        if (err == EOVERFLOW)
            words.hint = "the folder above it belongs to an id that has no number in the sandbox: "
                         "map it too, as with --subids";
        return words;
    }
    std::string source_hint(const char* source) const;
    std::string overlay_hint(const mount::MountOverlay& s) const
    {
        if (std::string hint = diagnose_upper(s.upper, s.work, err); !hint.empty())
            return hint;
        for (std::size_t i = 0; err == EINVAL && i < s.lower_count; ++i)
            if (std::string hint = diagnose_lower(s.lower[i]); !hint.empty())
                return hint;
        if (err == EINVAL)
            return "each layer has to be a folder; an ordinary user's may hold no mounts, and the "
                   "upper and work folder have to be on one file system that overlayfs takes";
        return err == EOVERFLOW ? "a file's owner is not mapped in this user namespace" : "";
    }

    const ChildStep* failed;
    mutable std::string joined;
};

/// The next component of a path, which is taken away from it; empty at the end.
std::string_view take_component(std::string_view& path)
{
    path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
    const std::string_view component = path.substr(0, path.find('/'));
    path.remove_prefix(component.size());
    return component;
}

/// By components: "/usr2" does not lie below "/usr", and slashes more or less do not matter.
bool lies_below(std::string_view path, std::string_view above)
{
    for (;;) {
        const std::string_view wanted = take_component(above);
        if (wanted.empty())
            return true;
        if (take_component(path) != wanted)
            return false;
    }
}

/// Where a step puts a mount, or changes one; null where it does not.
struct MountPoint {
    const char* operator()(const mount::BindTree& s) const { return s.target; }
    const char* operator()(const mount::BindOpenFile& s) const { return s.target; }
    const char* operator()(const mount::BindContents& s) const { return s.target; }
    const char* operator()(const mount::MakeReadOnly& s) const { return s.target; }
    const char* operator()(const mount::MountProc& s) const { return s.target; }
    const char* operator()(const mount::MountDev& s) const { return s.target; }
    const char* operator()(const mount::MountTmpfs& s) const { return s.target; }
    const char* operator()(const mount::MountMqueue& s) const { return s.target; }
    const char* operator()(const mount::MountOverlay& s) const { return s.target; }
    template <class Other>
    const char* operator()(const Other&) const
    {
        return nullptr;
    }
};

/// Names the earlier operation that made the place read-only: the last one before the failed
/// step that put a mount above it.
std::string Teller::earlier_read_only(const char* target) const
{
    const ChildStep* last = nullptr;
    for (std::size_t i = 0; i < index; ++i) {
        const char* const point = std::visit(MountPoint{}, plan.steps[i]);
        if (point != nullptr && lies_below(target, point))
            last = &plan.steps[i];
    }
    if (last == nullptr)
        return {};
    std::string name;
    if (const auto* const bind = std::get_if<mount::BindTree>(last)) {
        if ((bind->attributes & 1) == 0)
            return "the source " + std::string{bind->source} + " that was bound on " +
                   bind->target + " is read-only itself";
        name = std::string{bind->may_be_missing ? "--ro-bind-try " : "--ro-bind "} + bind->source +
               " " + bind->target;
    } else if (const auto* const remount = std::get_if<mount::MakeReadOnly>(last)) {
        name = std::string{"--remount-ro "} + remount->target;
    } else {
        return {};
    }
    return "the earlier " + name +
           " makes this place read-only: make the mount point before it, or put a --tmpfs there";
}

/// Names the folder above a source that may not be searched.
std::string Teller::source_hint(const char* source) const
{
    if (err != EACCES)
        return {};
    std::string path = source;
    for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        const std::string above = path.substr(0, at);
        if (sys::raw::faccessat(AT_FDCWD, above.c_str(), X_OK) == -EACCES)
            return "the folder " + above + " may not be searched by this user";
    }
    return {};
}

Error early_words(const Plan& plan, const Message& message)
{
    const int err = message.value;
    switch (message.step) {
    case joining_user:
        if (err == EINVAL)
            return {err,
                    "Joining the specified user namespace failed, it might not be a descendant of "
                    "the current user namespace",
                    {},
                    {},
                    {}};
        return {err, "Joining specified user namespace failed", {}, {}, {}};
    case joining_pid:
        return {err, "Setting pidns failed", {}, {}, {}};
    case cloning:
        return describe_clone_failure(plan, err);
    default:
        return {err, "Can't start the command", {}, {}, {}};
    }
}

}  // namespace

namespace {

/// Below a user namespace of somebody else's other limits hold than on the host.
std::string diagnose_clone_there(const Plan& plan, int err)
{
    const bool is_there =
        plan.first_steps > 0 && std::holds_alternative<ns::JoinUserNamespace>(plan.steps.front());
    if (is_there && (err == ENOSPC || err == EUSERS))
        return "the user namespace that owns the network of " + plan.foreign_network +
               " allows no further ones, as that of a sandbox with --disable-userns";
    if (is_there && (err == EPERM || err == EINVAL))
        return "the user namespace that owns the network of " + plan.foreign_network +
               " may not map this user's ids";
    return diagnose_clone(plan.clone_flags, err);
}

}  // namespace

std::string describe_replaced(const Plan& plan, const Message& message)
{
    const auto index = static_cast<std::size_t>(message.step);
    const auto* const overlay = message.step >= 0 && index < plan.steps.size()
                                    ? std::get_if<mount::MountOverlay>(&plan.steps[index])
                                    : nullptr;
    const auto* const proc = message.step >= 0 && index < plan.steps.size()
                                 ? std::get_if<mount::MountProc>(&plan.steps[index])
                                 : nullptr;
    if (proc != nullptr)
        return std::string{"the kernel refuses a new procfs here; "} + proc->target +
               (proc->refused == mount::Refused::bind
                    ? " is the caller's, with the processes that are there and what belongs to them"
                    : " is empty");
    if (overlay == nullptr || overlay->upper == nullptr)
        return "a step of the set-up took another way than the one asked for";
    std::string reason = diagnose_upper(overlay->upper, overlay->work, EINVAL);
    if (reason.empty())
        reason = "the upper folder " + std::string{overlay->upper} + " cannot be an upper layer";
    return reason + "; what is written below " + overlay->target +
           " is kept in memory and lost at the end";
}

Error describe_clone_failure(const Plan& plan, int err)
{
    const bool user = (plan.clone_flags & CLONE_NEWUSER) != 0;
    std::string hint = diagnose_clone_there(plan, err);
    if (user && (err == EPERM || err == EACCES))
        return {err, "No permissions to create a new namespace", {}, {}, std::move(hint)};
    std::string reason;
    if (err == ENOSPC || err == EUSERS)
        reason = too_many_namespaces;
    return {err, "Creating new namespace failed", {}, std::move(reason), std::move(hint)};
}

Error describe_failure(const Plan& plan, const Message& message, const std::string& detail)
{
    const int err = message.value;
    switch (message.kind) {
    case Tell::exec_failed:
        // An empty name is shown as such: "execvp : No such file or directory".
        return {err,
                plan.argv_name.empty() ? Literal{"execvp "} : Literal{"execvp"},
                plan.argv_name,
                {},
                {},
                0,
                Phase::execute};
    case Tell::filter_failed:
        if (err == EINVAL)
            return {
                0,
                "Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) "
                "reported EINVAL",
                {},
                {},
                "the program may be invalid, or the kernel is built without CONFIG_SECCOMP_FILTER"};
        if (err == EBUSY && plan.denials)
            return {err,
                    "Can't log denials",
                    {},
                    "a process around this one is asked about its calls already",
                    "of sandboxes in each other only one can have --log-denials"};
        return {err, "prctl(PR_SET_SECCOMP)", {}, {}, {}};
    case Tell::groups_failed:
        return {err, cannot_enter_groups, {}, {}, {}};
    case Tell::landlock_failed:
        return {err,
                "Can't put the rules of Landlock in force",
                {},
                {},
                err == E2BIG ? "the kernel takes 16 layers of rules, those of the caller among them"
                             : ""};
    default:
        break;
    }
    if (message.kind != Tell::step_failed || message.step < 0 ||
        static_cast<std::size_t>(message.step) >= plan.steps.size())
        return early_words(plan, message);
    const auto index = static_cast<std::size_t>(message.step);
    const Teller teller{plan, index, static_cast<Site>(message.site), err, detail, {}};
    Words words = std::visit(teller, plan.steps[index]);
    if (err == EAGAIN && words.hint.empty() && !words.object.empty())
        words.hint = "too many names or mounts changed at that moment: try again";
    return {words.is_whole ? 0 : err, words.op, std::move(words.object), std::move(words.reason),
            std::move(words.hint)};
}

}  // namespace nsbox::runtime
