// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "ns/steps.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/wait.h>

namespace nsbox::ns {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

int write_proc(const ChildState& state, const char* name, const char* text) noexcept
{
    const Fd file{raw::openat(state.proc, name, O_WRONLY | O_CLOEXEC)};
    if (!file)
        return file.error();
    const long put = raw::write(file.get(), text, sys::length(text));
    return put < 0 ? static_cast<int>(put) : 0;
}

constexpr unsigned most_capabilities = 64;

}  // namespace

int run(const DropBounding& step, ChildState& state) noexcept
{
    for (unsigned cap = 0; cap < most_capabilities; ++cap) {
        if ((step.keep >> cap & 1) != 0)
            continue;
        const int rc = raw::prctl(PR_CAPBSET_DROP, cap);
        if (rc == -EINVAL && raw::prctl(PR_CAPBSET_READ, cap) == -EINVAL)
            return 0;  // The kernel has no more.
        if (rc < 0)
            return state.failed(Site::bounding, rc);
    }
    return 0;
}

int run(const WriteIdMaps& step, ChildState& state) noexcept
{
    if (const int rc = write_proc(state, "self/uid_map", step.uid_map); rc < 0)
        return state.failed(Site::uid_map, rc);
    if (step.deny_setgroups) {
        const int rc = write_proc(state, "self/setgroups", "deny");
        if (rc < 0 && rc != -ENOENT)
            return state.failed(Site::setgroups, rc);
    }
    const int rc = write_proc(state, "self/gid_map", step.gid_map);
    return rc < 0 ? state.failed(Site::gid_map, rc) : 0;
}

int run(const WriteIdMapsBelow& step, ChildState& state) noexcept
{
    constexpr std::size_t longest = 32;
    sys::FixedText<longest> uid_map;
    uid_map.number(step.uid).add(" ").number(state.outer.uid).add(" 1\n");
    sys::FixedText<longest> gid_map;
    gid_map.number(step.gid).add(" ").number(state.outer.gid).add(" 1\n");
    return run(WriteIdMaps{uid_map.c_str(), gid_map.c_str(), true}, state);
}

int run(const RequireIdMap&, ChildState& state) noexcept
{
    const Fd file{raw::openat(state.proc, "self/uid_map", O_RDONLY | O_CLOEXEC)};
    if (!file)
        return file.error();
    char byte;
    const long got = raw::read(file.get(), &byte, 1);
    if (got < 0)
        return static_cast<int>(got);
    return got == 0 ? state.failed(Site::uid_map, -EOVERFLOW) : 0;
}

namespace {

/// Giving up uid 0 takes the effective capabilities away, which set-up still needs.
int regain_capabilities() noexcept
{
    raw::CapWords words[2]{};
    if (const int rc = raw::capget(words); rc < 0)
        return rc;
    const std::uint64_t permitted = words[0].permitted | std::uint64_t{words[1].permitted} << 32;
    const std::uint64_t inheritable = words[0].inheritable | std::uint64_t{words[1].inheritable}
                                                                 << 32;
    return raw::capset(permitted, permitted, inheritable);
}

}  // namespace

int run(const TakeIds& step, ChildState& state) noexcept
{
    if (const int rc = raw::prctl(PR_SET_KEEPCAPS, 1); rc < 0)
        return state.failed(Site::uid, rc);
    if (step.set_gid && raw::getgid() != step.gid)
        if (const int rc = raw::setresgid(step.gid); rc < 0)
            return state.failed(Site::gid, rc);
    if (step.set_uid && raw::getuid() != step.uid)
        if (const int rc = raw::setresuid(step.uid); rc < 0)
            return state.failed(Site::uid, rc);
    const int rc = regain_capabilities();
    return rc < 0 ? state.failed(Site::uid, rc) : 0;
}

int run(const TakeMappedIds& step, ChildState& state) noexcept
{
    if (step.drop_groups)
        if (const long rc = raw::call(SYS_setgroups, 0, nullptr); rc < 0)
            return state.failed(Site::setgroups, static_cast<int>(rc));
    if (const int rc = raw::prctl(PR_SET_KEEPCAPS, 1); rc < 0)
        return state.failed(Site::uid, rc);
    if (const int rc = raw::setresgid(step.gid); rc < 0)
        return state.failed(Site::gid, rc);
    if (const int rc = raw::setresuid(step.uid); rc < 0)
        return state.failed(Site::uid, rc);
    if (const int rc = regain_capabilities(); rc < 0)
        return state.failed(Site::uid, rc);
    // Another id has cleared it (prctl(2)); the supervisor may have died meanwhile.
    if (const int rc = raw::prctl(PR_SET_PDEATHSIG, SIGKILL); rc < 0)
        return state.failed(Site::uid, rc);
    pollfd supervisor{state.channel, 0, 0};
    const timespec now{};
    if (raw::poll(&supervisor, 1, &now) > 0 && (supervisor.revents & POLLHUP) != 0)
        raw::exit_group(1);
    return 0;
}

int run(const JoinUserNamespace& step, ChildState&) noexcept
{
    return raw::setns(step.fd, CLONE_NEWUSER);
}

int run(const JoinNamespace& step, ChildState&) noexcept
{
    return raw::setns(step.fd, static_cast<int>(step.kind));
}

int run(const LimitUserNamespaces&, ChildState& state) noexcept
{
    const int rc = write_proc(state, "sys/user/max_user_namespaces", "1");
    // Where /proc/sys is read-only, as in many containers, a filter does the same.
    state.deny_by_filter = rc == -EROFS || rc == -EACCES || rc == -EPERM || rc == -ENOENT;
    return rc < 0 && !state.deny_by_filter ? state.failed(Site::limit, rc) : 0;
}

int run(const NewUserNamespace& step, ChildState&) noexcept
{
    if (step.there < 0)
        return raw::unshare(CLONE_NEWUSER | step.others);
    const int rc = raw::setns(step.there, CLONE_NEWUSER);
    return rc < 0 || step.others == 0 ? rc : raw::unshare(step.others);
}

namespace {

/// What the process that stays behind works with.
struct MapWriter {
    const NewMappedUserNamespace* step;
    const ChildState* state;
    const char* process;  ///< The other one's folder in /proc.
    int go;               ///< A byte, or the end, comes from here.
};

int write_map_of(const MapWriter& writer, const char* file, const char* text) noexcept
{
    sys::FixedText<64> name;
    name.add(writer.process).add(file);
    return write_proc(*writer.state, name.c_str(), text);
}

/// Ends with the number of the error as its exit code.
void write_maps_for(void* argument) noexcept
{
    const auto& writer = *static_cast<const MapWriter*>(argument);
    raw::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte = 0;
    long got = 0;
    do {
        got = raw::read(writer.go, &byte, 1);
    } while (got == -EINTR);
    if (got != 1)
        raw::exit_group(ECANCELED);
    int rc = write_map_of(writer, "/uid_map", writer.step->uid_map);
    if (rc == 0)
        rc = write_map_of(writer, "/gid_map", writer.step->gid_map);
    raw::exit_group(-rc);
}

int await_writer(int pid) noexcept
{
    int status = 0;
    int rc = 0;
    do {
        rc = raw::wait4(pid, &status, __WALL);
    } while (rc == -EINTR);
    if (rc < 0)
        return rc;
    return (status & 0x7f) != 0 ? -ECHILD : -(status >> 8 & 0xff);
}

int enter_mapped(const NewMappedUserNamespace& step, ChildState& state,
                 const char* process) noexcept
{
    int ends[2];
    if (const long rc = raw::call(SYS_pipe2, ends, O_CLOEXEC); rc < 0)
        return static_cast<int>(rc);
    const Fd there{ends[0]};
    Fd here{ends[1]};
    MapWriter writer{&step, &state, process, ends[0]};
    int unused = -1;
    const long pid = raw::clone(SIGCHLD, nullptr, &unused, write_maps_for, &writer);
    if (pid < 0)
        return static_cast<int>(pid);
    int rc = raw::unshare(CLONE_NEWUSER | step.others);
    if (rc == 0) {
        const long put = raw::write(here.get(), "x", 1);
        rc = put < 0 ? static_cast<int>(put) : 0;
    }
    here.reset();
    const int written = await_writer(static_cast<int>(pid));
    if (rc < 0)
        return rc;
    return written < 0 ? state.failed(Site::uid_map, written) : 0;
}

}  // namespace

int run(const NewMappedUserNamespace& step, ChildState& state) noexcept
{
    char process[32];
    const long got = raw::readlinkat(state.proc, "self", process, sizeof process - 1);
    if (got < 0)
        return static_cast<int>(got);
    process[got] = '\0';
    // A change of ids has made the files there root's (proc(5)). Who could look at this process now
    // has every capability over its user namespace already.
    const int dumpable = raw::prctl(PR_GET_DUMPABLE);
    if (dumpable != 1)
        if (const int rc = raw::prctl(PR_SET_DUMPABLE, 1); rc < 0)
            return rc;
    const int rc = enter_mapped(step, state, process);
    if (dumpable != 1)
        raw::prctl(PR_SET_DUMPABLE, 0);
    return rc;
}

namespace {

constexpr std::uint32_t x32_bit = 0x40000000;  // __X32_SYSCALL_BIT

int deny_user_namespaces() noexcept
{
    // clone3 hides its flags in memory, so libc is sent to clone. i386 has other numbers.
    const sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_I386, 0, 9),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 435, 16, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 120, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 310, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~x32_bit),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    sock_fprog filter{};
    filter.len = sizeof program / sizeof program[0];
    filter.filter = const_cast<sock_filter*>(program);
    return raw::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
                      reinterpret_cast<unsigned long>(&filter));
}

}  // namespace

int run(const RefuseUserNamespaces& step, ChildState& state) noexcept
{
    if (state.deny_by_filter || step.by_filter)
        if (const int rc = deny_user_namespaces(); rc < 0)
            return state.failed(Site::limit, rc);
    const int rc = raw::unshare(CLONE_NEWUSER);
    // What refuses namespaces: a limit, a sysctl or a filter, an old kernel. Anything else, such
    // as no memory, says nothing about what the command could do.
    if (rc == -ENOSPC || rc == -EPERM || rc == -EUSERS || rc == -EINVAL || rc == -ENOSYS ||
        rc == -EACCES)
        return 0;
    return state.failed(Site::not_disabled, rc < 0 ? rc : -EEXIST);
}

int run(const SetCapabilities& step, ChildState& state) noexcept
{
    if (const int rc = raw::capset(step.sets, step.sets, step.sets); rc < 0)
        return rc;
    if (!step.ambient)
        return 0;
    for (unsigned cap = 0; cap < most_capabilities; ++cap) {
        if ((step.sets >> cap & 1) == 0)
            continue;
        const int rc = raw::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap);
        if (rc < 0 && rc != -EINVAL)
            return state.failed(Site::ambient, rc);
    }
    return 0;
}

}  // namespace nsbox::ns
