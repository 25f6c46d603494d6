// The least that a sandbox like the first line of the table can cost: one clone with the seven
// namespaces, an id map, a read-only copy of the root, a procfs, two tmpfs, pivot_root and exec,
// with nothing checked twice, nothing reported and no pid 1 beside the program.
//
//   floor [-n N] PROGRAM
//
// Prints the median of N starts, from before the clone until the program is reaped. With -n 1 it
// prints nothing: run as a command it is comparable with another command.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static char user_map[64], group_map[64];
static char* program[2];

// Runs in the child, which shares our memory and has us wait: raw calls and _exit only.
static void need(long rc, int step)
{
    if (rc < 0)
        _exit(100 + step);
}

static void put(const char* file, const char* text)
{
    const int fd = open(file, O_WRONLY | O_CLOEXEC);
    need(fd, 1);
    need(write(fd, text, strlen(text)), 1);
    close(fd);
}

static void mount_new(const char* type, const char* where)
{
    const long context = syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
    need(context, 2);
    need(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), 2);
    const long fd =
        syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    need(fd, 2);
    need(syscall(SYS_move_mount, fd, "", AT_FDCWD, where, MOVE_MOUNT_F_EMPTY_PATH), 3);
    close((int)fd);
    close((int)context);
}

static int child(void* unused)
{
    (void)unused;
    put("/proc/self/uid_map", user_map);
    put("/proc/self/setgroups", "deny");
    put("/proc/self/gid_map", group_map);
    need(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), 4);
    const long tree =
        syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    need(tree, 5);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    need(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr), 6);
    need(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH), 7);
    need(chdir("/tmp"), 8);
    mount_new("proc", "proc");
    mount_new("tmpfs", "dev");
    mount_new("tmpfs", "tmp");
    need(syscall(SYS_pivot_root, ".", "."), 9);
    need(umount2(".", MNT_DETACH), 10);
    need(chdir("/"), 11);
    execve(program[0], program, (char*[]){NULL});
    _exit(99);
}

static double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static double time_one(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                      CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP | SIGCHLD;
    const double begin = now_us();
    const int pid = clone(child, stack + sizeof stack, flags, NULL);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        perror("floor: clone");
        exit(1);
    }
    if (status != 0) {
        fprintf(stderr, "floor: %s: wait status %#x\n", program[0], (unsigned)status);
        exit(1);
    }
    return now_us() - begin;
}

static int compare(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(int argc, char** argv)
{
    int count = 1, option;
    while ((option = getopt(argc, argv, "+n:")) != -1) {
        if (option != 'n')
            return 2;
        count = atoi(optarg);
    }
    if (optind + 1 != argc || count < 1) {
        fprintf(stderr, "usage: floor [-n N] PROGRAM\n");
        return 2;
    }
    program[0] = argv[optind];
    snprintf(user_map, sizeof user_map, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(group_map, sizeof group_map, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    double* values = calloc((size_t)count, sizeof *values);
    if (!values)
        return 1;
    for (int i = 0; i < count; ++i)
        values[i] = time_one();
    if (count > 1) {
        qsort(values, (size_t)count, sizeof *values, compare);
        printf("floor=%.1f\n", values[count / 2]);
    }
    free(values);
    return 0;
}
