#include "nsbox/spec.hpp"

#include <algorithm>
#include <cctype>
#include <sys/resource.h>

namespace nsbox {

namespace {

struct Resource {
    const char* name;
    unsigned number;
};

constexpr Resource resources[] = {
    {"cpu", RLIMIT_CPU},           {"fsize", RLIMIT_FSIZE},
    {"data", RLIMIT_DATA},         {"stack", RLIMIT_STACK},
    {"core", RLIMIT_CORE},         {"rss", RLIMIT_RSS},
    {"nproc", RLIMIT_NPROC},       {"nofile", RLIMIT_NOFILE},
    {"memlock", RLIMIT_MEMLOCK},   {"as", RLIMIT_AS},
    {"locks", RLIMIT_LOCKS},       {"sigpending", RLIMIT_SIGPENDING},
    {"msgqueue", RLIMIT_MSGQUEUE}, {"nice", RLIMIT_NICE},
    {"rtprio", RLIMIT_RTPRIO},     {"rttime", RLIMIT_RTTIME},
};

}  // namespace

std::optional<unsigned> resource_by_name(const std::string& name)
{
    std::string lower = name;
    for (char& c : lower)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    constexpr std::string_view prefix = "rlimit_";
    if (lower.starts_with(prefix))
        lower.erase(0, prefix.size());
    for (const Resource& resource : resources)
        if (lower == resource.name)
            return resource.number;
    return std::nullopt;
}

std::vector<std::string> resource_names()
{
    std::vector<std::string> names(std::size(resources));
    for (const Resource& resource : resources)
        names[resource.number] = resource.name;
    return names;
}

}  // namespace nsbox
