#pragma once

#include "runtime/plan.hpp"
#include "tests/unit/support/hosts.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace nsbox::tests {

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
