// Prints what a program inside a sandbox sees, one "KEY VALUE" a line, and "end" last. It judges
// nothing: the caller compares. Static, one process (a helper for one question aside), no shell.
//
//   probe [read:PATH | stat:PATH | link:PATH | write:PATH | list:PATH | open:PATH]...

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static const char* error_name(int err)
{
    return err == 0 ? "ok" : strerrorname_np(err);
}

// Keeps one fact on one line whatever bytes it holds.
static void fact(const char* key, const char* name, const char* value)
{
    printf("%s%s ", key, name);
    for (const unsigned char* p = (const unsigned char*)value; *p; ++p) {
        if (*p < ' ' || *p == 127)
            printf("\\%03o", *p);
        else
            putchar(*p);
    }
    putchar('\n');
}

static void status_lines(const char* file, const char* key)
{
    static const char* const wanted[] = {
        "Uid:",    "Gid:",    "Groups:", "SigBlk:", "SigIgn:",     "SigCgt:",  "CapInh:",
        "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:"};
    FILE* f = fopen(file, "re");
    if (!f) {
        fact(key, "status", error_name(errno));
        return;
    }
    char line[4096];
    while (fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0) {
                char* value = line + strlen(wanted[i]);
                value += strspn(value, " \t");
                value[strcspn(value, "\n")] = '\0';
                fact(key, wanted[i], value);
            }
    fclose(f);
}

// Pid 1 may still be arranging itself while the command already runs; what it looks like once it
// waits is of interest. Bounded: a pid 1 that never sleeps is looked at after two seconds.
static void wait_for_init(void)
{
    for (int i = 0, asleep = 0; i < 1000 && asleep < 3; ++i) {
        char line[256];
        FILE* f = fopen("/proc/1/status", "re");
        if (!f)
            return;
        while (fgets(line, sizeof line, f))
            if (strncmp(line, "State:", 6) == 0)
                asleep = strchr(line, 'S') && strstr(line, "sleeping") ? asleep + 1 : 0;
        fclose(f);
        usleep(2000);
    }
}

static void namespaces(void)
{
    static const char* const kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        char name[64], target[128] = "";
        snprintf(name, sizeof name, "/proc/self/ns/%s", kinds[i]);
        if (readlink(name, target, sizeof target - 1) < 0)
            snprintf(target, sizeof target, "%s", error_name(errno));
        fact("ns.", kinds[i], target);
    }
}

static void mounts(void)
{
    FILE* f = fopen("/proc/self/mountinfo", "re");
    if (!f) {
        fact("mount", "", error_name(errno));
        return;
    }
    char line[8192];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        fact("mount", "", line);
    }
    fclose(f);
}

static void list(const char* key, const char* path, int with_targets)
{
    struct dirent** names = NULL;
    const int count = scandir(path, &names, NULL, alphasort);
    if (count < 0) {
        fact(key, path, error_name(errno));
        return;
    }
    char text[16384] = "";
    size_t used = 0;
    for (int i = 0; i < count; ++i) {
        if (strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0)
            continue;
        char target[512] = "";
        if (with_targets) {
            char name[1024];
            snprintf(name, sizeof name, "%s/%s", path, names[i]->d_name);
            if (readlink(name, target, sizeof target - 1) < 0)
                continue;  // The descriptor that read the directory.
            if (strncmp(target, "/proc/", 6) == 0 && strstr(target, "/fd"))
                continue;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s ", names[i]->d_name,
                                 with_targets ? "=" : "", target);
        if (used >= sizeof text)
            break;
    }
    fact(key, path, text);
}

static void loopback(void)
{
    struct ifreq request = {0};
    strcpy(request.ifr_name, "lo");
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0) {
        fact("lo", "", error_name(errno));
    } else {
        fact("lo", "", request.ifr_flags & IFF_UP ? "up" : "down");
    }
    close(fd);
}

// In a child, because success would move this process into the new namespace.
static void new_user_namespace(void)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        fact("newuser", "", "could not ask");
    else
        fact("newuser", "", error_name(WEXITSTATUS(status)));
}

static void try_open(const char* key, const char* path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    fact(key, path, fd < 0 ? error_name(errno) : "ok");
    if (fd >= 0) {
        close(fd);
        if (flags & O_CREAT)
            unlink(path);
    }
}

/// In how many control groups of a sandbox's own this process is.
static void groups(void)
{
    char line[4096];
    char text[16];
    int count = 0;
    FILE* const file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, "/nsbox-") != NULL;
    if (file)
        fclose(file);
    snprintf(text, sizeof text, "%d", count);
    fact("groups", "", text);
}

static void ask(const char* question)
{
    const char* path = strchr(question, ':');
    if (!path)
        return;
    ++path;
    if (strncmp(question, "read:", 5) == 0) {
        char text[8192];
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        const ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        text[size < 0 ? 0 : size] = '\0';
        fact("read ", path, size < 0 ? error_name(errno) : text);
        if (fd >= 0)
            close(fd);
    } else if (strncmp(question, "stat:", 5) == 0) {
        struct stat st;
        char text[64];
        if (lstat(path, &st) < 0)
            snprintf(text, sizeof text, "%s", error_name(errno));
        else
            snprintf(text, sizeof text, "%o %u %u", st.st_mode, st.st_uid, st.st_gid);
        fact("stat ", path, text);
    } else if (strncmp(question, "link:", 5) == 0) {
        char text[4096] = "";
        if (readlink(path, text, sizeof text - 1) < 0)
            snprintf(text, sizeof text, "%s", error_name(errno));
        fact("link ", path, text);
    } else if (strncmp(question, "write:", 6) == 0) {
        try_open("write ", path, O_WRONLY | O_CREAT | O_EXCL);
    } else if (strncmp(question, "open:", 5) == 0) {
        try_open("open ", path, O_WRONLY);
    } else if (strncmp(question, "list:", 5) == 0) {
        list("list ", path, 0);
    }
}

int main(int argc, char** argv)
{
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    char text[4096];
    // First of all, before this program opens anything.
    list("fd ", "/proc/self/fd", 1);
    status_lines("/proc/self/status", "self.");
    namespaces();
    mounts();
    for (char** e = environ; *e; ++e)
        fact("env", "", *e);
    struct utsname uts;
    if (uname(&uts) == 0)
        fact("hostname", "", uts.nodename);
    fact("cwd", "", getcwd(text, sizeof text) ? text : error_name(errno));
    snprintf(text, sizeof text, "%04o", umask(0));
    fact("umask", "", text);
    int death_signal = -1;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    snprintf(text, sizeof text, "%d", death_signal);
    fact("pdeathsig", "", text);
    fact("session leader", "", getsid(0) == getpid() ? "yes" : "no");
    snprintf(text, sizeof text, "%d %d", (int)getpid(), (int)getppid());
    fact("pids", "", text);
    loopback();
    groups();
    // The tests' filter answers this harmless call with an error that the kernel never gives.
    const long rc = syscall(SYS_sched_rr_get_interval, 0, NULL);
    fact("filtered", "", error_name(rc < 0 ? errno : 0));
    wait_for_init();
    status_lines("/proc/1/status", "init.");
    list("init fd ", "/proc/1/fd", 1);
    try_open("init ", "/proc/1/mem", O_RDWR);
    try_open("init ", "/proc/1/environ", O_RDONLY);
    try_open("open ", "/proc/sys/vm/swappiness", O_WRONLY);
    try_open("open ", "/proc/sysrq-trigger", O_WRONLY);
    list("list ", "/tmp", 0);
    for (int i = 1; i < argc; ++i)
        ask(argv[i]);
    new_user_namespace();
    puts("end");
    return fflush(stdout) == 0 ? 0 : 9;
}
