#pragma once

#include "net/user/closing.hpp"
#include "net/user/packet.hpp"
#include "sys/error.hpp"

#include <functional>
#include <list>
#include <memory>
#include <poll.h>
#include <vector>

struct Slirp;

namespace nsbox::net::user {

/// libslirp as part of a poll loop: TCP/IP for frames. One thread.
class Stack {
public:
    using SendFrame = std::function<void(Bytes)>;

    struct Wish {
        std::size_t mtu = 0;
        bool ipv6 = true;
        bool host_loopback = false;
    };

    /// `send` gets the frames for the sandbox.
    static Result<std::unique_ptr<Stack>> create(const Wish& wish, SendFrame send);
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    ~Stack();

    /// Before poll(2): adds what libslirp waits for; milliseconds, or -1.
    int add_to(std::vector<pollfd>& fds);
    /// After it.
    void handle(const std::vector<pollfd>& fds);
    void input(Bytes frame);

private:
    struct Callbacks;
    struct Timer {
        int id;
        void* argument;
        std::int64_t at;  ///< Milliseconds; negative: not set.
    };

    Stack(SendFrame send) : send_(std::move(send)) {}
    void send(Bytes frame);
    void run_timers();

    void forget_what_is_over();

    SendFrame send_;
    Closing closing_;
    Slirp* slirp_ = nullptr;
    std::vector<pollfd>* filling_ = nullptr;
    const std::vector<pollfd>* handling_ = nullptr;
    std::list<Timer> timers_;
};

}  // namespace nsbox::net::user
