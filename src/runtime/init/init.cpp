// The sandbox's init: a program of its own, without libc, executed from a sealed memfd. Its
// memory holds nothing of the program that started it: no environment, no arguments, no heap.
// It is given one packet (see packet.hpp), starts the command, reaps, and tells how the command
// ended. Once the command runs it needs only wait4, write and exit_group, since the command's
// seccomp filters are loaded here too: a process without them must not be at hand inside.

#include "runtime/command.hpp"
#include "runtime/group_files.hpp"
#include "runtime/init/serve.hpp"
#include "runtime/init/unpack.hpp"
#include "runtime/packet.hpp"
#include "sys/raw.hpp"
#include "sys/text.hpp"

#include <csignal>
#include <initializer_list>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <sys/wait.h>

using namespace nsbox;
namespace raw = sys::raw;
using runtime::Command;
using runtime::CommandUsage;
using runtime::Message;
using runtime::PacketHeader;
using runtime::Tell;

namespace {

constexpr std::size_t stack_size = 32768;
alignas(16) char command_stack[stack_size];

/// What init is about, for its signal handler too.
struct {
    int channel = -1;
    int supervisor = -1;
    int children = -1;
    int proc = -1;
    int command = -1;
    int code = 1;
    int reaped_status = 0;  ///< Of the child that reap() has reaped last.
    unsigned flags = 0;
} self;

/// The control group that was made for the command.
struct {
    int folder = -1;                           ///< That it is in.
    int kill = -1;                             ///< Its cgroup.kill, open, and...
    int memory = -1;                           ///< ...its memory.events.
    char name[runtime::group_name_size] = {};  ///< Empty: there is none.
} group;

struct Start {
    Command command;
    Tell failure = Tell::started;
    int error = 0;
};

int parse_number(const char* text)
{
    int value = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
        value = value * 10 + (*text - '0');
    return value;
}

void wipe(char* text)
{
    // The strings of exec stay readable in this process's memory otherwise.
    for (volatile char* at = text; *at != '\0'; ++at)
        *at = '\0';
}

bool has(runtime::PacketFlag flag)
{
    return (self.flags & flag) != 0;
}

/// The command's side, in the memory that it shares with init until exec.
void run_command(void* argument)
{
    auto& start = *static_cast<Start*>(argument);
    const auto fail = [&](Tell kind, int error) {
        start.failure = kind;
        start.error = -error;
        raw::exit_group(1);
    };
    if (const int rc = runtime::prepare_command(start.command); rc < 0)
        fail(Tell::late_failed, rc);
    if (const int rc = runtime::enter_landlock(start.command); rc < 0)
        fail(Tell::landlock_failed, rc);
    const int first = runtime::choose_candidate(start.command);
    if (first < 0)
        fail(Tell::exec_failed, first);
    if (!has(runtime::packet_filter_early))
        if (const int rc = runtime::load_own_filters(start.command, self.channel); rc < 0)
            fail(Tell::filter_failed, rc);
    fail(Tell::exec_failed, runtime::execute(start.command, first));
}

/// Whether it was sent.
bool tell(int channel, Tell kind, int value, unsigned site = 0)
{
    const Message message{kind, value, -5, site};
    long rc = 0;
    do
        rc = raw::write(channel, &message, sizeof message);
    while (rc == -EINTR);
    return rc == sizeof message;
}

/// Closes what neither init nor the supervisor needs: the command has its copies by now.
void close_others(const PacketHeader* packet)
{
    const auto* const keep =
        reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(packet) + packet->keep);
    unsigned first = 3;
    for (;;) {
        unsigned next = ~0U;
        const auto consider = [&](std::int32_t fd) {
            if (fd >= static_cast<std::int32_t>(first) && static_cast<unsigned>(fd) < next)
                next = static_cast<unsigned>(fd);
        };
        consider(packet->channel);
        consider(packet->supervisor);
        consider(packet->children);
        consider(packet->proc);
        consider(packet->registry);
        consider(packet->group);
        consider(packet->lifeline);
        consider(packet->helper);
        consider(group.kill);
        consider(group.memory);
        for (std::uint32_t i = 0; i < packet->keep_count; ++i)
            consider(keep[i]);
        if (next > first)
            raw::close_range(first, next == ~0U ? ~0U : next - 1, 0);
        if (next == ~0U)
            return;
        first = next + 1;
    }
}

/// As long as it takes, where nobody else waits for that.
constexpr int group_patience = 60000;

/// What is still in the group is killed.
void remove_own_group()
{
    if (group.name[0] != '\0')
        runtime::remove_group(group.folder, group.name, group_patience);
    group.name[0] = '\0';
}

[[noreturn]] void stop(int channel, int error)
{
    remove_own_group();
    tell(channel, Tell::late_failed, -error);
    raw::exit_group(1);
}

int shell_code(int status)
{
    const int signal = status & 0x7f;
    return signal != 0 ? 128 + signal : status >> 8 & 0xff;
}

std::uint64_t microseconds(const timeval& time)
{
    return static_cast<std::uint64_t>(time.tv_sec) * 1000000 +
           static_cast<std::uint64_t>(time.tv_usec);
}

/// With what was used by all that was reaped until now.
void tell_end(int status, bool is_last, std::uint64_t oom_kills)
{
    rusage usage{};
    raw::call(SYS_getrusage, RUSAGE_CHILDREN, &usage);
    struct {
        Message message;
        CommandUsage usage;
    } const report{{Tell::exited, status, is_last ? 1 : 0, 0},
                   {microseconds(usage.ru_utime), microseconds(usage.ru_stime),
                    static_cast<std::uint64_t>(usage.ru_maxrss), oom_kills}};
    while (raw::write(self.channel, &report, sizeof report) == -EINTR) {
    }
}

/// Reaps what has ended already; whether nothing is left.
bool is_empty()
{
    int status = 0;
    int pid = 0;
    do {
        pid = raw::wait4(-1, &status, WNOHANG);
    } while (pid > 0 || pid == -EINTR);
    return pid < 0;
}

void note_end(int pid, int status)
{
    if (pid != self.command)
        return;
    self.command = -1;
    self.code = shell_code(status);
    const std::uint64_t oom_kills = runtime::oom_kills_of(group.memory);
    const bool ends_all = has(runtime::packet_end_with_command);
    const bool is_last = ends_all || is_empty();
    // The supervisor does not wait for an init that has nothing left to wait for.
    if (is_last && !ends_all)
        remove_own_group();
    tell_end(status, is_last, oom_kills);
}

/// Our children's pids as a text, divided by blanks; its length. See proc(5), children.
long list_children(char* text, std::size_t size)
{
    const long got = raw::call(SYS_pread64, self.children, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return got;
}

/// Kills a child by its number in the list.
void kill_child(int pid)
{
    if (self.proc < 0) {
        raw::kill(pid, SIGKILL);
        return;
    }
    // A process's folder in any procfs does for a pidfd: pidfd_send_signal(2).
    sys::FixedText<16> name;
    name.number(static_cast<unsigned>(pid));
    const int folder = raw::openat(self.proc, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    raw::pidfd_send_signal(folder, SIGKILL);
    raw::close(folder);
}

[[noreturn]] void end_empty()
{
    // A signal that ends everything came between the command's end and the note of it.
    if (self.command >= 0)
        note_end(self.command, self.reaped_status);
    remove_own_group();
    raw::exit_group(self.code);
}

/// What is killed leaves its own children to us, until nothing is left.
[[noreturn]] void end_adopted()
{
    // At once, and what hides from us too; one by one what has left the group.
    if (group.kill >= 0)
        raw::write(group.kill, "1", 1);
    char text[4096];
    for (;;) {
        if (list_children(text, sizeof text) > 0)
            for (const char* at = text; *at != '\0';) {
                const int pid = parse_number(at);
                while (*at >= '0' && *at <= '9')
                    ++at;
                // A number that was cut off at the end of the text may be another's.
                if (pid > 0 && *at == ' ')
                    kill_child(pid);
                while (*at == ' ')
                    ++at;
            }
        int status = 0;
        const int pid = raw::wait4(-1, &status, 0);
        if (pid > 0)
            note_end(pid, status);
        else if (pid != -EINTR)
            end_empty();
    }
}

/// Pid 1 only has to end: the kernel ends what is in its namespace.
[[noreturn]] void end_everything()
{
    if (has(runtime::packet_subreaper))
        end_adopted();
    raw::exit_group(self.code);
}

[[noreturn]] void reap()
{
    for (;;) {
        const int pid = raw::wait4(-1, &self.reaped_status, 0);
        if (pid == -EINTR)
            continue;
        if (pid < 0)
            end_empty();
        const bool is_command = pid == self.command;
        note_end(pid, self.reaped_status);
        if (is_command && has(runtime::packet_end_with_command))
            end_everything();
    }
}

/// A pidfd can be read from when its process has ended; see pidfd_open(2).
bool is_dead(int pidfd)
{
    // A process that is ending sends the signal a little before it counts as ended.
    pollfd fd{pidfd, POLLIN, 0};
    const timespec while_it_ends{0, 100000000};
    return raw::poll(&fd, 1, &while_it_ends) != 0;
}

void on_signal(int signal)
{
    // The parent-death signal is sent when the *thread* ends that started us: see prctl(2).
    if (signal == runtime::look_signal && !is_dead(self.supervisor))
        return;
    end_everything();
}

extern "C" void nsbox_init_restore();

int handle(int signal)
{
    const unsigned long action[4] = {reinterpret_cast<unsigned long>(on_signal),
                                     SA_RESTART | 0x04000000UL,  // SA_RESTORER
                                     reinterpret_cast<unsigned long>(nsbox_init_restore), ~0UL};
    return static_cast<int>(raw::call(SYS_rt_sigaction, signal, action, nullptr, 8));
}

int ignore(int signal)
{
    const unsigned long action[4] = {1};  // SIG_IGN
    return static_cast<int>(raw::call(SYS_rt_sigaction, signal, action, nullptr, 8));
}

/// Not being pid 1, init shares the signals of the command's process group, and has to be able
/// to kill what has become another user's.
int settle_subreaper()
{
    for (const int signal :
         {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU})
        if (const int rc = ignore(signal); rc < 0)
            return rc;
    raw::CapWords words[2]{};
    if (const int rc = raw::capget(words); rc < 0)
        return rc;
    const std::uint64_t kill = words[0].permitted & (1U << CAP_KILL);
    return raw::capset(kill, kill, 0);
}

/// What only the command needs is put away, and what confines it confines init too.
void settle(const PacketHeader* packet, const Command& command)
{
    close_others(packet);
    ignore(SIGPIPE);  // A supervisor that left must not end us.
    // One that has to find and kill processes needs more calls than a filter may leave. Without
    // a pid namespace it is one process of many that the command can see.
    const bool subreaper = has(runtime::packet_subreaper);
    int rc = 0;
    if (subreaper) {
        rc = settle_subreaper();
    } else if (!has(runtime::packet_filter_early)) {
        rc = raw::capset(0, 0, 0);
        if (rc >= 0)
            rc = runtime::load_filters(command);
    }
    if (rc < 0)
        stop(packet->channel, rc);
}

bool supervisor_is_gone(int channel)
{
    pollfd fd{channel, 0, 0};
    const timespec now{};
    return raw::poll(&fd, 1, &now) > 0 && (fd.revents & POLLHUP) != 0;
}

int keep_from_command(const PacketHeader* packet)
{
    const auto* const keep =
        reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(packet) + packet->keep);
    int rc = raw::fcntl(packet->channel, F_SETFD, FD_CLOEXEC);
    for (const int fd : {packet->program, packet->supervisor, packet->children, packet->proc,
                         packet->group, packet->lifeline, packet->ruleset, packet->helper})
        if (rc >= 0 && fd >= 0)
            rc = raw::fcntl(fd, F_SETFD, FD_CLOEXEC);
    for (std::uint32_t i = 0; i < packet->keep_count; ++i)
        if (rc >= 0 && keep[i] >= 0)
            rc = raw::fcntl(keep[i], F_SETFD, FD_CLOEXEC);
    return rc;
}

/// Outside of every sandbox: waits for the supervisor's end, and removes its socket if it could not
/// do that itself.
[[noreturn]] void clear_up(const PacketHeader* packet)
{
    raw::close_range(0, 2, 0);
    close_others(packet);
    pollfd fd{packet->supervisor, POLLIN, 0};
    while (raw::poll(&fd, 1, nullptr) == -EINTR) {
    }
    const char* const name = reinterpret_cast<const char*>(packet) + packet->socket;
    struct ::stat status;
    // Somebody may have put something else there.
    if (raw::fstatat(packet->registry, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        (status.st_mode & S_IFMT) == S_IFSOCK &&
        (packet->socket_inode == 0 ||
         (status.st_ino == packet->socket_inode &&
          runtime::nanoseconds_of(status.st_mtim) == packet->socket_made)))
        raw::unlinkat(packet->registry, name, 0);
    raw::exit_group(0);
}

/// Outside of every sandbox: see Group. The end of the pipe whose other ends are closed is told as
/// POLLHUP, without being asked for: poll(2).
[[noreturn]] void guard(const PacketHeader* packet)
{
    const char* const name = reinterpret_cast<const char*>(packet) + packet->group_name;
    raw::close_range(0, 2, 0);
    close_others(packet);
    raw::chdir("/");  // What is mounted where the caller was must not be kept busy.
    pollfd fds[2] = {{packet->supervisor, POLLIN, 0}, {packet->lifeline, 0, 0}};
    while (raw::poll(fds, 2, nullptr) == -EINTR) {
    }
    // Init does that too, unless it was stopped.
    if (fds[0].revents != 0 && (packet->flags & runtime::packet_die_with_parent) != 0)
        runtime::kill_group(packet->group, name);
    while (raw::poll(&fds[1], 1, nullptr) == -EINTR) {
    }
    runtime::remove_group(packet->group, name, group_patience);
    raw::exit_group(0);
}

/// Outside of every sandbox: see LimitGroups. What goes on without its supervisor is waited for.
[[noreturn]] void guard_limits(const PacketHeader* packet)
{
    const char* const name = reinterpret_cast<const char*>(packet) + packet->group_name;
    const auto* const folders =
        reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(packet) + packet->keep);
    raw::close_range(0, 2, 0);
    close_others(packet);
    raw::chdir("/");
    pollfd fd{packet->supervisor, POLLIN, 0};
    while (raw::poll(&fd, 1, nullptr) == -EINTR) {
    }
    const bool at_once = (packet->flags & runtime::packet_die_with_parent) != 0;
    if (at_once)
        for (std::uint32_t i = 0; i < packet->keep_count; ++i)
            runtime::kill_group(folders[i], name);
    constexpr long longest = 1000;  // Milliseconds.
    int tries = 10;                 // Where there is another reason than that something is in it.
    for (long wait = 10; tries > 0; wait = wait * 2 < longest ? wait * 2 : longest) {
        bool is_done = true;
        bool is_refused = false;
        for (std::uint32_t i = 0; i < packet->keep_count; ++i) {
            const int rc = at_once ? runtime::remove_group(folders[i], name, group_patience)
                                   : runtime::remove_empty_group(folders[i], name);
            is_done = is_done && rc == 0;
            is_refused = is_refused || (rc < 0 && (at_once || rc != -EBUSY));
        }
        if (is_done)
            break;
        tries -= is_refused ? 1 : 0;
        const timespec time{wait / 1000, wait % 1000 * 1000000L};
        raw::poll(nullptr, 0, &time);
    }
    raw::exit_group(0);
}

/// For a command that enters a sandbox whose init is another.
[[noreturn]] void execute_here(const Command& command)
{
    const auto give_up = [](Tell kind, int error) {
        tell(self.channel, kind, -error);
        raw::exit_group(1);
    };
    if (const int rc = runtime::prepare_command(command); rc < 0)
        give_up(Tell::late_failed, rc);
    if (const int rc = runtime::enter_landlock(command); rc < 0)
        give_up(Tell::landlock_failed, rc);
    const int first = runtime::choose_candidate(command);
    if (first < 0)
        give_up(Tell::exec_failed, first);
    // Filters may forbid all but exec.
    tell(self.channel, Tell::about_to_exec, 0);
    if (const int rc = runtime::load_filters(command); rc < 0)
        give_up(Tell::filter_failed, rc);
    give_up(Tell::exec_failed, runtime::execute(command, first));
    raw::exit_group(1);
}

/// Init ends with its supervisor if that is wanted, and adopts orphans where it is not pid 1.
int follow_supervisor()
{
    int rc = 0;
    if (has(runtime::packet_subreaper)) {
        char text[64];
        rc = static_cast<int>(list_children(text, sizeof text));
        if (rc >= 0)
            rc = raw::prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (rc >= 0)
            rc = handle(runtime::end_signal);
    }
    if (rc < 0 || !has(runtime::packet_die_with_parent))
        return rc;
    if (self.supervisor >= 0)
        rc = handle(runtime::look_signal);
    if (rc >= 0)
        rc = raw::prctl(PR_SET_PDEATHSIG, self.supervisor >= 0 ? runtime::look_signal : SIGKILL);
    if (rc >= 0 && supervisor_is_gone(self.channel))
        raw::exit_group(1);
    return rc;
}

/// Waits until the supervisor says whether it has made a group.
bool has_group()
{
    char word = 0;
    long got = 0;
    do {
        got = raw::read(self.channel, &word, 1);
    } while (got == -EINTR);
    if (got <= 0)
        raw::exit_group(1);
    return word != 0;
}

/// As openat(2), but none of the numbers of the standard descriptors, which the caller may have closed.
int open_high(int folder, const char* name, int flags)
{
    constexpr int first_free = 3;
    const int opened = raw::openat(folder, name, flags | O_CLOEXEC);
    if (opened < 0 || opened >= first_free)
        return opened;
    const int moved = raw::fcntl(opened, F_DUPFD_CLOEXEC, first_free);
    raw::close(opened);
    return moved;
}

/// The group that the command is to be started in, or a negative number: then it is to be where we
/// are.
int open_group(const PacketHeader* packet)
{
    if (packet->group < 0 || packet->group_name == 0)
        return packet->group;
    if (!has_group())
        return -1;
    const char* const name = reinterpret_cast<const char*>(packet) + packet->group_name;
    group.folder = packet->group;
    // First, for the signals that may end us from here on.
    for (std::size_t i = 0; i + 1 < sizeof group.name && name[i] != '\0'; ++i)
        group.name[i] = name[i];
    const int opened = open_high(group.folder, group.name, O_RDONLY | O_DIRECTORY);
    group.kill = open_high(opened, "cgroup.kill", O_WRONLY);
    group.memory = open_high(opened, "memory.events", O_RDONLY);
    if (group.kill >= 0)
        return opened;
    raw::close(opened);
    return -1;
}

/// Starts the command, in the group if there is one and the kernel lets it in.
long start_command(Start& start, int in, int* pidfd)
{
    const unsigned long flags = CLONE_VM | CLONE_VFORK | (pidfd != nullptr ? CLONE_PIDFD : 0UL);
    if (in >= 0) {
        clone_args arguments{};
        arguments.flags = flags | CLONE_INTO_CGROUP;
        arguments.pidfd = reinterpret_cast<std::uint64_t>(pidfd);
        arguments.exit_signal = SIGCHLD;
        arguments.stack = reinterpret_cast<std::uint64_t>(command_stack);
        arguments.stack_size = stack_size;
        arguments.cgroup = static_cast<unsigned>(in);
        const long pid = raw::clone3(&arguments, run_command, &start);
        if (pid > 0)
            return pid;
    }
    remove_own_group();
    return raw::clone(flags | SIGCHLD, command_stack + stack_size, pidfd, run_command, &start);
}

/// Process 1 and the command are in one domain, so that they can signal each other: landlock(7). An init
/// that is not process 1 stays outside, as it has to look at files and processes of the host's.
void share_landlock(Command& command)
{
    if (has(runtime::packet_subreaper))
        return;
    if (const int rc = runtime::enter_landlock(command); rc < 0) {
        tell(self.channel, Tell::landlock_failed, -rc);
        raw::exit_group(1);
    }
    command.ruleset = -1;
}

/// A filter takes long to load: once does where it leaves us the calls that are to come.
void load_early(const Command& command)
{
    if (!has(runtime::packet_filter_early))
        return;
    int rc = raw::capset(0, 0, 0);
    if (rc >= 0)
        rc = runtime::load_filters(command);
    if (rc < 0) {
        tell(self.channel, Tell::filter_failed, -rc);
        raw::exit_group(1);
    }
}

/// For commands that are asked for one by one; all that confines them is in force here already, but for
/// filters that might not leave init what it needs.
[[noreturn]] void serve_commands(PacketHeader* packet, const Command& command)
{
    const int channel = packet->channel;
    close_others(packet);
    // The caller's session is none of theirs.
    raw::setsid();
    const int ended = runtime::init::watch_children();
    int rc = ended;
    if (rc >= 0 && has(runtime::packet_bare))
        rc = raw::capset(0, 0, 0);
    if (rc < 0)
        stop(channel, rc);
    load_early(command);
    const runtime::init::Service service{channel, packet->supervisor, packet->helper, ended,
                                         has(runtime::packet_filter_early)};
    raw::call(SYS_munmap, packet, packet->size);
    // Who does not hear of it waits for this process's end.
    if (!tell(channel, Tell::started, 0))
        raw::exit_group(1);
    runtime::init::serve(service);
}

/// Now that this process's memory is its own: see plan_groups().
void enter_groups(const PacketHeader* packet)
{
    const auto* const lists = reinterpret_cast<const std::int32_t*>(
        reinterpret_cast<const char*>(packet) + packet->entrances);
    for (std::uint32_t i = 0; i < packet->entrance_count; ++i) {
        const long put = raw::write(lists[i], "0", 1);
        if (put < 0) {
            tell(self.channel, Tell::groups_failed, static_cast<int>(-put));
            raw::exit_group(1);
        }
        raw::close(lists[i]);
    }
}

void take_over(const PacketHeader* packet)
{
    self.channel = packet->channel;
    self.supervisor = packet->supervisor;
    self.children = packet->children;
    self.proc = packet->proc;
    self.flags = packet->flags;
}

/// What this program is outside of every sandbox; there it does not return.
void be_another(const PacketHeader* packet)
{
    if ((packet->flags & runtime::packet_clear_up) != 0)
        clear_up(packet);
    if ((packet->flags & runtime::packet_guard) != 0)
        guard(packet);
    if ((packet->flags & runtime::packet_limits) != 0)
        guard_limits(packet);
}

[[noreturn]] void init_main(long argc, char** argv)
{
    if (argc != 2)
        raw::exit_group(1);
    const int fd = parse_number(argv[1]);
    wipe(argv[1]);
    PacketHeader* const packet = runtime::init::map_packet(fd);
    if (packet == nullptr)
        raw::exit_group(1);
    const int channel = packet->channel;
    const std::size_t size = packet->size;
    if (const int rc = raw::prctl(PR_SET_DUMPABLE, 0); rc < 0)
        stop(channel, rc);
    be_another(packet);
    take_over(packet);
    const std::uint64_t none = 0;
    int rc = follow_supervisor();
    if (rc >= 0)
        rc = keep_from_command(packet);
    // Ignored, as a caller may have it, the kernel would throw the command's status away.
    if (rc >= 0)
        rc = raw::signal_default(SIGCHLD);
    if (rc >= 0)
        rc = raw::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (rc < 0)
        stop(channel, rc);
    enter_groups(packet);
    Start start;
    start.command = runtime::init::unpack(packet);
    if (has(runtime::packet_only_command))
        execute_here(start.command);
    share_landlock(start.command);
    if (has(runtime::packet_serve))
        serve_commands(packet, start.command);
    const int in = open_group(packet);
    int pidfd = -1;
    const bool tell_command = has(runtime::packet_tell_command);
    // What the supervisor gets from now on may be meant for the command.
    if (tell_command)
        tell(channel, Tell::about_to_exec, 0);
    load_early(start.command);
    const long command = start_command(start, in, tell_command ? &pidfd : nullptr);
    if (command < 0)
        stop(channel, static_cast<int>(command));
    self.command = static_cast<int>(command);
    if (start.error != 0) {
        remove_own_group();
        tell(channel, start.failure, start.error);
        raw::exit_group(1);
    }
    if (tell_command) {
        const long sent =
            runtime::tell_with_descriptor(channel, Message{Tell::command, 0, 0, 0}, pidfd);
        if (sent < 0)
            stop(channel, static_cast<int>(sent));
        raw::close(pidfd);
    }
    settle(packet, start.command);
    tell(channel, Tell::started, static_cast<int>(command), group.name[0] != '\0' ? 1 : 0);
    raw::call(SYS_munmap, packet, size);
    reap();
}

}  // namespace

extern "C" {
[[noreturn]] void nsbox_init_start(long* stack);
void* memcpy(void* to, const void* from, std::size_t size);
void* memset(void* to, int value, std::size_t size);

[[noreturn]] void nsbox_init_start(long* stack)
{
    init_main(stack[0], reinterpret_cast<char**>(stack + 1));
}

// What the compiler may call on its own.
void* memcpy(void* to, const void* from, std::size_t size)
{
    auto* out = static_cast<char*>(to);
    const auto* in = static_cast<const char*>(from);
    while (size-- > 0)
        *out++ = *in++;
    return to;
}

void* memset(void* to, int value, std::size_t size)
{
    auto* out = static_cast<volatile char*>(to);
    while (size-- > 0)
        *out++ = static_cast<char>(value);
    return to;
}
}

#if defined(__x86_64__)
__asm__(".globl nsbox_init_restore\n"
        "nsbox_init_restore:\n"
        "    mov $15, %eax\n"  // rt_sigreturn
        "    syscall\n"
        ".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call nsbox_init_start\n"
        "    ud2\n");
#else
__asm__(".globl nsbox_init_restore\n"
        "nsbox_init_restore:\n"
        "    mov x8, #139\n"  // rt_sigreturn
        "    svc 0\n"
        ".globl _start\n"
        "_start:\n"
        "    mov x29, xzr\n"
        "    mov x0, sp\n"
        "    bl nsbox_init_start\n"
        "    brk 0\n");
#endif
