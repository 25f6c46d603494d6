#include "runtime/denials/logger.hpp"

#include "ns/seccomp/abi.hpp"
#include "ns/seccomp/evaluate.hpp"
#include "ns/seccomp/notify.hpp"
#include "runtime/denials/advise.hpp"
#include "runtime/denials/digest.hpp"
#include "runtime/denials/look.hpp"
#include "runtime/denials/record.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <linux/capability.h>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
namespace seccomp = ns::seccomp;
using std::chrono::milliseconds;
using Clock = Digest::Clock;

/// How long calls are still answered when everything is to have ended.
constexpr milliseconds last_calls{300};
constexpr milliseconds patience{1000};
/// After so many errors in a row nothing is answered any more.
constexpr int most_failures = 10;

/// The calling convention that is looked at beyond the filters.
seccomp::Abi native_abi()
{
#if defined(__x86_64__)
    return seccomp::Abi::x86_64;
#else
    return seccomp::Abi::aarch64;
#endif
}

/// The calling convention of a call; x32 has a bit of its own in the number.
std::optional<seccomp::Abi> abi_of(const seccomp_data& call)
{
    constexpr std::uint32_t x32_bit = 0x40000000;
    for (const seccomp::Abi abi : seccomp::all_abis)
        if (seccomp::audit_architecture(abi) == call.arch &&
            (abi == seccomp::Abi::x32) ==
                ((static_cast<std::uint32_t>(call.nr) & x32_bit) != 0 &&
                 call.arch == seccomp::audit_architecture(seccomp::Abi::x86_64)))
            return abi;
    return std::nullopt;
}

std::string call_name(const seccomp_data& call)
{
    const std::optional<seccomp::Abi> abi = abi_of(call);
    const std::string name =
        abi ? seccomp::call_by_number(*abi, static_cast<std::uint32_t>(call.nr)) : std::string{};
    return name.empty() ? std::to_string(call.nr) : name;
}

/// One that reads what hostile programs have written needs no more than to see them.
void drop_rights()
{
    raw::CapWords words[2]{};
    if (raw::capget(words) < 0)
        return;
    const std::uint64_t see = words[0].permitted & (1U << CAP_SYS_PTRACE);
    raw::capset(see, see, 0);
}

}  // namespace

struct DenialLogger::State {
    sys::Fd listener;  ///< The thread's own, once that runs.
    int listener_number = -1;
    sys::Fd stop;
    DenialContext context;
    std::vector<std::vector<sock_filter>> filters;
    std::vector<Adviser> advisers;
    std::map<std::uint32_t, const Watched*> watched;
    Digest digest;
    std::atomic<bool> is_writable = true;  ///< False: the reader is gone.
    int failures = 0;                      ///< To hear the next call, one after the other.
    std::vector<std::uint64_t> request;
    std::vector<std::uint64_t> response;

    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;

    void run();
    void serve();
    bool answer_one();
    bool refuse(const seccomp_notif& asked, std::size_t filter, std::uint32_t answer);
    bool look(const seccomp_notif& asked);
    std::pair<std::size_t, std::uint32_t> verdict(const seccomp_data& call) const;
    bool is_valid(std::uint64_t id) const;
    bool send(std::uint64_t id, int error, std::uint32_t flags);
    void write_lines(const std::vector<std::string>& lines);
    bool write_line(const std::string& line);
    int time_to_wait() const;
};

void DenialLogger::State::run()
{
    ::prctl(PR_SET_NAME, "denials");
    drop_rights();
    serve();
    // Whoever waits, or will, gets an error instead of no answer.
    listener.reset();
    write_lines(digest.rest());
    const std::lock_guard lock{mutex};
    is_done = true;
    changed.notify_all();
}

int DenialLogger::State::time_to_wait() const
{
    const std::optional<Clock::time_point> next = digest.next();
    if (!next)
        return -1;
    const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 1000));
}

void DenialLogger::State::serve()
{
    std::optional<Clock::time_point> end;
    for (;;) {
        pollfd fds[2] = {{listener.get(), POLLIN, 0}, {end ? -1 : stop.get(), POLLIN, 0}};
        const int timeout = end ? 20 : time_to_wait();
        if (::poll(fds, 2, timeout) < 0) {
            if (errno != EINTR && ++failures >= most_failures)
                return;
            continue;
        }
        if (fds[1].revents != 0)
            end = Clock::now() + last_calls;
        if ((fds[0].revents & POLLIN) != 0) {
            if (!answer_one())
                return;
        } else if (fds[0].revents != 0) {
            return;  // Nobody has the filter any more.
        }
        write_lines(digest.due(Clock::now()));
        if (end && Clock::now() >= *end)
            return;
    }
}

/// False where nothing can be answered any more.
bool DenialLogger::State::answer_one()
{
    std::fill(request.begin(), request.end(), 0);
    auto& asked = *reinterpret_cast<seccomp_notif*>(request.data());
    if (::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_RECV, &asked) < 0)
        // Whoever asked has gone meanwhile; of anything else there is nothing in the manual.
        return errno == ENOENT || errno == EINTR || ++failures < most_failures;
    failures = 0;
    const auto [filter, answer] = verdict(asked.data);
    return seccomp::is_stricter(answer, SECCOMP_RET_LOG) ? refuse(asked, filter, answer)
                                                         : look(asked);
}

/// Which filter decides, and what: the strictest, as the kernel has it.
std::pair<std::size_t, std::uint32_t> DenialLogger::State::verdict(const seccomp_data& call) const
{
    std::size_t which = 0;
    std::uint32_t strictest = SECCOMP_RET_ALLOW;
    // Of two alike the kernel takes what was loaded last.
    for (std::size_t i = filters.size(); i-- > 0;)
        if (const std::uint32_t answer = seccomp::evaluate(filters[i], call);
            seccomp::is_stricter(answer, strictest)) {
            strictest = answer;
            which = i;
        }
    return {which, strictest};
}

bool DenialLogger::State::is_valid(std::uint64_t id) const
{
    return ::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

bool DenialLogger::State::send(std::uint64_t id, int error, std::uint32_t flags)
{
    std::fill(response.begin(), response.end(), 0);
    auto& answer = *reinterpret_cast<seccomp_notif_resp*>(response.data());
    answer.id = id;
    answer.error = -error;
    answer.flags = flags;
    for (int tries = 0; tries < most_failures;) {
        // Who waited may have been killed.
        if (::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0 || errno == ENOENT)
            return true;
        tries += errno == EINTR ? 0 : 1;
    }
    return false;
}

/// The answer is what the filter says, and comes from the registers alone, which nobody can change
/// meanwhile: it must never be to go on.
bool DenialLogger::State::refuse(const seccomp_notif& asked, std::size_t filter,
                                 std::uint32_t answer)
{
    constexpr std::uint32_t most = 4095;  // MAX_ERRNO
    const bool is_error = (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO;
    const int error =
        is_error ? static_cast<int>(std::min(answer & SECCOMP_RET_DATA, most)) : ENOSYS;
    const Process process{static_cast<pid_t>(asked.pid)};
    const std::string call = call_name(asked.data);
    const std::string program = process.name();
    const std::vector<std::string> lines = digest.add(
        program + '\0' + call + '\0' + std::to_string(error),
        [&] {
            Record record;
            record.kind = "syscall";
            record.call = call;
            record.program = program;
            record.executable = process.executable();
            record.pid = process.number_inside();
            record.arguments = arguments_of(asked.data);
            record.refusal.error = error;
            record.refusal.wall = "filter";
            const std::string policy =
                filter < context.wishes.size() ? context.wishes[filter].policy : std::string{};
            record.refusal.reason =
                filter == 0 && context.refuses_input
                    ? "typing into a terminal of the caller's is refused"
                : filter < context.own_filters
                    ? "there is no network, and Landlock alone could not keep it so"
                : policy.empty() ? "a filter of the caller's refuses it"
                                 : "the policy " + policy + " refuses it";
            if (filter < advisers.size())
                record.refusal.option = advisers[filter].option_for(asked.data);
            return members_of(record);
        },
        Clock::now());
    const bool is_sent = send(asked.id, error, 0);
    write_lines(lines);
    return is_sent;
}

/// What the filters let through goes on, whatever is found: that the memory which is looked at may
/// change does no harm.
bool DenialLogger::State::look(const seccomp_notif& asked)
{
    const auto known = watched.find(static_cast<std::uint32_t>(asked.data.nr));
    std::vector<std::string> lines;
    if (known != watched.end()) {
        const Process process{static_cast<pid_t>(asked.pid)};
        const std::optional<Refusal> found = look_at(*known->second, asked.data, process, context);
        const std::string program = found ? process.name() : std::string{};
        const std::string call = known->second->name;
        // Whoever has the number may be another since.
        if (found && is_valid(asked.id))
            lines = digest.add(
                program + '\0' + call + '\0' + std::to_string(found->error) + '\0' + found->object,
                [&] {
                    Record record;
                    record.kind = name_of(known->second->deed);
                    record.call = call;
                    record.program = program;
                    record.executable = process.executable();
                    record.pid = process.number_inside();
                    record.arguments = arguments_of(asked.data);
                    record.is_estimate = true;
                    record.refusal = *found;
                    return members_of(record);
                },
                Clock::now());
    }
    const bool is_sent = send(asked.id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
    write_lines(lines);
    return is_sent;
}

void DenialLogger::State::write_lines(const std::vector<std::string>& lines)
{
    for (const std::string& line : lines)
        if (is_writable && !write_line(stamped(line, context)))
            digest.lost();
}

/// Never waits: what cannot be written at once is lost.
bool DenialLogger::State::write_line(const std::string& line)
{
    pollfd fd{context.descriptor, POLLOUT, 0};
    if (::poll(&fd, 1, 0) <= 0 || (fd.revents & POLLOUT) == 0)
        return false;
    iovec part{const_cast<char*>(line.data()), line.size()};
    // Another writer may have filled a pipe since.
    ssize_t put = ::pwritev2(context.descriptor, &part, 1, -1, RWF_NOWAIT);
    if (put < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == EAGAIN || errno == ESPIPE)) {
        struct stat status;
        if (errno == EAGAIN &&
            (raw::fstat(context.descriptor, &status) < 0 || !S_ISREG(status.st_mode)))
            return false;
        put = ::writev(context.descriptor, &part, 1);
    }
    if (put < 0 && errno == EPIPE)
        is_writable = false;
    return put == static_cast<ssize_t>(line.size());
}

std::vector<std::vector<std::uint8_t>> logged_filters(
    const std::vector<std::vector<std::uint8_t>>& filters, const std::array<std::uint64_t, 3>& pass)
{
    const seccomp::Abi abi = native_abi();
    std::vector<std::uint32_t> numbers;
    for (const Watched& call : watched_calls())
        if (const std::optional<std::uint32_t> number = seccomp::number_of(abi, call.name))
            numbers.push_back(*number);
    const std::uint32_t passing[] = {SYS_sendmsg, SYS_prctl};
    seccomp::Notifying made =
        seccomp::make_notifying(filters, seccomp::audit_architecture(abi), numbers, passing, pass);
    std::vector<std::vector<std::uint8_t>> programs{std::move(made.listener)};
    for (std::vector<std::uint8_t>& program : made.rest)
        programs.push_back(std::move(program));
    return programs;
}

Result<std::unique_ptr<DenialLogger>> DenialLogger::start(
    sys::Fd listener, const DenialContext& context,
    const std::vector<std::vector<std::uint8_t>>& filters)
{
    auto state = std::make_shared<State>();
    state->listener = std::move(listener);
    state->listener_number = state->listener.get();
    state->stop = sys::Fd{::eventfd(0, EFD_CLOEXEC)};
    if (!state->stop)
        return fail("eventfd", errno, "the log of denials");
    state->context = context;
    FilterWish unknown;
    unknown.policy.clear();
    for (std::size_t i = 0; i < filters.size(); ++i) {
        state->filters.push_back(seccomp::instructions_of(filters[i]));
        state->advisers.emplace_back(i < context.wishes.size() ? context.wishes[i] : unknown);
    }
    for (const Watched& call : watched_calls())
        if (const std::optional<std::uint32_t> number = seccomp::number_of(native_abi(), call.name))
            state->watched.emplace(*number, &call);
    seccomp_notif_sizes sizes{};
    if (raw::call(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
        sizes = {sizeof(seccomp_notif), sizeof(seccomp_notif_resp), sizeof(seccomp_data)};
    const auto words = [](std::size_t size, std::size_t least) {
        return std::max(size, least) / sizeof(std::uint64_t) + 1;
    };
    state->request.resize(words(sizes.seccomp_notif, sizeof(seccomp_notif)));
    state->response.resize(words(sizes.seccomp_notif_resp, sizeof(seccomp_notif_resp)));
    // Wake the other side on this processor: Linux 6.6, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP.
    constexpr unsigned long set_flags = _IOW('!', 4, std::uint64_t);
    (void)::ioctl(state->listener.get(), set_flags, 1UL);
    std::unique_ptr<DenialLogger> logger{new DenialLogger{state}};
    // No signal of the caller's is to be handled by the thread; libc's own are, for setuid(3).
    sigset_t all;
    sigset_t old;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread{};
    auto own = std::make_unique<std::shared_ptr<State>>(state);
    // Not std::thread, which throws where the kernel has no more threads.
    const int rc = ::pthread_create(
        &thread, nullptr,
        [](void* argument) -> void* {
            const std::unique_ptr<std::shared_ptr<State>> mine{
                static_cast<std::shared_ptr<State>*>(argument)};
            (*mine)->run();
            return nullptr;
        },
        own.get());
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (rc != 0)
        return fail("Can't start the thread that logs denials", rc);
    (void)own.release();
    logger->thread_ = thread;
    return logger;
}

DenialLogger::~DenialLogger()
{
    finish();
}

void DenialLogger::finish()
{
    if (!thread_)
        return;
    const std::uint64_t one = 1;
    (void)raw::write(state_->stop.get(), &one, sizeof one);
    std::unique_lock lock{state_->mutex};
    const bool is_done =
        state_->changed.wait_for(lock, patience, [this] { return state_->is_done; });
    lock.unlock();
    // One that hangs in memory of the sandbox's ends when that is gone, and has its state itself.
    // What it would write to may be something else by then.
    state_->is_writable = false;
    if (is_done)
        ::pthread_join(*thread_, nullptr);
    else
        ::pthread_detach(*thread_);
    thread_.reset();
}

std::vector<int> DenialLogger::descriptors() const
{
    return {state_->listener_number, state_->stop.get(), state_->context.descriptor};
}

}  // namespace nsbox::runtime
