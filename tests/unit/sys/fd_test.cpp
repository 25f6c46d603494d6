#include "sys/fd.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <type_traits>

using namespace nsbox;
using sys::Fd;
using tests::is_open;

static_assert(!std::is_copy_constructible_v<Fd>);
static_assert(std::is_nothrow_move_constructible_v<Fd>);
static_assert(sizeof(Fd) == sizeof(int));

TEST_CASE("fd: the descriptor is closed at the end of the scope")
{
    int number = -1;
    {
        const Fd fd = tests::memory_file();
        number = fd.get();
        REQUIRE(is_open(number));
    }
    CHECK_FALSE(is_open(number));
}

TEST_CASE("fd: built from a failed call it keeps the error and owns nothing")
{
    const Fd fd{-ENOENT};
    CHECK_FALSE(fd);
    CHECK(fd.error() == -ENOENT);
    CHECK_FALSE(Fd{});
    CHECK(Fd{}.error() == -EBADF);
}

TEST_CASE("fd: descriptor 0 counts as open")
{
    Fd fd{0};
    CHECK(static_cast<bool>(fd));
    CHECK(fd.release() == 0);
}

TEST_CASE("fd: moving hands the descriptor over and closes what the target had")
{
    Fd from = tests::memory_file();
    Fd to = tests::memory_file();
    const int kept = from.get();
    const int dropped = to.get();
    to = std::move(from);
    CHECK(to.get() == kept);
    CHECK(is_open(kept));
    CHECK_FALSE(is_open(dropped));
    Fd last{std::move(to)};
    CHECK(last.get() == kept);
    CHECK(is_open(kept));
    Fd& same = last;
    last = std::move(same);
    CHECK(is_open(kept));
}

TEST_CASE("fd: release() gives up ownership, reset() closes")
{
    Fd fd = tests::memory_file();
    const int number = fd.release();
    CHECK_FALSE(fd);
    CHECK(is_open(number));
    Fd again{number};
    again.reset();
    CHECK_FALSE(again);
    CHECK_FALSE(is_open(number));
}
