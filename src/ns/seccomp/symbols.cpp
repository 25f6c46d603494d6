#include "ns/seccomp/symbols.hpp"

#include <asm/ioctls.h>
#include <cerrno>
#include <cstring>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace nsbox::ns::seccomp {

namespace {

struct Constant {
    std::string_view name;
    std::uint64_t value;
};

// The macro spells a name once for the text and the number.
#define NSBOX_CONSTANT(name)                      \
    Constant                                      \
    {                                             \
#name, static_cast < std::uint64_t>(name) \
    }

// The kernel's value; libc's O_LARGEFILE and some others differ, and are left out.
constexpr Constant constants[] = {
    NSBOX_CONSTANT(AF_UNIX),
    NSBOX_CONSTANT(AF_INET),
    NSBOX_CONSTANT(AF_INET6),
    NSBOX_CONSTANT(AF_NETLINK),
    NSBOX_CONSTANT(AF_PACKET),
    NSBOX_CONSTANT(AF_ALG),
    NSBOX_CONSTANT(AF_VSOCK),
    NSBOX_CONSTANT(AF_BLUETOOTH),
    NSBOX_CONSTANT(AF_CAN),
    NSBOX_CONSTANT(AF_TIPC),
    NSBOX_CONSTANT(AF_KEY),
    {"AF_XDP", 44},
    {"AF_RDS", 21},
    {"SOCK_TYPE_MASK", 15},
    NSBOX_CONSTANT(SOCK_STREAM),
    NSBOX_CONSTANT(SOCK_DGRAM),
    NSBOX_CONSTANT(SOCK_RAW),
    NSBOX_CONSTANT(SOCK_SEQPACKET),
    {"SOCK_PACKET", 10},
    NSBOX_CONSTANT(IPPROTO_IP),
    NSBOX_CONSTANT(IPPROTO_ICMP),
    NSBOX_CONSTANT(IPPROTO_TCP),
    NSBOX_CONSTANT(IPPROTO_UDP),
    NSBOX_CONSTANT(IPPROTO_ICMPV6),
    NSBOX_CONSTANT(IPPROTO_SCTP),
    NSBOX_CONSTANT(IPPROTO_UDPLITE),
    {"IPPROTO_MPTCP", 262},
    NSBOX_CONSTANT(NETLINK_ROUTE),
    NSBOX_CONSTANT(NETLINK_NETFILTER),
    NSBOX_CONSTANT(NETLINK_KOBJECT_UEVENT),
    NSBOX_CONSTANT(CLONE_VM),
    NSBOX_CONSTANT(CLONE_THREAD),
    NSBOX_CONSTANT(CLONE_NEWNS),
    NSBOX_CONSTANT(CLONE_NEWCGROUP),
    NSBOX_CONSTANT(CLONE_NEWUTS),
    NSBOX_CONSTANT(CLONE_NEWIPC),
    NSBOX_CONSTANT(CLONE_NEWUSER),
    NSBOX_CONSTANT(CLONE_NEWPID),
    NSBOX_CONSTANT(CLONE_NEWNET),
    {"CLONE_NEWTIME", 0x80},
    NSBOX_CONSTANT(TIOCSTI),
    NSBOX_CONSTANT(TIOCLINUX),
    NSBOX_CONSTANT(TIOCSETD),
    NSBOX_CONSTANT(TIOCCONS),
    {"FS_IOC_SETFLAGS", 0x40086602},
    {"FS_IOC32_SETFLAGS", 0x40046602},
    {"FS_IOC_FSSETXATTR", 0x401c5820},
    {"O_CREAT", 0100},
    {"PER_LINUX", PER_LINUX},
    {"PER_LINUX32", PER_LINUX32},
    {"UNAME26", UNAME26},
    {"ADDR_NO_RANDOMIZE", ADDR_NO_RANDOMIZE},
    {"READ_IMPLIES_EXEC", READ_IMPLIES_EXEC},
    NSBOX_CONSTANT(PR_SET_SECCOMP),
    NSBOX_CONSTANT(PR_SET_NAME),
    NSBOX_CONSTANT(PR_SET_MM),
    NSBOX_CONSTANT(PR_SET_DUMPABLE),
    {"PTRACE_TRACEME", PTRACE_TRACEME},
    NSBOX_CONSTANT(S_IFMT),
    NSBOX_CONSTANT(S_IFCHR),
    NSBOX_CONSTANT(S_IFBLK),
    NSBOX_CONSTANT(S_ISUID),
    NSBOX_CONSTANT(S_ISGID),
};

#undef NSBOX_CONSTANT

}  // namespace

std::optional<std::uint64_t> constant_by_name(std::string_view name)
{
    for (const Constant& constant : constants)
        if (constant.name == name)
            return constant.value;
    return std::nullopt;
}

std::optional<std::uint32_t> errno_by_name(std::string_view name)
{
    constexpr int last = 133;
    for (int value = 1; value <= last; ++value)
        if (const char* const known = ::strerrorname_np(value))
            if (name == known)
                return static_cast<std::uint32_t>(value);
    // Further names of EAGAIN, EOPNOTSUPP and EDEADLK.
    if (name == "EWOULDBLOCK")
        return EWOULDBLOCK;
    if (name == "ENOTSUP")
        return ENOTSUP;
    return std::nullopt;
}

}  // namespace nsbox::ns::seccomp
