#include "bwrap_parser.hpp"

#include "duration.hpp"
#include "network_options.hpp"
#include "window.hpp"

#include "nsbox/ids.hpp"
#include "nsbox/nsbox.hpp"
#include "nsbox/seccomp.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <unistd.h>

namespace nsbox::tool {

namespace {

/// Decimal digits only, the whole text, in range.
template <class T>
bool parse_decimal(const std::string& text, T most, T& value)
{
    if (text.empty() || text[0] == '-' || text[0] == '+')
        return false;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value, 10);
    return result.ec == std::errc{} && result.ptr == end && value <= most;
}

/// Reads a descriptor to its end and closes it; false with errno set.
bool read_all(int fd, std::string& out)
{
    char buffer[65536];
    for (;;) {
        const ssize_t got = ::read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0)
            break;
        out.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(fd);
    return true;
}

std::string with_errno(const std::string& text)
{
    return text + ": " + ::strerrordesc_np(errno);
}

bool is_octal_digits(const std::string& text)
{
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '7'; });
}

constexpr std::uint32_t most_id = 0xfffffffe;  // (uid_t)-1 means "no change" to the kernel.

}  // namespace

BwrapParser::BwrapParser(Messages& messages) : messages_(messages), spec_(request_.spec)
{
    Namespaces& ns = spec_.namespaces;
    ns.user = ns.pid = ns.ipc = ns.net = ns.uts = ns.cgroup = Own::no;
}

bool BwrapParser::fail(const std::string& text)
{
    messages_.error(text);
    return false;
}

void BwrapParser::once(bool seen, const OptionInfo& option)
{
    if (seen)
        messages_.warning(std::string{"Only the last "} + option.name + " option will take effect");
}

std::optional<Request> BwrapParser::parse(const Words& words)
{
    std::size_t at = 0;
    switch (parse_words(words, at, false)) {
    case Outcome::failed:
        return std::nullopt;
    case Outcome::stop:
        return std::move(request_);
    case Outcome::go_on:
        break;
    }
    spec_.command.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
    if (spec_.command.empty())
        request_.kind = Request::Kind::usage;
    if (!finish() || !add_policies())
        return std::nullopt;
    return std::move(request_);
}

bool BwrapParser::take_option(const Words& words, std::size_t& at)
{
    return parse_option(words, at, false) != Outcome::failed;
}

void BwrapParser::begin_with(Spec spec)
{
    spec_ = std::move(spec);
    net_ = spec_.namespaces.net != Own::no;
    request_.allow_user_namespaces = spec_.mounts_inside;
    const auto take = [this](const auto& network) {
        if (!network)
            return;
        host_loopback_ = network->host_loopback;
        published_ = network->ports;
    };
    take(spec_.user_network);
    take(spec_.veth_network);
}

bool BwrapParser::finish()
{
    if (!nothing_pending() || !no_layers_pending() || !check_conflicts())
        return false;
    if (subordinate_ && !use_subordinate_ids())
        return false;
    if (user_)
        spec_.namespaces.user = Own::yes;
    else if (user_try_)
        spec_.namespaces.user = Own::if_possible;
    spec_.namespaces.net = net_ ? Own::yes : Own::no;
    spec_.landlock = request_.landlock.value_or(Landlock::off);
    spec_.mounts_inside = request_.allow_user_namespaces;
    const auto complete = [this](auto& network) {
        if (!network)
            return;
        network->host_loopback = host_loopback_;
        network->ports = published_;
    };
    complete(spec_.user_network);
    complete(spec_.veth_network);
    return true;
}

/// Parses options up to the first word that is none; `at` is left behind a "--".
BwrapParser::Outcome BwrapParser::parse_words(const Words& words, std::size_t& at, bool from_file)
{
    while (at < words.size()) {
        const std::string& word = words[at];
        if (word.empty() || word[0] != '-')
            return Outcome::go_on;
        if (word == "--") {
            ++at;
            return Outcome::go_on;
        }
        if (const Outcome outcome = parse_option(words, at, from_file); outcome != Outcome::go_on)
            return outcome;
    }
    return Outcome::go_on;
}

BwrapParser::Outcome BwrapParser::parse_option(const Words& words, std::size_t& at, bool from_file)
{
    const std::string& word = words[at++];
    std::string name = word == "-p" ? "--publish" : word;
    std::optional<std::string> value;
    const OptionInfo* option = find_option(name);
    if (const std::size_t equals = word.find('=');
        option == nullptr && equals != std::string::npos) {
        name = word.substr(0, equals);
        option = find_option(name);
        if (option != nullptr && option->count != 0)
            value = word.substr(equals + 1);
        else
            option = nullptr;
    }
    if (option == nullptr) {
        const std::string near = nearest_option(name);
        fail("Unknown option " + word + (near.empty() ? "" : " (did you mean " + near + "?)"));
        return Outcome::failed;
    }
    Words arguments;
    if (!take_arguments(*option, words, at, value, arguments))
        return Outcome::failed;
    return apply(*option, arguments, from_file);
}

bool BwrapParser::take_arguments(const OptionInfo& option, const Words& words, std::size_t& at,
                                 const std::optional<std::string>& value, Words& arguments)
{
    if (value)
        arguments.push_back(*value);
    if (option.count == optional_argument)
        return true;
    while (arguments.size() < static_cast<std::size_t>(option.count) && at < words.size())
        arguments.push_back(words[at++]);
    if (arguments.size() == static_cast<std::size_t>(option.count))
        return true;
    if (option.opt == Opt::overlay_src) {
        layers_.emplace_back();
        return no_layers_pending();
    }
    return fail(std::string{option.name} + " " + option.missing);
}

bool BwrapParser::nothing_pending()
{
    if (perms_)
        return fail("--perms must be followed by an option that creates a file");
    if (size_)
        return fail("--size must be followed by --tmpfs");
    return true;
}

bool BwrapParser::no_layers_pending()
{
    if (layers_.empty())
        return true;
    return fail("--overlay-src must be followed by another --overlay-src or one of --overlay, "
                "--tmp-overlay, or --ro-overlay");
}

/// Runs one option, with the rules about what must follow what.
BwrapParser::Outcome BwrapParser::apply(const OptionInfo& option, const Words& a, bool from_file)
{
    const bool takes_layers = option.opt == Opt::overlay_src || option.opt == Opt::overlay ||
                              option.opt == Opt::tmp_overlay || option.opt == Opt::ro_overlay ||
                              option.opt == Opt::args;
    if (!takes_layers && !no_layers_pending())
        return Outcome::failed;
    const bool is_modifier = option.opt == Opt::perms || option.opt == Opt::size;
    const Outcome outcome = run_option(option, a, from_file);
    if (outcome == Outcome::go_on && !is_modifier && !nothing_pending())
        return Outcome::failed;
    return outcome;
}

// One case a line and an option: splitting the list would hide that it is whole.
// NOLINTNEXTLINE(readability-function-size)
BwrapParser::Outcome BwrapParser::run_option(const OptionInfo& option, const Words& a,
                                             bool from_file)
{
    const auto as_outcome = [](bool good) { return good ? Outcome::go_on : Outcome::failed; };
    switch (option.opt) {
    case Opt::help:
        request_.kind = Request::Kind::help;
        return Outcome::stop;
    case Opt::version:
        request_.kind = Request::Kind::version;
        return Outcome::stop;
    case Opt::args:
        if (from_file) {
            fail("--args not supported in arguments file");
            return Outcome::failed;
        }
        return read_args(a[0]);
    case Opt::level_prefix:
        messages_.use_level_prefix();
        return Outcome::go_on;
    case Opt::userns:
    case Opt::userns2:
    case Opt::pidns:
    case Opt::uid:
    case Opt::gid:
    case Opt::sync_fd:
    case Opt::block_fd:
    case Opt::userns_block_fd:
    case Opt::info_fd:
    case Opt::json_status_fd:
    case Opt::map_uid:
    case Opt::map_gid:
        return as_outcome(apply_number(option, a));
    case Opt::argv0:
    case Opt::hostname:
    case Opt::chdir:
    case Opt::clearenv:
    case Opt::setenv:
    case Opt::unsetenv:
    case Opt::lock_file:
        return as_outcome(apply_environment(option, a));
    case Opt::bind:
    case Opt::bind_try:
    case Opt::dev_bind:
    case Opt::dev_bind_try:
    case Opt::ro_bind:
    case Opt::ro_bind_try:
    case Opt::bind_fd:
    case Opt::ro_bind_fd:
    case Opt::remount_ro:
    case Opt::proc:
    case Opt::dev:
    case Opt::tmpfs:
    case Opt::mqueue:
        return as_outcome(apply_mount(option, a));
    case Opt::dir:
    case Opt::file:
    case Opt::bind_data:
    case Opt::ro_bind_data:
    case Opt::symlink:
    case Opt::chmod:
        return as_outcome(apply_file(option, a));
    case Opt::overlay_src:
    case Opt::overlay:
    case Opt::tmp_overlay:
    case Opt::ro_overlay:
        return as_outcome(apply_overlay(option, a));
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
    case Opt::cap_add:
    case Opt::cap_drop:
    case Opt::exec_label:
    case Opt::file_label:
        return as_outcome(apply_security(option, a));
    case Opt::perms:
    case Opt::size:
        return as_outcome(apply_modifier(option, a));
    case Opt::net:
    case Opt::host_loopback:
    case Opt::publish:
    case Opt::host_socket:
        return as_outcome(apply_network(option.opt, a[0]));
    case Opt::die_with_parent:
    case Opt::forward_signals:
    case Opt::kill_all:
    case Opt::timeout:
    case Opt::kill_after:
    case Opt::cpu_time:
    case Opt::distinct_status:
    case Opt::events_fd:
    case Opt::log_denials:
    case Opt::name:
    case Opt::pty:
    case Opt::pty_size:
        return as_outcome(apply_life(option, a));
    default:
        return as_outcome(apply_namespace(option.opt));
    }
}

BwrapParser::Outcome BwrapParser::read_args(const std::string& text)
{
    int fd = -1;
    if (!to_fd(text, fd))
        return Outcome::failed;
    std::string data;
    if (!read_all(fd, data)) {
        fail(with_errno("Can't read --args data"));
        return Outcome::failed;
    }
    Words words;
    for (std::size_t begin = 0; begin < data.size();) {
        const std::size_t end = std::min(data.find('\0', begin), data.size());
        words.emplace_back(data, begin, end - begin);
        begin = end + 1;
    }
    std::size_t at = 0;
    const Outcome outcome = parse_words(words, at, true);
    if (outcome == Outcome::go_on && at < words.size())
        messages_.warning("--args " + text + ": the words from \"" + words[at] +
                          "\" on are no options and are ignored");
    return outcome;
}

// Flags.

// A flag a line: splitting the list would hide that it is whole.
// NOLINTNEXTLINE(readability-function-size)
bool BwrapParser::apply_namespace(Opt opt)
{
    Namespaces& ns = spec_.namespaces;
    switch (opt) {
    case Opt::unshare_all:
        user_try_ = true;
        net_ = true;
        ns.ipc = ns.pid = ns.uts = Own::yes;
        if (ns.cgroup == Own::no)
            ns.cgroup = Own::if_possible;
        break;
    case Opt::share_net:
        net_ = false;
        spec_.join_network.reset();
        break;
    case Opt::unshare_user:
        user_ = true;
        break;
    case Opt::unshare_user_try:
        user_try_ = true;
        break;
    case Opt::unshare_ipc:
        ns.ipc = Own::yes;
        break;
    case Opt::unshare_pid:
        ns.pid = Own::yes;
        break;
    case Opt::unshare_net:
        net_ = true;
        unshares_net_ = true;
        break;
    case Opt::unshare_uts:
        ns.uts = Own::yes;
        break;
    case Opt::unshare_cgroup:
        ns.cgroup = Own::yes;
        break;
    case Opt::unshare_cgroup_try:
        if (ns.cgroup == Own::no)
            ns.cgroup = Own::if_possible;
        break;
    case Opt::disable_userns:
        spec_.disable_user_namespaces = true;
        break;
    case Opt::subids:
        user_ = subordinate_ = true;
        break;
    case Opt::assert_userns_disabled:
        spec_.assert_user_namespaces_disabled = true;
        break;
    case Opt::new_session:
        spec_.new_session = true;
        break;
    case Opt::as_pid_1:
        spec_.command_is_pid_1 = true;
        break;
    case Opt::not_a_security_boundary:
        spec_.tolerate_failed_submounts = true;
        break;
    default:
        break;
    }
    return true;
}

// Descriptors and ids.

bool BwrapParser::to_fd(const std::string& text, int& fd)
{
    if (parse_decimal(text, std::numeric_limits<int>::max(), fd))
        return true;
    return fail("Invalid fd: " + text);
}

bool BwrapParser::to_fd(const std::string& text, std::optional<int>& fd, const OptionInfo& option)
{
    once(fd.has_value(), option);
    int number = -1;
    if (!to_fd(text, number))
        return false;
    // One that a later use replaces must not reach the command either.
    if (fd)
        spec_.consumed.push_back(*fd);
    fd = number;
    return true;
}

bool BwrapParser::to_id(const char* kind, const std::string& text, std::optional<std::uint32_t>& id,
                        const OptionInfo& option)
{
    once(id.has_value(), option);
    std::uint32_t number = 0;
    if (!parse_decimal(text, most_id, number))
        return fail(std::string{"Invalid "} + kind + ": " + text);
    id = number;
    return true;
}

bool BwrapParser::to_range(const OptionInfo& option, const std::string& text,
                           std::vector<IdRange>& map)
{
    const std::size_t first = text.find(':');
    const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    IdRange range;
    if (second == std::string::npos ||
        !parse_decimal(text.substr(0, first), most_id, range.inside) ||
        !parse_decimal(text.substr(first + 1, second - first - 1), most_id, range.outside) ||
        !parse_decimal(text.substr(second + 1), most_id, range.count))
        return fail(std::string{option.name} +
                    " takes INSIDE:OUTSIDE:COUNT, as in 0:100000:65536, "
                    "not \"" +
                    text + "\"");
    map.push_back(range);
    user_ = true;
    return true;
}

/// Asks the host what the user has, as other programs that offer such a choice do.
bool BwrapParser::use_subordinate_ids()
{
    const Result<SubordinateIds> ids = subordinate_ids();
    if (!ids)
        return fail(ids.error().message());
    const std::string user = std::to_string(::getuid());
    if (ids->uids.empty() || ids->gids.empty()) {
        const bool lacks_users = ids->uids.empty();
        return fail(std::string{"--subids: this user has no subordinate ids: "} +
                    (lacks_users ? "/etc/subuid" : "/etc/subgid") + " has no line for the user " +
                    user + " (hint: as root, usermod --add-sub" + (lacks_users ? "u" : "g") +
                    "ids FIRST-LAST NAME, for 65536 ids that nobody else has)");
    }
    spec_.uid_map = map_beside_own(ids->uids, spec_.uid.value_or(::getuid()), ::getuid());
    spec_.gid_map = map_beside_own(ids->gids, spec_.gid.value_or(::getgid()), ::getgid());
    return true;
}

bool BwrapParser::check_status_fd(int fd, const char* name)
{
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0)
        return fail(with_errno(std::string{"Write to "} + name));
    if ((flags & O_ACCMODE) == O_RDONLY)
        return fail(std::string{"Write to "} + name + ": fd " + std::to_string(fd) +
                    " is not open for writing");
    return true;
}

bool BwrapParser::apply_number(const OptionInfo& option, const Words& a)
{
    Namespaces& ns = spec_.namespaces;
    switch (option.opt) {
    case Opt::userns:
        return to_fd(a[0], ns.join_user, option);
    case Opt::userns2:
        return to_fd(a[0], ns.join_user_last, option);
    case Opt::pidns:
        return to_fd(a[0], ns.join_pid, option);
    case Opt::uid:
        return to_id("uid", a[0], spec_.uid, option);
    case Opt::gid:
        return to_id("gid", a[0], spec_.gid, option);
    case Opt::map_uid:
        return to_range(option, a[0], spec_.uid_map);
    case Opt::map_gid:
        return to_range(option, a[0], spec_.gid_map);
    case Opt::block_fd:
        return to_fd(a[0], spec_.block_descriptor, option);
    case Opt::userns_block_fd:
        return to_fd(a[0], spec_.user_map_descriptor, option);
    case Opt::info_fd:
        return to_fd(a[0], spec_.info_descriptor, option) &&
               check_status_fd(*spec_.info_descriptor);
    case Opt::json_status_fd:
        return to_fd(a[0], spec_.status_descriptor, option) &&
               check_status_fd(*spec_.status_descriptor);
    default:
        break;
    }
    int fd = -1;
    once(!spec_.sync_descriptors.empty(), option);
    if (!to_fd(a[0], fd))
        return false;
    spec_.consumed.insert(spec_.consumed.end(), spec_.sync_descriptors.begin(),
                          spec_.sync_descriptors.end());
    spec_.sync_descriptors = {fd};
    return true;
}

// Environment and the like.

bool BwrapParser::apply_environment(const OptionInfo& option, const Words& a)
{
    using Kind = EnvironmentEdit::Kind;
    switch (option.opt) {
    case Opt::argv0:
        if (spec_.argv0)
            return fail("--argv0 used multiple times");
        spec_.argv0 = a[0];
        return true;
    case Opt::hostname:
        once(std::any_of(spec_.operations.begin(), spec_.operations.end(),
                         [](const auto& op) { return std::holds_alternative<Hostname>(op); }),
             option);
        spec_.operations.emplace_back(Hostname{a[0]});
        return true;
    case Opt::chdir:
        once(spec_.directory.has_value(), option);
        spec_.directory = a[0];
        return true;
    case Opt::lock_file:
        spec_.lock_files.push_back(a[0]);
        return true;
    case Opt::clearenv:
        spec_.environment.push_back({Kind::clear, {}, {}});
        return true;
    default:
        break;
    }
    const bool sets = option.opt == Opt::setenv;
    if (a[0].empty() || a[0].find('=') != std::string::npos)
        return fail(std::string{sets ? "setenv" : "unsetenv"} + " failed: '" + a[0] +
                    "' is no name of a variable");
    if (sets)
        spec_.environment.push_back({Kind::set, a[0], a[1]});
    else
        spec_.environment.push_back({Kind::unset, a[0], {}});
    return true;
}

// Mounts and files.

bool BwrapParser::add_bind(const Words& a, Access access, Devices devices, IfMissing missing)
{
    if (a[0].empty())
        return fail("Can't find source path : the source of a bind is an empty word");
    spec_.operations.emplace_back(Bind{a[0], a[1], access, devices, missing});
    return true;
}

bool BwrapParser::apply_mount(const OptionInfo& option, const Words& a)
{
    constexpr auto ro = Access::read_only;
    constexpr auto rw = Access::read_write;
    int fd = -1;
    switch (option.opt) {
    case Opt::bind:
        return add_bind(a, rw, Devices::refused, IfMissing::fail);
    case Opt::bind_try:
        return add_bind(a, rw, Devices::refused, IfMissing::skip);
    case Opt::dev_bind:
        return add_bind(a, rw, Devices::allowed, IfMissing::fail);
    case Opt::dev_bind_try:
        return add_bind(a, rw, Devices::allowed, IfMissing::skip);
    case Opt::ro_bind:
        return add_bind(a, ro, Devices::refused, IfMissing::fail);
    case Opt::ro_bind_try:
        return add_bind(a, ro, Devices::refused, IfMissing::skip);
    case Opt::bind_fd:
    case Opt::ro_bind_fd:
        if (!to_fd(a[0], fd))
            return false;
        spec_.operations.emplace_back(
            BindDescriptor{fd, a[1], option.opt == Opt::bind_fd ? rw : ro});
        return true;
    case Opt::remount_ro:
        spec_.operations.emplace_back(RemountReadOnly{a[0]});
        return true;
    case Opt::proc:
        spec_.operations.emplace_back(Proc{a[0]});
        return true;
    case Opt::dev:
        spec_.operations.emplace_back(Dev{a[0]});
        return true;
    case Opt::mqueue:
        spec_.operations.emplace_back(Mqueue{a[0]});
        return true;
    default:
        break;
    }
    Tmpfs tmpfs{a[0], take_perms(0755), size_.value_or(0)};
    size_.reset();
    spec_.operations.emplace_back(tmpfs);
    return true;
}

unsigned BwrapParser::take_perms(unsigned default_mode)
{
    const unsigned mode = perms_.value_or(default_mode);
    perms_.reset();
    return mode;
}

bool BwrapParser::apply_file(const OptionInfo& option, const Words& a)
{
    int fd = -1;
    unsigned mode = 0;
    switch (option.opt) {
    case Opt::dir:
        spec_.operations.emplace_back(Directory{a[0], take_perms(0755)});
        return true;
    case Opt::symlink:
        spec_.operations.emplace_back(Symlink{a[0], a[1]});
        return true;
    case Opt::chmod:
        if (!to_octal(option, a[0], mode))
            return false;
        spec_.operations.emplace_back(Chmod{mode, a[1]});
        return true;
    case Opt::file:
        if (!to_fd(a[0], fd))
            return false;
        spec_.operations.emplace_back(File{fd, a[1], take_perms(0666)});
        return true;
    default:
        break;
    }
    if (!to_fd(a[0], fd))
        return false;
    const Access access = option.opt == Opt::bind_data ? Access::read_write : Access::read_only;
    spec_.operations.emplace_back(Data{fd, a[1], access, take_perms(0600)});
    return true;
}

bool BwrapParser::apply_overlay(const OptionInfo& option, const Words& a)
{
    if (option.opt == Opt::overlay_src) {
        if (a[0].empty())
            return fail("Can't find source path : the source of an overlay is an empty word");
        layers_.push_back(a[0]);
        return true;
    }
    const bool read_only = option.opt == Opt::ro_overlay;
    if (layers_.size() < (read_only ? 2U : 1U))
        return fail(std::string{option.name} + (read_only
                                                    ? " requires at least two --overlay-src"
                                                    : " requires at least one --overlay-src"));
    Overlay overlay;
    overlay.lower = std::move(layers_);
    layers_.clear();
    overlay.destination = a.back();
    if (option.opt == Opt::overlay && (a[0].empty() || a[1].empty()))
        return fail("Can't find source path : a folder of an overlay is an empty word");
    if (option.opt == Opt::overlay) {
        overlay.upper_kind = Overlay::Upper::kept;
        overlay.upper = a[0];
        overlay.work = a[1];
    } else if (!read_only) {
        overlay.upper_kind = Overlay::Upper::temporary;
    }
    spec_.operations.emplace_back(std::move(overlay));
    return true;
}

// Modifiers.

bool BwrapParser::to_octal(const OptionInfo& option, const std::string& text, unsigned& mode)
{
    const char* const end = text.data() + text.size();
    if (is_octal_digits(text)) {
        const auto result = std::from_chars(text.data(), end, mode, 8);
        if (result.ec == std::errc{} && result.ptr == end && mode <= 07777)
            return true;
    }
    return fail(std::string{option.name} + " takes an octal argument <= 07777");
}

namespace {

/// A number as C writes it: decimal, 0x hexadecimal, 0 octal; the whole text.
bool parse_c_number(const std::string& text, std::uint64_t& value)
{
    int base = 10;
    std::size_t begin = 0;
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        begin = 2;
    } else if (text.size() > 1 && text[0] == '0') {
        base = 8;
        begin = 1;
    }
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + begin, end, value, base);
    return begin < text.size() && result.ec == std::errc{} && result.ptr == end;
}

}  // namespace

bool BwrapParser::to_size(const std::string& text, std::uint64_t& size)
{
    if (!parse_c_number(text, size) || size == 0)
        return fail("--size takes a non-zero number of bytes");
    constexpr std::uint64_t most = std::numeric_limits<std::size_t>::max() / 2;
    if (size > most)
        return fail("--size (for tmpfs) is limited to " + std::to_string(most));
    return true;
}

bool BwrapParser::apply_modifier(const OptionInfo& option, const Words& a)
{
    if (option.opt == Opt::perms) {
        unsigned mode = 0;
        if (perms_)
            return fail("--perms given twice for the same action");
        if (!to_octal(option, a[0], mode))
            return false;
        perms_ = mode;
        return true;
    }
    std::uint64_t size = 0;
    if (size_)
        return fail("--size given twice for the same action");
    if (!to_size(a[0], size))
        return false;
    size_ = size;
    return true;
}

// How long it lives, and who hears of it.

bool BwrapParser::to_duration(const OptionInfo& option, const std::string& text,
                              std::chrono::milliseconds& time)
{
    const std::optional<std::chrono::milliseconds> value = parse_duration(text);
    if (!value)
        return fail(std::string{option.name} + " takes a length of time, not \"" + text +
                    "\" (hint: 1.5, 500ms, 2s, 3m, 1h, 1d)");
    time = *value;
    return true;
}

bool BwrapParser::to_window_size(const std::string& text)
{
    request_.window = parse_window_size(text);
    return request_.window ||
           fail("--pty-size takes COLUMNSxROWS, as in 80x24, not \"" + text + "\"");
}

bool BwrapParser::to_name(const std::string& text)
{
    // It is shown on a line, and is not to be taken for an option.
    const auto is_plain = [](unsigned char c) { return c > 0x20 && c != 0x7f && c != '/'; };
    if (text.empty() || text.size() > 64 || text[0] == '-' ||
        !std::all_of(text.begin(), text.end(), is_plain))
        return fail("--name takes 1 to 64 characters, without blanks and slashes, that do not "
                    "begin with \"-\"");
    spec_.name = text;
    return true;
}

bool BwrapParser::log_denials(const std::optional<std::string>& text)
{
    DenialLog log;
    log.options = DenialLog::Options::bwrap;
    if (text && text->empty())
        return fail("--log-denials= takes a descriptor's number or a file");
    const bool is_number = text && std::all_of(text->begin(), text->end(),
                                               [](char c) { return c >= '0' && c <= '9'; });
    if (is_number &&
        (!to_fd(*text, log.descriptor) || !check_status_fd(log.descriptor, "log_denials")))
        return false;
    if (text && !is_number) {
        constexpr mode_t mode = 0600;
        log.descriptor = ::open(
            text->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
        if (log.descriptor < 0)
            return fail(with_errno("Can't open the file of --log-denials " + *text));
    }
    spec_.denials = log;
    spec_.end_with_command = true;
    return true;
}

bool BwrapParser::apply_life(const OptionInfo& option, const Words& a)
{
    switch (option.opt) {
    case Opt::die_with_parent:
        spec_.die_with_parent = request_.follows_caller = true;
        return true;
    case Opt::forward_signals:
        request_.forward_signals = true;
        spec_.signals_command = true;
        return true;
    case Opt::kill_all:
        spec_.end_with_command = true;
        return true;
    case Opt::timeout:
        return to_duration(option, a[0], spec_.limits.time);
    case Opt::kill_after:
        return to_duration(option, a[0], spec_.limits.grace);
    case Opt::cpu_time:
        return to_duration(option, a[0], spec_.limits.cpu);
    case Opt::distinct_status:
        request_.distinct_status = true;
        return true;
    case Opt::events_fd:
        return to_fd(a[0], spec_.events_descriptor, option) &&
               check_status_fd(*spec_.events_descriptor, "events_fd");
    case Opt::log_denials:
        return log_denials(a.empty() ? std::nullopt : std::optional{a[0]});
    case Opt::name:
        return to_name(a[0]);
    case Opt::pty:
        request_.terminal = true;
        return true;
    default:
        request_.terminal = true;
        return to_window_size(a[0]);
    }
}

// The network.

bool BwrapParser::apply_network(Opt opt, const std::string& text)
{
    std::optional<std::string> wrong;
    if (opt == Opt::net) {
        NetworkChoice choice;
        wrong = parse_network(text, choice);
        net_ = choice.own;
        spec_.user_network = choice.user;
        spec_.veth_network = choice.veth;
        spec_.join_network = choice.join;
    } else if (opt == Opt::publish) {
        wrong = parse_published(text, published_.emplace_back());
    } else if (opt == Opt::host_socket) {
        wrong = parse_host_socket(text, published_.emplace_back());
    } else {
        wrong = parse_ports(text, host_loopback_);
    }
    return wrong ? fail(*wrong) : true;
}

// Security.

bool BwrapParser::add_seccomp(const std::string& text)
{
    int fd = -1;
    if (spec_.seccomp_descriptor)
        return fail("--add-seccomp-fd cannot be combined with --seccomp");
    if (!to_fd(text, fd))
        return false;
    std::string data;
    if (!read_all(fd, data))
        return fail(with_errno("Can't read seccomp data"));
    if (data.size() % 8 != 0)
        return fail("Invalid seccomp data, must be multiple of 8");
    spec_.seccomp_programs.emplace_back(data.begin(), data.end());
    return true;
}

bool BwrapParser::add_policies()
{
    for (const std::string& policy : request_.policies)
        if (const Result<> added =
                add_filter(spec_, policy, request_.allow_user_namespaces, request_.allow_tracing);
            !added)
            return fail(added.error().message());
    return true;
}

namespace {

/// All ones for "unlimited"; nothing if it is no limit.
std::optional<std::uint64_t> parse_limit(const std::string& text)
{
    if (text == "unlimited" || text == "infinity")
        return ~std::uint64_t{0};
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{})
        return std::nullopt;
    const std::string_view unit{result.ptr, static_cast<std::size_t>(end - result.ptr)};
    constexpr unsigned kilo = 10;
    const unsigned shift = unit == "K"   ? kilo
                           : unit == "M" ? 2 * kilo
                           : unit == "G" ? 3 * kilo
                           : unit == "T" ? 4 * kilo
                                         : 0;
    if ((!unit.empty() && shift == 0) || value > (~std::uint64_t{0} >> shift) >> 1)
        return std::nullopt;
    return value << shift;
}

}  // namespace

bool BwrapParser::add_resource_limit(const std::string& text)
{
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::optional<unsigned> resource = resource_by_name(name);
    if (!resource) {
        std::string names;
        for (const std::string& known : resource_names())
            names += (names.empty() ? "" : " ") + known;
        return fail("--rlimit: there is no limit " + name +
                    " (hint: NAME=SOFT[:HARD], with NAME one of " + names + ")");
    }
    const std::string values =
        equals == std::string::npos ? std::string{} : text.substr(equals + 1);
    const std::size_t colon = values.find(':');
    const std::optional<std::uint64_t> soft = parse_limit(values.substr(0, colon));
    const std::optional<std::uint64_t> hard =
        colon == std::string::npos ? soft : parse_limit(values.substr(colon + 1));
    if (!soft || !hard)
        return fail("--rlimit " + text +
                    ": a limit is a number, with K, M, G or T behind it, or unlimited");
    if (*soft > *hard)
        return fail("--rlimit " + text + ": the soft limit is above the hard one");
    spec_.resource_limits.push_back({*resource, *soft, *hard});
    return true;
}

bool BwrapParser::set_size(const OptionInfo& option, const std::string& text,
                           std::optional<std::uint64_t>& size)
{
    size = parse_limit(text);
    if (!size || *size == 0 || *size == ~std::uint64_t{0})
        return fail(
            std::string{option.name} + " " + text +
            ": a size is a number of bytes, with K, M, G or T behind it for more, as in 512M");
    return true;
}

bool BwrapParser::set_processors(const std::string& text)
{
    constexpr double least = 0.01;  // The kernel's: a thousandth of a second in each tenth of one.
    constexpr double most = 65536;
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
    if (error != std::errc{} || rest != end || !(value >= least && value <= most))
        return fail("--cpus " + text +
                    ": not a number of processors (hint: 1.5, or 0.01 at least)");
    spec_.group_limits.processors = value;
    return true;
}

bool BwrapParser::set_processor_set(const std::string& text)
{
    // The kernel says what it makes of it; nothing else is to get into its file.
    if (text.empty() || text.find_first_not_of("0123456789,-") != std::string::npos)
        return fail("--cpuset " + text + ": not a list of processors (hint: 0-3,6)");
    spec_.group_limits.processor_set = text;
    return true;
}

bool BwrapParser::add_disk_limit(const std::string& text)
{
    // A path may have colons itself.
    const std::size_t colon = text.rfind(':');
    DiskLimit disk;
    disk.path = text.substr(0, colon);
    const std::string limits = colon == std::string::npos ? std::string{} : text.substr(colon + 1);
    for (std::size_t at = 0; at <= limits.size();) {
        const std::size_t end = std::min(limits.find(',', at), limits.size());
        const std::string limit = limits.substr(at, end - at);
        const std::size_t equals = std::min(limit.find('='), limit.size());
        const std::string name = limit.substr(0, equals);
        std::uint64_t* const value = name == "rbps"    ? &disk.read_bytes
                                     : name == "wbps"  ? &disk.write_bytes
                                     : name == "riops" ? &disk.read_operations
                                     : name == "wiops" ? &disk.write_operations
                                                       : nullptr;
        const std::optional<std::uint64_t> parsed =
            equals < limit.size() ? parse_limit(limit.substr(equals + 1)) : std::nullopt;
        if (value == nullptr || !parsed || *parsed == 0 || *parsed == ~std::uint64_t{0})
            return fail("--io " + text +
                        ": not a disk and its limits (hint: PATH:rbps=10M,wbps=5M, with rbps and "
                        "wbps in bytes a "
                        "second, riops and wiops in operations)");
        *value = *parsed;
        at = end + 1;
    }
    spec_.group_limits.disks.push_back(disk);
    return true;
}

bool BwrapParser::apply_limit(const OptionInfo& option, const std::string& text)
{
    GroupLimits& limits = spec_.group_limits;
    std::uint64_t number = 0;
    switch (option.opt) {
    case Opt::memory:
        return set_size(option, text, limits.memory);
    case Opt::tmpfs_size:
        return set_size(option, text, spec_.tmpfs_size);
    case Opt::pids:
        if (!parse_c_number(text, number) || number == 0 || number > std::uint64_t{1} << 22)
            return fail("--pids " + text + ": not a number of processes (hint: 1 to 4194304)");
        limits.processes = number;
        return true;
    case Opt::cpus:
        return set_processors(text);
    case Opt::cpuset:
        return set_processor_set(text);
    case Opt::io:
        return add_disk_limit(text);
    case Opt::limits:
        if (text != "strict" && text != "best-effort")
            return fail("--limits takes strict or best-effort, not '" + text + "'");
        limits.best_effort = text == "best-effort";
        return true;
    default:
        return set_nice(text);
    }
}

bool BwrapParser::set_nice(const std::string& text)
{
    int value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || rest != end || value < -20 || value > 19)
        return fail("--nice " + text + ": not a nice value (hint: -20 to 19)");
    spec_.nice = value;
    return true;
}

bool BwrapParser::set_proc_fallback(const std::string& text)
{
    if (text == "fail")
        spec_.proc_fallback = ProcFallback::fail;
    else if (text == "empty")
        spec_.proc_fallback = ProcFallback::empty;
    else if (text == "bind")
        spec_.proc_fallback = ProcFallback::bind;
    else
        return fail("--proc-fallback takes fail, empty or bind, not '" + text + "'");
    return true;
}

bool BwrapParser::set_landlock(const std::string& text)
{
    if (text == "auto")
        request_.landlock = Landlock::automatic;
    else if (text == "off")
        request_.landlock = Landlock::off;
    else if (text == "only")
        request_.landlock = Landlock::only;
    else
        return fail("--landlock takes auto, off or only, not '" + text + "'");
    return true;
}

bool BwrapParser::add_tcp_ports(const OptionInfo& option, const std::string& text,
                                std::optional<std::vector<Ports>>& ports)
{
    if (!ports)
        ports.emplace();
    if (text == "none")
        return true;
    const std::optional<std::string> wrong = parse_tcp_ports(text, *ports);
    return !wrong || fail(std::string{option.name} + " " + text + ": " + *wrong);
}

bool BwrapParser::edit_capability(const std::string& text, bool add)
{
    using Kind = CapabilityEdit::Kind;
    std::string upper = text;
    for (char& c : upper)
        c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    if (upper == "ALL") {
        spec_.capabilities.push_back({add ? Kind::add_all : Kind::drop_all, 0});
        return true;
    }
    std::optional<unsigned> number = capability_by_name(text);
    std::uint64_t value = 0;
    if (!number && parse_c_number(text, value) && value <= 63)
        number = static_cast<unsigned>(value);
    if (!number) {
        std::string names;
        for (const std::string& name : capability_names())
            names += (names.empty() ? "" : " ") + name;
        return fail("unknown cap: " + text + " (hint: ALL, or one of " + names + ")");
    }
    spec_.capabilities.push_back({add ? Kind::add : Kind::drop, *number});
    return true;
}

bool BwrapParser::set_label(std::optional<std::string>& label, const std::string& text)
{
    if (::access("/sys/fs/selinux/enforce", F_OK) != 0)
        return fail("labeling not supported on this system");
    label = text;
    return true;
}

bool BwrapParser::apply_security(const OptionInfo& option, const Words& a)
{
    switch (option.opt) {
    case Opt::seccomp:
        if (!spec_.seccomp_programs.empty())
            return fail("--seccomp cannot be combined with --add-seccomp-fd");
        return to_fd(a[0], spec_.seccomp_descriptor, option);
    case Opt::add_seccomp_fd:
        return add_seccomp(a[0]);
    case Opt::seccomp_policy:
        request_.policies.push_back(a[0]);
        return true;
    case Opt::allow_userns:
        return request_.allow_user_namespaces = true;
    case Opt::allow_ptrace:
        return request_.allow_tracing = true;
    case Opt::proc_fallback:
        return set_proc_fallback(a[0]);
    case Opt::landlock:
        return set_landlock(a[0]);
    case Opt::tcp_connect:
        return add_tcp_ports(option, a[0], spec_.tcp_connect);
    case Opt::tcp_bind:
        return add_tcp_ports(option, a[0], spec_.tcp_bind);
    case Opt::rlimit:
        return add_resource_limit(a[0]);
    case Opt::memory:
    case Opt::pids:
    case Opt::cpus:
    case Opt::cpuset:
    case Opt::io:
    case Opt::limits:
    case Opt::nice:
    case Opt::tmpfs_size:
        return apply_limit(option, a[0]);
    case Opt::cap_add:
        return edit_capability(a[0], true);
    case Opt::cap_drop:
        return edit_capability(a[0], false);
    case Opt::exec_label:
        once(spec_.exec_label.has_value(), option);
        return set_label(spec_.exec_label, a[0]);
    default:
        once(spec_.file_label.has_value(), option);
        return set_label(spec_.file_label, a[0]);
    }
}

bool BwrapParser::check_conflicts()
{
    const bool has_network = spec_.user_network || spec_.veth_network;
    if (!host_loopback_.empty() && !has_network)
        return fail("--host-loopback requires --net user or --net veth");
    if (!published_.empty() && !has_network)
        return fail("--publish and --host-socket require --net user or --net veth");
    if (spec_.join_network && unshares_net_)
        return fail("--unshare-net is not compatible with --net join:");
    const Namespaces& ns = spec_.namespaces;
    if (spec_.user_map_descriptor && !user_)
        return fail("--userns-block-fd requires --unshare-user");
    if (spec_.user_map_descriptor && !spec_.info_descriptor)
        return fail("--userns-block-fd requires --info-fd");
    const bool has_maps = !spec_.uid_map.empty() || !spec_.gid_map.empty();
    if (subordinate_ && has_maps)
        return fail("--subids is not compatible with --map-uid and --map-gid");
    if ((subordinate_ || has_maps) && ns.join_user)
        return fail("--userns is not compatible with --subids, --map-uid and --map-gid");
    if (ns.join_user && user_)
        return fail("--userns not compatible --unshare-user");
    if (ns.join_user && user_try_)
        return fail("--userns not compatible --unshare-user-try");
    if (spec_.disable_user_namespaces && !user_)
        return fail("--disable-userns requires --unshare-user");
    if (spec_.disable_user_namespaces && spec_.user_map_descriptor)
        return fail("--disable-userns is not compatible with --userns-block-fd");
    return true;
}

}  // namespace nsbox::tool
