#include "net/name_files.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace nsbox::net {

namespace {

/// "keyword word word\n", or nothing.
std::string line(const char* keyword, const std::vector<std::string>& words)
{
    std::string text;
    for (const std::string& word : words)
        text += " " + word;
    return text.empty() ? "" : keyword + text + "\n";
}

std::string text_of(const user::SocketAddress& server)
{
    char text[INET6_ADDRSTRLEN] = {};
    if (server.family() == AF_INET6)
        ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(server.storage).sin6_addr,
                    text, sizeof text);
    else
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(server.storage).sin_addr, text,
                    sizeof text);
    return text;
}

bool is_loopback(const user::SocketAddress& address)
{
    if (address.family() == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(v4.sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

}  // namespace

std::string resolv_conf_for(const ResolvConf& host, const std::string& name_server)
{
    std::string servers;
    if (!name_server.empty())
        servers = line("nameserver", {name_server});
    else
        for (const user::SocketAddress& server : host.servers)
            if (!is_loopback(server))
                servers += line("nameserver", {text_of(server)});
    return servers + line("search", host.search) + line("options", host.options);
}

std::string hosts_for(const std::string& hostname)
{
    const std::string own = hostname.empty() || hostname == "localhost" ? "" : " " + hostname;
    return "127.0.0.1 localhost" + own + "\n::1 localhost ip6-localhost ip6-loopback" + own + "\n";
}

}  // namespace nsbox::net
