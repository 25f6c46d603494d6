#pragma once

#include "nsbox/spec.hpp"
#include "runtime/plan.hpp"
#include "sys/host.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace nsbox::tests {

inline constexpr std::uint64_t every_capability = (std::uint64_t{1} << 41) - 1;

/// An ordinary user's view of a host that has everything. Made up.
inline sys::Host user_host()
{
    sys::Host host;
    host.uid = 1000;
    host.gid = 1001;
    host.effective_uid = 1000;
    host.all_capabilities = every_capability;
    host.has_mount_api = false;  // That is asked for root only.
    host.environment = {"PATH=/opt/bin:/usr/bin", "HOME=/home/jo", "PWD=/work/link", "TERM=dumb"};
    host.logical_directory = "/work/link";
    host.physical_directory = "/work/real";
    return host;
}

inline sys::Host root_host()
{
    sys::Host host = user_host();
    host.uid = host.gid = host.effective_uid = 0;
    host.effective_capabilities = host.permitted_capabilities = every_capability;
    host.has_mount_api = host.owns_kernel_settings = true;
    return host;
}

/// No namespace but the mount namespace is asked for, as with bwrap's command line.
inline Spec plain_spec()
{
    Spec spec;
    Namespaces& ns = spec.namespaces;
    ns.user = ns.pid = ns.ipc = ns.net = ns.uts = ns.cgroup = Own::no;
    spec.command = {"true"};
    return spec;
}

template <class Step>
const char* step_signature()
{
    return __PRETTY_FUNCTION__;
}

/// A step's type without its namespaces: "BindTree".
inline std::string kind_of(const runtime::ChildStep& step)
{
    const std::string_view text = std::visit(
        [](const auto& s) { return step_signature<std::remove_cvref_t<decltype(s)>>(); }, step);
    const std::size_t begin = text.rfind("::") + 2;
    return std::string{text.substr(begin, text.rfind(']') - begin)};
}

/// The kinds of all steps, divided by blanks.
inline std::string kinds_of(const runtime::Plan& plan)
{
    std::string text;
    for (const runtime::ChildStep& step : plan.steps)
        text += (text.empty() ? "" : " ") + kind_of(step);
    return text;
}

/// The steps of one kind, in order.
template <class Step>
std::vector<Step> steps_of(const runtime::Plan& plan)
{
    std::vector<Step> found;
    for (const runtime::ChildStep& step : plan.steps)
        if (const auto* const wanted = std::get_if<Step>(&step))
            found.push_back(*wanted);
    return found;
}

/// The only step of a kind.
template <class Step>
Step step_of(const runtime::Plan& plan)
{
    const std::vector<Step> found = steps_of<Step>(plan);
    REQUIRE(found.size() == 1);
    return found.front();
}

inline runtime::Plan planned(const Spec& spec, const sys::Host& host)
{
    Result<runtime::Plan> plan = runtime::plan(spec, host);
    if (!plan)
        FAIL("refused: ", plan.error().message());
    return std::move(*plan);
}

/// The message of a plan that must not be made.
inline std::string refusal(const Spec& spec, const sys::Host& host)
{
    const Result<runtime::Plan> plan = runtime::plan(spec, host);
    REQUIRE_FALSE(plan.has_value());
    return plan.error().message();
}

inline bool begins_with(const std::string& text, std::string_view beginning)
{
    return text.compare(0, beginning.size(), beginning) == 0;
}

inline bool contains(const std::string& text, std::string_view part)
{
    return text.find(part) != std::string::npos;
}

/// Texts of a table of pointers that ends with null.
inline std::vector<std::string> texts_of(const std::vector<const char*>& table)
{
    REQUIRE_FALSE(table.empty());
    REQUIRE(table.back() == nullptr);
    return {table.begin(), table.end() - 1};
}

}  // namespace nsbox::tests
