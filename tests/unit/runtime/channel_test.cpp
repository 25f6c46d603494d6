#include "runtime/channel.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

using namespace nsbox;
using runtime::Message;
using runtime::Received;
using runtime::Tell;

namespace {

struct Ends {
    sys::Fd ours;
    sys::Fd theirs;
};

Ends make_channel()
{
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    return {sys::Fd{ends[0]}, sys::Fd{ends[1]}};
}

void say(int channel, const Message& message, const std::string& text = {})
{
    std::string data(sizeof message, '\0');
    std::memcpy(data.data(), &message, sizeof message);
    data += text;
    REQUIRE(::write(channel, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
}

void say_with_descriptor(int channel, const Message& message, int fd)
{
    iovec data{const_cast<Message*>(&message), sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(attached), &fd, sizeof fd);
    REQUIRE(::sendmsg(channel, &header, 0) == static_cast<ssize_t>(sizeof message));
}

}  // namespace

TEST_CASE("channel: a message arrives with the text that follows it")
{
    const Ends ends = make_channel();
    say(ends.theirs.get(), {Tell::step_failed, ENOENT, 7, 3}, "/some/path");
    say(ends.theirs.get(), {Tell::started, 42, 0, 0});
    const Received first = runtime::receive(ends.ours.get());
    CHECK(first.error == 0);
    CHECK_FALSE(first.end);
    CHECK(first.message.kind == Tell::step_failed);
    CHECK(first.message.value == ENOENT);
    CHECK(first.message.step == 7);
    CHECK(first.message.site == 3);
    CHECK(first.text == "/some/path");
    const Received second = runtime::receive(ends.ours.get());
    CHECK(second.message.kind == Tell::started);
    CHECK(second.message.value == 42);
    CHECK(second.text.empty());
}

TEST_CASE("channel: the longest text that a child sends arrives whole")
{
    const Ends ends = make_channel();
    const std::string text(4096, 't');
    say(ends.theirs.get(), {Tell::step_failed, 1, 1, 1}, text);
    CHECK(runtime::receive(ends.ours.get()).text == text);
}

TEST_CASE("channel: a descriptor that comes along is owned and close-on-exec")
{
    const Ends ends = make_channel();
    const sys::Fd file = tests::memory_file("here");
    say_with_descriptor(ends.theirs.get(), {Tell::moved, 1, 0, 0}, file.get());
    const Received received = runtime::receive(ends.ours.get());
    CHECK(received.message.kind == Tell::moved);
    REQUIRE(static_cast<bool>(received.descriptor));
    CHECK((::fcntl(received.descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(tests::contents_of(received.descriptor.get()) == "here");
}

TEST_CASE("channel: the end comes after what was said before it")
{
    Ends ends = make_channel();
    say(ends.theirs.get(), {Tell::about_to_exec, 0, 0, 0});
    ends.theirs.reset();
    CHECK(runtime::receive(ends.ours.get()).message.kind == Tell::about_to_exec);
    const Received last = runtime::receive(ends.ours.get());
    CHECK(last.end);
    CHECK(last.error == 0);
}

TEST_CASE("channel: a peer that ended with our word unread has ended, no more")
{
    Ends ends = make_channel();
    REQUIRE(::write(ends.ours.get(), "x", 1) == 1);
    ends.theirs.reset();
    const Received received = runtime::receive(ends.ours.get());
    CHECK(received.end);
    CHECK(received.error == 0);
}

TEST_CASE("channel: a message that is too short is taken for the end")
{
    const Ends ends = make_channel();
    REQUIRE(::write(ends.theirs.get(), "short", 5) == 5);
    CHECK(runtime::receive(ends.ours.get()).end);
}

TEST_CASE("channel: nothing there, and no channel at all, are errors")
{
    const Ends ends = make_channel();
    const Received nothing = runtime::receive(ends.ours.get(), MSG_DONTWAIT);
    CHECK_FALSE(nothing.end);
    CHECK(nothing.error == EAGAIN);
    CHECK(runtime::receive(-1).error == EBADF);
}
