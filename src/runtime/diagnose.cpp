#include "runtime/diagnose.hpp"

#include "mount/mountinfo.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <linux/fs.h>
#include <linux/sched.h>
#include <string_view>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

using sys::read_file;

std::string first_line(const std::string& path)
{
    const std::string text = read_file(path);
    return text.substr(0, text.find('\n'));
}

bool exists(const char* path)
{
    return raw::faccessat(AT_FDCWD, path, F_OK) == 0;
}

/// A field of /proc/self/status, without the blanks in front.
std::string status_field(const std::string& name)
{
    const std::string text = "\n" + read_file("/proc/self/status");
    const std::size_t at = text.find("\n" + name + ":");
    if (at == std::string::npos)
        return {};
    const std::size_t begin = text.find_first_not_of(" \t", at + name.size() + 2);
    return text.substr(begin, text.find('\n', begin) - begin);
}

/// Calls `found` with the mount point of every line of the mount table until it says true.
template <class Found>
bool any_mount(Found found)
{
    const std::string table = read_file("/proc/self/mountinfo");
    std::size_t begin = 0;
    while (begin < table.size()) {
        const std::size_t end = table.find('\n', begin);
        std::string_view line{table.data() + begin,
                              (end == std::string::npos ? table.size() : end) - begin};
        const std::string_view whole = line;
        for (int field = 0; field < 4 && line.find(' ') != std::string_view::npos; ++field)
            line.remove_prefix(line.find(' ') + 1);
        std::string point{line.substr(0, line.find(' '))};
        mount::unescape(point.data());
        if (found(std::string_view{point.c_str()}, whole))
            return true;
        if (end == std::string::npos)
            break;
        begin = end + 1;
    }
    return false;
}

struct Limit {
    std::uint64_t flag;
    const char* file;
};
constexpr Limit limits[] = {
    {CLONE_NEWUSER, "/proc/sys/user/max_user_namespaces"},
    {CLONE_NEWNS, "/proc/sys/user/max_mnt_namespaces"},
    {CLONE_NEWPID, "/proc/sys/user/max_pid_namespaces"},
    {CLONE_NEWIPC, "/proc/sys/user/max_ipc_namespaces"},
    {CLONE_NEWNET, "/proc/sys/user/max_net_namespaces"},
    {CLONE_NEWUTS, "/proc/sys/user/max_uts_namespaces"},
    {CLONE_NEWCGROUP, "/proc/sys/user/max_cgroup_namespaces"},
};

bool in_container()
{
    return exists("/.dockerenv") || exists("/run/.containerenv") ||
           ::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
}

}  // namespace

std::string diagnose_chroot()
{
    if (!exists("/proc/self/mountinfo"))
        return {};
    if (any_mount([](std::string_view point, std::string_view) { return point == "/"; }))
        return {};
    return "you are in a chroot, whose root is not a mount point: start from the real root, or "
           "bind-mount the tree on itself and enter it with pivot_root instead of chroot";
}

std::string diagnose_apparmor()
{
    if (first_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") != "1")
        return {};
    return "AppArmor restricts unprivileged user namespaces: give this program a profile in "
           "/etc/apparmor.d with \"flags=(unconfined) { userns, }\" and load it with "
           "apparmor_parser -r, or set kernel.apparmor_restrict_unprivileged_userns=0";
}

std::string diagnose_userns_switch()
{
    if (first_line("/proc/sys/kernel/unprivileged_userns_clone") != "0")
        return {};
    return "unprivileged user namespaces are switched off: set "
           "kernel.unprivileged_userns_clone=1 with sysctl";
}

std::string diagnose_limits(std::uint64_t flags)
{
    for (const Limit& limit : limits)
        if ((flags & limit.flag) != 0 && first_line(limit.file) == "0")
            return std::string{"the limit in "} + limit.file +
                   " is 0: raise it, or you are inside a sandbox that forbids further ones";
    return "ENOSPC here means that namespaces are nested too deeply or that a limit of "
           "/proc/sys/user/max_*_namespaces ran out, here or in an outer sandbox";
}

std::string diagnose_seccomp()
{
    if (status_field("Seccomp") != "2")
        return {};
    std::string text = "a seccomp filter around this process forbids it";
    if (in_container())
        text += ": start the container with --security-opt seccomp=unconfined, or with a profile "
                "that allows clone, unshare, mount and pivot_root";
    else
        text += ": whoever installed it has to allow clone, unshare, mount and pivot_root";
    return text;
}

std::string diagnose_covered_proc()
{
    std::string which;
    any_mount([&](std::string_view point, std::string_view line) {
        const bool below =
            point.substr(0, 6) == "/proc/" && line.find(" - autofs ") == std::string_view::npos;
        const bool itself = point == "/proc" && (line.find(" ro,") != std::string_view::npos ||
                                                 line.find("hidepid=") != std::string_view::npos ||
                                                 line.find("subset=") != std::string_view::npos);
        if (below || itself)
            which = point;
        return !which.empty();
    });
    if (which.empty())
        return {};
    return which +
           " is covered or restricted here, for which the kernel refuses a new "
           "procfs: in Docker use --security-opt systempaths=unconfined, in Podman "
           "--security-opt unmask=ALL, in Kubernetes procMount: Unmasked, or bind the /proc "
           "that is there with --ro-bind /proc /proc";
}

namespace {

/// A file system that overlayfs refuses, or takes only for some purposes.
struct FileSystem {
    std::uint64_t magic;  ///< As statfs(2) has it.
    const char* name;
    bool upper;  ///< It can be an upper layer.
    bool lower;
};
constexpr FileSystem file_systems[] = {
    {0x794c7630, "overlay", false, true},  {0x6969, "nfs", false, true},
    {0xf15f, "ecryptfs", false, false},    {0x4d44, "vfat", false, false},
    {0x2011bab0, "exfat", false, false},   {0x65735546, "fuse", false, true},
    {0x01021997, "9p", false, true},       {0xff534d42, "cifs", false, true},
    {0xfe534d42, "smb3", false, true},     {0x5346544e, "ntfs", false, false},
    {0x7366746e, "ntfs3", false, false},   {0x9660, "iso9660", false, true},
    {0x73717368, "squashfs", false, true}, {0xe0f5e1e2, "erofs", false, true},
    {0x9fa0, "proc", false, false},        {0x62656572, "sysfs", false, true},
    {0x27e0eb, "cgroup", false, true},     {0x63677270, "cgroup2", false, true},
    {0x482b, "hfsplus", false, false},     {0x0187, "autofs", false, false},
};

const FileSystem* file_system_of(const char* path, struct ::statfs& system)
{
    if (::statfs(path, &system) < 0)
        return nullptr;
    for (const FileSystem& known : file_systems)
        if (known.magic == (static_cast<std::uint64_t>(system.f_type) & 0xffffffff))
            return &known;
    return nullptr;
}

/// Names are compared there without regard to case: overlayfs takes no such folder before Linux 6.17.
bool folds_case(const std::string& path)
{
    const sys::Fd folder{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    int flags = 0;
    return folder && raw::call(SYS_ioctl, folder.get(), FS_IOC_GETFLAGS, &flags) == 0 &&
           (flags & FS_CASEFOLD_FL) != 0;
}

bool is_elsewhere(const char* one, const char* other)
{
    struct ::stat a;
    struct ::stat b;
    return raw::fstatat(AT_FDCWD, one, &a, 0) == 0 && raw::fstatat(AT_FDCWD, other, &b, 0) == 0 &&
           a.st_dev != b.st_dev;
}

std::string mounts_below(const std::string& path)
{
    std::string list;
    int count = 0;
    const std::string above = path == "/" ? path : path + "/";
    any_mount([&](std::string_view point, std::string_view) {
        if (point != "/" && point.substr(0, above.size()) == above && ++count <= 3)
            list += (list.empty() ? "" : ", ") + std::string{point};
        return false;
    });
    if (list.empty())
        return {};
    return "the layer " + path + " has other mounts below it (" + list +
           (count > 3 ? ", ..." : "") +
           "), which an ordinary user may not leave out: use folders without mounts";
}

}  // namespace

std::string diagnose_lower(const std::string& path)
{
    struct ::statfs system;
    if (const FileSystem* const known = file_system_of(path.c_str(), system);
        known != nullptr && !known->lower)
        return "the layer " + path + " is on a file system (" + known->name +
               ") that no overlay takes: copy it to another";
    if (folds_case(path))
        return "the layer " + path +
               " makes no difference between large and small letters, which this kernel's "
               "overlayfs "
               "does not take: copy it to a folder that does";
    if (std::string text = mounts_below(path); !text.empty())
        return text;
    if (const FileSystem* const known = file_system_of(path.c_str(), system);
        known != nullptr && std::string_view{known->name} == "overlay")
        return "the layer " + path +
               " is on an overlay itself, and the kernel stacks no more than two: use one that is "
               "not";
    return {};
}

std::string diagnose_upper(const char* upper, const char* work, int err)
{
    if (upper == nullptr || (err != EINVAL && err != EROFS && err != EOPNOTSUPP))
        return {};
    const std::string folder = std::string{"the upper folder "} + upper;
    struct ::statfs system;
    if (const FileSystem* const known = file_system_of(upper, system);
        known != nullptr && !known->upper)
        return folder + " is on a file system (" + known->name +
               ") that cannot be an upper layer: use a folder on ext4, xfs, btrfs or tmpfs";
    if (::statfs(upper, &system) == 0 && (system.f_flags & ST_RDONLY) != 0)
        return folder + " is on a file system that is mounted read-only";
    if (work != nullptr && is_elsewhere(upper, work))
        return std::string{"the work folder "} + work + " is on another file system than " + folder;
    if (folds_case(upper))
        return folder + " makes no difference between large and small letters, which this kernel's "
                        "overlayfs does not take";
    return {};
}

std::string diagnose_security_module()
{
    if (first_line("/sys/fs/selinux/enforce") == "1")
        return "SELinux is enforcing and this process runs as " +
               first_line("/proc/self/attr/current");
    const std::string label = first_line("/proc/self/attr/current");
    if (!label.empty() && label != "unconfined")
        return "a security module confines this process as \"" + label +
               "\": in LXC set security.nesting=true";
    return {};
}

std::string diagnose_clone(std::uint64_t flags, int err)
{
    if (err == ENOSPC || err == EUSERS)
        return diagnose_limits(flags);
    if (err == EAGAIN)
        return "the limit on processes ran out: see ulimit -u and the pids controller";
    if (err == EINVAL)
        return (flags & CLONE_NEWUSER) != 0 && !exists("/proc/self/ns/user")
                   ? "this kernel has no user namespaces (CONFIG_USER_NS)"
                   : "this kernel lacks one of the namespaces that were asked for";
    if (err != EPERM && err != EACCES)
        return {};
    for (const auto probe : {diagnose_chroot, diagnose_apparmor, diagnose_userns_switch,
                             diagnose_seccomp, diagnose_security_module})
        if (std::string text = probe(); !text.empty())
            return text;
    if ((flags & CLONE_NEWUSER) == 0)
        return "this needs CAP_SYS_ADMIN: add --unshare-user to do without";
    return "the kernel does not let this user make user namespaces";
}

std::string diagnose_mount(int err)
{
    if (err == ENOSPC)
        return "the number of mounts is limited: see /proc/sys/fs/mount-max";
    if (err == EINVAL)
        return diagnose_chroot();
    if (err == EACCES) {
        if (std::string text = diagnose_apparmor(); !text.empty())
            return text;
        if (std::string text = diagnose_security_module(); !text.empty())
            return text;
        return "a refusal with EACCES comes from a security module (AppArmor, SELinux) or from "
               "a folder that may not be searched";
    }
    if (err == EPERM)
        return diagnose_seccomp();
    return {};
}

std::string diagnose_id_map(int err)
{
    if (err == EROFS)
        return "/proc is mounted read-only here, as in an outer sandbox with --ro-bind / /: the "
               "outer one has to give a writable /proc, with --proc /proc or --bind /proc /proc";
    if (err != EPERM && err != EACCES)
        return {};
    constexpr unsigned cap_setfcap = 31;
    const std::string effective = status_field("CapEff");
    if (::getuid() == 0 && (std::strtoull(effective.c_str(), nullptr, 16) >> cap_setfcap & 1) == 0)
        return "uid 0 needs CAP_SETFCAP to map itself into a user namespace (user_namespaces(7))";
    return diagnose_apparmor();
}

std::string diagnose_resources(int err)
{
    switch (err) {
    case EMFILE:
        return "this process has too many open descriptors: see ulimit -n";
    case ENFILE:
        return "the system has too many open files: see /proc/sys/fs/file-max";
    case EAGAIN:
        return "the limit on processes ran out: see ulimit -u and the pids controller";
    case ENOMEM:
        return "there is not enough memory, or a limit on it ran out";
    default:
        return {};
    }
}

}  // namespace nsbox::runtime
