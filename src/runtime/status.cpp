#include "runtime/status.hpp"

#include "sys/raw.hpp"

#include <csignal>
#include <linux/sched.h>
#include <string>
#include <vector>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

constexpr std::uint64_t namespace_flags[classic_namespace_count] = {
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWUTS};

struct Member {
    std::string key;
    std::uint64_t value;
};

std::vector<Member> members(pid_t child, std::uint64_t new_namespaces,
                            const NamespaceReport& report)
{
    std::vector<Member> list{{"child-pid", static_cast<std::uint64_t>(child)}};
    for (std::size_t i = 0; i < classic_namespace_count; ++i)
        if ((new_namespaces & namespace_flags[i]) != 0 && report.inodes[i] != 0)
            list.push_back({std::string{namespace_names[i]} + "-namespace", report.inodes[i]});
    return list;
}

std::string join(const std::vector<Member>& list, const std::string& begin,
                 const std::string& between, const std::string& end)
{
    std::string text = begin;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (i > 0)
            text += between;
        text += "\"" + list[i].key + "\": " + std::to_string(list[i].value);
    }
    return text + end;
}

}  // namespace

int write_quietly(int fd, const std::string& text)
{
    const std::uint64_t pipe_signal = std::uint64_t{1} << (SIGPIPE - 1);
    std::uint64_t old = 0;
    std::uint64_t pending = 0;
    raw::sigprocmask(SIG_BLOCK, &pipe_signal, &old);
    raw::call(SYS_rt_sigpending, &pending, sizeof pending);
    std::size_t done = 0;
    int rc = 0;
    while (done < text.size() && rc == 0) {
        const long put = raw::write(fd, text.data() + done, text.size() - done);
        if (put >= 0)
            done += static_cast<std::size_t>(put);
        else if (put != -EINTR)
            rc = static_cast<int>(put);
    }
    if (rc == -EPIPE && (pending & pipe_signal) == 0) {
        const timespec now{};
        raw::call(SYS_rt_sigtimedwait, &pipe_signal, nullptr, &now, sizeof pipe_signal);
    }
    raw::sigprocmask(SIG_SETMASK, &old, nullptr);
    return rc;
}

namespace {

Result<> report_to(int fd, const std::string& text)
{
    const int rc = write_quietly(fd, text);
    if (rc < 0)
        return fail("Write to info_fd", -rc);
    return {};
}

}  // namespace

Result<> write_info(int fd, pid_t child, std::uint64_t new_namespaces,
                    const NamespaceReport& report)
{
    return report_to(fd,
                     join(members(child, new_namespaces, report), "{\n    ", ",\n    ", "\n}\n"));
}

Result<> write_status(int fd, pid_t child, std::uint64_t new_namespaces,
                      const NamespaceReport& report)
{
    return report_to(fd, join(members(child, new_namespaces, report), "{ ", ", ", " }\n"));
}

void write_exit_code(int fd, int code)
{
    (void)write_quietly(fd, "{ \"exit-code\": " + std::to_string(code) + " }\n");
}

}  // namespace nsbox::runtime
