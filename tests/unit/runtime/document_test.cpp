#include "nsbox/document.hpp"
#include "runtime/json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sys/resource.h>

using namespace nsbox;
using runtime::Json;

namespace {

Document read(const std::string& members)
{
    const std::string text = "{\"version\": 1" + (members.empty() ? "" : ", " + members) + "}";
    INFO(text);
    Result<Document> document = parse_document(text);
    INFO((document ? "" : document.error().message()));
    REQUIRE(document);
    return std::move(*document);
}

std::string error_of(const std::string& text)
{
    const Result<Document> document = parse_document(text);
    return document ? "none" : document.error().message();
}

/// What is wrong with members, without the beginning that all errors have.
std::string wrong(const std::string& members)
{
    const std::string message = error_of("{\"version\": 1, " + members + "}");
    const std::string start = "Can't use the document ";
    REQUIRE(message.compare(0, start.size(), start) == 0);
    return message.substr(start.size());
}

}  // namespace

TEST_CASE("document: the least one is what nsbox run has by default")
{
    const Document document = read("");
    CHECK(document.spec.command.empty());
    CHECK(document.spec.operations.empty());
    CHECK(document.spec.kept->empty());
    CHECK(document.everyday.policies == std::vector<std::string>{"default"});
    CHECK(document.everyday.landlock == Landlock::automatic);
    CHECK(!document.rootfs);
}

TEST_CASE("document: members arrive where they belong")
{
    Document it =
        read(R"("command": ["a", "b c", ""], "rootfs": "r", "overlay": "/o", "work-dir": "/w",
        "env": {"A": "1", "B": null}, "cwd": "/c", "uid": 0, "gid": 4294967294, "hostname": "h")");
    CHECK(it.spec.command == std::vector<std::string>{"a", "b c", ""});
    CHECK(it.rootfs == "r");
    CHECK(it.everyday.overlay == "/o");
    CHECK(it.everyday.changes == Everyday::Changes::kept);
    CHECK(it.everyday.work_directory == "/w");
    REQUIRE(it.spec.environment.size() == 2);
    CHECK(it.spec.environment[0].value == "1");
    CHECK(it.spec.environment[1].kind == EnvironmentEdit::Kind::unset);
    CHECK(it.spec.directory == "/c");
    CHECK(it.spec.uid == 0U);
    CHECK(it.spec.gid == 4294967294U);
    CHECK(std::get<Hostname>(it.spec.operations.at(0)).name == "h");
    it = read(R"("memory": 1048576, "pids": 5, "cpus": 1.5, "cpuset": "0", "best-effort": true,
        "tmpfs-size": 4096, "nice": -3, "rlimit": {"nofile": 64, "core": [0, null]}, "timeout": 1.5,
        "kill-after": 2, "cpu-time": 0.0001e4, "name": "n")");
    CHECK(it.spec.group_limits.memory == 1048576U);
    CHECK(it.spec.group_limits.processes == 5U);
    CHECK(it.spec.group_limits.processors == 1.5);
    CHECK(it.spec.group_limits.processor_set == "0");
    CHECK(it.spec.group_limits.best_effort);
    CHECK(it.spec.tmpfs_size == 4096U);
    CHECK(it.spec.nice == -3);
    REQUIRE(it.spec.resource_limits.size() == 2);
    CHECK(it.spec.resource_limits[0].hard == 64U);
    CHECK(it.spec.resource_limits[1].soft == 0U);
    CHECK(it.spec.resource_limits[1].hard == RLIM_INFINITY);
    CHECK(it.spec.limits.time.count() == 1500);
    CHECK(it.spec.limits.grace.count() == 2000);
    CHECK(it.spec.limits.cpu.count() == 1000);
    CHECK(it.spec.name == "n");
    it = read(R"("root": true, "seccomp-policy": [], "allow-userns": true, "allow-ptrace": true,
        "cap-add": ["net_raw"], "landlock": "off", "tcp-connect": [443, [8000, 8010]], "tcp-bind": [],
        "proc-fallback": "empty")");
    CHECK(it.everyday.as_root);
    CHECK(it.everyday.policies.empty());
    CHECK(it.everyday.allow_user_namespaces);
    CHECK(it.spec.mounts_inside);
    CHECK(it.everyday.allow_tracing);
    CHECK(it.spec.capabilities.at(0).number == 13U);
    CHECK(it.everyday.landlock == Landlock::off);
    CHECK(it.spec.tcp_connect->at(1).last == 8010);
    CHECK(it.spec.tcp_bind->empty());
    CHECK(it.spec.proc_fallback == ProcFallback::empty);
}

TEST_CASE("document: mounts and networks")
{
    const Document it = read(R"("mounts": [
        {"type": "bind", "source": "/s", "destination": "/d", "access": "read-write", "devices": true,
         "if-missing": "skip"},
        {"destination": "/t", "type": "tmpfs", "size": 5, "mode": 448},
        {"type": "directory", "destination": "/e"}, {"type": "text", "destination": "/f", "content": "x\n"},
        {"type": "symlink", "destination": "/l", "target": "t"}, {"type": "read-only", "destination": "/d"}],
        "net": {"mode": "user", "outbound": false, "ipv6": false, "names": false, "mtu": 1500, "tcp": "relay",
                "host-loopback": [5432]},
        "publish": [{"port": 80}, {"protocol": "udp", "address": "127.0.0.1", "host-port": 53, "port": 5353}])");
    REQUIRE(it.spec.operations.size() == 6);
    const Bind& bind = std::get<Bind>(it.spec.operations[0]);
    CHECK(bind.source == "/s");
    CHECK(bind.destination == "/d");
    CHECK(bind.access == Access::read_write);
    CHECK(bind.devices == Devices::allowed);
    CHECK(bind.if_missing == IfMissing::skip);
    CHECK(std::get<Tmpfs>(it.spec.operations[1]).size == 5U);
    CHECK(std::get<Tmpfs>(it.spec.operations[1]).mode == 0700U);
    CHECK(std::get<Directory>(it.spec.operations[2]).destination == "/e");
    CHECK(std::get<Text>(it.spec.operations[3]).content == "x\n");
    CHECK(std::get<Symlink>(it.spec.operations[4]).target == "t");
    CHECK(std::get<RemountReadOnly>(it.spec.operations[5]).destination == "/d");
    REQUIRE(it.spec.user_network);
    CHECK(!it.spec.user_network->outbound);
    CHECK(!it.spec.user_network->ipv6);
    CHECK(!it.spec.user_network->names);
    CHECK(it.spec.user_network->mtu == 1500U);
    CHECK(it.spec.user_network->tcp == UserNetwork::Tcp::relay);
    CHECK(it.spec.user_network->host_loopback.at(0).first == 5432);
    CHECK(it.spec.user_network->ports.at(0).inside == 80);
    CHECK(it.spec.user_network->ports.at(1).kind == PublishedPort::Kind::udp);
    CHECK(read(R"("net": "host")").spec.namespaces.net == Own::no);
    CHECK(!read(R"("net": "none")").spec.user_network);
    // In either order.
    CHECK(!read(R"("publish": [{"port": 80}], "net": {"mode": "user", "outbound": false})")
               .spec.user_network->outbound);
}

TEST_CASE("document: networks that are linked, joined and published by sockets")
{
    const Document veth = read(R"("host-socket": [{"path": "/run/db", "port": 5432}],
        "net": {"mode": "veth", "mtu": 1400, "ipv6": false, "outbound": false, "names": false, "bridge": "br0",
                "address": "10.1.2.3/24", "gateway": "10.1.2.1", "host-loopback": [[1, 2]]},
        "publish": [{"unix": "/run/web", "port": 80, "to-loopback": true}])");
    CHECK(!veth.spec.user_network);
    REQUIRE(veth.spec.veth_network);
    const VethNetwork& link = *veth.spec.veth_network;
    CHECK(link.mtu == 1400U);
    CHECK(!(link.ipv6 || link.outbound || link.names));
    CHECK(link.bridge + " " + link.address + " " + link.gateway == "br0 10.1.2.3/24 10.1.2.1");
    CHECK(link.host_loopback.at(0).last == 2);
    REQUIRE(link.ports.size() == 2);
    CHECK(link.ports[0].kind == PublishedPort::Kind::host_socket);
    CHECK(link.ports[0].path == "/run/db");
    CHECK(link.ports[0].inside == 5432);
    CHECK(link.ports[1].kind == PublishedPort::Kind::unix_socket);
    CHECK(link.ports[1].path == "/run/web");
    CHECK(link.ports[1].to_loopback);
    CHECK(read(R"("net": "veth")").spec.veth_network);
    const Document user = read(R"("net": {"link": "tap", "required": true})");
    CHECK(user.spec.user_network->link == UserNetwork::Link::tap);
    CHECK(user.spec.user_network->end_with_helper);
    const Document other = read(R"("net": {"mode": "join", "sandbox": "db"})");
    CHECK(other.spec.join_network->by == JoinNetwork::By::sandbox);
    CHECK(other.spec.join_network->name == "db");
    const Document file = read(R"("net": {"mode": "join", "path": "/run/netns/x"})");
    CHECK(file.spec.join_network->by == JoinNetwork::By::path);
    CHECK(file.spec.join_network->name == "/run/netns/x");

    CHECK(wrong(R"("net": {"mode": "join"})").find("/net: it has to have \"sandbox\"") == 0);
    CHECK(wrong(R"("net": {"mode": "join", "sandbox": "a", "path": "/b"})").find("and not both") !=
          std::string::npos);
    CHECK(wrong(R"("net": {"mode": "join", "sandbox": "/a"})").find("/net/sandbox: ") == 0);
    CHECK(wrong(R"("net": {"mode": "cake"})").find("/net/mode: \"cake\" is not one of") == 0);
    CHECK(wrong(R"("net": {"mode": "veth", "tcp": "relay"})").find("/net/tcp: there is no") == 0);
    CHECK(wrong(R"("net": {"mode": "veth", "mtu": 1279})").find("/net/mtu: it has to be") == 0);
    CHECK(wrong(R"("net": "user", "publish": [{"unix": "/a", "host-port": 1, "port": 2}])") ==
          "/publish/0/host-port: a unix socket has none");
    CHECK(wrong(R"("net": "user", "host-socket": [{"port": 2}])") ==
          "/host-socket/0: it has no \"path\"");
    CHECK(wrong(R"("net": {"mode": "join", "sandbox": "a"}, "host-socket": [])")
              .find("/host-socket: it requires the network") == 0);
}

TEST_CASE("document: members for one command, for disks and for further mounts")
{
    const Document it = read(R"("argv0": "-sh", "as-pid-1": true, "lock-files": ["/a", "/b"],
        "log-denials": true, "disable-userns": true, "cap-drop": ["CAP_CHOWN"], "exec-label": "e",
        "file-label": "f", "landlock": "only",
        "io": [{"path": "/dev/x", "rbps": 1, "wbps": 2, "riops": 3, "wiops": 4}], "mounts": [
        {"type": "overlay", "destination": "/o", "lower": ["/1", "/2"]},
        {"type": "overlay", "destination": "/o", "lower": ["/1"], "changes": "temporary"},
        {"type": "proc", "destination": "/p"}, {"type": "dev", "destination": "/d"},
        {"type": "mqueue", "destination": "/m"}, {"type": "chmod", "destination": "/c", "mode": 448}])");
    CHECK(it.spec.argv0 == "-sh");
    CHECK(it.spec.command_is_pid_1);
    CHECK(it.spec.lock_files == std::vector<std::string>{"/a", "/b"});
    REQUIRE(it.spec.denials);
    CHECK(it.spec.denials->descriptor == 2);
    CHECK(it.spec.disable_user_namespaces);
    CHECK(it.spec.capabilities.at(0).kind == CapabilityEdit::Kind::drop);
    CHECK(it.spec.exec_label == "e");
    CHECK(it.spec.file_label == "f");
    CHECK(it.everyday.landlock == Landlock::only);
    const DiskLimit& disk = it.spec.group_limits.disks.at(0);
    CHECK(disk.path == "/dev/x");
    CHECK(disk.read_bytes == 1U);
    CHECK(disk.write_bytes == 2U);
    CHECK(disk.read_operations == 3U);
    CHECK(disk.write_operations == 4U);
    REQUIRE(it.spec.operations.size() == 6);
    CHECK(std::get<Overlay>(it.spec.operations[0]).lower.at(1) == "/2");
    CHECK(std::get<Overlay>(it.spec.operations[0]).upper_kind == Overlay::Upper::none);
    CHECK(std::get<Overlay>(it.spec.operations[1]).upper_kind == Overlay::Upper::temporary);
    CHECK(std::get<Proc>(it.spec.operations[2]).destination == "/p");
    CHECK(std::get<Dev>(it.spec.operations[3]).destination == "/d");
    CHECK(std::get<Mqueue>(it.spec.operations[4]).destination == "/m");
    CHECK(std::get<Chmod>(it.spec.operations[5]).mode == 0700U);
    CHECK(!read(R"("log-denials": false)").spec.denials);

    CHECK(wrong(R"("io": [{"rbps": 1}])") == "/io/0: it has no \"path\"");
    CHECK(wrong(R"("io": [{"path": "/a"}])").find("/io/0: it limits nothing") == 0);
    CHECK(wrong(R"("io": [{"path": "/a", "rbps": 0}])").find("/io/0/rbps: it has to be") == 0);
    CHECK(wrong(R"("mounts": [{"type": "overlay", "destination": "/o", "lower": ["/a"]}])")
              .find("/mounts/0: it takes at least two folders") == 0);
    CHECK(
        wrong(R"("mounts": [{"type": "overlay", "destination": "/o", "changes": "temporary"}])") ==
        "/mounts/0: it has no \"lower\"");
    CHECK(wrong(R"("mounts": [{"type": "proc"}])") == "/mounts/0: it has no \"destination\"");
    CHECK(wrong(R"("lock-files": ["a"])") == "/lock-files/0: it is no absolute path");
    CHECK(wrong(R"("log-denials": "/x")").find("/log-denials: it is a text") == 0);
}

TEST_CASE("document: what is wrong is told by its place")
{
    CHECK(error_of("{}").find("it has no \"version\"") != std::string::npos);
    CHECK(error_of(R"({"version": 2})").find("/version: it has to be a whole number from 1 to 1") !=
          std::string::npos);
    CHECK(error_of("[]") == "Can't use the document /: it is a list, and has to be an object");
    CHECK(wrong(R"("memory": "5")") == "/memory: it is a text, and has to be a number");
    CHECK(wrong(R"("memory": 1.5)").find("/memory: it has to be a whole number from 1") == 0);
    CHECK(wrong(R"("memory": 0)").find("/memory: it has to be a whole number") == 0);
    CHECK(wrong(R"("memory": 1e400)").find("it is no JSON") != std::string::npos);
    CHECK(wrong(R"("memorry": 5)")
              .find("/memorry: there is no such member (hint: there are: version, ") == 0);
    CHECK(wrong(R"("a/b~c": 5)").find("/a~1b~0c: ") == 0);
    CHECK(wrong(R"("cwd": "x")") == "/cwd: it is no absolute path");
    CHECK(wrong(R"("command": [1])") == "/command/0: it is a number, and has to be a text");
    CHECK(wrong(R"("command": ["a\u0000b"])").find("/command/0: a text must not have") == 0);
    CHECK(wrong(R"("mounts": [{}])") == "/mounts/0: it has no \"type\"");
    CHECK(wrong(R"("mounts": [{"type": "cake"}])")
              .find("/mounts/0/type: \"cake\" is not one of bind, tmpfs") == 0);
    CHECK(wrong(R"("mounts": [{"type": "tmpfs"}])") == "/mounts/0: it has no \"destination\"");
    CHECK(wrong(R"("mounts": [{"type": "bind", "destination": "/d"}])") ==
          "/mounts/0: it has no \"source\"");
    CHECK(wrong(R"("mounts": [{"type": "tmpfs", "destination": "/d", "source": "/s"}])")
              .find("/mounts/0/source: there is no such member") == 0);
    CHECK(wrong(R"("net": "best")").find("/net: \"best\" is not one of none, host, user") == 0);
    for (const std::string net : {"", R"("net": "host", )", R"("net": "none", )"})
        CHECK(wrong(net + R"("publish": [{"port": 1}])") ==
              "/publish: it requires the network \"user\" or \"veth\"");
    CHECK(wrong(R"("publish": [{"host-port": 1}])") == "/publish/0: it has no \"port\"");
    CHECK(wrong(R"("publish": [{"port": 65536}])").find("/publish/0/port: it has to be") == 0);
    CHECK(wrong(R"("tcp-connect": [[2, 1]])").find("/tcp-connect/0: its first port is above") == 0);
    CHECK(wrong(R"("rlimit": {"cake": 1})") == "/rlimit/cake: there is no such resource");
    CHECK(wrong(R"("rlimit": {"core": [2, 1]})").find("/rlimit/core: its soft limit") == 0);
    CHECK(wrong(R"("cap-add": ["cake"])") == "/cap-add/0: there is no capability cake");
    CHECK(wrong(R"("env": {"A=B": "1"})").find("it is no name of a variable") != std::string::npos);
    CHECK(wrong(R"("overlay": true)").find("/overlay: it requires \"rootfs\"") == 0);
    CHECK(wrong(R"("root": true, "uid": 5)").find("/root: ") == 0);
    CHECK(wrong(R"("timeout": 0)").find("/timeout: it has to be a number of seconds") == 0);
    CHECK(wrong(R"("landlock": "cake")").find("/landlock: ") == 0);
    CHECK(error_of(R"({"version": 1, "uid": 1, "uid": 2})").find("\"uid\" is there twice") !=
          std::string::npos);
}

TEST_CASE("document: what is no JSON is told by line and column")
{
    CHECK(error_of("{\n  \"version\": 1,\n  \"uid\": x\n}")
              .find("line 3, column 10: it is no JSON") != std::string::npos);
    CHECK(error_of("").find("it is no JSON") != std::string::npos);
    CHECK(error_of(R"({"version": 1} x)").find("it is no JSON") != std::string::npos);
    CHECK(error_of("{\"version\": 1, \"name\": \"\xff\"}").find("it is no JSON") !=
          std::string::npos);
    CHECK(error_of(std::string(100, '[')).find("more than 32") != std::string::npos);
    CHECK(error_of(R"({"version": 1, // a comment
        "uid": 1})")
              .find("it is no JSON") != std::string::npos);
}

TEST_CASE("document: every member of the schema is one that is read, of that type alone")
{
    const Result<Json> schema = runtime::parse_json(document_schema(), "schema");
    INFO((schema ? "" : schema.error().message()));
    REQUIRE(schema);
    const auto member = [](const Json& object, const std::string& name) {
        const auto at = std::find_if(object.members.begin(), object.members.end(),
                                     [&](const auto& one) { return one.name == name; });
        REQUIRE(at != object.members.end());
        return at->value;
    };
    const Json properties = member(*schema, "properties");
    CHECK(properties.members.size() > 30);
    for (const Json::Member& one : properties.members) {
        INFO(one.name);
        // Something that no member takes.
        const std::string message =
            wrong(one.name == "version" ? "\"uid\": []" : "\"" + one.name + "\": [[[]]]");
        CHECK(message.find("there is no such member") == std::string::npos);
        CHECK(one.value.kind == Json::Kind::object);
    }
}
