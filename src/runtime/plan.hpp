#pragma once

#include "net/publish.hpp"
#include "net/user/protocol.hpp"
#include "nsbox/spec.hpp"
#include "runtime/command.hpp"
#include "runtime/denials/context.hpp"
#include "runtime/id_maps.hpp"
#include "runtime/packet.hpp"
#include "runtime/steps.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"
#include "sys/host.hpp"

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace nsbox::runtime {

/// A bind whose source the parent has to open, since the child lacks the caller's rights.
struct EarlyTree {
    const char* source;  ///< A path, unless...
    int fd;              ///< ...this is an open file.
    std::uint64_t attributes;
    std::size_t step;  ///< The bind that uses it.
};

/// What launch() is to do: owns every string that the steps point at. Move-only; the pointers
/// stay valid over moves.
struct Plan {
    Plan() = default;
    Plan(Plan&&) = default;
    Plan& operator=(Plan&&) = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() = default;

    std::uint64_t clone_flags = 0;      ///< CLONE_NEW* of the sandbox...
    std::uint64_t late_flags = 0;       ///< ...and which of them are made when the tree stands.
    std::vector<ChildStep> late_steps;  ///< What has to wait for those.
    bool share_memory = true;           ///< The child may run in the caller's memory until exec.
    bool needs_init = false;
    bool needs_supervisor = false;  ///< The child waits for the parent's word.
    int join_user = -1;
    int join_pid = -1;
    bool own_pid = false;

    IdMaps maps;      ///< What launch() is to write when the child is there.
    sys::Ids set_up;  ///< Whose rights to files the set-up has.

    std::vector<ChildStep> steps;
    std::vector<EarlyTree> early_trees;
    std::vector<int> close_on_exec;
    std::vector<int> keep_only;
    std::vector<std::size_t> lock_steps;  ///< LockFile steps, whose packet launch() fills in.
    std::vector<int> keep_in_init;

    // Of MakeRuleset, which points at them.
    std::vector<ns::LandlockPath> landlock_paths;
    std::vector<ns::LandlockPorts> landlock_ports;
    const char* landlock_off = nullptr;  ///< Why Landlock::automatic adds nothing.
    std::vector<std::string> notes;      ///< For Sandbox::notes().

    // The command.
    std::string argv_name;  ///< As the user named it.
    std::vector<const char*> candidates;
    std::vector<const char*> argv;
    std::vector<const char*> envp;
    std::vector<const char*> shell_argv;
    std::size_t pwd_slot = 0;
    const char* pwd[pwd_choices] = {};
    std::vector<std::vector<std::uint8_t>> filters;
    std::optional<DenialContext> denials;                   ///< What a log of denials is to know.
    std::vector<std::vector<std::uint8_t>> logged_filters;  ///< See Command; made by launch()...
    std::array<std::uint64_t, pass_words> pass{};           ///< ...as is this.
    std::uint64_t ambient = 0;
    bool executes_itself = false;  ///< The command is /proc/self/exe.
    sys::Fd program;               ///< What that is, opened by launch().
    sys::Fd supervisor;            ///< A pidfd of this process, for init, opened by launch().
    sys::Fd host_terminal;         ///< A pty master, where the sandbox may have no devpts.
    bool die_with_parent = false;
    bool ends_with_command = false;
    bool tells_command = false;  ///< Init hands over a pidfd of the command.
    bool filters_early = false;  ///< Init can start the command below its filters.
    bool subreaper = false;      ///< Init is not pid 1 and keeps hold of what the command starts.
    /// The command is to be in a control group of its own, where one can be had: see Group.
    bool wants_group = false;
    std::string group_name;  ///< That of the group, if there is to be one.
    int group = -1;  ///< The group that it is in, or without a name the one to be in itself.
    std::vector<int>
        entrances;  ///< Of groups that hold the sandbox to its limits, for EnterGroups or...
    bool init_enters_groups = false;  ///< ...for init.
    int lifeline = -1;                ///< What init is to hold open, opened by launch().
    bool serves = false;   ///< Init starts the commands that it is asked for, and no other...
    bool is_bare = false;  ///< ...and they have no capabilities.
    int helper = -1;  ///< A pidfd of the network's helper, for a serving init, set by launch().
    /// Where init's standard descriptors lead, if not where the caller's do; opened by launch().
    sys::Fd standard;
    /// Of a command for a serving init: where it is to be, one for each of pwd, or null.
    const char* directory[pwd_choices] = {};
    std::size_t first_steps = 0;   ///< See ChildProgram...
    std::size_t early_steps = 0;   ///< ...for both.
    std::string foreign_network;   ///< What the user called the one that is joined.
    bool keeps_network = false;    ///< See Host: launch() is given what serves it.
    unsigned user_namespaces = 0;  ///< How many of its own the sandbox has, one in the other.
    bool hide = false;  ///< The set-up may be seen by processes that are not to be trusted.
    /// The command is executed by the init program, which then is not an init: the set-up is this
    /// program, whose file must not be within reach of what runs there (/proc/self/exe).
    bool through_init = false;
    bool dies_with_starter = false;  ///< Without an init: the command ends with its parent.
    bool terminal = false;
    bool own_terminals = false;  ///< The sandbox has a devpts of its own.
    bool has_clone3 = true;

    std::optional<net::user::HelperConfig> network;  ///< What the helper is to serve.
    std::vector<PublishedPort> ports;
    std::vector<std::size_t>
        name_steps;           ///< BindContents of /etc/resolv.conf and /etc/hosts, whose
                              ///< descriptors launch() makes.
    bool late_names = false;  ///< The first of them is filled when the network is ready.
    bool ends_with_network = false;

    // What the parent reports and waits for.
    int info = -1;
    int status = -1;
    int seccomp = -1;
    int user_map = -1;

    std::deque<std::string> strings;
    std::deque<std::vector<const char*>> tables;

    const char* keep(std::string text)
    {
        strings.push_back(std::move(text));
        return strings.back().c_str();
    }
};

/// What a sandbox is made for.
enum class Purpose : int {
    command,   ///< The Spec's command alone.
    commands,  ///< Those that come later: see Plan::serves.
};

/// Pure: every rule, default and order is decided here; the first error wins.
Result<Plan> plan(const Spec& spec, const sys::Host& host, Purpose purpose = Purpose::command);

/// Asks the host what plan() needs to know for this Spec, but for what is about its network.
sys::Host host_for(const Spec& spec);

}  // namespace nsbox::runtime
