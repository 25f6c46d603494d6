#pragma once

#include "net/publish.hpp"
#include "net/resolv_conf.hpp"
#include "net/user/protocol.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <memory>
#include <poll.h>
#include <vector>

namespace nsbox::net {

/// The supervisor's side of a sandbox's network: starts the network helper (a program of its own) and
/// speaks with it. One thread at a time.
class HelperClient {
public:
    /// Starts the program; it gets ready while the sandbox is built. Nothing else than its channel is
    /// open in it.
    static Result<std::unique_ptr<HelperClient>> start(user::HelperConfig config,
                                                       std::vector<Published> ports);
    HelperClient(const HelperClient&) = delete;
    HelperClient& operator=(const HelperClient&) = delete;
    /// Ends the helper unless it follows a sandbox, and waits for that.
    ~HelperClient();

    /// Gives it the sandbox's network namespace.
    Result<> attach(const sys::Fd& network);
    /// Its end is to be that of the process.
    void follow(const sys::Fd& pidfd);

    /// Readable when it has something to say.
    int descriptor() const noexcept { return channel_.get(); }
    /// Takes one message. Why it failed, where it did or has ended.
    Result<> hear();
    bool is_ready() const noexcept { return is_ready_; }
    /// When it is ready.
    const user::LinkReport& link() const noexcept { return link_; }

    const ResolvConf& resolv_conf() const noexcept { return resolv_conf_.now(); }
    /// With the ports that were taken.
    const std::vector<Published>& ports() const noexcept { return ports_; }

    // As part of a poll loop, once it is ready.
    void add_to(std::vector<pollfd>& fds);
    /// Why it failed, where it did.
    Result<> handle(const std::vector<pollfd>& fds);

    /// To be called when the sandbox has ended, or is about to: its ports are free afterwards. Waits
    /// two seconds at most.
    void await_end();

    std::vector<int> descriptors() const;

private:
    HelperClient() = default;
    Result<> execute(sys::Fd theirs);
    Result<> say(const std::string& bytes);
    Result<> say_with(const std::string& bytes, const sys::Fd& descriptor);

    sys::Fd channel_;
    sys::Fd process_;
    HostResolvConf resolv_conf_;
    std::vector<Published> ports_;
    std::size_t at_ = 0;
    bool is_ready_ = false;
    bool is_following_ = false;
    user::LinkReport link_;
};

}  // namespace nsbox::net
