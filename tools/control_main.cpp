#include "control_main.hpp"

#include "files.hpp"
#include "messages.hpp"
#include "network_options.hpp"
#include "orphans.hpp"
#include "signals.hpp"
#include "window.hpp"

#include "nsbox/remote.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <linux/close_range.h>
#include <optional>
#include <sys/syscall.h>
#include <unistd.h>

namespace nsbox::tool {

namespace {

using Words = std::vector<std::string>;

int complain(const std::string& text)
{
    Messages{"nsbox"}.error(text);
    return control_failed;
}

/// The value of an option: behind "=", or the next word.
class Options {
public:
    explicit Options(const Words& words) : words_(words) {}

    /// The next option, without its value; nothing at the first word that is none.
    std::optional<std::string> next()
    {
        if (at_ >= words_.size() || words_[at_].empty() || words_[at_][0] != '-')
            return std::nullopt;
        const std::string& word = words_[at_++];
        if (word == "--")
            return std::nullopt;
        const std::size_t equals = word.find('=');
        value_.reset();
        if (equals != std::string::npos)
            value_ = word.substr(equals + 1);
        return word.substr(0, equals);
    }
    std::optional<std::string> value()
    {
        if (value_)
            return value_;
        if (at_ >= words_.size())
            return std::nullopt;
        return words_[at_++];
    }
    Words rest() const { return {words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end()}; }

private:
    const Words& words_;
    std::size_t at_ = 0;
    std::optional<std::string> value_;
};

/// A signal by number or name, with or without SIG.
std::optional<int> parse_signal(const std::string& text)
{
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    if (result.ec == std::errc{} && result.ptr == end)
        return number > 0 && number <= SIGRTMAX ? std::optional{number} : std::nullopt;
    const std::string name = text.rfind("SIG", 0) == 0 ? text.substr(3) : text;
    for (int signal = 1; signal < NSIG; ++signal) {
        const char* const known = ::sigabbrev_np(signal);
        if (known != nullptr && name == known)
            return signal;
    }
    return std::nullopt;
}

Result<Remote> find(const Words& words, const char* usage)
{
    if (words.size() != 1)
        return tl::make_unexpected(Error{0, "usage:", usage, {}, {}});
    return Remote::find(words[0]);
}

}  // namespace

namespace {

constexpr const char* exec_usage =
    "nsbox exec [--pty|--no-pty] [--pty-size COLUMNSxROWS] [--chdir DIR] [--setenv NAME VALUE] "
    "SANDBOX [--] COMMAND [ARGUMENT...]";

struct ExecRequest {
    Entry entry;
    std::optional<bool> terminal;
    std::optional<WindowSize> window;
    std::string sandbox;
};

/// Takes one option; what is wrong with it, or an empty text.
std::string take_exec_option(const std::string& option, Options& options, ExecRequest& request)
{
    if (option == "--pty" || option == "--no-pty") {
        request.terminal = option == "--pty";
        return {};
    }
    const std::optional<std::string> value = options.value();
    if (!value)
        return option + " takes an argument";
    if (option == "--chdir") {
        request.entry.directory = value;
    } else if (option == "--setenv") {
        const std::optional<std::string> text = options.value();
        if (!text || value->empty() || value->find('=') != std::string::npos)
            return "--setenv takes a name, without \"=\", and a value";
        request.entry.environment.push_back({EnvironmentEdit::Kind::set, *value, *text});
    } else if (option == "--pty-size") {
        request.window = parse_window_size(*value);
        request.terminal = true;
        if (!request.window)
            return "--pty-size takes COLUMNSxROWS, as in 80x24, not \"" + *value + "\"";
    } else {
        return "unknown option " + option;
    }
    return {};
}

std::optional<ExecRequest> parse_exec(const Words& words)
{
    ExecRequest request;
    Options options{words};
    for (std::optional<std::string> option; (option = options.next());)
        if (const std::string wrong = take_exec_option(*option, options, request); !wrong.empty()) {
            complain(wrong + " (hint: " + exec_usage + ")");
            return std::nullopt;
        }
    Words rest = options.rest();
    if (rest.size() > 1 && rest[1] == "--")
        rest.erase(rest.begin() + 1);
    if (rest.size() < 2) {
        complain(std::string{"usage: "} + exec_usage);
        return std::nullopt;
    }
    request.sandbox = rest[0];
    request.entry.command.assign(rest.begin() + 1, rest.end());
    return request;
}

}  // namespace

namespace {

int execute(const Remote& remote, const ExecRequest& request, const Watch& watch)
{
    Result<Sandbox> command = remote.execute(request.entry, watch);
    if (!command) {
        complain(command.error().message());
        return failure_status(command.error());
    }
    const Result<ExitStatus> status = command->wait();
    return status ? status->shell_code() : complain(status.error().message());
}

}  // namespace

int exec_main(const Words& words)
{
    std::optional<ExecRequest> request = parse_exec(words);
    if (!request)
        return control_failed;
    const Result<Remote> remote = Remote::find(request->sandbox);
    if (!remote)
        return complain(remote.error().message());
    Watch watch;
    // By default as the caller has it: a terminal for a terminal.
    if (request->terminal.value_or(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0)) {
        request->entry.terminal = window_for(request->window);
        watch.input = STDIN_FILENO;
        watch.output = STDOUT_FILENO;
    }
    // What the caller has open is not for the sandbox.
    ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    watch.signals = take_signals();
    if (*watch.signals < 0)
        return complain(std::string{"signalfd: "} + ::strerrordesc_np(errno));
    // In a sandbox without a pid namespace nobody else holds what the command leaves behind.
    const std::optional<Orphans> orphans = Orphans::adopt();
    if (!orphans)
        return complain(std::string{"prctl(PR_SET_CHILD_SUBREAPER): "} + ::strerrordesc_np(errno));
    const int code = execute(*remote, *request, watch);
    orphans->end();
    return code;
}

namespace {

std::string pad(const std::string& text, std::size_t width)
{
    return text + std::string(text.size() < width ? width - text.size() : 0, ' ') + "  ";
}

/// A word as it can be shown on a line: what a terminal might take as an order is replaced.
std::string printable(const std::string& text)
{
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const auto byte = [&](std::size_t i) {
            return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
        };
        // U+0080 to U+009F in UTF-8: the orders of a terminal that are not in ASCII.
        const bool is_wide_order = byte(at) == 0xc2 && byte(at + 1) >= 0x80 && byte(at + 1) < 0xa0;
        out += byte(at) < 0x20 || byte(at) == 0x7f || is_wide_order ? '?' : text[at];
        at += is_wide_order ? 1 : 0;
    }
    return out;
}

std::string age(std::int64_t started)
{
    const std::int64_t seconds = std::max<std::int64_t>(0, ::time(nullptr) - started);
    if (seconds < 120)
        return std::to_string(seconds) + " s";
    if (seconds < 7200)
        return std::to_string(seconds / 60) + " min";
    return std::to_string(seconds / 3600) + " h";
}

std::string table(const std::vector<SandboxInfo>& all)
{
    std::size_t name_width = 4;
    for (const SandboxInfo& info : all)
        name_width = std::max(name_width, info.name.size());
    std::string text =
        pad("ID", 16) + pad("NAME", name_width) + pad("PID", 8) + pad("AGE", 8) + "COMMAND\n";
    for (const SandboxInfo& info : all) {
        if (info.id.empty()) {
            text += pad("-", 16) + pad(printable(info.name), name_width) + "(stopped)\n";
            continue;
        }
        text += pad(info.id, 16) + pad(printable(info.name), name_width) +
                pad(std::to_string(info.command > 0 ? info.command : info.child), 8) +
                pad(age(info.started), 8);
        for (std::size_t i = 0; i < info.words.size(); ++i)
            text += (i > 0 ? " " : "") + printable(info.words[i]);
        text += '\n';
    }
    return text;
}

}  // namespace

int ps_main(const Words& words)
{
    const bool as_json = words == Words{"--json"};
    if (!words.empty() && !as_json)
        return complain("usage: nsbox ps [--json]");
    const Result<std::vector<SandboxInfo>> all = list_sandboxes();
    if (!all)
        return complain(all.error().message());
    std::string text;
    if (as_json)
        for (const SandboxInfo& info : *all)
            text += to_json(info) + "\n";
    else
        text = table(*all);
    write_out(STDOUT_FILENO, text);
    return 0;
}

int kill_main(const Words& words)
{
    Options options{words};
    std::optional<int> signal;
    for (std::optional<std::string> option; (option = options.next());) {
        const std::optional<std::string> value = options.value();
        if ((*option != "--signal" && *option != "-s") || !value)
            return complain("usage: nsbox kill [--signal SIGNAL] SANDBOX");
        signal = parse_signal(*value);
        if (!signal)
            return complain("no signal is called " + *value);
    }
    const Result<Remote> remote = find(options.rest(), "nsbox kill [--signal SIGNAL] SANDBOX");
    if (!remote)
        return complain(remote.error().message());
    const Result<> done = signal ? remote->signal(*signal) : remote->kill();
    return done ? 0 : complain(done.error().message());
}

namespace {

constexpr const char* port_usage =
    "nsbox port ls [--json] SANDBOX | nsbox port add|rm SANDBOX [--host-socket] PORT...";

std::string table(const std::vector<PublishedPort>& ports)
{
    std::size_t width = 4;
    for (const PublishedPort& port : ports)
        width = std::max(width, place_of(port).size());
    std::string text = pad("HOST", width) + pad("", 2) + "SANDBOX\n";
    for (const PublishedPort& port : ports) {
        const bool leads_out = port.kind == PublishedPort::Kind::host_socket;
        text += pad(printable(place_of(port)), width) + pad(leads_out ? "<-" : "->", 2) +
                (port.to_loopback || leads_out ? "localhost:" : "") + std::to_string(port.inside) +
                "\n";
    }
    return text;
}

int list_ports(const Words& words)
{
    Options options{words};
    bool as_json = false;
    for (std::optional<std::string> option; (option = options.next());) {
        as_json = *option == "--json";
        if (!as_json)
            return complain(std::string{"usage: "} + port_usage);
    }
    const Result<Remote> remote = find(options.rest(), port_usage);
    if (!remote)
        return complain(remote.error().message());
    const Result<std::vector<PublishedPort>> ports = remote->ports();
    if (!ports)
        return complain(ports.error().message());
    std::string text;
    if (as_json)
        for (const PublishedPort& port : *ports)
            text += to_json(port) + "\n";
    else
        text = table(*ports);
    write_out(STDOUT_FILENO, text);
    return 0;
}

/// The ports that are named behind a sandbox; or what is wrong with one.
std::optional<std::string> parse_port_words(const Words& words, bool is_place,
                                            std::vector<PublishedPort>& ports)
{
    for (std::size_t i = 1; i < words.size(); ++i) {
        PublishedPort port;
        const bool is_socket = words[i] == "--host-socket";
        if (is_socket && ++i == words.size())
            return "--host-socket takes an argument";
        const bool is_number = words[i].find(':') == std::string::npos;
        std::optional<std::string> wrong =
            is_socket  ? parse_host_socket((is_place && is_number ? "-:" : "") + words[i], port)
            : is_place ? parse_place(words[i], port)
                       : parse_published(words[i], port);
        if (wrong)
            return wrong;
        // The supervisor's working directory is another one.
        if (!port.path.empty() && port.path[0] != '/')
            port.path = working_directory() + "/" + port.path;
        ports.push_back(std::move(port));
    }
    return std::nullopt;
}

int change_ports(const Words& words, bool add)
{
    std::vector<PublishedPort> ports;
    if (words.size() < 2)
        return complain(std::string{"usage: "} + port_usage);
    if (const std::optional<std::string> wrong = parse_port_words(words, !add, ports))
        return complain(*wrong);
    const Result<Remote> remote = Remote::find(words[0]);
    if (!remote)
        return complain(remote.error().message());
    for (const PublishedPort& port : ports) {
        if (!add) {
            if (const Result<> removed = remote->remove_port(port); !removed)
                return complain(removed.error().message());
            continue;
        }
        const Result<PublishedPort> added = remote->add_port(port);
        if (!added)
            return complain(added.error().message());
        write_out(STDOUT_FILENO, say_port(*added) + "\n");
    }
    return 0;
}

}  // namespace

int port_main(const Words& words)
{
    const std::string what = words.empty() ? "" : words[0];
    const Words rest = words.empty() ? words : Words(words.begin() + 1, words.end());
    if (what == "ls")
        return list_ports(rest);
    if (what == "add" || what == "rm")
        return change_ports(rest, what == "add");
    return complain(std::string{"usage: "} + port_usage);
}

int wait_main(const Words& words)
{
    const Result<Remote> remote = find(words, "nsbox wait SANDBOX");
    if (!remote)
        return complain(remote.error().message());
    const Result<ExitStatus> status = remote->wait();
    return status ? status->shell_code() : complain(status.error().message());
}

}  // namespace nsbox::tool
