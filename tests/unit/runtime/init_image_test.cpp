// What init is given is read back as init reads it.

#include "runtime/init_image.hpp"

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/packets.hpp"
#include "tests/unit/support/plans.hpp"

using namespace nsbox;
using tests::contents_of;
using tests::Packet;

namespace {

sys::Fd new_packet()
{
    Result<sys::Fd> file = runtime::make_packet();
    REQUIRE(file.has_value());
    return std::move(*file);
}

Packet filled(const runtime::Plan& plan)
{
    const sys::Fd file = new_packet();
    REQUIRE(runtime::fill_packet(plan, 5, file.get()).has_value());
    return Packet{contents_of(file.get())};
}

}  // namespace

TEST_CASE("packet: command, environment and working directory arrive as planned")
{
    Spec spec = tests::plain_spec();
    spec.namespaces.pid = Own::yes;
    spec.command = {"prog", "", "two words", "last\n"};
    spec.argv0 = "shown";
    spec.directory = "/inside";
    spec.environment = {{EnvironmentEdit::Kind::set, "X", "y=z"}};
    const runtime::Plan plan = tests::planned(spec, tests::user_host());
    const Packet packet = filled(plan);
    CHECK(packet.header.magic == runtime::packet_magic);
    CHECK(packet.header.channel == 5);
    CHECK(packet.header.program == -EBADF);  // None: any negative number says so.
    CHECK(packet.header.pwd_choice == 0);
    CHECK(packet.texts(packet.header.argv) ==
          std::vector<std::string>{"shown", "", "two words", "last\n"});
    CHECK(packet.header.candidate_count == 2);
    CHECK(packet.texts(packet.header.candidates) ==
          std::vector<std::string>{"/opt/bin/prog", "/usr/bin/prog"});
    CHECK(packet.texts(packet.header.envp) == tests::texts_of(plan.envp));
    CHECK(packet.header.pwd_slot == 4);
    CHECK(packet.texts(packet.header.envp)[4] == "PWD=/inside");
    const auto shell = packet.texts(packet.header.shell_argv);
    REQUIRE(shell.size() == 5);
    CHECK(shell[0] == "/bin/sh");
    CHECK(shell[2].empty());
    CHECK(shell[4] == "last\n");
    for (std::size_t i = 0; i < runtime::pwd_choices; ++i)
        CHECK(packet.text(packet.header.pwd[i]) == plan.pwd[i]);
    CHECK(packet.text(packet.header.pwd[1]) == "PWD=/work/real");
    CHECK(packet.text(packet.header.pwd[3]) == "PWD=/");
}

TEST_CASE("packet: filters, capabilities and the wish to die with the caller arrive")
{
    Spec spec = tests::plain_spec();
    spec.namespaces.pid = Own::yes;
    spec.seccomp_programs = {std::vector<std::uint8_t>(8, 0x11),
                             std::vector<std::uint8_t>(24, 0x22)};
    spec.capabilities = {{CapabilityEdit::Kind::add, 13}};
    spec.die_with_parent = true;
    const Packet packet = filled(tests::planned(spec, tests::user_host()));
    REQUIRE(packet.header.filter_count == 2);
    CHECK(packet.filter(0) == std::string(8, 0x11));
    CHECK(packet.filter(1) == std::string(24, 0x22));
    CHECK(packet.header.ambient == std::uint64_t{1} << 13);
    CHECK(packet.header.flags == runtime::packet_die_with_parent);
    const Packet bare = filled(tests::planned(tests::plain_spec(), tests::user_host()));
    CHECK(bare.header.filter_count == 0);
    CHECK(bare.header.ambient == 0);
    CHECK(bare.header.flags == 0);
}

TEST_CASE("packet: the control group is named where it is for init to end")
{
    runtime::Plan plan = tests::planned(tests::plain_spec(), tests::user_host());
    CHECK(filled(plan).header.group == -1);
    CHECK(filled(plan).header.lifeline == -1);
    plan.group = 40;
    CHECK(filled(plan).header.group == 40);
    CHECK(filled(plan).header.group_name == 0);
    plan.group_name = "nsbox-0123456789abcdef";
    plan.lifeline = 41;
    const Packet packet = filled(plan);
    CHECK(packet.header.group == 40);
    CHECK(packet.header.lifeline == 41);
    CHECK(packet.text(packet.header.group_name) == "nsbox-0123456789abcdef");
}

TEST_CASE("packet: what clears up is given a socket or a control group")
{
    const auto written = [](const runtime::ClearUp& what) {
        const sys::Fd file = new_packet();
        REQUIRE(runtime::fill_clear_up_packet(what, 30, file.get()).has_value());
        return Packet{contents_of(file.get())};
    };
    const Packet socket = written({"box.sock", 31, -1, false});
    CHECK(socket.header.flags == runtime::packet_clear_up);
    CHECK(socket.header.supervisor == 30);
    CHECK(socket.header.registry == 31);
    CHECK(socket.text(socket.header.socket) == "box.sock");
    CHECK(socket.header.group == -1);
    CHECK(socket.header.lifeline == -1);
    const Packet group = written({"nsbox-1", 32, 33, true});
    CHECK(group.header.flags == (runtime::packet_guard | runtime::packet_die_with_parent));
    CHECK(group.header.supervisor == 30);
    CHECK(group.header.registry == -1);
    CHECK(group.header.group == 32);
    CHECK(group.text(group.header.group_name) == "nsbox-1");
    CHECK(group.header.lifeline == 33);
    CHECK(written({"nsbox-1", 32, 33, false}).header.flags == runtime::packet_guard);
}

TEST_CASE("packet: descriptors to keep come first, then a free place for each lock")
{
    Spec spec = tests::plain_spec();
    spec.sync_descriptors = {30, 31};
    spec.lock_files = {"/a", "/b", "/c"};
    const runtime::Plan plan = tests::planned(spec, tests::user_host());
    const Packet packet = filled(plan);
    CHECK(packet.kept() == std::vector<std::int32_t>{30, 31, -1, -1, -1});
    CHECK(runtime::lock_offset(plan) == packet.header.keep + 8);
    CHECK(packet.at<std::int32_t>(runtime::lock_offset(plan)) == -1);

    spec.sync_descriptors = {};
    const runtime::Plan locks_only = tests::planned(spec, tests::user_host());
    const Packet second = filled(locks_only);
    CHECK(runtime::lock_offset(locks_only) == second.header.keep);
    CHECK(second.kept() == std::vector<std::int32_t>(3, -1));
}

TEST_CASE("packet: it may be filled again, with a filter that came later")
{
    Spec spec = tests::plain_spec();
    spec.namespaces.pid = Own::yes;
    spec.lock_files = {"/a"};
    runtime::Plan plan = tests::planned(spec, tests::user_host());
    sys::Fd file = new_packet();
    REQUIRE(runtime::fill_packet(plan, 5, file.get()).has_value());
    const std::size_t before = runtime::lock_offset(plan);
    plan.filters.emplace_back(16, std::uint8_t{0x33});
    REQUIRE(runtime::fill_packet(plan, 5, file.get()).has_value());
    const Packet fresh = filled(plan);
    CHECK(contents_of(file.get()) == fresh.bytes());
    CHECK(fresh.filter(0) == std::string(16, 0x33));
    CHECK(runtime::lock_offset(plan) == before);  // What the child was told stays true.
}

TEST_CASE("packet: a place that cannot be written is an error")
{
    const runtime::Plan plan = tests::planned(tests::plain_spec(), tests::user_host());
    CHECK_FALSE(runtime::fill_packet(plan, 5, -1).has_value());
    const tests::Pipe pipe = tests::make_pipe();
    CHECK_FALSE(runtime::fill_packet(plan, 5, pipe.write.get()).has_value());
}

TEST_CASE("packet: random commands and environments survive the way")
{
    tests::Random random{11};
    const std::string letters = "abc=/:. \n\t\x01\xff";
    const auto word = [&](std::size_t most) {
        std::string text;
        for (std::size_t n = random.below(most + 1); n > 0; --n)
            text += letters[random.below(letters.size())];
        return text;
    };
    for (int round = 0; round < 200; ++round) {
        Spec spec = tests::plain_spec();
        spec.namespaces.pid = Own::yes;
        spec.command = {"c" + word(5)};
        for (std::size_t n = random.below(20); n > 0; --n)
            spec.command.push_back(word(300));
        sys::Host host = tests::user_host();
        host.environment.clear();
        for (std::size_t n = random.below(20); n > 0; --n)
            host.environment.push_back("V" + std::to_string(n) + "=" + word(100));
        const runtime::Plan plan = tests::planned(spec, host);
        const Packet packet = filled(plan);
        REQUIRE(packet.texts(packet.header.argv) == spec.command);
        REQUIRE(packet.texts(packet.header.envp) == tests::texts_of(plan.envp));
        REQUIRE(packet.texts(packet.header.candidates).size() == plan.candidates.size());
    }
}
