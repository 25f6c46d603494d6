#include "ns/seccomp/compile.hpp"

#include "ns/seccomp/decisions.hpp"
#include "sys/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <linux/seccomp.h>
#include <map>
#include <span>

namespace nsbox::ns::seccomp {

namespace {

constexpr std::uint32_t not_here = SECCOMP_RET_ERRNO | ENOSYS;

using Node = Decisions::Node;

/// What a call is answered: the first of these rules that matches has the say, and the last always does.
using Outcome = std::vector<const Rule*>;

/// Numbers from `first` up to that of the next range.
struct Range {
    std::uint32_t first;
    Outcome outcome;
};

bool is_same(const Outcome& a, const Outcome& b)
{
    if (a.size() == 1 && b.size() == 1)
        return a.front()->answer == b.front()->answer;
    return a == b;
}

std::uint32_t half(std::uint64_t value, bool high)
{
    constexpr unsigned bits = 32;
    return static_cast<std::uint32_t>(high ? value >> bits : value);
}

/// An argument's half in seccomp_data; all our architectures are little-endian.
Word word_of(const Condition& condition, bool high)
{
    return {static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                       condition.argument * sizeof(std::uint64_t) +
                                       (high ? sizeof(std::uint32_t) : 0)),
            half(condition.mask, high)};
}

class Compiler {
public:
    explicit Compiler(const Policy& policy) : policy_(policy)
    {
        otherwise_.answer = policy.otherwise;
        nothing_.answer = not_here;
    }

    std::vector<sock_filter> compile(const std::vector<Abi>& machine)
    {
        std::map<std::uint32_t, std::vector<Abi>> sections;
        for (const Abi abi : machine)
            if (std::find(policy_.abis.begin(), policy_.abis.end(), abi) != policy_.abis.end())
                sections[audit_architecture(abi)].push_back(abi);
        Node next = decisions_.answer(not_here);
        for (const auto& [architecture, abis] : sections)
            next = decisions_.test(Word{offsetof(seccomp_data, arch)}, BPF_JEQ, architecture,
                                   search(ranges_of(abis)), next);
        return decisions_.program(next);
    }

private:
    std::vector<Range> ranges_of(const std::vector<Abi>& abis)
    {
        constexpr std::uint32_t x32_bit = 0x40000000;
        std::map<std::uint32_t, Outcome> numbers;
        bool has_own = false;
        bool has_x32 = false;
        for (const Abi abi : abis) {
            (abi == Abi::x32 ? has_x32 : has_own) = true;
            for (const Rule& rule : policy_.rules)
                if (rule.abis.empty() ||
                    std::find(rule.abis.begin(), rule.abis.end(), abi) != rule.abis.end())
                    for (const std::string& call : rule.calls)
                        if (const std::optional<std::uint32_t> number = number_of(abi, call))
                            add_rule(numbers[*number], rule);
        }
        const Rule* const below = has_own ? &otherwise_ : &nothing_;
        const bool is_x86 = abis.front() == Abi::x86_64 || abis.front() == Abi::x32;
        const Rule* const above = has_x32 || !is_x86 ? &otherwise_ : &nothing_;
        std::vector<Range> ranges;
        const auto put = [&](std::uint32_t first, const Outcome& outcome) {
            if (ranges.empty() || !is_same(ranges.back().outcome, outcome))
                ranges.push_back({first, outcome});
        };
        std::uint64_t next = 0;
        const auto fill = [&](std::uint64_t until) {
            if (next < std::min<std::uint64_t>(until, x32_bit))
                put(static_cast<std::uint32_t>(next), {below});
            next = std::max<std::uint64_t>(next, std::min<std::uint64_t>(until, x32_bit));
            if (next < until)
                put(static_cast<std::uint32_t>(next), {above});
            next = until;
        };
        for (auto& [number, outcome] : numbers) {
            fill(number);
            if (!outcome.back()->conditions.empty())
                outcome.push_back(&otherwise_);
            put(number, outcome);
            next = std::uint64_t{number} + 1;
        }
        constexpr std::uint64_t end = std::uint64_t{1} << 32;
        fill(end);
        return ranges;
    }

    /// Behind a rule without conditions nothing else counts.
    static void add_rule(Outcome& outcome, const Rule& rule)
    {
        if (outcome.empty() || !outcome.back()->conditions.empty())
            outcome.push_back(&rule);
    }

    Node search(std::span<const Range> ranges)
    {
        if (ranges.size() == 1)
            return decide(ranges.front().outcome);
        const std::size_t middle = ranges.size() / 2;
        const Node right = search(ranges.subspan(middle));
        const Node left = search(ranges.first(middle));
        return decisions_.test(Word{offsetof(seccomp_data, nr)}, BPF_JGE, ranges[middle].first,
                               right, left);
    }

    Node decide(const Outcome& outcome)
    {
        Node next = decisions_.answer(outcome.back()->answer);
        for (auto rule = outcome.rbegin() + 1; rule != outcome.rend(); ++rule) {
            const Node no = next;
            next = decisions_.answer((*rule)->answer);
            const std::vector<Condition>& conditions = (*rule)->conditions;
            for (auto it = conditions.rbegin(); it != conditions.rend(); ++it)
                next = decide(*it, next, no);
        }
        return decisions_.simplify(next);
    }

    Node decide(const Condition& it, Node yes, Node no)
    {
        switch (it.comparison) {
        case Comparison::equal:
            return decide_equal(it, yes, no);
        case Comparison::unequal:
            return decide_equal(it, no, yes);
        case Comparison::greater:
            return decide_order(it, BPF_JGT, yes, no);
        case Comparison::at_least:
            return decide_order(it, BPF_JGE, yes, no);
        case Comparison::less:
            return decide_order(it, BPF_JGE, no, yes);
        case Comparison::at_most:
            return decide_order(it, BPF_JGT, no, yes);
        }
        return no;
    }

    Node decide_equal(const Condition& it, Node yes, Node no)
    {
        const Node low = test_half(it, false, BPF_JEQ, yes, no);
        return it.low ? low : test_half(it, true, BPF_JEQ, low, no);
    }

    Node decide_order(const Condition& it, std::uint16_t comparison, Node yes, Node no)
    {
        const Node low = test_half(it, false, comparison, yes, no);
        if (it.low)
            return low;
        // The high half decides, unless it is the same.
        return test_half(it, true, BPF_JGT, yes, test_half(it, true, BPF_JEQ, low, no));
    }

    Node test_half(const Condition& it, bool high, std::uint16_t comparison, Node yes, Node no)
    {
        return decisions_.test(word_of(it, high), comparison, half(it.value, high), yes, no);
    }

    const Policy& policy_;
    Rule otherwise_;
    Rule nothing_;
    Decisions decisions_;
};

}  // namespace

Result<std::vector<sock_filter>> compile(const Policy& policy, const std::vector<Abi>& machine)
{
    std::vector<sock_filter> program = Compiler{policy}.compile(machine);
    if (program.size() > BPF_MAXINSNS)
        return refuse("Can't use the system call policy", {},
                      "it makes " + std::to_string(program.size()) +
                          " instructions, and the kernel takes " + std::to_string(BPF_MAXINSNS),
                      "use fewer conditions, or two policies");
    return program;
}

}  // namespace nsbox::ns::seccomp
