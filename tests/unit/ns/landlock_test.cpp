// What each version of Landlock can deny, and the filters for what it does not see.

#include "ns/landlock.hpp"

#include "ns/socket_filter.hpp"
#include "tests/unit/support/filters.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <sys/socket.h>

using namespace nsbox;

TEST_CASE("landlock: each ABI denies what it knows, and no more")
{
    struct Row {
        int abi;
        std::uint64_t files, ports, scoped;
    };
    // As landlock(7) and the kernel's documentation number them.
    constexpr Row rows[] = {{-95, 0, 0, 0},    {0, 0, 0, 0},      {1, 0x1fff, 0, 0},
                            {2, 0x3fff, 0, 0}, {3, 0x7fff, 0, 0}, {4, 0x7fff, 3, 0},
                            {5, 0xffff, 3, 0}, {6, 0xffff, 3, 3}, {7, 0xffff, 3, 3},
                            {99, 0xffff, 3, 3}};
    for (const Row& row : rows) {
        CAPTURE(row.abi);
        const ns::LandlockRights rights = ns::landlock_rights(row.abi);
        CHECK(rights.files == row.files);
        CHECK(rights.ports == row.ports);
        CHECK(rights.scoped == row.scoped);
        CHECK(rights.any() == (row.abi > 0));
    }
}

namespace {

using ns::seccomp::Abi;
using tests::Arguments;

std::uint32_t answer(const std::vector<std::uint8_t>& bytes, Abi abi, const char* name,
                     const Arguments& arguments = {})
{
    REQUIRE(bytes.size() % sizeof(sock_filter) == 0);
    std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
    std::memcpy(program.data(), bytes.data(), bytes.size());
    // libseccomp has this one of i386 as a part of socketcall(2) alone.
    const bool is_left_out = abi == Abi::i386 && std::string_view{name} == "sendmmsg";
    const auto number =
        is_left_out ? std::optional<std::uint32_t>{345} : ns::seccomp::number_of(abi, name);
    REQUIRE(number.has_value());
    return tests::answer(program, tests::call(abi, *number, arguments));
}

constexpr std::uint32_t refused(int error)
{
    return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error);
}

#if defined(__x86_64__)
constexpr Abi abis[] = {Abi::x86_64, Abi::x32, Abi::i386};
#else
constexpr Abi abis[] = {Abi::aarch64, Abi::arm};
#endif

}  // namespace

TEST_CASE("socket filter: no sockets, or those of the internet, by every calling convention")
{
    const std::vector<std::uint8_t> none = ns::allow_sockets(ns::Sockets::none);
    const std::vector<std::uint8_t> internet = ns::allow_sockets(ns::Sockets::internet);
    constexpr std::uint64_t high = std::uint64_t{1} << 32;
    for (const Abi abi : abis) {
        CAPTURE(static_cast<int>(abi));
        for (const std::uint64_t family : {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, 43}) {
            const bool is_internet =
                family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
            CAPTURE(family);
            CHECK(answer(none, abi, "socket", {family}) == refused(EACCES));
            // The kernel looks at the low half alone.
            for (const std::uint64_t bits : {std::uint64_t{0}, high})
                CHECK(answer(internet, abi, "socket", {family | bits}) ==
                      (is_internet ? std::uint32_t{SECCOMP_RET_ALLOW} : refused(EACCES)));
        }
        for (const auto* program : {&none, &internet}) {
            CHECK(answer(*program, abi, "socketpair", {AF_UNIX}) == SECCOMP_RET_ALLOW);
            CHECK(answer(*program, abi, "read") == SECCOMP_RET_ALLOW);
            CHECK(answer(*program, abi, "io_uring_setup") == refused(ENOSYS));
        }
    }
#if defined(__x86_64__)
    CHECK(answer(none, Abi::i386, "socketcall", {1}) == refused(ENOSYS));
#endif
}

TEST_CASE("socket filter: what makes TCP connections out of Landlock's sight is refused")
{
    const std::vector<std::uint8_t> program = ns::refuse_other_tcp();
    constexpr std::uint64_t mptcp = 262;
    constexpr std::uint64_t smc = 256;
    constexpr std::uint64_t fast_open = 0x20000000;
    for (const Abi abi : abis) {
        CAPTURE(static_cast<int>(abi));
        const auto socket = [&](std::uint64_t family, std::uint64_t protocol) {
            return answer(program, abi, "socket", {family, SOCK_STREAM, protocol});
        };
        for (const std::uint64_t family : {AF_INET, AF_INET6}) {
            CHECK(socket(family, 0) == SECCOMP_RET_ALLOW);
            CHECK(socket(family, 6) == SECCOMP_RET_ALLOW);
            CHECK(socket(family, mptcp) == refused(EPROTONOSUPPORT));
            CHECK(socket(family, smc) == refused(EPROTONOSUPPORT));
        }
        CHECK(socket(AF_UNIX, 0) == SECCOMP_RET_ALLOW);
        CHECK(socket(43, 0) == refused(EAFNOSUPPORT));
        for (const std::uint64_t flags : {std::uint64_t{0}, std::uint64_t{MSG_NOSIGNAL}}) {
            CHECK(answer(program, abi, "sendto", {3, 0, 0, flags}) == SECCOMP_RET_ALLOW);
            CHECK(answer(program, abi, "sendmsg", {3, 0, flags}) == SECCOMP_RET_ALLOW);
            CHECK(answer(program, abi, "sendmmsg", {3, 0, 1, flags}) == SECCOMP_RET_ALLOW);
            const std::uint64_t fast = flags | fast_open;
            CHECK(answer(program, abi, "sendto", {3, 0, 0, fast}) == refused(EOPNOTSUPP));
            CHECK(answer(program, abi, "sendmsg", {3, 0, fast}) == refused(EOPNOTSUPP));
            CHECK(answer(program, abi, "sendmmsg", {3, 0, 1, fast}) == refused(EOPNOTSUPP));
        }
        CHECK(answer(program, abi, "io_uring_setup") == refused(ENOSYS));
    }
}
