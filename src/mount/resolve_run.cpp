// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "mount/resolve.hpp"

#include "mount/tree.hpp"
#include "sys/raw.hpp"

#include <linux/magic.h>

namespace nsbox::mount {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

constexpr std::size_t path_max = 4096;
constexpr int most_links = 40;  // As the kernel: path_resolution(7).

struct PathText {
    char text[path_max];
    std::size_t size = 0;
};

bool append(PathText& to, const char* text, std::size_t count) noexcept
{
    if (to.size + count + 1 > path_max)
        return false;
    for (std::size_t i = 0; i < count; ++i)
        to.text[to.size++] = text[i];
    to.text[to.size] = '\0';
    return true;
}

/// Where the next component begins and how long it is; false at the end.
bool next_component(const char*& at, std::size_t& size) noexcept
{
    while (*at == '/')
        ++at;
    size = 0;
    while (at[size] != '\0' && at[size] != '/')
        ++size;
    return size > 0;
}

bool is_dot(const char* at, std::size_t size) noexcept
{
    return size == 1 && at[0] == '.';
}

bool is_dot_dot(const char* at, std::size_t size) noexcept
{
    return size == 2 && at[0] == '.' && at[1] == '.';
}

Fd open_component(int folder, const char* component, std::size_t size) noexcept
{
    char name[256];
    if (size >= sizeof name)
        return Fd{-ENAMETOOLONG};
    for (std::size_t i = 0; i < size; ++i)
        name[i] = component[i];
    name[size] = '\0';
    return Fd{raw::openat(folder, name, O_PATH | O_CLOEXEC | O_NOFOLLOW)};
}

/// Opens `walked`, whose components are known to be no links and to hold no "..".
Fd open_walked(int root, const PathText& walked) noexcept
{
    Fd at{raw::openat(root, ".", O_PATH | O_CLOEXEC | O_DIRECTORY)};
    const char* rest = walked.text;
    for (std::size_t size = 0; at && next_component(rest, size); rest += size)
        at = open_component(at.get(), rest, size);
    return at;
}

void drop_last(PathText& path) noexcept
{
    while (path.size > 0 && path.text[--path.size] != '/') {
    }
    path.text[path.size] = '\0';
}

struct Walk {
    int root;
    PathText walked;  // What was resolved so far, and what `folder` is: for "..".
    Fd folder;
    PathText pending;  // What is still to be resolved, from `next` on.
    std::size_t next = 0;
    int links = 0;
};

/// Puts a link's text in front of what is still pending.
int expand_link(Walk& walk, int link) noexcept
{
    if (++walk.links > most_links)
        return -ELOOP;
    PathText text;
    const long got = raw::readlinkat(link, "", text.text, path_max - 1);
    if (got < 0)
        return static_cast<int>(got);
    text.size = static_cast<std::size_t>(got);
    text.text[text.size] = '\0';
    if (text.size == 0)
        return -ENOENT;
    // What is still to come begins with a slash, if there is any.
    if (!append(text, walk.pending.text + walk.next, walk.pending.size - walk.next))
        return -ENAMETOOLONG;
    if (text.text[0] == '/') {
        walk.walked.size = 0;
        walk.walked.text[0] = '\0';
        walk.folder = open_walked(walk.root, walk.walked);
    }
    walk.pending = text;
    walk.next = 0;
    return walk.folder ? 0 : walk.folder.error();
}

/// Whether a link in `folder` is one of procfs that leads to a file and not to a name. Those in its
/// top folder ("self", "mounts") are ordinary ones.
bool is_magic(int folder, int link) noexcept
{
    if (raw::fs_magic(link) != PROC_SUPER_MAGIC)
        return false;
    constexpr ino_t top_of_procfs = 1;
    struct ::stat status;
    return raw::fstat(folder, &status) < 0 || status.st_ino != top_of_procfs;
}

/// Goes from the walk's folder to what `name` is there.
int enter_component(Walk& walk, const char* name, std::size_t size, Leaf leaf) noexcept
{
    const std::size_t above = walk.walked.size;
    if (!append(walk.walked, "/", 1) || !append(walk.walked, name, size))
        return -ENAMETOOLONG;
    Fd here = open_component(walk.folder.get(), name, size);
    if (!here)
        return here.error();
    struct ::stat status;
    if (const int rc = raw::fstat(here.get(), &status); rc < 0)
        return rc;
    // A slash at the end asks for a folder, as another component would.
    const bool last = walk.pending.text[walk.next] == '\0';
    if (S_ISLNK(status.st_mode) && !(last && leaf == Leaf::keep)) {
        walk.walked.size = above;
        walk.walked.text[above] = '\0';
        if (is_magic(walk.folder.get(), here.get()))
            return -ELOOP;
        return expand_link(walk, here.get());
    }
    if (!last && !S_ISDIR(status.st_mode))
        return -ENOTDIR;
    walk.folder = static_cast<Fd&&>(here);
    return 0;
}

/// The walk for kernels, or seccomp filters around us, without openat2.
Fd resolve_by_walking(int root, const char* path, Leaf leaf) noexcept
{
    Walk walk{root, {}, {}, {}};
    walk.walked.text[0] = '\0';
    if (!append(walk.pending, path, sys::length(path)))
        return Fd{-ENAMETOOLONG};
    walk.folder = open_walked(root, walk.walked);
    while (walk.folder) {
        const char* at = walk.pending.text + walk.next;
        std::size_t size = 0;
        if (!next_component(at, size))
            break;
        walk.next = static_cast<std::size_t>(at - walk.pending.text) + size;
        if (is_dot(at, size))
            continue;
        if (is_dot_dot(at, size)) {
            drop_last(walk.walked);
            walk.folder = open_walked(root, walk.walked);
        } else if (const int rc = enter_component(walk, at, size, leaf); rc < 0) {
            return Fd{rc};
        }
    }
    return static_cast<Fd&&>(walk.folder);
}

bool copy_name(Place& place, const char* from, std::size_t size) noexcept
{
    if (size >= sizeof place.name)
        return false;
    for (std::size_t i = 0; i < size; ++i)
        place.name[i] = from[i];
    place.name[size] = '\0';
    return true;
}

/// Splits a path into what is above its last component, and that component.
bool split(const char* path, PathText& above, Place& place) noexcept
{
    std::size_t end = sys::length(path);
    while (end > 0 && path[end - 1] == '/')
        --end;
    std::size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        --begin;
    if (!copy_name(place, path + begin, end - begin))
        return false;
    above.size = 0;
    above.text[0] = '\0';
    return append(above, path, begin);
}

bool names_an_entry(const Place& place) noexcept
{
    const std::size_t size = sys::length(place.name);
    return size > 0 && !is_dot(place.name, size) && !is_dot_dot(place.name, size);
}

int require_directory(int fd) noexcept
{
    struct ::stat status;
    if (const int rc = raw::fstat(fd, &status); rc < 0)
        return rc;
    return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

/// Tells a dangling link from other reasons why a name could not be made.
int why_it_exists(ChildState& state, const Place& place, const char* path) noexcept
{
    char text[path_max];
    const long got = raw::readlinkat(place.parent.get(), place.name, text, sizeof text - 1);
    if (got < 0)
        return state.failed(Site::parents, -ENOTDIR);
    text[got] = '\0';
    state.detail.clear();
    state.detail.add(path).add(" -> ").add(text);
    return state.failed(Site::dangling, -ENOENT);
}

Fd make_directory_at(ChildState& state, Place& place, const char* path, unsigned mode,
                     Site site) noexcept
{
    if (!names_an_entry(place))
        return Fd{state.failed(site, -ENOENT)};
    const int rc = raw::mkdirat(place.parent.get(), place.name, mode);
    if (rc == -EEXIST) {
        // Someone else may have made it meanwhile; a link that leads nowhere is refused.
        Fd now{raw::openat(place.parent.get(), place.name,
                           O_PATH | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY)};
        if (now)
            return now;
        return Fd{why_it_exists(state, place, path)};
    }
    if (rc < 0)
        return Fd{state.failed(site, rc)};
    Fd made{
        raw::openat(place.parent.get(), place.name, O_PATH | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY)};
    if (!made)
        state.site = site;
    return made;
}

/// The longest part of `path` that exists; `prefix` becomes that part.
Fd open_existing_prefix(const ChildState& state, PathText& prefix) noexcept
{
    Fd there;
    do {
        while (prefix.size > 0 && prefix.text[prefix.size - 1] == '/')
            --prefix.size;
        drop_last(prefix);
        there = resolve(state, prefix.size > 0 ? prefix.text : "/");
    } while (there.error() == -ENOENT && prefix.size > 0);
    return there;
}

/// Opens the folder `path`, making it and what is missing above it.
Fd open_or_make_directory(ChildState& state, const char* path, unsigned mode) noexcept
{
    Fd there = resolve(state, path);
    if (there) {
        if (const int rc = require_directory(there.get()); rc < 0)
            return Fd{state.failed(Site::parents, rc)};
        return there;
    }
    if (there.error() != -ENOENT)
        return Fd{state.failed(Site::parents, there.error())};
    PathText prefix;
    if (!append(prefix, path, sys::length(path)))
        return Fd{state.failed(Site::parents, -ENAMETOOLONG)};
    there = open_existing_prefix(state, prefix);
    if (!there)
        return Fd{state.failed(Site::parents, there.error())};
    const char* rest = path + prefix.size;
    std::size_t size = 0;
    Place place;
    while (next_component(rest, size)) {
        if (!copy_name(place, rest, size))
            return Fd{state.failed(Site::parents, -ENAMETOOLONG)};
        rest += size;
        prefix.size = 0;
        append(prefix, path, static_cast<std::size_t>(rest - path));
        if (is_dot(place.name, size))
            continue;
        if (is_dot_dot(place.name, size)) {
            there = resolve(state, prefix.text);
            if (!there)
                return Fd{state.failed(Site::parents, there.error())};
            continue;
        }
        place.parent = static_cast<Fd&&>(there);
        there = make_directory_at(state, place, prefix.text, mode, Site::parents);
        if (!there)
            return there;
    }
    return there;
}

}  // namespace

namespace {

/// What openat2(2) says where a rename or a mount elsewhere disturbed it: about "..", and also about the number of
/// links, which it goes on counting where it begins again. The walk tells for certain.
bool is_unsure(int error) noexcept
{
    return error == -EAGAIN || error == -ELOOP;
}

}  // namespace

Fd resolve(const ChildState& state, const char* path, Leaf leaf) noexcept
{
    // An empty path and a path of slashes are the root.
    const char* at = path;
    std::size_t size = 0;
    if (!next_component(at, size))
        return Fd{raw::fcntl(state.root, F_DUPFD_CLOEXEC, 3)};
    const std::uint64_t nofollow = leaf == Leaf::keep ? O_NOFOLLOW : 0;
    if (state.has_openat2) {
        Fd fd{raw::openat2(state.root, path, O_PATH | O_CLOEXEC | nofollow,
                           RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)};
        if (!is_unsure(fd.error()))
            return fd;
        Fd walked = resolve_by_walking(state.root, path, leaf);
        // Links in a circle have many ends: the kernel's word for them is the one.
        return walked || fd.error() == -EAGAIN ? std::move(walked) : std::move(fd);
    }
    return resolve_by_walking(state.root, path, leaf);
}

int ensure_parents(ChildState& state, const char* path, unsigned parent_mode, Place& place) noexcept
{
    PathText above;
    if (!split(path, above, place))
        return state.failed(Site::parents, -ENAMETOOLONG);
    place.parent = open_or_make_directory(state, above.size > 0 ? above.text : "/", parent_mode);
    return place.parent ? 0 : place.parent.error();
}

Fd resolve_directory(const ChildState& state, const char* path, Leaf leaf) noexcept
{
    if (state.has_openat2 && !is_root_path(path)) {
        const std::uint64_t nofollow = leaf == Leaf::keep ? O_NOFOLLOW : 0;
        Fd fd{raw::openat2(state.root, path, O_PATH | O_CLOEXEC | O_DIRECTORY | nofollow,
                           RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)};
        if (!is_unsure(fd.error()))
            return fd;
    }
    Fd fd = resolve(state, path, leaf);
    if (fd)
        if (const int rc = require_directory(fd.get()); rc < 0)
            return Fd{rc};
    return fd;
}

Fd ensure_directory(ChildState& state, const char* path, unsigned mode,
                    unsigned parent_mode) noexcept
{
    Fd there = resolve_directory(state, path);
    if (there)
        return there;
    // Something that is no folder is there, or stands in the way.
    if (there.error() == -ENOTDIR)
        return Fd{state.failed(resolve(state, path) ? Site::make : Site::parents, -ENOTDIR)};
    if (there.error() != -ENOENT)
        return Fd{state.failed(Site::parents, there.error())};
    Place place;
    if (const int rc = ensure_parents(state, path, parent_mode, place); rc < 0)
        return Fd{rc};
    if (!names_an_entry(place)) {
        // "a/b/." or "a/..": what is named exists now that its parents do.
        there = resolve(state, path);
        return there ? static_cast<Fd&&>(there) : Fd{state.failed(Site::make, there.error())};
    }
    return make_directory_at(state, place, path, mode, Site::make);
}

namespace {

/// The last component is a link to nothing: the file is made where it points, if the folder
/// there exists. The link's text is resolved inside, so it cannot lead out.
Fd create_through_link(ChildState& state, const char* path, const Place& place,
                       unsigned parent_mode, int links) noexcept
{
    PathText target;
    char text[path_max];
    const long got = raw::readlinkat(place.parent.get(), place.name, text, sizeof text - 1);
    if (got < 0)
        return Fd{state.failed(Site::create, -EEXIST)};
    text[got] = '\0';
    Place ignored;
    if (text[0] != '/' && !split(path, target, ignored))
        return Fd{state.failed(Site::create, -ENAMETOOLONG)};
    if (text[0] == '/') {
        target.size = 0;
        target.text[0] = '\0';
    }
    if (links > most_links || !append(target, text, static_cast<std::size_t>(got)))
        return Fd{state.failed(Site::create, links > most_links ? -ELOOP : -ENAMETOOLONG)};
    Place end;
    PathText above;
    if (!split(target.text, above, end))
        return Fd{state.failed(Site::create, -ENAMETOOLONG)};
    end.parent = resolve(state, above.size > 0 ? above.text : "/");
    if (!end.parent || !names_an_entry(end)) {
        state.detail.clear();
        state.detail.add(path).add(" -> ").add(text);
        return Fd{state.failed(Site::dangling, -ENOENT)};
    }
    const int rc = raw::mknodat(end.parent.get(), end.name, S_IFREG | 0444, 0);
    if (rc == -EEXIST)
        return create_through_link(state, target.text, end, parent_mode, links + 1);
    if (rc < 0)
        return Fd{state.failed(Site::create, rc)};
    return Fd{raw::openat(end.parent.get(), end.name, O_PATH | O_CLOEXEC | O_NOFOLLOW)};
}

}  // namespace

Fd ensure_file(ChildState& state, const char* path, unsigned parent_mode) noexcept
{
    Fd there = resolve(state, path);
    if (there) {
        struct ::stat status;
        if (const int rc = raw::fstat(there.get(), &status); rc < 0)
            return Fd{state.failed(Site::create, rc)};
        if (S_ISDIR(status.st_mode))
            return Fd{state.failed(Site::create, -EISDIR)};
        return there;
    }
    if (there.error() != -ENOENT)
        return Fd{
            state.failed(there.error() == -ENOTDIR ? Site::parents : Site::create, there.error())};
    Place place;
    if (const int rc = ensure_parents(state, path, parent_mode, place); rc < 0)
        return Fd{rc};
    if (!names_an_entry(place))
        return Fd{state.failed(Site::create, -EISDIR)};
    const int rc = raw::mknodat(place.parent.get(), place.name, S_IFREG | 0444, 0);
    if (rc == -EEXIST)
        return create_through_link(state, path, place, parent_mode, 0);
    if (rc < 0)
        return Fd{state.failed(Site::create, rc)};
    there = Fd{raw::openat(place.parent.get(), place.name, O_PATH | O_CLOEXEC | O_NOFOLLOW)};
    if (!there)
        state.site = Site::create;
    return there;
}

}  // namespace nsbox::mount
