#pragma once

#include "net/helper_client.hpp"
#include "nsbox/remote.hpp"
#include "runtime/recipe.hpp"
#include "runtime/registry.hpp"

#include <memory>
#include <poll.h>
#include <string>
#include <vector>

namespace nsbox::runtime {

// The control socket of a sandbox: SOCK_SEQPACKET, one request and one answer a connection. Who
// connects is known by SO_PEERCRED (unix(7)); the folder lets nobody else come that far.

enum class Ask : std::uint64_t {
    describe = 1,
    signal,
    kill,
    wait,
    ports,
    add_port,
    remove_port,
};

/// The supervisor's side, part of its poll loop.
class Control {
public:
    /// What a client asked the supervisor to do.
    struct Orders {
        bool end = false;
        std::vector<int> signals;
        std::vector<PublishedPort> added;    ///< Was done already.
        std::vector<PublishedPort> removed;  ///< Likewise.
    };

    /// The socket appears with this. `child` and `network`, which may be null, are borrowed.
    static Result<std::unique_ptr<Control>> open(Registry registry, SandboxInfo info,
                                                 const Recipe& recipe, const sys::Fd& child,
                                                 net::HelperClient* network);
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;
    ~Control();

    void add_to(std::vector<pollfd>& fds);
    Orders handle(const std::vector<pollfd>& fds);
    /// Removes the socket, and tells those who wait, be it that nobody has heard them yet.
    void finish(const ExitStatus& status);

    std::vector<int> descriptors() const;

private:
    struct Client {
        sys::Fd fd;
        bool waits = false;
    };

    Control() = default;
    void remove_socket();
    void accept_one();
    bool answer(Client& client, Orders& orders);
    void tell_end(Client& client, const std::string& how);
    std::string answer_about_ports(Ask what, const std::string& text, Orders& orders) const;

    Registry registry_;
    SandboxInfo info_;
    std::string key_;
    bool is_bound_ = false;
    sys::Fd janitor_;  ///< A pidfd of the process that removes the socket if this one is killed.
    sys::Fd listener_;
    sys::Fd recipe_;  ///< In a memfd: it may be larger than a message.
    int child_ = -1;
    net::HelperClient* network_ = nullptr;
    std::vector<Client> clients_;
    std::size_t at_ = 0;     ///< Where ours begin in the list of add_to()...
    std::size_t count_ = 0;  ///< ...and how many clients it has.
};

/// There are no ports to publish without a user-mode network.
tl::unexpected<Error> refuse_ports();

/// What a sandbox's socket is called in the folder: by its name, which bind(2) gives out only once,
/// or by its id if it has none.
std::string registry_key(const SandboxInfo& info);

// The other side; `key` is such a name.

/// A sandbox, and what is needed to enter it.
struct Known {
    SandboxInfo info;
    sys::Fd child;   ///< A pidfd of its init or command.
    sys::Fd recipe;  ///< For read_recipe().
};

/// What a sandbox says about itself. ECONNREFUSED where its supervisor is dead, EAGAIN where it is
/// stopped.
Result<Known> describe_sandbox(const Registry& registry, const std::string& key);
Result<Recipe> read_recipe(const sys::Fd& recipe);

Result<> order(const Registry& registry, const std::string& key, Ask what, int signal);
/// The ports, or the one that was added.
Result<std::vector<PublishedPort>> order_ports(const Registry& registry, const std::string& key,
                                               Ask what, const PublishedPort& port);
Result<ExitStatus> wait_for_sandbox(const Registry& registry, const std::string& key);

}  // namespace nsbox::runtime
