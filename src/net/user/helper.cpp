#include "net/user/helper.hpp"

#include "net/user/confine.hpp"
#include "net/user/dns.hpp"
#include "net/user/forwards.hpp"
#include "net/user/gateway.hpp"
#include "net/user/host_addresses.hpp"
#include "net/user/host_link.hpp"
#include "net/user/judge.hpp"
#include "net/user/link.hpp"
#include "net/user/link_rules.hpp"
#include "net/user/name_streams.hpp"
#include "net/user/netfilter.hpp"
#include "net/user/protocol.hpp"
#include "net/user/reassembly.hpp"
#include "net/user/routed_address.hpp"
#include "net/user/stack.hpp"
#include "net/user/stream_relay.hpp"
#include "net/user/tcp_relay.hpp"
#include "sys/packing.hpp"
#include "sys/pass.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <linux/prctl.h>
#include <malloc.h>
#include <map>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsbox::net::user {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using sys::pack;

constexpr std::size_t largest_frame = 65536 + ethernet_size;
constexpr std::size_t largest_order = 65536;
constexpr std::size_t udp_header_size = 8;
/// Frames between two looks at everything else.
constexpr int frames_a_turn = 64;

struct Received {
    std::string bytes;
    std::array<Fd, sys::most_passed> descriptors;
    std::size_t count = 0;  ///< Of the descriptors.

    bool is(Order order) const
    {
        sys::Unpacker from{bytes};
        return bytes.size() >= sizeof(std::uint64_t) &&
               from.number() == static_cast<std::uint64_t>(order);
    }
};

/// To tell the senders of packets apart.
std::string sender_of(const Packet& packet)
{
    return {reinterpret_cast<const char*>(packet.source.bytes.data()), packet.source.size()};
}

/// What is connected to the host itself.
struct Routed {
    HostLink link;
    std::unique_ptr<Gateway> gateway;
    netfilter::Owner rules;
};

/// Asks the supervisor, which may have gone, or have more to do than it can.
class AskSupervisor final : public UnixConnector {
public:
    void connect(std::uint64_t number, std::uint64_t token) override
    {
        if (!ask(Answer::connect, number, token))
            forwards->connected(token, Fd{-ECONNREFUSED});
    }
    bool renew(std::uint64_t number, std::uint64_t token) override
    {
        return ask(Answer::renew, number, token);
    }

    Forwards* forwards = nullptr;

private:
    static bool ask(Answer what, std::uint64_t number, std::uint64_t token)
    {
        const std::string out = encode_pair(what, number, token);
        return ::send(helper_channel, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
    }
};

/// Tells how an order has ended, on the descriptor that came for that.
void report(const Fd& descriptor, const Result<>& outcome)
{
    std::string out;
    pack(out, outcome ? std::string{} : outcome.error().message());
    ::send(descriptor.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

class Helper {
public:
    /// False when there is nothing to do any more.
    Result<bool> begin()
    {
        const std::optional<Received> first = hear();
        if (!first)
            return false;
        if (!decode(first->bytes, config_))
            return refuse("Can't start the network helper", {}, "it is of another version");
        raise_descriptor_limit();
        insider_ = TRY(Insider::start());
        dns_.emplace(TRY(DnsForwarder::create()));
        take_servers(std::move(config_.servers));
        relay_ = TRY(StreamRelay::create());
        tcp_relay_.emplace(*relay_, rules_, *dns_);
        forwards_ = TRY(Forwards::create(*relay_, *insider_, supervisor_));
        supervisor_.forwards = forwards_.get();
        if (is_routed()) {
            if (!TRY(connect_to_host()))
                return false;
        } else {
            TRY(start_stack());
        }
        TRY(leave_file_tree());
        TRY(give_up_privilege());
        constexpr int families[] = {AF_INET, AF_INET6};
        TRY(allow_only(relay_calls(), families));
        if (is_routed())
            TRY(take_link());
        return true;
    }

    Result<> run()
    {
        while (TRY(turn())) {
        }
        return {};
    }

    /// The host's ports first, which somebody may wait for: see HelperClient::await_end(). The rest
    /// the kernel frees without us.
    void end()
    {
        forwards_.reset();
        tcp_relay_.reset();
        relay_.reset();
        ::shutdown(helper_channel, SHUT_RDWR);
        insider_.reset();
    }

private:
    enum Slot : std::size_t {
        channel,
        sandbox,
        inside,
        frames,
        addresses,
        services,
        dns,
        doors,
        streams,
        redirected,
        slots = redirected + TcpRelay::slots
    };

    /// A connection takes two, and all that the host allows is what this process may use.
    static void raise_descriptor_limit()
    {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
            limit.rlim_cur = limit.rlim_max;
            ::setrlimit(RLIMIT_NOFILE, &limit);
        }
    }

    bool is_routed() const { return config_.link.kind == LinkKind::routed; }

    Result<> start_stack()
    {
        addresses_.emplace(TRY(HostAddresses::open()));
        take_rules();
        // The last thing that needs files: what it reads is needed when the first frame comes.
        stack_ = TRY(Stack::create(
            {config_.link.mtu, config_.link.ipv6, rules_.host_loopback.any()}, [this](Bytes frame) {
                const std::vector<std::uint8_t> other = name_streams_.inward(frame);
                send_frame(other.empty() ? frame : Bytes{other});
            }));
        return {};
    }

    /// The host's end of the link takes rights that are given up afterwards, and the sandbox's
    /// namespace. False when there will be none.
    Result<bool> connect_to_host()
    {
        while (!is_building_) {
            TRY(obey());
            if (channel_ended_)
                return false;
        }
        return true;
    }

    Result<> build_routed(const Fd& network)
    {
        HostLink link = TRY(make_host_link(config_, network));
        auto gateway = TRY(Gateway::create(link, config_.host_loopback, *dns_, *relay_));
        auto rules = TRY(netfilter::Owner::open());
        for (const netfilter::Table& table : link_rules(link, config_.outbound, gateway->doors()))
            TRY(rules.write(table));
        config_.link.ipv6 = link.ipv6;
        config_.link.inside = link.inside;
        routed_.emplace(Routed{std::move(link), std::move(gateway), std::move(rules)});
        return {};
    }

    LinkReport describe() const
    {
        LinkReport report;
        report.kind = link_.kind;
        report.ipv6 = link_.ipv6;
        report.tcp = config_.link.tcp;
        if (!routed_)
            return report;
        const auto with_length = [](const Address& address, unsigned length) {
            return text_of(address) + "/" + std::to_string(length);
        };
        const HostLink& link = routed_->link;
        report.interface = link.name;
        report.address = with_length(link.inside.address4, link.inside.prefix4);
        if (link_.ipv6)
            report.address6 = with_length(link.inside.address6, link.inside.prefix6);
        if (link.inside.gateway4)
            report.gateway = text_of(*link.inside.gateway4);
        if (link.gateway4)
            report.name_server = text_of(*link.gateway4);
        return report;
    }

    /// A name that is asked for tells the outside something: without access to it none is.
    void take_servers(std::vector<SocketAddress> servers)
    {
        if (!config_.outbound)
            return;
        name_streams_.set_servers(servers);
        dns_->set_servers(std::move(servers));
    }

    void take_rules()
    {
        rules_.outbound = config_.outbound;
        for (const PortRange& range : config_.host_loopback)
            for (unsigned port = range.first; port <= range.last; ++port)
                rules_.host_loopback.set(port);
        rules_.host = addresses_->list();
    }

    /// The next message; nothing when the supervisor has gone.
    static std::optional<Received> hear()
    {
        Received received;
        received.bytes.resize(largest_order);
        int fds[sys::most_passed];
        const long got = sys::receive_with_descriptors(helper_channel, received.bytes.data(),
                                                       received.bytes.size(), fds);
        for (const int fd : fds)
            if (fd >= 0)
                received.descriptors[received.count++] = Fd{fd};
        if (got <= 0)
            return std::nullopt;
        received.bytes.resize(static_cast<std::size_t>(got));
        return received;
    }

    /// False at the end.
    Result<bool> turn()
    {
        fds_.resize(slots);
        fds_[channel] = {channel_ended_ ? -1 : helper_channel, POLLIN, 0};
        fds_[sandbox] = {sandbox_ ? sandbox_.get() : -1, POLLIN, 0};
        fds_[inside] = {is_building_ ? insider_->descriptor() : -1, POLLIN, 0};
        fds_[frames] = {link_.frames ? link_.frames.get() : -1, POLLIN, 0};
        fds_[addresses] = {addresses_ ? addresses_->descriptor() : -1, POLLIN, 0};
        fds_[services] = {routed_ ? routed_->gateway->descriptor() : -1, POLLIN, 0};
        fds_[dns] = {dns_->descriptor(), POLLIN, 0};
        fds_[doors] = {forwards_->descriptor(), POLLIN, 0};
        fds_[streams] = {relay_->descriptor(), POLLIN, 0};
        // As unsigned numbers, in which -1 is later than anything.
        const auto pause = static_cast<unsigned>(tcp_relay_->add_to(&fds_[redirected]));
        const int timeout = stack_    ? stack_->add_to(fds_)
                            : routed_ ? routed_->gateway->time_left()
                                      : -1;
        if (::poll(fds_.data(), fds_.size(),
                   static_cast<int>(std::min(pause, static_cast<unsigned>(timeout)))) < 0) {
            if (errno != EINTR)
                return fail("poll", errno, "the network helper");
            for (pollfd& fd : fds_)
                fd.revents = 0;
        }
        // First, so that no frame is judged by what was.
        if (fds_[addresses].revents != 0) {
            TRY(addresses_->update());
            rules_.host = addresses_->list();
        }
        if (stack_)
            stack_->handle(fds_);
        if (fds_[services].revents != 0 || (routed_ && timeout == 0))
            routed_->gateway->handle();
        if (fds_[dns].revents != 0)
            dns_->handle();
        if (fds_[doors].revents != 0)
            forwards_->handle();
        tcp_relay_->handle(&fds_[redirected]);
        if (fds_[streams].revents != 0)
            relay_->handle();
        if (fds_[frames].revents != 0)
            TRY(take_frames());
        if (fds_[inside].revents != 0)
            TRY(take_link());
        if (fds_[channel].revents != 0)
            TRY(obey());
        if (fds_[sandbox].revents != 0 && sandbox_)
            return false;
        return !channel_ended_ || sandbox_;
    }

    Result<> obey()
    {
        std::optional<Received> order = hear();
        if (!order) {
            channel_ended_ = true;
            forwards_->refuse_unanswered();
            return {};
        }
        Fd& first = order->descriptors[0];
        if (order->is(Order::attach) && first && !is_building_) {
            if (is_routed())
                TRY(build_routed(first));
            TRY(insider_->build(first, config_.link));
            is_building_ = true;
        } else if (order->is(Order::follow) && first) {
            sandbox_ = std::move(first);
        } else if (order->is(Order::unfollow)) {
            sandbox_.reset();
            report(first, {});
        } else if (std::vector<SocketAddress> servers; decode_servers(order->bytes, servers)) {
            take_servers(std::move(servers));
        } else {
            return obey_about_forwards(*order);
        }
        return {};
    }

    Result<> obey_about_forwards(Received& order)
    {
        std::uint64_t number = 0;
        std::uint64_t error = 0;
        Fd& first = order.descriptors[0];
        if (ForwardOrder forward; decode_forward(order.bytes, forward)) {
            // Sockets inside can be had when the process inside is done with the link.
            if (is_connected_)
                return add_forward(forward, order);
            waiting_.push_back(std::move(order));
        } else if (decode_pair(order.bytes, Order::unforward, number, error)) {
            report(first, remove_forward(number));
        } else if (decode_pair(order.bytes, Order::connected, number, error)) {
            forwards_->connected(number, error == 0 ? std::move(first) : refused(error));
        } else if (decode_pair(order.bytes, Order::renewed, number, error)) {
            forwards_->renewed(number, error == 0 ? std::move(first) : refused(error));
        }
        return {};
    }

    static Fd refused(std::uint64_t error) { return Fd{-static_cast<int>(error)}; }

    /// One that cannot be is the end of a start, and a mere answer later on.
    Result<> add_forward(const ForwardOrder& wish, Received& order)
    {
        Forward forward;
        forward.kind = wish.kind;
        forward.inside = inside_address(wish.inside);
        forward.otherwise = inside_address6(wish.inside);
        forward.number = wish.number;
        const std::size_t sockets = wish.sockets;
        // Where descriptors are short the kernel delivers a part of them: the asker's end closes then.
        if (order.count != sockets + (wish.is_awaited ? 1 : 0))
            return wish.is_awaited ? Result<>{} : fail("Can't publish a port", EMFILE);
        for (std::size_t i = 0; i < sockets; ++i)
            forward.outside.push_back(std::move(order.descriptors[i]));
        Result<Forwards::Id> added = forwards_->add(std::move(forward));
        if (added)
            numbers_[wish.number] = *added;
        Result<> outcome =
            added ? Result<>{} : Result<>{tl::make_unexpected(std::move(added.error()))};
        if (!wish.is_awaited)
            return outcome;
        report(order.descriptors[sockets], outcome);
        return {};
    }

    /// The same by IPv6: what listens there is not always at the other one too.
    SocketAddress inside_address6(const SocketAddress& address) const
    {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
        if (v4.sin_addr.s_addr != INADDR_ANY)
            return socket_address(ipv6(0, 1), address.port());
        return link_.ipv6 ? socket_address(config_.link.inside.address6, address.port())
                          : SocketAddress{};
    }

    Result<> remove_forward(std::uint64_t number)
    {
        const auto found = numbers_.find(number);
        if (found == numbers_.end())
            return {};  // It is not there, as it is to be.
        const Forwards::Id id = found->second;
        numbers_.erase(found);
        return forwards_->remove(id);
    }

    SocketAddress inside_address(SocketAddress address) const
    {
        auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
        if (address.family() == AF_INET && v4.sin_addr.s_addr == INADDR_ANY)
            std::memcpy(&v4.sin_addr, config_.link.inside.address4.bytes.data(),
                        sizeof v4.sin_addr);
        return address;
    }

    Result<> take_link()
    {
        is_building_ = false;
        link_ = TRY(insider_->finish());
        is_connected_ = true;
        tcp_relay_->begin(std::move(link_.redirection));
        for (Received& order : std::exchange(waiting_, {}))
            TRY(obey_about_forwards(order));
        const std::string out = encode_report(describe());
        ::send(helper_channel, out.data(), out.size(), MSG_NOSIGNAL);
        return {};
    }

    void send_frame(Bytes frame)
    {
        // What the sandbox does not take is lost, as on any network.
        if (link_.frames && !frame.empty())
            raw::write(link_.frames.get(), frame.data(), frame.size());
    }

    Result<> take_frames()
    {
        for (int i = 0; i < frames_a_turn; ++i) {
            const long got = raw::read(link_.frames.get(), frame_.data(), frame_.size());
            if (got == -EAGAIN || got == -EINTR)
                return {};
            // Nobody uses the interface, or has switched it off for a while.
            if (got == -ENETDOWN || got == -EIO)
                return {};
            if (got <= 0)
                return fail("Can't read frames from the sandbox", static_cast<int>(-got));
            if (static_cast<std::size_t>(got) <= config_.link.mtu + ethernet_size)
                take_frame(Bytes{frame_.data(), static_cast<std::size_t>(got)});
        }
        return {};
    }

    void take_frame(Bytes frame)
    {
        const Packet packet = parse(frame);
        if (!packet.is_fragment)
            judge_frame(frame, packet);
        else if (const auto whole = reassembly_.add(frame, packet))
            judge_frame(*whole, parse(*whole));
    }

    void judge_frame(Bytes frame, const Packet& packet)
    {
        switch (judge(rules_, packet)) {
        case Verdict::pass:
            name_streams_.pass(frame, packet);
            stack_->input(frame);
            break;
        case Verdict::name_stream:
            if (const std::vector<std::uint8_t> other = name_streams_.outward(frame, packet);
                !other.empty())
                stack_->input(other);
            else
                send_frame(refusal(frame, packet));
            break;
        case Verdict::refuse:
            send_frame(refusal(frame, packet));
            break;
        case Verdict::ask_dns:
            ask_name(frame, packet);
            break;
        case Verdict::drop:
            break;
        }
    }

    void ask_name(Bytes frame, const Packet& packet)
    {
        const std::size_t at = packet.transport + udp_header_size;
        if (packet.end < at)
            return;
        constexpr std::size_t headers = 48;
        dns_->ask(frame.subspan(at, packet.end - at),
                  sender_of(packet) + ":" + std::to_string(packet.source_port),
                  config_.link.mtu - headers,
                  [this, packet, query = std::vector<std::uint8_t>(frame.begin(), frame.end())](
                      Bytes answer) { send_frame(udp_answer(query, packet, answer)); });
    }

    HelperConfig config_;
    Rules rules_;
    Reassembly reassembly_;
    std::unique_ptr<Insider> insider_;
    std::optional<HostAddresses> addresses_;
    std::optional<DnsForwarder> dns_;
    AskSupervisor supervisor_;
    NameStreams name_streams_;
    std::unique_ptr<StreamRelay> relay_;
    std::optional<TcpRelay> tcp_relay_;
    std::unique_ptr<Forwards> forwards_;
    std::vector<Received> waiting_;  ///< Forwards that came before the link.
    std::map<std::uint64_t, Forwards::Id> numbers_;
    std::unique_ptr<Stack> stack_;
    std::optional<Routed> routed_;
    Link link_;
    Fd sandbox_;
    std::vector<pollfd> fds_;
    std::array<std::uint8_t, largest_frame> frame_;
    bool is_building_ = false;
    bool is_connected_ = false;
    bool channel_ended_ = false;
};

void tell(const Error& error)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(Answer::failed));
    pack(out, error.message());
    ::send(helper_channel, out.data(), out.size(), MSG_NOSIGNAL);
}

}  // namespace

int run_helper()
{
    // libslirp's buffers, 256 KiB a connection, are given back when it ends, and cost no more than what
    // was in them.
    ::mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    ::signal(SIGPIPE, SIG_IGN);  // libslirp writes to sockets whose peers have gone.
    const auto helper = std::make_unique<Helper>();
    const Result<bool> begun = helper->begin();
    if (!begun) {
        tell(begun.error());
        return 1;
    }
    if (!*begun)
        return 0;
    const Result<> end = helper->run();
    if (!end)
        tell(end.error());
    helper->end();
    ::_exit(end ? 0 : 1);
}

}  // namespace nsbox::net::user
