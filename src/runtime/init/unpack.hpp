#pragma once

#include "runtime/command.hpp"
#include "runtime/packet.hpp"

namespace nsbox::runtime::init {

/// A private copy of the packet in the file, which is closed; null where it is none.
PacketHeader* map_packet(int fd) noexcept;

/// The packet that is in these bytes, which belong to this process; null where it is none.
PacketHeader* packet_in(char* bytes, std::size_t size) noexcept;

/// The command in it. What it points at lies in the packet.
Command unpack(PacketHeader* packet) noexcept;

}  // namespace nsbox::runtime::init
