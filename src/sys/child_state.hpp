#pragma once

#include "sys/pty.hpp"
#include "sys/text.hpp"

#include <cstdint>

namespace nsbox::sys {

/// The part of a step that failed. The parent turns it into words.
enum class Site : std::uint16_t {
    step,            ///< The step's one call.
    source,          ///< Opening what is to be mounted.
    source_type,     ///< Asking for its type after it was opened.
    source_race,     ///< The path leads to another file than the descriptor.
    source_stat,     ///< Asking for a descriptor's identity.
    parents,         ///< Making the folders above the destination.
    make,            ///< Making the folder at the destination.
    create,          ///< Making the file at the destination.
    foreign,         ///< What is missing at the destination would be made on the host.
    dangling,        ///< The destination goes through a symbolic link that leads nowhere.
    link_refused,    ///< The destination itself is a symbolic link, which is refused.
    attach,          ///< Attaching the mount at the destination.
    restrict_mount,  ///< Giving the mount its flags.
    resolve,         ///< Resolving the destination.
    not_a_mount,     ///< The destination is not the root of a mount.
    contents,        ///< Copying data.
    exists_link,     ///< Something else is there: a link with another text.
    exists_other,    ///< Something else is there: not a link.
    exists_unreadable,
    overlap,  ///< Overlay folders lie within each other.
    uid_map,
    gid_map,
    setgroups,
    limit,         ///< Writing a limit.
    not_disabled,  ///< What was to be impossible is possible.
    bounding,
    ambient,
    outside,   ///< The directory lies outside of the sandbox.
    not_proc,  ///< /proc is not a procfs.
    file_lock,
    no_tty,
    uid,
    gid,
    too_many,
};

/// A process's ids, as the user namespace that it is in numbers them.
struct Ids {
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
};

/// What the steps after clone3 hand to each other. Lives on the child's stack; owns nothing that
/// exec would not close.
struct ChildState {
    // Set before the first step.
    bool has_openat2 = false;    ///< openat2(2), Linux 5.6.
    bool has_mount_api = false;  ///< open_tree, move_mount, mount_setattr; Linux 5.12.
    int channel = -1;            ///< To the supervisor.
    Ids outer;                   ///< See ChildProgram.
    int own[9] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};  ///< That, and what will be executed...
    static constexpr unsigned own_init = 1;             ///< ...the init program among them.

    // Opened by steps.
    int proc = -1;        ///< The caller's /proc, checked to be one.
    int cwd = -1;         ///< The caller's working directory.
    int root = -1;        ///< The new root as it is now.
    int store = -1;       ///< A private tmpfs that the sandbox never sees.
    unsigned stored = 0;  ///< Names given out in the store.
    int unfilled = -1;    ///< A file of the store whose contents come later.

    // Mounts are stacked over the old root until the topmost becomes the root.
    unsigned stacked = 0;   ///< How many there are.
    int lowest = -1;        ///< The first of them.
    bool shielded = false;  ///< The first is unbindable: no copy of the host's "/" holds it.
    bool root_is_shielded = false;  ///< The new root itself is that first one.
    unsigned pwd_choice = 0;        ///< Which of the prepared PWD values holds.
    unsigned umask = 022;           ///< The caller's, to be restored.

    // The first of the file systems that were made for the sandbox, by device number.
    std::uint64_t own_devices[16] = {};
    unsigned own_count = 0;

    PtyPair terminal;  ///< The sandbox's own, once it is open.

    int ruleset = -1;  ///< Of landlock(7), for the command.

    bool has_replaced = false;  ///< The step that has run took what was to be had instead.

    bool deny_by_filter = false;  ///< User namespaces have to be denied by a seccomp filter.

    Site site = Site::step;  ///< Of the failure, when a step returns one.
    FixedText<4096> detail;  ///< What the failure was about, where only the child knows.

    /// Records where a step failed and hands its error through.
    int failed(Site where, int error) noexcept
    {
        site = where;
        return error;
    }
};

}  // namespace nsbox::sys
