// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "runtime/child.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <csignal>
#include <initializer_list>
#include <linux/prctl.h>
#include <sys/socket.h>

namespace nsbox::runtime {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Site;

namespace {

struct Report {
    Message message;
    char text[4096];
};

/// Only write(2) is used: a filter that is loaded already may allow little more.
bool tell(int channel, const Message& message, const char* text = nullptr) noexcept
{
    Report report;
    report.message = message;
    std::size_t size = 0;
    if (text != nullptr)
        for (; text[size] != '\0' && size < sizeof report.text; ++size)
            report.text[size] = text[size];
    long rc = 0;
    do {
        rc = raw::write(channel, &report, sizeof message + size);
    } while (rc == -EINTR);
    return rc >= 0;
}

[[noreturn]] void give_up(int channel, Tell kind, int error, int step = 0, Site site = Site::step,
                          const char* text = nullptr) noexcept
{
    tell(channel, Message{kind, -error, step, static_cast<std::uint32_t>(site)}, text);
    raw::exit_group(1);
}

/// Whether the supervisor has closed its end, as it does when it dies.
bool supervisor_is_gone(int channel) noexcept
{
    pollfd fd{channel, 0, 0};
    const timespec now{};
    return raw::poll(&fd, 1, &now) > 0 && (fd.revents & POLLHUP) != 0;
}

/// From here on the supervisor's death ends this process. The signal comes too late for a
/// supervisor that is dead already, so its end of the channel is looked at afterwards.
int follow_supervisor(int channel) noexcept
{
    const int rc = raw::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (rc < 0)
        return rc;
    if (supervisor_is_gone(channel))
        raw::exit_group(1);
    return 0;
}

void run_steps(const ChildProgram& program, ChildState& state, std::size_t from,
               std::size_t to) noexcept
{
    for (std::size_t i = from; i < to; ++i) {
        state.site = Site::step;
        const int rc = std::visit([&](const auto& step) noexcept { return run(step, state); },
                                  program.steps[i]);
        if (rc < 0)
            give_up(program.channel, Tell::step_failed, rc, static_cast<int>(i), state.site,
                    state.detail.c_str());
        if (state.has_replaced) {
            state.has_replaced = false;
            if (!tell(program.channel, Message{Tell::replaced, 0, static_cast<int>(i), 0}))
                raw::exit_group(1);
        }
    }
}

/// Identity changes on the way may have cleared it; see PR_SET_PDEATHSIG in prctl(2).
void settle_parent_death(const ChildProgram& program) noexcept
{
    int rc = 0;
    if (program.command.die_with_parent)
        rc = follow_supervisor(program.channel);
    else
        rc = raw::prctl(PR_SET_PDEATHSIG, 0);
    if (rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
}

[[noreturn]] void become_init(const ChildProgram& program, const ChildState& state) noexcept
{
    const auto amend = [&](std::size_t offset, const void* word) {
        return raw::call(SYS_pwrite64, program.packet, word, sizeof(std::uint32_t), offset);
    };
    const std::uint32_t choice = state.pwd_choice;
    long rc = choice == 0 ? 0  // As the packet has it.
                          : amend(offsetof(PacketHeader, pwd_choice), &choice);
    if (rc >= 0 && program.init_adopts) {
        // This process's own list, and nothing else of the caller's /proc.
        const int list = raw::openat(state.proc, "thread-self/children", O_RDONLY);
        rc = list < 0 ? list : amend(offsetof(PacketHeader, children), &list);
        if (rc >= 0 && program.join_pid >= 0) {
            rc = amend(offsetof(PacketHeader, proc), &state.proc);
            if (rc >= 0)
                rc = raw::fcntl(state.proc, F_SETFD, 0);
        }
    }
    const std::int32_t ruleset = state.ruleset;
    if (rc >= 0)
        rc = amend(offsetof(PacketHeader, ruleset), &ruleset);
    for (const int fd : {program.init_supervisor, program.init_group, program.init_lifeline,
                         program.init_helper, state.ruleset})
        if (rc >= 0 && fd >= 0)
            rc = raw::fcntl(fd, F_SETFD, 0);
    for (std::size_t i = 0; i < program.init_entrance_count && rc >= 0; ++i)
        rc = raw::fcntl(program.init_entrances[i], F_SETFD, 0);
    if (rc >= 0)
        rc = raw::fcntl(program.packet, F_SETFD, 0);
    if (rc >= 0)
        rc = raw::fcntl(program.channel, F_SETFD, 0);
    if (rc >= 0 && program.init_program >= 0)
        rc = raw::fcntl(program.init_program, F_SETFD, 0);
    for (int fd = 0; fd <= 2 && rc >= 0 && program.init_standard >= 0; ++fd)
        rc = raw::call(SYS_dup3, program.init_standard, fd, 0);
    if (rc >= 0) {
        const char* const no_environment[] = {nullptr};
        rc = raw::execveat(state.own[ChildState::own_init], "", program.init_argv, no_environment,
                           AT_EMPTY_PATH);
    }
    give_up(program.channel, Tell::late_failed, static_cast<int>(rc), starting);
}

[[noreturn]] void become_command(const ChildProgram& program, const ChildState& state) noexcept
{
    Command command = program.command;
    command.ruleset = state.ruleset;
    command.envp[program.pwd_slot] = program.pwd[state.pwd_choice];
    if (const int rc = prepare_command(command); rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
    if (const int rc = enter_landlock(command); rc < 0)
        give_up(program.channel, Tell::landlock_failed, rc, starting);
    const int first = choose_candidate(command);
    if (first < 0)
        give_up(program.channel, Tell::exec_failed, first);
    // Filters may forbid all but exec, so this is said before they are loaded.
    if (!tell(program.channel, Message{Tell::about_to_exec, 0, 0, 0}))
        raw::exit_group(1);
    if (const int rc = load_own_filters(command, program.channel); rc < 0)
        give_up(program.channel, Tell::filter_failed, rc, starting);
    give_up(program.channel, Tell::exec_failed, execute(command, first));
}

}  // namespace

namespace {

/// With nonsense for arguments, a call that exists and is not filtered says that it is nonsense.
bool answers(long rc) noexcept
{
    return rc == -EINVAL || rc == -EBADF || rc == -EFAULT || rc == -ENOENT;
}

/// What the kernel, or a filter around us, lacks is found by trying; only here does this process
/// have the rights that the calls ask for before they look at their arguments.
void probe_kernel(ChildState& state) noexcept
{
    state.has_openat2 = answers(raw::call(SYS_openat2, -1, "", nullptr, std::size_t{0}));
    state.has_mount_api =
        answers(raw::call(SYS_open_tree, -1, "", ~0U)) &&
        answers(raw::call(SYS_move_mount, -1, "", -1, "", ~0U)) &&
        answers(raw::call(SYS_mount_setattr, -1, "", ~0U, nullptr, std::size_t{0}));
}

/// What CLONE_CLEAR_SIGHAND does: no handler of the caller's may run in this process. All
/// signals are blocked until exec is near.
void reset_handlers() noexcept
{
    constexpr int last_signal = 64;
    constexpr unsigned long ignore = 1;
    for (int signal = 1; signal <= last_signal; ++signal) {
        unsigned long action[4]{};
        const long rc = raw::call(SYS_rt_sigaction, signal, nullptr, action, 8);
        if (rc == 0 && action[0] > ignore)
            raw::signal_default(signal);
    }
}

}  // namespace

namespace {

/// Its executable, memory and descriptors in /proc are root's from here on (prctl(2),
/// PR_SET_DUMPABLE): a process in the sandbox that is entered must not reach the host by them.
void hide_if_asked(const ChildProgram& program) noexcept
{
    if (!program.hide)
        return;
    if (const int rc = raw::prctl(PR_SET_DUMPABLE, 0); rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
    // What /proc/PID/cmdline shows is in this memory, which is a copy.
    volatile char* const words = program.words;
    for (std::size_t i = 0; i < program.words_size; ++i)
        words[i] = '\0';
}

}  // namespace

void run_child(const ChildProgram& program) noexcept
{
    raw::close(program.supervisor_end);
    if (!program.has_clone3)
        reset_handlers();
    if (const int rc = follow_supervisor(program.channel); rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
    if (const int rc = raw::prctl(PR_SET_NO_NEW_PRIVS, 1); rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
    hide_if_asked(program);
    ChildState state;
    probe_kernel(state);
    state.channel = program.channel;
    state.outer = program.outer;
    state.own[0] = program.channel;
    state.own[ChildState::own_init] = program.init;
    state.own[2] = program.packet;
    state.own[3] = program.init_supervisor;
    state.own[4] = program.host_terminal;
    state.own[5] = program.init_group;
    state.own[6] = program.init_lifeline;
    state.own[7] = program.init_helper;
    state.own[8] = program.init_standard;
    run_steps(program, state, program.early_steps, program.step_count);
    settle_parent_death(program);
    if (program.init >= 0)
        become_init(program, state);
    become_command(program, state);
}

long clone_child(const CloneRequest& request, void (*function)(void*), void* argument) noexcept
{
    const unsigned long exit_signal = request.to_our_parent ? 0 : SIGCHLD;
    const std::uint64_t flags =
        request.flags | CLONE_PIDFD | (request.to_our_parent ? std::uint64_t{CLONE_PARENT} : 0);
    if (request.has_clone3) {
        clone_args arguments{};
        arguments.flags = flags;
        arguments.pidfd = reinterpret_cast<std::uint64_t>(request.pidfd);
        arguments.exit_signal = exit_signal;
        arguments.stack = reinterpret_cast<std::uint64_t>(request.stack);
        arguments.stack_size = request.stack_size;
        return raw::clone3(&arguments, function, argument);
    }
    void* const top =
        request.stack == nullptr ? nullptr : static_cast<char*>(request.stack) + request.stack_size;
    return raw::clone(static_cast<unsigned long>(flags) | exit_signal, top, request.pidfd, function,
                      argument);
}

void run_child_entry(void* program) noexcept
{
    run_child(*static_cast<const ChildProgram*>(program));
}

void run_joiner_entry(void* program) noexcept
{
    run_joiner(*static_cast<const ChildProgram*>(program));
}

namespace {

/// One more process on the way; this one ends.
[[noreturn]] void hand_over(const ChildProgram& program, int hop, std::uint64_t flags,
                            void (*function)(void*)) noexcept
{
    int pidfd = -1;
    const CloneRequest request{flags, nullptr, 0, &pidfd, program.has_clone3, true};
    const long rc = clone_child(request, function, const_cast<ChildProgram*>(&program));
    if (rc < 0)
        give_up(program.channel, Tell::step_failed, static_cast<int>(rc), cloning);
    // As the supervisor numbers it too, unless this process has gone into another pid namespace.
    const int number = program.join_pid < 0 ? static_cast<int>(rc) : 0;
    const long sent =
        tell_with_descriptor(program.channel, Message{Tell::moved, hop, number, 0}, pidfd);
    if (sent < 0) {
        // The supervisor does not know of it, so nobody else would end it.
        raw::pidfd_send_signal(pidfd, SIGKILL);
        tell(program.channel, Message{Tell::step_failed, static_cast<int>(-sent), cloning,
                                      static_cast<std::uint32_t>(number)});
        raw::exit_group(1);
    }
    raw::exit_group(0);
}

/// In the joined pid namespace: a new one below it takes a process that is in there already.
void run_second_hop(void* argument) noexcept
{
    const auto& program = *static_cast<const ChildProgram*>(argument);
    raw::prctl(PR_SET_PDEATHSIG, SIGKILL);
    hand_over(program, 2, program.clone_flags, run_child_entry);
}

}  // namespace

void run_joiner(const ChildProgram& program) noexcept
{
    if (const int rc = raw::prctl(PR_SET_PDEATHSIG, SIGKILL); rc < 0)
        give_up(program.channel, Tell::late_failed, rc, starting);
    hide_if_asked(program);
    ChildState state;
    state.channel = program.channel;
    run_steps(program, state, 0, program.first_steps);
    // The pid namespace may belong to a user namespace that this process has rights in now, but not
    // when it has joined the other one.
    const bool joined_pid =
        program.join_pid >= 0 && raw::setns(program.join_pid, CLONE_NEWPID) == 0;
    if (program.join_user >= 0)
        if (const int rc = raw::setns(program.join_user, CLONE_NEWUSER); rc < 0)
            give_up(program.channel, Tell::step_failed, rc, joining_user);
    if (program.join_pid >= 0 && !joined_pid)
        if (const int rc = raw::setns(program.join_pid, CLONE_NEWPID); rc < 0)
            give_up(program.channel, Tell::step_failed, rc, joining_pid);
    // Whoever sees a process by its number can read what is about its namespaces in /proc, dumpable
    // or not: nothing of the host may be left when it gets that number.
    run_steps(program, state, program.first_steps, program.early_steps);
    ChildProgram rest = program;
    rest.outer = {raw::getuid(), raw::getgid()};
    if (program.join_pid >= 0 && program.own_pid)
        hand_over(rest, 1, 0, run_second_hop);
    // Then this process is the one already.
    if (is_the_joiner(program))
        run_child(rest);
    hand_over(rest, 1, program.clone_flags, run_child_entry);
}

}  // namespace nsbox::runtime
