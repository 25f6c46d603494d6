#pragma once

#include "rootfs/archive.hpp"
#include "rootfs/confine.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/store.hpp"
#include "sys/error.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::rootfs {

struct ImportRequest {
    std::string source;  ///< A path, or "-" for standard input.
    std::optional<std::string> name;
    Limits limits;
    std::optional<Owners> owners;  ///< Default: the best that the caller can have.
    std::string image;
    std::string called;  ///< Default: the source.
};

/// Folders that are to be one root filesystem, see mount_stack().
struct StackRequest {
    std::vector<std::string> folders;  ///< Absolute paths.
    std::string called;
    std::optional<std::string> name;
    /// Where nothing is given: the best that the caller can have.
    std::optional<Ownership> ownership;
    Image image;  ///< What is to be known of it, as if it were one.
    /// What is known of the lower one of two folders, which is `ownership`'s; borrowed.
    const Manifest* lower = nullptr;
};

struct Imported {
    std::string digest;
    bool was_there = false;
    std::vector<std::string> notes;
};

/// Waits for another import of the same; nothing of a failed one stays.
Result<Imported> import(const Store& store, const ImportRequest& request);
/// The digest is that of the same tree as a folder, unless there is something to be known of it.
Result<Imported> import_stack(const Store& store, const StackRequest& request);

/// Removes a staging folder and what is in it.
Result<> discard(const Store& store, const Staging& staging);
/// Those that dead processes left; how many there were.
std::size_t discard_dead(const Store& store);

/// Runs a function in a confined process whose root is a tree of the store, and gives what it
/// returns: text. Its standard descriptors are those of this process. `before` is that of
/// Confined::start().
Result<std::string> in_tree(int tree, const Ownership& ownership, std::vector<int> keep,
                            const std::function<std::string(const Site&)>& function,
                            const std::function<void()>& before = {});

}  // namespace nsbox::rootfs
