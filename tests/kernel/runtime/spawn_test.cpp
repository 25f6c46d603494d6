// Many commands in one sandbox.

#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/probes.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using std::chrono::milliseconds;

namespace {

Spec everyday()
{
    Spec spec;
    const Result<> done = complete(spec, Everyday{});
    INFO((done ? "" : done.error().message()));
    REQUIRE(done);
    return spec;
}

Sandbox created(const Spec& spec)
{
    Result<Sandbox> sandbox = Sandbox::create(spec);
    INFO((sandbox ? "" : sandbox.error().message()));
    REQUIRE(sandbox);
    return std::move(*sandbox);
}

/// What a command prints, or why it does not.
std::string said(Sandbox& sandbox, const Command& command, const RunOptions& options = {})
{
    const Result<Outcome> outcome = run(sandbox, command, options);
    if (!outcome)
        return "error: " + outcome.error().message();
    return outcome->output + outcome->error +
           (outcome->status.shell_code() == 0
                ? ""
                : "[" + std::to_string(outcome->status.shell_code()) + "]");
}

std::string error_of(const Result<Process>& process)
{
    return process ? "it started" : process.error().message();
}

std::string read_all(int fd)
{
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(got));
    return text;
}

}  // namespace

TEST_CASE("spawn: commands run one after the other in the same namespaces, each with its status")
{
    NEEDS("userns");
    for (const Spec& spec : {workshop(), everyday()}) {
        Sandbox sandbox = created(spec);
        CHECK(said(sandbox, shell("echo one > file; echo $$; exit 3")).find("[3]") !=
              std::string::npos);
        CHECK(said(sandbox, shell("cat file; ls -d /proc/1")) == "one\n/proc/1\n");
        const std::string network = said(sandbox, shell("readlink /proc/self/ns/net"));
        CHECK(network == said(sandbox, shell("readlink /proc/self/ns/net")));
        CHECK(network.find("net:[") == 0);
        Result<Process> killed = sandbox.spawn(shell("kill -TERM $$"));
        REQUIRE(killed);
        CHECK(outcome(killed->wait()) == "signal 15");
        CHECK(outcome(killed->wait()) == "signal 15");
        CHECK(killed->wait()->reason == Reason::exited);
    }
}

TEST_CASE("spawn: words of any size arrive, in a message or in a file beside it")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    for (std::size_t size = 10000; size < 18000; size += size < 15500 ? 211 : 1013) {
        Command command = shell("printf %s \"$LONG\" | wc -c");
        command.environment.push_back({EnvironmentEdit::Kind::set, "LONG", std::string(size, 'x')});
        CHECK(said(sandbox, command) == std::to_string(size) + "\n");
        // And nothing is left of the one before.
        CHECK(said(sandbox, shell("echo \"<$LONG>\"")) == "<>\n");
    }
}

TEST_CASE("spawn: commands at once see and signal each other")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    Command sleeper = shell("echo $$; exec sleep 1000");
    sleeper.output = {Stream::Kind::pipe, -1};
    Result<Process> first = sandbox.spawn(sleeper);
    REQUIRE(first);
    char text[32] = {};
    REQUIRE(::read(first->output(), text, sizeof text - 1) > 1);
    const std::string pid = std::to_string(std::atoi(text));
    CHECK(first->pid() > 0);
    const Result<std::optional<ExitStatus>> early = first->wait_for(milliseconds{0});
    REQUIRE(early);
    CHECK(!early->has_value());
    CHECK(said(sandbox, shell("kill -USR1 " + pid)).empty());
    CHECK(outcome(first->wait()) == "signal " + std::to_string(SIGUSR1));
    pollfd end{first->descriptor(), POLLIN, 0};
    CHECK(::poll(&end, 1, 0) == 1);
    CHECK(first->signal(SIGTERM).error().err == ESRCH);
    CHECK(first->kill().has_value());
    CHECK(first->pid() == -1);
}

TEST_CASE("spawn: standard streams lead where they are told to")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    const auto file = memory_file();
    Command command = shell("cat; echo out; echo err >&2");
    command.input = {Stream::Kind::pipe, -1};
    command.output = {Stream::Kind::descriptor, file.get()};
    command.error = {Stream::Kind::output, -1};
    Result<Process> process = sandbox.spawn(command);
    INFO(error_of(process));
    REQUIRE(process);
    CHECK(process->output() == -1);
    REQUIRE(::write(process->input(), "in\n", 3) == 3);
    process->close_input();
    CHECK(process->input() == -1);
    CHECK(outcome(process->wait()) == "exit 0");
    CHECK(contents_of(file.get()) == "in\nout\nerr\n");

    command = shell("places=$(readlink /proc/$$/fd/0 /proc/$$/fd/1); echo \"$places\" >&2");
    command.output = {Stream::Kind::null, -1};
    command.error = {Stream::Kind::pipe, -1};
    process = sandbox.spawn(command);
    REQUIRE(process);
    CHECK(read_all(process->error()) == "/dev/null\n/dev/null\n");

    const CapturedOutput captured;
    process = sandbox.spawn(shell("echo inherited"));
    REQUIRE(process);
    CHECK(outcome(process->wait()) == "exit 0");
    CHECK(captured.text() == "inherited\n");

    command.output = {Stream::Kind::output, -1};
    CHECK(error_of(sandbox.spawn(command)).find("only its error stream") != std::string::npos);
    command.output = {Stream::Kind::descriptor, 987};
    CHECK(error_of(sandbox.spawn(command)).find("not open") != std::string::npos);
}

TEST_CASE("spawn: a command has the descriptors that it is given and no others")
{
    NEEDS("userns");
    for (const Spec& spec : {workshop(), everyday()}) {
        Sandbox sandbox = created(spec);
        const auto file = memory_file();
        // One that nobody keeps from the command but us.
        const int stray = ::dup(file.get());
        REQUIRE(stray >= 0);
        const auto other = sandbox.spawn(shell("sleep 1000"));
        REQUIRE(other);
        const std::string list = "ls /proc/self/fd | tr '\\n' ' '";
        // ls has the folder open too.
        CHECK(said(sandbox, shell(list)) == "0 1 2 3 ");
        Command command = shell("echo given >&7; " + list);
        command.descriptors = {{file.get(), 7}, {stray, 9}};
        CHECK(said(sandbox, command) == "0 1 2 3 7 9 ");
        CHECK(contents_of(file.get()) == "given\n");
        // They may change places.
        command.descriptors = {{file.get(), stray}, {stray, file.get() < 3 ? 3 : file.get()}};
        CHECK(said(sandbox, command).find("error") == std::string::npos);
        command.descriptors = {{file.get(), 2}};
        CHECK(said(sandbox, command).find("3 or more") != std::string::npos);
        command.descriptors = {{file.get(), 5}, {file.get(), 5}};
        CHECK(said(sandbox, command).find("twice") != std::string::npos);
        ::close(stray);
    }
}

TEST_CASE("spawn: words, directory and environment are the command's own")
{
    NEEDS("userns");
    Spec spec = workshop();
    spec.environment = {{EnvironmentEdit::Kind::clear, {}, {}},
                        {EnvironmentEdit::Kind::set, "PATH", "/usr/bin:/bin"},
                        {EnvironmentEdit::Kind::set, "KEPT", "kept"}};
    spec.command = {"sh", "-c", "echo default"};
    Sandbox sandbox = created(spec);
    CHECK(said(sandbox, Command{}) == "default\n");
    Command command;
    command.words = {"env"};
    command.environment = {{EnvironmentEdit::Kind::set, "OWN", "own"}};
    std::string all = said(sandbox, command);
    CHECK(all == "PATH=/usr/bin:/bin\nKEPT=kept\nOWN=own\nPWD=/tmp\n");
    command = shell("pwd; echo $PWD; echo \"$0\"");
    command.directory = "/usr/bin";
    command.argv0 = "named";
    CHECK(said(sandbox, command) == "/usr/bin\n/usr/bin\nnamed\n");
    CHECK(said(sandbox, shell("pwd")) == "/tmp\n");
}

TEST_CASE("spawn: what cannot be started is an error, and the sandbox goes on")
{
    NEEDS("userns");
    const std::string before = open_descriptors();
    {
        Sandbox sandbox = created(workshop());
        const std::string with = open_descriptors();
        CHECK(error_of(sandbox.spawn(Command{})) == "No command: there is nothing to execute");
        Command command;
        command.words = {"/nowhere/program"};
        Result<Process> process = sandbox.spawn(command);
        CHECK(error_of(process) == "execvp /nowhere/program: No such file or directory");
        CHECK(process.error().phase == Phase::execute);
        command.words = {"no-such-program"};
        CHECK(sandbox.spawn(command).error().err == ENOENT);
        command.words = {"/etc/passwd"};
        CHECK(sandbox.spawn(command).error().err == EACCES);
        command = shell("true");
        command.directory = "/nowhere";
        CHECK(error_of(sandbox.spawn(command)) ==
              "Can't chdir to /nowhere: No such file or directory");
        CHECK(difference(with, open_descriptors()).empty());
        CHECK(said(sandbox, shell("ls /proc | grep -c '^[0-9]'")) == "4\n");
    }
    CHECK(difference(before, open_descriptors()).empty());
}

TEST_CASE("spawn: a command is confined as the one command of a sandbox is")
{
    NEEDS("userns");
    std::vector<Variant> all;
    all.push_back({"everyday", everyday()});
    all.push_back({"full", workshop()});
    all.push_back({"capabilities", workshop()});
    all.back().spec.capabilities = {{CapabilityEdit::Kind::drop_all, 0},
                                    {CapabilityEdit::Kind::add, 0}};
    all.push_back({"two user namespaces", workshop()});
    all.back().spec.disable_user_namespaces = true;
    all.push_back({"uid 0", workshop()});
    all.back().spec.uid = all.back().spec.gid = 0;
    const std::string look = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|Seccomp_filters|"
                             "SigBlk|SigIgn|SigCgt):' /proc/self/status; umask; ulimit -a";
    for (Variant& variant : all) {
        INFO(variant.name);
        Sandbox sandbox = created(variant.spec);
        const std::string many = said(sandbox, shell(look));
        variant.spec.command = {"/bin/sh", "-c", look};
        const CapturedOutput captured;
        CHECK(outcome(Sandbox::start(variant.spec)) == "exit 0");
        CHECK(many == captured.text());
        CHECK(many.find("NoNewPrivs:\t1") != std::string::npos);
    }
}

TEST_CASE("spawn: a terminal of the command's own")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    Command command = shell("tty; stty size; read -r x; stty size; echo \"got $x\"");
    command.terminal = WindowSize{41, 133};
    Result<Process> process = sandbox.spawn(command);
    INFO(error_of(process));
    REQUIRE(process);
    REQUIRE(process->terminal() >= 0);
    std::string text;
    char buffer[256];
    const auto read_until = [&](const std::string& end) {
        for (int i = 0; i < 100 && text.find(end) == std::string::npos; ++i) {
            pollfd fd{process->terminal(), POLLIN, 0};
            if (::poll(&fd, 1, 10000) < 1)
                break;
            const ssize_t got = ::read(process->terminal(), buffer, sizeof buffer);
            if (got <= 0)
                break;
            text.append(buffer, static_cast<std::size_t>(got));
        }
    };
    read_until("41 133");
    CHECK(text.find("/dev/pts/0") != std::string::npos);
    CHECK(process->resize({10, 20}).has_value());
    REQUIRE(::write(process->terminal(), "typed\n", 6) == 6);
    read_until("got typed");
    CHECK(text.find("10 20") != std::string::npos);
    CHECK(outcome(process->wait()) == "exit 0");
    // Whoever hangs up ends what is in the terminal's session.
    Result<Process> waiting = sandbox.spawn([] {
        Command cat = shell("exec cat");
        cat.terminal = WindowSize{};
        return cat;
    }());
    REQUIRE(waiting);
    CHECK(waiting->signal(SIGWINCH).has_value());
    Result<Process> without = sandbox.spawn(shell("true"));
    REQUIRE(without);
    CHECK(without->resize({1, 1}).error().err == ENOTTY);
    Spec bare;
    bare.operations = {Bind{"/", "/", Access::read_only}};
    Sandbox no_dev = created(bare);
    CHECK(error_of(no_dev.spawn(command)).find("Can't open a pseudo-terminal") == 0);
}

TEST_CASE("spawn: closing ends everything, and what was said before stays said")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    Result<Process> done = sandbox.spawn(shell("exit 4"));
    Result<Process> running = sandbox.spawn(shell("sleep 1000 & exec sleep 1000"));
    REQUIRE(done);
    REQUIRE(running);
    pollfd end{done->descriptor(), POLLIN, 0};
    REQUIRE(::poll(&end, 1, 10000) == 1);
    const pid_t pid = running->pid();
    CHECK(is_alive(pid));
    sandbox.close();
    CHECK(!is_alive(pid));
    CHECK(!is_alive(sandbox.child_pid()));
    CHECK(outcome(done->wait()) == "exit 4");
    const Result<ExitStatus> status = running->wait();
    CHECK(outcome(status) == "signal 9");
    CHECK(status->reason == Reason::sandbox_ended);
    const Result<Process> late = sandbox.spawn(shell("true"));
    CHECK(late.error().err == ESRCH);
    CHECK(sandbox.write_file("x", "").error().err == ESRCH);
    sandbox.close();
    CHECK(children_left() == "0");
}

TEST_CASE("spawn: handles that go away take what they own with them")
{
    NEEDS("userns");
    const std::string before = open_descriptors();
    pid_t first = -1;
    pid_t second = -1;
    {
        Sandbox sandbox = created(workshop());
        Result<Process> kept = sandbox.spawn(shell("exec sleep 1000"));
        REQUIRE(kept);
        {
            const Result<Process> dropped = sandbox.spawn(shell("exec sleep 1000"));
            REQUIRE(dropped);
            first = dropped->pid();
        }
        CHECK(eventually([&] { return !is_alive(first); }));
        second = kept->pid();
        CHECK(is_alive(second));
        Sandbox moved = std::move(sandbox);
        CHECK(is_alive(second));
        *kept = std::move(*moved.spawn(shell("exec sleep 1000")));
        CHECK(eventually([&] { return !is_alive(second); }));
        second = kept->pid();
        CHECK(is_alive(second));
    }
    CHECK(!is_alive(second));
    CHECK(children_left() == "0");
    CHECK(difference(before, open_descriptors()).empty());
}

TEST_CASE("spawn: nothing about the host process is changed")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = host_state();
        {
            Result<Sandbox> sandbox = Sandbox::create(workshop());
            say("created", sandbox ? "yes" : sandbox.error().message());
            for (int i = 0; sandbox && i < 20; ++i)
                (void)nsbox::run(*sandbox, shell("echo $PPID"));
        }
        say("state", difference(before, host_state()));
        say("children", children_left());
    });
    REQUIRE(ended.well());
    CHECK(ended["created"] == "yes");
    CHECK(ended["state"].empty());
    CHECK(ended["children"] == "0");
}

TEST_CASE("spawn: a host that ignores SIGCHLD, or that has closed its standard descriptors")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        ::signal(SIGCHLD, SIG_IGN);
        for (const int fd : {0, 1, 2})
            ::close(fd);
        Result<Sandbox> sandbox = Sandbox::create(workshop());
        if (sandbox) {
            const Result<Outcome> outcome = nsbox::run(*sandbox, shell("echo hello; exit 6"));
            say("outcome", outcome ? outcome->output + std::to_string(outcome->status.code)
                                   : outcome.error().message());
            const Result<Outcome> fds =
                nsbox::run(*sandbox, shell("ls /proc/self/fd | tr '\\n' ' '"));
            say("descriptors", fds ? fds->output : fds.error().message());
        } else {
            say("outcome", sandbox.error().message());
        }
    });
    REQUIRE(ended.well());
    CHECK(ended["outcome"] == "hello\n6");
    CHECK(ended["descriptors"] == "0 1 2 3 ");
}

TEST_CASE("spawn: the sandbox ends when the process that made it is killed")
{
    NEEDS("userns");
    // The thread that made it may end before.
    for (const bool by_thread : {false, true}) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        const pid_t host = ::fork();
        if (host == 0) {
            std::optional<Sandbox> sandbox;
            std::optional<Process> process;
            const auto work = [&] {
                Result<Sandbox> made = Sandbox::create(workshop());
                Result<Process> started = made->spawn(shell("exec sleep 1000"));
                sandbox.emplace(std::move(*made));
                process.emplace(std::move(*started));
            };
            if (by_thread)
                std::thread{work}.join();
            else
                work();
            sleep_milliseconds(100);
            const pid_t pids[2] = {sandbox->child_pid(), process->pid()};
            (void)!::write(ends[1], pids, sizeof pids);
            ::pause();
        }
        pid_t pids[2] = {-1, -1};
        REQUIRE(::read(ends[0], pids, sizeof pids) == sizeof pids);
        CHECK(is_alive(pids[0]));
        CHECK(is_alive(pids[1]));
        ::kill(host, SIGKILL);
        ::waitpid(host, nullptr, 0);
        CHECK(eventually([&] { return !is_alive(pids[0]) && !is_alive(pids[1]); }));
        ::close(ends[0]);
        ::close(ends[1]);
    }
}

TEST_CASE("spawn: eight threads start commands in one sandbox at once")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    const std::string before = open_descriptors();
    constexpr int thread_count = 8;
    constexpr int starts = 40;
    std::mutex mutex;
    std::string wrong;
    std::vector<std::thread> threads;
    for (int number = 0; number < thread_count; ++number)
        threads.emplace_back([&, number] {
            for (int i = 0; i < starts; ++i) {
                const int code = (number * starts + i) % 250;
                const std::string want = std::to_string(code) + "\n[" + std::to_string(code) + "]";
                const std::string got = said(sandbox, shell("echo " + std::to_string(code) +
                                                            "; exit " + std::to_string(code)));
                const std::lock_guard lock{mutex};
                if (got != (code == 0 ? "0\n" : want))
                    wrong += got + " in place of " + want + "\n";
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong.empty());
    CHECK(difference(before, open_descriptors()).empty());
}

TEST_CASE("spawn: what is stopped in the sandbox cannot hold a caller up for ever")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    // Process 1 is spared the signals of its own sandbox; the caller may stop it.
    REQUIRE(::kill(sandbox.child_pid(), SIGSTOP) == 0);
    Command command = shell("touch /tmp/late");
    command.patience = milliseconds{100};
    CHECK(sandbox.spawn(command).error().err == ETIMEDOUT);
    REQUIRE(::kill(sandbox.child_pid(), SIGCONT) == 0);
    // What nobody waits for any more is killed when it starts.
    CHECK(said(sandbox, shell("echo on")) == "on\n");
}

TEST_CASE("spawn: a sandbox for many refuses what is about one command")
{
    std::vector<Variant> wrong(10, {"", workshop()});
    wrong[0].spec.terminal = WindowSize{};
    wrong[1].spec.limits.time = milliseconds{1};
    wrong[2].spec.name = "box";
    wrong[3].spec.denials = DenialLog{};
    wrong[4].spec.events_descriptor = 2;
    wrong[5].spec.block_descriptor = 0;
    wrong[6].spec.command_is_pid_1 = true;
    wrong[7].spec.namespaces.pid = Own::no;
    wrong[8].spec.landlock = Landlock::only;
    wrong[9].spec.seccomp_descriptor = 0;
    for (const Variant& variant : wrong) {
        const Result<Sandbox> sandbox = Sandbox::create(variant.spec);
        REQUIRE(!sandbox);
        CHECK(sandbox.error().message().find("Can't make a sandbox for many commands") == 0);
        CHECK(sandbox.error().phase == Phase::request);
    }
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    CHECK(sandbox.wait().error().err == ENOTSUP);
    CHECK(sandbox.signal(SIGTERM).error().err == ENOTSUP);
    Result<Sandbox> single = Sandbox::start(full_spec(exits(0)));
    REQUIRE(single);
    CHECK(single->spawn(shell("true")).error().err == ENOTSUP);
    CHECK(single->write_file("x", "").error().err == ENOTSUP);
    CHECK(outcome(single->wait()) == "exit 0");
}

TEST_CASE("run: output, errors and status of one command")
{
    NEEDS("userns");
    const Result<Outcome> outcome =
        run(workshop(), shell("cat; echo out; echo err >&2; exit 9"), {.input = "in\n"});
    REQUIRE(outcome);
    CHECK(outcome->output == "in\nout\n");
    CHECK(outcome->error == "err\n");
    CHECK(outcome->status.code == 9);
    CHECK(!outcome->is_cut);
    // More than a pipe holds, both ways at once.
    const std::string much(3 << 20, 'x');
    const Result<Outcome> copied = run(workshop(), shell("cat; cat /tmp/none"), {.input = much});
    REQUIRE(copied);
    CHECK(copied->output == much);
    // One that does not read, and one that leaves its output open to a child.
    const Result<Outcome> deaf = run(workshop(), shell("exit 2"), {.input = much});
    REQUIRE(deaf);
    CHECK(deaf->status.code == 2);
    Sandbox sandbox = created(workshop());
    CHECK(said(sandbox, shell("echo first; sleep 1000 &")) == "first\n");
    const Result<Outcome> cut = run(workshop(), shell("yes | head -c 100000"), {.most = 1000});
    REQUIRE(cut);
    CHECK(cut->output.size() == 1000);
    CHECK(cut->is_cut);
    CHECK(cut->status.code == 0);
    CHECK(!run(workshop(), Command{}));
}

TEST_CASE("run: a limit of time keeps what was written")
{
    NEEDS("userns");
    const auto begin = std::chrono::steady_clock::now();
    const Result<Outcome> late =
        run(workshop(), shell("echo early; trap '' TERM; sleep 1000 & sleep 1000"),
            {.time = milliseconds{500}});
    REQUIRE(late);
    CHECK(late->output == "early\n");
    CHECK(late->status.reason == Reason::time_limit);
    CHECK(late->status.shell_code() == 124);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{20});
    const Result<Outcome> soon = run(workshop(), shell("echo soon"), {.time = milliseconds{60000}});
    REQUIRE(soon);
    CHECK(soon->output == "soon\n");
    CHECK(soon->status.reason == Reason::exited);
    CHECK(children_left() == "0");
}

TEST_CASE("run: a script's text is run by its interpreter")
{
    NEEDS("userns");
    Command command;
    command.words = {"sh", "-e"};
    for (const Spec& spec : {workshop(), everyday()}) {
        const Result<Outcome> outcome =
            run_script(spec, "echo \"$1 $#\"\nread -r x || echo end\nfalse\necho never\n", command,
                       {"a b", "c"});
        REQUIRE(outcome);
        CHECK(outcome->output == "a b 2\nend\n");
        CHECK(outcome->status.code == 1);
    }
    CHECK(run_script(workshop(), "", Command{}).error().message().find("interpreter") !=
          std::string::npos);
}

TEST_CASE("files: what is written is read, by the caller and inside")
{
    NEEDS("userns");
    for (const Spec& spec : {workshop(), everyday()}) {
        Sandbox sandbox = created(spec);
        const Result<> written = sandbox.write_file("a/b/file", "content\n", 0640);
        INFO((written ? "" : written.error().message()));
        REQUIRE(written);
        CHECK(said(sandbox, shell("cat a/b/file; stat -c %a a/b/file; ls -A a/b")) ==
              "content\n640\nfile\n");
        CHECK(said(sandbox, shell("echo more >> a/b/file")).empty());
        CHECK(sandbox.read_file("a/b/file").value_or("") == "content\nmore\n");
        CHECK(sandbox.write_file("a/b/file", "new").has_value());
        CHECK(sandbox.read_file("./a//b/file").value_or("") == "new");
        CHECK(sandbox.read_file("a/b/file", 2).error().err == EFBIG);
        CHECK(sandbox.read_file("none").error().err == ENOENT);
        CHECK(sandbox.write_file("a", "x").error().err == EISDIR);
        CHECK(sandbox.read_file("a").error().message().find("no plain file") != std::string::npos);
    }
}

TEST_CASE("files: nothing in the sandbox leads the caller elsewhere")
{
    NEEDS("userns");
    Sandbox sandbox = created(workshop());
    CHECK(said(sandbox, shell("ln -s /etc link; ln -s /etc/passwd file; mkfifo fifo; "
                              "ln -s ../etc/passwd up; mkdir deep; ln -s .. deep/up"))
              .empty());
    for (const char* const path : {"link/passwd", "file", "up", "deep/up/file"}) {
        CHECK(sandbox.read_file(path).error().err == ELOOP);
    }
    for (const char* const path : {"link/x", "deep/up/x"})
        CHECK(sandbox.write_file(path, "x").error().err == ELOOP);
    for (const char* const path : {"../etc/passwd", "deep/../../etc/passwd"}) {
        CHECK(sandbox.read_file(path).error().err == EXDEV);
        CHECK(sandbox.write_file(path, "x").error().err == EXDEV);
    }
    for (const char* const path : {"", "/etc/passwd"})
        CHECK(sandbox.read_file(path).error().message().find("relative") != std::string::npos);
    CHECK(sandbox.read_file("fifo").error().message().find("no plain file") != std::string::npos);
    // A link in the file's own place is replaced.
    CHECK(sandbox.write_file("file", "x").has_value());
    CHECK(said(sandbox, shell("cat file; test -L file || echo plain")) == "xplain\n");
    CHECK(sandbox.write_file("deep/../other", "y").has_value());
    CHECK(sandbox.read_file("other").value_or("") == "y");
}

TEST_CASE("spawn: a command that is killed for want of memory says so, and others do not")
{
    NEEDS("userns");
    Spec spec = workshop();
    spec.group_limits.memory = std::uint64_t{48} << 20;
    Result<Sandbox> sandbox = Sandbox::create(spec);
    if (!sandbox) {
        // Where no group is lent to an ordinary user there is no sandbox: never one without the limit.
        CHECK(::geteuid() != 0);
        CHECK(sandbox.error().message().find("Can't limit memory: ") == 0);
        return;
    }
    Result<Process> greedy = sandbox->spawn(shell("exec tail /dev/zero"));
    REQUIRE(greedy);
    const Result<ExitStatus> end = greedy->wait();
    REQUIRE(end);
    CHECK(end->signal == SIGKILL);
    CHECK(end->reason == Reason::out_of_memory);
    CHECK(end->oom_kills > 0);
    // Version 2 ends the sandbox as a whole.
    Result<Process> killed = sandbox->spawn(shell("exec sleep 1000"));
    if (!killed) {
        CHECK(killed.error().err == ESRCH);
        return;
    }
    CHECK(killed->kill().has_value());
    CHECK(killed->wait()->reason == Reason::exited);
    Result<Process> closed = sandbox->spawn(shell("exec sleep 1000"));
    REQUIRE(closed);
    sandbox->close();
    CHECK(closed->wait()->reason == Reason::sandbox_ended);
}
