#pragma once

#include "net/user/address.hpp"
#include "net/user/inside.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nsbox::net::user {

/// One answer of sock_diag(7) to a question of ListenLook.
struct ListenAnswer {
    std::uint32_t number = 0;  ///< Of the question.
    int error = 0;             ///< 0: somebody listens; else -errno, -ENOENT: nobody does.
};

/// Pure: the question, as a netlink message, whether a TCP connection to the address would find
/// somebody who listens. The kernel looks as it would for a SYN, so wildcard listeners count, and
/// those of IPv6 for IPv4 unless they are IPV6_V6ONLY.
std::vector<char> listen_question(const SocketAddress& where, std::uint32_t number);

/// Pure: the answers in one datagram. What is malformed or cut off is left out.
std::vector<ListenAnswer> listen_answers(std::span<const char> datagram);

/// Finds out what listens inside the sandbox, by single questions and not by a list of all sockets,
/// which a command could make as long as it likes.
class ListenLook {
public:
    /// Makes the netlink socket inside. Where the kernel has no sock_diag(7) for TCP, the look is
    /// not available, which is no error.
    static Result<ListenLook> create(InsideSockets& inside);

    bool is_available() const noexcept { return static_cast<bool>(socket_); }

    /// listens[i] says whether somebody listens at where[i]; it stays as it was where the kernel
    /// gave no answer. System calls: sendto, recvfrom.
    void look(std::span<const SocketAddress> where, std::vector<bool>& listens);

private:
    explicit ListenLook(sys::Fd socket);
    std::vector<ListenAnswer> receive();
    bool ask(std::span<const SocketAddress> where);

    sys::Fd socket_;
    std::uint32_t number_ = 0;  ///< The next question's: a late answer belongs to none.
    std::vector<char> buffer_;
};

}  // namespace nsbox::net::user
