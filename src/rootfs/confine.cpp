#include "rootfs/confine.hpp"

#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <optional>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr std::array programs{"newuidmap", "newgidmap"};

std::string find_in_path(const std::string& name)
{
    const char* const value = ::getenv("PATH");
    std::string path = value != nullptr ? value : "";
    path += ":/usr/bin:/bin";
    for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find(':', at), path.size());
        std::string file = path.substr(at, end - at) + "/" + name;
        at = end + 1;
        if (file[0] == '/' && file[1] != '\0' && raw::faccessat(AT_FDCWD, file.c_str(), X_OK) == 0)
            return file;
    }
    return {};
}

std::vector<std::string> split(const std::string& text, char separator)
{
    std::vector<std::string> parts{""};
    for (const char c : text)
        if (c == separator)
            parts.emplace_back();
        else
            parts.back() += c;
    return parts;
}

std::optional<std::uint32_t> number(const std::string& text)
{
    std::uint32_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || rest != end || text.empty())
        return std::nullopt;
    return value;
}

std::string user_name()
{
    std::string id = std::to_string(raw::getuid());
    for (const std::string& line : split(sys::read_file("/etc/passwd"), '\n')) {
        const std::vector<std::string> fields = split(line, ':');
        if (fields.size() > 2 && fields[2] == id)
            return fields[0];
    }
    return id;
}

/// The first range that is large enough. See subuid(5).
std::optional<std::uint32_t> first_subordinate(const char* path, const std::string& user)
{
    const std::string id = std::to_string(raw::getuid());
    for (const std::string& line : split(sys::read_file(path), '\n')) {
        const std::vector<std::string> fields = split(line, ':');
        if (fields.size() != 3 || (fields[0] != user && fields[0] != id))
            continue;
        const std::optional<std::uint32_t> first = number(fields[1]);
        const std::optional<std::uint32_t> count = number(fields[2]);
        if (first && count && *count >= subordinate_count)
            return first;
    }
    return std::nullopt;
}

Result<> run_map_program(const char* name, pid_t pid, std::uint32_t first, std::uint32_t own)
{
    const std::string path = find_in_path(name);
    std::vector<std::string> words{name, std::to_string(pid)};
    for (const std::uint32_t value :
         {std::uint32_t{0}, first, subordinate_count, caller_id, own, std::uint32_t{1}})
        words.push_back(std::to_string(value));
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd <= 2; ++fd)
        ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    pid_t child = -1;
    const int rc = ::posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    if (rc == 0)
        while (raw::wait4(child, &status, 0) == -EINTR) {
        }
    if (rc != 0 || status != 0)
        return refuse(cannot_confine, name, "it cannot map the subordinate ids",
                      "it has to be setuid root; --owners recorded does without");
    return {};
}

Result<> write_map(pid_t pid, const char* name, const std::string& text)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CLOEXEC)};
    const long put = file ? raw::write(file.get(), text.data(), text.size()) : file.error();
    if (put < 0)
        return fail(cannot_confine, static_cast<int>(-put), path);
    return {};
}

/// The ids that this process has, see user_namespaces(7).
std::vector<IdSet::Range> own_ids(const char* path)
{
    std::vector<IdSet::Range> ranges;
    for (const std::string& line : split(sys::read_file(path), '\n')) {
        std::vector<std::string> words = split(line, ' ');
        std::erase(words, "");
        if (words.size() != 3)
            continue;
        const std::optional<std::uint32_t> first = number(words[0]);
        const std::optional<std::uint32_t> count = number(words[2]);
        if (first && count)
            ranges.push_back({*first, *count});
    }
    return ranges;
}

std::string identity_map(const char* path)
{
    std::string map;
    for (const auto& [first, count] : own_ids(path))
        map += std::to_string(first) + " " + std::to_string(first) + " " + std::to_string(count) +
               "\n";
    return map;
}

Result<> write_maps(pid_t pid, const Ownership& ownership)
{
    if (ownership.owners == Owners::subordinate) {
        TRY(run_map_program(programs[0], pid, ownership.ids.first_uid, raw::getuid()));
        return run_map_program(programs[1], pid, ownership.ids.first_gid, raw::getgid());
    }
    if (raw::getuid() == 0 && ownership.owners == Owners::as_they_are) {
        TRY(write_map(pid, "uid_map", identity_map("/proc/self/uid_map")));
        return write_map(pid, "gid_map", identity_map("/proc/self/gid_map"));
    }
    TRY(write_map(pid, "uid_map", "0 " + std::to_string(raw::call(SYS_geteuid)) + " 1\n"));
    TRY(write_map(pid, "setgroups", "deny"));
    return write_map(pid, "gid_map", "0 " + std::to_string(raw::call(SYS_getegid)) + " 1\n");
}

/// The folder that this process is in becomes its root.
int take_root(const char* path)
{
    int rc = raw::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (rc == 0)
        rc = raw::mount(path, path, nullptr, MS_BIND, nullptr);
    if (rc == 0)
        rc = raw::chdir(path);
    // Both at once: the old root is then stacked on the new one.
    if (rc == 0)
        rc = raw::pivot_root(".", ".");
    if (rc == 0)
        rc = raw::umount2(".", MNT_DETACH);
    return rc == 0 ? raw::chdir("/") : rc;
}

struct Pipe {
    Fd read;
    Fd write;
};

Result<Pipe> make_pipe()
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return fail(cannot_confine, errno, "pipe2");
    return Pipe{Fd{ends[0]}, Fd{ends[1]}};
}

char read_byte(const Fd& from)
{
    char byte = '\0';
    while (raw::read(from.get(), &byte, 1) == -EINTR) {
    }
    return byte;
}

enum class Wall { user_namespace, mount_namespace, none };

Wall unshare_what_is_possible(const Ownership& ownership)
{
    constexpr unsigned long own = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    if (raw::unshare(CLONE_NEWUSER | own) == 0)
        return Wall::user_namespace;
    if (ownership.owners != Owners::subordinate && raw::unshare(own) == 0)
        return Wall::mount_namespace;
    return Wall::none;
}

void close_others(std::vector<int> keep)
{
    std::sort(keep.begin(), keep.end());
    unsigned next = 3;
    for (const int fd : keep) {
        if (fd < static_cast<int>(next))
            continue;
        if (fd > static_cast<int>(next))
            raw::close_range(next, static_cast<unsigned>(fd) - 1, 0);
        next = static_cast<unsigned>(fd) + 1;
    }
    raw::close_range(next, ~0U, 0);
}

constexpr std::uint64_t file_capabilities = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE |
                                            1U << CAP_DAC_READ_SEARCH | 1U << CAP_FOWNER |
                                            1U << CAP_FSETID;

/// In the new process; the status that it ends with.
int run_confined(int tree, const Ownership& ownership, const Fd& to_parent, const Fd& from_parent,
                 const std::function<int(const Site&)>& function,
                 const std::function<void()>& before)
{
    constexpr int failed = 125;
    constexpr char is_mapped = 'm';
    std::array<char, 4096> path{};
    Site site{tree, false};
    const bool is_there =
        raw::fchdir(tree) == 0 && raw::getcwd(path.data(), path.size()) > 0 && path[0] == '/';
    const Wall wall = is_there ? unshare_what_is_possible(ownership) : Wall::none;
    const char word = wall == Wall::user_namespace    ? 'u'
                      : wall == Wall::mount_namespace ? 'n'
                                                      : '-';
    if (raw::write(to_parent.get(), &word, 1) != 1 || read_byte(from_parent) != is_mapped)
        return failed;
    raw::prctl(PR_SET_NO_NEW_PRIVS, 1);
    raw::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have gone before it could be watched: then its end of the pipe is closed.
    pollfd watch{from_parent.get(), POLLIN, 0};
    const timespec at_once{};
    if (raw::poll(&watch, 1, &at_once) > 0)
        return failed;
    if (before)
        before();
    Fd root;
    if (wall != Wall::none && take_root(path.data()) == 0) {
        root = Fd{raw::openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (!root)
            return failed;
        site = {root.get(), true};
    }
    raw::umask(0);
    return function(site);
}

}  // namespace

std::string why_no_subordinate_ids(StoredIds& ids)
{
    const std::string user = user_name();
    const std::optional<std::uint32_t> uid = first_subordinate("/etc/subuid", user);
    const std::optional<std::uint32_t> gid = first_subordinate("/etc/subgid", user);
    if (!uid || !gid)
        return std::string{uid ? "/etc/subgid" : "/etc/subuid"} + " gives " + user +
               " no 65536 ids in a row";
    for (const char* const name : programs)
        if (find_in_path(name).empty())
            return std::string{name} + " is not installed";
    ids = {*uid, *gid, subordinate_count};
    return {};
}

bool IdSet::has(std::uint64_t id) const
{
    return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
        return id >= range.first && id - range.first < range.count;
    });
}

IdSet ids_of_tree(Owners owners, const char* map)
{
    if (owners == Owners::subordinate)
        return {{{0, subordinate_count}}};
    return {own_ids(map)};
}

Ownership best_ownership()
{
    if (raw::call(SYS_geteuid) == 0)
        return {};
    Ownership best{Owners::subordinate, {}};
    if (!why_no_subordinate_ids(best.ids).empty())
        best.owners = Owners::recorded;
    return best;
}

Result<Confined> Confined::start(int tree, const Ownership& ownership, std::vector<int> keep,
                                 const std::function<int(const Site&)>& function,
                                 const std::function<void()>& before)
{
    Pipe up = TRY(make_pipe());
    Pipe down = TRY(make_pipe());
    const pid_t pid = ::fork();
    if (pid < 0)
        return fail(cannot_confine, errno, "fork");
    if (pid == 0) {
        up.read.reset();
        down.write.reset();
        keep.insert(keep.end(), {tree, up.write.get(), down.read.get()});
        close_others(std::move(keep));
        ::_exit(run_confined(tree, ownership, up.write, down.read, function, before));
    }
    Confined confined{pid};
    up.write.reset();
    const char word = read_byte(up.read);
    if (word == 'u')
        TRY(write_maps(pid, ownership));
    else if (word == '\0' || ownership.owners == Owners::subordinate)
        return refuse(cannot_confine, {}, "user namespaces are not to be had here",
                      "--owners recorded does without");
    constexpr char is_mapped = 'm';
    if (raw::write(down.write.get(), &is_mapped, 1) != 1)
        return refuse(cannot_confine, {}, "the process has ended");
    // The other end of this pipe tells it that this process lives.
    confined.life_ = std::move(down.write);
    return confined;
}

Confined::~Confined()
{
    if (pid_.value < 0)
        return;
    raw::kill(pid_.value, SIGKILL);
    (void)wait();
}

int Confined::wait()
{
    int status = 0;
    while (raw::wait4(pid_.value, &status, 0) == -EINTR) {
    }
    pid_.value = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void make_files_as_root(const Ownership& ownership)
{
    if (ownership.owners != Owners::subordinate)
        return;
    // Of this thread only: the one that reads a folder of the caller stays the caller.
    (void)raw::call(SYS_setfsgid, 0);
    (void)raw::call(SYS_setfsuid, 0);
}

void drop_other_capabilities()
{
    raw::CapWords words[2]{};
    if (raw::capget(words) < 0)
        return;
    const std::uint64_t kept =
        (words[0].permitted | std::uint64_t{words[1].permitted} << 32) & file_capabilities;
    (void)raw::capset(kept, kept, 0);
}

}  // namespace nsbox::rootfs
