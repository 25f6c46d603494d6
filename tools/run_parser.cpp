#include "run_parser.hpp"

#include "files.hpp"

#include "nsbox/document.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nsbox::tool {

namespace {

using Words = std::vector<std::string>;

enum class RunOpt {
    help,
    rootfs,
    overlay,
    ro,
    rw,
    work_dir,
    cwd,
    env,
    env_file,
    shell,
    script,
    interpreter,
    root,
    no_pty,
    fallback,
    keep_fd,
    verbose,
    dry_run,
    spec,
};

enum class Takes { nothing, value, optional_value };

struct RunOption {
    RunOpt opt;
    const char* name;
    Takes takes;
    const char* argument;
    const char* text;
};

// clang-format off
constexpr RunOption table[] = {
    {RunOpt::spec, "--spec", Takes::value, "FILE|-", "First option: begin with what this document says (JSON, see\nnsbox spec help)"},
    {RunOpt::rootfs, "--rootfs", Takes::value, "NAME|FILE|DIR", "Run in this root filesystem: one of nsbox rootfs, an\narchive (which is imported) or a folder"},
    {RunOpt::overlay, "--overlay", Takes::optional_value, "[=DIR]", "Let the command change it; the changes are kept in DIR,\nor lost at the end"},
    {RunOpt::ro, "--ro", Takes::value, "PATH[:DEST]", "Show a file or folder of yours, read-only"},
    {RunOpt::rw, "--rw", Takes::value, "PATH[:DEST]", "Show one that the command may change (--rw .)"},
    {RunOpt::work_dir, "--work-dir", Takes::value, "DIR", "Keep the home /home/sandbox in DIR"},
    {RunOpt::cwd, "--cwd", Takes::value, "DIR", "The working directory, inside"},
    {RunOpt::env, "--env", Takes::value, "NAME[=VALUE]", "Set a variable; by its name alone, to your value"},
    {RunOpt::env_file, "--env-file", Takes::value, "FILE", "Set variables out of lines of NAME=VALUE or NAME"},
    {RunOpt::shell, "--shell", Takes::value, "STRING", "Have sh run STRING; the words that follow are $1, $2 ..."},
    {RunOpt::script, "--script", Takes::value, "FILE|-", "Run this script; the words that follow are its arguments"},
    {RunOpt::interpreter, "--interpreter", Takes::value, "PROGRAM", "What runs it (its first line says so, or its name)"},
    {RunOpt::root, "--root", Takes::nothing, "", "Be uid 0 with what installing packages takes, over the\nsandbox's own ids"},
    {RunOpt::no_pty, "--no-pty", Takes::nothing, "", "No terminal of the sandbox's own, though yours is one"},
    {RunOpt::fallback, "--fallback", Takes::value, "landlock", "Where the host forbids namespaces, run under Landlock\nonly, as with --landlock only, and say so"},
    {RunOpt::keep_fd, "--keep-fd", Takes::value, "N", "Leave the descriptor N open for the command"},
    {RunOpt::verbose, "--verbose", Takes::nothing, "", "Say what is used, on standard error"},
    {RunOpt::dry_run, "--dry-run", Takes::nothing, "", "Print what would be done, and do nothing"},
    {RunOpt::help, "--help", Takes::nothing, "", "Print this text and exit"},
};
// clang-format on

/// Options of the bwrap command line that mean the same here.
// An option a line: splitting the list would hide that it is whole.
// NOLINTNEXTLINE(readability-function-size)
bool is_shared(Opt opt)
{
    switch (opt) {
    case Opt::argv0:
    case Opt::disable_userns:
    case Opt::assert_userns_disabled:
    case Opt::uid:
    case Opt::gid:
    case Opt::hostname:
    case Opt::chdir:
    case Opt::clearenv:
    case Opt::setenv:
    case Opt::unsetenv:
    case Opt::lock_file:
    case Opt::sync_fd:
    case Opt::bind:
    case Opt::bind_try:
    case Opt::dev_bind:
    case Opt::dev_bind_try:
    case Opt::ro_bind:
    case Opt::ro_bind_try:
    case Opt::bind_fd:
    case Opt::ro_bind_fd:
    case Opt::remount_ro:
    case Opt::overlay_src:
    case Opt::tmp_overlay:
    case Opt::ro_overlay:
    case Opt::exec_label:
    case Opt::file_label:
    case Opt::proc:
    case Opt::dev:
    case Opt::tmpfs:
    case Opt::mqueue:
    case Opt::dir:
    case Opt::file:
    case Opt::bind_data:
    case Opt::ro_bind_data:
    case Opt::symlink:
    case Opt::seccomp:
    case Opt::add_seccomp_fd:
    case Opt::seccomp_policy:
    case Opt::allow_userns:
    case Opt::allow_ptrace:
    case Opt::rlimit:
    case Opt::memory:
    case Opt::pids:
    case Opt::cpus:
    case Opt::cpuset:
    case Opt::io:
    case Opt::limits:
    case Opt::nice:
    case Opt::tmpfs_size:
    case Opt::proc_fallback:
    case Opt::landlock:
    case Opt::tcp_connect:
    case Opt::tcp_bind:
    case Opt::block_fd:
    case Opt::info_fd:
    case Opt::json_status_fd:
    case Opt::die_with_parent:
    case Opt::as_pid_1:
    case Opt::cap_add:
    case Opt::cap_drop:
    case Opt::perms:
    case Opt::size:
    case Opt::chmod:
    case Opt::net:
    case Opt::host_loopback:
    case Opt::publish:
    case Opt::host_socket:
    case Opt::timeout:
    case Opt::kill_after:
    case Opt::cpu_time:
    case Opt::events_fd:
    case Opt::log_denials:
    case Opt::name:
    case Opt::pty:
    case Opt::pty_size:
        return true;
    default:
        return false;
    }
}

const RunOption* find_run_option(const std::string& name)
{
    for (const RunOption& option : table)
        if (name == option.name)
            return &option;
    return nullptr;
}

/// What --ro and --rw show, and where.
struct Shown {
    std::string source;
    std::string destination;
};

class RunParser {
public:
    explicit RunParser(Messages& messages) : messages_(messages), shared_(messages)
    {
        // What everybody gets, as far as the shared options have rules about it.
        std::size_t at = 0;
        for (const char* word : {"--unshare-all", "--unshare-user"})
            shared_.take_option({word}, at = 0);
        // A descriptor above 2 is closed unless --keep-fd names it.
        spec().kept.emplace();
        request_.request.distinct_status = true;
    }

    std::optional<RunRequest> parse(const Words& words)
    {
        std::size_t at = 0;
        while (at < words.size() && words[at].size() > 1 && words[at][0] == '-') {
            if (words[at] == "--") {
                ++at;
                break;
            }
            if (!take(words, at))
                return std::nullopt;
            if (request_.help)
                return std::move(request_);
        }
        // Where there are none, a document may have a command.
        if (at < words.size())
            spec().command.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
        if (!shared_.finish() || !check())
            return std::nullopt;
        Request request = std::move(shared_.request());
        if (request.spec.denials)
            request.spec.denials->options = DenialLog::Options::run;
        if (!request.policies.empty())
            request_.base.policies = std::move(request.policies);
        request_.base.allow_user_namespaces |= request.allow_user_namespaces;
        request_.base.allow_tracing |= request.allow_tracing;
        request_.base.landlock = request.landlock.value_or(request_.base.landlock);
        request.distinct_status = true;
        request.forward_signals = true;
        if (request.terminal)
            request_.terminal = true;
        request_.request = std::move(request);
        return std::move(request_);
    }

private:
    Spec& spec() { return shared_.request().spec; }

    bool fail(const std::string& text)
    {
        messages_.error(text);
        return false;
    }

    /// What follows comes on top of it.
    bool read_document(const std::string& name)
    {
        const std::optional<std::string> text =
            name == "-" ? read_descriptor(STDIN_FILENO) : read_file(name);
        if (!text)
            return fail("Can't read --spec " + name + ": " + ::strerrordesc_np(errno));
        Result<Document> document = parse_document(*text);
        if (!document)
            return fail("--spec " + name + ": " + document.error().message());
        shared_.begin_with(std::move(document->spec));
        request_.base = std::move(document->everyday);
        request_.rootfs = std::move(document->rootfs);
        request_.as_root = request_.base.as_root;
        return true;
    }

    bool take(const Words& words, std::size_t& at)
    {
        const std::string& word = words[at];
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const RunOption* const option = find_run_option(name);
        if (option == nullptr)
            return take_shared(words, at, name);
        std::optional<std::string> value;
        if (equals != std::string::npos)
            value = word.substr(equals + 1);
        if (option->opt == RunOpt::spec && at > 0)
            return fail("--spec has to be the first option: what follows comes on top of it");
        ++at;
        if (value && option->takes == Takes::nothing)
            return fail(name + " takes no argument");
        if (!value && option->takes == Takes::value) {
            if (at >= words.size())
                return fail(name + " takes an argument: " + option->argument);
            value = words[at++];
        }
        return apply(*option, value);
    }

    bool take_shared(const Words& words, std::size_t& at, const std::string& name)
    {
        const OptionInfo* const option = find_option(name == "-p" ? "--publish" : name);
        if (option != nullptr && is_shared(option->opt))
            return shared_.take_option(words, at);
        if (option != nullptr && option->opt == Opt::share_net)
            return fail(name + " is said as --net host here");
        if (option != nullptr)
            return fail(name + " is an option of the bwrap command line only: nsbox run has every "
                               "namespace, and walls of its own (hint: see nsbox run --help)");
        const std::string near = nearest(name);
        return fail(
            "Unknown option " + words[at] +
            (near.empty() ? " (hint: see nsbox run --help)" : " (did you mean " + near + "?)"));
    }

    static std::string nearest(const std::string& name)
    {
        for (const RunOption& option : table)
            if (name.size() > 3 && std::string_view{option.name}.starts_with(name))
                return option.name;
        return nearest_option(name);
    }

    // One case a line and an option: splitting the list would hide that it is whole.
    // NOLINTNEXTLINE(readability-function-size)
    bool apply(const RunOption& option, const std::optional<std::string>& value)
    {
        switch (option.opt) {
        case RunOpt::help:
            return request_.help = true;
        case RunOpt::spec:
            return read_document(*value);
        case RunOpt::rootfs:
            request_.rootfs = *value;
            return true;
        case RunOpt::overlay:
            request_.base.changes = value ? Everyday::Changes::kept : Everyday::Changes::temporary;
            if (value && value->empty())
                return fail("--overlay= takes a folder");
            request_.base.overlay = value.value_or("");
            return true;
        case RunOpt::ro:
            return show(*value, Access::read_only);
        case RunOpt::rw:
            return show(*value, Access::read_write);
        case RunOpt::work_dir:
            return set_work_directory(*value);
        case RunOpt::cwd:
            spec().directory = *value;
            return true;
        case RunOpt::env:
            return add_variable(*value, "--env");
        case RunOpt::env_file:
            return read_variables(*value);
        case RunOpt::shell:
            request_.shell = *value;
            return true;
        case RunOpt::script:
            request_.script = *value;
            return true;
        case RunOpt::interpreter:
            request_.interpreter = *value;
            return true;
        case RunOpt::root:
            return request_.as_root = true;
        case RunOpt::no_pty:
            request_.terminal = false;
            return true;
        case RunOpt::fallback:
            if (*value != "landlock")
                return fail("--fallback takes landlock, not '" + *value + "'");
            return request_.falls_back = true;
        case RunOpt::keep_fd:
            return keep_descriptor(*value);
        case RunOpt::verbose:
            return request_.verbose = true;
        case RunOpt::dry_run:
            return request_.dry_run = true;
        }
        return true;
    }

    bool show(const std::string& text, Access access)
    {
        const char* const name = access == Access::read_only ? "--ro" : "--rw";
        const std::optional<Shown> shown = split(text);
        if (!shown)
            return fail(std::string{"Can't show "} + text + ": " + ::strerrordesc_np(errno) +
                        " (hint: " + name + " takes PATH or PATH:DEST)");
        if (has_dots(shown->destination))
            return fail(std::string{name} + " " + text +
                        ": the destination must not have \"..\" in it");
        if (shown->destination.find_first_not_of('/') == std::string::npos)
            return fail(std::string{name} + " " + text +
                        ": it can't be the whole root (hint: --rootfs DIR is for that)");
        spec().operations.emplace_back(Bind{shown->source, shown->destination, access});
        if (shown->source == shown->destination)
            request_.shown.push_back(shown->source);
        return true;
    }

    static bool has_dots(const std::string& path)
    {
        return ("/" + path + "/").find("/../") != std::string::npos;
    }

    /// A path may have colons: what exists as it is written has no destination.
    static std::optional<Shown> split(const std::string& text)
    {
        if (const std::optional<std::string> path = absolute(text))
            return Shown{*path, *path};
        const std::size_t colon = text.rfind(":/");
        if (colon == std::string::npos) {
            errno = ENOENT;
            return std::nullopt;
        }
        const std::optional<std::string> path = absolute(text.substr(0, colon));
        if (!path)
            return std::nullopt;
        return Shown{*path, text.substr(colon + 1)};
    }

    bool set_work_directory(const std::string& text)
    {
        const std::optional<std::string> path = absolute(text);
        struct stat status;
        if (!path || ::stat(path->c_str(), &status) < 0)
            return fail("Can't use " + text + " as work directory: " + ::strerrordesc_np(errno) +
                        (errno == ENOENT ? " (hint: make it first)" : ""));
        if (!S_ISDIR(status.st_mode))
            return fail("Can't use " + text + " as work directory: it is no folder");
        request_.base.work_directory = *path;
        return true;
    }

    bool add_variable(const std::string& text, const std::string& where)
    {
        using Kind = EnvironmentEdit::Kind;
        const std::size_t equals = text.find('=');
        const std::string name = text.substr(0, equals);
        if (name.empty())
            return fail(where + ": '" + text + "' has no name of a variable");
        if (equals != std::string::npos) {
            spec().environment.push_back({Kind::set, name, text.substr(equals + 1)});
            return true;
        }
        // As in containers: what the caller has not is not set.
        const char* const value = std::getenv(name.c_str());
        spec().environment.push_back(
            {value != nullptr ? Kind::set : Kind::unset, name, value != nullptr ? value : ""});
        return true;
    }

    bool read_variables(const std::string& path)
    {
        const std::optional<std::string> text = read_file(path);
        if (!text)
            return fail("Can't read --env-file " + path + ": " + ::strerrordesc_np(errno));
        if (text->find('\0') != std::string::npos)
            return fail("--env-file " + path + ": it is no text file");
        std::size_t number = 0;
        for (std::size_t begin = 0; begin < text->size();) {
            const std::size_t end = std::min(text->find('\n', begin), text->size());
            std::string line = text->substr(begin, end - begin);
            begin = end + 1;
            ++number;
            if (line.ends_with('\r'))
                line.pop_back();
            const std::size_t first = line.find_first_not_of(" \t");
            if (first == std::string::npos || line[first] == '#')
                continue;
            if (!add_variable(line.substr(first), path + ", line " + std::to_string(number)))
                return false;
        }
        return true;
    }

    bool keep_descriptor(const std::string& text)
    {
        int fd = -1;
        const char* const end = text.data() + text.size();
        const auto result = std::from_chars(text.data(), end, fd);
        if (result.ec != std::errc{} || result.ptr != end || fd < 0)
            return fail("--keep-fd takes the number of a descriptor, not '" + text + "'");
        if (::fcntl(fd, F_GETFD) < 0)
            return fail("--keep-fd " + text + ": that descriptor is not open");
        if (fd > STDERR_FILENO)
            spec().kept->push_back(fd);
        return true;
    }

    bool check()
    {
        if (request_.shell && request_.script)
            return fail("--shell and --script are two ways to say what runs: use one");
        if (request_.interpreter && !request_.script)
            return fail("--interpreter is for --script");
        if (request_.base.changes != Everyday::Changes::refused && !request_.rootfs)
            return fail("--overlay requires --rootfs: the host's own files are never changed");
        if (request_.as_root &&
            ((spec().uid && *spec().uid != 0) || (spec().gid && *spec().gid != 0)))
            return fail("--root means --uid 0 --gid 0");
        return true;
    }

    Messages& messages_;
    BwrapParser shared_;
    RunRequest request_;
};

constexpr std::size_t column = 33;

std::string line_of(const RunOption& option)
{
    std::string line = std::string{"    "} + option.name;
    if (option.argument[0] != '\0')
        line += std::string{option.takes == Takes::value ? " " : ""} + option.argument;
    line.append(line.size() < column ? column - line.size() : 1, ' ');
    for (const char c : std::string_view{option.text}) {
        line += c;
        if (c == '\n')
            line.append(column, ' ');
    }
    return line + "\n";
}

}  // namespace

std::optional<RunRequest> parse_run(const Words& words, Messages& messages)
{
    return RunParser{messages}.parse(words);
}

std::string run_help()
{
    std::string text =
        "usage: nsbox run [OPTIONS...] [--] COMMAND [ARGUMENT...]\n"
        "\n"
        "Runs a command with your system's programs, or those of a root filesystem, read-only, "
        "and\n"
        "nothing else of yours: no files, no network, no variables, no capabilities.\n"
        "\n";
    for (const RunOption& option : table)
        text += line_of(option);
    text += "\nAs on the bwrap command line (see nsbox --help):\n";
    std::string line = " ";
    constexpr std::size_t width = 100;
    for (const OptionInfo& option : all_options()) {
        if (!is_shared(option.opt))
            continue;
        if (line.size() + std::strlen(option.name) + 1 > width) {
            text += line + "\n";
            line = " ";
        }
        line += std::string{" "} + option.name;
    }
    return text + line + "\n";
}

}  // namespace nsbox::tool
