#pragma once

#include "nsbox/ids.hpp"
#include "sys/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

enum class IdKind { user, group };

/// What is to be written once the child is there; both maps are empty where it writes its own.
struct IdMaps {
    std::vector<IdRange> uids;
    std::vector<IdRange> gids;
    bool directly = false;        ///< This process may map any id.
    bool deny_setgroups = false;  ///< The groups are the caller's own one alone.

    bool any() const { return !uids.empty(); }
};

/// Pure: refuses what no kernel takes: nothing, too much, ranges that overlap.
Result<> check_id_map(IdKind kind, const std::vector<IdRange>& map);

/// The caller's id that is `inside` in the sandbox.
std::optional<std::uint32_t> outside_of(const std::vector<IdRange>& map, std::uint32_t inside);

/// As /proc/PID/uid_map takes it.
std::string map_text(const std::vector<IdRange>& map);

/// The map of a user namespace below, with the same numbers on both sides.
std::string same_ids_text(const std::vector<IdRange>& map);

/// The line that /etc/subuid or /etc/subgid lacks for this map to be granted to `own`; empty where
/// `granted` covers it.
std::string missing_line(const std::vector<IdRange>& map, std::uint32_t own,
                         const std::vector<SubordinateRange>& granted, const std::string& name);

}  // namespace nsbox::runtime
