#pragma once

#include "nsbox/error.hpp"
#include "nsbox/rootfs.hpp"
#include "nsbox/spec.hpp"

#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// What an everyday sandbox is to run in, for complete().
struct Everyday {
    /// A folder that is the sandbox's root; empty: the host's own programs (see complete()).
    std::string root;

    enum class Changes {
        refused,    ///< The root is read-only.
        temporary,  ///< What changes is in memory, and lost at the end.
        kept,       ///< It is kept in the folder `overlay`, which is made if it is missing.
    };
    Changes changes = Changes::refused;  ///< The others need a `root`, and Linux 5.11.
    /// With Changes::kept: holds the folders "upper" and "work" of an overlay (the kernel's overlayfs
    /// documentation) and "lower", a file that names the root it belongs to. One sandbox at a time.
    std::string overlay;

    /// A folder that is home and working directory, and may be written to; empty: a private one.
    std::string work_directory;

    /// What stands in where the description has no command, ids or working directory, and variables
    /// that come before those it has.
    Image image;
    Owners owners = Owners::as_they_are;  ///< Of the files of `root`...
    StoredIds stored_ids;                 ///< ...and, with Owners::subordinate, what their ids are.

    /// The command is uid 0, with the capabilities over the sandbox's own ids that installing packages
    /// takes. The ids are all that the caller can give: those of an ordinary user out of subuid(5).
    bool as_root = false;

    /// Filters of system calls, loaded before those of the description: see FilterWish. Empty: none.
    std::vector<std::string> policies = {"default"};
    bool allow_user_namespaces = false;  ///< The policies' circumstance "userns".
    bool allow_tracing = false;          ///< The policies' circumstance "tracing".

    /// With Landlock::only there are no namespaces and mounts: programs are the host's, `work_directory` has to
    /// be there, and is the home and $TMPDIR; what takes a mount or another root is refused.
    Landlock landlock = Landlock::automatic;

    /// Nothing is made on the host, not even the folders of an overlay: to see what would be done.
    bool make_nothing = false;

    /// Takes the first of these and all that is about the image from a root filesystem, which has to
    /// live as long as the sandbox does.
    void use(const Rootfs& rootfs);
};

/// Makes `spec` a sandbox for everyday use, in which programs find what they expect of a system and
/// nothing of the caller's. What `spec` has already comes on top: its operations after those for the
/// base, its edits of the environment after the usual variables, its capabilities after none at all.
///
/// Without a root the base is the host's /usr with /bin, /sbin and /lib*, those parts of /etc that
/// programs need (certificates, the loader's cache, time zone, alternatives ...), read-only, in an otherwise
/// empty tree. With one it is that folder, which is not touched: mount points that it lacks are made in
/// an overlay. On top are /proc, /dev, private /tmp and /run, the home /home/sandbox, users for the
/// command's ids in /etc/passwd and /etc/group, and names for the network that there is. No setting of the
/// caller's is taken over but TERM.
///
/// The ids are 1000 unless spec has others, the host name is "sandbox", there are all namespaces but
/// for a network that spec shares, no capabilities, no system calls but those of Everyday::policies, and no descriptors above 2 but those of Spec::kept;
/// everything ends with the command and with the process that starts it. The working directory is
/// the home. An image has its say about ids, directory and command where spec has none. Where it has about
/// ids, with Owners::subordinate and nothing of the host's in the sandbox, the command is not the caller
/// outside, but the subordinate id that stands for the image's user.
///
/// Looks at the host's files, and makes the folders of an overlay that is kept; nothing else changes.
/// Fails where `root` or a file of it cannot be read (an errno), where an overlay that is kept belongs
/// to another root, or where an image names a user that it lacks.
Result<> complete(Spec& spec, const Everyday& wish);

/// A person's view of what start() would do with `spec`: one line for each thing that the sandbox is to
/// have, in the order in which they come into being. Variables of the environment are named without their
/// values. Fails as start() would before it makes anything.
Result<std::string> outline(const Spec& spec);

/// The capabilities that the command of `spec` would have on the host itself, for lack of a user namespace
/// (see user_namespaces(7)): what a caller who is root gives away with bwrap's defaults. Empty for other
/// callers, and where the sandbox has a user namespace.
std::vector<std::string> capabilities_on_host(const Spec& spec);

}  // namespace nsbox

#pragma GCC visibility pop
