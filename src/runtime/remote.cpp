#include "nsbox/remote.hpp"

#include "runtime/control.hpp"
#include "runtime/enter.hpp"
#include "runtime/events.hpp"
#include "runtime/registry.hpp"
#include "runtime/state.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace nsbox {

struct Remote::State {
    runtime::Registry registry;
    runtime::Known known;
};

namespace {

std::vector<runtime::Known> list(const runtime::Registry& registry)
{
    std::vector<runtime::Known> all;
    for (const std::string& key : registry.keys()) {
        Result<runtime::Known> known = runtime::describe_sandbox(registry, key);
        if (known) {
            all.push_back(std::move(*known));
        } else if (known.error().err == ECONNREFUSED) {
            registry.remove(key);  // Its supervisor was killed.
        } else if (known.error().err == EAGAIN) {
            runtime::Known silent;  // Its supervisor is stopped.
            silent.info.name = key;
            all.push_back(std::move(silent));
        }
    }
    std::sort(all.begin(), all.end(), [](const runtime::Known& a, const runtime::Known& b) {
        return a.info.id < b.info.id;
    });
    return all;
}

}  // namespace

std::string to_json(const SandboxInfo& info)
{
    using runtime::json_text;
    std::string text = "{\"id\": " + json_text(info.id) + ", \"name\": " + json_text(info.name);
    const std::pair<const char*, std::int64_t> numbers[] = {{"supervisor-pid", info.supervisor},
                                                            {"child-pid", info.child},
                                                            {"command-pid", info.command},
                                                            {"started", info.started}};
    for (const auto& [key, value] : numbers)
        text += std::string{", \""} + key + "\": " + std::to_string(value);
    text += ", \"command\": [";
    for (std::size_t i = 0; i < info.words.size(); ++i)
        text += (i > 0 ? ", " : "") + json_text(info.words[i]);
    return text + "]}";
}

std::string to_json(const PublishedPort& port)
{
    return "{" + runtime::members_of(port) + "}";
}

Result<std::vector<SandboxInfo>> list_sandboxes()
{
    std::vector<SandboxInfo> all;
    for (runtime::Known& known : list(TRY(runtime::Registry::open())))
        all.push_back(std::move(known.info));
    return all;
}

Result<Remote> Remote::find(const std::string& which)
{
    auto state = std::make_unique<State>();
    state->registry = TRY(runtime::Registry::open());
    // Most often it is a name, and nobody else has to be asked.
    const bool is_name = !which.empty() && which.find('/') == std::string::npos;
    Result<runtime::Known> named = is_name ? runtime::describe_sandbox(state->registry, which)
                                           : Result<runtime::Known>{tl::make_unexpected(Error{})};
    // A supervisor that is stopped can at least be told to end.
    if (named || named.error().err == EAGAIN) {
        if (named)
            state->known = std::move(*named);
        else
            state->known.info.name = which;
        return Remote{std::move(state)};
    }
    // No socket of that name, or a dead one: it may be an id.
    const int none[] = {ENOENT, ECONNREFUSED, ENAMETOOLONG};
    if (is_name && std::find(std::begin(none), std::end(none), named.error().err) == std::end(none))
        return tl::make_unexpected(std::move(named.error()));
    std::vector<runtime::Known> found;
    for (runtime::Known& known : list(state->registry)) {
        const SandboxInfo& info = known.info;
        const bool is_it = info.id == which || info.name == which;
        if (is_it)
            found.clear();
        if (is_it || (!which.empty() && info.id.rfind(which, 0) == 0))
            found.push_back(std::move(known));
        if (is_it)
            break;
    }
    if (found.empty())
        return refuse("No running sandbox is called", which, {},
                      "nsbox ps lists those that were started with a name");
    if (found.size() > 1)
        return refuse("More than one sandbox has an id that begins with", which);
    state->known = std::move(found.front());
    return Remote{std::move(state)};
}

Remote::Remote(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Remote::Remote(Remote&&) noexcept = default;
Remote& Remote::operator=(Remote&&) noexcept = default;
Remote::~Remote() = default;

const SandboxInfo& Remote::info() const noexcept
{
    return state_->known.info;
}

Result<Sandbox> Remote::execute(const Entry& entry, const Watch& watch) const
{
    const runtime::Known& known = state_->known;
    if (!known.child)
        return refuse("Can't enter the sandbox", known.info.name,
                      "its supervisor is stopped and does not answer", "continue it with SIGCONT");
    const runtime::Recipe recipe = TRY(runtime::read_recipe(known.recipe));
    sys::Fd host{sys::raw::fcntl(known.child.get(), F_DUPFD_CLOEXEC, 0)};
    if (!host)
        return fail("Can't copy a descriptor", -host.error());
    auto state = std::make_unique<Sandbox::State>();
    state->duties.watch = watch;
    state->duties.own_session = entry.terminal.has_value();
    state->running = TRY(runtime::enter(known.child, recipe, entry, watch));
    state->running.host = std::move(host);
    return Sandbox{std::move(state)};
}

Result<std::vector<PublishedPort>> Remote::ports() const
{
    return runtime::order_ports(state_->registry, runtime::registry_key(state_->known.info),
                                runtime::Ask::ports, {});
}

Result<PublishedPort> Remote::add_port(const PublishedPort& port) const
{
    std::vector<PublishedPort> added = TRY(runtime::order_ports(
        state_->registry, runtime::registry_key(state_->known.info), runtime::Ask::add_port, port));
    return added.empty() ? port : added.front();
}

Result<> Remote::remove_port(const PublishedPort& port) const
{
    TRY(runtime::order_ports(state_->registry, runtime::registry_key(state_->known.info),
                             runtime::Ask::remove_port, port));
    return {};
}

Result<> Remote::signal(int number) const
{
    return runtime::order(state_->registry, runtime::registry_key(state_->known.info),
                          runtime::Ask::signal, number);
}

Result<> Remote::kill() const
{
    return runtime::order(state_->registry, runtime::registry_key(state_->known.info),
                          runtime::Ask::kill, 0);
}

Result<ExitStatus> Remote::wait() const
{
    return runtime::wait_for_sandbox(state_->registry, runtime::registry_key(state_->known.info));
}

}  // namespace nsbox
