#include "pty/relay.hpp"

#include "pty/modes.hpp"
#include "pty/window.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace nsbox::pty {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t capacity = std::size_t{64} * 1024;
// The kernel holds at most some 12 KiB between the two ends of a terminal, so what was written
// before now comes within that many bytes.
constexpr std::size_t most_in_kernel = std::size_t{64} * 1024;

// A shell's `fg` tells nobody that the job which it already runs is in the foreground now.
constexpr auto foreground_delay = 250ms;
constexpr auto first_end_delay = 20ms;
constexpr auto last_end_delay = 1000ms;
constexpr auto master_delay = 50ms;
constexpr auto output_delay = 10ms;

bool has_room(const Buffer& buffer)
{
    // Not for every free byte: that would be a system call for each.
    return buffer.free() >= capacity / 2;
}

short events_of(const std::vector<pollfd>& fds, std::ptrdiff_t at)
{
    return at < 0 ? short{0} : fds[static_cast<std::size_t>(at)].revents;
}

std::ptrdiff_t append(std::vector<pollfd>& fds, int fd, int events)
{
    fds.push_back({fd, static_cast<short>(events), 0});
    return static_cast<std::ptrdiff_t>(fds.size()) - 1;
}

}  // namespace

Relay::Relay(int master, int outer_input, int outer_output)
    : master_(master), input_(outer_input, Direction::input),
      output_(outer_output, Direction::output), to_inner_(capacity), to_outer_(capacity),
      end_delay_(first_end_delay)
{}

Relay::~Relay()
{
    finish();
}

Result<std::unique_ptr<Relay>> Relay::create(int master, int outer_input, int outer_output)
{
    std::unique_ptr<Relay> relay{new Relay{master, outer_input, outer_output}};
    TRY(relay->begin());
    return relay;
}

Result<void> Relay::begin()
{
    master_flags_ = ::fcntl(master_, F_GETFL);
    if (master_flags_ < 0 || ::fcntl(master_, F_SETFL, master_flags_ | O_NONBLOCK) < 0)
        return fail("Can't make non-blocking", errno, "the terminal");
    // As long as somebody has the terminal open, reading and writing at its master work whatever
    // the processes inside do, and whether they have taken what was typed can be seen.
    slave_ = sys::Fd{static_cast<int>(
        sys::raw::call(SYS_ioctl, master_, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC))};
    on_window_change();
    if (input_.descriptor() < 0) {
        input_ended();
        end_again_ = Clock::now();
    }
    if (input_.is_terminal()) {
        raw_.emplace(input_.given());
        TRY(take_terminal());
    }
    return {};
}

Result<void> Relay::take_terminal()
{
    in_background_ = TRY(raw_->enter()) == Place::background;
    foreground_again_.reset();
    if (in_background_)
        foreground_again_ = Clock::now() + foreground_delay;
    return {};
}

// An entry that asks for nothing would still report a hang-up, again and again.
void Relay::add_to(std::vector<pollfd>& fds)
{
    at_master_ = at_input_ = at_output_ = -1;
    const bool wants_input = input_state_ == Input::open && !in_background_ && !has_ended_;
    if (wants_input && has_room(to_inner_) && input_.descriptor() >= 0)
        at_input_ = append(fds, input_.descriptor(), POLLIN);
    if (!to_outer_.empty() && !output_again_)
        at_output_ = append(fds, output_.descriptor(), POLLOUT);
    const int events = (has_room(to_outer_) && !master_is_empty_ ? POLLIN : 0) |
                       (master_is_full_ && !has_ended_ ? POLLOUT : 0);
    if (events != 0 && !master_again_)
        at_master_ = append(fds, master_, events);
}

int Relay::timeout() const
{
    Time first;
    for (const Time& time : {foreground_again_, end_again_, master_again_, output_again_})
        if (time && (!first || *time < *first))
            first = time;
    if (!first)
        return -1;
    // Rounded up: too early would be once more with nothing to do.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now());
    return static_cast<int>(std::clamp<long>(left.count(), 0, INT_MAX));
}

void Relay::handle(const std::vector<pollfd>& fds)
{
    const short master = events_of(fds, at_master_);
    const auto now = Clock::now();
    const auto is_due = [now](Time& time) {
        if (!time || *time > now)
            return false;
        time.reset();
        return true;
    };
    if (is_due(foreground_again_))
        resume();
    if (events_of(fds, at_input_) != 0)
        read_input();
    const bool again = is_due(master_again_);
    if (again || (master & (POLLOUT | POLLHUP | POLLERR)) != 0)
        master_is_full_ = false;
    write_master();
    if (input_state_ == Input::ending && (is_due(end_again_) || !end_again_)) {
        type_end();
        write_master();
    }
    if (again || (master & (POLLIN | POLLHUP | POLLERR)) != 0)
        read_master();
    const bool output_is_ready = is_due(output_again_) || events_of(fds, at_output_) != 0;
    if (output_is_ready)
        output_is_full_ = false;
    const std::size_t before = to_outer_.size();
    write_output();
    // A terminal with room for one character, but not for both of a line's end, is ready to no end.
    if (output_is_ready && output_is_full_ && to_outer_.size() == before)
        output_again_ = Clock::now() + output_delay;
    at_master_ = at_input_ = at_output_ = -1;
}

void Relay::read_input()
{
    const std::span<char> room = to_inner_.room();
    const long got = input_.read(room);
    if (got == -EAGAIN)
        return;
    if (got > 0) {
        last_typed_ = room[static_cast<std::size_t>(got) - 1];
        to_inner_.added(static_cast<std::size_t>(got));
        return;
    }
    // A shell took the terminal away while this process was stopped.
    if (got == -EIO && raw_ && place_at(input_.given()) == Place::background) {
        resume();
        return;
    }
    input_ended();
}

void Relay::input_ended()
{
    // In raw mode no key ends the input: the terminal itself is gone.
    if (input_.is_terminal()) {
        input_state_ = Input::closed;
        outer_is_gone_ = true;
        return;
    }
    input_state_ = Input::ending;
}

// A pipe that has ended says so to everyone who reads from it, as often as they ask. A terminal
// takes the end out like a character that was typed, and a change of its mode makes it one. So it
// is typed again as soon as somebody has taken it; a little later each time, for those who ask on.
void Relay::type_end()
{
    if (has_ended_ || !to_inner_.empty())
        return;
    end_again_ = Clock::now() + end_delay_;
    end_delay_ = std::min<std::chrono::milliseconds>(end_delay_ * 2, last_end_delay);
    pollfd unread{slave_.get(), POLLIN, 0};
    if (end_was_typed_ && (!slave_ || ::poll(&unread, 1, 0) != 0))
        return;
    termios mode{};
    if (::tcgetattr(master_, &mode) < 0)
        return;
    const std::string end = end_of_input(mode, !last_typed_ || ends_line(mode, *last_typed_));
    if (end.empty())
        return;
    end_was_typed_ = true;
    last_typed_.reset();
    std::copy(end.begin(), end.end(), to_inner_.room().begin());
    to_inner_.added(end.size());
}

void Relay::write_master()
{
    while (!to_inner_.empty() && !master_is_full_ && !has_ended_) {
        const std::span<const char> bytes = to_inner_.contents();
        const ssize_t put = ::write(master_, bytes.data(), bytes.size());
        if (put > 0) {
            to_inner_.removed(static_cast<std::size_t>(put));
            continue;
        }
        if (put < 0 && errno == EINTR)
            continue;
        master_is_full_ = true;
        // Nobody has the terminal open, and nothing tells when somebody opens it.
        if (put == 0 || errno != EAGAIN)
            master_again_ = Clock::now() + master_delay;
    }
}

void Relay::read_master()
{
    while (read_master_once()) {
    }
}

/// Whether to go on.
bool Relay::read_master_once()
{
    std::span<char> room = to_outer_.room();
    if (has_ended_)
        room = room.first(std::min(room.size(), to_drain_));
    if (room.empty()) {
        master_is_empty_ = has_ended_ && to_drain_ == 0;
        return false;
    }
    const ssize_t got = ::read(master_, room.data(), room.size());
    if (got > 0) {
        const auto count = static_cast<std::size_t>(got);
        to_outer_.added(count);
        if (has_ended_)
            to_drain_ -= count;
        return true;
    }
    if (got < 0 && errno == EINTR)
        return true;
    master_is_empty_ = has_ended_;
    if (!has_ended_ && (got == 0 || errno != EAGAIN))
        master_again_ = Clock::now() + master_delay;
    return false;
}

void Relay::write_output()
{
    if (output_error_ != 0)
        to_outer_.clear();
    while (!to_outer_.empty() && !output_is_full_) {
        const long put = output_.write(to_outer_.contents());
        if (put > 0) {
            to_outer_.removed(static_cast<std::size_t>(put));
        } else if (put == 0 || put == -EAGAIN) {
            output_is_full_ = true;
        } else {
            leave_output(static_cast<int>(-put));
        }
    }
}

void Relay::leave_output(int error)
{
    output_error_ = error;
    to_outer_.clear();
    if (output_.is_terminal())
        outer_is_gone_ = true;
}

void Relay::on_window_change()
{
    const OuterEnd& terminal = output_.is_terminal() ? output_ : input_;
    if (!terminal.is_terminal())
        return;
    if (const Result<WindowSize> size = window_size(terminal.given()))
        (void)set_window_size(master_, *size);  // The old size is as good as it gets.
}

void Relay::suspend()
{
    if (raw_)
        raw_->restore();
    in_background_ = true;
    foreground_again_ = Clock::now() + foreground_delay;
}

void Relay::resume()
{
    in_background_ = false;
    foreground_again_.reset();
    on_window_change();
    if (raw_ && !outer_is_gone_ && !take_terminal())
        input_ended();
}

void Relay::command_ended()
{
    if (has_ended_)
        return;
    has_ended_ = true;
    to_drain_ = most_in_kernel;
    to_inner_.clear();
    end_again_.reset();
    master_again_.reset();
    read_master();
    write_output();
}

bool Relay::is_drained() const
{
    return has_ended_ && master_is_empty_ && to_outer_.empty();
}

bool Relay::drain(std::chrono::milliseconds limit)
{
    const auto deadline = Clock::now() + limit;
    command_ended();
    std::vector<pollfd> fds;
    while (!is_drained()) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0)
            return false;
        fds.clear();
        add_to(fds);
        const int first = timeout();
        const int wait = static_cast<int>(std::min<long>(left, first < 0 ? INT_MAX : first));
        (void)::poll(fds.data(), fds.size(), wait);  // Interrupted, it has found nothing.
        handle(fds);
    }
    return true;
}

void Relay::finish()
{
    raw_.reset();
    slave_.reset();
    if (master_ >= 0)
        (void)::fcntl(master_, F_SETFL, master_flags_);  // Whoever lent it may have closed it.
    master_ = -1;
}

}  // namespace nsbox::pty
