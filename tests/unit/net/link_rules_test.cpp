// The packet rules for a link between a sandbox and its host.

#include "net/user/link_rules.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace nsbox::net::user;
using namespace nsbox::net::netfilter;

namespace {

HostLink routed_link()
{
    HostLink link;
    link.name = link.entry = "nsbox0001";
    link.index = 7;
    link.ipv6 = true;
    link.gateway4 = ipv4(10, 207, 0, 5);
    link.gateway6 = ipv6(0xfd6e, 1);
    link.inside.address4 = ipv4(10, 207, 0, 6);
    link.inside.address6 = ipv6(0xfd6e, 2);
    return link;
}

const Chain* chain_at(const std::vector<Table>& tables, Hook hook, Type type)
{
    for (const Table& table : tables)
        for (const Chain& chain : table.chains)
            if (chain.hook == hook && chain.type == type)
                return &chain;
    return nullptr;
}

template <class Kind>
bool has(const Rule& rule)
{
    return std::any_of(rule.begin(), rule.end(),
                       [](const Part& part) { return std::holds_alternative<Kind>(part); });
}

template <class Verdict>
std::size_t count(const Chain& chain)
{
    return static_cast<std::size_t>(
        std::count_if(chain.rules.begin(), chain.rules.end(), has<Verdict>));
}

}  // namespace

TEST_CASE("tables are named for one interface, and judge nothing but it")
{
    const auto tables = link_rules(routed_link(), true, {});
    REQUIRE(tables.size() == 2);
    CHECK(tables[0].name == "nsbox0001-7");
    CHECK(tables[0].family == Family::netdev);
    CHECK(tables[0].chains[0].device == "nsbox0001");
    CHECK(tables[1].name == "nsbox0001-7");
    CHECK(tables[1].family == Family::inet);
    for (const Chain& chain : tables[1].chains) {
        CHECK(chain.accepts);
        for (const Rule& rule : chain.rules)
            CHECK((has<InIndex>(rule) || has<OutIndex>(rule)));
    }
}

TEST_CASE("frames that are not of the sandbox's addresses are dropped")
{
    HostLink link = routed_link();
    const auto frames = [&] { return link_rules(link, true, {})[0].chains[0]; };
    CHECK_FALSE(frames().accepts);
    CHECK(frames().rules.size() == 5);
    CHECK(count<Accept>(frames()) == 5);
    link.ipv6 = false;
    CHECK(frames().rules.size() == 2);
    link.is_bridged = true;
    CHECK(count<FromHardware>(frames()) == 2);
    CHECK(count<ArpSender>(frames()) == 1);
}

TEST_CASE("the last word about packets to the host is a refusal, after the doors")
{
    const std::vector<Gateway::Door> doors = {{false, protocol_tcp, {80, 80}, 4000},
                                              {false, protocol_tcp, {90, 99}, 4000},
                                              {true, protocol_udp, {53, 53}, 4001}};
    const auto tables = link_rules(routed_link(), true, doors);
    const Chain* const host = chain_at(tables, Hook::input, Type::filter);
    REQUIRE(host != nullptr);
    CHECK(has<Reject>(host->rules.back()));
    CHECK(host->rules.back().size() == 2);
    // Known connections, two kinds of neighbour discovery, and two sockets.
    CHECK(count<Accept>(*host) == 5);
    const Chain* const redirections = chain_at(tables, Hook::prerouting, Type::nat);
    REQUIRE(redirections != nullptr);
    CHECK(count<Translate>(*redirections) == 3);
    CHECK(chain_at(link_rules(routed_link(), true, {}), Hook::prerouting, Type::nat) == nullptr);
}

TEST_CASE("packets go out under the host's addresses, or not at all")
{
    const auto out = link_rules(routed_link(), true, {});
    REQUIRE(chain_at(out, Hook::postrouting, Type::nat) != nullptr);
    CHECK(count<Masquerade>(*chain_at(out, Hook::postrouting, Type::nat)) == 2);
    CHECK(count<Translated>(*chain_at(out, Hook::forward, Type::filter)) == 2);
    CHECK(count<Reject>(*chain_at(out, Hook::forward, Type::filter)) == 4);
    const auto off = link_rules(routed_link(), false, {});
    CHECK(chain_at(off, Hook::postrouting, Type::nat) == nullptr);
    CHECK(count<Reject>(*chain_at(off, Hook::forward, Type::filter)) == 6);
}

TEST_CASE("on a bridge the address tells the sandbox, and nothing is translated for it")
{
    HostLink link = routed_link();
    link.is_bridged = true;
    link.entry = "br0";
    link.ipv6 = false;
    const auto tables = link_rules(link, true, {{false, protocol_udp, {53, 53}, 4001}});
    CHECK(chain_at(tables, Hook::postrouting, Type::nat) == nullptr);
    // Sandboxes that are elsewhere do not come through, with TCP or without.
    const Chain* const through = chain_at(tables, Hook::forward, Type::filter);
    REQUIRE(through != nullptr);
    CHECK(count<Reject>(*through) == 6);
    CHECK(count<FromHardware>(*through) == 2);
    CHECK(count<To>(*through) == 4);
    const Chain* const host = chain_at(tables, Hook::input, Type::filter);
    REQUIRE(host != nullptr);
    for (const Rule& rule : host->rules)
        CHECK((has<From>(rule) || has<Drop>(rule)));
    // Nobody else on the bridge gets at the sockets.
    CHECK(count<Drop>(*host) == 1);
}
