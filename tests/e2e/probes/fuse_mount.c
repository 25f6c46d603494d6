/* fuse_mount DIR COMMAND [ARG...]
 *
 * Mounts a tiny FUSE file system on DIR in a mount namespace of its own and runs COMMAND there:
 * one directory with the file `hello`, which reads "from fuse". The owner is the caller, and
 * `allow_other` is not given, so that the kernel lets nobody but the caller in. An ordinary user
 * gets a user namespace in which the caller keeps the own id, and COMMAND holds no capability.
 *
 * The status is COMMAND's, 77 when /dev/fuse cannot be opened, 99 when something else fails.
 * The mount ends with the processes: nothing is left in the caller's mount namespace. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOT_NODE = 1, FILE_NODE = 2 };

static const char content[] = "from fuse\n";
static uid_t owner;
static gid_t group;

static _Noreturn void fail(const char* what)
{
    fprintf(stderr, "fuse_mount: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static void write_file(const char* path, const char* text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(path);
    close(fd);
}

static void reply(int fd, uint64_t unique, int error, const void* data, size_t size)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof head + size), .error = error, .unique = unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void*)data, size}};
    /* A request that was interrupted in the meantime answers ENOENT: nobody waits any more. */
    if (writev(fd, parts, size > 0 ? 2 : 1) < 0 && errno != ENOENT)
        _exit(99);
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr attr = {.ino = node, .uid = owner, .gid = group, .blksize = 4096};
    attr.mode = node == ROOT_NODE ? S_IFDIR | 0700 : S_IFREG | 0600;
    attr.nlink = node == ROOT_NODE ? 2 : 1;
    attr.size = node == ROOT_NODE ? 0 : sizeof content - 1;
    return attr;
}

static void add_entry(char* buffer, size_t* used, uint64_t node, uint32_t type, const char* name)
{
    struct fuse_dirent* entry = (struct fuse_dirent*)(buffer + *used);
    entry->ino = node;
    entry->namelen = (uint32_t)strlen(name);
    entry->type = type;
    memcpy(entry->name, name, entry->namelen);
    *used += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry->namelen);
    entry->off = *used;
}

static void answer(int fd, const struct fuse_in_header* in, const void* body)
{
    const uint64_t node = in->nodeid;

    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in* init = body;
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                    .minor = FUSE_KERNEL_MINOR_VERSION,
                                    .max_readahead = init->max_readahead,
                                    .max_background = 4,
                                    .congestion_threshold = 3,
                                    .max_write = 4096};
        reply(fd, in->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_LOOKUP: {
        if (node != ROOT_NODE || strcmp(body, "hello") != 0) {
            reply(fd, in->unique, -ENOENT, NULL, 0);
            return;
        }
        struct fuse_entry_out out = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
        reply(fd, in->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(node)};
        reply(fd, in->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {0};
        reply(fd, in->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_READDIR: {
        _Alignas(8) char buffer[256] = {0};
        size_t used = 0;
        if (((const struct fuse_read_in*)body)->offset == 0) {
            add_entry(buffer, &used, ROOT_NODE, S_IFDIR >> 12, ".");
            add_entry(buffer, &used, ROOT_NODE, S_IFDIR >> 12, "..");
            add_entry(buffer, &used, FILE_NODE, S_IFREG >> 12, "hello");
        }
        reply(fd, in->unique, 0, buffer, used);
        return;
    }
    case FUSE_READ: {
        const struct fuse_read_in* read_in = body;
        size_t left = sizeof content - 1;
        left = read_in->offset < left ? left - (size_t)read_in->offset : 0;
        if (left > read_in->size)
            left = read_in->size;
        reply(fd, in->unique, 0, content + read_in->offset, left);
        return;
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255, .frsize = 4096}};
        reply(fd, in->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
        reply(fd, in->unique, 0, NULL, 0);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return; /* The protocol has no answer to these. */
    default:
        reply(fd, in->unique, -ENOSYS, NULL, 0);
    }
}

static _Noreturn void serve(int fd)
{
    /* The kernel wants room for at least one request with max_write bytes, and 8 KiB. */
    static _Alignas(8) char buffer[65536];

    /* Whoever waits for the end of our caller's output must not wait for this process. */
    const int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    for (;;) {
        const ssize_t size = read(fd, buffer, sizeof buffer);
        if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (size < (ssize_t)sizeof(struct fuse_in_header))
            _exit(0); /* ENODEV: it was unmounted. */
        const struct fuse_in_header* in = (const struct fuse_in_header*)buffer;
        answer(fd, in, buffer + sizeof *in);
    }
}

int main(int argc, char** argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: fuse_mount DIR COMMAND [ARG...]\n");
        return 99;
    }
    owner = geteuid();
    group = getegid();

    if (unshare(owner == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0)
        fail("unshare");
    if (owner != 0) {
        char map[64];
        snprintf(map, sizeof map, "%u %u 1\n", owner, owner);
        write_file("/proc/self/uid_map", map);
        write_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1\n", group, group);
        write_file("/proc/self/gid_map", map);
    }
    /* The kernel wants the device opened in the user namespace that mounts it. */
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "fuse_mount: /dev/fuse: %s\n", strerror(errno));
        return 77;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fail("make the mounts private");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd, owner,
             group);
    if (mount("nsbox-test", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        fail("mount");

    const pid_t parent = getpid();
    const pid_t server = fork();
    if (server < 0)
        fail("fork");
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        serve(fd);
    }
    const pid_t command = fork();
    if (command < 0)
        fail("fork");
    if (command == 0) {
        execvp(argv[2], argv + 2);
        fail(argv[2]);
    }
    int status = 0;
    if (waitpid(command, &status, 0) < 0)
        fail("waitpid");
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
