#include "net/user/listening.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <utility>

namespace nsbox::net::user {

namespace {

// As many answers as fit into the socket's queue for sure.
constexpr std::size_t questions_at_once = 32;
constexpr std::size_t buffer_size = std::size_t{32} * 1024;

struct Question {
    nlmsghdr header;
    inet_diag_req_v2 request;
};

template <class T>
T read_at(std::span<const char> bytes, std::size_t at)
{
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

Question question_of(int family, std::uint32_t number)
{
    Question question{};
    question.header.nlmsg_len = sizeof question;
    question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    question.header.nlmsg_seq = number;
    question.request.sdiag_family = static_cast<std::uint8_t>(family);
    question.request.sdiag_protocol = IPPROTO_TCP;
    question.request.idiag_states = 1U << TCP_LISTEN;
    question.request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    question.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return question;
}

std::vector<char> bytes_of(const Question& question)
{
    std::vector<char> bytes(sizeof question);
    std::memcpy(bytes.data(), &question, sizeof question);
    return bytes;
}

/// A list of the sockets in no state at all: only whether lists can be had matters.
std::vector<char> empty_list_question()
{
    Question question = question_of(AF_INET, 0);
    question.header.nlmsg_flags |= NLM_F_DUMP;
    question.request.idiag_states = 0;
    return bytes_of(question);
}

bool is_missing(int error)
{
    return error == -ENOENT || error == -EPROTONOSUPPORT || error == -EAFNOSUPPORT ||
           error == -EOPNOTSUPP;
}

}  // namespace

std::vector<char> listen_question(const SocketAddress& where, std::uint32_t number)
{
    Question question = question_of(where.family(), number);
    inet_diag_sockid& id = question.request.id;
    id.idiag_sport = htons(where.port());
    if (where.family() == AF_INET) {
        const auto& address = reinterpret_cast<const sockaddr_in&>(where.storage);
        std::memcpy(id.idiag_src, &address.sin_addr, sizeof address.sin_addr);
    } else {
        const auto& address = reinterpret_cast<const sockaddr_in6&>(where.storage);
        std::memcpy(id.idiag_src, &address.sin6_addr, sizeof address.sin6_addr);
        id.idiag_if = address.sin6_scope_id;
    }
    return bytes_of(question);
}

std::vector<ListenAnswer> listen_answers(std::span<const char> datagram)
{
    std::vector<ListenAnswer> answers;
    while (datagram.size() >= sizeof(nlmsghdr)) {
        const auto header = read_at<nlmsghdr>(datagram, 0);
        if (header.nlmsg_len < sizeof header || header.nlmsg_len > datagram.size())
            break;
        const std::size_t body = header.nlmsg_len - sizeof header;
        if (header.nlmsg_type == SOCK_DIAG_BY_FAMILY && body >= sizeof(inet_diag_msg)) {
            const auto found = read_at<inet_diag_msg>(datagram, sizeof header);
            answers.push_back({header.nlmsg_seq, found.idiag_state == TCP_LISTEN ? 0 : -ENOENT});
        } else if ((header.nlmsg_type == NLMSG_ERROR || header.nlmsg_type == NLMSG_DONE) &&
                   body >= sizeof(int)) {
            answers.push_back({header.nlmsg_seq, read_at<int>(datagram, sizeof header)});
        }
        const std::size_t step = NLMSG_ALIGN(header.nlmsg_len);
        datagram = datagram.subspan(std::min(step, datagram.size()));
    }
    return answers;
}

ListenLook::ListenLook(sys::Fd socket) : socket_(std::move(socket)), buffer_(buffer_size) {}

Result<ListenLook> ListenLook::create(InsideSockets& inside)
{
    sys::Fd socket = inside.make(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    if (!socket) {
        if (is_missing(socket.error()))
            return ListenLook{sys::Fd{}};
        return fail("Can't look for listeners inside", -socket.error());
    }
    ListenLook look{std::move(socket)};
    // A missing module for TCP and a missing listener are the same error for a single question.
    const std::vector<char> question = empty_list_question();
    if (::send(look.socket_.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0)
        return fail("Can't ask for listeners inside", errno);
    for (const ListenAnswer& answer : look.receive())
        if (is_missing(answer.error))
            return ListenLook{sys::Fd{}};
    return look;
}

void ListenLook::look(std::span<const SocketAddress> where, std::vector<bool>& listens)
{
    listens.resize(where.size());
    if (!is_available())
        return;
    for (std::size_t first = 0; first < where.size(); first += questions_at_once) {
        const std::size_t count = std::min(questions_at_once, where.size() - first);
        const std::uint32_t base = number_;
        if (!ask(where.subspan(first, count)))
            return;
        // The kernel answers while it is asked, so everything is there already.
        for (std::size_t left = count; left > 0;) {
            const std::vector<ListenAnswer> answers = receive();
            if (answers.empty())
                break;
            for (const ListenAnswer& answer : answers) {
                const std::uint32_t which = answer.number - base;
                if (which < count && (answer.error == 0 || answer.error == -ENOENT))
                    listens[first + which] = answer.error == 0;
            }
            left -= std::min(left, answers.size());
        }
    }
}

/// Sends all questions as one datagram.
bool ListenLook::ask(std::span<const SocketAddress> where)
{
    std::vector<char> questions;
    for (const SocketAddress& address : where) {
        const std::vector<char> question = listen_question(address, number_++);
        questions.insert(questions.end(), question.begin(), question.end());
    }
    return ::send(socket_.get(), questions.data(), questions.size(), MSG_NOSIGNAL) >= 0;
}

/// One datagram's answers; none when there is nothing more to read.
std::vector<ListenAnswer> ListenLook::receive()
{
    ssize_t got = 0;
    do {
        got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got <= 0)
        return {};
    return listen_answers(std::span{buffer_}.first(static_cast<std::size_t>(got)));
}

}  // namespace nsbox::net::user
