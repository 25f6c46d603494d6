#include "runtime/group_limits.hpp"

#include "runtime/clear_up.hpp"
#include "runtime/group.hpp"
#include "runtime/group_files.hpp"
#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <cmath>
#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

/// How long, in milliseconds, this process waits for the end of what is killed.
constexpr int patience = 2000;
constexpr std::uint64_t period = 100000;  // Microseconds: the kernel's default.

GroupWish memory_wish(std::uint64_t bytes)
{
    const std::string text = std::to_string(bytes);
    return {
        "memory",
        "memory",
        {{"memory.max", text}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}},
        "memory",
        // Of version 1 the one is never to be above the other; without accounting of swap there is no
        // second one.
        {{"memory.limit_in_bytes", text}, {"memory.memsw.limit_in_bytes", text, true}}};
}

GroupWish processors_wish(double processors)
{
    const std::string quota =
        std::to_string(static_cast<std::uint64_t>(std::llround(processors * period)));
    const std::string every = std::to_string(period);
    return {"processor time",
            "cpu",
            {{"cpu.max", quota + " " + every}},
            "cpu",
            {{"cpu.cfs_period_us", every}, {"cpu.cfs_quota_us", quota}}};
}

/// The number of the disk that a path is of or on, as the files of groups have it: "8:0".
Result<std::string> disk_number(const std::string& path)
{
    struct ::stat status {};
    if (const int rc = raw::fstatat(AT_FDCWD, path.c_str(), &status, 0); rc < 0)
        return fail("Can't limit the use of the disk", -rc, path);
    const dev_t device = (status.st_mode & S_IFMT) == S_IFBLK ? status.st_rdev : status.st_dev;
    const auto text = [](dev_t number) {
        return std::to_string(major(number)) + ":" + std::to_string(minor(number));
    };
    const std::string folder = "/sys/dev/block/" + text(device);
    if (raw::faccessat(AT_FDCWD, folder.c_str(), F_OK) < 0)
        return refuse("Can't limit the use of the disk", path, "it is on no disk",
                      "name a block device, or a file on one's file system");
    // The kernel limits disks, not their parts.
    if (raw::faccessat(AT_FDCWD, (folder + "/partition").c_str(), F_OK) < 0)
        return text(device);
    std::string whole = sys::read_file(folder + "/../dev");
    whole.erase(std::find(whole.begin(), whole.end(), '\n'), whole.end());
    return whole;
}

Result<GroupWish> disks_wish(const std::vector<DiskLimit>& disks)
{
    GroupWish wish{"the use of disks", "io", {}, "blkio", {}};
    for (const DiskLimit& disk : disks) {
        const std::string number = TRY(disk_number(disk.path));
        std::string line = number;
        const auto add = [&](std::uint64_t value, const char* word, const char* file) {
            if (value == 0)
                return;
            line += " " + std::string{word} + "=" + std::to_string(value);
            wish.old_settings.push_back({std::string{"blkio.throttle."} + file + "_device",
                                         number + " " + std::to_string(value)});
        };
        add(disk.read_bytes, "rbps", "read_bps");
        add(disk.write_bytes, "wbps", "write_bps");
        add(disk.read_operations, "riops", "read_iops");
        add(disk.write_operations, "wiops", "write_iops");
        wish.settings.push_back({"io.max", line});
    }
    return wish;
}

std::string without_line_end(std::string text)
{
    while (!text.empty() && text.back() == '\n')
        text.pop_back();
    return text;
}

bool has_controller(const std::string& list, const std::string& controller)
{
    return (" " + without_line_end(list) + " ").find(" " + controller + " ") != std::string::npos;
}

bool may_make_groups(const Fd& folder)
{
    return raw::faccessat(folder.get(), ".", W_OK | X_OK) == 0 &&
           raw::faccessat(folder.get(), "cgroup.procs", W_OK) == 0;
}

/// Controllers are lent to groups below by a group that has no processes itself, or by the root.
bool may_lend(const std::string& path)
{
    return raw::faccessat(AT_FDCWD, (path + "/cgroup.subtree_control").c_str(), W_OK) == 0 &&
           (raw::faccessat(AT_FDCWD, (path + "/cgroup.type").c_str(), F_OK) < 0 ||
            sys::read_file(path + "/cgroup.procs").empty());
}

/// What a group has of the processors.
const char* processors_file(bool is_unified)
{
    return is_unified ? "cpuset.cpus.effective" : "cpuset.cpus";
}

int write_file(int folder, const std::string& name, const std::string& text)
{
    const Fd file{raw::openat(folder, name.c_str(), O_WRONLY | O_CLOEXEC)};
    if (!file)
        return file.error();
    const long put = raw::write(file.get(), text.data(), text.size());
    return put < 0 ? static_cast<int>(put) : 0;
}

}  // namespace

Result<std::vector<GroupWish>> group_wishes(const GroupLimits& limits, unsigned own)
{
    std::vector<GroupWish> wishes;
    if (limits.memory)
        wishes.push_back(memory_wish(*limits.memory));
    if (limits.processes) {
        const std::string most = std::to_string(*limits.processes + own);
        wishes.push_back({"processes", "pids", {{"pids.max", most}}, "pids", {{"pids.max", most}}});
    }
    if (limits.processors)
        wishes.push_back(processors_wish(*limits.processors));
    if (!limits.processor_set.empty())
        wishes.push_back({"the set of processors",
                          "cpuset",
                          {{"cpuset.cpus", limits.processor_set}},
                          "cpuset",
                          // A new group has none of either, and nothing can be in it.
                          {{"cpuset.mems", ""}, {"cpuset.cpus", limits.processor_set}}});
    if (!limits.disks.empty())
        wishes.push_back(TRY(disks_wish(limits.disks)));
    return wishes;
}

std::unique_ptr<LimitGroups> LimitGroups::prepare(std::vector<GroupWish> wishes,
                                                  const HierarchyTexts& texts,
                                                  const std::string& name)
{
    std::unique_ptr<LimitGroups> groups{new LimitGroups};
    groups->name_ = name;
    groups->wishes_ = std::move(wishes);
    std::vector<std::size_t> unified;
    for (std::size_t i = 0; i < groups->wishes_.size(); ++i)
        if (group_path(texts.groups, groups->wishes_[i].old_controller))
            groups->find_old(texts, i);
        else
            unified.push_back(i);
    if (!unified.empty())
        groups->find_unified(texts, unified);
    return groups;
}

/// Version 1: a group below the one that this process is in.
void LimitGroups::find_old(const HierarchyTexts& texts, std::size_t number)
{
    const GroupWish& wish = wishes_[number];
    std::string why = "the hierarchy of the controller " + wish.old_controller + " is not mounted";
    for (GroupFolder& found : group_folders(texts.groups, texts.mounts, wish.old_controller)) {
        const auto same = std::find_if(places_.begin(), places_.end(),
                                       [&](const Place& it) { return it.path == found.path; });
        if (same != places_.end()) {
            same->wishes.push_back(number);
            return;
        }
        Fd folder{raw::openat(AT_FDCWD, found.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
        if (folder && may_make_groups(folder)) {
            Place& place = places_.emplace_back();
            place.folder = std::move(folder);
            place.path = found.path;
            place.wishes = {number};
            return;
        }
        why = "no control group can be made in " + found.path;
    }
    unmet_.push_back({wish.what, why});
}

/// Version 2: a group below this process's own, or below one further up, that lends most of the
/// controllers; of those the nearest. One that has processes, as this process's own, can begin to lend
/// none.
void LimitGroups::find_unified(const HierarchyTexts& texts, const std::vector<std::size_t>& numbers)
{
    Place best;
    for (const GroupFolder& found : group_folders(texts.groups, texts.mounts, "")) {
        std::string path = found.path;
        while (Fd folder = open_group(path)) {
            Place place;
            const std::string enabled = sys::read_file(path + "/cgroup.subtree_control");
            const std::string there = sys::read_file(path + "/cgroup.controllers");
            const bool lends = may_make_groups(folder) && may_lend(path);
            for (const std::size_t number : numbers) {
                const std::string& controller = wishes_[number].controller;
                if (!may_make_groups(folder) || !has_controller(there, controller))
                    continue;
                if (!has_controller(enabled, controller)) {
                    if (!lends)
                        continue;
                    place.to_enable += (place.to_enable.empty() ? "+" : " +") + controller;
                }
                place.wishes.push_back(number);
            }
            if (place.wishes.size() > best.wishes.size()) {
                best = std::move(place);
                best.folder = std::move(folder);
                best.path = path;
                best.is_unified = true;
            }
            const std::size_t slash = path.rfind('/');
            if (slash == 0 || slash == std::string::npos)
                break;
            path.resize(slash);
        }
    }
    for (const std::size_t number : numbers)
        if (std::find(best.wishes.begin(), best.wishes.end(), number) == best.wishes.end())
            unmet_.push_back(
                {wishes_[number].what, "no control group in which this user may make another "
                                       "one lends the controller " +
                                           wishes_[number].controller});
    if (!best.wishes.empty())
        places_.push_back(std::move(best));
}

Result<> LimitGroups::make(bool at_once, bool as_a_whole)
{
    if (places_.empty())
        return {};
    as_a_whole_ = as_a_whole;
    ClearUp clear_up{name_, -1, -1, at_once};
    for (const Place& place : places_)
        clear_up.groups.push_back(place.folder.get());
    guard_ = TRY(start_clear_up(clear_up));
    for (Place& place : places_)
        TRY(make_in(place));
    return {};
}

Result<> LimitGroups::make_in(Place& place)
{
    if (!place.to_enable.empty())
        if (const int rc =
                write_file(place.folder.get(), "cgroup.subtree_control", place.to_enable);
            rc < 0)
            return fail("Can't have controllers lent by the control group", -rc, place.path,
                        delegate_hint);
    const std::string path = place.path + "/" + name_;
    if (const int rc = raw::mkdirat(place.folder.get(), name_.c_str(), 0755); rc < 0)
        return fail("Can't make the control group", -rc, path, delegate_hint);
    place.is_made = true;
    const Fd group{
        raw::openat(place.folder.get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!group)
        return fail("Can't open the control group", -group.error(), path);
    for (const std::size_t number : place.wishes)
        TRY(set(place, group, wishes_[number]));
    place.entrance = Fd{raw::openat(group.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC)};
    if (!place.entrance)
        return fail("Can't open the control group", -place.entrance.error(),
                    path + "/cgroup.procs");
    return {};
}

Result<> LimitGroups::set(const Place& place, const Fd& group, const GroupWish& wish)
{
    for (const GroupSetting& setting : place.is_unified ? wish.settings : wish.old_settings) {
        const std::string text =
            !setting.text.empty()
                ? setting.text
                : without_line_end(sys::read_file(place.path + "/" + setting.file));
        const int rc = write_file(group.get(), setting.file, text);
        if (rc < 0 && wish.controller == "cpuset")
            return fail("Can't limit", -rc, wish.what + " to " + text,
                        "there may be taken " +
                            without_line_end(sys::read_file(place.path + "/" +
                                                            processors_file(place.is_unified))));
        if (rc < 0 && !(rc == -ENOENT && setting.may_be_missing))
            return fail("Can't limit", -rc, wish.what + " to " + text);
    }
    if (wish.controller == "memory")
        memory_events_ =
            Fd{raw::openat(group.get(), place.is_unified ? "memory.events" : "memory.oom_control",
                           O_RDONLY | O_CLOEXEC)};
    return {};
}

std::vector<int> LimitGroups::entrances() const
{
    std::vector<int> files;
    for (const Place& place : places_)
        if (place.entrance)
            files.push_back(place.entrance.get());
    return files;
}

void LimitGroups::close_entrances()
{
    for (Place& place : places_)
        place.entrance.reset();
}

std::vector<std::string> LimitGroups::paths() const
{
    std::vector<std::string> paths;
    for (const Place& place : places_)
        paths.push_back(place.path + "/" + name_);
    return paths;
}

std::string LimitGroups::unified_path() const
{
    for (const Place& place : places_)
        if (place.is_unified)
            return place.path + "/" + name_;
    return {};
}

std::optional<std::uint64_t> LimitGroups::oom_kills() const noexcept
{
    const std::uint64_t now = oom_kills_of(memory_events_.get());
    // A group that is removed counts no more.
    if (now != unknown_kills)
        oom_kills_ = now;
    return oom_kills_;
}

void LimitGroups::remove()
{
    if (!guard_)
        return;
    (void)oom_kills();
    bool is_done = true;
    for (Place& place : places_) {
        if (!place.is_made)
            continue;
        const int rc = as_a_whole_ ? remove_group(place.folder.get(), name_.c_str(), patience)
                                   : remove_empty_group(place.folder.get(), name_.c_str());
        place.is_made = rc < 0;
        is_done = is_done && rc == 0;
    }
    if (is_done)
        end_clear_up(std::move(guard_));
}

std::vector<int> LimitGroups::descriptors() const
{
    std::vector<int> fds;
    for (const Place& place : places_)
        fds.push_back(place.folder.get());
    for (const Fd* fd : {&guard_, &memory_events_})
        if (*fd)
            fds.push_back(fd->get());
    return fds;
}

}  // namespace nsbox::runtime
