#pragma once

#include "sys/error.hpp"

#include <cstdint>
#include <span>

namespace nsbox::net::user {

/// Leaves this process no file and nothing to see: an empty root in mount, user, ipc, uts and cgroup
/// namespaces of its own (or, where the host refuses those to a privileged caller, an empty folder as
/// root), but this network namespace. For a process with one thread. See unshare(2), Linux 4.6.
/// Rights that are to stay count for the present user namespace, which is then not left.
enum class Rights { go, stay };
Result<> leave_file_tree(Rights rights = Rights::go);

/// CAP_NET_ADMIN, as capset(2) has it.
inline constexpr std::uint64_t capability_of_network = std::uint64_t{1} << 12;

/// Gives up every capability but `keep` in every set, and the way to get any: capabilities(7),
/// PR_SET_NO_NEW_PRIVS in prctl(2); makes the process undumpable and forbids core files.
Result<> give_up_privilege(std::uint64_t keep = 0);

/// From here on only these system calls work; any other gives EPERM. socket(2) is cut down to
/// `families`. See seccomp(2).
Result<> allow_only(std::span<const int> calls, std::span<const int> families);

/// What a program that relays streams and frames needs once everything is open.
std::span<const int> relay_calls();

}  // namespace nsbox::net::user
