// The command line's parser, on any words divided by NULs, and what the planner makes of it.

#include <bwrap_parser.hpp>

#include "runtime/plan.hpp"
#include "tests/unit/support/hosts.hpp"
#include "words.hpp"

#include <climits>

#include <fcntl.h>

using namespace nsbox;
using tool::Request;

namespace {

int errors = 0;

/// A descriptor that is open here must not be read or closed: it becomes one that is closed.
void make_harmless(std::string& word)
{
    const std::size_t begin = word.rfind('=') + 1;  // 0 where there is none.
    const std::string digits = word.substr(begin);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
        return;
    const unsigned long long number = std::strtoull(digits.c_str(), nullptr, 10);
    if (number <= INT_MAX && ::fcntl(static_cast<int>(number), F_GETFD) >= 0)
        word.replace(begin, std::string::npos, "1000000");
}

struct CheckOperation {
    void operator()(const Bind& op) const
    {
        fuzz::require(!op.source.empty(), "a bind has a source");
    }
    void operator()(const Directory& op) const { check_mode(op.mode); }
    void operator()(const File& op) const { check_mode(op.mode); }
    void operator()(const Data& op) const { check_mode(op.mode); }
    void operator()(const Tmpfs& op) const { check_mode(op.mode); }
    void operator()(const Chmod& op) const { check_mode(op.mode); }
    void operator()(const Overlay& op) const
    {
        fuzz::require(op.lower.size() >= (op.upper_kind == Overlay::Upper::none ? 2 : 1),
                      "an overlay has enough layers");
        for (const std::string& layer : op.lower)
            fuzz::require(!layer.empty(), "a layer has a name");
    }
    template <class Other>
    void operator()(const Other&) const
    {}
    static void check_mode(unsigned mode) { fuzz::require(mode <= 07777, "modes are modes"); }
};

void check(const Spec& spec)
{
    fuzz::require(!spec.command.empty(), "what is run has a command");
    fuzz::require(spec.uid.value_or(0) != UINT_MAX && spec.gid.value_or(0) != UINT_MAX,
                  "ids are ids");
    for (const Operation& operation : spec.operations)
        std::visit(CheckOperation{}, operation);
    for (const EnvironmentEdit& edit : spec.environment)
        fuzz::require(edit.name.find('=') == std::string::npos, "variables have names");
    for (const sys::Host& host : {tests::user_host(), tests::root_host()}) {
        const Result<runtime::Plan> plan = runtime::plan(spec, host);
        fuzz::require(plan ? !plan->steps.empty() : !plan.error().message().empty(),
                      "a plan has steps, a refusal has a reason");
    }
}

}  // namespace

// Messages are counted and not shown.
void tool::write_out(int, const std::string&) {}

void tool::Messages::print(const char* level, const std::string&) const
{
    errors += std::string{level} == "<3>" ? 1 : 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    std::vector<std::string> words = fuzz::split(data, size);
    for (std::string& word : words)
        make_harmless(word);
    errors = 0;
    tool::Messages messages{"bwrap"};
    const std::optional<Request> request = tool::BwrapParser{messages}.parse(words);
    fuzz::require(errors == (request ? 0 : 1), "one error, or a request");
    if (request && request->kind == Request::Kind::run)
        check(request->spec);
    return 0;
}
