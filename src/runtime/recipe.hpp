#pragma once

#include "runtime/plan.hpp"
#include "sys/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// What Spec::landlock came to: see ns::MakeRuleset.
struct LandlockRules {
    struct Path {
        std::string path;
        std::uint64_t access = 0;
        bool may_be_missing = false;
        bool operator==(const Path&) const = default;
    };
    struct Ports {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::uint64_t access = 0;
        bool operator==(const Ports&) const = default;
    };
    std::uint64_t files = 0;
    std::uint64_t ports = 0;
    std::uint64_t scoped = 0;
    std::vector<Path> paths;
    std::vector<Ports> port_ranges;
    bool operator==(const LandlockRules&) const = default;
};

/// How a further command in a running sandbox is confined: as its main command was.
struct Recipe {
    std::vector<std::string> environment;  ///< NAME=value, without PWD.
    std::string directory;                 ///< Where the main command started, if that was said.
    std::string likely_directory;          ///< Where it started otherwise, if that exists inside.
    std::string home;
    std::vector<std::vector<std::uint8_t>> filters;
    std::optional<std::uint64_t> bounding;  ///< What is to stay in the bounding set.
    std::optional<std::uint64_t> capabilities;
    bool ambient = false;
    bool refuse_user_namespaces = false;
    std::optional<std::uint64_t>
        ids;                   ///< Of the command where several are mapped: uid, gid << 32...
    bool drop_groups = false;  ///< ...and whether it has lost the caller's groups.
    std::optional<std::uint64_t> umask;  ///< If it is not the caller's.
    bool own_keyring = false;            ///< A session keyring that is not the caller's.
    std::optional<LandlockRules> landlock;
    bool in_place = false;            ///< It has no namespaces of its own.
    std::vector<std::string> limits;  ///< The paths of the groups that hold it to its limits.
    std::string group;                ///< The path of the sandbox's control group, or empty.
};

/// What of a plan another process needs to know.
Recipe recipe_of(const Plan& plan);

/// The two forms of a Recipe in memory; decode() refuses what is cut off or has something behind.
std::string encode(const Recipe& recipe);
Result<Recipe> decode(const std::string& bytes);

}  // namespace nsbox::runtime
