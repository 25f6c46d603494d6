#include "pty/relay.hpp"

#include "pty/modes.hpp"
#include "tests/kernel/pty/outside.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

constexpr std::size_t megabyte = 1024 * 1024;

std::function<int()> script(const std::string& text)
{
    return [text] { return execute(text); };
}

/// A supervisor on a terminal, with the command on the terminal inside.
std::function<int()> supervised(const std::function<int()>& command, Witness* witness = nullptr)
{
    return [command, witness] {
        Supervisor supervisor;
        supervisor.witness = witness;
        return supervisor.run(command);
    };
}

/// What a command shows, through a pipe, when it is given `input` through another one.
struct Piped {
    std::string output;
    int status = -1;
};

Piped run_piped(const std::string& input, const std::function<int()>& command)
{
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Forked writer{[&] {
        in.read.reset();
        out.write.reset();
        return write_all(in.write.get(), input) ? 0 : 1;
    }};
    Forked supervisor{[&] {
        in.write.reset();
        out.read.reset();
        Supervisor it;
        it.input = in.read.get();
        it.output = out.write.get();
        return it.run(command);
    }};
    in.read.reset();
    in.write.reset();
    out.write.reset();
    Piped piped;
    piped.output = read_pipe(out.read.get());
    piped.status = supervisor.wait();
    return piped;
}

void set_raw_and_say_so()
{
    become_raw();
    write_all(1, "ready");
}

}  // namespace

TEST_CASE("relay: the outer terminal is raw while the command runs, and as before afterwards")
{
    Outside outside{supervised(script("echo run''ning; read -r x; echo \"got:$x\"; exit 7"))};
    const termios before = outside.first_mode();
    REQUIRE(outside.shows("running\r\n"));
    CHECK(pty::is_same_mode(outside.mode(), pty::raw_mode_of(before)));
    outside.type("hello\r");
    // The echo of the terminal inside, and then the answer.
    CHECK(outside.shows("hello\r\ngot:hello\r\n"));
    CHECK(outside.wait() == 7);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("relay: the outer terminal is as before also after the command was killed")
{
    Witness& witness = new_witness();
    Outside outside{supervised(script("stty raw -echo; echo run''ning; exec sleep 100"), &witness)};
    const termios before = outside.first_mode();
    REQUIRE(outside.shows("running"));
    CHECK(outside.is_raw());
    REQUIRE(::kill(witness.command, SIGKILL) == 0);
    CHECK(outside.wait() == 128 + SIGKILL);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("relay: keys that are signals reach the command, not the supervisor")
{
    Outside outside{supervised(script("trap 'echo inter''rupted' INT; echo run''ning; "
                                      "read -r x; read -r x; exit 4"))};
    REQUIRE(outside.shows("running"));
    outside.type("\x03");
    CHECK(outside.shows("interrupted"));
    outside.type("\r\r");
    CHECK(outside.wait() == 4);
}

TEST_CASE("relay: the window size goes inside at the start and at each change")
{
    const auto say_sizes = [] {
        sigset_t change;
        sigemptyset(&change);
        sigaddset(&change, SIGWINCH);
        ::sigprocmask(SIG_BLOCK, &change, nullptr);
        const auto say = [](const pty::WindowSize& size) {
            write_all(1, "<" + std::to_string(size.rows) + " " + std::to_string(size.columns) +
                             " " + std::to_string(size.width) + " " + std::to_string(size.height) +
                             ">");
        };
        // The supervisor may take the size over a little later than this starts.
        (void)eventually([] { return pty::window_size(0)->rows == 31; });
        say(*pty::window_size(0));
        while (pty::window_size(0)->rows == 31)
            ::sigwaitinfo(&change, nullptr);
        say(*pty::window_size(0));
        return 3;
    };
    Outside outside{supervised(say_sizes), {31, 97, 970, 620}};
    CHECK(outside.shows("<31 97 970 620>"));
    REQUIRE(pty::set_window_size(outside.master(), {12, 345, 0, 0}) == 0);
    CHECK(outside.shows("<12 345 0 0>"));
    CHECK(outside.wait() == 3);
}

TEST_CASE("relay: without a terminal outside the size is the one that the supervisor gave")
{
    CHECK(run_piped("", script("stty size")).output == "24 80\r\n");
}

TEST_CASE("relay: SIGTSTP gives the terminal back, SIGCONT takes it again")
{
    Outside outside{supervised(script("echo run''ning; read -r x; echo \"got:$x\""))};
    const termios before = outside.first_mode();
    REQUIRE(outside.shows("running"));
    REQUIRE(outside.is_raw());
    REQUIRE(::kill(outside.pid(), SIGTSTP) == 0);
    int status = 0;
    REQUIRE(eventually([&] { return ::waitpid(outside.pid(), &status, WUNTRACED | WNOHANG) > 0; }));
    REQUIRE(WIFSTOPPED(status));
    CHECK(pty::is_same_mode(outside.mode(), before));
    REQUIRE(::kill(outside.pid(), SIGCONT) == 0);
    CHECK(eventually([&] { return outside.is_raw(); }));
    outside.type("again\r");
    CHECK(outside.shows("got:again"));
    CHECK(outside.wait() == 0);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("relay: after SIGSTOP and SIGCONT raw mode is set again, whatever a shell did")
{
    Outside outside{supervised(script("echo run''ning; read -r x; echo \"got:$x\""))};
    const termios before = outside.first_mode();
    REQUIRE(outside.shows("running"));
    REQUIRE(::kill(outside.pid(), SIGSTOP) == 0);
    int status = 0;
    REQUIRE(eventually([&] { return ::waitpid(outside.pid(), &status, WUNTRACED | WNOHANG) > 0; }));
    REQUIRE(::tcsetattr(outside.slave(), TCSANOW, &before) == 0);
    REQUIRE_FALSE(outside.is_raw());
    REQUIRE(::kill(outside.pid(), SIGCONT) == 0);
    CHECK(eventually([&] { return outside.is_raw(); }));
    outside.type("again\r");
    CHECK(outside.shows("got:again"));
    CHECK(outside.wait() == 0);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("relay: in the background output goes on and the terminal is left alone, in the "
          "foreground it is taken without a signal")
{
    // What a shell does for `job &` and then `fg`, without a stop in between.
    Outside outside{[] {
        Forked job{[] {
            ::setpgid(0, 0);
            return supervised(script("echo run''ning; read -r x; echo \"got:$x\"; exit 6"))();
        }};
        ::setpgid(job.pid(), job.pid());
        ::signal(SIGTTOU, SIG_IGN);
        const std::string key = read_all(0, 4);
        ::tcsetpgrp(0, job.pid());
        write_all(1, "(given " + key.substr(0, 3) + ")");
        const int status = job.wait();
        ::tcsetpgrp(0, ::getpgrp());
        return status;
    }};
    const termios before = outside.first_mode();
    REQUIRE(outside.shows("running"));
    CHECK(pty::is_same_mode(outside.mode(), before));
    outside.type("abc\n");  // For the shell, not for the job.
    REQUIRE(outside.shows("(given abc)"));
    CHECK(eventually([&] { return outside.is_raw(); }));
    outside.type("job\r");
    CHECK(outside.shows("got:job"));
    CHECK(outside.wait() == 6);
    CHECK(pty::is_same_mode(outside.mode(), before));
}

TEST_CASE("relay: the end of a pipe is the end of the input inside, also in the middle of a line")
{
    CHECK(run_piped("", script("stty -echo; cat; echo end")).output == "end\r\n");
    const Piped whole = run_piped("one\ntwo\n", script("cat >/dev/null; exit 3"));
    CHECK(whole.status == 3);
    for (const std::string text : {"one\ntwo", "one\n", "x"}) {
        CAPTURE(text);
        // The text has come through when it can be counted: the echo is not part of that.
        const Piped piped = run_piped(text, script("echo \"=$(cat | wc -c)=\""));
        CHECK(piped.output.find("=" + std::to_string(text.size()) + "=") != std::string::npos);
        CHECK(piped.status == 0);
    }
}

TEST_CASE("relay: the end of the input is there for everyone who reads, not only for the first")
{
    const Piped piped = run_piped("x\n", script("cat; cat; cat </dev/tty; echo finished; exit 9"));
    CHECK(piped.output.find("finished") != std::string::npos);
    CHECK(piped.status == 9);
}

TEST_CASE("relay: a shell with a line editor ends with its input")
{
    const Piped piped = run_piped("echo $((6 * 7))\n", [] {
        ::execl("/bin/bash", "bash", "--norc", "--noprofile", "-i", nullptr);
        return 127;
    });
    CHECK(piped.output.find("42") != std::string::npos);
    CHECK(piped.status == 0);
}

TEST_CASE("relay: closed descriptors outside are the end of the input, and output goes nowhere")
{
    Witness& witness = new_witness();
    Forked supervisor{[&] {
        Supervisor it;
        it.input = -1;
        it.output = -1;
        it.witness = &witness;
        return it.run(script("cat; seq 100000; exit 5"));
    }};
    CHECK(supervisor.wait() == 5);
    CHECK(witness.output_error == EBADF);
}

TEST_CASE("relay: who takes every byte as data gets every byte and no more")
{
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    const std::string bytes = many_bytes(8 * megabyte);
    Forked supervisor{[&] {
        in.write.reset();
        out.read.reset();
        Supervisor it;
        it.input = in.read.get();
        it.output = out.write.get();
        return it.run([&] {
            set_raw_and_say_so();
            const std::string got = read_all(0, bytes.size());
            // Nothing follows: neither a byte nor an end.
            pollfd poller{0, POLLIN, 0};
            const bool more = ::poll(&poller, 1, 300) != 0;
            write_all(1, got == bytes ? "same" : "different");
            return more ? 1 : 0;
        });
    }};
    in.read.reset();
    out.write.reset();
    char ready[5];
    REQUIRE(::read(out.read.get(), ready, sizeof ready) == 5);
    REQUIRE(write_all(in.write.get(), bytes));
    in.write.reset();
    CHECK(read_pipe(out.read.get()) == "same");
    CHECK(supervisor.wait() == 0);
}

TEST_CASE("relay: megabytes that are pasted into a terminal arrive")
{
    const std::string bytes = many_bytes(2 * megabyte);
    Outside outside{supervised([&] {
        set_raw_and_say_so();
        // Slowly at first, so that every buffer on the way is full.
        sleep_milliseconds(100);
        write_all(1, read_all(0, bytes.size()) == bytes ? "(same)" : "(different)");
        return 0;
    })};
    REQUIRE(outside.shows("ready"));
    Forked paster{[&] { return write_all(outside.master(), bytes) ? 0 : 1; }};
    CHECK(outside.shows("(same)"));
    CHECK(paster.wait() == 0);
    CHECK(outside.wait() == 0);
}

TEST_CASE("relay: megabytes of output arrive, also when the command ends at once")
{
    const std::string bytes = many_bytes(8 * megabyte);
    const Piped piped = run_piped("", [&] {
        become_raw();
        return write_all(1, bytes) ? 3 : 4;
    });
    CHECK(piped.output == bytes);
    CHECK(piped.status == 3);
}

TEST_CASE("relay: megabytes of output arrive at a terminal")
{
    const std::string bytes = many_bytes(2 * megabyte);
    Outside outside{supervised([&] {
        become_raw();
        return write_all(1, bytes) ? 3 : 4;
    })};
    CHECK(outside.read(bytes.size()) == bytes);
    CHECK(outside.wait() == 3);
}

TEST_CASE("relay: output through a socket and into a file arrives")
{
    const std::string bytes = many_bytes(megabyte);
    const auto command = [&] {
        become_raw();
        return write_all(1, bytes) ? 3 : 4;
    };
    sys::Fd file = memory_file("before");
    REQUIRE(::lseek(file.get(), 0, SEEK_END) == 6);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    sys::Fd ours{ends[0]};
    sys::Fd theirs{ends[1]};
    const auto supervisor = [&](int output) {
        return [&command, output, &theirs, &ours] {
            ours.reset();
            Supervisor it;
            it.input = theirs.get();  // Nothing comes, and no end either.
            it.output = output;
            return it.run(command);
        };
    };
    Forked through_socket{supervisor(theirs.get())};
    CHECK(read_all(ours.get(), bytes.size()) == bytes);
    CHECK(through_socket.wait() == 3);
    Forked into_file{supervisor(file.get())};
    CHECK(into_file.wait() == 3);
    CHECK(contents_of(file.get()) == "before" + bytes);
}

TEST_CASE("relay: output that nobody reads stops the command, and costs no time")
{
    const std::string bytes = many_bytes(4 * megabyte);
    Witness& witness = new_witness();
    Pipe out = make_pipe();
    Pipe in = make_pipe();
    Forked supervisor{[&] {
        out.read.reset();
        Supervisor it;
        it.input = in.read.get();
        it.output = out.write.get();
        it.witness = &witness;
        return it.run([&] {
            become_raw();
            for (std::size_t at = 0; at < bytes.size(); at += 4096) {
                write_all(1, bytes.substr(at, 4096));
                witness.bytes = at;
            }
            return 8;
        });
    }};
    out.write.reset();
    unsigned long last = 0;
    // It has stopped when it has not moved for a while.
    REQUIRE(eventually([&] {
        const unsigned long before = witness.bytes;
        sleep_milliseconds(100);
        last = witness.bytes;
        return before > 0 && before == last;
    }));
    CHECK(last < megabyte / 2);
    const unsigned long rounds = witness.rounds;
    sleep_milliseconds(300);
    CHECK(witness.bytes == last);
    CHECK(witness.rounds - rounds < 20);
    // Then somebody reads, and everything is there.
    CHECK(read_pipe(out.read.get()) == bytes);
    CHECK(supervisor.wait() == 8);
}

TEST_CASE("relay: input that nobody reads stops the one who types, and costs no time")
{
    Witness& witness = new_witness();
    Witness& typed = new_witness();
    const std::string bytes = many_bytes(4 * megabyte);
    Outside outside{supervised(
        [&] {
            set_raw_and_say_so();
            while (witness.bytes == 0)
                sleep_milliseconds(5);
            return read_all(0, bytes.size()) == bytes ? 2 : 1;
        },
        &witness)};
    REQUIRE(outside.shows("ready"));
    Forked paster{[&] {
        for (std::size_t at = 0; at < bytes.size(); at += 4096) {
            write_all(outside.master(), bytes.substr(at, 4096));
            typed.bytes = at;
        }
        return 0;
    }};
    REQUIRE(eventually([&] {
        const unsigned long before = typed.bytes;
        sleep_milliseconds(100);
        return before > 0 && before == typed.bytes;
    }));
    CHECK(typed.bytes < megabyte / 2);
    const unsigned long rounds = witness.rounds;
    sleep_milliseconds(300);
    CHECK(witness.rounds - rounds < 20);
    witness.bytes = 1;
    CHECK(outside.wait() == 2);
    CHECK(paster.wait() == 0);
}

TEST_CASE("relay: the flags of the descriptors outside stay as they are")
{
    Outside outside{supervised(script("echo run''ning; read -r x"))};
    REQUIRE(outside.shows("running"));
    // The supervisor's standard input is this very open file.
    CHECK((::fcntl(outside.slave(), F_GETFL) & O_NONBLOCK) == 0);
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Witness& witness = new_witness();
    Forked supervisor{[&] {
        Supervisor it;
        it.input = in.read.get();
        it.output = out.write.get();
        it.witness = &witness;
        return it.run(script("echo run''ning; read -r x"));
    }};
    char text[7];
    REQUIRE(::read(out.read.get(), text, sizeof text) == 7);
    CHECK((::fcntl(in.read.get(), F_GETFL) & O_NONBLOCK) == 0);
    CHECK((::fcntl(out.write.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("relay: a reader that has gone is reported, and the command can go on to its end")
{
    for (const bool by_socket : {false, true}) {
        CAPTURE(by_socket);
        Witness& witness = new_witness();
        Pipe out;
        if (by_socket) {
            int ends[2];
            REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
            out = {sys::Fd{ends[0]}, sys::Fd{ends[1]}};
        } else {
            out = make_pipe();
        }
        Forked supervisor{[&] {
            out.read.reset();
            Supervisor it;
            it.input = -1;
            it.output = out.write.get();
            it.witness = &witness;
            return it.run(script("seq 300000; exit 6"));
        }};
        out.write.reset();
        char some[100];
        REQUIRE(::read(out.read.get(), some, sizeof some) > 0);
        out.read.reset();
        CHECK(supervisor.wait() == 6);
        CHECK(witness.output_error == EPIPE);
    }
}

TEST_CASE("relay: a SIGPIPE that was waiting before is still waiting afterwards")
{
    for (const bool waits : {false, true}) {
        CAPTURE(waits);
        Pipe out = make_pipe();
        pty::OuterEnd end{out.write.get(), pty::Direction::output};
        out.read.reset();
        sigset_t set;
        sigset_t before;
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        REQUIRE(::pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
        if (waits)
            ::raise(SIGPIPE);
        CHECK(end.write(std::string_view{"x"}) == -EPIPE);
        const timespec at_once{};
        CHECK(::sigtimedwait(&set, nullptr, &at_once) == (waits ? SIGPIPE : -1));
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
}

TEST_CASE("relay: when the outer terminal is hung up the supervisor learns it")
{
    Witness& witness = new_witness();
    auto outside = std::make_unique<Outside>([&witness] {
        // As a supervisor that handles this signal.
        ::signal(SIGHUP, SIG_IGN);
        const int status = supervised(
            [] {
                ::signal(SIGHUP, SIG_DFL);
                return execute("echo run''ning; cat");
            },
            &witness)();
        witness.bytes = static_cast<unsigned long>(status) + 1;
        return status;
    });
    REQUIRE(outside->shows("running"));
    outside->hang_up();
    CHECK(eventually([&] { return witness.bytes != 0; }));
    CHECK(witness.bytes == 128 + SIGHUP + 1);
    CHECK(witness.outer_was_gone == 1);
}

TEST_CASE("relay: a command that closes its terminal and opens it again is no end, and costs no "
          "time")
{
    // Once with a kernel that opens the other end for the relay, once where that is refused.
    for (const bool refused : {false, true}) {
        CAPTURE(refused);
        Witness& witness = new_witness();
        Pipe out = make_pipe();
        Pipe in = make_pipe();
        Forked supervisor{[&] {
            out.read.reset();
            Supervisor it;
            it.input = in.read.get();
            it.output = out.write.get();
            it.witness = &witness;
            if (refused) {
                sock_filter program[] = {
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCGPTPEER, 0, 1),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                };
                const sock_fprog filter{sizeof program / sizeof *program, program};
                if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                    ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
                    return 70;
            }
            return it.run([&] {
                const std::string name = ::ttyname(0);
                write_all(1, "one");
                for (int fd = 0; fd <= 2; ++fd)
                    ::close(fd);
                while (witness.bytes == 0)
                    sleep_milliseconds(5);
                if (::open(name.c_str(), O_RDWR) != 0)
                    return 1;
                write_all(0, "two");
                return read_all(0, 3) == "in\n" ? 4 : 2;
            });
        }};
        out.write.reset();
        in.read.reset();
        char text[3];
        REQUIRE(::read(out.read.get(), text, 3) == 3);
        // Without, and then with something to type that nobody can take.
        for (const std::string text_to_type : {"", "in\n"}) {
            REQUIRE(write_all(in.write.get(), text_to_type));
            sleep_milliseconds(50);
            const unsigned long rounds = witness.rounds;
            sleep_milliseconds(300);
            CHECK(witness.rounds - rounds < 30);
        }
        witness.bytes = 1;
        CHECK(read_pipe(out.read.get()).find("two") != std::string::npos);
        CHECK(supervisor.wait() == 4);
    }
}

TEST_CASE("relay: a process that goes on writing after the command's end does not keep it")
{
    Witness& witness = new_witness();
    Pipe out = make_pipe();
    Forked supervisor{[&] {
        out.read.reset();
        Supervisor it;
        it.input = -1;
        it.output = out.write.get();
        it.witness = &witness;
        it.drain_milliseconds = 1000 * 1000;
        return it.run([] {
            for (int count = 0; count < 4; ++count) {
                if (::fork() != 0)
                    continue;
                ::signal(SIGHUP, SIG_IGN);
                const std::string much(4096, 'b');
                // Its end is that of the terminal, which is closed with the supervisor.
                while (::write(1, much.data(), much.size()) > 0) {
                }
                return 0;
            }
            sleep_milliseconds(50);
            write_all(1, "LAST");
            return 5;
        });
    }};
    out.write.reset();
    const std::string text = read_pipe(out.read.get());
    CHECK(supervisor.wait() == 5);
    CHECK(witness.was_drained == 1);
    CHECK(text.find("LAST") != std::string::npos);
}

TEST_CASE("relay: a reader that does not read cannot keep drain() beyond its limit")
{
    for (const int limit : {0, 200}) {
        CAPTURE(limit);
        Witness& witness = new_witness();
        Pipe out = make_pipe();
        std::string fill(4096, 'f');
        REQUIRE(::fcntl(out.write.get(), F_SETPIPE_SZ, 4096) >= 4096);
        REQUIRE(write_all(out.write.get(), fill));
        Forked supervisor{[&] {
            Supervisor it;
            it.input = -1;
            it.output = out.write.get();
            it.witness = &witness;
            it.drain_milliseconds = limit;
            return it.run(script("echo written; exit 5"));
        }};
        CHECK(supervisor.wait() == 5);
        CHECK(witness.was_drained == 0);
        // The control: nothing but the reader was missing.
        out.write.reset();
        CHECK(read_pipe(out.read.get()) == fill);
    }
}

TEST_CASE("relay: a pipe that cannot be opened anew is never waited for either")
{
    // Behind a /proc that is not there.
    Witness& witness = new_witness();
    Pipe out = make_pipe();
    Pipe in = make_pipe();
    REQUIRE(::fcntl(out.write.get(), F_SETPIPE_SZ, 4096) >= 4096);
    const std::string bytes = many_bytes(megabyte / 4);
    Forked supervisor{[&] {
        out.read.reset();
        in.write.reset();
        sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_NONBLOCK, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOENT),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog filter{sizeof program / sizeof *program, program};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
            return 70;
        Supervisor it;
        it.input = in.read.get();
        it.output = out.write.get();
        it.witness = &witness;
        return it.run([&] {
            set_raw_and_say_so();
            if (read_all(0, 1) != "s")
                return 2;
            write_all(1, bytes);
            return read_all(0, 1) == "q" ? 3 : 4;
        });
    }};
    out.write.reset();
    in.read.reset();
    REQUIRE(read_all(out.read.get(), 5) == "ready");
    REQUIRE(write_all(in.write.get(), "s"));
    // The pipe is full now; the supervisor still turns.
    sleep_milliseconds(100);
    const unsigned long rounds = witness.rounds;
    REQUIRE(write_all(in.write.get(), "q"));
    CHECK(eventually([&] { return witness.rounds > rounds; }));
    CHECK(read_pipe(out.read.get()) == bytes);
    CHECK(supervisor.wait() == 3);
}
