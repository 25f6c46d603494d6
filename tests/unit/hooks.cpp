#include "tests/unit/support/tally.hpp"

namespace nsbox::tests {

int before_tests(int, char**)
{
    return -1;
}

// These tests see nothing of the machine, so there is nothing to say about it.
std::string surroundings()
{
    return {};
}

}  // namespace nsbox::tests
