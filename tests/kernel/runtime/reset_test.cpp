// A sandbox that is made anew and keeps its network.

#include "nsbox/everyday.hpp"
#include "nsbox/nsbox.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using std::chrono::milliseconds;

namespace {

/// A folder of the host that goes with this object.
class Folder {
public:
    Folder()
    {
        REQUIRE(::mkdtemp(path_.data()) != nullptr);
        REQUIRE(::chmod(path_.c_str(), 0755) == 0);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder()
    {
        // What an overlay leaves there has no permissions.
        ::chmod((path_ + "/work/work").c_str(), 0700);
        std::filesystem::remove_all(path_);
    }
    std::string make(const std::string& name) const
    {
        std::filesystem::create_directory(path_ + "/" + name);
        return path_ + "/" + name;
    }

private:
    std::string path_ = "/tmp/nsbox-reset-XXXXXX";
};

Sandbox created(const Spec& spec)
{
    Result<Sandbox> sandbox = Sandbox::create(spec);
    INFO((sandbox ? "" : sandbox.error().message()));
    REQUIRE(sandbox);
    return std::move(*sandbox);
}

std::string said(Sandbox& sandbox, const std::string& script)
{
    const Result<Outcome> outcome = run(sandbox, shell(script));
    return outcome ? outcome->output + outcome->error : outcome.error().message();
}

void reset(Sandbox& sandbox)
{
    const Result<> done = sandbox.reset();
    INFO((done ? "" : done.error().message()));
    REQUIRE(done);
}

int error_of(const Result<>& result)
{
    return result ? 0 : result.error().err;
}

Spec with_network()
{
    Spec spec = workshop();
    PublishedPort port;
    port.address = "127.0.0.1";
    port.inside = 8000;
    spec.user_network.emplace().ports.push_back(port);
    return spec;
}

/// Answers every connection to port 8000 with the word.
Command server(const std::string& word)
{
    Command command;
    command.words = {"python3", "-c", R"(
import socket, sys
listener = socket.create_server(("0.0.0.0", 8000))
while True:
    client, _ = listener.accept()
    client.sendall(sys.argv[1].encode())
    client.close()
)",
                     word};
    return command;
}

std::size_t descriptor_count()
{
    const std::string list = open_descriptors();
    return static_cast<std::size_t>(std::count(list.begin(), list.end(), '\n'));
}

}  // namespace

TEST_CASE("reset: files and processes are gone, the network and the description stay")
{
    NEEDS("userns");
    Spec everyday;
    REQUIRE(complete(everyday, Everyday{}));
    Spec closed = workshop();
    closed.namespaces.user = Own::yes;
    closed.disable_user_namespaces = true;
    Spec same = workshop();
    same.namespaces.user = Own::yes;
    same.uid = 77;
    for (const Spec& spec : {workshop(), everyday, closed, same}) {
        Sandbox sandbox = created(spec);
        const std::string before =
            said(sandbox, "id -u; readlink /proc/self/ns/net; cat /proc/self/uid_map");
        CHECK(before.find("net:[") != std::string::npos);
        for (int i = 0; i < 3; ++i) {
            CHECK(said(sandbox, "echo old > file; echo old > /tmp/other; cat file") == "old\n");
            Result<Process> sleeper = sandbox.spawn(shell("sleep 1000 & exec sleep 1000"));
            REQUIRE(sleeper);
            reset(sandbox);
            const Result<ExitStatus> end = sleeper->wait();
            REQUIRE(end);
            CHECK(end->reason == Reason::sandbox_ended);
            CHECK(said(sandbox, "cat file /tmp/other 2>/dev/null; echo gone") == "gone\n");
            // sh itself, and process 1.
            CHECK(said(sandbox, "set -- /proc/[0-9]*; echo $#") == "2\n");
            CHECK(said(sandbox, "id -u; readlink /proc/self/ns/net; cat /proc/self/uid_map") ==
                  before);
            CHECK(sandbox.write_file("file", "new"));
            CHECK(said(sandbox, "cat file") == "new");
            CHECK(sandbox.read_file("file").value_or("") == "new");
        }
    }
}

TEST_CASE("reset: what kept the command in keeps it in again")
{
    NEEDS("userns");
    Spec spec = workshop();
    spec.namespaces.user = Own::yes;
    spec.disable_user_namespaces = true;
    spec.capabilities.push_back({CapabilityEdit::Kind::drop_all, 0});
    Sandbox sandbox = created(spec);
    for (int i = 0; i < 3; ++i) {
        CHECK(said(sandbox, "unshare -U true 2>/dev/null || echo refused") == "refused\n");
        CHECK(said(sandbox, "touch /usr/x 2>/dev/null || echo refused") == "refused\n");
        CHECK(said(sandbox, "mount -t tmpfs x /tmp 2>/dev/null || echo refused") == "refused\n");
        CHECK(said(sandbox, "grep -c 'CapEff:.0*$' /proc/self/status") == "1\n");
        CHECK(said(sandbox, "ip link add dummy9 type dummy 2>/dev/null || echo refused") ==
              "refused\n");
        reset(sandbox);
    }
    Spec open = workshop();
    open.namespaces.user = Own::yes;
    Sandbox other = created(open);
    CHECK(said(other, "unshare -U echo made") == "made\n");
    reset(other);
    CHECK(said(other, "unshare -U echo made") == "made\n");
}

TEST_CASE("reset: published ports go on, and lead to who listens then")
{
    NEEDS("userns");
    const std::string before = host_state();
    {
        Sandbox sandbox = created(with_network());
        REQUIRE(sandbox.ports().size() == 1);
        const std::uint16_t port = sandbox.ports().front().outside;
        PublishedPort more;
        more.address = "127.0.0.1";
        more.inside = 8000;
        const Result<PublishedPort> added = sandbox.add_port(more);
        REQUIRE(added);
        const std::string names = said(sandbox, "cat /etc/resolv.conf /etc/hosts; ip address");
        CHECK(names.find("nameserver 10.0.2.3") != std::string::npos);
        for (const char* word : {"first", "second", "third"}) {
            const Result<Process> process = sandbox.spawn(server(word));
            REQUIRE(process);
            CHECK(eventually([&] { return ask_port(port) == word; }));
            CHECK(ask_port(added->outside) == word);
            reset(sandbox);
            CHECK(ask_port(port) != word);
            CHECK(sandbox.ports().size() == 2);
            CHECK(said(sandbox, "cat /etc/resolv.conf /etc/hosts; ip address") == names);
        }
        CHECK(sandbox.remove_port(*added));
        CHECK(ask_port(added->outside) == "ECONNREFUSED");
    }
    CHECK(difference(before, host_state()) == "");
}

TEST_CASE("reset: a command with rights over its network has them again, and finds what it has set")
{
    NEEDS("userns");
    Spec several = with_network();
    several.uid_map = {{0, ::getuid(), 1}};
    if (::getuid() == 0)
        several.gid_map = {{0, ::getgid(), 1}};
    several.uid = several.gid = 0;
    Spec locked = with_network();
    locked.capabilities.push_back({CapabilityEdit::Kind::add_all, 0});
    Spec renamed = with_network();
    renamed.uid = 1;
    renamed.capabilities.push_back(
        {CapabilityEdit::Kind::add, *capability_by_name("CAP_NET_ADMIN")});
    for (Spec spec : {several, locked, renamed}) {
        spec.namespaces.user = Own::yes;
        spec.capabilities.push_back(
            {CapabilityEdit::Kind::add, *capability_by_name("CAP_NET_ADMIN")});
        Sandbox sandbox = created(spec);
        const std::string before = said(sandbox, "id; cat /proc/self/status | grep Cap");
        CHECK(said(sandbox, "ip link set lo mtu 1400 && echo done") == "done\n");
        for (int i = 0; i < 2; ++i) {
            reset(sandbox);
            CHECK(said(sandbox, "ip link show lo").find("mtu 1400") != std::string::npos);
            CHECK(said(sandbox, "ip link set lo mtu 1400 && echo done") == "done\n");
            CHECK(said(sandbox, "id; cat /proc/self/status | grep Cap") == before);
            CHECK(said(sandbox, "umount /usr 2>/dev/null || echo refused") == "refused\n");
        }
    }
}

TEST_CASE("reset: changes of a temporary overlay are gone, those that are kept are there")
{
    NEEDS("userns");
    const Folder folder;
    const std::string lower = folder.make("lower");
    std::ofstream{lower + "/file"} << "lower";
    for (const bool is_kept : {false, true}) {
        Spec spec = workshop();
        Overlay overlay;
        overlay.lower = {lower};
        overlay.destination = "/tmp/tree";
        overlay.upper_kind = is_kept ? Overlay::Upper::kept : Overlay::Upper::temporary;
        if (is_kept) {
            overlay.upper = folder.make("upper");
            overlay.work = folder.make("work");
        }
        spec.operations.emplace_back(overlay);
        Sandbox sandbox = created(spec);
        CHECK(said(sandbox, "echo changed > /tmp/tree/file; cat /tmp/tree/file") == "changed\n");
        reset(sandbox);
        CHECK(said(sandbox, "cat /tmp/tree/file") == (is_kept ? "changed\n" : "lower"));
    }
}

TEST_CASE("reset: where there is no network of its own the other one is used again")
{
    NEEDS("userns");
    Spec host = workshop();
    host.namespaces.net = Own::no;
    const std::string ours = std::filesystem::read_symlink("/proc/self/ns/net").string() + "\n";
    Sandbox sandbox = created(host);
    CHECK(said(sandbox, "readlink /proc/self/ns/net") == ours);
    reset(sandbox);
    CHECK(said(sandbox, "readlink /proc/self/ns/net") == ours);

    Sandbox first = created(workshop());
    const std::string theirs = said(first, "readlink /proc/self/ns/net");
    const std::string path = "/proc/" + std::to_string(first.child_pid()) + "/ns/net";
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    Spec joined = workshop();
    joined.join_network.emplace();
    joined.join_network->by = JoinNetwork::By::descriptor;
    joined.join_network->descriptor = fd;
    Sandbox second = created(joined);
    ::close(fd);
    CHECK(said(second, "readlink /proc/self/ns/net") == theirs);
    reset(second);
    CHECK(said(second, "readlink /proc/self/ns/net") == theirs);
}

TEST_CASE("reset: what cannot be made anew is left as it is")
{
    NEEDS("userns");
    const int file = ::open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    Spec read = workshop();
    read.operations.emplace_back(File{file, "/tmp/passwd", 0644});
    Sandbox sandbox = created(read);
    ::close(file);
    CHECK(error_of(sandbox.reset()) == ENOTSUP);
    CHECK(said(sandbox, "test -s /tmp/passwd && echo there") == "there\n");

    Sandbox closed = created(workshop());
    closed.close();
    CHECK(error_of(closed.reset()) == ESRCH);
    Result<Sandbox> started = Sandbox::start(full_spec(exits(0)));
    REQUIRE(started);
    CHECK(error_of(started->reset()) == ENOTSUP);
    CHECK(outcome(started->wait()) == "exit 0");
}

TEST_CASE("reset: where the new one cannot be made nothing is left")
{
    NEEDS("userns");
    const std::string before = host_state();
    {
        const Folder folder;
        const std::string source = folder.make("source");
        Spec spec = with_network();
        spec.operations.emplace_back(Bind{source, "/tmp/source"});
        Sandbox sandbox = created(spec);
        const std::uint16_t port = sandbox.ports().front().outside;
        const Result<Process> process = sandbox.spawn(server("here"));
        REQUIRE(process);
        CHECK(eventually([&] { return ask_port(port) == "here"; }));
        std::filesystem::remove(source);
        const Result<> failed = sandbox.reset();
        REQUIRE(!failed);
        CHECK(failed.error().message().find("/source") != std::string::npos);
        CHECK(eventually([&] { return ask_port(port) == "ECONNREFUSED"; }));
        CHECK(error_of(sandbox.reset()) == ESRCH);
        const Result<Process> late = sandbox.spawn(shell("true"));
        REQUIRE(!late);
        CHECK(late.error().err == ESRCH);
        CHECK(sandbox.ports().empty());
        CHECK(!sandbox.write_file("file", "text"));
    }
    CHECK(difference(before, host_state()) == "");
}

// What fails in the new one may do so before this process has heard of it.
TEST_CASE("reset: what could not be made is reaped, however early it failed")
{
    NEEDS("userns");
    const std::string before = host_state();
    const Folder folder;
    int failed = 0;
    for (int i = 0; i < 200; ++i) {
        const std::string source = folder.make("source");
        Spec spec = workshop();
        spec.namespaces.user = Own::yes;
        spec.operations.emplace_back(Bind{source, "/tmp/source"});
        Sandbox sandbox = created(spec);
        std::filesystem::remove(source);
        failed += sandbox.reset() ? 0 : 1;
    }
    CHECK(failed == 200);
    CHECK(difference(before, host_state()) == "");
}

TEST_CASE("reset: a sandbox that is closed has no process left, though its object is there")
{
    NEEDS("userns");
    const std::string before = host_state();
    Sandbox sandbox = created(with_network());
    sandbox.close();
    CHECK(difference(before, host_state()).find("children") == std::string::npos);
}

TEST_CASE("reset: again and again takes no more of the host")
{
    NEEDS("userns");
    const std::string before = host_state();
    {
        Sandbox sandbox = created(with_network());
        const std::size_t open = descriptor_count();
        for (int i = 0; i < 30; ++i) {
            CHECK(said(sandbox, "test ! -e /tmp/x && touch /tmp/x && echo fresh") == "fresh\n");
            reset(sandbox);
        }
        CHECK(descriptor_count() == open);
    }
    CHECK(difference(before, host_state()) == "");
}
