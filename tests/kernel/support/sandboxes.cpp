#include "tests/kernel/support/sandboxes.hpp"

#include "sys/read_file.hpp"

#include "tests/unit/support/files.hpp"

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

Spec over_root(const std::vector<std::string>& command)
{
    Spec spec;
    spec.command = command;
    spec.operations.emplace_back(Bind{"/", "/", Access::read_only});
    return spec;
}

}  // namespace

std::string own_path()
{
    char text[PATH_MAX] = {};
    return ::readlink("/proc/self/exe", text, sizeof text - 1) < 0 ? "" : text;
}

Spec full_spec(const std::vector<std::string>& command)
{
    Spec spec = over_root(command);
    spec.operations.emplace_back(Proc{"/proc"});
    spec.operations.emplace_back(Dev{"/dev"});
    return spec;
}

Spec workshop()
{
    Spec spec = full_spec({});
    spec.operations.emplace_back(Tmpfs{"/tmp", 01777});
    spec.directory = "/tmp";
    return spec;
}

Command shell(const std::string& script)
{
    Command command;
    command.words = {"/bin/sh", "-c", script};
    return command;
}

std::vector<Variant> variants(const std::vector<std::string>& command)
{
    std::vector<Variant> list;
    list.push_back({"all namespaces", full_spec(command)});
    list.push_back({"pid 1", full_spec(command), true});
    list.back().spec.command_is_pid_1 = true;
    list.push_back({"no pid namespace", over_root(command)});
    list.back().spec.namespaces.pid = Own::no;
    Spec mounts = over_root(command);
    Namespaces& ns = mounts.namespaces;
    ns.user = ns.pid = ns.ipc = ns.net = ns.uts = ns.cgroup = Own::no;
    // For root this is the one without a user namespace.
    list.push_back({"mount namespace only", mounts});
    Spec with_init = mounts;
    with_init.namespaces.pid = Own::yes;
    with_init.operations.emplace_back(Proc{"/proc"});
    list.push_back({"mount and pid namespace", with_init});
    list.push_back({"two user namespaces", over_root(command)});
    list.back().spec.disable_user_namespaces = true;
    list.push_back({"capabilities", over_root(command)});
    list.back().spec.capabilities = {{CapabilityEdit::Kind::drop_all, 0},
                                     {CapabilityEdit::Kind::add, 0}};
    return list;
}

std::vector<Variant> failing_variants()
{
    std::vector<Variant> list;
    const std::vector<std::string> command = exits(0);
    list.push_back({"no command", full_spec({})});
    list.push_back({"command is missing", full_spec({"/nowhere/program"})});
    list.push_back({"command is missing, no init", full_spec({"/nowhere/program"})});
    list.back().spec.namespaces.pid = Own::no;
    list.back().spec.operations.resize(1);
    list.push_back({"source is missing", full_spec(command)});
    list.back().spec.operations.emplace_back(Bind{"/nowhere", "/dev/x"});
    list.push_back({"destination cannot be made", full_spec(command)});
    list.back().spec.operations.emplace_back(Tmpfs{"/proc/nowhere"});
    list.push_back({"host name is too long", full_spec(command)});
    list.back().spec.operations.emplace_back(Hostname{std::string(65, 'h')});
    list.push_back({"descriptor is closed", full_spec(command)});
    list.back().spec.operations.emplace_back(BindDescriptor{1000, "/dev/x"});
    list.push_back({"directory is missing", full_spec(command)});
    list.back().spec.directory = "/nowhere";
    list.push_back({"filter is nonsense", full_spec(command)});
    list.back().spec.seccomp_programs.emplace_back(16, std::uint8_t{0xff});
    list.push_back({"lock file is missing", full_spec(command)});
    list.back().spec.lock_files = {"/nowhere"};
    return list;
}

std::vector<std::string> exits(int code)
{
    return {"/bin/sh", "-c", "exit " + std::to_string(code)};
}

std::string outcome(const Result<ExitStatus>& status)
{
    if (!status)
        return "error: " + status.error().message();
    return status->signal != 0 ? "signal " + std::to_string(status->signal)
                               : "exit " + std::to_string(status->code);
}

std::string outcome(Result<Sandbox> sandbox)
{
    if (!sandbox)
        return "not started: " + sandbox.error().message();
    return outcome(sandbox->wait());
}

std::string run(const Spec& spec)
{
    return outcome(Sandbox::start(spec));
}

CapturedOutput::CapturedOutput()
    : file_(memory_file().release()), saved_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))
{
    ::dup2(file_, STDOUT_FILENO);
}

CapturedOutput::~CapturedOutput()
{
    ::dup2(saved_, STDOUT_FILENO);
    ::close(saved_);
    ::close(file_);
}

std::string CapturedOutput::text() const
{
    const off_t here = ::lseek(file_, 0, SEEK_CUR);
    std::string all = contents_of(file_);
    ::lseek(file_, here, SEEK_SET);
    return all;
}

std::string ask_port(std::uint16_t port)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char text[16] = "";
    const bool connected =
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const std::string why = connected ? "" : ::strerrorname_np(errno);
    const ssize_t got = connected ? ::recv(fd, text, sizeof text, MSG_WAITALL) : 0;
    ::close(fd);
    return connected ? std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0) : why;
}

bool is_alive(pid_t pid)
{
    // Not by a stream, which throws where the process ends meanwhile.
    const std::string text = sys::read_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.size() > name_end + 2 &&
           text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

void sleep_milliseconds(int count)
{
    timespec left{count / 1000, (count % 1000) * 1000000L};
    while (::nanosleep(&left, &left) < 0) {
    }
}

}  // namespace nsbox::tests
