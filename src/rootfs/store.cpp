#include "rootfs/store.hpp"

#include "rootfs/names.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <memory>
#include <sys/file.h>
#include <unistd.h>

namespace nsbox {

namespace {

constexpr Literal cannot_find{"Can't find the store of root filesystems"};

/// Of the user's line in /etc/passwd.
std::string home_from_passwd()
{
    const std::string text = sys::read_file("/etc/passwd");
    const std::string id = std::to_string(::geteuid());
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::vector<std::string> fields{""};
        for (; at < end; ++at)
            if (text[at] == ':')
                fields.emplace_back();
            else
                fields.back() += text[at];
        ++at;
        if (fields.size() >= 6 && fields[2] == id)
            return fields[5];
    }
    return {};
}

std::string environment(const char* name)
{
    const char* const value = ::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

Result<std::string> store_folder(const RootfsOptions& options)
{
    std::string path = options.store;
    if (path.empty())
        path = environment("NSBOX_STORE");
    if (path.empty() && environment("XDG_DATA_HOME").starts_with('/'))
        path = environment("XDG_DATA_HOME") + "/nsbox";
    if (path.empty()) {
        std::string home = environment("HOME");
        if (home.empty())
            home = home_from_passwd();
        if (!home.starts_with('/'))
            return refuse(cannot_find, {}, "you have no home folder",
                          "set NSBOX_STORE to a folder");
        path = home + "/.local/share/nsbox";
    }
    if (path[0] == '/')
        return path;
    std::array<char, PATH_MAX> here;
    if (::getcwd(here.data(), here.size()) == nullptr)
        return fail(cannot_find, errno, path);
    return std::string{here.data()} + "/" + path;
}

}  // namespace nsbox

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_open{"Can't open the store of root filesystems"};
constexpr Literal cannot_change{"Can't change the store of root filesystems"};

constexpr int open_folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

int lock(int fd, int operation)
{
    int rc = 0;
    do {
        rc = static_cast<int>(raw::call(SYS_flock, fd, operation));
    } while (rc == -EINTR);
    return rc;
}

int rename_at(int from, const std::string& old_name, int to, const std::string& new_name)
{
    return static_cast<int>(
        raw::call(SYS_renameat2, from, old_name.c_str(), to, new_name.c_str(), 0));
}

/// Makes a folder and those above it.
int make_folders(const std::string& path)
{
    int rc = raw::mkdirat(AT_FDCWD, path.c_str(), 0700);
    if (rc != -ENOENT)
        return rc == -EEXIST ? 0 : rc;
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1))
        raw::mkdirat(AT_FDCWD, path.substr(0, slash).c_str(), 0755);
    rc = raw::mkdirat(AT_FDCWD, path.c_str(), 0700);
    return rc == -EEXIST ? 0 : rc;
}

/// A name that nobody else chose.
Result<std::string> unused_name()
{
    std::array<char, 8> bytes;
    if (raw::call(SYS_getrandom, bytes.data(), bytes.size(), 0) != static_cast<long>(bytes.size()))
        return fail(cannot_change, EIO, "getrandom");
    return to_hex({bytes.data(), bytes.size()});
}

std::string read_link(int folder, const std::string& name)
{
    std::array<char, 128> text;
    const long got = raw::readlinkat(folder, name.c_str(), text.data(), text.size());
    return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

bool is_same_file(int fd, int folder, const std::string& name)
{
    struct ::stat one;
    struct ::stat other;
    return raw::fstat(fd, &one) == 0 &&
           raw::fstatat(folder, name.c_str(), &other, AT_SYMLINK_NOFOLLOW) == 0 &&
           one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

std::string file_key(const struct ::stat& file)
{
    std::string key;
    for (const auto number :
         {static_cast<long long>(file.st_dev), static_cast<long long>(file.st_ino),
          static_cast<long long>(file.st_size), static_cast<long long>(file.st_mtim.tv_sec),
          static_cast<long long>(file.st_mtim.tv_nsec), static_cast<long long>(file.st_ctim.tv_sec),
          static_cast<long long>(file.st_ctim.tv_nsec)})
        key += (key.empty() ? "" : "-") + std::to_string(number);
    return key;
}

}  // namespace

std::vector<std::string> list_folder(int folder)
{
    std::vector<std::string> names;
    const int copy = raw::openat(folder, ".", open_folder);
    const std::unique_ptr<DIR, int (*)(DIR*)> entries{copy >= 0 ? ::fdopendir(copy) : nullptr,
                                                      ::closedir};
    while (entries) {
        const dirent* const entry = ::readdir(entries.get());
        if (entry == nullptr)
            break;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..")
            names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

Result<std::string> read_all(int folder, const std::string& name, const std::string& called)
{
    constexpr std::size_t most = std::size_t{64} << 20;
    const Fd file{raw::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
    if (!file)
        return fail("Can't open", -file.error(), called);
    struct ::stat status;
    if (raw::fstat(file.get(), &status) < 0 || static_cast<std::size_t>(status.st_size) > most)
        return fail("Can't read", EFBIG, called);
    std::string text(static_cast<std::size_t>(status.st_size) + 1, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const long got = raw::read(file.get(), text.data() + size, text.size() - size);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail("Can't read", static_cast<int>(-got), called);
        if (got == 0)
            break;
        size += static_cast<std::size_t>(got);
    }
    text.resize(size);
    return text;
}

Result<> write_all(int folder, const std::string& name, const std::string& bytes)
{
    const Fd file{raw::openat(folder, name.c_str(),
                              O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)};
    long put = file ? 0 : file.error();
    for (std::size_t at = 0; put >= 0 && at < bytes.size(); at += static_cast<std::size_t>(put))
        do {
            put = raw::write(file.get(), bytes.data() + at, bytes.size() - at);
        } while (put == -EINTR);
    if (put < 0)
        return fail(cannot_change, static_cast<int>(-put), name);
    return {};
}

Result<Store> Store::open(const std::string& path, IfMissing what)
{
    Store store;
    store.path_ = path;
    if (what == IfMissing::make)
        if (const int rc = make_folders(path); rc < 0)
            return fail(cannot_open, -rc, path, "NSBOX_STORE or --store names another folder");
    store.folder_ = Fd{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    struct ::stat status;
    const int rc = store.folder_ ? raw::fstat(store.folder_.get(), &status) : store.folder_.error();
    if (rc < 0)
        return fail(cannot_open, -rc, path);
    if (status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
        return refuse(cannot_open, path, "it belongs to another user, or others may write to it",
                      "NSBOX_STORE or --store names another folder");
    const std::array<std::pair<const char*, Fd*>, 5> parts{{{"roots", &store.roots_},
                                                            {"names", &store.names_},
                                                            {"files", &store.files_},
                                                            {"locks", &store.locks_},
                                                            {"staging", &store.staging_}}};
    for (const auto& [name, fd] : parts) {
        if (what == IfMissing::make)
            raw::mkdirat(store.folder_.get(), name, 0700);
        *fd = Fd{raw::openat(store.folder_.get(), name, open_folder)};
        if (!*fd)
            return fail(cannot_open, -fd->error(), path + "/" + name);
    }
    return store;
}

Result<Fd> Store::lock_store(int operation) const
{
    Fd file{raw::openat(folder_.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)};
    const int rc = file ? lock(file.get(), operation) : file.error();
    if (rc < 0)
        return fail("Can't lock the store of root filesystems", -rc, path_ + "/lock");
    return file;
}

// Roots.

bool Store::has(const std::string& digest) const
{
    return is_digest(digest) && raw::faccessat(roots_.get(), (digest + "/lock").c_str(), F_OK) == 0;
}

Result<std::optional<Use>> Store::use(const std::string& digest) const
{
    const std::string name = digest + "/lock";
    Use use;
    use.path = path_ + "/roots/" + digest;
    use.lock = Fd{raw::openat(roots_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
    if (use.lock.error() == -ENOENT)
        return std::nullopt;
    const int rc = use.lock ? lock(use.lock.get(), LOCK_SH) : use.lock.error();
    if (rc < 0)
        return fail("Can't use the root filesystem", -rc, use.path + "/lock");
    // Someone may have taken it away meanwhile.
    if (!is_same_file(use.lock.get(), roots_.get(), name))
        return std::nullopt;
    (void)raw::call(SYS_utimensat, use.lock.get(), nullptr, nullptr, 0);
    const std::string info = use.path + "/info.json";
    const std::string text = TRY(read_all(roots_.get(), digest + "/info.json", info));
    use.info = TRY(parse_info(text, info));
    return use;
}

std::vector<std::string> Store::roots() const
{
    std::vector<std::string> all = list_folder(roots_.get());
    std::erase_if(all, [](const std::string& name) { return !is_digest(name); });
    return all;
}

Result<Staging> Store::take_out(const std::string& digest, const std::string& called) const
{
    constexpr Literal cannot_remove{"Can't remove the root filesystem"};
    const std::string name = digest + "/lock";
    const Fd file{raw::openat(roots_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
    const int rc = file ? lock(file.get(), LOCK_EX | LOCK_NB) : file.error();
    if (rc == -EWOULDBLOCK)
        return refuse(cannot_remove, called, "it is in use",
                      "end the sandboxes that run in it first");
    if (rc < 0)
        return fail(cannot_remove, -rc, called);
    Staging staging;
    staging.name = "removed-" + TRY(unused_name());
    staging.folder = Fd{raw::openat(roots_.get(), digest.c_str(), open_folder)};
    int done = staging.folder ? lock(staging.folder.get(), LOCK_EX) : staging.folder.error();
    if (done == 0 && !is_same_file(file.get(), roots_.get(), name))
        done = -ENOENT;
    if (done == 0)
        done = rename_at(roots_.get(), digest, staging_.get(), staging.name);
    if (done < 0)
        return fail(cannot_remove, -done, called);
    return staging;
}

std::int64_t Store::last_use(const std::string& digest) const
{
    struct ::stat status;
    const std::string name = digest + "/lock";
    return raw::fstatat(roots_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0
               ? status.st_mtim.tv_sec
               : 0;
}

bool Store::is_in_use(const std::string& digest) const
{
    const std::string name = digest + "/lock";
    const Fd file{raw::openat(roots_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
    return file && lock(file.get(), LOCK_EX | LOCK_NB) == -EWOULDBLOCK;
}

// Names.

std::optional<std::string> Store::named(const std::string& name) const
{
    if (!is_name(name))
        return std::nullopt;
    std::string digest = read_link(names_.get(), name);
    if (!is_digest(digest))
        return std::nullopt;
    return digest;
}

std::vector<std::pair<std::string, std::string>> Store::names() const
{
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& name : list_folder(names_.get()))
        if (const std::optional<std::string> digest = named(name))
            all.emplace_back(name, *digest);
    return all;
}

std::vector<std::string> Store::names_of(const std::string& digest) const
{
    std::vector<std::string> found;
    for (const auto& [name, its] : names())
        if (its == digest)
            found.push_back(name);
    return found;
}

Result<> Store::set_name(const std::string& name, const std::string& digest) const
{
    TRY(check_name(name));
    // No name begins with a dot: nobody sees it before it is complete.
    const std::string made = "." + TRY(unused_name());
    int rc = raw::symlinkat(digest.c_str(), names_.get(), made.c_str());
    if (rc == 0)
        rc = rename_at(names_.get(), made, names_.get(), name);
    if (rc < 0)
        return fail("Can't name the root filesystem", -rc, name);
    return {};
}

void Store::remove_name(const std::string& name) const
{
    raw::unlinkat(names_.get(), name.c_str(), 0);
}

Result<std::optional<std::string>> Store::find(const std::string& word) const
{
    if (std::optional<std::string> digest = named(word))
        return digest;
    if (!is_digest_prefix(word))
        return std::nullopt;
    std::optional<std::string> found;
    for (const std::string& digest : roots()) {
        if (!digest.starts_with(word))
            continue;
        if (found)
            return refuse("Can't tell which root filesystem is meant by", word,
                          "several begin like that");
        found = digest;
    }
    return found;
}

// Digests of files.

std::optional<std::string> Store::remembered(const struct ::stat& file) const
{
    std::string digest = read_link(files_.get(), file_key(file));
    if (!is_digest(digest))
        return std::nullopt;
    return digest;
}

void Store::remember(const struct ::stat& file, const std::string& digest) const
{
    // It saves time only: without, the digest is computed again.
    raw::symlinkat(digest.c_str(), files_.get(), file_key(file).c_str());
}

void Store::forget_dead_files() const
{
    for (const std::string& name : list_folder(files_.get()))
        if (!has(read_link(files_.get(), name)))
            raw::unlinkat(files_.get(), name.c_str(), 0);
    for (const std::string& name : list_folder(names_.get()))
        if (!is_name(name))
            raw::unlinkat(names_.get(), name.c_str(), 0);
    for (const std::string& name : list_folder(locks_.get())) {
        const Fd file{raw::openat(locks_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)};
        if (file && lock(file.get(), LOCK_EX | LOCK_NB) == 0)
            raw::unlinkat(locks_.get(), name.c_str(), 0);
    }
}

// Imports.

Result<Fd> Store::lock_import(const std::string& digest) const
{
    constexpr int most_attempts = 1000;
    int rc = 0;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
        Fd file{raw::openat(locks_.get(), digest.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                            0600)};
        rc = file ? lock(file.get(), LOCK_EX) : file.error();
        // gc may have removed it before this process had the lock.
        if (rc == 0 && is_same_file(file.get(), locks_.get(), digest))
            return file;
        if (rc < 0)
            break;
        rc = -EAGAIN;
    }
    return fail("Can't lock the import", -rc, path_ + "/locks/" + digest);
}

Result<Staging> Store::stage() const
{
    // So that gc, which has it alone, does not see a folder whose lock is not taken yet.
    const Fd shared = TRY(lock_store(LOCK_SH));
    Staging staging;
    staging.name = TRY(unused_name());
    int rc = raw::mkdirat(staging_.get(), staging.name.c_str(), 0700);
    if (rc == 0) {
        staging.folder = Fd{raw::openat(staging_.get(), staging.name.c_str(), open_folder)};
        rc =
            staging.folder ? lock(staging.folder.get(), LOCK_EX | LOCK_NB) : staging.folder.error();
    }
    if (rc < 0)
        return fail("Can't make a folder", -rc, path_ + "/staging/" + staging.name);
    return staging;
}

Result<bool> Store::publish(Staging& staging, const std::string& digest) const
{
    const int rc = rename_at(staging_.get(), staging.name, roots_.get(), digest);
    if (rc == -ENOTEMPTY || rc == -EEXIST)
        return false;
    if (rc < 0)
        return fail(cannot_change, -rc, path_ + "/roots/" + digest);
    staging.folder.reset();
    return true;
}

std::vector<Staging> Store::dead_stagings() const
{
    std::vector<Staging> dead;
    const Result<Fd> alone = lock_store(LOCK_EX);
    if (!alone)
        return dead;
    for (const std::string& name : list_folder(staging_.get())) {
        Fd folder{raw::openat(staging_.get(), name.c_str(), open_folder)};
        // What became a root meanwhile has another place, and is not for the taking.
        if (folder && lock(folder.get(), LOCK_EX | LOCK_NB) == 0 &&
            is_same_file(folder.get(), staging_.get(), name))
            dead.push_back({name, std::move(folder)});
    }
    return dead;
}

void Store::remove_staging(const Staging& staging) const
{
    raw::unlinkat(staging_.get(), staging.name.c_str(), AT_REMOVEDIR);
}

}  // namespace nsbox::rootfs
