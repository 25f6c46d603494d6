#include "rootfs/lower.hpp"

#include "rootfs/names.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <sys/xattr.h>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using Type = Entry::Type;

Fd open_below(int folder, const std::string& path, std::uint64_t flags)
{
    return Fd{raw::openat2(folder, path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC,
                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)};
}

bool has(int folder, const std::string& path)
{
    return static_cast<bool>(open_below(folder, path, O_PATH));
}

/// It shows nothing of the folder below it.
bool is_opaque(const Fd& folder)
{
    char value = '\0';
    return ::fgetxattr(folder.get(), "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

}  // namespace

Lower::Lower(const Manifest& manifest, int upper, bool are_recorded)
    : manifest_(manifest), upper_(upper), are_recorded_(are_recorded)
{
    for (const Entry& entry : manifest)
        entries_.emplace(entry.path, &entry);
}

const Entry* Lower::find(const std::string& path) const
{
    auto found = entries_.find(path);
    if (found != entries_.end() && found->second->type == Type::hard_link)
        found = entries_.find(found->second->target);
    return found != entries_.end() ? found->second : nullptr;
}

void Lower::complete(Entry& entry) const
{
    const Entry* const known = find(entry.path);
    if (known == nullptr || known->type != entry.type)
        return;
    const bool is_changed = has(upper_, entry.path);
    if (are_recorded_ || !is_changed) {
        entry.uid = known->uid;
        entry.gid = known->gid;
    }
    if (!is_changed) {
        entry.mode = known->mode;
        entry.attributes = known->attributes;
    }
}

bool Lower::stays(int merged, const std::string& folder) const
{
    for (std::size_t at = 0; at < folder.size();) {
        const std::size_t end = std::min(folder.find('/', at), folder.size());
        const std::string above = folder.substr(0, end);
        at = end + 1;
        const Fd changed = open_below(upper_, above, O_RDONLY | O_DIRECTORY);
        if (!open_below(merged, above, O_PATH | O_DIRECTORY) || (changed && is_opaque(changed)))
            return false;
    }
    return true;
}

std::vector<Entry> Lower::devices(int merged) const
{
    std::vector<Entry> all;
    for (const Entry& entry : manifest_) {
        const bool is_device =
            entry.type == Type::character_device || entry.type == Type::block_device;
        if (is_device && !has(merged, entry.path) &&
            stays(merged, std::string{folder_of(entry.path)}))
            all.push_back(entry);
    }
    return all;
}

}  // namespace nsbox::rootfs
