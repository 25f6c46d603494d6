#include "ns/terminal_filter.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>

namespace nsbox::ns {

namespace {

constexpr std::uint32_t architecture = offsetof(seccomp_data, arch);
constexpr std::uint32_t number = offsetof(seccomp_data, nr);
// The low half of the second argument; both of our architectures are little-endian.
constexpr std::uint32_t request = offsetof(seccomp_data, args) + sizeof(std::uint64_t);

constexpr sock_filter load(std::uint32_t offset)
{
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}
constexpr sock_filter if_equal(std::uint32_t value, std::uint8_t yes, std::uint8_t no)
{
    return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
}
constexpr sock_filter answer(std::uint32_t value)
{
    return BPF_STMT(BPF_RET | BPF_K, value);
}

// ioctl's numbers: of this architecture, of its 32-bit one, and of x32.
#if defined(__x86_64__)
constexpr std::uint32_t own = AUDIT_ARCH_X86_64;
constexpr std::uint32_t own_ioctl = 16;
constexpr std::uint32_t other_ioctl = 0x40000000 + 514;
constexpr std::uint32_t small_ioctl = 54;
constexpr std::uint32_t small = AUDIT_ARCH_I386;
#else
constexpr std::uint32_t own = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t own_ioctl = 29;
constexpr std::uint32_t other_ioctl = 29;
constexpr std::uint32_t small_ioctl = 54;
constexpr std::uint32_t small = AUDIT_ARCH_ARM;
#endif

constexpr sock_filter program[] = {
    load(architecture),
    if_equal(own, 3, 0),
    if_equal(small, 0, 8),
    load(number),
    if_equal(small_ioctl, 3, 6),
    load(number),
    if_equal(own_ioctl, 1, 0),
    if_equal(other_ioctl, 0, 3),
    load(request),
    if_equal(TIOCSTI, 2, 0),
    if_equal(TIOCLINUX, 1, 0),
    answer(SECCOMP_RET_ALLOW),
    answer(SECCOMP_RET_ERRNO | EPERM),
};

}  // namespace

std::vector<std::uint8_t> refuse_terminal_input()
{
    std::vector<std::uint8_t> bytes(sizeof program);
    std::memcpy(bytes.data(), program, sizeof program);
    return bytes;
}

}  // namespace nsbox::ns
