#pragma once

#include "mount/steps.hpp"
#include "net/steps.hpp"
#include "ns/steps.hpp"
#include "sys/child_state.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

namespace nsbox::runtime {

/// The command must not see these descriptors.
struct CloseOnExec {
    const int* fds;
    std::size_t count;
};

/// Of the caller's descriptors above 2 the command may see these alone.
struct KeepOnly {
    const int* fds;
    std::size_t count;
};

struct CloseNow {
    int fd;
};

/// Closes everything but the standard descriptors and those of the set-up itself.
struct CloseOthers {};

/// Tells the supervisor which namespaces this process is in and waits for its word to go on.
struct WaitForSupervisor {};

/// Tells the supervisor to write the id maps, and waits until it has.
struct AwaitIdMaps {};

/// Makes a copy of the init program that the command's user owns. The kernel lets nobody but root look at a
/// process whose program may not be read and belongs to somebody who has no number in its user
/// namespace, and whoever enters the sandbox has to.
struct OwnInit {};

/// Hands this process's network namespace to the supervisor.
struct OfferNetwork {};

/// Waits for the supervisor's word that the network works.
struct AwaitNetwork {};

/// For a copy of a caller whose own /proc files belong to root: the copy writes its id maps there.
struct MakeDumpable {};

struct ClearUmask {};

struct RestoreUmask {
    int other;  ///< In place of the one from before, or -1.
};

/// A new session keyring, see session-keyring(7).
struct OwnKeyring {};

/// Enters control groups by their lists of processes, which are open.
struct EnterGroups {
    const int* files;
    std::size_t count;
};

/// How nice this process is to others: see setpriority(2).
struct SetNice {
    int value;
};

struct SetHostname {
    const char* name;
};

/// The working directory: `wanted`, or the first of the others that exists inside. A directory
/// outside of the new root, to which a descriptor could lead, is refused.
struct ChangeDirectory {
    const char* wanted;
    const char* logical;
    const char* physical;
    const char* home;
};

struct NewSession {};

/// Hands the working directory to the supervisor, and the sandbox's own devpts if it has one.
struct OfferFolders {};

/// Makes the sandbox's terminal the standard input, output and error, and hands its master to the
/// supervisor. It is one of the sandbox's own devpts where there is one.
struct TakeTerminal {
    unsigned short rows;
    unsigned short columns;
    int host_master;  ///< One of the host, or -1.
};

/// Takes a shared record lock and leaves the descriptor to init, at `packet_offset` of `packet`.
struct LockFile {
    const char* path;
    int packet;
    std::size_t packet_offset;
};

/// Waits for a byte, or the end, of a descriptor.
struct AwaitRelease {
    int fd;
};

/// One limit of getrlimit(2), by its number.
struct SetResourceLimit {
    unsigned resource;
    std::uint64_t soft;
    std::uint64_t hard;
};

/// Writes an SELinux attribute of this process: "exec" or "fscreate".
struct SetLabel {
    const char* attribute;
    const char* label;
};

int run(const CloseOnExec& step, sys::ChildState& state) noexcept;
int run(const KeepOnly& step, sys::ChildState& state) noexcept;
int run(const CloseNow& step, sys::ChildState& state) noexcept;
int run(const CloseOthers& step, sys::ChildState& state) noexcept;
int run(const WaitForSupervisor& step, sys::ChildState& state) noexcept;
int run(const AwaitIdMaps& step, sys::ChildState& state) noexcept;
int run(const OwnInit& step, sys::ChildState& state) noexcept;
int run(const OfferNetwork& step, sys::ChildState& state) noexcept;
int run(const AwaitNetwork& step, sys::ChildState& state) noexcept;
int run(const MakeDumpable& step, sys::ChildState& state) noexcept;
int run(const ClearUmask& step, sys::ChildState& state) noexcept;
int run(const RestoreUmask& step, sys::ChildState& state) noexcept;
int run(const OwnKeyring& step, sys::ChildState& state) noexcept;
int run(const EnterGroups& step, sys::ChildState& state) noexcept;
int run(const SetNice& step, sys::ChildState& state) noexcept;
int run(const SetHostname& step, sys::ChildState& state) noexcept;
int run(const ChangeDirectory& step, sys::ChildState& state) noexcept;
int run(const NewSession& step, sys::ChildState& state) noexcept;
int run(const OfferFolders& step, sys::ChildState& state) noexcept;
int run(const TakeTerminal& step, sys::ChildState& state) noexcept;
int run(const LockFile& step, sys::ChildState& state) noexcept;
int run(const AwaitRelease& step, sys::ChildState& state) noexcept;
int run(const SetResourceLimit& step, sys::ChildState& state) noexcept;
int run(const SetLabel& step, sys::ChildState& state) noexcept;

/// Everything that the child may do, as data.
using ChildStep = std::variant<
    CloseOnExec, KeepOnly, CloseNow, CloseOthers, WaitForSupervisor, MakeDumpable, ClearUmask,
    RestoreUmask, OwnKeyring, EnterGroups, SetNice, SetHostname, ChangeDirectory, NewSession,
    TakeTerminal, LockFile, AwaitRelease, SetResourceLimit, SetLabel, ns::DropBounding,
    ns::WriteIdMaps, ns::WriteIdMapsBelow, ns::RequireIdMap, ns::TakeIds, ns::TakeMappedIds,
    ns::JoinUserNamespace, ns::JoinNamespace, ns::LimitUserNamespaces, ns::NewUserNamespace,
    ns::NewMappedUserNamespace, ns::RefuseUserNamespaces, ns::SetCapabilities, ns::MakeRuleset,
    AwaitIdMaps, OwnInit, OfferFolders, net::LoopbackUp, OfferNetwork, AwaitNetwork,
    mount::OpenHost, mount::CheckSource, mount::CheckDescriptor, mount::MakeStore, mount::MakeRoot,
    mount::BindTree, mount::BindOpenFile, mount::MakeReadOnly, mount::MountProc, mount::MountDev,
    mount::MountTmpfs, mount::MountMqueue, mount::MakeDirectory, mount::WriteFile,
    mount::BindContents, mount::FillContents, mount::MakeSymlink, mount::ChangeMode,
    mount::MountOverlay, mount::EnterRoot>;

// The child only borrows: if a step could own memory, destroying or copying it after clone3
// could reach the allocator.
static_assert(std::is_trivially_copyable_v<ChildStep>);
static_assert(std::is_trivially_destructible_v<ChildStep>);

}  // namespace nsbox::runtime
