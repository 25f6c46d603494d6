#include "runtime/group.hpp"

#include "runtime/clear_up.hpp"
#include "runtime/group_files.hpp"
#include "runtime/hierarchy.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <poll.h>
#include <unistd.h>
#include <utility>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

/// How long, in milliseconds, this process waits for the end of what is killed.
constexpr int patience = 2000;

bool is_on_mount(const Fd& folder, std::uint32_t mount)
{
    constexpr unsigned mount_id = 0x1000;  // STATX_MNT_ID, Linux 5.8.
    struct ::statx status {};
    const long rc = raw::call(SYS_statx, folder.get(), "", AT_EMPTY_PATH, mount_id, &status);
    return rc == 0 && (status.stx_mask & mount_id) != 0 && status.stx_mnt_id == mount;
}

/// The root of the hierarchy has neither of the two files.
bool can_be_killed(const Fd& folder)
{
    return raw::faccessat(folder.get(), "cgroup.type", F_OK) < 0 ||
           raw::faccessat(folder.get(), "cgroup.kill", F_OK) == 0;
}

/// The kernel lets into a group below whoever may write to this one's list of processes.
bool is_delegated(const Fd& folder)
{
    return raw::faccessat(folder.get(), ".", W_OK | X_OK) == 0 &&
           raw::faccessat(folder.get(), "cgroup.procs", W_OK) == 0;
}

}  // namespace

Fd open_group(const std::string& path)
{
    constexpr long cgroup2 = 0x63677270;  // CGROUP2_SUPER_MAGIC
    Fd folder{raw::openat(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (folder && raw::fs_magic(folder.get()) != cgroup2)
        folder.reset();
    return folder;
}

std::unique_ptr<Group> Group::prepare(const std::string& name, const std::string& within)
{
    std::vector<GroupFolder> folders =
        within.empty() ? group_folders(sys::read_file("/proc/self/cgroup"),
                                       sys::read_file("/proc/self/mountinfo"), {})
                       : std::vector<GroupFolder>{{0, within}};
    for (GroupFolder& found : folders) {
        Fd folder = open_group(found.path);
        // Something else may have been mounted over it.
        if (!folder || (within.empty() && !is_on_mount(folder, found.mount)) ||
            !is_delegated(folder) || !can_be_killed(folder))
            continue;
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) < 0)
            return nullptr;
        std::unique_ptr<Group> group{new Group};
        group->ours_ = Fd{ends[0]};
        group->theirs_ = Fd{ends[1]};
        group->folder_ = std::move(folder);
        group->name_ = name;
        group->path_ = found.path + "/" + name;
        return group;
    }
    return nullptr;
}

bool Group::make(bool at_once)
{
    theirs_.reset();
    Result<Fd> guard = start_clear_up({name_, folder_.get(), ours_.get(), at_once});
    ours_.reset();
    if (!guard || !*guard)
        return false;
    guard_ = std::move(*guard);
    is_made_ = raw::mkdirat(folder_.get(), name_.c_str(), 0755) == 0;
    if (!is_made_)
        end_clear_up(std::move(guard_));
    return is_made_;
}

void Group::remove()
{
    if (!is_made_)
        return;
    is_made_ = false;
    pollfd fd{guard_.get(), POLLIN, 0};
    // The guard has the rights that this process may have given up since. What even that cannot
    // remove yet is left to it.
    if (remove_group(folder_.get(), name_.c_str(), patience) == 0 || ::poll(&fd, 1, patience) > 0)
        end_clear_up(std::move(guard_));
}

}  // namespace nsbox::runtime
