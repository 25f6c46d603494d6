#pragma once

#include "net/user/packet.hpp"

#include <chrono>
#include <list>
#include <optional>
#include <vector>

namespace nsbox::net::user {

/// Puts IPv4 datagrams that come in parts together, so that they are judged as a whole and nothing
/// behind sees a part: RFC 791, 3.2. Parts that overlap make the whole datagram invalid, as
/// RFC 5722 has it for IPv6. Bounded in time, number and size.
class Reassembly {
public:
    using Clock = std::chrono::steady_clock;

    /// Takes a part. The frame of the whole datagram, when this was the last one missing.
    std::optional<std::vector<std::uint8_t>> add(Bytes frame, const Packet& part,
                                                 Clock::time_point now = Clock::now());
    std::size_t size() const noexcept { return pending_.size(); }

private:
    struct Range {
        std::size_t from;
        std::size_t to;
    };
    struct Pending {
        Address source;
        Address destination;
        std::uint8_t protocol = 0;
        std::uint16_t id = 0;
        Clock::time_point until;
        std::vector<std::uint8_t> head;  ///< Ethernet and IP headers of the first part.
        std::vector<std::uint8_t> data;
        std::vector<Range> ranges;
        std::size_t total = 0;  ///< Known from the last part on.
        std::size_t have = 0;
    };
    using Place = std::list<Pending>::iterator;

    Place find(const Packet& part, std::uint16_t id, Clock::time_point now);
    static bool fits(const Pending& pending, const Range& range, bool is_last);

    std::list<Pending> pending_;  ///< The oldest first.
};

}  // namespace nsbox::net::user
