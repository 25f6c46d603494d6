#include "orphans.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::tool {

namespace {

std::vector<pid_t> children()
{
    std::vector<pid_t> all;
    const int file = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(file, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(got));
    ::close(file);
    for (const char* at = text.c_str(); *at != '\0';) {
        char* end = nullptr;
        all.push_back(static_cast<pid_t>(std::strtol(at, &end, 10)));
        at = end + (*end == ' ' ? 1 : 0);
        if (end == at)
            break;
    }
    return all;
}

}  // namespace

std::optional<Orphans> Orphans::adopt()
{
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return std::nullopt;
    Orphans orphans;
    orphans.others_ = children();
    return orphans;
}

void Orphans::end() const
{
    for (;;) {
        bool is_any = false;
        for (const pid_t pid : children()) {
            if (std::find(others_.begin(), others_.end(), pid) != others_.end())
                continue;
            is_any = true;
            // Each one's own children become ours with its end.
            if (::kill(pid, SIGKILL) < 0)
                return;
            ::waitpid(pid, nullptr, __WALL);
        }
        if (!is_any)
            return;
    }
}

}  // namespace nsbox::tool
