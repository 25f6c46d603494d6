#include "net/name_files.hpp"

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

}  // namespace

std::string resolv_conf_for(const ResolvConf& host)
{
    return "nameserver 10.0.2.3\n" + line("search", host.search) + line("options", host.options);
}

std::string hosts_for(const std::string& hostname)
{
    const std::string own = hostname.empty() || hostname == "localhost" ? "" : " " + hostname;
    return "127.0.0.1 localhost" + own + "\n::1 localhost ip6-localhost ip6-loopback" + own + "\n";
}

}  // namespace nsbox::net
