#include <messages.hpp>

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace nsbox;
using tests::CapturedErrors;
using tool::Messages;

TEST_CASE("messages: a line begins with the program's name")
{
    const CapturedErrors captured;
    const Messages messages{"bwrap"};
    messages.error("it failed");
    messages.warning("it is odd");
    CHECK(captured.text() == "bwrap: it failed\nbwrap: it is odd\n");
}

TEST_CASE("messages: with the level prefix the severity comes first")
{
    const CapturedErrors captured;
    Messages messages{"bwrap"};
    messages.error("before");
    messages.use_level_prefix();
    messages.error("it failed");
    messages.warning("it is odd");
    CHECK(captured.text() == "bwrap: before\n<3>bwrap: it failed\n<4>bwrap: it is odd\n");
}

TEST_CASE("messages: write_out writes more than a pipe holds, and gives up on an error")
{
    tests::Pipe pipe = tests::make_pipe();
    const std::string text(1 << 20, 'x');
    std::string got;
    std::thread reader{[&] { got = tests::contents_of(pipe.read.get()); }};
    tool::write_out(pipe.write.get(), text);
    pipe.write.reset();
    reader.join();
    CHECK(got == text);
    tool::write_out(-1, text);  // Returns.
}
