#pragma once

#include "rootfs/info.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

namespace nsbox::rootfs {

/// A folder below "staging" that this process alone uses: its lock, flock(2), says that it does.
/// What a dead process left has no lock.
struct Staging {
    std::string name;
    sys::Fd folder;
};

/// A root of the store that cannot go while this lives.
struct Use {
    std::string path;  ///< Of the folder with "tree" and the rest in it.
    sys::Fd lock;
    Info info;
};

/// The folder of root filesystems; see doc/rootfs.md for what is in it. Every change is one
/// rename(2), made under a lock where two could get in each other's way.
class Store {
public:
    /// `make`: with all that is in it, where it is not there. ENOENT without.
    enum class IfMissing { make, fail };
    static Result<Store> open(const std::string& path, IfMissing what);

    const std::string& path() const noexcept { return path_; }

    // Roots.

    bool has(const std::string& digest) const;
    /// Nothing where it is not there. Marks the time of this use.
    Result<std::optional<Use>> use(const std::string& digest) const;
    std::vector<std::string> roots() const;
    /// Takes the root out of the store, into a staging folder. Refused while it is in use.
    Result<Staging> take_out(const std::string& digest, const std::string& called) const;
    /// When it was last used, in seconds since 1970.
    std::int64_t last_use(const std::string& digest) const;
    bool is_in_use(const std::string& digest) const;

    // Names.

    std::optional<std::string> named(const std::string& name) const;
    std::vector<std::pair<std::string, std::string>> names() const;  ///< Name and digest, sorted.
    std::vector<std::string> names_of(const std::string& digest) const;
    Result<> set_name(const std::string& name, const std::string& digest) const;
    void remove_name(const std::string& name) const;
    /// The digest that a name, or the beginning of a digest, stands for. Nothing where none does;
    /// an error where a beginning is that of several.
    Result<std::optional<std::string>> find(const std::string& word) const;

    // Digests of files, by what stat(2) says.

    std::optional<std::string> remembered(const struct ::stat& file) const;
    void remember(const struct ::stat& file, const std::string& digest) const;
    void forget_dead_files() const;

    // Imports.

    /// Waits until nobody else imports the same.
    Result<sys::Fd> lock_import(const std::string& digest) const;
    Result<Staging> stage() const;
    /// The staging folder becomes a root; false where that is there already.
    Result<bool> publish(Staging& staging, const std::string& digest) const;
    /// Those that dead processes left, locked by this process now.
    std::vector<Staging> dead_stagings() const;
    /// Of an empty one.
    void remove_staging(const Staging& staging) const;

private:
    Result<sys::Fd> lock_store(int operation) const;

    std::string path_;
    sys::Fd folder_;
    sys::Fd roots_;
    sys::Fd names_;
    sys::Fd files_;
    sys::Fd locks_;
    sys::Fd staging_;
};

/// The names in a folder but "." and "..", sorted.
std::vector<std::string> list_folder(int folder);
/// All of a file, at most 64 MiB.
Result<std::string> read_all(int folder, const std::string& name, const std::string& called);
Result<> write_all(int folder, const std::string& name, const std::string& bytes);

}  // namespace nsbox::rootfs
