#pragma once

#include <string>

namespace nsbox::tests {

/// The name of the test case that is running.
const std::string& current_test();

/// Counts the running test case as one that this machine cannot run, and prints why.
void record_skip(const std::string& reason);

/// What main() does before the test cases run, for programs that are their own probes: an exit
/// status, or a negative number to go on. Defined by each test program.
int before_tests(int argc, char** argv);

/// What a failed run says about the machine and the identity that it ran as; may be empty.
std::string surroundings();

}  // namespace nsbox::tests
