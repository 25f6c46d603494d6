// Runs a program on a terminal of its own, for measuring the relay alone:
//
//     relay-run [--size COLUMNSxROWS] PROGRAM [ARGUMENT...]

#include "tests/kernel/pty/supervise.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char** argv)
{
    nsbox::tests::Supervisor supervisor;
    // Nothing else may get the number of one that is closed.
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0)
            continue;
        (void)::open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 2)
            (fd == 0 ? supervisor.input : supervisor.output) = -1;
    }
    int at = 1;
    if (argc > 2 && std::strcmp(argv[1], "--size") == 0) {
        auto& size = supervisor.size;
        if (std::sscanf(argv[2], "%hux%hu", &size.columns, &size.rows) != 2)
            return 2;
        at = 3;
    }
    if (at >= argc) {
        std::fputs("usage: relay-run [--size COLUMNSxROWS] PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    return supervisor.run([&] {
        ::execvp(argv[at], argv + at);
        std::perror(argv[at]);
        return 127;
    });
}
