#pragma once

#include "bwrap_options.hpp"
#include "messages.hpp"

#include "nsbox/spec.hpp"

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nsbox::tool {

/// What the command line asks for.
struct Request {
    enum class Kind { run, help, version, usage };
    Kind kind = Kind::run;  ///< usage: there is no command.
    Spec spec;
    bool forward_signals = false;
    bool distinct_status = false;
    bool terminal = false;              ///< The command is to have a terminal of its own...
    std::optional<WindowSize> window;   ///< ...of this size, if there is none to go by.
    bool follows_caller = false;        ///< Everything ends when the calling process does.
    std::vector<std::string> policies;  ///< Of system calls; "none" among them too.
    bool allow_user_namespaces = false;
    bool allow_tracing = false;
    std::optional<Landlock> landlock;
    bool can_fall_back = false;  ///< There is an option for hosts that forbid namespaces.
    std::vector<int> held;       ///< Descriptors to be kept open until the end, for their locks.
};

/// Parses bwrap's command line, options taking effect one after the other, with warnings as they
/// come up. What an option reads (--args, --add-seccomp-fd) is read here and closed.
class BwrapParser {
public:
    explicit BwrapParser(Messages& messages);

    /// The words after argv[0]. Nothing, after an error was printed.
    std::optional<Request> parse(const std::vector<std::string>& words);

    // For front ends with options of their own:

    /// Begins with what a description has already, in place of nothing.
    void begin_with(Spec spec);
    /// Takes the option at `at` and leaves that behind it; false after an error was printed.
    bool take_option(const std::vector<std::string>& words, std::size_t& at);
    /// The rules about what goes together, and what is left to be put in place.
    bool finish();
    Request& request() { return request_; }

    /// Whether --distinct-status was among the words, also where others were wrong.
    bool distinct_status() const { return request_.distinct_status; }

private:
    using Words = std::vector<std::string>;
    enum class Outcome { go_on, stop, failed };

    bool fail(const std::string& text);
    Outcome parse_words(const Words& words, std::size_t& at, bool from_file);
    Outcome parse_option(const Words& words, std::size_t& at, bool from_file);
    bool take_arguments(const OptionInfo& option, const Words& words, std::size_t& at,
                        const std::optional<std::string>& value, Words& arguments);
    Outcome apply(const OptionInfo& option, const Words& arguments, bool from_file);
    Outcome run_option(const OptionInfo& option, const Words& a, bool from_file);
    bool apply_namespace(Opt opt);
    bool apply_number(const OptionInfo& option, const Words& a);
    bool apply_environment(const OptionInfo& option, const Words& a);
    bool apply_mount(const OptionInfo& option, const Words& a);
    bool apply_file(const OptionInfo& option, const Words& a);
    bool apply_overlay(const OptionInfo& option, const Words& a);
    bool apply_security(const OptionInfo& option, const Words& a);
    bool apply_life(const OptionInfo& option, const Words& a);
    bool to_duration(const OptionInfo& option, const std::string& text,
                     std::chrono::milliseconds& time);
    bool to_window_size(const std::string& text);
    bool to_name(const std::string& text);
    bool log_denials(const std::optional<std::string>& text);
    bool apply_modifier(const OptionInfo& option, const Words& a);
    bool add_bind(const Words& a, Access access, Devices devices, IfMissing missing);
    bool apply_network(Opt opt, const std::string& text);
    bool add_seccomp(const std::string& text);
    bool add_policies();
    bool set_proc_fallback(const std::string& text);
    bool set_landlock(const std::string& text);
    bool add_tcp_ports(const OptionInfo& option, const std::string& text,
                       std::optional<std::vector<Ports>>& ports);
    bool add_resource_limit(const std::string& text);
    bool set_size(const OptionInfo& option, const std::string& text,
                  std::optional<std::uint64_t>& size);
    bool set_processors(const std::string& text);
    bool set_processor_set(const std::string& text);
    bool add_disk_limit(const std::string& text);
    bool set_nice(const std::string& text);
    bool apply_limit(const OptionInfo& option, const std::string& text);
    bool edit_capability(const std::string& text, bool add);
    bool set_label(std::optional<std::string>& label, const std::string& text);
    bool check_status_fd(int fd, const char* name = "info_fd");
    bool nothing_pending();
    bool no_layers_pending();
    bool check_conflicts();

    void once(bool seen, const OptionInfo& option);
    bool to_fd(const std::string& text, int& fd);
    bool to_fd(const std::string& text, std::optional<int>& fd, const OptionInfo& option);
    bool to_id(const char* kind, const std::string& text, std::optional<std::uint32_t>& id,
               const OptionInfo& option);
    bool to_range(const OptionInfo& option, const std::string& text, std::vector<IdRange>& map);
    bool use_subordinate_ids();
    bool to_octal(const OptionInfo& option, const std::string& text, unsigned& mode);
    bool to_size(const std::string& text, std::uint64_t& size);
    unsigned take_perms(unsigned default_mode);
    Outcome read_args(const std::string& text);

    Messages& messages_;
    Request request_;
    Spec& spec_;
    std::optional<unsigned> perms_;
    std::optional<std::uint64_t> size_;
    std::vector<std::string> layers_;
    bool user_ = false;
    bool user_try_ = false;
    bool subordinate_ = false;
    bool net_ = false;
    bool unshares_net_ = false;  ///< By that very option.
    std::vector<Ports> host_loopback_;
    std::vector<PublishedPort> published_;
};

}  // namespace nsbox::tool
