#pragma once

#include "net/host_socket.hpp"
#include "net/publish.hpp"
#include "net/resolv_conf.hpp"
#include "net/user/protocol.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <vector>

namespace nsbox::net {

/// Has a file removed if this process is killed: a name, in an open folder. A pidfd of the process that
/// does it, a child of this one, to be killed when the file has gone otherwise.
using Guard = std::function<Result<sys::Fd>(const std::string& name, int folder)>;

/// The supervisor's side of a sandbox's network: starts the network helper (a program of its own) and
/// speaks with it. One thread at a time, but for the ports.
class HelperClient {
public:
    /// Starts the program; it gets ready while the sandbox is built. Nothing else than its channel is
    /// open in it.
    static Result<std::unique_ptr<HelperClient>> start(user::HelperConfig config,
                                                       std::vector<PublishedPort> ports,
                                                       Guard guard);
    HelperClient(const HelperClient&) = delete;
    HelperClient& operator=(const HelperClient&) = delete;
    /// Ends the helper unless it follows a sandbox, and waits for that.
    ~HelperClient();

    /// Gives it the sandbox's network namespace.
    Result<> attach(const sys::Fd& network);
    /// Its end is to be that of the process.
    void follow(const sys::Fd& pidfd);
    /// Not any more, until it is told again: the end of that process is another's beginning.
    Result<> unfollow();

    /// Readable when it has something to say.
    int descriptor() const noexcept { return channel_.get(); }
    /// Its pidfd, for those who are to end when it does.
    int process() const noexcept { return process_.get(); }
    /// Takes one message. Why it failed, where it did or has ended.
    Result<> hear();
    bool is_ready() const noexcept { return is_ready_; }
    /// When it is ready.
    const user::LinkReport& link() const noexcept { return link_; }

    const ResolvConf& resolv_conf() const noexcept { return resolv_conf_.now(); }

    // Any thread, also while another is in handle().

    /// With the ports that were taken.
    std::vector<PublishedPort> ports() const;
    /// One more, which works when this returns. What it has become.
    Result<PublishedPort> add_port(PublishedPort port);
    /// The one with the same place on the host; that is free when this returns. What it was.
    Result<PublishedPort> remove_port(const PublishedPort& port);

    // As part of a poll loop, once it is ready.
    void add_to(std::vector<pollfd>& fds);
    /// Milliseconds for poll(2) after which handle() is to be called, or -1.
    int timeout() const;
    /// Why it failed, where it did.
    Result<> handle(const std::vector<pollfd>& fds);

    /// To be called when the sandbox has ended, or is about to: its ports are free afterwards. Waits
    /// two seconds at most.
    void await_end();

    /// The same: the helper has ended and is reaped afterwards. Waits two seconds at most, and kills it then.
    void reap();

    std::vector<int> descriptors() const;

private:
    using Clock = std::chrono::steady_clock;

    /// A published port, and what there is of it on this side.
    struct Door {
        std::uint64_t number = 0;
        PublishedPort port;
        std::optional<HostSocket> socket;  ///< Of a unix_socket.
        std::optional<SocketPlace> place;  ///< Of a host_socket.
        sys::Fd guard;
    };
    /// A connection to a unix socket whose owner is busy.
    struct Attempt {
        std::uint64_t token = 0;
        std::uint64_t number = 0;  ///< Of the door.
        Clock::time_point until;
    };

    explicit HelperClient(Guard guard) : guard_(std::move(guard)) {}
    Result<> execute(sys::Fd theirs);
    Result<> say(const std::string& bytes, const std::vector<int>& descriptors = {});
    Result<> ask(const std::string& bytes, std::vector<int> descriptors);
    Result<Door> open_door(PublishedPort port, std::vector<sys::Fd>& sockets);
    static void close_door(Door& door);

    void connect(std::uint64_t number, std::uint64_t token);
    bool attempt(const Attempt& what);
    void renew(std::uint64_t number, std::uint64_t token);
    void answer(user::Order order, std::uint64_t token, const sys::Fd& socket);

    Guard guard_;
    sys::Fd channel_;
    sys::Fd process_;
    HostResolvConf resolv_conf_;
    mutable std::mutex mutex_;  ///< Of the doors, and of closing the channel.
    std::vector<Door> doors_;
    std::uint64_t next_ = 1;
    std::vector<Attempt> attempts_;
    std::size_t at_ = 0;
    bool is_ready_ = false;
    bool is_following_ = false;
    user::LinkReport link_;
};

}  // namespace nsbox::net
