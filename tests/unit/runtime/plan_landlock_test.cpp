// The rules of Landlock that a description comes to.

#include "runtime/plan_landlock.hpp"

#include "tests/unit/support/plans.hpp"

#include <linux/sched.h>

using namespace nsbox;
using namespace nsbox::tests;
using runtime::Plan;

namespace {

sys::Host host_with(int abi, sys::Host host = user_host())
{
    host.landlock = abi;
    return host;
}

Spec confined(std::vector<Operation> operations)
{
    Spec spec = plain_spec();
    spec.landlock = Landlock::automatic;
    spec.kept.emplace();
    spec.operations = std::move(operations);
    return spec;
}

/// "/path=access" of each rule, by letters: r, x, w (files), m (making), i (ioctl).
std::string rules_of(const Plan& plan)
{
    std::string text;
    for (const ns::LandlockPath& rule : plan.landlock_paths) {
        const auto letter = [&](std::uint64_t right, const char* name) {
            return (rule.access & right) != 0 ? name : "";
        };
        text += (text.empty() ? "" : " ") + std::string{rule.path} + "=" +
                letter(ns::landlock_read_file, "r") + letter(ns::landlock_execute, "x") +
                letter(ns::landlock_write_file, "w") + letter(ns::landlock_make_reg, "m") +
                letter(ns::landlock_ioctl_dev, "i");
    }
    return text;
}

std::string rules_for(std::vector<Operation> operations)
{
    return rules_of(planned(confined(std::move(operations)), host_with(7)));
}

}  // namespace

TEST_CASE("plan landlock: the rules are what the mounts let through")
{
    // Everything is below a root that can be written to.
    CHECK(rules_for({}) == "/=rxwm");
    CHECK(rules_for({Bind{"/usr", "/usr"}, Tmpfs{"/tmp"}}) == "/=rxwm");
    CHECK(rules_for({Proc{"/proc"}}) == "/=rxwm");
    CHECK(rules_for({Bind{"/", "/"}}) == "/=rx");
    CHECK(rules_for({Bind{"/", "/"}, Bind{"/home/x", "/home/x", Access::read_write}}) ==
          "/=rx /home/x=rxwm");
    // A read-only mount below a writable one holds by itself.
    CHECK(rules_for({Bind{"/", "/"}, Tmpfs{"/t"}, Bind{"/usr", "/t/usr"}}) == "/=rx /t=rxwm");
    CHECK(rules_for({Bind{"/", "/"}, Proc{"/proc"}, Tmpfs{"/tmp"}}) == "/=rx /proc=rw /tmp=rxwm");
    CHECK(rules_for({Bind{"/", "/"}, Bind{"/dev/x", "/dev/x", Access::read_only,
                                          Devices::allowed}}) == "/=rx /dev/x=rxwi");
    // The last mount on a place is the one that counts.
    CHECK(rules_for({Bind{"/", "/"}, Tmpfs{"/a"}, Bind{"/b", "/a/"}}) == "/=rx");
    CHECK(rules_for({Tmpfs{"/a"}, Tmpfs{"/ab"}, RemountReadOnly{"/"}}) == "/=rx /a=rxwm /ab=rxwm");
    CHECK(rules_for({Tmpfs{"/a"}, RemountReadOnly{"/a"}, RemountReadOnly{"/"}}) == "/=rx");
    // Devices, terminals and shared memory stay as they are.
    CHECK(rules_for({Dev{"/dev"}, RemountReadOnly{"/dev"}, RemountReadOnly{"/"}}) ==
          "/=rx /dev=rxwi /dev/shm=rxwm");
    CHECK(rules_for({Dev{"/dev"}, RemountReadOnly{"/"}}) == "/=rx /dev=rxwmi");
    Overlay overlay;
    overlay.lower = {"/low"};
    overlay.destination = "/";
    CHECK(rules_for({overlay}) == "/=rx");
    overlay.upper_kind = Overlay::Upper::temporary;
    CHECK(rules_for({overlay}) == "/=rxwm");
    // Nobody can say where such a path lies.
    CHECK(rules_for({Bind{"/", "/"}, Tmpfs{"/a"}, Tmpfs{"/a/../b"}}) ==
          "/=rx /a=rxwm /a/../b=rxwm");
}

TEST_CASE("plan landlock: the step comes last, with what the kernel's version knows")
{
    const auto step = [](int abi) {
        return step_of<ns::MakeRuleset>(planned(confined({}), host_with(abi)));
    };
    for (int abi = 2; abi <= 7; ++abi) {
        CAPTURE(abi);
        const ns::LandlockRights rights = ns::landlock_rights(abi);
        CHECK(step(abi).files == rights.files);
        CHECK(step(abi).scoped == rights.scoped);
        CHECK(step(abi).ports == 0);
    }
    CHECK(kinds_of(planned(confined({}), host_with(7))).ends_with(" MakeRuleset"));
    // The descriptors that the command keeps can be opened again.
    Spec spec = confined({});
    spec.kept = {3, 9};
    const Plan plan = planned(spec, host_with(7));
    CHECK(step_of<ns::MakeRuleset>(plan).fd_count == 2);
    // One of them may be a folder that is shown, from which no way leads to the sandbox's root.
    spec.operations = {Bind{"/", "/"}, Bind{"/usr", "/usr"}};
    CHECK(rules_of(planned(spec, host_with(7))) == "/=rx /usr=rx");
    spec.kept.reset();
    CHECK(rules_of(planned(spec, host_with(7))) == "/=rx /usr=rx");
    spec.kept.emplace();
    CHECK(rules_of(planned(spec, host_with(7))) == "/=rx");
}

TEST_CASE("plan landlock: automatic does without, and says why")
{
    const auto reason = [](const Spec& spec, const sys::Host& host) {
        const Plan plan = planned(spec, host);
        CHECK(steps_of<ns::MakeRuleset>(plan).empty());
        return std::string{plan.landlock_off != nullptr ? plan.landlock_off : ""};
    };
    CHECK(contains(reason(confined({}), host_with(-ENOSYS)), "no Landlock"));
    CHECK(contains(reason(confined({}), host_with(-EOPNOTSUPP)), "lsm="));
    CHECK(contains(reason(confined({}), host_with(1)), "ABI 1"));
    Spec spec = confined({});
    spec.mounts_inside = true;
    CHECK(contains(reason(spec, host_with(7)), "may make mounts"));
    // Root's command keeps its capabilities if nothing else is said.
    CHECK(contains(reason(confined({}), host_with(7, root_host())), "CAP_SYS_ADMIN"));
    spec = confined({});
    spec.capabilities = {{CapabilityEdit::Kind::drop_all, 0}};
    CHECK(steps_of<ns::MakeRuleset>(planned(spec, host_with(7, root_host()))).size() == 1);
    spec.landlock = Landlock::off;
    CHECK(reason(spec, host_with(7)).empty());
}

TEST_CASE("plan landlock: what a namespace does is left to it where the sandbox has a name")
{
    const auto scoped = [](bool named, Own pid, Own net) {
        Spec spec = confined({});
        if (named)
            spec.name = "x";
        spec.namespaces.pid = pid;
        spec.namespaces.net = net;
        return step_of<ns::MakeRuleset>(planned(spec, host_with(7))).scoped;
    };
    constexpr std::uint64_t sockets = ns::landlock_abstract_unix_socket;
    constexpr std::uint64_t signals = ns::landlock_signal;
    CHECK(scoped(false, Own::yes, Own::yes) == (sockets | signals));
    CHECK(scoped(true, Own::no, Own::no) == (sockets | signals));
    CHECK(scoped(true, Own::yes, Own::no) == sockets);
    CHECK(scoped(true, Own::no, Own::yes) == signals);
    CHECK(scoped(true, Own::yes, Own::yes) == 0);
}

TEST_CASE("plan landlock: ports are limited with and without the rest, or the start fails")
{
    Spec spec = plain_spec();
    spec.tcp_connect = {{443, 443}, {8000, 8010}};
    {
        const Plan plan = planned(spec, host_with(4));
        const auto step = step_of<ns::MakeRuleset>(plan);
        CHECK(step.files == 0);
        CHECK(step.ports == ns::landlock_connect_tcp);
        REQUIRE(step.range_count == 2);
        CHECK(step.port_ranges[1].last == 8010);
        CHECK(plan.filters.size() == 1);
    }
    spec.tcp_connect.reset();
    spec.tcp_bind.emplace();
    CHECK(step_of<ns::MakeRuleset>(planned(spec, host_with(4))).ports == ns::landlock_bind_tcp);
    for (const Landlock landlock : {Landlock::off, Landlock::automatic}) {
        spec.landlock = landlock;
        CHECK(contains(refusal(spec, host_with(3)), "ABI 4"));
        CHECK(contains(refusal(spec, host_with(3)), "Linux 6.7"));
        CHECK(contains(refusal(spec, host_with(-ENOSYS)), "6.7"));
        CHECK(contains(refusal(spec, host_with(-EOPNOTSUPP)), "lsm="));
    }
}

TEST_CASE("plan landlock only: no namespace, no mount, and rules for what is shown")
{
    Spec spec = plain_spec();
    spec.landlock = Landlock::only;
    spec.end_with_command = true;
    spec.namespaces.net = Own::yes;
    spec.operations = {Bind{"/usr", "/usr/"},
                       Bind{"/w", "/w", Access::read_write, Devices::refused, IfMissing::skip}};
    for (const sys::Host& host : {host_with(7), host_with(7, root_host())}) {
        const Plan plan = planned(spec, host);
        CHECK(plan.clone_flags == 0);
        CHECK(rules_of(plan) == "/usr=rx /w=rxwm");
        CHECK_FALSE(plan.landlock_paths[0].may_be_missing);
        CHECK(plan.landlock_paths[1].may_be_missing);
        CHECK(step_of<ns::MakeRuleset>(plan).ports == 3);
        CHECK(step_of<ns::MakeRuleset>(plan).scoped == 3);
        CHECK(step_of<ns::SetCapabilities>(plan).sets == 0);
        CHECK_FALSE(step_of<mount::OpenHost>(plan).make_slave);
        CHECK(steps_of<mount::EnterRoot>(plan).empty());
        CHECK(steps_of<mount::MakeRoot>(plan).empty());
        CHECK(plan.subreaper);
        CHECK(plan.filters.size() == 1);
        REQUIRE(plan.notes.size() == 1);
        CHECK_FALSE(contains(plan.notes[0], "truncate"));
    }
    CHECK(contains(planned(spec, host_with(2)).notes.at(0), "truncate"));
    CHECK(contains(planned(spec, host_with(5)).notes.at(0), "signalled"));
    CHECK(contains(refusal(spec, host_with(0)), "Linux 5.13"));
    spec.namespaces.net = Own::no;
    CHECK(step_of<ns::MakeRuleset>(planned(spec, host_with(7))).ports == 0);
    CHECK(contains(planned(spec, host_with(7)).notes.at(0), "network"));
}

TEST_CASE("plan landlock only: what takes a namespace or a mount is refused by its name")
{
    const auto refused = [](auto change) {
        Spec spec = plain_spec();
        spec.landlock = Landlock::only;
        change(spec);
        return refusal(spec, host_with(7));
    };
    CHECK(contains(refused([](Spec& s) { s.namespaces.pid = Own::yes; }), "--unshare-pid"));
    CHECK(contains(refused([](Spec& s) { s.namespaces.user = Own::yes; }), "--unshare-user"));
    CHECK(contains(refused([](Spec& s) { s.user_network.emplace(); }), "--net host"));
    CHECK(contains(refused([](Spec& s) { s.uid = 5; }), "--uid"));
    CHECK(contains(refused([](Spec& s) { s.gid = 5; }), "--gid"));
    CHECK(contains(refused([](Spec& s) { s.command_is_pid_1 = true; }), "--as-pid-1"));
    CHECK(contains(refused([](Spec& s) { s.mounts_inside = true; }), "--allow-userns"));
    CHECK(contains(refused([](Spec& s) {
                       s.capabilities = {{CapabilityEdit::Kind::add, 5}};
                   }),
                   "--cap-add"));
    const auto with = [&](Operation operation) {
        return refused([&](Spec& s) { s.operations = {std::move(operation)}; });
    };
    CHECK(contains(with(Bind{"/a", "/b"}), "/a as /b"));
    CHECK(contains(with(Bind{"a", "a"}), "a as a"));
    CHECK(contains(with(Tmpfs{"/x"}), "--tmpfs"));
    CHECK(contains(with(Proc{"/proc"}), "--proc"));
    CHECK(contains(with(Dev{"/dev"}), "--dev"));
    CHECK(contains(with(Hostname{"x"}), "--hostname"));
    CHECK(contains(with(Symlink{"a", "/b"}), "--symlink"));
    CHECK(contains(with(Text{"a", "/b"}), "a text"));
    CHECK(contains(with(Overlay{}), "an overlay"));
}
