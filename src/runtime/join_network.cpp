#include "runtime/join_network.hpp"

#include "runtime/find_sandbox.hpp"
#include "runtime/launch.hpp"
#include "runtime/plan_operations.hpp"
#include "runtime/registry.hpp"
#include "sys/raw.hpp"

#include <cerrno>
#include <cstring>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <linux/sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_join = "Can't join the network of";

ino_t identity(const Fd& fd)
{
    struct ::stat status;
    return fd && raw::fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

Fd open_namespace(const std::string& process, const char* name)
{
    const std::string path = "/proc/" + process + "/ns/" + name;
    return Fd{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
}

Fd related(const Fd& space, unsigned long which)
{
    return Fd{static_cast<int>(raw::call(SYS_ioctl, space.get(), which))};
}

bool may_enter_by_itself(const sys::Host& host)
{
    constexpr unsigned cap_sys_admin = 21;  // CAP_SYS_ADMIN, capabilities(7)
    return (host.effective_capabilities >> cap_sys_admin & 1) != 0;
}

Result<Fd> open_path(const std::string& path)
{
    // Without O_NONBLOCK a fifo would keep us waiting for its writer.
    Fd fd{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (!fd)
        return fail(cannot_join, -fd.error(), path,
                    fd.error() == -EACCES || fd.error() == -EPERM
                        ? "the namespaces of a process are open to those who may trace it"
                        : "");
    return fd;
}

Result<Fd> copy_descriptor(DescriptorNumber number, const std::string& name)
{
    constexpr int least = 3;
    Fd fd{raw::fcntl(number, F_DUPFD_CLOEXEC, least)};
    if (!fd)
        return fail(cannot_join, -fd.error(), name,
                    fd.error() == -EBADF ? "it is not open here" : "");
    return fd;
}

struct SandboxNetwork {
    Fd network;
    ino_t user = 0;  ///< The user namespace that its command is in.
};

Result<SandboxNetwork> open_sandbox(const std::string& name)
{
    const Registry registry = TRY(Registry::open());
    const Known known = TRY(find_sandbox(registry, name));
    if (!known.child)
        return refuse(cannot_join, name, "its supervisor is stopped and does not answer",
                      "continue it with SIGCONT");
    const pid_t pid = pid_of(known.child.get());
    SandboxNetwork found;
    if (pid > 0) {
        found.network = open_namespace(std::to_string(pid), "net");
        found.user = identity(open_namespace(std::to_string(pid), "user"));
    }
    // A number may have been given to another process meanwhile; a process that lives has kept it.
    if (pid <= 0 || raw::pidfd_send_signal(known.child.get(), 0) < 0)
        return refuse(cannot_join, name, "the sandbox has ended");
    if (!found.network)
        return fail(cannot_join, -found.network.error(), name);
    return found;
}

Result<> check_kind(const Fd& fd, const std::string& name)
{
    struct ::statfs system;
    // Other files may take the number of this request for something else.
    const bool is_space = ::fstatfs(fd.get(), &system) == 0 && system.f_type == NSFS_MAGIC;
    const long kind = is_space ? raw::call(SYS_ioctl, fd.get(), NS_GET_NSTYPE) : 0;
    if (kind == CLONE_NEWNET)
        return {};
    if (kind == -EBADF)
        return refuse(cannot_join, name, "it was opened with O_PATH");
    return refuse(cannot_join, name,
                  is_space ? "it is a namespace of another kind" : "it is no network namespace",
                  "ip netns makes those in /run/netns, and /proc/PID/ns/net is that of a process");
}

/// Who has all rights in `owner`: the user who made the outermost namespace between it and ours.
Result<uid_t> holder_of(Fd owner, ino_t ours, const std::string& name)
{
    constexpr int deepest = 40;  // The kernel allows 32 levels.
    for (int level = 0; level < deepest; ++level) {
        Fd parent = related(owner, NS_GET_PARENT);
        if (!parent)
            return fail("Can't find out whose network it is:", -parent.error(), name);
        if (identity(parent) != ours) {
            owner = std::move(parent);
            continue;
        }
        uid_t holder = 0;
        const long rc = raw::call(SYS_ioctl, owner.get(), NS_GET_OWNER_UID, &holder);
        if (rc < 0)
            return fail("Can't find out whose network it is:", static_cast<int>(-rc), name);
        return holder;
    }
    return fail("Can't find out whose network it is:", ELOOP, name);
}

/// The user namespace that a process without rights of its own has to enter.
Result<Fd> owner_to_enter(const Fd& network, const std::string& name, const sys::Host& host)
{
    const ino_t ours = identity(open_namespace("self", "user"));
    Fd owner = related(network, NS_GET_USERNS);
    if (!owner)
        return refuse(
            cannot_join, name,
            owner.error() == -EPERM
                ? "it belongs to a user namespace outside of the one that this process is "
                  "in"
                : ::strerrordesc_np(-owner.error()));
    if (may_enter_by_itself(host))
        return Fd{};
    if (identity(owner) == ours)
        return refuse(cannot_join, name,
                      "it belongs to the user namespace that this process is in, so that it takes "
                      "CAP_SYS_ADMIN",
                      "as root it works, and for a network namespace that was made together with a "
                      "user namespace");
    Fd copy{raw::fcntl(owner.get(), F_DUPFD_CLOEXEC, 0)};
    if (!copy)
        return fail("Can't copy a descriptor", -copy.error());
    const uid_t holder = TRY(holder_of(std::move(copy), ours, name));
    if (holder != host.effective_uid)
        return refuse(cannot_join, name, "it belongs to the user " + std::to_string(holder),
                      "that user may join it, and root");
    return owner;
}

}  // namespace

Result<ForeignNetwork> find_network(const JoinNetwork& wish, const sys::Host& host)
{
    const std::string name = name_of(wish);
    ForeignNetwork found;
    ino_t user = 0;
    if (wish.by == JoinNetwork::By::sandbox) {
        SandboxNetwork sandbox = TRY(open_sandbox(wish.name));
        found.network = std::move(sandbox.network);
        user = sandbox.user;
    } else if (wish.by == JoinNetwork::By::descriptor) {
        found.network = TRY(copy_descriptor(wish.descriptor, name));
    } else {
        found.network = TRY(open_path(wish.name));
    }
    TRY(check_kind(found.network, name));
    if (identity(found.network) == identity(open_namespace("self", "net")))
        return refuse(cannot_join, name, "it is the network that this process has",
                      "--net host is the word for that");
    found.owner = TRY(owner_to_enter(found.network, name, host));
    // Its processes would have every capability in the user namespaces that are made below theirs,
    // and the new sandbox is on its way from the host there.
    if (found.owner && user != 0 && user == identity(found.owner))
        return refuse(cannot_join, name,
                      "its command is in the user namespace that owns the network, and would have "
                      "power over the new sandbox",
                      "start it without capabilities over its network, or join it as root");
    return found;
}

}  // namespace nsbox::runtime
