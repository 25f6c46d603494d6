#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace nsbox::runtime {

/// Keeps a log of denials small: what is the same again is counted and told once a second, what is new is
/// told at once as long as there is not too much of it. Its memory is bounded. Time is the caller's.
class Digest {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t most_a_second = 100;
    static constexpr std::size_t most_known = 1024;

    /// What to write now. `compose` makes the members of the line's JSON object and is called where
    /// they are needed; `key` is what makes two denials the same.
    std::vector<std::string> add(const std::string& key,
                                 const std::function<std::string()>& compose,
                                 Clock::time_point now);
    /// What has been counted and is due.
    std::vector<std::string> due(Clock::time_point now);
    /// All that is left, at the end.
    std::vector<std::string> rest();
    /// When due() has something, if it ever will.
    std::optional<Clock::time_point> next() const;
    /// A line could not be written.
    void lost(std::uint64_t lines = 1) { lost_ += lines; }

private:
    struct Entry {
        std::string line;
        std::uint64_t repeated = 0;
    };

    void begin_second(Clock::time_point now);
    void tell_counts(std::vector<std::string>& lines, std::size_t most);

    std::unordered_map<std::string, Entry> known_;
    std::vector<std::string> counted_;  ///< Keys of entries that were repeated.
    std::optional<Clock::time_point> second_;
    std::size_t written_ = 0;  ///< In this second.
    std::uint64_t lost_ = 0;
};

}  // namespace nsbox::runtime
