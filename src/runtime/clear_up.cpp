#include "runtime/clear_up.hpp"

#include "runtime/init_image.hpp"
#include "sys/process.hpp"
#include "sys/raw.hpp"

#include <cerrno>
#include <csignal>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;
using sys::Fd;

/// Program, arguments and descriptors of the new process, as posix_spawn(3) takes them.
class Spawn {
public:
    Spawn()
    {
        ::posix_spawn_file_actions_init(&actions_);
        ::posix_spawnattr_init(&attributes_);
        // What a terminal sends to this process's group is not meant for it.
        ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID);
    }
    Spawn(const Spawn&) = delete;
    Spawn& operator=(const Spawn&) = delete;
    ~Spawn()
    {
        ::posix_spawnattr_destroy(&attributes_);
        ::posix_spawn_file_actions_destroy(&actions_);
    }

    /// A descriptor that is copied to its own number is one that exec leaves open.
    void keep(int fd)
    {
        if (fd >= 0)
            ::posix_spawn_file_actions_adddup2(&actions_, fd, fd);
    }
    Result<Fd> run(int image, int packet)
    {
        char name[] = "init";
        std::string number = std::to_string(packet);
        char* const argv[] = {name, number.data(), nullptr};
        char* const environment[] = {nullptr};
        const std::string path = "/proc/self/fd/" + std::to_string(image);
        pid_t pid = -1;
        const int rc =
            ::posix_spawn(&pid, path.c_str(), &actions_, &attributes_, argv, environment);
        if (rc != 0)
            return fail("Can't start the process that clears up", rc);
        Fd process = sys::hold_child(pid);
        if (process)
            return process;
        return fail("pidfd_open", -process.error(), "the process that clears up");
    }

private:
    posix_spawn_file_actions_t actions_{};
    posix_spawnattr_t attributes_{};
};

}  // namespace

Result<Fd> start_clear_up(const ClearUp& what)
{
    const Fd image = TRY(make_init_image());
    const Fd packet = TRY(make_packet());
    const Fd supervisor{raw::pidfd_open(::getpid())};
    if (!supervisor)
        return fail("pidfd_open", -supervisor.error(), "this process");
    TRY(fill_clear_up_packet(what, supervisor.get(), packet.get()));
    Spawn spawn;
    for (const int fd : {packet.get(), supervisor.get(), what.folder, what.lifeline})
        spawn.keep(fd);
    for (const int fd : what.groups)
        spawn.keep(fd);
    return spawn.run(image.get(), packet.get());
}

void end_clear_up(Fd process)
{
    // One that cannot be killed ends by itself, after this process.
    if (raw::pidfd_send_signal(process.get(), SIGKILL) < 0)
        return;
    siginfo_t info{};
    while (::waitid(P_PIDFD, static_cast<id_t>(process.get()), &info, WEXITED) < 0 &&
           errno == EINTR) {
    }
}

}  // namespace nsbox::runtime
