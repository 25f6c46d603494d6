#include "orphans.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace nsbox::tool {

namespace {

std::vector<pid_t> children()
{
    std::vector<pid_t> all;
    std::ifstream file{"/proc/thread-self/children"};
    for (pid_t pid = 0; file >> pid;)
        all.push_back(pid);
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
