#pragma once

// Child-safe system calls. Every function returns >= 0 or -errno, touches no errno (the child
// shares the parent's thread-local storage until it executes a program), allocates nothing and
// takes no lock, so it may be called between clone3 and execve and in the freestanding init.
// The numbers and argument orders are those of the man page of the same name, section 2.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

namespace nsbox::sys::raw {

#if defined(__x86_64__)

inline long call6(long nr, long a, long b, long c, long d, long e, long f) noexcept
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

inline long call6(long nr, long a, long b, long c, long d, long e, long f) noexcept
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}

#else
#error "nsbox supports x86-64 and arm64"
#endif

template <class T>
inline long word(T value) noexcept
{
    return static_cast<long>(value);
}
template <class T>
inline long word(T* value) noexcept
{
    return reinterpret_cast<long>(value);
}
inline long word(std::nullptr_t) noexcept
{
    return 0;
}

template <class A = int, class B = int, class C = int, class D = int, class E = int, class F = int>
inline long call(long nr, A a = {}, B b = {}, C c = {}, D d = {}, E e = {}, F f = {}) noexcept
{
    return call6(nr, word(a), word(b), word(c), word(d), word(e), word(f));
}

// Files and descriptors.

inline int openat(int dir, const char* path, int flags, unsigned mode = 0) noexcept
{
    return static_cast<int>(call(SYS_openat, dir, path, flags, mode));
}
/// Where a rename or a mount anywhere on the machine made the kernel unsure about a "..", it is asked
/// again, and gives EAGAIN only if that goes on: see openat2(2), RESOLVE_BENEATH.
inline int openat2(int dir, const char* path, std::uint64_t flags, std::uint64_t resolve,
                   std::uint64_t mode = 0) noexcept
{
    constexpr int most_tries = 200;
    open_how how{};
    how.flags = flags;
    how.mode = mode;
    how.resolve = resolve;
    int rc = -EAGAIN;
    for (int i = 0; i < most_tries && rc == -EAGAIN; ++i)
        rc = static_cast<int>(call(SYS_openat2, dir, path, &how, sizeof how));
    return rc;
}
inline int close(int fd) noexcept
{
    return static_cast<int>(call(SYS_close, fd));
}
inline int close_range(unsigned first, unsigned last, unsigned flags) noexcept
{
    return static_cast<int>(call(SYS_close_range, first, last, flags));
}
inline long read(int fd, void* data, std::size_t size) noexcept
{
    return call(SYS_read, fd, data, size);
}
inline long write(int fd, const void* data, std::size_t size) noexcept
{
    return call(SYS_write, fd, data, size);
}
inline int fcntl(int fd, int command, long argument) noexcept
{
    return static_cast<int>(call(SYS_fcntl, fd, command, argument));
}
inline int dup3(int from, int to, int flags) noexcept
{
    return static_cast<int>(call(SYS_dup3, from, to, flags));
}
inline int fstat(int fd, struct ::stat* out) noexcept
{
    return static_cast<int>(call(SYS_fstat, fd, out));
}
inline int fstatat(int dir, const char* path, struct ::stat* out, int flags) noexcept
{
    return static_cast<int>(call(SYS_newfstatat, dir, path, out, flags));
}
inline int faccessat(int dir, const char* path, int mode) noexcept
{
    return static_cast<int>(call(SYS_faccessat, dir, path, mode));
}
inline int mkdirat(int dir, const char* path, unsigned mode) noexcept
{
    return static_cast<int>(call(SYS_mkdirat, dir, path, mode));
}
inline int mknodat(int dir, const char* path, unsigned mode, unsigned dev) noexcept
{
    return static_cast<int>(call(SYS_mknodat, dir, path, mode, dev));
}
inline int symlinkat(const char* text, int dir, const char* path) noexcept
{
    return static_cast<int>(call(SYS_symlinkat, text, dir, path));
}
inline int unlinkat(int dir, const char* path, int flags) noexcept
{
    return static_cast<int>(call(SYS_unlinkat, dir, path, flags));
}
inline long readlinkat(int dir, const char* path, char* out, std::size_t size) noexcept
{
    return call(SYS_readlinkat, dir, path, out, size);
}
inline int fchmod(int fd, unsigned mode) noexcept
{
    return static_cast<int>(call(SYS_fchmod, fd, mode));
}
inline int fchmodat(int dir, const char* path, unsigned mode) noexcept
{
    return static_cast<int>(call(SYS_fchmodat, dir, path, mode));
}
inline int fchmodat2(int dir, const char* path, unsigned mode, int flags) noexcept
{
    return static_cast<int>(call(SYS_fchmodat2, dir, path, mode, flags));
}
/// The file system's magic number (as in <linux/magic.h>) or -errno.
inline long fs_magic(int fd) noexcept
{
    long buffer[32];  // struct statfs is 120 bytes; f_type is its first word.
    const long rc = call(SYS_fstatfs, fd, buffer);
    return rc < 0 ? rc : buffer[0];
}
inline int fchdir(int fd) noexcept
{
    return static_cast<int>(call(SYS_fchdir, fd));
}
inline int chdir(const char* path) noexcept
{
    return static_cast<int>(call(SYS_chdir, path));
}
inline int chroot(const char* path) noexcept
{
    return static_cast<int>(call(SYS_chroot, path));
}
inline long getcwd(char* out, std::size_t size) noexcept
{
    return call(SYS_getcwd, out, size);
}

// Mounts.

inline int open_tree(int dir, const char* path, unsigned flags) noexcept
{
    return static_cast<int>(call(SYS_open_tree, dir, path, flags));
}
inline int move_mount(int from, int to_dir, const char* to_path, unsigned flags) noexcept
{
    return static_cast<int>(
        call(SYS_move_mount, from, "", to_dir, to_path, flags | MOVE_MOUNT_F_EMPTY_PATH));
}
inline int mount_setattr_at(int dir, const char* path, unsigned flags, std::uint64_t set,
                            std::uint64_t propagation = 0) noexcept
{
    mount_attr attributes{};
    attributes.attr_set = set;
    attributes.propagation = propagation;
    return static_cast<int>(
        call(SYS_mount_setattr, dir, path, flags, &attributes, sizeof attributes));
}
inline int mount_setattr(int fd, unsigned flags, std::uint64_t set,
                         std::uint64_t propagation = 0) noexcept
{
    return mount_setattr_at(fd, "", flags | AT_EMPTY_PATH, set, propagation);
}
inline int fsopen(const char* type) noexcept
{
    return static_cast<int>(call(SYS_fsopen, type, FSOPEN_CLOEXEC));
}
inline int fsconfig(int fs, unsigned command, const char* key, const void* value, int aux) noexcept
{
    return static_cast<int>(call(SYS_fsconfig, fs, command, key, value, aux));
}
inline int fsmount(int fs, unsigned attributes) noexcept
{
    return static_cast<int>(call(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes));
}
inline int mount(const char* source, const char* target, const char* type, unsigned long flags,
                 const char* data) noexcept
{
    return static_cast<int>(call(SYS_mount, source, target, type, flags, data));
}
inline int umount2(const char* target, int flags) noexcept
{
    return static_cast<int>(call(SYS_umount2, target, flags));
}
inline int pivot_root(const char* new_root, const char* put_old) noexcept
{
    return static_cast<int>(call(SYS_pivot_root, new_root, put_old));
}

// Processes, identity, namespaces.

inline int unshare(unsigned long flags) noexcept
{
    return static_cast<int>(call(SYS_unshare, flags));
}
inline int setns(int fd, int type) noexcept
{
    return static_cast<int>(call(SYS_setns, fd, type));
}
inline int prctl(int option, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0,
                 unsigned long d = 0) noexcept
{
    return static_cast<int>(call(SYS_prctl, option, a, b, c, d));
}
inline int setsid() noexcept
{
    return static_cast<int>(call(SYS_setsid));
}
inline unsigned getuid() noexcept
{
    return static_cast<unsigned>(call(SYS_getuid));
}
inline unsigned getgid() noexcept
{
    return static_cast<unsigned>(call(SYS_getgid));
}
inline int setresuid(unsigned id) noexcept
{
    return static_cast<int>(call(SYS_setresuid, id, id, id));
}
inline int setresgid(unsigned id) noexcept
{
    return static_cast<int>(call(SYS_setresgid, id, id, id));
}
inline int sethostname(const char* name, std::size_t size) noexcept
{
    return static_cast<int>(call(SYS_sethostname, name, size));
}
inline unsigned umask(unsigned mask) noexcept
{
    return static_cast<unsigned>(call(SYS_umask, mask));
}
inline int execve(const char* path, const char* const* argv, const char* const* envp) noexcept
{
    return static_cast<int>(call(SYS_execve, path, argv, envp));
}
inline int execveat(int fd, const char* path, const char* const* argv, const char* const* envp,
                    int flags) noexcept
{
    return static_cast<int>(call(SYS_execveat, fd, path, argv, envp, flags));
}
inline int wait4(int pid, int* status, int options, rusage* usage = nullptr) noexcept
{
    return static_cast<int>(call(SYS_wait4, pid, status, options, usage));
}
inline int kill(int pid, int signal) noexcept
{
    return static_cast<int>(call(SYS_kill, pid, signal));
}
inline int pidfd_open(int pid) noexcept
{
    return static_cast<int>(call(SYS_pidfd_open, pid, 0));
}
inline int pidfd_send_signal(int pidfd, int signal) noexcept
{
    return static_cast<int>(call(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}
[[noreturn]] inline void exit_group(int code) noexcept
{
    call(SYS_exit_group, code);
    // A filter denies it. No filter keeps the kernel from ending a process that executes what is no instruction.
    call(SYS_exit, code);
    __builtin_trap();
}
inline int poll(pollfd* fds, unsigned count, const timespec* timeout) noexcept
{
    return static_cast<int>(call(SYS_ppoll, fds, count, timeout, nullptr, 8));
}
/// `mask` is a kernel signal set: one bit a signal, 64 of them.
inline int sigprocmask(int how, const std::uint64_t* mask, std::uint64_t* old) noexcept
{
    return static_cast<int>(call(SYS_rt_sigprocmask, how, mask, old, sizeof *mask));
}
/// Sets a signal's disposition to the default.
inline int signal_default(int signal) noexcept
{
    const unsigned long action[4]{};  // handler, flags, restorer, mask: all zero is SIG_DFL.
    return static_cast<int>(call(SYS_rt_sigaction, signal, action, nullptr, 8));
}

struct CapHeader {
    std::uint32_t version = 0x20080522;  // _LINUX_CAPABILITY_VERSION_3
    std::int32_t pid = 0;
};
struct CapWords {
    std::uint32_t effective, permitted, inheritable;
};

inline int capget(CapWords (&words)[2]) noexcept
{
    CapHeader header;
    return static_cast<int>(call(SYS_capget, &header, words));
}
inline int capset(std::uint64_t effective, std::uint64_t permitted,
                  std::uint64_t inheritable) noexcept
{
    CapHeader header;
    const auto low = [](std::uint64_t set) { return static_cast<std::uint32_t>(set); };
    const auto high = [](std::uint64_t set) { return static_cast<std::uint32_t>(set >> 32); };
    const CapWords words[2] = {{low(effective), low(permitted), low(inheritable)},
                               {high(effective), high(permitted), high(inheritable)}};
    return static_cast<int>(call(SYS_capset, &header, words));
}

using ChildFunction = void (*)(void*);

/// clone3 with a function for the child, which never returns. With CLONE_VM the child runs on
/// `stack` (its top is stack + stack_size, aligned to 16); without, stack may be null and the
/// child goes on on a copy of the caller's stack. Needs Linux 5.3.
inline long clone3(clone_args* arguments, ChildFunction function, void* argument) noexcept
{
    long result;
    // The two are pinned to registers that a call preserves and that the child does not clear.
#if defined(__x86_64__)
    register ChildFunction r12 __asm__("r12") = function;
    register void* r13 __asm__("r13") = argument;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[argument], %%rdi\n\t"
                     "sub $128, %%rsp\n\t"  // What lies below belongs to a function without calls.
                     "and $-16, %%rsp\n\t"
                     "call *%[function]\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(arguments),
                       "S"(sizeof *arguments), [function] "r"(r12), [argument] "r"(r13)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = reinterpret_cast<long>(arguments);
    register long x1 __asm__("x1") = sizeof *arguments;
    register ChildFunction x19 __asm__("x19") = function;
    register void* x20 __asm__("x20") = argument;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, %[argument]\n\t"
                     "blr %[function]\n\t"
                     "brk 0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), [function] "r"(x19), [argument] "r"(x20)
                     : "x30", "memory");
    result = x0;
#endif
    return result;
}

/// The older clone, for where clone3 is missing or filtered: `flags` holds the exit signal in
/// its low byte; `stack_top` may be null without CLONE_VM; the pidfd arrives through `pidfd`
/// with CLONE_PIDFD (Linux 5.2).
inline long clone(unsigned long flags, void* stack_top, int* pidfd, ChildFunction function,
                  void* argument) noexcept
{
    long result;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    register ChildFunction r12 __asm__("r12") = function;
    register void* r13 __asm__("r13") = argument;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[argument], %%rdi\n\t"
                     "sub $128, %%rsp\n\t"  // What lies below belongs to a function without calls.
                     "and $-16, %%rsp\n\t"
                     "call *%[function]\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack_top), "d"(pidfd), "r"(r10),
                       "r"(r8), [function] "r"(r12), [argument] "r"(r13)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = static_cast<long>(flags);
    register long x1 __asm__("x1") = reinterpret_cast<long>(stack_top);
    register long x2 __asm__("x2") = reinterpret_cast<long>(pidfd);
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    register ChildFunction x19 __asm__("x19") = function;
    register void* x20 __asm__("x20") = argument;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, %[argument]\n\t"
                     "blr %[function]\n\t"
                     "brk 0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3),
                       "r"(x4), [function] "r"(x19), [argument] "r"(x20)
                     : "x30", "memory");
    result = x0;
#endif
    return result;
}

}  // namespace nsbox::sys::raw
