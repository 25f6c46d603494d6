// The ports of a running sandbox, through the library.

#include "nsbox/nsbox.hpp"
#include "nsbox/remote.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

constexpr const char* greeter = R"(
import socket
listener = socket.create_server(("10.0.2.100", 8000))
while True:
    client, _ = listener.accept()
    client.sendall(b"hello")
    client.close()
)";

PublishedPort wish(std::uint16_t outside)
{
    PublishedPort port;
    port.address = "127.0.0.1";
    port.outside = outside;
    port.inside = 8000;
    return port;
}

std::string said(const Result<>& result)
{
    return result ? "done" : result.error().message();
}

}  // namespace

TEST_CASE(
    "ports: another thread and another process change the ports of a sandbox that is waited for")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        char folder[] = "/tmp/nsbox-ports-XXXXXX";
        if (::mkdtemp(folder) == nullptr)
            return;
        ::setenv("XDG_RUNTIME_DIR", folder, 1);
        Spec spec = full_spec({"/usr/bin/python3", "-c", greeter});
        spec.user_network.emplace();
        spec.name = "ports";
        spec.end_with_command = true;
        Result<Sandbox> sandbox = Sandbox::start(spec);
        say("start", sandbox ? "started" : sandbox.error().message());
        if (!sandbox)
            return;
        std::string end;
        std::thread waiter{[&] { end = outcome(sandbox->wait()); }};
        const Result<PublishedPort> added = sandbox->add_port(wish(0));
        say("added", added ? "added" : added.error().message());
        const std::uint16_t port = added ? added->outside : std::uint16_t{0};
        say("answers",
            eventually([&] { return ask_port(port) == "hello"; }) ? "yes" : ask_port(port));
        const Result<PublishedPort> again = sandbox->add_port(wish(port));
        say("again", again ? "added" : "refused");
        say("removed", said(sandbox->remove_port(wish(port))));
        say("is gone", ask_port(port));
        say("twice", sandbox->remove_port(wish(port)) ? "removed" : "refused");

        const Result<Remote> remote = Remote::find("ports");
        say("found", remote ? "yes" : remote.error().message());
        if (remote) {
            const Result<PublishedPort> far = remote->add_port(wish(port));
            say("remote", far && far->outside == port ? "added" : "refused");
            say("answers again",
                eventually([&] { return ask_port(port) == "hello"; }) ? "yes" : "no");
            say("listed", static_cast<long>(sandbox->ports().size()));
            const Result<std::vector<PublishedPort>> list = remote->ports();
            say("listed there", list ? static_cast<long>(list->size()) : -1L);
            say("remote removal", said(remote->remove_port(wish(port))));
            say("is gone again", ask_port(port));
        }
        say("signal", said(sandbox->signal(SIGTERM)));
        waiter.join();
        say("end", end);
        ::rmdir((std::string{folder} + "/nsbox").c_str());
        say("left", ::rmdir(folder) == 0 ? "nothing" : "something");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["start"] == "started");
    CHECK(ended["added"] == "added");
    CHECK(ended["answers"] == "yes");
    CHECK(ended["again"] == "refused");
    CHECK(ended["removed"] == "done");
    CHECK(ended["is gone"] == "ECONNREFUSED");
    CHECK(ended["twice"] == "refused");
    CHECK(ended["found"] == "yes");
    CHECK(ended["remote"] == "added");
    CHECK(ended["answers again"] == "yes");
    CHECK(ended["listed"] == "1");
    CHECK(ended["listed there"] == "1");
    CHECK(ended["remote removal"] == "done");
    CHECK(ended["is gone again"] == "ECONNREFUSED");
    CHECK(ended["end"] == "signal 15");
    CHECK(ended["left"] == "nothing");
}

TEST_CASE("ports: a sandbox for many commands has its own, and ends with the helper of its network")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::here, [](Say& say) {
        Spec spec = workshop();
        spec.user_network.emplace();
        spec.user_network->ports = {wish(0)};
        Result<Sandbox> sandbox = Sandbox::create(spec);
        say("created", sandbox ? "yes" : sandbox.error().message());
        if (!sandbox)
            return;
        Command server;
        server.words = {"/usr/bin/python3", "-c", greeter};
        Result<Process> process = sandbox->spawn(server);
        const std::uint16_t port = sandbox->ports().at(0).outside;
        say("answers",
            eventually([&] { return ask_port(port) == "hello"; }) ? "yes" : ask_port(port));
        const Result<PublishedPort> added = sandbox->add_port(wish(0));
        say("added", added && eventually([&] { return ask_port(added->outside) == "hello"; })
                         ? "yes"
                         : "no");
        say("removed", added ? said(sandbox->remove_port(*added)) : "");
        say("is gone", added ? ask_port(added->outside) : "");
        // Nobody is in wait(), who would look after it: init does. It is our only child that is no init.
        std::ifstream children{"/proc/thread-self/children"};
        for (pid_t pid = 0; children >> pid;)
            if (pid != sandbox->child_pid())
                ::kill(pid, SIGKILL);
        const Result<ExitStatus> end =
            process ? process->wait() : tl::make_unexpected(process.error());
        say("ends", end && end->reason == Reason::sandbox_ended ? "yes" : "no");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["created"] == "yes");
    CHECK(ended["answers"] == "yes");
    CHECK(ended["added"] == "yes");
    CHECK(ended["removed"] == "done");
    CHECK(ended["is gone"] == "ECONNREFUSED");
    CHECK(ended["ends"] == "yes");
}
