#include "ns/seccomp/compile.hpp"

#include "ns/seccomp/disassemble.hpp"
#include "ns/seccomp/oci.hpp"
#include "ns/seccomp/own.hpp"
#include "ns/seccomp/parse.hpp"
#include "nsbox/seccomp.hpp"
#include "sys/error.hpp"
#include "tests/unit/support/filters.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::ns::seccomp;
using tests::Arguments;

namespace {

const std::vector<Abi> every(std::begin(all_abis), std::end(all_abis));

Result<Included> no_include(const std::string& name)
{
    return refuse("Can't find", name);
}

Result<Included> include_default(const std::string& name)
{
    return Included{policy_text(name).value(), name};
}

Policy policy_of(const std::string& text, const Circumstances& circumstances = {})
{
    Result<Policy> policy = parse_policy(text, "test", circumstances, include_default);
    REQUIRE_MESSAGE(policy.has_value(), (policy ? "" : policy.error().message()));
    return *policy;
}

std::vector<sock_filter> program_of(const Policy& policy)
{
    Result<std::vector<sock_filter>> program = compile(policy, every);
    REQUIRE_MESSAGE(program.has_value(), (program ? "" : program.error().message()));
    CHECK(disassemble(*program).has_value());
    return *program;
}

/// Arguments at and around every number that the policy compares with, in both halves.
std::vector<Arguments> telling_arguments(const Policy& policy)
{
    std::vector<std::uint64_t> values{0, 1, 0xffffffff, ~std::uint64_t{0}};
    for (const Rule& rule : policy.rules)
        for (const Condition& it : rule.conditions)
            for (const std::uint64_t high : {std::uint64_t{0}, std::uint64_t{1} << 32})
                for (const int change : {-1, 0, 1})
                    values.push_back((it.value + static_cast<std::uint64_t>(change)) ^ high);
    std::mt19937_64 random{1};
    std::vector<Arguments> all;
    constexpr int count = 12;
    for (int number = 0; number < count; ++number) {
        Arguments arguments;
        for (std::uint64_t& argument : arguments)
            argument = random() % 8 == 0 ? random() : values[random() % values.size()];
        all.push_back(arguments);
    }
    return all;
}

/// Every number that a calling convention may have, and some beyond.
std::vector<std::uint32_t> numbers_of(Abi abi)
{
    const std::uint32_t base = abi == Abi::x32 ? 0x40000000 : 0;
    std::vector<std::uint32_t> numbers;
    constexpr std::uint32_t most = 700;
    for (std::uint32_t number = 0; number < most; ++number)
        numbers.push_back(base + number);
    for (const std::uint32_t odd :
         {0x3fffffffU, 0x40000000U, 0x7fffffffU, 0x80000000U, 0xffffffffU})
        if ((odd >= 0x40000000) == (abi == Abi::x32) || (abi != Abi::x86_64 && abi != Abi::x32))
            numbers.push_back(odd);
    return numbers;
}

/// Compares the program with the policy's own words, for every number of every calling convention.
void check_all(const Policy& policy)
{
    const std::vector<sock_filter> program = program_of(policy);
    const std::vector<Arguments> arguments = telling_arguments(policy);
    std::size_t seen = 0;
    for (const Abi abi : all_abis) {
        const tests::Meaning meaning{policy, abi};
        for (const std::uint32_t number : numbers_of(abi))
            for (const Arguments& one : arguments) {
                const std::uint32_t got = tests::answer(program, tests::call(abi, number, one));
                const std::uint32_t wanted = meaning.of(number, one);
                ++seen;
                if (got != wanted) {
                    INFO(name_of(abi), " ", number, " ", call_by_number(abi, number));
                    REQUIRE(got == wanted);
                }
            }
    }
    CHECK(seen > 40000);
}

std::uint32_t denied(int error)
{
    return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
}

std::uint32_t answer_of(const std::vector<sock_filter>& program, Abi abi, const std::string& name,
                        const Arguments& arguments = {})
{
    const std::optional<std::uint32_t> number = number_of(abi, name);
    REQUIRE_MESSAGE(number.has_value(), name);
    return tests::answer(program, tests::call(abi, *number, arguments));
}

}  // namespace

TEST_CASE("seccomp: the programs of the own policies answer every call as the policies say")
{
    for (const char* name : {"default", "strict"})
        for (const bool userns : {false, true})
            for (const bool tracing : {false, true})
                check_all(policy_of(policy_text(name).value(), {userns, tracing, {}}));
    check_all(policy_of(policy_text("default").value(),
                        {false, false, {"CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_SYS_TIME"}}));
}

TEST_CASE("seccomp: programs of policies of all kinds answer as these say")
{
    check_all(policy_of("allow read\n"));
    check_all(policy_of("otherwise allow\nabis x86_64 i386 x32 aarch64 arm\n"));
    check_all(policy_of("otherwise kill\nabis x32\nallow read write\n"));
    check_all(policy_of("otherwise deny EACCES\nabis x86_64 i386 arm\n"
                        "on i386 allow read\non arm on x86_64 deny EIO write\n"
                        "allow lseek if arg1 > 0x100000002 and arg2:int != 7\n"
                        "trap lseek if arg1 <= 5\nlog lseek if arg1 < 0x500000000\n"
                        "kill-thread lseek if arg1 & 0xff000000ff == 0x1200000034\n"
                        "deny lseek if arg1 & 0xff >= 3\n"
                        "allow mmap if arg3:int & 0xf0 < 0x80\n"));
    // So many different answers that jumps have to go far.
    std::string text = "abis x86_64\n";
    int value = 0;
    constexpr int errors = 30;
    for (std::uint32_t number = 0; number < 330; ++number)
        if (const std::string name = call_by_number(Abi::x86_64, number); !name.empty())
            for (const int end = value + 2; value < end; ++value)
                text += "deny " + std::string{::strerrorname_np(value % errors + 1)} + " " + name +
                        " if arg" + std::to_string(value % 6) + " == " + std::to_string(value) +
                        "\n";
    check_all(policy_of(text));
}

TEST_CASE("seccomp: programs of random policies answer as these say")
{
    std::mt19937 random{2};
    const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
    constexpr std::uint64_t masks[] = {~std::uint64_t{0}, ~std::uint64_t{0}, 3, 0x300000003, 0};
    constexpr int policies = 400;
    std::size_t shorter = 0;
    for (int round = 0; round < policies; ++round) {
        Policy policy;
        policy.abis = {Abi::x86_64};
        policy.otherwise = denied(EPERM);
        for (unsigned rules = 1 + below(14); rules > 0; --rules) {
            Rule rule;
            rule.answer = below(3) == 0 ? std::uint32_t{SECCOMP_RET_ALLOW}
                                        : denied(1 + static_cast<int>(below(3)));
            rule.calls = {"lseek"};
            for (unsigned conditions = 1 + below(3); conditions > 0; --conditions) {
                Condition it;
                it.argument = below(3);
                it.low = below(2) == 0;
                it.mask = masks[below(std::size(masks))];
                it.comparison = static_cast<Comparison>(below(6));
                it.value = below(4) + (it.low ? 0 : std::uint64_t{below(3)} << 32);
                if (it.low)
                    it.mask &= 0xffffffff;
                rule.conditions.push_back(it);
            }
            policy.rules.push_back(rule);
        }
        const std::vector<sock_filter> program = program_of(policy);
        shorter += program.size() < 60;
        const tests::Meaning meaning{policy, Abi::x86_64};
        const std::uint32_t number = number_of(Abi::x86_64, "lseek").value();
        for (int call = 0; call < 300; ++call) {
            Arguments arguments{};
            for (std::size_t argument = 0; argument < 3; ++argument)
                arguments[argument] = below(5) + (std::uint64_t{below(4)} << 32);
            const std::uint32_t got =
                tests::answer(program, tests::call(Abi::x86_64, number, arguments));
            REQUIRE(got == meaning.of(number, arguments));
        }
    }
    CHECK(shorter > 0);
}

TEST_CASE("seccomp: what is decided alike is written once, and nothing is asked twice")
{
    std::string text;
    for (const char* call : {"socket", "socketpair", "lseek"})
        for (const char* type : {"1", "2", "3"})
            text += std::string{"allow "} + call + " if arg0:int == 2 and arg1:int == " + type +
                    "\nallow " + call + " if arg0:int == 10 and arg1:int == " + type + "\n";
    const std::vector<sock_filter> program = program_of(policy_of("abis x86_64\n" + text));
    // Two loads and five tests for the three calls together; six of the numbers.
    CHECK(program.size() < 22);
    check_all(policy_of("abis x86_64\n" + text));
    // More ways than there is time for: as it stands.
    std::string many;
    for (int bit = 0; bit < 30; ++bit)
        many += "deny EIO lseek if arg0 & " + std::to_string(1 << bit) + " == 0 and arg1 & " +
                std::to_string(1 << bit) + " == 0\n";
    check_all(policy_of("abis x86_64\n" + many));
}

TEST_CASE("seccomp: what the default denies, and what programs need, by name")
{
    const std::vector<sock_filter> program = program_of(policy_of(policy_text("default").value()));
    for (const Abi abi : {Abi::x86_64, Abi::i386, Abi::aarch64, Abi::arm}) {
        INFO(name_of(abi));
        for (const char* name : {"bpf",
                                 "perf_event_open",
                                 "userfaultfd",
                                 "mount",
                                 "umount2",
                                 "pivot_root",
                                 "setns",
                                 "chroot",
                                 "kexec_load",
                                 "reboot",
                                 "init_module",
                                 "finit_module",
                                 "delete_module",
                                 "swapon",
                                 "swapoff",
                                 "acct",
                                 "syslog",
                                 "ptrace",
                                 "process_vm_readv",
                                 "process_vm_writev",
                                 "kcmp",
                                 "pidfd_getfd",
                                 "open_by_handle_at",
                                 "fanotify_init",
                                 "settimeofday",
                                 "clock_settime",
                                 "move_pages",
                                 "mbind",
                                 "quotactl",
                                 "vhangup",
                                 "fsopen",
                                 "move_mount",
                                 "open_tree",
                                 "mount_setattr"})
            CHECK_MESSAGE(answer_of(program, abi, name) == denied(EPERM), name);
        for (const char* name : {"io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl",
                                 "add_key", "request_key", "clone3", "lookup_dcookie"})
            CHECK_MESSAGE(answer_of(program, abi, name) == denied(ENOSYS), name);
        for (const char* name : {"read",           "openat",     "execve",
                                 "futex",          "mmap",       "mremap",
                                 "clone",          "exit_group", "epoll_pwait",
                                 "connect",        "bind",       "sendmsg",
                                 "recvmsg",        "getrandom",  "memfd_create",
                                 "prctl",          "seccomp",    "landlock_create_ruleset",
                                 "statx",          "rseq",       "copy_file_range",
                                 "fchmodat2",      "semget",     "shmget",
                                 "mq_open",        "setuid",     "inotify_init1",
                                 "timerfd_create", "pidfd_open", "close_range",
                                 "openat2",        "unshare",    "personality",
                                 "ioctl",          "io_submit"})
            if (number_of(abi, name))
                CHECK_MESSAGE(answer_of(program, abi, name) == SECCOMP_RET_ALLOW, name);
    }
    // No call of x32 is served, nor one with a number that none has.
    for (const std::string name : {"read", "openat", "getpid"})
        CHECK(answer_of(program, Abi::x32, name) == denied(ENOSYS));
    CHECK(tests::answer(program, tests::call(Abi::x86_64, 1000)) == denied(ENOSYS));
    CHECK(tests::answer(program, tests::call(Abi::x86_64, 0xffffffff)) == denied(ENOSYS));
    seccomp_data foreign = tests::call(Abi::x86_64, 0);
    foreign.arch = AUDIT_ARCH_S390X;
    CHECK(tests::answer(program, foreign) == denied(ENOSYS));
}

TEST_CASE("seccomp: the default looks at arguments as the kernel does")
{
    const std::vector<sock_filter> program = program_of(policy_of(policy_text("default").value()));
    constexpr std::uint64_t high = std::uint64_t{0xdeadbeef} << 32;
    for (const Abi abi : {Abi::x86_64, Abi::i386, Abi::aarch64, Abi::arm}) {
        INFO(name_of(abi));
        for (const std::uint64_t bits : {std::uint64_t{0}, std::uint64_t{1} << 32, high}) {
            for (const std::uint64_t request : {0x5412, 0x541c, 0x5423, 0x541d})
                CHECK(answer_of(program, abi, "ioctl", {0, request | bits}) == denied(EPERM));
            CHECK(answer_of(program, abi, "ioctl", {0, 0x5413 | bits}) == SECCOMP_RET_ALLOW);
            for (const std::uint64_t family : {3, 4, 17, 21, 29, 30, 31, 38, 40, 44})
                CHECK(answer_of(program, abi, "socket", {family | bits, 1, 0}) ==
                      denied(EAFNOSUPPORT));
            CHECK(answer_of(program, abi, "socket", {16 | bits, 3, 0 | bits}) == SECCOMP_RET_ALLOW);
            CHECK(answer_of(program, abi, "socket", {16, 3, 12 | bits}) == denied(EAFNOSUPPORT));
            for (const std::uint64_t family : {2, 10}) {
                const std::uint64_t ping = family == 2 ? 1 : 58;
                const auto socket = [&](std::uint64_t type, std::uint64_t protocol) {
                    return answer_of(program, abi, "socket", {family | bits, type, protocol});
                };
                constexpr std::uint64_t close_on_exec = 0x80000;
                for (const std::uint64_t protocol : {0, 6})
                    CHECK(socket(1 | close_on_exec, protocol) == SECCOMP_RET_ALLOW);
                for (const std::uint64_t protocol : {std::uint64_t{0}, std::uint64_t{17}, ping})
                    CHECK(socket(2 | close_on_exec, protocol) == SECCOMP_RET_ALLOW);
                // Types whose protocol 0 is another one; the old way to packets.
                for (const std::uint64_t type : {4, 5, 6})
                    CHECK(socket(type, 0) == denied(EPROTONOSUPPORT));
                CHECK(socket(10, 0) == denied(EPERM));
                CHECK(socket(10 | close_on_exec, 6) == denied(EPERM));
                for (const std::uint64_t protocol : {33, 132, 136, 262})
                    CHECK(answer_of(program, abi, "socket", {family, 1, protocol | bits}) ==
                          denied(EPROTONOSUPPORT));
                CHECK(answer_of(program, abi, "socket", {family, 3 | bits, 1}) == denied(EPERM));
            }
            CHECK(answer_of(program, abi, "socketpair", {1 | bits, 1, 0}) == SECCOMP_RET_ALLOW);
            CHECK(answer_of(program, abi, "socketpair", {30 | bits, 1, 0}) == denied(EAFNOSUPPORT));
            CHECK(answer_of(program, abi, "personality", {0x400000 | bits}) == denied(EPERM));
        }
        for (const std::uint64_t flag :
             {0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000})
            for (const std::uint64_t others : {0, 0x11, 0x3d0f00}) {
                CHECK(answer_of(program, abi, "clone", {flag | others}) == denied(EPERM));
                CHECK(answer_of(program, abi, "unshare", {flag | others}) == denied(EPERM));
            }
        CHECK(answer_of(program, abi, "unshare", {0x80}) == denied(EPERM));
        for (const std::uint64_t flags : {0x11, 0x3d0f00, 0x4111, 0x1200011})
            CHECK(answer_of(program, abi, "clone", {flags}) == SECCOMP_RET_ALLOW);
        CHECK(answer_of(program, abi, "unshare", {0x600}) == SECCOMP_RET_ALLOW);
        for (const std::uint64_t persona : {0x0, 0x8, 0x20000, 0x20008, 0x40000})
            CHECK(answer_of(program, abi, "personality", {persona}) == SECCOMP_RET_ALLOW);
    }
    // What i386 has by one number for many.
    for (const std::uint64_t which : {1, 8})
        CHECK(answer_of(program, Abi::i386, "socketcall", {which}) == denied(ENOSYS));
    for (const std::uint64_t which : {2, 3, 9, 18})
        CHECK(answer_of(program, Abi::i386, "socketcall", {which}) == SECCOMP_RET_ALLOW);
}

TEST_CASE("seccomp: under the own policies init can start the command and wait for it")
{
    const Abi own = abis_of_this_machine().front();
    for (const char* name : {"default", "strict"})
        for (const bool userns : {false, true})
            for (const bool tracing : {false, true}) {
                const std::vector<std::uint8_t> bytes =
                    compile_filter({name, userns, tracing, {}}).value();
                CHECK(is_own_program(bytes));
                std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
                std::memcpy(program.data(), bytes.data(), bytes.size());
                for (const char* call :
                     {"close", "close_range", "execve", "execveat", "exit_group", "faccessat",
                      "fcntl", "getrusage", "munmap", "newfstatat", "ppoll", "prctl",
                      "rt_sigaction", "rt_sigprocmask", "sendmsg", "setsid", "wait4", "write"})
                    CHECK_MESSAGE(answer_of(program, own, call) == SECCOMP_RET_ALLOW,
                                  std::string{call});
                constexpr std::uint64_t flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
                CHECK(answer_of(program, own, "clone", {flags}) == SECCOMP_RET_ALLOW);
            }
    // The terminal becomes the controlling one there.
    CHECK(answer_of(program_of(policy_of(policy_text("default").value())), Abi::x86_64, "ioctl",
                    {0, TIOCSCTTY, 0}) == SECCOMP_RET_ALLOW);
    CHECK_FALSE(is_own_program({}));
}

TEST_CASE("seccomp: circumstances open what they are for, and nothing else")
{
    const std::string text = policy_text("default").value();
    const auto of = [&](const Circumstances& circumstances) {
        return program_of(policy_of(text, circumstances));
    };
    const std::vector<sock_filter> none = of({});
    const auto changed = [&](const std::vector<sock_filter>& program) {
        std::vector<std::string> names;
        for (std::uint32_t number = 0; number < 500; ++number)
            if (tests::answer(program, tests::call(Abi::x86_64, number)) !=
                tests::answer(none, tests::call(Abi::x86_64, number)))
                names.push_back(call_by_number(Abi::x86_64, number));
        std::sort(names.begin(), names.end());
        return names;
    };
    using Names = std::vector<std::string>;
    CHECK(changed(of({false, true, {}})) ==
          Names{"kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace"});
    CHECK(changed(of({false, false, {"CAP_SYS_TIME"}})) == Names{"clock_settime", "settimeofday"});
    CHECK(changed(of({false, false, {"CAP_CHOWN"}})) == Names{});
    const Names userns = changed(of({true, false, {}}));
    for (const char* name : {"clone3", "mount", "setns", "pivot_root", "chroot", "sethostname"})
        CHECK(std::find(userns.begin(), userns.end(), name) != userns.end());
    for (const char* name : {"bpf", "ptrace", "kexec_load", "io_uring_setup", "syslog"})
        CHECK(std::find(userns.begin(), userns.end(), name) == userns.end());
    CHECK(answer_of(of({true, false, {}}), Abi::x86_64, "clone", {0x10000011}) ==
          SECCOMP_RET_ALLOW);
    CHECK(answer_of(of({false, false, {"CAP_NET_RAW"}}), Abi::x86_64, "socket", {2, 3, 1}) ==
          SECCOMP_RET_ALLOW);
}

TEST_CASE("seccomp: a policy that is too large for the kernel is refused")
{
    std::string text;
    for (int number = 0; number < 3000; ++number)
        text += "deny lseek if arg1 == " + std::to_string(number) + "\n";
    const Result<std::vector<sock_filter>> program = compile(policy_of(text), every);
    REQUIRE(!program.has_value());
    CHECK(program.error().message().find("4096") != std::string::npos);
}

namespace {

constexpr const char* profile = R"({
  "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
  "archMap": [
    {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
    {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]}],
  "syscalls": [
    {"names": ["read", "write", "exit_group", "no_such_call_anywhere"], "action": "SCMP_ACT_ALLOW"},
    {"names": ["openat"], "action": "SCMP_ACT_ERRNO"},
    {"names": ["personality"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
    {"names": ["personality"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
    {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]},
     "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95,
     "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
    {"names": ["mount", "clone", "clone3"], "action": "SCMP_ACT_ALLOW",
     "includes": {"caps": ["CAP_SYS_ADMIN"]}},
    {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
    {"names": ["kcmp"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "99.1"}},
    {"names": ["lseek"], "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 1, "value": 4294967301, "op": "SCMP_CMP_GT"},
              {"index": 2, "value": 2, "op": "SCMP_CMP_LE"}]},
    {"names": ["fchmod"], "action": "SCMP_ACT_LOG", "args": [
      {"index": 1, "value": 7, "op": "SCMP_CMP_LT"}, {"index": 1, "value": 100, "op": "SCMP_CMP_GE"}]},
    {"names": ["fchdir"], "action": "SCMP_ACT_KILL_PROCESS"},
    {"names": ["setuid"], "action": "SCMP_ACT_TRAP",
     "args": [{"index": 0, "value": 3, "op": "SCMP_CMP_NE"}]}]})";

Policy read(const std::string& text, const Circumstances& circumstances = {})
{
    Result<Policy> policy = read_oci_profile(text, "profile", circumstances);
    REQUIRE_MESSAGE(policy.has_value(), (policy ? "" : policy.error().message()));
    return *policy;
}

/// What libseccomp makes of the same rules, for this machine's own calling convention.
std::vector<sock_filter> by_libseccomp(const Policy& policy)
{
    const auto action = [](std::uint32_t answer) -> std::uint32_t {
        switch (answer & SECCOMP_RET_ACTION_FULL) {
        case SECCOMP_RET_ALLOW:
            return SCMP_ACT_ALLOW;
        case SECCOMP_RET_LOG:
            return SCMP_ACT_LOG;
        case SECCOMP_RET_TRAP:
            return SCMP_ACT_TRAP;
        case SECCOMP_RET_KILL_PROCESS:
            return SCMP_ACT_KILL_PROCESS;
        default:
            return SCMP_ACT_ERRNO(answer & SECCOMP_RET_DATA);
        }
    };
    scmp_filter_ctx filter = ::seccomp_init(action(policy.otherwise));
    REQUIRE(filter != nullptr);
    for (const Rule& rule : policy.rules)
        for (const std::string& name : rule.calls) {
            std::vector<scmp_arg_cmp> args;
            for (const Condition& it : rule.conditions) {
                scmp_arg_cmp one{};
                one.arg = it.argument;
                one.datum_a = it.value;
                constexpr scmp_compare how[] = {SCMP_CMP_EQ, SCMP_CMP_NE, SCMP_CMP_LT,
                                                SCMP_CMP_LE, SCMP_CMP_GT, SCMP_CMP_GE};
                one.op = how[static_cast<std::size_t>(it.comparison)];
                if (it.mask != ~std::uint64_t{0}) {
                    one.op = SCMP_CMP_MASKED_EQ;
                    one.datum_a = it.mask;
                    one.datum_b = it.value;
                }
                args.push_back(one);
            }
            const int call = ::seccomp_syscall_resolve_name(name.c_str());
            const int rc = ::seccomp_rule_add_array(
                filter, action(rule.answer), call, static_cast<unsigned>(args.size()), args.data());
            REQUIRE_MESSAGE(rc == 0, name);
        }
    const int file = ::memfd_create("filter", MFD_CLOEXEC);
    REQUIRE(::seccomp_export_bpf(filter, file) == 0);
    ::seccomp_release(filter);
    std::vector<sock_filter> program(static_cast<std::size_t>(::lseek(file, 0, SEEK_END)) /
                                     sizeof(sock_filter));
    const std::size_t size = program.size() * sizeof(sock_filter);
    REQUIRE(::pread(file, program.data(), size, 0) == static_cast<ssize_t>(size));
    ::close(file);
    return program;
}

}  // namespace

TEST_CASE("seccomp: a profile of the OCI kind means what libseccomp makes of it")
{
    const Policy policy = read(profile);
    check_all(policy);
    const std::vector<sock_filter> ours = program_of(policy);
    const std::vector<sock_filter> theirs = by_libseccomp(policy);
    const Abi own = abis_of_this_machine().front();
    std::size_t allowed = 0;
    for (std::uint32_t number = 0; number < 600; ++number)
        for (const Arguments& arguments : telling_arguments(policy)) {
            const seccomp_data data = tests::call(own, number, arguments);
            INFO(number, " ", call_by_number(own, number));
            REQUIRE(tests::answer(ours, data) == tests::answer(theirs, data));
            allowed += tests::answer(ours, data) == SECCOMP_RET_ALLOW ? 1 : 0;
        }
    CHECK(allowed > 0);
}

TEST_CASE("seccomp: a profile of the OCI kind heeds capabilities, kernels and errors")
{
    const std::vector<sock_filter> plain = program_of(read(profile));
    const std::vector<sock_filter> admin =
        program_of(read(profile, {false, false, {"CAP_SYS_ADMIN"}}));
    const Abi own = abis_of_this_machine().front();
    CHECK(answer_of(plain, own, "mount") == denied(ENOSYS));
    CHECK(answer_of(admin, own, "mount") == SECCOMP_RET_ALLOW);
    CHECK(answer_of(plain, own, "clone3") == denied(EOPNOTSUPP));
    CHECK(answer_of(admin, own, "clone3") == SECCOMP_RET_ALLOW);
    CHECK(answer_of(plain, own, "clone", {0x10000000}) == denied(ENOSYS));
    CHECK(answer_of(admin, own, "clone", {0x10000000}) == SECCOMP_RET_ALLOW);
    CHECK(answer_of(plain, own, "ptrace") == SECCOMP_RET_ALLOW);
    CHECK(answer_of(plain, own, "kcmp") == denied(ENOSYS));
    CHECK(answer_of(plain, own, "openat") == denied(EPERM));
    // As a part of a configuration of the runtime specification.
    CHECK(answer_of(program_of(read(R"({"ociVersion": "1.0.2", "linux": {"seccomp": )" +
                                    std::string{profile} + "}}")),
                    own, "read") == SECCOMP_RET_ALLOW);
    for (
        const auto& [given, part] : std::vector<std::pair<std::string, std::string>>{
            {"{", "JSON"},
            {"{}", "defaultAction"},
            {R"({"defaultAction": "SCMP_ACT_WHATEVER"})", "SCMP_ACT_WHATEVER"},
            {R"({"defaultAction": "SCMP_ACT_NOTIFY"})", "notification"},
            {R"({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 5000})", "4095"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": 3})", "no list"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": )" + std::string(1500000, '['),
             "too deep"},
            {R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "SCMP_ACT_ALLOW", "names": ["read"],
                  "includes": {"caps": "CAP_SYS_ADMIN"}}]})",
             "includes is no object"},
            {R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "SCMP_ACT_ALLOW", "names": ["read"],
                  "includes": {"minKernel": "new"}}]})",
             "minKernel is no version"},
            {R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "SCMP_ACT_ALLOW", "names": ["read"],
                  "args": [{"index": 1, "value": -1, "op": "SCMP_CMP_EQ"}]}]})",
             "no value from 0 up"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{}]})", "an action is missing"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_LOG"}]})",
             "no names"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_LOG", "names": ["read"],
                  "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]}]})",
             "index"},
            {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_LOG", "names": ["read"],
                  "args": [{"index": 1, "value": 1, "op": "SCMP_CMP_ODD"}]}]})",
             "SCMP_CMP_ODD"}}) {
        const std::string& text = given;
        const std::string& reason = part;
        const Result<Policy> policy = read_oci_profile(text, "profile", {});
        REQUIRE_MESSAGE(!policy.has_value(), text);
        CHECK_MESSAGE(policy.error().message().find(reason) != std::string::npos,
                      policy.error().message());
    }
}

TEST_CASE("seccomp: what is wrong with a policy is said with its line")
{
    for (const auto& [given, part] : std::vector<std::pair<std::string, std::string>>{
             {"allow read\nalow write\n", "line 2: 'alow' begins no statement"},
             {"allow raed\n", "line 1: raed is no system call"},
             {"\n# comment\n\ndeny EWHAT read\n", "line 4: EWHAT is no error"},
             {"allow\n", "names no system call"},
             {"allow @files\n", "no group files"},
             {"group a = read\ngroup a = write\n", "line 2: there is a group a already"},
             {"group a read\n", "group NAME = CALL"},
             {"  allow read\n", "line 1: an indented line has no statement before it"},
             {"allow read if\n", "is no argument"},
             {"allow read if arg6 == 1\n", "'arg6' is no argument"},
             {"allow read if arg1 = 1\n", "'=' is no comparison"},
             {"allow read if arg1 == AF_NOTHING\n", "'AF_NOTHING' is no number"},
             {"allow read if arg1 == 0x1g\n", "'0x1g' is no number"},
             {"allow read if arg1 == 1 or arg2 == 2\n", "joined by 'and'"},
             {"allow read if arg1 & 0xf0 == 1\n", "never equal"},
             {"allow read if arg1:int == 0x100000000\n", "32 bits"},
             {"allow read if arg1 ==\n", "ends too early"},
             {"with weather allow read\n", "no circumstance weather"},
             {"with\n", "takes a name"},
             {"on mips allow read\n", "mips is no calling convention"},
             {"abis\n", "abis takes names"},
             {"abis sparc\n", "sparc is no calling convention"},
             {"otherwise deny EPERM read\n", "nothing else"},
             {"include\n", "include takes one name"},
             {"include /nowhere\n", "can't include /nowhere"},
             {"", "it has no statement"},
             {"# nothing\n\n", "it has no statement"},
             {std::string{"allow read\0", 11}, "no text file"}}) {
        // Doctest's macros are lambdas, which older compilers let capture no binding.
        const std::string& text = given;
        const std::string& reason = part;
        const Result<Policy> policy = parse_policy(text, "test", {}, no_include);
        REQUIRE_MESSAGE(!policy.has_value(), text);
        CHECK_MESSAGE(policy.error().message().find(reason) != std::string::npos,
                      policy.error().message());
    }
    const Result<Policy> loop =
        parse_policy("include self\n", "test", {}, [](const std::string& name) -> Result<Included> {
            return Included{"include self\n", name};
        });
    REQUIRE(!loop.has_value());
    CHECK(loop.error().message().find("too many") != std::string::npos);
}

TEST_CASE("seccomp: the text format's liberties")
{
    const Policy policy =
        policy_of("# nothing\r\ngroup io = read\n    write   # both\n# in between\n\n\treadv\n"
                  "allow @io close\n  if arg0 == 0x10|AF_UNIX|010\n");
    REQUIRE(policy.rules.size() == 1);
    CHECK(policy.rules[0].calls == std::vector<std::string>{"read", "write", "readv", "close"});
    REQUIRE(policy.rules[0].conditions.size() == 1);
    CHECK(policy.rules[0].conditions[0].value == (0x10 | 1 | 8));
    CHECK(policy.otherwise == denied(ENOSYS));
    CHECK(policy.abis == std::vector<Abi>{abis_of_this_machine().front()});
    // The first statement that matches is the answer, also before an include.
    const std::vector<sock_filter> program =
        program_of(policy_of("deny EIO getpid\ninclude default\nallow bpf\n"));
    CHECK(answer_of(program, Abi::x86_64, "getpid") == denied(EIO));
    CHECK(answer_of(program, Abi::x86_64, "bpf") == denied(EPERM));
    CHECK(answer_of(program, Abi::x86_64, "getppid") == SECCOMP_RET_ALLOW);
}

TEST_CASE("seccomp: groups of groups name each call once, and a byte order mark is no word")
{
    std::string text = "\xef\xbb\xbfgroup g0 = read write\n";
    for (int number = 1; number < 40; ++number) {
        const std::string before = "@g" + std::to_string(number - 1);
        text += "group g" + std::to_string(number) + " = " + before + " " + before + "\n";
    }
    const Policy policy = policy_of(text + "allow @g39 read\n");
    REQUIRE(policy.rules.size() == 1);
    CHECK(policy.rules[0].calls == std::vector<std::string>{"read", "write"});
}

TEST_CASE("seccomp: an entry of a profile that says what is answered anyway is no rule")
{
    const std::vector<sock_filter> program =
        program_of(read(R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]})"));
    CHECK(answer_of(program, abis_of_this_machine().front(), "mkdirat") == denied(EPERM));
}

TEST_CASE("seccomp: numbers of calls are the kernel's")
{
    CHECK(number_of(Abi::x86_64, "socket") == 41);
    CHECK(number_of(Abi::i386, "socket") == 359);
    CHECK(number_of(Abi::i386, "msgsnd") == 400);
    CHECK(number_of(Abi::i386, "recv") == std::nullopt);
    CHECK(number_of(Abi::x86_64, "socketcall") == std::nullopt);
    CHECK(number_of(Abi::x86_64, "mseal") == 462);
    CHECK(number_of(Abi::x32, "mseal") == 0x40000000 + 462);
    CHECK(number_of(Abi::aarch64, "openat") == 56);
    CHECK(call_by_number(Abi::i386, 359) == "socket");
    CHECK(call_by_number(Abi::x86_64, 462) == "mseal");
    CHECK(call_by_number(Abi::x86_64, 5000).empty());
    CHECK(is_system_call("listmount"));
    CHECK(!is_system_call("listmounts"));
}

TEST_CASE("seccomp: programs that the kernel would not take are no text")
{
    const auto text_of = [](const std::vector<sock_filter>& program) {
        std::vector<std::uint8_t> bytes(program.size() * sizeof(sock_filter));
        if (!program.empty())
            std::memcpy(bytes.data(), program.data(), bytes.size());
        return disassemble_filter(bytes);
    };
    const sock_filter yes = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    CHECK(text_of({yes}).value() == "   0: ret  allow\n");
    CHECK(text_of({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 20), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 15),
                   BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 3, 0, 1),
                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 13), yes})
              .value() == "   0: ld   arg0.high\n   1: and  0xf\n   2: jgt  0x3, 3, 4\n"
                          "   3: ret  deny EACCES\n   4: ret  allow\n");
    CHECK(!text_of({}));
    CHECK(!text_of({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), yes}));
    CHECK(!text_of({BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0), yes}));
    CHECK(!text_of({BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), yes}));
    CHECK(!text_of({BPF_STMT(BPF_JMP | BPF_JA, 1), yes}));
    CHECK(!text_of({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)}));
    CHECK(!disassemble_filter({1, 2, 3}));
}
