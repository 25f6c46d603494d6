#include "ns/seccomp/disassemble.hpp"

#include "ns/seccomp/abi.hpp"
#include "sys/error.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <linux/seccomp.h>

namespace nsbox::ns::seccomp {

namespace {

constexpr Literal cannot{"Can't read the filter program"};

std::string hex(std::uint32_t value)
{
    char text[16];
    std::snprintf(text, sizeof text, "0x%x", value);
    return text;
}

std::string field(std::uint32_t offset)
{
    constexpr std::uint32_t word = sizeof(std::uint32_t);
    if (offset == offsetof(seccomp_data, nr))
        return "nr";
    if (offset == offsetof(seccomp_data, arch))
        return "arch";
    if (offset < offsetof(seccomp_data, args))
        return offset == offsetof(seccomp_data, instruction_pointer) ? "ip.low" : "ip.high";
    const auto from = static_cast<std::uint32_t>(offset - offsetof(seccomp_data, args));
    return "arg" + std::to_string(from / (2 * word)) + (from / word % 2 == 0 ? ".low" : ".high");
}

std::string answer(std::uint32_t value)
{
    const std::uint32_t data = value & SECCOMP_RET_DATA;
    switch (value & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
        return "allow";
    case SECCOMP_RET_LOG:
        return "log";
    case SECCOMP_RET_TRAP:
        return "trap";
    case SECCOMP_RET_KILL_PROCESS:
        return "kill";
    case SECCOMP_RET_KILL_THREAD:
        return "kill-thread";
    case SECCOMP_RET_TRACE:
        return "trace " + std::to_string(data);
    case SECCOMP_RET_USER_NOTIF:
        return "notify";
    case SECCOMP_RET_ERRNO: {
        const char* const name = ::strerrorname_np(static_cast<int>(data));
        return std::string{"deny "} + (name != nullptr && data != 0 ? name : std::to_string(data));
    }
    default:
        return hex(value);
    }
}

/// What a number that is compared may mean, as a comment.
std::string meaning(std::uint32_t loaded, std::uint32_t value)
{
    if (loaded != offsetof(seccomp_data, arch))
        return {};
    for (const Abi abi : all_abis)
        if (audit_architecture(abi) == value)
            return std::string{"    # "} + name_of(abi);
    return {};
}

struct Operation {
    std::uint16_t code;
    const char* name;
};

constexpr Operation jumps[] = {
    {BPF_JEQ, "jeq"}, {BPF_JGT, "jgt"}, {BPF_JGE, "jge"}, {BPF_JSET, "jset"}};

constexpr Operation arithmetic[] = {
    {BPF_ADD, "add"}, {BPF_SUB, "sub"}, {BPF_MUL, "mul"}, {BPF_DIV, "div"}, {BPF_OR, "or"},
    {BPF_AND, "and"}, {BPF_XOR, "xor"}, {BPF_LSH, "lsh"}, {BPF_RSH, "rsh"}, {BPF_NEG, "neg"}};

const char* find(std::span<const Operation> table, std::uint16_t code)
{
    for (const Operation& it : table)
        if (it.code == BPF_OP(code))
            return it.name;
    return nullptr;
}

/// The instructions but for jumps and answers; empty if there is no such one.
std::string plain(const sock_filter& it)
{
    switch (it.code) {
    case BPF_LD | BPF_W | BPF_ABS:
        return it.k % sizeof(std::uint32_t) == 0 && it.k < sizeof(seccomp_data)
                   ? "ld   " + field(it.k)
                   : std::string{};
    case BPF_LD | BPF_W | BPF_LEN:
        return "ld   length";
    case BPF_LDX | BPF_W | BPF_LEN:
        return "ldx  length";
    case BPF_LD | BPF_IMM:
        return "ld   " + hex(it.k);
    case BPF_LDX | BPF_IMM:
        return "ldx  " + hex(it.k);
    case BPF_LD | BPF_MEM:
        return it.k < BPF_MEMWORDS ? "ld   M[" + std::to_string(it.k) + "]" : std::string{};
    case BPF_LDX | BPF_MEM:
        return it.k < BPF_MEMWORDS ? "ldx  M[" + std::to_string(it.k) + "]" : std::string{};
    case BPF_ST:
        return it.k < BPF_MEMWORDS ? "st   M[" + std::to_string(it.k) + "]" : std::string{};
    case BPF_STX:
        return it.k < BPF_MEMWORDS ? "stx  M[" + std::to_string(it.k) + "]" : std::string{};
    case BPF_MISC | BPF_TAX:
        return "tax";
    case BPF_MISC | BPF_TXA:
        return "txa";
    default:
        break;
    }
    const char* const name = find(arithmetic, it.code);
    if (BPF_CLASS(it.code) != BPF_ALU || name == nullptr)
        return {};
    if (BPF_OP(it.code) == BPF_NEG)
        return name;
    return std::string{name} + "  " + (BPF_SRC(it.code) == BPF_X ? std::string{"x"} : hex(it.k));
}

}  // namespace

Result<std::string> disassemble(std::span<const sock_filter> program)
{
    std::string text;
    std::uint32_t loaded = 0;
    if (program.empty() || program.size() > BPF_MAXINSNS)
        return refuse(cannot, {}, "it has " + std::to_string(program.size()) + " instructions",
                      "1 to 4096 are possible");
    for (std::size_t at = 0; at < program.size(); ++at) {
        const sock_filter& it = program[at];
        std::string line = plain(it);
        const auto place = [&](std::size_t way) { return std::to_string(at + 1 + way); };
        bool is_inside = true;
        if (!line.empty()) {
            if (it.code == (BPF_LD | BPF_W | BPF_ABS))
                loaded = it.k;
        } else if (it.code == (BPF_JMP | BPF_JA)) {
            line = "ja   " + place(it.k);
            is_inside = it.k < program.size() - at - 1;
        } else if (const char* const test = find(jumps, it.code);
                   BPF_CLASS(it.code) == BPF_JMP && test != nullptr) {
            line = std::string{test} + "  " +
                   (BPF_SRC(it.code) == BPF_X ? std::string{"x"} : hex(it.k)) + ", " +
                   place(it.jt) + ", " + place(it.jf) + meaning(loaded, it.k);
            is_inside = std::max(it.jt, it.jf) < program.size() - at - 1;
        } else if (it.code == (BPF_RET | BPF_K)) {
            line = "ret  " + answer(it.k);
        } else if (it.code == (BPF_RET | BPF_A)) {
            line = "ret  a";
        }
        if (line.empty() || !is_inside)
            return refuse(cannot, "instruction " + std::to_string(at),
                          line.empty() ? "seccomp(2) has no such one"
                                       : "it jumps out of the program");
        char number[16];
        std::snprintf(number, sizeof number, "%4zu: ", at);
        text += number + line + "\n";
    }
    if (BPF_CLASS(program.back().code) != BPF_RET)
        return refuse(cannot, {}, "its last instruction gives no answer");
    return text;
}

}  // namespace nsbox::ns::seccomp
