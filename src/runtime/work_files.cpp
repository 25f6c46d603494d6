#include "runtime/state.hpp"

#include "sys/raw.hpp"

#include <cstdio>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nsbox {

namespace {

namespace raw = sys::raw;
using sys::Fd;

/// What runs in the sandbox can put anything in the way, at any moment: nothing of it is followed.
Fd open_below(int folder, const std::string& path, std::uint64_t flags, unsigned mode = 0)
{
    constexpr std::uint64_t resolve =
        RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    return Fd{raw::openat2(folder, path.c_str(), flags | O_CLOEXEC, resolve, mode)};
}

/// The folder that `path` is in, with those that are missing made; the name in it is what is left of `path`.
Fd open_folder_of(int folder, std::string& path)
{
    constexpr unsigned folder_mode = 0755;
    Fd here = open_below(folder, ".", O_PATH | O_DIRECTORY);
    std::size_t begin = 0;
    for (std::size_t slash = 0; here && (slash = path.find('/', begin)) != std::string::npos;
         begin = slash + 1) {
        // From the top, so that ".." may lead back, but not out.
        Fd next = open_below(folder, path.substr(0, slash), O_PATH | O_DIRECTORY);
        if (next.error() == -ENOENT) {
            raw::mkdirat(here.get(), path.substr(begin, slash - begin).c_str(), folder_mode);
            next = open_below(folder, path.substr(0, slash), O_PATH | O_DIRECTORY);
        }
        here = std::move(next);
    }
    path.erase(0, begin);
    return here;
}

bool is_plain(int file)
{
    struct ::stat status {};
    return raw::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

Result<int> directory_of(const Serving* serving, const Fd& directory, Literal cannot,
                         const std::string& path)
{
    if (serving == nullptr || !directory)
        return fail(cannot, ENOTSUP, path, "make the sandbox with Sandbox::create()");
    if (serving->is_closed)
        return fail(cannot, ESRCH, path, "the sandbox has been closed");
    if (path.empty() || path.front() == '/')
        return refuse(cannot, path, "a path below the working directory is relative");
    return directory.get();
}

int fill(int file, std::string_view content, unsigned mode)
{
    for (std::size_t done = 0; done < content.size();) {
        const long put = raw::write(file, content.data() + done, content.size() - done);
        if (put < 0 && put != -EINTR)
            return static_cast<int>(put);
        done += put > 0 ? static_cast<std::size_t>(put) : 0;
    }
    return raw::fchmod(file, mode);
}

/// The file appears whole or not at all. What is in its place is replaced, and not followed.
int write_whole(int folder, const std::string& name, std::string_view content, unsigned mode)
{
    std::uint64_t random = 0;
    if (raw::call(SYS_getrandom, &random, sizeof random, 0) != sizeof random)
        return -EIO;
    const std::string fresh = ".nsbox-" + std::to_string(random);
    const Fd file = open_below(folder, fresh, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0600);
    if (!file)
        return file.error();
    int rc = fill(file.get(), content, mode);
    if (rc == 0 && ::renameat(folder, fresh.c_str(), folder, name.c_str()) < 0)
        rc = -errno;
    if (rc < 0)
        raw::unlinkat(folder, fresh.c_str(), 0);
    return rc;
}

}  // namespace

Result<> Sandbox::write_file(const std::string& path, std::string_view content, unsigned mode) const
{
    constexpr Literal cannot{"Can't write"};
    std::string name = path;
    const int directory =
        TRY(directory_of(state_->serving.get(), state_->running.directory, cannot, path));
    const Fd folder = open_folder_of(directory, name);
    if (!folder)
        return fail(cannot, -folder.error(), path);
    if (name.empty() || name == "." || name == "..")
        return fail(cannot, EISDIR, path);
    constexpr unsigned all_permissions = 0777;
    if (const int rc = write_whole(folder.get(), name, content, mode & all_permissions); rc < 0)
        return fail(cannot, -rc, path);
    return {};
}

Result<std::string> Sandbox::read_file(const std::string& path, std::size_t most) const
{
    constexpr Literal cannot{"Can't read"};
    const int directory =
        TRY(directory_of(state_->serving.get(), state_->running.directory, cannot, path));
    const Fd file = open_below(directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!file)
        return fail(cannot, -file.error(), path);
    if (!is_plain(file.get()))
        return refuse(cannot, path, "it is no plain file");
    std::string text;
    char buffer[65536];
    for (;;) {
        const long got = raw::read(file.get(), buffer, sizeof buffer);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail(cannot, static_cast<int>(-got), path);
        if (got == 0)
            return text;
        if (text.size() + static_cast<std::size_t>(got) > most)
            return fail(cannot, EFBIG, path);
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

}  // namespace nsbox
