// Prints how many nanoseconds a call of getppid(2) takes, the least of some rounds: what a filter of system
// calls adds to every call.
//
//   cc -O2 -static calls.c

#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(void)
{
    enum { rounds = 20, calls = 200000 };
    double least = 1e18;
    for (int round = 0; round < rounds; ++round) {
        const double start = now();
        for (int i = 0; i < calls; ++i)
            syscall(SYS_getppid);
        const double took = (now() - start) / calls;
        if (took < least)
            least = took;
    }
    printf("%.1f\n", least);
    return 0;
}
