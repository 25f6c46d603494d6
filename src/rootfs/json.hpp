#pragma once

// JSON of others: whatever is missing or of another type is as if it were empty. Nothing of the
// library may throw, so that every access asks for the type first.

#ifndef JSON_NOEXCEPTION
#define JSON_NOEXCEPTION
#endif

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsbox::rootfs {

using Json = nlohmann::json;

/// Discarded where it is no JSON, or nested deeper than anything sensible is.
inline Json parse_json(std::string_view text)
{
    constexpr int most_levels = 64;
    bool too_deep = false;
    Json value = Json::parse(
        text.begin(), text.end(),
        [&](int depth, Json::parse_event_t, const Json&) {
            too_deep = too_deep || depth > most_levels;
            return !too_deep;
        },
        false);
    return too_deep ? Json(Json::value_t::discarded) : value;
}

inline const Json& member(const Json& object, const char* name)
{
    static const Json nothing;
    if (!object.is_object())
        return nothing;
    const auto found = object.find(name);
    return found == object.end() ? nothing : *found;
}

inline std::string text_of(const Json& value)
{
    return value.is_string() ? value.get_ref<const std::string&>() : std::string{};
}

inline std::vector<std::string> texts_of(const Json& value)
{
    std::vector<std::string> texts;
    if (value.is_array())
        for (const Json& element : value)
            texts.push_back(text_of(element));
    return texts;
}

inline std::uint64_t number_of(const Json& value)
{
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

}  // namespace nsbox::rootfs
