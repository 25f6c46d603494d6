// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.
//
// The host side of set-up: what is opened before the new root exists, and how it is entered.

#include "mount/resolve.hpp"
#include "mount/steps.hpp"
#include "mount/tree.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"

#include <linux/magic.h>

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

int run(const OpenHost& step, ChildState& state) noexcept
{
    if (step.need_cwd) {
        Fd cwd{raw::openat(AT_FDCWD, ".", O_PATH | O_CLOEXEC | O_DIRECTORY)};
        state.cwd =
            cwd.release();  // A working directory that is gone matters to relative paths only.
    }
    if (step.need_proc) {
        Fd proc{raw::openat(AT_FDCWD, "/proc", O_PATH | O_CLOEXEC | O_DIRECTORY)};
        if (!proc)
            return state.failed(Site::not_proc, proc.error());
        // Writing id maps into ordinary files would look like success.
        if (raw::fs_magic(proc.get()) != PROC_SUPER_MAGIC)
            return state.failed(Site::not_proc, -ENOTDIR);
        state.proc = proc.release();
    }
    if (!step.make_slave)
        return 0;
    return raw::mount(nullptr, "/", nullptr, sys::ms_slave | sys::ms_rec, nullptr);
}

int run(const CheckSource& step, ChildState& state) noexcept
{
    const int dir = state.cwd >= 0 ? state.cwd : AT_FDCWD;
    int rc = 0;
    if (step.by_opening) {
        const Fd found{raw::openat(dir, step.path, O_PATH | O_CLOEXEC)};
        rc = found ? 0 : found.error();
    } else {
        rc = raw::faccessat(dir, step.path, F_OK);
    }
    if ((rc == -ENOENT || rc == -ENOTDIR) && step.may_be_missing)
        return 0;
    return rc < 0 ? state.failed(Site::source, rc) : 0;
}

namespace {

/// The path that the kernel knows for a descriptor of ours.
long descriptor_path(const ChildState& state, int fd, char* out, std::size_t size) noexcept
{
    sys::FixedText<64> name;
    name.add("self/fd/").number(static_cast<unsigned long>(fd));
    const long got = raw::readlinkat(state.proc, name.c_str(), out, size - 1);
    if (got >= 0)
        out[got] = '\0';
    return got;
}

}  // namespace

int run(const CheckDescriptor& step, ChildState& state) noexcept
{
    char path[4096];
    const long got = descriptor_path(state, step.fd, path, sizeof path);
    if (got < 0)
        return state.failed(Site::source, static_cast<int>(got));
    if (path[0] != '/')
        return state.failed(Site::source, -ENOENT);
    // A folder above that may not be searched matters where the tree is opened, if it does.
    const int rc = raw::faccessat(AT_FDCWD, path, F_OK);
    return rc < 0 && rc != -EACCES ? state.failed(Site::source, rc) : 0;
}

namespace {

/// The kernel binds no descriptor of another mount namespace, so the path that it has is opened
/// here; what matters is that the tree, which is cloned by then, is the right one.
Fd open_by_descriptor(const BindOpenFile& step, ChildState& state) noexcept
{
    if (step.detached >= 0 && state.has_mount_api)
        return Fd{raw::fcntl(step.detached, F_DUPFD_CLOEXEC, 3)};
    char path[4096];
    const long got = descriptor_path(state, step.fd, path, sizeof path);
    if (got < 0)
        return Fd{static_cast<int>(got)};
    return open_source(state, Source{AT_FDCWD, path});
}

}  // namespace

int run(const BindOpenFile& step, ChildState& state) noexcept
{
    struct ::stat wanted;
    if (const int rc = raw::fstat(step.fd, &wanted); rc < 0)
        return state.failed(Site::source_stat, rc);
    Fd tree = open_by_descriptor(step, state);
    if (!tree)
        return state.failed(Site::source, tree.error());
    struct ::stat found;
    if (const int rc = raw::fstat(tree.get(), &found); rc < 0)
        return state.failed(Site::source_type, rc);
    if (wanted.st_dev != found.st_dev || wanted.st_ino != found.st_ino)
        return state.failed(Site::source_race, -ESTALE);
    raw::close(step.fd);
    const Fd place = S_ISDIR(found.st_mode) ? ensure_directory(state, step.target, 0755, 0755)
                                            : ensure_file(state, step.target, 0755);
    if (!place)
        return place.error();
    const int rc =
        attach(state, tree, target_at(state, place, step.target), step.attributes,
               step.tolerate_submounts ? Submounts::may_fail : Submounts::must_be_restricted);
    if (rc == 0)
        adopt_root(state, tree, step.target);
    return rc;
}

int run(const MakeStore& step, ChildState& state) noexcept
{
    if (const int rc =
            raw::mount("tmpfs", "/", "tmpfs", sys::ms_nosuid | sys::ms_nodev, step.options);
        rc < 0)
        return rc;
    Fd store = reopen(state, Target{-1, -1, "/"});
    if (!store)
        return state.failed(Site::make, store.error());
    state.store = state.lowest = store.release();
    ++state.stacked;
    const int rc = shield(state, true);
    return rc < 0 ? state.failed(Site::restrict_mount, rc) : 0;
}

int run(const MakeRoot& step, ChildState& state) noexcept
{
    if (!step.plain)
        return 0;  // The first operation mounts over "/" itself.
    if (const int rc =
            raw::mount("tmpfs", "/", "tmpfs", sys::ms_nosuid | sys::ms_nodev, step.options);
        rc < 0)
        return rc;
    Fd root = reopen(state, Target{-1, -1, "/"});
    if (!root)
        return state.failed(Site::make, root.error());
    note_own(state, root);
    adopt_root(state, root, "/");
    if (state.shielded)
        return 0;
    state.root_is_shielded = true;
    const int rc = shield(state, true);
    return rc < 0 ? state.failed(Site::restrict_mount, rc) : 0;
}

namespace {

constexpr std::uint64_t attribute_mount_root = 0x2000;  // STATX_ATTR_MOUNT_ROOT, Linux 5.8.

/// Whether the old root is a mount. Then pivot_root fails with EINVAL where that mount is the
/// kernel's first (an initramfs), which cannot be moved away. In a chroot it fails alike, but
/// another chroot would be no wall there.
bool root_is_mount() noexcept
{
    struct ::statx status {};
    return raw::call(SYS_statx, AT_FDCWD, "/", 0, 0U, &status) == 0 &&
           (status.stx_attributes & attribute_mount_root) != 0;
}

}  // namespace

int run(const EnterRoot&, ChildState& state) noexcept
{
    // What is the root from now on may be bound again, by a sandbox inside this one.
    if (state.root_is_shielded)
        if (const int rc = shield(state, false); rc < 0)
            return state.failed(Site::restrict_mount, rc);
    int rc = raw::fchdir(state.root);
    if (rc < 0)
        return rc;
    rc = raw::pivot_root(".", ".");
    if (rc == -EINVAL && root_is_mount())
        // The first root file system stays covered by what is stacked on it, as it is on every
        // machine that has started from one.
        return raw::chroot(".");
    if (rc < 0)
        return rc;
    // Over the new root lies the old one now, and over that what was stacked on it and is not
    // the new root: each is taken away from the top.
    for (; state.stacked > 0; --state.stacked)
        if (rc = raw::umount2(".", sys::mnt_detach); rc < 0)
            return state.failed(Site::attach, rc);
    return raw::chdir("/");
}

}  // namespace nsbox::mount
