#pragma once

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace nsbox::net::user {

/// Carries the bytes of pairs of stream sockets both ways, with half-close and reset, for thousands
/// of pairs in one thread.
///
/// Bytes are looked at (MSG_PEEK), sent on and only then taken out of the first socket's queue, as
/// many as the second one took. So nothing is ever kept here: what the slower side does not take
/// stays in the kernel's queues, which are bounded, and one buffer serves all pairs. This is faster
/// than splice(2) over loopback, whose pages the reader then finds outside its cache, and needs no
/// pipes.
///
/// Never raises SIGPIPE. Urgent data (MSG_OOB) is dropped. After create() the only system calls are
/// epoll_ctl, epoll_wait, recvfrom, sendto, shutdown, getsockopt, setsockopt, fcntl (F_GETFL,
/// F_SETFL), read and write (of its own eventfd) and close.
class StreamRelay {
public:
    static Result<std::unique_ptr<StreamRelay>> create();
    StreamRelay(const StreamRelay&) = delete;
    StreamRelay& operator=(const StreamRelay&) = delete;
    /// Resets all pairs.
    ~StreamRelay();

    /// Readable (POLLIN) while there is something to do; handle() does it. Stays owned here.
    int descriptor() const noexcept { return epoll_.get(); }
    /// Does a bounded amount of work for each pair that has some and never waits.
    void handle();

    /// Takes over two stream sockets, TCP or unix, each of which may still be connecting. No other
    /// descriptor of them may stay open anywhere. If one cannot connect, or fails later, the other
    /// one is reset; once both have ended and everything is delivered, both are closed.
    void join(sys::Fd one, sys::Fd other);

    /// How many pairs there are.
    std::size_t size() const noexcept { return pairs_.size() - free_.size(); }

private:
    struct End {
        sys::Fd socket;
        std::size_t chunk = 0;  ///< How many bytes to read at once.
        bool is_tcp = false;
        bool readable = false;
        bool writable = false;
        bool ending = false;  ///< The end may follow what is still to read.
        bool urgent = false;  ///< There was urgent data: it makes for short reads.
        bool failed = false;
        bool ended = false;  ///< Everything up to the end is passed on.
    };
    struct Pair {
        End ends[2];
        bool queued = false;
    };
    enum class Moved { waits, more, failed };

    StreamRelay() = default;
    void note(std::uint64_t which, std::uint32_t events);
    void enqueue(std::size_t slot);
    void serve(std::size_t slot);
    Moved move(End& from, End& to);
    Moved move_once(End& from, End& to, std::size_t& budget);
    bool take(const End& from, std::size_t count);
    void drop(std::size_t slot, bool with_reset);
    void wake(bool on);

    sys::Fd epoll_;
    sys::Fd again_;  ///< An eventfd that is readable while the queue is not empty.
    bool is_awake_ = false;
    std::vector<char> buffer_;
    std::vector<std::unique_ptr<Pair>> pairs_;  ///< By slot; the numbers in free_ have none.
    std::vector<std::size_t> free_;
    std::deque<std::size_t> queue_;  ///< Slots with something to do.
};

}  // namespace nsbox::net::user
