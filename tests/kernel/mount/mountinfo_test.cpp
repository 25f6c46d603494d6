#include "mount/mountinfo.hpp"

#include "sys/mount_flags.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

using namespace nsbox;

namespace {

unsigned long flags_of(const struct ::statvfs& status)
{
    struct Pair {
        unsigned long theirs;
        unsigned long ours;
    };
    // ST_RDONLY is true for a read-only file system too, which is no flag of the mount.
    unsigned long flags = 0;
    for (const Pair& pair :
         {Pair{ST_NOSUID, sys::ms_nosuid}, Pair{ST_NODEV, sys::ms_nodev},
          Pair{ST_NOEXEC, sys::ms_noexec}, Pair{ST_NOATIME, sys::ms_noatime},
          Pair{ST_NODIRATIME, sys::ms_nodiratime}, Pair{ST_RELATIME, sys::ms_relatime}})
        if ((status.f_flag & pair.theirs) != 0)
            flags |= pair.ours;
    return flags;
}

}  // namespace

TEST_CASE("mountinfo: the real table's flags are those that statvfs tells")
{
    std::ifstream file{"/proc/self/mountinfo"};
    std::string table{std::istreambuf_iterator<char>{file}, {}};
    REQUIRE_FALSE(table.empty());
    char* at = table.data();
    int compared = 0;
    mount::MountLine line;
    while (mount::next_mount(at, table.data() + table.size(), line)) {
        mount::unescape(line.mount_point);
        struct ::statx where {};
        struct ::statvfs status {};
        // What another mount covers cannot be asked about.
        constexpr unsigned mask_mnt_id = 0x1000;
        if (::statx(AT_FDCWD, line.mount_point, AT_NO_AUTOMOUNT, mask_mnt_id, &where) < 0 ||
            where.stx_mnt_id != line.id || ::statvfs(line.mount_point, &status) < 0)
            continue;
        CAPTURE(std::string{line.mount_point});
        ++compared;
        const unsigned long told = flags_of(status);
        constexpr unsigned long ours = sys::ms_nosuid | sys::ms_nodev | sys::ms_noexec |
                                       sys::ms_noatime | sys::ms_nodiratime | sys::ms_relatime;
        CHECK((line.flags & ours) == told);
    }
    CHECK(compared >= 1);
}
