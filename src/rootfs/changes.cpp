#include "rootfs/changes.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using Status = struct ::stat;

constexpr Literal cannot_compare{"Can't compare"};
constexpr unsigned deepest = 400;  // Each level takes two descriptors.

/// A folder of one of the trees, on the way through it.
struct Folder {
    Fd fd;
    std::string name;  ///< From the root, for messages and results.
};

std::string below(const std::string& folder, const std::string& name)
{
    return folder.empty() ? name : folder + "/" + name;
}

Result<Folder> open_folder(int parent, const std::string& name, std::string path)
{
    Fd fd{raw::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!fd)
        return fail("Can't open", -fd.error(), std::move(path),
                    fd.error() == -EACCES
                        ? "it may belong to an id of the sandbox's: look at it from "
                          "inside of one, or as root"
                    : fd.error() == -EMFILE ? "see ulimit -n"
                                            : "");
    return Folder{std::move(fd), std::move(path)};
}

/// Nothing where there is no such entry.
Result<std::optional<Status>> look(const Folder& folder, const std::string& name)
{
    Status status;
    const int rc = raw::fstatat(folder.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
    if (rc == -ENOENT)
        return std::nullopt;
    if (rc < 0)
        return fail("Can't look at", -rc, below(folder.name, name));
    return status;
}

Result<std::set<std::string>> names_in(const Folder& folder)
{
    // A stream of its own: it takes the descriptor, and moves the place where that reads.
    Fd copy{raw::openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!copy)
        return fail("Can't read", -copy.error(), folder.name);
    const std::unique_ptr<DIR, int (*)(DIR*)> stream{::fdopendir(copy.get()), ::closedir};
    if (stream == nullptr)
        return fail("Can't read", errno, folder.name);
    (void)copy.release();
    std::set<std::string> names;
    for (;;) {
        errno = 0;
        const dirent* const entry = ::readdir(stream.get());
        if (entry == nullptr)
            break;
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            names.insert(name);
    }
    if (errno != 0)
        return fail("Can't read", errno, folder.name);
    return names;
}

/// Attributes have no calls that take a folder and a name (before Linux 6.13).
std::string through_proc(const Folder& folder, const std::string& name)
{
    return "/proc/self/fd/" + std::to_string(folder.fd.get()) + "/" + name;
}

/// The value, or nothing where the file has no such attribute or its file system none at all.
std::optional<std::string> attribute(const std::string& path, const std::string& name)
{
    char value[256];
    const ssize_t got = ::lgetxattr(path.c_str(), name.c_str(), value, sizeof value);
    if (got >= 0)
        return std::string(value, static_cast<std::size_t>(got));
    if (errno == ERANGE)
        return std::string{};
    return std::nullopt;
}

/// Overlayfs calls its own by either of two names, depending on who mounted it.
std::optional<std::string> mark(const std::string& path, const char* name)
{
    for (const char* const space : {"user.overlay.", "trusted.overlay."})
        if (std::optional<std::string> value = attribute(path, std::string{space} + name))
            return value;
    return std::nullopt;
}

bool is_own_mark(const std::string& name)
{
    return name.compare(0, 13, "user.overlay.") == 0 ||
           name.compare(0, 16, "trusted.overlay.") == 0;
}

/// What users and programs see of a file's attributes, by name; overlayfs's own, and labels that the
/// kernel gives by the place, are left out.
std::map<std::string, std::string> attributes_of(const std::string& path)
{
    std::map<std::string, std::string> found;
    const ssize_t size = ::llistxattr(path.c_str(), nullptr, 0);
    if (size <= 0)
        return found;
    std::string list(static_cast<std::size_t>(size), '\0');
    const ssize_t got = ::llistxattr(path.c_str(), list.data(), list.size());
    list.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    for (std::size_t at = 0; at < list.size();) {
        const std::string name = list.c_str() + at;
        at += name.size() + 1;
        const bool counts = name.compare(0, 5, "user.") == 0 || name == "security.capability" ||
                            name.compare(0, 17, "system.posix_acl_") == 0;
        if (!counts || is_own_mark(name))
            continue;
        const ssize_t length = ::lgetxattr(path.c_str(), name.c_str(), nullptr, 0);
        std::string value(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
        const ssize_t read = ::lgetxattr(path.c_str(), name.c_str(), value.data(), value.size());
        value.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
        found[name] = value;
    }
    return found;
}

bool same_owner_and_mode(const Status& a, const Status& b)
{
    return a.st_mode == b.st_mode && a.st_uid == b.st_uid && a.st_gid == b.st_gid;
}

Result<std::string> link_text(const Folder& folder, const std::string& name)
{
    char text[4096];
    const long got = raw::readlinkat(folder.fd.get(), name.c_str(), text, sizeof text);
    if (got < 0)
        return fail("Can't read the link", static_cast<int>(-got), below(folder.name, name));
    return std::string(text, static_cast<std::size_t>(got));
}

Result<Fd> open_file(const Folder& folder, const std::string& name)
{
    // Nobody may wait for whoever writes to what has become a FIFO meanwhile.
    Fd file{raw::openat(folder.fd.get(), name.c_str(),
                        O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
    if (!file)
        return fail("Can't open", -file.error(), below(folder.name, name));
    return file;
}

/// Fills the buffer as far as the file goes.
Result<std::size_t> fill(const Fd& file, char* buffer, std::size_t size, const std::string& name)
{
    std::size_t filled = 0;
    while (filled < size) {
        const long got = raw::read(file.get(), buffer + filled, size - filled);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail("Can't read", static_cast<int>(-got), name);
        if (got == 0)
            break;
        filled += static_cast<std::size_t>(got);
    }
    return filled;
}

class Comparison {
public:
    Result<std::vector<Change>> run(int upper, int lower)
    {
        Folder one = TRY(open_folder(upper, ".", {}));
        Folder other = TRY(open_folder(lower, ".", {}));
        TRY(merge(one, &other, false, 0));
        std::sort(changes_.begin(), changes_.end(),
                  [](const Change& a, const Change& b) { return a.path < b.path; });
        return std::move(changes_);
    }

private:
    void note(Change::Kind kind, std::string path, const Status& status)
    {
        changes_.push_back({kind, std::move(path), S_ISDIR(status.st_mode)});
    }

    /// One folder of the upper tree, over the one that the lower tree has there, if it has one. What is
    /// below an opaque folder is not marked as such again.
    Result<> merge(const Folder& upper, const Folder* lower, bool is_opaque, unsigned depth)
    {
        if (depth > deepest)
            return refuse(cannot_compare, upper.name, "its folders are nested too deeply");
        is_opaque = is_opaque || mark(through_proc(upper, "."), "opaque") == "y";
        const std::set<std::string> names = TRY(names_in(upper));
        for (const std::string& name : names)
            TRY(compare(upper, lower, name, is_opaque, depth));
        // What the lower folder has beside these does not show through an opaque one.
        if (lower == nullptr || !is_opaque)
            return {};
        for (const std::string& name : TRY(names_in(*lower)))
            if (names.count(name) == 0)
                if (const auto status = TRY(look(*lower, name)))
                    note(Change::Kind::deleted, below(lower->name, name), *status);
        return {};
    }

    static bool is_whiteout(const Folder& folder, const std::string& name, const Status& status)
    {
        if (S_ISCHR(status.st_mode))
            return status.st_rdev == 0;
        return S_ISREG(status.st_mode) && status.st_size == 0 &&
               mark(through_proc(folder, name), "whiteout").has_value();
    }

    static Result<> refuse_marks(const Folder& folder, const std::string& name,
                                 const Status& status)
    {
        if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
            return {};
        for (const char* const wrong : {"redirect", "metacopy"})
            if (mark(through_proc(folder, name), wrong))
                return refuse(cannot_compare, below(folder.name, name),
                              std::string{"it has the overlay attribute \""} + wrong +
                                  "\", which nsbox's overlays do not use",
                              "whoever made it may have mounted it with other options");
        return {};
    }

    Result<> compare(const Folder& upper, const Folder* lower, const std::string& name,
                     bool is_opaque, unsigned depth)
    {
        const auto found = TRY(look(upper, name));
        if (!found)
            return {};  // Gone since the folder was read.
        const Status& now = *found;
        std::optional<Status> before;
        if (lower != nullptr)
            before = TRY(look(*lower, name));
        if (is_whiteout(upper, name, now)) {
            if (before)
                note(Change::Kind::deleted, below(upper.name, name), *before);
            return {};
        }
        TRY(refuse_marks(upper, name, now));
        if (!before)
            note(Change::Kind::added, below(upper.name, name), now);
        else if (!TRY(is_same(upper, *lower, name, now, *before)))
            note(Change::Kind::changed, below(upper.name, name), now);
        return S_ISDIR(now.st_mode) ? descend(upper, lower, name, before, is_opaque, depth)
                                    : Result<>{};
    }

    Result<> descend(const Folder& upper, const Folder* lower, const std::string& name,
                     const std::optional<Status>& before, bool is_opaque, unsigned depth)
    {
        const Folder inner = TRY(open_folder(upper.fd.get(), name, below(upper.name, name)));
        if (!before || !S_ISDIR(before->st_mode))
            return merge(inner, nullptr, is_opaque, depth + 1);
        const Folder under = TRY(open_folder(lower->fd.get(), name, inner.name));
        return merge(inner, &under, is_opaque, depth + 1);
    }

    Result<bool> is_same(const Folder& upper, const Folder& lower, const std::string& name,
                         const Status& now, const Status& before)
    {
        if (!same_owner_and_mode(now, before))
            return false;
        const bool is_folder = S_ISDIR(now.st_mode);
        if (!is_folder && (now.st_size != before.st_size || now.st_rdev != before.st_rdev ||
                           now.st_mtim.tv_sec != before.st_mtim.tv_sec ||
                           now.st_mtim.tv_nsec != before.st_mtim.tv_nsec))
            return false;
        if (attributes_of(through_proc(upper, name)) != attributes_of(through_proc(lower, name)))
            return false;
        if (S_ISLNK(now.st_mode))
            return TRY(link_text(upper, name)) == TRY(link_text(lower, name));
        return S_ISREG(now.st_mode) ? has_same_contents(upper, lower, name) : Result<bool>{true};
    }

    Result<bool> has_same_contents(const Folder& upper, const Folder& lower,
                                   const std::string& name)
    {
        constexpr std::size_t half = std::size_t{1} << 16;
        buffer_.resize(2 * half);
        const std::string path = below(upper.name, name);
        const Fd one = TRY(open_file(upper, name));
        const Fd other = TRY(open_file(lower, name));
        for (;;) {
            const std::size_t size = TRY(fill(one, buffer_.data(), half, path));
            if (size != TRY(fill(other, buffer_.data() + half, half, path)) ||
                std::memcmp(buffer_.data(), buffer_.data() + half, size) != 0)
                return false;
            if (size < half)
                return true;
        }
    }

    std::vector<Change> changes_;
    std::vector<char> buffer_;
};

}  // namespace

Result<std::vector<Change>> list_changes(int upper, int lower)
{
    return Comparison{}.run(upper, lower);
}

}  // namespace nsbox::rootfs
