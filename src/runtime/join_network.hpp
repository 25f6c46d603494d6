#pragma once

#include "nsbox/spec.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"
#include "sys/host.hpp"

namespace nsbox::runtime {

/// A network namespace of somebody else's, and how this process may enter it: setns(2) takes
/// CAP_SYS_ADMIN in the user namespace that owns it and in the one that the process is in.
struct ForeignNetwork {
    sys::Fd network;
    sys::Fd owner;  ///< The user namespace to be entered first, for a process without rights.
};

/// Opens what `wish` names and makes sure that it can be entered, as far as that can be seen. Errors
/// say what is in the way. NS_GET_USERNS and NS_GET_PARENT: Linux 4.9; NS_GET_NSTYPE and
/// NS_GET_OWNER_UID: 4.11. See ioctl_ns(2).
Result<ForeignNetwork> find_network(const JoinNetwork& wish, const sys::Host& host);

}  // namespace nsbox::runtime
