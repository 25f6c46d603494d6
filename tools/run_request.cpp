#include "run_request.hpp"

#include "duration.hpp"
#include "network_options.hpp"
#include "orphans.hpp"
#include "signals.hpp"
#include "window.hpp"

#include "nsbox/nsbox.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

namespace nsbox::tool {

namespace {

/// Descriptors 0 to 2 that the caller closed are held by /dev/null until exec, so that nothing
/// of ours takes their place.
bool fill_standard_descriptors()
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            return false;
    return true;
}

/// Closes everything above stderr but `keep`: a pipe that a caller waits on must not be held
/// open here while the sandbox runs.
void close_others(std::vector<int> keep)
{
    std::sort(keep.begin(), keep.end());
    unsigned first = 3;
    const auto close_up_to = [&](unsigned last) {
        if (last < first || ::syscall(SYS_close_range, first, last, 0) == 0)
            return;
        const unsigned most = std::min(last, 65535U);  // Linux before 5.9.
        for (unsigned fd = first; fd <= most; ++fd)
            ::close(static_cast<int>(fd));
    };
    for (const int fd : keep) {
        const auto number = static_cast<unsigned>(fd);
        if (number < first)
            continue;
        if (number > first)
            close_up_to(number - 1);
        first = number + 1;
    }
    close_up_to(~0U);
}

/// What this process needs its rights for is done, except what is to be kept.
void drop_capabilities(__u32 keep)
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    if (keep != 0 && ::syscall(SYS_capget, &header, sets) == 0) {
        keep &= sets[0].permitted;
        sets[0] = {keep, keep, 0};
        sets[1] = {};
    }
    // Refused only where there is nothing to drop.
    (void)::syscall(SYS_capset, &header, sets);
}

/// A descriptor that tells when the calling process ends; nothing where it has ended already. Its
/// threads may come and go, which the kernel's own parent-death signal would not bear. A parent
/// in an outer pid namespace has no number here: then that signal has to do, and there is -1.
std::optional<int> follow_parent(pid_t parent)
{
    if (parent == 0)
        return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? std::optional{-1} : std::nullopt;
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0));
    if (pidfd < 0 || ::getppid() != parent)
        return std::nullopt;
    // One that is stopped does not see it; that a thread of the caller's ends is no harm here.
    return ::prctl(PR_SET_PDEATHSIG, SIGCONT) == 0 ? std::optional{pidfd} : std::nullopt;
}

/// Gives back the pages of code that only the start needed: while the command runs, this
/// process waits. What is needed again is read again from the page cache.
void forget_code()
{
    const auto forget = [](dl_phdr_info* info, std::size_t, void*) {
        const auto page = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0)
                continue;
            const ElfW(Addr) begin = (info->dlpi_addr + segment.p_vaddr) & ~(page - 1);
            const ElfW(Addr) end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
            (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
        }
        return 0;
    };
    ::dl_iterate_phdr(forget, nullptr);
}

/// A command that ends at once is not worth it, and who follows the events wants to know of its end
/// at once, which pages that have to be read again would delay.
void forget_code_of_long_run(const Spec& spec, const std::vector<int>& watched)
{
    constexpr int long_run = 50;  // Milliseconds.
    if (spec.events_descriptor || spec.terminal || spec.limits.any())
        return;
    std::vector<pollfd> fds;
    fds.reserve(watched.size());
    for (const int fd : watched)
        fds.push_back({fd, POLLIN, 0});
    // A folder that is open as O_PATH cannot be waited for.
    (void)::poll(fds.data(), fds.size(), 0);
    std::erase_if(fds, [](const pollfd& fd) { return (fd.revents & POLLNVAL) != 0; });
    if (::poll(fds.data(), fds.size(), long_run) == 0)
        forget_code();
}

/// Whether everything in the sandbox is to be ended in the end, though no pid namespace does it.
bool must_adopt(const Spec& spec)
{
    return spec.namespaces.pid == Own::no &&
           (spec.die_with_parent || spec.end_with_command || spec.limits.any());
}

/// A command that has become another user can be signalled; the sandbox's control group can be
/// removed even from one that nobody may write to by its mode, such as the hierarchy's root.
__u32 kept_capabilities(const Spec& spec)
{
    __u32 keep = 0;
    if (spec.signals_command || spec.limits.any() || must_adopt(spec) || spec.group_limits.any())
        keep |= 1U << CAP_KILL;
    if (spec.group_limits.any())
        keep |= 1U << CAP_DAC_OVERRIDE;
    if (spec.namespaces.pid == Own::no && (spec.end_with_command || spec.limits.any() || spec.name))
        keep |= 1U << CAP_DAC_OVERRIDE;
    // Ports, and unix sockets wherever they are, come and go while it runs.
    if (spec.user_network || spec.veth_network)
        keep |= 1U << CAP_NET_BIND_SERVICE | 1U << CAP_DAC_OVERRIDE;
    return keep;
}

void say_what_ended_it(const Spec& spec, const ExitStatus& status, const Messages& messages)
{
    if (status.reason == Reason::time_limit)
        messages.error("the time limit of " + say_duration(spec.limits.time) +
                       " is over: the command was ended");
    else if (status.reason == Reason::cpu_limit)
        messages.error("the limit of " + say_duration(spec.limits.cpu) +
                       " of processor time is reached: the command was ended");
    else if (spec.group_limits.memory && status.reason == Reason::out_of_memory)
        messages.error("the limit of " + std::to_string(*spec.group_limits.memory) +
                       " bytes of memory is reached: the command was killed");
    else if (spec.group_limits.memory && status.oom_kills > 0)
        messages.note("the limit of " + std::to_string(*spec.group_limits.memory) +
                      " bytes of memory was reached: the kernel has killed " +
                      std::to_string(status.oom_kills) + " of the sandbox's processes");
    else if (status.reason == Reason::network_failed)
        messages.error("the network helper has ended: the command was ended");
}

/// Those that the caller left to the kernel.
void say_chosen_ports(const Spec& spec, const Sandbox& sandbox, const Messages& messages)
{
    const std::vector<PublishedPort> ports = sandbox.ports();
    for (std::size_t i = 0; i < ports.size(); ++i) {
        const auto& wished =
            spec.user_network ? spec.user_network->ports : spec.veth_network->ports;
        if (wished[i].outside != ports[i].outside)
            messages.note(say_port(ports[i]));
    }
}

int start_and_wait(const Request& request, const Watch& watch, const Messages& messages)
{
    // Never destroyed: that would wait for the end of an init that ends anyway.
    static Result<Sandbox> sandbox = Sandbox::start(request.spec, watch);
    if (!sandbox) {
        messages.error(sandbox.error().message());
        if (request.can_fall_back && sandbox.error().phase == Phase::set_up && namespaces_refused())
            messages.note(
                "where a host forbids namespaces, --fallback landlock does with less: see "
                "nsbox-run(1)");
        return failure_code(request, sandbox.error());
    }
    for (const std::string& text : sandbox->notes())
        messages.note(text);
    say_chosen_ports(request.spec, *sandbox, messages);
    std::vector<int> keep = sandbox->descriptors();
    keep.insert(keep.end(), request.held.begin(), request.held.end());
    for (const auto& fd : {request.spec.status_descriptor, request.spec.events_descriptor,
                           watch.signals, watch.caller})
        if (fd)
            keep.push_back(*fd);
    close_others(keep);
    drop_capabilities(kept_capabilities(request.spec));
    forget_code_of_long_run(request.spec, keep);
    const Result<ExitStatus> status = sandbox->wait();
    if (must_adopt(request.spec))
        sandbox->kill();
    if (!status) {
        messages.error(status.error().message());
        return failure_code(request, status.error());
    }
    say_what_ended_it(request.spec, *status, messages);
    return status->shell_code();
}

}  // namespace

bool prepare_process(const Messages& messages)
{
    if (::getuid() != ::geteuid() || ::getgid() != ::getegid()) {
        messages.error("this program must not be setuid or setgid: it needs no privileges");
        return false;
    }
    if (::getauxval(AT_SECURE) != 0) {
        messages.error("Unexpected capabilities but not setuid: this program must not have file "
                       "capabilities (hint: remove them with setcap -r, it needs none)");
        return false;
    }
    if (!fill_standard_descriptors()) {
        messages.error(std::string{"Can't open /dev/null: "} + ::strerrordesc_np(errno));
        return false;
    }
    // A caller that ignores SIGCHLD would make the kernel throw the exit status away.
    ::signal(SIGCHLD, SIG_DFL);
    return true;
}

int failure_code(const Request& request, const Error& error)
{
    const int status = failure_status(error);
    return request.distinct_status || status > 128 || error.timed_out ? status : 1;
}

int run_request(Request& request, pid_t parent, const Messages& messages)
{
    // Nobody can wait for the end of what is closed already.
    std::erase_if(request.spec.sync_descriptors,
                  [](int fd) { return ::fcntl(fd, F_GETFD) < 0 && errno == EBADF; });
    Watch watch;
    if (request.follows_caller) {
        const std::optional<int> caller = follow_parent(parent);
        if (!caller) {
            messages.error("Can't follow the parent process: it has ended, or pidfd_open or prctl "
                           "is refused");
            return failure_code(request, Error{});
        }
        if (*caller >= 0)
            watch.caller = *caller;
    }
    if (request.terminal) {
        request.spec.terminal = window_for(request.window);
        watch.input = STDIN_FILENO;
        watch.output = STDOUT_FILENO;
    }
    if (request.forward_signals || request.terminal) {
        request.spec.signals_command = true;
        watch.signals = take_signals();
        if (*watch.signals < 0) {
            messages.error(std::string{"signalfd: "} + ::strerrordesc_np(errno));
            return failure_code(request, Error{});
        }
    }
    if (!must_adopt(request.spec))
        return start_and_wait(request, watch, messages);
    const std::optional<Orphans> orphans = Orphans::adopt();
    if (!orphans) {
        messages.error(std::string{"prctl(PR_SET_CHILD_SUBREAPER): "} + ::strerrordesc_np(errno));
        return failure_code(request, Error{});
    }
    const int code = start_and_wait(request, watch, messages);
    orphans->end();
    return code;
}

}  // namespace nsbox::tool
