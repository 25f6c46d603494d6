// An application of the library, for run.py, which lets one of its system calls fail.
//
//   library-starts [--everyday] [--memory] [--reset] --chdir DIR -- PROGRAM [WORD...]
//
// Makes a sandbox for many commands (and makes it anew), puts a file into it, runs the program, reads the
// file and closes the sandbox. As the program nsbox does: status 0 when all of that worked; else 1, with a
// line on standard error that begins with `bwrap: `. One call alone fails: whatever failed is tried once
// more, with a command that prints nothing, and has to work then. Where it does not there are more lines.

#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include <string>
#include <string_view>

#include <sys/syscall.h>
#include <unistd.h>

using namespace nsbox;

namespace {

const char* const content = "the word";

struct Wish {
    Spec spec;
    Command command;
    Command second;       ///< Of a second try.
    bool resets = false;  ///< It is used after a reset.
};

void say(const std::string& what)
{
    const std::string line = "bwrap: " + what + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
}

void complain(const std::string& what)
{
    say("this should not be: " + what);
}

void report(const Error& error)
{
    say(error.message());
    if (error.op.empty() || error.err < 0)
        complain("an error without an operation");
}

/// The whole sandbox is over: nothing in it can be tried again.
bool is_end_of_sandbox(const Error& error)
{
    return error.err == ESRCH;
}

/// One life of a sandbox. `has_failed`: something has, and was reported.
class Life {
public:
    Life(const Wish& wish, bool& has_failed) : wish_(wish), has_failed_(has_failed) {}

    Result<> live()
    {
        Result<Sandbox> sandbox = Sandbox::create(wish_.spec);
        if (!sandbox)
            return tl::make_unexpected(std::move(sandbox.error()));
        for (const std::string& note : sandbox->notes())
            say(note);
        if (wish_.resets)
            if (Result<> anew = sandbox->reset(); !anew)
                return try_closed_or_unchanged(*sandbox, std::move(anew));
        Result<> done = twice([&] { return sandbox->write_file("file", content); });
        if (done)
            done = twice([&] { return run(*sandbox); });
        if (done)
            done = twice([&] { return look(*sandbox); });
        sandbox->close();
        if (sandbox->spawn(wish_.second))
            complain("a command in a sandbox that is closed");
        return done;
    }

private:
    /// Does it again in the same sandbox, if it goes on.
    template <class Work>
    Result<> twice(Work work)
    {
        Result<> done = work();
        if (done || has_failed_ || is_end_of_sandbox(done.error()))
            return done;
        report(done.error());
        has_failed_ = true;
        return work();
    }

    /// After a reset that failed.
    Result<> try_closed_or_unchanged(Sandbox& sandbox, Result<> failure) const
    {
        Result<Process> process = sandbox.spawn(wish_.second);
        if (!process && is_end_of_sandbox(process.error()))
            return failure;
        const Result<ExitStatus> status =
            process ? process->wait() : tl::make_unexpected(process.error());
        if (!status || status->shell_code() != 0)
            complain("a command that fails in a sandbox that is to be unchanged");
        else if (!sandbox.reset())
            complain("a second reset that fails as well");
        return failure;
    }

    Result<> run(Sandbox& sandbox) const
    {
        Result<Process> process = sandbox.spawn(has_failed_ ? wish_.second : wish_.command);
        if (!process)
            return tl::make_unexpected(std::move(process.error()));
        Result<ExitStatus> status = process->wait();
        if (!status) {
            const Error first = std::move(status.error());
            status = process->wait();
            if (!status || status->shell_code() != 0)
                complain("a second wait() fails as well");
            return tl::make_unexpected(first);
        }
        if (status->reason == Reason::sandbox_ended)
            return tl::make_unexpected(Error{ESRCH, "The sandbox has ended", {}, {}, {}});
        if (status->reason != Reason::exited || status->shell_code() != 0)
            complain("the command's status is " + std::to_string(status->shell_code()));
        return {};
    }

    static Result<> look(Sandbox& sandbox)
    {
        const Result<std::string> text = sandbox.read_file("file");
        if (!text)
            return tl::make_unexpected(text.error());
        if (*text != content)
            complain("the file has other content");
        return {};
    }

    const Wish& wish_;
    bool& has_failed_;
};

Wish read_words(int count, char** words)
{
    Wish wish;
    Spec& spec = wish.spec;
    bool is_everyday = false;
    int at = 1;
    for (; at < count && std::string_view{words[at]} != "--"; ++at) {
        const std::string_view word = words[at];
        if (word == "--everyday") {
            is_everyday = true;
        } else if (word == "--memory") {
            spec.group_limits.memory = std::uint64_t{64} << 20;
            spec.namespaces.cgroup = Own::no;  // So that the program sees its group.
        } else if (word == "--reset") {
            wish.resets = true;
        } else if (word == "--chdir" && at + 1 < count) {
            spec.directory = words[++at];
        }
    }
    for (++at; at < count; ++at)
        wish.command.words.emplace_back(words[at]);
    wish.second.words = {"/bin/true"};
    if (is_everyday) {
        // The program has to be found.
        const std::string program = wish.command.words.at(0);
        spec.operations.emplace_back(Bind{program, program, Access::read_only});
        if (const Result<> done = complete(spec, Everyday{}); !done)
            report(done.error());
        return wish;
    }
    spec.operations.emplace_back(Bind{"/", "/", Access::read_only});
    spec.operations.emplace_back(Proc{"/proc"});
    spec.operations.emplace_back(Dev{"/dev"});
    spec.operations.emplace_back(Tmpfs{"/tmp", 01777});
    return wish;
}

}  // namespace

int main(int count, char** words)
{
    const Wish wish = read_words(count, words);
    // What comes before is nobody's start: run.py knows it by this call, which the library does not make.
    ::syscall(SYS_sched_rr_get_interval, 0, nullptr);
    bool has_failed = false;
    Result<> done = Life{wish, has_failed}.live();
    if (!done) {
        // The sandbox's end may have been noticed before, in other words.
        if (!has_failed || !is_end_of_sandbox(done.error()))
            report(done.error());
        has_failed = true;
        done = Life{wish, has_failed}.live();
        if (!done)
            report(done.error());
    }
    return has_failed ? 1 : 0;
}
