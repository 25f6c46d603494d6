#pragma once

#include "sys/child_state.hpp"

#include <cstdint>

namespace nsbox::ns {

// Mechanism: namespaces and identity, one recipe a step; run() returns 0 or -errno.

/// Removes from the bounding set what is not in `keep`. Capabilities that the kernel does not
/// have are passed over; so is lacking CAP_SETPCAP.
struct DropBounding {
    std::uint64_t keep;
};

/// Writes the single-id maps of the user namespace that this process is in.
struct WriteIdMaps {
    const char* uid_map;
    const char* gid_map;
    bool deny_setgroups;
};

/// The same where the ids outside are known only on the way: ChildState::outer.
struct WriteIdMapsBelow {
    std::uint32_t uid;
    std::uint32_t gid;
};

/// Fails where nobody has mapped an id, as someone else was to do.
struct RequireIdMap {};

/// Takes these ids where they differ from the current ones, the group first.
struct TakeIds {
    bool set_uid;
    bool set_gid;
    std::uint32_t uid;
    std::uint32_t gid;
};

/// The same in a user namespace that maps several ids, where the numbers of the current ones may mean
/// nothing; `drop_groups` leaves all supplementary groups first.
struct TakeMappedIds {
    std::uint32_t uid;
    std::uint32_t gid;
    bool drop_groups;
};

struct JoinUserNamespace {
    int fd;
};

/// Any other namespace than a user or pid namespace. See setns(2).
struct JoinNamespace {
    int fd;
    unsigned kind;  ///< CLONE_NEW*.
};

/// Forbids user namespaces below the next one by its limit.
struct LimitUserNamespaces {};

/// A further user namespace, with others that it is to own. With a mount namespace among them
/// what is mounted is locked: nobody inside can take away a mount or its flags
/// (mount_namespaces(7)).
struct NewUserNamespace {
    unsigned long others;  ///< CLONE_NEW*.
    int there = -1;        ///< One that is there already, to be entered in place of a new one.
};

/// The same for a set-up that maps several ids: a process that stays behind writes the maps, since only
/// one that has rights in the outer namespace may.
struct NewMappedUserNamespace {
    unsigned long others;
    const char* uid_map;
    const char* gid_map;
};

/// Succeeds only where a further user namespace cannot be made.
struct RefuseUserNamespaces {
    bool by_filter;  ///< Though a limit may do it already.
};

/// The final capability sets. `ambient`: raise each one into the ambient set too, so that an
/// exec by any user id keeps it.
struct SetCapabilities {
    std::uint64_t sets;
    bool ambient;
};

/// A file or folder, with all below it, and what may be done there: LandlockAccess.
struct LandlockPath {
    const char* path;
    std::uint64_t access;
    bool may_be_missing;  ///< Or be out of reach.
};

/// TCP ports, both ends included.
struct LandlockPorts {
    std::uint16_t first;
    std::uint16_t last;
    std::uint64_t access;
};

/// Makes a ruleset of landlock(7) for the command, with what is there now. What is open as one of `fds`, as a
/// standard descriptor or for the command, and is no folder, can be opened again through /proc.
struct MakeRuleset {
    std::uint64_t files;  ///< What is denied unless a rule allows it...
    std::uint64_t ports;
    std::uint64_t scoped;
    const LandlockPath* paths;
    std::size_t path_count;
    const LandlockPorts* port_ranges;
    std::size_t range_count;
    const int* fds;
    std::size_t fd_count;
};

int run(const DropBounding& step, sys::ChildState& state) noexcept;
int run(const WriteIdMaps& step, sys::ChildState& state) noexcept;
int run(const WriteIdMapsBelow& step, sys::ChildState& state) noexcept;
int run(const RequireIdMap& step, sys::ChildState& state) noexcept;
int run(const TakeIds& step, sys::ChildState& state) noexcept;
int run(const TakeMappedIds& step, sys::ChildState& state) noexcept;
int run(const JoinUserNamespace& step, sys::ChildState& state) noexcept;
int run(const JoinNamespace& step, sys::ChildState& state) noexcept;
int run(const LimitUserNamespaces& step, sys::ChildState& state) noexcept;
int run(const NewUserNamespace& step, sys::ChildState& state) noexcept;
int run(const NewMappedUserNamespace& step, sys::ChildState& state) noexcept;
int run(const RefuseUserNamespaces& step, sys::ChildState& state) noexcept;
int run(const SetCapabilities& step, sys::ChildState& state) noexcept;
int run(const MakeRuleset& step, sys::ChildState& state) noexcept;

}  // namespace nsbox::ns
