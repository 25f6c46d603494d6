/* Hostile actions: what a program does that wants out of its sandbox, each tried in a process of
 * its own.
 *
 *     hostile --list [--wall WALL] [--only ID]...
 *         says each action as a JSON object on a line
 *     hostile [--control] [--wall WALL]... [--only ID]... [NAME=VALUE]...
 *         tries them, and says what came of each, in the same way
 *
 * An action's outcome is "ok" where it succeeded, the name of an error where it was refused, "no
 * effect" where a call succeeded and changed nothing, "signal N", or "absent" where what it is about
 * was not prepared (NAME=VALUE, see word()). Each is harmless where it succeeds, as root on the host
 * too: files are opened and not written, magic numbers are wrong, objects are the action's own. With
 * --control what is done to process 1 of a sandbox is done to a child of the action's own.
 *
 * What stands with an action: its group; what is tried; the walls that stand before it, the one that
 * answers in `nsbox run` first; the outcomes there; the outcomes for root on the host, or "none: "
 * and why that is not tried. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* Calls that not every architecture has, and flags that are newer than some headers. */
#ifndef SYS_iopl
#define SYS_iopl (-1)
#define SYS_ioperm (-1)
#define SYS_modify_ldt (-1)
#define SYS_uselib (-1)
#define SYS_sysfs (-1)
#define SYS_ustat (-1)
#define SYS__sysctl (-1)
#define SYS_create_module (-1)
#define SYS_query_module (-1)
#define SYS_get_kernel_syms (-1)
#define SYS_tuxcall (-1)
#define SYS_security (-1)
#define SYS_vserver (-1)
#define SYS_afs_syscall (-1)
#endif
#ifndef SYS_lookup_dcookie
#define SYS_lookup_dcookie (-1)
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
enum {
    call_open_tree = 428,
    call_move_mount,
    call_fsopen,
    call_fsconfig,
    call_fsmount,
    call_fspick,
    call_pidfd_open,
    call_clone3,
    call_pidfd_getfd = 438,
    call_process_madvise = 440,
    call_mount_setattr = 442,
    call_quotactl_fd,
    call_set_mempolicy_home_node = 450,
    call_statmount = 457,
    call_listmount,
    call_open_tree_attr = 467,
    call_io_uring_setup = 425,
    call_io_uring_enter,
    call_io_uring_register,
};

struct action {
    int line;
    const char* id;
    const char* group;
    const char* what;
    const char* walls;
    const char* inside;
    const char* control;
    int (*attempt)(void);
};

/* An action stands in one place: what is said of it, and how it is tried. It returns 0, an errno, or
 * one of these. */
enum { no_effect = -1, absent = -2 };
#define ACTION(name, group_, what_, walls_, inside_, control_)                                 \
    static int name(void);                                                                     \
    static const struct action name##_action = {__LINE__, #name,   group_,   what_,            \
                                                walls_,   inside_, control_, name};            \
    static const struct action* const name##_entry __attribute__((section("actions"), used)) = \
        &name##_action;                                                                        \
    static int name(void)

extern const struct action* const __start_actions[];
extern const struct action* const __stop_actions[];

static bool control;

/* Where the child says what came of it. */
static int report = -1;

/* What the caller has prepared, NAME=VALUE: the folders tmp, rw and ro, of which rw and ro are the
 * host's, with ro/file, ro/movable, ro/folder and rw/device, and a file secret above them; file, a path
 * that is not shown; port, socket, abstract, where something listens; pid; shm-key, shm-id, shm-name,
 * mqueue; setuid, a program of another user's; hostname; own-init=1 where process 1 is nsbox's. */
static const char* word(const char* name)
{
    char key[64];
    snprintf(key, sizeof key, "word_%s", name);
    return getenv(key);
}

static int number(const char* name)
{
    const char* text = word(name);
    return text ? atoi(text) : -1;
}

static int result(long returned)
{
    return returned < 0 ? errno : 0;
}

/* A path in a folder that was prepared. */
static const char* below(const char* folder, const char* name)
{
    static char paths[4][4096];
    static int next;
    char* path = paths[next++ % 4];
    const char* top = word(folder);
    snprintf(path, sizeof paths[0], "%s/%s", top ? top : "/nonexistent", name);
    return path;
}

/* Opens, for no longer than a moment, and writes nothing. */
static int opens(const char* path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int makes(const char* path)
{
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* A scratch folder. */
static const char* folder(void)
{
    const char* path = below("tmp", "folder");
    mkdir(path, 0700);
    return path;
}

/* Process 1 of the sandbox; with --control, or victim=child, a child that waits. */
static pid_t victim(void)
{
    if (!control && !word("victim"))
        return 1;
    static pid_t child;
    if (child)
        return child;
    int ready[2];
    if (pipe(ready) < 0)
        return -1;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        close(ready[1]);
        for (int left = 20; left > 0; --left)
            sleep(1);
        _exit(0);
    }
    close(ready[1]);
    char byte;
    if (read(ready[0], &byte, 1) < 0)
        return -1;
    close(ready[0]);
    return child;
}

static const char* of_victim(const char* name)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", victim(), name);
    return path;
}

/* ---- Mounts ---- */

#define MOUNT(name, what, source, type, flags, data)                    \
    ACTION(name, "mounts", what, "filter, capabilities", "EPERM", "ok") \
    {                                                                   \
        return result(mount(source, folder(), type, flags, data));      \
    }

MOUNT(mount_bind, "bind the root onto a folder of one's own", "/", NULL, MS_BIND, NULL)
MOUNT(mount_rbind, "bind the whole tree, covered places included", "/", NULL, MS_BIND | MS_REC,
      NULL)
MOUNT(mount_tmpfs, "mount a tmpfs", "none", "tmpfs", 0, NULL)
MOUNT(mount_ramfs, "mount a file system without a limit", "none", "ramfs", 0, NULL)
MOUNT(mount_proc, "mount another procfs, without covers", "proc", "proc", 0, NULL)
MOUNT(mount_sysfs, "mount sysfs", "sysfs", "sysfs", 0, NULL)
MOUNT(mount_devpts, "mount devpts", "devpts", "devpts", 0, NULL)

ACTION(mount_devtmpfs, "mounts", "mount the host's devices", "filter, capabilities", "EPERM",
       "ok|ENODEV")
{
    return result(mount("dev", folder(), "devtmpfs", 0, NULL));
}
ACTION(mount_cgroup2, "mounts", "mount the control groups, version 2", "filter, capabilities",
       "EPERM", "ok|EBUSY")
{
    return result(mount("none", folder(), "cgroup2", 0, NULL));
}
ACTION(mount_cgroup, "mounts", "mount a hierarchy of version 1, for its release_agent",
       "filter, capabilities", "EPERM", "ok|EBUSY|EINVAL|ENODEV")
{
    return result(mount("none", folder(), "cgroup", 0, "memory"));
}
ACTION(mount_debugfs, "mounts", "mount debugfs", "filter, capabilities", "EPERM", "ok|ENODEV")
{
    return result(mount("none", folder(), "debugfs", 0, NULL));
}
ACTION(mount_tracefs, "mounts", "mount tracefs", "filter, capabilities", "EPERM", "ok|ENODEV")
{
    return result(mount("none", folder(), "tracefs", 0, NULL));
}
ACTION(mount_securityfs, "mounts", "mount securityfs", "filter, capabilities", "EPERM", "ok|ENODEV")
{
    return result(mount("none", folder(), "securityfs", 0, NULL));
}
ACTION(mount_bpffs, "mounts", "mount the file system of BPF", "filter, capabilities", "EPERM",
       "ok|ENODEV")
{
    return result(mount("none", folder(), "bpf", 0, NULL));
}
ACTION(mount_binfmt, "mounts", "mount binfmt_misc, to register an interpreter",
       "filter, capabilities", "EPERM", "ok|ENODEV|EBUSY")
{
    return result(mount("none", folder(), "binfmt_misc", 0, NULL));
}
ACTION(mount_mqueue, "mounts", "mount the message queues", "filter, capabilities", "EPERM",
       "ok|ENODEV")
{
    return result(mount("none", folder(), "mqueue", 0, NULL));
}
ACTION(mount_overlay, "mounts", "mount an overlay, to have set-user-id files copied up",
       "filter, capabilities", "EPERM", "ok|ENODEV")
{
    char options[4 * 4096];
    mkdir(below("tmp", "upper"), 0700);
    mkdir(below("tmp", "work"), 0700);
    snprintf(options, sizeof options, "lowerdir=/usr/bin,upperdir=%s,workdir=%s",
             below("tmp", "upper"), below("tmp", "work"));
    return result(mount("none", folder(), "overlay", 0, options));
}
ACTION(mount_fuse, "mounts", "mount a file system that the program itself serves",
       "filter, capabilities, mounts", "EPERM", "EINVAL|ENODEV")
{
    return result(mount("none", folder(), "fuse", 0, "fd=-1,rootmode=40000,user_id=0,group_id=0"));
}
ACTION(mount_over, "mounts", "bind a file of one's own over one of the system's",
       "filter, capabilities", "EPERM", "ok")
{
    int made = makes(below("tmp", "file"));
    return made ? made
                : result(mount(below("tmp", "file"), "/etc/nsswitch.conf", NULL, MS_BIND, NULL));
}
ACTION(remount_writable, "mounts", "make the read-only root writable", "filter, capabilities",
       "EPERM", "ok")
{
    return result(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
}
ACTION(remount_super, "mounts", "change options of a file system of the host's",
       "filter, capabilities", "EPERM", "EINVAL")
{
    return result(mount(NULL, "/usr", NULL, MS_REMOUNT, "nsbox-none"));
}
ACTION(mount_shared, "mounts", "have mounts propagate to others", "filter, capabilities", "EPERM",
       "ok")
{
    return result(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
}
ACTION(mount_move, "mounts", "move /proc away with its covers", "filter, capabilities", "EPERM",
       "ok|EINVAL")
{
    return result(mount("/proc", folder(), NULL, MS_MOVE, NULL));
}
ACTION(umount_cover, "mounts", "take a cover of /proc away", "filter, capabilities", "EPERM",
       "EINVAL|ok")
{
    return result(umount2("/proc/sys", MNT_DETACH));
}
ACTION(umount_folder, "mounts", "take a bind away, to see what is below", "filter, capabilities",
       "EPERM", "EINVAL")
{
    return result(umount2(folder(), UMOUNT_NOFOLLOW));
}
ACTION(umount_force, "mounts", "force a file system to be given up", "filter, capabilities",
       "EPERM", "EINVAL")
{
    return result(umount2(folder(), MNT_FORCE));
}
ACTION(root_pivot, "mounts", "change the root by pivot_root", "filter, capabilities", "EPERM",
       "EINVAL|EBUSY")
{
    return chdir("/") < 0 ? errno : result(syscall(SYS_pivot_root, ".", "."));
}
ACTION(root_chroot, "mounts", "chroot, and then climb out of it", "filter, capabilities", "EPERM",
       "ok")
{
    return result(chroot(folder()));
}
ACTION(api_open_tree, "mounts", "clone the tree by open_tree", "filter, capabilities", "EPERM",
       "ok")
{
    return result(
        syscall(call_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | 0x8000 /* AT_RECURSIVE */));
}
ACTION(api_open_tree_attr, "mounts", "clone it with other attributes by open_tree_attr",
       "filter, capabilities", "EPERM", "ok|ENOSYS")
{
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_RDONLY};
    return result(syscall(call_open_tree_attr, AT_FDCWD, "/", OPEN_TREE_CLONE, &attributes,
                          sizeof attributes));
}
ACTION(api_move_mount, "mounts", "move a mount by move_mount", "filter, capabilities", "EPERM",
       "EINVAL")
{
    return result(syscall(call_move_mount, AT_FDCWD, folder(), AT_FDCWD, folder(), 0));
}
ACTION(api_fsopen_tmpfs, "mounts", "begin a file system by fsopen", "filter, capabilities", "EPERM",
       "ok")
{
    return result(syscall(call_fsopen, "tmpfs", 0));
}
ACTION(api_fsopen_block, "mounts",
       "begin a file system of block devices, to have the kernel parse a crafted image",
       "filter, capabilities", "EPERM", "ok|ENODEV")
{
    return result(syscall(call_fsopen, "ext4", 0));
}
ACTION(api_fsopen_proc, "mounts", "begin a procfs", "filter, capabilities", "EPERM", "ok")
{
    return result(syscall(call_fsopen, "proc", 0));
}
ACTION(api_fsconfig, "mounts", "give options to a file system's parser", "filter", "EPERM",
       "EBADF|EINVAL")
{
    return result(syscall(call_fsconfig, -1, 1, "source", "none", 0));
}
ACTION(api_fsmount, "mounts", "make a mount of it", "filter, capabilities", "EPERM", "EBADF")
{
    return result(syscall(call_fsmount, -1, 0, 0));
}
ACTION(api_fspick, "mounts", "reconfigure the root's file system", "filter, capabilities", "EPERM",
       "ok")
{
    return result(syscall(call_fspick, AT_FDCWD, "/", 0));
}
ACTION(api_mount_setattr, "mounts", "take read-only off the whole tree by mount_setattr",
       "filter, capabilities", "EPERM", "ok")
{
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_RDONLY};
    return result(
        syscall(call_mount_setattr, AT_FDCWD, "/", 0x8000, &attributes, sizeof attributes));
}
ACTION(api_mount_idmap, "mounts", "map a mount's owners anew", "filter, capabilities", "EPERM",
       "EBADF|EINVAL")
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)-1};
    return result(syscall(call_mount_setattr, AT_FDCWD, "/", 0, &attributes, sizeof attributes));
}
ACTION(api_listmount, "mounts", "list the mounts by listmount", "filter", "EPERM", "ok|ENOSYS")
{
    uint64_t list[8];
    uint64_t request[4] = {32, UINT64_MAX, 0, 0};
    return result(syscall(call_listmount, request, list, 8, 0));
}

/* ---- Namespaces ---- */

#define NAMESPACE(kind, flag, walls)                                                              \
    ACTION(unshare_##kind, "namespaces", "make a namespace by unshare: " #kind, walls, "EPERM",   \
           "ok")                                                                                  \
    {                                                                                             \
        return result(unshare(flag));                                                             \
    }                                                                                             \
    ACTION(clone_##kind, "namespaces", "make a namespace by clone: " #kind, walls, "EPERM", "ok") \
    {                                                                                             \
        return clone_with(flag);                                                                  \
    }                                                                                             \
    ACTION(setns_##kind, "namespaces", "enter a namespace: " #kind, walls, "EPERM",               \
           (flag) == CLONE_NEWUSER ? "EINVAL" : "ok")                                             \
    {                                                                                             \
        return set_namespace("/proc/self/ns/" #kind, flag);                                       \
    }

static int clone_with(unsigned long flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
    return result(child);
}

static int set_namespace(const char* path, int flag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : result(setns(fd, flag));
}

NAMESPACE(user, CLONE_NEWUSER, "filter")
NAMESPACE(mnt, CLONE_NEWNS, "filter, capabilities")
NAMESPACE(pid, CLONE_NEWPID, "filter, capabilities")
NAMESPACE(net, CLONE_NEWNET, "filter, capabilities")
NAMESPACE(ipc, CLONE_NEWIPC, "filter, capabilities")
NAMESPACE(uts, CLONE_NEWUTS, "filter, capabilities")
NAMESPACE(cgroup, CLONE_NEWCGROUP, "filter, capabilities")

ACTION(unshare_time, "namespaces", "make a time namespace", "filter, capabilities", "EPERM",
       "ok|EINVAL")
{
    return result(unshare(CLONE_NEWTIME));
}
ACTION(setns_time, "namespaces", "enter a time namespace", "filter, capabilities", "EPERM",
       "ok|ENOENT")
{
    return set_namespace("/proc/self/ns/time", CLONE_NEWTIME);
}
ACTION(setns_init, "namespaces", "enter all namespaces of process 1 by its descriptor",
       "filter, capabilities", "EPERM", "ok|EINVAL")
{
    long fd = syscall(call_pidfd_open, victim(), 0);
    return fd < 0
               ? errno
               : result(setns((int)fd, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS));
}
ACTION(clone3_plain, "namespaces", "clone3, whose flags no filter can see", "filter", "ENOSYS",
       "ok")
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    long child = syscall(call_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return result(child);
}
ACTION(clone3_user, "namespaces", "make a user namespace by clone3", "filter", "ENOSYS", "ok")
{
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long child = syscall(call_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return result(child);
}
ACTION(clone3_cgroup, "namespaces", "start a process in another control group by clone3", "filter",
       "ENOSYS", "EBADF|EINVAL")
{
    struct clone_args arguments = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = 1000};
    long child = syscall(call_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return result(child);
}
ACTION(clone_high, "namespaces",
       "make a user namespace by clone with bits in the high half of its flags", "filter", "EPERM",
       "ok")
{
    return clone_with(CLONE_NEWUSER | (1UL << 40));
}
ACTION(unshare_high, "namespaces", "unshare with bits in the high half of its flags", "filter",
       "EPERM", "EINVAL")
{
    return result(syscall(SYS_unshare, CLONE_NEWUSER | (1UL << 40)));
}
ACTION(unshare_all, "namespaces", "make a user namespace with all others in one call", "filter",
       "EPERM", "ok")
{
    return result(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                          CLONE_NEWUTS | CLONE_NEWCGROUP));
}
ACTION(chain_release_agent, "namespaces",
       "have one's own user and cgroup namespace, and mount a hierarchy for its release_agent",
       "filter", "EPERM", "ok|EPERM|EBUSY|EINVAL|ENODEV")
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP) < 0)
        return errno;
    return result(mount("none", folder(), "cgroup", 0, "pids"));
}
ACTION(chain_nftables, "namespaces", "have one's own network namespace, and reach nf_tables there",
       "filter", "EPERM", "ok|EPROTONOSUPPORT")
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return errno;
    return result(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER));
}
ACTION(chain_packet, "namespaces", "have one's own network namespace, and packet sockets there",
       "filter", "EPERM", "ok|EAFNOSUPPORT")
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return errno;
    return result(socket(AF_PACKET, SOCK_RAW, 0));
}
ACTION(map_ids, "namespaces", "map more ids into the user namespace",
       "user namespace, capabilities", "EPERM|EACCES",
       "none: the host's own map cannot be written by anybody")
{
    if (control)
        return absent;
    int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : result(write(fd, "0 0 1\n", 6));
}
ACTION(host_name_set, "namespaces", "change the host's name", "filter, capabilities, uts namespace",
       "EPERM", "EINVAL")
{
    char name[100] = "x";
    return result(sethostname(name, sizeof name));
}
ACTION(domain_name_set, "namespaces", "change the domain's name",
       "filter, capabilities, uts namespace", "EPERM", "EINVAL")
{
    char name[100] = "x";
    return result(setdomainname(name, sizeof name));
}
ACTION(host_name_get, "namespaces", "learn the host's name", "uts namespace", "no effect", "ok")
{
    struct utsname name;
    if (!word("hostname"))
        return absent;
    if (uname(&name) < 0)
        return errno;
    return strcmp(name.nodename, word("hostname")) == 0 ? 0 : no_effect;
}

/* ---- Processes ---- */

#define OPEN_VICTIM(name, file, flags, what)                                  \
    ACTION(name, "processes", what, "process 1", "EACCES|EPERM|ENOENT", "ok") \
    {                                                                         \
        return opens(of_victim(file), flags);                                 \
    }
OPEN_VICTIM(init_mem, "mem", O_RDONLY, "read the memory of process 1")
OPEN_VICTIM(init_mem_write, "mem", O_RDWR, "write the memory of process 1")
OPEN_VICTIM(init_environ, "environ", O_RDONLY, "read the environment of process 1")
OPEN_VICTIM(init_maps, "maps", O_RDONLY, "read where the memory of process 1 lies")
OPEN_VICTIM(init_auxv, "auxv", O_RDONLY, "read the auxiliary vector of process 1")
OPEN_VICTIM(init_root, "root", O_RDONLY | O_DIRECTORY, "reach the root of process 1")
OPEN_VICTIM(init_cwd, "cwd", O_RDONLY | O_DIRECTORY, "reach the working directory of process 1")

OPEN_VICTIM(init_fd, "fd/0", O_RDONLY, "open a descriptor of process 1")

OPEN_VICTIM(init_ns_user, "ns/user", O_RDONLY, "open the user namespace of process 1")
OPEN_VICTIM(init_ns_mnt, "ns/mnt", O_RDONLY, "open the mount namespace of process 1")
OPEN_VICTIM(init_exe, "exe", O_RDONLY, "read the program of process 1")

ACTION(init_exe_write, "processes", "open the program of process 1 for writing", "process 1",
       "EACCES|EPERM|ENOENT|ETXTBSY", "ETXTBSY")
{
    return opens(of_victim("exe"), O_WRONLY);
}
ACTION(init_exe_append, "processes",
       "keep the program of process 1 by O_PATH, and open that for writing", "process 1",
       "EACCES|EPERM|ENOENT|ETXTBSY", "ETXTBSY")
{
    char path[64];
    int fd = open(of_victim("exe"), O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return opens(path, O_WRONLY | O_APPEND);
}
ACTION(init_stack, "processes", "read the kernel's stack of process 1", "process 1, capabilities",
       "EACCES|EPERM|ENOENT", "ok|ENOENT")
{
    char text[256];
    int fd = open(of_victim("stack"), O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : result(read(fd, text, sizeof text));
}
ACTION(init_syscall, "processes", "read what system call process 1 is in", "process 1",
       "EACCES|EPERM|ENOENT", "ok|ENOENT")
{
    char text[256];
    int fd = open(of_victim("syscall"), O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : result(read(fd, text, sizeof text));
}
ACTION(init_fd_name, "processes", "learn what a descriptor of process 1 is", "process 1",
       "EACCES|EPERM|ENOENT", "ok")
{
    char text[256];
    return result(readlink(of_victim("fd/0"), text, sizeof text));
}
ACTION(init_map_files, "processes", "list the files that process 1 has mapped", "process 1",
       "EACCES|EPERM|ENOENT", "ok")
{
    char text[4096];
    int fd = open(of_victim("map_files"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got = fd;
    while (got > 0)
        got = syscall(SYS_getdents64, fd, text, sizeof text);
    return result(got);
}
ACTION(init_ptrace, "processes", "trace process 1", "filter, process 1", "EPERM", "ok")
{
    return result(syscall(SYS_ptrace, 0x4206 /* PTRACE_SEIZE */, victim(), 0, 0));
}
ACTION(init_attach, "processes", "stop process 1 by tracing it", "filter, process 1", "EPERM", "ok")
{
    return result(syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, victim(), 0, 0));
}
ACTION(init_vm_read, "processes", "read the memory of process 1 by process_vm_readv",
       "filter, process 1", "EPERM", "ok|EFAULT")
{
    static char from[8], to[8];
    struct iovec here = {to, sizeof to}, there = {from, sizeof from};
    return result(process_vm_readv(victim(), &here, 1, &there, 1, 0));
}
ACTION(init_vm_write, "processes", "write the memory of process 1 by process_vm_writev",
       "filter, process 1", "EPERM", "ok|EFAULT")
{
    static char from[8], to[8];
    struct iovec here = {from, sizeof from}, there = {to, sizeof to};
    return result(process_vm_writev(victim(), &here, 1, &there, 1, 0));
}
ACTION(init_getfd, "processes", "take a descriptor of process 1 by pidfd_getfd",
       "filter, process 1", "EPERM", "ok")
{
    long fd = syscall(call_pidfd_open, victim(), 0);
    return fd < 0 ? errno : result(syscall(call_pidfd_getfd, fd, 0, 0));
}
ACTION(init_kcmp, "processes", "compare one's memory with that of process 1", "filter, process 1",
       "EPERM", "ok|ENOSYS")
{
    return result(syscall(SYS_kcmp, getpid(), victim(), 1, 0, 0));
}
ACTION(init_robust, "processes", "learn where the list of robust futexes of process 1 lies",
       "process 1", "EPERM", "ok")
{
    void* head;
    size_t size;
    return result(syscall(SYS_get_robust_list, victim(), &head, &size));
}
ACTION(init_madvise, "processes", "have the memory of process 1 put out", "process 1",
       "EPERM|EACCES", "ok")
{
    static char page[4096] __attribute__((aligned(4096)));
    struct iovec there = {page, sizeof page};
    long fd = syscall(call_pidfd_open, victim(), 0);
    return fd < 0 ? errno : result(syscall(call_process_madvise, fd, &there, 1, MADV_COLD, 0));
}
ACTION(init_migrate, "processes", "move the memory of process 1", "filter, process 1", "EPERM",
       "ok|ENOSYS")
{
    unsigned long nodes = 1;
    return result(syscall(SYS_migrate_pages, victim(), 8 * sizeof nodes, &nodes, &nodes));
}
ACTION(init_move_pages, "processes", "learn on which nodes the memory of process 1 lies",
       "filter, process 1", "EPERM", "ok|ENOSYS")
{
    static char page[4096];
    void* pages[1] = {page};
    int status[1];
    return result(syscall(SYS_move_pages, victim(), 1, pages, NULL, status, 0));
}
ACTION(init_kill, "processes", "kill process 1 from inside", "pid namespace", "no effect",
       "none: it would be the host's process 1")
{
    if (control || !word("own-init") || getpid() == 1)
        return absent;
    if (kill(1, SIGKILL) < 0)
        return errno;
    /* The sandbox would be gone now, this process with it. */
    usleep(20000);
    return kill(1, 0) < 0 ? 0 : no_effect;
}
ACTION(init_stop, "processes", "stop process 1 from inside", "pid namespace", "no effect",
       "none: it would be the host's process 1")
{
    if (control || !word("own-init") || getpid() == 1)
        return absent;
    if (kill(1, SIGSTOP) < 0)
        return errno;
    char text[512] = "";
    int fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
        return errno;
    const char* end = strrchr(text, ')');
    return end && end[2] == 'T' ? 0 : no_effect;
}
ACTION(host_kill, "processes", "signal a process of the host", "pid namespace", "ESRCH", "ok")
{
    return number("pid") < 0 ? absent : result(kill(number("pid"), 0));
}
ACTION(host_sigqueue, "processes", "queue a signal to a process of the host", "pid namespace",
       "ESRCH", "ok")
{
    siginfo_t info = {.si_code = SI_QUEUE};
    return number("pid") < 0 ? absent
                             : result(syscall(SYS_rt_sigqueueinfo, number("pid"), 0, &info));
}
ACTION(host_pidfd, "processes", "have a descriptor of a process of the host", "pid namespace",
       "ESRCH", "ok")
{
    return number("pid") < 0 ? absent : result(syscall(call_pidfd_open, number("pid"), 0));
}
ACTION(host_prlimit, "processes", "read the limits of a process of the host", "pid namespace",
       "ESRCH", "ok")
{
    struct rlimit limit;
    return number("pid") < 0 ? absent : result(prlimit(number("pid"), RLIMIT_NOFILE, NULL, &limit));
}
ACTION(host_affinity, "processes", "read on which processors a process of the host runs",
       "pid namespace", "ESRCH", "ok")
{
    cpu_set_t set;
    return number("pid") < 0 ? absent : result(sched_getaffinity(number("pid"), sizeof set, &set));
}
ACTION(host_proc, "processes", "find a process of the host in /proc", "pid namespace", "ENOENT",
       "ok")
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", number("pid"));
    return number("pid") < 0 ? absent : opens(path, O_RDONLY);
}
ACTION(host_environ, "processes", "read the environment of a process of the host", "pid namespace",
       "ENOENT", "ok")
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", number("pid"));
    return number("pid") < 0 ? absent : opens(path, O_RDONLY);
}
ACTION(host_root, "processes", "reach the host's tree through a process of the host",
       "pid namespace", "ENOENT", "ok")
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/root", number("pid"));
    return number("pid") < 0 ? absent : opens(path, O_RDONLY | O_DIRECTORY);
}
ACTION(self_exe_write, "processes", "open the program that runs for writing", "mounts",
       "EROFS|ETXTBSY|EACCES", "ETXTBSY")
{
    return opens("/proc/self/exe", O_WRONLY);
}
ACTION(self_mem_readonly, "processes",
       "write into a read-only mapping of a file through /proc/self/mem, for the file to change",
       "mounts", "no effect|EIO|EACCES", "none: no kernel that is mended lets it, anywhere")
{
    if (control)
        return absent;
    int file = open(below("ro", "file"), O_RDONLY | O_CLOEXEC);
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (file < 0 || memory < 0)
        return errno;
    char* map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    char before, after;
    if (map == MAP_FAILED || pread(file, &before, 1, 0) != 1)
        return errno;
    char other = before == 'X' ? 'Y' : 'X';
    if (pwrite(memory, &other, 1, (off_t)(uintptr_t)map) < 0)
        return errno;
    return pread(file, &after, 1, 0) == 1 && after != before ? 0 : no_effect;
}
ACTION(pipe_overwrite, "processes",
       "merge a write to a pipe with a page of a read-only file that was spliced into it", "mounts",
       "no effect", "none: no kernel that is mended lets it, anywhere")
{
    if (control)
        return absent;
    int file = open(below("ro", "file"), O_RDONLY | O_CLOEXEC);
    int ends[2];
    char byte = 'X', before, after;
    if (file < 0 || pipe(ends) < 0 || pread(file, &before, 1, 1) != 1)
        return errno;
    /* The slots of the pipe keep the flag by which a write is merged into the last one. */
    for (int i = 0; i < 16; ++i)
        if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
            return errno;
    loff_t from = 0;
    if (splice(file, &from, ends[1], NULL, 1, 0) != 1)
        return errno;
    byte = before == 'X' ? 'Y' : 'X';
    if (write(ends[1], &byte, 1) != 1)
        return errno;
    return pread(file, &after, 1, 1) == 1 && after != before ? 0 : no_effect;
}

/* ---- Privileges ---- */

ACTION(be_uid, "privileges", "become user 0", "user namespace, capabilities", "EINVAL|EPERM", "ok")
{
    return result(syscall(SYS_setuid, 0));
}
ACTION(be_gid, "privileges", "become group 0", "user namespace, capabilities", "EINVAL|EPERM", "ok")
{
    return result(syscall(SYS_setgid, 0));
}
ACTION(be_other, "privileges", "become another user", "user namespace, capabilities",
       "EINVAL|EPERM", "ok")
{
    return result(syscall(SYS_setresuid, 12345, 12345, 12345));
}
ACTION(be_fsuid, "privileges", "have files opened as another user", "user namespace, capabilities",
       "no effect", "ok")
{
    setfsuid(12345);
    return setfsuid(-1) == 12345 ? 0 : no_effect;
}
ACTION(leave_groups, "privileges", "give up groups, so that what is denied to one is allowed",
       "user namespace, capabilities", "EPERM", "ok")
{
    return result(syscall(SYS_setgroups, 0, NULL));
}
ACTION(raise_capset, "privileges", "raise a capability by capset", "capabilities", "EPERM", "ok")
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1U << CAP_SYS_ADMIN, 1U << CAP_SYS_ADMIN, 0},
                                             {0, 0, 0}};
    return result(syscall(SYS_capset, &header, data));
}
ACTION(raise_inheritable, "privileges", "raise an inheritable capability", "capabilities", "EPERM",
       "ok")
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return errno;
    data[0].inheritable |= 1U << CAP_SYS_ADMIN;
    return result(syscall(SYS_capset, &header, data));
}
ACTION(raise_ambient, "privileges", "raise an ambient capability", "capabilities", "EPERM", "ok")
{
    int error = raise_inheritable();
    return error ? error : result(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
}
ACTION(set_securebits, "privileges", "change what user 0 means by securebits", "capabilities",
       "EPERM", "ok")
{
    return result(prctl(PR_SET_SECUREBITS, 1UL << 2 /* NO_SETUID_FIXUP */));
}
ACTION(drop_bounding, "privileges", "change the bounding set", "capabilities", "EPERM", "ok")
{
    return result(prctl(PR_CAPBSET_DROP, CAP_SYS_MODULE));
}
ACTION(new_privs, "privileges", "be without no_new_privs", "no_new_privs", "no effect", "ok")
{
    prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : no_effect;
}
ACTION(no_filter, "privileges", "be without the filter", "filter", "no effect", "ok")
{
    prctl(PR_SET_SECCOMP, 0, 0, 0, 0);
    return prctl(PR_GET_SECCOMP) == 0 ? 0 : no_effect;
}
ACTION(run_setuid, "privileges", "gain by a program with a set-user-id bit of another user",
       "no_new_privs, mounts, user namespace", "no effect", "ok")
{
    const char* path = word("setuid");
    if (!path)
        return absent;
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, "--identity", (char*)NULL);
        _exit(126);
    }
    int status;
    if (waitpid(child, &status, 0) < 0)
        return errno;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 126)
        return EACCES;
    return WEXITSTATUS(status) == 42 ? 0 : no_effect;
}
ACTION(file_capability, "privileges", "give a program file capabilities", "capabilities", "EPERM",
       "ok|EOPNOTSUPP")
{
    uint32_t value[5] = {0x02000001, 1U << CAP_SYS_ADMIN, 0, 0, 0};
    int error = makes(below("tmp", "program"));
    return error ? error
                 : result(setxattr(below("tmp", "program"), "security.capability", value,
                                   sizeof value, 0));
}
ACTION(trusted_attribute, "privileges", "set an attribute that overlayfs trusts", "capabilities",
       "EPERM", "ok|EOPNOTSUPP")
{
    int error = makes(below("tmp", "trusted"));
    return error ? error
                 : result(setxattr(below("tmp", "trusted"), "trusted.overlay.opaque", "y", 1, 0));
}
ACTION(give_away, "privileges", "give a file to another user", "user namespace, capabilities",
       "EINVAL|EPERM", "ok")
{
    int error = makes(below("tmp", "given"));
    return error ? error : result(chown(below("tmp", "given"), 12345, 12345));
}
ACTION(immutable_flag, "privileges", "make a file that nobody can remove", "capabilities",
       "EPERM|ENOTTY|EOPNOTSUPP", "ok|ENOTTY|EOPNOTSUPP")
{
    int fd = open(below("rw", "immutable"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int flags = 0;
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return errno;
    int set = flags | FS_IMMUTABLE_FL;
    int error = result(ioctl(fd, FS_IOC_SETFLAGS, &set));
    if (error == 0)
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
    return error;
}
ACTION(freeze, "privileges", "freeze the file system of a folder that is shown", "capabilities",
       "EPERM", "none: the host's file system would stand still")
{
    if (control)
        return absent;
    int fd = open(below("rw", "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = result(ioctl(fd, FIFREEZE, 0));
    if (error == 0)
        ioctl(fd, FITHAW, 0);
    return error;
}
ACTION(forge_credentials, "privileges", "tell the peer of a socket that one is another user",
       "user namespace, capabilities", "EINVAL|EPERM", "ok")
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0)
        return errno;
    struct ucred credentials = {getpid(), 12345, 12345};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof credentials)];
    } buffer = {.header = {CMSG_LEN(sizeof credentials), SOL_SOCKET, SCM_CREDENTIALS}};
    memcpy(CMSG_DATA(&buffer.header), &credentials, sizeof credentials);
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {NULL, 0, &data, 1, &buffer, sizeof buffer, 0};
    return result(sendmsg(ends[0], &message, 0));
}
ACTION(exe_file, "privileges", "have /proc/self/exe name another program", "capabilities",
       "EPERM|EACCES", "EBADF|EINVAL")
{
    return result(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, -1, 0, 0));
}
ACTION(make_device, "privileges", "make a device node", "capabilities", "EPERM", "ok")
{
    unlink(below("tmp", "device"));
    return result(mknod(below("tmp", "device"), S_IFCHR | 0600, makedev(1, 3)));
}
ACTION(make_block_device, "privileges", "make a node of a block device", "capabilities", "EPERM",
       "ok")
{
    unlink(below("tmp", "block"));
    return result(mknod(below("tmp", "block"), S_IFBLK | 0600, makedev(7, 0)));
}
ACTION(make_whiteout, "privileges",
       "make a node 0:0, which overlayfs takes for a deletion, and open it", "mounts",
       "EACCES|ENXIO|EPERM", "ENXIO")
{
    unlink(below("tmp", "whiteout"));
    if (mknod(below("tmp", "whiteout"), S_IFCHR | 0600, makedev(0, 0)) < 0)
        return errno;
    return opens(below("tmp", "whiteout"), O_RDONLY);
}
ACTION(open_device, "privileges", "open a device node in a folder that is shown", "mounts",
       "EACCES", "ok")
{
    struct stat status;
    if (stat(below("rw", "device"), &status) < 0)
        return absent;
    return opens(below("rw", "device"), O_RDWR);
}
ACTION(bind_low_port, "privileges", "serve a port that is for root", "capabilities", "EACCES",
       "ok|EADDRINUSE")
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : result(bind(fd, (struct sockaddr*)&address, sizeof address));
}

/* ---- The kernel's files ---- */

#define WRITES(name, group, path, what, walls, inside)    \
    ACTION(name, group, what, walls, inside, "ok|ENOENT") \
    {                                                     \
        return opens(path, O_WRONLY);                     \
    }
#define PROC_WRITE(name, path, what) \
    WRITES(name, "proc", "/proc/" path, what, "covers", "EROFS|EACCES|ENOENT")

PROC_WRITE(core_pattern, "sys/kernel/core_pattern",
           "have the kernel start a program at a crash: core_pattern")
PROC_WRITE(modprobe_path, "sys/kernel/modprobe",
           "have the kernel start a program for a module: modprobe")
PROC_WRITE(hotplug_path, "sys/kernel/hotplug",
           "have the kernel start a program for a device: hotplug")
PROC_WRITE(poweroff_path, "sys/kernel/poweroff_cmd",
           "have the kernel start a program at the end: poweroff_cmd")
PROC_WRITE(usermodehelper, "sys/kernel/usermodehelper/bset", "change what such programs may do")
PROC_WRITE(binfmt_register, "sys/fs/binfmt_misc/register", "register an interpreter: binfmt_misc")
PROC_WRITE(binfmt_status, "sys/fs/binfmt_misc/status", "switch interpreters off: binfmt_misc")
PROC_WRITE(sysrq, "sys/kernel/sysrq", "allow system requests: sysrq")
PROC_WRITE(sysrq_trigger, "sysrq-trigger", "make a system request: sysrq-trigger")
PROC_WRITE(panic_on_oops, "sys/kernel/panic_on_oops", "have faults of the kernel end the machine")
PROC_WRITE(kptr_restrict, "sys/kernel/kptr_restrict", "have the kernel tell its addresses")
PROC_WRITE(dmesg_restrict, "sys/kernel/dmesg_restrict", "open the kernel's log")
PROC_WRITE(randomize, "sys/kernel/randomize_va_space", "switch the random layout of memory off")
PROC_WRITE(perf_paranoid, "sys/kernel/perf_event_paranoid", "open performance counters")
PROC_WRITE(bpf_disabled, "sys/kernel/unprivileged_bpf_disabled", "open BPF")
PROC_WRITE(ptrace_scope, "sys/kernel/yama/ptrace_scope", "open tracing: yama")
PROC_WRITE(kexec_disabled, "sys/kernel/kexec_load_disabled", "change who may load a kernel")
PROC_WRITE(modules_disabled, "sys/kernel/modules_disabled", "change who may load modules")
PROC_WRITE(overcommit, "sys/vm/overcommit_memory", "change how memory is given out")
PROC_WRITE(drop_caches, "sys/vm/drop_caches", "empty the host's caches")
PROC_WRITE(mmap_min_addr, "sys/vm/mmap_min_addr", "allow mappings at address 0")
PROC_WRITE(suid_dumpable, "sys/fs/suid_dumpable", "have set-user-id programs write their memory")
PROC_WRITE(protected_symlinks, "sys/fs/protected_symlinks", "allow links in /tmp to be followed")
PROC_WRITE(file_max, "sys/fs/file-max", "limit the host's files")
PROC_WRITE(max_user_namespaces, "sys/user/max_user_namespaces",
           "change how many namespaces there may be")
PROC_WRITE(ip_forward, "sys/net/ipv4/ip_forward", "have packets forwarded")
PROC_WRITE(irq_affinity, "irq/default_smp_affinity", "change which processors serve interrupts")
PROC_WRITE(mtrr, "mtrr", "change how memory is cached")
PROC_WRITE(bus_pci, "bus/pci/00/00.0", "change the configuration of a device: bus/pci")
PROC_WRITE(scsi, "scsi/scsi", "remove a disk")

#define PROC_READ(name, path, what)                                                          \
    ACTION(name, "proc", what, "covers", "EACCES|EPERM|ENOENT|no effect", "ok|ENOENT|EPERM") \
    {                                                                                        \
        return tells("/proc/" path);                                                         \
    }

/* Whether a file says anything. */
static int tells(const char* path)
{
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    ssize_t got = read(fd, text, sizeof text);
    return got < 0 ? errno : got == 0 ? no_effect : 0;
}

PROC_READ(kcore, "kcore", "read the kernel's memory: kcore")
PROC_READ(kpagecount, "kpagecount", "read of physical pages: kpagecount")
PROC_READ(kpageflags, "kpageflags", "read of physical pages: kpageflags")
PROC_READ(kpagecgroup, "kpagecgroup", "read of physical pages: kpagecgroup")
PROC_READ(proc_keys, "keys", "list the keys: keys")
PROC_READ(timer_list, "timer_list", "list the host's timers: timer_list")
PROC_READ(sched_debug, "sched_debug", "list the host's processes: sched_debug")
PROC_READ(latency_stats, "latency_stats", "read of the host's load: latency_stats")
PROC_READ(slabinfo, "slabinfo", "read of the kernel's memory: slabinfo")
PROC_READ(vmallocinfo, "vmallocinfo", "read of the kernel's memory: vmallocinfo")
PROC_READ(pagetypeinfo, "pagetypeinfo", "read of the kernel's memory: pagetypeinfo")

ACTION(proc_kmsg, "proc", "read the kernel's log: kmsg", "covers, capabilities",
       "EACCES|EPERM|ENOENT|no effect", "ok|ENOENT")
{
    /* What is read there is gone for others. */
    if (control)
        return opens("/proc/kmsg", O_RDONLY);
    return tells("/proc/kmsg");
}
ACTION(kallsyms, "proc", "learn addresses of the kernel: kallsyms", "capabilities",
       "no effect|ENOENT|EPERM", "ok|ENOENT|no effect")
{
    char text[65536];
    int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t got = read(fd, text, sizeof text - 1);
    if (got < 0)
        return errno;
    text[got] = '\0';
    for (const char* line = text; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strtoull(line, NULL, 16) > 0xffffffff)
            return 0;
    return no_effect;
}
ACTION(iomem, "proc", "learn where physical memory lies: iomem", "capabilities",
       "no effect|ENOENT|EACCES", "ok|ENOENT")
{
    char text[16384];
    int fd = open("/proc/iomem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t got = read(fd, text, sizeof text - 1);
    if (got < 0)
        return errno;
    text[got] = '\0';
    for (const char* line = text; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strtoull(line, NULL, 16) != 0)
            return 0;
    return no_effect;
}
ACTION(pagemap, "proc", "learn at which physical addresses one's own memory lies: pagemap",
       "capabilities", "no effect|EPERM|ENOENT", "ok|ENOENT")
{
    static volatile char byte = 1;
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)&byte / 4096 * 8)) < 0)
        return errno;
    return byte && (entry & ((1ULL << 55) - 1)) != 0 ? 0 : no_effect;
}
ACTION(proc_append, "proc", "add an entry to /proc", "mounts", "ENOENT|EACCES|EPERM|EROFS",
       "ENOENT|EACCES")
{
    return opens("/proc/nsbox-none", O_CREAT | O_WRONLY);
}
ACTION(proc_sys_chmod, "proc", "change the mode of a setting", "covers", "EROFS|EPERM", "EPERM")
{
    return result(chmod("/proc/sys/kernel/core_pattern", 0644));
}
ACTION(oom_score, "proc", "never be chosen when memory is out", "capabilities", "EACCES", "ok")
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : result(write(fd, "-1000", 5));
}

#define SYS_WRITE(name, path, what) \
    WRITES(name, "sys", "/sys/" path, what, "mounts", "ENOENT|EROFS|EACCES")
SYS_WRITE(uevent_helper, "kernel/uevent_helper",
          "have the kernel start a program for an event: uevent_helper")
SYS_WRITE(kexec_crash, "kernel/kexec_crash_size", "change the memory of the crash kernel")
SYS_WRITE(power_state, "power/state", "send the machine to sleep")
SYS_WRITE(wake_lock, "power/wake_lock", "keep the machine from sleep")
SYS_WRITE(pci_rescan, "bus/pci/rescan", "have devices looked for")
SYS_WRITE(module_parameter, "module/kernel/parameters/panic", "change a parameter of the kernel")
SYS_WRITE(cpu_online, "devices/system/cpu/cpu1/online", "switch a processor off")
SYS_WRITE(profiling, "kernel/profiling", "switch profiling on")
SYS_WRITE(slab, "kernel/slab/kmalloc-64/validate", "have the kernel check its memory")
SYS_WRITE(tracing_events, "kernel/tracing/kprobe_events",
          "put a probe into the kernel: kprobe_events")
SYS_WRITE(tracing_on, "kernel/debug/tracing/tracing_on", "trace the kernel: debugfs")
SYS_WRITE(security_lockdown, "kernel/security/lockdown", "change the lockdown: securityfs")
SYS_WRITE(release_agent_memory, "fs/cgroup/memory/release_agent",
          "have the kernel start a program for an empty group")
SYS_WRITE(release_agent_pids, "fs/cgroup/pids/release_agent", "the same, of another hierarchy")
SYS_WRITE(cgroup_procs, "fs/cgroup/cgroup.procs", "leave the control group, version 2")
SYS_WRITE(cgroup_unified, "fs/cgroup/unified/cgroup.procs",
          "leave the control group, beside version 1")
SYS_WRITE(cgroup_memory, "fs/cgroup/memory/cgroup.procs", "leave the memory group, version 1")
SYS_WRITE(cgroup_devices, "fs/cgroup/devices/devices.allow", "allow devices, version 1")
SYS_WRITE(cgroup_freezer, "fs/cgroup/freezer/cgroup.procs", "leave the freezer, version 1")
ACTION(sys_bpf, "sys", "list pinned programs: the file system of BPF", "mounts", "ENOENT|EACCES",
       "ok|ENOENT")
{
    return opens("/sys/fs/bpf", O_RDONLY | O_DIRECTORY);
}
ACTION(sys_efivars, "sys", "list variables of the firmware: efivars", "mounts", "ENOENT|EACCES",
       "ok|ENOENT")
{
    return opens("/sys/firmware", O_RDONLY | O_DIRECTORY);
}
ACTION(sys_btf, "sys", "read the kernel's types", "mounts", "ENOENT|EACCES", "ok|ENOENT")
{
    return opens("/sys/kernel/btf/vmlinux", O_RDONLY);
}
ACTION(sys_vmcoreinfo, "sys", "learn where the kernel's notes lie", "mounts", "ENOENT|EACCES",
       "ok|ENOENT")
{
    return opens("/sys/kernel/vmcoreinfo", O_RDONLY);
}
ACTION(sys_devices, "sys", "list the host's devices", "mounts", "ENOENT|EACCES", "ok")
{
    return opens("/sys/devices", O_RDONLY | O_DIRECTORY);
}

/* ---- Devices ---- */

#define DEVICE(name, path, what)                             \
    ACTION(name, "devices", what, "mounts", "ENOENT|EACCES", \
           "ok|ENOENT|ENXIO|EIO|ENODEV|EPERM|EBUSY")         \
    {                                                        \
        return opens("/dev/" path, O_RDONLY);                \
    }
DEVICE(dev_mem, "mem", "open physical memory")
DEVICE(dev_kmem, "kmem", "open the kernel's memory")
DEVICE(dev_port, "port", "open the ports of input and output")
DEVICE(dev_kmsg, "kmsg", "open the kernel's log, or write into it")
DEVICE(dev_fuse, "fuse", "serve a file system")
DEVICE(dev_kvm, "kvm", "run a virtual machine")
DEVICE(dev_vhost_net, "vhost-net", "have the kernel serve a virtual machine's network")
DEVICE(dev_vhost_vsock, "vhost-vsock", "have the kernel serve a virtual machine's sockets")
DEVICE(dev_tun, "net/tun", "make a network interface")
DEVICE(dev_loop_control, "loop-control", "make a loop device")
DEVICE(dev_loop, "loop0", "open a loop device")
DEVICE(dev_vda, "vda", "open the host's disk: vda")
DEVICE(dev_sda, "sda", "open the host's disk: sda")
DEVICE(dev_nvme, "nvme0n1", "open the host's disk: nvme")
DEVICE(dev_mapper, "mapper/control", "map block devices")
DEVICE(dev_btrfs, "btrfs-control", "have devices scanned for btrfs")
DEVICE(dev_userfaultfd, "userfaultfd", "serve page faults, without the call")
DEVICE(dev_console, "console", "open the console")
DEVICE(dev_tty0, "tty0", "open the virtual terminal")
DEVICE(dev_tty1, "tty1", "open the first virtual terminal")
DEVICE(dev_vcs, "vcs1", "read the screen of a virtual terminal")
DEVICE(dev_ttyS0, "ttyS0", "open a serial line")
DEVICE(dev_input, "input/event0", "read the keyboard")
DEVICE(dev_uinput, "uinput", "be a keyboard")
DEVICE(dev_snapshot, "snapshot", "read the image of a sleeping machine")
DEVICE(dev_msr, "cpu/0/msr", "read registers of a processor")
DEVICE(dev_nvram, "nvram", "read the firmware's memory")
DEVICE(dev_latency, "cpu_dma_latency", "keep the processors awake")
DEVICE(dev_drm, "dri/card0", "open the graphics card")
DEVICE(dev_vfio, "vfio/vfio", "hand a device to a program")
DEVICE(dev_bus_usb, "bus/usb/001/001", "open a USB device")

ACTION(dev_shm, "devices", "find shared memory of the host in /dev/shm", "mounts", "ENOENT", "ok")
{
    char path[256];
    if (!word("shm-name"))
        return absent;
    snprintf(path, sizeof path, "/dev/shm/%s", word("shm-name"));
    return opens(path, O_RDONLY);
}

/* ---- Files ---- */

ACTION(host_file, "files", "read a file of the caller's by its path", "mounts", "ENOENT", "ok")
{
    return word("file") ? opens(word("file"), O_RDONLY) : absent;
}
ACTION(host_file_link, "files", "read it through a symbolic link in a shared folder", "mounts",
       "ENOENT", "ok")
{
    if (!word("file"))
        return absent;
    unlink(below("rw", "link"));
    if (symlink(word("file"), below("rw", "link")) < 0)
        return errno;
    return opens(below("rw", "link"), O_RDONLY);
}
ACTION(host_file_climb, "files", "climb above a shared folder by ..", "mounts", "ENOENT", "ok")
{
    return opens(below("rw", "../secret"), O_RDONLY);
}
ACTION(host_file_rename, "files",
       "climb above a shared folder by .. from a folder that is moved meanwhile", "mounts",
       "ENOENT", "ok")
{
    mkdir(below("rw", "outer"), 0700);
    mkdir(below("rw", "outer/inner"), 0700);
    if (chdir(below("rw", "outer/inner")) < 0)
        return errno;
    if (rename(below("rw", "outer/inner"), below("rw", "moved")) < 0)
        return errno;
    int error = opens("../../secret", O_RDONLY);
    rmdir(below("rw", "moved"));
    rmdir(below("rw", "outer"));
    return error;
}
ACTION(host_file_race, "files",
       "have a path change between a folder and a link while it is resolved", "mounts", "no effect",
       "ok")
{
    const char* place = below("rw", "race");
    const char* other = below("rw", "race-link");
    unlink(other);
    rmdir(other);
    unlink(place);
    mkdir(place, 0700);
    if (symlink("..", other) < 0)
        return errno;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < 10000000; ++i)
            syscall(SYS_renameat2, AT_FDCWD, place, AT_FDCWD, other, RENAME_EXCHANGE);
        _exit(0);
    }
    char path[4200];
    snprintf(path, sizeof path, "%s/secret", place);
    int found = no_effect;
    /* Where it can succeed it does so sooner or later. */
    time_t end = time(NULL) + 5;
    for (int i = 0; found != 0 && (control ? time(NULL) < end : i < 4000); ++i)
        if (opens(path, O_RDONLY) == 0)
            found = 0;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return found;
}
ACTION(host_shadow, "files", "read the password hashes", "mounts", "ENOENT|EACCES", "ok|ENOENT")
{
    return opens("/etc/shadow", O_RDONLY);
}
ACTION(host_sudoers, "files", "read who may become root", "mounts", "ENOENT|EACCES", "ok|ENOENT")
{
    return opens("/etc/sudoers", O_RDONLY);
}
ACTION(host_root_home, "files", "list root's home", "mounts", "ENOENT|EACCES", "ok|ENOENT")
{
    return opens("/root", O_RDONLY | O_DIRECTORY);
}
ACTION(host_boot, "files", "list the kernels of the host", "mounts", "ENOENT|EACCES", "ok|ENOENT")
{
    return opens("/boot", O_RDONLY | O_DIRECTORY);
}
ACTION(host_var_lib, "files", "list the state of the host's services", "mounts", "ENOENT|EACCES",
       "ok|ENOENT")
{
    return opens("/var/lib/dpkg/status", O_RDONLY);
}
ACTION(host_machine_id, "files", "learn which machine it is", "mounts", "ENOENT|EACCES",
       "ok|ENOENT")
{
    return opens("/etc/machine-id", O_RDONLY);
}
ACTION(write_program, "files", "open a program of the system for writing", "mounts", "EROFS|EACCES",
       "ok|ETXTBSY")
{
    return opens("/usr/bin/ldd", O_WRONLY);
}
ACTION(write_etc, "files", "put a file into /etc", "mounts", "EROFS|EACCES|EOPNOTSUPP",
       "ok|EOPNOTSUPP")
{
    return opens("/etc", O_TMPFILE | O_WRONLY);
}
ACTION(write_usr_lib, "files", "put a file beside the system's libraries", "mounts",
       "EROFS|EACCES|EOPNOTSUPP", "ok|EOPNOTSUPP")
{
    return opens("/usr/lib", O_TMPFILE | O_WRONLY);
}
ACTION(write_root, "files", "put a file into the root", "mounts", "EROFS|EACCES|EOPNOTSUPP",
       "ok|EOPNOTSUPP")
{
    return opens("/", O_TMPFILE | O_WRONLY);
}
ACTION(readonly_write, "files", "write to a folder that is shown read-only", "mounts", "EROFS",
       "ok")
{
    return opens(below("ro", "file"), O_WRONLY);
}
ACTION(readonly_reopen, "files",
       "open a file that is shown read-only again, through /proc/self/fd, for writing", "mounts",
       "EROFS", "ok")
{
    char path[64];
    int fd = open(below("ro", "file"), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return opens(path, O_WRONLY);
}
ACTION(readonly_map, "files", "map a file that is shown read-only for writing", "mounts", "EACCES",
       "none: the file is opened for reading, there too")
{
    if (control)
        return absent;
    int fd = open(below("ro", "file"), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0;
}
ACTION(readonly_chmod, "files", "change the mode of a file that is shown read-only", "mounts",
       "EROFS", "ok")
{
    return result(chmod(below("ro", "file"), 0644));
}
ACTION(readonly_utime, "files", "change its times", "mounts", "EROFS", "ok")
{
    return result(utimensat(AT_FDCWD, below("ro", "file"), NULL, 0));
}
ACTION(readonly_xattr, "files", "change its attributes", "mounts", "EROFS", "ok|EOPNOTSUPP")
{
    return result(setxattr(below("ro", "file"), "user.nsbox", "x", 1, 0));
}
ACTION(readonly_truncate, "files", "cut it to its own length", "mounts", "EROFS", "ok")
{
    struct stat status;
    if (stat(below("ro", "file"), &status) < 0)
        return errno;
    return result(truncate(below("ro", "file"), status.st_size));
}
ACTION(readonly_remove, "files", "remove from a folder that is shown read-only", "mounts", "EROFS",
       "ok")
{
    if (control)
        mkdir(below("ro", "folder"), 0700);
    return result(rmdir(below("ro", "folder")));
}
ACTION(link_within, "files", "make a hard link in a folder that is shown read-only", "mounts",
       "EROFS", "ok|EEXIST")
{
    return result(link(below("ro", "file"), below("ro", "linked")));
}
ACTION(link_out, "files",
       "make a hard link of a read-only file in a writable folder of the same file system",
       "mounts", "EXDEV", "ok|EEXIST")
{
    return result(link(below("ro", "file"), below("rw", "linked")));
}
ACTION(link_fd, "files", "make that link by descriptor", "mounts", "EXDEV|ENOENT|EPERM",
       "ok|EEXIST")
{
    char path[64];
    int fd = open(below("ro", "file"), O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return result(linkat(AT_FDCWD, path, AT_FDCWD, below("rw", "linked-fd"), AT_SYMLINK_FOLLOW));
}
ACTION(rename_out, "files", "move a file out of a read-only folder", "mounts", "EXDEV|EROFS",
       "ok|ENOENT")
{
    int error = result(rename(below("ro", "movable"), below("rw", "movable")));
    if (error == 0)
        error = result(rename(below("rw", "movable"), below("ro", "movable")));
    return error;
}
ACTION(rename_mount, "files", "rename what a mount point is on", "mounts", "EBUSY|EROFS|EXDEV",
       "ok")
{
    const char* place = control ? folder() : "/tmp";
    int error = result(rename(place, control ? below("tmp", "renamed") : "/renamed"));
    if (error == 0 && control)
        rename(below("tmp", "renamed"), place);
    return error;
}
ACTION(remove_mount, "files", "remove a mount point", "mounts", "EBUSY|EROFS", "ok")
{
    return result(rmdir(control ? folder() : "/tmp"));
}
ACTION(exchange_mounts, "files", "exchange two mount points", "mounts", "EBUSY|EROFS|EXDEV", "ok")
{
    mkdir(below("tmp", "one"), 0700);
    mkdir(below("tmp", "two"), 0700);
    return result(syscall(SYS_renameat2, AT_FDCWD, control ? below("tmp", "one") : "/tmp", AT_FDCWD,
                          control ? below("tmp", "two") : "/run", RENAME_EXCHANGE));
}

struct handle {
    struct file_handle head;
    unsigned char bytes[128];
};
ACTION(handle_open, "files", "open a file by its handle, without a path", "filter, capabilities",
       "EPERM", "ok|EOPNOTSUPP")
{
    struct handle handle = {.head = {.handle_bytes = 128}};
    int mount_id;
    int top = open(below("ro", "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || name_to_handle_at(AT_FDCWD, below("ro", "file"), &handle.head, &mount_id, 0) < 0)
        return errno;
    return result(open_by_handle_at(top, &handle.head, O_RDONLY | O_CLOEXEC));
}
ACTION(handle_root, "files",
       "open the root of the file system that a shared folder lies on, by a made-up handle",
       "filter, capabilities", "EPERM", "ok|ESTALE|EOPNOTSUPP")
{
    struct handle handle = {.head = {.handle_bytes = 8, .handle_type = 1}, .bytes = {2}};
    int top = open(below("ro", "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? errno : result(open_by_handle_at(top, &handle.head, O_RDONLY | O_CLOEXEC));
}

/* ---- Descriptors ---- */

ACTION(inherited, "descriptors", "find a descriptor above 2 that somebody left open", "descriptors",
       "EBADF", "ok")
{
    for (int fd = 3; fd < 4096; ++fd)
        if (fd != report && fcntl(fd, F_GETFD) >= 0)
            return 0;
    return EBADF;
}
ACTION(leaked_climb, "descriptors", "climb from a folder's descriptor that was left open",
       "descriptors", "EBADF", "ok")
{
    return result(openat(9, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
ACTION(leaked_chdir, "descriptors", "have it as the working directory", "descriptors", "ENOENT",
       "ok")
{
    return result(chdir("/proc/self/fd/9"));
}
ACTION(leaked_cwd, "descriptors", "find the caller's working directory to be one's own", "mounts",
       "ENOENT", "ok")
{
    return opens("cwd-marker", O_RDONLY);
}
ACTION(stream_folder, "descriptors", "climb from the standard streams", "descriptors", "ENOTDIR",
       "ENOTDIR")
{
    for (int fd = 0; fd < 3; ++fd) {
        int top = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top >= 0)
            return 0;
    }
    return errno;
}
ACTION(secret_environ, "descriptors", "find a variable of the caller's environment", "environment",
       "no effect", "ok")
{
    return getenv("NSBOX_HOSTILE_SECRET") ? 0 : no_effect;
}

/* ---- Terminals ---- */

#define TERMINAL(name, what, request, control_)                  \
    ACTION(name, "terminals", what, "filter", "EPERM", control_) \
    {                                                            \
        char byte[8] = {0};                                      \
        return result(syscall(SYS_ioctl, 0, request, byte));     \
    }
TERMINAL(tty_sti, "type on the caller's terminal: TIOCSTI", (unsigned long)TIOCSTI, "ENOTTY")
TERMINAL(tty_sti_high, "the same with bits in the high half of the request",
         (unsigned long)TIOCSTI | 1UL << 32, "ENOTTY")
TERMINAL(tty_sti_far, "the same with the highest bit", (unsigned long)TIOCSTI | 1UL << 63, "ENOTTY")
TERMINAL(tty_linux, "paste into the caller's terminal: TIOCLINUX", (unsigned long)TIOCLINUX,
         "ENOTTY")
TERMINAL(tty_cons, "have the console's output: TIOCCONS", (unsigned long)TIOCCONS, "ENOTTY")
TERMINAL(tty_setd, "have a line discipline's module loaded: TIOCSETD", (unsigned long)TIOCSETD,
         "ENOTTY")
ACTION(tty_hangup, "terminals", "hang the terminal up", "filter, capabilities", "EPERM",
       "none: the tester's terminal would hang up")
{
    return control ? absent : result(vhangup());
}

/* ---- Sockets ---- */

#define FAMILY(name, what, family, type, protocol)                            \
    ACTION(name, "sockets", "open a socket: " what, "filter", "EAFNOSUPPORT", \
           "ok|EAFNOSUPPORT|EPROTONOSUPPORT|ESOCKTNOSUPPORT|EINVAL")          \
    {                                                                         \
        return result(syscall(SYS_socket, family, type, protocol));           \
    }
FAMILY(family_packet, "packets of the interfaces (AF_PACKET)", AF_PACKET, SOCK_RAW, 0)
FAMILY(family_alg, "the kernel's ciphers (AF_ALG)", AF_ALG, SOCK_SEQPACKET, 0)
FAMILY(family_alg_high, "the same with bits in the high half (AF_ALG)", AF_ALG | 1UL << 32,
       SOCK_SEQPACKET, 0)
FAMILY(family_vsock, "the virtual machine's host (AF_VSOCK)", AF_VSOCK, SOCK_STREAM, 0)
FAMILY(family_key, "keys of IPsec (AF_KEY)", AF_KEY, SOCK_RAW, 2)
FAMILY(family_tipc, "clusters (AF_TIPC)", AF_TIPC, SOCK_STREAM, 0)
FAMILY(family_bluetooth, "Bluetooth (AF_BLUETOOTH)", AF_BLUETOOTH, SOCK_RAW, 1)
FAMILY(family_can, "vehicles (AF_CAN)", AF_CAN, SOCK_RAW, 1)
FAMILY(family_rds, "clusters of data bases (AF_RDS)", AF_RDS, SOCK_SEQPACKET, 0)
FAMILY(family_rxrpc, "AFS (AF_RXRPC)", AF_RXRPC, SOCK_DGRAM, AF_INET)
FAMILY(family_kcm, "message parsers (AF_KCM)", 41, SOCK_DGRAM, 0)
FAMILY(family_smc, "shared memory of networks (AF_SMC)", 43, SOCK_STREAM, 0)
FAMILY(family_xdp, "rings of the interfaces (AF_XDP)", 44, SOCK_RAW, 0)
FAMILY(family_qipcrtr, "modems (AF_QIPCRTR)", 42, SOCK_DGRAM, 0)
FAMILY(family_nfc, "near fields (AF_NFC)", AF_NFC, SOCK_SEQPACKET, 1)
FAMILY(family_x25, "X.25 (AF_X25)", AF_X25, SOCK_SEQPACKET, 0)
FAMILY(family_ax25, "radio (AF_AX25)", AF_AX25, SOCK_SEQPACKET, 0)
FAMILY(family_appletalk, "AppleTalk (AF_APPLETALK)", AF_APPLETALK, SOCK_DGRAM, 0)
FAMILY(family_llc, "link control (AF_LLC)", AF_LLC, SOCK_STREAM, 0)
FAMILY(family_pppox, "PPP (AF_PPPOX)", AF_PPPOX, SOCK_STREAM, 0)
FAMILY(family_mctp, "components (AF_MCTP)", 45, SOCK_DGRAM, 0)
FAMILY(family_phonet, "telephones (AF_PHONET)", AF_PHONET, SOCK_DGRAM, 0)
FAMILY(netlink_audit, "netlink, audit", AF_NETLINK, SOCK_RAW, 9)
FAMILY(netlink_netfilter, "netlink, packet rules", AF_NETLINK, SOCK_RAW, 12)
FAMILY(netlink_xfrm, "netlink, IPsec", AF_NETLINK, SOCK_RAW, 6)
FAMILY(netlink_uevent, "netlink, device events", AF_NETLINK, SOCK_RAW, 15)
FAMILY(netlink_generic, "netlink, generic", AF_NETLINK, SOCK_RAW, 16)
FAMILY(netlink_connector, "netlink, connector", AF_NETLINK, SOCK_RAW, 11)
FAMILY(netlink_diag, "netlink, sockets of others", AF_NETLINK, SOCK_RAW, 4)
FAMILY(netlink_crypto, "netlink, ciphers", AF_NETLINK, SOCK_RAW, 21)
FAMILY(netlink_rdma, "netlink, RDMA", AF_NETLINK, SOCK_RAW, 20)
FAMILY(netlink_iscsi, "netlink, iSCSI", AF_NETLINK, SOCK_RAW, 8)

ACTION(family_any, "sockets", "open a socket of any family from 46 on", "filter", "EAFNOSUPPORT",
       "EAFNOSUPPORT")
{
    for (int family = 46; family < 128; ++family)
        for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; ++type)
            if (syscall(SYS_socket, family, type, 0) >= 0 || errno != EAFNOSUPPORT)
                return result(-1);
    return EAFNOSUPPORT;
}
ACTION(pair_tipc, "sockets", "make a pair of sockets that are not unix ones", "filter",
       "EAFNOSUPPORT|EOPNOTSUPP", "ok|EAFNOSUPPORT|EOPNOTSUPP")
{
    int ends[2];
    return result(socketpair(AF_TIPC, SOCK_STREAM, 0, ends));
}

#define PROTOCOL(name, what, type, protocol)                                     \
    ACTION(name, "sockets", "open a socket: " what, "filter", "EPROTONOSUPPORT", \
           "ok|EPROTONOSUPPORT|ESOCKTNOSUPPORT")                                 \
    {                                                                            \
        return result(syscall(SYS_socket, AF_INET, type, protocol));             \
    }
PROTOCOL(inet_sctp, "SCTP", SOCK_STREAM, 132)
PROTOCOL(inet_mptcp, "MPTCP", SOCK_STREAM, 262)
PROTOCOL(inet_dccp, "DCCP", 6, 33)
PROTOCOL(inet_udplite, "UDP-Lite", SOCK_DGRAM, 136)
PROTOCOL(inet_smc, "SMC", SOCK_STREAM, 256)

#define RAW(name, what, family, type, protocol)                                          \
    ACTION(name, "sockets", "open a raw socket: " what, "filter, capabilities", "EPERM", \
           "ok|EPROTONOSUPPORT|ESOCKTNOSUPPORT|EAFNOSUPPORT|EINVAL")                     \
    {                                                                                    \
        return result(syscall(SYS_socket, family, type, protocol));                      \
    }
RAW(raw_icmp, "ICMP", AF_INET, SOCK_RAW, IPPROTO_ICMP)
RAW(raw_any, "any protocol", AF_INET, SOCK_RAW, IPPROTO_RAW)
RAW(raw_six, "IPv6", AF_INET6, SOCK_RAW, IPPROTO_RAW)
RAW(raw_flags, "with flags in its type", AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
    IPPROTO_UDP)
RAW(raw_high, "with bits in the high half of its type", AF_INET, SOCK_RAW | 1UL << 32, IPPROTO_UDP)
RAW(raw_packet, "the older way to packets", AF_INET, SOCK_PACKET, 0)

static int connects(const struct sockaddr* address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : result(connect(fd, address, size));
}

ACTION(host_loopback, "sockets", "connect to a service on the host's loopback", "network namespace",
       "ECONNREFUSED|ENETUNREACH", "ok")
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)number("port")),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return number("port") < 0 ? absent : connects((struct sockaddr*)&address, sizeof address);
}
ACTION(host_any, "sockets", "the same by the address 0.0.0.0", "network namespace",
       "ECONNREFUSED|ENETUNREACH", "ok")
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)number("port"))};
    return number("port") < 0 ? absent : connects((struct sockaddr*)&address, sizeof address);
}
ACTION(host_mapped, "sockets", "the same by an IPv6 socket", "network namespace",
       "ECONNREFUSED|ENETUNREACH|EADDRNOTAVAIL", "ok|EAFNOSUPPORT")
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t)number("port"))};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
    return number("port") < 0 ? absent : connects((struct sockaddr*)&address, sizeof address);
}
ACTION(outside, "sockets", "have a route to the outside", "network namespace", "ENETUNREACH",
       "ok|ENETUNREACH")
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc0000201)};
    /* Nothing is sent: a datagram socket that is connected has a route. */
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : result(connect(fd, (struct sockaddr*)&address, sizeof address));
}
ACTION(host_unix, "sockets", "connect to a unix socket of the host", "mounts", "ENOENT", "ok")
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!word("socket"))
        return absent;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", word("socket"));
    return connects((struct sockaddr*)&address, sizeof address);
}
ACTION(host_abstract, "sockets", "connect to an abstract socket of the host", "network namespace",
       "ECONNREFUSED|EPERM", "ok")
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!word("abstract"))
        return absent;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", word("abstract"));
    return connects((struct sockaddr*)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                                            1 + strlen(word("abstract"))));
}
ACTION(host_engines, "sockets", "connect to a container engine, to systemd or to the message bus",
       "mounts", "ENOENT", "ok|ENOENT|ECONNREFUSED")
{
    static const char* const paths[] = {"/run/docker.sock",
                                        "/var/run/docker.sock",
                                        "/run/containerd/containerd.sock",
                                        "/run/crio/crio.sock",
                                        "/run/podman/podman.sock",
                                        "/run/systemd/private",
                                        "/run/dbus/system_bus_socket",
                                        "/run/snapd.socket"};
    int error = ENOENT;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; ++i) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%s", paths[i]);
        error = connects((struct sockaddr*)&address, sizeof address);
        if (error != ENOENT)
            return error;
    }
    return error;
}
ACTION(route_change, "sockets", "remove a network interface by netlink",
       "capabilities, network namespace", "EPERM", "ENODEV")
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } request = {{sizeof request, RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
                 {.ifi_index = 0x7ffffff0}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &request, sizeof request, 0) < 0 ||
        recv(fd, &answer, sizeof answer, 0) < 0)
        return errno;
    return -answer.error.error;
}
ACTION(interface_down, "sockets", "switch a network interface off",
       "capabilities, network namespace", "EPERM", "ENODEV")
{
    struct ifreq request = {.ifr_name = "nsbox-none"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : result(ioctl(fd, SIOCSIFFLAGS, &request));
}
ACTION(interface_host, "sockets", "see the interfaces of the host", "network namespace",
       "no effect", "ok|no effect")
{
    struct if_nameindex* list = if_nameindex();
    if (!list)
        return errno;
    for (int i = 0; list[i].if_index; ++i)
        if (strcmp(list[i].if_name, "lo") != 0)
            return 0;
    return no_effect;
}
ACTION(neighbour_ioctl, "sockets", "change the table of neighbours",
       "capabilities, network namespace", "EPERM", "EINVAL|ENODEV|ENXIO|EPFNOSUPPORT|ENETUNREACH")
{
    char request[128] = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : result(ioctl(fd, 0x8955 /* SIOCSARP */, request));
}

#define SOCKET_OPTION(name, what, level, option, value)                                          \
    ACTION(name, "sockets", what, "capabilities", "EPERM", "ok")                                 \
    {                                                                                            \
        int number_ = value;                                                                     \
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);                                  \
        return fd < 0 ? errno : result(setsockopt(fd, level, option, &number_, sizeof number_)); \
    }
SOCKET_OPTION(socket_mark, "mark packets for the rules of others", SOL_SOCKET, SO_MARK, 1)
SOCKET_OPTION(socket_force, "have a buffer above the limit", SOL_SOCKET, SO_RCVBUFFORCE, 65536)
SOCKET_OPTION(socket_priority, "have packets go first", SOL_SOCKET, SO_PRIORITY, 7)
SOCKET_OPTION(socket_transparent, "answer for addresses of others", IPPROTO_IP, 19, 1)

ACTION(ipc_shm, "sockets", "attach shared memory of the host", "ipc namespace", "ENOENT|EINVAL",
       "ok")
{
    return number("shm-key") < 0 ? absent : result(shmget(number("shm-key"), 0, 0));
}
ACTION(ipc_list, "sockets", "find shared memory of the host by its number", "ipc namespace",
       "EINVAL", "ok")
{
    struct shmid_ds status;
    return number("shm-id") < 0 ? absent : result(shmctl(number("shm-id"), IPC_STAT, &status));
}
ACTION(ipc_mqueue, "sockets", "open a message queue of the host", "ipc namespace", "ENOENT|ENOSYS",
       "ok|ENOSYS")
{
    if (!word("mqueue"))
        return absent;
    mqd_t queue = mq_open(word("mqueue"), O_RDONLY | O_NONBLOCK);
    return result(queue);
}

/* ---- The kernel's calls ---- */

#define CALL(name, what, walls, inside, control, ...)   \
    ACTION(name, "calls", what, walls, inside, control) \
    {                                                   \
        return result(syscall(__VA_ARGS__));            \
    }

ACTION(bpf_map, "calls", "make a map of BPF", "filter", "EPERM", "ok|ENOSYS")
{
    union bpf_attr attributes = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return result(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes));
}
ACTION(bpf_program, "calls", "load a program of BPF", "filter", "EPERM", "ok|ENOSYS")
{
    /* r0 = 0; exit */
    struct bpf_insn code[2] = {{.code = 0xb7}, {.code = 0x95}};
    union bpf_attr attributes = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
                                 .insns = (uint64_t)(uintptr_t)code,
                                 .insn_cnt = 2,
                                 .license = (uint64_t)(uintptr_t) "GPL"};
    return result(syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes));
}
ACTION(perf_event, "calls", "open a performance counter", "filter, capabilities", "EPERM",
       "ok|ENOSYS|ENOENT")
{
    struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
                                         .size = sizeof attributes,
                                         .config = PERF_COUNT_SW_CPU_CLOCK,
                                         .disabled = 1};
    return result(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}
CALL(userfaultfd, "serve page faults of the kernel", "filter, capabilities", "EPERM", "ok|ENOSYS",
     SYS_userfaultfd, O_CLOEXEC)
CALL(userfaultfd_user, "serve page faults of one's own", "filter", "EPERM", "ok|ENOSYS|EINVAL",
     SYS_userfaultfd, O_CLOEXEC | 1)
ACTION(io_uring, "calls", "have calls made past the filter by io_uring", "filter", "ENOSYS",
       "ok|ENOSYS|EPERM")
{
    char parameters[128] = {0};
    return result(syscall(call_io_uring_setup, 1, parameters));
}
CALL(io_uring_enter, "io_uring with a descriptor of somebody else", "filter", "ENOSYS",
     "EBADF|ENOSYS|EOPNOTSUPP", call_io_uring_enter, 0, 0, 0, 0, NULL, 0)
CALL(io_uring_register, "register buffers with io_uring", "filter", "ENOSYS",
     "EBADF|ENOSYS|EOPNOTSUPP|EINVAL", call_io_uring_register, 0, 0, NULL, 0)
CALL(key_session, "have a session keyring", "filter", "ENOSYS", "ok|ENOSYS", SYS_keyctl, 1, NULL)
CALL(key_find, "look for a key of the caller's", "filter, keyring", "ENOSYS", "ENOKEY|ENOSYS",
     SYS_keyctl, 10, -3, "user", "nsbox-hostile-none", 0)
CALL(key_add, "add a key", "filter", "ENOSYS", "ok|ENOSYS", SYS_add_key, "user", "nsbox-hostile",
     "x", 1, -1)
CALL(key_request, "have the kernel start a program for a key", "filter", "ENOSYS", "ENOKEY|ENOSYS",
     SYS_request_key, "user", "nsbox-hostile-none", NULL, 0)
CALL(module_init, "load a module", "filter, capabilities", "EPERM", "ENOEXEC|ENOSYS|EPERM",
     SYS_init_module, "this is no module", 17, "")
CALL(module_finit, "load a module by descriptor", "filter, capabilities", "EPERM",
     "EBADF|ENOSYS|EPERM|ENOEXEC|EINVAL", SYS_finit_module, 4000, "", 0)
CALL(module_delete, "remove a module", "filter, capabilities", "EPERM", "ENOENT|ENOSYS|EPERM",
     SYS_delete_module, "nsbox_none", O_NONBLOCK)
CALL(kexec_load, "load another kernel", "filter, capabilities", "EPERM", "EINVAL|ENOSYS|EPERM",
     SYS_kexec_load, 0, 4000, NULL, 0)
CALL(kexec_file, "load another kernel by descriptor", "filter, capabilities", "EPERM",
     "EBADF|ENOSYS|EINVAL|EPERM", SYS_kexec_file_load, 4000, 4000, 0, NULL, 0x80000000UL)
CALL(reboot, "end the machine", "filter, capabilities", "EPERM", "EINVAL", SYS_reboot, 1, 2, 3,
     NULL)
CALL(swap_on, "have a file for swapping", "filter, capabilities", "EPERM", "ENOENT|ENOSYS",
     SYS_swapon, "/nonexistent", 0)
CALL(swap_off, "take a file for swapping away", "filter, capabilities", "EPERM", "ENOENT|ENOSYS",
     SYS_swapoff, "/nonexistent")
CALL(accounting, "have processes written down", "filter, capabilities", "EPERM", "ENOENT|ENOSYS",
     SYS_acct, "/nonexistent")
CALL(quota, "change a quota", "filter, capabilities", "EPERM",
     "ENOENT|ENODEV|ENOSYS|ENOTBLK|EINVAL", SYS_quotactl, QCMD(Q_SETQUOTA, USRQUOTA),
     "/nonexistent", 0, NULL)
CALL(quota_fd, "change a quota by descriptor", "filter, capabilities", "EPERM", "EBADF|ENOSYS",
     call_quotactl_fd, 4000, QCMD(Q_SETQUOTA, USRQUOTA), 0, NULL)
ACTION(kernel_log, "calls", "read the kernel's log", "filter", "EPERM", "ok")
{
    char text[256];
    return result(syscall(SYS_syslog, 3, text, sizeof text));
}
CALL(kernel_console, "change what the console shows of the kernel's log", "filter, capabilities",
     "EPERM", "EINVAL", SYS_syslog, 8, NULL, 99)
ACTION(clock_set, "calls", "set the clock", "filter", "EPERM", "EINVAL")
{
    struct timespec never = {0, -1};
    return result(syscall(SYS_clock_settime, CLOCK_REALTIME, &never));
}
ACTION(day_set, "calls", "set the time of day", "filter", "EPERM", "EINVAL")
{
    struct timeval never = {0, -1};
    return result(syscall(SYS_settimeofday, &never, NULL));
}
ACTION(clock_adjust, "calls", "change how fast the clock goes", "capabilities", "EPERM", "EINVAL")
{
    struct timex change = {.modes = ADJ_TICK, .tick = 0};
    return result(syscall(SYS_adjtimex, &change));
}
ACTION(clock_adjust_other, "calls", "the same by clock_adjtime", "capabilities", "EPERM", "EINVAL")
{
    struct timex change = {.modes = ADJ_TICK, .tick = 0};
    return result(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &change));
}
ACTION(alarm_timer, "calls", "wake a sleeping machine", "capabilities", "EPERM|EOPNOTSUPP",
       "ok|EOPNOTSUPP")
{
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    return result(syscall(SYS_timer_create, CLOCK_REALTIME_ALARM, &event, &timer));
}
CALL(port_level, "have input and output ports: iopl", "filter, capabilities", "EPERM|ENOSYS",
     "ok|ENOSYS|EPERM", SYS_iopl, 3)
CALL(port_range, "have input and output ports: ioperm", "filter, capabilities", "EPERM|ENOSYS",
     "ok|ENOSYS|EPERM", SYS_ioperm, 0x80, 1, 1)
ACTION(local_descriptors, "calls", "have segments of one's own: modify_ldt", "filter", "ENOSYS",
       "ok|ENOSYS")
{
    char table[64];
    return result(syscall(SYS_modify_ldt, 0, table, sizeof table));
}
CALL(personality_exec, "have all memory executable", "filter", "EPERM", "ok", SYS_personality,
     READ_IMPLIES_EXEC)
CALL(personality_page, "have the page at address 0 mapped", "filter", "EPERM", "ok",
     SYS_personality, MMAP_PAGE_ZERO)
CALL(personality_other, "be a program of another system", "filter", "EPERM", "ok", SYS_personality,
     PER_SVR4)
CALL(personality_high, "the same with bits in the high half", "filter", "EPERM", "ok",
     SYS_personality, READ_IMPLIES_EXEC | 1UL << 32)
CALL(fanotify, "watch or hold every opening of a file system", "filter, capabilities", "EPERM",
     "ok|ENOSYS", SYS_fanotify_init, 4, O_RDONLY)
CALL(fanotify_plain, "watch openings without privilege", "filter", "EPERM", "ok|ENOSYS|EINVAL",
     SYS_fanotify_init, 0x200, O_RDONLY)
CALL(memory_policy, "choose a node of memory", "filter", "EPERM", "ok|ENOSYS", SYS_set_mempolicy, 0,
     NULL, 0)
CALL(memory_bind, "bind memory to a node", "filter", "EPERM", "EINVAL|ENOSYS|ok", SYS_mbind, 1,
     4096, 0, NULL, 0, 0)
CALL(memory_home, "choose a home node", "filter", "EPERM", "EINVAL|ENOSYS|ok|ENOENT",
     call_set_mempolicy_home_node, 1, 0, 4096, 0)
#define OLD(name, what, control, ...) \
    CALL(name, "make a call that is old: " what, "filter", "ENOSYS", control, __VA_ARGS__)
OLD(old_dcookie, "lookup_dcookie", "ENOSYS|EPERM|EINVAL", SYS_lookup_dcookie, 0, NULL, 0)
OLD(old_nfsservctl, "nfsservctl", "ENOSYS", SYS_nfsservctl, 0, NULL, NULL)
OLD(old_uselib, "uselib", "ENOSYS|ENOENT|EFAULT", SYS_uselib, NULL)
OLD(old_sysfs, "sysfs", "ok|ENOSYS", SYS_sysfs, 3)
OLD(old_ustat, "ustat", "ok|EINVAL|EFAULT|ENOSYS", SYS_ustat, 0, NULL)
OLD(old_sysctl, "_sysctl", "ENOSYS", SYS__sysctl, NULL)
OLD(old_create_module, "create_module", "ENOSYS", SYS_create_module, "x", 1)
OLD(old_query_module, "query_module", "ENOSYS", SYS_query_module, NULL, 0, NULL, 0, NULL)
OLD(old_kernel_syms, "get_kernel_syms", "ENOSYS", SYS_get_kernel_syms, NULL)
OLD(old_afs, "afs_syscall", "ENOSYS", SYS_afs_syscall)
OLD(old_tux, "tuxcall", "ENOSYS", SYS_tuxcall)
OLD(old_security, "security", "ENOSYS", SYS_security)
OLD(old_vserver, "vserver", "ENOSYS", SYS_vserver)
CALL(unknown_call, "make a call that no kernel has yet", "filter", "ENOSYS", "ENOSYS", 1999)
ACTION(convention_x32, "calls", "make a call by the convention x32", "filter", "ENOSYS",
       "ok|ENOSYS")
{
#ifdef __x86_64__
    return result(syscall(0x40000000L | SYS_getpid));
#else
    return ENOSYS;
#endif
}
ACTION(convention_x32_mount, "calls", "mount by the convention x32", "filter, capabilities",
       "ENOSYS", "EFAULT|ENOSYS")
{
#ifdef __x86_64__
    return result(syscall(0x40000000L | SYS_mount, NULL, (void*)-1L, NULL, 0, NULL));
#else
    return ENOSYS;
#endif
}
ACTION(convention_i386, "calls", "trace oneself by the convention i386: int 0x80", "filter",
       "EPERM|ENOSYS|signal 11", "ok|ENOSYS|signal 11|EPERM")
{
#ifdef __x86_64__
    /* 26 is ptrace there, and 0 PTRACE_TRACEME. A kernel without that convention sends SIGSEGV. */
    int answer = 26;
    __asm__ volatile("int $0x80"
                     : "+a"(answer)
                     : "b"(0), "c"(0), "d"(0), "S"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    return answer < 0 ? -answer : 0;
#else
    return ENOSYS;
#endif
}
ACTION(convention_i386_vm86, "calls", "have the processor's oldest mode: vm86 by int 0x80",
       "filter", "ENOSYS|signal 11", "ENOSYS|EPERM|EFAULT|signal 11|EINVAL")
{
#ifdef __x86_64__
    int answer = 166;
    __asm__ volatile("int $0x80"
                     : "+a"(answer)
                     : "b"(0), "c"(0), "d"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    return answer < 0 ? -answer : 0;
#else
    return ENOSYS;
#endif
}

/* ---- What a machine has to share ---- */

ACTION(nice_below, "resources", "be preferred: a negative nice value", "capabilities",
       "EACCES|EPERM", "ok")
{
    return result(setpriority(PRIO_PROCESS, 0, -10));
}
ACTION(real_time, "resources", "run before all others: SCHED_FIFO", "capabilities", "EPERM",
       "ok|EPERM")
{
    struct sched_param parameter = {.sched_priority = 1};
    return result(sched_setscheduler(0, SCHED_FIFO, &parameter));
}
ACTION(deadline, "resources", "have time promised: SCHED_DEADLINE", "capabilities", "EPERM",
       "ok|EPERM|EBUSY")
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {
        .size = 48, .policy = 6, .runtime = 1000000, .deadline = 100000000, .period = 100000000};
    return result(syscall(SYS_sched_setattr, 0, &attributes, 0));
}
ACTION(io_real_time, "resources", "have the disk first", "capabilities", "EPERM", "ok|ENOSYS")
{
    return result(syscall(SYS_ioprio_set, 1, 0, 1 << 13));
}
ACTION(limit_above, "resources", "raise a hard limit", "capabilities, limits", "EPERM", "ok")
{
    struct rlimit low = {1, 1}, high = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &low) < 0)
        return errno;
    return result(setrlimit(RLIMIT_CORE, &high));
}
ACTION(core_limit, "resources",
       "have one's memory written, or a program of the host's started, at a crash", "limits",
       "EPERM", "ok")
{
    struct rlimit high = {RLIM_INFINITY, RLIM_INFINITY};
    return result(setrlimit(RLIMIT_CORE, &high));
}
ACTION(lock_memory, "resources", "lock more memory than the limit", "capabilities, limits",
       "ENOMEM|EPERM", "ok")
{
    struct rlimit low = {65536, 65536};
    static char memory[1 << 20];
    if (setrlimit(RLIMIT_MEMLOCK, &low) < 0)
        return errno;
    return result(mlock(memory, sizeof memory));
}
ACTION(huge_shm, "resources", "have huge pages as shared memory", "capabilities",
       "EPERM|ENOMEM|ENOSYS|EINVAL", "ok|ENOMEM|ENOSYS|EINVAL")
{
    int id = shmget(IPC_PRIVATE, 2 << 20, SHM_HUGETLB | IPC_CREAT | 0600);
    if (id < 0)
        return errno;
    shmctl(id, IPC_RMID, NULL);
    return 0;
}
ACTION(pipe_above, "resources", "have a pipe above the limit", "capabilities", "EPERM", "ok")
{
    int ends[2];
    if (pipe(ends) < 0)
        return errno;
    return result(fcntl(ends[0], F_SETPIPE_SZ, 16 << 20));
}

/* ---- The program ---- */

static int by_line(const void* left, const void* right)
{
    const struct action *a = *(const struct action*const*)left,
                        *b = *(const struct action*const*)right;
    return (a->line > b->line) - (a->line < b->line);
}

static void say(const struct action* action)
{
    printf("{\"id\": \"%s\", \"group\": \"%s\", \"what\": \"%s\", \"walls\": \"%s\", \"inside\": "
           "\"%s\", "
           "\"control\": \"%s\"}\n",
           action->id, action->group, action->what, action->walls, action->inside, action->control);
}

/* In a process of its own, whose end is awaited: an action may crash, hang, and change what it is. */
static void try_it(const struct action* action)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        exit(125);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        report = ends[1];
        alarm(10);
        /* What a control mounts is nobody else's. */
        if (control &&
            (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
            _exit(1);
        int outcome = action->attempt();
        if (write(report, &outcome, sizeof outcome) < 0)
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    int outcome = 0, status = 0;
    ssize_t got = read(ends[0], &outcome, sizeof outcome);
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("{\"id\": \"%s\", \"outcome\": \"", action->id);
    if (got != (ssize_t)sizeof outcome)
        printf("signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    else if (outcome == 0)
        printf("ok");
    else if (outcome == no_effect)
        printf("no effect");
    else if (outcome == absent)
        printf("absent");
    else
        printf("%s", strerrorname_np(outcome) ? strerrorname_np(outcome) : "unknown");
    printf("\"}\n");
    fflush(stdout);
}

int main(int argc, char** argv)
{
    if (argc == 2 && strcmp(argv[1], "--identity") == 0)
        return geteuid() != getuid() ? 42 : 0;
    size_t count = (size_t)(__stop_actions - __start_actions);
    const struct action** actions = calloc(count, sizeof *actions);
    if (!actions)
        return 125;
    memcpy(actions, __start_actions, count * sizeof *actions);
    qsort(actions, count, sizeof *actions, by_line);
    const char *walls[32], *ids[64];
    size_t wall_count = 0, id_count = 0;
    bool list = false;
    for (int i = 1; i < argc; ++i) {
        char* equals = strchr(argv[i], '=');
        if (strcmp(argv[i], "--list") == 0) {
            list = true;
        } else if (strcmp(argv[i], "--control") == 0) {
            control = true;
        } else if (strcmp(argv[i], "--wall") == 0 && i + 1 < argc && wall_count < 32) {
            walls[wall_count++] = argv[++i];
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc && id_count < 64) {
            ids[id_count++] = argv[++i];
        } else if (equals && equals - argv[i] < 40) {
            char key[64];
            snprintf(key, sizeof key, "word_%.*s", (int)(equals - argv[i]), argv[i]);
            setenv(key, equals + 1, 1);
        } else {
            fprintf(
                stderr,
                "usage: hostile --list | [--control] [--wall WALL] [--only ID] [NAME=VALUE]...\n");
            return 125;
        }
    }
    umask(077);
    for (size_t i = 0; i < count; ++i) {
        bool wanted = wall_count + id_count == 0;
        for (size_t k = 0; k < wall_count; ++k)
            wanted = wanted || strstr(actions[i]->walls, walls[k]);
        for (size_t k = 0; k < id_count; ++k)
            wanted = wanted || strcmp(actions[i]->id, ids[k]) == 0;
        if (!wanted)
            continue;
        if (list)
            say(actions[i]);
        else
            try_it(actions[i]);
    }
    return 0;
}
