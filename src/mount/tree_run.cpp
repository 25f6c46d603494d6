// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "mount/tree.hpp"

#include "mount/classic.hpp"
#include "mount/resolve.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

Fd open_source(const ChildState& state, Source source) noexcept
{
    const unsigned empty = source.path[0] == '\0' ? AT_EMPTY_PATH : 0;
    if (state.has_mount_api)
        return Fd{raw::open_tree(source.dir, source.path,
                                 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | empty)};
    if (empty != 0)
        return Fd{raw::fcntl(source.dir, F_DUPFD_CLOEXEC, 3)};
    return Fd{raw::openat(source.dir, source.path, O_PATH | O_CLOEXEC)};
}

int attach(ChildState& state, Fd& tree, Target target, std::uint64_t attributes,
           Submounts submounts) noexcept
{
    if (!state.has_mount_api)
        return classic::attach(state, tree, target, attributes, submounts);
    // The tree is restricted while it is detached: nobody can reach it with more rights, and a
    // failure drops it with its descriptor.
    if (attributes != 0) {
        const int rc = raw::mount_setattr(tree.get(), AT_RECURSIVE, attributes);
        if (rc < 0)
            return state.failed(Site::restrict_mount, rc);
    }
    const int rc = target.fd >= 0
                       ? raw::move_mount(tree.get(), target.fd, "", MOVE_MOUNT_T_EMPTY_PATH)
                       : raw::move_mount(tree.get(), target.dir, target.name, 0);
    return rc < 0 ? state.failed(Site::attach, rc) : 0;
}

int set_read_only(const ChildState& state, int fd) noexcept
{
    if (!state.has_mount_api)
        return classic::set_read_only(fd);
    return raw::mount_setattr(fd, 0, MOUNT_ATTR_RDONLY);
}

int mount_new(const char* type, int target, unsigned long flags, const char* options) noexcept
{
    if (const int rc = raw::fchdir(target); rc < 0)
        return rc;
    return raw::mount(type, ".", type, flags, options);
}

bool is_root_path(const char* path) noexcept
{
    while (*path == '/')
        ++path;
    return *path == '\0';
}

Target target_at(const ChildState&, const Fd& place, const char* path) noexcept
{
    return is_root_path(path) ? Target{-1, AT_FDCWD, "/"} : Target{place.get(), -1, path};
}

void adopt_root(ChildState& state, Fd& tree, const char* path) noexcept
{
    if (!is_root_path(path))
        return;
    const int root = tree.release();
    if (state.lowest < 0)
        state.lowest = root;
    else if (state.root != state.lowest)
        raw::close(state.root);
    state.root = root;
    state.root_is_shielded = false;
    ++state.stacked;
}

int shield(ChildState& state, bool on) noexcept
{
    const int rc = set_propagation(state, state.lowest, on ? sys::ms_unbindable : sys::ms_private);
    if (rc == 0)
        state.shielded = on;
    return rc;
}

Fd reopen(const ChildState& state, Target target) noexcept
{
    if (target.dir >= 0)
        return Fd{raw::openat(target.dir, target.name, O_PATH | O_CLOEXEC | O_NOFOLLOW)};
    // "/" is still the old root: only going up from it leads to what is mounted over it.
    if (is_root_path(target.name))
        return Fd{raw::openat(AT_FDCWD, "/..", O_PATH | O_CLOEXEC | O_DIRECTORY)};
    return resolve(state, target.name);
}

void note_own(ChildState& state, const Fd& place) noexcept
{
    struct ::stat status;
    constexpr unsigned room = sizeof state.own_devices / sizeof state.own_devices[0];
    if (place && state.own_count < room && raw::fstat(place.get(), &status) == 0)
        state.own_devices[state.own_count++] = status.st_dev;
}

int set_propagation(const ChildState& state, int fd, unsigned long kind) noexcept
{
    if (state.has_mount_api)
        return raw::mount_setattr(fd, 0, 0, kind);
    if (const int rc = raw::fchdir(fd); rc < 0)
        return rc;
    return raw::mount(nullptr, ".", nullptr, kind, nullptr);
}

}  // namespace nsbox::mount
