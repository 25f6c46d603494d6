// Runs after clone3: no allocation but from the kernel, no locks, no libc but what the
// child-symbols lint allows.

#include "mount/classic.hpp"

#include "mount/mountinfo.hpp"
#include "mount/resolve.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"

#include <sys/mman.h>

namespace nsbox::mount::classic {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

using ProcPath = sys::FixedText<64>;

ProcPath proc_path(int fd) noexcept
{
    ProcPath path;
    path.add("/proc/self/fd/").number(static_cast<unsigned long>(fd));
    return path;
}

/// The id of the mount that an open file is on, or -errno; `is_root` says whether it is the
/// mount's root. Needs Linux 5.8 (statx(2), STATX_MNT_ID).
long mount_id(int fd, bool& is_root) noexcept
{
    struct ::statx status {};
    constexpr unsigned mask_mnt_id = 0x1000;
    constexpr std::uint64_t attribute_mount_root = 0x2000;
    const long rc = raw::call(SYS_statx, fd, "", AT_EMPTY_PATH, mask_mnt_id, &status);
    if (rc < 0)
        return rc;
    is_root = (status.stx_attributes & attribute_mount_root) != 0;
    // stx_mnt_id is the 64-bit word at offset 0x90; older headers have no name for it.
    std::uint64_t id;
    __builtin_memcpy(&id, reinterpret_cast<const char*>(&status) + 0x90, sizeof id);
    return static_cast<long>(id);
}

/// Memory straight from the kernel, given back at the end of the scope.
class Pages {
public:
    explicit Pages(std::size_t size) noexcept : size_(size)
    {
        const long rc = raw::call(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        data_ = rc < 0 && rc > -4096 ? nullptr : reinterpret_cast<char*>(rc);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages()
    {
        if (data_ != nullptr)
            raw::call(SYS_munmap, data_, size_);
    }
    char* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }

private:
    char* data_ = nullptr;
    std::size_t size_;
};

/// Reads the mount table whole; its size, or -errno. -E2BIG when it does not fit.
long read_mountinfo(const Pages& pages) noexcept
{
    const Fd file{raw::openat(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)};
    if (!file)
        return file.error();
    std::size_t size = 0;
    for (;;) {
        if (size == pages.size())
            return -E2BIG;
        const long got = raw::read(file.get(), pages.data() + size, pages.size() - size);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? got : static_cast<long>(size);
        size += static_cast<std::size_t>(got);
    }
}

int remount(int fd, unsigned long flags) noexcept
{
    return raw::mount(nullptr, proc_path(fd).c_str(), nullptr,
                      sys::ms_remount | sys::ms_bind | flags, nullptr);
}

unsigned long as_ms_flags(std::uint64_t attributes) noexcept
{
    unsigned long flags = 0;
    if ((attributes & MOUNT_ATTR_RDONLY) != 0)
        flags |= sys::ms_rdonly;
    if ((attributes & MOUNT_ATTR_NOSUID) != 0)
        flags |= sys::ms_nosuid;
    if ((attributes & MOUNT_ATTR_NODEV) != 0)
        flags |= sys::ms_nodev;
    if ((attributes & MOUNT_ATTR_NOEXEC) != 0)
        flags |= sys::ms_noexec;
    return flags;
}

constexpr std::size_t table_size = std::size_t{64} << 20;
constexpr std::size_t most_mounts = std::size_t{1} << 18;

/// One pass over the mount table with the ids of the mounts that belong to a tree.
struct TreePass {
    ChildState& state;
    long top;
    unsigned long flags;
    Submounts submounts;
    Pages ids{most_mounts * sizeof(std::uint32_t)};
    std::size_t count = 0;

    bool knows(std::uint32_t id) const noexcept
    {
        const auto* known = reinterpret_cast<const std::uint32_t*>(ids.data());
        for (std::size_t i = count; i > 0; --i)
            if (known[i - 1] == id)
                return true;
        return false;
    }
    void learn(std::uint32_t id) noexcept
    {
        if (count < most_mounts)
            reinterpret_cast<std::uint32_t*>(ids.data())[count++] = id;
    }
};

/// Restricts one mount below the top, unless another mount covers it.
int restrict_submount(TreePass& pass, MountLine& line) noexcept
{
    unescape(line.mount_point);
    // What is mounted over the old root has the names that it will have inside.
    const Fd here = resolve(pass.state, line.mount_point, Leaf::keep);
    bool is_root = false;
    if (!here || mount_id(here.get(), is_root) != static_cast<long>(line.id))
        return 0;
    const int rc = remount(here.get(), line.flags | pass.flags);
    if (rc < 0 && pass.submounts == Submounts::may_fail)
        return 0;
    return rc;
}

int restrict_tree(TreePass& pass, int top_fd) noexcept
{
    const Pages table{table_size};
    if (table.data() == nullptr || pass.ids.data() == nullptr)
        return -ENOMEM;
    const long size = read_mountinfo(table);
    if (size < 0)
        return static_cast<int>(size);
    char* at = table.data();
    char* const end = at + size;
    bool found = false;
    MountLine line;
    while (next_mount(at, end, line)) {
        int rc = 0;
        if (static_cast<long>(line.id) == pass.top) {
            found = true;
            pass.learn(line.id);
            if ((line.flags | pass.flags) != line.flags)
                rc = remount(top_fd, line.flags | pass.flags);
        } else if (pass.knows(line.parent)) {
            pass.learn(line.id);
            if ((line.flags | pass.flags) != line.flags)
                rc = restrict_submount(pass, line);
        }
        if (rc < 0)
            return rc;
    }
    return found ? 0 : -ENOENT;
}

}  // namespace

int attach(ChildState& state, Fd& tree, Target target, std::uint64_t attributes,
           Submounts submounts) noexcept
{
    const Fd opened = target.fd >= 0 ? Fd{} : reopen(state, target);
    const int place = target.fd >= 0 ? target.fd : opened.get();
    if (place < 0)
        return state.failed(Site::attach, place);
    int rc = raw::mount(proc_path(tree.get()).c_str(), proc_path(place).c_str(), nullptr,
                        sys::ms_bind | sys::ms_rec, nullptr);
    if (rc < 0)
        return state.failed(Site::attach, rc);
    Fd top = reopen(state, target);
    if (!top)
        return state.failed(Site::attach, top.error());
    tree = static_cast<Fd&&>(top);
    bool is_root = false;
    const long id = mount_id(tree.get(), is_root);
    if (id < 0)
        return state.failed(Site::restrict_mount, static_cast<int>(id));
    // A bind over the new root hides what `state.root` was, and submounts are found through it.
    const int saved_root = state.root;
    if (target.dir < 0 && is_root_path(target.name))
        state.root = tree.get();
    TreePass pass{state, id, as_ms_flags(attributes), submounts};
    rc = restrict_tree(pass, tree.get());
    state.root = saved_root;
    return rc < 0 ? state.failed(Site::restrict_mount, rc) : 0;
}

int set_read_only(int fd) noexcept
{
    bool is_root = false;
    const long id = mount_id(fd, is_root);
    if (id < 0)
        return static_cast<int>(id);
    if (!is_root)
        return -EINVAL;
    const Pages table{table_size};
    if (table.data() == nullptr)
        return -ENOMEM;
    const long size = read_mountinfo(table);
    if (size < 0)
        return static_cast<int>(size);
    char* at = table.data();
    char* const end = at + size;
    MountLine line;
    while (next_mount(at, end, line))
        if (static_cast<long>(line.id) == id)
            return remount(fd, line.flags | sys::ms_rdonly);
    return -EINVAL;
}

}  // namespace nsbox::mount::classic
