#pragma once

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

enum class Ask : std::uint64_t { describe = 1, signal, kill, wait };

/// The supervisor's side, part of its poll loop.
class Control {
public:
    /// What a client asked the supervisor to do.
    struct Orders {
        bool end = false;
        std::vector<int> signals;
    };

    /// The socket appears with this. `child` is borrowed.
    static Result<std::unique_ptr<Control>> open(Registry registry, SandboxInfo info,
                                                 const Recipe& recipe, const sys::Fd& child);
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;
    ~Control();

    void add_to(std::vector<pollfd>& fds);
    Orders handle(const std::vector<pollfd>& fds);
    /// Tells those who wait, and removes the socket.
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

    Registry registry_;
    SandboxInfo info_;
    std::string key_;
    bool is_bound_ = false;
    sys::Fd janitor_;  ///< A pidfd of the process that removes the socket if this one is killed.
    sys::Fd listener_;
    sys::Fd recipe_;  ///< In a memfd: it may be larger than a message.
    int child_ = -1;
    std::vector<Client> clients_;
    std::size_t at_ = 0;     ///< Where ours begin in the list of add_to()...
    std::size_t count_ = 0;  ///< ...and how many clients it has.
};

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
Result<ExitStatus> wait_for_sandbox(const Registry& registry, const std::string& key);

}  // namespace nsbox::runtime
