#include "runtime/registry.hpp"

#include "sys/raw.hpp"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <memory>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

constexpr const char* suffix = ".sock";

bool is_own_folder(const std::string& path)
{
    struct ::stat status;
    return raw::fstatat(AT_FDCWD, path.c_str(), &status, 0) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == ::geteuid();
}

std::string choose_path()
{
    const char* const wish = ::getenv("XDG_RUNTIME_DIR");
    if (wish != nullptr && wish[0] == '/' && is_own_folder(wish))
        return std::string{wish} + "/nsbox";
    const std::string id = std::to_string(::geteuid());
    if (is_own_folder("/run/user/" + id))
        return "/run/user/" + id + "/nsbox";
    return ::geteuid() == 0 ? "/run/nsbox" : "/tmp/nsbox-" + id;
}

}  // namespace

std::string socket_name(const std::string& key)
{
    return key + suffix;
}

Result<Registry> Registry::open()
{
    Registry registry;
    registry.path = choose_path();
    const char* const path = registry.path.c_str();
    const int rc = raw::mkdirat(AT_FDCWD, path, 0700);
    if (rc < 0 && rc != -EEXIST)
        return fail("Can't make the folder of running sandboxes", -rc, registry.path,
                    "set XDG_RUNTIME_DIR to a folder of yours");
    registry.folder =
        sys::Fd{raw::openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    struct ::stat status;
    const int seen =
        registry.folder ? raw::fstat(registry.folder.get(), &status) : registry.folder.error();
    if (seen < 0)
        return fail("Can't open the folder of running sandboxes", -seen, registry.path);
    // In /tmp anyone may have been there first.
    if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
        return refuse("Can't use the folder of running sandboxes", registry.path,
                      "it belongs to another user, or others may enter it",
                      "remove it, or set XDG_RUNTIME_DIR to a folder of yours");
    return registry;
}

std::vector<std::string> Registry::keys() const
{
    std::vector<std::string> keys;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries{::opendir(path.c_str()), ::closedir};
    while (entries) {
        const dirent* const entry = ::readdir(entries.get());
        if (entry == nullptr)
            break;
        const std::string name = entry->d_name;
        const std::size_t end = name.rfind(suffix);
        if (end != std::string::npos && end > 0 && end + 5 == name.size())
            keys.push_back(name.substr(0, end));
    }
    std::sort(keys.begin(), keys.end());
    return keys;
}

std::string Registry::address(const std::string& key) const
{
    return "/proc/self/fd/" + std::to_string(folder.get()) + "/" + socket_name(key);
}

void Registry::remove(const std::string& key) const
{
    raw::unlinkat(folder.get(), socket_name(key).c_str(), 0);
}

sys::Fd Registry::lock(std::chrono::milliseconds patience) const
{
    constexpr std::chrono::milliseconds pause{1};
    sys::Fd fd{raw::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    const auto end = std::chrono::steady_clock::now() + patience;
    while (fd) {
        const long rc = raw::call(SYS_flock, fd.get(), LOCK_EX | LOCK_NB);
        if (rc == 0)
            break;
        if (rc != -EINTR && (rc != -EWOULDBLOCK || std::chrono::steady_clock::now() >= end))
            return sys::Fd{static_cast<int>(rc)};
        std::this_thread::sleep_for(pause);
    }
    return fd;
}

}  // namespace nsbox::runtime
