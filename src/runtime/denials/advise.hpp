#pragma once

#include "nsbox/spec.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// Finds out which option would have a filter let a call through, by trying the filters that those make.
class Adviser {
public:
    explicit Adviser(FilterWish wish) : wish_(std::move(wish)) {}

    /// An option of both command lines; empty where there is none, as where somebody else made the filter.
    std::string option_for(const seccomp_data& call);

private:
    bool would_allow(const std::string& what, const FilterWish& wish, const seccomp_data& call);

    FilterWish wish_;
    std::map<std::string, std::vector<sock_filter>> tried_;  ///< Compiled once; empty: it failed.
};

}  // namespace nsbox::runtime
