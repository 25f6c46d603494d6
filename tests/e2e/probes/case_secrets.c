/* Looks for given words in everything that can be read below /proc.
 *
 *     case_secrets WORD... CONTROL
 *
 * Every word is given backwards, so that no argument list holds what is looked for. The last one
 * is the positive control: a child holds it in its environment and must be found. The probe's own
 * process is left out, because it needs the words to compare with. Lines on standard output:
 *
 *     FOUND n path       word n was read from path ("ENVIRONMENT" is this process's own)
 *     ONE name how       what became of opening /proc/1/name: "open" or an errno
 *     CHILD name how     the same for the child, as the control
 *     FD dir n kind target    a descriptor of another process: "directory", "file" or "other"
 *     ARGUMENTS text     what /proc/1/cmdline holds
 *     DONE count         how many files were read
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { chunk = 1 << 16, longest = 256, file_limit = 1 << 20 };
static const size_t memory_limit = (size_t)64 << 20;

extern char** environ;
static char words[8][longest];
static int word_count;
static long files_read, found;
static pid_t self;

static void search(const char* data, size_t size, const char* where)
{
    for (int i = 0; i < word_count; ++i)
        if (memmem(data, size, words[i], strlen(words[i]))) {
            printf("FOUND %d %s\n", i, where);
            ++found;
        }
}

/* Reads [from, from + size) of a descriptor; pieces overlap, so that a word on a border is seen. */
static void search_range(int fd, off_t from, size_t size, const char* where)
{
    static char buffer[chunk + longest];
    size_t kept = 0;
    for (size_t done = 0; done < size;) {
        size_t want = size - done < chunk ? size - done : chunk;
        ssize_t got = pread(fd, buffer + kept, want, from + (off_t)done);
        if (got < 0 && errno == ESPIPE)
            got = read(fd, buffer + kept, want);
        if (got <= 0)
            return;
        done += (size_t)got;
        size_t have = kept + (size_t)got;
        search(buffer, have, where);
        kept = have < longest ? have : longest;
        memmove(buffer, buffer + have - kept, kept);
    }
}

static void search_file(const char* path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return;
    ++files_read;
    search_range(fd, 0, file_limit, path);
    close(fd);
}

static void search_memory(const char* folder)
{
    char path[PATH_MAX], line[PATH_MAX + 128];
    snprintf(path, sizeof path, "%.3000s/maps", folder);
    FILE* maps = fopen(path, "re");
    snprintf(path, sizeof path, "%.3000s/mem", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t left = memory_limit;
    while (maps && fd >= 0 && left > 0 && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || mode[0] != 'r')
            continue;
        size_t size = to - from < left ? to - from : left;
        left -= size;
        search_range(fd, (off_t)from, size, path);
    }
    if (fd >= 0) {
        ++files_read;
        close(fd);
    }
    if (maps)
        fclose(maps);
}

static void search_descriptors(const char* folder)
{
    DIR* dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent* entry; (entry = readdir(dir));) {
        char path[PATH_MAX], target[PATH_MAX] = "?";
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%.3000s/%s", folder, entry->d_name);
        ssize_t size = readlink(path, target, sizeof target - 1);
        if (size >= 0)
            target[size] = 0;
        struct stat st;
        if (stat(path, &st) != 0)
            continue;
        printf("FD %s %s %s %s\n", folder, entry->d_name,
               S_ISDIR(st.st_mode)   ? "directory"
               : S_ISREG(st.st_mode) ? "file"
                                     : "other",
               target);
        /* Only files are read: a pipe or a terminal belongs to somebody. */
        if (S_ISREG(st.st_mode))
            search_file(path);
    }
    closedir(dir);
}

static void walk(const char* folder, int depth)
{
    char own[64], path[PATH_MAX];
    snprintf(own, sizeof own, "/proc/%d", self);
    DIR* dir = depth < 12 && strcmp(folder, own) ? opendir(folder) : NULL;
    if (!dir)
        return;
    for (struct dirent* entry; (entry = readdir(dir));) {
        const char* name = entry->d_name;
        struct stat st;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        snprintf(path, sizeof path, "%.3000s/%s", folder, name);
        if (!strcmp(name, "fd"))
            search_descriptors(path);
        else if (!strcmp(name, "mem") && strcmp(folder, "/proc"))
            search_memory(folder);
        else if (!strcmp(name, "map_files"))
            continue;
        else if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            walk(path, depth + 1);
        else if (S_ISREG(st.st_mode))
            search_file(path);
    }
    closedir(dir);
}

static void report(const char* who, pid_t pid, const char* name)
{
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int rc;
    char byte;
    if (!strcmp(name, "exe") || !strcmp(name, "root") || !strcmp(name, "cwd")) {
        rc = (int)readlink(path, target, sizeof target);
    } else if (!strcmp(name, "fd")) {
        DIR* dir = opendir(path);
        errno = dir ? 0 : errno;
        while (dir && !errno && readdir(dir))
            ;
        rc = errno ? -1 : 0;
    } else {
        /* Some files open for anybody and refuse when they are read. */
        rc = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (rc >= 0 && strcmp(name, "mem") && read(rc, &byte, 1) < 0)
            rc = -1;
    }
    printf("%s %s %s\n", who, name, rc >= 0 ? "open" : strerrorname_np(errno));
}

static void report_all(const char* who, pid_t pid)
{
    static const char* const names[] = {"environ", "mem",  "maps", "auxv",   "fd",
                                        "exe",     "root", "cwd",  "syscall"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        report(who, pid, names[i]);
    long rc = ptrace(PTRACE_SEIZE, pid, 0, 0);
    printf("%s ptrace %s\n", who, rc == 0 ? "open" : strerrorname_np(errno));
}

int main(int argc, char** argv)
{
    if (argc == 1) {
        /* The child of the control: it holds the word in its environment, nothing else. */
        if (write(1, "x", 1) != 1)
            return 1;
        pause();
        return 0;
    }
    self = getpid();
    for (int i = 1; i < argc && i <= 8; ++i) {
        size_t size = strlen(argv[i]);
        if (size >= longest)
            return 2;
        for (size_t j = 0; j < size; ++j)
            words[word_count][j] = argv[i][size - 1 - j];
        ++word_count;
    }
    /* The very first look could meet a process 1 that is not yet what it becomes. */
    if (self != 1)
        for (int i = 0; i < 200 && !found; ++i) {
            search_file("/proc/1/environ");
            search_file("/proc/1/cmdline");
        }
    char arguments[4096];
    int fd = open("/proc/1/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, arguments, sizeof arguments);
    for (ssize_t i = 0; i < size; ++i)
        if (arguments[i] < ' ')
            arguments[i] = ' ';
    printf("ARGUMENTS %.*s\n", size > 0 ? (int)size : 0, arguments);
    close(fd);
    for (char** entry = environ; *entry; ++entry)
        search(*entry, strlen(*entry), "ENVIRONMENT");

    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        return 3;
    pid_t child = fork();
    if (child == 0) {
        char setting[longest + 16];
        snprintf(setting, sizeof setting, "CONTROL=%s", words[word_count - 1]);
        char *child_argv[] = {"hold", NULL}, *child_env[] = {setting, NULL};
        dup2(ready[1], 1);
        execve(argv[0], child_argv, child_env);
        _exit(9);
    }
    char byte;
    if (child < 0 || read(ready[0], &byte, 1) != 1)
        return 4;
    walk("/proc", 0);
    if (self != 1)
        report_all("ONE", 1);
    report_all("CHILD", child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("DONE %ld\n", files_read);
    return 0;
}
