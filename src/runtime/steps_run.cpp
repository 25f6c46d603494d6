// Runs after clone3: no allocation, no locks, no libc but what the child-symbols lint allows.

#include "runtime/steps.hpp"

#include "runtime/command.hpp"
#include "runtime/report.hpp"
#include "sys/fd.hpp"
#include "sys/raw.hpp"

#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/prctl.h>
#include <sys/vfs.h>

namespace nsbox::runtime {

namespace raw = sys::raw;
using sys::ChildState;
using sys::Fd;
using sys::Site;

int run(const CloseOnExec& step, ChildState&) noexcept
{
    for (std::size_t i = 0; i < step.count; ++i) {
        const int rc = raw::fcntl(step.fds[i], F_SETFD, FD_CLOEXEC);
        // One that is closed cannot be seen; whoever needs it open will say so.
        if (rc < 0 && rc != -EBADF)
            return rc;
    }
    return 0;
}

int run(const KeepOnly& step, ChildState&) noexcept
{
    const int rc = raw::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (rc == -EINVAL || rc == -ENOSYS) {  // Linux before 5.11.
        constexpr int most = 65536;
        for (int fd = 3; fd < most; ++fd)
            raw::fcntl(fd, F_SETFD, FD_CLOEXEC);
    } else if (rc < 0) {
        return rc;
    }
    for (std::size_t i = 0; i < step.count; ++i)
        if (const int set = raw::fcntl(step.fds[i], F_SETFD, 0); set < 0)
            return set;
    return 0;
}

int run(const CloseNow& step, ChildState&) noexcept
{
    raw::close(step.fd);
    return 0;
}

int run(const CloseOthers&, ChildState& state) noexcept
{
    unsigned first = 3;
    while (first != 0) {
        unsigned next = ~0U;
        const auto keep = [&](int fd) {
            if (fd >= static_cast<int>(first) && static_cast<unsigned>(fd) < next)
                next = static_cast<unsigned>(fd);
        };
        for (const int fd : state.own)
            keep(fd);
        keep(state.proc);
        if (next > first)
            if (const int rc = raw::close_range(first, next == ~0U ? ~0U : next - 1, 0); rc < 0)
                return rc;
        first = next + 1;
    }
    return 0;
}

namespace {

int await_word(const ChildState& state) noexcept
{
    char word = 0;
    for (;;) {
        const long got = raw::read(state.channel, &word, 1);
        if (got == 1)
            return 0;
        if (got == 0)
            raw::exit_group(1);  // The supervisor is gone; nobody is left to be told.
        if (got != -EINTR)
            return static_cast<int>(got);
    }
}

}  // namespace

int run(const WaitForSupervisor&, ChildState& state) noexcept
{
    NamespaceReport report{};
    report.message.kind = Tell::started;
    for (std::size_t i = 0; i < namespace_count; ++i) {
        sys::FixedText<64> name;
        name.add("self/ns/").add(namespace_names[i]);
        struct ::stat status;
        if (raw::fstatat(state.proc, name.c_str(), &status, 0) == 0)
            report.inodes[i] = status.st_ino;
    }
    long put = 0;
    do {
        put = raw::write(state.channel, &report, sizeof report);
    } while (put == -EINTR);
    if (put < 0)
        raw::exit_group(1);  // Nobody can be told why; the supervisor sees the end.
    return await_word(state);
}

int run(const AwaitIdMaps&, ChildState& state) noexcept
{
    const Message message{Tell::maps, 0, 0, 0};
    long put = 0;
    do {
        put = raw::write(state.channel, &message, sizeof message);
    } while (put == -EINTR);
    if (put < 0)
        raw::exit_group(1);  // Nobody can be told why; the supervisor sees the end.
    return await_word(state);
}

int run(const OwnInit&, ChildState& state) noexcept
{
    int& init = state.own[ChildState::own_init];
    if (init < 0)
        return 0;
    constexpr unsigned executable = 0x10;  // MFD_EXEC, Linux 6.3
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    Fd copy{static_cast<int>(raw::call(SYS_memfd_create, "init", flags | executable))};
    if (copy.error() == -EINVAL)
        copy = Fd{static_cast<int>(raw::call(SYS_memfd_create, "init", flags))};
    if (!copy)
        return copy.error();
    std::int64_t offset = 0;
    constexpr std::size_t most = std::size_t{1} << 30;
    long put = 0;
    do {
        put = raw::call(SYS_sendfile, copy.get(), init, &offset, most);
    } while (put > 0 || put == -EINTR);
    if (put < 0)
        return static_cast<int>(put);
    constexpr unsigned execute_only = 0111;
    if (const int rc = raw::fchmod(copy.get(), execute_only); rc < 0)
        return rc;
    constexpr int add_seals = 1033;  // F_ADD_SEALS and all of them, fcntl(2)
    if (const int rc = raw::fcntl(copy.get(), add_seals, 0xf); rc < 0)
        return rc;
    raw::close(init);
    init = copy.release();
    return 0;
}

int run(const OfferNetwork&, ChildState& state) noexcept
{
    const Fd network{raw::openat(state.proc, "self/ns/net", O_RDONLY | O_CLOEXEC)};
    if (!network)
        return network.error();
    const long sent =
        tell_with_descriptor(state.channel, Message{Tell::network, 0, 0, 0}, network.get());
    return sent < 0 ? static_cast<int>(sent) : 0;
}

int run(const AwaitNetwork&, ChildState& state) noexcept
{
    return await_word(state);
}

int run(const MakeDumpable&, ChildState&) noexcept
{
    return raw::prctl(PR_SET_DUMPABLE, 1);
}

int run(const ClearUmask&, ChildState& state) noexcept
{
    state.umask = raw::umask(0);
    return 0;
}

int run(const RestoreUmask& step, ChildState& state) noexcept
{
    raw::umask(step.other >= 0 ? static_cast<unsigned>(step.other) : state.umask);
    return 0;
}

int run(const OwnKeyring&, ChildState&) noexcept
{
    const long rc = raw::call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0);
    // Where there are no keys, or a filter is about us that denies them, none can be reached.
    const bool is_without = rc == -ENOSYS || rc == -EPERM || rc == -EACCES;
    return rc >= 0 || is_without ? 0 : static_cast<int>(rc);
}

int run(const SetHostname& step, ChildState&) noexcept
{
    return raw::sethostname(step.name, sys::length(step.name));
}

namespace {

/// Enters a directory; -EXDEV where it lies outside of the root, as one that was reached
/// through a descriptor from before the sandbox does.
int enter(const char* path) noexcept
{
    if (const int rc = raw::chdir(path); rc < 0)
        return rc;
    char text[4096];
    const long got = raw::getcwd(text, sizeof text);
    if (got == -ERANGE)
        return 0;  // Too deep to be printed, which "(unreachable)" in front would not be.
    if (got > 0 && text[0] == '/')
        return 0;
    const int back = raw::chdir("/");
    return back < 0 ? back : -EXDEV;
}

}  // namespace

int run(const ChangeDirectory& step, ChildState& state) noexcept
{
    if (step.wanted != nullptr) {
        state.pwd_choice = 0;
        const int rc = enter(step.wanted);
        return rc == -EXDEV ? state.failed(Site::outside, rc) : rc;
    }
    const char* const choices[] = {step.logical, step.physical, step.home};
    for (state.pwd_choice = 0; state.pwd_choice < 3; ++state.pwd_choice) {
        const char* const path = choices[state.pwd_choice];
        if (path != nullptr && path[0] != '\0' && enter(path) == 0)
            return 0;
    }
    return raw::chdir("/");
}

int run(const NewSession&, ChildState&) noexcept
{
    return raw::setsid();
}

int run(const OfferFolders&, ChildState& state) noexcept
{
    const sys::Fd work{raw::openat(AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!work)
        return work.error();
    long sent = tell_with_descriptor(state.channel, Message{Tell::directory, 0, 0, 0}, work.get());
    const sys::Fd terminals{
        raw::openat(AT_FDCWD, "/dev/pts", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    struct ::statfs status {};
    const bool is_devpts = terminals && raw::call(SYS_fstatfs, terminals.get(), &status) == 0 &&
                           status.f_type == DEVPTS_SUPER_MAGIC;
    if (sent >= 0 && is_devpts)
        sent =
            tell_with_descriptor(state.channel, Message{Tell::terminals, 0, 0, 0}, terminals.get());
    return sent < 0 ? static_cast<int>(sent) : 0;
}

int run(const TakeTerminal& step, ChildState& state) noexcept
{
    sys::PtyPair& pair = state.terminal;
    if (pair.master < 0) {
        // That of the host, or of what is bound on /dev.
        if (const int rc = sys::open_pty(AT_FDCWD, "/dev/ptmx", pair); rc < 0) {
            if (step.host_master < 0)
                return rc;
            pair.master = step.host_master;
            const int slave = static_cast<int>(
                raw::call(SYS_ioctl, pair.master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
            if (slave < 0)
                return slave;
            pair.slave = slave;
        }
    }
    if (step.rows != 0 || step.columns != 0)
        if (const int rc = sys::set_window_size(pair.master, step.rows, step.columns); rc < 0)
            return rc;
    const long sent =
        tell_with_descriptor(state.channel, Message{Tell::terminal, 0, 0, 0}, pair.master);
    if (sent < 0)
        return static_cast<int>(sent);
    raw::close(pair.master);
    for (int fd = 0; fd <= 2; ++fd)
        if (const long rc = raw::call(SYS_dup3, pair.slave, fd, 0); rc < 0)
            return static_cast<int>(rc);
    raw::close(pair.slave);
    return 0;
}

int run(const LockFile& step, ChildState& state) noexcept
{
    // Without O_CLOEXEC: the lock has to outlive the exec of init, which then sees to it.
    // Nobody may ever write to what is a FIFO.
    const int file = raw::openat(AT_FDCWD, step.path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return state.failed(Site::source, file);
    struct flock lock {};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    if (const int rc = raw::fcntl(file, F_SETLK, reinterpret_cast<long>(&lock)); rc < 0)
        return state.failed(Site::file_lock, rc);
    const std::int32_t number = file;
    const long put =
        raw::call(SYS_pwrite64, step.packet, &number, sizeof number, step.packet_offset);
    return put < 0 ? static_cast<int>(put) : 0;
}

int run(const AwaitRelease& step, ChildState&) noexcept
{
    char word;
    while (raw::read(step.fd, &word, 1) == -EINTR) {
    }
    raw::close(step.fd);
    return 0;
}

int run(const SetResourceLimit& step, ChildState&) noexcept
{
    const std::uint64_t both[] = {step.soft, step.hard};
    return static_cast<int>(raw::call(SYS_prlimit64, 0, step.resource, both, 0));
}

int run(const EnterGroups& step, ChildState&) noexcept
{
    for (std::size_t i = 0; i < step.count; ++i)
        if (const long put = raw::write(step.files[i], "0", 1); put < 0)
            return static_cast<int>(put);
    return 0;
}

int run(const SetNice& step, ChildState&) noexcept
{
    constexpr int process = 0;  // PRIO_PROCESS
    return static_cast<int>(raw::call(SYS_setpriority, process, 0, step.value));
}

int run(const SetLabel& step, ChildState& state) noexcept
{
    sys::FixedText<64> name;
    name.add("self/attr/").add(step.attribute);
    const Fd file{raw::openat(state.proc, name.c_str(), O_WRONLY | O_CLOEXEC)};
    if (!file)
        return file.error();
    const long put = raw::write(file.get(), step.label, sys::length(step.label));
    return put < 0 ? static_cast<int>(put) : 0;
}

}  // namespace nsbox::runtime
