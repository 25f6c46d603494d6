#include "bwrap_main.hpp"
#include "control_main.hpp"
#include "messages.hpp"
#include "rootfs_main.hpp"
#include "run_main.hpp"
#include "seccomp_main.hpp"
#include "spec_main.hpp"

#include "nsbox/nsbox.hpp"

#include <unistd.h>

namespace {

constexpr const char* help =
    "usage: nsbox run [OPTIONS...] [--] COMMAND [ARGS...]   see nsbox run --help\n"
    "       nsbox OPTIONS... [--] COMMAND [ARGS...]       as bwrap: see nsbox --help\n"
    "       nsbox exec [OPTIONS...] SANDBOX [--] COMMAND [ARGS...]\n"
    "       nsbox ps [--json]\n"
    "       nsbox kill [--signal SIGNAL] SANDBOX\n"
    "       nsbox port ls [--json] SANDBOX\n"
    "       nsbox port add SANDBOX PORT...             PORT as for --publish, or\n"
    "       nsbox port rm SANDBOX PORT...              --host-socket PATH:PORT\n"
    "       nsbox wait SANDBOX\n"
    "       nsbox rootfs COMMAND [ARGS...]             see nsbox rootfs help\n"
    "       nsbox seccomp COMMAND [ARGS...]            see nsbox seccomp help\n"
    "       nsbox spec check FILE | schema             see nsbox spec help\n"
    "       nsbox version\n"
    "       nsbox help\n"
    "\n"
    "SANDBOX is the name or the id of one that was started with --name.\n"
    "Under the name bwrap, or with an option as its first word, this program takes the\n"
    "options of bwrap 0.11.1.\n";

bool is_named_bwrap(const std::string& argv0)
{
    const std::size_t slash = argv0.rfind('/');
    return argv0.substr(slash == std::string::npos ? 0 : slash + 1) == "bwrap";
}

int nsbox_main(const std::vector<std::string>& words)
{
    using nsbox::tool::write_out;
    if (words.empty()) {
        write_out(STDERR_FILENO, help);
        return 1;
    }
    if (words[0] == "help") {
        write_out(STDOUT_FILENO, help);
        return 0;
    }
    if (words[0] == "version") {
        write_out(STDOUT_FILENO, std::string{"nsbox "} + nsbox::version() + "\n");
        return 0;
    }
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    if (words[0] == "run")
        return nsbox::tool::run_main(rest);
    if (words[0] == "exec")
        return nsbox::tool::exec_main(rest);
    if (words[0] == "ps")
        return nsbox::tool::ps_main(rest);
    if (words[0] == "kill")
        return nsbox::tool::kill_main(rest);
    if (words[0] == "port")
        return nsbox::tool::port_main(rest);
    if (words[0] == "wait")
        return nsbox::tool::wait_main(rest);
    if (words[0] == "rootfs")
        return nsbox::tool::rootfs_main(rest);
    if (words[0] == "seccomp")
        return nsbox::tool::seccomp_main(rest);
    if (words[0] == "spec")
        return nsbox::tool::spec_main(rest);
    nsbox::tool::Messages{"nsbox"}.error("unknown command " + words[0] + " (hint: see nsbox help)");
    return nsbox::tool::control_failed;
}

}  // namespace

int main(int argc, char** argv)
{
    const std::string argv0 = argc > 0 ? argv[0] : "";
    std::vector<std::string> words;
    for (int i = 1; i < argc; ++i)
        words.emplace_back(argv[i]);
    const bool is_bwrap = is_named_bwrap(argv0);
    const bool as_bwrap = is_bwrap || (!words.empty() && words[0].starts_with('-'));
    const int code = as_bwrap ? nsbox::tool::bwrap_main(argv0, words, is_bwrap) : nsbox_main(words);
    // Everything was written by write(2); destructors would only cost time.
    ::_exit(code);
}
