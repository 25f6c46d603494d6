#include "runtime/find_sandbox.hpp"

#include <algorithm>
#include <cerrno>

namespace nsbox::runtime {

namespace {

/// One that refused may be about to listen, or be gone and have a successor of its name.
void remove_dead(const Registry& registry, const std::string& key)
{
    const sys::Fd lock = registry.lock({});
    if (!lock)
        return;
    const Result<Known> now = describe_sandbox(registry, key);
    if (!now && now.error().err == ECONNREFUSED)
        registry.remove(key);
}

}  // namespace

std::vector<Known> known_sandboxes(const Registry& registry)
{
    std::vector<Known> all;
    for (const std::string& key : registry.keys()) {
        Result<Known> known = describe_sandbox(registry, key);
        if (known) {
            all.push_back(std::move(*known));
        } else if (known.error().err == ECONNREFUSED) {
            remove_dead(registry, key);
        } else if (known.error().err == EAGAIN) {
            Known silent;  // Its supervisor is stopped.
            silent.info.name = key;
            all.push_back(std::move(silent));
        }
    }
    std::sort(all.begin(), all.end(),
              [](const Known& a, const Known& b) { return a.info.id < b.info.id; });
    return all;
}

Result<Known> find_sandbox(const Registry& registry, const std::string& which)
{
    // Most often it is a name, and nobody else has to be asked.
    const bool is_name = !which.empty() && which.find('/') == std::string::npos;
    Result<Known> named =
        is_name ? describe_sandbox(registry, which) : Result<Known>{tl::make_unexpected(Error{})};
    if (named)
        return named;
    // A supervisor that is stopped can at least be told to end.
    if (named.error().err == EAGAIN) {
        Known silent;
        silent.info.name = which;
        return silent;
    }
    // No socket of that name, or a dead one: it may be an id.
    const int none[] = {ENOENT, ECONNREFUSED, ENAMETOOLONG};
    if (is_name && std::find(std::begin(none), std::end(none), named.error().err) == std::end(none))
        return named;
    std::vector<Known> found;
    for (Known& known : known_sandboxes(registry)) {
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
    return std::move(found.front());
}

}  // namespace nsbox::runtime
