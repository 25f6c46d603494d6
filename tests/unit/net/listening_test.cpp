#include "net/user/listening.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>

using namespace nsbox;

namespace {

template <class T>
void append(std::vector<char>& bytes, const T& value)
{
    const auto* const first = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
}

template <class Body>
void append_message(std::vector<char>& bytes, std::uint16_t type, std::uint32_t number,
                    const Body& body)
{
    nlmsghdr header{};
    header.nlmsg_len = sizeof header + sizeof body;
    header.nlmsg_type = type;
    header.nlmsg_seq = number;
    append(bytes, header);
    append(bytes, body);
    bytes.resize(NLMSG_ALIGN(bytes.size()));
}

void append_found(std::vector<char>& bytes, std::uint32_t number, std::uint8_t state)
{
    inet_diag_msg found{};
    found.idiag_state = state;
    append_message(bytes, SOCK_DIAG_BY_FAMILY, number, found);
}

void append_error(std::vector<char>& bytes, std::uint32_t number, int error)
{
    nlmsgerr body{};
    body.error = error;
    append_message(bytes, NLMSG_ERROR, number, body);
}

std::string text_of(const std::vector<net::user::ListenAnswer>& answers)
{
    std::string text;
    for (const net::user::ListenAnswer& answer : answers)
        text += std::to_string(answer.number) + ":" + std::to_string(answer.error) + " ";
    return text;
}

}  // namespace

TEST_CASE("listen look: a question names the address, the port and nothing else")
{
    net::user::SocketAddress where;
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(443);
    name.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    std::memcpy(&where.storage, &name, sizeof name);
    where.size = sizeof name;
    const std::vector<char> question = net::user::listen_question(where, 7);
    nlmsghdr header{};
    inet_diag_req_v2 request{};
    REQUIRE(question.size() == sizeof header + sizeof request);
    std::memcpy(&header, question.data(), sizeof header);
    std::memcpy(&request, question.data() + sizeof header, sizeof request);
    CHECK(header.nlmsg_len == question.size());
    CHECK(header.nlmsg_seq == 7);
    // A list of everything is what this is to avoid.
    CHECK(header.nlmsg_flags == NLM_F_REQUEST);
    CHECK(request.sdiag_family == AF_INET6);
    CHECK(request.sdiag_protocol == IPPROTO_TCP);
    CHECK(ntohs(request.id.idiag_sport) == 443);
    CHECK(request.id.idiag_dport == 0);
    CHECK(std::memcmp(request.id.idiag_src, &name.sin6_addr, sizeof name.sin6_addr) == 0);
    CHECK(request.id.idiag_cookie[0] == INET_DIAG_NOCOOKIE);
}

TEST_CASE("listen look: answers are found, missing, or errors")
{
    std::vector<char> bytes;
    append_found(bytes, 1, TCP_LISTEN);
    append_found(bytes, 2, TCP_ESTABLISHED);
    append_error(bytes, 3, -ENOENT);
    append_message(bytes, NLMSG_DONE, 4, int{-EPROTONOSUPPORT});
    append_message(bytes, NLMSG_NOOP, 5, int{0});
    append_found(bytes, 6, TCP_LISTEN);
    CHECK(text_of(net::user::listen_answers(bytes)) == "1:0 2:-2 3:-2 4:-93 6:0 ");
    CHECK(net::user::listen_answers({}).empty());
}

TEST_CASE("listen look: what is cut off or malformed is left out and read no further")
{
    std::vector<char> bytes;
    append_found(bytes, 1, TCP_LISTEN);
    const std::size_t whole = bytes.size();
    append_found(bytes, 2, TCP_LISTEN);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        CAPTURE(size);
        // A copy of its own, for sanitizers to guard.
        const std::vector<char> part{bytes.begin(),
                                     bytes.begin() + static_cast<std::ptrdiff_t>(size)};
        CHECK(text_of(net::user::listen_answers(part)) == (size < whole ? "" : "1:0 "));
    }
    tests::Random random{3};
    for (int round = 0; round < 2000; ++round) {
        std::vector<char> wrong = bytes;
        for (int i = 0; i < 4; ++i)
            wrong[random.below(wrong.size())] = static_cast<char>(random.next());
        REQUIRE(net::user::listen_answers(wrong).size() <= wrong.size() / sizeof(nlmsghdr));
    }
    bytes.assign(64, '\0');  // A length of 0 must not be looked at for ever.
    CHECK(net::user::listen_answers(bytes).empty());
}
