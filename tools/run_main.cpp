#include "run_main.hpp"

#include "files.hpp"
#include "messages.hpp"
#include "run_parser.hpp"
#include "run_request.hpp"
#include "run_root.hpp"
#include "signals.hpp"
#include "window.hpp"

#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace nsbox::tool {

namespace {

using Words = std::vector<std::string>;

constexpr int failed = 125;

/// Where scripts lie inside: in a folder of their own, since interpreters look for more beside them.
constexpr const char* script_folder = "/run/nsbox/";

struct Language {
    const char* ending;
    const char* interpreter;
};

constexpr Language languages[] = {
    {".py", "python3"}, {".sh", "sh"},   {".bash", "bash"}, {".js", "node"}, {".mjs", "node"},
    {".cjs", "node"},   {".pl", "perl"}, {".rb", "ruby"},   {".lua", "lua"}, {".php", "php"},
};

Words split_at_blanks(const std::string& text)
{
    Words words;
    for (std::size_t begin = 0;
         (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

/// What runs a script: nothing where its first line says that; no value where nothing does.
std::optional<Words> interpreter_of(const RunRequest& run, const std::string& text)
{
    if (run.interpreter)
        return split_at_blanks(*run.interpreter);
    if (text.starts_with("#!"))
        return Words{};
    for (const Language& language : languages)
        if (run.script->ends_with(language.ending))
            return Words{language.interpreter};
    return std::nullopt;
}

/// Puts the script into the sandbox and before its arguments; what is wrong, or an empty text.
std::string place_script(RunRequest& run)
{
    const bool from_input = *run.script == "-";
    const std::optional<std::string> text =
        from_input ? read_descriptor(STDIN_FILENO) : read_file(*run.script);
    if (!text)
        return "Can't read the script " + *run.script + ": " + ::strerrordesc_np(errno);
    const std::optional<Words> interpreter = interpreter_of(run, *text);
    if (!interpreter)
        return "Can't tell what runs the script " + *run.script +
               " (hint: --interpreter PROGRAM, or a first line that begins with #!)";
    const std::string name = from_input ? "script" : run.script->substr(run.script->rfind('/') + 1);
    Spec& spec = run.request.spec;
    constexpr unsigned mode = 0755;
    spec.operations.emplace_back(Text{*text, script_folder + name, mode});
    Words command = *interpreter;
    command.push_back(script_folder + name);
    command.insert(command.end(), spec.command.begin(), spec.command.end());
    spec.command = std::move(command);
    return {};
}

std::string choose_command(RunRequest& run)
{
    Spec& spec = run.request.spec;
    if (run.script)
        return place_script(run);
    if (run.shell) {
        Words command{"sh", "-c", *run.shell, "sh"};
        command.insert(command.end(), spec.command.begin(), spec.command.end());
        spec.command = std::move(command);
    }
    return {};
}

/// Someone who shows the folder that he is in wants to work there.
void choose_directory(RunRequest& run)
{
    Spec& spec = run.request.spec;
    if (spec.directory)
        return;
    const std::string here = working_directory();
    for (const std::string& shown : run.shown)
        if (here == shown || here.starts_with(shown + "/"))
            spec.directory = here;
}

void choose_terminal(RunRequest& run)
{
    const bool is_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    run.request.terminal = run.terminal.value_or(is_terminal && run.script != "-");
}

int print_outline(const RunRequest& run, const Messages& messages)
{
    Spec spec = run.request.spec;
    if (run.request.terminal)
        spec.terminal = window_for(run.request.window);
    const Result<std::string> text = outline(spec);
    if (!text) {
        messages.error(text.error().message());
        return failure_status(text.error());
    }
    write_out(STDOUT_FILENO, *text);
    return 0;
}

int give_up(const Messages& messages, const std::string& text)
{
    messages.error(text);
    return failed;
}

}  // namespace

int run_main(const Words& words)
{
    Messages messages{"nsbox"};
    messages.escape_controls();
    const pid_t parent = ::getppid();
    if (!prepare_process(messages))
        return failed;
    std::optional<RunRequest> run = parse_run(words, messages);
    if (!run)
        return failed;
    if (run->help) {
        write_out(STDOUT_FILENO, run_help());
        return 0;
    }
    if (const Result<> opened = open_root(*run); !opened)
        return give_up(messages, opened.error().message());
    if (const std::string wrong = choose_command(*run); !wrong.empty())
        return give_up(messages, wrong);
    choose_directory(*run);
    choose_terminal(*run);
    run->base.make_nothing = run->dry_run;
    if (const Result<> done = complete(run->request.spec, run->base); !done)
        return give_up(messages, done.error().message());
    if (run->request.spec.command.empty())
        return give_up(messages, "there is no command (hint: nsbox run -- sh gives you a shell)");
    if (run->dry_run)
        return print_outline(*run, messages);
    if (run->verbose) {
        const Result<std::string> text = outline(run->request.spec);
        write_out(STDERR_FILENO, text ? *text : std::string{});
    }
    return run_request(run->request, parent, messages);
}

}  // namespace nsbox::tool
