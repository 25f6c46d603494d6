#pragma once

#include "net/user/address.hpp"
#include "net/user/packet.hpp"

#include <cstdint>
#include <list>
#include <span>
#include <vector>

namespace nsbox::net::user {

/// Lets TCP connections to the name server's address lead to a name server of the host's: the address
/// in each frame is replaced before libslirp sees it, and put back in what comes from there. A
/// connection keeps its server when the host gets others. Nothing but port 53 of a server that the host
/// names can be reached this way. Pure, but for the connections that it remembers. See RFC 7766.
class NameStreams {
public:
    static constexpr std::size_t most_connections = 512;

    /// As the host's resolv.conf names them: the first one of a family that can be used is for the
    /// address of that family.
    void set_servers(const std::vector<SocketAddress>& servers);

    /// A frame from the sandbox with a TCP segment to the name server's port, as libslirp is to see it;
    /// empty where the host has no server of that family, or the connection is not known.
    std::vector<std::uint8_t> outward(Bytes frame, const Packet& packet);

    /// A frame that goes to libslirp as it is: a connection that it begins takes its port away from one
    /// that had the same server by the other address.
    void pass(Bytes frame, const Packet& packet);

    /// A frame from libslirp, as the sandbox is to see it; empty where it has to stay as it is.
    std::vector<std::uint8_t> inward(Bytes frame);

    std::size_t connections() const noexcept { return flows_.size(); }

private:
    struct Flow {
        Address guest;
        std::uint16_t port = 0;
        std::uint32_t sequence = 0;  ///< Of the segment that began it.
        Address server;
    };
    using Flows = std::list<Flow>;

    Flows::iterator find(const Address& guest, std::uint16_t port);

    std::vector<Address> servers_;  ///< One of a family at most.
    Flows flows_;                   ///< The one that was used last comes first.
};

/// Puts another address of the same family in place of the destination (or the source) of a TCP packet
/// and corrects its checksums as RFC 1624 does: one that was wrong stays wrong.
void replace_destination(std::span<std::uint8_t> frame, const Packet& packet, const Address& with);
void replace_source(std::span<std::uint8_t> frame, const Packet& packet, const Address& with);

}  // namespace nsbox::net::user
