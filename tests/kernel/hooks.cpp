// This program is its own probe: with --probe as its first word it looks around and tells, as
// the host application of a sandbox or as the command inside.

#include "tests/kernel/support/probes.hpp"
#include "tests/unit/support/tally.hpp"

#include <cstring>

#include <unistd.h>

namespace nsbox::tests {

int before_tests(int argc, char** argv)
{
    if (argc < 3 || std::strcmp(argv[1], "--probe") != 0)
        return -1;
    // Not by returning: what a sanitizer does at exit cannot be done in a sandbox.
    ::_exit(run_probe({argv + 2, argv + argc}));
}

}  // namespace nsbox::tests
