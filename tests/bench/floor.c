// The least that a sandbox like the first line of the table can cost: one clone with the seven
// namespaces, an id map, a read-only copy of the root, a procfs, two tmpfs, pivot_root and exec,
// with nothing checked twice, nothing reported and no pid 1 beside the program.
//
//   floor [-c] [-d] [-q] [-n N] PROGRAM
//
// With -d there is a whole /dev, with what `--dev` puts there, and the loopback interface is up; with -q there is no
// network namespace. With -c there are the further mounts on /proc that root's sandboxes have.
// Prints the median of N starts, from before the clone until the program is reaped. With -n 1 it
// prints nothing: run as a command it is comparable with another command.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static char user_map[64], group_map[64];
static char* program[2];
static int has_dev, is_quiet, has_covers;

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

static void bind_device(const char* name)
{
    char host[32], here[32];
    snprintf(host, sizeof host, "/dev/%s", name);
    snprintf(here, sizeof here, "dev/%s", name);
    const int file = open(here, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    need(file, 12);
    close(file);
    const long tree = syscall(SYS_open_tree, AT_FDCWD, host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    need(tree, 12);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID};
    need(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr), 12);
    need(syscall(SYS_move_mount, tree, "", AT_FDCWD, here, MOVE_MOUNT_F_EMPTY_PATH), 12);
    close((int)tree);
}

static void fill_dev(void)
{
    static const char* const names[] = {"null", "zero", "full", "random", "urandom", "tty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        bind_device(names[i]);
    need(symlink("/proc/self/fd", "dev/fd"), 13);
    need(symlink("/proc/self/fd/0", "dev/stdin"), 13);
    need(symlink("/proc/self/fd/1", "dev/stdout"), 13);
    need(symlink("/proc/self/fd/2", "dev/stderr"), 13);
    need(symlink("/proc/kcore", "dev/core"), 13);
    need(symlink("pts/ptmx", "dev/ptmx"), 13);
    need(mkdir("dev/shm", 0755), 13);
    need(mkdir("dev/pts", 0755), 13);
    need(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
               "newinstance,ptmxmode=0666,mode=620"),
         14);
}

// As in src/mount/fresh_run.cpp; what this kernel lacks is left out there too.
static void cover_proc(void)
{
    static const char* const read_only[] = {"sys",  "sysrq-trigger", "irq",  "bus",   "fs",
                                            "acpi", "scsi",          "mtrr", "asound"};
    static const char* const masked[] = {
        "kcore",      "keys",       "timer_list",  "kmsg",     "sched_debug", "latency_stats",
        "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "pagetypeinfo"};
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    const char* mask = NULL;
    need(chdir("proc"), 16);
    for (size_t i = 0; i < sizeof read_only / sizeof read_only[0]; ++i)
        if (mount(read_only[i], read_only[i], NULL, MS_BIND | MS_REC, NULL) == 0)
            need(syscall(SYS_mount_setattr, AT_FDCWD, read_only[i], AT_RECURSIVE, &attr,
                         sizeof attr),
                 16);
    attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    for (size_t i = 0; i < sizeof masked / sizeof masked[0]; ++i) {
        if (mount(mask != NULL ? mask : "/dev/null", masked[i], NULL, MS_BIND, NULL) < 0 ||
            mask != NULL)
            continue;
        mask = masked[i];
        need(syscall(SYS_mount_setattr, AT_FDCWD, mask, 0, &attr, sizeof attr), 16);
    }
    need(chdir(".."), 16);
}

static void bring_loopback_up(void)
{
    const int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING};
    need(sock, 15);
    need(ioctl(sock, SIOCSIFFLAGS, &request), 15);
    close(sock);
}

static int child(void* unused)
{
    (void)unused;
    put("/proc/self/uid_map", user_map);
    put("/proc/self/setgroups", "deny");
    put("/proc/self/gid_map", group_map);
    if (has_dev && !is_quiet)
        bring_loopback_up();
    need(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), 4);
    const long tree =
        syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    need(tree, 5);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    need(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr), 6);
    need(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH), 7);
    need(chdir("/tmp"), 8);
    mount_new("proc", "proc");
    if (has_covers)
        cover_proc();
    mount_new("tmpfs", "dev");
    if (has_dev)
        fill_dev();
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
                      CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | SIGCHLD |
                      (is_quiet ? 0 : CLONE_NEWNET);
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
    while ((option = getopt(argc, argv, "+cdqn:")) != -1) {
        if (option == 'n')
            count = atoi(optarg);
        else if (option == 'c')
            has_covers = 1;
        else if (option == 'd')
            has_dev = 1;
        else if (option == 'q')
            is_quiet = 1;
        else
            return 2;
    }
    if (optind + 1 != argc || count < 1) {
        fprintf(stderr, "usage: floor [-c] [-d] [-q] [-n N] PROGRAM\n");
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
