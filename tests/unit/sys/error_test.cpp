#include "sys/error.hpp"

#include <doctest/doctest.h>

#include <cerrno>

using namespace nsbox;

namespace {

Result<int> half(int number)
{
    if (number % 2 != 0)
        return fail("Can't halve", EDOM, std::to_string(number));
    return number / 2;
}

Result<int> quarter(int number)
{
    const int once = TRY(half(number));
    return TRY(half(once));
}

Result<> must_be_small(int number)
{
    if (number > 10)
        return refuse("Too large", std::to_string(number));
    return {};
}

Result<int> small_half(int number)
{
    TRY(must_be_small(number));
    return half(number);
}

}  // namespace

TEST_CASE("error: the message holds operation, object, reason and hint")
{
    CHECK(Error{ENOENT, "Can't open", "/x", {}, {}}.message() ==
          "Can't open /x: No such file or directory");
    CHECK(Error{ENOENT, "Can't open", "/x", {}, "make it"}.message() ==
          "Can't open /x: No such file or directory (hint: make it)");
    CHECK(Error{0, "Can't open", "/x", "it is a pipe", "take another"}.message() ==
          "Can't open /x: it is a pipe (hint: take another)");
}

TEST_CASE("error: a reason in words takes the place of the errno's text")
{
    CHECK(Error{ENOSPC, "Can't mount", "/x", "too many mounts", {}}.message() ==
          "Can't mount /x: too many mounts");
}

TEST_CASE("error: parts that are empty leave no trace in the message")
{
    CHECK(Error{ENOENT, "setsid", {}, {}, {}}.message() == "setsid: No such file or directory");
    CHECK(Error{0, "Not allowed", {}, {}, {}}.message() == "Not allowed");
    CHECK(Error{0, {}, "lo", {}, {}}.message() == "lo");
    CHECK(Error{ENOENT, {}, "/x", {}, {}}.message() == "/x: No such file or directory");
    CHECK(Error{}.message().empty());
}

TEST_CASE("error: an operation that ends with a blank shows an empty object")
{
    CHECK(Error{ENOENT, "execvp ", {}, {}, {}}.message() == "execvp : No such file or directory");
}

TEST_CASE("error: fail() keeps the errno, refuse() has none")
{
    const tl::unexpected<Error> failed = fail("op", EPERM, "object", "hint");
    CHECK(failed.value().err == EPERM);
    CHECK(failed.value().message() == "op object: Operation not permitted (hint: hint)");
    const tl::unexpected<Error> refused = refuse("op", "object", "reason", "hint");
    CHECK(refused.value().err == 0);
    CHECK(refused.value().message() == "op object: reason (hint: hint)");
}

TEST_CASE("error: TRY hands the value on, or returns the first error as it is")
{
    CHECK(quarter(12) == 3);
    const Result<int> odd = quarter(6);
    REQUIRE_FALSE(odd.has_value());
    CHECK(odd.error().message() == "Can't halve 3: Numerical argument out of domain");
    CHECK(small_half(8) == 4);
    const Result<int> large = small_half(12);
    REQUIRE_FALSE(large.has_value());
    CHECK(large.error().message() == "Too large 12");
}
