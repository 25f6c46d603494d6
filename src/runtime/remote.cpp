#include "nsbox/remote.hpp"

#include "runtime/control.hpp"
#include "runtime/enter.hpp"
#include "runtime/events.hpp"
#include "runtime/find_sandbox.hpp"
#include "runtime/registry.hpp"
#include "runtime/state.hpp"
#include "sys/raw.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace nsbox {

struct Remote::State {
    runtime::Registry registry;
    runtime::Known known;
};

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
    for (runtime::Known& known : runtime::known_sandboxes(TRY(runtime::Registry::open())))
        all.push_back(std::move(known.info));
    return all;
}

Result<Remote> Remote::find(const std::string& which)
{
    auto state = std::make_unique<State>();
    state->registry = TRY(runtime::Registry::open());
    state->known = TRY(runtime::find_sandbox(state->registry, which));
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
