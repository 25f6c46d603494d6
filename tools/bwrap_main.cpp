#include "bwrap_main.hpp"

#include "bwrap_parser.hpp"
#include "messages.hpp"

#include "nsbox/nsbox.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

namespace nsbox::tool {

namespace {

constexpr const char* version_line = "bubblewrap 0.11.1\n";

/// Descriptors 0 to 2 that the caller closed are held by /dev/null until exec, so that nothing
/// of ours takes their place.
bool fill_standard_descriptors()
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            return false;
    return true;
}

/// Closes everything above stderr but `keep`: a pipe that a caller waits on must not be held
/// open here while the sandbox runs.
void close_others(std::vector<int> keep)
{
    std::sort(keep.begin(), keep.end());
    unsigned first = 3;
    const auto close_up_to = [&](unsigned last) {
        if (last < first || ::syscall(SYS_close_range, first, last, 0) == 0)
            return;
        const unsigned most = std::min(last, 65535U);  // Linux before 5.9.
        for (unsigned fd = first; fd <= most; ++fd)
            ::close(static_cast<int>(fd));
    };
    for (const int fd : keep) {
        const auto number = static_cast<unsigned>(fd);
        if (number < first)
            continue;
        if (number > first)
            close_up_to(number - 1);
        first = number + 1;
    }
    close_up_to(~0U);
}

void drop_capabilities()
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    // Refused only where there is nothing to drop.
    (void)::syscall(SYS_capset, &header, none);
}

/// Ends this process with its parent. False where the parent is gone already.
bool follow_parent(pid_t parent)
{
    return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent;
}

/// Gives back the pages of code that only the start needed: while the command runs, this
/// process waits. What is needed again is read again from the page cache.
void forget_code()
{
    const auto forget = [](dl_phdr_info* info, std::size_t, void*) {
        const auto page = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0)
                continue;
            const ElfW(Addr) begin = (info->dlpi_addr + segment.p_vaddr) & ~(page - 1);
            const ElfW(Addr) end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
            (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
        }
        return 0;
    };
    ::dl_iterate_phdr(forget, nullptr);
}

int run(const Request& request, const Messages& messages)
{
    // Never destroyed: that would wait for the end of an init that ends anyway.
    static Result<Sandbox> sandbox = Sandbox::start(request.spec);
    if (!sandbox) {
        messages.error(sandbox.error().message());
        return sandbox.error().signal != 0 ? 128 + sandbox.error().signal : 1;
    }
    std::vector<int> keep = sandbox->descriptors();
    if (request.spec.status_descriptor)
        keep.push_back(*request.spec.status_descriptor);
    close_others(std::move(keep));
    drop_capabilities();
    forget_code();
    const Result<ExitStatus> status = sandbox->wait();
    if (!status) {
        messages.error(status.error().message());
        return 1;
    }
    return status->shell_code();
}

}  // namespace

int bwrap_main(const std::string& argv0, const std::vector<std::string>& words)
{
    const std::string program = argv0.empty() ? "bwrap" : argv0;
    if (words.size() == 1 && words[0] == "--version") {
        write_out(STDOUT_FILENO, version_line);
        return 0;
    }
    Messages messages{"bwrap"};
    if (::getuid() != ::geteuid() || ::getgid() != ::getegid()) {
        messages.error("this program must not be setuid or setgid: it needs no privileges");
        return 1;
    }
    if (::getauxval(AT_SECURE) != 0) {
        messages.error("Unexpected capabilities but not setuid: this program must not have file "
                       "capabilities (hint: remove them with setcap -r, it needs none)");
        return 1;
    }
    const pid_t parent = ::getppid();
    if (!fill_standard_descriptors()) {
        messages.error(std::string{"Can't open /dev/null: "} + ::strerrordesc_np(errno));
        return 1;
    }
    // A caller that ignores SIGCHLD would make the kernel throw the exit status away.
    ::signal(SIGCHLD, SIG_DFL);
    BwrapParser parser{messages};
    const std::optional<Request> request = parser.parse(words);
    if (!request)
        return 1;
    switch (request->kind) {
    case Request::Kind::help:
        write_out(STDOUT_FILENO, help_text(program));
        return 0;
    case Request::Kind::version:
        write_out(STDOUT_FILENO, version_line);
        return 0;
    case Request::Kind::usage:
        write_out(STDERR_FILENO, help_text(program));
        return 1;
    case Request::Kind::run:
        break;
    }
    if (request->spec.die_with_parent && !follow_parent(parent)) {
        messages.error("Can't follow the parent process: it has ended, or prctl(PR_SET_PDEATHSIG) "
                       "is refused");
        return 1;
    }
    return run(*request, messages);
}

}  // namespace nsbox::tool
