// Runs in the freestanding init too: no allocation, no locks, no libc.

#include "runtime/group_files.hpp"

#include "sys/raw.hpp"
#include "sys/text.hpp"

#include <csignal>

namespace nsbox::runtime {

namespace raw = sys::raw;

namespace {

constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
/// The command may have made groups in its own, as deep as the kernel lets it: what is deeper than
/// this stays, and so does the group.
constexpr int deepest = 64;
constexpr int first_wait = 5;  // Milliseconds.
constexpr int longest_wait = 500;

/// The processes at the head of a group's list of them.
class Listed {
public:
    /// How many; or -errno.
    int read(int file) noexcept
    {
        char text[1024];
        const long got = raw::call(SYS_pread64, file, text, sizeof text, 0);
        count_ = 0;
        long at = 0;
        while (at < got && count_ < most) {
            int pid = 0;
            while (at < got && text[at] >= '0' && text[at] <= '9')
                pid = pid * 10 + (text[at++] - '0');
            // The last number may be cut off. Zero is a process of no pid namespace that is seen from here.
            if (at < got && pid > 0)
                pids_[count_++] = pid;
            ++at;
        }
        return got < 0 ? static_cast<int>(got) : count_;
    }
    bool has(int pid) const noexcept
    {
        for (int i = 0; i < count_; ++i)
            if (pids_[i] == pid)
                return true;
        return false;
    }
    int operator[](int i) const noexcept { return pids_[i]; }
    static constexpr int most = 64;

private:
    int pids_[most];
    int count_ = 0;
};

/// A number may be another process's before it is opened: what was in the list before and after that is
/// the same.
int kill_listed(int group) noexcept
{
    const int file = raw::openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return file;
    Listed before;
    Listed after;
    int opened[Listed::most];
    const int count = before.read(file);
    for (int i = 0; i < count; ++i)
        opened[i] = raw::pidfd_open(before[i]);
    const int again = after.read(file);
    for (int i = 0; i < count; ++i) {
        if (opened[i] >= 0 && after.has(before[i]))
            raw::pidfd_send_signal(opened[i], SIGKILL);
        if (opened[i] >= 0)
            raw::close(opened[i]);
    }
    raw::close(file);
    return count < 0 ? count : again < 0 ? again : 0;
}

int kill_in(int group) noexcept
{
    const int file = raw::openat(group, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (file == -ENOENT)
        return kill_listed(group);
    if (file < 0)
        return file;
    const long put = raw::write(file, "1", 1);
    raw::close(file);
    return put < 0 ? static_cast<int>(put) : 0;
}

/// The number behind a word at the start of a line of a small file; all ones where there is none.
std::uint64_t number_in(int file, const char* word) noexcept
{
    char text[1024];
    const long got = raw::call(SYS_pread64, file, text, sizeof text - 1, 0);
    if (got < 0)
        return ~std::uint64_t{0};
    text[got] = '\0';
    const std::size_t size = sys::length(word);
    for (const char* at = text; *at != '\0';) {
        std::size_t same = 0;
        while (same < size && at[same] == word[same])
            ++same;
        if (same == size && at[size] == ' ') {
            std::uint64_t value = 0;
            for (at += size + 1; *at >= '0' && *at <= '9'; ++at)
                value = value * 10 + static_cast<unsigned>(*at - '0');
            return value;
        }
        while (*at != '\0' && *at++ != '\n') {
        }
    }
    return ~std::uint64_t{0};
}

/// Waits for a change of whether anything is in the group, if something is. The kernel tells of one
/// up to 10 ms late, and of none that was seen before, so it is looked again after a while.
void wait_until_empty(int group, int milliseconds) noexcept
{
    const int events = raw::openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);
    const timespec time{milliseconds / 1000, milliseconds % 1000 * 1000000L};
    // Version 1 tells nobody.
    if (events < 0) {
        raw::poll(nullptr, 0, &time);
        return;
    }
    if (number_in(events, "populated") != 0) {
        pollfd fd{events, POLLPRI, 0};
        raw::poll(&fd, 1, &time);
    }
    raw::close(events);
}

struct Entry {
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t size;
    std::uint8_t type;
    char name[1];
};

/// Removes the groups in a group. What cannot be removed is noticed when that is to be.
void remove_below(int group, int depth) noexcept
{
    constexpr std::uint8_t is_folder = 4;  // DT_DIR
    if (depth == 0)
        return;
    alignas(Entry) char buffer[1024];
    for (;;) {
        const long got = raw::call(SYS_getdents64, group, buffer, sizeof buffer);
        if (got <= 0)
            return;
        for (long at = 0; at < got;) {
            const auto* const entry = reinterpret_cast<const Entry*>(buffer + at);
            at += entry->size;
            const char* const name = static_cast<const char*>(entry->name);
            if (entry->type != is_folder || sys::equal(name, ".") || sys::equal(name, ".."))
                continue;
            if (raw::unlinkat(group, name, AT_REMOVEDIR) == 0)
                continue;
            const int below = raw::openat(group, name, folder_flags);
            if (below < 0)
                continue;
            remove_below(below, depth - 1);
            raw::close(below);
            raw::unlinkat(group, name, AT_REMOVEDIR);
        }
    }
}

}  // namespace

int kill_group(int folder, const char* name) noexcept
{
    const int group = raw::openat(folder, name, folder_flags);
    if (group < 0)
        return group;
    const int rc = kill_in(group);
    raw::close(group);
    return rc;
}

int remove_group(int folder, const char* name, int patience) noexcept
{
    int wait = first_wait;
    for (int waited = 0;;
         waited += wait, wait = wait * 2 < longest_wait ? wait * 2 : longest_wait) {
        int rc = raw::unlinkat(folder, name, AT_REMOVEDIR);
        if (rc == 0 || rc == -ENOENT)
            return 0;
        if ((rc != -EBUSY && rc != -ENOTEMPTY) || waited > patience)
            return rc;
        const int group = raw::openat(folder, name, folder_flags);
        if (group < 0)
            return group == -ENOENT ? 0 : group;
        // Each time: somebody who enters the sandbox may have come meanwhile.
        rc = kill_in(group);
        if (rc == 0) {
            wait_until_empty(group, wait);
            remove_below(group, deepest);
        }
        raw::close(group);
        // Somebody else may have removed it meanwhile.
        if (rc < 0 && rc != -ENODEV && rc != -ENOENT)
            return rc;
    }
}

int remove_empty_group(int folder, const char* name) noexcept
{
    int rc = raw::unlinkat(folder, name, AT_REMOVEDIR);
    if (rc == -EBUSY || rc == -ENOTEMPTY) {
        const int group = raw::openat(folder, name, folder_flags);
        if (group >= 0) {
            remove_below(group, deepest);
            raw::close(group);
        }
        rc = raw::unlinkat(folder, name, AT_REMOVEDIR);
    }
    return rc == -ENOENT ? 0 : rc == -ENOTEMPTY ? -EBUSY : rc;
}

std::uint64_t oom_kills_of(int file) noexcept
{
    return file < 0 ? unknown_kills : number_in(file, "oom_kill");
}

}  // namespace nsbox::runtime
