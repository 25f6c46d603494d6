#pragma once

namespace nsbox::runtime::init {

/// What a serving init lives on.
struct Service {
    int channel;     ///< Where commands are asked for. Its end is that of the sandbox...
    int supervisor;  ///< ...as is that of the process that this pidfd is of, if it is none of -1...
    int helper;      ///< ...and of this one.
    int ended;       ///< Of watch_children().
    bool is_filtered;  ///< The filters are in force already.
};

/// A signalfd(2) for ended children, whose signal is blocked; -errno.
int watch_children() noexcept;

/// Starts the commands that are asked for, reaps, and tells each one's end on the socket that came with it,
/// until the sandbox is to end. As process 1, so that everything ends with it.
[[noreturn]] void serve(const Service& service) noexcept;

}  // namespace nsbox::runtime::init
