#include "runtime/control.hpp"

#include "runtime/clear_up.hpp"
#include "runtime/supervise.hpp"
#include "sys/packing.hpp"
#include "sys/pass.hpp"
#include "sys/process.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

using sys::pack;
using sys::Unpacker;

namespace raw = sys::raw;
using sys::Fd;

constexpr std::size_t most_clients = 128;
constexpr std::size_t most_words = 64;
constexpr std::size_t largest_answer = 65536;
constexpr std::size_t largest_request = 8192;  // With two paths.

sockaddr_un address_of(const std::string& path)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
    return address;
}

Fd make_socket(int flags)
{
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    return Fd{fd < 0 ? -errno : fd};
}

bool send_text(int fd, const std::string& text)
{
    return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(text.size());
}

std::string describe(const SandboxInfo& info)
{
    std::string out;
    pack(out, info.id);
    pack(out, info.name);
    for (const pid_t pid : {info.supervisor, info.child, info.command})
        pack(out, static_cast<std::uint64_t>(pid));
    pack(out, static_cast<std::uint64_t>(info.started));
    // A list to be looked at: what is too long for it is cut.
    const std::size_t words = std::min(info.words.size(), most_words);
    pack(out, words);
    for (std::size_t i = 0; i < words; ++i)
        pack(out, info.words[i].substr(0, 256));
    return out;
}

SandboxInfo read_description(const std::string& bytes)
{
    Unpacker from{bytes};
    SandboxInfo info;
    info.id = from.text();
    info.name = from.text();
    for (pid_t* const pid : {&info.supervisor, &info.child, &info.command})
        *pid = static_cast<pid_t>(from.number());
    info.started = static_cast<std::int64_t>(from.number());
    for (std::uint64_t left = from.count(); left > 0; --left)
        info.words.push_back(from.text());
    if (!from.is_done())
        info.id.clear();
    return info;
}

void pack_port(std::string& out, const PublishedPort& port)
{
    pack(out, static_cast<std::uint64_t>(port.kind));
    pack(out, port.path);
    pack(out, port.address);
    pack(out, std::uint64_t{port.outside});
    pack(out, std::uint64_t{port.inside});
    pack(out, std::uint64_t{port.to_loopback});
}

PublishedPort read_port(Unpacker& from)
{
    PublishedPort port;
    port.kind = static_cast<PublishedPort::Kind>(from.number());
    port.path = from.text();
    port.address = from.text();
    port.outside = static_cast<std::uint16_t>(from.number());
    port.inside = static_cast<std::uint16_t>(from.number());
    port.to_loopback = from.number() != 0;
    return port;
}

std::string pack_ports(const Result<std::vector<PublishedPort>>& ports)
{
    std::string out;
    pack(out, ports ? std::string{} : ports.error().message());
    pack(out, ports ? ports->size() : 0);
    if (ports)
        for (const PublishedPort& port : *ports)
            pack_port(out, port);
    return out;
}

std::string pack_status(const ExitStatus& status)
{
    std::string out;
    pack(out, static_cast<std::uint64_t>(status.code));
    pack(out, static_cast<std::uint64_t>(status.signal));
    pack(out, static_cast<std::uint64_t>(status.reason));
    pack(out, static_cast<std::uint64_t>(status.usage.user.count()));
    pack(out, static_cast<std::uint64_t>(status.usage.system.count()));
    pack(out, status.usage.max_rss_kib);
    return out;
}

/// The id of the mount that a process sees first, which no process of another mount namespace has.
/// Unlike the namespace's own file in /proc it can be read without rights over the process. See
/// proc(5), mountinfo.
std::string first_mount(const std::string& process)
{
    const std::string path = "/proc/" + process + "/mountinfo";
    const Fd file{raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    char text[32];
    const long got = file ? raw::read(file.get(), text, sizeof text) : -1;
    const std::string start(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    return start.substr(0, start.find(' '));
}

/// Whether a process is none of a sandbox, all of which have mount namespaces of their own: what
/// runs inside has this user's id, and may see the socket where its folder is bound.
bool is_outside(int client, pid_t pid)
{
    constexpr int so_peerpidfd = 77;  // SO_PEERPIDFD, Linux 6.5.
    int number = -1;
    socklen_t size = sizeof number;
    const bool has_pidfd = ::getsockopt(client, SOL_SOCKET, so_peerpidfd, &number, &size) == 0;
    const Fd pidfd{has_pidfd ? number : -EBADF};
    const std::string ours = first_mount("self");
    if (pid <= 0 || ours.empty() || first_mount(std::to_string(pid)) != ours)
        return false;
    // The number may have been given to someone else before it was looked up.
    return !has_pidfd || raw::pidfd_send_signal(pidfd.get(), 0) == 0;
}

/// The one at the other end of a connection: a client, or the process that listens (unix(7),
/// SO_PEERCRED).
bool is_trusted(int client)
{
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == ::geteuid() && is_outside(client, peer.pid);
}

}  // namespace

std::string registry_key(const SandboxInfo& info)
{
    return info.name.empty() ? info.id : info.name;
}

Result<std::unique_ptr<Control>> Control::open(Registry registry, SandboxInfo info,
                                               const Recipe& recipe, const Fd& child,
                                               net::HelperClient* network)
{
    std::unique_ptr<Control> control{new Control};
    control->network_ = network;
    control->child_ = child.get();
    const std::string bytes = encode(recipe);
    control->recipe_ =
        Fd{static_cast<int>(raw::call(SYS_memfd_create, "recipe", 1U /* MFD_CLOEXEC */))};
    if (!control->recipe_)
        return fail("memfd_create", -control->recipe_.error(), "recipe");
    for (std::size_t done = 0; done < bytes.size();) {
        const long put =
            raw::write(control->recipe_.get(), bytes.data() + done, bytes.size() - done);
        if (put < 0 && put != -EINTR)
            return fail("write", static_cast<int>(-put), "recipe");
        done += put > 0 ? static_cast<std::size_t>(put) : 0;
    }
    control->listener_ = make_socket(SOCK_NONBLOCK);
    if (!control->listener_)
        return fail("socket", -control->listener_.error());
    control->key_ = registry_key(info);
    const sockaddr_un address = address_of(registry.address(control->key_));
    // Whoever does not let go of it must not keep this one from being known.
    const Fd lock = registry.lock(std::chrono::seconds{1});
    if (::bind(control->listener_.get(), reinterpret_cast<const sockaddr*>(&address),
               sizeof address) < 0 ||
        ::listen(control->listener_.get(), SOMAXCONN) < 0)
        return fail("Can't make the control socket", errno,
                    registry.path + "/" + socket_name(control->key_),
                    errno == EADDRINUSE ? "another sandbox has taken the name meanwhile" : "");
    control->is_bound_ = true;
    control->registry_ = std::move(registry);
    control->info_ = std::move(info);
    control->janitor_ = TRY(start_clear_up(
        {socket_name(control->key_), control->registry_.folder.get(), -1, false, {}, true}));
    return control;
}

Control::~Control()
{
    remove_socket();
}

void Control::remove_socket()
{
    if (is_bound_)
        registry_.remove(key_);
    is_bound_ = false;
    sys::end_process(janitor_);
}

std::vector<int> Control::descriptors() const
{
    return {registry_.folder.get(), listener_.get(), recipe_.get(), janitor_.get()};
}

void Control::add_to(std::vector<pollfd>& fds)
{
    at_ = fds.size();
    count_ = clients_.size();
    fds.push_back({listener_.get(), POLLIN, 0});
    for (const Client& client : clients_)
        fds.push_back({client.fd.get(), POLLIN, 0});
}

Control::Orders Control::handle(const std::vector<pollfd>& fds)
{
    Orders orders;
    for (std::size_t i = 0; i < count_; ++i)
        if (fds[at_ + 1 + i].revents != 0 && !answer(clients_[i], orders))
            clients_[i].fd.reset();
    clients_.erase(std::remove_if(clients_.begin(), clients_.end(),
                                  [](const Client& client) { return !client.fd; }),
                   clients_.end());
    if (fds[at_].revents != 0)
        accept_one();
    return orders;
}

void Control::accept_one()
{
    Fd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!client || !is_trusted(client.get()))
        return;
    // Someone who only connects must not keep others out.
    if (clients_.size() >= most_clients) {
        const auto idle = std::find_if(clients_.begin(), clients_.end(),
                                       [](const Client& other) { return !other.waits; });
        if (idle == clients_.end())
            return;
        clients_.erase(idle);
    }
    clients_.push_back({std::move(client), false});
}

/// False when the connection is done with.
bool Control::answer(Client& client, Orders& orders)
{
    std::string bytes(largest_request, '\0');
    const ssize_t got = ::recv(client.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && errno == EAGAIN;
    bytes.resize(static_cast<std::size_t>(got));
    Unpacker from{bytes};
    const auto what = static_cast<Ask>(from.number());
    const auto number = static_cast<int>(from.number());
    const bool is_about_ports =
        what == Ask::ports || what == Ask::add_port || what == Ask::remove_port;
    const std::string text = is_about_ports ? from.text() : "";
    if (!from.is_done())
        return false;
    std::string done;
    pack(done, 0U);
    switch (what) {
    case Ask::describe: {
        const std::string out = describe(info_);
        sys::send_with_descriptors(client.fd.get(), out.data(), out.size(), {child_, recipe_.get()},
                                   MSG_DONTWAIT);
        return false;
    }
    case Ask::signal:
        orders.signals.push_back(number);
        send_text(client.fd.get(), done);
        return false;
    case Ask::kill:
        orders.end = true;
        send_text(client.fd.get(), done);
        return false;
    case Ask::wait:
        client.waits = true;
        return true;
    case Ask::ports:
    case Ask::add_port:
    case Ask::remove_port:
        send_text(client.fd.get(), answer_about_ports(what, text, orders));
        return false;
    }
    return false;
}

/// Nothing wrong, and ports; or what is wrong.
std::string Control::answer_about_ports(Ask what, const std::string& text, Orders& orders) const
{
    Unpacker from{text};
    const PublishedPort wish = read_port(from);
    if (network_ == nullptr)
        return pack_ports(Result<std::vector<PublishedPort>>{refuse_ports()});
    if (what == Ask::ports)
        return pack_ports(network_->ports());
    Result<PublishedPort> done =
        what == Ask::add_port ? network_->add_port(wish) : network_->remove_port(wish);
    if (!done)
        return pack_ports(tl::make_unexpected(std::move(done.error())));
    (what == Ask::add_port ? orders.added : orders.removed).push_back(*done);
    return pack_ports(std::vector{*done});
}

/// Answers only who waits for the end: the rest comes too late.
void Control::tell_end(Client& client, const std::string& how)
{
    if (!client.waits) {
        std::string bytes(largest_request, '\0');
        const ssize_t got = ::recv(client.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        Unpacker from{bytes};
        client.waits = static_cast<Ask>(from.number()) == Ask::wait;
    }
    if (client.waits)
        send_text(client.fd.get(), how);
}

void Control::finish(const ExitStatus& status)
{
    remove_socket();
    const std::string how = pack_status(status);
    for (Client& client : clients_)
        tell_end(client, how);
    clients_.clear();
    // Nobody else can come any more, but those who have may not have been heard.
    for (int left = SOMAXCONN; left > 0; --left) {
        Client client{Fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)}, false};
        if (!client.fd)
            break;
        if (is_trusted(client.fd.get()))
            tell_end(client, how);
    }
    listener_.reset();
}

// The other side.

namespace {

/// A supervisor that a shell has stopped could not do what it is asked.
void wake(int connection)
{
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0)
        ::kill(peer.pid, SIGCONT);
}

Result<Fd> ask(const Registry& registry, const std::string& key, Ask what, int number = 0,
               const std::string& text = {})
{
    Fd fd = make_socket(0);
    if (!fd)
        return fail("socket", -fd.error());
    // One whose supervisor is stopped must not hold us up; an end may be waited for.
    const timeval patience{what == Ask::wait ? 0 : 2, 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
        ::setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof patience);
    const sockaddr_un address = address_of(registry.address(key));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return fail("Can't reach the sandbox", errno, key);
    // Where the folder can be written inside a sandbox, someone else may listen under that name.
    if (!is_trusted(fd.get()))
        return refuse("Can't reach the sandbox", key,
                      "another process than its supervisor listens there");
    if (what == Ask::kill)
        wake(fd.get());
    std::string bytes;
    pack(bytes, static_cast<std::uint64_t>(what));
    pack(bytes, static_cast<std::uint64_t>(number));
    bytes += text;
    if (::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
        return fail("Can't reach the sandbox", errno, key);
    return fd;
}

/// The answer; empty where the supervisor ended or refused.
Result<std::string> hear(const Fd& fd, const std::string& key)
{
    std::string bytes(largest_answer, '\0');
    ssize_t got = 0;
    do {
        got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno != ECONNRESET)
        return fail("Can't hear the sandbox", errno, key);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
}

}  // namespace

Result<Known> describe_sandbox(const Registry& registry, const std::string& key)
{
    const Fd fd = TRY(ask(registry, key, Ask::describe));
    std::string bytes(largest_answer, '\0');
    int fds[2];
    const long got = sys::receive_with_descriptors(fd.get(), bytes.data(), bytes.size(), fds);
    Known known;
    known.child = Fd{fds[0]};
    known.recipe = Fd{fds[1]};
    if (got < 0 && got != -ECONNRESET)
        return fail("Can't hear the sandbox", static_cast<int>(-got), key);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    known.info = read_description(bytes);
    // Its socket may have been renamed to another's name.
    if (known.info.id.empty() || registry_key(known.info) != key || !known.child || !known.recipe)
        return refuse("Can't reach the sandbox", key, "it does not answer to this process",
                      "those of another user, or in another mount namespace, are refused");
    return known;
}

Result<Recipe> read_recipe(const Fd& recipe)
{
    std::string bytes;
    std::array<char, 65536> buffer;
    for (;;) {
        const ssize_t count =
            ::pread(recipe.get(), buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
        if (count < 0)
            return fail("read", errno, "recipe");
        if (count == 0)
            return decode(bytes);
        bytes.append(buffer.data(), static_cast<std::size_t>(count));
    }
}

Result<> order(const Registry& registry, const std::string& key, Ask what, int signal)
{
    const Fd fd = TRY(ask(registry, key, what, signal));
    if (TRY(hear(fd, key)).empty())
        return refuse("Can't reach the sandbox", key, "it has ended");
    return {};
}

tl::unexpected<Error> refuse_ports()
{
    return fail("Can't publish a port", ENOTSUP, "a sandbox without --net user");
}

Result<std::vector<PublishedPort>> order_ports(const Registry& registry, const std::string& key,
                                               Ask what, const PublishedPort& port)
{
    std::string packed;
    pack_port(packed, port);
    std::string text;
    pack(text, packed);
    const Fd fd = TRY(ask(registry, key, what, 0, text));
    const std::string bytes = TRY(hear(fd, key));
    Unpacker from{bytes};
    const std::string wrong = from.text();
    std::vector<PublishedPort> ports;
    for (std::uint64_t left = from.count(); left > 0; --left)
        ports.push_back(read_port(from));
    if (!from.is_done())
        return refuse("Can't reach the sandbox", key, "it has ended");
    if (!wrong.empty())
        return refuse("", wrong);
    return ports;
}

Result<ExitStatus> wait_for_sandbox(const Registry& registry, const std::string& key)
{
    const Fd fd = TRY(ask(registry, key, Ask::wait));
    const std::string bytes = TRY(hear(fd, key));
    Unpacker from{bytes};
    ExitStatus status;
    status.code = static_cast<int>(from.number());
    status.signal = static_cast<int>(from.number());
    status.reason = static_cast<Reason>(from.number());
    status.usage.user = std::chrono::microseconds{from.number()};
    status.usage.system = std::chrono::microseconds{from.number()};
    status.usage.max_rss_kib = from.number();
    if (!from.is_done())
        return refuse("Can't say how the sandbox ended", key, "its supervisor was killed");
    return status;
}

}  // namespace nsbox::runtime
