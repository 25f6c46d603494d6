/* Runs a command under a seccomp filter that answers named system calls with an error.
 *
 *     deny_syscalls [--userns-only] ERRNO NAME[,NAME...] [ERRNO NAME[,NAME...]]... -- CMD [ARG...]
 *
 * ERRNO is a name (ENOSYS) or a number; NAME is a system call's name or number. With
 * --userns-only the calls clone and unshare are denied only when their flags ask for a new user
 * namespace, as container engines do it; every other call on the list is denied whatever its
 * arguments are (the flags of clone3 are behind a pointer, out of the reach of a filter).
 * Failures of this program itself end with status 125, so that they are not mistaken for CMD's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "this processor is not known here"
#endif

/* Calls newer than the oldest headers that we build with; the numbers are the same everywhere. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_statmount
#define SYS_statmount 457
#endif
#ifndef SYS_listmount
#define SYS_listmount 458
#endif
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif

#define CALL(name)        \
    {                     \
#name, SYS_##name \
    }

static const struct {
    const char* name;
    long number;
} calls[] = {
    CALL(capget),         CALL(capset),
    CALL(chdir),          CALL(chroot),
    CALL(clone),          CALL(clone3),
    CALL(close_range),    CALL(connect),
    CALL(epoll_create1),  CALL(eventfd2),
    CALL(execve),         CALL(execveat),
    CALL(faccessat),      CALL(faccessat2),
    CALL(fchdir),         CALL(fchmod),
    CALL(fchmodat),       CALL(fchownat),
    CALL(fcntl),          CALL(fsconfig),
    CALL(fsmount),        CALL(fsopen),
    CALL(fspick),         CALL(fstat),
    CALL(ftruncate),      CALL(getrandom),
    CALL(io_uring_setup), CALL(ioctl),
    CALL(kill),           CALL(linkat),
    CALL(listmount),      CALL(memfd_create),
    CALL(mkdirat),        CALL(mknodat),
    CALL(mount),          CALL(mount_setattr),
    CALL(move_mount),     CALL(newfstatat),
    CALL(open_tree),      CALL(open_tree_attr),
    CALL(openat),         CALL(openat2),
    CALL(personality),    CALL(pidfd_getfd),
    CALL(pidfd_open),     CALL(pidfd_send_signal),
    CALL(pipe2),          CALL(pivot_root),
    CALL(prctl),          CALL(prlimit64),
    CALL(ptrace),         CALL(read),
    CALL(readlinkat),     CALL(recvmsg),
    CALL(seccomp),        CALL(sendmsg),
    CALL(sethostname),    CALL(setgid),
    CALL(setgroups),      CALL(setns),
    CALL(setresgid),      CALL(setresuid),
    CALL(setsid),         CALL(setuid),
    CALL(signalfd4),      CALL(socket),
    CALL(socketpair),     CALL(statfs),
    CALL(statmount),      CALL(statx),
    CALL(symlinkat),      CALL(timerfd_create),
    CALL(umount2),        CALL(unlinkat),
    CALL(unshare),        CALL(wait4),
    CALL(waitid),         CALL(write),
#ifdef SYS_fork
    CALL(access),         CALL(chmod),
    CALL(fork),           CALL(mkdir),
    CALL(open),           CALL(pipe),
    CALL(readlink),       CALL(rmdir),
    CALL(stat),           CALL(symlink),
    CALL(unlink),         CALL(vfork),
#endif
};

#define ERROR(name) \
    {               \
#name, name \
    }

static const struct {
    const char* name;
    int number;
} errors[] = {
    ERROR(EACCES), ERROR(EAGAIN), ERROR(EBADF),  ERROR(EBUSY),  ERROR(EEXIST),  ERROR(EINTR),
    ERROR(EINVAL), ERROR(EIO),    ERROR(ELOOP),  ERROR(EMFILE), ERROR(ENFILE),  ERROR(ENODEV),
    ERROR(ENOENT), ERROR(ENOMEM), ERROR(ENOSPC), ERROR(ENOSYS), ERROR(ENOTDIR), ERROR(EOPNOTSUPP),
    ERROR(EPERM),  ERROR(EROFS),  ERROR(EUSERS), ERROR(EXDEV),
};

static struct sock_filter program[4096];
static unsigned short length;

static void give_up(const char* what, const char* detail)
{
    fprintf(stderr, "deny_syscalls: %s: %s\n", what, detail);
    exit(125);
}

static void emit(struct sock_filter instruction)
{
    if (length == sizeof program / sizeof program[0])
        give_up("the filter", "too many calls");
    program[length++] = instruction;
}

static long number_of(const char* text)
{
    char* end;
    const long number = strtol(text, &end, 10);
    return *text != '\0' && *end == '\0' && number >= 0 ? number : -1;
}

static int error_of(const char* text)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; ++i)
        if (strcmp(text, errors[i].name) == 0)
            return errors[i].number;
    const long number = number_of(text);
    if (number < 0 || number > 4095)
        give_up("unknown error", text);
    return (int)number;
}

static long call_of(const char* text)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i)
        if (strcmp(text, calls[i].name) == 0)
            return calls[i].number;
    const long number = number_of(text);
    if (number < 0)
        give_up("unknown system call", text);
    return number;
}

/* The accumulator holds the number of the call before and after these instructions. */
static void deny(long call, int error, int userns_only)
{
    const unsigned answer = SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA);
    if (userns_only && (call == SYS_clone || call == SYS_unshare)) {
        const unsigned flags = offsetof(struct seccomp_data, args[0]);
        const unsigned number = offsetof(struct seccomp_data, nr);
        emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 4));
        emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags));
        emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1));
        emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
        emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number));
        return;
    }
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1));
    emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
}

int main(int argc, char** argv)
{
    int at = 1;
    int userns_only = 0;
    int lists = 0;
    if (at < argc && strcmp(argv[at], "--userns-only") == 0) {
        userns_only = 1;
        ++at;
    }

    emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                      offsetof(struct seccomp_data, arch)));
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0));
    emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    while (at + 1 < argc && strcmp(argv[at], "--") != 0) {
        const int error = error_of(argv[at++]);
        for (char* name = strtok(argv[at++], ","); name; name = strtok(NULL, ","))
            deny(call_of(name), error, userns_only);
        ++lists;
    }
    emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    if (lists == 0 || at + 1 >= argc || strcmp(argv[at], "--") != 0)
        give_up("usage", "[--userns-only] ERRNO NAME[,NAME...] [ERRNO NAMES]... -- CMD [ARG...]");
    ++at;

    const struct sock_fprog filter = {length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        give_up("no_new_privs", strerror(errno));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        give_up("seccomp", strerror(errno));
    execvp(argv[at], argv + at);
    give_up(argv[at], strerror(errno));
}
