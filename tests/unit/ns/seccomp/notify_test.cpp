#include "ns/seccomp/notify.hpp"

#include "ns/seccomp/evaluate.hpp"
#include "nsbox/seccomp.hpp"
#include "tests/unit/support/filters.hpp"

#include <doctest/doctest.h>

using namespace nsbox;
using ns::seccomp::Abi;
using ns::seccomp::evaluate;
using ns::seccomp::FilterProgram;
using ns::seccomp::instructions_of;
using ns::seccomp::make_notifying;
using ns::seccomp::Notifying;

namespace {

using Code = std::vector<sock_filter>;

constexpr std::array<std::uint64_t, 3> pass{0x1111222233334444, 5, 0x6666777700000000};
constexpr std::uint32_t watched[] = {257, 42};
constexpr std::uint32_t passing[] = {46, 157};
constexpr std::uint32_t refused = SECCOMP_RET_ERRNO | EPERM;

FilterProgram bytes_of(const Code& code)
{
    const auto* const data = reinterpret_cast<const std::uint8_t*>(code.data());
    return {data, data + code.size() * sizeof(sock_filter)};
}

/// Answers `value` to one number.
FilterProgram answer_to(std::uint32_t number, std::uint32_t value)
{
    return bytes_of(
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
         BPF_STMT(BPF_RET | BPF_K, value), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)});
}

Notifying notifying(const std::vector<FilterProgram>& filters)
{
    return make_notifying(filters, ns::seccomp::audit_architecture(Abi::x86_64), watched, passing,
                          pass);
}

std::uint32_t asked(const Notifying& made, const seccomp_data& call)
{
    return evaluate(instructions_of(made.listener), call);
}

}  // namespace

TEST_CASE("notify: what any filter refuses is asked about, and what none does is not")
{
    const Notifying made = notifying({answer_to(1, refused), answer_to(2, refused)});
    CHECK(made.rest.empty());
    CHECK(made.asked == std::vector<std::size_t>{0, 1});
    CHECK(asked(made, tests::call(Abi::x86_64, 1)) == SECCOMP_RET_USER_NOTIF);
    CHECK(asked(made, tests::call(Abi::x86_64, 2)) == SECCOMP_RET_USER_NOTIF);
    CHECK(asked(made, tests::call(Abi::x86_64, 3)) == SECCOMP_RET_ALLOW);
}

TEST_CASE("notify: watched calls are asked about in their own calling convention alone")
{
    const Notifying made = notifying({answer_to(1, refused)});
    CHECK(asked(made, tests::call(Abi::x86_64, 257)) == SECCOMP_RET_USER_NOTIF);
    CHECK(asked(made, tests::call(Abi::x86_64, 42)) == SECCOMP_RET_USER_NOTIF);
    CHECK(asked(made, tests::call(Abi::i386, 257)) == SECCOMP_RET_ALLOW);
    CHECK(asked(made, tests::call(Abi::x32, 257 | 0x40000000)) == SECCOMP_RET_ALLOW);
    // Without any filter too.
    CHECK(asked(notifying({}), tests::call(Abi::x86_64, 257)) == SECCOMP_RET_USER_NOTIF);
    CHECK(asked(notifying({}), tests::call(Abi::x86_64, 258)) == SECCOMP_RET_ALLOW);
}

TEST_CASE("notify: only who knows the words may pass")
{
    const Notifying made = notifying({answer_to(46, refused), answer_to(157, refused)});
    const auto with = [&](std::uint32_t number, tests::Arguments arguments) {
        return asked(made, tests::call(Abi::x86_64, number, arguments));
    };
    for (const std::uint32_t number : passing) {
        CHECK(with(number, {9, 9, 9, pass[0], pass[1], pass[2]}) == SECCOMP_RET_ALLOW);
        CHECK(with(number, {9, 9, 9, 0, 0, 0}) == SECCOMP_RET_USER_NOTIF);
        for (std::size_t i = 0; i < 3; ++i)
            for (const unsigned bit : {0U, 31U, 32U, 63U}) {
                tests::Arguments wrong{9, 9, 9, pass[0], pass[1], pass[2]};
                wrong[3 + i] ^= std::uint64_t{1} << bit;
                CHECK(with(number, wrong) == SECCOMP_RET_USER_NOTIF);
            }
    }
    CHECK(with(1, {9, 9, 9, pass[0], pass[1], pass[2]}) == SECCOMP_RET_ALLOW);
}

TEST_CASE("notify: what is more than an error stays with the kernel")
{
    const Notifying made =
        notifying({answer_to(1, SECCOMP_RET_KILL_PROCESS), answer_to(1, refused)});
    REQUIRE(made.rest.size() == 1);
    CHECK(evaluate(instructions_of(made.rest[0]), tests::call(Abi::x86_64, 1)) ==
          SECCOMP_RET_KILL_PROCESS);
    CHECK(asked(made, tests::call(Abi::x86_64, 1)) == SECCOMP_RET_USER_NOTIF);
}

TEST_CASE("notify: a program that computes its answer stays as it is")
{
    const FilterProgram computes =
        bytes_of({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                  BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 0x50000), BPF_STMT(BPF_RET | BPF_A, 0)});
    const Notifying made = notifying({computes, answer_to(2, refused)});
    CHECK(made.asked == std::vector<std::size_t>{1});
    REQUIRE(made.rest.size() == 1);
    CHECK(made.rest[0] == computes);
    CHECK(asked(made, tests::call(Abi::x86_64, 1)) == SECCOMP_RET_ALLOW);
}

TEST_CASE("notify: programs that do not fit stay as they are")
{
    const Code longest(4095, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0));
    Code code = longest;
    code.push_back(BPF_STMT(BPF_RET | BPF_K, refused));
    const Notifying made = notifying({bytes_of(code)});
    CHECK(made.asked.empty());
    REQUIRE(made.rest.size() == 1);
    CHECK(made.rest[0] == bytes_of(code));
}

TEST_CASE("notify: with the default policy each refusal is asked about, and nothing else")
{
    const Result<FilterProgram> policy = compile_filter({});
    REQUIRE(policy.has_value());
    const Notifying made = notifying({*policy});
    const Code program = instructions_of(*policy);
    for (const Abi abi : ns::seccomp::abis_of_this_machine())
        for (std::uint32_t number = 0; number < 600; ++number) {
            if (abi == Abi::x86_64 && (number == 257 || number == 42))
                continue;
            for (const std::uint64_t value :
                 {std::uint64_t{0}, std::uint64_t{0x5412}, ~std::uint64_t{0}}) {
                const seccomp_data call =
                    tests::call(abi, number | (abi == Abi::x32 ? 0x40000000U : 0U),
                                {value, value, value, value, value, value});
                const std::uint32_t answer = evaluate(program, call);
                CHECK(answer == tests::answer(program, call));
                const bool is_error = (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO;
                CHECK(asked(made, call) == (is_error ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW));
            }
        }
}

TEST_CASE("evaluate: the machine does what classic BPF says")
{
    seccomp_data call{};
    call.nr = 7;
    const auto run = [&](const Code& code) { return evaluate(code, call); };
    CHECK(run({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 5),
               BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 3),
               BPF_STMT(BPF_LD | BPF_W | BPF_IMM, 100), BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
               BPF_STMT(BPF_RET | BPF_A, 0)}) == 88);
    CHECK(run({BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_MISC | BPF_TAX, 0),
               BPF_STMT(BPF_LD | BPF_W | BPF_IMM, 64), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
               BPF_STMT(BPF_RET | BPF_K, 1), BPF_STMT(BPF_RET | BPF_K, 2)}) == 1);
    // What the kernel would not take.
    CHECK(run({}) == SECCOMP_RET_KILL_PROCESS);
    CHECK(run({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), BPF_STMT(BPF_RET | BPF_K, 0x7fff0000)}) ==
          SECCOMP_RET_KILL_PROCESS);
    CHECK(run({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0xfffffffc),
               BPF_STMT(BPF_RET | BPF_K, 0x7fff0000)}) == SECCOMP_RET_KILL_PROCESS);
}

TEST_CASE("evaluate: kill is stricter than an error, and that than a question")
{
    CHECK(ns::seccomp::is_stricter(SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD));
    CHECK(ns::seccomp::is_stricter(refused, SECCOMP_RET_USER_NOTIF));
    CHECK(ns::seccomp::is_stricter(refused, SECCOMP_RET_LOG));
    CHECK_FALSE(ns::seccomp::is_stricter(SECCOMP_RET_ALLOW, SECCOMP_RET_LOG));
    CHECK_FALSE(ns::seccomp::is_stricter(refused, SECCOMP_RET_ERRNO | ENOSYS));
}
