/* Builds a family that does what it can to outlive its sandbox, then says `ready`.
 *
 *     p_tree MARKER [WORD...]
 *
 * Every process shows MARKER in its argument list, holds standard output open, has no parent-death
 * signal and takes no notice of the signals that ask a process to end. Besides the leader there are
 * always a child, a child in a session of its own and an orphan. The words:
 *
 *     sibling   a child of the leader's parent, where the kernel allows that
 *     stopped   a child that has been stopped
 *     chain     an orphan that is replaced by its child all the time
 *     exit=N    the leader ends with status N; otherwise it waits
 *     quiet     nothing is said
 *     tame      given first: the parent-death signal stays as the leader found it
 *
 * All of it ends by itself after half a minute, so that a test that fails leaves nothing. */

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { lifetime = 30 };

static int is_tame;

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void harden(void)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; ++i)
        signal(ignored[i], SIG_IGN);
    if (!is_tame)
        prctl(PR_SET_PDEATHSIG, 0);
    alarm(lifetime);
}

static _Noreturn void wait_for_alarm(void)
{
    for (;;)
        pause();
}

static void die(const char* what)
{
    fprintf(stderr, "p_tree: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static pid_t make(void)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        harden();
    return pid;
}

/* Each link lives only until it has made the next one. */
static _Noreturn void chain(void)
{
    const time_t end = now() + lifetime;
    while (now() < end) {
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid == 0)
            prctl(PR_SET_PDEATHSIG, 0);
    }
    _exit(0);
}

static void make_orphan(int is_chain)
{
    pid_t middle = make();
    if (middle == 0) {
        if (make() == 0) {
            setsid();
            if (is_chain)
                chain();
            wait_for_alarm();
        }
        _exit(0);
    }
    while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void make_stopped(void)
{
    pid_t pid = make();
    if (pid == 0) {
        raise(SIGSTOP);
        wait_for_alarm();
    }
    int status;
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        die("the child did not stop");
}

int main(int argc, char** argv)
{
    int has_exit = 0, status = 0, is_quiet = 0;
    if (argc < 2)
        return 98;
    is_tame = argc > 2 && strcmp(argv[2], "tame") == 0;
    harden();
    if (make() == 0)
        wait_for_alarm();
    if (make() == 0) {
        setsid();
        wait_for_alarm();
    }
    make_orphan(0);
    for (int i = 2 + is_tame; i < argc; ++i) {
        if (strcmp(argv[i], "sibling") == 0) {
            /* Process 1 of a pid namespace may not do this. */
            if (syscall(SYS_clone, CLONE_PARENT, 0, 0, 0, 0) == 0) {
                harden();
                wait_for_alarm();
            }
        } else if (strcmp(argv[i], "stopped") == 0)
            make_stopped();
        else if (strcmp(argv[i], "chain") == 0)
            make_orphan(1);
        else if (strncmp(argv[i], "exit=", 5) == 0) {
            has_exit = 1;
            status = atoi(argv[i] + 5);
        } else if (strcmp(argv[i], "quiet") == 0)
            is_quiet = 1;
        else
            return 98;
    }
    if (!is_quiet && write(1, "ready\n", 6) != 6)
        die("write");
    if (has_exit)
        _exit(status);
    wait_for_alarm();
}
