#include "runtime/launch.hpp"

#include "net/name_files.hpp"
#include "runtime/channel.hpp"
#include "runtime/child.hpp"
#include "runtime/clear_up.hpp"
#include "runtime/describe.hpp"
#include "runtime/init_image.hpp"
#include "runtime/map_helper.hpp"
#include "runtime/plan_operations.hpp"
#include "runtime/status.hpp"
#include "sys/mount_flags.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <linux/sched.h>
#include <memory>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

/// As user/guest.hpp has it.
constexpr const char* user_name_server = "10.0.2.3";
constexpr std::size_t stack_size = std::size_t{1} << 20;

/// The child's stack while it shares this process's memory; its lowest page faults.
class Stack {
public:
    static Result<Stack> make()
    {
        void* const memory = ::mmap(nullptr, stack_size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return fail("mmap", errno, "the child's stack");
        return Stack{memory};
    }
    Stack(Stack&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    Stack& operator=(Stack&&) = delete;
    ~Stack()
    {
        if (memory_ != nullptr)
            ::munmap(memory_, stack_size);
    }
    void* get() const noexcept { return memory_; }

private:
    explicit Stack(void* memory) noexcept : memory_(memory) {}
    void* memory_;
};

/// All signals of this thread, held back while the child may run on its memory: a handler of
/// the caller's must not run there.
class SignalsBlocked {
public:
    SignalsBlocked()
    {
        const std::uint64_t all = ~std::uint64_t{0};
        raw::sigprocmask(SIG_SETMASK, &all, &old_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { raw::sigprocmask(SIG_SETMASK, &old_, nullptr); }

private:
    std::uint64_t old_ = 0;
};

/// A child that is killed and reaped unless it is released.
class Child {
public:
    Child() = default;
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() { end(); }

    /// Takes over another process; what was held before has handed over and ends by itself.
    void follow(Fd pidfd)
    {
        reap();
        pidfd_ = std::move(pidfd);
    }
    void end()
    {
        if (!pidfd_)
            return;
        raw::pidfd_send_signal(pidfd_.get(), SIGKILL);
        reap();
    }
    siginfo_t reap()
    {
        siginfo_t info{};
        if (!pidfd_)
            return info;
        while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | __WALL) < 0 &&
               errno == EINTR) {
        }
        pidfd_.reset();
        return info;
    }
    Fd release() { return std::move(pidfd_); }

private:
    Fd pidfd_;
};

/// Whether a user can get at a source without the rights that root loses in a user namespace: all
/// folders above have to be searchable by their mode bits.
bool reachable_without_privilege(const EarlyTree& early, sys::Ids ids)
{
    const std::string name =
        early.fd >= 0 ? "/proc/self/fd/" + std::to_string(early.fd) : std::string{early.source};
    const std::unique_ptr<char, void (*)(void*)> real{::realpath(name.c_str(), nullptr), std::free};
    if (real == nullptr)
        return true;
    std::string path{real.get()};
    for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        struct ::stat status;
        if (raw::fstatat(AT_FDCWD, path.substr(0, at).c_str(), &status, 0) < 0)
            return true;
        const unsigned search = status.st_uid == ids.uid   ? S_IXUSR
                                : status.st_gid == ids.gid ? S_IXGRP
                                                           : S_IXOTH;
        if ((status.st_mode & search) == 0)
            return false;
    }
    return true;
}

/// One launch from beginning to end.
class Launch {
public:
    Launch(Plan& plan, const Watch& watch, const Deadline& deadline,
           std::unique_ptr<LimitGroups> limits, std::unique_ptr<net::HelperClient> network)
        : plan_(plan), watch_(watch), deadline_(deadline), network_(std::move(network)),
          limits_(std::move(limits))
    {
        notes_ = plan_.notes;
    }

    Result<Running> run()
    {
        // First: it gets ready at the same time.
        if (plan_.network && !plan_.keeps_network)
            network_ = TRY(net::HelperClient::start(
                *plan_.network, plan_.ports, [](const std::string& name, int folder) {
                    return start_clear_up({name, folder, -1, false});
                }));
        if (network_)
            TRY(make_name_files());
        TRY(open_channel());
        TRY(open_early_trees());
        TRY(lock_upper_folders());
        // A child with a copy of the memory would not see what is read later.
        if (plan_.seccomp >= 0 && !plan_.share_memory)
            TRY(read_filter());
        TRY(make_logged_filters());
        TRY(open_host_terminal());
        TRY(make_limits());
        prepare_group();
        TRY(prepare_init());
        fill_program();
        stack_.emplace(TRY(Stack::make()));
        TRY(clone());
        // Beside the set-up, which takes longer.
        const bool has_group = group_ && group_->make(plan_.die_with_parent);
        if (plan_.needs_supervisor)
            TRY(rendezvous());
        if (!plan_.group_name.empty()) {
            has_group_ = has_group;
            // Not before the word that the child waits for first.
            if (!plan_.maps.any() || maps_written_)
                tell_about_group(has_group);
        }
        TRY(await_exec());
        return hand_over();
    }

    /// When init is dead, or has said that the command is in no group.
    void clear_up()
    {
        if (group_)
            group_->remove();
        group_.reset();
    }

    /// What is looked after from now on.
    Running hand_over()
    {
        Running running;
        running.pid = pid_;
        running.pidfd = child_.release();
        if (plan_.needs_init)
            running.channel = std::move(ours_);
        running.command = std::move(command_);
        running.command_pid = plan_.serves        ? -1
                              : !plan_.needs_init ? pid_
                              : running.command   ? pid_of(running.command.get())
                                                  : -1;
        running.terminal = std::move(terminal_);
        running.directory = std::move(directory_);
        running.terminals = std::move(terminals_);
        running.ends_together = plan_.ends_with_command;
        running.subreaper = plan_.subreaper;
        running.signals = std::move(signals_);
        correct_user_namespace();
        running.report = report_;
        running.locks = std::move(locks_);
        running.notes = std::move(notes_);
        running.joined = plan_.join_pid >= 0;
        if (network_)
            network_->follow(running.pidfd);
        running.network = std::move(network_);
        running.denials = std::move(denials_);
        running.ends_with_network = plan_.ends_with_network;
        if (in_group_)
            running.group = std::move(group_);
        else
            clear_up();
        if (limits_)
            limits_->close_entrances();
        running.limits = std::move(limits_);
        return running;
    }

    void give_up()
    {
        hear_of_moves();
        child_.end();
        end_unheld();
        clear_up();
        if (limits_)
            limits_->remove();
    }

    /// Where the start failed: for want of memory?
    bool was_starved() const { return limits_ && limits_->oom_kills().value_or(0) > 0; }

private:
    /// The child may have entered another user namespace since it reported.
    void correct_user_namespace()
    {
        const bool changed =
            std::any_of(plan_.steps.begin(), plan_.steps.end(), [](const ChildStep& step) {
                return std::holds_alternative<ns::NewUserNamespace>(step) ||
                       std::holds_alternative<ns::NewMappedUserNamespace>(step) ||
                       std::holds_alternative<ns::JoinUserNamespace>(step);
            });
        std::uint64_t& user = report_.inodes[namespace_count - 1];
        if (!changed || user == 0)
            return;
        struct ::stat status;
        const std::string path = "/proc/" + std::to_string(pid_) + "/ns/user";
        user = raw::fstatat(AT_FDCWD, path.c_str(), &status, 0) == 0 ? status.st_ino : 0;
    }

    bool joins() const
    {
        return plan_.join_user >= 0 || plan_.join_pid >= 0 || plan_.first_steps > 0;
    }

    Result<> open_channel()
    {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
            return fail("socketpair", errno);
        ours_ = Fd{ends[0]};
        theirs_ = Fd{ends[1]};
        return {};
    }

    Result<> make_name_files()
    {
        for (const std::size_t number : plan_.name_steps) {
            auto& step = std::get<mount::BindContents>(plan_.steps[number]);
            const bool is_hosts = std::strcmp(step.target, "/etc/hosts") == 0;
            const std::string text =
                is_hosts       ? net::hosts_for(hostname())
                : step.is_late ? std::string{}
                               : net::resolv_conf_for(network_->resolv_conf(), user_name_server);
            Fd file = TRY(make_text_file(text));
            step.fd = file.get();
            if (step.is_late)
                set_late_file(file.get());
            name_files_.push_back(std::move(file));
        }
        return network_->is_ready() ? fill_late_file() : Result<>{};
    }

    void set_late_file(int file)
    {
        late_file_ = file;
        for (ChildStep& step : plan_.steps)
            if (auto* const fill = std::get_if<mount::FillContents>(&step))
                fill->fd = file;
    }

    /// Before the child reads it.
    Result<> fill_late_file() const
    {
        if (late_file_ < 0)
            return {};
        const std::string text =
            net::resolv_conf_for(network_->resolv_conf(), network_->link().name_server);
        if (::pwrite(late_file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
            return fail("Can't write", errno, "/etc/resolv.conf");
        return {};
    }

    std::string hostname() const
    {
        for (const ChildStep& step : plan_.steps)
            if (const auto* set = std::get_if<SetHostname>(&step))
                return set->name;
        char name[HOST_NAME_MAX + 1] = {};
        ::gethostname(name, sizeof name - 1);
        return name;
    }

    /// Sources that root can reach now but not from inside its user namespace.
    Result<> open_early_trees()
    {
        for (const EarlyTree& early : plan_.early_trees) {
            // A tree that is cloned in the child is locked there, so this is the exception.
            if (reachable_without_privilege(early, plan_.set_up))
                continue;
            constexpr unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
            Fd tree{early.fd >= 0 ? raw::open_tree(early.fd, "", flags | AT_EMPTY_PATH)
                                  : raw::open_tree(AT_FDCWD, early.source, flags)};
            if (!tree)
                continue;  // The child tries in its turn and reports what it finds.
            // Cloned here the mounts are peers of the host's: what is mounted in the sandbox
            // must not appear there.
            const int rc =
                raw::mount_setattr(tree.get(), AT_RECURSIVE, early.attributes, sys::ms_slave);
            if (rc < 0)
                return fail("Can't bind mount", -rc, early.source);
            set_detached(plan_.steps[early.step], tree.get());
            early_.push_back(std::move(tree));
        }
        return {};
    }

    /// The kernel leaves open what happens when two overlays write to one upper folder.
    Result<> lock_upper_folders()
    {
        for (const ChildStep& step : plan_.steps) {
            const auto* overlay = std::get_if<mount::MountOverlay>(&step);
            if (overlay == nullptr || overlay->upper == nullptr)
                continue;
            Fd upper{raw::openat(AT_FDCWD, overlay->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
            // One that cannot be opened is the child's to report; not every file system locks.
            if (upper && ::flock(upper.get(), LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
                return refuse("Can't make overlay mount on", overlay->target,
                              std::string{"the upper folder "} + overlay->upper +
                                  " is in use by another sandbox",
                              "give each sandbox an upper folder of its own");
            if (!upper)
                continue;
            // Never init's: a command that can trace it would have a folder of the host's.
            locks_.push_back(std::move(upper));
        }
        return {};
    }

    static void set_detached(ChildStep& step, int tree)
    {
        if (auto* bind = std::get_if<mount::BindTree>(&step))
            bind->detached = tree;
        else if (auto* open_file = std::get_if<mount::BindOpenFile>(&step))
            open_file->detached = tree;
    }

    /// For a sandbox that has no devpts of its own.
    Result<> open_host_terminal()
    {
        if (!plan_.terminal || plan_.own_terminals)
            return {};
        Fd master{raw::openat(AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)};
        const int unlocked = 0;
        // The sandbox may have one nevertheless; else the child says what is missing.
        if (!master || raw::call(SYS_ioctl, master.get(), TIOCSPTLCK, &unlocked) < 0)
            return {};
        for (ChildStep& step : plan_.steps)
            if (auto* const take = std::get_if<TakeTerminal>(&step))
                take->host_master = master.get();
        plan_.host_terminal = std::move(master);
        return {};
    }

    Result<> make_limits()
    {
        if (limits_) {
            TRY(limits_->make(plan_.die_with_parent, plan_.own_pid || plan_.subreaper));
            plan_.entrances = limits_->entrances();
        }
        for (ChildStep& step : plan_.steps)
            if (auto* const enter = std::get_if<EnterGroups>(&step))
                *enter = {plan_.entrances.data(), plan_.entrances.size()};
        return {};
    }

    /// Where no group can be had there is none, and nothing else is different.
    void prepare_group()
    {
        if (!plan_.group_name.empty() && plan_.has_clone3)
            group_ =
                Group::prepare(plan_.group_name, limits_ ? limits_->unified_path() : std::string{});
        if (!group_) {
            plan_.group_name.clear();
            return;
        }
        plan_.group = group_->folder();
        plan_.lifeline = group_->lifeline();
    }

    /// Init waits for this word before it starts the command.
    void tell_about_group(bool is_there)
    {
        const char word = is_there ? 1 : 0;
        // One that is dead is heard of later.
        while (::send(ours_.get(), &word, 1, MSG_NOSIGNAL) < 0 && errno == EINTR) {
        }
    }

    /// The kernel's signal of a parent's death is about the thread that started the child. Where
    /// that may be another than the main thread, and where init has more to do than to end, it
    /// looks at a pidfd of this process.
    Result<> open_supervisor()
    {
        if (!plan_.die_with_parent || (!plan_.subreaper && ::gettid() == ::getpid()))
            return {};
        plan_.supervisor = Fd{raw::pidfd_open(::getpid())};
        if (!plan_.supervisor)
            return fail("pidfd_open", -plan_.supervisor.error(), "this process");
        return {};
    }

    /// Init lives on beside this process's own use of its standard descriptors, and ends everything when
    /// the network's helper does: nobody else is sure to look.
    Result<> open_for_serving()
    {
        if (!plan_.serves)
            return {};
        if (network_ && plan_.ends_with_network)
            plan_.helper = network_->process();
        plan_.standard = Fd{raw::openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC)};
        if (!plan_.standard)
            plan_.standard = TRY(make_text_file({}));
        return {};
    }

    Result<> prepare_init()
    {
        if (plan_.executes_itself)
            plan_.program = TRY(make_own_image());
        if (!plan_.needs_init && !plan_.through_init)
            return {};
        TRY(open_supervisor());
        TRY(open_for_serving());
        init_ = TRY(make_init_image());
        packet_ = TRY(make_packet());
        TRY(fill_packet(plan_, theirs_.get(), packet_.get()));
        std::size_t offset = lock_offset(plan_);
        for (const std::size_t step : plan_.lock_steps) {
            auto& lock = std::get<LockFile>(plan_.steps[step]);
            lock.packet = packet_.get();
            lock.packet_offset = offset;
            offset += sizeof(std::int32_t);
        }
        packet_number_ = std::to_string(packet_.get());
        init_argv_[0] = "init";
        init_argv_[1] = packet_number_.c_str();
        return {};
    }

    void fill_program()
    {
        fill_filters();
        ChildProgram& p = program_;
        p.steps = plan_.steps.data();
        p.step_count = plan_.steps.size();
        p.channel = theirs_.get();
        p.supervisor_end = ours_.get();
        p.has_clone3 = plan_.has_clone3;
        p.command.candidates = plan_.candidates.data();
        p.command.candidate_count = plan_.candidates.size();
        p.command.argv = plan_.argv.data();
        p.command.envp = plan_.envp.data();
        p.command.shell_argv = plan_.shell_argv.data();
        p.command.program = plan_.program.get();
        p.command.ambient = plan_.ambient;
        p.command.die_with_parent = plan_.die_with_parent || plan_.dies_with_starter;
        p.command.terminal = plan_.terminal;
        p.pwd_slot = static_cast<unsigned>(plan_.pwd_slot);
        for (std::size_t i = 0; i < pwd_choices; ++i)
            p.pwd[i] = plan_.pwd[i];
        p.init = init_.get();
        p.packet = packet_.get();
        p.init_argv = init_argv_;
        p.init_program = plan_.program.get();
        p.init_supervisor = plan_.supervisor.get();
        p.init_adopts = plan_.subreaper;
        p.init_group = plan_.group;
        p.init_lifeline = plan_.lifeline;
        p.init_helper = plan_.helper;
        if (plan_.init_enters_groups) {
            p.init_entrances = plan_.entrances.data();
            p.init_entrance_count = plan_.entrances.size();
        }
        p.init_standard = plan_.standard.get();
        p.host_terminal = plan_.host_terminal.get();
        p.hide = plan_.hide;
        p.first_steps = plan_.first_steps;
        p.early_steps = plan_.early_steps;
        if (plan_.hide)
            find_words();
        p.join_user = plan_.join_user;
        p.join_pid = plan_.join_pid;
        p.clone_flags = plan_.clone_flags & ~plan_.late_flags;
        p.own_pid = plan_.own_pid;
        if (joins() && plan_.join_pid >= 0 && !plan_.own_pid)
            p.clone_flags &= ~std::uint64_t{CLONE_NEWPID};
    }

    /// Where this program's arguments and environment are: proc_pid_stat(5), arg_start and env_end.
    void find_words()
    {
        const std::string stat = sys::read_file("/proc/self/stat");
        const std::size_t name = stat.rfind(')');
        std::vector<std::uintptr_t> fields;
        const char* at = name == std::string::npos ? "" : stat.c_str() + name + 1;
        for (; *at == ' '; at += std::strcspn(at + 1, " ") + 1)
            fields.push_back(std::strtoull(at + 1, nullptr, 10));
        constexpr std::size_t arg_start = 48 - 3;
        constexpr std::size_t env_end = 51 - 3;
        if (fields.size() <= env_end || fields[arg_start] >= fields[env_end])
            return;
        program_.words = reinterpret_cast<char*>(fields[arg_start]);
        program_.words_size = fields[env_end] - fields[arg_start];
    }

    /// Behind the filters' last change.
    Result<> make_logged_filters()
    {
        if (!plan_.denials)
            return {};
        // What lets two calls through must not be guessed. Filled at once: see getrandom(2) on sizes up to 256.
        if (raw::call(SYS_getrandom, plan_.pass.data(), sizeof plan_.pass, 0) !=
            static_cast<long>(sizeof plan_.pass))
            return fail("Can't log denials: getrandom", EIO);
        plan_.logged_filters = logged_filters(plan_.filters, plan_.pass);
        logged_.clear();
        for (const std::vector<std::uint8_t>& program : plan_.logged_filters)
            logged_.push_back({program.data(), program.size() / 8});
        program_.command.logged = logged_.data();
        program_.command.logged_count = logged_.size();
        std::copy(plan_.pass.begin(), plan_.pass.end(), program_.command.pass);
        return {};
    }

    void fill_filters()
    {
        filters_.clear();
        for (const std::vector<std::uint8_t>& program : plan_.filters)
            filters_.push_back({program.data(), program.size() / 8});
        program_.command.filters = filters_.data();
        program_.command.filter_count = filters_.size();
    }

    Result<> clone()
    {
        const SignalsBlocked blocked;
        int pidfd = -1;
        const bool share = plan_.share_memory;
        CloneRequest request{};
        request.flags = (joins() ? 0 : plan_.clone_flags & ~plan_.late_flags) |
                        (share ? std::uint64_t{CLONE_VM} : 0);
        if (plan_.has_clone3)
            request.flags |= CLONE_CLEAR_SIGHAND;
        request.stack = share ? stack_->get() : nullptr;
        request.stack_size = share ? stack_size : 0;
        request.pidfd = &pidfd;
        request.has_clone3 = plan_.has_clone3;
        const long pid =
            clone_child(request, joins() ? run_joiner_entry : run_child_entry, &program_);
        theirs_.reset();
        if (pid < 0)
            return tl::make_unexpected(describe_clone_failure(plan_, static_cast<int>(-pid)));
        pid_ = static_cast<pid_t>(pid);
        child_.follow(Fd{pidfd});
        return {};
    }

    /// How many processes on the way to a joined namespace are still to hand over.
    int moves_to_come() const
    {
        if (!joins() || is_the_joiner(program_))
            return 0;
        return (plan_.join_pid >= 0 && plan_.own_pid ? 2 : 1) - moves_;
    }

    /// What a process in a sandbox that is entered might send in place of the one that should: a
    /// process of somebody else.
    bool is_our_child(int pidfd) const
    {
        siginfo_t info{};
        int rc = -1;
        do
            rc = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info,
                          WEXITED | WNOHANG | WNOWAIT | __WALL);
        while (rc < 0 && errno == EINTR);
        return rc == 0;
    }
    static bool has_ended(int pidfd)
    {
        pollfd end{pidfd, POLLIN, 0};
        return ::poll(&end, 1, 0) == 1;
    }
    bool is_of_init(int pidfd) const
    {
        const pid_t pid = pid_of(pidfd);
        if (pid <= 0)
            return pidfd >= 0;  // It has ended, or is beyond reach.
        const std::string stat = sys::read_file("/proc/" + std::to_string(pid) + "/stat");
        const std::size_t name = stat.rfind(") ");
        if (name == std::string::npos)
            return true;  // It has ended meanwhile.
        const long parent =
            std::strtol(stat.c_str() + std::min(name + 4, stat.size()), nullptr, 10);
        // One that is just being reaped has no parent any more; nor has the system's process 1.
        return parent == pid_ || (parent == 0 && has_ended(pidfd));
    }

    /// Of a child whose pidfd has not arrived there is the number at least: it is not given to another process
    /// before it is reaped. Where processes of others have a say in the message, it is not believed.
    void note_unheld(Received& received)
    {
        const Message& message = received.message;
        if (plan_.join_pid >= 0)
            return;
        if (message.kind == Tell::step_failed && message.step == cloning && message.site != 0)
            unheld_ = static_cast<pid_t>(message.site);
        if (message.kind != Tell::moved || received.descriptor || message.step <= 0)
            return;
        received.descriptor = Fd{raw::pidfd_open(message.step)};
        if (!received.descriptor)
            unheld_ = message.step;
    }

    /// A process in a sandbox that is entered may send what is not so.
    bool may_be_true(const Received& received) const
    {
        if (received.message.kind == Tell::moved)
            return moves_to_come() > 0 && is_our_child(received.descriptor.get());
        return received.message.kind != Tell::command ||
               (!command_ && is_of_init(received.descriptor.get()));
    }

    void end_unheld()
    {
        if (unheld_ <= 0)
            return;
        ::kill(unheld_, SIGKILL);
        while (::waitpid(unheld_, nullptr, __WALL) < 0 && errno == EINTR) {
        }
    }

    /// What failed may have been faster than the word of it. Nobody else would reap it.
    void hear_of_moves()
    {
        constexpr int patience = 1000;
        for (int i = 0; i < 10 && ours_ && moves_to_come() > 0; ++i) {
            pollfd fd{ours_.get(), POLLIN, 0};
            if (::poll(&fd, 1, patience) <= 0)
                return;
            Received received = receive(ours_.get());
            if (received.end || received.error != 0)
                return;
            note_unheld(received);
            if (!may_be_true(received))
                return;
            if (received.message.kind == Tell::moved)
                follow_move(received);
        }
    }

    /// A later process on the way may be heard of before an earlier one, which only hands over.
    void follow_move(Received& received)
    {
        ++moves_;
        if (received.message.value < hop_) {
            Child passing;
            passing.follow(std::move(received.descriptor));
            passing.reap();
            return;
        }
        hop_ = received.message.value;
        pid_ = pid_of(received.descriptor.get());
        child_.follow(std::move(received.descriptor));
    }

    /// Where a descriptor goes that is only kept.
    Fd* place_of(Tell kind)
    {
        return kind == Tell::terminal    ? &terminal_
               : kind == Tell::directory ? &directory_
               : kind == Tell::terminals ? &terminals_
                                         : nullptr;
    }

    /// The next message that is not about a change of processes. The new process may be heard
    /// before the one that made it: good news waits until it is known who says it.
    Received next()
    {
        std::optional<Received> early;
        for (;;) {
            if (!wait_readable(ours_.get()))
                return Received{};
            Received received = receive(ours_.get());
            if (received.end || received.error != 0)
                return received;
            const bool moved = received.message.kind == Tell::moved;
            note_unheld(received);
            if (!may_be_true(received)) {
                received.error = EPROTO;
                return received;
            }
            if (received.message.kind == Tell::command) {
                command_ = std::move(received.descriptor);
                continue;
            }
            if (received.message.kind == Tell::network) {
                if (!network_ || !attach_network(received.descriptor))
                    return Received{};
                continue;
            }
            if (received.message.kind == Tell::maps) {
                if (!plan_.maps.any() || std::exchange(maps_wanted_, true))
                    received.error = EPROTO;
                else if (moves_to_come() > 0 || write_maps())
                    continue;
                return received.error != 0 ? std::move(received) : Received{};
            }
            if (received.message.kind == Tell::replaced) {
                notes_.push_back(describe_replaced(plan_, received.message));
                continue;
            }
            if (Fd* const place = place_of(received.message.kind)) {
                *place = std::move(received.descriptor);
                continue;
            }
            if (received.message.kind == Tell::listener) {
                if (!start_log(std::move(received.descriptor)))
                    return Received{};
                continue;
            }
            if (moved) {
                follow_move(received);
                if (maps_wanted_ && moves_to_come() == 0 && !write_maps())
                    return Received{};
                if (early && moves_to_come() == 0)
                    return std::move(*early);
                continue;
            }
            may_run_ = may_run_ || received.message.kind == Tell::about_to_exec;
            const bool good = received.message.kind == Tell::started ||
                              received.message.kind == Tell::about_to_exec;
            if (!good || moves_to_come() == 0)
                return received;
            early = std::move(received);
        }
    }

    /// What the child waits for before it goes on.
    bool write_maps()
    {
        Result<> done =
            plan_.maps.directly ? write_maps_directly(plan_.maps, pid_) : have_maps_written();
        if (done)
            done = send_word();
        if (!done)
            failure_ = std::move(done.error());
        maps_written_ = done.has_value();
        if (maps_written_ && has_group_)
            tell_about_group(*has_group_);
        return maps_written_;
    }

    /// Both at once. Which ones were started has to be waited for in any case.
    Result<> have_maps_written()
    {
        std::vector<MapHelper> helpers;
        Result<> started = start_map_helpers(plan_.maps, pid_, helpers);
        for (MapHelper& helper : helpers)
            while (started && helper.reads() && wait_readable(helper.output()))
                helper.read();
        if (!started || was_interrupted()) {
            for (MapHelper& helper : helpers)
                helper.stop();
            return started ? interrupted() : std::move(started);
        }
        for (MapHelper& helper : helpers)
            TRY(helper.finish());
        return plan_.maps.deny_setgroups ? write_groups_directly(plan_.maps, pid_) : Result<>{};
    }

    /// The command waits for answers from here on.
    bool start_log(Fd listener)
    {
        if (!plan_.denials || denials_ || !listener) {
            failure_ = refuse("Can't log denials", {}, "the set-up sent no listener").value();
            return false;
        }
        Result<std::unique_ptr<DenialLogger>> started =
            DenialLogger::start(std::move(listener), *plan_.denials, plan_.filters);
        if (started)
            denials_ = std::move(*started);
        else
            failure_ = std::move(started.error());
        return denials_ != nullptr;
    }

    bool attach_network(const Fd& network)
    {
        Result<> given = network_->attach(network);
        if (!given)
            failure_ = std::move(given.error());
        return given.has_value();
    }

    bool awaits_network() const { return network_ && !network_->is_ready(); }

    /// The helper's word, which the child waits for.
    void hear_network()
    {
        Result<> word = network_->hear();
        if (word)
            word = fill_late_file();
        if (word)
            word = send_word();
        if (!word)
            failure_ = std::move(word.error());
    }

    /// Waits until something can be read; false when what the caller watches ended the start.
    bool wait_readable(int fd)
    {
        const int signals = watch_.signals.value_or(-1);
        const int caller = watch_.caller.value_or(-1);
        while (interrupt_ == 0 && !failure_) {
            if (signals < 0 && caller < 0 && !deadline_ && !awaits_network())
                return true;
            const int network = awaits_network() ? network_->descriptor() : -1;
            pollfd fds[4] = {
                {fd, POLLIN, 0}, {signals, POLLIN, 0}, {caller, POLLIN, 0}, {network, POLLIN, 0}};
            const int ready = ::poll(fds, 4, time_left());
            if (ready == 0 && time_left() == 0) {
                is_late_ = true;
                return false;
            }
            if (ready <= 0)
                continue;
            // What the child says comes first: it may be that the command runs.
            if (fds[0].revents != 0)
                return true;
            if (fds[2].revents != 0)
                interrupt_ = SIGKILL;
            else if (fds[1].revents != 0)
                take_signal(signals);
            else if (fds[3].revents != 0)
                hear_network();
        }
        return false;
    }

    /// For poll(2). Once the command may run, the limit is not the start's any more.
    int time_left() const
    {
        constexpr long long most = 1000000;
        if (!deadline_ || may_run_)
            return -1;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            *deadline_ - std::chrono::steady_clock::now());
        return static_cast<int>(std::clamp<long long>(left.count(), 0, most));
    }

    void take_signal(int signals)
    {
        signalfd_siginfo info;
        if (raw::read(signals, &info, sizeof info) != sizeof info)
            return;
        const int number = static_cast<int>(info.ssi_signo);
        const bool ends_start =
            number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
        if (ends_start && !may_run_)
            interrupt_ = number;
        else
            signals_.push_back(number);
    }

    bool was_interrupted() const { return interrupt_ != 0 || is_late_ || failure_; }

    tl::unexpected<Error> interrupted()
    {
        if (failure_)
            return tl::make_unexpected(*failure_);
        Error error{0, "The start of the sandbox was interrupted", {}, {}, {}};
        error.signal = interrupt_;
        error.timed_out = is_late_;
        if (is_late_) {
            error.reason = "its time limit is over";
            return tl::make_unexpected(std::move(error));
        }
        error.reason = interrupt_ == SIGKILL
                           ? std::string{"the calling process has ended"}
                           : std::string{"by signal "} + ::sigabbrev_np(interrupt_);
        return tl::make_unexpected(std::move(error));
    }

    tl::unexpected<Error> failed(const Received& received)
    {
        if (was_interrupted())
            return interrupted();
        if (received.error != 0)
            return fail("Can't read from the sandbox", received.error);
        if (received.end)
            return ended_early();
        return tl::make_unexpected(describe_failure(plan_, received.message, received.text));
    }

    /// Nothing was said: something from outside ended the set-up.
    tl::unexpected<Error> ended_early()
    {
        const siginfo_t info = child_.reap();
        Error error{0, "The sandbox's set-up ended early", {}, {}, {}};
        if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) {
            error.signal = info.si_status;
            error.reason = std::string{"it was ended by signal "} + ::sigabbrev_np(info.si_status);
        }
        return tl::make_unexpected(std::move(error));
    }

    Result<> rendezvous()
    {
        const Received received = next();
        if (was_interrupted() || received.end || received.error != 0 ||
            received.message.kind != Tell::started)
            return failed(received);
        NamespaceReport& report = report_;
        report.message = received.message;
        std::memcpy(report.inodes, received.text.data(),
                    std::min(received.text.size(), sizeof report.inodes));
        if (plan_.info >= 0) {
            TRY(write_info(plan_.info, pid_, plan_.clone_flags, report));
            raw::close(plan_.info);  // Its reader may wait for the end.
        }
        if (plan_.status >= 0)
            TRY(write_status(plan_.status, pid_, plan_.clone_flags, report));
        if (plan_.user_map >= 0) {
            char word;
            if (!wait_readable(plan_.user_map))
                return interrupted();
            while (raw::read(plan_.user_map, &word, 1) == -EINTR) {
            }
        }
        if (plan_.seccomp >= 0 && plan_.share_memory)
            TRY(read_late_filter());
        return send_word();
    }

    Result<> send_word()
    {
        const char go = 1;
        while (::send(ours_.get(), &go, 1, MSG_NOSIGNAL) < 0) {
            if (errno == EPIPE || errno == ECONNRESET)
                return failed(next());
            if (errno != EINTR)
                return fail("Can't speak to the sandbox", errno);
        }
        return {};
    }

    Result<> read_filter();
    Result<> read_late_filter();

    /// Waits until the command is executed. Without init the channel's end says so.
    Result<> await_exec()
    {
        bool about_to = false;
        for (;;) {
            const Received received = next();
            if (was_interrupted())
                return interrupted();
            if (received.end && about_to)
                return {};
            if (received.end || received.error != 0)
                return failed(received);
            if (received.message.kind == Tell::about_to_exec)
                about_to = true;
            else if (received.message.kind == Tell::started) {
                in_group_ = received.message.site == 1;
                return {};
            } else {
                return failed(received);
            }
        }
    }

    Plan& plan_;
    const Watch& watch_;
    const Deadline& deadline_;
    bool is_late_ = false;
    int interrupt_ = 0;     ///< The signal that ended the start.
    bool may_run_ = false;  ///< The command may have been executed.
    std::vector<int> signals_;
    NamespaceReport report_{};
    std::unique_ptr<net::HelperClient> network_;
    std::optional<Error> failure_;
    Fd command_;
    Fd terminal_;
    Fd directory_;
    Fd terminals_;
    Fd ours_;
    Fd theirs_;
    Fd init_;
    Fd packet_;
    std::unique_ptr<LimitGroups> limits_;
    std::unique_ptr<Group> group_;
    bool in_group_ = false;  ///< The command is in it.
    std::vector<Fd> name_files_;
    int late_file_ = -1;  ///< One of them.
    std::vector<Fd> early_;
    std::vector<Fd> locks_;
    std::vector<std::string> notes_;
    std::vector<Filter> filters_;
    std::vector<Filter> logged_;
    std::unique_ptr<DenialLogger> denials_;
    std::string packet_number_;
    const char* init_argv_[3] = {};
    ChildProgram program_;
    pid_t pid_ = -1;
    bool maps_wanted_ = false;
    bool maps_written_ = false;
    std::optional<bool> has_group_;  ///< Once that is known.
    pid_t unheld_ = -1;              ///< A child that there is no pidfd of.
    int moves_ = 0;
    int hop_ = 0;
    std::optional<Stack> stack_;
    Child child_;  // Last: it is ended before the memory that it may share goes.
};

Result<> Launch::read_filter()
{
    std::vector<std::uint8_t> program;
    std::uint8_t buffer[8192];
    for (;;) {
        if (!wait_readable(plan_.seccomp))
            return interrupted();
        const long got = raw::read(plan_.seccomp, buffer, sizeof buffer);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail("Can't read seccomp data", static_cast<int>(-got));
        if (got == 0)
            break;
        program.insert(program.end(), buffer, buffer + got);
        if (program.size() > std::size_t{1} << 20)
            return fail("Can't read seccomp data", EFBIG);
    }
    TRY(check_filter(program));
    plan_.filters.push_back(std::move(program));
    return {};
}

/// The program of --seccomp is read when the child waits, as its writer may count on.
Result<> Launch::read_late_filter()
{
    TRY(read_filter());
    fill_filters();
    TRY(make_logged_filters());
    if (!plan_.needs_init)
        return {};
    return fill_packet(plan_, program_.channel, packet_.get());
}

}  // namespace

pid_t pid_of(int pidfd)
{
    const std::string path = "/proc/self/fdinfo/" + std::to_string(pidfd);
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    char text[1024];
    const long got = file ? raw::read(file.get(), text, sizeof text - 1) : -1;
    text[got > 0 ? got : 0] = '\0';
    const char* const at = std::strstr(text, "Pid:");
    return at != nullptr ? static_cast<pid_t>(std::strtol(at + 4, nullptr, 10)) : -1;
}

Result<Running> launch(Plan& plan, const Watch& watch, const Deadline& deadline,
                       std::unique_ptr<LimitGroups> limits,
                       std::unique_ptr<net::HelperClient> network)
{
    Launch launch{plan, watch, deadline, std::move(limits), std::move(network)};
    Result<Running> running = launch.run();
    if (running)
        return running;
    launch.give_up();
    if (launch.was_starved())
        running.error().hint = "the limit of memory is too small for the start";
    return running;
}

}  // namespace nsbox::runtime
