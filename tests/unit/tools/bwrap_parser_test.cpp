#include <bwrap_parser.hpp>

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <doctest/doctest.h>

#include <sstream>

using namespace nsbox;
using tests::begins_with;
using tests::CapturedErrors;
using tests::contains;
using tool::Request;

namespace {

using Words = std::vector<std::string>;

struct Parsed {
    std::optional<Request> request;
    std::string errors;
};

Parsed parse(const Words& words)
{
    const CapturedErrors captured;
    tool::Messages messages{"bwrap"};
    Parsed parsed;
    parsed.request = tool::BwrapParser{messages}.parse(words);
    parsed.errors = captured.text();
    return parsed;
}

/// What words before a command mean, if they are taken without a word.
Spec spec_of(Words words)
{
    words.emplace_back("command");
    const Parsed parsed = parse(words);
    CHECK(parsed.errors.empty());
    REQUIRE(parsed.request.has_value());
    REQUIRE(parsed.request->kind == Request::Kind::run);
    return parsed.request->spec;
}

/// As spec_of(), with what is said about it.
Spec spec_with(Words words, const std::string& expected)
{
    words.emplace_back("command");
    const Parsed parsed = parse(words);
    CHECK(parsed.errors == expected);
    REQUIRE(parsed.request.has_value());
    return parsed.request->spec;
}

/// The error of words that must not be taken, without the program's name and the newline.
std::string error_of(Words words, bool with_command = true)
{
    if (with_command)
        words.emplace_back("command");
    const Parsed parsed = parse(words);
    REQUIRE_FALSE(parsed.request.has_value());
    REQUIRE(begins_with(parsed.errors, "bwrap: "));
    REQUIRE(parsed.errors.back() == '\n');
    return parsed.errors.substr(7, parsed.errors.size() - 8);
}

template <class Op>
Op only(const Spec& spec)
{
    REQUIRE(spec.operations.size() == 1);
    REQUIRE(std::holds_alternative<Op>(spec.operations[0]));
    return std::get<Op>(spec.operations[0]);
}

std::string number(int value)
{
    return std::to_string(value);
}

/// Words, each ended by NUL, in a file whose descriptor the parser will close.
int words_file(const Words& words)
{
    std::string text;
    for (const std::string& word : words)
        text += word + '\0';
    return tests::memory_file(text).release();
}

}  // namespace

TEST_CASE("parser: without options only the mount namespace is new")
{
    const Spec spec = spec_of({});
    CHECK(spec.command == Words{"command"});
    const Namespaces& ns = spec.namespaces;
    for (const Own own : {ns.user, ns.pid, ns.ipc, ns.net, ns.uts, ns.cgroup})
        CHECK(own == Own::no);
    CHECK(spec.operations.empty());
    CHECK(spec.environment.empty());
    CHECK_FALSE(spec.uid.has_value());
    CHECK_FALSE(spec.new_session);
    CHECK_FALSE(spec.die_with_parent);
}

TEST_CASE("parser: the command begins at the first word that is no option, or after --")
{
    CHECK(parse({"a", "--uid", "x"}).request->spec.command == Words{"a", "--uid", "x"});
    CHECK(parse({"--", "--uid", "5"}).request->spec.command == Words{"--uid", "5"});
    CHECK(parse({"--", "--", "a"}).request->spec.command == Words{"--", "a"});
    CHECK(parse({""}).request->spec.command == Words{""});
    CHECK(parse({"--new-session", "a", "--"}).request->spec.command == Words{"a", "--"});
}

TEST_CASE("parser: without a command there is only the usage to show")
{
    CHECK(parse({}).request->kind == Request::Kind::usage);
    CHECK(parse({"--"}).request->kind == Request::Kind::usage);
    CHECK(parse({"--unshare-pid"}).request->kind == Request::Kind::usage);
    CHECK(parse({"--uid", "5"}).errors.empty());
}

TEST_CASE("parser: --help and --version stop the reading where they are")
{
    CHECK(parse({"--help"}).request->kind == Request::Kind::help);
    CHECK(parse({"--version"}).request->kind == Request::Kind::version);
    CHECK(parse({"--help", "--nonsense"}).request->kind == Request::Kind::help);
    CHECK(parse({"--version", "--help"}).request->kind == Request::Kind::version);
    CHECK(begins_with(error_of({"--nonsense", "--help"}), "Unknown option --nonsense"));
    CHECK(parse({"a", "--help"}).request->kind == Request::Kind::run);
}

TEST_CASE("parser: an unknown option is refused, with the nearest one beside it")
{
    CHECK(error_of({"--ro-bnd", "/a", "/b"}) ==
          "Unknown option --ro-bnd (did you mean --ro-bind?)");
    CHECK(error_of({"--completely-different"}) == "Unknown option --completely-different");
    CHECK(error_of({"-x"}) == "Unknown option -x");
    CHECK(error_of({"-"}) == "Unknown option -");
    CHECK(error_of({"--unshare-pid=yes"}) ==
          "Unknown option --unshare-pid=yes (did you mean --unshare-pid?)");
    CHECK(error_of({"--uidd=5"}) == "Unknown option --uidd=5 (did you mean --uid?)");
}

TEST_CASE("parser: each option that lacks arguments says how many it takes")
{
    std::istringstream help{tool::help_text("bwrap")};
    int tried = 0;
    for (std::string line; std::getline(help, line);) {
        if (!begins_with(line, "    --"))
            continue;
        const std::string name = line.substr(4, line.find(' ', 4) - 4);
        const tool::OptionInfo& option = *tool::find_option(name);
        if (option.count <= 0 || option.opt == tool::Opt::overlay_src)
            continue;
        CAPTURE(name);
        ++tried;
        Words words{name};
        for (int given = 0; given < option.count; ++given) {
            CHECK(error_of(words, false) == name + " " + option.missing);
            words.emplace_back("1");
        }
    }
    CHECK(tried > 40);
    CHECK(begins_with(error_of({"--overlay-src"}, false), "--overlay-src must be followed by "));
}

TEST_CASE("parser: a log of denials has its place behind an equals sign, or goes to standard error")
{
    CHECK_FALSE(spec_of({}).denials.has_value());
    const Spec spec = spec_of({"--log-denials", "--uid", "5"});
    REQUIRE(spec.denials.has_value());
    CHECK(spec.denials->descriptor == 2);
    CHECK(spec.denials->options == DenialLog::Options::bwrap);
    // A call that nobody answers any more would fail.
    CHECK(spec.end_with_command);
    CHECK(spec_of({"--log-denials=1"}).denials->descriptor == 1);
    CHECK(begins_with(error_of({"--log-denials="}, false), "--log-denials= takes "));
    CHECK(begins_with(error_of({"--log-denials=/nowhere/log"}, false), "Can't open the file of "));
}

TEST_CASE("parser: an option's first argument may be joined to it")
{
    CHECK(spec_of({"--uid=5"}).uid == 5U);
    const auto bind = only<Bind>(spec_of({"--bind=/a", "/b"}));
    CHECK(bind.source == "/a");
    CHECK(bind.destination == "/b");
    CHECK(*spec_of({"--chdir="}).directory == "");
    CHECK(*spec_of({"--chdir=/a=b"}).directory == "/a=b");
    CHECK(only<Overlay>(spec_of({"--overlay-src=/l", "--overlay=/u", "/w", "/d"})).upper == "/u");
    CHECK(error_of({"--bind=/a"}, false) == "--bind takes two arguments");
}

TEST_CASE("parser: ids are decimal numbers up to 2^32 - 2 and nothing else")
{
    CHECK(spec_of({"--uid", "0"}).uid == 0U);
    CHECK(spec_of({"--uid", "2147483648"}).uid == 2147483648U);
    CHECK(spec_of({"--gid", "4294967294"}).gid == 4294967294U);
    CHECK(spec_of({"--gid", "007"}).gid == 7U);
    for (const std::string text : {"", "-1", "+1", " 1", "1 ", "0x1", "1e3", "1.0", "one", "5\n",
                                   "4294967295", "4294967296", "18446744073709551616"}) {
        CAPTURE(text);
        CHECK(error_of({"--uid", text}) == "Invalid uid: " + text);
        CHECK(error_of({"--gid", text}) == "Invalid gid: " + text);
    }
}

TEST_CASE("parser: Q17: descriptors are decimal numbers up to 2^31 - 1 and nothing else")
{
    for (const char* const option :
         {"--userns", "--userns2", "--pidns", "--sync-fd", "--block-fd", "--userns-block-fd",
          "--info-fd", "--json-status-fd", "--seccomp", "--add-seccomp-fd", "--args"})
        for (const std::string text : {"", "-1", "+1", " 1", "x", "2147483648", "4294967301"}) {
            CAPTURE(option);
            CAPTURE(text);
            CHECK(error_of({option, text}) == "Invalid fd: " + text);
        }
    for (const char* const option :
         {"--bind-fd", "--ro-bind-fd", "--file", "--bind-data", "--ro-bind-data"})
        CHECK(error_of({option, "4294967301", "/x"}) == "Invalid fd: 4294967301");
    CHECK(spec_of({"--userns", "2147483647"}).namespaces.join_user == 2147483647);
    CHECK(spec_of({"--pidns", "0"}).namespaces.join_pid == 0);
}

TEST_CASE("parser: modes are octal numbers up to 07777 and nothing else")
{
    CHECK(only<Directory>(spec_of({"--perms", "0", "--dir", "/d"})).mode == 0);
    CHECK(only<Directory>(spec_of({"--perms", "755", "--dir", "/d"})).mode == 0755);
    CHECK(only<Directory>(spec_of({"--perms", "07777", "--dir", "/d"})).mode == 07777);
    CHECK(only<Chmod>(spec_of({"--chmod", "0644", "/d"})).mode == 0644);
    for (const std::string text :
         {"", "8", "0o7", "-1", "+7", " 7", "7 ", "10000", "77777777777777777777777", "rwx"}) {
        CAPTURE(text);
        CHECK(error_of({"--perms", text, "--dir", "/d"}) ==
              "--perms takes an octal argument <= 07777");
        CHECK(error_of({"--chmod", text, "/d"}) == "--chmod takes an octal argument <= 07777");
    }
}

TEST_CASE("parser: sizes are written as in C, are not 0, and have a limit")
{
    const auto size = [](const std::string& text) {
        return only<Tmpfs>(spec_of({"--size", text, "--tmpfs", "/t"})).size;
    };
    CHECK(size("1") == 1);
    CHECK(size("0x10") == 16);
    CHECK(size("0X1f") == 31);
    CHECK(size("010") == 8);
    CHECK(size("9223372036854775807") == 9223372036854775807U);
    for (const std::string text : {"", "0", "00", "0x", "0x0", "-1", "+1", " 1", "1k", "08", "0xg",
                                   "18446744073709551616"}) {
        CAPTURE(text);
        CHECK(error_of({"--size", text, "--tmpfs", "/t"}) ==
              "--size takes a non-zero number of bytes");
    }
    CHECK(error_of({"--size", "9223372036854775808", "--tmpfs", "/t"}) ==
          "--size (for tmpfs) is limited to 9223372036854775807");
}

TEST_CASE("parser: of an option that counts once the last use counts, with a warning")
{
    const auto warning = [](const std::string& option) {
        return "bwrap: Only the last " + option + " option will take effect\n";
    };
    CHECK(spec_with({"--uid", "1", "--uid", "2"}, warning("--uid")).uid == 2U);
    CHECK(spec_with({"--gid", "1", "--gid", "2"}, warning("--gid")).gid == 2U);
    CHECK(*spec_with({"--chdir", "/a", "--chdir", "/b"}, warning("--chdir")).directory == "/b");
    Spec spec = spec_with({"--userns", "50", "--userns", "51"}, warning("--userns"));
    CHECK(spec.namespaces.join_user == 51);
    CHECK(spec.consumed == std::vector<int>{50});
    spec = spec_with({"--userns2", "50", "--userns2", "51"}, warning("--userns2"));
    CHECK(spec.namespaces.join_user_last == 51);
    spec = spec_with({"--pidns", "50", "--pidns", "51"}, warning("--pidns"));
    CHECK(spec.namespaces.join_pid == 51);
    spec = spec_with({"--block-fd", "50", "--block-fd", "51"}, warning("--block-fd"));
    CHECK(spec.block_descriptor == 51);
    CHECK(spec.consumed == std::vector<int>{50});
    spec = spec_with({"--sync-fd", "50", "--sync-fd", "51"}, warning("--sync-fd"));
    CHECK(spec.sync_descriptors == std::vector<int>{51});
    CHECK(spec.consumed == std::vector<int>{50});
    spec = spec_with({"--seccomp", "50", "--seccomp", "51"}, warning("--seccomp"));
    CHECK(spec.seccomp_descriptor == 51);
    CHECK(spec.consumed == std::vector<int>{50});
    spec = spec_with({"--hostname", "a", "--hostname", "b"}, warning("--hostname"));
    REQUIRE(spec.operations.size() == 2);
    CHECK(std::get<Hostname>(spec.operations[1]).name == "b");
    const sys::Fd first = tests::memory_file();
    const sys::Fd second = tests::memory_file();
    for (const std::string option : {"--info-fd", "--json-status-fd"}) {
        spec =
            spec_with({option, number(first.get()), option, number(second.get())}, warning(option));
        CHECK(spec.consumed == std::vector<int>{first.get()});
    }
    CHECK(spec.status_descriptor == second.get());
}

TEST_CASE("parser: what may be repeated is, without a word")
{
    CHECK(spec_of({"--lock-file", "/a", "--lock-file", "/b"}).lock_files == Words{"/a", "/b"});
    CHECK(spec_of({"--unshare-pid", "--unshare-pid"}).namespaces.pid == Own::yes);
    CHECK(spec_of({"--cap-add", "ALL", "--cap-add", "ALL"}).capabilities.size() == 2);
    CHECK(spec_of({"--bind", "/a", "/b", "--bind", "/a", "/b"}).operations.size() == 2);
    CHECK(error_of({"--argv0", "a", "--argv0", "b"}) == "--argv0 used multiple times");
    CHECK(*spec_of({"--argv0", ""}).argv0 == "");
}

TEST_CASE("parser: --perms belongs to the next option, which has to make something")
{
    const Spec spec = spec_of({"--perms", "0700", "--dir", "/a", "--dir", "/b"});
    CHECK(std::get<Directory>(spec.operations[0]).mode == 0700);
    CHECK(std::get<Directory>(spec.operations[1]).mode == 0755);
    CHECK(only<Tmpfs>(spec_of({"--perms", "01777", "--tmpfs", "/t"})).mode == 01777);
    CHECK(only<File>(spec_of({"--perms", "0640", "--file", "50", "/f"})).mode == 0640);
    CHECK(only<Data>(spec_of({"--perms", "0640", "--bind-data", "50", "/f"})).mode == 0640);
    CHECK(only<Data>(spec_of({"--perms", "0640", "--ro-bind-data", "50", "/f"})).mode == 0640);
    const std::string must = "--perms must be followed by an option that creates a file";
    CHECK(error_of({"--perms", "0700", "--bind", "/a", "/b"}) == must);
    CHECK(error_of({"--perms", "0700", "--symlink", "a", "/b"}) == must);
    CHECK(error_of({"--perms", "0700", "--proc", "/p"}) == must);
    CHECK(error_of({"--perms", "0700", "--unshare-pid"}) == must);
    CHECK(error_of({"--perms", "0700"}) == must);
    CHECK(error_of({"--perms", "0700"}, false) == must);
    CHECK(error_of({"--perms", "0700", "--"}) == must);
    CHECK(error_of({"--perms", "0700", "--perms", "0700", "--dir", "/d"}) ==
          "--perms given twice for the same action");
}

TEST_CASE("parser: --size belongs to the next --tmpfs")
{
    for (const Words& words : {Words{"--size", "9", "--perms", "0700", "--tmpfs", "/t"},
                               Words{"--perms", "0700", "--size", "9", "--tmpfs", "/t"}}) {
        const auto tmpfs = only<Tmpfs>(spec_of(words));
        CHECK(tmpfs.size == 9);
        CHECK(tmpfs.mode == 0700);
    }
    const Spec spec = spec_of({"--size", "9", "--tmpfs", "/a", "--tmpfs", "/b"});
    CHECK(std::get<Tmpfs>(spec.operations[1]).size == 0);
    const std::string must = "--size must be followed by --tmpfs";
    CHECK(error_of({"--size", "9", "--dir", "/d"}) == must);
    CHECK(error_of({"--size", "9"}) == must);
    CHECK(error_of({"--size", "9", "--size", "9", "--tmpfs", "/t"}) ==
          "--size given twice for the same action");
}

TEST_CASE("parser: overlays take the layers before them, lowest first")
{
    const auto kept = only<Overlay>(
        spec_of({"--overlay-src", "/1", "--overlay-src", "/2", "--overlay", "/u", "/w", "/d"}));
    CHECK(kept.lower == Words{"/1", "/2"});
    CHECK(kept.upper_kind == Overlay::Upper::kept);
    CHECK(kept.upper == "/u");
    CHECK(kept.work == "/w");
    CHECK(kept.destination == "/d");
    const auto thrown_away = only<Overlay>(spec_of({"--overlay-src", "/1", "--tmp-overlay", "/d"}));
    CHECK(thrown_away.upper_kind == Overlay::Upper::temporary);
    const auto read_only = only<Overlay>(
        spec_of({"--overlay-src", "/1", "--overlay-src", "/2", "--ro-overlay", "/d"}));
    CHECK(read_only.upper_kind == Overlay::Upper::none);
    CHECK(read_only.destination == "/d");
    const Spec two = spec_of({"--overlay-src", "/1", "--tmp-overlay", "/a", "--overlay-src", "/2",
                              "--tmp-overlay", "/b"});
    CHECK(std::get<Overlay>(two.operations[1]).lower == Words{"/2"});
}

TEST_CASE("parser: A60 A61: overlays without enough layers, and layers without an overlay")
{
    CHECK(error_of({"--overlay", "/u", "/w", "/d"}) ==
          "--overlay requires at least one --overlay-src");
    CHECK(error_of({"--tmp-overlay", "/d"}) == "--tmp-overlay requires at least one --overlay-src");
    CHECK(error_of({"--ro-overlay", "/d"}) == "--ro-overlay requires at least two --overlay-src");
    CHECK(error_of({"--overlay-src", "/1", "--ro-overlay", "/d"}) ==
          "--ro-overlay requires at least two --overlay-src");
    const std::string must = "--overlay-src must be followed by another --overlay-src or one of "
                             "--overlay, --tmp-overlay, or --ro-overlay";
    CHECK(error_of({"--overlay-src", "/1"}) == must);
    CHECK(error_of({"--overlay-src", "/1", "--chdir", "/"}) == must);
    CHECK(error_of({"--overlay-src", "/1", "--perms", "0700", "--tmp-overlay", "/d"}) == must);
    CHECK(begins_with(error_of({"--overlay-src", "", "--tmp-overlay", "/d"}),
                      "Can't find source path : "));
}

TEST_CASE("parser: binds differ in access, devices and what a missing source means")
{
    struct Row {
        const char* option;
        Access access;
        Devices devices;
        IfMissing missing;
    };
    for (const Row& row :
         {Row{"--bind", Access::read_write, Devices::refused, IfMissing::fail},
          Row{"--bind-try", Access::read_write, Devices::refused, IfMissing::skip},
          Row{"--ro-bind", Access::read_only, Devices::refused, IfMissing::fail},
          Row{"--ro-bind-try", Access::read_only, Devices::refused, IfMissing::skip},
          Row{"--dev-bind", Access::read_write, Devices::allowed, IfMissing::fail},
          Row{"--dev-bind-try", Access::read_write, Devices::allowed, IfMissing::skip}}) {
        CAPTURE(row.option);
        const auto bind = only<Bind>(spec_of({row.option, "/a", "/b"}));
        CHECK(bind.source == "/a");
        CHECK(bind.destination == "/b");
        CHECK(bind.access == row.access);
        CHECK(bind.devices == row.devices);
        CHECK(bind.if_missing == row.missing);
        CHECK(begins_with(error_of({row.option, "", "/b"}), "Can't find source path : "));
    }
    CHECK(only<BindDescriptor>(spec_of({"--bind-fd", "50", "/b"})).access == Access::read_write);
    const auto read_only = only<BindDescriptor>(spec_of({"--ro-bind-fd", "50", "/b"}));
    CHECK(read_only.access == Access::read_only);
    CHECK(read_only.source == 50);
    CHECK(read_only.destination == "/b");
}

TEST_CASE("parser: the other operations hold what they were given, in the order given")
{
    const Spec spec =
        spec_of({"--proc",       "/p",   "--dev",       "/v",   "--mqueue", "/m",
                 "--remount-ro", "/r",   "--symlink",   "text", "/s",       "--file",
                 "50",           "/f",   "--bind-data", "51",   "/b",       "--ro-bind-data",
                 "52",           "/c",   "--tmpfs",     "/t",   "--dir",    "/d",
                 "--chmod",      "0700", "/d"});
    const auto& ops = spec.operations;
    REQUIRE(ops.size() == 11);
    CHECK(std::get<Proc>(ops[0]).destination == "/p");
    CHECK(std::get<Dev>(ops[1]).destination == "/v");
    CHECK(std::get<Mqueue>(ops[2]).destination == "/m");
    CHECK(std::get<RemountReadOnly>(ops[3]).destination == "/r");
    CHECK(std::get<Symlink>(ops[4]).target == "text");
    CHECK(std::get<Symlink>(ops[4]).destination == "/s");
    CHECK(std::get<File>(ops[5]).source == 50);
    CHECK(std::get<File>(ops[5]).mode == 0666);
    CHECK(std::get<Data>(ops[6]).access == Access::read_write);
    CHECK(std::get<Data>(ops[6]).mode == 0600);
    CHECK(std::get<Data>(ops[7]).access == Access::read_only);
    CHECK(std::get<Data>(ops[7]).source == 52);
    CHECK(std::get<Tmpfs>(ops[8]).mode == 0755);
    CHECK(std::get<Directory>(ops[9]).mode == 0755);
    CHECK(std::get<Chmod>(ops[10]).destination == "/d");
}

TEST_CASE("parser: namespaces that are asked for")
{
    CHECK(spec_of({"--unshare-user"}).namespaces.user == Own::yes);
    CHECK(spec_of({"--unshare-user-try"}).namespaces.user == Own::if_possible);
    CHECK(spec_of({"--unshare-user-try", "--unshare-user"}).namespaces.user == Own::yes);
    CHECK(spec_of({"--unshare-ipc"}).namespaces.ipc == Own::yes);
    CHECK(spec_of({"--unshare-net"}).namespaces.net == Own::yes);
    CHECK(spec_of({"--unshare-uts"}).namespaces.uts == Own::yes);
    CHECK(spec_of({"--unshare-cgroup"}).namespaces.cgroup == Own::yes);
    CHECK(spec_of({"--unshare-cgroup-try"}).namespaces.cgroup == Own::if_possible);
    CHECK(spec_of({"--unshare-cgroup", "--unshare-cgroup-try"}).namespaces.cgroup == Own::yes);
}

TEST_CASE("parser: --unshare-all takes what there is, and --share-net gives the network back")
{
    Namespaces ns = spec_of({"--unshare-all"}).namespaces;
    CHECK(ns.user == Own::if_possible);
    CHECK(ns.cgroup == Own::if_possible);
    for (const Own own : {ns.pid, ns.ipc, ns.net, ns.uts})
        CHECK(own == Own::yes);
    ns = spec_of({"--unshare-all", "--share-net"}).namespaces;
    CHECK(ns.net == Own::no);
    CHECK(ns.ipc == Own::yes);
    CHECK(spec_of({"--share-net", "--unshare-all"}).namespaces.net == Own::yes);
    CHECK(spec_of({"--unshare-all", "--share-net", "--unshare-net"}).namespaces.net == Own::yes);
    CHECK(spec_of({"--unshare-all", "--unshare-user"}).namespaces.user == Own::yes);
    CHECK(spec_of({"--unshare-cgroup", "--unshare-all"}).namespaces.cgroup == Own::yes);
}

TEST_CASE("parser: flags")
{
    CHECK(spec_of({"--new-session"}).new_session);
    CHECK(spec_of({"--die-with-parent"}).die_with_parent);
    CHECK(spec_of({"--as-pid-1"}).command_is_pid_1);
    CHECK(spec_of({"--unshare-user", "--disable-userns"}).disable_user_namespaces);
    CHECK(spec_of({"--assert-userns-disabled"}).assert_user_namespaces_disabled);
    CHECK(spec_of({"--not-a-security-boundary"}).tolerate_failed_submounts);
}

TEST_CASE("parser: nsbox's own options")
{
    using std::chrono::milliseconds;
    const Spec plain = spec_of({});
    CHECK_FALSE(plain.end_with_command);
    CHECK_FALSE(plain.limits.any());
    CHECK(plain.limits.grace == milliseconds{5000});
    CHECK(spec_of({"--kill-all"}).end_with_command);
    CHECK(spec_of({"--timeout", "1.5"}).limits.time == milliseconds{1500});
    CHECK(spec_of({"--timeout=2m"}).limits.time == milliseconds{120000});
    CHECK(spec_of({"--cpu-time", "90ms"}).limits.cpu == milliseconds{90});
    CHECK(spec_of({"--kill-after", "1h"}).limits.grace == milliseconds{3600000});
    CHECK(error_of({"--timeout", "soon"}) ==
          "--timeout takes a length of time, not \"soon\" (hint: 1.5, 500ms, 2s, 3m, 1h, 1d)");
    CHECK(spec_of({"--forward-signals"}).signals_command);
    CHECK(parse({"--forward-signals", "x"}).request->forward_signals);
    CHECK_FALSE(parse({"x"}).request->forward_signals);
    CHECK(parse({"--distinct-status", "x"}).request->distinct_status);
    CHECK_FALSE(parse({"--distinct-status", "x"}).request->terminal);
    CHECK(parse({"--pty", "x"}).request->terminal);
    CHECK_FALSE(parse({"--pty", "x"}).request->window.has_value());
    const Parsed sized = parse({"--pty-size", "100x30", "x"});
    CHECK(sized.request->terminal);
    CHECK(sized.request->window->columns == 100);
    CHECK(sized.request->window->rows == 30);
    for (const char* size :
         {"", "80", "x", "80x", "x24", "0x24", "80x0", "80x24x1", "-1x24", "65536x1"})
        CHECK(begins_with(error_of({"--pty-size", size}), "--pty-size takes COLUMNSxROWS"));
    const sys::Fd file = tests::memory_file();
    CHECK(spec_of({"--events-fd", number(file.get())}).events_descriptor == file.get());
}

TEST_CASE("parser: options that contradict each other are refused whatever their order")
{
    const sys::Fd file = tests::memory_file();
    const std::string info = number(file.get());
    CHECK(error_of({"--userns-block-fd", "50"}) == "--userns-block-fd requires --unshare-user");
    CHECK(error_of({"--userns-block-fd", "50", "--unshare-user"}) ==
          "--userns-block-fd requires --info-fd");
    CHECK(spec_of({"--userns-block-fd", "50", "--unshare-user", "--info-fd", info})
              .user_map_descriptor == 50);
    CHECK(error_of({"--unshare-user", "--userns", "50"}) ==
          "--userns not compatible --unshare-user");
    CHECK(error_of({"--userns", "50", "--unshare-user-try"}) ==
          "--userns not compatible --unshare-user-try");
    CHECK(error_of({"--disable-userns"}) == "--disable-userns requires --unshare-user");
    CHECK(error_of({"--disable-userns", "--unshare-user-try"}) ==
          "--disable-userns requires --unshare-user");
    CHECK(error_of({"--disable-userns", "--unshare-user", "--userns-block-fd", "50", "--info-fd",
                    info}) == "--disable-userns is not compatible with --userns-block-fd");
}

TEST_CASE("parser: the environment's edits keep their order")
{
    using Kind = EnvironmentEdit::Kind;
    const Spec spec = spec_of({"--setenv", "A", "x=y", "--unsetenv", "B", "--clearenv"});
    REQUIRE(spec.environment.size() == 3);
    CHECK(spec.environment[0].kind == Kind::set);
    CHECK(spec.environment[0].name == "A");
    CHECK(spec.environment[0].value == "x=y");
    CHECK(spec.environment[1].kind == Kind::unset);
    CHECK(spec.environment[1].name == "B");
    CHECK(spec.environment[2].kind == Kind::clear);
    CHECK(error_of({"--setenv", "A=B", "x"}) == "setenv failed: 'A=B' is no name of a variable");
    CHECK(error_of({"--setenv", "", "x"}) == "setenv failed: '' is no name of a variable");
    CHECK(error_of({"--unsetenv", ""}) == "unsetenv failed: '' is no name of a variable");
    CHECK(error_of({"--unsetenv", "A=B"}) == "unsetenv failed: 'A=B' is no name of a variable");
}

TEST_CASE("parser: capabilities by name, by number, and all")
{
    using Kind = CapabilityEdit::Kind;
    const auto edits = spec_of({"--cap-add", "CAP_NET_RAW", "--cap-drop", "net_raw", "--cap-add",
                                "all", "--cap-drop", "ALL", "--cap-add", "0x28"})
                           .capabilities;
    REQUIRE(edits.size() == 5);
    CHECK(edits[0].kind == Kind::add);
    CHECK(edits[0].number == 13);
    CHECK(edits[1].kind == Kind::drop);
    CHECK(edits[1].number == 13);
    CHECK(edits[2].kind == Kind::add_all);
    CHECK(edits[3].kind == Kind::drop_all);
    CHECK(edits[4].number == 40);
    CHECK(spec_of({"--cap-add", "63"}).capabilities[0].number == 63);
    for (const std::string text :
         {"", "cap_none", "cap_chown,cap_kill", "64", "-1", "cap_chown ", "ALLx"}) {
        CAPTURE(text);
        const std::string error = error_of({"--cap-add", text});
        CHECK(begins_with(error, "unknown cap: " + text + " (hint: ALL, or one of CAP_CHOWN "));
        CHECK(begins_with(error_of({"--cap-drop", text}), "unknown cap: " + text + " (hint: "));
    }
}

TEST_CASE("parser: SELinux labels need SELinux")
{
    const bool there = ::access("/sys/fs/selinux/enforce", F_OK) == 0;
    for (const char* const option : {"--exec-label", "--file-label"}) {
        if (there)
            CHECK(parse({option, "l", "command"}).request.has_value());
        else
            CHECK(error_of({option, "l"}) == "labeling not supported on this system");
    }
}

TEST_CASE("parser: options from a descriptor take effect where it is named")
{
    const int fd = words_file({"--dir", "/b", "--dir", ""});
    const Spec spec = spec_of({"--dir", "/a", "--args", number(fd), "--dir", "/c"});
    REQUIRE(spec.operations.size() == 4);
    const char* const expected[] = {"/a", "/b", "", "/c"};
    for (std::size_t i = 0; i < 4; ++i)
        CHECK(std::get<Directory>(spec.operations[i]).destination == expected[i]);
    CHECK_FALSE(tests::is_open(fd));
}

TEST_CASE("parser: the last word from a descriptor needs no NUL, and an empty one has no words")
{
    int fd = tests::memory_file(std::string{"--dir\0/b", 8}).release();
    CHECK(only<Directory>(spec_of({"--args", number(fd)})).destination == "/b");
    fd = tests::memory_file().release();
    CHECK(spec_of({"--args", number(fd)}).operations.empty());
}

TEST_CASE("parser: A32: several descriptors, and modifiers that reach from one to the next")
{
    const std::string one = number(words_file({"--dir", "/1"}));
    const std::string two = number(words_file({"--dir", "/2"}));
    CHECK(spec_of({"--args", one, "--args", two}).operations.size() == 2);
    const std::string layer = number(words_file({"--overlay-src", "/1"}));
    CHECK(only<Overlay>(spec_of({"--args", layer, "--tmp-overlay", "/d"})).lower == Words{"/1"});
}

TEST_CASE("parser: a descriptor's words may hold no further descriptor, nor the command")
{
    int fd = words_file({"--args", "50"});
    CHECK(error_of({"--args", number(fd)}) == "--args not supported in arguments file");
    fd = words_file({"--dir", "/b", "true", "x"});
    const Spec spec =
        spec_with({"--args", number(fd)}, "bwrap: --args " + number(fd) +
                                              ": the words from \"true\" on are no options and "
                                              "are ignored\n");
    CHECK(spec.command == Words{"command"});
    CHECK(spec.operations.size() == 1);
    fd = words_file({"--help"});
    CHECK(parse({"--args", number(fd), "command"}).request->kind == Request::Kind::help);
}

TEST_CASE("parser: a descriptor that cannot be read is an error")
{
    CHECK(error_of({"--args", "1000000"}) == "Can't read --args data: Bad file descriptor");
    const tests::Pipe pipe = tests::make_pipe();
    CHECK(error_of({"--args", number(pipe.write.get())}) ==
          "Can't read --args data: Bad file descriptor");
    CHECK(error_of({"--add-seccomp-fd", "1000000"}) ==
          "Can't read seccomp data: Bad file descriptor");
}

TEST_CASE("parser: there is no limit on the number of words")
{
    Words words;
    for (int i = 0; i < 20000; ++i)
        words.insert(words.end(), {"--dir", "/" + number(i)});
    const int fd = words_file(words);
    CHECK(spec_of({"--args", number(fd)}).operations.size() == 20000);
    CHECK(spec_of(words).operations.size() == 20000);
}

TEST_CASE("parser: filters are read where they are named, in order")
{
    const int one = tests::memory_file(std::string(8, 'a')).release();
    const int two = tests::memory_file(std::string(16, 'b')).release();
    const Spec spec = spec_of({"--add-seccomp-fd", number(one), "--add-seccomp-fd", number(two)});
    REQUIRE(spec.seccomp_programs.size() == 2);
    CHECK(spec.seccomp_programs[0] == std::vector<std::uint8_t>(8, 'a'));
    CHECK(spec.seccomp_programs[1].size() == 16);
    CHECK_FALSE(tests::is_open(one));
    const int odd = tests::memory_file("123456789").release();
    CHECK(error_of({"--add-seccomp-fd", number(odd)}) ==
          "Invalid seccomp data, must be multiple of 8");
}

TEST_CASE("parser: the two ways to name a filter exclude each other")
{
    const auto filter = [] { return number(tests::memory_file(std::string(8, 'a')).release()); };
    CHECK(error_of({"--seccomp", "50", "--add-seccomp-fd", filter()}) ==
          "--add-seccomp-fd cannot be combined with --seccomp");
    CHECK(error_of({"--add-seccomp-fd", filter(), "--seccomp", "50"}) ==
          "--seccomp cannot be combined with --add-seccomp-fd");
}

TEST_CASE("parser: a descriptor for reports has to be open for writing, before anything is made")
{
    const tests::Pipe pipe = tests::make_pipe();
    for (const char* const option : {"--info-fd", "--json-status-fd"}) {
        CAPTURE(option);
        CHECK(error_of({option, "1000000"}) == "Write to info_fd: Bad file descriptor");
        CHECK(error_of({option, number(pipe.read.get())}) ==
              "Write to info_fd: fd " + number(pipe.read.get()) + " is not open for writing");
    }
    CHECK(spec_of({"--info-fd", number(pipe.write.get())}).info_descriptor == pipe.write.get());
    CHECK(tests::is_open(pipe.write.get()));
}

TEST_CASE("parser: messages after --level-prefix begin with their severity")
{
    const Parsed parsed = parse({"--level-prefix", "--uid", "1", "--uid", "2", "--gid", "x", "c"});
    CHECK_FALSE(parsed.request.has_value());
    CHECK(parsed.errors == "<4>bwrap: Only the last --uid option will take effect\n"
                           "<3>bwrap: Invalid gid: x\n");
}

TEST_CASE("parser: the first error is the only one")
{
    const Parsed parsed = parse({"--uid", "x", "--gid", "y", "--nonsense"});
    CHECK(parsed.errors == "bwrap: Invalid uid: x\n");
}

TEST_CASE("parser: random words give either a request without errors or errors without a request")
{
    tests::Random random{4};
    Words vocabulary{"/a", "0700", "x", "1", "--", "", "=", "--uid=7", "--bind=/a", "--perms=0700"};
    std::istringstream help{tool::help_text("bwrap")};
    for (std::string line; std::getline(help, line);)
        if (begins_with(line, "    --"))
            vocabulary.push_back(line.substr(4, line.find(' ', 4) - 4));
    for (int round = 0; round < 3000; ++round) {
        Words words;
        for (std::size_t n = random.below(8); n > 0; --n) {
            words.push_back(random.of(vocabulary));
            // What reads a descriptor gets one that is closed: these tests' own stay open.
            if (begins_with(words.back(), "--") &&
                (words.back().find("fd") != std::string::npos || words.back() == "--args"))
                words.emplace_back("1000000");
        }
        const Parsed parsed = parse(words);
        CAPTURE(parsed.errors);
        const bool only_warnings =
            !contains(parsed.errors, "bwrap: ") || contains(parsed.errors, "will take effect");
        CHECK((parsed.request.has_value() ? only_warnings : !parsed.errors.empty()));
    }
}

TEST_CASE("parser: id maps are taken in their order, and imply a user namespace")
{
    const Spec spec =
        spec_of({"--map-uid", "0:100000:65536", "--map-gid=5:6:7", "--map-uid", "65536:1000:1"});
    REQUIRE(spec.uid_map.size() == 2);
    CHECK(spec.uid_map[0].inside == 0);
    CHECK(spec.uid_map[0].outside == 100000);
    CHECK(spec.uid_map[0].count == 65536);
    CHECK(spec.uid_map[1].inside == 65536);
    REQUIRE(spec.gid_map.size() == 1);
    CHECK(spec.gid_map[0].outside == 6);
    CHECK(spec.namespaces.user == Own::yes);
    CHECK(error_of({"--map-uid", "0:1"}) ==
          "--map-uid takes INSIDE:OUTSIDE:COUNT, as in 0:100000:65536, not \"0:1\"");
    CHECK(error_of({"--map-gid", "0:1:2:3"}) ==
          "--map-gid takes INSIDE:OUTSIDE:COUNT, as in 0:100000:65536, not \"0:1:2:3\"");
    CHECK(error_of({"--subids", "--map-uid", "0:1:2"}) ==
          "--subids is not compatible with --map-uid and --map-gid");
    CHECK(error_of({"--userns", "3", "--map-uid", "0:1:2"}) ==
          "--userns is not compatible with --subids, --map-uid and --map-gid");
}
