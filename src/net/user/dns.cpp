#include "net/user/dns.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/epoll.h>

namespace nsbox::net::user {

namespace {

constexpr std::size_t dns_header = 12;
constexpr std::size_t most_queries = 512;
constexpr std::chrono::seconds patience{15};
constexpr std::uint8_t is_answer = 0x80;     // QR, in the third byte.
constexpr std::uint8_t is_truncated = 0x02;  // TC, there too.
constexpr std::uint8_t server_failure = 2;   // RCODE, in the fourth.

/// Where the one question of a message ends; 0 if it is not whole.
std::size_t end_of_question(Bytes message)
{
    std::size_t at = dns_header;
    while (at < message.size() && message[at] != 0) {
        constexpr std::uint8_t longest_label = 63;
        if (message[at] > longest_label)
            return 0;
        at += message[at] + std::size_t{1};
    }
    constexpr std::size_t root_type_class = 5;
    return at + root_type_class <= message.size() ? at + root_type_class : 0;
}

/// Header and question alone, with the counts of all else at zero.
std::vector<std::uint8_t> bare(Bytes message)
{
    const std::size_t end = end_of_question(message);
    std::vector<std::uint8_t> out(message.begin(),
                                  message.begin() +
                                      static_cast<std::ptrdiff_t>(end == 0 ? dns_header : end));
    constexpr std::size_t counts = 4;
    std::fill(out.begin() + counts, out.begin() + dns_header, std::uint8_t{0});
    out[counts + 1] = end == 0 ? 0 : 1;
    return out;
}

/// The answer that there is none.
void say_failure(Bytes query, const DnsForwarder::Reply& reply)
{
    std::vector<std::uint8_t> answer = bare(query);
    answer[2] = static_cast<std::uint8_t>(answer[2] | is_answer);
    answer[3] = static_cast<std::uint8_t>((answer[3] & 0xf0) | server_failure);
    reply(answer);
}

}  // namespace

Result<DnsForwarder> DnsForwarder::create()
{
    sys::Fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll)
        return fail("epoll_create1", errno);
    return DnsForwarder{std::move(epoll)};
}

void DnsForwarder::forget_old()
{
    const auto now = Clock::now();
    while (!queries_.empty() && (queries_.front().until <= now || queries_.size() >= most_queries))
        queries_.pop_front();
}

/// To the next server that takes it.
bool DnsForwarder::send_on(Query& query)
{
    for (; query.server < servers_.size(); ++query.server) {
        const SocketAddress& server = servers_[query.server];
        query.socket = sys::Fd{
            ::socket(server.storage.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        epoll_event event{EPOLLIN, {}};
        event.data.ptr = &query;
        // Connected, it hears of nobody else.
        if (query.socket && ::connect(query.socket.get(), server.get(), server.size) == 0 &&
            ::send(query.socket.get(), query.message.data(), query.message.size(), MSG_NOSIGNAL) >=
                0 &&
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, query.socket.get(), &event) == 0)
            return true;
    }
    query.socket.reset();
    return false;
}

void DnsForwarder::ask(Bytes message, std::string asker, std::size_t most, Reply reply)
{
    if (message.size() < dns_header)
        return;
    forget_old();
    Query& query = queries_.emplace_back(Query{{message.begin(), message.end()},
                                               std::move(asker),
                                               most,
                                               std::move(reply),
                                               Clock::now() + patience,
                                               0,
                                               {}});
    // One that is repeated was not answered by the last server asked.
    for (auto it = queries_.begin(); &*it != &query; ++it) {
        if (it->asker == query.asker && it->message == query.message) {
            query.server = servers_.empty() ? 0 : (it->server + 1) % servers_.size();
            queries_.erase(it);
            break;
        }
    }
    if (send_on(query))
        return;
    say_failure(query.message, query.reply);
    queries_.pop_back();
}

/// Whether the query is done with.
bool DnsForwarder::take_answer(Query& query)
{
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t got = ::recv(query.socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return false;
        ++query.server;  // It is not there.
        if (send_on(query))
            return false;
        say_failure(query.message, query.reply);
        return true;
    }
    const Bytes answer{buffer.data(), static_cast<std::size_t>(got)};
    // The identifier has to be that of the question, or somebody guessed the port.
    if (answer.size() < dns_header || answer[0] != query.message[0] ||
        answer[1] != query.message[1])
        return false;
    answering_ = query.server;
    if (answer.size() <= query.most) {
        query.reply(answer);
        return true;
    }
    std::vector<std::uint8_t> cut = bare(answer);
    cut[2] = static_cast<std::uint8_t>(cut[2] | is_truncated);
    query.reply(cut);
    return true;
}

void DnsForwarder::handle()
{
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
        const auto* const which = static_cast<Query*>(events[static_cast<std::size_t>(i)].data.ptr);
        const auto it = std::find_if(queries_.begin(), queries_.end(),
                                     [&](const Query& query) { return &query == which; });
        if (it != queries_.end() && take_answer(*it))
            queries_.erase(it);
    }
}

}  // namespace nsbox::net::user
