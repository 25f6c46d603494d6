// What the library's starts take, for tests/bench/library.py. Prints one figure: microseconds (a median), a
// rate, or what a mode says. Built with the tests.
//
//   bench-library MODE COUNT PROGRAM
//
// `start` and `quiet` (without a network namespace) time Sandbox::start() until the end of PROGRAM; `spawn` is a
// further command of one sandbox, `pool` one that was taken from a pool, `posix` posix_spawn(3), `posix-paused`
// the same with the pauses that `pool` makes. `heap:MIB` is
// `start` in a process with so much memory in use. `threads:N` says how many are started a second by N threads,
// `launch:N` the same of posix_spawn(3) with the words from PROGRAM on. `crowd` keeps COUNT sandboxes alive, each
// with PROGRAM, and says what they take.

#include "nsbox/nsbox.hpp"
#include "nsbox/pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using Clock = std::chrono::steady_clock;

namespace {

[[noreturn]] void give_up(const std::string& why)
{
    std::fprintf(stderr, "bench-library: %s\n", why.c_str());
    std::exit(1);
}

/// The usual mounts.
Spec usual(const std::vector<std::string>& command, Own network = Own::yes)
{
    Spec spec;
    spec.command = command;
    spec.operations = {Bind{"/", "/", Access::read_only}, Proc{"/proc"}, Dev{"/dev"},
                       Tmpfs{"/tmp"}};
    spec.namespaces.net = network;
    // Root's command would have those over its namespaces else, and a second user namespace for that.
    spec.capabilities = {{CapabilityEdit::Kind::drop_all, 0}};
    return spec;
}

template <class T>
T must(Result<T> result)
{
    if (!result)
        give_up(result.error().message());
    return std::move(*result);
}

void start_one(const Spec& spec)
{
    if (must(must(Sandbox::start(spec)).wait()).shell_code() != 0)
        give_up("the program failed");
}

void launch(char* const* words)
{
    pid_t pid = -1;
    int status = 0;
    if (::posix_spawn(&pid, words[0], nullptr, nullptr, words, environ) != 0)
        give_up("posix_spawn failed");
    if (::waitpid(pid, &status, 0) != pid || status != 0)
        give_up("the program failed");
}

double microseconds(Clock::time_point since)
{
    return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

/// What is left to do for one must not be part of the next one's time.
void pause_a_little()
{
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
}

double median(int count, const std::function<void()>& action, bool pauses = false)
{
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
        if (pauses)
            pause_a_little();
        const auto begin = Clock::now();
        action();
        times.push_back(microseconds(begin));
    }
    std::nth_element(times.begin(), times.begin() + count / 2, times.end());
    return times[static_cast<std::size_t>(count) / 2];
}

void run_in(const Sandbox& sandbox, const Command& command)
{
    Process process = must(sandbox.spawn(command));
    if (must(process.wait()).shell_code() != 0)
        give_up("the program failed");
}

/// What it takes to use a sandbox that is ready; making it and ending it is not in it.
double from_pool(int count, const Spec& spec, const Command& command)
{
    Pool pool = must(Pool::create(spec, {1, false}));
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
        if (const Result<> filled = pool.refill(); !filled)
            give_up(filled.error().message());
        pause_a_little();
        const auto begin = Clock::now();
        const Sandbox sandbox = must(pool.take());
        run_in(sandbox, command);
        times.push_back(microseconds(begin));
    }
    std::nth_element(times.begin(), times.begin() + count / 2, times.end());
    return times[static_cast<std::size_t>(count) / 2];
}

double rate(int threads, int count, const std::function<void()>& action)
{
    std::atomic<int> left = count;
    std::vector<std::thread> all;
    const auto begin = Clock::now();
    for (int i = 0; i < threads; ++i)
        all.emplace_back([&] {
            while (left.fetch_sub(1) > 0)
                action();
        });
    for (std::thread& one : all)
        one.join();
    return count / (microseconds(begin) / 1e6);
}

/// The proportional share of a process's memory, in KiB: proc(5), smaps_rollup.
double share_of(pid_t pid)
{
    std::ifstream file{"/proc/" + std::to_string(pid) + "/smaps_rollup"};
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, 4, "Pss:") == 0)
            return std::atof(line.c_str() + 4);
    give_up("no share of memory is known for process " + std::to_string(pid));
}

double own_share()
{
    return share_of(::getpid());
}

void crowd(int count, const std::string& program)
{
    const rlimit many{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_NOFILE, &many);
    const double before = own_share();
    std::vector<Sandbox> sandboxes;
    std::vector<Process> processes;
    const Spec spec = usual({});
    Command command;
    command.words = {program};
    for (int i = 0; i < count; ++i) {
        sandboxes.push_back(must(Sandbox::create(spec)));
        processes.push_back(must(sandboxes.back().spawn(command)));
    }
    double inits = 0;
    for (const Sandbox& sandbox : sandboxes)
        inits += share_of(sandbox.child_pid());
    std::printf("%.1f KiB in init and %.1f KiB in this process, each of %d\n", inits / count,
                (own_share() - before) / count, count);
    const auto begin = Clock::now();
    processes.clear();
    std::vector<std::thread> enders;
    std::atomic<std::size_t> next = 0;
    for (int i = 0; i < 8; ++i)
        enders.emplace_back([&] {
            for (std::size_t at = 0; (at = next.fetch_add(1)) < sandboxes.size();)
                sandboxes[at].close();
        });
    for (std::thread& ender : enders)
        ender.join();
    std::printf("%.2f s until all were closed\n", microseconds(begin) / 1e6);
}

double with_heap(std::size_t mebibytes, int count, const Spec& spec)
{
    const std::size_t size = mebibytes << 20;
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        give_up("no memory");
    ::madvise(memory, size, MADV_NOHUGEPAGE);
    std::memset(memory, 1, size);
    return median(count, [&] { start_one(spec); });
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc < 4)
        give_up("usage: bench-library MODE COUNT PROGRAM [WORD...]");
    const std::string word = argv[1];
    const std::string mode = word.substr(0, word.find(':'));
    const int number = word.size() > mode.size() ? std::atoi(word.c_str() + mode.size() + 1) : 0;
    const int count = std::atoi(argv[2]);
    const std::vector<std::string> words(argv + 3, argv + argc);
    const Spec spec = usual(words, mode == "quiet" ? Own::no : Own::yes);
    Command command;
    command.words = words;
    double figure = 0;
    if (count < 1)
        give_up("the count is a number above 0");
    if (mode == "start" || mode == "quiet") {
        figure = median(count, [&] { start_one(spec); });
    } else if (mode == "spawn") {
        const Sandbox sandbox = must(Sandbox::create(spec));
        figure = median(count, [&] { run_in(sandbox, command); });
    } else if (mode == "pool") {
        figure = from_pool(count, spec, command);
    } else if (mode == "posix" || mode == "posix-paused") {
        figure = median(
            count, [&] { launch(argv + 3); }, mode == "posix-paused");
    } else if (mode == "heap") {
        figure = with_heap(static_cast<std::size_t>(number), count, spec);
    } else if (mode == "threads") {
        figure = rate(number, count, [&] { start_one(spec); });
    } else if (mode == "launch") {
        figure = rate(number, count, [&] { launch(argv + 3); });
    } else if (mode == "crowd") {
        crowd(count, words.front());
        return 0;
    } else {
        give_up("there is no mode " + mode);
    }
    std::printf("%.1f\n", figure);
    return 0;
}
