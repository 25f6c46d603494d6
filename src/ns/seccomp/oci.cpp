#include "ns/seccomp/oci.hpp"

#include "sys/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <linux/seccomp.h>
#include <sys/utsname.h>

namespace nsbox::ns::seccomp {

namespace {

using Json = nlohmann::json;

constexpr Literal cannot{"Can't use the seccomp profile"};

struct Architecture {
    const char* oci;
    const char* go;  ///< As in includes and excludes.
    Abi abi;
};

constexpr Architecture architectures[] = {
    {"SCMP_ARCH_X86_64", "amd64", Abi::x86_64}, {"SCMP_ARCH_X86", "x86", Abi::i386},
    {"SCMP_ARCH_X32", "x32", Abi::x32},         {"SCMP_ARCH_AARCH64", "arm64", Abi::aarch64},
    {"SCMP_ARCH_ARM", "arm", Abi::arm},
};

class Reader {
public:
    Reader(std::string origin, const Circumstances& circumstances)
        : origin_(std::move(origin)), circumstances_(circumstances)
    {}

    Result<Policy> read(const std::string& text)
    {
        if (is_too_deep(text))
            return wrong("its lists and objects are too deep in each other");
        Json all = Json::parse(text, nullptr, false);
        if (all.is_object() && all.contains("linux") && all["linux"].is_object())
            all = Json(all["linux"]);
        if (all.is_object() && all.contains("seccomp") && all["seccomp"].is_object())
            all = Json(all["seccomp"]);
        if (!all.is_object() || !all.contains("defaultAction"))
            return wrong("it is no JSON object with a defaultAction");
        policy_.otherwise = TRY(answer(all, "defaultAction", "defaultErrnoRet"));
        take_architectures(all);
        const Json calls = all.value("syscalls", Json::array());
        if (!calls.is_array())
            return wrong("syscalls is no list");
        for (const Json& entry : calls) {
            if (!entry.is_object())
                return wrong("an entry of syscalls is no object");
            TRY(take_entry(entry));
        }
        std::stable_partition(policy_.rules.begin(), policy_.rules.end(),
                              [](const Rule& rule) { return rule.conditions.empty(); });
        return std::move(policy_);
    }

private:
    /// Values are copied and freed by functions that call themselves.
    static bool is_too_deep(const std::string& text)
    {
        constexpr int most = 64;
        int depth = 0;
        bool is_quoted = false;
        for (std::size_t at = 0; at < text.size(); ++at) {
            const char c = text[at];
            if (is_quoted && c == '\\')
                ++at;
            else if (c == '"')
                is_quoted = !is_quoted;
            else if (!is_quoted && (c == '[' || c == '{') && ++depth > most)
                return true;
            else if (!is_quoted && (c == ']' || c == '}'))
                --depth;
        }
        return false;
    }

    static bool is_texts(const Json& object, const char* key)
    {
        const auto found = object.find(key);
        return found == object.end() || found->is_null() ||
               (found->is_array() &&
                std::all_of(found->begin(), found->end(),
                            [](const Json& item) { return item.is_string(); }));
    }

    /// What is not understood could be meant to keep a call from being allowed.
    Result<> check_conditions(const Json& entry, const char* key) const
    {
        const auto found = entry.find(key);
        if (found == entry.end() || found->is_null())
            return {};
        if (!found->is_object() || !is_texts(*found, "caps") || !is_texts(*found, "arches"))
            return wrong(std::string{key} + " is no object with lists of texts");
        const auto kernel = found->find("minKernel");
        const bool is_version =
            kernel == found->end() || kernel->is_null() ||
            (kernel->is_string() && version(kernel->get<std::string>()).first > 0);
        return is_version ? Result<>{} : Result<>{wrong("minKernel is no version")};
    }

    tl::unexpected<Error> wrong(std::string reason, std::string hint = {}) const
    {
        return refuse(cannot, origin_, std::move(reason), std::move(hint));
    }

    static std::string text_of(const Json& object, const char* key)
    {
        const auto found = object.find(key);
        return found != object.end() && found->is_string() ? found->get<std::string>()
                                                           : std::string{};
    }

    static std::vector<std::string> list_of(const Json& object, const char* key)
    {
        std::vector<std::string> list;
        const auto found = object.find(key);
        if (found != object.end() && found->is_array())
            for (const Json& item : *found)
                if (item.is_string())
                    list.push_back(item.get<std::string>());
        return list;
    }

    Result<std::uint32_t> answer(const Json& object, const char* action, const char* error) const
    {
        constexpr struct {
            const char* action;
            std::uint32_t answer;
        } answers[] = {
            {"SCMP_ACT_ALLOW", SECCOMP_RET_ALLOW},
            {"SCMP_ACT_LOG", SECCOMP_RET_LOG},
            {"SCMP_ACT_TRAP", SECCOMP_RET_TRAP},
            {"SCMP_ACT_KILL", SECCOMP_RET_KILL_THREAD},
            {"SCMP_ACT_KILL_THREAD", SECCOMP_RET_KILL_THREAD},
            {"SCMP_ACT_KILL_PROCESS", SECCOMP_RET_KILL_PROCESS},
            {"SCMP_ACT_ERRNO", SECCOMP_RET_ERRNO},
            {"SCMP_ACT_TRACE", SECCOMP_RET_TRACE},
        };
        const std::string name = text_of(object, action);
        for (const auto& it : answers) {
            if (name != it.action)
                continue;
            if (it.answer != SECCOMP_RET_ERRNO && it.answer != SECCOMP_RET_TRACE)
                return it.answer;
            const auto number = object.find(error);
            if (number == object.end() || number->is_null())
                return it.answer | EPERM;
            // Higher ones the kernel would cut: seccomp(2).
            constexpr unsigned most = 4095;
            if (!number->is_number_unsigned() || number->get<std::uint64_t>() > most)
                return wrong(std::string{error} + " is no number up to 4095");
            return it.answer | number->get<std::uint32_t>();
        }
        return wrong(name.empty() ? std::string{"an action is missing"}
                                  : name + " is no action that can be taken here",
                     name == "SCMP_ACT_NOTIFY" ? "nobody would answer the notification" : "");
    }

    void take_architectures(const Json& all)
    {
        std::vector<std::string> names = list_of(all, "architectures");
        const auto map = all.find("archMap");
        if (map != all.end() && map->is_array())
            for (const Json& entry : *map)
                if (entry.is_object() && is_native(text_of(entry, "architecture"))) {
                    names.push_back(text_of(entry, "architecture"));
                    for (const std::string& sub : list_of(entry, "subArchitectures"))
                        names.push_back(sub);
                }
        policy_.abis = {abis_of_this_machine().front()};
        for (const Architecture& it : architectures)
            if (std::find(names.begin(), names.end(), it.oci) != names.end() &&
                it.abi != policy_.abis.front())
                policy_.abis.push_back(it.abi);
    }

    static bool is_native(const std::string& name)
    {
        return std::any_of(std::begin(architectures), std::end(architectures),
                           [&](const Architecture& it) {
                               return name == it.oci && it.abi == abis_of_this_machine().front();
                           });
    }

    Result<> take_entry(const Json& entry)
    {
        TRY(check_conditions(entry, "includes"));
        TRY(check_conditions(entry, "excludes"));
        if (!is_texts(entry, "names"))
            return wrong("names is no list of texts");
        const Json none = Json::object();
        const auto includes = entry.find("includes");
        const auto excludes = entry.find("excludes");
        if (!are_all_met(includes != entry.end() && includes->is_object() ? *includes : none) ||
            is_any_met(excludes != entry.end() && excludes->is_object() ? *excludes : none))
            return {};
        Rule rule;
        rule.answer = TRY(answer(entry, "action", "errnoRet"));
        // As in runc, what is answered anyway is no rule.
        if (rule.answer == policy_.otherwise)
            return {};
        std::vector<std::string> names = list_of(entry, "names");
        if (const std::string name = text_of(entry, "name"); !name.empty())
            names.push_back(name);
        if (names.empty())
            return wrong("an entry of syscalls has no names");
        for (std::string& name : names)
            if (is_system_call(name))
                rule.calls.push_back(std::move(name));
        const Json args = entry.value("args", Json::array());
        if (!args.is_array() && !args.is_null())
            return wrong("args is no list");
        unsigned seen = 0;
        bool is_repeated = false;
        for (const Json& arg : args) {
            rule.conditions.push_back(TRY(condition(arg)));
            const unsigned bit = 1U << rule.conditions.back().argument;
            is_repeated |= (seen & bit) != 0;
            seen |= bit;
        }
        // Two conditions on one argument are alternatives, as in runc.
        if (!is_repeated) {
            policy_.rules.push_back(std::move(rule));
            return {};
        }
        for (const Condition& one : rule.conditions)
            policy_.rules.push_back({rule.answer, rule.calls, {one}, {}});
        return {};
    }

    Result<Condition> condition(const Json& arg) const
    {
        constexpr struct {
            const char* op;
            Comparison comparison;
        } known[] = {
            {"SCMP_CMP_EQ", Comparison::equal},   {"SCMP_CMP_NE", Comparison::unequal},
            {"SCMP_CMP_LT", Comparison::less},    {"SCMP_CMP_LE", Comparison::at_most},
            {"SCMP_CMP_GT", Comparison::greater}, {"SCMP_CMP_GE", Comparison::at_least},
        };
        if (!arg.is_object())
            return wrong("an entry of args is no object");
        const std::optional<std::uint64_t> index = number_of(arg, "index");
        const std::optional<std::uint64_t> value = number_of(arg, "value");
        constexpr std::uint64_t last = 5;
        if (!index || *index > last)
            return wrong("an entry of args has no index from 0 to 5");
        if (!value)
            return wrong("an entry of args has no value from 0 up");
        Condition it;
        it.argument = static_cast<unsigned>(*index);
        it.value = *value;
        const std::string op = text_of(arg, "op");
        if (op == "SCMP_CMP_MASKED_EQ") {
            it.mask = *value;
            const auto second = arg.find("valueTwo");
            if (second != arg.end() && !second->is_number_unsigned())
                return wrong("valueTwo is no number from 0 up");
            it.value = number_of(arg, "valueTwo").value_or(0);
            return it;
        }
        for (const auto& one : known)
            if (op == one.op) {
                it.comparison = one.comparison;
                return it;
            }
        return wrong("'" + op + "' is no comparison");
    }

    static std::optional<std::uint64_t> number_of(const Json& object, const char* key)
    {
        const auto found = object.find(key);
        if (found == object.end() || !found->is_number_unsigned())
            return std::nullopt;
        return found->get<std::uint64_t>();
    }

    bool are_all_met(const Json& conditions) const
    {
        for (const std::string& name : list_of(conditions, "caps"))
            if (!circumstances_.has(name))
                return false;
        const std::vector<std::string> arches = list_of(conditions, "arches");
        if (!arches.empty() && !is_among(arches))
            return false;
        const std::string kernel = text_of(conditions, "minKernel");
        return kernel.empty() || is_kernel_at_least(kernel);
    }

    bool is_any_met(const Json& conditions) const
    {
        for (const std::string& name : list_of(conditions, "caps"))
            if (circumstances_.has(name))
                return true;
        const std::string kernel = text_of(conditions, "minKernel");
        return is_among(list_of(conditions, "arches")) ||
               (!kernel.empty() && is_kernel_at_least(kernel));
    }

    static bool is_among(const std::vector<std::string>& names)
    {
        return std::any_of(std::begin(architectures), std::end(architectures),
                           [&](const Architecture& it) {
                               return it.abi == abis_of_this_machine().front() &&
                                      std::find(names.begin(), names.end(), it.go) != names.end();
                           });
    }

    static bool is_kernel_at_least(const std::string& wanted)
    {
        utsname name;
        if (::uname(&name) != 0)
            return false;
        return version(name.release) >= version(wanted);
    }

    /// Major and minor number, "6.1.0-18-amd64".
    static std::pair<unsigned, unsigned> version(const std::string& text)
    {
        std::pair<unsigned, unsigned> both{0, 0};
        const char* const end = text.data() + text.size();
        const auto major = std::from_chars(text.data(), end, both.first);
        if (major.ptr != end && *major.ptr == '.')
            std::from_chars(major.ptr + 1, end, both.second);
        return both;
    }

    std::string origin_;
    const Circumstances& circumstances_;
    Policy policy_;
};

}  // namespace

Result<Policy> read_oci_profile(const std::string& text, const std::string& origin,
                                const Circumstances& circumstances)
{
    return Reader{origin, circumstances}.read(text);
}

}  // namespace nsbox::ns::seccomp
