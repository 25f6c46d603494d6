#include <run_parser.hpp>

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace nsbox;
using tests::CapturedErrors;
using tests::contains;
using tool::RunRequest;

namespace {

using Words = std::vector<std::string>;

struct Parsed {
    std::optional<RunRequest> run;
    std::string errors;
};

Parsed parse(const Words& words)
{
    const CapturedErrors captured;
    tool::Messages messages{"nsbox"};
    Parsed parsed;
    parsed.run = tool::parse_run(words, messages);
    parsed.errors = captured.text();
    return parsed;
}

RunRequest run_of(const Words& words)
{
    Parsed parsed = parse(words);
    CHECK(parsed.errors.empty());
    REQUIRE(parsed.run.has_value());
    return std::move(*parsed.run);
}

std::string error_of(const Words& words)
{
    const Parsed parsed = parse(words);
    CHECK_FALSE(parsed.run.has_value());
    return parsed.errors;
}

}  // namespace

TEST_CASE("run: words behind the options are the command, whatever they look like")
{
    CHECK(run_of({"ls", "-l", "--ro"}).request.spec.command == Words{"ls", "-l", "--ro"});
    CHECK(run_of({"--", "--verbose", "a  b"}).request.spec.command == Words{"--verbose", "a  b"});
    CHECK(run_of({"--verbose", "--", "x"}).verbose);
    CHECK(run_of({}).request.spec.command.empty());
    CHECK(run_of({"-"}).request.spec.command == Words{"-"});
}

TEST_CASE("run: an option's value is the next word, or follows an equals sign")
{
    CHECK(run_of({"--rootfs", "python", "x"}).rootfs == "python");
    CHECK(run_of({"--rootfs=a=b", "x"}).rootfs == "a=b");
    CHECK(run_of({"--hostname=box", "x"}).request.spec.operations.size() == 1);
    CHECK(contains(error_of({"--rootfs"}), "--rootfs takes an argument"));
    CHECK(contains(error_of({"--verbose=yes", "x"}), "--verbose takes no argument"));
}

TEST_CASE("run: an overlay is lost at the end, or kept where a folder is named")
{
    const RunRequest lost = run_of({"--rootfs", "r", "--overlay", "x"});
    CHECK(lost.base.changes == Everyday::Changes::temporary);
    CHECK(lost.request.spec.command == Words{"x"});
    const RunRequest kept = run_of({"--rootfs", "r", "--overlay=/d", "x"});
    CHECK(kept.base.changes == Everyday::Changes::kept);
    CHECK(kept.base.overlay == "/d");
    CHECK(contains(error_of({"--overlay", "x"}), "--overlay requires --rootfs"));
    CHECK(contains(error_of({"--rootfs", "r", "--overlay=", "x"}), "takes a folder"));
}

TEST_CASE("run: what is shown keeps its place, unless another is named")
{
    const auto bind = [](const Words& words) {
        return std::get<Bind>(run_of(words).request.spec.operations.at(0));
    };
    CHECK(bind({"--ro", "/etc/passwd", "x"}).destination == "/etc/passwd");
    CHECK(bind({"--ro", "/etc/passwd", "x"}).access == Access::read_only);
    CHECK(bind({"--rw", "/tmp:/data", "x"}).destination == "/data");
    CHECK(bind({"--rw", "/tmp:/data", "x"}).source == "/tmp");
    CHECK(bind({"--rw", "/tmp:/data", "x"}).access == Access::read_write);
    CHECK(bind({"--rw", "/tmp/", "x"}).destination == "/tmp");
    CHECK(run_of({"--rw", "/tmp", "x"}).shown == Words{"/tmp"});
    CHECK(run_of({"--rw", "/tmp:/data", "x"}).shown.empty());
    CHECK(contains(error_of({"--ro", "/nonexistent:/x", "x"}), "No such file or directory"));
    CHECK(contains(error_of({"--ro", "/", "x"}), "the whole root"));
    CHECK(contains(error_of({"--ro", "/tmp:/", "x"}), "the whole root"));
}

TEST_CASE("run: variables are given with a value, or by name alone")
{
    ::setenv("NSBOX_TEST_VARIABLE", "from here", 1);
    ::unsetenv("NSBOX_TEST_MISSING");
    const std::vector<EnvironmentEdit> edits =
        run_of(
            {"--env", "A=b=c", "--env", "NSBOX_TEST_VARIABLE", "--env", "NSBOX_TEST_MISSING", "x"})
            .request.spec.environment;
    REQUIRE(edits.size() == 3);
    CHECK(edits[0].name == "A");
    CHECK(edits[0].value == "b=c");
    CHECK(edits[1].value == "from here");
    CHECK(edits[2].kind == EnvironmentEdit::Kind::unset);
    CHECK(contains(error_of({"--env", "=x", "x"}), "no name"));
}

TEST_CASE("run: options of the bwrap command line are taken, but for those that weaken a wall")
{
    const Spec spec =
        run_of({"--tmpfs", "/a", "--cap-add", "net_raw", "--timeout", "2", "--uid", "5", "x"})
            .request.spec;
    CHECK(std::get<Tmpfs>(spec.operations.at(0)).destination == "/a");
    CHECK(spec.limits.time.count() == 2000);
    CHECK(spec.uid == 5);
    CHECK(contains(error_of({"--share-net", "x"}), "--net host"));
    CHECK(contains(error_of({"--unshare-net", "x"}), "bwrap command line only"));
    CHECK(contains(error_of({"--nonsense", "x"}), "Unknown option --nonsense"));
    CHECK(contains(error_of({"--root-fs", "x"}), "Unknown option"));
    CHECK(contains(error_of({"--work", "x"}), "--work-dir"));
}

TEST_CASE("run: a network is loopback alone unless another is named")
{
    CHECK(run_of({"x"}).request.spec.namespaces.net == Own::yes);
    CHECK(run_of({"--net", "host", "x"}).request.spec.namespaces.net == Own::no);
    CHECK(run_of({"--net", "user", "-p", "80:80", "x"}).request.spec.user_network->ports.size() ==
          1);
    CHECK(contains(error_of({"-p", "80:80", "x"}), "--net user"));
}

TEST_CASE("run: Landlock is behind the mounts unless something else is said")
{
    CHECK(run_of({"x"}).base.landlock == Landlock::automatic);
    CHECK(run_of({"--landlock", "off", "x"}).base.landlock == Landlock::off);
    CHECK(run_of({"--landlock=only", "x"}).base.landlock == Landlock::only);
    CHECK(contains(error_of({"--landlock", "on", "x"}), "auto, off or only"));
    CHECK_FALSE(run_of({"x"}).falls_back);
    CHECK(run_of({"--fallback", "landlock", "x"}).falls_back);
    CHECK(contains(error_of({"--fallback", "none", "x"}), "--fallback takes landlock"));
    CHECK_FALSE(run_of({"x"}).request.spec.tcp_connect.has_value());
    const Spec spec =
        run_of({"--tcp-connect", "443,8000-8010", "--tcp-connect", "0", "--tcp-bind", "none", "x"})
            .request.spec;
    REQUIRE(spec.tcp_connect->size() == 3);
    CHECK(spec.tcp_connect->at(1).first == 8000);
    CHECK(spec.tcp_connect->at(1).last == 8010);
    CHECK(spec.tcp_connect->at(2).last == 0);
    CHECK(spec.tcp_bind->empty());
    for (const char* wrong : {"", "65536", "2-1", "1,", "-", "x", "1-2-3", "+1", " 1"})
        CHECK(contains(error_of({"--tcp-bind", wrong, "x"}), "ports from 0 to 65535"));
}

TEST_CASE("run: what contradicts itself is refused")
{
    CHECK(contains(error_of({"--shell", "a", "--script", "b"}), "use one"));
    CHECK(contains(error_of({"--interpreter", "sh", "x"}), "is for --script"));
    CHECK(contains(error_of({"--root", "--uid", "5", "x"}), "--root means"));
    CHECK(contains(error_of({"--keep-fd", "x", "x"}), "number of a descriptor"));
    CHECK(contains(error_of({"--keep-fd", "987654", "x"}), "not open"));
    CHECK(contains(error_of({"--work-dir", "/etc/passwd", "x"}), "no folder"));
    CHECK(contains(error_of({"--work-dir", "/nonexistent", "x"}), "make it first"));
}

TEST_CASE("run: the help names every option")
{
    const std::string help = tool::run_help();
    for (const char* option : {"--rootfs", "--overlay", "--ro ", "--rw ", "--env-file", "--tmpfs",
                               "--publish", "--timeout", "--dry-run"})
        CHECK(contains(help, option));
    CHECK_FALSE(contains(help, "--share-net"));
}
