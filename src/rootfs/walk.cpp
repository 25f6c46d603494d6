#include "rootfs/walk.hpp"

#include "rootfs/names.hpp"
#include "rootfs/store.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <climits>
#include <sys/resource.h>
#include <vector>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_walk{"Can't look through the tree at"};
constexpr int open_folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

Result<> walk_below(int folder, const std::string& path, const Visitor& visitor)
{
    for (std::string& name : list_folder(folder)) {
        Found found;
        found.folder = folder;
        found.path = path.empty() ? name : path + "/" + name;
        found.name = std::move(name);
        if (found.path.size() >= PATH_MAX)
            return fail(cannot_walk, ENAMETOOLONG, in_quotes(path));
        int rc = raw::fstatat(folder, found.name.c_str(), &found.status, AT_SYMLINK_NOFOLLOW);
        if (rc < 0)
            return fail(cannot_walk, -rc, in_quotes(found.path));
        Fd below;
        if (S_ISDIR(found.status.st_mode)) {
            below = Fd{raw::openat(folder, found.name.c_str(), open_folder)};
            if (!below)
                return fail(cannot_walk, -below.error(), in_quotes(found.path));
            found.open = below.get();
        }
        const bool goes_on = TRY(visitor.before(found));
        if (found.open < 0)
            continue;
        if (goes_on)
            TRY(walk_below(found.open, found.path, visitor));
        if (visitor.after)
            TRY(visitor.after(found));
    }
    return {};
}

/// Opens a folder that its owner may have shut.
Fd open_to_remove(int folder, const std::string& name)
{
    Fd below{raw::openat(folder, name.c_str(), open_folder)};
    if (below.error() == -EACCES) {
        const Fd path{
            raw::openat(folder, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        // No link can be in its place: what O_PATH opened is a folder.
        if (path && raw::fchmodat(folder, name.c_str(), 0700) == 0)
            below = Fd{raw::openat(folder, name.c_str(), open_folder)};
    }
    return below;
}

struct Removal {
    int top;  ///< Where folders that are too deep are moved to.
    unsigned moved = 0;
};

int remove_below(int folder, unsigned depth, Removal& removal)
{
    // A walk down holds a descriptor for each level.
    constexpr unsigned most_levels = 200;
    int result = 0;
    bool is_open = false;
    for (const std::string& name : list_folder(folder)) {
        int rc = raw::unlinkat(folder, name.c_str(), 0);
        if (rc == -EACCES && !is_open) {
            is_open = true;
            raw::fchmod(folder, 0700);
            rc = raw::unlinkat(folder, name.c_str(), 0);
        }
        if (rc == -EISDIR || rc == -EPERM) {
            if (depth == most_levels) {
                const std::string moved = "deep-" + std::to_string(removal.moved++);
                rc = static_cast<int>(
                    raw::call(SYS_renameat2, folder, name.c_str(), removal.top, moved.c_str(), 0));
                if (rc == 0)
                    continue;
            }
            const Fd below = open_to_remove(folder, name);
            rc = below ? remove_below(below.get(), depth + 1, removal) : below.error();
            if (rc == 0)
                rc = raw::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
        }
        if (rc < 0 && rc != -ENOENT)
            result = rc;
    }
    return result;
}

}  // namespace

Result<> walk(int root, const Visitor& visitor)
{
    Found found;
    found.folder = root;
    found.open = root;
    found.name = found.path = ".";
    if (const int rc = raw::fstat(root, &found.status); rc < 0)
        return fail(cannot_walk, -rc, ".");
    if (TRY(visitor.before(found)))
        TRY(walk_below(root, "", visitor));
    return visitor.after ? visitor.after(found) : Result<>{};
}

int remove_content(int folder)
{
    Removal removal{folder};
    int rc = 0;
    // Again where something was moved up.
    do {
        removal.moved = 0;
        rc = remove_below(folder, 0, removal);
    } while (rc == 0 && removal.moved > 0);
    return rc;
}

int remove_name(int folder, const std::string& name)
{
    int rc = raw::unlinkat(folder, name.c_str(), 0);
    if (rc != -EISDIR && rc != -EPERM)
        return rc;
    const Fd below = open_to_remove(folder, name);
    if (!below)
        return below.error();
    rc = remove_content(below.get());
    return rc < 0 ? rc : raw::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
}

void raise_descriptor_limit()
{
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

}  // namespace nsbox::rootfs
