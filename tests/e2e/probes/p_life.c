/* A command whose life the tests watch.
 *
 *     p_life signals N       says `ready`, then the name of every signal that comes; ends with
 *                            status N at the end of standard input
 *     p_life closed          the status has bit n set where descriptor n of 0, 1, 2 is open, and
 *                            bit 3 where any other one is
 *     p_life burn MS         uses that much processor time, then ends
 *     p_life burn-parts N MS makes N children, one after the other, that use that much each
 *     p_life burn-group N MS makes N children at the same time
 *     p_life burn-orphan MS  the one that uses it is an orphan; the command sleeps
 *     p_life memory MIB      touches that much memory and lets it go
 *     p_life orphans N       leaves N processes that end at once to whoever adopts them, says
 *                            `ready`, and stays until the end of standard input
 *     p_life fill N          writes to standard output, with 2 to standard error as well, as fast
 *                            as they take it
 *
 * Nothing lasts longer than half a minute, except where a test asks for it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { lifetime = 30, descriptors = 4096 };

static int say(const char* text)
{
    return write(1, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1;
}

/* Blocked signals wait in the descriptor, also those that a process ignores by default. */
static int signals(int status)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct pollfd fds[2] = {{signalfd(-1, &all, SFD_CLOEXEC), POLLIN, 0}, {0, POLLIN, 0}};
    if (fds[0].fd < 0 || say("ready\n") != 0)
        return 99;
    for (;;) {
        if (poll(fds, 2, -1) < 0)
            return 99;
        if (fds[0].revents) {
            struct signalfd_siginfo info;
            char line[64];
            if (read(fds[0].fd, &info, sizeof info) != sizeof info)
                return 99;
            snprintf(line, sizeof line, "got %s\n", sigabbrev_np((int)info.ssi_signo));
            if (say(line) != 0)
                return 99;
        } else if (fds[1].revents) {
            char byte;
            if (read(0, &byte, 1) <= 0)
                return status;
        }
    }
}

static int closed(void)
{
    int bits = 0;
    for (int fd = 0; fd < descriptors; ++fd)
        if (fcntl(fd, F_GETFD) >= 0)
            bits |= fd < 3 ? 1 << fd : 8;
    return bits;
}

static void burn(long ms)
{
    struct timespec t;
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
}

static void burn_in_children(int count, long ms, int at_once)
{
    for (int i = 0; i < count; ++i) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(lifetime);
            burn(ms);
            _exit(0);
        }
        if (!at_once)
            waitpid(pid, NULL, 0);
    }
    while (wait(NULL) > 0)
        ;
}

static void burn_as_orphan(long ms)
{
    pid_t middle = fork();
    if (middle == 0) {
        if (fork() == 0) {
            alarm(lifetime);
            burn(ms);
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    sleep(lifetime);
}

static int memory(size_t mib)
{
    char* block = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return 99;
    memset(block, 1, mib << 20);
    return munmap(block, mib << 20) == 0 ? 0 : 99;
}

static int orphans(int count)
{
    for (int i = 0; i < count; ++i) {
        pid_t middle = fork();
        if (middle == 0) {
            /* The orphan ends last, so that only its new parent can reap it. */
            pid_t parent = getpid();
            if (fork() == 0)
                while (getppid() == parent)
                    sched_yield();
            _exit(0);
        }
        if (middle < 0 || waitpid(middle, NULL, 0) != middle)
            return 99;
    }
    if (say("ready\n") != 0)
        return 99;
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

static int fill(int last)
{
    static char block[65536];
    memset(block, 'x', sizeof block);
    for (int fd = 1;; fd = fd == last ? 1 : fd + 1)
        if (write(fd, block, sizeof block) < 0)
            return 99;
}

int main(int argc, char** argv)
{
    const char* what = argc > 1 ? argv[1] : "";
    const long one = argc > 2 ? atol(argv[2]) : 0, two = argc > 3 ? atol(argv[3]) : 0;
    if (strcmp(what, "closed") == 0)
        return closed();
    alarm(lifetime);
    if (strcmp(what, "signals") == 0)
        return signals((int)one);
    if (strcmp(what, "burn") == 0)
        burn(one);
    else if (strcmp(what, "burn-parts") == 0)
        burn_in_children((int)one, two, 0);
    else if (strcmp(what, "burn-group") == 0)
        burn_in_children((int)one, two, 1);
    else if (strcmp(what, "burn-orphan") == 0)
        burn_as_orphan(one);
    else if (strcmp(what, "memory") == 0)
        return memory((size_t)one);
    else if (strcmp(what, "orphans") == 0)
        return orphans((int)one);
    else if (strcmp(what, "fill") == 0)
        return fill((int)one);
    else
        return 98;
    return 0;
}
