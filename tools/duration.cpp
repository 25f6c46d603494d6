#include "duration.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

namespace nsbox::tool {

namespace {

constexpr std::pair<const char*, std::int64_t> units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(const std::string& text)
{
    // No sign, no exponent, no "inf".
    const std::size_t digits = text.find_first_not_of("0123456789.");
    const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
    const char* const end = text.data() + text.size() - unit.size();
    double number = 0;
    const auto result = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (result.ec != std::errc{} || result.ptr != end)
        return std::nullopt;
    for (const auto& [name, factor] : units) {
        if (unit != name)
            continue;
        constexpr double most = 10.0 * 366 * 86400000;
        const double time = std::ceil(number * static_cast<double>(factor));
        if (time < 1 || time > most)
            return std::nullopt;
        return std::chrono::milliseconds{static_cast<std::int64_t>(time)};
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
