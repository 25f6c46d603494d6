#include "runtime/cpu_time.hpp"

#include "sys/read_file.hpp"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace nsbox::runtime {

namespace {

std::string read_proc(pid_t pid, const std::string& name)
{
    return sys::read_file("/proc/" + std::to_string(pid) + "/" + name);
}

/// The decimal numbers in a text that holds little else.
std::vector<long> numbers(const std::string& text, std::size_t from)
{
    std::vector<long> all;
    const char* at = text.data() + std::min(from, text.size());
    const char* const end = text.data() + text.size();
    while (at != end) {
        long value = 0;
        const auto result = std::from_chars(at, end, value);
        if (result.ec == std::errc{})
            all.push_back(value);
        at = std::find(result.ec == std::errc{} ? result.ptr : at, end, ' ');
        if (at != end)
            ++at;
    }
    return all;
}

/// utime, stime, cutime and cstime, fields 14 to 17. The name before them may hold anything.
long ticks(pid_t pid)
{
    const std::string stat = read_proc(pid, "stat");
    const std::size_t name = stat.rfind(") ");
    if (name == std::string::npos)
        return 0;
    constexpr std::size_t state_field = 2;  // ") ", the state's letter and a blank.
    const std::vector<long> fields = numbers(stat, name + state_field + 2);
    constexpr std::size_t utime = 10;  // Field 14, where field 4 is the first number.
    if (fields.size() < utime + 4)
        return 0;
    return fields[utime] + fields[utime + 1] + fields[utime + 2] + fields[utime + 3];
}

std::vector<std::string> threads(pid_t pid)
{
    std::vector<std::string> names;
    const std::string path = "/proc/" + std::to_string(pid) + "/task";
    const std::unique_ptr<DIR, int (*)(DIR*)> folder{::opendir(path.c_str()), ::closedir};
    while (folder) {
        const dirent* const entry = ::readdir(folder.get());
        if (entry == nullptr)
            break;
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    }
    return names;
}

}  // namespace

std::chrono::milliseconds cpu_time_of_tree(pid_t root)
{
    std::vector<pid_t> pending{root};
    long total = 0;
    // A tree that grows faster than it can be read has used what it may.
    constexpr std::size_t most = 100000;
    for (std::size_t i = 0; i < pending.size() && i < most; ++i) {
        const pid_t pid = pending[i];
        total += ticks(pid);
        for (const std::string& thread : threads(pid))
            for (const long child : numbers(read_proc(pid, "task/" + thread + "/children"), 0))
                pending.push_back(static_cast<pid_t>(child));
    }
    return std::chrono::milliseconds{total * 1000 / std::max(1L, ::sysconf(_SC_CLK_TCK))};
}

}  // namespace nsbox::runtime
