#include "bwrap_main.hpp"

#include "bwrap_parser.hpp"
#include "messages.hpp"
#include "run_request.hpp"
#include "signals.hpp"

#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include <unistd.h>

namespace nsbox::tool {

namespace {

constexpr const char* version_line = "bubblewrap 0.11.1\n";

/// A person at a terminal is told once what root's command could do to the host. Under bwrap's name
/// nothing is said that bwrap does not say.
void tell_what_is_given_away(const Spec& spec)
{
    const std::vector<std::string> names = capabilities_on_host(spec);
    if (names.empty() || ::isatty(STDERR_FILENO) == 0)
        return;
    std::string which;
    for (const std::string& name : names)
        which += (which.empty() ? "" : ", ") + name;
    if (names.size() == capability_names().size())
        which = "all capabilities";
    Messages{"nsbox"}.note("the command is root on the host itself, with " + which +
                           " (hint: --unshare-user, or --cap-drop ALL)");
}

}  // namespace

int bwrap_main(const std::string& argv0, const std::vector<std::string>& words, bool is_bwrap)
{
    const std::string program = argv0.empty() ? "bwrap" : argv0;
    if (words.size() == 1 && words[0] == "--version") {
        write_out(STDOUT_FILENO, version_line);
        return 0;
    }
    Messages messages{"bwrap"};
    const pid_t parent = ::getppid();
    if (!prepare_process(messages))
        return 1;
    BwrapParser parser{messages};
    std::optional<Request> request = parser.parse(words);
    if (!request)
        return parser.distinct_status() ? failure_status(Error{}) : 1;
    switch (request->kind) {
    case Request::Kind::help:
        write_out(STDOUT_FILENO, help_text(program));
        return 0;
    case Request::Kind::version:
        write_out(STDOUT_FILENO, version_line);
        return 0;
    case Request::Kind::usage:
        write_out(STDERR_FILENO, help_text(program));
        return 1;
    case Request::Kind::run:
        break;
    }
    if (!is_bwrap)
        tell_what_is_given_away(request->spec);
    return run_request(*request, parent, messages);
}

}  // namespace nsbox::tool
