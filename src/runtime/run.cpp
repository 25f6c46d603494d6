#include "nsbox/nsbox.hpp"

#include "runtime/init_image.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsbox {

namespace {

using Clock = std::chrono::steady_clock;
using sys::Fd;

/// Feeds a command and reads what it writes, until it has ended.
class Conversation {
public:
    Conversation(Process& process, const RunOptions& options, int feed)
        : process_(process), options_(options), feed_(feed)
    {
        if (options.time.count() > 0)
            until_ = Clock::now() + options.time;
        streams_[0] = {process.output(), &outcome_.output};
        streams_[1] = {process.error(), &outcome_.error};
    }

    /// Whether it has ended before the time was over.
    Result<bool> hold()
    {
        while (!has_ended_) {
            if (until_ && Clock::now() >= *until_)
                return false;
            TRY(step(time_left()));
        }
        outcome_.status = *TRY(process_.wait_for(std::chrono::milliseconds{0}));
        read_the_rest();
        return true;
    }

    /// What is in the pipes already: others may hold them open.
    void read_the_rest()
    {
        for (Stream& stream : streams_) {
            if (stream.fd < 0)
                continue;
            ::fcntl(stream.fd, F_SETFL, O_NONBLOCK);
            for (std::size_t left = pipe_at_most; left > 0 && take(stream);)
                left -= std::min(left, sizeof buffer_);
        }
    }

    Outcome& outcome() { return outcome_; }

private:
    struct Stream {
        int fd = -1;
        std::string* text = nullptr;
    };
    /// More is not in a pipe that nobody writes to: pipe(7), /proc/sys/fs/pipe-max-size.
    static constexpr std::size_t pipe_at_most = std::size_t{1} << 20;

    int time_left() const
    {
        constexpr long long most = 1000000;
        if (!until_)
            return -1;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until_ - Clock::now());
        return static_cast<int>(std::clamp<long long>(left.count(), 0, most));
    }

    Result<> step(int timeout)
    {
        pollfd fds[] = {{process_.descriptor(), POLLIN, 0},
                        {streams_[0].fd, POLLIN, 0},
                        {streams_[1].fd, POLLIN, 0},
                        {fed_ == options_.input.size() ? -1 : feed_, POLLOUT, 0}};
        if (::poll(fds, std::size(fds), timeout) < 0)
            return errno == EINTR ? Result<>{} : fail("poll", errno, "the command");
        for (std::size_t i = 0; i < std::size(streams_); ++i)
            if (fds[i + 1].revents != 0 && !take(streams_[i]))
                streams_[i].fd = -1;
        if (fds[3].revents != 0)
            put();
        has_ended_ = fds[0].revents != 0;
        return {};
    }

    /// Whether there may be more.
    bool take(Stream& stream)
    {
        const ssize_t got = ::read(stream.fd, buffer_, sizeof buffer_);
        if (got <= 0)
            return got < 0 && errno == EINTR;
        const std::size_t room = options_.most - std::min(options_.most, stream.text->size());
        const auto size = static_cast<std::size_t>(got);
        stream.text->append(buffer_, std::min(room, size));
        outcome_.is_cut = outcome_.is_cut || room < size;
        return true;
    }

    /// A socket, since a pipe that nobody reads would raise SIGPIPE in this process.
    void put()
    {
        const ssize_t done = ::send(feed_, options_.input.data() + fed_,
                                    options_.input.size() - fed_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0)
            fed_ += static_cast<std::size_t>(done);
        else if (errno != EAGAIN && errno != EINTR)
            fed_ = options_.input.size();  // Nobody wants to read it.
        if (fed_ == options_.input.size())
            ::shutdown(feed_, SHUT_WR);
    }

    Process& process_;
    const RunOptions& options_;
    int feed_;
    std::size_t fed_ = 0;
    std::optional<Clock::time_point> until_;
    Stream streams_[2];
    bool has_ended_ = false;
    Outcome outcome_;
    char buffer_[65536];
};

/// What the command reads; nothing: /dev/null.
Result<Fd> feed_from(const RunOptions& options, Command& command, Fd& theirs)
{
    command.input = {nsbox::Stream::Kind::null, -1};
    if (options.input.empty())
        return Fd{};
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return fail("socketpair", errno);
    theirs = Fd{ends[1]};
    command.input = {nsbox::Stream::Kind::descriptor, ends[1]};
    return Fd{ends[0]};
}

}  // namespace

Result<Outcome> run(Sandbox& sandbox, const Command& wish, const RunOptions& options)
{
    Command command = wish;
    command.output = command.error = {Stream::Kind::pipe, -1};
    Fd theirs;
    const Fd feed = TRY(feed_from(options, command, theirs));
    Process process = TRY(sandbox.spawn(command));
    theirs.reset();
    const auto conversation =
        std::make_unique<Conversation>(process, options, feed ? feed.get() : -1);
    const bool has_ended = TRY(conversation->hold());
    Outcome& outcome = conversation->outcome();
    if (!has_ended) {
        sandbox.close();
        outcome.status = TRY(process.wait());
        outcome.status.reason = Reason::time_limit;
        conversation->read_the_rest();
    }
    return std::move(outcome);
}

Result<Outcome> run(const Spec& spec, const Command& command, const RunOptions& options)
{
    const auto begin = Clock::now();
    Sandbox sandbox = TRY(Sandbox::create(spec));
    RunOptions left = options;
    if (options.time.count() > 0)
        left.time = std::max(std::chrono::milliseconds{1},
                             options.time - std::chrono::duration_cast<std::chrono::milliseconds>(
                                                Clock::now() - begin));
    return run(sandbox, command, left);
}

Result<Outcome> run_script(const Spec& spec, const std::string& text, Command command,
                           const std::vector<std::string>& arguments, const RunOptions& options)
{
    constexpr DescriptorNumber number = 3;
    const Fd script = TRY(runtime::make_text_file(text));
    if (command.words.empty())
        return refuse("Can't run the script", {}, "no interpreter is named");
    command.descriptors.emplace_back(script.get(), number);
    command.words.push_back("/proc/self/fd/" + std::to_string(number));
    command.words.insert(command.words.end(), arguments.begin(), arguments.end());
    return run(spec, command, options);
}

}  // namespace nsbox
