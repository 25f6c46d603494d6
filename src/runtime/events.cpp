#include "runtime/events.hpp"

#include "runtime/status.hpp"
#include "sys/raw.hpp"

#include <array>
#include <poll.h>

namespace nsbox::runtime {

namespace {

std::string random_id()
{
    std::array<unsigned char, 8> bytes{};
    // Filled at once: see getrandom(2) on sizes up to 256.
    (void)sys::raw::call(SYS_getrandom, bytes.data(), bytes.size(), 0);
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

/// The length of the UTF-8 sequence at `at`, or 0 where there is none: RFC 3629.
std::size_t sequence_length(const std::string& text, std::size_t at)
{
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const unsigned first = byte(at);
    if (first < 0x80)
        return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(at + i) & 0xc0) != 0x80)
            return 0;
    const unsigned second = byte(at + 1);
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
    return overlong || beyond ? 0 : length;
}

std::string number(const char* key, std::uint64_t value)
{
    return std::string{", \""} + key + "\": " + std::to_string(value);
}

const char* reason_of(const ExitStatus& status)
{
    switch (status.reason) {
    case Reason::time_limit:
        return "timeout";
    case Reason::cpu_limit:
        return "cpu-time";
    case Reason::caller_ended:
        return "caller-ended";
    case Reason::killed:
        return "killed";
    case Reason::network_failed:
        return "network-failed";
    case Reason::sandbox_ended:
        return "sandbox-ended";
    case Reason::out_of_memory:
        return "out-of-memory";
    default:
        return status.signal != 0 ? "signaled" : "exited";
    }
}

const char* phase_of(const Error& error)
{
    switch (error.phase) {
    case Phase::request:
        return "request";
    case Phase::execute:
        return "execute";
    default:
        return "set-up";
    }
}

const char* failure_reason(const Error& error)
{
    if (error.timed_out)
        return "timeout";
    if (error.signal != 0)
        return "interrupted";
    return error.phase == Phase::execute ? "exec-failed" : "setup-failed";
}

}  // namespace

std::string json_text(const std::string& text)
{
    std::string out = "\"";
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = sequence_length(text, at);
        const auto c = static_cast<unsigned char>(text[at]);
        if (length == 0) {
            out += "\\ufffd";
        } else if (c == '"' || c == '\\') {
            out += {'\\', text[at]};
        } else if (c < 0x20 || c == 0x7f) {
            constexpr const char* digits = "0123456789abcdef";
            out += "\\u00";
            out += digits[c >> 4];
            out += digits[c & 15];
        } else {
            out.append(text, at, length);
        }
        at += length == 0 ? 1 : length;
    }
    return out + '"';
}

Events::Events(int fd) : fd_(fd), id_(random_id()) {}

std::string members_of(const PublishedPort& port)
{
    using Kind = PublishedPort::Kind;
    const auto kind = [&](const char* name) {
        return std::string{"\"protocol\": \""} + name + '"';
    };
    const std::string inside = number("port", port.inside);
    if (port.kind == Kind::unix_socket || port.kind == Kind::host_socket)
        return kind(port.kind == Kind::unix_socket ? "unix-socket" : "host-socket") +
               ", \"path\": " + json_text(port.path) + inside;
    return kind(port.kind == Kind::udp ? "udp" : "tcp") +
           ", \"address\": " + (port.address.empty() ? "null" : json_text(port.address)) +
           number("host-port", port.outside) + inside;
}

void Events::write(const std::string& members) const
{
    // A reader that does not read must not hold the sandbox up: what it misses is lost to it.
    constexpr int patience = 1000;  // Milliseconds.
    pollfd fd{fd_, POLLOUT, 0};
    if (fd_ >= 0 && ::poll(&fd, 1, patience) > 0)
        (void)write_quietly(fd_, "{\"sandbox\": \"" + id_ + "\", " + members + "}\n");
}

void Events::started(pid_t child, pid_t command, const NamespaceReport& report,
                     const std::string& group) const
{
    std::string namespaces;
    for (std::size_t i = 0; i < namespace_count; ++i)
        if (report.inodes[i] != 0)
            namespaces += std::string{namespaces.empty() ? "\"" : ", \""} + namespace_names[i] +
                          "\": " + std::to_string(report.inodes[i]);
    write("\"event\": \"started\"" + number("child-pid", static_cast<std::uint64_t>(child)) +
          (command > 0 ? number("command-pid", static_cast<std::uint64_t>(command)) : "") +
          (group.empty() ? "" : ", \"control-group\": " + json_text(group)) +
          ", \"namespaces\": {" + namespaces + "}");
}

void Events::note(const std::string& text) const
{
    write("\"event\": \"note\", \"message\": " + json_text(text));
}

void Events::network(const net::HelperClient& helper) const
{
    const net::user::LinkReport& link = helper.link();
    const std::string begin = "\"event\": \"network\", \"mode\": ";
    const std::string end = std::string{", \"ipv6\": "} + (link.ipv6 ? "true" : "false");
    if (link.kind != net::user::LinkKind::routed) {
        const bool tap = link.kind == net::user::LinkKind::tap;
        const bool relay = link.tcp == net::user::TcpPath::relay;
        write(begin + "\"user\", \"link\": \"" + (tap ? "tap" : "veth") + "\", \"tcp\": \"" +
              (relay ? "relay" : "slirp") + '"' + end);
        return;
    }
    const auto text_or_null = [](const std::string& text) {
        return text.empty() ? std::string{"null"} : json_text(text);
    };
    write(begin + "\"veth\", \"interface\": " + json_text(link.interface) + ", \"address\": " +
          json_text(link.address) + ", \"address6\": " + text_or_null(link.address6) +
          ", \"gateway\": " + text_or_null(link.gateway) + end);
}

void Events::port(const PublishedPort& port) const
{
    write("\"event\": \"port\", " + members_of(port));
}

void Events::port_removed(const PublishedPort& port) const
{
    write("\"event\": \"port-removed\", " + members_of(port));
}

void Events::network_failed(const Error& error) const
{
    write("\"event\": \"network-failed\", \"message\": " + json_text(error.message()));
}

void Events::limit(const char* which, int signal) const
{
    write(std::string{"\"event\": \"limit\", \"limit\": \""} + which + '"' +
          number("signal", static_cast<std::uint64_t>(signal)));
}

void Events::out_of_memory(std::uint64_t kills) const
{
    write("\"event\": \"out-of-memory\"" + number("kills", kills));
}

void Events::failed(const Error& error) const
{
    write(std::string{"\"event\": \"failed\", \"phase\": \""} + phase_of(error) + '"' +
          number("errno", static_cast<std::uint64_t>(error.err)) +
          ", \"message\": " + json_text(error.message()));
    const std::string signal = error.signal != 0 ? std::to_string(error.signal) : "null";
    write("\"event\": \"exit\", \"code\": null, \"signal\": " + signal + ", \"reason\": \"" +
          failure_reason(error) + '"');
}

void Events::exited(const ExitStatus& status) const
{
    const bool by_signal = status.signal != 0;
    write("\"event\": \"exit\", \"code\": " + (by_signal ? "null" : std::to_string(status.code)) +
          ", \"signal\": " + (by_signal ? std::to_string(status.signal) : "null") +
          ", \"reason\": \"" + reason_of(status) + '"' +
          number("user-us", static_cast<std::uint64_t>(status.usage.user.count())) +
          number("system-us", static_cast<std::uint64_t>(status.usage.system.count())) +
          number("max-rss-kib", status.usage.max_rss_kib));
}

}  // namespace nsbox::runtime
