#pragma once

#include "net/user/forwards.hpp"
#include "net/user/stream_relay.hpp"
#include "tests/kernel/support/child.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace nsbox::tests {

/// Two network namespaces with nothing but a loopback interface each: the calling thread stays in
/// the one that plays the host. For a process of its own with user and mount namespaces.
class Lab : public net::user::InsideSockets {
public:
    Lab();

    sys::Fd make(int family, int type, int protocol) override;
    /// Runs something in the namespace that plays the sandbox's.
    void inside(const std::function<void()>& body) const;
    /// Whether it has what the kernel calls sock_diag(7); false: as if the module was missing.
    std::atomic<bool> has_diag = true;
    std::atomic<int> made = 0;  ///< How many sockets were made inside.

private:
    sys::Fd outer_;
    sys::Fd inner_;
};

/// Connects by path, at once or when told to.
class PathConnector : public net::user::UnixConnector {
public:
    void connect(std::uint64_t number, std::uint64_t token) override;
    bool renew(std::uint64_t number, std::uint64_t token) override;

    net::user::Forwards* forwards = nullptr;
    std::vector<std::string> paths;  ///< By number.
    bool can_renew = true;
    bool answers = true;
    std::vector<std::uint64_t> unanswered;
    std::vector<std::pair<unsigned, std::uint64_t>> to_renew;
};

/// A relay with forwards in a thread of its own: what the network program is.
class Engine {
public:
    explicit Engine(Lab& lab, const net::user::ForwardLimits& limits = {});
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine();

    /// Runs something in the engine's thread and waits for its end.
    void run(const std::function<void()>& body);
    void join(sys::Fd one, sys::Fd other);
    /// The id, or 0 and the reason in `error`.
    net::user::Forwards::Id add(net::user::Forward forward);
    bool remove(net::user::Forwards::Id id);
    std::size_t pairs();
    std::size_t flows();
    /// Waits until the relay has so many pairs.
    bool comes_to_pairs(std::size_t count);
    long turns() const { return turns_; }
    /// How often the engine was woken in most of a second in which nobody does anything.
    long turns_at_rest() const;

    PathConnector connector;
    Error error;

private:
    void loop();

    std::unique_ptr<net::user::StreamRelay> relay_;
    std::unique_ptr<net::user::Forwards> forwards_;
    sys::Fd wake_;
    std::mutex mutex_;
    std::condition_variable done_;
    std::function<void()> task_;
    bool ends_ = false;
    std::atomic<long> turns_ = 0;
    std::thread thread_;
};

net::user::SocketAddress address_of(const std::string& host, std::uint16_t port);
net::user::SocketAddress unix_address(const std::string& path);

/// Blocking sockets of the calling thread's namespace; operations on them give up after a while.
sys::Fd bound(const net::user::SocketAddress& address, int type = SOCK_STREAM);
sys::Fd listening(const net::user::SocketAddress& address);
/// error() is -errno of connect(2).
sys::Fd connected_to(const net::user::SocketAddress& address, int type = SOCK_STREAM);
sys::Fd accepted(const sys::Fd& listener);
/// "connected" or the errno's name.
std::string attempt(const net::user::SocketAddress& address);
/// Tries again until attempt() gives that answer; else the last answer.
std::string becomes(const net::user::SocketAddress& address, const std::string& answer);

/// The two ends of a connection over loopback: the first one was connected.
struct Ends {
    sys::Fd one;
    sys::Fd other;
};
Ends tcp_ends(const std::string& host = "127.0.0.1");
Ends unix_ends();

bool send_all(const sys::Fd& socket, const std::string& bytes);
/// So many bytes, fewer at an end or an error.
std::string receive_exactly(const sys::Fd& socket, std::size_t count);
/// "end", "data" or the errno's name.
std::string next_of(const sys::Fd& socket);
void close_with_reset(sys::Fd socket);

/// Sends `total` bytes of a sequence in random portions, then ends its direction.
bool send_sequence(const sys::Fd& socket, std::size_t total, std::uint64_t seed);
/// Reads until the end in random portions; "good" or what was wrong.
std::string check_sequence(const sys::Fd& socket, std::size_t total, std::uint64_t seed);
/// Sequences both ways at once between two sockets; "good" or what was wrong.
std::string exchange(const sys::Fd& one, const sys::Fd& other, std::size_t total);

std::size_t open_descriptors();
/// Waits for a state; false: it did not come within a generous time.
bool eventually(const std::function<bool()>& state);

/// Runs `body` in a process with a lab of its own.
Ended in_lab(const std::function<void(Say&, Lab&)>& body);

}  // namespace nsbox::tests
