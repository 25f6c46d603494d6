#include "nsbox/spec.hpp"

#include <cctype>
#include <sys/capability.h>

namespace nsbox {

namespace {

std::string to_lower(std::string text)
{
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

}  // namespace

std::optional<unsigned> capability_by_name(const std::string& name)
{
    std::string wanted = to_lower(name);
    if (wanted.compare(0, 4, "cap_") != 0)
        wanted.insert(0, "cap_");
    cap_value_t value = 0;
    // libcap takes a prefix that is followed by other text for a match: compare the whole.
    if (::cap_from_name(wanted.c_str(), &value) != 0)
        return std::nullopt;
    const std::vector<std::string> names = capability_names();
    const auto index = static_cast<std::size_t>(value);
    if (index >= names.size() || to_lower(names[index]) != wanted)
        return std::nullopt;
    return static_cast<unsigned>(value);
}

std::vector<std::string> capabilities_after(const std::vector<CapabilityEdit>& edits, bool all)
{
    using Kind = CapabilityEdit::Kind;
    const std::vector<std::string> names = capability_names();
    std::vector<bool> has(names.size(), all);
    for (const CapabilityEdit& edit : edits) {
        const bool adds = edit.kind == Kind::add || edit.kind == Kind::add_all;
        if (edit.kind == Kind::add_all || edit.kind == Kind::drop_all)
            has.assign(names.size(), adds);
        else if (edit.number < names.size())
            has[edit.number] = adds;
    }
    std::vector<std::string> left;
    for (std::size_t at = 0; at < names.size(); ++at)
        if (has[at])
            left.push_back(names[at]);
    return left;
}

std::vector<std::string> capability_names()
{
    std::vector<std::string> names;
    for (cap_value_t value = 0; value < 64; ++value) {
        char* const text = ::cap_to_name(value);
        if (text == nullptr)
            break;
        std::string name = text;
        ::cap_free(text);
        // Beyond the last name that it knows, libcap prints numbers.
        if (name.compare(0, 4, "cap_") != 0)
            break;
        for (char& c : name)
            c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        names.push_back(std::move(name));
    }
    return names;
}

}  // namespace nsbox
