#include "ns/seccomp/parse.hpp"

#include "ns/seccomp/symbols.hpp"
#include "nsbox/spec.hpp"
#include "sys/error.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <linux/seccomp.h>
#include <map>

namespace nsbox::ns::seccomp {

namespace {

using Words = std::vector<std::string>;

constexpr Literal cannot{"Can't use the system call policy"};
constexpr unsigned most_includes = 16;

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

void add_words(std::string_view line, Words& words)
{
    while (!line.empty() && line.front() != '#') {
        if (is_blank(line.front())) {
            line.remove_prefix(1);
            continue;
        }
        std::size_t size = 0;
        while (size < line.size() && !is_blank(line[size]) && line[size] != '#')
            ++size;
        words.emplace_back(line.substr(0, size));
        line.remove_prefix(size);
    }
}

std::optional<std::uint64_t> number(std::string_view text)
{
    int base = 10;
    if (text.starts_with("0x")) {
        base = 16;
        text.remove_prefix(2);
    } else if (text.size() > 1 && text.starts_with('0')) {
        base = 8;
        text.remove_prefix(1);
    }
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value, base);
    return result.ec == std::errc{} && result.ptr == end ? std::optional{value} : std::nullopt;
}

/// Numbers and names, "A|B|0x10".
std::optional<std::uint64_t> value_of(std::string_view text)
{
    std::uint64_t all = 0;
    while (true) {
        const std::size_t bar = std::min(text.find('|'), text.size());
        const std::string_view part = text.substr(0, bar);
        std::optional<std::uint64_t> value = number(part);
        if (!value)
            value = constant_by_name(part);
        if (!value)
            return std::nullopt;
        all |= *value;
        if (bar == text.size())
            return all;
        text.remove_prefix(bar + 1);
    }
}

std::optional<Comparison> comparison(const std::string& text)
{
    constexpr struct {
        const char* text;
        Comparison comparison;
    } known[] = {{"==", Comparison::equal},  {"!=", Comparison::unequal},
                 {"<", Comparison::less},    {"<=", Comparison::at_most},
                 {">", Comparison::greater}, {">=", Comparison::at_least}};
    for (const auto& it : known)
        if (text == it.text)
            return it.comparison;
    return std::nullopt;
}

class Parser {
public:
    Parser(const Circumstances& circumstances, const Include& include)
        : circumstances_(circumstances), include_(include)
    {
        policy_.otherwise = SECCOMP_RET_ERRNO | ENOSYS;
    }

    Result<> read(const std::string& text, const std::string& origin)
    {
        const std::string before = std::exchange(origin_, origin);
        const std::size_t line_before = line_;
        if (text.find('\0') != std::string::npos)
            return refuse(cannot, origin, "it is no text file");
        Words words;
        std::size_t number = 0;
        constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
        std::size_t begin = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
        while (begin < text.size()) {
            const std::size_t end = std::min(text.find('\n', begin), text.size());
            const std::string_view line = std::string_view{text}.substr(begin, end - begin);
            begin = end + 1;
            ++number;
            // An indented line goes on with the statement before it; a comment ends nothing.
            const bool goes_on = !line.empty() && is_blank(line.front());
            if (!goes_on && !line.empty() && line.front() != '#') {
                TRY(take(words));
                words.clear();
                line_ = number;
            }
            const std::size_t count = words.size();
            add_words(line, words);
            if (goes_on && count == 0 && !words.empty()) {
                line_ = number;
                return wrong("an indented line has no statement before it to go on with");
            }
        }
        TRY(take(words));
        if (!before.empty())
            origin_ = before;
        line_ = line_before;
        return {};
    }

    Result<Policy> finish()
    {
        if (!has_statement_)
            return refuse(cannot, origin_, "it has no statement");
        if (policy_.abis.empty())
            policy_.abis = {abis_of_this_machine().front()};
        return std::move(policy_);
    }

private:
    tl::unexpected<Error> wrong(std::string reason, std::string hint = {}) const
    {
        return refuse(cannot, origin_ + ", line " + std::to_string(line_), std::move(reason),
                      std::move(hint));
    }

    Result<> take(const Words& words)
    {
        if (words.empty())
            return {};
        has_statement_ = true;
        const std::string& first = words.front();
        if (first == "abis")
            return take_abis(words);
        if (first == "otherwise")
            return take_otherwise(words);
        if (first == "group")
            return take_group(words);
        if (first == "include")
            return take_include(words);
        return take_rule(words);
    }

    Result<> take_abis(const Words& words)
    {
        for (std::size_t at = 1; at < words.size(); ++at) {
            const std::optional<Abi> abi = abi_by_name(words[at]);
            if (!abi)
                return wrong(words[at] + " is no calling convention",
                             "there are x86_64, i386, x32, aarch64 and arm");
            policy_.abis.push_back(*abi);
        }
        return words.size() > 1 ? Result<>{} : Result<>{wrong("abis takes names")};
    }

    Result<> take_otherwise(const Words& words)
    {
        std::size_t at = 1;
        policy_.otherwise = TRY(take_answer(words, at));
        return at == words.size() ? Result<>{}
                                  : Result<>{wrong("otherwise takes an answer and nothing else")};
    }

    Result<> take_group(const Words& words)
    {
        if (words.size() < 4 || words[2] != "=")
            return wrong("a group is said as: group NAME = CALL...");
        std::vector<std::string> calls;
        for (std::size_t at = 3; at < words.size(); ++at)
            TRY(add_calls(words[at], calls));
        if (!groups_.emplace(words[1], std::move(calls)).second)
            return wrong("there is a group " + words[1] + " already");
        return {};
    }

    Result<> take_include(const Words& words)
    {
        if (words.size() != 2)
            return wrong("include takes one name: default, strict or a file");
        if (++includes_ > most_includes)
            return wrong("too many policies include each other");
        Result<Included> included = include_(words[1]);
        if (!included)
            return wrong("can't include " + words[1] + ": " + included.error().message());
        const std::size_t first = included->text.find_first_not_of(" \t\r\n");
        if (first != std::string::npos && included->text[first] == '{')
            return wrong(words[1] + " is a profile in JSON, which can't be included",
                         "name it with a --seccomp-policy of its own");
        return read(included->text, included->origin);
    }

    Result<> take_rule(const Words& words)
    {
        std::size_t at = 0;
        Rule rule;
        bool applies = true;
        for (; at < words.size(); at += 2) {
            const bool with = words[at] == "with";
            if (!with && words[at] != "without" && words[at] != "on")
                break;
            if (at + 1 >= words.size())
                return wrong(words[at] + " takes a name");
            if (words[at] == "on") {
                const std::optional<Abi> abi = abi_by_name(words[at + 1]);
                if (!abi)
                    return wrong(words[at + 1] + " is no calling convention");
                rule.abis.push_back(*abi);
                continue;
            }
            if (!is_circumstance(words[at + 1]))
                return wrong("there is no circumstance " + words[at + 1],
                             "it is userns, tracing or a capability, CAP_NET_RAW");
            applies = applies && circumstances_.has(words[at + 1]) == with;
        }
        rule.answer = TRY(take_answer(words, at));
        for (; at < words.size() && words[at] != "if"; ++at)
            TRY(add_calls(words[at], rule.calls));
        if (rule.calls.empty())
            return wrong("the statement names no system call");
        if (at < words.size())
            TRY(take_conditions(words, at + 1, rule.conditions));
        if (applies)
            policy_.rules.push_back(std::move(rule));
        return {};
    }

    static bool is_circumstance(const std::string& name)
    {
        return name == "userns" || name == "tracing" ||
               (name.starts_with("CAP_") && capability_by_name(name));
    }

    Result<std::uint32_t> take_answer(const Words& words, std::size_t& at)
    {
        constexpr struct {
            const char* word;
            std::uint32_t answer;
        } answers[] = {
            {"allow", SECCOMP_RET_ALLOW},
            {"log", SECCOMP_RET_LOG},
            {"trap", SECCOMP_RET_TRAP},
            {"kill", SECCOMP_RET_KILL_PROCESS},
            {"kill-thread", SECCOMP_RET_KILL_THREAD},
        };
        const std::string word = at < words.size() ? words[at++] : std::string{};
        for (const auto& it : answers)
            if (word == it.word)
                return it.answer;
        if (word != "deny")
            return wrong(word.empty() ? "an answer is missing"
                                      : "'" + word + "' begins no statement",
                         "a statement begins with allow, deny, kill, kill-thread, trap, log, with, "
                         "without, on, group, include, abis or otherwise");
        if (at < words.size() && words[at].starts_with('E')) {
            const std::optional<std::uint32_t> error = errno_by_name(words[at]);
            if (!error)
                return wrong(words[at] + " is no error", "they are named as in errno(3)");
            ++at;
            return SECCOMP_RET_ERRNO | *error;
        }
        return SECCOMP_RET_ERRNO | EPERM;
    }

    Result<> add_calls(const std::string& word, std::vector<std::string>& calls)
    {
        if (word.starts_with('@')) {
            const auto group = groups_.find(word.substr(1));
            if (group == groups_.end())
                return wrong("there is no group " + word.substr(1) + " yet");
            for (const std::string& call : group->second)
                add_call(call, calls);
            return {};
        }
        if (!is_system_call(word))
            return wrong(word + " is no system call that is known here", "see syscalls(2)");
        add_call(word, calls);
        return {};
    }

    /// Once: groups of groups would grow without end.
    static void add_call(const std::string& call, std::vector<std::string>& calls)
    {
        if (std::find(calls.begin(), calls.end(), call) == calls.end())
            calls.push_back(call);
    }

    Result<> take_conditions(const Words& words, std::size_t at, std::vector<Condition>& conditions)
    {
        while (true) {
            conditions.push_back(TRY(take_condition(words, at)));
            if (at == words.size())
                return {};
            if (words[at++] != "and")
                return wrong("conditions are joined by 'and', not '" + words[at - 1] + "'");
        }
    }

    Result<Condition> take_condition(const Words& words, std::size_t& at)
    {
        constexpr const char* form = "a condition is said as: argN [& MASK] COMPARISON VALUE, or "
                                     "argN:int for the low 32 bits";
        Condition it;
        const std::string name = at < words.size() ? words[at++] : std::string{};
        it.low = name.ends_with(":int");
        const std::string argument = it.low ? name.substr(0, name.size() - 4) : name;
        if (argument.size() != 4 || !argument.starts_with("arg") || argument[3] < '0' ||
            argument[3] > '5')
            return wrong("'" + name + "' is no argument", form);
        it.argument = static_cast<unsigned>(argument[3] - '0');
        if (at + 1 < words.size() && words[at] == "&") {
            const std::optional<std::uint64_t> mask = value_of(words[at + 1]);
            if (!mask)
                return wrong("'" + words[at + 1] + "' is no number that is known here", form);
            it.mask = *mask;
            at += 2;
        }
        if (at + 1 >= words.size())
            return wrong("the condition ends too early", form);
        const std::optional<Comparison> how = comparison(words[at]);
        if (!how)
            return wrong("'" + words[at] + "' is no comparison", "== != < <= > >=");
        it.comparison = *how;
        const std::optional<std::uint64_t> value = value_of(words[at + 1]);
        if (!value)
            return wrong("'" + words[at + 1] + "' is no number that is known here", form);
        it.value = *value;
        at += 2;
        constexpr std::uint64_t most = 0xffffffff;
        if (it.low && (it.value > most || (it.mask > most && it.mask != ~std::uint64_t{0})))
            return wrong("an int has 32 bits");
        if ((it.value & ~it.mask) != 0)
            return wrong("the value has bits that the mask takes away: it is never equal");
        return it;
    }

    const Circumstances& circumstances_;
    const Include& include_;
    Policy policy_;
    std::map<std::string, std::vector<std::string>> groups_;
    std::string origin_;
    std::size_t line_ = 0;
    unsigned includes_ = 0;
    bool has_statement_ = false;
};

}  // namespace

bool Circumstances::has(std::string_view name) const
{
    if (name == "userns")
        return user_namespaces;
    if (name == "tracing")
        return tracing;
    return std::find(capabilities.begin(), capabilities.end(), name) != capabilities.end();
}

Result<Policy> parse_policy(const std::string& text, const std::string& origin,
                            const Circumstances& circumstances, const Include& include)
{
    Parser parser{circumstances, include};
    TRY(parser.read(text, origin));
    return parser.finish();
}

}  // namespace nsbox::ns::seccomp
