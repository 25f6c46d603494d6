#include "nsbox/everyday.hpp"

#include "nsbox/ids.hpp"
#include "nsbox/seccomp.hpp"
#include "runtime/users.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nsbox {

namespace {

using runtime::Account;
using sys::Fd;

constexpr const char* home = "/home/sandbox";
constexpr const char* user_name = "sandbox";
constexpr std::uint32_t usual_id = 1000;
constexpr const char* usual_path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// What programs read of /etc. Nothing in here tells of the host's users, machines or keys.
constexpr const char* parts_of_etc[] = {"ImageMagick-6",
                                        "ImageMagick-7",
                                        "R",
                                        "X11/fonts",
                                        "alternatives",
                                        "bash.bashrc",
                                        "ca-certificates",
                                        "ca-certificates.conf",
                                        "crypto-policies",
                                        "debian_version",
                                        "fonts",
                                        "gai.conf",
                                        "host.conf",
                                        "inputrc",
                                        "java-11-openjdk",
                                        "java-17-openjdk",
                                        "java-21-openjdk",
                                        "java-25-openjdk",
                                        "java-8-openjdk",
                                        "javascript-common",
                                        "ld.so.cache",
                                        "ld.so.conf",
                                        "ld.so.conf.d",
                                        "locale.alias",
                                        "locale.conf",
                                        "localtime",
                                        "lsb-release",
                                        "magic",
                                        "magic.mime",
                                        "mime.types",
                                        "nsswitch.conf",
                                        "openmpi",
                                        "os-release",
                                        "papersize",
                                        "perl",
                                        "php",
                                        "pki/ca-trust",
                                        "pki/tls/certs",
                                        "pki/tls/openssl.cnf",
                                        "profile",
                                        "protocols",
                                        "python3",
                                        "python3.10",
                                        "python3.11",
                                        "python3.12",
                                        "python3.13",
                                        "python3.14",
                                        "python3.9",
                                        "redhat-release",
                                        "rpc",
                                        "services",
                                        "sgml",
                                        "shells",
                                        "ssl/cert.pem",
                                        "ssl/certs",
                                        "ssl/openssl.cnf",
                                        "system-release",
                                        "terminfo",
                                        "texmf",
                                        "timezone",
                                        "vulkan",
                                        "xattr.conf",
                                        "xml"};

/// Below the root, beside /usr; links on most systems.
constexpr const char* parts_of_usr[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

bool exists(const std::string& path)
{
    return ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_EACCESS) == 0;
}

void add_host_base(std::vector<Operation>& base)
{
    base.emplace_back(Bind{"/usr", "/usr"});
    for (const char* part : parts_of_usr) {
        const std::string path = std::string{"/"} + part;
        char target[4096];
        const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
        if (size > 0)
            base.emplace_back(Symlink{{target, static_cast<std::size_t>(size)}, path});
        else if (exists(path))
            base.emplace_back(Bind{path, path});
    }
    // Where programs are that a link in /bin leads to.
    for (const char* store : {"/nix/store", "/gnu/store"})
        if (exists(store))
            base.emplace_back(Bind{store, store});
    for (const char* part : parts_of_etc) {
        const std::string path = std::string{"/etc/"} + part;
        if (exists(path))
            base.emplace_back(Bind{path, path});
    }
    base.emplace_back(Symlink{"/proc/self/mounts", "/etc/mtab"});
    for (const char* folder : {"/var/cache", "/var/lib", "/var/log"})
        base.emplace_back(Directory{folder});
    base.emplace_back(Symlink{"../run", "/var/run"});
}

bool has_destination(const Spec& spec, const std::string& path)
{
    return std::any_of(spec.operations.begin(), spec.operations.end(), [&](const Operation& op) {
        return std::visit(
            [&](const auto& it) {
                if constexpr (requires { it.destination; })
                    return it.destination == path;
                else
                    return false;
            },
            op);
    });
}

bool has_hostname(const Spec& spec)
{
    return std::any_of(spec.operations.begin(), spec.operations.end(),
                       [](const Operation& op) { return std::holds_alternative<Hostname>(op); });
}

bool shares_network(const Spec& spec)
{
    return spec.namespaces.net == Own::no || spec.join_network;
}

constexpr Literal no_overlay{"Can't use the overlay"};

/// What is changed keeps its mode and the set-user-id bit: nobody else may come near it.
Result<> close_to_others(const Fd& folder, const std::string& path, bool is_new)
{
    struct stat status;
    if (::fstat(folder.get(), &status) < 0)
        return fail(no_overlay, errno, path);
    if (status.st_uid != ::geteuid())
        return refuse(no_overlay, path, "the folder belongs to somebody else");
    if ((status.st_mode & 077) == 0)
        return {};
    if (!is_new)
        return refuse(no_overlay, path, "others may enter the folder, and run what lies in it",
                      "chmod 700 it");
    return ::fchmod(folder.get(), 0700) < 0 ? Result<>{fail(no_overlay, errno, path)} : Result<>{};
}

bool is_empty(const Fd& folder)
{
    const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
    if (list == nullptr)
        return false;
    bool found = false;
    while (const dirent* const entry = ::readdir(list))
        found |= std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0;
    ::closedir(list);
    return !found;
}

/// A kept overlay belongs to one root: what changed of another would be nonsense over it.
Result<> claim_overlay(const std::string& path, const std::string& root)
{
    const bool is_new = ::mkdir(path.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST)
        return fail("Can't make the folder", errno, path);
    const Fd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder)
        return fail(no_overlay, errno, path);
    TRY(close_to_others(folder, path, is_new || is_empty(folder)));
    const Fd file{::openat(folder.get(), "lower",
                           O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)};
    struct stat status;
    if (!file || ::fstat(file.get(), &status) < 0)
        return fail(no_overlay, errno, path + "/lower");
    if (!S_ISREG(status.st_mode))
        return refuse(no_overlay, path + "/lower", "it is no plain file", "use another folder");
    char text[4097];
    const ssize_t size = ::read(file.get(), text, sizeof text - 1);
    if (size < 0)
        return fail(no_overlay, errno, path + "/lower");
    std::string before{text, static_cast<std::size_t>(size)};
    if (before.ends_with('\n'))
        before.pop_back();
    for (const char* name : {"upper", "work"}) {
        if (::mkdirat(folder.get(), name, 0755) < 0 && errno != EEXIST)
            return fail("Can't make the folder", errno, path + "/" + name);
        if (::fstatat(folder.get(), name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(status.st_mode))
            return refuse(no_overlay, path + "/" + name, "it is no folder", "use another folder");
    }
    if (before == root)
        return {};
    if (!before.empty())
        return refuse(no_overlay, path, "it holds changes of " + before,
                      "use another folder for " + root);
    const std::string line = root + "\n";
    if (::pwrite(file.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
        return fail("Can't write", errno, path + "/lower");
    return {};
}

Result<Operation> root_overlay(const Everyday& wish, const std::string& root)
{
    Overlay overlay;
    overlay.lower = {root};
    overlay.destination = "/";
    overlay.upper_kind = Overlay::Upper::temporary;
    overlay.own_folders = {"etc", "home", "var"};
    if (wish.changes == Everyday::Changes::kept) {
        if (!wish.make_nothing)
            TRY(claim_overlay(wish.overlay, root));
        overlay.upper_kind = Overlay::Upper::kept;
        overlay.upper = wish.overlay + "/upper";
        overlay.work = wish.overlay + "/work";
    }
    return overlay;
}

/// A file of the root, by its path inside; empty where there is none.
Result<std::string> read_inside(const Fd& root, const char* path)
{
    const Fd file{sys::raw::openat2(root.get(), path, O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                                    RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)};
    if (!file && (file.error() == -ENOENT || file.error() == -ELOOP))
        return std::string{};
    if (!file)
        return fail("Can't open", -file.error(), std::string{"/"} + path + " of the root");
    std::string text;
    char buffer[16384];
    constexpr std::size_t most = 1 << 24;
    while (text.size() < most) {
        const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return fail("Can't read", errno, std::string{"/"} + path + " of the root");
        if (size == 0)
            return text;
        text.append(buffer, static_cast<std::size_t>(size));
    }
    return fail("Can't read", EFBIG, std::string{"/"} + path + " of the root");
}

/// The same of the root as the command is to see it: what a kept overlay has of it comes first.
Result<std::string> read_root_file(const Everyday& wish, const char* path)
{
    if (wish.changes == Everyday::Changes::kept) {
        const std::string upper = wish.overlay + "/upper";
        const Fd folder{::open(upper.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
        Result<std::string> changed = folder ? read_inside(folder, path) : std::string{};
        if (changed && !changed->empty())
            return changed;
    }
    const Fd root{::open(wish.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!root)
        return fail("Can't open the root filesystem", errno, wish.root);
    return read_inside(root, path);
}

/// passwd(5) and group(5) of the root; what is here stands in where there is none.
struct Accounts {
    std::string passwd = "root:x:0:0:root:/root:/bin/sh\n"
                         "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
    std::string group = "root:x:0:\nnogroup:x:65534:\n";
    bool are_there = false;
};

/// Users and groups for the command's ids, beside those that are there.
void add_accounts(const Spec& spec, const Accounts& accounts, std::vector<Operation>& base)
{
    const Account user{user_name, *spec.uid, *spec.gid, home};
    std::string users = runtime::with_user(accounts.passwd, user);
    std::string groups = runtime::with_group(accounts.group, user);
    if (!accounts.are_there || users != accounts.passwd)
        base.emplace_back(Text{std::move(users), "/etc/passwd"});
    if (!accounts.are_there || groups != accounts.group)
        base.emplace_back(Text{std::move(groups), "/etc/group"});
}

std::optional<std::uint32_t> number_in(const std::string& text)
{
    std::uint32_t number = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    return result.ec == std::errc{} && result.ptr == end ? std::optional{number} : std::nullopt;
}

/// The ids that an image names as USER[:GROUP], by its own passwd(5) and group(5), or by numbers.
Result<> take_image_user(Spec& spec, const std::string& text, const Accounts& accounts)
{
    constexpr Literal cannot{"Can't be the user that the image names"};
    const std::size_t colon = text.find(':');
    const std::string user = text.substr(0, colon);
    std::optional<std::uint32_t> uid = number_in(user);
    std::optional<Account> account = uid ? runtime::find_account(accounts.passwd, *uid)
                                         : runtime::find_account(accounts.passwd, user);
    if (!uid && !account)
        return refuse(cannot, user, "its /etc/passwd has no such user", "choose one with --uid");
    std::optional<std::uint32_t> gid = account ? account->gid : *uid;
    if (colon != std::string::npos) {
        const std::string group = text.substr(colon + 1);
        gid = number_in(group);
        if (!gid)
            gid = runtime::find_group(accounts.group, group);
        if (!gid)
            return refuse(cannot, group, "its /etc/group has no such group",
                          "choose one with --gid");
    }
    spec.uid = spec.uid.value_or(account ? account->uid : *uid);
    spec.gid = spec.gid.value_or(*gid);
    return {};
}

/// Whether it is the image that has chosen them.
Result<bool> choose_ids(Spec& spec, const Everyday& wish, const Accounts& accounts)
{
    const bool is_of_image = !wish.as_root && !spec.uid && !wish.image.user.empty();
    if (wish.as_root) {
        spec.uid = spec.gid = 0;
    } else if (is_of_image) {
        TRY(take_image_user(spec, wish.image.user, accounts));
    }
    spec.uid = spec.uid.value_or(usual_id);
    spec.gid = spec.gid.value_or(usual_id);
    return is_of_image;
}

/// As many ids as stand for those of a root filesystem.
constexpr std::uint32_t all_ids = 65536;

/// Those of its own user namespace that a privileged caller can hand on as they are.
Result<std::vector<IdRange>> own_ids(const char* map)
{
    const Fd file{::open(map, O_RDONLY | O_CLOEXEC)};
    char text[4097];
    const ssize_t size = file ? ::read(file.get(), text, sizeof text - 1) : -1;
    if (size < 0)
        return fail("Can't read", errno, map);
    text[size] = '\0';
    std::vector<IdRange> ranges;
    unsigned long first = 0;
    unsigned long outside = 0;
    unsigned long count = 0;
    int used = 0;
    // Three numbers a line: see user_namespaces(7).
    for (const char* at = text;
         std::sscanf(at, "%lu %lu %lu%n", &first, &outside, &count, &used) == 3; at += used) {
        if (first >= all_ids)
            continue;
        const auto id = static_cast<std::uint32_t>(first);
        ranges.push_back(
            {id, id, static_cast<std::uint32_t>(std::min<unsigned long>(count, all_ids - first))});
    }
    return ranges;
}

/// Whether something of the host's is in the sandbox that belongs, or is to belong, to the caller.
bool shows_files_of_caller(const Spec& spec, const Everyday& wish)
{
    return !wish.work_directory.empty() ||
           std::any_of(spec.operations.begin(), spec.operations.end(), [](const Operation& op) {
               return std::holds_alternative<Bind>(op) ||
                      std::holds_alternative<BindDescriptor>(op) ||
                      std::holds_alternative<Overlay>(op);
           });
}

/// More ids than the command's own, where files have them or root is to use them.
Result<> map_ids(Spec& spec, const Everyday& wish, bool is_of_image)
{
    if (!spec.uid_map.empty() || !spec.gid_map.empty())
        return {};
    // The caller cannot be the image's user and the image's files still be that user's: an id inside
    // stands for one outside. Where the caller has nothing in there, it need not be.
    const bool can_be_other = is_of_image && *spec.uid < all_ids && *spec.gid < all_ids &&
                              !shows_files_of_caller(spec, wish);
    const bool is_caller = *spec.uid != 0 && !can_be_other;
    if (wish.owners == Owners::subordinate && is_caller) {
        // What the command writes into folders of the caller's is to belong to the caller.
        const StoredIds& ids = wish.stored_ids;
        spec.uid_map = map_beside_own({{ids.first_uid, ids.count}}, *spec.uid, ::getuid());
        spec.gid_map = map_beside_own({{ids.first_gid, ids.count}}, *spec.gid, ::getgid());
    } else if (wish.owners == Owners::subordinate) {
        // The set-up goes on as the caller, who has to have an id for that.
        const StoredIds& ids = wish.stored_ids;
        spec.uid_map = {{0, ids.first_uid, ids.count}, {all_ids, ::getuid(), 1}};
        spec.gid_map = {{0, ids.first_gid, ids.count}, {all_ids, ::getgid(), 1}};
    } else if (wish.as_root && ::geteuid() == 0) {
        spec.uid_map = TRY(own_ids("/proc/self/uid_map"));
        spec.gid_map = TRY(own_ids("/proc/self/gid_map"));
    } else if (wish.as_root) {
        const SubordinateIds ids = TRY(subordinate_ids());
        if (ids.uids.empty() || ids.gids.empty())
            return {};
        spec.uid_map = map_beside_own(ids.uids, 0, ::getuid());
        spec.gid_map = map_beside_own(ids.gids, 0, ::getgid());
    }
    return {};
}

/// What package managers need over files and processes of the sandbox's own ids.
void add_root_capabilities(Spec& spec)
{
    std::vector<CapabilityEdit> edits;
    for (const char* name : {"chown", "dac_override", "fowner", "fsetid", "kill",
                             "net_bind_service", "setgid", "setuid", "sys_chroot"})
        if (const std::optional<unsigned> number = capability_by_name(name))
            edits.push_back({CapabilityEdit::Kind::add, *number});
    // Those of a file would mean something outside too, where ids are the host's own.
    if (::geteuid() != 0)
        if (const std::optional<unsigned> number = capability_by_name("setfcap"))
            edits.push_back({CapabilityEdit::Kind::add, *number});
    // Behind "none at all", and before what the caller adds or drops.
    spec.capabilities.insert(spec.capabilities.begin() + 1, edits.begin(), edits.end());
}

Result<> add_policies(Spec& spec, const Everyday& wish)
{
    if (spec.denials)
        spec.denials->has_root = !wish.root.empty();
    std::vector<std::vector<std::uint8_t>> own = std::move(spec.seccomp_programs);
    spec.seccomp_programs.clear();
    for (const std::string& policy : wish.policies)
        TRY(add_filter(spec, policy, wish.allow_user_namespaces, wish.allow_tracing));
    for (std::vector<std::uint8_t>& program : own)
        spec.seccomp_programs.push_back(std::move(program));
    // The own policies let nobody near a keyring.
    const auto is_own = [](const std::string& policy) {
        return policy == "default" || policy == "strict";
    };
    if (std::none_of(wish.policies.begin(), wish.policies.end(), is_own))
        spec.own_keyring = true;
    return {};
}

constexpr const char* hosts_file = "/etc/hosts";

void add_hosts(const Spec& spec, std::vector<Operation>& base)
{
    if (!spec.user_network && !spec.veth_network && !shares_network(spec) &&
        !has_destination(spec, hosts_file))
        base.emplace_back(Text{"127.0.0.1 localhost sandbox\n::1 localhost sandbox\n", hosts_file});
}

/// With the caller's network come the caller's names.
void add_names(const Spec& spec, std::vector<Operation>& base)
{
    // The file that a link leads to, which may well be in /run.
    if (shares_network(spec))
        for (const char* file : {"/etc/resolv.conf", hosts_file})
            if (!has_destination(spec, file))
                base.emplace_back(
                    Bind{file, file, Access::read_only, Devices::refused, IfMissing::skip});
}

void add_system(const Everyday& wish, std::vector<Operation>& base)
{
    // A sandbox in the sandbox could have no procfs of its own below the covers.
    base.emplace_back(Proc{"/proc", !wish.allow_user_namespaces});
    base.emplace_back(Dev{"/dev"});
    base.emplace_back(Tmpfs{"/tmp", 01777});
    base.emplace_back(Tmpfs{"/run", 0755});
    if (wish.changes == Everyday::Changes::refused)
        base.emplace_back(Tmpfs{"/var/tmp", 01777});
    if (wish.work_directory.empty())
        base.emplace_back(Tmpfs{home, 0700});
    else
        base.emplace_back(Bind{wish.work_directory, home, Access::read_write});
}

/// Builders write the name down and leave it to whoever runs the image to make the folder. It comes
/// before what the caller shows, which nothing of an image is to write to.
void add_image_directory(const Spec& spec, const Image& image, std::vector<Operation>& base)
{
    if (!spec.directory && image.working_directory.starts_with('/') &&
        image.working_directory != "/")
        base.emplace_back(Directory{image.working_directory});
}

void set_environment(Spec& spec, const Image& image, const char* where)
{
    using Kind = EnvironmentEdit::Kind;
    const char* const terminal = std::getenv("TERM");
    std::vector<EnvironmentEdit> edits{
        {Kind::clear, {}, {}},
        {Kind::set, "PATH", usual_path},
        {Kind::set, "HOME", where},
        {Kind::set, "USER", user_name},
        {Kind::set, "LOGNAME", user_name},
        {Kind::set, "LANG", "C.UTF-8"},
        {Kind::set, "TERM", terminal != nullptr && *terminal != '\0' ? terminal : "dumb"},
    };
    for (const std::string& variable : image.environment)
        if (const std::size_t equals = variable.find('=');
            equals != 0 && equals != std::string::npos)
            edits.push_back({Kind::set, variable.substr(0, equals), variable.substr(equals + 1)});
    edits.insert(edits.end(), spec.environment.begin(), spec.environment.end());
    spec.environment = std::move(edits);
}

void set_namespaces(Spec& spec)
{
    Namespaces& ns = spec.namespaces;
    if (!ns.join_user)
        ns.user = Own::yes;
    ns.pid = ns.ipc = ns.uts = Own::yes;
    ns.cgroup = Own::if_possible;
}

void set_walls(Spec& spec)
{
    spec.capabilities.insert(spec.capabilities.begin(),
                             CapabilityEdit{CapabilityEdit::Kind::drop_all, 0});
    if (!spec.kept)
        spec.kept.emplace();
    // With a limit of 1 the kernel hands a dying process's memory to no file and to no program of the
    // host's: core(5).
    if (std::none_of(spec.resource_limits.begin(), spec.resource_limits.end(),
                     [](const ResourceLimit& it) { return it.resource == RLIMIT_CORE; }))
        spec.resource_limits.push_back({RLIMIT_CORE, 1, 1});
    constexpr unsigned usual_umask = 022;
    spec.umask = spec.umask.value_or(usual_umask);
    // A terminal of the caller's is no controlling terminal then.
    spec.new_session = true;
    spec.die_with_parent = true;
    spec.end_with_command = true;
}

/// With Landlock::only: what of the host the command can use, where it is.
void add_host_paths(const Spec& spec, const Everyday& wish, std::vector<Operation>& base)
{
    const auto show = [&](const std::string& path, Access access, Devices devices) {
        base.emplace_back(Bind{path, path, access, devices, IfMissing::skip});
    };
    const auto show_to_read = [&](const std::string& path) {
        show(path, Access::read_only, Devices::refused);
    };
    show_to_read("/usr");
    struct stat status;
    for (const char* part : parts_of_usr) {
        const std::string path = std::string{"/"} + part;
        if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
            show_to_read(path);
    }
    for (const char* store : {"/nix/store", "/gnu/store"})
        show_to_read(store);
    for (const char* part : parts_of_etc) {
        const std::string path = std::string{"/etc/"} + part;
        if (exists(path))
            show_to_read(path);
    }
    if (shares_network(spec))
        for (const char* file : {"/etc/resolv.conf", hosts_file})
            show_to_read(file);
    show_to_read("/proc");
    for (const char* device : {"null", "zero", "full", "random", "urandom", "tty"})
        show(std::string{"/dev/"} + device, Access::read_write, Devices::allowed);
    base.emplace_back(Bind{wish.work_directory, wish.work_directory, Access::read_write});
}

Result<> complete_without_namespaces(Spec& spec, const Everyday& wish)
{
    constexpr Literal cannot{"Can't have with --landlock only"};
    constexpr const char* why = "it takes namespaces or mounts, and there are none";
    if (!wish.root.empty())
        return refuse(cannot, "--rootfs", why);
    if (wish.changes != Everyday::Changes::refused)
        return refuse(cannot, "--overlay", why);
    if (wish.as_root)
        return refuse(cannot, "--root", why);
    if (wish.work_directory.empty())
        return refuse("Can't run under Landlock only", {}, "there is no folder to work in",
                      "set Everyday::work_directory");
    std::vector<Operation> base;
    add_host_paths(spec, wish, base);
    base.insert(base.end(), spec.operations.begin(), spec.operations.end());
    spec.operations = std::move(base);
    set_environment(spec, wish.image, wish.work_directory.c_str());
    // Behind "none of the caller's", and before what the caller sets.
    spec.environment.insert(spec.environment.begin() + 1,
                            {EnvironmentEdit::Kind::set, "TMPDIR", wish.work_directory});
    Namespaces& ns = spec.namespaces;
    ns.user = ns.pid = ns.ipc = ns.uts = ns.cgroup = Own::no;
    set_walls(spec);
    spec.landlock = wish.landlock;
    spec.mounts_inside = wish.allow_user_namespaces;
    TRY(add_policies(spec, wish));
    if (!spec.directory)
        spec.directory = wish.work_directory;
    return {};
}

}  // namespace

void Everyday::use(const Rootfs& rootfs)
{
    root = rootfs.tree();
    image = rootfs.image();
    owners = rootfs.owners();
    stored_ids = rootfs.subordinate_ids();
}

Result<> complete(Spec& spec, const Everyday& wish)
{
    if (wish.landlock == Landlock::only)
        return complete_without_namespaces(spec, wish);
    std::vector<Operation> base;
    Accounts accounts;
    if (wish.root.empty()) {
        if (wish.changes != Everyday::Changes::refused)
            return refuse("Can't make an overlay", {}, "there is no root filesystem for it",
                          "name one with --rootfs");
        add_host_base(base);
    } else {
        base.emplace_back(TRY(root_overlay(wish, wish.root)));
        accounts.passwd = TRY(read_root_file(wish, "etc/passwd"));
        accounts.group = TRY(read_root_file(wish, "etc/group"));
        accounts.are_there = true;
    }
    const bool is_of_image = TRY(choose_ids(spec, wish, accounts));
    TRY(map_ids(spec, wish, is_of_image));
    // Before a folder of the caller's is there, which a link of the root could lead to.
    add_accounts(spec, accounts, base);
    add_hosts(spec, base);
    add_system(wish, base);
    add_names(spec, base);
    add_image_directory(spec, wish.image, base);
    if (!has_hostname(spec))
        base.emplace_back(Hostname{"sandbox"});
    base.insert(base.end(), spec.operations.begin(), spec.operations.end());
    if (wish.changes == Everyday::Changes::refused)
        base.emplace_back(RemountReadOnly{"/"});
    spec.operations = std::move(base);
    set_environment(spec, wish.image, home);
    set_namespaces(spec);
    set_walls(spec);
    spec.landlock = wish.landlock;
    spec.mounts_inside = wish.allow_user_namespaces;
    if (wish.as_root)
        add_root_capabilities(spec);
    TRY(add_policies(spec, wish));
    if (!spec.directory)
        spec.directory = wish.image.working_directory.empty() ? home : wish.image.working_directory;
    if (spec.command.empty()) {
        spec.command = wish.image.entrypoint;
        spec.command.insert(spec.command.end(), wish.image.command.begin(),
                            wish.image.command.end());
    }
    return {};
}

}  // namespace nsbox
