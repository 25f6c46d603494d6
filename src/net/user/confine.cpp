#include "net/user/confine.hpp"

#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <vector>

namespace nsbox::net::user {

namespace {

namespace raw = sys::raw;
using sys::Fd;

Result<> write_map(const char* path, const std::string& text)
{
    const Fd file{raw::openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC)};
    const long put = file ? raw::write(file.get(), text.data(), text.size()) : file.error();
    if (put < 0 && put != -ENOENT)
        return fail("Can't confine the network helper", static_cast<int>(-put), path);
    return {};
}

/// A folder that is empty and stays so, as the root; the old one is gone afterwards.
Result<> take_empty_root()
{
    const char* const here = "/proc";
    int rc = raw::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (rc == 0)
        rc = raw::mount("tmpfs", here, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                        "nr_inodes=2,mode=0");
    if (rc == 0)
        rc = raw::mount(nullptr, here, nullptr,
                        MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                        nullptr);
    if (rc == 0)
        rc = raw::chdir(here);
    // Both at once: the old root is then stacked on the new one.
    if (rc == 0)
        rc = raw::pivot_root(".", ".");
    if (rc == 0)
        rc = raw::umount2(".", MNT_DETACH);
    if (rc == 0)
        rc = raw::chdir("/");
    if (rc < 0)
        return fail("Can't confine the network helper", -rc, "an empty root");
    return {};
}

#if defined(__x86_64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#endif

constexpr int calls_of_relay[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_recvmmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept4,
    SYS_accept,
    SYS_shutdown,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_getsockname,
    SYS_getpeername,
    SYS_pipe2,
    SYS_splice,
    SYS_fcntl,
    SYS_ioctl,
    SYS_ppoll,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_brk,
    SYS_madvise,
    SYS_mprotect,
    SYS_futex,
    SYS_exit_group,
    SYS_rt_sigreturn,
    SYS_getrandom,
    SYS_rt_sigprocmask,
    SYS_restart_syscall,
    SYS_getpid,
    SYS_clock_nanosleep,
    SYS_wait4,
#if defined(__x86_64__)
    SYS_poll,
    SYS_epoll_wait,
    SYS_time,
    SYS_select,
#endif
};

}  // namespace

Result<> leave_file_tree(Rights rights)
{
    const unsigned uid = raw::getuid();
    const unsigned gid = raw::getgid();
    const unsigned long own = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    const int rc = rights == Rights::go ? raw::unshare(CLONE_NEWUSER | own) : -EPERM;
    if (rc == 0) {
        TRY(write_map("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1\n"));
        TRY(write_map("/proc/self/setgroups", "deny"));
        TRY(write_map("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1\n"));
    } else if (raw::unshare(own) < 0) {
        return fail("Can't confine the network helper", -rc, "namespaces");
    }
    return take_empty_root();
}

Result<> give_up_privilege(std::uint64_t keep)
{
    constexpr unsigned most = 64;
    for (unsigned cap = 0; cap < most; ++cap)
        raw::prctl(PR_CAPBSET_DROP, cap);
    raw::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
    if (const int rc = raw::capset(keep, keep, 0); rc < 0)
        return fail("Can't confine the network helper", -rc, "capabilities");
    if (const int rc = raw::prctl(PR_SET_NO_NEW_PRIVS, 1); rc < 0)
        return fail("Can't confine the network helper", -rc, "no_new_privs");
    raw::prctl(PR_SET_DUMPABLE, 0);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    return {};
}

Result<> allow_only(std::span<const int> calls, std::span<const int> families)
{
    std::vector<sock_filter> program;
    const auto load = [&](std::uint32_t offset) {
        program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
    };
    const auto answer = [&](std::uint32_t value) {
        program.push_back(BPF_STMT(BPF_RET | BPF_K, value));
    };
    const auto unless_equal_skip = [&](int value, std::uint8_t skip) {
        program.push_back(
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, skip));
    };
    constexpr std::uint32_t refused = SECCOMP_RET_ERRNO | EPERM;
    load(offsetof(seccomp_data, arch));
    unless_equal_skip(static_cast<int>(own_architecture), 1);
    program.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
    answer(refused);
    load(offsetof(seccomp_data, nr));
    unless_equal_skip(SYS_socket, static_cast<std::uint8_t>(2 * families.size() + 2));
    load(offsetof(seccomp_data, args));
    for (const int family : families) {
        unless_equal_skip(family, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(refused);
    for (const int call : calls) {
        if (call == SYS_socket)
            continue;
        unless_equal_skip(call, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(refused);
    const sock_fprog all{static_cast<unsigned short>(program.size()), program.data()};
    const int rc =
        raw::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, reinterpret_cast<unsigned long>(&all));
    if (rc < 0)
        return fail("Can't confine the network helper", -rc, "seccomp");
    return {};
}

std::span<const int> relay_calls()
{
    return calls_of_relay;
}

}  // namespace nsbox::net::user
