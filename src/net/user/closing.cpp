#include "net/user/closing.hpp"

#include <algorithm>

namespace nsbox::net::user {

namespace {

constexpr std::chrono::milliseconds interval{500};
/// Connections that are closed half for longer are libslirp's to end.
constexpr std::chrono::seconds patience{60};
constexpr std::size_t most_flows = 16384;
constexpr std::size_t tcp_header = 20;

struct Segment {
    std::uint32_t sequence = 0;
    std::uint32_t ack = 0;
    std::uint32_t end = 0;  ///< The sequence number behind it.
    std::uint8_t flags = 0;

    bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
};

constexpr std::uint8_t flag_fin = 1;
constexpr std::uint8_t flag_syn = 2;
constexpr std::uint8_t flag_rst = 4;
constexpr std::uint8_t flag_ack = 16;

std::uint32_t read32(Bytes bytes, std::size_t at)
{
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i)
        value = value << 8 | bytes[at + i];
    return value;
}

std::optional<Segment> read_segment(Bytes frame, const Packet& packet)
{
    if (packet.kind != Kind::ip || packet.protocol != protocol_tcp || !packet.has_ports ||
        packet.is_fragment || packet.end - packet.transport < tcp_header)
        return std::nullopt;
    const Bytes tcp = frame.subspan(packet.transport, packet.end - packet.transport);
    const std::size_t header = static_cast<std::size_t>(tcp[12] >> 4) * 4;
    if (header < tcp_header || header > tcp.size())
        return std::nullopt;
    Segment segment;
    segment.sequence = read32(tcp, 4);
    segment.ack = read32(tcp, 8);
    segment.flags = tcp[13];
    segment.end = segment.sequence + static_cast<std::uint32_t>(tcp.size() - header) +
                  (segment.has(flag_fin) ? 1 : 0);
    return segment;
}

}  // namespace

void Closing::sent(Bytes frame, Clock::time_point now)
{
    const Packet packet = parse(frame);
    const std::optional<Segment> segment = read_segment(frame, packet);
    if (!segment || (flows_.empty() && !segment->has(flag_fin)))
        return;
    const Key key{packet.destination.bytes, packet.source.bytes, packet.destination_port,
                  packet.source_port};
    auto found = flows_.find(key);
    if (found == flows_.end() && segment->has(flag_fin) && flows_.size() < most_flows)
        found = flows_.emplace(key, Flow{}).first;
    if (found == flows_.end())
        return;
    Flow& flow = found->second;
    if (segment->has(flag_rst)) {
        flows_.erase(found);
        return;
    }
    if (segment->has(flag_fin))
        flow.outer_end = segment->end;
    flow.outer_ack = segment->ack;
    std::copy_n(frame.begin(), flow.ethernet.size(), flow.ethernet.begin());
    flow.packet = packet;
    settle(found, now);
}

void Closing::taken(Bytes frame, Clock::time_point now)
{
    const Packet packet = parse(frame);
    const std::optional<Segment> segment = read_segment(frame, packet);
    if (!segment || (flows_.empty() && !segment->has(flag_fin)))
        return;
    const Key key{packet.source.bytes, packet.destination.bytes, packet.source_port,
                  packet.destination_port};
    auto found = flows_.find(key);
    if (found == flows_.end() && segment->has(flag_fin) && flows_.size() < most_flows) {
        found = flows_.emplace(key, Flow{}).first;
        found->second.inside_first = true;
    }
    if (found == flows_.end())
        return;
    if (segment->has(flag_rst) || segment->has(flag_syn)) {
        flows_.erase(found);  // It is over, or another one has its ports.
        return;
    }
    Flow& flow = found->second;
    if (segment->has(flag_fin))
        flow.inner_end = segment->end;
    if (segment->has(flag_ack))
        flow.inner_ack = segment->ack;
    settle(found, now);
}

void Closing::settle(std::map<Key, Flow>::iterator found, Clock::time_point now)
{
    Flow& flow = found->second;
    flow.touched = now;
    if (flow.is_over() && flow.inside_first)
        flows_.erase(found);
    else if (!next_)
        next_ = now + interval;
}

std::vector<std::vector<std::uint8_t>> Closing::due(Clock::time_point now,
                                                    const std::function<bool(Ports)>& is_busy)
{
    std::vector<std::vector<std::uint8_t>> resets;
    if (!next_ || *next_ > now)
        return resets;
    for (auto flow = flows_.begin(); flow != flows_.end();) {
        const Flow& it = flow->second;
        const Ports ports{std::get<2>(flow->first), std::get<3>(flow->first)};
        const bool is_old = now - it.touched > patience;
        const bool is_over = it.is_over() && !is_busy(ports);
        if (is_over)
            resets.push_back(tcp_reset(it.ethernet, it.packet, *it.inner_end));
        flow = is_over || is_old ? flows_.erase(flow) : std::next(flow);
    }
    next_ = flows_.empty() ? std::nullopt : std::optional{now + interval};
    return resets;
}

}  // namespace nsbox::net::user
