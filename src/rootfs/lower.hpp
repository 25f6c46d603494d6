#pragma once

#include "rootfs/manifest.hpp"

#include <string>
#include <unordered_map>
#include <vector>

namespace nsbox::rootfs {

/// What only the manifest of the tree below an overlay knows about what is seen in the overlay.
/// Of what sandboxes did, the upper folder tells: everything they made or changed is in it. See the
/// kernel's overlayfs documentation.
class Lower {
public:
    /// All are borrowed. `upper` is the overlay's upper folder, open; `are_recorded`: on disk everything
    /// belongs to the caller.
    Lower(const Manifest& manifest, int upper, bool are_recorded);

    /// Gives an entry that was read from the overlay what the disk does not have of it: set-id bits,
    /// owners and attributes of what is as it was, and recorded owners of what was changed.
    void complete(Entry& entry) const;
    /// The devices in folders that are still those of the lower tree. `merged` is the overlay, open.
    std::vector<Entry> devices(int merged) const;

private:
    const Entry* find(const std::string& path) const;
    bool stays(int merged, const std::string& folder) const;

    const Manifest& manifest_;
    int upper_;
    bool are_recorded_;
    std::unordered_map<std::string, const Entry*> entries_;
};

}  // namespace nsbox::rootfs
