// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "mount/resolve.hpp"
#include "mount/steps.hpp"
#include "mount/tree.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

using Options = sys::FixedText<4096>;  // One page is what mount(2) takes.

/// A layer by its descriptor: a name that is short and needs no escaping.
sys::FixedText<64> layer_name(int fd) noexcept
{
    sys::FixedText<64> name;
    name.add("/proc/self/fd/").number(static_cast<unsigned long>(fd));
    return name;
}

struct Layers {
    Fd upper;
    Fd work;
    Fd lower[500];  // The kernel's own limit (OVL_MAX_STACK).
    std::size_t count = 0;
};

int open_folder(ChildState& state, const char* path, Fd& out) noexcept
{
    const int dir = state.cwd >= 0 ? state.cwd : AT_FDCWD;
    out = Fd{raw::openat(dir, path, O_PATH | O_CLOEXEC)};
    if (out)
        return 0;
    state.detail.clear();
    state.detail.add(path);
    return state.failed(Site::source, out.error());
}

int make_stored(ChildState& state, const char* prefix, Fd& out) noexcept
{
    sys::FixedText<64> name;
    name.add(prefix).number(state.stored++);
    if (const int rc = raw::mkdirat(state.store, name.c_str(), 0755); rc < 0)
        return state.failed(Site::make, rc);
    out = Fd{raw::openat(state.store, name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY)};
    return out ? 0 : state.failed(Site::make, out.error());
}

int open_layers(const MountOverlay& step, ChildState& state, Layers& layers) noexcept
{
    if (step.lower_count > sizeof layers.lower / sizeof layers.lower[0])
        return state.failed(Site::too_many, -E2BIG);
    for (; layers.count < step.lower_count; ++layers.count)
        if (const int rc = open_folder(state, step.lower[layers.count], layers.lower[layers.count]);
            rc < 0)
            return rc;
    if (step.temporary) {
        if (const int rc = make_stored(state, "upper", layers.upper); rc < 0)
            return rc;
        return make_stored(state, "work", layers.work);
    }
    if (step.upper == nullptr)
        return 0;
    if (const int rc = open_folder(state, step.upper, layers.upper); rc < 0)
        return rc;
    return open_folder(state, step.work, layers.work);
}

/// What belongs to nobody here can be changed by nobody, nor can anything be made in it. A folder of ours
/// in the upper layer makes it ours.
int make_own(const MountOverlay& step, ChildState& state, const Layers& layers) noexcept
{
    constexpr unsigned nobody = 65534;  // kernel.overflowuid, user_namespaces(7)
    for (std::size_t i = 0; layers.upper && i < step.own_count; ++i) {
        struct ::stat status;
        if (raw::fstatat(layers.lower[0].get(), step.own[i], &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(status.st_mode) || (status.st_uid != nobody && status.st_gid != nobody))
            continue;
        const int rc = raw::mkdirat(layers.upper.get(), step.own[i], status.st_mode & 07777);
        if (rc < 0 && rc != -EEXIST)
            return state.failed(Site::make, rc);
    }
    return 0;
}

int configure(int fs, const char* key, const char* value) noexcept
{
    return raw::fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0);
}

/// Sets every option on a file system context; -EINVAL where the kernel does not know
/// "lowerdir+" (before Linux 6.7).
int configure_layers(int fs, const Layers& layers) noexcept
{
    for (std::size_t i = 0; i < layers.count; ++i)
        if (const int rc = configure(fs, "lowerdir+", layer_name(layers.lower[i].get()).c_str());
            rc < 0)
            return rc;
    if (layers.upper) {
        if (const int rc = configure(fs, "upperdir", layer_name(layers.upper.get()).c_str());
            rc < 0)
            return rc;
        if (const int rc = configure(fs, "workdir", layer_name(layers.work.get()).c_str()); rc < 0)
            return rc;
    }
    if (const int rc = raw::fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", nullptr, 0); rc < 0)
        return rc;
    if (const int rc = configure(fs, "index", "off"); rc < 0)
        return rc;
    return configure(fs, "xino", "off");
}

/// -EOPNOTSUPP where the classic call has to do it.
Fd make_by_context(const Layers& layers) noexcept
{
    const Fd fs{raw::fsopen("overlay")};
    if (!fs)
        return Fd{-EOPNOTSUPP};
    int rc = configure_layers(fs.get(), layers);
    if (rc < 0)
        return Fd{-EOPNOTSUPP};
    rc = raw::fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
    if (rc < 0)
        return Fd{rc};
    return Fd{raw::fsmount(fs.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)};
}

bool compose(const Layers& layers, Options& options) noexcept
{
    options.add("lowerdir=");
    for (std::size_t i = 0; i < layers.count; ++i) {
        if (i > 0)
            options.add(":");
        options.add(layer_name(layers.lower[i].get()).c_str());
    }
    if (layers.upper) {
        options.add(",upperdir=").add(layer_name(layers.upper.get()).c_str());
        options.add(",workdir=").add(layer_name(layers.work.get()).c_str());
    }
    options.add(",userxattr,index=off,xino=off");
    return options.ok();
}

int mount_classic(ChildState& state, const Layers& layers, const Fd& place) noexcept
{
    Options options;
    if (!compose(layers, options))
        return state.failed(Site::too_many, -E2BIG);
    const unsigned long flags = sys::ms_nosuid | sys::ms_nodev;
    if (!place)
        return raw::mount("overlay", "/", "overlay", flags, options.c_str());
    if (const int rc = raw::fchdir(place.get()); rc < 0)
        return rc;
    return raw::mount("overlay", ".", "overlay", flags, options.c_str());
}

int mount_layers(const MountOverlay& step, ChildState& state, const Layers& layers) noexcept
{
    Fd place;
    // "/" is where mounts are stacked; the name leads there by itself.
    if (!is_root_path(step.target)) {
        place = ensure_directory(state, step.target, 0755, 0755);
        if (!place)
            return place.error();
    }
    const Target target = target_at(state, place, step.target);
    Fd tree = state.has_mount_api ? make_by_context(layers) : Fd{-EOPNOTSUPP};
    int rc = tree.error();
    if (tree)
        rc = place ? raw::move_mount(tree.get(), place.get(), "", MOVE_MOUNT_T_EMPTY_PATH)
                   : raw::move_mount(tree.get(), target.dir, target.name, 0);
    if (rc == -EOPNOTSUPP) {
        rc = mount_classic(state, layers, place);
        if (rc == 0)
            tree = reopen(state, target);
        if (rc == 0 && !tree)
            rc = tree.error();
    }
    if (rc < 0)
        return rc == -ELOOP ? state.failed(Site::overlap, rc) : rc;
    // What is made there is made in the upper folder, which is the sandbox's.
    if (layers.upper)
        note_own(state, tree);
    adopt_root(state, tree, step.target);
    return 0;
}

/// Layers from the store have to be cloned by the kernel, which an unbindable mount forbids.
int mount_stored(const MountOverlay& step, ChildState& state, const Layers& layers) noexcept
{
    if (const int rc = shield(state, false); rc < 0)
        return state.failed(Site::make, rc);
    const int rc = mount_layers(step, state, layers);
    if (rc < 0)
        return rc;
    return shield(state, true);
}

/// What the kernel says where the fault may be with the upper folder's file system.
bool may_be_upper(int rc) noexcept
{
    return rc == -EINVAL || rc == -EROFS || rc == -EOPNOTSUPP;
}

/// A work folder elsewhere is the caller's mistake, and not one of the file system's.
bool are_together(const Layers& layers) noexcept
{
    struct ::stat upper;
    struct ::stat work;
    return raw::fstat(layers.upper.get(), &upper) == 0 &&
           raw::fstat(layers.work.get(), &work) == 0 && upper.st_dev == work.st_dev;
}

int replace_upper(const MountOverlay& step, ChildState& state, Layers& layers) noexcept
{
    if (const int rc = make_stored(state, "upper", layers.upper); rc < 0)
        return rc;
    if (const int rc = make_stored(state, "work", layers.work); rc < 0)
        return rc;
    const int rc = mount_stored(step, state, layers);
    state.has_replaced = rc == 0;
    return rc;
}

}  // namespace

int run(const MountOverlay& step, ChildState& state) noexcept
{
    Layers layers;
    if (const int rc = open_layers(step, state, layers); rc < 0)
        return rc;
    if (const int rc = make_own(step, state, layers); rc < 0)
        return rc;
    if (step.temporary)
        return mount_stored(step, state, layers);
    const int rc = mount_layers(step, state, layers);
    if (rc >= 0 || !step.else_temporary || !may_be_upper(rc) || !are_together(layers))
        return rc;
    const Site site = state.site;
    if (replace_upper(step, state, layers) == 0)
        return 0;
    // Then it was not the upper folder: the first error tells more.
    return state.failed(site, rc);
}

}  // namespace nsbox::mount
