#include "net/user/stream_relay.hpp"

#include "net/user/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace nsbox::net::user {

namespace {

constexpr std::size_t most_at_once = std::size_t{256} * 1024;
constexpr std::size_t first_chunk = std::size_t{64} * 1024;
constexpr std::size_t least_chunk = std::size_t{16} * 1024;
constexpr std::size_t turn_bytes = std::size_t{1024} * 1024;
constexpr int events_at_once = 256;
constexpr std::uint64_t again_mark = ~std::uint64_t{0};

// Edge-triggered: a level would report again and again what a pair cannot use, and hang-ups and
// errors cannot be masked.
constexpr std::uint32_t watched = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;

}  // namespace

Result<std::unique_ptr<StreamRelay>> StreamRelay::create()
{
    std::unique_ptr<StreamRelay> relay{new StreamRelay};
    relay->epoll_ = sys::Fd{::epoll_create1(EPOLL_CLOEXEC)};
    if (!relay->epoll_)
        return fail("Can't epoll_create1", errno);
    relay->again_ = sys::Fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (!relay->again_)
        return fail("Can't eventfd", errno);
    epoll_event event{EPOLLIN, {.u64 = again_mark}};
    if (::epoll_ctl(relay->epoll_.get(), EPOLL_CTL_ADD, relay->again_.get(), &event) < 0)
        return fail("Can't epoll_ctl", errno);
    relay->buffer_.resize(most_at_once);
    return relay;
}

StreamRelay::~StreamRelay()
{
    for (std::size_t slot = 0; slot < pairs_.size(); ++slot)
        if (pairs_[slot])
            drop(slot, true);
}

void StreamRelay::join(sys::Fd one, sys::Fd other)
{
    if (free_.empty()) {
        free_.push_back(pairs_.size());
        pairs_.emplace_back();
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    pairs_[slot] = std::make_unique<Pair>();
    Pair& pair = *pairs_[slot];
    pair.ends[0].socket = std::move(one);
    pair.ends[1].socket = std::move(other);
    for (std::size_t side = 0; side < 2; ++side) {
        End& end = pair.ends[side];
        const int socket = end.socket.get();
        end.chunk = first_chunk;
        end.is_tcp = is_internet(socket);
        if (end.is_tcp) {
            set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
            // A peer that vanished without a word must not hold its pair for ever.
            set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
        }
        // What is ready already is reported as the first edge.
        epoll_event event{watched, {.u64 = slot * 2 + side}};
        if (!set_nonblocking(socket) ||
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) < 0) {
            drop(slot, true);
            return;
        }
    }
}

void StreamRelay::handle()
{
    epoll_event events[events_at_once];
    const int count = ::epoll_wait(epoll_.get(), events, events_at_once, 0);
    for (int i = 0; i < count; ++i)
        if (events[i].data.u64 != again_mark)
            note(events[i].data.u64, events[i].events);
    // Those that go to the end of the queue again have had their turn.
    for (std::size_t left = queue_.size(); left > 0; --left) {
        const std::size_t slot = queue_.front();
        queue_.pop_front();
        pairs_[slot]->queued = false;
        serve(slot);
    }
    wake(!queue_.empty());
}

void StreamRelay::note(std::uint64_t which, std::uint32_t events)
{
    const std::size_t slot = which / 2;
    End& end = pairs_[slot]->ends[which % 2];
    const bool all_over = (events & (EPOLLHUP | EPOLLERR)) != 0;
    end.failed |= (events & EPOLLERR) != 0;
    end.urgent |= (events & EPOLLPRI) != 0;
    end.ending |= all_over || (events & EPOLLRDHUP) != 0;
    end.readable |= all_over || (events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI)) != 0;
    end.writable |= all_over || (events & EPOLLOUT) != 0;
    enqueue(slot);
}

void StreamRelay::enqueue(std::size_t slot)
{
    if (!std::exchange(pairs_[slot]->queued, true))
        queue_.push_back(slot);
}

void StreamRelay::serve(std::size_t slot)
{
    End& one = pairs_[slot]->ends[0];
    End& other = pairs_[slot]->ends[1];
    const Moved there = move(one, other);
    const Moved back = there == Moved::failed ? Moved::failed : move(other, one);
    // What came before a failure is passed on as far as the other side takes it at once.
    if (back == Moved::failed || one.failed || other.failed) {
        drop(slot, true);
    } else if (one.ended && other.ended) {
        drop(slot, false);
    } else if (there == Moved::more || back == Moved::more) {
        enqueue(slot);
    }
}

StreamRelay::Moved StreamRelay::move(End& from, End& to)
{
    std::size_t budget = turn_bytes;
    Moved moved = Moved::more;
    while (moved == Moved::more && budget > 0)
        moved = move_once(from, to, budget);
    return moved;
}

StreamRelay::Moved StreamRelay::move_once(End& from, End& to, std::size_t& budget)
{
    if (from.ended || !from.readable || !to.writable)
        return Moved::waits;
    const std::size_t asked = std::min(from.chunk, budget);
    const ssize_t got = ::recv(from.socket.get(), buffer_.data(), asked, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0) {
        from.ended = true;
        // An error means that the other side is gone, which its own events tell.
        (void)::shutdown(to.socket.get(), SHUT_WR);
        return Moved::waits;
    }
    if (got < 0) {
        from.readable = errno != EAGAIN;
        return errno == EAGAIN ? Moved::waits : errno == EINTR ? Moved::more : Moved::failed;
    }
    const auto size = static_cast<std::size_t>(got);
    const ssize_t put = ::send(to.socket.get(), buffer_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
        to.writable = errno != EAGAIN;
        return errno == EAGAIN ? Moved::waits : errno == EINTR ? Moved::more : Moved::failed;
    }
    const auto sent = static_cast<std::size_t>(put);
    if (!take(from, sent))
        return Moved::failed;
    budget -= sent;
    if (sent < size) {
        // To look at more than will be taken is work for nothing.
        from.chunk = std::clamp(sent * 2, least_chunk, most_at_once);
        to.writable = false;
        return Moved::waits;
    }
    if (size == asked)
        from.chunk = std::min(from.chunk * 2, most_at_once);
    else if (from.is_tcp && !from.ending && !from.urgent)
        from.readable = false;  // All was read, and what comes from now on is a new edge.
    return Moved::more;
}

/// Takes bytes that were looked at out of the queue; TCP does not even copy them.
bool StreamRelay::take(const End& from, std::size_t count)
{
    while (count > 0) {
        const ssize_t got =
            ::recv(from.socket.get(), buffer_.data(), count, MSG_TRUNC | MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        count -= static_cast<std::size_t>(got);
    }
    return true;
}

void StreamRelay::drop(std::size_t slot, bool with_reset)
{
    const std::unique_ptr<Pair> pair = std::move(pairs_[slot]);
    free_.push_back(slot);
    for (End& end : pair->ends) {
        // Whoever sent the descriptor may not have closed his own yet, and would keep it watched.
        (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, end.socket.get(), nullptr);
        if (with_reset)
            reset(std::move(end.socket));
    }
}

void StreamRelay::wake(bool on)
{
    if (is_awake_ == on)
        return;
    is_awake_ = on;
    std::uint64_t count = 1;
    // It is non-blocking and counts to one at most: neither can fail.
    if (on)
        (void)!::write(again_.get(), &count, sizeof count);
    else
        (void)!::read(again_.get(), &count, sizeof count);
}

}  // namespace nsbox::net::user
