#include "runtime/denials/look.hpp"

#include "sys/raw.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

constexpr unsigned net_bind_service = 10;  // CAP_NET_BIND_SERVICE, capabilities(7)

/// Places that mean something else to every process, where looking from outside tells nothing.
bool is_ones_own(const std::string& path)
{
    for (const char* const begin : {"/proc/self", "/proc/thread-self", "/dev/fd", "/dev/std"})
        if (path.starts_with(begin))
            return true;
    return false;
}

bool is_below(const std::string& path, const std::string& folder)
{
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string parent_of(const std::string& path)
{
    const std::size_t end = path.find_last_not_of('/');
    const std::size_t slash = end == std::string::npos ? 0 : path.rfind('/', end);
    return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

bool has_flag(const sys::Fd& file, unsigned long flag)
{
    struct statvfs status;
    return ::fstatvfs(file.get(), &status) == 0 && (status.f_flag & flag) != 0;
}

/// What a file of the sandbox is on the host, by the same path.
enum class OnHost { missing, another, the_same };

OnHost on_host(const std::string& path, const struct stat* inside)
{
    struct stat outside;
    if (raw::fstatat(AT_FDCWD, path.c_str(), &outside, 0) < 0)
        return OnHost::missing;
    return inside != nullptr && outside.st_dev == inside->st_dev && outside.st_ino == inside->st_ino
               ? OnHost::the_same
               : OnHost::another;
}

/// One look at a call.
class Look {
public:
    Look(const Watched& watched, const seccomp_data& call, const Process& process,
         const DenialContext& context)
        : watched_(watched), call_(call), process_(process), context_(context)
    {}

    std::optional<Refusal> at_files()
    {
        if (watched_.second_path >= 0)
            if (std::optional<Refusal> found =
                    at_path(watched_.second_folder, watched_.second_path))
                return found;
        return at_path(watched_.folder, watched_.path);
    }

    std::optional<Refusal> at_address() const
    {
        constexpr std::uint64_t longest = 128;
        const std::uint64_t size = std::min<std::uint64_t>(call_.args[2] & 0xffffffff, longest);
        if (size < sizeof(sa_family_t))
            return std::nullopt;
        const std::optional<std::string> bytes =
            process_.memory(call_.args[static_cast<std::size_t>(watched_.path)], size);
        if (!bytes)
            return std::nullopt;
        sockaddr_storage address{};
        std::memcpy(&address, bytes->data(), bytes->size());
        if (address.ss_family == AF_UNIX)
            return at_unix(*bytes);
        if (address.ss_family != AF_INET && address.ss_family != AF_INET6)
            return std::nullopt;
        return watched_.deed == Deed::bind ? at_bind(address) : at_connect(address);
    }

private:
    std::uint64_t argument(int number) const
    {
        return call_.args[static_cast<std::size_t>(number)];
    }

    std::optional<Refusal> at_path(int folder, int path) const
    {
        const std::optional<std::string> text = process_.text(argument(path));
        if (!text || text->empty())
            return std::nullopt;
        const int descriptor = folder < 0 ? AT_FDCWD : static_cast<int>(argument(folder));
        const std::string absolute = process_.absolute(descriptor, *text);
        if (absolute.empty() || is_ones_own(absolute))
            return std::nullopt;
        switch (watched_.deed) {
        case Deed::open:
            return at_open(absolute);
        case Deed::execute:
            return at_execute(absolute);
        case Deed::change_entry:
            return at_entry(absolute);
        default:
            return at_change(absolute);
        }
    }

    std::optional<std::uint64_t> open_flags() const
    {
        if (watched_.flags < 0)
            return O_CREAT | O_WRONLY | O_TRUNC;  // creat(2)
        if (std::strcmp(watched_.name, "openat2") != 0)
            return argument(watched_.flags);
        const std::optional<std::string> how =
            process_.memory(argument(watched_.flags), sizeof(std::uint64_t));
        if (!how)
            return std::nullopt;
        std::uint64_t flags = 0;
        std::memcpy(&flags, how->data(), sizeof flags);
        return flags;
    }

    std::optional<Refusal> at_open(const std::string& path) const
    {
        const std::optional<std::uint64_t> wanted = open_flags();
        if (!wanted)
            return std::nullopt;
        const auto flags = static_cast<int>(*wanted);
        const bool is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
        const sys::Fd file = process_.open(path, flags & O_NOFOLLOW);
        if (!file && file.error() == -ENOENT && (flags & O_CREAT) != 0 &&
            process_.open(parent_of(path)))
            return at_entry(path);
        if (!file)
            return missing(path, -file.error());
        struct stat status;
        if (raw::fstat(file.get(), &status) < 0 || (flags & O_PATH) != 0 ||
            (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
            return std::nullopt;
        const int access = flags & O_ACCMODE;
        const bool writes = access != O_RDONLY || (flags & O_TRUNC) != 0;
        if (S_ISDIR(status.st_mode) && writes && !is_unnamed)
            return std::nullopt;
        if (writes && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) &&
            has_flag(file, ST_RDONLY))
            return read_only(path, path, status);
        if ((S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) && has_flag(file, ST_NODEV))
            return no_device(path, status);
        const unsigned bits = (access != O_WRONLY ? 4U : 0U) | (writes ? 2U : 0U);
        if (!process_.may(status, bits))
            return by_mode(path, writes ? "writing" : "reading");
        return std::nullopt;
    }

    std::optional<Refusal> at_execute(const std::string& path) const
    {
        const sys::Fd file = process_.open(path);
        if (!file)
            return missing(path, -file.error());
        struct stat status;
        if (raw::fstat(file.get(), &status) < 0 || !S_ISREG(status.st_mode))
            return std::nullopt;
        if (has_flag(file, ST_NOEXEC))
            return Refusal{EACCES, path, "mount", "nothing is executed from this mount (noexec)",
                           ""};
        if ((status.st_mode & 0111) == 0 || !process_.may(status, 1))
            return by_mode(path, "executing");
        return std::nullopt;
    }

    /// A name in a folder is made or taken away.
    std::optional<Refusal> at_entry(const std::string& path) const
    {
        const std::string above = parent_of(path);
        const sys::Fd folder = process_.open(above);
        if (!folder)
            return folder.error() == -EACCES ? missing(above, EACCES) : std::nullopt;
        struct stat status;
        if (raw::fstat(folder.get(), &status) < 0 || !S_ISDIR(status.st_mode))
            return std::nullopt;
        // One that makes what is there already is told that.
        const bool is_there = static_cast<bool>(process_.open(path, O_NOFOLLOW));
        const bool takes_away =
            std::strncmp(watched_.name, "un", 2) == 0 || std::strncmp(watched_.name, "r", 1) == 0;
        if (watched_.deed == Deed::change_entry && is_there != takes_away &&
            std::strncmp(watched_.name, "rename", 6) != 0)
            return std::nullopt;
        if (has_flag(folder, ST_RDONLY))
            return read_only(path, above, status);
        if (!process_.may(status, 3))
            return by_mode(path, "changing the folder that it is in");
        return std::nullopt;
    }

    /// A file's length, mode or owner.
    std::optional<Refusal> at_change(const std::string& path) const
    {
        const sys::Fd file = process_.open(path);
        if (!file)
            return missing(path, -file.error());
        struct stat status;
        if (raw::fstat(file.get(), &status) < 0)
            return std::nullopt;
        if (has_flag(file, ST_RDONLY))
            return read_only(path, path, status);
        if (std::strcmp(watched_.name, "truncate") == 0 && !process_.may(status, 2))
            return by_mode(path, "writing");
        return std::nullopt;
    }

    /// What is not there at all is no denial, unless it is there on the host.
    std::optional<Refusal> missing(const std::string& path, int error) const
    {
        if (error == EACCES && process_.has_other_rights())
            return std::nullopt;
        if (error == EACCES)
            return Refusal{EACCES, path, "permissions",
                           "a folder above it may not be searched by the command's user", ""};
        if (error != ENOENT || is_below(path, "/proc") || on_host(path, nullptr) == OnHost::missing)
            return std::nullopt;
        return Refusal{ENOENT, path, "mount", "it exists on the host and is not shown", show(path)};
    }

    /// `place`: what has to be shown so that it can be written.
    Refusal read_only(const std::string& path, const std::string& place,
                      const struct stat& status) const
    {
        if (is_below(path, "/proc") || is_below(path, "/sys"))
            return {EROFS, path, "cover", "this part of it is covered, read-only", ""};
        if (on_host(place, &status) == OnHost::the_same)
            return {EROFS, path, "mount", "it is shown read-only", show_writable(place)};
        if (context_.names_run_options && context_.has_root)
            return {EROFS, path, "mount", "the root filesystem is read-only", "--overlay"};
        return {EROFS, path, "mount", "it lies on a read-only mount",
                "--tmpfs " + (S_ISDIR(status.st_mode) ? place : parent_of(place))};
    }

    Refusal no_device(const std::string& path, const struct stat& status) const
    {
        if (is_below(path, "/proc"))
            return {EACCES, path, "cover", "it is covered", ""};
        const bool is_same = on_host(path, &status) == OnHost::the_same;
        return {EACCES, path, "mount", "devices cannot be opened on this mount (nodev)",
                is_same ? "--dev-bind " + path + " " + path : std::string{}};
    }

    static Refusal by_mode(const std::string& path, const char* what)
    {
        return {EACCES, path, "permissions",
                std::string{"its owner and mode refuse "} + what + " to the command's user", ""};
    }

    std::string show(const std::string& path) const
    {
        return context_.names_run_options ? "--ro " + path : "--ro-bind " + path + " " + path;
    }

    std::string show_writable(const std::string& path) const
    {
        return context_.names_run_options ? "--rw " + path : "--bind " + path + " " + path;
    }

    // Sockets.

    std::optional<Refusal> at_unix(const std::string& bytes) const
    {
        constexpr std::size_t offset = offsetof(sockaddr_un, sun_path);
        // One without a name, or with one that is no path.
        if (bytes.size() <= offset || bytes[offset] == '\0')
            return std::nullopt;
        const std::string path =
            process_.absolute(AT_FDCWD, bytes.substr(offset, bytes.find('\0', offset) - offset));
        if (path.empty() || is_ones_own(path))
            return std::nullopt;
        if (watched_.deed == Deed::bind)
            return at_entry(path);
        const sys::Fd file = process_.open(path);
        if (!file)
            return missing(path, -file.error());
        struct stat status;
        if (raw::fstat(file.get(), &status) == 0 && S_ISSOCK(status.st_mode) &&
            !process_.may(status, 2))
            return by_mode(path, "writing");
        return std::nullopt;
    }

    static std::uint16_t port_of(const sockaddr_storage& address)
    {
        // At the same place in both.
        return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    }

    static std::string text_of(const sockaddr_storage& address)
    {
        char text[INET6_ADDRSTRLEN] = "?";
        const bool is_six = address.ss_family == AF_INET6;
        const void* const bytes =
            is_six ? static_cast<const void*>(
                         &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
                   : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
        ::inet_ntop(address.ss_family, bytes, text, sizeof text);
        return (is_six ? "[" + std::string{text} + "]" : std::string{text}) + ":" +
               std::to_string(port_of(address));
    }

    /// 127.0.0.0/8, ::1, ::ffff:127.0.0.0/104, and the addresses of "nobody", which mean the same.
    static bool is_loopback(const sockaddr_storage& address)
    {
        constexpr std::uint32_t eight_bits = 24;
        if (address.ss_family == AF_INET) {
            const auto number =
                ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
            return number >> eight_bits == 127 || number == 0;
        }
        const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) ||
               (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
    }

    std::optional<Refusal> at_connect(const sockaddr_storage& address) const
    {
        if (is_loopback(address) || context_.network == NetworkWall::none)
            return std::nullopt;
        const std::string object = text_of(address);
        if (context_.network == NetworkWall::loopback_only)
            return Refusal{ENETUNREACH, object, "network",
                           "the sandbox has no network but its own loopback",
                           context_.network_option};
        if (object.starts_with("10.0.2.2:") || object.starts_with("[fd00::2]:"))
            return at_gateway(port_of(address), object);
        if (context_.network == NetworkWall::translated)
            return std::nullopt;
        return Refusal{EHOSTUNREACH, object, "network",
                       "no connection to the outside is let through (outbound=off)",
                       context_.network_option};
    }

    /// The host's own loopback, by its address in a user-mode network.
    std::optional<Refusal> at_gateway(std::uint16_t port, const std::string& object) const
    {
        const bool is_open = std::any_of(
            context_.host_loopback.begin(), context_.host_loopback.end(),
            [&](const Ports& ports) { return port >= ports.first && port <= ports.last; });
        if (is_open)
            return std::nullopt;
        return Refusal{EHOSTUNREACH, object, "network", "the host's loopback is out of reach",
                       "--host-loopback " + std::to_string(port)};
    }

    /// A network of nsbox's making lets everybody have these.
    std::optional<Refusal> at_bind(const sockaddr_storage& address) const
    {
        // As a new network namespace has it: ip(7), ip_unprivileged_port_start.
        constexpr std::uint16_t first_free = 1024;
        const std::uint16_t port = port_of(address);
        if (context_.network != NetworkWall::loopback_only || port == 0 || port >= first_free ||
            process_.has_capability(net_bind_service))
            return std::nullopt;
        return Refusal{EACCES, text_of(address), "capability",
                       "ports below 1024 take CAP_NET_BIND_SERVICE over the network's namespace",
                       "--net user,outbound=off"};
    }

    const Watched& watched_;
    const seccomp_data& call_;
    const Process& process_;
    const DenialContext& context_;
};

}  // namespace

const char* name_of(Deed deed)
{
    switch (deed) {
    case Deed::open:
        return "open";
    case Deed::execute:
        return "execute";
    case Deed::connect:
        return "connect";
    case Deed::bind:
        return "bind";
    default:
        return "change";
    }
}

const std::vector<Watched>& watched_calls()
{
    static const std::vector<Watched> calls{
        {"open", Deed::open, -1, 0, 1},
        {"openat", Deed::open, 0, 1, 2},
        {"openat2", Deed::open, 0, 1, 2},
        {"creat", Deed::open, -1, 0, -1},
        {"execve", Deed::execute, -1, 0, -1},
        {"execveat", Deed::execute, 0, 1, -1},
        {"mkdir", Deed::change_entry, -1, 0, -1},
        {"mkdirat", Deed::change_entry, 0, 1, -1},
        {"mknod", Deed::change_entry, -1, 0, -1},
        {"mknodat", Deed::change_entry, 0, 1, -1},
        {"rmdir", Deed::change_entry, -1, 0, -1},
        {"unlink", Deed::change_entry, -1, 0, -1},
        {"unlinkat", Deed::change_entry, 0, 1, -1},
        {"symlink", Deed::change_entry, -1, 1, -1},
        {"symlinkat", Deed::change_entry, 1, 2, -1},
        {"link", Deed::change_entry, -1, 1, -1},
        {"linkat", Deed::change_entry, 2, 3, -1},
        {"rename", Deed::change_entry, -1, 0, -1, -1, 1},
        {"renameat", Deed::change_entry, 0, 1, -1, 2, 3},
        {"renameat2", Deed::change_entry, 0, 1, -1, 2, 3},
        {"truncate", Deed::change_file, -1, 0, -1},
        {"chmod", Deed::change_file, -1, 0, -1},
        {"fchmodat", Deed::change_file, 0, 1, -1},
        {"chown", Deed::change_file, -1, 0, -1},
        {"lchown", Deed::change_file, -1, 0, -1},
        {"fchownat", Deed::change_file, 0, 1, -1},
        {"connect", Deed::connect, -1, 1, -1},
        {"bind", Deed::bind, -1, 1, -1},
    };
    return calls;
}

std::optional<Refusal> look_at(const Watched& watched, const seccomp_data& call,
                               const Process& process, const DenialContext& context)
{
    Look look{watched, call, process, context};
    if (watched.deed == Deed::connect || watched.deed == Deed::bind)
        return look.at_address();
    return look.at_files();
}

}  // namespace nsbox::runtime
