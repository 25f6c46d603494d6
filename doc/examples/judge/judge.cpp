// Compiles a C program that nobody trusts, runs it on each test, and says what came of it:
//
//     judge PROGRAM.c TESTS
//
// TESTS is a folder with files NAME.in, what the program reads, and NAME.out, what it is to print. A line for
// each, and the exit status 0 if all were accepted:
//
//     small      accepted            3 ms   1024 KiB
//     large      time limit       2000 ms   1024 KiB
//
// The compiler runs in a sandbox of its own (a source can name files that its author may not read), and each
// test in a fresh one, which a pool has ready: no test finds what another one has left.
//
//     c++ -std=c++20 judge.cpp -o judge $(pkg-config --cflags --libs nsbox)

#include <nsbox/everyday.hpp>
#include <nsbox/nsbox.hpp>
#include <nsbox/pool.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds processor_time{2000};
constexpr milliseconds patience{5000};  // A program that sleeps uses no processor time.
constexpr std::uint64_t memory = 256 << 20;
constexpr std::size_t most_output = 1 << 20;

[[noreturn]] void give_up(const std::string& why)
{
    std::cerr << "judge: " << why << '\n';
    std::exit(2);
}

template <class T>
T must(nsbox::Result<T> result)
{
    if (!result)
        give_up(result.error().message());
    return std::move(*result);
}

std::string read_file(const fs::path& path)
{
    std::ifstream file{path, std::ios::binary};
    if (!file)
        give_up("can't read " + path.string());
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// What `nsbox run` has by default: the host's programs, no network, no capabilities, a private home.
nsbox::Spec sandbox_for(const std::string& policy)
{
    nsbox::Spec spec;
    nsbox::Everyday wish;
    wish.policies = {policy};
    spec.resource_limits = {{RLIMIT_FSIZE, 64 << 20, 64 << 20}, {RLIMIT_CORE, 0, 0}};
    spec.tmpfs_size = 128 << 20;
    if (const nsbox::Result<> done = complete(spec, wish); !done)
        give_up(done.error().message());
    return spec;
}

nsbox::Spec sandbox_for_tests()
{
    nsbox::Spec spec = sandbox_for("strict");
    const auto seconds = static_cast<std::uint64_t>(processor_time.count() / 1000);
    // Init is held to them too, but it takes next to nothing.
    spec.resource_limits.push_back({RLIMIT_CPU, seconds, seconds + 1});
    spec.resource_limits.push_back({RLIMIT_AS, 4 * memory, 4 * memory});
    // Where the caller may make control groups; an ordinary user's processes are limited without one.
    spec.group_limits.processes = 16;
    spec.group_limits.memory = memory;
    spec.group_limits.best_effort = true;
    return spec;
}

/// The program, or nothing: then the compiler's words have been printed.
std::string compile(const std::string& source)
{
    nsbox::Sandbox sandbox = must(nsbox::Sandbox::create(sandbox_for("default")));
    if (const nsbox::Result<> done = sandbox.write_file("program.c", source); !done)
        give_up(done.error().message());
    nsbox::Command compiler;
    compiler.words = {"cc", "-O2", "-std=c11", "-o", "program", "program.c", "-lm"};
    nsbox::RunOptions options;
    options.time = std::chrono::seconds{30};
    const nsbox::Outcome outcome = must(run(sandbox, compiler, options));
    if (outcome.status.shell_code() == 0)
        return must(sandbox.read_file("program"));
    std::cout << "compile error\n" << outcome.error;
    return {};
}

std::string verdict_of(const nsbox::Outcome& outcome, const std::string& wanted)
{
    const nsbox::ExitStatus& status = outcome.status;
    if (status.reason == nsbox::Reason::time_limit || status.signal == SIGXCPU ||
        status.usage.user + status.usage.system >= processor_time)
        return "time limit";
    if (outcome.is_cut)
        return "output limit";
    if (status.reason == nsbox::Reason::out_of_memory)
        return "memory limit";
    if (status.signal != 0)
        return "ended by signal " + std::to_string(status.signal);
    if (status.code != 0)
        return "exit status " + std::to_string(status.code);
    return outcome.output == wanted ? "accepted" : "wrong answer";
}

bool judge(nsbox::Sandbox sandbox, const std::string& program, const fs::path& input)
{
    constexpr unsigned executable = 0755;
    if (const nsbox::Result<> done = sandbox.write_file("program", program, executable); !done)
        give_up(done.error().message());
    nsbox::Command command;
    command.words = {"./program"};
    nsbox::RunOptions options;
    options.input = read_file(input);
    options.time = patience;
    options.most = most_output;
    const nsbox::Outcome outcome = must(run(sandbox, command, options));
    const std::string verdict =
        verdict_of(outcome, read_file(fs::path{input}.replace_extension(".out")));
    const auto used = std::chrono::duration_cast<milliseconds>(outcome.status.usage.user +
                                                               outcome.status.usage.system);
    std::printf("%-16s %-20s %5lld ms %8llu KiB\n", input.stem().c_str(), verdict.c_str(),
                static_cast<long long>(used.count()),
                static_cast<unsigned long long>(outcome.status.usage.max_rss_kib));
    std::fflush(stdout);
    return verdict == "accepted";
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc != 3) {
        std::cerr << "usage: judge PROGRAM.c TESTS\n";
        return 2;
    }
    std::vector<fs::path> inputs;
    for (const auto& entry : fs::directory_iterator{argv[2]})
        if (entry.path().extension() == ".in")
            inputs.push_back(entry.path());
    std::sort(inputs.begin(), inputs.end());
    if (inputs.empty())
        give_up(std::string{"no tests in "} + argv[2]);
    const std::string program = compile(read_file(argv[1]));
    if (program.empty())
        return 1;
    nsbox::Pool pool = must(nsbox::Pool::create(sandbox_for_tests()));
    bool all = true;
    for (const fs::path& input : inputs)
        all = judge(must(pool.take()), program, input) && all;
    return all ? 0 : 1;
}
