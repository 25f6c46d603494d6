#pragma once

#include "net/user/packet.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace nsbox::net::user {

/// libslirp keeps a connection whose outer end closed first for ten seconds after all is over
/// (TIME-WAIT, RFC 9293, 3.6), with its descriptor, its buffers and a place in the list that it walks for
/// every frame: a client of a server that closes, in a loop, has thousands of them. On a link that loses
/// and repeats nothing they wait for nobody. This finds out which have come that far, by the frames, and
/// makes the resets that end them. One thread.
class Closing {
public:
    using Clock = std::chrono::steady_clock;
    /// A connection, by the ports of the sandbox and of the other end.
    using Ports = std::pair<std::uint16_t, std::uint16_t>;

    /// A frame for the sandbox.
    void sent(Bytes frame, Clock::time_point now);
    /// A frame of the sandbox's, before libslirp gets it.
    void taken(Bytes frame, Clock::time_point now);

    /// When due() is to be called.
    std::optional<Clock::time_point> deadline() const { return next_; }
    /// Frames that libslirp is to get, each a reset in the sandbox's name. Those of which `is_busy` says
    /// that something is left to be done come later.
    std::vector<std::vector<std::uint8_t>> due(Clock::time_point now,
                                               const std::function<bool(Ports)>& is_busy);

    std::size_t size() const noexcept { return flows_.size(); }

private:
    struct Flow {
        bool inside_first = false;  ///< The sandbox closed first: libslirp forgets it by itself.
        std::optional<std::uint32_t> outer_end;  ///< The sequence number behind the outer FIN...
        std::optional<std::uint32_t> inner_end;  ///< ...and behind the sandbox's.
        std::uint32_t outer_ack = 0;             ///< What libslirp has acknowledged...
        std::uint32_t inner_ack = 0;             ///< ...and the sandbox.
        std::array<std::uint8_t, ethernet_size> ethernet{};  ///< Of a frame for the sandbox...
        Packet packet;                                       ///< ...and what it was.
        Clock::time_point touched;

        bool is_over() const
        {
            return outer_end && inner_end && outer_ack == *inner_end && inner_ack == *outer_end;
        }
    };
    /// Guest and other end: addresses and ports.
    using Key = std::tuple<std::array<std::uint8_t, 16>, std::array<std::uint8_t, 16>,
                           std::uint16_t, std::uint16_t>;

    void settle(std::map<Key, Flow>::iterator flow, Clock::time_point now);

    std::map<Key, Flow> flows_;
    std::optional<Clock::time_point> next_;
};

}  // namespace nsbox::net::user
