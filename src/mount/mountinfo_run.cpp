// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "mount/mountinfo.hpp"

#include "sys/mount_flags.hpp"
#include "sys/text.hpp"

namespace nsbox::mount {

namespace {

/// Ends the field at `at` with NUL and moves behind it; null at the end of the line.
char* take_field(char*& at, char* end) noexcept
{
    if (at >= end)
        return nullptr;
    char* const field = at;
    while (at < end && *at != ' ')
        ++at;
    if (at < end)
        *at++ = '\0';
    return field;
}

bool to_number(const char* text, std::uint32_t& value) noexcept
{
    if (text == nullptr || *text == '\0')
        return false;
    std::uint64_t sum = 0;
    for (; *text != '\0'; ++text) {
        if (*text < '0' || *text > '9')
            return false;
        sum = sum * 10 + static_cast<unsigned>(*text - '0');
        if (sum > 0xffffffffU)
            return false;
    }
    value = static_cast<std::uint32_t>(sum);
    return true;
}

struct Option {
    const char* name;
    unsigned long flag;
};

constexpr Option options[] = {
    {"ro", sys::ms_rdonly},         {"nosuid", sys::ms_nosuid},
    {"nodev", sys::ms_nodev},       {"noexec", sys::ms_noexec},
    {"noatime", sys::ms_noatime},   {"nodiratime", sys::ms_nodiratime},
    {"relatime", sys::ms_relatime}, {"nosymfollow", sys::ms_nosymfollow},
};

unsigned long to_flags(char* text) noexcept
{
    unsigned long flags = 0;
    while (*text != '\0') {
        char* const name = text;
        while (*text != '\0' && *text != ',')
            ++text;
        if (*text == ',')
            *text++ = '\0';
        for (const Option& option : options)
            if (sys::equal(name, option.name))
                flags |= option.flag;
    }
    // No mention of access times means that each one is written, which has to be asked for.
    if ((flags & (sys::ms_noatime | sys::ms_relatime)) == 0)
        flags |= sys::ms_strictatime;
    return flags;
}

bool is_octal(char c) noexcept
{
    return c >= '0' && c <= '7';
}

}  // namespace

bool next_mount(char*& at, char* end, MountLine& line) noexcept
{
    while (at < end) {
        char* line_end = at;
        while (line_end < end && *line_end != '\n')
            ++line_end;
        char* field_at = at;
        // The last field that is used is followed by others, so its NUL stays inside the line.
        char* const id = take_field(field_at, line_end);
        char* const parent = take_field(field_at, line_end);
        take_field(field_at, line_end);  // Device number.
        take_field(field_at, line_end);  // Root of the mount in its file system.
        char* const mount_point = take_field(field_at, line_end);
        char* const flags = take_field(field_at, line_end);
        const bool whole = flags != nullptr && field_at < line_end;
        at = line_end < end ? line_end + 1 : end;
        if (!whole || !to_number(id, line.id) || !to_number(parent, line.parent))
            continue;
        line.mount_point = mount_point;
        line.flags = to_flags(flags);
        return true;
    }
    return false;
}

void unescape(char* text) noexcept
{
    char* out = text;
    while (*text != '\0') {
        if (text[0] == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3])) {
            *out++ = static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + text[3] - '0');
            text += 4;
        } else {
            *out++ = *text++;
        }
    }
    *out = '\0';
}

}  // namespace nsbox::mount
