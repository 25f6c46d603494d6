#include "runtime/denials/advise.hpp"

#include "ns/seccomp/evaluate.hpp"
#include "nsbox/seccomp.hpp"

#include <algorithm>

namespace nsbox::runtime {

bool Adviser::would_allow(const std::string& what, const FilterWish& wish, const seccomp_data& call)
{
    const auto [it, is_new] = tried_.try_emplace(what);
    if (is_new)
        if (const Result<std::vector<std::uint8_t>> program = compile_filter(wish))
            it->second = ns::seccomp::instructions_of(*program);
    return !it->second.empty() &&
           !ns::seccomp::is_stricter(ns::seccomp::evaluate(it->second, call), SECCOMP_RET_LOG);
}

std::string Adviser::option_for(const seccomp_data& call)
{
    if (wish_.policy.empty())
        return {};
    FilterWish other = wish_;
    other.user_namespaces = true;
    if (would_allow("userns", other, call))
        return "--allow-userns";
    other = wish_;
    other.tracing = true;
    if (would_allow("tracing", other, call))
        return "--allow-ptrace";
    other = wish_;
    other.capabilities = capability_names();
    std::vector<std::string> names = capability_names();
    // The one that opens nearly everything comes last.
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name != "CAP_SYS_ADMIN"; });
    if (would_allow("all", other, call))
        for (const std::string& name : names) {
            other.capabilities = wish_.capabilities;
            other.capabilities.push_back(name);
            if (would_allow(name, other, call))
                return "--cap-add " + name;
        }
    // A file that begins with "allow CALL" and goes on with "include default".
    return "--seccomp-policy FILE";
}

}  // namespace nsbox::runtime
