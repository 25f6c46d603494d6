#include "net/user/forwards.hpp"

#include "net/user/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <utility>

namespace nsbox::net::user {

namespace {

constexpr int events_at_once = 64;
constexpr int connections_at_once = 64;
constexpr int backlog = 4096;
constexpr std::uint64_t timer_mark = ~std::uint64_t{0};
constexpr std::uint64_t udp_mark = timer_mark - 1;

bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/// Whether a host socket listens only while somebody does inside.
bool follows(ForwardKind kind)
{
    return kind == ForwardKind::tcp || kind == ForwardKind::unix_to_tcp;
}

/// A TCP socket that listens no more is as bind(2) left it, except that it has lost a port that the
/// kernel chose, while getsockname(2) still tells it. Says whether it has its port (again).
bool keep_port(int socket, const SocketAddress& port)
{
    return ::bind(socket, port.get(), port.size) == 0 || errno == EINVAL ||  // It is bound.
           errno == EACCES;  // The kernel chooses no port of the privileged ones.
}

bool fits(ForwardKind kind, int socket)
{
    const bool is_unix = option_of(socket, SOL_SOCKET, SO_DOMAIN) == AF_UNIX;
    const int type = kind == ForwardKind::udp ? SOCK_DGRAM : SOCK_STREAM;
    return option_of(socket, SOL_SOCKET, SO_TYPE) == type &&
           (kind == ForwardKind::unix_to_tcp ? is_unix : is_internet(socket));
}

}  // namespace

Forwards::Forwards(StreamRelay& relay, InsideSockets& inside, UnixConnector& connector,
                   const ForwardLimits& limits)
    : relay_(relay), make_(inside), connector_(connector), limits_(limits)
{}

Result<std::unique_ptr<Forwards>> Forwards::create(StreamRelay& relay, InsideSockets& inside,
                                                   UnixConnector& connector,
                                                   const ForwardLimits& limits)
{
    std::unique_ptr<Forwards> forwards{new Forwards{relay, inside, connector, limits}};
    TRY(forwards->begin());
    return forwards;
}

Result<void> Forwards::begin()
{
    udp_ = TRY(UdpForwards::create(make_, limits_.idle, limits_.flows));
    epoll_ = sys::Fd{::epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll_)
        return fail("Can't epoll_create1", errno);
    timer_ = sys::Fd{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
    if (!timer_)
        return fail("Can't timerfd_create", errno);
    epoll_event timer{EPOLLIN, {.u64 = timer_mark}};
    epoll_event udp{EPOLLIN, {.u64 = udp_mark}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &timer) < 0 ||
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, udp_->descriptor(), &udp) < 0)
        return fail("Can't epoll_ctl", errno);
    return {};
}

Result<Forwards::Id> Forwards::add(Forward forward)
{
    TRY(check(forward));
    const Id id = next_++;
    forwards_.emplace(id, forward.kind);
    if (Result<void> added = add_doors(id, forward); !added) {
        (void)remove(id);  // It is there: the reason why it goes is the one above.
        return tl::make_unexpected(std::move(added).error());
    }
    look();
    arm();
    return id;
}

Result<void> Forwards::check(const Forward& forward) const
{
    if (forward.inside.family() != AF_INET && forward.inside.family() != AF_INET6)
        return fail("Can't forward to", EAFNOSUPPORT, forward.inside.text());
    const bool needs_outside = forward.kind != ForwardKind::inside_to_unix;
    if (forward.outside.empty() == needs_outside)
        return fail("Can't forward without a socket to", EINVAL, forward.inside.text());
    for (const sys::Fd& socket : forward.outside)
        if (!fits(forward.kind, socket.get()))
            return fail("Can't forward from this kind of socket to", EINVAL, forward.inside.text());
    return {};
}

Result<void> Forwards::add_doors(Id id, Forward& forward)
{
    if (forward.kind == ForwardKind::udp) {
        for (sys::Fd& socket : forward.outside)
            TRY(udp_->add(id, std::move(socket), forward.inside));
        return {};
    }
    if (forward.kind == ForwardKind::inside_to_unix) {
        const std::uint64_t token = next_++;
        Door& door = doors_[token] = TRY(inside_door(forward));
        door.forward = id;
        watch(token, door);
        return {};
    }
    TRY(prepare_look());
    for (sys::Fd& socket : forward.outside) {
        const std::uint64_t token = next_++;
        if (!set_nonblocking(socket.get()))
            return fail("Can't make non-blocking", errno, "the socket of a forward");
        Door& door = doors_[token];
        door.forward = id;
        door.kind = forward.kind;
        door.bound = bound_address(socket.get());
        door.socket = std::move(socket);
        door.inside = forward.inside;
        door.otherwise = forward.otherwise;
        door.number = forward.number;
        if (look_->is_available())
            continue;
        set_listening(token, door, true);
        if (!door.listens)
            return fail("Can't listen on", errno, door.bound.text());
    }
    return {};
}

Result<Forwards::Door> Forwards::inside_door(const Forward& forward)
{
    Door door;
    door.kind = forward.kind;
    door.inside = forward.inside;
    door.number = forward.number;
    door.socket = make_.make(forward.inside.family(), SOCK_STREAM, 0);
    const int socket = door.socket.get();
    if (!door.socket)
        return fail("Can't make a socket inside for", -door.socket.error(), forward.inside.text());
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (forward.inside.family() == AF_INET6)
        set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (::bind(socket, forward.inside.get(), forward.inside.size) < 0)
        return fail("Can't bind inside to", errno, forward.inside.text());
    if (::listen(socket, backlog) < 0)
        return fail("Can't listen inside on", errno, forward.inside.text());
    door.listens = true;
    return door;
}

Result<void> Forwards::prepare_look()
{
    if (!look_)
        look_ = TRY(ListenLook::create(make_));
    return {};
}

Result<void> Forwards::remove(Id id)
{
    const auto forward = forwards_.find(id);
    if (forward == forwards_.end())
        return fail("Can't remove the forward", ENOENT, std::to_string(id));
    forwards_.erase(forward);
    udp_->remove(id);
    for (auto door = doors_.begin(); door != doors_.end();) {
        if (door->second.forward != id) {
            ++door;
            continue;
        }
        door->second.listens = false;
        watch(door->first, door->second);
        reset(std::move(door->second.waiting));
        door = doors_.erase(door);
    }
    arm();
    return {};
}

void Forwards::handle()
{
    epoll_event events[events_at_once];
    const int count = ::epoll_wait(epoll_.get(), events, events_at_once, 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t token = events[i].data.u64;
        if (token == timer_mark)
            timer_fired();
        else if (token == udp_mark)
            udp_->handle();
        else
            accept_some(token);
    }
    arm();
}

void Forwards::timer_fired()
{
    has_fired_ = true;  // arm() makes it unreadable again.
    const auto now = Clock::now();
    if (accept_again_ && *accept_again_ <= now) {
        accept_again_.reset();
        watch_all();
        // What was accepted already makes no event.
        std::vector<std::uint64_t> waiting;
        for (const auto& [token, door] : doors_)
            if (door.waiting)
                waiting.push_back(token);
        for (const std::uint64_t token : waiting)
            accept_some(token);
    }
    if (next_look_ && *next_look_ <= now)
        look();
    udp_->expire(now);
}

/// Sets the timer to what comes first.
void Forwards::arm()
{
    std::optional<Clock::time_point> first = udp_->deadline();
    for (const auto& time : {next_look_, accept_again_})
        if (time && (!first || *time < *first))
            first = time;
    // That it fires too early once is cheaper than to set it for every datagram.
    const bool is_set = armed_ ? first && *armed_ <= *first : !first;
    if (is_set && !has_fired_)
        return;
    has_fired_ = false;
    armed_ = first;
    itimerspec spec{};
    if (first) {
        const auto since =
            std::chrono::duration_cast<std::chrono::nanoseconds>(first->time_since_epoch()).count();
        constexpr long long second = 1'000'000'000;
        spec.it_value.tv_sec = since / second;
        spec.it_value.tv_nsec = since % second;
    }
    (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

/// One look serves all forwards.
void Forwards::look()
{
    next_look_.reset();
    if (!look_ || !look_->is_available())
        return;
    std::vector<SocketAddress> where;
    std::vector<bool> listens;
    for (const auto& [token, door] : doors_) {
        if (!follows(door.kind))
            continue;
        where.push_back(door.inside);
        listens.push_back(door.listens && !door.leads_otherwise);
        if (door.otherwise.size == 0)
            continue;
        where.push_back(door.otherwise);
        listens.push_back(door.listens && door.leads_otherwise);
    }
    if (where.empty())
        return;
    look_->look(where, listens);
    std::size_t at = 0;
    for (auto& [token, door] : doors_) {
        if (!follows(door.kind))
            continue;
        const bool there = listens[at++];
        const bool otherwise = door.otherwise.size != 0 && listens[at++];
        door.leads_otherwise = otherwise && !there;
        set_listening(token, door, there || otherwise);
    }
    next_look_ = Clock::now() + limits_.look;
}

void Forwards::set_listening(std::uint64_t token, Door& door, bool on)
{
    if (door.listens == on || !door.socket)
        return;
    if (!on) {
        stop_listening(token, door);
        return;
    }
    // Without its port it would be given any.
    if (!door.has_port && !(door.has_port = keep_port(door.socket.get(), door.bound)))
        return;
    // EADDRINUSE: another program has taken the port meanwhile; the next look tries again.
    // What was accepted is not to keep the port from its next user; a socket that only has the port
    // is to keep it.
    (void)set_option(door.socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    door.listens = ::listen(door.socket.get(), backlog) == 0;
    if (!door.listens)
        (void)set_option(door.socket.get(), SOL_SOCKET, SO_REUSEADDR, 0);
    watch(token, door);
}

void Forwards::stop_listening(std::uint64_t token, Door& door)
{
    const bool is_unix = door.kind == ForwardKind::unix_to_tcp;
    if (is_unix && !connector_.renew(door.number, token))
        return;
    door.listens = false;
    watch(token, door);
    // Connections that nobody has accepted yet are reset by this.
    (void)::shutdown(door.socket.get(), SHUT_RD);
    if (is_unix)
        door.socket.reset();
    else
        door.has_port = keep_port(door.socket.get(), door.bound);
    (void)set_option(door.socket.get(), SOL_SOCKET, SO_REUSEADDR, 0);
}

/// Watches a door if it listens and something may be accepted. A closed socket that is watched
/// would report a hang-up to no end.
void Forwards::watch(std::uint64_t token, Door& door)
{
    const bool wanted = door.listens && !accept_again_;
    if (wanted == door.is_watched)
        return;
    epoll_event event{EPOLLIN, {.u64 = token}};
    const int operation = wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    const bool done = ::epoll_ctl(epoll_.get(), operation, door.socket.get(), &event) == 0;
    door.is_watched = wanted && done;
}

void Forwards::watch_all()
{
    for (auto& [token, door] : doors_)
        watch(token, door);
}

/// A connection that waits keeps its listener ready, so nothing may listen for it until there can
/// be descriptors again.
void Forwards::pause()
{
    accept_again_ = Clock::now() + limits_.retry;
    watch_all();
}

void Forwards::accept_some(std::uint64_t token)
{
    for (int i = 0; i < connections_at_once; ++i) {
        // Neither may outlive what accepting has set off.
        const auto door = doors_.find(token);
        if (door == doors_.end() || accept_again_)
            return;
        const Turn turn = accept_one(door->second);
        if (turn == Turn::short_of_descriptors)
            pause();
        if (turn != Turn::more)
            return;
    }
}

Forwards::Turn Forwards::accept_one(Door& door)
{
    sys::Fd accepted = std::move(door.waiting);
    if (!accepted)
        accepted =
            sys::Fd{::accept4(door.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!accepted) {
        if (is_shortage(errno))
            return Turn::short_of_descriptors;
        // Anything else but these is the error of one connection; see accept(2).
        return errno == EAGAIN || errno == EINVAL || errno == EBADF ? Turn::done : Turn::more;
    }
    return door.kind == ForwardKind::inside_to_unix ? connect_outside(door, std::move(accepted))
                                                    : connect_inside(door, std::move(accepted));
}

Forwards::Turn Forwards::connect_inside(Door& door, sys::Fd accepted)
{
    const SocketAddress& inside = door.leads_otherwise ? door.otherwise : door.inside;
    sys::Fd socket = make_.make(inside.family(), SOCK_STREAM, 0);
    if (!socket && is_shortage(-socket.error())) {
        door.waiting = std::move(accepted);
        return Turn::short_of_descriptors;
    }
    const bool begun =
        socket && (::connect(socket.get(), inside.get(), inside.size) == 0 || errno == EINPROGRESS);
    if (begun)
        relay_.join(std::move(accepted), std::move(socket));
    else
        reset(std::move(accepted));
    return Turn::more;
}

Forwards::Turn Forwards::connect_outside(const Door& door, sys::Fd accepted)
{
    if (unanswered_.size() >= limits_.answers) {
        reset(std::move(accepted));
        return Turn::more;
    }
    const std::uint64_t token = next_++;
    unanswered_.emplace(token, std::move(accepted));
    connector_.connect(door.number, token);
    return Turn::more;
}

void Forwards::connected(std::uint64_t token, sys::Fd socket)
{
    const auto found = unanswered_.find(token);
    if (found == unanswered_.end())
        return;
    sys::Fd accepted = std::move(found->second);
    unanswered_.erase(found);
    if (socket)
        relay_.join(std::move(accepted), std::move(socket));
    else
        reset(std::move(accepted));
}

void Forwards::refuse_unanswered()
{
    for (auto& [token, accepted] : unanswered_)
        reset(std::move(accepted));
    unanswered_.clear();
}

void Forwards::renewed(std::uint64_t token, sys::Fd socket)
{
    const auto found = doors_.find(token);
    if (found == doors_.end() || !socket || !set_nonblocking(socket.get()))
        return;
    found->second.socket = std::move(socket);
    look();
    arm();
}

}  // namespace nsbox::net::user
