#pragma once

#include <cstdint>
#include <vector>

namespace nsbox::ns {

/// A classic BPF program that refuses, with EPERM, to put input into a terminal: TIOCSTI and
/// TIOCLINUX of ioctl_tty(2), for every calling convention of this architecture. The kernel looks at
/// the low half of the request only, and so does the program: what is in the high half is no way
/// around it (CVE-2019-10063). Everything else is allowed.
std::vector<std::uint8_t> refuse_terminal_input();

}  // namespace nsbox::ns
