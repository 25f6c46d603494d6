#include "nsbox/remote.hpp"

#include "runtime/control.hpp"
#include "runtime/enter.hpp"
#include "runtime/events.hpp"
#include "runtime/registry.hpp"
#include "runtime/state.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace nsbox {

struct Remote::State {
    runtime::Registry registry;
    SandboxInfo info;
};

namespace {

std::vector<SandboxInfo> list(const runtime::Registry& registry)
{
    std::vector<SandboxInfo> all;
    for (const std::string& key : registry.keys()) {
        Result<SandboxInfo> info = runtime::describe_sandbox(registry, key);
        if (info) {
            all.push_back(std::move(*info));
        } else if (info.error().err == ECONNREFUSED) {
            registry.remove(key);  // Its supervisor was killed.
        } else if (info.error().err == EAGAIN) {
            SandboxInfo silent;  // Its supervisor is stopped.
            silent.name = key;
            all.push_back(std::move(silent));
        }
    }
    std::sort(all.begin(), all.end(),
              [](const SandboxInfo& a, const SandboxInfo& b) { return a.id < b.id; });
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

Result<std::vector<SandboxInfo>> list_sandboxes()
{
    return list(TRY(runtime::Registry::open()));
}

Result<Remote> Remote::find(const std::string& which)
{
    auto state = std::make_unique<State>();
    state->registry = TRY(runtime::Registry::open());
    // Most often it is a name, and nobody else has to be asked.
    const bool is_name = !which.empty() && which.find('/') == std::string::npos;
    Result<SandboxInfo> named = is_name ? runtime::describe_sandbox(state->registry, which)
                                        : Result<SandboxInfo>{tl::make_unexpected(Error{})};
    if (named) {
        state->info = std::move(*named);
        return Remote{std::move(state)};
    }
    std::vector<SandboxInfo> found;
    for (SandboxInfo& info : list(state->registry)) {
        if (info.id == which || info.name == which) {
            found = {info};
            break;
        }
        if (!which.empty() && info.id.rfind(which, 0) == 0)
            found.push_back(std::move(info));
    }
    if (found.empty())
        return refuse("No running sandbox is called", which, {},
                      "nsbox ps lists those that were started with a name");
    if (found.size() > 1)
        return refuse("More than one sandbox has an id that begins with", which);
    state->info = std::move(found.front());
    return Remote{std::move(state)};
}

Remote::Remote(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Remote::Remote(Remote&&) noexcept = default;
Remote& Remote::operator=(Remote&&) noexcept = default;
Remote::~Remote() = default;

const SandboxInfo& Remote::info() const noexcept
{
    return state_->info;
}

Result<Sandbox> Remote::execute(const Entry& entry, const Watch& watch) const
{
    runtime::Door door =
        TRY(runtime::open_door(state_->registry, runtime::registry_key(state_->info)));
    auto state = std::make_unique<Sandbox::State>();
    state->duties.watch = watch;
    state->duties.own_session = entry.terminal.has_value();
    state->running = TRY(runtime::enter(door.child, door.recipe, entry, watch));
    state->running.host = std::move(door.child);
    return Sandbox{std::move(state)};
}

Result<> Remote::signal(int number) const
{
    return runtime::order(state_->registry, runtime::registry_key(state_->info),
                          runtime::Ask::signal, number);
}

Result<> Remote::kill() const
{
    return runtime::order(state_->registry, runtime::registry_key(state_->info), runtime::Ask::kill,
                          0);
}

Result<ExitStatus> Remote::wait() const
{
    return runtime::wait_for_sandbox(state_->registry, runtime::registry_key(state_->info));
}

}  // namespace nsbox
