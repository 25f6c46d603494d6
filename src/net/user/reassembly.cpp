#include "net/user/reassembly.hpp"

#include <algorithm>

namespace nsbox::net::user {

namespace {

constexpr std::size_t ipv4_header = 20;
constexpr std::size_t most_data = 65535 - ipv4_header;
constexpr std::size_t most_pending = 32;
constexpr std::size_t most_parts = 256;
constexpr std::chrono::seconds patience{15};

std::uint16_t read16(Bytes bytes, std::size_t at)
{
    return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

}  // namespace

Reassembly::Place Reassembly::find(const Packet& part, std::uint16_t id, Clock::time_point now)
{
    while (!pending_.empty() && pending_.front().until <= now)
        pending_.pop_front();
    const auto it = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& other) {
        return other.id == id && other.protocol == part.protocol && other.source == part.source &&
               other.destination == part.destination;
    });
    if (it != pending_.end())
        return it;
    if (pending_.size() >= most_pending)
        pending_.pop_front();
    Pending fresh;
    fresh.source = part.source;
    fresh.destination = part.destination;
    fresh.protocol = part.protocol;
    fresh.id = id;
    fresh.until = now + patience;
    return pending_.insert(pending_.end(), std::move(fresh));
}

bool Reassembly::fits(const Pending& pending, const Range& range, bool is_last)
{
    if (pending.ranges.size() >= most_parts)
        return false;
    if (pending.total != 0 && (is_last ? range.to != pending.total : range.to > pending.total))
        return false;
    return std::none_of(pending.ranges.begin(), pending.ranges.end(), [&](const Range& other) {
        return (range.from < other.to && other.from < range.to) || (is_last && other.to > range.to);
    });
}

std::optional<std::vector<std::uint8_t>> Reassembly::add(Bytes frame, const Packet& part,
                                                         Clock::time_point now)
{
    const std::uint16_t word = read16(frame, ethernet_size + 6);
    const bool is_last = (word & 0x2000) == 0;
    const std::size_t from = (word & 0x1fff) * std::size_t{8};
    const Bytes data = frame.subspan(part.transport, part.end - part.transport);
    const Range range{from, from + data.size()};
    // Options would have to be taken from the first part; nobody sends any.
    const bool has_options = part.transport != ethernet_size + ipv4_header;
    if (has_options || data.empty() || range.to > most_data || (!is_last && data.size() % 8 != 0))
        return std::nullopt;
    const Place place = find(part, read16(frame, ethernet_size + 4), now);
    Pending& pending = *place;
    if (!fits(pending, range, is_last)) {
        pending_.erase(place);
        return std::nullopt;
    }
    if (is_last)
        pending.total = range.to;
    if (from == 0)
        pending.head.assign(frame.begin(),
                            frame.begin() + static_cast<std::ptrdiff_t>(part.transport));
    if (pending.data.size() < range.to)
        pending.data.resize(range.to);
    std::copy(data.begin(), data.end(), pending.data.begin() + static_cast<std::ptrdiff_t>(from));
    pending.ranges.push_back(range);
    pending.have += data.size();
    if (pending.total == 0 || pending.have != pending.total)
        return std::nullopt;
    std::vector<std::uint8_t> whole = std::move(pending.head);
    whole.insert(whole.end(), pending.data.begin(), pending.data.end());
    pending_.erase(place);
    finish_ipv4(whole);
    return whole;
}

}  // namespace nsbox::net::user
