#include "ns/seccomp/notify.hpp"

#include "ns/seccomp/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <linux/seccomp.h>

namespace nsbox::ns::seccomp {

namespace {

using Code = std::vector<sock_filter>;

FilterProgram bytes_of(const Code& code)
{
    FilterProgram bytes(code.size() * sizeof(sock_filter));
    std::memcpy(bytes.data(), code.data(), bytes.size());
    return bytes;
}

bool is_answer(const sock_filter& it)
{
    return BPF_CLASS(it.code) == BPF_RET;
}

std::uint32_t action_of(const sock_filter& it)
{
    return it.k & SECCOMP_RET_ACTION_FULL;
}

/// One that computes its answer cannot be rewritten; one that has another process asked or a tracer told
/// would lose against the listener.
bool can_be_asked(const Code& code)
{
    return std::none_of(code.begin(), code.end(), [](const sock_filter& it) {
        return is_answer(it) && (BPF_RVAL(it.code) == BPF_A || action_of(it) == SECCOMP_RET_TRACE ||
                                 action_of(it) == SECCOMP_RET_USER_NOTIF);
    });
}

/// Whether it relies on what the machine's registers hold at the beginning.
bool needs_registers(const Code& code)
{
    return code.empty() || code.front().code != (BPF_LD | BPF_W | BPF_ABS) ||
           std::any_of(code.begin(), code.end(), [](const sock_filter& it) {
               const std::uint16_t kind = BPF_CLASS(it.code);
               return kind == BPF_STX || kind == BPF_LDX || kind == BPF_MISC ||
                      ((kind == BPF_ALU || kind == BPF_JMP) && BPF_SRC(it.code) == BPF_X);
           });
}

/// What is left of one: nothing, where all that it did was to answer by errors.
Code without_errors(Code code)
{
    bool is_needed = false;
    for (sock_filter& it : code)
        if (is_answer(it) && action_of(it) == SECCOMP_RET_ERRNO)
            it.k = SECCOMP_RET_ALLOW;
        else if (is_answer(it) && action_of(it) != SECCOMP_RET_ALLOW)
            is_needed = true;
    return is_needed ? code : Code{};
}

void add(Code& code, sock_filter it)
{
    code.push_back(it);
}

void load(Code& code, std::size_t offset)
{
    add(code, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
}

/// Leaves `code` to the instruction behind the end of this where a word is another than `value`.
struct Exits {
    std::vector<std::size_t> from;

    void unless(Code& code, std::uint32_t value)
    {
        from.push_back(code.size());
        add(code, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0));
    }
    void lead_to_end(Code& code) const
    {
        for (const std::size_t at : from)
            code[at].jf = static_cast<std::uint8_t>(code.size() - at - 1);
    }
};

Code let_pass(std::uint32_t architecture, std::span<const std::uint32_t> numbers,
              const std::array<std::uint64_t, 3>& pass)
{
    Code code;
    Exits exits;
    load(code, offsetof(seccomp_data, arch));
    exits.unless(code, architecture);
    load(code, offsetof(seccomp_data, nr));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const bool is_last = i + 1 == numbers.size();
        if (is_last)
            exits.unless(code, numbers[i]);
        else
            add(code, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i],
                               static_cast<std::uint8_t>(numbers.size() - i - 1), 0));
    }
    for (std::size_t i = 0; i < pass.size(); ++i)
        for (const bool high : {false, true}) {
            load(code, offsetof(seccomp_data, args) + (3 + i) * 8 + (high ? 4 : 0));
            exits.unless(code, static_cast<std::uint32_t>(pass[i] >> (high ? 32 : 0)));
        }
    add(code, BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    exits.lead_to_end(code);
    return code;
}

/// The end of the program: calls that are told about though they are let through.
Code watch(std::uint32_t architecture, std::span<const std::uint32_t> numbers)
{
    Code code;
    if (!numbers.empty()) {
        Exits exits;
        load(code, offsetof(seccomp_data, arch));
        exits.unless(code, architecture);
        load(code, offsetof(seccomp_data, nr));
        for (std::size_t i = 0; i < numbers.size(); ++i)
            add(code, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i],
                               static_cast<std::uint8_t>(numbers.size() - i), 0));
        exits.lead_to_end(code);
        add(code, BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    add(code,
        BPF_STMT(BPF_RET | BPF_K, numbers.empty() ? SECCOMP_RET_ALLOW : SECCOMP_RET_USER_NOTIF));
    return code;
}

/// Goes on behind its end where the filter does not answer by an error.
Code asking(const Code& code)
{
    Code asked;
    if (needs_registers(code)) {
        add(asked, BPF_STMT(BPF_LD | BPF_W | BPF_IMM, 0));
        add(asked, BPF_STMT(BPF_LDX | BPF_W | BPF_IMM, 0));
    }
    for (std::size_t at = 0; at < code.size(); ++at) {
        sock_filter it = code[at];
        if (is_answer(it))
            it = action_of(it) == SECCOMP_RET_ERRNO
                     ? sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
                     : sock_filter BPF_STMT(BPF_JMP | BPF_JA,
                                            static_cast<std::uint32_t>(code.size() - at - 1));
        add(asked, it);
    }
    return asked;
}

}  // namespace

Notifying make_notifying(std::span<const FilterProgram> filters, std::uint32_t architecture,
                         std::span<const std::uint32_t> watched,
                         std::span<const std::uint32_t> passing,
                         const std::array<std::uint64_t, 3>& pass)
{
    Notifying made;
    Code listener = let_pass(architecture, passing, pass);
    const Code end = watch(architecture, watched);
    for (std::size_t i = 0; i < filters.size(); ++i) {
        const Code code = instructions_of(filters[i]);
        const Code asked = asking(code);
        if (!can_be_asked(code) || listener.size() + asked.size() + end.size() > BPF_MAXINSNS) {
            made.rest.push_back(filters[i]);
            continue;
        }
        made.asked.push_back(i);
        listener.insert(listener.end(), asked.begin(), asked.end());
        if (const Code rest = without_errors(code); !rest.empty())
            made.rest.push_back(bytes_of(rest));
    }
    listener.insert(listener.end(), end.begin(), end.end());
    made.listener = bytes_of(listener);
    return made;
}

}  // namespace nsbox::ns::seccomp
