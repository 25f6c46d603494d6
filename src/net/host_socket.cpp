#include "net/host_socket.hpp"

#include "sys/raw.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace nsbox::net {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_make{"Can't make the unix socket"};

Fd stream_socket()
{
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return Fd{fd < 0 ? -errno : fd};
}

/// The address of a name in a folder, or of what is open: a path of any length can be had so.
bool address_below(int fd, const std::string& name, sockaddr_un& address)
{
    const std::string path = "/proc/self/fd/" + std::to_string(fd) + name;
    address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return false;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    return true;
}

Fd bind_below(int folder, const std::string& name)
{
    sockaddr_un address;
    if (!address_below(folder, "/" + name, address))
        return Fd{-ENAMETOOLONG};
    Fd socket = stream_socket();
    if (socket &&
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return Fd{-errno};
    return socket;
}

/// The folder that a path is in, and the name there.
Result<Fd> open_folder_of(const std::string& path, Literal what, std::string& name)
{
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    Fd result{raw::openat(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!result)
        return fail(what, -result.error(), path, "its folder has to be there");
    name = path.substr(slash == std::string::npos ? 0 : slash + 1);
    if (name.empty())
        return refuse(what, path, "it is the name of a folder");
    return result;
}

}  // namespace

Result<HostSocket> HostSocket::make(const std::string& path)
{
    HostSocket made;
    std::string name;
    made.folder_ = TRY(open_folder_of(path, cannot_make, name));
    made.socket_ = bind_below(made.folder_.get(), name);
    if (!made.socket_) {
        const int error = -made.socket_.error();
        return fail(cannot_make, error, path,
                    error == EADDRINUSE ? "the path exists; if no program uses it, remove it" : "");
    }
    made.name_ = name;
    return made;
}

HostSocket::HostSocket(HostSocket&& other) noexcept
    : folder_(std::move(other.folder_)), name_(std::exchange(other.name_, {})),
      socket_(std::move(other.socket_))
{}

HostSocket& HostSocket::operator=(HostSocket&& other) noexcept
{
    std::swap(folder_, other.folder_);
    std::swap(name_, other.name_);
    std::swap(socket_, other.socket_);
    return *this;
}

HostSocket::~HostSocket()
{
    struct ::stat status;
    // Somebody may have put something else there.
    if (!name_.empty() &&
        raw::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISSOCK(status.st_mode))
        raw::unlinkat(folder_.get(), name_.c_str(), 0);
}

Fd HostSocket::take()
{
    if (socket_)
        return std::move(socket_);
    // A name that nobody foresees, and takes before.
    std::uint64_t random = 0;
    (void)!::getrandom(&random, sizeof random, 0);
    const std::string fresh = ".nsbox-" + std::to_string(random);
    Fd socket = bind_below(folder_.get(), fresh);
    if (socket && ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name_.c_str()) < 0) {
        const int error = errno;
        raw::unlinkat(folder_.get(), fresh.c_str(), 0);
        return Fd{-error};
    }
    return socket;
}

Result<SocketPlace> SocketPlace::find(const std::string& path)
{
    constexpr Literal cannot_use{"Can't lead to the unix socket"};
    std::string name;
    Fd folder = TRY(open_folder_of(path, cannot_use, name));
    struct ::stat status;
    if (raw::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
        return fail(cannot_use, ELOOP, path, "name the socket itself");
    return SocketPlace{std::move(folder), std::move(name)};
}

Fd SocketPlace::connect() const
{
    const Fd file{raw::openat(folder_.get(), name_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct ::stat status;
    if (!file || raw::fstat(file.get(), &status) < 0)
        return Fd{file ? -EIO : file.error()};
    if (!S_ISSOCK(status.st_mode))
        return Fd{S_ISLNK(status.st_mode) ? -ELOOP : -ECONNREFUSED};
    sockaddr_un address;
    Fd socket = stream_socket();
    if (!socket || !address_below(file.get(), "", address))
        return socket ? Fd{-ENAMETOOLONG} : std::move(socket);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return Fd{-errno};
    return socket;
}

}  // namespace nsbox::net
