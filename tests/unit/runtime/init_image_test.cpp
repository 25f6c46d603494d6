// What init is given is read back as init reads it.

#include "runtime/init_image.hpp"

#include "tests/unit/support/files.hpp"
#include "tests/unit/support/plans.hpp"

#include <cstring>

using namespace nsbox;
using runtime::PacketHeader;

namespace {

/// A packet that was read back. Every access is checked against its size.
class Packet {
public:
    explicit Packet(const runtime::Plan& plan, int channel = 5)
    {
        sys::Fd file = made();
        const Result<> filled = runtime::fill_packet(plan, channel, file.get());
        REQUIRE(filled.has_value());
        bytes_ = tests::contents_of(file.get());
        header = at<PacketHeader>(0);
        REQUIRE(header.size == bytes_.size());
    }

    static sys::Fd made()
    {
        Result<sys::Fd> file = runtime::make_packet();
        REQUIRE(file.has_value());
        return std::move(*file);
    }

    template <class T>
    T at(std::size_t offset) const
    {
        REQUIRE(offset + sizeof(T) <= bytes_.size());
        T value;
        std::memcpy(&value, bytes_.data() + offset, sizeof value);
        return value;
    }

    std::string text(std::uint64_t offset) const
    {
        REQUIRE(offset >= sizeof(PacketHeader));
        const std::size_t end = bytes_.find('\0', offset);
        REQUIRE(end != std::string::npos);
        return bytes_.substr(offset, end - offset);
    }

    /// A table of offsets that ends with zero, as texts.
    std::vector<std::string> texts(std::uint32_t table) const
    {
        REQUIRE(table % 8 == 0);  // Init reads it as 64-bit words.
        std::vector<std::string> found;
        for (std::size_t offset = table; at<std::uint64_t>(offset) != 0; offset += 8)
            found.push_back(text(at<std::uint64_t>(offset)));
        return found;
    }

    std::vector<std::int32_t> kept() const
    {
        REQUIRE(header.keep % 4 == 0);
        std::vector<std::int32_t> found;
        for (std::uint32_t i = 0; i < header.keep_count; ++i)
            found.push_back(at<std::int32_t>(header.keep + 4U * i));
        return found;
    }

    std::string filter(std::uint32_t number) const
    {
        REQUIRE(number < header.filter_count);
        const std::size_t entry = header.filters + std::size_t{16} * number;
        const auto offset = at<std::uint64_t>(entry);
        const auto size = at<std::uint64_t>(entry + 8) * 8;
        REQUIRE(offset % 8 == 0);
        REQUIRE(offset + size <= bytes_.size());
        return bytes_.substr(offset, size);
    }

    const std::string& bytes() const { return bytes_; }

    PacketHeader header{};

private:
    std::string bytes_;
};

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
    const Packet packet{plan};
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
    spec.seccomp_programs = {std::vector<std::uint8_t>(8, 0x11), std::vector<std::uint8_t>(24, 0x22)};
    spec.capabilities = {{CapabilityEdit::Kind::add, 13}};
    spec.die_with_parent = true;
    const Packet packet{tests::planned(spec, tests::user_host())};
    REQUIRE(packet.header.filter_count == 2);
    CHECK(packet.filter(0) == std::string(8, 0x11));
    CHECK(packet.filter(1) == std::string(24, 0x22));
    CHECK(packet.header.ambient == std::uint64_t{1} << 13);
    CHECK(packet.header.die_with_parent == 1);
    const Packet bare{tests::planned(tests::plain_spec(), tests::user_host())};
    CHECK(bare.header.filter_count == 0);
    CHECK(bare.header.ambient == 0);
    CHECK(bare.header.die_with_parent == 0);
}

TEST_CASE("packet: descriptors to keep come first, then a free place for each lock")
{
    Spec spec = tests::plain_spec();
    spec.sync_descriptors = {30, 31};
    spec.lock_files = {"/a", "/b", "/c"};
    const runtime::Plan plan = tests::planned(spec, tests::user_host());
    const Packet packet{plan};
    CHECK(packet.kept() == std::vector<std::int32_t>{30, 31, -1, -1, -1});
    CHECK(runtime::lock_offset(plan) == packet.header.keep + 8);
    CHECK(packet.at<std::int32_t>(runtime::lock_offset(plan)) == -1);

    spec.sync_descriptors = {};
    const runtime::Plan locks_only = tests::planned(spec, tests::user_host());
    const Packet second{locks_only};
    CHECK(runtime::lock_offset(locks_only) == second.header.keep);
    CHECK(second.kept() == std::vector<std::int32_t>(3, -1));
}

TEST_CASE("packet: it may be filled again, with a filter that came later")
{
    Spec spec = tests::plain_spec();
    spec.namespaces.pid = Own::yes;
    spec.lock_files = {"/a"};
    runtime::Plan plan = tests::planned(spec, tests::user_host());
    sys::Fd file = Packet::made();
    REQUIRE(runtime::fill_packet(plan, 5, file.get()).has_value());
    const std::size_t before = runtime::lock_offset(plan);
    plan.filters.emplace_back(16, std::uint8_t{0x33});
    REQUIRE(runtime::fill_packet(plan, 5, file.get()).has_value());
    const Packet fresh{plan};
    CHECK(tests::contents_of(file.get()) == fresh.bytes());
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
        const Packet packet{plan};
        REQUIRE(packet.texts(packet.header.argv) == spec.command);
        REQUIRE(packet.texts(packet.header.envp) == tests::texts_of(plan.envp));
        REQUIRE(packet.texts(packet.header.candidates).size() == plan.candidates.size());
    }
}
