#pragma once

#include "nsbox/error.hpp"
#include "nsbox/spec.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace nsbox::runtime {
class Events;
enum class Purpose;
}  // namespace nsbox::runtime

#pragma GCC visibility push(default)

namespace nsbox {

/// The version of the library, "major.minor.patch".
const char* version() noexcept;

/// Why a command ended as it did.
enum class Reason {
    exited,          ///< By itself, or by a signal that is not ours.
    time_limit,      ///< Limits::time was over.
    cpu_limit,       ///< Limits::cpu was over.
    caller_ended,    ///< The process that Watch::caller names ended.
    killed,          ///< A second SIGTERM was to be forwarded.
    network_failed,  ///< The helper of the sandbox's network ended.
    out_of_memory,  ///< By SIGKILL, while the kernel killed for want of memory in this control group.
    sandbox_ended,  ///< The sandbox that it ran in was closed, or has ended.
};

/// What a sandbox used, as far as its processes were reaped. See getrusage(2).
struct Usage {
    std::chrono::microseconds user{0};
    std::chrono::microseconds system{0};
    std::uint64_t max_rss_kib = 0;  ///< Of the largest process.
};

/// How the command ended.
struct ExitStatus {
    int code = 0;    ///< Its exit status, if no signal ended it.
    int signal = 0;  ///< The signal that ended it, or 0.
    Reason reason = Reason::exited;
    Usage usage;
    /// How many processes the kernel has killed for want of memory: known with GroupLimits::memory, or where
    /// somebody listens to the events, which tell whose they may be.
    std::uint64_t oom_kills = 0;
    /// As a shell says it: the status, or 128 + signal; 124 where a limit ended it, as timeout(1);
    /// 125 where its network failed.
    int shell_code() const noexcept
    {
        if (reason == Reason::network_failed)
            return 125;
        if (reason == Reason::time_limit || reason == Reason::cpu_limit)
            return 124;
        return signal != 0 ? 128 + signal : code;
    }
};

/// What of the calling program start() and wait() look at besides the sandbox. All borrowed.
struct Watch {
    /// A signalfd(2), whose signals this thread has blocked: they are forwarded to the command,
    /// except those that a terminal sends to the whole process group, which have reached it
    /// already. The second SIGTERM kills the sandbox. After SIGTSTP this process stops itself too.
    /// While the sandbox is being started, SIGINT, SIGTERM, SIGHUP and SIGQUIT end that.
    std::optional<DescriptorNumber> signals;
    /// A pidfd (pidfd_open(2)): when its process ends, so does the sandbox.
    std::optional<DescriptorNumber> caller;
    /// With Spec::terminal: where what is typed comes from and what is printed goes to. A terminal
    /// is put into raw mode meanwhile. Without them the terminal() is the caller's to read.
    std::optional<DescriptorNumber> input;
    std::optional<DescriptorNumber> output;
};

/// Where a standard descriptor of a Command leads.
struct Stream {
    enum class Kind {
        inherit,     ///< Where this process's own leads.
        null,        ///< To /dev/null.
        pipe,        ///< To a pipe, whose other end the Process has.
        descriptor,  ///< To what is open as `number`, which stays open here. Borrowed by spawn().
        output,      ///< Of the error stream: to where the output leads.
    };
    Kind kind = Kind::inherit;
    DescriptorNumber number = -1;
};

/// One command of a sandbox that was made for many.
struct Command {
    std::vector<std::string> words;    ///< Empty: Spec::command. Found through the sandbox's PATH.
    std::optional<std::string> argv0;  ///< argv[0], if not the first word.
    std::optional<std::string> directory;  ///< Inside; default as Spec::directory says.
    std::vector<EnvironmentEdit>
        environment;  ///< On what Spec::environment has made of the caller's.
    Stream input{Stream::Kind::null, -1};
    Stream output;
    Stream error;
    /// A pseudo-terminal of the sandbox's own (pty(7)), in place of the three: it needs a Dev, and its
    /// master is Process::terminal().
    std::optional<WindowSize> terminal;
    /// Further descriptors: a number of this process's, and the number that it has in the command, 3 or
    /// more. At most 247. Borrowed by spawn().
    std::vector<std::pair<DescriptorNumber, DescriptorNumber>> descriptors;
    /// How long spawn() waits for the command to be executed: what runs in the sandbox already can hold it
    /// up, with SIGSTOP.
    std::chrono::milliseconds patience{30000};
};

/// A command that runs in a sandbox. Move-only. The destructor kills the command, if it still runs, and
/// closes what is open; it does not wait.
///
/// Thread-safety: one thread at a time, but for signal(), kill(), resize() and the accessors, which may be
/// used while another thread waits. It may outlive its Sandbox, whose end is the command's.
class Process {
public:
    Process(Process&&) noexcept;
    Process& operator=(Process&&) noexcept;
    ~Process();

    /// Waits until the command has ended: by itself, or with the sandbox, which is Reason::sandbox_ended.
    /// What it has started in the background may go on. Says the same when it is called again.
    Result<ExitStatus> wait();
    /// The same for at most so long: nothing where the command still runs then. 0 only looks.
    Result<std::optional<ExitStatus>> wait_for(std::chrono::milliseconds time);
    /// Readable (poll(2)) when wait() will not block. Owned here.
    int descriptor() const noexcept;

    /// Sends a signal to the command alone. ESRCH when it has ended.
    Result<> signal(int number) const;
    /// SIGKILL, and no error where the command has ended.
    Result<> kill() const;
    /// What the terminal's size is now; the command gets SIGWINCH. ENOTTY without a terminal.
    Result<> resize(WindowSize size) const;

    /// A pidfd of it (pidfd_open(2)), owned here; the command is no child of this process.
    int pidfd() const noexcept;
    /// As this process's pid namespace numbers it; -1 where it has no number there, or has ended.
    pid_t pid() const noexcept;

    // The ends of the pipes and the master of the terminal, owned here; -1 where there is none. They are
    // blocking, until the caller makes them other.
    int input() const noexcept;
    int output() const noexcept;
    int error() const noexcept;
    int terminal() const noexcept;
    /// So that the command reads the end of its input.
    void close_input();

private:
    friend class Sandbox;
    struct State;
    [[gnu::visibility("hidden")]] explicit Process(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

/// A sandbox and the command that it was made for, or one for many commands. Move-only. The destructor releases the
/// descriptors and leaves the sandbox running; use wait() first. Where background processes go on
/// after that, the child_pid() that stays with them is the caller's to reap.
///
/// Thread-safety: different objects may be used from different threads at once, start() too.
/// Needs Linux 5.10: clone3, pidfd_open (clone(2), pidfd_open(2)).
class Sandbox {
public:
    /// Builds the sandbox that `spec` describes and starts the command in it; returns when the
    /// command is being executed. On failure nothing is left behind. Blocks the calling thread;
    /// blocks signals in it meanwhile and restores them.
    /// The descriptors that `spec` and `watch` name are used and left open in the caller.
    static Result<Sandbox> start(const Spec& spec, const Watch& watch = {});

    /// Builds the sandbox that `spec` describes, for commands that spawn() starts in it one after the other
    /// or at once: they see each other's processes, files and loopback interface. Its init (process 1) ends
    /// with this object and with this process; so does everything in the sandbox.
    ///
    /// It needs a pid namespace of its own. What is about one command is refused: Spec::terminal, limits,
    /// name, denials, the descriptors for events and for a later start. A published
    /// PublishedPort::Kind::host_socket is not served, and changes of the host's /etc/resolv.conf are not
    /// followed, since nobody is in wait(). Blocks as start() does, and fails as it does.
    static Result<Sandbox> create(const Spec& spec);

    /// Starts a command; returns when it is being executed. Any number of times, from any number of threads
    /// at once. Each has a session of its own (setsid(2)), no descriptors but its standard ones and
    /// Command::descriptors, and is confined as `spec` said. On failure nothing of it is left.
    /// ENOENT and so on as execve(2) has them; ESRCH where the sandbox has ended; ETIMEDOUT.
    /// ENOTSUP for a sandbox of start().
    Result<Process> spawn(const Command& command) const;

    /// Ends everything in a sandbox of create(), and waits for that. What is called on it afterwards fails.
    /// The destructor does the same.
    void close();

    /// Ends every command of a sandbox of create(), and makes the sandbox anew as the same description says:
    /// what was written to file systems of its own is gone, those that hold the working directory and the changes
    /// of a temporary Overlay among them. The network stays as it is: its namespace with what was set
    /// there, the published ports and those of add_port(). So does what lies in folders of the host.
    ///
    /// Blocks as create() does. While it runs nothing else may be called on the sandbox; a Process of before may be
    /// used, and has ended. Where the new one cannot be made, the sandbox is closed. Where this cannot be done at
    /// all, nothing has changed: ESRCH where the sandbox has ended, ENOTSUP for one of start() and for a
    /// description that names descriptors (BindDescriptor, File, Data, those of Namespaces). Where the sandbox
    /// has a network and a user namespace of its own, a copy of this process's page tables is made
    /// (fork(2)), as create() makes none.
    Result<> reset();

    /// Writes a file below the working directory that `spec` said, in place of what is there, with the
    /// permissions `mode`; it appears whole. `path` is relative. What leads out of the directory or to
    /// another mount below it is refused (EXDEV), and so are symbolic links on the way (ELOOP). Missing
    /// folders are made. The owner is this process's user, who has to have a number in the sandbox
    /// (EOVERFLOW). For a sandbox of create(); any thread. openat2(2), Linux 5.6.
    Result<> write_file(const std::string& path, std::string_view content,
                        unsigned mode = 0644) const;
    /// Reads a plain file in the same way, of at most `most` bytes: EFBIG.
    Result<std::string> read_file(const std::string& path,
                                  std::size_t most = std::size_t{64} << 20) const;

    Sandbox(Sandbox&&) noexcept;
    Sandbox& operator=(Sandbox&&) noexcept;
    ~Sandbox();

    /// Waits until the command has ended, keeping the limits; background processes that it left may
    /// go on unless Spec::end_with_command forbids them: then it waits for their end too.
    /// Once only. Reports the end on spec.status_descriptor and spec.events_descriptor.
    Result<ExitStatus> wait();

    /// Ends everything in the sandbox, and waits for that; also after wait(). Where the command has
    /// a pid namespace of the caller's choosing or none, that is what init kept hold of.
    void kill();

    /// Sends a signal to the command. ESRCH when it has ended; ENOTSUP under an init, unless
    /// Spec::signals_command. Any thread may do this while another waits.
    Result<> signal(int number);

    /// The direct child of the caller that belongs to the sandbox: its init, or the command.
    pid_t child_pid() const noexcept;

    /// The command, as this process's pid namespace numbers it; -1 where that is not known.
    pid_t command_pid() const noexcept;

    /// The master of the sandbox's terminal, owned here; -1 without one.
    int terminal() const noexcept;

    /// The published ports of the sandbox's network, with those that the kernel chose, and of
    /// add_port(). Any thread may use these three while another waits.
    std::vector<PublishedPort> ports() const;
    /// Publishes one more port, which works when this returns; what it has become. EADDRINUSE,
    /// EACCES, EADDRNOTAVAIL as for bind(2); ENOTSUP without a network of that kind.
    Result<PublishedPort> add_port(const PublishedPort& port);
    /// Takes the port away that has the same place: the same kind, address and port of the host, or path,
    /// or, of a host_socket, port of the sandbox. That is free when this returns; connections that
    /// there are go on.
    Result<> remove_port(const PublishedPort& port);

    /// What is otherwise than it was asked for, where that was allowed: a sentence each.
    const std::vector<std::string>& notes() const noexcept;

    /// The descriptors that this object owns, for callers that close all others.
    std::vector<int> descriptors() const;

private:
    friend class Remote;
    struct State;
    struct Kept;
    [[gnu::visibility("hidden")]] Result<Kept> keep() const;
    [[gnu::visibility("hidden")]] static Result<std::unique_ptr<State>> begin(
        const Spec& spec, const Watch& watch, const runtime::Events& events,
        runtime::Purpose purpose, Kept kept);
    [[gnu::visibility("hidden")]] explicit Sandbox(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

/// What run() is to keep to.
struct RunOptions {
    std::string input;                         ///< What the command reads.
    std::chrono::milliseconds time{0};         ///< From the start on; 0: as long as it takes.
    std::size_t most = std::size_t{16} << 20;  ///< Bytes that are kept of each of the two streams.
};

/// What came of a command.
struct Outcome {
    ExitStatus status;  ///< Reason::time_limit where RunOptions::time was over.
    std::string output;
    std::string error;
    bool is_cut = false;  ///< There was more of a stream than RunOptions::most.
};

/// A sandbox for one command, whose output is read meanwhile; both have ended when this returns, with all
/// that the command has left in the background. What was written until a limit of time is in the
/// Outcome. Blocks; any number of threads at once. Command::input, output and error have no meaning here.
Result<Outcome> run(const Spec& spec, const Command& command, const RunOptions& options = {});

/// The same in a sandbox that is there already: what the command left in the background goes on, unless
/// the limit of time is over: then the sandbox is closed.
Result<Outcome> run(Sandbox& sandbox, const Command& command, const RunOptions& options = {});

/// Runs a program's text by an interpreter: `command.words` are its name and options, which the text's place
/// and the `arguments` are put behind. The text is a file that only this command has
/// (memfd_create(2)), /proc/self/fd/3: the sandbox needs a /proc.
Result<Outcome> run_script(const Spec& spec, const std::string& text, Command command,
                           const std::vector<std::string>& arguments = {},
                           const RunOptions& options = {});

/// Why this host does not let the caller have the namespaces and mounts that sandboxes are made of, found out by
/// trying; nothing where it does. See Landlock::only for what is to be had then.
std::optional<std::string> namespaces_refused();

}  // namespace nsbox

#pragma GCC visibility pop
