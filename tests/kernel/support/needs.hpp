#pragma once

#include <string>

namespace nsbox::tests {

/// Whether this machine and identity have something, found out by doing it, once. Where it is
/// lacking the running test is counted as skipped, or failed if NSBOX_TESTS_REQUIRE, a list
/// divided by commas, names it. Known: userns, netns, nftables (in a network
/// namespace of one's own), ipv6, openat2, memory, 10 GiB (of memory), own system calls (none but a
/// program's own).
bool has(const std::string& name);

}  // namespace nsbox::tests

/// Ends the test case here where something is lacking.
#define NEEDS(name)                     \
    do {                                \
        if (!::nsbox::tests::has(name)) \
            return;                     \
    } while (false)
