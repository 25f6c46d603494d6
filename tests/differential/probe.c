// Prints what a process sees of itself and of its surroundings, as sorted `key=value` lines between
// `probe=begin` and `probe=end`.
//
// The runner starts it as the command of a sandbox, once under each program, and compares the
// lines. It reports facts only; what is normal is for the runner to say. Two descriptors are handed
// through the sandbox for it, because most sandboxes have no /proc: number 900 is the caller's
// /proc, and 901 a text with the caller's facts (`key number`, one a line). They are left out of
// the report.
//
// Every argument asks for one more fact: `stat:PATH`, `cat:PATH`, `ls:PATH`, `open:PATH` (read),
// `write:PATH` (open for writing, nothing is written), `make:PATH` (a new file), `mkdir:PATH`,
// `unlink:PATH`, `chmod:PATH`, `size:PATH` (of the file system), `lock:PATH` (who would be in the
// way of a write lock), `fd:N` (the text behind a descriptor), `parent` (the process above),
// `userns` (is another user namespace possible), `mknod:PATH`, `connect:PATH` (a stream socket),
// `tty`, `remount:PATH` (without any restriction), `umount:PATH`.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/nsfs.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROC_FD = 900, FACTS_FD = 901, MAX_LINES = 4096, MAX_MOUNTS = 1024 };

static char* lines[MAX_LINES];
static size_t line_count;
static char facts[8192];

/// Adds one line; bytes that are not printable become \xHH, so that a line stays a line.
static void say(const char* key, const char* format, ...)
{
    char value[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    size_t room = strlen(key) * 4 + strlen(value) * 4 + 2;
    char* out = malloc(room);
    if (out == NULL || line_count == MAX_LINES) {
        fputs("probe: too many lines\n", stderr);
        exit(99);
    }
    char* end = out;
    for (int part = 0; part < 2; ++part) {
        for (const unsigned char* p = (const unsigned char*)(part ? value : key); *p != '\0'; ++p) {
            int plain = *p >= 0x20 && *p < 0x7f && *p != '\\' && (part == 1 || *p != '=');
            if (plain) {
                *end++ = (char)*p;
            } else {
                end += sprintf(end, "\\x%02x", *p);
            }
        }
        *end++ = part ? '\0' : '=';
    }
    lines[line_count++] = out;
}

static const char* key_of(const char* format, ...)
{
    static char keys[4][9000];
    static unsigned turn;
    char* key = keys[turn++ % 4];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof keys[0], format, args);
    va_end(args);
    return key;
}

/// Reads a whole file (up to `room` - 1 bytes) below a directory descriptor; returns its length or
/// -1.
static ssize_t slurp(int base, const char* path, char* to, size_t room)
{
    int fd = openat(base, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    size_t used = 0;
    while (used < room - 1) {
        ssize_t got = read(fd, to + used, room - 1 - used);
        if (got < 0) {
            int reason = errno;
            close(fd);
            errno = reason;
            return -1;
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
    }
    close(fd);
    to[used] = '\0';
    return (ssize_t)used;
}

/// A number that the runner wrote down about the caller, or -1.
static long long fact(const char* name)
{
    size_t length = strlen(name);
    for (const char* at = facts; at != NULL && *at != '\0';) {
        if (strncmp(at, name, length) == 0 && at[length] == ' ') {
            return atoll(at + length + 1);
        }
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    return -1;
}

static const char* kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "dir";
    case S_IFLNK:
        return "link";
    case S_IFCHR:
        return "char";
    case S_IFBLK:
        return "block";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "none";
    }
}

static void say_stat(const char* key, const char* path)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        say(key_of("%s.error", key), "%s", strerrorname_np(errno));
        return;
    }
    say(key_of("%s.type", key), "%s", kind_of(st.st_mode));
    say(key_of("%s.owner", key), "%u:%u", st.st_uid, st.st_gid);
    if (S_ISLNK(st.st_mode)) {
        char text[4096] = "";
        ssize_t got = readlink(path, text, sizeof text - 1);
        say(key_of("%s.target", key), "%s", got < 0 ? "?" : text);
        return;
    }
    say(key_of("%s.mode", key), "%04o", st.st_mode & 07777);
    if (S_ISREG(st.st_mode)) {
        say(key_of("%s.size", key), "%lld", (long long)st.st_size);
    }
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) {
        say(key_of("%s.device", key), "%u:%u", major(st.st_rdev), minor(st.st_rdev));
    }
}

// ----------------------------------------------------------------------------------------- mounts

struct mount_line {
    int id, parent, depth, visible;
    unsigned major, minor;
    char *root, *point, *options, *propagation, *type, *source, *super;
    int number;  // Counts the mounts on one mount point from the bottom.
};

static struct mount_line mounts[MAX_MOUNTS];
static size_t mount_count;

/// Undoes the octal escapes of mountinfo in place.
static char* unescape(char* text)
{
    char* to = text;
    for (char* from = text; *from != '\0';) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != '\0' &&
            from[3] != '\0') {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return text;
}

/// `shared:5 master:3` becomes `shared+slave`: the numbers differ from run to run.
static char* propagation_of(char* fields)
{
    char out[256] = "";
    for (char* word = strtok(fields, " "); word != NULL; word = strtok(NULL, " ")) {
        const char* name = strncmp(word, "master:", 7) == 0       ? "slave"
                           : strncmp(word, "shared:", 7) == 0     ? "shared"
                           : strncmp(word, "unbindable", 10) == 0 ? "unbindable"
                                                                  : NULL;
        if (name != NULL) {
            strcat(out, out[0] != '\0' ? "+" : "");
            strcat(out, name);
        }
    }
    return strdup(out[0] != '\0' ? out : "private");
}

static void parse_mount(char* line)
{
    struct mount_line* m = &mounts[mount_count];
    char *root, *point, *options;
    int used = 0;
    char first[3][4096];
    if (sscanf(line, "%d %d %u:%u %4095s %4095s %4095s%n", &m->id, &m->parent, &m->major, &m->minor,
               first[0], first[1], first[2], &used) != 7) {
        return;
    }
    root = strdup(first[0]);
    point = strdup(first[1]);
    options = strdup(first[2]);
    char* dash = strstr(line + used, " - ");
    if (dash == NULL) {
        return;
    }
    *dash = '\0';
    m->propagation = propagation_of(line + used);
    char* rest = dash + 3;
    m->type = strdup(strsep(&rest, " "));
    m->source = rest != NULL ? unescape(strdup(strsep(&rest, " "))) : strdup("");
    m->super = strdup(rest != NULL ? rest : "");
    m->root = unescape(root);
    m->point = unescape(point);
    m->options = options;
    ++mount_count;
}

static int compare_mounts(const void* left, const void* right)
{
    const struct mount_line *a = left, *b = right;
    int by_point = strcmp(a->point, b->point);
    if (by_point != 0) {
        return by_point;
    }
    if (a->depth != b->depth) {
        return a->depth - b->depth;
    }
    // The kernel uses mount ids again, so that they do not tell which of two is older.
    int by_super = strcmp(a->super, b->super);
    return by_super != 0 ? by_super : strcmp(a->root, b->root);
}

static const struct mount_line* mount_by_id(int id)
{
    for (size_t i = 0; i < mount_count; ++i) {
        if (mounts[i].id == id) {
            return &mounts[i];
        }
    }
    return NULL;
}

/// Whether a walk to the mount point ends on this very mount; an unsearchable directory above it
/// counts as yes.
static int is_visible(const struct mount_line* m)
{
    struct statx sx;
    if (syscall(SYS_statx, AT_FDCWD, m->point, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW,
                0x1000U /* STATX_MNT_ID */, &sx) != 0) {
        return errno == EACCES;
    }
    return (int)sx.stx_mnt_id == m->id;
}

static void say_mounts(void)
{
    static char text[1 << 18];
    if (slurp(PROC_FD, "self/mountinfo", text, sizeof text) < 0) {
        say("mount.error", "%s", strerrorname_np(errno));
        return;
    }
    char* save = NULL;
    for (char* line = strtok_r(text, "\n", &save); line != NULL && mount_count < MAX_MOUNTS;
         line = strtok_r(NULL, "\n", &save)) {
        parse_mount(line);
    }
    for (size_t i = 0; i < mount_count; ++i) {
        const struct mount_line* up = mount_by_id(mounts[i].parent);
        for (int bound = 0; up != NULL && up->id != up->parent && bound < MAX_MOUNTS; ++bound) {
            ++mounts[i].depth;
            up = mount_by_id(up->parent);
        }
        mounts[i].visible = is_visible(&mounts[i]);
    }
    qsort(mounts, mount_count, sizeof mounts[0], compare_mounts);
    for (size_t i = 0; i < mount_count; ++i) {
        mounts[i].number = i > 0 && strcmp(mounts[i].point, mounts[i - 1].point) == 0
                               ? mounts[i - 1].number + 1
                               : 1;
    }
    for (size_t i = 0; i < mount_count; ++i) {
        const struct mount_line* m = &mounts[i];
        char stem[4200];
        // A mount under another one is named apart: its flags are nobody's business, and the
        // contract says nothing about them.
        if (m->visible) {
            snprintf(stem, sizeof stem, "mount.%s", m->point);
        } else {
            snprintf(stem, sizeof stem, "hidden.%s#%d", m->point, m->number);
        }
        const struct mount_line* up = mount_by_id(m->parent);
        say(key_of("%s.options", stem), "%s", m->options);
        say(key_of("%s.propagation", stem), "%s", m->propagation);
        say(key_of("%s.type", stem), "%s", m->type);
        say(key_of("%s.source", stem), "%s", m->source);
        say(key_of("%s.super", stem), "%s", m->super);
        say(key_of("%s.root", stem), "%s", m->root);
        say(key_of("%s.device", stem), "%u:%u", m->major, m->minor);
        say(key_of("%s.on", stem), "%s", up != NULL && up != m ? up->point : "-");
    }
}

// ------------------------------------------------------------------------------------------ facts

/// Takes `Name:\tvalue` out of a status text.
static int status_field(const char* status, const char* name, char* to, size_t room)
{
    size_t length = strlen(name);
    for (const char* at = status; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, length) == 0 && at[length] == ':') {
            const char* value = at + length + 1;
            value += strspn(value, " \t");
            size_t end = strcspn(value, "\n");
            while (end > 0 && (value[end - 1] == ' ' || value[end - 1] == '\t')) {
                --end;
            }
            snprintf(to, room, "%.*s", (int)end, value);
            return 1;
        }
        if (*at == '\0') {
            break;
        }
    }
    return 0;
}

static const char* const status_names[] = {"CapInh", "CapPrm",     "CapEff",  "CapBnd",
                                           "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
                                           "SigBlk", "SigIgn",     "SigCgt",  "Threads"};

static void say_status(const char* prefix, const char* path)
{
    char status[8192], value[1024];
    if (slurp(PROC_FD, path, status, sizeof status) < 0) {
        say(key_of("%sstatus", prefix), "%s", strerrorname_np(errno));
        return;
    }
    for (size_t i = 0; i < sizeof status_names / sizeof status_names[0]; ++i) {
        if (status_field(status, status_names[i], value, sizeof value)) {
            say(key_of("%s%s", prefix, status_names[i]), "%s", value);
        }
    }
}

struct relation {
    long long parent, group, session, terminal;
    char state, name[64];
};

/// Pids as the caller's /proc counts them, whatever pid namespace this process is in.
static int relation_of(const char* path, struct relation* r)
{
    char text[2048];
    if (slurp(PROC_FD, path, text, sizeof text) < 0) {
        return -1;
    }
    char* open = strchr(text, '(');
    char* close = strrchr(text, ')');
    if (open == NULL || close == NULL) {
        return -1;
    }
    snprintf(r->name, sizeof r->name, "%.*s", (int)(close - open - 1), open + 1);
    return sscanf(close + 1, " %c %lld %lld %lld %lld", &r->state, &r->parent, &r->group,
                  &r->session, &r->terminal) == 5
               ? 0
               : -1;
}

static void say_relations(void)
{
    struct relation me = {0};
    char link[64] = "";
    // A parent outside of our pid namespace may be one that only handed over and is about to end.
    if (getppid() == 0) {
        const struct timespec while_it_ends = {0, 300000000};
        nanosleep(&while_it_ends, NULL);
    }
    if (readlinkat(PROC_FD, "self", link, sizeof link - 1) < 0 ||
        relation_of("self/stat", &me) != 0) {
        say("relation.error", "%s", strerrorname_np(errno));
        return;
    }
    long long own = atoll(link);
    say("pid", "%s",
        getpid() == 1     ? "1"
        : getpid() == 2   ? "2"
        : getpid() == own ? "host"
                          : "other");
    say("ppid", "%s",
        getppid() == 0           ? "0"
        : getppid() == 1         ? "1"
        : getppid() == me.parent ? "host"
                                 : "other");
    say("raw.pid", "%lld", own);
    say("raw.ppid", "%lld", me.parent);
    say("session.leader", "%d", me.session == own);
    say("session.caller", "%d", me.session == fact("session"));
    say("session.parent", "%d", me.session == me.parent);
    say("group.leader", "%d", me.group == own);
    say("group.caller", "%d", me.group == fact("group"));
    say("group.parent", "%d", me.group == me.parent);
    say("terminal", "%d", me.terminal != 0);
    // How many processes there are between the caller and this one.
    int levels = 0;
    for (long long at = me.parent; at > 1 && at != fact("pid") && levels < 16; ++levels) {
        struct relation up = {0};
        if (relation_of(key_of("%lld/stat", at), &up) != 0) {
            levels = -1;
            break;
        }
        at = up.parent;
    }
    say("levels", "%d", levels);
}

static void say_ids(void)
{
    uid_t uid[3];
    gid_t gid[3];
    if (getresuid(&uid[0], &uid[1], &uid[2]) == 0 && getresgid(&gid[0], &gid[1], &gid[2]) == 0) {
        say("uid", "%u %u %u", uid[0], uid[1], uid[2]);
        say("gid", "%u %u %u", gid[0], gid[1], gid[2]);
    }
    say("fsuid", "%d", (int)syscall(SYS_setfsuid, -1));
    say("fsgid", "%d", (int)syscall(SYS_setfsgid, -1));
    gid_t groups[256];
    int count = getgroups(256, groups);
    char text[4096] = "";
    for (int i = 0; i < count; ++i) {
        sprintf(text + strlen(text), "%s%u", i > 0 ? " " : "", groups[i]);
    }
    say("groups", "%s", count < 0 ? strerrorname_np(errno) : text);
    static const char* const files[] = {"uid_map", "gid_map", "setgroups", "oom_score_adj",
                                        "cgroup"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        char content[4096];
        if (slurp(PROC_FD, key_of("self/%s", files[i]), content, sizeof content) < 0) {
            say(files[i], "%s", strerrorname_np(errno));
            continue;
        }
        // Runs of blanks and ends of lines carry no meaning here.
        char joined[4096] = "";
        char* save = NULL;
        for (char* word = strtok_r(content, " \t\n", &save); word != NULL;
             word = strtok_r(NULL, " \t\n", &save)) {
            strcat(joined, joined[0] != '\0' ? " " : "");
            strcat(joined, word);
        }
        say(files[i], "%s", joined);
    }
}

static void say_process(char** argv, char** environment)
{
    say_status("", "self/status");
    say("securebits", "%#x", prctl(PR_GET_SECUREBITS));
    say("dumpable", "%d", prctl(PR_GET_DUMPABLE));
    int value = -1;
    prctl(PR_GET_PDEATHSIG, &value);
    say("pdeathsig", "%d", value);
    prctl(PR_GET_CHILD_SUBREAPER, &value);
    say("subreaper", "%d", value);
    say("keepcaps", "%d", prctl(PR_GET_KEEPCAPS));
    say("timerslack", "%d", prctl(PR_GET_TIMERSLACK));
    say("personality", "%#x", (unsigned)personality(0xffffffff));
    say("nice", "%d", getpriority(PRIO_PROCESS, 0));
    say("scheduler", "%d", sched_getscheduler(0));
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    say("comm", "%s", name);
    say("execfn", "%s", (const char*)getauxval(AT_EXECFN));
    say("secure", "%lu", getauxval(AT_SECURE));
    char link[4096] = "";
    say("exe", "%s",
        readlinkat(PROC_FD, "self/exe", link, sizeof link - 1) < 0 ? strerrorname_np(errno) : link);
    int count = 0;
    for (; argv[count] != NULL; ++count) {
        say(key_of("argv.%d", count), "%s", argv[count]);
    }
    say("argc", "%d", count);
    for (char** e = environment; *e != NULL; ++e) {
        char* equals = strchr(*e, '=');
        if (equals == NULL) {
            say("env.odd", "%s", *e);
        } else {
            say(key_of("env.%.*s", (int)(equals - *e), *e), "%s", equals + 1);
        }
    }
    mode_t mask = umask(0);
    umask(mask);
    say("umask", "%03o", mask);
    char cwd[4096] = "";
    say("cwd", "%s", syscall(SYS_getcwd, cwd, sizeof cwd) < 0 ? strerrorname_np(errno) : cwd);
    for (int i = 0; i < RLIM_NLIMITS; ++i) {
        struct rlimit limit;
        if (getrlimit(i, &limit) == 0) {
            say(key_of("rlimit.%d", i), "%lld %lld", (long long)limit.rlim_cur,
                (long long)limit.rlim_max);
        }
    }
    struct itimerval timer;
    say("alarm", "%d", getitimer(ITIMER_REAL, &timer) == 0 && timer.it_value.tv_sec != 0);
    struct utsname host;
    if (uname(&host) == 0) {
        say("hostname", "%s", host.nodename);
        say("domainname", "%s", host.domainname);
    }
}

static void say_namespaces(void)
{
    static const char* const names[] = {
        "cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children",
        "user",   "uts"};
    struct stat mine;
    int have_mine = fstatat(PROC_FD, "self/ns/user", &mine, 0) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        struct stat st;
        if (fstatat(PROC_FD, key_of("self/ns/%s", names[i]), &st, 0) != 0) {
            say(key_of("ns.%s", names[i]), "%s", strerrorname_np(errno));
            continue;
        }
        int same = (long long)st.st_ino == fact(key_of("ns.%s", names[i]));
        say(key_of("ns.%s", names[i]), "%s", same ? "caller's" : "other");
        say(key_of("raw.ns.%s", names[i]), "%llu", (unsigned long long)st.st_ino);
        // Which user namespace owns it decides what a nested sandbox or nsenter may do with it.
        int fd = openat(PROC_FD, key_of("self/ns/%s", names[i]), O_RDONLY | O_CLOEXEC);
        if (fd < 0 || same) {
            close(fd);
            continue;
        }
        int owner = ioctl(fd, strcmp(names[i], "user") == 0 ? NS_GET_PARENT : NS_GET_USERNS);
        struct stat owner_st;
        const char* who = owner < 0 ? strerrorname_np(errno) : "other";
        if (owner >= 0 && have_mine && fstat(owner, &owner_st) == 0 &&
            owner_st.st_ino == mine.st_ino) {
            who = "own";
        }
        say(key_of("ns.%s.owner", names[i]), "%s", who);
        close(owner);
        close(fd);
    }
    if (fact("ns.net") == -1) {
        return;
    }
    struct stat net;
    if (fstatat(PROC_FD, "self/ns/net", &net, 0) != 0 || (long long)net.st_ino == fact("ns.net")) {
        return;
    }
    struct ifaddrs* list = NULL;
    if (getifaddrs(&list) != 0) {
        say("net.error", "%s", strerrorname_np(errno));
        return;
    }
    for (const struct ifaddrs* i = list; i != NULL; i = i->ifa_next) {
        char address[INET6_ADDRSTRLEN] = "", mask[INET6_ADDRSTRLEN] = "";
        int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : 0;
        if (family == AF_INET) {
            inet_ntop(family, &((struct sockaddr_in*)i->ifa_addr)->sin_addr, address,
                      sizeof address);
            inet_ntop(family, &((struct sockaddr_in*)i->ifa_netmask)->sin_addr, mask, sizeof mask);
        } else if (family == AF_INET6) {
            inet_ntop(family, &((struct sockaddr_in6*)i->ifa_addr)->sin6_addr, address,
                      sizeof address);
            inet_ntop(family, &((struct sockaddr_in6*)i->ifa_netmask)->sin6_addr, mask,
                      sizeof mask);
        } else {
            say(key_of("net.%s.flags", i->ifa_name), "%s%s",
                (i->ifa_flags & IFF_UP) != 0 ? "up " : "down ",
                (i->ifa_flags & IFF_LOOPBACK) != 0 ? "loopback" : "");
            continue;
        }
        say(key_of("net.%s.%s", i->ifa_name, address), "%s", mask);
    }
    freeifaddrs(list);
}

static int is_plumbing(int fd, int own)
{
    return fd == PROC_FD || fd == FACTS_FD || fd == own;
}

static void say_descriptors(void)
{
    DIR* dir = fdopendir(openat(PROC_FD, "self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (dir == NULL) {
        say("fd.error", "%s", strerrorname_np(errno));
        return;
    }
    char all[4096] = "";
    int numbers[512], count = 0;
    for (const struct dirent* e = readdir(dir); e != NULL && count < 512; e = readdir(dir)) {
        if (e->d_name[0] != '.' && !is_plumbing(atoi(e->d_name), dirfd(dir))) {
            numbers[count++] = atoi(e->d_name);
        }
    }
    closedir(dir);
    for (int i = 1; i < count; ++i) {
        for (int j = i; j > 0 && numbers[j - 1] > numbers[j]; --j) {
            int swap = numbers[j];
            numbers[j] = numbers[j - 1];
            numbers[j - 1] = swap;
        }
    }
    for (int i = 0; i < count; ++i) {
        int fd = numbers[i];
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%d", i > 0 ? " " : "", fd);
        struct stat st;
        int flags = fcntl(fd, F_GETFL);
        if (fstat(fd, &st) != 0 || flags < 0) {
            continue;
        }
        const char* access = (flags & O_PATH) != 0             ? "path"
                             : (flags & O_ACCMODE) == O_RDONLY ? "r"
                             : (flags & O_ACCMODE) == O_WRONLY ? "w"
                                                               : "rw";
        say(key_of("fd.%d", fd), "%s %s%s%s", kind_of(st.st_mode), access,
            (flags & O_APPEND) != 0 ? " append" : "", (flags & O_NONBLOCK) != 0 ? " nonblock" : "");
        // Offsets of the output descriptors move while a run writes to them.
        if (S_ISREG(st.st_mode) && fd != 1 && fd != 2 && (flags & O_PATH) == 0) {
            say(key_of("fd.%d.offset", fd), "%lld", (long long)lseek(fd, 0, SEEK_CUR));
        }
    }
    say("fds", "%s", all);
}

static const char* try_open(const char* path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd < 0) {
        return strerrorname_np(errno);
    }
    close(fd);
    return "ok";
}

static void say_directory(const char* key, const char* path, int details)
{
    struct dirent** names = NULL;
    int count = scandir(path, &names, NULL, alphasort);
    if (count < 0) {
        say(key_of("%s.error", key), "%s", strerrorname_np(errno));
        return;
    }
    char all[8192] = "";
    for (int i = 0; i < count; ++i) {
        const char* name = names[i]->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", all[0] != '\0' ? " " : "",
                     name);
            if (details) {
                char stem[512], full[4096];
                snprintf(stem, sizeof stem, "%s.%s", key, name);
                snprintf(full, sizeof full, "%s/%s", path, name);
                say_stat(stem, full);
            }
        }
        free(names[i]);
    }
    free(names);
    say(key_of("%s.names", key), "%s", all);
}

static void say_dev(void)
{
    struct stat st;
    if (stat("/dev", &st) != 0) {
        say("dev", "%s", strerrorname_np(errno));
        return;
    }
    if ((long long)st.st_dev == fact("dev")) {
        say("dev", "caller's");
    } else {
        say("dev", "other");
        say_stat("dev", "/dev");
        say_directory("dev", "/dev", 1);
    }
    static const char* const nodes[] = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; ++i) {
        say(key_of("dev.%s.open", nodes[i]), "%s", try_open(key_of("/dev/%s", nodes[i]), O_RDWR));
    }
}

// --------------------------------------------------------------------------------------- requests

/// Facts of the process above. It may still be setting itself up while its command runs already, so
/// this waits until it sleeps.
static void say_parent(void)
{
    struct relation me = {0}, up = {0};
    if (relation_of("self/stat", &me) != 0) {
        return;
    }
    const char* stat = strdup(key_of("%lld/stat", me.parent));
    int calm = 0;
    for (int i = 0; i < 200 && calm < 3; ++i) {
        calm = relation_of(stat, &up) == 0 && up.state == 'S' ? calm + 1 : 0;
        const struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    say_status("parent.", key_of("%lld/status", me.parent));
    char text[8192];
    ssize_t got = slurp(PROC_FD, key_of("%lld/cmdline", me.parent), text, sizeof text);
    for (ssize_t i = 0; i + 1 < got; ++i) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
    say("parent.cmdline", "%s", got < 0 ? strerrorname_np(errno) : text);
    got = slurp(PROC_FD, key_of("%lld/environ", me.parent), text, sizeof text);
    say("parent.environ", "%s", got < 0 ? strerrorname_np(errno) : got > 0 ? "some" : "empty");
    int fd = openat(PROC_FD, key_of("%lld/fd", me.parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    say("parent.fd", "%s", fd < 0 ? strerrorname_np(errno) : "readable");
    close(fd);
    for (int i = 0; i < 3; ++i) {
        struct stat st;
        int rc = fstatat(PROC_FD, key_of("%lld/fd/%d", me.parent, i), &st, 0);
        say(key_of("parent.fd.%d", i), "%s",
            rc != 0 ? strerrorname_np(errno) : kind_of(st.st_mode));
    }
    fd = openat(PROC_FD, key_of("%lld/mem", me.parent), O_RDONLY | O_CLOEXEC);
    say("parent.mem", "%s", fd < 0 ? strerrorname_np(errno) : "readable");
    close(fd);
    say("parent.session.leader", "%d", up.session == me.parent);
}

static void say_lock(const char* key, const char* path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        say(key, "%s", strerrorname_np(errno));
        return;
    }
    // The reaper of the reference takes the lock after the command has started; so this waits a
    // while for it.
    struct flock lock = {0};
    for (int i = 0; i < 200; ++i) {
        lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) {
            break;
        }
        const struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    say(key, "%s %lld %lld",
        lock.l_type == F_UNLCK   ? "free"
        : lock.l_type == F_RDLCK ? "shared"
                                 : "exclusive",
        (long long)lock.l_start, (long long)lock.l_len);
    close(fd);
}

static const char* try_userns(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int code = WEXITSTATUS(status);
    return code == 0 ? "ok" : strerrorname_np(code);
}

static const char* try_connect(const char* path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int answer = fd < 0 ? errno : connect(fd, (struct sockaddr*)&to, sizeof to) == 0 ? 0 : errno;
    close(fd);
    return answer == 0 ? "ok" : strerrorname_np(answer);
}

static void say_content(const char* key, int base, const char* path)
{
    static char text[4096];
    ssize_t got = slurp(base, path, text, sizeof text);
    say(key, "%s", got < 0 ? strerrorname_np(errno) : text);
}

static const char* answer(int failed)
{
    return failed ? strerrorname_np(errno) : "ok";
}

static void request(const char* word)
{
    const char* colon = strchr(word, ':');
    const char* path = colon == NULL ? "" : colon + 1;
    size_t length = colon == NULL ? strlen(word) : (size_t)(colon - word);
    char name[32] = "", key[4200];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    snprintf(key, sizeof key, "%s.%s", name, path);
    struct statfs fs;
    if (strcmp(name, "stat") == 0) {
        say_stat(key, path);
    } else if (strcmp(name, "cat") == 0) {
        say_content(key, AT_FDCWD, path);
    } else if (strcmp(name, "ls") == 0) {
        say_directory(key, path, 0);
    } else if (strcmp(name, "open") == 0) {
        say(key, "%s", try_open(path, O_RDONLY));
    } else if (strcmp(name, "write") == 0) {
        say(key, "%s", try_open(path, O_WRONLY));
    } else if (strcmp(name, "make") == 0) {
        say(key, "%s", try_open(path, O_WRONLY | O_CREAT | O_EXCL));
    } else if (strcmp(name, "mkdir") == 0) {
        say(key, "%s", answer(mkdir(path, 0755) != 0));
    } else if (strcmp(name, "unlink") == 0) {
        say(key, "%s", answer(unlink(path) != 0));
    } else if (strcmp(name, "mknod") == 0) {
        say(key, "%s", answer(mknod(path, S_IFCHR | 0666, makedev(1, 3)) != 0));
    } else if (strcmp(name, "remount") == 0) {
        say(key, "%s", answer(mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL) != 0));
    } else if (strcmp(name, "umount") == 0) {
        say(key, "%s", answer(umount2(path, MNT_DETACH) != 0));
    } else if (strcmp(name, "chmod") == 0) {
        say(key, "%s", answer(syscall(SYS_fchmodat, AT_FDCWD, path, 0640) != 0));
    } else if (strcmp(name, "size") == 0) {
        say(key, "%lld",
            statfs(path, &fs) != 0 ? -1 : (long long)fs.f_blocks * (long long)fs.f_bsize);
    } else if (strcmp(name, "lock") == 0) {
        say_lock(key, path);
    } else if (strcmp(name, "fd") == 0) {
        char text[4096];
        ssize_t got = read(atoi(path), text, sizeof text - 1);
        text[got < 0 ? 0 : got] = '\0';
        say(key_of("fd.%s.text", path), "%s", got < 0 ? strerrorname_np(errno) : text);
    } else if (strcmp(name, "parent") == 0) {
        say_parent();
    } else if (strcmp(name, "userns") == 0) {
        say("userns", "%s", try_userns());
    } else if (strcmp(name, "connect") == 0) {
        say(key, "%s", try_connect(path));
    } else if (strcmp(name, "tty") == 0) {
        const char* terminal = ttyname(1);
        say("tty", "%s", terminal != NULL ? terminal : strerrorname_np(errno));
    } else {
        say(key, "unknown request");
    }
}

static int compare_lines(const void* left, const void* right)
{
    return strcmp(*(char* const*)left, *(char* const*)right);
}

int main(int argc, char** argv, char** environment)
{
    if (pread(FACTS_FD, facts, sizeof facts - 1, 0) <= 0) {
        say("plumbing", "descriptor 901: %s", strerrorname_np(errno));
    }
    // The descriptors come first: everything below opens some of its own.
    say_descriptors();
    say_process(argv, environment);
    say_ids();
    say_relations();
    say_namespaces();
    say_mounts();
    say_stat("root", "/");
    say_dev();
    for (int i = 1; i < argc; ++i) {
        request(argv[i]);
    }
    qsort(lines, line_count, sizeof lines[0], compare_lines);
    puts("probe=begin");
    for (size_t i = 0; i < line_count; ++i) {
        puts(lines[i]);
    }
    puts("probe=end");
    return 0;
}
