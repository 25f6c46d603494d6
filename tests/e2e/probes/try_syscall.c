/* Makes one system call with arguments that the kernel must refuse and exits with the errno that
 * came back, so that a seccomp filter's answer can be told from the kernel's own:
 *   chmod, chroot, prctl, clone3                    EFAULT when the call reaches the kernel
 *   ioctl-tiocnotty, ioctl-tiocsti, ioctl-tiocsti-high, listen     EBADF
 * Where the call succeeds after all, or the name is unknown, the status is 0 or 255. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Nothing is mapped there on any architecture. */
#define BAD_ADDRESS ((void*)~0UL)

static long attempt(const char* name)
{
    /* The raw calls are used because a C library may turn one call into another. */
    if (strcmp(name, "chmod") == 0) {
#ifdef SYS_chmod
        return syscall(SYS_chmod, BAD_ADDRESS, 0700);
#else
        return syscall(SYS_fchmodat, AT_FDCWD, BAD_ADDRESS, 0700);
#endif
    }
    if (strcmp(name, "chroot") == 0)
        return syscall(SYS_chroot, BAD_ADDRESS);
    if (strcmp(name, "prctl") == 0)
        return syscall(SYS_prctl, PR_GET_CHILD_SUBREAPER, BAD_ADDRESS, 0, 0, 0);
    if (strcmp(name, "clone3") == 0)
        return syscall(SYS_clone3, BAD_ADDRESS, sizeof(struct clone_args));
    if (strcmp(name, "ioctl-tiocnotty") == 0)
        return syscall(SYS_ioctl, -1, TIOCNOTTY);
    if (strcmp(name, "ioctl-tiocsti") == 0)
        return syscall(SYS_ioctl, -1, TIOCSTI, BAD_ADDRESS);
    if (strcmp(name, "ioctl-tiocsti-high") == 0)
        /* The kernel looks at the low half alone, so a filter must do the same. */
        return syscall(SYS_ioctl, -1, (1UL << 32) | TIOCSTI, BAD_ADDRESS);
    if (strcmp(name, "listen") == 0)
        return syscall(SYS_listen, -1, 42);
    fprintf(stderr, "unknown call: %s\n", name);
    _exit(255);
}

int main(int argc, char** argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: try_syscall CALL\n");
        return 255;
    }
    return attempt(argv[1]) == 0 ? 0 : errno;
}
