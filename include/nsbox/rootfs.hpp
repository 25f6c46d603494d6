#pragma once

#include "nsbox/error.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// How the owners of a root filesystem's files are on disk.
enum class Owners {
    as_they_are,  ///< Everything belongs to whom it names: root imported it, or it is a folder.
    subordinate,  ///< To the subordinate ids that stand for them; see Rootfs::subordinate_ids().
    recorded,     ///< Everything belongs to the caller; only the manifest says to whom it should.
};

/// Id N of the root filesystem, N < count, is id `first_uid + N` here: subuid(5), subgid(5).
struct StoredIds {
    std::uint32_t first_uid = 0;
    std::uint32_t first_gid = 0;
    std::uint32_t count = 0;
};

/// What an image says about the commands in it. Everything is empty for what was no image.
struct Image {
    std::vector<std::string> environment;  ///< NAME=VALUE.
    std::vector<std::string> entrypoint;
    std::vector<std::string> command;  ///< Follows the entrypoint, where no other is given.
    std::string user;                  ///< USER[:GROUP], names or numbers.
    std::string working_directory;
};

struct RootfsOptions {
    /// The folder of the store. Default: $NSBOX_STORE, else $XDG_DATA_HOME/nsbox, else
    /// ~/.local/share/nsbox.
    std::string store;
};

/// The store's folder: made absolute, whether it exists or not.
Result<std::string> store_folder(const RootfsOptions& options = {});

/// The path of nsbox-rootfs, the program that imports: beside the one that runs, or where nsbox was
/// installed to. It takes the words of "nsbox rootfs".
Result<std::string> rootfs_program();

/// A root filesystem at hand. Move-only. One of the store cannot be removed while this lives, or
/// while a process has one of the descriptors().
/// Different objects may be used from different threads at once.
class Rootfs {
public:
    /// `what` is one of:
    ///  - a name in the store, or at least the first eight digits of a digest there;
    ///  - a folder, used as it is: where it begins with "/" or has one inside, or where no name in
    ///    the store is the same. One with a file "oci-layout" is an image and is imported;
    ///  - an archive. It is imported first, where it is not in the store: by the program
    ///    nsbox-rootfs, which writes about that on standard error. This waits for it, and for
    ///    another process that is importing the same. The digest of a file is remembered as long
    ///    as its size and times stay.
    /// Uses flock(2) and pidfd_open (Linux 5.3).
    static Result<Rootfs> open(const std::string& what, const RootfsOptions& options = {});

    Rootfs(Rootfs&&) noexcept;
    Rootfs& operator=(Rootfs&&) noexcept;
    ~Rootfs();

    /// The absolute path of the folder that is to be "/".
    const std::string& tree() const noexcept;
    /// The name in the store by content, 64 hexadecimal digits; empty for a folder.
    const std::string& digest() const noexcept;
    const Image& image() const noexcept;
    Owners owners() const noexcept;
    /// With Owners::subordinate; count is 0 else.
    const StoredIds& subordinate_ids() const noexcept;

    /// The descriptors that this object owns, for callers that close all others; close-on-exec.
    std::vector<int> descriptors() const;

private:
    struct State;
    [[gnu::visibility("hidden")]] explicit Rootfs(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

}  // namespace nsbox

#pragma GCC visibility pop
