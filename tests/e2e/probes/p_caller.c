/* A program that starts another one and waits for it: the caller that tests kill.
 *
 *     p_caller FD PROGRAM ARGUMENT...
 *
 * Writes the other one's pid to descriptor FD as soon as it has been executed, and ends with its
 * status. The other one starts with SIGCHLD ignored: a program that sets it back shows in its
 * /proc/PID/status that it has begun to run its own code. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv)
{
    if (argc < 3)
        return 98;
    const int fd = atoi(argv[1]);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    alarm(60);
    /* Unlike fork, this comes back only when the other program is there. */
    pid_t pid = vfork();
    if (pid < 0)
        return 98;
    if (pid == 0) {
        signal(SIGCHLD, SIG_IGN);
        execv(argv[2], argv + 2);
        _exit(98);
    }
    dprintf(fd, "%d\n", (int)pid);
    close(fd);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 98;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
