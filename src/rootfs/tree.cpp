#include "rootfs/tree.hpp"

#include "rootfs/names.hpp"
#include "rootfs/store.hpp"
#include "rootfs/walk.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using Type = Entry::Type;

constexpr Literal cannot_unpack{"Can't unpack"};
constexpr unsigned permissions = 0777;
constexpr unsigned set_id_bits = 06000;

std::string called(const std::string& path)
{
    return "the member " + in_quotes(path);
}

tl::unexpected<Error> failed(const std::string& path, int rc)
{
    if (rc == -ENOSPC || rc == -EDQUOT)
        return fail(cannot_unpack, -rc, called(path),
                    "NSBOX_STORE or --store names a store on another disk");
    return fail(cannot_unpack, -rc, called(path));
}

/// As a process would resolve it whose root is `root`, which is never left.
Fd open_in(int root, const std::string& path, std::uint64_t flags, std::uint64_t resolve)
{
    return Fd{raw::openat2(root, path.c_str(), flags | O_CLOEXEC,
                           RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve)};
}

timespec modified(const Entry& entry)
{
    return {static_cast<time_t>(entry.seconds), static_cast<long>(entry.nanoseconds)};
}

int set_times(int folder, const char* name, const Entry& entry)
{
    const timespec times[2] = {modified(entry), modified(entry)};
    return static_cast<int>(
        raw::call(SYS_utimensat, folder, name, times, name == nullptr ? 0 : AT_SYMLINK_NOFOLLOW));
}

std::string counted(std::uint64_t count, const char* one, const char* many)
{
    return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace

Tree::Tree(int root, const Ownership& ownership, std::uint64_t max_size)
    : root_(root), ownership_(ownership), max_size_(max_size), root_path_(path_of(root))
{}

std::string Tree::path_of(int folder) const
{
    std::array<char, std::size_t{2} * PATH_MAX> text{};
    if (raw::fchdir(folder) < 0 || raw::getcwd(text.data(), text.size()) < 0)
        return "?";
    const std::string path = text.data();
    return path == "/" ? "" : path;
}

void Tree::begin_layer()
{
    has_layers_ = true;
    layer_.clear();
    layer_links_.clear();
}

// Folders.

Result<Fd> Tree::open_folder(const std::string& path, const std::string& member)
{
    Fd folder = open_in(root_, path, O_PATH | O_DIRECTORY, 0);
    if (folder || folder.error() == -ENOENT)
        return folder;
    if (folder.error() == -ELOOP)
        return refuse(cannot_unpack, called(member), "its folder is a symbolic link in a circle");
    if (folder.error() == -ENOTDIR)
        return refuse(cannot_unpack, called(member), "what it is in is no folder");
    if (folder.error() == -ENOSYS)
        return fail(cannot_unpack, ENOSYS, "openat2", "it needs Linux 5.6, and no filter on it");
    return failed(member, folder.error());
}

Result<Fd> Tree::make_folders(const std::string& path, const std::string& member)
{
    Fd folder = TRY(open_folder(".", member));
    for (std::size_t at = 0; at <= path.size();) {
        const std::size_t end = std::min(path.find('/', at), path.size());
        const std::string name = path.substr(at, end - at);
        const std::string above = path.substr(0, end);
        at = end + 1;
        Fd next = TRY(open_folder(above, member));
        if (!next) {
            int rc = raw::mkdirat(folder.get(), name.c_str(), 0700);
            if (rc == -EEXIST)
                return refuse(cannot_unpack, called(member),
                              "its folder is a symbolic link that leads nowhere");
            struct ::stat status;
            if (rc == 0)
                rc = raw::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
            if (rc < 0)
                return failed(member, rc);
            Entry made;
            made.type = Type::directory;
            made.mode = 0755;
            TRY(take_owner(folder.get(), name, made, status, -1));
            record(made, status);
            next = TRY(open_folder(above, member));
        }
        folder = std::move(next);
    }
    return folder;
}

/// Open for operations in it; stays so until the next call.
Result<int> Tree::folder_for(const std::string& path)
{
    const std::string_view folder = folder_of(path);
    if (folder.empty())
        return root_;
    if (last_folder_ && folder == last_path_)
        return last_folder_.get();
    last_path_ = folder;
    last_folder_ = TRY(open_folder(last_path_, path));
    if (!last_folder_)
        last_folder_ = TRY(make_folders(last_path_, path));
    return last_folder_.get();
}

// What was there before.

Result<> Tree::make_way(const std::string& name, const Entry& entry)
{
    // A folder that goes may be one that is still open.
    forget_folder();
    const int rc = remove_name(TRY(folder_for(entry.path)), name);
    forget_folder();
    return rc < 0 && rc != -ENOENT ? failed(entry.path, rc) : Result<>{};
}

void Tree::record(const Entry& entry, const struct ::stat& status)
{
    Entry& kept = records_[status.st_ino];
    kept = entry;
    kept.path.clear();
    if (has_layers_)
        layer_.insert(status.st_ino);
}

Result<> Tree::take_owner(int parent, const std::string& name, const Entry& entry,
                          const struct ::stat& status, int fd)
{
    if (ownership_.owners == Owners::recorded)
        return {};
    constexpr std::uint64_t most = 0xfffffffe;
    const bool is_possible = entry.uid <= most && entry.gid <= most;
    if (is_possible && entry.uid == status.st_uid && entry.gid == status.st_gid)
        return {};
    const auto change = [&](std::uint64_t uid, std::uint64_t gid) {
        return fd >= 0
                   ? raw::call(SYS_fchown, fd, uid, gid)
                   : raw::call(SYS_fchownat, parent, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW);
    };
    const bool is_caller = ownership_.owners == Owners::subordinate &&
                           (entry.uid >= caller_id || entry.gid >= caller_id);
    long rc = is_possible && !is_caller ? change(entry.uid, entry.gid) : -EINVAL;
    if (rc == -EINVAL) {
        // No id here stands for that.
        ++foreign_owners_;
        rc = change(0, 0);
    }
    return rc < 0 ? failed(entry.path, static_cast<int>(rc)) : Result<>{};
}

void Tree::keep_attributes(int fd, const Entry& entry)
{
    for (const auto& [name, value] : entry.attributes)
        if (!name.starts_with("user.") || fd < 0 ||
            ::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0)
            ++lost_attributes_[name];
}

// Making things.

Result<> Tree::make_folder(const Entry& entry, int parent, const std::string& name)
{
    if (entry.path != ".") {
        int rc = raw::mkdirat(parent, name.c_str(), 0700);
        struct ::stat there;
        if (rc == -EEXIST && raw::fstatat(parent, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
            rc = 0;
            if (!S_ISDIR(there.st_mode)) {
                TRY(make_way(name, entry));
                parent = TRY(folder_for(entry.path));
                rc = raw::mkdirat(parent, name.c_str(), 0700);
            }
        }
        if (rc < 0)
            return failed(entry.path, rc);
    }
    const Fd folder{
        raw::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    struct ::stat status;
    const int rc = folder ? raw::fstat(folder.get(), &status) : folder.error();
    if (rc < 0)
        return failed(entry.path, rc);
    keep_attributes(folder.get(), entry);
    TRY(take_owner(parent, name, entry, status, folder.get()));
    record(entry, status);
    return {};
}

Result<> Tree::make_hard_link(const Entry& entry, int parent, const std::string& name)
{
    const auto missing = [&] {
        return refuse(cannot_unpack, called(entry.path),
                      "it is a hard link to " + in_quotes(entry.target) +
                          ", which is not in the tree",
                      "make the archive of the whole tree, as in: tar -C TREE -c .");
    };
    const std::string above{folder_of(entry.target)};
    const std::string last{last_of(entry.target)};
    const Fd folder = TRY(open_folder(above.empty() ? "." : above, entry.path));
    struct ::stat target;
    if (!folder || raw::fstatat(folder.get(), last.c_str(), &target, AT_SYMLINK_NOFOLLOW) < 0 ||
        S_ISDIR(target.st_mode))
        return missing();
    const auto link = [&](int to) {
        return static_cast<int>(
            raw::call(SYS_linkat, folder.get(), last.c_str(), to, name.c_str(), 0));
    };
    struct ::stat there;
    int rc = link(parent);
    if (rc == -EEXIST && raw::fstatat(parent, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
        rc = 0;
        if (there.st_ino != target.st_ino) {
            TRY(make_way(name, entry));
            rc = link(TRY(folder_for(entry.path)));
        }
    }
    if (rc == -ENOENT)
        return missing();
    // Of a file that earlier layers have, this name alone is the layer's.
    struct ::stat above_it;
    if (rc == 0 && has_layers_) {
        rc = raw::fstat(TRY(folder_for(entry.path)), &above_it);
        if (rc == 0)
            layer_links_.emplace(above_it.st_ino, name);
    }
    return rc < 0 ? failed(entry.path, rc) : Result<>{};
}

Result<> Tree::make_node(const Entry& entry, int parent, const std::string& name)
{
    const auto make = [&] {
        return entry.type == Type::symlink
                   ? raw::symlinkat(entry.target.c_str(), parent, name.c_str())
                   : raw::mknodat(parent, name.c_str(), S_IFIFO | (entry.mode & permissions), 0);
    };
    int rc = make();
    if (rc == -EEXIST) {
        TRY(make_way(name, entry));
        parent = TRY(folder_for(entry.path));
        rc = make();
    }
    struct ::stat status;
    if (rc == 0)
        rc = raw::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        return failed(entry.path, rc);
    TRY(take_owner(parent, name, entry, status, -1));
    keep_attributes(-1, entry);
    record(entry, status);
    rc = set_times(parent, name.c_str(), entry);
    return rc < 0 ? failed(entry.path, rc) : Result<>{};
}

Result<> Tree::note_device(const Entry& entry, int parent, const std::string& name)
{
    struct ::stat there;
    if (raw::fstatat(parent, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
        TRY(make_way(name, entry));
        parent = TRY(folder_for(entry.path));
    }
    Entry device = entry;
    const std::string path = path_of(parent) + "/" + name;
    device.path = path.substr(root_path_.size() + 1);
    devices_[device.path] = device;
    return {};
}

// Layers.

bool Tree::is_of_layer(int folder, const std::string& name, const struct ::stat& status) const
{
    if (layer_.count(status.st_ino) != 0)
        return true;
    struct ::stat above;
    return raw::fstat(folder, &above) == 0 && layer_links_.count({above.st_ino, name}) != 0;
}

Result<> Tree::remove_earlier(int folder, const std::string& name, const std::string& member)
{
    struct ::stat status;
    int rc = raw::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
    if (rc == -ENOENT)
        return {};
    if (rc < 0)
        return failed(member, rc);
    const bool stays = is_of_layer(folder, name, status);
    if (!S_ISDIR(status.st_mode)) {
        rc = stays ? 0 : raw::unlinkat(folder, name.c_str(), 0);
        return rc < 0 ? failed(member, rc) : Result<>{};
    }
    Fd below{raw::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!below)
        return failed(member, below.error());
    for (const std::string& inner : list_folder(below.get()))
        TRY(remove_earlier(below.get(), inner, member));
    below.reset();
    rc = stays ? 0 : raw::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
    // The layer has something in it.
    return rc < 0 && rc != -ENOTEMPTY ? failed(member, rc) : Result<>{};
}

Result<> Tree::hide(const Member& member)
{
    const std::string& path = member.entry.path;
    const bool is_opaque = member.kind == Member::Kind::opaque;
    const std::string above = is_opaque ? path : std::string{folder_of(path)};
    const Fd folder =
        open_in(root_, above.empty() ? "." : above, O_RDONLY | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
    if (folder.error() == -ENOENT)
        return {};
    if (folder.error() == -ELOOP || folder.error() == -ENOTDIR)
        return refuse(cannot_unpack, called(path),
                      "it hides something behind a symbolic link, or in what is no folder");
    if (!folder)
        return failed(path, folder.error());
    forget_folder();
    const std::string last{last_of(path)};
    const std::string prefix = is_opaque ? (path == "." ? "" : path + "/") : path + "/";
    std::erase_if(devices_, [&](const auto& device) {
        return (device.first.starts_with(prefix) || (!is_opaque && device.first == path));
    });
    if (!is_opaque)
        return remove_earlier(folder.get(), last, path);
    for (const std::string& name : list_folder(folder.get()))
        TRY(remove_earlier(folder.get(), name, path));
    return {};
}

Result<> Tree::add(const Member& member)
{
    if (member.kind != Member::Kind::entry)
        return hide(member);
    const Entry& entry = member.entry;
    const int parent = TRY(folder_for(entry.path));
    const std::string name{last_of(entry.path)};
    if (entry.path == "." && entry.type != Type::directory)
        return refuse(cannot_unpack, called("."), "the root can be a folder only");
    switch (entry.type) {
    case Type::directory:
        return make_folder(entry, parent, name);
    case Type::hard_link:
        return make_hard_link(entry, parent, name);
    case Type::character_device:
    case Type::block_device:
        return note_device(entry, parent, name);
    default:
        return make_node(entry, parent, name);
    }
}

// Files.

Result<> Tree::begin_file(const Entry& entry)
{
    if (entry.path == ".")
        return refuse(cannot_unpack, called("."), "the root can be a folder only");
    int parent = TRY(folder_for(entry.path));
    const std::string name{last_of(entry.path)};
    const auto open = [&] {
        return Fd{raw::openat(parent, name.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              entry.mode & permissions)};
    };
    file_ = open();
    if (file_.error() == -EEXIST) {
        TRY(make_way(name, entry));
        parent = TRY(folder_for(entry.path));
        file_ = open();
    }
    const int rc = file_ ? raw::fstat(file_.get(), &file_status_) : file_.error();
    if (rc < 0)
        return failed(entry.path, rc);
    if ((entry.mode & set_id_bits) != 0)
        ++set_id_files_;
    file_entry_ = entry;
    file_entry_.size = 0;
    file_end_ = 0;
    return {};
}

Result<> Tree::write(std::uint64_t offset, std::string_view data)
{
    written_ += data.size();
    if (written_ > max_size_)
        return refuse(cannot_unpack, "all of it", "it is larger than " + size_text(max_size_),
                      "--max-size allows more");
    for (std::size_t at = 0; at < data.size();) {
        const std::uint64_t place = offset + at;
        // In order it needs no position.
        const long put =
            place == file_end_
                ? raw::write(file_.get(), data.data() + at, data.size() - at)
                : raw::call(SYS_pwrite64, file_.get(), data.data() + at, data.size() - at, place);
        if (put == -EINTR)
            continue;
        if (put < 0)
            return failed(file_entry_.path, static_cast<int>(put));
        at += static_cast<std::size_t>(put);
        if (place == file_end_)
            file_end_ += static_cast<std::uint64_t>(put);
        file_entry_.size = std::max(file_entry_.size, place + static_cast<std::uint64_t>(put));
    }
    return {};
}

Result<> Tree::end_file(const std::string& content, std::uint64_t size)
{
    const Fd file = std::move(file_);
    file_entry_.content = content;
    if (size != file_entry_.size)
        if (const long rc = raw::call(SYS_ftruncate, file.get(), size); rc < 0)
            return failed(file_entry_.path, static_cast<int>(rc));
    file_entry_.size = size;
    TRY(take_owner(-1, {}, file_entry_, file_status_, file.get()));
    int rc = 0;
    if ((file_status_.st_mode & 07777) != (file_entry_.mode & permissions))
        rc = raw::fchmod(file.get(), file_entry_.mode & permissions);
    if (!file_entry_.attributes.empty())
        keep_attributes(file.get(), file_entry_);
    if (rc == 0)
        rc = set_times(file.get(), nullptr, file_entry_);
    if (rc < 0)
        return failed(file_entry_.path, rc);
    record(file_entry_, file_status_);
    return {};
}

// The end.

namespace {

Type type_of(const struct ::stat& status)
{
    if (S_ISDIR(status.st_mode))
        return Type::directory;
    if (S_ISLNK(status.st_mode))
        return Type::symlink;
    return S_ISFIFO(status.st_mode) ? Type::fifo : Type::file;
}

/// Of several names of one file the first is the file, the others are links to that.
void name_hard_links(std::vector<std::pair<Entry, ino_t>>& all)
{
    std::unordered_map<ino_t, std::string> first;
    for (auto& [entry, inode] : all) {
        if (inode == 0)
            continue;
        const auto [found, is_new] = first.emplace(inode, entry.path);
        if (is_new)
            continue;
        Entry link;
        link.type = Type::hard_link;
        link.path = entry.path;
        link.target = found->second;
        entry = std::move(link);
    }
}

}  // namespace

Result<Manifest> Tree::finish()
{
    forget_folder();
    std::vector<std::pair<Entry, ino_t>> all;
    Visitor visitor;
    visitor.before = [&](const Found& found) -> Result<bool> {
        Entry entry;
        const auto known = records_.find(found.status.st_ino);
        if (known != records_.end()) {
            entry = known->second;
        } else {
            // Only the root, where the archive does not name it.
            entry.type = type_of(found.status);
            entry.mode = 0755;
        }
        entry.path = found.path;
        // Whoever is to use the root has to get into it.
        if (found.path == ".")
            entry.mode |= 0700;
        std::sort(entry.attributes.begin(), entry.attributes.end());
        devices_.erase(found.path);
        const bool has_links = found.open < 0 && found.status.st_nlink > 1;
        all.emplace_back(std::move(entry), has_links ? found.status.st_ino : 0);
        return true;
    };
    visitor.after = [&](const Found& found) -> Result<> {
        const auto known = records_.find(found.status.st_ino);
        Entry entry;
        entry.mode = 0755;
        if (known != records_.end())
            entry = known->second;
        if (known == records_.end()) {
            struct ::stat status = found.status;
            TRY(take_owner(-1, {}, entry, status, found.open));
        }
        int rc = raw::fchmod(found.open, found.path == "." ? entry.mode | 0700 : entry.mode);
        if (rc == 0)
            rc = set_times(found.open, nullptr, entry);
        return rc < 0 ? failed(found.path, rc) : Result<>{};
    };
    TRY(walk(root_, visitor));
    for (auto& [path, device] : devices_)
        if (open_in(root_, std::string{folder_of("./" + path)}, O_PATH | O_DIRECTORY,
                    RESOLVE_NO_SYMLINKS))
            all.emplace_back(std::move(device), 0);
    std::sort(all.begin(), all.end(),
              [](const auto& one, const auto& other) { return one.first.path < other.first.path; });
    name_hard_links(all);
    Manifest manifest;
    manifest.reserve(all.size());
    for (auto& [entry, inode] : all)
        manifest.push_back(std::move(entry));
    return manifest;
}

std::vector<std::string> Tree::notes() const
{
    std::vector<std::string> notes;
    if (!devices_.empty())
        notes.push_back(counted(devices_.size(), "device node", "device nodes") +
                        " left out: a sandbox has a /dev of its own");
    if (set_id_files_ > 0)
        notes.push_back(counted(set_id_files_, "file", "files") +
                        " without the set-user-id or set-group-id bit that the manifest records");
    if (foreign_owners_ > 0)
        notes.push_back(counted(foreign_owners_, "owner", "owners") +
                        " that no id here stands for: the files are root's");
    std::uint64_t lost = 0;
    std::string names;
    for (const auto& [name, count] : lost_attributes_) {
        lost += count;
        names += (names.empty() ? "" : ", ") + in_quotes(name);
    }
    constexpr std::size_t most = 200;
    if (names.size() > most)
        names = names.substr(0, most) + "...";
    if (lost > 0)
        notes.push_back(counted(lost, "extended attribute", "extended attributes") +
                        " in the manifest only: " + names);
    return notes;
}

}  // namespace nsbox::rootfs
