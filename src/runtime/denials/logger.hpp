#pragma once

#include "runtime/denials/context.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <pthread.h>
#include <vector>

namespace nsbox::runtime {

/// The filters by which a log of denials gets to know of calls, in place of `filters`: the first is to be
/// loaded with a listener.
std::vector<std::vector<std::uint8_t>> logged_filters(
    const std::vector<std::vector<std::uint8_t>>& filters,
    const std::array<std::uint64_t, 3>& pass);

/// Answers the listener of the command's filter in a thread of its own, and writes down what is refused. A
/// reader that is gone, or does not read, loses lines, and nothing waits for it.
class DenialLogger {
public:
    /// `filters` are those that decide; the listener is asked about what they refuse.
    static Result<std::unique_ptr<DenialLogger>> start(
        sys::Fd listener, const DenialContext& context,
        const std::vector<std::vector<std::uint8_t>>& filters);
    DenialLogger(const DenialLogger&) = delete;
    DenialLogger& operator=(const DenialLogger&) = delete;
    /// As finish().
    ~DenialLogger();

    /// When the sandbox has ended: writes what is left, for which it waits a second at most.
    void finish();
    /// That are to stay open.
    std::vector<int> descriptors() const;

private:
    struct State;
    explicit DenialLogger(std::shared_ptr<State> state) : state_(std::move(state)) {}

    std::shared_ptr<State> state_;
    std::optional<pthread_t> thread_;
};

}  // namespace nsbox::runtime
