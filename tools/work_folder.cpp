#include "work_folder.hpp"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace nsbox::tool {

namespace {

/// A folder by its name, though its mode be against it; -1 where it is none.
int open_folder(int parent, const char* name)
{
    constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const int handle = ::openat(parent, name, O_PATH | flags);
    if (handle < 0)
        return -1;
    const std::string link = "/proc/self/fd/" + std::to_string(handle);
    (void)::chmod(link.c_str(), 0700);
    const int folder = ::openat(parent, name, O_RDONLY | flags);
    ::close(handle);
    return folder;
}

std::vector<std::string> names_in(int folder)
{
    std::vector<std::string> names;
    const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
    if (list == nullptr)
        return names;
    while (const dirent* const entry = ::readdir(list))
        if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
            names.emplace_back(entry->d_name);
    ::closedir(list);
    return names;
}

/// Empties the folders right below `top`; what folders are in these move up, so that no tree is too deep.
/// Whether anything has changed.
bool flatten(int top, unsigned& moved)
{
    bool is_progress = false;
    for (const std::string& name : names_in(top)) {
        if (::unlinkat(top, name.c_str(), 0) == 0 ||
            ::unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0) {
            is_progress = true;
            continue;
        }
        const int folder = open_folder(top, name.c_str());
        if (folder < 0)
            continue;
        for (const std::string& inner : names_in(folder)) {
            if (::unlinkat(folder, inner.c_str(), 0) == 0) {
                is_progress = true;
                continue;
            }
            // The kernel changes ".." in what moves: it has to be writable.
            ::close(open_folder(folder, inner.c_str()));
            const std::string other = "nsbox-removed-" + std::to_string(moved++);
            is_progress |= ::renameat(folder, inner.c_str(), top, other.c_str()) == 0;
        }
        ::close(folder);
        is_progress |= ::unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0;
    }
    return is_progress;
}

/// Waits for the end of the process that holds the other end, and clears up.
[[noreturn]] void guard(const std::string& path, int lifeline)
{
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    (void)::prctl(PR_SET_PDEATHSIG, 0);
    // What is mounted where the caller was must not be kept busy.
    if (::chdir("/") < 0)
        ::_exit(1);
    if (lifeline != STDIN_FILENO)
        ::dup2(lifeline, STDIN_FILENO);
    for (int fd = 1, most = 1024; fd < most; ++fd)
        ::close(fd);
    char word = 0;
    while (::read(STDIN_FILENO, &word, 1) < 0 && errno == EINTR) {
    }
    // What was started there is being ended at the same time.
    constexpr int tries = 50;
    for (int i = 0; i < tries && !remove_folder(path); ++i)
        ::usleep(100000);
    ::_exit(0);
}

}  // namespace

bool remove_folder(const std::string& path)
{
    const int top = open_folder(AT_FDCWD, path.c_str());
    if (top < 0)
        return errno == ENOENT;
    unsigned moved = 0;
    while (flatten(top, moved)) {
    }
    ::close(top);
    return ::rmdir(path.c_str()) == 0 || errno == ENOENT;
}

std::optional<WorkFolder> WorkFolder::make()
{
    const char* const wished = std::getenv("TMPDIR");
    std::string name =
        std::string{wished != nullptr && wished[0] == '/' ? wished : "/tmp"} + "/nsbox-XXXXXX";
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return std::nullopt;
    if (::mkdtemp(name.data()) == nullptr) {
        const int error = errno;
        ::close(ends[0]);
        ::close(ends[1]);
        errno = error;
        return std::nullopt;
    }
    char* const real = ::realpath(name.c_str(), nullptr);
    if (real != nullptr)
        name = real;
    std::free(real);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::close(ends[1]);
        guard(name, ends[0]);
    }
    ::close(ends[0]);
    // Without a guard this process does it alone.
    return WorkFolder{std::move(name), ends[1], pid};
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept
    : path_(std::move(other.path_)), lifeline_(other.lifeline_), guard_(other.guard_)
{
    other.lifeline_ = -1;
}

WorkFolder::~WorkFolder()
{
    if (lifeline_ < 0)
        return;
    ::close(lifeline_);
    while (guard_ > 0 && ::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
    (void)remove_folder(path_);
}

}  // namespace nsbox::tool
