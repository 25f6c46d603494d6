#include "network_options.hpp"

#include <charconv>
#include <string_view>

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

bool to_tcp(const std::string& text, UserNetwork::Tcp& tcp)
{
    using Tcp = UserNetwork::Tcp;
    tcp = text == "relay" ? Tcp::relay : Tcp::slirp;
    return tcp == Tcp::relay || text == "slirp";
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
    if (key == "tcp")
        return to_tcp(value, user.tcp)
                   ? std::nullopt
                   : Wrong{"--net: tcp takes slirp or relay, not \"" + value + "\""};
    bool* const target = key == "ipv6"       ? &user.ipv6
                         : key == "outbound" ? &user.outbound
                         : key == "names"    ? &user.names
                         : key == "required" ? &user.end_with_helper
                                             : nullptr;
    if (target == nullptr)
        return "--net: there is no setting \"" + key +
               "\" of user; there are mtu, link, tcp, ipv6, outbound, names and required";
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

constexpr std::string_view join_prefix = "join:";

std::optional<std::string> parse_join(const std::string& text, JoinNetwork& join)
{
    constexpr std::string_view fd_prefix = "fd:";
    join.name = text;
    if (text.empty())
        return "--net join: takes the path of a network namespace, fd: and the number of a "
               "descriptor, "
               "or the name or id of a sandbox";
    if (text.rfind(fd_prefix, 0) == 0) {
        join.by = JoinNetwork::By::descriptor;
        if (!to_number(text.substr(fd_prefix.size()), join.descriptor) || join.descriptor < 0)
            return "--net join:fd: takes the number of a descriptor, not \"" +
                   text.substr(fd_prefix.size()) + "\"";
        return std::nullopt;
    }
    join.by =
        text.find('/') != std::string::npos ? JoinNetwork::By::path : JoinNetwork::By::sandbox;
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
        choice = {};
        choice.own = text == "none";
        return std::nullopt;
    }
    choice = {};
    if (text.rfind(join_prefix, 0) == 0)
        return parse_join(text.substr(join_prefix.size()), choice.join.emplace());
    choice.own = true;
    if (words[0] == "user")
        return apply_all(words, choice.user.emplace());
    if (words[0] == "veth")
        return apply_all(words, choice.veth.emplace());
    return "--net takes host, none, user, veth or join:, not \"" + words[0] + "\"";
}

namespace {

/// Takes the last word in front of which there is a colon, or all.
std::string take_last(std::string& rest)
{
    const std::size_t colon = rest.rfind(':');
    std::string last = colon == std::string::npos ? rest : rest.substr(colon + 1);
    rest = colon == std::string::npos ? "" : rest.substr(0, colon);
    return last;
}

/// ADDRESS, in brackets where it holds colons, or nothing.
bool to_address(const std::string& text, std::string& address)
{
    const bool in_brackets = text.size() > 1 && text.front() == '[' && text.back() == ']';
    address = in_brackets ? text.substr(1, text.size() - 2) : text;
    return in_brackets || text.find(':') == std::string::npos;
}

/// From the end: an address may hold colons of its own.
bool to_published(std::string rest, PublishedPort& port)
{
    if (!to_number(take_last(rest), port.inside) || port.inside == 0)
        return false;
    std::string before = rest;
    port.to_loopback = take_last(before) == "localhost";
    if (port.to_loopback)
        rest = before;
    if (port.kind == PublishedPort::Kind::unix_socket) {
        port.path = rest;
        return !rest.empty();
    }
    return to_number(take_last(rest), port.outside) && to_address(rest, port.address);
}

/// Takes "/tcp" or "/udp" off.
bool take_protocol(std::string& text, PublishedPort& port)
{
    const std::size_t slash = text.find('/');
    const std::string protocol = slash == std::string::npos ? "tcp" : text.substr(slash + 1);
    text = text.substr(0, slash);
    port.kind = protocol == "udp" ? PublishedPort::Kind::udp : PublishedPort::Kind::tcp;
    return protocol == "tcp" || protocol == "udp";
}

constexpr const char* unix_mark = "unix:";

bool is_unix(const std::string& text)
{
    return text.rfind(unix_mark, 0) == 0;
}

}  // namespace

std::optional<std::string> parse_published(const std::string& text, PublishedPort& port)
{
    port = {};
    std::string rest = text;
    bool ok = true;
    if (is_unix(text)) {
        port.kind = PublishedPort::Kind::unix_socket;
        rest = text.substr(std::string{unix_mark}.size());
    } else {
        ok = take_protocol(rest, port);
    }
    if (ok && to_published(std::move(rest), port))
        return std::nullopt;
    return "--publish takes [ADDRESS:]HOSTPORT:[localhost:]PORT[/tcp|/udp], as in 8080:80, or "
           "unix:PATH:[localhost:]PORT, not \"" +
           text + "\"";
}

std::optional<std::string> parse_place(const std::string& text, PublishedPort& port)
{
    if (!parse_published(text, port))
        return std::nullopt;
    const std::size_t slash = is_unix(text) ? std::string::npos : text.find('/');
    const std::string protocol = slash == std::string::npos ? "" : text.substr(slash);
    const std::string with_port = text.substr(0, slash) + ":1" + protocol;
    if (!parse_published(with_port, port))
        return std::nullopt;
    return "no port is described by \"" + text +
           "\"; there are [ADDRESS:]HOSTPORT[/tcp|/udp] and unix:PATH";
}

std::optional<std::string> parse_host_socket(const std::string& text, PublishedPort& port)
{
    port = {};
    port.kind = PublishedPort::Kind::host_socket;
    std::string rest = text;
    const bool ok = to_number(take_last(rest), port.inside) && port.inside != 0 && !rest.empty();
    port.path = is_unix(rest) ? rest.substr(std::string{unix_mark}.size()) : rest;
    if (ok && !port.path.empty())
        return std::nullopt;
    return "--host-socket takes PATH:PORT, a unix socket of the host and a port of the sandbox, "
           "not "
           "\"" +
           text + "\"";
}

std::string say_port(const PublishedPort& port)
{
    const std::string inside = "port " + std::to_string(port.inside);
    return port.kind == PublishedPort::Kind::host_socket ? inside + " leads to " + place_of(port)
                                                         : place_of(port) + " leads to " + inside;
}

std::optional<std::string> parse_tcp_ports(const std::string& text, std::vector<Ports>& ports)
{
    for (const std::string& word : split(text, ',')) {
        const std::size_t dash = word.find('-');
        Ports range;
        const bool is_range = dash != std::string::npos;
        const bool is_good = to_number(word.substr(0, dash), range.first) &&
                             to_number(is_range ? word.substr(dash + 1) : word, range.last) &&
                             range.first <= range.last;
        if (!is_good)
            return "it takes none, or ports from 0 to 65535 as in 443,8000-8010, not \"" + word +
                   "\"";
        ports.push_back(range);
    }
    return std::nullopt;
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
