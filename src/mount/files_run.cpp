// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.
//
// Folders, files, links and modes.

#include "mount/resolve.hpp"
#include "mount/steps.hpp"
#include "mount/tree.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

int run(const MakeDirectory& step, ChildState& state) noexcept
{
    const Fd place = ensure_directory(state, step.target, step.mode, step.parent_mode);
    return place ? 0 : place.error();
}

namespace {

int write_all(int to, const char* data, std::size_t size) noexcept
{
    while (size > 0) {
        const long put = raw::write(to, data, size);
        if (put == -EINTR)
            continue;
        if (put < 0)
            return static_cast<int>(put);
        data += put;
        size -= static_cast<std::size_t>(put);
    }
    return 0;
}

/// Copies from the descriptor's offset to its end, and closes it.
int copy_contents(int from, int to) noexcept
{
    char buffer[16384];
    for (;;) {
        const long got = raw::read(from, buffer, sizeof buffer);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return static_cast<int>(got);
        if (got == 0)
            break;
        if (const int rc = write_all(to, buffer, static_cast<std::size_t>(got)); rc < 0)
            return rc;
    }
    raw::close(from);
    return 0;
}

/// Opens a file for writing as open(2) with O_CREAT | O_TRUNC would inside the sandbox.
Fd create_file(ChildState& state, const char* path, unsigned mode, unsigned parent_mode) noexcept
{
    // A device or a pipe at the destination must not block or act on being opened, nor a FIFO in the
    // tree make us wait for a reader.
    constexpr std::uint64_t flags =
        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    if (state.has_openat2) {
        Fd file{
            raw::openat2(state.root, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS, mode)};
        if (file || (file.error() != -ENOENT && file.error() != -EAGAIN))
            return file;
    }
    // ensure_file() makes it with a mount point's mode, in the right place.
    const Fd before = resolve(state, path);
    const Fd place = ensure_file(state, path, parent_mode);
    if (!place)
        return Fd{place.error()};
    sys::FixedText<64> name;
    name.add("self/fd/").number(static_cast<unsigned long>(place.get()));
    if (!before)
        if (const int rc = raw::fchmodat(state.proc, name.c_str(), mode | 0200); rc < 0)
            return Fd{rc};
    Fd file{raw::openat(state.proc, name.c_str(),
                        O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    if (file && !before)
        if (const int rc = raw::fchmod(file.get(), mode); rc < 0)
            return Fd{rc};
    return file;
}

}  // namespace

namespace {

/// Puts a new file in the place of one that cannot be written.
Fd replace_file(ChildState& state, const WriteFile& step) noexcept
{
    Place place;
    if (const int rc = ensure_parents(state, step.target, step.parent_mode, place); rc < 0)
        return Fd{rc};
    if (const int rc = raw::unlinkat(place.parent.get(), place.name, 0); rc < 0)
        return Fd{rc};
    return Fd{raw::openat(place.parent.get(), place.name,
                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, step.mode)};
}

}  // namespace

int run(const WriteFile& step, ChildState& state) noexcept
{
    state.site = Site::create;
    Fd file = create_file(state, step.target, step.mode, step.parent_mode);
    // One that belongs to nobody here.
    if (step.text != nullptr && (file.error() == -EACCES || file.error() == -EOVERFLOW))
        file = replace_file(state, step);
    if (!file)
        return file.error();
    const int rc = step.text != nullptr ? write_all(file.get(), step.text, step.size)
                                        : copy_contents(step.fd, file.get());
    return rc < 0 ? state.failed(Site::contents, rc) : 0;
}

namespace {

using PathText = sys::FixedText<4096>;

void drop_last(PathText& path) noexcept
{
    std::size_t size = sys::length(path.c_str());
    while (size > 0 && path.c_str()[size - 1] != '/')
        --size;
    const PathText whole = path;
    path.clear();
    path.add(whole.c_str(), size > 0 ? size - 1 : 0);
}

/// Whether `path` names a symbolic link; then it is what that leads to afterwards.
bool follow_link(const ChildState& state, PathText& path) noexcept
{
    const Fd link = resolve(state, path.c_str(), Leaf::keep);
    char text[4096];
    const long got = link ? raw::readlinkat(link.get(), "", text, sizeof text - 1) : -1;
    if (got <= 0)
        return false;
    text[got] = '\0';
    if (text[0] == '/') {
        path.clear();
    } else {
        drop_last(path);
        path.add("/");
    }
    path.add(text);
    return true;
}

/// The name that links at `target` lead to in the end, which need not exist.
PathText followed(const ChildState& state, const char* target) noexcept
{
    PathText path;
    path.add(target);
    constexpr int most_links = 40;
    for (int i = 0; i < most_links && follow_link(state, path); ++i) {
    }
    return path;
}

/// Whether something would have to be made for `path` in a file system that is not the sandbox's.
bool would_change_host(const ChildState& state, PathText path) noexcept
{
    Fd place = resolve(state, path.c_str());
    if (place)
        return false;
    while (!place && sys::length(path.c_str()) > 0) {
        drop_last(path);
        place = resolve(state, path.c_str()[0] == '\0' ? "/" : path.c_str());
    }
    struct ::stat status;
    if (!place || raw::fstat(place.get(), &status) < 0)
        return true;
    for (unsigned i = 0; i < state.own_count; ++i)
        if (state.own_devices[i] == status.st_dev)
            return false;
    return true;
}

}  // namespace

int run(const BindContents& step, ChildState& state) noexcept
{
    PathText path;
    if (step.only_own)
        path = followed(state, step.target);
    const char* const target = step.only_own ? path.c_str() : step.target;
    if (step.only_own && would_change_host(state, path))
        return state.failed(Site::foreign, -EROFS);
    sys::FixedText<64> name;
    name.add("data").number(state.stored++);
    Fd file{raw::openat(state.store, name.c_str(),
                        O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, step.mode)};
    if (!file)
        return state.failed(Site::create, file.error());
    const int rc_of_copy = step.is_late ? 0 : copy_contents(step.fd, file.get());
    if (rc_of_copy < 0)
        return state.failed(Site::contents, rc_of_copy);
    if (step.is_late)
        state.unfilled = file.release();
    // The store is unbindable, so that no recursive bind copies it; lifted for this one file.
    if (const int rc = shield(state, false); rc < 0)
        return state.failed(Site::source, rc);
    Fd tree = open_source(state, Source{state.store, name.c_str()});
    if (!tree)
        return state.failed(Site::source, tree.error());
    const Fd place = ensure_file(state, target, step.parent_mode);
    if (!place)
        return place.error();
    const std::uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                     (step.read_only ? std::uint64_t{MOUNT_ATTR_RDONLY} : 0);
    if (const int rc = attach(state, tree, target_at(state, place, target), attributes,
                              Submounts::must_be_restricted);
        rc < 0)
        return rc;
    if (const int rc = shield(state, true); rc < 0)
        return state.failed(Site::source, rc);
    raw::unlinkat(state.store, name.c_str(), 0);
    return 0;
}

int run(const FillContents& step, ChildState& state) noexcept
{
    const Fd file{state.unfilled};
    state.unfilled = -1;
    return copy_contents(step.fd, file.get());
}

int run(const MakeSymlink& step, ChildState& state) noexcept
{
    Place place;
    if (const int rc = ensure_parents(state, step.target, 0755, place); rc < 0)
        return rc;
    const int rc = raw::symlinkat(step.text, place.parent.get(), place.name);
    if (rc != -EEXIST)
        return rc;
    char text[4096];
    const long got = raw::readlinkat(place.parent.get(), place.name, text, sizeof text - 1);
    if (got == -EINVAL)
        return state.failed(Site::exists_other, -EEXIST);
    if (got < 0)
        return state.failed(Site::exists_unreadable, static_cast<int>(got));
    text[got] = '\0';
    if (sys::equal(text, step.text))
        return 0;
    state.detail.clear();
    state.detail.add(text);
    return state.failed(Site::exists_link, -EEXIST);
}

int run(const ChangeMode& step, ChildState& state) noexcept
{
    const Fd file = resolve(state, step.target);
    if (!file)
        return file.error();
    // The file is changed by descriptor: its name may mean something else by now.
    const int rc = raw::fchmodat2(file.get(), "", step.mode, AT_EMPTY_PATH);
    if (rc != -ENOSYS && rc != -EPERM)
        return rc;
    sys::FixedText<64> name;
    name.add("self/fd/").number(static_cast<unsigned long>(file.get()));
    return raw::fchmodat(state.proc, name.c_str(), step.mode);
}

}  // namespace nsbox::mount
