#pragma once

#include "ns/seccomp/policy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <span>

namespace nsbox::tests {

/// What a program of seccomp(2) answers: the kernel's machine as its documentation has it.
inline std::uint32_t answer(std::span<const sock_filter> program, const seccomp_data& data)
{
    std::uint32_t a = 0;
    for (std::size_t at = 0; at < program.size(); ++at) {
        const sock_filter& it = program[at];
        switch (it.code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (it.k % 4 != 0 || it.k + 4 > sizeof data)
                FAIL("it loads what is not there");
            std::memcpy(&a, reinterpret_cast<const char*>(&data) + it.k, 4);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= it.k;
            break;
        case BPF_JMP | BPF_JA:
            at += it.k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += a == it.k ? it.jt : it.jf;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            at += a > it.k ? it.jt : it.jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            at += a >= it.k ? it.jt : it.jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += (a & it.k) != 0 ? it.jt : it.jf;
            break;
        case BPF_RET | BPF_K:
            return it.k;
        default:
            FAIL("an instruction that no program here has need of");
        }
    }
    FAIL("the program ends without an answer");
    return 0;
}

using Arguments = std::array<std::uint64_t, 6>;

/// One call of a calling convention.
inline seccomp_data call(ns::seccomp::Abi abi, std::uint32_t number,
                         const Arguments& arguments = {})
{
    seccomp_data data{};
    data.arch = ns::seccomp::audit_architecture(abi);
    data.nr = static_cast<int>(number);
    std::copy(arguments.begin(), arguments.end(), data.args);
    return data;
}

inline bool holds(const ns::seccomp::Condition& it, const Arguments& arguments)
{
    using ns::seccomp::Comparison;
    std::uint64_t value = arguments[it.argument];
    if (it.low)
        value &= 0xffffffff;
    value &= it.mask;
    switch (it.comparison) {
    case Comparison::equal:
        return value == it.value;
    case Comparison::unequal:
        return value != it.value;
    case Comparison::less:
        return value < it.value;
    case Comparison::at_most:
        return value <= it.value;
    case Comparison::greater:
        return value > it.value;
    case Comparison::at_least:
        return value >= it.value;
    }
    return false;
}

/// What a policy answers to calls of one calling convention by its own words, without a program.
class Meaning {
public:
    Meaning(const ns::seccomp::Policy& policy, ns::seccomp::Abi abi) : otherwise_(policy.otherwise)
    {
        const auto has = [&](const std::vector<ns::seccomp::Abi>& abis) {
            return std::find(abis.begin(), abis.end(), abi) != abis.end();
        };
        if (!has(policy.abis)) {
            otherwise_ = SECCOMP_RET_ERRNO | ENOSYS;
            return;
        }
        for (const ns::seccomp::Rule& rule : policy.rules)
            if (rule.abis.empty() || has(rule.abis))
                for (const std::string& name : rule.calls)
                    if (const auto number = ns::seccomp::number_of(abi, name))
                        rules_[*number].push_back(&rule);
    }

    std::uint32_t of(std::uint32_t number, const Arguments& arguments) const
    {
        if (const auto rules = rules_.find(number); rules != rules_.end())
            for (const ns::seccomp::Rule* rule : rules->second)
                if (std::all_of(rule->conditions.begin(), rule->conditions.end(),
                                [&](const auto& it) { return holds(it, arguments); }))
                    return rule->answer;
        return otherwise_;
    }

private:
    std::map<std::uint32_t, std::vector<const ns::seccomp::Rule*>> rules_;
    std::uint32_t otherwise_;
};

}  // namespace nsbox::tests
