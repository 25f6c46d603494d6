#include "runtime/try_namespaces.hpp"

#include "nsbox/nsbox.hpp"

#include "runtime/child.hpp"
#include "runtime/diagnose.hpp"
#include "sys/fd.hpp"
#include "sys/host.hpp"

#include <cerrno>
#include <cstring>
#include <linux/sched.h>
#include <sys/wait.h>

namespace nsbox {

std::optional<std::string> namespaces_refused()
{
    constexpr std::uint64_t flags =
        CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS;
    const auto words = [](const std::string& reason, int err) {
        return reason.empty() ? std::string{::strerrordesc_np(err)} : reason;
    };
    int pidfd = -1;
    const runtime::CloneRequest request{flags, nullptr, 0, &pidfd, sys::probe_host().has_clone3,
                                        false};
    const long pid = runtime::clone_child(request, runtime::try_mount_entry, nullptr);
    if (pid < 0) {
        const int err = static_cast<int>(-pid);
        return words(runtime::diagnose_clone(flags, err), err);
    }
    const sys::Fd child{pidfd};
    siginfo_t info{};
    while (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | __WALL) < 0 &&
           errno == EINTR) {
    }
    if (info.si_code == CLD_EXITED && info.si_status == 0)
        return std::nullopt;
    const int err = info.si_code == CLD_EXITED ? info.si_status : EPERM;
    return words(runtime::diagnose_mount(err), err);
}

}  // namespace nsbox
