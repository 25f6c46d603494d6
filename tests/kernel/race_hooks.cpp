#include "tests/unit/support/tally.hpp"

namespace nsbox::tests {

int before_tests(int /*argc*/, char** /*argv*/)
{
    return -1;
}

std::string surroundings()
{
    return {};
}

}  // namespace nsbox::tests
