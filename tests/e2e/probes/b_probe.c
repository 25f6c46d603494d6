/* Reports facts about the place where it runs; it judges nothing. Statically linked, so that it
   also runs in an empty root.

     b_probe fds     one line for each open descriptor: number, then what it is
     b_probe net     one line for each address: interface, up or down, address/prefix
     b_probe root    mode, owner and mount flags of /, then the names in it; then as `hold`
     b_probe where   the working directory and the variable PWD
     b_probe hold    says `ready` and stays until its standard input ends */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char* kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFCHR:
        return "character";
    case S_IFBLK:
        return "block";
    case S_IFIFO:
        return "pipe";
    case S_IFSOCK:
        return "socket";
    default:
        return "other";
    }
}

/* Asks the kernel for each number in turn: that needs no /proc and opens nothing itself. */
static int fds(void)
{
    for (int fd = 0; fd < 65536; fd++) {
        struct stat st;
        if (fstat(fd, &st) != 0)
            continue;
        char link[64], target[PATH_MAX] = "?";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n > 0)
            target[n] = 0;
        printf("%d %s %s\n", fd, kind(st.st_mode), target);
    }
    return 0;
}

static int prefix_length(const unsigned char* mask, int bytes)
{
    int bits = 0;
    for (int i = 0; i < bytes; i++)
        bits += __builtin_popcount(mask[i]);
    return bits;
}

static int net(void)
{
    struct ifaddrs* all = NULL;
    if (getifaddrs(&all) != 0) {
        perror("getifaddrs");
        return 1;
    }
    for (struct ifaddrs* a = all; a; a = a->ifa_next) {
        const char* state = a->ifa_flags & IFF_UP ? "up" : "down";
        char text[INET6_ADDRSTRLEN] = "";
        int bits = 0;
        int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
        if (family == AF_INET) {
            inet_ntop(family, &((struct sockaddr_in*)a->ifa_addr)->sin_addr, text, sizeof text);
            bits = prefix_length((void*)&((struct sockaddr_in*)a->ifa_netmask)->sin_addr, 4);
        } else if (family == AF_INET6) {
            inet_ntop(family, &((struct sockaddr_in6*)a->ifa_addr)->sin6_addr, text, sizeof text);
            bits = prefix_length((void*)&((struct sockaddr_in6*)a->ifa_netmask)->sin6_addr, 16);
        } else {
            printf("%s %s link\n", a->ifa_name, state);
            continue;
        }
        printf("%s %s %s/%d\n", a->ifa_name, state, text, bits);
    }
    freeifaddrs(all);
    return 0;
}

static int where(void)
{
    char cwd[PATH_MAX];
    const char* pwd = getenv("PWD");
    if (!getcwd(cwd, sizeof cwd))
        strcpy(cwd, "(none)");
    printf("cwd=%s\nPWD=%s\n", cwd, pwd ? pwd : "(unset)");
    return 0;
}

static int hold(void)
{
    char byte;
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

static int root(void)
{
    struct stat st;
    struct statvfs fs;
    if (stat("/", &st) != 0 || statvfs("/", &fs) != 0) {
        perror("/");
        return 1;
    }
    printf("mode=%o uid=%u gid=%u%s%s%s\n", st.st_mode & 07777, st.st_uid, st.st_gid,
           fs.f_flag & ST_RDONLY ? " ro" : " rw", fs.f_flag & ST_NOSUID ? " nosuid" : "",
           fs.f_flag & ST_NODEV ? " nodev" : "");
    DIR* dir = opendir("/");
    if (!dir) {
        perror("opendir");
        return 1;
    }
    for (struct dirent* entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            printf("name=%s\n", entry->d_name);
    closedir(dir);
    return hold();
}

int main(int argc, char** argv)
{
    const char* what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "fds") == 0)
        return fds();
    if (strcmp(what, "net") == 0)
        return net();
    if (strcmp(what, "root") == 0)
        return root();
    if (strcmp(what, "where") == 0)
        return where();
    if (strcmp(what, "hold") == 0)
        return hold();
    fprintf(stderr, "usage: b_probe fds|net|root|where|hold\n");
    return 2;
}
