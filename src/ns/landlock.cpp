#include "ns/landlock.hpp"

namespace nsbox::ns {

LandlockRights landlock_rights(int abi) noexcept
{
    LandlockRights rights;
    if (abi < 1)
        return rights;
    rights.files = landlock_refer - 1;
    if (abi >= 2)
        rights.files |= landlock_refer;
    if (abi >= 3)
        rights.files |= landlock_truncate;
    if (abi >= 4)
        rights.ports = landlock_bind_tcp | landlock_connect_tcp;
    if (abi >= 5)
        rights.files |= landlock_ioctl_dev;
    if (abi >= 6)
        rights.scoped = landlock_abstract_unix_socket | landlock_signal;
    return rights;
}

}  // namespace nsbox::ns
