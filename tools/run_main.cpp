#include "run_main.hpp"

#include "files.hpp"
#include "messages.hpp"
#include "run_parser.hpp"
#include "run_request.hpp"
#include "run_root.hpp"
#include "signals.hpp"
#include "window.hpp"
#include "work_folder.hpp"

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
    const bool is_only = run.base.landlock == Landlock::only;
    const std::string place = (is_only ? run.temporary + "/" : script_folder) + name;
    if (!is_only)
        spec.operations.emplace_back(Text{*text, place, mode});
    else if (!run.dry_run && !write_file(place, *text, mode))
        return "Can't write the script " + place + ": " + ::strerrordesc_np(errno);
    Words command = *interpreter;
    command.push_back(place);
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

/// Where there can be no namespaces, and the caller has said that then they may be missing.
void fall_back(RunRequest& run, const Messages& messages)
{
    run.request.can_fall_back = !run.falls_back;
    if (!run.falls_back || run.base.landlock == Landlock::only)
        return;
    const std::optional<std::string> reason = namespaces_refused();
    if (!reason)
        return;
    messages.note("this host forbids user namespaces (" + *reason +
                  "); running under Landlock only");
    run.base.landlock = Landlock::only;
}

/// What stands in for the private file systems where there are none.
std::string prepare_folder(RunRequest& run, std::optional<WorkFolder>& folder)
{
    if (run.base.landlock != Landlock::only)
        return {};
    run.temporary = "/tmp/nsbox-XXXXXX";
    if (!run.dry_run) {
        std::optional<WorkFolder> made = WorkFolder::make();
        if (!made)
            return std::string{"Can't make a folder to work in: "} + ::strerrordesc_np(errno) +
                   " (hint: it is made below $TMPDIR, or /tmp)";
        folder.emplace(std::move(*made));
        run.temporary = folder->path();
        run.request.held.push_back(folder->descriptor());
    }
    if (run.base.work_directory.empty()) {
        run.base.work_directory = run.temporary;
        return {};
    }
    Spec& spec = run.request.spec;
    spec.operations.emplace_back(Bind{run.temporary, run.temporary, Access::read_write});
    spec.environment.insert(spec.environment.begin(),
                            {EnvironmentEdit::Kind::set, "TMPDIR", run.temporary});
    return {};
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
    fall_back(*run, messages);
    if (run->base.landlock == Landlock::only && run->rootfs)
        return give_up(messages, "Can't have with --landlock only --rootfs: it takes mounts, and "
                                 "there are none");
    if (const Result<> opened = open_root(*run); !opened)
        return give_up(messages, opened.error().message());
    std::optional<WorkFolder> folder;
    if (const std::string wrong = prepare_folder(*run, folder); !wrong.empty())
        return give_up(messages, wrong);
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
