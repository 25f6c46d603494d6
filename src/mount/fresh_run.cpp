// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.
//
// File systems made for the sandbox: tmpfs, mqueue, proc, dev.

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

namespace {

/// A folder for a file system of the kernel's. A rootfs may hold a link in its place, which
/// would put the file system elsewhere than the caller thinks: refused.
Fd place_for_kernel_fs(ChildState& state, const char* target) noexcept
{
    Fd itself = resolve_directory(state, target, Leaf::keep);
    if (itself)
        return itself;
    itself = resolve(state, target, Leaf::keep);
    if (!itself)
        return ensure_directory(state, target, 0755, 0755);
    struct ::stat status;
    if (const int rc = raw::fstat(itself.get(), &status); rc < 0)
        return Fd{state.failed(Site::make, rc)};
    if (S_ISLNK(status.st_mode))
        return Fd{state.failed(Site::link_refused, -ELOOP)};
    if (!S_ISDIR(status.st_mode))
        return Fd{state.failed(Site::make, -ENOTDIR)};
    return itself;
}

/// Mounts a new file system at `target`; the root of the sandbox may be that target.
int mount_at(ChildState& state, const Fd& place, const char* target, const char* type,
             unsigned long flags, const char* options) noexcept
{
    const int rc = mount_new(type, place.get(), flags, options);
    if (rc < 0 || !is_root_path(target))
        return rc;
    Fd top = reopen(state, target_at(state, place, target));
    if (!top)
        return top.error();
    adopt_root(state, top, target);
    return 0;
}

int bind_within(ChildState& state, Source source, int dir, const char* name,
                std::uint64_t attributes) noexcept
{
    Fd tree = open_source(state, source);
    if (!tree)
        return tree.error();
    return attach(state, tree, Target{-1, dir, name}, attributes, Submounts::must_be_restricted);
}

}  // namespace

int run(const MountTmpfs& step, ChildState& state) noexcept
{
    const Fd place = ensure_directory(state, step.target, 0755, 0755);
    if (!place)
        return place.error();
    const int rc =
        mount_at(state, place, step.target, "tmpfs", sys::ms_nosuid | sys::ms_nodev, step.options);
    if (rc == 0)
        note_own(state, reopen(state, target_at(state, place, step.target)));
    return rc;
}

int run(const MountMqueue& step, ChildState& state) noexcept
{
    const Fd place = place_for_kernel_fs(state, step.target);
    if (!place)
        return place.error();
    return mount_at(state, place, step.target, "mqueue", 0, nullptr);
}

namespace {

// What lets uid 0 change, or learn about, the host's kernel. The sysctl directories look
// unwritable while the files in them are not, so access(2) is not asked.
constexpr const char* proc_read_only[] = {"sys",  "sysrq-trigger", "irq",  "bus",   "fs",
                                          "acpi", "scsi",          "mtrr", "asound"};
constexpr const char* proc_masked[] = {
    "kcore",      "keys",       "timer_list",  "kmsg",     "sched_debug", "latency_stats",
    "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "pagetypeinfo"};

/// Our own verified null device: a rootfs is never asked for one.
Fd open_null() noexcept
{
    Fd null{raw::openat(AT_FDCWD, "/dev/null", O_PATH | O_CLOEXEC | O_NOFOLLOW)};
    struct ::stat status;
    if (null && (raw::fstat(null.get(), &status) < 0 || !S_ISCHR(status.st_mode) ||
                 status.st_rdev != 0x103))
        return Fd{-ENODEV};
    return null;
}

/// Binds within a file system of the kernel's own, whose entries nobody can rename or replace,
/// so that names do: `name` is relative to the working directory. Only this process can reach
/// the mount before it has its flags.
int bind_by_name(ChildState& state, const char* source, int dir, const char* name,
                 std::uint64_t attributes) noexcept
{
    if (!state.has_mount_api)
        return bind_within(state, Source{AT_FDCWD, source}, dir, name, attributes);
    const int rc = raw::mount(source, name, nullptr, sys::ms_bind | sys::ms_rec, nullptr);
    if (rc < 0)
        return rc;
    return raw::mount_setattr_at(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW | AT_RECURSIVE, attributes);
}

int cover_proc(ChildState& state, int proc) noexcept
{
    if (const int rc = raw::fchdir(proc); rc < 0)
        return rc;
    for (const char* name : proc_read_only) {
        const int rc = bind_by_name(state, name, proc, name,
                                    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (rc < 0 && rc != -ENOENT)
            return rc;
    }
    const Fd null = open_null();
    if (!null)
        return null.error();
    sys::FixedText<64> source;
    source.add("/proc/self/fd/").number(static_cast<unsigned long>(null.get()));
    bool is_masked = false;
    for (const char* name : proc_masked) {
        // A bind of a mask has the mask's flags from the beginning.
        const int rc =
            is_masked && state.has_mount_api
                ? raw::mount(source.c_str(), name, nullptr, sys::ms_bind, nullptr)
                : bind_by_name(state, source.c_str(), proc, name,
                               MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (rc < 0 && rc != -ENOENT)
            return rc;
        if (rc >= 0 && !is_masked && state.has_mount_api) {
            is_masked = true;
            source.clear();
            source.add(name);
        }
    }
    return 0;
}

int bind_proc(const MountProc& step, ChildState& state, const Fd& place) noexcept
{
    Fd tree = open_source(state, Source{AT_FDCWD, "/proc"});
    if (!tree)
        return state.failed(Site::source, tree.error());
    return attach(state, tree, target_at(state, place, step.target),
                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                  step.tolerate_submounts ? Submounts::may_fail : Submounts::must_be_restricted);
}

}  // namespace

int run(const MountProc& step, ChildState& state) noexcept
{
    const Fd place = place_for_kernel_fs(state, step.target);
    if (!place)
        return place.error();
    bool is_fresh = step.fresh;
    int rc = is_fresh ? mount_new("proc", place.get(),
                                  sys::ms_nosuid | sys::ms_nodev | sys::ms_noexec, nullptr)
                      : bind_proc(step, state, place);
    if (is_fresh && rc == -EPERM && step.refused != Refused::fail) {
        state.has_replaced = true;
        if (step.refused == Refused::leave_empty)
            return 0;
        is_fresh = false;
        rc = bind_proc(step, state, place);
    }
    if (rc < 0 || (is_fresh && !step.cover))
        return rc;
    const Fd proc = reopen(state, target_at(state, place, step.target));
    if (!proc)
        return state.failed(Site::restrict_mount, proc.error());
    if (raw::fs_magic(proc.get()) != PROC_SUPER_MAGIC)
        return state.failed(Site::not_proc, -ENOTDIR);
    if (!step.cover)
        return 0;
    const int covered = cover_proc(state, proc.get());
    return covered < 0 ? state.failed(Site::restrict_mount, covered) : 0;
}

namespace {

struct Device {
    const char* name;
    const char* host;
};
constexpr Device devices[] = {{"null", "/dev/null"},       {"zero", "/dev/zero"},
                              {"full", "/dev/full"},       {"random", "/dev/random"},
                              {"urandom", "/dev/urandom"}, {"tty", "/dev/tty"}};

struct Link {
    const char* name;
    const char* text;
};
constexpr Link links[] = {{"stdin", "/proc/self/fd/0"},
                          {"stdout", "/proc/self/fd/1"},
                          {"stderr", "/proc/self/fd/2"},
                          {"fd", "/proc/self/fd"},
                          {"core", "/proc/kcore"}};

/// With the mount API the flags are set for all of /dev at once; see restrict_dev().
int add_device(ChildState& state, int dev, const char* name, const char* host) noexcept
{
    int rc = raw::mknodat(dev, name, S_IFREG | 0444, 0);
    if (rc == 0)
        rc = state.has_mount_api
                 ? raw::mount(host, name, nullptr, sys::ms_bind | sys::ms_rec, nullptr)
                 : bind_by_name(state, host, dev, name, MOUNT_ATTR_NOSUID);
    if (rc < 0)
        state.detail.add(host);
    return rc;
}

/// Only this process can reach what is mounted before the command is executed.
int restrict_dev(ChildState& state, int dev) noexcept
{
    return state.has_mount_api ? raw::mount_setattr(dev, AT_RECURSIVE, MOUNT_ATTR_NOSUID) : 0;
}

/// Everything but the terminals' file system; `dev` is the root of the new tmpfs.
int populate_dev(ChildState& state, int dev) noexcept
{
    for (const Device& device : devices)
        if (const int rc = add_device(state, dev, device.name, device.host); rc < 0)
            return state.failed(Site::attach, rc);
    for (const Link& link : links)
        if (const int rc = raw::symlinkat(link.text, dev, link.name); rc < 0)
            return state.failed(Site::make, rc);
    // Everyone inside may share memory: sticky, as on any system.
    if (const int rc = raw::mkdirat(dev, "shm", 01777); rc < 0)
        return state.failed(Site::make, rc);
    if (const int rc = raw::mkdirat(dev, "pts", 0755); rc < 0)
        return state.failed(Site::make, rc);
    return 0;
}

/// A terminal of the new devpts, for the command; the working directory is the new /dev.
int add_terminal(ChildState& state, int dev) noexcept
{
    if (const int rc = sys::open_pty(AT_FDCWD, "pts/ptmx", state.terminal); rc < 0)
        return state.failed(Site::no_tty, rc);
    sys::FixedText<32> name;
    name.add("pts/").number(static_cast<unsigned>(sys::pty_number(state.terminal.master)));
    const int rc = add_device(state, dev, "console", name.c_str());
    return rc < 0 ? state.failed(Site::attach, rc) : 0;
}

}  // namespace

int run(const MountDev& step, ChildState& state) noexcept
{
    const Fd place = place_for_kernel_fs(state, step.target);
    if (!place)
        return place.error();
    int rc = mount_new("tmpfs", place.get(), sys::ms_nosuid | sys::ms_nodev, step.tmpfs_options);
    if (rc < 0)
        return rc;
    Fd dev = reopen(state, target_at(state, place, step.target));
    if (!dev)
        return state.failed(Site::make, dev.error());
    if (rc = raw::fchdir(dev.get()); rc < 0)
        return state.failed(Site::make, rc);
    if (rc = populate_dev(state, dev.get()); rc < 0)
        return rc;
    rc = raw::mount("devpts", "pts", "devpts", sys::ms_nosuid | sys::ms_noexec,
                    "newinstance,ptmxmode=0666,mode=620");
    if (rc < 0)
        return state.failed(Site::no_tty, rc);
    if (rc = raw::symlinkat("pts/ptmx", dev.get(), "ptmx"); rc < 0)
        return state.failed(Site::make, rc);
    if (step.own_terminal && state.terminal.master < 0) {
        if (rc = add_terminal(state, dev.get()); rc < 0)
            return rc;
    } else if (step.console != nullptr)
        if (rc = add_device(state, dev.get(), "console", step.console); rc < 0)
            return state.failed(Site::attach, rc);
    if (rc = restrict_dev(state, dev.get()); rc < 0)
        return state.failed(Site::restrict_mount, rc);
    adopt_root(state, dev, step.target);
    return 0;
}

}  // namespace nsbox::mount
