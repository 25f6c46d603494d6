#pragma once

#include <optional>
#include <vector>

#include <sys/types.h>

namespace nsbox::tool {

/// Makes this process the one that adopts what a sandbox without a pid namespace leaves behind if
/// its init is killed (PR_SET_CHILD_SUBREAPER, prctl(2)), and ends that. Children that this process
/// had before are left alone. Not for a program with children of its own.
class Orphans {
public:
    /// Nothing, with errno set, where the kernel refuses.
    static std::optional<Orphans> adopt();

    /// Kills and reaps until nothing is left.
    void end() const;

private:
    Orphans() = default;
    std::vector<pid_t> others_;
};

}  // namespace nsbox::tool
