#pragma once

#include "sys/fd.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// A control group of a sandbox's own, which holds its processes where no pid namespace does: whatever
/// they do to hide from an init that adopts them, cgroup.kill ends them all. See cgroups(7); version 2,
/// Linux 5.14.
///
/// Init starts the command in it (CLONE_INTO_CGROUP) and, outside of it, ends what is in it. This
/// process makes it and removes it, and so does init where it has the rights. A third process, the
/// guard, does that if both are killed: it sees this process's end by a pidfd, and init's by a pipe,
/// the lifeline, whose other end is held by init and by what becomes init. It runs before there is a
/// group.
class Group {
public:
    /// Finds out where a group of this name could be made: in the one that this process is in, or in the one
    /// with the path `within`. Null where it could not be: no such hierarchy is mounted, or it is not this
    /// user's.
    static std::unique_ptr<Group> prepare(const std::string& name, const std::string& within = {});
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() = default;

    const std::string& path() const noexcept { return path_; }
    const std::string& name() const noexcept { return name_; }
    /// What init is given: the folder that the group is made in, and its end of the pipe.
    int folder() const noexcept { return folder_.get(); }
    int lifeline() const noexcept { return theirs_.get(); }

    /// Starts the guard and makes the group, when what becomes init has been started. `at_once`: the
    /// sandbox ends with this process. False where there is no group then.
    bool make(bool at_once);

    /// Kills everything in it, waits and removes it; then the guard ends too. To be called when init is
    /// dead and reaped. Nothing happens when it is called again.
    void remove();

    std::vector<int> descriptors() const { return {folder_.get(), guard_.get()}; }

    /// What init has counted; nothing where the kernel does not count for this group.
    std::optional<std::uint64_t> oom_kills;

private:
    Group() = default;

    std::string path_;
    std::string name_;
    sys::Fd folder_;
    sys::Fd ours_;
    sys::Fd theirs_;
    sys::Fd guard_;
    bool is_made_ = false;
};

/// Opens a group of version 2 by the path that a Group has; an invalid descriptor where it is none any more.
sys::Fd open_group(const std::string& path);

}  // namespace nsbox::runtime
