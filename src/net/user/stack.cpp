#include "net/user/stack.hpp"

#include "net/user/guest.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <netinet/in.h>
#include <set>
#include <slirp/libslirp.h>

namespace nsbox::net::user {

namespace {

std::int64_t now_ns()
{
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
}

constexpr std::int64_t ns_per_ms = 1000000;

/// GLib's memory is malloc's.
struct Free {
    void operator()(char* text) const noexcept { std::free(text); }
};

in_addr to_in(const Address& address)
{
    in_addr result;
    std::memcpy(&result, address.bytes.data(), sizeof result);
    return result;
}

in6_addr to_in6(const Address& address)
{
    in6_addr result;
    std::memcpy(&result, address.bytes.data(), sizeof result);
    return result;
}

/// What tells hosts to make up addresses and routes (RFC 4861): the sandbox has its own.
bool is_router_advertisement(Bytes frame)
{
    const Packet packet = parse(frame);
    constexpr std::uint8_t router_advertisement = 134;
    return packet.protocol == protocol_icmp6 && packet.end > packet.transport &&
           frame[packet.transport] == router_advertisement;
}

/// Those that libslirp has something to write of, or that have not come to their end. What it says of
/// IPv6 addresses is wrong; ports are right for both families.
std::set<Closing::Ports> busy_connections(Slirp* slirp)
{
    const std::unique_ptr<char, Free> text{::slirp_connection_info(slirp)};
    std::set<Closing::Ports> busy;
    for (const char* at = text.get(); at != nullptr;) {
        // Alone: sscanf(3) looks for the end of all that follows.
        const char* const end = std::strchr(at, '\n');
        const std::string line{at, end != nullptr ? end : at + std::strlen(at)};
        at = end != nullptr ? end + 1 : nullptr;
        char state[24];
        unsigned inside = 0;
        unsigned outside = 0;
        unsigned to_write = 0;
        if (std::sscanf(line.c_str(), " TCP[%23[^]]] %*d %*s %u %*s %u %u", state, &inside,
                        &outside, &to_write) == 4 &&
            (to_write > 0 || std::strcmp(state, "TIME_WAIT") != 0))
            busy.emplace(static_cast<std::uint16_t>(inside), static_cast<std::uint16_t>(outside));
    }
    return busy;
}

}  // namespace

struct Stack::Callbacks {
    static Stack& of(void* opaque) { return *static_cast<Stack*>(opaque); }

    static ssize_t send(const void* data, std::size_t size, void* opaque)
    {
        const Bytes frame{static_cast<const std::uint8_t*>(data), size};
        if (!is_router_advertisement(frame))
            of(opaque).send(frame);
        return static_cast<ssize_t>(size);
    }
    static void guest_error(const char*, void*) {}
    static std::int64_t clock(void*) { return now_ns(); }
    static void* timer_new(SlirpTimerId id, void* argument, void* opaque)
    {
        of(opaque).timers_.push_back({id, argument, -1});
        return &of(opaque).timers_.back();
    }
    static void timer_free(void* timer, void* opaque)
    {
        of(opaque).timers_.remove_if([&](const Timer& other) { return &other == timer; });
    }
    static void timer_mod(void* timer, std::int64_t at, void*)
    {
        static_cast<Timer*>(timer)->at = at;
    }
    static void ignore_fd(int, void*) {}
    static void notify(void*) {}
    static void initialised(Slirp*, void*) {}

    static int add_poll(int fd, int events, void* opaque)
    {
        short wanted = 0;
        const auto map = [&](int theirs, short ours) {
            if ((events & theirs) != 0)
                wanted = static_cast<short>(wanted | ours);
        };
        map(SLIRP_POLL_IN, POLLIN);
        map(SLIRP_POLL_OUT, POLLOUT);
        map(SLIRP_POLL_PRI, POLLPRI);
        std::vector<pollfd>& fds = *of(opaque).filling_;
        fds.push_back({fd, wanted, 0});
        return static_cast<int>(fds.size() - 1);
    }
    static int get_events(int index, void* opaque)
    {
        const short got = (*of(opaque).handling_)[static_cast<std::size_t>(index)].revents;
        int events = 0;
        const auto map = [&](short ours, int theirs) {
            if ((got & ours) != 0)
                events |= theirs;
        };
        map(POLLIN, SLIRP_POLL_IN);
        map(POLLOUT, SLIRP_POLL_OUT);
        map(POLLPRI, SLIRP_POLL_PRI);
        map(POLLERR, SLIRP_POLL_ERR);
        map(POLLHUP, SLIRP_POLL_HUP);
        return events;
    }

    static constexpr SlirpCb table()
    {
        SlirpCb all{};
        all.send_packet = send;
        all.guest_error = guest_error;
        all.clock_get_ns = clock;
        all.timer_free = timer_free;
        all.timer_mod = timer_mod;
        all.register_poll_fd = ignore_fd;
        all.unregister_poll_fd = ignore_fd;
        all.notify = notify;
        all.init_completed = initialised;
        all.timer_new_opaque = timer_new;
        return all;
    }
};

Result<std::unique_ptr<Stack>> Stack::create(const Wish& wish, SendFrame send)
{
    static const SlirpCb callbacks = Callbacks::table();
    const GuestNetwork guest;
    SlirpConfig config{};
    config.version = 4;
    config.in_enabled = true;
    config.vnetwork = to_in(guest.net4);
    config.vnetmask.s_addr = htonl(~0U << (32 - guest_prefix4));
    config.vhost = to_in(guest.gateway4);
    config.vdhcp_start = to_in(guest.guest4);
    config.vnameserver = to_in(guest.dns4);
    config.in6_enabled = wish.ipv6;
    config.vprefix_addr6 = to_in6(guest.net6);
    config.vprefix_len = guest_prefix6;
    config.vhost6 = to_in6(guest.gateway6);
    config.vnameserver6 = to_in6(guest.dns6);
    config.if_mtu = config.if_mru = wish.mtu;
    config.disable_host_loopback = !wish.host_loopback;
    config.disable_dns = true;  // Queries are answered before they come that far.
    config.disable_dhcp = true;
    std::unique_ptr<Stack> stack{new Stack{std::move(send)}};
    stack->slirp_ = ::slirp_new(&config, &callbacks, stack.get());
    if (stack->slirp_ == nullptr)
        return fail("Can't start the user-mode network", EINVAL, "slirp_new");
    return stack;
}

Stack::~Stack()
{
    if (slirp_ != nullptr)
        ::slirp_cleanup(slirp_);
}

int Stack::add_to(std::vector<pollfd>& fds)
{
    std::uint32_t timeout = ~0U;
    filling_ = &fds;
    ::slirp_pollfds_fill(slirp_, &timeout, Callbacks::add_poll, this);
    filling_ = nullptr;
    std::int64_t wait = timeout == ~0U ? -1 : timeout;
    const auto until = [&](std::int64_t left) {
        left = std::max<std::int64_t>(0, left);
        wait = wait < 0 ? left : std::min(wait, left);
    };
    for (const Timer& timer : timers_)
        if (timer.at >= 0)
            until(timer.at - now_ns() / ns_per_ms);
    if (const auto time = closing_.deadline())
        until(std::chrono::ceil<std::chrono::milliseconds>(*time - Closing::Clock::now()).count());
    constexpr std::int64_t most = 1000000;
    return static_cast<int>(std::min(wait, most));
}

void Stack::handle(const std::vector<pollfd>& fds)
{
    handling_ = &fds;
    ::slirp_pollfds_poll(slirp_, 0, Callbacks::get_events, this);
    handling_ = nullptr;
    run_timers();
    forget_what_is_over();
}

void Stack::send(Bytes frame)
{
    closing_.sent(frame, Closing::Clock::now());
    send_(frame);
}

void Stack::forget_what_is_over()
{
    const auto now = Closing::Clock::now();
    if (const auto time = closing_.deadline(); !time || *time > now)
        return;
    const std::set<Closing::Ports> busy = busy_connections(slirp_);
    for (const auto& frame : closing_.due(now, [&](Closing::Ports p) { return busy.contains(p); }))
        ::slirp_input(slirp_, frame.data(), static_cast<int>(frame.size()));
}

void Stack::run_timers()
{
    for (Timer& timer : timers_) {
        if (timer.at < 0 || timer.at > now_ns() / ns_per_ms)
            continue;
        timer.at = -1;
        ::slirp_handle_timer(slirp_, static_cast<SlirpTimerId>(timer.id), timer.argument);
    }
}

void Stack::input(Bytes frame)
{
    closing_.taken(frame, Closing::Clock::now());
    ::slirp_input(slirp_, frame.data(), static_cast<int>(frame.size()));
}

}  // namespace nsbox::net::user
