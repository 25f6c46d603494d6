#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include "ns/landlock.hpp"
#include "runtime/plan.hpp"
#include "sys/error.hpp"

#include <cstdio>
#include <unistd.h>

namespace nsbox {

namespace {

constexpr int most_landlock = 7;

/// A word as a shell would have to be given it, on one line.
std::string quoted(const std::string& word)
{
    constexpr const char* plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos)
        return word;
    std::string text = "'";
    for (const char c : word) {
        char octal[8];
        if (c == '\'')
            text += "'\\''";
        else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
            std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(c));
            text += octal;
        } else {
            text += c;
        }
    }
    return text + "'";
}

std::string octal(unsigned mode)
{
    char text[16];
    std::snprintf(text, sizeof text, "%04o", mode);
    return text;
}

const char* word_for(Access access)
{
    return access == Access::read_only ? "read-only" : "writable";
}

struct Line {
    std::string operator()(const Bind& it) const
    {
        const std::string from = it.source == it.destination ? "" : " from " + quoted(it.source);
        return "show       " + quoted(it.destination) + from + ", " + word_for(it.access) +
               (it.devices == Devices::allowed ? ", with devices" : "") +
               (it.if_missing == IfMissing::skip ? ", if it is there" : "");
    }
    std::string operator()(const BindDescriptor& it) const
    {
        return "show       " + quoted(it.destination) + " from descriptor " +
               std::to_string(it.source) + ", " + word_for(it.access);
    }
    std::string operator()(const RemountReadOnly& it) const
    {
        return "read-only  " + quoted(it.destination);
    }
    std::string operator()(const Proc& it) const { return "proc       " + quoted(it.destination); }
    std::string operator()(const Dev& it) const { return "dev        " + quoted(it.destination); }
    std::string operator()(const Tmpfs& it) const
    {
        return "tmpfs      " + quoted(it.destination) + ", mode " + octal(it.mode) +
               (it.size != 0 ? ", at most " + std::to_string(it.size) + " bytes" : "");
    }
    std::string operator()(const Mqueue& it) const
    {
        return "mqueue     " + quoted(it.destination);
    }
    std::string operator()(const Directory& it) const
    {
        return "folder     " + quoted(it.destination) + ", mode " + octal(it.mode);
    }
    std::string operator()(const File& it) const
    {
        return "file       " + quoted(it.destination) + " with what descriptor " +
               std::to_string(it.source) + " holds, mode " + octal(it.mode);
    }
    std::string operator()(const Text& it) const
    {
        return "file       " + quoted(it.destination) + " of " + std::to_string(it.content.size()) +
               " bytes, mode " + octal(it.mode);
    }
    std::string operator()(const Data& it) const
    {
        return "file       " + quoted(it.destination) + " with what descriptor " +
               std::to_string(it.source) + " holds, " + word_for(it.access);
    }
    std::string operator()(const Symlink& it) const
    {
        return "link       " + quoted(it.destination) + " to " + quoted(it.target);
    }
    std::string operator()(const Chmod& it) const
    {
        return "mode       " + quoted(it.destination) + " " + octal(it.mode);
    }
    std::string operator()(const Hostname& it) const { return "hostname   " + quoted(it.name); }
    std::string operator()(const Overlay& it) const
    {
        std::string text = "overlay    " + quoted(it.destination) + " of";
        for (const std::string& lower : it.lower)
            text += " " + quoted(lower);
        if (it.upper_kind == Overlay::Upper::temporary)
            return text + ", changes in memory";
        return text + (it.upper_kind == Overlay::Upper::kept ? ", changes in " + quoted(it.upper)
                                                             : ", read-only");
    }
};

std::string namespaces(const Namespaces& it, bool joins, bool only_landlock)
{
    if (only_landlock)
        return "namespaces none: under Landlock only";
    std::string text = "namespaces mount";
    const auto add = [&](Own own, const char* name) {
        if (own != Own::no)
            text += std::string{" "} + name + (own == Own::if_possible ? " (if possible)" : "");
    };
    add(it.user, "user");
    add(it.pid, "pid");
    add(it.ipc, "ipc");
    add(it.uts, "uts");
    add(it.cgroup, "cgroup");
    add(joins ? Own::no : it.net, "net");
    return text;
}

std::string network(const Spec& spec)
{
    const auto with_ports = [](std::string text, const std::vector<PublishedPort>& ports) {
        for (const PublishedPort& port : ports)
            text += ", " + place_of(port) + " for port " + std::to_string(port.inside);
        return text;
    };
    if (spec.user_network)
        return with_ports("user mode", spec.user_network->ports);
    if (spec.veth_network)
        return with_ports("veth", spec.veth_network->ports);
    if (spec.join_network)
        return "shared with " + (spec.join_network->by == JoinNetwork::By::descriptor
                                     ? "descriptor " + std::to_string(spec.join_network->descriptor)
                                     : quoted(spec.join_network->name));
    if (spec.namespaces.net == Own::no)
        return "the caller's";
    return spec.landlock == Landlock::only ? "none" : "loopback only";
}

std::string capabilities(const Spec& spec)
{
    std::string text;
    const std::vector<std::string> names = capability_names();
    for (const CapabilityEdit& edit : spec.capabilities) {
        const bool adds =
            edit.kind == CapabilityEdit::Kind::add || edit.kind == CapabilityEdit::Kind::add_all;
        const bool all = edit.kind == CapabilityEdit::Kind::add_all ||
                         edit.kind == CapabilityEdit::Kind::drop_all;
        text += std::string{adds ? " +" : " -"} + (all ? "ALL"
                                                   : edit.number < names.size()
                                                       ? names[edit.number]
                                                       : std::to_string(edit.number));
    }
    return text.empty() ? "" : "capabilities" + text + "\n";
}

std::string environment(const Spec& spec)
{
    std::string text;
    for (const EnvironmentEdit& edit : spec.environment)
        text += edit.kind == EnvironmentEdit::Kind::clear   ? " (none of the caller's)"
                : edit.kind == EnvironmentEdit::Kind::unset ? " -" + quoted(edit.name)
                                                            : " " + quoted(edit.name);
    return text.empty() ? "" : "environment" + text + "\n";
}

std::string limits(const Spec& spec)
{
    const GroupLimits& it = spec.group_limits;
    std::string text;
    const auto line = [&](const std::string& what) { text += "limit      " + what + "\n"; };
    if (it.memory)
        line("memory, " + std::to_string(*it.memory) + " bytes");
    if (it.processes)
        line("processes, " + std::to_string(*it.processes));
    if (it.processors) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", *it.processors);
        line("processor time, " + std::string{number} + " of one");
    }
    if (!it.processor_set.empty())
        line("processors, " + it.processor_set);
    for (const DiskLimit& disk : it.disks)
        line("use of the disk of " + quoted(disk.path));
    if (spec.tmpfs_size)
        line("each tmpfs, " + std::to_string(*spec.tmpfs_size) + " bytes");
    for (const ResourceLimit& limit : spec.resource_limits) {
        const auto say = [](std::uint64_t value) {
            return value == ~std::uint64_t{0} ? std::string{"unlimited"} : std::to_string(value);
        };
        const std::vector<std::string> names = resource_names();
        line((limit.resource < names.size() ? names[limit.resource]
                                            : std::to_string(limit.resource)) +
             ", " + say(limit.soft) + " and " + say(limit.hard));
    }
    if (spec.nice)
        text += "nice       " + std::to_string(*spec.nice) + "\n";
    return text;
}

std::string ports(const std::optional<std::vector<Ports>>& list)
{
    std::string text;
    for (const Ports& range : *list)
        text += (text.empty() ? "" : ",") + std::to_string(range.first) +
                (range.last != range.first ? "-" + std::to_string(range.last) : "");
    return text.empty() ? "none" : text;
}

/// What Landlock keeps to, and what of it this kernel lacks.
std::string landlock(const Spec& spec, const runtime::Plan& plan)
{
    if (plan.landlock_off != nullptr && !spec.tcp_connect && !spec.tcp_bind)
        return std::string{"landlock   off: "} + plan.landlock_off + "\n";
    const ns::MakeRuleset* ruleset = nullptr;
    for (const runtime::ChildStep& step : plan.steps)
        if (const auto* const found = std::get_if<ns::MakeRuleset>(&step))
            ruleset = found;
    if (ruleset == nullptr)
        return "";
    std::string text;
    const auto add = [&](bool is_there, const std::string& what) {
        if (is_there)
            text += (text.empty() ? "" : ", ") + what;
    };
    add(ruleset->files != 0, "files by " + std::to_string(ruleset->path_count) + " rules");
    add((ruleset->scoped & ns::landlock_signal) != 0, "signals");
    add((ruleset->scoped & ns::landlock_abstract_unix_socket) != 0, "abstract sockets");
    add(spec.tcp_connect.has_value(),
        "TCP to " + (spec.tcp_connect ? ports(spec.tcp_connect) : ""));
    add(spec.tcp_bind.has_value(), "TCP ports " + (spec.tcp_bind ? ports(spec.tcp_bind) : ""));
    const ns::LandlockRights all = ns::landlock_rights(most_landlock);
    const bool lacks = ruleset->files != 0 && ruleset->files != all.files;
    return "landlock   " + text + (lacks ? "; the kernel has an older version of it" : "") + "\n";
}

}  // namespace

std::vector<std::string> capabilities_on_host(const Spec& spec)
{
    const bool is_on_host =
        spec.namespaces.user == Own::no && !spec.namespaces.join_user && ::geteuid() == 0;
    return is_on_host ? capabilities_after(spec.capabilities, true) : std::vector<std::string>{};
}

Result<std::string> outline(const Spec& spec)
{
    const runtime::Plan plan = TRY(runtime::plan(spec, runtime::host_for(spec)));
    std::string text = namespaces(spec.namespaces, spec.join_network.has_value(),
                                  spec.landlock == Landlock::only) +
                       "\n";
    if (spec.uid || spec.gid)
        text += "ids        uid " + (spec.uid ? std::to_string(*spec.uid) : "as the caller's") +
                ", gid " + (spec.gid ? std::to_string(*spec.gid) : "as the caller's") + "\n";
    text += "network    " + network(spec) + "\n";
    for (const Operation& operation : spec.operations)
        text += std::visit(Line{}, operation) + "\n";
    if (!capabilities_on_host(spec).empty())
        text += "root       of the host, not of a user namespace\n";
    text += capabilities(spec) + environment(spec);
    constexpr std::size_t instruction = 8;
    for (const std::vector<std::uint8_t>& program : spec.seccomp_programs)
        text += "filter     system calls, " + std::to_string(program.size() / instruction) +
                " instructions\n";
    text += landlock(spec, plan);
    text += limits(spec);
    if (spec.limits.time.count() > 0)
        text += "time limit " + std::to_string(spec.limits.time.count()) + " ms\n";
    if (spec.limits.cpu.count() > 0)
        text += "processor  " + std::to_string(spec.limits.cpu.count()) + " ms\n";
    if (spec.terminal)
        text += "terminal   of its own\n";
    if (spec.directory)
        text += "directory  " + quoted(*spec.directory) + "\n";
    text += "command   ";
    for (const std::string& word : spec.command)
        text += " " + quoted(word);
    return text + "\n";
}

}  // namespace nsbox
