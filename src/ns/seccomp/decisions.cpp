#include "ns/seccomp/decisions.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace nsbox::ns::seccomp {

using Node = Decisions::Node;

Node Decisions::add(const Step& step)
{
    const auto [known, is_new] = known_.try_emplace(step, static_cast<Node>(steps_.size()));
    if (is_new)
        steps_.push_back(step);
    return known->second;
}

Node Decisions::answer(std::uint32_t value)
{
    Step step;
    step.is_answer = true;
    step.value = value;
    return add(step);
}

Node Decisions::test(Word word, std::uint16_t comparison, std::uint32_t value, Node yes, Node no)
{
    const bool is_equal = comparison == BPF_JEQ;
    if (yes == no || (is_equal && (value & ~word.mask) != 0))
        return no;
    if (word.mask == 0)
        return is_equal || (comparison == BPF_JGE && value == 0) ? yes : no;
    return add({false, word, comparison, value, yes, no});
}

std::vector<bool> Decisions::reachable(Node root) const
{
    std::vector<bool> found(root + std::size_t{1});
    found[root] = true;
    for (std::size_t node = root + std::size_t{1}; node-- > 0;)
        if (found[node] && !steps_[node].is_answer)
            found[steps_[node].yes] = found[steps_[node].no] = true;
    return found;
}

std::size_t Decisions::count(Node root) const
{
    const std::vector<bool> found = reachable(root);
    return static_cast<std::size_t>(std::count(found.begin(), found.end(), true));
}

/// Follows every way through a graph with what the tests on it have told.
class Decisions::Simplifier {
public:
    explicit Simplifier(Decisions& decisions) : decisions_(decisions) {}

    /// Nothing where there are too many ways.
    std::optional<Node> simplify(Node root)
    {
        const std::size_t size = decisions_.count(root);
        if (size > largest)
            return std::nullopt;
        patience_ = ways_each * size;
        find_words(root);
        return follow(root, {});
    }

private:
    // Ways are followed by recursion, and a host's threads may have small stacks.
    static constexpr std::size_t largest = 256;
    static constexpr std::size_t ways_each = 16;

    /// What is known of a word: it is in the range, and none of the others.
    struct Fact {
        std::uint32_t least = 0;
        std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
        std::vector<std::uint32_t> others;

        // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer.
        auto operator<=>(const Fact&) const = default;
    };

    using Facts = std::map<Word, Fact>;

    /// Which words are asked for from each node on.
    void find_words(Node root)
    {
        const std::vector<bool> found = decisions_.reachable(root);
        for (Node node = 0; node <= root; ++node) {
            const Step& step = decisions_.steps_[node];
            if (!found[node] || step.is_answer)
                continue;
            std::vector<Word> words{step.word};
            for (const Node next : {step.yes, step.no})
                words.insert(words.end(), words_[next].begin(), words_[next].end());
            std::sort(words.begin(), words.end());
            words.erase(std::unique(words.begin(), words.end()), words.end());
            words_[node] = std::move(words);
        }
    }

    std::optional<Node> follow(Node node, const Facts& known)
    {
        const Step step = decisions_.steps_[node];
        if (step.is_answer)
            return node;
        Facts facts;
        for (const Word& word : words_[node])
            if (const auto fact = known.find(word); fact != known.end())
                facts.insert(*fact);
        const auto key = std::pair{node, facts};
        if (const auto done = done_.find(key); done != done_.end())
            return done->second;
        if (patience_-- == 0) {
            patience_ = 0;
            return std::nullopt;
        }
        const std::optional<Fact> if_yes = learn(facts[step.word], step, true);
        const std::optional<Fact> if_no = learn(facts[step.word], step, false);
        std::optional<Node> yes;
        if (if_yes) {
            facts[step.word] = *if_yes;
            yes = follow(step.yes, facts);
        }
        std::optional<Node> no;
        if (if_no) {
            facts[step.word] = *if_no;
            no = follow(step.no, facts);
        }
        if ((if_yes && !yes) || (if_no && !no))
            return std::nullopt;
        const Node result = yes && no
                                ? decisions_.test(step.word, step.comparison, step.value, *yes, *no)
                            : yes ? *yes
                                  : *no;
        done_[key] = result;
        return result;
    }

    /// What is known after a test, or nothing if it cannot come out so.
    static std::optional<Fact> learn(Fact fact, const Step& step, bool yes)
    {
        const std::uint32_t value = step.value;
        if (step.comparison == BPF_JEQ) {
            const bool is_possible =
                value >= fact.least && value <= fact.most &&
                std::find(fact.others.begin(), fact.others.end(), value) == fact.others.end();
            if (yes) {
                if (!is_possible)
                    return std::nullopt;
                return Fact{value, value, {}};
            }
            if (is_possible)
                fact.others.insert(std::lower_bound(fact.others.begin(), fact.others.end(), value),
                                   value);
            return trim(std::move(fact));
        }
        // At least `value`, or more than it.
        const bool more = step.comparison == BPF_JGT;
        if (yes) {
            if (more && value == std::numeric_limits<std::uint32_t>::max())
                return std::nullopt;
            fact.least = std::max(fact.least, more ? value + 1 : value);
        } else {
            if (!more && value == 0)
                return std::nullopt;
            fact.most = std::min(fact.most, more ? value : value - 1);
        }
        return trim(std::move(fact));
    }

    static std::optional<Fact> trim(Fact fact)
    {
        const auto is_other = [&](std::uint32_t value) {
            return std::binary_search(fact.others.begin(), fact.others.end(), value);
        };
        while (fact.least < fact.most && is_other(fact.least))
            ++fact.least;
        while (fact.least < fact.most && is_other(fact.most))
            --fact.most;
        if (fact.least > fact.most || (fact.least == fact.most && is_other(fact.least)))
            return std::nullopt;
        fact.others.erase(std::remove_if(fact.others.begin(), fact.others.end(),
                                         [&](std::uint32_t value) {
                                             return value < fact.least || value > fact.most;
                                         }),
                          fact.others.end());
        return fact;
    }

    Decisions& decisions_;
    std::size_t patience_ = 0;
    std::map<Node, std::vector<Word>> words_;
    std::map<std::pair<Node, Facts>, Node> done_;
};

Node Decisions::simplify(Node node)
{
    const std::optional<Node> simple = Simplifier{*this}.simplify(node);
    return simple && count(*simple) < count(node) ? *simple : node;
}

/// Writes a program from its end to its beginning: a jump's targets, which only ever lie behind it,
/// are known when it is written.
class Decisions::Writer {
public:
    explicit Writer(const Decisions& decisions) : decisions_(decisions) {}

    std::vector<sock_filter> write(Node root)
    {
        const std::vector<bool> found = decisions_.reachable(root);
        const std::vector<bool> loads = find_loads(root, found);
        places_.resize(found.size());
        for (Node node = 0; node <= root; ++node)
            if (found[node])
                write(node, loads[node]);
        // The root has the highest number, so that the program begins with it.
        return {code_.rbegin(), code_.rend()};
    }

private:
    /// An instruction's distance from the end of the program.
    using Label = std::size_t;

    /// Where a test begins: with its word to be loaded, and with it loaded.
    struct Place {
        Label start = 0;
        Label loaded = 0;
    };

    // Conditional jumps have a byte for the way; some are kept for what comes between.
    static constexpr std::size_t reach = 250;

    /// Which tests are come to from elsewhere than a test of the same word.
    std::vector<bool> find_loads(Node root, const std::vector<bool>& found) const
    {
        std::vector<bool> loads(found.size());
        loads[root] = true;
        for (Node node = 0; node <= root; ++node) {
            const Step& step = decisions_.steps_[node];
            if (!found[node] || step.is_answer)
                continue;
            for (const Node next : {step.yes, step.no})
                if (decisions_.steps_[next].word != step.word)
                    loads[next] = true;
        }
        return loads;
    }

    void write(Node node, bool load)
    {
        const Step& step = decisions_.steps_[node];
        if (step.is_answer)
            return;  // Where it is used.
        const Label no = near(target(step, step.no));
        const Label yes = near(target(step, step.yes));
        // Coming to the second may have put the first further away: `reach` leaves room.
        places_[node].loaded = places_[node].start =
            add(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | step.comparison | BPF_K), step.value,
                         offset(yes), offset(no)));
        if (!load)
            return;
        if (step.word.mask != ~std::uint32_t{0})
            add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, step.word.mask));
        places_[node].start = add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, step.word.offset));
    }

    Label target(const Step& from, Node to)
    {
        const Step& step = decisions_.steps_[to];
        if (step.is_answer)
            return answer(step.value);
        return step.word == from.word ? places_[to].loaded : places_[to].start;
    }

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

    bool is_near(Label target) const { return code_.size() - target < reach; }

    /// A place within reach that leads to the target.
    Label near(Label target)
    {
        if (is_near(target))
            return target;
        const auto known = detours_.find(target);
        if (known != detours_.end() && is_near(known->second))
            return known->second;
        return detours_[target] = add(BPF_STMT(
                   BPF_JMP | BPF_JA, static_cast<std::uint32_t>(code_.size() - target - 1)));
    }

    std::uint8_t offset(Label target) const
    {
        return static_cast<std::uint8_t>(code_.size() - target - 1);
    }

    const Decisions& decisions_;
    std::vector<sock_filter> code_;
    std::vector<Place> places_;
    std::map<std::uint32_t, Label> answers_;
    std::map<Label, Label> detours_;
};

std::vector<sock_filter> Decisions::program(Node root) const
{
    if (steps_[root].is_answer)
        return {BPF_STMT(BPF_RET | BPF_K, steps_[root].value)};
    return Writer{*this}.write(root);
}

}  // namespace nsbox::ns::seccomp
