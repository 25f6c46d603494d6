#include "ns/seccomp/abi.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <linux/audit.h>
#include <seccomp.h>

namespace nsbox::ns::seccomp {

namespace {

struct AbiFacts {
    const char* name;
    std::uint32_t audit;
    std::uint32_t token;  ///< libseccomp's.
};

constexpr AbiFacts facts[] = {
    {"x86_64", AUDIT_ARCH_X86_64, SCMP_ARCH_X86_64},
    {"i386", AUDIT_ARCH_I386, SCMP_ARCH_X86},
    {"x32", AUDIT_ARCH_X86_64, SCMP_ARCH_X32},
    {"aarch64", AUDIT_ARCH_AARCH64, SCMP_ARCH_AARCH64},
    {"arm", AUDIT_ARCH_ARM, SCMP_ARCH_ARM},
};

struct Numbered {
    std::string_view name;
    std::uint32_t number;
};

/// Younger than some versions of libseccomp, and the same everywhere.
constexpr Numbered young[] = {
    {"cachestat", 451},         {"fchmodat2", 452},        {"map_shadow_stack", 453},
    {"futex_wake", 454},        {"futex_wait", 455},       {"futex_requeue", 456},
    {"statmount", 457},         {"listmount", 458},        {"lsm_get_self_attr", 459},
    {"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
    {"setxattrat", 463},        {"getxattrat", 464},       {"listxattrat", 465},
    {"removexattrat", 466},     {"open_tree_attr", 467},   {"file_getattr", 468},
    {"file_setattr", 469},
};

/// i386 has these twice: libseccomp gives them numbers that stand for socketcall(2) and ipc(2).
constexpr Numbered direct_on_i386[] = {
    {"socket", 359},      {"socketpair", 360},  {"bind", 361},       {"connect", 362},
    {"listen", 363},      {"accept4", 364},     {"getsockopt", 365}, {"setsockopt", 366},
    {"getsockname", 367}, {"getpeername", 368}, {"sendto", 369},     {"sendmsg", 370},
    {"recvfrom", 371},    {"recvmsg", 372},     {"shutdown", 373},   {"semget", 393},
    {"semctl", 394},      {"shmget", 395},      {"shmctl", 396},     {"shmat", 397},
    {"shmdt", 398},       {"msgget", 399},      {"msgsnd", 400},     {"msgrcv", 401},
    {"msgctl", 402},
};

constexpr std::uint32_t x32_bit = 0x40000000;

template <std::size_t N>
std::optional<std::uint32_t> find(const Numbered (&table)[N], std::string_view name)
{
    const auto* const found = std::find_if(std::begin(table), std::end(table),
                                           [&](const Numbered& it) { return it.name == name; });
    return found != std::end(table) ? std::optional{found->number} : std::nullopt;
}

const AbiFacts& facts_of(Abi abi)
{
    return facts[static_cast<std::size_t>(abi)];
}

}  // namespace

std::uint32_t audit_architecture(Abi abi)
{
    return facts_of(abi).audit;
}

const char* name_of(Abi abi)
{
    return facts_of(abi).name;
}

std::optional<Abi> abi_by_name(std::string_view name)
{
    for (const Abi abi : all_abis)
        if (name == name_of(abi))
            return abi;
    return std::nullopt;
}

std::vector<Abi> abis_of_this_machine()
{
#if defined(__x86_64__)
    return {Abi::x86_64, Abi::i386, Abi::x32};
#else
    return {Abi::aarch64, Abi::arm};
#endif
}

std::optional<std::uint32_t> number_of(Abi abi, const std::string& call)
{
    const int number = ::seccomp_syscall_resolve_name_arch(facts_of(abi).token, call.c_str());
    // Its other negative numbers stand for calls that this convention has not, or by way of another.
    if (number >= 0)
        return static_cast<std::uint32_t>(number);
    if (abi == Abi::i386)
        if (const auto direct = find(direct_on_i386, call))
            return direct;
    if (const auto direct = find(young, call))
        return *direct + (abi == Abi::x32 ? x32_bit : 0);
    return std::nullopt;
}

bool is_system_call(const std::string& call)
{
    return ::seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, call.c_str()) != __NR_SCMP_ERROR ||
           find(young, call);
}

std::string call_by_number(Abi abi, std::uint32_t number)
{
    char* const text =
        ::seccomp_syscall_resolve_num_arch(facts_of(abi).token, static_cast<int>(number));
    if (text != nullptr) {
        std::string name = text;
        std::free(text);
        return name;
    }
    if (abi == Abi::i386)
        for (const Numbered& it : direct_on_i386)
            if (it.number == number)
                return std::string{it.name};
    for (const Numbered& it : young)
        if (it.number + (abi == Abi::x32 ? x32_bit : 0) == number)
            return std::string{it.name};
    return {};
}

}  // namespace nsbox::ns::seccomp
