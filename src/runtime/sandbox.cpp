#include "nsbox/nsbox.hpp"

#include "runtime/diagnose.hpp"
#include "runtime/join_network.hpp"
#include "runtime/plan.hpp"
#include "runtime/recipe.hpp"
#include "runtime/state.hpp"
#include "runtime/status.hpp"

#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <csignal>
#include <cstdio>
#include <ctime>
#include <linux/nsfs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace nsbox {

// An application that starts many sandboxes must not collect the zombies of their inits.
Sandbox::State::~State()
{
    close();
    if (is_ending) {
        (void)runtime::reap(running.pidfd);
        running.remove_groups();
    }
    pollfd child{running.pidfd.get(), POLLIN, 0};
    if (running.network && ::poll(&child, 1, 0) == 1)
        running.network->reap();
}

// Those of the sandbox's own group are nobody else's.
std::uint64_t Sandbox::State::count_oom_kills() const
{
    if (running.limits && running.limits->oom_kills())
        return *running.limits->oom_kills();
    if (!oom_kills)
        return 0;
    return running.group && running.group->oom_kills ? *running.group->oom_kills
                                                     : oom_kills->count();
}

const char* version() noexcept
{
    return "0.1.0";
}

Sandbox::Sandbox(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Sandbox::Sandbox(Sandbox&&) noexcept = default;
Sandbox& Sandbox::operator=(Sandbox&&) noexcept = default;
Sandbox::~Sandbox() = default;

namespace {

/// `network`, found here or before, is what the plan's steps join.
Result<runtime::Plan> make_plan(const Spec& spec, runtime::ForeignNetwork& network, sys::Host host,
                                runtime::Purpose purpose)
{
    if (spec.join_network && !network.network) {
        Result<runtime::ForeignNetwork> found = runtime::find_network(*spec.join_network, host);
        if (!found) {
            found.error().phase = Phase::request;
            return tl::make_unexpected(std::move(found.error()));
        }
        network = std::move(*found);
    }
    if (network.network) {
        host.foreign_network = network.network.get();
        host.foreign_network_owner = network.owner ? network.owner.get() : -1;
    }
    Result<runtime::Plan> plan = runtime::plan(spec, host, purpose);
    if (!plan)
        plan.error().phase = Phase::request;
    return plan;
}

bool is_same_file(int a, int b)
{
    struct ::stat one;
    struct ::stat other;
    return sys::raw::fstat(a, &one) == 0 && sys::raw::fstat(b, &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// The pid namespace of a sandbox with two user namespaces belongs to the outer one, and the command
/// is in the inner one: whoever joins both has to set up in the outer one, as --userns2 is for. The
/// changed wish, if it is one, and `owner`, the descriptor in it.
std::optional<Spec> join_owner_first(const Spec& spec, sys::Fd& owner)
{
    const Namespaces& ns = spec.namespaces;
    if (!ns.join_user || !ns.join_pid || ns.join_user_last)
        return std::nullopt;
    owner = sys::Fd{static_cast<int>(sys::raw::call(SYS_ioctl, *ns.join_pid, NS_GET_USERNS))};
    const sys::Fd own{sys::raw::openat(AT_FDCWD, "/proc/self/ns/user", O_RDONLY | O_CLOEXEC)};
    if (!owner || !own || is_same_file(owner.get(), own.get()) ||
        is_same_file(owner.get(), *ns.join_user))
        return std::nullopt;
    Spec changed = spec;
    changed.namespaces.join_user_last = ns.join_user;
    changed.namespaces.join_user = owner.get();
    return changed;
}

/// Where the kernel counts the processes of a user in a user namespace (since Linux 5.14), the limit of
/// getrlimit(2) is one of the sandbox, and one that its processes cannot raise. Root's are not counted.
bool counts_processes(const Spec& spec)
{
    struct utsname system {};
    int major = 0;
    int minor = 0;
    return spec.namespaces.user != Own::no && !spec.namespaces.join_user &&
           !spec.namespaces.join_user_last && spec.uid_map.empty() && ::geteuid() != 0 &&
           ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           std::pair{major, minor} >= std::pair{5, 14};
}

/// What no group can be made for is kept to in another way, or is a note, or the end of the start.
Result<std::unique_ptr<runtime::LimitGroups>> prepare_limits(Spec& spec, const std::string& name,
                                                             std::vector<std::string>& notes)
{
    if (!spec.group_limits.any())
        return nullptr;
    const unsigned init = spec.command_is_pid_1 ? 0 : 1;
    std::unique_ptr<runtime::LimitGroups> groups = runtime::LimitGroups::prepare(
        TRY(runtime::group_wishes(spec.group_limits, init)),
        {sys::read_file("/proc/self/cgroup"), sys::read_file("/proc/self/mountinfo")}, name);
    for (const runtime::UnmetWish& unmet : groups->unmet()) {
        if (unmet.what == "processes" && counts_processes(spec)) {
            const std::uint64_t most = *spec.group_limits.processes + init;
            spec.resource_limits.push_back({RLIMIT_NPROC, most, most});
        } else if (spec.group_limits.best_effort) {
            notes.push_back("There is no limit of " + unmet.what + ": " + unmet.why);
        } else {
            Error error =
                refuse("Can't limit", unmet.what, unmet.why, runtime::delegate_hint).value();
            error.phase = Phase::request;
            return tl::make_unexpected(std::move(error));
        }
    }
    return groups;
}

Result<runtime::Running> start_running(runtime::Plan& plan, const Watch& watch,
                                       const runtime::Deadline& deadline,
                                       std::unique_ptr<runtime::LimitGroups> limits,
                                       std::unique_ptr<net::HelperClient> network)
{
    Result<runtime::Running> running =
        runtime::launch(plan, watch, deadline, std::move(limits), std::move(network));
    if (!running && running.error().hint.empty())
        running.error().hint = runtime::diagnose_resources(running.error().err);
    return running;
}

/// From here on others find it. What cannot be found by its name was not started as asked.
Result<std::unique_ptr<runtime::Control>> make_known(const Spec& spec, const runtime::Plan& plan,
                                                     runtime::Registry registry,
                                                     const runtime::Running& running,
                                                     const std::string& id)
{
    SandboxInfo info;
    info.id = id;
    info.name = spec.name.value_or("");
    info.supervisor = ::getpid();
    info.child = running.pid;
    info.command = running.command_pid;
    info.started = ::time(nullptr);
    info.words = spec.command;
    runtime::Recipe recipe = runtime::recipe_of(plan);
    if (running.group)
        recipe.group = running.group->path();
    if (running.limits)
        recipe.limits = running.limits->paths();
    return runtime::Control::open(std::move(registry), std::move(info), recipe, running.pidfd,
                                  running.network.get());
}

Result<> refuse_taken_name(const Spec& spec)
{
    if (spec.name->empty())
        return {};
    for (const SandboxInfo& info : TRY(list_sandboxes()))
        if (info.name == *spec.name || info.id == *spec.name)
            return refuse("Can't start another sandbox with the name", *spec.name,
                          "the one with the id " + info.id + " has it");
    return {};
}

}  // namespace

/// What is there already when a sandbox is made anew.
struct Sandbox::Kept {
    runtime::ForeignNetwork network;
    bool is_own = false;  ///< The network is this sandbox's, and so is...
    sys::Fd second_user;  ///< ...this, if there is one.
    std::unique_ptr<net::HelperClient> helper;
};

Result<std::unique_ptr<Sandbox::State>> Sandbox::begin(const Spec& spec, const Watch& watch,
                                                       const runtime::Events& events,
                                                       runtime::Purpose purpose, Kept kept)
{
    auto state = std::make_unique<State>();
    state->duties.started = std::chrono::steady_clock::now();
    if (events.is_wanted())
        state->oom_kills.emplace();
    runtime::Deadline deadline;
    if (spec.limits.time.count() > 0)
        deadline = state->duties.started + spec.limits.time;
    sys::Fd owner;
    std::optional<Spec> changed = join_owner_first(spec, owner);
    std::vector<std::string> notes;
    std::unique_ptr<runtime::LimitGroups> limits;
    if (spec.group_limits.any()) {
        if (!changed)
            changed = spec;
        limits = TRY(prepare_limits(*changed, "nsbox-" + events.id(), notes));
    }
    sys::Host host = runtime::host_for(changed ? *changed : spec);
    host.keeps_network = kept.is_own;
    host.second_user = kept.second_user ? kept.second_user.get() : -1;
    runtime::Plan plan =
        TRY(make_plan(changed ? *changed : spec, kept.network, std::move(host), purpose));
    if (plan.denials)
        plan.denials->sandbox = events.id();
    if (plan.wants_group)
        plan.group_name = "nsbox-" + events.id();
    std::optional<runtime::Registry> registry;
    if (spec.name) {
        TRY(refuse_taken_name(spec));
        registry = TRY(runtime::Registry::open());
    }
    state->running =
        TRY(start_running(plan, watch, deadline, std::move(limits), std::move(kept.helper)));
    state->running.notes.insert(state->running.notes.begin(), notes.begin(), notes.end());
    if (purpose == runtime::Purpose::commands) {
        state->serving = std::make_unique<Serving>();
        state->serving->spec = spec;
        state->serving->has_network =
            kept.is_own || (plan.clone_flags & std::uint64_t{CLONE_NEWNET}) != 0;
        state->serving->user_namespaces = plan.user_namespaces;
        if (!kept.is_own)
            state->serving->joined = std::move(kept.network);
        state->serving->recipe = runtime::recipe_of(plan);
        state->serving->command = spec.command;
        state->serving->is_filtered = plan.filters_early;
        if (state->running.limits && spec.group_limits.memory)
            state->serving->memory = std::make_shared<MemoryLimit>(state->running.limits);
    }
    if (!registry)
        return state;
    Result<std::unique_ptr<runtime::Control>> control =
        make_known(spec, plan, std::move(*registry), state->running, events.id());
    if (!control) {
        runtime::end_all(state->running);
        return tl::make_unexpected(std::move(control.error()));
    }
    state->control = std::move(*control);
    return state;
}

Result<Sandbox> Sandbox::start(const Spec& spec, const Watch& watch)
{
    const runtime::Events events{spec.events_descriptor.value_or(-1)};
    Result<std::unique_ptr<State>> state =
        begin(spec, watch, events, runtime::Purpose::command, {});
    if (!state) {
        events.failed(state.error());
        return tl::make_unexpected(std::move(state.error()));
    }
    State& it = **state;
    it.events = events;
    it.duties.limits = spec.limits;
    it.duties.watch = watch;
    it.duties.own_session = spec.new_session || spec.terminal;
    it.duties.control = it.control.get();
    it.status = spec.status_descriptor.value_or(-1);
    events.started(it.running.pid, it.running.command_pid, it.running.report,
                   it.running.group ? it.running.group->path() : std::string{});
    for (const std::string& text : it.running.notes)
        events.note(text);
    if (it.running.network) {
        events.network(*it.running.network);
        for (const PublishedPort& port : it.running.network->ports())
            events.port(port);
    }
    return Sandbox{std::move(*state)};
}

namespace {

/// Where the caller has closed standard descriptors, their numbers are not to be those of something that
/// init needs: its own lead to nothing.
class StandardNumbers {
public:
    StandardNumbers()
    {
        for (sys::Fd& fd : held_) {
            fd = sys::Fd{sys::raw::openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC)};
            if (fd.get() > STDERR_FILENO) {
                fd.reset();
                return;
            }
        }
    }

private:
    sys::Fd held_[3];
};

}  // namespace

Result<Sandbox> Sandbox::create(const Spec& spec)
{
    const StandardNumbers numbers;
    return Sandbox{TRY(begin(spec, {}, runtime::Events{-1}, runtime::Purpose::commands, {}))};
}

void Sandbox::State::close()
{
    if (!serving || serving->is_closed.exchange(true))
        return;
    runtime::end_all(running);
    if (running.network) {
        running.network->await_end();
        running.network->reap();
    }
}

void Sandbox::close()
{
    state_->close();
}

namespace {

constexpr Literal cannot_reset{"Can't make the sandbox anew"};

/// Numbers may mean something else by now, and what was read is at its end.
bool names_descriptors(const Spec& spec)
{
    const Namespaces& ns = spec.namespaces;
    return ns.join_user || ns.join_user_last || !spec.sync_descriptors.empty() ||
           std::any_of(spec.operations.begin(), spec.operations.end(), [](const Operation& op) {
               return std::holds_alternative<BindDescriptor>(op) ||
                      std::holds_alternative<File>(op) || std::holds_alternative<Data>(op);
           });
}

Result<sys::Fd> namespace_of(const runtime::Running& running, const char* kind)
{
    const std::string path = "/proc/" + std::to_string(running.pid) + "/ns/" + kind;
    sys::Fd found{sys::raw::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    // Its number may be another's, if it has ended.
    if (const int rc = sys::raw::pidfd_send_signal(running.pidfd.get(), 0); rc < 0)
        return fail(cannot_reset, -rc, {}, rc == -ESRCH ? "it has ended" : "");
    if (!found)
        return fail(cannot_reset, -found.error(), path);
    return found;
}

}  // namespace

/// What of it stays. The first user namespace has rights over the network, whether that was made in it or in
/// the second one.
Result<Sandbox::Kept> Sandbox::keep() const
{
    const Serving& serving = *state_->serving;
    Kept kept;
    kept.is_own = serving.has_network;
    if (!kept.is_own)
        return kept;
    kept.network.network = TRY(namespace_of(state_->running, "net"));
    if (serving.user_namespaces == 0)
        return kept;
    sys::Fd user = TRY(namespace_of(state_->running, "user"));
    if (serving.user_namespaces == 1) {
        kept.network.owner = std::move(user);
        return kept;
    }
    kept.second_user = std::move(user);
    kept.network.owner =
        sys::Fd{static_cast<int>(sys::raw::call(SYS_ioctl, kept.second_user.get(), NS_GET_PARENT))};
    if (!kept.network.owner)
        return fail(cannot_reset, -kept.network.owner.error(), "its first user namespace");
    return kept;
}

Result<> Sandbox::reset()
{
    if (!state_->serving)
        return fail(cannot_reset, ENOTSUP, {}, "make it with Sandbox::create()");
    const Serving& serving = *state_->serving;
    if (serving.is_closed)
        return fail(cannot_reset, ESRCH, {}, "it has been closed");
    if (names_descriptors(serving.spec))
        return fail(cannot_reset, ENOTSUP, {},
                    "its description names descriptors, which have been used");
    Kept kept = TRY(keep());
    if (state_->running.network)
        TRY(state_->running.network->unfollow());
    kept.helper = std::move(state_->running.network);
    state_->close();
    if (!kept.is_own)
        kept.network = std::move(state_->serving->joined);
    // What this one has locked the next one is to have.
    state_->running.locks.clear();
    const StandardNumbers numbers;
    const Spec spec = std::move(state_->serving->spec);
    state_ = TRY(begin(spec, {}, runtime::Events{-1}, runtime::Purpose::commands, std::move(kept)));
    return {};
}

Result<ExitStatus> Sandbox::wait()
{
    if (state_->serving)
        return fail("Can't wait for the command", ENOTSUP, {}, "each Process has its own wait()");
    const runtime::Running& running = state_->running;
    Result<ExitStatus> status =
        runtime::supervise(running, state_->duties, state_->events, state_->is_ending);
    if (!status) {
        // What cannot be waited for must not go on unwatched.
        runtime::tell_end(running);
        state_->events.failed(status.error());
        return status;
    }
    // Its groups can be removed when init, which has nothing left to wait for, is gone.
    if (running.limits && state_->is_ending) {
        (void)runtime::reap(running.pidfd);
        running.remove_groups();
        state_->is_ending = false;
    }
    if (const std::uint64_t kills = state_->count_oom_kills(); kills > 0) {
        state_->events.out_of_memory(kills);
        status->oom_kills = kills;
        if (status->reason == Reason::exited && status->signal == SIGKILL)
            status->reason = Reason::out_of_memory;
    }
    if (running.denials)
        running.denials->finish();
    pollfd child{running.pidfd.get(), POLLIN, 0};
    if (running.network && (state_->is_ending || ::poll(&child, 1, 0) != 0))
        running.network->await_end();
    if (state_->control)
        state_->control->finish(*status);
    if (state_->status >= 0)
        runtime::write_exit_code(state_->status, status->shell_code());
    state_->events.exited(*status);
    return status;
}

void Sandbox::kill()
{
    if (state_->serving)
        return state_->close();
    runtime::end_all(state_->running);
    state_->is_ending = false;
}

Result<> Sandbox::signal(int number)
{
    const runtime::Running& running = state_->running;
    if (state_->serving)
        return fail("Can't signal the command", ENOTSUP, {}, "use Process::signal()");
    if (!running.command && running.channel)
        return fail("Can't signal the command", ENOTSUP, {}, "set Spec::signals_command");
    const sys::Fd& pidfd = running.command ? running.command : running.pidfd;
    const int rc = sys::raw::pidfd_send_signal(pidfd.get(), number);
    if (rc < 0)
        return fail("Can't signal the command", -rc);
    return {};
}

pid_t Sandbox::command_pid() const noexcept
{
    return state_->running.command_pid;
}

int Sandbox::terminal() const noexcept
{
    return state_->running.terminal ? state_->running.terminal.get() : -1;
}

pid_t Sandbox::child_pid() const noexcept
{
    return state_->running.pid;
}

std::vector<PublishedPort> Sandbox::ports() const
{
    net::HelperClient* const network = state_->running.network.get();
    return network != nullptr ? network->ports() : std::vector<PublishedPort>{};
}

Result<PublishedPort> Sandbox::add_port(const PublishedPort& port)
{
    net::HelperClient* const network = state_->running.network.get();
    if (network == nullptr)
        return runtime::refuse_ports();
    Result<PublishedPort> added = network->add_port(port);
    if (added)
        state_->events.port(*added);
    return added;
}

Result<> Sandbox::remove_port(const PublishedPort& port)
{
    net::HelperClient* const network = state_->running.network.get();
    if (network == nullptr)
        return runtime::refuse_ports();
    state_->events.port_removed(TRY(network->remove_port(port)));
    return {};
}

const std::vector<std::string>& Sandbox::notes() const noexcept
{
    return state_->running.notes;
}

std::vector<int> Sandbox::descriptors() const
{
    const runtime::Running& running = state_->running;
    std::vector<int> fds{running.pidfd.get()};
    for (const sys::Fd* fd : {&running.channel, &running.command, &running.terminal, &running.host,
                              &running.directory, &running.terminals})
        if (*fd)
            fds.push_back(fd->get());
    if (state_->control)
        for (const int fd : state_->control->descriptors())
            fds.push_back(fd);
    if (running.network)
        for (const int fd : running.network->descriptors())
            fds.push_back(fd);
    if (running.group)
        for (const int fd : running.group->descriptors())
            fds.push_back(fd);
    if (running.limits)
        for (const int fd : running.limits->descriptors())
            fds.push_back(fd);
    if (running.denials)
        for (const int fd : running.denials->descriptors())
            fds.push_back(fd);
    for (const sys::Fd& lock : state_->running.locks)
        fds.push_back(lock.get());
    return fds;
}

}  // namespace nsbox
