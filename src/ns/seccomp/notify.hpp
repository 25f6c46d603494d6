#pragma once

#include <array>
#include <cstdint>
#include <linux/filter.h>
#include <span>
#include <vector>

namespace nsbox::ns::seccomp {

using FilterProgram = std::vector<std::uint8_t>;

/// Filters that refuse what others refuse, but have a listener asked before (seccomp_unotify(2)).
struct Notifying {
    /// To be loaded with a listener. What one of the others answers by an error is SECCOMP_RET_USER_NOTIF
    /// here, since the kernel would not ask about what any filter refuses.
    FilterProgram listener;
    std::vector<FilterProgram> rest;  ///< Behind it, in this order: what is no error, as before.
    /// The filters, by their numbers, whose errors the listener has to answer: the others are in
    /// `rest` as they are, since they compute their answers or do not fit.
    std::vector<std::size_t> asked;
};

/// Rewrites filters so. Calls with one of the numbers in `watched`, of the calling convention
/// `architecture` (AUDIT_ARCH_*), are notified too where no filter refuses them. Calls with one of the
/// numbers in `passing` and the words `pass` as their last three arguments are let through.
Notifying make_notifying(std::span<const FilterProgram> filters, std::uint32_t architecture,
                         std::span<const std::uint32_t> watched,
                         std::span<const std::uint32_t> passing,
                         const std::array<std::uint64_t, 3>& pass);

}  // namespace nsbox::ns::seccomp
