#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)

namespace nsbox {

/// Ids that a user may give to the processes of its user namespaces; see subuid(5).
struct SubordinateRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};

struct SubordinateIds {
    std::vector<SubordinateRange> uids;
    std::vector<SubordinateRange> gids;
};

/// What /etc/subuid and /etc/subgid grant to the caller's real user id, by one of its names in /etc/passwd
/// or by its number, in the files' order; empty if that is nothing. Lines that grant nothing, or that
/// nobody can read, are passed over. An error where a file is there and cannot be read.
Result<SubordinateIds> subordinate_ids();

/// A map for Spec::uid_map or Spec::gid_map, of the ids 0 to 65535 as far as `ranges` go: the N-th of them
/// is the id N, but for `inside`, which is the caller's `own`.
std::vector<IdRange> map_beside_own(const std::vector<SubordinateRange>& ranges,
                                    std::uint32_t inside, std::uint32_t own);

}  // namespace nsbox

#pragma GCC visibility pop
