#include "pty/raw_mode.hpp"

#include "pty/modes.hpp"
#include "tests/kernel/pty/outside.hpp"
#include "tests/kernel/support/sandboxes.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using pty::Place;

namespace {

/// A process on the terminal that does what it is told: a character, and the answer is shown.
int obey(const std::function<std::string(char)>& answer)
{
    // A line's end only sends what stands before it.
    for (char order = 0; ::read(0, &order, 1) == 1;)
        if (order != '\n')
            write_all(1, "<" + answer(order) + ">");
    return 0;
}

std::string word(const Result<Place>& place)
{
    if (!place)
        return place.error().message();
    return *place == Place::foreground ? "foreground" : "background";
}

/// A group of its own with one process, which is killed at the end.
class Group {
public:
    Group()
        : process_([]() -> int {
              ::setpgid(0, 0);
              for (;;)
                  ::pause();
          })
    {
        ::setpgid(process_.pid(), process_.pid());
    }
    pid_t id() const { return process_.pid(); }

private:
    Forked process_;
};

void give_terminal_to(pid_t group)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTTOU);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    ::tcsetpgrp(0, group);
    ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
}

}  // namespace

TEST_CASE("raw mode: it is set, and the mode before it comes back")
{
    Outside outside{[] {
        pty::RawMode raw{0};
        return obey([&](char order) -> std::string {
            if (order == 'e')
                return word(raw.enter());
            raw.restore();
            return "restored";
        });
    }};
    const termios before = outside.first_mode();
    CHECK_FALSE(outside.is_raw());
    outside.type("e\n");
    REQUIRE(outside.shows("<foreground>"));
    CHECK(pty::is_same_mode(outside.mode(), pty::raw_mode_of(before)));
    outside.type("r");
    REQUIRE(outside.shows("<restored>"));
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("raw mode: the mode before it comes back at the end of the scope, and after a second "
          "enter() that found raw mode")
{
    Outside outside{[] {
        pty::RawMode raw{0};
        char order = 0;
        if (::read(0, &order, 1) != 1)
            return 4;
        write_all(1, "<" + word(raw.enter()) + ">");
        write_all(1, "<" + word(raw.enter()) + ">");
        return ::read(0, &order, 1) == 1 ? 3 : 4;
    }};
    const termios before = outside.first_mode();
    outside.type("\n");
    REQUIRE(outside.shows("<foreground><foreground>"));
    CHECK(outside.is_raw());
    outside.type("x");
    CHECK(outside.wait() == 3);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("raw mode: what somebody changed while the process was stopped is what comes back")
{
    Outside outside{[] {
        pty::RawMode raw{0};
        return obey([&](char order) -> std::string {
            if (order == 'e')
                return word(raw.enter());
            raw.restore();
            return "restored";
        });
    }};
    outside.type("e\n");
    REQUIRE(outside.shows("<foreground>"));
    outside.type("r");
    REQUIRE(outside.shows("<restored>"));
    termios other = outside.mode();
    other.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    other.c_cc[VERASE] = 8;
    REQUIRE(::tcsetattr(outside.slave(), TCSANOW, &other) == 0);
    outside.type("e\n");
    REQUIRE(outside.shows("<foreground>"));
    outside.type("r");
    REQUIRE(outside.shows("<restored>"));
    CHECK(pty::is_same_mode(outside.mode(), other));
}

TEST_CASE("raw mode: in the background nothing is set or restored, and the process is not stopped")
{
    Outside outside{[] {
        const Group other;
        pty::RawMode raw{0};
        give_terminal_to(other.id());
        std::string said = "<" + word(raw.enter()) + ">";
        give_terminal_to(::getpgrp());
        said += "<" + word(raw.enter()) + ">";
        give_terminal_to(other.id());
        raw.restore();
        write_all(1, said);
        return 5;
    }};
    REQUIRE(outside.shows("<background><foreground>"));
    CHECK(outside.wait() == 5);
    // The control of restore(): it left the raw mode that was set in the foreground.
    CHECK(outside.is_raw());
}

TEST_CASE("raw mode: a foreground group that has died is replaced, one that lives is not")
{
    Outside outside{[] {
        pty::ForegroundGroup ours{0};
        std::string said;
        {
            const Group other;
            give_terminal_to(other.id());
            ours.restore();
            said += ::tcgetpgrp(0) == other.id() ? "<kept>" : "<taken>";
        }
        said += ::tcgetpgrp(0) == ::getpgrp() ? "<ours>" : "<dead>";
        ours.restore();
        said += ::tcgetpgrp(0) == ::getpgrp() ? "<ours>" : "<dead>";
        write_all(1, said);
        return 0;
    }};
    CHECK(outside.shows("<kept><dead><ours>"));
    CHECK(outside.wait() == 0);
}

TEST_CASE("raw mode: what is no terminal is an error, and stays as it is")
{
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pty::RawMode raw{ends[0]};
    const Result<Place> place = raw.enter();
    REQUIRE_FALSE(place.has_value());
    CHECK(place.error().err == ENOTTY);
    raw.restore();
    pty::ForegroundGroup{ends[0]}.restore();
    ::close(ends[0]);
    ::close(ends[1]);
}
