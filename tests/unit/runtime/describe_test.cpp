#include "runtime/describe.hpp"

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <cerrno>
#include <linux/mount.h>
#include <linux/sched.h>
#include <set>

using namespace nsbox;
using namespace nsbox::tests;
using runtime::ChildStep;
using runtime::Message;
using runtime::Plan;
using runtime::Tell;
using sys::Site;

namespace {

Message step_failed(std::size_t step, Site site, int err)
{
    return {Tell::step_failed, err, static_cast<std::int32_t>(step),
            static_cast<std::uint32_t>(site)};
}

/// The message for the last of these steps.
std::string said(const std::vector<ChildStep>& steps, Site site, int err,
                 const std::string& detail = {})
{
    Plan plan;
    plan.steps = steps;
    return runtime::describe_failure(plan, step_failed(steps.size() - 1, site, err), detail)
        .message();
}

struct Row {
    ChildStep step;
    Site site;
    int err;
    std::string detail;
    std::string text;
};

mount::BindTree bind(const char* source, const char* target,
                     std::uint64_t attributes = MOUNT_ATTR_RDONLY)
{
    return {source, target, attributes, -1, false, false};
}

const char* const no_space = "the limit on the number of mounts is exceeded (ENOSPC) (hint: the "
                             "number of mounts is limited: see /proc/sys/fs/mount-max)";

const mount::BindTree tree = bind("/s", "/t");
const mount::BindOpenFile open_file{7, "/t", 0, -1, false};
const mount::MountOverlay overlay{nullptr, 0, nullptr, nullptr, false, "/t"};
const char* const lower_hint =
    "each layer has to be a folder; an ordinary user's may hold no mounts, and the upper and work "
    "folder have to be on one file system that overlayfs takes";

// EIO stands for any error that has no explanation of its own.
const std::vector<Row>& own_words()
{
    static const std::vector<Row> rows{
        {runtime::CloseOnExec{}, Site::step, EIO, "", "Can't mark descriptors: Input/output error"},
        {runtime::CloseNow{}, Site::step, EIO, "", "close: Input/output error"},
        {runtime::KeepOnly{}, Site::step, EBADF, "",
         "Can't keep a descriptor open for the command: Bad file descriptor (hint: one that is to "
         "be kept is not open)"},
        {runtime::WaitForSupervisor{}, Site::step, EIO, "", "Can't read sync: Input/output error"},
        {runtime::MakeDumpable{}, Site::step, EIO, "",
         "prctl(PR_SET_DUMPABLE): Input/output error"},
        {runtime::ClearUmask{}, Site::step, EIO, "", "umask: Input/output error"},
        {runtime::RestoreUmask{-1}, Site::step, EIO, "", "umask: Input/output error"},
        {runtime::OwnKeyring{}, Site::step, EDQUOT, "",
         "Can't make a session keyring: Disk quota exceeded"},
        {runtime::SetHostname{"box"}, Site::step, EPERM, "",
         "Can't set hostname to box: Operation not permitted"},
        {runtime::SetHostname{"box"}, Site::step, EINVAL, "",
         "Can't set hostname to box: Invalid argument (hint: a hostname has at most 64 bytes)"},
        {runtime::ChangeDirectory{"/x", "", "", ""}, Site::step, ENOENT, "",
         "Can't chdir to /x: No such file or directory"},
        {runtime::ChangeDirectory{"", "", "", ""}, Site::step, ENOENT, "",
         "Can't chdir to : No such file or directory"},
        {runtime::ChangeDirectory{"/x", "", "", ""}, Site::outside, EXDEV, "",
         "Can't chdir to /x: the directory lies outside of the sandbox"},
        {runtime::ChangeDirectory{nullptr, "", "", ""}, Site::step, EACCES, "",
         "Can't chdir to /: Permission denied"},
        {runtime::OfferFolders{}, Site::step, EACCES, "",
         "Can't open the working directory: Permission denied"},
        {runtime::NewSession{}, Site::step, EPERM, "", "setsid: Operation not permitted"},
        {ns::JoinNamespace{-1, CLONE_NEWNET}, Site::step, EPERM, "",
         "Can't enter the sandbox's namespace of kind net: Operation not permitted"},
        {runtime::CloseOthers{}, Site::step, ENOSYS, "",
         "Can't close descriptors: Function not implemented"},
        {runtime::TakeTerminal{0, 0, -1}, Site::step, ENOSPC, "",
         "Can't open a pseudo-terminal: No space left on device"},
        {runtime::LockFile{"/l", -1, 0}, Site::source, ENOENT, "",
         "Unable to open lock file /l: No such file or directory"},
        {runtime::LockFile{"/l", -1, 0}, Site::file_lock, EAGAIN, "",
         "Unable to lock file /l: Resource temporarily unavailable (hint: another process has "
         "locked "
         "it)"},
        {runtime::AwaitRelease{}, Site::step, EIO, "",
         "Can't read the block descriptor: Input/output error"},
        {runtime::EnterGroups{nullptr, 0}, Site::step, ENOMEM, "",
         "Can't enter the control groups of the sandbox: Cannot allocate memory"},
        {runtime::SetNice{-3}, Site::step, EACCES, "",
         "Can't set the nice value -3: Permission denied (hint: only who may (CAP_SYS_NICE, "
         "RLIMIT_NICE) is less nice than before)"},
        {runtime::SetResourceLimit{0, 2, 1}, Site::step, EINVAL, "",
         "Can't set the resource limit cpu: Invalid argument"},
        {runtime::SetLabel{"exec", "l"}, Site::step, EINVAL, "",
         "Can't set SELinux label l: Invalid argument"},

        {ns::DropBounding{}, Site::bounding, EIO, "",
         "Dropping capability from the bounding set: Input/output error"},
        {ns::WriteIdMaps{}, Site::uid_map, EIO, "", "setting up uid map: Input/output error"},
        {ns::WriteIdMapsBelow{}, Site::uid_map, EIO, "", "setting up uid map: Input/output error"},
        {ns::WriteIdMaps{}, Site::gid_map, EIO, "", "setting up gid map: Input/output error"},
        {ns::WriteIdMaps{}, Site::setgroups, EIO, "",
         "error writing to setgroups: Input/output error"},
        {ns::WriteIdMaps{}, Site::uid_map, EROFS, "",
         "setting up uid map: Read-only file system (hint: /proc is mounted read-only here, as in "
         "an outer sandbox with --ro-bind / /: the outer one has to give a writable /proc, with "
         "--proc /proc or --bind /proc /proc)"},
        {ns::RequireIdMap{}, Site::uid_map, EOVERFLOW, "",
         "setting up uid map: Value too large for defined data type (hint: whoever holds the "
         "other end of --userns-block-fd has to write the maps first)"},
        {ns::TakeIds{true, true, 5, 6}, Site::uid, EINVAL, "",
         "unable to switch to uid 5: Invalid argument"},
        {ns::TakeIds{true, true, 5, 6}, Site::gid, EINVAL, "",
         "unable to switch to gid 6: Invalid argument"},
        {ns::JoinUserNamespace{}, Site::step, EPERM, "",
         "Setting userns2 failed: Operation not permitted"},
        {ns::LimitUserNamespaces{}, Site::limit, EIO, "",
         "cannot write to /proc/sys/user/max_user_namespaces: Input/output error"},
        {ns::LimitUserNamespaces{}, Site::limit, EROFS, "",
         "cannot write to /proc/sys/user/max_user_namespaces: Read-only file system (hint: "
         "/proc/sys is read-only here)"},
        {ns::TakeMappedIds{5, 6, true}, Site::setgroups, EPERM, "",
         "Can't leave the supplementary groups: Operation not permitted"},
        {ns::TakeMappedIds{5, 6, true}, Site::gid, EINVAL, "",
         "unable to switch to gid 6: Invalid argument"},
        {ns::NewMappedUserNamespace{}, Site::uid_map, EACCES, "",
         "Can't map several ids in the second user namespace: Permission denied"},
        {runtime::AwaitIdMaps{}, Site::step, EIO, "",
         "Can't wait for the id maps: Input/output error"},
        {runtime::OwnInit{}, Site::step, EIO, "",
         "Can't copy the init program: Input/output error"},
        {ns::NewUserNamespace{}, Site::step, EIO, "",
         "Creating the second user namespace failed: Input/output error"},
        {ns::RefuseUserNamespaces{}, Site::not_disabled, EEXIST, "",
         "creation of new user namespaces was not disabled as requested"},
        {ns::MakeRuleset{}, Site::source, EACCES, "/x",
         "Can't open for a rule of Landlock /x: Permission denied"},
        {ns::MakeRuleset{}, Site::step, ENOMEM, "",
         "Can't make the rules of Landlock: Cannot allocate memory"},
        {ns::SetCapabilities{}, Site::step, EPERM, "", "capset: Operation not permitted"},
        {ns::SetCapabilities{}, Site::ambient, EIO, "",
         "Adding ambient capability: Input/output error"},
        {runtime::OfferNetwork{}, Site::step, EMFILE, "",
         "Can't hand over the network namespace: Too many open files"},
        {runtime::AwaitNetwork{}, Site::step, EIO, "",
         "Can't wait for the network: Input/output error"},
        {mount::FillContents{}, Site::step, ENOSPC, "",
         "Can't write data to file /etc/resolv.conf: No space left on device"},
        {net::LoopbackUp{}, Site::source, EMFILE, "",
         "loopback: Failed to create a socket: Too many open files"},
        {net::LoopbackUp{}, Site::step, EIO, "",
         "loopback: Failed RTM_NEWLINK: Input/output error"},

        {mount::OpenHost{}, Site::step, EIO, "", "Failed to make / slave: Input/output error"},
        {mount::OpenHost{}, Site::not_proc, ENOENT, "",
         "Can't open /proc: No such file or directory (hint: mount one with: mount -t proc proc "
         "/proc)"},
        {mount::OpenHost{}, Site::not_proc, ENOTDIR, "",
         "Can't open /proc: what is mounted there is no procfs (hint: mount one with: mount -t "
         "proc proc /proc)"},
        {mount::CheckSource{"/s", false}, Site::source, ENOENT, "",
         "Can't find source path /s: No such file or directory"},
        {mount::CheckDescriptor{7}, Site::source, EBADF, "",
         "Can't find source path /proc/self/fd/7: Bad file descriptor"},
        {mount::MakeStore{}, Site::step, ENOMEM, "",
         "Failed to mount tmpfs: Cannot allocate memory"},
        {mount::MakeRoot{}, Site::step, ENOMEM, "",
         "Failed to mount tmpfs: Cannot allocate memory"},
        {mount::MakeRoot{}, Site::make, EIO, "", "Creating newroot failed: Input/output error"},
        {mount::MakeRoot{}, Site::make, EOVERFLOW, "",
         "Creating newroot failed: Value too large for defined data type (hint: this process's "
         "user id is not mapped in its user namespace)"},

        {tree, Site::source, ENOENT, "", "Can't find source path /s: No such file or directory"},
        {tree, Site::source_type, EIO, "", "Can't get type of source /s: Input/output error"},
        {tree, Site::attach, EIO, "",
         "Can't bind mount /s on /t: Unable to mount source on destination: Input/output error"},
        {tree, Site::restrict_mount, EIO, "",
         "Can't bind mount /s on /t: Unable to apply mount flags: Input/output error"},
        {open_file, Site::source, ENOENT, "",
         "Can't find source path /proc/self/fd/7: No such file or directory"},
        {open_file, Site::source_stat, EBADF, "", "Can't stat fd 7: Bad file descriptor"},
        {open_file, Site::source_race, ESTALE, "",
         "Race condition binding dirfd: the path of the descriptor leads to another file by now"},
        {open_file, Site::attach, EIO, "",
         "Can't bind mount /proc/self/fd/7 on /t: Unable to mount source on destination: "
         "Input/output error"},
        {mount::MakeReadOnly{"/t"}, Site::step, EPERM, "",
         "Can't remount readonly on /t: Operation not permitted"},
        {mount::MakeReadOnly{"/t"}, Site::resolve, ENOENT, "",
         "Can't remount readonly on /t: realpath(destination): No such file or directory"},
        {mount::MakeReadOnly{"/t"}, Site::not_a_mount, EINVAL, "",
         "Can't remount readonly on /t: Unable to find \"/t\" in mount table (hint: only the root "
         "of a mount can be made read-only)"},
        {mount::MountProc{"/t", true, false, false}, Site::step, EIO, "",
         "Can't mount proc on /t: Input/output error"},
        {mount::MountProc{"/t", true, false, false}, Site::restrict_mount, EIO, "",
         "Can't cover parts of /t: Input/output error"},
        {mount::MountDev{"/t", "", nullptr}, Site::step, EIO, "",
         "Can't mount tmpfs on /t: Input/output error"},
        {mount::MountDev{"/t", "", nullptr}, Site::restrict_mount, EIO, "",
         "Can't restrict what is mounted below /t: Input/output error"},
        {mount::MountDev{"/t", "", nullptr}, Site::no_tty, EIO, "",
         "Can't mount devpts on /t/pts: Input/output error"},
        {mount::MountDev{"/t", "", nullptr}, Site::attach, ENOENT, "/dev/full",
         "Can't bind mount /dev/full on /t: Unable to mount source on destination: No such file "
         "or directory"},
        {mount::MountTmpfs{"/t", ""}, Site::step, ENOMEM, "",
         "Can't mount tmpfs on /t: Cannot allocate memory"},
        {mount::MountMqueue{"/t"}, Site::step, EIO, "",
         "Can't mount mqueue on /t: Input/output error"},
        {mount::MakeDirectory{"/t", 0, 0}, Site::step, EIO, "",
         "Can't mkdir /t: Input/output error"},
        {mount::WriteFile{7, "/t", 0, 0}, Site::create, EISDIR, "",
         "Can't create file /t: Is a directory"},
        {mount::WriteFile{7, "/t", 0, 0}, Site::create, EAGAIN, "",
         "Can't create file /t: Resource temporarily unavailable (hint: too many names or mounts "
         "changed at that moment: try again)"},
        {mount::WriteFile{7, "/t", 0, 0}, Site::contents, ENOSPC, "",
         "Can't write data to file /t: No space left on device"},
        {mount::BindContents{7, "/t", 0, 0, false}, Site::contents, EBADF, "",
         "Can't write data to file /t: Bad file descriptor"},
        {mount::BindContents{7, "/t", 0, 0, false}, Site::foreign, EROFS, "",
         "Can't place /t: it does not exist in the sandbox, and would have to be made on the host "
         "(hint: bind a file there, or add names=off to --net)"},
        {mount::BindContents{7, "/t", 0, 0, false}, Site::attach, EIO, "",
         "Can't bind mount data on /t: Unable to mount source on destination: Input/output error"},
        {mount::MakeSymlink{"x", "/t"}, Site::step, EIO, "",
         "Can't make symlink at /t: Input/output error"},
        {mount::MakeSymlink{"x", "/t"}, Site::exists_link, EEXIST, "other",
         "Can't make symlink at /t: existing destination is other"},
        {mount::MakeSymlink{"x", "/t"}, Site::exists_other, EEXIST, "",
         "Can't make symlink at /t: destination exists and is not a symlink"},
        {mount::MakeSymlink{"x", "/t"}, Site::exists_unreadable, EACCES, "",
         "Can't make symlink at /t: unable to read existing destination: Permission denied"},
        {mount::ChangeMode{"/t", 0755}, Site::step, ENOENT, "",
         "Can't chmod 0755 /t: No such file or directory"},
        {overlay, Site::step, EIO, "", "Can't make overlay mount on /t: Input/output error"},
        {overlay, Site::overlap, ELOOP, "",
         "Can't make overlay mount on /t: Overlay directories may not overlap"},
        {overlay, Site::too_many, E2BIG, "",
         "Can't make overlay mount on /t: there are more layers than the kernel takes"},
        {overlay, Site::source, ENOENT, "/lower",
         "Can't find source path /lower: No such file or directory"},
        {overlay, Site::step, EOVERFLOW, "",
         "Can't make overlay mount on /t: Value too large for defined data type (hint: a file's "
         "owner is not mapped in this user namespace)"},
        {mount::EnterRoot{}, Site::step, EIO, "", "pivot_root: Input/output error"},
        {mount::EnterRoot{}, Site::attach, EBUSY, "", "unmount old root: Device or resource busy"},
    };
    return rows;
}

/// Every kind of step that makes its destination.
const std::vector<ChildStep>& steps_with_destination()
{
    static const std::vector<ChildStep> steps{tree,
                                              open_file,
                                              mount::MountProc{"/t", true, false, false},
                                              mount::MountDev{"/t", "", nullptr},
                                              mount::MountTmpfs{"/t", ""},
                                              mount::MountMqueue{"/t"},
                                              mount::MakeDirectory{"/t", 0, 0},
                                              mount::BindContents{7, "/t", 0, 0, false},
                                              mount::MakeSymlink{"x", "/t"},
                                              overlay};
    return steps;
}

std::string hint_of(const std::string& message)
{
    const std::size_t begin = message.find(" (hint: ");
    return begin == std::string::npos ? "" : message.substr(begin + 8, message.size() - begin - 9);
}

const char* const advice =
    " makes this place read-only: make the mount point before it, or put a --tmpfs there";

}  // namespace

TEST_CASE("describe: each step and site has words of its own")
{
    for (const Row& row : own_words()) {
        CAPTURE(row.text);
        CHECK(said({row.step}, row.site, row.err, row.detail) == row.text);
    }
}

TEST_CASE("describe: no kind of step was forgotten in the table above")
{
    std::set<std::size_t> kinds;
    for (const Row& row : own_words())
        kinds.insert(row.step.index());
    CHECK(kinds.size() == std::variant_size_v<ChildStep>);
}

TEST_CASE("describe: what goes wrong with a destination is said alike for every step that has one")
{
    for (const ChildStep& step : steps_with_destination()) {
        CAPTURE(kind_of(step));
        CHECK(said({step}, Site::parents, ENOTDIR) ==
              "Can't mkdir parents for /t: Not a directory");
        CHECK(said({step}, Site::make, EACCES) == "Can't mkdir /t: Permission denied");
        CHECK(said({step}, Site::create, EISDIR) == "Can't create file at /t: Is a directory");
        CHECK(said({step}, Site::dangling, ENOENT, "/t -> /gone") ==
              "Can't create /t: the path goes through a symbolic link that leads nowhere inside: "
              "/t -> /gone (hint: make the link's target first, or name the target itself)");
        CHECK(said({step}, Site::link_refused, ELOOP) ==
              "Can't mount on /t: the mount point is a symbolic link (hint: name the folder "
              "itself)");
    }
    const mount::WriteFile file{7, "/t", 0, 0};
    CHECK(said({file}, Site::parents, EROFS) ==
          "Can't mkdir parents for /t: Read-only file system");
}

TEST_CASE("describe: ENOSPC from a mount means the number of mounts, not space")
{
    const std::string limit = no_space;
    CHECK(said({tree}, Site::attach, ENOSPC) == "Can't bind mount /s on /t: " + limit);
    CHECK(said({open_file}, Site::attach, ENOSPC) ==
          "Can't bind mount /proc/self/fd/7 on /t: " + limit);
    CHECK(said({mount::BindContents{7, "/t", 0, 0, false}}, Site::attach, ENOSPC) ==
          "Can't bind mount data on /t: " + limit);
    CHECK(said({mount::MountTmpfs{"/t", ""}}, Site::step, ENOSPC) ==
          "Can't mount tmpfs on /t: " + limit);
    CHECK(said({mount::MountMqueue{"/t"}}, Site::step, ENOSPC) ==
          "Can't mount mqueue on /t: " + limit);
    CHECK(said({mount::MountDev{"/t", "", nullptr}}, Site::no_tty, ENOSPC) ==
          "Can't mount devpts on /t/pts: " + limit);
    CHECK(said({mount::MakeRoot{}}, Site::step, ENOSPC) == "Failed to mount tmpfs: " + limit);
}

TEST_CASE("describe: a file system that cannot be a layer of an overlay is named")
{
    mount::MountOverlay upper = overlay;
    upper.upper = upper.work = "/proc/self";
    CHECK(
        said({upper}, Site::step, EINVAL) ==
        "Can't make overlay mount on /t: Invalid argument (hint: the upper folder /proc/self is on "
        "a file system (proc) that cannot be an upper layer: use a folder on ext4, xfs, btrfs or "
        "tmpfs)");
    CHECK(said({upper}, Site::step, EIO) == "Can't make overlay mount on /t: Input/output error");
    const char* const lower[] = {"/proc/self"};
    const mount::MountOverlay layer{lower, 1, nullptr, nullptr, false, "/t"};
    CHECK(
        said({layer}, Site::step, EINVAL) ==
        "Can't make overlay mount on /t: Invalid argument (hint: the layer /proc/self is on a file "
        "system (proc) that no overlay takes: copy it to another)");
    Plan plan;
    plan.steps = {upper};
    CHECK(
        runtime::describe_replaced(plan, {Tell::replaced, 0, 0, 0}) ==
        "the upper folder /proc/self is on a file system (proc) that cannot be an upper layer: use "
        "a folder on ext4, xfs, btrfs or tmpfs; what is written below /t is kept in memory and "
        "lost at the end");
    plan.steps = {mount::MountProc{"/proc", true, false, false, mount::Refused::leave_empty}};
    CHECK(runtime::describe_replaced(plan, {Tell::replaced, 0, 0, 0}) ==
          "the kernel refuses a new procfs here; /proc is empty");
    plan.steps = {mount::MountProc{"/p", true, false, false, mount::Refused::bind}};
    CHECK(runtime::describe_replaced(plan, {Tell::replaced, 0, 0, 0})
              .starts_with("the kernel refuses a new procfs here; /p is the caller's"));
    for (const int step : {-1, 1})
        CHECK_FALSE(runtime::describe_replaced(plan, {Tell::replaced, 0, step, 0}).empty());
}

TEST_CASE("describe: what overlayfs calls an invalid argument is explained")
{
    CHECK(said({overlay}, Site::step, EINVAL) ==
          "Can't make overlay mount on /t: Invalid argument (hint: " + std::string{lower_hint} +
              ")");
}

TEST_CASE("describe: a message queue that is refused asks for an ipc namespace")
{
    // Around a seccomp filter that would be the first suspect.
    const std::string message = said({mount::MountMqueue{"/t"}}, Site::step, EPERM);
    CHECK(begins_with(message, "Can't mount mqueue on /t: Operation not permitted (hint: "));
    CHECK((contains(message, "--unshare-ipc") || contains(message, "seccomp")));
}

TEST_CASE("describe: a refusal to write names the earlier read-only bind")
{
    const std::string usr = "the earlier --ro-bind /host/usr /usr" + std::string{advice};
    const ChildStep above = bind("/host/usr", "/usr");
    const auto hint = [&](const ChildStep& step, Site site) {
        return hint_of(said({mount::MakeRoot{}, above, step}, site, EROFS));
    };
    CHECK(hint(bind("/x", "/usr/y"), Site::make) == usr);
    CHECK(hint(bind("/x", "/usr/y/z"), Site::parents) == usr);
    CHECK(hint(bind("/x", "/usr/y"), Site::create) == usr);
    CHECK(hint(mount::BindOpenFile{7, "/usr/y", 0, -1, false}, Site::make) == usr);
    CHECK(hint(mount::MountProc{"/usr/y", true, false, false}, Site::make) == usr);
    CHECK(hint(mount::MountDev{"/usr/y", "", nullptr}, Site::make) == usr);
    CHECK(hint(mount::MountTmpfs{"/usr/y", ""}, Site::make) == usr);
    CHECK(hint(mount::MountMqueue{"/usr/y"}, Site::make) == usr);
    CHECK(hint(mount::MakeDirectory{"/usr/y", 0, 0}, Site::make) == usr);
    CHECK(hint(mount::WriteFile{7, "/usr/y", 0, 0}, Site::create) == usr);
    CHECK(hint(mount::BindContents{7, "/usr/y", 0, 0, false}, Site::create) == usr);
    CHECK(hint(mount::MakeSymlink{"x", "/usr/y"}, Site::step) == usr);
    CHECK(hint(mount::MountOverlay{nullptr, 0, nullptr, nullptr, false, "/usr/y"}, Site::make) ==
          usr);
    CHECK(hint(bind("/x", "/elsewhere"), Site::make).empty());
    CHECK(hint_of(said({above, bind("/x", "/usr/y")}, Site::make, EACCES)).empty());
}

TEST_CASE("describe: a source that is read-only itself is named as such")
{
    CHECK(hint_of(said(
              {bind("/media", "/m", MOUNT_ATTR_NOSUID), mount::MakeDirectory{"/m/d", 0, 0}},
              Site::make, EROFS)) == "the source /media that was bound on /m is read-only itself");
}

TEST_CASE("describe: of several mounts above the place the last one before the failure counts")
{
    const mount::MakeDirectory failed{"/usr/lib/x", 0, 0};
    const ChildStep root = bind("/r", "/");
    const ChildStep usr = bind("/u", "/usr");
    const ChildStep lib = bind("/l", "/usr/lib");
    const auto hint = [&](std::vector<ChildStep> steps) {
        steps.emplace_back(failed);
        return hint_of(said(steps, Site::make, EROFS));
    };
    CHECK(begins_with(hint({root, usr, lib}), "the earlier --ro-bind /l /usr/lib "));
    CHECK(begins_with(hint({lib, usr}), "the earlier --ro-bind /u /usr "));
    CHECK(begins_with(hint({usr, root}), "the earlier --ro-bind /r / "));
    // A mount that hides the bind is not the bind's fault.
    CHECK(hint({root, mount::MountTmpfs{"/usr", ""}}).empty());
    CHECK(begins_with(hint({root, mount::MountTmpfs{"/usr", ""}, mount::MakeReadOnly{"/usr"}}),
                      "the earlier --remount-ro /usr "));
    CHECK(
        begins_with(hint({root, mount::MountTmpfs{"/other", ""}}), "the earlier --ro-bind /r / "));
}

TEST_CASE("describe: what comes after the failed step is never blamed")
{
    Plan plan;
    plan.steps = {bind("/u", "/usr"), mount::MountTmpfs{"/usr/x", ""}, bind("/later", "/usr")};
    const Error error =
        runtime::describe_failure(plan, step_failed(1, Site::make, EROFS), std::string{});
    CHECK(begins_with(error.hint, "the earlier --ro-bind /u /usr "));
    plan.steps = {mount::MakeRoot{}, bind("/x", "/usr/x"), bind("/later", "/usr")};
    CHECK(runtime::describe_failure(plan, step_failed(1, Site::make, EROFS), {}).hint.empty());
}

TEST_CASE("describe: A62: whether a place lies below a mount is decided by components")
{
    const auto below = [](const std::string& path, const std::string& above) {
        const std::vector<ChildStep> steps{bind("/s", above.c_str()),
                                           mount::MakeDirectory{path.c_str(), 0, 0}};
        return !hint_of(said(steps, Site::make, EROFS)).empty();
    };
    CHECK(below("/run/host/x", "/run/host"));
    CHECK_FALSE(below("/run/hostage", "/run/host"));
    CHECK_FALSE(below("/run", "/run/host"));
    CHECK(below("/run/host", "/run/host"));
    CHECK(below("/run/host", "/"));
    CHECK(below("/run//host///x", "/run/host"));
    CHECK(below("/run/host/x", "/run//host/"));
    CHECK(below("//run/host/x", "/run/host"));

    Random random{9};
    const std::vector<std::string> names{"a", "b", "ab", "a b", "aa"};
    for (int round = 0; round < 1000; ++round) {
        std::vector<std::string> components[2];
        std::string paths[2];
        for (int side = 0; side < 2; ++side)
            for (std::size_t n = random.below(4); n > 0; --n) {
                components[side].push_back(random.of(names));
                paths[side] += std::string(1 + random.below(2), '/') + components[side].back();
            }
        for (std::string& path : paths)
            path += path.empty() || random.one_in(3) ? "/" : "";
        const bool expected =
            components[0].size() >= components[1].size() &&
            std::equal(components[1].begin(), components[1].end(), components[0].begin());
        CAPTURE(paths[0]);
        CAPTURE(paths[1]);
        CHECK(below(paths[0], paths[1]) == expected);
    }
}

TEST_CASE("describe: exec's failures are execvp's, with the name that the user gave")
{
    Plan plan;
    plan.argv_name = "prog";
    CHECK(runtime::describe_failure(plan, {Tell::exec_failed, ENOENT, 0, 0}, {}).message() ==
          "execvp prog: No such file or directory");
    CHECK(runtime::describe_failure(plan, {Tell::exec_failed, EACCES, 0, 0}, {}).message() ==
          "execvp prog: Permission denied");
    plan.argv_name = "";
    CHECK(runtime::describe_failure(plan, {Tell::exec_failed, ENOENT, 0, 0}, {}).message() ==
          "execvp : No such file or directory");
}

TEST_CASE("describe: a filter that the kernel refuses is told from other failures")
{
    const Plan plan;
    CHECK(runtime::describe_failure(plan, {Tell::filter_failed, EINVAL, 0, 0}, {}).message() ==
          "Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported "
          "EINVAL (hint: the program may be invalid, or the kernel is built without "
          "CONFIG_SECCOMP_FILTER)");
    CHECK(runtime::describe_failure(plan, {Tell::groups_failed, ENOMEM, 0, 0}, {}).message() ==
          "Can't enter the control groups of the sandbox: Cannot allocate memory");
    CHECK(runtime::describe_failure(plan, {Tell::filter_failed, ENOMEM, 0, 0}, {}).message() ==
          "prctl(PR_SET_SECCOMP): Cannot allocate memory");
}

TEST_CASE("describe: what the kernel has against rules of Landlock is told")
{
    const Plan plan;
    const auto words = [&](int err) {
        return runtime::describe_failure(plan, {Tell::landlock_failed, err, 0, 0}, {}).message();
    };
    CHECK(words(EPERM) == "Can't put the rules of Landlock in force: Operation not permitted");
    CHECK(contains(words(E2BIG), "16 layers"));
}

TEST_CASE("describe: what happens before the first step and after the last has its words")
{
    const Plan plan;
    const auto early = [&](int step, int err) {
        return runtime::describe_failure(plan, {Tell::step_failed, err, step, 0}, {}).message();
    };
    CHECK(begins_with(early(runtime::joining_user, EINVAL),
                      "Joining the specified user namespace failed, it might not be a descendant "
                      "of the current user namespace"));
    CHECK(early(runtime::joining_user, EPERM) ==
          "Joining specified user namespace failed: Operation not permitted");
    CHECK(early(runtime::joining_pid, EPERM) == "Setting pidns failed: Operation not permitted");
    CHECK(begins_with(early(runtime::cloning, EAGAIN), "Creating new namespace failed: "));
    CHECK(early(runtime::starting, EIO) == "Can't start the command: Input/output error");
    CHECK(runtime::describe_failure(plan, {Tell::late_failed, EIO, -5, 0}, {}).message() ==
          "Can't start the command: Input/output error");
}

TEST_CASE("describe: a step's number from nowhere is survived")
{
    Plan plan;
    plan.steps = {mount::EnterRoot{}};
    for (const std::int32_t step : {1, 2, 1000, -1, -6, 2147483647, -2147483647 - 1}) {
        CAPTURE(step);
        CHECK(runtime::describe_failure(plan, {Tell::step_failed, EIO, step, 0}, {}).message() ==
              "Can't start the command: Input/output error");
    }
    // So is a site that no step has.
    CHECK(runtime::describe_failure(plan, {Tell::step_failed, EIO, 0, 60000}, {}).message() ==
          "pivot_root: Input/output error");
}

TEST_CASE("describe: what fails about a network that is joined names it as the user did")
{
    Plan plan;
    plan.foreign_network = "/run/netns/x";
    plan.steps = {ns::JoinUserNamespace{3}, ns::JoinNamespace{4, CLONE_NEWNET}};
    plan.first_steps = plan.early_steps = 2;
    const auto words = [&](std::size_t step, int err) {
        return runtime::describe_failure(plan, step_failed(step, Site::step, err), {}).message();
    };
    CHECK(words(0, EPERM) == "Can't join the user namespace that owns the network of /run/netns/x: "
                             "Operation not permitted");
    CHECK(begins_with(words(1, EPERM),
                      "Can't join the network of /run/netns/x: Operation not permitted (hint: "));
    CHECK(words(1, ENOMEM) == "Can't join the network of /run/netns/x: Cannot allocate memory");
    plan.clone_flags = CLONE_NEWNS | CLONE_NEWUSER;
    CHECK(contains(runtime::describe_clone_failure(plan, ENOSPC).hint,
                   "network of /run/netns/x allows no further ones"));
    CHECK(
        contains(runtime::describe_clone_failure(plan, EPERM).hint, "may not map this user's ids"));
    // Joined without a detour, it is the host's limits that count.
    plan.steps.erase(plan.steps.begin());
    plan.first_steps = plan.early_steps = 1;
    CHECK(contains(runtime::describe_clone_failure(plan, ENOSPC).hint, "/proc/sys/user/max_"));
}

TEST_CASE("describe: clone's failures say what is missing")
{
    Plan plan;
    plan.clone_flags = CLONE_NEWNS | CLONE_NEWUSER;
    CHECK(runtime::describe_clone_failure(plan, EAGAIN).message() ==
          "Creating new namespace failed: Resource temporarily unavailable (hint: the limit on "
          "processes ran out: see ulimit -u and the pids controller)");
    CHECK(runtime::describe_clone_failure(plan, ENOMEM).message() ==
          "Creating new namespace failed: Cannot allocate memory");
    // Why a host refuses depends on the host, but there is always a reason.
    for (const int err : {EPERM, EACCES}) {
        const Error refused = runtime::describe_clone_failure(plan, err);
        CHECK(refused.op.view() == "No permissions to create a new namespace");
        CHECK_FALSE(refused.hint.empty());
    }
    CHECK(contains(runtime::describe_clone_failure(plan, ENOSPC).hint, "/proc/sys/user/max_"));
    plan.clone_flags = CLONE_NEWNS;
    const Error not_root = runtime::describe_clone_failure(plan, EPERM);
    CHECK(not_root.op.view() == "Creating new namespace failed");
    CHECK_FALSE(not_root.hint.empty());
}
