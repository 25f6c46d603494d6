#include "runtime/denials/digest.hpp"

#include <algorithm>
#include <limits>

namespace nsbox::runtime {

namespace {

constexpr std::chrono::seconds one_second{1};

}  // namespace

void Digest::begin_second(Clock::time_point now)
{
    if (second_ && now - *second_ < one_second)
        return;
    second_ = now;
    written_ = 0;
}

void Digest::tell_counts(std::vector<std::string>& lines, std::size_t most)
{
    std::size_t told = 0;
    for (; told < counted_.size() && told < most; ++told) {
        Entry& entry = known_[counted_[told]];
        lines.push_back(entry.line + ", \"repeated\": " + std::to_string(entry.repeated));
        entry.repeated = 0;
    }
    counted_.erase(counted_.begin(), counted_.begin() + static_cast<std::ptrdiff_t>(told));
    if (lost_ > 0)
        lines.push_back("\"kind\": \"lost\", \"lines\": " + std::to_string(lost_));
    lost_ = 0;
}

std::vector<std::string> Digest::add(const std::string& key,
                                     const std::function<std::string()>& compose,
                                     Clock::time_point now)
{
    std::vector<std::string> lines = due(now);
    begin_second(now);
    if (const auto it = known_.find(key); it != known_.end()) {
        if (it->second.repeated++ == 0)
            counted_.push_back(key);
        return lines;
    }
    if (written_ >= most_a_second) {
        ++lost_;
        return lines;
    }
    if (known_.size() >= most_known) {
        tell_counts(lines, std::numeric_limits<std::size_t>::max());
        known_.clear();
    }
    ++written_;
    lines.push_back(known_.emplace(key, Entry{compose()}).first->second.line);
    return lines;
}

std::vector<std::string> Digest::due(Clock::time_point now)
{
    std::vector<std::string> lines;
    const std::optional<Clock::time_point> time = next();
    if (!time || now < *time)
        return lines;
    begin_second(now);
    tell_counts(lines, most_a_second - written_);
    written_ = std::min(written_ + lines.size(), most_a_second);
    return lines;
}

std::vector<std::string> Digest::rest()
{
    std::vector<std::string> lines;
    tell_counts(lines, std::numeric_limits<std::size_t>::max());
    return lines;
}

std::optional<Digest::Clock::time_point> Digest::next() const
{
    if ((counted_.empty() && lost_ == 0) || !second_)
        return std::nullopt;
    return *second_ + one_second;
}

}  // namespace nsbox::runtime
