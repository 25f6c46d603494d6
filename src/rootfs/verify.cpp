#include "rootfs/verify.hpp"

#include "rootfs/import.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/names.hpp"
#include "rootfs/sha256.hpp"
#include "rootfs/walk.hpp"
#include "sys/packing.hpp"
#include "sys/raw.hpp"

#include <array>
#include <map>
#include <set>
#include <unordered_map>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using Type = Entry::Type;

constexpr unsigned permissions = 0777;

/// The kind of thing that is on disk for an entry.
mode_t kind_of(const Entry& entry)
{
    switch (entry.type) {
    case Type::directory:
        return S_IFDIR;
    case Type::symlink:
        return S_IFLNK;
    case Type::fifo:
        return S_IFIFO;
    default:
        return S_IFREG;
    }
}

bool is_device(const Entry& entry)
{
    return entry.type == Type::character_device || entry.type == Type::block_device;
}

/// Whom files belong to, by the ids of the process that compares.
struct Possession {
    Owners owners = Owners::as_they_are;
    uid_t caller_uid = 0;
    IdSet uids;  ///< Those that files can belong to.
    IdSet gids;

    bool fits(const struct ::stat& status, const Entry& entry) const
    {
        // The group may be that of a set-group-id folder that the store is in.
        if (owners == Owners::recorded)
            return status.st_uid == caller_uid;
        const bool is_possible = uids.has(entry.uid) && gids.has(entry.gid);
        return status.st_uid == (is_possible ? entry.uid : 0) &&
               status.st_gid == (is_possible ? entry.gid : 0);
    }
};

class Comparison {
public:
    Comparison(const Manifest& manifest, const Possession& possession) : possession_(possession)
    {
        for (const Entry& entry : manifest)
            if (!is_device(entry))
                expected_[entry.path] = &entry;
    }

    Result<bool> look_at(const Found& found)
    {
        const auto known = expected_.find(found.path);
        if (known == expected_.end()) {
            say(found.path, "is not in the manifest");
            return false;
        }
        seen_.insert(found.path);
        inodes_[found.path] = found.status.st_ino;
        const Entry* entry = known->second;
        if (entry->type == Type::hard_link) {
            links_.push_back(entry);
            const auto target = expected_.find(entry->target);
            if (target == expected_.end())
                return false;
            entry = target->second;
        }
        compare(found, *entry);
        return true;
    }

    std::vector<std::string> take()
    {
        for (const auto& [path, entry] : expected_)
            if (seen_.count(path) == 0)
                say(path, "is missing");
        for (const Entry* link : links_)
            if (inodes_[link->path] != inodes_[link->target])
                say(link->path, "is not the same file as " + in_quotes(link->target));
        std::vector<std::string> lines;
        for (const auto& [path, text] : differences_)
            lines.push_back(in_quotes(path) + " " + text);
        return lines;
    }

private:
    void say(const std::string& path, std::string text)
    {
        differences_.emplace(path, std::move(text));
    }

    void compare(const Found& found, const Entry& entry)
    {
        const mode_t kind = found.status.st_mode & S_IFMT;
        if (kind != kind_of(entry)) {
            say(found.path, "is of another type");
            return;
        }
        // Files are without their set-id bits on disk.
        const unsigned mask = kind == S_IFDIR ? 07777 : permissions;
        if (kind != S_IFLNK && (found.status.st_mode & 07777) != (entry.mode & mask))
            say(found.path, "has another mode");
        if (!possession_.fits(found.status, entry))
            say(found.path, "belongs to another");
        if (kind == S_IFLNK)
            compare_target(found, entry);
        if (kind == S_IFREG)
            compare_content(found, entry);
    }

    void compare_target(const Found& found, const Entry& entry)
    {
        std::array<char, 4096> text;
        const long got =
            raw::readlinkat(found.folder, found.name.c_str(), text.data(), text.size());
        if (got < 0 || std::string_view(text.data(), static_cast<std::size_t>(got)) != entry.target)
            say(found.path, "leads elsewhere");
    }

    void compare_content(const Found& found, const Entry& entry)
    {
        if (static_cast<std::uint64_t>(found.status.st_size) != entry.size) {
            say(found.path, "has another size");
            return;
        }
        if (!read_.insert(found.status.st_ino).second)
            return;
        const Fd file{raw::openat(found.folder, found.name.c_str(),
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
        const Result<std::string> content =
            file ? sha256_of_file(file.get(), found.path) : fail("Can't open", -file.error());
        if (!content)
            say(found.path, "cannot be read: " + content.error().message());
        else if (*content != entry.content)
            say(found.path, "has another content");
    }

    const Possession& possession_;
    std::map<std::string, const Entry*> expected_;
    std::set<std::string> seen_;
    std::unordered_map<std::string, ino_t> inodes_;
    std::set<ino_t> read_;
    std::vector<const Entry*> links_;
    std::multimap<std::string, std::string> differences_;
};

/// In the process that has the tree for its root.
std::string compare(const Manifest& manifest, const Possession& possession, const Site& site)
{
    raise_descriptor_limit();
    drop_other_capabilities();
    Comparison comparison{manifest, possession};
    Visitor visitor;
    visitor.before = [&](const Found& found) { return comparison.look_at(found); };
    const Result<> walked = walk(site.root, visitor);
    std::vector<std::string> lines = comparison.take();
    if (!walked)
        lines.push_back(walked.error().message());
    std::string out;
    sys::pack(out, lines.size());
    for (const std::string& line : lines)
        sys::pack(out, line);
    return out;
}

}  // namespace

Result<std::vector<std::string>> verify(const Use& use)
{
    const Fd folder{raw::openat(AT_FDCWD, use.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    const Fd tree{
        folder ? raw::openat(folder.get(), "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
               : folder.error()};
    if (!tree)
        return fail("Can't open", -tree.error(), use.path + "/tree");
    const std::string text = TRY(read_all(folder.get(), "manifest", use.path + "/manifest"));
    if (sha256_of(text) != use.info.manifest)
        return refuse("Can't verify", use.path, "its manifest is damaged",
                      "nsbox rootfs rm removes it; import it again");
    const Manifest manifest = TRY(parse_manifest(text, use.path + "/manifest"));
    Possession possession{use.info.owners};
    possession.uids = ids_of_tree(use.info.owners, "/proc/self/uid_map");
    possession.gids = ids_of_tree(use.info.owners, "/proc/self/gid_map");
    const std::string said = TRY(in_tree(tree.get(), {use.info.owners, use.info.subordinate},
                                         {folder.get()}, [&](const Site& site) {
                                             // Who made the tree made the folder that it is in, too.
                                             struct ::stat made {};
                                             (void)raw::fstat(folder.get(), &made);
                                             possession.caller_uid = made.st_uid;
                                             return compare(manifest, possession, site);
                                         }));
    sys::Unpacker from{said};
    std::vector<std::string> lines;
    for (std::uint64_t left = from.count(); left > 0; --left)
        lines.push_back(from.text());
    if (!from.is_done())
        return refuse("Can't verify", use.path, "the process that does it has ended");
    return lines;
}

}  // namespace nsbox::rootfs
