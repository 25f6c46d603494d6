#pragma once

#include <tl/expected.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace nsbox {

/// Text that lives as long as the program: it converts from string literals only, so an
/// Error can never point at a temporary.
class Literal {
public:
    constexpr Literal() noexcept = default;
    template <std::size_t N>
    // NOLINTNEXTLINE(google-explicit-constructor): the conversion is the purpose.
    constexpr Literal(const char (&text)[N]) noexcept : text_(text, N - 1)
    {}
    constexpr std::string_view view() const noexcept { return text_; }
    constexpr bool empty() const noexcept { return text_.empty(); }

private:
    std::string_view text_;
};

/// How far a sandbox had come when it failed.
enum class Phase {
    request,  ///< What was asked for is not possible.
    set_up,   ///< The sandbox could not be built.
    execute,  ///< The command could not be executed.
};

/// Why an operation failed. Built where the failure was seen, printed once, by the program
/// that uses the library. Plain value; owns its strings.
struct Error {
    int err = 0;         ///< Positive errno value; 0 when nsbox itself refused.
    Literal op;          ///< What was tried, as the beginning of a sentence: "Can't mkdir".
    std::string object;  ///< What it was tried on: a path, "lo", a pair of paths.
    std::string reason;  ///< Said in place of the errno's text where that would mislead.
    std::string hint;    ///< What the user can do about it; may be empty.
    int signal = 0;      ///< The signal that ended the sandbox before the command started, or 0.
    Phase phase = Phase::set_up;
    bool timed_out = false;  ///< Limits::time was over before the command started.

    /// One line without a final newline: `op object: reason (hint: ...)`.
    std::string message() const;
};

/// The value, or why there is none. Never carries an exception.
template <class T = void>
using Result = tl::expected<T, Error>;

}  // namespace nsbox

#pragma GCC visibility pop
