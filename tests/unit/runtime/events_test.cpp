#include "runtime/events.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <sstream>

using namespace nsbox;
using runtime::Events;
using runtime::json_text;

namespace {

/// The one line that was written, without what all lines begin with.
template <class Write>
std::string line(Write write)
{
    const sys::Fd file = tests::memory_file();
    const Events events{file.get()};
    write(events);
    const std::string text = tests::contents_of(file.get());
    const std::string begin = "{\"sandbox\": \"" + events.id() + "\", ";
    REQUIRE(text.rfind(begin, 0) == 0);
    return text.substr(begin.size());
}

}  // namespace

TEST_CASE("events: text becomes JSON, whatever it holds")
{
    CHECK(json_text("plain") == "\"plain\"");
    CHECK(json_text("a\"b\\c") == R"("a\"b\\c")");
    CHECK(json_text("\n\t\x01\x7f") == R"("\u000a\u0009\u0001\u007f")");
    CHECK(json_text(std::string("a\0b", 3)) == R"("a\u0000b")");
    CHECK(json_text("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") ==
          "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    // Cut off, overlong, a surrogate, beyond the last character, a stray byte.
    CHECK(json_text("\xc3") == R"("\ufffd")");
    CHECK(json_text("\xe2\x82") == R"("\ufffd\ufffd")");
    CHECK(json_text("\xc0\xaf") == R"("\ufffd\ufffd")");
    CHECK(json_text("\xe0\x80\x80") == R"("\ufffd\ufffd\ufffd")");
    CHECK(json_text("\xed\xa0\x80") == R"("\ufffd\ufffd\ufffd")");
    CHECK(json_text("\xf4\x90\x80\x80") == R"("\ufffd\ufffd\ufffd\ufffd")");
    CHECK(json_text("\x80z") == R"("\ufffdz")");
}

TEST_CASE("events: without a descriptor nothing is written")
{
    const Events events;
    CHECK_FALSE(events.is_wanted());
    CHECK(events.id().size() == 16);
    events.exited(ExitStatus{});
}

TEST_CASE("events: every sandbox has a name of its own")
{
    const sys::Fd file = tests::memory_file();
    const Events one{file.get()};
    const Events other{file.get()};
    CHECK(one.id().size() == 16);
    CHECK(one.id().find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(one.id() != other.id());
}

TEST_CASE("events: the start names processes and namespaces that are known")
{
    const runtime::NamespaceReport report{{}, {1, 2, 3, 0, 5, 6, 7}};
    CHECK(line([&](const Events& events) { events.started(10, 11, report); }) ==
          "\"event\": \"started\", \"child-pid\": 10, \"command-pid\": 11, \"namespaces\": "
          "{\"cgroup\": 1, \"ipc\": 2, \"mnt\": 3, \"pid\": 5, \"uts\": 6, \"user\": 7}}\n");
    CHECK(line([&](const Events& events) { events.started(10, -1, {}, "/sys/a\"b"); }) ==
          "\"event\": \"started\", \"child-pid\": 10, \"control-group\": \"/sys/a\\\"b\", "
          "\"namespaces\": {}}\n");
    CHECK(line([&](const Events& events) { events.started(10, -1, {}); }) ==
          "\"event\": \"started\", \"child-pid\": 10, \"namespaces\": {}}\n");
}

TEST_CASE("events: the end says how and why, and what was used")
{
    ExitStatus status;
    status.code = 3;
    status.usage = {std::chrono::microseconds{1}, std::chrono::microseconds{2}, 4};
    CHECK(line([&](const Events& events) { events.exited(status); }) ==
          "\"event\": \"exit\", \"code\": 3, \"signal\": null, \"reason\": \"exited\", "
          "\"user-us\": 1, \"system-us\": 2, \"max-rss-kib\": 4}\n");
    const auto reason = [&](int signal, Reason why) {
        status.signal = signal;
        status.reason = why;
        const std::string text = line([&](const Events& events) { events.exited(status); });
        const std::size_t at = text.find("\"code\"");
        return text.substr(at, text.find(", \"user-us") - at);
    };
    CHECK(reason(SIGSEGV, Reason::exited) ==
          "\"code\": null, \"signal\": 11, \"reason\": \"signaled\"");
    CHECK(reason(SIGTERM, Reason::time_limit) ==
          "\"code\": null, \"signal\": 15, \"reason\": \"timeout\"");
    CHECK(reason(0, Reason::cpu_limit) ==
          "\"code\": 3, \"signal\": null, \"reason\": \"cpu-time\"");
    CHECK(reason(SIGKILL, Reason::killed) ==
          "\"code\": null, \"signal\": 9, \"reason\": \"killed\"");
    CHECK(reason(SIGKILL, Reason::caller_ended) ==
          "\"code\": null, \"signal\": 9, \"reason\": \"caller-ended\"");
}

TEST_CASE("events: a failure is followed by an end")
{
    const auto lines = [](const Error& error) {
        return line([&](const Events& events) { events.failed(error); });
    };
    const std::string text = lines(Error{ENOENT, "execvp", "x\"y", {}, {}, 0, Phase::execute});
    CHECK(text.rfind("\"event\": \"failed\", \"phase\": \"execute\", \"errno\": 2, \"message\": "
                     "\"execvp x\\\"y: No such file or directory\"}\n",
                     0) == 0);
    CHECK(text.find("\"event\": \"exit\", \"code\": null, \"signal\": null, \"reason\": "
                    "\"exec-failed\"}\n") != std::string::npos);
    CHECK(lines(Error{}).find("\"reason\": \"setup-failed\"") != std::string::npos);
    CHECK(lines(Error{0, "x", {}, {}, {}, 0, Phase::request}).find("\"phase\": \"request\"") !=
          std::string::npos);
    const std::string interrupted = lines(Error{0, "x", {}, {}, {}, SIGINT});
    CHECK(interrupted.find("\"signal\": 2, \"reason\": \"interrupted\"") != std::string::npos);
}
