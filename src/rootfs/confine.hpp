#pragma once

#include "nsbox/rootfs.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace nsbox::rootfs {

/// How files are owned, and by which subordinate ids.
struct Ownership {
    Owners owners = Owners::as_they_are;
    StoredIds ids;
};

/// What the caller's owners can be at best: root has all ids; who has 65536 subordinate ones, and
/// newuidmap(1) and newgidmap(1), has those.
Ownership best_ownership();
/// Why the caller has none, for a message; empty where he has some.
std::string why_no_subordinate_ids(StoredIds& ids);

/// How an error of Confined::start() begins.
inline constexpr Literal cannot_confine{"Can't confine the unpacking"};

/// Which ids of a user's own namespace mean whom.
constexpr std::uint32_t subordinate_count = 65536;
/// The caller himself, where ids below are subordinate ones.
constexpr std::uint32_t caller_id = subordinate_count;

/// Ids, as ranges of them.
struct IdSet {
    struct Range {
        std::uint64_t first = 0;
        std::uint64_t count = 0;
    };
    std::vector<Range> ranges;

    bool has(std::uint64_t id) const;
};
/// Whom files of a tree can belong to that is made by this process, with these owners, by the
/// archive's ids. `map` is /proc/self/uid_map or gid_map.
IdSet ids_of_tree(Owners owners, const char* map);

/// What runs in a confined process.
struct Site {
    int root = -1;        ///< The tree, open; paths are resolved below it.
    bool walled = false;  ///< The tree is also the root of this process.
};

/// A process that can reach nothing of the file tree but one folder, and what is open already:
/// user and mount namespaces (user_namespaces(7)), a root of its own, no_new_privs, and of the
/// capabilities those about files. It ends when this one does.
class Confined {
public:
    /// Runs the function in a copy of this process, which must have one thread only, and no more
    /// after it returned. Where namespaces are not to be had, and the ownership allows that, it
    /// runs without: Site::walled says so.
    /// All descriptors but the standard ones, the tree and those to be kept are closed in it.
    /// `before` is the first thing it runs: in its namespaces, with the caller's file tree and all
    /// capabilities that it has in them.
    static Result<Confined> start(int tree, const Ownership& ownership, std::vector<int> keep,
                                  const std::function<int(const Site&)>& function,
                                  const std::function<void()>& before = {});
    Confined(Confined&&) noexcept = default;
    Confined& operator=(Confined&&) = delete;
    /// Kills it if it runs.
    ~Confined();

    /// Its exit status, or 128 + the signal that ended it.
    int wait();

private:
    explicit Confined(pid_t pid) : pid_(pid) {}

    struct Pid {
        pid_t value = -1;
        Pid(pid_t number) : value(number) {}
        Pid(Pid&& other) noexcept : value(other.value) { other.value = -1; }
    };
    Pid pid_;
    sys::Fd life_;  ///< Closed when this process ends.
};

/// For the thread that makes files: they are the root user's from here on, where ids are
/// subordinate. See setfsuid(2).
void make_files_as_root(const Ownership& ownership);
/// Keeps the capabilities about files only. Of the calling thread.
void drop_other_capabilities();

}  // namespace nsbox::rootfs
