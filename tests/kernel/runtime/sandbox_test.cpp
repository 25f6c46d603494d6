// The library used as an application uses it.

#include "nsbox/nsbox.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/probes.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

void do_nothing(int) {}

/// Makes this process unlike others, so that a reset to a default is seen.
void be_peculiar()
{
    struct sigaction action {};
    action.sa_handler = do_nothing;
    ::sigaddset(&action.sa_mask, SIGHUP);
    ::sigaction(SIGUSR1, &action, nullptr);
    ::sigaction(SIGWINCH, &action, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGTTOU, SIG_IGN);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR2);
    ::sigaddset(&blocked, SIGRTMIN + 3);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    ::raise(SIGUSR2);  // Stays pending.
    ::umask(027);
    ::setenv("NSBOX_TEST_PECULIAR", "yes", 1);
    (void)!::chdir("/usr");
}

std::string said_by_all(const Ended& ended, const std::string& prefix)
{
    std::string text;
    for (const auto& [name, value] : ended.facts)
        if (name.compare(0, prefix.size(), prefix) == 0)
            text += name.substr(prefix.size()) + ": " + value + "\n";
    return text;
}

}  // namespace

TEST_CASE("sandbox: sandboxes of every shape run a command and tell how it ended")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        for (const Variant& variant : variants(exits(7)))
            say("exit " + variant.name, run(variant.spec));
        for (const Variant& variant : variants({"/bin/sh", "-c", "kill -KILL $$; exit 3"}))
            say("kill " + variant.name, run(variant.spec));
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(ended["exit " + variant.name] == "exit 7");
        // No signal of its own ends process 1.
        CHECK(ended["kill " + variant.name] == (variant.is_pid_1 ? "exit 3" : "signal 9"));
    }
    CHECK(ended["children"] == "0");
}

TEST_CASE("sandbox: what must not start fails, each for its reason, and leaves nothing behind")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const std::string before = host_state();
        for (const Variant& variant : failing_variants())
            say(variant.name, run(variant.spec));
        say("changed", difference(before, host_state()));
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["no command"] == "not started: No command: there is nothing to execute");
    const std::string missing = "not started: execvp /nowhere/program: No such file or directory";
    CHECK(ended["command is missing"] == missing);
    CHECK(ended["command is missing, no init"] == missing);
    CHECK(ended["source is missing"] ==
          "not started: Can't find source path /nowhere: No such file or directory");
    CHECK(ended["destination cannot be made"].compare(
              0, 37, "not started: Can't mkdir /proc/nowher") == 0);
    CHECK(ended["host name is too long"].compare(0, 38, "not started: Can't set hostname to hhh") ==
          0);
    CHECK(ended["descriptor is closed"].compare(0, 33, "not started: Can't find source pa") == 0);
    CHECK(ended["directory is missing"] ==
          "not started: Can't chdir to /nowhere: No such file or directory");
    CHECK(ended["filter is nonsense"].compare(0, 40, "not started: Unable to set up system cal") ==
          0);
    CHECK(ended["lock file is missing"] ==
          "not started: Unable to open lock file /nowhere: No such file or directory");
    CHECK(ended["changed"].empty());
}

TEST_CASE("sandbox: a peculiar host process is after every start what it was before")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        be_peculiar();
        const std::string before = host_state();
        say("peculiar", before.find("NSBOX_TEST_PECULIAR=yes") != std::string::npos ? "yes" : "no");
        for (const Variant& variant : variants(exits(0))) {
            say("end of " + variant.name, run(variant.spec));
            say("changed by " + variant.name, difference(before, host_state()));
        }
        for (const Variant& variant : failing_variants()) {
            run(variant.spec);
            say("changed by " + variant.name, difference(before, host_state()));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["peculiar"] == "yes");
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(ended["end of " + variant.name] == "exit 0");
    }
    for (const auto& fact : ended.facts)
        if (fact.first.compare(0, 11, "changed by ") == 0) {
            CAPTURE(fact.first);
            CHECK(fact.second.empty());
        }
}

TEST_CASE("sandbox: while a sandbox lives only its own close-on-exec descriptors are open for it")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        for (const Variant& variant : variants({"/bin/cat"})) {
            Pipe pipe = make_pipe();
            ::dup2(pipe.read.get(), STDIN_FILENO);
            const std::string before = host_state();
            Result<Sandbox> sandbox = Sandbox::start(variant.spec);
            if (!sandbox)
                throw std::runtime_error{sandbox.error().message()};
            std::istringstream opened{difference(before, host_state())};
            std::string unexpected;
            std::vector<int> owned = sandbox->descriptors();
            for (std::string line; std::getline(opened, line);) {
                int fd = -1;
                int flags = -1;
                const bool is_new =
                    std::sscanf(line.c_str(), "+ descriptor %d: %d", &fd, &flags) == 2;
                const bool is_ours = is_new && flags == FD_CLOEXEC &&
                                     std::find(owned.begin(), owned.end(), fd) != owned.end();
                const bool is_the_child = line.find("children:") != std::string::npos;
                if (!is_ours && !is_the_child)
                    unexpected += line + "\n";
            }
            say("owned " + variant.name, owned.empty() ? "none" : "some");
            say("unexpected " + variant.name, unexpected);
            pipe.write.reset();
            say("end " + variant.name, outcome(sandbox->wait()));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(ended["owned " + variant.name] == "some");
        CHECK(ended["unexpected " + variant.name].empty());
        CHECK(ended["end " + variant.name] == "exit 0");
    }
}

TEST_CASE("sandbox: fifty starts, every other failing, leave no descriptor and no memory behind")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        const auto mapped = [] {
            std::ifstream maps{"/proc/self/maps"};
            unsigned long total = 0;
            for (std::string line; std::getline(maps, line);) {
                unsigned long begin = 0;
                unsigned long end = 0;
                if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
                    total += end - begin;
            }
            return total;
        };
        const std::vector<Variant> good = variants(exits(0));
        const std::vector<Variant> bad = failing_variants();
        long started = 0;
        long refused = 0;
        const auto round = [&](std::size_t i) {
            const bool fails = i % 2 == 1;
            const Spec& spec =
                fails ? bad[i / 2 % bad.size()].spec : good[i / 2 % good.size()].spec;
            const std::string end = run(spec);
            started += end == "exit 0" ? 1 : 0;
            refused += end.compare(0, 11, "not started") == 0 ? 1 : 0;
        };
        for (std::size_t i = 0; i < 20; ++i)
            round(i);
        started = refused = 0;
        const std::string descriptors = open_descriptors();
        const unsigned long memory = mapped();
        for (std::size_t i = 0; i < 50; ++i)
            round(i);
        say("started", started);
        say("refused", refused);
        say("descriptors", difference(descriptors, open_descriptors()));
        // A leaked stack is a mebibyte; a heap, a sanitizer's above all, may grow a little.
        const unsigned long grown = mapped() > memory ? mapped() - memory : 0;
        say("grown", grown < (16UL << 20) ? "little" : std::to_string(grown));
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["started"] == "25");
    CHECK(ended["refused"] == "25");
    CHECK(ended["descriptors"].empty());
    CHECK(ended["grown"] == "little");
    CHECK(ended["children"] == "0");
}

TEST_CASE(
    "sandbox: a host that ignores SIGCHLD starts sandboxes; with an init it has the status too")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        ::signal(SIGCHLD, SIG_IGN);
        for (const Variant& variant : variants(exits(7)))
            say(variant.name, run(variant.spec));
        for (const Variant& variant : failing_variants())
            say("failing " + variant.name, run(variant.spec));
        say("disposition", ::signal(SIGCHLD, SIG_IGN) == SIG_IGN ? "ignored" : "changed");
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["all namespaces"] == "exit 7");
    CHECK(ended["mount and pid namespace"] == "exit 7");
    CHECK(ended["two user namespaces"] == "exit 7");
    // The kernel throws the status of such a child away.
    const std::string lost = "error: waitid the sandbox: No child processes (hint: the caller "
                             "ignores SIGCHLD, which loses the status)";
    CHECK(ended["pid 1"] == lost);
    CHECK(ended["no pid namespace"] == lost);
    CHECK(ended["mount namespace only"] == lost);
    CHECK(ended["failing command is missing"] ==
          "not started: execvp /nowhere/program: No such file or directory");
    CHECK(ended["disposition"] == "ignored");
    CHECK(ended["children"] == "0");
}

TEST_CASE("sandbox: the command has clean signals whatever the host's are")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        be_peculiar();
        ::signal(SIGCHLD, SIG_IGN);
        for (const Variant& variant : variants({"/bin/cat", "/proc/self/status"})) {
            const CapturedOutput captured;
            run(variant.spec);
            std::string lines = captured.text();
            for (std::string::size_type at = 0; (at = lines.find('\n')) != std::string::npos;)
                lines[at] = ' ';
            say(variant.name, lines);
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    // SIGPIPE (13) and SIGTTOU (22) stay ignored, as they do over any exec; SIGCHLD does not.
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        const std::string& lines = ended[variant.name];
        if (variant.spec.operations.size() == 1)
            CHECK(lines.find("SigBlk:\t0000000000000000") != std::string::npos);
        CHECK(lines.find("SigIgn:\t0000000000201000") != std::string::npos);
        CHECK(lines.find("SigCgt:\t0000000000000000") != std::string::npos);
    }
}

TEST_CASE("sandbox: a host that is not dumpable stays so, and can start sandboxes")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        ::prctl(PR_SET_DUMPABLE, 0);
        for (const Variant& variant : variants(exits(7))) {
            say("end " + variant.name, run(variant.spec));
            say("dumpable " + variant.name, ::prctl(PR_GET_DUMPABLE));
        }
        for (const Variant& variant : failing_variants()) {
            run(variant.spec);
            say("dumpable " + variant.name, ::prctl(PR_GET_DUMPABLE));
        }
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(ended["end " + variant.name] == "exit 7");
    }
    std::istringstream dumpable{said_by_all(ended, "dumpable ")};
    int count = 0;
    for (std::string line; std::getline(dumpable, line); ++count)
        CHECK(line.substr(line.rfind(' ') + 1) == "0");
    CHECK(count > 10);
}

TEST_CASE("sandbox: nothing of the host's memory, environment, arguments and files is in process 1")
{
    NEEDS("userns");
    const std::string word = random_word();
    REQUIRE(word.size() > 20);
    const Printed said = run_as_probe({"secrets", word}, {"PATH=/usr/bin:/bin", "SECRET=" + word});
    INFO(said.text);
    REQUIRE(said.status == 0);
    // The same search finds the word in the host, which has it everywhere.
    CHECK(said["host"] == "environ cmdline mem fd");
    for (const std::string name : {"all namespaces", "mount and pid namespace"}) {
        CAPTURE(name);
        CHECK(said[name] == "exit 0; processes 1 2");
        CHECK(said[name + ", process 1"] == "nowhere");
        CHECK(said[name + ", process 2"] == "nowhere");
        CHECK(said[name + ", itself"] == "mem");
        const std::string kept = name + ", environment kept";
        CHECK(said[kept] == "exit 0; processes 1 2");
        CHECK(said[kept + ", process 1"] == "nowhere");
        CHECK(said[kept + ", process 2"] == "environ mem");
        CHECK(said[kept + ", itself"] == "environ mem");
    }
    // The numbers of those that have ended are not given out again so soon.
    CHECK(said["many commands"] == "processes 1 3");
    CHECK(said["many commands, process 1"] == "nowhere");
    CHECK(said["many commands, itself"] == "mem");
}

TEST_CASE("sandbox: a host with a heap of 1 GiB starts sandboxes that hold none of it")
{
    NEEDS("userns");
    NEEDS("memory");
    const std::string word = random_word();
    const Printed said = run_as_probe({"large", word}, {"PATH=/usr/bin:/bin"});
    INFO(said.text);
    REQUIRE(said.status == 0);
    CHECK(said["host"] == "cmdline mem");
    for (const Variant& variant : variants({"true"})) {
        CAPTURE(variant.name);
        CHECK(said[variant.name] == "exit 0, word nowhere");
        const std::string resident = said[variant.name + " resident"];
        REQUIRE(resident.find(" kB") != std::string::npos);
        CHECK(std::stol(resident) < 32 * 1024);
    }
}

TEST_CASE("sandbox: it outlives the object that stands for it, and moves keep it")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        pid_t pid = -1;
        const std::string before = open_descriptors();
        {
            Result<Sandbox> first = Sandbox::start(full_spec({"/bin/sleep", "1000"}));
            if (!first)
                throw std::runtime_error{first.error().message()};
            pid = first->child_pid();
            Sandbox second{std::move(*first)};
            Result<Sandbox> third = Sandbox::start(full_spec(exits(0)));
            third->wait();
            *third = std::move(second);
            say("moved", third->child_pid() == pid ? "same process" : "another");
        }
        say("descriptors", difference(before, open_descriptors()));
        say("alive", is_alive(pid) ? "yes" : "no");
        ::kill(pid, SIGKILL);
        say("ended", ::waitpid(pid, nullptr, 0) == pid ? "yes" : "no");
        say("children", children_left());
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["moved"] == "same process");
    CHECK(ended["descriptors"].empty());
    CHECK(ended["alive"] == "yes");
    CHECK(ended["ended"] == "yes");
    CHECK(ended["children"] == "0");
}
