#include "ns/socket_filter.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/socket.h>

namespace nsbox::ns {

namespace {

/// The numbers of one calling convention.
struct Numbers {
    std::uint32_t socket;
    std::uint32_t sendto;
    std::uint32_t sendmsg;
    std::uint32_t sendmmsg;
    std::uint32_t io_uring_setup;
    std::uint32_t socketcall;  ///< Socket calls by a number and memory, which no filter sees; or 0.
};

struct Convention {
    std::uint32_t architecture;
    Numbers numbers;
};

#if defined(__x86_64__)
constexpr std::uint32_t x32 = 0x40000000;
constexpr Convention conventions[] = {
    {AUDIT_ARCH_X86_64, {41, 44, 46, 307, 425, 0}},
    {AUDIT_ARCH_X86_64, {x32 + 41, x32 + 44, x32 + 518, x32 + 538, x32 + 425, 0}},
    {AUDIT_ARCH_I386, {359, 369, 370, 345, 425, 102}},
};
#else
constexpr Convention conventions[] = {
    {AUDIT_ARCH_AARCH64, {198, 206, 211, 269, 425, 0}},
    {AUDIT_ARCH_ARM, {281, 290, 296, 374, 425, 102}},
};
#endif

constexpr std::uint32_t mptcp = 262;             // IPPROTO_MPTCP
constexpr std::uint32_t smc = 256;               // IPPROTO_SMC
constexpr std::uint32_t fast_open = 0x20000000;  // MSG_FASTOPEN

/// A program that lets through what none of its rules is about.
class Program {
public:
    /// What follows is about calls of this convention only.
    void begin(std::uint32_t architecture) { architecture_ = architecture; }

    void refuse(std::uint32_t number, int error)
    {
        add(number, {BPF_STMT(BPF_RET | BPF_K, answer(error))});
    }
    /// If the low half of an argument, counted from 0, is `value`.
    void refuse_if(std::uint32_t number, unsigned argument, std::uint32_t value, int error)
    {
        add(number, {load_argument(argument), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
                     BPF_STMT(BPF_RET | BPF_K, answer(error))});
    }
    void refuse_if_set(std::uint32_t number, unsigned argument, std::uint32_t bits, int error)
    {
        add(number, {load_argument(argument), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
                     BPF_STMT(BPF_RET | BPF_K, answer(error))});
    }
    void refuse_unless(std::uint32_t number, unsigned argument,
                       const std::vector<std::uint32_t>& values, int error)
    {
        std::vector<sock_filter> rule{load_argument(argument)};
        for (std::size_t i = 0; i < values.size(); ++i)
            rule.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, values[i],
                                    static_cast<std::uint8_t>(values.size() - i), 0));
        rule.push_back(BPF_STMT(BPF_RET | BPF_K, answer(error)));
        add(number, rule);
    }

    std::vector<std::uint8_t> bytes()
    {
        code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        std::vector<std::uint8_t> bytes(code_.size() * sizeof(sock_filter));
        std::memcpy(bytes.data(), code_.data(), bytes.size());
        return bytes;
    }

private:
    static std::uint32_t answer(int error)
    {
        return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
    }
    static sock_filter load_argument(unsigned argument)
    {
        // The low half; both of our architectures are little-endian.
        return BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                        static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                                   argument * sizeof(std::uint64_t)));
    }
    /// Each rule checks all for itself: they are few, and no jump is far.
    void add(std::uint32_t number, const std::vector<sock_filter>& rule)
    {
        const auto size = static_cast<std::uint8_t>(rule.size());
        code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture_, 0,
                                 static_cast<std::uint8_t>(size + 2)));
        code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, size));
        code_.insert(code_.end(), rule.begin(), rule.end());
    }

    std::uint32_t architecture_ = 0;
    std::vector<sock_filter> code_;
};

}  // namespace

std::vector<std::uint8_t> allow_sockets(Sockets sockets)
{
    Program program;
    for (const auto& [architecture, numbers] : conventions) {
        program.begin(architecture);
        if (sockets == Sockets::none)
            program.refuse(numbers.socket, EACCES);
        else
            program.refuse_unless(numbers.socket, 0, {AF_INET, AF_INET6, AF_NETLINK}, EACCES);
        program.refuse(numbers.io_uring_setup, ENOSYS);
        if (numbers.socketcall != 0)
            program.refuse(numbers.socketcall, ENOSYS);
    }
    return program.bytes();
}

std::vector<std::uint8_t> refuse_other_tcp()
{
    constexpr std::uint32_t smc_family = 43;  // AF_SMC
    Program program;
    for (const auto& [architecture, numbers] : conventions) {
        program.begin(architecture);
        program.refuse_if(numbers.socket, 2, mptcp, EPROTONOSUPPORT);
        program.refuse_if(numbers.socket, 2, smc, EPROTONOSUPPORT);
        program.refuse_if(numbers.socket, 0, smc_family, EAFNOSUPPORT);
        program.refuse_if_set(numbers.sendto, 3, fast_open, EOPNOTSUPP);
        program.refuse_if_set(numbers.sendmsg, 2, fast_open, EOPNOTSUPP);
        program.refuse_if_set(numbers.sendmmsg, 3, fast_open, EOPNOTSUPP);
        program.refuse(numbers.io_uring_setup, ENOSYS);
        if (numbers.socketcall != 0)
            program.refuse(numbers.socketcall, ENOSYS);
    }
    return program.bytes();
}

}  // namespace nsbox::ns
