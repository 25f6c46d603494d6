"""The system calls of this machine, and which errors fit each of them."""

import os
import re
import subprocess

# Their only result is a number that is always valid, or they do not return.
NEVER_FAILS = set("""exit exit_group rt_sigreturn restart_syscall getpid getppid gettid getuid
    geteuid getgid getegid getpgrp umask sched_yield alarm set_tid_address""".split())

# The thread of the log: libc aborts where its rseq fails, which the kernel gives where it gave the first thread's.
LIBC_ABORTS = {("denials", "0.2", "rseq")}

ERRORS = {}


def fits(errors, calls):
    for call in calls.split():
        ERRORS[call] = errors.split()


fits("EMFILE EACCES ENOMEM", "open openat creat")
fits("ENOSYS EMFILE EPERM EAGAIN", "openat2")
fits("ENOSYS EPERM ENOMEM EMFILE", "open_tree open_tree_attr fsopen fspick fsmount fsconfig")
fits("ENOSYS EPERM ENOMEM ENOSPC", "move_mount mount_setattr")
fits("EPERM ENOMEM ENOSPC EACCES", "mount")
fits("EPERM EACCES", "umount umount2 pivot_root chroot")
fits("EAGAIN ENOSPC ENOMEM EPERM ENOSYS", "clone clone3")
fits("EAGAIN ENOMEM", "fork vfork")
fits("EPERM ENOSPC ENOMEM", "unshare setns")
fits("EINTR EIO", "read pread64 readv")
fits("EINTR ENOSPC EIO", "write pwrite64 writev sendfile copy_file_range splice")
fits("EINTR EIO", "close")
fits("ENOMEM", "brk mmap mremap munmap mprotect madvise mlock")
fits("EMFILE ENOMEM", "dup dup2 dup3 pipe pipe2 eventfd eventfd2 epoll_create1 signalfd4 "
     "timerfd_create inotify_init1")
fits("EMFILE EPERM", "fcntl pidfd_open")
fits("EMFILE ENOMEM EACCES", "socket socketpair")
fits("ENOSYS EMFILE EACCES", "memfd_create")
fits("ENOSPC EINTR", "ftruncate fallocate")
fits("ENOMEM EACCES EPERM", "execve execveat")
fits("EPERM ENOSYS EINVAL", "prctl capset capget")
fits("ENOMEM EACCES ENOSYS", "seccomp")
fits("ENOSYS EOPNOTSUPP EMFILE", "landlock_create_ruleset")
fits("ENOMEM EINVAL", "landlock_add_rule")
fits("EPERM E2BIG", "landlock_restrict_self")
fits("EPERM EAGAIN", "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid "
     "setfsgid setsid setpgid sethostname setdomainname")
fits("EACCES ENOENT", "chdir fchdir getcwd")
fits("ENOSPC EACCES EROFS", "mkdir mkdirat mknod mknodat symlink symlinkat link linkat unlink "
     "unlinkat rmdir rename renameat renameat2")
fits("EPERM EROFS", "chmod fchmod fchmodat fchmodat2 chown fchown fchownat utimensat")
fits("EACCES ENOMEM", "stat lstat fstat newfstatat statx statfs fstatfs readlink readlinkat access "
     "faccessat faccessat2")
fits("ENOMEM EACCES", "getdents64")
fits("EINTR", "wait4")  # ECHILD is what pid 1 gets when everything is over.
fits("EINTR ECHILD", "waitid")
fits("EINTR ENOMEM", "poll ppoll select pselect6 epoll_wait epoll_pwait")
fits("EPERM ENOBUFS", "bind connect setsockopt getsockopt getsockname listen")
fits("EPERM EINTR ENOBUFS", "sendto sendmsg recvfrom recvmsg")
fits("EPERM ENODEV", "ioctl")
fits("ENOSYS EPERM", "close_range")
fits("EINTR EAGAIN", "getrandom futex nanosleep clock_nanosleep")
OTHER_ERRORS = ["EPERM", "ENOSYS"]


def errors_for(call):
    return ERRORS.get(call, OTHER_ERRORS)


def call_numbers(folder):
    """The names and numbers of this machine's system calls, from the compiler's headers."""
    source = os.path.join(folder, "calls.c")
    with open(source, "w") as f:
        f.write("#include <sys/syscall.h>\n")
    text = subprocess.run(["cc", "-E", "-dM", source], check=True, capture_output=True,
                          text=True).stdout
    return {name: int(number) for name, number in
            re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.M)}
