#include "duration.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace nsbox::tool {

namespace {

constexpr std::pair<const char*, std::int64_t> units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

constexpr std::int64_t most = std::int64_t{10} * 366 * 86400000;

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/// Thousandths of a second, rounded up; -1 where it is no number or too large a one. Without floating
/// point, whose conversions would be the largest part of this program.
std::int64_t scale(const std::string& number, std::int64_t factor)
{
    std::int64_t whole = 0;
    std::size_t at = 0;
    for (; at < number.size() && is_digit(number[at]); ++at) {
        whole = whole * 10 + (number[at] - '0');
        if (whole > most)
            return -1;
    }
    const bool has_whole = at > 0;
    if (at < number.size() && number[at++] != '.')
        return -1;
    if (!has_whole && at == number.size())
        return -1;
    std::int64_t fraction = 0;
    std::int64_t divisor = 1;
    for (; at < number.size(); ++at) {
        if (!is_digit(number[at]))
            return -1;
        constexpr std::int64_t finest = 10000000000;
        if (divisor < finest) {
            divisor *= 10;
            fraction = fraction * 10 + (number[at] - '0');
        } else if (number[at] != '0') {
            ++fraction;  // Never less than what was asked for.
            break;
        }
    }
    if (number.find_first_not_of("0123456789", at) != std::string::npos || whole > most / factor)
        return -1;
    return whole * factor + (fraction * factor + divisor - 1) / divisor;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(const std::string& text)
{
    // No sign, no exponent, no "inf".
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string unit = text.substr(digits);
    for (const auto& [name, factor] : units) {
        if (unit != name)
            continue;
        const std::int64_t time = scale(text.substr(0, digits), factor);
        if (time < 1 || time > most)
            return std::nullopt;
        return std::chrono::milliseconds{time};
    }
    return std::nullopt;
}

std::string say_duration(std::chrono::milliseconds time)
{
    const std::int64_t count = time.count();
    if (count < 1000)
        return std::to_string(count) + " ms";
    if (count % 60000 == 0)
        return std::to_string(count / 60000) + " min";
    std::string text = std::to_string(count / 1000);
    if (count % 1000 != 0) {
        const std::string fraction = std::to_string(1000 + count % 1000).substr(1);
        text += "." + fraction.substr(0, fraction.find_last_not_of('0') + 1);
    }
    return text + " s";
}

}  // namespace nsbox::tool
