#pragma once

#include <cstdint>
#include <vector>

namespace nsbox::ns {

/// Which sockets can be made; pairs (socketpair(2)) always.
enum class Sockets {
    none,
    internet,  ///< Those of IPv4 and IPv6, and netlink(7), with which libraries ask about these.
};

/// A classic BPF program: no other sockets, EACCES, nor io_uring(7), which makes some too. What is there
/// already goes on.
std::vector<std::uint8_t> allow_sockets(Sockets sockets);

/// A classic BPF program against what Landlock's rules about TCP ports do not see: MPTCP, SMC,
/// TCP Fast Open (MSG_FASTOPEN) and io_uring(7).
std::vector<std::uint8_t> refuse_other_tcp();

}  // namespace nsbox::ns
