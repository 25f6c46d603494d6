#include "runtime/plan_operations.hpp"

#include <algorithm>
#include <cstdio>

#include <linux/mount.h>

namespace nsbox::runtime {

namespace {

/// A destination as steps take it: below the root, without slashes at either end.
std::string normal(const std::string& destination)
{
    const std::size_t begin = destination.find_first_not_of('/');
    if (begin == std::string::npos)
        return "/";
    const std::size_t end = destination.find_last_not_of('/');
    return "/" + destination.substr(begin, end - begin + 1);
}

/// The mode of missing parents: 0755, without what the operation's own mode denies altogether.
unsigned parent_mode(unsigned mode)
{
    unsigned result = 0755;
    if ((mode & 0070) == 0)
        result &= ~0050U;
    if ((mode & 0007) == 0)
        result &= ~0005U;
    return result;
}

std::string octal(unsigned mode)
{
    char text[16];
    std::snprintf(text, sizeof text, "%#o", mode);
    return text;
}

class Planner {
public:
    Planner(const Spec& spec, const OperationContext& context, Plan& plan)
        : spec_(spec), context_(context), plan_(plan)
    {}

    Result<> run()
    {
        check_sources();
        const bool covered = !spec_.operations.empty() && covers_root(spec_.operations.front());
        if (places_names() ||
            std::any_of(spec_.operations.begin(), spec_.operations.end(), needs_store))
            step(mount::MakeStore{keep("mode=0755" + size_option() + label_option())});
        step(mount::MakeRoot{plan_.keep("mode=0755" + size_option() + label_option()), !covered});
        const std::size_t last = end_of_tree();
        for (std::size_t i = 0; i <= spec_.operations.size(); ++i) {
            if (i == last)
                place_names();
            if (i < spec_.operations.size())
                TRY(std::visit([this](const auto& op) { return add(op); }, spec_.operations[i]));
        }
        return {};
    }

private:
    bool places_names() const
    {
        return (spec_.user_network && spec_.user_network->names) ||
               (spec_.veth_network && spec_.veth_network->names);
    }

    /// Where the operations begin that only make what is there read-only.
    std::size_t end_of_tree() const
    {
        std::size_t end = spec_.operations.size();
        while (end > 0 && std::holds_alternative<RemountReadOnly>(spec_.operations[end - 1]))
            --end;
        return end;
    }

    bool is_about(const std::string& path) const
    {
        return std::any_of(spec_.operations.begin(), spec_.operations.end(), [&](const auto& op) {
            // Where a link leads to decides.
            if (std::holds_alternative<Symlink>(op))
                return false;
            return std::visit(
                [&](const auto& it) {
                    if constexpr (requires { it.destination; })
                        return normal(it.destination) == path;
                    else
                        return false;
                },
                op);
        });
    }

    void place_names()
    {
        if (!places_names())
            return;
        constexpr const char* servers = "/etc/resolv.conf";
        for (const char* path : {servers, "/etc/hosts"}) {
            if (is_about(path))
                continue;
            // Addresses of a link to the host are known only when it is there.
            const bool is_late = spec_.veth_network && path == servers;
            plan_.late_names |= is_late;
            plan_.name_steps.push_back(plan_.steps.size());
            step(mount::BindContents{-1, path, 0644, 0755, true, true, is_late});
        }
    }

    template <class Step>
    void step(Step step)
    {
        plan_.steps.emplace_back(step);
    }
    const char* keep(std::string text) { return plan_.keep(std::move(text)); }
    const char* target(const std::string& destination) { return keep(normal(destination)); }

    static mount::Refused when_refused(ProcFallback fallback)
    {
        return fallback == ProcFallback::bind    ? mount::Refused::bind
               : fallback == ProcFallback::empty ? mount::Refused::leave_empty
                                                 : mount::Refused::fail;
    }

    static bool covers_root(const Operation& operation)
    {
        if (const auto* overlay = std::get_if<Overlay>(&operation))
            return normal(overlay->destination) == "/";
        const auto* bind = std::get_if<Bind>(&operation);
        return bind != nullptr && normal(bind->destination) == "/" &&
               bind->if_missing == IfMissing::fail;
    }

    static bool needs_store(const Operation& operation)
    {
        const auto* overlay = std::get_if<Overlay>(&operation);
        return std::holds_alternative<Data>(operation) ||
               (overlay != nullptr &&
                (overlay->upper_kind == Overlay::Upper::temporary || overlay->else_temporary));
    }

    /// Whether an operation can change files of the host's.
    static bool writes_host(const Operation& operation)
    {
        if (const auto* bind = std::get_if<Bind>(&operation))
            return bind->access == Access::read_write;
        if (const auto* bind = std::get_if<BindDescriptor>(&operation))
            return bind->access == Access::read_write;
        const auto* overlay = std::get_if<Overlay>(&operation);
        return overlay != nullptr && overlay->upper_kind == Overlay::Upper::kept;
    }

    /// A source that is missing is found before anything is made on the host.
    void check_sources()
    {
        bool writable = false;
        for (const Operation& operation : spec_.operations) {
            if (const auto* bind = std::get_if<Bind>(&operation); bind != nullptr && writable)
                step(mount::CheckSource{keep(bind->source), bind->if_missing == IfMissing::skip});
            if (const auto* bind = std::get_if<BindDescriptor>(&operation))
                step(mount::CheckDescriptor{bind->source});
            if (const auto* overlay = std::get_if<Overlay>(&operation))
                check_layers(*overlay);
            writable = writable || writes_host(operation);
        }
    }

    void check_layers(const Overlay& overlay)
    {
        // The caller may be none of the ids that stand for the files of a root filesystem.
        const bool by_opening = !spec_.uid_map.empty();
        for (const std::string& lower : overlay.lower)
            step(mount::CheckSource{keep(lower), false, by_opening});
        if (overlay.upper_kind != Overlay::Upper::kept)
            return;
        step(mount::CheckSource{keep(overlay.upper), false, by_opening});
        step(mount::CheckSource{keep(overlay.work), false, by_opening});
    }

    /// Of a tmpfs for which no size was said.
    std::string size_option() const
    {
        if (!spec_.tmpfs_size)
            return {};
        constexpr std::uint64_t bytes_a_file = 2048;
        constexpr std::uint64_t first_files = 1024;
        return ",size=" + std::to_string(*spec_.tmpfs_size) +
               ",nr_inodes=" + std::to_string(*spec_.tmpfs_size / bytes_a_file + first_files);
    }

    std::string label_option() const
    {
        return spec_.file_label ? ",context=\"" + *spec_.file_label + "\"" : std::string{};
    }

    static std::uint64_t attributes(Access access, Devices devices)
    {
        std::uint64_t result = MOUNT_ATTR_NOSUID;
        if (devices == Devices::refused)
            result |= MOUNT_ATTR_NODEV;
        if (access == Access::read_only)
            result |= MOUNT_ATTR_RDONLY;
        return result;
    }

    Result<> add(const Bind& op)
    {
        if (op.source.empty())
            return fail("Can't find source path", ENOENT, {}, "the source is an empty word");
        mount::BindTree tree{};
        tree.source = keep(op.source);
        tree.target = target(op.destination);
        tree.attributes = attributes(op.access, op.devices);
        tree.detached = -1;
        tree.may_be_missing = op.if_missing == IfMissing::skip;
        tree.tolerate_submounts = spec_.tolerate_failed_submounts;
        if (context_.loses_privilege && context_.host.has_mount_api)
            plan_.early_trees.push_back({tree.source, -1, tree.attributes, plan_.steps.size()});
        step(tree);
        return {};
    }

    Result<> add(const BindDescriptor& op)
    {
        const std::uint64_t flags = attributes(op.access, Devices::refused);
        if (context_.loses_privilege && context_.host.has_mount_api)
            plan_.early_trees.push_back({nullptr, op.source, flags, plan_.steps.size()});
        step(mount::BindOpenFile{op.source, target(op.destination), flags, -1,
                                 spec_.tolerate_failed_submounts});
        return {};
    }

    Result<> add(const RemountReadOnly& op)
    {
        step(mount::MakeReadOnly{target(op.destination)});
        return {};
    }

    Result<> add(const Proc& op)
    {
        step(mount::MountProc{target(op.destination), context_.fresh_proc,
                              context_.cover_proc || op.always_covered,
                              spec_.tolerate_failed_submounts, when_refused(spec_.proc_fallback)});
        return {};
    }

    Result<> add(const Dev& op)
    {
        const char* const console =
            context_.host.terminal ? keep(*context_.host.terminal) : nullptr;
        step(mount::MountDev{target(op.destination),
                             keep("mode=0755" + size_option() + label_option()), console,
                             context_.own_terminal});
        return {};
    }

    Result<> add(const Tmpfs& op)
    {
        std::string options = "mode=" + octal(op.mode);
        if (op.size != 0)
            options += ",size=" + std::to_string(op.size);
        else
            options += size_option();
        step(mount::MountTmpfs{target(op.destination), keep(options + label_option())});
        return {};
    }

    Result<> add(const Mqueue& op)
    {
        step(mount::MountMqueue{target(op.destination)});
        return {};
    }

    Result<> add(const Directory& op)
    {
        step(mount::MakeDirectory{target(op.destination), op.mode, parent_mode(op.mode)});
        return {};
    }

    Result<> add(const File& op)
    {
        step(mount::WriteFile{op.source, target(op.destination), op.mode, parent_mode(op.mode)});
        return {};
    }

    Result<> add(const Text& op)
    {
        step(mount::WriteFile{-1, target(op.destination), op.mode, parent_mode(op.mode),
                              keep(op.content), op.content.size()});
        return {};
    }

    Result<> add(const Data& op)
    {
        step(mount::BindContents{op.source, target(op.destination), op.mode, 0755,
                                 op.access == Access::read_only});
        return {};
    }

    Result<> add(const Symlink& op)
    {
        step(mount::MakeSymlink{keep(op.target), target(op.destination)});
        return {};
    }

    Result<> add(const Chmod& op)
    {
        step(mount::ChangeMode{target(op.destination), op.mode});
        return {};
    }

    Result<> add(const Hostname& op)
    {
        const SetHostname set{keep(op.name)};
        if (context_.late_hostname)
            plan_.late_steps.emplace_back(set);
        else
            step(set);
        return {};
    }

    Result<> add(const Overlay& op)
    {
        std::vector<const char*>& lower = plan_.tables.emplace_back();
        // The kernel wants the topmost layer first.
        for (auto it = op.lower.rbegin(); it != op.lower.rend(); ++it)
            lower.push_back(keep(*it));
        std::vector<const char*>& own = plan_.tables.emplace_back();
        for (const std::string& name : op.own_folders)
            own.push_back(keep(name));
        const bool kept = op.upper_kind == Overlay::Upper::kept;
        step(mount::MountOverlay{lower.data(), lower.size(), kept ? keep(op.upper) : nullptr,
                                 kept ? keep(op.work) : nullptr,
                                 op.upper_kind == Overlay::Upper::temporary, target(op.destination),
                                 kept && op.else_temporary, own.data(), own.size()});
        return {};
    }

    const Spec& spec_;
    const OperationContext& context_;
    Plan& plan_;
};

}  // namespace

Result<> plan_operations(const Spec& spec, const OperationContext& context, Plan& plan)
{
    return Planner{spec, context, plan}.run();
}

std::string name_of(const JoinNetwork& wish)
{
    return wish.by == JoinNetwork::By::descriptor ? "descriptor " + std::to_string(wish.descriptor)
                                                  : wish.name;
}

}  // namespace nsbox::runtime
