#include "runtime/denials/advise.hpp"
#include "runtime/denials/digest.hpp"
#include "runtime/denials/record.hpp"
#include "tests/unit/support/filters.hpp"

#include <doctest/doctest.h>

using namespace nsbox;
using ns::seccomp::Abi;
using runtime::Digest;

namespace {

using Lines = std::vector<std::string>;
using std::chrono::milliseconds;

const Digest::Clock::time_point start{std::chrono::hours{1}};

Lines add(Digest& digest, const std::string& key, milliseconds after)
{
    return digest.add(
        key, [&] { return "line " + key; }, start + after);
}

#if defined(__x86_64__)
seccomp_data native_call(const char* name, const tests::Arguments& arguments = {})
{
    return tests::call(Abi::x86_64, *ns::seccomp::number_of(Abi::x86_64, name), arguments);
}
#else
seccomp_data native_call(const char* name, const tests::Arguments& arguments = {})
{
    return tests::call(Abi::aarch64, *ns::seccomp::number_of(Abi::aarch64, name), arguments);
}
#endif

}  // namespace

TEST_CASE("denials: what is the same is told once, and counted once a second")
{
    Digest digest;
    CHECK(add(digest, "a", milliseconds{0}) == Lines{"line a"});
    CHECK_FALSE(digest.next().has_value());
    for (int i = 0; i < 10000; ++i)
        CHECK(add(digest, "a", milliseconds{1}).empty());
    CHECK(add(digest, "b", milliseconds{2}) == Lines{"line b"});
    REQUIRE(digest.next().has_value());
    CHECK(*digest.next() == start + milliseconds{1000});
    CHECK(digest.due(start + milliseconds{999}).empty());
    CHECK(digest.due(start + milliseconds{1000}) == Lines{"line a, \"repeated\": 10000"});
    CHECK(digest.due(start + milliseconds{5000}).empty());
    CHECK(add(digest, "a", milliseconds{5000}).empty());
    CHECK(digest.rest() == Lines{"line a, \"repeated\": 1"});
    CHECK(digest.rest().empty());
}

TEST_CASE("denials: what is new is written a hundred times a second, and the rest counted")
{
    Digest digest;
    std::size_t written = 0;
    for (int i = 0; i < 500; ++i)
        written += add(digest, std::to_string(i), milliseconds{10}).size();
    CHECK(written == Digest::most_a_second);
    CHECK(digest.due(start + milliseconds{1010}) == Lines{"\"kind\": \"lost\", \"lines\": 400"});
    CHECK(add(digest, "new", milliseconds{1020}) == Lines{"line new"});
    digest.lost(3);
    CHECK(digest.rest() == Lines{"\"kind\": \"lost\", \"lines\": 3"});
}

TEST_CASE("denials: so many different ones are forgotten, but not their counts")
{
    Digest digest;
    milliseconds now{0};
    add(digest, "first", now);
    add(digest, "first", now);
    std::size_t told = 0;
    for (std::size_t i = 0; i < 2 * Digest::most_known; ++i) {
        now += milliseconds{20};
        for (const std::string& line : add(digest, std::to_string(i), now))
            told += line == "line first, \"repeated\": 1" ? 1 : 0;
    }
    CHECK(told == 1);
    CHECK(add(digest, "first", now + milliseconds{2000}) == Lines{"line first"});
}

TEST_CASE("denials: a record is one object a line, whatever the texts are")
{
    runtime::Record record;
    record.kind = "open";
    record.call = "openat";
    record.program = "a\"b\n";
    record.refusal = {ENOENT, "/x", "mount", "why", "--ro /x"};
    record.is_estimate = true;
    CHECK(
        runtime::members_of(record) ==
        "\"kind\": \"open\", \"call\": \"openat\", \"arguments\": \"\", \"object\": \"/x\", "
        "\"errno\": \"ENOENT\", \"reason\": \"why\", \"wall\": \"mount\", \"option\": \"--ro /x\", "
        "\"estimated\": true, \"pid\": null, \"program\": \"a\\\"b\\u000a\", \"executable\": null");
    // A line has to fit into a pipe at once.
    const std::string worst(8192, '\1');
    record.program = record.executable = record.call = worst;
    record.refusal.object = record.refusal.option = record.refusal.reason = worst;
    runtime::DenialContext context;
    context.sandbox = "0123456789abcdef";
    const std::string line = runtime::stamped(runtime::members_of(record), context);
    CHECK(line.size() <= 4096);
    CHECK(line.ends_with("}\n"));
    CHECK(line.find('\n') == line.size() - 1);
}

TEST_CASE("denials: arguments are hexadecimal, without zeros at the end")
{
    CHECK(runtime::arguments_of(native_call("getpid")).empty());
    CHECK(runtime::arguments_of(native_call("mount", {1, 0, 0xff})) == "0x1, 0x0, 0xff");
}

TEST_CASE("denials: the option is one that opens the policy for this call")
{
    runtime::Adviser adviser{FilterWish{}};
    CHECK(adviser.option_for(native_call("mount")) == "--allow-userns");
    CHECK(adviser.option_for(native_call("ptrace")) == "--allow-ptrace");
    CHECK(adviser.option_for(native_call("bpf")) == "--cap-add CAP_BPF");
    CHECK(adviser.option_for(native_call("keyctl")) == "--seccomp-policy FILE");
    FilterWish unknown;
    unknown.policy.clear();
    CHECK(runtime::Adviser{unknown}.option_for(native_call("mount")).empty());
}
