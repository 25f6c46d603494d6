// Two things for life.py: `stamp` prints the time, as CLOCK_MONOTONIC has it in nanoseconds, and
// ends; `stamp MEGABYTES` writes so much text, in lines of 64 bytes.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv)
{
    char buffer[65536];
    if (argc < 2) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const int size =
            snprintf(buffer, sizeof buffer, "%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
        _exit(write(STDOUT_FILENO, buffer, (size_t)size) == size ? 0 : 1);
    }
    memset(buffer, 'x', sizeof buffer);
    for (size_t at = 63; at < sizeof buffer; at += 64)
        buffer[at] = '\n';
    for (long left = atol(argv[1]) * 16; left > 0; --left)
        for (size_t done = 0; done < sizeof buffer;) {
            const ssize_t put = write(STDOUT_FILENO, buffer + done, sizeof buffer - done);
            if (put < 0)
                return 1;
            done += (size_t)put;
        }
    return 0;
}
