// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "mount/resolve.hpp"
#include "mount/steps.hpp"
#include "mount/tree.hpp"
#include "sys/raw.hpp"

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

/// Whether a folder is the host's root, of which a recursive copy would hold the new root.
bool is_host_root(const struct ::stat& status) noexcept
{
    struct ::stat root;
    return raw::fstatat(AT_FDCWD, "/", &root, 0) == 0 && root.st_dev == status.st_dev &&
           root.st_ino == status.st_ino;
}

/// Opens the source and finds out what it is.
Fd open_bind_source(const BindTree& step, ChildState& state, struct ::stat& status) noexcept
{
    if (step.detached >= 0 && state.has_mount_api) {
        Fd tree{raw::fcntl(step.detached, F_DUPFD_CLOEXEC, 3)};
        const int rc = raw::fstat(tree.get(), &status);
        return rc < 0 ? Fd{state.failed(Site::source_type, rc)} : static_cast<Fd&&>(tree);
    }
    const Source source{state.cwd >= 0 ? state.cwd : AT_FDCWD, step.source};
    Fd tree = open_source(state, source);
    if (!tree)
        return Fd{state.failed(Site::source, tree.error())};
    if (const int rc = raw::fstat(tree.get(), &status); rc < 0)
        return Fd{state.failed(Site::source_type, rc)};
    if (state.lowest < 0 || state.shielded || !S_ISDIR(status.st_mode) || !is_host_root(status))
        return tree;
    if (const int rc = shield(state, true); rc < 0)
        return Fd{state.failed(Site::source, rc)};
    tree = open_source(state, source);
    if (!tree)
        return Fd{state.failed(Site::source, tree.error())};
    if (state.has_mount_api)
        if (const int rc = shield(state, false); rc < 0)
            return Fd{state.failed(Site::source, rc)};
    return tree;
}

}  // namespace

int run(const BindTree& step, ChildState& state) noexcept
{
    struct ::stat status;
    Fd tree = open_bind_source(step, state, status);
    if (!tree) {
        const bool missing = tree.error() == -ENOENT || tree.error() == -ENOTDIR;
        if (step.may_be_missing && missing && state.site == Site::source)
            return 0;
        return tree.error();
    }
    Fd place;
    if (S_ISDIR(status.st_mode) && is_root_path(step.target)) {
        // "/" is where mounts are stacked; the name leads there by itself.
    } else {
        place = S_ISDIR(status.st_mode) ? ensure_directory(state, step.target, 0755, 0755)
                                        : ensure_file(state, step.target, 0755);
        if (!place)
            return place.error();
    }
    const int rc =
        attach(state, tree, target_at(state, place, step.target), step.attributes,
               step.tolerate_submounts ? Submounts::may_fail : Submounts::must_be_restricted);
    if (rc == 0)
        adopt_root(state, tree, step.target);
    return rc;
}

int run(const MakeReadOnly& step, ChildState& state) noexcept
{
    const Fd place = resolve(state, step.target);
    if (!place)
        return state.failed(Site::resolve, place.error());
    const int rc = set_read_only(state, place.get());
    return rc == -EINVAL ? state.failed(Site::not_a_mount, rc) : rc;
}

}  // namespace nsbox::mount
