#include "nsbox/pool.hpp"

#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace nsbox {

namespace {

/// After a failure; by take() the caller learns of it.
constexpr std::chrono::milliseconds pause{200};

}  // namespace

struct Pool::State {
    State(const Spec& wish, std::size_t count) : spec(wish), size(count) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State()
    {
        {
            const std::lock_guard lock{mutex};
            is_ending = true;
        }
        changed.notify_all();
        if (has_thread)
            ::pthread_join(thread, nullptr);
    }

    const Spec spec;
    const std::size_t size;
    sys::Fd missing;           ///< An eventfd(2).
    mutable std::mutex mutex;  ///< Of what follows. Never held while a sandbox is made or ends.
    std::condition_variable changed;
    std::deque<Sandbox> waiting;
    bool is_ending = false;
    bool has_thread = false;
    pthread_t thread{};

    /// Takes those out that have ended; they are to be destroyed without the lock.
    std::deque<Sandbox> remove_ended();
    void tell_missing() const;
    void work();
    static void* run(void* state)
    {
        static_cast<State*>(state)->work();
        return nullptr;
    }
};

namespace {

bool has_ended(const Sandbox& sandbox)
{
    // Its init's pidfd comes first.
    const std::vector<int> fds = sandbox.descriptors();
    pollfd fd{fds.front(), POLLIN, 0};
    return ::poll(&fd, 1, 0) != 0;
}

}  // namespace

std::deque<Sandbox> Pool::State::remove_ended()
{
    std::deque<Sandbox> ended;
    for (auto at = waiting.begin(); at != waiting.end();) {
        if (has_ended(*at)) {
            ended.push_back(std::move(*at));
            at = waiting.erase(at);
        } else {
            ++at;
        }
    }
    return ended;
}

/// With the lock.
void Pool::State::tell_missing() const
{
    eventfd_t value = 0;
    if (waiting.size() < size)
        ::eventfd_write(missing.get(), 1);
    else
        ::eventfd_read(missing.get(), &value);
}

void Pool::State::work()
{
    std::unique_lock lock{mutex};
    while (!is_ending) {
        // Looked at now and then: one may end by itself, as where memory is short.
        constexpr std::chrono::seconds look{5};
        changed.wait_for(lock, look, [this] { return is_ending || waiting.size() < size; });
        std::deque<Sandbox> ended = remove_ended();
        if (is_ending || waiting.size() >= size)
            continue;
        lock.unlock();
        ended.clear();
        Result<Sandbox> made = Sandbox::create(spec);
        lock.lock();
        if (made && !is_ending)
            waiting.push_back(std::move(*made));
        else if (!made)
            changed.wait_for(lock, pause, [this] { return is_ending; });
        tell_missing();
    }
}

Pool::Pool(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&&) noexcept = default;
Pool::~Pool() = default;

Result<Pool> Pool::create(const Spec& spec, const PoolOptions& options)
{
    constexpr Literal cannot{"Can't make a pool of sandboxes"};
    if (options.size == 0)
        return refuse(cannot, {}, "it has room for none");
    auto state = std::make_unique<State>(spec, options.size);
    state->missing = sys::Fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (!state->missing)
        return fail(cannot, errno, "eventfd");
    state->waiting.push_back(TRY(Sandbox::create(spec)));
    state->tell_missing();
    if (!options.has_thread)
        return Pool{std::move(state)};
    // The caller's signals are none of this thread's.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const int err = ::pthread_create(&state->thread, nullptr, State::run, state.get());
    state->has_thread = err == 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (err != 0)
        return fail(cannot, err, "a thread");
    return Pool{std::move(state)};
}

Result<Sandbox> Pool::take()
{
    std::deque<Sandbox> ended;
    std::optional<Sandbox> taken;
    {
        const std::lock_guard lock{state_->mutex};
        while (!taken && !state_->waiting.empty()) {
            Sandbox first = std::move(state_->waiting.front());
            state_->waiting.pop_front();
            if (has_ended(first))
                ended.push_back(std::move(first));
            else
                taken.emplace(std::move(first));
        }
        state_->tell_missing();
    }
    state_->changed.notify_one();
    if (taken)
        return std::move(*taken);
    return Sandbox::create(state_->spec);
}

Result<> Pool::refill()
{
    for (;;) {
        std::deque<Sandbox> ended;
        {
            const std::lock_guard lock{state_->mutex};
            ended = state_->remove_ended();
            state_->tell_missing();
            if (state_->waiting.size() >= state_->size)
                return {};
        }
        ended.clear();
        Sandbox made = TRY(Sandbox::create(state_->spec));
        const std::lock_guard lock{state_->mutex};
        // The thread may have been faster: then this one is one too many.
        if (state_->waiting.size() < state_->size)
            state_->waiting.push_back(std::move(made));
    }
}

std::size_t Pool::ready() const
{
    const std::lock_guard lock{state_->mutex};
    return static_cast<std::size_t>(
        std::count_if(state_->waiting.begin(), state_->waiting.end(),
                      [](const Sandbox& sandbox) { return !has_ended(sandbox); }));
}

int Pool::descriptor() const noexcept
{
    return state_->missing.get();
}

}  // namespace nsbox
