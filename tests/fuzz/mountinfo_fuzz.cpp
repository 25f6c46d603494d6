// The parser of the mount table, on any bytes.

#include "mount/mountinfo.hpp"
#include "sys/mount_flags.hpp"
#include "words.hpp"

#include <cstring>

using namespace nsbox;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    // Exactly as large as the table: a sanitizer sees a step beyond it.
    std::vector<char> table{data, data + size};
    char* at = table.data();
    char* const end = at + size;
    constexpr unsigned long known = sys::ms_rdonly | sys::ms_nosuid | sys::ms_nodev |
                                    sys::ms_noexec | sys::ms_nosymfollow | sys::ms_noatime |
                                    sys::ms_nodiratime | sys::ms_relatime | sys::ms_strictatime;
    mount::MountLine line;
    for (const char* before = at; mount::next_mount(at, end, line); before = at) {
        fuzz::require(at > before && at <= end, "each line takes the parser further");
        fuzz::require(line.mount_point >= before && line.mount_point < at,
                      "the mount point lies in the line");
        const std::size_t length = std::strlen(line.mount_point);
        fuzz::require(line.mount_point + length < end, "the mount point ends in the table");
        fuzz::require((line.flags & ~known) == 0, "only flags that mount(2) knows");
        mount::unescape(line.mount_point);
        fuzz::require(std::strlen(line.mount_point) <= length, "unescaping makes nothing longer");
    }
    fuzz::require(at == end, "the whole table was read");
    return 0;
}
