#include "ns/seccomp/compile.hpp"

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

/// Writes a program from its end to its beginning: a jump's targets, which only ever lie behind it,
/// are known when it is written.
class Assembler {
public:
    /// An instruction's distance from the end of the program.
    using Label = std::size_t;

    Label add(sock_filter instruction)
    {
        code_.push_back(instruction);
        return code_.size() - 1;
    }

    /// The same answer is used again while it is within reach.
    Label answer(std::uint32_t value)
    {
        const auto known = answers_.find(value);
        if (known != answers_.end() && is_near(known->second))
            return known->second;
        return answers_[value] = add(BPF_STMT(BPF_RET | BPF_K, value));
    }

    Label load(std::uint32_t offset) { return add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }

    Label jump(std::uint16_t test, std::uint32_t value, Label yes, Label no)
    {
        if (yes == no)
            return yes;
        yes = near(yes);
        no = near(no);
        return add(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), value, offset(yes),
                            offset(no)));
    }

    /// What is written next must lead to `target`, wherever that is.
    void continue_at(Label target)
    {
        if (target + 1 != code_.size())
            add(BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(code_.size() - target - 1)));
    }

    std::vector<sock_filter> program() const { return {code_.rbegin(), code_.rend()}; }

private:
    // Conditional jumps have a byte for the way; some are kept for what comes between.
    static constexpr std::size_t reach = 250;

    bool is_near(Label target) const { return code_.size() - target < reach; }

    Label near(Label target)
    {
        if (is_near(target))
            return target;
        return add(
            BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(code_.size() - target - 1)));
    }

    std::uint8_t offset(Label target) const
    {
        return static_cast<std::uint8_t>(code_.size() - target - 1);
    }

    std::vector<sock_filter> code_;
    std::map<std::uint32_t, Label> answers_;
};

using Label = Assembler::Label;

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

/// Where an argument's half lies in seccomp_data; all our architectures are little-endian.
std::uint32_t offset_of(const Condition& condition, bool high)
{
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                      condition.argument * sizeof(std::uint64_t) +
                                      (high ? sizeof(std::uint32_t) : 0));
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
        const Label unknown = code_.answer(not_here);
        std::map<std::uint32_t, std::vector<Abi>> sections;
        for (const Abi abi : machine)
            if (std::find(policy_.abis.begin(), policy_.abis.end(), abi) != policy_.abis.end())
                sections[audit_architecture(abi)].push_back(abi);
        Label next = unknown;
        for (const auto& [architecture, abis] : sections) {
            const Label section = write_section(abis);
            // Tested in front of the sections: what was written before is the next test.
            next = code_.jump(BPF_JEQ, architecture, section, next);
        }
        code_.continue_at(next);
        code_.load(offsetof(seccomp_data, arch));
        return code_.program();
    }

private:
    Label write_section(const std::vector<Abi>& abis)
    {
        const std::vector<Range> ranges = ranges_of(abis);
        const Label search = write_search(ranges);
        code_.continue_at(search);
        return code_.load(offsetof(seccomp_data, nr));
    }

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

    Label write_search(std::span<const Range> ranges)
    {
        if (ranges.size() == 1)
            return write_outcome(ranges.front().outcome);
        const std::size_t middle = ranges.size() / 2;
        const Label right = write_search(ranges.subspan(middle));
        const Label left = write_search(ranges.first(middle));
        return code_.jump(BPF_JGE, ranges[middle].first, right, left);
    }

    Label write_outcome(const Outcome& outcome)
    {
        Label next = code_.answer(outcome.back()->answer);
        for (auto rule = outcome.rbegin() + 1; rule != outcome.rend(); ++rule) {
            const Label no = next;
            next = code_.answer((*rule)->answer);
            const std::vector<Condition>& conditions = (*rule)->conditions;
            for (auto it = conditions.rbegin(); it != conditions.rend(); ++it)
                next = write_condition(*it, next, no);
        }
        return next;
    }

    Label write_condition(const Condition& it, Label yes, Label no)
    {
        const bool whole = !it.low;
        switch (it.comparison) {
        case Comparison::equal:
            return write_equal(it, yes, no);
        case Comparison::unequal:
            return write_equal(it, no, yes);
        case Comparison::greater:
            return write_order(it, BPF_JGT, yes, no, whole);
        case Comparison::at_least:
            return write_order(it, BPF_JGE, yes, no, whole);
        case Comparison::less:
            return write_order(it, BPF_JGE, no, yes, whole);
        case Comparison::at_most:
            return write_order(it, BPF_JGT, no, yes, whole);
        }
        return no;
    }

    Label write_equal(const Condition& it, Label yes, Label no)
    {
        const Label low = write_half(it, false, BPF_JEQ, yes, no);
        return it.low ? low : write_half(it, true, BPF_JEQ, low, no);
    }

    Label write_order(const Condition& it, std::uint16_t test, Label yes, Label no, bool whole)
    {
        const Label low = write_half(it, false, test, yes, no);
        if (!whole)
            return low;
        // The high half decides, unless it is the same.
        const std::uint32_t value = half(it.value, true);
        const Label same = code_.jump(BPF_JEQ, value, low, no);
        code_.continue_at(code_.jump(BPF_JGT, value, yes, same));
        return write_masked_load(it, true);
    }

    Label write_half(const Condition& it, bool high, std::uint16_t test, Label yes, Label no)
    {
        code_.continue_at(code_.jump(test, half(it.value, high), yes, no));
        return write_masked_load(it, high);
    }

    Label write_masked_load(const Condition& it, bool high)
    {
        if (const std::uint32_t mask = half(it.mask, high); mask != ~std::uint32_t{0})
            code_.add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
        return code_.load(offset_of(it, high));
    }

    const Policy& policy_;
    Rule otherwise_;
    Rule nothing_;
    Assembler code_;
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
