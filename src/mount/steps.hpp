#pragma once

#include "sys/child_state.hpp"

#include <cstddef>
#include <cstdint>

namespace nsbox::mount {

// Mechanism: what the child does to build the file tree, one system-call recipe a step. The
// strings live in the Plan. Each step has run(), which returns 0 or -errno; failures are put
// into words by runtime/describe.cpp.

/// Opens the caller's /proc and working directory, and ends propagation to the host.
struct OpenHost {
    bool make_slave;  ///< Not needed where a new user namespace owns the mount namespace.
    bool need_proc;
    bool need_cwd;  ///< A source is relative.
};

/// Fails early where a source is missing, before anything was made.
struct CheckSource {
    const char* path;
    bool may_be_missing;
    /// By the ids that will open it, with their capabilities: access(2) goes by the real ones without, and so
    /// does bwrap.
    bool by_opening = false;
};

struct CheckDescriptor {
    int fd;
};

/// A tmpfs over the old root, for data that must not be seen inside by another name.
struct MakeStore {
    const char* options;
};

/// Where the new root grows: a tmpfs over the old root, or, where the first operation covers
/// the root anyway, the old root itself for that operation to be mounted on.
struct MakeRoot {
    const char* options;
    bool plain;
};

/// One recursive bind. With `detached` >= 0 the tree was cloned by the parent.
struct BindTree {
    const char* source;
    const char* target;
    std::uint64_t attributes;  ///< MOUNT_ATTR_*, only ever added.
    int detached;
    bool may_be_missing;
    bool tolerate_submounts;
};

struct BindOpenFile {
    int fd;
    const char* target;
    std::uint64_t attributes;
    int detached;  ///< As in BindTree.
    bool tolerate_submounts;
};

struct MakeReadOnly {
    const char* target;
};

/// In place of a procfs that the kernel refuses.
enum class Refused : unsigned char { fail, bind, leave_empty };

struct MountProc {
    const char* target;
    bool fresh;
    bool cover;  ///< The caller owns the kernel's settings: close them.
    bool tolerate_submounts;
    Refused refused = Refused::fail;
};

struct MountDev {
    const char* target;
    const char* tmpfs_options;
    const char* console;  ///< The terminal to show as /dev/console, or null.
    bool own_terminal;    ///< Open a new terminal there, which is /dev/console too.
};

struct MountTmpfs {
    const char* target;
    const char* options;
};

struct MountMqueue {
    const char* target;
};

struct MakeDirectory {
    const char* target;
    unsigned mode;
    unsigned parent_mode;
};

struct WriteFile {
    int fd;
    const char* target;
    unsigned mode;
    unsigned parent_mode;
    const char* text = nullptr;  ///< What to write, instead of what `fd` holds.
    std::size_t size = 0;
};

struct BindContents {
    int fd;
    const char* target;
    unsigned mode;
    unsigned parent_mode;
    bool read_only;
    bool only_own =
        false;  ///< A file that is missing is made in the sandbox's own file systems only.
    bool is_late = false;  ///< Empty until FillContents comes.
};

/// Writes what the one late BindContents was to hold.
struct FillContents {
    int fd;
};

struct MakeSymlink {
    const char* text;
    const char* target;
};

struct ChangeMode {
    const char* target;
    unsigned mode;
};

struct MountOverlay {
    const char* const* lower;  ///< Top to bottom, as the kernel wants them.
    std::size_t lower_count;
    const char* upper;  ///< Null without one.
    const char* work;
    bool temporary;  ///< Upper and work folder come from the store.
    const char* target;
    bool else_temporary = false;       ///< As if `temporary`, where the upper folder cannot be one.
    const char* const* own = nullptr;  ///< Names of folders to be made in the upper one, where...
    std::size_t own_count = 0;         ///< ...those of the topmost lower one are nobody's.
};

/// Makes the new root the root, and lets go of the old one.
struct EnterRoot {};

int run(const OpenHost& step, sys::ChildState& state) noexcept;
int run(const CheckSource& step, sys::ChildState& state) noexcept;
int run(const CheckDescriptor& step, sys::ChildState& state) noexcept;
int run(const MakeStore& step, sys::ChildState& state) noexcept;
int run(const MakeRoot& step, sys::ChildState& state) noexcept;
int run(const BindTree& step, sys::ChildState& state) noexcept;
int run(const BindOpenFile& step, sys::ChildState& state) noexcept;
int run(const MakeReadOnly& step, sys::ChildState& state) noexcept;
int run(const MountProc& step, sys::ChildState& state) noexcept;
int run(const MountDev& step, sys::ChildState& state) noexcept;
int run(const MountTmpfs& step, sys::ChildState& state) noexcept;
int run(const MountMqueue& step, sys::ChildState& state) noexcept;
int run(const MakeDirectory& step, sys::ChildState& state) noexcept;
int run(const WriteFile& step, sys::ChildState& state) noexcept;
int run(const BindContents& step, sys::ChildState& state) noexcept;
int run(const FillContents& step, sys::ChildState& state) noexcept;
int run(const MakeSymlink& step, sys::ChildState& state) noexcept;
int run(const ChangeMode& step, sys::ChildState& state) noexcept;
int run(const MountOverlay& step, sys::ChildState& state) noexcept;
int run(const EnterRoot& step, sys::ChildState& state) noexcept;

}  // namespace nsbox::mount
