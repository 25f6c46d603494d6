#pragma once

#include "nsbox/error.hpp"

#include <type_traits>
#include <utility>

namespace nsbox {

/// Makes the failed half of a Result.
inline tl::unexpected<Error> fail(Literal op, int err, std::string object = {},
                                  std::string hint = {})
{
    return tl::unexpected<Error>{Error{err, op, std::move(object), {}, std::move(hint)}};
}

/// As fail(), for what nsbox itself refuses: there is no errno, the reason is in words.
inline tl::unexpected<Error> refuse(Literal op, std::string object = {}, std::string reason = {},
                                    std::string hint = {})
{
    return tl::unexpected<Error>{
        Error{0, op, std::move(object), std::move(reason), std::move(hint)}};
}

namespace detail {

template <class T>
T take(tl::expected<T, Error>&& result)
{
    if constexpr (!std::is_void_v<T>)
        return std::move(*result);
}

}  // namespace detail
}  // namespace nsbox

/// Unwraps a Result or returns its Error to the caller. Never use it in code that runs after
/// clone3: a return there would climb into the parent's frames.
#define TRY(...)                                                          \
    __extension__({                                                       \
        auto&& try_result_ = (__VA_ARGS__);                               \
        if (!try_result_) [[unlikely]]                                    \
            return ::tl::make_unexpected(std::move(try_result_).error()); \
        ::nsbox::detail::take(std::move(try_result_));                    \
    })
