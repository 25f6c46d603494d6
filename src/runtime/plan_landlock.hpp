#pragma once

#include "ns/landlock.hpp"
#include "runtime/plan.hpp"

namespace nsbox::runtime {

/// Pure: what may be done with which paths of the sandbox, as the mounts of its operations say. A rule holds for
/// all below a path, and allows only: what another one above allows already is left out.
std::vector<ns::LandlockPath> rules_for_mounts(const Spec& spec, Plan& plan);

/// What Landlock::only takes the operations for.
std::vector<ns::LandlockPath> rules_for_paths(const Spec& spec, Plan& plan);

/// Refuses what Landlock::only cannot give.
Result<> check_landlock_only(const Spec& spec, const sys::Host& host);

/// The last step but the filters. `capabilities` are those that the command is to have.
Result<> plan_landlock(const Spec& spec, const sys::Host& host, std::uint64_t capabilities,
                       Plan& plan);

/// The step for rules that the plan holds already.
void add_ruleset(const ns::LandlockRights& denied, Plan& plan);

}  // namespace nsbox::runtime
