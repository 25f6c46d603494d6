#pragma once

#include "runtime/id_maps.hpp"
#include "sys/fd.hpp"

#include <string>
#include <sys/types.h>
#include <vector>

namespace nsbox::runtime {

/// newuidmap(1) or newgidmap(1) at work, which may map what /etc/subuid and /etc/subgid grant. They are
/// set-user-id programs, so that they have to be started by a process that may still gain privileges.
class MapHelper {
public:
    MapHelper(IdKind kind, const std::vector<IdRange>& map, pid_t process, pid_t pid,
              sys::Fd output);

    int output() const { return output_.get(); }
    /// Whether more may come; read() takes it, and blocks until something is there.
    bool reads() const { return static_cast<bool>(output_); }
    void read();
    /// Waits for its end; an error in its own words unless the map is written.
    Result<> finish();
    void stop();

private:
    tl::unexpected<Error> failed() const;

    IdKind kind_;
    const std::vector<IdRange>* map_;
    pid_t process_;  ///< Whose map it writes.
    pid_t pid_;
    sys::Fd output_;
    std::string text_;
};

/// Starts those that are needed. Those that are in `helpers` after an error have been started.
Result<> start_map_helpers(const IdMaps& maps, pid_t process, std::vector<MapHelper>& helpers);

/// For a process that has CAP_SETUID and CAP_SETGID in its user namespace.
Result<> write_maps_directly(const IdMaps& maps, pid_t process);

/// The caller's own group alone, for which nobody is needed.
Result<> write_groups_directly(const IdMaps& maps, pid_t process);

}  // namespace nsbox::runtime
