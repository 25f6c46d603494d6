// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "net/steps.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/socket.h>

namespace nsbox::net {

namespace raw = sys::raw;

int run(const LoopbackUp&, sys::ChildState& state) noexcept
{
    const sys::Fd socket{
        static_cast<int>(raw::call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))};
    if (!socket)
        return state.failed(sys::Site::source, socket.error());
    ifreq request{};
    request.ifr_name[0] = 'l';
    request.ifr_name[1] = 'o';
    request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    const long rc = raw::call(SYS_ioctl, socket.get(), SIOCSIFFLAGS, &request);
    return static_cast<int>(rc);
}

}  // namespace nsbox::net
