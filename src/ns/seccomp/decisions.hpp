#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <linux/filter.h>
#include <map>
#include <tuple>
#include <vector>

namespace nsbox::ns::seccomp {

/// 32 bits of seccomp_data, of which a program looks at those of the mask.
struct Word {
    std::uint32_t offset = 0;
    std::uint32_t mask = ~std::uint32_t{0};

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer.
    auto operator<=>(const Word&) const = default;
};

/// What a filter decides, as a graph of tests that end in answers. What is decided alike is there
/// once. Not safe for use by several threads at once.
class Decisions {
public:
    /// A test or an answer. What it leads to has smaller numbers.
    using Node = std::uint32_t;

    /// `value` is what the filter returns, SECCOMP_RET_*.
    Node answer(std::uint32_t value);

    /// `comparison` is BPF_JEQ, BPF_JGE or BPF_JGT, of unsigned numbers.
    Node test(Word word, std::uint16_t comparison, std::uint32_t value, Node yes, Node no);

    /// One that decides as `node` does without asking again for what is known on the way; `node` itself
    /// where that would be no shorter or take long.
    Node simplify(Node node);

    /// How many nodes can be reached.
    std::size_t count(Node root) const;

    /// As classic BPF. A word is loaded once for the tests of it that follow each other.
    std::vector<sock_filter> program(Node root) const;

private:
    struct Step {
        bool is_answer = false;
        Word word;
        std::uint16_t comparison = 0;
        std::uint32_t value = 0;
        Node yes = 0;
        Node no = 0;

        // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer.
        auto operator<=>(const Step&) const = default;
    };

    class Simplifier;
    class Writer;

    Node add(const Step& step);
    std::vector<bool> reachable(Node root) const;

    std::vector<Step> steps_;
    std::map<Step, Node> known_;
};

}  // namespace nsbox::ns::seccomp
