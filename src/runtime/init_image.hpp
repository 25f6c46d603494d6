#pragma once

#include "runtime/clear_up.hpp"
#include "runtime/plan.hpp"
#include "sys/fd.hpp"

#include <vector>

namespace nsbox::runtime {

/// The init program as an executable in memory: sealed, so that nothing inside the sandbox can
/// change what another sandbox, or this one, executes. Needs Linux 3.17 (memfd_create(2)), and
/// uses MFD_EXEC where the kernel has it (6.3).
Result<sys::Fd> make_init_image();

/// A sealed copy of the program that this process runs, for a command that is /proc/self/exe:
/// the file on the host must not be within reach of the sandbox.
Result<sys::Fd> make_own_image();

/// An empty memfd for what init is given: it has to exist before the child does.
Result<sys::Fd> make_packet();

/// An anonymous file that holds `text`, to be read from its beginning.
Result<sys::Fd> make_text_file(const std::string& text);

/// The packet for this plan.
std::vector<unsigned char> packet_bytes(const Plan& plan, int channel);

/// Writes what init is given for this plan; may be done again. The child reaches the supervisor
/// through its descriptor `channel`.
Result<> fill_packet(const Plan& plan, int channel, int packet);

/// The same for a process that clears up after the process of the pidfd `supervisor`.
Result<> fill_clear_up_packet(const ClearUp& what, int supervisor, int packet);

/// Where in the packet the descriptor of the first lock file goes; the others follow.
std::size_t lock_offset(const Plan& plan);

}  // namespace nsbox::runtime
