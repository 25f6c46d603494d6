// Runs a command under ptrace and makes one system call of one of its processes fail.
//
//   inject [OPTION...] -- COMMAND [ARG...]
//     --probe FILE        the program whose execution ends the launch path
//     --fd N=FILE         descriptor N of the command reads FILE
//     --out N=FILE        descriptor N of the command writes FILE (created, emptied)
//     --cwd DIR           working directory of the command
//     --timeout MS        after so long the run counts as hung and is ended
//     --grace MS          how long processes may outlive the first one
//     --trace FILE        writes every system call: PROCESS PHASE NUMBER STRING
//     --at PROCESS NUMBER OCCURRENCE ERRNO
//     --report FILE       where the outcome goes, one KEY=VALUE a line
//
// strace can inject too, but its counter runs in every process at the same time: the second
// close() of the first process fails long before its child comes to its own second close(), so
// a child's calls stay out of reach. Here a process is named by its place in the tree ("0" is
// the command itself, "0.2" its second child) and only its calls are counted. Two calls differ
// from strace's treatment because the kernel has its own way to fail them: close() always
// releases the descriptor, whatever it returns, and brk() answers with the old break.

#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// <linux/ptrace.h> clashes with <sys/ptrace.h> in some C libraries.
#define EVENT_STOP 128
#define INFO_REQUEST 0x420e
enum { info_entry = 1, info_exit = 2 };
struct syscall_info {
    uint8_t op;
    uint8_t pad[3];
    uint32_t arch;
    uint64_t instruction_pointer;
    uint64_t stack_pointer;
    uint64_t nr;
    uint64_t args[6];
    uint64_t more[2];
};

enum { max_processes = 256, max_numbers = 1024, path_size = 64 };

struct process {
    pid_t pid;
    char path[path_size];  // Empty until the parent's fork event has named it.
    int children;
    int alive;
    int started;        // It stopped for the first time, so it can be resumed.
    int in_launch;      // Counting: from its start (the first process: from its exec) on.
    int is_command;     // It runs the probe, or descends from a process that does.
    int override_exit;  // The next exit stop gets the injected result.
    int restore_exit;   // The next exit stop gets back its first argument.
    uint64_t first_argument;
    uint16_t counts[max_numbers];
};

static struct process processes[max_processes];
static int process_count;
static FILE* trace_file;
static const char* target_path;
static long target_number, target_occurrence, target_errno;
static int fired, fired_after_exec, exec_seen;
static dev_t probe_device;
static ino_t probe_inode;
static pid_t monitor;
static char command_path[path_size];
static volatile sig_atomic_t alarmed;
static char last_descriptors[512], last_children[512];  // Of the first process, at its end.

static void die(const char* what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
    exit(99);
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static struct process* find(pid_t pid)
{
    for (int i = process_count - 1; i >= 0; --i)
        if (processes[i].pid == pid && processes[i].alive)
            return &processes[i];
    return NULL;
}

static struct process* add(pid_t pid)
{
    if (process_count == max_processes) {
        errno = ENOSPC;
        die("too many processes");
    }
    struct process* p = &processes[process_count++];
    memset(p, 0, sizeof *p);
    p->pid = pid;
    p->alive = 1;
    return p;
}

// Only the process that gets the fault (or everything, for a trace) stops at its calls.
static int wants_calls(const struct process* p)
{
    if (p->is_command)
        return 0;
    if (trace_file || p->override_exit || p->restore_exit)
        return 1;
    return target_path && !fired && strcmp(p->path, target_path) == 0;
}

static void resume(struct process* p, int signal_number)
{
    const long how = wants_calls(p) || !p->in_launch ? PTRACE_SYSCALL : PTRACE_CONT;
    // ESRCH: it was killed in between; its end is reported by a later wait.
    if (ptrace(how, p->pid, NULL, (void*)(long)signal_number) < 0 && errno != ESRCH)
        die("ptrace resume");
}

static void set_number(pid_t pid, long number)
{
#if defined(__x86_64__)
    // ESRCH, here and below: it was killed in between.
    if (ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), number) < 0 &&
        errno != ESRCH)
        die("ptrace set number");
#elif defined(__aarch64__)
    int value = (int)number;
    struct iovec iov = {&value, sizeof value};
    if (ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &iov) < 0 && errno != ESRCH)
        die("ptrace set number");
#else
#error "teach set_number() this architecture"
#endif
}

enum register_name { first_argument, result };

static void set_register(pid_t pid, enum register_name which, long value)
{
#if defined(__x86_64__)
    const size_t offset = which == result ? offsetof(struct user_regs_struct, rax)
                                          : offsetof(struct user_regs_struct, rdi);
    if (ptrace(PTRACE_POKEUSER, pid, offset, value) < 0 && errno != ESRCH)
        die("ptrace set register");
#elif defined(__aarch64__)
    (void)which;  // x0 is both.
    struct user_regs_struct regs;
    struct iovec iov = {&regs, sizeof regs};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &iov) < 0) {
        if (errno == ESRCH)
            return;
        die("ptrace get registers");
    }
    regs.regs[0] = (unsigned long)value;
    if (ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &iov) < 0 && errno != ESRCH)
        die("ptrace set registers");
#endif
}

// Best effort, for people who read the trace: the first argument that is a printable string.
static void describe(pid_t pid, const struct syscall_info* info, char* out, size_t size)
{
    snprintf(out, size, "%#llx", (unsigned long long)info->args[0]);
    for (int i = 0; i < 3; ++i) {
        if (info->args[i] < 4096)
            continue;
        // A string may end just before an unmapped page, so it is read in two steps.
        char text[49] = {0};
        const size_t to_page_end = 4096 - info->args[i] % 4096;
        const size_t want = to_page_end < 48 ? to_page_end : 48;
        struct iovec local = {text, want};
        struct iovec remote = {(void*)(uintptr_t)info->args[i], want};
        if (process_vm_readv(pid, &local, 1, &remote, 1, 0) <= 0)
            continue;
        size_t length = 0;
        while (text[length] > ' ' && text[length] < 127)
            ++length;
        if (length > 0 && text[length] == '\0') {
            snprintf(out, size, "\"%s\"", text);
            return;
        }
    }
}

static void at_entry(struct process* p, const struct syscall_info* info)
{
    if (!p->in_launch || info->nr >= max_numbers)
        return;
    const int occurrence = ++p->counts[info->nr];
    if (trace_file) {
        char text[64];
        describe(p->pid, info, text, sizeof text);
        fprintf(trace_file, "%s %d %llu %s\n", p->path, exec_seen, (unsigned long long)info->nr,
                text);
    }
    if (!target_path || fired || (long)info->nr != target_number ||
        occurrence != target_occurrence || strcmp(p->path, target_path) != 0)
        return;
    fired = 1;
    fired_after_exec = exec_seen;
    if (info->nr == SYS_brk) {
        set_register(p->pid, first_argument, 0);
        p->first_argument = info->args[0];
        p->restore_exit = 1;
        return;
    }
    if (info->nr != SYS_close)
        set_number(p->pid, -1);
    p->override_exit = 1;
}

static void at_call_stop(struct process* p)
{
    struct syscall_info info;
    if (ptrace(INFO_REQUEST, p->pid, (void*)sizeof info, &info) < 0) {
        if (errno == ESRCH)
            return;
        die("ptrace syscall info");
    }
    if (info.op == info_entry) {
        at_entry(p, &info);
    } else if (info.op == info_exit && p->override_exit) {
        set_register(p->pid, result, -target_errno);
        p->override_exit = 0;
    } else if (info.op == info_exit && p->restore_exit) {
#if defined(__x86_64__)
        // Callers may rely on argument registers to survive a call.
        set_register(p->pid, first_argument, (long)p->first_argument);
#endif
        p->restore_exit = 0;
    }
}

static void at_exec(struct process* p)
{
    p->in_launch = 1;
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/exe", (int)p->pid);
    struct stat st;
    if (stat(name, &st) == 0 && st.st_dev == probe_device && st.st_ino == probe_inode) {
        p->is_command = 1;
        exec_seen = 1;
        strcpy(command_path, p->path);
    }
}

static void at_fork(struct process* parent)
{
    unsigned long message = 0;
    if (ptrace(PTRACE_GETEVENTMSG, parent->pid, NULL, &message) < 0)
        return;
    struct process* child = find((pid_t)message);
    if (!child)
        child = add((pid_t)message);
    snprintf(child->path, path_size, "%.48s.%d", parent->path, ++parent->children);
    child->in_launch = parent->in_launch;
    child->is_command = parent->is_command;
    if (child->started)
        resume(child, 0);
}

// One that was killed in the middle of a fork cannot name its child any more.
static void release_orphans(void)
{
    for (int i = 0; i < process_count; ++i) {
        struct process* p = &processes[i];
        if (!p->alive || !p->started || p->path[0])
            continue;
        strcpy(p->path, "orphan");
        p->in_launch = 1;
        resume(p, 0);
    }
}

// The names in a folder of /proc, divided by blanks.
static void list_names(const char* folder, char* text, size_t size)
{
    size_t used = 0;
    DIR* directory = opendir(folder);
    if (!directory) {
        snprintf(text, size, "%s", strerror(errno));
        return;
    }
    for (struct dirent* entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", entry->d_name);
    closedir(directory);
}

// What it has kept, while it still has it.
static void at_end(const struct process* p)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd", (int)p->pid);
    list_names(name, last_descriptors, sizeof last_descriptors);
    snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)p->pid, (int)p->pid);
    FILE* f = fopen(name, "re");
    if (!f) {
        snprintf(last_children, sizeof last_children, "%s", strerror(errno));
        return;
    }
    if (!fgets(last_children, sizeof last_children, f))
        last_children[0] = '\0';
    fclose(f);
}

static void at_stop(struct process* p, int status)
{
    const int signal_number = WSTOPSIG(status);
    const int event = (status >> 16) & 0xff;
    if (event == EVENT_STOP) {
        if (!p->started) {
            p->started = 1;
            if (p->path[0])  // Else its parent's event comes next and resumes it.
                resume(p, 0);
        } else if (signal_number == SIGTRAP) {
            resume(p, 0);
        } else {
            ptrace(PTRACE_LISTEN, p->pid, NULL, NULL);
        }
        return;
    }
    p->started = 1;
    switch (event) {
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        at_fork(p);
        resume(p, 0);
        return;
    case PTRACE_EVENT_EXEC:
        at_exec(p);
        resume(p, 0);
        return;
    case PTRACE_EVENT_EXIT:
        if (p->pid == monitor)
            at_end(p);
        resume(p, 0);
        return;
    default:
        break;
    }
    if (signal_number == (SIGTRAP | 0x80)) {
        at_call_stop(p);
        resume(p, 0);
    } else {
        resume(p, signal_number);
    }
}

static void on_alarm(int number)
{
    (void)number;
    alarmed = 1;
}

static void open_at(int number, const char* file, int flags)
{
    const int fd = open(file, flags, 0644);
    if (fd < 0)
        die(file);
    if (fd == number)
        return;
    if (dup2(fd, number) < 0)
        die(file);
    close(fd);
}

struct descriptor {
    int number, flags;
    const char* file;
};

static void start_command(char** argv, const struct descriptor* table, int count, const char* cwd)
{
    int gate[2];
    if (pipe(gate) < 0)
        die("pipe");
    monitor = fork();
    if (monitor < 0)
        die("fork");
    if (monitor == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1)
            _exit(98);
        close(gate[0]);
        if (cwd && chdir(cwd) < 0)
            die(cwd);
        for (int i = 0; i < count; ++i)
            open_at(table[i].number, table[i].file, table[i].flags);
        execv(argv[0], argv);
        die(argv[0]);
    }
    close(gate[0]);
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                         PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, monitor, NULL, (void*)options) < 0)
        die("ptrace seize");
    struct process* p = add(monitor);
    strcpy(p->path, "0");
    p->started = 1;
    if (write(gate[1], "x", 1) != 1)
        die("write");
    close(gate[1]);
}

static void report_left(FILE* out, pid_t pid, const char* path)
{
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    FILE* f = fopen(name, "re");
    if (!f)
        return;
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    char call[64] = "?";
    snprintf(name, sizeof name, "/proc/%d/syscall", (int)pid);
    f = fopen(name, "re");
    if (f) {
        if (!fgets(call, sizeof call, f))
            strcpy(call, "?");
        fclose(f);
    }
    char* open_paren = strchr(text, '(');
    char* end = strrchr(text, ')');
    if (!open_paren || !end || end[1] == '\0')
        return;
    const char state = end[2];
    end[1] = '\0';
    fprintf(out, "left=%s %s %c in system call %.*s\n", path, open_paren, state,
            (int)strcspn(call, " \n"), call);
}

// Processes that are our children without being traced: nothing should ever be here.
static void for_untraced(void (*what)(FILE*, pid_t, const char*), FILE* out)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    FILE* f = fopen(name, "re");
    if (!f)
        return;
    int pid;
    while (fscanf(f, "%d", &pid) == 1)
        if (!find(pid))
            what(out, pid, "untraced");
    fclose(f);
}

static void kill_one(FILE* out, pid_t pid, const char* path)
{
    (void)out;
    (void)path;
    kill(pid, SIGKILL);
}

static int follow(FILE* report, int64_t timeout, int64_t grace)
{
    int monitor_status = -1, ended_by_us = 0;
    int64_t deadline = now_ms() + timeout;
    const struct itimerval every = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (;;) {
        int status;
        const pid_t pid = waitpid(-1, &status, __WALL);
        const int wait_error = errno;
        if (now_ms() > deadline) {
            if (ended_by_us == 2)
                break;  // SIGKILL had its time; EXITKILL is the last resort.
            if (!ended_by_us)
                fprintf(report, "%s=1\n", monitor_status < 0 ? "hung" : "outlived");
            for (int i = 0; i < process_count; ++i)
                if (processes[i].alive) {
                    if (!ended_by_us)
                        report_left(report, processes[i].pid, processes[i].path);
                    kill(processes[i].pid, SIGKILL);
                }
            if (!ended_by_us)
                for_untraced(report_left, report);
            for_untraced(kill_one, NULL);
            ++ended_by_us;
            deadline = now_ms() + 2000;
        }
        if (pid < 0) {
            if (wait_error == EINTR)
                continue;
            if (wait_error == ECHILD)
                break;
            errno = wait_error;
            die("waitpid");
        }
        struct process* p = find(pid);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (p)
                p->alive = 0;
            if (WIFSIGNALED(status))
                release_orphans();
            if (pid == monitor && monitor_status < 0) {
                monitor_status = status;
                if (!ended_by_us)
                    deadline = now_ms() + grace;
            }
            continue;
        }
        if (!WIFSTOPPED(status))
            continue;
        if (!p)
            p = add(pid);  // It stopped before its parent's fork event arrived.
        at_stop(p, status);
    }
    return monitor_status;
}

int main(int argc, char** argv)
{
    struct descriptor table[16];
    int count = 0, i = 1;
    const char *cwd = NULL, *report_name = NULL;
    int64_t timeout = 10000, grace = 3000;
    for (; i < argc && strcmp(argv[i], "--") != 0; ++i) {
        const char* option = argv[i];
        if (i + 1 >= argc)
            break;
        const char* value = argv[++i];
        if (strcmp(option, "--probe") == 0) {
            struct stat st;
            if (stat(value, &st) < 0)
                die(value);
            probe_device = st.st_dev;
            probe_inode = st.st_ino;
        } else if (strcmp(option, "--fd") == 0 || strcmp(option, "--out") == 0) {
            const char* equals = strchr(value, '=');
            if (!equals || count == 16)
                return 99;
            table[count].number = atoi(value);
            table[count].file = equals + 1;
            table[count++].flags = option[2] == 'f' ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
        } else if (strcmp(option, "--cwd") == 0) {
            cwd = value;
        } else if (strcmp(option, "--timeout") == 0) {
            timeout = atoll(value);
        } else if (strcmp(option, "--grace") == 0) {
            grace = atoll(value);
        } else if (strcmp(option, "--report") == 0) {
            report_name = value;
        } else if (strcmp(option, "--trace") == 0) {
            trace_file = fopen(value, "we");
            if (!trace_file)
                die(value);
        } else if (strcmp(option, "--at") == 0 && i + 3 < argc) {
            target_path = value;
            target_number = atol(argv[++i]);
            target_occurrence = atol(argv[++i]);
            target_errno = atol(argv[++i]);
        } else {
            fprintf(stderr, "inject: bad option %s\n", option);
            return 99;
        }
    }
    if (i + 1 >= argc || !report_name || !probe_inode) {
        fprintf(stderr, "inject: --probe, --report and a command are needed\n");
        return 99;
    }
    FILE* report = fopen(report_name, "we");
    if (!report)
        die(report_name);
    // Orphans come to us instead of vanishing to init, so that none is overlooked.
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    start_command(argv + i + 1, table, count, cwd);
    const int status = follow(report, timeout, grace);
    fprintf(report, "fired=%d\nfired_after_exec=%d\nexec=%d\ncommand=%s\n", fired, fired_after_exec,
            exec_seen, command_path);
    if (status >= 0 && WIFEXITED(status))
        fprintf(report, "rc=%d\n", WEXITSTATUS(status));
    if (status >= 0 && WIFSIGNALED(status))
        fprintf(report, "signal=%d\n", WTERMSIG(status));
    fprintf(report, "descriptors=%s\nchildren=%s\n", last_descriptors, last_children);
    fprintf(report, "done=1\n");
    if (fclose(report) != 0)
        die(report_name);
    if (trace_file && fclose(trace_file) != 0)
        die("trace");
    return 0;
}
