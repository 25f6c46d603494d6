// Which addresses a link between a sandbox and its host gets.

#include "net/user/routed_address.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace nsbox::net::user;

TEST_CASE("a number is a name and addresses that no other number has")
{
    CHECK(link_name(0) == "nsbox0000");
    CHECK(link_name(0x12a4) == "nsbox12a4");
    CHECK(text_of(link_addresses(0).host4) == "10.207.0.1");
    CHECK(text_of(link_addresses(0).guest4) == "10.207.0.2");
    CHECK(text_of(link_addresses(0x12a4).guest4) == "10.207.74.146");
    CHECK(text_of(link_addresses(0x12a4).host6) == "fd6e:7362:6f78:12a4::1");
    CHECK(text_of(link_addresses(0x12a4).guest6) == "fd6e:7362:6f78:12a4::2");
    CHECK(text_of(link_addresses(links_of_range - 1).guest4) == "10.207.255.254");
    CHECK(text_of(link_addresses(links_of_range).guest4) == "172.30.0.2");
    CHECK(text_of(link_addresses(link_numbers - 1).guest4) == "192.168.255.254");
    std::set<std::string> names;
    std::set<std::string> addresses;
    for (unsigned number = 0; number < link_numbers; ++number) {
        names.insert(link_name(number));
        addresses.insert(text_of(link_addresses(number).guest4));
    }
    CHECK(names.size() == link_numbers);
    CHECK(addresses.size() == link_numbers);
    for (const std::string& name : names)
        CHECK(name.size() == 9);
}

TEST_CASE("networks overlap when one holds the other")
{
    const Prefix small{ipv4(10, 207, 4, 8), 30};
    for (const Prefix& other : {Prefix{ipv4(10, 207, 4, 10), 32}, Prefix{ipv4(10, 207, 4, 8), 30},
                                Prefix{ipv4(10, 0, 0, 0), 8}, Prefix{ipv4(10, 207, 4, 0), 24}}) {
        CHECK(overlaps(small, other));
        CHECK(overlaps(other, small));
    }
    for (const Prefix& other : {Prefix{ipv4(10, 207, 4, 12), 32}, Prefix{ipv4(10, 207, 4, 4), 30},
                                Prefix{ipv4(11, 0, 0, 0), 8}, Prefix{ipv6(0, 0), 8}})
        CHECK_FALSE(overlaps(small, other));
}

TEST_CASE("numbers come one after the other, but for those that are taken")
{
    SUBCASE("none is")
    {
        LinkNumbers numbers{{}, true, links_of_range - 1};
        CHECK(numbers.next() == links_of_range - 1);
        CHECK(numbers.next() == 0);
        std::set<unsigned> rest;
        for (unsigned number = numbers.next(); number != link_numbers; number = numbers.next())
            rest.insert(number);
        CHECK(rest.size() == link_numbers - 2);
        CHECK(numbers.next() == link_numbers);
    }
    SUBCASE("an address of the host, a network, one of IPv6")
    {
        const Prefix taken[] = {{ipv4(10, 207, 0, 22), 32},
                                {ipv4(10, 207, 0, 24), 29},
                                {link_addresses(8).guest6, 128}};
        LinkNumbers numbers{taken, true, 5};
        CHECK(numbers.next() == 9);
        LinkNumbers without{taken, false, 5};
        CHECK(without.next() == 8);
    }
    SUBCASE("a whole range, and all")
    {
        const Prefix ten[] = {{ipv4(10, 0, 0, 0), 8}};
        CHECK(LinkNumbers{ten, true, 3}.next() == links_of_range + 3);
        const Prefix every[] = {
            {ipv4(10, 0, 0, 0), 8}, {ipv4(172, 16, 0, 0), 12}, {ipv4(192, 168, 0, 0), 16}};
        CHECK(LinkNumbers{every, true, 3}.next() == link_numbers);
        const Prefix of_ipv6[] = {{Address{true, {0xfd}}, 8}};
        CHECK(LinkNumbers{of_ipv6, true, 3}.next() == link_numbers);
        CHECK(LinkNumbers{of_ipv6, false, 3}.next() == 3);
    }
}

TEST_CASE("a bridge's network is given out but for what somebody has")
{
    const Prefix network{ipv4(192, 0, 2, 17), 29};
    const Address taken[] = {ipv4(192, 0, 2, 17), ipv4(192, 0, 2, 20)};
    PortAddresses addresses{network, taken, 1003};  // 1003 % 8 = 3
    std::vector<std::string> found;
    for (Address address; addresses.next(address);)
        found.push_back(text_of(address));
    CHECK(found ==
          std::vector<std::string>{"192.0.2.19", "192.0.2.21", "192.0.2.22", "192.0.2.18"});
    CHECK(addresses.host_part(ipv4(192, 0, 2, 22)) == 6);
    // Of two addresses both are hosts'.
    PortAddresses two{{ipv4(192, 0, 2, 4), 31}, {}, 0};
    Address address;
    REQUIRE(two.next(address));
    CHECK(text_of(address) == "192.0.2.5");
    CHECK_FALSE(two.next(address));
    CHECK_FALSE(PortAddresses{{ipv4(192, 0, 2, 4), 32}, {}, 0}.next(address));
}

TEST_CASE("the name of a bridge's port fits, and tells bridge and address")
{
    CHECK(port_name(7, 0xa2) == "nsb7-a2");
    CHECK(port_hardware(ipv4(10, 1, 2, 3)) == std::array<std::uint8_t, 6>{0x0a, 0x6e, 10, 1, 2, 3});
    CHECK(port_name(0xfffff, 0xffffff).size() == 15);
}
