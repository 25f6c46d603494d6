#include "rootfs/overlay_commands.hpp"

#include "rootfs/names.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <linux/prctl.h>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using Words = std::vector<std::string>;

constexpr Literal cannot_build{"Can't build a root filesystem"};

/// The script of the source tree that this program was built in, or that was installed with it.
Result<std::string> find_script()
{
    std::array<char, 4096> text;
    const long got = raw::readlinkat(AT_FDCWD, "/proc/self/exe", text.data(), text.size());
    const std::string own(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    const std::string here = own.substr(0, own.rfind('/') + 1);
    const std::string installed = NSBOX_RECIPES_DIR "/build";
    for (const std::string& path : {here + "rootfs/build", here + "../rootfs/build", installed})
        if (raw::faccessat(AT_FDCWD, path.c_str(), X_OK) == 0)
            return path;
    return fail(cannot_build, ENOENT, installed,
                "the script that does it is not installed, nor is it beside the program as "
                "rootfs/build or ../rootfs/build");
}

/// The words for the script, and what nsbox wants to know of them.
struct Wish {
    Words words;
    Words rest;  ///< No options.
    std::optional<std::string> name;
    std::optional<std::string> output;
    bool is_question = false;
};

Result<Wish> understand(const Words& words)
{
    // Those of the script that take a value, which may look like one of these here.
    constexpr std::array with_value{"--mirror", "--keyring", "--suite", "--dockerfile", "--engine"};
    Wish wish;
    for (std::size_t at = 0; at < words.size(); ++at) {
        const std::string& word = words[at];
        if (word == "--") {
            wish.words.insert(wish.words.end(), words.begin() + static_cast<std::ptrdiff_t>(at),
                              words.end());
            wish.rest.insert(wish.rest.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                             words.end());
            break;
        }
        const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
        const std::string option = word.substr(0, equals);
        const bool is_name = option == "--name";
        const bool is_output = option == "-o" || option == "--output";
        const bool takes_value =
            is_name || is_output ||
            std::find(with_value.begin(), with_value.end(), option) != with_value.end();
        if (!is_name)
            wish.words.push_back(word);
        wish.is_question = wish.is_question || word == "--list" || word == "-h";
        if (!takes_value && (word.empty() || word[0] != '-'))
            wish.rest.push_back(word);
        if (!takes_value)
            continue;
        if (equals == std::string::npos && at + 1 == words.size())
            return refuse(cannot_build, {}, option + " takes an argument");
        const std::string value =
            equals == std::string::npos ? words[++at] : word.substr(equals + 1);
        if (equals == std::string::npos && !is_name)
            wish.words.push_back(value);
        if (is_name)
            wish.name = value;
        if (is_output)
            wish.output = value;
    }
    return wish;
}

/// In the new process.
[[noreturn]] void become(const std::string& path, const Words& words, pid_t parent, bool is_quiet)
{
    std::vector<const char*> argv{path.c_str()};
    for (const std::string& word : words)
        argv.push_back(word.c_str());
    argv.push_back(nullptr);
    // What it makes would go with this process.
    raw::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // Standard output is for the digest.
    if (is_quiet)
        ::dup2(STDERR_FILENO, STDOUT_FILENO);
    constexpr int failed = 126;
    if (::getppid() == parent)
        raw::execve(path.c_str(), argv.data(), environ);
    ::_exit(failed);
}

Result<int> execute(const std::string& path, const Words& words, bool is_quiet)
{
    const pid_t own = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0)
        return fail(cannot_build, errno, "fork");
    if (pid == 0)
        become(path, words, own, is_quiet);
    int status = 0;
    while (raw::wait4(pid, &status, 0) == -EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<Built> build_and_import(const Store& store, const std::string& script, Wish wish,
                               const Staging* staging)
{
    if (staging != nullptr) {
        wish.output = store.path() + "/staging/" + staging->name + "/built.tar.zst";
        wish.words.insert(wish.words.begin(), {"-o", *wish.output});
    }
    Built built;
    built.status = TRY(execute(script, wish.words, true));
    if (built.status != 0)
        return built;
    ImportRequest request;
    request.source = *wish.output;
    request.name = wish.name;
    if (staging != nullptr)
        request.called = "build" + (wish.rest.empty() ? "" : " " + wish.rest[0]);
    built.imported = TRY(import(store, request));
    return built;
}

}  // namespace

Result<Built> build_recipe(const std::string& store, const Words& words)
{
    Wish wish = TRY(understand(words));
    if (wish.name)
        TRY(check_name(*wish.name));
    const std::string script = TRY(find_script());
    if (!wish.name || wish.is_question) {
        Built built;
        built.status = TRY(execute(script, wish.words, false));
        return built;
    }
    const Store into = TRY(Store::open(store, Store::IfMissing::make));
    if (wish.output)
        return build_and_import(into, script, std::move(wish), nullptr);
    const Staging staging = TRY(into.stage());
    Result<Built> built = build_and_import(into, script, std::move(wish), &staging);
    TRY(discard(into, staging));
    return built;
}

}  // namespace nsbox::rootfs
