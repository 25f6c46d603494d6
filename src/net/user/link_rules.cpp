#include "net/user/link_rules.hpp"

#include "net/user/routed_address.hpp"

#include <net/ethernet.h>
#include <utility>

namespace nsbox::net::user {

namespace {

using namespace netfilter;

constexpr unsigned bits4 = 32;
constexpr unsigned bits6 = 128;
constexpr std::uint8_t neighbour_solicitation = 135;
constexpr std::uint8_t neighbour_advertisement = 136;

Prefix only(const Address& address)
{
    return {address, address.v6 ? bits6 : bits4};
}

/// Every frame that comes from the sandbox, before anything else sees it.
Table frames(const HostLink& link, const std::string& name)
{
    Chain chain{"from", Type::filter, Hook::ingress, priority_filter, false, {}, link.name};
    const Prefix own = only(link.inside.address4);
    if (link.is_bridged) {
        // Nobody on the bridge is to take it for somebody else.
        const FromHardware hardware{link.inside_mac};
        chain.rules = {{hardware, ArpSender{own.address}, Accept{}},
                       {hardware, From{own}, Accept{}}};
    } else {
        chain.rules = {{ArpSender{own.address}, Accept{}}, {From{own}, Accept{}}};
        if (link.ipv6) {
            constexpr unsigned link_local = 10;
            chain.rules.push_back({From{only(link.inside.address6)}, Accept{}});
            chain.rules.push_back({From{{ipv6(0xfe80, 0), link_local}}, Accept{}});
            chain.rules.push_back({From{only(ipv6(0, 0))}, Accept{}});
        }
    }
    return {name, {chain}, Family::netdev};
}

/// What a rule about packets of the sandbox begins with; on a bridge others come in there as well.
Rule from_sandbox(const HostLink& link)
{
    if (link.is_bridged)
        return {InInterface{link.entry}, From{only(link.inside.address4)}};
    return {InIndex{link.index}};
}

Rule with(Rule begin, const Rule& rest)
{
    begin.insert(begin.end(), rest.begin(), rest.end());
    return begin;
}

/// The sender is told at once. A reset is sent however many there are; the kernel sends no more than
/// one ICMP message a second to one address, after the first few.
void refuse(std::vector<Rule>& rules, const Rule& from)
{
    rules.push_back(with(from, {Protocol{protocol_tcp}, Reject{true}}));
    rules.push_back(with(from, {Reject{}}));
}

const Address& gateway_of(const HostLink& link, bool v6)
{
    return v6 ? *link.gateway6 : *link.gateway4;
}

Chain redirections(const HostLink& link, const std::vector<Gateway::Door>& doors)
{
    Chain chain{"doors", Type::nat, Hook::prerouting, priority_translate_destination, true, {}};
    for (const Gateway::Door& door : doors) {
        const Address& gateway = gateway_of(link, door.v6);
        chain.rules.push_back(
            with(from_sandbox(link),
                 {To{only(gateway)}, ToPorts{door.protocol, door.ports.first, door.ports.last},
                  Translate{gateway, door.served_at}}));
    }
    return chain;
}

/// To this host itself.
Chain to_host(const HostLink& link, const std::vector<Gateway::Door>& doors)
{
    Chain chain{"host", Type::filter, Hook::input, priority_filter, true, {}};
    const Rule from = from_sandbox(link);
    chain.rules.push_back(with(from, {Established{}, Accept{}}));
    if (link.ipv6)
        for (const std::uint8_t type : {neighbour_solicitation, neighbour_advertisement})
            chain.rules.push_back(with(from, {Icmp6Type{type}, Accept{}}));
    std::uint16_t last = 0;
    for (const Gateway::Door& door : doors) {
        // Several ranges may lead to one socket.
        if (std::exchange(last, door.served_at) == door.served_at)
            continue;
        const To gateway{only(gateway_of(link, door.v6))};
        const ToPort port{door.protocol, door.served_at};
        chain.rules.push_back(with(from, {gateway, port, Accept{}}));
        // Whoever else is on the bridge has no business there.
        if (link.is_bridged)
            chain.rules.push_back({InInterface{link.entry}, gateway, port, Drop{}});
    }
    refuse(chain.rules, from);
    return chain;
}

/// Through this host, from one interface to another.
Chain through_host(const HostLink& link, bool outbound)
{
    Chain chain{"through", Type::filter, Hook::forward, priority_filter, true, {}};
    const OutIndex to{link.index, false};
    chain.rules = {{to, Established{}, Accept{}}};
    refuse(chain.rules, {to});
    // What the host itself offers behind rules that lead elsewhere is the host's too.
    refuse(chain.rules, {InIndex{link.index}, Translated{}});
    if (!outbound)
        refuse(chain.rules, {InIndex{link.index}});
    return chain;
}

/// From sandboxes that are not on the bridge, who are told by the names of their links, or by the
/// hardware that those on other bridges have and cannot change. Others may come that way.
Chain to_bridged(const HostLink& link)
{
    Chain chain{"through", Type::filter, Hook::forward, priority_filter, true, {}};
    refuse(chain.rules, with(from_sandbox(link), {Translated{}}));
    const InInterface elsewhere{link.entry, true};
    const To own{only(link.inside.address4)};
    refuse(chain.rules, {InInterface{link_name_begin, false, true}, own});
    refuse(chain.rules, {elsewhere, FromHardware{link.inside_mac, port_hardware_length}, own});
    return chain;
}

Chain masquerade(const HostLink& link)
{
    const OutIndex elsewhere{link.index, true};
    Chain chain{"out", Type::nat, Hook::postrouting, priority_translate_source, true, {}};
    chain.rules.push_back({From{only(link.inside.address4)}, elsewhere, Masquerade{}});
    if (link.ipv6)
        chain.rules.push_back({From{only(link.inside.address6)}, elsewhere, Masquerade{}});
    return chain;
}

}  // namespace

std::vector<Table> link_rules(const HostLink& link, bool outbound,
                              const std::vector<Gateway::Door>& doors)
{
    // An interface of the same name, later, is another sandbox's.
    const std::string name = link.name + "-" + std::to_string(link.index);
    Table packets{name, {to_host(link, doors)}};
    if (!doors.empty())
        packets.chains.push_back(redirections(link, doors));
    if (link.is_bridged) {
        packets.chains.push_back(to_bridged(link));
    } else {
        packets.chains.push_back(through_host(link, outbound));
        if (outbound)
            packets.chains.push_back(masquerade(link));
    }
    return {frames(link, name), packets};
}

}  // namespace nsbox::net::user
