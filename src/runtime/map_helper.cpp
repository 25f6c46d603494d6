#include "runtime/map_helper.hpp"

#include "runtime/diagnose.hpp"
#include "runtime/subordinate_ids.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_map{"Can't map several ids"};

const char* name_of(IdKind kind)
{
    return kind == IdKind::user ? "newuidmap" : "newgidmap";
}

std::string map_path(IdKind kind, pid_t process)
{
    return "/proc/" + std::to_string(process) + (kind == IdKind::user ? "/uid_map" : "/gid_map");
}

/// Where distributions have it first: what is called like that elsewhere may lack the privilege.
std::string find_helper(const char* name)
{
    std::string places = "/run/wrappers/bin:/usr/bin:/bin:/usr/local/bin";
    if (const char* const path = ::getenv("PATH"))
        places += std::string{":"} + path;
    for (std::string_view rest{places}; !rest.empty();) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
        std::string file = std::string{folder} + "/" + name;
        if (file[0] == '/' && raw::faccessat(AT_FDCWD, file.c_str(), X_OK) == 0)
            return file;
    }
    return {};
}

Result<> write_file(const std::string& path, const std::string& text)
{
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CLOEXEC)};
    const long put = file ? raw::write(file.get(), text.data(), text.size()) : file.error();
    if (put < 0)
        return fail("Can't write", static_cast<int>(-put), path,
                    diagnose_id_map(static_cast<int>(-put)));
    return {};
}

/// Spawns it with both its outputs on `out`, and nothing else of the caller's.
int spawn(const std::string& file, const std::vector<std::string>& words, int out, pid_t& pid)
{
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words)
        argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char locale[] = "LC_ALL=C";
    char* const environment[] = {path, locale, nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (::posix_spawn_file_actions_init(&actions) != 0 || ::posix_spawnattr_init(&attributes) != 0)
        return ENOMEM;
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    ::sigset_t none;
    ::sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int rc =
        ::posix_spawn(&pid, file.c_str(), &actions, &attributes, argv.data(), environment);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    return rc;
}

Result<MapHelper> start(IdKind kind, const std::vector<IdRange>& map, pid_t process)
{
    const std::string file = find_helper(name_of(kind));
    if (file.empty())
        return refuse(cannot_map, {},
                      std::string{"the program "} + name_of(kind) +
                          " is in none of /usr/bin, /usr/local/bin and the folders of PATH",
                      "install it: Debian and Ubuntu have it in the package uidmap, others in "
                      "shadow or shadow-utils");
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return fail("pipe", errno);
    Fd ours{ends[0]};
    Fd theirs{ends[1]};
    // Not in the place of a standard descriptor that the caller has closed.
    constexpr int least = 3;
    theirs = Fd{raw::fcntl(theirs.get(), F_DUPFD_CLOEXEC, least)};
    if (!theirs)
        return fail("Can't copy a descriptor", -theirs.error());
    std::vector<std::string> words{name_of(kind), std::to_string(process)};
    for (const IdRange& range : map)
        for (const std::uint32_t number : {range.inside, range.outside, range.count})
            words.push_back(std::to_string(number));
    pid_t pid = -1;
    if (const int rc = spawn(file, words, theirs.get(), pid); rc != 0)
        return fail("Can't execute", rc, file);
    return MapHelper{kind, map, process, pid, std::move(ours)};
}

bool gains_no_privileges()
{
    return sys::read_file("/proc/self/status").find("\nNoNewPrivs:\t1\n") != std::string::npos;
}

/// What the file of grants would have to hold, where it does not.
std::string grant_hint(IdKind kind, const std::vector<IdRange>& map)
{
    const bool is_user = kind == IdKind::user;
    const std::string file = is_user ? "/etc/subuid" : "/etc/subgid";
    const Result<SubordinateIds> granted = subordinate_ids();
    if (!granted)
        return granted.error().message();
    const std::string name = names_of_user(sys::read_file("/etc/passwd"), raw::getuid()).front();
    const std::string line = missing_line(map, is_user ? raw::getuid() : raw::getgid(),
                                          is_user ? granted->uids : granted->gids, name);
    return line.empty() ? std::string{}
                        : file + " has to have the line " + line + ": see usermod(8), --add-sub" +
                              (is_user ? "uids" : "gids");
}

}  // namespace

MapHelper::MapHelper(IdKind kind, const std::vector<IdRange>& map, pid_t process, pid_t pid,
                     Fd output)
    : kind_(kind), map_(&map), process_(process), pid_(pid), output_(std::move(output))
{}

void MapHelper::read()
{
    constexpr std::size_t most = 4096;
    char buffer[512];
    const long got = raw::read(output_.get(), buffer, sizeof buffer);
    if (got == -EINTR)
        return;
    if (got <= 0)
        output_.reset();
    else if (text_.size() < most)
        text_.append(buffer, static_cast<std::size_t>(got));
}

Result<> MapHelper::finish()
{
    int status = 0;
    pid_t ended = -1;
    do {
        ended = ::waitpid(pid_, &status, 0);
    } while (ended < 0 && errno == EINTR);
    // An application that ignores SIGCHLD has no child to wait for when this one has ended.
    const bool is_good = ended == pid_ ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                                       : !sys::read_file(map_path(kind_, process_)).empty();
    return is_good ? Result<>{} : failed();
}

void MapHelper::stop()
{
    // It may have privileges by which it cannot be signalled: then it ends by itself.
    ::kill(pid_, SIGKILL);
    output_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

tl::unexpected<Error> MapHelper::failed() const
{
    std::string words = text_.substr(0, text_.find_last_not_of("\n ") + 1);
    for (char& c : words)
        if (c == '\n')
            c = ' ';
    if (words.empty())
        words = std::string{name_of(kind_)} + " failed without a word";
    std::string hint =
        gains_no_privileges()
            ? std::string{"this process may gain no privileges (no_new_privs), by which "} +
                  name_of(kind_) + " has none"
            : grant_hint(kind_, *map_);
    return refuse(cannot_map, {}, std::move(words), std::move(hint));
}

Result<> start_map_helpers(const IdMaps& maps, pid_t process, std::vector<MapHelper>& helpers)
{
    helpers.push_back(TRY(start(IdKind::user, maps.uids, process)));
    if (!maps.deny_setgroups)
        helpers.push_back(TRY(start(IdKind::group, maps.gids, process)));
    return {};
}

Result<> write_maps_directly(const IdMaps& maps, pid_t process)
{
    TRY(write_file(map_path(IdKind::user, process), map_text(maps.uids)));
    return write_file(map_path(IdKind::group, process), map_text(maps.gids));
}

Result<> write_groups_directly(const IdMaps& maps, pid_t process)
{
    TRY(write_file("/proc/" + std::to_string(process) + "/setgroups", "deny"));
    return write_file(map_path(IdKind::group, process), map_text(maps.gids));
}

}  // namespace nsbox::runtime
