#include "tests/kernel/support/sanitizers.hpp"

#if NSBOX_THREAD_SANITIZER
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions();

// nsbox closes descriptors by system calls that the sanitizer does not see. When the number is
// used again, it takes that for two threads that open one descriptor.
extern "C" const char* __tsan_default_suppressions()
{
    // The names have prefixes that reports do not show.
    return "race:socketpair$\nrace:pipe2$\nrace:eventfd$\nrace:writev$\nrace:pread64$\nrace:"
           "pwrite64$\n";
}
#endif
