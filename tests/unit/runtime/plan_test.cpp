// Rules, defaults and the order of the steps that do not build the file tree.

#include "nsbox/seccomp.hpp"
#include "tests/unit/support/plans.hpp"

#include <cerrno>
#include <linux/sched.h>

using namespace nsbox;
using namespace nsbox::tests;
using runtime::Plan;

namespace {

using Texts = std::vector<std::string>;
using Kind = CapabilityEdit::Kind;

constexpr std::uint64_t bit(unsigned capability)
{
    return std::uint64_t{1} << capability;
}

constexpr unsigned cap_net_raw = 13;
constexpr unsigned cap_sys_resource = 24;

bool is_planned(const Spec& spec, const sys::Host& host)
{
    return runtime::plan(spec, host).has_value();
}

Spec with_root_bind()
{
    Spec spec = plain_spec();
    spec.operations.emplace_back(Bind{"/", "/", Access::read_only});
    return spec;
}

Spec with_dev()
{
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Dev{"/dev"});
    return spec;
}

}  // namespace

TEST_CASE("plan: an ordinary user's sandbox takes these steps in this order")
{
    const Plan plan = planned(with_root_bind(), user_host());
    CHECK(kinds_of(plan) == "OpenHost DropBounding WriteIdMaps ClearUmask MakeRoot BindTree "
                            "EnterRoot SetCapabilities RestoreUmask ChangeDirectory");
    CHECK(plan.clone_flags == (CLONE_NEWNS | CLONE_NEWUSER));
    CHECK_FALSE(plan.needs_init);
    CHECK_FALSE(plan.needs_supervisor);
    CHECK(plan.share_memory);
    CHECK_FALSE(step_of<mount::OpenHost>(plan).make_slave);
    CHECK(step_of<ns::DropBounding>(plan).keep == 0);
    CHECK(step_of<ns::SetCapabilities>(plan).sets == 0);
    CHECK_FALSE(step_of<ns::SetCapabilities>(plan).ambient);
}

TEST_CASE("plan: root's sandbox needs no user namespace and keeps root's capabilities")
{
    const Plan plan = planned(with_root_bind(), root_host());
    CHECK(kinds_of(plan) ==
          "OpenHost ClearUmask MakeRoot BindTree EnterRoot RestoreUmask ChangeDirectory");
    CHECK(plan.clone_flags == CLONE_NEWNS);
    CHECK(step_of<mount::OpenHost>(plan).make_slave);
    CHECK(plan.ambient == 0);
}

TEST_CASE("plan: everything at once keeps its order")
{
    Spec spec = with_dev();
    spec.namespaces.pid = spec.namespaces.net = spec.namespaces.uts = Own::yes;
    spec.operations.emplace_back(Hostname{"box"});
    spec.block_descriptor = 20;
    spec.info_descriptor = 21;
    spec.status_descriptor = 22;
    spec.new_session = true;
    spec.lock_files = {"/l1", "/l2"};
    spec.exec_label = "x";
    spec.file_label = "f";
    spec.capabilities = {{Kind::add, cap_net_raw}};
    CHECK(kinds_of(planned(spec, user_host())) ==
          "CloseOnExec CloseNow CloseNow OpenHost WaitForSupervisor LoopbackUp WriteIdMaps "
          "ClearUmask SetLabel MakeRoot BindTree MountDev SetHostname EnterRoot "
          "NewUserNamespace DropBounding WriteIdMaps SetCapabilities AwaitRelease RestoreUmask "
          "ChangeDirectory NewSession SetLabel LockFile LockFile");
}

TEST_CASE("plan: init loads the filters that it is known to work under, once and early")
{
    const auto is_early = [](const Spec& spec) { return planned(spec, user_host()).filters_early; };
    Spec spec = with_root_bind();
    spec.namespaces.user = spec.namespaces.pid = Own::yes;
    for (const char* policy : {"default", "strict"}) {
        spec.seccomp_programs.clear();
        REQUIRE(add_filter(spec, policy, false, false).has_value());
        CHECK(is_early(spec));
    }
    Spec with_capability = spec;
    with_capability.capabilities.push_back({Kind::add, cap_net_raw});
    CHECK_FALSE(is_early(with_capability));
    Spec without_pid = spec;
    without_pid.namespaces.pid = Own::no;
    without_pid.end_with_command = true;
    CHECK_FALSE(is_early(without_pid));
    Spec from_descriptor = spec;
    from_descriptor.seccomp_descriptor = 9;
    CHECK_FALSE(is_early(from_descriptor));
    // As good as any, but not known.
    spec.seccomp_programs.push_back({6, 0, 0, 0, 0, 0, 0xff, 0x7f});
    CHECK_FALSE(is_early(spec));
}

TEST_CASE("plan: without a command there is nothing to plan")
{
    Spec spec = plain_spec();
    spec.command.clear();
    CHECK(refusal(spec, user_host()) == "No command: there is nothing to execute");
    CHECK(refusal(spec, root_host()) == "No command: there is nothing to execute");
}

TEST_CASE("plan: other ids need a user namespace")
{
    Spec spec = plain_spec();
    SUBCASE("root asks for another uid")
    {
        spec.uid = 5;
        CHECK(refusal(spec, root_host()) == "Specifying --uid requires --unshare-user or --userns");
    }
    SUBCASE("root asks for another gid")
    {
        spec.gid = 5;
        CHECK(refusal(spec, root_host()) == "Specifying --gid requires --unshare-user or --userns");
    }
    SUBCASE("the ids that root has are no others")
    {
        spec.uid = spec.gid = 0;
        CHECK(is_planned(spec, root_host()));
    }
    SUBCASE("an ordinary user always has the namespace")
    {
        spec.uid = spec.gid = 5;
        CHECK(is_planned(spec, user_host()));
    }
    SUBCASE("a namespace that is joined does too")
    {
        spec.uid = spec.gid = 5;
        spec.namespaces.join_user = 30;
        CHECK(is_planned(spec, root_host()));
    }
}

TEST_CASE("plan: a hostname needs a uts namespace")
{
    Spec spec = plain_spec();
    spec.operations.emplace_back(Hostname{"box"});
    CHECK(refusal(spec, user_host()) == "Specifying --hostname requires --unshare-uts");
    CHECK(refusal(spec, root_host()) == "Specifying --hostname requires --unshare-uts");
    spec.namespaces.uts = Own::yes;
    const Plan plan = planned(spec, root_host());
    CHECK(step_of<runtime::SetHostname>(plan).name == std::string{"box"});
    CHECK((plan.clone_flags & CLONE_NEWUTS) != 0);
    spec.namespaces.uts = Own::if_possible;
    CHECK((planned(spec, root_host()).clone_flags & CLONE_NEWUTS) != 0);
}

TEST_CASE("plan: to be pid 1 needs a pid namespace of one's own, and leaves locks to nobody")
{
    Spec spec = plain_spec();
    spec.command_is_pid_1 = true;
    CHECK(refusal(spec, user_host()) == "Specifying --as-pid-1 requires --unshare-pid");
    spec.namespaces.join_pid = 30;
    CHECK(refusal(spec, user_host()) == "Specifying --as-pid-1 requires --unshare-pid");
    spec.namespaces.join_pid.reset();
    spec.namespaces.pid = Own::yes;
    CHECK_FALSE(planned(spec, user_host()).needs_init);
    spec.lock_files = {"/lock"};
    CHECK(refusal(spec, user_host()) == "Specifying --as-pid-1 and --lock-file is not permitted");
}

TEST_CASE("plan: to forbid user namespaces one needs one's own")
{
    Spec spec = plain_spec();
    spec.disable_user_namespaces = true;
    CHECK(refusal(spec, root_host()) == "--disable-userns requires --unshare-user");
    CHECK(is_planned(spec, user_host()));
    spec.namespaces.join_user = 30;
    CHECK(refusal(spec, user_host()) == "--disable-userns requires --unshare-user");
}

TEST_CASE("plan: the first broken rule is the one that is told")
{
    Spec spec = plain_spec();
    spec.uid = spec.gid = 5;
    spec.operations.emplace_back(Hostname{"box"});
    spec.operations.emplace_back(Bind{"", "/x"});
    CHECK(refusal(spec, root_host()) == "Specifying --uid requires --unshare-user or --userns");
    spec.uid.reset();
    CHECK(refusal(spec, root_host()) == "Specifying --gid requires --unshare-user or --userns");
    spec.gid.reset();
    CHECK(refusal(spec, root_host()) == "Specifying --hostname requires --unshare-uts");
    spec.namespaces.uts = Own::yes;
    CHECK(refusal(spec, root_host()) == "Can't find source path: No such file or directory "
                                        "(hint: the source is an empty word)");
}

TEST_CASE("plan: each namespace becomes its flag, and what is possible depends on the host")
{
    struct Row {
        Own Namespaces::*member;
        std::uint64_t flag;
    };
    for (const Row& row :
         {Row{&Namespaces::pid, CLONE_NEWPID}, Row{&Namespaces::ipc, CLONE_NEWIPC},
          Row{&Namespaces::net, CLONE_NEWNET}, Row{&Namespaces::uts, CLONE_NEWUTS},
          Row{&Namespaces::cgroup, CLONE_NEWCGROUP}, Row{&Namespaces::user, CLONE_NEWUSER}}) {
        CAPTURE(row.flag);
        Spec spec = plain_spec();
        CHECK(planned(spec, root_host()).clone_flags == CLONE_NEWNS);
        spec.namespaces.*row.member = Own::yes;
        CHECK(planned(spec, root_host()).clone_flags == (CLONE_NEWNS | row.flag));
        spec.namespaces.*row.member = Own::if_possible;
        CHECK(planned(spec, root_host()).clone_flags == (CLONE_NEWNS | row.flag));
    }
    sys::Host poor = root_host();
    poor.cgroup_namespaces = poor.user_namespaces = false;
    Spec spec = plain_spec();
    spec.namespaces.cgroup = spec.namespaces.user = Own::if_possible;
    CHECK(planned(spec, poor).clone_flags == CLONE_NEWNS);
    spec.namespaces.cgroup = spec.namespaces.user = Own::yes;  // Then it fails, and says so.
    CHECK(planned(spec, poor).clone_flags == (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUSER));
}

TEST_CASE("plan: a Spec as it is made asks for every namespace")
{
    Spec spec;
    spec.command = {"true"};
    CHECK(planned(spec, root_host()).clone_flags ==
          (CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS |
           CLONE_NEWCGROUP));
}

TEST_CASE("plan: who is not root gets a user namespace whether asked for or not")
{
    sys::Host host = user_host();
    host.user_namespaces = false;
    CHECK((planned(plain_spec(), host).clone_flags & CLONE_NEWUSER) != 0);
    host = root_host();
    host.effective_uid = 1000;  // Both ids have to be 0 to be root.
    CHECK((planned(plain_spec(), host).clone_flags & CLONE_NEWUSER) != 0);
}

TEST_CASE("plan: the loopback interface comes up in a new network namespace only")
{
    Spec spec = plain_spec();
    CHECK(steps_of<net::LoopbackUp>(planned(spec, root_host())).empty());
    spec.namespaces.net = Own::yes;
    CHECK(steps_of<net::LoopbackUp>(planned(spec, root_host())).size() == 1);
}

TEST_CASE("plan: ids are mapped onto themselves unless others are asked for")
{
    Spec spec = plain_spec();
    auto map = step_of<ns::WriteIdMaps>(planned(spec, user_host()));
    CHECK(map.deny_setgroups);
    {
        const Plan plan = planned(spec, user_host());
        CHECK(step_of<ns::WriteIdMaps>(plan).uid_map == std::string{"1000 1000 1\n"});
        CHECK(step_of<ns::WriteIdMaps>(plan).gid_map == std::string{"1001 1001 1\n"});
    }
    spec.uid = 4294967294;
    spec.gid = 0;
    const Plan plan = planned(spec, user_host());
    CHECK(step_of<ns::WriteIdMaps>(plan).uid_map == std::string{"4294967294 1000 1\n"});
    CHECK(step_of<ns::WriteIdMaps>(plan).gid_map == std::string{"0 1001 1\n"});
    CHECK(steps_of<ns::NewUserNamespace>(plan).empty());
}

TEST_CASE("plan: devpts needs id 0, so that a second user namespace gives the ids back")
{
    const Plan plan = planned(with_dev(), user_host());
    CHECK(kinds_of(plan) ==
          "OpenHost WriteIdMaps ClearUmask MakeRoot BindTree MountDev EnterRoot "
          "NewUserNamespace DropBounding WriteIdMaps SetCapabilities RestoreUmask ChangeDirectory");
    const auto maps = steps_of<ns::WriteIdMaps>(plan);
    REQUIRE(maps.size() == 2);
    CHECK(maps[0].uid_map == std::string{"0 1000 1\n"});
    CHECK(maps[0].gid_map == std::string{"0 1001 1\n"});
    CHECK(maps[0].deny_setgroups);
    CHECK(maps[1].uid_map == std::string{"1000 0 1\n"});
    CHECK(maps[1].gid_map == std::string{"1001 0 1\n"});
    CHECK_FALSE(maps[1].deny_setgroups);
}

TEST_CASE("plan: with /dev and the ids 0 one user namespace will do")
{
    Spec spec = with_dev();
    spec.uid = spec.gid = 0;
    CHECK(steps_of<ns::NewUserNamespace>(planned(spec, user_host())).empty());
    spec.gid = 1;
    CHECK(steps_of<ns::NewUserNamespace>(planned(spec, user_host())).size() == 1);
    CHECK(steps_of<ns::NewUserNamespace>(planned(with_dev(), root_host())).empty());
}

TEST_CASE("plan: forbidding user namespaces takes a limit, a namespace below it, and a check")
{
    Spec spec = with_root_bind();
    spec.disable_user_namespaces = true;
    CHECK(kinds_of(planned(spec, user_host())) ==
          "OpenHost WriteIdMaps ClearUmask MakeRoot BindTree EnterRoot "
          "LimitUserNamespaces NewUserNamespace DropBounding WriteIdMaps RefuseUserNamespaces "
          "SetCapabilities RestoreUmask ChangeDirectory");
    spec.disable_user_namespaces = false;
    spec.assert_user_namespaces_disabled = true;
    CHECK(kinds_of(planned(spec, user_host())) ==
          "OpenHost DropBounding WriteIdMaps ClearUmask MakeRoot BindTree EnterRoot "
          "RefuseUserNamespaces SetCapabilities RestoreUmask ChangeDirectory");
}

TEST_CASE("plan: a sandbox that is made anew goes back to its network and its user namespaces")
{
    sys::Host host = user_host();
    host.keeps_network = true;
    host.foreign_network = 50;
    host.foreign_network_owner = 51;
    Spec spec = with_root_bind();
    spec.namespaces.pid = spec.namespaces.net = Own::yes;
    spec.user_network.emplace();
    const Plan one = runtime::plan(spec, host, runtime::Purpose::commands).value();
    CHECK(kinds_of(one) == "JoinUserNamespace JoinNamespace OpenHost DropBounding ClearUmask "
                           "MakeStore MakeRoot BindTree "
                           "BindContents BindContents EnterRoot SetCapabilities RestoreUmask "
                           "ChangeDirectory OfferFolders");
    CHECK(step_of<ns::JoinUserNamespace>(one).fd == 51);
    CHECK(step_of<ns::JoinNamespace>(one).fd == 50);
    CHECK(one.first_steps == 2);
    CHECK(one.early_steps == 2);
    CHECK(one.clone_flags == (CLONE_NEWNS | CLONE_NEWPID));
    CHECK_FALSE(one.share_memory);
    CHECK(one.network.has_value());
    CHECK(one.keeps_network);
    CHECK(one.user_namespaces == 1);

    spec.disable_user_namespaces = true;
    host.second_user = 52;
    const Plan two = runtime::plan(spec, host, runtime::Purpose::commands).value();
    CHECK(two.user_namespaces == 2);
    CHECK(step_of<ns::NewUserNamespace>(two).there == 52);
    CHECK(steps_of<ns::WriteIdMaps>(two).empty());
    // The first time it makes all of them.
    const Plan first = runtime::plan(spec, user_host(), runtime::Purpose::commands).value();
    CHECK(step_of<ns::NewUserNamespace>(first).there == -1);
    CHECK(steps_of<ns::WriteIdMaps>(first).size() == 2);
    CHECK(first.clone_flags == (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET));
    CHECK(first.user_namespaces == 2);

    host = root_host();
    host.keeps_network = true;
    host.foreign_network = 50;
    spec = with_root_bind();
    spec.namespaces.pid = spec.namespaces.net = Own::yes;
    spec.namespaces.user = Own::no;
    const Plan root = runtime::plan(spec, host, runtime::Purpose::commands).value();
    CHECK(root.user_namespaces == 0);
    CHECK(root.first_steps == 0);
    CHECK(root.share_memory);
    CHECK(step_of<ns::JoinNamespace>(root).fd == 50);
    CHECK(steps_of<net::LoopbackUp>(root).empty());
}

TEST_CASE("plan: root that could lift the covers of /proc gets its mounts locked")
{
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Proc{"/proc"});
    spec.operations.emplace_back(Hostname{"box"});
    Namespaces& ns = spec.namespaces;
    ns.user = ns.pid = ns.ipc = ns.net = ns.uts = ns.cgroup = Own::yes;
    spec.info_descriptor = 30;
    const Plan plan = planned(spec, root_host());
    CHECK(kinds_of(plan) ==
          "CloseNow OpenHost WriteIdMaps ClearUmask MakeRoot BindTree MountProc EnterRoot "
          "NewUserNamespace DropBounding WriteIdMaps LoopbackUp SetHostname WaitForSupervisor "
          "RestoreUmask ChangeDirectory");
    constexpr std::uint64_t late = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWIPC;
    CHECK(plan.late_flags == late);
    CHECK(plan.clone_flags == (late | CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID));
    CHECK(step_of<ns::NewUserNamespace>(plan).others == (late | CLONE_NEWNS));

    // A message queue is mounted from the ipc namespace that it belongs to.
    spec.operations.emplace_back(Mqueue{"/mq"});
    CHECK(planned(spec, root_host()).late_flags == (late & ~std::uint64_t{CLONE_NEWIPC}));
}

TEST_CASE("plan: the network of another is joined before there is a user namespace of one's own")
{
    Spec spec = with_root_bind();
    spec.namespaces.net = Own::yes;
    spec.join_network = JoinNetwork{JoinNetwork::By::descriptor, "", 40};
    sys::Host user = user_host();
    user.foreign_network = 50;
    user.foreign_network_owner = 51;
    sys::Host root = root_host();
    root.foreign_network = 50;
    SUBCASE("an ordinary user enters the owner first, and maps its ids there")
    {
        const Plan plan = planned(spec, user);
        CHECK(kinds_of(plan) == "JoinUserNamespace JoinNamespace CloseOnExec OpenHost DropBounding "
                                "WriteIdMapsBelow ClearUmask MakeRoot BindTree EnterRoot "
                                "SetCapabilities RestoreUmask ChangeDirectory");
        CHECK(plan.first_steps == 2);
        CHECK(plan.early_steps == 2);
        CHECK(step_of<ns::JoinUserNamespace>(plan).fd == 51);
        CHECK(step_of<ns::JoinNamespace>(plan).fd == 50);
        CHECK(step_of<ns::WriteIdMapsBelow>(plan).uid == 1000);
        CHECK(plan.clone_flags == (CLONE_NEWNS | CLONE_NEWUSER));
        CHECK_FALSE(plan.share_memory);
        CHECK(plan.close_on_exec == std::vector<int>{40});
        CHECK(plan.foreign_network == "descriptor 40");
    }
    SUBCASE("root takes the shortest way")
    {
        const Plan plan = planned(spec, root);
        CHECK(kinds_of(plan) == "CloseOnExec OpenHost JoinNamespace ClearUmask MakeRoot BindTree "
                                "EnterRoot RestoreUmask ChangeDirectory");
        CHECK(plan.first_steps == 0);
        CHECK(plan.share_memory);
    }
    SUBCASE("root with a user namespace has to be in before it")
    {
        spec.namespaces.user = Own::yes;
        const Plan plan = planned(spec, root);
        CHECK(begins_with(kinds_of(plan), "JoinNamespace CloseOnExec OpenHost"));
        CHECK(plan.first_steps == 1);
        CHECK(steps_of<ns::WriteIdMaps>(plan).size() +
                  steps_of<ns::WriteIdMapsBelow>(plan).size() >=
              1);
    }
    SUBCASE("with --userns it is joined from there")
    {
        spec.namespaces.join_user = 60;
        const Plan plan = planned(spec, user);
        CHECK(plan.first_steps == 0);
        CHECK(plan.join_user == 60);
        CHECK(step_of<ns::JoinNamespace>(plan).fd == 50);
    }
    SUBCASE("a network of one's own is something else")
    {
        spec.user_network = UserNetwork{};
        CHECK(
            begins_with(refusal(spec, user), "Can't use a user-mode network: the sandbox has no"));
    }
}

TEST_CASE("plan: a command of a sandbox that others can find is not where the network is owned")
{
    Spec spec = with_root_bind();
    spec.namespaces.net = Own::yes;
    const auto users = [](const Spec& wish, const sys::Host& host) {
        return steps_of<ns::NewUserNamespace>(planned(wish, host)).size();
    };
    CHECK(users(spec, user_host()) == 0);
    spec.name = "box";
    CHECK(users(spec, user_host()) == 1);
    CHECK(users(spec, root_host()) == 0);
    Spec with_rights = spec;
    with_rights.capabilities = {{Kind::add, cap_net_raw}};
    CHECK(users(with_rights, user_host()) == 0);
    spec.namespaces.net = Own::no;
    CHECK(users(spec, user_host()) == 0);
}

TEST_CASE("plan: mounts are not locked where nobody could lift anything")
{
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Proc{"/proc"});
    spec.namespaces.user = spec.namespaces.net = Own::yes;
    const auto is_locked = [](const Spec& wish, const sys::Host& host) {
        const Plan plan = planned(wish, host);
        const bool locked = !steps_of<ns::NewUserNamespace>(plan).empty();
        CHECK(locked == (plan.late_flags != 0));
        return locked;
    };
    CHECK(is_locked(spec, root_host()));
    CHECK_FALSE(is_locked(spec, user_host()));
    sys::Host contained = root_host();
    contained.owns_kernel_settings = false;
    CHECK_FALSE(is_locked(spec, contained));
    Spec other = spec;
    other.capabilities = {{Kind::drop, 21}};  // CAP_SYS_ADMIN
    CHECK_FALSE(is_locked(other, root_host()));
    other = spec;
    other.operations.pop_back();
    CHECK(is_locked(other, root_host()));
    other = spec;
    other.namespaces.user = Own::no;
    CHECK_FALSE(is_locked(other, root_host()));
}

TEST_CASE("plan: /proc is covered for whoever owns the kernel's settings, or might")
{
    const auto is_covered = [](const Spec& spec, const sys::Host& host) {
        return step_of<mount::MountProc>(planned(spec, host)).cover;
    };
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Proc{"/proc"});
    CHECK(is_covered(spec, root_host()));
    CHECK_FALSE(is_covered(spec, user_host()));
    Spec joins = spec;
    joins.namespaces.join_user = 30;
    CHECK(is_covered(joins, user_host()));
    Spec mapped = spec;
    mapped.user_map_descriptor = 30;
    CHECK(is_covered(mapped, user_host()));
    Spec always = with_root_bind();
    always.operations.emplace_back(Proc{"/proc", true});
    CHECK(is_covered(always, user_host()));
}

TEST_CASE("plan: resource limits come last, in their order; the umask and the keyring before")
{
    Spec spec = plain_spec();
    CHECK(step_of<runtime::RestoreUmask>(planned(spec, user_host())).other == -1);
    spec.umask = 027;
    spec.own_keyring = true;
    spec.resource_limits = {{7, 64, 128}, {4, 1, 1}};
    const Plan plan = planned(spec, user_host());
    CHECK(step_of<runtime::RestoreUmask>(plan).other == 027);
    const std::vector<runtime::SetResourceLimit> limits = steps_of<runtime::SetResourceLimit>(plan);
    REQUIRE(limits.size() == 2);
    CHECK(limits[0].resource == 7);
    CHECK(limits[0].soft == 64);
    CHECK(limits[1].hard == 1);
    const std::string steps = kinds_of(plan);
    CHECK(steps.ends_with(
        "RestoreUmask OwnKeyring ChangeDirectory SetResourceLimit SetResourceLimit"));
}

TEST_CASE(
    "plan: limited groups are entered first; who shares memory with what is killed is killed too")
{
    Spec spec = plain_spec();
    CHECK(planned(spec, user_host()).share_memory);
    spec.group_limits.processes = 3;
    Plan plan = planned(spec, user_host());
    CHECK(kinds_of(plan).starts_with("EnterGroups "));
    CHECK(plan.share_memory);
    spec.group_limits.memory = 1 << 20;
    spec.nice = 5;
    plan = planned(spec, user_host());
    CHECK_FALSE(plan.share_memory);
    CHECK(kinds_of(plan).starts_with("EnterGroups "));
    CHECK(step_of<runtime::SetNice>(plan).value == 5);
    // An init has memory of its own, and enters them itself.
    spec.namespaces.pid = Own::yes;
    plan = planned(spec, user_host());
    CHECK(plan.share_memory);
    CHECK(plan.init_enters_groups);
    CHECK(steps_of<runtime::EnterGroups>(plan).empty());
    spec.command_is_pid_1 = true;
    plan = planned(spec, user_host());
    CHECK_FALSE(plan.share_memory);
    CHECK_FALSE(plan.init_enters_groups);
    CHECK(steps_of<runtime::EnterGroups>(plan).size() == 1);
}

TEST_CASE("plan: a tmpfs has the size that was said for all where it has none of its own")
{
    Spec spec = plain_spec();
    spec.operations.emplace_back(Tmpfs{"/a"});
    spec.operations.emplace_back(Tmpfs{"/b", 0755, 4096});
    const auto options = [&] {
        std::string text;
        const Plan plan = planned(spec, user_host());
        for (const mount::MountTmpfs& step : steps_of<mount::MountTmpfs>(plan))
            text += std::string{step.options} + "\n";
        return text;
    };
    CHECK(options() == "mode=0755\nmode=0755,size=4096\n");
    spec.tmpfs_size = 1 << 20;
    CHECK(options() == "mode=0755,size=1048576,nr_inodes=1536\nmode=0755,size=4096\n");
}

TEST_CASE("spec: resources have the names of getrlimit(2)")
{
    CHECK(resource_by_name("nofile") == 7U);
    CHECK(resource_by_name("RLIMIT_CORE") == 4U);
    CHECK(resource_by_name("As") == 9U);
    CHECK(resource_by_name("files") == std::nullopt);
    CHECK(resource_by_name("") == std::nullopt);
    const std::vector<std::string> names = resource_names();
    REQUIRE(names.size() == 16);
    for (unsigned number = 0; number < names.size(); ++number)
        CHECK(resource_by_name(names[number]) == number);
}

TEST_CASE("plan: the working directory is opened for relative sources only")
{
    const auto needs = [](Operation operation) {
        Spec spec = plain_spec();
        spec.operations.push_back(std::move(operation));
        return step_of<mount::OpenHost>(planned(spec, user_host())).need_cwd;
    };
    Overlay overlay;
    overlay.lower = {"/a", "b"};
    overlay.destination = "/o";
    CHECK(needs(Bind{"here", "/x"}));
    CHECK(needs(Bind{".", "/x"}));
    CHECK(needs(overlay));
    CHECK_FALSE(needs(Bind{"/here", "/x"}));
    CHECK_FALSE(needs(Tmpfs{"x"}));
}

TEST_CASE("plan: maps that someone else writes are waited for and not written")
{
    Spec spec = with_dev();
    spec.user_map_descriptor = 30;
    spec.info_descriptor = 31;
    const Plan plan = planned(spec, user_host());
    CHECK(kinds_of(plan) == "CloseOnExec CloseNow OpenHost WaitForSupervisor RequireIdMap "
                            "DropBounding ClearUmask MakeRoot BindTree MountDev EnterRoot "
                            "SetCapabilities RestoreUmask ChangeDirectory");
    CHECK(plan.user_map == 30);
    CHECK(plan.info == 31);
}

TEST_CASE("plan: joining a user namespace makes none, maps none and copies the memory")
{
    Spec spec = with_root_bind();
    spec.namespaces.join_user = 30;
    for (const sys::Host& host : {user_host(), root_host()}) {
        const Plan plan = planned(spec, host);
        CHECK(plan.join_user == 30);
        CHECK((plan.clone_flags & CLONE_NEWUSER) == 0);
        CHECK_FALSE(plan.share_memory);
        CHECK(steps_of<ns::WriteIdMaps>(plan).empty());
        CHECK(steps_of<ns::TakeIds>(plan).empty());
        CHECK(steps_of<ns::DropBounding>(plan).size() == 1);
        CHECK(step_of<mount::OpenHost>(plan).make_slave);
        CHECK(plan.close_on_exec == std::vector<int>{30});
    }
}

TEST_CASE("plan: ids that are taken in a joined user namespace are only those asked for")
{
    Spec spec = with_root_bind();
    spec.namespaces.join_user = 30;
    spec.gid = 7;
    const Plan only_gid = planned(spec, user_host());
    const auto take = step_of<ns::TakeIds>(only_gid);
    CHECK(take.set_gid);
    CHECK(take.gid == 7);
    CHECK_FALSE(take.set_uid);
    spec.uid = 8;
    const auto both = step_of<ns::TakeIds>(planned(spec, user_host()));
    CHECK(both.set_uid);
    CHECK(both.uid == 8);
}

TEST_CASE("plan: the user namespace that is joined last comes after the tree")
{
    Spec spec = with_root_bind();
    spec.namespaces.join_user_last = 31;
    const Plan plan = planned(spec, user_host());
    CHECK(kinds_of(plan) == "CloseOnExec OpenHost DropBounding WriteIdMaps ClearUmask MakeRoot "
                            "BindTree EnterRoot JoinUserNamespace DropBounding SetCapabilities "
                            "RestoreUmask ChangeDirectory");
    CHECK(step_of<ns::JoinUserNamespace>(plan).fd == 31);
}

TEST_CASE("plan: in a joined pid namespace /proc is new, memory is copied, no init is needed")
{
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Proc{"/proc"});
    spec.namespaces.join_pid = 32;
    const Plan plan = planned(spec, user_host());
    CHECK(plan.join_pid == 32);
    CHECK_FALSE(plan.own_pid);
    CHECK_FALSE(plan.share_memory);
    CHECK_FALSE(plan.needs_init);
    CHECK(step_of<mount::MountProc>(plan).fresh);
    spec.namespaces.pid = Own::yes;
    CHECK(planned(spec, user_host()).own_pid);
    CHECK(planned(spec, user_host()).needs_init);
}

TEST_CASE("plan: /proc is new in a pid namespace and the caller's without one")
{
    Spec spec = with_root_bind();
    spec.operations.emplace_back(Proc{"/proc"});
    CHECK_FALSE(step_of<mount::MountProc>(planned(spec, user_host())).fresh);
    spec.namespaces.pid = Own::yes;
    CHECK(step_of<mount::MountProc>(planned(spec, user_host())).fresh);
}

TEST_CASE("plan: init is needed for a pid namespace, for locks and for descriptors to keep")
{
    Spec spec = plain_spec();
    CHECK_FALSE(planned(spec, user_host()).needs_init);
    SUBCASE("pid namespace")
    {
        spec.namespaces.pid = Own::yes;
        CHECK(planned(spec, user_host()).needs_init);
        CHECK(planned(spec, root_host()).needs_init);
    }
    SUBCASE("lock")
    {
        spec.lock_files = {"/a", "/b"};
        const Plan plan = planned(spec, user_host());
        CHECK(plan.needs_init);
        REQUIRE(plan.lock_steps.size() == 2);
        for (std::size_t i = 0; i < 2; ++i) {
            const auto* const lock =
                std::get_if<runtime::LockFile>(&plan.steps[plan.lock_steps[i]]);
            REQUIRE(lock != nullptr);
            CHECK(lock->path == spec.lock_files[i]);
        }
    }
    SUBCASE("descriptor")
    {
        spec.sync_descriptors = {40};
        const Plan plan = planned(spec, user_host());
        CHECK(plan.needs_init);
        CHECK(plan.keep_in_init == std::vector<int>{40});
        CHECK(plan.close_on_exec.empty());  // The command sees it too.
    }
}

TEST_CASE("plan: a control group is for nsbox's own options where there is no pid namespace")
{
    Spec spec = plain_spec();
    CHECK_FALSE(planned(spec, root_host()).wants_group);
    spec.die_with_parent = true;  // bwrap's own option.
    CHECK(planned(spec, root_host()).subreaper);
    CHECK_FALSE(planned(spec, root_host()).wants_group);
    SUBCASE("end with the command")
    {
        spec.end_with_command = true;
    }
    SUBCASE("limit of time")
    {
        spec.limits.time = std::chrono::seconds{1};
    }
    SUBCASE("limit of processor time")
    {
        spec.limits.cpu = std::chrono::seconds{1};
    }
    SUBCASE("name")
    {
        spec.name = "";
    }
    for (const bool dies : {true, false}) {
        spec.die_with_parent = dies;
        CHECK(planned(spec, root_host()).wants_group);
        CHECK(planned(spec, user_host()).wants_group);
        CHECK(planned(spec, root_host()).group_name.empty());  // Only the launch can tell.
    }
    spec.namespaces.pid = Own::yes;
    CHECK_FALSE(planned(spec, root_host()).wants_group);
    CHECK_FALSE(planned(spec, user_host()).wants_group);
}

TEST_CASE("plan: the supervisor is waited for where it has something to do")
{
    const auto needs = [](std::optional<int> Spec::*member) {
        Spec spec = plain_spec();
        spec.*member = 30;
        const Plan plan = planned(spec, user_host());
        CHECK(plan.needs_supervisor == (steps_of<runtime::WaitForSupervisor>(plan).size() == 1));
        return plan.needs_supervisor;
    };
    CHECK(needs(&Spec::info_descriptor));
    CHECK(needs(&Spec::status_descriptor));
    CHECK(needs(&Spec::seccomp_descriptor));
    CHECK(needs(&Spec::user_map_descriptor));
    CHECK_FALSE(needs(&Spec::block_descriptor));
}

TEST_CASE("plan: descriptors that the command must not see are all marked, the reports' closed")
{
    Spec spec = plain_spec();
    spec.consumed = {10, 11};
    spec.namespaces.join_user_last = 13;
    spec.seccomp_descriptor = 15;
    spec.block_descriptor = 16;
    spec.user_map_descriptor = 17;
    spec.info_descriptor = 18;
    spec.status_descriptor = 19;
    spec.sync_descriptors = {20};
    spec.operations.emplace_back(BindDescriptor{21, "/a"});
    spec.operations.emplace_back(File{22, "/b"});
    spec.operations.emplace_back(Data{23, "/c"});
    Plan made = planned(spec, user_host());
    const Plan plan = std::move(made);  // What steps point at survives a move.
    CHECK(plan.close_on_exec == std::vector<int>{10, 11, 13, 15, 16, 17, 21, 22, 23});
    const auto mark = step_of<runtime::CloseOnExec>(plan);
    CHECK(mark.fds == plan.close_on_exec.data());
    CHECK(mark.count == plan.close_on_exec.size());
    const auto closed = steps_of<runtime::CloseNow>(plan);
    REQUIRE(closed.size() == 2);
    CHECK(closed[0].fd == 18);
    CHECK(closed[1].fd == 19);
    CHECK(plan.seccomp == 15);
    CHECK(plan.status == 19);
    CHECK(plan.keep_in_init == std::vector<int>{20});
    CHECK(step_of<runtime::AwaitRelease>(plan).fd == 16);
}

TEST_CASE("plan: an undumpable caller's memory is not shared, and its copy made dumpable")
{
    sys::Host host = user_host();
    host.dumpable = false;
    const Plan plan = planned(with_root_bind(), host);
    CHECK_FALSE(plan.share_memory);
    CHECK(begins_with(kinds_of(plan), "MakeDumpable OpenHost "));
    Spec joins = with_root_bind();
    joins.namespaces.join_user = 30;
    CHECK(steps_of<runtime::MakeDumpable>(planned(joins, host)).empty());
}

TEST_CASE("plan: an ordinary user's command has no capabilities but those that were added")
{
    Spec spec = with_root_bind();
    SUBCASE("one")
    {
        spec.capabilities = {{Kind::add, cap_net_raw}};
        const Plan plan = planned(spec, user_host());
        CHECK(step_of<ns::SetCapabilities>(plan).sets == bit(cap_net_raw));
        CHECK(step_of<ns::SetCapabilities>(plan).ambient);
        CHECK(step_of<ns::DropBounding>(plan).keep == bit(cap_net_raw));
        CHECK(plan.ambient == bit(cap_net_raw));
    }
    SUBCASE("all")
    {
        spec.capabilities = {{Kind::add_all, 0}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, user_host())).sets == every_capability);
    }
    SUBCASE("edits one after the other")
    {
        spec.capabilities = {{Kind::add_all, 0}, {Kind::drop, 0}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, user_host())).sets ==
              (every_capability & ~bit(0)));
        spec.capabilities = {{Kind::add, 5}, {Kind::drop_all, 0}, {Kind::add, 6}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, user_host())).sets == bit(6));
        spec.capabilities = {{Kind::add, 5}, {Kind::drop, 5}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, user_host())).sets == 0);
    }
    SUBCASE("what the caller holds itself is dropped")
    {
        sys::Host host = user_host();
        host.effective_capabilities = host.permitted_capabilities = bit(3);
        CHECK(step_of<ns::SetCapabilities>(planned(spec, host)).sets == 0);
    }
}

namespace {

Spec with_veth()
{
    Spec spec = with_root_bind();
    spec.namespaces.net = Own::yes;
    spec.veth_network.emplace();
    return spec;
}

}  // namespace

TEST_CASE("plan: a link to the host is waited for, and the name server is written then")
{
    Spec spec = with_veth();
    const Plan plan = planned(spec, root_host());
    CHECK(kinds_of(plan) == "OpenHost LoopbackUp OfferNetwork ClearUmask MakeStore MakeRoot "
                            "BindTree BindContents BindContents EnterRoot AwaitNetwork "
                            "FillContents RestoreUmask ChangeDirectory");
    CHECK(plan.ends_with_network);
    REQUIRE(plan.network);
    CHECK(plan.network->link.kind == net::user::LinkKind::routed);
    CHECK(plan.network->link.mtu == 1500);
    REQUIRE(plan.name_steps.size() == 2);
    CHECK(std::get<mount::BindContents>(plan.steps[plan.name_steps[0]]).is_late);
    CHECK_FALSE(std::get<mount::BindContents>(plan.steps[plan.name_steps[1]]).is_late);
    spec.veth_network->names = false;
    CHECK(steps_of<mount::FillContents>(planned(spec, root_host())).empty());
    spec.veth_network.reset();
    spec.user_network.emplace();
    CHECK(steps_of<mount::FillContents>(planned(spec, root_host())).empty());
}

TEST_CASE("plan: a link to the host is for root, and for a network namespace of the sandbox's own")
{
    constexpr unsigned cap_net_admin = 12;
    Spec spec = with_veth();
    CHECK(is_planned(spec, root_host()));
    const std::string refused = "Can't use a veth network: it is for root: it takes CAP_NET_ADMIN";
    CHECK(begins_with(refusal(spec, user_host()), refused));
    CHECK(contains(refusal(spec, user_host()), "use --net user"));
    sys::Host host = root_host();
    host.effective_capabilities &= ~bit(cap_net_admin);
    CHECK(begins_with(refusal(spec, host), refused));
    spec.namespaces.net = Own::no;
    CHECK(contains(refusal(spec, root_host()), "no network namespace of its own"));
    spec = with_veth();
    spec.user_network.emplace();
    CHECK(contains(refusal(spec, root_host()), "a user-mode network is asked for too"));
    spec = with_veth();
    spec.capabilities = {{Kind::add, cap_net_admin}};
    CHECK(contains(refusal(spec, root_host()), "--unshare-user"));
    spec.namespaces.user = Own::yes;
    CHECK(is_planned(spec, root_host()));
}

TEST_CASE("plan: what a link to the host cannot be is refused")
{
    struct Row {
        VethNetwork wish;
        const char* said;  ///< Null: it can be.
    };
    const auto with = [](const char* bridge, const char* address, const char* gateway) {
        VethNetwork wish;
        wish.bridge = bridge;
        wish.address = address;
        wish.gateway = gateway;
        return wish;
    };
    VethNetwork small;
    small.mtu = 1279;
    VethNetwork apart = with("br0", "", "");
    apart.outbound = false;
    for (const Row& row : {Row{with("br0", "", ""), nullptr},
                           {with("br0", "10.1.2.3/8", ""), nullptr},
                           {with("br0", "10.1.2.3/31", "10.1.2.2"), nullptr},
                           {with("", "10.1.2.3/24", ""), "except on a bridge"},
                           {with("", "", "10.1.2.1"), "except on a bridge"},
                           {with("br0", "", "10.1.2.1"), "needs an address"},
                           {with("br0", "10.1.2.3", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2.3/", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2.3/32", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2.3/7", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2.3/24x", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2/24", ""), "as in 10.1.2.3/24"},
                           {with("br0", "fd00::1/64", ""), "as in 10.1.2.3/24"},
                           {with("br0", "10.1.2.3/24", "x"), "it is no address"},
                           {small, "between 1280 and 65520"},
                           {apart, "access to the others"}}) {
        Spec spec = with_veth();
        spec.veth_network = row.wish;
        CAPTURE(row.wish.address);
        CAPTURE(row.wish.gateway);
        if (row.said == nullptr)
            CHECK(is_planned(spec, root_host()));
        else
            CHECK(contains(refusal(spec, root_host()), row.said));
    }
}

TEST_CASE("plan: Q2: root without a user namespace can keep no more than it has, and is told")
{
    sys::Host host = root_host();
    host.effective_capabilities &= ~bit(cap_sys_resource);
    host.permitted_capabilities &= ~bit(cap_sys_resource);
    Spec spec = with_root_bind();
    SUBCASE("one that is lacking, by name")
    {
        spec.capabilities = {{Kind::drop_all, 0}, {Kind::add, cap_sys_resource}};
        CHECK(refusal(spec, host) ==
              "Can't keep capability CAP_SYS_RESOURCE: the caller does not have it (hint: with "
              "--unshare-user it is held over the sandbox's own namespaces)");
    }
    SUBCASE("one that is there")
    {
        spec.capabilities = {{Kind::drop_all, 0}, {Kind::add, cap_net_raw}};
        const Plan plan = planned(spec, host);
        CHECK(step_of<ns::SetCapabilities>(plan).sets == bit(cap_net_raw));
        CHECK(steps_of<ns::DropBounding>(plan).empty());
    }
    SUBCASE("all means all that are there")
    {
        spec.capabilities = {{Kind::drop_all, 0}, {Kind::add_all, 0}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, host)).sets ==
              (every_capability & ~bit(cap_sys_resource)));
    }
    SUBCASE("added and dropped again is not asked for")
    {
        spec.capabilities = {{Kind::add, cap_sys_resource}, {Kind::drop, cap_sys_resource}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, host)).sets ==
              host.permitted_capabilities);
    }
    SUBCASE("dropping all leaves none")
    {
        spec.capabilities = {{Kind::drop_all, 0}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, host)).sets == 0);
        CHECK(planned(spec, host).ambient == 0);
    }
    SUBCASE("in a user namespace it can be had")
    {
        spec.namespaces.user = Own::yes;
        spec.capabilities = {{Kind::drop_all, 0}, {Kind::add, cap_sys_resource}};
        CHECK(step_of<ns::SetCapabilities>(planned(spec, host)).sets == bit(cap_sys_resource));
    }
    SUBCASE("a number that has no name is told as such")
    {
        spec.capabilities = {{Kind::add, 63}};
        CHECK(begins_with(refusal(spec, host), "Can't keep capability 63: "));
    }
}

TEST_CASE("plan: filters have whole instructions, and no more than the kernel takes")
{
    Spec spec = plain_spec();
    spec.seccomp_programs = {std::vector<std::uint8_t>(std::size_t{4096} * 8)};
    CHECK(planned(spec, user_host()).filters == spec.seccomp_programs);
    spec.seccomp_programs.emplace_back(std::size_t{4097} * 8);
    CHECK(refusal(spec, user_host()) == "Invalid seccomp data: a program has at most 4096 "
                                        "instructions, this one has 4097");
    // As a 16-bit length this would be one instruction.
    spec.seccomp_programs.back().resize(std::size_t{65537} * 8);
    CHECK(contains(refusal(spec, user_host()), "this one has 65537"));
    spec.seccomp_programs.back().resize(9);
    CHECK(refusal(spec, user_host()) == "Invalid seccomp data, must be multiple of 8");
}

TEST_CASE("plan: the command is looked for in the PATH that it will see")
{
    Spec spec = plain_spec();
    const auto candidates = [&] {
        const Plan plan = planned(spec, user_host());
        return Texts(plan.candidates.begin(), plan.candidates.end());
    };
    CHECK(candidates() == Texts{"/opt/bin/true", "/usr/bin/true"});
    spec.environment = {{EnvironmentEdit::Kind::set, "PATH", "/only"}};
    CHECK(candidates() == Texts{"/only/true"});
    spec.environment = {{EnvironmentEdit::Kind::clear, {}, {}}};
    CHECK(candidates() == Texts{"/usr/local/bin/true", "/usr/bin/true", "/bin/true"});
    spec.command = {"./run", "x"};
    CHECK(candidates() == Texts{"./run"});
}

TEST_CASE("plan: argv, the shell's argv and the environment are those of execvp")
{
    Spec spec = plain_spec();
    spec.command = {"tool", "a", "b"};
    const Plan plan = planned(spec, user_host());
    CHECK(plan.argv_name == "tool");
    CHECK(texts_of(plan.argv) == Texts{"tool", "a", "b"});
    CHECK(texts_of(plan.shell_argv) == Texts{"/bin/sh", "/opt/bin/tool", "a", "b"});
    CHECK(texts_of(plan.envp) ==
          Texts{"PATH=/opt/bin:/usr/bin", "HOME=/home/jo", "TERM=dumb", "PWD=/work/link"});
    CHECK(plan.pwd_slot == 3);
    spec.argv0 = "-tool";
    const Plan named = planned(spec, user_host());
    CHECK(texts_of(named.argv) == Texts{"-tool", "a", "b"});
    CHECK(named.argv_name == "tool");  // Errors are about what was looked for.
    CHECK(named.candidates.front() == std::string{"/opt/bin/tool"});
}

TEST_CASE("plan: the working directory is the one asked for, or the first of these that exists")
{
    Spec spec = plain_spec();
    Plan plan = planned(spec, user_host());
    const auto fallback = step_of<runtime::ChangeDirectory>(plan);
    CHECK(fallback.wanted == nullptr);
    CHECK(fallback.logical == std::string{"/work/link"});
    CHECK(fallback.physical == std::string{"/work/real"});
    CHECK(fallback.home == std::string{"/home/jo"});
    CHECK(Texts(plan.pwd, plan.pwd + 4) ==
          Texts{"PWD=/work/link", "PWD=/work/real", "PWD=/home/jo", "PWD=/"});
    spec.directory = "/there";
    spec.environment = {{EnvironmentEdit::Kind::set, "HOME", "/other"}};
    plan = planned(spec, user_host());
    const auto wanted = step_of<runtime::ChangeDirectory>(plan);
    REQUIRE(wanted.wanted != nullptr);
    CHECK(wanted.wanted == std::string{"/there"});
    CHECK(wanted.home == std::string{"/other"});
    CHECK(plan.pwd[0] == std::string{"PWD=/there"});
}

TEST_CASE("plan: /proc/self/exe is the caller's program, of which the sandbox gets a copy")
{
    Spec spec = plain_spec();
    CHECK_FALSE(planned(spec, user_host()).executes_itself);
    spec.command = {"/proc/self/exe", "x"};
    CHECK(planned(spec, user_host()).executes_itself);
    spec.namespaces.pid = Own::yes;
    CHECK(planned(spec, user_host()).executes_itself);
    spec.command = {"/proc/self/exe2"};
    CHECK_FALSE(planned(spec, user_host()).executes_itself);
}

TEST_CASE("plan: which clone there is, and the wish to die with the caller, are handed on")
{
    Spec spec = plain_spec();
    sys::Host host = user_host();
    CHECK(planned(spec, host).has_clone3);
    CHECK_FALSE(planned(spec, host).die_with_parent);
    host.has_clone3 = false;
    spec.die_with_parent = true;
    CHECK_FALSE(planned(spec, host).has_clone3);
    CHECK(planned(spec, host).die_with_parent);
}

TEST_CASE("plan: what has to end everything needs an init, with a pid namespace or without")
{
    Spec spec = plain_spec();
    spec.namespaces.pid = Own::no;
    CHECK_FALSE(planned(spec, user_host()).needs_init);
    const auto keeps_hold = [&](const Spec& wish) {
        const runtime::Plan plan = planned(wish, user_host());
        CHECK(plan.needs_init == plan.subreaper);
        return plan.subreaper;
    };
    Spec dying = spec;
    dying.die_with_parent = true;
    CHECK(keeps_hold(dying));
    Spec ending = spec;
    ending.end_with_command = true;
    CHECK(keeps_hold(ending));
    CHECK(planned(ending, user_host()).ends_with_command);
    Spec limited = spec;
    limited.limits.time = std::chrono::milliseconds{1};
    CHECK(keeps_hold(limited));
    limited.limits.time = std::chrono::milliseconds{0};
    CHECK_FALSE(keeps_hold(limited));
    limited.limits.cpu = std::chrono::milliseconds{1};
    CHECK(keeps_hold(limited));
    // Pid 1 of a namespace needs no help from a subreaper.
    ending.namespaces.pid = Own::yes;
    CHECK(planned(ending, user_host()).needs_init);
    CHECK_FALSE(planned(ending, user_host()).subreaper);
}

TEST_CASE("plan: init hands the command over to those who ask for it")
{
    Spec spec = plain_spec();
    spec.namespaces.pid = Own::yes;
    CHECK_FALSE(planned(spec, user_host()).tells_command);
    Spec signalled = spec;
    signalled.signals_command = true;
    CHECK(planned(signalled, user_host()).tells_command);
    signalled.namespaces.pid = Own::no;  // The child is the command.
    CHECK_FALSE(planned(signalled, user_host()).tells_command);
    Spec reported = spec;
    reported.events_descriptor = 5;
    CHECK(planned(reported, user_host()).tells_command);
    CHECK(planned(reported, user_host()).needs_supervisor);
}

TEST_CASE("plan: where a terminal is at hand nobody inside may type into it")
{
    Spec spec = plain_spec();
    spec.seccomp_programs = {std::vector<std::uint8_t>(8)};
    sys::Host host = user_host();
    CHECK(planned(spec, host).filters.size() == 1);
    host.terminal_at_hand = true;
    REQUIRE(planned(spec, host).filters.size() == 2);
    // The caller's own come after it: they may forbid to load another.
    CHECK(planned(spec, host).filters[1].size() == 8);
    host.terminal_at_hand = false;
    spec.terminal = WindowSize{};
    CHECK(planned(spec, host).filters.size() == 2);
}
