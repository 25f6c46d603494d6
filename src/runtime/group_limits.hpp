#pragma once

#include "nsbox/spec.hpp"
#include "runtime/hierarchy.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// A file of a control group, and what is to be written to it.
struct GroupSetting {
    std::string file;
    std::string text;  ///< Empty: what the group above has in its file.
    bool may_be_missing = false;
};

/// What one limit takes of a controller: the kernel's cgroup-v2 and cgroup-v1 documentation.
struct GroupWish {
    std::string what;        ///< As messages call it.
    std::string controller;  ///< Of version 2...
    std::vector<GroupSetting> settings;
    std::string old_controller;  ///< ...and of version 1.
    std::vector<GroupSetting> old_settings;
};

inline constexpr char delegate_hint[] = "an ordinary user needs a group that is delegated, as "
                                        "systemd-run --user --scope -p Delegate=yes "
                                        "gives one; --limits best-effort goes on without the limit";

/// What limits come to. `own`: how many processes are in the groups that are not a command's. Fails for a
/// disk that is none.
Result<std::vector<GroupWish>> group_wishes(const GroupLimits& limits, unsigned own);

/// A limit that no control group can be made for.
struct UnmetWish {
    std::string what;
    std::string why;
};

/// The control groups that hold everything in a sandbox, init as well, to its limits: one in each hierarchy
/// that has to do with them. The sandbox's first process enters them before anything else.
///
/// This process makes and removes them. A guard, which runs before they do, removes them once this process
/// and the sandbox have ended.
class LimitGroups {
public:
    /// Finds out where groups could be made. Changes nothing.
    static std::unique_ptr<LimitGroups> prepare(std::vector<GroupWish> wishes,
                                                const HierarchyTexts& texts,
                                                const std::string& name);
    LimitGroups(const LimitGroups&) = delete;
    LimitGroups& operator=(const LimitGroups&) = delete;
    /// What lives on in them is the guard's.
    ~LimitGroups() = default;

    const std::vector<UnmetWish>& unmet() const noexcept { return unmet_; }

    /// Starts the guard, makes the groups and sets the limits. `at_once`: the sandbox ends with this
    /// process. `as_a_whole`: nothing of it is left when its first process has ended.
    Result<> make(bool at_once, bool as_a_whole);

    /// Their lists of processes, for enter_groups(): valid until close_entrances().
    std::vector<int> entrances() const;
    void close_entrances();

    std::vector<std::string> paths() const;
    /// That of version 2, or empty: below it there may be others.
    std::string unified_path() const;

    /// How many processes the kernel has killed for want of memory; nothing where no group counts that.
    std::optional<std::uint64_t> oom_kills() const noexcept;

    /// When the first process is dead and reaped. Nothing happens when it is called again.
    void remove();

    std::vector<int> descriptors() const;

private:
    struct Place {
        sys::Fd folder;  ///< What the group is made in...
        std::string path;
        bool is_unified = false;
        std::string to_enable;  ///< ...and what has to be written to its list of lent controllers.
        std::vector<std::size_t> wishes;
        sys::Fd entrance;
        bool is_made = false;
    };

    LimitGroups() = default;
    void find_old(const HierarchyTexts& texts, std::size_t number);
    void find_unified(const HierarchyTexts& texts, const std::vector<std::size_t>& numbers);
    Result<> make_in(Place& place);
    Result<> set(const Place& place, const sys::Fd& group, const GroupWish& wish);

    std::string name_;
    std::vector<GroupWish> wishes_;
    std::vector<UnmetWish> unmet_;
    std::vector<Place> places_;
    sys::Fd guard_;
    sys::Fd memory_events_;
    mutable std::optional<std::uint64_t> oom_kills_;
    bool as_a_whole_ = false;
};

}  // namespace nsbox::runtime
