#include "runtime/denials/record.hpp"

#include "runtime/events.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace nsbox::runtime {

namespace {

/// A line of six such texts is shorter than PIPE_BUF, though a byte of a text may take six.
std::string short_text(const std::string& text)
{
    constexpr std::size_t widest = 512;
    std::string json = json_text(text);
    for (std::size_t size = widest - 8; json.size() > widest; size /= 2)
        json = json_text(text.substr(0, size) + "...");
    return json;
}

std::string text_or_null(const std::string& text)
{
    return text.empty() ? "null" : short_text(text);
}

}  // namespace

std::string members_of(const Record& record)
{
    const Refusal& refusal = record.refusal;
    const char* const error = ::strerrorname_np(refusal.error);
    const auto member = [](const char* name, const std::string& value) {
        return std::string{", \""} + name + "\": " + value;
    };
    return "\"kind\": \"" + record.kind + '"' + member("call", short_text(record.call)) +
           member("arguments", '"' + record.arguments + '"') +
           member("object", text_or_null(refusal.object)) +
           member("errno", error != nullptr && refusal.error != 0 ? '"' + std::string{error} + '"'
                                                                  : "null") +
           member("reason", short_text(refusal.reason)) +
           member("wall", '"' + std::string{refusal.wall} + '"') +
           member("option", text_or_null(refusal.option)) +
           member("estimated", record.is_estimate ? "true" : "false") +
           member("pid", record.pid > 0 ? std::to_string(record.pid) : "null") +
           member("program", text_or_null(record.program)) +
           member("executable", text_or_null(record.executable));
}

std::string stamped(const std::string& members, const DenialContext& context)
{
    using std::chrono::milliseconds;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto all = std::chrono::duration_cast<milliseconds>(now).count();
    const std::time_t seconds = all / 1000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>(all % 1000));
    return "{\"sandbox\": \"" + context.sandbox + "\", \"time\": \"" + text + "\", " + members +
           "}\n";
}

std::string arguments_of(const seccomp_data& call)
{
    std::size_t count = 6;
    while (count > 0 && call.args[count - 1] == 0)
        --count;
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        char number[32];
        std::snprintf(number, sizeof number, "%s0x%llx", i == 0 ? "" : ", ",
                      static_cast<unsigned long long>(call.args[i]));
        text += number;
    }
    return text;
}

}  // namespace nsbox::runtime
