#include "ns/terminal_filter.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

using namespace nsbox;

namespace {

/// What the program answers, by a small interpreter of the instructions that it may use.
std::uint32_t answer(std::uint32_t arch, int number, std::uint64_t request)
{
    const std::vector<std::uint8_t> bytes = ns::refuse_terminal_input();
    REQUIRE(bytes.size() % sizeof(sock_filter) == 0);
    std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
    std::memcpy(program.data(), bytes.data(), bytes.size());
    seccomp_data data{};
    data.arch = arch;
    data.nr = number;
    data.args[1] = request;
    std::uint32_t accumulator = 0;
    for (std::size_t at = 0; at < program.size(); ++at) {
        const sock_filter& step = program[at];
        switch (step.code) {
        case BPF_LD | BPF_W | BPF_ABS:
            REQUIRE(step.k + 4 <= sizeof data);
            std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + step.k, 4);
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += accumulator == step.k ? step.jt : step.jf;
            break;
        case BPF_RET | BPF_K:
            return step.k;
        default:
            FAIL("an instruction that this program has no need of");
        }
    }
    FAIL("the program ends without an answer");
    return 0;
}

}  // namespace

TEST_CASE("terminal filter: what types into a terminal is refused, and nothing else")
{
    constexpr std::uint32_t refused = SECCOMP_RET_ERRNO | EPERM;
#if defined(__x86_64__)
    constexpr std::uint32_t own = AUDIT_ARCH_X86_64;
    constexpr std::uint32_t small = AUDIT_ARCH_I386;
#else
    constexpr std::uint32_t own = AUDIT_ARCH_AARCH64;
    constexpr std::uint32_t small = AUDIT_ARCH_ARM;
#endif
    constexpr int small_ioctl = 54;
    constexpr std::uint64_t high = std::uint64_t{0xdeadbeef} << 32;
    for (const std::uint64_t request : {TIOCSTI, TIOCLINUX})
        for (const std::uint64_t bits : {std::uint64_t{0}, std::uint64_t{1} << 32, high}) {
            CHECK(answer(own, SYS_ioctl, request | bits) == refused);
            CHECK(answer(small, small_ioctl, request | bits) == refused);
        }
    for (const std::uint64_t request : {TIOCGWINSZ, TCGETS, TIOCSTI + 1, TIOCSTI | 0x10000}) {
        CHECK(answer(own, SYS_ioctl, request) == SECCOMP_RET_ALLOW);
        CHECK(answer(small, small_ioctl, request) == SECCOMP_RET_ALLOW);
    }
#if defined(__x86_64__)
    CHECK(answer(own, 0x40000000 + 514, TIOCSTI) == refused);
    // fcntl(2) of i386 has another number, and 54 is setsockopt(2) here.
    CHECK(answer(own, small_ioctl, TIOCSTI) == SECCOMP_RET_ALLOW);
    CHECK(answer(small, 16, TIOCSTI) == SECCOMP_RET_ALLOW);
#endif
    CHECK(answer(own, SYS_read, TIOCSTI) == SECCOMP_RET_ALLOW);
    CHECK(answer(AUDIT_ARCH_S390X, SYS_ioctl, TIOCSTI) == SECCOMP_RET_ALLOW);
}
