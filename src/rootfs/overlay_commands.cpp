#include "rootfs/overlay_commands.hpp"

#include "rootfs/changes.hpp"
#include "rootfs/json.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/names.hpp"
#include "rootfs/sha256.hpp"
#include "rootfs/store.hpp"
#include "rootfs/walk.hpp"
#include "sys/packing.hpp"
#include "sys/raw.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>
#include <sys/file.h>
#include <utility>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal no_overlay{"Can't use the overlay"};
constexpr Literal cannot_compare{"Can't compare"};

/// What `nsbox run --overlay=FOLDER` made.
struct Overlay {
    std::string path;
    Fd folder;
    Fd upper;
    std::string lower_path;
    Fd lower;                ///< Its owner may have shut it: opened with O_PATH.
    std::optional<Use> use;  ///< Of the lower tree, where it is of the store.
    Ownership ownership;
};

/// Where the path is that of a root of the store: its use, so that it stays.
Result<std::optional<Use>> use_of_tree(const std::string& folder, const std::string& path,
                                       const Fd& tree)
{
    const std::string digest{last_of(folder_of(path))};
    const Result<Store> store = Store::open(folder, Store::IfMissing::fail);
    if (!store && store.error().err != ENOENT)
        return tl::make_unexpected(store.error());
    if (!store || last_of(path) != "tree" || !is_digest(digest))
        return std::nullopt;
    std::optional<Use> use = TRY(store->use(digest));
    if (!use)
        return std::nullopt;
    struct ::stat one;
    struct ::stat other;
    if (raw::fstat(tree.get(), &one) < 0 ||
        raw::fstatat(AT_FDCWD, (use->path + "/tree").c_str(), &other, AT_SYMLINK_NOFOLLOW) < 0 ||
        one.st_dev != other.st_dev || one.st_ino != other.st_ino)
        return std::nullopt;
    return use;
}

Result<Overlay> open_overlay(const std::string& store, const std::string& folder)
{
    Overlay overlay;
    std::array<char, PATH_MAX> path;
    if (::realpath(folder.c_str(), path.data()) == nullptr)
        return fail(no_overlay, errno, folder);
    overlay.path = path.data();
    overlay.folder = Fd{raw::openat(AT_FDCWD, path.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!overlay.folder)
        return fail(no_overlay, -overlay.folder.error(), folder);
    const int at = overlay.folder.get();
    overlay.upper = Fd{raw::openat(at, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    const bool has_lower = raw::faccessat(at, "lower", F_OK) == 0;
    if (overlay.upper.error() == -ENOENT || overlay.upper.error() == -ENOTDIR || !has_lower)
        return refuse(no_overlay, folder,
                      std::string{"it has no "} +
                          (overlay.upper ? "file \"lower\"" : "folder \"upper\""),
                      "nsbox run --rootfs ROOT --overlay=" + folder + " makes one");
    if (!overlay.upper)
        return fail(no_overlay, -overlay.upper.error(), folder + "/upper");
    overlay.lower_path = TRY(read_all(at, "lower", folder + "/lower"));
    if (overlay.lower_path.ends_with('\n'))
        overlay.lower_path.pop_back();
    overlay.lower =
        Fd{raw::openat(AT_FDCWD, overlay.lower_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!overlay.lower || overlay.lower_path[0] != '/')
        return fail(no_overlay, overlay.lower ? EINVAL : -overlay.lower.error(), folder,
                    "it holds changes of " + in_quotes(overlay.lower_path));
    overlay.use = TRY(use_of_tree(store, overlay.lower_path, overlay.lower));
    if (overlay.use)
        overlay.ownership = {overlay.use->info.owners, overlay.use->info.subordinate};
    else
        overlay.ownership = best_ownership();
    return overlay;
}

// diff

using Changes = std::vector<Change>;

std::string encode(const Result<Changes>& changes)
{
    std::string out;
    sys::pack(out, changes ? 1 : 0);
    if (!changes) {
        sys::pack(out, changes.error().message());
        return out;
    }
    sys::pack(out, changes->size());
    for (const Change& change : *changes) {
        sys::pack(out, static_cast<std::uint64_t>(change.kind));
        sys::pack(out, change.is_directory ? 1 : 0);
        sys::pack(out, change.path);
    }
    return out;
}

Result<Changes> decode(const std::string& bytes, const std::string& called)
{
    sys::Unpacker from{bytes};
    if (from.number() != 1) {
        const std::string why = from.text();
        return from.is_done() && !why.empty()
                   ? refuse("", why)
                   : refuse(cannot_compare, called, "the process that does it has ended");
    }
    Changes changes;
    for (std::uint64_t left = from.count(); left > 0; --left) {
        Change change;
        change.kind = static_cast<Change::Kind>(from.number());
        change.is_directory = from.number() == 1;
        change.path = from.text();
        changes.push_back(std::move(change));
    }
    if (!from.is_done())
        return refuse(cannot_compare, called, "there are too many changes");
    return changes;
}

Result<Changes> changes_of(const Overlay& overlay)
{
    const auto compare = [&] { return list_changes(overlay.upper.get(), overlay.lower.get()); };
    if (overlay.ownership.owners != Owners::subordinate)
        return compare();
    // Who has the files' owners for subordinates can read all of them. No link is followed, so that
    // this needs no wall; and it does need /proc.
    std::string said;
    const auto before = [&] {
        raise_descriptor_limit();
        drop_other_capabilities();
        said = encode(compare());
    };
    const Result<std::string> told = in_tree(
        overlay.folder.get(), overlay.ownership, {overlay.upper.get(), overlay.lower.get()},
        [&](const Site&) { return said; }, before);
    if (told)
        return decode(*told, overlay.path);
    // Of a folder that is no root of the store, all may belong to the caller.
    if (overlay.use)
        return tl::make_unexpected(told.error());
    return compare();
}

/// Fit for a line of its own.
std::string shown(const std::string& path)
{
    std::string out;
    for (const char c : path) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f && c != '\\') {
            out += c;
            continue;
        }
        out += '\\';
        for (const unsigned shift : {6U, 3U, 0U})
            out += static_cast<char>('0' + (byte >> shift & 7U));
    }
    return out;
}

Result<Manifest> manifest_of(const Use& use)
{
    const std::string path = use.path + "/manifest";
    const std::string text = TRY(read_all(AT_FDCWD, path, path));
    if (sha256_of(text) != use.info.manifest)
        return refuse("Can't read", path, "it is damaged",
                      "nsbox rootfs rm removes the root filesystem; import it again");
    return parse_manifest(text, path);
}

const char* name_of(Change::Kind kind)
{
    if (kind == Change::Kind::added)
        return "added";
    return kind == Change::Kind::changed ? "changed" : "deleted";
}

}  // namespace

Result<std::string> diff_overlay(const std::string& store, const std::string& folder, bool as_json)
{
    const Overlay overlay = TRY(open_overlay(store, folder));
    std::string text;
    for (const Change& change : TRY(changes_of(overlay))) {
        const char* const name = name_of(change.kind);
        const std::string path = "/" + change.path;
        if (as_json) {
            const Json json{{"change", name}, {"path", path}, {"directory", change.is_directory}};
            text += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
            continue;
        }
        text += static_cast<char>(name[0] - 'a' + 'A');
        text += " " + shown(path) + (change.is_directory ? "/\n" : "\n");
    }
    return text;
}

Result<Imported> commit_overlay(const std::string& store, const std::string& folder,
                                const std::string& name)
{
    const Overlay overlay = TRY(open_overlay(store, folder));
    // The sandbox that uses it has an exclusive one; not every file system locks.
    if (raw::call(SYS_flock, overlay.upper.get(), LOCK_SH | LOCK_NB) == -EWOULDBLOCK)
        return refuse(no_overlay, folder, "it is in use by a sandbox",
                      "nsbox ps lists those that run; wait for its end");
    const Store into = TRY(Store::open(store, Store::IfMissing::make));
    StackRequest request;
    request.folders = {overlay.path + "/upper", overlay.lower_path};
    request.called = overlay.path;
    request.name = name;
    Manifest lower;
    if (overlay.use) {
        lower = TRY(manifest_of(*overlay.use));
        request.lower = &lower;
        request.ownership = overlay.ownership;
        request.image = overlay.use->info.image;
    }
    return import_stack(into, request);
}

}  // namespace nsbox::rootfs
