#include "network_options.hpp"

#include <charconv>

namespace nsbox::tool {

namespace {

std::vector<std::string> split(const std::string& text, char separator)
{
    std::vector<std::string> parts;
    for (std::size_t at = 0;;) {
        const std::size_t end = text.find(separator, at);
        parts.push_back(text.substr(at, end - at));
        if (end == std::string::npos)
            return parts;
        at = end + 1;
    }
}

template <class T>
bool to_number(const std::string& text, T& value)
{
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc{} && at == end && !text.empty();
}

bool to_switch(const std::string& text, bool& value)
{
    value = text == "on";
    return value || text == "off";
}

bool to_link(const std::string& text, UserNetwork::Link& link)
{
    using Link = UserNetwork::Link;
    link = text == "tap" ? Link::tap : text == "veth" ? Link::veth : Link::automatic;
    return link != Link::automatic || text == "auto";
}

struct Setting {
    std::string key;
    std::string value;
};

Setting setting_of(const std::string& word)
{
    const std::size_t equals = word.find('=');
    return {word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1)};
}

using Wrong = std::optional<std::string>;

Wrong set_mtu(const std::string& value, unsigned& mtu)
{
    return to_number(value, mtu)
               ? std::nullopt
               : Wrong{"--net: mtu takes a number of bytes, not \"" + value + "\""};
}

Wrong set_switch(const Setting& setting, bool& target)
{
    return to_switch(setting.value, target)
               ? std::nullopt
               : Wrong{"--net: " + setting.key + " takes on or off, not \"" + setting.value + "\""};
}

Wrong apply(const Setting& setting, UserNetwork& user)
{
    const auto& [key, value] = setting;
    if (key == "mtu")
        return set_mtu(value, user.mtu);
    if (key == "link")
        return to_link(value, user.link)
                   ? std::nullopt
                   : Wrong{"--net: link takes auto, tap or veth, not \"" + value + "\""};
    bool* const target = key == "ipv6"       ? &user.ipv6
                         : key == "outbound" ? &user.outbound
                         : key == "names"    ? &user.names
                         : key == "required" ? &user.end_with_helper
                                             : nullptr;
    if (target == nullptr)
        return "--net: there is no setting \"" + key +
               "\" of user; there are mtu, link, ipv6, outbound, names and required";
    return set_switch(setting, *target);
}

Wrong apply(const Setting& setting, VethNetwork& veth)
{
    const auto& [key, value] = setting;
    if (key == "mtu")
        return set_mtu(value, veth.mtu);
    std::string* const text = key == "bridge"    ? &veth.bridge
                              : key == "address" ? &veth.address
                              : key == "gateway" ? &veth.gateway
                                                 : nullptr;
    if (text != nullptr) {
        *text = value;
        return value.empty() ? Wrong{"--net: " + key + " takes a value"} : std::nullopt;
    }
    bool* const target = key == "ipv6"       ? &veth.ipv6
                         : key == "outbound" ? &veth.outbound
                         : key == "names"    ? &veth.names
                                             : nullptr;
    if (target == nullptr)
        return "--net: there is no setting \"" + key +
               "\" of veth; there are mtu, ipv6, outbound, names, bridge, address and gateway";
    return set_switch(setting, *target);
}

template <class Network>
Wrong apply_all(const std::vector<std::string>& words, Network& network)
{
    for (std::size_t i = 1; i < words.size(); ++i)
        if (Wrong wrong = apply(setting_of(words[i]), network))
            return wrong;
    return std::nullopt;
}

bool to_ports(const std::string& text, Ports& ports)
{
    const std::size_t dash = text.find('-');
    if (!to_number(text.substr(0, dash), ports.first) || ports.first == 0)
        return false;
    ports.last = ports.first;
    return dash == std::string::npos ||
           (to_number(text.substr(dash + 1), ports.last) && ports.last >= ports.first);
}

}  // namespace

std::optional<std::string> parse_network(const std::string& text, NetworkChoice& choice)
{
    const std::vector<std::string> words = split(text, ',');
    if (text == "host" || text == "none") {
        choice = {text == "none", std::nullopt, std::nullopt};
        return std::nullopt;
    }
    if (words[0] == "user") {
        choice = {true, UserNetwork{}, std::nullopt};
        return apply_all(words, *choice.user);
    }
    if (words[0] == "veth") {
        choice = {true, std::nullopt, VethNetwork{}};
        return apply_all(words, *choice.veth);
    }
    return "--net takes host, none, user or veth, not \"" + words[0] + "\"";
}

std::optional<std::string> parse_published(const std::string& text, PublishedPort& port)
{
    using Protocol = PublishedPort::Protocol;
    constexpr const char* form =
        "--publish takes [ADDRESS:]HOSTPORT:[localhost:]PORT[/tcp|/udp], as in 8080:80, not \"";
    const std::string wrong = form + text + "\"";
    port = {};
    const std::size_t slash = text.find('/');
    const std::string protocol = slash == std::string::npos ? "tcp" : text.substr(slash + 1);
    port.protocol = protocol == "udp" ? Protocol::udp : Protocol::tcp;
    if (protocol != "tcp" && protocol != "udp")
        return wrong;
    // From the end: an address may hold colons of its own.
    std::string rest = text.substr(0, slash);
    const auto take_last = [&rest]() -> std::string {
        const std::size_t colon = rest.rfind(':');
        std::string last = colon == std::string::npos ? rest : rest.substr(colon + 1);
        rest = colon == std::string::npos ? "" : rest.substr(0, colon);
        return last;
    };
    if (!to_number(take_last(), port.inside) || port.inside == 0)
        return wrong;
    std::string outside = take_last();
    port.to_loopback = outside == "localhost";
    if (port.to_loopback)
        outside = take_last();
    if (!to_number(outside, port.outside))
        return wrong;
    if (rest.size() > 1 && rest.front() == '[' && rest.back() == ']')
        rest = rest.substr(1, rest.size() - 2);
    else if (rest.find(':') != std::string::npos)
        return wrong;
    port.address = rest;
    return std::nullopt;
}

std::string say_port(const PublishedPort& port)
{
    const bool v6 = port.address.find(':') != std::string::npos;
    const std::string address = port.address.empty() ? "localhost"
                                : v6                 ? "[" + port.address + "]"
                                                     : port.address;
    return address + ":" + std::to_string(port.outside) + " leads to port " +
           std::to_string(port.inside) +
           (port.protocol == PublishedPort::Protocol::udp ? "/udp" : "/tcp");
}

std::optional<std::string> parse_ports(const std::string& text, std::vector<Ports>& ports)
{
    if (text == "all") {
        ports.push_back({1, 65535});
        return std::nullopt;
    }
    for (const std::string& word : split(text, ',')) {
        Ports range;
        if (!to_ports(word, range))
            return "--host-loopback takes all, or ports from 1 to 65535 as in 8080,9000-9010, not "
                   "\"" +
                   word + "\"";
        ports.push_back(range);
    }
    return std::nullopt;
}

}  // namespace nsbox::tool
