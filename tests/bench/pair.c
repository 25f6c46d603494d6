// Times two commands in turn, A B A B ..., so that a change of the machine's mood meets both.
//
//   pair [OPTION...] ::: A... [::: B...]
//   pair -k K [OPTION...] ::: A... ::: SLEEPER...
//     -n N        how many pairs (default 100)
//     -w N        how many unmeasured pairs before (default 3)
//     -f N=FILE   descriptor N of each command reads FILE, opened afresh for every run
//     -k K        times A alone: first as things are, then with K instances of SLEEPER alive,
//                 then once more after they are gone. SLEEPER writes a byte to its standard
//                 output when it is ready.
//
// Prints KEY=VALUE lines, times in microseconds from before posix_spawn until the process is
// reaped. Every run has to end with status 0. Only processes started here are ended, by pid.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

enum { max_files = 8 };
static struct {
    int number;
    const char* file;
} files[max_files];
static int file_count;

static pid_t* sleepers;
static int sleeper_count;

// The sleepers die with this program (their command lines ask for it), whatever ends it. One that
// is ended right after its start may leave a child that has not asked for that yet; such a child
// becomes ours, because main() made us the reaper of our orphans.
static void end_sleepers(void)
{
    for (int i = 0; i < sleeper_count; ++i)
        kill(sleepers[i], SIGKILL);
    for (int i = 0; i < sleeper_count; ++i)
        waitpid(sleepers[i], NULL, 0);
    sleeper_count = 0;
    char name[64];
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    for (int round = 0; round < 10; ++round) {
        FILE* f = fopen(name, "re");
        int pid, found = 0;
        while (f && fscanf(f, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
            ++found;
        }
        if (f)
            fclose(f);
        if (!found)
            return;
        while (found-- > 0)
            waitpid(-1, NULL, 0);
    }
}

static void die(const char* what, int err)
{
    fprintf(stderr, "pair: %s: %s\n", what, err ? strerror(err) : "failed");
    end_sleepers();
    exit(1);
}

static double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static pid_t start(char** argv, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, 1);
    else
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    for (int i = 0; i < file_count; ++i)
        posix_spawn_file_actions_addopen(&actions, files[i].number, files[i].file, O_RDONLY, 0);
    pid_t pid;
    const int err = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    if (err)
        die(argv[0], err);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static double time_one(char** argv)
{
    const double begin = now_us();
    const pid_t pid = start(argv, -1);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid", errno);
    const double took = now_us() - begin;
    if (status != 0) {
        fprintf(stderr, "pair: wait status %#x\n", (unsigned)status);
        die(argv[0], 0);
    }
    // What outlived its parent for a moment is our orphan.
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    return took;
}

static int compare(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

// Sorts `values`.
static double median(double* values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double* make_values(int count)
{
    double* values = calloc((size_t)count, sizeof *values);
    if (!values)
        die("calloc", ENOMEM);
    return values;
}

static void run_pairs(char** a, char** b, int pairs, int warm)
{
    double *as = make_values(pairs), *bs = make_values(pairs), *ratios = make_values(pairs);
    for (int i = -warm; i < pairs; ++i) {
        const double ta = time_one(a);
        const double tb = b ? time_one(b) : 1;
        if (i < 0)
            continue;
        as[i] = ta;
        bs[i] = tb;
        ratios[i] = ta / tb;
    }
    printf("a=%.1f\n", median(as, pairs));
    if (b)
        printf("b=%.1f\nratio=%.4f\n", median(bs, pairs), median(ratios, pairs));
    free(as);
    free(bs);
    free(ratios);
}

static double time_alone(char** argv, int count, int warm)
{
    double* values = make_values(count);
    for (int i = -warm; i < count; ++i) {
        const double took = time_one(argv);
        if (i >= 0)
            values[i] = took;
    }
    const double result = median(values, count);
    free(values);
    return result;
}

static void start_sleepers(char** argv, int count)
{
    sleepers = calloc((size_t)count, sizeof *sleepers);
    if (!sleepers)
        die("calloc", ENOMEM);
    for (int i = 0; i < count; ++i) {
        int ready[2];
        if (pipe2(ready, O_CLOEXEC) < 0)
            die("pipe", errno);
        sleepers[sleeper_count++] = start(argv, ready[1]);
        close(ready[1]);
        struct pollfd wait_for = {.fd = ready[0], .events = POLLIN};
        if (poll(&wait_for, 1, 30000) != 1)
            die("a sleeper is not ready", ETIMEDOUT);
        close(ready[0]);
        int status;
        if (waitpid(sleepers[i], &status, WNOHANG) != 0) {
            sleepers[i] = sleepers[--sleeper_count];
            die("a sleeper ended", 0);
        }
    }
}

static void run_crowd(char** a, char** sleeper, int crowd, int count, int warm)
{
    printf("before=%.1f\n", time_alone(a, count, warm));
    fflush(stdout);
    const double begin = now_us();
    start_sleepers(sleeper, crowd);
    printf("crowd_start=%.1f\n", (now_us() - begin) / crowd);
    printf("among=%.1f\n", time_alone(a, count, warm));
    end_sleepers();
    // The kernel takes namespaces apart in the background; that is nobody's start.
    sleep(5);
    printf("after=%.1f\n", time_alone(a, count, warm));
}

int main(int argc, char** argv)
{
    int count = 100, warm = 3, crowd = 0, option;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    while ((option = getopt(argc, argv, "+n:w:f:k:")) != -1) {
        const char* equals;
        switch (option) {
        case 'n':
            count = atoi(optarg);
            break;
        case 'w':
            warm = atoi(optarg);
            break;
        case 'k':
            crowd = atoi(optarg);
            break;
        case 'f':
            equals = strchr(optarg, '=');
            if (!equals || file_count == max_files)
                return 2;
            files[file_count].number = atoi(optarg);
            files[file_count++].file = equals + 1;
            break;
        default:
            return 2;
        }
    }
    char** commands[2] = {NULL, NULL};
    int found = 0;
    for (int i = optind; i < argc; ++i)
        if (strcmp(argv[i], ":::") == 0) {
            argv[i] = NULL;
            if (found == 2)
                return 2;
            commands[found++] = argv + i + 1;
        }
    if (!found || !commands[0][0] || count < 1 || (crowd && !commands[1])) {
        fprintf(stderr, "usage: pair [-n N] [-w N] [-f N=FILE] ::: A... [::: B...]\n"
                        "       pair -k K [-n N] [-w N] ::: A... ::: SLEEPER...\n");
        return 2;
    }
    if (crowd)
        run_crowd(commands[0], commands[1], crowd, count, warm);
    else
        run_pairs(commands[0], commands[1], count, warm);
    return 0;
}
